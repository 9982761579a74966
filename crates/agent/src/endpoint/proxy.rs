//! Reverse proxy to pods and to other ports of the node. The requests come from the API server, which may have no route
//! to the pod network. The node always has such a route.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::header::{CONNECTION, HOST, HeaderMap, HeaderName, HeaderValue, LOCATION, UPGRADE};
use hyper::{Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::PodSpec;
use muster_api::well_known;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use super::{EndpointResponse, HEADER_BYTES_MAX, HttpError, stream};
use crate::node::{format_dial_error, insecure_tls_config};

/// Header that the agent adds to each response of the proxied target (the backend). A response without the header was
/// created by the agent. The agent first removes the header from the client's request and from the target's response,
/// so that neither client nor target can set it.
const BACKEND_RESPONSE_HEADER: HeaderName = HeaderName::from_static(well_known::BACKEND_RESPONSE_HEADER);

/// Header with the host that the client addressed.
const FORWARDED_HOST_HEADER: &str = "x-forwarded-host";

/// Timeout for connecting to the target, including the TLS handshake. The target is on this machine.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);

/// Destination of a proxied request: socket address, and whether the connection uses TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ProxyTarget {
    pub(super) address: SocketAddr,
    pub(super) is_tls: bool,
}

impl ProxyTarget {
    /// Parses the scheme (`https` means TLS) and the port of the destination.
    pub(super) fn new(address: IpAddr, scheme: &str, port: &str) -> Result<Self, HttpError> {
        let malformed = || HttpError::bad_request(format!("{scheme}:{port} is not a scheme and port"));
        let port = port.parse().ok().filter(|it| *it != 0).ok_or_else(malformed)?;
        let is_tls = match scheme {
            "http" => false,
            "https" => true,
            _ => return Err(malformed()),
        };
        Ok(Self { address: (address, port).into(), is_tls })
    }
}

/// Checks that requests may be proxied to the address `to` of a pod with this spec.
///
/// Rule: a hostNetwork pod can be reached only at its declared container ports, because every other port of its address
/// belongs to the node. Any other pod can be reached at all ports. Loopback, unspecified, link-local, multicast and
/// broadcast addresses are refused. Upstream: only `IsGlobalUnicast` of the address is checked, so other ports of the
/// node can be reached.
pub(super) fn check_proxy_allowed(spec: &PodSpec, to: SocketAddr) -> Result<(), HttpError> {
    let is_link_local = match to.ip() {
        IpAddr::V4(it) => it.is_link_local() || it.is_broadcast(),
        IpAddr::V6(it) => it.is_unicast_link_local(),
    };
    let ip = to.ip();
    if ip.is_loopback() || ip.is_unspecified() || ip.is_multicast() || is_link_local {
        return Err(HttpError::bad_request("address not allowed"));
    }
    if spec.host_network != Some(true) {
        return Ok(());
    }
    let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let mut ports = containers.flat_map(|it| it.ports.iter().flatten()).map(|it| it.container_port);
    if ports.any(|it| it == i32::from(to.port())) {
        return Ok(());
    }
    let port = to.port();
    Err(HttpError::new(
        StatusCode::FORBIDDEN,
        format!("port {port} is not declared by this hostNetwork pod: list it in spec.containers[].ports"),
    ))
}

/// Forwards the request to `path` on the target and returns the target's response. If the target accepts an upgrade,
/// the two connections are spliced. The error is status 503 if the target cannot be reached or does not respond.
pub(super) async fn forward(
    mut request: Request<Incoming>,
    target: ProxyTarget,
    path: &str,
    context: stream::StreamContext,
) -> Result<EndpointResponse, HttpError> {
    let failed = |why: &dyn std::fmt::Display| {
        HttpError::new(StatusCode::SERVICE_UNAVAILABLE, format!("dial tcp {}: {why}", target.address))
    };
    let uri: Uri = path.parse().map_err(|it| HttpError::bad_request(format!("{path:?}: {it}")))?;
    let upgrade = request.headers().get(UPGRADE).cloned();
    let client = hyper::upgrade::on(&mut request);
    let (parts, body) = request.into_parts();
    let mut forwarded = Request::new(body);
    *forwarded.method_mut() = parts.method;
    *forwarded.uri_mut() = uri;
    *forwarded.headers_mut() = forwarded_headers(&parts.headers);
    let host = forwarded.headers().get(FORWARDED_HOST_HEADER).cloned();
    let host = host.or_else(|| HeaderValue::from_str(&target.address.to_string()).ok());
    forwarded.headers_mut().extend(host.map(|it| (HOST, it)));
    if let Some(upgrade) = &upgrade {
        forwarded.headers_mut().insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        forwarded.headers_mut().insert(UPGRADE, upgrade.clone());
    }

    let stream = tokio::time::timeout(DIAL_TIMEOUT, dial(target)).await;
    let stream = stream.map_err(|_| failed(&"i/o timeout"))?.map_err(|it| failed(&format_dial_error(&it)))?;
    let (mut sender, connection) = http1::Builder::new()
        .max_buf_size(HEADER_BYTES_MAX)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|it| failed(&it))?;
    // The connection ends with the response, or when its receiver is dropped.
    tokio::spawn(connection.with_upgrades());
    let mut answer = sender.send_request(forwarded).await.map_err(|it| failed(&it))?;

    let is_upgraded = answer.status() == StatusCode::SWITCHING_PROTOCOLS;
    let reached = upgrade.filter(|_| is_upgraded).map(|_| hyper::upgrade::on(&mut answer));
    let (mut parts, body) = answer.into_parts();
    let upgrade = parts.headers.get(UPGRADE).cloned();
    parts.headers = forwarded_headers(&parts.headers);
    parts.headers.insert(BACKEND_RESPONSE_HEADER, HeaderValue::from_static("1"));
    if let Some(location) = parts.headers.get(LOCATION).and_then(|it| it.to_str().ok())
        && let Ok(own) = HeaderValue::from_str(relative_location(location, target.address))
    {
        parts.headers.insert(LOCATION, own);
    }
    match (is_upgraded, reached) {
        (true, Some(reached)) => {
            stream::splice_connections(client, reached, context);
            parts.headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
            parts.headers.extend(upgrade.map(|it| (UPGRADE, it)));
        }
        (true, None) => return Err(failed(&"unexpected protocol upgrade")),
        (false, _) => {}
    }
    Ok(EndpointResponse::from_parts(parts, body.map_err(std::io::Error::other).boxed_unsync()))
}

/// A plain or TLS connection to the target.
trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

/// Connects to the target. The certificate of a target with TLS is not verified, as upstream.
async fn dial(target: ProxyTarget) -> std::io::Result<Box<dyn ByteStream>> {
    let stream = TcpStream::connect(target.address).await?;
    stream.set_nodelay(true)?;
    if !target.is_tls {
        return Ok(Box::new(stream));
    }
    let name = ServerName::IpAddress(target.address.ip().into());
    Ok(Box::new(TlsConnector::from(Arc::new(insecure_tls_config())).connect(name, stream).await?))
}

/// Returns the headers that the proxy forwards: all except `Host` and those of [`well_known::not_forwarded_headers`].
/// For an upgraded connection, the caller sets `Connection` and `Upgrade` itself.
fn forwarded_headers(headers: &HeaderMap) -> HeaderMap {
    let mut forwarded = headers.clone();
    let connection = headers.get_all(CONNECTION).iter().filter_map(|it| it.to_str().ok());
    for name in well_known::not_forwarded_headers(connection).chain([HOST.as_str()]) {
        forwarded.remove(name);
    }
    forwarded
}

/// Returns the value of a response's `Location` header for the client. A location on the target is made relative,
/// because the client cannot reach the target's address.
fn relative_location(location: &str, target: SocketAddr) -> &str {
    let rest = ["http://", "https://"].iter().find_map(|it| location.strip_prefix(it));
    let Some(rest) = rest else { return location };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let is_own = authority == target.to_string() || authority == target.ip().to_string();
    match (is_own, path) {
        (true, "") => "/",
        (true, path) => path,
        (false, _) => location,
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{Container, ContainerPort};

    use super::*;

    #[test]
    fn reachable_ports_of_a_pod() {
        let port = ContainerPort { container_port: 80, ..Default::default() };
        let container = Container { ports: Some(vec![port]), ..Default::default() };
        let spec = |on_host| PodSpec {
            containers: vec![container.clone()],
            host_network: Some(on_host),
            ..Default::default()
        };
        let code = |on_host: bool, to: &str| match check_proxy_allowed(&spec(on_host), to.parse().unwrap()) {
            Ok(()) => 200,
            Err(refusal) => refusal.code.as_u16(),
        };
        for (to, in_own_network, on_host) in [
            ("10.244.0.5:80", 200, 200),
            ("10.244.0.5:10250", 200, 403),
            ("[fd00::5]:80", 200, 200),
            ("127.0.0.1:80", 400, 400),
            ("0.0.0.0:80", 400, 400),
            ("169.254.169.254:80", 400, 400),
            ("224.0.0.1:80", 400, 400),
            ("255.255.255.255:80", 400, 400),
            ("[::1]:80", 400, 400),
            ("[fe80::1]:80", 400, 400),
        ] {
            assert_eq!((code(false, to), code(true, to)), (in_own_network, on_host), "{to}");
        }
    }

    #[test]
    fn an_answer_that_leads_to_itself_leads_to_a_path() {
        let own: SocketAddr = "10.0.0.5:80".parse().unwrap();
        for (location, leads_to) in [
            ("http://10.0.0.5:80/a?b", "/a?b"),
            ("http://10.0.0.5/a", "/a"),
            ("https://10.0.0.5:80", "/"),
            ("http://10.0.0.5:8080/a", "http://10.0.0.5:8080/a"),
            ("http://10.0.0.5:80.evil/a", "http://10.0.0.5:80.evil/a"),
            ("/a", "/a"),
            ("a", "a"),
        ] {
            assert_eq!(relative_location(location, own), leads_to);
        }
    }

    #[test]
    fn headers_of_a_connection_stay_with_it() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "close, X-Mine"),
            ("x-mine", "1"),
            ("muster-reached", "1"),
            ("transfer-encoding", "chunked"),
            ("proxy-authenticate", "Basic"),
            ("proxy-authorization", "Basic eDp5"),
            ("host", "h"),
            ("x-other", "2"),
        ] {
            headers.append(name, HeaderValue::from_static(value));
        }
        let left: Vec<_> = forwarded_headers(&headers).into_iter().filter_map(|(name, _)| name).collect();
        assert_eq!(left, ["x-other"]);
    }
}
