//! The engine's calls as HTTP requests, and the server's answers as the engine's outcomes.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::{Method, Request};
use kube::Client;
use muster_engine::act::{Call, Outcome, Refusal};
use muster_engine::facts::{self, Key, LabelOp, Requirement, Selector, Set, Shared, Text};
use muster_engine::go_json;
use muster_engine::manifest::{self, Binding, Owner};
use muster_engine::plan::{Claim, Step};
use serde::Deserialize;
use serde_json::{Value, json};

/// A call that takes longer counts as unanswered.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";

/// Makes the calls of one plan.
pub(crate) struct Caller {
    client: Client,
    set: Arc<Set>,
    template: Value,
    binding: Binding,
}

impl Caller {
    pub(crate) fn new(client: Client, set: Arc<Set>, binding: Binding) -> Self {
        let template = serde_json::from_str(&set.template.raw).expect("facts keep the template as it came");
        Self { client, set, template, binding }
    }

    pub(crate) async fn make(&self, call: &Call) -> Outcome {
        let request = self.request(call);
        match tokio::time::timeout(CALL_TIMEOUT, self.client.request_text(request)).await {
            Err(_) => Outcome::Refused(Refusal::NoAnswer),
            Ok(Err(error)) => Outcome::Refused(refusal(error)),
            // An answer that cannot be read is as good as none.
            Ok(Ok(answer)) => read(call, &answer).unwrap_or(Outcome::Refused(Refusal::NoAnswer)),
        }
    }

    fn request(&self, call: &Call) -> Request<Vec<u8>> {
        let namespace = &self.set.key.namespace;
        let set = || format!("/apis/apps/v1/namespaces/{namespace}/daemonsets/{}", self.set.key.name);
        let pods = || format!("/api/v1/namespaces/{namespace}/pods");
        let pod = |key: &Key| format!("{}/{}", pods(), key.name);
        let revisions = || format!("/apis/apps/v1/namespaces/{namespace}/controllerrevisions");
        let revision = |name: &Text| format!("{}/{name}", revisions());
        match call {
            Call::ReadSet => request(Method::GET, set(), "", None),
            Call::ReadRevision { name } => request(Method::GET, revision(name), "", None),
            Call::ListPods => {
                let mut query = form_urlencoded::Serializer::new(String::new());
                query.append_pair("labelSelector", &selector(&self.set.selector));
                request(Method::GET, format!("{}?{}", pods(), query.finish()), "", None)
            }
            Call::Claim(claim) => {
                let (path, uid, version, adopts) = match claim {
                    Claim::AdoptPod(it) => (pod(&it.key), &it.uid, it.resource_version, true),
                    Claim::ReleasePod(it) => (pod(&it.key), &it.uid, it.resource_version, false),
                    Claim::AdoptRevision(it) => (revision(&it.key.name), &it.uid, it.resource_version, true),
                    Claim::ReleaseRevision(it) => {
                        (revision(&it.key.name), &it.uid, it.resource_version, false)
                    }
                };
                let version = version.to_string();
                let patch = if adopts {
                    manifest::adopt_patch(self.owner(), uid, &version)
                } else {
                    manifest::release_patch(&self.set.uid, uid, &version)
                };
                request(Method::PATCH, path, STRATEGIC, Some(&patch))
            }
            Call::Step(Step::Create { hash, number, .. }) => {
                let annotations = serde_json::from_str(&self.set.annotations).unwrap_or_default();
                let body =
                    manifest::controller_revision(self.owner(), &annotations, &self.template, hash, *number);
                request(Method::POST, revisions(), JSON, Some(&body))
            }
            Call::Step(Step::Renumber { revision: it, number }) => {
                let patch = manifest::renumber_patch(*number, &it.uid, &it.resource_version.to_string());
                request(Method::PATCH, revision(&it.key.name), MERGE, Some(&patch))
            }
            Call::Step(Step::Label { revision: it }) => {
                let version = it.resource_version.to_string();
                let patch = manifest::label_revision_patch(&it.key.name, &it.uid, &version);
                request(Method::PATCH, revision(&it.key.name), MERGE, Some(&patch))
            }
            Call::RelabelPod { pod: it, hash } => {
                let patch = manifest::relabel_patch(hash, &it.uid, &it.resource_version.to_string());
                request(Method::PATCH, pod(&it.key), MERGE, Some(&patch))
            }
            Call::CreatePod { node, hash, .. } => {
                let generation = self.set.template_generation;
                let body =
                    manifest::daemon_pod(self.owner(), &self.template, node, hash, generation, self.binding);
                request(Method::POST, pods(), JSON, Some(&body))
            }
            Call::DeletePod { pod: it, .. } => {
                request(Method::DELETE, pod(&it.key), JSON, Some(&only_if_uid(&it.uid)))
            }
            Call::DeleteRevision { revision: it } => {
                request(Method::DELETE, revision(&it.key.name), JSON, Some(&only_if_uid(&it.uid)))
            }
            Call::PutStatus { of, status } => {
                let body = manifest::set_with_status(of, status);
                request(Method::PUT, format!("{}/status", set()), JSON, Some(&body))
            }
        }
    }

    fn owner(&self) -> Owner<'_> {
        Owner { namespace: &self.set.key.namespace, name: &self.set.key.name, uid: &self.set.uid }
    }
}

/// A delete must never hit another object of the same name.
fn only_if_uid(uid: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}})
}

fn request(method: Method, path: String, media_type: &str, body: Option<&Value>) -> Request<Vec<u8>> {
    let mut request = Request::builder().method(method).uri(path).header(http::header::ACCEPT, JSON);
    if body.is_some() {
        request = request.header(CONTENT_TYPE, media_type);
    }
    // In Go's spelling, because the bytes of a revision are compared.
    let body = body.map(go_json::to_string).unwrap_or_default();
    request.body(body.into_bytes()).expect("names of objects make valid paths")
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

fn refusal(error: kube::Error) -> Refusal {
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

/// As the API takes it in a query.
fn selector(selector: &Selector) -> String {
    let requirements: &[Requirement] = match selector {
        Selector::AllOf(requirements) => requirements,
        Selector::Everything | Selector::Unreadable(_) => &[],
    };
    let mut text = String::new();
    for Requirement { key, op } in requirements {
        if !text.is_empty() {
            text.push(',');
        }
        let written = match op {
            LabelOp::In(values) => write!(text, "{key} in ({})", values.join(",")),
            LabelOp::NotIn(values) => write!(text, "{key} notin ({})", values.join(",")),
            LabelOp::Exists => write!(text, "{key}"),
            LabelOp::DoesNotExist => write!(text, "!{key}"),
        };
        written.expect("a string takes all");
    }
    text
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

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
    fn a_selector_as_a_query_has_it() {
        let set = json!({
            "metadata": {"name": "d"},
            "spec": {
                "selector": {
                    "matchLabels": {"a": "b"},
                    "matchExpressions": [
                        {"key": "c", "operator": "NotIn", "values": ["d", "e"]},
                        {"key": "f", "operator": "Exists"},
                        {"key": "g", "operator": "DoesNotExist"},
                    ],
                },
                "template": {},
            },
        });
        let set = facts::set(set.to_string().as_bytes(), &mut Shared::default()).unwrap();
        assert_eq!(selector(&set.selector), "a in (b),c notin (d,e),f,!g");
    }
}
