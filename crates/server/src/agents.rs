//! HTTPS client with which the server sends requests to node agents. Each agent serves the kubelet API of its node.
//!
//! An agent's response is untrusted input. The size of its headers is limited, and so is the size of a body that is
//! read as a whole. Redirects are not followed.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use muster_api::well_known::{USER_GROUP_NODES, USER_NODE_PREFIX};
use serde_json::Value;
use tokio::net::TcpSocket;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::idle_timeout::IdleTimeoutStream;
use crate::limits::{HEADER_BYTES_MAX, HEADERS_MAX};
use crate::pki::{self, Pki, PkiError};
use crate::request::User;
use crate::unstructured::{list_at, str_at};

/// Maximum time for which a write to an agent may make no progress. After that, the connection is closed.
const AGENT_WRITE_STALL_TIMEOUT: Duration = Duration::from_secs(60);

/// Timeout for connecting to an agent, including the TLS handshake. A reachable node answers within milliseconds.
const DIAL_TIMEOUT: Duration = Duration::from_secs(5);

/// Timeout for the response headers of an agent. The agent may have to call its container runtime before it responds.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);

/// Timeout for reading a whole response body of an agent.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// A failed request to a node agent.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AgentError {
    /// The connection to the agent could not be established.
    #[error("dial {address}: {why}")]
    Dial { address: String, why: String },
    /// The TLS handshake failed, or the certificate does not belong to the agent of the node.
    #[error("{address} does not authenticate as node {node:?}: {why}")]
    WrongIdentity { node: String, address: String, why: String },
    /// The response headers or the response body did not arrive within their timeout.
    #[error("the agent did not answer in time")]
    Timeout,
    /// The request failed for another reason. For example, the response is not valid HTTP or is too large, or the
    /// connection was closed.
    #[error("the request to the agent failed: {0}")]
    Other(String),
}

/// HTTPS client that sends requests to node agents.
pub(crate) struct AgentClient {
    tls: TlsConnector,
    /// Timeout for the response headers of [`Self::send`].
    pub(crate) response_timeout: Duration,
}

impl std::fmt::Debug for AgentClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AgentClient").finish_non_exhaustive()
    }
}

/// Name of a node, and IP address and port of its agent as the status of the Node reports them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AgentAddress {
    node: String,
    address: IpAddr,
    port: u16,
}

impl AgentAddress {
    /// Reads the address of a node's agent from the status of the Node. Uses the first `InternalIP`, or else the first
    /// `ExternalIP`. Returns `None` if the status has no agent port or no such address. Only IP addresses are used and
    /// host names are ignored, so that no DNS server decides where the server connects.
    pub(crate) fn from_node(node: &Value) -> Option<Self> {
        let port = node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"].as_u64();
        let port = port.and_then(|it| u16::try_from(it).ok()).filter(|it| *it != 0)?;
        let addresses = list_at(&node["status"], "addresses");
        let of_type = |address_type: &str| {
            let mut all = addresses.iter().filter(|it| it["type"] == address_type);
            all.find_map(|it| it["address"].as_str()?.parse().ok())
        };
        let address = of_type("InternalIP").or_else(|| of_type("ExternalIP"))?;
        Some(Self { node: str_at(node, "metadata.name").to_owned(), address, port })
    }

    /// Returns the IP address and port as `ADDRESS:PORT`.
    fn host_and_port(&self) -> String {
        std::net::SocketAddr::new(self.address, self.port).to_string()
    }
}

impl AgentClient {
    pub(crate) fn new(pki: &Pki) -> Result<Self, PkiError> {
        let tls = TlsConnector::from(Arc::new(pki.agent_client_config()?));
        Ok(Self { tls, response_timeout: RESPONSE_TIMEOUT })
    }

    /// Sends a request to an agent and returns the response once its headers have arrived. The body is streamed. After
    /// a response with status 101, the caller owns the connection.
    pub(crate) async fn send(
        &self,
        agent: &AgentAddress,
        request: hyper::Request<Full<Bytes>>,
    ) -> Result<hyper::Response<Incoming>, AgentError> {
        self.send_with_timeout(agent, request, self.response_timeout).await
    }

    /// Sends a request like [`Self::send`], with `timeout` as the timeout for the response headers.
    pub(crate) async fn send_with_timeout(
        &self,
        agent: &AgentAddress,
        mut request: hyper::Request<Full<Bytes>>,
        timeout: Duration,
    ) -> Result<hyper::Response<Incoming>, AgentError> {
        let stream = tokio::time::timeout(DIAL_TIMEOUT, self.dial(agent));
        let failed = |why: &str| AgentError::Dial { address: agent.host_and_port(), why: why.to_owned() };
        let stream = stream.await.map_err(|_| failed("timeout"))??;
        let response = async {
            let (mut sender, connection) = http1::Builder::new()
                .max_headers(HEADERS_MAX)
                .max_buf_size(HEADER_BYTES_MAX)
                .handshake(TokioIo::new(stream))
                .await
                .map_err(|it| AgentError::Other(it.to_string()))?;
            // The connection task ends with the response, or when the caller drops it.
            tokio::spawn(connection.with_upgrades());
            if let Ok(host) = agent.host_and_port().parse() {
                request.headers_mut().insert(hyper::header::HOST, host);
            }
            sender.send_request(request).await.map_err(|it| AgentError::Other(it.to_string()))
        };
        tokio::time::timeout(timeout, response).await.map_err(|_| AgentError::Timeout)?
    }

    /// Connects to an agent and checks its certificate.
    ///
    /// Rule: an agent's certificate must be signed by the CA of node serving certificates. It must name the node and
    /// match the address, so that no node can answer for another.
    async fn dial(
        &self,
        agent: &AgentAddress,
    ) -> Result<TlsStream<IdleTimeoutStream<tokio::net::TcpStream>>, AgentError> {
        let failed =
            |it: std::io::Error| AgentError::Dial { address: agent.host_and_port(), why: it.to_string() };
        let socket = if agent.address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }
            .map_err(failed)?;
        // Keepalive ends a connection to a node that was cut off while nothing is sent.
        socket.set_keepalive(true).map_err(failed)?;
        socket.set_nodelay(true).map_err(failed)?;
        let stream = socket.connect((agent.address, agent.port).into()).await.map_err(failed)?;
        let name = ServerName::IpAddress(agent.address.into());
        let stream = self.tls.connect(name, IdleTimeoutStream::new(stream, AGENT_WRITE_STALL_TIMEOUT)).await;
        let wrong_identity = |why: String| AgentError::WrongIdentity {
            node: agent.node.clone(),
            address: agent.host_and_port(),
            why,
        };
        let stream = stream.map_err(|it| wrong_identity(it.to_string()))?;
        let certificate = stream.get_ref().1.peer_certificates().and_then(|it| it.first());
        let user = certificate.and_then(|it| pki::certificate_user(it));
        match user {
            Some(user) if is_agent_of(&user, &agent.node) => Ok(stream),
            Some(user) => Err(wrong_identity(format!("its certificate is issued to {:?}", user.name))),
            None => Err(wrong_identity("its certificate has no subject".to_owned())),
        }
    }
}

/// Whether `user`, the subject of a certificate, is the agent of the node `node`.
fn is_agent_of(user: &User, node: &str) -> bool {
    user.name.strip_prefix(USER_NODE_PREFIX) == Some(node) && user.is_in_group(USER_GROUP_NODES)
}

/// Reads a whole response body of an agent. Fails if the body has more than `bytes_max` bytes or does not arrive within
/// `BODY_TIMEOUT`.
pub(crate) async fn read_body(body: Incoming, bytes_max: usize) -> Result<Bytes, AgentError> {
    let read = Limited::new(body, bytes_max).collect();
    match tokio::time::timeout(BODY_TIMEOUT, read).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) => Err(AgentError::Other(error.to_string())),
        Err(_) => Err(AgentError::Timeout),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn where_a_nodes_agent_is() {
        let node = |port: Value, addresses: Value| {
            json!({
                "metadata": {"name": "n"},
                "status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": port}}, "addresses": addresses},
            })
        };
        let internal = json!([
            {"type": "Hostname", "address": "n"},
            {"type": "ExternalIP", "address": "192.0.2.9"},
            {"type": "InternalIP", "address": "not one"},
            {"type": "InternalIP", "address": "10.0.0.1"},
        ]);
        let said = |node: &Value| AgentAddress::from_node(node).map(|it| it.host_and_port());
        assert_eq!(said(&node(json!(10250), internal.clone())).as_deref(), Some("10.0.0.1:10250"));
        let v6 = json!([{"type": "InternalIP", "address": "fd00::1"}]);
        assert_eq!(said(&node(json!(1), v6)).as_deref(), Some("[fd00::1]:1"));
        for port in [json!(0), json!(65536), json!(-1), json!("10250"), Value::Null] {
            assert_eq!(said(&node(port, internal.clone())), None);
        }
        assert_eq!(said(&node(json!(10250), json!([{"type": "Hostname", "address": "n"}]))), None);
        assert_eq!(said(&json!({})), None);
    }
}
