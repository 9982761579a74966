//! What becomes of objects that are written, and which are refused.

use super::*;

#[tokio::test]
async fn the_server_says_what_the_client_may_not() {
    let server = Server::new().await;
    server.json("POST", PODS, pod("p", "")).await;
    let (_, made) = server
        .json(
            "POST",
            PODS,
            json!({"metadata": {"generateName": "g-", "uid": "mine", "generation": 7},
        "spec": pod("", "")["spec"], "status": {"phase": "Running"}}),
        )
        .await;
    assert!(str_at(&made, "metadata.name").starts_with("g-"));
    assert_eq!(str_at(&made, "metadata.name").len(), 7);
    assert_ne!(str_at(&made, "metadata.uid"), "mine");
    assert_eq!((&made["metadata"]["generation"], str_at(&made, "status.phase")), (&json!(1), "Pending"));

    // The spec and the status have each their own door.
    let patch = json!({"metadata": {"labels": {"a": "b"}, "uid": made["metadata"]["uid"]},
        "spec": {"nodeName": "n"}, "status": {"phase": "Failed"}});
    let path = format!("{PODS}/{}", str_at(&made, "metadata.name"));
    let (_, status) = server.merge(&format!("{path}/status"), patch).await;
    assert_eq!((str_at(&status, "status.phase"), str_at(&status, "spec.nodeName")), ("Failed", ""));
    let (_, whole) = server.merge(&path, json!({"status": {"phase": "Running"}})).await;
    assert_eq!(str_at(&whole, "status.phase"), "Failed");
    assert_eq!(whole, status, "a write that changes nothing is none");
}

#[tokio::test]
async fn refusals_are_upstreams() {
    let server = Server::new().await;
    server.json("POST", PODS, pod("p", "")).await;
    let sets = "/apis/apps/v1/namespaces/default/daemonsets";
    check(server.get(&format!("{sets}/nope")).await, &expect![[r#"404 daemonsets.apps "nope" not found"#]]);
    check(server.json("POST", PODS, pod("p", "")).await, &expect![[r#"409 pods "p" already exists"#]]);
    check(
        server.json("POST", "/api/v1/namespaces/nope/pods", pod("p", "")).await,
        &expect![[r#"404 namespaces "nope" not found"#]],
    );
    check(
        server.json("POST", PODS, json!({"kind": "Node"})).await,
        &expect![[
            r#"400 Node in version "v1" cannot be handled as a Pod: converting (v1.Node) to (core.Pod): unknown conversion"#
        ]],
    );
    check(
        server.json("POST", PODS, json!({"metadata": {"name": "p", "namespace": "other"}})).await,
        &expect![[
            r#"400 the namespace of the provided object does not match the namespace sent on the request"#
        ]],
    );
    check(
        server.json("POST", sets, map("UP", "x")).await,
        &expect![[
            r#"422 DaemonSet.apps "UP" is invalid: [metadata.name: Invalid value: "UP": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*'), spec.template.metadata.labels: Invalid value: null: `selector` does not match template `labels`, spec.template.spec.containers: Required value]"#
        ]],
    );
    check(
        server.json("POST", PODS, json!({"metadata": 1})).await,
        &expect![[
            r#"400 Pod in version "v1" cannot be handled as a Pod: json: cannot unmarshal number into Go struct field Pod.metadata of type v1.ObjectMeta"#
        ]],
    );
    check(
        server.json("POST", PODS, json!([1])).await,
        &expect![[
            r#"400 Pod in version "v1" cannot be handled as a Pod: json: cannot unmarshal array into Go value of type v1.Pod"#
        ]],
    );
    check(
        server.merge(&format!("{PODS}/p"), json!("x")).await,
        &expect![
            "400 error decoding patch: json: cannot unmarshal string into Go value of type map[string]interface {}"
        ],
    );
    check(
        server.send("POST", PODS, JSON, "{").await,
        &expect![
            "400 the object provided is unrecognized (must be of type Pod): couldn't get version/kind; json parse error: unexpected end of JSON input ({)"
        ],
    );
    check(
        server.send("POST", PODS, "text/plain", "a: b").await,
        &expect![
            "415 the body of the request was in an unknown format - accepted media types include: application/json, application/yaml, application/vnd.kubernetes.protobuf"
        ],
    );
    check(
        server.json("PATCH", &format!("{PODS}/p"), json!({})).await,
        &expect![
            "415 the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json, application/apply-patch+yaml"
        ],
    );
    check(
        server.send("POST", PODS, JSON, &" ".repeat(BODY_BYTES_MAX + 1)).await,
        &expect![[r#"413 Request entity too large: limit is 3145728"#]],
    );
    check(
        server.json("POST", &format!("{PODS}?dryRun=Some"), pod("q", "")).await,
        &expect![[
            r#"422 CreateOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: []string{"Some"}: supported values: "All""#
        ]],
    );
    check(
        server.get(&format!("{PODS}?labelSelector=a+b")).await,
        &expect!["400 unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"],
    );
    check(
        server.get(&format!("{PODS}?watch=1&sendInitialEvents=true")).await,
        &expect![[
            r#"422 ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"#
        ]],
    );
    check(
        server.json("POST", "/api/v1/pods", pod("q", "")).await,
        &expect![[r#"405 the server does not allow this method on the requested resource"#]],
    );
    let stale = json!({"metadata": {"resourceVersion": "1"}});
    check(
        server.merge(&format!("{PODS}/p"), stale).await,
        &expect![[
            r#"409 Operation cannot be fulfilled on pods "p": the object has been modified; please apply your changes to the latest version and try again"#
        ]],
    );
    let other = json!({"metadata": {"uid": "x"}});
    let refused = server.merge(&format!("{PODS}/p"), other).await;
    check(
        refused,
        &expect![[r#"422 Pod "p" is invalid: metadata.uid: Invalid value: "x": field is immutable"#]],
    );
}

#[tokio::test]
async fn a_dry_run_leaves_no_trace() {
    let server = Server::new().await;
    server.json("POST", PODS, pod("p", "n")).await;
    let before = server.get(PODS).await;
    assert_eq!(server.json("POST", &format!("{PODS}?dryRun=All"), pod("q", "")).await.0, 201);
    assert_eq!(server.json("POST", &format!("{PODS}?dryRun=All"), pod("p", "")).await.0, 409);
    let labels = json!({"metadata": {"labels": {"a": "b"}}});
    let (_, labelled) = server.merge(&format!("{PODS}/p?dryRun=All"), labels).await;
    assert_eq!(str_at(&labelled, "metadata.labels.a"), "b");
    assert_eq!(
        server
            .json("DELETE", &format!("{PODS}/p"), json!({"dryRun": ["All"], "gracePeriodSeconds": 0}))
            .await
            .0,
        200
    );
    assert_eq!(server.get(PODS).await, before);
}

#[tokio::test]
async fn the_generation_counts_changes_of_the_spec() {
    let server = Server::new().await;
    let sets = "/apis/apps/v1/namespaces/default/daemonsets";
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": pod("", "")["spec"]});
    let set = json!({"metadata": {"name": "d", "finalizers": ["x/y"]}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}});
    let path = format!("{sets}/d");
    let mut seen = Vec::new();
    let mut see = |answer: (u16, Value)| seen.push(answer.1["metadata"]["generation"].as_u64().unwrap());
    see(server.json("POST", sets, set).await);
    see(server.merge(&path, json!({"metadata": {"labels": {"a": "b"}}})).await);
    see(server.merge(&path, json!({"spec": {"minReadySeconds": 1}})).await);
    see(server
        .merge(
            &format!("{path}/status"),
            json!({"spec": {"minReadySeconds": 2}, "status": {"numberReady": 1}}),
        )
        .await);
    see(server.json("DELETE", &path, json!({"propagationPolicy": "Background"})).await);
    see(server.json("DELETE", &path, json!({})).await);
    assert_eq!(seen, [1, 1, 2, 2, 3, 3]);
    // The last finalizer goes, and the object with it.
    assert_eq!(server.merge(&path, json!({"metadata": {"finalizers": null}})).await.0, 200);
    assert_eq!(server.get(&path).await.0, 404);
}

#[tokio::test]
async fn the_template_generation_goes_up_with_the_template() {
    let server = Server::new().await;
    let sets = "/apis/apps/v1/namespaces/default/daemonsets";
    let annotation = "deprecated.daemonset.template.generation";
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": pod("", "")["spec"]});
    let set = json!({
        "metadata": {"name": "d", "annotations": {annotation: "4"}},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template},
    });
    let path = format!("{sets}/d");
    let mut seen = Vec::new();
    let mut see = |answer: (u16, Value)| {
        seen.push(answer.1["metadata"]["annotations"][annotation].as_str().unwrap().to_owned());
    };
    see(server.json("POST", sets, set).await);
    see(server.merge(&path, json!({"spec": {"minReadySeconds": 1}})).await);
    see(server.merge(&path, json!({"spec": {"template": {"metadata": {"annotations": {"c": "d"}}}}})).await);
    assert_eq!(seen, ["4", "4", "5"]);
}
