//! The node's HTTP/2 connection to an API server, shared by all requests and watches. Pings detect a dead peer. If the
//! connection fails, the next request goes to the next server. After the certificate was renewed, a new connection is
//! opened.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex as SyncMutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::header::{AUTHORIZATION, HeaderValue, USER_AGENT};
use http::uri::{Authority, Scheme};
use http::{Request, Response, StatusCode, Uri};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use kube::client::Body;
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::JoinError;
use crate::api_servers::{ApiServers, ServerFailures, ServerUrl};

/// Timeouts if only one server is known.
const SINGLE_SERVER_TIMEOUTS: Timeouts = Timeouts {
    connect: Duration::from_secs(10),
    ping_interval: Duration::from_secs(10),
    ping: Duration::from_secs(10),
    unavailable: Duration::MAX,
};
/// Timeouts if several servers are known. They are shorter, because another server can be used instead. A failed server
/// is detected within 10 s, which leaves time for several heartbeats in the 50 s after which a node without heartbeats
/// is not ready.
const FAILOVER_TIMEOUTS: Timeouts = Timeouts {
    connect: Duration::from_secs(3),
    ping_interval: Duration::from_secs(5),
    ping: Duration::from_secs(5),
    unavailable: Duration::from_secs(8),
};

/// Returns the timeout for connecting to an API server, including the TLS handshake. It is shorter if several servers
/// are known. `server_count` is the number of known servers.
pub(super) fn connect_timeout(server_count: usize) -> Duration {
    if server_count <= 1 { SINGLE_SERVER_TIMEOUTS.connect } else { FAILOVER_TIMEOUTS.connect }
}

/// HTTP/2 flow-control window of one stream. It is small because there are many watches, and each transfers little.
const STREAM_WINDOW_BYTES: u32 = 256 << 10;

/// Error type of a request. [`kube::Client`] requires that the service that sends its requests has a boxed error type.
type TransportError = Box<dyn std::error::Error + Send + Sync>;

/// Timeouts of a connection to an API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Timeouts {
    /// Timeout for connecting, including the TLS and HTTP/2 handshakes.
    connect: Duration,
    /// Interval of HTTP/2 pings.
    ping_interval: Duration,
    /// Timeout for the response to a ping, after which the connection is closed.
    ping: Duration,
    /// Time for which a server may answer all requests with 503 before the agent checks whether the server is ready. If
    /// it is not, because it does not reach etcd, another server is used.
    unavailable: Duration,
}

/// Credentials with which the node authenticates to the API server.
#[derive(Clone)]
pub(super) enum Credentials {
    /// A bootstrap token.
    Token(String),
    /// A client certificate and its key, in PEM.
    Certificate(String),
}

/// A connection to one of the API servers. If it fails, it is opened again, if necessary to another server. Its
/// credentials can be replaced.
pub(super) struct ServerConnection {
    servers: Arc<ApiServers>,
    /// Name of the node, on which the order of the servers depends.
    node: String,
    ca: CertificateDer<'static>,
    single_server_timeouts: Timeouts,
    failover_timeouts: Timeouts,
    /// The credentials and their generation, which is incremented when they are replaced.
    credentials: SyncMutex<(u64, Credentials)>,
    state: Mutex<ConnectionState>,
    /// Number of times that no server could be reached.
    failure_count: AtomicU64,
}

/// The open connection, and the results of the latest attempts to connect, from which the next server is chosen.
#[derive(Default)]
struct ConnectionState {
    open: Option<OpenConnection>,
    /// Server of the latest attempt to connect. `None` before the first attempt.
    last_tried: Option<ServerUrl>,
    /// Server of the latest successful attempt. `None` before the first one.
    last_connected: Option<ServerUrl>,
    /// Why no server could be reached when all of them were last tried. `None` if a connection was opened since then.
    last_failure: Option<ServerFailures>,
}

/// An HTTP/2 connection to one server.
#[derive(Clone)]
struct OpenConnection {
    server: ServerUrl,
    /// Generation of the credentials with which the connection was opened.
    generation: u64,
    timeouts: Timeouts,
    sender: SendRequest<Body>,
    /// Whether the connection is retired: no new request uses it. A connection is retired when it refuses a request,
    /// because it is closed or the server has sent GOAWAY, and when the server has answered all requests with 503 for
    /// [`Timeouts::unavailable`] and is not ready.
    is_retired: Arc<AtomicBool>,
    /// Since when the server has answered only with 503. `None` if its last response had another status, before its
    /// first response, and after it was found to be ready.
    unavailable_since: Arc<SyncMutex<Option<Instant>>>,
}

impl OpenConnection {
    fn is_usable(&self) -> bool {
        !self.sender.is_closed() && !self.is_retired.load(Ordering::Acquire)
    }

    /// Records the status of a response. After [`Timeouts::unavailable`] with only 503 responses, retires the connection
    /// if the server is not ready.
    ///
    /// Rule: an agent does not leave a server that is ready. If the database of etcd is full, every server answers
    /// writes with 503 and is ready, so another server would not help.
    async fn record_status(&mut self, status: StatusCode) {
        if status != StatusCode::SERVICE_UNAVAILABLE {
            *self.lock_unavailable_since() = None;
            return;
        }
        let unavailable_for = self.lock_unavailable_since().get_or_insert_with(Instant::now).elapsed();
        if unavailable_for < self.timeouts.unavailable {
            return;
        }
        if self.is_server_ready().await {
            *self.lock_unavailable_since() = None;
        } else {
            self.is_retired.store(true, Ordering::Release);
        }
    }

    /// Whether `GET /readyz` is answered with 200 within [`Timeouts::connect`]. The request needs no token.
    async fn is_server_ready(&mut self) -> bool {
        let url = format!("https://{}/readyz", self.server.authority());
        let Ok(request) = Request::get(url).body(Body::empty()) else { return false };
        let response = tokio::time::timeout(self.timeouts.connect, self.sender.send_request(request)).await;
        matches!(response, Ok(Ok(response)) if response.status() == StatusCode::OK)
    }

    fn lock_unavailable_since(&self) -> MutexGuard<'_, Option<Instant>> {
        self.unavailable_since.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for ServerConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerConnection").field("servers", &self.servers).finish_non_exhaustive()
    }
}

impl ServerConnection {
    /// Creates a connection of this node. It is opened by the first request.
    pub(super) fn new(
        servers: Arc<ApiServers>,
        node: &str,
        authority_pem: &str,
        credentials: Credentials,
    ) -> Result<Self, JoinError> {
        let authority = CertificateDer::from_pem_slice(authority_pem.as_bytes());
        let authority = authority.map_err(|it| JoinError::Certificate(it.to_string()))?;
        Ok(Self {
            servers,
            node: node.to_owned(),
            ca: authority,
            single_server_timeouts: SINGLE_SERVER_TIMEOUTS,
            failover_timeouts: FAILOVER_TIMEOUTS,
            credentials: SyncMutex::new((0, credentials)),
            state: Mutex::default(),
            failure_count: AtomicU64::new(0),
        })
    }

    /// Makes the connection change to another server at the first 503 response of a server that is not ready, if several
    /// servers are known. Used while a node joins, because it has no watches yet that would have to be opened again.
    pub(super) fn with_immediate_failover(mut self) -> Self {
        self.failover_timeouts.unavailable = Duration::ZERO;
        self
    }

    /// Returns an API client that sends its requests over this connection.
    pub(super) fn client(self: &Arc<Self>) -> kube::Client {
        let line = self.clone();
        let send = move |request| {
            let line = line.clone();
            async move { line.send(request).await }
        };
        kube::Client::new(tower::service_fn(send), "default")
    }

    /// Replaces the credentials. New requests use a new connection. Requests in flight are not affected.
    pub(super) fn replace_credentials(&self, credentials: Credentials) {
        let mut current = self.credentials.lock().unwrap_or_else(PoisonError::into_inner);
        *current = (current.0 + 1, credentials);
    }

    /// Returns the current credentials and their generation.
    fn credentials(&self) -> (u64, Credentials) {
        self.credentials.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sends a request to the server of the open connection. Opens a connection if none is open.
    ///
    /// Rule: if a connection refuses a request before any part of the request is sent, for example after GOAWAY, the
    /// request is sent to the next server at once. The request fails if it is refused more often than there are
    /// servers. A request that fails later is not repeated, because the server may have executed it.
    async fn send(&self, mut request: Request<Body>) -> Result<Response<Incoming>, TransportError> {
        let user_agent = HeaderValue::from_static(concat!("muster-agent/", env!("CARGO_PKG_VERSION")));
        request.headers_mut().insert(USER_AGENT, user_agent);
        let (generation, credentials) = self.credentials();
        if let Credentials::Token(token) = &credentials {
            let mut bearer = HeaderValue::from_str(&format!("Bearer {token}"))?;
            bearer.set_sensitive(true);
            request.headers_mut().insert(AUTHORIZATION, bearer);
        }
        let mut refusal_count = 0;
        loop {
            let mut connection = self.open_connection(generation, &credentials).await?;
            let mut uri = request.uri().clone().into_parts();
            uri.scheme = Some(Scheme::HTTPS);
            uri.authority = Some(Authority::try_from(connection.server.authority())?);
            *request.uri_mut() = Uri::from_parts(uri)?;
            let mut failed = match connection.sender.try_send_request(request).await {
                Ok(response) => {
                    connection.record_status(response.status()).await;
                    return Ok(response);
                }
                Err(failed) => failed,
            };
            let Some(unsent) = failed.take_message() else { return Err(failed.into_error().into()) };
            connection.is_retired.store(true, Ordering::Release);
            refusal_count += 1;
            if self.servers.all().len() < refusal_count {
                return Err(failed.into_error().into());
            }
            request = unsent;
        }
    }

    /// Returns the open connection if it is usable, has the credentials of this or a later generation, and was opened
    /// with the timeouts for the current number of servers. Otherwise opens a new connection. Concurrent callers wait
    /// for each other, and share the new connection, or the error if no server can be reached.
    ///
    /// Rule: an agent stays with a server while its connection works. If the connection fails, if the server sends
    /// GOAWAY, or if it answers all requests with 503 for some time and is not ready, the agent connects to the next
    /// server of its order, and tries each server once.
    async fn open_connection(
        &self,
        generation: u64,
        credentials: &Credentials,
    ) -> Result<OpenConnection, ServerFailures> {
        let failure_count = self.failure_count.load(Ordering::Acquire);
        let mut state = self.state.lock().await;
        let servers = self.servers.in_order_for(&self.node);
        let timeouts = if servers.len() <= 1 { self.single_server_timeouts } else { self.failover_timeouts };
        let usable = state.open.as_ref().filter(|it| it.is_usable());
        if let Some(open) = usable
            && generation <= open.generation
            && timeouts == open.timeouts
        {
            return Ok(open.clone());
        }
        if let Some(failure) = &state.last_failure
            && failure_count != self.failure_count.load(Ordering::Acquire)
        {
            // No server could be reached while this caller waited: trying all of them again would multiply the wait.
            return Err(failure.clone());
        }
        let last_tried = servers.iter().position(|it| Some(it) == state.last_tried.as_ref());
        let first = match last_tried {
            Some(index) if usable.is_some() => index,
            Some(index) => index + 1,
            None => 0,
        };
        let mut failures = Vec::new();
        for server in servers.iter().cycle().skip(first).take(servers.len()) {
            // Recorded before the attempt: if the caller is cancelled, the next caller continues with the next server.
            (state.open, state.last_tried) = (None, Some(server.clone()));
            let connecting = self.connect(server, credentials, timeouts);
            let why = match tokio::time::timeout(timeouts.connect, connecting).await {
                Ok(Ok(sender)) => {
                    log_server_change(state.last_connected.as_ref(), server);
                    let open = OpenConnection {
                        server: server.clone(),
                        generation,
                        timeouts,
                        sender,
                        is_retired: Arc::default(),
                        unavailable_since: Arc::default(),
                    };
                    (state.open, state.last_connected) = (Some(open.clone()), Some(server.clone()));
                    state.last_failure = None;
                    return Ok(open);
                }
                Ok(Err(error)) => error.to_string(),
                Err(_) => format!("no response within {:?}", timeouts.connect),
            };
            tracing::debug!(%server, error = why, "cannot connect to an API server");
            failures.push((server.clone(), why));
        }
        let failure = ServerFailures(failures);
        state.last_failure = Some(failure.clone());
        self.failure_count.fetch_add(1, Ordering::AcqRel);
        Err(failure)
    }

    /// Opens a new HTTP/2 connection to a server.
    async fn connect(
        &self,
        server: &ServerUrl,
        credentials: &Credentials,
        timeouts: Timeouts,
    ) -> Result<SendRequest<Body>, TransportError> {
        let stream = TcpStream::connect(server.authority()).await?;
        stream.set_nodelay(true)?;
        let tls = TlsConnector::from(Arc::new(self.tls_config(credentials)?));
        let stream = tls.connect(server.certificate_name(), stream).await?;
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .keep_alive_interval(timeouts.ping_interval)
            .keep_alive_timeout(timeouts.ping)
            .keep_alive_while_idle(true)
            .handshake(TokioIo::new(stream))
            .await?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "the connection to the API server ended");
            }
        });
        Ok(sender)
    }

    /// Returns a TLS configuration that trusts only the cluster CA, and authenticates with the credentials.
    fn tls_config(&self, credentials: &Credentials) -> Result<ClientConfig, TransportError> {
        let mut roots = RootCertStore::empty();
        roots.add(self.ca.clone())?;
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots);
        let mut config = match credentials {
            Credentials::Token(_) => builder.with_no_client_auth(),
            Credentials::Certificate(pem) => {
                let certificate = CertificateDer::from_pem_slice(pem.as_bytes())?;
                let key = PrivateKeyDer::from_pem_slice(pem.as_bytes())?;
                builder.with_client_auth_cert(vec![certificate], key)?
            }
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(config)
    }
}

/// Logs that `server` is another server than the previous one. Logs nothing for the first connection.
fn log_server_change(previous: Option<&ServerUrl>, server: &ServerUrl) {
    if let Some(previous) = previous.filter(|it| *it != server) {
        tracing::info!(%server, %previous, "connected to another API server");
    }
}

#[cfg(test)]
mod tests;
