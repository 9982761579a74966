//! What a watch tells, and when it ends.

use super::*;

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
