//! Streaming of exec, attach, port-forward and logs over upgraded HTTP connections.
//!
//! The container runtime has its own streaming server. If the runtime supports the client's protocol, the client's
//! connection is spliced to a connection to this server. Two newer protocols, which runtimes do not support, are
//! translated: WebSockets that can close a single stream (`v5.channel.k8s.io`), and SPDY inside a WebSocket
//! (`SPDY/3.1+portforward.k8s.io`).

use std::io;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;
use bytes::Bytes;
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt as _, StreamExt as _};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Incoming;
use hyper::header::{CONNECTION, HOST, HeaderMap, HeaderName, HeaderValue, UPGRADE};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper::{Method, Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use muster_api::well_known::UPGRADE_NEGOTIATION_HEADERS;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::{Mutex, OwnedSemaphorePermit, mpsc};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_util::sync::CancellationToken;

use super::spdy::{self, SpdyFrame, StreamId};
use super::{EndpointResponse, HttpError, QueryParameters, build_response, full_body};

/// `Upgrade` value of SPDY.
const SPDY_PROTOCOL: &str = "SPDY/3.1";
/// `Upgrade` value of WebSockets.
const WEBSOCKET_PROTOCOL: &str = "websocket";

/// Subprotocol of exec and attach that runtimes support, over SPDY and over WebSockets.
const CHANNEL_V4_SUBPROTOCOL: &str = "v4.channel.k8s.io";
/// WebSocket subprotocol of exec and attach that, unlike v4, can close a single stream.
const CHANNEL_V5_SUBPROTOCOL: &str = "v5.channel.k8s.io";
/// SPDY subprotocol of port-forward.
const PORT_FORWARD_SUBPROTOCOL: &str = "portforward.k8s.io";
/// WebSocket subprotocol of port-forward that tunnels SPDY.
const PORT_FORWARD_TUNNEL_SUBPROTOCOL: &str = "SPDY/3.1+portforward.k8s.io";

/// WebSocket subprotocols for logs. With the first one, and without a subprotocol, the bytes are sent unchanged.
const LOG_SUBPROTOCOLS: [&str; 2] = ["binary.k8s.io", BASE64_SUBPROTOCOL];
/// WebSocket subprotocol for logs that encodes the bytes in base64.
const BASE64_SUBPROTOCOL: &str = "base64.binary.k8s.io";

/// Channel number of stdin in the WebSocket subprotocols.
const STDIN_CHANNEL: u8 = 0;
/// Channel number of stdout in the WebSocket subprotocols.
const STDOUT_CHANNEL: u8 = 1;
/// Channel number of stderr in the WebSocket subprotocols.
const STDERR_CHANNEL: u8 = 2;
/// Channel number of the final status in the WebSocket subprotocols.
const ERROR_CHANNEL: u8 = 3;
/// Channel number of terminal sizes in the WebSocket subprotocols.
const RESIZE_CHANNEL: u8 = 4;
/// Channel number of messages that close another channel, in `v5.channel.k8s.io`.
const CLOSE_CHANNEL: u8 = 255;

/// Timeout for the runtime's streaming server to accept the upgrade. The server is on this machine.
const RUNTIME_UPGRADE_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of bytes that are read from an error response of the runtime.
const RUNTIME_ERROR_BYTES_MAX: usize = 64 << 10;

/// Timeout for sending the last messages to the client and closing its connection, when a stream ends.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum size of a WebSocket message. kubectl sends at most 32 KiB, and other clients may send more.
const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// Size of the buffer for bytes from the runtime in a port-forward tunnel.
const TUNNEL_BUFFER_BYTES: usize = 32 << 10;

/// Permit and stop signal of an upgraded connection (exec, attach, port-forward, logs, proxy). The connection counts in
/// the connection limit until the context is dropped, and ends when `stop` is cancelled.
pub(super) struct StreamContext {
    /// Permit that counts the connection in the connection limit. Released on drop.
    pub(super) _permit: Arc<OwnedSemaphorePermit>,
    /// Cancelled when the endpoint stops.
    pub(super) stop: CancellationToken,
}

/// The streams that an exec or attach request asks for, and whether the command runs in a terminal (`tty`).
#[derive(Debug, Clone, Copy)]
pub(super) struct CommandStreams {
    pub(super) stdin: bool,
    pub(super) stdout: bool,
    pub(super) stderr: bool,
    pub(super) tty: bool,
}

impl CommandStreams {
    /// Parses the query parameters of an exec or attach request. With a terminal, stderr is never streamed. Fails if
    /// neither stdin, stdout nor stderr remains.
    pub(super) fn from_query(query: &QueryParameters) -> Result<Self, HttpError> {
        let tty = query.is_set("tty");
        let streams =
            // A terminal has no separate stderr.
            Self { stdin: query.is_set("input"), stdout: query.is_set("output"), stderr: query.is_set("error") && !tty, tty };
        if !streams.stdin && !streams.stdout && !streams.stderr {
            return Err(HttpError::bad_request("you must specify at least 1 of stdin, stdout, stderr"));
        }
        Ok(streams)
    }
}

/// The protocol that the client requests to upgrade to.
enum UpgradeRequest {
    Spdy,
    /// A WebSocket, with the subprotocols that the client offers in order of preference.
    WebSocket(Vec<String>),
}

impl UpgradeRequest {
    /// Parses the `Upgrade` header and the offered WebSocket subprotocols. Fails if the client requests neither SPDY
    /// nor a WebSocket.
    fn from_headers(headers: &HeaderMap) -> Result<Self, HttpError> {
        let header = |name: &str| headers.get(name).and_then(|it| it.to_str().ok()).unwrap_or_default();
        let upgrade = header("upgrade");
        if upgrade.eq_ignore_ascii_case(SPDY_PROTOCOL) {
            return Ok(Self::Spdy);
        }
        if !upgrade.eq_ignore_ascii_case(WEBSOCKET_PROTOCOL) {
            return Err(HttpError::bad_request("Upgrade request required"));
        }
        let all = headers.get_all("sec-websocket-protocol").iter().filter_map(|it| it.to_str().ok());
        Ok(Self::WebSocket(all.flat_map(|it| it.split(',')).map(|it| it.trim().to_owned()).collect()))
    }

    /// Whether the client requests a WebSocket and offers the subprotocol.
    fn offers_subprotocol(&self, protocol: &str) -> bool {
        matches!(self, Self::WebSocket(protocols) if protocols.iter().any(|it| it == protocol))
    }
}

/// Upgrades the connection of an exec or attach request, and starts to stream. `url` is the URL of the session on the
/// runtime's streaming server. Returns the response with status 101.
pub(super) async fn stream_command(
    request: Request<Incoming>,
    url: &str,
    streams: CommandStreams,
    context: StreamContext,
) -> Result<EndpointResponse, HttpError> {
    let subprotocols = (CHANNEL_V5_SUBPROTOCOL, CHANNEL_V4_SUBPROTOCOL);
    let relay = move |client, runtime| relay_channels(client, runtime, streams);
    stream_to_runtime(request, url, subprotocols, context, relay).await
}

/// Upgrades the connection of a port-forward request, and starts to stream. `url` is the URL of the session on the
/// runtime's streaming server. Returns the response with status 101.
pub(super) async fn stream_port_forward(
    request: Request<Incoming>,
    url: &str,
    context: StreamContext,
) -> Result<EndpointResponse, HttpError> {
    let subprotocols = (PORT_FORWARD_TUNNEL_SUBPROTOCOL, PORT_FORWARD_SUBPROTOCOL);
    stream_to_runtime(request, url, subprotocols, context, relay_tunnel).await
}

/// Upgrades the client's connection and a connection to the runtime, and starts to stream between them. Returns the
/// response with status 101. `subprotocols` are a WebSocket subprotocol, and the SPDY subprotocol of the runtime to
/// which `relay` translates it. If the client does not offer the WebSocket subprotocol, the bytes are copied unchanged.
async fn stream_to_runtime<F: Future<Output = io::Result<()>> + Send>(
    mut request: Request<Incoming>,
    url: &str,
    (client_subprotocol, runtime_subprotocol): (&'static str, &'static str),
    context: StreamContext,
    relay: impl FnOnce(WebSocketStream<TokioIo<Upgraded>>, TokioIo<Upgraded>) -> F + Send + 'static,
) -> Result<EndpointResponse, HttpError> {
    let upgrade_request = UpgradeRequest::from_headers(request.headers())?;
    if !upgrade_request.offers_subprotocol(client_subprotocol) {
        return splice_to_runtime(request, &upgrade_request, url, context).await;
    }
    let accept = websocket_accept_value(request.headers())?;
    let headers = runtime_upgrade_headers(runtime_subprotocol);
    let (_, runtime) = open_runtime_stream(url, Method::POST, &headers).await?;
    let client = hyper::upgrade::on(&mut request);
    spawn_stream(context, async move {
        let client = server_web_socket(client.await.map_err(io::Error::other)?).await;
        relay(client, TokioIo::new(runtime)).await
    });
    Ok(web_socket_accepted_response(&accept, Some(client_subprotocol)))
}

/// Whether the request upgrades to a WebSocket.
pub(super) fn is_web_socket(request: &Request<Incoming>) -> bool {
    let upgrade = request.headers().get(UPGRADE).and_then(|it| it.to_str().ok());
    upgrade.is_some_and(|it| it.eq_ignore_ascii_case(WEBSOCKET_PROTOCOL))
}

/// Upgrades the connection to a WebSocket, and starts to send a log as messages until the log ends or the client
/// disconnects. Returns the response with status 101. Upstream: `wsstream.Reader`.
pub(super) fn stream_log_messages(
    mut request: Request<Incoming>,
    mut log: mpsc::Receiver<io::Result<Bytes>>,
    context: StreamContext,
) -> Result<EndpointResponse, HttpError> {
    let UpgradeRequest::WebSocket(offered) = UpgradeRequest::from_headers(request.headers())? else {
        return Err(HttpError::bad_request("Upgrade request required"));
    };
    let subprotocol =
        offered.iter().find_map(|offered| LOG_SUBPROTOCOLS.into_iter().find(|it| it == offered));
    if subprotocol.is_none() && !offered.iter().all(String::is_empty) {
        let supported = LOG_SUBPROTOCOLS.join(" ");
        return Err(HttpError::bad_request(format!(
            "requested protocol(s) are not supported; supports [{supported}]"
        )));
    }
    let accept = websocket_accept_value(request.headers())?;
    let client = hyper::upgrade::on(&mut request);
    let message = move |bytes: Bytes| match subprotocol {
        Some(BASE64_SUBPROTOCOL) => Message::Text(BASE64.encode(&bytes).into()),
        _ => Message::Binary(bytes),
    };
    spawn_stream(context, async move {
        let (mut to, mut from) = server_web_socket(client.await.map_err(io::Error::other)?).await.split();
        // Messages from the client are ignored; only its disconnect counts.
        let disconnected = async { while let Some(Ok(_)) = from.next().await {} };
        let outward = async {
            // An empty first message signals that the stream is open.
            to.send(message(Bytes::new())).await.map_err(io::Error::other)?;
            while let Some(bytes) = log.recv().await {
                to.send(message(bytes?)).await.map_err(io::Error::other)?;
            }
            to.send(normal_closure_message()).await.map_err(io::Error::other)
        };
        let ended = tokio::select! {
            () = disconnected => Ok(()),
            ended = outward => ended,
        };
        close_client(to, from).await;
        ended
    });
    Ok(web_socket_accepted_response(&accept, subprotocol))
}

/// Copies bytes between two upgraded connections, in a task, until both directions have ended, one of them fails, or
/// the endpoint stops.
pub(super) fn splice_connections(client: OnUpgrade, other: OnUpgrade, context: StreamContext) {
    spawn_stream(context, async move {
        let (client, other) = tokio::try_join!(client, other).map_err(io::Error::other)?;
        tokio::io::copy_bidirectional(&mut TokioIo::new(client), &mut TokioIo::new(other)).await.map(drop)
    });
}

/// Upgrades a connection to the runtime and the client's connection to the same protocol, and starts to copy bytes
/// between them. Returns the response with status 101.
async fn splice_to_runtime(
    mut request: Request<Incoming>,
    upgrade_request: &UpgradeRequest,
    url: &str,
    context: StreamContext,
) -> Result<EndpointResponse, HttpError> {
    let (method, upgrade) = match upgrade_request {
        UpgradeRequest::Spdy => (Method::POST, SPDY_PROTOCOL),
        UpgradeRequest::WebSocket(_) => (Method::GET, WEBSOCKET_PROTOCOL),
    };
    let mut headers = upgrade_headers(request.headers());
    headers.insert(UPGRADE, HeaderValue::from_static(upgrade));
    let (answer, runtime) = open_runtime_stream(url, method, &headers).await?;
    let client = hyper::upgrade::on(&mut request);
    spawn_stream(context, async move {
        let mut client = TokioIo::new(client.await.map_err(io::Error::other)?);
        tokio::io::copy_bidirectional(&mut client, &mut TokioIo::new(runtime)).await.map(drop)
    });
    let mut headers = upgrade_headers(&answer);
    headers.insert(UPGRADE, HeaderValue::from_static(upgrade));
    Ok(switching_protocols_response(headers))
}

/// Runs `streaming` as a task until it ends or the endpoint stops.
fn spawn_stream(context: StreamContext, streaming: impl Future<Output = io::Result<()>> + Send + 'static) {
    tokio::spawn(async move {
        tokio::select! {
            () = context.stop.cancelled() => {}
            streamed = streaming => if let Err(error) = streamed {
                tracing::debug!(%error, "a stream ended early");
            },
        }
    });
}

/// Connects to the runtime's streaming server and upgrades the connection. Returns the headers of the response, and the
/// upgraded connection.
async fn open_runtime_stream(
    url: &str,
    method: Method,
    headers: &HeaderMap,
) -> Result<(HeaderMap, Upgraded), HttpError> {
    let failed = |why: String| {
        HttpError::new(StatusCode::INTERNAL_SERVER_ERROR, format!("stream from the container runtime: {why}"))
    };
    let upgrade = async {
        let uri: Uri = url.parse().map_err(|it| failed(format!("{it}")))?;
        let authority = uri.authority().map(|it| it.as_str().to_owned()).unwrap_or_default();
        let stream = TcpStream::connect(&authority).await.map_err(|it| failed(it.to_string()))?;
        stream.set_nodelay(true).map_err(|it| failed(it.to_string()))?;
        let connected = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = connected.map_err(|it| failed(it.to_string()))?;
        tokio::spawn(connection.with_upgrades());
        let path = uri.path_and_query().map_or("/", |it| it.as_str());
        let request = Request::builder().method(method).uri(path).header(HOST, authority);
        let mut request = request.body(Empty::<Bytes>::new()).map_err(|it| failed(it.to_string()))?;
        request.headers_mut().extend(headers.clone());
        request.headers_mut().insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        let answer = sender.send_request(request).await.map_err(|it| failed(it.to_string()))?;
        if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
            let code = answer.status();
            let why = Limited::new(answer.into_body(), RUNTIME_ERROR_BYTES_MAX).collect().await;
            let why = why.map(|it| it.to_bytes()).unwrap_or_default();
            return Err(HttpError::new(code, String::from_utf8_lossy(&why).trim()));
        }
        let headers = answer.headers().clone();
        let upgraded = hyper::upgrade::on(answer).await.map_err(|it| failed(it.to_string()))?;
        Ok((headers, upgraded))
    };
    match tokio::time::timeout(RUNTIME_UPGRADE_TIMEOUT, upgrade).await {
        Ok(upgraded) => upgraded,
        Err(_) => Err(failed("no response in time".to_owned())),
    }
}

/// Returns the request headers that ask the runtime for an upgrade to SPDY with this subprotocol.
fn runtime_upgrade_headers(protocol: &'static str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(UPGRADE, HeaderValue::from_static(SPDY_PROTOCOL));
    headers.insert("x-stream-protocol-version", HeaderValue::from_static(protocol));
    headers
}

/// Returns the headers in `headers` that [`UPGRADE_NEGOTIATION_HEADERS`] lists. The caller sets `Connection` and
/// `Upgrade` itself.
fn upgrade_headers(headers: &HeaderMap) -> HeaderMap {
    let mut selected = HeaderMap::new();
    for name in UPGRADE_NEGOTIATION_HEADERS.map(HeaderName::from_static) {
        for value in headers.get_all(&name) {
            selected.append(name.clone(), value.clone());
        }
    }
    selected
}

/// Returns the value of `Sec-WebSocket-Accept` for the client's `Sec-WebSocket-Key`. Fails if the request has no key.
fn websocket_accept_value(headers: &HeaderMap) -> Result<String, HttpError> {
    let key = headers.get("sec-websocket-key").map(HeaderValue::as_bytes);
    key.map(derive_accept_key).ok_or_else(|| HttpError::bad_request("Sec-WebSocket-Key is missing"))
}

/// Returns the response with status 101 that accepts a WebSocket. `accept` is the value of `Sec-WebSocket-Accept`, and
/// `protocol` the accepted subprotocol, if any.
fn web_socket_accepted_response(accept: &str, protocol: Option<&'static str>) -> EndpointResponse {
    let mut headers = HeaderMap::new();
    headers.insert(UPGRADE, HeaderValue::from_static(WEBSOCKET_PROTOCOL));
    headers.extend(
        protocol.map(|it| (HeaderName::from_static("sec-websocket-protocol"), HeaderValue::from_static(it))),
    );
    headers.extend(
        HeaderValue::from_str(accept).ok().map(|it| (HeaderName::from_static("sec-websocket-accept"), it)),
    );
    switching_protocols_response(headers)
}

/// Returns a response with status 101 and these headers.
fn switching_protocols_response(mut headers: HeaderMap) -> EndpointResponse {
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    let mut response = build_response(StatusCode::SWITCHING_PROTOCOLS, "", full_body(Bytes::new()));
    *response.headers_mut() = headers;
    response
}

/// Wraps the client's upgraded connection as the server side of a WebSocket.
async fn server_web_socket(client: Upgraded) -> WebSocketStream<TokioIo<Upgraded>> {
    let config = WebSocketConfig::default()
        .max_message_size(Some(MESSAGE_BYTES_MAX))
        .max_frame_size(Some(MESSAGE_BYTES_MAX));
    WebSocketStream::from_raw_socket(TokioIo::new(client), Role::Server, Some(config)).await
}

/// Sends the remaining messages to the client, and closes its connection, within [`CLOSE_TIMEOUT`].
async fn close_client<C: AsyncRead + AsyncWrite + Unpin>(
    to: SplitSink<WebSocketStream<C>, Message>,
    from: SplitStream<WebSocketStream<C>>,
) {
    let Ok(mut client) = to.reunite(from) else { return };
    let _ = tokio::time::timeout(CLOSE_TIMEOUT, async {
        client.flush().await.map_err(io::Error::other)?;
        client.get_mut().shutdown().await
    })
    .await;
}

/// Returns the close message of a WebSocket that ends normally.
fn normal_closure_message() -> Message {
    Message::Close(Some(CloseFrame { code: CloseCode::Normal, reason: "".into() }))
}

/// Translates between the WebSocket channels of the client and SPDY streams of the runtime. The first byte of a
/// WebSocket message is the number of its channel. A message on [`CLOSE_CHANNEL`] closes the channel that the message
/// names. Ends when either side ends.
async fn relay_channels<C, R>(
    client: WebSocketStream<C>,
    runtime: R,
    streams: CommandStreams,
) -> io::Result<()>
where
    C: AsyncRead + AsyncWrite + Unpin,
    R: AsyncRead + AsyncWrite,
{
    let (mut from_runtime, to_runtime) = tokio::io::split(runtime);
    let mut to_runtime = spdy::SpdyWriter::new(to_runtime);
    let mut channels: Vec<(u8, StreamId)> = Vec::new();
    let streams_by_channel = [
        (ERROR_CHANNEL, "error", true),
        (STDIN_CHANNEL, "stdin", streams.stdin),
        (STDOUT_CHANNEL, "stdout", streams.stdout),
        (STDERR_CHANNEL, "stderr", streams.stderr),
        (RESIZE_CHANNEL, "resize", streams.tty),
    ];
    for (channel, name, is_enabled) in streams_by_channel {
        if is_enabled {
            channels.push((channel, to_runtime.open_stream(&[("streamtype", name)]).await?));
        }
    }
    let stream_of = |channel: u8| channels.iter().find(|it| it.0 == channel).map(|it| it.1);
    let (mut to_client, mut from_client) = client.split();
    let to_runtime = Mutex::new(to_runtime);
    let inward = async {
        while let Some(message) = from_client.next().await {
            let message = match message.map_err(io::Error::other)? {
                Message::Binary(message) => message,
                // The first character is the channel, as in a binary message. The Python client sends text.
                Message::Text(message) => message.into(),
                Message::Close(_) => break,
                _ => continue,
            };
            let Some((channel, bytes)) = message.split_first() else { continue };
            let (channel, is_last, bytes) = match (*channel, bytes) {
                (CLOSE_CHANNEL, [channel]) => (*channel, true, &[][..]),
                (channel, bytes) => (channel, false, bytes),
            };
            // A client may send on these two channels only.
            if let (STDIN_CHANNEL | RESIZE_CHANNEL, Some(stream)) = (channel, stream_of(channel)) {
                to_runtime.lock().await.send_data(stream, bytes, is_last).await?;
            }
        }
        Ok::<_, io::Error>(())
    };
    let outward = async {
        while let Some(frame) = spdy::read_frame(&mut from_runtime).await? {
            match frame {
                SpdyFrame::Data { stream, bytes, .. } if !bytes.is_empty() => {
                    let Some((channel, _)) = channels.iter().find(|it| it.1 == stream) else { continue };
                    let message: Bytes = [&[*channel][..], &bytes].concat().into();
                    to_client.send(Message::Binary(message)).await.map_err(io::Error::other)?;
                }
                SpdyFrame::Ping { id } => to_runtime.lock().await.send_pong(id).await?,
                SpdyFrame::GoAway => break,
                SpdyFrame::Data { .. } | SpdyFrame::Reset { .. } | SpdyFrame::Other => {}
            }
        }
        to_client.send(normal_closure_message()).await.map_err(io::Error::other)
    };
    let ended = tokio::select! {
        ended = inward => ended,
        ended = outward => ended,
    };
    close_client(to_client, from_client).await;
    ended
}

/// Tunnels SPDY between client and runtime. Copies the content of the client's WebSocket messages to the runtime, and
/// the bytes of the runtime into WebSocket messages.
async fn relay_tunnel<C, R>(client: WebSocketStream<C>, runtime: R) -> io::Result<()>
where
    C: AsyncRead + AsyncWrite + Unpin,
    R: AsyncRead + AsyncWrite,
{
    let (mut from_runtime, mut to_runtime) = tokio::io::split(runtime);
    let (mut to_client, mut from_client) = client.split();
    let inward = async {
        while let Some(message) = from_client.next().await {
            match message.map_err(io::Error::other)? {
                Message::Binary(bytes) => to_runtime.write_all(&bytes).await?,
                Message::Text(_) => {
                    let why = "unexpected text message in a port-forward tunnel";
                    return Err(io::Error::new(io::ErrorKind::InvalidData, why));
                }
                Message::Close(_) => break,
                _ => {}
            }
        }
        Ok::<_, io::Error>(())
    };
    let outward = async {
        let mut buffer = vec![0; TUNNEL_BUFFER_BYTES];
        loop {
            let count = from_runtime.read(&mut buffer).await?;
            if count == 0 {
                return to_client.send(normal_closure_message()).await.map_err(io::Error::other);
            }
            let message = Message::Binary(Bytes::copy_from_slice(&buffer[..count]));
            to_client.send(message).await.map_err(io::Error::other)?;
        }
    };
    let ended = tokio::select! {
        ended = inward => ended,
        ended = outward => ended,
    };
    close_client(to_client, from_client).await;
    ended
}

#[cfg(test)]
mod tests {
    use tokio::io::DuplexStream;

    use super::*;

    async fn ends() -> (WebSocketStream<DuplexStream>, WebSocketStream<DuplexStream>) {
        let (client, agent) = tokio::io::duplex(1 << 16);
        let client = WebSocketStream::from_raw_socket(client, Role::Client, None).await;
        (client, WebSocketStream::from_raw_socket(agent, Role::Server, None).await)
    }

    /// What the runtime gets of the data that is sent to it.
    async fn data(runtime: &mut DuplexStream) -> (Vec<u8>, bool) {
        loop {
            match spdy::read_frame(runtime).await.unwrap() {
                Some(SpdyFrame::Data { bytes, is_last, .. }) => return (bytes.to_vec(), is_last),
                Some(_) => {}
                None => panic!("the connection to the runtime ended"),
            }
        }
    }

    #[tokio::test]
    async fn text_messages_are_standard_input_as_binary_ones_are() {
        let (mut client, agent) = ends().await;
        let (mut runtime, to_runtime) = tokio::io::duplex(1 << 16);
        let streams = CommandStreams { stdin: true, stdout: true, stderr: false, tty: false };
        let translating = tokio::spawn(relay_channels(agent, to_runtime, streams));
        client.send(Message::text("\u{0}as text\n")).await.unwrap();
        assert_eq!(data(&mut runtime).await, (b"as text\n".to_vec(), false));
        client.send(Message::binary(&b"\0as bytes\n"[..])).await.unwrap();
        assert_eq!(data(&mut runtime).await, (b"as bytes\n".to_vec(), false));
        client.send(Message::binary(&[CLOSE_CHANNEL, STDIN_CHANNEL][..])).await.unwrap();
        assert_eq!(data(&mut runtime).await, (Vec::new(), true));
        drop(client);
        let _ = translating.await.unwrap();
    }

    #[tokio::test]
    async fn a_text_message_ends_a_tunnel() {
        let (mut client, agent) = ends().await;
        let (_runtime, to_runtime) = tokio::io::duplex(1 << 16);
        client.send(Message::text("no bytes of SPDY")).await.unwrap();
        let ended = relay_tunnel(agent, to_runtime).await;
        assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
