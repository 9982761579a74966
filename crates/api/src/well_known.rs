//! Names with a fixed meaning in Kubernetes or Muster: labels, taints, annotations, verdicts, conditions, finalizers,
//! namespaces, objects, signers, API groups, users, HTTP headers, media types, system priority classes, the default
//! scheduler and the default grace period.

pub const LABEL_HOSTNAME: &str = "kubernetes.io/hostname";
pub const LABEL_OS: &str = "kubernetes.io/os";
pub const LABEL_ARCH: &str = "kubernetes.io/arch";
pub const LABEL_INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";
pub const LABEL_TOPOLOGY_ZONE: &str = "topology.kubernetes.io/zone";
pub const LABEL_TOPOLOGY_REGION: &str = "topology.kubernetes.io/region";
/// Deprecated name of [`LABEL_OS`].
pub const LABEL_BETA_OS: &str = "beta.kubernetes.io/os";
/// Deprecated name of [`LABEL_ARCH`].
pub const LABEL_BETA_ARCH: &str = "beta.kubernetes.io/arch";
/// Deprecated name of [`LABEL_INSTANCE_TYPE`].
pub const LABEL_BETA_INSTANCE_TYPE: &str = "beta.kubernetes.io/instance-type";
/// Deprecated name of [`LABEL_TOPOLOGY_ZONE`].
pub const LABEL_FAILURE_DOMAIN_BETA_ZONE: &str = "failure-domain.beta.kubernetes.io/zone";
/// Deprecated name of [`LABEL_TOPOLOGY_REGION`].
pub const LABEL_FAILURE_DOMAIN_BETA_REGION: &str = "failure-domain.beta.kubernetes.io/region";
/// Label that excludes a node from the counts of ready and not ready nodes of its zone.
pub const LABEL_NODE_EXCLUDE_DISRUPTION: &str = "node.kubernetes.io/exclude-disruption";
/// Label of an EndpointSlice: the name of its Service.
pub const LABEL_SERVICE_NAME: &str = "kubernetes.io/service-name";
/// Label that prevents Endpoints from being mirrored to EndpointSlices.
pub const LABEL_SKIP_MIRROR: &str = "endpointslice.kubernetes.io/skip-mirror";
/// Label of a ControllerRevision and of its pods: the hash of the revision.
pub const LABEL_CONTROLLER_REVISION_HASH: &str = "controller-revision-hash";
/// Deprecated label of a daemon pod: the template generation of its DaemonSet.
pub const LABEL_POD_TEMPLATE_GENERATION: &str = "pod-template-generation";

/// Labels that a kubelet may set on its Node, by itself or because an administrator configured them. Upstream:
/// `kubeletLabels`.
pub const KUBELET_LABELS: [&str; 11] = [
    LABEL_HOSTNAME,
    LABEL_TOPOLOGY_ZONE,
    LABEL_TOPOLOGY_REGION,
    LABEL_FAILURE_DOMAIN_BETA_ZONE,
    LABEL_FAILURE_DOMAIN_BETA_REGION,
    LABEL_INSTANCE_TYPE,
    LABEL_BETA_INSTANCE_TYPE,
    LABEL_OS,
    LABEL_ARCH,
    LABEL_BETA_OS,
    LABEL_BETA_ARCH,
];

pub const TAINT_NODE_NOT_READY: &str = "node.kubernetes.io/not-ready";
pub const TAINT_NODE_UNREACHABLE: &str = "node.kubernetes.io/unreachable";
pub const TAINT_NODE_UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
pub const TAINT_NODE_MEMORY_PRESSURE: &str = "node.kubernetes.io/memory-pressure";
pub const TAINT_NODE_DISK_PRESSURE: &str = "node.kubernetes.io/disk-pressure";
pub const TAINT_NODE_PID_PRESSURE: &str = "node.kubernetes.io/pid-pressure";
pub const TAINT_NODE_NETWORK_UNAVAILABLE: &str = "node.kubernetes.io/network-unavailable";
pub const TAINT_NODE_OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// Annotation of a mirror pod, which is the API object of a static pod: the annotation `kubernetes.io/config.hash` of
/// the static pod.
pub const ANNOTATION_CONFIG_MIRROR: &str = "kubernetes.io/config.mirror";
/// Annotation of a Secret with a token of a service account: the name of the service account.
pub const ANNOTATION_SERVICE_ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";
/// Annotation of a Secret with a token of a service account: the UID of the service account.
pub const ANNOTATION_SERVICE_ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";
/// Annotation of a pod: the source from which a kubelet got the pod (`api`, `file` or `http`).
pub const ANNOTATION_CONFIG_SOURCE: &str = "kubernetes.io/config.source";
/// Key of the deprecated annotation that sets the seccomp profile of a pod.
pub const ANNOTATION_SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
/// Prefix of the keys of the deprecated annotations that set the seccomp profile of a container. The container's name
/// follows.
pub const ANNOTATION_SECCOMP_CONTAINER_PREFIX: &str = "container.seccomp.security.alpha.kubernetes.io/";
/// Prefix of the keys of the deprecated annotations that set the AppArmor profile of a container. The container's name
/// follows.
pub const ANNOTATION_APP_ARMOR_PREFIX: &str = "container.apparmor.security.beta.kubernetes.io/";
/// Annotation of an object: the object as `kubectl apply` last sent it.
pub const ANNOTATION_LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Annotation of a DaemonSet: its template generation.
pub const ANNOTATION_TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";
/// Annotation of the bookmark event that marks the end of the initial events of a watch.
pub const ANNOTATION_INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// Annotation of a ControllerRevision: its verdict, which is the result of its rollout ([`VERDICT_GOOD`],
/// [`VERDICT_BAD`] or [`VERDICT_SUPERSEDED`]).
pub const ANNOTATION_VERDICT: &str = "muster.dev/verdict";
/// Annotation of a ControllerRevision: the time of its verdict, see [`ANNOTATION_VERDICT`].
pub const ANNOTATION_VERDICT_TIME: &str = "muster.dev/verdict-time";
/// Annotation of a ControllerRevision: the reason for its verdict, see [`ANNOTATION_VERDICT`].
pub const ANNOTATION_VERDICT_REASON: &str = "muster.dev/verdict-reason";
/// Label of the Leases of API servers. Upstream: the label of API server identity Leases.
pub const LABEL_SERVER_IDENTITY: &str = "apiserver.kubernetes.io/identity";
/// Annotation of the Lease of an API server: the address at which other machines reach the server.
pub const ANNOTATION_SERVER_ENDPOINT: &str = "muster.dev/server-endpoint";
/// Annotation of the Lease of an API server: the highest feature level that the server supports.
pub const ANNOTATION_SERVER_FEATURE_LEVEL: &str = "muster.dev/server-feature-level";
/// Annotation of the Lease of an API server: a digest of the IDs of the keys with which the server signs and verifies
/// service account tokens.
pub const ANNOTATION_SERVER_SIGNING_KEYS: &str = "muster.dev/server-signing-keys";
/// Annotation of the Lease of an API server: the version of the server.
pub const ANNOTATION_SERVER_VERSION: &str = "muster.dev/server-version";
/// The verdict on a revision that passed all steps on all eligible nodes.
pub const VERDICT_GOOD: &str = "Good";
/// The verdict on a revision that failed or was aborted.
pub const VERDICT_BAD: &str = "Bad";
/// The verdict on a revision whose rollout had not ended when another revision replaced it.
pub const VERDICT_SUPERSEDED: &str = "Superseded";

/// Type of the pod condition that says whether the pod is bound to a node.
pub const POD_SCHEDULED: &str = "PodScheduled";
/// Type of the pod condition that says whether the pod is ready.
pub const POD_READY: &str = "Ready";
/// Type of the pod condition that says that the pod is about to be terminated by a disruption, such as an eviction.
pub const DISRUPTION_TARGET: &str = "DisruptionTarget";

/// Type of the node condition that says whether the node is ready.
pub const NODE_READY: &str = "Ready";
/// Type of the node condition that says whether the node is low on memory.
pub const NODE_MEMORY_PRESSURE: &str = "MemoryPressure";
/// Type of the node condition that says whether the node is low on disk space.
pub const NODE_DISK_PRESSURE: &str = "DiskPressure";
/// Type of the node condition that says whether the node is low on process IDs.
pub const NODE_PID_PRESSURE: &str = "PIDPressure";
/// Type of the node condition that says whether the network of the node is not set up.
pub const NODE_NETWORK_UNAVAILABLE: &str = "NetworkUnavailable";

/// Finalizer of an object that is being deleted with foreground propagation. The object stays until its dependents with
/// `blockOwnerDeletion` are deleted.
pub const FINALIZER_FOREGROUND: &str = "foregroundDeletion";
/// Finalizer of an object whose deletion orphans its dependents. The object stays until no dependent refers to it.
pub const FINALIZER_ORPHAN: &str = "orphan";

/// The namespace of the cluster's own objects, such as the Leases of leaders, bootstrap tokens, and the ConfigMaps with
/// issued and revoked credentials.
pub const NAMESPACE_SYSTEM: &str = "kube-system";

/// The namespace of the Leases that nodes renew as heartbeats.
pub const NAMESPACE_NODE_LEASE: &str = "kube-node-lease";

/// The namespace of Muster's own controllers when they run in a cluster (`deploy/kubernetes`).
pub const NAMESPACE_MUSTER_SYSTEM: &str = "muster-system";

/// The `schedulerName` of pods that request no other scheduler.
pub const DEFAULT_SCHEDULER_NAME: &str = "default-scheduler";

/// Grace period of a pod whose spec has none, in seconds. Upstream: `DefaultTerminationGracePeriodSeconds`.
pub const DEFAULT_TERMINATION_GRACE_PERIOD_S: i64 = 30;

/// Maximum value of a PriorityClass that users create. Higher values are reserved for the system. Upstream:
/// `HighestUserDefinablePriority`.
pub const USER_DEFINABLE_PRIORITY_MAX: i32 = 1_000_000_000;
/// Value of the PriorityClass [`PRIORITY_CLASS_CLUSTER_CRITICAL`], which is the minimum priority of a critical pod.
/// Critical pods are never evicted because of node pressure. Upstream: `SystemCriticalPriority`.
pub const SYSTEM_CRITICAL_PRIORITY: i32 = 2 * USER_DEFINABLE_PRIORITY_MAX;
/// Value of the PriorityClass [`PRIORITY_CLASS_NODE_CRITICAL`].
pub const NODE_CRITICAL_PRIORITY: i32 = SYSTEM_CRITICAL_PRIORITY + 1000;
/// Name of the PriorityClass of critical pods that can be moved to another node.
pub const PRIORITY_CLASS_CLUSTER_CRITICAL: &str = "system-cluster-critical";
/// Name of the PriorityClass of critical pods that must not be moved from their node.
pub const PRIORITY_CLASS_NODE_CRITICAL: &str = "system-node-critical";

/// Name of the ConfigMap in [`NAMESPACE_SYSTEM`] with revoked credentials.
pub const CONFIG_MAP_REVOKED_CREDENTIALS: &str = "muster-revoked-credentials";
/// Name prefix of the ConfigMaps in [`NAMESPACE_SYSTEM`] with issued certificates. A number follows the prefix.
pub const CONFIG_MAP_ISSUED_CERTIFICATES_PREFIX: &str = "muster-issued-certificates-";
/// Name prefix of the Secrets of bootstrap tokens in [`NAMESPACE_SYSTEM`]. The token ID follows the prefix.
pub const SECRET_BOOTSTRAP_TOKEN_PREFIX: &str = "bootstrap-token-";
/// Type of the Secrets of bootstrap tokens.
pub const SECRET_TYPE_BOOTSTRAP_TOKEN: &str = "bootstrap.kubernetes.io/token";
/// Type of Secrets with a token of a service account.
pub const SECRET_TYPE_SERVICE_ACCOUNT_TOKEN: &str = "kubernetes.io/service-account-token";

/// Signer of client certificates of nodes.
pub const SIGNER_KUBELET_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
/// Signer of serving certificates of nodes.
pub const SIGNER_KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";

/// API group of Role, ClusterRole and their bindings.
pub const API_GROUP_RBAC: &str = "rbac.authorization.k8s.io";
/// API group of CertificateSigningRequest.
pub const API_GROUP_CERTIFICATES: &str = "certificates.k8s.io";
/// API group of TokenRequest, TokenReview and SelfSubjectReview.
pub const API_GROUP_AUTHENTICATION: &str = "authentication.k8s.io";

/// The group of users whose members are authorized for everything, even without any role, so that an administrator can
/// repair wrong roles. The server signs no CertificateSigningRequest for this group.
pub const USER_GROUP_MASTERS: &str = "system:masters";
/// The group of users of all nodes, and the organization in their certificates.
pub const USER_GROUP_NODES: &str = "system:nodes";
/// Prefix of the user names of nodes. The node name follows the prefix.
pub const USER_NODE_PREFIX: &str = "system:node:";
/// User name in the client certificate with which the API server connects to agents. The certificate also contains the
/// group [`USER_GROUP_MASTERS`], so that no other client can obtain such a certificate. Agents accept no other client.
pub const USER_AGENT_CLIENT: &str = "kube-apiserver-kubelet-client";

pub const JSON_MEDIA_TYPE: &str = "application/json";
pub const YAML_MEDIA_TYPE: &str = "application/yaml";
pub const PROTOBUF_MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";
/// Media type of JSON patches (RFC 6902).
pub const JSON_PATCH_MEDIA_TYPE: &str = "application/json-patch+json";
/// Media type of JSON merge patches (RFC 7386).
pub const MERGE_PATCH_MEDIA_TYPE: &str = "application/merge-patch+json";
pub const STRATEGIC_MERGE_PATCH_MEDIA_TYPE: &str = "application/strategic-merge-patch+json";
/// Media type of server-side apply patches.
pub const APPLY_PATCH_MEDIA_TYPE: &str = "application/apply-patch+yaml";

/// Hop-by-hop HTTP headers, which a proxy does not forward. Upstream: `hopHeaders` of Go's `ReverseProxy`.
pub const HOP_BY_HOP_HEADERS: [&str; 9] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];
/// HTTP headers that negotiate the protocol of an upgraded connection, besides `Connection` and `Upgrade`. The API
/// server forwards them between client and agent, and the agent forwards them between API server and runtime.
pub const UPGRADE_NEGOTIATION_HEADERS: [&str; 6] = [
    "sec-websocket-key",
    "sec-websocket-version",
    "sec-websocket-protocol",
    "sec-websocket-accept",
    "sec-websocket-extensions",
    "x-stream-protocol-version",
];
/// HTTP header of a write: the Lease that its writer holds, as `NAMESPACE/NAME/RESOURCEVERSION`. The API server refuses
/// the write if the Lease has got another holder since this resourceVersion. Upstream: none, so kube-apiserver ignores
/// it.
pub const LEASE_FENCE_HEADER: &str = "muster-lease-fence";

/// Whether the API server refuses writes of a former holder of this Lease: whether it is a Lease `muster-…` in
/// [`NAMESPACE_SYSTEM`] or [`NAMESPACE_MUSTER_SYSTEM`].
pub fn is_fenced_lease(namespace: &str, name: &str) -> bool {
    [NAMESPACE_SYSTEM, NAMESPACE_MUSTER_SYSTEM].contains(&namespace) && name.starts_with("muster-")
}

/// HTTP header that an agent sets on a response of the backend of its proxy (the pod or node port), to distinguish it
/// from a response of the agent itself. The agent and the API server remove the header from other messages, so that
/// neither client nor backend can set it.
pub const BACKEND_RESPONSE_HEADER: &str = "muster-reached";

/// Returns the names of the headers that neither the API server nor an agent forwards as a proxy:
/// [`HOP_BY_HOP_HEADERS`], [`BACKEND_RESPONSE_HEADER`], and the headers that the message's `Connection` headers list.
/// `connection` has the values of the `Connection` headers. Upstream: `removeHopByHopHeaders`.
pub fn not_forwarded_headers<'a>(connection: impl Iterator<Item = &'a str>) -> impl Iterator<Item = &'a str> {
    connection
        .flat_map(|it| it.split(',').map(str::trim))
        .chain(HOP_BY_HOP_HEADERS)
        .chain([BACKEND_RESPONSE_HEADER])
}
