//! What was observed of each fault, and what must not have happened.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use super::load::{REQUEST_TIMEOUT, Reply, WriteAttempt};

/// Maximum time until writes are acknowledged after a fault that leaves a quorum with space, and after a repair.
pub(crate) const RECOVERY_MAX: Duration = Duration::from_secs(10);

/// Maximum time until a write fails that cannot be made.
const REFUSAL_MAX: Duration = Duration::from_secs(5);

/// Maximum time until a write is answered, whatever happens to etcd meanwhile. A server waits for etcd twice, each time
/// for 4 s at most: for the read barrier before the write, and for the write. The rest is for the network and for a
/// machine that is busy.
const ANSWER_MAX: Duration = Duration::from_secs(9);

/// What was observed of one fault.
#[derive(Default)]
pub(crate) struct Observed {
    /// Time from the fault to the first acknowledged write that began after it, at the slowest serving server. `None` if
    /// no server is expected to serve.
    pub(crate) acknowledged: Option<Duration>,
    /// The same from the repair, for all servers.
    pub(crate) resumed: Duration,
    /// Time from the repair until all watchers had seen those writes.
    pub(crate) watched: Duration,
}

/// A time in which servers could not make writes.
pub(crate) struct RefusalWindow {
    pub(crate) fault: String,
    pub(crate) kind: &'static str,
    pub(crate) servers: Vec<usize>,
    pub(crate) from: Instant,
    pub(crate) to: Instant,
    /// Whether the databases have reached the quota of etcd. Then deletes are still made.
    pub(crate) is_full: bool,
}

/// A time in which a server did not answer because it was stopped, killed or just started.
pub(crate) struct AwayWindow {
    pub(crate) server: usize,
    pub(crate) from: Instant,
    pub(crate) to: Instant,
}

/// A time after which all servers acknowledged writes, until the next fault.
pub(crate) struct QuietWindow {
    pub(crate) from: Instant,
    pub(crate) to: Instant,
}

/// The observations, and the violations of what must hold.
#[derive(Default)]
pub(crate) struct Report {
    rows: BTreeMap<&'static str, Row>,
    pub(crate) refusals: Vec<RefusalWindow>,
    pub(crate) away: Vec<AwayWindow>,
    pub(crate) quiet: Vec<QuietWindow>,
    violations: Vec<String>,
}

/// All faults of one kind.
#[derive(Default)]
struct Row {
    number: usize,
    acknowledged: Option<Duration>,
    refused: Option<Duration>,
    resumed: Duration,
    watched: Duration,
}

impl Report {
    /// Prints and keeps a violation.
    pub(crate) fn violation(&mut self, what: String) {
        say(&format!("VIOLATION: {what}"));
        self.violations.push(what);
    }

    pub(crate) fn violations(&self) -> &[String] {
        &self.violations
    }

    pub(crate) fn add(&mut self, kind: &'static str, observed: &Observed) {
        let row = self.rows.entry(kind).or_default();
        row.number += 1;
        row.acknowledged = row.acknowledged.max(observed.acknowledged);
        row.resumed = row.resumed.max(observed.resumed);
        row.watched = row.watched.max(observed.watched);
    }

    /// Checks the answers to all writes.
    ///
    /// Rule: a write that cannot be made fails with 503 within [`REFUSAL_MAX`]. If the databases have reached the quota of
    /// etcd, it fails with the words for a full store, and deletes are made. Every server that runs answers every write within [`ANSWER_MAX`],
    /// also one that was in flight when a fault began. Without a fault no write fails.
    pub(crate) fn check_writes(&mut self, writes: &[WriteAttempt]) {
        let mut wrong = Vec::new();
        for window in &self.refusals {
            let is_inside = |it: &&WriteAttempt| {
                window.servers.contains(&it.server) && window.from <= it.began && it.began < window.to
            };
            for write in writes.iter().filter(is_inside) {
                let took = write.ended - write.began;
                if window.to <= write.ended && write.began + REFUSAL_MAX > window.to {
                    // It was answered after the repair, in time.
                    continue;
                }
                let is_right = match &write.reply {
                    Reply::Failed(503, _) => !window.is_full,
                    Reply::StoreFull => window.is_full && !write.is_delete,
                    Reply::Acknowledged => window.is_full && write.is_delete,
                    Reply::Conflict => window.is_full,
                    Reply::Failed(..) | Reply::Lost => false,
                };
                let refused = &mut self.rows.entry(window.kind).or_default().refused;
                *refused = (*refused).max(Some(took));
                if !is_right || REFUSAL_MAX < took {
                    wrong.push(format!(
                        "{}: {} through server {} was answered after {} with {:?}",
                        window.fault,
                        if write.is_delete { "a delete" } else { "a write" },
                        write.server + 1,
                        seconds(took),
                        write.reply
                    ));
                }
            }
        }
        let mut slowest: Option<&WriteAttempt> = None;
        for write in writes {
            let took = write.ended - write.began;
            let is_away =
                |it: &AwayWindow| it.server == write.server && write.began <= it.to && it.from <= write.ended;
            if self.away.iter().any(is_away) {
                continue;
            }
            if slowest.is_none_or(|it| it.ended - it.began < took) {
                slowest = Some(write);
            }
            let how = match &write.reply {
                Reply::Lost if REQUEST_TIMEOUT <= took => "had no answer".to_owned(),
                Reply::Lost => "lost its connection".to_owned(),
                reply if ANSWER_MAX < took => {
                    format!("was answered after {} with {reply:?}", seconds(took))
                }
                _ => continue,
            };
            wrong.push(format!("a write through server {}, which runs, {how}", write.server + 1));
        }
        if let Some(WriteAttempt { began, ended, reply, .. }) = slowest {
            // A quiet time ends when a fault begins.
            let fault = self.quiet.iter().filter(|it| it.to <= *ended).count();
            say(&format!(
                "the slowest answer of a server that ran came after {}, under fault {fault}: {reply:?}",
                seconds(*ended - *began)
            ));
        }
        let fails = |it: &&WriteAttempt| !matches!(it.reply, Reply::Acknowledged | Reply::Conflict);
        for write in writes.iter().filter(fails) {
            let is_quiet = |it: &QuietWindow| it.from <= write.began && write.ended <= it.to;
            if self.quiet.iter().any(is_quiet) {
                wrong.push(format!(
                    "without a fault, a write through server {}: {:?}",
                    write.server + 1,
                    write.reply
                ));
            }
        }
        let more = wrong.len().saturating_sub(20);
        wrong.truncate(20);
        wrong.into_iter().for_each(|it| self.violation(it));
        if 0 < more {
            self.violation(format!("and {more} more of this kind"));
        }
    }

    /// Prints the table of the kinds of faults.
    pub(crate) fn print_table(&self) {
        say(&format!(
            "{:<40} {:>6} {:>13} {:>9} {:>9} {:>9}",
            "slowest of each kind of fault", "number", "acknowledged", "refused", "resumed", "watched"
        ));
        for (kind, row) in &self.rows {
            let optional = |it: Option<Duration>| it.map_or_else(|| "-".to_owned(), seconds);
            say(&format!(
                "{kind:<40} {:>6} {:>13} {:>9} {:>9} {:>9}",
                row.number,
                optional(row.acknowledged),
                optional(row.refused),
                seconds(row.resumed),
                seconds(row.watched)
            ));
        }
    }

    /// The slowest recoveries of all faults in words.
    pub(crate) fn summary(&self) -> String {
        let mut said = format!("{} faults", self.rows.values().map(|it| it.number).sum::<usize>());
        let slowest = |of: &dyn Fn(&Row) -> Option<Duration>| self.rows.values().filter_map(of).max();
        let all: [(&str, Option<Duration>); 4] = [
            ("acknowledged again after", slowest(&|it| it.acknowledged)),
            ("refused after", slowest(&|it| it.refused)),
            ("resumed after", slowest(&|it| Some(it.resumed))),
            ("watched after", slowest(&|it| Some(it.watched))),
        ];
        for (what, slowest) in all {
            if let Some(slowest) = slowest {
                let _ = write!(said, ", {what} at most {}", seconds(slowest));
            }
        }
        said
    }
}

/// Prints a line of the test. The output of a test that passes is not hidden, because it runs in a process of its own.
#[allow(clippy::print_stderr)]
pub(crate) fn say(line: &str) {
    eprintln!("{line}");
}

/// Prints a line that `ci/test` repeats at its end.
pub(crate) fn say_summary(line: &str) {
    say(&format!("chaos: {line}"));
}

pub(crate) fn seconds(it: Duration) -> String {
    format!("{:.2} s", it.as_secs_f64())
}
