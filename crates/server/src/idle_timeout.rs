//! The line to a client. It is cut when nothing moves on it any more: what waits to be sent is memory, and a client that
//! does not take it must not hold it for ever.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

#[derive(Debug)]
pub(crate) struct IdleTimeout<S> {
    stream: S,
    sending: StallTimer,
    hearing: Option<StallTimer>,
}

impl<S> IdleTimeout<S> {
    /// A client that takes nothing of what it is sent for `patience` is cut off.
    pub(crate) fn new(stream: S, patience: Duration) -> Self {
        Self { stream, sending: StallTimer::after(patience), hearing: None }
    }

    /// From now on the line is also cut when nothing is heard for so long.
    pub(crate) fn hear_within(&mut self, timeout: Duration) {
        self.hearing = Some(StallTimer::after(timeout));
    }
}

/// For how long a stream has not been ready.
#[derive(Debug)]
struct StallTimer {
    timeout: Duration,
    ends: Option<Pin<Box<Sleep>>>,
}

impl StallTimer {
    fn after(timeout: Duration) -> Self {
        Self { timeout, ends: None }
    }

    fn watch<T>(&mut self, polled: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.ends = None;
            return polled;
        }
        let ends = self.ends.get_or_insert_with(|| Box::pin(tokio::time::sleep(self.timeout)));
        ready!(ends.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "nothing moved on the line for too long")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for IdleTimeout<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let line = self.get_mut();
        let polled = Pin::new(&mut line.stream).poll_read(context, buffer);
        match &mut line.hearing {
            Some(stall) => stall.watch(polled, context),
            None => polled,
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for IdleTimeout<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let line = self.get_mut();
        let polled = Pin::new(&mut line.stream).poll_write(context, bytes);
        line.sending.watch(polled, context)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let line = self.get_mut();
        let polled = Pin::new(&mut line.stream).poll_write_vectored(context, pieces);
        line.sending.watch(polled, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    // A socket has nothing to flush, and is ready even when it takes nothing: that says nothing of the client.
    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}
