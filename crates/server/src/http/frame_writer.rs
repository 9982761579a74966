//! Writes the data for a WebSocket client so that no write contains bytes of two WebSocket frames.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Maximum number of bytes in the header of a WebSocket frame, without the mask.
const HEADER_BYTES_MAX: usize = 10;

/// A client's connection after an upgrade to a WebSocket. No write contains bytes of two frames, so that no TLS record
/// does.
///
/// The Python client of Kubernetes waits until the socket is readable before it reads a frame. It misses a frame that
/// came in the same TLS record as the one before, because OpenSSL has already read it from the socket. kube-apiserver
/// writes each frame separately.
#[derive(Debug)]
pub(super) struct FrameWriter<T> {
    connection: T,
    position: FramePosition,
}

impl<T> FrameWriter<T> {
    pub(super) fn new(connection: T) -> Self {
        Self { connection, position: FramePosition::default() }
    }
}

/// Position in a stream of WebSocket frames (RFC 6455, section 5.2).
#[derive(Debug, Clone, Copy, Default)]
struct FramePosition {
    /// The bytes of the current frame's header that have been seen, if the header is incomplete.
    header: [u8; HEADER_BYTES_MAX],
    header_length: usize,
    /// Number of bytes after the current frame's header (its mask and payload) that have not been seen yet.
    rest: u64,
}

impl FramePosition {
    /// Advances the position over `bytes` to the end of the current frame, or over all of `bytes` if the frame does not
    /// end there. Returns the number of bytes that it advanced.
    fn advance(&mut self, bytes: &[u8]) -> usize {
        let mut count = 0;
        while self.rest == 0 {
            let Some(byte) = bytes.get(count) else { return count };
            self.header[self.header_length] = *byte;
            self.header_length += 1;
            count += 1;
            if let Some(rest) = bytes_after_header(&self.header[..self.header_length]) {
                self.header_length = 0;
                self.rest = rest;
                break;
            }
        }
        let rest = usize::try_from(self.rest).unwrap_or(usize::MAX).min(bytes.len() - count);
        self.rest -= rest as u64;
        count + rest
    }
}

/// Returns the number of bytes that follow the header of a frame: its mask and its payload. Returns `None` if the
/// header is incomplete.
fn bytes_after_header(header: &[u8]) -> Option<u64> {
    let second = *header.get(1)?;
    let payload = match second & 0x7f {
        126 => u64::from(u16::from_be_bytes(header.get(2..4)?.try_into().ok()?)),
        127 => u64::from_be_bytes(header.get(2..HEADER_BYTES_MAX)?.try_into().ok()?),
        length => u64::from(length),
    };
    let mask = if second & 0x80 == 0 { 0 } else { 4 };
    Some(payload.saturating_add(mask))
}

impl<T: AsyncWrite + Unpin> AsyncWrite for FrameWriter<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut end = self.position;
        let in_frame = end.advance(bytes);
        let written = ready!(Pin::new(&mut self.connection).poll_write(cx, &bytes[..in_frame]))?;
        self.position.advance(&bytes[..written]);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_shutdown(cx)
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for FrameWriter<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_read(cx, buffer)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    /// Keeps what each write contains. Takes at most `max` bytes at once.
    struct Writes {
        all: Vec<Vec<u8>>,
        max: usize,
    }

    impl AsyncWrite for Writes {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            let count = bytes.len().min(self.max);
            self.all.push(bytes[..count].to_vec());
            Poll::Ready(Ok(count))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    fn frame(payload: usize, is_masked: bool) -> Vec<u8> {
        let mask = if is_masked { 0x80 } else { 0 };
        let mut bytes = match payload {
            0..126 => vec![0x82, mask | payload as u8],
            126..0x1_0000 => [&[0x82, mask | 126][..], &(payload as u16).to_be_bytes()].concat(),
            _ => [&[0x82, mask | 127][..], &(payload as u64).to_be_bytes()].concat(),
        };
        bytes.extend(vec![0xff; payload + if is_masked { 4 } else { 0 }]);
        bytes
    }

    #[tokio::test]
    async fn no_write_contains_bytes_of_two_frames() {
        let payloads = [4, 0, 125, 126, 0, 0xffff, 0x1_0000, 1];
        for is_masked in [false, true] {
            let frames = payloads.map(|it| frame(it, is_masked));
            let mut writer = FrameWriter::new(Writes { all: Vec::new(), max: usize::MAX });
            writer.write_all(&frames.concat()).await.unwrap();
            assert_eq!(writer.connection.all, frames);

            // However the stream is cut, and however little a write takes.
            for (cut, max) in [(1, 1), (3, 2), (7, 5), (1_000, usize::MAX)] {
                let mut writer = FrameWriter::new(Writes { all: Vec::new(), max });
                for piece in frames.concat().chunks(cut) {
                    writer.write_all(piece).await.unwrap();
                }
                let mut writes = writer.connection.all.into_iter();
                for frame in &frames {
                    let mut written = Vec::new();
                    while written.len() < frame.len() {
                        written.extend(writes.next().unwrap());
                    }
                    assert!(written == *frame, "cut every {cut}, at most {max}: {} bytes", frame.len());
                }
                assert_eq!(writes.next(), None);
            }
        }
    }
}
