//! Writes to standard error and standard output.
//!
//! Rule: writing to standard error never blocks or ends the process, even if standard error is a file on a full disk, a
//! closed pipe, or a pipe that is not read. Log lines and messages pass through one bounded queue to a writer thread. A
//! line that cannot be queued is dropped. Of the lines that cannot be written, the first one is kept and the others are
//! dropped. When writing succeeds again, the kept line and the number of dropped lines are written.
//!
//! Rule: if standard output cannot be written, a command still finishes its work, see [`print_to_stdout`].

use std::fmt::Display;
use std::io::{self, Write, stderr, stdout};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use anyhow::anyhow;
use tracing_subscriber::fmt::MakeWriter;

/// Capacity of the queue to the writer thread, in lines. With [`LINE_BYTES_MAX`], queued lines take at most 8 MiB.
const QUEUED_LINES_MAX: usize = 1024;
/// Maximum length of a log line in bytes. A longer line is truncated.
const LINE_BYTES_MAX: usize = 8 * 1024;

/// Interval at which a failed write to standard error is retried while no new line is queued.
const WRITE_RETRY_INTERVAL: Duration = Duration::from_secs(2);

/// Maximum time for which [`flush`] and [`print_ready_line`] wait until their lines are written.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);
/// Interval between attempts to add a flush message to a full queue.
const FLUSH_RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// The first error of [`print_to_stdout`].
static STDOUT_ERROR: OnceLock<io::Error> = OnceLock::new();

/// The queue of lines for standard error. Empty until the writer thread is started.
static STDERR_QUEUE: OnceLock<StderrQueue> = OnceLock::new();

/// Sender of the queue to the thread that writes standard error.
#[derive(Debug, Clone)]
pub(super) struct StderrQueue(SyncSender<QueueMessage>);

/// A message to the thread that writes standard error.
#[derive(Debug)]
enum QueueMessage {
    Line(Vec<u8>),
    /// A request that is acknowledged after the thread has tried to write all earlier lines.
    Flush(SyncSender<()>),
}

/// Formats the line that reports this number of dropped lines. Set by [`init`](super::init) for the log format; until
/// then, the line is text.
static DROPPED_LINES_FORMAT: OnceLock<fn(u64) -> String> = OnceLock::new();

/// Number of lines that were dropped, because the queue was full or a write failed, and that are not reported yet.
static DROPPED_LINES: AtomicU64 = AtomicU64::new(0);

impl StderrQueue {
    /// Returns the queue of this process. The first call creates it and starts the writer thread. If the thread cannot
    /// be started, lines are dropped.
    pub(super) fn get_or_start() -> Self {
        let started = || {
            let (sender, messages) = sync_channel(QUEUED_LINES_MAX);
            let format = |count| DROPPED_LINES_FORMAT.get().copied().unwrap_or(dropped_lines_text)(count);
            let write = move || write_queued_lines(&messages, &mut stderr(), &DROPPED_LINES, format);
            let _ = std::thread::Builder::new().name("log".into()).spawn(write);
            Self(sender)
        };
        STDERR_QUEUE.get_or_init(started).clone()
    }

    /// Queues a line. If the queue is full, or the thread does not run, the line is dropped and counted.
    fn send(&self, line: Vec<u8>) {
        if self.0.try_send(QueueMessage::Line(line)).is_err() {
            DROPPED_LINES.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Sets how the number of dropped lines is formatted.
pub(super) fn set_dropped_lines_format(format: fn(u64) -> String) {
    let _ = DROPPED_LINES_FORMAT.set(format);
}

/// Returns the line of text that reports the number of dropped lines.
pub(super) fn dropped_lines_text(count: u64) -> String {
    format!("muster: {count} log lines could not be written\n")
}

/// Waits until the thread has tried to write all queued lines, at most [`FLUSH_TIMEOUT`].
pub(crate) fn flush() {
    let Some(output) = STDERR_QUEUE.get() else { return };
    let deadline = Instant::now() + FLUSH_TIMEOUT;
    let (done, flushed) = sync_channel(1);
    let mut message = QueueMessage::Flush(done);
    while let Err(TrySendError::Full(rejected)) = output.0.try_send(message) {
        if deadline <= Instant::now() {
            return;
        }
        std::thread::sleep(FLUSH_RETRY_INTERVAL);
        message = rejected;
    }
    let _ = flushed.recv_timeout(deadline.saturating_duration_since(Instant::now()));
}

/// Prints lines to standard output, for commands that exit when their work is done. After the first error, which
/// [`stdout_result`] returns, nothing more is printed.
pub(crate) fn print_to_stdout(text: impl Display) {
    if STDOUT_ERROR.get().is_none()
        && let Err(error) = write_stdout(&with_newline(text))
    {
        let _ = STDOUT_ERROR.set(error);
    }
}

/// Returns the first error of [`print_to_stdout`]. A closed pipe is not an error, because a reader such as `head` has
/// read enough.
pub(crate) fn stdout_result() -> anyhow::Result<()> {
    match STDOUT_ERROR.get() {
        Some(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(anyhow!("cannot write to standard output: {error}"))
        }
        _ => Ok(()),
    }
}

/// Prints the `ready:` line of a long-running process. Errors are ignored. If standard output blocks, the function
/// waits at most [`FLUSH_TIMEOUT`].
pub(crate) fn print_ready_line(line: impl Display) {
    let line = with_newline(line);
    let (done, written) = sync_channel(1);
    let write = move || {
        let _ = write_stdout(&line);
        let _ = done.try_send(());
    };
    if std::thread::Builder::new().name("stdout".into()).spawn(write).is_ok() {
        let _ = written.recv_timeout(FLUSH_TIMEOUT);
    }
}

/// Prints lines to standard error through the log queue. Call [`flush`] before the process exits.
pub(crate) fn print_to_stderr(text: impl Display) {
    StderrQueue::get_or_start().send(with_newline(text).into_bytes());
}

/// Replaces the current line of the terminal on standard error.
pub(crate) fn overwrite_terminal_line(line: impl Display) {
    StderrQueue::get_or_start().send(format!("\r{line}\x1b[K").into_bytes());
}

/// Appends a newline to a text that does not end with a newline. An empty text stays empty.
fn with_newline(text: impl Display) -> String {
    let mut text = text.to_string();
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

fn write_stdout(text: &str) -> io::Result<()> {
    let mut out = stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

impl<'a> MakeWriter<'a> for StderrQueue {
    type Writer = &'a Self;

    fn make_writer(&'a self) -> Self::Writer {
        self
    }
}

impl Write for &StderrQueue {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if line.is_empty() {
            return Ok(0);
        }
        self.send(if line.len() <= LINE_BYTES_MAX { line.to_vec() } else { truncate_line(line) });
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Truncates a line to [`LINE_BYTES_MAX`] at a UTF-8 character boundary, and marks the cut with `…`.
fn truncate_line(line: &[u8]) -> Vec<u8> {
    let mut kept = String::from_utf8_lossy(&line[..LINE_BYTES_MAX]).trim_end_matches('\u{fffd}').to_owned();
    kept += "…\n";
    kept.into_bytes()
}

/// Writes the queued lines until all senders are dropped. It is the body of the writer thread.
fn write_queued_lines(
    messages: &Receiver<QueueMessage>,
    out: &mut impl Write,
    dropped: &AtomicU64,
    format_dropped: fn(u64) -> String,
) {
    let mut backlog = UnwrittenLines { first: None, dropped, format_dropped };
    loop {
        let next = match backlog.is_empty() {
            true => messages.recv().map_err(|_| RecvTimeoutError::Disconnected),
            false => messages.recv_timeout(WRITE_RETRY_INTERVAL),
        };
        match next {
            Ok(QueueMessage::Line(line)) => {
                if !backlog.write_summary(out) || out.write_all(&line).is_err() {
                    backlog.add_line(line);
                }
            }
            Ok(QueueMessage::Flush(done)) => {
                backlog.write_summary(out);
                let _ = done.try_send(());
            }
            Err(RecvTimeoutError::Timeout) => drop(backlog.write_summary(out)),
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
}

/// The lines that could not be written to standard error and are not reported yet.
struct UnwrittenLines<'a> {
    /// The first line that could not be written, which usually names the cause. `None` if there is none.
    first: Option<Vec<u8>>,
    /// Number of other lines that were dropped, because the queue was full or a write failed.
    dropped: &'a AtomicU64,
    /// Formats the line that reports the number of dropped lines.
    format_dropped: fn(u64) -> String,
}

impl UnwrittenLines<'_> {
    /// Whether there is no unwritten line, and no dropped line to report.
    fn is_empty(&self) -> bool {
        self.first.is_none() && self.dropped.load(Ordering::Relaxed) == 0
    }

    /// Keeps the first line that could not be written, and counts every other line.
    fn add_line(&mut self, line: Vec<u8>) {
        if self.first.is_none() {
            self.first = Some(line);
        } else {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Writes the first unwritten line and the number of dropped lines. Returns `true` if all of it was written, or if
    /// there was nothing to write.
    fn write_summary(&mut self, out: &mut impl Write) -> bool {
        if let Some(line) = &self.first {
            if out.write_all(line).is_err() {
                return false;
            }
            self.first = None;
        }
        let count = self.dropped.swap(0, Ordering::Relaxed);
        if 0 < count && out.write_all((self.format_dropped)(count).as_bytes()).is_err() {
            self.dropped.fetch_add(count, Ordering::Relaxed);
            return false;
        }
        true
    }
}

/// Formats rows as text with aligned columns.
pub(crate) fn aligned_table<const COLUMNS: usize>(rows: &[[String; COLUMNS]]) -> String {
    let width = |column: usize| rows.iter().map(|it| it[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..COLUMNS).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:width$}"));
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn columns_are_aligned() {
        let rows = [["A", "B"], ["long", "-"], ["x", "y"]].map(|it| it.map(str::to_owned));
        assert_eq!(aligned_table(&rows), "A     B\nlong  -\nx     y\n");
    }

    /// Fails while it is full.
    struct Disk {
        is_full: bool,
        written: String,
    }

    impl Write for Disk {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            if self.is_full {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.written += str::from_utf8(line).unwrap();
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_that_cannot_be_written_are_dropped_and_counted() {
        let (mut disk, dropped) = (Disk { is_full: true, written: String::new() }, AtomicU64::new(0));
        let write = |disk: &mut Disk, lines: &[&str]| {
            let (sender, messages) = sync_channel(10);
            lines.iter().for_each(|it| sender.send(QueueMessage::Line(it.as_bytes().to_vec())).unwrap());
            drop(sender);
            write_queued_lines(&messages, disk, &dropped, dropped_lines_text);
        };
        write(&mut disk, &["one\n", "two\n", "three\n"]);
        disk.is_full = false;
        write(&mut disk, &["four\n"]);
        assert_eq!(disk.written, "muster: 2 log lines could not be written\nfour\n");
    }

    #[test]
    fn dropped_lines_are_reported_in_the_log_format() {
        let (mut disk, dropped) = (Disk { is_full: false, written: String::new() }, AtomicU64::new(3));
        let (sender, messages) = sync_channel(10);
        sender.send(QueueMessage::Line(b"{\"message\":\"next\"}\n".to_vec())).unwrap();
        drop(sender);
        write_queued_lines(&messages, &mut disk, &dropped, super::super::dropped_lines_json);
        let lines: Vec<Value> = disk.written.lines().map(|it| serde_json::from_str(it).unwrap()).collect();
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0]["message"], "log lines could not be written");
        assert_eq!((&lines[0]["dropped"], &lines[0]["level"]), (&3.into(), &"WARN".into()));
        assert!(lines[0]["time"].is_string() && lines[0]["target"].is_string());
    }

    #[test]
    fn the_first_line_that_failed_is_written_when_there_is_room() {
        let (mut disk, dropped) = (Disk { is_full: true, written: String::new() }, AtomicU64::new(0));
        let mut backlog =
            UnwrittenLines { first: None, dropped: &dropped, format_dropped: dropped_lines_text };
        ["one\n", "two\n", "three\n"].iter().for_each(|it| backlog.add_line(it.as_bytes().to_vec()));
        assert!(!backlog.write_summary(&mut disk));
        disk.is_full = false;
        assert!(backlog.write_summary(&mut disk));
        assert!(backlog.write_summary(&mut disk));
        assert_eq!(disk.written, "one\nmuster: 2 log lines could not be written\n");
    }

    #[test]
    fn a_full_queue_does_not_block() {
        let (sender, messages) = sync_channel(1);
        let output = StderrQueue(sender);
        for line in ["one\n", "two\n", "three\n"] {
            assert_eq!((&output).write(line.as_bytes()).unwrap(), line.len());
        }
        assert!(matches!(messages.try_recv(), Ok(QueueMessage::Line(it)) if it == b"one\n"));
        assert!(messages.try_recv().is_err());
    }

    #[test]
    fn a_line_that_is_too_long_is_cut_between_characters() {
        let long = "ä".repeat(LINE_BYTES_MAX);
        let kept = String::from_utf8(truncate_line(&long.as_bytes()[..long.len() - 2])).unwrap();
        assert!(kept.ends_with("ä…\n") && kept.len() <= LINE_BYTES_MAX + "…\n".len());
        let odd = format!("x{long}");
        assert!(String::from_utf8(truncate_line(odd.as_bytes())).unwrap().ends_with("ä…\n"));
    }
}
