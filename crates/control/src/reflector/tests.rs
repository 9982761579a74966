use std::sync::{Arc, Mutex};

use expect_test::{Expect, expect};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use muster_engine::daemonset::DaemonSetController;
use muster_engine::daemonset::facts::{self, Kind};

use super::*;

/// Status and body of a response, and whether the connection is closed after it.
type StubResponse = (u16, String, bool);

/// Serves `responses` in order; further requests hang. Compares the log of requests and deliveries, which ends after
/// `deliveries_max` deliveries or with the reflector.
async fn check(
    kind: Kind,
    namespace: Option<&str>,
    responses: Vec<StubResponse>,
    deliveries_max: usize,
    expected: Expect,
) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let log = Arc::new(Mutex::new(Vec::new()));
    let serving = tokio::spawn(serve(listener, responses, log.clone()));
    let mut config = kube::Config::new(url.parse().unwrap());
    config.default_retry = false;
    let (sender, mut deliveries) = mpsc::channel(100);
    let relist = watch::Sender::new(0);
    let client = Client::try_from(config).unwrap();
    let reflector = Reflector::<DaemonSetController> {
        idle_timeout: Duration::from_secs(2),
        store_replaced_after: Duration::from_millis(1),
        ..Reflector::new(client, (kind.index(), kind.watch()), namespace, sender)
    };
    let running = tokio::spawn(reflector.run(relist.subscribe()));
    for _ in 0..deliveries_max {
        let Some((_, delivery)) = deliveries.recv().await else {
            log.lock().unwrap().push("the end".to_owned());
            break;
        };
        log.lock().unwrap().push(match delivery {
            Delivery::Listed { facts, resource_version } => {
                let names: Vec<String> = facts.iter().map(fact_text).collect();
                format!("listed at {resource_version}: {}", names.join(" "))
            }
            Delivery::Watched(WatchEvent::Bookmark { resource_version, .. }) => {
                format!("watched bookmark@{resource_version}")
            }
            Delivery::Watched(watched) => format!("watched {}", fact_text(&watched.into_fact().unwrap())),
            Delivery::Forbidden => "forbidden".to_owned(),
        });
    }
    running.abort();
    serving.abort();
    expected.assert_eq(&log.lock().unwrap().join("\n"));
}

fn fact_text(fact: &facts::WatchedObject) -> String {
    let (key, at) = (fact.key(), fact.resource_version());
    if fact.is_relevant() { format!("{key}@{at}") } else { format!("{key} gone@{at}") }
}

async fn serve(listener: TcpListener, responses: Vec<StubResponse>, log: Arc<Mutex<Vec<String>>>) {
    let mut open = Vec::new();
    for (status, body, ends) in responses {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        let head = String::from_utf8(head).unwrap();
        log.lock().unwrap().push(head.lines().next().unwrap().trim_end_matches(" HTTP/1.1").to_owned());
        let response = format!("HTTP/1.1 {status} Stub\r\nconnection: close\r\n\r\n{body}");
        stream.write_all(response.as_bytes()).await.unwrap();
        if ends {
            stream.shutdown().await.unwrap();
        } else {
            open.push(stream);
        }
    }
    std::future::pending::<()>().await;
}

fn object(name: &str, version: u64) -> Value {
    json!({"metadata": {"name": name, "namespace": "a", "resourceVersion": version.to_string()}})
}

fn lines(lines: &[(&str, Value)]) -> String {
    lines.iter().map(|(kind, object)| format!("{}\n", json!({"type": kind, "object": object}))).collect()
}

fn end(version: u64) -> Value {
    let annotations = json!({"k8s.io/initial-events-end": "true"});
    json!({"metadata": {"resourceVersion": version.to_string(), "annotations": annotations}})
}

fn status(code: u16) -> String {
    json!({"kind": "Status", "status": "Failure", "code": code, "message": "no", "reason": "Stub"})
        .to_string()
}

fn page(items: &[Value], version: u64, after: &str) -> String {
    json!({"metadata": {"resourceVersion": version.to_string(), "continue": after}, "items": items})
        .to_string()
}

#[tokio::test]
async fn a_streaming_list_continues_as_a_watch_that_resumes_after_its_last_event() {
    let foreign = json!({"metadata": {"name": "of-a-job", "namespace": "a", "resourceVersion": "4",
        "ownerReferences": [{"kind": "Job", "uid": "u", "controller": true}]}});
    let first = lines(&[
        ("ADDED", object("p", 3)),
        ("ADDED", foreign),
        ("ADDED", object("q", 2)),
        ("DELETED", object("q", 5)),
        ("BOOKMARK", end(6)),
        ("MODIFIED", object("p", 7)),
    ]);
    // The connection ends in the middle of a line.
    let first = format!("{first}{{\"type\":\"ADDED\"");
    let second = lines(&[("ADDED", object("r", 8)), ("BOOKMARK", object("", 9))]);
    let compacted = lines(&[("ERROR", json!({"code": 410, "message": "too old"}))]);
    let relisted = lines(&[("ADDED", object("r", 8)), ("BOOKMARK", end(12))]);
    let responses = vec![
        (200, first, true),
        (503, status(503), true),
        (200, second, true),
        (200, compacted, true),
        (200, relisted, false),
    ];
    let expected = expect![[r#"
        GET /api/v1/pods?watch=true&allowWatchBookmarks=true&timeoutSeconds=290&sendInitialEvents=true&resourceVersionMatch=NotOlderThan
        listed at 6: a/p@3
        watched a/p@7
        GET /api/v1/pods?watch=true&allowWatchBookmarks=true&timeoutSeconds=290&resourceVersion=7
        GET /api/v1/pods?watch=true&allowWatchBookmarks=true&timeoutSeconds=290&resourceVersion=7
        watched a/r@8
        watched bookmark@9
        GET /api/v1/pods?watch=true&allowWatchBookmarks=true&timeoutSeconds=290&resourceVersion=9
        GET /api/v1/pods?watch=true&allowWatchBookmarks=true&timeoutSeconds=290&sendInitialEvents=true&resourceVersionMatch=NotOlderThan
        listed at 12: a/r@8"#]];
    check(Kind::Pods, None, responses, 5, expected).await;
}

#[tokio::test]
async fn a_server_without_streaming_lists_is_listed_by_page() {
    let responses = vec![
        (422, status(422), true),
        (200, page(&[object("s", 3)], 9, "more/"), true),
        // The continue token has expired.
        (410, status(410), true),
        (200, page(&[object("s", 3)], 11, "more"), true),
        (200, page(&[object("t", 4)], 11, ""), true),
        (200, lines(&[("DELETED", object("s", 12))]), false),
    ];
    let expected = expect![[r#"
        GET /apis/apps/v1/namespaces/a/daemonsets?watch=true&allowWatchBookmarks=true&timeoutSeconds=290&sendInitialEvents=true&resourceVersionMatch=NotOlderThan
        GET /apis/apps/v1/namespaces/a/daemonsets?limit=500
        GET /apis/apps/v1/namespaces/a/daemonsets?limit=500&continue=more%2F
        GET /apis/apps/v1/namespaces/a/daemonsets?limit=500
        GET /apis/apps/v1/namespaces/a/daemonsets?limit=500&continue=more
        listed at 11: a/s@3 a/t@4
        GET /apis/apps/v1/namespaces/a/daemonsets?watch=true&allowWatchBookmarks=true&timeoutSeconds=290&resourceVersion=11
        watched a/s gone@12"#]];
    check(Kind::Sets, Some("a"), responses, 2, expected).await;
}

#[tokio::test]
async fn a_streaming_list_that_does_not_end_falls_back_to_pages() {
    let responses = vec![
        (200, lines(&[("ADDED", object("r", 3))]), false),
        (200, page(&[object("r", 3)], 9, ""), true),
        (200, lines(&[("BOOKMARK", object("", 10))]), false),
    ];
    let expected = expect![[r#"
        GET /apis/apps/v1/controllerrevisions?watch=true&allowWatchBookmarks=true&timeoutSeconds=290&sendInitialEvents=true&resourceVersionMatch=NotOlderThan
        GET /apis/apps/v1/controllerrevisions?limit=500
        listed at 9: a/r@3
        GET /apis/apps/v1/controllerrevisions?watch=true&allowWatchBookmarks=true&timeoutSeconds=290&resourceVersion=9
        watched bookmark@10"#]];
    check(Kind::Revisions, None, responses, 2, expected).await;
}

#[tokio::test]
async fn the_reflector_ends_when_the_store_was_replaced() {
    let list = |version| (200, lines(&[("BOOKMARK", end(version))]), true);
    let back = (200, lines(&[("BOOKMARK", object("", 7))]), true);
    // One older list may come from a server that lags; after the second one the store counts as replaced.
    let responses = vec![list(9), back.clone(), list(9), back, list(7), list(8)];
    check(Kind::Nodes, None, responses, 9, expect![[r#"
        GET /api/v1/nodes?watch=true&allowWatchBookmarks=true&timeoutSeconds=290&sendInitialEvents=true&resourceVersionMatch=NotOlderThan
        listed at 9: 
        GET /api/v1/nodes?watch=true&allowWatchBookmarks=true&timeoutSeconds=290&resourceVersion=9
        GET /api/v1/nodes?watch=true&allowWatchBookmarks=true&timeoutSeconds=290&sendInitialEvents=true&resourceVersionMatch=NotOlderThan
        listed at 9: 
        GET /api/v1/nodes?watch=true&allowWatchBookmarks=true&timeoutSeconds=290&resourceVersion=9
        GET /api/v1/nodes?watch=true&allowWatchBookmarks=true&timeoutSeconds=290&sendInitialEvents=true&resourceVersionMatch=NotOlderThan
        listed at 7: 
        GET /api/v1/nodes?watch=true&allowWatchBookmarks=true&timeoutSeconds=290&sendInitialEvents=true&resourceVersionMatch=NotOlderThan
        listed at 8: 
        the end"#]]).await;
}

#[test]
fn a_missing_permission_is_named() {
    let refused = |code: u16| {
        let refused = serde_json::from_str(&status(code)).unwrap();
        describe_error(&Kind::Sets.watch(), &kube::Error::Api(refused))
    };
    expect![[r#"
        the API server does not accept the controller's credentials: no
        the controller's role must grant it the verbs list and watch on daemonsets of the group apps: no
        daemonsets: no (500)"#]]
    .assert_eq(&[401, 403, 500].map(refused).join("\n"));
}

#[tokio::test]
async fn an_optional_kind_that_is_not_served_is_empty_and_one_that_is_forbidden_is_not() {
    let listed = lines(&[("ADDED", object("d", 3)), ("BOOKMARK", end(6))]);
    let responses = vec![
        (404, status(404), true),
        (403, status(403), true),
        (200, listed, true),
        (404, status(404), true),
    ];
    let expected = expect![[r#"
        GET /apis/muster.dev/v1alpha1/daemonrollouts?watch=true&allowWatchBookmarks=true&timeoutSeconds=290&sendInitialEvents=true&resourceVersionMatch=NotOlderThan
        listed at 0: 
        GET /apis/muster.dev/v1alpha1/daemonrollouts?watch=true&allowWatchBookmarks=true&timeoutSeconds=290&sendInitialEvents=true&resourceVersionMatch=NotOlderThan
        forbidden
        GET /apis/muster.dev/v1alpha1/daemonrollouts?watch=true&allowWatchBookmarks=true&timeoutSeconds=290&sendInitialEvents=true&resourceVersionMatch=NotOlderThan
        listed at 6: a/d@3
        GET /apis/muster.dev/v1alpha1/daemonrollouts?watch=true&allowWatchBookmarks=true&timeoutSeconds=290&resourceVersion=6
        listed at 6: "#]];
    check(Kind::Rollouts, None, responses, 4, expected).await;
}
