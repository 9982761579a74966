//! Managed fields and server-side apply. Upstream: `structured-merge-diff`.
//!
//! `path_element` contains the elements of field paths, `field_set` sets of field paths, `typed_value` the comparison
//! and merge of typed values, and `managed_fields` the entries of `managedFields`. This module applies them to writes.

/// Sets of field paths.
mod field_set;
/// The entries of `managedFields`.
mod managed_fields;
/// Elements of field paths.
mod path_element;
/// Compares and merges values whose type is known.
mod typed_value;

#[cfg(test)]
mod tests;

use std::borrow::Cow;

use muster_api::go_json;
use muster_api::well_known::ANNOTATION_LAST_APPLIED;
use serde_json::{Value, json};

use self::field_set::FieldSet;
use self::managed_fields::{FieldConflict, ManagedFields, ManagedFieldsEntry, ManagerIdentifier};
use self::typed_value::{Comparison, SchemaError};
use crate::conversion;
use crate::error::ApiError;
use crate::kinds::{Kind, KindRegistry};
use crate::request::{RequestContext, RequestTarget};
use crate::subresource::Subresource;
use crate::types::Shape;
use crate::unstructured::{self, map_at_mut, str_at};

/// Maximum total size of the keys and values of an object's annotations in bytes. Upstream:
/// `TotalAnnotationSizeLimitB`.
const ANNOTATIONS_BYTES_MAX: usize = 256 << 10;

/// Name of the manager that becomes the owner of all existing fields when an object without managed fields is first
/// applied. The name is upstream's.
const BEFORE_FIRST_APPLY_MANAGER: &str = "before-first-apply";

/// Name of kubectl's field manager. A server-side apply by this manager takes over the fields that an earlier
/// client-side apply set and that have not changed since.
const KUBECTL_MANAGER: &str = "kubectl";

/// Fields that no manager owns: the identity of the object, and metadata that the server sets.
const UNOWNED_FIELDS: &[&[&str]] = &[
    &["apiVersion"],
    &["kind"],
    &["metadata"],
    &["metadata", "name"],
    &["metadata", "namespace"],
    &["metadata", "creationTimestamp"],
    &["metadata", "selfLink"],
    &["metadata", "uid"],
    &["metadata", "clusterName"],
    &["metadata", "generation"],
    &["metadata", "managedFields"],
    &["metadata", "resourceVersion"],
];

/// Updates the managed fields of `new`, the result of a create or update by the field manager of `context`. `old` is
/// the stored object, or `None` on create. Both are in the storage version. Does nothing if the type of the kind is not
/// known.
///
/// Absent or invalid managed fields in `new` are replaced by those of `old`, and so are any managed fields in a write
/// of a subresource. In other writes, an empty list in `new` removes the managed fields. An update does not add managed
/// fields to an object without any. If `new` cannot be compared with `old`, the managed fields are removed, and the
/// write still succeeds.
pub(crate) fn track_field_ownership(
    context: &RequestContext,
    kinds: &KindRegistry,
    target: &RequestTarget,
    new: &mut Value,
    old: Option<&Value>,
) {
    let Some(write) = ManagedWrite::new(context, kinds, target) else { return };
    let managed = write.managed_fields_after_update(
        &write.to_write_version(new),
        old.map(|it| write.to_write_version(it)).as_deref(),
    );
    set_managed_fields(new, managed.ok());
}

/// Merges the configuration `applied` into the stored object `old` (server-side apply), or into an empty object if
/// `old` is `None`. Returns the merged object in the API version of the target, which `applied` must have too. If
/// kubectl applies and the object has the annotation of client-side apply, the annotation is updated.
///
/// Fails, for example, if `applied` does not conform to its type, contains managed fields, or changes fields of other
/// managers while `force` is not set.
pub(crate) fn apply_configuration(
    context: &RequestContext,
    kinds: &KindRegistry,
    target: &RequestTarget,
    applied: &Value,
    force: bool,
    old: Option<&Value>,
) -> Result<Value, ApiError> {
    let kind = target.kind;
    let Some(write) = ManagedWrite::new(context, kinds, target) else {
        return Err(ApiError::internal_without_reason(format!("{} has no type to apply by", kind.kind)));
    };
    let type_meta = (str_at(applied, "apiVersion"), str_at(applied, "kind"));
    if type_meta != (&kind.api_version(), kind.kind) {
        return Err(ApiError::bad_request(format!(
            "invalid object type: {}",
            format_group_version_kind(type_meta)
        )));
    }
    if applied["metadata"]["managedFields"].is_array() {
        return Err(ApiError::bad_request("metadata.managedFields must be nil"));
    }
    if let Err(SchemaError(why)) = typed_value::check_schema(write.shape, applied, false) {
        return Err(ApiError::internal_without_reason(format!(
            "failed to create typed patch object ({}/{}; {}): {why}",
            str_at(applied, "metadata.namespace"),
            str_at(applied, "metadata.name"),
            format_group_version_kind(type_meta)
        )));
    }
    let zero = write.shape.go_zero_value();
    let live = old.map_or(Cow::Borrowed(&zero), |it| write.to_write_version(it));
    let (mut new, managed) = write.apply(&live, applied, force)?;
    if context.field_manager_name() == KUBECTL_MANAGER && !last_applied_configuration(&new).is_empty() {
        set_last_applied_configuration(&mut new, applied);
    }
    set_managed_fields(&mut new, Some(managed));
    Ok(new)
}

/// A create, update or apply whose managed fields are computed. Objects and field sets are compared in the API version
/// of the write. Entries of `managedFields` in other versions keep their version.
struct ManagedWrite<'a> {
    /// The registry in which the kinds of the other API versions of the object are looked up.
    kinds: &'a KindRegistry,
    kind: &'static Kind,
    /// The type of the object in the version of the write.
    shape: Shape,
    /// The API version of the write, such as `apps/v1`.
    version: String,
    /// Name of the written subresource. Empty for the whole object.
    subresource: &'a str,
    /// Fields that this write resets to their stored value.
    reset_fields: FieldSet<'static>,
    /// Name of the field manager.
    manager: Cow<'a, str>,
    /// Time of the write, as entries of `managedFields` contain it.
    now: String,
}

impl<'a> ManagedWrite<'a> {
    /// Returns the write of a request, or `None` if the type of the kind is not known.
    fn new(context: &'a RequestContext, kinds: &'a KindRegistry, target: &'a RequestTarget) -> Option<Self> {
        let kind = target.kind;
        Some(Self {
            kinds,
            kind,
            shape: Shape::Object(kind.object_type()?),
            version: kind.api_version(),
            subresource: kind.subresource_name(target.subresource),
            reset_fields: reset_fields(kind, target.subresource),
            manager: context.field_manager_name(),
            now: unstructured::format_time(context.now),
        })
    }

    /// Converts an object in the storage version, and the field sets in its managed fields, to the version of this
    /// write.
    fn to_write_version<'b>(&self, stored: &'b Value) -> Cow<'b, Value> {
        let is_own = |it: &Value| it["apiVersion"] == *self.version;
        if self.kind.conversion().is_none()
            && unstructured::list_at(&stored["metadata"], "managedFields").iter().all(is_own)
        {
            return Cow::Borrowed(stored);
        }
        let mut shown = self.kind.to_served_version(stored.clone());
        self.convert_entries(&mut shown["metadata"]["managedFields"], |other, fields| {
            conversion::convert_field_set(other.conversion(), self.kind.conversion(), fields);
        });
        Cow::Owned(shown)
    }

    /// Encodes managed fields for storage. Converts the field set of each entry to the version of the entry.
    fn encode(&self, managed: ManagedFields<'_>) -> Value {
        let mut entries = managed.encode();
        self.convert_entries(&mut entries, |other, fields| {
            conversion::convert_field_set(self.kind.conversion(), other.conversion(), fields)
        });
        entries
    }

    /// Calls `change` for each entry of `managedFields` in a served version other than the version of the write. The
    /// arguments of `change` are the kind in the version of the entry, and the field set of the entry.
    fn convert_entries(&self, entries: &mut Value, change: impl Fn(&Kind, &mut Value)) {
        for entry in entries.as_array_mut().into_iter().flatten() {
            let version = str_at(entry, "apiVersion");
            if version != self.version
                && let Some(other) = self.kinds.served().find_in_version(self.kind, version)
            {
                change(other, &mut entry["fieldsV1"]);
            }
        }
    }

    /// Returns the value of `managedFields` after an update, or after a create if `old` is `None`. After an update, it
    /// is null if the client clears the managed fields, or if neither the stored object nor the update has any. Managed
    /// fields in an update of a subresource are ignored. Upstream: `FieldManager.Update`.
    fn managed_fields_after_update(&self, new: &Value, old: Option<&Value>) -> Result<Value, SchemaError> {
        let zero;
        let live = match old {
            Some(old) => old,
            None => {
                zero = self.shape.go_zero_value();
                &zero
            }
        };
        let sent = &new["metadata"]["managedFields"];
        let of_live = || ManagedFields::decode(&live["metadata"]["managedFields"]).unwrap_or_default();
        let managed = if !self.subresource.is_empty() {
            of_live()
        } else if clears_managed_fields(sent) {
            ManagedFields::default()
        } else {
            // A client that does not send managed fields must not remove them.
            ManagedFields::decode(sent).filter(|it| !it.0.is_empty()).unwrap_or_else(of_live)
        };
        if managed.0.is_empty() && old.is_some() {
            return Ok(Value::Null);
        }
        self.update_managed_fields(managed, live, new, &self.manager).map(|it| self.encode(it))
    }

    /// Makes `manager` the owner of the fields that `new` adds or modifies, and removes them from the entries of all
    /// other managers. Removes the fields that `new` no longer has from all entries. Ignores the fields that the write
    /// resets.
    fn update_managed_fields<'b>(
        &'b self,
        managed: ManagedFields<'b>,
        live: &'b Value,
        new: &'b Value,
        manager: &'b str,
    ) -> Result<ManagedFields<'b>, SchemaError> {
        let mut managed = self.reconcile_with_schema(managed);
        let changes = Comparison::between(self.shape, live, new)?.without_fields(&self.reset_fields);
        managed.remove_from_other_managers(&changes, None, true).expect("force leaves no conflict");
        let set = changes.modified.union(&changes.added).difference(&unowned_fields());
        if !set.is_empty() {
            let who = ManagerIdentifier::for_update(manager, &self.version, self.subresource);
            let before = managed.remove(&who);
            let fields = before.map_or(set.clone(), |it| set.union(&it.fields));
            let (version, time) = ((&*self.version).into(), Some((&*self.now).into()));
            managed.0.push(ManagedFieldsEntry { field_manager: who, version, time, fields });
        }
        managed.cap_update_entries();
        Ok(managed)
    }

    /// Merges the applied configuration into the live object. Returns the merged object, and its new managed fields
    /// separately. Fails with a conflict if the apply changes fields of other managers, unless `force` is set or the
    /// fields are those that kubectl may take over ([`ManagedWrite::client_side_applied_fields`]). Upstream:
    /// `FieldManager.Apply`.
    fn apply(&self, live: &Value, applied: &Value, force: bool) -> Result<(Value, Value), ApiError> {
        let zero;
        let mut managed = ManagedFields::decode(&live["metadata"]["managedFields"])
            .ok_or_else(|| ApiError::internal_without_reason("failed to decode managed fields"))?;
        if managed.0.is_empty() {
            zero = self.shape.go_zero_value();
            managed = self
                .update_managed_fields(managed, &zero, live, BEFORE_FIRST_APPLY_MANAGER)
                .map_err(comparison_error)?;
        }
        let managed = self.reconcile_with_schema(managed);
        let merged =
            typed_value::merge_values(self.shape, Some(live), Some(applied)).map_err(comparison_error)?;
        let who = ManagerIdentifier::for_apply(&self.manager, self.subresource);
        let last = managed.get(&who).map(|it| it.fields.clone()).unwrap_or_default();
        let fields = typed_value::field_set(self.shape, applied)
            .map_err(comparison_error)?
            .recursive_difference(&self.reset_fields);
        let mut others = managed;
        let time = others.remove(&who).and_then(|it| it.time);
        let mut managed = others;
        managed.0.push(ManagedFieldsEntry {
            field_manager: who.clone(),
            version: (&*self.version).into(),
            time,
            fields,
        });

        let new =
            self.prune_fields(merged.unwrap_or(Value::Null), &managed, &last).map_err(comparison_error)?;
        let changes = Comparison::between(self.shape, live, &new)
            .map_err(comparison_error)?
            .without_fields(&self.reset_fields);
        if let Err(conflicts) = managed.remove_from_other_managers(&changes, Some(&who), force) {
            let may_take = || self.manager == KUBECTL_MANAGER;
            let remaining = match may_take().then(|| self.client_side_applied_fields(live)).flatten() {
                Some(allowed) => without_allowed_fields(&conflicts, &allowed),
                None => conflicts,
            };
            if !remaining.is_empty() {
                return Err(conflict_error(remaining));
            }
            managed.remove_from_other_managers(&changes, Some(&who), true).expect("force leaves no conflict");
        }
        let is_changed = !typed_value::is_equal(live, &new);
        if let Some(at) = managed.0.iter().position(|it| it.field_manager == who) {
            if is_changed {
                managed.0[at].time = Some((&*self.now).into());
            }
            managed.0[at].fields = managed.0[at].fields.difference(&unowned_fields());
            if managed.0[at].fields.is_empty() {
                managed.0.remove(at);
            }
        }
        let managed = self.encode(managed);
        Ok((new, managed))
    }

    /// Returns `merged` without the fields that the manager no longer applies. `last` are the fields that the manager
    /// owned after its last apply.
    ///
    /// Rule: a field that a manager applied before and no longer applies is removed, unless another manager also owns
    /// it.
    /// Upstream: `Updater.prune`.
    fn prune_fields(
        &self,
        merged: Value,
        managed: &ManagedFields<'_>,
        last: &FieldSet<'_>,
    ) -> Result<Value, SchemaError> {
        if last.is_empty() {
            return Ok(merged);
        }
        let shape = self.shape;
        let named = |set: &FieldSet<'_>| set.with_parent_fields(Some(shape)).into_owned();
        let last = named(last);
        let all = named(&typed_value::field_set(shape, &merged)?);
        let pruned = typed_value::remove_fields(shape, merged.clone(), &last);
        let kept = named(&typed_value::field_set(shape, &pruned)?).union(&named(&managed.all_fields()));
        let pruned = typed_value::remove_fields(shape, merged.clone(), &all.difference(&kept));
        // Restore other fields that were removed together with them: the manager never owned those.
        let kept = named(&typed_value::field_set(shape, &pruned)?);
        Ok(typed_value::remove_fields(shape, merged, &all.difference(&kept).intersection(&last)))
    }

    /// Returns the fields that a client-side apply set and that have not changed since. A server-side apply by kubectl
    /// may take over these fields. Returns `None` if there was no client-side apply in the version of this write, or if
    /// its configuration cannot be compared with `live`.
    fn client_side_applied_fields(&self, live: &Value) -> Option<FieldSet<'static>> {
        let text = last_applied_configuration(live);
        if text.is_empty() {
            return None;
        }
        let last: Value = serde_json::from_str(text).ok()?;
        if str_at(&last, "apiVersion") != self.version {
            return None;
        }
        typed_value::check_schema(self.shape, live, false).ok()?;
        typed_value::check_schema(self.shape, &last, false).ok()?;
        let changes = Comparison::between(self.shape, &last, live).ok()?;
        let all = typed_value::field_set(self.shape, &last).ok()?;
        let unchanged =
            all.difference(&changes.modified).difference(&changes.added).difference(&changes.removed);
        Some(unchanged.into_owned())
    }

    /// Removes the entries whose API version is no longer served, and adjusts the field sets of the remaining entries
    /// to the types of this server.
    fn reconcile_with_schema<'b>(&self, managed: ManagedFields<'b>) -> ManagedFields<'b> {
        let is_served =
            |it: &str| it == self.version || self.kinds.served().find_in_version(self.kind, it).is_some();
        let ours = managed.0.into_iter().filter(|it| is_served(&it.version));
        ManagedFields(
            ours.map(|it| ManagedFieldsEntry { fields: it.fields.reconcile_with_schema(self.shape), ..it })
                .collect(),
        )
    }
}

/// Returns the conflicts without the fields in `allowed`. Conflicts that have no field left are dropped.
fn without_allowed_fields<'a>(
    conflicts: &[FieldConflict<'a>],
    allowed: &FieldSet<'a>,
) -> Vec<FieldConflict<'a>> {
    let remaining = |it: &FieldConflict<'a>| FieldConflict {
        field_manager: it.field_manager.clone(),
        fields: it.fields.difference(allowed),
    };
    conflicts.iter().map(remaining).filter(|it| !it.fields.is_empty()).collect()
}

/// Returns the error for objects that cannot be compared.
fn comparison_error(SchemaError(why): SchemaError) -> ApiError {
    ApiError::internal_without_reason(format!("failed to compare objects: {why}"))
}

/// Returns [`UNOWNED_FIELDS`] as a field set.
fn unowned_fields() -> FieldSet<'static> {
    let mut all = FieldSet::default();
    UNOWNED_FIELDS.iter().for_each(|it| all.insert(it));
    all
}

/// Returns the fields that a write of the subresource resets to their stored value. Upstream: `GetResetFields` of the
/// strategy.
fn reset_fields(kind: &Kind, subresource: Subresource) -> FieldSet<'static> {
    let mut all = FieldSet::default();
    kind.reset_fields(subresource).for_each(|it| all.insert(it));
    all
}

/// Whether `sent`, the `managedFields` in a request, tells the server to clear the managed fields: it is an empty list
/// or a list with one empty entry.
fn clears_managed_fields(sent: &Value) -> bool {
    match sent.as_array().map(Vec::as_slice) {
        Some([]) => true,
        Some([Value::Object(one)]) => one.is_empty(),
        _ => false,
    }
}

/// Sets `metadata.managedFields`, or removes it if `managed` is `None` or has no entries.
fn set_managed_fields(object: &mut Value, managed: Option<Value>) {
    let meta = map_at_mut(object, "metadata");
    match managed {
        Some(Value::Array(entries)) if !entries.is_empty() => {
            meta.insert("managedFields".to_owned(), Value::Array(entries));
        }
        _ => drop(meta.remove("managedFields")),
    }
}

/// Returns the annotation `kubectl.kubernetes.io/last-applied-configuration`, or "" if the object does not have it.
fn last_applied_configuration(object: &Value) -> &str {
    object["metadata"]["annotations"][ANNOTATION_LAST_APPLIED].as_str().unwrap_or_default()
}

/// Sets the annotation `kubectl.kubernetes.io/last-applied-configuration` to the applied configuration, so that the
/// user can switch back to client-side apply. Removes the annotation instead if the annotations would exceed
/// `ANNOTATIONS_BYTES_MAX`.
fn set_last_applied_configuration(object: &mut Value, applied: &Value) {
    let mut applied = applied.clone();
    if let Some(annotations) = applied.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.remove(ANNOTATION_LAST_APPLIED);
    }
    let mut text = go_json::to_string(&applied);
    text.push('\n');
    let annotations = map_at_mut(&mut object["metadata"], "annotations");
    annotations.insert(ANNOTATION_LAST_APPLIED.to_owned(), json!(text));
    let bytes: usize =
        annotations.iter().map(|(name, value)| name.len() + value.as_str().map_or(0, str::len)).sum();
    if ANNOTATIONS_BYTES_MAX < bytes {
        annotations.remove(ANNOTATION_LAST_APPLIED);
    }
}

/// Returns the error for an apply with conflicts. Its causes list the manager and path of each conflicting field.
fn conflict_error(mut conflicts: Vec<FieldConflict<'_>>) -> ApiError {
    conflicts.sort_by_cached_key(|it| it.field_manager.sort_key());
    let all: Vec<_> = conflicts
        .iter()
        .flat_map(|it| {
            it.fields.member_paths().into_iter().map(|path| (it.field_manager.conflict_text(), path))
        })
        .collect();
    let message = if let [(who, path)] = &all[..] {
        format!("Apply failed with 1 conflict: conflict with {who}: {path}")
    } else {
        let mut lines = Vec::new();
        for conflict in &conflicts {
            lines.push(format!("conflicts with {}:", conflict.field_manager.conflict_text()));
            lines.extend(conflict.fields.member_paths().into_iter().map(|path| format!("- {path}")));
        }
        format!("Apply failed with {} conflicts: {}", all.len(), lines.join("\n"))
    };
    let cause = |(who, path): &(String, String)| json!({"reason": "FieldManagerConflict", "message": format!("conflict with {who}"), "field": path});
    ApiError::apply_conflict(message, all.iter().map(cause).collect())
}

/// Formats an API version and kind as Go does: `apps/v1, Kind=DaemonSet`, or `/v1, Kind=Pod` in the core group.
fn format_group_version_kind((version, kind): (&str, &str)) -> String {
    let slash = if version.contains('/') { "" } else { "/" };
    format!("{slash}{version}, Kind={kind}")
}
