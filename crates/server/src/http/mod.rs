//! The HTTP layer: handles a request, mostly through the registry, and builds the response.
//!
//! A request passes the `filters` (authentication, authorization, limits, audit), is dispatched by its `route`, and is
//! handled by one of the `handlers`, one for each verb. `query` parses its query parameters. `negotiation` chooses the
//! representation of the response, and `reply` builds the response.
//!
//! `watch_stream` and `web_socket` send watches. `agent`, `proxy` and `resource_metrics` get the response from node
//! agents. `create_actions` handles the create requests whose object is not stored.

/// Pod subresources that a node agent serves, such as `log` and `exec`.
mod agent;
/// A request that has passed the filters.
mod api_request;
/// Create requests that perform an action and store no object, such as bindings, evictions and reviews.
mod create_actions;
/// Authentication, authorization, limits, metrics and audit of every request.
mod filters;
/// Writes data from an agent to a WebSocket client so that no write contains bytes of two WebSocket frames.
mod frame_writer;
/// Handlers of API requests: one module for each verb on resources, and one for other paths.
mod handlers;
/// Content negotiation: chooses the representation and encoding of a response.
mod negotiation;
/// The subresource `proxy`, which forwards requests to pods, Services and nodes.
mod proxy;
/// Parses the query parameters of a request.
mod query;
/// Builds HTTP responses.
mod reply;
/// CPU and memory usage of nodes and pods (`metrics.k8s.io`).
mod resource_metrics;
/// Parses the path of a request.
mod route;
/// Streams the events of a watch.
mod watch_stream;
/// Sends the events of a watch over a WebSocket.
mod web_socket;

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use self::api_request::ApiRequest;
pub(crate) use self::reply::ApiResponse;
use crate::agents::AgentClient;
use crate::audit::AuditLog;
use crate::debug_explain::ExplainProvider;
use crate::limits::ServerLimits;
use crate::registry::Registry;

/// A response whose body holds its `ResponseCharges` (charged usage and permits) until it is sent.
pub(crate) type OutgoingResponse =
    hyper::Response<crate::flow_control::response::SendingBody<reply::ApiResponseBody>>;

/// Handles the API requests of all clients, over the network and in process.
#[derive(Debug, Clone)]
pub(crate) struct Api {
    pub(crate) registry: Arc<Registry>,
    /// The limits of connections and requests, and the current usage.
    pub(crate) limits: Arc<ServerLimits>,
    /// The audit log. `None` if requests are not logged.
    pub(crate) audit: Option<Arc<AuditLog>>,
    /// Answers `/debug/explain`. If it is `None`, the response to this path is 404.
    pub(crate) explain_provider: Option<ExplainProvider>,
    /// Client for requests to the node agents. If it is `None`, requests that an agent serves (log, exec, attach,
    /// port-forward, proxy) fail, and lists of resource metrics are empty.
    pub(crate) agents: Option<Arc<AgentClient>>,
    /// Token that is cancelled when the server stops. This ends watches and agent streams.
    pub(crate) stop: CancellationToken,
    /// Token that is cancelled when the server begins to shut down, which is `--shutdown-delay` before it stops. From
    /// then on `/readyz` fails.
    pub(crate) shutting_down: CancellationToken,
}

impl Api {
    pub(crate) fn new(registry: Arc<Registry>, stop: CancellationToken) -> Self {
        Self {
            registry,
            limits: Arc::new(ServerLimits::default()),
            audit: None,
            explain_provider: None,
            agents: None,
            shutting_down: stop.child_token(),
            stop,
        }
    }
}

/// Sends generated requests and HTTP/2 frames to a server.
#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
