//! The HTTP layer: from a request to the registry, and back to a response.
//!
//! A request passes the `filters` (authentication, authorization, limits, audit), is dispatched by its `route`, and is
//! handled by one of the `handlers`, one for each verb. `query` parses its query parameters. `negotiation` chooses the
//! representation of the response, and `reply` builds the response.
//!
//! `watch_stream` and `web_socket` send watches. `agent`, `proxy` and `resource_metrics` get the response from node
//! agents. `subresources` has the create requests whose object is not stored.

mod agent;
mod api_request;
mod filters;
mod handlers;
mod negotiation;
mod proxy;
mod query;
mod reply;
mod resource_metrics;
mod route;
mod subresources;
mod watch_stream;
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

/// A response whose body counts against the limits of its user until it is sent.
pub(crate) type OutgoingResponse =
    hyper::Response<crate::flow_control::response::SendingBody<reply::ApiResponseBody>>;

/// Handles the API requests of all clients, over the network and in process.
#[derive(Debug, Clone)]
pub(crate) struct Api {
    pub(crate) registry: Arc<Registry>,
    pub(crate) limits: Arc<ServerLimits>,
    pub(crate) audit: Option<Arc<AuditLog>>,
    /// Answers `/debug/explain`. Without it, the path is not found.
    pub(crate) explain_provider: Option<ExplainProvider>,
    /// Client of the node agents. `None` if there are no agents. Then requests that an agent serves (log, exec, attach,
    /// port-forward, proxy) fail.
    pub(crate) agents: Option<Arc<AgentClient>>,
    /// Cancelled when the server stops, which ends watches and agent streams.
    pub(crate) stop: CancellationToken,
}

impl Api {
    pub(crate) fn new(registry: Arc<Registry>, stop: CancellationToken) -> Self {
        Self {
            registry,
            limits: Arc::new(ServerLimits::default()),
            audit: None,
            explain_provider: None,
            agents: None,
            stop,
        }
    }
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
