//! The engine's calls as HTTP requests, and the server's answers as the engine's outcomes.

use std::sync::Arc;
use std::time::Duration;

use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Method, Request};
use kube::Client;
use muster_engine::act::{Call, Outcome, Refusal};
use muster_engine::facts::{self, Kind, Set, Shared, Text};
use muster_engine::go_json;
use muster_engine::manifest::{self, Binding, Verb};
use serde::Deserialize;

/// A call that takes longer counts as unanswered.
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_secs(10);

const JSON: &str = "application/json";

/// Makes the calls of one plan.
pub(crate) struct Caller {
    client: Client,
    set: Arc<Set>,
    binding: Binding,
}

impl Caller {
    pub(crate) fn new(client: Client, set: Arc<Set>, binding: Binding) -> Self {
        Self { client, set, binding }
    }

    pub(crate) async fn make(&self, call: &Call) -> Outcome {
        let Some(request) = request(&self.set, call, self.binding) else { return Outcome::Pods(Vec::new()) };
        match tokio::time::timeout(CALL_TIMEOUT, self.client.request_text(request)).await {
            Err(_) => Outcome::Refused(Refusal::NoAnswer),
            Ok(Err(error)) => Outcome::Refused(refusal(error)),
            // An answer that cannot be read is as good as none.
            Ok(Ok(answer)) => read(call, &answer).unwrap_or(Outcome::Refused(Refusal::NoAnswer)),
        }
    }
}

/// `None`: a list of the pods of a set that selects none.
fn request(set: &Set, call: &Call, binding: Binding) -> Option<Request<Vec<u8>>> {
    let verb = manifest::verb(call);
    let (method, media_type) = match verb {
        Verb::Get | Verb::List => (Method::GET, JSON),
        Verb::Create => (Method::POST, JSON),
        Verb::Update => (Method::PUT, JSON),
        Verb::Delete => (Method::DELETE, JSON),
        Verb::Patch(patch) => (Method::PATCH, patch.content_type()),
    };
    let target = manifest::target(set, call);
    let (group, plural) = match target.kind {
        Kind::Sets => ("/apis/apps/v1", "daemonsets"),
        Kind::Nodes => unreachable!("the engine never writes to nodes"),
        Kind::Pods => ("/api/v1", "pods"),
        Kind::Revisions => ("/apis/apps/v1", "controllerrevisions"),
    };
    let mut path = format!("{group}/namespaces/{}/{plural}", set.key.namespace);
    for part in target.name.as_deref().into_iter().chain(target.subresource) {
        path = format!("{path}/{part}");
    }
    if verb == Verb::List {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.append_pair("labelSelector", &manifest::label_selector(set)?);
        path = format!("{path}?{}", query.finish());
    }
    // In Go's spelling, because the bytes of a revision are compared.
    let body = manifest::body(set, call, binding).as_ref().map(go_json::to_string).unwrap_or_default();
    let request =
        Request::builder().method(method).uri(path).header(ACCEPT, JSON).header(CONTENT_TYPE, media_type);
    Some(request.body(body.into_bytes()).expect("names of objects make valid paths"))
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

fn read(call: &Call, answer: &str) -> Option<Outcome> {
    #[derive(Deserialize)]
    struct List {
        items: Vec<Headed>,
    }
    let shared = &mut Shared::default();
    Some(match call {
        Call::ReadSet => Outcome::Set(Arc::new(facts::set(answer.as_bytes(), shared).ok()?)),
        Call::ReadRevision { .. } => {
            Outcome::Revision(facts::revision(answer.as_bytes(), shared).ok()?.map(Arc::new))
        }
        Call::ListPods => {
            let list: List = serde_json::from_str(answer).ok()?;
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
            let Headed { metadata } = serde_json::from_str(answer).ok()?;
            Outcome::Wrote { name: metadata.name.as_str().into(), resource_version: metadata.version() }
        }
    })
}

pub(crate) fn refusal(error: kube::Error) -> Refusal {
    let kube::Error::Api(status) = error else { return Refusal::NoAnswer };
    let message = status.message.clone();
    let details = status.details.as_ref();
    match status.code {
        404 => Refusal::NotFound,
        409 if status.reason == "AlreadyExists" => Refusal::AlreadyExists,
        409 => Refusal::Conflict,
        403 if details.is_some_and(|it| it.causes.iter().any(|it| it.reason == "NamespaceTerminating")) => {
            Refusal::NamespaceTerminating
        }
        401 | 403 => Refusal::Forbidden(message),
        429 => {
            let retry_after = details.map(|it| it.retry_after_seconds).filter(|s| *s != 0);
            Refusal::TooManyRequests { retry_after: retry_after.map(|s| Duration::from_secs(u64::from(s))) }
        }
        // The server gave up waiting for its store, which may have written all the same.
        504 => Refusal::NoAnswer,
        500.. => Refusal::Server(message),
        _ => Refusal::Invalid(message),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use kube::core::Status;
    use muster_engine::why::Why;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn what_each_refusal_is() {
        let api = |code: u16, reason: &str, details: Value| {
            let status = json!({"code": code, "reason": reason, "message": "m", "status": "Failure", "details": details});
            let status: Status = serde_json::from_value(status).unwrap();
            refusal(kube::Error::Api(Box::new(status)))
        };
        let terminating = json!({"causes": [{"reason": "NamespaceTerminating", "message": "", "field": ""}]});
        assert_eq!(api(404, "NotFound", json!({})), Refusal::NotFound);
        assert_eq!(api(409, "AlreadyExists", json!({})), Refusal::AlreadyExists);
        assert_eq!(api(409, "Conflict", json!({})), Refusal::Conflict);
        assert_eq!(api(403, "Forbidden", terminating), Refusal::NamespaceTerminating);
        assert_eq!(api(403, "Forbidden", json!({})), Refusal::Forbidden("m".into()));
        assert_eq!(api(422, "Invalid", json!({})), Refusal::Invalid("m".into()));
        assert_eq!(
            api(429, "TooManyRequests", json!({"retryAfterSeconds": 3})),
            Refusal::TooManyRequests { retry_after: Some(Duration::from_secs(3)) }
        );
        assert_eq!(api(500, "InternalError", json!({})), Refusal::Server("m".into()));
        assert_eq!(api(504, "Timeout", json!({})), Refusal::NoAnswer);
    }

    #[test]
    fn a_call_as_http_has_it() {
        let set = json!({
            "metadata": {"name": "d", "namespace": "a"},
            "spec": {"selector": {"matchLabels": {"app": "d"}}, "template": {}},
        });
        let set = Arc::new(facts::set(set.to_string().as_bytes(), &mut Shared::default()).unwrap());
        let said = |call: &Call| {
            let request = request(&set, call, Binding::Direct).unwrap();
            format!("{} {} {:?}", request.method(), request.uri(), request.headers()[CONTENT_TYPE])
        };
        let status = Call::PutStatus { of: set.clone(), status: set.status.clone() };
        let create = Call::CreatePod { node: "n".into(), hash: "h".into(), why: Why::NoPodHere };
        let all = [Call::ReadSet, Call::ListPods, Call::ReadRevision { name: "r".into() }, create, status];
        expect![[r#"
            GET /apis/apps/v1/namespaces/a/daemonsets/d "application/json"
            GET /api/v1/namespaces/a/pods?labelSelector=app+in+%28d%29 "application/json"
            GET /apis/apps/v1/namespaces/a/controllerrevisions/r "application/json"
            POST /api/v1/namespaces/a/pods "application/json"
            PUT /apis/apps/v1/namespaces/a/daemonsets/d/status "application/json""#]]
        .assert_eq(&all.each_ref().map(said).join("\n"));
    }
}
