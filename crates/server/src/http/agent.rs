//! Pod subresources that only a node agent can serve: `log`, `exec`, `attach` and `portforward`. The module `proxy`
//! handles the subresource `proxy`.
//!
//! The server authorizes the request, finds the agent and relays the agent's response. After a protocol upgrade, the
//! server copies data between the connections of the client and the agent without changing it.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use form_urlencoded::Serializer;
use futures::StreamExt as _;
use http_body_util::{BodyStream, Either, Full, StreamBody};
use hyper::body::Incoming;
use hyper::header::{CONNECTION, HeaderMap, HeaderName, HeaderValue, UPGRADE};
use hyper::upgrade::OnUpgrade;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use muster_api::well_known::UPGRADE_NEGOTIATION_HEADERS;
use serde_json::Value;
use tokio::io::AsyncWriteExt as _;

use super::frame_writer::FrameWriter;
use super::reply::{TEXT_PLAIN, full_response, response_with_body};
use super::{Api, ApiRequest, ApiResponse};
use crate::agents::{self, AgentAddress, AgentClient, AgentError};
use crate::auth::{self, AccessControl, Reauthorization};
use crate::connections::{ConnectionGuard, RequestClient};
use crate::error::ApiError;
use crate::headers;
use crate::kinds::Kind;
use crate::metrics::GaugeGuard;
use crate::request::{RequestAttributes, RequestTarget, ResourceAttributes};
use crate::subresource::Subresource;
use crate::unstructured::{self, is_set, list_at, str_at};
use crate::validation::FieldError;

/// Maximum number of bytes that are read from an agent's error response.
pub(super) const AGENT_ERROR_BYTES_MAX: usize = 64 << 10;

/// A request to upgrade the client's connection to another protocol.
pub(super) struct ClientUpgrade {
    /// The headers of the client's request that [`upgrade_header_names`] lists.
    pub(super) headers: HeaderMap,
    /// Future that resolves to the client's connection after the upgrade.
    pub(super) upgraded: OnUpgrade,
    /// Guard of the client's connection, to be held until the upgraded connection is closed. `None` for a client in
    /// this process.
    pub(super) connection_guard: Option<ConnectionGuard>,
}

impl ClientUpgrade {
    /// Returns the upgrade that a request asks for, or `None` if the request asks for none.
    pub(super) fn from_request<B>(request: &mut Request<B>) -> Option<Self> {
        let names_upgrade = |it: &str| it.to_ascii_lowercase().contains("upgrade");
        if !request.headers().contains_key(UPGRADE)
            || !headers::header_texts(request.headers(), CONNECTION).any(names_upgrade)
        {
            return None;
        }
        let headers = upgrade_headers(request.headers());
        let held = request.extensions().get::<Arc<RequestClient>>().and_then(|it| it.guard.clone());
        Some(Self { headers, upgraded: hyper::upgrade::on(request), connection_guard: held })
    }

    /// Whether the client requests an upgrade to a WebSocket.
    pub(super) fn is_web_socket_upgrade(&self) -> bool {
        headers::header_text(&self.headers, UPGRADE).eq_ignore_ascii_case("websocket")
    }

    /// Replaces the upgrade headers in `headers` with those of the client.
    pub(super) fn replace_upgrade_headers(&self, headers: &mut HeaderMap) {
        for name in upgrade_header_names() {
            headers.remove(name);
        }
        headers.extend(self.headers.clone());
    }
}

/// Returns the names of the headers of a protocol upgrade. Requests for `log`, `exec`, `attach` and `portforward` are
/// sent to the agent with no other header of the client, so that the agent gets no credentials.
fn upgrade_header_names() -> impl Iterator<Item = HeaderName> {
    [CONNECTION, UPGRADE].into_iter().chain(UPGRADE_NEGOTIATION_HEADERS.map(HeaderName::from_static))
}

/// Returns only the headers that [`upgrade_header_names`] lists.
fn upgrade_headers(headers: &HeaderMap) -> HeaderMap {
    let mut kept = HeaderMap::new();
    for name in upgrade_header_names() {
        for value in headers.get_all(&name) {
            kept.append(name.clone(), value.clone());
        }
    }
    kept
}

/// A request to a node's agent.
struct AgentRequest {
    /// Name of the node whose agent receives the request.
    node: String,
    /// Path and query of the request to the agent.
    path: String,
}

impl Api {
    /// Sends a request for the subresource `what` of a pod to the agent of the node that runs the pod, and returns the
    /// agent's response. The response to a `log` request for a pod without a node is empty.
    pub(super) async fn serve_from_agent(
        &self,
        target: &RequestTarget,
        what: &'static str,
        api_request: &ApiRequest,
    ) -> Result<ApiResponse, ApiError> {
        let mut reauthorization = api_request.reauthorization.clone();
        if matches!(what, "attach" | "exec" | "portforward") {
            let create = self.authorize_create(target, what, api_request)?;
            reauthorization = reauthorization.map(|it| it.with_action(create));
        }
        let stored = unstructured::parse_stored(&self.registry.storage.get(target)?);
        let agent_request = match (target.kind.resource(), what) {
            (("", "pods"), "log") => {
                let path = pod_log_path(&stored, api_request)?;
                // A pod that was never scheduled has no log.
                if !is_set(&stored["spec"]["nodeName"]) {
                    return Ok(full_response(StatusCode::NO_CONTENT, TEXT_PLAIN, Bytes::new()));
                }
                AgentRequest { node: str_at(&stored, "spec.nodeName").to_owned(), path }
            }
            (("", "pods"), "attach" | "exec" | "portforward") => {
                let path = stream_request_path(&stored, what, api_request)?;
                AgentRequest { node: str_at(&stored, "spec.nodeName").to_owned(), path }
            }
            _ => return Err(no_agent_error(target, &stored)),
        };
        let (agents, place) = self.agent_of_node(target, &stored, &agent_request.node)?;
        let is_stream = matches!(what, "attach" | "exec" | "portforward");
        // A log may be upgraded to a WebSocket only.
        let upgrade = api_request.upgrade.as_ref().filter(|it| is_stream || it.is_web_socket_upgrade());
        if is_stream && upgrade.is_none() {
            return Err(ApiError::bad_request("Upgrade request required"));
        }
        let mut request = Request::builder()
            .method(api_request.method.clone())
            .uri(&agent_request.path)
            .body(Full::new(Bytes::new()))
            .map_err(|it| ApiError::bad_request(format!("ask node {:?}: {it}", agent_request.node)))?;
        if let Some(upgrade) = upgrade {
            upgrade.replace_upgrade_headers(request.headers_mut());
        }
        let guard = self.acquire_agent_stream(api_request)?;
        let failed = |error: AgentError| agent_request_error(target, &agent_request.node, &error);
        let answer = agents.send(&place, request).await.map_err(failed)?;
        match (answer.status(), upgrade) {
            (StatusCode::SWITCHING_PROTOCOLS, Some(upgrade)) => {
                self.splice_connections(upgrade, answer, guard, reauthorization).map_err(failed)
            }
            (StatusCode::OK, _) if what == "log" => {
                Ok(self.stream_response(answer, TEXT_PLAIN, guard, reauthorization))
            }
            (code, _) => {
                let why =
                    agents::read_body(answer.into_body(), AGENT_ERROR_BYTES_MAX).await.map_err(failed)?;
                let mut why = String::from_utf8_lossy(&why).trim().to_owned();
                if why.is_empty() {
                    why = format!("the agent of node {:?} answered {code}", agent_request.node);
                }
                if is_stream && (code.is_client_error() || code.is_server_error()) {
                    return Ok(full_response(code, TEXT_PLAIN, why.into()));
                }
                Err(ApiError::from_agent(code, why))
            }
        }
    }

    /// Returns the agent client and the address of the agent of `node`. Fails if the server has no agent client, or if
    /// the Node has no agent address. `target` and `stored` are the requested object, for the error message.
    pub(super) fn agent_of_node(
        &self,
        target: &RequestTarget,
        stored: &Value,
        node: &str,
    ) -> Result<(&AgentClient, AgentAddress), ApiError> {
        match (&self.agents, self.agent_address(node)) {
            (Some(agents), Some(place)) => Ok((agents, place)),
            _ => Err(no_agent_error(target, stored)),
        }
    }

    /// Counts an agent stream (a request that an agent serves) against the limit of the user who is charged for the
    /// request, until the returned guard is dropped. Fails if the limit is reached.
    pub(super) fn acquire_agent_stream(&self, api_request: &ApiRequest) -> Result<ConnectionGuard, ApiError> {
        let Some(guard) = self.limits.acquire_agent_stream(api_request.charged_user()) else {
            self.registry.metrics.count_refused_request("agent_stream");
            return Err(ApiError::too_many_requests(1));
        };
        Ok(ConnectionGuard::new((guard, GaugeGuard::new(&self.registry.metrics.long_running_requests))))
    }

    /// Returns the address of a node's agent from the status of the Node, or `None` if the Node or the address does not
    /// exist.
    pub(super) fn agent_address(&self, node: &str) -> Option<AgentAddress> {
        let kind = Kind::builtin("", "v1", "nodes");
        let target =
            RequestTarget { kind, namespace: None, name: node.to_owned(), subresource: Subresource::Whole };
        AgentAddress::from_node(&unstructured::parse_stored(&self.registry.storage.get(&target).ok()?))
    }

    /// Checks that the user may `create` the subresource `what`. Returns the attributes of this `create`, for later
    /// reauthorization.
    ///
    /// Rule: `exec`, `attach` and `portforward` require permission to `create` the subresource, also if the request is
    /// a GET. The same applies to `nodes/proxy` if the request upgrades a connection to the agent itself.
    /// Upstream: `AuthorizePodWebsocketUpgradeCreatePermission`.
    pub(super) fn authorize_create(
        &self,
        target: &RequestTarget,
        what: &'static str,
        api_request: &ApiRequest,
    ) -> Result<RequestAttributes, ApiError> {
        let create = RequestAttributes::for_resource("create", ResourceAttributes::of_target(target, what));
        auth::require_authorized(&self.registry.access, &api_request.context.user, &create)?;
        Ok(create)
    }

    /// Returns the response that upgrades the client's connection, and starts a task that copies data between the
    /// connections of the client and the agent. The task ends when a connection ends, the client is no longer
    /// authorized, or the server stops. Fails if the agent's response upgrades to a protocol that the client did not
    /// request.
    pub(super) fn splice_connections(
        &self,
        upgrade: &ClientUpgrade,
        answer: hyper::Response<Incoming>,
        guard: ConnectionGuard,
        reauthorization: Option<Reauthorization>,
    ) -> Result<ApiResponse, AgentError> {
        let headers = upgrade_headers(answer.headers());
        let becomes = headers.get(UPGRADE).map_or(&b""[..], HeaderValue::as_bytes);
        if !becomes.eq_ignore_ascii_case(headers::header_text(&upgrade.headers, UPGRADE).as_bytes()) {
            return Err(AgentError::Other("it switches to a protocol that was not requested".to_owned()));
        }
        let (of_client, of_agent) = (upgrade.upgraded.clone(), hyper::upgrade::on(answer));
        let is_web_socket = upgrade.is_web_socket_upgrade();
        let (stop, held) = (self.stop.clone(), (guard, upgrade.connection_guard.clone()));
        let denied = wait_until_denied(reauthorization, self.registry.access.clone());
        tokio::spawn(async move {
            let _held = held;
            let splicing = async {
                let (client, agent) = tokio::try_join!(of_client, of_agent)?;
                let (client, mut agent) = (TokioIo::new(client), TokioIo::new(agent));
                let mut client = if is_web_socket {
                    tokio_util::either::Either::Left(FrameWriter::new(client))
                } else {
                    tokio_util::either::Either::Right(client)
                };
                let copied = tokio::io::copy_bidirectional(&mut client, &mut agent).await;
                if let Err(error) = copied {
                    tracing::debug!(%error, "a connection to an agent ended early");
                }
                // Flush buffered data before closing.
                let _ = tokio::join!(client.shutdown(), agent.shutdown());
                Ok::<_, hyper::Error>(())
            };
            tokio::select! {
                () = stop.cancelled() => {}
                () = denied => {}
                _ = splicing => {}
            }
        });
        let mut response = full_response(StatusCode::SWITCHING_PROTOCOLS, TEXT_PLAIN, Bytes::new());
        *response.headers_mut() = headers;
        Ok(response)
    }

    /// Returns a response that streams the body of the agent's response to the client. The stream also ends when the
    /// client is no longer authorized or the server stops.
    pub(super) fn stream_response(
        &self,
        answer: hyper::Response<Incoming>,
        media_type: &'static str,
        guard: ConnectionGuard,
        reauthorization: Option<Reauthorization>,
    ) -> ApiResponse {
        let frames = BodyStream::new(answer.into_body()).map(move |it| {
            let _guard = &guard;
            it.map_err(io::Error::other)
        });
        let stopped = self.stop.clone().cancelled_owned();
        let denied = Box::pin(wait_until_denied(reauthorization, self.registry.access.clone()));
        let frames = frames.take_until(futures::future::select(Box::pin(stopped), denied));
        response_with_body(StatusCode::OK, media_type, Either::Right(StreamBody::new(frames.boxed())))
    }
}

/// Waits until the client is no longer authorized. Without `reauthorization`, waits forever.
async fn wait_until_denied(reauthorization: Option<Reauthorization>, access: Arc<AccessControl>) {
    match reauthorization {
        Some(it) => it.wait_until_denied(access).await,
        None => std::future::pending().await,
    }
}

/// Returns the error for an object that no agent can serve: a pod without a node, an object whose node has no agent
/// address, or any object if the server has no agent client.
fn no_agent_error(target: &RequestTarget, stored: &Value) -> ApiError {
    match (target.kind.resource(), str_at(stored, "spec.nodeName")) {
        (("", "pods"), "") => {
            ApiError::bad_request(format!("pod {} does not have a host assigned", target.name))
        }
        (("", "pods"), node) => {
            let why =
                if is_set(&stored["status"]["hostIP"]) { "no agent that serves it" } else { "no address" };
            ApiError::service_unavailable(format!("the node \"{node}\" of pod \"{}\" has {why}", target.name))
        }
        _ => ApiError::service_unavailable(format!(
            "{} \"{}\" has no agent that serves it",
            target.kind.group_resource(),
            target.name
        )),
    }
}

/// Returns the 503 error for a failed request to the agent of `node`, whatever the cause: the agent cannot be reached,
/// does not authenticate as this node, does not answer in time, or sends an invalid response.
pub(super) fn agent_request_error(target: &RequestTarget, node: &str, error: &AgentError) -> ApiError {
    let of_pod = if target.kind.resource() == ("", "pods") {
        format!(" of pod \"{}\"", target.name)
    } else {
        String::new()
    };
    ApiError::service_unavailable(format!("the node \"{node}\"{of_pod} cannot be reached: {error}"))
}

/// Validates the log options of a request, and returns the path and query of the log request to the agent. Upstream:
/// `LogLocation`, and `ValidatePodLogOptions`.
fn pod_log_path(pod: &Value, api_request: &ApiRequest) -> Result<String, ApiError> {
    let query = &api_request.query;
    let container = container_name(pod, query.get("container"))?;
    let mut causes = Vec::new();
    let mut options = Serializer::new(String::new());
    for name in ["follow", "previous", "timestamps"] {
        if query.is_true(name) {
            options.append_pair(name, "true");
        }
    }
    for (name, min) in [("sinceSeconds", 1), ("tailLines", 0), ("limitBytes", 1)] {
        let Some(value) = query.parse_number::<i64>(name)? else { continue };
        if value < min {
            let why = if min == 0 { "must be greater than or equal to 0" } else { "must be greater than 0" };
            causes.push(FieldError::invalid(name, value, why));
        }
        options.append_pair(name, &value.to_string());
    }
    if query.contains("sinceTime") {
        let since = query.get("sinceTime");
        let Ok(_) = since.parse::<Timestamp>() else {
            return Err(ApiError::bad_request(format!(
                "sinceTime: {since:?} is not a time: write it as 2006-01-02T15:04:05Z"
            )));
        };
        if query.contains("sinceSeconds") {
            causes.push(FieldError::forbidden(
                "sinceTime",
                "at most one of `sinceTime` or `sinceSeconds` may be specified",
            ));
        }
        options.append_pair("sinceTime", since);
    }
    match query.get("stream") {
        "" | "All" => {}
        stream @ ("Stdout" | "Stderr") => {
            if query.contains("tailLines") {
                let why = "`tailLines` and specific `stream` are mutually exclusive for now";
                causes.push(FieldError::forbidden("tailLines", why));
            }
            options.append_pair("stream", stream);
        }
        other => causes.push(FieldError::unsupported("stream", other, &["All", "Stderr", "Stdout"])),
    }
    if !causes.is_empty() {
        return Err(ApiError::invalid_of_kind("", "PodLogOptions", "", &causes));
    }
    Ok(agent_path("containerLogs", pod, Some(&container), &options.finish()))
}

/// Returns the path and query of an exec, attach or port-forward request to the agent. Fails if the pod has no node, or
/// if [`container_name`] fails. Upstream: `streamLocation`, `PortForwardLocation`.
fn stream_request_path(pod: &Value, what: &str, api_request: &ApiRequest) -> Result<String, ApiError> {
    let query = &api_request.query;
    let container = match what {
        "portforward" => None,
        _ => Some(container_name(pod, query.get("container"))?),
    };
    let name = str_at(pod, "metadata.name");
    if !is_set(&pod["spec"]["nodeName"]) {
        return Err(ApiError::bad_request(format!("pod {name} does not have a host assigned")));
    }
    let mut options = Serializer::new(String::new());
    let streams = [("stdin", "input"), ("stdout", "output"), ("stderr", "error"), ("tty", "tty")];
    for (_, param) in streams.into_iter().filter(|(name, _)| what != "portforward" && query.is_true(name)) {
        options.append_pair(param, "1");
    }
    for (from, to) in [("command", "command"), ("ports", "port")] {
        if (from == "ports") == (what == "portforward") {
            options.extend_pairs(query.values(from).flat_map(|it| match from {
                "ports" => it.split(',').map(|it| (to, it)).collect::<Vec<_>>(),
                _ => vec![(to, it)],
            }));
        }
    }
    let at = match what {
        "portforward" => "portForward",
        what => what,
    };
    Ok(agent_path(at, pod, container.as_deref(), &options.finish()))
}

/// Returns the path and query of a request to the agent. `what` is the first segment of the path, such as
/// `containerLogs`. The names of stored objects are validated and need no escaping.
fn agent_path(what: &str, pod: &Value, container: Option<&str>, query: &str) -> String {
    let (namespace, name) = (str_at(pod, "metadata.namespace"), str_at(pod, "metadata.name"));
    let container = container.map(|it| format!("/{it}")).unwrap_or_default();
    let query = if query.is_empty() { String::new() } else { format!("?{query}") };
    format!("/{what}/{namespace}/{name}{container}{query}")
}

/// Returns the name of the container that a request is for. `named` is the container name in the request. Fails if the
/// pod has no such container. If `named` is empty, returns the name of the only container in `spec.containers`, and
/// fails if there are several or none. Upstream: `validateContainer`.
fn container_name(pod: &Value, named: &str) -> Result<String, ApiError> {
    let spec = &pod["spec"];
    let name = str_at(pod, "metadata.name");
    let all = ["initContainers", "containers", "ephemeralContainers"].map(|it| list_at(spec, it));
    let all: Vec<&str> = all.into_iter().flatten().filter_map(|it| it["name"].as_str()).collect();
    if !named.is_empty() {
        return match all.contains(&named) {
            true => Ok(named.to_owned()),
            false => Err(ApiError::bad_request(format!("container {named} is not valid for pod {name}"))),
        };
    }
    match list_at(spec, "containers") {
        [only] => Ok(str_at(only, "name").to_owned()),
        [] => Err(ApiError::bad_request(format!("a container name must be specified for pod {name}"))),
        _ => Err(ApiError::bad_request(format!(
            "a container name must be specified for pod {name}, choose one of: [{}]",
            all.join(" ")
        ))),
    }
}
