//! Detects a second controller that writes the same DaemonSets: each undoes the other's work, and both look healthy.
//!
//! `managedFields` records which manager managed_fields_entry the status last. Another manager that still writes it after this replica
//! became leader is a second controller. The watch delivers `managedFields` anyway, so this costs no request.

use std::collections::BTreeMap;
use std::time::Duration;

use muster_api::meta::ObjectKey;
use muster_engine::controller::KubeEvent;
use muster_engine::daemonset::facts::Set;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::Instant;

use crate::NAME;

/// Writes that the last leader or upstream's controller had in flight when this replica became leader are ignored.
const SETTLED_AFTER: Duration = Duration::from_secs(30);

/// Minimum interval between warnings: two controllers write many times a second.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// Detects status writes of another controller.
pub(crate) struct ConflictDetector {
    began: Instant,
    warned_at: Option<Instant>,
    /// The other manager that managed_fields_entry the status of each DaemonSet last, and when.
    last_writers: BTreeMap<ObjectKey, Option<Writer>>,
}

/// A field manager, and when it managed_fields_entry.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Writer {
    time: String,
    name: String,
}

/// A status write by another controller, with a warning event if one is due.
pub(crate) struct Conflict {
    pub(crate) event: Option<KubeEvent>,
}

impl ConflictDetector {
    pub(crate) fn new(now: Instant) -> Self {
        Self { began: now, warned_at: None, last_writers: BTreeMap::new() }
    }

    /// Checks a DaemonSet that the watch delivered.
    pub(crate) fn check(&mut self, set: &Set, now: Instant) -> Option<Conflict> {
        let writer = last_writer(&set.metadata);
        let before = self.last_writers.insert(set.key.clone(), writer.clone());
        let is_new = before.is_some_and(|before| before != writer);
        let writer = writer.filter(|_| is_new && SETTLED_AFTER <= now - self.began)?;
        let is_due = self.warned_at.is_none_or(|at| WARN_EVERY <= now - at);
        if is_due {
            self.warned_at = Some(now);
        }
        let message = format!(
            "{} still writes the status of this DaemonSet: two controllers undo each other's work, so switch that one off",
            writer.name
        );
        Some(Conflict { event: is_due.then(|| KubeEvent::warning("AnotherController", message)) })
    }

    /// Removes a deleted DaemonSet.
    pub(crate) fn remove(&mut self, key: &ObjectKey) {
        self.last_writers.remove(key);
    }
}

/// The manager other than this controller that managed_fields_entry the status counts last.
fn last_writer(metadata: &str) -> Option<Writer> {
    writers(metadata).into_iter().filter(|it| it.name != NAME).max()
}

/// The controller of a DaemonSet: the manager that managed_fields_entry its status counts last.
pub(crate) fn controller_of(metadata: &str) -> Option<String> {
    writers(metadata).into_iter().max().map(|it| it.name)
}

/// The managers that managed_fields_entry status counts, from `managedFields`.
fn writers(metadata: &str) -> Vec<Writer> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Metadata<'a> {
        #[serde(borrow, default)]
        managed_fields: Vec<Entry<'a>>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Entry<'a> {
        #[serde(default)]
        manager: String,
        #[serde(default)]
        subresource: String,
        #[serde(default)]
        time: String,
        #[serde(borrow, default)]
        fields_v1: Option<&'a RawValue>,
    }
    // Only controllers write counts; other managers may write conditions of their own.
    let has_counts = |it: &Entry<'_>| {
        it.fields_v1
            .is_some_and(|it| it.get().contains("\"f:number") || it.get().contains("NumberScheduled\""))
    };
    let Ok(metadata) = serde_json::from_str::<Metadata<'_>>(metadata) else { return Vec::new() };
    let writers =
        metadata.managed_fields.into_iter().filter(|it| it.subresource == "status" && has_counts(it));
    writers.map(|it| Writer { time: it.time, name: it.manager }).collect()
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
        facts::set(set.to_string().as_bytes(), &mut Interner::default()).unwrap()
    }

    fn managed_fields_entry(manager: &str, time: &str, field: &str) -> Value {
        json!({"manager": manager, "subresource": "status", "time": time, "fieldsV1": {"f:status": {field: {}}}})
    }

    #[test]
    fn another_writer_is_reported_once_a_minute() {
        let upstream = |time| {
            set(&json!([
                managed_fields_entry("kube-controller-manager", time, "f:numberReady"),
                managed_fields_entry(NAME, "9", "f:numberReady")
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
            kube-controller-manager still writes the status of this DaemonSet: two controllers undo each other's work, so switch that one off
            a write
            kube-controller-manager still writes the status of this DaemonSet: two controllers undo each other's work, so switch that one off"#]]
        .assert_eq(&results.join("\n"));
    }

    #[test]
    fn only_status_counts_identify_a_controller() {
        for (manager, field, is_conflict) in [
            ("kube-controller-manager", "f:currentNumberScheduled", true),
            ("health-checker", "f:conditions", false),
            (NAME, "f:numberReady", false),
        ] {
            let fields = json!([managed_fields_entry(manager, "1", field), {"manager": "kubectl"}, {"fieldsV1": null}]);
            assert_eq!(last_writer(&set(&fields).metadata).is_some(), is_conflict, "{manager} {field}");
        }
        assert_eq!(last_writer("nonsense"), None);
    }
}
