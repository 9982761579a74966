//! What becomes of objects that are written, and which are refused.

use super::*;

#[tokio::test]
async fn server_owned_fields_ignore_the_client() {
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

/// A mirror pod references no Secret, in whichever field: the node mounts it without a check of its own.
#[tokio::test]
async fn a_mirror_pod_references_no_secret() {
    let server = Server::new().await;
    let mirror = |volume: Value| {
        let mut pod = pod("m", "");
        pod["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
        pod["spec"]["nodeName"] = json!("n");
        pod["spec"]["volumes"] = json!([volume]);
        pod
    };
    for volume in [
        json!({"name": "v", "secret": {"secretName": "s"}}),
        json!({"name": "v", "projected": {"sources": [{"secret": {"name": "s"}}]}}),
        json!({"name": "v", "csi": {"driver": "d", "nodePublishSecretRef": {"name": "s"}}}),
        json!({"name": "v", "azureFile": {"shareName": "a", "secretName": "s"}}),
    ] {
        check(
            server.json("POST", PODS, mirror(volume)).await,
            &expect![[r#"403 pods "m" is forbidden: a mirror pod may not reference secrets"#]],
        );
    }
}

#[tokio::test]
async fn rejections_equal_upstreams() {
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
        &expect![[
            r#"400 error decoding patch: json: cannot unmarshal string into Go value of type map[string]interface {}"#
        ]],
    );
    check(
        server.send("POST", PODS, JSON_MEDIA_TYPE, "{").await,
        &expect![[
            r#"400 the object provided is unrecognized (must be of type Pod): couldn't get version/kind; json parse error: unexpected end of JSON input ({)"#
        ]],
    );
    check(
        server.send("POST", PODS, "text/plain", "a: b").await,
        &expect![[
            r#"415 the body of the request was in an unknown format - accepted media types include: application/json, application/yaml, application/vnd.kubernetes.protobuf"#
        ]],
    );
    check(
        server.json("PATCH", &format!("{PODS}/p"), json!({})).await,
        &expect!["415 415: Unsupported Media Type"],
    );
    check(
        server
            .send(
                "POST",
                PODS,
                JSON_MEDIA_TYPE,
                &" ".repeat(crate::flow_control::request_body::BODY_BYTES_MAX + 1),
            )
            .await,
        &expect![[r#"413 Request entity too large: limit is 3145728"#]],
    );
    check(
        server.json("POST", &format!("{PODS}?dryRun=Some"), pod("q", "")).await,
        &expect![[
            r#"422 CreateOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: ["Some"]: supported values: "All""#
        ]],
    );
    check(
        server.get(&format!("{PODS}?labelSelector=a+b")).await,
        &expect![[r#"400 unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"#]],
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn patches_of_one_object_do_not_get_in_each_others_way() {
    let server = Arc::new(Server::new().await);
    server.json("POST", MAPS, map("a", "x")).await;
    let mut writers = tokio::task::JoinSet::new();
    for at in 0..16 {
        let server = server.clone();
        writers.spawn(async move {
            let patch = json!({"data": {format!("k{at:02}"): "v"}});
            server.merge(&format!("{MAPS}/a"), patch).await.0
        });
    }
    assert_eq!(writers.join_all().await, [200; 16]);
    let (_, object) = server.get(&format!("{MAPS}/a")).await;
    let keys: Vec<_> = object["data"].as_object().unwrap().keys().cloned().collect();
    assert_eq!(keys, (0..16).map(|at| format!("k{at:02}")).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_put_checks_resource_version_uid_and_name() {
    let server = Server::new().await;
    let (_, made) = server.json("POST", MAPS, map("a", "x")).await;
    let put = async |path: &str, object: Value| {
        let (code, it) = server.json("PUT", path, object).await;
        format!("{code} {}", str_at(&it, "message"))
    };
    let path = format!("{MAPS}/a");
    let mut seen = String::new();
    for meta in [
        json!({"name": "a"}),
        json!({"name": "a", "resourceVersion": made["metadata"]["resourceVersion"]}),
        json!({"name": "a", "labels": {"app": "y"}, "uid": made["metadata"]["uid"]}),
        json!({"name": "a", "labels": {"app": "z"}, "resourceVersion": made["metadata"]["resourceVersion"]}),
        json!({"name": "a", "uid": "other"}),
        json!({"name": "b"}),
        json!({}),
        json!({"name": "a", "namespace": "other"}),
        json!({"name": "a", "deletionTimestamp": "2026-01-01T00:00:00Z"}),
    ] {
        writeln!(seen, "{}", put(&path, json!({"metadata": meta})).await).unwrap();
    }
    writeln!(seen, "{}", put(&format!("{MAPS}/nope"), map("nope", "x")).await).unwrap();
    let seen = seen.replace(str_at(&made, "metadata.uid"), "UID");
    expect![[r#"
        200 
        409 Operation cannot be fulfilled on configmaps "a": the object has been modified; please apply your changes to the latest version and try again
        200 
        409 Operation cannot be fulfilled on configmaps "a": the object has been modified; please apply your changes to the latest version and try again
        409 Operation cannot be fulfilled on configmaps "a": StorageError: invalid object, Code: 4, Key: /registry/configmaps/default/a, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: other, UID in object meta: UID
        400 the name of the object (b) does not match the name on the URL (a)
        400 the name of the object (a based on URL) was undeterminable: name must be provided
        400 the namespace of the provided object does not match the namespace sent on the request
        422 ConfigMap "a" is invalid: metadata.deletionTimestamp: Invalid value: "2026-01-01T00:00:00Z": field is immutable
        404 configmaps "nope" not found
    "#]].assert_eq(&seen);

    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    let lease = json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": "x"}});
    assert_eq!(put(&format!("{leases}/l"), lease.clone()).await, "201 ", "some kinds are created by it");
    expect![[r#"422 leases.coordination.k8s.io "l" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update"#]].assert_eq(&put(&format!("{leases}/l"), lease).await);
}

#[tokio::test]
async fn a_write_that_changes_nothing_is_none() {
    let server = Server::new().await;
    let (_, made) = server.json("POST", MAPS, map("a", "x")).await;
    let path = format!("{MAPS}/a");
    let same = server.merge(&path, json!({"metadata": {"labels": {"app": "x"}}})).await;
    assert_eq!(same, (200, made.clone()));
    let other = json!({"metadata": {"name": "a", "labels": {"app": "x"}}});
    let (_, put) = server.json("PUT", &path, other.clone()).await;
    assert_eq!(put["metadata"]["resourceVersion"], made["metadata"]["resourceVersion"]);
    let (_, put) = server.json("PUT", &format!("{path}?dryRun=All"), map("a", "y")).await;
    assert_eq!(put["metadata"]["labels"]["app"], "y");
    assert_eq!(server.get(&path).await.1["metadata"]["labels"]["app"], "x");
}

#[tokio::test]
async fn owners_that_are_named_twice_are_kept_once() {
    let server = Server::new().await;
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u"});
    let object = json!({"metadata": {"name": "a", "ownerReferences": [owner, owner]}});
    let request =
        Request::builder().method("POST").uri(MAPS).body(Full::new(Bytes::from(object.to_string()))).unwrap();
    let response = server.handle(Some(&User::server()), request).await;
    let warnings: Vec<_> = response.headers().get_all("warning").iter().collect();
    expect![[r#"["299 - \".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: u\""]"#]].assert_eq(&format!("{warnings:?}"));
    let (_, made) = server.get(&format!("{MAPS}/a")).await;
    assert_eq!(made["metadata"]["ownerReferences"], json!([owner]));
}

#[tokio::test]
async fn paths_that_lead_nowhere() {
    let server = Server::new().await;
    let told = async |path: &str| {
        let (code, it) = server.get(path).await;
        format!("{code} {}", if it.is_null() { "text" } else { str_at(&it, "message") })
    };
    for path in ["/nothing", "/apis/nothing", "/apis/nothing/v1/x", "//api/v1/nodes"] {
        assert_eq!(told(path).await, "404 text", "{path}");
    }
    let inside = [
        "/api/v2",
        "/api/v1/foos",
        "/apis/apps/v2",
        "/apis/apps/v1/foos",
        "/api/v1/pods/p",
        "/apis/apps/v1/namespaces/default/daemonsets/d/scale",
        "/api/v1/namespaces/default/pods/%2e%2e/status",
        "/api/v1/namespaces/default%2Fpods/pods",
    ];
    for path in inside {
        assert_eq!(told(path).await, "404 the server could not find the requested resource", "{path}");
    }
}
