//! Decodes pods, nodes, namespaces and PodDisruptionBudgets into facts: only the fields that the scheduler reads.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use muster_api::core_v1::{self, PodWithoutContainerStatuses};
use muster_api::interner::Interner;
use muster_api::json::{self, StrMap};
use muster_api::labels::{LabelRequirement, Labels, Selector};
use muster_api::meta_v1::{LabelSelector, PartialObjectMetadata};
use muster_api::object_key::ObjectKey;
use muster_api::policy_v1::PodDisruptionBudget;
use muster_api::quantity::Quantity;
use muster_api::resources;
use muster_api::taints::Toleration;
use muster_api::text::Text;
use muster_api::time::Time;
use muster_api::well_known::{DEFAULT_SCHEDULER_NAME, DISRUPTION_TARGET, POD_SCHEDULED};

use crate::controller;
use crate::daemonset::facts::decode::{decode_node_affinity, decode_term, extract_node};
use crate::daemonset::facts::{self, NodeRequirement, RequiredNodeAffinity, Term};

/// Reason of the condition `DisruptionTarget` of a preempted pod.
pub(super) const PREEMPTION_REASON: &str = "PreemptionByScheduler";

/// The `schedulerName` of pods that this scheduler binds.
pub const SCHEDULER_NAME: &str = DEFAULT_SCHEDULER_NAME;

/// A decoded object of one of the kinds that the scheduler watches.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SchedulerObject {
    Pod(Arc<Pod>),
    Node(Arc<Node>),
    Namespace(Namespace),
    Budget(Budget),
}

impl controller::DecodedObject for SchedulerObject {
    fn key(&self) -> ObjectKey {
        match self {
            Self::Pod(it) => it.key.clone(),
            Self::Node(it) => ObjectKey::new("", it.fact.name.clone()),
            Self::Namespace(it) => ObjectKey::new("", it.name.clone()),
            Self::Budget(it) => it.key.clone(),
        }
    }

    fn resource_version(&self) -> u64 {
        match self {
            Self::Pod(it) => it.resource_version,
            Self::Node(it) => it.fact.resource_version,
            Self::Namespace(it) => it.resource_version,
            Self::Budget(it) => it.resource_version,
        }
    }
}

/// A namespace and its labels.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Namespace {
    pub name: Text,
    pub resource_version: u64,
    pub labels: Labels,
}

/// The fields of a PodDisruptionBudget that preemption reads. Preemption prefers victims whose deletion violates no
/// budget.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Budget {
    pub key: ObjectKey,
    pub resource_version: u64,
    /// Selects the pods of the budget. In preemption, an empty selector matches no pod.
    pub selector: Selector,
    /// The `status.disruptionsAllowed`: how many pods may be evicted now.
    pub allowed: i64,
    /// Names of pods whose eviction is already counted (`status.disruptedPods`).
    pub disrupted: BTreeSet<Text>,
}

/// The fields of a pod that the scheduler reads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pod {
    pub key: ObjectKey,
    pub uid: Text,
    pub resource_version: u64,
    pub labels: Labels,
    /// The node that the pod is bound to (`spec.nodeName`). `None` until the pod is bound.
    pub node: Option<Text>,
    /// The `status.nominatedNodeName`: the node on which victims were preempted for this pod. `None` if no node is
    /// nominated.
    pub nominated: Option<Text>,
    /// The `creationTimestamp` of the pod.
    pub created: Time,
    /// The `status.startTime`. `None` until the kubelet has set it.
    pub started: Option<Time>,
    pub generation: i64,
    /// Whether the pod has a `deletionTimestamp`.
    pub deleting: bool,
    /// Whether the phase is Succeeded or Failed, so that the pod occupies no resources.
    pub finished: bool,
    /// Whether this scheduler schedules the pod: the `schedulerName` of the pod is this scheduler or empty, and the pod
    /// has no scheduling gates.
    pub is_for_this_scheduler: bool,
    pub priority: i32,
    /// Whether pods of lower priority may be preempted for this pod (`preemptionPolicy`).
    pub may_preempt: bool,
    /// The scheduling requirements and preferences of the pod.
    pub requirements: Arc<Requirements>,
    /// Reason and message of the condition `PodScheduled`. `None` if the pod does not have this condition with the
    /// status False.
    pub unschedulable_condition: Option<(Text, Text)>,
    /// Whether the pod has the condition `DisruptionTarget` with the reason `PreemptionByScheduler`.
    pub preempted: bool,
}

/// The scheduling requirements and preferences of a pod, such as affinity, requests and host ports.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Requirements {
    pub node_selector: Labels,
    /// The required node affinity of the pod.
    pub node_affinity: RequiredNodeAffinity,
    /// Terms of the preferred node affinity of the pod, each with its weight.
    pub preferred_node_affinity: Vec<(i64, Term)>,
    pub tolerations: Arc<[Toleration]>,
    /// Resource requests, in millicores for `cpu` and in whole units for other resources. Zero requests are left out.
    pub requests: Vec<(Text, i64)>,
    /// Host ports that the main containers and sidecars request.
    pub ports: Vec<HostPort>,
    /// Terms of the required pod affinity.
    pub pod_affinity: Vec<PodAffinityTerm>,
    /// Terms of the required pod anti-affinity.
    pub pod_anti_affinity: Vec<PodAffinityTerm>,
    /// Terms of preferred pod affinity, each with its weight. A negative weight means anti-affinity.
    pub preferred_pod_affinity: Vec<(i64, PodAffinityTerm)>,
    /// The `topologySpreadConstraints` of the pod.
    pub spread_constraints: Vec<TopologySpreadConstraint>,
}

impl Requirements {
    /// Returns the amount of a resource that the pod requests, in the units of [`Self::requests`]. `None` if the pod
    /// does not request the resource.
    pub(crate) fn request(&self, resource: &str) -> Option<i64> {
        self.requests.iter().find(|(name, _)| **name == *resource).map(|(_, amount)| *amount)
    }

    /// Returns the names of the nodes in the required node affinity (`matchFields` with `metadata.name`). `None` if the
    /// pod has no required node affinity, or if one of its terms names no node: then the pod may run on other nodes
    /// too.
    ///
    /// Rule: if every required node affinity term of a pod names a node, the pod is only checked on those nodes. A pod
    /// of a DaemonSet names one node, so that it costs one fit check. Upstream: `NodeAffinity.PreFilter`.
    pub(super) fn nodes_named_by_affinity(&self) -> Option<BTreeSet<Text>> {
        let RequiredNodeAffinity::AnyOf(terms) = &self.node_affinity else { return None };
        let named = |term: &Term| match term {
            Term::AllOf(all) => all.iter().find_map(|it| match it {
                NodeRequirement::NameIs(name) => Some(name.clone()),
                _ => None,
            }),
            Term::Unreadable(_) => None,
        };
        terms.iter().map(named).collect()
    }
}

/// A topology spread constraint. A topology domain is the set of nodes with the same value of the topology key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TopologySpreadConstraint {
    /// The `maxSkew`: by how much the number of matching pods in a domain may exceed the number in the domain with the
    /// fewest.
    pub max_skew: i64,
    /// Key of the node label whose values define the topology domains.
    pub topology_key: Text,
    /// Selects the pods that the constraint counts.
    pub selector: Selector,
    /// The `minDomains`. If there are fewer domains, the minimum number of pods in a domain counts as zero.
    pub min_domains: usize,
    /// Whether the constraint counts only the pods on nodes that match the node affinity of the constraint's own pod
    /// (`nodeAffinityPolicy`).
    pub honors_node_affinity: bool,
    /// Whether the constraint counts only the pods on nodes whose taints the constraint's own pod tolerates
    /// (`nodeTaintsPolicy`).
    pub honors_node_taints: bool,
    /// Whether the constraint has `whenUnsatisfiable: DoNotSchedule`. Otherwise it only influences the score of nodes.
    pub do_not_schedule: bool,
}

/// A host port that a container requests.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct HostPort {
    pub protocol: Text,
    /// Host IP of the port. `0.0.0.0` means every address of the node.
    pub ip: Text,
    /// Number of the host port.
    pub number: i64,
}

impl HostPort {
    /// Whether the two host ports conflict, so that pods with these host ports cannot run on the same node.
    ///
    /// Rule: two host ports conflict if their protocols and numbers are equal, and their addresses are equal or one of
    /// the addresses is `0.0.0.0`.
    pub fn conflicts_with(&self, other: &Self) -> bool {
        /// The host IP that stands for every address of the node.
        const ANY_ADDRESS: &str = "0.0.0.0";
        self.number == other.number
            && self.protocol == other.protocol
            && (self.ip == other.ip || self.ip.as_ref() == ANY_ADDRESS || other.ip.as_ref() == ANY_ADDRESS)
    }
}

/// A term of pod affinity or anti-affinity.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PodAffinityTerm {
    /// Selects the pods to which the term applies, by their labels.
    pub selector: Selector,
    /// Namespaces of the pods, in addition to those that `namespace_selector` selects.
    pub namespaces: Vec<Text>,
    /// Selects the namespaces of the pods to which the term applies, by their labels.
    pub namespace_selector: Selector,
    /// Key of the node label whose values define the topology domains.
    pub topology_key: Text,
}

/// The fields of a node that the scheduler reads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// The fields that the DaemonSet controller reads too, such as labels and taints.
    pub fact: facts::Node,
    /// Whether the node is cordoned (`spec.unschedulable`).
    pub unschedulable: bool,
    /// Allocatable resources of the node, in the units of [`Requirements::requests`].
    pub allocatable: BTreeMap<Text, i64>,
}

/// Decodes a pod from JSON text.
pub fn decode_pod(json: &[u8], shared: &mut Interner) -> Result<Pod, serde_json::Error> {
    Ok(extract_pod(&json::from_slice(json)?, shared))
}

/// Extracts the fields that the scheduler reads from a parsed pod.
pub(crate) fn extract_pod(pod: &PodWithoutContainerStatuses<'_>, shared: &mut Interner) -> Pod {
    let meta = &pod.metadata;
    let (no_spec, no_status) = (core_v1::PodSpec::default(), core_v1::PodStatus::default());
    let spec = pod.spec.as_ref().unwrap_or(&no_spec);
    let status = pod.status.as_ref().unwrap_or(&no_status);
    let text = |it: Option<&str>| it.filter(|it| !it.is_empty()).map(Text::from);
    let unschedulable = status.condition(POD_SCHEDULED).filter(|it| it.is_false());
    let unschedulable_condition = unschedulable.map(|it| {
        (text(it.reason.as_deref()).unwrap_or_default(), text(it.message.as_deref()).unwrap_or_default())
    });
    let preempted = status
        .condition(DISRUPTION_TARGET)
        .is_some_and(|it| it.is_true() && it.reason.as_deref() == Some(PREEMPTION_REASON));
    let is_ours = spec.scheduler_name.as_deref().is_none_or(|it| it.is_empty() || it == SCHEDULER_NAME);
    let key = meta.key(shared);
    let labels = meta.labels(shared);
    Pod {
        uid: meta.uid(),
        resource_version: meta.resource_version(),
        node: spec.node_name.as_deref().filter(|it| !it.is_empty()).map(|it| shared.intern_text(it)),
        nominated: text(status.nominated_node_name.as_deref()),
        created: meta.creation_time(),
        deleting: meta.is_deleting(),
        finished: status.is_terminal(),
        is_for_this_scheduler: is_ours && spec.scheduling_gates.as_ref().is_none_or(Vec::is_empty),
        priority: spec.priority.unwrap_or_default(),
        may_preempt: spec.preemption_policy.as_deref() != Some("Never"),
        requirements: Arc::new(scheduling_requirements(spec, &key.namespace, &labels, shared)),
        started: status.start_time.as_deref().and_then(Time::parse),
        generation: meta.generation(),
        unschedulable_condition,
        preempted,
        labels,
        key,
    }
}

/// Decodes a node from JSON text.
pub fn decode_node(json: &[u8], shared: &mut Interner) -> Result<Node, serde_json::Error> {
    let node: core_v1::Node<'_> = json::from_slice(json)?;
    let allocatable = node.status.iter().flat_map(|it| it.allocatable.iter().flat_map(StrMap::iter));
    let allocatable = allocatable
        .map(|(name, amount)| (shared.intern_text(name), resource_amount(name, amount.quantity())));
    let allocatable = allocatable.collect();
    Ok(Node {
        fact: extract_node(&node, shared),
        unschedulable: node.spec.and_then(|it| it.unschedulable).unwrap_or(false),
        allocatable,
    })
}

/// Decodes a namespace, or its metadata, from JSON text.
pub fn decode_namespace(json: &[u8], shared: &mut Interner) -> Result<Namespace, serde_json::Error> {
    let PartialObjectMetadata { metadata } = json::from_slice(json)?;
    Ok(Namespace {
        name: metadata.name().into(),
        resource_version: metadata.resource_version(),
        labels: metadata.labels(shared),
    })
}

/// Decodes a PodDisruptionBudget from JSON text.
pub fn decode_budget(json: &[u8], shared: &mut Interner) -> Result<Budget, serde_json::Error> {
    let PodDisruptionBudget { metadata, spec, status } = json::from_slice(json)?;
    let status = status.unwrap_or_default();
    Ok(Budget {
        key: metadata.key(shared),
        resource_version: metadata.resource_version(),
        selector: selector_or_nothing(spec.unwrap_or_default().selector.as_ref()),
        allowed: status.disruptions_allowed.unwrap_or_default(),
        disrupted: status.disrupted_pods.iter().flat_map(StrMap::iter).map(|(name, _)| name.into()).collect(),
    })
}

/// Parses a label selector. An absent or invalid selector matches nothing.
fn selector_or_nothing(selector: Option<&LabelSelector<'_>>) -> Selector {
    LabelSelector::to_selector(selector).unwrap_or_default()
}

/// Returns the scheduling requirements in the spec of a pod. `namespace` and `labels` are those of the pod.
fn scheduling_requirements(
    spec: &core_v1::PodSpec<'_>,
    namespace: &Text,
    labels: &Labels,
    shared: &mut Interner,
) -> Requirements {
    let requests = |resources: &Option<core_v1::ResourceRequirements<'_>>| {
        resources::parse_quantities(resources.as_ref().and_then(|it| it.requests.as_ref()))
    };
    let mut amounts = resources::pod_total(
        spec.containers.iter().flatten().map(|it| requests(&it.resources)),
        spec.init_containers.iter().flatten().map(|it| (it.is_sidecar(), requests(&it.resources))),
        requests(&spec.resources),
    );
    resources::add_quantities(&mut amounts, &resources::parse_quantities(spec.overhead.as_ref()));
    let amounts =
        amounts.iter().map(|(name, amount)| (shared.intern_text(name), resource_amount(name, *amount)));
    let amounts = amounts.filter(|(_, amount)| *amount != 0).collect();

    let ports = spec.long_running_containers().flat_map(|it| it.ports.iter().flatten());
    let ports = ports.filter_map(|it| {
        let number = it.host_port.filter(|it| *it != 0)?;
        let protocol = it.protocol.as_deref().filter(|it| !it.is_empty()).unwrap_or("TCP");
        let ip = it.host_ip.as_deref().filter(|it| !it.is_empty()).unwrap_or("0.0.0.0");
        Some(HostPort { protocol: shared.intern_text(protocol), ip: shared.intern_text(ip), number })
    });
    let ports = ports.collect();

    let tolerations = spec.tolerations.iter().flatten().map(|it| it.intern(shared)).collect();
    let (no_affinity, no_term) = (core_v1::Affinity::default(), core_v1::PodAffinityTerm::default());
    let core_v1::Affinity { node_affinity: to_node, pod_affinity: to_pods, pod_anti_affinity: anti } =
        spec.affinity.as_ref().unwrap_or(&no_affinity);
    let preferred = to_node.iter().flat_map(|it| it.preferred.iter().flatten());
    let preferred = preferred.map(|it| {
        let preference = it.preference.as_ref().map_or_else(|| Term::AllOf(Vec::new()), decode_term);
        (it.weight.unwrap_or_default(), preference)
    });
    let preferred_node_affinity = preferred.collect();
    let mut preferred_pod_affinity = Vec::new();
    for (sign, affinity) in [(1, to_pods), (-1, anti)] {
        for it in affinity.iter().flat_map(|it| it.preferred.iter().flatten()) {
            let term = it.pod_affinity_term.as_ref().unwrap_or(&no_term);
            let weight = sign * it.weight.unwrap_or_default();
            preferred_pod_affinity.push((weight, decode_pod_affinity_term(term, namespace, shared)));
        }
    }
    let mut required = |affinity: &Option<core_v1::PodAffinity<'_>>| {
        let terms = affinity.iter().flat_map(|it| it.required.iter().flatten());
        terms.map(|it| decode_pod_affinity_term(it, namespace, shared)).collect()
    };
    let spread = spec.topology_spread_constraints.iter().flatten();
    Requirements {
        pod_affinity: required(to_pods),
        pod_anti_affinity: required(anti),
        preferred_pod_affinity,
        node_selector: shared.intern_labels(spec.node_selector.iter().flat_map(StrMap::pairs)),
        node_affinity: decode_node_affinity(to_node.as_ref()),
        preferred_node_affinity,
        tolerations: shared.intern_tolerations(tolerations),
        requests: amounts,
        ports,
        spread_constraints: spread.map(|it| decode_spread_constraint(it, labels)).collect(),
    }
}

/// Decodes a topology spread constraint of a pod with these labels. For each label key in `matchLabelKeys` that the pod
/// has, the selector also requires the pod's own value of that label.
fn decode_spread_constraint(
    constraint: &core_v1::TopologySpreadConstraint<'_>,
    labels: &Labels,
) -> TopologySpreadConstraint {
    let mut selector = selector_or_nothing(constraint.label_selector.as_ref());
    let keys = constraint.match_label_keys.iter().flatten();
    let same = keys.filter_map(|key| Some(LabelRequirement::equals(key, labels.get(key)?)));
    if let Selector::AllOf(all) = &mut selector {
        all.extend(same);
    }
    TopologySpreadConstraint {
        max_skew: constraint.max_skew.unwrap_or_default(),
        topology_key: constraint.topology_key.as_deref().unwrap_or_default().into(),
        selector,
        min_domains: constraint.min_domains.and_then(|it| usize::try_from(it).ok()).unwrap_or(1),
        honors_node_affinity: constraint.node_affinity_policy.as_deref() != Some("Ignore"),
        honors_node_taints: constraint.node_taints_policy.as_deref() == Some("Honor"),
        do_not_schedule: constraint.when_unsatisfiable.as_deref() != Some("ScheduleAnyway"),
    }
}

/// Decodes a pod affinity term. A term that has neither namespaces nor a namespace selector applies to `namespace`, the
/// namespace of the pod itself.
fn decode_pod_affinity_term(
    term: &core_v1::PodAffinityTerm<'_>,
    namespace: &Text,
    shared: &mut Interner,
) -> PodAffinityTerm {
    let mut namespaces: Vec<Text> =
        term.namespaces.iter().flatten().map(|it| shared.intern_text(it)).collect();
    let namespace_selector = selector_or_nothing(term.namespace_selector.as_ref());
    if namespaces.is_empty() && namespace_selector == Selector::Nothing {
        namespaces.push(namespace.clone());
    }
    PodAffinityTerm {
        selector: selector_or_nothing(term.label_selector.as_ref()),
        namespaces,
        namespace_selector,
        topology_key: shared.intern_text(term.topology_key.as_deref().unwrap_or_default()),
    }
}

/// Converts the amount of a resource to the units of [`Requirements::requests`].
///
/// Rule: `cpu` is counted in millicores and every other resource in whole units, rounded up.
fn resource_amount(name: &str, amount: Quantity) -> i64 {
    let units = if name == "cpu" { amount.millis() } else { amount.units() };
    i64::try_from(units).unwrap_or(i64::MAX)
}
