//! Kinds: all that is special about a kind is in its row, and other modules do not compare kinds by name.
//!
//! `builtin` has the rows, [`KindRegistry`] looks them up, `strategy` sets server-owned fields.

mod builtin;
mod kind_registry;
mod reset_fields;
mod strategy;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::conversion::Conversion;
use crate::subresource::Subresource;
use crate::table_printer::Column;
use crate::types::GroupVersionKind;
use crate::validation::field_error::FieldErrors;
use crate::validation::{FieldError, Write, metadata, names};

pub(crate) use self::builtin::{KINDS, served};
pub(crate) use self::kind_registry::KindRegistry;
pub(crate) use self::strategy::generated_suffix;
use crate::unstructured;

#[derive(Debug)]
pub(crate) struct Kind {
    /// Empty for the core group.
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) short: &'static [&'static str],
    /// `all`: what `kubectl get all` shows.
    pub(crate) categories: &'static [&'static str],
    pub(crate) namespaced: bool,
    pub(crate) verbs: &'static [&'static str],
    pub(crate) status: Status,
    /// Other subresources than `status`.
    pub(crate) subresources: &'static [SubresourceSpec],
    /// Fields that a write of the whole object leaves as stored, besides a status that is a subresource.
    pub(crate) whole_keeps: &'static [FieldPath],
    /// Fields that a write of the status leaves as stored. It changes `metadata` and `status` alone in any case.
    pub(crate) status_keeps: &'static [FieldPath],
    /// `metadata.generation` counts the changes of these fields; without them it stays at 1.
    pub(crate) generation: Option<&'static [&'static str]>,
    /// Sets server-owned fields of the kind, from the stored object unless this is a create, and the subresource that is written.
    /// Upstream: `PrepareForCreate` and `PrepareForUpdate`.
    pub(crate) prepare: fn(&mut Value, Option<&Value>, Subresource),
    /// A PUT of an object that is not there creates it.
    pub(crate) put_creates: bool,
    /// A PUT must say which version it replaces.
    pub(crate) version_required: bool,
    /// A delete only marks the object while a node still has to stop it.
    pub(crate) graceful: bool,
    /// Other objects live in it, for which `spec.finalizers` stands: it is emptied before it goes.
    pub(crate) holds_others: bool,
    /// Its objects may own others, so a delete may set a propagation policy.
    pub(crate) owns_others: bool,
    /// A delete answers with the object that went, and not with a `Status`.
    pub(crate) returns_deleted: bool,
    /// Field selectors besides `metadata.name` and `metadata.namespace`.
    pub(crate) fields: &'static [&'static str],
    /// What else in the store decides about its objects.
    pub(crate) plugins: &'static [AdmissionPlugin],
    /// Set for a version that is not the storage version of its objects.
    pub(crate) conversion: Option<&'static Conversion>,
    /// Set if objects of the kind are never stored: what a create of one does instead.
    pub(crate) virtual_create: Option<VirtualCreate>,
    /// Set if objects of the kind are measured by agents when they are read.
    pub(crate) metered: Option<MeteredResource>,
    /// Why its objects cannot be written, for those who try.
    pub(crate) read_only: Option<&'static str>,
    /// Objects go by themselves so long after they were last written.
    pub(crate) lifetime_s: Option<u64>,
    /// What the names of its objects must look like.
    pub(crate) name: names::NameRule,
    /// Upstream looks at its metadata only once nothing else is wrong, and lets any finalizer be.
    pub(crate) plain_metadata: bool,
    /// Deprecation warning of every request for the kind.
    pub(crate) deprecated: Option<&'static str>,
    pub(crate) default: fn(&mut Value),
    /// Validates everything but the metadata.
    pub(crate) validate: fn(&Write, &mut FieldErrors),
    /// Warnings about an object that is valid.
    pub(crate) warn: fn(&Write) -> Vec<String>,
    /// What `kubectl get` shows.
    pub(crate) columns: &'static [Column],
    /// What a client is told of a whole row.
    pub(crate) row_condition: fn(&Value) -> Option<Value>,
}

/// Who writes `status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    /// The kind has none, or it is a field like any other.
    Plain,
    /// Only through `/status`; at creation it is this JSON.
    Apart(&'static str),
    /// Through `/status`, and on create: a node registers with its status.
    ApartButCreated,
}

#[derive(Debug)]
pub(crate) struct SubresourceSpec {
    pub(crate) name: &'static str,
    pub(crate) subresource: Subresource,
    /// Group, version and kind of its bodies, where they are not the kind's own.
    pub(crate) body: Option<(&'static str, &'static str, &'static str)>,
    /// A version of them that is taken for the same.
    pub(crate) older: Option<&'static str>,
    pub(crate) verbs: &'static [&'static str],
    /// What a create through it does, if it does not write the object.
    pub(crate) virtual_create: Option<VirtualCreate>,
    /// The only fields of the object that a write through it may change.
    pub(crate) changes: &'static [FieldPath],
    /// Fields that managed fields do not record for it. Upstream: `GetResetFields`.
    pub(crate) keeps: &'static [FieldPath],
}

/// Names of fields from the root of an object to one of its fields.
pub(crate) type FieldPath = &'static [&'static str];

/// A create that stores no object of its kind. `http::subresources` handles them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VirtualCreate {
    Binding,
    Eviction,
    ServiceAccountToken,
    SelfSubjectReview,
    TokenReview,
    SubjectAccessReview,
    SelfSubjectAccessReview,
    SelfSubjectRulesReview,
}

/// What the objects of a kind of `metrics.k8s.io` are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MeteredResource {
    Nodes,
    Pods,
}

/// Admission plugins that concern some kinds only. `NamespaceLifecycle` and `ResourceQuota` concern every kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AdmissionPlugin {
    LimitRanger,
    ServiceAccount,
    NodeTaint,
    NodeAddress,
    PodRange,
    Priority,
    TolerationSeconds,
    RuntimeClass,
    CertificateRequester,
    ServiceAddress,
    ExternalIps,
    AppArmor,
    PodSecurity(PodSecuritySubject),
}

/// What of an object Pod Security evaluates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PodSecuritySubject {
    /// Its labels select the policy.
    Namespace,
    /// Enforced, audited and warned about.
    Pod,
    /// Holds a pod template at this JSON pointer: audited and warned about, never refused. What it creates is enforced.
    Template(&'static str),
}

impl Kind {
    /// A built-in kind that the server itself relies on. Kinds that clients name are looked up in a [`KindRegistry`].
    pub(crate) fn builtin(group: &str, version: &str, plural: &str) -> &'static Kind {
        Self::find(group, version, plural).expect("it is a row of the built-in kinds")
    }

    pub(crate) fn find(group: &str, version: &str, plural: &str) -> Option<&'static Kind> {
        served().find(|it| it.group == group && it.version == version && it.plural == plural)
    }

    /// The kind that the objects are stored as.
    pub(crate) fn stored(&self) -> &Kind {
        self.conversion.map_or(self, |it| {
            let (group, version, plural) = it.stored;
            Self::builtin(group, version, plural)
        })
    }

    /// The kind that serves the same objects in another version, if there is one.
    pub(crate) fn in_version(&self, api_version: &str) -> Option<&'static Kind> {
        let stored = self.stored().resource();
        served().find(|it| it.stored().resource() == stored && it.api_version() == api_version)
    }

    /// Converts an object from the version of this kind to the storage version.
    pub(crate) fn to_storage_version(&self, mut object: Value) -> Value {
        if let Some(conversion) = self.conversion {
            conversion.to_storage(&mut object);
            self.stored().set_type(&mut object);
        }
        object
    }

    /// Converts an object from the storage version to the version of this kind.
    pub(crate) fn to_served_version(&self, mut object: Value) -> Value {
        if let Some(conversion) = self.conversion {
            conversion.to_served(&mut object);
            self.set_type(&mut object);
        }
        object
    }

    /// As [`Kind::to_served_version`], on JSON: an object that needs no conversion is not parsed.
    pub(crate) fn to_served_bytes(&self, stored: Bytes) -> Bytes {
        if self.conversion.is_none() {
            return stored;
        }
        unstructured::bytes(&self.to_served_version(unstructured::parse(&stored)))
    }

    /// The field of the stored object that a field selector of this kind means.
    pub(crate) fn stored_field<'a>(&self, name: &'a str) -> &'a str {
        self.conversion.map_or(name, |it| it.field(name))
    }

    fn set_type(&self, object: &mut Value) {
        object["apiVersion"] = json!(self.api_version());
        object["kind"] = json!(self.kind);
    }

    /// Whether the store holds objects under this kind's own name.
    pub(crate) fn is_stored(&self) -> bool {
        self.conversion.is_none() && self.virtual_create.is_none()
    }

    /// The kind that the others live in.
    pub(crate) fn namespace() -> &'static Kind {
        Self::builtin("", "v1", "namespaces")
    }

    pub(crate) fn gvk(&self) -> GroupVersionKind<'static> {
        GroupVersionKind { group: self.group, version: self.version, kind: self.kind }
    }

    /// `apps/v1`, or `v1` in the core group.
    pub(crate) fn api_version(&self) -> String {
        group_version(self.group, self.version)
    }

    /// `daemonsets.apps`: how errors and the store name the resource.
    pub(crate) fn resource(&self) -> String {
        join(self.plural, self.group)
    }

    pub(crate) fn singular(&self) -> String {
        self.kind.to_lowercase()
    }

    pub(crate) fn has_status_subresource(&self) -> bool {
        self.status != Status::Plain
    }

    /// All that is wrong with an object that would be stored.
    pub(crate) fn validate(&self, write: &Write) -> Vec<FieldError> {
        let mut out = FieldErrors::default();
        if self.plain_metadata {
            (self.validate)(write, &mut out);
            if out.is_empty() {
                self.validate_metadata(write, &mut out);
            }
        } else {
            self.validate_metadata(write, &mut out);
            metadata::check_standard_finalizers(write.new, &mut out);
            (self.validate)(write, &mut out);
        }
        out.into_inner()
    }

    fn validate_metadata(&self, write: &Write, out: &mut FieldErrors) {
        match write.old {
            None => metadata::check_new(write.new, self.name, self.namespaced, out),
            Some(old) => metadata::check_change(write.new, old, out),
        }
    }

    /// Fields that a write of this part leaves as stored, whatever it says. Upstream: `GetResetFields`.
    pub(crate) fn keeps(&self, subresource: Subresource) -> impl Iterator<Item = FieldPath> {
        const STATUS: &[FieldPath] = &[&["status"]];
        let (first, rest): (&[FieldPath], &[FieldPath]) = match subresource {
            Subresource::Whole if self.has_status_subresource() => (STATUS, self.whole_keeps),
            Subresource::Whole => (&[], self.whole_keeps),
            Subresource::Status => (&[], self.status_keeps),
            subresource => (
                &[],
                self.subresources.iter().find(|it| it.subresource == subresource).map_or(&[], |it| it.keeps),
            ),
        };
        first.iter().chain(rest).copied()
    }

    /// The only fields that a write of this part may change; `None` for the whole object, which may change all but
    /// what [`Kind::keeps`] names.
    pub(crate) fn changes(&self, subresource: Subresource) -> Option<&'static [FieldPath]> {
        const STATUS: &[FieldPath] = &[&["metadata"], &["status"]];
        match subresource {
            Subresource::Whole => None,
            Subresource::Status => Some(STATUS),
            subresource => Some(
                self.subresources
                    .iter()
                    .find(|it| it.subresource == subresource)
                    .map_or(&[], |it| it.changes),
            ),
        }
    }

    /// The verbs of the object itself, or of one of its subresources.
    pub(crate) fn verbs_of(&self, subresource: Subresource) -> &'static [&'static str] {
        match subresource {
            Subresource::Whole => self.verbs,
            Subresource::Status => &["get", "patch", "update"],
            other => self.subresources.iter().find(|it| it.subresource == other).map_or(&[], |it| it.verbs),
        }
    }

    /// As paths and managed fields name it; the whole has no name.
    pub(crate) fn name_of(&self, subresource: Subresource) -> &'static str {
        match subresource {
            Subresource::Whole => "",
            Subresource::Status => "status",
            subresource => {
                self.subresources.iter().find(|it| it.subresource == subresource).map_or("", |it| it.name)
            }
        }
    }

    /// Whether a write that makes `new` of `old` is one that `metadata.generation` counts.
    pub(crate) fn counts(&self, new: &Value, old: &Value) -> bool {
        self.generation.is_some_and(|fields| fields.iter().any(|it| new[it] != old[it]))
    }

    /// The part of the store that holds the kind, or one namespace of it.
    pub(crate) fn prefix(&self, namespace: Option<&str>) -> String {
        match namespace {
            Some(namespace) => format!("{}/{namespace}/", self.place()),
            None => format!("{}/", self.place()),
        }
    }

    pub(crate) fn key(&self, namespace: Option<&str>, name: &str) -> String {
        format!("{}/{}/{name}", self.place(), namespace.unwrap_or_default())
    }

    fn place(&self) -> String {
        self.conversion.map_or_else(
            || self.resource(),
            |Conversion { stored: (group, _, plural), .. }| join(plural, group),
        )
    }
}

/// The groups and versions that are served, in its order, each once.
pub(crate) fn group_versions() -> Vec<(&'static str, &'static str)> {
    let mut all = Vec::new();
    for kind in served() {
        if !all.contains(&(kind.group, kind.version)) {
            all.push((kind.group, kind.version));
        }
    }
    all
}

pub(crate) fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

pub(crate) fn join(name: &str, group: &str) -> String {
    if group.is_empty() { name.to_owned() } else { format!("{name}.{group}") }
}
