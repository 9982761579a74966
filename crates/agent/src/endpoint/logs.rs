//! Container logs in the CRI format: each line is `TIME STREAM TAGS TEXT`, and the tag `P` marks a partial line
//! that the next line continues. Upstream: `kuberuntime/logs`.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use rustix::fs::{Mode, OFlags, ResolveFlags};
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _};
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Maximum number of bytes that are buffered while the end of a line has not been read yet. A longer line is an error.
/// Runtimes do not write such lines, because they split lines at 16 KiB.
const LINE_BYTES_MAX: usize = 256 << 10;

/// Size of the buffer for reading a log file.
const CHUNK_BYTES: usize = 32 << 10;

/// Interval at which a followed log is read for new lines.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(100);
/// Interval at which the state of the container is checked while its log is followed.
const STATE_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Options of a log request. Upstream: `PodLogOptions`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct LogOptions {
    pub(super) follow: bool,
    pub(super) timestamps: bool,
    /// Lines with an earlier or an invalid timestamp are omitted. With `None`, timestamps are not checked.
    pub(super) since: Option<Timestamp>,
    pub(super) tail_lines: Option<u64>,
    /// Maximum number of bytes to send. `None` means no limit. Upstream: `limitBytes`.
    pub(super) bytes_max: Option<u64>,
    /// The stream to send: `stdout`, `stderr`, or both if `None`.
    pub(super) stream: Option<&'static str>,
}

/// A log file: the root directory of logs, and the path of the file relative to it.
#[derive(Debug, Clone)]
pub(super) struct LogFile {
    pub(super) root: PathBuf,
    pub(super) path: PathBuf,
}

impl LogFile {
    /// Opens the log file.
    ///
    /// Rule: a log is a regular file below the root directory of logs. Symbolic links are not followed.
    pub(super) fn open(&self) -> io::Result<File> {
        let root =
            rustix::fs::open(&self.root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let file = File::from(rustix::fs::openat2(root, &self.path, flags, Mode::empty(), resolve)?);
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the log is not a regular file"));
        }
        Ok(file)
    }
}

/// Sends the lines of a log that the options select to the channel `to`. With `follow`, also sends new lines until
/// `is_running` reports that the container has ended, or until the byte limit is reached. If reading fails, sends the
/// error. Ends early if the receiver is closed.
pub(super) async fn send_log<F>(
    file: LogFile,
    options: LogOptions,
    is_running: impl Fn() -> F,
    to: mpsc::Sender<io::Result<Bytes>>,
) where
    F: Future<Output = bool>,
{
    let mut log = LogSender { file, lines: LogLineFilter::new(options.clone()), to: to.clone() };
    tokio::select! {
        // The client has gone.
        () = to.closed() => {}
        sent = log.send_lines(&options, is_running) => if let Err(error) = sent {
            let _ = to.send(Err(error)).await;
        },
    }
}

/// Reads one log file and sends the lines that pass the filter.
struct LogSender {
    file: LogFile,
    lines: LogLineFilter,
    to: mpsc::Sender<io::Result<Bytes>>,
}

impl LogSender {
    /// Sends the lines of the file that pass the filter. With `options.tail_lines`, reads only that many of its last
    /// lines. With `options.follow`, also sends new lines until `is_running` has returned false and the rest of the
    /// file is read, or until the byte limit is reached.
    async fn send_lines<F>(&mut self, options: &LogOptions, is_running: impl Fn() -> F) -> io::Result<()>
    where
        F: Future<Output = bool>,
    {
        let mut file = self.open().await?;
        if let Some(lines) = options.tail_lines {
            let start = tail_offset(&mut file, lines).await?;
            file.seek(io::SeekFrom::Start(start)).await?;
        }
        self.read_available(&mut file).await?;
        if !options.follow {
            return self.send_last_line().await;
        }
        let mut next_state_check = Instant::now();
        let mut was_running = true;
        while !self.lines.is_limit_reached() {
            tokio::time::sleep(FOLLOW_INTERVAL).await;
            let is_more = self.read_available(&mut file).await?;
            if is_more {
                continue;
            }
            // A rotated log continues in a new file of the same name.
            if self.is_rotated(&file).await? {
                self.read_available(&mut file).await?;
                match self.open().await {
                    Ok(next) => {
                        file = next;
                        continue;
                    }
                    // The runtime has not created the new file yet, or the pod's logs are deleted.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => return Err(error),
                }
            }
            if Instant::now() < next_state_check {
                continue;
            }
            if !was_running {
                break;
            }
            // The container's last lines may arrive after its end is known: read once more.
            was_running = is_running().await;
            next_state_check =
                if was_running { Instant::now() + STATE_CHECK_INTERVAL } else { Instant::now() };
        }
        self.send_last_line().await
    }

    /// Opens the log file on the blocking thread pool.
    async fn open(&self) -> io::Result<tokio::fs::File> {
        let place = self.file.clone();
        let opened = tokio::task::spawn_blocking(move || place.open()).await;
        Ok(tokio::fs::File::from_std(opened.map_err(io::Error::other)??))
    }

    /// Whether the log was rotated, so that its path no longer names the open file.
    async fn is_rotated(&self, file: &tokio::fs::File) -> io::Result<bool> {
        let ours = file.metadata().await?;
        match tokio::fs::symlink_metadata(self.file.root.join(&self.file.path)).await {
            Ok(theirs) => Ok((ours.dev(), ours.ino()) != (theirs.dev(), theirs.ino())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Reads the file up to its end or up to the byte limit, and sends the lines that pass the filter. Returns whether
    /// anything was read.
    async fn read_available(&mut self, file: &mut tokio::fs::File) -> io::Result<bool> {
        let mut is_more = false;
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            let count = file.read(&mut chunk).await?;
            if count == 0 || self.lines.is_limit_reached() {
                return Ok(is_more);
            }
            is_more = true;
            let output = self.lines.filter_chunk(&chunk[..count])?;
            self.send_chunk(output).await?;
        }
    }

    /// Sends the last line of the file if it has no newline.
    async fn send_last_line(&mut self) -> io::Result<()> {
        let output = self.lines.flush_last_line();
        self.send_chunk(output).await
    }

    /// Sends a chunk of the response through the channel, unless it is empty.
    async fn send_chunk(&self, output: Vec<u8>) -> io::Result<()> {
        if output.is_empty() {
            return Ok(());
        }
        self.to.send(Ok(output.into())).await.map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

/// Parses the lines of a log, and applies the [`LogOptions`] to them.
struct LogLineFilter {
    options: LogOptions,
    /// Number of bytes that may still be sent.
    bytes_left: u64,
    /// The beginning of a line that has not been read to its end yet.
    unfinished_line: Vec<u8>,
    /// Whether the next line continues the previous line, which had the tag `P` (partial).
    is_continuation_next: bool,
}

impl LogLineFilter {
    fn new(options: LogOptions) -> Self {
        let left = options.bytes_max.unwrap_or(u64::MAX);
        Self { options, bytes_left: left, unfinished_line: Vec::new(), is_continuation_next: false }
    }

    /// Whether `LogOptions::bytes_max` bytes were sent.
    fn is_limit_reached(&self) -> bool {
        self.bytes_left == 0
    }

    /// Filters the next chunk of the log file, and returns the bytes to send. Fails if a line is too long.
    fn filter_chunk(&mut self, chunk: &[u8]) -> io::Result<Vec<u8>> {
        let mut output = Vec::with_capacity(chunk.len());
        for piece in chunk.split_inclusive(|it| *it == b'\n') {
            if piece.last() != Some(&b'\n') {
                if LINE_BYTES_MAX < self.unfinished_line.len() + piece.len() {
                    return Err(io::Error::new(io::ErrorKind::InvalidData, "a line of the log is too long"));
                }
                self.unfinished_line.extend(piece);
            } else if self.unfinished_line.is_empty() {
                self.filter_line(piece, &mut output);
            } else {
                let mut line = std::mem::take(&mut self.unfinished_line);
                line.extend(piece);
                self.filter_line(&line, &mut output);
            }
        }
        Ok(output)
    }

    /// Filters the last line of the file if it has no newline, and returns the bytes to send.
    fn flush_last_line(&mut self) -> Vec<u8> {
        let (line, mut output) = (std::mem::take(&mut self.unfinished_line), Vec::new());
        self.filter_line(&line, &mut output);
        output
    }

    /// Filters one line, and appends the bytes to send to `output`.
    fn filter_line(&mut self, line: &[u8], output: &mut Vec<u8>) {
        // Lines that are not in the CRI format are dropped: they have neither time nor stream.
        let Some(CriLogLine { time, stream, is_partial, text }) = CriLogLine::parse(line) else { return };
        let is_continuation = std::mem::replace(&mut self.is_continuation_next, is_partial);
        if self.options.stream.is_some_and(|it| it.as_bytes() != stream) {
            return;
        }
        let at = || std::str::from_utf8(time).ok()?.parse::<Timestamp>().ok();
        if self.options.since.is_some_and(|since| at().is_none_or(|at| at < since)) {
            return;
        }
        let mut put = |bytes: &[u8]| {
            let count = usize::try_from(self.bytes_left).unwrap_or(usize::MAX).min(bytes.len());
            output.extend(&bytes[..count]);
            self.bytes_left -= count as u64;
        };
        if self.options.timestamps && !is_continuation {
            put(&pad_nanoseconds(time));
            put(b" ");
        }
        put(if is_partial { text.strip_suffix(b"\n").unwrap_or(text) } else { text });
    }
}

/// A line of a log in the CRI format.
struct CriLogLine<'a> {
    time: &'a [u8],
    stream: &'a [u8],
    /// Whether the line has the tag `P`: the next line continues it.
    is_partial: bool,
    text: &'a [u8],
}

impl<'a> CriLogLine<'a> {
    /// Parses one line. Returns `None` if it is not in the CRI format.
    fn parse(line: &'a [u8]) -> Option<Self> {
        let mut parts = line.splitn(4, |it| *it == b' ');
        let (time, stream, tags, text) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        if time.len() < 20 || !matches!(stream, b"stdout" | b"stderr") {
            return None;
        }
        let is_partial = tags.split(|it| *it == b':').next() == Some(b"P");
        Some(Self { time, stream, is_partial, text })
    }
}

/// Pads the fraction of a timestamp to nine digits, so that the columns align. Runtimes omit trailing zeros.
/// Upstream: `RFC3339NanoFixed`.
fn pad_nanoseconds(time: &[u8]) -> Vec<u8> {
    let zone = time.iter().skip(19).position(|it| matches!(it, b'Z' | b'+' | b'-'));
    let (fraction, zone) = time[19..].split_at(zone.unwrap_or(time.len() - 19));
    let mut whole = time[..19].to_vec();
    whole.push(b'.');
    whole.extend(fraction.iter().skip(1).chain([&b'0'; 9]).take(9));
    whole.extend(zone);
    whole
}

/// Returns the offset at which the last `lines` lines of the file begin. Searches backwards from the end, so only the
/// wanted part of the log is read.
async fn tail_offset(file: &mut tokio::fs::File, lines: u64) -> io::Result<u64> {
    let length = file.metadata().await?.len();
    let (mut at, mut found) = (length, 0);
    let mut chunk = vec![0; CHUNK_BYTES];
    while 0 < at {
        let count = at.min(CHUNK_BYTES as u64);
        at -= count;
        file.seek(io::SeekFrom::Start(at)).await?;
        let chunk = &mut chunk[..usize::try_from(count).unwrap_or(CHUNK_BYTES)];
        file.read_exact(chunk).await?;
        for (offset, byte) in chunk.iter().enumerate().rev() {
            let is_last = at + offset as u64 + 1 == length;
            // This newline ends the line before the wanted ones.
            if *byte == b'\n' && !is_last {
                found += 1;
            }
            if found == lines && (*byte == b'\n' || lines == 0) {
                return Ok(at + offset as u64 + 1);
            }
        }
    }
    Ok(0)
}

/// Returns the log file of a container instance: `CONTAINER/ATTEMPT.log` in `pod_dir`, the log directory of the pod.
/// Returns `None` if `pod_dir` is not below `root`, the directory of all logs, or if `container` is not a valid file
/// name: it is empty, `.` or `..`, or contains a slash.
pub(super) fn log_file(root: &Path, pod_dir: &Path, container: &str, attempt: u32) -> Option<LogFile> {
    let dir = pod_dir.strip_prefix(root).ok()?;
    let is_name = |it: &str| !it.is_empty() && !it.contains('/') && it != "." && it != "..";
    is_name(container)
        .then(|| LogFile { root: root.to_owned(), path: dir.join(container).join(format!("{attempt}.log")) })
}

#[cfg(test)]
mod tests;
