//! What a client gets by its `Accept` header and its method, and the paths that only some clients use.

use hyper::client::conn::http2;
use hyper::header::CONTENT_LENGTH;
use hyper_util::rt::{TokioExecutor, TokioIo};

use super::*;

impl Server {
    /// Code, content type, content length if it is said, and body.
    async fn raw(&self, method: &str, path: &str, accept: &str) -> (u16, String, Option<String>, String) {
        let request = Request::builder().method(method).uri(path);
        let request = if accept.is_empty() { request } else { request.header(ACCEPT, accept) };
        let request = request.body(Full::new(Bytes::new())).unwrap();
        let response = self.handle(Some(&User::server()), request).await;
        let text = |name| response.headers().get(name).map(|it| it.to_str().unwrap().to_owned());
        let (code, media_type, length) =
            (response.status().as_u16(), text(CONTENT_TYPE).unwrap_or_default(), text(CONTENT_LENGTH));
        let body = self.body(response).await;
        (code, media_type, length, String::from_utf8(body.to_vec()).unwrap())
    }
}

const YAML_MEDIA_TYPE: &str = "application/yaml";

#[tokio::test]
async fn objects_lists_and_refusals_come_in_yaml() {
    let server = Server::new().await;
    let made =
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: settings\ndata:\n  k: 'yes'\n  n: '012'\n";
    let (code, answer) = server.send("POST", MAPS, YAML_MEDIA_TYPE, made).await;
    assert_eq!(code, 201, "{answer}");
    let (code, media_type, _, body) = server.raw("GET", &format!("{MAPS}/settings"), YAML_MEDIA_TYPE).await;
    assert_eq!((code, &*media_type), (200, YAML_MEDIA_TYPE));
    let read: Value = serde_saphyr::from_str(&body).unwrap();
    assert_eq!(read, server.get(&format!("{MAPS}/settings")).await.1);

    for path in [
        MAPS,
        &format!("{MAPS}?limit=1"),
        &format!("{MAPS}?labelSelector=none%3Dsuch"),
        "/api",
        "/apis/apps/v1",
    ] {
        let (code, media_type, _, body) = server.raw("GET", path, YAML_MEDIA_TYPE).await;
        assert_eq!((code, &*media_type), (200, YAML_MEDIA_TYPE), "{path}");
        let read: Value = serde_saphyr::from_str(&body).unwrap();
        assert_eq!(read, server.get(path).await.1, "{path}");
    }
    let table = format!("{YAML_MEDIA_TYPE};as=Table;v=v1;g=meta.k8s.io");
    let (_, media_type, _, body) = server.raw("GET", MAPS, &table).await;
    let read: Value = serde_saphyr::from_str(&body).unwrap();
    assert_eq!((&*media_type, &read["kind"]), (YAML_MEDIA_TYPE, &json!("Table")));
    let (code, media_type, _, body) = server.raw("GET", &format!("{MAPS}/none"), YAML_MEDIA_TYPE).await;
    assert_eq!((code, &*media_type), (404, YAML_MEDIA_TYPE));
    expect![[r#"
        apiVersion: v1
        code: 404
        details:
          kind: configmaps
          name: none
        kind: Status
        message: configmaps "none" not found
        metadata: {}
        reason: NotFound
        status: Failure
    "#]]
    .assert_eq(&body);
    // What is no API object, and what comes in events, does not.
    let (_, media_type, ..) = server.raw("GET", "/version", YAML_MEDIA_TYPE).await;
    assert_eq!(media_type, JSON_MEDIA_TYPE);
    let (code, _, _, body) =
        server.raw("GET", &format!("{MAPS}?watch=true&timeoutSeconds=1"), YAML_MEDIA_TYPE).await;
    assert_eq!(code, 406, "{body}");
    let (code, _, _, body) = server.raw("GET", MAPS, "text/html").await;
    assert_eq!(code, 406, "{body}");
}

#[tokio::test]
async fn the_answer_to_a_head_has_no_body() {
    let server = Server::new().await;
    for path in
        ["/healthz", "/version", "/metrics", "/api", "/openapi/v2", "/none", MAPS, "/", "/readyz/none"]
    {
        let (code, media_type, length, _) = server.raw("GET", path, "").await;
        let head = server.raw("HEAD", path, "").await;
        assert_eq!(head.3, "", "{path}");
        if path == MAPS {
            // As upstream: resources have no HEAD.
            assert_eq!(head.0, 405);
            continue;
        }
        assert_eq!((head.0, head.1), (code, media_type), "{path}");
        assert_eq!(length, None, "the library says it where there is a body");
        let length: usize = head.2.unwrap().parse().unwrap();
        assert!(0 < length, "{path}");
    }
}

/// The client sees each frame of a response, so also the body that there should not be.
#[tokio::test]
async fn the_answer_to_a_head_has_no_body_in_http2() {
    let server = Server::new().await;
    let (line, serving) = fairness::serve(&server.api, Some(User::server()), true);
    let (client, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(line)).await.unwrap();
    let connection = tokio::spawn(connection);
    let ask = async |method: &str, path: &str| {
        let uri = format!("https://localhost{path}");
        let request = Request::builder().method(method).uri(uri).body(Full::new(Bytes::new())).unwrap();
        let response = client.clone().send_request(request).await.unwrap();
        let (code, length) = (response.status().as_u16(), response.headers().get(CONTENT_LENGTH).cloned());
        let length: Option<usize> = length.map(|it| it.to_str().unwrap().parse().unwrap());
        (code, length, response.into_body().collect().await.unwrap().to_bytes().len())
    };
    for (path, expected) in [("/version", 200), ("/healthz", 200), ("/openapi/v2", 200), ("/none", 404)] {
        let (code, _, bytes) = ask("GET", path).await;
        assert_eq!(code, expected, "{path}");
        assert!(0 < bytes, "{path}");
        assert_eq!(ask("HEAD", path).await, (code, Some(bytes), 0), "{path}");
    }
    let (code, _, bytes) = ask("HEAD", MAPS).await;
    assert_eq!((code, bytes), (405, 0));
    drop(client);
    connection.await.unwrap().unwrap();
    serving.await.unwrap();
}

#[tokio::test]
async fn metrics_are_plain_text_unless_openmetrics_is_asked_for() {
    let server = Server::new().await;
    let (_, media_type, _, text) = server.raw("GET", "/metrics", "").await;
    assert_eq!(media_type, "text/plain; version=0.0.4; charset=utf-8");
    assert!(
        text.contains("# TYPE apiserver_longrunning_requests gauge\n") && !text.contains("# EOF"),
        "{text}"
    );
    let (_, media_type, _, text) =
        server.raw("GET", "/metrics", "application/openmetrics-text;version=1.0.0").await;
    assert_eq!(media_type, "application/openmetrics-text; version=1.0.0; charset=utf-8");
    assert!(text.ends_with("# EOF\n"), "{text}");
    let (_, _, _, text) = server.raw("GET", "/metrics/slis", "").await;
    expect![[r##"
        # HELP kubernetes_healthcheck Result of a single health check.
        # TYPE kubernetes_healthcheck gauge
        kubernetes_healthcheck{name="ping",type="healthz"} 1
        kubernetes_healthcheck{name="log",type="healthz"} 1
        kubernetes_healthcheck{name="store",type="healthz"} 1
        kubernetes_healthcheck{name="poststarthook/rbac/bootstrap-roles",type="healthz"} 1
        kubernetes_healthcheck{name="ping",type="livez"} 1
        kubernetes_healthcheck{name="log",type="livez"} 1
        kubernetes_healthcheck{name="poststarthook/rbac/bootstrap-roles",type="livez"} 1
        kubernetes_healthcheck{name="ping",type="readyz"} 1
        kubernetes_healthcheck{name="log",type="readyz"} 1
        kubernetes_healthcheck{name="store",type="readyz"} 1
        kubernetes_healthcheck{name="poststarthook/rbac/bootstrap-roles",type="readyz"} 1
        kubernetes_healthcheck{name="shutdown",type="readyz"} 1
    "##]]
    .assert_eq(&text);
}

#[tokio::test]
async fn the_root_lists_paths_that_there_are() {
    let server = Server::new().await;
    let (code, said) = server.get("/").await;
    assert_eq!(code, 200);
    let paths: Vec<&str> = unstructured::list_at(&said, "paths").iter().filter_map(Value::as_str).collect();
    assert!(
        paths.is_sorted() && paths.contains(&"/apis/apps/v1") && paths.contains(&"/readyz/store"),
        "{paths:?}"
    );
    for path in paths {
        let (code, ..) = server.raw("GET", path, "").await;
        assert_eq!(code, 200, "{path}");
    }
    for path in ["/api/v1//pods", "/api/v1/namespaces//pods", "//"] {
        let (code, ..) = server.raw("GET", path, "").await;
        assert_eq!(code, 404, "{path}");
    }
}

#[tokio::test]
async fn custom_resource_definitions_are_an_empty_list() {
    let server = Server::new().await;
    let all = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let (code, said) = server.get(all).await;
    assert_eq!(
        (code, &said["kind"], &said["items"]),
        (200, &json!("CustomResourceDefinitionList"), &json!([]))
    );
    assert_eq!(server.watch(&format!("{all}?watch=true&timeoutSeconds=1")).await, "");
    check(
        server.get(&format!("{all}/x.y.z")).await,
        &expect![[r#"404 customresourcedefinitions.apiextensions.k8s.io "x.y.z" not found"#]],
    );
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "x.y.z"}});
    check(
        server.json("POST", all, definition).await,
        &expect![
            "405 custom resources are not served: customresourcedefinitions.apiextensions.k8s.io can be listed, and not written"
        ],
    );
    let (_, groups) = server.get("/apis").await;
    assert!(groups.to_string().contains("apiextensions.k8s.io/v1"), "{groups}");
}

#[tokio::test]
async fn deprecated_watch_paths_send_events() {
    let server = Server::new().await;
    for name in ["one", "two"] {
        assert_eq!(server.json("POST", MAPS, map(name, "a")).await.0, 201);
    }
    let said = async |path: &str| server.watch(&format!("/api/v1/watch/{path}timeoutSeconds=1")).await;
    let all = said("configmaps?").await;
    assert!(all.contains("ADDED ConfigMap one") && all.contains("ADDED ConfigMap two"), "{all}");
    let other = said("namespaces/kube-system/configmaps?").await;
    assert!(!other.contains("ConfigMap one"), "{other}");
    let one = said("namespaces/default/configmaps/one?").await;
    assert!(one.starts_with("ADDED ConfigMap one") && one.lines().count() == 1, "{one}");
    let selected = said("namespaces/default/configmaps?fieldSelector=metadata.name%3Dtwo&").await;
    assert!(selected.starts_with("ADDED ConfigMap two") && selected.lines().count() == 1, "{selected}");
    check(
        server.get("/api/v1/watch/namespaces/default/configmaps/one?fieldSelector=metadata.name%3Dtwo").await,
        &expect!["400 fieldSelector metadata.name doesn't match requested name"],
    );
    for path in
        ["/api/v1/watch/namespaces/default/configmaps", "/api/v1/watch/namespaces/default/configmaps/one"]
    {
        assert_eq!(server.json("DELETE", path, json!({})).await.0, 405, "{path}");
        assert_eq!(server.json("POST", path, map("three", "a")).await.0, 405, "{path}");
    }
    // Nothing but `watch` is authorized there.
    let user = User { name: "watcher".to_owned(), ..User::default() };
    let request =
        Request::builder().uri("/api/v1/watch/pods?watch=false").body(Full::new(Bytes::new())).unwrap();
    let response = server.handle(Some(&user), request).await;
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let body = String::from_utf8_lossy(&body);
    assert!(code == 403 && body.contains("cannot watch resource"), "{code} {body}");
}

#[tokio::test]
async fn a_template_with_an_app_armor_annotation_is_warned_of() {
    let server = Server::new().await;
    let set = |profile: Value| {
        json!({"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {
            "metadata": {
                "labels": {"a": "b"},
                "annotations": {"container.apparmor.security.beta.kubernetes.io/c": "runtime/default"},
            },
            "spec": {"securityContext": {"appArmorProfile": profile}, "containers": [{"name": "c", "image": "i"}]},
        }}})
    };
    for (profile, expected) in [
        (
            Value::Null,
            r#"299 - "spec.template.metadata.annotations[container.apparmor.security.beta.kubernetes.io/c]: deprecated since v1.30; use the \"appArmorProfile\" field instead""#,
        ),
        (json!({"type": "RuntimeDefault"}), ""),
    ] {
        let request = Request::builder()
            .method("POST")
            .uri("/apis/apps/v1/namespaces/default/daemonsets?dryRun=All")
            .header(CONTENT_TYPE, JSON_MEDIA_TYPE)
            .body(Full::new(Bytes::from(set(profile).to_string())))
            .unwrap();
        let response = server.handle(Some(&User::server()), request).await;
        assert_eq!(response.status(), 201);
        let warnings = response.headers().get_all("warning").iter();
        let warnings: Vec<&str> = warnings.map(|it| it.to_str().unwrap()).collect();
        assert_eq!(warnings.join("\n"), expected);
    }
}
