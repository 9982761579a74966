//! The built-in kinds, one row for each.

use super::{
    AdmissionPlugin, FieldPath, Kind, MeteredResource, PodSecuritySubject, Status, SubresourceSpec,
    VirtualCreate, strategy,
};
use crate::subresource::Subresource;
use crate::validation::{names, warnings};
use crate::{conversion, defaulting, table_printer, validation};

const ALL_VERBS: &[&str] =
    &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

/// The defaults of a row.
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
    subresources: &[],
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
    conversion: None,
    virtual_create: None,
    metered: None,
    read_only: None,
    lifetime_s: None,
    name: names::subdomain_name,
    plain_metadata: false,
    deprecated: None,
    default: defaulting::nothing,
    validate: validation::nothing,
    warn: warnings::nothing,
    columns: table_printer::NAME_AND_CREATED,
    row_condition: |_| None,
};

/// A subresource with a body of another kind, which is created and not stored.
const fn sent(
    name: &'static str,
    subresource: Subresource,
    body: (&'static str, &'static str, &'static str),
    create: VirtualCreate,
) -> SubresourceSpec {
    SubresourceSpec {
        name,
        subresource,
        body: Some(body),
        older: None,
        verbs: &["create"],
        virtual_create: Some(create),
        changes: &[],
        keeps: &[],
    }
}

/// A subresource that only the node's agent can serve.
const fn of_agent(
    name: &'static str,
    body: Option<(&'static str, &'static str, &'static str)>,
    verbs: &'static [&'static str],
) -> SubresourceSpec {
    SubresourceSpec {
        name,
        subresource: Subresource::Agent(name),
        body,
        older: None,
        verbs,
        virtual_create: None,
        changes: &[],
        keeps: &[],
    }
}

/// A subresource that updates some fields of the object itself.
const fn own(
    name: &'static str,
    subresource: Subresource,
    verbs: &'static [&'static str],
    changes: &'static [FieldPath],
    keeps: &'static [FieldPath],
) -> SubresourceSpec {
    SubresourceSpec {
        name,
        subresource,
        body: None,
        older: None,
        verbs,
        virtual_create: None,
        changes,
        keeps,
    }
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
    columns: table_printer::EVENT,
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
    plugins: &[AdmissionPlugin::PodSecurity(PodSecuritySubject::Template("/spec/template"))],
    default: defaulting::daemonset,
    validate: validation::daemonset,
    warn: warnings::daemonset,
    columns: table_printer::DAEMON_SET,
    ..PLAIN
};

/// Reviews: authentication and authorization queries, which are not stored.
const REVIEW: Kind = Kind { group: "authorization.k8s.io", namespaced: false, verbs: &["create"], ..PLAIN };

const RBAC: Kind = Kind { group: "rbac.authorization.k8s.io", name: names::path_segment_name, ..PLAIN };

pub(crate) static KINDS: &[Kind] = &[
    Kind {
        kind: "Binding",
        plural: "bindings",
        verbs: &["create"],
        virtual_create: Some(VirtualCreate::Binding),
        ..PLAIN
    },
    Kind {
        kind: "ConfigMap",
        plural: "configmaps",
        short: &["cm"],
        columns: table_printer::CONFIG_MAP,
        validate: validation::config_map,
        ..PLAIN
    },
    Kind {
        kind: "Endpoints",
        put_creates: true,
        plural: "endpoints",
        short: &["ep"],
        columns: table_printer::ENDPOINTS,
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
        subresources: &[own(
            "finalize",
            Subresource::Finalize,
            &["update"],
            &[&["metadata"], &["spec"]],
            &[&["status"]],
        )],
        plural: "namespaces",
        short: &["ns"],
        namespaced: false,
        verbs: &["create", "delete", "get", "list", "patch", "update", "watch"],
        status: Status::Apart(r#"{"phase":"Active"}"#),
        fields: &["status.phase"],
        name: names::label_name,
        plugins: &[AdmissionPlugin::PodSecurity(PodSecuritySubject::Namespace)],
        columns: table_printer::NAMESPACE,
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
        subresources: &[of_agent("proxy", Some(("", "v1", "NodeProxyOptions")), ANY_WAY)],
        fields: &["spec.unschedulable"],
        plugins: &[AdmissionPlugin::NodeTaint, AdmissionPlugin::PodRange, AdmissionPlugin::NodeAddress],
        columns: table_printer::NODE,
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
        subresources: &[
            of_agent("attach", Some(("", "v1", "PodAttachOptions")), BOTH_WAYS),
            SubresourceSpec {
                changes: &[
                    &["metadata", "annotations"],
                    &["spec", "nodeName"],
                    &["status", "conditions"],
                    &["status", "nominatedNodeName"],
                ],
                ..sent("binding", Subresource::Binding, ("", "v1", "Binding"), VirtualCreate::Binding)
            },
            own(
                "ephemeralcontainers",
                Subresource::EphemeralContainers,
                WRITTEN,
                &[&["spec", "ephemeralContainers"]],
                &[],
            ),
            SubresourceSpec {
                older: Some("v1beta1"),
                ..sent(
                    "eviction",
                    Subresource::Eviction,
                    ("policy", "v1", "Eviction"),
                    VirtualCreate::Eviction,
                )
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
            AdmissionPlugin::LimitRanger,
            AdmissionPlugin::ServiceAccount,
            AdmissionPlugin::PodSecurity(PodSecuritySubject::Pod),
            AdmissionPlugin::Priority,
            AdmissionPlugin::TolerationSeconds,
            AdmissionPlugin::RuntimeClass,
            AdmissionPlugin::AppArmor,
        ],
        columns: table_printer::POD,
        row_condition: table_printer::completed_pod_condition,
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
        plugins: &[AdmissionPlugin::PodSecurity(PodSecuritySubject::Template("/template"))],
        columns: table_printer::POD_TEMPLATE,
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
        columns: table_printer::RESOURCE_QUOTA,
        default: defaulting::resource_quota,
        validate: validation::resource_quota,
        ..PLAIN
    },
    Kind {
        kind: "Secret",
        plural: "secrets",
        fields: &["type"],
        columns: table_printer::SECRET,
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
        subresources: &[sent(
            "token",
            Subresource::Token,
            ("authentication.k8s.io", "v1", "TokenRequest"),
            VirtualCreate::ServiceAccountToken,
        )],
        columns: table_printer::NAME_AND_AGE,
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
        subresources: &[of_agent("proxy", Some(("", "v1", "ServiceProxyOptions")), ANY_WAY)],
        fields: &["spec.clusterIP", "spec.type"],
        plugins: &[AdmissionPlugin::ServiceAddress, AdmissionPlugin::ExternalIps],
        columns: table_printer::SERVICE,
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
        columns: table_printer::CONTROLLER_REVISION,
        validate: validation::controller_revision,
        ..PLAIN
    },
    DAEMON_SET,
    Kind {
        group: "events.k8s.io",
        fields: conversion::EVENTS_K8S_IO.field_names,
        conversion: Some(&conversion::EVENTS_K8S_IO),
        ..EVENT
    },
    Kind {
        group: "certificates.k8s.io",
        kind: "CertificateSigningRequest",
        plural: "certificatesigningrequests",
        short: &["csr"],
        namespaced: false,
        status: Status::Apart("{}"),
        subresources: &[own(
            "approval",
            Subresource::Approval,
            WRITTEN,
            &[&["metadata"], &["status", "conditions"]],
            &[&["spec"], &["status", "certificate"]],
        )],
        // The signed request must be the approved one: its spec is immutable.
        whole_keeps: &[&["spec"]],
        fields: &["spec.signerName"],
        plugins: &[AdmissionPlugin::CertificateRequester],
        columns: table_printer::CERTIFICATE_SIGNING_REQUEST,
        name: names::path_segment_name,
        validate: validation::signing_request,
        ..PLAIN
    },
    Kind {
        group: "authentication.k8s.io",
        kind: "SelfSubjectReview",
        plural: "selfsubjectreviews",
        virtual_create: Some(VirtualCreate::SelfSubjectReview),
        ..REVIEW
    },
    Kind {
        group: "authentication.k8s.io",
        kind: "TokenReview",
        plural: "tokenreviews",
        virtual_create: Some(VirtualCreate::TokenReview),
        ..REVIEW
    },
    Kind {
        kind: "LocalSubjectAccessReview",
        plural: "localsubjectaccessreviews",
        namespaced: true,
        virtual_create: Some(VirtualCreate::SubjectAccessReview),
        ..REVIEW
    },
    Kind {
        kind: "SelfSubjectAccessReview",
        plural: "selfsubjectaccessreviews",
        virtual_create: Some(VirtualCreate::SelfSubjectAccessReview),
        ..REVIEW
    },
    Kind {
        kind: "SelfSubjectRulesReview",
        plural: "selfsubjectrulesreviews",
        virtual_create: Some(VirtualCreate::SelfSubjectRulesReview),
        ..REVIEW
    },
    Kind {
        kind: "SubjectAccessReview",
        plural: "subjectaccessreviews",
        virtual_create: Some(VirtualCreate::SubjectAccessReview),
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
        columns: table_printer::POD_DISRUPTION_BUDGET,
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
        columns: table_printer::CLUSTER_ROLE_BINDING,
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
        columns: table_printer::ROLE_BINDING,
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
        plugins: &[AdmissionPlugin::Priority],
        columns: table_printer::PRIORITY_CLASS,
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
        columns: table_printer::LEASE,
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
        columns: table_printer::RUNTIME_CLASS,
        validate: validation::runtime_class,
        warn: warnings::runtime_class,
        ..PLAIN
    },
    Kind {
        group: "discovery.k8s.io",
        kind: "EndpointSlice",
        plural: "endpointslices",
        generation: Some(&["addressType", "endpoints", "ports"]),
        columns: table_printer::ENDPOINT_SLICE,
        default: defaulting::endpoint_slice,
        validate: validation::endpoint_slice,
        warn: warnings::endpoint_slice,
        ..PLAIN
    },
    // Last, and without short names, so that `ds` means `apps/v1`.
    Kind {
        group: "extensions",
        version: "v1beta1",
        short: &[],
        categories: &[],
        conversion: Some(&conversion::EXTENSIONS_DAEMON_SETS),
        ..DAEMON_SET
    },
];

/// Read-only kinds, which upstream serves from other API servers.
static READ_ONLY_KINDS: &[Kind] = &[
    // Always an empty list. kubectl reads it before it accepts a manifest of a kind that is not in the OpenAPI
    // document, and stops if it fails.
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
        metered: Some(MeteredResource::Nodes),
        columns: table_printer::RESOURCE_METRICS,
        ..PLAIN
    },
    Kind {
        group: "metrics.k8s.io",
        version: "v1beta1",
        kind: "PodMetrics",
        plural: "pods",
        verbs: &["get", "list"],
        metered: Some(MeteredResource::Pods),
        columns: table_printer::RESOURCE_METRICS,
        ..PLAIN
    },
];

/// All served kinds in the order of discovery: if two groups serve a resource, clients use the first.
pub(crate) fn served() -> impl Iterator<Item = &'static Kind> {
    KINDS.iter().chain(READ_ONLY_KINDS)
}
