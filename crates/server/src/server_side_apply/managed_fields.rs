//! `metadata.managedFields`: which manager owns which fields, and since when.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use muster_api::go_json;
use serde_json::{Map, Value, json};

use super::field_set::FieldSet;
use super::typed_value::Comparison;
use crate::small_map::SmallSet;

/// Maximum number of entries with the operation `Update`. If there are more, the oldest entries are merged. Upstream:
/// `DefaultMaxUpdateManagers`.
const UPDATE_ENTRIES_MAX: usize = 10;

/// Manager name of the entry into which the oldest entries are merged. The name is upstream's.
const ANCIENT_CHANGES_MANAGER: &str = "ancient-changes";

/// The decoded `managedFields` of an object.
#[derive(Debug, Clone, Default)]
pub(super) struct ManagedFields<'a>(pub(super) Vec<ManagedFieldsEntry<'a>>);

/// One entry of `managedFields`.
#[derive(Debug, Clone)]
pub(super) struct ManagedFieldsEntry<'a> {
    pub(super) field_manager: ManagerIdentifier<'a>,
    /// API version of the object to which the paths in `fields` refer.
    pub(super) version: Cow<'a, str>,
    /// Time of the last change to the entry, in RFC 3339 format. `None` if the entry has no time.
    pub(super) time: Option<Cow<'a, str>>,
    /// The fields that the manager owns.
    pub(super) fields: FieldSet<'a>,
}

/// The identifier of an entry of `managedFields`: its manager, operation and subresource. For updates, the API version
/// is part of the operation: a manager that updates an object in two API versions has two entries. A manager that uses
/// server-side apply has one entry for all versions. Upstream: the manager identifier.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct ManagerIdentifier<'a> {
    pub(super) name: Cow<'a, str>,
    pub(super) operation: ManagedOperation<'a>,
    /// Name of the written subresource. Empty for the whole object.
    pub(super) subresource: Cow<'a, str>,
}

/// The field `operation` of an entry of `managedFields`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum ManagedOperation<'a> {
    /// Server-side apply.
    Apply,
    /// Any other write, in this API version.
    Update { version: Cow<'a, str> },
}

/// A conflict of a server-side apply: fields that another manager owns and that the apply would change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FieldConflict<'a> {
    pub(super) field_manager: ManagerIdentifier<'a>,
    pub(super) fields: FieldSet<'a>,
}

impl<'a> ManagerIdentifier<'a> {
    /// Returns the identifier of the entry for a manager that writes by create, update or patch.
    pub(super) fn for_update(manager: &'a str, version: &'a str, subresource: &'a str) -> Self {
        let operation = ManagedOperation::Update { version: version.into() };
        Self { name: name_or_unknown(manager), operation, subresource: subresource.into() }
    }

    /// Returns the identifier of the entry for a manager that writes by server-side apply.
    pub(super) fn for_apply(manager: &'a str, subresource: &'a str) -> Self {
        Self {
            name: name_or_unknown(manager),
            operation: ManagedOperation::Apply,
            subresource: subresource.into(),
        }
    }

    fn is_update(&self) -> bool {
        self.operation != ManagedOperation::Apply
    }

    /// Returns the identifier in upstream's JSON format. Conflicts are sorted by it, and so are update entries with the
    /// same time.
    pub(super) fn sort_key(&self) -> String {
        let mut id = String::from("{");
        let mut put = |name: &str, value: &str| {
            if !value.is_empty() {
                id.push_str(if id.len() == 1 { "\"" } else { ",\"" });
                id.push_str(name);
                id.push_str("\":");
                id.push_str(&go_json::to_string(&json!(value)));
            }
        };
        put("manager", &self.name);
        match &self.operation {
            ManagedOperation::Apply => put("operation", "Apply"),
            ManagedOperation::Update { version } => {
                put("operation", "Update");
                put("apiVersion", version);
            }
        }
        put("subresource", &self.subresource);
        id.push('}');
        id
    }

    /// Returns the manager in the format of conflict messages, such as `"kubectl" using apps/v1`.
    pub(super) fn conflict_text(&self) -> String {
        let mut text = format!("{:?}", self.name);
        if !self.subresource.is_empty() {
            text.push_str(&format!(" with subresource {:?}", self.subresource));
        }
        if let ManagedOperation::Update { version } = &self.operation {
            text.push_str(&format!(" using {version}"));
        }
        text
    }
}

/// Returns the name of the manager, or `unknown` if it is empty.
fn name_or_unknown(manager: &str) -> Cow<'_, str> {
    if manager.is_empty() { "unknown".into() } else { manager.into() }
}

impl<'a> ManagedFields<'a> {
    /// Decodes the entries of `managedFields`. Returns `None` if an entry is invalid.
    pub(super) fn decode(entries: &'a Value) -> Option<Self> {
        let mut all = Self::default();
        for entry in entries.as_array().into_iter().flatten() {
            let text = |name: &str| Cow::Borrowed(entry[name].as_str().unwrap_or_default());
            let version = text("apiVersion");
            let operation = match &*text("operation") {
                "Apply" => ManagedOperation::Apply,
                "Update" => ManagedOperation::Update { version: version.clone() },
                _ => return None,
            };
            if version.is_empty() || text("fieldsType") != "FieldsV1" {
                return None;
            }
            let fields = FieldSet::from_json(&entry["fieldsV1"]).ok()?;
            let manager =
                ManagerIdentifier { name: text("manager"), operation, subresource: text("subresource") };
            let time = entry["time"].as_str().map(Cow::Borrowed);
            all.0.push(ManagedFieldsEntry { field_manager: manager, version, time, fields });
        }
        // Of the entries of one manager, the last one counts.
        let mut seen = SmallSet::default();
        let mut is_last: Vec<bool> = all.0.iter().rev().map(|it| seen.insert(&it.field_manager)).collect();
        if is_last.contains(&false) {
            all.0.retain(|_| is_last.pop().unwrap_or(true));
        }
        Some(all)
    }

    /// Encodes `managedFields` as JSON, with its entries in upstream's order.
    pub(super) fn encode(mut self) -> Value {
        let operation = |it: &ManagedFieldsEntry<'_>| it.field_manager.is_update();
        self.0.sort_by(|left, right| {
            operation(left)
                .cmp(&operation(right))
                .then_with(|| left.time.cmp(&right.time))
                .then_with(|| left.field_manager.name.cmp(&right.field_manager.name))
                .then_with(|| left.version.cmp(&right.version))
                .then_with(|| left.field_manager.subresource.cmp(&right.field_manager.subresource))
        });
        self.0.iter().map(ManagedFieldsEntry::encode).collect()
    }

    /// Returns the entry of a manager, or `None` if the manager owns no fields.
    pub(super) fn get(&self, manager: &ManagerIdentifier<'_>) -> Option<&ManagedFieldsEntry<'a>> {
        self.0.iter().find(|it| it.field_manager == *manager)
    }

    /// Removes and returns the entry of a manager. Returns `None` if there is none.
    pub(super) fn remove(&mut self, manager: &ManagerIdentifier<'_>) -> Option<ManagedFieldsEntry<'a>> {
        let at = self.0.iter().position(|it| it.field_manager == *manager)?;
        Some(self.0.remove(at))
    }

    /// Returns the fields that at least one manager owns.
    pub(super) fn all_fields(&self) -> FieldSet<'a> {
        FieldSet::union_of(self.0.iter().map(|it| it.fields.clone()).collect())
    }

    /// Removes the added, modified and removed fields from the entries of all managers except `manager`, or of all
    /// managers if `manager` is `None`. If `force` is not set and another manager owns an added or modified field,
    /// returns the conflicts and removes nothing. A removed field causes no conflict. Entries without fields are
    /// dropped.
    pub(super) fn remove_from_other_managers(
        &mut self,
        changes: &Comparison<'a>,
        manager: Option<&ManagerIdentifier<'_>>,
        force: bool,
    ) -> Result<(), Vec<FieldConflict<'a>>> {
        let changed = changes.modified.union(&changes.added);
        let is_other = |it: &ManagedFieldsEntry<'_>| manager != Some(&it.field_manager);
        if !force {
            let conflict = |it: &ManagedFieldsEntry<'a>| FieldConflict {
                field_manager: it.field_manager.clone(),
                fields: it.fields.intersection(&changed),
            };
            let mut conflicts: Vec<_> = self.0.iter().filter(|it| is_other(it)).map(conflict).collect();
            conflicts.retain(|it| !it.fields.is_empty());
            if !conflicts.is_empty() {
                return Err(conflicts);
            }
        }
        let removed = changed.union(&changes.removed);
        for entry in self.0.iter_mut().filter(|it| is_other(it)) {
            entry.fields = entry.fields.difference(&removed);
        }
        self.0.retain(|it| !it.fields.is_empty());
        Ok(())
    }

    /// Merges the oldest entries with the operation `Update` if there are more than `UPDATE_ENTRIES_MAX`.
    ///
    /// Rule: an object has at most ten entries with the operation `Update`. If there are more, the oldest entries are
    /// merged into one for each API version.
    /// Upstream: `capUpdateManagers`.
    pub(super) fn cap_update_entries(&mut self) {
        let mut updaters: Vec<_> = self
            .0
            .iter()
            .filter(|it| it.field_manager.is_update())
            .map(|it| (it.time.clone(), it.field_manager.sort_key()))
            .collect();
        let Some(mut surplus) = updaters.len().checked_sub(UPDATE_ENTRIES_MAX).filter(|it| *it != 0) else {
            return;
        };
        updaters.sort();
        let mut indices: HashMap<String, usize> =
            self.0.iter().enumerate().map(|(at, it)| (it.field_manager.sort_key(), at)).collect();
        // The oldest entry of each version, which becomes the bucket for the others.
        let mut oldest_entries: HashMap<Cow<'a, str>, usize> = HashMap::new();
        // The fields that are merged into each bucket.
        let mut merged: BTreeMap<usize, Vec<FieldSet<'a>>> = BTreeMap::new();
        let mut is_removed = vec![false; self.0.len()];
        for (_, id) in updaters {
            if surplus == 0 {
                break;
            }
            let Some(at) = indices.get(&id).copied() else { continue };
            let version = self.0[at].version.clone();
            let Some(first) = oldest_entries.get(&version) else {
                oldest_entries.insert(version, at);
                continue;
            };
            let bucket = ManagerIdentifier {
                name: ANCIENT_CHANGES_MANAGER.into(),
                operation: ManagedOperation::Update { version },
                subresource: "".into(),
            };
            let bucket_at = *indices.entry(bucket.sort_key()).or_insert(*first);
            self.0[bucket_at].field_manager = bucket;
            self.0[bucket_at].time = self.0[at].time.clone();
            let mut fields = merged.remove(&at).unwrap_or_default();
            fields.push(std::mem::take(&mut self.0[at].fields));
            merged.entry(bucket_at).or_default().append(&mut fields);
            indices.remove(&id);
            is_removed[at] = true;
            surplus -= 1;
        }
        for (bucket_at, mut fields) in merged {
            fields.push(std::mem::take(&mut self.0[bucket_at].fields));
            self.0[bucket_at].fields = FieldSet::union_of(fields);
        }
        let mut is_removed = is_removed.into_iter();
        self.0.retain(|_| !is_removed.next().unwrap_or_default());
    }
}

impl ManagedFieldsEntry<'_> {
    fn encode(&self) -> Value {
        let mut out = Map::new();
        let mut put = |name: &str, value: Value| drop(out.insert(name.to_owned(), value));
        put("apiVersion", json!(self.version));
        put("fieldsType", json!("FieldsV1"));
        put("fieldsV1", Value::Object(self.fields.to_json()));
        if !self.field_manager.name.is_empty() {
            put("manager", json!(self.field_manager.name));
        }
        put("operation", json!(if self.field_manager.is_update() { "Update" } else { "Apply" }));
        if !self.field_manager.subresource.is_empty() {
            put("subresource", json!(self.field_manager.subresource));
        }
        if let Some(time) = &self.time {
            put("time", json!(time));
        }
        Value::Object(out)
    }
}
