//! What is too much, and who may come in.

use expect_test::expect;

use super::*;
use crate::limits::{HEADERS_MAX, Limits, URL_BYTES_MAX};

/// Code, `Retry-After` and message of the answer to a GET.
async fn get(api: &Api, user: Option<&User>, path: &str) -> String {
    let request = Request::builder().uri(path).body(Full::new(Bytes::new())).unwrap();
    let response = api.answer(user, request).await;
    let code = response.status().as_u16();
    let after = response.headers().get("retry-after").map(|it| it.to_str().unwrap().to_owned());
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    format!("{code} {after:?} {}", str_at(&body, "message"))
}

#[tokio::test]
async fn whoever_comes_when_it_is_full_is_told_to_come_again() {
    let mut api = Server::new().await.api;
    // One place for a read, none to wait for it, and none for a watch.
    api.limits = Arc::new(Limits::new(1, 1, 0, 0, Duration::ZERO));
    let place = api.limits.enter(true).await;
    let admin = User::server();
    let said = [
        get(&api, Some(&admin), PODS).await,
        get(&api, Some(&admin), "/readyz").await,
        get(&api, Some(&admin), &format!("{PODS}?watch=true")).await,
    ];
    drop(place);
    let then = get(&api, Some(&admin), PODS).await;
    expect![[r#"
        429 Some("1") Too many requests, please try again later.
        200 None 
        429 Some("1") Too many requests, please try again later.
        200 None "#]]
    .assert_eq(&format!("{}\n{then}", said.join("\n")));
    let text = api.registry.metrics.text(&api.registry);
    assert!(text.contains("muster_requests_refused_total 2"), "{text}");
}

#[tokio::test]
async fn nothing_begins_when_the_clients_time_is_over() {
    let mut api = Server::new().await.api;
    // One place for a write, which is taken, and room to wait for it.
    api.limits = Arc::new(Limits::new(1, 1, 1, 1, Duration::from_secs(3600)));
    let place = api.limits.enter(false).await;
    let create = async |timeout: &str| {
        let request = Request::builder()
            .method("POST")
            .uri(format!("{MAPS}?timeout={timeout}"))
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(map("a", "x").to_string())))
            .unwrap();
        let response = api.answer(Some(&User::server()), request).await;
        let code = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        format!("{code} {}", str_at(&body, "message"))
    };
    let mut said = create("1ms").await;
    for timeout in ["soon", "5", "5x", "--1s", "1h1"] {
        write!(said, "\n{}", create(timeout).await).unwrap();
    }
    drop(place);
    assert_eq!(get(&api, Some(&User::server()), &format!("{MAPS}/a")).await.get(..3), Some("404"));
    for timeout in ["1h0m1.5s", "0s", "0", "-1s", ""] {
        write!(said, "\n{}", create(timeout).await).unwrap();
    }
    expect![[r#"
        504 Timeout: request did not complete within requested timeout - context deadline exceeded
        400 invalid timeout specified in the request URL - time: invalid duration "soon"
        400 invalid timeout specified in the request URL - time: missing unit in duration "5"
        400 invalid timeout specified in the request URL - time: unknown unit "x" in duration "5x"
        400 invalid timeout specified in the request URL - time: invalid duration "--1s"
        400 invalid timeout specified in the request URL - time: missing unit in duration "1h1"
        201 
        409 configmaps "a" already exists
        409 configmaps "a" already exists
        409 configmaps "a" already exists
        409 configmaps "a" already exists"#]]
    .assert_eq(&said);
}

#[tokio::test]
async fn a_url_has_a_length() {
    let api = Server::new().await.api;
    let path = format!("{PODS}?labelSelector={}", "a".repeat(URL_BYTES_MAX));
    expect!["414 None the URL of the request is longer than 32768 bytes"]
        .assert_eq(&get(&api, Some(&User::server()), &path).await);
}

#[tokio::test]
async fn headers_are_counted() {
    let api = Server::new().await.api;
    let code = async |count: usize| {
        let mut request = Request::builder().uri(PODS);
        for number in 0..count {
            request = request.header(format!("x-{number}"), "1");
        }
        api.answer(Some(&User::server()), request.body(Full::new(Bytes::new())).unwrap())
            .await
            .status()
            .as_u16()
    };
    assert_eq!((code(HEADERS_MAX).await, code(HEADERS_MAX + 1).await), (200, 431));
}

#[tokio::test]
async fn a_watch_has_its_place_until_it_ends() {
    let mut api = Server::new().await.api;
    api.limits = Arc::new(Limits::new(1, 1, 1, 0, Duration::ZERO));
    let watch = async || {
        let request =
            Request::builder().uri(format!("{PODS}?watch=true")).body(Full::new(Bytes::new())).unwrap();
        api.answer(Some(&User::server()), request).await
    };
    let first = watch().await;
    assert_eq!((first.status().as_u16(), watch().await.status().as_u16()), (200, 429));
    drop(first);
    assert_eq!(watch().await.status().as_u16(), 200);
}

#[tokio::test]
async fn a_stranger_who_is_given_rights_has_none() {
    let api = Server::new().await.api;
    auth::make_default_roles(&api.registry, Timestamp::UNIX_EPOCH).await.unwrap();
    let rbac = "rbac.authorization.k8s.io";
    let binding = json!({
        "metadata": {"name": "all"},
        "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": rbac, "kind": "Group", "name": "system:unauthenticated"}],
    });
    let context = Context::of_server("create", Timestamp::UNIX_EPOCH);
    let kind = Kind::find(rbac, "v1", "clusterrolebindings").unwrap();
    api.registry.create(&context, kind, None, binding).await.unwrap();
    assert_eq!(get(&api, None, PODS).await, "401 None Unauthorized");
}
