//! Kinds: everything that is special about a kind is in its row; other modules do not compare kinds by name.
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
use crate::validation::{FieldError, ValidatedWrite, metadata, names};

pub(crate) use self::builtin::{KINDS, served_kinds};
pub(crate) use self::kind_registry::KindRegistry;
pub(crate) use self::strategy::generate_name_suffix;
use crate::unstructured;

/// One row of the kind table: a resource as the server serves it.
#[derive(Debug)]
pub(crate) struct Kind {
    /// API group of the kind; empty for the core group.
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) short_names: &'static [&'static str],
    /// Categories of the kind, for example `all` for `kubectl get all`.
    pub(crate) categories: &'static [&'static str],
    pub(crate) namespaced: bool,
    pub(crate) verbs: &'static [&'static str],
    pub(crate) status: StatusPolicy,
    /// Subresources other than `status`.
    pub(crate) subresources: &'static [SubresourceSpec],
    /// Fields that an update of the whole object resets to their stored value, besides a status that is a
    /// subresource.
    pub(crate) update_reset_fields: &'static [FieldPath],
    /// Fields that an update of the status resets to their stored value. Such an update may only change
    /// `metadata` and `status` in any case.
    pub(crate) status_update_reset_fields: &'static [FieldPath],
    /// Fields whose changes increment `metadata.generation`; `None` if the kind has no generation.
    pub(crate) generation_fields: Option<&'static [&'static str]>,
    /// Sets server-owned fields of the kind from the stored object, which is `None` on create, and the
    /// subresource that is written. Upstream: `PrepareForCreate` and `PrepareForUpdate`.
    pub(crate) prepare: fn(&mut Value, Option<&Value>, Subresource),
    /// Whether a PUT creates an absent object. Upstream: `AllowCreateOnUpdate`.
    pub(crate) allows_create_on_update: bool,
    /// Whether a PUT must have a resourceVersion. Upstream: `AllowUnconditionalUpdate`, negated.
    pub(crate) requires_resource_version: bool,
    /// Whether a delete has a grace period, in which the node stops the pod.
    pub(crate) deletes_gracefully: bool,
    /// Whether the kind has `spec.finalizers`, which delay the deletion until the namespace is empty.
    pub(crate) has_spec_finalizers: bool,
    /// Whether objects of the kind may be owners, so that a delete may have a propagation policy.
    pub(crate) can_own_objects: bool,
    /// Whether a delete returns the deleted object instead of a `Status`. Upstream: `ReturnDeletedObject`.
    pub(crate) returns_deleted_object: bool,
    /// Field selectors besides `metadata.name` and `metadata.namespace`.
    pub(crate) selectable_fields: &'static [&'static str],
    /// Admission plugins that run for writes of the kind.
    pub(crate) admission_plugins: &'static [AdmissionPlugin],
    /// Conversion to the storage version, if this is not the storage version itself.
    pub(crate) conversion: Option<&'static Conversion>,
    /// The action of a create, if objects of the kind are never stored.
    pub(crate) virtual_create: Option<VirtualCreate>,
    /// The measured objects, if the kind belongs to `metrics.k8s.io` and is read from the agents.
    pub(crate) metered_resource: Option<MeteredResource>,
    /// The error message of a write, if the kind is read-only.
    pub(crate) read_only: Option<&'static str>,
    /// Time to live of an object after its last write, in seconds.
    pub(crate) ttl_s: Option<u64>,
    /// Rule for the names of the kind's objects.
    pub(crate) name_rule: names::NameRule,
    /// Whether metadata is validated only if the rest of the object is valid, and any finalizer is accepted, as
    /// upstream does for this kind.
    pub(crate) validates_metadata_last: bool,
    /// Deprecation warning that is sent with every response for the kind.
    pub(crate) deprecated: Option<&'static str>,
    pub(crate) apply_defaults: fn(&mut Value),
    /// Validates an object except for its metadata.
    pub(crate) validate: fn(&ValidatedWrite, &mut FieldErrors),
    /// Warnings about a valid object.
    pub(crate) warnings: fn(&ValidatedWrite) -> Vec<String>,
    /// Table columns of the kind, for `kubectl get`.
    pub(crate) columns: &'static [Column],
    /// Condition of the table row for an object.
    pub(crate) row_condition: fn(&Value) -> Option<Value>,
}

/// The requests through which `status` may be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StatusPolicy {
    /// The kind has no status, or the status is an ordinary field.
    NoSubresource,
    /// The status is written only through `/status`. A new object has this JSON as its status.
    SubresourceOnly(&'static str),
    /// The status is written through `/status` and on create: a node registers with its status.
    SubresourceAndCreate,
}

/// A subresource of a kind.
#[derive(Debug)]
pub(crate) struct SubresourceSpec {
    pub(crate) name: &'static str,
    pub(crate) subresource: Subresource,
    /// Group, version and kind of the request and response bodies, if not the kind's own.
    pub(crate) body: Option<(&'static str, &'static str, &'static str)>,
    /// An older version of the body that is also accepted.
    pub(crate) older_body_version: Option<&'static str>,
    pub(crate) verbs: &'static [&'static str],
    /// The action of a create through the subresource, if it does not update the object.
    pub(crate) virtual_create: Option<VirtualCreate>,
    /// The only fields of the object that an update through the subresource may change.
    pub(crate) mutable_fields: &'static [FieldPath],
    /// Fields that an update through the subresource resets to their stored value. Upstream: `GetResetFields`.
    pub(crate) reset_fields: &'static [FieldPath],
}

/// Field names from the root of an object to one of its fields.
pub(crate) type FieldPath = &'static [&'static str];

/// A create that stores no object of its kind. `http::subresources` handles it.
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

/// The objects that a kind of `metrics.k8s.io` measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MeteredResource {
    Nodes,
    Pods,
}

/// Admission plugins that run for some kinds only. `NamespaceLifecycle` and `ResourceQuota` run for every kind.
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

/// The part of an object that Pod Security evaluates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PodSecuritySubject {
    /// A namespace, whose labels select the policy.
    Namespace,
    /// A pod, for which the policy is enforced, audited and warned about.
    Pod,
    /// An object with a pod template at this JSON pointer. Its violations are audited and warned about, but the
    /// policy is enforced only on the pods made from it.
    Template(&'static str),
}

impl Kind {
    /// Returns a built-in kind that the server itself relies on. Kinds that clients name are looked up in a
    /// [`KindRegistry`].
    pub(crate) fn builtin(group: &str, version: &str, plural: &str) -> &'static Kind {
        Self::find(group, version, plural).expect("the kind is built in")
    }

    pub(crate) fn find(group: &str, version: &str, plural: &str) -> Option<&'static Kind> {
        served_kinds().find(|it| it.group == group && it.version == version && it.plural == plural)
    }

    /// The kind in its storage version.
    pub(crate) fn storage_kind(&self) -> &Kind {
        self.conversion.map_or(self, |it| {
            let (group, version, plural) = it.storage_version;
            Self::builtin(group, version, plural)
        })
    }

    /// The kind that serves the same objects in another version, if there is one.
    pub(crate) fn kind_in_version(&self, api_version: &str) -> Option<&'static Kind> {
        let stored = self.storage_kind().resource();
        served_kinds().find(|it| it.storage_kind().resource() == stored && it.api_version() == api_version)
    }

    /// Converts an object from the version of this kind to the storage version.
    pub(crate) fn to_storage_version(&self, mut object: Value) -> Value {
        if let Some(conversion) = self.conversion {
            conversion.to_storage(&mut object);
            self.storage_kind().set_type_meta(&mut object);
        }
        object
    }

    /// Converts an object from the storage version to the version of this kind.
    pub(crate) fn to_served_version(&self, mut object: Value) -> Value {
        if let Some(conversion) = self.conversion {
            conversion.to_served(&mut object);
            self.set_type_meta(&mut object);
        }
        object
    }

    /// Like [`Kind::to_served_version`], on JSON: an object that needs no conversion is not parsed.
    pub(crate) fn to_served_bytes(&self, stored: Bytes) -> Bytes {
        if self.conversion.is_none() {
            return stored;
        }
        unstructured::to_bytes(&self.to_served_version(unstructured::parse_stored(&stored)))
    }

    /// The stored field that a field selector of this kind selects.
    pub(crate) fn stored_field<'a>(&self, name: &'a str) -> &'a str {
        self.conversion.map_or(name, |it| it.stored_field(name))
    }

    fn set_type_meta(&self, object: &mut Value) {
        object["apiVersion"] = json!(self.api_version());
        object["kind"] = json!(self.kind);
    }

    /// Whether objects are stored under this kind's own resource name.
    pub(crate) fn is_stored(&self) -> bool {
        self.conversion.is_none() && self.virtual_create.is_none()
    }

    /// The kind Namespace.
    pub(crate) fn namespace_kind() -> &'static Kind {
        Self::builtin("", "v1", "namespaces")
    }

    pub(crate) fn gvk(&self) -> GroupVersionKind<'static> {
        GroupVersionKind { group: self.group, version: self.version, kind: self.kind }
    }

    /// API version of the kind: `apps/v1`, or `v1` in the core group.
    pub(crate) fn api_version(&self) -> String {
        group_version(self.group, self.version)
    }

    /// Resource name as in errors and in the store: `daemonsets.apps`.
    pub(crate) fn resource(&self) -> String {
        qualified_resource(self.plural, self.group)
    }

    pub(crate) fn singular(&self) -> String {
        self.kind.to_lowercase()
    }

    pub(crate) fn has_status_subresource(&self) -> bool {
        self.status != StatusPolicy::NoSubresource
    }

    /// Validates an object before it is stored.
    pub(crate) fn validate(&self, write: &ValidatedWrite) -> Vec<FieldError> {
        let mut out = FieldErrors::default();
        if self.validates_metadata_last {
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

    fn validate_metadata(&self, write: &ValidatedWrite, out: &mut FieldErrors) {
        match write.old {
            None => metadata::validate_new_metadata(write.new, self.name_rule, self.namespaced, out),
            Some(old) => metadata::validate_metadata_update(write.new, old, out),
        }
    }

    /// Fields that an update of this subresource resets to their stored value. Upstream: `GetResetFields`.
    pub(crate) fn reset_fields(&self, subresource: Subresource) -> impl Iterator<Item = FieldPath> {
        const STATUS_FIELDS: &[FieldPath] = &[&["status"]];
        let (first, rest): (&[FieldPath], &[FieldPath]) = match subresource {
            Subresource::Whole if self.has_status_subresource() => (STATUS_FIELDS, self.update_reset_fields),
            Subresource::Whole => (&[], self.update_reset_fields),
            Subresource::Status => (&[], self.status_update_reset_fields),
            subresource => (
                &[],
                self.subresources
                    .iter()
                    .find(|it| it.subresource == subresource)
                    .map_or(&[], |it| it.reset_fields),
            ),
        };
        first.iter().chain(rest).copied()
    }

    /// The only fields that an update of this subresource may change; `None` for the whole object, which may
    /// change all fields except [`Kind::reset_fields`].
    pub(crate) fn mutable_fields(&self, subresource: Subresource) -> Option<&'static [FieldPath]> {
        const STATUS_FIELDS: &[FieldPath] = &[&["metadata"], &["status"]];
        match subresource {
            Subresource::Whole => None,
            Subresource::Status => Some(STATUS_FIELDS),
            subresource => Some(
                self.subresources
                    .iter()
                    .find(|it| it.subresource == subresource)
                    .map_or(&[], |it| it.mutable_fields),
            ),
        }
    }

    /// The verbs of the object itself, or of one of its subresources.
    pub(crate) fn subresource_verbs(&self, subresource: Subresource) -> &'static [&'static str] {
        match subresource {
            Subresource::Whole => self.verbs,
            Subresource::Status => &["get", "patch", "update"],
            other => self.subresources.iter().find(|it| it.subresource == other).map_or(&[], |it| it.verbs),
        }
    }

    /// Name of the subresource in paths and in managed fields; empty for the whole object.
    pub(crate) fn subresource_name(&self, subresource: Subresource) -> &'static str {
        match subresource {
            Subresource::Whole => "",
            Subresource::Status => "status",
            subresource => {
                self.subresources.iter().find(|it| it.subresource == subresource).map_or("", |it| it.name)
            }
        }
    }

    /// Whether an update from `old` to `new` increments `metadata.generation`.
    pub(crate) fn increments_generation(&self, new: &Value, old: &Value) -> bool {
        self.generation_fields.is_some_and(|fields| fields.iter().any(|it| new[it] != old[it]))
    }

    /// Prefix of the store keys of the kind, or of one namespace of the kind.
    pub(crate) fn key_prefix(&self, namespace: Option<&str>) -> String {
        match namespace {
            Some(namespace) => format!("{}/{namespace}/", self.key_root()),
            None => format!("{}/", self.key_root()),
        }
    }

    pub(crate) fn key(&self, namespace: Option<&str>, name: &str) -> String {
        format!("{}/{}/{name}", self.key_root(), namespace.unwrap_or_default())
    }

    fn key_root(&self) -> String {
        self.conversion.map_or_else(
            || self.resource(),
            |Conversion { storage_version: (group, _, plural), .. }| qualified_resource(plural, group),
        )
    }
}

/// The served groups and versions in the order of discovery.
pub(crate) fn group_versions() -> Vec<(&'static str, &'static str)> {
    let mut all = Vec::new();
    for kind in served_kinds() {
        if !all.contains(&(kind.group, kind.version)) {
            all.push((kind.group, kind.version));
        }
    }
    all
}

pub(crate) fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

/// Joins resource and group: `daemonsets.apps`, or only the resource in the core group.
pub(crate) fn qualified_resource(name: &str, group: &str) -> String {
    if group.is_empty() { name.to_owned() } else { format!("{name}.{group}") }
}
