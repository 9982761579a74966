//! Watches over a WebSocket: each message is one watch event.

use std::io;

use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{SinkExt as _, StreamExt as _};
use hyper::StatusCode;
use hyper::header::{
    CONNECTION, HeaderMap, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    UPGRADE,
};
use hyper_util::rt::TokioIo;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};

use super::ApiResponse;
use super::agent::ClientUpgrade;
use super::reply::{TEXT_PLAIN, full_response};
use crate::error::ApiError;
use crate::flow_control::response::{ResponseMeter, SMALL_FRAME_BYTES_MAX};
use crate::headers;

/// Maximum number of bytes of a message that the client of a watch sends. Such a client sends only pings and the close
/// frame.
const CLIENT_MESSAGE_BYTES_MAX: usize = 4 << 10;

/// Serves a watch over a WebSocket. Starts a task that sends each line of `events` (one watch event as JSON) as a text
/// message, and returns the response that upgrades the connection. The task ends when the events end or the client
/// disconnects.
///
/// The server confirms the first subprotocol that the client offers. The subprotocol has no effect on the messages.
/// Upstream: `WatchServer.HandleWS`.
///
/// Rule: an item of `events` that is larger than `SMALL_FRAME_BYTES_MAX` is charged to the user until it has been sent.
/// The watch ends if the charge would exceed a limit of the user. The same rule applies to watches without a WebSocket.
pub(super) fn serve_watch(
    upgrade: &ClientUpgrade,
    events: BoxStream<'static, Bytes>,
    meter: ResponseMeter,
) -> Result<ApiResponse, ApiError> {
    let accept = match headers::header_text(&upgrade.headers, SEC_WEBSOCKET_KEY) {
        "" => return Err(ApiError::bad_request("Sec-WebSocket-Key is missing")),
        key => derive_accept_key(key.as_bytes()),
    };
    let offered: Vec<&str> = headers::header_texts(&upgrade.headers, SEC_WEBSOCKET_PROTOCOL)
        .flat_map(|it| it.split(','))
        .map(str::trim)
        .filter(|it| !it.is_empty())
        .collect();
    let mut headers = HeaderMap::new();
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    let accept = HeaderValue::from_str(&accept).ok();
    headers.extend(accept.map(|it| (SEC_WEBSOCKET_ACCEPT, it)));
    let confirmed = offered.first().and_then(|it| HeaderValue::from_str(it).ok());
    headers.extend(confirmed.map(|it| (SEC_WEBSOCKET_PROTOCOL, it)));

    let (becomes, held) = (upgrade.upgraded.clone(), upgrade.connection_guard.clone());
    tokio::spawn(async move {
        let _held = held;
        let sent = async { send_events(becomes.await.map_err(io::Error::other)?, events, meter).await };
        if let Err(error) = sent.await {
            tracing::debug!(%error, "a watch over a WebSocket ended early");
        }
    });
    let mut response = full_response(StatusCode::SWITCHING_PROTOCOLS, TEXT_PLAIN, Bytes::new());
    *response.headers_mut() = headers;
    Ok(response)
}

/// Sends each line of `events` as a message, and closes the WebSocket after the last line. Ends early if the client
/// disconnects.
async fn send_events(
    client: hyper::upgrade::Upgraded,
    mut events: BoxStream<'static, Bytes>,
    meter: ResponseMeter,
) -> io::Result<()> {
    let config = WebSocketConfig::default()
        .max_message_size(Some(CLIENT_MESSAGE_BYTES_MAX))
        .max_frame_size(Some(CLIENT_MESSAGE_BYTES_MAX));
    let client = WebSocketStream::from_raw_socket(TokioIo::new(client), Role::Server, Some(config)).await;
    let (mut to, mut from) = client.split();
    // Reading responds to pings, and detects that the client has disconnected.
    let disconnected = async { while let Some(Ok(_)) = from.next().await {} };
    let sent = async {
        while let Some(lines) = events.next().await {
            let _charge =
                match lines.len() {
                    0..=SMALL_FRAME_BYTES_MAX => None,
                    bytes => Some(meter.charge(bytes).ok_or_else(|| {
                        io::Error::other("too many response bytes of this user are unsent")
                    })?),
                };
            for line in lines.split_inclusive(|it| *it == b'\n') {
                let line = std::str::from_utf8(line).map_err(io::Error::other)?;
                to.feed(Message::text(line)).await.map_err(io::Error::other)?;
            }
            to.flush().await.map_err(io::Error::other)?;
        }
        let end = CloseFrame { code: CloseCode::Normal, reason: "".into() };
        to.send(Message::Close(Some(end))).await.map_err(io::Error::other)
    };
    tokio::select! {
        () = disconnected => Ok(()),
        sent = sent => sent,
    }
}
