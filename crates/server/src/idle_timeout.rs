//! Closes connections that make no progress. Unsent data occupies memory, and a client that stops reading must not
//! occupy memory forever.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// A stream whose writes fail if they make no progress for the timeout. Reads have a timeout only after a call of
/// [`IdleTimeoutStream::set_read_timeout`].
#[derive(Debug)]
pub(crate) struct IdleTimeoutStream<S> {
    stream: S,
    /// Fails a write that makes no progress.
    write_timer: StallTimer,
    /// Fails a read for which no data arrives. `None` if reads have no timeout.
    read_timer: Option<StallTimer>,
}

impl<S> IdleTimeoutStream<S> {
    /// Wraps `stream` so that a write fails if the peer reads nothing for `timeout`.
    pub(crate) fn new(stream: S, timeout: Duration) -> Self {
        Self { stream, write_timer: StallTimer::new(timeout), read_timer: None }
    }

    /// Sets the read timeout: a read fails if nothing arrives for `timeout`. Without a read timeout, only writes time
    /// out.
    pub(crate) fn set_read_timeout(&mut self, timeout: Duration) {
        self.read_timer = Some(StallTimer::new(timeout));
    }
}

/// Fails a read or write that has been pending for too long.
#[derive(Debug)]
struct StallTimer {
    timeout: Duration,
    /// Timer that fires when the operation has been pending for `timeout`. `None` while no operation is pending.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl StallTimer {
    fn new(timeout: Duration) -> Self {
        Self { timeout, deadline: None }
    }

    /// Returns `polled`, the result of polling a read or write. Returns an error instead if the operation has been
    /// pending for the timeout.
    fn poll_or_time_out<T>(
        &mut self,
        polled: Poll<io::Result<T>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.deadline = None;
            return polled;
        }
        let ends = self.deadline.get_or_insert_with(|| Box::pin(tokio::time::sleep(self.timeout)));
        ready!(ends.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the connection made no progress for too long",
        )))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for IdleTimeoutStream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let connection = self.get_mut();
        let polled = Pin::new(&mut connection.stream).poll_read(context, buffer);
        match &mut connection.read_timer {
            Some(stall) => stall.poll_or_time_out(polled, context),
            None => polled,
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for IdleTimeoutStream<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let connection = self.get_mut();
        let polled = Pin::new(&mut connection.stream).poll_write(context, bytes);
        connection.write_timer.poll_or_time_out(polled, context)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let connection = self.get_mut();
        let polled = Pin::new(&mut connection.stream).poll_write_vectored(context, pieces);
        connection.write_timer.poll_or_time_out(polled, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    // Flushing a socket is always ready, also if the client reads nothing, so it is not measured.
    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}
