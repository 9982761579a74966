//! The served kinds. Each kind is a value of [`Kind`], whose fields are the properties in which kinds differ. The kind
//! table contains one such value, a row, for each built-in kind.
//!
//! Rule: code that applies only to one kind, such as the code that reserves a part of the store for Nodes, identifies
//! the kind by its group and plural name, because kinds of other groups can have the same plural name. Such code
//! compares [`Kind::resource`], the address of the row, or the first segment of a store key.
//!
//! `builtin` contains the kind table, and `strategy` sets server-owned fields. [`KindRegistry`] looks up kinds, and can
//! add and remove kinds while the server runs.

/// The kind table, with one entry (row) for each built-in kind.
mod builtin;
/// The registry of the kinds that a server serves.
mod kind_registry;
/// Restores the stored values of the fields that an update may not change.
mod reset_fields;
/// Sets the server-owned fields of created and updated objects.
mod strategy;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::conversion::Conversion;
use crate::subresource::Subresource;
use crate::table_printer::Column;
use crate::types::{self, GroupVersionKind, Type, TypedKind};
use crate::validation::field_error::FieldErrors;
use crate::validation::{FieldError, WriteToValidate, metadata, names};

#[cfg(test)]
pub(crate) use self::builtin::{DEFAULT_KIND, WRITABLE_KINDS};
pub(crate) use self::kind_registry::{KindRegistry, ServedKinds};
pub(crate) use self::strategy::generate_name_suffix;
use crate::unstructured;

/// A kind: how the server names, validates, stores and prints its objects. The rows of the kind table are the built-in
/// kinds.
#[derive(Debug)]
pub(crate) struct Kind {
    /// API group of the kind. Empty for the core group.
    pub(crate) group: &'static str,
    /// API version of the kind without its group, such as `v1`.
    pub(crate) version: &'static str,
    /// Name of the kind, such as `DaemonSet`.
    pub(crate) kind: &'static str,
    /// Plural name of the resource in paths, such as `daemonsets`.
    pub(crate) plural: &'static str,
    /// Short names for kubectl, such as `ds`.
    pub(crate) short_names: &'static [&'static str],
    /// Categories of the kind in discovery, such as `all`, which `kubectl get all` lists.
    pub(crate) categories: &'static [&'static str],
    /// Whether the kind is namespaced. Otherwise it is cluster-scoped.
    pub(crate) namespaced: bool,
    /// Verbs that the resource supports.
    pub(crate) verbs: &'static [&'static str],
    /// Type of the objects of a kind that was added at run time. `None` for a built-in kind, whose type is in the type
    /// table. See [`Kind::object_type`].
    pub(crate) added_type: Option<&'static Type>,
    /// Whether the kind has the subresource `status`, and which requests may write the field `status`.
    pub(crate) status: StatusPolicy,
    /// Subresources other than `status`.
    pub(crate) subresources: &'static [SubresourceDefinition],
    /// Fields that an update of the whole object resets to their stored value. If the kind has the subresource
    /// `status`, an update of the whole object also resets `status`.
    pub(crate) update_reset_fields: &'static [FieldPath],
    /// Fields that an update of `/status` resets to their stored value. In addition, an update of `/status` changes no
    /// fields outside of `metadata` and `status`.
    pub(crate) status_update_reset_fields: &'static [FieldPath],
    /// Top-level fields whose changes increment `metadata.generation`. `None` if the kind has no generation.
    pub(crate) generation_fields: Option<&'static [&'static str]>,
    /// Function that sets the server-owned fields that only this kind has. The arguments are the new object, the stored
    /// object (`None` on create) and the written subresource. Upstream: `PrepareForCreate` and `PrepareForUpdate`.
    pub(crate) prepare: fn(&mut Value, Option<&Value>, Subresource),
    /// Whether a PUT of an object that does not exist creates the object. Upstream: `AllowCreateOnUpdate`.
    pub(crate) allows_create_on_update: bool,
    /// Whether an update must contain a resourceVersion. Upstream: the opposite of `AllowUnconditionalUpdate`.
    pub(crate) requires_resource_version: bool,
    /// Whether a deleted object stays until its grace period ends. Set only for pods, whose containers the node stops
    /// during the grace period.
    pub(crate) deletes_gracefully: bool,
    /// Whether the kind has `spec.finalizers`. Set only for Namespaces, whose deletion these finalizers delay until the
    /// Namespace contains no objects.
    pub(crate) has_spec_finalizers: bool,
    /// Whether owner references may refer to objects of the kind. If not, the propagation policy of a delete has no
    /// effect.
    pub(crate) can_own_objects: bool,
    /// Whether a delete returns the deleted object instead of a `Status`. Upstream: `ReturnDeletedObject`.
    pub(crate) returns_deleted_object: bool,
    /// Fields that field selectors support, besides `metadata.name` and `metadata.namespace`.
    pub(crate) selectable_fields: &'static [&'static str],
    /// Admission plugins that run for writes of the kind, besides those that run for every kind.
    pub(crate) admission_plugins: &'static [AdmissionPlugin],
    /// How ResourceQuotas count the objects of the kind.
    pub(crate) quota_evaluator: QuotaEvaluator,
    /// The version in which the objects are stored. `None` if they are stored in the version of this kind.
    pub(crate) stored_version: Option<StoredVersion>,
    /// The action that a create performs instead of storing the object. `None` if a create stores the object, or if the
    /// kind does not support `create`.
    pub(crate) create_action: Option<CreateAction>,
    /// The resource whose usage a kind of the group `metrics.k8s.io` reports. The server reads the usage from the
    /// agents. `None` for kinds of other groups.
    pub(crate) metered_resource: Option<MeteredResource>,
    /// The error message for a request with an unsupported verb to a read-only kind. `None` for the default message.
    pub(crate) read_only_error: Option<&'static str>,
    /// Time to live of an object after its last write, in seconds. `None` if objects of the kind do not expire.
    pub(crate) ttl_s: Option<u64>,
    /// Function that returns the validation errors for the name of an object.
    pub(crate) name_rule: names::NameRule,
    /// Whether metadata is validated after the rest of the object, and only if the rest is valid, as upstream does for
    /// some kinds. For these kinds, finalizers without a domain may have any name. For other kinds, finalizers without
    /// a domain must be standard finalizers.
    pub(crate) validates_metadata_last: bool,
    /// Deprecation warning that is sent with responses for the kind. `None` if the kind is not deprecated.
    pub(crate) deprecation_warning: Option<&'static str>,
    /// Function that sets the default values of absent fields. For some kinds, it also rounds quantities, or removes
    /// values that upstream does not store.
    pub(crate) apply_defaults: fn(&mut Value),
    /// Function that validates an object except for its metadata.
    pub(crate) validate: fn(&WriteToValidate, &mut FieldErrors),
    /// Function that returns the warnings about a valid object.
    pub(crate) warnings: fn(&WriteToValidate) -> Vec<String>,
    /// Table columns of the kind, for `kubectl get`.
    pub(crate) columns: &'static [Column],
    /// Function that returns the condition of the table row of an object, such as `Completed` for a pod, or `None` if
    /// the row has no condition. Upstream: `TableRowCondition`.
    pub(crate) row_condition: fn(&Value) -> Option<Value>,
}

/// The storage version of a kind that is served in another version.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StoredVersion {
    /// The kind in its storage version.
    pub(crate) kind: &'static Kind,
    /// Conversion between the served version and the storage version.
    pub(crate) conversion: &'static Conversion,
}

/// Whether a kind has the subresource `status`, and which requests may write the field `status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StatusPolicy {
    /// The kind has no `/status`. If its objects have the field `status`, this field is written like any other field.
    NoSubresource,
    /// `status` is written only through `/status`. On create, the server sets `status` to the JSON in this variant.
    SubresourceOnly(&'static str),
    /// `status` is written through `/status` and on create. For example, a new Node may contain its status.
    SubresourceAndCreate,
}

/// Definition of one subresource of a kind: its name, its verbs, the type of its body, and what a request to it does.
/// The subresource `status` has no definition: [`Kind::status`] and [`Kind::status_update_reset_fields`] describe it.
#[derive(Debug)]
pub(crate) struct SubresourceDefinition {
    /// Name of the subresource in paths.
    pub(crate) name: &'static str,
    pub(crate) subresource: Subresource,
    /// Group, version and kind that discovery and OpenAPI list for the subresource. They are those of the request body
    /// or, if an agent serves the subresource, those of the options object, such as `PodExecOptions`. `None` if
    /// discovery and OpenAPI list the kind of the object itself, as for `log`.
    pub(crate) body: Option<(&'static str, &'static str, &'static str)>,
    /// An older API version that the server also accepts in the request body. `None` if there is no such version.
    pub(crate) older_body_version: Option<&'static str>,
    /// Verbs that the subresource supports.
    pub(crate) verbs: &'static [&'static str],
    /// The action that a create of the subresource performs. `None` if the subresource does not support `create`, or if
    /// an agent serves it.
    pub(crate) create_action: Option<CreateAction>,
    /// The only fields of the object that an update through the subresource may change.
    pub(crate) mutable_fields: &'static [FieldPath],
    /// Fields that an update through the subresource resets to their stored value. Upstream: `GetResetFields`.
    pub(crate) reset_fields: &'static [FieldPath],
}

/// The path of a field: the field names from the root of the object to the field, such as `["spec", "nodeName"]`.
pub(crate) type FieldPath = &'static [&'static str];

/// The action that a create performs for a kind or subresource whose request body is not stored. `http::create_actions`
/// implements these actions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CreateAction {
    /// Binds a pod to a node.
    Binding,
    /// Deletes a pod if its PodDisruptionBudget allows it.
    Eviction,
    /// Issues a token for a ServiceAccount.
    ServiceAccountToken,
    /// Returns the user of the request.
    SelfSubjectReview,
    /// Authenticates the token in the request body.
    TokenReview,
    /// Returns whether the user in the request body is authorized.
    SubjectAccessReview,
    /// Returns whether the user of the request is authorized.
    SelfSubjectAccessReview,
    /// Returns all rules that apply to the user of the request in a namespace.
    SelfSubjectRulesReview,
}

/// The resource whose CPU and memory usage a kind of `metrics.k8s.io` reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MeteredResource {
    Nodes,
    Pods,
}

/// How ResourceQuotas count the objects of a kind. Every object counts toward the quota resource `count/PLURAL.GROUP`.
/// The variants define the other quota resources. Upstream: `quota.Evaluator`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QuotaEvaluator {
    /// An object counts toward no other quota resource.
    ObjectCount,
    /// An object also counts toward the quota resource with the plural name of the kind, such as `configmaps`.
    /// Upstream: `NewObjectCountEvaluator` with an alias.
    ObjectCountAndPlural,
    /// A pod also counts toward `pods` and toward its compute resources, such as `requests.cpu`. Upstream:
    /// `podEvaluator`.
    Pod,
    /// A Service also counts toward `services`, `services.nodeports` and `services.loadbalancers`. Upstream:
    /// `serviceEvaluator`.
    Service,
}

/// An admission plugin that runs only for the kinds that list it in [`Kind::admission_plugins`]. The plugins that run
/// for every kind, such as namespace lifecycle, ResourceQuota and the checks against privilege escalation, have no
/// variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AdmissionPlugin {
    /// Applies the defaults of LimitRanges to a new pod, and refuses a new pod that violates a constraint of a
    /// LimitRange.
    LimitRanger,
    /// Sets the service account of a new pod, and mounts the token of the service account.
    ServiceAccount,
    /// Adds the taint `node.kubernetes.io/not-ready` to a new Node.
    NodeTaint,
    /// Restricts the addresses that a node may add to the status of its own Node object.
    NodeAddress,
    /// Allocates a pod CIDR when a node writes its own Node object without one, and checks a pod CIDR that the node
    /// chooses.
    PodCidr,
    /// Sets the priority of a pod from its PriorityClass. Refuses a second PriorityClass with `globalDefault`.
    Priority,
    /// Adds the default tolerations for the taints `not-ready` and `unreachable` to a pod.
    TolerationSeconds,
    /// Applies the overhead and the scheduling constraints of a RuntimeClass to a new pod.
    RuntimeClass,
    /// Sets the requester of a new CertificateSigningRequest.
    CertificateRequester,
    /// Allocates the cluster IPs and node ports of a Service.
    ServiceAddress,
    /// Restricts the IPs that a write adds to `spec.externalIPs` of a Service to the allowed ranges.
    ExternalIps,
    /// Converts AppArmor annotations of a new pod to `securityContext.appArmorProfile`.
    AppArmor,
    /// Checks pods and pod templates against the Pod Security levels of their namespace, and checks the labels that
    /// select these levels.
    PodSecurity(PodSecuritySubject),
}

/// What the Pod Security plugin evaluates when an object is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PodSecuritySubject {
    /// The labels of the Namespace that select the Pod Security levels.
    Namespace,
    /// The pod. A pod that violates the `enforce` level is refused. A violation of the `audit` level causes an audit
    /// annotation, and a violation of the `warn` level causes a warning.
    Pod,
    /// The pod template at this JSON pointer. Violations cause only audit annotations and warnings, because the
    /// `enforce` level is enforced on the pods that are created from the template.
    Template(&'static str),
}

impl Kind {
    /// Returns a built-in kind that the server itself uses, and panics if it does not exist. The kind of a request is
    /// looked up in the [`KindRegistry`] of the server instead.
    pub(crate) fn builtin(group: &str, version: &str, plural: &str) -> &'static Kind {
        kind_registry::find_builtin(group, version, plural).expect("the kind is built in")
    }

    /// Returns the group and the plural name of the resource. They identify the kind in all its versions. Upstream:
    /// `GroupResource`.
    pub(crate) fn resource(&self) -> (&'static str, &'static str) {
        (self.group, self.plural)
    }

    /// Returns the kind that serves the objects of this kind in their storage version. Returns the kind itself if it
    /// has no conversion.
    pub(crate) fn storage_kind(&self) -> &Kind {
        self.stored_version.map_or(self, |it| it.kind)
    }

    /// Returns the conversion between this version and the storage version, or `None` if this is the storage version.
    pub(crate) fn conversion(&self) -> Option<&'static Conversion> {
        self.stored_version.map(|it| it.conversion)
    }

    /// Returns the type of the objects of the kind, or `None` if the kind has neither an added type nor a type in the
    /// type table.
    pub(crate) fn object_type(&self) -> Option<&'static Type> {
        self.added_type.or_else(|| types::find_type(self.group, self.version, self.kind))
    }

    /// Returns the group, version, kind and type of the objects, for decoding.
    pub(crate) fn typed(&self) -> TypedKind<'static> {
        TypedKind { gvk: self.gvk(), object_type: self.object_type() }
    }

    /// Converts an object from the version of this kind to the storage version. Returns the object unchanged if the
    /// kind has no conversion.
    pub(crate) fn to_storage_version(&self, mut object: Value) -> Value {
        if let Some(conversion) = self.conversion() {
            conversion.to_storage(&mut object);
            self.storage_kind().set_type_meta(&mut object);
        }
        object
    }

    /// Converts an object from the storage version to the version of this kind. Returns the object unchanged if the
    /// kind has no conversion.
    pub(crate) fn to_served_version(&self, mut object: Value) -> Value {
        if let Some(conversion) = self.conversion() {
            conversion.to_served(&mut object);
            self.set_type_meta(&mut object);
        }
        object
    }

    /// Converts an object like [`Kind::to_served_version`], but from JSON text to JSON text. Returns the text unchanged
    /// if the kind has no conversion.
    pub(crate) fn to_served_bytes(&self, stored: Bytes) -> Bytes {
        if self.conversion().is_none() {
            return stored;
        }
        unstructured::to_bytes(&self.to_served_version(unstructured::parse_stored(&stored)))
    }

    /// Returns the name that the selectable field `name` of this version has in the storage version.
    pub(crate) fn stored_field<'a>(&self, name: &'a str) -> &'a str {
        self.conversion().map_or(name, |it| it.stored_field(name))
    }

    /// Sets `apiVersion` and `kind` of an object to those of this kind.
    fn set_type_meta(&self, object: &mut Value) {
        object["apiVersion"] = json!(self.api_version());
        object["kind"] = json!(self.kind);
    }

    /// Whether clients can create objects of the kind. Clients can only read the objects of a kind that is not
    /// writable.
    pub(crate) fn is_writable(&self) -> bool {
        self.verbs.contains(&"create")
    }

    /// Whether the server stores objects in the version of this kind. Returns `false` for a read-only kind, for a kind
    /// whose objects are stored in another version, and for a kind with a [`Kind::create_action`].
    pub(crate) fn is_stored(&self) -> bool {
        self.is_writable() && self.conversion().is_none() && self.create_action.is_none()
    }

    pub(crate) fn namespace_kind() -> &'static Kind {
        Self::builtin("", "v1", "namespaces")
    }

    pub(crate) fn gvk(&self) -> GroupVersionKind<'static> {
        GroupVersionKind { group: self.group, version: self.version, kind: self.kind }
    }

    /// Returns the API version of the kind, such as `apps/v1`, or `v1` in the core group.
    pub(crate) fn api_version(&self) -> String {
        group_version(self.group, self.version)
    }

    /// Returns the plural name of the resource with its group, such as `daemonsets.apps`. Errors and store keys contain
    /// it. Upstream: `GroupResource`.
    pub(crate) fn group_resource(&self) -> String {
        qualified_resource(self.plural, self.group)
    }

    /// Returns the singular name of the resource, such as `daemonset`.
    pub(crate) fn singular(&self) -> String {
        self.kind.to_lowercase()
    }

    pub(crate) fn has_status_subresource(&self) -> bool {
        self.status != StatusPolicy::NoSubresource
    }

    /// Validates an object, including its metadata, before it is stored. Returns the validation errors.
    pub(crate) fn validate(&self, write: &WriteToValidate) -> Vec<FieldError> {
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

    /// Validates the metadata of a new or updated object, and adds the errors to `out`.
    fn validate_metadata(&self, write: &WriteToValidate, out: &mut FieldErrors) {
        match write.old {
            None => metadata::validate_object_metadata(write.new, self.name_rule, self.namespaced, out),
            Some(old) => metadata::validate_metadata_update(write.new, old, out),
        }
    }

    /// Returns the fields that an update of the subresource resets to their stored value. Upstream: `GetResetFields`.
    pub(crate) fn reset_fields(&self, subresource: Subresource) -> impl Iterator<Item = FieldPath> {
        /// The field `status`, which an update of the whole object may not change if `status` is a subresource.
        const STATUS_FIELD: &[FieldPath] = &[&["status"]];
        let (first, rest): (&[FieldPath], &[FieldPath]) = match subresource {
            Subresource::Whole if self.has_status_subresource() => (STATUS_FIELD, self.update_reset_fields),
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

    /// Returns the fields that an update of the subresource may change, unless they are also in [`Kind::reset_fields`].
    /// The update may change no other fields. Returns `None` for an update of the whole object, which may change all
    /// fields except [`Kind::reset_fields`]. Returns no fields for a subresource other than `status` that the kind does
    /// not have.
    pub(crate) fn mutable_fields(&self, subresource: Subresource) -> Option<&'static [FieldPath]> {
        /// The fields that an update of `/status` may change, except [`Kind::status_update_reset_fields`].
        const METADATA_AND_STATUS: &[FieldPath] = &[&["metadata"], &["status"]];
        match subresource {
            Subresource::Whole => None,
            Subresource::Status => Some(METADATA_AND_STATUS),
            subresource => Some(
                self.subresources
                    .iter()
                    .find(|it| it.subresource == subresource)
                    .map_or(&[], |it| it.mutable_fields),
            ),
        }
    }

    /// Returns the verbs that a subresource supports, or those of the object itself for [`Subresource::Whole`]. Returns
    /// no verbs for a subresource that the kind does not have. Exception: the verbs of `status` are returned for every
    /// kind.
    pub(crate) fn subresource_verbs(&self, subresource: Subresource) -> &'static [&'static str] {
        match subresource {
            Subresource::Whole => self.verbs,
            Subresource::Status => &["get", "patch", "update"],
            other => self.subresources.iter().find(|it| it.subresource == other).map_or(&[], |it| it.verbs),
        }
    }

    /// Returns the name of the subresource in paths and in managed fields. Returns "" for the whole object, and for a
    /// subresource other than `status` that the kind does not have.
    pub(crate) fn subresource_name(&self, subresource: Subresource) -> &'static str {
        match subresource {
            Subresource::Whole => "",
            Subresource::Status => "status",
            subresource => {
                self.subresources.iter().find(|it| it.subresource == subresource).map_or("", |it| it.name)
            }
        }
    }

    /// Whether one of the fields that increment `metadata.generation` differs between `new` and `old`.
    pub(crate) fn increments_generation(&self, new: &Value, old: &Value) -> bool {
        self.generation_fields.is_some_and(|fields| fields.iter().any(|it| new[it] != old[it]))
    }

    /// Returns the prefix of the store keys of the objects of the kind in `namespace`. If `namespace` is `None`,
    /// returns the prefix of the store keys of all objects of the kind.
    pub(crate) fn store_key_prefix(&self, namespace: Option<&str>) -> String {
        match namespace {
            Some(namespace) => format!("{}/{namespace}/", self.key_root()),
            None => format!("{}/", self.key_root()),
        }
    }

    /// Returns the store key of an object. `namespace` is `None` for a cluster-scoped object.
    pub(crate) fn store_key(&self, namespace: Option<&str>, name: &str) -> String {
        format!("{}/{}/{name}", self.key_root(), namespace.unwrap_or_default())
    }

    /// Returns the first segment of the store keys of the kind: [`Kind::group_resource`] of the storage version.
    fn key_root(&self) -> String {
        self.storage_kind().group_resource()
    }
}

/// Returns an API version in the form `group/version`, or `version` for the core group.
pub(crate) fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

/// Returns a resource name with its group, such as `daemonsets.apps`. The name of a resource of the core group is
/// returned without a suffix.
pub(crate) fn qualified_resource(name: &str, group: &str) -> String {
    if group.is_empty() { name.to_owned() } else { format!("{name}.{group}") }
}
