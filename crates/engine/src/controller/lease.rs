//! Leader election: reads a Lease and decides whether to acquire, renew or wait.
//!
//! There are two clocks. The timestamps in the Lease are wall-clock times (`Time`) for people to read, and no decision
//! depends on them. Decisions use a monotonic clock: each point in time is a `Duration` since the process started.

use alloc::format;
use alloc::string::String;
use core::fmt;
use core::time::Duration;

use muster_api::text::Text;
use muster_api::time::Time;
use serde_json::{Map, Value};

/// The durations that control leader election. Upstream: `LeaderElectionConfig`, with the same defaults.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeaderElectionConfig {
    /// Time without a renewal after which another replica may acquire the lease. Upstream: `LeaseDuration`.
    pub duration: Duration,
    /// Time without a successful renewal after which the leader stops writing. Upstream: `RenewDeadline`.
    pub renew_deadline: Duration,
    /// Interval at which the leader renews the lease. Also the delay before a failed call is retried. Upstream:
    /// `RetryPeriod`.
    pub retry_period: Duration,
}

impl Default for LeaderElectionConfig {
    fn default() -> Self {
        let [duration, renew_deadline, retry_period] = [15, 10, 2].map(Duration::from_secs);
        Self { duration, renew_deadline, retry_period }
    }
}

impl LeaderElectionConfig {
    /// Returns an error message if the durations are invalid, otherwise `None`.
    pub fn validation_error(&self) -> Option<String> {
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

    /// Returns the timeout of a write that this replica makes as the leader.
    ///
    /// Rule: a write that begins just before the renew deadline must end before another replica can acquire the lease.
    /// The write may take four fifths of the time from the renew deadline to the end of the lease. The last fifth is
    /// reserved for clocks that run at different speeds.
    pub fn write_timeout(&self) -> Duration {
        self.duration.saturating_sub(self.renew_deadline) * 4 / 5
    }
}

/// The `spec` of a Lease. Upstream: `LeaderElectionRecord`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LeaseRecord {
    /// The `holderIdentity`: identity of the replica that holds the lease. Empty if no replica holds it.
    pub holder: Text,
    /// The `leaseDurationSeconds`: how long the lease lasts after a renewal.
    pub duration_s: u32,
    /// The `acquireTime`: when the holder acquired the lease. `None` if it is missing or invalid.
    pub acquired: Option<Time>,
    /// The `renewTime`: when the holder last renewed the lease. `None` if it is missing or invalid.
    pub renewed: Option<Time>,
    /// The `leaseTransitions`: how often the lease changed its holder.
    pub transitions: i64,
}

impl LeaseRecord {
    /// Reads the record from the `spec` of a Lease. A missing or malformed field is empty, `None` or zero.
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

    /// Writes the record into the `spec` of a Lease. Other fields of the `spec` stay.
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

    /// Returns how long the lease lasts after a renewal.
    fn duration(&self) -> Duration {
        Duration::from_secs(self.duration_s.into())
    }
}

/// What a replica does after it has read the Lease.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LeaseAction {
    /// Acquire or renew the lease: write this record, with the `resourceVersion` that was read as precondition. If the
    /// Lease did not exist, create it with this record.
    Write(LeaseRecord),
    /// Another replica holds the lease, and the lease may not have expired yet. Decide again at this time (since the
    /// process started), or when the Lease changes.
    Wait { until: Duration },
    /// This replica was the leader and lost the lease. It must exit.
    Exit(LostLease),
}

/// The reason why a leader lost its lease.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LostLease {
    /// This replica is no longer the holder of the Lease. The text is the `holderIdentity` of the Lease, which is empty
    /// if the Lease has no holder.
    HeldBy(Text),
    /// The Lease object was deleted.
    Deleted,
    /// The lease was not renewed within [`LeaderElectionConfig::renew_deadline`].
    RenewDeadlineExceeded,
}

impl fmt::Display for LostLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HeldBy(other) if other.is_empty() => {
                f.write_str("another replica has held the lease in between")
            }
            Self::HeldBy(other) => write!(f, "{other} holds the lease now"),
            Self::Deleted => f.write_str("the lease was deleted"),
            Self::RenewDeadlineExceeded => f.write_str("the lease could not be renewed in time"),
        }
    }
}

/// Decides when one replica acquires, renews or loses the Lease, from the record that it last read and the time of its
/// last renewal.
#[derive(Clone, Debug)]
pub struct Election {
    /// Identity of this replica. It is written to the Lease as `holderIdentity`.
    identity: Text,
    config: LeaderElectionConfig,
    /// The last lease record that was read, and the time (since the process started) at which this record was first
    /// read. `None` before the first read, and while the Lease does not exist.
    observed: Option<(LeaseRecord, Duration)>,
    /// Start of this replica's last successful write of the Lease, as time since the process started. `None` if this
    /// replica has never been the leader.
    renewed: Option<Duration>,
}

impl Election {
    /// Creates the state of a replica that has not read the Lease yet.
    pub fn new(identity: impl Into<Text>, config: LeaderElectionConfig) -> Self {
        Self { identity: identity.into(), config, observed: None, renewed: None }
    }

    /// Decides what to do after the Lease was read. `found` is `None` if the Lease does not exist. `now` is the time
    /// since the process started. `clock` is wall-clock time, which is only written into the record.
    ///
    /// Rule: a replica may acquire the lease if the Lease does not exist or has no holder. It may also acquire the
    /// lease if it first read the current record at least the lease duration of that record ago. The holder renews the
    /// lease. A replica that has been the leader exits if it is past the renew deadline, or if the Lease was deleted,
    /// has another holder or has no holder. Upstream: `tryAcquireOrRenew`.
    pub fn decide(&mut self, found: Option<&LeaseRecord>, now: Duration, clock: Time) -> LeaseAction {
        let led = self.renewed.is_some();
        if self.leads_until().is_some_and(|until| until <= now) {
            return LeaseAction::Exit(LostLease::RenewDeadlineExceeded);
        }
        let Some(found) = found else {
            self.observed = None;
            return if led {
                LeaseAction::Exit(LostLease::Deleted)
            } else {
                LeaseAction::Write(self.acquired_record(None, clock))
            };
        };
        let since = match &self.observed {
            Some((observed, since)) if observed == found => *since,
            _ => {
                self.observed = Some((found.clone(), now));
                now
            }
        };
        let until = since.saturating_add(found.duration());
        if found.holder == self.identity {
            LeaseAction::Write(LeaseRecord {
                duration_s: self.duration_s(),
                renewed: Some(clock),
                ..found.clone()
            })
        } else if led {
            LeaseAction::Exit(LostLease::HeldBy(found.holder.clone()))
        } else if found.holder.is_empty() || until <= now {
            LeaseAction::Write(self.acquired_record(Some(found), clock))
        } else {
            LeaseAction::Wait { until }
        }
    }

    /// Records that this replica has written the Lease, so that it is the leader. `began` is the start time of the
    /// write, counted from the start of the process.
    pub fn record_write(&mut self, began: Duration) {
        self.renewed = Some(began);
    }

    /// Returns the time (since the process started) until which this replica is the leader. `None` if it has never been
    /// the leader.
    ///
    /// Rule: a leader may write until the renew deadline, counted from the start of the last successful renewal.
    pub fn leads_until(&self) -> Option<Duration> {
        self.renewed.map(|it| it.saturating_add(self.config.renew_deadline))
    }

    /// Returns the lease record that a leader writes when it stops. The record has no holder, so that the next leader
    /// need not wait for the lease to expire. `found` is the current record. Upstream: `release`.
    pub fn released_record(&self, found: &LeaseRecord, clock: Time) -> LeaseRecord {
        LeaseRecord {
            holder: "".into(),
            duration_s: 1,
            acquired: Some(clock),
            renewed: Some(clock),
            transitions: found.transitions,
        }
    }

    /// Returns the lease record that this replica writes to acquire the lease. `from` is the current record, `None` if
    /// the Lease does not exist.
    fn acquired_record(&self, from: Option<&LeaseRecord>, clock: Time) -> LeaseRecord {
        LeaseRecord {
            holder: self.identity.clone(),
            duration_s: self.duration_s(),
            acquired: Some(clock),
            renewed: Some(clock),
            transitions: from.map_or(0, |it| it.transitions.saturating_add(1)),
        }
    }

    /// Returns the configured lease duration in seconds.
    fn duration_s(&self) -> u32 {
        self.config.duration.as_secs().try_into().unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString as _;
    use alloc::vec::Vec;

    use expect_test::expect;
    use serde_json::json;

    use super::*;

    /// Each line: the second, the lease (holder, time of renewal), and what replica `a` does. Its writes succeed.
    fn check(lines: &str, expected: &expect_test::Expect) {
        let mut election = Election::new("a", LeaderElectionConfig::default());
        let mut actual = String::new();
        for line in lines.lines().map(str::trim).filter(|it| !it.is_empty()) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let now = Duration::from_secs(words[0].parse().unwrap());
            let found = (words[1] != "none").then(|| LeaseRecord {
                holder: if words[1] == "nobody" { "" } else { words[1] }.into(),
                duration_s: 15,
                acquired: None,
                renewed: Some(Time::from_secs(words[2].parse().unwrap())),
                transitions: 3,
            });
            let clock = Time::from_secs(1_000_000);
            let next = election.decide(found.as_ref(), now, clock);
            let follows = match &next {
                LeaseAction::Write(record) => {
                    election.record_write(now);
                    format!("writes {} transitions={}", record.holder, record.transitions)
                }
                LeaseAction::Wait { until } => format!("waits until {}", until.as_secs()),
                LeaseAction::Exit(lost) => format!("exits: {lost}"),
            };
            actual += &format!("{line:16} {follows}\n");
        }
        expected.assert_eq(&actual);
    }

    #[test]
    fn a_missing_lease_is_created() {
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
    fn a_lease_expires_its_duration_after_its_last_observed_change() {
        check(
            "0  b 1
             2  b 2
             16 b 2
             17 b 2",
            &expect![[r#"
                0  b 1           waits until 15
                2  b 2           waits until 17
                16 b 2           waits until 17
                17 b 2           writes a transitions=4
            "#]],
        );
    }

    #[test]
    fn a_released_lease_is_acquired_at_once() {
        check(
            "0 b 1
             1 nobody 2",
            &expect![[r#"
                0 b 1            waits until 15
                1 nobody 2       writes a transitions=4
            "#]],
        );
    }

    #[test]
    fn a_write_whose_response_was_lost_is_renewed() {
        // The first write succeeded, but its response was lost.
        let mut election = Election::new("a", LeaderElectionConfig::default());
        let none = election.decide(None, Duration::ZERO, Time::from_secs(0));
        let LeaseAction::Write(record) = none else { panic!("{none:?}") };
        let next = election.decide(Some(&record), Duration::from_secs(2), Time::from_secs(2));
        assert_eq!(next, LeaseAction::Write(LeaseRecord { renewed: Some(Time::from_secs(2)), ..record }));
    }

    #[test]
    fn a_leader_that_finds_another_holder_exits() {
        check(
            "0 none\n2 b 9",
            &expect![[r#"
            0 none           writes a transitions=0
            2 b 9            exits: b holds the lease now
        "#]],
        );
        check(
            "0 none\n2 nobody 9",
            &expect![[r#"
            0 none           writes a transitions=0
            2 nobody 9       exits: another replica has held the lease in between
        "#]],
        );
        check(
            "0 none\n2 none",
            &expect![[r#"
            0 none           writes a transitions=0
            2 none           exits: the lease was deleted
        "#]],
        );
    }

    #[test]
    fn a_leader_past_the_renew_deadline_exits_even_if_it_holds_the_lease() {
        check(
            "0  none
             9  a 1
             19 a 2",
            &expect![[r#"
                0  none          writes a transitions=0
                9  a 1           writes a transitions=3
                19 a 2           exits: the lease could not be renewed in time
            "#]],
        );
    }

    #[test]
    fn a_leader_writes_until_the_renew_deadline() {
        let mut election = Election::new("a", LeaderElectionConfig::default());
        assert_eq!(election.leads_until(), None);
        election.record_write(Duration::from_secs(3));
        assert_eq!(election.leads_until(), Some(Duration::from_secs(13)));
        assert_eq!(LeaderElectionConfig::default().write_timeout(), Duration::from_secs(4));
    }

    #[test]
    fn invalid_settings() {
        let validation_error = |duration_ms, renew_deadline_ms, retry_period_ms| {
            let [duration, renew_deadline, retry_period] =
                [duration_ms, renew_deadline_ms, retry_period_ms].map(Duration::from_millis);
            LeaderElectionConfig { duration, renew_deadline, retry_period }
                .validation_error()
                .unwrap_or("fine".into())
        };
        let all = [
            validation_error(15_000, 10_000, 2_000),
            validation_error(1_500, 500, 100),
            validation_error(10_000, 10_000, 2_000),
            validation_error(15_000, 10_000, 6_000),
            validation_error(15_000, 10_000, 0),
        ];
        expect![[r#"
            fine
            the lease duration 1.5s is not a number of whole seconds
            the lease duration 10s must be a second longer than the renew deadline 10s: a write must end in between
            the renew deadline 10s must leave time for two tries, one every 6s
            the renew deadline 10s must leave time for two tries, one every 0ns"#]].assert_eq(&all.join("\n"));
    }

    #[test]
    fn other_fields_of_a_lease_are_preserved() {
        let mut spec =
            json!({"strategy": "OldestEmulationVersion", "holderIdentity": "b", "leaseTransitions": -1});
        let record = LeaseRecord { holder: "a".into(), ..LeaseRecord::read(&spec) };
        record.write(spec.as_object_mut().unwrap());
        expect![[r#"{"acquireTime":null,"holderIdentity":"a","leaseDurationSeconds":0,"leaseTransitions":-1,"renewTime":null,"strategy":"OldestEmulationVersion"}"#]].assert_eq(&spec.to_string());
        assert_eq!(LeaseRecord::read(&json!("nonsense")), LeaseRecord::default());
        let large = json!({"leaseDurationSeconds": u64::MAX, "renewTime": 7});
        assert_eq!(LeaseRecord::read(&large), LeaseRecord { duration_s: u32::MAX, ..LeaseRecord::default() });
    }
}
