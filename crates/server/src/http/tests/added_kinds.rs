//! Kinds that are added and removed while the server runs, as a CustomResourceDefinition will do it.

use super::*;
use crate::kinds::{DEFAULT_KIND, StatusPolicy};
use crate::types::{Field, PatchStrategy, Presence, Shape, Type, find_type};

const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

/// The type of an object with `metadata`, and with any `spec` and `status`.
fn widget_type() -> &'static Type {
    let metadata = find_type("", "v1", "ConfigMap").and_then(|it| it.field("metadata")).unwrap();
    let field = |name, shape, presence| Field {
        name,
        description: "A field.",
        shape,
        required: false,
        presence,
        default: None,
        patch: PatchStrategy::Plain,
        proto: &[],
        embedded: None,
        go_type: None,
    };
    let fields = vec![
        field("apiVersion", Shape::String, Presence::NotEmpty),
        field("kind", Shape::String, Presence::NotEmpty),
        field("metadata", metadata.shape, Presence::Always),
        field("spec", Shape::Any, Presence::Set),
        field("status", Shape::Any, Presence::Set),
    ];
    Box::leak(Box::new(Type {
        name: "com.example.v1.Widget",
        description: "A widget.",
        fields: fields.leak(),
        atomic: false,
    }))
}

fn widget_kind() -> Kind {
    Kind {
        group: "example.com",
        kind: "Widget",
        plural: "widgets",
        short_names: &["wd"],
        added_type: Some(widget_type()),
        status: StatusPolicy::SubresourceOnly("{}"),
        generation_fields: Some(&["spec"]),
        ..DEFAULT_KIND
    }
}

fn widget(name: &str) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": {"size": 1}})
}

/// Adds the kind to every server on the store.
fn add_widgets(server: &Server) {
    for registry in server.registries() {
        registry.storage.kinds.register(b"widgets", widget_kind).unwrap();
    }
}

fn remove_widgets(server: &Server) {
    for registry in server.registries() {
        assert!(registry.storage.remove_kind("example.com", "v1", "widgets"));
    }
}

/// One line for each discovery and OpenAPI document that lists the kind or its group, with the names in it.
async fn documents_with_widgets(server: &Server) -> String {
    let mut listed = String::new();
    for (path, version) in [
        ("/", ""),
        ("/apis", ""),
        ("/apis", "v2"),
        ("/apis", "v2beta1"),
        ("/apis/example.com", ""),
        ("/apis/example.com/v1", ""),
        ("/openapi/v2", ""),
        ("/openapi/v3", ""),
        ("/openapi/v3/apis/example.com/v1", ""),
    ] {
        let aggregated =
            format!("{JSON_MEDIA_TYPE};g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList");
        let (_, document) = server.get_as(path, if version.is_empty() { "" } else { &aggregated }).await;
        let text = document.to_string();
        let found: Vec<_> = ["apis/example.com", "\"example.com\"", "\"widgets\"", "com.example.v1.Widget"]
            .into_iter()
            .filter(|it| text.contains(it))
            .collect();
        if !found.is_empty() {
            writeln!(listed, "{} {}", format!("{path} {version}").trim_end(), found.join(" ")).unwrap();
        }
    }
    listed
}

#[tokio::test]
async fn discovery_and_open_api_list_an_added_kind() {
    let server = Server::new().await;
    assert_eq!(documents_with_widgets(&server).await, "");
    add_widgets(&server);
    expect![[r#"
        / apis/example.com
        /apis "example.com"
        /apis v2 "example.com" "widgets"
        /apis v2beta1 "example.com" "widgets"
        /apis/example.com "example.com"
        /apis/example.com/v1 "widgets"
        /openapi/v2 apis/example.com "example.com" com.example.v1.Widget
        /openapi/v3 apis/example.com
        /openapi/v3/apis/example.com/v1 apis/example.com "example.com" com.example.v1.Widget
    "#]]
    .assert_eq(&documents_with_widgets(&server).await);
    let (_, resources) = server.get("/apis/example.com/v1").await;
    let names: Vec<_> =
        unstructured::list_at(&resources, "resources").iter().map(|it| str_at(it, "name")).collect();
    assert_eq!(names, ["widgets", "widgets/status"]);
    remove_widgets(&server);
    assert_eq!(documents_with_widgets(&server).await, "");
    assert_eq!(server.get("/apis/example.com/v1").await.0, 404);
}

#[tokio::test(start_paused = true)]
async fn objects_of_an_added_kind_are_written_and_read() {
    let server = Server::new().await;
    let watch = format!("{WIDGETS}?watch=true&timeoutSeconds=1");
    assert_eq!(server.json("POST", WIDGETS, widget("a")).await.0, 404);
    assert_eq!(server.get(&watch).await.0, 404);
    add_widgets(&server);

    let (code, made) = server.json("POST", WIDGETS, widget("a")).await;
    assert_eq!(
        (code, &made["metadata"]["generation"], &made["status"]),
        (201, &json!(1), &json!({})),
        "{made}"
    );
    let (code, changed) =
        server.merge(&format!("{WIDGETS}/a"), json!({"spec": {"size": 2}, "status": {"ready": true}})).await;
    assert_eq!((code, &changed["metadata"]["generation"], &changed["status"]), (200, &json!(2), &json!({})));
    let (code, _) = server.merge(&format!("{WIDGETS}/a/status"), json!({"status": {"ready": true}})).await;
    assert_eq!(code, 200);
    let apply = format!("{WIDGETS}/b?fieldManager=m");
    let (code, applied) =
        server.send("PATCH", &apply, "application/apply-patch+yaml", &widget("b").to_string()).await;
    assert_eq!((code, str_at(&applied["metadata"]["managedFields"][0], "manager")), (201, "m"), "{applied}");
    let unknown = json!({"metadata": {"name": "c"}, "other": 1});
    let (code, _) = server.json("POST", &format!("{WIDGETS}?fieldValidation=Strict"), unknown).await;
    assert_eq!(code, 400);

    let (code, found) = server.get(&format!("{WIDGETS}/a")).await;
    assert_eq!((code, &found["spec"], &found["status"]), (200, &json!({"size": 2}), &json!({"ready": true})));
    let (_, list) = server.get("/apis/example.com/v1/widgets").await;
    let names: Vec<_> =
        unstructured::list_at(&list, "items").iter().map(|it| str_at(it, "metadata.name")).collect();
    assert_eq!((str_at(&list, "kind"), &names[..]), ("WidgetList", &["a", "b"][..]));
    let (_, table) = server.get_as(WIDGETS, "application/json;as=Table;v=v1;g=meta.k8s.io").await;
    assert_eq!(str_at(&table["rows"][1]["object"], "metadata.name"), "b");
    expect![[r#"
        ADDED Widget a 6
        MODIFIED Widget a 7
        MODIFIED Widget a 8
        ADDED Widget b 9
    "#]]
    .assert_eq(&server.watch(&format!("{watch}&resourceVersion=5")).await);
    server.catch_up().await;
    let metric = r#"apiserver_storage_objects{group="example.com",resource="widgets"} 2"#;
    assert!(server.api.metrics_text().contains(metric), "{}", server.api.metrics_text());

    remove_widgets(&server);
    for path in [WIDGETS, &format!("{WIDGETS}/a"), &watch] {
        assert_eq!(server.get(path).await.0, 404, "{path}");
    }
    assert_eq!(server.json("POST", WIDGETS, widget("c")).await.0, 404);
    assert!(!server.api.metrics_text().contains(r#"apiserver_storage_objects{group="example.com""#));
    // The objects are still stored.
    add_widgets(&server);
    assert_eq!(server.get(&format!("{WIDGETS}/a")).await.0, 200);
}

#[tokio::test]
async fn the_watches_of_a_removed_kind_end() {
    let server = Server::new().await;
    add_widgets(&server);
    assert_eq!(server.json("POST", WIDGETS, widget("a")).await.0, 201);
    let open = async |query: &str| {
        let path = format!("{WIDGETS}?watch=true{query}");
        let request = Request::builder().uri(path).body(Full::new(Bytes::new())).unwrap();
        let response = server.handle(Some(&User::server()), request).await;
        assert_eq!(response.status(), 200);
        response
    };
    let (of_kind, of_object) = (open("").await, open("&fieldSelector=metadata.name%3Da").await);
    remove_widgets(&server);
    for watch in [of_kind, of_object] {
        let said = tokio::time::timeout(Duration::from_secs(60), server.body(watch)).await.expect("it ends");
        assert!(said.starts_with(br#"{"type":"ADDED""#), "{said:?}");
    }
}

#[tokio::test]
async fn other_parts_of_the_server_know_an_added_kind() {
    let server = Server::new().await;
    add_widgets(&server);
    // The garbage collector gets permissions for it.
    let registry = &server.api.registry;
    crate::controllers::cluster_roles::ensure_default_roles(registry, Timestamp::UNIX_EPOCH).await.unwrap();
    let role = Kind::builtin("rbac.authorization.k8s.io", "v1", "clusterroles");
    let role = registry.storage.find(role, None, crate::request::GARBAGE_COLLECTOR_USER).unwrap();
    assert!(unstructured::parse_stored(&role)["rules"].to_string().contains(r#"["widgets"]"#));
    // Quotas count its objects, also if a built-in kind of another group has the same plural name.
    for registry in server.registries() {
        let services = || Kind { kind: "Service", plural: "services", ..widget_kind() };
        registry.storage.kinds.register(b"services", services).unwrap();
    }
    let hard = json!({"count/widgets.example.com": "1", "count/services.example.com": "1", "services": "0"});
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": hard}});
    assert_eq!(server.json("POST", "/api/v1/namespaces/default/resourcequotas", quota).await.0, 201);
    server.catch_up().await;
    let now = Timestamp::now();
    assert!(crate::admission::recalculate_quotas(&registry.admission, &**registry, "default", now).await);
    for (plural, kind) in [("widgets", "Widget"), ("services", "Service")] {
        let path = format!("/apis/example.com/v1/namespaces/default/{plural}");
        let object = |name: &str| {
            let mut object = widget(name);
            object["kind"] = json!(kind);
            object
        };
        let (code, made) = server.json("POST", &path, object("a")).await;
        assert_eq!(code, 201, "{made}");
        let (code, refused) = server.json("POST", &path, object("b")).await;
        let why = format!(
            "exceeded quota: q, requested: count/{plural}.example.com=1, used: count/{plural}.example.com=1, \
             limited: count/{plural}.example.com=1"
        );
        assert!(code == 403 && str_at(&refused, "message").ends_with(&why), "{refused}");
    }
}
