//! The engine's calls as HTTP requests, and the server's answers as the engine's outcomes.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::header::RETRY_AFTER;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use kube::core::Status;
use muster_api::go_json;
use muster_api::interner::Interner;
use muster_api::text::Text;
use muster_engine::daemonset::execution::{Call, Outcome, Refusal};
use muster_engine::daemonset::facts::{self, Kind, Set};
use muster_engine::daemonset::manifest::{self, Binding, Stencil, Verb};
use serde::Deserialize;
use tokio::time::Instant;

use crate::Context;
use crate::monitor::CallKind;
use crate::rate_limit::Priority;
use crate::request::{JSON, METADATA, METADATA_LIST, collection, request};

/// A call that takes longer counts as unanswered. A lease may leave less time to a write.
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// A list of the pods of a large set is megabytes.
const LIST_TIMEOUT: Duration = Duration::from_secs(30);

/// Of what a proxy in between has to say, this much is enough.
const MESSAGE_MAX: usize = 1000;

/// Makes the calls of one plan.
pub(crate) struct Caller {
    context: Arc<Context>,
    set: Arc<Set>,
    stencil: OnceLock<Option<Stencil>>,
}

impl Caller {
    pub(crate) fn new(context: Arc<Context>, set: Arc<Set>) -> Self {
        Self { context, set, stencil: OnceLock::new() }
    }

    /// Waits for its turn, and makes the call while this replica leads.
    pub(crate) async fn make(&self, call: &Call) -> Outcome {
        let Context { options, rate_limiter, term, monitor, .. } = &*self.context;
        let body = self.body(call, options.settings.binding);
        let Some(request) = request_of(&self.set, call, body, term.write_timeout()) else {
            return Outcome::Pods(Vec::new());
        };
        // The status only tells what is: it gives way to what makes it so.
        let priority = if matches!(call, Call::PutStatus { .. }) { Priority::Status } else { Priority::Pods };
        let _permit = rate_limiter.enter(priority).await;
        let timeout = match manifest::verb(call) {
            Verb::Get => CALL_TIMEOUT,
            Verb::List => LIST_TIMEOUT,
            Verb::Create | Verb::Patch(_) | Verb::Update | Verb::Delete => term.begin_write().await,
        };
        let began = Instant::now();
        let outcome = match tokio::time::timeout(timeout, self.send(call, request)).await {
            Err(_) => Outcome::Refused(Refusal::NoAnswer),
            Ok(outcome) => outcome,
        };
        monitor.called(&kind(&self.set, call), label(&outcome), began.elapsed());
        outcome
    }

    /// In Go's spelling, because the bytes of a revision are compared.
    fn body(&self, call: &Call, binding: Binding) -> String {
        if let Call::CreatePod { node, hash, .. } = call {
            // A plan makes pods of one revision only.
            let stencil = self.stencil.get_or_init(|| Stencil::cut(&self.set, hash, binding));
            if let Some(pod) = stencil.as_ref().and_then(|it| it.pod(node)) {
                return pod;
            }
        }
        manifest::body(&self.set, call, binding).as_ref().map(go_json::to_string).unwrap_or_default()
    }

    async fn send(&self, call: &Call, request: Request<Vec<u8>>) -> Outcome {
        match send(&self.context.client, request).await {
            // An answer that cannot be read is as good as none.
            Ok(answer) => read(call, answer.as_ref()).unwrap_or(Outcome::Refused(Refusal::NoAnswer)),
            Err(refusal) => Outcome::Refused(refusal),
        }
    }
}

/// Sends a request, and gives what came back, or what the answer means.
pub(crate) async fn send(
    client: &Client,
    request: Request<Vec<u8>>,
) -> Result<impl AsRef<[u8]> + use<>, Refusal> {
    let response = client.send(request.map(Body::from)).await.map_err(|_| Refusal::NoAnswer)?;
    let (head, body) = response.into_parts();
    let body = body.collect().await.map_err(|_| Refusal::NoAnswer)?.to_bytes();
    if head.status.is_success() { Ok(body) } else { Err(refusal(head.status, &head.headers, &body)) }
}

/// `None`: a list of the pods of a set that selects none.
fn request_of(set: &Set, call: &Call, body: String, timeout: Duration) -> Option<Request<Vec<u8>>> {
    let verb = manifest::verb(call);
    let target = manifest::target(set, call);
    let mut path = collection(target.kind, Some(&set.key.namespace));
    for part in target.name.as_deref().into_iter().chain(target.subresource) {
        path = format!("{path}/{part}");
    }
    let mut query = form_urlencoded::Serializer::new(String::new());
    match verb {
        Verb::Get => {}
        Verb::List => drop(query.append_pair("labelSelector", &manifest::label_selector(set)?)),
        // The server gives up no later than we do: what it does after that, nobody waits for.
        Verb::Create | Verb::Patch(_) | Verb::Update | Verb::Delete => {
            query.append_pair("timeout", &format!("{}ms", timeout.as_millis()));
        }
    }
    let query = query.finish();
    if !query.is_empty() {
        path = format!("{path}?{query}");
    }
    let accept = match call {
        Call::ReadSet | Call::ReadRevision { .. } => JSON,
        Call::ListPods => METADATA_LIST,
        _ => METADATA,
    };
    Some(request(verb, path, accept, body))
}

#[derive(Deserialize)]
struct Headed {
    metadata: Meta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Meta {
    #[serde(default)]
    name: String,
    #[serde(default)]
    uid: String,
    #[serde(default)]
    resource_version: String,
    deletion_timestamp: Option<String>,
}

impl Meta {
    fn version(&self) -> u64 {
        self.resource_version.parse().unwrap_or_default()
    }
}

fn read(call: &Call, answer: &[u8]) -> Option<Outcome> {
    #[derive(Deserialize)]
    struct List {
        items: Vec<Headed>,
    }
    let shared = &mut Interner::default();
    Some(match call {
        Call::ReadSet => Outcome::Set(Arc::new(facts::set(answer, shared).ok()?)),
        Call::ReadRevision { .. } => Outcome::Revision(facts::revision(answer, shared).ok()?.map(Arc::new)),
        Call::ListPods => {
            let list: List = serde_json::from_slice(answer).ok()?;
            let pods = list.items.into_iter().map(|Headed { metadata: it }| {
                (Text::from(it.uid.as_str()), it.version(), it.deletion_timestamp.is_some())
            });
            Outcome::Pods(pods.collect())
        }
        Call::DeletePod { .. } | Call::DeleteRevision { .. } => Outcome::Deleted,
        Call::Claim(_)
        | Call::Step(_)
        | Call::RelabelPod { .. }
        | Call::CreatePod { .. }
        | Call::PutStatus { .. } => {
            let Headed { metadata } = serde_json::from_slice(answer).ok()?;
            Outcome::Wrote { name: metadata.name.as_str().into(), resource_version: metadata.version() }
        }
    })
}

/// Most refusals are a `Status`. Some are not: a server with too much to do, or a proxy in between, answers in plain text,
/// and how long to wait stands only in the header.
fn refusal(code: StatusCode, headers: &HeaderMap, body: &[u8]) -> Refusal {
    let status: Option<Status> = serde_json::from_slice(body).ok();
    let (message, reason) = match &status {
        Some(status) => (status.message.clone(), status.reason.as_str()),
        None => (String::from_utf8_lossy(body).trim().to_owned(), ""),
    };
    let message = match message.char_indices().nth(MESSAGE_MAX) {
        Some((end, _)) => format!("{}…", &message[..end]),
        None if message.is_empty() => code.to_string(),
        None => message,
    };
    let details = status.as_ref().and_then(|it| it.details.as_ref());
    match code.as_u16() {
        404 => Refusal::NotFound,
        409 if reason == "AlreadyExists" => Refusal::AlreadyExists,
        409 => Refusal::Conflict,
        403 if details.is_some_and(|it| it.causes.iter().any(|it| it.reason == "NamespaceTerminating")) => {
            Refusal::NamespaceTerminating
        }
        401 | 403 => Refusal::Forbidden(message),
        429 => {
            let header = headers.get(RETRY_AFTER).and_then(|it| it.to_str().ok()?.trim().parse::<u64>().ok());
            let detail = details.map(|it| u64::from(it.retry_after_seconds)).filter(|it| *it != 0);
            Refusal::TooManyRequests { retry_after: header.or(detail).map(Duration::from_secs) }
        }
        // The server gave up waiting for its store, which may have written all the same.
        504 => Refusal::NoAnswer,
        500.. => Refusal::Server(message),
        _ => Refusal::Invalid(message),
    }
}

fn kind(set: &Set, call: &Call) -> CallKind {
    let target = manifest::target(set, call);
    let resource = match (target.kind, target.subresource) {
        (Kind::Sets, None) => "daemonsets",
        (Kind::Sets, Some(_)) => "daemonsets/status",
        (Kind::Nodes, _) => "nodes",
        (Kind::Pods, _) => "pods",
        (Kind::Revisions, _) => "controllerrevisions",
    };
    CallKind { verb: manifest::verb(call).as_str(), resource }
}

fn label(outcome: &Outcome) -> &'static str {
    let Outcome::Refused(refusal) = outcome else { return "ok" };
    match refusal {
        Refusal::NotFound => "not found",
        Refusal::AlreadyExists => "already exists",
        Refusal::Conflict => "conflict",
        Refusal::Forbidden(_) => "forbidden",
        Refusal::Invalid(_) => "invalid",
        Refusal::TooManyRequests { .. } => "too many requests",
        Refusal::Server(_) => "server error",
        Refusal::NoAnswer => "no answer",
        Refusal::NamespaceTerminating => "namespace terminating",
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use http::HeaderValue;
    use muster_engine::daemonset::why::Why;
    use serde_json::{Value, json};

    use super::*;

    fn refused(code: u16, retry_after: Option<&'static str>, body: &str) -> Refusal {
        let mut headers = HeaderMap::new();
        headers.extend(retry_after.map(|it| (RETRY_AFTER, HeaderValue::from_static(it))));
        refusal(StatusCode::from_u16(code).unwrap(), &headers, body.as_bytes())
    }

    #[test]
    fn what_each_refusal_is() {
        let api = |code: u16, reason: &str, details: Value| {
            let status = json!({"code": code, "reason": reason, "message": "m", "status": "Failure", "details": details});
            refused(code, None, &status.to_string())
        };
        let terminating = json!({"causes": [{"reason": "NamespaceTerminating", "message": "", "field": ""}]});
        assert_eq!(api(404, "NotFound", json!({})), Refusal::NotFound);
        assert_eq!(api(409, "AlreadyExists", json!({})), Refusal::AlreadyExists);
        assert_eq!(api(409, "Conflict", json!({})), Refusal::Conflict);
        assert_eq!(api(403, "Forbidden", terminating), Refusal::NamespaceTerminating);
        assert_eq!(api(403, "Forbidden", json!({})), Refusal::Forbidden("m".into()));
        assert_eq!(api(401, "Unauthorized", json!({})), Refusal::Forbidden("m".into()));
        assert_eq!(api(422, "Invalid", json!({})), Refusal::Invalid("m".into()));
        assert_eq!(api(400, "BadRequest", json!({})), Refusal::Invalid("m".into()));
        assert_eq!(
            api(429, "TooManyRequests", json!({"retryAfterSeconds": 3})),
            Refusal::TooManyRequests { retry_after: Some(Duration::from_secs(3)) }
        );
        assert_eq!(api(500, "InternalError", json!({})), Refusal::Server("m".into()));
        assert_eq!(api(503, "ServiceUnavailable", json!({})), Refusal::Server("m".into()));
        assert_eq!(api(504, "Timeout", json!({})), Refusal::NoAnswer);
    }

    #[test]
    fn answers_that_are_no_status() {
        let wait = |retry_after| Refusal::TooManyRequests { retry_after };
        assert_eq!(refused(429, Some("1"), "Too many requests"), wait(Some(Duration::from_secs(1))));
        assert_eq!(refused(429, Some("Fri, 01 Jan 2027 00:00:00 GMT"), ""), wait(None));
        assert_eq!(refused(429, None, ""), wait(None));
        assert_eq!(refused(502, None, ""), Refusal::Server("502 Bad Gateway".into()));
        assert_eq!(refused(404, None, "404 page not found"), Refusal::NotFound);
        let Refusal::Server(message) = refused(500, None, &"ä".repeat(5000)) else {
            panic!("a server's error")
        };
        assert_eq!(message.chars().count(), MESSAGE_MAX + 1);
    }

    #[test]
    fn a_call_as_http_has_it() {
        let set = json!({
            "metadata": {"name": "d", "namespace": "a"},
            "spec": {"selector": {"matchLabels": {"app": "d"}}, "template": {}},
        });
        let set = Arc::new(facts::set(set.to_string().as_bytes(), &mut Interner::default()).unwrap());
        let said = |call: &Call| {
            let request = request_of(&set, call, String::new(), Duration::from_secs(4)).unwrap();
            format!(
                "{} {} {:?}",
                request.method(),
                request.uri(),
                request.headers()[http::header::CONTENT_TYPE]
            )
        };
        let status = Call::PutStatus { of: set.clone(), status: set.status.clone() };
        let create = Call::CreatePod { node: "n".into(), hash: "h".into(), why: Why::NoPodHere };
        let all = [Call::ReadSet, Call::ListPods, Call::ReadRevision { name: "r".into() }, create, status];
        expect![[r#"
            GET /apis/apps/v1/namespaces/a/daemonsets/d "application/json"
            GET /api/v1/namespaces/a/pods?labelSelector=app+in+%28d%29 "application/json"
            GET /apis/apps/v1/namespaces/a/controllerrevisions/r "application/json"
            POST /api/v1/namespaces/a/pods?timeout=4000ms "application/json"
            PUT /apis/apps/v1/namespaces/a/daemonsets/d/status?timeout=4000ms "application/json""#]]
        .assert_eq(&all.each_ref().map(said).join("\n"));
    }
}
