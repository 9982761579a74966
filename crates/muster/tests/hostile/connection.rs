//! Raw connections to the server: TLS, and HTTP/1 or HTTP/2 on top of it, with control over every frame that a client library
//! would send by itself.

use std::path::Path;
use std::sync::Arc;

use base64::{Engine as _, prelude::BASE64_STANDARD as BASE64};
use bytes::Bytes;
use h2::client::SendRequest;
use http::{Request, StatusCode};
use kube::config::Kubeconfig;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Where the server is, and how to recognize it.
#[derive(Debug, Clone)]
pub(crate) struct Endpoint {
    pub(crate) url: String,
    pub(crate) ca_pem: Vec<u8>,
}

/// What a client authenticates with.
#[derive(Debug, Clone)]
pub(crate) enum Credential {
    None,
    Token(String),
    Certificate { certificate_pem: String, key_pem: String },
}

impl Endpoint {
    pub(crate) fn of(kubeconfig: &Path) -> Self {
        let kubeconfig = Kubeconfig::read_from(kubeconfig).expect("a kubeconfig");
        let cluster = kubeconfig.clusters[0].cluster.clone().expect("a cluster");
        let ca = cluster.certificate_authority_data.expect("a CA");
        Self { url: cluster.server.expect("a server"), ca_pem: BASE64.decode(ca).expect("base64") }
    }

    pub(crate) fn address(&self) -> &str {
        self.url.strip_prefix("https://").expect("an https URL")
    }

    pub(crate) async fn tcp(&self) -> Result<TcpStream, Failure> {
        Ok(TcpStream::connect(self.address()).await?)
    }

    pub(crate) async fn tls(
        &self,
        credential: &Credential,
        alpn: &[u8],
    ) -> Result<TlsStream<TcpStream>, Failure> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(&self.ca_pem) {
            roots.add(certificate?)?;
        }
        let config = ClientConfig::builder().with_root_certificates(roots);
        let mut config = match credential {
            Credential::Certificate { certificate_pem, key_pem } => {
                let chain =
                    CertificateDer::pem_slice_iter(certificate_pem.as_bytes()).collect::<Result<_, _>>()?;
                config.with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(key_pem.as_bytes())?)?
            }
            Credential::None | Credential::Token(_) => config.with_no_client_auth(),
        };
        config.alpn_protocols = vec![alpn.to_vec()];
        let name = ServerName::try_from("localhost")?;
        Ok(TlsConnector::from(Arc::new(config)).connect(name, self.tcp().await?).await?)
    }

    /// An HTTP/2 connection whose streams begin with this window.
    pub(crate) async fn http2(&self, credential: &Credential, window: u32) -> Result<Http2, Failure> {
        let stream = self.tls(credential, b"h2").await?;
        let (sender, connection) =
            h2::client::Builder::new().initial_window_size(window).handshake(stream).await?;
        let driver = tokio::spawn(async move {
            let _ = connection.await;
        });
        Ok(Http2 { sender, token: token(credential), driver })
    }

    /// Sends these bytes over HTTP/1, after a TLS handshake, and returns what comes back within a second.
    pub(crate) async fn http1(&self, credential: &Credential, bytes: &[u8]) -> Result<Vec<u8>, Failure> {
        let mut stream = self.tls(credential, b"http/1.1").await?;
        stream.write_all(bytes).await?;
        let mut answer = Vec::new();
        let mut buffer = [0; 4096];
        let reading = async {
            while answer.len() < 1 << 20 {
                match stream.read(&mut buffer).await {
                    Ok(0) | Err(_) => break,
                    Ok(count) => answer.extend_from_slice(&buffer[..count]),
                }
            }
        };
        let _ = tokio::time::timeout(std::time::Duration::from_secs(1), reading).await;
        Ok(answer)
    }
}

pub(crate) fn token(credential: &Credential) -> Option<String> {
    match credential {
        Credential::Token(token) => Some(token.clone()),
        Credential::None | Credential::Certificate { .. } => None,
    }
}

/// The client side of an HTTP/2 connection. Dropping it closes the connection.
pub(crate) struct Http2 {
    pub(crate) sender: SendRequest<Bytes>,
    token: Option<String>,
    driver: tokio::task::JoinHandle<()>,
}

impl Drop for Http2 {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Http2 {
    pub(crate) fn request(&self, method: &str, path: &str) -> http::request::Builder {
        let mut request = Request::builder().method(method).uri(format!("https://localhost{path}"));
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        request.header("content-type", "application/json")
    }

    /// Sends a request and waits for its status; of the body it reads at most `READ_MAX` bytes.
    pub(crate) async fn send(
        &mut self,
        request: Request<()>,
        body: Bytes,
    ) -> Result<(StatusCode, Bytes), Failure> {
        const READ_MAX: usize = 4 << 20;
        self.sender = self.sender.clone().ready().await?;
        let (response, mut stream) = self.sender.send_request(request, body.is_empty())?;
        if !body.is_empty() {
            send_body(&mut stream, body).await?;
        }
        let response = response.await?;
        let status = response.status();
        let mut incoming = response.into_body();
        let mut read = Vec::new();
        while let Some(piece) = incoming.data().await {
            let piece = piece?;
            incoming.flow_control().release_capacity(piece.len())?;
            read.extend_from_slice(&piece);
            if READ_MAX < read.len() {
                break;
            }
        }
        Ok((status, read.into()))
    }
}

async fn send_body(stream: &mut h2::SendStream<Bytes>, mut body: Bytes) -> Result<(), Failure> {
    while !body.is_empty() {
        stream.reserve_capacity(body.len());
        let Some(capacity) = std::future::poll_fn(|context| stream.poll_capacity(context)).await else {
            return Err("the stream was reset".into());
        };
        let piece = body.split_to(capacity?.min(body.len()));
        stream.send_data(piece, body.is_empty())?;
    }
    Ok(())
}
