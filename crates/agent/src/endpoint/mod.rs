//! The agent's HTTPS endpoint: logs, exec, attach, port-forward, the pod list, stats and metrics, and proxied requests
//! to pods and to ports of the node. The URL paths are the kubelet's, except the paths of proxied requests.
//!
//! Only the API server may connect. It authenticates and authorizes its own clients before it calls a node.

/// Limits on connections and TLS handshakes.
mod connections;
/// Container logs in the CRI format.
mod logs;
/// Reverse proxy to pods and to other ports of the node.
mod proxy;
/// SPDY/3.1 streams to the container runtime.
mod spdy;
/// Streaming over upgraded HTTP connections.
mod stream;
/// Serving certificate, and the check that the client is the API server.
mod tls;

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::unfold;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, StatusCode, Uri};
use hyper_util::rt::{TokioIo, TokioTimer};
use jiff::{SignedDuration, Timestamp};
use muster_api::metrics_exposition::ExpositionFormat;
use muster_api::query_parameters::parse_bool_parameter;
use rustix::net::sockopt;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use self::connections::{ConnectionLimits, HandshakePermit};
pub use self::tls::{ServingIdentity, ServingIdentityError};
use crate::net;
use crate::node::{NodeAgent, PodSnapshot};
use crate::runtime::{Runtime, RuntimeError, label, v1};

/// Timeout for the TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout for reading the headers of a request.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum size of the headers of a request, and of the headers of a proxied target's response.
const HEADER_BYTES_MAX: usize = 64 << 10;
/// Idle time before the first TCP keep-alive probe, and interval of the probes. The connection is closed after three
/// unanswered probes.
const TCP_KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);

/// Capacity, in chunks, of the channel from the task that reads a log to the response.
const LOG_CHANNEL_CAPACITY: usize = 4;

/// Body of a response, complete or streamed.
type ResponseBody = UnsyncBoxBody<Bytes, io::Error>;
type EndpointResponse = hyper::Response<ResponseBody>;

/// The agent's HTTPS endpoint. It serves, for example, the node's side of `kubectl logs`, `exec`, `port-forward` and
/// `top`.
#[expect(missing_debug_implementations, reason = "the node has none")]
pub struct Endpoint<R> {
    node: Arc<NodeAgent<R>>,
}

/// The pod that a request addresses.
struct EndpointPod {
    uid: String,
    name: String,
    /// The status that the agent last reported, or the status from the API server before the first report.
    status: Value,
}

/// An error response: status code and message.
#[derive(Debug)]
struct HttpError {
    code: StatusCode,
    message: String,
}

impl HttpError {
    fn new(code: StatusCode, why: impl Into<String>) -> Self {
        Self { code, message: why.into() }
    }

    fn bad_request(why: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, why)
    }

    fn not_found(why: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, why)
    }
}

impl From<RuntimeError> for HttpError {
    fn from(error: RuntimeError) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
    }
}

/// The query parameters of a request.
struct QueryParameters(Vec<(String, String)>);

impl QueryParameters {
    /// Returns all values of a parameter.
    fn get_all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(it, _)| it == name).map(|(_, value)| value.as_str())
    }

    /// Returns the first value of a parameter, or `None` if the parameter is absent.
    fn get<'a>(&'a self, name: &'a str) -> Option<&'a str> {
        self.get_all(name).next()
    }

    /// Whether a boolean parameter is present and true.
    fn is_set(&self, name: &str) -> bool {
        self.get(name).is_some_and(parse_bool_parameter)
    }

    /// Returns the value of a numeric parameter, or `None` if the parameter is absent. Fails if the value is not a
    /// number.
    fn parse_number(&self, name: &str) -> Result<Option<u64>, HttpError> {
        let malformed = |_| HttpError::bad_request(format!("{name} is not a number"));
        self.get(name).map(|it| it.parse().map_err(malformed)).transpose()
    }
}

/// Returns the `Accept` header, or an empty string if it is absent or not ASCII.
fn accept_header(request: &Request<Incoming>) -> &str {
    request.headers().get(ACCEPT).and_then(|it| it.to_str().ok()).unwrap_or_default()
}

impl<R: Runtime> Endpoint<R> {
    pub fn new(node: Arc<NodeAgent<R>>) -> Self {
        Self { node }
    }

    /// Serves requests until `stop` is cancelled. Then open streams end, and the containers keep running.
    pub async fn serve(
        self: Arc<Self>,
        listener: TcpListener,
        identity: Arc<ServingIdentity>,
        stop: CancellationToken,
    ) -> Result<(), ServingIdentityError> {
        let tls = TlsAcceptor::from(Arc::new(identity.tls_config()?));
        let server = net::server_ip_addresses(&self.node.config.api_servers.all()).await;
        let connections = ConnectionLimits::new(server);
        loop {
            let accepted = tokio::select! {
                () = stop.cancelled() => return Ok(()),
                accepted = listener.accept() => accepted,
            };
            let (stream, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let Some(handshake) = connections.admit_handshake(peer.ip()) else {
                tracing::debug!(%peer, "too many connections");
                continue;
            };
            let (endpoint, tls, stop) = (self.clone(), tls.clone(), stop.clone());
            let connections = connections.clone();
            tokio::spawn(async move {
                let peer_of = (peer.ip(), &*connections);
                tokio::select! {
                    () = stop.cancelled() => {}
                    served = endpoint.serve_connection(stream, &tls, peer_of, handshake, &stop) => if let Err(error) = served {
                        tracing::debug!(%peer, %error, "a connection ended early");
                    },
                }
            });
        }
    }

    /// Serves the requests of one connection. Fails after the TLS handshake if the client is not the API server, or if
    /// too many connections are being served.
    async fn serve_connection(
        self: Arc<Self>,
        stream: TcpStream,
        tls: &TlsAcceptor,
        (peer, connections): (IpAddr, &ConnectionLimits),
        handshake: HandshakePermit,
        stop: &CancellationToken,
    ) -> io::Result<()> {
        stream.set_nodelay(true)?;
        // Keep-alive detects an API server that was cut off in the middle of a stream.
        sockopt::set_socket_keepalive(&stream, true)?;
        sockopt::set_tcp_keepidle(&stream, TCP_KEEPALIVE_INTERVAL)?;
        sockopt::set_tcp_keepintvl(&stream, TCP_KEEPALIVE_INTERVAL)?;
        sockopt::set_tcp_keepcnt(&stream, 3)?;
        let stream = tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)).await??;
        let certificate = stream.get_ref().1.peer_certificates().and_then(|it| it.first());
        if !certificate.is_some_and(|it| tls::is_api_server(it)) {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "the client certificate is not the API server's",
            ));
        }
        let permit = connections.admit_server_connection(peer, handshake);
        let permit =
            Arc::new(permit.ok_or_else(|| io::Error::other("too many connections from the API server"))?);
        let stop = stop.clone();
        let service = service_fn(move |request: Request<Incoming>| {
            let (endpoint, context) =
                (self.clone(), stream::StreamContext { _permit: permit.clone(), stop: stop.clone() });
            async move {
                let answered = endpoint.handle_request(request, context).await;
                Ok::<_, std::convert::Infallible>(
                    answered.unwrap_or_else(|it| text_response(it.code, it.message)),
                )
            }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_TIMEOUT)
            .max_buf_size(HEADER_BYTES_MAX)
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades();
        connection.await.map_err(io::Error::other)
    }

    /// Routes a request by its path, and returns the response.
    async fn handle_request(
        &self,
        request: Request<Incoming>,
        context: stream::StreamContext,
    ) -> Result<EndpointResponse, HttpError> {
        let path = request.uri().path().to_owned();
        let query = request.uri().query().unwrap_or_default();
        let query = QueryParameters(form_urlencoded::parse(query.as_bytes()).into_owned().collect());
        let segments: Vec<&str> = path.split('/').skip(1).collect();
        // hyper omits the body of a response to HEAD.
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        match segments[..] {
            ["healthz"] if is_read => Ok(text_response(StatusCode::OK, "ok".to_owned())),
            ["pods"] if is_read => {
                let items: Vec<Value> =
                    self.node.pods.all_pods().iter().map(|it| pod_with_status(&it.snapshot())).collect();
                Ok(json_response(
                    &json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items}),
                ))
            }
            ["stats", "summary"] if is_read => {
                let summary = self.node.stats.summary().await?;
                Ok(json_response(&serde_json::to_value(&*summary).unwrap_or_default()))
            }
            ["metrics"] if is_read => {
                let phases = self.node.pods.all_pods().into_iter().map(|it| reported_phase(&it.snapshot()));
                let text = self.node.metrics.encode(phases, &self.node.config.pki_dir(), Timestamp::now());
                let format = ExpositionFormat::negotiate(accept_header(&request));
                Ok(build_response(StatusCode::OK, format.media_type(), full_body(format.encode(text))))
            }
            ["metrics", "resource"] if is_read => {
                let metrics = self.node.stats.summary().await?.resource_metrics();
                Ok(build_response(StatusCode::OK, ExpositionFormat::Text.media_type(), full_body(metrics)))
            }
            ["containerLogs", namespace, name, container] if is_read => {
                let options = parse_log_options(&query, Timestamp::now())?;
                let log =
                    self.stream_logs(namespace, name, container, query.is_set("previous"), options).await?;
                if stream::is_web_socket(&request) {
                    return stream::stream_log_messages(request, log, context);
                }
                let frames = unfold(log, |mut log| async move {
                    let next = log.recv().await?;
                    Some((next.map(Frame::data), log))
                });
                Ok(build_response(StatusCode::OK, "text/plain", StreamBody::new(frames).boxed_unsync()))
            }
            ["exec", namespace, name, container] => {
                let container = self.running_container_id(namespace, name, container).await?;
                let streams = stream::CommandStreams::from_query(&query)?;
                let exec = v1::ExecRequest {
                    container_id: container,
                    cmd: query.get_all("command").map(str::to_owned).collect(),
                    tty: streams.tty,
                    stdin: streams.stdin,
                    stdout: streams.stdout,
                    stderr: streams.stderr,
                };
                stream::stream_command(request, &self.node.runtime.exec(exec).await?, streams, context).await
            }
            ["attach", namespace, name, container] => {
                let container = self.running_container_id(namespace, name, container).await?;
                let streams = stream::CommandStreams::from_query(&query)?;
                let attach = v1::AttachRequest {
                    container_id: container,
                    tty: streams.tty,
                    stdin: streams.stdin,
                    stdout: streams.stdout,
                    stderr: streams.stderr,
                };
                stream::stream_command(request, &self.node.runtime.attach(attach).await?, streams, context)
                    .await
            }
            ["portForward", namespace, name] => {
                let pod = self.find_pod(namespace, name)?;
                let sandbox = self.ready_sandbox_id(&pod).await?;
                let malformed = |_| HttpError::bad_request("port is not a port number");
                let ports: Vec<u16> = query
                    .get_all("port")
                    .map(|it| it.parse().map_err(malformed))
                    .collect::<Result<_, _>>()?;
                stream::stream_port_forward(
                    request,
                    &self.node.runtime.port_forward(&sandbox, &ports).await?,
                    context,
                )
                .await
            }
            ["podProxy", namespace, name, scheme, port, ..] => {
                let target = self.proxy_target(namespace, name, scheme, port).await?;
                let path = path_after_segments(request.uri(), 5);
                proxy::forward(request, target, &path, context).await
            }
            ["nodeProxy", scheme, port, ..] => {
                let target = proxy::ProxyTarget::new(self.node.config.address, scheme, port)?;
                let path = path_after_segments(request.uri(), 3);
                proxy::forward(request, target, &path, context).await
            }
            _ => Err(HttpError::not_found("404 page not found")),
        }
    }

    /// Returns the pod of this node with this namespace and name. The error is status 404 if there is no such pod.
    fn find_pod(&self, namespace: &str, name: &str) -> Result<EndpointPod, HttpError> {
        let found = self.node.pods.find_pod(namespace, name).map(|it| it.snapshot());
        let snapshot = found.ok_or_else(|| HttpError::not_found("pod does not exist"))?;
        let uid = snapshot.object.metadata.uid.clone().unwrap_or_default();
        Ok(EndpointPod { uid, name: name.to_owned(), status: reported_status(&snapshot) })
    }

    /// Returns the ID of a pod's running container. `container` is the container's name in the pod spec. The error is
    /// status 404 if no such container is running.
    async fn running_container_id(
        &self,
        namespace: &str,
        name: &str,
        container: &str,
    ) -> Result<String, HttpError> {
        let pod = self.find_pod(namespace, name)?;
        let all = self.container_instances(&pod, container).await?;
        let is_running = |it: &&v1::Container| it.state == v1::ContainerState::ContainerRunning as i32;
        let found = all.iter().find(is_running).map(|it| it.id.clone());
        found.ok_or_else(|| HttpError::not_found(format!("container not found ({container:?})")))
    }

    /// Returns all instances of a pod's container in the runtime, newest first. `name` is the container's name in the
    /// pod spec.
    async fn container_instances(
        &self,
        pod: &EndpointPod,
        name: &str,
    ) -> Result<Vec<v1::Container>, HttpError> {
        let mut all = self.node.runtime.list_containers(Some(&pod.uid)).await?;
        all.retain(|it| it.labels.get(label::CONTAINER_NAME).is_some_and(|it| it == name));
        all.sort_by_key(|it| (it.metadata.as_ref().map(|it| it.attempt), it.created_at));
        all.reverse();
        Ok(all)
    }

    /// Returns the ID of the pod's newest ready sandbox. The error is status 404 if the pod has no ready sandbox.
    async fn ready_sandbox_id(&self, pod: &EndpointPod) -> Result<String, HttpError> {
        let mut all = self.node.runtime.list_sandboxes(Some(&pod.uid)).await?;
        all.retain(|it| it.state == v1::PodSandboxState::SandboxReady as i32);
        all.sort_by_key(|it| it.created_at);
        let newest = all.pop().map(|it| it.id);
        let none = || HttpError::not_found(format!("not able to find the sandbox of pod {:?}", pod.name));
        newest.ok_or_else(none)
    }

    /// Returns the address of a pod's port, for a proxied request. Fails if requests must not be proxied to that
    /// address. The address comes from the runtime, or from the node's configuration for a hostNetwork pod. It never
    /// comes from the pod's status, so that a forged status cannot redirect requests.
    async fn proxy_target(
        &self,
        namespace: &str,
        name: &str,
        scheme: &str,
        port: &str,
    ) -> Result<proxy::ProxyTarget, HttpError> {
        let pod = self.find_pod(namespace, name)?;
        let snapshot = self.node.pods.find_pod(namespace, name).map(|it| it.snapshot());
        let spec = snapshot.and_then(|it| it.object.spec.clone()).unwrap_or_default();
        let sandbox = self.ready_sandbox_id(&pod).await?;
        let address = match spec.host_network {
            Some(true) => self.node.config.address,
            _ => {
                let network = self.node.runtime.sandbox_status(&sandbox).await?.network.unwrap_or_default();
                let none = |_| HttpError::not_found(format!("pod {name:?} has no address"));
                network.ip.parse().map_err(none)?
            }
        };
        let target = proxy::ProxyTarget::new(address, scheme, port)?;
        proxy::check_proxy_allowed(&spec, target.address)?;
        Ok(target)
    }

    /// Starts to read a container's log, and returns the channel that receives its chunks. If `previous` is true, reads
    /// the log of the container's previous instance.
    async fn stream_logs(
        &self,
        namespace: &str,
        name: &str,
        container: &str,
        previous: bool,
        options: logs::LogOptions,
    ) -> Result<mpsc::Receiver<io::Result<Bytes>>, HttpError> {
        let pod = self.find_pod(namespace, name)?;
        let found = self.container_instances(&pod, container).await?;
        let chosen = select_container_instance(&pod, &found, container, previous)?;
        let dir = self.node.config.log_dir(namespace, name, &pod.uid);
        let attempt = chosen.metadata.as_ref().map_or(0, |it| it.attempt);
        let no_log = || HttpError::not_found(format!("container {container:?} has no log"));
        let log_file = logs::log_file(&self.node.config.var_log.join("pods"), &dir, container, attempt)
            .ok_or_else(no_log)?;
        let opened = tokio::task::spawn_blocking({
            let log_file = log_file.clone();
            move || log_file.open().map(drop)
        });
        if let Ok(Err(error)) = opened.await {
            let why = format!("open the log of container {container:?} in pod {name:?}: {error}");
            return Err(HttpError::new(StatusCode::INTERNAL_SERVER_ERROR, why));
        }
        let (to, from) = mpsc::channel(LOG_CHANNEL_CAPACITY);
        let (runtime, id) = (self.node.runtime.clone(), chosen.id.clone());
        tokio::spawn(async move {
            let is_running = || async {
                let running = v1::ContainerState::ContainerRunning as i32;
                match runtime.container_status(&id).await {
                    Ok(container) => container.state == running,
                    // A runtime that is being restarted still has its containers.
                    Err(error) => !error.is_not_found(),
                }
            };
            logs::send_log(log_file, options, is_running, to).await;
        });
        Ok(from)
    }
}

/// Returns the path and query of a request without the first `segments` path segments. Percent-encoded characters stay
/// encoded.
fn path_after_segments(uri: &Uri, segments: usize) -> String {
    let whole = uri.path_and_query().map_or("", |it| it.as_str());
    format!("/{}", whole.splitn(segments + 2, '/').nth(segments + 1).unwrap_or_default())
}

/// Returns the pod object as JSON, with the status of [`reported_status`].
fn pod_with_status(snapshot: &PodSnapshot) -> Value {
    let mut object = snapshot.object.json.clone();
    // The API server omits these two fields in the items of a list.
    object["apiVersion"] = "v1".into();
    object["kind"] = "Pod".into();
    object["status"] = reported_status(snapshot);
    object
}

/// Returns the status that the agent last reported. Before the first report, returns the status from the API server.
fn reported_status(snapshot: &PodSnapshot) -> Value {
    match &snapshot.status {
        Value::Null => snapshot.object.json["status"].clone(),
        reported => reported.clone(),
    }
}

/// Returns the phase that the agent last reported. Before the first report, returns the phase from the API server, or
/// an empty string if there is none.
fn reported_phase(snapshot: &PodSnapshot) -> String {
    let stored = || snapshot.object.status.as_ref().and_then(|it| it.phase.clone());
    snapshot.status["phase"].as_str().map(str::to_owned).or_else(stored).unwrap_or_default()
}

/// Chooses the container instance whose log is sent: by the container IDs in the pod's status, or else by the age of
/// the instances. If `previous` is true, chooses the instance before the current one. The error is status 400 if there
/// is no such instance.
fn select_container_instance<'a>(
    pod: &EndpointPod,
    found: &'a [v1::Container],
    container: &str,
    previous: bool,
) -> Result<&'a v1::Container, HttpError> {
    let statuses = ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"];
    let name = &pod.name;
    let all = statuses.iter().filter_map(|it| pod.status[it].as_array()).flatten();
    let status = all.into_iter().find(|it| it["name"] == container).unwrap_or(&Value::Null);
    let by_id = |id: &Value| {
        let id = id.as_str()?.split_once("://")?.1;
        found.iter().find(|it| it.id == id)
    };
    let last = by_id(&status["lastState"]["terminated"]["containerID"]);
    if previous {
        let none = || format!("previous terminated container {container:?} in pod {name:?} not found");
        // The status may lag behind the runtime: the instance before the newest one is the previous one.
        let before = || if found.len() < 2 { None } else { found.get(1) };
        return last.or_else(before).ok_or_else(|| HttpError::bad_request(none()));
    }
    let now = by_id(&status["containerID"]).or_else(|| by_id(&status["state"]["terminated"]["containerID"]));
    let waiting = &status["state"]["waiting"];
    let newest = if waiting.is_object() && now.is_none() { None } else { found.first() };
    now.or(last).or(newest).or_else(|| found.first()).ok_or_else(|| {
        let why = match waiting["reason"].as_str() {
            Some("ErrImagePull") => "image can't be pulled",
            Some("ImagePullBackOff") => "trying and failing to pull image",
            Some(reason) => reason,
            None => {
                return HttpError::bad_request(format!(
                    "container {container:?} in pod {name:?} is waiting to start - no logs yet"
                ));
            }
        };
        HttpError::bad_request(format!("container {container:?} in pod {name:?} is waiting to start: {why}"))
    })
}

/// Parses the query parameters of a log request. `sinceSeconds` counts back from `now`.
fn parse_log_options(query: &QueryParameters, now: Timestamp) -> Result<logs::LogOptions, HttpError> {
    let since = match (query.parse_number("sinceSeconds")?, query.get("sinceTime")) {
        (Some(seconds), _) => {
            let seconds = SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX));
            now.checked_sub(seconds).ok()
        }
        (None, Some(time)) => {
            Some(time.parse().map_err(|_| HttpError::bad_request("sinceTime is not an RFC 3339 time"))?)
        }
        (None, None) => None,
    };
    Ok(logs::LogOptions {
        follow: query.is_set("follow"),
        timestamps: query.is_set("timestamps"),
        since,
        tail_lines: query.parse_number("tailLines")?,
        bytes_max: query.parse_number("limitBytes")?,
        stream: match query.get("stream") {
            Some("Stdout") => Some("stdout"),
            Some("Stderr") => Some("stderr"),
            _ => None,
        },
    })
}

fn text_response(code: StatusCode, text: String) -> EndpointResponse {
    build_response(code, "text/plain; charset=utf-8", full_body(text))
}

fn json_response(value: &Value) -> EndpointResponse {
    build_response(StatusCode::OK, "application/json", full_body(value.to_string()))
}

/// Returns a complete (not streamed) response body with these bytes.
fn full_body(bytes: impl Into<Bytes>) -> ResponseBody {
    Full::new(bytes.into()).map_err(|it| match it {}).boxed_unsync()
}

fn build_response(code: StatusCode, media_type: &'static str, body: ResponseBody) -> EndpointResponse {
    let mut response = hyper::Response::new(body);
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}

#[cfg(test)]
mod tests;
