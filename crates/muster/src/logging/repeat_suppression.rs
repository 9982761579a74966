//! Suppresses repeated warnings and errors. During an outage, every heartbeat, connection or retry fails with the same
//! message.

use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::hash::{DefaultHasher, Hasher as _};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::{Event, Level};

/// Interval in which a warning or error with the same call site, message and fields is printed at most once.
const REPEAT_INTERVAL: Duration = Duration::from_secs(30);

/// Maximum number of distinct messages, for example about different objects, that one call site prints within
/// [`REPEAT_INTERVAL`].
const MESSAGES_PER_SITE_MAX: usize = 20;

/// The decision whether to print or to suppress a log event.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PrintDecision {
    Suppress,
    Print {
        /// Number of times that this message was suppressed since it was last printed.
        repeated: u64,
        /// Number of other messages of the call site that were suppressed since the call site last printed such a
        /// number.
        similar: u64,
    },
}

/// Recently printed messages by call site.
#[derive(Debug, Default)]
pub(super) struct RecentMessages {
    sites: HashMap<Identifier, CallSiteMessages>,
}

/// Recently printed messages of one call site.
#[derive(Debug, Default)]
struct CallSiteMessages {
    /// Recently printed messages by the hash of message and fields, at most [`MESSAGES_PER_SITE_MAX`].
    printed: HashMap<u64, PrintedMessage>,
    /// Number of suppressed messages that `printed` does not count and that are not reported yet: messages beyond
    /// [`MESSAGES_PER_SITE_MAX`], and repeats of messages that were removed from `printed`.
    suppressed: u64,
}

/// When a message was last printed, and how often it was suppressed since then.
#[derive(Debug)]
struct PrintedMessage {
    at: Instant,
    repeated: u64,
}

/// Decides whether a log event is printed.
///
/// Rule: a warning or error with the same call site, message and fields is printed at most once in 30 s, and a call
/// site prints at most 20 distinct messages in that time. Messages of other levels are not limited.
pub(super) fn decide_print(
    repeats: &Mutex<RecentMessages>,
    event: &Event<'_>,
    now: Instant,
) -> PrintDecision {
    if Level::WARN < *event.metadata().level() {
        return PrintDecision::Print { repeated: 0, similar: 0 };
    }
    let mut key = FieldHasher(DefaultHasher::new());
    event.record(&mut key);
    let mut repeats = repeats.lock().unwrap_or_else(PoisonError::into_inner);
    repeats.sites.entry(event.metadata().callsite()).or_default().decide_message(key.0.finish(), now)
}

impl CallSiteMessages {
    /// Decides whether a message of this call site is printed. `key` is the hash of the message and its fields.
    fn decide_message(&mut self, key: u64, now: Instant) -> PrintDecision {
        if let Some(printed) = self.printed.get_mut(&key) {
            if now.saturating_duration_since(printed.at) < REPEAT_INTERVAL {
                printed.repeated += 1;
                return PrintDecision::Suppress;
            }
            printed.at = now;
            let (repeated, similar) =
                (std::mem::take(&mut printed.repeated), std::mem::take(&mut self.suppressed));
            return PrintDecision::Print { repeated, similar };
        }
        if MESSAGES_PER_SITE_MAX <= self.printed.len() {
            let suppressed = &mut self.suppressed;
            self.printed.retain(|_, it| {
                let is_recent = now.saturating_duration_since(it.at) < REPEAT_INTERVAL;
                *suppressed += if is_recent { 0 } else { it.repeated };
                is_recent
            });
        }
        if MESSAGES_PER_SITE_MAX <= self.printed.len() {
            self.suppressed += 1;
            return PrintDecision::Suppress;
        }
        self.printed.insert(key, PrintedMessage { at: now, repeated: 0 });
        PrintDecision::Print { repeated: 0, similar: std::mem::take(&mut self.suppressed) }
    }
}

/// Hasher over the names and values of all fields of a log event, including the message.
struct FieldHasher(DefaultHasher);

impl Visit for FieldHasher {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.write(field.name().as_bytes());
        let _ = write!(self, "\0{value:?}\0");
    }
}

impl fmt::Write for FieldHasher {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn print(repeated: u64, similar: u64) -> PrintDecision {
        PrintDecision::Print { repeated, similar }
    }

    #[test]
    fn a_repeated_message_is_printed_again_after_a_while_with_its_count() {
        let (mut site, began) = (CallSiteMessages::default(), Instant::now());
        let at = |seconds| began + Duration::from_secs(seconds);
        assert_eq!(site.decide_message(1, at(0)), print(0, 0));
        for second in 1..30 {
            assert_eq!(site.decide_message(1, at(second)), PrintDecision::Suppress);
        }
        assert_eq!(site.decide_message(2, at(29)), print(0, 0), "another object");
        assert_eq!(site.decide_message(1, at(30)), print(29, 0));
        assert_eq!(site.decide_message(1, at(31)), PrintDecision::Suppress);
        assert_eq!(site.decide_message(1, at(100)), print(1, 0));
        assert_eq!(site.decide_message(2, at(100)), print(0, 0));
    }

    #[test]
    fn one_call_site_prints_so_many_messages_and_keeps_no_more_of_them() {
        let (mut site, began) = (CallSiteMessages::default(), Instant::now());
        let mut printed = 0;
        for key in 0..10_000 {
            printed += usize::from(site.decide_message(key, began) != PrintDecision::Suppress);
        }
        assert_eq!((printed, site.printed.len()), (MESSAGES_PER_SITE_MAX, MESSAGES_PER_SITE_MAX));
        assert_eq!(site.decide_message(0, began), PrintDecision::Suppress);
        // Counts are kept when their messages are removed.
        assert_eq!(
            site.decide_message(10_000, began + REPEAT_INTERVAL),
            print(0, 10_000 - MESSAGES_PER_SITE_MAX as u64 + 1)
        );
        assert_eq!(site.printed.len(), 1);
    }
}
