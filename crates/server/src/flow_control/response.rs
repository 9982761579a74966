//! Sends responses. Unsent bytes are charged to the user, and a client that stops reading cannot hold them for long.
//!
//! Over HTTP/1, a connection sends one response at a time, and `idle_timeout` closes a connection that makes no
//! progress. HTTP/2 has a flow control window for each stream. A client may leave the window of a stream at zero while
//! the connection stays alive. [`StreamExecutor`] resets such a stream.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep};

use super::BodyError;
use super::{UsageKind, UsageLease, UsageTracker};
use crate::request::TrustLevel;

/// Maximum size in bytes of the chunks into which a large data frame of a response is split, so that HTTP/2 buffers at
/// most one chunk for each stream.
const CHUNK_BYTES: usize = 64 << 10;

/// Maximum size in bytes of a small data frame. A larger frame is split into chunks, and charged to the user if it is
/// part of a streamed response. For an unread HTTP/2 stream, `h2` and `hyper` each hold one frame. So the 5,000 watches
/// of one user hold at most 40 MiB of small frames, which are not charged, and all 50,000 watches hold 390 MiB.
pub(crate) const SMALL_FRAME_BYTES_MAX: usize = 4 << 10;

/// Size in bytes of the last chunk of a data frame that is split into chunks. In a streamed response, the charge for a
/// data frame ends when the connection polls for the next data frame. By then, `hyper` has passed the last chunk to
/// `h2`, which it does only when all earlier chunks fit into the window of the stream. The last chunk is small, so that
/// nearly the whole data frame has been sent by then.
const LAST_CHUNK_BYTES: usize = 1 << 10;

/// Minimum average rate at which a client must read a response after `SendRateCheck::initial_timeout`. The streams of
/// watches and logs have no minimum rate.
const MIN_BYTES_PER_SECOND: u64 = 16 << 10;

/// Time without progress after which the HTTP/2 stream of a small response is reset. Any client that reads at all needs
/// far less. A shorter `StreamExecutor::read_timeout` takes precedence.
const SMALL_RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

tokio::task_local! {
    /// The HTTP/2 stream whose task is running.
    static CURRENT_STREAM: Arc<StreamState>;
}

/// Progress of the response on one HTTP/2 stream.
#[derive(Debug, Default)]
struct StreamState {
    /// Whether the server has begun to send the response.
    is_sending: AtomicBool,
    /// Whether the response currently has nothing to send, for example a watch without events.
    is_idle: AtomicBool,
    /// Whether the response is small (at most 64 KiB), so that [`SMALL_RESPONSE_TIMEOUT`] applies to the stream.
    is_small: AtomicBool,
    /// Number of times that the HTTP/2 connection polled for the next frame of the response.
    frames: AtomicU32,
}

/// The usage and permits that a response holds until it is sent.
#[derive(Debug, Default)]
pub(crate) struct ResponseCharges {
    /// Usage that is charged to the user: the unsent bytes, or one small response. `None` if nothing is charged.
    pub(crate) charge: Option<UsageLease>,
    /// Whether the response is charged as a small one (at most 64 KiB), so that [`SMALL_RESPONSE_TIMEOUT`] applies to
    /// it.
    pub(crate) is_small: bool,
    /// Permits of the connection for a large response, one for each KiB.
    pub(crate) connection_kib: Option<tokio::sync::OwnedSemaphorePermit>,
    /// Charges the data frames of a streamed response that are larger than `SMALL_FRAME_BYTES_MAX` to the user while
    /// they are sent. `None` for a response that is not streamed.
    pub(crate) meter: Option<ResponseMeter>,
}

/// Charges unsent response bytes to a user.
#[derive(Debug)]
pub(crate) struct ResponseMeter {
    pub(crate) usage: Arc<UsageTracker>,
    pub(crate) user: String,
    pub(crate) trust: TrustLevel,
}

impl ResponseMeter {
    /// Charges `bytes` to the user. Returns `None` if that would exceed a limit.
    pub(crate) fn charge(&self, bytes: usize) -> Option<UsageLease> {
        self.usage.acquire(&self.user, self.trust, UsageKind::UnsentResponseBytes, bytes)
    }
}

/// The body of a response while it is sent.
#[derive(Debug)]
pub(crate) struct SendingBody<B> {
    body: B,
    /// The part of the current data frame that is not sent yet, if the frame is sent in chunks.
    unsent_frame: Bytes,
    charges: ResponseCharges,
    /// The HTTP/2 stream of the response. `None` over HTTP/1 and for an in-process client.
    stream: Option<Arc<StreamState>>,
    /// Whether data frames of more than `SMALL_FRAME_BYTES_MAX` bytes are split into chunks.
    is_chunked: bool,
    /// Checks that the client reads the response at a minimum rate. `None` for a streamed response, which has no
    /// minimum rate.
    send_rate: Option<SendRateCheck>,
}

/// State of the check that a client reads a response at `MIN_BYTES_PER_SECOND`.
#[derive(Debug)]
struct SendRateCheck {
    /// Time at which the response body was created, which is when the server begins to send it.
    began: Instant,
    /// Time that the client has in addition to the time that `MIN_BYTES_PER_SECOND` allows for the sent bytes.
    initial_timeout: Duration,
    /// Number of bytes that were passed to the connection so far.
    sent_bytes: u64,
}

impl<B> SendingBody<B> {
    /// Creates the body. `is_chunked` is false for an in-process client. `read_timeout` is
    /// `SendRateCheck::initial_timeout`, or `None` for watches and other streams.
    pub(crate) fn new(
        body: B,
        charges: ResponseCharges,
        is_chunked: bool,
        read_timeout: Option<Duration>,
    ) -> Self {
        let stream = CURRENT_STREAM.try_with(Arc::clone).ok();
        if let Some(stream) = &stream {
            stream.is_sending.store(true, Ordering::Relaxed);
            stream.is_small.store(charges.is_small, Ordering::Relaxed);
        }
        let send_rate_check = read_timeout.map(|read_timeout| SendRateCheck {
            began: Instant::now(),
            initial_timeout: read_timeout,
            sent_bytes: 0,
        });
        Self { body, unsent_frame: Bytes::new(), charges, stream, is_chunked, send_rate: send_rate_check }
    }

    /// Removes the next chunk from `unsent_frame` and returns it.
    fn next_chunk(&mut self) -> Bytes {
        let length = match self.unsent_frame.len() {
            length @ 0..=LAST_CHUNK_BYTES => length,
            length => CHUNK_BYTES.min(length - LAST_CHUNK_BYTES),
        };
        self.unsent_frame.split_to(length)
    }

    /// Records in `StreamState::is_idle` whether the response currently has nothing to send.
    fn set_idle(&self, is_idle: bool) {
        if let Some(stream) = &self.stream {
            stream.is_idle.store(is_idle, Ordering::Relaxed);
        }
    }
}

impl<B> Body for SendingBody<B>
where
    B: Body<Data = Bytes, Error: Into<BodyError>> + Unpin,
{
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let response = self.get_mut();
        if let Some(stream) = &response.stream {
            stream.frames.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(send_rate_check) = &response.send_rate
            && 0 < send_rate_check.sent_bytes
            && send_rate_check.initial_timeout
                + Duration::from_millis(send_rate_check.sent_bytes * 1000 / MIN_BYTES_PER_SECOND)
                < send_rate_check.began.elapsed()
        {
            return Poll::Ready(Some(Err("the client reads the response too slowly".into())));
        }
        if response.unsent_frame.is_empty() {
            if response.charges.meter.is_some() {
                response.charges.charge = None;
            }
            // A panic ends this response only, not the connection with its other streams.
            let polled = catch_unwind(AssertUnwindSafe(|| Pin::new(&mut response.body).poll_frame(context)));
            let Ok(polled) = polled else {
                return Poll::Ready(Some(Err("the server panicked while it sent the response".into())));
            };
            let frame = match polled {
                Poll::Pending => {
                    response.set_idle(true);
                    return Poll::Pending;
                }
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Ready(Some(frame)) => frame.map_err(Into::<BodyError>::into)?,
            };
            response.set_idle(false);
            match frame.into_data() {
                Ok(data) if response.is_chunked && SMALL_FRAME_BYTES_MAX < data.len() => {
                    if let Some(meter) = &response.charges.meter {
                        let Some(lease) = meter.charge(data.len()) else {
                            return Poll::Ready(Some(Err(
                                "too many response bytes of this user are unsent".into()
                            )));
                        };
                        response.charges.charge = Some(lease);
                    }
                    response.unsent_frame = data;
                }
                Ok(data) => {
                    if let Some(send_rate_check) = &mut response.send_rate {
                        send_rate_check.sent_bytes += data.len() as u64;
                    }
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
                Err(other) => return Poll::Ready(Some(Ok(other))),
            }
        }
        let chunk = response.next_chunk();
        if let Some(send_rate_check) = &mut response.send_rate {
            send_rate_check.sent_bytes += chunk.len() as u64;
        }
        Poll::Ready(Some(Ok(Frame::data(chunk))))
    }

    fn is_end_stream(&self) -> bool {
        self.unsent_frame.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (mut hint, rest) = (self.body.size_hint(), self.unsent_frame.len() as u64);
        if rest == 0 {
            return hint;
        }
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper + rest);
        }
        hint.set_lower(hint.lower() + rest);
        hint
    }
}

/// Runs each stream of an HTTP/2 connection as a task. Resets a stream whose client reads nothing of its response for
/// `read_timeout`, or for `SMALL_RESPONSE_TIMEOUT` if the response is small and this time is shorter.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StreamExecutor {
    pub(crate) read_timeout: Duration,
}

impl<F> hyper::rt::Executor<F> for StreamExecutor
where
    F: Future<Output: Send> + Send + 'static,
{
    fn execute(&self, stream: F) {
        let read_timeout = self.read_timeout;
        tokio::spawn(async move {
            let state = Arc::new(StreamState::default());
            let mut stream = pin!(stream);
            let mut stall = StreamStallTimer { read_timeout, seen_frames: 0, deadline: None };
            poll_fn(|context| {
                let polled = CURRENT_STREAM.sync_scope(state.clone(), || stream.as_mut().poll(context));
                if polled.is_ready() { Poll::Ready(()) } else { stall.poll(&state, context) }
            })
            .await;
        });
    }
}

/// Ends a stream whose client has not read available data for the timeout of [`StreamExecutor`].
struct StreamStallTimer {
    read_timeout: Duration,
    /// `StreamState::frames` at the last poll. The client has read data if the number has grown.
    seen_frames: u32,
    /// Timer that fires when the client has not read available data for the timeout. `None` while no data is available.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl StreamStallTimer {
    /// Returns `Ready` if the client has not read available data for the timeout. The caller then ends the stream.
    fn poll(&mut self, state: &StreamState, context: &mut Context<'_>) -> Poll<()> {
        if !state.is_sending.load(Ordering::Relaxed) || state.is_idle.load(Ordering::Relaxed) {
            self.deadline = None;
            return Poll::Pending;
        }
        let frames = state.frames.load(Ordering::Relaxed);
        let is_small = state.is_small.load(Ordering::Relaxed);
        let read_timeout =
            if is_small { self.read_timeout.min(SMALL_RESPONSE_TIMEOUT) } else { self.read_timeout };
        match &mut self.deadline {
            Some(ends) if self.seen_frames != frames => ends.as_mut().reset(Instant::now() + read_timeout),
            Some(_) => {}
            None => self.deadline = Some(Box::pin(tokio::time::sleep(read_timeout))),
        }
        self.seen_frames = frames;
        match &mut self.deadline {
            Some(ends) => {
                let ended = ends.as_mut().poll(context);
                if ended.is_ready() {
                    tracing::debug!("resetting a stream whose client does not read the response");
                }
                ended
            }
            None => Poll::Pending,
        }
    }
}
