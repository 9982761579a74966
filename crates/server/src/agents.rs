//! The way to the nodes' agents: where each is, who it must be, and how long it may take. What an agent sends is a node's word
//! and no more: it is held to its limits, and nothing in it leads anywhere.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpSocket;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::idle_timeout::IdleTimeout;
use crate::limits::{HEADER_BYTES_MAX, HEADERS_MAX};
use crate::pki::{self, Pki, PkiError};
use crate::request::User;
use crate::unstructured::{list, str_at};

/// A connection to an agent that takes nothing for this long is closed.
const STALL_TIMEOUT: Duration = Duration::from_secs(60);

/// From the first packet to the end of the handshake. A node that is there answers in milliseconds.
const DIAL_TIMEOUT: Duration = Duration::from_secs(5);

/// Until an answer begins: its agent may have to ask its runtime first.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// Until an answer that is wanted whole has come.
const WHOLE_TIMEOUT: Duration = Duration::from_secs(30);

/// Upstream: the kubelet's certificate names it so.
const NODE_NAME_PREFIX: &str = "system:node:";
const NODES_GROUP: &str = "system:nodes";

#[derive(Debug, thiserror::Error)]
pub(crate) enum AgentError {
    #[error("dial {address}: {why}")]
    Dial { address: String, why: String },
    #[error("{address} does not prove to be node {node:?}: {why}")]
    Stranger { node: String, address: String, why: String },
    #[error("the agent did not answer in time")]
    TooSlow,
    #[error("the agent's answer is none: {0}")]
    Malformed(String),
}

pub(crate) struct Agents {
    tls: TlsConnector,
    pub(crate) answer_timeout: Duration,
}

impl std::fmt::Debug for Agents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Agents").finish_non_exhaustive()
    }
}

/// Where a node says that its agent listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AgentAddress {
    node: String,
    address: IpAddr,
    port: u16,
}

impl AgentAddress {
    /// Nothing, if the node has no agent that could be asked. Only addresses count: a name would have to be looked up by whoever
    /// the server trusts with names, and says no more.
    pub(crate) fn of(node: &Value) -> Option<Self> {
        let port = node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"].as_u64();
        let port = port.and_then(|it| u16::try_from(it).ok()).filter(|it| *it != 0)?;
        let addresses = list(&node["status"], "addresses");
        let of_type = |wanted: &str| {
            let mut all = addresses.iter().filter(|it| it["type"] == wanted);
            all.find_map(|it| it["address"].as_str()?.parse().ok())
        };
        let address = of_type("InternalIP").or_else(|| of_type("ExternalIP"))?;
        Some(Self { node: str_at(node, "metadata.name").to_owned(), address, port })
    }

    fn host(&self) -> String {
        std::net::SocketAddr::new(self.address, self.port).to_string()
    }
}

impl Agents {
    pub(crate) fn new(pki: &Pki) -> Result<Self, PkiError> {
        let tls = TlsConnector::from(Arc::new(pki.to_agents()?));
        Ok(Self { tls, answer_timeout: ANSWER_TIMEOUT })
    }

    /// The beginning of an agent's answer. Its body comes when it is read; if the answer is 101, the connection is the
    /// caller's.
    pub(crate) async fn ask(
        &self,
        place: &AgentAddress,
        request: hyper::Request<Full<Bytes>>,
    ) -> Result<hyper::Response<Incoming>, AgentError> {
        self.ask_within(place, request, self.answer_timeout).await
    }

    /// The same, of what may take as long as this to begin.
    pub(crate) async fn ask_within(
        &self,
        place: &AgentAddress,
        mut request: hyper::Request<Full<Bytes>>,
        patience: Duration,
    ) -> Result<hyper::Response<Incoming>, AgentError> {
        let stream = tokio::time::timeout(DIAL_TIMEOUT, self.dial(place));
        let failed = |why: &str| AgentError::Dial { address: place.host(), why: why.to_owned() };
        let stream = stream.await.map_err(|_| failed("it does not answer"))??;
        let asking = async {
            let (mut sender, connection) = http1::Builder::new()
                .max_headers(HEADERS_MAX)
                .max_buf_size(HEADER_BYTES_MAX)
                .handshake(TokioIo::new(stream))
                .await
                .map_err(|it| AgentError::Malformed(it.to_string()))?;
            // It ends with the answer, or with whoever wants it.
            tokio::spawn(connection.with_upgrades());
            if let Ok(host) = place.host().parse() {
                request.headers_mut().insert(hyper::header::HOST, host);
            }
            sender.send_request(request).await.map_err(|it| AgentError::Malformed(it.to_string()))
        };
        tokio::time::timeout(patience, asking).await.map_err(|_| AgentError::TooSlow)?
    }

    /// Rule: an agent is believed if the cluster's authority says that it is the agent of that node, at that address: no node
    /// answers for another.
    async fn dial(
        &self,
        place: &AgentAddress,
    ) -> Result<TlsStream<IdleTimeout<tokio::net::TcpStream>>, AgentError> {
        let failed = |it: std::io::Error| AgentError::Dial { address: place.host(), why: it.to_string() };
        let socket = if place.address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }
            .map_err(failed)?;
        // A node that is cut off while nothing is sent must not be waited for without end.
        socket.set_keepalive(true).map_err(failed)?;
        socket.set_nodelay(true).map_err(failed)?;
        let stream = socket.connect((place.address, place.port).into()).await.map_err(failed)?;
        let name = ServerName::IpAddress(place.address.into());
        let stream = self.tls.connect(name, IdleTimeout::new(stream, STALL_TIMEOUT)).await;
        let stranger =
            |why: String| AgentError::Stranger { node: place.node.clone(), address: place.host(), why };
        let stream = stream.map_err(|it| stranger(it.to_string()))?;
        let certificate = stream.get_ref().1.peer_certificates().and_then(|it| it.first());
        let who = certificate.and_then(|it| pki::certificate_user(it));
        match who {
            Some(who) if is_agent_of(&who, &place.node) => Ok(stream),
            Some(who) => Err(stranger(format!("its certificate is {:?}'s", who.name))),
            None => Err(stranger("its certificate names nobody".to_owned())),
        }
    }
}

fn is_agent_of(who: &User, node: &str) -> bool {
    who.name.strip_prefix(NODE_NAME_PREFIX) == Some(node) && who.is_in(NODES_GROUP)
}

/// All of a body that must not be long.
pub(crate) async fn whole(body: Incoming, bytes_max: usize) -> Result<Bytes, AgentError> {
    let read = Limited::new(body, bytes_max).collect();
    match tokio::time::timeout(WHOLE_TIMEOUT, read).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) => Err(AgentError::Malformed(error.to_string())),
        Err(_) => Err(AgentError::TooSlow),
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
        let said = |node: &Value| AgentAddress::of(node).map(|it| it.host());
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
