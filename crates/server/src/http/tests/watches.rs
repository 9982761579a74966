//! What a watch tells, and when it ends.

use std::sync::atomic::Ordering;

use futures::SinkExt as _;
use tokio_tungstenite::client_async;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use super::*;

#[tokio::test(start_paused = true)]
async fn a_watch_sends_each_change_once() {
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
async fn a_watch_from_before_the_history_must_list_again() {
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
async fn a_watch_sends_later_changes_and_ends_when_the_server_stops() {
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

#[tokio::test(start_paused = true)]
async fn a_watch_of_many_objects_begins_with_all_of_them() {
    let server = Server::with_history(1000).await;
    let mut names = Vec::new();
    for at in 0..250 {
        names.push(format!("ADDED ConfigMap m{at:03}"));
        server.json("POST", MAPS, map(&format!("m{at:03}"), "x")).await;
    }
    let list = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    for path in [
        format!("{MAPS}?{list}&timeoutSeconds=1"),
        format!("{MAPS}?watch=true&resourceVersion=5&timeoutSeconds=1"),
    ] {
        let said = server.watch(&path).await;
        let said: Vec<_> = said
            .lines()
            .filter(|it| it.starts_with("ADDED"))
            .map(|it| it.rsplit_once(' ').unwrap().0)
            .collect();
        assert_eq!(said, names, "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_of_one_object_sends_no_other() {
    let server = Server::new().await;
    for name in ["a", "ab"] {
        server.json("POST", MAPS, map(name, "x")).await;
        server.merge(&format!("{MAPS}/{name}"), map(name, "y")).await;
    }
    server.json("DELETE", &format!("{MAPS}/a"), json!({})).await;
    let path = format!("{MAPS}?watch=true&fieldSelector=metadata.name%3Da&timeoutSeconds=1");
    expect![[r#"
        ADDED ConfigMap a 6
        MODIFIED ConfigMap a 7
        DELETED ConfigMap a 10
    "#]]
    .assert_eq(&server.watch(&format!("{path}&resourceVersion=5")).await);
    let everywhere = "/api/v1/configmaps?watch=true&fieldSelector=metadata.name%3Da,metadata.namespace%3Ddefault&timeoutSeconds=1&resourceVersion=5";
    assert_eq!(server.watch(everywhere).await, server.watch(&format!("{path}&resourceVersion=5")).await);
}

#[tokio::test(start_paused = true)]
async fn a_quiet_watch_says_every_minute_how_far_it_has_come_and_once_more_before_it_ends() {
    let server = Server::new().await;
    let path = format!("{MAPS}?watch=true&resourceVersion=5&allowWatchBookmarks=true&timeoutSeconds=150");
    expect![[r#"
        BOOKMARK ConfigMap  5
        BOOKMARK ConfigMap  5
        BOOKMARK ConfigMap  5
    "#]]
    .assert_eq(&server.watch(&path).await);
}

#[tokio::test(start_paused = true)]
async fn a_watch_of_the_future_waits_for_it() {
    let server = Server::new().await;
    let list = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    check(
        server.get(&format!("{MAPS}?{list}&resourceVersion=99")).await,
        &expect!["504 Timeout: Too large resource version: 99, current: 5"],
    );
    let path = format!("{MAPS}?watch=true&resourceVersion=7");
    let request = Request::builder().uri(path).body(Full::new(Bytes::new())).unwrap();
    let mut watch = server.handle(Some(&User::server()), request).await.into_body();
    for name in ["a", "b", "c"] {
        server.json("POST", MAPS, map(name, "x")).await;
    }
    let told = watch.frame().await.unwrap().unwrap().into_data().unwrap();
    let event: Value = serde_json::from_slice(&told).unwrap();
    assert_eq!((str_at(&event, "type"), str_at(&event, "object.metadata.name")), ("ADDED", "c"));
}

#[tokio::test(start_paused = true)]
async fn a_watch_as_a_table_sends_its_columns_once() {
    let server = Server::new().await;
    server.json("POST", MAPS, map("a", "x")).await;
    server.json("POST", MAPS, map("b", "x")).await;
    let request = Request::builder()
        .uri(format!("{MAPS}?watch=true&resourceVersion=5&timeoutSeconds=1"))
        .header(ACCEPT, "application/json;as=Table;v=v1;g=meta.k8s.io")
        .body(Full::new(Bytes::new()))
        .unwrap();
    let response = server.handle(Some(&User::server()), request).await;
    let body = server.body(response).await;
    let tables = body.split(|it| *it == b'\n').filter(|it| !it.is_empty());
    let seen: Vec<_> = tables
        .map(|it| {
            let event: Value = serde_json::from_slice(it).unwrap();
            let columns = unstructured::list_at(&event["object"], "columnDefinitions").len();
            (columns, event["object"]["rows"][0]["cells"][0].clone())
        })
        .collect();
    assert_eq!(seen, [(3, json!("a")), (0, json!("b"))]);
}

#[tokio::test(start_paused = true)]
async fn an_object_goes_as_it_stood() {
    let server = Server::new().await;
    let mut object = map("a", "x");
    object["metadata"]["finalizers"] = json!(["example.com/a"]);
    server.json("POST", MAPS, object).await;
    server.json("DELETE", &format!("{MAPS}/a"), json!({})).await;
    let (_, answer) = server.merge(&format!("{MAPS}/a"), json!({"metadata": {"finalizers": null}})).await;
    assert_eq!(answer["metadata"]["finalizers"], Value::Null);
    let request = Request::builder()
        .uri(format!("{MAPS}?watch=true&resourceVersion=7&timeoutSeconds=1"))
        .body(Full::new(Bytes::new()))
        .unwrap();
    let response = server.handle(Some(&User::server()), request).await;
    let event: Value = serde_json::from_slice(&server.body(response).await).unwrap();
    let meta = &event["object"]["metadata"];
    assert_eq!((str_at(&event, "type"), str_at(meta, "resourceVersion")), ("DELETED", "8"));
    assert_eq!(meta["finalizers"], json!(["example.com/a"]));
}

#[derive(Default)]
struct Alarm(std::sync::atomic::AtomicUsize);

impl std::task::Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn a_watch_of_one_node_or_object_is_woken_by_nothing_else() {
    let server = Server::with_history(1000).await;
    let check = async |path: &str, golden: &Expect| {
        let request = Request::builder().uri(path).body(Full::new(Bytes::new())).unwrap();
        let mut watch = server.handle(Some(&User::server()), request).await.into_body();
        let alarm = Arc::new(Alarm::default());
        let waker = std::task::Waker::from(alarm.clone());
        let mut told = String::new();
        let mut look = |after: &str| {
            let mut said = String::new();
            while let std::task::Poll::Ready(frame) =
                std::pin::pin!(watch.frame()).poll(&mut std::task::Context::from_waker(&waker))
            {
                let frame = frame.unwrap().unwrap().into_data().unwrap();
                for line in frame.split(|it| *it == b'\n').filter(|it| !it.is_empty()) {
                    let event: Value = serde_json::from_slice(line).unwrap();
                    let [kind, name] = ["type", "object.metadata.name"].map(|it| str_at(&event, it));
                    write!(said, " {kind} {name}").unwrap();
                }
            }
            let woken = alarm.0.swap(0, Ordering::SeqCst);
            writeln!(told, "{after}: {}{said}", if woken == 0 { "sleeps" } else { "woken" }).unwrap();
        };
        look("begun");
        server.json("POST", PODS, pod("here", "n1")).await;
        look("a pod on its node");
        server.json("POST", PODS, pod("there", "n2")).await;
        look("a pod on another");
        server.json("POST", PODS, pod("free", "")).await;
        look("a pod on none");
        let binding = json!({"metadata": {"name": "free"}, "target": {"kind": "Node", "name": "n1"}});
        let (code, said) = server.json("POST", &format!("{PODS}/free/binding"), binding).await;
        assert_eq!(code, 201, "{said}");
        look("which is bound to it");
        for at in 0..40 {
            server
                .merge(&format!("{PODS}/there"), json!({"metadata": {"labels": {"a": at.to_string()}}}))
                .await;
        }
        look("forty changes of another");
        for at in 0..40 {
            server
                .merge(&format!("{PODS}/here"), json!({"metadata": {"labels": {"a": at.to_string()}}}))
                .await;
        }
        look("forty changes of its own");
        for name in ["here", "there", "free"] {
            let at_once = json!({"gracePeriodSeconds": 0});
            let (code, said) = server.json("DELETE", &format!("{PODS}/{name}"), at_once).await;
            assert_eq!(code, 200, "{said}");
        }
        look("all go");
        golden.assert_eq(&told.replace(&" MODIFIED here".repeat(40), " MODIFIED here, and 39 times more"));
    };
    check(
        "/api/v1/pods?watch=1&fieldSelector=spec.nodeName%3Dn1",
        &expect![[r#"
            begun: sleeps
            a pod on its node: woken ADDED here
            a pod on another: sleeps
            a pod on none: sleeps
            which is bound to it: woken ADDED free
            forty changes of another: sleeps
            forty changes of its own: woken MODIFIED here, and 39 times more
            all go: woken MODIFIED here DELETED here MODIFIED free DELETED free
        "#]],
    )
    .await;
    check(
        &format!("{PODS}?watch=1&fieldSelector=metadata.name%3Dhere"),
        &expect![[r#"
            begun: sleeps
            a pod on its node: woken ADDED here
            a pod on another: sleeps
            a pod on none: sleeps
            which is bound to it: sleeps
            forty changes of another: sleeps
            forty changes of its own: woken MODIFIED here, and 39 times more
            all go: woken MODIFIED here DELETED here
        "#]],
    )
    .await;
    check(
        "/api/v1/pods?watch=1&fieldSelector=spec.nodeName%3D",
        &expect![[r#"
            begun: sleeps
            a pod on its node: sleeps
            a pod on another: sleeps
            a pod on none: woken ADDED free
            which is bound to it: woken DELETED free
            forty changes of another: sleeps
            forty changes of its own: sleeps
            all go: sleeps
        "#]],
    )
    .await;
}

#[tokio::test]
async fn a_watch_over_a_web_socket_sends_each_event_as_a_message() {
    let server = Server::new().await;
    let watches = || server.api.registry.metrics.long_running_requests.get();
    server.json("POST", MAPS, map("a", "x")).await;
    let open = async || {
        let (line, _) = fairness::serve(&server.api, Some(User::server()), false);
        let mut request = format!("ws://localhost{MAPS}?watch=true").into_client_request().unwrap();
        request.headers_mut().insert("sec-websocket-protocol", "one, another".parse().unwrap());
        client_async(request, line).await.unwrap()
    };
    let (mut socket, response) = open().await;
    assert_eq!(response.headers()["sec-websocket-protocol"], "one");
    let mut said = String::new();
    for change in ["none", "add", "change", "delete"] {
        match change {
            "add" => drop(server.json("POST", MAPS, map("b", "x")).await),
            "change" => drop(server.merge(&format!("{MAPS}/b"), map("b", "y")).await),
            "delete" => drop(server.json("DELETE", &format!("{MAPS}/b"), json!({})).await),
            _ => {}
        }
        let Message::Text(text) = socket.next().await.unwrap().unwrap() else { panic!("it is no text") };
        let event: Value = serde_json::from_str(&text).unwrap();
        let labels = &event["object"]["metadata"]["labels"];
        writeln!(said, "{} {} {labels}", str_at(&event, "type"), str_at(&event, "object.metadata.name"))
            .unwrap();
    }
    expect![[r#"
        ADDED a {"app":"x"}
        ADDED b {"app":"x"}
        MODIFIED b {"app":"y"}
        DELETED b {"app":"y"}
    "#]]
    .assert_eq(&said);
    socket.send(Message::Ping("are you there".into())).await.unwrap();
    assert_eq!(socket.next().await.unwrap().unwrap(), Message::Pong("are you there".into()));

    // A client that disconnects ends its watch, and a server that stops closes those that are left.
    let (left, _) = open().await;
    assert_eq!(watches(), 2);
    drop(left);
    wait_until(|| watches() == 1).await;
    server.api.stop.cancel();
    let Message::Close(Some(end)) = socket.next().await.unwrap().unwrap() else { panic!("it is not closed") };
    assert_eq!(end.code, CloseCode::Normal);
    wait_until(|| watches() == 0).await;
}
