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
        &expect!["504 Timeout: Too large resource version: 6, current: 5"],
    );
    check(
        server.get(&format!("{MAPS}?resourceVersion=4&resourceVersionMatch=Exact")).await,
        &expect!["200 "],
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
            for _ in 0..500 {
                assert_eq!(server.get(&format!("{MAPS}?resourceVersion=0")).await.0, 200);
            }
        }
    });
    let writes = tokio::spawn(async move {
        for at in 0..500 {
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
    let table = server.get_as(MAPS, "application/json;as=Table;v=v1;g=meta.k8s.io,application/json").await.1;
    let names: Vec<_> =
        unstructured::list_at(&table, "columnDefinitions").iter().map(|it| str_at(it, "name")).collect();
    assert_eq!((str_at(&table, "kind"), names), ("Table", vec!["Name", "Data", "Age"]));
    assert_eq!(table["rows"][0]["cells"][0], "a");
    assert_eq!(table["rows"][0]["object"]["metadata"]["labels"]["app"], "x");
    assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
}

/// The names in a list, and what its metadata say.
fn page(answer: &(u16, Value)) -> String {
    let names: Vec<_> =
        unstructured::list_at(&answer.1, "items").iter().map(|it| str_at(it, "metadata.name")).collect();
    let meta = &answer.1["metadata"];
    let more = if str_at(meta, "continue").is_empty() { "" } else { " …" };
    format!(
        "{} {names:?} at {} left {}{more}",
        answer.0,
        str_at(meta, "resourceVersion"),
        meta["remainingItemCount"]
    )
}

#[tokio::test]
async fn pages_show_one_state_despite_concurrent_writes() {
    let server = Server::new().await;
    for name in ["a", "b", "c", "d", "e"] {
        server.json("POST", MAPS, map(name, if name == "c" { "y" } else { "x" })).await;
    }
    let (mut pages, mut next) = (String::new(), String::new());
    loop {
        let answer = server.get(&format!("{MAPS}?limit=2&continue={next}")).await;
        writeln!(pages, "{}", page(&answer)).unwrap();
        next = str_at(&answer.1, "metadata.continue").to_owned();
        if next.is_empty() {
            break;
        }
        server.json("POST", MAPS, map("aa", "x")).await;
        server.json("POST", MAPS, map("cc", "x")).await;
        server.json("DELETE", &format!("{MAPS}/d"), json!({})).await;
        server.merge(&format!("{MAPS}/e"), json!({"data": {"a": "b"}})).await;
    }
    expect![[r#"
        200 ["a", "b"] at 10 left 3 …
        200 ["c", "d"] at 10 left 1 …
        200 ["e"] at 10 left null
    "#]]
    .assert_eq(&pages);

    let chosen = server.get(&format!("{MAPS}?limit=2&labelSelector=app%3Dx")).await;
    expect![[r#"200 ["a", "aa"] at 14 left null …"#]].assert_eq(&page(&chosen));
    let exact = server.get(&format!("{MAPS}?resourceVersionMatch=Exact&resourceVersion=9")).await;
    expect![[r#"200 ["a", "b", "c", "d"] at 9 left null"#]].assert_eq(&page(&exact));
    assert_eq!(exact.1["items"][3]["data"], Value::Null, "as it was then");
    let one = server.get(&format!("{MAPS}?fieldSelector=metadata.name%3Daa")).await;
    expect![[r#"200 ["aa"] at 14 left null"#]].assert_eq(&page(&one));
}

#[tokio::test]
async fn a_page_of_compacted_state_gets_a_token_for_the_rest() {
    let server = Server::with_history(3).await;
    for name in ["a", "b", "c"] {
        server.json("POST", MAPS, map(name, "x")).await;
    }
    let first = server.get(&format!("{MAPS}?limit=1")).await;
    for name in ["d", "e", "f", "g"] {
        server.json("POST", MAPS, map(name, "x")).await;
    }
    let next = str_at(&first.1, "metadata.continue");
    let gone = server.get(&format!("{MAPS}?limit=1&continue={next}")).await;
    let next = str_at(&gone.1, "metadata.continue").to_owned();
    check(
        gone,
        &expect![
            "410 The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list."
        ],
    );
    expect![[r#"200 ["b", "c"] at 12 left 4 …"#]]
        .assert_eq(&page(&server.get(&format!("{MAPS}?limit=2&continue={next}")).await));
    check(
        server.get(&format!("{MAPS}?resourceVersionMatch=Exact&resourceVersion=6")).await,
        &expect!["410 The resourceVersion for the provided list is too old."],
    );
}

#[tokio::test]
async fn no_page_leads_out_of_its_list() {
    let server = Server::new().await;
    server.json("POST", MAPS, map("a", "x")).await;
    server.json("POST", "/api/v1/namespaces/kube-system/configmaps", map("hidden", "x")).await;
    for start in
        ["../kube-system/", "/../kube-system/a", "kube-system/a", "\u{10ffff}", "a/../../kube-system/a", "\0"]
    {
        for rv in [-1, server.store.resource_version(6).cast_signed(), i64::MAX] {
            use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD as BASE64};
            let token = BASE64.encode(json!({"v": "meta.k8s.io/v1", "rv": rv, "start": start}).to_string());
            let (code, list) = server.get(&format!("{MAPS}?continue={token}")).await;
            let codes = if rv == i64::MAX { [400, 504] } else { [200, 400] };
            assert!(codes.contains(&code), "{start} {rv} {code}");
            assert!(!list.to_string().contains("hidden"), "{start} {rv}");
        }
    }
    check(
        server.get(&format!("{MAPS}?continue=x")).await,
        &expect![
            "400 invalid continue token: continue key is not valid: illegal base64 data at input byte 0"
        ],
    );
}

#[tokio::test]
async fn options_that_contradict_each_other_are_refused() {
    let server = Server::new().await;
    let list = async |query: &str| server.get(&format!("{MAPS}?{query}")).await;
    check(
        list("resourceVersionMatch=Exact").await,
        &expect![[
            r#"422 ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided"#
        ]],
    );
    check(
        list("resourceVersionMatch=Exact&resourceVersion=0").await,
        &expect![[
            r#"422 ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0""#
        ]],
    );
    check(
        list("resourceVersionMatch=Newer&resourceVersion=1").await,
        &expect![[
            r#"422 ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Unsupported value: "Newer": supported values: "Exact", "NotOlderThan", """#
        ]],
    );
    check(
        list("resourceVersionMatch=Exact&resourceVersion=1&continue=x").await,
        &expect![[
            r#"422 ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided"#
        ]],
    );
    check(
        list("resourceVersion=1&continue=x").await,
        &expect!["400 specifying resource version is not allowed when using continue"],
    );
    check(
        list("resourceVersion=x").await,
        &expect![[
            r#"400 invalid resource version: resourceVersion: Invalid value: "x": strconv.ParseUint: parsing "x": invalid syntax"#
        ]],
    );
    check(list("limit=x").await, &expect![[r#"400 strconv.ParseInt: parsing "x": invalid syntax"#]]);
    check(
        list("sendInitialEvents=true").await,
        &expect![[
            r#"422 ListOptions.meta.k8s.io "" is invalid: sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list"#
        ]],
    );
    let table = "application/json;as=Table;g=meta.k8s.io;v=v1";
    check(
        server.get_as(&format!("{MAPS}?includeObject=Some"), table).await,
        &expect![[
            r#"400 Unable to convert to Table as requested: includeObject: Invalid value: "Some": must be 'Metadata', 'Object', 'None', or empty"#
        ]],
    );
    check(
        list("watch=true&resourceVersionMatch=Exact&resourceVersion=1").await,
        &expect![[
            r#"422 ListOptions.meta.k8s.io "" is invalid: [resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided, resourceVersionMatch: Unsupported value: "Exact": supported values: "NotOlderThan"]"#
        ]],
    );
}

#[tokio::test]
async fn a_long_list_comes_in_pieces_and_is_whole() {
    let server = Server::new().await;
    let filler = "x".repeat(1000);
    let names: Vec<_> = (0..200).map(|at| format!("m{at:03}")).collect();
    for name in &names {
        let object = json!({"metadata": {"name": name}, "data": {"a": filler}});
        server.json("POST", MAPS, object).await;
    }
    for accept in ["application/json", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"] {
        let list = server.get_as(MAPS, accept).await.1;
        let got: Vec<_> =
            unstructured::list_at(&list, "items").iter().map(|it| str_at(it, "metadata.name")).collect();
        assert_eq!(got, names, "{accept}");
    }
    let table = server.get_as(MAPS, "application/json;as=Table;g=meta.k8s.io;v=v1").await.1;
    let got: Vec<_> =
        unstructured::list_at(&table, "rows").iter().map(|it| it["cells"][0].as_str().unwrap()).collect();
    assert_eq!(got, names);
}

#[tokio::test]
async fn a_client_gets_the_representation_it_prefers() {
    let server = Server::new().await;
    server.json("POST", MAPS, map("a", "x")).await;
    let seen = async |accept: &str| {
        let (code, it) = server.get_as(&format!("{MAPS}/a"), accept).await;
        let version = str_at(&it, "apiVersion").strip_prefix("meta.k8s.io").unwrap_or_default();
        format!("{code} {}{version}", str_at(&it, "kind"))
    };
    assert_eq!(seen("").await, "200 ConfigMap");
    assert_eq!(seen("*/*").await, "200 ConfigMap");
    assert_eq!(seen("application/vnd.kubernetes.protobuf, application/json").await, "200 ConfigMap");
    assert_eq!(
        seen("application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json").await,
        "200 Table/v1"
    );
    assert_eq!(seen("application/json;as=Table;v=v1beta1;g=meta.k8s.io").await, "200 Table/v1beta1");
    assert_eq!(seen("application/json;as=Table;v=v2;g=meta.k8s.io,application/json").await, "200 ConfigMap");
    assert_eq!(seen("application/json;q=0.5,application/json;as=Table;q=0.9").await, "200 Table/v1");
    assert_eq!(
        seen("application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io").await,
        "200 PartialObjectMetadata/v1"
    );
    assert_eq!(seen("application/json;as=Nothing").await, "406 Status");
    assert_eq!(seen("image/png").await, "406 Status");

    let review = json!({"spec": {"nonResourceAttributes": {"path": "/", "verb": "get"}}});
    let request = Request::builder()
        .method("POST")
        .uri("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews")
        .header(CONTENT_TYPE, JSON_MEDIA_TYPE)
        .header(ACCEPT, "application/json;as=Table;v=v1;g=meta.k8s.io")
        .body(Full::new(Bytes::from(review.to_string())))
        .unwrap();
    let response = server.handle(Some(&User::server()), request).await;
    assert_eq!(response.status().as_u16(), 406, "a review has no rows");
}
