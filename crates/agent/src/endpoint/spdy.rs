//! The part of SPDY/3.1 that is needed to open streams to a container runtime.
//!
//! Headers are compressed with one zlib stream per connection. The writer sends them as stored (uncompressed) blocks,
//! which every receiver accepts, so the SPDY dictionary is not needed. Received headers are not decompressed, because
//! nothing in them is needed.

use std::io;

use bytes::{BufMut as _, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// Maximum size of a frame. A larger frame is rejected. Runtimes send at most 32 KiB in one frame, far below this
/// limit.
const FRAME_BYTES_MAX: usize = 1 << 20;

/// Bit of the first word of a frame that marks a control frame.
const CONTROL_BIT: u16 = 0x8000;
/// Version in control frames. SPDY/3.1 has the version number 3.
const SPDY_VERSION: u16 = 3;
/// Type of a control frame that opens a stream.
const SYN_STREAM: u16 = 1;
/// Type of a control frame that aborts a stream.
const RST_STREAM: u16 = 3;
/// Type of a control frame that the receiver echoes.
const PING: u16 = 6;
/// Type of a control frame that announces the end of the connection.
const GOAWAY: u16 = 7;
/// Flag of the last frame of a stream.
const FLAG_FIN: u8 = 1;

/// ID of a stream. The IDs of the streams that this side of the connection opens are odd and ascending.
pub(super) type StreamId = u32;

/// A received frame.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SpdyFrame {
    /// Data of a stream.
    Data { stream: StreamId, bytes: Bytes, is_last: bool },
    /// `RST_STREAM`: the peer aborted the stream.
    Reset { stream: StreamId },
    /// A ping, which must be echoed with the same ID.
    Ping { id: u32 },
    /// `GOAWAY`: the peer ends the connection.
    GoAway,
    /// A frame that needs no action.
    Other,
}

/// Opens streams and writes frames.
pub(super) struct SpdyWriter<W> {
    to: W,
    /// Number of opened streams, from which the next stream ID is computed.
    streams_opened: u32,
}

impl<W: AsyncWrite + Unpin> SpdyWriter<W> {
    pub(super) fn new(to: W) -> Self {
        Self { to, streams_opened: 0 }
    }

    /// Opens a stream with these headers, and returns its ID. Header names must be in lower case.
    pub(super) async fn open_stream(&mut self, headers: &[(&str, &str)]) -> io::Result<StreamId> {
        let stream = self.streams_opened * 2 + 1;
        let block = encode_headers(headers, self.streams_opened == 0);
        self.streams_opened += 1;
        let mut frame = BytesMut::with_capacity(18 + block.len());
        let length = 10 + block.len();
        put_control_header(&mut frame, SYN_STREAM, 0, length);
        frame.put_u32(stream);
        // No associated stream, no priority, no slot.
        frame.put_u32(0);
        frame.put_u16(0);
        frame.put_slice(&block);
        self.to.write_all(&frame).await?;
        Ok(stream)
    }

    /// Sends data on a stream, in frames of at most [`FRAME_BYTES_MAX`]. If `is_last` is true, closes this side of the
    /// stream.
    pub(super) async fn send_data(
        &mut self,
        stream: StreamId,
        bytes: &[u8],
        is_last: bool,
    ) -> io::Result<()> {
        let chunks = bytes.chunks(FRAME_BYTES_MAX);
        let count = chunks.len();
        for (at, chunk) in chunks.enumerate() {
            self.write_data_frame(stream, chunk, is_last && at + 1 == count).await?;
        }
        if bytes.is_empty() && is_last {
            self.write_data_frame(stream, &[], true).await?;
        }
        Ok(())
    }

    /// Writes one data frame.
    async fn write_data_frame(&mut self, stream: StreamId, bytes: &[u8], is_last: bool) -> io::Result<()> {
        let mut frame = BytesMut::with_capacity(8 + bytes.len());
        frame.put_u32(stream);
        put_flags_and_length(&mut frame, if is_last { FLAG_FIN } else { 0 }, bytes.len());
        frame.put_slice(bytes);
        self.to.write_all(&frame).await
    }

    /// Echoes a ping.
    pub(super) async fn send_pong(&mut self, id: u32) -> io::Result<()> {
        let mut frame = BytesMut::with_capacity(12);
        put_control_header(&mut frame, PING, 0, 4);
        frame.put_u32(id);
        self.to.write_all(&frame).await
    }
}

/// Reads the next frame. Returns `None` if the peer has closed the connection. Fails if the frame is larger than
/// [`FRAME_BYTES_MAX`].
pub(super) async fn read_frame<R: AsyncRead + Unpin>(from: &mut R) -> io::Result<Option<SpdyFrame>> {
    let mut head = [0; 8];
    match from.read_exact(&mut head).await {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let length = usize::from(head[5]) << 16 | usize::from(head[6]) << 8 | usize::from(head[7]);
    if FRAME_BYTES_MAX < length {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("a SPDY frame of {length} bytes is too large"),
        ));
    }
    let mut body = vec![0; length];
    from.read_exact(&mut body).await?;
    let word =
        |at: usize| body.get(at..at + 4).and_then(|it| it.try_into().ok()).map_or(0, u32::from_be_bytes);
    let first = u16::from_be_bytes([head[0], head[1]]);
    if first & CONTROL_BIT == 0 {
        let stream = u32::from_be_bytes([head[0], head[1], head[2], head[3]]);
        return Ok(Some(SpdyFrame::Data { stream, bytes: body.into(), is_last: head[4] & FLAG_FIN != 0 }));
    }
    Ok(Some(match u16::from_be_bytes([head[2], head[3]]) {
        RST_STREAM => SpdyFrame::Reset { stream: word(0) & 0x7fff_ffff },
        PING => SpdyFrame::Ping { id: word(0) },
        GOAWAY => SpdyFrame::GoAway,
        _ => SpdyFrame::Other,
    }))
}

/// Appends the header of a control frame of type `kind`. `length` is the length of the payload.
fn put_control_header(frame: &mut BytesMut, kind: u16, flags: u8, length: usize) {
    frame.put_u16(CONTROL_BIT | SPDY_VERSION);
    frame.put_u16(kind);
    put_flags_and_length(frame, flags, length);
}

/// Appends the flags and the payload length, which are the second word of a frame's header.
fn put_flags_and_length(frame: &mut BytesMut, flags: u8, length: usize) {
    debug_assert!(length < 1 << 24);
    let length = u32::try_from(length).unwrap_or(u32::MAX) & 0x00ff_ffff;
    frame.put_u32(u32::from(flags) << 24 | length);
}

/// Encodes the headers of a stream as stored blocks of the connection's zlib stream. An empty block at the end flushes
/// the zlib stream, because the receiver would otherwise wait for more data. If `is_first` is true, for the first
/// stream of the connection, the zlib header is added.
fn encode_headers(headers: &[(&str, &str)], is_first: bool) -> Vec<u8> {
    let mut plain = Vec::new();
    let put = |plain: &mut Vec<u8>, text: &str| {
        plain.put_u32(u32::try_from(text.len()).unwrap_or(u32::MAX));
        plain.put_slice(text.as_bytes());
    };
    plain.put_u32(u32::try_from(headers.len()).unwrap_or(u32::MAX));
    for (name, value) in headers {
        put(&mut plain, name);
        put(&mut plain, value);
    }
    let mut block = if is_first { vec![0x78, 0x01] } else { Vec::new() };
    // A stored block has at most 65,535 bytes.
    for stored in plain.chunks(usize::from(u16::MAX)).chain([&[][..]]) {
        let length = u16::try_from(stored.len()).unwrap_or(u16::MAX);
        block.push(0);
        block.put_u16_le(length);
        block.put_u16_le(!length);
        block.put_slice(stored);
    }
    block
}

#[cfg(test)]
mod tests {
    use flate2::{Decompress, FlushDecompress};

    use super::*;

    #[tokio::test]
    async fn headers_are_one_zlib_stream_for_the_connection() {
        let (mut sent, mut zlib, mut said) = (Vec::new(), Decompress::new(true), Vec::new());
        let mut writer = SpdyWriter::new(&mut sent);
        for name in ["error", "stdin"] {
            writer.open_stream(&[("streamtype", name)]).await.unwrap();
        }
        let mut rest = &sent[..];
        while !rest.is_empty() {
            assert_eq!(rest[..4], [0x80, 3, 0, 1], "a control frame of version 3 that begins a stream");
            let length = usize::from(rest[6]) << 8 | usize::from(rest[7]);
            let (frame, behind) = rest[8..].split_at(length);
            rest = behind;
            let mut plain = Vec::with_capacity(100);
            zlib.decompress_vec(&frame[10..], &mut plain, FlushDecompress::Sync).unwrap();
            said.push((frame[3], String::from_utf8_lossy(&plain).replace('\0', ".")));
        }
        let expected = |name: &str| format!("...\u{1}...\u{a}streamtype...\u{5}{name}");
        assert_eq!(said, [(1, expected("error")), (3, expected("stdin"))]);
    }

    #[tokio::test]
    async fn frames_are_read_as_they_are_written() {
        let mut sent = Vec::new();
        let mut writer = SpdyWriter::new(&mut sent);
        writer.open_stream(&[]).await.unwrap();
        writer.send_data(1, b"hello", false).await.unwrap();
        writer.send_data(1, b"", true).await.unwrap();
        writer.send_pong(7).await.unwrap();
        sent.extend([0x80, 3, 0, 3, 0, 0, 0, 8, 0, 0, 0, 5, 0, 0, 0, 1, 0x80, 3, 0, 7, 0, 0, 0, 0]);
        let (mut from, mut frames) = (&sent[..], Vec::new());
        while let Some(frame) = read_frame(&mut from).await.unwrap() {
            frames.push(frame);
        }
        let data =
            |bytes: &'static [u8], is_last| SpdyFrame::Data { stream: 1, bytes: bytes.into(), is_last };
        let expected = [
            SpdyFrame::Other,
            data(b"hello", false),
            data(b"", true),
            SpdyFrame::Ping { id: 7 },
            SpdyFrame::Reset { stream: 5 },
            SpdyFrame::GoAway,
        ];
        assert_eq!(frames, expected);
    }

    #[tokio::test]
    async fn an_invalid_frame_is_an_error_and_allocates_nothing() {
        for bytes in [&[0, 0, 0, 1, 0, 0xff, 0xff, 0xff][..], &[0, 0, 0, 1, 0, 0, 0, 9, 1][..]] {
            let mut from = bytes;
            assert!(read_frame(&mut from).await.is_err(), "{bytes:?}");
        }
        let mut cut = &[0x80, 3][..];
        assert_eq!(read_frame(&mut cut).await.unwrap(), None);
    }
}
