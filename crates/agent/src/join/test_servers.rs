//! API servers for tests: TLS and HTTP/2 on loopback ports, without an API.

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_util::sync::CancellationToken;

use crate::api_servers::{ApiServers, ServerUrl};

/// Path of requests that are answered only after [`TestServer::release_slow_requests`].
pub(super) const SLOW_PATH: &str = "/slow";
/// Path of requests that are answered with 503.
pub(super) const UNAVAILABLE_PATH: &str = "/unavailable";

/// A cluster CA.
pub(super) struct TestCa {
    pub(super) pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl TestCa {
    pub(super) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "ca");
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    pub(super) fn fingerprint(&self) -> String {
        super::fingerprint(&CertificateDer::from_pem_slice(self.pem.as_bytes()).unwrap())
    }

    /// Returns the TLS configuration of a server whose certificate is valid for the address.
    fn server_config(&self, address: IpAddr) -> ServerConfig {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([address.to_string()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().der().clone();
        let authority = CertificateDer::from_pem_slice(self.pem.as_bytes()).unwrap();
        let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap();
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate, authority], key)
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec()];
        config
    }
}

/// A server that answers every request with the `:authority` (host and port) of the request. It stops when it is
/// dropped.
pub(super) struct TestServer {
    address: SocketAddr,
    /// Number of connections that were accepted.
    connection_count: Arc<AtomicUsize>,
    /// Cancelled to close the port and drain the connections: the server sends GOAWAY, then the responses to open
    /// requests.
    drain: CancellationToken,
    /// Cancelled to close the port and all connections at once.
    kill: CancellationToken,
    behavior: Arc<Behavior>,
}

/// How a server answers requests at certain paths.
struct Behavior {
    /// Number of requests at [`SLOW_PATH`] that were received.
    slow_request_count: AtomicUsize,
    /// Notified to answer the requests at [`SLOW_PATH`].
    release: Notify,
    /// Status of the response to a request at `/readyz`. `None` if such requests are never answered.
    readyz_status: Mutex<Option<StatusCode>>,
}

impl TestServer {
    /// Starts a server on a free port of 127.0.0.1.
    pub(super) async fn start(ca: &TestCa) -> Self {
        Self::start_at(ca, SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await
    }

    pub(super) async fn start_at(ca: &TestCa, address: SocketAddr) -> Self {
        Self::start_with(ca.server_config(address.ip()), address).await
    }

    /// Starts a server on a free port of 127.0.0.1, with a certificate for another address.
    pub(super) async fn start_with_wrong_certificate(ca: &TestCa) -> Self {
        let config = ca.server_config(IpAddr::from([10, 0, 0, 1]));
        Self::start_with(config, SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await
    }

    async fn start_with(config: ServerConfig, address: SocketAddr) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let server = Self {
            address: listener.local_addr().unwrap(),
            connection_count: Arc::default(),
            drain: CancellationToken::new(),
            kill: CancellationToken::new(),
            behavior: Arc::new(Behavior {
                slow_request_count: AtomicUsize::new(0),
                release: Notify::new(),
                readyz_status: Mutex::new(Some(StatusCode::OK)),
            }),
        };
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let (drain, kill) = (server.drain.clone(), server.kill.clone());
        let (count, behavior) = (server.connection_count.clone(), server.behavior.clone());
        tokio::spawn(async move {
            loop {
                let stream = tokio::select! {
                    () = drain.cancelled() => return,
                    () = kill.cancelled() => return,
                    accepted = listener.accept() => accepted.unwrap().0,
                };
                count.fetch_add(1, Ordering::SeqCst);
                let (acceptor, behavior) = (acceptor.clone(), behavior.clone());
                let (drain, kill) = (drain.clone(), kill.clone());
                tokio::spawn(async move {
                    tokio::select! {
                        () = kill.cancelled() => {}
                        () = serve_connection(stream, &acceptor, behavior, drain) => {}
                    }
                });
            }
        });
        server
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn url(&self) -> ServerUrl {
        ServerUrl::from(self.address)
    }

    pub(super) fn connection_count(&self) -> usize {
        self.connection_count.load(Ordering::SeqCst)
    }

    pub(super) fn slow_request_count(&self) -> usize {
        self.behavior.slow_request_count.load(Ordering::SeqCst)
    }

    pub(super) fn drain(&self) {
        self.drain.cancel();
    }

    /// Closes the port and all connections, and waits until the port is closed.
    pub(super) async fn kill(&self) {
        self.kill.cancel();
        while TcpStream::connect(self.address).await.is_ok() {
            tokio::task::yield_now().await;
        }
    }

    pub(super) fn release_slow_requests(&self) {
        self.behavior.release.notify_waiters();
    }

    /// Sets the status of responses to requests at `/readyz`. With `None`, these requests are never answered.
    pub(super) fn set_readyz_status(&self, status: Option<StatusCode>) {
        *self.behavior.readyz_status.lock().unwrap() = status;
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.kill.cancel();
    }
}

/// Serves the requests of one connection until it ends, or until it is drained.
async fn serve_connection(
    stream: TcpStream,
    acceptor: &TlsAcceptor,
    behavior: Arc<Behavior>,
    drain: CancellationToken,
) {
    let Ok(stream) = acceptor.accept(stream).await else { return };
    let service = service_fn(move |request: Request<Incoming>| {
        let behavior = behavior.clone();
        async move {
            let path = request.uri().path();
            if path == SLOW_PATH {
                behavior.slow_request_count.fetch_add(1, Ordering::SeqCst);
                behavior.release.notified().await;
            }
            let readyz_status = *behavior.readyz_status.lock().unwrap();
            let authority = request.uri().authority().map(ToString::to_string).unwrap_or_default();
            let mut response = Response::new(authority);
            *response.status_mut() = match path {
                UNAVAILABLE_PATH => StatusCode::SERVICE_UNAVAILABLE,
                "/readyz" => match readyz_status {
                    Some(status) => status,
                    None => std::future::pending().await,
                },
                _ => StatusCode::OK,
            };
            Ok::<_, Infallible>(response)
        }
    });
    let connection =
        http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        _ = connection.as_mut() => return,
        () = drain.cancelled() => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

/// A TCP proxy in front of a server, which can stop forwarding without closing its connections. If the server is
/// `None`, the proxy accepts connections and never answers.
pub(super) struct TestProxy {
    address: SocketAddr,
    connection_count: Arc<AtomicUsize>,
    freeze: CancellationToken,
}

impl TestProxy {
    pub(super) async fn start(server: Option<SocketAddr>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (connection_count, freeze) = (Arc::new(AtomicUsize::new(0)), CancellationToken::new());
        let proxy = Self { address, connection_count: connection_count.clone(), freeze: freeze.clone() };
        tokio::spawn(async move {
            loop {
                let (mut client, _) = listener.accept().await.unwrap();
                connection_count.fetch_add(1, Ordering::SeqCst);
                let freeze = freeze.clone();
                tokio::spawn(async move {
                    let forwarding = async {
                        let Some(server) = server else { return std::future::pending().await };
                        let mut server = TcpStream::connect(server).await.unwrap();
                        let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                    };
                    tokio::select! {
                        () = forwarding => return,
                        () = freeze.cancelled() => {}
                    }
                    // The client's socket stays open.
                    std::future::pending::<()>().await;
                });
            }
        });
        proxy
    }

    pub(super) fn url(&self) -> ServerUrl {
        ServerUrl::from(self.address)
    }

    pub(super) fn connection_count(&self) -> usize {
        self.connection_count.load(Ordering::SeqCst)
    }

    pub(super) fn freeze(&self) {
        self.freeze.cancel();
    }
}

/// Returns the list of these servers, and the name of a node that tries them in this order.
pub(super) fn servers_and_node(urls: &[ServerUrl]) -> (Arc<ApiServers>, String) {
    let dir = tempfile::tempdir().unwrap();
    let servers = Arc::new(ApiServers::load(urls.to_vec(), dir.path()));
    let mut names = (0..).map(|it| format!("node-{it}"));
    let node = names.find(|it| servers.in_order_for(it) == urls).unwrap();
    (servers, node)
}
