//! Lists, tables and the revisions they are at.

use super::*;

#[tokio::test]
async fn a_list_waits_for_the_revision_its_client_has_seen() {
    let server = Server::new().await;
    let (_, list) = server.get(&format!("{MAPS}?resourceVersion=5")).await;
    assert_eq!(str_at(&list, "metadata.resourceVersion"), "5");
    tokio::time::pause();
    check(
        server.get(&format!("{MAPS}?resourceVersion=6")).await,
        &expect![[r#"504 Too large resource version: 6, current: 5"#]],
    );
    check(
        server.get(&format!("{MAPS}?resourceVersion=4&resourceVersionMatch=Exact")).await,
        &expect![[r#"410 The resourceVersion for the provided list is too old."#]],
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
