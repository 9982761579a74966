//! Kinds that are served in another version than they are stored in: converted at the door, both ways.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::defaulting::TEMPLATE_GENERATION;
use crate::kinds::Kind;
use crate::object::{self, is_set, map_mut};

#[derive(Debug)]
pub(crate) struct Door {
    /// Group, version and plural of the kind that the objects are stored as.
    pub(crate) stored: (&'static str, &'static str, &'static str),
    /// The field selectors of this version, and the fields of the stored object that they mean.
    pub(crate) field_names: &'static [&'static str],
    fields: &'static [&'static str],
    /// Where fields of this version are in the stored one: both as paths of names.
    moved: &'static [(&'static [&'static str], &'static [&'static str])],
    inward: fn(&mut Value),
    outward: fn(&mut Value),
}

/// The DaemonSets of `extensions/v1beta1`, as manifests of the time before `apps` still name them.
pub(crate) static OLD_DAEMON_SETS: Door = Door {
    stored: ("apps", "v1", "daemonsets"),
    field_names: &[],
    fields: &[],
    moved: &[(&["spec", "templateGeneration"], &["metadata", "annotations", TEMPLATE_GENERATION])],
    inward: old_daemon_set_inward,
    outward: old_daemon_set_outward,
};

/// The events of `events.k8s.io`, which are those of the core group under other names.
pub(crate) static NEW_EVENTS: Door = Door {
    stored: ("", "v1", "events"),
    field_names: &[
        "reason",
        "regarding.kind",
        "regarding.namespace",
        "regarding.name",
        "regarding.uid",
        "regarding.apiVersion",
        "regarding.resourceVersion",
        "regarding.fieldPath",
        "reportingController",
        "type",
    ],
    fields: &[
        "reason",
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reportingComponent",
        "type",
    ],
    moved: &[
        (&["regarding"], &["involvedObject"]),
        (&["note"], &["message"]),
        (&["reportingController"], &["reportingComponent"]),
        (&["deprecatedSource"], &["source"]),
        (&["deprecatedFirstTimestamp"], &["firstTimestamp"]),
        (&["deprecatedLastTimestamp"], &["lastTimestamp"]),
        (&["deprecatedCount"], &["count"]),
    ],
    inward: new_event_inward,
    outward: new_event_outward,
};

/// From the version of `kind`, in which the client speaks, to the one that is stored.
pub(crate) fn inward(kind: &Kind, mut object: Value) -> Value {
    if let Some(door) = kind.door {
        (door.inward)(&mut object);
        named(kind.stored(), &mut object);
    }
    object
}

/// From the version that is stored to the one of `kind`.
pub(crate) fn outward(kind: &Kind, stored: Bytes) -> Bytes {
    if kind.door.is_none() {
        return stored;
    }
    object::bytes(&outward_value(kind, object::parse(&stored)))
}

pub(crate) fn outward_value(kind: &Kind, mut object: Value) -> Value {
    if let Some(door) = kind.door {
        (door.outward)(&mut object);
        named(kind, &mut object);
    }
    object
}

/// A set of fields, as managed fields have it, from the names of one version to those of another version of the same objects.
pub(crate) fn field_set(from: &Kind, to: &Kind, fields: &mut Value) {
    for (here, stored) in from.door.iter().flat_map(|it| it.moved) {
        move_fields(fields, here, stored);
    }
    for (here, stored) in to.door.iter().flat_map(|it| it.moved) {
        move_fields(fields, stored, here);
    }
}

fn move_fields(fields: &mut Value, from: &[&str], to: &[&str]) {
    let Some(taken) = take_fields(fields, from) else { return };
    let mut at = fields;
    for name in to {
        at = &mut at[format!("f:{name}")];
        if !at.is_object() {
            *at = json!({});
        }
    }
    *at = taken;
}

/// A parent that held nothing else goes too.
fn take_fields(fields: &mut Value, path: &[&str]) -> Option<Value> {
    let (name, rest) = path.split_first()?;
    let (name, fields) = (format!("f:{name}"), fields.as_object_mut()?);
    if rest.is_empty() {
        return fields.remove(&name);
    }
    let below = fields.get_mut(&name)?;
    let taken = take_fields(below, rest)?;
    if below.as_object().is_some_and(Map::is_empty) {
        fields.remove(&name);
    }
    Some(taken)
}

/// The field of the stored object that a field selector of `kind` means.
pub(crate) fn field<'a>(kind: &Kind, name: &'a str) -> &'a str {
    let Some(door) = kind.door else { return name };
    door.field_names.iter().position(|it| *it == name).map_or(name, |at| door.fields[at])
}

fn named(kind: &Kind, object: &mut Value) {
    object["apiVersion"] = json!(kind.api_version());
    object["kind"] = json!(kind.kind);
}

/// With the defaults that the old version had, and the new one has not.
fn old_daemon_set_inward(set: &mut Value) {
    let labels = set["spec"]["template"]["metadata"]["labels"].clone();
    if is_set(&labels) {
        if !is_set(&set["spec"]["selector"]) {
            map_mut(set, "spec").insert("selector".into(), json!({"matchLabels": labels}));
        }
        if !is_set(&set["metadata"]["labels"]) {
            map_mut(set, "metadata").insert("labels".into(), labels);
        }
    }
    let spec = map_mut(set, "spec");
    let generation = spec.remove("templateGeneration").and_then(|it| it.as_i64()).filter(|it| *it != 0);
    if !spec.get("updateStrategy").is_some_and(|it| is_set(&it["type"])) {
        spec.insert("updateStrategy".into(), json!({"type": "OnDelete"}));
    }
    if let Some(generation) = generation {
        map_mut(set, "metadata");
        map_mut(&mut set["metadata"], "annotations")
            .insert(TEMPLATE_GENERATION.into(), json!(generation.to_string()));
    }
}

fn old_daemon_set_outward(set: &mut Value) {
    let annotations = set.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut);
    let Some(said) = annotations.and_then(|it| it.remove(TEMPLATE_GENERATION)) else { return };
    if !is_set(&set["metadata"]["annotations"]) {
        map_mut(set, "metadata").remove("annotations");
    }
    if let Some(generation) = said.as_str().and_then(|it| it.parse::<i64>().ok()) {
        map_mut(set, "spec").insert("templateGeneration".into(), json!(generation));
    }
}

fn new_event_inward(event: &mut Value) {
    let Some(event) = event.as_object_mut() else { return };
    for (new, old) in NEW_EVENTS.moved {
        rename(event, new[0], old[0]);
    }
    // What an event of the core group always has.
    for name in ["eventTime", "firstTimestamp", "lastTimestamp"] {
        event.entry(name).or_insert(Value::Null);
    }
    for name in ["involvedObject", "source"] {
        event.entry(name).or_insert_with(|| json!({}));
    }
    for name in ["reportingComponent", "reportingInstance"] {
        event.entry(name).or_insert_with(|| json!(""));
    }
}

fn new_event_outward(event: &mut Value) {
    let Some(event) = event.as_object_mut() else { return };
    for (new, old) in NEW_EVENTS.moved {
        rename(event, old[0], new[0]);
    }
    for name in ["reportingController", "reportingInstance"] {
        if event.get(name).is_some_and(|it| !is_set(it)) {
            event.remove(name);
        }
    }
}

fn rename(object: &mut Map<String, Value>, from: &str, to: &str) {
    if let Some(value) = object.remove(from) {
        object.insert(to.to_owned(), value);
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check(plural: (&str, &str, &str), object: Value, golden: &Expect) {
        let kind = Kind::find(plural.0, plural.1, plural.2).unwrap();
        let stored = inward(kind, object);
        let shown = outward_value(kind, stored.clone());
        golden.assert_eq(&format!("{stored}\n{shown}"));
        assert_eq!(inward(kind, shown), stored, "what a client got it may send back");
    }

    #[test]
    fn an_old_daemon_set() {
        let sets = ("extensions", "v1beta1", "daemonsets");
        let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {}});
        check(
            sets,
            json!({"metadata": {"name": "s"}, "spec": {"template": template}}),
            &expect![[r#"
                {"apiVersion":"apps/v1","kind":"DaemonSet","metadata":{"labels":{"a":"b"},"name":"s"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{}},"updateStrategy":{"type":"OnDelete"}}}
                {"apiVersion":"extensions/v1beta1","kind":"DaemonSet","metadata":{"labels":{"a":"b"},"name":"s"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{}},"updateStrategy":{"type":"OnDelete"}}}"#]],
        );
        check(
            sets,
            json!({"metadata": {"name": "s", "labels": {"x": "y"}}, "spec": {
                "template": template,
                "selector": {"matchLabels": {"a": "b"}},
                "updateStrategy": {"type": "RollingUpdate"},
                "templateGeneration": 7,
            }}),
            &expect![[r#"
                {"apiVersion":"apps/v1","kind":"DaemonSet","metadata":{"annotations":{"deprecated.daemonset.template.generation":"7"},"labels":{"x":"y"},"name":"s"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{}},"updateStrategy":{"type":"RollingUpdate"}}}
                {"apiVersion":"extensions/v1beta1","kind":"DaemonSet","metadata":{"labels":{"x":"y"},"name":"s"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{}},"templateGeneration":7,"updateStrategy":{"type":"RollingUpdate"}}}"#]],
        );
    }

    #[test]
    fn a_new_event() {
        let event = json!({
            "metadata": {"name": "e"},
            "regarding": {"kind": "Pod", "name": "p"},
            "note": "said",
            "reason": "Pulled",
            "eventTime": "2026-01-01T00:00:00.000000Z",
            "reportingController": "kubelet",
        });
        check(
            ("events.k8s.io", "v1", "events"),
            event,
            &expect![[r#"
            {"apiVersion":"v1","eventTime":"2026-01-01T00:00:00.000000Z","firstTimestamp":null,"involvedObject":{"kind":"Pod","name":"p"},"kind":"Event","lastTimestamp":null,"message":"said","metadata":{"name":"e"},"reason":"Pulled","reportingComponent":"kubelet","reportingInstance":"","source":{}}
            {"apiVersion":"events.k8s.io/v1","deprecatedFirstTimestamp":null,"deprecatedLastTimestamp":null,"deprecatedSource":{},"eventTime":"2026-01-01T00:00:00.000000Z","kind":"Event","metadata":{"name":"e"},"note":"said","reason":"Pulled","regarding":{"kind":"Pod","name":"p"},"reportingController":"kubelet"}"#]],
        );
    }
}
