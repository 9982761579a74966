//! The table of kinds: all that the server knows of a kind stands in its row, and no other file asks
//! which kind it has at hand.

mod reset_fields;
mod strategy;

use futures::future::BoxFuture;
use serde_json::Value;

use crate::admission::{Plugin, Subject};
use crate::answer;
use crate::auth;
use crate::columns::{self, Column};
use crate::context::Context;
use crate::convert::{self, Door};
use crate::decode::Gvk;
use crate::defaulting;
use crate::http::{Api, Figures};
use crate::refusal::Refusal;
use crate::route::{Part, Target};
use crate::validation::field_error::Causes;
use crate::validation::{self, Cause, Write, metadata, names, warnings};

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
    pub(crate) parts: &'static [SubResource],
    /// Fields that a write of the whole object leaves as stored, besides a status that is a subresource.
    pub(crate) whole_keeps: &'static [FieldPath],
    /// Fields that a write of the status leaves as stored. It changes `metadata` and `status` alone in any case.
    pub(crate) status_keeps: &'static [FieldPath],
    /// `metadata.generation` counts the changes of these fields; without them it stays at 1.
    pub(crate) generation: Option<&'static [&'static str]>,
    /// Sets server-owned fields of the kind, from the stored object unless this is a create, and the subresource that is written.
    /// Upstream: `PrepareForCreate` and `PrepareForUpdate`.
    pub(crate) prepare: fn(&mut Value, Option<&Value>, Part),
    /// A PUT of an object that is not there creates it.
    pub(crate) put_creates: bool,
    /// A PUT must say which version it replaces.
    pub(crate) version_required: bool,
    /// A delete only marks the object while a node still has to stop it.
    pub(crate) graceful: bool,
    /// Other objects live in it, for which `spec.finalizers` stands: it is emptied before it goes.
    pub(crate) holds_others: bool,
    /// Other objects may be owned by it, so that whoever deletes it may say what becomes of them.
    pub(crate) owns_others: bool,
    /// A delete answers with the object that went, and not with a `Status`.
    pub(crate) returns_deleted: bool,
    /// Field selectors besides `metadata.name` and `metadata.namespace`.
    pub(crate) fields: &'static [&'static str],
    /// What else in the store decides about its objects.
    pub(crate) plugins: &'static [Plugin],
    /// Its objects are another kind's, and are converted on the way in and out.
    pub(crate) door: Option<&'static Door>,
    /// Its objects are questions: answered, and never stored.
    pub(crate) answer: Option<Answer>,
    /// Its objects are made of what agents say when they are asked for.
    pub(crate) figures: Option<Figures>,
    /// Why its objects cannot be written, for those who try.
    pub(crate) read_only: Option<&'static str>,
    /// Objects go by themselves so long after they were last written.
    pub(crate) lifetime_s: Option<u64>,
    /// What the names of its objects must look like.
    pub(crate) name: names::Rule,
    /// Upstream looks at its metadata only once nothing else is wrong, and lets any finalizer be.
    pub(crate) plain_metadata: bool,
    /// What clients are told whenever they ask for the kind.
    pub(crate) deprecated: Option<&'static str>,
    pub(crate) default: fn(&mut Value),
    /// Validates everything but the metadata.
    pub(crate) validate: fn(&Write, &mut Causes),
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
    /// Through `/status`, but whoever creates the object may say it: a node registers with its status.
    ApartButCreated,
}

#[derive(Debug)]
pub(crate) struct SubResource {
    pub(crate) name: &'static str,
    pub(crate) part: Part,
    /// Group, version and kind of its bodies, where they are not the kind's own.
    pub(crate) body: Option<(&'static str, &'static str, &'static str)>,
    /// A version of them that is taken for the same.
    pub(crate) older: Option<&'static str>,
    pub(crate) verbs: &'static [&'static str],
    /// What is made of a body that is sent to it, where that is not a part of the object.
    pub(crate) answer: Option<Answer>,
    /// The only fields of the object that a write through it may change.
    pub(crate) changes: &'static [FieldPath],
    /// Fields that managed fields do not record for it. Upstream: `GetResetFields`.
    pub(crate) keeps: &'static [FieldPath],
}

/// Names of fields from the root of an object to one of its fields.
pub(crate) type FieldPath = &'static [&'static str];

/// From what a client sends to what it gets. The target has the name of the object whose subresource it is.
pub(crate) type Answer =
    for<'a> fn(&'a Api, &'a Context, &'a Target, Value) -> BoxFuture<'a, Result<Value, Refusal>>;

const ALL_VERBS: &[&str] =
    &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

const PLAIN: Kind = Kind {
    group: "",
    version: "v1",
    kind: "",
    plural: "",
    short: &[],
    categories: &[],
    namespaced: true,
    verbs: ALL_VERBS,
    status: Status::Plain,
    parts: &[],
    whole_keeps: &[],
    status_keeps: &[&["spec"]],
    generation: None,
    prepare: strategy::nothing,
    put_creates: false,
    version_required: false,
    graceful: false,
    holds_others: false,
    owns_others: true,
    returns_deleted: false,
    fields: &[],
    plugins: &[],
    door: None,
    answer: None,
    figures: None,
    read_only: None,
    lifetime_s: None,
    name: names::subdomain_name,
    plain_metadata: false,
    deprecated: None,
    default: defaulting::nothing,
    validate: validation::nothing,
    warn: warnings::nothing,
    columns: columns::NAME_AND_CREATED,
    row_condition: |_| None,
};

/// A part that is sent a body of another kind.
const fn sent(
    name: &'static str,
    part: Part,
    body: (&'static str, &'static str, &'static str),
    answer: Answer,
) -> SubResource {
    SubResource {
        name,
        part,
        body: Some(body),
        older: None,
        verbs: &["create"],
        answer: Some(answer),
        changes: &[],
        keeps: &[],
    }
}

/// A part that only the node's agent can serve.
const fn of_agent(
    name: &'static str,
    body: Option<(&'static str, &'static str, &'static str)>,
    verbs: &'static [&'static str],
) -> SubResource {
    SubResource {
        name,
        part: Part::Agent(name),
        body,
        older: None,
        verbs,
        answer: None,
        changes: &[],
        keeps: &[],
    }
}

/// A part of the object that is written on its own.
const fn own(
    name: &'static str,
    part: Part,
    verbs: &'static [&'static str],
    changes: &'static [FieldPath],
    keeps: &'static [FieldPath],
) -> SubResource {
    SubResource { name, part, body: None, older: None, verbs, answer: None, changes, keeps }
}

const BOTH_WAYS: &[&str] = &["create", "get"];
const ANY_WAY: &[&str] = &["create", "delete", "get", "patch", "update"];
const WRITTEN: &[&str] = &["get", "patch", "update"];

const EVENT: Kind = Kind {
    kind: "Event",
    put_creates: true,
    owns_others: false,
    plural: "events",
    short: &["ev"],
    fields: &[
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "source",
        "type",
    ],
    lifetime_s: Some(60 * 60),
    name: names::path_segment_name,
    plain_metadata: true,
    validate: validation::event,
    columns: columns::EVENT,
    ..PLAIN
};

const DAEMON_SET: Kind = Kind {
    group: "apps",
    kind: "DaemonSet",
    prepare: strategy::daemonset,
    plural: "daemonsets",
    short: &["ds"],
    categories: &["all"],
    status: Status::Apart(
        r#"{"currentNumberScheduled":0,"desiredNumberScheduled":0,"numberMisscheduled":0,"numberReady":0}"#,
    ),
    generation: Some(&["spec"]),
    plugins: &[Plugin::PodSecurity(Subject::Template("/spec/template"))],
    default: defaulting::daemonset,
    validate: validation::daemonset,
    warn: warnings::daemonset,
    columns: columns::DAEMON_SET,
    ..PLAIN
};

/// Questions about who someone is and what they may do.
const REVIEW: Kind = Kind { group: "authorization.k8s.io", namespaced: false, verbs: &["create"], ..PLAIN };

const RBAC: Kind = Kind { group: "rbac.authorization.k8s.io", name: names::path_segment_name, ..PLAIN };

pub(crate) static KINDS: &[Kind] = &[
    Kind { kind: "Binding", plural: "bindings", verbs: &["create"], answer: Some(answer::binding), ..PLAIN },
    Kind {
        kind: "ConfigMap",
        plural: "configmaps",
        short: &["cm"],
        columns: columns::CONFIG_MAP,
        validate: validation::config_map,
        ..PLAIN
    },
    Kind {
        kind: "Endpoints",
        put_creates: true,
        plural: "endpoints",
        short: &["ep"],
        columns: columns::ENDPOINTS,
        default: defaulting::endpoints,
        deprecated: Some("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"),
        validate: validation::endpoints,
        ..PLAIN
    },
    EVENT,
    Kind {
        kind: "LimitRange",
        put_creates: true,
        plural: "limitranges",
        short: &["limits"],
        default: defaulting::limit_range,
        validate: validation::limit_range,
        ..PLAIN
    },
    Kind {
        kind: "Namespace",
        prepare: strategy::namespace,
        // The finalizer `kubernetes` stands for the content of the namespace: only `/finalize` removes it.
        whole_keeps: &[&["spec", "finalizers"]],
        holds_others: true,
        returns_deleted: true,
        parts: &[own("finalize", Part::Finalize, &["update"], &[&["metadata"], &["spec"]], &[&["status"]])],
        plural: "namespaces",
        short: &["ns"],
        namespaced: false,
        verbs: &["create", "delete", "get", "list", "patch", "update", "watch"],
        status: Status::Apart(r#"{"phase":"Active"}"#),
        fields: &["status.phase"],
        name: names::label_name,
        plugins: &[Plugin::PodSecurity(Subject::Namespace)],
        columns: columns::NAMESPACE,
        default: defaulting::namespace,
        validate: validation::namespace,
        ..PLAIN
    },
    Kind {
        kind: "Node",
        plural: "nodes",
        short: &["no"],
        namespaced: false,
        status: Status::ApartButCreated,
        parts: &[of_agent("proxy", Some(("", "v1", "NodeProxyOptions")), ANY_WAY)],
        fields: &["spec.unschedulable"],
        plugins: &[Plugin::NodeTaint, Plugin::PodRange, Plugin::NodeAddress],
        columns: columns::NODE,
        default: defaulting::node,
        validate: validation::node,
        warn: warnings::node,
        ..PLAIN
    },
    Kind {
        kind: "Pod",
        prepare: strategy::pod,
        returns_deleted: true,
        plural: "pods",
        short: &["po"],
        categories: &["all"],
        status: Status::Apart(r#"{"phase":"Pending"}"#),
        status_keeps: &[&["spec"], &["metadata", "deletionTimestamp"], &["metadata", "ownerReferences"]],
        parts: &[
            of_agent("attach", Some(("", "v1", "PodAttachOptions")), BOTH_WAYS),
            SubResource {
                changes: &[
                    &["metadata", "annotations"],
                    &["spec", "nodeName"],
                    &["status", "conditions"],
                    &["status", "nominatedNodeName"],
                ],
                ..sent("binding", Part::Binding, ("", "v1", "Binding"), answer::binding)
            },
            own(
                "ephemeralcontainers",
                Part::EphemeralContainers,
                WRITTEN,
                &[&["spec", "ephemeralContainers"]],
                &[],
            ),
            SubResource {
                older: Some("v1beta1"),
                ..sent("eviction", Part::Eviction, ("policy", "v1", "Eviction"), answer::eviction)
            },
            of_agent("exec", Some(("", "v1", "PodExecOptions")), BOTH_WAYS),
            of_agent("log", None, &["get"]),
            of_agent("portforward", Some(("", "v1", "PodPortForwardOptions")), BOTH_WAYS),
            of_agent("proxy", Some(("", "v1", "PodProxyOptions")), ANY_WAY),
        ],
        generation: Some(&["spec"]),
        graceful: true,
        fields: &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.podIPs",
            "status.nominatedNodeName",
        ],
        plugins: &[
            Plugin::LimitRanger,
            Plugin::ServiceAccount,
            Plugin::PodSecurity(Subject::Pod),
            Plugin::Priority,
            Plugin::TolerationSeconds,
            Plugin::RuntimeClass,
            Plugin::AppArmor,
        ],
        columns: columns::POD,
        row_condition: columns::pod_is_over,
        default: defaulting::pod,
        validate: validation::pod,
        warn: warnings::pod,
        ..PLAIN
    },
    Kind {
        kind: "PodTemplate",
        returns_deleted: true,
        plural: "podtemplates",
        generation: Some(&["template"]),
        plugins: &[Plugin::PodSecurity(Subject::Template("/template"))],
        columns: columns::POD_TEMPLATE,
        default: defaulting::pod_template,
        validate: validation::pod_template,
        warn: warnings::pod_template,
        ..PLAIN
    },
    Kind {
        kind: "ResourceQuota",
        returns_deleted: true,
        plural: "resourcequotas",
        short: &["quota"],
        status: Status::Apart("{}"),
        columns: columns::RESOURCE_QUOTA,
        default: defaulting::resource_quota,
        validate: validation::resource_quota,
        ..PLAIN
    },
    Kind {
        kind: "Secret",
        plural: "secrets",
        fields: &["type"],
        columns: columns::SECRET,
        default: defaulting::secret,
        validate: validation::secret,
        warn: warnings::secret,
        ..PLAIN
    },
    Kind {
        kind: "ServiceAccount",
        returns_deleted: true,
        plural: "serviceaccounts",
        short: &["sa"],
        parts: &[sent(
            "token",
            Part::Token,
            ("authentication.k8s.io", "v1", "TokenRequest"),
            auth::answer::token,
        )],
        columns: columns::NAME_AND_AGE,
        default: defaulting::service_account,
        ..PLAIN
    },
    Kind {
        kind: "Service",
        returns_deleted: true,
        put_creates: true,
        plural: "services",
        short: &["svc"],
        categories: &["all"],
        status: Status::Apart(r#"{"loadBalancer":{}}"#),
        parts: &[of_agent("proxy", Some(("", "v1", "ServiceProxyOptions")), ANY_WAY)],
        fields: &["spec.clusterIP", "spec.type"],
        plugins: &[Plugin::ServiceAddress, Plugin::ExternalIps],
        columns: columns::SERVICE,
        name: names::label_name,
        default: defaulting::service,
        validate: validation::service,
        warn: warnings::service,
        ..PLAIN
    },
    Kind {
        group: "apps",
        kind: "ControllerRevision",
        plural: "controllerrevisions",
        columns: columns::CONTROLLER_REVISION,
        validate: validation::controller_revision,
        ..PLAIN
    },
    DAEMON_SET,
    Kind {
        group: "events.k8s.io",
        fields: convert::NEW_EVENTS.field_names,
        door: Some(&convert::NEW_EVENTS),
        ..EVENT
    },
    Kind {
        group: "certificates.k8s.io",
        kind: "CertificateSigningRequest",
        plural: "certificatesigningrequests",
        short: &["csr"],
        namespaced: false,
        status: Status::Apart("{}"),
        parts: &[own(
            "approval",
            Part::Approval,
            WRITTEN,
            &[&["metadata"], &["status", "conditions"]],
            &[&["spec"], &["status", "certificate"]],
        )],
        // What is approved is what is signed: nothing changes a request once it is made.
        whole_keeps: &[&["spec"]],
        fields: &["spec.signerName"],
        plugins: &[Plugin::CertificateRequester],
        columns: columns::CERTIFICATE_SIGNING_REQUEST,
        name: names::path_segment_name,
        validate: validation::signing_request,
        ..PLAIN
    },
    Kind {
        group: "authentication.k8s.io",
        kind: "SelfSubjectReview",
        plural: "selfsubjectreviews",
        answer: Some(auth::answer::self_review),
        ..REVIEW
    },
    Kind {
        group: "authentication.k8s.io",
        kind: "TokenReview",
        plural: "tokenreviews",
        answer: Some(auth::answer::token_review),
        ..REVIEW
    },
    Kind {
        kind: "LocalSubjectAccessReview",
        plural: "localsubjectaccessreviews",
        namespaced: true,
        answer: Some(auth::answer::access_review),
        ..REVIEW
    },
    Kind {
        kind: "SelfSubjectAccessReview",
        plural: "selfsubjectaccessreviews",
        answer: Some(auth::answer::own_access_review),
        ..REVIEW
    },
    Kind {
        kind: "SelfSubjectRulesReview",
        plural: "selfsubjectrulesreviews",
        answer: Some(auth::answer::own_rules_review),
        ..REVIEW
    },
    Kind {
        kind: "SubjectAccessReview",
        plural: "subjectaccessreviews",
        answer: Some(auth::answer::access_review),
        ..REVIEW
    },
    Kind {
        group: "policy",
        kind: "PodDisruptionBudget",
        version_required: true,
        plural: "poddisruptionbudgets",
        short: &["pdb"],
        status: Status::Apart(
            r#"{"currentHealthy":0,"desiredHealthy":0,"disruptionsAllowed":0,"expectedPods":0}"#,
        ),
        generation: Some(&["spec"]),
        columns: columns::POD_DISRUPTION_BUDGET,
        name: names::path_segment_name,
        plain_metadata: true,
        validate: validation::disruption_budget,
        ..PLAIN
    },
    Kind {
        kind: "ClusterRoleBinding",
        put_creates: true,
        plural: "clusterrolebindings",
        namespaced: false,
        columns: columns::CLUSTER_ROLE_BINDING,
        default: defaulting::cluster_role_binding,
        validate: validation::cluster_role_binding,
        ..RBAC
    },
    Kind {
        kind: "ClusterRole",
        put_creates: true,
        plural: "clusterroles",
        namespaced: false,
        default: defaulting::role,
        validate: validation::cluster_role,
        ..RBAC
    },
    Kind {
        kind: "RoleBinding",
        put_creates: true,
        plural: "rolebindings",
        columns: columns::ROLE_BINDING,
        default: defaulting::cluster_role_binding,
        validate: validation::role_binding,
        ..RBAC
    },
    Kind {
        kind: "Role",
        put_creates: true,
        plural: "roles",
        default: defaulting::role,
        validate: validation::role,
        ..RBAC
    },
    Kind {
        group: "scheduling.k8s.io",
        kind: "PriorityClass",
        plural: "priorityclasses",
        short: &["pc"],
        namespaced: false,
        generation: Some(&[]),
        plugins: &[Plugin::Priority],
        columns: columns::PRIORITY_CLASS,
        default: defaulting::priority_class,
        validate: validation::priority_class,
        ..PLAIN
    },
    Kind {
        group: "coordination.k8s.io",
        kind: "Lease",
        put_creates: true,
        version_required: true,
        plural: "leases",
        columns: columns::LEASE,
        default: defaulting::lease,
        plain_metadata: true,
        validate: validation::lease,
        ..PLAIN
    },
    Kind {
        group: "node.k8s.io",
        kind: "RuntimeClass",
        put_creates: true,
        version_required: true,
        plural: "runtimeclasses",
        namespaced: false,
        columns: columns::RUNTIME_CLASS,
        validate: validation::runtime_class,
        warn: warnings::runtime_class,
        ..PLAIN
    },
    Kind {
        group: "discovery.k8s.io",
        kind: "EndpointSlice",
        plural: "endpointslices",
        generation: Some(&["addressType", "endpoints", "ports"]),
        columns: columns::ENDPOINT_SLICE,
        default: defaulting::endpoint_slice,
        validate: validation::endpoint_slice,
        warn: warnings::endpoint_slice,
        ..PLAIN
    },
    // Last, and by its full name only: a client that asks for `ds` means the newer.
    Kind {
        group: "extensions",
        version: "v1beta1",
        short: &[],
        categories: &[],
        door: Some(&convert::OLD_DAEMON_SETS),
        ..DAEMON_SET
    },
];

/// What is read and never written: upstream has other servers for it.
static TOLD: &[Kind] = &[
    // Always an empty list. kubectl reads it before it accepts a manifest of a kind that it finds in no OpenAPI document, and
    // stops reading the file if it cannot.
    Kind {
        group: "apiextensions.k8s.io",
        kind: "CustomResourceDefinition",
        plural: "customresourcedefinitions",
        short: &["crd", "crds"],
        categories: &["api-extensions"],
        namespaced: false,
        verbs: &["get", "list", "watch"],
        read_only: Some(
            "custom resources are not served: customresourcedefinitions.apiextensions.k8s.io can be listed, and not written",
        ),
        ..PLAIN
    },
    Kind {
        group: "metrics.k8s.io",
        version: "v1beta1",
        kind: "NodeMetrics",
        plural: "nodes",
        namespaced: false,
        verbs: &["get", "list"],
        figures: Some(Figures::Nodes),
        columns: columns::FIGURES,
        ..PLAIN
    },
    Kind {
        group: "metrics.k8s.io",
        version: "v1beta1",
        kind: "PodMetrics",
        plural: "pods",
        verbs: &["get", "list"],
        figures: Some(Figures::Pods),
        columns: columns::FIGURES,
        ..PLAIN
    },
];

/// All that clients may ask for, in the order in which it is told: of two groups that have a resource they take the first.
pub(crate) fn served() -> impl Iterator<Item = &'static Kind> {
    KINDS.iter().chain(TOLD)
}

impl Kind {
    pub(crate) fn find(group: &str, version: &str, plural: &str) -> Option<&'static Kind> {
        served().find(|it| it.group == group && it.version == version && it.plural == plural)
    }

    /// The kind that the objects are stored as.
    pub(crate) fn stored(&self) -> &Kind {
        self.door.map_or(self, |it| {
            let (group, version, plural) = it.stored;
            Self::find(group, version, plural).expect("it is in the table")
        })
    }

    /// The kind that serves the same objects in another version, if there is one.
    pub(crate) fn in_version(&self, api_version: &str) -> Option<&'static Kind> {
        let stored = self.stored().resource();
        served().find(|it| it.stored().resource() == stored && it.api_version() == api_version)
    }

    /// Whether the store holds objects under this kind's own name.
    pub(crate) fn is_stored(&self) -> bool {
        self.door.is_none() && self.answer.is_none()
    }

    /// The kind that the others live in.
    pub(crate) fn namespace() -> &'static Kind {
        Self::find("", "v1", "namespaces").expect("it is in the table")
    }

    /// A verb that the kind has not.
    pub(crate) fn method_not_allowed(&self) -> Refusal {
        self.read_only.map_or_else(Refusal::method_not_allowed, Refusal::read_only)
    }

    pub(crate) fn gvk(&self) -> Gvk<'static> {
        Gvk { group: self.group, version: self.version, kind: self.kind }
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
    pub(crate) fn validate(&self, write: &Write) -> Vec<Cause> {
        let mut out = Causes::default();
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

    fn validate_metadata(&self, write: &Write, out: &mut Causes) {
        match write.old {
            None => metadata::check_new(write.new, self.name, self.namespaced, out),
            Some(old) => metadata::check_change(write.new, old, out),
        }
    }

    /// Fields that a write of this part leaves as stored, whatever it says. Upstream: `GetResetFields`.
    pub(crate) fn keeps(&self, part: Part) -> impl Iterator<Item = FieldPath> {
        const STATUS: &[FieldPath] = &[&["status"]];
        let (first, rest): (&[FieldPath], &[FieldPath]) = match part {
            Part::Whole if self.has_status_subresource() => (STATUS, self.whole_keeps),
            Part::Whole => (&[], self.whole_keeps),
            Part::Status => (&[], self.status_keeps),
            part => (&[], self.parts.iter().find(|it| it.part == part).map_or(&[], |it| it.keeps)),
        };
        first.iter().chain(rest).copied()
    }

    /// The only fields that a write of this part may change; `None` for the whole object, which may change all but
    /// what [`Kind::keeps`] names.
    pub(crate) fn changes(&self, part: Part) -> Option<&'static [FieldPath]> {
        const STATUS: &[FieldPath] = &[&["metadata"], &["status"]];
        match part {
            Part::Whole => None,
            Part::Status => Some(STATUS),
            part => Some(self.parts.iter().find(|it| it.part == part).map_or(&[], |it| it.changes)),
        }
    }

    /// As paths and managed fields name it; the whole has no name.
    pub(crate) fn name_of(&self, part: Part) -> &'static str {
        match part {
            Part::Whole => "",
            Part::Status => "status",
            part => self.parts.iter().find(|it| it.part == part).map_or("", |it| it.name),
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
        self.door
            .map_or_else(|| self.resource(), |Door { stored: (group, _, plural), .. }| join(plural, group))
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
