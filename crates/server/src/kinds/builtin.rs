//! The table of built-in kinds, with one row for each kind.

use muster_api::muster_v1alpha1::{
    CATEGORY, CLUSTER_ROLLOUT_POLICY, DAEMON_ROLLOUT, GROUP, KindNames, ROLLOUT_POLICY, VERSION,
};
use muster_api::well_known::{API_GROUP_AUTHENTICATION, API_GROUP_CERTIFICATES, API_GROUP_RBAC};

use super::{
    AdmissionPlugin, CreateAction, FieldPath, Kind, MeteredResource, PodSecuritySubject, QuotaEvaluator,
    StatusPolicy, StoredVersion, SubresourceDefinition, strategy,
};
use crate::subresource::Subresource;
use crate::validation::{names, warnings};
use crate::{conversion, defaulting, table_printer, validation};

/// All verbs. A kind supports them by default.
const ALL_VERBS: &[&str] =
    &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

/// Default values of the fields of [`Kind`]. Each row of the kind table sets only the fields whose values differ from
/// the defaults.
pub(crate) const DEFAULT_KIND: Kind = Kind {
    group: "",
    version: "v1",
    kind: "",
    plural: "",
    short_names: &[],
    categories: &[],
    namespaced: true,
    verbs: ALL_VERBS,
    added_type: None,
    status: StatusPolicy::NoSubresource,
    subresources: &[],
    update_reset_fields: &[],
    status_update_reset_fields: &[&["spec"]],
    generation_fields: None,
    prepare: strategy::prepare_nothing,
    allows_create_on_update: false,
    requires_resource_version: false,
    deletes_gracefully: false,
    has_spec_finalizers: false,
    can_own_objects: true,
    returns_deleted_object: false,
    selectable_fields: &[],
    admission_plugins: &[],
    quota_evaluator: QuotaEvaluator::ObjectCount,
    stored_version: None,
    create_action: None,
    metered_resource: None,
    read_only_error: None,
    ttl_s: None,
    name_rule: names::dns_subdomain_name_errors,
    validates_metadata_last: false,
    deprecation_warning: None,
    apply_defaults: defaulting::no_defaults,
    validate: validation::no_validation,
    warnings: warnings::no_warnings,
    columns: table_printer::NAME_AND_CREATED_COLUMNS,
    row_condition: |_| None,
};

/// Returns the definition of a subresource that supports only `create`. `body` is the group, version and kind of the
/// request body, which is not stored.
const fn create_only_subresource(
    name: &'static str,
    subresource: Subresource,
    body: (&'static str, &'static str, &'static str),
    create: CreateAction,
) -> SubresourceDefinition {
    SubresourceDefinition {
        name,
        subresource,
        body: Some(body),
        older_body_version: None,
        verbs: &["create"],
        create_action: Some(create),
        mutable_fields: &[],
        reset_fields: &[],
    }
}

/// Returns the definition of a subresource of a pod, Node or Service whose requests the server forwards to a node
/// agent. `body` is the group, version and kind of the options object of the subresource, such as `PodExecOptions`.
/// `body` is `None` if discovery lists the kind of the object itself for the subresource, as for `log`.
const fn agent_subresource(
    name: &'static str,
    body: Option<(&'static str, &'static str, &'static str)>,
    verbs: &'static [&'static str],
) -> SubresourceDefinition {
    SubresourceDefinition {
        name,
        subresource: Subresource::Agent(name),
        body,
        older_body_version: None,
        verbs,
        create_action: None,
        mutable_fields: &[],
        reset_fields: &[],
    }
}

/// Returns the definition of a subresource through which clients update the fields `changes` of the object, except
/// those that are also in `reset_fields`.
const fn field_update_subresource(
    name: &'static str,
    subresource: Subresource,
    verbs: &'static [&'static str],
    changes: &'static [FieldPath],
    reset_fields: &'static [FieldPath],
) -> SubresourceDefinition {
    SubresourceDefinition {
        name,
        subresource,
        body: None,
        older_body_version: None,
        verbs,
        create_action: None,
        mutable_fields: changes,
        reset_fields,
    }
}

/// Verbs of `attach`, `exec` and `portforward`, which open a stream to the agent.
const STREAM_VERBS: &[&str] = &["create", "get"];
/// Verbs of `proxy`, to which the HTTP methods of proxied requests are mapped.
const PROXY_VERBS: &[&str] = &["create", "delete", "get", "patch", "update"];
/// Verbs of a subresource that is read and updated like the object.
const READ_WRITE_VERBS: &[&str] = &["get", "patch", "update"];

/// The kind Event, which the core group and the group `events.k8s.io` serve.
const EVENT_KIND: Kind = Kind {
    kind: "Event",
    allows_create_on_update: true,
    can_own_objects: false,
    plural: "events",
    short_names: &["ev"],
    selectable_fields: &[
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
    ttl_s: Some(60 * 60),
    name_rule: names::path_segment_name_errors,
    validates_metadata_last: true,
    validate: validation::validate_event,
    columns: table_printer::EVENT_COLUMNS,
    ..DEFAULT_KIND
};

/// The kind DaemonSet, which the groups `apps` and `extensions` serve.
const DAEMON_SET_KIND: Kind = Kind {
    group: "apps",
    kind: "DaemonSet",
    prepare: strategy::prepare_daemon_set,
    plural: "daemonsets",
    short_names: &["ds"],
    categories: &["all"],
    status: StatusPolicy::SubresourceOnly(
        r#"{"currentNumberScheduled":0,"desiredNumberScheduled":0,"numberMisscheduled":0,"numberReady":0}"#,
    ),
    generation_fields: Some(&["spec"]),
    admission_plugins: &[AdmissionPlugin::PodSecurity(PodSecuritySubject::Template("/spec/template"))],
    apply_defaults: defaulting::set_daemonset_defaults,
    validate: validation::validate_daemonset,
    warnings: warnings::daemonset_warnings,
    columns: table_printer::DAEMON_SET_COLUMNS,
    ..DEFAULT_KIND
};

/// Default values of the fields of [`Kind`] for the review kinds, such as SubjectAccessReview. The objects of a review
/// kind are authentication or authorization queries, which are not stored.
const REVIEW_KIND_DEFAULTS: Kind =
    Kind { group: "authorization.k8s.io", namespaced: false, verbs: &["create"], ..DEFAULT_KIND };

/// Default values of the fields of [`Kind`] for the RBAC kinds.
const RBAC_KIND_DEFAULTS: Kind =
    Kind { group: API_GROUP_RBAC, name_rule: names::path_segment_name_errors, ..DEFAULT_KIND };

/// Returns a kind of the group `muster.dev`. The caller sets its validation, defaulting and columns. As with a custom
/// resource, an update of `/status` does not change labels, annotations, finalizers or owner references. Upstream:
/// `statusStrategy` of `apiextensions-apiserver`.
const fn muster_kind(names: KindNames, short_names: &'static [&'static str]) -> Kind {
    Kind {
        group: GROUP,
        version: VERSION,
        kind: names.kind,
        plural: names.plural,
        short_names,
        categories: &[CATEGORY],
        namespaced: names.namespaced,
        status: StatusPolicy::SubresourceOnly("{}"),
        status_update_reset_fields: &[
            &["spec"],
            &["metadata", "annotations"],
            &["metadata", "finalizers"],
            &["metadata", "labels"],
            &["metadata", "ownerReferences"],
        ],
        generation_fields: Some(&["spec"]),
        ..DEFAULT_KIND
    }
}

/// The kind Event of the core group. Events of the group `events.k8s.io` are stored in the version of this kind.
static CORE_EVENTS: Kind = EVENT_KIND;

/// The kind DaemonSet of the group `apps`. DaemonSets of the group `extensions` are stored in the version of this kind.
static APPS_DAEMON_SETS: Kind = DAEMON_SET_KIND;

/// The built-in kinds that clients can write, in the order in which discovery lists them.
pub(crate) static WRITABLE_KINDS: &[&Kind] = &[
    &Kind {
        kind: "Binding",
        plural: "bindings",
        verbs: &["create"],
        create_action: Some(CreateAction::Binding),
        ..DEFAULT_KIND
    },
    &Kind {
        kind: "ConfigMap",
        plural: "configmaps",
        short_names: &["cm"],
        quota_evaluator: QuotaEvaluator::ObjectCountAndPlural,
        columns: table_printer::CONFIG_MAP_COLUMNS,
        validate: validation::validate_config_map,
        ..DEFAULT_KIND
    },
    &Kind {
        kind: "Endpoints",
        allows_create_on_update: true,
        plural: "endpoints",
        short_names: &["ep"],
        columns: table_printer::ENDPOINTS_COLUMNS,
        apply_defaults: defaulting::set_endpoints_defaults,
        deprecation_warning: Some(
            "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
        ),
        validate: validation::validate_endpoints,
        ..DEFAULT_KIND
    },
    &CORE_EVENTS,
    &Kind {
        kind: "LimitRange",
        allows_create_on_update: true,
        plural: "limitranges",
        short_names: &["limits"],
        apply_defaults: defaulting::set_limit_range_defaults,
        validate: validation::validate_limit_range,
        ..DEFAULT_KIND
    },
    &Kind {
        kind: "Namespace",
        prepare: strategy::prepare_namespace,
        // The finalizer `kubernetes` stands for the content of the namespace: only `/finalize` removes it.
        update_reset_fields: &[&["spec", "finalizers"]],
        has_spec_finalizers: true,
        returns_deleted_object: true,
        subresources: &[field_update_subresource(
            "finalize",
            Subresource::Finalize,
            &["update"],
            &[&["metadata"], &["spec"]],
            &[&["status"]],
        )],
        plural: "namespaces",
        short_names: &["ns"],
        namespaced: false,
        verbs: &["create", "delete", "get", "list", "patch", "update", "watch"],
        status: StatusPolicy::SubresourceOnly(r#"{"phase":"Active"}"#),
        selectable_fields: &["status.phase"],
        name_rule: names::dns_label_name_errors,
        admission_plugins: &[AdmissionPlugin::PodSecurity(PodSecuritySubject::Namespace)],
        columns: table_printer::NAMESPACE_COLUMNS,
        apply_defaults: defaulting::set_namespace_defaults,
        validate: validation::validate_namespace,
        ..DEFAULT_KIND
    },
    &Kind {
        kind: "Node",
        plural: "nodes",
        short_names: &["no"],
        namespaced: false,
        status: StatusPolicy::SubresourceAndCreate,
        subresources: &[agent_subresource("proxy", Some(("", "v1", "NodeProxyOptions")), PROXY_VERBS)],
        selectable_fields: &["spec.unschedulable"],
        admission_plugins: &[
            AdmissionPlugin::NodeTaint,
            AdmissionPlugin::PodCidr,
            AdmissionPlugin::NodeAddress,
        ],
        columns: table_printer::NODE_COLUMNS,
        apply_defaults: defaulting::set_node_defaults,
        validate: validation::validate_node,
        warnings: warnings::node_warnings,
        ..DEFAULT_KIND
    },
    &Kind {
        kind: "Pod",
        prepare: strategy::prepare_pod,
        returns_deleted_object: true,
        plural: "pods",
        short_names: &["po"],
        categories: &["all"],
        status: StatusPolicy::SubresourceOnly(r#"{"phase":"Pending"}"#),
        status_update_reset_fields: &[
            &["spec"],
            &["metadata", "deletionTimestamp"],
            &["metadata", "ownerReferences"],
        ],
        subresources: &[
            agent_subresource("attach", Some(("", "v1", "PodAttachOptions")), STREAM_VERBS),
            SubresourceDefinition {
                mutable_fields: &[
                    &["metadata", "annotations"],
                    &["spec", "nodeName"],
                    &["status", "conditions"],
                    &["status", "nominatedNodeName"],
                ],
                ..create_only_subresource(
                    "binding",
                    Subresource::Binding,
                    ("", "v1", "Binding"),
                    CreateAction::Binding,
                )
            },
            field_update_subresource(
                "ephemeralcontainers",
                Subresource::EphemeralContainers,
                READ_WRITE_VERBS,
                &[&["spec", "ephemeralContainers"]],
                &[],
            ),
            SubresourceDefinition {
                older_body_version: Some("v1beta1"),
                ..create_only_subresource(
                    "eviction",
                    Subresource::Eviction,
                    ("policy", "v1", "Eviction"),
                    CreateAction::Eviction,
                )
            },
            agent_subresource("exec", Some(("", "v1", "PodExecOptions")), STREAM_VERBS),
            agent_subresource("log", None, &["get"]),
            agent_subresource("portforward", Some(("", "v1", "PodPortForwardOptions")), STREAM_VERBS),
            agent_subresource("proxy", Some(("", "v1", "PodProxyOptions")), PROXY_VERBS),
        ],
        generation_fields: Some(&["spec"]),
        deletes_gracefully: true,
        selectable_fields: &[
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
        admission_plugins: &[
            AdmissionPlugin::LimitRanger,
            AdmissionPlugin::ServiceAccount,
            AdmissionPlugin::PodSecurity(PodSecuritySubject::Pod),
            AdmissionPlugin::Priority,
            AdmissionPlugin::TolerationSeconds,
            AdmissionPlugin::RuntimeClass,
            AdmissionPlugin::AppArmor,
        ],
        quota_evaluator: QuotaEvaluator::Pod,
        columns: table_printer::POD_COLUMNS,
        row_condition: table_printer::completed_pod_condition,
        apply_defaults: defaulting::set_pod_defaults,
        validate: validation::validate_pod,
        warnings: warnings::pod_warnings,
        ..DEFAULT_KIND
    },
    &Kind {
        kind: "PodTemplate",
        returns_deleted_object: true,
        plural: "podtemplates",
        generation_fields: Some(&["template"]),
        admission_plugins: &[AdmissionPlugin::PodSecurity(PodSecuritySubject::Template("/template"))],
        columns: table_printer::POD_TEMPLATE_COLUMNS,
        apply_defaults: defaulting::set_pod_template_defaults,
        validate: validation::validate_pod_template,
        warnings: warnings::pod_template_warnings,
        ..DEFAULT_KIND
    },
    &Kind {
        kind: "ResourceQuota",
        returns_deleted_object: true,
        plural: "resourcequotas",
        short_names: &["quota"],
        status: StatusPolicy::SubresourceOnly("{}"),
        quota_evaluator: QuotaEvaluator::ObjectCountAndPlural,
        columns: table_printer::RESOURCE_QUOTA_COLUMNS,
        apply_defaults: defaulting::normalize_resource_quota,
        validate: validation::validate_resource_quota,
        ..DEFAULT_KIND
    },
    &Kind {
        kind: "Secret",
        plural: "secrets",
        selectable_fields: &["type"],
        quota_evaluator: QuotaEvaluator::ObjectCountAndPlural,
        columns: table_printer::SECRET_COLUMNS,
        apply_defaults: defaulting::set_secret_defaults,
        validate: validation::validate_secret,
        warnings: warnings::secret_warnings,
        ..DEFAULT_KIND
    },
    &Kind {
        kind: "ServiceAccount",
        returns_deleted_object: true,
        plural: "serviceaccounts",
        short_names: &["sa"],
        subresources: &[create_only_subresource(
            "token",
            Subresource::Token,
            (API_GROUP_AUTHENTICATION, "v1", "TokenRequest"),
            CreateAction::ServiceAccountToken,
        )],
        columns: table_printer::NAME_AND_AGE_COLUMNS,
        apply_defaults: defaulting::normalize_service_account,
        ..DEFAULT_KIND
    },
    &Kind {
        kind: "Service",
        returns_deleted_object: true,
        allows_create_on_update: true,
        plural: "services",
        short_names: &["svc"],
        categories: &["all"],
        status: StatusPolicy::SubresourceOnly(r#"{"loadBalancer":{}}"#),
        subresources: &[agent_subresource("proxy", Some(("", "v1", "ServiceProxyOptions")), PROXY_VERBS)],
        selectable_fields: &["spec.clusterIP", "spec.type"],
        admission_plugins: &[AdmissionPlugin::ServiceAddress, AdmissionPlugin::ExternalIps],
        quota_evaluator: QuotaEvaluator::Service,
        columns: table_printer::SERVICE_COLUMNS,
        name_rule: names::dns_label_name_errors,
        apply_defaults: defaulting::set_service_defaults,
        validate: validation::validate_service,
        warnings: warnings::service_warnings,
        ..DEFAULT_KIND
    },
    &Kind {
        group: "apps",
        kind: "ControllerRevision",
        plural: "controllerrevisions",
        columns: table_printer::CONTROLLER_REVISION_COLUMNS,
        validate: validation::validate_controller_revision,
        ..DEFAULT_KIND
    },
    &APPS_DAEMON_SETS,
    &Kind {
        group: "events.k8s.io",
        selectable_fields: conversion::EVENTS_K8S_IO.served_fields,
        stored_version: Some(StoredVersion { kind: &CORE_EVENTS, conversion: &conversion::EVENTS_K8S_IO }),
        ..EVENT_KIND
    },
    &Kind {
        group: API_GROUP_CERTIFICATES,
        kind: "CertificateSigningRequest",
        plural: "certificatesigningrequests",
        short_names: &["csr"],
        namespaced: false,
        status: StatusPolicy::SubresourceOnly("{}"),
        subresources: &[field_update_subresource(
            "approval",
            Subresource::Approval,
            READ_WRITE_VERBS,
            &[&["metadata"], &["status", "conditions"]],
            &[&["spec"], &["status", "certificate"]],
        )],
        // The signed request must be the approved one: its spec is immutable.
        update_reset_fields: &[&["spec"]],
        selectable_fields: &["spec.signerName"],
        admission_plugins: &[AdmissionPlugin::CertificateRequester],
        columns: table_printer::CERTIFICATE_SIGNING_REQUEST_COLUMNS,
        name_rule: names::path_segment_name_errors,
        validate: validation::validate_signing_request,
        ..DEFAULT_KIND
    },
    &Kind {
        group: API_GROUP_AUTHENTICATION,
        kind: "SelfSubjectReview",
        plural: "selfsubjectreviews",
        create_action: Some(CreateAction::SelfSubjectReview),
        ..REVIEW_KIND_DEFAULTS
    },
    &Kind {
        group: API_GROUP_AUTHENTICATION,
        kind: "TokenReview",
        plural: "tokenreviews",
        create_action: Some(CreateAction::TokenReview),
        ..REVIEW_KIND_DEFAULTS
    },
    &Kind {
        kind: "LocalSubjectAccessReview",
        plural: "localsubjectaccessreviews",
        namespaced: true,
        create_action: Some(CreateAction::SubjectAccessReview),
        ..REVIEW_KIND_DEFAULTS
    },
    &Kind {
        kind: "SelfSubjectAccessReview",
        plural: "selfsubjectaccessreviews",
        create_action: Some(CreateAction::SelfSubjectAccessReview),
        ..REVIEW_KIND_DEFAULTS
    },
    &Kind {
        kind: "SelfSubjectRulesReview",
        plural: "selfsubjectrulesreviews",
        create_action: Some(CreateAction::SelfSubjectRulesReview),
        ..REVIEW_KIND_DEFAULTS
    },
    &Kind {
        kind: "SubjectAccessReview",
        plural: "subjectaccessreviews",
        create_action: Some(CreateAction::SubjectAccessReview),
        ..REVIEW_KIND_DEFAULTS
    },
    &Kind {
        group: "policy",
        kind: "PodDisruptionBudget",
        requires_resource_version: true,
        plural: "poddisruptionbudgets",
        short_names: &["pdb"],
        status: StatusPolicy::SubresourceOnly(
            r#"{"currentHealthy":0,"desiredHealthy":0,"disruptionsAllowed":0,"expectedPods":0}"#,
        ),
        generation_fields: Some(&["spec"]),
        columns: table_printer::POD_DISRUPTION_BUDGET_COLUMNS,
        name_rule: names::path_segment_name_errors,
        validates_metadata_last: true,
        validate: validation::validate_disruption_budget,
        ..DEFAULT_KIND
    },
    &Kind {
        kind: "ClusterRoleBinding",
        allows_create_on_update: true,
        plural: "clusterrolebindings",
        namespaced: false,
        columns: table_printer::CLUSTER_ROLE_BINDING_COLUMNS,
        apply_defaults: defaulting::set_role_binding_defaults,
        validate: validation::validate_cluster_role_binding,
        ..RBAC_KIND_DEFAULTS
    },
    &Kind {
        kind: "ClusterRole",
        allows_create_on_update: true,
        plural: "clusterroles",
        namespaced: false,
        apply_defaults: defaulting::normalize_role,
        validate: validation::validate_cluster_role,
        ..RBAC_KIND_DEFAULTS
    },
    &Kind {
        kind: "RoleBinding",
        allows_create_on_update: true,
        plural: "rolebindings",
        columns: table_printer::ROLE_BINDING_COLUMNS,
        apply_defaults: defaulting::set_role_binding_defaults,
        validate: validation::validate_role_binding,
        ..RBAC_KIND_DEFAULTS
    },
    &Kind {
        kind: "Role",
        allows_create_on_update: true,
        plural: "roles",
        apply_defaults: defaulting::normalize_role,
        validate: validation::validate_role,
        ..RBAC_KIND_DEFAULTS
    },
    &Kind {
        group: "scheduling.k8s.io",
        kind: "PriorityClass",
        plural: "priorityclasses",
        short_names: &["pc"],
        namespaced: false,
        generation_fields: Some(&[]),
        admission_plugins: &[AdmissionPlugin::Priority],
        columns: table_printer::PRIORITY_CLASS_COLUMNS,
        apply_defaults: defaulting::set_priority_class_defaults,
        validate: validation::validate_priority_class,
        ..DEFAULT_KIND
    },
    &Kind {
        group: "coordination.k8s.io",
        kind: "Lease",
        allows_create_on_update: true,
        requires_resource_version: true,
        plural: "leases",
        columns: table_printer::LEASE_COLUMNS,
        apply_defaults: defaulting::normalize_lease,
        validates_metadata_last: true,
        validate: validation::validate_lease,
        ..DEFAULT_KIND
    },
    &Kind {
        group: "node.k8s.io",
        kind: "RuntimeClass",
        allows_create_on_update: true,
        requires_resource_version: true,
        plural: "runtimeclasses",
        namespaced: false,
        columns: table_printer::RUNTIME_CLASS_COLUMNS,
        validate: validation::validate_runtime_class,
        warnings: warnings::runtime_class_warnings,
        ..DEFAULT_KIND
    },
    &Kind {
        group: "discovery.k8s.io",
        kind: "EndpointSlice",
        plural: "endpointslices",
        generation_fields: Some(&["addressType", "endpoints", "ports"]),
        columns: table_printer::ENDPOINT_SLICE_COLUMNS,
        apply_defaults: defaulting::set_endpoint_slice_defaults,
        validate: validation::validate_endpoint_slice,
        warnings: warnings::endpoint_slice_warnings,
        ..DEFAULT_KIND
    },
    &Kind {
        apply_defaults: defaulting::set_cluster_rollout_policy_defaults,
        validate: validation::validate_cluster_rollout_policy,
        columns: table_printer::ROLLOUT_POLICY_COLUMNS,
        ..muster_kind(CLUSTER_ROLLOUT_POLICY, &[CLUSTER_ROLLOUT_POLICY.short_name])
    },
    &Kind {
        apply_defaults: defaulting::set_daemon_rollout_defaults,
        validate: validation::validate_daemon_rollout,
        columns: table_printer::DAEMON_ROLLOUT_COLUMNS,
        ..muster_kind(DAEMON_ROLLOUT, &[DAEMON_ROLLOUT.short_name])
    },
    &Kind {
        apply_defaults: defaulting::set_rollout_policy_defaults,
        validate: validation::validate_rollout_policy,
        columns: table_printer::ROLLOUT_POLICY_COLUMNS,
        ..muster_kind(ROLLOUT_POLICY, &[ROLLOUT_POLICY.short_name])
    },
    // Last, and without short names, so that `ds` means `apps/v1`.
    &Kind {
        group: "extensions",
        version: "v1beta1",
        short_names: &[],
        categories: &[],
        stored_version: Some(StoredVersion {
            kind: &APPS_DAEMON_SETS,
            conversion: &conversion::EXTENSIONS_DAEMON_SETS,
        }),
        ..DAEMON_SET_KIND
    },
];

/// The built-in kinds that clients can only read. Upstream serves them from API servers other than the kube-apiserver.
static READ_ONLY_KINDS: &[&Kind] = &[
    // Always an empty list. kubectl reads it before it accepts a manifest of a kind that is not in the OpenAPI
    // document, and stops if it fails.
    &Kind {
        group: "apiextensions.k8s.io",
        kind: "CustomResourceDefinition",
        plural: "customresourcedefinitions",
        short_names: &["crd", "crds"],
        categories: &["api-extensions"],
        namespaced: false,
        verbs: &["get", "list", "watch"],
        read_only_error: Some(
            "custom resources are not served: customresourcedefinitions.apiextensions.k8s.io can be listed, and not written",
        ),
        ..DEFAULT_KIND
    },
    &Kind {
        group: "metrics.k8s.io",
        version: "v1beta1",
        kind: "NodeMetrics",
        plural: "nodes",
        namespaced: false,
        verbs: &["get", "list"],
        metered_resource: Some(MeteredResource::Nodes),
        columns: table_printer::RESOURCE_METRICS_COLUMNS,
        ..DEFAULT_KIND
    },
    &Kind {
        group: "metrics.k8s.io",
        version: "v1beta1",
        kind: "PodMetrics",
        plural: "pods",
        verbs: &["get", "list"],
        metered_resource: Some(MeteredResource::Pods),
        columns: table_printer::RESOURCE_METRICS_COLUMNS,
        ..DEFAULT_KIND
    },
];

/// Returns all built-in kinds, in the order in which discovery lists them. If several groups serve the same resource,
/// clients prefer the first group.
pub(super) fn builtin_kinds() -> impl Iterator<Item = &'static Kind> {
    WRITABLE_KINDS.iter().chain(READ_ONLY_KINDS).copied()
}
