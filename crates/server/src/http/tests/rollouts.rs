//! The kinds of `muster.dev`, as a client sees them: defaults, refusals, apply, status, columns, explain.

use super::*;

const POLICIES: &str = "/apis/muster.dev/v1alpha1/namespaces/default/rolloutpolicies";
const CLUSTER_POLICIES: &str = "/apis/muster.dev/v1alpha1/clusterrolloutpolicies";
const ROLLOUTS: &str = "/apis/muster.dev/v1alpha1/namespaces/default/daemonrollouts";

#[tokio::test]
async fn a_new_policy_has_its_defaults() {
    let server = Server::new().await;
    let policy = json!({"metadata": {"name": "careful"}, "spec": {
        "daemonSets": ["web"],
        "failures": {"maxNodes": 0},
        "steps": [{"name": "canary", "nodes": 1, "soak": "10m"}, {"name": "rest", "groups": {"labelKey": "zone"}}],
    }});
    let (code, made) = server.json("POST", POLICIES, policy).await;
    assert_eq!(
        (code, &made["metadata"]["generation"], &made["status"]),
        (201, &json!(1), &json!({})),
        "{made}"
    );
    expect![[r#"{"daemonSets":["web"],"failures":{"immediateFailureReasons":["InvalidImageName","ErrImageNeverPull","CreateContainerConfigError"],"maxNodes":0,"maxRestarts":2,"nodeNotReady":"Count","readyTimeout":"5m"},"maxUnavailable":1,"newNodes":"Stable","onDeadline":"Report","onFailure":"Auto","order":{"by":"Hash"},"paused":false,"progressDeadline":"10m","replace":{"method":"Delete"},"steps":[{"approval":"Automatic","name":"canary","nodes":1,"soak":"10m"},{"approval":"Automatic","groups":{"labelKey":"zone","maxConcurrent":1,"maxUnavailable":"100%","soak":"0s"},"name":"rest","nodes":"100%","soak":"0s"}]}"#]].assert_eq(&made["spec"].to_string());

    let all = json!({"metadata": {"name": "all"}, "spec": {"selector": {}}});
    let (code, made) = server.json("POST", CLUSTER_POLICIES, all).await;
    assert_eq!((code, &made["spec"]["selector"]), (201, &json!({})), "{made}");
    let (code, made) = server.json("POST", ROLLOUTS, json!({"metadata": {"name": "web"}})).await;
    assert_eq!((code, &made["spec"]), (201, &json!({"paused": false})), "{made}");
}

#[tokio::test]
async fn invalid_objects_are_refused_with_the_path_of_the_field() {
    let server = Server::new().await;
    let policy = |spec: Value| json!({"metadata": {"name": "p"}, "spec": spec});
    check(
        server.json("POST", POLICIES, policy(json!({}))).await,
        &expect![[
            r#"422 RolloutPolicy.muster.dev "p" is invalid: spec: Required value: exactly one of `selector` and `daemonSets` must be set"#
        ]],
    );
    check(
        server.json("POST", POLICIES, json!({"metadata": {"name": "p"}})).await,
        &expect![[
            r#"422 RolloutPolicy.muster.dev "p" is invalid: spec: Required value: exactly one of `selector` and `daemonSets` must be set"#
        ]],
    );
    let spec = json!({"selector": {}, "onFailure": "Retry", "steps": [
        {"name": "half", "nodes": "50%"}, {"name": "half", "nodes": "10%", "soak": "1d"},
    ]});
    check(
        server.json("POST", POLICIES, policy(spec)).await,
        &expect![[
            r#"422 RolloutPolicy.muster.dev "p" is invalid: [spec.steps[1].soak: Invalid value: "1d": must be a duration such as 90s, 10m or 1h30m, of at most 720h, spec.steps[1].name: Duplicate value: "half", spec.steps[1].nodes: Invalid value: "10%": must not be lower than that of the earlier step "half", spec.onFailure: Unsupported value: "Retry": supported values: "Auto", "Rollback", "Stop"]"#
        ]],
    );
    check(
        server.json("POST", CLUSTER_POLICIES, policy(json!({}))).await,
        &expect![[r#"422 ClusterRolloutPolicy.muster.dev "p" is invalid: spec.selector: Required value"#]],
    );
    check(
        server.json("POST", POLICIES, policy(json!({"selector": {}, "paused": "yes"}))).await,
        &expect![[
            r#"400 RolloutPolicy in version "v1alpha1" cannot be handled as a RolloutPolicy: json: cannot unmarshal string into Go struct field RolloutPolicySpec.spec.paused of type bool"#
        ]],
    );
    let strict = format!("{POLICIES}?fieldValidation=Strict");
    let unknown = policy(json!({"selector": {}, "steps": [{"name": "a", "wave": 1}]}));
    check(
        server.json("POST", &strict, unknown).await,
        &expect![[
            r#"400 RolloutPolicy in version "v1alpha1" cannot be handled as a RolloutPolicy: strict decoding error: unknown field "spec.steps[0].wave""#
        ]],
    );
    let rollout = json!({"metadata": {"name": "web"}, "spec": {"approve": {"revision": "7d9c4b"}}});
    check(
        server.json("POST", ROLLOUTS, rollout).await,
        &expect![[r#"422 DaemonRollout.muster.dev "web" is invalid: spec.approve.step: Required value"#]],
    );
}

#[tokio::test]
async fn apply_merges_steps_and_reports_by_their_keys() {
    let server = Server::new().await;
    let policy = |steps: &str| {
        format!(
            "{{apiVersion: muster.dev/v1alpha1, kind: RolloutPolicy, metadata: {{name: p}}, spec: {{selector: {{}}, steps: {steps}}}}}"
        )
    };
    let path = format!("{POLICIES}/p");
    let (code, _) = server
        .apply(&format!("{path}?fieldManager=git"), &policy("[{name: canary, nodes: 1}, {name: rest}]"))
        .await;
    assert_eq!(code, 201);
    let soak = "{apiVersion: muster.dev/v1alpha1, kind: RolloutPolicy, metadata: {name: p}, spec: {steps: [{name: canary, soak: 5m}]}}";
    let (code, merged) = server.apply(&format!("{path}?fieldManager=team"), soak).await;
    assert_eq!((code, &merged["metadata"]["generation"]), (200, &json!(2)), "{merged}");
    expect![[r#"[{"approval":"Automatic","name":"canary","nodes":1,"soak":"5m"},{"approval":"Automatic","name":"rest","nodes":"100%","soak":"0s"}]"#]].assert_eq(&merged["spec"]["steps"].to_string());
    let report = |check: &str| {
        format!(
            "{{apiVersion: muster.dev/v1alpha1, kind: DaemonRollout, metadata: {{name: web}}, spec: {{checkReports: [{{check: {check}, revision: r, result: Pass}}]}}}}"
        )
    };
    for check in ["smoke", "load"] {
        let path = format!("{ROLLOUTS}/web?fieldManager={check}");
        assert!(matches!(server.apply(&path, &report(check)).await.0, 200 | 201));
    }
    let (_, rollout) = server.get(&format!("{ROLLOUTS}/web")).await;
    let checks: Vec<_> = unstructured::list_at(&rollout["spec"], "checkReports")
        .iter()
        .map(|it| str_at(it, "check"))
        .collect();
    assert_eq!(checks, ["smoke", "load"]);
}

#[tokio::test]
async fn the_status_is_written_apart_from_the_spec() {
    let server = Server::new().await;
    let rollout =
        json!({"metadata": {"name": "web"}, "spec": {"paused": true}, "status": {"phase": "Complete"}});
    let (code, made) = server.json("POST", ROLLOUTS, rollout).await;
    assert_eq!((code, &made["status"]), (201, &json!({})), "{made}");
    let path = format!("{ROLLOUTS}/web");
    let status = json!({"spec": {"paused": false}, "status": {"phase": "Soaking", "nodes": {"updated": 0, "held": 499},
        "step": {"name": "canary", "startTime": "2026-01-01T00:00:00Z"}}});
    let (code, written) = server.merge(&format!("{path}/status"), status).await;
    let seen = (code, &written["spec"]["paused"], &written["metadata"]["generation"]);
    assert_eq!(seen, (200, &json!(true), &json!(1)), "{written}");
    assert_eq!(written["status"]["nodes"], json!({"updated": 0, "held": 499}));
    let wrong = json!({"status": {"phase": "Resting"}});
    check(
        server.merge(&format!("{path}/status"), wrong).await,
        &expect![[
            r#"422 DaemonRollout.muster.dev "web" is invalid: status.phase: Unsupported value: "Resting": supported values: "Complete", "Rolling", "Soaking", "Waiting", "PartiallyComplete", "Stopped", "RollingBack", "RolledBack""#
        ]],
    );
    // A write of the spec keeps the status, and is a new generation.
    let (code, resumed) = server.merge(&path, json!({"spec": {"paused": false}})).await;
    let seen = (code, &resumed["metadata"]["generation"], &resumed["status"]["phase"]);
    assert_eq!(seen, (200, &json!(2), &json!("Soaking")));
}

#[tokio::test]
async fn tables_discovery_and_explain() {
    let server = Server::new().await;
    let policy = json!({"metadata": {"name": "careful"}, "spec": {"selector": {}}});
    assert_eq!(server.json("POST", POLICIES, policy).await.0, 201);
    let (_, table) = server.get_as(POLICIES, "application/json;as=Table;v=v1;g=meta.k8s.io").await;
    let columns = unstructured::list_at(&table, "columnDefinitions").iter();
    let columns: Vec<_> = columns.map(|it| format!("{}:{}", str_at(it, "name"), it["priority"])).collect();
    let mut cells = unstructured::list_at(&table["rows"][0], "cells").to_vec();
    // The age depends on the clock.
    cells[6] = Value::Null;
    expect![[r#"Name:0 Sets:0 Rolling:0 Waiting:0 Failed:0 Paused:0 Age:0 Steps:1 On-Failure:1 ["careful",0,0,0,0,false,null,1,"Auto"]"#]]
        .assert_eq(&format!("{} {}", columns.join(" "), Value::from(cells)));

    let (_, resources) = server.get("/apis/muster.dev/v1alpha1").await;
    let resources = unstructured::list_at(&resources, "resources").iter();
    let names: Vec<_> = resources
        .map(|it| {
            format!("{} {} {} {}", str_at(it, "name"), it["shortNames"], it["categories"], it["namespaced"])
        })
        .collect();
    expect![[r#"
        clusterrolloutpolicies ["crpol"] ["muster"] false
        clusterrolloutpolicies/status null null false
        daemonrollouts ["dro"] ["muster"] true
        daemonrollouts/status null null true
        rolloutpolicies ["rpol"] ["muster"] true
        rolloutpolicies/status null null true"#]]
    .assert_eq(&names.join("\n"));

    let (_, document) = server.get("/openapi/v3/apis/muster.dev/v1alpha1").await;
    let step = &document["components"]["schemas"]["dev.muster.v1alpha1.RolloutStep"];
    expect![[r#"["name"] {"default":"Automatic","description":"Whether the next step begins automatically, or after an operator has approved this step. Defaults to Automatic.\n\nPossible enum values:\n - `\"Automatic\"`\n - `\"Manual\"`","enum":["Automatic","Manual"],"type":"string"}"#]].assert_eq(&format!("{} {}", step["required"], step["properties"]["approval"]));
}

#[tokio::test]
async fn an_update_of_the_status_keeps_the_metadata() {
    let server = Server::new().await;
    let owner = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "web", "uid": "u1"});
    let metadata =
        json!({"name": "web", "labels": {"a": "b"}, "annotations": {"c": "d"}, "ownerReferences": [owner]});
    let (code, made) = server.json("POST", ROLLOUTS, json!({"metadata": metadata})).await;
    assert_eq!(code, 201, "{made}");
    let version = made["metadata"]["resourceVersion"].clone();
    let sent =
        json!({"metadata": {"name": "web", "resourceVersion": version}, "status": {"phase": "Rolling"}});
    let (code, written) = server.json("PUT", &format!("{ROLLOUTS}/web/status"), sent).await;
    assert_eq!((code, &written["status"]["phase"]), (200, &json!("Rolling")), "{written}");
    for field in ["labels", "annotations", "ownerReferences"] {
        assert_eq!(written["metadata"][field], metadata[field], "{field}");
    }
}
