//! Where log lines go: through a bounded queue to a thread that writes them to standard error.
//!
//! Standard error may be a full disk, a closed pipe, or a pipe that nobody reads. None of that may end or block the process, so
//! a line that cannot be queued or written is dropped. When writing works again, the first of them is written and the others are
//! counted.

use std::fmt::Display;
use std::io::{self, Write, stderr, stdout};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use tracing_subscriber::fmt::MakeWriter;

/// Most lines that wait to be written, and most bytes of one line: 8 MiB at the worst.
const LINES_MAX: usize = 1024;
const LINE_BYTES_MAX: usize = 8 * 1024;

/// How often writing is tried again after it failed, while nothing else is logged.
const RETRY: Duration = Duration::from_secs(2);

/// How long the end of the process waits for lines that are still queued.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

static OUTPUT: OnceLock<Output> = OnceLock::new();

/// The sending side of the queue.
#[derive(Debug, Clone)]
pub(super) struct Output(SyncSender<Message>);

#[derive(Debug)]
enum Message {
    Line(Vec<u8>),
    /// Answered when everything before it has been written or dropped.
    Flush(SyncSender<()>),
}

/// Lines that could not be queued.
static DROPPED: AtomicU64 = AtomicU64::new(0);

impl Output {
    /// Starts the writing thread. Without a thread, lines are dropped.
    pub(super) fn start() -> Self {
        let started = || {
            let (sender, messages) = sync_channel(LINES_MAX);
            let write = move || write_all(&messages, &mut stderr(), &DROPPED);
            let _ = std::thread::Builder::new().name("log".into()).spawn(write);
            Self(sender)
        };
        OUTPUT.get_or_init(started).clone()
    }
}

/// Waits until the lines that were logged so far are written, but not for a standard error that blocks.
pub(crate) fn flush() {
    let Some(output) = OUTPUT.get() else { return };
    let (done, flushed) = sync_channel(1);
    if output.0.try_send(Message::Flush(done)).is_ok() {
        let _ = flushed.recv_timeout(FLUSH_TIMEOUT);
    }
}

/// Prints a line to standard output, if it can be written: a long-running process does not end because it cannot.
pub(crate) fn print(line: impl Display) {
    let _ = writeln!(stdout(), "{line}");
}

/// The same for standard error.
pub(crate) fn print_error(line: impl Display) {
    let _ = writeln!(stderr(), "{line}");
}

impl<'a> MakeWriter<'a> for Output {
    type Writer = &'a Self;

    fn make_writer(&'a self) -> Self::Writer {
        self
    }
}

impl Write for &Output {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if line.is_empty() {
            return Ok(0);
        }
        let kept = if line.len() <= LINE_BYTES_MAX { line.to_vec() } else { cut(line) };
        if self.0.try_send(Message::Line(kept)).is_err() {
            DROPPED.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The beginning of a line that is too long, as UTF-8.
fn cut(line: &[u8]) -> Vec<u8> {
    let mut kept = String::from_utf8_lossy(&line[..LINE_BYTES_MAX]).trim_end_matches('\u{fffd}').to_owned();
    kept += "…\n";
    kept.into_bytes()
}

fn write_all(messages: &Receiver<Message>, out: &mut impl Write, dropped: &AtomicU64) {
    let mut backlog = Backlog { first: None, dropped };
    loop {
        let next = match backlog.is_empty() {
            true => messages.recv().map_err(|_| RecvTimeoutError::Disconnected),
            false => messages.recv_timeout(RETRY),
        };
        match next {
            Ok(Message::Line(line)) => {
                if !backlog.write(out) || out.write_all(&line).is_err() {
                    backlog.add(line);
                }
            }
            Ok(Message::Flush(done)) => {
                backlog.write(out);
                let _ = done.try_send(());
            }
            Err(RecvTimeoutError::Timeout) => drop(backlog.write(out)),
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
}

/// What could not be written since the last line that was.
struct Backlog<'a> {
    /// It names the cause best; what follows is mostly more of the same.
    first: Option<Vec<u8>>,
    dropped: &'a AtomicU64,
}

impl Backlog<'_> {
    fn is_empty(&self) -> bool {
        self.first.is_none() && self.dropped.load(Ordering::Relaxed) == 0
    }

    fn add(&mut self, line: Vec<u8>) {
        if self.first.is_none() {
            self.first = Some(line);
        } else {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Writes the first line and the number of the others, and returns whether nothing is left.
    fn write(&mut self, out: &mut impl Write) -> bool {
        if let Some(line) = &self.first {
            if out.write_all(line).is_err() {
                return false;
            }
            self.first = None;
        }
        let count = self.dropped.swap(0, Ordering::Relaxed);
        if 0 < count && writeln!(out, "muster: {count} log lines could not be written").is_err() {
            self.dropped.fetch_add(count, Ordering::Relaxed);
            return false;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            lines.iter().for_each(|it| sender.send(Message::Line(it.as_bytes().to_vec())).unwrap());
            drop(sender);
            write_all(&messages, disk, &dropped);
        };
        write(&mut disk, &["one\n", "two\n", "three\n"]);
        disk.is_full = false;
        write(&mut disk, &["four\n"]);
        assert_eq!(disk.written, "muster: 2 log lines could not be written\nfour\n");
    }

    #[test]
    fn the_first_line_that_failed_is_written_when_there_is_room() {
        let (mut disk, dropped) = (Disk { is_full: true, written: String::new() }, AtomicU64::new(0));
        let mut backlog = Backlog { first: None, dropped: &dropped };
        ["one\n", "two\n", "three\n"].iter().for_each(|it| backlog.add(it.as_bytes().to_vec()));
        assert!(!backlog.write(&mut disk));
        disk.is_full = false;
        assert!(backlog.write(&mut disk));
        assert!(backlog.write(&mut disk));
        assert_eq!(disk.written, "one\nmuster: 2 log lines could not be written\n");
    }

    #[test]
    fn a_full_queue_does_not_block() {
        let (sender, messages) = sync_channel(1);
        let output = Output(sender);
        for line in ["one\n", "two\n", "three\n"] {
            assert_eq!((&output).write(line.as_bytes()).unwrap(), line.len());
        }
        assert!(matches!(messages.try_recv(), Ok(Message::Line(it)) if it == b"one\n"));
        assert!(messages.try_recv().is_err());
    }

    #[test]
    fn a_line_that_is_too_long_is_cut_between_characters() {
        let long = "ä".repeat(LINE_BYTES_MAX);
        let kept = String::from_utf8(cut(&long.as_bytes()[..long.len() - 2])).unwrap();
        assert!(kept.ends_with("ä…\n") && kept.len() <= LINE_BYTES_MAX + "…\n".len());
        let odd = format!("x{long}");
        assert!(String::from_utf8(cut(odd.as_bytes())).unwrap().ends_with("ä…\n"));
    }
}
