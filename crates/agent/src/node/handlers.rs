//! Runs the handlers of a container: its probes (exec, HTTP, TCP and gRPC) and its lifecycle hooks (exec, HTTP and
//! sleep).

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Request, Uri, header};
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::{Container, HTTPGetAction, LifecycleHandler, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use muster_engine::kubelet::downward_api;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{ClientConfig, DigitallySignedStruct, Error as TlsError, SignatureScheme};
use tonic::transport::Endpoint;

use crate::runtime::{Runtime, RuntimeErrorKind};

/// Messages of the gRPC health checking protocol.
#[allow(unreachable_pub, missing_debug_implementations)]
mod health {
    tonic::include_proto!("grpc.health.v1");
}

/// Maximum number of bytes that are read from an HTTP response or from the output of a command. Upstream:
/// `maxRespBodyLength`.
const RESPONSE_BYTES_MAX: usize = 10 << 10;
/// Maximum number of requests of an HTTP probe or hook that follows redirects, including the first request.
const HTTP_REQUESTS_MAX: usize = 10;
/// Timeout of an exec hook, and maximum duration of a sleep hook. A hook normally ends when its container ends, so the
/// timeout only limits a hook that hangs.
const HOOK_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

/// Result of a probe that was run. A probe that could not be run has an error instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProbeResult {
    pub passed: bool,
    /// Why the probe failed. For a probe that passed, a warning or an empty string.
    pub message: String,
}

impl ProbeResult {
    fn success() -> Self {
        Self { passed: true, message: String::new() }
    }

    fn failure(message: impl Into<String>) -> Self {
        Self { passed: false, message: message.into() }
    }
}

/// Runs the handlers of one container instance: its probes and lifecycle hooks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HandlerRunner<'a, R> {
    pub runtime: &'a R,
    pub container: &'a Container,
    /// ID of the container in the runtime.
    pub id: &'a str,
    /// The pod's IP address. Empty while the address is unknown.
    pub address: &'a str,
}

impl<R: Runtime> HandlerRunner<'_, R> {
    /// Runs a probe with its timeout. A probe that times out has failed. Returns an error if the probe cannot be run.
    pub(crate) async fn run_probe(&self, probe: &Probe) -> Result<ProbeResult, String> {
        let limit =
            Duration::from_secs(u64::try_from(probe.timeout_seconds.unwrap_or(1)).unwrap_or(1).max(1));
        if let Some(exec) = &probe.exec {
            return self.probe_command(exec.command.as_deref().unwrap_or_default(), limit).await;
        }
        let attempt = async {
            if let Some(get) = &probe.http_get {
                return self.probe_http(get).await;
            }
            if let Some(socket) = &probe.tcp_socket {
                let port = self.resolve_port(&socket.port)?;
                let host = socket.host.as_deref().filter(|it| !it.is_empty()).unwrap_or(self.address);
                return Ok(match TcpStream::connect((host, port)).await {
                    Ok(_) => ProbeResult::success(),
                    Err(error) => ProbeResult::failure(format!(
                        "dial tcp {}: {}",
                        host_and_port(host, port),
                        format_dial_error(&error)
                    )),
                });
            }
            if let Some(grpc) = &probe.grpc {
                let port =
                    u16::try_from(grpc.port).map_err(|_| format!("invalid port number: {}", grpc.port))?;
                return Ok(self.probe_grpc(port, grpc.service.as_deref().unwrap_or_default()).await);
            }
            Err("missing probe handler".to_owned())
        };
        match tokio::time::timeout(limit, attempt).await {
            Ok(answer) => answer,
            Err(_) => Ok(ProbeResult::failure(self.timeout_message(probe, limit))),
        }
    }

    /// Returns the message of a probe that timed out, as the kubelet words it.
    fn timeout_message(&self, probe: &Probe, limit: Duration) -> String {
        let seconds = limit.as_secs();
        if let Some(get) = &probe.http_get {
            let url = self.http_url(get).unwrap_or_default();
            return format!(
                "Get \"{url}\": context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
            );
        }
        if let Some(grpc) = &probe.grpc {
            let place = format!("{}:{}", self.address, grpc.port);
            return format!(
                "timeout: failed to connect service \"{place}\" within {seconds}s: context deadline exceeded"
            );
        }
        format!("dial tcp {}: i/o timeout", self.address)
    }

    /// Runs a lifecycle hook. `title` names the pod in error messages. Upstream: `HandlerRunner.Run`.
    pub(crate) async fn run_hook(&self, hook: &LifecycleHandler, title: &str) -> Result<(), String> {
        let name = &self.container.name;
        if let Some(exec) = &hook.exec {
            let command = exec.command.as_deref().unwrap_or_default();
            let failure_message = |error: &str, output: &str| {
                let command = command.join(" ");
                format!(
                    "Exec lifecycle hook ([{command}]) for Container {name:?} in Pod {title:?} failed - error: {error}, \
                     message: {output:?}"
                )
            };
            return match self.runtime.exec_sync(self.id, command, HOOK_TIMEOUT).await {
                Ok(answer) if answer.exit_code == 0 => Ok(()),
                Ok(answer) => {
                    let code = answer.exit_code;
                    let error = format!("command '{}' exited with {code}: ", command.join(" "));
                    Err(failure_message(&error, &combined_output(&answer.stdout, &answer.stderr)))
                }
                Err(error) => Err(failure_message(&error.message, "")),
            };
        }
        if let Some(get) = &hook.http_get {
            let path = get.path.as_deref().unwrap_or_default();
            // Any response counts as success.
            let outcome = self.get_following_redirects(get).await.map(drop);
            return outcome.map_err(|error| {
                format!("HTTP lifecycle hook ({path}) for Container {name:?} in Pod {title:?} failed - error: {error}")
            });
        }
        if let Some(sleep) = &hook.sleep {
            tokio::time::sleep(
                Duration::from_secs(u64::try_from(sleep.seconds).unwrap_or(0)).min(HOOK_TIMEOUT),
            )
            .await;
            return Ok(());
        }
        Err("Cannot run handler: invalid handler".to_owned())
    }

    /// Runs an exec probe. In the command, only references to environment variables with a literal value are expanded.
    async fn probe_command(&self, command: &[String], limit: Duration) -> Result<ProbeResult, String> {
        // Expands variables with literal values only: values from other sources are not stored.
        let lookup = |name: &str| {
            let own = self.container.env.iter().flatten().rev().find(|it| it.name == name)?;
            own.value.clone().filter(|_| own.value_from.is_none())
        };
        let command: Vec<String> =
            command.iter().map(|it| downward_api::expand_variables(it, lookup, &mut |_| {})).collect();
        match self.runtime.exec_sync(self.id, &command, limit).await {
            Ok(answer) if answer.exit_code == 0 => Ok(ProbeResult::success()),
            Ok(answer) => Ok(ProbeResult::failure(combined_output(&answer.stdout, &answer.stderr))),
            Err(error) if error.kind == RuntimeErrorKind::TimedOut => {
                let seconds = limit.as_secs();
                Ok(ProbeResult::failure(format!(
                    "command timed out: {:?} timed out after {seconds}s",
                    command.join(" ")
                )))
            }
            Err(error) => Err(error.message),
        }
    }

    /// Runs an HTTP probe, which passes with a status from 200 to 399.
    async fn probe_http(&self, get: &HTTPGetAction) -> Result<ProbeResult, String> {
        self.http_url(get)?;
        Ok(match self.get_following_redirects(get).await {
            Ok(HttpResponse { status: 200..300, .. }) => ProbeResult::success(),
            Ok(HttpResponse { status: 300..400, body, .. }) => {
                let body = String::from_utf8_lossy(&body);
                ProbeResult {
                    passed: true,
                    message: format!("Probe terminated redirects, Response body: {body}"),
                }
            }
            Ok(HttpResponse { status, .. }) => {
                ProbeResult::failure(format!("HTTP probe failed with statuscode: {status}"))
            }
            Err(error) => ProbeResult::failure(error),
        })
    }

    /// Builds the URL of an HTTP probe or hook.
    fn http_url(&self, get: &HTTPGetAction) -> Result<String, String> {
        let host = get.host.as_deref().filter(|it| !it.is_empty()).unwrap_or(self.address);
        let scheme = get.scheme.as_deref().unwrap_or("HTTP").to_lowercase();
        let path = get.path.as_deref().unwrap_or("/");
        let slash = if path.starts_with('/') { "" } else { "/" };
        Ok(format!("{scheme}://{}{slash}{path}", host_and_port(host, self.resolve_port(&get.port)?)))
    }

    /// Sends the request of an HTTP probe or hook, and follows redirects within the same host. Returns the final
    /// response. Fails after [`HTTP_REQUESTS_MAX`] requests.
    async fn get_following_redirects(&self, get: &HTTPGetAction) -> Result<HttpResponse, String> {
        let first = self.http_url(get)?;
        let failure_message = |url: &str, error: &dyn std::fmt::Display| format!("Get {url:?}: {error}");
        let mut url: Uri = first.parse().map_err(|error| failure_message(&first, &error))?;
        let host = url.host().unwrap_or_default().to_owned();
        for _ in 0..HTTP_REQUESTS_MAX {
            let fetched =
                send_get(get, &url).await.map_err(|error| failure_message(&url.to_string(), &error))?;
            let is_redirect = matches!(fetched.status, 301 | 302 | 303 | 307 | 308);
            let next =
                fetched.location.as_ref().filter(|_| is_redirect).and_then(|it| redirect_target(&url, it));
            match next {
                Some(next) if next.host() == Some(&host) => url = next,
                _ => return Ok(fetched),
            }
        }
        Err(failure_message(&first, &"stopped after 10 redirects"))
    }

    /// Runs a gRPC health check.
    async fn probe_grpc(&self, port: u16, service: &str) -> ProbeResult {
        let place = host_and_port(self.address, port);
        let endpoint = match Endpoint::from_shared(format!("http://{place}")) {
            Ok(endpoint) => endpoint,
            Err(error) => {
                return ProbeResult::failure(format!(
                    "error: failed to connect service at {place:?}: {error}"
                ));
            }
        };
        let channel = match endpoint.connect().await {
            Ok(channel) => channel,
            Err(error) => {
                return ProbeResult::failure(format!(
                    "error: failed to connect service at {place:?}: {error}"
                ));
            }
        };
        let mut client = health::health_client::HealthClient::new(channel);
        let request = health::HealthCheckRequest { service: service.to_owned() };
        match client.check(request).await {
            Ok(answer) => match answer.into_inner().status() {
                health::health_check_response::ServingStatus::Serving => ProbeResult::success(),
                status => ProbeResult::failure(format!(
                    "service unhealthy (responded with {:?})",
                    status.as_str_name()
                )),
            },
            Err(status) if status.code() == tonic::Code::Unimplemented => ProbeResult::failure(format!(
                "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): {}",
                status.message()
            )),
            Err(status) => ProbeResult::failure(format!(
                "error: health rpc probe failed: rpc error: code = {:?} desc = {}",
                status.code(),
                status.message()
            )),
        }
    }

    /// Resolves a port to its number. A port given as text is the name of a container port, or else a number. Fails if
    /// the name is unknown or the number is invalid.
    fn resolve_port(&self, port: &IntOrString) -> Result<u16, String> {
        let number = match port {
            IntOrString::Int(number) => *number,
            IntOrString::String(name) => {
                let mut ports = self.container.ports.iter().flatten();
                match ports.find(|it| it.name.as_ref() == Some(name)) {
                    Some(port) => port.container_port,
                    None => {
                        name.parse().map_err(|_| format!("couldn't find port: {name:?} in the container"))?
                    }
                }
            }
        };
        let number = u16::try_from(number).ok().filter(|it| *it != 0);
        number.ok_or_else(|| format!("invalid port number: {port:?}"))
    }
}

/// Returns the first [`RESPONSE_BYTES_MAX`] bytes of a command's output as text, with stdout before stderr.
fn combined_output(stdout: &[u8], stderr: &[u8]) -> String {
    let all = [stdout, stderr].concat();
    String::from_utf8_lossy(&all[..all.len().min(RESPONSE_BYTES_MAX)]).into_owned()
}

/// Formats a host and a port, with brackets around an IPv6 address.
fn host_and_port(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// Formats an error of a TCP connection. Common errors have Go's words, as in the kubelet.
pub(crate) fn format_dial_error(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connect: connection refused".to_owned(),
        io::ErrorKind::HostUnreachable => "connect: no route to host".to_owned(),
        io::ErrorKind::NetworkUnreachable => "connect: network is unreachable".to_owned(),
        io::ErrorKind::ConnectionReset => "connect: connection reset by peer".to_owned(),
        _ => error.to_string(),
    }
}

/// Resolves a `Location` header to a URL. A location that starts with `/` is relative to the host of `from`. Returns
/// `None` if any other location is not an absolute URL.
fn redirect_target(from: &Uri, location: &str) -> Option<Uri> {
    if location.starts_with('/') {
        return format!("{}://{}{location}", from.scheme_str()?, from.authority()?).parse().ok();
    }
    location.parse().ok().filter(|it: &Uri| it.host().is_some())
}

/// An HTTP response: status, redirect target, and the beginning of the body.
struct HttpResponse {
    status: u16,
    location: Option<String>,
    body: Vec<u8>,
}

/// Sends the GET request of an HTTP probe or hook to this URL.
async fn send_get(
    get: &HTTPGetAction,
    url: &Uri,
) -> Result<HttpResponse, Box<dyn std::error::Error + Send + Sync>> {
    let is_tls = url.scheme_str() == Some("https");
    let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
    let port = url.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
    let stream = TcpStream::connect((host, port)).await;
    let stream =
        stream.map_err(|it| format!("dial tcp {}: {}", host_and_port(host, port), format_dial_error(&it)))?;
    let path = url.path_and_query().map_or("/", |it| it.as_str());
    let mut request = Request::builder().method(Method::GET).uri(path).body(Empty::<Bytes>::new())?;
    let headers = request.headers_mut();
    let mut named_host = None;
    for it in get.http_headers.iter().flatten() {
        let (name, value) = (HeaderName::try_from(&it.name)?, HeaderValue::try_from(&it.value)?);
        if name == header::HOST {
            named_host = Some(value);
        } else {
            headers.append(name, value);
        }
    }
    if !headers.contains_key(header::USER_AGENT) {
        headers.insert(header::USER_AGENT, HeaderValue::from_static("kube-probe/1.36"));
    }
    if !headers.contains_key(header::ACCEPT) {
        headers.insert(header::ACCEPT, HeaderValue::from_static("*/*"));
    }
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    let own_host = HeaderValue::try_from(url.authority().map_or("", |it| it.as_str()))?;
    headers.insert(header::HOST, named_host.unwrap_or(own_host));
    if is_tls {
        let name = ServerName::try_from(host.to_owned())?;
        let stream = TlsConnector::from(Arc::new(insecure_tls_config())).connect(name, stream).await?;
        send_request(stream, request).await
    } else {
        send_request(stream, request).await
    }
}

/// Sends a request over a connection, and reads the beginning of the response body.
async fn send_request(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Empty<Bytes>>,
) -> Result<HttpResponse, Box<dyn std::error::Error + Send + Sync>> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let connection = std::pin::pin!(connection);
    let exchange_once = async {
        let response = sender.send_request(request).await?;
        let status = response.status().as_u16();
        let location = response.headers().get(header::LOCATION);
        let location = location.and_then(|it| it.to_str().ok()).map(str::to_owned);
        // A body that is too long or incomplete does not matter.
        let mut body = Vec::new();
        let mut frames = response.into_body();
        while body.len() < RESPONSE_BYTES_MAX
            && let Some(Ok(frame)) = frames.frame().await
        {
            let data = frame.into_data().unwrap_or_default();
            body.extend_from_slice(&data[..data.len().min(RESPONSE_BYTES_MAX - body.len())]);
        }
        Ok(HttpResponse { status, location, body })
    };
    let exchange_once = std::pin::pin!(exchange_once);
    match futures::future::select(exchange_once, connection).await {
        futures::future::Either::Left((answer, _)) => answer,
        futures::future::Either::Right((_, exchange_once)) => exchange_once.await,
    }
}

/// Returns a TLS configuration that accepts any certificate, for probes and for requests that the API server proxies to
/// pods.
pub(crate) fn insecure_tls_config() -> ClientConfig {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone());
    let builder = builder.with_safe_default_protocol_versions().expect("ring has the default versions");
    builder
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AcceptAnyCertificate(provider)))
        .with_no_client_auth()
}

/// TLS verifier that accepts every server certificate.
#[derive(Debug)]
struct AcceptAnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests;
