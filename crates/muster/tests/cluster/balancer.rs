//! A balancer that sends every HTTP request to another server.
//!
//! A balancer of TCP connections would send all requests of a client to one server, and a missing read barrier would go
//! unnoticed. So this one terminates TLS, and has a connection to every server for each connection of a client.
//!
//! The servers authenticate the clients themselves. The balancer has the key of the cluster CA. For a client certificate
//! it issues a copy with the same subject, serial number, validity and extensions, but with a key of its own, and sends
//! the copy to the servers. Tokens and impersonation headers are forwarded as they are.
//!
//! A client sees these differences from a direct connection:
//!
//! - The balancer refuses certificates of other CAs and expired ones, with the same verifier as a server.
//! - `authentication.kubernetes.io/credential-id` is the digest of the copy.
//! - If a server cannot be reached or closes the connection, the balancer closes the connection of the client.
//! - Servers limit the connections and HTTP/2 streams of the balancer, and the balancer has its own limits of headers.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{fs, io};

use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, server};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{CertificateParams, DnType, Issuer, KeyPair, PublicKeyData as _, SigningKey as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::Mutex;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Common name of the cluster CA.
const CA_NAME: &str = "muster-ca";

/// Maximum size of the headers of a request in bytes. Servers have smaller limits.
const HEADER_BYTES_MAX: u32 = 16 << 20;

/// The balancer. It stops on drop, and closes all connections.
pub(crate) struct Balancer {
    address: SocketAddr,
    /// `None` only while the balancer is dropped.
    runtime: Option<Runtime>,
}

impl Balancer {
    /// Starts a balancer that listens at `ip`, for servers at these addresses. `data_dir` is the data directory of one
    /// of the servers.
    pub(crate) fn start(ip: IpAddr, servers: &[SocketAddr], data_dir: &Path) -> Self {
        let authority = Arc::new(Authority::open(data_dir));
        let acceptor = TlsAcceptor::from(Arc::new(authority.server_config(ip)));
        let listener = std::net::TcpListener::bind((ip, 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let backends = Arc::new(Backends { addresses: servers.to_vec(), requests: AtomicUsize::new(0) });
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        runtime.spawn(async move {
            let listener = TcpListener::from_std(listener).unwrap();
            loop {
                let Ok((stream, _)) = listener.accept().await else { continue };
                let (acceptor, authority, backends) = (acceptor.clone(), authority.clone(), backends.clone());
                // A connection fails if the client or a server closes it, which is the client's to judge.
                tokio::spawn(async move { serve_client(stream, &acceptor, &authority, backends).await });
            }
        });
        Self { address, runtime: Some(runtime) }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // A test may run in a runtime of its own, in which this one must not be waited for.
            runtime.shutdown_background();
        }
    }
}

/// The servers, and the number of requests so far.
struct Backends {
    addresses: Vec<SocketAddr>,
    requests: AtomicUsize,
}

/// Serves one connection of a client.
async fn serve_client(
    stream: TcpStream,
    acceptor: &TlsAcceptor,
    authority: &Authority,
    backends: Arc<Backends>,
) -> Result<(), Failure> {
    stream.set_nodelay(true)?;
    let stream = acceptor.accept(stream).await?;
    let session = stream.get_ref().1;
    let is_http2 = session.alpn_protocol() == Some(b"h2");
    let certificate = session.peer_certificates().and_then(<[_]>::first);
    let connection = Arc::new(ClientConnection {
        tls: TlsConnector::from(Arc::new(authority.client_config(certificate, is_http2)?)),
        is_http2,
        upstreams: backends.addresses.iter().map(|_| Mutex::default()).collect(),
        last: AtomicUsize::new(usize::MAX),
        backends,
    });
    let service = service_fn(move |request| {
        let connection = connection.clone();
        async move { connection.forward(request).await.map_err(io::Error::other) }
    });
    let stream = TokioIo::new(stream);
    if is_http2 {
        let mut http2 = server::conn::http2::Builder::new(TokioExecutor::new());
        http2.max_header_list_size(HEADER_BYTES_MAX).serve_connection(stream, service).await?;
    } else {
        let mut http1 = server::conn::http1::Builder::new();
        http1.max_buf_size(HEADER_BYTES_MAX as usize);
        http1.serve_connection(stream, service).with_upgrades().await?;
    }
    Ok(())
}

/// A connection of a client, with its connections to the servers.
struct ClientConnection {
    tls: TlsConnector,
    is_http2: bool,
    /// The connection to each server. `None` until the first request to this server.
    upstreams: Vec<Mutex<Option<Upstream>>>,
    /// The server that got the last request of this client.
    last: AtomicUsize,
    backends: Arc<Backends>,
}

/// A connection to a server.
enum Upstream {
    Http1(http1::SendRequest<Incoming>),
    Http2(http2::SendRequest<Incoming>),
}

impl ClientConnection {
    /// Sends a request to the next server, and returns its response.
    async fn forward(&self, mut request: Request<Incoming>) -> Result<Response<Incoming>, Failure> {
        let server = self.next_server();
        let from_client = hyper::upgrade::on(&mut request);
        let mut upstream = self.upstreams[server].lock().await;
        if upstream.as_ref().is_none_or(Upstream::is_closed) {
            *upstream = Some(self.connect(self.backends.addresses[server]).await?);
        }
        let mut response = match upstream.as_mut().expect("it is connected") {
            // A client sends its requests over HTTP/1.1 one after the other.
            Upstream::Http1(sender) => {
                sender.ready().await?;
                sender.send_request(request).await?
            }
            Upstream::Http2(sender) => {
                let mut sender = sender.clone();
                drop(upstream);
                sender.ready().await?;
                sender.send_request(request).await?
            }
        };
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let to_server = hyper::upgrade::on(&mut response);
            tokio::spawn(async move {
                let (client, server) = (from_client.await?, to_server.await?);
                let (mut client, mut server) = (TokioIo::new(client), TokioIo::new(server));
                tokio::io::copy_bidirectional(&mut client, &mut server).await?;
                Ok::<_, Failure>(())
            });
        }
        Ok(response)
    }

    /// Returns the server for the next request. The requests of all clients take turns, but a client does not get the
    /// same server twice in a row.
    fn next_server(&self) -> usize {
        let count = self.backends.addresses.len();
        let turn = self.backends.requests.fetch_add(1, Ordering::Relaxed) % count;
        let last = self.last.load(Ordering::Relaxed);
        let next = if turn == last { (turn + 1) % count } else { turn };
        self.last.store(next, Ordering::Relaxed);
        next
    }

    async fn connect(&self, address: SocketAddr) -> Result<Upstream, Failure> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let stream = TokioIo::new(self.tls.connect(ServerName::from(address.ip()), stream).await?);
        if self.is_http2 {
            let (sender, connection) = http2::handshake(TokioExecutor::new(), stream).await?;
            tokio::spawn(connection);
            return Ok(Upstream::Http2(sender));
        }
        let (sender, connection) = http1::handshake(stream).await?;
        tokio::spawn(connection.with_upgrades());
        Ok(Upstream::Http1(sender))
    }
}

impl Upstream {
    fn is_closed(&self) -> bool {
        match self {
            Self::Http1(sender) => sender.is_closed(),
            Self::Http2(sender) => sender.is_closed(),
        }
    }
}

/// The cluster CA, with its key.
struct Authority {
    certificate: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
    roots: Arc<RootCertStore>,
}

impl Authority {
    fn open(data_dir: &Path) -> Self {
        let read = |name: &str| fs::read_to_string(data_dir.join(name)).unwrap();
        let certificate = CertificateDer::from_pem_slice(read("ca.crt").as_bytes()).unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, CA_NAME);
        let issuer = Issuer::new(params, KeyPair::from_pem(&read("ca.key")).unwrap());
        let mut roots = RootCertStore::empty();
        roots.add(certificate.clone()).unwrap();
        Self { certificate, issuer, roots: Arc::new(roots) }
    }

    /// Returns the TLS configuration for clients, with a serving certificate for `ip`. Like a server, it requires that
    /// a client certificate is of the cluster CA.
    fn server_config(&self, ip: IpAddr) -> ServerConfig {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![ip.to_string(), "localhost".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let clients =
            WebPkiClientVerifier::builder(self.roots.clone()).allow_unauthenticated().build().unwrap();
        let chain = vec![certificate.der().clone(), self.certificate.clone()];
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let mut config =
            ServerConfig::builder().with_client_cert_verifier(clients).with_single_cert(chain, key).unwrap();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        config
    }

    /// Returns the TLS configuration for connections to the servers, with a copy of the certificate of the client.
    fn client_config(
        &self,
        certificate: Option<&CertificateDer<'_>>,
        is_http2: bool,
    ) -> Result<ClientConfig, Failure> {
        let config = ClientConfig::builder().with_root_certificates(self.roots.clone());
        let mut config = match certificate {
            None => config.with_no_client_auth(),
            Some(certificate) => {
                let key = KeyPair::generate()?;
                let copy = copy_with_key(certificate, &key, self.issuer.key())?;
                let key = PrivateKeyDer::try_from(key.serialize_der())?;
                config.with_client_auth_cert(vec![copy], key)?
            }
        };
        config.alpn_protocols = vec![if is_http2 { b"h2".to_vec() } else { b"http/1.1".to_vec() }];
        Ok(config)
    }
}

/// Returns a copy of a certificate with the public key of `key`, signed with `ca_key`.
///
/// A certificate is a sequence of its contents, the signature algorithm and the signature. The contents begin with the
/// version, serial number, signature algorithm, issuer, validity and subject. The public key follows.
fn copy_with_key(
    certificate: &[u8],
    key: &KeyPair,
    ca_key: &KeyPair,
) -> Result<CertificateDer<'static>, Failure> {
    let (certificate, _) = split_element(certificate)?;
    let (contents, rest) = split_element(element_value(certificate)?)?;
    let (algorithm, _) = split_element(rest)?;
    let fields = element_value(contents)?;
    let mut rest = fields;
    for _ in 0..6 {
        rest = split_element(rest)?.1;
    }
    let before_key = &fields[..fields.len() - rest.len()];
    let (_, after_key) = split_element(rest)?;
    let contents = element(SEQUENCE, &[before_key, &key.subject_public_key_info(), after_key].concat());
    // A bit string begins with the number of unused bits.
    let signature = [&[0][..], &ca_key.sign(&contents)?].concat();
    let copy = [&contents, algorithm, &element(BIT_STRING, &signature)].concat();
    Ok(CertificateDer::from(element(SEQUENCE, &copy)))
}

/// Tags of DER elements.
const SEQUENCE: u8 = 0x30;
const BIT_STRING: u8 = 0x03;

/// Encodes a DER element: its tag, the length of its value, and the value.
fn element(tag: u8, value: &[u8]) -> Vec<u8> {
    let length = value.len().to_be_bytes();
    let length = &length[length.iter().take_while(|it| **it == 0).count()..];
    let header = match value.len() {
        short @ ..0x80 => vec![tag, short as u8],
        _ => [&[tag, 0x80 | length.len() as u8], length].concat(),
    };
    [&header, value].concat()
}

/// Returns the length of the header of the first DER element in `bytes`, and the length of its value.
fn element_lengths(bytes: &[u8]) -> Result<(usize, usize), Failure> {
    match *bytes {
        [_, short @ ..0x80, ..] => Ok((2, usize::from(short))),
        [_, long, ref rest @ ..] if usize::from(long & 0x7f) <= rest.len().min(4) => {
            let count = usize::from(long & 0x7f);
            Ok((2 + count, rest[..count].iter().fold(0, |sum, it| sum << 8 | usize::from(*it))))
        }
        _ => Err(truncated()),
    }
}

/// Splits the first DER element off.
fn split_element(bytes: &[u8]) -> Result<(&[u8], &[u8]), Failure> {
    let (header, value) = element_lengths(bytes)?;
    bytes.split_at_checked(header + value).ok_or_else(truncated)
}

/// Returns the value of a DER element.
fn element_value(element: &[u8]) -> Result<&[u8], Failure> {
    Ok(&element[element_lengths(element)?.0..])
}

fn truncated() -> Failure {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the certificate is truncated").into()
}
