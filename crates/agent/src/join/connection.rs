//! The node's HTTP/2 connection to the API server, shared by all requests and watches. Pings detect a dead peer, so
//! that a node that was cut off reconnects. After the certificate was renewed, a new connection is opened.

use std::fmt;
use std::sync::{Arc, Mutex as SyncMutex, PoisonError};
use std::time::Duration;

use http::header::{AUTHORIZATION, HeaderValue, USER_AGENT};
use http::uri::{Authority, Scheme};
use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use kube::client::Body;
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::JoinError;

/// Timeout for connecting, including the TLS and HTTP/2 handshakes.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Interval of HTTP/2 pings.
const PING_INTERVAL: Duration = Duration::from_secs(10);
/// Timeout for the response to a ping, after which the connection is closed.
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// HTTP/2 flow-control window of one stream. It is small because there are many watches, and each transfers little.
const STREAM_WINDOW_BYTES: u32 = 256 << 10;

/// Error type of the connection, as the API client requires it.
type TransportError = Box<dyn std::error::Error + Send + Sync>;

/// Credentials with which the node authenticates to the API server.
#[derive(Clone)]
pub(super) enum Credentials {
    /// A bootstrap token.
    Token(String),
    /// A client certificate and its key, in PEM.
    Certificate(String),
}

/// A connection to the API server that reconnects, and whose credentials can be replaced.
pub(super) struct ServerConnection {
    server: Uri,
    ca: CertificateDer<'static>,
    /// The credentials and their generation, which is incremented when they are replaced.
    credentials: SyncMutex<(u64, Credentials)>,
    /// The open connection, and the generation of the credentials with which it was opened.
    current: Mutex<Option<(u64, SendRequest<Body>)>>,
}

impl fmt::Debug for ServerConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerConnection").field("server", &self.server).finish_non_exhaustive()
    }
}

impl ServerConnection {
    pub(super) fn new(
        server: &Uri,
        authority_pem: &str,
        credentials: Credentials,
    ) -> Result<Self, JoinError> {
        let authority = CertificateDer::from_pem_slice(authority_pem.as_bytes());
        let authority = authority.map_err(|it| JoinError::Certificate(it.to_string()))?;
        let (credentials, current) = (SyncMutex::new((0, credentials)), Mutex::new(None));
        Ok(Self { server: server.clone(), ca: authority, credentials, current })
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

    /// Sends a request over the open connection. Opens a connection if none is open.
    async fn send(&self, mut request: Request<Body>) -> Result<Response<Incoming>, TransportError> {
        let user_agent = HeaderValue::from_static(concat!("muster-agent/", env!("CARGO_PKG_VERSION")));
        request.headers_mut().insert(USER_AGENT, user_agent);
        let (generation, credentials) = self.credentials();
        if let Credentials::Token(token) = &credentials {
            let mut bearer = HeaderValue::from_str(&format!("Bearer {token}"))?;
            bearer.set_sensitive(true);
            request.headers_mut().insert(AUTHORIZATION, bearer);
        }
        let mut uri = request.uri().clone().into_parts();
        uri.scheme = Some(Scheme::HTTPS);
        uri.authority = self.server.authority().cloned();
        *request.uri_mut() = Uri::from_parts(uri)?;
        let mut sender = self.open_connection(generation, &credentials).await?;
        sender.ready().await?;
        Ok(sender.send_request(request).await?)
    }

    /// Returns the open connection if it has the credentials of this or a later generation, and otherwise opens a new
    /// one. Concurrent callers wait for each other, so that they share one connection.
    async fn open_connection(
        &self,
        generation: u64,
        credentials: &Credentials,
    ) -> Result<SendRequest<Body>, TransportError> {
        let mut current = self.current.lock().await;
        if let Some((made_with, sender)) = current.as_ref()
            && generation <= *made_with
            && !sender.is_closed()
        {
            return Ok(sender.clone());
        }
        let connecting = tokio::time::timeout(CONNECT_TIMEOUT, self.connect(credentials));
        let sender = connecting.await.map_err(|_| format!("{} does not respond", self.server))??;
        *current = Some((generation, sender.clone()));
        Ok(sender)
    }

    /// Opens a new HTTP/2 connection to the API server.
    async fn connect(&self, credentials: &Credentials) -> Result<SendRequest<Body>, TransportError> {
        let (host, name) = server_address_and_name(&self.server)?;
        let stream = TcpStream::connect(host).await?;
        stream.set_nodelay(true)?;
        let stream =
            TlsConnector::from(Arc::new(self.tls_config(credentials)?)).connect(name, stream).await?;
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT)
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

/// Returns the host and port of the API server with this URL, and the name that its certificate must have.
pub(super) fn server_address_and_name(server: &Uri) -> Result<(String, ServerName<'static>), JoinError> {
    let bad = || JoinError::InvalidUrl(server.to_string());
    let host = server.host().ok_or_else(bad)?;
    let port = server.authority().and_then(Authority::port_u16).unwrap_or(443);
    let name = host.trim_start_matches('[').trim_end_matches(']');
    let name = ServerName::try_from(name.to_owned()).map_err(|_| bad())?;
    Ok((format!("{host}:{port}"), name))
}
