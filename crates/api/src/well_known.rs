//! Names with a fixed meaning in Kubernetes or Muster: labels, taints, annotations, conditions, namespaces and the
//! default scheduler.

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
/// Label of an EndpointSlice whose value is the name of its Service.
pub const LABEL_SERVICE_NAME: &str = "kubernetes.io/service-name";
/// Label that prevents Endpoints from being mirrored to EndpointSlices.
pub const LABEL_SKIP_MIRROR: &str = "endpointslice.kubernetes.io/skip-mirror";
/// Label of a pod whose value is the hash of its ControllerRevision.
pub const LABEL_CONTROLLER_REVISION_HASH: &str = "controller-revision-hash";
/// Deprecated label of a daemon pod whose value is the template generation of its DaemonSet.
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

/// Annotation of mirror pods, which are the API objects of static pods.
pub const ANNOTATION_CONFIG_MIRROR: &str = "kubernetes.io/config.mirror";
/// Annotation whose value is the source from which a kubelet got a pod: `api`, `file` or `http`.
pub const ANNOTATION_CONFIG_SOURCE: &str = "kubernetes.io/config.source";
/// Annotation whose value is the object as `kubectl apply` last sent it.
pub const ANNOTATION_LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Annotation of a DaemonSet whose value is its template generation.
pub const ANNOTATION_TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";
/// Annotation of the bookmark event that marks the end of the initial events of a watch.
pub const ANNOTATION_INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// Annotation of a ControllerRevision whose value is its verdict, the result of its rollout: [`VERDICT_GOOD`],
/// [`VERDICT_BAD`] or [`VERDICT_SUPERSEDED`].
pub const ANNOTATION_VERDICT: &str = "muster.dev/verdict";
/// Annotation of a ControllerRevision whose value is the time of its verdict, see [`ANNOTATION_VERDICT`].
pub const ANNOTATION_VERDICT_TIME: &str = "muster.dev/verdict-time";
/// Annotation of a ControllerRevision whose value is the reason for its verdict, see [`ANNOTATION_VERDICT`].
pub const ANNOTATION_VERDICT_REASON: &str = "muster.dev/verdict-reason";
/// Label of the Leases of API servers. Upstream: the label of API server identity Leases.
pub const LABEL_SERVER_IDENTITY: &str = "apiserver.kubernetes.io/identity";
/// Annotation of the Lease of an API server whose value is the address at which other machines reach the server.
pub const ANNOTATION_SERVER_ENDPOINT: &str = "muster.dev/server-endpoint";
/// Annotation of the Lease of an API server whose value is the highest feature level that the server supports.
pub const ANNOTATION_SERVER_FEATURE_LEVEL: &str = "muster.dev/server-feature-level";
/// Annotation of the Lease of an API server whose value is the version of the server.
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

/// The namespace of the Leases that nodes renew as heartbeats.
pub const NAMESPACE_NODE_LEASE: &str = "kube-node-lease";

/// The namespace of Muster's own controllers when they run in a cluster (`deploy/kubernetes`).
pub const NAMESPACE_MUSTER_SYSTEM: &str = "muster-system";

/// The `schedulerName` of pods that request no other scheduler.
pub const DEFAULT_SCHEDULER_NAME: &str = "default-scheduler";
