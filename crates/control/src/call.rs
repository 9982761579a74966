//! Sends the calls of controllers to the API server, and classifies the errors.

use std::time::Duration;

use http::header::RETRY_AFTER;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use kube::core::Status;
use muster_api::well_known::JSON_MEDIA_TYPE;
use muster_api::well_known::LEASE_FENCE_HEADER;
use muster_engine::controller::{Accept, CallError, EncodedRequest, Outcome, Verb};
use tokio::time::Instant;

use crate::lease::Term;
use crate::rate_limit::RateLimiter;
use crate::request::{ACCEPT_METADATA, ACCEPT_METADATA_LIST, request};

/// Timeout of a call. A caller with [`CallLimits`] has two exceptions: the timeout of a list is [`LIST_TIMEOUT`], and
/// the timeout of a write is [`Term::write_timeout`], which may be shorter.
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Timeout of a list by a caller with [`CallLimits`]. It is longer than [`CALL_TIMEOUT`], because the pods of a large
/// DaemonSet are megabytes of JSON.
const LIST_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum length of an error message in characters. Longer messages are cut, because a proxy may respond with a whole
/// HTML page.
const MESSAGE_CHARS_MAX: usize = 1000;

/// Sends the calls of a controller to the API server. With [`CallLimits`], the calls obey a rate limit and a lease
/// term.
#[derive(Clone)]
pub(crate) struct Caller {
    pub(crate) client: Client,
    /// Rate limit and lease term of the calls. `None` for a controller that runs without them: then only the work queue
    /// limits the calls in flight.
    pub(crate) limits: Option<CallLimits>,
}

/// Rate limit and lease term of the calls of one replica of the DaemonSet controller.
#[derive(Clone)]
pub(crate) struct CallLimits {
    pub(crate) rate_limiter: RateLimiter,
    /// The period in which this replica may write.
    pub(crate) term: Term,
}

impl Caller {
    /// Sends a call. With [`CallLimits`], waits for the rate limit first, and sends a write only within the lease term.
    /// For a write after the end of the term, this function never returns. A write of a leader names its Lease, if
    /// that is fenced, so that Muster's API server refuses the write after another replica has acquired the Lease.
    /// Returns the outcome, and the time from the request to the response.
    pub(crate) async fn call(&self, request: EncodedRequest) -> (Outcome, Duration) {
        let (verb, priority) = (request.verb, request.priority);
        let mut request = self.http_request(request);
        let (_permit, timeout) = match &self.limits {
            None => (None, CALL_TIMEOUT),
            Some(CallLimits { rate_limiter, term }) => {
                let permit = rate_limiter.acquire(priority).await;
                let timeout = match verb {
                    Verb::Get => CALL_TIMEOUT,
                    Verb::List => LIST_TIMEOUT,
                    Verb::Create | Verb::Patch(_) | Verb::Update | Verb::Delete => {
                        let timeout = term.begin_write().await;
                        if let Some(fence) = term.fence() {
                            request.headers_mut().insert(LEASE_FENCE_HEADER, fence);
                        }
                        timeout
                    }
                };
                (Some(permit), timeout)
            }
        };
        let began = Instant::now();
        let outcome = match tokio::time::timeout(timeout, send(&self.client, request)).await {
            Err(_) => Outcome::Refused(CallError::NoAnswer),
            Ok(Err(error)) => Outcome::Refused(error),
            Ok(Ok(body)) => Outcome::Done(body.as_ref().to_vec()),
        };
        (outcome, began.elapsed())
    }

    /// Builds the HTTP request. With [`CallLimits`], a write has the query parameter `timeout`, so that the API server
    /// abandons the write no later than the client does.
    fn http_request(&self, encoded: EncodedRequest) -> Request<Vec<u8>> {
        let EncodedRequest { verb, mut path, body, accept, .. } = encoded;
        if let (Some(limits), false) = (&self.limits, matches!(verb, Verb::Get | Verb::List)) {
            let separator = if path.contains('?') { '&' } else { '?' };
            path = format!("{path}{separator}timeout={}ms", limits.term.write_timeout().as_millis());
        }
        let accept = match accept {
            Accept::Object => JSON_MEDIA_TYPE,
            Accept::Metadata => ACCEPT_METADATA,
            Accept::MetadataList => ACCEPT_METADATA_LIST,
        };
        request(verb, path, accept, body)
    }
}

/// Sends a request. Returns the body of a successful response, or the classified error.
pub(crate) async fn send(
    client: &Client,
    request: Request<Vec<u8>>,
) -> Result<impl AsRef<[u8]> + use<>, CallError> {
    let response = client.send(request.map(Body::from)).await.map_err(|_| CallError::NoAnswer)?;
    let (head, body) = response.into_parts();
    let body = body.collect().await.map_err(|_| CallError::NoAnswer)?.to_bytes();
    if head.status.is_success() { Ok(body) } else { Err(call_error(head.status, &head.headers, &body)) }
}

/// Returns the error for an error response. The body is usually a `Status`. An overloaded server or a proxy responds in
/// plain text instead, and requests a delay before the retry only in the header `Retry-After`.
fn call_error(code: StatusCode, headers: &HeaderMap, body: &[u8]) -> CallError {
    let status: Option<Status> = serde_json::from_slice(body).ok();
    let (message, reason) = match &status {
        Some(status) => (status.message.clone(), status.reason.as_str()),
        None => (String::from_utf8_lossy(body).trim().to_owned(), ""),
    };
    let message = if message.is_empty() { code.to_string() } else { shorten(message) };
    let details = status.as_ref().and_then(|it| it.details.as_ref());
    match code.as_u16() {
        404 => CallError::NotFound,
        409 if reason == "AlreadyExists" => CallError::AlreadyExists,
        409 => CallError::Conflict,
        403 if details.is_some_and(|it| it.causes.iter().any(|it| it.reason == "NamespaceTerminating")) => {
            CallError::NamespaceTerminating
        }
        401 | 403 => CallError::Forbidden(message),
        429 => {
            let header = headers.get(RETRY_AFTER).and_then(|it| it.to_str().ok()?.trim().parse::<u64>().ok());
            let detail = details.map(|it| u64::from(it.retry_after_seconds)).filter(|it| *it != 0);
            let retry_after = header.or(detail).map(Duration::from_secs);
            let cause = details.and_then(|it| it.causes.iter().find(|it| it.reason == "DisruptionBudget"));
            match cause {
                Some(cause) if cause.message.is_empty() => {
                    CallError::DisruptionBudget { message, retry_after }
                }
                Some(cause) => {
                    CallError::DisruptionBudget { message: shorten(cause.message.clone()), retry_after }
                }
                None => CallError::TooManyRequests { retry_after },
            }
        }
        // The server timed out, but its store may have applied the write.
        504 => CallError::NoAnswer,
        500.. => CallError::Server(message),
        _ => CallError::Invalid(message),
    }
}

/// Cuts a message that has more than [`MESSAGE_CHARS_MAX`] characters, and appends `…`. Returns a shorter message
/// unchanged.
fn shorten(message: String) -> String {
    match message.char_indices().nth(MESSAGE_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &message[..end]),
        None => message,
    }
}

/// Returns the value of the metric label `outcome`. `error` is `None` for a call that succeeded.
pub(crate) fn outcome_label(error: Option<&CallError>) -> &'static str {
    let Some(error) = error else { return "ok" };
    match error {
        CallError::NotFound => "not found",
        CallError::AlreadyExists => "already exists",
        CallError::Conflict => "conflict",
        CallError::Forbidden(_) => "forbidden",
        CallError::Invalid(_) => "invalid",
        CallError::TooManyRequests { .. } => "too many requests",
        CallError::DisruptionBudget { .. } => "disruption budget",
        CallError::Server(_) => "server error",
        CallError::NoAnswer => "no answer",
        CallError::NamespaceTerminating => "namespace terminating",
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use http::HeaderValue;
    use muster_api::interner::Interner;
    use muster_engine::controller::Controller as _;
    use muster_engine::daemonset::execution::PlannedCall;
    use muster_engine::daemonset::manifest::Binding;
    use muster_engine::daemonset::why::Why;
    use muster_engine::daemonset::{DaemonSetCall, DaemonSetController, facts};
    use serde_json::{Value, json};

    use std::sync::Arc;

    use super::*;

    fn error_of(code: u16, retry_after: Option<&'static str>, body: &str) -> CallError {
        let mut headers = HeaderMap::new();
        headers.extend(retry_after.map(|it| (RETRY_AFTER, HeaderValue::from_static(it))));
        call_error(StatusCode::from_u16(code).unwrap(), &headers, body.as_bytes())
    }

    #[test]
    fn an_error_response_becomes_a_call_error() {
        let api = |code: u16, reason: &str, details: Value| {
            let status = json!({"code": code, "reason": reason, "message": "m", "status": "Failure", "details": details});
            error_of(code, None, &status.to_string())
        };
        let terminating = json!({"causes": [{"reason": "NamespaceTerminating", "message": "", "field": ""}]});
        assert_eq!(api(404, "NotFound", json!({})), CallError::NotFound);
        assert_eq!(api(409, "AlreadyExists", json!({})), CallError::AlreadyExists);
        assert_eq!(api(409, "Conflict", json!({})), CallError::Conflict);
        assert_eq!(api(403, "Forbidden", terminating), CallError::NamespaceTerminating);
        assert_eq!(api(403, "Forbidden", json!({})), CallError::Forbidden("m".into()));
        assert_eq!(api(401, "Unauthorized", json!({})), CallError::Forbidden("m".into()));
        assert_eq!(api(422, "Invalid", json!({})), CallError::Invalid("m".into()));
        assert_eq!(api(400, "BadRequest", json!({})), CallError::Invalid("m".into()));
        assert_eq!(
            api(429, "TooManyRequests", json!({"retryAfterSeconds": 3})),
            CallError::TooManyRequests { retry_after: Some(Duration::from_secs(3)) }
        );
        let budget = json!({
            "retryAfterSeconds": 10,
            "causes": [{"reason": "DisruptionBudget", "message": "The disruption budget b needs 2", "field": ""}],
        });
        assert_eq!(
            api(429, "TooManyRequests", budget),
            CallError::DisruptionBudget {
                message: "The disruption budget b needs 2".into(),
                retry_after: Some(Duration::from_secs(10)),
            }
        );
        assert_eq!(api(500, "InternalError", json!({})), CallError::Server("m".into()));
        assert_eq!(api(503, "ServiceUnavailable", json!({})), CallError::Server("m".into()));
        assert_eq!(api(504, "Timeout", json!({})), CallError::NoAnswer);
    }

    #[test]
    fn error_responses_without_a_status_object() {
        let wait = |retry_after| CallError::TooManyRequests { retry_after };
        assert_eq!(error_of(429, Some("1"), "Too many requests"), wait(Some(Duration::from_secs(1))));
        assert_eq!(error_of(429, Some("Fri, 01 Jan 2027 00:00:00 GMT"), ""), wait(None));
        assert_eq!(error_of(429, None, ""), wait(None));
        assert_eq!(error_of(502, None, ""), CallError::Server("502 Bad Gateway".into()));
        assert_eq!(error_of(404, None, "404 page not found"), CallError::NotFound);
        let CallError::Server(message) = error_of(500, None, &"ä".repeat(5000)) else {
            panic!("expected CallError::Server")
        };
        assert_eq!(message.chars().count(), MESSAGE_CHARS_MAX + 1);
    }

    #[tokio::test]
    async fn a_call_is_encoded_as_an_http_request() {
        let set = json!({
            "metadata": {"name": "d", "namespace": "a"},
            "spec": {"selector": {"matchLabels": {"app": "d"}}, "template": {}},
        });
        let set = Arc::new(facts::decode_set(set.to_string().as_bytes(), &mut Interner::default()).unwrap());
        let config = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        let limits = CallLimits {
            rate_limiter: RateLimiter::new(crate::RateLimits::default()),
            term: Term::unlimited(Duration::from_secs(4)),
        };
        let caller = Caller { client: crate::client(config).unwrap(), limits: Some(limits) };
        let request_line = |call: &PlannedCall| {
            let call = DaemonSetCall::standalone(set.clone(), call.clone(), Binding::Scheduler);
            let request = caller.http_request(DaemonSetController::encode(&call));
            format!(
                "{} {} {:?}",
                request.method(),
                request.uri(),
                request.headers()[http::header::CONTENT_TYPE]
            )
        };
        let status = PlannedCall::PutStatus { of: set.clone(), status: set.status.clone() };
        let create = PlannedCall::CreatePod {
            node: "n".into(),
            hash: "h".into(),
            why: Why::NoPodOnNode,
            source: None,
        };
        let apply = PlannedCall::ApplyConditions { conditions: Vec::new() };
        let all = [
            PlannedCall::ReadSet,
            PlannedCall::ListPods,
            PlannedCall::ReadRevision { name: "r".into() },
            create,
            status,
            apply,
        ];
        expect![[r#"
            GET /apis/apps/v1/namespaces/a/daemonsets/d "application/json"
            GET /api/v1/namespaces/a/pods?labelSelector=app%20in%20%28d%29 "application/json"
            GET /apis/apps/v1/namespaces/a/controllerrevisions/r "application/json"
            POST /api/v1/namespaces/a/pods?timeout=4000ms "application/json"
            PUT /apis/apps/v1/namespaces/a/daemonsets/d/status?timeout=4000ms "application/json"
            PATCH /apis/apps/v1/namespaces/a/daemonsets/d/status?fieldManager=muster-assist&force=true&timeout=4000ms "application/apply-patch+yaml""#]]
        .assert_eq(&all.each_ref().map(request_line).join("\n"));
    }
}
