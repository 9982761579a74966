//! Detects a second controller that writes the same DaemonSets. Each controller would undo the writes of the other,
//! although both appear healthy.
//!
//! `managedFields` records which field manager wrote the status last. Once this replica has been the leader for
//! [`TAKEOVER_GRACE_PERIOD`], any other field manager that writes the status counts as a second controller. The watch
//! delivers `managedFields` anyway, so the detection needs no request.

use std::collections::BTreeMap;
use std::time::Duration;

use muster_api::object_key::ObjectKey;
use muster_engine::controller::KubeEvent;
use muster_engine::daemonset::facts::Set;
use muster_engine::daemonset::{StatusWriter, status_writers};
use tokio::time::Instant;

use crate::CONTROLLER_NAME;

/// Time during which a new leader ignores status writes of other field managers. These writes may be the last ones of
/// the previous leader or of upstream's controller, which were still in flight.
const TAKEOVER_GRACE_PERIOD: Duration = Duration::from_secs(30);

/// Minimum time between two warning events. Two controllers may write many times per second.
const WARNING_INTERVAL_MIN: Duration = Duration::from_secs(60);

/// Detects another controller that writes the status of the same DaemonSets.
pub(crate) struct ConflictDetector {
    /// Time at which this replica became leader.
    began: Instant,
    /// Time of the last warning. `None` if there was no warning.
    warned_at: Option<Instant>,
    /// For each DaemonSet that was seen, the last field manager other than this controller that wrote its status. The
    /// value is `None` if no other field manager wrote it.
    last_writers: BTreeMap<ObjectKey, Option<StatusWriter>>,
}

/// A detected status write by another controller.
pub(crate) struct Conflict {
    /// The warning event to record. `None` if the last warning is too recent.
    pub(crate) event: Option<KubeEvent>,
}

impl ConflictDetector {
    pub(crate) fn new(now: Instant) -> Self {
        Self { began: now, warned_at: None, last_writers: BTreeMap::new() }
    }

    /// Returns a conflict if another controller has written the status of a DaemonSet since the watch delivered the
    /// previous version of the DaemonSet. Returns `None` for the first version of a DaemonSet, and for the
    /// [`TAKEOVER_GRACE_PERIOD`] after this replica became leader.
    pub(crate) fn check(&mut self, set: &Set, now: Instant) -> Option<Conflict> {
        let writer = last_other_status_writer(&set.metadata);
        let before = self.last_writers.insert(set.key.clone(), writer.clone());
        let is_new = before.is_some_and(|before| before != writer);
        let writer = writer.filter(|_| is_new && TAKEOVER_GRACE_PERIOD <= now - self.began)?;
        let is_due = self.warned_at.is_none_or(|at| WARNING_INTERVAL_MIN <= now - at);
        if is_due {
            self.warned_at = Some(now);
        }
        let message = format!(
            "{} still writes the status of this DaemonSet: two controllers undo each other's work, so stop one of them",
            writer.manager
        );
        Some(Conflict { event: is_due.then(|| KubeEvent::warning("AnotherController", message)) })
    }

    /// Forgets a deleted DaemonSet.
    pub(crate) fn remove(&mut self, key: &ObjectKey) {
        self.last_writers.remove(key);
    }
}

/// Returns the last field manager other than this controller that wrote status counts. `None` if there is none.
/// `metadata` is the JSON of a DaemonSet's metadata.
fn last_other_status_writer(metadata: &str) -> Option<StatusWriter> {
    status_writers(metadata).filter(|it| it.manager != CONTROLLER_NAME).max()
}

/// Returns the name of the last field manager that wrote status counts, which is taken to be the DaemonSet's
/// controller. `None` if there is none. `metadata` is the JSON of a DaemonSet's metadata.
pub(crate) fn last_status_writer_name(metadata: &str) -> Option<String> {
    status_writers(metadata).max().map(|it| it.manager)
}

#[cfg(test)]
mod tests {
    use muster_api::interner::Interner;
    use muster_engine::daemonset::facts;
    use serde_json::{Value, json};

    use super::*;

    fn set(managed_fields: &Value) -> Set {
        let set = json!({
            "metadata": {"name": "d", "namespace": "a", "managedFields": managed_fields},
            "spec": {"selector": {"matchLabels": {"app": "d"}}, "template": {}},
        });
        facts::decode_set(set.to_string().as_bytes(), &mut Interner::default()).unwrap()
    }

    fn managed_fields_entry(manager: &str, time: &str, field: &str) -> Value {
        json!({"manager": manager, "subresource": "status", "time": time, "fieldsV1": {"f:status": {field: {}}}})
    }

    #[test]
    fn another_writer_is_reported_once_a_minute() {
        let upstream = |time| {
            set(&json!([
                managed_fields_entry("kube-controller-manager", time, "f:numberReady"),
                managed_fields_entry(CONTROLLER_NAME, "9", "f:numberReady")
            ]))
        };
        let began = Instant::now();
        let at = |s| began + Duration::from_secs(s);
        let mut detector = ConflictDetector::new(began);
        let mut check = |set: &Set, s| {
            let conflict = detector.check(set, at(s));
            conflict.map_or("-".into(), |it| it.event.map_or("a write".into(), |it| it.message))
        };
        let results = [
            check(&upstream("1"), 0),
            // A write that was in flight when this replica became leader.
            check(&upstream("2"), 1),
            check(&upstream("2"), 40),
            check(&upstream("3"), 41),
            check(&upstream("4"), 42),
            check(&upstream("5"), 102),
        ];
        expect_test::expect![[r#"
            -
            -
            -
            kube-controller-manager still writes the status of this DaemonSet: two controllers undo each other's work, so stop one of them
            a write
            kube-controller-manager still writes the status of this DaemonSet: two controllers undo each other's work, so stop one of them"#]]
        .assert_eq(&results.join("\n"));
    }

    #[test]
    fn only_status_counts_identify_a_controller() {
        for (manager, field, is_conflict) in [
            ("kube-controller-manager", "f:currentNumberScheduled", true),
            ("health-checker", "f:conditions", false),
            (CONTROLLER_NAME, "f:numberReady", false),
        ] {
            let fields = json!([managed_fields_entry(manager, "1", field), {"manager": "kubectl"}, {"fieldsV1": null}]);
            assert_eq!(
                last_other_status_writer(&set(&fields).metadata).is_some(),
                is_conflict,
                "{manager} {field}"
            );
        }
        assert_eq!(last_other_status_writer("nonsense"), None);
    }
}
