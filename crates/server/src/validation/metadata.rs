//! Validation of `metadata`, for all kinds.
//!
//! Upstream: `apimachinery/pkg/api/validation/objectmeta.go`.

use muster_api::well_known::{FINALIZER_FOREGROUND, FINALIZER_ORPHAN};
use serde_json::Value;

use super::field_error::{ErrorPath, FieldErrors, InvalidValue};
use super::{labels, names};
use crate::go_format;
use crate::small_map::SmallSet;
use crate::unstructured::{is_set, list_at, str_at};

/// Maximum total size of the keys and values of an object's annotations in bytes.
const ANNOTATIONS_BYTES_MAX: usize = 256 << 10;

/// Checks the metadata of an object as a whole, without comparing it to the stored metadata: for a new object, and for
/// an updated pod. `name_rule` returns the errors of the name. Upstream: `ValidateObjectMeta`.
pub(crate) fn validate_object_metadata(
    object: &Value,
    name_rule: names::NameRule,
    is_namespaced: bool,
    out: &mut FieldErrors,
) {
    let meta = &object["metadata"];
    let at = ErrorPath::new("metadata");
    let prefix = str_at(meta, "generateName");
    if !prefix.is_empty() {
        out.invalid_for_each(&at.field("generateName"), prefix, name_rule(prefix, true));
    }
    let name = str_at(meta, "name");
    if name.is_empty() {
        out.required(&at.field("name"), "name or generateName is required");
    } else {
        out.invalid_for_each(&at.field("name"), name, name_rule(name, false));
    }
    let namespace = str_at(meta, "namespace");
    match (is_namespaced, namespace.is_empty()) {
        (true, true) => out.required(&at.field("namespace"), ""),
        (true, false) => {
            out.invalid_for_each(
                &at.field("namespace"),
                namespace,
                names::dns_label_name_errors(namespace, false),
            );
        }
        (false, true) => {}
        (false, false) => out.forbidden(&at.field("namespace"), "not allowed on this type"),
    }
    check_labels_annotations_owners(meta, &at, out);
    check_finalizers(list_at(meta, "finalizers"), &at.field("finalizers"), out);
}

/// Checks an update of metadata: labels, annotations and owner references are valid, immutable fields are unchanged,
/// and an object that is being deleted gets no new finalizers. Upstream: `ValidateObjectMetaUpdate`.
pub(crate) fn validate_metadata_update(new: &Value, old: &Value, out: &mut FieldErrors) {
    let (new, old) = (&new["metadata"], &old["metadata"]);
    let at = ErrorPath::new("metadata");
    if is_set(&old["deletionTimestamp"]) {
        let old_finalizers: SmallSet<_> = list_at(old, "finalizers").iter().collect();
        let mut added: Vec<_> = list_at(new, "finalizers")
            .iter()
            .filter(|it| !old_finalizers.contains(it))
            .map(Value::to_string)
            .collect();
        if !added.is_empty() {
            added.sort_unstable();
            let why = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                added.join(", ")
            );
            out.forbidden(&at.field("finalizers"), &why);
        }
    }
    for name in
        ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"]
    {
        if new[name] != old[name] {
            out.invalid(&at.field(name), &new[name], IMMUTABLE_MESSAGE);
        }
    }
    check_labels_annotations_owners(new, &at, out);
}

/// Error message for a change of an immutable field.
pub(crate) const IMMUTABLE_MESSAGE: &str = "field is immutable";

/// Checks the labels, annotations and owner references in `metadata`.
fn check_labels_annotations_owners(meta: &Value, at: &ErrorPath, out: &mut FieldErrors) {
    labels::check_labels(&meta["labels"], &at.field("labels"), out);
    check_annotations(&meta["annotations"], &at.field("annotations"), out);
    check_owner_references(&meta["ownerReferences"], &at.field("ownerReferences"), out);
}

/// Checks the keys and the total size of annotations.
pub(crate) fn check_annotations(annotations: &Value, at: &ErrorPath, out: &mut FieldErrors) {
    let mut bytes = 0;
    for (key, value) in annotations.as_object().into_iter().flatten() {
        for why in names::qualified_name_errors(&key.to_lowercase()) {
            out.invalid(at, key, &why);
        }
        bytes += key.len() + value.as_str().map_or(0, str::len);
    }
    if ANNOTATIONS_BYTES_MAX < bytes {
        out.too_long(at, ANNOTATIONS_BYTES_MAX);
    }
}

/// Checks the owner references. At most one of them may be the controller.
fn check_owner_references(owners: &Value, at: &ErrorPath, out: &mut FieldErrors) {
    let mut controller: Option<String> = None;
    let mut owners_in_go: Option<String> = None;
    for owner in owners.as_array().into_iter().flatten() {
        let api_version = str_at(owner, "apiVersion");
        // `group/version`: only the version must not be empty.
        if api_version.rsplit('/').next().is_none_or(str::is_empty) || 1 < api_version.matches('/').count() {
            out.invalid(&at.field("apiVersion"), api_version, "version must not be empty");
        }
        for name in ["kind", "name", "uid"] {
            if str_at(owner, name).is_empty() {
                out.invalid(&at.field(name), "", "must not be empty");
            }
        }
        if api_version == "v1" && owner["kind"] == "Event" {
            out.invalid(at, owner, "/v1, Kind=Event is disallowed from being an owner");
        }
        if owner["controller"] == true {
            let this = format!("{}/{}", str_at(owner, "kind"), str_at(owner, "name"));
            match &controller {
                None => controller = Some(this),
                Some(first) => {
                    let why = format!(
                        "Only one reference can have Controller set to true. Found \"true\" in references for {first} \
                         and {this}"
                    );
                    let owners_in_go = owners_in_go.get_or_insert_with(|| format_owner_references(owners));
                    out.invalid(at, InvalidValue::Formatted(owners_in_go.as_str().into()), &why);
                }
            }
        }
    }
}

/// Formats owner references for an error message: as JSON, with the fields in the order of the Go struct, and
/// truncated.
fn format_owner_references(owners: &Value) -> String {
    /// JSON names of the fields of an owner reference, in the order of the Go struct.
    const OWNER_REFERENCE_FIELDS: &[&str] =
        &["apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"];
    let owner = |it: &Value| {
        let field_json = |field: &&str| match &it[*field] {
            Value::Null if matches!(*field, "controller" | "blockOwnerDeletion") => None,
            Value::Null => Some(format!("\"{field}\":\"\"")),
            value => Some(format!("\"{field}\":{value}")),
        };
        format!("{{{}}}", OWNER_REFERENCE_FIELDS.iter().filter_map(field_json).collect::<Vec<_>>().join(","))
    };
    let owners: Vec<_> = owners.as_array().into_iter().flatten().map(owner).collect();
    go_format::truncate_quoted(&format!("[{}]", owners.join(",")))
}

/// Checks that each finalizer without a domain is one of the standard finalizers `kubernetes`, `orphan` and
/// `foregroundDeletion`.
pub(crate) fn check_standard_finalizers(object: &Value, out: &mut FieldErrors) {
    let at = ErrorPath::new("metadata.finalizers");
    for (index, it) in list_at(&object["metadata"], "finalizers").iter().enumerate() {
        let it = it.as_str().unwrap_or_default();
        if !it.contains('/') && !is_standard_finalizer(it) {
            let why = "name is neither a standard finalizer name nor is it fully qualified";
            out.invalid(&at.index(index), it, why);
        }
    }
}

/// Whether a finalizer is one of those without a domain. Upstream: `IsStandardFinalizerName`.
pub(super) fn is_standard_finalizer(name: &str) -> bool {
    matches!(name, "kubernetes" | FINALIZER_ORPHAN | FINALIZER_FOREGROUND)
}

/// Checks the syntax of finalizers, and that `orphan` and `foregroundDeletion` are not combined.
pub(crate) fn check_finalizers(finalizers: &[Value], at: &ErrorPath, out: &mut FieldErrors) {
    for it in finalizers {
        let it = it.as_str().unwrap_or_default();
        out.invalid_for_each(at, it, names::qualified_name_errors(it));
    }
    let has = |name: &str| finalizers.iter().any(|it| it == name);
    if has(FINALIZER_ORPHAN) && has(FINALIZER_FOREGROUND) {
        let why = "finalizer orphan and foregroundDeletion cannot be both set";
        out.invalid(at, &Value::from(finalizers.to_vec()), why);
    }
}
