//! The gRPC client of an etcd cluster.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::StreamExt as _;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tonic::Request;
use tonic::metadata::MetadataValue;
use tonic::transport::{Channel, Endpoint, Uri};

use crate::api::{EtcdApi, EtcdError, WatchStream};
use crate::member_pool::{EtcdMember, MemberPool};
use crate::proto::kv_client::KvClient;
use crate::proto::maintenance_client::MaintenanceClient;
use crate::proto::watch_client::WatchClient;
use crate::proto::watch_request::RequestUnion;
use crate::proto::{
    CompactionRequest, CompactionResponse, RangeRequest, RangeResponse, StatusRequest, StatusResponse,
    TxnRequest, TxnResponse, WatchCreateRequest, WatchRequest,
};

/// Maximum time to connect to a member.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Timeout of one call. Two attempts take 3.8 s, which is less than the 4 s after which the driver gives up on a
/// commit.
const CALL_TIMEOUT: Duration = Duration::from_millis(1900);
/// Interval of HTTP/2 pings while a call or a watch is open. If a ping gets no response, the connection is closed, so
/// that a watch does not wait for a member that hangs. A call does not need the pings, because it fails after
/// [`CALL_TIMEOUT`].
///
/// Rule: etcd closes a connection with GOAWAY (`too_many_pings`) at the third ping that comes too early. A ping comes
/// too early if it is sent within 5 s of the previous one (`--grpc-keepalive-min-time`), or within 2 hours while no
/// call or watch is open. So a connection without an open call or watch gets no pings. Upstream:
/// `DefaultGRPCKeepAliveMinTime` and `http2Server.handlePing`.
const PING_INTERVAL: Duration = Duration::from_secs(10);
/// Maximum time for the response to a ping.
const PING_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum size in bytes of the response to a range request, and of one response of a watch.
const MESSAGE_BYTES_MAX: usize = 1 << 30;

/// The TLS configuration of the connections to etcd: the CA of etcd's certificates, and the client certificate with its
/// key.
#[derive(Debug, Clone)]
pub struct ClientTls(Arc<ClientConfig>);

/// The client of an etcd cluster. All calls go to the same member until that member does not respond or cannot serve
/// requests. Later calls go to the next member. Each new watch is opened at another member than the previous watch, if
/// another member is usable.
#[derive(Clone)]
pub struct EtcdClient(MemberPool<Member>);

/// One member of the etcd cluster.
struct Member {
    url: String,
    endpoint: Endpoint,
    /// Host and port to connect to. An IPv6 address is in brackets.
    address: (String, u16),
    name: ServerName<'static>,
    tls: Option<ClientTls>,
    /// The connection for calls. The first call opens it, because a connection belongs to the Tokio runtime on which it
    /// was opened.
    call_channel: OnceLock<Channel>,
    /// The connection for watches. It is separate from the connection for calls, so that events that are not read yet
    /// do not block calls.
    watch_channel: OnceLock<Channel>,
    /// See [`EtcdMember::lost_connections`].
    lost_connections: Arc<AtomicU64>,
}

/// Why a client cannot be created from its options.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("{url} is not the URL of an etcd member, such as https://10.0.0.1:2379: {why}")]
    Url { url: String, why: &'static str },
    #[error("{url} is not on this machine, so it must use https")]
    Unencrypted { url: String },
    #[error("{what} {}", path.display())]
    Certificate {
        what: &'static str,
        path: std::path::PathBuf,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl ClientTls {
    /// Reads the CA of etcd's certificates, the client certificate and the private key of the client certificate from
    /// PEM files.
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
    ///
    /// Rule: a connection without TLS is allowed only to etcd on this machine, because etcd has every Secret and key.
    pub fn new(urls: &[String], tls: Option<&ClientTls>) -> Result<Self, ClientError> {
        let members: Vec<Member> = urls.iter().map(|it| Member::new(it, tls)).collect::<Result<_, _>>()?;
        Ok(Self(MemberPool::new(members)))
    }

    /// Returns a client that also accepts members of unsupported versions.
    #[must_use]
    pub fn accept_any_version(self) -> Self {
        Self(self.0.accept_any_version())
    }
}

impl EtcdApi for EtcdClient {
    /// Fails if no member responds, if a member that responds has an unsupported version, or if two members belong to
    /// different etcd clusters. [`EtcdClient::accept_any_version`] allows unsupported versions.
    async fn check(&self) -> Result<(), EtcdError> {
        self.0.check().await
    }

    async fn range(&self, request: RangeRequest) -> Result<RangeResponse, EtcdError> {
        self.0.range(request).await
    }

    async fn txn(&self, request: TxnRequest) -> Result<TxnResponse, EtcdError> {
        self.0.txn(request).await
    }

    async fn compact(&self, request: CompactionRequest) -> Result<(), EtcdError> {
        self.0.compact(request).await
    }

    async fn watch(&self, request: WatchCreateRequest) -> Result<WatchStream, EtcdError> {
        self.0.watch(request).await
    }
}

impl EtcdMember for Member {
    fn url(&self) -> &str {
        &self.url
    }

    fn lost_connections(&self) -> u64 {
        self.lost_connections.load(Ordering::Acquire)
    }

    async fn status(&self) -> Result<StatusResponse, EtcdError> {
        with_timeout(MaintenanceClient::new(self.call_channel()).status(StatusRequest {})).await
    }

    async fn range(&self, request: RangeRequest) -> Result<RangeResponse, EtcdError> {
        let mut client = KvClient::new(self.call_channel()).max_decoding_message_size(MESSAGE_BYTES_MAX);
        with_timeout(client.range(request)).await
    }

    async fn txn(&self, request: TxnRequest) -> Result<TxnResponse, EtcdError> {
        with_timeout(KvClient::new(self.call_channel()).txn(request)).await
    }

    async fn compact(&self, request: CompactionRequest) -> Result<CompactionResponse, EtcdError> {
        with_timeout(KvClient::new(self.call_channel()).compact(request)).await
    }

    async fn watch(&self, request: WatchCreateRequest) -> Result<WatchStream, EtcdError> {
        let mut client = WatchClient::new(self.watch_channel()).max_decoding_message_size(MESSAGE_BYTES_MAX);
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
        let host = uri.host().ok_or_else(|| invalid("it has no host"))?.to_owned();
        let tls = match (uri.scheme_str(), tls) {
            (Some("https"), Some(tls)) => Some(tls.clone()),
            (Some("https"), None) => return Err(invalid("https needs certificates")),
            (Some("http"), _) if is_this_machine(&host) => None,
            (Some("http"), _) => return Err(ClientError::Unencrypted { url: url.to_owned() }),
            _ => return Err(invalid("it begins with neither https:// nor http://")),
        };
        let port = uri.port_u16().unwrap_or(2379);
        let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned())
            .map_err(|_| invalid("its host is not a DNS name or an IP address"))?;
        // The connector adds TLS, so the scheme that tonic sees is always http.
        let endpoint = Endpoint::from_shared(format!("http://{host}:{port}"))
            .map_err(|_| invalid("it cannot be parsed"))?
            .connect_timeout(CONNECT_TIMEOUT)
            .http2_keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT)
            .keep_alive_while_idle(false)
            .http2_adaptive_window(true);
        Ok(Self {
            url: url.to_owned(),
            endpoint,
            address: (host, port),
            name,
            tls,
            call_channel: OnceLock::new(),
            watch_channel: OnceLock::new(),
            lost_connections: Arc::default(),
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

    /// Returns a channel that connects when its first call is made, and connects again after the connection has failed.
    fn channel(&self) -> Channel {
        let (tls, name, address) = (self.tls.clone(), self.name.clone(), self.address.clone());
        let lost_connections = self.lost_connections.clone();
        self.endpoint.connect_with_connector_lazy(tower::service_fn(move |_: Uri| {
            let (tls, name, address) = (tls.clone(), name.clone(), address.clone());
            let lost_connections = lost_connections.clone();
            async move {
                let stream = connect(address, tls, name).await?;
                Ok::<_, io::Error>(TokioIo::new(Connection { stream, lost_connections }))
            }
        }))
    }
}

/// Whether the host of a URL is `localhost` or a loopback address. An IPv6 address is in brackets.
fn is_this_machine(host: &str) -> bool {
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|it| it.is_loopback())
}

/// A connection to a member. It counts as lost when it is dropped: tonic drops it at once when the member closes it.
struct Connection {
    stream: Box<dyn ReadWrite>,
    lost_connections: Arc<AtomicU64>,
}

/// A stream of bytes in both directions, with or without TLS.
trait ReadWrite: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> ReadWrite for T {}

impl Drop for Connection {
    fn drop(&mut self) {
        self.lost_connections.fetch_add(1, Ordering::AcqRel);
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Connects to a member.
async fn connect(
    (host, port): (String, u16),
    tls: Option<ClientTls>,
    name: ServerName<'static>,
) -> io::Result<Box<dyn ReadWrite>> {
    let stream = TcpStream::connect((host.trim_matches(['[', ']']), port)).await?;
    stream.set_nodelay(true)?;
    Ok(match tls {
        Some(tls) => Box::new(TlsConnector::from(tls.0).connect(name, stream).await?),
        None => Box::new(stream),
    })
}

impl fmt::Debug for EtcdClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Mutex;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio::time::Instant;

    use super::*;

    /// A connection as a member sees it.
    #[derive(Default)]
    struct MemberConnection {
        /// Whether the member answers calls.
        answers_calls: bool,
        /// Whether the member sends nothing at all.
        hangs: bool,
        open_streams: HashSet<[u8; 4]>,
        pings: usize,
        last_ping: Option<Instant>,
        /// Whether the member has answered a call since the last ping.
        has_answered: bool,
        /// The pings that the member does not allow.
        strikes: usize,
    }

    impl MemberConnection {
        /// Upstream: `http2Server.handlePing`, with the defaults of etcd.
        fn judge_ping(&mut self) {
            let interval_min = Duration::from_secs(if self.open_streams.is_empty() { 7_200 } else { 5 });
            let is_early = self.last_ping.is_some_and(|it| it.elapsed() < interval_min);
            if is_early && !self.has_answered {
                self.strikes += 1;
            }
            (self.has_answered, self.last_ping) = (false, Some(Instant::now()));
            self.pings += 1;
        }
    }

    /// Serves a connection, and answers all calls with an error.
    async fn serve_frames(mut stream: impl ReadWrite, connection: Arc<Mutex<MemberConnection>>) {
        const PREFACE_BYTES: usize = 24;
        const HEADERS: u8 = 1;
        const RST_STREAM: u8 = 3;
        const SETTINGS: u8 = 4;
        const PING: u8 = 6;
        const ACK: u8 = 1;
        const END_STREAM_AND_HEADERS: u8 = 5;
        // `:status: 200`, and two fields without an index.
        const UNAVAILABLE: &[u8] = b"\x88\x00\x0ccontent-type\x10application/grpc\x00\x0bgrpc-status\x0214";
        let frame = |kind: u8, flags: u8, stream: [u8; 4], payload: &[u8]| {
            let bytes = u8::try_from(payload.len()).unwrap();
            [&[0, 0, bytes, kind, flags], &stream[..], payload].concat()
        };
        stream.read_exact(&mut [0; PREFACE_BYTES]).await.unwrap();
        stream.write_all(&frame(SETTINGS, 0, [0; 4], &[])).await.unwrap();
        let mut header = [0; 9];
        while stream.read_exact(&mut header).await.is_ok() {
            let mut payload = vec![0; u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize];
            stream.read_exact(&mut payload).await.unwrap();
            let id: [u8; 4] = header[5..].try_into().unwrap();
            let answer = {
                let mut connection = connection.lock().unwrap();
                let answer = match (header[3], header[4] & ACK) {
                    (SETTINGS, 0) => Some(frame(SETTINGS, ACK, id, &[])),
                    (PING, 0) => {
                        connection.judge_ping();
                        Some(frame(PING, ACK, id, &payload))
                    }
                    (HEADERS, _) if connection.answers_calls => {
                        connection.has_answered = true;
                        Some(frame(HEADERS, END_STREAM_AND_HEADERS, id, UNAVAILABLE))
                    }
                    (HEADERS, _) => {
                        connection.open_streams.insert(id);
                        None
                    }
                    (RST_STREAM, _) => {
                        connection.open_streams.remove(&id);
                        None
                    }
                    _ => None,
                };
                answer.filter(|_| !connection.hangs)
            };
            if let Some(answer) = answer {
                stream.write_all(&answer).await.unwrap();
            }
        }
    }

    #[test]
    fn only_this_machine_is_reached_without_tls() {
        let is_accepted = |url: &str| match Member::new(url, None) {
            Ok(_) => true,
            Err(ClientError::Unencrypted { .. }) => false,
            Err(error) => panic!("{error}"),
        };
        for local in [
            "http://127.0.0.1:2379",
            "http://localhost:2379",
            "http://[::1]:2379",
            "http://127.1.2.3",
            "http://[::1]",
            "http://localhost",
            "HTTP://127.0.0.1:2379",
            "http://LOCALHOST:2379/",
        ] {
            assert!(is_accepted(local), "{local}");
        }
        for remote in [
            "http://10.0.0.1:2379",
            "http://etcd.example.com:2379",
            "http://[fd00::1]:2379",
            "http://[fd00::1]",
            "HTTP://10.0.0.1:2379",
            "Http://10.0.0.1",
            "http://localhost.example.com:2379",
            "http://127.0.0.1:2379@10.0.0.1:2379",
            "http://10.0.0.1:2379/127.0.0.1",
        ] {
            assert!(!is_accepted(remote), "{remote}");
        }
        let without_certificates = ["https://10.0.0.1:2379", "HTTPS://127.0.0.1:2379"];
        for url in without_certificates {
            let error = Member::new(url, None).err().unwrap().to_string();
            assert!(error.ends_with("https needs certificates"), "{error}");
        }
        for invalid in ["http://", "http:///", "10.0.0.1:2379", "ftp://127.0.0.1", "etcd"] {
            assert!(matches!(Member::new(invalid, None), Err(ClientError::Url { .. })), "{invalid}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn etcd_accepts_the_pings_and_a_member_that_hangs_is_noticed() {
        let connection = Arc::<Mutex<MemberConnection>>::default();
        let served = connection.clone();
        let state = || connection.lock().unwrap();
        let endpoint = Member::new("http://127.0.0.1", None).unwrap().endpoint;
        let channel = endpoint.connect_with_connector_lazy(tower::service_fn(move |_: Uri| {
            let (client, server) = tokio::io::duplex(1 << 16);
            tokio::spawn(serve_frames(server, served.clone()));
            std::future::ready(Ok::<_, std::io::Error>(TokioIo::new(client)))
        }));
        let call = async || MaintenanceClient::new(channel.clone()).status(StatusRequest {}).await;
        // Calls with pauses between them.
        state().answers_calls = true;
        for pause_s in [0, 1, 7, 30, 120] {
            assert_eq!(call().await.unwrap_err().code(), tonic::Code::Unavailable);
            tokio::time::sleep(Duration::from_secs(pause_s)).await;
        }
        assert_eq!(state().strikes, 0);
        // A call that stays open, as a watch does.
        state().answers_calls = false;
        let before = state().pings;
        assert!(tokio::time::timeout(Duration::from_secs(300), call()).await.is_err());
        let pings = state().pings - before;
        let strikes = state().strikes;
        assert!(20 < pings && strikes == 0, "{pings} pings, {strikes} strikes");
        let hanging = async {
            tokio::time::sleep(Duration::from_secs(33)).await;
            state().hangs = true;
            Instant::now()
        };
        let (ended, since) = tokio::join!(call(), hanging);
        assert!(ended.is_err() && since.elapsed() < Duration::from_secs(20), "{:?}", since.elapsed());
    }
    /// A member is restarted while no call is open. The next call opens another connection without an error.
    #[tokio::test]
    async fn a_lost_connection_is_counted_before_the_next_call() {
        let listener = Arc::new(TcpListener::bind("127.0.0.1:0").await.unwrap());
        let member = Member::new(&format!("http://{}", listener.local_addr().unwrap()), None).unwrap();
        for restarts in 0..3 {
            let listener = listener.clone();
            let process = tokio::spawn(async move {
                let connection = MemberConnection { answers_calls: true, ..MemberConnection::default() };
                let (stream, _) = listener.accept().await.unwrap();
                serve_frames(stream, Arc::new(Mutex::new(connection))).await;
            });
            for _ in 0..3 {
                assert!(member.status().await.is_err());
                assert_eq!(member.lost_connections(), restarts);
            }
            process.abort();
            let lost = async {
                while member.lost_connections() == restarts {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            tokio::time::timeout(Duration::from_secs(20), lost).await.expect("the connection is dropped");
        }
    }
}
