//! Managed fields and server-side apply. Upstream: `structured-merge-diff`.
//!
//! `path` has path elements, `set` sets of fields, `typed` the field set, comparison and merge of typed values,
//! `managed` the entries of an object. This module applies them to writes.

mod managed;
mod path;
mod set;
mod typed;

#[cfg(test)]
mod tests;

use std::borrow::Cow;

use serde_json::{Value, json};

use self::managed::{Conflict, Entry, FieldManager, Managed};
use self::path::write_json;
use self::set::Set;
use self::typed::{Comparison, Misfit};
use crate::conversion;
use crate::error::ApiError;
use crate::kinds::Kind;
use crate::request::{Context, Target};
use crate::subresource::Subresource;
use crate::types::{self, Shape};
use crate::unstructured::{self, map_mut, str_at};

/// Annotation in which `kubectl apply` keeps the applied configuration, to find removed fields later.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Most bytes of all annotations of an object. Upstream: `TotalAnnotationSizeLimitB`.
const ANNOTATIONS_BYTES_MAX: usize = 256 << 10;

/// The manager of the fields that an object had before its first apply.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// The manager whose server-side applies take over fields from its client-side applies.
const KUBECTL: &str = "kubectl";

/// Fields that no manager owns: the object's identity and server-owned fields.
const NEVER_OWNED: &[&[&str]] = &[
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

/// Updates the managed fields of `new` after an update by `context`'s field manager. `old` is `None` on create.
/// Never fails: if the managed fields in the request are invalid, the write still succeeds.
pub(crate) fn updated(context: &Context, target: &Target, new: &mut Value, old: Option<&Value>) {
    let Some(write) = FieldsWrite::of(context, target) else { return };
    let managed = write.update(&write.shown(new), old.map(|it| write.shown(it)).as_deref());
    set_managed(new, managed.ok());
}

/// Server-side apply: merges `applied` into `old`, the stored object, or into an empty one. The result is in
/// the version of `applied`, which is the version of the target.
pub(crate) fn applied(
    context: &Context,
    target: &Target,
    applied: &Value,
    force: bool,
    old: Option<&Value>,
) -> Result<Value, ApiError> {
    let kind = target.kind;
    let Some(write) = FieldsWrite::of(context, target) else {
        return Err(ApiError::failed(format!("{} has no type to apply by", kind.kind)));
    };
    let type_meta = (str_at(applied, "apiVersion"), str_at(applied, "kind"));
    if type_meta != (&kind.api_version(), kind.kind) {
        return Err(ApiError::bad_request(format!("invalid object type: {}", group_version_kind(type_meta))));
    }
    if applied["metadata"]["managedFields"].is_array() {
        return Err(ApiError::bad_request("metadata.managedFields must be nil"));
    }
    if let Err(Misfit(why)) = typed::check(write.shape, applied, false) {
        return Err(ApiError::failed(format!(
            "failed to create typed patch object ({}/{}; {}): {why}",
            str_at(applied, "metadata.namespace"),
            str_at(applied, "metadata.name"),
            group_version_kind(type_meta)
        )));
    }
    let zero = typed::zero(write.shape);
    let live = old.map_or(Cow::Borrowed(&zero), |it| write.shown(it));
    let (mut new, managed) = write.apply(&live, applied, force)?;
    if context.manager() == KUBECTL && !last_applied(&new).is_empty() {
        set_last_applied(&mut new, applied);
    }
    set_managed(&mut new, Some(managed));
    Ok(new)
}

/// Field management of one write. Objects and field sets are compared in the version of the write; entries of
/// other versions keep their version.
struct FieldsWrite<'a> {
    kind: &'static Kind,
    shape: Shape,
    version: String,
    subresource: &'a str,
    /// Fields that this write resets to their stored value.
    resets: Set<'static>,
    manager: Cow<'a, str>,
    now: String,
}

impl<'a> FieldsWrite<'a> {
    fn of(context: &'a Context, target: &'a Target) -> Option<Self> {
        let kind = target.kind;
        Some(Self {
            kind,
            shape: Shape::Object(types::of(kind.group, kind.version, kind.kind)?),
            version: kind.api_version(),
            subresource: kind.name_of(target.subresource),
            resets: resets(kind, target.subresource),
            manager: context.manager(),
            now: unstructured::time(context.now),
        })
    }

    /// Converts a stored object to the version of this write, with the field sets of all entries.
    fn shown<'b>(&self, stored: &'b Value) -> Cow<'b, Value> {
        let is_own = |it: &Value| it["apiVersion"] == *self.version;
        if self.kind.conversion.is_none()
            && unstructured::list(&stored["metadata"], "managedFields").iter().all(is_own)
        {
            return Cow::Borrowed(stored);
        }
        let mut shown = self.kind.to_served_version(stored.clone());
        self.translate(&mut shown["metadata"]["managedFields"], |other, fields| {
            conversion::convert_field_set(other.conversion, self.kind.conversion, fields);
        });
        Cow::Owned(shown)
    }

    /// Encodes the entries for storage, each field set in the version of its entry.
    fn encode(&self, managed: Managed<'_>) -> Value {
        let mut entries = managed.encode();
        self.translate(&mut entries, |other, fields| {
            conversion::convert_field_set(self.kind.conversion, other.conversion, fields)
        });
        entries
    }

    /// Calls `change` on the field set of each entry of another version.
    fn translate(&self, entries: &mut Value, change: impl Fn(&Kind, &mut Value)) {
        for entry in entries.as_array_mut().into_iter().flatten() {
            let version = str_at(entry, "apiVersion");
            if version != self.version
                && let Some(other) = self.kind.in_version(version)
            {
                change(other, &mut entry["fieldsV1"]);
            }
        }
    }

    /// Upstream: `FieldManager.Update`.
    fn update(&self, new: &Value, old: Option<&Value>) -> Result<Value, Misfit> {
        let zero;
        let live = match old {
            Some(old) => old,
            None => {
                zero = typed::zero(self.shape);
                &zero
            }
        };
        let sent = &new["metadata"]["managedFields"];
        let of_live = || Managed::decode(&live["metadata"]["managedFields"]).unwrap_or_default();
        let managed = if !self.subresource.is_empty() {
            of_live()
        } else if is_reset(sent) {
            Managed::default()
        } else {
            // A client that does not send managed fields must not remove them.
            Managed::decode(sent).filter(|it| !it.0.is_empty()).unwrap_or_else(of_live)
        };
        if managed.0.is_empty() && old.is_some() {
            return Ok(Value::Null);
        }
        self.update_from(managed, live, new, &self.manager).map(|it| self.encode(it))
    }

    fn update_from<'b>(
        &'b self,
        managed: Managed<'b>,
        live: &'b Value,
        new: &'b Value,
        manager: &'b str,
    ) -> Result<Managed<'b>, Misfit> {
        let mut managed = self.fitted(managed);
        let changes = Comparison::of(self.shape, live, new)?.without(&self.resets);
        managed.take(&changes, None, true).expect("force leaves no conflict");
        let set = changes.modified.union(&changes.added).difference(&never_owned());
        if !set.is_empty() {
            let who = FieldManager::updates(manager, &self.version, self.subresource);
            let before = managed.remove(&who);
            let fields = before.map_or(set.clone(), |it| set.union(&it.fields));
            let (version, time) = ((&*self.version).into(), Some((&*self.now).into()));
            managed.0.push(Entry { who, version, time, fields });
        }
        managed.cap_updaters();
        Ok(managed)
    }

    /// Upstream: `FieldManager.Apply`. Returns the object without its managed fields, and the managed fields.
    fn apply(&self, live: &Value, applied: &Value, force: bool) -> Result<(Value, Value), ApiError> {
        let zero;
        let mut managed = Managed::decode(&live["metadata"]["managedFields"])
            .ok_or_else(|| ApiError::failed("failed to decode managed fields"))?;
        if managed.0.is_empty() {
            zero = typed::zero(self.shape);
            managed = self.update_from(managed, &zero, live, BEFORE_FIRST_APPLY).map_err(unreadable)?;
        }
        let managed = self.fitted(managed);
        let merged = typed::merge(self.shape, Some(live), Some(applied)).map_err(unreadable)?;
        let who = FieldManager::applies(&self.manager, self.subresource);
        let last = managed.get(&who).map(|it| it.fields.clone()).unwrap_or_default();
        let fields =
            typed::fields_of(self.shape, applied).map_err(unreadable)?.recursive_difference(&self.resets);
        let mut others = managed;
        let time = others.remove(&who).and_then(|it| it.time);
        let mut managed = others;
        managed.0.push(Entry { who: who.clone(), version: (&*self.version).into(), time, fields });

        let new = self.prune(merged.unwrap_or(Value::Null), &managed, &last).map_err(unreadable)?;
        let changes = Comparison::of(self.shape, live, &new).map_err(unreadable)?.without(&self.resets);
        if let Err(conflicts) = managed.take(&changes, Some(&who), force) {
            let may_take = || self.manager == KUBECTL;
            let remaining = match may_take().then(|| self.owned_by_client_side_apply(live)).flatten() {
                Some(allowed) => without_allowed(&conflicts, &allowed),
                None => conflicts,
            };
            if !remaining.is_empty() {
                return Err(refuse_conflicts(remaining));
            }
            managed.take(&changes, Some(&who), true).expect("force leaves no conflict");
        }
        let is_changed = !typed::is_same(live, &new);
        if let Some(at) = managed.0.iter().position(|it| it.who == who) {
            if is_changed {
                managed.0[at].time = Some((&*self.now).into());
            }
            managed.0[at].fields = managed.0[at].fields.difference(&never_owned());
            if managed.0[at].fields.is_empty() {
                managed.0.remove(at);
            }
        }
        let managed = self.encode(managed);
        Ok((new, managed))
    }

    /// Rule: a field that a manager applied before and does not apply now is removed, unless another manager
    /// owns it too.
    /// Upstream: `Updater.prune`.
    fn prune(&self, merged: Value, managed: &Managed<'_>, last: &Set<'_>) -> Result<Value, Misfit> {
        if last.is_empty() {
            return Ok(merged);
        }
        let shape = self.shape;
        let named = |set: &Set<'_>| set.with_named_fields(Some(shape)).into_owned();
        let last = named(last);
        let all = named(&typed::fields_of(shape, &merged)?);
        let pruned = typed::without(shape, merged.clone(), &last);
        let kept = named(&typed::fields_of(shape, &pruned)?).union(&named(&managed.fields()));
        let pruned = typed::without(shape, merged.clone(), &all.difference(&kept));
        // Restore other fields that were removed together with them: the manager never owned those.
        let kept = named(&typed::fields_of(shape, &pruned)?);
        Ok(typed::without(shape, merged, &all.difference(&kept).intersection(&last)))
    }

    /// Fields that a client-side apply set and nobody changed since: a server-side apply may take them over.
    fn owned_by_client_side_apply(&self, live: &Value) -> Option<Set<'static>> {
        let text = last_applied(live);
        if text.is_empty() {
            return None;
        }
        let last: Value = serde_json::from_str(text).ok()?;
        if str_at(&last, "apiVersion") != self.version {
            return None;
        }
        typed::check(self.shape, live, false).ok()?;
        typed::check(self.shape, &last, false).ok()?;
        let changes = Comparison::of(self.shape, &last, live).ok()?;
        let all = typed::fields_of(self.shape, &last).ok()?;
        let unchanged =
            all.difference(&changes.modified).difference(&changes.added).difference(&changes.removed);
        Some(unchanged.into_owned())
    }

    /// Keeps the entries of served versions, with field sets that fit the schema.
    fn fitted<'b>(&self, managed: Managed<'b>) -> Managed<'b> {
        let is_served = |it: &str| it == self.version || self.kind.in_version(it).is_some();
        let ours = managed.0.into_iter().filter(|it| is_served(&it.version));
        Managed(ours.map(|it| Entry { fields: it.fields.fitted(self.shape), ..it }).collect())
    }
}

fn without_allowed<'a>(conflicts: &[Conflict<'a>], allowed: &Set<'a>) -> Vec<Conflict<'a>> {
    let remaining =
        |it: &Conflict<'a>| Conflict { who: it.who.clone(), fields: it.fields.difference(allowed) };
    conflicts.iter().map(remaining).filter(|it| !it.fields.is_empty()).collect()
}

fn unreadable(Misfit(why): Misfit) -> ApiError {
    ApiError::failed(format!("failed to compare objects: {why}"))
}

fn never_owned() -> Set<'static> {
    let mut all = Set::default();
    NEVER_OWNED.iter().for_each(|it| all.insert(it));
    all
}

/// Fields that this write resets. Upstream: `GetResetFields` of the kind's strategy.
fn resets(kind: &Kind, subresource: Subresource) -> Set<'static> {
    let mut all = Set::default();
    kind.keeps(subresource).for_each(|it| all.insert(it));
    all
}

/// Whether the client clears the managed fields, by an empty list or a list with one empty entry.
fn is_reset(sent: &Value) -> bool {
    match sent.as_array().map(Vec::as_slice) {
        Some([]) => true,
        Some([Value::Object(one)]) => one.is_empty(),
        _ => false,
    }
}

fn set_managed(object: &mut Value, managed: Option<Value>) {
    let meta = map_mut(object, "metadata");
    match managed {
        Some(Value::Array(entries)) if !entries.is_empty() => {
            meta.insert("managedFields".to_owned(), Value::Array(entries));
        }
        _ => drop(meta.remove("managedFields")),
    }
}

fn last_applied(object: &Value) -> &str {
    object["metadata"]["annotations"][LAST_APPLIED].as_str().unwrap_or_default()
}

/// Updates the annotation of client-side apply, so that a user can switch back.
fn set_last_applied(object: &mut Value, applied: &Value) {
    let mut applied = applied.clone();
    if let Some(annotations) = applied.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.remove(LAST_APPLIED);
    }
    let mut text = String::new();
    write_json(&mut text, &applied);
    text.push('\n');
    let annotations = map_mut(&mut object["metadata"], "annotations");
    annotations.insert(LAST_APPLIED.to_owned(), json!(text));
    let bytes: usize =
        annotations.iter().map(|(name, value)| name.len() + value.as_str().map_or(0, str::len)).sum();
    if ANNOTATIONS_BYTES_MAX < bytes {
        annotations.remove(LAST_APPLIED);
    }
}

fn refuse_conflicts(mut conflicts: Vec<Conflict<'_>>) -> ApiError {
    conflicts.sort_by_cached_key(|it| it.who.id());
    let all: Vec<_> = conflicts
        .iter()
        .flat_map(|it| it.fields.paths().into_iter().map(|path| (it.who.text(), path)))
        .collect();
    let message = if let [(who, path)] = &all[..] {
        format!("Apply failed with 1 conflict: conflict with {who}: {path}")
    } else {
        let mut lines = Vec::new();
        for conflict in &conflicts {
            lines.push(format!("conflicts with {}:", conflict.who.text()));
            lines.extend(conflict.fields.paths().into_iter().map(|path| format!("- {path}")));
        }
        format!("Apply failed with {} conflicts: {}", all.len(), lines.join("\n"))
    };
    let cause = |(who, path): &(String, String)| json!({"reason": "FieldManagerConflict", "message": format!("conflict with {who}"), "field": path});
    ApiError::apply_conflict(message, all.iter().map(cause).collect())
}

/// Go's format of a kind: `apps/v1, Kind=DaemonSet`, and `/v1, Kind=Pod` in the core group.
fn group_version_kind((version, kind): (&str, &str)) -> String {
    let slash = if version.contains('/') { "" } else { "/" };
    format!("{slash}{version}, Kind={kind}")
}
