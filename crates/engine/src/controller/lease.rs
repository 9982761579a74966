//! Which replica leads: what a Lease says, and what follows from it.
//!
//! Two clocks are at work. What is written into the Lease is the time of day, for people to read; nothing follows from
//! it. What is decided comes from a clock that nobody sets: here a moment is the time since the process began.

use alloc::format;
use alloc::string::String;
use core::fmt;
use core::time::Duration;

use muster_api::text::Text;
use muster_api::time::Time;
use serde_json::{Map, Value};

/// How long a lease holds, and how it is kept. The defaults are upstream's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Terms {
    /// A lease that has not been renewed for this long is anyone's.
    pub duration: Duration,
    /// A leader that has not renewed for this long writes no more.
    pub renew_deadline: Duration,
    /// How often it is renewed, and how soon a call that failed is made again.
    pub retry_period: Duration,
}

impl Default for Terms {
    fn default() -> Self {
        let [duration, renew_deadline, retry_period] = [15, 10, 2].map(Duration::from_secs);
        Self { duration, renew_deadline, retry_period }
    }
}

impl Terms {
    /// What makes no sense together.
    pub fn problem(&self) -> Option<String> {
        let Self { duration, renew_deadline, retry_period } = self;
        if duration.subsec_nanos() != 0 || duration.is_zero() {
            return Some(format!("the lease duration {duration:?} is not a number of whole seconds"));
        }
        if *duration < *renew_deadline + Duration::from_secs(1) {
            return Some(format!(
                "the lease duration {duration:?} must be a second longer than the renew deadline {renew_deadline:?}: \
                 a write must end in between"
            ));
        }
        if retry_period.is_zero() || *renew_deadline < *retry_period * 2 {
            return Some(format!(
                "the renew deadline {renew_deadline:?} must leave time for two tries, one every {retry_period:?}"
            ));
        }
        None
    }

    /// Rule: a write that begins at the last moment, when the renewal is overdue, ends before the lease can be anyone
    /// else's: it may take four fifths of the time between. The last fifth is for clocks that do not run alike.
    pub fn write_timeout(&self) -> Duration {
        self.duration.saturating_sub(self.renew_deadline) * 4 / 5
    }
}

/// What a Lease says.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Record {
    /// Nobody, if it is empty.
    pub holder: Text,
    pub duration_s: u32,
    pub acquired: Option<Time>,
    pub renewed: Option<Time>,
    pub transitions: i64,
}

impl Record {
    /// Reads the `spec` of a Lease. What is missing, or is no such thing, is taken for nothing.
    pub fn read(spec: &Value) -> Self {
        let time = |name: &str| spec[name].as_str().and_then(Time::parse);
        Self {
            holder: spec["holderIdentity"].as_str().unwrap_or_default().into(),
            duration_s: spec["leaseDurationSeconds"].as_u64().unwrap_or(0).try_into().unwrap_or(u32::MAX),
            acquired: time("acquireTime"),
            renewed: time("renewTime"),
            transitions: spec["leaseTransitions"].as_i64().unwrap_or(0),
        }
    }

    /// Writes itself into the `spec` of a Lease, and leaves what else is there.
    pub fn write(&self, spec: &mut Map<String, Value>) {
        let time = |it: Option<Time>| it.map_or(Value::Null, |it| it.to_rfc3339_micros().into());
        let fields: [(&str, Value); 5] = [
            ("holderIdentity", self.holder.as_ref().into()),
            ("leaseDurationSeconds", self.duration_s.into()),
            ("acquireTime", time(self.acquired)),
            ("renewTime", time(self.renewed)),
            ("leaseTransitions", self.transitions.into()),
        ];
        for (name, value) in fields {
            spec.insert(name.into(), value);
        }
    }

    fn duration(&self) -> Duration {
        Duration::from_secs(self.duration_s.into())
    }
}

/// What a replica does about the lease it has just read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Next {
    /// Write this on top of the version that was read, to take the lease or to keep it.
    Write(Record),
    /// Another one leads. Decide again at this moment, or when the lease changes.
    Follow { until: Duration },
    /// This one led, and must end.
    End(Lost),
}

/// How a leader lost its lease.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Lost {
    Taken { by: Text },
    Gone,
    TooLate,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Taken { by } if by.is_empty() => f.write_str("somebody else has held the lease meanwhile"),
            Self::Taken { by } => write!(f, "{by} holds the lease now"),
            Self::Gone => f.write_str("the lease was deleted"),
            Self::TooLate => f.write_str("the lease could not be renewed in time"),
        }
    }
}

/// One replica's part in the election.
#[derive(Clone, Debug)]
pub struct Election {
    me: Text,
    terms: Terms,
    /// What the lease said, and since when it has said so.
    seen: Option<(Record, Duration)>,
    /// When the last renewal that succeeded was begun; `None` until this one has led.
    renewed: Option<Duration>,
}

impl Election {
    pub fn new(me: impl Into<Text>, terms: Terms) -> Self {
        Self { me: me.into(), terms, seen: None, renewed: None }
    }

    /// Rule: a lease is free when nobody is named in it, or when it has not changed for as long as it says, measured from
    /// when this replica first saw it so. Whoever led and comes too late, or finds another name, or none, has been away too
    /// long, whether or not that other one is gone again: it ends. `clock` is only written down. Upstream:
    /// `tryAcquireOrRenew`.
    pub fn read(&mut self, found: Option<&Record>, now: Duration, clock: Time) -> Next {
        let led = self.renewed.is_some();
        if self.leads_until().is_some_and(|until| until <= now) {
            return Next::End(Lost::TooLate);
        }
        let Some(found) = found else {
            self.seen = None;
            return if led { Next::End(Lost::Gone) } else { Next::Write(self.taken(None, clock)) };
        };
        let since = match &self.seen {
            Some((seen, since)) if seen == found => *since,
            _ => {
                self.seen = Some((found.clone(), now));
                now
            }
        };
        let until = since.saturating_add(found.duration());
        if found.holder == self.me {
            Next::Write(Record { duration_s: self.duration_s(), renewed: Some(clock), ..found.clone() })
        } else if led {
            Next::End(Lost::Taken { by: found.holder.clone() })
        } else if found.holder.is_empty() || until <= now {
            Next::Write(self.taken(Some(found), clock))
        } else {
            Next::Follow { until }
        }
    }

    /// The lease was written, by a call that began at this moment.
    pub fn wrote(&mut self, began: Duration) {
        self.renewed = Some(began);
    }

    /// Rule: a leader writes until the renew deadline has passed since it began the last renewal that succeeded.
    pub fn leads_until(&self) -> Option<Duration> {
        self.renewed.map(|it| it.saturating_add(self.terms.renew_deadline))
    }

    /// What a leader that stops in order leaves behind, so that the next one need not wait.
    pub fn released(&self, found: &Record, clock: Time) -> Record {
        Record {
            holder: "".into(),
            duration_s: 1,
            acquired: Some(clock),
            renewed: Some(clock),
            transitions: found.transitions,
        }
    }

    fn taken(&self, from: Option<&Record>, clock: Time) -> Record {
        Record {
            holder: self.me.clone(),
            duration_s: self.duration_s(),
            acquired: Some(clock),
            renewed: Some(clock),
            transitions: from.map_or(0, |it| it.transitions.saturating_add(1)),
        }
    }

    fn duration_s(&self) -> u32 {
        self.terms.duration.as_secs().try_into().unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString as _;
    use alloc::vec::Vec;

    use expect_test::expect;
    use serde_json::json;

    use super::*;

    /// Each line: the second, what the lease says (holder, its renewals so far), and what follows for replica `a`. A write
    /// that follows succeeds.
    fn check(lines: &str, expected: &expect_test::Expect) {
        let mut election = Election::new("a", Terms::default());
        let mut said = String::new();
        for line in lines.lines().map(str::trim).filter(|it| !it.is_empty()) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let now = Duration::from_secs(words[0].parse().unwrap());
            let found = (words[1] != "none").then(|| Record {
                holder: if words[1] == "nobody" { "" } else { words[1] }.into(),
                duration_s: 15,
                acquired: None,
                renewed: Some(Time::from_secs(words[2].parse().unwrap())),
                transitions: 3,
            });
            let clock = Time::from_secs(1_000_000);
            let next = election.read(found.as_ref(), now, clock);
            let follows = match &next {
                Next::Write(record) => {
                    election.wrote(now);
                    format!("writes {} transitions={}", record.holder, record.transitions)
                }
                Next::Follow { until } => format!("follows until {}", until.as_secs()),
                Next::End(lost) => format!("ends: {lost}"),
            };
            said += &format!("{line:16} {follows}\n");
        }
        expected.assert_eq(&said);
    }

    #[test]
    fn a_lease_that_is_not_there_is_made() {
        check(
            "0 none
             2 a 1
             4 a 2",
            &expect![[r#"
                0 none           writes a transitions=0
                2 a 1            writes a transitions=3
                4 a 2            writes a transitions=3
            "#]],
        );
    }

    #[test]
    fn a_lease_is_followed_from_when_it_was_last_seen_to_change() {
        check(
            "0  b 1
             2  b 2
             16 b 2
             17 b 2",
            &expect![[r#"
                0  b 1           follows until 15
                2  b 2           follows until 17
                16 b 2           follows until 17
                17 b 2           writes a transitions=4
            "#]],
        );
    }

    #[test]
    fn what_was_released_is_taken_at_once() {
        check(
            "0 b 1
             1 nobody 2",
            &expect![[r#"
                0 b 1            follows until 15
                1 nobody 2       writes a transitions=4
            "#]],
        );
    }

    #[test]
    fn a_write_without_an_answer_is_taken_up_again() {
        // The first write was done, but nobody told.
        let mut election = Election::new("a", Terms::default());
        let none = election.read(None, Duration::ZERO, Time::from_secs(0));
        let Next::Write(record) = none else { panic!("{none:?}") };
        let next = election.read(Some(&record), Duration::from_secs(2), Time::from_secs(2));
        assert_eq!(next, Next::Write(Record { renewed: Some(Time::from_secs(2)), ..record }));
    }

    #[test]
    fn whoever_led_and_finds_another_name_ends() {
        check(
            "0 none\n2 b 9",
            &expect![[r#"
            0 none           writes a transitions=0
            2 b 9            ends: b holds the lease now
        "#]],
        );
        check(
            "0 none\n2 nobody 9",
            &expect![[r#"
            0 none           writes a transitions=0
            2 nobody 9       ends: somebody else has held the lease meanwhile
        "#]],
        );
        check(
            "0 none\n2 none",
            &expect![[r#"
            0 none           writes a transitions=0
            2 none           ends: the lease was deleted
        "#]],
        );
    }

    #[test]
    fn whoever_comes_too_late_ends_though_the_lease_is_still_theirs() {
        check(
            "0  none
             9  a 1
             19 a 2",
            &expect![[r#"
                0  none          writes a transitions=0
                9  a 1           writes a transitions=3
                19 a 2           ends: the lease could not be renewed in time
            "#]],
        );
    }

    #[test]
    fn a_leader_writes_until_the_renewal_is_overdue() {
        let mut election = Election::new("a", Terms::default());
        assert_eq!(election.leads_until(), None);
        election.wrote(Duration::from_secs(3));
        assert_eq!(election.leads_until(), Some(Duration::from_secs(13)));
        assert_eq!(Terms::default().write_timeout(), Duration::from_secs(4));
    }

    #[test]
    fn terms_that_make_no_sense() {
        let problem = |duration_ms, renew_deadline_ms, retry_period_ms| {
            let [duration, renew_deadline, retry_period] =
                [duration_ms, renew_deadline_ms, retry_period_ms].map(Duration::from_millis);
            Terms { duration, renew_deadline, retry_period }.problem().unwrap_or("fine".into())
        };
        let all = [
            problem(15_000, 10_000, 2_000),
            problem(1_500, 500, 100),
            problem(10_000, 10_000, 2_000),
            problem(15_000, 10_000, 6_000),
            problem(15_000, 10_000, 0),
        ];
        expect![[r#"
            fine
            the lease duration 1.5s is not a number of whole seconds
            the lease duration 10s must be a second longer than the renew deadline 10s: a write must end in between
            the renew deadline 10s must leave time for two tries, one every 6s
            the renew deadline 10s must leave time for two tries, one every 0ns"#]].assert_eq(&all.join("\n"));
    }

    #[test]
    fn what_else_is_in_a_lease_stays() {
        let mut spec =
            json!({"strategy": "OldestEmulationVersion", "holderIdentity": "b", "leaseTransitions": -1});
        let record = Record { holder: "a".into(), ..Record::read(&spec) };
        record.write(spec.as_object_mut().unwrap());
        expect![[r#"{"acquireTime":null,"holderIdentity":"a","leaseDurationSeconds":0,"leaseTransitions":-1,"renewTime":null,"strategy":"OldestEmulationVersion"}"#]].assert_eq(&spec.to_string());
        assert_eq!(Record::read(&json!("nonsense")), Record::default());
        let large = json!({"leaseDurationSeconds": u64::MAX, "renewTime": 7});
        assert_eq!(Record::read(&large), Record { duration_s: u32::MAX, ..Record::default() });
    }
}
