//! The gRPC client of an etcd cluster.

use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::StreamExt as _;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tonic::Request;
use tonic::metadata::MetadataValue;
use tonic::transport::{Channel, Endpoint, Uri};

use crate::api::{EtcdApi, EtcdError, WatchStream};
use crate::proto::kv_client::KvClient;
use crate::proto::maintenance_client::MaintenanceClient;
use crate::proto::watch_client::WatchClient;
use crate::proto::watch_request::RequestUnion;
use crate::proto::{
    CompactionRequest, RangeRequest, RangeResponse, StatusRequest, TxnRequest, TxnResponse,
    WatchCreateRequest, WatchRequest,
};

/// Maximum time to connect to a member.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Timeout of one call. Two attempts take less than the time after which the backend gives up.
const CALL_TIMEOUT: Duration = Duration::from_millis(1900);
/// Interval of HTTP/2 pings, and maximum time for the response to a ping. Without a response the connection is closed,
/// so that calls do not wait for a member that hangs.
const PING_INTERVAL: Duration = Duration::from_secs(5);
/// Maximum size in bytes of a message that a range or a watch receives.
const MESSAGE_BYTES_MAX: usize = 1 << 30;

/// Certificates for connections to etcd.
#[derive(Debug, Clone)]
pub struct ClientTls(Arc<ClientConfig>);

/// The client of an etcd cluster. All calls go to the same member until it does not respond, and then to the next
/// member. If there are several members, each new watch is opened at another member than the previous one.
#[derive(Clone)]
pub struct EtcdClient {
    members: Arc<[Member]>,
    /// Index of the member that gets the next call.
    current_member: Arc<AtomicUsize>,
    /// Index of the member that gets the next watch.
    next_watch_member: Arc<AtomicUsize>,
    accepts_any_version: bool,
}

/// One member of the etcd cluster.
struct Member {
    url: String,
    endpoint: Endpoint,
    /// Host and port to connect to. An IPv6 address is in brackets.
    address: (String, u16),
    name: ServerName<'static>,
    tls: Option<ClientTls>,
    /// The connection for calls. It is opened by the first call, because it belongs to the runtime of the caller.
    call_channel: OnceLock<Channel>,
    /// The connection for watches. It is separate, so that events that are not read yet do not block calls.
    watch_channel: OnceLock<Channel>,
}

/// Error of a client that cannot be created from its options.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("{url} is not the URL of an etcd member, such as https://10.0.0.1:2379: {why}")]
    Url { url: String, why: &'static str },
    #[error("{what} {}", path.display())]
    Certificate {
        what: &'static str,
        path: std::path::PathBuf,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// The version of a member, such as 3.5.28.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct EtcdVersion {
    pub major: u32,
    pub minor: u32,
    pub patch: u32,
}

impl ClientTls {
    /// Reads the certificates from PEM files: the CA of etcd's certificates, and the client certificate with its key.
    pub fn from_files(ca: &Path, cert: &Path, key: &Path) -> Result<Self, ClientError> {
        let failed = |what, path: &Path, source: Box<dyn std::error::Error + Send + Sync>| {
            ClientError::Certificate { what, path: path.to_owned(), source }
        };
        let certificates = |what, path: &Path| {
            let found = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
            found.map_err(|it| failed(what, path, it.into()))
        };
        let mut roots = RootCertStore::empty();
        for it in certificates("read the CA of etcd from", ca)? {
            roots.add(it).map_err(|it| failed("use the CA of etcd from", ca, it.into()))?;
        }
        let chain = certificates("read the client certificate for etcd from", cert)?;
        let private = PrivateKeyDer::from_pem_file(key)
            .map_err(|it| failed("read the private key for etcd from", key, it.into()))?;
        let mut config = ClientConfig::builder()
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, private)
            .map_err(|it| failed("use the client certificate for etcd from", cert, it.into()))?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Self(Arc::new(config)))
    }
}

impl EtcdClient {
    /// Creates a client of the members with these URLs, without connecting. A URL with `https` needs `tls`.
    pub fn new(urls: &[String], tls: Option<&ClientTls>) -> Result<Self, ClientError> {
        let members: Vec<Member> = urls.iter().map(|it| Member::new(it, tls)).collect::<Result<_, _>>()?;
        Ok(Self {
            members: members.into(),
            current_member: Arc::new(AtomicUsize::new(0)),
            next_watch_member: Arc::new(AtomicUsize::new(0)),
            accepts_any_version: false,
        })
    }

    /// Returns a client that also accepts members of unsupported versions.
    #[must_use]
    pub fn accept_any_version(self) -> Self {
        Self { accepts_any_version: true, ..self }
    }

    /// Returns the URL of each member with its version, or why the version is not known.
    async fn versions(&self) -> Vec<(String, Result<EtcdVersion, EtcdError>)> {
        let ask = |member: &Member| {
            let (url, channel) = (member.url.clone(), member.call_channel());
            async move {
                let mut client = MaintenanceClient::new(channel);
                let call = client.status(StatusRequest {});
                let version = with_timeout(call).await.and_then(|it| {
                    EtcdVersion::parse(&it.version).ok_or_else(|| EtcdError::Rejected {
                        why: format!("its version is {:?}", it.version),
                    })
                });
                (url, version)
            }
        };
        futures::future::join_all(self.members.iter().map(ask)).await
    }

    /// Makes a call to the current member. If it does not respond, later calls go to the next member.
    async fn call<T>(
        &self,
        call: impl AsyncFnOnce(Channel) -> Result<tonic::Response<T>, tonic::Status>,
    ) -> Result<T, EtcdError> {
        let at = self.current_member.load(Ordering::Relaxed);
        let result = with_timeout(call(self.members[at].call_channel())).await;
        if let Err(EtcdError::NoResponse { .. }) = result {
            self.advance_member(&self.current_member, at);
        }
        result
    }

    /// Advances `index` from the member `from` to the next one, unless another call has already advanced it.
    fn advance_member(&self, index: &AtomicUsize, from: usize) {
        let next = (from + 1) % self.members.len();
        let _ = index.compare_exchange(from, next, Ordering::Relaxed, Ordering::Relaxed);
    }
}

impl EtcdApi for EtcdClient {
    /// Fails if no member responds, or if a member that responds has an unsupported version.
    /// [`EtcdClient::accept_any_version`] allows unsupported versions.
    async fn check(&self) -> Result<(), EtcdError> {
        let versions = self.versions().await;
        if versions.iter().all(|(_, version)| version.is_err())
            && let Some((url, Err(error))) = versions.first()
        {
            let why = format!("no member responds, so check that etcd runs; {url}: {error}");
            return Err(EtcdError::NoResponse { why });
        }
        for (url, version) in versions {
            match version {
                Ok(version) if !version.is_supported() && !self.accepts_any_version => {
                    return Err(EtcdError::Version {
                        why: format!(
                            "{url} runs etcd {version}, which can lose watch events: upgrade it to 3.5.28, 3.6.9 or \
                             later, or accept it for tests with --etcd-any-version"
                        ),
                    });
                }
                Ok(version) => tracing::info!(url, %version, "connected to etcd"),
                Err(error) => tracing::warn!(url, %error, "a member of etcd does not respond"),
            }
        }
        Ok(())
    }

    async fn range(&self, request: RangeRequest) -> Result<RangeResponse, EtcdError> {
        let mut tries = self.members.len();
        loop {
            let request = request.clone();
            let result = self
                .call(async |channel| {
                    KvClient::new(channel).max_decoding_message_size(MESSAGE_BYTES_MAX).range(request).await
                })
                .await;
            tries -= 1;
            match result {
                Err(EtcdError::NoResponse { .. }) if 0 < tries => {}
                result => return result,
            }
        }
    }

    async fn txn(&self, request: TxnRequest) -> Result<TxnResponse, EtcdError> {
        self.call(async |channel| KvClient::new(channel).txn(request).await).await
    }

    async fn compact(&self, request: CompactionRequest) -> Result<(), EtcdError> {
        self.call(async |channel| KvClient::new(channel).compact(request).await).await.map(drop)
    }

    async fn watch(&self, request: WatchCreateRequest) -> Result<WatchStream, EtcdError> {
        let at = self.next_watch_member.load(Ordering::Relaxed);
        // The next watch is opened at another member: this one has ended by then.
        self.advance_member(&self.next_watch_member, at);
        let mut client =
            WatchClient::new(self.members[at].watch_channel()).max_decoding_message_size(MESSAGE_BYTES_MAX);
        let create = WatchRequest { request_union: Some(RequestUnion::CreateRequest(request)) };
        // etcd ends the watch when the stream of requests ends, so it stays open.
        let requests = futures::stream::iter([create]).chain(futures::stream::pending());
        let mut request = Request::new(requests);
        // etcd ends the watch when the member has no leader. Without this a watch is silent then.
        request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
        let responses = with_timeout(client.watch(request)).await?;
        Ok(Box::pin(responses.map(|it| it.map_err(|status| EtcdError::from_status(&status)))))
    }
}

/// Waits for the response to a call, at most [`CALL_TIMEOUT`].
async fn with_timeout<T>(
    call: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>,
) -> Result<T, EtcdError> {
    match tokio::time::timeout(CALL_TIMEOUT, call).await {
        Ok(Ok(response)) => Ok(response.into_inner()),
        Ok(Err(status)) => Err(EtcdError::from_status(&status)),
        Err(_) => {
            Err(EtcdError::NoResponse { why: format!("no response within {} ms", CALL_TIMEOUT.as_millis()) })
        }
    }
}

impl Member {
    fn new(url: &str, tls: Option<&ClientTls>) -> Result<Self, ClientError> {
        let invalid = |why| ClientError::Url { url: url.to_owned(), why };
        let uri: Uri = url.parse().map_err(|_| invalid("it cannot be parsed"))?;
        let tls = match (uri.scheme_str(), tls) {
            (Some("https"), Some(tls)) => Some(tls.clone()),
            (Some("https"), None) => return Err(invalid("https needs certificates")),
            (Some("http"), _) => None,
            _ => return Err(invalid("it begins with neither https:// nor http://")),
        };
        let host = uri.host().ok_or_else(|| invalid("it has no host"))?.to_owned();
        let port = uri.port_u16().unwrap_or(2379);
        let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned())
            .map_err(|_| invalid("its host is not a DNS name or an IP address"))?;
        // The connector adds TLS, so the scheme that tonic sees is always http.
        let endpoint = Endpoint::from_shared(format!("http://{host}:{port}"))
            .map_err(|_| invalid("it cannot be parsed"))?
            .connect_timeout(CONNECT_TIMEOUT)
            .http2_keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_INTERVAL)
            .keep_alive_while_idle(true)
            .http2_adaptive_window(true);
        Ok(Self {
            url: url.to_owned(),
            endpoint,
            address: (host, port),
            name,
            tls,
            call_channel: OnceLock::new(),
            watch_channel: OnceLock::new(),
        })
    }

    /// Returns the connection for calls.
    fn call_channel(&self) -> Channel {
        self.call_channel.get_or_init(|| self.channel()).clone()
    }

    /// Returns the connection for watches.
    fn watch_channel(&self) -> Channel {
        self.watch_channel.get_or_init(|| self.channel()).clone()
    }

    /// Returns a channel that connects with its first call, and again after the connection has failed.
    fn channel(&self) -> Channel {
        let (tls, name, address) = (self.tls.clone(), self.name.clone(), self.address.clone());
        self.endpoint.connect_with_connector_lazy(tower::service_fn(move |_: Uri| {
            let (tls, name, address) = (tls.clone(), name.clone(), address.clone());
            async move { connect(address, tls, name).await.map(TokioIo::new) }
        }))
    }
}

/// A connection to a member.
type Connection = Box<dyn ReadWrite>;

/// A stream of bytes in both directions, with or without TLS.
trait ReadWrite: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin {}
impl<T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin> ReadWrite for T {}

/// Connects to a member.
async fn connect(
    (host, port): (String, u16),
    tls: Option<ClientTls>,
    name: ServerName<'static>,
) -> std::io::Result<Connection> {
    let stream = TcpStream::connect((host.trim_matches(['[', ']']), port)).await?;
    stream.set_nodelay(true)?;
    Ok(match tls {
        Some(tls) => Box::new(TlsConnector::from(tls.0).connect(name, stream).await?),
        None => Box::new(stream),
    })
}

impl EtcdVersion {
    /// Parses a version such as `3.5.28`. A suffix such as `-rc.0` is ignored. Returns `None` if the text does not
    /// begin with three numbers.
    pub fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split(['.', '-', '+']).map(|it| it.parse().ok());
        Some(Self { major: numbers.next()??, minor: numbers.next()??, patch: numbers.next()?? })
    }

    /// Whether this version is supported: 3.5.28 or a later 3.5, 3.6.9 or a later 3.6, or any version from 3.7. Older
    /// versions lose watch events or answer reads with stale data.
    pub fn is_supported(self) -> bool {
        match (self.major, self.minor) {
            (3, 5) => 28 <= self.patch,
            (3, 6) => 9 <= self.patch,
            (3, minor) => 7 <= minor,
            (major, _) => 3 < major,
        }
    }
}

impl fmt::Display for EtcdVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

impl fmt::Debug for EtcdClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.members.iter().map(|it| &it.url)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_with_known_bugs_are_not_supported() {
        let is_supported = |text: &str| EtcdVersion::parse(text).unwrap().is_supported();
        for text in ["3.4.23", "3.5.27", "3.6.8", "2.3.8"] {
            assert!(!is_supported(text), "{text}");
        }
        for text in ["3.5.28", "3.6.9", "3.7.0-rc.1", "4.0.0"] {
            assert!(is_supported(text), "{text}");
        }
        assert_eq!(EtcdVersion::parse("latest"), None);
    }
}
