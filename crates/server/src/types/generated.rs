// Made by `cargo types` from the sources of k8s-openapi and k8s-pb: edit the generator, not this.

use super::{Field, Keys, MapKind, Patch, Presence, Shape, Type};

pub(super) static KINDS: &[(&str, &str, &str, &Type)] = &[
    ("", "v1", "Binding", &CORE_V1_BINDING),
    ("", "v1", "ConfigMap", &CORE_V1_CONFIGMAP),
    ("", "v1", "Endpoints", &CORE_V1_ENDPOINTS),
    ("", "v1", "Event", &CORE_V1_EVENT),
    ("", "v1", "LimitRange", &CORE_V1_LIMITRANGE),
    ("", "v1", "Namespace", &CORE_V1_NAMESPACE),
    ("", "v1", "Node", &CORE_V1_NODE),
    ("", "v1", "Pod", &CORE_V1_POD),
    ("", "v1", "PodTemplate", &CORE_V1_PODTEMPLATE),
    ("", "v1", "ResourceQuota", &CORE_V1_RESOURCEQUOTA),
    ("", "v1", "Secret", &CORE_V1_SECRET),
    ("", "v1", "Service", &CORE_V1_SERVICE),
    ("", "v1", "ServiceAccount", &CORE_V1_SERVICEACCOUNT),
    ("apps", "v1", "ControllerRevision", &APPS_V1_CONTROLLERREVISION),
    ("apps", "v1", "DaemonSet", &APPS_V1_DAEMONSET),
    ("authentication.k8s.io", "v1", "SelfSubjectReview", &AUTHENTICATION_V1_SELFSUBJECTREVIEW),
    ("authentication.k8s.io", "v1", "TokenRequest", &AUTHENTICATION_V1_TOKENREQUEST),
    ("authentication.k8s.io", "v1", "TokenReview", &AUTHENTICATION_V1_TOKENREVIEW),
    ("authorization.k8s.io", "v1", "LocalSubjectAccessReview", &AUTHORIZATION_V1_LOCALSUBJECTACCESSREVIEW),
    ("authorization.k8s.io", "v1", "SelfSubjectAccessReview", &AUTHORIZATION_V1_SELFSUBJECTACCESSREVIEW),
    ("authorization.k8s.io", "v1", "SelfSubjectRulesReview", &AUTHORIZATION_V1_SELFSUBJECTRULESREVIEW),
    ("authorization.k8s.io", "v1", "SubjectAccessReview", &AUTHORIZATION_V1_SUBJECTACCESSREVIEW),
    ("certificates.k8s.io", "v1", "CertificateSigningRequest", &CERTIFICATES_V1_CERTIFICATESIGNINGREQUEST),
    ("coordination.k8s.io", "v1", "Lease", &COORDINATION_V1_LEASE),
    ("discovery.k8s.io", "v1", "EndpointSlice", &DISCOVERY_V1_ENDPOINTSLICE),
    ("events.k8s.io", "v1", "Event", &EVENTS_V1_EVENT),
    ("extensions", "v1beta1", "DaemonSet", &EXTENSIONS_V1BETA1_DAEMONSET),
    ("meta.k8s.io", "v1", "DeleteOptions", &META_V1_DELETEOPTIONS),
    ("meta.k8s.io", "v1", "ListMeta", &META_V1_LISTMETA),
    ("meta.k8s.io", "v1", "Status", &META_V1_STATUS),
    ("node.k8s.io", "v1", "RuntimeClass", &NODE_V1_RUNTIMECLASS),
    ("policy", "v1", "Eviction", &POLICY_V1_EVICTION),
    ("policy", "v1", "PodDisruptionBudget", &POLICY_V1_PODDISRUPTIONBUDGET),
    ("rbac.authorization.k8s.io", "v1", "ClusterRole", &RBAC_V1_CLUSTERROLE),
    ("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", &RBAC_V1_CLUSTERROLEBINDING),
    ("rbac.authorization.k8s.io", "v1", "Role", &RBAC_V1_ROLE),
    ("rbac.authorization.k8s.io", "v1", "RoleBinding", &RBAC_V1_ROLEBINDING),
    ("scheduling.k8s.io", "v1", "PriorityClass", &SCHEDULING_V1_PRIORITYCLASS),
];

static APPS_V1_CONTROLLERREVISION: Type = Type {
    name: "io.k8s.api.apps.v1.ControllerRevision",
    description: "ControllerRevision implements an immutable snapshot of state data. Clients are responsible for serializing and deserializing the objects that contain their internal state. Once a ControllerRevision has been successfully created, it can not be updated. The API Server will fail validation of all requests that attempt to mutate the Data field. ControllerRevisions may, however, be deleted. Note that, due to its use by both the DaemonSet and StatefulSet controllers for update and rollback, this object is beta. However, it may be subject to name and representation changes in future releases, and clients should not depend on its stability. It is primarily for internal use by controllers.",
    atomic: false,
    fields: &[
        Field { name: "apiVersion", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[], embedded: None, go_type: None, description: "APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized schemas to the latest internal value, and may reject unrecognized values. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources" },
        Field { name: "data", shape: Shape::Any, required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "Data is the serialized representation of the state." },
        Field { name: "kind", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[], embedded: None, go_type: None, description: "Kind is a string value representing the REST resource this object represents. Servers may infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds" },
        Field { name: "metadata", shape: Shape::Object(&META_V1_OBJECTMETA), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata" },
        Field { name: "revision", shape: Shape::Int64, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "Revision indicates the revision of the state represented by Data." },
    ],
};

static APPS_V1_DAEMONSET: Type = Type {
    name: "io.k8s.api.apps.v1.DaemonSet",
    description: "DaemonSet represents the configuration of a daemon set.",
    atomic: false,
    fields: &[
        Field { name: "apiVersion", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[], embedded: None, go_type: None, description: "APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized schemas to the latest internal value, and may reject unrecognized values. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources" },
        Field { name: "kind", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[], embedded: None, go_type: None, description: "Kind is a string value representing the REST resource this object represents. Servers may infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds" },
        Field { name: "metadata", shape: Shape::Object(&META_V1_OBJECTMETA), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata" },
        Field { name: "spec", shape: Shape::Object(&APPS_V1_DAEMONSETSPEC), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "The desired behavior of this daemon set. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#spec-and-status" },
        Field { name: "status", shape: Shape::Object(&APPS_V1_DAEMONSETSTATUS), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "The current status of this daemon set. This data may be out of date by some window of time. Populated by the system. Read-only. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#spec-and-status" },
    ],
};

static APPS_V1_DAEMONSETCONDITION: Type = Type {
    name: "io.k8s.api.apps.v1.DaemonSetCondition",
    description: "DaemonSetCondition describes the state of a DaemonSet at a certain point.",
    atomic: false,
    fields: &[
        Field { name: "lastTransitionTime", shape: Shape::Time, required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "Last time the condition transitioned from one status to another." },
        Field { name: "message", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[5], embedded: None, go_type: None, description: "A human readable message indicating details about the transition." },
        Field { name: "reason", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "The reason for the condition's last transition." },
        Field { name: "status", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: Some("v1.ConditionStatus"), description: "Status of the condition, one of True, False, Unknown." },
        Field { name: "type", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: Some("v1.DaemonSetConditionType"), description: "Type of DaemonSet condition." },
    ],
};

static APPS_V1_DAEMONSETSPEC: Type = Type {
    name: "io.k8s.api.apps.v1.DaemonSetSpec",
    description: "DaemonSetSpec is the specification of a daemon set.",
    atomic: false,
    fields: &[
        Field { name: "minReadySeconds", shape: Shape::Int32, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "The minimum number of seconds for which a newly created DaemonSet pod should be ready without any of its container crashing, for it to be considered available. Defaults to 0 (pod will be considered available as soon as it is ready)." },
        Field { name: "revisionHistoryLimit", shape: Shape::Int32, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[6], embedded: None, go_type: None, description: "The number of old history to retain to allow rollback. This is a pointer to distinguish between explicit zero and not specified. Defaults to 10." },
        Field { name: "selector", shape: Shape::Object(&META_V1_LABELSELECTOR), required: true, presence: Presence::OrNull, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "A label query over pods that are managed by the daemon set. Must match in order to be controlled. It must match the pod template's labels. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors" },
        Field { name: "template", shape: Shape::Object(&CORE_V1_PODTEMPLATESPEC), required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "An object that describes the pod that will be created. The DaemonSet will create exactly one copy of this pod on every node that matches the template's node selector (or on every node if no node selector is specified). The only allowed template.spec.restartPolicy value is \"Always\". More info: https://kubernetes.io/docs/concepts/workloads/controllers/replicationcontroller#pod-template" },
        Field { name: "updateStrategy", shape: Shape::Object(&APPS_V1_DAEMONSETUPDATESTRATEGY), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "An update strategy to replace existing DaemonSet pods with new pods." },
    ],
};

static APPS_V1_DAEMONSETSTATUS: Type = Type {
    name: "io.k8s.api.apps.v1.DaemonSetStatus",
    description: "DaemonSetStatus represents the current status of a daemon set.",
    atomic: false,
    fields: &[
        Field { name: "collisionCount", shape: Shape::Int32, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[9], embedded: None, go_type: None, description: "Count of hash collisions for the DaemonSet. The DaemonSet controller uses this field as a collision avoidance mechanism when it needs to create the name for the newest ControllerRevision." },
        Field { name: "conditions", shape: Shape::List(&Shape::Object(&APPS_V1_DAEMONSETCONDITION), Keys::Fields(&["type"])), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Merge(Some("type")), proto: &[10], embedded: None, go_type: None, description: "Represents the latest available observations of a DaemonSet's current state." },
        Field { name: "currentNumberScheduled", shape: Shape::Int32, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "The number of nodes that are running at least 1 daemon pod and are supposed to run the daemon pod. More info: https://kubernetes.io/docs/concepts/workloads/controllers/daemonset/" },
        Field { name: "desiredNumberScheduled", shape: Shape::Int32, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "The total number of nodes that should be running the daemon pod (including nodes correctly running the daemon pod). More info: https://kubernetes.io/docs/concepts/workloads/controllers/daemonset/" },
        Field { name: "numberAvailable", shape: Shape::Int32, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[7], embedded: None, go_type: None, description: "The number of nodes that should be running the daemon pod and have one or more of the daemon pod running and available (ready for at least spec.minReadySeconds)" },
        Field { name: "numberMisscheduled", shape: Shape::Int32, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "The number of nodes that are running the daemon pod, but are not supposed to run the daemon pod. More info: https://kubernetes.io/docs/concepts/workloads/controllers/daemonset/" },
        Field { name: "numberReady", shape: Shape::Int32, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "numberReady is the number of nodes that should be running the daemon pod and have one or more of the daemon pod running with a Ready Condition." },
        Field { name: "numberUnavailable", shape: Shape::Int32, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[8], embedded: None, go_type: None, description: "The number of nodes that should be running the daemon pod and have none of the daemon pod running and available (ready for at least spec.minReadySeconds)" },
        Field { name: "observedGeneration", shape: Shape::Int64, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[5], embedded: None, go_type: None, description: "The most recent generation observed by the daemon set controller." },
        Field { name: "updatedNumberScheduled", shape: Shape::Int32, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[6], embedded: None, go_type: None, description: "The total number of nodes that are running updated daemon pod" },
    ],
};

static APPS_V1_DAEMONSETUPDATESTRATEGY: Type = Type {
    name: "io.k8s.api.apps.v1.DaemonSetUpdateStrategy",
    description: "DaemonSetUpdateStrategy is a struct used to control the update strategy for a DaemonSet.",
    atomic: false,
    fields: &[
        Field { name: "rollingUpdate", shape: Shape::Object(&APPS_V1_ROLLINGUPDATEDAEMONSET), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "Rolling update config params. Present only if type = \"RollingUpdate\"." },
        Field { name: "type", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: Some("v1.DaemonSetUpdateStrategyType"), description: "Type of daemon set update. Can be \"RollingUpdate\" or \"OnDelete\". Default is RollingUpdate." },
    ],
};

static APPS_V1_ROLLINGUPDATEDAEMONSET: Type = Type {
    name: "io.k8s.api.apps.v1.RollingUpdateDaemonSet",
    description: "Spec to control the desired behavior of daemon set rolling update.",
    atomic: false,
    fields: &[
        Field { name: "maxSurge", shape: Shape::IntOrString, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "The maximum number of nodes with an existing available DaemonSet pod that can have an updated DaemonSet pod during during an update. Value can be an absolute number (ex: 5) or a percentage of desired pods (ex: 10%). This can not be 0 if MaxUnavailable is 0. Absolute number is calculated from percentage by rounding up to a minimum of 1. Default value is 0. Example: when this is set to 30%, at most 30% of the total number of nodes that should be running the daemon pod (i.e. status.desiredNumberScheduled) can have their a new pod created before the old pod is marked as deleted. The update starts by launching new pods on 30% of nodes. Once an updated pod is available (Ready for at least minReadySeconds) the old DaemonSet pod on that node is marked deleted. If the old pod becomes unavailable for any reason (Ready transitions to false, is evicted, or is drained) an updated pod is immediately created on that node without considering surge limits. Allowing surge implies the possibility that the resources consumed by the daemonset on any given node can double if the readiness check fails, and so resource intensive daemonsets should take into account that they may cause evictions during disruption." },
        Field { name: "maxUnavailable", shape: Shape::IntOrString, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "The maximum number of DaemonSet pods that can be unavailable during the update. Value can be an absolute number (ex: 5) or a percentage of total number of DaemonSet pods at the start of the update (ex: 10%). Absolute number is calculated from percentage by rounding up. This cannot be 0 if MaxSurge is 0 Default value is 1. Example: when this is set to 30%, at most 30% of the total number of nodes that should be running the daemon pod (i.e. status.desiredNumberScheduled) can have their pods stopped for an update at any given time. The update starts by stopping at most 30% of those DaemonSet pods and then brings up new DaemonSet pods in their place. Once the new pods are available, it then proceeds onto other DaemonSet pods, thus ensuring that at least 70% of original number of DaemonSet pods are available at all times during the update." },
    ],
};

static AUTHENTICATION_V1_BOUNDOBJECTREFERENCE: Type = Type {
    name: "io.k8s.api.authentication.v1.BoundObjectReference",
    description: "BoundObjectReference is a reference to an object that a token is bound to.",
    atomic: false,
    fields: &[
        Field { name: "apiVersion", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "apiVersion is API version of the referent." },
        Field { name: "kind", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "kind of the referent. Valid kinds are 'Pod' and 'Secret'." },
        Field { name: "name", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "name of the referent." },
        Field { name: "uid", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: Some("types.UID"), description: "uid of the referent." },
    ],
};

static AUTHENTICATION_V1_SELFSUBJECTREVIEW: Type = Type {
    name: "io.k8s.api.authentication.v1.SelfSubjectReview",
    description: "SelfSubjectReview contains the user information that the kube-apiserver has about the user making this request. When using impersonation, users will receive the user info of the user being impersonated.  If impersonation or request header authentication is used, any extra keys will have their case ignored and returned as lowercase.",
    atomic: false,
    fields: &[
        Field { name: "apiVersion", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[], embedded: None, go_type: None, description: "APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized schemas to the latest internal value, and may reject unrecognized values. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources" },
        Field { name: "kind", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[], embedded: None, go_type: None, description: "Kind is a string value representing the REST resource this object represents. Servers may infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds" },
        Field { name: "metadata", shape: Shape::Object(&META_V1_OBJECTMETA), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "metadata is standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata" },
        Field { name: "status", shape: Shape::Object(&AUTHENTICATION_V1_SELFSUBJECTREVIEWSTATUS), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "status is filled in by the server with the user attributes." },
    ],
};

static AUTHENTICATION_V1_SELFSUBJECTREVIEWSTATUS: Type = Type {
    name: "io.k8s.api.authentication.v1.SelfSubjectReviewStatus",
    description: "SelfSubjectReviewStatus is filled by the kube-apiserver and sent back to a user.",
    atomic: false,
    fields: &[
        Field { name: "userInfo", shape: Shape::Object(&AUTHENTICATION_V1_USERINFO), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "userInfo is a set of attributes belonging to the user making this request." },
    ],
};

static AUTHENTICATION_V1_TOKENREQUEST: Type = Type {
    name: "io.k8s.api.authentication.v1.TokenRequest",
    description: "TokenRequest requests a token for a given service account.",
    atomic: false,
    fields: &[
        Field { name: "apiVersion", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[], embedded: None, go_type: None, description: "APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized schemas to the latest internal value, and may reject unrecognized values. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources" },
        Field { name: "kind", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[], embedded: None, go_type: None, description: "Kind is a string value representing the REST resource this object represents. Servers may infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds" },
        Field { name: "metadata", shape: Shape::Object(&META_V1_OBJECTMETA), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "metadata is the standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata" },
        Field { name: "spec", shape: Shape::Object(&AUTHENTICATION_V1_TOKENREQUESTSPEC), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "spec holds information about the request being evaluated" },
        Field { name: "status", shape: Shape::Object(&AUTHENTICATION_V1_TOKENREQUESTSTATUS), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "status is filled in by the server and indicates whether the token can be authenticated." },
    ],
};

static AUTHENTICATION_V1_TOKENREQUESTSPEC: Type = Type {
    name: "io.k8s.api.authentication.v1.TokenRequestSpec",
    description: "TokenRequestSpec contains client provided parameters of a token request.",
    atomic: false,
    fields: &[
        Field { name: "audiences", shape: Shape::List(&Shape::String, Keys::Atomic), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "audiences are the intendend audiences of the token. A recipient of a token must identify themself with an identifier in the list of audiences of the token, and otherwise should reject the token. A token issued for multiple audiences may be used to authenticate against any of the audiences listed but implies a high degree of trust between the target audiences." },
        Field { name: "boundObjectRef", shape: Shape::Object(&AUTHENTICATION_V1_BOUNDOBJECTREFERENCE), required: false, presence: Presence::OrNull, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "boundObjectRef is a reference to an object that the token will be bound to. The token will only be valid for as long as the bound object exists. NOTE: The API server's TokenReview endpoint will validate the BoundObjectRef, but other audiences may not. Keep ExpirationSeconds small if you want prompt revocation." },
        Field { name: "expirationSeconds", shape: Shape::Int64, required: false, presence: Presence::OrNull, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "expirationSeconds is the requested duration of validity of the request. The token issuer may return a token with a different validity duration so a client needs to check the 'expiration' field in a response." },
    ],
};

static AUTHENTICATION_V1_TOKENREQUESTSTATUS: Type = Type {
    name: "io.k8s.api.authentication.v1.TokenRequestStatus",
    description: "TokenRequestStatus is the result of a token request.",
    atomic: false,
    fields: &[
        Field { name: "expirationTimestamp", shape: Shape::Time, required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "expirationTimestamp is the time of expiration of the returned token." },
        Field { name: "token", shape: Shape::String, required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "token is the opaque bearer token." },
    ],
};

static AUTHENTICATION_V1_TOKENREVIEW: Type = Type {
    name: "io.k8s.api.authentication.v1.TokenReview",
    description: "TokenReview attempts to authenticate a token to a known user. Note: TokenReview requests may be cached by the webhook token authenticator plugin in the kube-apiserver.",
    atomic: false,
    fields: &[
        Field { name: "apiVersion", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[], embedded: None, go_type: None, description: "APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized schemas to the latest internal value, and may reject unrecognized values. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources" },
        Field { name: "kind", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[], embedded: None, go_type: None, description: "Kind is a string value representing the REST resource this object represents. Servers may infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds" },
        Field { name: "metadata", shape: Shape::Object(&META_V1_OBJECTMETA), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "metadata is the standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata" },
        Field { name: "spec", shape: Shape::Object(&AUTHENTICATION_V1_TOKENREVIEWSPEC), required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "spec holds information about the request being evaluated" },
        Field { name: "status", shape: Shape::Object(&AUTHENTICATION_V1_TOKENREVIEWSTATUS), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "status is filled in by the server and indicates whether the request can be authenticated." },
    ],
};

static AUTHENTICATION_V1_TOKENREVIEWSPEC: Type = Type {
    name: "io.k8s.api.authentication.v1.TokenReviewSpec",
    description: "TokenReviewSpec is a description of the token authentication request.",
    atomic: false,
    fields: &[
        Field { name: "audiences", shape: Shape::List(&Shape::String, Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "audiences is a list of the identifiers that the resource server presented with the token identifies as. Audience-aware token authenticators will verify that the token was intended for at least one of the audiences in this list. If no audiences are provided, the audience will default to the audience of the Kubernetes apiserver." },
        Field { name: "token", shape: Shape::String, required: true, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "token is the opaque bearer token." },
    ],
};

static AUTHENTICATION_V1_TOKENREVIEWSTATUS: Type = Type {
    name: "io.k8s.api.authentication.v1.TokenReviewStatus",
    description: "TokenReviewStatus is the result of the token authentication request.",
    atomic: false,
    fields: &[
        Field { name: "audiences", shape: Shape::List(&Shape::String, Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "audiences are audience identifiers chosen by the authenticator that are compatible with both the TokenReview and token. An identifier is any identifier in the intersection of the TokenReviewSpec audiences and the token's audiences. A client of the TokenReview API that sets the spec.audiences field should validate that a compatible audience identifier is returned in the status.audiences field to ensure that the TokenReview server is audience aware. If a TokenReview returns an empty status.audience field where status.authenticated is \"true\", the token is valid against the audience of the Kubernetes API server." },
        Field { name: "authenticated", shape: Shape::Bool, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "authenticated indicates that the token was associated with a known user." },
        Field { name: "error", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "error indicates that the token couldn't be checked" },
        Field { name: "user", shape: Shape::Object(&AUTHENTICATION_V1_USERINFO), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "user is the UserInfo associated with the provided token." },
    ],
};

static AUTHENTICATION_V1_USERINFO: Type = Type {
    name: "io.k8s.api.authentication.v1.UserInfo",
    description: "UserInfo holds the information about the user needed to implement the user.Info interface.",
    atomic: false,
    fields: &[
        Field { name: "extra", shape: Shape::Map(&Shape::List(&Shape::String, Keys::Atomic), MapKind::Granular), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: Some("map[string]v1.ExtraValue"), description: "extra is any additional information provided by the authenticator." },
        Field { name: "groups", shape: Shape::List(&Shape::String, Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "groups is the names of groups this user is a part of." },
        Field { name: "uid", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "uid is a unique value that identifies this user across time. If this user is deleted and another user by the same name is added, they will have different UIDs." },
        Field { name: "username", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "username is the name that uniquely identifies this user among all active users." },
    ],
};

static AUTHORIZATION_V1_FIELDSELECTORATTRIBUTES: Type = Type {
    name: "io.k8s.api.authorization.v1.FieldSelectorAttributes",
    description: "FieldSelectorAttributes indicates a field limited access. Webhook authors are encouraged to * ensure rawSelector and requirements are not both set * consider the requirements field if set * not try to parse or consider the rawSelector field if set. This is to avoid another CVE-2022-2880 (i.e. getting different systems to agree on how exactly to parse a query is not something we want), see https://www.oxeye.io/resources/golang-parameter-smuggling-attack for more details. For the *SubjectAccessReview endpoints of the kube-apiserver: * If rawSelector is empty and requirements are empty, the request is not limited. * If rawSelector is present and requirements are empty, the rawSelector will be parsed and limited if the parsing succeeds. * If rawSelector is empty and requirements are present, the requirements should be honored * If rawSelector is present and requirements are present, the request is invalid.",
    atomic: false,
    fields: &[
        Field { name: "rawSelector", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "rawSelector is the serialization of a field selector that would be included in a query parameter. Webhook implementations are encouraged to ignore rawSelector. The kube-apiserver's *SubjectAccessReview will parse the rawSelector as long as the requirements are not present." },
        Field { name: "requirements", shape: Shape::List(&Shape::Object(&META_V1_FIELDSELECTORREQUIREMENT), Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "requirements is the parsed interpretation of a field selector. All requirements must be met for a resource instance to match the selector. Webhook implementations should handle requirements, but how to handle them is up to the webhook. Since requirements can only limit the request, it is safe to authorize as unlimited request if the requirements are not understood." },
    ],
};

static AUTHORIZATION_V1_LABELSELECTORATTRIBUTES: Type = Type {
    name: "io.k8s.api.authorization.v1.LabelSelectorAttributes",
    description: "LabelSelectorAttributes indicates a label limited access. Webhook authors are encouraged to * ensure rawSelector and requirements are not both set * consider the requirements field if set * not try to parse or consider the rawSelector field if set. This is to avoid another CVE-2022-2880 (i.e. getting different systems to agree on how exactly to parse a query is not something we want), see https://www.oxeye.io/resources/golang-parameter-smuggling-attack for more details. For the *SubjectAccessReview endpoints of the kube-apiserver: * If rawSelector is empty and requirements are empty, the request is not limited. * If rawSelector is present and requirements are empty, the rawSelector will be parsed and limited if the parsing succeeds. * If rawSelector is empty and requirements are present, the requirements should be honored * If rawSelector is present and requirements are present, the request is invalid.",
    atomic: false,
    fields: &[
        Field { name: "rawSelector", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "rawSelector is the serialization of a field selector that would be included in a query parameter. Webhook implementations are encouraged to ignore rawSelector. The kube-apiserver's *SubjectAccessReview will parse the rawSelector as long as the requirements are not present." },
        Field { name: "requirements", shape: Shape::List(&Shape::Object(&META_V1_LABELSELECTORREQUIREMENT), Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "requirements is the parsed interpretation of a label selector. All requirements must be met for a resource instance to match the selector. Webhook implementations should handle requirements, but how to handle them is up to the webhook. Since requirements can only limit the request, it is safe to authorize as unlimited request if the requirements are not understood." },
    ],
};

static AUTHORIZATION_V1_LOCALSUBJECTACCESSREVIEW: Type = Type {
    name: "io.k8s.api.authorization.v1.LocalSubjectAccessReview",
    description: "LocalSubjectAccessReview checks whether or not a user or group can perform an action in a given namespace. Having a namespace scoped resource makes it much easier to grant namespace scoped policy that includes permissions checking.",
    atomic: false,
    fields: &[
        Field { name: "apiVersion", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[], embedded: None, go_type: None, description: "APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized schemas to the latest internal value, and may reject unrecognized values. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources" },
        Field { name: "kind", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[], embedded: None, go_type: None, description: "Kind is a string value representing the REST resource this object represents. Servers may infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds" },
        Field { name: "metadata", shape: Shape::Object(&META_V1_OBJECTMETA), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "metadata is the standard list metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata" },
        Field { name: "spec", shape: Shape::Object(&AUTHORIZATION_V1_SUBJECTACCESSREVIEWSPEC), required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "spec holds information about the request being evaluated.  spec.namespace must be equal to the namespace you made the request against.  If empty, it is defaulted." },
        Field { name: "status", shape: Shape::Object(&AUTHORIZATION_V1_SUBJECTACCESSREVIEWSTATUS), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "status is filled in by the server and indicates whether the request is allowed or not" },
    ],
};

static AUTHORIZATION_V1_NONRESOURCEATTRIBUTES: Type = Type {
    name: "io.k8s.api.authorization.v1.NonResourceAttributes",
    description: "NonResourceAttributes includes the authorization attributes available for non-resource requests to the Authorizer interface",
    atomic: false,
    fields: &[
        Field { name: "path", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "path is the URL path of the request" },
        Field { name: "verb", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "verb is the standard HTTP verb" },
    ],
};

static AUTHORIZATION_V1_NONRESOURCERULE: Type = Type {
    name: "io.k8s.api.authorization.v1.NonResourceRule",
    description: "NonResourceRule holds information that describes a rule for the non-resource",
    atomic: false,
    fields: &[
        Field { name: "nonResourceURLs", shape: Shape::List(&Shape::String, Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "nonResourceURLs is a set of partial urls that a user should have access to.  *s are allowed, but only as the full, final step in the path.  \"*\" means all." },
        Field { name: "verbs", shape: Shape::List(&Shape::String, Keys::Atomic), required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "verbs is a list of kubernetes non-resource API verbs, like: get, post, put, delete, patch, head, options.  \"*\" means all." },
    ],
};

static AUTHORIZATION_V1_RESOURCEATTRIBUTES: Type = Type {
    name: "io.k8s.api.authorization.v1.ResourceAttributes",
    description: "ResourceAttributes includes the authorization attributes available for resource requests to the Authorizer interface",
    atomic: false,
    fields: &[
        Field { name: "fieldSelector", shape: Shape::Object(&AUTHORIZATION_V1_FIELDSELECTORATTRIBUTES), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[8], embedded: None, go_type: None, description: "fieldSelector describes the limitation on access based on field.  It can only limit access, not broaden it." },
        Field { name: "group", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "group is the API Group of the Resource.  \"*\" means all." },
        Field { name: "labelSelector", shape: Shape::Object(&AUTHORIZATION_V1_LABELSELECTORATTRIBUTES), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[9], embedded: None, go_type: None, description: "labelSelector describes the limitation on access based on labels.  It can only limit access, not broaden it." },
        Field { name: "name", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[7], embedded: None, go_type: None, description: "name is the name of the resource being requested for a \"get\" or deleted for a \"delete\". \"\" (empty) means all." },
        Field { name: "namespace", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "namespace is the namespace of the action being requested.  Currently, there is no distinction between no namespace and all namespaces \"\" (empty) is defaulted for LocalSubjectAccessReviews \"\" (empty) is empty for cluster-scoped resources \"\" (empty) means \"all\" for namespace scoped resources from a SubjectAccessReview or SelfSubjectAccessReview" },
        Field { name: "resource", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[5], embedded: None, go_type: None, description: "resource is one of the existing resource types.  \"*\" means all." },
        Field { name: "subresource", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[6], embedded: None, go_type: None, description: "subresource is one of the existing resource types.  \"\" means none." },
        Field { name: "verb", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "verb is a kubernetes resource API verb, like: get, list, watch, create, update, delete, proxy.  \"*\" means all." },
        Field { name: "version", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "version is the API Version of the Resource.  \"*\" means all." },
    ],
};

static AUTHORIZATION_V1_RESOURCERULE: Type = Type {
    name: "io.k8s.api.authorization.v1.ResourceRule",
    description: "ResourceRule is the list of actions the subject is allowed to perform on resources. The list ordering isn't significant, may contain duplicates, and possibly be incomplete.",
    atomic: false,
    fields: &[
        Field { name: "apiGroups", shape: Shape::List(&Shape::String, Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "apiGroups is the name of the APIGroup that contains the resources.  If multiple API groups are specified, any action requested against one of the enumerated resources in any API group will be allowed.  \"*\" means all." },
        Field { name: "resourceNames", shape: Shape::List(&Shape::String, Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "resourceNames is an optional white list of names that the rule applies to.  An empty set means that everything is allowed.  \"*\" means all." },
        Field { name: "resources", shape: Shape::List(&Shape::String, Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "resources is a list of resources this rule applies to.  \"*\" means all in the specified apiGroups.\n \"*/foo\" represents the subresource 'foo' for all resources in the specified apiGroups." },
        Field { name: "verbs", shape: Shape::List(&Shape::String, Keys::Atomic), required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "verbs is a list of kubernetes resource API verbs, like: get, list, watch, create, update, delete, proxy.  \"*\" means all." },
    ],
};

static AUTHORIZATION_V1_SELFSUBJECTACCESSREVIEW: Type = Type {
    name: "io.k8s.api.authorization.v1.SelfSubjectAccessReview",
    description: "SelfSubjectAccessReview checks whether or the current user can perform an action.  Not filling in a spec.namespace means \"in all namespaces\".  Self is a special case, because users should always be able to check whether they can perform an action",
    atomic: false,
    fields: &[
        Field { name: "apiVersion", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[], embedded: None, go_type: None, description: "APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized schemas to the latest internal value, and may reject unrecognized values. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources" },
        Field { name: "kind", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[], embedded: None, go_type: None, description: "Kind is a string value representing the REST resource this object represents. Servers may infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds" },
        Field { name: "metadata", shape: Shape::Object(&META_V1_OBJECTMETA), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "metadata is the standard list metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata" },
        Field { name: "spec", shape: Shape::Object(&AUTHORIZATION_V1_SELFSUBJECTACCESSREVIEWSPEC), required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "spec holds information about the request being evaluated.  user and groups must be empty" },
        Field { name: "status", shape: Shape::Object(&AUTHORIZATION_V1_SUBJECTACCESSREVIEWSTATUS), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "status is filled in by the server and indicates whether the request is allowed or not" },
    ],
};

static AUTHORIZATION_V1_SELFSUBJECTACCESSREVIEWSPEC: Type = Type {
    name: "io.k8s.api.authorization.v1.SelfSubjectAccessReviewSpec",
    description: "SelfSubjectAccessReviewSpec is a description of the access request.  Exactly one of resourceAttributes and nonResourceAttributes must be set",
    atomic: false,
    fields: &[
        Field { name: "nonResourceAttributes", shape: Shape::Object(&AUTHORIZATION_V1_NONRESOURCEATTRIBUTES), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "nonResourceAttributes describes information for a non-resource access request" },
        Field { name: "resourceAttributes", shape: Shape::Object(&AUTHORIZATION_V1_RESOURCEATTRIBUTES), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "resourceAttributes describes information for a resource access request" },
    ],
};

static AUTHORIZATION_V1_SELFSUBJECTRULESREVIEW: Type = Type {
    name: "io.k8s.api.authorization.v1.SelfSubjectRulesReview",
    description: "SelfSubjectRulesReview enumerates the set of actions the current user can perform within a namespace. The returned list of actions may be incomplete depending on the server's authorization mode, and any errors experienced during the evaluation. SelfSubjectRulesReview should be used by UIs to show/hide actions, or to quickly let an end user reason about their permissions. It should NOT Be used by external systems to drive authorization decisions as this raises confused deputy, cache lifetime/revocation, and correctness concerns. SubjectAccessReview, and LocalAccessReview are the correct way to defer authorization decisions to the API server.",
    atomic: false,
    fields: &[
        Field { name: "apiVersion", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[], embedded: None, go_type: None, description: "APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized schemas to the latest internal value, and may reject unrecognized values. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources" },
        Field { name: "kind", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[], embedded: None, go_type: None, description: "Kind is a string value representing the REST resource this object represents. Servers may infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds" },
        Field { name: "metadata", shape: Shape::Object(&META_V1_OBJECTMETA), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "metadata is the standard list metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata" },
        Field { name: "spec", shape: Shape::Object(&AUTHORIZATION_V1_SELFSUBJECTRULESREVIEWSPEC), required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "spec holds information about the request being evaluated." },
        Field { name: "status", shape: Shape::Object(&AUTHORIZATION_V1_SUBJECTRULESREVIEWSTATUS), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "status is filled in by the server and indicates the set of actions a user can perform." },
    ],
};

static AUTHORIZATION_V1_SELFSUBJECTRULESREVIEWSPEC: Type = Type {
    name: "io.k8s.api.authorization.v1.SelfSubjectRulesReviewSpec",
    description: "SelfSubjectRulesReviewSpec defines the specification for SelfSubjectRulesReview.",
    atomic: false,
    fields: &[
        Field { name: "namespace", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "namespace to evaluate rules for. Required." },
    ],
};

static AUTHORIZATION_V1_SUBJECTACCESSREVIEW: Type = Type {
    name: "io.k8s.api.authorization.v1.SubjectAccessReview",
    description: "SubjectAccessReview checks whether or not a user or group can perform an action.",
    atomic: false,
    fields: &[
        Field { name: "apiVersion", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[], embedded: None, go_type: None, description: "APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized schemas to the latest internal value, and may reject unrecognized values. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources" },
        Field { name: "kind", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[], embedded: None, go_type: None, description: "Kind is a string value representing the REST resource this object represents. Servers may infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds" },
        Field { name: "metadata", shape: Shape::Object(&META_V1_OBJECTMETA), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "metadata is the standard list metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata" },
        Field { name: "spec", shape: Shape::Object(&AUTHORIZATION_V1_SUBJECTACCESSREVIEWSPEC), required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "spec holds information about the request being evaluated" },
        Field { name: "status", shape: Shape::Object(&AUTHORIZATION_V1_SUBJECTACCESSREVIEWSTATUS), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "status is filled in by the server and indicates whether the request is allowed or not" },
    ],
};

static AUTHORIZATION_V1_SUBJECTACCESSREVIEWSPEC: Type = Type {
    name: "io.k8s.api.authorization.v1.SubjectAccessReviewSpec",
    description: "SubjectAccessReviewSpec is a description of the access request.  Exactly one of resourceAttributes and nonResourceAttributes must be set",
    atomic: false,
    fields: &[
        Field { name: "extra", shape: Shape::Map(&Shape::List(&Shape::String, Keys::Atomic), MapKind::Granular), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[5], embedded: None, go_type: Some("map[string]v1.ExtraValue"), description: "extra corresponds to the user.Info.GetExtra() method from the authenticator.  Since that is input to the authorizer it needs a reflection here." },
        Field { name: "groups", shape: Shape::List(&Shape::String, Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "groups is the groups you're testing for." },
        Field { name: "nonResourceAttributes", shape: Shape::Object(&AUTHORIZATION_V1_NONRESOURCEATTRIBUTES), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "nonResourceAttributes describes information for a non-resource access request" },
        Field { name: "resourceAttributes", shape: Shape::Object(&AUTHORIZATION_V1_RESOURCEATTRIBUTES), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "resourceAttributes describes information for a resource access request" },
        Field { name: "uid", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[6], embedded: None, go_type: None, description: "uid information about the requesting user." },
        Field { name: "user", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "user is the user you're testing for. If you specify \"User\" but not \"Groups\", then is it interpreted as \"What if User were not a member of any groups" },
    ],
};

static AUTHORIZATION_V1_SUBJECTACCESSREVIEWSTATUS: Type = Type {
    name: "io.k8s.api.authorization.v1.SubjectAccessReviewStatus",
    description: "SubjectAccessReviewStatus",
    atomic: false,
    fields: &[
        Field { name: "allowed", shape: Shape::Bool, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "allowed is required. True if the action would be allowed, false otherwise." },
        Field { name: "denied", shape: Shape::Bool, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "denied is optional. True if the action would be denied, otherwise false. If both allowed is false and denied is false, then the authorizer has no opinion on whether to authorize the action. Denied may not be true if Allowed is true." },
        Field { name: "evaluationError", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "evaluationError is an indication that some error occurred during the authorization check. It is entirely possible to get an error and be able to continue determine authorization status in spite of it. For instance, RBAC can be missing a role, but enough roles are still present and bound to reason about the request." },
        Field { name: "reason", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "reason is optional.  It indicates why a request was allowed or denied." },
    ],
};

static AUTHORIZATION_V1_SUBJECTRULESREVIEWSTATUS: Type = Type {
    name: "io.k8s.api.authorization.v1.SubjectRulesReviewStatus",
    description: "SubjectRulesReviewStatus contains the result of a rules check. This check can be incomplete depending on the set of authorizers the server is configured with and any errors experienced during evaluation. Because authorization rules are additive, if a rule appears in a list it's safe to assume the subject has that permission, even if that list is incomplete.",
    atomic: false,
    fields: &[
        Field { name: "evaluationError", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "evaluationError can appear in combination with Rules. It indicates an error occurred during rule evaluation, such as an authorizer that doesn't support rule evaluation, and that ResourceRules and/or NonResourceRules may be incomplete." },
        Field { name: "incomplete", shape: Shape::Bool, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "incomplete is true when the rules returned by this call are incomplete. This is most commonly encountered when an authorizer, such as an external authorizer, doesn't support rules evaluation." },
        Field { name: "nonResourceRules", shape: Shape::List(&Shape::Object(&AUTHORIZATION_V1_NONRESOURCERULE), Keys::Atomic), required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "nonResourceRules is the list of actions the subject is allowed to perform on non-resources. The list ordering isn't significant, may contain duplicates, and possibly be incomplete." },
        Field { name: "resourceRules", shape: Shape::List(&Shape::Object(&AUTHORIZATION_V1_RESOURCERULE), Keys::Atomic), required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "resourceRules is the list of actions the subject is allowed to perform on resources. The list ordering isn't significant, may contain duplicates, and possibly be incomplete." },
    ],
};

static CERTIFICATES_V1_CERTIFICATESIGNINGREQUEST: Type = Type {
    name: "io.k8s.api.certificates.v1.CertificateSigningRequest",
    description: "CertificateSigningRequest objects provide a mechanism to obtain x509 certificates by submitting a certificate signing request, and having it asynchronously approved and issued.\n\nKubelets use this API to obtain:\n 1. client certificates to authenticate to kube-apiserver (with the \"kubernetes.io/kube-apiserver-client-kubelet\" signerName).\n 2. serving certificates for TLS endpoints kube-apiserver can connect to securely (with the \"kubernetes.io/kubelet-serving\" signerName).\n\nThis API can be used to request client certificates to authenticate to kube-apiserver (with the \"kubernetes.io/kube-apiserver-client\" signerName), or to obtain certificates from custom non-Kubernetes signers.",
    atomic: false,
    fields: &[
        Field { name: "apiVersion", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[], embedded: None, go_type: None, description: "APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized schemas to the latest internal value, and may reject unrecognized values. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources" },
        Field { name: "kind", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[], embedded: None, go_type: None, description: "Kind is a string value representing the REST resource this object represents. Servers may infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds" },
        Field { name: "metadata", shape: Shape::Object(&META_V1_OBJECTMETA), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "" },
        Field { name: "spec", shape: Shape::Object(&CERTIFICATES_V1_CERTIFICATESIGNINGREQUESTSPEC), required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "spec contains the certificate request, and is immutable after creation. Only the request, signerName, expirationSeconds, and usages fields can be set on creation. Other fields are derived by Kubernetes and cannot be modified by users." },
        Field { name: "status", shape: Shape::Object(&CERTIFICATES_V1_CERTIFICATESIGNINGREQUESTSTATUS), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "status contains information about whether the request is approved or denied, and the certificate issued by the signer, or the failure condition indicating signer failure." },
    ],
};

static CERTIFICATES_V1_CERTIFICATESIGNINGREQUESTCONDITION: Type = Type {
    name: "io.k8s.api.certificates.v1.CertificateSigningRequestCondition",
    description: "CertificateSigningRequestCondition describes a condition of a CertificateSigningRequest object",
    atomic: false,
    fields: &[
        Field { name: "lastTransitionTime", shape: Shape::Time, required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[5], embedded: None, go_type: None, description: "lastTransitionTime is the time the condition last transitioned from one status to another. If unset, when a new condition type is added or an existing condition's status is changed, the server defaults this to the current time." },
        Field { name: "lastUpdateTime", shape: Shape::Time, required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "lastUpdateTime is the time of the last update to this condition" },
        Field { name: "message", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "message contains a human readable message with details about the request state" },
        Field { name: "reason", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "reason indicates a brief reason for the request state" },
        Field { name: "status", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[6], embedded: None, go_type: Some("v1.ConditionStatus"), description: "status of the condition, one of True, False, Unknown. Approved, Denied, and Failed conditions may not be \"False\" or \"Unknown\"." },
        Field { name: "type", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: Some("v1.RequestConditionType"), description: "type of the condition. Known conditions are \"Approved\", \"Denied\", and \"Failed\".\n\nAn \"Approved\" condition is added via the /approval subresource, indicating the request was approved and should be issued by the signer.\n\nA \"Denied\" condition is added via the /approval subresource, indicating the request was denied and should not be issued by the signer.\n\nA \"Failed\" condition is added via the /status subresource, indicating the signer failed to issue the certificate.\n\nApproved and Denied conditions are mutually exclusive. Approved, Denied, and Failed conditions cannot be removed once added.\n\nOnly one condition of a given type is allowed." },
    ],
};

static CERTIFICATES_V1_CERTIFICATESIGNINGREQUESTSPEC: Type = Type {
    name: "io.k8s.api.certificates.v1.CertificateSigningRequestSpec",
    description: "CertificateSigningRequestSpec contains the certificate request.",
    atomic: false,
    fields: &[
        Field { name: "expirationSeconds", shape: Shape::Int32, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[8], embedded: None, go_type: None, description: "expirationSeconds is the requested duration of validity of the issued certificate. The certificate signer may issue a certificate with a different validity duration so a client must check the delta between the notBefore and and notAfter fields in the issued certificate to determine the actual duration.\n\nThe v1.22+ in-tree implementations of the well-known Kubernetes signers will honor this field as long as the requested duration is not greater than the maximum duration they will honor per the --cluster-signing-duration CLI flag to the Kubernetes controller manager.\n\nCertificate signers may not honor this field for various reasons:\n\n  1. Old signer that is unaware of the field (such as the in-tree\n     implementations prior to v1.22)\n  2. Signer whose configured maximum is shorter than the requested duration\n  3. Signer whose configured minimum is longer than the requested duration\n\nThe minimum valid value for expirationSeconds is 600, i.e. 10 minutes." },
        Field { name: "extra", shape: Shape::Map(&Shape::List(&Shape::String, Keys::Atomic), MapKind::Granular), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[6], embedded: None, go_type: Some("map[string]v1.ExtraValue"), description: "extra contains extra attributes of the user that created the CertificateSigningRequest. Populated by the API server on creation and immutable." },
        Field { name: "groups", shape: Shape::List(&Shape::String, Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "groups contains group membership of the user that created the CertificateSigningRequest. Populated by the API server on creation and immutable." },
        Field { name: "request", shape: Shape::Bytes, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "request contains an x509 certificate signing request encoded in a \"CERTIFICATE REQUEST\" PEM block. When serialized as JSON or YAML, the data is additionally base64-encoded." },
        Field { name: "signerName", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[7], embedded: None, go_type: None, description: "signerName indicates the requested signer, and is a qualified name.\n\nList/watch requests for CertificateSigningRequests can filter on this field using a \"spec.signerName=NAME\" fieldSelector.\n\nWell-known Kubernetes signers are:\n 1. \"kubernetes.io/kube-apiserver-client\": issues client certificates that can be used to authenticate to kube-apiserver.\n  Requests for this signer are never auto-approved by kube-controller-manager, can be issued by the \"csrsigning\" controller in kube-controller-manager.\n 2. \"kubernetes.io/kube-apiserver-client-kubelet\": issues client certificates that kubelets use to authenticate to kube-apiserver.\n  Requests for this signer can be auto-approved by the \"csrapproving\" controller in kube-controller-manager, and can be issued by the \"csrsigning\" controller in kube-controller-manager.\n 3. \"kubernetes.io/kubelet-serving\" issues serving certificates that kubelets use to serve TLS endpoints, which kube-apiserver can connect to securely.\n  Requests for this signer are never auto-approved by kube-controller-manager, and can be issued by the \"csrsigning\" controller in kube-controller-manager.\n\nMore details are available at https://k8s.io/docs/reference/access-authn-authz/certificate-signing-requests/#kubernetes-signers\n\nCustom signerNames can also be specified. The signer defines:\n 1. Trust distribution: how trust (CA bundles) are distributed.\n 2. Permitted subjects: and behavior when a disallowed subject is requested.\n 3. Required, permitted, or forbidden x509 extensions in the request (including whether subjectAltNames are allowed, which types, restrictions on allowed values) and behavior when a disallowed extension is requested.\n 4. Required, permitted, or forbidden key usages / extended key usages.\n 5. Expiration/certificate lifetime: whether it is fixed by the signer, configurable by the admin.\n 6. Whether or not requests for CA certificates are allowed." },
        Field { name: "uid", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "uid contains the uid of the user that created the CertificateSigningRequest. Populated by the API server on creation and immutable." },
        Field { name: "usages", shape: Shape::List(&Shape::String, Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[5], embedded: None, go_type: Some("[]v1.KeyUsage"), description: "usages specifies a set of key usages requested in the issued certificate.\n\nRequests for TLS client certificates typically request: \"digital signature\", \"key encipherment\", \"client auth\".\n\nRequests for TLS serving certificates typically request: \"key encipherment\", \"digital signature\", \"server auth\".\n\nValid values are:\n \"signing\", \"digital signature\", \"content commitment\",\n \"key encipherment\", \"key agreement\", \"data encipherment\",\n \"cert sign\", \"crl sign\", \"encipher only\", \"decipher only\", \"any\",\n \"server auth\", \"client auth\",\n \"code signing\", \"email protection\", \"s/mime\",\n \"ipsec end system\", \"ipsec tunnel\", \"ipsec user\",\n \"timestamping\", \"ocsp signing\", \"microsoft sgc\", \"netscape sgc\"" },
        Field { name: "username", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "username contains the name of the user that created the CertificateSigningRequest. Populated by the API server on creation and immutable." },
    ],
};

static CERTIFICATES_V1_CERTIFICATESIGNINGREQUESTSTATUS: Type = Type {
    name: "io.k8s.api.certificates.v1.CertificateSigningRequestStatus",
    description: "CertificateSigningRequestStatus contains conditions used to indicate approved/denied/failed status of the request, and the issued certificate.",
    atomic: false,
    fields: &[
        Field { name: "certificate", shape: Shape::Bytes, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "certificate is populated with an issued certificate by the signer after an Approved condition is present. This field is set via the /status subresource. Once populated, this field is immutable.\n\nIf the certificate signing request is denied, a condition of type \"Denied\" is added and this field remains empty. If the signer cannot issue the certificate, a condition of type \"Failed\" is added and this field remains empty.\n\nValidation requirements:\n 1. certificate must contain one or more PEM blocks.\n 2. All PEM blocks must have the \"CERTIFICATE\" label, contain no headers, and the encoded data\n  must be a BER-encoded ASN.1 Certificate structure as described in section 4 of RFC5280.\n 3. Non-PEM content may appear before or after the \"CERTIFICATE\" PEM blocks and is unvalidated,\n  to allow for explanatory text as described in section 5.2 of RFC7468.\n\nIf more than one PEM block is present, and the definition of the requested spec.signerName does not indicate otherwise, the first block is the issued certificate, and subsequent blocks should be treated as intermediate certificates and presented in TLS handshakes.\n\nThe certificate is encoded in PEM format.\n\nWhen serialized as JSON or YAML, the data is additionally base64-encoded, so it consists of:\n\n    base64(\n    -----BEGIN CERTIFICATE-----\n    ...\n    -----END CERTIFICATE-----\n    )" },
        Field { name: "conditions", shape: Shape::List(&Shape::Object(&CERTIFICATES_V1_CERTIFICATESIGNINGREQUESTCONDITION), Keys::Fields(&["type"])), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "conditions applied to the request. Known conditions are \"Approved\", \"Denied\", and \"Failed\"." },
    ],
};

static COORDINATION_V1_LEASE: Type = Type {
    name: "io.k8s.api.coordination.v1.Lease",
    description: "Lease defines a lease concept.",
    atomic: false,
    fields: &[
        Field { name: "apiVersion", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[], embedded: None, go_type: None, description: "APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized schemas to the latest internal value, and may reject unrecognized values. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources" },
        Field { name: "kind", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[], embedded: None, go_type: None, description: "Kind is a string value representing the REST resource this object represents. Servers may infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds" },
        Field { name: "metadata", shape: Shape::Object(&META_V1_OBJECTMETA), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata" },
        Field { name: "spec", shape: Shape::Object(&COORDINATION_V1_LEASESPEC), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "spec contains the specification of the Lease. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#spec-and-status" },
    ],
};

static COORDINATION_V1_LEASESPEC: Type = Type {
    name: "io.k8s.api.coordination.v1.LeaseSpec",
    description: "LeaseSpec is a specification of a Lease.",
    atomic: false,
    fields: &[
        Field { name: "acquireTime", shape: Shape::MicroTime, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "acquireTime is a time when the current lease was acquired." },
        Field { name: "holderIdentity", shape: Shape::String, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "holderIdentity contains the identity of the holder of a current lease. If Coordinated Leader Election is used, the holder identity must be equal to the elected LeaseCandidate.metadata.name field." },
        Field { name: "leaseDurationSeconds", shape: Shape::Int32, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "leaseDurationSeconds is a duration that candidates for a lease need to wait to force acquire it. This is measured against the time of last observed renewTime." },
        Field { name: "leaseTransitions", shape: Shape::Int32, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[5], embedded: None, go_type: None, description: "leaseTransitions is the number of transitions of a lease between holders." },
        Field { name: "preferredHolder", shape: Shape::String, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[7], embedded: None, go_type: None, description: "PreferredHolder signals to a lease holder that the lease has a more optimal holder and should be given up. This field can only be set if Strategy is also set." },
        Field { name: "renewTime", shape: Shape::MicroTime, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "renewTime is a time when the current holder of a lease has last updated the lease." },
        Field { name: "strategy", shape: Shape::String, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[6], embedded: None, go_type: Some("v1.CoordinatedLeaseStrategy"), description: "Strategy indicates the strategy for picking the leader for coordinated leader election. If the field is not specified, there is no active coordination for this lease. (Alpha) Using this field requires the CoordinatedLeaderElection feature gate to be enabled." },
    ],
};

static CORE_V1_AWSELASTICBLOCKSTOREVOLUMESOURCE: Type = Type {
    name: "io.k8s.api.core.v1.AWSElasticBlockStoreVolumeSource",
    description: "Represents a Persistent Disk resource in AWS.\n\nAn AWS EBS disk must exist before mounting to a container. The disk must also be in the same AWS zone as the kubelet. An AWS EBS disk can only be mounted as read/write once. AWS EBS volumes support ownership management and SELinux relabeling.",
    atomic: false,
    fields: &[
        Field { name: "fsType", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "fsType is the filesystem type of the volume that you want to mount. Tip: Ensure that the filesystem type is supported by the host operating system. Examples: \"ext4\", \"xfs\", \"ntfs\". Implicitly inferred to be \"ext4\" if unspecified. More info: https://kubernetes.io/docs/concepts/storage/volumes#awselasticblockstore" },
        Field { name: "partition", shape: Shape::Int32, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "partition is the partition in the volume that you want to mount. If omitted, the default is to mount by volume name. Examples: For volume /dev/sda1, you specify the partition as \"1\". Similarly, the volume partition for /dev/sda is \"0\" (or you can leave the property empty)." },
        Field { name: "readOnly", shape: Shape::Bool, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "readOnly value true will force the readOnly setting in VolumeMounts. More info: https://kubernetes.io/docs/concepts/storage/volumes#awselasticblockstore" },
        Field { name: "volumeID", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "volumeID is unique ID of the persistent disk resource in AWS (Amazon EBS volume). More info: https://kubernetes.io/docs/concepts/storage/volumes#awselasticblockstore" },
    ],
};

static CORE_V1_AFFINITY: Type = Type {
    name: "io.k8s.api.core.v1.Affinity",
    description: "Affinity is a group of affinity scheduling rules.",
    atomic: false,
    fields: &[
        Field { name: "nodeAffinity", shape: Shape::Object(&CORE_V1_NODEAFFINITY), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Describes node affinity scheduling rules for the pod." },
        Field { name: "podAffinity", shape: Shape::Object(&CORE_V1_PODAFFINITY), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "Describes pod affinity scheduling rules (e.g. co-locate this pod in the same node, zone, etc. as some other pod(s))." },
        Field { name: "podAntiAffinity", shape: Shape::Object(&CORE_V1_PODANTIAFFINITY), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "Describes pod anti-affinity scheduling rules (e.g. avoid putting this pod in the same node, zone, etc. as some other pod(s))." },
    ],
};

static CORE_V1_APPARMORPROFILE: Type = Type {
    name: "io.k8s.api.core.v1.AppArmorProfile",
    description: "AppArmorProfile defines a pod or container's AppArmor settings.",
    atomic: false,
    fields: &[
        Field { name: "localhostProfile", shape: Shape::String, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "localhostProfile indicates a profile loaded on the node that should be used. The profile must be preconfigured on the node to work. Must match the loaded name of the profile. Must be set if and only if type is \"Localhost\"." },
        Field { name: "type", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: Some("v1.AppArmorProfileType"), description: "type indicates which kind of AppArmor profile will be applied. Valid options are:\n  Localhost - a profile pre-loaded on the node.\n  RuntimeDefault - the container runtime's default profile.\n  Unconfined - no AppArmor enforcement." },
    ],
};

static CORE_V1_ATTACHEDVOLUME: Type = Type {
    name: "io.k8s.api.core.v1.AttachedVolume",
    description: "AttachedVolume describes a volume attached to a node",
    atomic: false,
    fields: &[
        Field { name: "devicePath", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "DevicePath represents the device path where the volume should be available" },
        Field { name: "name", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: Some("v1.UniqueVolumeName"), description: "Name of the attached volume" },
    ],
};

static CORE_V1_AZUREDISKVOLUMESOURCE: Type = Type {
    name: "io.k8s.api.core.v1.AzureDiskVolumeSource",
    description: "AzureDisk represents an Azure Data Disk mount on the host and bind mount to the pod.",
    atomic: false,
    fields: &[
        Field { name: "cachingMode", shape: Shape::String, required: false, presence: Presence::Set, default: Some("\"ReadWrite\""), patch: Patch::Plain, proto: &[3], embedded: None, go_type: Some("v1.AzureDataDiskCachingMode"), description: "cachingMode is the Host Caching mode: None, Read Only, Read Write." },
        Field { name: "diskName", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "diskName is the Name of the data disk in the blob storage" },
        Field { name: "diskURI", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "diskURI is the URI of data disk in the blob storage" },
        Field { name: "fsType", shape: Shape::String, required: false, presence: Presence::Set, default: Some("\"ext4\""), patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "fsType is Filesystem type to mount. Must be a filesystem type supported by the host operating system. Ex. \"ext4\", \"xfs\", \"ntfs\". Implicitly inferred to be \"ext4\" if unspecified." },
        Field { name: "kind", shape: Shape::String, required: false, presence: Presence::Set, default: Some("\"Shared\""), patch: Patch::Plain, proto: &[6], embedded: None, go_type: Some("v1.AzureDataDiskKind"), description: "kind expected values are Shared: multiple blob disks per storage account  Dedicated: single blob disk per storage account  Managed: azure managed data disk (only in managed availability set). defaults to shared" },
        Field { name: "readOnly", shape: Shape::Bool, required: false, presence: Presence::Set, default: Some("false"), patch: Patch::Plain, proto: &[5], embedded: None, go_type: None, description: "readOnly Defaults to false (read/write). ReadOnly here will force the ReadOnly setting in VolumeMounts." },
    ],
};

static CORE_V1_AZUREFILEVOLUMESOURCE: Type = Type {
    name: "io.k8s.api.core.v1.AzureFileVolumeSource",
    description: "AzureFile represents an Azure File Service mount on the host and bind mount to the pod.",
    atomic: false,
    fields: &[
        Field { name: "readOnly", shape: Shape::Bool, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "readOnly defaults to false (read/write). ReadOnly here will force the ReadOnly setting in VolumeMounts." },
        Field { name: "secretName", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "secretName is the  name of secret that contains Azure Storage Account Name and Key" },
        Field { name: "shareName", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "shareName is the azure share Name" },
    ],
};

static CORE_V1_BINDING: Type = Type {
    name: "io.k8s.api.core.v1.Binding",
    description: "Binding ties one object to another; for example, a pod is bound to a node by a scheduler.",
    atomic: false,
    fields: &[
        Field { name: "apiVersion", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[], embedded: None, go_type: None, description: "APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized schemas to the latest internal value, and may reject unrecognized values. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources" },
        Field { name: "kind", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[], embedded: None, go_type: None, description: "Kind is a string value representing the REST resource this object represents. Servers may infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds" },
        Field { name: "metadata", shape: Shape::Object(&META_V1_OBJECTMETA), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata" },
        Field { name: "target", shape: Shape::Object(&CORE_V1_OBJECTREFERENCE), required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "The target object that you want to bind to the standard object." },
    ],
};

static CORE_V1_CSIVOLUMESOURCE: Type = Type {
    name: "io.k8s.api.core.v1.CSIVolumeSource",
    description: "Represents a source location of a volume to mount, managed by an external CSI driver",
    atomic: false,
    fields: &[
        Field { name: "driver", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "driver is the name of the CSI driver that handles this volume. Consult with your admin for the correct name as registered in the cluster." },
        Field { name: "fsType", shape: Shape::String, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "fsType to mount. Ex. \"ext4\", \"xfs\", \"ntfs\". If not provided, the empty value is passed to the associated CSI driver which will determine the default filesystem to apply." },
        Field { name: "nodePublishSecretRef", shape: Shape::Object(&CORE_V1_LOCALOBJECTREFERENCE), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[5], embedded: None, go_type: None, description: "nodePublishSecretRef is a reference to the secret object containing sensitive information to pass to the CSI driver to complete the CSI NodePublishVolume and NodeUnpublishVolume calls. This field is optional, and  may be empty if no secret is required. If the secret object contains more than one secret, all secret references are passed." },
        Field { name: "readOnly", shape: Shape::Bool, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "readOnly specifies a read-only configuration for the volume. Defaults to false (read/write)." },
        Field { name: "volumeAttributes", shape: Shape::Map(&Shape::String, MapKind::Granular), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "volumeAttributes stores driver-specific properties that are passed to the CSI driver. Consult your driver's documentation for supported values." },
    ],
};

static CORE_V1_CAPABILITIES: Type = Type {
    name: "io.k8s.api.core.v1.Capabilities",
    description: "Adds and removes POSIX capabilities from running containers.",
    atomic: false,
    fields: &[
        Field { name: "add", shape: Shape::List(&Shape::String, Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: Some("[]v1.Capability"), description: "Added capabilities" },
        Field { name: "drop", shape: Shape::List(&Shape::String, Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: Some("[]v1.Capability"), description: "Removed capabilities" },
    ],
};

static CORE_V1_CEPHFSVOLUMESOURCE: Type = Type {
    name: "io.k8s.api.core.v1.CephFSVolumeSource",
    description: "Represents a Ceph Filesystem mount that lasts the lifetime of a pod Cephfs volumes do not support ownership management or SELinux relabeling.",
    atomic: false,
    fields: &[
        Field { name: "monitors", shape: Shape::List(&Shape::String, Keys::Atomic), required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "monitors is Required: Monitors is a collection of Ceph monitors More info: https://examples.k8s.io/volumes/cephfs/README.md#how-to-use-it" },
        Field { name: "path", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "path is Optional: Used as the mounted root, rather than the full Ceph tree, default is /" },
        Field { name: "readOnly", shape: Shape::Bool, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[6], embedded: None, go_type: None, description: "readOnly is Optional: Defaults to false (read/write). ReadOnly here will force the ReadOnly setting in VolumeMounts. More info: https://examples.k8s.io/volumes/cephfs/README.md#how-to-use-it" },
        Field { name: "secretFile", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "secretFile is Optional: SecretFile is the path to key ring for User, default is /etc/ceph/user.secret More info: https://examples.k8s.io/volumes/cephfs/README.md#how-to-use-it" },
        Field { name: "secretRef", shape: Shape::Object(&CORE_V1_LOCALOBJECTREFERENCE), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[5], embedded: None, go_type: None, description: "secretRef is Optional: SecretRef is reference to the authentication secret for User, default is empty. More info: https://examples.k8s.io/volumes/cephfs/README.md#how-to-use-it" },
        Field { name: "user", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "user is optional: User is the rados user name, default is admin More info: https://examples.k8s.io/volumes/cephfs/README.md#how-to-use-it" },
    ],
};

static CORE_V1_CINDERVOLUMESOURCE: Type = Type {
    name: "io.k8s.api.core.v1.CinderVolumeSource",
    description: "Represents a cinder volume resource in Openstack. A Cinder volume must exist before mounting to a container. The volume must also be in the same region as the kubelet. Cinder volumes support ownership management and SELinux relabeling.",
    atomic: false,
    fields: &[
        Field { name: "fsType", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "fsType is the filesystem type to mount. Must be a filesystem type supported by the host operating system. Examples: \"ext4\", \"xfs\", \"ntfs\". Implicitly inferred to be \"ext4\" if unspecified. More info: https://examples.k8s.io/mysql-cinder-pd/README.md" },
        Field { name: "readOnly", shape: Shape::Bool, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "readOnly defaults to false (read/write). ReadOnly here will force the ReadOnly setting in VolumeMounts. More info: https://examples.k8s.io/mysql-cinder-pd/README.md" },
        Field { name: "secretRef", shape: Shape::Object(&CORE_V1_LOCALOBJECTREFERENCE), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "secretRef is optional: points to a secret object containing parameters used to connect to OpenStack." },
        Field { name: "volumeID", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "volumeID used to identify the volume in cinder. More info: https://examples.k8s.io/mysql-cinder-pd/README.md" },
    ],
};

static CORE_V1_CLIENTIPCONFIG: Type = Type {
    name: "io.k8s.api.core.v1.ClientIPConfig",
    description: "ClientIPConfig represents the configurations of Client IP based session affinity.",
    atomic: false,
    fields: &[
        Field { name: "timeoutSeconds", shape: Shape::Int32, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "timeoutSeconds specifies the seconds of ClientIP type session sticky time. The value must be >0 && <=86400(for 1 day) if ServiceAffinity == \"ClientIP\". Default value is 10800(for 3 hours)." },
    ],
};

static CORE_V1_CLUSTERTRUSTBUNDLEPROJECTION: Type = Type {
    name: "io.k8s.api.core.v1.ClusterTrustBundleProjection",
    description: "ClusterTrustBundleProjection describes how to select a set of ClusterTrustBundle objects and project their contents into the pod filesystem.",
    atomic: false,
    fields: &[
        Field { name: "labelSelector", shape: Shape::Object(&META_V1_LABELSELECTOR), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "Select all ClusterTrustBundles that match this label selector.  Only has effect if signerName is set.  Mutually-exclusive with name.  If unset, interpreted as \"match nothing\".  If set but empty, interpreted as \"match everything\"." },
        Field { name: "name", shape: Shape::String, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Select a single ClusterTrustBundle by object name.  Mutually-exclusive with signerName and labelSelector." },
        Field { name: "optional", shape: Shape::Bool, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[5], embedded: None, go_type: None, description: "If true, don't block pod startup if the referenced ClusterTrustBundle(s) aren't available.  If using name, then the named ClusterTrustBundle is allowed not to exist.  If using signerName, then the combination of signerName and labelSelector is allowed to match zero ClusterTrustBundles." },
        Field { name: "path", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "Relative path from the volume root to write the bundle." },
        Field { name: "signerName", shape: Shape::String, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "Select all ClusterTrustBundles that match this signer name. Mutually-exclusive with name.  The contents of all selected ClusterTrustBundles will be unified and deduplicated." },
    ],
};

static CORE_V1_CONFIGMAP: Type = Type {
    name: "io.k8s.api.core.v1.ConfigMap",
    description: "ConfigMap holds configuration data for pods to consume.",
    atomic: false,
    fields: &[
        Field { name: "apiVersion", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[], embedded: None, go_type: None, description: "APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized schemas to the latest internal value, and may reject unrecognized values. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources" },
        Field { name: "binaryData", shape: Shape::Map(&Shape::Bytes, MapKind::Granular), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "BinaryData contains the binary data. Each key must consist of alphanumeric characters, '-', '_' or '.'. BinaryData can contain byte sequences that are not in the UTF-8 range. The keys stored in BinaryData must not overlap with the ones in the Data field, this is enforced during validation process. Using this field will require 1.10+ apiserver and kubelet." },
        Field { name: "data", shape: Shape::Map(&Shape::String, MapKind::Granular), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "Data contains the configuration data. Each key must consist of alphanumeric characters, '-', '_' or '.'. Values with non-UTF-8 byte sequences must use the BinaryData field. The keys stored in Data must not overlap with the keys in the BinaryData field, this is enforced during validation process." },
        Field { name: "immutable", shape: Shape::Bool, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "Immutable, if set to true, ensures that data stored in the ConfigMap cannot be updated (only object metadata can be modified). If not set to true, the field can be modified at any time. Defaulted to nil." },
        Field { name: "kind", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[], embedded: None, go_type: None, description: "Kind is a string value representing the REST resource this object represents. Servers may infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds" },
        Field { name: "metadata", shape: Shape::Object(&META_V1_OBJECTMETA), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata" },
    ],
};

static CORE_V1_CONFIGMAPENVSOURCE: Type = Type {
    name: "io.k8s.api.core.v1.ConfigMapEnvSource",
    description: "ConfigMapEnvSource selects a ConfigMap to populate the environment variables with.\n\nThe contents of the target ConfigMap's Data field will represent the key-value pairs as environment variables.",
    atomic: false,
    fields: &[
        Field { name: "name", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: Some("\"\""), patch: Patch::Plain, proto: &[1, 1], embedded: Some("LocalObjectReference"), go_type: None, description: "Name of the referent. This field is effectively required, but due to backwards compatibility is allowed to be empty. Instances of this type with an empty value here are almost certainly wrong. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/names/#names" },
        Field { name: "optional", shape: Shape::Bool, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "Specify whether the ConfigMap must be defined" },
    ],
};

static CORE_V1_CONFIGMAPKEYSELECTOR: Type = Type {
    name: "io.k8s.api.core.v1.ConfigMapKeySelector",
    description: "Selects a key from a ConfigMap.",
    atomic: true,
    fields: &[
        Field { name: "key", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "The key to select." },
        Field { name: "name", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: Some("\"\""), patch: Patch::Plain, proto: &[1, 1], embedded: Some("LocalObjectReference"), go_type: None, description: "Name of the referent. This field is effectively required, but due to backwards compatibility is allowed to be empty. Instances of this type with an empty value here are almost certainly wrong. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/names/#names" },
        Field { name: "optional", shape: Shape::Bool, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "Specify whether the ConfigMap or its key must be defined" },
    ],
};

static CORE_V1_CONFIGMAPNODECONFIGSOURCE: Type = Type {
    name: "io.k8s.api.core.v1.ConfigMapNodeConfigSource",
    description: "ConfigMapNodeConfigSource contains the information to reference a ConfigMap as a config source for the Node. This API is deprecated since 1.22: https://git.k8s.io/enhancements/keps/sig-node/281-dynamic-kubelet-configuration",
    atomic: false,
    fields: &[
        Field { name: "kubeletConfigKey", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[5], embedded: None, go_type: None, description: "KubeletConfigKey declares which key of the referenced ConfigMap corresponds to the KubeletConfiguration structure This field is required in all cases." },
        Field { name: "name", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "Name is the metadata.name of the referenced ConfigMap. This field is required in all cases." },
        Field { name: "namespace", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Namespace is the metadata.namespace of the referenced ConfigMap. This field is required in all cases." },
        Field { name: "resourceVersion", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "ResourceVersion is the metadata.ResourceVersion of the referenced ConfigMap. This field is forbidden in Node.Spec, and required in Node.Status." },
        Field { name: "uid", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: Some("types.UID"), description: "UID is the metadata.UID of the referenced ConfigMap. This field is forbidden in Node.Spec, and required in Node.Status." },
    ],
};

static CORE_V1_CONFIGMAPPROJECTION: Type = Type {
    name: "io.k8s.api.core.v1.ConfigMapProjection",
    description: "Adapts a ConfigMap into a projected volume.\n\nThe contents of the target ConfigMap's Data field will be presented in a projected volume as files using the keys in the Data field as the file names, unless the items element is populated with specific mappings of keys to paths. Note that this is identical to a configmap volume source without the default mode.",
    atomic: false,
    fields: &[
        Field { name: "items", shape: Shape::List(&Shape::Object(&CORE_V1_KEYTOPATH), Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "items if unspecified, each key-value pair in the Data field of the referenced ConfigMap will be projected into the volume as a file whose name is the key and content is the value. If specified, the listed keys will be projected into the specified paths, and unlisted keys will not be present. If a key is specified which is not present in the ConfigMap, the volume setup will error unless it is marked optional. Paths must be relative and may not contain the '..' path or start with '..'." },
        Field { name: "name", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: Some("\"\""), patch: Patch::Plain, proto: &[1, 1], embedded: Some("LocalObjectReference"), go_type: None, description: "Name of the referent. This field is effectively required, but due to backwards compatibility is allowed to be empty. Instances of this type with an empty value here are almost certainly wrong. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/names/#names" },
        Field { name: "optional", shape: Shape::Bool, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "optional specify whether the ConfigMap or its keys must be defined" },
    ],
};

static CORE_V1_CONFIGMAPVOLUMESOURCE: Type = Type {
    name: "io.k8s.api.core.v1.ConfigMapVolumeSource",
    description: "Adapts a ConfigMap into a volume.\n\nThe contents of the target ConfigMap's Data field will be presented in a volume as files using the keys in the Data field as the file names, unless the items element is populated with specific mappings of keys to paths. ConfigMap volumes support ownership management and SELinux relabeling.",
    atomic: false,
    fields: &[
        Field { name: "defaultMode", shape: Shape::Int32, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "defaultMode is optional: mode bits used to set permissions on created files by default. Must be an octal value between 0000 and 0777 or a decimal value between 0 and 511. YAML accepts both octal and decimal values, JSON requires decimal values for mode bits. Defaults to 0644. Directories within the path are not affected by this setting. This might be in conflict with other options that affect the file mode, like fsGroup, and the result can be other mode bits set." },
        Field { name: "items", shape: Shape::List(&Shape::Object(&CORE_V1_KEYTOPATH), Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "items if unspecified, each key-value pair in the Data field of the referenced ConfigMap will be projected into the volume as a file whose name is the key and content is the value. If specified, the listed keys will be projected into the specified paths, and unlisted keys will not be present. If a key is specified which is not present in the ConfigMap, the volume setup will error unless it is marked optional. Paths must be relative and may not contain the '..' path or start with '..'." },
        Field { name: "name", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: Some("\"\""), patch: Patch::Plain, proto: &[1, 1], embedded: Some("LocalObjectReference"), go_type: None, description: "Name of the referent. This field is effectively required, but due to backwards compatibility is allowed to be empty. Instances of this type with an empty value here are almost certainly wrong. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/names/#names" },
        Field { name: "optional", shape: Shape::Bool, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "optional specify whether the ConfigMap or its keys must be defined" },
    ],
};

static CORE_V1_CONTAINER: Type = Type {
    name: "io.k8s.api.core.v1.Container",
    description: "A single application container that you want to run within a pod.",
    atomic: false,
    fields: &[
        Field { name: "args", shape: Shape::List(&Shape::String, Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "Arguments to the entrypoint. The container image's CMD is used if this is not provided. Variable references $(VAR_NAME) are expanded using the container's environment. If a variable cannot be resolved, the reference in the input string will be unchanged. Double $$ are reduced to a single $, which allows for escaping the $(VAR_NAME) syntax: i.e. \"$$(VAR_NAME)\" will produce the string literal \"$(VAR_NAME)\". Escaped references will never be expanded, regardless of whether the variable exists or not. Cannot be updated. More info: https://kubernetes.io/docs/tasks/inject-data-application/define-command-argument-container/#running-a-command-in-a-shell" },
        Field { name: "command", shape: Shape::List(&Shape::String, Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "Entrypoint array. Not executed within a shell. The container image's ENTRYPOINT is used if this is not provided. Variable references $(VAR_NAME) are expanded using the container's environment. If a variable cannot be resolved, the reference in the input string will be unchanged. Double $$ are reduced to a single $, which allows for escaping the $(VAR_NAME) syntax: i.e. \"$$(VAR_NAME)\" will produce the string literal \"$(VAR_NAME)\". Escaped references will never be expanded, regardless of whether the variable exists or not. Cannot be updated. More info: https://kubernetes.io/docs/tasks/inject-data-application/define-command-argument-container/#running-a-command-in-a-shell" },
        Field { name: "env", shape: Shape::List(&Shape::Object(&CORE_V1_ENVVAR), Keys::Fields(&["name"])), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Merge(Some("name")), proto: &[7], embedded: None, go_type: None, description: "List of environment variables to set in the container. Cannot be updated." },
        Field { name: "envFrom", shape: Shape::List(&Shape::Object(&CORE_V1_ENVFROMSOURCE), Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[19], embedded: None, go_type: None, description: "List of sources to populate environment variables in the container. The keys defined within a source may consist of any printable ASCII characters except '='. When a key exists in multiple sources, the value associated with the last source will take precedence. Values defined by an Env with a duplicate key will take precedence. Cannot be updated." },
        Field { name: "image", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "Container image name. More info: https://kubernetes.io/docs/concepts/containers/images This field is optional to allow higher level config management to default or override container images in workload controllers like Deployments and StatefulSets." },
        Field { name: "imagePullPolicy", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[14], embedded: None, go_type: Some("v1.PullPolicy"), description: "Image pull policy. One of Always, Never, IfNotPresent. Defaults to Always if :latest tag is specified, or IfNotPresent otherwise. Cannot be updated. More info: https://kubernetes.io/docs/concepts/containers/images#updating-images" },
        Field { name: "lifecycle", shape: Shape::Object(&CORE_V1_LIFECYCLE), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[12], embedded: None, go_type: None, description: "Actions that the management system should take in response to container lifecycle events. Cannot be updated." },
        Field { name: "livenessProbe", shape: Shape::Object(&CORE_V1_PROBE), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[10], embedded: None, go_type: None, description: "Periodic probe of container liveness. Container will be restarted if the probe fails. Cannot be updated. More info: https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle#container-probes" },
        Field { name: "name", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Name of the container specified as a DNS_LABEL. Each container in a pod must have a unique name (DNS_LABEL). Cannot be updated." },
        Field { name: "ports", shape: Shape::List(&Shape::Object(&CORE_V1_CONTAINERPORT), Keys::Fields(&["containerPort", "protocol"])), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Merge(Some("containerPort")), proto: &[6], embedded: None, go_type: None, description: "List of ports to expose from the container. Not specifying a port here DOES NOT prevent that port from being exposed. Any port which is listening on the default \"0.0.0.0\" address inside a container will be accessible from the network. Modifying this array with strategic merge patch may corrupt the data. For more information See https://github.com/kubernetes/kubernetes/issues/108255. Cannot be updated." },
        Field { name: "readinessProbe", shape: Shape::Object(&CORE_V1_PROBE), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[11], embedded: None, go_type: None, description: "Periodic probe of container service readiness. Container will be removed from service endpoints if the probe fails. Cannot be updated. More info: https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle#container-probes" },
        Field { name: "resizePolicy", shape: Shape::List(&Shape::Object(&CORE_V1_CONTAINERRESIZEPOLICY), Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[23], embedded: None, go_type: None, description: "Resources resize policy for the container. This field cannot be set on ephemeral containers." },
        Field { name: "resources", shape: Shape::Object(&CORE_V1_RESOURCEREQUIREMENTS), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[8], embedded: None, go_type: None, description: "Compute Resources required by this container. Cannot be updated. More info: https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/" },
        Field { name: "restartPolicy", shape: Shape::String, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[24], embedded: None, go_type: Some("v1.ContainerRestartPolicy"), description: "RestartPolicy defines the restart behavior of individual containers in a pod. This overrides the pod-level restart policy. When this field is not specified, the restart behavior is defined by the Pod's restart policy and the container type. Additionally, setting the RestartPolicy as \"Always\" for the init container will have the following effect: this init container will be continually restarted on exit until all regular containers have terminated. Once all regular containers have completed, all init containers with restartPolicy \"Always\" will be shut down. This lifecycle differs from normal init containers and is often referred to as a \"sidecar\" container. Although this init container still starts in the init container sequence, it does not wait for the container to complete before proceeding to the next init container. Instead, the next init container starts immediately after this init container is started, or after any startupProbe has successfully completed." },
        Field { name: "restartPolicyRules", shape: Shape::List(&Shape::Object(&CORE_V1_CONTAINERRESTARTRULE), Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[25], embedded: None, go_type: None, description: "Represents a list of rules to be checked to determine if the container should be restarted on exit. The rules are evaluated in order. Once a rule matches a container exit condition, the remaining rules are ignored. If no rule matches the container exit condition, the Container-level restart policy determines the whether the container is restarted or not. Constraints on the rules: - At most 20 rules are allowed. - Rules can have the same action. - Identical rules are not forbidden in validations. When rules are specified, container MUST set RestartPolicy explicitly even it if matches the Pod's RestartPolicy." },
        Field { name: "securityContext", shape: Shape::Object(&CORE_V1_SECURITYCONTEXT), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[15], embedded: None, go_type: None, description: "SecurityContext defines the security options the container should be run with. If set, the fields of SecurityContext override the equivalent fields of PodSecurityContext. More info: https://kubernetes.io/docs/tasks/configure-pod-container/security-context/" },
        Field { name: "startupProbe", shape: Shape::Object(&CORE_V1_PROBE), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[22], embedded: None, go_type: None, description: "StartupProbe indicates that the Pod has successfully initialized. If specified, no other probes are executed until this completes successfully. If this probe fails, the Pod will be restarted, just as if the livenessProbe failed. This can be used to provide different probe parameters at the beginning of a Pod's lifecycle, when it might take a long time to load data or warm a cache, than during steady-state operation. This cannot be updated. More info: https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle#container-probes" },
        Field { name: "stdin", shape: Shape::Bool, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[16], embedded: None, go_type: None, description: "Whether this container should allocate a buffer for stdin in the container runtime. If this is not set, reads from stdin in the container will always result in EOF. Default is false." },
        Field { name: "stdinOnce", shape: Shape::Bool, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[17], embedded: None, go_type: None, description: "Whether the container runtime should close the stdin channel after it has been opened by a single attach. When stdin is true the stdin stream will remain open across multiple attach sessions. If stdinOnce is set to true, stdin is opened on container start, is empty until the first client attaches to stdin, and then remains open and accepts data until the client disconnects, at which time stdin is closed and remains closed until the container is restarted. If this flag is false, a container processes that reads from stdin will never receive an EOF. Default is false" },
        Field { name: "terminationMessagePath", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[13], embedded: None, go_type: None, description: "Optional: Path at which the file to which the container's termination message will be written is mounted into the container's filesystem. Message written is intended to be brief final status, such as an assertion failure message. Will be truncated by the node if greater than 4096 bytes. The total message length across all containers will be limited to 12kb. Defaults to /dev/termination-log. Cannot be updated." },
        Field { name: "terminationMessagePolicy", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[20], embedded: None, go_type: Some("v1.TerminationMessagePolicy"), description: "Indicate how the termination message should be populated. File will use the contents of terminationMessagePath to populate the container status message on both success and failure. FallbackToLogsOnError will use the last chunk of container log output if the termination message file is empty and the container exited with an error. The log output is limited to 2048 bytes or 80 lines, whichever is smaller. Defaults to File. Cannot be updated." },
        Field { name: "tty", shape: Shape::Bool, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[18], embedded: None, go_type: None, description: "Whether this container should allocate a TTY for itself, also requires 'stdin' to be true. Default is false." },
        Field { name: "volumeDevices", shape: Shape::List(&Shape::Object(&CORE_V1_VOLUMEDEVICE), Keys::Fields(&["devicePath"])), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Merge(Some("devicePath")), proto: &[21], embedded: None, go_type: None, description: "volumeDevices is the list of block devices to be used by the container." },
        Field { name: "volumeMounts", shape: Shape::List(&Shape::Object(&CORE_V1_VOLUMEMOUNT), Keys::Fields(&["mountPath"])), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Merge(Some("mountPath")), proto: &[9], embedded: None, go_type: None, description: "Pod volumes to mount into the container's filesystem. Cannot be updated." },
        Field { name: "workingDir", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[5], embedded: None, go_type: None, description: "Container's working directory. If not specified, the container runtime's default will be used, which might be configured in the container image. Cannot be updated." },
    ],
};

static CORE_V1_CONTAINEREXTENDEDRESOURCEREQUEST: Type = Type {
    name: "io.k8s.api.core.v1.ContainerExtendedResourceRequest",
    description: "ContainerExtendedResourceRequest has the mapping of container name, extended resource name to the device request name.",
    atomic: false,
    fields: &[
        Field { name: "containerName", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "The name of the container requesting resources." },
        Field { name: "requestName", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "The name of the request in the special ResourceClaim which corresponds to the extended resource." },
        Field { name: "resourceName", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "The name of the extended resource in that container which gets backed by DRA." },
    ],
};

static CORE_V1_CONTAINERIMAGE: Type = Type {
    name: "io.k8s.api.core.v1.ContainerImage",
    description: "Describe a container image",
    atomic: false,
    fields: &[
        Field { name: "names", shape: Shape::List(&Shape::String, Keys::Atomic), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Names by which this image is known. e.g. [\"kubernetes.example/hyperkube:v1.0.7\", \"cloud-vendor.registry.example/cloud-vendor/hyperkube:v1.0.7\"]" },
        Field { name: "sizeBytes", shape: Shape::Int64, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "The size of the image in bytes." },
    ],
};

static CORE_V1_CONTAINERPORT: Type = Type {
    name: "io.k8s.api.core.v1.ContainerPort",
    description: "ContainerPort represents a network port in a single container.",
    atomic: false,
    fields: &[
        Field { name: "containerPort", shape: Shape::Int32, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "Number of port to expose on the pod's IP address. This must be a valid port number, 0 < x < 65536." },
        Field { name: "hostIP", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[5], embedded: None, go_type: None, description: "What host IP to bind the external port to." },
        Field { name: "hostPort", shape: Shape::Int32, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "Number of port to expose on the host. If specified, this must be a valid port number, 0 < x < 65536. If HostNetwork is specified, this must match ContainerPort. Most containers do not need this." },
        Field { name: "name", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "If specified, this must be an IANA_SVC_NAME and unique within the pod. Each named port in a pod must have a unique name. Name for the port that can be referred to by services." },
        Field { name: "protocol", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: Some("\"TCP\""), patch: Patch::Plain, proto: &[4], embedded: None, go_type: Some("v1.Protocol"), description: "Protocol for port. Must be UDP, TCP, or SCTP. Defaults to \"TCP\"." },
    ],
};

static CORE_V1_CONTAINERRESIZEPOLICY: Type = Type {
    name: "io.k8s.api.core.v1.ContainerResizePolicy",
    description: "ContainerResizePolicy represents resource resize policy for the container.",
    atomic: false,
    fields: &[
        Field { name: "resourceName", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: Some("v1.ResourceName"), description: "Name of the resource to which this resource resize policy applies. Supported values: cpu, memory." },
        Field { name: "restartPolicy", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: Some("v1.ResourceResizeRestartPolicy"), description: "Restart policy to apply when specified resource is resized. If not specified, it defaults to NotRequired." },
    ],
};

static CORE_V1_CONTAINERRESTARTRULE: Type = Type {
    name: "io.k8s.api.core.v1.ContainerRestartRule",
    description: "ContainerRestartRule describes how a container exit is handled.",
    atomic: false,
    fields: &[
        Field { name: "action", shape: Shape::String, required: true, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: Some("v1.ContainerRestartRuleAction"), description: "Specifies the action taken on a container exit if the requirements are satisfied. The only possible value is \"Restart\" to restart the container." },
        Field { name: "exitCodes", shape: Shape::Object(&CORE_V1_CONTAINERRESTARTRULEONEXITCODES), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "Represents the exit codes to check on container exits." },
    ],
};

static CORE_V1_CONTAINERRESTARTRULEONEXITCODES: Type = Type {
    name: "io.k8s.api.core.v1.ContainerRestartRuleOnExitCodes",
    description: "ContainerRestartRuleOnExitCodes describes the condition for handling an exited container based on its exit codes.",
    atomic: false,
    fields: &[
        Field { name: "operator", shape: Shape::String, required: true, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: Some("v1.ContainerRestartRuleOnExitCodesOperator"), description: "Represents the relationship between the container exit code(s) and the specified values. Possible values are: - In: the requirement is satisfied if the container exit code is in the\n  set of specified values.\n- NotIn: the requirement is satisfied if the container exit code is\n  not in the set of specified values." },
        Field { name: "values", shape: Shape::List(&Shape::Int32, Keys::Set), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "Specifies the set of values to check for container exit codes. At most 255 elements are allowed." },
    ],
};

static CORE_V1_CONTAINERSTATE: Type = Type {
    name: "io.k8s.api.core.v1.ContainerState",
    description: "ContainerState holds a possible state of container. Only one of its members may be specified. If none of them is specified, the default one is ContainerStateWaiting.",
    atomic: false,
    fields: &[
        Field { name: "running", shape: Shape::Object(&CORE_V1_CONTAINERSTATERUNNING), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "Details about a running container" },
        Field { name: "terminated", shape: Shape::Object(&CORE_V1_CONTAINERSTATETERMINATED), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "Details about a terminated container" },
        Field { name: "waiting", shape: Shape::Object(&CORE_V1_CONTAINERSTATEWAITING), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Details about a waiting container" },
    ],
};

static CORE_V1_CONTAINERSTATERUNNING: Type = Type {
    name: "io.k8s.api.core.v1.ContainerStateRunning",
    description: "ContainerStateRunning is a running state of a container.",
    atomic: false,
    fields: &[
        Field { name: "startedAt", shape: Shape::Time, required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Time at which the container was last (re-)started" },
    ],
};

static CORE_V1_CONTAINERSTATETERMINATED: Type = Type {
    name: "io.k8s.api.core.v1.ContainerStateTerminated",
    description: "ContainerStateTerminated is a terminated state of a container.",
    atomic: false,
    fields: &[
        Field { name: "containerID", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[7], embedded: None, go_type: None, description: "Container's ID in the format '<type>://<container_id>'" },
        Field { name: "exitCode", shape: Shape::Int32, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Exit status from the last termination of the container" },
        Field { name: "finishedAt", shape: Shape::Time, required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[6], embedded: None, go_type: None, description: "Time at which the container last terminated" },
        Field { name: "message", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "Message regarding the last termination of the container" },
        Field { name: "reason", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "(brief) reason from the last termination of the container" },
        Field { name: "signal", shape: Shape::Int32, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "Signal from the last termination of the container" },
        Field { name: "startedAt", shape: Shape::Time, required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[5], embedded: None, go_type: None, description: "Time at which previous execution of the container started" },
    ],
};

static CORE_V1_CONTAINERSTATEWAITING: Type = Type {
    name: "io.k8s.api.core.v1.ContainerStateWaiting",
    description: "ContainerStateWaiting is a waiting state of a container.",
    atomic: false,
    fields: &[
        Field { name: "message", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "Message regarding why the container is not yet running." },
        Field { name: "reason", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "(brief) reason the container is not yet running." },
    ],
};

static CORE_V1_CONTAINERSTATUS: Type = Type {
    name: "io.k8s.api.core.v1.ContainerStatus",
    description: "ContainerStatus contains details for the current status of this container.",
    atomic: false,
    fields: &[
        Field { name: "allocatedResources", shape: Shape::Map(&Shape::Quantity, MapKind::Granular), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[10], embedded: None, go_type: Some("v1.ResourceList"), description: "AllocatedResources represents the compute resources allocated for this container by the node. Kubelet sets this value to Container.Resources.Requests upon successful pod admission and after successfully admitting desired pod resize." },
        Field { name: "allocatedResourcesStatus", shape: Shape::List(&Shape::Object(&CORE_V1_RESOURCESTATUS), Keys::Fields(&["name"])), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Merge(Some("name")), proto: &[14], embedded: None, go_type: None, description: "AllocatedResourcesStatus represents the status of various resources allocated for this Pod." },
        Field { name: "containerID", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[8], embedded: None, go_type: None, description: "ContainerID is the ID of the container in the format '<type>://<container_id>'. Where type is a container runtime identifier, returned from Version call of CRI API (for example \"containerd\")." },
        Field { name: "image", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[6], embedded: None, go_type: None, description: "Image is the name of container image that the container is running. The container image may not match the image used in the PodSpec, as it may have been resolved by the runtime. More info: https://kubernetes.io/docs/concepts/containers/images." },
        Field { name: "imageID", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[7], embedded: None, go_type: None, description: "ImageID is the image ID of the container's image. The image ID may not match the image ID of the image used in the PodSpec, as it may have been resolved by the runtime." },
        Field { name: "lastState", shape: Shape::Object(&CORE_V1_CONTAINERSTATE), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "LastTerminationState holds the last termination state of the container to help debug container crashes and restarts. This field is not populated if the container is still running and RestartCount is 0." },
        Field { name: "name", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Name is a DNS_LABEL representing the unique name of the container. Each container in a pod must have a unique name across all container types. Cannot be updated." },
        Field { name: "ready", shape: Shape::Bool, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "Ready specifies whether the container is currently passing its readiness check. The value will change as readiness probes keep executing. If no readiness probes are specified, this field defaults to true once the container is fully started (see Started field).\n\nThe value is typically used to determine whether a container is ready to accept traffic." },
        Field { name: "resources", shape: Shape::Object(&CORE_V1_RESOURCEREQUIREMENTS), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[11], embedded: None, go_type: None, description: "Resources represents the compute resource requests and limits that have been successfully enacted on the running container after it has been started or has been successfully resized." },
        Field { name: "restartCount", shape: Shape::Int32, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[5], embedded: None, go_type: None, description: "RestartCount holds the number of times the container has been restarted. Kubelet makes an effort to always increment the value, but there are cases when the state may be lost due to node restarts and then the value may be reset to 0. The value is never negative." },
        Field { name: "started", shape: Shape::Bool, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[9], embedded: None, go_type: None, description: "Started indicates whether the container has finished its postStart lifecycle hook and passed its startup probe. Initialized as false, becomes true after startupProbe is considered successful. Resets to false when the container is restarted, or if kubelet loses state temporarily. In both cases, startup probes will run again. Is always true when no startupProbe is defined and container is running and has passed the postStart lifecycle hook. The null value must be treated the same as false." },
        Field { name: "state", shape: Shape::Object(&CORE_V1_CONTAINERSTATE), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "State holds details about the container's current condition." },
        Field { name: "stopSignal", shape: Shape::String, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[15], embedded: None, go_type: Some("v1.Signal"), description: "StopSignal reports the effective stop signal for this container" },
        Field { name: "user", shape: Shape::Object(&CORE_V1_CONTAINERUSER), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[13], embedded: None, go_type: None, description: "User represents user identity information initially attached to the first process of the container" },
        Field { name: "volumeMounts", shape: Shape::List(&Shape::Object(&CORE_V1_VOLUMEMOUNTSTATUS), Keys::Fields(&["mountPath"])), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Merge(Some("mountPath")), proto: &[12], embedded: None, go_type: None, description: "Status of volume mounts." },
    ],
};

static CORE_V1_CONTAINERUSER: Type = Type {
    name: "io.k8s.api.core.v1.ContainerUser",
    description: "ContainerUser represents user identity information",
    atomic: false,
    fields: &[
        Field { name: "linux", shape: Shape::Object(&CORE_V1_LINUXCONTAINERUSER), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Linux holds user identity information initially attached to the first process of the containers in Linux. Note that the actual running identity can be changed if the process has enough privilege to do so." },
    ],
};

static CORE_V1_DAEMONENDPOINT: Type = Type {
    name: "io.k8s.api.core.v1.DaemonEndpoint",
    description: "DaemonEndpoint contains information about a single Daemon endpoint.",
    atomic: false,
    fields: &[
        Field { name: "Port", shape: Shape::Int32, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Port number of the given endpoint." },
    ],
};

static CORE_V1_DOWNWARDAPIPROJECTION: Type = Type {
    name: "io.k8s.api.core.v1.DownwardAPIProjection",
    description: "Represents downward API info for projecting into a projected volume. Note that this is identical to a downwardAPI volume source without the default mode.",
    atomic: false,
    fields: &[
        Field { name: "items", shape: Shape::List(&Shape::Object(&CORE_V1_DOWNWARDAPIVOLUMEFILE), Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Items is a list of DownwardAPIVolume file" },
    ],
};

static CORE_V1_DOWNWARDAPIVOLUMEFILE: Type = Type {
    name: "io.k8s.api.core.v1.DownwardAPIVolumeFile",
    description: "DownwardAPIVolumeFile represents information to create the file containing the pod field",
    atomic: false,
    fields: &[
        Field { name: "fieldRef", shape: Shape::Object(&CORE_V1_OBJECTFIELDSELECTOR), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "Required: Selects a field of the pod: only annotations, labels, name, namespace and uid are supported." },
        Field { name: "mode", shape: Shape::Int32, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "Optional: mode bits used to set permissions on this file, must be an octal value between 0000 and 0777 or a decimal value between 0 and 511. YAML accepts both octal and decimal values, JSON requires decimal values for mode bits. If not specified, the volume defaultMode will be used. This might be in conflict with other options that affect the file mode, like fsGroup, and the result can be other mode bits set." },
        Field { name: "path", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Required: Path is  the relative path name of the file to be created. Must not be absolute or contain the '..' path. Must be utf-8 encoded. The first item of the relative path must not start with '..'" },
        Field { name: "resourceFieldRef", shape: Shape::Object(&CORE_V1_RESOURCEFIELDSELECTOR), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "Selects a resource of the container: only resources limits and requests (limits.cpu, limits.memory, requests.cpu and requests.memory) are currently supported." },
    ],
};

static CORE_V1_DOWNWARDAPIVOLUMESOURCE: Type = Type {
    name: "io.k8s.api.core.v1.DownwardAPIVolumeSource",
    description: "DownwardAPIVolumeSource represents a volume containing downward API info. Downward API volumes support ownership management and SELinux relabeling.",
    atomic: false,
    fields: &[
        Field { name: "defaultMode", shape: Shape::Int32, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "Optional: mode bits to use on created files by default. Must be a Optional: mode bits used to set permissions on created files by default. Must be an octal value between 0000 and 0777 or a decimal value between 0 and 511. YAML accepts both octal and decimal values, JSON requires decimal values for mode bits. Defaults to 0644. Directories within the path are not affected by this setting. This might be in conflict with other options that affect the file mode, like fsGroup, and the result can be other mode bits set." },
        Field { name: "items", shape: Shape::List(&Shape::Object(&CORE_V1_DOWNWARDAPIVOLUMEFILE), Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Items is a list of downward API volume file" },
    ],
};

static CORE_V1_EMPTYDIRVOLUMESOURCE: Type = Type {
    name: "io.k8s.api.core.v1.EmptyDirVolumeSource",
    description: "Represents an empty directory for a pod. Empty directory volumes support ownership management and SELinux relabeling.",
    atomic: false,
    fields: &[
        Field { name: "medium", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: Some("v1.StorageMedium"), description: "medium represents what type of storage medium should back this directory. The default is \"\" which means to use the node's default medium. Must be an empty string (default) or Memory. More info: https://kubernetes.io/docs/concepts/storage/volumes#emptydir" },
        Field { name: "sizeLimit", shape: Shape::Quantity, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "sizeLimit is the total amount of local storage required for this EmptyDir volume. The size limit is also applicable for memory medium. The maximum usage on memory medium EmptyDir would be the minimum value between the SizeLimit specified here and the sum of memory limits of all containers in a pod. The default is nil which means that the limit is undefined. More info: https://kubernetes.io/docs/concepts/storage/volumes#emptydir" },
    ],
};

static CORE_V1_ENDPOINTADDRESS: Type = Type {
    name: "io.k8s.api.core.v1.EndpointAddress",
    description: "EndpointAddress is a tuple that describes single IP address. Deprecated: This API is deprecated in v1.33+.",
    atomic: true,
    fields: &[
        Field { name: "hostname", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "The Hostname of this endpoint" },
        Field { name: "ip", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "The IP of this endpoint. May not be loopback (127.0.0.0/8 or ::1), link-local (169.254.0.0/16 or fe80::/10), or link-local multicast (224.0.0.0/24 or ff02::/16)." },
        Field { name: "nodeName", shape: Shape::String, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "Optional: Node hosting this endpoint. This can be used to determine endpoints local to a node." },
        Field { name: "targetRef", shape: Shape::Object(&CORE_V1_OBJECTREFERENCE), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "Reference to object providing the endpoint." },
    ],
};

static CORE_V1_ENDPOINTPORT: Type = Type {
    name: "io.k8s.api.core.v1.EndpointPort",
    description: "EndpointPort is a tuple that describes a single port. Deprecated: This API is deprecated in v1.33+.",
    atomic: true,
    fields: &[
        Field { name: "appProtocol", shape: Shape::String, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "The application protocol for this port. This is used as a hint for implementations to offer richer behavior for protocols that they understand. This field follows standard Kubernetes label syntax. Valid values are either:\n\n* Un-prefixed protocol names - reserved for IANA standard service names (as per RFC-6335 and https://www.iana.org/assignments/service-names).\n\n* Kubernetes-defined prefixed names:\n  * 'kubernetes.io/h2c' - HTTP/2 prior knowledge over cleartext as described in https://www.rfc-editor.org/rfc/rfc9113.html#name-starting-http-2-with-prior-\n  * 'kubernetes.io/ws'  - WebSocket over cleartext as described in https://www.rfc-editor.org/rfc/rfc6455\n  * 'kubernetes.io/wss' - WebSocket over TLS as described in https://www.rfc-editor.org/rfc/rfc6455\n\n* Other protocols should use implementation-defined prefixed names such as mycompany.com/my-custom-protocol." },
        Field { name: "name", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "The name of this port.  This must match the 'name' field in the corresponding ServicePort. Must be a DNS_LABEL. Optional only if one port is defined." },
        Field { name: "port", shape: Shape::Int32, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "The port number of the endpoint." },
        Field { name: "protocol", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: Some("v1.Protocol"), description: "The IP protocol for this port. Must be UDP, TCP, or SCTP. Default is TCP." },
    ],
};

static CORE_V1_ENDPOINTSUBSET: Type = Type {
    name: "io.k8s.api.core.v1.EndpointSubset",
    description: "EndpointSubset is a group of addresses with a common set of ports. The expanded set of endpoints is the Cartesian product of Addresses x Ports. For example, given:\n\n\t{\n\t  Addresses: [{\"ip\": \"10.10.1.1\"}, {\"ip\": \"10.10.2.2\"}],\n\t  Ports:     [{\"name\": \"a\", \"port\": 8675}, {\"name\": \"b\", \"port\": 309}]\n\t}\n\nThe resulting set of endpoints can be viewed as:\n\n\ta: [ 10.10.1.1:8675, 10.10.2.2:8675 ],\n\tb: [ 10.10.1.1:309, 10.10.2.2:309 ]\n\nDeprecated: This API is deprecated in v1.33+.",
    atomic: false,
    fields: &[
        Field { name: "addresses", shape: Shape::List(&Shape::Object(&CORE_V1_ENDPOINTADDRESS), Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "IP addresses which offer the related ports that are marked as ready. These endpoints should be considered safe for load balancers and clients to utilize." },
        Field { name: "notReadyAddresses", shape: Shape::List(&Shape::Object(&CORE_V1_ENDPOINTADDRESS), Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "IP addresses which offer the related ports but are not currently marked as ready because they have not yet finished starting, have recently failed a readiness check, or have recently failed a liveness check." },
        Field { name: "ports", shape: Shape::List(&Shape::Object(&CORE_V1_ENDPOINTPORT), Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "Port numbers available on the related IP addresses." },
    ],
};

static CORE_V1_ENDPOINTS: Type = Type {
    name: "io.k8s.api.core.v1.Endpoints",
    description: "Endpoints is a collection of endpoints that implement the actual service. Example:\n\n\t Name: \"mysvc\",\n\t Subsets: [\n\t   {\n\t     Addresses: [{\"ip\": \"10.10.1.1\"}, {\"ip\": \"10.10.2.2\"}],\n\t     Ports: [{\"name\": \"a\", \"port\": 8675}, {\"name\": \"b\", \"port\": 309}]\n\t   },\n\t   {\n\t     Addresses: [{\"ip\": \"10.10.3.3\"}],\n\t     Ports: [{\"name\": \"a\", \"port\": 93}, {\"name\": \"b\", \"port\": 76}]\n\t   },\n\t]\n\nEndpoints is a legacy API and does not contain information about all Service features. Use discoveryv1.EndpointSlice for complete information about Service endpoints.\n\nDeprecated: This API is deprecated in v1.33+. Use discoveryv1.EndpointSlice.",
    atomic: false,
    fields: &[
        Field { name: "apiVersion", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[], embedded: None, go_type: None, description: "APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized schemas to the latest internal value, and may reject unrecognized values. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources" },
        Field { name: "kind", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[], embedded: None, go_type: None, description: "Kind is a string value representing the REST resource this object represents. Servers may infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds" },
        Field { name: "metadata", shape: Shape::Object(&META_V1_OBJECTMETA), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata" },
        Field { name: "subsets", shape: Shape::List(&Shape::Object(&CORE_V1_ENDPOINTSUBSET), Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "The set of all endpoints is the union of all subsets. Addresses are placed into subsets according to the IPs they share. A single address with multiple ports, some of which are ready and some of which are not (because they come from different containers) will result in the address being displayed in different subsets for the different ports. No address will appear in both Addresses and NotReadyAddresses in the same subset. Sets of addresses and ports that comprise a service." },
    ],
};

static CORE_V1_ENVFROMSOURCE: Type = Type {
    name: "io.k8s.api.core.v1.EnvFromSource",
    description: "EnvFromSource represents the source of a set of ConfigMaps or Secrets",
    atomic: false,
    fields: &[
        Field { name: "configMapRef", shape: Shape::Object(&CORE_V1_CONFIGMAPENVSOURCE), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "The ConfigMap to select from" },
        Field { name: "prefix", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Optional text to prepend to the name of each environment variable. May consist of any printable ASCII characters except '='." },
        Field { name: "secretRef", shape: Shape::Object(&CORE_V1_SECRETENVSOURCE), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "The Secret to select from" },
    ],
};

static CORE_V1_ENVVAR: Type = Type {
    name: "io.k8s.api.core.v1.EnvVar",
    description: "EnvVar represents an environment variable present in a Container.",
    atomic: false,
    fields: &[
        Field { name: "name", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Name of the environment variable. May consist of any printable ASCII characters except '='." },
        Field { name: "value", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "Variable references $(VAR_NAME) are expanded using the previously defined environment variables in the container and any service environment variables. If a variable cannot be resolved, the reference in the input string will be unchanged. Double $$ are reduced to a single $, which allows for escaping the $(VAR_NAME) syntax: i.e. \"$$(VAR_NAME)\" will produce the string literal \"$(VAR_NAME)\". Escaped references will never be expanded, regardless of whether the variable exists or not. Defaults to \"\"." },
        Field { name: "valueFrom", shape: Shape::Object(&CORE_V1_ENVVARSOURCE), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "Source for the environment variable's value. Cannot be used if value is not empty." },
    ],
};

static CORE_V1_ENVVARSOURCE: Type = Type {
    name: "io.k8s.api.core.v1.EnvVarSource",
    description: "EnvVarSource represents a source for the value of an EnvVar.",
    atomic: false,
    fields: &[
        Field { name: "configMapKeyRef", shape: Shape::Object(&CORE_V1_CONFIGMAPKEYSELECTOR), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "Selects a key of a ConfigMap." },
        Field { name: "fieldRef", shape: Shape::Object(&CORE_V1_OBJECTFIELDSELECTOR), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Selects a field of the pod: supports metadata.name, metadata.namespace, `metadata.labels['<KEY>']`, `metadata.annotations['<KEY>']`, spec.nodeName, spec.serviceAccountName, status.hostIP, status.podIP, status.podIPs." },
        Field { name: "fileKeyRef", shape: Shape::Object(&CORE_V1_FILEKEYSELECTOR), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[5], embedded: None, go_type: None, description: "FileKeyRef selects a key of the env file. Requires the EnvFiles feature gate to be enabled." },
        Field { name: "resourceFieldRef", shape: Shape::Object(&CORE_V1_RESOURCEFIELDSELECTOR), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "Selects a resource of the container: only resources limits and requests (limits.cpu, limits.memory, limits.ephemeral-storage, requests.cpu, requests.memory and requests.ephemeral-storage) are currently supported." },
        Field { name: "secretKeyRef", shape: Shape::Object(&CORE_V1_SECRETKEYSELECTOR), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "Selects a key of a secret in the pod's namespace" },
    ],
};

static CORE_V1_EPHEMERALCONTAINER: Type = Type {
    name: "io.k8s.api.core.v1.EphemeralContainer",
    description: "An EphemeralContainer is a temporary container that you may add to an existing Pod for user-initiated activities such as debugging. Ephemeral containers have no resource or scheduling guarantees, and they will not be restarted when they exit or when a Pod is removed or restarted. The kubelet may evict a Pod if an ephemeral container causes the Pod to exceed its resource allocation.\n\nTo add an ephemeral container, use the ephemeralcontainers subresource of an existing Pod. Ephemeral containers may not be removed or restarted.",
    atomic: false,
    fields: &[
        Field { name: "args", shape: Shape::List(&Shape::String, Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[1, 4], embedded: Some("EphemeralContainerCommon"), go_type: None, description: "Arguments to the entrypoint. The image's CMD is used if this is not provided. Variable references $(VAR_NAME) are expanded using the container's environment. If a variable cannot be resolved, the reference in the input string will be unchanged. Double $$ are reduced to a single $, which allows for escaping the $(VAR_NAME) syntax: i.e. \"$$(VAR_NAME)\" will produce the string literal \"$(VAR_NAME)\". Escaped references will never be expanded, regardless of whether the variable exists or not. Cannot be updated. More info: https://kubernetes.io/docs/tasks/inject-data-application/define-command-argument-container/#running-a-command-in-a-shell" },
        Field { name: "command", shape: Shape::List(&Shape::String, Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[1, 3], embedded: Some("EphemeralContainerCommon"), go_type: None, description: "Entrypoint array. Not executed within a shell. The image's ENTRYPOINT is used if this is not provided. Variable references $(VAR_NAME) are expanded using the container's environment. If a variable cannot be resolved, the reference in the input string will be unchanged. Double $$ are reduced to a single $, which allows for escaping the $(VAR_NAME) syntax: i.e. \"$$(VAR_NAME)\" will produce the string literal \"$(VAR_NAME)\". Escaped references will never be expanded, regardless of whether the variable exists or not. Cannot be updated. More info: https://kubernetes.io/docs/tasks/inject-data-application/define-command-argument-container/#running-a-command-in-a-shell" },
        Field { name: "env", shape: Shape::List(&Shape::Object(&CORE_V1_ENVVAR), Keys::Fields(&["name"])), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Merge(Some("name")), proto: &[1, 7], embedded: Some("EphemeralContainerCommon"), go_type: None, description: "List of environment variables to set in the container. Cannot be updated." },
        Field { name: "envFrom", shape: Shape::List(&Shape::Object(&CORE_V1_ENVFROMSOURCE), Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[1, 19], embedded: Some("EphemeralContainerCommon"), go_type: None, description: "List of sources to populate environment variables in the container. The keys defined within a source may consist of any printable ASCII characters except '='. When a key exists in multiple sources, the value associated with the last source will take precedence. Values defined by an Env with a duplicate key will take precedence. Cannot be updated." },
        Field { name: "image", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[1, 2], embedded: Some("EphemeralContainerCommon"), go_type: None, description: "Container image name. More info: https://kubernetes.io/docs/concepts/containers/images" },
        Field { name: "imagePullPolicy", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[1, 14], embedded: Some("EphemeralContainerCommon"), go_type: Some("v1.PullPolicy"), description: "Image pull policy. One of Always, Never, IfNotPresent. Defaults to Always if :latest tag is specified, or IfNotPresent otherwise. Cannot be updated. More info: https://kubernetes.io/docs/concepts/containers/images#updating-images" },
        Field { name: "lifecycle", shape: Shape::Object(&CORE_V1_LIFECYCLE), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[1, 12], embedded: Some("EphemeralContainerCommon"), go_type: None, description: "Lifecycle is not allowed for ephemeral containers." },
        Field { name: "livenessProbe", shape: Shape::Object(&CORE_V1_PROBE), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[1, 10], embedded: Some("EphemeralContainerCommon"), go_type: None, description: "Probes are not allowed for ephemeral containers." },
        Field { name: "name", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1, 1], embedded: Some("EphemeralContainerCommon"), go_type: None, description: "Name of the ephemeral container specified as a DNS_LABEL. This name must be unique among all containers, init containers and ephemeral containers." },
        Field { name: "ports", shape: Shape::List(&Shape::Object(&CORE_V1_CONTAINERPORT), Keys::Fields(&["containerPort", "protocol"])), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Merge(Some("containerPort")), proto: &[1, 6], embedded: Some("EphemeralContainerCommon"), go_type: None, description: "Ports are not allowed for ephemeral containers." },
        Field { name: "readinessProbe", shape: Shape::Object(&CORE_V1_PROBE), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[1, 11], embedded: Some("EphemeralContainerCommon"), go_type: None, description: "Probes are not allowed for ephemeral containers." },
        Field { name: "resizePolicy", shape: Shape::List(&Shape::Object(&CORE_V1_CONTAINERRESIZEPOLICY), Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[1, 23], embedded: Some("EphemeralContainerCommon"), go_type: None, description: "Resources resize policy for the container." },
        Field { name: "resources", shape: Shape::Object(&CORE_V1_RESOURCEREQUIREMENTS), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1, 8], embedded: Some("EphemeralContainerCommon"), go_type: None, description: "Resources are not allowed for ephemeral containers. Ephemeral containers use spare resources already allocated to the pod." },
        Field { name: "restartPolicy", shape: Shape::String, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[1, 24], embedded: Some("EphemeralContainerCommon"), go_type: Some("v1.ContainerRestartPolicy"), description: "Restart policy for the container to manage the restart behavior of each container within a pod. You cannot set this field on ephemeral containers." },
        Field { name: "restartPolicyRules", shape: Shape::List(&Shape::Object(&CORE_V1_CONTAINERRESTARTRULE), Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[1, 25], embedded: Some("EphemeralContainerCommon"), go_type: None, description: "Represents a list of rules to be checked to determine if the container should be restarted on exit. You cannot set this field on ephemeral containers." },
        Field { name: "securityContext", shape: Shape::Object(&CORE_V1_SECURITYCONTEXT), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[1, 15], embedded: Some("EphemeralContainerCommon"), go_type: None, description: "Optional: SecurityContext defines the security options the ephemeral container should be run with. If set, the fields of SecurityContext override the equivalent fields of PodSecurityContext." },
        Field { name: "startupProbe", shape: Shape::Object(&CORE_V1_PROBE), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[1, 22], embedded: Some("EphemeralContainerCommon"), go_type: None, description: "Probes are not allowed for ephemeral containers." },
        Field { name: "stdin", shape: Shape::Bool, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[1, 16], embedded: Some("EphemeralContainerCommon"), go_type: None, description: "Whether this container should allocate a buffer for stdin in the container runtime. If this is not set, reads from stdin in the container will always result in EOF. Default is false." },
        Field { name: "stdinOnce", shape: Shape::Bool, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[1, 17], embedded: Some("EphemeralContainerCommon"), go_type: None, description: "Whether the container runtime should close the stdin channel after it has been opened by a single attach. When stdin is true the stdin stream will remain open across multiple attach sessions. If stdinOnce is set to true, stdin is opened on container start, is empty until the first client attaches to stdin, and then remains open and accepts data until the client disconnects, at which time stdin is closed and remains closed until the container is restarted. If this flag is false, a container processes that reads from stdin will never receive an EOF. Default is false" },
        Field { name: "targetContainerName", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "If set, the name of the container from PodSpec that this ephemeral container targets. The ephemeral container will be run in the namespaces (IPC, PID, etc) of this container. If not set then the ephemeral container uses the namespaces configured in the Pod spec.\n\nThe container runtime must implement support for this feature. If the runtime does not support namespace targeting then the result of setting this field is undefined." },
        Field { name: "terminationMessagePath", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[1, 13], embedded: Some("EphemeralContainerCommon"), go_type: None, description: "Optional: Path at which the file to which the container's termination message will be written is mounted into the container's filesystem. Message written is intended to be brief final status, such as an assertion failure message. Will be truncated by the node if greater than 4096 bytes. The total message length across all containers will be limited to 12kb. Defaults to /dev/termination-log. Cannot be updated." },
        Field { name: "terminationMessagePolicy", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[1, 20], embedded: Some("EphemeralContainerCommon"), go_type: Some("v1.TerminationMessagePolicy"), description: "Indicate how the termination message should be populated. File will use the contents of terminationMessagePath to populate the container status message on both success and failure. FallbackToLogsOnError will use the last chunk of container log output if the termination message file is empty and the container exited with an error. The log output is limited to 2048 bytes or 80 lines, whichever is smaller. Defaults to File. Cannot be updated." },
        Field { name: "tty", shape: Shape::Bool, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[1, 18], embedded: Some("EphemeralContainerCommon"), go_type: None, description: "Whether this container should allocate a TTY for itself, also requires 'stdin' to be true. Default is false." },
        Field { name: "volumeDevices", shape: Shape::List(&Shape::Object(&CORE_V1_VOLUMEDEVICE), Keys::Fields(&["devicePath"])), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Merge(Some("devicePath")), proto: &[1, 21], embedded: Some("EphemeralContainerCommon"), go_type: None, description: "volumeDevices is the list of block devices to be used by the container." },
        Field { name: "volumeMounts", shape: Shape::List(&Shape::Object(&CORE_V1_VOLUMEMOUNT), Keys::Fields(&["mountPath"])), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Merge(Some("mountPath")), proto: &[1, 9], embedded: Some("EphemeralContainerCommon"), go_type: None, description: "Pod volumes to mount into the container's filesystem. Subpath mounts are not allowed for ephemeral containers. Cannot be updated." },
        Field { name: "workingDir", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[1, 5], embedded: Some("EphemeralContainerCommon"), go_type: None, description: "Container's working directory. If not specified, the container runtime's default will be used, which might be configured in the container image. Cannot be updated." },
    ],
};

static CORE_V1_EPHEMERALVOLUMESOURCE: Type = Type {
    name: "io.k8s.api.core.v1.EphemeralVolumeSource",
    description: "Represents an ephemeral volume that is handled by a normal storage driver.",
    atomic: false,
    fields: &[
        Field { name: "volumeClaimTemplate", shape: Shape::Object(&CORE_V1_PERSISTENTVOLUMECLAIMTEMPLATE), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Will be used to create a stand-alone PVC to provision the volume. The pod in which this EphemeralVolumeSource is embedded will be the owner of the PVC, i.e. the PVC will be deleted together with the pod.  The name of the PVC will be `<pod name>-<volume name>` where `<volume name>` is the name from the `PodSpec.Volumes` array entry. Pod validation will reject the pod if the concatenated name is not valid for a PVC (for example, too long).\n\nAn existing PVC with that name that is not owned by the pod will *not* be used for the pod to avoid using an unrelated volume by mistake. Starting the pod is then blocked until the unrelated PVC is removed. If such a pre-created PVC is meant to be used by the pod, the PVC has to updated with an owner reference to the pod once the pod exists. Normally this should not be necessary, but it may be useful when manually reconstructing a broken cluster.\n\nThis field is read-only and no changes will be made by Kubernetes to the PVC after it has been created.\n\nRequired, must not be nil." },
    ],
};

static CORE_V1_EVENT: Type = Type {
    name: "io.k8s.api.core.v1.Event",
    description: "Event is a report of an event somewhere in the cluster.  Events have a limited retention time and triggers and messages may evolve with time.  Event consumers should not rely on the timing of an event with a given Reason reflecting a consistent underlying trigger, or the continued existence of events with that Reason.  Events should be treated as informative, best-effort, supplemental data.",
    atomic: false,
    fields: &[
        Field { name: "action", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[12], embedded: None, go_type: None, description: "What action was taken/failed regarding to the Regarding object." },
        Field { name: "apiVersion", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[], embedded: None, go_type: None, description: "APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized schemas to the latest internal value, and may reject unrecognized values. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources" },
        Field { name: "count", shape: Shape::Int32, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[8], embedded: None, go_type: None, description: "The number of times this event has occurred." },
        Field { name: "eventTime", shape: Shape::MicroTime, required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[10], embedded: None, go_type: None, description: "Time when this Event was first observed." },
        Field { name: "firstTimestamp", shape: Shape::Time, required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[6], embedded: None, go_type: None, description: "The time at which the event was first recorded. (Time of server receipt is in TypeMeta.)" },
        Field { name: "involvedObject", shape: Shape::Object(&CORE_V1_OBJECTREFERENCE), required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "The object that this event is about." },
        Field { name: "kind", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[], embedded: None, go_type: None, description: "Kind is a string value representing the REST resource this object represents. Servers may infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds" },
        Field { name: "lastTimestamp", shape: Shape::Time, required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[7], embedded: None, go_type: None, description: "The time at which the most recent occurrence of this event was recorded." },
        Field { name: "message", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "A human-readable description of the status of this operation." },
        Field { name: "metadata", shape: Shape::Object(&META_V1_OBJECTMETA), required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata" },
        Field { name: "reason", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "This should be a short, machine understandable string that gives the reason for the transition into the object's current status." },
        Field { name: "related", shape: Shape::Object(&CORE_V1_OBJECTREFERENCE), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[13], embedded: None, go_type: None, description: "Optional secondary object for more complex actions." },
        Field { name: "reportingComponent", shape: Shape::String, required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[14], embedded: None, go_type: None, description: "Name of the controller that emitted this Event, e.g. `kubernetes.io/kubelet`." },
        Field { name: "reportingInstance", shape: Shape::String, required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[15], embedded: None, go_type: None, description: "ID of the controller instance, e.g. `kubelet-xyzf`." },
        Field { name: "series", shape: Shape::Object(&CORE_V1_EVENTSERIES), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[11], embedded: None, go_type: None, description: "Data about the Event series this event represents or nil if it's a singleton Event." },
        Field { name: "source", shape: Shape::Object(&CORE_V1_EVENTSOURCE), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[5], embedded: None, go_type: None, description: "The component reporting this event. Should be a short machine understandable string." },
        Field { name: "type", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[9], embedded: None, go_type: None, description: "Type of this event (Normal, Warning), new types could be added in the future" },
    ],
};

static CORE_V1_EVENTSERIES: Type = Type {
    name: "io.k8s.api.core.v1.EventSeries",
    description: "EventSeries contain information on series of events, i.e. thing that was/is happening continuously for some time.",
    atomic: false,
    fields: &[
        Field { name: "count", shape: Shape::Int32, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Number of occurrences in this series up to the last heartbeat time" },
        Field { name: "lastObservedTime", shape: Shape::MicroTime, required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "Time of the last occurrence observed" },
    ],
};

static CORE_V1_EVENTSOURCE: Type = Type {
    name: "io.k8s.api.core.v1.EventSource",
    description: "EventSource contains information for an event.",
    atomic: false,
    fields: &[
        Field { name: "component", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Component from which the event is generated." },
        Field { name: "host", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "Node name on which the event is generated." },
    ],
};

static CORE_V1_EXECACTION: Type = Type {
    name: "io.k8s.api.core.v1.ExecAction",
    description: "ExecAction describes a \"run in container\" action.",
    atomic: false,
    fields: &[
        Field { name: "command", shape: Shape::List(&Shape::String, Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Command is the command line to execute inside the container, the working directory for the command  is root ('/') in the container's filesystem. The command is simply exec'd, it is not run inside a shell, so traditional shell instructions ('|', etc) won't work. To use a shell, you need to explicitly call out to that shell. Exit status of 0 is treated as live/healthy and non-zero is unhealthy." },
    ],
};

static CORE_V1_FCVOLUMESOURCE: Type = Type {
    name: "io.k8s.api.core.v1.FCVolumeSource",
    description: "Represents a Fibre Channel volume. Fibre Channel volumes can only be mounted as read/write once. Fibre Channel volumes support ownership management and SELinux relabeling.",
    atomic: false,
    fields: &[
        Field { name: "fsType", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "fsType is the filesystem type to mount. Must be a filesystem type supported by the host operating system. Ex. \"ext4\", \"xfs\", \"ntfs\". Implicitly inferred to be \"ext4\" if unspecified." },
        Field { name: "lun", shape: Shape::Int32, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "lun is Optional: FC target lun number" },
        Field { name: "readOnly", shape: Shape::Bool, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "readOnly is Optional: Defaults to false (read/write). ReadOnly here will force the ReadOnly setting in VolumeMounts." },
        Field { name: "targetWWNs", shape: Shape::List(&Shape::String, Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "targetWWNs is Optional: FC target worldwide names (WWNs)" },
        Field { name: "wwids", shape: Shape::List(&Shape::String, Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[5], embedded: None, go_type: None, description: "wwids Optional: FC volume world wide identifiers (wwids) Either wwids or combination of targetWWNs and lun must be set, but not both simultaneously." },
    ],
};

static CORE_V1_FILEKEYSELECTOR: Type = Type {
    name: "io.k8s.api.core.v1.FileKeySelector",
    description: "FileKeySelector selects a key of the env file.",
    atomic: true,
    fields: &[
        Field { name: "key", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "The key within the env file. An invalid key will prevent the pod from starting. The keys defined within a source may consist of any printable ASCII characters except '='. During Alpha stage of the EnvFiles feature gate, the key size is limited to 128 characters." },
        Field { name: "optional", shape: Shape::Bool, required: false, presence: Presence::Set, default: Some("false"), patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "Specify whether the file or its key must be defined. If the file or key does not exist, then the env var is not published. If optional is set to true and the specified key does not exist, the environment variable will not be set in the Pod's containers.\n\nIf optional is set to false and the specified key does not exist, an error will be returned during Pod creation." },
        Field { name: "path", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "The path within the volume from which to select the file. Must be relative and may not contain the '..' path or start with '..'." },
        Field { name: "volumeName", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "The name of the volume mount containing the env file." },
    ],
};

static CORE_V1_FLEXVOLUMESOURCE: Type = Type {
    name: "io.k8s.api.core.v1.FlexVolumeSource",
    description: "FlexVolume represents a generic volume resource that is provisioned/attached using an exec based plugin.",
    atomic: false,
    fields: &[
        Field { name: "driver", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "driver is the name of the driver to use for this volume." },
        Field { name: "fsType", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "fsType is the filesystem type to mount. Must be a filesystem type supported by the host operating system. Ex. \"ext4\", \"xfs\", \"ntfs\". The default filesystem depends on FlexVolume script." },
        Field { name: "options", shape: Shape::Map(&Shape::String, MapKind::Granular), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[5], embedded: None, go_type: None, description: "options is Optional: this field holds extra command options if any." },
        Field { name: "readOnly", shape: Shape::Bool, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "readOnly is Optional: defaults to false (read/write). ReadOnly here will force the ReadOnly setting in VolumeMounts." },
        Field { name: "secretRef", shape: Shape::Object(&CORE_V1_LOCALOBJECTREFERENCE), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "secretRef is Optional: secretRef is reference to the secret object containing sensitive information to pass to the plugin scripts. This may be empty if no secret object is specified. If the secret object contains more than one secret, all secrets are passed to the plugin scripts." },
    ],
};

static CORE_V1_FLOCKERVOLUMESOURCE: Type = Type {
    name: "io.k8s.api.core.v1.FlockerVolumeSource",
    description: "Represents a Flocker volume mounted by the Flocker agent. One and only one of datasetName and datasetUUID should be set. Flocker volumes do not support ownership management or SELinux relabeling.",
    atomic: false,
    fields: &[
        Field { name: "datasetName", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "datasetName is Name of the dataset stored as metadata -> name on the dataset for Flocker should be considered as deprecated" },
        Field { name: "datasetUUID", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "datasetUUID is the UUID of the dataset. This is unique identifier of a Flocker dataset" },
    ],
};

static CORE_V1_GCEPERSISTENTDISKVOLUMESOURCE: Type = Type {
    name: "io.k8s.api.core.v1.GCEPersistentDiskVolumeSource",
    description: "Represents a Persistent Disk resource in Google Compute Engine.\n\nA GCE PD must exist before mounting to a container. The disk must also be in the same GCE project and zone as the kubelet. A GCE PD can only be mounted as read/write once or read-only many times. GCE PDs support ownership management and SELinux relabeling.",
    atomic: false,
    fields: &[
        Field { name: "fsType", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "fsType is filesystem type of the volume that you want to mount. Tip: Ensure that the filesystem type is supported by the host operating system. Examples: \"ext4\", \"xfs\", \"ntfs\". Implicitly inferred to be \"ext4\" if unspecified. More info: https://kubernetes.io/docs/concepts/storage/volumes#gcepersistentdisk" },
        Field { name: "partition", shape: Shape::Int32, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "partition is the partition in the volume that you want to mount. If omitted, the default is to mount by volume name. Examples: For volume /dev/sda1, you specify the partition as \"1\". Similarly, the volume partition for /dev/sda is \"0\" (or you can leave the property empty). More info: https://kubernetes.io/docs/concepts/storage/volumes#gcepersistentdisk" },
        Field { name: "pdName", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "pdName is unique name of the PD resource in GCE. Used to identify the disk in GCE. More info: https://kubernetes.io/docs/concepts/storage/volumes#gcepersistentdisk" },
        Field { name: "readOnly", shape: Shape::Bool, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "readOnly here will force the ReadOnly setting in VolumeMounts. Defaults to false. More info: https://kubernetes.io/docs/concepts/storage/volumes#gcepersistentdisk" },
    ],
};

static CORE_V1_GRPCACTION: Type = Type {
    name: "io.k8s.api.core.v1.GRPCAction",
    description: "GRPCAction specifies an action involving a GRPC service.",
    atomic: false,
    fields: &[
        Field { name: "port", shape: Shape::Int32, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Port number of the gRPC service. Number must be in the range 1 to 65535." },
        Field { name: "service", shape: Shape::String, required: false, presence: Presence::OrNull, default: Some("\"\""), patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "Service is the name of the service to place in the gRPC HealthCheckRequest (see https://github.com/grpc/grpc/blob/master/doc/health-checking.md).\n\nIf this is not specified, the default behavior is defined by gRPC." },
    ],
};

static CORE_V1_GITREPOVOLUMESOURCE: Type = Type {
    name: "io.k8s.api.core.v1.GitRepoVolumeSource",
    description: "Represents a volume that is populated with the contents of a git repository. Git repo volumes do not support ownership management. Git repo volumes support SELinux relabeling.\n\nDEPRECATED: GitRepo is deprecated. To provision a container with a git repo, mount an EmptyDir into an InitContainer that clones the repo using git, then mount the EmptyDir into the Pod's container.",
    atomic: false,
    fields: &[
        Field { name: "directory", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "directory is the target directory name. Must not contain or start with '..'.  If '.' is supplied, the volume directory will be the git repository.  Otherwise, if specified, the volume will contain the git repository in the subdirectory with the given name." },
        Field { name: "repository", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "repository is the URL" },
        Field { name: "revision", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "revision is the commit hash for the specified revision." },
    ],
};

static CORE_V1_GLUSTERFSVOLUMESOURCE: Type = Type {
    name: "io.k8s.api.core.v1.GlusterfsVolumeSource",
    description: "Represents a Glusterfs mount that lasts the lifetime of a pod. Glusterfs volumes do not support ownership management or SELinux relabeling.",
    atomic: false,
    fields: &[
        Field { name: "endpoints", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "endpoints is the endpoint name that details Glusterfs topology." },
        Field { name: "path", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "path is the Glusterfs volume path. More info: https://examples.k8s.io/volumes/glusterfs/README.md#create-a-pod" },
        Field { name: "readOnly", shape: Shape::Bool, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "readOnly here will force the Glusterfs volume to be mounted with read-only permissions. Defaults to false. More info: https://examples.k8s.io/volumes/glusterfs/README.md#create-a-pod" },
    ],
};

static CORE_V1_HTTPGETACTION: Type = Type {
    name: "io.k8s.api.core.v1.HTTPGetAction",
    description: "HTTPGetAction describes an action based on HTTP Get requests.",
    atomic: false,
    fields: &[
        Field { name: "host", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "Host name to connect to, defaults to the pod IP. You probably want to set \"Host\" in httpHeaders instead." },
        Field { name: "httpHeaders", shape: Shape::List(&Shape::Object(&CORE_V1_HTTPHEADER), Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[5], embedded: None, go_type: None, description: "Custom headers to set in the request. HTTP allows repeated headers." },
        Field { name: "path", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Path to access on the HTTP server." },
        Field { name: "port", shape: Shape::IntOrString, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "Name or number of the port to access on the container. Number must be in the range 1 to 65535. Name must be an IANA_SVC_NAME." },
        Field { name: "scheme", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: Some("v1.URIScheme"), description: "Scheme to use for connecting to the host. Defaults to HTTP." },
    ],
};

static CORE_V1_HTTPHEADER: Type = Type {
    name: "io.k8s.api.core.v1.HTTPHeader",
    description: "HTTPHeader describes a custom header to be used in HTTP probes",
    atomic: false,
    fields: &[
        Field { name: "name", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "The header field name. This will be canonicalized upon output, so case-variant names will be understood as the same header." },
        Field { name: "value", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "The header field value" },
    ],
};

static CORE_V1_HOSTALIAS: Type = Type {
    name: "io.k8s.api.core.v1.HostAlias",
    description: "HostAlias holds the mapping between IP and hostnames that will be injected as an entry in the pod's hosts file.",
    atomic: false,
    fields: &[
        Field { name: "hostnames", shape: Shape::List(&Shape::String, Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "Hostnames for the above IP address." },
        Field { name: "ip", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "IP address of the host file entry." },
    ],
};

static CORE_V1_HOSTIP: Type = Type {
    name: "io.k8s.api.core.v1.HostIP",
    description: "HostIP represents a single IP address allocated to the host.",
    atomic: false,
    fields: &[
        Field { name: "ip", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "IP is the IP address assigned to the host" },
    ],
};

static CORE_V1_HOSTPATHVOLUMESOURCE: Type = Type {
    name: "io.k8s.api.core.v1.HostPathVolumeSource",
    description: "Represents a host path mapped into a pod. Host path volumes do not support ownership management or SELinux relabeling.",
    atomic: false,
    fields: &[
        Field { name: "path", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "path of the directory on the host. If the path is a symlink, it will follow the link to the real path. More info: https://kubernetes.io/docs/concepts/storage/volumes#hostpath" },
        Field { name: "type", shape: Shape::String, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: Some("v1.HostPathType"), description: "type for HostPath Volume Defaults to \"\" More info: https://kubernetes.io/docs/concepts/storage/volumes#hostpath" },
    ],
};

static CORE_V1_ISCSIVOLUMESOURCE: Type = Type {
    name: "io.k8s.api.core.v1.ISCSIVolumeSource",
    description: "Represents an ISCSI disk. ISCSI volumes can only be mounted as read/write once. ISCSI volumes support ownership management and SELinux relabeling.",
    atomic: false,
    fields: &[
        Field { name: "chapAuthDiscovery", shape: Shape::Bool, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[8], embedded: None, go_type: None, description: "chapAuthDiscovery defines whether support iSCSI Discovery CHAP authentication" },
        Field { name: "chapAuthSession", shape: Shape::Bool, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[11], embedded: None, go_type: None, description: "chapAuthSession defines whether support iSCSI Session CHAP authentication" },
        Field { name: "fsType", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[5], embedded: None, go_type: None, description: "fsType is the filesystem type of the volume that you want to mount. Tip: Ensure that the filesystem type is supported by the host operating system. Examples: \"ext4\", \"xfs\", \"ntfs\". Implicitly inferred to be \"ext4\" if unspecified. More info: https://kubernetes.io/docs/concepts/storage/volumes#iscsi" },
        Field { name: "initiatorName", shape: Shape::String, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[12], embedded: None, go_type: None, description: "initiatorName is the custom iSCSI Initiator Name. If initiatorName is specified with iscsiInterface simultaneously, new iSCSI interface <target portal>:<volume name> will be created for the connection." },
        Field { name: "iqn", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "iqn is the target iSCSI Qualified Name." },
        Field { name: "iscsiInterface", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: Some("\"default\""), patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "iscsiInterface is the interface Name that uses an iSCSI transport. Defaults to 'default' (tcp)." },
        Field { name: "lun", shape: Shape::Int32, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "lun represents iSCSI Target Lun number." },
        Field { name: "portals", shape: Shape::List(&Shape::String, Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[7], embedded: None, go_type: None, description: "portals is the iSCSI Target Portal List. The portal is either an IP or ip_addr:port if the port is other than default (typically TCP ports 860 and 3260)." },
        Field { name: "readOnly", shape: Shape::Bool, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[6], embedded: None, go_type: None, description: "readOnly here will force the ReadOnly setting in VolumeMounts. Defaults to false." },
        Field { name: "secretRef", shape: Shape::Object(&CORE_V1_LOCALOBJECTREFERENCE), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[10], embedded: None, go_type: None, description: "secretRef is the CHAP Secret for iSCSI target and initiator authentication" },
        Field { name: "targetPortal", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "targetPortal is iSCSI Target Portal. The Portal is either an IP or ip_addr:port if the port is other than default (typically TCP ports 860 and 3260)." },
    ],
};

static CORE_V1_IMAGEVOLUMESOURCE: Type = Type {
    name: "io.k8s.api.core.v1.ImageVolumeSource",
    description: "ImageVolumeSource represents a image volume resource.",
    atomic: false,
    fields: &[
        Field { name: "pullPolicy", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: Some("v1.PullPolicy"), description: "Policy for pulling OCI objects. Possible values are: Always: the kubelet always attempts to pull the reference. Container creation will fail If the pull fails. Never: the kubelet never pulls the reference and only uses a local image or artifact. Container creation will fail if the reference isn't present. IfNotPresent: the kubelet pulls if the reference isn't already present on disk. Container creation will fail if the reference isn't present and the pull fails. Defaults to Always if :latest tag is specified, or IfNotPresent otherwise." },
        Field { name: "reference", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Required: Image or artifact reference to be used. Behaves in the same way as pod.spec.containers[*].image. Pull secrets will be assembled in the same way as for the container image by looking up node credentials, SA image pull secrets, and pod spec image pull secrets. More info: https://kubernetes.io/docs/concepts/containers/images This field is optional to allow higher level config management to default or override container images in workload controllers like Deployments and StatefulSets." },
    ],
};

static CORE_V1_IMAGEVOLUMESTATUS: Type = Type {
    name: "io.k8s.api.core.v1.ImageVolumeStatus",
    description: "ImageVolumeStatus represents the image-based volume status.",
    atomic: false,
    fields: &[
        Field { name: "imageRef", shape: Shape::String, required: true, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "ImageRef is the digest of the image used for this volume. It should have a value that's similar to the pod's status.containerStatuses[i].imageID. The ImageRef length should not exceed 256 characters." },
    ],
};

static CORE_V1_KEYTOPATH: Type = Type {
    name: "io.k8s.api.core.v1.KeyToPath",
    description: "Maps a string key to a path within a volume.",
    atomic: false,
    fields: &[
        Field { name: "key", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "key is the key to project." },
        Field { name: "mode", shape: Shape::Int32, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "mode is Optional: mode bits used to set permissions on this file. Must be an octal value between 0000 and 0777 or a decimal value between 0 and 511. YAML accepts both octal and decimal values, JSON requires decimal values for mode bits. If not specified, the volume defaultMode will be used. This might be in conflict with other options that affect the file mode, like fsGroup, and the result can be other mode bits set." },
        Field { name: "path", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "path is the relative path of the file to map the key to. May not be an absolute path. May not contain the path element '..'. May not start with the string '..'." },
    ],
};

static CORE_V1_LIFECYCLE: Type = Type {
    name: "io.k8s.api.core.v1.Lifecycle",
    description: "Lifecycle describes actions that the management system should take in response to container lifecycle events. For the PostStart and PreStop lifecycle handlers, management of the container blocks until the action is complete, unless the container process fails, in which case the handler is aborted.",
    atomic: false,
    fields: &[
        Field { name: "postStart", shape: Shape::Object(&CORE_V1_LIFECYCLEHANDLER), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "PostStart is called immediately after a container is created. If the handler fails, the container is terminated and restarted according to its restart policy. Other management of the container blocks until the hook completes. More info: https://kubernetes.io/docs/concepts/containers/container-lifecycle-hooks/#container-hooks" },
        Field { name: "preStop", shape: Shape::Object(&CORE_V1_LIFECYCLEHANDLER), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "PreStop is called immediately before a container is terminated due to an API request or management event such as liveness/startup probe failure, preemption, resource contention, etc. The handler is not called if the container crashes or exits. The Pod's termination grace period countdown begins before the PreStop hook is executed. Regardless of the outcome of the handler, the container will eventually terminate within the Pod's termination grace period (unless delayed by finalizers). Other management of the container blocks until the hook completes or until the termination grace period is reached. More info: https://kubernetes.io/docs/concepts/containers/container-lifecycle-hooks/#container-hooks" },
        Field { name: "stopSignal", shape: Shape::String, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: Some("v1.Signal"), description: "StopSignal defines which signal will be sent to a container when it is being stopped. If not specified, the default is defined by the container runtime in use. StopSignal can only be set for Pods with a non-empty .spec.os.name" },
    ],
};

static CORE_V1_LIFECYCLEHANDLER: Type = Type {
    name: "io.k8s.api.core.v1.LifecycleHandler",
    description: "LifecycleHandler defines a specific action that should be taken in a lifecycle hook. One and only one of the fields, except TCPSocket must be specified.",
    atomic: false,
    fields: &[
        Field { name: "exec", shape: Shape::Object(&CORE_V1_EXECACTION), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Exec specifies a command to execute in the container." },
        Field { name: "httpGet", shape: Shape::Object(&CORE_V1_HTTPGETACTION), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "HTTPGet specifies an HTTP GET request to perform." },
        Field { name: "sleep", shape: Shape::Object(&CORE_V1_SLEEPACTION), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "Sleep represents a duration that the container should sleep." },
        Field { name: "tcpSocket", shape: Shape::Object(&CORE_V1_TCPSOCKETACTION), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "Deprecated. TCPSocket is NOT supported as a LifecycleHandler and kept for backward compatibility. There is no validation of this field and lifecycle hooks will fail at runtime when it is specified." },
    ],
};

static CORE_V1_LIMITRANGE: Type = Type {
    name: "io.k8s.api.core.v1.LimitRange",
    description: "LimitRange sets resource usage limits for each kind of resource in a Namespace.",
    atomic: false,
    fields: &[
        Field { name: "apiVersion", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[], embedded: None, go_type: None, description: "APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized schemas to the latest internal value, and may reject unrecognized values. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources" },
        Field { name: "kind", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[], embedded: None, go_type: None, description: "Kind is a string value representing the REST resource this object represents. Servers may infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds" },
        Field { name: "metadata", shape: Shape::Object(&META_V1_OBJECTMETA), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata" },
        Field { name: "spec", shape: Shape::Object(&CORE_V1_LIMITRANGESPEC), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "Spec defines the limits enforced. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#spec-and-status" },
    ],
};

static CORE_V1_LIMITRANGEITEM: Type = Type {
    name: "io.k8s.api.core.v1.LimitRangeItem",
    description: "LimitRangeItem defines a min/max usage limit for any resource that matches on kind.",
    atomic: false,
    fields: &[
        Field { name: "default", shape: Shape::Map(&Shape::Quantity, MapKind::Granular), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: Some("v1.ResourceList"), description: "Default resource requirement limit value by resource name if resource limit is omitted." },
        Field { name: "defaultRequest", shape: Shape::Map(&Shape::Quantity, MapKind::Granular), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[5], embedded: None, go_type: Some("v1.ResourceList"), description: "DefaultRequest is the default resource requirement request value by resource name if resource request is omitted." },
        Field { name: "max", shape: Shape::Map(&Shape::Quantity, MapKind::Granular), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: Some("v1.ResourceList"), description: "Max usage constraints on this kind by resource name." },
        Field { name: "maxLimitRequestRatio", shape: Shape::Map(&Shape::Quantity, MapKind::Granular), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[6], embedded: None, go_type: Some("v1.ResourceList"), description: "MaxLimitRequestRatio if specified, the named resource must have a request and limit that are both non-zero where limit divided by request is less than or equal to the enumerated value; this represents the max burst for the named resource." },
        Field { name: "min", shape: Shape::Map(&Shape::Quantity, MapKind::Granular), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: Some("v1.ResourceList"), description: "Min usage constraints on this kind by resource name." },
        Field { name: "type", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: Some("v1.LimitType"), description: "Type of resource that this limit applies to." },
    ],
};

static CORE_V1_LIMITRANGESPEC: Type = Type {
    name: "io.k8s.api.core.v1.LimitRangeSpec",
    description: "LimitRangeSpec defines a min/max usage limit for resources that match on kind.",
    atomic: false,
    fields: &[
        Field { name: "limits", shape: Shape::List(&Shape::Object(&CORE_V1_LIMITRANGEITEM), Keys::Atomic), required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Limits is the list of LimitRangeItem objects that are enforced." },
    ],
};

static CORE_V1_LINUXCONTAINERUSER: Type = Type {
    name: "io.k8s.api.core.v1.LinuxContainerUser",
    description: "LinuxContainerUser represents user identity information in Linux containers",
    atomic: false,
    fields: &[
        Field { name: "gid", shape: Shape::Int64, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "GID is the primary gid initially attached to the first process in the container" },
        Field { name: "supplementalGroups", shape: Shape::List(&Shape::Int64, Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "SupplementalGroups are the supplemental groups initially attached to the first process in the container" },
        Field { name: "uid", shape: Shape::Int64, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "UID is the primary uid initially attached to the first process in the container" },
    ],
};

static CORE_V1_LOADBALANCERINGRESS: Type = Type {
    name: "io.k8s.api.core.v1.LoadBalancerIngress",
    description: "LoadBalancerIngress represents the status of a load-balancer ingress point: traffic intended for the service should be sent to an ingress point.",
    atomic: false,
    fields: &[
        Field { name: "hostname", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "Hostname is set for load-balancer ingress points that are DNS based (typically AWS load-balancers)" },
        Field { name: "ip", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "IP is set for load-balancer ingress points that are IP based (typically GCE or OpenStack load-balancers)" },
        Field { name: "ipMode", shape: Shape::String, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: Some("v1.LoadBalancerIPMode"), description: "IPMode specifies how the load-balancer IP behaves, and may only be specified when the ip field is specified. Setting this to \"VIP\" indicates that traffic is delivered to the node with the destination set to the load-balancer's IP and port. Setting this to \"Proxy\" indicates that traffic is delivered to the node or pod with the destination set to the node's IP and node port or the pod's IP and port. Service implementations may use this information to adjust traffic routing." },
        Field { name: "ports", shape: Shape::List(&Shape::Object(&CORE_V1_PORTSTATUS), Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "Ports is a list of records of service ports If used, every port defined in the service should have an entry in it" },
    ],
};

static CORE_V1_LOADBALANCERSTATUS: Type = Type {
    name: "io.k8s.api.core.v1.LoadBalancerStatus",
    description: "LoadBalancerStatus represents the status of a load-balancer.",
    atomic: false,
    fields: &[
        Field { name: "ingress", shape: Shape::List(&Shape::Object(&CORE_V1_LOADBALANCERINGRESS), Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Ingress is a list containing ingress points for the load-balancer. Traffic intended for the service should be sent to these ingress points." },
    ],
};

static CORE_V1_LOCALOBJECTREFERENCE: Type = Type {
    name: "io.k8s.api.core.v1.LocalObjectReference",
    description: "LocalObjectReference contains enough information to let you locate the referenced object inside the same namespace.",
    atomic: true,
    fields: &[
        Field { name: "name", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: Some("\"\""), patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Name of the referent. This field is effectively required, but due to backwards compatibility is allowed to be empty. Instances of this type with an empty value here are almost certainly wrong. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/names/#names" },
    ],
};

static CORE_V1_NFSVOLUMESOURCE: Type = Type {
    name: "io.k8s.api.core.v1.NFSVolumeSource",
    description: "Represents an NFS mount that lasts the lifetime of a pod. NFS volumes do not support ownership management or SELinux relabeling.",
    atomic: false,
    fields: &[
        Field { name: "path", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "path that is exported by the NFS server. More info: https://kubernetes.io/docs/concepts/storage/volumes#nfs" },
        Field { name: "readOnly", shape: Shape::Bool, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "readOnly here will force the NFS export to be mounted with read-only permissions. Defaults to false. More info: https://kubernetes.io/docs/concepts/storage/volumes#nfs" },
        Field { name: "server", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "server is the hostname or IP address of the NFS server. More info: https://kubernetes.io/docs/concepts/storage/volumes#nfs" },
    ],
};

static CORE_V1_NAMESPACE: Type = Type {
    name: "io.k8s.api.core.v1.Namespace",
    description: "Namespace provides a scope for Names. Use of multiple namespaces is optional.",
    atomic: false,
    fields: &[
        Field { name: "apiVersion", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[], embedded: None, go_type: None, description: "APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized schemas to the latest internal value, and may reject unrecognized values. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources" },
        Field { name: "kind", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[], embedded: None, go_type: None, description: "Kind is a string value representing the REST resource this object represents. Servers may infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds" },
        Field { name: "metadata", shape: Shape::Object(&META_V1_OBJECTMETA), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata" },
        Field { name: "spec", shape: Shape::Object(&CORE_V1_NAMESPACESPEC), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "Spec defines the behavior of the Namespace. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#spec-and-status" },
        Field { name: "status", shape: Shape::Object(&CORE_V1_NAMESPACESTATUS), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "Status describes the current status of a Namespace. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#spec-and-status" },
    ],
};

static CORE_V1_NAMESPACECONDITION: Type = Type {
    name: "io.k8s.api.core.v1.NamespaceCondition",
    description: "NamespaceCondition contains details about state of namespace.",
    atomic: false,
    fields: &[
        Field { name: "lastTransitionTime", shape: Shape::Time, required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "Last time the condition transitioned from one status to another." },
        Field { name: "message", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[6], embedded: None, go_type: None, description: "Human-readable message indicating details about last transition." },
        Field { name: "reason", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[5], embedded: None, go_type: None, description: "Unique, one-word, CamelCase reason for the condition's last transition." },
        Field { name: "status", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: Some("v1.ConditionStatus"), description: "Status of the condition, one of True, False, Unknown." },
        Field { name: "type", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: Some("v1.NamespaceConditionType"), description: "Type of namespace controller condition." },
    ],
};

static CORE_V1_NAMESPACESPEC: Type = Type {
    name: "io.k8s.api.core.v1.NamespaceSpec",
    description: "NamespaceSpec describes the attributes on a Namespace.",
    atomic: false,
    fields: &[
        Field { name: "finalizers", shape: Shape::List(&Shape::String, Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: Some("[]v1.FinalizerName"), description: "Finalizers is an opaque list of values that must be empty to permanently remove object from storage. More info: https://kubernetes.io/docs/tasks/administer-cluster/namespaces/" },
    ],
};

static CORE_V1_NAMESPACESTATUS: Type = Type {
    name: "io.k8s.api.core.v1.NamespaceStatus",
    description: "NamespaceStatus is information about the current status of a Namespace.",
    atomic: false,
    fields: &[
        Field { name: "conditions", shape: Shape::List(&Shape::Object(&CORE_V1_NAMESPACECONDITION), Keys::Fields(&["type"])), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Merge(Some("type")), proto: &[2], embedded: None, go_type: None, description: "Represents the latest available observations of a namespace's current state." },
        Field { name: "phase", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: Some("v1.NamespacePhase"), description: "Phase is the current lifecycle phase of the namespace. More info: https://kubernetes.io/docs/tasks/administer-cluster/namespaces/" },
    ],
};

static CORE_V1_NODE: Type = Type {
    name: "io.k8s.api.core.v1.Node",
    description: "Node is a worker node in Kubernetes. Each node will have a unique identifier in the cache (i.e. in etcd).",
    atomic: false,
    fields: &[
        Field { name: "apiVersion", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[], embedded: None, go_type: None, description: "APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized schemas to the latest internal value, and may reject unrecognized values. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources" },
        Field { name: "kind", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[], embedded: None, go_type: None, description: "Kind is a string value representing the REST resource this object represents. Servers may infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds" },
        Field { name: "metadata", shape: Shape::Object(&META_V1_OBJECTMETA), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata" },
        Field { name: "spec", shape: Shape::Object(&CORE_V1_NODESPEC), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "Spec defines the behavior of a node. https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#spec-and-status" },
        Field { name: "status", shape: Shape::Object(&CORE_V1_NODESTATUS), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "Most recently observed status of the node. Populated by the system. Read-only. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#spec-and-status" },
    ],
};

static CORE_V1_NODEADDRESS: Type = Type {
    name: "io.k8s.api.core.v1.NodeAddress",
    description: "NodeAddress contains information for the node's address.",
    atomic: false,
    fields: &[
        Field { name: "address", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "The node address." },
        Field { name: "type", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: Some("v1.NodeAddressType"), description: "Node address type, one of Hostname, ExternalIP or InternalIP." },
    ],
};

static CORE_V1_NODEAFFINITY: Type = Type {
    name: "io.k8s.api.core.v1.NodeAffinity",
    description: "Node affinity is a group of node affinity scheduling rules.",
    atomic: false,
    fields: &[
        Field { name: "preferredDuringSchedulingIgnoredDuringExecution", shape: Shape::List(&Shape::Object(&CORE_V1_PREFERREDSCHEDULINGTERM), Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "The scheduler will prefer to schedule pods to nodes that satisfy the affinity expressions specified by this field, but it may choose a node that violates one or more of the expressions. The node that is most preferred is the one with the greatest sum of weights, i.e. for each node that meets all of the scheduling requirements (resource request, requiredDuringScheduling affinity expressions, etc.), compute a sum by iterating through the elements of this field and adding \"weight\" to the sum if the node matches the corresponding matchExpressions; the node(s) with the highest sum are the most preferred." },
        Field { name: "requiredDuringSchedulingIgnoredDuringExecution", shape: Shape::Object(&CORE_V1_NODESELECTOR), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "If the affinity requirements specified by this field are not met at scheduling time, the pod will not be scheduled onto the node. If the affinity requirements specified by this field cease to be met at some point during pod execution (e.g. due to an update), the system may or may not try to eventually evict the pod from its node." },
    ],
};

static CORE_V1_NODEALLOCATABLERESOURCECLAIMSTATUS: Type = Type {
    name: "io.k8s.api.core.v1.NodeAllocatableResourceClaimStatus",
    description: "NodeAllocatableResourceClaimStatus describes the status of node allocatable resources allocated via DRA.",
    atomic: false,
    fields: &[
        Field { name: "containers", shape: Shape::List(&Shape::String, Keys::Set), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "Containers lists the names of all containers in this pod that reference the claim." },
        Field { name: "resourceClaimName", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "ResourceClaimName is the resource claim referenced by the pod that resulted in this node allocatable resource allocation." },
        Field { name: "resources", shape: Shape::Map(&Shape::Quantity, MapKind::Granular), required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: Some("map[v1.ResourceName]resource.Quantity"), description: "Resources is a map of the node-allocatable resource name to the aggregate quantity allocated to the claim." },
    ],
};

static CORE_V1_NODECONDITION: Type = Type {
    name: "io.k8s.api.core.v1.NodeCondition",
    description: "NodeCondition contains condition information for a node.",
    atomic: false,
    fields: &[
        Field { name: "lastHeartbeatTime", shape: Shape::Time, required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "Last time we got an update on a given condition." },
        Field { name: "lastTransitionTime", shape: Shape::Time, required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "Last time the condition transit from one status to another." },
        Field { name: "message", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[6], embedded: None, go_type: None, description: "Human readable message indicating details about last transition." },
        Field { name: "reason", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[5], embedded: None, go_type: None, description: "(brief) reason for the condition's last transition." },
        Field { name: "status", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: Some("v1.ConditionStatus"), description: "Status of the condition, one of True, False, Unknown." },
        Field { name: "type", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: Some("v1.NodeConditionType"), description: "Type of node condition." },
    ],
};

static CORE_V1_NODECONFIGSOURCE: Type = Type {
    name: "io.k8s.api.core.v1.NodeConfigSource",
    description: "NodeConfigSource specifies a source of node configuration. Exactly one subfield (excluding metadata) must be non-nil. This API is deprecated since 1.22",
    atomic: false,
    fields: &[
        Field { name: "configMap", shape: Shape::Object(&CORE_V1_CONFIGMAPNODECONFIGSOURCE), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "ConfigMap is a reference to a Node's ConfigMap" },
    ],
};

static CORE_V1_NODECONFIGSTATUS: Type = Type {
    name: "io.k8s.api.core.v1.NodeConfigStatus",
    description: "NodeConfigStatus describes the status of the config assigned by Node.Spec.ConfigSource.",
    atomic: false,
    fields: &[
        Field { name: "active", shape: Shape::Object(&CORE_V1_NODECONFIGSOURCE), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "Active reports the checkpointed config the node is actively using. Active will represent either the current version of the Assigned config, or the current LastKnownGood config, depending on whether attempting to use the Assigned config results in an error." },
        Field { name: "assigned", shape: Shape::Object(&CORE_V1_NODECONFIGSOURCE), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Assigned reports the checkpointed config the node will try to use. When Node.Spec.ConfigSource is updated, the node checkpoints the associated config payload to local disk, along with a record indicating intended config. The node refers to this record to choose its config checkpoint, and reports this record in Assigned. Assigned only updates in the status after the record has been checkpointed to disk. When the Kubelet is restarted, it tries to make the Assigned config the Active config by loading and validating the checkpointed payload identified by Assigned." },
        Field { name: "error", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "Error describes any problems reconciling the Spec.ConfigSource to the Active config. Errors may occur, for example, attempting to checkpoint Spec.ConfigSource to the local Assigned record, attempting to checkpoint the payload associated with Spec.ConfigSource, attempting to load or validate the Assigned config, etc. Errors may occur at different points while syncing config. Earlier errors (e.g. download or checkpointing errors) will not result in a rollback to LastKnownGood, and may resolve across Kubelet retries. Later errors (e.g. loading or validating a checkpointed config) will result in a rollback to LastKnownGood. In the latter case, it is usually possible to resolve the error by fixing the config assigned in Spec.ConfigSource. You can find additional information for debugging by searching the error message in the Kubelet log. Error is a human-readable description of the error state; machines can check whether or not Error is empty, but should not rely on the stability of the Error text across Kubelet versions." },
        Field { name: "lastKnownGood", shape: Shape::Object(&CORE_V1_NODECONFIGSOURCE), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "LastKnownGood reports the checkpointed config the node will fall back to when it encounters an error attempting to use the Assigned config. The Assigned config becomes the LastKnownGood config when the node determines that the Assigned config is stable and correct. This is currently implemented as a 10-minute soak period starting when the local record of Assigned config is updated. If the Assigned config is Active at the end of this period, it becomes the LastKnownGood. Note that if Spec.ConfigSource is reset to nil (use local defaults), the LastKnownGood is also immediately reset to nil, because the local default config is always assumed good. You should not make assumptions about the node's method of determining config stability and correctness, as this may change or become configurable in the future." },
    ],
};

static CORE_V1_NODEDAEMONENDPOINTS: Type = Type {
    name: "io.k8s.api.core.v1.NodeDaemonEndpoints",
    description: "NodeDaemonEndpoints lists ports opened by daemons running on the Node.",
    atomic: false,
    fields: &[
        Field { name: "kubeletEndpoint", shape: Shape::Object(&CORE_V1_DAEMONENDPOINT), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Endpoint on which Kubelet is listening." },
    ],
};

static CORE_V1_NODEFEATURES: Type = Type {
    name: "io.k8s.api.core.v1.NodeFeatures",
    description: "NodeFeatures describes the set of features implemented by the CRI implementation. The features contained in the NodeFeatures should depend only on the cri implementation independent of runtime handlers.",
    atomic: false,
    fields: &[
        Field { name: "supplementalGroupsPolicy", shape: Shape::Bool, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "SupplementalGroupsPolicy is set to true if the runtime supports SupplementalGroupsPolicy and ContainerUser." },
    ],
};

static CORE_V1_NODERUNTIMEHANDLER: Type = Type {
    name: "io.k8s.api.core.v1.NodeRuntimeHandler",
    description: "NodeRuntimeHandler is a set of runtime handler information.",
    atomic: false,
    fields: &[
        Field { name: "features", shape: Shape::Object(&CORE_V1_NODERUNTIMEHANDLERFEATURES), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "Supported features." },
        Field { name: "name", shape: Shape::String, required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Runtime handler name. Empty for the default runtime handler." },
    ],
};

static CORE_V1_NODERUNTIMEHANDLERFEATURES: Type = Type {
    name: "io.k8s.api.core.v1.NodeRuntimeHandlerFeatures",
    description: "NodeRuntimeHandlerFeatures is a set of features implemented by the runtime handler.",
    atomic: false,
    fields: &[
        Field { name: "recursiveReadOnlyMounts", shape: Shape::Bool, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "RecursiveReadOnlyMounts is set to true if the runtime handler supports RecursiveReadOnlyMounts." },
        Field { name: "userNamespaces", shape: Shape::Bool, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "UserNamespaces is set to true if the runtime handler supports UserNamespaces, including for volumes." },
    ],
};

static CORE_V1_NODESELECTOR: Type = Type {
    name: "io.k8s.api.core.v1.NodeSelector",
    description: "A node selector represents the union of the results of one or more label queries over a set of nodes; that is, it represents the OR of the selectors represented by the node selector terms.",
    atomic: true,
    fields: &[
        Field { name: "nodeSelectorTerms", shape: Shape::List(&Shape::Object(&CORE_V1_NODESELECTORTERM), Keys::Atomic), required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Required. A list of node selector terms. The terms are ORed." },
    ],
};

static CORE_V1_NODESELECTORREQUIREMENT: Type = Type {
    name: "io.k8s.api.core.v1.NodeSelectorRequirement",
    description: "A node selector requirement is a selector that contains values, a key, and an operator that relates the key and values.",
    atomic: false,
    fields: &[
        Field { name: "key", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "The label key that the selector applies to." },
        Field { name: "operator", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: Some("v1.NodeSelectorOperator"), description: "Represents a key's relationship to a set of values. Valid operators are In, NotIn, Exists, DoesNotExist. Gt, and Lt." },
        Field { name: "values", shape: Shape::List(&Shape::String, Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "An array of string values. If the operator is In or NotIn, the values array must be non-empty. If the operator is Exists or DoesNotExist, the values array must be empty. If the operator is Gt or Lt, the values array must have a single element, which will be interpreted as an integer. This array is replaced during a strategic merge patch." },
    ],
};

static CORE_V1_NODESELECTORTERM: Type = Type {
    name: "io.k8s.api.core.v1.NodeSelectorTerm",
    description: "A null or empty node selector term matches no objects. The requirements of them are ANDed. The TopologySelectorTerm type implements a subset of the NodeSelectorTerm.",
    atomic: true,
    fields: &[
        Field { name: "matchExpressions", shape: Shape::List(&Shape::Object(&CORE_V1_NODESELECTORREQUIREMENT), Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "A list of node selector requirements by node's labels." },
        Field { name: "matchFields", shape: Shape::List(&Shape::Object(&CORE_V1_NODESELECTORREQUIREMENT), Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "A list of node selector requirements by node's fields." },
    ],
};

static CORE_V1_NODESPEC: Type = Type {
    name: "io.k8s.api.core.v1.NodeSpec",
    description: "NodeSpec describes the attributes that a node is created with.",
    atomic: false,
    fields: &[
        Field { name: "configSource", shape: Shape::Object(&CORE_V1_NODECONFIGSOURCE), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[6], embedded: None, go_type: None, description: "Deprecated: Previously used to specify the source of the node's configuration for the DynamicKubeletConfig feature. This feature is removed." },
        Field { name: "externalID", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "Deprecated. Not all kubelets will set this field. Remove field after 1.13. see: https://issues.k8s.io/61966" },
        Field { name: "podCIDR", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "PodCIDR represents the pod IP range assigned to the node." },
        Field { name: "podCIDRs", shape: Shape::List(&Shape::String, Keys::Set), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Merge(None), proto: &[7], embedded: None, go_type: None, description: "podCIDRs represents the IP ranges assigned to the node for usage by Pods on that node. If this field is specified, the 0th entry must match the podCIDR field. It may contain at most 1 value for each of IPv4 and IPv6." },
        Field { name: "providerID", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "ID of the node assigned by the cloud provider in the format: <ProviderName>://<ProviderSpecificNodeID>" },
        Field { name: "taints", shape: Shape::List(&Shape::Object(&CORE_V1_TAINT), Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[5], embedded: None, go_type: None, description: "If specified, the node's taints." },
        Field { name: "unschedulable", shape: Shape::Bool, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "Unschedulable controls node schedulability of new pods. By default, node is schedulable. More info: https://kubernetes.io/docs/concepts/nodes/node/#manual-node-administration" },
    ],
};

static CORE_V1_NODESTATUS: Type = Type {
    name: "io.k8s.api.core.v1.NodeStatus",
    description: "NodeStatus is information about the current status of a node.",
    atomic: false,
    fields: &[
        Field { name: "addresses", shape: Shape::List(&Shape::Object(&CORE_V1_NODEADDRESS), Keys::Fields(&["type"])), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Merge(Some("type")), proto: &[5], embedded: None, go_type: None, description: "List of addresses reachable to the node. Queried from cloud provider, if available. More info: https://kubernetes.io/docs/reference/node/node-status/#addresses Note: This field is declared as mergeable, but the merge key is not sufficiently unique, which can cause data corruption when it is merged. Callers should instead use a full-replacement patch. See https://pr.k8s.io/79391 for an example. Consumers should assume that addresses can change during the lifetime of a Node. However, there are some exceptions where this may not be possible, such as Pods that inherit a Node's address in its own status or consumers of the downward API (status.hostIP)." },
        Field { name: "allocatable", shape: Shape::Map(&Shape::Quantity, MapKind::Granular), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: Some("v1.ResourceList"), description: "Allocatable represents the resources of a node that are available for scheduling. Defaults to Capacity." },
        Field { name: "capacity", shape: Shape::Map(&Shape::Quantity, MapKind::Granular), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: Some("v1.ResourceList"), description: "Capacity represents the total resources of a node. More info: https://kubernetes.io/docs/reference/node/node-status/#capacity" },
        Field { name: "conditions", shape: Shape::List(&Shape::Object(&CORE_V1_NODECONDITION), Keys::Fields(&["type"])), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Merge(Some("type")), proto: &[4], embedded: None, go_type: None, description: "Conditions is an array of current observed node conditions. More info: https://kubernetes.io/docs/reference/node/node-status/#condition" },
        Field { name: "config", shape: Shape::Object(&CORE_V1_NODECONFIGSTATUS), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[11], embedded: None, go_type: None, description: "Status of the config assigned to the node via the dynamic Kubelet config feature." },
        Field { name: "daemonEndpoints", shape: Shape::Object(&CORE_V1_NODEDAEMONENDPOINTS), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[6], embedded: None, go_type: None, description: "Endpoints of daemons running on the Node." },
        Field { name: "declaredFeatures", shape: Shape::List(&Shape::String, Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[14], embedded: None, go_type: None, description: "DeclaredFeatures represents the features related to feature gates that are declared by the node." },
        Field { name: "features", shape: Shape::Object(&CORE_V1_NODEFEATURES), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[13], embedded: None, go_type: None, description: "Features describes the set of features implemented by the CRI implementation." },
        Field { name: "images", shape: Shape::List(&Shape::Object(&CORE_V1_CONTAINERIMAGE), Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[8], embedded: None, go_type: None, description: "List of container images on this node" },
        Field { name: "nodeInfo", shape: Shape::Object(&CORE_V1_NODESYSTEMINFO), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[7], embedded: None, go_type: None, description: "Set of ids/uuids to uniquely identify the node. More info: https://kubernetes.io/docs/reference/node/node-status/#info" },
        Field { name: "phase", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: Some("v1.NodePhase"), description: "NodePhase is the recently observed lifecycle phase of the node. More info: https://kubernetes.io/docs/concepts/nodes/node/#phase The field is never populated, and now is deprecated." },
        Field { name: "runtimeHandlers", shape: Shape::List(&Shape::Object(&CORE_V1_NODERUNTIMEHANDLER), Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[12], embedded: None, go_type: None, description: "The available runtime handlers." },
        Field { name: "volumesAttached", shape: Shape::List(&Shape::Object(&CORE_V1_ATTACHEDVOLUME), Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[10], embedded: None, go_type: None, description: "List of volumes that are attached to the node." },
        Field { name: "volumesInUse", shape: Shape::List(&Shape::String, Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[9], embedded: None, go_type: Some("[]v1.UniqueVolumeName"), description: "List of attachable volumes in use (mounted) by the node." },
    ],
};

static CORE_V1_NODESWAPSTATUS: Type = Type {
    name: "io.k8s.api.core.v1.NodeSwapStatus",
    description: "NodeSwapStatus represents swap memory information.",
    atomic: false,
    fields: &[
        Field { name: "capacity", shape: Shape::Int64, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Total amount of swap memory in bytes." },
    ],
};

static CORE_V1_NODESYSTEMINFO: Type = Type {
    name: "io.k8s.api.core.v1.NodeSystemInfo",
    description: "NodeSystemInfo is a set of ids/uuids to uniquely identify the node.",
    atomic: false,
    fields: &[
        Field { name: "architecture", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[10], embedded: None, go_type: None, description: "The Architecture reported by the node" },
        Field { name: "bootID", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "Boot ID reported by the node." },
        Field { name: "containerRuntimeVersion", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[6], embedded: None, go_type: None, description: "ContainerRuntime Version reported by the node through runtime remote API (e.g. containerd://1.4.2)." },
        Field { name: "kernelVersion", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "Kernel Version reported by the node from 'uname -r' (e.g. 3.16.0-0.bpo.4-amd64)." },
        Field { name: "kubeProxyVersion", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[8], embedded: None, go_type: None, description: "Deprecated: KubeProxy Version reported by the node." },
        Field { name: "kubeletVersion", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[7], embedded: None, go_type: None, description: "Kubelet Version reported by the node." },
        Field { name: "machineID", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "MachineID reported by the node. For unique machine identification in the cluster this field is preferred. Learn more from man(5) machine-id: http://man7.org/linux/man-pages/man5/machine-id.5.html" },
        Field { name: "operatingSystem", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[9], embedded: None, go_type: None, description: "The Operating System reported by the node" },
        Field { name: "osImage", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[5], embedded: None, go_type: None, description: "OS Image reported by the node from /etc/os-release (e.g. Debian GNU/Linux 7 (wheezy))." },
        Field { name: "swap", shape: Shape::Object(&CORE_V1_NODESWAPSTATUS), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[11], embedded: None, go_type: None, description: "Swap Info reported by the node." },
        Field { name: "systemUUID", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "SystemUUID reported by the node. For unique machine identification MachineID is preferred. This field is specific to Red Hat hosts https://access.redhat.com/documentation/en-us/red_hat_subscription_management/1/html/rhsm/uuid" },
    ],
};

static CORE_V1_OBJECTFIELDSELECTOR: Type = Type {
    name: "io.k8s.api.core.v1.ObjectFieldSelector",
    description: "ObjectFieldSelector selects an APIVersioned field of an object.",
    atomic: true,
    fields: &[
        Field { name: "apiVersion", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Version of the schema the FieldPath is written in terms of, defaults to \"v1\"." },
        Field { name: "fieldPath", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "Path of the field to select in the specified API version." },
    ],
};

static CORE_V1_OBJECTREFERENCE: Type = Type {
    name: "io.k8s.api.core.v1.ObjectReference",
    description: "ObjectReference contains enough information to let you inspect or modify the referred object.",
    atomic: true,
    fields: &[
        Field { name: "apiVersion", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[5], embedded: None, go_type: None, description: "API version of the referent." },
        Field { name: "fieldPath", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[7], embedded: None, go_type: None, description: "If referring to a piece of an object instead of an entire object, this string should contain a valid JSON/Go field access statement, such as desiredState.manifest.containers[2]. For example, if the object reference is to a container within a pod, this would take on a value like: \"spec.containers{name}\" (where \"name\" refers to the name of the container that triggered the event) or if no container name is specified \"spec.containers[2]\" (container with index 2 in this pod). This syntax is chosen only to have some well-defined way of referencing a part of an object." },
        Field { name: "kind", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Kind of the referent. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds" },
        Field { name: "name", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "Name of the referent. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/names/#names" },
        Field { name: "namespace", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "Namespace of the referent. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/namespaces/" },
        Field { name: "resourceVersion", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[6], embedded: None, go_type: None, description: "Specific resourceVersion to which this reference is made, if any. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#concurrency-control-and-consistency" },
        Field { name: "uid", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: Some("types.UID"), description: "UID of the referent. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/names/#uids" },
    ],
};

static CORE_V1_PERSISTENTVOLUMECLAIMSPEC: Type = Type {
    name: "io.k8s.api.core.v1.PersistentVolumeClaimSpec",
    description: "PersistentVolumeClaimSpec describes the common attributes of storage devices and allows a Source for provider-specific attributes",
    atomic: false,
    fields: &[
        Field { name: "accessModes", shape: Shape::List(&Shape::String, Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: Some("[]v1.PersistentVolumeAccessMode"), description: "accessModes contains the desired access modes the volume should have. More info: https://kubernetes.io/docs/concepts/storage/persistent-volumes#access-modes-1" },
        Field { name: "dataSource", shape: Shape::Object(&CORE_V1_TYPEDLOCALOBJECTREFERENCE), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[7], embedded: None, go_type: None, description: "dataSource field can be used to specify either: * An existing VolumeSnapshot object (snapshot.storage.k8s.io/VolumeSnapshot) * An existing PVC (PersistentVolumeClaim) If the provisioner or an external controller can support the specified data source, it will create a new volume based on the contents of the specified data source. When the AnyVolumeDataSource feature gate is enabled, dataSource contents will be copied to dataSourceRef, and dataSourceRef contents will be copied to dataSource when dataSourceRef.namespace is not specified. If the namespace is specified, then dataSourceRef will not be copied to dataSource." },
        Field { name: "dataSourceRef", shape: Shape::Object(&CORE_V1_TYPEDOBJECTREFERENCE), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[8], embedded: None, go_type: None, description: "dataSourceRef specifies the object from which to populate the volume with data, if a non-empty volume is desired. This may be any object from a non-empty API group (non core object) or a PersistentVolumeClaim object. When this field is specified, volume binding will only succeed if the type of the specified object matches some installed volume populator or dynamic provisioner. This field will replace the functionality of the dataSource field and as such if both fields are non-empty, they must have the same value. For backwards compatibility, when namespace isn't specified in dataSourceRef, both fields (dataSource and dataSourceRef) will be set to the same value automatically if one of them is empty and the other is non-empty. When namespace is specified in dataSourceRef, dataSource isn't set to the same value and must be empty. There are three important differences between dataSource and dataSourceRef: * While dataSource only allows two specific types of objects, dataSourceRef\n  allows any non-core object, as well as PersistentVolumeClaim objects.\n* While dataSource ignores disallowed values (dropping them), dataSourceRef\n  preserves all values, and generates an error if a disallowed value is\n  specified.\n* While dataSource only allows local objects, dataSourceRef allows objects\n  in any namespaces.\n(Beta) Using this field requires the AnyVolumeDataSource feature gate to be enabled. (Alpha) Using the namespace field of dataSourceRef requires the CrossNamespaceVolumeDataSource feature gate to be enabled." },
        Field { name: "resources", shape: Shape::Object(&CORE_V1_VOLUMERESOURCEREQUIREMENTS), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "resources represents the minimum resources the volume should have. Users are allowed to specify resource requirements that are lower than previous value but must still be higher than capacity recorded in the status field of the claim. More info: https://kubernetes.io/docs/concepts/storage/persistent-volumes#resources" },
        Field { name: "selector", shape: Shape::Object(&META_V1_LABELSELECTOR), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "selector is a label query over volumes to consider for binding." },
        Field { name: "storageClassName", shape: Shape::String, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[5], embedded: None, go_type: None, description: "storageClassName is the name of the StorageClass required by the claim. More info: https://kubernetes.io/docs/concepts/storage/persistent-volumes#class-1" },
        Field { name: "volumeAttributesClassName", shape: Shape::String, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[9], embedded: None, go_type: None, description: "volumeAttributesClassName may be used to set the VolumeAttributesClass used by this claim. If specified, the CSI driver will create or update the volume with the attributes defined in the corresponding VolumeAttributesClass. This has a different purpose than storageClassName, it can be changed after the claim is created. An empty string or nil value indicates that no VolumeAttributesClass will be applied to the claim. If the claim enters an Infeasible error state, this field can be reset to its previous value (including nil) to cancel the modification. If the resource referred to by volumeAttributesClass does not exist, this PersistentVolumeClaim will be set to a Pending state, as reflected by the modifyVolumeStatus field, until such as a resource exists. More info: https://kubernetes.io/docs/concepts/storage/volume-attributes-classes/" },
        Field { name: "volumeMode", shape: Shape::String, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[6], embedded: None, go_type: Some("v1.PersistentVolumeMode"), description: "volumeMode defines what type of volume is required by the claim. Value of Filesystem is implied when not included in claim spec." },
        Field { name: "volumeName", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "volumeName is the binding reference to the PersistentVolume backing this claim." },
    ],
};

static CORE_V1_PERSISTENTVOLUMECLAIMTEMPLATE: Type = Type {
    name: "io.k8s.api.core.v1.PersistentVolumeClaimTemplate",
    description: "PersistentVolumeClaimTemplate is used to produce PersistentVolumeClaim objects as part of an EphemeralVolumeSource.",
    atomic: false,
    fields: &[
        Field { name: "metadata", shape: Shape::Object(&META_V1_OBJECTMETA), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "May contain labels and annotations that will be copied into the PVC when creating it. No other fields are allowed and will be rejected during validation." },
        Field { name: "spec", shape: Shape::Object(&CORE_V1_PERSISTENTVOLUMECLAIMSPEC), required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "The specification for the PersistentVolumeClaim. The entire content is copied unchanged into the PVC that gets created from this template. The same fields as in a PersistentVolumeClaim are also valid here." },
    ],
};

static CORE_V1_PERSISTENTVOLUMECLAIMVOLUMESOURCE: Type = Type {
    name: "io.k8s.api.core.v1.PersistentVolumeClaimVolumeSource",
    description: "PersistentVolumeClaimVolumeSource references the user's PVC in the same namespace. This volume finds the bound PV and mounts that volume for the pod. A PersistentVolumeClaimVolumeSource is, essentially, a wrapper around another type of volume that is owned by someone else (the system).",
    atomic: false,
    fields: &[
        Field { name: "claimName", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "claimName is the name of a PersistentVolumeClaim in the same namespace as the pod using this volume. More info: https://kubernetes.io/docs/concepts/storage/persistent-volumes#persistentvolumeclaims" },
        Field { name: "readOnly", shape: Shape::Bool, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "readOnly Will force the ReadOnly setting in VolumeMounts. Default false." },
    ],
};

static CORE_V1_PHOTONPERSISTENTDISKVOLUMESOURCE: Type = Type {
    name: "io.k8s.api.core.v1.PhotonPersistentDiskVolumeSource",
    description: "Represents a Photon Controller persistent disk resource.",
    atomic: false,
    fields: &[
        Field { name: "fsType", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "fsType is the filesystem type to mount. Must be a filesystem type supported by the host operating system. Ex. \"ext4\", \"xfs\", \"ntfs\". Implicitly inferred to be \"ext4\" if unspecified." },
        Field { name: "pdID", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "pdID is the ID that identifies Photon Controller persistent disk" },
    ],
};

static CORE_V1_POD: Type = Type {
    name: "io.k8s.api.core.v1.Pod",
    description: "Pod is a collection of containers that can run on a host. This resource is created by clients and scheduled onto hosts.",
    atomic: false,
    fields: &[
        Field { name: "apiVersion", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[], embedded: None, go_type: None, description: "APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized schemas to the latest internal value, and may reject unrecognized values. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources" },
        Field { name: "kind", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[], embedded: None, go_type: None, description: "Kind is a string value representing the REST resource this object represents. Servers may infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds" },
        Field { name: "metadata", shape: Shape::Object(&META_V1_OBJECTMETA), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata" },
        Field { name: "spec", shape: Shape::Object(&CORE_V1_PODSPEC), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "Specification of the desired behavior of the pod. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#spec-and-status" },
        Field { name: "status", shape: Shape::Object(&CORE_V1_PODSTATUS), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "Most recently observed status of the pod. This data may not be up to date. Populated by the system. Read-only. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#spec-and-status" },
    ],
};

static CORE_V1_PODAFFINITY: Type = Type {
    name: "io.k8s.api.core.v1.PodAffinity",
    description: "Pod affinity is a group of inter pod affinity scheduling rules.",
    atomic: false,
    fields: &[
        Field { name: "preferredDuringSchedulingIgnoredDuringExecution", shape: Shape::List(&Shape::Object(&CORE_V1_WEIGHTEDPODAFFINITYTERM), Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "The scheduler will prefer to schedule pods to nodes that satisfy the affinity expressions specified by this field, but it may choose a node that violates one or more of the expressions. The node that is most preferred is the one with the greatest sum of weights, i.e. for each node that meets all of the scheduling requirements (resource request, requiredDuringScheduling affinity expressions, etc.), compute a sum by iterating through the elements of this field and adding \"weight\" to the sum if the node has pods which matches the corresponding podAffinityTerm; the node(s) with the highest sum are the most preferred." },
        Field { name: "requiredDuringSchedulingIgnoredDuringExecution", shape: Shape::List(&Shape::Object(&CORE_V1_PODAFFINITYTERM), Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "If the affinity requirements specified by this field are not met at scheduling time, the pod will not be scheduled onto the node. If the affinity requirements specified by this field cease to be met at some point during pod execution (e.g. due to a pod label update), the system may or may not try to eventually evict the pod from its node. When there are multiple elements, the lists of nodes corresponding to each podAffinityTerm are intersected, i.e. all terms must be satisfied." },
    ],
};

static CORE_V1_PODAFFINITYTERM: Type = Type {
    name: "io.k8s.api.core.v1.PodAffinityTerm",
    description: "Defines a set of pods (namely those matching the labelSelector relative to the given namespace(s)) that this pod should be co-located (affinity) or not co-located (anti-affinity) with, where co-located is defined as running on a node whose value of the label with key <topologyKey> matches that of any node on which a pod of the set of pods is running",
    atomic: false,
    fields: &[
        Field { name: "labelSelector", shape: Shape::Object(&META_V1_LABELSELECTOR), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "A label query over a set of resources, in this case pods. If it's null, this PodAffinityTerm matches with no Pods." },
        Field { name: "matchLabelKeys", shape: Shape::List(&Shape::String, Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[5], embedded: None, go_type: None, description: "MatchLabelKeys is a set of pod label keys to select which pods will be taken into consideration. The keys are used to lookup values from the incoming pod labels, those key-value labels are merged with `labelSelector` as `key in (value)` to select the group of existing pods which pods will be taken into consideration for the incoming pod's pod (anti) affinity. Keys that don't exist in the incoming pod labels will be ignored. The default value is empty. The same key is forbidden to exist in both matchLabelKeys and labelSelector. Also, matchLabelKeys cannot be set when labelSelector isn't set." },
        Field { name: "mismatchLabelKeys", shape: Shape::List(&Shape::String, Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[6], embedded: None, go_type: None, description: "MismatchLabelKeys is a set of pod label keys to select which pods will be taken into consideration. The keys are used to lookup values from the incoming pod labels, those key-value labels are merged with `labelSelector` as `key notin (value)` to select the group of existing pods which pods will be taken into consideration for the incoming pod's pod (anti) affinity. Keys that don't exist in the incoming pod labels will be ignored. The default value is empty. The same key is forbidden to exist in both mismatchLabelKeys and labelSelector. Also, mismatchLabelKeys cannot be set when labelSelector isn't set." },
        Field { name: "namespaceSelector", shape: Shape::Object(&META_V1_LABELSELECTOR), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "A label query over the set of namespaces that the term applies to. The term is applied to the union of the namespaces selected by this field and the ones listed in the namespaces field. null selector and null or empty namespaces list means \"this pod's namespace\". An empty selector ({}) matches all namespaces." },
        Field { name: "namespaces", shape: Shape::List(&Shape::String, Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "namespaces specifies a static list of namespace names that the term applies to. The term is applied to the union of the namespaces listed in this field and the ones selected by namespaceSelector. null or empty namespaces list and null namespaceSelector means \"this pod's namespace\"." },
        Field { name: "topologyKey", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "This pod should be co-located (affinity) or not co-located (anti-affinity) with the pods matching the labelSelector in the specified namespaces, where co-located is defined as running on a node whose value of the label with key topologyKey matches that of any node on which any of the selected pods is running. Empty topologyKey is not allowed." },
    ],
};

static CORE_V1_PODANTIAFFINITY: Type = Type {
    name: "io.k8s.api.core.v1.PodAntiAffinity",
    description: "Pod anti affinity is a group of inter pod anti affinity scheduling rules.",
    atomic: false,
    fields: &[
        Field { name: "preferredDuringSchedulingIgnoredDuringExecution", shape: Shape::List(&Shape::Object(&CORE_V1_WEIGHTEDPODAFFINITYTERM), Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "The scheduler will prefer to schedule pods to nodes that satisfy the anti-affinity expressions specified by this field, but it may choose a node that violates one or more of the expressions. The node that is most preferred is the one with the greatest sum of weights, i.e. for each node that meets all of the scheduling requirements (resource request, requiredDuringScheduling anti-affinity expressions, etc.), compute a sum by iterating through the elements of this field and subtracting \"weight\" from the sum if the node has pods which matches the corresponding podAffinityTerm; the node(s) with the highest sum are the most preferred." },
        Field { name: "requiredDuringSchedulingIgnoredDuringExecution", shape: Shape::List(&Shape::Object(&CORE_V1_PODAFFINITYTERM), Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "If the anti-affinity requirements specified by this field are not met at scheduling time, the pod will not be scheduled onto the node. If the anti-affinity requirements specified by this field cease to be met at some point during pod execution (e.g. due to a pod label update), the system may or may not try to eventually evict the pod from its node. When there are multiple elements, the lists of nodes corresponding to each podAffinityTerm are intersected, i.e. all terms must be satisfied." },
    ],
};

static CORE_V1_PODCERTIFICATEPROJECTION: Type = Type {
    name: "io.k8s.api.core.v1.PodCertificateProjection",
    description: "PodCertificateProjection provides a private key and X.509 certificate in the pod filesystem.",
    atomic: false,
    fields: &[
        Field { name: "certificateChainPath", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[6], embedded: None, go_type: None, description: "Write the certificate chain at this path in the projected volume.\n\nMost applications should use credentialBundlePath.  When using keyPath and certificateChainPath, your application needs to check that the key and leaf certificate are consistent, because it is possible to read the files mid-rotation." },
        Field { name: "credentialBundlePath", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "Write the credential bundle at this path in the projected volume.\n\nThe credential bundle is a single file that contains multiple PEM blocks. The first PEM block is a PRIVATE KEY block, containing a PKCS#8 private key.\n\nThe remaining blocks are CERTIFICATE blocks, containing the issued certificate chain from the signer (leaf and any intermediates).\n\nUsing credentialBundlePath lets your Pod's application code make a single atomic read that retrieves a consistent key and certificate chain.  If you project them to separate files, your application code will need to additionally check that the leaf certificate was issued to the key." },
        Field { name: "keyPath", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[5], embedded: None, go_type: None, description: "Write the key at this path in the projected volume.\n\nMost applications should use credentialBundlePath.  When using keyPath and certificateChainPath, your application needs to check that the key and leaf certificate are consistent, because it is possible to read the files mid-rotation." },
        Field { name: "keyType", shape: Shape::String, required: true, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "The type of keypair Kubelet will generate for the pod.\n\nValid values are \"RSA3072\", \"RSA4096\", \"ECDSAP256\", \"ECDSAP384\", \"ECDSAP521\", and \"ED25519\"." },
        Field { name: "maxExpirationSeconds", shape: Shape::Int32, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "maxExpirationSeconds is the maximum lifetime permitted for the certificate.\n\nKubelet copies this value verbatim into the PodCertificateRequests it generates for this projection.\n\nIf omitted, kube-apiserver will set it to 86400(24 hours). kube-apiserver will reject values shorter than 3600 (1 hour).  The maximum allowable value is 7862400 (91 days).\n\nThe signer implementation is then free to issue a certificate with any lifetime *shorter* than MaxExpirationSeconds, but no shorter than 3600 seconds (1 hour).  This constraint is enforced by kube-apiserver. `kubernetes.io` signers will never issue certificates with a lifetime longer than 24 hours." },
        Field { name: "signerName", shape: Shape::String, required: true, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Kubelet's generated CSRs will be addressed to this signer." },
        Field { name: "userAnnotations", shape: Shape::Map(&Shape::String, MapKind::Granular), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[7], embedded: None, go_type: None, description: "userAnnotations allow pod authors to pass additional information to the signer implementation.  Kubernetes does not restrict or validate this metadata in any way.\n\nThese values are copied verbatim into the `spec.unverifiedUserAnnotations` field of the PodCertificateRequest objects that Kubelet creates.\n\nEntries are subject to the same validation as object metadata annotations, with the addition that all keys must be domain-prefixed. No restrictions are placed on values, except an overall size limitation on the entire field.\n\nSigners should document the keys and values they support. Signers should deny requests that contain keys they do not recognize." },
    ],
};

static CORE_V1_PODCONDITION: Type = Type {
    name: "io.k8s.api.core.v1.PodCondition",
    description: "PodCondition contains details for the current condition of this pod.",
    atomic: false,
    fields: &[
        Field { name: "lastProbeTime", shape: Shape::Time, required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "Last time we probed the condition." },
        Field { name: "lastTransitionTime", shape: Shape::Time, required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "Last time the condition transitioned from one status to another." },
        Field { name: "message", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[6], embedded: None, go_type: None, description: "Human-readable message indicating details about last transition." },
        Field { name: "observedGeneration", shape: Shape::Int64, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[7], embedded: None, go_type: None, description: "If set, this represents the .metadata.generation that the pod condition was set based upon." },
        Field { name: "reason", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[5], embedded: None, go_type: None, description: "Unique, one-word, CamelCase reason for the condition's last transition." },
        Field { name: "status", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: Some("v1.ConditionStatus"), description: "Status is the status of the condition. Can be True, False, Unknown. More info: https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle#pod-conditions" },
        Field { name: "type", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: Some("v1.PodConditionType"), description: "Type is the type of the condition. More info: https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle#pod-conditions" },
    ],
};

static CORE_V1_PODDNSCONFIG: Type = Type {
    name: "io.k8s.api.core.v1.PodDNSConfig",
    description: "PodDNSConfig defines the DNS parameters of a pod in addition to those generated from DNSPolicy.",
    atomic: false,
    fields: &[
        Field { name: "nameservers", shape: Shape::List(&Shape::String, Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "A list of DNS name server IP addresses. This will be appended to the base nameservers generated from DNSPolicy. Duplicated nameservers will be removed." },
        Field { name: "options", shape: Shape::List(&Shape::Object(&CORE_V1_PODDNSCONFIGOPTION), Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "A list of DNS resolver options. This will be merged with the base options generated from DNSPolicy. Duplicated entries will be removed. Resolution options given in Options will override those that appear in the base DNSPolicy." },
        Field { name: "searches", shape: Shape::List(&Shape::String, Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "A list of DNS search domains for host-name lookup. This will be appended to the base search paths generated from DNSPolicy. Duplicated search paths will be removed." },
    ],
};

static CORE_V1_PODDNSCONFIGOPTION: Type = Type {
    name: "io.k8s.api.core.v1.PodDNSConfigOption",
    description: "PodDNSConfigOption defines DNS resolver options of a pod.",
    atomic: false,
    fields: &[
        Field { name: "name", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Name is this DNS resolver option's name. Required." },
        Field { name: "value", shape: Shape::String, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "Value is this DNS resolver option's value." },
    ],
};

static CORE_V1_PODEXTENDEDRESOURCECLAIMSTATUS: Type = Type {
    name: "io.k8s.api.core.v1.PodExtendedResourceClaimStatus",
    description: "PodExtendedResourceClaimStatus is stored in the PodStatus for the extended resource requests backed by DRA. It stores the generated name for the corresponding special ResourceClaim created by the scheduler.",
    atomic: false,
    fields: &[
        Field { name: "requestMappings", shape: Shape::List(&Shape::Object(&CORE_V1_CONTAINEREXTENDEDRESOURCEREQUEST), Keys::Atomic), required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "RequestMappings identifies the mapping of <container, extended resource backed by DRA> to  device request in the generated ResourceClaim." },
        Field { name: "resourceClaimName", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "ResourceClaimName is the name of the ResourceClaim that was generated for the Pod in the namespace of the Pod." },
    ],
};

static CORE_V1_PODIP: Type = Type {
    name: "io.k8s.api.core.v1.PodIP",
    description: "PodIP represents a single IP address allocated to the pod.",
    atomic: false,
    fields: &[
        Field { name: "ip", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "IP is the IP address assigned to the pod" },
    ],
};

static CORE_V1_PODOS: Type = Type {
    name: "io.k8s.api.core.v1.PodOS",
    description: "PodOS defines the OS parameters of a pod.",
    atomic: false,
    fields: &[
        Field { name: "name", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: Some("v1.OSName"), description: "Name is the name of the operating system. The currently supported values are linux and windows. Additional value may be defined in future and can be one of: https://github.com/opencontainers/runtime-spec/blob/master/config.md#platform-specific-configuration Clients should expect to handle additional values and treat unrecognized values in this field as os: null" },
    ],
};

static CORE_V1_PODREADINESSGATE: Type = Type {
    name: "io.k8s.api.core.v1.PodReadinessGate",
    description: "PodReadinessGate contains the reference to a pod condition",
    atomic: false,
    fields: &[
        Field { name: "conditionType", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: Some("v1.PodConditionType"), description: "ConditionType refers to a condition in the pod's condition list with matching type." },
    ],
};

static CORE_V1_PODRESOURCECLAIM: Type = Type {
    name: "io.k8s.api.core.v1.PodResourceClaim",
    description: "PodResourceClaim references exactly one ResourceClaim, either directly or by naming a ResourceClaimTemplate which is then turned into a ResourceClaim for the pod.\n\nIt adds a name to it that uniquely identifies the ResourceClaim inside the Pod. Containers that need access to the ResourceClaim reference it with this name.\n\nWhen the DRAWorkloadResourceClaims feature gate is enabled and this Pod belongs to a PodGroup, a PodResourceClaim is matched to a PodGroupResourceClaim if all of their fields are equal (Name, ResourceClaimName, and ResourceClaimTemplateName). A matched claim references a single ResourceClaim shared across all Pods in the PodGroup, reserved for the PodGroup in ResourceClaimStatus.ReservedFor rather than for individual Pods.",
    atomic: false,
    fields: &[
        Field { name: "name", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Name uniquely identifies this resource claim inside the pod. This must be a DNS_LABEL." },
        Field { name: "resourceClaimName", shape: Shape::String, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "ResourceClaimName is the name of a ResourceClaim object in the same namespace as this pod.\n\nExactly one of ResourceClaimName and ResourceClaimTemplateName must be set." },
        Field { name: "resourceClaimTemplateName", shape: Shape::String, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "ResourceClaimTemplateName is the name of a ResourceClaimTemplate object in the same namespace as this pod.\n\nThe template will be used to create a new ResourceClaim, which will be bound to this pod. When this pod is deleted, the ResourceClaim will also be deleted. The pod name and resource name, along with a generated component, will be used to form a unique name for the ResourceClaim, which will be recorded in pod.status.resourceClaimStatuses.\n\nWhen the DRAWorkloadResourceClaims feature gate is enabled and the pod belongs to a PodGroup that defines a PodGroupResourceClaim with the same Name and ResourceClaimTemplateName, this PodResourceClaim resolves to the ResourceClaim generated for the PodGroup. All pods in the group that define an equivalent PodResourceClaim matching the PodGroupResourceClaim's Name and ResourceClaimTemplateName share the same generated ResourceClaim. ResourceClaims generated for a PodGroup are owned by the PodGroup and their lifecycles are tied to the PodGroup instead of any individual pod.\n\nThis field is immutable and no changes will be made to the corresponding ResourceClaim by the control plane after creating the ResourceClaim.\n\nExactly one of ResourceClaimName and ResourceClaimTemplateName must be set." },
    ],
};

static CORE_V1_PODRESOURCECLAIMSTATUS: Type = Type {
    name: "io.k8s.api.core.v1.PodResourceClaimStatus",
    description: "PodResourceClaimStatus is stored in the PodStatus for each PodResourceClaim which references a ResourceClaimTemplate. It stores the generated name for the corresponding ResourceClaim.",
    atomic: false,
    fields: &[
        Field { name: "name", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Name uniquely identifies this resource claim inside the pod. This must match the name of an entry in pod.spec.resourceClaims, which implies that the string must be a DNS_LABEL." },
        Field { name: "resourceClaimName", shape: Shape::String, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "ResourceClaimName is the name of the ResourceClaim that was generated for the Pod in the namespace of the Pod.\n\nWhen the DRAWorkloadResourceClaims feature is enabled and the corresponding PodResourceClaim matches a PodGroupResourceClaim made by the Pod's PodGroup, then this is the name of the ResourceClaim generated and reserved for the PodGroup.\n\nIf this is unset, then generating a ResourceClaim was not necessary. The pod.spec.resourceClaims entry can be ignored in this case." },
    ],
};

static CORE_V1_PODSCHEDULINGGATE: Type = Type {
    name: "io.k8s.api.core.v1.PodSchedulingGate",
    description: "PodSchedulingGate is associated to a Pod to guard its scheduling.",
    atomic: false,
    fields: &[
        Field { name: "name", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Name of the scheduling gate. Each scheduling gate must have a unique name field." },
    ],
};

static CORE_V1_PODSCHEDULINGGROUP: Type = Type {
    name: "io.k8s.api.core.v1.PodSchedulingGroup",
    description: "PodSchedulingGroup identifies the runtime scheduling group instance that a Pod belongs to. The scheduler uses this information to apply workload-aware scheduling semantics. Exactly one field must be specified.",
    atomic: false,
    fields: &[
        Field { name: "podGroupName", shape: Shape::String, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "PodGroupName specifies the name of the standalone PodGroup object that represents the runtime instance of this group. Must be a DNS subdomain." },
    ],
};

static CORE_V1_PODSECURITYCONTEXT: Type = Type {
    name: "io.k8s.api.core.v1.PodSecurityContext",
    description: "PodSecurityContext holds pod-level security attributes and common container settings. Some fields are also present in container.securityContext.  Field values of container.securityContext take precedence over field values of PodSecurityContext.",
    atomic: false,
    fields: &[
        Field { name: "appArmorProfile", shape: Shape::Object(&CORE_V1_APPARMORPROFILE), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[11], embedded: None, go_type: None, description: "appArmorProfile is the AppArmor options to use by the containers in this pod. Note that this field cannot be set when spec.os.name is windows." },
        Field { name: "fsGroup", shape: Shape::Int64, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[5], embedded: None, go_type: None, description: "A special supplemental group that applies to all containers in a pod. Some volume types allow the Kubelet to change the ownership of that volume to be owned by the pod:\n\n1. The owning GID will be the FSGroup 2. The setgid bit is set (new files created in the volume will be owned by FSGroup) 3. The permission bits are OR'd with rw-rw----\n\nIf unset, the Kubelet will not modify the ownership and permissions of any volume. Note that this field cannot be set when spec.os.name is windows." },
        Field { name: "fsGroupChangePolicy", shape: Shape::String, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[9], embedded: None, go_type: Some("v1.PodFSGroupChangePolicy"), description: "fsGroupChangePolicy defines behavior of changing ownership and permission of the volume before being exposed inside Pod. This field will only apply to volume types which support fsGroup based ownership(and permissions). It will have no effect on ephemeral volume types such as: secret, configmaps and emptydir. Valid values are \"OnRootMismatch\" and \"Always\". If not specified, \"Always\" is used. Note that this field cannot be set when spec.os.name is windows." },
        Field { name: "runAsGroup", shape: Shape::Int64, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[6], embedded: None, go_type: None, description: "The GID to run the entrypoint of the container process. Uses runtime default if unset. May also be set in SecurityContext.  If set in both SecurityContext and PodSecurityContext, the value specified in SecurityContext takes precedence for that container. Note that this field cannot be set when spec.os.name is windows." },
        Field { name: "runAsNonRoot", shape: Shape::Bool, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "Indicates that the container must run as a non-root user. If true, the Kubelet will validate the image at runtime to ensure that it does not run as UID 0 (root) and fail to start the container if it does. If unset or false, no such validation will be performed. May also be set in SecurityContext.  If set in both SecurityContext and PodSecurityContext, the value specified in SecurityContext takes precedence." },
        Field { name: "runAsUser", shape: Shape::Int64, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "The UID to run the entrypoint of the container process. Defaults to user specified in image metadata if unspecified. May also be set in SecurityContext.  If set in both SecurityContext and PodSecurityContext, the value specified in SecurityContext takes precedence for that container. Note that this field cannot be set when spec.os.name is windows." },
        Field { name: "seLinuxChangePolicy", shape: Shape::String, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[13], embedded: None, go_type: Some("v1.PodSELinuxChangePolicy"), description: "seLinuxChangePolicy defines how the container's SELinux label is applied to all volumes used by the Pod. It has no effect on nodes that do not support SELinux or to volumes does not support SELinux. Valid values are \"MountOption\" and \"Recursive\".\n\n\"Recursive\" means relabeling of all files on all Pod volumes by the container runtime. This may be slow for large volumes, but allows mixing privileged and unprivileged Pods sharing the same volume on the same node.\n\n\"MountOption\" mounts all eligible Pod volumes with `-o context` mount option. This requires all Pods that share the same volume to use the same SELinux label. It is not possible to share the same volume among privileged and unprivileged Pods. Eligible volumes are in-tree FibreChannel and iSCSI volumes, and all CSI volumes whose CSI driver announces SELinux support by setting spec.seLinuxMount: true in their CSIDriver instance. Other volumes are always re-labelled recursively. \"MountOption\" value is allowed only when SELinuxMount feature gate is enabled.\n\nIf not specified and SELinuxMount feature gate is enabled, \"MountOption\" is used. If not specified and SELinuxMount feature gate is disabled, \"MountOption\" is used for ReadWriteOncePod volumes and \"Recursive\" for all other volumes.\n\nThis field affects only Pods that have SELinux label set, either in PodSecurityContext or in SecurityContext of all containers.\n\nAll Pods that use the same volume should use the same seLinuxChangePolicy, otherwise some pods can get stuck in ContainerCreating state. Note that this field cannot be set when spec.os.name is windows." },
        Field { name: "seLinuxOptions", shape: Shape::Object(&CORE_V1_SELINUXOPTIONS), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "The SELinux context to be applied to all containers. If unspecified, the container runtime will allocate a random SELinux context for each container.  May also be set in SecurityContext.  If set in both SecurityContext and PodSecurityContext, the value specified in SecurityContext takes precedence for that container. Note that this field cannot be set when spec.os.name is windows." },
        Field { name: "seccompProfile", shape: Shape::Object(&CORE_V1_SECCOMPPROFILE), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[10], embedded: None, go_type: None, description: "The seccomp options to use by the containers in this pod. Note that this field cannot be set when spec.os.name is windows." },
        Field { name: "supplementalGroups", shape: Shape::List(&Shape::Int64, Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "A list of groups applied to the first process run in each container, in addition to the container's primary GID and fsGroup (if specified).  If the SupplementalGroupsPolicy feature is enabled, the supplementalGroupsPolicy field determines whether these are in addition to or instead of any group memberships defined in the container image. If unspecified, no additional groups are added, though group memberships defined in the container image may still be used, depending on the supplementalGroupsPolicy field. Note that this field cannot be set when spec.os.name is windows." },
        Field { name: "supplementalGroupsPolicy", shape: Shape::String, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[12], embedded: None, go_type: Some("v1.SupplementalGroupsPolicy"), description: "Defines how supplemental groups of the first container processes are calculated. Valid values are \"Merge\" and \"Strict\". If not specified, \"Merge\" is used. (Alpha) Using the field requires the SupplementalGroupsPolicy feature gate to be enabled and the container runtime must implement support for this feature. Note that this field cannot be set when spec.os.name is windows." },
        Field { name: "sysctls", shape: Shape::List(&Shape::Object(&CORE_V1_SYSCTL), Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[7], embedded: None, go_type: None, description: "Sysctls hold a list of namespaced sysctls used for the pod. Pods with unsupported sysctls (by the container runtime) might fail to launch. Note that this field cannot be set when spec.os.name is windows." },
        Field { name: "windowsOptions", shape: Shape::Object(&CORE_V1_WINDOWSSECURITYCONTEXTOPTIONS), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[8], embedded: None, go_type: None, description: "The Windows specific settings applied to all containers. If unspecified, the options within a container's SecurityContext will be used. If set in both SecurityContext and PodSecurityContext, the value specified in SecurityContext takes precedence. Note that this field cannot be set when spec.os.name is linux." },
    ],
};

static CORE_V1_PODSPEC: Type = Type {
    name: "io.k8s.api.core.v1.PodSpec",
    description: "PodSpec is a description of a pod.",
    atomic: false,
    fields: &[
        Field { name: "activeDeadlineSeconds", shape: Shape::Int64, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[5], embedded: None, go_type: None, description: "Optional duration in seconds the pod may be active on the node relative to StartTime before the system will actively try to mark it failed and kill associated containers. Value must be a positive integer." },
        Field { name: "affinity", shape: Shape::Object(&CORE_V1_AFFINITY), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[18], embedded: None, go_type: None, description: "If specified, the pod's scheduling constraints" },
        Field { name: "automountServiceAccountToken", shape: Shape::Bool, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[21], embedded: None, go_type: None, description: "AutomountServiceAccountToken indicates whether a service account token should be automatically mounted." },
        Field { name: "containers", shape: Shape::List(&Shape::Object(&CORE_V1_CONTAINER), Keys::Fields(&["name"])), required: true, presence: Presence::Always, default: None, patch: Patch::Merge(Some("name")), proto: &[2], embedded: None, go_type: None, description: "List of containers belonging to the pod. Containers cannot currently be added or removed. There must be at least one container in a Pod. Cannot be updated." },
        Field { name: "dnsConfig", shape: Shape::Object(&CORE_V1_PODDNSCONFIG), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[26], embedded: None, go_type: None, description: "Specifies the DNS parameters of a pod. Parameters specified here will be merged to the generated DNS configuration based on DNSPolicy." },
        Field { name: "dnsPolicy", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[6], embedded: None, go_type: Some("v1.DNSPolicy"), description: "Set DNS policy for the pod. Defaults to \"ClusterFirst\". Valid values are 'ClusterFirstWithHostNet', 'ClusterFirst', 'Default' or 'None'. DNS parameters given in DNSConfig will be merged with the policy selected with DNSPolicy. To have DNS options set along with hostNetwork, you have to specify DNS policy explicitly to 'ClusterFirstWithHostNet'." },
        Field { name: "enableServiceLinks", shape: Shape::Bool, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[30], embedded: None, go_type: None, description: "EnableServiceLinks indicates whether information about services should be injected into pod's environment variables, matching the syntax of Docker links. Optional: Defaults to true." },
        Field { name: "ephemeralContainers", shape: Shape::List(&Shape::Object(&CORE_V1_EPHEMERALCONTAINER), Keys::Fields(&["name"])), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Merge(Some("name")), proto: &[34], embedded: None, go_type: None, description: "List of ephemeral containers run in this pod. Ephemeral containers may be run in an existing pod to perform user-initiated actions such as debugging. This list cannot be specified when creating a pod, and it cannot be modified by updating the pod spec. In order to add an ephemeral container to an existing pod, use the pod's ephemeralcontainers subresource." },
        Field { name: "hostAliases", shape: Shape::List(&Shape::Object(&CORE_V1_HOSTALIAS), Keys::Fields(&["ip"])), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Merge(Some("ip")), proto: &[23], embedded: None, go_type: None, description: "HostAliases is an optional list of hosts and IPs that will be injected into the pod's hosts file if specified." },
        Field { name: "hostIPC", shape: Shape::Bool, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[13], embedded: None, go_type: None, description: "Use the host's ipc namespace. Optional: Default to false." },
        Field { name: "hostNetwork", shape: Shape::Bool, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[11], embedded: None, go_type: None, description: "Host networking requested for this pod. Use the host's network namespace. When using HostNetwork you should specify ports so the scheduler is aware. When `hostNetwork` is true, specified `hostPort` fields in port definitions must match `containerPort`, and unspecified `hostPort` fields in port definitions are defaulted to match `containerPort`. Default to false." },
        Field { name: "hostPID", shape: Shape::Bool, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[12], embedded: None, go_type: None, description: "Use the host's pid namespace. Optional: Default to false." },
        Field { name: "hostUsers", shape: Shape::Bool, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[37], embedded: None, go_type: None, description: "Use the host's user namespace. Optional: Default to true. If set to true or not present, the pod will be run in the host user namespace, useful for when the pod needs a feature only available to the host user namespace, such as loading a kernel module with CAP_SYS_MODULE. When set to false, a new userns is created for the pod. Setting false is useful for mitigating container breakout vulnerabilities even allowing users to run their containers as root without actually having root privileges on the host." },
        Field { name: "hostname", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[16], embedded: None, go_type: None, description: "Specifies the hostname of the Pod If not specified, the pod's hostname will be set to a system-defined value." },
        Field { name: "hostnameOverride", shape: Shape::String, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[41], embedded: None, go_type: None, description: "HostnameOverride specifies an explicit override for the pod's hostname as perceived by the pod. This field only specifies the pod's hostname and does not affect its DNS records. When this field is set to a non-empty string: - It takes precedence over the values set in `hostname` and `subdomain`. - The Pod's hostname will be set to this value. - `setHostnameAsFQDN` must be nil or set to false. - `hostNetwork` must be set to false.\n\nThis field must be a valid DNS subdomain as defined in RFC 1123 and contain at most 64 characters. Requires the HostnameOverride feature gate to be enabled." },
        Field { name: "imagePullSecrets", shape: Shape::List(&Shape::Object(&CORE_V1_LOCALOBJECTREFERENCE), Keys::Fields(&["name"])), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Merge(Some("name")), proto: &[15], embedded: None, go_type: None, description: "ImagePullSecrets is an optional list of references to secrets in the same namespace to use for pulling any of the images used by this PodSpec. If specified, these secrets will be passed to individual puller implementations for them to use. More info: https://kubernetes.io/docs/concepts/containers/images#specifying-imagepullsecrets-on-a-pod" },
        Field { name: "initContainers", shape: Shape::List(&Shape::Object(&CORE_V1_CONTAINER), Keys::Fields(&["name"])), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Merge(Some("name")), proto: &[20], embedded: None, go_type: None, description: "List of initialization containers belonging to the pod. Init containers are executed in order prior to containers being started. If any init container fails, the pod is considered to have failed and is handled according to its restartPolicy. The name for an init container or normal container must be unique among all containers. Init containers may not have Lifecycle actions, Readiness probes, Liveness probes, or Startup probes. The resourceRequirements of an init container are taken into account during scheduling by finding the highest request/limit for each resource type, and then using the max of that value or the sum of the normal containers. Limits are applied to init containers in a similar fashion. Init containers cannot currently be added or removed. Cannot be updated. More info: https://kubernetes.io/docs/concepts/workloads/pods/init-containers/" },
        Field { name: "nodeName", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[10], embedded: None, go_type: None, description: "NodeName indicates in which node this pod is scheduled. If empty, this pod is a candidate for scheduling by the scheduler defined in schedulerName. Once this field is set, the kubelet for this node becomes responsible for the lifecycle of this pod. This field should not be used to express a desire for the pod to be scheduled on a specific node. https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/#nodename" },
        Field { name: "nodeSelector", shape: Shape::Map(&Shape::String, MapKind::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[7], embedded: None, go_type: None, description: "NodeSelector is a selector which must be true for the pod to fit on a node. Selector which must match a node's labels for the pod to be scheduled on that node. More info: https://kubernetes.io/docs/concepts/configuration/assign-pod-node/" },
        Field { name: "os", shape: Shape::Object(&CORE_V1_PODOS), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[36], embedded: None, go_type: None, description: "Specifies the OS of the containers in the pod. Some pod and container fields are restricted if this is set.\n\nIf the OS field is set to linux, the following fields must be unset: -securityContext.windowsOptions\n\nIf the OS field is set to windows, following fields must be unset: - spec.hostPID - spec.hostIPC - spec.hostUsers - spec.resources - spec.securityContext.appArmorProfile - spec.securityContext.seLinuxOptions - spec.securityContext.seccompProfile - spec.securityContext.fsGroup - spec.securityContext.fsGroupChangePolicy - spec.securityContext.sysctls - spec.shareProcessNamespace - spec.securityContext.runAsUser - spec.securityContext.runAsGroup - spec.securityContext.supplementalGroups - spec.securityContext.supplementalGroupsPolicy - spec.containers[*].securityContext.appArmorProfile - spec.containers[*].securityContext.seLinuxOptions - spec.containers[*].securityContext.seccompProfile - spec.containers[*].securityContext.capabilities - spec.containers[*].securityContext.readOnlyRootFilesystem - spec.containers[*].securityContext.privileged - spec.containers[*].securityContext.allowPrivilegeEscalation - spec.containers[*].securityContext.procMount - spec.containers[*].securityContext.runAsUser - spec.containers[*].securityContext.runAsGroup" },
        Field { name: "overhead", shape: Shape::Map(&Shape::Quantity, MapKind::Granular), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[32], embedded: None, go_type: Some("v1.ResourceList"), description: "Overhead represents the resource overhead associated with running a pod for a given RuntimeClass. This field will be autopopulated at admission time by the RuntimeClass admission controller. If the RuntimeClass admission controller is enabled, overhead must not be set in Pod create requests. The RuntimeClass admission controller will reject Pod create requests which have the overhead already set. If RuntimeClass is configured and selected in the PodSpec, Overhead will be set to the value defined in the corresponding RuntimeClass, otherwise it will remain unset and treated as zero. More info: https://git.k8s.io/enhancements/keps/sig-node/688-pod-overhead/README.md" },
        Field { name: "preemptionPolicy", shape: Shape::String, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[31], embedded: None, go_type: Some("v1.PreemptionPolicy"), description: "PreemptionPolicy is the Policy for preempting pods with lower priority. One of Never, PreemptLowerPriority. Defaults to PreemptLowerPriority if unset." },
        Field { name: "priority", shape: Shape::Int32, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[25], embedded: None, go_type: None, description: "The priority value. Various system components use this field to find the priority of the pod. When Priority Admission Controller is enabled, it prevents users from setting this field. The admission controller populates this field from PriorityClassName. The higher the value, the higher the priority." },
        Field { name: "priorityClassName", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[24], embedded: None, go_type: None, description: "If specified, indicates the pod's priority. \"system-node-critical\" and \"system-cluster-critical\" are two special keywords which indicate the highest priorities with the former being the highest priority. Any other name must be defined by creating a PriorityClass object with that name. If not specified, the pod priority will be default or zero if there is no default." },
        Field { name: "readinessGates", shape: Shape::List(&Shape::Object(&CORE_V1_PODREADINESSGATE), Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[28], embedded: None, go_type: None, description: "If specified, all readiness gates will be evaluated for pod readiness. A pod is ready when all its containers are ready AND all conditions specified in the readiness gates have status equal to \"True\" More info: https://git.k8s.io/enhancements/keps/sig-network/580-pod-readiness-gates" },
        Field { name: "resourceClaims", shape: Shape::List(&Shape::Object(&CORE_V1_PODRESOURCECLAIM), Keys::Fields(&["name"])), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::MergeRetainKeys("name"), proto: &[39], embedded: None, go_type: None, description: "ResourceClaims defines which ResourceClaims must be allocated and reserved before the Pod is allowed to start. The resources will be made available to those containers which consume them by name.\n\nThis is a stable field but requires that the DynamicResourceAllocation feature gate is enabled.\n\nThis field is immutable." },
        Field { name: "resources", shape: Shape::Object(&CORE_V1_RESOURCEREQUIREMENTS), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[40], embedded: None, go_type: None, description: "Resources is the total amount of CPU and Memory resources required by all containers in the pod. It supports specifying Requests and Limits for \"cpu\", \"memory\" and \"hugepages-\" resource names only. ResourceClaims are not supported.\n\nThis field enables fine-grained control over resource allocation for the entire pod, allowing resource sharing among containers in a pod.\n\nThis is an alpha field and requires enabling the PodLevelResources feature gate." },
        Field { name: "restartPolicy", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: Some("v1.RestartPolicy"), description: "Restart policy for all containers within the pod. One of Always, OnFailure, Never. In some contexts, only a subset of those values may be permitted. Default to Always. More info: https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#restart-policy" },
        Field { name: "runtimeClassName", shape: Shape::String, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[29], embedded: None, go_type: None, description: "RuntimeClassName refers to a RuntimeClass object in the node.k8s.io group, which should be used to run this pod.  If no RuntimeClass resource matches the named class, the pod will not be run. If unset or empty, the \"legacy\" RuntimeClass will be used, which is an implicit class with an empty definition that uses the default runtime handler. More info: https://git.k8s.io/enhancements/keps/sig-node/585-runtime-class" },
        Field { name: "schedulerName", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[19], embedded: None, go_type: None, description: "If specified, the pod will be dispatched by specified scheduler. If not specified, the pod will be dispatched by default scheduler." },
        Field { name: "schedulingGates", shape: Shape::List(&Shape::Object(&CORE_V1_PODSCHEDULINGGATE), Keys::Fields(&["name"])), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Merge(Some("name")), proto: &[38], embedded: None, go_type: None, description: "SchedulingGates is an opaque list of values that if specified will block scheduling the pod. If schedulingGates is not empty, the pod will stay in the SchedulingGated state and the scheduler will not attempt to schedule the pod.\n\nSchedulingGates can only be set at pod creation time, and be removed only afterwards." },
        Field { name: "schedulingGroup", shape: Shape::Object(&CORE_V1_PODSCHEDULINGGROUP), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[43], embedded: None, go_type: None, description: "SchedulingGroup provides a reference to the immediate scheduling runtime grouping object that this Pod belongs to. This field is used by the scheduler to identify the group and apply the correct group scheduling policies. The association with a group also impacts other lifecycle aspects of a Pod that are relevant in a wider context of scheduling like preemption, resource attachment, etc. If not specified, the Pod is treated as a single unit in all of these aspects. The group object referenced by this field may not exist at the time the Pod is created. This field is immutable, but a group object with the same name may be recreated with different policies. Doing this during pod scheduling may result in the placement not conforming to the expected policies." },
        Field { name: "securityContext", shape: Shape::Object(&CORE_V1_PODSECURITYCONTEXT), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[14], embedded: None, go_type: None, description: "SecurityContext holds pod-level security attributes and common container settings. Optional: Defaults to empty.  See type description for default values of each field." },
        Field { name: "serviceAccount", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[9], embedded: None, go_type: None, description: "DeprecatedServiceAccount is a deprecated alias for ServiceAccountName. Deprecated: Use serviceAccountName instead." },
        Field { name: "serviceAccountName", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[8], embedded: None, go_type: None, description: "ServiceAccountName is the name of the ServiceAccount to use to run this pod. More info: https://kubernetes.io/docs/tasks/configure-pod-container/configure-service-account/" },
        Field { name: "setHostnameAsFQDN", shape: Shape::Bool, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[35], embedded: None, go_type: None, description: "If true the pod's hostname will be configured as the pod's FQDN, rather than the leaf name (the default). In Linux containers, this means setting the FQDN in the hostname field of the kernel (the nodename field of struct utsname). In Windows containers, this means setting the registry value of hostname for the registry key HKEY_LOCAL_MACHINE\\\\SYSTEM\\\\CurrentControlSet\\\\Services\\\\Tcpip\\\\Parameters to FQDN. If a pod does not have FQDN, this has no effect. Default to false." },
        Field { name: "shareProcessNamespace", shape: Shape::Bool, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[27], embedded: None, go_type: None, description: "Share a single process namespace between all of the containers in a pod. When this is set containers will be able to view and signal processes from other containers in the same pod, and the first process in each container will not be assigned PID 1. HostPID and ShareProcessNamespace cannot both be set. Optional: Default to false." },
        Field { name: "subdomain", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[17], embedded: None, go_type: None, description: "If specified, the fully qualified Pod hostname will be \"<hostname>.<subdomain>.<pod namespace>.svc.<cluster domain>\". If not specified, the pod will not have a domainname at all." },
        Field { name: "terminationGracePeriodSeconds", shape: Shape::Int64, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "Optional duration in seconds the pod needs to terminate gracefully. May be decreased in delete request. Value must be non-negative integer. The value zero indicates stop immediately via the kill signal (no opportunity to shut down). If this value is nil, the default grace period will be used instead. The grace period is the duration in seconds after the processes running in the pod are sent a termination signal and the time when the processes are forcibly halted with a kill signal. Set this value longer than the expected cleanup time for your process. Defaults to 30 seconds." },
        Field { name: "tolerations", shape: Shape::List(&Shape::Object(&CORE_V1_TOLERATION), Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[22], embedded: None, go_type: None, description: "If specified, the pod's tolerations." },
        Field { name: "topologySpreadConstraints", shape: Shape::List(&Shape::Object(&CORE_V1_TOPOLOGYSPREADCONSTRAINT), Keys::Fields(&["topologyKey", "whenUnsatisfiable"])), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Merge(Some("topologyKey")), proto: &[33], embedded: None, go_type: None, description: "TopologySpreadConstraints describes how a group of pods ought to spread across topology domains. Scheduler will schedule pods in a way which abides by the constraints. All topologySpreadConstraints are ANDed." },
        Field { name: "volumes", shape: Shape::List(&Shape::Object(&CORE_V1_VOLUME), Keys::Fields(&["name"])), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::MergeRetainKeys("name"), proto: &[1], embedded: None, go_type: None, description: "List of volumes that can be mounted by containers belonging to the pod. More info: https://kubernetes.io/docs/concepts/storage/volumes" },
    ],
};

static CORE_V1_PODSTATUS: Type = Type {
    name: "io.k8s.api.core.v1.PodStatus",
    description: "PodStatus represents information about the status of a pod. Status may trail the actual state of a system, especially if the node that hosts the pod cannot contact the control plane.",
    atomic: false,
    fields: &[
        Field { name: "allocatedResources", shape: Shape::Map(&Shape::Quantity, MapKind::Granular), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[19], embedded: None, go_type: Some("v1.ResourceList"), description: "AllocatedResources is the total requests allocated for this pod by the node. If pod-level requests are not set, this will be the total requests aggregated across containers in the pod." },
        Field { name: "conditions", shape: Shape::List(&Shape::Object(&CORE_V1_PODCONDITION), Keys::Fields(&["type"])), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Merge(Some("type")), proto: &[2], embedded: None, go_type: None, description: "Current service state of pod. More info: https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle#pod-conditions" },
        Field { name: "containerStatuses", shape: Shape::List(&Shape::Object(&CORE_V1_CONTAINERSTATUS), Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[8], embedded: None, go_type: None, description: "Statuses of containers in this pod. Each container in the pod should have at most one status in this list, and all statuses should be for containers in the pod. However this is not enforced. If a status for a non-existent container is present in the list, or the list has duplicate names, the behavior of various Kubernetes components is not defined and those statuses might be ignored. More info: https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle#pod-and-container-status" },
        Field { name: "ephemeralContainerStatuses", shape: Shape::List(&Shape::Object(&CORE_V1_CONTAINERSTATUS), Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[13], embedded: None, go_type: None, description: "Statuses for any ephemeral containers that have run in this pod. Each ephemeral container in the pod should have at most one status in this list, and all statuses should be for containers in the pod. However this is not enforced. If a status for a non-existent container is present in the list, or the list has duplicate names, the behavior of various Kubernetes components is not defined and those statuses might be ignored. More info: https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle#pod-and-container-status" },
        Field { name: "extendedResourceClaimStatus", shape: Shape::Object(&CORE_V1_PODEXTENDEDRESOURCECLAIMSTATUS), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[18], embedded: None, go_type: None, description: "Status of extended resource claim backed by DRA." },
        Field { name: "hostIP", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[5], embedded: None, go_type: None, description: "hostIP holds the IP address of the host to which the pod is assigned. Empty if the pod has not started yet. A pod can be assigned to a node that has a problem in kubelet which in turns mean that HostIP will not be updated even if there is a node is assigned to pod" },
        Field { name: "hostIPs", shape: Shape::List(&Shape::Object(&CORE_V1_HOSTIP), Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Merge(Some("ip")), proto: &[16], embedded: None, go_type: None, description: "hostIPs holds the IP addresses allocated to the host. If this field is specified, the first entry must match the hostIP field. This list is empty if the pod has not started yet. A pod can be assigned to a node that has a problem in kubelet which in turns means that HostIPs will not be updated even if there is a node is assigned to this pod." },
        Field { name: "initContainerStatuses", shape: Shape::List(&Shape::Object(&CORE_V1_CONTAINERSTATUS), Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[10], embedded: None, go_type: None, description: "Statuses of init containers in this pod. The most recent successful non-restartable init container will have ready = true, the most recently started container will have startTime set. Each init container in the pod should have at most one status in this list, and all statuses should be for containers in the pod. However this is not enforced. If a status for a non-existent container is present in the list, or the list has duplicate names, the behavior of various Kubernetes components is not defined and those statuses might be ignored. More info: https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-and-container-status" },
        Field { name: "message", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "A human readable message indicating details about why the pod is in this condition." },
        Field { name: "nodeAllocatableResourceClaimStatuses", shape: Shape::List(&Shape::Object(&CORE_V1_NODEALLOCATABLERESOURCECLAIMSTATUS), Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[21], embedded: None, go_type: None, description: "NodeAllocatableResourceClaimStatuses contains the status of node-allocatable resources that were allocated for this pod through DRA claims. This includes resources currently reported in v1.Node `status.allocatable` that are not extended resources (see https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/#extended-resources). Examples include \"cpu\", \"memory\", \"ephemeral-storage\", and hugepages." },
        Field { name: "nominatedNodeName", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[11], embedded: None, go_type: None, description: "nominatedNodeName is set only when this pod preempts other pods on the node, but it cannot be scheduled right away as preemption victims receive their graceful termination periods. This field does not guarantee that the pod will be scheduled on this node. Scheduler may decide to place the pod elsewhere if other nodes become available sooner. Scheduler may also decide to give the resources on this node to a higher priority pod that is created after preemption. As a result, this field may be different than PodSpec.nodeName when the pod is scheduled." },
        Field { name: "observedGeneration", shape: Shape::Int64, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[17], embedded: None, go_type: None, description: "If set, this represents the .metadata.generation that the pod status was set based upon. The PodObservedGenerationTracking feature gate must be enabled to use this field." },
        Field { name: "phase", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: Some("v1.PodPhase"), description: "The phase of a Pod is a simple, high-level summary of where the Pod is in its lifecycle. The conditions array, the reason and message fields, and the individual container status arrays contain more detail about the pod's status. There are five possible phase values:\n\nPending: The pod has been accepted by the Kubernetes system, but one or more of the container images has not been created. This includes time before being scheduled as well as time spent downloading images over the network, which could take a while. Running: The pod has been bound to a node, and all of the containers have been created. At least one container is still running, or is in the process of starting or restarting. Succeeded: All containers in the pod have terminated in success, and will not be restarted. Failed: All containers in the pod have terminated, and at least one container has terminated in failure. The container either exited with non-zero status or was terminated by the system. Unknown: For some reason the state of the pod could not be obtained, typically due to an error in communicating with the host of the pod.\n\nMore info: https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle#pod-phase" },
        Field { name: "podIP", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[6], embedded: None, go_type: None, description: "podIP address allocated to the pod. Routable at least within the cluster. Empty if not yet allocated." },
        Field { name: "podIPs", shape: Shape::List(&Shape::Object(&CORE_V1_PODIP), Keys::Fields(&["ip"])), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Merge(Some("ip")), proto: &[12], embedded: None, go_type: None, description: "podIPs holds the IP addresses allocated to the pod. If this field is specified, the 0th entry must match the podIP field. Pods may be allocated at most 1 value for each of IPv4 and IPv6. This list is empty if no IPs have been allocated yet." },
        Field { name: "qosClass", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[9], embedded: None, go_type: Some("v1.PodQOSClass"), description: "The Quality of Service (QOS) classification assigned to the pod based on resource requirements See PodQOSClass type for available QOS classes More info: https://kubernetes.io/docs/concepts/workloads/pods/pod-qos/#quality-of-service-classes" },
        Field { name: "reason", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "A brief CamelCase message indicating details about why the pod is in this state. e.g. 'Evicted'" },
        Field { name: "resize", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[14], embedded: None, go_type: Some("v1.PodResizeStatus"), description: "Status of resources resize desired for pod's containers. It is empty if no resources resize is pending. Any changes to container resources will automatically set this to \"Proposed\" Deprecated: Resize status is moved to two pod conditions PodResizePending and PodResizeInProgress. PodResizePending will track states where the spec has been resized, but the Kubelet has not yet allocated the resources. PodResizeInProgress will track in-progress resizes, and should be present whenever allocated resources != acknowledged resources." },
        Field { name: "resourceClaimStatuses", shape: Shape::List(&Shape::Object(&CORE_V1_PODRESOURCECLAIMSTATUS), Keys::Fields(&["name"])), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::MergeRetainKeys("name"), proto: &[15], embedded: None, go_type: None, description: "Status of resource claims." },
        Field { name: "resources", shape: Shape::Object(&CORE_V1_RESOURCEREQUIREMENTS), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[20], embedded: None, go_type: None, description: "Resources represents the compute resource requests and limits that have been applied at the pod level if pod-level requests or limits are set in PodSpec.Resources" },
        Field { name: "startTime", shape: Shape::Time, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[7], embedded: None, go_type: None, description: "RFC 3339 date and time at which the object was acknowledged by the Kubelet. This is before the Kubelet pulled the container image(s) for the pod." },
    ],
};

static CORE_V1_PODTEMPLATE: Type = Type {
    name: "io.k8s.api.core.v1.PodTemplate",
    description: "PodTemplate describes a template for creating copies of a predefined pod.",
    atomic: false,
    fields: &[
        Field { name: "apiVersion", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[], embedded: None, go_type: None, description: "APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized schemas to the latest internal value, and may reject unrecognized values. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources" },
        Field { name: "kind", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[], embedded: None, go_type: None, description: "Kind is a string value representing the REST resource this object represents. Servers may infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds" },
        Field { name: "metadata", shape: Shape::Object(&META_V1_OBJECTMETA), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata" },
        Field { name: "template", shape: Shape::Object(&CORE_V1_PODTEMPLATESPEC), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "Template defines the pods that will be created from this pod template. https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#spec-and-status" },
    ],
};

static CORE_V1_PODTEMPLATESPEC: Type = Type {
    name: "io.k8s.api.core.v1.PodTemplateSpec",
    description: "PodTemplateSpec describes the data a pod should have when created from a template",
    atomic: false,
    fields: &[
        Field { name: "metadata", shape: Shape::Object(&META_V1_OBJECTMETA), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata" },
        Field { name: "spec", shape: Shape::Object(&CORE_V1_PODSPEC), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "Specification of the desired behavior of the pod. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#spec-and-status" },
    ],
};

static CORE_V1_PORTSTATUS: Type = Type {
    name: "io.k8s.api.core.v1.PortStatus",
    description: "PortStatus represents the error condition of a service port",
    atomic: false,
    fields: &[
        Field { name: "error", shape: Shape::String, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "Error is to record the problem with the service port The format of the error shall comply with the following rules: - built-in error values shall be specified in this file and those shall use\n  CamelCase names\n- cloud provider specific error values must have names that comply with the\n  format foo.example.com/CamelCase." },
        Field { name: "port", shape: Shape::Int32, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Port is the port number of the service port of which status is recorded here" },
        Field { name: "protocol", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: Some("v1.Protocol"), description: "Protocol is the protocol of the service port of which status is recorded here The supported values are: \"TCP\", \"UDP\", \"SCTP\"" },
    ],
};

static CORE_V1_PORTWORXVOLUMESOURCE: Type = Type {
    name: "io.k8s.api.core.v1.PortworxVolumeSource",
    description: "PortworxVolumeSource represents a Portworx volume resource.",
    atomic: false,
    fields: &[
        Field { name: "fsType", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "fSType represents the filesystem type to mount Must be a filesystem type supported by the host operating system. Ex. \"ext4\", \"xfs\". Implicitly inferred to be \"ext4\" if unspecified." },
        Field { name: "readOnly", shape: Shape::Bool, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "readOnly defaults to false (read/write). ReadOnly here will force the ReadOnly setting in VolumeMounts." },
        Field { name: "volumeID", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "volumeID uniquely identifies a Portworx volume" },
    ],
};

static CORE_V1_PREFERREDSCHEDULINGTERM: Type = Type {
    name: "io.k8s.api.core.v1.PreferredSchedulingTerm",
    description: "An empty preferred scheduling term matches all objects with implicit weight 0 (i.e. it's a no-op). A null preferred scheduling term matches no objects (i.e. is also a no-op).",
    atomic: false,
    fields: &[
        Field { name: "preference", shape: Shape::Object(&CORE_V1_NODESELECTORTERM), required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "A node selector term, associated with the corresponding weight." },
        Field { name: "weight", shape: Shape::Int32, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Weight associated with matching the corresponding nodeSelectorTerm, in the range 1-100." },
    ],
};

static CORE_V1_PROBE: Type = Type {
    name: "io.k8s.api.core.v1.Probe",
    description: "Probe describes a health check to be performed against a container to determine whether it is alive or ready to receive traffic.",
    atomic: false,
    fields: &[
        Field { name: "exec", shape: Shape::Object(&CORE_V1_EXECACTION), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[1, 1], embedded: Some("ProbeHandler"), go_type: None, description: "Exec specifies a command to execute in the container." },
        Field { name: "failureThreshold", shape: Shape::Int32, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[6], embedded: None, go_type: None, description: "Minimum consecutive failures for the probe to be considered failed after having succeeded. Defaults to 3. Minimum value is 1." },
        Field { name: "grpc", shape: Shape::Object(&CORE_V1_GRPCACTION), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[1, 4], embedded: Some("ProbeHandler"), go_type: None, description: "GRPC specifies a GRPC HealthCheckRequest." },
        Field { name: "httpGet", shape: Shape::Object(&CORE_V1_HTTPGETACTION), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[1, 2], embedded: Some("ProbeHandler"), go_type: None, description: "HTTPGet specifies an HTTP GET request to perform." },
        Field { name: "initialDelaySeconds", shape: Shape::Int32, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "Number of seconds after the container has started before liveness probes are initiated. More info: https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle#container-probes" },
        Field { name: "periodSeconds", shape: Shape::Int32, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "How often (in seconds) to perform the probe. Default to 10 seconds. Minimum value is 1." },
        Field { name: "successThreshold", shape: Shape::Int32, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[5], embedded: None, go_type: None, description: "Minimum consecutive successes for the probe to be considered successful after having failed. Defaults to 1. Must be 1 for liveness and startup. Minimum value is 1." },
        Field { name: "tcpSocket", shape: Shape::Object(&CORE_V1_TCPSOCKETACTION), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[1, 3], embedded: Some("ProbeHandler"), go_type: None, description: "TCPSocket specifies a connection to a TCP port." },
        Field { name: "terminationGracePeriodSeconds", shape: Shape::Int64, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[7], embedded: None, go_type: None, description: "Optional duration in seconds the pod needs to terminate gracefully upon probe failure. The grace period is the duration in seconds after the processes running in the pod are sent a termination signal and the time when the processes are forcibly halted with a kill signal. Set this value longer than the expected cleanup time for your process. If this value is nil, the pod's terminationGracePeriodSeconds will be used. Otherwise, this value overrides the value provided by the pod spec. Value must be non-negative integer. The value zero indicates stop immediately via the kill signal (no opportunity to shut down). This is a beta field and requires enabling ProbeTerminationGracePeriod feature gate. Minimum value is 1. spec.terminationGracePeriodSeconds is used if unset." },
        Field { name: "timeoutSeconds", shape: Shape::Int32, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "Number of seconds after which the probe times out. Defaults to 1 second. Minimum value is 1. More info: https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle#container-probes" },
    ],
};

static CORE_V1_PROJECTEDVOLUMESOURCE: Type = Type {
    name: "io.k8s.api.core.v1.ProjectedVolumeSource",
    description: "Represents a projected volume source",
    atomic: false,
    fields: &[
        Field { name: "defaultMode", shape: Shape::Int32, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "defaultMode are the mode bits used to set permissions on created files by default. Must be an octal value between 0000 and 0777 or a decimal value between 0 and 511. YAML accepts both octal and decimal values, JSON requires decimal values for mode bits. Directories within the path are not affected by this setting. This might be in conflict with other options that affect the file mode, like fsGroup, and the result can be other mode bits set." },
        Field { name: "sources", shape: Shape::List(&Shape::Object(&CORE_V1_VOLUMEPROJECTION), Keys::Atomic), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "sources is the list of volume projections. Each entry in this list handles one source." },
    ],
};

static CORE_V1_QUOBYTEVOLUMESOURCE: Type = Type {
    name: "io.k8s.api.core.v1.QuobyteVolumeSource",
    description: "Represents a Quobyte mount that lasts the lifetime of a pod. Quobyte volumes do not support ownership management or SELinux relabeling.",
    atomic: false,
    fields: &[
        Field { name: "group", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[5], embedded: None, go_type: None, description: "group to map volume access to Default is no group" },
        Field { name: "readOnly", shape: Shape::Bool, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "readOnly here will force the Quobyte volume to be mounted with read-only permissions. Defaults to false." },
        Field { name: "registry", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "registry represents a single or multiple Quobyte Registry services specified as a string as host:port pair (multiple entries are separated with commas) which acts as the central registry for volumes" },
        Field { name: "tenant", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[6], embedded: None, go_type: None, description: "tenant owning the given Quobyte volume in the Backend Used with dynamically provisioned Quobyte volumes, value is set by the plugin" },
        Field { name: "user", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "user to map volume access to Defaults to serivceaccount user" },
        Field { name: "volume", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "volume is a string that references an already created Quobyte volume by name." },
    ],
};

static CORE_V1_RBDVOLUMESOURCE: Type = Type {
    name: "io.k8s.api.core.v1.RBDVolumeSource",
    description: "Represents a Rados Block Device mount that lasts the lifetime of a pod. RBD volumes support ownership management and SELinux relabeling.",
    atomic: false,
    fields: &[
        Field { name: "fsType", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "fsType is the filesystem type of the volume that you want to mount. Tip: Ensure that the filesystem type is supported by the host operating system. Examples: \"ext4\", \"xfs\", \"ntfs\". Implicitly inferred to be \"ext4\" if unspecified. More info: https://kubernetes.io/docs/concepts/storage/volumes#rbd" },
        Field { name: "image", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "image is the rados image name. More info: https://examples.k8s.io/volumes/rbd/README.md#how-to-use-it" },
        Field { name: "keyring", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: Some("\"/etc/ceph/keyring\""), patch: Patch::Plain, proto: &[6], embedded: None, go_type: None, description: "keyring is the path to key ring for RBDUser. Default is /etc/ceph/keyring. More info: https://examples.k8s.io/volumes/rbd/README.md#how-to-use-it" },
        Field { name: "monitors", shape: Shape::List(&Shape::String, Keys::Atomic), required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "monitors is a collection of Ceph monitors. More info: https://examples.k8s.io/volumes/rbd/README.md#how-to-use-it" },
        Field { name: "pool", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: Some("\"rbd\""), patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "pool is the rados pool name. Default is rbd. More info: https://examples.k8s.io/volumes/rbd/README.md#how-to-use-it" },
        Field { name: "readOnly", shape: Shape::Bool, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[8], embedded: None, go_type: None, description: "readOnly here will force the ReadOnly setting in VolumeMounts. Defaults to false. More info: https://examples.k8s.io/volumes/rbd/README.md#how-to-use-it" },
        Field { name: "secretRef", shape: Shape::Object(&CORE_V1_LOCALOBJECTREFERENCE), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[7], embedded: None, go_type: None, description: "secretRef is name of the authentication secret for RBDUser. If provided overrides keyring. Default is nil. More info: https://examples.k8s.io/volumes/rbd/README.md#how-to-use-it" },
        Field { name: "user", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: Some("\"admin\""), patch: Patch::Plain, proto: &[5], embedded: None, go_type: None, description: "user is the rados user name. Default is admin. More info: https://examples.k8s.io/volumes/rbd/README.md#how-to-use-it" },
    ],
};

static CORE_V1_RESOURCECLAIM: Type = Type {
    name: "io.k8s.api.core.v1.ResourceClaim",
    description: "ResourceClaim references one entry in PodSpec.ResourceClaims.",
    atomic: false,
    fields: &[
        Field { name: "name", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Name must match the name of one entry in pod.spec.resourceClaims of the Pod where this field is used. It makes that resource available inside a container." },
        Field { name: "request", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "Request is the name chosen for a request in the referenced claim. If empty, everything from the claim is made available, otherwise only the result of this request." },
    ],
};

static CORE_V1_RESOURCEFIELDSELECTOR: Type = Type {
    name: "io.k8s.api.core.v1.ResourceFieldSelector",
    description: "ResourceFieldSelector represents container resources (cpu, memory) and their output format",
    atomic: true,
    fields: &[
        Field { name: "containerName", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Container name: required for volumes, optional for env vars" },
        Field { name: "divisor", shape: Shape::Quantity, required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "Specifies the output format of the exposed resources, defaults to \"1\"" },
        Field { name: "resource", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "Required: resource to select" },
    ],
};

static CORE_V1_RESOURCEHEALTH: Type = Type {
    name: "io.k8s.api.core.v1.ResourceHealth",
    description: "ResourceHealth represents the health of a resource. It has the latest device health information. This is a part of KEP https://kep.k8s.io/4680.",
    atomic: false,
    fields: &[
        Field { name: "health", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: Some("v1.ResourceHealthStatus"), description: "Health of the resource. can be one of:\n - Healthy: operates as normal\n - Unhealthy: reported unhealthy. We consider this a temporary health issue\n              since we do not have a mechanism today to distinguish\n              temporary and permanent issues.\n - Unknown: The status cannot be determined.\n            For example, Device Plugin got unregistered and hasn't been re-registered since.\n\nIn future we may want to introduce the PermanentlyUnhealthy Status." },
        Field { name: "message", shape: Shape::String, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[6], embedded: None, go_type: None, description: "Message provides human-readable context for Health (e.g. \"ECC error count exceeded threshold\"). This field is populated by the kubelet when ResourceHealthStatusMessage is enabled if the DRA plugin returns a message, and is null otherwise." },
        Field { name: "resourceID", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: Some("v1.ResourceID"), description: "ResourceID is the unique identifier of the resource. See the ResourceID type for more information." },
    ],
};

static CORE_V1_RESOURCEQUOTA: Type = Type {
    name: "io.k8s.api.core.v1.ResourceQuota",
    description: "ResourceQuota sets aggregate quota restrictions enforced per namespace",
    atomic: false,
    fields: &[
        Field { name: "apiVersion", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[], embedded: None, go_type: None, description: "APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized schemas to the latest internal value, and may reject unrecognized values. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources" },
        Field { name: "kind", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[], embedded: None, go_type: None, description: "Kind is a string value representing the REST resource this object represents. Servers may infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds" },
        Field { name: "metadata", shape: Shape::Object(&META_V1_OBJECTMETA), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata" },
        Field { name: "spec", shape: Shape::Object(&CORE_V1_RESOURCEQUOTASPEC), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "Spec defines the desired quota. https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#spec-and-status" },
        Field { name: "status", shape: Shape::Object(&CORE_V1_RESOURCEQUOTASTATUS), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "Status defines the actual enforced quota and its current usage. https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#spec-and-status" },
    ],
};

static CORE_V1_RESOURCEQUOTASPEC: Type = Type {
    name: "io.k8s.api.core.v1.ResourceQuotaSpec",
    description: "ResourceQuotaSpec defines the desired hard limits to enforce for Quota.",
    atomic: false,
    fields: &[
        Field { name: "hard", shape: Shape::Map(&Shape::Quantity, MapKind::Granular), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: Some("v1.ResourceList"), description: "hard is the set of desired hard limits for each named resource. More info: https://kubernetes.io/docs/concepts/policy/resource-quotas/" },
        Field { name: "scopeSelector", shape: Shape::Object(&CORE_V1_SCOPESELECTOR), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "scopeSelector is also a collection of filters like scopes that must match each object tracked by a quota but expressed using ScopeSelectorOperator in combination with possible values. For a resource to match, both scopes AND scopeSelector (if specified in spec), must be matched." },
        Field { name: "scopes", shape: Shape::List(&Shape::String, Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: Some("[]v1.ResourceQuotaScope"), description: "A collection of filters that must match each object tracked by a quota. If not specified, the quota matches all objects." },
    ],
};

static CORE_V1_RESOURCEQUOTASTATUS: Type = Type {
    name: "io.k8s.api.core.v1.ResourceQuotaStatus",
    description: "ResourceQuotaStatus defines the enforced hard limits and observed use.",
    atomic: false,
    fields: &[
        Field { name: "hard", shape: Shape::Map(&Shape::Quantity, MapKind::Granular), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: Some("v1.ResourceList"), description: "Hard is the set of enforced hard limits for each named resource. More info: https://kubernetes.io/docs/concepts/policy/resource-quotas/" },
        Field { name: "used", shape: Shape::Map(&Shape::Quantity, MapKind::Granular), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: Some("v1.ResourceList"), description: "Used is the current observed total usage of the resource in the namespace." },
    ],
};

static CORE_V1_RESOURCEREQUIREMENTS: Type = Type {
    name: "io.k8s.api.core.v1.ResourceRequirements",
    description: "ResourceRequirements describes the compute resource requirements.",
    atomic: false,
    fields: &[
        Field { name: "claims", shape: Shape::List(&Shape::Object(&CORE_V1_RESOURCECLAIM), Keys::Fields(&["name"])), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "Claims lists the names of resources, defined in spec.resourceClaims, that are used by this container.\n\nThis field depends on the DynamicResourceAllocation feature gate.\n\nThis field is immutable. It can only be set for containers." },
        Field { name: "limits", shape: Shape::Map(&Shape::Quantity, MapKind::Granular), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: Some("v1.ResourceList"), description: "Limits describes the maximum amount of compute resources allowed. More info: https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/" },
        Field { name: "requests", shape: Shape::Map(&Shape::Quantity, MapKind::Granular), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: Some("v1.ResourceList"), description: "Requests describes the minimum amount of compute resources required. If Requests is omitted for a container, it defaults to Limits if that is explicitly specified, otherwise to an implementation-defined value. Requests cannot exceed Limits. More info: https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/" },
    ],
};

static CORE_V1_RESOURCESTATUS: Type = Type {
    name: "io.k8s.api.core.v1.ResourceStatus",
    description: "ResourceStatus represents the status of a single resource allocated to a Pod.",
    atomic: false,
    fields: &[
        Field { name: "name", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: Some("v1.ResourceName"), description: "Name of the resource. Must be unique within the pod and in case of non-DRA resource, match one of the resources from the pod spec. For DRA resources, the value must be \"claim:<claim_name>/<request>\". When this status is reported about a container, the \"claim_name\" and \"request\" must match one of the claims of this container." },
        Field { name: "resources", shape: Shape::List(&Shape::Object(&CORE_V1_RESOURCEHEALTH), Keys::Fields(&["resourceID"])), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "List of unique resources health. Each element in the list contains an unique resource ID and its health. At a minimum, for the lifetime of a Pod, resource ID must uniquely identify the resource allocated to the Pod on the Node. If other Pod on the same Node reports the status with the same resource ID, it must be the same resource they share. See ResourceID type definition for a specific format it has in various use cases." },
    ],
};

static CORE_V1_SELINUXOPTIONS: Type = Type {
    name: "io.k8s.api.core.v1.SELinuxOptions",
    description: "SELinuxOptions are the labels to be applied to the container",
    atomic: false,
    fields: &[
        Field { name: "level", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "Level is SELinux level label that applies to the container." },
        Field { name: "role", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "Role is a SELinux role label that applies to the container." },
        Field { name: "type", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "Type is a SELinux type label that applies to the container." },
        Field { name: "user", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "User is a SELinux user label that applies to the container." },
    ],
};

static CORE_V1_SCALEIOVOLUMESOURCE: Type = Type {
    name: "io.k8s.api.core.v1.ScaleIOVolumeSource",
    description: "ScaleIOVolumeSource represents a persistent ScaleIO volume",
    atomic: false,
    fields: &[
        Field { name: "fsType", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: Some("\"xfs\""), patch: Patch::Plain, proto: &[9], embedded: None, go_type: None, description: "fsType is the filesystem type to mount. Must be a filesystem type supported by the host operating system. Ex. \"ext4\", \"xfs\", \"ntfs\". Default is \"xfs\"." },
        Field { name: "gateway", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "gateway is the host address of the ScaleIO API Gateway." },
        Field { name: "protectionDomain", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[5], embedded: None, go_type: None, description: "protectionDomain is the name of the ScaleIO Protection Domain for the configured storage." },
        Field { name: "readOnly", shape: Shape::Bool, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[10], embedded: None, go_type: None, description: "readOnly Defaults to false (read/write). ReadOnly here will force the ReadOnly setting in VolumeMounts." },
        Field { name: "secretRef", shape: Shape::Object(&CORE_V1_LOCALOBJECTREFERENCE), required: true, presence: Presence::OrNull, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "secretRef references to the secret for ScaleIO user and other sensitive information. If this is not provided, Login operation will fail." },
        Field { name: "sslEnabled", shape: Shape::Bool, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "sslEnabled Flag enable/disable SSL communication with Gateway, default false" },
        Field { name: "storageMode", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: Some("\"ThinProvisioned\""), patch: Patch::Plain, proto: &[7], embedded: None, go_type: None, description: "storageMode indicates whether the storage for a volume should be ThickProvisioned or ThinProvisioned. Default is ThinProvisioned." },
        Field { name: "storagePool", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[6], embedded: None, go_type: None, description: "storagePool is the ScaleIO Storage Pool associated with the protection domain." },
        Field { name: "system", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "system is the name of the storage system as configured in ScaleIO." },
        Field { name: "volumeName", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[8], embedded: None, go_type: None, description: "volumeName is the name of a volume already created in the ScaleIO system that is associated with this volume source." },
    ],
};

static CORE_V1_SCOPESELECTOR: Type = Type {
    name: "io.k8s.api.core.v1.ScopeSelector",
    description: "A scope selector represents the AND of the selectors represented by the scoped-resource selector requirements.",
    atomic: true,
    fields: &[
        Field { name: "matchExpressions", shape: Shape::List(&Shape::Object(&CORE_V1_SCOPEDRESOURCESELECTORREQUIREMENT), Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "A list of scope selector requirements by scope of the resources." },
    ],
};

static CORE_V1_SCOPEDRESOURCESELECTORREQUIREMENT: Type = Type {
    name: "io.k8s.api.core.v1.ScopedResourceSelectorRequirement",
    description: "A scoped-resource selector requirement is a selector that contains values, a scope name, and an operator that relates the scope name and values.",
    atomic: false,
    fields: &[
        Field { name: "operator", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: Some("v1.ScopeSelectorOperator"), description: "Represents a scope's relationship to a set of values. Valid operators are In, NotIn, Exists, DoesNotExist." },
        Field { name: "scopeName", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: Some("v1.ResourceQuotaScope"), description: "The name of the scope that the selector applies to." },
        Field { name: "values", shape: Shape::List(&Shape::String, Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "An array of string values. If the operator is In or NotIn, the values array must be non-empty. If the operator is Exists or DoesNotExist, the values array must be empty. This array is replaced during a strategic merge patch." },
    ],
};

static CORE_V1_SECCOMPPROFILE: Type = Type {
    name: "io.k8s.api.core.v1.SeccompProfile",
    description: "SeccompProfile defines a pod/container's seccomp profile settings. Only one profile source may be set.",
    atomic: false,
    fields: &[
        Field { name: "localhostProfile", shape: Shape::String, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "localhostProfile indicates a profile defined in a file on the node should be used. The profile must be preconfigured on the node to work. Must be a descending path, relative to the kubelet's configured seccomp profile location. Must be set if type is \"Localhost\". Must NOT be set for any other type." },
        Field { name: "type", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: Some("v1.SeccompProfileType"), description: "type indicates which kind of seccomp profile will be applied. Valid options are:\n\nLocalhost - a profile defined in a file on the node should be used. RuntimeDefault - the container runtime default profile should be used. Unconfined - no profile should be applied." },
    ],
};

static CORE_V1_SECRET: Type = Type {
    name: "io.k8s.api.core.v1.Secret",
    description: "Secret holds secret data of a certain type. The total bytes of the values in the Data field must be less than MaxSecretSize bytes.",
    atomic: false,
    fields: &[
        Field { name: "apiVersion", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[], embedded: None, go_type: None, description: "APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized schemas to the latest internal value, and may reject unrecognized values. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources" },
        Field { name: "data", shape: Shape::Map(&Shape::Bytes, MapKind::Granular), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "Data contains the secret data. Each key must consist of alphanumeric characters, '-', '_' or '.'. The serialized form of the secret data is a base64 encoded string, representing the arbitrary (possibly non-string) data value here. Described in https://tools.ietf.org/html/rfc4648#section-4" },
        Field { name: "immutable", shape: Shape::Bool, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[5], embedded: None, go_type: None, description: "Immutable, if set to true, ensures that data stored in the Secret cannot be updated (only object metadata can be modified). If not set to true, the field can be modified at any time. Defaulted to nil." },
        Field { name: "kind", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[], embedded: None, go_type: None, description: "Kind is a string value representing the REST resource this object represents. Servers may infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds" },
        Field { name: "metadata", shape: Shape::Object(&META_V1_OBJECTMETA), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata" },
        Field { name: "stringData", shape: Shape::Map(&Shape::String, MapKind::Granular), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "stringData allows specifying non-binary secret data in string form. It is provided as a write-only input field for convenience. All keys and values are merged into the data field on write, overwriting any existing values. The stringData field is never output when reading from the API." },
        Field { name: "type", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: Some("v1.SecretType"), description: "Used to facilitate programmatic handling of secret data. More info: https://kubernetes.io/docs/concepts/configuration/secret/#secret-types" },
    ],
};

static CORE_V1_SECRETENVSOURCE: Type = Type {
    name: "io.k8s.api.core.v1.SecretEnvSource",
    description: "SecretEnvSource selects a Secret to populate the environment variables with.\n\nThe contents of the target Secret's Data field will represent the key-value pairs as environment variables.",
    atomic: false,
    fields: &[
        Field { name: "name", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: Some("\"\""), patch: Patch::Plain, proto: &[1, 1], embedded: Some("LocalObjectReference"), go_type: None, description: "Name of the referent. This field is effectively required, but due to backwards compatibility is allowed to be empty. Instances of this type with an empty value here are almost certainly wrong. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/names/#names" },
        Field { name: "optional", shape: Shape::Bool, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "Specify whether the Secret must be defined" },
    ],
};

static CORE_V1_SECRETKEYSELECTOR: Type = Type {
    name: "io.k8s.api.core.v1.SecretKeySelector",
    description: "SecretKeySelector selects a key of a Secret.",
    atomic: true,
    fields: &[
        Field { name: "key", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "The key of the secret to select from.  Must be a valid secret key." },
        Field { name: "name", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: Some("\"\""), patch: Patch::Plain, proto: &[1, 1], embedded: Some("LocalObjectReference"), go_type: None, description: "Name of the referent. This field is effectively required, but due to backwards compatibility is allowed to be empty. Instances of this type with an empty value here are almost certainly wrong. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/names/#names" },
        Field { name: "optional", shape: Shape::Bool, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "Specify whether the Secret or its key must be defined" },
    ],
};

static CORE_V1_SECRETPROJECTION: Type = Type {
    name: "io.k8s.api.core.v1.SecretProjection",
    description: "Adapts a secret into a projected volume.\n\nThe contents of the target Secret's Data field will be presented in a projected volume as files using the keys in the Data field as the file names. Note that this is identical to a secret volume source without the default mode.",
    atomic: false,
    fields: &[
        Field { name: "items", shape: Shape::List(&Shape::Object(&CORE_V1_KEYTOPATH), Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "items if unspecified, each key-value pair in the Data field of the referenced Secret will be projected into the volume as a file whose name is the key and content is the value. If specified, the listed keys will be projected into the specified paths, and unlisted keys will not be present. If a key is specified which is not present in the Secret, the volume setup will error unless it is marked optional. Paths must be relative and may not contain the '..' path or start with '..'." },
        Field { name: "name", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: Some("\"\""), patch: Patch::Plain, proto: &[1, 1], embedded: Some("LocalObjectReference"), go_type: None, description: "Name of the referent. This field is effectively required, but due to backwards compatibility is allowed to be empty. Instances of this type with an empty value here are almost certainly wrong. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/names/#names" },
        Field { name: "optional", shape: Shape::Bool, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "optional field specify whether the Secret or its key must be defined" },
    ],
};

static CORE_V1_SECRETVOLUMESOURCE: Type = Type {
    name: "io.k8s.api.core.v1.SecretVolumeSource",
    description: "Adapts a Secret into a volume.\n\nThe contents of the target Secret's Data field will be presented in a volume as files using the keys in the Data field as the file names. Secret volumes support ownership management and SELinux relabeling.",
    atomic: false,
    fields: &[
        Field { name: "defaultMode", shape: Shape::Int32, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "defaultMode is Optional: mode bits used to set permissions on created files by default. Must be an octal value between 0000 and 0777 or a decimal value between 0 and 511. YAML accepts both octal and decimal values, JSON requires decimal values for mode bits. Defaults to 0644. Directories within the path are not affected by this setting. This might be in conflict with other options that affect the file mode, like fsGroup, and the result can be other mode bits set." },
        Field { name: "items", shape: Shape::List(&Shape::Object(&CORE_V1_KEYTOPATH), Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "items If unspecified, each key-value pair in the Data field of the referenced Secret will be projected into the volume as a file whose name is the key and content is the value. If specified, the listed keys will be projected into the specified paths, and unlisted keys will not be present. If a key is specified which is not present in the Secret, the volume setup will error unless it is marked optional. Paths must be relative and may not contain the '..' path or start with '..'." },
        Field { name: "optional", shape: Shape::Bool, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "optional field specify whether the Secret or its keys must be defined" },
        Field { name: "secretName", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "secretName is the name of the secret in the pod's namespace to use. More info: https://kubernetes.io/docs/concepts/storage/volumes#secret" },
    ],
};

static CORE_V1_SECURITYCONTEXT: Type = Type {
    name: "io.k8s.api.core.v1.SecurityContext",
    description: "SecurityContext holds security configuration that will be applied to a container. Some fields are present in both SecurityContext and PodSecurityContext.  When both are set, the values in SecurityContext take precedence.",
    atomic: false,
    fields: &[
        Field { name: "allowPrivilegeEscalation", shape: Shape::Bool, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[7], embedded: None, go_type: None, description: "AllowPrivilegeEscalation controls whether a process can gain more privileges than its parent process. This bool directly controls if the no_new_privs flag will be set on the container process. AllowPrivilegeEscalation is true always when the container is: 1) run as Privileged 2) has CAP_SYS_ADMIN Note that this field cannot be set when spec.os.name is windows." },
        Field { name: "appArmorProfile", shape: Shape::Object(&CORE_V1_APPARMORPROFILE), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[12], embedded: None, go_type: None, description: "appArmorProfile is the AppArmor options to use by this container. If set, this profile overrides the pod's appArmorProfile. Note that this field cannot be set when spec.os.name is windows." },
        Field { name: "capabilities", shape: Shape::Object(&CORE_V1_CAPABILITIES), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "The capabilities to add/drop when running containers. Defaults to the default set of capabilities granted by the container runtime. Note that this field cannot be set when spec.os.name is windows." },
        Field { name: "privileged", shape: Shape::Bool, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "Run container in privileged mode. Processes in privileged containers are essentially equivalent to root on the host. Defaults to false. Note that this field cannot be set when spec.os.name is windows." },
        Field { name: "procMount", shape: Shape::String, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[9], embedded: None, go_type: Some("v1.ProcMountType"), description: "procMount denotes the type of proc mount to use for the containers. The default value is Default which uses the container runtime defaults for readonly paths and masked paths. Note that this field cannot be set when spec.os.name is windows." },
        Field { name: "readOnlyRootFilesystem", shape: Shape::Bool, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[6], embedded: None, go_type: None, description: "Whether this container has a read-only root filesystem. Default is false. Note that this field cannot be set when spec.os.name is windows." },
        Field { name: "runAsGroup", shape: Shape::Int64, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[8], embedded: None, go_type: None, description: "The GID to run the entrypoint of the container process. Uses runtime default if unset. May also be set in PodSecurityContext.  If set in both SecurityContext and PodSecurityContext, the value specified in SecurityContext takes precedence. Note that this field cannot be set when spec.os.name is windows." },
        Field { name: "runAsNonRoot", shape: Shape::Bool, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[5], embedded: None, go_type: None, description: "Indicates that the container must run as a non-root user. If true, the Kubelet will validate the image at runtime to ensure that it does not run as UID 0 (root) and fail to start the container if it does. If unset or false, no such validation will be performed. May also be set in PodSecurityContext.  If set in both SecurityContext and PodSecurityContext, the value specified in SecurityContext takes precedence." },
        Field { name: "runAsUser", shape: Shape::Int64, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "The UID to run the entrypoint of the container process. Defaults to user specified in image metadata if unspecified. May also be set in PodSecurityContext.  If set in both SecurityContext and PodSecurityContext, the value specified in SecurityContext takes precedence. Note that this field cannot be set when spec.os.name is windows." },
        Field { name: "seLinuxOptions", shape: Shape::Object(&CORE_V1_SELINUXOPTIONS), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "The SELinux context to be applied to the container. If unspecified, the container runtime will allocate a random SELinux context for each container.  May also be set in PodSecurityContext.  If set in both SecurityContext and PodSecurityContext, the value specified in SecurityContext takes precedence. Note that this field cannot be set when spec.os.name is windows." },
        Field { name: "seccompProfile", shape: Shape::Object(&CORE_V1_SECCOMPPROFILE), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[11], embedded: None, go_type: None, description: "The seccomp options to use by this container. If seccomp options are provided at both the pod & container level, the container options override the pod options. Note that this field cannot be set when spec.os.name is windows." },
        Field { name: "windowsOptions", shape: Shape::Object(&CORE_V1_WINDOWSSECURITYCONTEXTOPTIONS), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[10], embedded: None, go_type: None, description: "The Windows specific settings applied to all containers. If unspecified, the options from the PodSecurityContext will be used. If set in both SecurityContext and PodSecurityContext, the value specified in SecurityContext takes precedence. Note that this field cannot be set when spec.os.name is linux." },
    ],
};

static CORE_V1_SERVICE: Type = Type {
    name: "io.k8s.api.core.v1.Service",
    description: "Service is a named abstraction of software service (for example, mysql) consisting of local port (for example 3306) that the proxy listens on, and the selector that determines which pods will answer requests sent through the proxy.",
    atomic: false,
    fields: &[
        Field { name: "apiVersion", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[], embedded: None, go_type: None, description: "APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized schemas to the latest internal value, and may reject unrecognized values. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources" },
        Field { name: "kind", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[], embedded: None, go_type: None, description: "Kind is a string value representing the REST resource this object represents. Servers may infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds" },
        Field { name: "metadata", shape: Shape::Object(&META_V1_OBJECTMETA), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata" },
        Field { name: "spec", shape: Shape::Object(&CORE_V1_SERVICESPEC), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "Spec defines the behavior of a service. https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#spec-and-status" },
        Field { name: "status", shape: Shape::Object(&CORE_V1_SERVICESTATUS), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "Most recently observed status of the service. Populated by the system. Read-only. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#spec-and-status" },
    ],
};

static CORE_V1_SERVICEACCOUNT: Type = Type {
    name: "io.k8s.api.core.v1.ServiceAccount",
    description: "ServiceAccount binds together: * a name, understood by users, and perhaps by peripheral systems, for an identity * a principal that can be authenticated and authorized * a set of secrets",
    atomic: false,
    fields: &[
        Field { name: "apiVersion", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[], embedded: None, go_type: None, description: "APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized schemas to the latest internal value, and may reject unrecognized values. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources" },
        Field { name: "automountServiceAccountToken", shape: Shape::Bool, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "AutomountServiceAccountToken indicates whether pods running as this service account should have an API token automatically mounted. Can be overridden at the pod level." },
        Field { name: "imagePullSecrets", shape: Shape::List(&Shape::Object(&CORE_V1_LOCALOBJECTREFERENCE), Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "ImagePullSecrets is a list of references to secrets in the same namespace to use for pulling any images in pods that reference this ServiceAccount. ImagePullSecrets are distinct from Secrets because Secrets can be mounted in the pod, but ImagePullSecrets are only accessed by the kubelet. More info: https://kubernetes.io/docs/concepts/containers/images/#specifying-imagepullsecrets-on-a-pod" },
        Field { name: "kind", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[], embedded: None, go_type: None, description: "Kind is a string value representing the REST resource this object represents. Servers may infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds" },
        Field { name: "metadata", shape: Shape::Object(&META_V1_OBJECTMETA), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata" },
        Field { name: "secrets", shape: Shape::List(&Shape::Object(&CORE_V1_OBJECTREFERENCE), Keys::Fields(&["name"])), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Merge(Some("name")), proto: &[2], embedded: None, go_type: None, description: "Secrets is a list of the secrets in the same namespace that pods running using this ServiceAccount are allowed to use. Pods are only limited to this list if this service account has a \"kubernetes.io/enforce-mountable-secrets\" annotation set to \"true\". The \"kubernetes.io/enforce-mountable-secrets\" annotation is deprecated since v1.32. Prefer separate namespaces to isolate access to mounted secrets. This field should not be used to find auto-generated service account token secrets for use outside of pods. Instead, tokens can be requested directly using the TokenRequest API, or service account token secrets can be manually created. More info: https://kubernetes.io/docs/concepts/configuration/secret" },
    ],
};

static CORE_V1_SERVICEACCOUNTTOKENPROJECTION: Type = Type {
    name: "io.k8s.api.core.v1.ServiceAccountTokenProjection",
    description: "ServiceAccountTokenProjection represents a projected service account token volume. This projection can be used to insert a service account token into the pods runtime filesystem for use against APIs (Kubernetes API Server or otherwise).",
    atomic: false,
    fields: &[
        Field { name: "audience", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "audience is the intended audience of the token. A recipient of a token must identify itself with an identifier specified in the audience of the token, and otherwise should reject the token. The audience defaults to the identifier of the apiserver." },
        Field { name: "expirationSeconds", shape: Shape::Int64, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "expirationSeconds is the requested duration of validity of the service account token. As the token approaches expiration, the kubelet volume plugin will proactively rotate the service account token. The kubelet will start trying to rotate the token if the token is older than 80 percent of its time to live or if the token is older than 24 hours.Defaults to 1 hour and must be at least 10 minutes." },
        Field { name: "path", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "path is the path relative to the mount point of the file to project the token into." },
    ],
};

static CORE_V1_SERVICEPORT: Type = Type {
    name: "io.k8s.api.core.v1.ServicePort",
    description: "ServicePort contains information on service's port.",
    atomic: false,
    fields: &[
        Field { name: "appProtocol", shape: Shape::String, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[6], embedded: None, go_type: None, description: "The application protocol for this port. This is used as a hint for implementations to offer richer behavior for protocols that they understand. This field follows standard Kubernetes label syntax. Valid values are either:\n\n* Un-prefixed protocol names - reserved for IANA standard service names (as per RFC-6335 and https://www.iana.org/assignments/service-names).\n\n* Kubernetes-defined prefixed names:\n  * 'kubernetes.io/h2c' - HTTP/2 prior knowledge over cleartext as described in https://www.rfc-editor.org/rfc/rfc9113.html#name-starting-http-2-with-prior-\n  * 'kubernetes.io/ws'  - WebSocket over cleartext as described in https://www.rfc-editor.org/rfc/rfc6455\n  * 'kubernetes.io/wss' - WebSocket over TLS as described in https://www.rfc-editor.org/rfc/rfc6455\n\n* Other protocols should use implementation-defined prefixed names such as mycompany.com/my-custom-protocol." },
        Field { name: "name", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "The name of this port within the service. This must be a DNS_LABEL. All ports within a ServiceSpec must have unique names. When considering the endpoints for a Service, this must match the 'name' field in the EndpointPort. Optional if only one ServicePort is defined on this service." },
        Field { name: "nodePort", shape: Shape::Int32, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[5], embedded: None, go_type: None, description: "The port on each node on which this service is exposed when type is NodePort or LoadBalancer.  Usually assigned by the system. If a value is specified, in-range, and not in use it will be used, otherwise the operation will fail.  If not specified, a port will be allocated if this Service requires one.  If this field is specified when creating a Service which does not need it, creation will fail. This field will be wiped when updating a Service to no longer need it (e.g. changing type from NodePort to ClusterIP). More info: https://kubernetes.io/docs/concepts/services-networking/service/#type-nodeport" },
        Field { name: "port", shape: Shape::Int32, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "The port that will be exposed by this service." },
        Field { name: "protocol", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: Some("\"TCP\""), patch: Patch::Plain, proto: &[2], embedded: None, go_type: Some("v1.Protocol"), description: "The IP protocol for this port. Supports \"TCP\", \"UDP\", and \"SCTP\". Default is TCP." },
        Field { name: "targetPort", shape: Shape::IntOrString, required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "Number or name of the port to access on the pods targeted by the service. Number must be in the range 1 to 65535. Name must be an IANA_SVC_NAME. If this is a string, it will be looked up as a named port in the target Pod's container ports. If this is not specified, the value of the 'port' field is used (an identity map). This field is ignored for services with clusterIP=None, and should be omitted or set equal to the 'port' field. More info: https://kubernetes.io/docs/concepts/services-networking/service/#defining-a-service" },
    ],
};

static CORE_V1_SERVICESPEC: Type = Type {
    name: "io.k8s.api.core.v1.ServiceSpec",
    description: "ServiceSpec describes the attributes that a user creates on a service.",
    atomic: false,
    fields: &[
        Field { name: "allocateLoadBalancerNodePorts", shape: Shape::Bool, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[20], embedded: None, go_type: None, description: "allocateLoadBalancerNodePorts defines if NodePorts will be automatically allocated for services with type LoadBalancer.  Default is \"true\". It may be set to \"false\" if the cluster load-balancer does not rely on NodePorts.  If the caller requests specific NodePorts (by specifying a value), those requests will be respected, regardless of this field. This field may only be set for services with type LoadBalancer and will be cleared if the type is changed to any other type." },
        Field { name: "clusterIP", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "clusterIP is the IP address of the service and is usually assigned randomly. If an address is specified manually, is in-range (as per system configuration), and is not in use, it will be allocated to the service; otherwise creation of the service will fail. This field may not be changed through updates unless the type field is also being changed to ExternalName (which requires this field to be blank) or the type field is being changed from ExternalName (in which case this field may optionally be specified, as describe above).  Valid values are \"None\", empty string (\"\"), or a valid IP address. Setting this to \"None\" makes a \"headless service\" (no virtual IP), which is useful when direct endpoint connections are preferred and proxying is not required.  Only applies to types ClusterIP, NodePort, and LoadBalancer. If this field is specified when creating a Service of type ExternalName, creation will fail. This field will be wiped when updating a Service to type ExternalName. More info: https://kubernetes.io/docs/concepts/services-networking/service/#virtual-ips-and-service-proxies" },
        Field { name: "clusterIPs", shape: Shape::List(&Shape::String, Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[18], embedded: None, go_type: None, description: "ClusterIPs is a list of IP addresses assigned to this service, and are usually assigned randomly.  If an address is specified manually, is in-range (as per system configuration), and is not in use, it will be allocated to the service; otherwise creation of the service will fail. This field may not be changed through updates unless the type field is also being changed to ExternalName (which requires this field to be empty) or the type field is being changed from ExternalName (in which case this field may optionally be specified, as describe above).  Valid values are \"None\", empty string (\"\"), or a valid IP address.  Setting this to \"None\" makes a \"headless service\" (no virtual IP), which is useful when direct endpoint connections are preferred and proxying is not required.  Only applies to types ClusterIP, NodePort, and LoadBalancer. If this field is specified when creating a Service of type ExternalName, creation will fail. This field will be wiped when updating a Service to type ExternalName.  If this field is not specified, it will be initialized from the clusterIP field.  If this field is specified, clients must ensure that clusterIPs[0] and clusterIP have the same value.\n\nThis field may hold a maximum of two entries (dual-stack IPs, in either order). These IPs must correspond to the values of the ipFamilies field. Both clusterIPs and ipFamilies are governed by the ipFamilyPolicy field. More info: https://kubernetes.io/docs/concepts/services-networking/service/#virtual-ips-and-service-proxies" },
        Field { name: "externalIPs", shape: Shape::List(&Shape::String, Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[5], embedded: None, go_type: None, description: "externalIPs is a list of IP addresses for which nodes in the cluster will also accept traffic for this service.  These IPs are not managed by Kubernetes.  The user is responsible for ensuring that traffic arrives at a node with this IP.  A common example is external load-balancers that are not part of the Kubernetes system." },
        Field { name: "externalName", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[10], embedded: None, go_type: None, description: "externalName is the external reference that discovery mechanisms will return as an alias for this service (e.g. a DNS CNAME record). No proxying will be involved.  Must be a lowercase RFC-1123 hostname (https://tools.ietf.org/html/rfc1123) and requires `type` to be \"ExternalName\"." },
        Field { name: "externalTrafficPolicy", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[11], embedded: None, go_type: Some("v1.ServiceExternalTrafficPolicy"), description: "externalTrafficPolicy describes how nodes distribute service traffic they receive on one of the Service's \"externally-facing\" addresses (NodePorts, ExternalIPs, and LoadBalancer IPs). If set to \"Local\", the proxy will configure the service in a way that assumes that external load balancers will take care of balancing the service traffic between nodes, and so each node will deliver traffic only to the node-local endpoints of the service, without masquerading the client source IP. (Traffic mistakenly sent to a node with no endpoints will be dropped.) The default value, \"Cluster\", uses the standard behavior of routing to all endpoints evenly (possibly modified by topology and other features). Note that traffic sent to an External IP or LoadBalancer IP from within the cluster will always get \"Cluster\" semantics, but clients sending to a NodePort from within the cluster may need to take traffic policy into account when picking a node." },
        Field { name: "healthCheckNodePort", shape: Shape::Int32, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[12], embedded: None, go_type: None, description: "healthCheckNodePort specifies the healthcheck nodePort for the service. This only applies when type is set to LoadBalancer and externalTrafficPolicy is set to Local. If a value is specified, is in-range, and is not in use, it will be used.  If not specified, a value will be automatically allocated.  External systems (e.g. load-balancers) can use this port to determine if a given node holds endpoints for this service or not.  If this field is specified when creating a Service which does not need it, creation will fail. This field will be wiped when updating a Service to no longer need it (e.g. changing type). This field cannot be updated once set." },
        Field { name: "internalTrafficPolicy", shape: Shape::String, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[22], embedded: None, go_type: Some("v1.ServiceInternalTrafficPolicy"), description: "InternalTrafficPolicy describes how nodes distribute service traffic they receive on the ClusterIP. If set to \"Local\", the proxy will assume that pods only want to talk to endpoints of the service on the same node as the pod, dropping the traffic if there are no local endpoints. The default value, \"Cluster\", uses the standard behavior of routing to all endpoints evenly (possibly modified by topology and other features)." },
        Field { name: "ipFamilies", shape: Shape::List(&Shape::String, Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[19], embedded: None, go_type: Some("[]v1.IPFamily"), description: "IPFamilies is a list of IP families (e.g. IPv4, IPv6) assigned to this service. This field is usually assigned automatically based on cluster configuration and the ipFamilyPolicy field. If this field is specified manually, the requested family is available in the cluster, and ipFamilyPolicy allows it, it will be used; otherwise creation of the service will fail. This field is conditionally mutable: it allows for adding or removing a secondary IP family, but it does not allow changing the primary IP family of the Service. Valid values are \"IPv4\" and \"IPv6\".  This field only applies to Services of types ClusterIP, NodePort, and LoadBalancer, and does apply to \"headless\" services. This field will be wiped when updating a Service to type ExternalName.\n\nThis field may hold a maximum of two entries (dual-stack families, in either order).  These families must correspond to the values of the clusterIPs field, if specified. Both clusterIPs and ipFamilies are governed by the ipFamilyPolicy field." },
        Field { name: "ipFamilyPolicy", shape: Shape::String, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[17], embedded: None, go_type: Some("v1.IPFamilyPolicy"), description: "IPFamilyPolicy represents the dual-stack-ness requested or required by this Service. If there is no value provided, then this field will be set to SingleStack. Services can be \"SingleStack\" (a single IP family), \"PreferDualStack\" (two IP families on dual-stack configured clusters or a single IP family on single-stack clusters), or \"RequireDualStack\" (two IP families on dual-stack configured clusters, otherwise fail). The ipFamilies and clusterIPs fields depend on the value of this field. This field will be wiped when updating a service to type ExternalName." },
        Field { name: "loadBalancerClass", shape: Shape::String, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[21], embedded: None, go_type: None, description: "loadBalancerClass is the class of the load balancer implementation this Service belongs to. If specified, the value of this field must be a label-style identifier, with an optional prefix, e.g. \"internal-vip\" or \"example.com/internal-vip\". Unprefixed names are reserved for end-users. This field can only be set when the Service type is 'LoadBalancer'. If not set, the default load balancer implementation is used, today this is typically done through the cloud provider integration, but should apply for any default implementation. If set, it is assumed that a load balancer implementation is watching for Services with a matching class. Any default load balancer implementation (e.g. cloud providers) should ignore Services that set this field. This field can only be set when creating or updating a Service to type 'LoadBalancer'. Once set, it can not be changed. This field will be wiped when a service is updated to a non 'LoadBalancer' type." },
        Field { name: "loadBalancerIP", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[8], embedded: None, go_type: None, description: "Only applies to Service Type: LoadBalancer. This feature depends on whether the underlying cloud-provider supports specifying the loadBalancerIP when a load balancer is created. This field will be ignored if the cloud-provider does not support the feature. Deprecated: This field was under-specified and its meaning varies across implementations. Using it is non-portable and it may not support dual-stack. Users are encouraged to use implementation-specific annotations when available." },
        Field { name: "loadBalancerSourceRanges", shape: Shape::List(&Shape::String, Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[9], embedded: None, go_type: None, description: "If specified and supported by the platform, this will restrict traffic through the cloud-provider load-balancer will be restricted to the specified client IPs. This field will be ignored if the cloud-provider does not support the feature.\" More info: https://kubernetes.io/docs/tasks/access-application-cluster/create-external-load-balancer/" },
        Field { name: "ports", shape: Shape::List(&Shape::Object(&CORE_V1_SERVICEPORT), Keys::Fields(&["port", "protocol"])), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Merge(Some("port")), proto: &[1], embedded: None, go_type: None, description: "The list of ports that are exposed by this service. More info: https://kubernetes.io/docs/concepts/services-networking/service/#virtual-ips-and-service-proxies" },
        Field { name: "publishNotReadyAddresses", shape: Shape::Bool, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[13], embedded: None, go_type: None, description: "publishNotReadyAddresses indicates that any agent which deals with endpoints for this Service should disregard any indications of ready/not-ready. The primary use case for setting this field is for a StatefulSet's Headless Service to propagate SRV DNS records for its Pods for the purpose of peer discovery. The Kubernetes controllers that generate Endpoints and EndpointSlice resources for Services interpret this to mean that all endpoints are considered \"ready\" even if the Pods themselves are not. Agents which consume only Kubernetes generated endpoints through the Endpoints or EndpointSlice resources can safely assume this behavior." },
        Field { name: "selector", shape: Shape::Map(&Shape::String, MapKind::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "Route service traffic to pods with label keys and values matching this selector. If empty or not present, the service is assumed to have an external process managing its endpoints, which Kubernetes will not modify. Only applies to types ClusterIP, NodePort, and LoadBalancer. Ignored if type is ExternalName. More info: https://kubernetes.io/docs/concepts/services-networking/service/" },
        Field { name: "sessionAffinity", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[7], embedded: None, go_type: Some("v1.ServiceAffinity"), description: "Supports \"ClientIP\" and \"None\". Used to maintain session affinity. Enable client IP based session affinity. Must be ClientIP or None. Defaults to None. More info: https://kubernetes.io/docs/concepts/services-networking/service/#virtual-ips-and-service-proxies" },
        Field { name: "sessionAffinityConfig", shape: Shape::Object(&CORE_V1_SESSIONAFFINITYCONFIG), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[14], embedded: None, go_type: None, description: "sessionAffinityConfig contains the configurations of session affinity." },
        Field { name: "trafficDistribution", shape: Shape::String, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[23], embedded: None, go_type: None, description: "TrafficDistribution offers a way to express preferences for how traffic is distributed to Service endpoints. Implementations can use this field as a hint, but are not required to guarantee strict adherence. If the field is not set, the implementation will apply its default routing strategy. If set to \"PreferClose\", implementations should prioritize endpoints that are in the same zone." },
        Field { name: "type", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: Some("v1.ServiceType"), description: "type determines how the Service is exposed. Defaults to ClusterIP. Valid options are ExternalName, ClusterIP, NodePort, and LoadBalancer. \"ClusterIP\" allocates a cluster-internal IP address for load-balancing to endpoints. Endpoints are determined by the selector or if that is not specified, by manual construction of an Endpoints object or EndpointSlice objects. If clusterIP is \"None\", no virtual IP is allocated and the endpoints are published as a set of endpoints rather than a virtual IP. \"NodePort\" builds on ClusterIP and allocates a port on every node which routes to the same endpoints as the clusterIP. \"LoadBalancer\" builds on NodePort and creates an external load-balancer (if supported in the current cloud) which routes to the same endpoints as the clusterIP. \"ExternalName\" aliases this service to the specified externalName. Several other fields do not apply to ExternalName services. More info: https://kubernetes.io/docs/concepts/services-networking/service/#publishing-services-service-types" },
    ],
};

static CORE_V1_SERVICESTATUS: Type = Type {
    name: "io.k8s.api.core.v1.ServiceStatus",
    description: "ServiceStatus represents the current status of a service.",
    atomic: false,
    fields: &[
        Field { name: "conditions", shape: Shape::List(&Shape::Object(&META_V1_CONDITION), Keys::Fields(&["type"])), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Merge(Some("type")), proto: &[2], embedded: None, go_type: None, description: "Current service state" },
        Field { name: "loadBalancer", shape: Shape::Object(&CORE_V1_LOADBALANCERSTATUS), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "LoadBalancer contains the current status of the load-balancer, if one is present." },
    ],
};

static CORE_V1_SESSIONAFFINITYCONFIG: Type = Type {
    name: "io.k8s.api.core.v1.SessionAffinityConfig",
    description: "SessionAffinityConfig represents the configurations of session affinity.",
    atomic: false,
    fields: &[
        Field { name: "clientIP", shape: Shape::Object(&CORE_V1_CLIENTIPCONFIG), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "clientIP contains the configurations of Client IP based session affinity." },
    ],
};

static CORE_V1_SLEEPACTION: Type = Type {
    name: "io.k8s.api.core.v1.SleepAction",
    description: "SleepAction describes a \"sleep\" action.",
    atomic: false,
    fields: &[
        Field { name: "seconds", shape: Shape::Int64, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Seconds is the number of seconds to sleep." },
    ],
};

static CORE_V1_STORAGEOSVOLUMESOURCE: Type = Type {
    name: "io.k8s.api.core.v1.StorageOSVolumeSource",
    description: "Represents a StorageOS persistent volume resource.",
    atomic: false,
    fields: &[
        Field { name: "fsType", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "fsType is the filesystem type to mount. Must be a filesystem type supported by the host operating system. Ex. \"ext4\", \"xfs\", \"ntfs\". Implicitly inferred to be \"ext4\" if unspecified." },
        Field { name: "readOnly", shape: Shape::Bool, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "readOnly defaults to false (read/write). ReadOnly here will force the ReadOnly setting in VolumeMounts." },
        Field { name: "secretRef", shape: Shape::Object(&CORE_V1_LOCALOBJECTREFERENCE), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[5], embedded: None, go_type: None, description: "secretRef specifies the secret to use for obtaining the StorageOS API credentials.  If not specified, default values will be attempted." },
        Field { name: "volumeName", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "volumeName is the human-readable name of the StorageOS volume.  Volume names are only unique within a namespace." },
        Field { name: "volumeNamespace", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "volumeNamespace specifies the scope of the volume within StorageOS.  If no namespace is specified then the Pod's namespace will be used.  This allows the Kubernetes name scoping to be mirrored within StorageOS for tighter integration. Set VolumeName to any name to override the default behaviour. Set to \"default\" if you are not using namespaces within StorageOS. Namespaces that do not pre-exist within StorageOS will be created." },
    ],
};

static CORE_V1_SYSCTL: Type = Type {
    name: "io.k8s.api.core.v1.Sysctl",
    description: "Sysctl defines a kernel parameter to be set",
    atomic: false,
    fields: &[
        Field { name: "name", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Name of a property to set" },
        Field { name: "value", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "Value of a property to set" },
    ],
};

static CORE_V1_TCPSOCKETACTION: Type = Type {
    name: "io.k8s.api.core.v1.TCPSocketAction",
    description: "TCPSocketAction describes an action based on opening a socket",
    atomic: false,
    fields: &[
        Field { name: "host", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "Optional: Host name to connect to, defaults to the pod IP." },
        Field { name: "port", shape: Shape::IntOrString, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Number or name of the port to access on the container. Number must be in the range 1 to 65535. Name must be an IANA_SVC_NAME." },
    ],
};

static CORE_V1_TAINT: Type = Type {
    name: "io.k8s.api.core.v1.Taint",
    description: "The node this Taint is attached to has the \"effect\" on any pod that does not tolerate the Taint.",
    atomic: false,
    fields: &[
        Field { name: "effect", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: Some("v1.TaintEffect"), description: "Required. The effect of the taint on pods that do not tolerate the taint. Valid effects are NoSchedule, PreferNoSchedule and NoExecute." },
        Field { name: "key", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Required. The taint key to be applied to a node." },
        Field { name: "timeAdded", shape: Shape::Time, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "TimeAdded represents the time at which the taint was added." },
        Field { name: "value", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "The taint value corresponding to the taint key." },
    ],
};

static CORE_V1_TOLERATION: Type = Type {
    name: "io.k8s.api.core.v1.Toleration",
    description: "The pod this Toleration is attached to tolerates any taint that matches the triple <key,value,effect> using the matching operator <operator>.",
    atomic: false,
    fields: &[
        Field { name: "effect", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: Some("v1.TaintEffect"), description: "Effect indicates the taint effect to match. Empty means match all taint effects. When specified, allowed values are NoSchedule, PreferNoSchedule and NoExecute." },
        Field { name: "key", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Key is the taint key that the toleration applies to. Empty means match all taint keys. If the key is empty, operator must be Exists; this combination means to match all values and all keys." },
        Field { name: "operator", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: Some("v1.TolerationOperator"), description: "Operator represents a key's relationship to the value. Valid operators are Exists, Equal, Lt, and Gt. Defaults to Equal. Exists is equivalent to wildcard for value, so that a pod can tolerate all taints of a particular category. Lt and Gt perform numeric comparisons (requires feature gate TaintTolerationComparisonOperators)." },
        Field { name: "tolerationSeconds", shape: Shape::Int64, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[5], embedded: None, go_type: None, description: "TolerationSeconds represents the period of time the toleration (which must be of effect NoExecute, otherwise this field is ignored) tolerates the taint. By default, it is not set, which means tolerate the taint forever (do not evict). Zero and negative values will be treated as 0 (evict immediately) by the system." },
        Field { name: "value", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "Value is the taint value the toleration matches to. If the operator is Exists, the value should be empty, otherwise just a regular string." },
    ],
};

static CORE_V1_TOPOLOGYSPREADCONSTRAINT: Type = Type {
    name: "io.k8s.api.core.v1.TopologySpreadConstraint",
    description: "TopologySpreadConstraint specifies how to spread matching pods among the given topology.",
    atomic: false,
    fields: &[
        Field { name: "labelSelector", shape: Shape::Object(&META_V1_LABELSELECTOR), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "LabelSelector is used to find matching pods. Pods that match this label selector are counted to determine the number of pods in their corresponding topology domain." },
        Field { name: "matchLabelKeys", shape: Shape::List(&Shape::String, Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[8], embedded: None, go_type: None, description: "MatchLabelKeys is a set of pod label keys to select the pods over which spreading will be calculated. The keys are used to lookup values from the incoming pod labels, those key-value labels are ANDed with labelSelector to select the group of existing pods over which spreading will be calculated for the incoming pod. The same key is forbidden to exist in both MatchLabelKeys and LabelSelector. MatchLabelKeys cannot be set when LabelSelector isn't set. Keys that don't exist in the incoming pod labels will be ignored. A null or empty list means only match against labelSelector.\n\nThis is a beta field and requires the MatchLabelKeysInPodTopologySpread feature gate to be enabled (enabled by default)." },
        Field { name: "maxSkew", shape: Shape::Int32, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "MaxSkew describes the degree to which pods may be unevenly distributed. When `whenUnsatisfiable=DoNotSchedule`, it is the maximum permitted difference between the number of matching pods in the target topology and the global minimum. The global minimum is the minimum number of matching pods in an eligible domain or zero if the number of eligible domains is less than MinDomains. For example, in a 3-zone cluster, MaxSkew is set to 1, and pods with the same labelSelector spread as 2/2/1: In this case, the global minimum is 1. | zone1 | zone2 | zone3 | |  P P  |  P P  |   P   | - if MaxSkew is 1, incoming pod can only be scheduled to zone3 to become 2/2/2; scheduling it onto zone1(zone2) would make the ActualSkew(3-1) on zone1(zone2) violate MaxSkew(1). - if MaxSkew is 2, incoming pod can be scheduled onto any zone. When `whenUnsatisfiable=ScheduleAnyway`, it is used to give higher precedence to topologies that satisfy it. It's a required field. Default value is 1 and 0 is not allowed." },
        Field { name: "minDomains", shape: Shape::Int32, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[5], embedded: None, go_type: None, description: "MinDomains indicates a minimum number of eligible domains. When the number of eligible domains with matching topology keys is less than minDomains, Pod Topology Spread treats \"global minimum\" as 0, and then the calculation of Skew is performed. And when the number of eligible domains with matching topology keys equals or greater than minDomains, this value has no effect on scheduling. As a result, when the number of eligible domains is less than minDomains, scheduler won't schedule more than maxSkew Pods to those domains. If value is nil, the constraint behaves as if MinDomains is equal to 1. Valid values are integers greater than 0. When value is not nil, WhenUnsatisfiable must be DoNotSchedule.\n\nFor example, in a 3-zone cluster, MaxSkew is set to 2, MinDomains is set to 5 and pods with the same labelSelector spread as 2/2/2: | zone1 | zone2 | zone3 | |  P P  |  P P  |  P P  | The number of domains is less than 5(MinDomains), so \"global minimum\" is treated as 0. In this situation, new pod with the same labelSelector cannot be scheduled, because computed skew will be 3(3 - 0) if new Pod is scheduled to any of the three zones, it will violate MaxSkew." },
        Field { name: "nodeAffinityPolicy", shape: Shape::String, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[6], embedded: None, go_type: Some("v1.NodeInclusionPolicy"), description: "NodeAffinityPolicy indicates how we will treat Pod's nodeAffinity/nodeSelector when calculating pod topology spread skew. Options are: - Honor: only nodes matching nodeAffinity/nodeSelector are included in the calculations. - Ignore: nodeAffinity/nodeSelector are ignored. All nodes are included in the calculations.\n\nIf this value is nil, the behavior is equivalent to the Honor policy." },
        Field { name: "nodeTaintsPolicy", shape: Shape::String, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[7], embedded: None, go_type: Some("v1.NodeInclusionPolicy"), description: "NodeTaintsPolicy indicates how we will treat node taints when calculating pod topology spread skew. Options are: - Honor: nodes without taints, along with tainted nodes for which the incoming pod has a toleration, are included. - Ignore: node taints are ignored. All nodes are included.\n\nIf this value is nil, the behavior is equivalent to the Ignore policy." },
        Field { name: "topologyKey", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "TopologyKey is the key of node labels. Nodes that have a label with this key and identical values are considered to be in the same topology. We consider each <key, value> as a \"bucket\", and try to put balanced number of pods into each bucket. We define a domain as a particular instance of a topology. Also, we define an eligible domain as a domain whose nodes meet the requirements of nodeAffinityPolicy and nodeTaintsPolicy. e.g. If TopologyKey is \"kubernetes.io/hostname\", each Node is a domain of that topology. And, if TopologyKey is \"topology.kubernetes.io/zone\", each zone is a domain of that topology. It's a required field." },
        Field { name: "whenUnsatisfiable", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: Some("v1.UnsatisfiableConstraintAction"), description: "WhenUnsatisfiable indicates how to deal with a pod if it doesn't satisfy the spread constraint. - DoNotSchedule (default) tells the scheduler not to schedule it. - ScheduleAnyway tells the scheduler to schedule the pod in any location,\n  but giving higher precedence to topologies that would help reduce the\n  skew.\nA constraint is considered \"Unsatisfiable\" for an incoming pod if and only if every possible node assignment for that pod would violate \"MaxSkew\" on some topology. For example, in a 3-zone cluster, MaxSkew is set to 1, and pods with the same labelSelector spread as 3/1/1: | zone1 | zone2 | zone3 | | P P P |   P   |   P   | If WhenUnsatisfiable is set to DoNotSchedule, incoming pod can only be scheduled to zone2(zone3) to become 3/2/1(3/1/2) as ActualSkew(2-1) on zone2(zone3) satisfies MaxSkew(1). In other words, the cluster can still be imbalanced, but scheduler won't make it *more* imbalanced. It's a required field." },
    ],
};

static CORE_V1_TYPEDLOCALOBJECTREFERENCE: Type = Type {
    name: "io.k8s.api.core.v1.TypedLocalObjectReference",
    description: "TypedLocalObjectReference contains enough information to let you locate the typed referenced object inside the same namespace.",
    atomic: true,
    fields: &[
        Field { name: "apiGroup", shape: Shape::String, required: false, presence: Presence::OrNull, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "APIGroup is the group for the resource being referenced. If APIGroup is not specified, the specified Kind must be in the core API group. For any other third-party types, APIGroup is required." },
        Field { name: "kind", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "Kind is the type of resource being referenced" },
        Field { name: "name", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "Name is the name of resource being referenced" },
    ],
};

static CORE_V1_TYPEDOBJECTREFERENCE: Type = Type {
    name: "io.k8s.api.core.v1.TypedObjectReference",
    description: "TypedObjectReference contains enough information to let you locate the typed referenced object",
    atomic: false,
    fields: &[
        Field { name: "apiGroup", shape: Shape::String, required: false, presence: Presence::OrNull, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "APIGroup is the group for the resource being referenced. If APIGroup is not specified, the specified Kind must be in the core API group. For any other third-party types, APIGroup is required." },
        Field { name: "kind", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "Kind is the type of resource being referenced" },
        Field { name: "name", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "Name is the name of resource being referenced" },
        Field { name: "namespace", shape: Shape::String, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "Namespace is the namespace of resource being referenced Note that when a namespace is specified, a gateway.networking.k8s.io/ReferenceGrant object is required in the referent namespace to allow that namespace's owner to accept the reference. See the ReferenceGrant documentation for details. (Alpha) This field requires the CrossNamespaceVolumeDataSource feature gate to be enabled." },
    ],
};

static CORE_V1_VOLUME: Type = Type {
    name: "io.k8s.api.core.v1.Volume",
    description: "Volume represents a named volume in a pod that may be accessed by any container in the pod.",
    atomic: false,
    fields: &[
        Field { name: "awsElasticBlockStore", shape: Shape::Object(&CORE_V1_AWSELASTICBLOCKSTOREVOLUMESOURCE), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[2, 4], embedded: Some("VolumeSource"), go_type: None, description: "awsElasticBlockStore represents an AWS Disk resource that is attached to a kubelet's host machine and then exposed to the pod. Deprecated: AWSElasticBlockStore is deprecated. All operations for the in-tree awsElasticBlockStore type are redirected to the ebs.csi.aws.com CSI driver. More info: https://kubernetes.io/docs/concepts/storage/volumes#awselasticblockstore" },
        Field { name: "azureDisk", shape: Shape::Object(&CORE_V1_AZUREDISKVOLUMESOURCE), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[2, 22], embedded: Some("VolumeSource"), go_type: None, description: "azureDisk represents an Azure Data Disk mount on the host and bind mount to the pod. Deprecated: AzureDisk is deprecated. All operations for the in-tree azureDisk type are redirected to the disk.csi.azure.com CSI driver." },
        Field { name: "azureFile", shape: Shape::Object(&CORE_V1_AZUREFILEVOLUMESOURCE), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[2, 18], embedded: Some("VolumeSource"), go_type: None, description: "azureFile represents an Azure File Service mount on the host and bind mount to the pod. Deprecated: AzureFile is deprecated. All operations for the in-tree azureFile type are redirected to the file.csi.azure.com CSI driver." },
        Field { name: "cephfs", shape: Shape::Object(&CORE_V1_CEPHFSVOLUMESOURCE), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[2, 14], embedded: Some("VolumeSource"), go_type: None, description: "cephFS represents a Ceph FS mount on the host that shares a pod's lifetime. Deprecated: CephFS is deprecated and the in-tree cephfs type is no longer supported." },
        Field { name: "cinder", shape: Shape::Object(&CORE_V1_CINDERVOLUMESOURCE), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[2, 13], embedded: Some("VolumeSource"), go_type: None, description: "cinder represents a cinder volume attached and mounted on kubelets host machine. Deprecated: Cinder is deprecated. All operations for the in-tree cinder type are redirected to the cinder.csi.openstack.org CSI driver. More info: https://examples.k8s.io/mysql-cinder-pd/README.md" },
        Field { name: "configMap", shape: Shape::Object(&CORE_V1_CONFIGMAPVOLUMESOURCE), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[2, 19], embedded: Some("VolumeSource"), go_type: None, description: "configMap represents a configMap that should populate this volume" },
        Field { name: "csi", shape: Shape::Object(&CORE_V1_CSIVOLUMESOURCE), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[2, 28], embedded: Some("VolumeSource"), go_type: None, description: "csi (Container Storage Interface) represents ephemeral storage that is handled by certain external CSI drivers." },
        Field { name: "downwardAPI", shape: Shape::Object(&CORE_V1_DOWNWARDAPIVOLUMESOURCE), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[2, 16], embedded: Some("VolumeSource"), go_type: None, description: "downwardAPI represents downward API about the pod that should populate this volume" },
        Field { name: "emptyDir", shape: Shape::Object(&CORE_V1_EMPTYDIRVOLUMESOURCE), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[2, 2], embedded: Some("VolumeSource"), go_type: None, description: "emptyDir represents a temporary directory that shares a pod's lifetime. More info: https://kubernetes.io/docs/concepts/storage/volumes#emptydir" },
        Field { name: "ephemeral", shape: Shape::Object(&CORE_V1_EPHEMERALVOLUMESOURCE), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[2, 29], embedded: Some("VolumeSource"), go_type: None, description: "ephemeral represents a volume that is handled by a cluster storage driver. The volume's lifecycle is tied to the pod that defines it - it will be created before the pod starts, and deleted when the pod is removed.\n\nUse this if: a) the volume is only needed while the pod runs, b) features of normal volumes like restoring from snapshot or capacity\n   tracking are needed,\nc) the storage driver is specified through a storage class, and d) the storage driver supports dynamic volume provisioning through\n   a PersistentVolumeClaim (see EphemeralVolumeSource for more\n   information on the connection between this volume type\n   and PersistentVolumeClaim).\n\nUse PersistentVolumeClaim or one of the vendor-specific APIs for volumes that persist for longer than the lifecycle of an individual pod.\n\nUse CSI for light-weight local ephemeral volumes if the CSI driver is meant to be used that way - see the documentation of the driver for more information.\n\nA pod can use both types of ephemeral volumes and persistent volumes at the same time." },
        Field { name: "fc", shape: Shape::Object(&CORE_V1_FCVOLUMESOURCE), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[2, 17], embedded: Some("VolumeSource"), go_type: None, description: "fc represents a Fibre Channel resource that is attached to a kubelet's host machine and then exposed to the pod." },
        Field { name: "flexVolume", shape: Shape::Object(&CORE_V1_FLEXVOLUMESOURCE), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[2, 12], embedded: Some("VolumeSource"), go_type: None, description: "flexVolume represents a generic volume resource that is provisioned/attached using an exec based plugin. Deprecated: FlexVolume is deprecated. Consider using a CSIDriver instead." },
        Field { name: "flocker", shape: Shape::Object(&CORE_V1_FLOCKERVOLUMESOURCE), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[2, 15], embedded: Some("VolumeSource"), go_type: None, description: "flocker represents a Flocker volume attached to a kubelet's host machine. This depends on the Flocker control service being running. Deprecated: Flocker is deprecated and the in-tree flocker type is no longer supported." },
        Field { name: "gcePersistentDisk", shape: Shape::Object(&CORE_V1_GCEPERSISTENTDISKVOLUMESOURCE), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[2, 3], embedded: Some("VolumeSource"), go_type: None, description: "gcePersistentDisk represents a GCE Disk resource that is attached to a kubelet's host machine and then exposed to the pod. Deprecated: GCEPersistentDisk is deprecated. All operations for the in-tree gcePersistentDisk type are redirected to the pd.csi.storage.gke.io CSI driver. More info: https://kubernetes.io/docs/concepts/storage/volumes#gcepersistentdisk" },
        Field { name: "gitRepo", shape: Shape::Object(&CORE_V1_GITREPOVOLUMESOURCE), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[2, 5], embedded: Some("VolumeSource"), go_type: None, description: "gitRepo represents a git repository at a particular revision. Deprecated: GitRepo is deprecated. To provision a container with a git repo, mount an EmptyDir into an InitContainer that clones the repo using git, then mount the EmptyDir into the Pod's container." },
        Field { name: "glusterfs", shape: Shape::Object(&CORE_V1_GLUSTERFSVOLUMESOURCE), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[2, 9], embedded: Some("VolumeSource"), go_type: None, description: "glusterfs represents a Glusterfs mount on the host that shares a pod's lifetime. Deprecated: Glusterfs is deprecated and the in-tree glusterfs type is no longer supported." },
        Field { name: "hostPath", shape: Shape::Object(&CORE_V1_HOSTPATHVOLUMESOURCE), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[2, 1], embedded: Some("VolumeSource"), go_type: None, description: "hostPath represents a pre-existing file or directory on the host machine that is directly exposed to the container. This is generally used for system agents or other privileged things that are allowed to see the host machine. Most containers will NOT need this. More info: https://kubernetes.io/docs/concepts/storage/volumes#hostpath" },
        Field { name: "image", shape: Shape::Object(&CORE_V1_IMAGEVOLUMESOURCE), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[2, 30], embedded: Some("VolumeSource"), go_type: None, description: "image represents an OCI object (a container image or artifact) pulled and mounted on the kubelet's host machine. The volume is resolved at pod startup depending on which PullPolicy value is provided:\n\n- Always: the kubelet always attempts to pull the reference. Container creation will fail If the pull fails. - Never: the kubelet never pulls the reference and only uses a local image or artifact. Container creation will fail if the reference isn't present. - IfNotPresent: the kubelet pulls if the reference isn't already present on disk. Container creation will fail if the reference isn't present and the pull fails.\n\nThe volume gets re-resolved if the pod gets deleted and recreated, which means that new remote content will become available on pod recreation. A failure to resolve or pull the image during pod startup will block containers from starting and may add significant latency. Failures will be retried using normal volume backoff and will be reported on the pod reason and message. The types of objects that may be mounted by this volume are defined by the container runtime implementation on a host machine and at minimum must include all valid types supported by the container image field. The OCI object gets mounted in a single directory (spec.containers[*].volumeMounts.mountPath) by merging the manifest layers in the same way as for container images. The volume will be mounted read-only (ro). Sub path mounts for containers are not supported (spec.containers[*].volumeMounts.subpath) before 1.33. The field spec.securityContext.fsGroupChangePolicy has no effect on this volume type." },
        Field { name: "iscsi", shape: Shape::Object(&CORE_V1_ISCSIVOLUMESOURCE), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[2, 8], embedded: Some("VolumeSource"), go_type: None, description: "iscsi represents an ISCSI Disk resource that is attached to a kubelet's host machine and then exposed to the pod. More info: https://kubernetes.io/docs/concepts/storage/volumes/#iscsi" },
        Field { name: "name", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "name of the volume. Must be a DNS_LABEL and unique within the pod. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/names/#names" },
        Field { name: "nfs", shape: Shape::Object(&CORE_V1_NFSVOLUMESOURCE), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[2, 7], embedded: Some("VolumeSource"), go_type: None, description: "nfs represents an NFS mount on the host that shares a pod's lifetime More info: https://kubernetes.io/docs/concepts/storage/volumes#nfs" },
        Field { name: "persistentVolumeClaim", shape: Shape::Object(&CORE_V1_PERSISTENTVOLUMECLAIMVOLUMESOURCE), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[2, 10], embedded: Some("VolumeSource"), go_type: None, description: "persistentVolumeClaimVolumeSource represents a reference to a PersistentVolumeClaim in the same namespace. More info: https://kubernetes.io/docs/concepts/storage/persistent-volumes#persistentvolumeclaims" },
        Field { name: "photonPersistentDisk", shape: Shape::Object(&CORE_V1_PHOTONPERSISTENTDISKVOLUMESOURCE), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[2, 23], embedded: Some("VolumeSource"), go_type: None, description: "photonPersistentDisk represents a PhotonController persistent disk attached and mounted on kubelets host machine. Deprecated: PhotonPersistentDisk is deprecated and the in-tree photonPersistentDisk type is no longer supported." },
        Field { name: "portworxVolume", shape: Shape::Object(&CORE_V1_PORTWORXVOLUMESOURCE), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[2, 24], embedded: Some("VolumeSource"), go_type: None, description: "portworxVolume represents a portworx volume attached and mounted on kubelets host machine. Deprecated: PortworxVolume is deprecated. All operations for the in-tree portworxVolume type are redirected to the pxd.portworx.com CSI driver." },
        Field { name: "projected", shape: Shape::Object(&CORE_V1_PROJECTEDVOLUMESOURCE), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[2, 26], embedded: Some("VolumeSource"), go_type: None, description: "projected items for all in one resources secrets, configmaps, and downward API" },
        Field { name: "quobyte", shape: Shape::Object(&CORE_V1_QUOBYTEVOLUMESOURCE), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[2, 21], embedded: Some("VolumeSource"), go_type: None, description: "quobyte represents a Quobyte mount on the host that shares a pod's lifetime. Deprecated: Quobyte is deprecated and the in-tree quobyte type is no longer supported." },
        Field { name: "rbd", shape: Shape::Object(&CORE_V1_RBDVOLUMESOURCE), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[2, 11], embedded: Some("VolumeSource"), go_type: None, description: "rbd represents a Rados Block Device mount on the host that shares a pod's lifetime. Deprecated: RBD is deprecated and the in-tree rbd type is no longer supported." },
        Field { name: "scaleIO", shape: Shape::Object(&CORE_V1_SCALEIOVOLUMESOURCE), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[2, 25], embedded: Some("VolumeSource"), go_type: None, description: "scaleIO represents a ScaleIO persistent volume attached and mounted on Kubernetes nodes. Deprecated: ScaleIO is deprecated and the in-tree scaleIO type is no longer supported." },
        Field { name: "secret", shape: Shape::Object(&CORE_V1_SECRETVOLUMESOURCE), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[2, 6], embedded: Some("VolumeSource"), go_type: None, description: "secret represents a secret that should populate this volume. More info: https://kubernetes.io/docs/concepts/storage/volumes#secret" },
        Field { name: "storageos", shape: Shape::Object(&CORE_V1_STORAGEOSVOLUMESOURCE), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[2, 27], embedded: Some("VolumeSource"), go_type: None, description: "storageOS represents a StorageOS volume attached and mounted on Kubernetes nodes. Deprecated: StorageOS is deprecated and the in-tree storageos type is no longer supported." },
        Field { name: "vsphereVolume", shape: Shape::Object(&CORE_V1_VSPHEREVIRTUALDISKVOLUMESOURCE), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[2, 20], embedded: Some("VolumeSource"), go_type: None, description: "vsphereVolume represents a vSphere volume attached and mounted on kubelets host machine. Deprecated: VsphereVolume is deprecated. All operations for the in-tree vsphereVolume type are redirected to the csi.vsphere.vmware.com CSI driver." },
    ],
};

static CORE_V1_VOLUMEDEVICE: Type = Type {
    name: "io.k8s.api.core.v1.VolumeDevice",
    description: "volumeDevice describes a mapping of a raw block device within a container.",
    atomic: false,
    fields: &[
        Field { name: "devicePath", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "devicePath is the path inside of the container that the device will be mapped to." },
        Field { name: "name", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "name must match the name of a persistentVolumeClaim in the pod" },
    ],
};

static CORE_V1_VOLUMEMOUNT: Type = Type {
    name: "io.k8s.api.core.v1.VolumeMount",
    description: "VolumeMount describes a mounting of a Volume within a container.",
    atomic: false,
    fields: &[
        Field { name: "mountPath", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "Path within the container at which the volume should be mounted.  Must not contain ':'." },
        Field { name: "mountPropagation", shape: Shape::String, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[5], embedded: None, go_type: Some("v1.MountPropagationMode"), description: "mountPropagation determines how mounts are propagated from the host to container and the other way around. When not set, MountPropagationNone is used. This field is beta in 1.10. When RecursiveReadOnly is set to IfPossible or to Enabled, MountPropagation must be None or unspecified (which defaults to None)." },
        Field { name: "name", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "This must match the Name of a Volume." },
        Field { name: "readOnly", shape: Shape::Bool, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "Mounted read-only if true, read-write otherwise (false or unspecified). Defaults to false." },
        Field { name: "recursiveReadOnly", shape: Shape::String, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[7], embedded: None, go_type: Some("v1.RecursiveReadOnlyMode"), description: "RecursiveReadOnly specifies whether read-only mounts should be handled recursively.\n\nIf ReadOnly is false, this field has no meaning and must be unspecified.\n\nIf ReadOnly is true, and this field is set to Disabled, the mount is not made recursively read-only.  If this field is set to IfPossible, the mount is made recursively read-only, if it is supported by the container runtime.  If this field is set to Enabled, the mount is made recursively read-only if it is supported by the container runtime, otherwise the pod will not be started and an error will be generated to indicate the reason.\n\nIf this field is set to IfPossible or Enabled, MountPropagation must be set to None (or be unspecified, which defaults to None).\n\nIf this field is not specified, it is treated as an equivalent of Disabled." },
        Field { name: "subPath", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "Path within the volume from which the container's volume should be mounted. Defaults to \"\" (volume's root)." },
        Field { name: "subPathExpr", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[6], embedded: None, go_type: None, description: "Expanded path within the volume from which the container's volume should be mounted. Behaves similarly to SubPath but environment variable references $(VAR_NAME) are expanded using the container's environment. Defaults to \"\" (volume's root). SubPathExpr and SubPath are mutually exclusive." },
    ],
};

static CORE_V1_VOLUMEMOUNTSTATUS: Type = Type {
    name: "io.k8s.api.core.v1.VolumeMountStatus",
    description: "VolumeMountStatus shows status of volume mounts.",
    atomic: false,
    fields: &[
        Field { name: "mountPath", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "MountPath corresponds to the original VolumeMount." },
        Field { name: "name", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Name corresponds to the name of the original VolumeMount." },
        Field { name: "readOnly", shape: Shape::Bool, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "ReadOnly corresponds to the original VolumeMount." },
        Field { name: "recursiveReadOnly", shape: Shape::String, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: Some("v1.RecursiveReadOnlyMode"), description: "RecursiveReadOnly must be set to Disabled, Enabled, or unspecified (for non-readonly mounts). An IfPossible value in the original VolumeMount must be translated to Disabled or Enabled, depending on the mount result." },
        Field { name: "volumeStatus", shape: Shape::Object(&CORE_V1_VOLUMESTATUS), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[5], embedded: None, go_type: None, description: "volumeStatus represents volume-type-specific status about the mounted volume." },
    ],
};

static CORE_V1_VOLUMEPROJECTION: Type = Type {
    name: "io.k8s.api.core.v1.VolumeProjection",
    description: "Projection that may be projected along with other supported volume types. Exactly one of these fields must be set.",
    atomic: false,
    fields: &[
        Field { name: "clusterTrustBundle", shape: Shape::Object(&CORE_V1_CLUSTERTRUSTBUNDLEPROJECTION), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[5], embedded: None, go_type: None, description: "ClusterTrustBundle allows a pod to access the `.spec.trustBundle` field of ClusterTrustBundle objects in an auto-updating file.\n\nAlpha, gated by the ClusterTrustBundleProjection feature gate.\n\nClusterTrustBundle objects can either be selected by name, or by the combination of signer name and a label selector.\n\nKubelet performs aggressive normalization of the PEM contents written into the pod filesystem.  Esoteric PEM features such as inter-block comments and block headers are stripped.  Certificates are deduplicated. The ordering of certificates within the file is arbitrary, and Kubelet may change the order over time." },
        Field { name: "configMap", shape: Shape::Object(&CORE_V1_CONFIGMAPPROJECTION), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "configMap information about the configMap data to project" },
        Field { name: "downwardAPI", shape: Shape::Object(&CORE_V1_DOWNWARDAPIPROJECTION), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "downwardAPI information about the downwardAPI data to project" },
        Field { name: "podCertificate", shape: Shape::Object(&CORE_V1_PODCERTIFICATEPROJECTION), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[6], embedded: None, go_type: None, description: "Projects an auto-rotating credential bundle (private key and certificate chain) that the pod can use either as a TLS client or server.\n\nKubelet generates a private key and uses it to send a PodCertificateRequest to the named signer.  Once the signer approves the request and issues a certificate chain, Kubelet writes the key and certificate chain to the pod filesystem.  The pod does not start until certificates have been issued for each podCertificate projected volume source in its spec.\n\nKubelet will begin trying to rotate the certificate at the time indicated by the signer using the PodCertificateRequest.Status.BeginRefreshAt timestamp.\n\nKubelet can write a single file, indicated by the credentialBundlePath field, or separate files, indicated by the keyPath and certificateChainPath fields.\n\nThe credential bundle is a single file in PEM format.  The first PEM entry is the private key (in PKCS#8 format), and the remaining PEM entries are the certificate chain issued by the signer (typically, signers will return their certificate chain in leaf-to-root order).\n\nPrefer using the credential bundle format, since your application code can read it atomically.  If you use keyPath and certificateChainPath, your application must make two separate file reads. If these coincide with a certificate rotation, it is possible that the private key and leaf certificate you read may not correspond to each other.  Your application will need to check for this condition, and re-read until they are consistent.\n\nThe named signer controls chooses the format of the certificate it issues; consult the signer implementation's documentation to learn how to use the certificates it issues." },
        Field { name: "secret", shape: Shape::Object(&CORE_V1_SECRETPROJECTION), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "secret information about the secret data to project" },
        Field { name: "serviceAccountToken", shape: Shape::Object(&CORE_V1_SERVICEACCOUNTTOKENPROJECTION), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "serviceAccountToken is information about the serviceAccountToken data to project" },
    ],
};

static CORE_V1_VOLUMERESOURCEREQUIREMENTS: Type = Type {
    name: "io.k8s.api.core.v1.VolumeResourceRequirements",
    description: "VolumeResourceRequirements describes the storage resource requirements for a volume.",
    atomic: false,
    fields: &[
        Field { name: "limits", shape: Shape::Map(&Shape::Quantity, MapKind::Granular), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: Some("v1.ResourceList"), description: "Limits describes the maximum amount of compute resources allowed. More info: https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/" },
        Field { name: "requests", shape: Shape::Map(&Shape::Quantity, MapKind::Granular), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: Some("v1.ResourceList"), description: "Requests describes the minimum amount of compute resources required. If Requests is omitted for a container, it defaults to Limits if that is explicitly specified, otherwise to an implementation-defined value. Requests cannot exceed Limits. More info: https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/" },
    ],
};

static CORE_V1_VOLUMESTATUS: Type = Type {
    name: "io.k8s.api.core.v1.VolumeStatus",
    description: "VolumeStatus represents the status of a mounted volume. At most one of its members must be specified.",
    atomic: false,
    fields: &[
        Field { name: "image", shape: Shape::Object(&CORE_V1_IMAGEVOLUMESTATUS), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "image represents an OCI object (a container image or artifact) pulled and mounted on the kubelet's host machine." },
    ],
};

static CORE_V1_VSPHEREVIRTUALDISKVOLUMESOURCE: Type = Type {
    name: "io.k8s.api.core.v1.VsphereVirtualDiskVolumeSource",
    description: "Represents a vSphere volume resource.",
    atomic: false,
    fields: &[
        Field { name: "fsType", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "fsType is filesystem type to mount. Must be a filesystem type supported by the host operating system. Ex. \"ext4\", \"xfs\", \"ntfs\". Implicitly inferred to be \"ext4\" if unspecified." },
        Field { name: "storagePolicyID", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "storagePolicyID is the storage Policy Based Management (SPBM) profile ID associated with the StoragePolicyName." },
        Field { name: "storagePolicyName", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "storagePolicyName is the storage Policy Based Management (SPBM) profile name." },
        Field { name: "volumePath", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "volumePath is the path that identifies vSphere volume vmdk" },
    ],
};

static CORE_V1_WEIGHTEDPODAFFINITYTERM: Type = Type {
    name: "io.k8s.api.core.v1.WeightedPodAffinityTerm",
    description: "The weights of all of the matched WeightedPodAffinityTerm fields are added per-node to find the most preferred node(s)",
    atomic: false,
    fields: &[
        Field { name: "podAffinityTerm", shape: Shape::Object(&CORE_V1_PODAFFINITYTERM), required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "Required. A pod affinity term, associated with the corresponding weight." },
        Field { name: "weight", shape: Shape::Int32, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "weight associated with matching the corresponding podAffinityTerm, in the range 1-100." },
    ],
};

static CORE_V1_WINDOWSSECURITYCONTEXTOPTIONS: Type = Type {
    name: "io.k8s.api.core.v1.WindowsSecurityContextOptions",
    description: "WindowsSecurityContextOptions contain Windows-specific options and credentials.",
    atomic: false,
    fields: &[
        Field { name: "gmsaCredentialSpec", shape: Shape::String, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "GMSACredentialSpec is where the GMSA admission webhook (https://github.com/kubernetes-sigs/windows-gmsa) inlines the contents of the GMSA credential spec named by the GMSACredentialSpecName field." },
        Field { name: "gmsaCredentialSpecName", shape: Shape::String, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "GMSACredentialSpecName is the name of the GMSA credential spec to use." },
        Field { name: "hostProcess", shape: Shape::Bool, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "HostProcess determines if a container should be run as a 'Host Process' container. All of a Pod's containers must have the same effective HostProcess value (it is not allowed to have a mix of HostProcess containers and non-HostProcess containers). In addition, if HostProcess is true then HostNetwork must also be set to true." },
        Field { name: "runAsUserName", shape: Shape::String, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "The UserName in Windows to run the entrypoint of the container process. Defaults to the user specified in image metadata if unspecified. May also be set in PodSecurityContext. If set in both SecurityContext and PodSecurityContext, the value specified in SecurityContext takes precedence." },
    ],
};

static DISCOVERY_V1_ENDPOINT: Type = Type {
    name: "io.k8s.api.discovery.v1.Endpoint",
    description: "Endpoint represents a single logical \"backend\" implementing a service.",
    atomic: false,
    fields: &[
        Field { name: "addresses", shape: Shape::List(&Shape::String, Keys::Set), required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "addresses of this endpoint. For EndpointSlices of addressType \"IPv4\" or \"IPv6\", the values are IP addresses in canonical form. The syntax and semantics of other addressType values are not defined. This must contain at least one address but no more than 100. EndpointSlices generated by the EndpointSlice controller will always have exactly 1 address. No semantics are defined for additional addresses beyond the first, and kube-proxy does not look at them." },
        Field { name: "conditions", shape: Shape::Object(&DISCOVERY_V1_ENDPOINTCONDITIONS), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "conditions contains information about the current status of the endpoint." },
        Field { name: "deprecatedTopology", shape: Shape::Map(&Shape::String, MapKind::Granular), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[5], embedded: None, go_type: None, description: "deprecatedTopology contains topology information part of the v1beta1 API. This field is deprecated, and will be removed when the v1beta1 API is removed (no sooner than kubernetes v1.24).  While this field can hold values, it is not writable through the v1 API, and any attempts to write to it will be silently ignored. Topology information can be found in the zone and nodeName fields instead." },
        Field { name: "hints", shape: Shape::Object(&DISCOVERY_V1_ENDPOINTHINTS), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[8], embedded: None, go_type: None, description: "hints contains information associated with how an endpoint should be consumed." },
        Field { name: "hostname", shape: Shape::String, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "hostname of this endpoint. This field may be used by consumers of endpoints to distinguish endpoints from each other (e.g. in DNS names). Multiple endpoints which use the same hostname should be considered fungible (e.g. multiple A values in DNS). Must be lowercase and pass DNS Label (RFC 1123) validation." },
        Field { name: "nodeName", shape: Shape::String, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[6], embedded: None, go_type: None, description: "nodeName represents the name of the Node hosting this endpoint. This can be used to determine endpoints local to a Node." },
        Field { name: "targetRef", shape: Shape::Object(&CORE_V1_OBJECTREFERENCE), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "targetRef is a reference to a Kubernetes object that represents this endpoint." },
        Field { name: "zone", shape: Shape::String, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[7], embedded: None, go_type: None, description: "zone is the name of the Zone this endpoint exists in." },
    ],
};

static DISCOVERY_V1_ENDPOINTCONDITIONS: Type = Type {
    name: "io.k8s.api.discovery.v1.EndpointConditions",
    description: "EndpointConditions represents the current condition of an endpoint.",
    atomic: false,
    fields: &[
        Field { name: "ready", shape: Shape::Bool, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "ready indicates that this endpoint is ready to receive traffic, according to whatever system is managing the endpoint. A nil value should be interpreted as \"true\". In general, an endpoint should be marked ready if it is serving and not terminating, though this can be overridden in some cases, such as when the associated Service has set the publishNotReadyAddresses flag." },
        Field { name: "serving", shape: Shape::Bool, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "serving indicates that this endpoint is able to receive traffic, according to whatever system is managing the endpoint. For endpoints backed by pods, the EndpointSlice controller will mark the endpoint as serving if the pod's Ready condition is True. A nil value should be interpreted as \"true\"." },
        Field { name: "terminating", shape: Shape::Bool, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "terminating indicates that this endpoint is terminating. A nil value should be interpreted as \"false\"." },
    ],
};

static DISCOVERY_V1_ENDPOINTHINTS: Type = Type {
    name: "io.k8s.api.discovery.v1.EndpointHints",
    description: "EndpointHints provides hints describing how an endpoint should be consumed.",
    atomic: false,
    fields: &[
        Field { name: "forNodes", shape: Shape::List(&Shape::Object(&DISCOVERY_V1_FORNODE), Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "forNodes indicates the node(s) this endpoint should be consumed by when using topology aware routing. May contain a maximum of 8 entries." },
        Field { name: "forZones", shape: Shape::List(&Shape::Object(&DISCOVERY_V1_FORZONE), Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "forZones indicates the zone(s) this endpoint should be consumed by when using topology aware routing. May contain a maximum of 8 entries." },
    ],
};

static DISCOVERY_V1_ENDPOINTPORT: Type = Type {
    name: "io.k8s.api.discovery.v1.EndpointPort",
    description: "EndpointPort represents a Port used by an EndpointSlice",
    atomic: true,
    fields: &[
        Field { name: "appProtocol", shape: Shape::String, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "The application protocol for this port. This is used as a hint for implementations to offer richer behavior for protocols that they understand. This field follows standard Kubernetes label syntax. Valid values are either:\n\n* Un-prefixed protocol names - reserved for IANA standard service names (as per RFC-6335 and https://www.iana.org/assignments/service-names).\n\n* Kubernetes-defined prefixed names:\n  * 'kubernetes.io/h2c' - HTTP/2 prior knowledge over cleartext as described in https://www.rfc-editor.org/rfc/rfc9113.html#name-starting-http-2-with-prior-\n  * 'kubernetes.io/ws'  - WebSocket over cleartext as described in https://www.rfc-editor.org/rfc/rfc6455\n  * 'kubernetes.io/wss' - WebSocket over TLS as described in https://www.rfc-editor.org/rfc/rfc6455\n\n* Other protocols should use implementation-defined prefixed names such as mycompany.com/my-custom-protocol." },
        Field { name: "name", shape: Shape::String, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "name represents the name of this port. All ports in an EndpointSlice must have a unique name. If the EndpointSlice is derived from a Kubernetes service, this corresponds to the Service.ports[].name. Name must either be an empty string or pass DNS_LABEL validation: * must be no more than 63 characters long. * must consist of lower case alphanumeric characters or '-'. * must start and end with an alphanumeric character. Default is empty string." },
        Field { name: "port", shape: Shape::Int32, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "port represents the port number of the endpoint. If the EndpointSlice is derived from a Kubernetes service, this must be set to the service's target port. EndpointSlices used for other purposes may have a nil port." },
        Field { name: "protocol", shape: Shape::String, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: Some("v1.Protocol"), description: "protocol represents the IP protocol for this port. Must be UDP, TCP, or SCTP. Default is TCP." },
    ],
};

static DISCOVERY_V1_ENDPOINTSLICE: Type = Type {
    name: "io.k8s.api.discovery.v1.EndpointSlice",
    description: "EndpointSlice represents a set of service endpoints. Most EndpointSlices are created by the EndpointSlice controller to represent the Pods selected by Service objects. For a given service there may be multiple EndpointSlice objects which must be joined to produce the full set of endpoints; you can find all of the slices for a given service by listing EndpointSlices in the service's namespace whose `kubernetes.io/service-name` label contains the service's name.",
    atomic: false,
    fields: &[
        Field { name: "addressType", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: Some("v1.AddressType"), description: "addressType specifies the type of address carried by this EndpointSlice. All addresses in this slice must be the same type. This field is immutable after creation. The following address types are currently supported: * IPv4: Represents an IPv4 Address. * IPv6: Represents an IPv6 Address. * FQDN: Represents a Fully Qualified Domain Name. (Deprecated) The EndpointSlice controller only generates, and kube-proxy only processes, slices of addressType \"IPv4\" and \"IPv6\". No semantics are defined for the \"FQDN\" type." },
        Field { name: "apiVersion", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[], embedded: None, go_type: None, description: "APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized schemas to the latest internal value, and may reject unrecognized values. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources" },
        Field { name: "endpoints", shape: Shape::List(&Shape::Object(&DISCOVERY_V1_ENDPOINT), Keys::Atomic), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "endpoints is a list of unique endpoints in this slice. Each slice may include a maximum of 1000 endpoints." },
        Field { name: "kind", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[], embedded: None, go_type: None, description: "Kind is a string value representing the REST resource this object represents. Servers may infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds" },
        Field { name: "metadata", shape: Shape::Object(&META_V1_OBJECTMETA), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Standard object's metadata." },
        Field { name: "ports", shape: Shape::List(&Shape::Object(&DISCOVERY_V1_ENDPOINTPORT), Keys::Atomic), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "ports specifies the list of network ports exposed by each endpoint in this slice. Each port must have a unique name. Each slice may include a maximum of 100 ports. Services always have at least 1 port, so EndpointSlices generated by the EndpointSlice controller will likewise always have at least 1 port. EndpointSlices used for other purposes may have an empty ports list." },
    ],
};

static DISCOVERY_V1_FORNODE: Type = Type {
    name: "io.k8s.api.discovery.v1.ForNode",
    description: "ForNode provides information about which nodes should consume this endpoint.",
    atomic: false,
    fields: &[
        Field { name: "name", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "name represents the name of the node." },
    ],
};

static DISCOVERY_V1_FORZONE: Type = Type {
    name: "io.k8s.api.discovery.v1.ForZone",
    description: "ForZone provides information about which zones should consume this endpoint.",
    atomic: false,
    fields: &[
        Field { name: "name", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "name represents the name of the zone." },
    ],
};

static EVENTS_V1_EVENT: Type = Type {
    name: "io.k8s.api.events.v1.Event",
    description: "Event is a report of an event somewhere in the cluster. It generally denotes some state change in the system. Events have a limited retention time and triggers and messages may evolve with time.  Event consumers should not rely on the timing of an event with a given Reason reflecting a consistent underlying trigger, or the continued existence of events with that Reason.  Events should be treated as informative, best-effort, supplemental data.",
    atomic: false,
    fields: &[
        Field { name: "action", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[6], embedded: None, go_type: None, description: "action is what action was taken/failed regarding to the regarding object. It is machine-readable. This field cannot be empty for new Events and it can have at most 128 characters." },
        Field { name: "apiVersion", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[], embedded: None, go_type: None, description: "APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized schemas to the latest internal value, and may reject unrecognized values. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources" },
        Field { name: "deprecatedCount", shape: Shape::Int32, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[15], embedded: None, go_type: None, description: "deprecatedCount is the deprecated field assuring backward compatibility with core.v1 Event type." },
        Field { name: "deprecatedFirstTimestamp", shape: Shape::Time, required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[13], embedded: None, go_type: None, description: "deprecatedFirstTimestamp is the deprecated field assuring backward compatibility with core.v1 Event type." },
        Field { name: "deprecatedLastTimestamp", shape: Shape::Time, required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[14], embedded: None, go_type: None, description: "deprecatedLastTimestamp is the deprecated field assuring backward compatibility with core.v1 Event type." },
        Field { name: "deprecatedSource", shape: Shape::Object(&CORE_V1_EVENTSOURCE), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[12], embedded: None, go_type: None, description: "deprecatedSource is the deprecated field assuring backward compatibility with core.v1 Event type." },
        Field { name: "eventTime", shape: Shape::MicroTime, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "eventTime is the time when this Event was first observed. It is required." },
        Field { name: "kind", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[], embedded: None, go_type: None, description: "Kind is a string value representing the REST resource this object represents. Servers may infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds" },
        Field { name: "metadata", shape: Shape::Object(&META_V1_OBJECTMETA), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata" },
        Field { name: "note", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[10], embedded: None, go_type: None, description: "note is a human-readable description of the status of this operation. Maximal length of the note is 1kB, but libraries should be prepared to handle values up to 64kB." },
        Field { name: "reason", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[7], embedded: None, go_type: None, description: "reason is why the action was taken. It is human-readable. This field cannot be empty for new Events and it can have at most 128 characters." },
        Field { name: "regarding", shape: Shape::Object(&CORE_V1_OBJECTREFERENCE), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[8], embedded: None, go_type: None, description: "regarding contains the object this Event is about. In most cases it's an Object reporting controller implements, e.g. ReplicaSetController implements ReplicaSets and this event is emitted because it acts on some changes in a ReplicaSet object." },
        Field { name: "related", shape: Shape::Object(&CORE_V1_OBJECTREFERENCE), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[9], embedded: None, go_type: None, description: "related is the optional secondary object for more complex actions. E.g. when regarding object triggers a creation or deletion of related object." },
        Field { name: "reportingController", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "reportingController is the name of the controller that emitted this Event, e.g. `kubernetes.io/kubelet`. This field cannot be empty for new Events." },
        Field { name: "reportingInstance", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[5], embedded: None, go_type: None, description: "reportingInstance is the ID of the controller instance, e.g. `kubelet-xyzf`. This field cannot be empty for new Events and it can have at most 128 characters." },
        Field { name: "series", shape: Shape::Object(&EVENTS_V1_EVENTSERIES), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "series is data about the Event series this event represents or nil if it's a singleton Event." },
        Field { name: "type", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[11], embedded: None, go_type: None, description: "type is the type of this event (Normal, Warning), new types could be added in the future. It is machine-readable. This field cannot be empty for new Events." },
    ],
};

static EVENTS_V1_EVENTSERIES: Type = Type {
    name: "io.k8s.api.events.v1.EventSeries",
    description: "EventSeries contain information on series of events, i.e. thing that was/is happening continuously for some time. How often to update the EventSeries is up to the event reporters. The default event reporter in \"k8s.io/client-go/tools/events/event_broadcaster.go\" shows how this struct is updated on heartbeats and can guide customized reporter implementations.",
    atomic: false,
    fields: &[
        Field { name: "count", shape: Shape::Int32, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "count is the number of occurrences in this series up to the last heartbeat time." },
        Field { name: "lastObservedTime", shape: Shape::MicroTime, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "lastObservedTime is the time when last Event from the series was seen before last heartbeat." },
    ],
};

static EXTENSIONS_V1BETA1_DAEMONSET: Type = Type {
    name: "io.k8s.api.extensions.v1beta1.DaemonSet",
    description: "DaemonSet represents the configuration of a daemon set.",
    atomic: false,
    fields: &[
        Field { name: "apiVersion", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[], embedded: None, go_type: None, description: "APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized schemas to the latest internal value, and may reject unrecognized values. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources" },
        Field { name: "kind", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[], embedded: None, go_type: None, description: "Kind is a string value representing the REST resource this object represents. Servers may infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds" },
        Field { name: "metadata", shape: Shape::Object(&META_V1_OBJECTMETA), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata" },
        Field { name: "spec", shape: Shape::Object(&EXTENSIONS_V1BETA1_DAEMONSETSPEC), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "The desired behavior of this daemon set. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#spec-and-status" },
        Field { name: "status", shape: Shape::Object(&APPS_V1_DAEMONSETSTATUS), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "The current status of this daemon set. This data may be out of date by some window of time. Populated by the system. Read-only. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#spec-and-status" },
    ],
};

static EXTENSIONS_V1BETA1_DAEMONSETSPEC: Type = Type {
    name: "io.k8s.api.extensions.v1beta1.DaemonSetSpec",
    description: "DaemonSetSpec is the specification of a daemon set.",
    atomic: false,
    fields: &[
        Field { name: "minReadySeconds", shape: Shape::Int32, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "The minimum number of seconds for which a newly created DaemonSet pod should be ready without any of its container crashing, for it to be considered available. Defaults to 0 (pod will be considered available as soon as it is ready)." },
        Field { name: "revisionHistoryLimit", shape: Shape::Int32, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[6], embedded: None, go_type: None, description: "The number of old history to retain to allow rollback. This is a pointer to distinguish between explicit zero and not specified. Defaults to 10." },
        Field { name: "selector", shape: Shape::Object(&META_V1_LABELSELECTOR), required: false, presence: Presence::OrNull, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "A label query over pods that are managed by the daemon set. Must match in order to be controlled. It must match the pod template's labels. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors" },
        Field { name: "template", shape: Shape::Object(&CORE_V1_PODTEMPLATESPEC), required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "An object that describes the pod that will be created. The DaemonSet will create exactly one copy of this pod on every node that matches the template's node selector (or on every node if no node selector is specified). The only allowed template.spec.restartPolicy value is \"Always\". More info: https://kubernetes.io/docs/concepts/workloads/controllers/replicationcontroller#pod-template" },
        Field { name: "templateGeneration", shape: Shape::Int64, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[5], embedded: None, go_type: None, description: "DEPRECATED. A sequence number representing a specific generation of the template. Populated by the system. It can be set only during the creation." },
        Field { name: "updateStrategy", shape: Shape::Object(&APPS_V1_DAEMONSETUPDATESTRATEGY), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "An update strategy to replace existing DaemonSet pods with new pods." },
    ],
};

static NODE_V1_OVERHEAD: Type = Type {
    name: "io.k8s.api.node.v1.Overhead",
    description: "Overhead structure represents the resource overhead associated with running a pod.",
    atomic: false,
    fields: &[
        Field { name: "podFixed", shape: Shape::Map(&Shape::Quantity, MapKind::Granular), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "podFixed represents the fixed resource overhead associated with running a pod." },
    ],
};

static NODE_V1_RUNTIMECLASS: Type = Type {
    name: "io.k8s.api.node.v1.RuntimeClass",
    description: "RuntimeClass defines a class of container runtime supported in the cluster. The RuntimeClass is used to determine which container runtime is used to run all containers in a pod. RuntimeClasses are manually defined by a user or cluster provisioner, and referenced in the PodSpec. The Kubelet is responsible for resolving the RuntimeClassName reference before running the pod.  For more details, see https://kubernetes.io/docs/concepts/containers/runtime-class/",
    atomic: false,
    fields: &[
        Field { name: "apiVersion", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[], embedded: None, go_type: None, description: "APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized schemas to the latest internal value, and may reject unrecognized values. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources" },
        Field { name: "handler", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "handler specifies the underlying runtime and configuration that the CRI implementation will use to handle pods of this class. The possible values are specific to the node & CRI configuration.  It is assumed that all handlers are available on every node, and handlers of the same name are equivalent on every node. For example, a handler called \"runc\" might specify that the runc OCI runtime (using native Linux containers) will be used to run the containers in a pod. The Handler must be lowercase, conform to the DNS Label (RFC 1123) requirements, and is immutable." },
        Field { name: "kind", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[], embedded: None, go_type: None, description: "Kind is a string value representing the REST resource this object represents. Servers may infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds" },
        Field { name: "metadata", shape: Shape::Object(&META_V1_OBJECTMETA), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata" },
        Field { name: "overhead", shape: Shape::Object(&NODE_V1_OVERHEAD), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "overhead represents the resource overhead associated with running a pod for a given RuntimeClass. For more details, see\n https://kubernetes.io/docs/concepts/scheduling-eviction/pod-overhead/" },
        Field { name: "scheduling", shape: Shape::Object(&NODE_V1_SCHEDULING), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "scheduling holds the scheduling constraints to ensure that pods running with this RuntimeClass are scheduled to nodes that support it. If scheduling is nil, this RuntimeClass is assumed to be supported by all nodes." },
    ],
};

static NODE_V1_SCHEDULING: Type = Type {
    name: "io.k8s.api.node.v1.Scheduling",
    description: "Scheduling specifies the scheduling constraints for nodes supporting a RuntimeClass.",
    atomic: false,
    fields: &[
        Field { name: "nodeSelector", shape: Shape::Map(&Shape::String, MapKind::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "nodeSelector lists labels that must be present on nodes that support this RuntimeClass. Pods using this RuntimeClass can only be scheduled to a node matched by this selector. The RuntimeClass nodeSelector is merged with a pod's existing nodeSelector. Any conflicts will cause the pod to be rejected in admission." },
        Field { name: "tolerations", shape: Shape::List(&Shape::Object(&CORE_V1_TOLERATION), Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "tolerations are appended (excluding duplicates) to pods running with this RuntimeClass during admission, effectively unioning the set of nodes tolerated by the pod and the RuntimeClass." },
    ],
};

static POLICY_V1_EVICTION: Type = Type {
    name: "io.k8s.api.policy.v1.Eviction",
    description: "Eviction evicts a pod from its node subject to certain policies and safety constraints. This is a subresource of Pod.  A request to cause such an eviction is created by POSTing to .../pods/<pod name>/evictions.",
    atomic: false,
    fields: &[
        Field { name: "apiVersion", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[], embedded: None, go_type: None, description: "APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized schemas to the latest internal value, and may reject unrecognized values. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources" },
        Field { name: "deleteOptions", shape: Shape::Object(&META_V1_DELETEOPTIONS), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "DeleteOptions may be provided" },
        Field { name: "kind", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[], embedded: None, go_type: None, description: "Kind is a string value representing the REST resource this object represents. Servers may infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds" },
        Field { name: "metadata", shape: Shape::Object(&META_V1_OBJECTMETA), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "ObjectMeta describes the pod that is being evicted." },
    ],
};

static POLICY_V1_PODDISRUPTIONBUDGET: Type = Type {
    name: "io.k8s.api.policy.v1.PodDisruptionBudget",
    description: "PodDisruptionBudget is an object to define the max disruption that can be caused to a collection of pods",
    atomic: false,
    fields: &[
        Field { name: "apiVersion", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[], embedded: None, go_type: None, description: "APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized schemas to the latest internal value, and may reject unrecognized values. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources" },
        Field { name: "kind", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[], embedded: None, go_type: None, description: "Kind is a string value representing the REST resource this object represents. Servers may infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds" },
        Field { name: "metadata", shape: Shape::Object(&META_V1_OBJECTMETA), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata" },
        Field { name: "spec", shape: Shape::Object(&POLICY_V1_PODDISRUPTIONBUDGETSPEC), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "Specification of the desired behavior of the PodDisruptionBudget." },
        Field { name: "status", shape: Shape::Object(&POLICY_V1_PODDISRUPTIONBUDGETSTATUS), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "Most recently observed status of the PodDisruptionBudget." },
    ],
};

static POLICY_V1_PODDISRUPTIONBUDGETSPEC: Type = Type {
    name: "io.k8s.api.policy.v1.PodDisruptionBudgetSpec",
    description: "PodDisruptionBudgetSpec is a description of a PodDisruptionBudget.",
    atomic: false,
    fields: &[
        Field { name: "maxUnavailable", shape: Shape::IntOrString, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "An eviction is allowed if at most \"maxUnavailable\" pods selected by \"selector\" are unavailable after the eviction, i.e. even in absence of the evicted pod. For example, one can prevent all voluntary evictions by specifying 0. This is a mutually exclusive setting with \"minAvailable\"." },
        Field { name: "minAvailable", shape: Shape::IntOrString, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "An eviction is allowed if at least \"minAvailable\" pods selected by \"selector\" will still be available after the eviction, i.e. even in the absence of the evicted pod.  So for example you can prevent all voluntary evictions by specifying \"100%\"." },
        Field { name: "selector", shape: Shape::Object(&META_V1_LABELSELECTOR), required: false, presence: Presence::Set, default: None, patch: Patch::Replace, proto: &[2], embedded: None, go_type: None, description: "Label query over pods whose evictions are managed by the disruption budget. A null selector will match no pods, while an empty ({}) selector will select all pods within the namespace." },
        Field { name: "unhealthyPodEvictionPolicy", shape: Shape::String, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: Some("v1.UnhealthyPodEvictionPolicyType"), description: "UnhealthyPodEvictionPolicy defines the criteria for when unhealthy pods should be considered for eviction. Current implementation considers healthy pods, as pods that have status.conditions item with type=\"Ready\",status=\"True\".\n\nValid policies are IfHealthyBudget and AlwaysAllow. If no policy is specified, the default behavior will be used, which corresponds to the IfHealthyBudget policy.\n\nIfHealthyBudget policy means that running pods (status.phase=\"Running\"), but not yet healthy can be evicted only if the guarded application is not disrupted (status.currentHealthy is at least equal to status.desiredHealthy). Healthy pods will be subject to the PDB for eviction.\n\nAlwaysAllow policy means that all running pods (status.phase=\"Running\"), but not yet healthy are considered disrupted and can be evicted regardless of whether the criteria in a PDB is met. This means perspective running pods of a disrupted application might not get a chance to become healthy. Healthy pods will be subject to the PDB for eviction.\n\nAdditional policies may be added in the future. Clients making eviction decisions should disallow eviction of unhealthy pods if they encounter an unrecognized policy in this field." },
    ],
};

static POLICY_V1_PODDISRUPTIONBUDGETSTATUS: Type = Type {
    name: "io.k8s.api.policy.v1.PodDisruptionBudgetStatus",
    description: "PodDisruptionBudgetStatus represents information about the status of a PodDisruptionBudget. Status may trail the actual state of a system.",
    atomic: false,
    fields: &[
        Field { name: "conditions", shape: Shape::List(&Shape::Object(&META_V1_CONDITION), Keys::Fields(&["type"])), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Merge(Some("type")), proto: &[7], embedded: None, go_type: None, description: "Conditions contain conditions for PDB. The disruption controller sets the DisruptionAllowed condition. The following are known values for the reason field (additional reasons could be added in the future): - SyncFailed: The controller encountered an error and wasn't able to compute\n              the number of allowed disruptions. Therefore no disruptions are\n              allowed and the status of the condition will be False.\n- InsufficientPods: The number of pods are either at or below the number\n                    required by the PodDisruptionBudget. No disruptions are\n                    allowed and the status of the condition will be False.\n- SufficientPods: There are more pods than required by the PodDisruptionBudget.\n                  The condition will be True, and the number of allowed\n                  disruptions are provided by the disruptionsAllowed property." },
        Field { name: "currentHealthy", shape: Shape::Int32, required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "current number of healthy pods" },
        Field { name: "desiredHealthy", shape: Shape::Int32, required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[5], embedded: None, go_type: None, description: "minimum desired number of healthy pods" },
        Field { name: "disruptedPods", shape: Shape::Map(&Shape::Time, MapKind::Granular), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: Some("map[string]v1.Time"), description: "DisruptedPods contains information about pods whose eviction was processed by the API server eviction subresource handler but has not yet been observed by the PodDisruptionBudget controller. A pod will be in this map from the time when the API server processed the eviction request to the time when the pod is seen by PDB controller as having been marked for deletion (or after a timeout). The key in the map is the name of the pod and the value is the time when the API server processed the eviction request. If the deletion didn't occur and a pod is still there it will be removed from the list automatically by PodDisruptionBudget controller after some time. If everything goes smooth this map should be empty for the most of the time. Large number of entries in the map may indicate problems with pod deletions." },
        Field { name: "disruptionsAllowed", shape: Shape::Int32, required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "Number of pod disruptions that are currently allowed." },
        Field { name: "expectedPods", shape: Shape::Int32, required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[6], embedded: None, go_type: None, description: "total number of pods counted by this disruption budget" },
        Field { name: "observedGeneration", shape: Shape::Int64, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Most recent generation observed when updating this PDB status. DisruptionsAllowed and other status information is valid only if observedGeneration equals to PDB's object generation." },
    ],
};

static RBAC_V1_AGGREGATIONRULE: Type = Type {
    name: "io.k8s.api.rbac.v1.AggregationRule",
    description: "AggregationRule describes how to locate ClusterRoles to aggregate into the ClusterRole",
    atomic: false,
    fields: &[
        Field { name: "clusterRoleSelectors", shape: Shape::List(&Shape::Object(&META_V1_LABELSELECTOR), Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "ClusterRoleSelectors holds a list of selectors which will be used to find ClusterRoles and create the rules. If any of the selectors match, then the ClusterRole's permissions will be added" },
    ],
};

static RBAC_V1_CLUSTERROLE: Type = Type {
    name: "io.k8s.api.rbac.v1.ClusterRole",
    description: "ClusterRole is a cluster level, logical grouping of PolicyRules that can be referenced as a unit by a RoleBinding or ClusterRoleBinding.",
    atomic: false,
    fields: &[
        Field { name: "aggregationRule", shape: Shape::Object(&RBAC_V1_AGGREGATIONRULE), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "AggregationRule is an optional field that describes how to build the Rules for this ClusterRole. If AggregationRule is set, then the Rules are controller managed and direct changes to Rules will be stomped by the controller." },
        Field { name: "apiVersion", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[], embedded: None, go_type: None, description: "APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized schemas to the latest internal value, and may reject unrecognized values. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources" },
        Field { name: "kind", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[], embedded: None, go_type: None, description: "Kind is a string value representing the REST resource this object represents. Servers may infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds" },
        Field { name: "metadata", shape: Shape::Object(&META_V1_OBJECTMETA), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Standard object's metadata." },
        Field { name: "rules", shape: Shape::List(&Shape::Object(&RBAC_V1_POLICYRULE), Keys::Atomic), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "Rules holds all the PolicyRules for this ClusterRole" },
    ],
};

static RBAC_V1_CLUSTERROLEBINDING: Type = Type {
    name: "io.k8s.api.rbac.v1.ClusterRoleBinding",
    description: "ClusterRoleBinding references a ClusterRole, but not contain it.  It can reference a ClusterRole in the global namespace, and adds who information via Subject.",
    atomic: false,
    fields: &[
        Field { name: "apiVersion", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[], embedded: None, go_type: None, description: "APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized schemas to the latest internal value, and may reject unrecognized values. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources" },
        Field { name: "kind", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[], embedded: None, go_type: None, description: "Kind is a string value representing the REST resource this object represents. Servers may infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds" },
        Field { name: "metadata", shape: Shape::Object(&META_V1_OBJECTMETA), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Standard object's metadata." },
        Field { name: "roleRef", shape: Shape::Object(&RBAC_V1_ROLEREF), required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "RoleRef can only reference a ClusterRole in the global namespace. If the RoleRef cannot be resolved, the Authorizer must return an error. This field is immutable." },
        Field { name: "subjects", shape: Shape::List(&Shape::Object(&RBAC_V1_SUBJECT), Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "Subjects holds references to the objects the role applies to." },
    ],
};

static RBAC_V1_POLICYRULE: Type = Type {
    name: "io.k8s.api.rbac.v1.PolicyRule",
    description: "PolicyRule holds information that describes a policy rule, but does not contain information about who the rule applies to or which namespace the rule applies to.",
    atomic: false,
    fields: &[
        Field { name: "apiGroups", shape: Shape::List(&Shape::String, Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "APIGroups is the name of the APIGroup that contains the resources.  If multiple API groups are specified, any action requested against one of the enumerated resources in any API group will be allowed. \"\" represents the core API group and \"*\" represents all API groups." },
        Field { name: "nonResourceURLs", shape: Shape::List(&Shape::String, Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[5], embedded: None, go_type: None, description: "NonResourceURLs is a set of partial urls that a user should have access to.  *s are allowed, but only as the full, final step in the path Since non-resource URLs are not namespaced, this field is only applicable for ClusterRoles referenced from a ClusterRoleBinding. Rules can either apply to API resources (such as \"pods\" or \"secrets\") or non-resource URL paths (such as \"/api\"),  but not both." },
        Field { name: "resourceNames", shape: Shape::List(&Shape::String, Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "ResourceNames is an optional white list of names that the rule applies to.  An empty set means that everything is allowed." },
        Field { name: "resources", shape: Shape::List(&Shape::String, Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "Resources is a list of resources this rule applies to. '*' represents all resources." },
        Field { name: "verbs", shape: Shape::List(&Shape::String, Keys::Atomic), required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Verbs is a list of Verbs that apply to ALL the ResourceKinds contained in this rule. '*' represents all verbs." },
    ],
};

static RBAC_V1_ROLE: Type = Type {
    name: "io.k8s.api.rbac.v1.Role",
    description: "Role is a namespaced, logical grouping of PolicyRules that can be referenced as a unit by a RoleBinding.",
    atomic: false,
    fields: &[
        Field { name: "apiVersion", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[], embedded: None, go_type: None, description: "APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized schemas to the latest internal value, and may reject unrecognized values. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources" },
        Field { name: "kind", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[], embedded: None, go_type: None, description: "Kind is a string value representing the REST resource this object represents. Servers may infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds" },
        Field { name: "metadata", shape: Shape::Object(&META_V1_OBJECTMETA), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Standard object's metadata." },
        Field { name: "rules", shape: Shape::List(&Shape::Object(&RBAC_V1_POLICYRULE), Keys::Atomic), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "Rules holds all the PolicyRules for this Role" },
    ],
};

static RBAC_V1_ROLEBINDING: Type = Type {
    name: "io.k8s.api.rbac.v1.RoleBinding",
    description: "RoleBinding references a role, but does not contain it.  It can reference a Role in the same namespace or a ClusterRole in the global namespace. It adds who information via Subjects and namespace information by which namespace it exists in.  RoleBindings in a given namespace only have effect in that namespace.",
    atomic: false,
    fields: &[
        Field { name: "apiVersion", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[], embedded: None, go_type: None, description: "APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized schemas to the latest internal value, and may reject unrecognized values. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources" },
        Field { name: "kind", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[], embedded: None, go_type: None, description: "Kind is a string value representing the REST resource this object represents. Servers may infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds" },
        Field { name: "metadata", shape: Shape::Object(&META_V1_OBJECTMETA), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Standard object's metadata." },
        Field { name: "roleRef", shape: Shape::Object(&RBAC_V1_ROLEREF), required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "RoleRef can reference a Role in the current namespace or a ClusterRole in the global namespace. If the RoleRef cannot be resolved, the Authorizer must return an error. This field is immutable." },
        Field { name: "subjects", shape: Shape::List(&Shape::Object(&RBAC_V1_SUBJECT), Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "Subjects holds references to the objects the role applies to." },
    ],
};

static RBAC_V1_ROLEREF: Type = Type {
    name: "io.k8s.api.rbac.v1.RoleRef",
    description: "RoleRef contains information that points to the role being used",
    atomic: true,
    fields: &[
        Field { name: "apiGroup", shape: Shape::String, required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "APIGroup is the group for the resource being referenced" },
        Field { name: "kind", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "Kind is the type of resource being referenced" },
        Field { name: "name", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "Name is the name of resource being referenced" },
    ],
};

static RBAC_V1_SUBJECT: Type = Type {
    name: "io.k8s.api.rbac.v1.Subject",
    description: "Subject contains a reference to the object or user identities a role binding applies to.  This can either hold a direct API object reference, or a value for non-objects such as user and group names.",
    atomic: true,
    fields: &[
        Field { name: "apiGroup", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "APIGroup holds the API group of the referenced subject. Defaults to \"\" for ServiceAccount subjects. Defaults to \"rbac.authorization.k8s.io\" for User and Group subjects." },
        Field { name: "kind", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Kind of object being referenced. Values defined by this API group are \"User\", \"Group\", and \"ServiceAccount\". If the Authorizer does not recognized the kind value, the Authorizer should report an error." },
        Field { name: "name", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "Name of the object being referenced." },
        Field { name: "namespace", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "Namespace of the referenced object.  If the object kind is non-namespace, such as \"User\" or \"Group\", and this value is not empty the Authorizer should report an error." },
    ],
};

static SCHEDULING_V1_PRIORITYCLASS: Type = Type {
    name: "io.k8s.api.scheduling.v1.PriorityClass",
    description: "PriorityClass defines mapping from a priority class name to the priority integer value. The value can be any valid integer.",
    atomic: false,
    fields: &[
        Field { name: "apiVersion", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[], embedded: None, go_type: None, description: "APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized schemas to the latest internal value, and may reject unrecognized values. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources" },
        Field { name: "description", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "description is an arbitrary string that usually provides guidelines on when this priority class should be used." },
        Field { name: "globalDefault", shape: Shape::Bool, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "globalDefault specifies whether this PriorityClass should be considered as the default priority for pods that do not have any priority class. Only one PriorityClass can be marked as `globalDefault`. However, if more than one PriorityClasses exists with their `globalDefault` field set to true, the smallest value of such global default PriorityClasses will be used as the default priority." },
        Field { name: "kind", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[], embedded: None, go_type: None, description: "Kind is a string value representing the REST resource this object represents. Servers may infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds" },
        Field { name: "metadata", shape: Shape::Object(&META_V1_OBJECTMETA), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata" },
        Field { name: "preemptionPolicy", shape: Shape::String, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[5], embedded: None, go_type: Some("v1.PreemptionPolicy"), description: "preemptionPolicy is the Policy for preempting pods with lower priority. One of Never, PreemptLowerPriority. Defaults to PreemptLowerPriority if unset." },
        Field { name: "value", shape: Shape::Int32, required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "value represents the integer value of this priority class. This is the actual priority that pods receive when they have the name of this class in their pod spec." },
    ],
};

static META_V1_CONDITION: Type = Type {
    name: "io.k8s.apimachinery.pkg.apis.meta.v1.Condition",
    description: "Condition contains details for one aspect of the current state of this API Resource.",
    atomic: false,
    fields: &[
        Field { name: "lastTransitionTime", shape: Shape::Time, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "lastTransitionTime is the last time the condition transitioned from one status to another. This should be when the underlying condition changed.  If that is not known, then using the time when the API field changed is acceptable." },
        Field { name: "message", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[6], embedded: None, go_type: None, description: "message is a human readable message indicating details about the transition. This may be an empty string." },
        Field { name: "observedGeneration", shape: Shape::Int64, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "observedGeneration represents the .metadata.generation that the condition was set based upon. For instance, if .metadata.generation is currently 12, but the .status.conditions[x].observedGeneration is 9, the condition is out of date with respect to the current state of the instance." },
        Field { name: "reason", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[5], embedded: None, go_type: None, description: "reason contains a programmatic identifier indicating the reason for the condition's last transition. Producers of specific condition types may define expected values and meanings for this field, and whether the values are considered a guaranteed API. The value should be a CamelCase string. This field may not be empty." },
        Field { name: "status", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: Some("v1.ConditionStatus"), description: "status of the condition, one of True, False, Unknown." },
        Field { name: "type", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "type of condition in CamelCase or in foo.example.com/CamelCase." },
    ],
};

static META_V1_DELETEOPTIONS: Type = Type {
    name: "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions",
    description: "DeleteOptions may be provided when deleting an API object.",
    atomic: false,
    fields: &[
        Field { name: "apiVersion", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[], embedded: None, go_type: None, description: "APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized schemas to the latest internal value, and may reject unrecognized values. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources" },
        Field { name: "dryRun", shape: Shape::List(&Shape::String, Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[5], embedded: None, go_type: None, description: "When present, indicates that modifications should not be persisted. An invalid or unrecognized dryRun directive will result in an error response and no further processing of the request. Valid values are: - All: all dry run stages will be processed" },
        Field { name: "gracePeriodSeconds", shape: Shape::Int64, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "The duration in seconds before the object should be deleted. Value must be non-negative integer. The value zero indicates delete immediately. If this value is nil, the default grace period for the specified type will be used. Defaults to a per object value if not specified. zero means delete immediately." },
        Field { name: "ignoreStoreReadErrorWithClusterBreakingPotential", shape: Shape::Bool, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[6], embedded: None, go_type: None, description: "if set to true, it will trigger an unsafe deletion of the resource in case the normal deletion flow fails with a corrupt object error. A resource is considered corrupt if it can not be retrieved from the underlying storage successfully because of a) its data can not be transformed e.g. decryption failure, or b) it fails to decode into an object. NOTE: unsafe deletion ignores finalizer constraints, skips precondition checks, and removes the object from the storage. WARNING: This may potentially break the cluster if the workload associated with the resource being unsafe-deleted relies on normal deletion flow. Use only if you REALLY know what you are doing. The default value is false, and the user must opt in to enable it" },
        Field { name: "kind", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[], embedded: None, go_type: None, description: "Kind is a string value representing the REST resource this object represents. Servers may infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds" },
        Field { name: "orphanDependents", shape: Shape::Bool, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "Deprecated: please use the PropagationPolicy, this field will be deprecated in 1.7. Should the dependent objects be orphaned. If true/false, the \"orphan\" finalizer will be added to/removed from the object's finalizers list. Either this field or PropagationPolicy may be set, but not both." },
        Field { name: "preconditions", shape: Shape::Object(&META_V1_PRECONDITIONS), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "Must be fulfilled before a deletion is carried out. If not possible, a 409 Conflict status will be returned." },
        Field { name: "propagationPolicy", shape: Shape::String, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: Some("v1.DeletionPropagation"), description: "Whether and how garbage collection will be performed. Either this field or OrphanDependents may be set, but not both. The default policy is decided by the existing finalizer set in the metadata.finalizers and the resource-specific default policy. Acceptable values are: 'Orphan' - orphan the dependents; 'Background' - allow the garbage collector to delete the dependents in the background; 'Foreground' - a cascading policy that deletes all dependents in the foreground." },
    ],
};

static META_V1_FIELDSELECTORREQUIREMENT: Type = Type {
    name: "io.k8s.apimachinery.pkg.apis.meta.v1.FieldSelectorRequirement",
    description: "FieldSelectorRequirement is a selector that contains values, a key, and an operator that relates the key and values.",
    atomic: false,
    fields: &[
        Field { name: "key", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "key is the field selector key that the requirement applies to." },
        Field { name: "operator", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: Some("v1.FieldSelectorOperator"), description: "operator represents a key's relationship to a set of values. Valid operators are In, NotIn, Exists, DoesNotExist. The list of operators may grow in the future." },
        Field { name: "values", shape: Shape::List(&Shape::String, Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "values is an array of string values. If the operator is In or NotIn, the values array must be non-empty. If the operator is Exists or DoesNotExist, the values array must be empty." },
    ],
};

static META_V1_LABELSELECTOR: Type = Type {
    name: "io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector",
    description: "A label selector is a label query over a set of resources. The result of matchLabels and matchExpressions are ANDed. An empty label selector matches all objects. A null label selector matches no objects.",
    atomic: true,
    fields: &[
        Field { name: "matchExpressions", shape: Shape::List(&Shape::Object(&META_V1_LABELSELECTORREQUIREMENT), Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "matchExpressions is a list of label selector requirements. The requirements are ANDed." },
        Field { name: "matchLabels", shape: Shape::Map(&Shape::String, MapKind::Granular), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "matchLabels is a map of {key,value} pairs. A single {key,value} in the matchLabels map is equivalent to an element of matchExpressions, whose key field is \"key\", the operator is \"In\", and the values array contains only \"value\". The requirements are ANDed." },
    ],
};

static META_V1_LABELSELECTORREQUIREMENT: Type = Type {
    name: "io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelectorRequirement",
    description: "A label selector requirement is a selector that contains values, a key, and an operator that relates the key and values.",
    atomic: false,
    fields: &[
        Field { name: "key", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "key is the label key that the selector applies to." },
        Field { name: "operator", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: Some("v1.LabelSelectorOperator"), description: "operator represents a key's relationship to a set of values. Valid operators are In, NotIn, Exists and DoesNotExist." },
        Field { name: "values", shape: Shape::List(&Shape::String, Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "values is an array of string values. If the operator is In or NotIn, the values array must be non-empty. If the operator is Exists or DoesNotExist, the values array must be empty. This array is replaced during a strategic merge patch." },
    ],
};

static META_V1_LISTMETA: Type = Type {
    name: "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta",
    description: "ListMeta describes metadata that synthetic resources must have, including lists and various status objects. A resource may have only one of {ObjectMeta, ListMeta}.",
    atomic: false,
    fields: &[
        Field { name: "continue", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "continue may be set if the user set a limit on the number of items returned, and indicates that the server has more data available. The value is opaque and may be used to issue another request to the endpoint that served this list to retrieve the next set of available objects. Continuing a consistent list may not be possible if the server configuration has changed or more than a few minutes have passed. The resourceVersion field returned when using this continue value will be identical to the value in the first response, unless you have received this token from an error message." },
        Field { name: "remainingItemCount", shape: Shape::Int64, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "remainingItemCount is the number of subsequent items in the list which are not included in this list response. If the list request contained label or field selectors, then the number of remaining items is unknown and the field will be left unset and omitted during serialization. If the list is complete (either because it is not chunking or because this is the last chunk), then there are no more remaining items and this field will be left unset and omitted during serialization. Servers older than v1.15 do not set this field. The intended use of the remainingItemCount is *estimating* the size of a collection. Clients should not rely on the remainingItemCount to be set or to be exact." },
        Field { name: "resourceVersion", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "String that identifies the server's internal version of this object that can be used by clients to determine when objects have changed. Value must be treated as opaque by clients and passed unmodified back to the server. Populated by the system. Read-only. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#concurrency-control-and-consistency" },
        Field { name: "selfLink", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Deprecated: selfLink is a legacy read-only field that is no longer populated by the system." },
        Field { name: "shardInfo", shape: Shape::Object(&META_V1_SHARDINFO), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[5], embedded: None, go_type: None, description: "shardInfo is set when the list is a filtered subset of the full collection, as selected by a shard selector on the request. It echoes back the selector so clients can verify which shard they received and merge sharded responses. Clients should not cache sharded list responses as a full representation of the collection.\n\nThis is an alpha field and requires enabling the ShardedListAndWatch feature gate." },
    ],
};

static META_V1_MANAGEDFIELDSENTRY: Type = Type {
    name: "io.k8s.apimachinery.pkg.apis.meta.v1.ManagedFieldsEntry",
    description: "ManagedFieldsEntry is a workflow-id, a FieldSet and the group version of the resource that the fieldset applies to.",
    atomic: false,
    fields: &[
        Field { name: "apiVersion", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "APIVersion defines the version of this resource that this field set applies to. The format is \"group/version\" just like the top-level APIVersion field. It is necessary to track the version of a field set because it cannot be automatically converted." },
        Field { name: "fieldsType", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[6], embedded: None, go_type: None, description: "FieldsType is the discriminator for the different fields format and version. There is currently only one possible value: \"FieldsV1\"" },
        Field { name: "fieldsV1", shape: Shape::FieldsV1, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[7], embedded: None, go_type: None, description: "FieldsV1 holds the first JSON version format as described in the \"FieldsV1\" type." },
        Field { name: "manager", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Manager is an identifier of the workflow managing these fields." },
        Field { name: "operation", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: Some("v1.ManagedFieldsOperationType"), description: "Operation is the type of operation which lead to this ManagedFieldsEntry being created. The only valid values for this field are 'Apply' and 'Update'." },
        Field { name: "subresource", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[8], embedded: None, go_type: None, description: "Subresource is the name of the subresource used to update that object, or empty string if the object was updated through the main resource. The value of this field is used to distinguish between managers, even if they share the same name. For example, a status update will be distinct from a regular update using the same manager name. Note that the APIVersion field is not related to the Subresource field and it always corresponds to the version of the main resource." },
        Field { name: "time", shape: Shape::Time, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "Time is the timestamp of when the ManagedFields entry was added. The timestamp will also be updated if a field is added, the manager changes any of the owned fields value or removes a field. The timestamp does not update when a field is removed from the entry because another manager took it over." },
    ],
};

static META_V1_OBJECTMETA: Type = Type {
    name: "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta",
    description: "ObjectMeta is metadata that all persisted resources must have, which includes all objects users must create.",
    atomic: false,
    fields: &[
        Field { name: "annotations", shape: Shape::Map(&Shape::String, MapKind::Granular), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[12], embedded: None, go_type: None, description: "Annotations is an unstructured key value map stored with a resource that may be set by external tools to store and retrieve arbitrary metadata. They are not queryable and should be preserved when modifying objects. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/annotations" },
        Field { name: "creationTimestamp", shape: Shape::Time, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[8], embedded: None, go_type: None, description: "CreationTimestamp is a timestamp representing the server time when this object was created. It is not guaranteed to be set in happens-before order across separate operations. Clients may not set this value. It is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata" },
        Field { name: "deletionGracePeriodSeconds", shape: Shape::Int64, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[10], embedded: None, go_type: None, description: "Number of seconds allowed for this object to gracefully terminate before it will be removed from the system. Only set when deletionTimestamp is also set. May only be shortened. Read-only." },
        Field { name: "deletionTimestamp", shape: Shape::Time, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[9], embedded: None, go_type: None, description: "DeletionTimestamp is RFC 3339 date and time at which this resource will be deleted. This field is set by the server when a graceful deletion is requested by the user, and is not directly settable by a client. The resource is expected to be deleted (no longer visible from resource lists, and not reachable by name) after the time in this field, once the finalizers list is empty. As long as the finalizers list contains items, deletion is blocked. Once the deletionTimestamp is set, this value may not be unset or be set further into the future, although it may be shortened or the resource may be deleted prior to this time. For example, a user may request that a pod is deleted in 30 seconds. The Kubelet will react by sending a graceful termination signal to the containers in the pod. After that 30 seconds, the Kubelet will send a hard termination signal (SIGKILL) to the container and after cleanup, remove the pod from the API. In the presence of network partitions, this object may still exist after this timestamp, until an administrator or automated process can determine the resource is fully terminated. If not set, graceful deletion of the object has not been requested.\n\nPopulated by the system when a graceful deletion is requested. Read-only. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata" },
        Field { name: "finalizers", shape: Shape::List(&Shape::String, Keys::Set), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Merge(None), proto: &[14], embedded: None, go_type: None, description: "Must be empty before the object is deleted from the registry. Each entry is an identifier for the responsible component that will remove the entry from the list. If the deletionTimestamp of the object is non-nil, entries in this list can only be removed. Finalizers may be processed and removed in any order.  Order is NOT enforced because it introduces significant risk of stuck finalizers. finalizers is a shared field, any actor with permission can reorder it. If the finalizer list is processed in order, then this can lead to a situation in which the component responsible for the first finalizer in the list is waiting for a signal (field value, external system, or other) produced by a component responsible for a finalizer later in the list, resulting in a deadlock. Without enforced ordering finalizers are free to order amongst themselves and are not vulnerable to ordering changes in the list." },
        Field { name: "generateName", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "GenerateName is an optional prefix, used by the server, to generate a unique name ONLY IF the Name field has not been provided. If this field is used, the name returned to the client will be different than the name passed. This value will also be combined with a unique suffix. The provided value has the same validation rules as the Name field, and may be truncated by the length of the suffix required to make the value unique on the server.\n\nIf this field is specified and the generated name exists, the server will return a 409.\n\nApplied only if Name is not specified. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#idempotency" },
        Field { name: "generation", shape: Shape::Int64, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[7], embedded: None, go_type: None, description: "A sequence number representing a specific generation of the desired state. Populated by the system. Read-only." },
        Field { name: "labels", shape: Shape::Map(&Shape::String, MapKind::Granular), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[11], embedded: None, go_type: None, description: "Map of string keys and values that can be used to organize and categorize (scope and select) objects. May match selectors of replication controllers and services. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels" },
        Field { name: "managedFields", shape: Shape::List(&Shape::Object(&META_V1_MANAGEDFIELDSENTRY), Keys::Atomic), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[17], embedded: None, go_type: None, description: "ManagedFields maps workflow-id and version to the set of fields that are managed by that workflow. This is mostly for internal housekeeping, and users typically shouldn't need to set or understand this field. A workflow can be the user's name, a controller's name, or the name of a specific apply path like \"ci-cd\". The set of fields is always in the version that the workflow used when modifying the object." },
        Field { name: "name", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Name must be unique within a namespace. Is required when creating resources, although some resources may allow a client to request the generation of an appropriate name automatically. Name is primarily intended for creation idempotence and configuration definition. Cannot be updated. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names" },
        Field { name: "namespace", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "Namespace defines the space within which each name must be unique. An empty namespace is equivalent to the \"default\" namespace, but \"default\" is the canonical representation. Not all objects are required to be scoped to a namespace - the value of this field for those objects will be empty.\n\nMust be a DNS_LABEL. Cannot be updated. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/namespaces" },
        Field { name: "ownerReferences", shape: Shape::List(&Shape::Object(&META_V1_OWNERREFERENCE), Keys::Fields(&["uid"])), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Merge(Some("uid")), proto: &[13], embedded: None, go_type: None, description: "List of objects depended by this object. If ALL objects in the list have been deleted, this object will be garbage collected. If this object is managed by a controller, then an entry in this list will point to this controller, with the controller field set to true. There cannot be more than one managing controller." },
        Field { name: "resourceVersion", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[6], embedded: None, go_type: None, description: "An opaque value that represents the internal version of this object that can be used by clients to determine when objects have changed. May be used for optimistic concurrency, change detection, and the watch operation on a resource or set of resources. Clients must treat these values as opaque and passed unmodified back to the server. They may only be valid for a particular resource or set of resources.\n\nPopulated by the system. Read-only. Value must be treated as opaque by clients and . More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#concurrency-control-and-consistency" },
        Field { name: "selfLink", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "Deprecated: selfLink is a legacy read-only field that is no longer populated by the system." },
        Field { name: "uid", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[5], embedded: None, go_type: Some("types.UID"), description: "UID is the unique in time and space value for this object. It is typically generated by the server on successful creation of a resource and is not allowed to change on PUT operations.\n\nPopulated by the system. Read-only. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/names#uids" },
    ],
};

static META_V1_OWNERREFERENCE: Type = Type {
    name: "io.k8s.apimachinery.pkg.apis.meta.v1.OwnerReference",
    description: "OwnerReference contains enough information to let you identify an owning object. An owning object must be in the same namespace as the dependent, or be cluster-scoped, so there is no namespace field.",
    atomic: true,
    fields: &[
        Field { name: "apiVersion", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[5], embedded: None, go_type: None, description: "API version of the referent." },
        Field { name: "blockOwnerDeletion", shape: Shape::Bool, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[7], embedded: None, go_type: None, description: "If true, AND if the owner has the \"foregroundDeletion\" finalizer, then the owner cannot be deleted from the key-value store until this reference is removed. See https://kubernetes.io/docs/concepts/architecture/garbage-collection/#foreground-deletion for how the garbage collector interacts with this field and enforces the foreground deletion. Defaults to false. To set this field, a user needs \"delete\" permission of the owner, otherwise 422 (Unprocessable Entity) will be returned." },
        Field { name: "controller", shape: Shape::Bool, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[6], embedded: None, go_type: None, description: "If true, this reference points to the managing controller." },
        Field { name: "kind", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Kind of the referent. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds" },
        Field { name: "name", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "Name of the referent. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names" },
        Field { name: "uid", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: Some("types.UID"), description: "UID of the referent. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/names#uids" },
    ],
};

static META_V1_PRECONDITIONS: Type = Type {
    name: "io.k8s.apimachinery.pkg.apis.meta.v1.Preconditions",
    description: "Preconditions must be fulfilled before an operation (update, delete, etc.) is carried out.",
    atomic: false,
    fields: &[
        Field { name: "resourceVersion", shape: Shape::String, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "Specifies the target ResourceVersion" },
        Field { name: "uid", shape: Shape::String, required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: Some("types.UID"), description: "Specifies the target UID." },
    ],
};

static META_V1_SHARDINFO: Type = Type {
    name: "io.k8s.apimachinery.pkg.apis.meta.v1.ShardInfo",
    description: "ShardInfo describes the shard selector that was applied to produce a list response. Its presence on a list response indicates the list is a filtered subset.",
    atomic: false,
    fields: &[
        Field { name: "selector", shape: Shape::String, required: true, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "selector is the shard selector string from the request, echoed back so clients can verify which shard they received and merge responses from multiple shards." },
    ],
};

static META_V1_STATUS: Type = Type {
    name: "io.k8s.apimachinery.pkg.apis.meta.v1.Status",
    description: "Status is a return value for calls that don't return other objects.",
    atomic: false,
    fields: &[
        Field { name: "apiVersion", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[], embedded: None, go_type: None, description: "APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized schemas to the latest internal value, and may reject unrecognized values. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources" },
        Field { name: "code", shape: Shape::Int32, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[6], embedded: None, go_type: None, description: "Suggested HTTP return code for this status, 0 if not set." },
        Field { name: "details", shape: Shape::Object(&META_V1_STATUSDETAILS), required: false, presence: Presence::Set, default: None, patch: Patch::Plain, proto: &[5], embedded: None, go_type: None, description: "Extended data associated with the reason.  Each reason may define its own extended details. This field is optional and the data returned is not guaranteed to conform to any schema except that defined by the reason type." },
        Field { name: "kind", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[], embedded: None, go_type: None, description: "Kind is a string value representing the REST resource this object represents. Servers may infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds" },
        Field { name: "message", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "A human-readable description of the status of this operation." },
        Field { name: "metadata", shape: Shape::Object(&META_V1_LISTMETA), required: false, presence: Presence::Always, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "Standard list metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds" },
        Field { name: "reason", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: Some("v1.StatusReason"), description: "A machine-readable description of why this operation is in the \"Failure\" status. If this value is empty there is no information available. A Reason clarifies an HTTP status code but does not override it." },
        Field { name: "status", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "Status of the operation. One of: \"Success\" or \"Failure\". More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#spec-and-status" },
    ],
};

static META_V1_STATUSCAUSE: Type = Type {
    name: "io.k8s.apimachinery.pkg.apis.meta.v1.StatusCause",
    description: "StatusCause provides more information about an api.Status failure, including cases when multiple errors are encountered.",
    atomic: false,
    fields: &[
        Field { name: "field", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "The field of the resource that has caused this error, as named by its JSON serialization. May include dot and postfix notation for nested attributes. Arrays are zero-indexed.  Fields may appear more than once in an array of causes due to fields having multiple errors. Optional.\n\nExamples:\n  \"name\" - the field \"name\" on the current resource\n  \"items[0].name\" - the field \"name\" on the first array entry in \"items\"" },
        Field { name: "message", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "A human-readable description of the cause of the error.  This field may be presented as-is to a reader." },
        Field { name: "reason", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: Some("v1.CauseType"), description: "A machine-readable description of the cause of the error. If this value is empty there is no information available." },
    ],
};

static META_V1_STATUSDETAILS: Type = Type {
    name: "io.k8s.apimachinery.pkg.apis.meta.v1.StatusDetails",
    description: "StatusDetails is a set of additional properties that MAY be set by the server to provide additional information about a response. The Reason field of a Status object defines what attributes will be set. Clients must ignore fields that do not match the defined type of each attribute, and should assume that any attribute may be empty, invalid, or under defined.",
    atomic: false,
    fields: &[
        Field { name: "causes", shape: Shape::List(&Shape::Object(&META_V1_STATUSCAUSE), Keys::Atomic), required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[4], embedded: None, go_type: None, description: "The Causes array includes more details associated with the StatusReason failure. Not all StatusReasons may provide detailed causes." },
        Field { name: "group", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[2], embedded: None, go_type: None, description: "The group attribute of the resource associated with the status StatusReason." },
        Field { name: "kind", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[3], embedded: None, go_type: None, description: "The kind attribute of the resource associated with the status StatusReason. On some operations may differ from the requested resource Kind. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds" },
        Field { name: "name", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[1], embedded: None, go_type: None, description: "The name attribute of the resource associated with the status StatusReason (when there is a single name which can be described)." },
        Field { name: "retryAfterSeconds", shape: Shape::Int32, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[5], embedded: None, go_type: None, description: "If specified, the time in seconds before the operation should be retried. Some errors may indicate the client must take an alternate action - for those errors this field may indicate how long to wait before taking the alternate action." },
        Field { name: "uid", shape: Shape::String, required: false, presence: Presence::NotEmpty, default: None, patch: Patch::Plain, proto: &[6], embedded: None, go_type: Some("types.UID"), description: "UID of the resource. (when there is a single resource which can be described). More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/names#uids" },
    ],
};

/// Types that JSON does not write as objects with fields: name and description.
pub(super) static SPECIAL: &[(&str, &str)] = &[
    ("io.k8s.apimachinery.pkg.api.resource.Quantity", "Quantity is a fixed-point representation of a number. It provides convenient marshaling/unmarshaling in JSON and YAML, in addition to String() and AsInt64() accessors.\n\nThe serialization format is:\n\n``` <quantity>        ::= <signedNumber><suffix>\n\n\t(Note that <suffix> may be empty, from the \"\" case in <decimalSI>.)\n\n<digit>           ::= 0 | 1 | ... | 9 <digits>          ::= <digit> | <digit><digits> <number>          ::= <digits> | <digits>.<digits> | <digits>. | .<digits> <sign>            ::= \"+\" | \"-\" <signedNumber>    ::= <number> | <sign><number> <suffix>          ::= <binarySI> | <decimalExponent> | <decimalSI> <binarySI>        ::= Ki | Mi | Gi | Ti | Pi | Ei\n\n\t(International System of units; See: http://physics.nist.gov/cuu/Units/binary.html)\n\n<decimalSI>       ::= m | \"\" | k | M | G | T | P | E\n\n\t(Note that 1024 = 1Ki but 1000 = 1k; I didn't choose the capitalization.)\n\n<decimalExponent> ::= \"e\" <signedNumber> | \"E\" <signedNumber> ```\n\nNo matter which of the three exponent forms is used, no quantity may represent a number greater than 2^63-1 in magnitude, nor may it have more than 3 decimal places. Numbers larger or more precise will be capped or rounded up. (E.g.: 0.1m will rounded up to 1m.) This may be extended in the future if we require larger or smaller quantities.\n\nWhen a Quantity is parsed from a string, it will remember the type of suffix it had, and will use the same type again when it is serialized.\n\nBefore serializing, Quantity will be put in \"canonical form\". This means that Exponent/suffix will be adjusted up or down (with a corresponding increase or decrease in Mantissa) such that:\n\n- No precision is lost - No fractional digits will be emitted - The exponent (or suffix) is as large as possible.\n\nThe sign will be omitted unless the number is negative.\n\nExamples:\n\n- 1.5 will be serialized as \"1500m\" - 1.5Gi will be serialized as \"1536Mi\"\n\nNote that the quantity will NEVER be internally represented by a floating point number. That is the whole point of this exercise.\n\nNon-canonical values will still parse as long as they are well formed, but will be re-emitted in their canonical form. (So always use canonical form, or don't diff.)\n\nThis format is intended to make it difficult to use these numbers without writing some sort of special handling code in the hopes that that will cause implementors to also use a fixed point implementation."),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1", "FieldsV1 stores a set of fields in a data structure like a Trie, in JSON format.\n\nEach key is either a '.' representing the field itself, and will always map to an empty set, or a string representing a sub-field or item. The string will follow one of these four formats: 'f:<name>', where <name> is the name of a field in a struct, or key in a map 'v:<value>', where <value> is the exact json formatted value of a list item 'i:<index>', where <index> is position of a item in a list 'k:<keys>', where <keys> is a map of  a list item's key fields to their unique values If a key maps to an empty Fields value, the field that key represents is part of the set.\n\nThe exact format is defined in sigs.k8s.io/structured-merge-diff"),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime", "MicroTime is version of Time with microsecond level precision."),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.Time", "Time is a wrapper around time.Time which supports correct marshaling to YAML and JSON.  Wrappers are provided for many of the factory methods that the time package offers."),
    ("io.k8s.apimachinery.pkg.runtime.RawExtension", "RawExtension is used to hold extensions in external versions.\n\nTo use this, make a field which has RawExtension as its type in your external, versioned struct, and Object in your internal struct. You also need to register your various plugin types.\n\n// Internal package:\n\n\ttype MyAPIObject struct {\n\t\truntime.TypeMeta `json:\",inline\"`\n\t\tMyPlugin runtime.Object `json:\"myPlugin\"`\n\t}\n\n\ttype PluginA struct {\n\t\tAOption string `json:\"aOption\"`\n\t}\n\n// External package:\n\n\ttype MyAPIObject struct {\n\t\truntime.TypeMeta `json:\",inline\"`\n\t\tMyPlugin runtime.RawExtension `json:\"myPlugin\"`\n\t}\n\n\ttype PluginA struct {\n\t\tAOption string `json:\"aOption\"`\n\t}\n\n// On the wire, the JSON will look something like this:\n\n\t{\n\t\t\"kind\":\"MyAPIObject\",\n\t\t\"apiVersion\":\"v1\",\n\t\t\"myPlugin\": {\n\t\t\t\"kind\":\"PluginA\",\n\t\t\t\"aOption\":\"foo\",\n\t\t},\n\t}\n\nSo what happens? Decode first uses json or yaml to unmarshal the serialized data into your external MyAPIObject. That causes the raw JSON to be stored, but not unpacked. The next step is to copy (using pkg/conversion) into the internal struct. The runtime package's DefaultScheme has conversion functions installed which will unpack the JSON stored in RawExtension, turning it into the correct object type, and storing it in the Object. (TODO: In the case where the object is of an unknown type, a runtime.Unknown object will be created and stored.)"),
    ("io.k8s.apimachinery.pkg.util.intstr.IntOrString", "IntOrString is a type that can hold an int32 or a string.  When used in JSON or YAML marshalling and unmarshalling, it produces or consumes the inner type.  This allows you to have, for example, a JSON field that can accept a name or number."),
];
