//! Computes the object that `kubectl apply` would write for a file and a live object.
//!
//! This is a three-way merge of the file, the live object, and the last applied configuration (an annotation of the
//! live object). Fields of the last applied configuration that are not in the file are removed. Fields that other
//! writers have set since the last apply are kept.

use alloc::collections::BTreeSet;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

use muster_api::well_known::ANNOTATION_LAST_APPLIED;
use serde_json::{Map, Value};

/// Key of the annotation with the last applied configuration: the object that `kubectl apply` applied last.
pub const LAST_APPLIED_ANNOTATION: &str = ANNOTATION_LAST_APPLIED;

/// The lists in a DaemonSet whose elements are merged: field name of the list, and the field that identifies an element
/// (merge key). All other lists are replaced.
const MERGE_KEYS: [(&str, &str); 14] = [
    ("containers", "name"),
    ("initContainers", "name"),
    ("ephemeralContainers", "name"),
    ("env", "name"),
    ("ports", "containerPort"),
    ("volumeMounts", "mountPath"),
    ("volumeDevices", "devicePath"),
    ("volumes", "name"),
    ("imagePullSecrets", "name"),
    ("hostAliases", "ip"),
    ("topologySpreadConstraints", "topologyKey"),
    ("resourceClaims", "name"),
    ("schedulingGates", "name"),
    ("ownerReferences", "uid"),
];

/// The fields of `metadata` that the API server sets.
const SERVER_METADATA_FIELDS: [&str; 6] =
    ["creationTimestamp", "generation", "managedFields", "resourceVersion", "selfLink", "uid"];

/// Returns the object that `kubectl apply` would write for the manifest `file` and the live object. The annotation with
/// the last applied configuration is not updated.
///
/// Rule: `kubectl apply` writes the three-way merge of the file, the live object and the last applied configuration.
pub fn applied_object(live: &Value, file: &Value) -> Value {
    let last = live["metadata"]["annotations"][LAST_APPLIED_ANNOTATION].as_str();
    let last: Value = last.and_then(|it| serde_json::from_str(it).ok()).unwrap_or_default();
    merge_values("", Some(live), &last, &without_server_fields(file))
}

/// Returns a copy of the manifest `file` without `status` and without the fields of [`SERVER_METADATA_FIELDS`].
fn without_server_fields(file: &Value) -> Value {
    let mut file = file.clone();
    if let Some(fields) = file.as_object_mut() {
        fields.remove("status");
    }
    if let Some(metadata) = file.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|key, _| !SERVER_METADATA_FIELDS.contains(&key.as_str()));
    }
    file
}

/// Returns the three-way merge of one field: its values in the live object, in the last applied configuration and in
/// the file. `field` is the name of the field. A `null` in the file removes a field. A value in the file that is
/// neither an object nor a list replaces the live value.
fn merge_values(field: &str, live: Option<&Value>, last: &Value, file: &Value) -> Value {
    match (live, file) {
        (live, Value::Object(file)) => {
            let empty = Map::new();
            let mut fields = live.and_then(Value::as_object).unwrap_or(&empty).clone();
            let dropped = last.as_object().into_iter().flat_map(Map::keys);
            for key in dropped.filter(|it| !file.contains_key(*it)) {
                // Fields that the API server sets are never in a last applied configuration.
                fields.remove(key);
            }
            for (key, value) in file {
                if value.is_null() {
                    fields.remove(key);
                } else {
                    let value = merge_values(key, fields.get(key), &last[key.as_str()], value);
                    fields.insert(key.clone(), value);
                }
            }
            fields.into()
        }
        (Some(Value::Array(live)), Value::Array(file)) => {
            let last = last.as_array().map_or(&[][..], Vec::as_slice);
            merge_list(field, live, last, file).unwrap_or_else(|| file.clone().into())
        }
        _ => file.clone(),
    }
}

/// Returns the three-way merge of a list, element by element. `field` is the name of the list. `None` if the list must
/// be replaced as a whole: the list has no merge key, an element lacks the field of the merge key, or two elements have
/// the same value in that field.
fn merge_list(field: &str, live: &[Value], last: &[Value], file: &[Value]) -> Option<Value> {
    let (_, key) = MERGE_KEYS.iter().find(|(name, _)| *name == field)?;
    let name = |it: &Value| it.get(key).map(Value::to_string);
    let all_names = |list: &[Value]| -> Option<Vec<String>> {
        let names: Vec<String> = list.iter().map(name).collect::<Option<_>>()?;
        let distinct: BTreeSet<&String> = names.iter().collect();
        (distinct.len() == names.len()).then_some(names)
    };
    let (live_names, last_names, file_names) = (all_names(live)?, all_names(last)?, all_names(file)?);
    let of =
        |list: &'_ [Value], wanted: &str| list.iter().find(|it| name(it).as_deref() == Some(wanted)).cloned();
    let mut merged_list: Vec<Value> = Vec::new();
    for (element, wanted) in file.iter().zip(&file_names) {
        let before = of(last, wanted).unwrap_or_default();
        merged_list.push(merge_values("", of(live, wanted).as_ref(), &before, element));
    }
    let others = live.iter().zip(&live_names);
    let others = others.filter(|(_, name)| !file_names.contains(name) && !last_names.contains(name));
    merged_list.extend(others.map(|(element, _)| element.clone()));
    Some(merged_list.into())
}

/// Returns the JSON merge patch (RFC 7386) that changes `from` to `to`. `None` if both are equal.
pub fn merge_patch(from: &Value, to: &Value) -> Option<Value> {
    if from == to {
        return None;
    }
    let (Some(from), Some(to)) = (from.as_object(), to.as_object()) else { return Some(to.clone()) };
    let mut patch = Map::new();
    for key in from.keys().filter(|it| !to.contains_key(*it)) {
        patch.insert(key.to_string(), Value::Null);
    }
    for (key, value) in to {
        match from.get(key) {
            None => drop(patch.insert(key.clone(), value.clone())),
            Some(before) => drop(merge_patch(before, value).map(|it| patch.insert(key.clone(), it))),
        }
    }
    Some(patch.into())
}
