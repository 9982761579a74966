//! Another controller that looks after the same sets: two of them undo each other's work, and each looks healthy.
//!
//! The API server writes down who wrote the status of a set last. A name beside ours that is still writing after we have
//! begun to lead is somebody who should be off. Nothing is asked for to know this: it is in what the watch brings anyway.

use std::collections::BTreeMap;
use std::time::Duration;

use muster_engine::daemonset::facts::{Key, Set};
use muster_engine::daemonset::plan::Event;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::Instant;

use crate::NAME;

/// What the last leader, or upstream's controller, had under way when we began is let through.
const SETTLED_AFTER: Duration = Duration::from_secs(30);

/// Two controllers that fight write many times a second; it is told no more often than this.
const TELL_EVERY: Duration = Duration::from_secs(60);

pub(crate) struct Rivals {
    began: Instant,
    told_at: Option<Instant>,
    /// Who else wrote the status of each set last, and when.
    seen: BTreeMap<Key, Option<Writer>>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Writer {
    time: String,
    name: String,
}

/// A write of somebody else's, and what to say of it, if it is time to.
pub(crate) struct Rival {
    pub(crate) event: Option<Event>,
}

impl Rivals {
    pub(crate) fn new(now: Instant) -> Self {
        Self { began: now, told_at: None, seen: BTreeMap::new() }
    }

    /// Takes a set in as it is now.
    pub(crate) fn look(&mut self, set: &Set, now: Instant) -> Option<Rival> {
        let writer = last_writer(&set.metadata);
        let before = self.seen.insert(set.key.clone(), writer.clone());
        let is_news = before.is_some_and(|before| before != writer);
        let writer = writer.filter(|_| is_news && SETTLED_AFTER <= now - self.began)?;
        let is_due = self.told_at.is_none_or(|at| TELL_EVERY <= now - at);
        if is_due {
            self.told_at = Some(now);
        }
        let message = format!(
            "{} still writes the status of this DaemonSet: two controllers undo each other's work, so switch that one off",
            writer.name
        );
        Some(Rival { event: is_due.then(|| Event::warning("AnotherController", message)) })
    }

    pub(crate) fn forget(&mut self, key: &Key) {
        self.seen.remove(key);
    }
}

/// Who, beside us, wrote the counts of the status last.
fn last_writer(metadata: &str) -> Option<Writer> {
    writers(metadata).into_iter().filter(|it| it.name != NAME).max()
}

/// Who looks after a set: whoever wrote the counts of its status last.
pub(crate) fn controller_of(metadata: &str) -> Option<String> {
    writers(metadata).into_iter().max().map(|it| it.name)
}

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
    // Others may well write conditions of their own.
    let counts = |it: &Entry<'_>| {
        it.fields_v1
            .is_some_and(|it| it.get().contains("\"f:number") || it.get().contains("NumberScheduled\""))
    };
    let Ok(metadata) = serde_json::from_str::<Metadata<'_>>(metadata) else { return Vec::new() };
    let writers = metadata.managed_fields.into_iter().filter(|it| it.subresource == "status" && counts(it));
    writers.map(|it| Writer { time: it.time, name: it.manager }).collect()
}

#[cfg(test)]
mod tests {
    use muster_engine::daemonset::facts::{self, Shared};
    use serde_json::{Value, json};

    use super::*;

    fn set(managed_fields: &Value) -> Set {
        let set = json!({
            "metadata": {"name": "d", "namespace": "a", "managedFields": managed_fields},
            "spec": {"selector": {"matchLabels": {"app": "d"}}, "template": {}},
        });
        facts::set(set.to_string().as_bytes(), &mut Shared::default()).unwrap()
    }

    fn wrote(manager: &str, time: &str, field: &str) -> Value {
        json!({"manager": manager, "subresource": "status", "time": time, "fieldsV1": {"f:status": {field: {}}}})
    }

    #[test]
    fn who_still_writes_after_we_began_is_told_now_and_then() {
        let upstream = |time| {
            set(&json!([
                wrote("kube-controller-manager", time, "f:numberReady"),
                wrote(NAME, "9", "f:numberReady")
            ]))
        };
        let began = Instant::now();
        let at = |s| began + Duration::from_secs(s);
        let mut rivals = Rivals::new(began);
        let mut look = |set: &Set, s| {
            let rival = rivals.look(set, at(s));
            rival.map_or("-".into(), |it| it.event.map_or("a write".into(), |it| it.message))
        };
        let said = [
            look(&upstream("1"), 0),
            // Its last words.
            look(&upstream("2"), 1),
            look(&upstream("2"), 40),
            look(&upstream("3"), 41),
            look(&upstream("4"), 42),
            look(&upstream("5"), 102),
        ];
        expect_test::expect![[r#"
            -
            -
            -
            kube-controller-manager still writes the status of this DaemonSet: two controllers undo each other's work, so switch that one off
            a write
            kube-controller-manager still writes the status of this DaemonSet: two controllers undo each other's work, so switch that one off"#]]
        .assert_eq(&said.join("\n"));
    }

    #[test]
    fn only_counts_are_ours_alone() {
        for (manager, field, is_rival) in [
            ("kube-controller-manager", "f:currentNumberScheduled", true),
            ("health-checker", "f:conditions", false),
            (NAME, "f:numberReady", false),
        ] {
            let fields = json!([wrote(manager, "1", field), {"manager": "kubectl"}, {"fieldsV1": null}]);
            assert_eq!(last_writer(&set(&fields).metadata).is_some(), is_rival, "{manager} {field}");
        }
        assert_eq!(last_writer("nonsense"), None);
    }
}
