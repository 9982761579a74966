//! The server without its sockets: requests in, answers out.

use std::fmt::Write as _;

use expect_test::{Expect, expect};
use http_body_util::Full;

use super::*;
use crate::standing;

struct Server {
    api: Api,
}

impl Server {
    async fn new() -> Self {
        Self::with_history(100).await
    }

    async fn with_history(history_max: usize) -> Self {
        let registry = Arc::new(Registry::new(history_max));
        standing::make_bare(&registry, "2026-01-01T00:00:00Z".parse().unwrap()).await.unwrap();
        Self { api: Api { registry, stop: CancellationToken::new() } }
    }

    async fn send(&self, method: &str, path: &str, media_type: &str, body: &str) -> (u16, Value) {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(CONTENT_TYPE, media_type)
            .body(Full::new(Bytes::from(body.to_owned())))
            .unwrap();
        let response = self.api.answer(Some(&User::server()), request).await;
        let code = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (code, serde_json::from_slice(&body).unwrap_or(Value::Null))
    }

    async fn json(&self, method: &str, path: &str, body: Value) -> (u16, Value) {
        self.send(method, path, JSON, &body.to_string()).await
    }

    async fn get(&self, path: &str) -> (u16, Value) {
        self.send("GET", path, "", "").await
    }

    async fn merge(&self, path: &str, patch: Value) -> (u16, Value) {
        self.send("PATCH", path, "application/merge-patch+json", &patch.to_string()).await
    }

    /// All that a watch says until its stream ends.
    async fn watch(&self, path: &str) -> String {
        let request = Request::builder().uri(path).body(Full::new(Bytes::new())).unwrap();
        let response = self.api.answer(Some(&User::server()), request).await;
        assert_eq!(response.status(), 200);
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let mut said = String::new();
        for line in body.split(|it| *it == b'\n').filter(|it| !it.is_empty()) {
            let event: Value = serde_json::from_slice(line).unwrap();
            let object = &event["object"];
            let meta = &object["metadata"];
            writeln!(
                said,
                "{} {} {} {}{}",
                str_at(&event, "type"),
                str_at(object, "kind"),
                str_at(meta, "name"),
                str_at(meta, "resourceVersion"),
                if meta["annotations"].is_null() { "" } else { " end" }
            )
            .unwrap();
        }
        said
    }
}

const PODS: &str = "/api/v1/namespaces/default/pods";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn pod(name: &str, node: &str) -> Value {
    let mut pod = json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    if !node.is_empty() {
        pod["spec"]["nodeName"] = json!(node);
    }
    pod
}

fn map(name: &str, app: &str) -> Value {
    json!({"metadata": {"name": name, "labels": {"app": app}}})
}

fn check(answer: (u16, Value), golden: &Expect) {
    golden.assert_eq(&format!("{} {}", answer.0, str_at(&answer.1, "message")));
}

#[tokio::test]
async fn a_stranger_sees_only_health_and_version() {
    let server = Server::new().await;
    auth::make_default_roles(&server.api.registry, Timestamp::UNIX_EPOCH).await.unwrap();
    let code = async |path: &str| {
        let request = Request::builder().uri(path).body(Full::new(Bytes::new())).unwrap();
        server.api.answer(None, request).await.status().as_u16()
    };
    for path in ["/healthz", "/livez", "/readyz", "/version"] {
        assert_eq!(code(path).await, 200, "{path}");
    }
    for path in ["/api", "/apis/apps/v1", "/openapi/v2", PODS, "/nothing"] {
        assert_eq!(code(path).await, 401, "{path}");
    }
}

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
        &expect!["400 the namespace of the provided object does not match the namespace sent on the request"],
    );
    check(
        server.json("POST", sets, map("UP", "x")).await,
        &expect![[
            r#"422 DaemonSet.apps "UP" is invalid: [metadata.name: Invalid value: "UP": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*'), spec.selector: Required value, spec.template.spec.containers: Required value]"#
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
            r#"422  "" is invalid: patch: Invalid value: "\"x\"": json: cannot unmarshal string into Go value of type v1.Pod"#
        ]],
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
            "415 the body of the request was in an unknown format (text/plain) - accepted media types include: application/json, application/yaml, application/vnd.kubernetes.protobuf"
        ],
    );
    check(
        server.json("PATCH", &format!("{PODS}/p"), json!({})).await,
        &expect![
            "415 the body of the request was in an unknown format (application/json) - accepted media types include: application/merge-patch+json, application/strategic-merge-patch+json"
        ],
    );
    check(
        server.send("POST", PODS, JSON, &" ".repeat(BODY_BYTES_MAX + 1)).await,
        &expect!["413 Request entity too large: limit is 3145728"],
    );
    check(
        server.json("POST", &format!("{PODS}?dryRun=Some"), pod("q", "")).await,
        &expect![[r#"422 dryRun: Unsupported value: "Some": supported values: "All""#]],
    );
    check(
        server.get(&format!("{PODS}?labelSelector=a+b")).await,
        &expect![[r#"400 unable to parse requirement: "a b" is not a label key"#]],
    );
    check(
        server.get(&format!("{PODS}?watch=1&sendInitialEvents=true")).await,
        &expect![
            "422 resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        ],
    );
    check(
        server.json("POST", "/api/v1/pods", pod("q", "")).await,
        &expect!["405 the server does not allow this method on the requested resource"],
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
    assert_eq!(refused.0, 409);
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

#[tokio::test]
async fn a_pod_on_a_node_gets_its_time_to_stop() {
    let server = Server::new().await;
    server.json("POST", PODS, pod("loose", "")).await;
    server.json("POST", PODS, pod("bound", "")).await;
    let binding = json!({"target": {"kind": "Node", "name": "n1"}});
    let bind = format!("{PODS}/bound/binding");
    assert_eq!(server.json("POST", &bind, binding.clone()).await.0, 201);
    check(
        server.json("POST", &bind, binding).await,
        &expect![[
            r#"409 Operation cannot be fulfilled on pods "bound": pod bound is already assigned to node "n1""#
        ]],
    );

    let delete = async |name: &str, options: Value| {
        let (code, it) = server.json("DELETE", &format!("{PODS}/{name}"), options).await;
        let grace_s = &it["metadata"]["deletionGracePeriodSeconds"];
        format!("{code} {} {grace_s}", str_at(&it, "kind"))
    };
    assert_eq!(delete("loose", json!({})).await, "200 Status null", "no node has to stop it");
    assert_eq!(delete("bound", json!({"preconditions": {"uid": "x"}})).await, "409 Status null");
    assert_eq!(delete("bound", json!({})).await, "200 Pod 30");
    assert_eq!(delete("bound", json!({"gracePeriodSeconds": 60})).await, "200 Pod 30", "never longer");
    assert_eq!(delete("bound", json!({"gracePeriodSeconds": -1})).await, "200 Pod 1", "but shorter");
    assert_eq!(delete("bound", json!({"gracePeriodSeconds": 0})).await, "200 Status null");
    assert_eq!(server.get(&format!("{PODS}/bound")).await.0, 404);
}

#[tokio::test]
async fn a_namespace_goes_when_it_is_empty() {
    let server = Server::new().await;
    server.json("POST", "/api/v1/namespaces", json!({"metadata": {"name": "a"}})).await;
    server.json("POST", "/api/v1/namespaces/a/configmaps", map("m", "x")).await;
    let delete = async |path: &str| server.json("DELETE", path, json!({})).await;
    check(
        delete("/api/v1/namespaces/a").await,
        &expect![[
            r#"409 Operation cannot be fulfilled on namespaces "a": it still holds configmaps: delete them first"#
        ]],
    );
    assert_eq!(delete("/api/v1/namespaces/a/configmaps").await.0, 200);
    assert_eq!(delete("/api/v1/namespaces/a").await.0, 200);
    check(
        delete("/api/v1/namespaces/default").await,
        &expect![[r#"403 namespaces "default" is forbidden: this namespace may not be deleted"#]],
    );
}

#[tokio::test]
async fn a_list_waits_for_the_revision_its_client_has_seen() {
    let server = Server::new().await;
    let (_, list) = server.get(&format!("{MAPS}?resourceVersion=5")).await;
    assert_eq!(str_at(&list, "metadata.resourceVersion"), "5");
    tokio::time::pause();
    check(
        server.get(&format!("{MAPS}?resourceVersion=6")).await,
        &expect!["504 Too large resource version: 6, current: 5"],
    );
    check(
        server.get(&format!("{MAPS}?resourceVersion=4&resourceVersionMatch=Exact")).await,
        &expect!["410 The resourceVersion for the provided list is too old."],
    );
}

/// A list that waits looks at the head and then at the store; a write goes the other way round.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_and_writes_do_not_wait_for_each_other() {
    let server = Arc::new(Server::new().await);
    server.json("POST", MAPS, map("a", "x")).await;
    let lists = tokio::spawn({
        let server = server.clone();
        async move {
            for _ in 0..3000 {
                assert_eq!(server.get(&format!("{MAPS}?resourceVersion=0")).await.0, 200);
            }
        }
    });
    let writes = tokio::spawn(async move {
        for at in 0..3000 {
            assert_eq!(server.merge(&format!("{MAPS}/a"), map("a", &at.to_string())).await.0, 200);
        }
    });
    lists.await.unwrap();
    writes.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_watch_tells_each_change_once() {
    let server = Server::new().await;
    server.json("POST", MAPS, map("a", "x")).await;
    server.json("POST", MAPS, map("b", "y")).await;
    server.merge(&format!("{MAPS}/a"), map("a", "y")).await;
    server.merge(&format!("{MAPS}/b"), map("b", "x")).await;
    server.json("DELETE", &format!("{MAPS}/b"), json!({})).await;
    server.json("POST", PODS, pod("p", "")).await;

    expect![[r#"
        ADDED ConfigMap a 6
        ADDED ConfigMap b 7
        MODIFIED ConfigMap a 8
        MODIFIED ConfigMap b 9
        DELETED ConfigMap b 10
    "#]]
    .assert_eq(&server.watch(&format!("{MAPS}?watch=true&resourceVersion=5&timeoutSeconds=1")).await);
    // Entering the selector adds, leaving it deletes.
    expect![[r#"
        ADDED ConfigMap a 6
        DELETED ConfigMap a 8
        ADDED ConfigMap b 9
        DELETED ConfigMap b 10
    "#]]
    .assert_eq(
        &server
            .watch(&format!("{MAPS}?watch=true&resourceVersion=5&timeoutSeconds=1&labelSelector=app%3Dx"))
            .await,
    );
    expect![[r#"
        ADDED ConfigMap a 8
        BOOKMARK ConfigMap  11
    "#]]
    .assert_eq(&server.watch(&format!("{MAPS}?watch=true&allowWatchBookmarks=true&timeoutSeconds=1")).await);
    let list = format!("{MAPS}?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan");
    expect![[r#"
        ADDED ConfigMap a 8
        BOOKMARK ConfigMap  11 end
        BOOKMARK ConfigMap  11
    "#]]
    .assert_eq(&server.watch(&format!("{list}&allowWatchBookmarks=true&timeoutSeconds=1")).await);
}

#[tokio::test]
async fn a_watch_from_before_the_history_is_told_to_list_again() {
    let server = Server::with_history(2).await;
    for name in ["a", "b", "c"] {
        server.json("POST", MAPS, map(name, "x")).await;
    }
    let path = |after: u64| format!("{MAPS}?watch=true&timeoutSeconds=1&resourceVersion={after}");
    assert_eq!(server.watch(&path(5)).await, "ERROR Status  \n");
    tokio::time::pause();
    assert_eq!(server.watch(&path(6)).await, "ADDED ConfigMap b 7\nADDED ConfigMap c 8\n");
}

#[tokio::test]
async fn a_watch_goes_on_with_what_comes_and_ends_when_the_server_stops() {
    let server = Server::new().await;
    let path = format!("{MAPS}?watch=true&resourceVersion=5");
    let watching = server.watch(&path);
    let writing = async {
        for name in ["a", "b", "c"] {
            tokio::task::yield_now().await;
            server.json("POST", MAPS, map(name, "x")).await;
        }
        tokio::task::yield_now().await;
        server.api.stop.cancel();
    };
    let (said, ()) = tokio::join!(watching, writing);
    assert_eq!(said, "ADDED ConfigMap a 6\nADDED ConfigMap b 7\nADDED ConfigMap c 8\n");
}

#[tokio::test]
async fn a_table_has_a_row_for_each_object() {
    let server = Server::new().await;
    server.json("POST", MAPS, map("a", "x")).await;
    let request = Request::builder()
        .uri(MAPS)
        .header(ACCEPT, "application/json;as=Table;v=v1;g=meta.k8s.io,application/json")
        .body(Full::new(Bytes::new()))
        .unwrap();
    let response = server.api.answer(Some(&User::server()), request).await;
    let table: Value =
        serde_json::from_slice(&response.into_body().collect().await.unwrap().to_bytes()).unwrap();
    let names: Vec<_> =
        object::list(&table, "columnDefinitions").iter().map(|it| str_at(it, "name")).collect();
    assert_eq!((str_at(&table, "kind"), names), ("Table", vec!["Name", "Data", "Age"]));
    assert_eq!(table["rows"][0]["cells"][0], "a");
    assert_eq!(table["rows"][0]["object"]["metadata"]["labels"]["app"], "x");
    assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
}
