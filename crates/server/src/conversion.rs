//! Conversion between the served version and the storage version of kinds for which these differ.

use serde_json::{Map, Value, json};

use crate::unstructured::{is_set, map_at_mut};
use muster_api::well_known::ANNOTATION_TEMPLATE_GENERATION;

/// Conversion of one kind between a served version and its storage version.
#[derive(Debug)]
pub(crate) struct Conversion {
    /// Fields of the served version that field selectors support, besides `metadata.name` and `metadata.namespace`.
    pub(crate) served_fields: &'static [&'static str],
    /// The fields of the storage version that correspond to `served_fields`, in the same order.
    stored_fields: &'static [&'static str],
    /// Fields whose path differs between the versions, as pairs of the path in the served version and the path in the
    /// storage version.
    moved_fields: &'static [(&'static [&'static str], &'static [&'static str])],
    /// Function that converts an object from the served version to the storage version.
    to_storage: fn(&mut Value),
    /// Function that converts an object from the storage version to the served version.
    to_served: fn(&mut Value),
}

/// Conversion of DaemonSets between `extensions/v1beta1` and the storage version `apps/v1`.
pub(crate) static EXTENSIONS_DAEMON_SETS: Conversion = Conversion {
    served_fields: &[],
    stored_fields: &[],
    moved_fields: &[(
        &["spec", "templateGeneration"],
        &["metadata", "annotations", ANNOTATION_TEMPLATE_GENERATION],
    )],
    to_storage: daemon_set_to_storage,
    to_served: daemon_set_from_storage,
};

/// Conversion of Events between `events.k8s.io/v1` and the storage version, which is `v1` of the core group. Some
/// fields have different names in the two versions.
pub(crate) static EVENTS_K8S_IO: Conversion = Conversion {
    served_fields: &[
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
    stored_fields: &[
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
    moved_fields: &[
        (&["regarding"], &["involvedObject"]),
        (&["note"], &["message"]),
        (&["reportingController"], &["reportingComponent"]),
        (&["deprecatedSource"], &["source"]),
        (&["deprecatedFirstTimestamp"], &["firstTimestamp"]),
        (&["deprecatedLastTimestamp"], &["lastTimestamp"]),
        (&["deprecatedCount"], &["count"]),
    ],
    to_storage: event_to_storage,
    to_served: event_from_storage,
};

impl Conversion {
    /// Converts an object from the served version to the storage version. The caller sets `apiVersion` and
    /// `kind`.
    pub(crate) fn to_storage(&self, object: &mut Value) {
        (self.to_storage)(object);
    }

    /// Converts an object from the storage version to the served version. The caller sets `apiVersion` and
    /// `kind`.
    pub(crate) fn to_served(&self, object: &mut Value) {
        (self.to_served)(object);
    }

    /// Returns the field of the storage version that corresponds to the field `name` of the served version in a field
    /// selector. Returns `name` if it is not in `served_fields`.
    pub(crate) fn stored_field<'a>(&self, name: &'a str) -> &'a str {
        self.served_fields.iter().position(|it| *it == name).map_or(name, |at| self.stored_fields[at])
    }
}

/// Converts a field set of `managedFields` from one version of a kind to another. `None` stands for the storage
/// version, which needs no conversion.
pub(crate) fn convert_field_set(from: Option<&Conversion>, to: Option<&Conversion>, fields: &mut Value) {
    for (here, stored) in from.iter().flat_map(|it| it.moved_fields) {
        move_fields(fields, here, stored);
    }
    for (here, stored) in to.iter().flat_map(|it| it.moved_fields) {
        move_fields(fields, stored, here);
    }
}

/// Moves the entries at the path `from` of a field set to the path `to`.
fn move_fields(fields: &mut Value, from: &[&str], to: &[&str]) {
    let Some(moved) = take_fields(fields, from) else { return };
    let mut at = fields;
    for name in to {
        at = &mut at[format!("f:{name}")];
        if !at.is_object() {
            *at = json!({});
        }
    }
    *at = moved;
}

/// Removes and returns the entries at `path` of a field set, or returns `None` if there are none. Also removes each
/// parent that becomes empty.
fn take_fields(fields: &mut Value, path: &[&str]) -> Option<Value> {
    let (name, rest) = path.split_first()?;
    let (name, fields) = (format!("f:{name}"), fields.as_object_mut()?);
    if rest.is_empty() {
        return fields.remove(&name);
    }
    let below = fields.get_mut(&name)?;
    let moved = take_fields(below, rest)?;
    if below.as_object().is_some_and(Map::is_empty) {
        fields.remove(&name);
    }
    Some(moved)
}

/// Converts a DaemonSet of `extensions/v1beta1` to `apps/v1`, and sets the defaults that only `extensions/v1beta1` has.
fn daemon_set_to_storage(set: &mut Value) {
    let labels = set["spec"]["template"]["metadata"]["labels"].clone();
    if is_set(&labels) {
        if !is_set(&set["spec"]["selector"]) {
            map_at_mut(set, "spec").insert("selector".into(), json!({"matchLabels": labels}));
        }
        if !is_set(&set["metadata"]["labels"]) {
            map_at_mut(set, "metadata").insert("labels".into(), labels);
        }
    }
    let spec = map_at_mut(set, "spec");
    let generation = spec.remove("templateGeneration").and_then(|it| it.as_i64()).filter(|it| *it != 0);
    if !spec.get("updateStrategy").is_some_and(|it| is_set(&it["type"])) {
        spec.insert("updateStrategy".into(), json!({"type": "OnDelete"}));
    }
    if let Some(generation) = generation {
        map_at_mut(set, "metadata");
        map_at_mut(&mut set["metadata"], "annotations")
            .insert(ANNOTATION_TEMPLATE_GENERATION.into(), json!(generation.to_string()));
    }
}

/// Converts a DaemonSet of `apps/v1` to `extensions/v1beta1`.
fn daemon_set_from_storage(set: &mut Value) {
    let annotations = set.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut);
    let Some(annotation) = annotations.and_then(|it| it.remove(ANNOTATION_TEMPLATE_GENERATION)) else {
        return;
    };
    if !is_set(&set["metadata"]["annotations"]) {
        map_at_mut(set, "metadata").remove("annotations");
    }
    if let Some(generation) = annotation.as_str().and_then(|it| it.parse::<i64>().ok()) {
        map_at_mut(set, "spec").insert("templateGeneration".into(), json!(generation));
    }
}

/// Converts an Event of `events.k8s.io/v1` to the core group.
fn event_to_storage(event: &mut Value) {
    let Some(event) = event.as_object_mut() else { return };
    for (new, old) in EVENTS_K8S_IO.moved_fields {
        rename_field(event, new[0], old[0]);
    }
    // The core group's Event always has these fields.
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

/// Converts an Event of the core group to `events.k8s.io/v1`.
fn event_from_storage(event: &mut Value) {
    let Some(event) = event.as_object_mut() else { return };
    for (new, old) in EVENTS_K8S_IO.moved_fields {
        rename_field(event, old[0], new[0]);
    }
    for name in ["reportingController", "reportingInstance"] {
        if event.get(name).is_some_and(|it| !is_set(it)) {
            event.remove(name);
        }
    }
}

/// Renames a field of an object, if the object has it.
fn rename_field(object: &mut Map<String, Value>, from: &str, to: &str) {
    if let Some(value) = object.remove(from) {
        object.insert(to.to_owned(), value);
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;
    use crate::kinds::Kind;

    fn check(plural: (&str, &str, &str), object: Value, golden: &Expect) {
        let kind = Kind::builtin(plural.0, plural.1, plural.2);
        let stored = kind.to_storage_version(object);
        let shown = kind.to_served_version(stored.clone());
        golden.assert_eq(&format!("{stored}\n{shown}"));
        assert_eq!(kind.to_storage_version(shown), stored, "what a client got it may send back");
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
