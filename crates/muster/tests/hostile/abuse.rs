//! The abuses, each a function that any identity can commit. An abuse ends by itself, or is ended when its time is up.
//!
//! An abuse counts the answers it gets. It reports `broken:` only where the server did what it must never do: panic (a connection
//! that ends in the middle of an ordinary request, or 500), serve a request with rights that the identity does not have, or
//! store what is over a limit.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::{Engine as _, prelude::BASE64_STANDARD as BASE64};
use bytes::Bytes;
use futures::future::BoxFuture;
use h2::client::ResponseFuture;
use http::StatusCode;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::connection::{Credential, Failure, Http2, token};
use crate::identity::{Attacker, HOSTILE_NODE, OWN_POD, TEAM, VAULT, WATCHED, node_signing_request};

pub(crate) type Abuse = fn(Attacker, Outcome) -> BoxFuture<'static, Result<(), Failure>>;

pub(crate) const ABUSES: &[(&str, Abuse)] = &[
    ("open bodies", |it, outcome| Box::pin(open_bodies(it, outcome))),
    ("zero HTTP/2 window", |it, outcome| Box::pin(zero_window(it, outcome))),
    ("watch flood", |it, outcome| Box::pin(watch_flood(it, outcome))),
    ("HTTP/2 window of one byte", |it, outcome| Box::pin(window_of_one(it, outcome))),
    ("request flood", |it, outcome| Box::pin(request_flood(it, outcome))),
    ("JSON bombs", |it, outcome| Box::pin(json_bombs(it, outcome))),
    ("YAML bombs", |it, outcome| Box::pin(yaml_bombs(it, outcome))),
    ("protobuf bombs", |it, outcome| Box::pin(protobuf_bombs(it, outcome))),
    ("patch bombs", |it, outcome| Box::pin(patch_bombs(it, outcome))),
    ("growing object", |it, outcome| Box::pin(growing_object(it, outcome))),
    ("filling the store", |it, outcome| Box::pin(fill_store(it, outcome))),
    ("filling the reserve", |it, outcome| Box::pin(fill_reserve(it, outcome))),
    ("slow reads", |it, outcome| Box::pin(slow_reads(it, outcome))),
    ("slow bodies", |it, outcome| Box::pin(slow_bodies(it, outcome))),
    ("slow headers", |it, outcome| Box::pin(slow_headers(it, outcome))),
    ("connection flood", |it, outcome| Box::pin(connection_flood(it, outcome))),
    ("rapid reset", |it, outcome| Box::pin(rapid_reset(it, outcome))),
    ("header bytes above 0x7f", |it, outcome| Box::pin(header_bytes(it, outcome))),
    ("invalid credentials", |it, outcome| Box::pin(invalid_credentials(it, outcome))),
    ("foreign subresources", |it, outcome| Box::pin(foreign_subresources(it, outcome))),
    ("selector and path tricks", |it, outcome| Box::pin(path_tricks(it, outcome))),
];

/// Streams or connections that one abuse holds open at once: more than a client may have, and few enough for this machine.
const HELD: usize = 450;

/// Size of one large body.
const LARGE: usize = 3 << 20;

/// Part of the message of an answer that refuses a write because of the size of the store or of a namespace.
pub(crate) const STORE_IS_FULL: &str = "exceeded store limit";

/// How often each answer came.
#[derive(Debug, Clone, Default)]
pub(crate) struct Outcome(Arc<Mutex<BTreeMap<String, u64>>>);

impl Outcome {
    fn count(&self, what: impl Into<String>) {
        *self.0.lock().expect("no panic").entry(what.into()).or_default() += 1;
    }

    /// Whether this answer came at least once.
    pub(crate) fn contains(&self, answer: &str) -> bool {
        self.0.lock().expect("no panic").contains_key(answer)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().expect("no panic").is_empty()
    }

    fn broken(&self, what: impl fmt::Display) {
        self.count(format!("broken: {what}"));
    }

    /// Counts an answer. The server may close the connection, and never answers with an internal error.
    fn answer(&self, answered: &Result<(StatusCode, Bytes), Failure>) {
        match answered {
            Ok((StatusCode::INTERNAL_SERVER_ERROR, body)) => {
                let start: String = String::from_utf8_lossy(body).chars().take(300).collect();
                self.broken(format!("500: {start}"));
            }
            Ok((_, body)) if contains(body, STORE_IS_FULL.as_bytes()) => self.count(STORE_IS_FULL),
            Ok((status, _)) => self.count(status.as_str()),
            Err(_) => self.count("closed"),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = self.0.lock().expect("no panic");
        let counts: Vec<String> = counts.iter().map(|(what, count)| format!("{what} × {count}")).collect();
        f.write_str(&counts.join(", "))
    }
}

impl Attacker {
    async fn http2(&self) -> Result<Http2, Failure> {
        self.endpoint.http2(&self.credential, 1 << 20).await
    }

    /// A path that this identity may write to, with a body that is accepted; anonymous clients have none.
    fn own_write(&self) -> (&'static str, &'static str) {
        match self.name {
            "editor" => ("POST", "/api/v1/namespaces/team/configmaps"),
            "anonymous" => ("GET", "/version"),
            _ => ("POST", SELF_REVIEWS),
        }
    }

    /// The path of a request that this identity may send, with its method and body.
    fn own_request(&self) -> (&'static str, &'static str, &'static str) {
        const REVIEW: &str = r#"{"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}}"#;
        match self.name {
            "editor" => ("GET", "/api/v1/namespaces/team/configmaps?limit=5", ""),
            "node" => ("GET", "/api/v1/services?limit=5", ""),
            "anonymous" => ("GET", "/version", ""),
            _ => ("POST", SELF_REVIEWS, REVIEW),
        }
    }

    /// The path of a watch that this identity may open and that sends few events. An account without roles may watch
    /// nothing, and neither may an anonymous client.
    fn quiet_watch(&self) -> String {
        match self.name {
            "editor" => {
                format!("/api/v1/namespaces/{TEAM}/configmaps?watch=1&fieldSelector=metadata.name%3Dnone")
            }
            "node" => "/api/v1/services?watch=1".to_owned(),
            _ => "/api/v1/pods?watch=1".to_owned(),
        }
    }

    /// The path of a watch that this identity may open, of an object of 60 kB. An account without roles may watch
    /// nothing, and neither may an anonymous client: a request without a watch takes its place.
    fn large_watch(&self) -> String {
        match self.name {
            "editor" => format!(
                "/api/v1/namespaces/{TEAM}/configmaps?watch=1&fieldSelector=metadata.name%3D{WATCHED}"
            ),
            "node" => format!("/api/v1/nodes?watch=1&fieldSelector=metadata.name%3D{HOSTILE_NODE}"),
            "anonymous" => "/version".to_owned(),
            _ => "/openapi/v2".to_owned(),
        }
    }

    /// Creates that store an object, each a function of the index and the size of the object: the path and the body.
    /// Empty for an identity that may store nothing.
    fn own_creates(&self) -> Vec<Create> {
        match self.name {
            "editor" => vec![|index, bytes| {
                let name = format!("fill-{bytes}-{index}");
                let object = json!({"metadata": {"name": name}, "data": {"a": "x".repeat(bytes)}});
                (format!("/api/v1/namespaces/{TEAM}/configmaps"), object)
            }],
            "node" => vec![
                |index, bytes| event("kube-system", index, bytes),
                |index, bytes| event("kube-node-lease", index, bytes),
                |index, bytes| event(TEAM, index, bytes),
                signing_request,
            ],
            _ => Vec::new(),
        }
    }

    /// Objects that this identity may let grow: the path of each, and a patch.
    fn own_patches(&self) -> Vec<(String, GrowingPatch)> {
        let condition: GrowingPatch = |index| {
            let message = "x".repeat(300_000);
            json!({"status": {"conditions": [{"type": format!("k{index}"), "status": "True", "message": message}]}})
        };
        let annotation: GrowingPatch =
            |index| json!({"metadata": {"annotations": {format!("k{index}"): "x".repeat(300_000)}}});
        let datum: GrowingPatch = |index| json!({"data": {format!("k{index}"): "x".repeat(300_000)}});
        let lease = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
        match self.name {
            "editor" => vec![("/api/v1/namespaces/team/configmaps/grown".to_owned(), datum)],
            "node" => vec![
                (format!("/api/v1/nodes/{HOSTILE_NODE}"), annotation),
                (format!("/api/v1/nodes/{HOSTILE_NODE}/status"), condition),
                (format!("{lease}/{HOSTILE_NODE}"), annotation),
                (format!("/api/v1/namespaces/default/pods/{OWN_POD}/status"), condition),
            ],
            _ => Vec::new(),
        }
    }

    /// Sends a JSON body, counts the answer, and connects again if the connection has ended.
    async fn send_json(
        &self,
        connection: &mut Http2,
        outcome: &Outcome,
        (method, path, body): (&str, &str, &Value),
    ) -> Result<Option<(StatusCode, Bytes)>, Failure> {
        let mut request = connection.request(method, path).body(())?;
        if method == "PATCH" {
            let media_type = if path.contains("/leases/") { "merge-patch" } else { "strategic-merge-patch" };
            request.headers_mut().insert("content-type", format!("application/{media_type}+json").parse()?);
        }
        let answered = connection.send(request, Bytes::from(body.to_string())).await;
        outcome.answer(&answered);
        if answered.is_err() {
            *connection = self.http2().await?;
        }
        Ok(answered.ok())
    }

    /// Sends reviews of a megabyte, which the server echoes and does not store.
    async fn send_reviews(&self, outcome: &Outcome) -> Result<(), Failure> {
        outcome.count("may store nothing");
        let mut connection = self.http2().await?;
        let attributes = json!({"verb": "x".repeat(1_000_000), "resource": "pods"});
        for _ in 0..20 {
            let review = json!({"spec": {"resourceAttributes": attributes}});
            self.send_json(&mut connection, outcome, ("POST", SELF_REVIEWS, &review)).await?;
        }
        Ok(())
    }
}

/// The path and body of a create, from an index and the size of the object.
type Create = fn(usize, usize) -> (String, Value);

/// A patch that adds 300 kB to an object, from an index that is different for each addition.
type GrowingPatch = fn(usize) -> Value;

/// Reviews that every authenticated user may create.
const SELF_REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/// The path and body that create an Event of this size.
fn event(namespace: &str, index: usize, bytes: usize) -> (String, Value) {
    let event = json!({
        "metadata": {"name": format!("fill-{bytes}-{index}"), "namespace": namespace},
        "involvedObject": {"kind": "Pod", "name": "x", "namespace": namespace},
        "message": "x".repeat(bytes),
    });
    (format!("/api/v1/namespaces/{namespace}/events"), event)
}

/// The path and body that create a CertificateSigningRequest with annotations of this size, or of 250 kB if that is
/// less, which is the most that annotations may have.
fn signing_request(index: usize, bytes: usize) -> (String, Value) {
    static REQUEST: std::sync::LazyLock<String> = std::sync::LazyLock::new(|| {
        let key = rcgen::KeyPair::generate().expect("a key");
        BASE64.encode(node_signing_request(HOSTILE_NODE, &key))
    });
    let request = json!({
        "metadata": {
            "name": format!("fill-{bytes}-{index}"),
            "annotations": {"a": "x".repeat(bytes.min(250_000))},
        },
        "spec": {"request": &*REQUEST, "signerName": "example.com/none", "usages": ["client auth"]},
    });
    ("/apis/certificates.k8s.io/v1/certificatesigningrequests".to_owned(), request)
}

/// Streams whose request bodies never end.
async fn open_bodies(attacker: Attacker, outcome: Outcome) -> Result<(), Failure> {
    let mut connection = attacker.http2().await?;
    let (method, path) = attacker.own_write();
    let mut held = Vec::new();
    for _ in 0..HELD {
        let Ok(sender) = connection.sender.clone().ready().await else { break };
        connection.sender = sender;
        let request = connection.request(method, path).body(())?;
        let Ok((response, mut stream)) = connection.sender.send_request(request, false) else { break };
        let _ = stream.send_data(Bytes::from_static(b"{"), false);
        outcome.count("opened");
        let outcome = outcome.clone();
        held.push((
            stream,
            tokio::spawn(async move {
                match response.await {
                    Ok(response) => outcome.count(response.status().as_str()),
                    Err(_) => outcome.count("reset"),
                }
            }),
        ));
    }
    std::future::pending::<()>().await;
    Ok(())
}

/// Large responses over a connection that accepts no data.
async fn zero_window(attacker: Attacker, outcome: Outcome) -> Result<(), Failure> {
    let mut connection = attacker.endpoint.http2(&attacker.credential, 0).await?;
    let mut held = Vec::new();
    let review = json!({"spec": {"resourceAttributes": {"verb": "x".repeat(200_000), "resource": "pods"}}})
        .to_string();
    for index in 0..HELD {
        let Ok(sender) = connection.sender.clone().ready().await else { break };
        connection.sender = sender;
        // A list, a document of half a megabyte, and an object that is echoed.
        let (method, path, body) = match index % 3 {
            0 => ("GET", "/openapi/v2", Bytes::new()),
            1 => ("GET", "/api/v1/nodes", Bytes::new()),
            _ => (
                "POST",
                "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
                Bytes::from(review.clone()),
            ),
        };
        let request = connection.request(method, path).body(())?;
        let Ok((response, mut stream)) = connection.sender.send_request(request, body.is_empty()) else {
            break;
        };
        if !body.is_empty() {
            stream.reserve_capacity(body.len());
            let _ = stream.send_data(body, true);
        }
        held.push(tokio::spawn(hold_unread(response, outcome.clone())));
    }
    std::future::pending::<()>().await;
    Ok(())
}

/// Counts the status of a response, and does not read its body for as long as the abuse lasts.
async fn hold_unread(response: ResponseFuture, outcome: Outcome) {
    match response.await {
        Ok(response) => {
            outcome.count(response.status().as_str());
            let _body = response.into_body();
            std::future::pending::<()>().await;
        }
        Err(_) => outcome.count("reset"),
    }
}

/// As many watches as the server takes, over ten connections.
async fn watch_flood(attacker: Attacker, outcome: Outcome) -> Result<(), Failure> {
    hold_watches(&attacker, &outcome, &attacker.quiet_watch(), (10, 1 << 20)).await
}

/// Watches of a large object over connections that accept one byte of each response: the server reads the event and
/// cannot send it.
async fn window_of_one(attacker: Attacker, outcome: Outcome) -> Result<(), Failure> {
    hold_watches(&attacker, &outcome, &attacker.large_watch(), (5, 1)).await
}

/// Opens as many watches as the server takes, over connections whose streams begin with this window, and reads nothing.
async fn hold_watches(
    attacker: &Attacker,
    outcome: &Outcome,
    path: &str,
    (connections, window): (usize, u32),
) -> Result<(), Failure> {
    let mut held = Vec::new();
    for _ in 0..connections {
        let mut connection = attacker.endpoint.http2(&attacker.credential, window).await?;
        for _ in 0..HELD {
            let Ok(Ok(sender)) =
                tokio::time::timeout(Duration::from_secs(1), connection.sender.clone().ready()).await
            else {
                break;
            };
            connection.sender = sender;
            let request = connection.request("GET", path).body(())?;
            let Ok((response, _)) = connection.sender.send_request(request, true) else { break };
            held.push(tokio::spawn(hold_unread(response, outcome.clone())));
        }
        held.push(tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(600)).await;
            drop(connection);
        }));
    }
    std::future::pending::<()>().await;
    Ok(())
}

/// 64 requests in flight, one after the other.
async fn request_flood(attacker: Attacker, outcome: Outcome) -> Result<(), Failure> {
    let mut workers = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let (attacker, outcome) = (attacker.clone(), outcome.clone());
        workers.spawn(async move {
            let (method, path, body) = attacker.own_request();
            let Ok(connection) = attacker.http2().await else { return };
            let mut senders = tokio::task::JoinSet::new();
            let connection = Arc::new(connection);
            for _ in 0..8 {
                let (connection, outcome) = (connection.clone(), outcome.clone());
                senders.spawn(async move {
                    for _ in 0..200 {
                        let Ok(mut sender) = connection.sender.clone().ready().await else { return };
                        let Ok(request) = connection.request(method, path).body(()) else { return };
                        let Ok((response, mut stream)) = sender.send_request(request, body.is_empty()) else {
                            return;
                        };
                        if !body.is_empty() {
                            let _ = stream.send_data(Bytes::from_static(body.as_bytes()), true);
                        }
                        let Ok(response) = response.await else { return };
                        outcome.count(response.status().as_str());
                        let mut answer = response.into_body();
                        while let Some(Ok(piece)) = answer.data().await {
                            let _ = answer.flow_control().release_capacity(piece.len());
                        }
                    }
                });
            }
            while senders.join_next().await.is_some() {}
        });
    }
    while workers.join_next().await.is_some() {}
    Ok(())
}

/// Bodies of many small objects, where few were expected.
async fn json_bombs(attacker: Attacker, outcome: Outcome) -> Result<(), Failure> {
    let many = "{\"\":0},".repeat(LARGE / 7 - 100);
    let many = many.trim_end_matches(',');
    let reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let deep = format!("{}{}", "{\"a\":".repeat(100_000), "}".repeat(100_000));
    let bodies = [
        ("POST", reviews, format!("{{\"metadata\":{{\"managedFields\":[{many}]}},\"spec\":{{}}}}")),
        ("POST", reviews, format!("{{\"spec\":{{\"extra\":{{\"a\":[{many}]}}}}}}")),
        ("POST", reviews, deep),
        (
            "POST",
            "/api/v1/namespaces/team/configmaps",
            format!("{{\"metadata\":{{\"name\":\"bomb\"}},\"unknown\":[{many}]}}"),
        ),
        (
            "POST",
            "/apis/apps/v1/namespaces/team/controllerrevisions",
            format!("{{\"metadata\":{{\"name\":\"bomb\"}},\"revision\":1,\"data\":{{\"a\":[{many}]}}}}"),
        ),
        ("POST", "/api/v1/namespaces/team/configmaps", many_controllers()),
        ("POST", "/api/v1/namespaces/team/configmaps", many_invalid_finalizers()),
        ("POST", "/api/v1/namespaces/team/pods", many_equal_paths()),
        ("POST", "/api/v1/namespaces/team/services", many_ports()),
    ];
    for _ in 0..4 {
        let mut connection = attacker.http2().await?;
        for (method, path, body) in &bodies {
            let request = connection.request(method, path).body(())?;
            let answered = connection.send(request, Bytes::from(body.clone())).await;
            outcome.answer(&answered);
            if answered.is_err() {
                connection = attacker.http2().await?;
            }
        }
    }
    Ok(())
}

/// A ConfigMap with 5,000 owners that are all the controller. Each is an error that could quote all of them.
fn many_controllers() -> String {
    let owner = |index: usize| {
        let name = index.to_string();
        json!({"apiVersion": "v1", "kind": "Pod", "name": name, "uid": "u", "controller": true})
    };
    let owners: Vec<Value> = (0..5_000).map(owner).collect();
    json!({"metadata": {"name": "bomb", "ownerReferences": owners}}).to_string()
}

/// A ConfigMap with 500,000 finalizers that are all invalid.
fn many_invalid_finalizers() -> String {
    json!({"metadata": {"name": "bomb", "finalizers": vec!["!"; 500_000]}}).to_string()
}

/// A pod with a volume of 30,000 files with the same path. Each pair of them could be a warning.
fn many_equal_paths() -> String {
    let items = vec![json!({"key": "k", "path": "p"}); 30_000];
    let volume = json!({"name": "v", "configMap": {"name": "m", "items": items}});
    json!({
        "metadata": {"name": "bomb"},
        "spec": {"containers": [{"name": "c", "image": "i"}], "volumes": [volume]},
    })
    .to_string()
}

/// A Service with 40,000 different ports, each of which could be compared with each other one.
fn many_ports() -> String {
    let port = |index: usize| json!({"name": format!("p{index}"), "port": index, "protocol": "TCP"});
    let ports: Vec<Value> = (1..40_000).map(port).collect();
    json!({"metadata": {"name": "bomb"}, "spec": {"type": "ClusterIP", "ports": ports}}).to_string()
}

/// Bodies of many small messages, or with a large raw extension.
async fn protobuf_bombs(attacker: Attacker, outcome: Outcome) -> Result<(), Failure> {
    let reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let revisions = "/apis/apps/v1/namespaces/team/controllerrevisions";
    let many = "{\"\":0},".repeat(LARGE / 7 - 100);
    let raw = protobuf_field(1, format!("[{}]", many.trim_end_matches(',')).as_bytes());
    let many = |part: Vec<u8>| part.repeat(LARGE / part.len() - 100);
    // ObjectMeta has ownerReferences as 13, finalizers as 14, and managedFields as 17 with fieldsV1 as 7.
    let owners = many(protobuf_field(13, &protobuf_field(5, b"")));
    let finalizers = many(protobuf_field(14, b""));
    let managed = protobuf_field(17, &protobuf_field(7, &raw));
    let bodies = [
        (reviews, "SelfSubjectAccessReview", protobuf_field(1, &owners)),
        (reviews, "SelfSubjectAccessReview", protobuf_field(1, &finalizers)),
        (reviews, "SelfSubjectAccessReview", protobuf_field(1, &managed)),
        ("/api/v1/namespaces/team/configmaps", "ConfigMap", protobuf_field(1, &managed)),
        (revisions, "ControllerRevision", protobuf_field(2, &raw)),
    ];
    for _ in 0..4 {
        let mut connection = attacker.http2().await?;
        for (path, kind, object) in &bodies {
            let type_meta = protobuf_field(2, kind.as_bytes());
            let body = [b"k8s\0".to_vec(), protobuf_field(1, &type_meta), protobuf_field(2, object)].concat();
            let mut request = connection.request("POST", path).body(())?;
            request.headers_mut().insert("content-type", "application/vnd.kubernetes.protobuf".parse()?);
            let answered = connection.send(request, Bytes::from(body)).await;
            outcome.answer(&answered);
            if answered.is_err() {
                connection = attacker.http2().await?;
            }
        }
    }
    Ok(())
}

/// Encodes a protobuf field that contains a string, bytes or a message.
fn protobuf_field(number: u32, bytes: &[u8]) -> Vec<u8> {
    let mut encoded = Vec::new();
    for mut varint in [(number as usize) << 3 | 2, bytes.len()] {
        while 0x80 <= varint {
            encoded.push(varint as u8 | 0x80);
            varint >>= 7;
        }
        encoded.push(varint as u8);
    }
    encoded.extend_from_slice(bytes);
    encoded
}

/// Anchors that expand to billions of values, and deep nesting.
async fn yaml_bombs(attacker: Attacker, outcome: Outcome) -> Result<(), Failure> {
    let mut laughs = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
    for level in 1..10 {
        let previous = vec![format!("*a{}", level - 1); 10].join(",");
        laughs += &format!("a{level}: &a{level} [{previous}]\n");
    }
    let deep = format!("a: {}{}", "[".repeat(50_000), "]".repeat(50_000));
    for _ in 0..5 {
        let mut connection = attacker.http2().await?;
        for body in [&laughs, &deep] {
            for (method, path, media_type) in [
                ("POST", "/api/v1/namespaces/team/configmaps", "application/yaml"),
                ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "application/yaml"),
                (
                    "PATCH",
                    "/api/v1/namespaces/team/configmaps/yaml?fieldManager=x",
                    "application/apply-patch+yaml",
                ),
            ] {
                let mut request = connection.request(method, path).body(())?;
                request.headers_mut().insert("content-type", media_type.parse()?);
                let answered = connection.send(request, Bytes::from(body.clone())).await;
                outcome.answer(&answered);
                if answered.is_err() {
                    connection = attacker.http2().await?;
                }
            }
        }
    }
    Ok(())
}

/// Patches that double a value with every operation, or have very many operations.
async fn patch_bombs(attacker: Attacker, outcome: Outcome) -> Result<(), Failure> {
    let mut connection = attacker.http2().await?;
    let doubled: Vec<_> =
        (0..40).map(|it| json!({"op": "copy", "from": "/data", "path": format!("/data/d{it}")})).collect();
    let copies: Vec<_> = (0..9_999)
        .map(|it| json!({"op": "copy", "from": "/data/a", "path": format!("/data/b{it}")}))
        .collect();
    let tests: Vec<_> = (0..40_000).map(|_| json!({"op": "test", "path": "/data/a", "value": "y"})).collect();
    let merge =
        format!("{{\"metadata\":{{\"managedFields\":[{}{{}}]}}}}", "{\"\":0},".repeat(LARGE / 7 - 100));
    // Each finalizer could be compared with each other one, each removal moves all items after it.
    let finalizers: Vec<_> = (0..220_000).map(|it| format!("a/{it}")).collect();
    let finalizers = json!({"metadata": {"finalizers": finalizers}}).to_string();
    let mut moves = vec![json!({"op": "add", "path": "/metadata/finalizers", "value": vec![0; 500_000]})];
    let removal = json!({"op": "remove", "path": "/metadata/finalizers/0"});
    let insertion = json!({"op": "add", "path": "/metadata/finalizers/0", "value": 0});
    moves.extend((0..4_500).flat_map(|_| [removal.clone(), insertion.clone()]));
    for (media_type, body) in [
        ("application/strategic-merge-patch+json", finalizers),
        ("application/json-patch+json", serde_json::to_string(&moves)?),
        ("application/json-patch+json", serde_json::to_string(&doubled)?),
        ("application/json-patch+json", serde_json::to_string(&copies)?),
        ("application/json-patch+json", serde_json::to_string(&tests)?),
        ("application/merge-patch+json", merge.clone()),
        ("application/strategic-merge-patch+json", merge.clone()),
        ("application/apply-patch+yaml", merge),
    ] {
        let path = "/api/v1/namespaces/team/configmaps/patched?fieldManager=x";
        let mut request = connection.request("PATCH", path).body(())?;
        request.headers_mut().insert("content-type", media_type.parse()?);
        let answered = connection.send(request, Bytes::from(body)).await;
        outcome.answer(&answered);
        if answered.is_err() {
            connection = attacker.http2().await?;
        }
    }
    Ok(())
}

/// Objects that grow with every patch. No response may show an object above the limit.
async fn growing_object(attacker: Attacker, outcome: Outcome) -> Result<(), Failure> {
    /// 1.4 MiB, and what a response adds.
    const STORED_MAX: usize = (14 << 20) / 10 + 10_000;
    let patches = attacker.own_patches();
    if patches.is_empty() {
        return attacker.send_reviews(&outcome).await;
    }
    let mut connection = attacker.http2().await?;
    for (path, patch) in patches {
        for index in 0..12 {
            let answered =
                attacker.send_json(&mut connection, &outcome, ("PATCH", &path, &patch(index))).await?;
            if let Some((status, body)) = answered
                && status.is_success()
                && STORED_MAX < body.len()
            {
                outcome.broken(format!("{path} was stored with {} bytes", body.len()));
            }
        }
    }
    Ok(())
}

/// Objects of a megabyte that fit into half of the 16 MiB that the store takes, which is what one namespace may use.
const NAMESPACE_OBJECTS_MAX: usize = 8;

/// Objects of a megabyte until the server stores no more.
async fn fill_store(attacker: Attacker, outcome: Outcome) -> Result<(), Failure> {
    let creates = attacker.own_creates();
    if creates.is_empty() {
        return attacker.send_reviews(&outcome).await;
    }
    let mut connection = attacker.http2().await?;
    for create in creates {
        let mut stored = 0;
        for index in 0..20 {
            let (path, object) = create(index, 1_000_000);
            let answered = attacker.send_json(&mut connection, &outcome, ("POST", &path, &object)).await?;
            stored += usize::from(matches!(&answered, Some((StatusCode::CREATED, _))));
            if path.contains("/namespaces/") && NAMESPACE_OBJECTS_MAX < stored {
                outcome.broken(format!(
                    "{stored} MB were stored by {path}, more than half of the store's limit"
                ));
            }
        }
    }
    Ok(())
}

/// Objects of each kind that the identity may create, and mirror pods with a large status, until the attack ends. The
/// part of the store that these writes may not use is for administrators, controllers and heartbeats: the neighbors
/// notice if nothing of it is left.
async fn fill_reserve(attacker: Attacker, outcome: Outcome) -> Result<(), Failure> {
    let creates = attacker.own_creates();
    if creates.is_empty() {
        return attacker.send_reviews(&outcome).await;
    }
    let mut fillers = tokio::task::JoinSet::new();
    for create in creates {
        fillers.spawn(fill_with_objects(attacker.clone(), outcome.clone(), create));
    }
    if attacker.name == "node" {
        fillers.spawn(fill_with_mirror_pods(attacker, outcome));
    }
    while let Some(filled) = fillers.join_next().await {
        filled??;
    }
    Ok(())
}

/// Creates objects until the attack ends: large ones, and then smaller ones that fit into what is left.
async fn fill_with_objects(attacker: Attacker, outcome: Outcome, create: Create) -> Result<(), Failure> {
    let mut connection = attacker.http2().await?;
    for round in 0.. {
        for (bytes, count) in [(1_000_000, 8), (60_000, 20), (1_000, 5)] {
            for index in 0..count {
                let (path, object) = create(1_000 * (round + 1) + index, bytes);
                attacker.send_json(&mut connection, &outcome, ("POST", &path, &object)).await?;
            }
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    Ok(())
}

/// Creates mirror pods on the hostile node until the attack ends, each with a status of 60 kB.
async fn fill_with_mirror_pods(attacker: Attacker, outcome: Outcome) -> Result<(), Failure> {
    const PODS: &str = "/api/v1/namespaces/kube-system/pods";
    let mut connection = attacker.http2().await?;
    let request = connection.request("GET", &format!("/api/v1/nodes/{HOSTILE_NODE}")).body(())?;
    let node: Value = serde_json::from_slice(&connection.send(request, Bytes::new()).await?.1)?;
    for index in 0.. {
        let name = format!("mirror-{index}");
        let owner = json!({
            "apiVersion": "v1", "kind": "Node", "name": HOSTILE_NODE,
            "uid": node["metadata"]["uid"], "controller": true,
        });
        let pod = json!({
            "metadata": {
                "name": name,
                "annotations": {"kubernetes.io/config.mirror": "x"},
                "ownerReferences": [owner],
            },
            "spec": {"nodeName": HOSTILE_NODE, "containers": [{"name": "c", "image": "app:1"}]},
        });
        attacker.send_json(&mut connection, &outcome, ("POST", PODS, &pod)).await?;
        let status = json!({"status": {"message": "x".repeat(60_000)}});
        let path = format!("{PODS}/{name}/status");
        attacker.send_json(&mut connection, &outcome, ("PATCH", &path, &status)).await?;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Ok(())
}

/// Responses that are read one byte at a time over HTTP/1.
async fn slow_reads(attacker: Attacker, outcome: Outcome) -> Result<(), Failure> {
    let authorization =
        token(&attacker.credential).map_or_else(String::new, |it| format!("authorization: Bearer {it}\r\n"));
    let mut readers = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let Ok(mut stream) = attacker.endpoint.tls(&attacker.credential, b"http/1.1").await else {
            outcome.count("closed");
            continue;
        };
        let request = format!("GET /openapi/v2 HTTP/1.1\r\nhost: localhost\r\n{authorization}\r\n");
        stream.write_all(request.as_bytes()).await?;
        outcome.count("opened");
        let outcome = outcome.clone();
        readers.spawn(async move {
            let mut byte = [0];
            while let Ok(1) = stream.read(&mut byte).await {
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
            outcome.count("ended");
        });
    }
    while readers.join_next().await.is_some() {}
    Ok(())
}

/// Bodies that come one byte at a time over HTTP/1.
async fn slow_bodies(attacker: Attacker, outcome: Outcome) -> Result<(), Failure> {
    let authorization =
        token(&attacker.credential).map_or_else(String::new, |it| format!("authorization: Bearer {it}\r\n"));
    let mut writers = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let Ok(mut stream) = attacker.endpoint.tls(&attacker.credential, b"http/1.1").await else {
            outcome.count("closed");
            continue;
        };
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 100000\r\n{authorization}\r\n"
        );
        stream.write_all(request.as_bytes()).await?;
        outcome.count("opened");
        let outcome = outcome.clone();
        writers.spawn(async move {
            while stream.write_all(b" ").await.is_ok() && stream.flush().await.is_ok() {
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
            outcome.count("ended");
        });
    }
    while writers.join_next().await.is_some() {}
    Ok(())
}

/// Request heads that never end.
async fn slow_headers(attacker: Attacker, outcome: Outcome) -> Result<(), Failure> {
    let mut writers = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let Ok(mut stream) = attacker.endpoint.tls(&attacker.credential, b"http/1.1").await else {
            outcome.count("closed");
            continue;
        };
        stream.write_all(b"GET /version HTTP/1.1\r\nhost: localhost\r\nx: ").await?;
        outcome.count("opened");
        let outcome = outcome.clone();
        writers.spawn(async move {
            while stream.write_all(b"x").await.is_ok() && stream.flush().await.is_ok() {
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
            outcome.count("ended");
        });
    }
    while writers.join_next().await.is_some() {}
    Ok(())
}

/// Connections that do nothing: half of them before the TLS handshake, half of them after it.
async fn connection_flood(attacker: Attacker, outcome: Outcome) -> Result<(), Failure> {
    let (mut plain, mut encrypted) = (Vec::new(), Vec::new());
    for _ in 0..HELD {
        match attacker.endpoint.tcp().await {
            Ok(stream) => plain.push(stream),
            Err(_) => outcome.count("refused"),
        }
        let handshake = attacker.endpoint.tls(&attacker.credential, b"h2");
        match tokio::time::timeout(Duration::from_secs(2), handshake).await {
            Ok(Ok(stream)) => encrypted.push(stream),
            _ => outcome.count("no handshake"),
        }
        outcome.count("tried");
    }
    std::future::pending::<()>().await;
    Ok(())
}

/// Streams that are reset as soon as they are open.
async fn rapid_reset(attacker: Attacker, outcome: Outcome) -> Result<(), Failure> {
    for _ in 0..10 {
        let mut connection = attacker.http2().await?;
        for _ in 0..500 {
            let Ok(sender) = connection.sender.clone().ready().await else { break };
            connection.sender = sender;
            let request = connection.request("GET", "/api/v1/nodes").body(())?;
            let Ok((_, mut stream)) = connection.sender.send_request(request, true) else {
                outcome.count("connection closed");
                break;
            };
            stream.send_reset(h2::Reason::CANCEL);
            outcome.count("reset");
        }
    }
    Ok(())
}

/// Bytes that are no ASCII, in every header that the server reads. No identity has more rights with them than without.
async fn header_bytes(attacker: Attacker, outcome: Outcome) -> Result<(), Failure> {
    let headers = [
        "impersonate-user",
        "impersonate-group",
        "impersonate-uid",
        "impersonate-extra-scopes",
        "authorization",
        "accept",
        "content-type",
        "if-none-match",
        "user-agent",
        "x-remote-user",
        "x-remote-group",
        "kubectl-command",
    ];
    for header in headers {
        let mut connection = attacker.http2().await?;
        for byte in (0x80..=0xff_u8).step_by(9) {
            let value = http::HeaderValue::from_bytes(&[b'j', byte, b'r', b'g'])?;
            let path = format!("/api/v1/namespaces/{VAULT}/secrets/payroll");
            let mut request = connection.request("GET", &path).body(())?;
            request.headers_mut().insert(header, value);
            let answered = connection.send(request, Bytes::new()).await;
            outcome.answer(&answered);
            if matches!(&answered, Ok((status, _)) if status.is_success()) {
                outcome.broken(format!("a secret was served for a {header} with the byte {byte:#x}"));
            }
            if answered.is_err() {
                connection = attacker.http2().await?;
            }
        }
    }
    Ok(())
}

/// Tokens and certificates that expired, were revoked, were forged, or whose account is deleted.
async fn invalid_credentials(attacker: Attacker, outcome: Outcome) -> Result<(), Failure> {
    for _ in 0..20 {
        for (why, credential) in attacker.invalid.iter() {
            // A certificate that is not valid ends the handshake.
            let Ok(mut connection) = attacker.endpoint.http2(credential, 1 << 20).await else {
                outcome.count("closed");
                continue;
            };
            for _ in 0..3 {
                let request = connection.request("GET", "/version").body(())?;
                let answered = connection.send(request, Bytes::new()).await;
                outcome.answer(&answered);
                match answered {
                    Ok((StatusCode::UNAUTHORIZED, _)) => {}
                    Ok(_) => outcome.broken(format!("accepted: {why}")),
                    Err(_) => break,
                }
            }
        }
    }
    Ok(())
}

/// Subresources of objects of others, and of objects that only controllers write.
async fn foreign_subresources(attacker: Attacker, outcome: Outcome) -> Result<(), Failure> {
    let mut connection = attacker.http2().await?;
    let pod = format!("/api/v1/namespaces/{VAULT}/pods/ledger");
    let requests = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "ledger", "namespace": VAULT}});
    let binding = json!({"metadata": {"name": "ledger"}, "target": {"kind": "Node", "name": "hostile-node"}});
    let status = json!({"status": {"phase": "Failed"}});
    let condition = json!({"status": {"conditions": [{"type": "Approved", "status": "True"}]}});
    for _ in 0..20 {
        for (method, path, body) in [
            ("POST", format!("{pod}/eviction"), &eviction),
            ("POST", format!("{pod}/binding"), &binding),
            ("PATCH", format!("{pod}/status"), &status),
            ("PATCH", format!("{pod}/ephemeralcontainers"), &status),
            ("POST", format!("{pod}/exec?command=sh"), &json!({})),
            ("GET", format!("{pod}/log"), &json!({})),
            (
                "POST",
                format!("/api/v1/namespaces/{VAULT}/serviceaccounts/default/token"),
                &json!({"spec": {}}),
            ),
            ("PATCH", format!("/api/v1/namespaces/{VAULT}/status"), &status),
            (
                "PUT",
                format!("/api/v1/namespaces/{VAULT}/finalize"),
                &json!({"metadata": {"name": VAULT}, "spec": {}}),
            ),
            ("PATCH", "/api/v1/nodes/sim-1/status".to_owned(), &status),
            ("PATCH", format!("{requests}/good-node/approval"), &condition),
            ("PATCH", format!("{requests}/good-node/status"), &condition),
            (
                "PATCH",
                "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/good-node".to_owned(),
                &json!({"spec": {"holderIdentity": "hostile-node"}}),
            ),
        ] {
            let mut request = connection.request(method, &path).body(())?;
            if method == "PATCH" {
                request.headers_mut().insert("content-type", "application/merge-patch+json".parse()?);
            }
            let body = if method == "GET" { Bytes::new() } else { Bytes::from(body.to_string()) };
            let answered = connection.send(request, body).await;
            outcome.answer(&answered);
            if matches!(&answered, Ok((status, _)) if status.is_success()) {
                outcome.broken(format!("{method} {path} was served"));
            }
            if answered.is_err() {
                connection = attacker.http2().await?;
            }
        }
    }
    Ok(())
}

/// Selectors, paths and parameters that are read in more than one way. None leads into a namespace without rights.
async fn path_tricks(attacker: Attacker, outcome: Outcome) -> Result<(), Failure> {
    let long = format!("/api/v1/namespaces/{TEAM}/pods?labelSelector={}", "a%3Db,".repeat(5_000));
    let many = format!("/api/v1/namespaces/{TEAM}/pods?labelSelector=a%20in%20({})", "x,".repeat(10_000));
    let paths = [
        format!("/api/v1/namespaces/{TEAM}/../{VAULT}/secrets/payroll"),
        format!("/api/v1/namespaces/{TEAM}%2f..%2f{VAULT}/secrets/payroll"),
        format!("/api/v1/namespaces/{TEAM}/secrets/..%2f..%2f{VAULT}%2fsecrets%2fpayroll"),
        format!("/api/v1//namespaces/{VAULT}/secrets/payroll"),
        format!("/API/V1/namespaces/{VAULT}/secrets/payroll"),
        format!("/api/v1/namespaces/{VAULT}/secrets/payroll/"),
        format!("/api/v1/namespaces/{VAULT}/secrets/payroll%00"),
        format!("/api/v1/watch/namespaces/{VAULT}/secrets/payroll"),
        format!("/api/v1/namespaces/{VAULT}/secrets?watch=T&timeoutSeconds=1"),
        format!("/api/v1/namespaces/{VAULT}/secrets?watch=1&timeoutSeconds=9223372036854775807"),
        format!("/api/v1/namespaces/{TEAM}/secrets?fieldSelector=metadata.namespace%3D{VAULT}&watch=0"),
        format!("/api/v1/secrets?fieldSelector=metadata.namespace%3D{TEAM}"),
        format!("/api/v1/namespaces/{TEAM}/configmaps?continue=AAAA&limit=-1"),
        format!("/api/v1/namespaces/{TEAM}/configmaps?timeoutSeconds=9223372036854775807"),
        format!("/api/v1/namespaces/{TEAM}/configmaps?timeout=2562047h47m16.854775807s"),
        format!("/api/v1/namespaces/{TEAM}/configmaps?watch=1&timeoutSeconds=99999999999999999999"),
        "/api/v1/pods?fieldSelector=spec.nodeName%3D".to_owned(),
        long,
        many,
    ];
    for _ in 0..10 {
        for path in &paths {
            let mut connection = attacker.http2().await?;
            let Ok(request) = connection.request("GET", path).body(()) else { continue };
            let answered = connection.send(request, Bytes::new()).await;
            outcome.answer(&answered);
            if matches!(&answered, Ok((_, body)) if contains(body, b"aHVudGVyMg") || contains(body, b"hunter2"))
            {
                outcome.broken(format!("{path} shows a secret"));
            }
        }
    }
    for line in
        ["GET /version HTTP/1.1\r\n\r\n", "GET version HTTP/1.1\r\nhost: a\r\n\r\n", "\x16\x03\x01\r\n\r\n"]
    {
        let answer = attacker.endpoint.http1(&Credential::None, line.as_bytes()).await?;
        let status: String = String::from_utf8_lossy(&answer).chars().skip(9).take(3).collect();
        outcome.count(if status.is_empty() { "closed".to_owned() } else { status });
    }
    Ok(())
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|it| it == part)
}
