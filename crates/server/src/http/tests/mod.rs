//! The server without its sockets: requests in, answers out.

mod added_kinds;
mod agents;
mod applies;
mod backend;
mod deletes;
pub(super) mod fairness;
mod kept;
mod kinds;
mod limits;
mod lines;
mod negotiation;
mod pod_security;
mod reads;
mod rights;
mod rollouts;
pub(super) mod samples;
mod streams;
mod watches;
mod writes;

use std::fmt::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use expect_test::{Expect, expect};
use futures::StreamExt as _;
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper::header::{ACCEPT, CONTENT_TYPE};
use jiff::Timestamp;
use muster_api::well_known::JSON_MEDIA_TYPE;
use muster_store::{HistoryWindow, StoreLimits};
use regex::{Captures, Regex};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::bootstrap;
use crate::kinds::Kind;
use crate::limits::{LimitsConfig, ServerLimits};
use crate::registry::test_store::TestStore;
use crate::registry::{DeleteOptions, Registry};
use crate::request::{RequestContext, RequestTarget, User};
use crate::subresource::Subresource;
use crate::unstructured::{self, str_at};

pub(super) struct Server {
    pub(super) api: Api,
    /// The registries of further servers on the same store.
    peers: Vec<Arc<Registry>>,
    store: TestStore,
    requests: AtomicUsize,
}

impl Server {
    pub(super) async fn new() -> Self {
        Self::with_history(100).await
    }

    async fn with_history(history_max: usize) -> Self {
        Self::on_store(TestStore::new(), history_max).await
    }

    async fn on_store(store: TestStore, history_max: usize) -> Self {
        let window = HistoryWindow { events_max: history_max, bytes_max: usize::MAX };
        let registries = store.open(window, StoreLimits::UNLIMITED);
        Self::on(store, registries).await
    }

    async fn on(store: TestStore, registries: Vec<Registry>) -> Self {
        let mut registries = registries.into_iter().map(Arc::new);
        let registry = registries.next().expect("there is a registry");
        bootstrap::ensure_test_objects(&registry, "2026-01-01T00:00:00Z".parse().unwrap()).await.unwrap();
        let mut api = Api::new(registry, CancellationToken::new());
        // The store has a thread of its own. A clock that stands still would go to a deadline while it works.
        let config = LimitsConfig { request_timeout: Duration::MAX, ..LimitsConfig::default() };
        api.limits = Arc::new(ServerLimits::new(config));
        Self { api, peers: registries.collect(), store, requests: AtomicUsize::new(0) }
    }

    /// Handles a request, on another server than the request before.
    async fn handle(&self, user: Option<&User>, request: Request<Full<Bytes>>) -> OutgoingResponse {
        let turn = self.requests.fetch_add(1, Ordering::Relaxed) % (self.peers.len() + 1);
        let mut api = self.api.clone();
        if let Some(peer) = turn.checked_sub(1) {
            api.registry = self.peers[peer].clone();
        }
        let response = api.handle(user, self.with_versions(request).await).await;
        if 0 < turn {
            // So that a test may look into the registry.
            self.api.registry.storage.wait_until_fresh().await.unwrap();
        }
        response
    }

    /// The registries of all servers, which each have settings of their own.
    fn registries(&self) -> impl Iterator<Item = &Registry> {
        std::iter::once(&self.api.registry).chain(&self.peers).map(|it| &**it)
    }

    /// Waits until every server has what was written to a registry directly, and not through a request.
    async fn catch_up(&self) {
        for it in self.registries() {
            it.storage.wait_until_fresh().await.unwrap();
        }
    }

    /// Translates the resourceVersions of a request.
    async fn with_versions(&self, request: Request<Full<Bytes>>) -> Request<Full<Bytes>> {
        static IN_QUERY: LazyLock<Regex> =
            LazyLock::new(|| Regex::new(r"(\bresourceVersion=)(\d{1,12})\b").unwrap());
        static IN_BODY: LazyLock<Regex> =
            LazyLock::new(|| Regex::new(r#"("resourceVersion":")(\d{1,12})\b"#).unwrap());
        if self.store.is_in_memory() {
            return request;
        }
        let version = |found: &Captures<'_>| {
            let number: u64 = found[2].parse().expect("it is digits");
            format!("{}{}", &found[1], self.store.resource_version(number))
        };
        let (mut parts, body) = request.into_parts();
        parts.uri = IN_QUERY.replace_all(&parts.uri.to_string(), version).parse().unwrap();
        let body = body.collect().await.unwrap().to_bytes();
        let body = match std::str::from_utf8(&body) {
            Ok(text) => IN_BODY.replace_all(text, version).into_owned().into(),
            Err(_) => body,
        };
        Request::from_parts(parts, Full::new(body))
    }

    /// Reads the body of a response, and translates its resourceVersions.
    async fn body(&self, response: OutgoingResponse) -> Bytes {
        let body = response.into_body().collect().await.unwrap().to_bytes();
        match std::str::from_utf8(&body) {
            Ok(text) => self.store.with_numbers(text).into(),
            Err(_) => body,
        }
    }

    async fn answer(&self, method: &str, path: &str, media_type: &str, body: &str) -> OutgoingResponse {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(CONTENT_TYPE, media_type)
            .body(Full::new(Bytes::from(body.to_owned())))
            .unwrap();
        self.handle(Some(&User::server()), request).await
    }

    async fn send(&self, method: &str, path: &str, media_type: &str, body: &str) -> (u16, Value) {
        let response = self.answer(method, path, media_type, body).await;
        let code = response.status().as_u16();
        let body = self.body(response).await;
        (code, serde_json::from_slice(&body).unwrap_or(Value::Null))
    }

    pub(super) async fn json(&self, method: &str, path: &str, body: Value) -> (u16, Value) {
        self.send(method, path, JSON_MEDIA_TYPE, &body.to_string()).await
    }

    async fn get(&self, path: &str) -> (u16, Value) {
        self.send("GET", path, "", "").await
    }

    async fn get_as(&self, path: &str, accept: &str) -> (u16, Value) {
        let request =
            Request::builder().uri(path).header(ACCEPT, accept).body(Full::new(Bytes::new())).unwrap();
        let response = self.handle(Some(&User::server()), request).await;
        let code = response.status().as_u16();
        let body = self.body(response).await;
        (code, serde_json::from_slice(&body).unwrap_or(Value::Null))
    }

    async fn merge(&self, path: &str, patch: Value) -> (u16, Value) {
        self.send("PATCH", path, "application/merge-patch+json", &patch.to_string()).await
    }

    /// All that a watch says until its stream ends.
    async fn watch(&self, path: &str) -> String {
        let request = Request::builder().uri(path).body(Full::new(Bytes::new())).unwrap();
        let response = self.handle(Some(&User::server()), request).await;
        assert_eq!(response.status(), 200);
        let body = self.body(response).await;
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

/// Keeps a clock that is paused from going on by itself, until it is dropped.
struct ClockStop(Option<(std::sync::mpsc::Sender<()>, tokio::task::JoinHandle<()>)>);

impl ClockStop {
    fn new() -> Self {
        let (sender, receiver) = std::sync::mpsc::channel();
        // The clock stands still while there is a blocking task.
        Self(Some((sender, tokio::task::spawn_blocking(move || receiver.recv().unwrap_or_default()))))
    }

    async fn end(mut self) {
        if let Some((sender, task)) = self.0.take() {
            drop(sender);
            task.await.unwrap();
        }
    }
}

/// Waits for something that other tasks and threads do, without any time of the clock.
async fn wait_until(is_so: impl Fn() -> bool) {
    let stop = ClockStop::new();
    let began = std::time::Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(300), "it never happens");
        tokio::task::yield_now().await;
        std::thread::sleep(Duration::from_millis(1));
    }
    stop.end().await;
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
    crate::controllers::cluster_roles::ensure_default_roles(&server.api.registry, Timestamp::UNIX_EPOCH)
        .await
        .unwrap();
    // Health checks do not wait for the read barrier.
    server.catch_up().await;
    let code = async |path: &str| {
        let request = Request::builder().uri(path).body(Full::new(Bytes::new())).unwrap();
        server.handle(None, request).await.status().as_u16()
    };
    for path in ["/healthz", "/livez", "/readyz", "/version"] {
        assert_eq!(code(path).await, 200, "{path}");
    }
    for path in ["/api", "/apis/apps/v1", "/openapi/v2", PODS, "/nothing"] {
        assert_eq!(code(path).await, 401, "{path}");
    }
}
