//! The facts that the scheduler keeps about pods, nodes, namespaces and PodDisruptionBudgets.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use muster_api::interner::Interner;
use muster_api::labels::{LabelOperator, LabelRequirement, Labels};
use muster_api::meta::ObjectKey;
use muster_api::quantity::Quantity;
use muster_api::resources;
use muster_api::taints::Toleration;
use muster_api::text::Text;
use muster_api::time::Time;
use serde::Deserialize;
use serde_json::Value;

use crate::controller;
use crate::daemonset::facts::decode::{
    Meta, Pairs, RawSelector, RawTerm, RawToleration, Str, requirements, term,
};
use crate::daemonset::facts::{self, Affinity, NodeRequirement, Term};

/// Reason of the condition `DisruptionTarget` of a preempted pod.
pub(super) const PREEMPTED: &str = "PreemptionByScheduler";

/// The `schedulerName` of pods that this scheduler binds.
pub const SCHEDULER_NAME: &str = "default-scheduler";

/// An object of one of the kinds that the scheduler watches.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fact {
    Pod(Arc<Pod>),
    Node(Arc<Node>),
    Namespace(Namespace),
    Budget(Budget),
}

impl controller::Fact for Fact {
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

/// A PodDisruptionBudget: how many more of its pods may be disrupted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Budget {
    pub key: ObjectKey,
    pub resource_version: u64,
    /// `None` and an empty list match no pod.
    pub selector: Option<Vec<LabelRequirement>>,
    pub allowed: i64,
    /// Pods whose eviction is already counted (`status.disruptedPods`).
    pub disrupted: BTreeSet<Text>,
}

/// A pod that occupies resources on a node or is to be scheduled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pod {
    pub key: ObjectKey,
    pub uid: Text,
    pub resource_version: u64,
    pub labels: Labels,
    /// The node it is bound to.
    pub node: Option<Text>,
    /// `status.nominatedNodeName`: the node on which victims were preempted for it.
    pub nominated: Option<Text>,
    pub created: Time,
    /// `status.startTime`.
    pub started: Option<Time>,
    pub generation: i64,
    pub deleting: bool,
    /// Succeeded or Failed: it occupies nothing.
    pub finished: bool,
    /// It names this scheduler and has no scheduling gates.
    pub is_responsible: bool,
    pub priority: i32,
    /// Pods of lower priority may be preempted for it (`preemptionPolicy`).
    pub may_preempt: bool,
    pub requirements: Arc<Requirements>,
    /// Reason and message of its condition `PodScheduled`, if that is False.
    pub unschedulable_condition: Option<(Text, Text)>,
    /// Its condition `DisruptionTarget` shows that the scheduler preempted it.
    pub preempted: bool,
}

/// What a pod requires and prefers of a node.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Requirements {
    pub node_selector: Labels,
    pub node_affinity: Affinity,
    pub preferred_node_affinity: Vec<(i64, Term)>,
    pub tolerations: Arc<[Toleration]>,
    /// Resource requests: millicores for `cpu`, whole units for all others; zero requests are left out.
    pub requests: Vec<(Text, i64)>,
    pub ports: Vec<HostPort>,
    pub pod_affinity: Vec<PodAffinityTerm>,
    pub pod_anti_affinity: Vec<PodAffinityTerm>,
    /// Preferred pod affinity by weight; a negative weight is anti-affinity.
    pub preferred_pod_affinity: Vec<(i64, PodAffinityTerm)>,
    pub spread_constraints: Vec<TopologySpreadConstraint>,
}

impl Requirements {
    /// The request for a resource, if there is one.
    pub(crate) fn request(&self, resource: &str) -> Option<i64> {
        self.requests.iter().find(|(name, _)| **name == *resource).map(|(_, amount)| *amount)
    }

    /// Rule: a pod whose every node affinity term names a node is only checked on those nodes. Pods of a DaemonSet are such
    /// pods, so that scheduling one costs one fit check. Upstream: `NodeAffinity.PreFilter`.
    pub(super) fn named_nodes(&self) -> Option<BTreeSet<Text>> {
        let Affinity::AnyOf(terms) = &self.node_affinity else { return None };
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

/// A topology spread constraint. A domain is the set of nodes with one value of the topology key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TopologySpreadConstraint {
    /// How many more matching pods a domain may have than the domain with the fewest.
    pub max_skew: i64,
    pub topology_key: Text,
    /// `None` matches no pod, an empty list every pod.
    pub selector: Option<Vec<LabelRequirement>>,
    /// With fewer domains than this, the global minimum is zero.
    pub min_domains: usize,
    /// `nodeAffinityPolicy`: only nodes that match the pod's node affinity count.
    pub honors_node_affinity: bool,
    /// `nodeTaintsPolicy`: only nodes whose taints the pod tolerates count.
    pub honors_node_taints: bool,
    /// `whenUnsatisfiable: DoNotSchedule`.
    pub do_not_schedule: bool,
}

/// A host port.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct HostPort {
    pub protocol: Text,
    /// `0.0.0.0` is every address.
    pub ip: Text,
    pub number: i64,
}

impl HostPort {
    /// Rule: two host ports conflict if protocol and number are equal and the addresses are equal or one is `0.0.0.0`.
    pub fn conflicts_with(&self, other: &Self) -> bool {
        const EVERY: &str = "0.0.0.0";
        self.number == other.number
            && self.protocol == other.protocol
            && (self.ip == other.ip || self.ip.as_ref() == EVERY || other.ip.as_ref() == EVERY)
    }
}

/// A term of pod affinity or anti-affinity.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PodAffinityTerm {
    /// `None` matches no pod, an empty list every one.
    pub selector: Option<Vec<LabelRequirement>>,
    pub namespaces: Vec<Text>,
    pub namespace_selector: Option<Vec<LabelRequirement>>,
    pub topology_key: Text,
}

/// A node: the facts of the DaemonSet rules, and its allocatable resources.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    pub fact: facts::Node,
    pub unschedulable: bool,
    /// In the units of [`Requirements::requests`].
    pub allocatable: BTreeMap<Text, i64>,
}

pub fn pod(json: &[u8], shared: &mut Interner) -> Result<Pod, serde_json::Error> {
    Ok(pod_of(serde_json::from_slice(json)?, shared))
}

/// From an object that is parsed already.
pub fn pod_from_value(object: &Value, shared: &mut Interner) -> Result<Pod, serde_json::Error> {
    Ok(pod_of(RawPod::deserialize(object)?, shared))
}

fn pod_of(raw: RawPod<'_>, shared: &mut Interner) -> Pod {
    let (meta, spec, status) = (raw.metadata, raw.spec, raw.status);
    let text = |it: &Option<Str<'_>>| it.as_deref().filter(|it| !it.is_empty()).map(Text::from);
    let condition = |kind: &str| status.conditions.iter().flatten().find(|it| it.kind == kind);
    let unschedulable_condition = condition("PodScheduled").filter(|it| it.status == "False");
    let unschedulable_condition = unschedulable_condition
        .map(|it| (text(&it.reason).unwrap_or_default(), text(&it.message).unwrap_or_default()));
    let preempted = condition("DisruptionTarget")
        .is_some_and(|it| it.status == "True" && it.reason.as_deref() == Some(PREEMPTED));
    let is_ours = spec.scheduler_name.as_deref().is_none_or(|it| it.is_empty() || it == SCHEDULER_NAME);
    let key = meta.key(shared);
    let labels = meta.labels(shared);
    Pod {
        uid: meta.uid(),
        resource_version: meta.resource_version(),
        node: spec.node_name.as_deref().filter(|it| !it.is_empty()).map(|it| shared.intern_text(it)),
        nominated: text(&status.nominated_node_name),
        created: meta.created(),
        deleting: meta.deletion_timestamp.is_some(),
        finished: matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")),
        is_responsible: is_ours && spec.scheduling_gates.as_ref().is_none_or(Vec::is_empty),
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

pub fn node(json: &[u8], shared: &mut Interner) -> Result<Node, serde_json::Error> {
    let raw: RawNode<'_> = serde_json::from_slice(json)?;
    let allocatable = raw.status.allocatable.iter().flatten();
    let allocatable = allocatable.map(|(name, amount)| {
        let amount = in_units(name, Quantity::from_json(amount));
        (shared.intern_text(name), amount)
    });
    let allocatable = allocatable.collect();
    let fact = facts::node(json, shared).map_err(serde::de::Error::custom)?;
    Ok(Node { fact, unschedulable: raw.spec.unschedulable.unwrap_or(false), allocatable })
}

pub fn namespace(json: &[u8], shared: &mut Interner) -> Result<Namespace, serde_json::Error> {
    let Named { metadata } = serde_json::from_slice(json)?;
    Ok(Namespace {
        name: metadata.key(shared).name,
        resource_version: metadata.resource_version(),
        labels: metadata.labels(shared),
    })
}

pub fn budget(json: &[u8], shared: &mut Interner) -> Result<Budget, serde_json::Error> {
    let RawBudget { metadata, spec, status } = serde_json::from_slice(json)?;
    Ok(Budget {
        key: metadata.key(shared),
        resource_version: metadata.resource_version(),
        selector: spec.selector.and_then(|it| requirements(it).ok()),
        allowed: status.disruptions_allowed,
        disrupted: status
            .disrupted_pods
            .into_iter()
            .flatten()
            .map(|(name, _)| name.as_ref().into())
            .collect(),
    })
}

fn scheduling_requirements(
    spec: RawSpec<'_>,
    namespace: &Text,
    labels: &Labels,
    shared: &mut Interner,
) -> Requirements {
    let amounts_of = |it: &RawContainer<'_>| read_amounts(it.resources.requests.as_ref());
    let mut amounts = resources::pod_total(
        spec.containers.iter().flatten().map(amounts_of),
        spec.init_containers.iter().flatten().map(|it| (it.is_sidecar(), amounts_of(it))),
    );
    // Pod-level requests replace those of the containers.
    amounts.extend(read_amounts(spec.resources.requests.as_ref()));
    resources::add_quantities(&mut amounts, &read_amounts(spec.overhead.as_ref()));
    let amounts = amounts.iter().map(|(name, amount)| (shared.intern_text(name), in_units(name, *amount)));
    let amounts = amounts.filter(|(_, amount)| *amount != 0).collect();

    let restarted = spec.init_containers.iter().flatten().filter(|it| it.is_sidecar());
    let ports = spec.containers.iter().flatten().chain(restarted).flat_map(|it| it.ports.iter().flatten());
    let ports = ports.filter(|it| it.host_port != 0).map(|it| HostPort {
        protocol: shared.intern_text(it.protocol.as_deref().filter(|it| !it.is_empty()).unwrap_or("TCP")),
        ip: shared.intern_text(it.host_ip.as_deref().filter(|it| !it.is_empty()).unwrap_or("0.0.0.0")),
        number: it.host_port,
    });
    let ports = ports.collect();

    let tolerations = spec.tolerations.into_iter().flatten().map(|it| it.into_fact(shared)).collect();
    let pairs = spec.node_selector.unwrap_or_default();
    let affinity = spec.affinity;
    let preferred = affinity.node.preferred.into_iter().flatten();
    let mut preferred_pod_affinity = Vec::new();
    for (sign, wishes) in [(1, affinity.pod.preferred), (-1, affinity.anti.preferred)] {
        preferred_pod_affinity.extend(
            wishes
                .into_iter()
                .flatten()
                .map(|it| (sign * it.weight, pod_term(it.pod_affinity_term, namespace, shared))),
        );
    }
    let mut terms = |list: Option<Vec<RawPodTerm<'_>>>| {
        list.into_iter().flatten().map(|it| pod_term(it, namespace, shared)).collect()
    };
    let spread = spec.topology_spread_constraints.into_iter().flatten();
    let spread = spread.map(|it| spread_of(it, labels)).collect();
    Requirements {
        pod_affinity: terms(affinity.pod.required),
        pod_anti_affinity: terms(affinity.anti.required),
        preferred_pod_affinity,
        node_selector: shared.intern_labels(pairs.iter().map(|(key, value)| (key.as_ref(), value.as_ref()))),
        node_affinity: match affinity.node.required {
            None => Affinity::Anywhere,
            Some(it) => Affinity::AnyOf(it.terms.into_iter().flatten().map(term).collect()),
        },
        preferred_node_affinity: preferred.map(|it| (it.weight, term(it.preference))).collect(),
        tolerations: shared.intern_tolerations(tolerations),
        requests: amounts,
        ports,
        spread_constraints: spread,
    }
}

fn spread_of(raw: RawSpread<'_>, labels: &Labels) -> TopologySpreadConstraint {
    let mut selector = raw.label_selector.and_then(|it| requirements(it).ok());
    let keys = raw.match_label_keys.into_iter().flatten();
    let same = keys.filter_map(|key| {
        let value = labels.get(&key)?;
        Some(LabelRequirement {
            key: key.as_ref().into(),
            operator: LabelOperator::In([value.clone()].into()),
        })
    });
    if let Some(all) = &mut selector {
        all.extend(same);
    }
    TopologySpreadConstraint {
        max_skew: raw.max_skew,
        topology_key: raw.topology_key.as_ref().into(),
        selector,
        min_domains: raw.min_domains.and_then(|it| usize::try_from(it).ok()).unwrap_or(1),
        honors_node_affinity: raw.node_affinity_policy.as_deref() != Some("Ignore"),
        honors_node_taints: raw.node_taints_policy.as_deref() == Some("Honor"),
        do_not_schedule: raw.when_unsatisfiable.as_deref() != Some("ScheduleAnyway"),
    }
}

fn pod_term(raw: RawPodTerm<'_>, namespace: &Text, shared: &mut Interner) -> PodAffinityTerm {
    // A malformed selector matches nothing.
    let read = |it: Option<RawSelector<'_>>| it.and_then(|it| requirements(it).ok());
    let mut namespaces: Vec<Text> =
        raw.namespaces.into_iter().flatten().map(|it| shared.intern_text(&it)).collect();
    let namespace_selector = read(raw.namespace_selector);
    if namespaces.is_empty() && namespace_selector.is_none() {
        namespaces.push(namespace.clone());
    }
    PodAffinityTerm {
        selector: read(raw.label_selector),
        namespaces,
        namespace_selector,
        topology_key: shared.intern_text(raw.topology_key.as_deref().unwrap_or_default()),
    }
}

fn read_amounts(raw: Option<&BTreeMap<String, Value>>) -> resources::ResourceQuantities {
    raw.into_iter().flatten().map(|(name, amount)| (name.clone(), Quantity::from_json(amount))).collect()
}

/// Rule: `cpu` is counted in millicores and every other resource in whole units, rounded up.
fn in_units(name: &str, amount: Quantity) -> i64 {
    let units = if name == "cpu" { amount.millis() } else { amount.units() };
    i64::try_from(units).unwrap_or(i64::MAX)
}

#[derive(Deserialize)]
struct RawPod<'a> {
    #[serde(borrow, default)]
    metadata: Meta<'a>,
    #[serde(borrow, default)]
    spec: RawSpec<'a>,
    #[serde(borrow, default)]
    status: RawStatus<'a>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawSpec<'a> {
    #[serde(borrow)]
    node_name: Option<Str<'a>>,
    #[serde(borrow)]
    scheduler_name: Option<Str<'a>>,
    scheduling_gates: Option<Vec<Value>>,
    priority: Option<i32>,
    #[serde(borrow)]
    preemption_policy: Option<Str<'a>>,
    #[serde(borrow)]
    node_selector: Option<Pairs<'a>>,
    #[serde(borrow)]
    affinity: RawAffinities<'a>,
    #[serde(borrow)]
    tolerations: Option<Vec<RawToleration<'a>>>,
    #[serde(borrow)]
    containers: Option<Vec<RawContainer<'a>>>,
    #[serde(borrow)]
    init_containers: Option<Vec<RawContainer<'a>>>,
    resources: RawResources,
    overhead: Option<BTreeMap<String, Value>>,
    #[serde(borrow)]
    topology_spread_constraints: Option<Vec<RawSpread<'a>>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawSpread<'a> {
    max_skew: i64,
    #[serde(borrow)]
    topology_key: Str<'a>,
    #[serde(borrow)]
    when_unsatisfiable: Option<Str<'a>>,
    #[serde(borrow)]
    label_selector: Option<RawSelector<'a>>,
    min_domains: Option<i64>,
    #[serde(borrow)]
    node_affinity_policy: Option<Str<'a>>,
    #[serde(borrow)]
    node_taints_policy: Option<Str<'a>>,
    #[serde(borrow)]
    match_label_keys: Option<Vec<Str<'a>>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawAffinities<'a> {
    #[serde(borrow, rename = "nodeAffinity")]
    node: RawNodeAffinity<'a>,
    #[serde(borrow, rename = "podAffinity")]
    pod: RawPodAffinity<'a>,
    #[serde(borrow, rename = "podAntiAffinity")]
    anti: RawPodAffinity<'a>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawNodeAffinity<'a> {
    #[serde(borrow, rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    required: Option<RawRequired<'a>>,
    #[serde(borrow, rename = "preferredDuringSchedulingIgnoredDuringExecution")]
    preferred: Option<Vec<RawPreferred<'a>>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawRequired<'a> {
    #[serde(borrow, rename = "nodeSelectorTerms")]
    terms: Option<Vec<RawTerm<'a>>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawPreferred<'a> {
    weight: i64,
    #[serde(borrow)]
    preference: RawTerm<'a>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawPodAffinity<'a> {
    #[serde(borrow, rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    required: Option<Vec<RawPodTerm<'a>>>,
    #[serde(borrow, rename = "preferredDuringSchedulingIgnoredDuringExecution")]
    preferred: Option<Vec<RawPodWish<'a>>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawPodWish<'a> {
    weight: i64,
    #[serde(borrow)]
    pod_affinity_term: RawPodTerm<'a>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawPodTerm<'a> {
    #[serde(borrow)]
    label_selector: Option<RawSelector<'a>>,
    #[serde(borrow)]
    namespaces: Option<Vec<Str<'a>>>,
    #[serde(borrow)]
    namespace_selector: Option<RawSelector<'a>>,
    #[serde(borrow)]
    topology_key: Option<Str<'a>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawContainer<'a> {
    resources: RawResources,
    #[serde(borrow)]
    ports: Option<Vec<RawPort<'a>>>,
    #[serde(borrow)]
    restart_policy: Option<Str<'a>>,
}

impl RawContainer<'_> {
    fn is_sidecar(&self) -> bool {
        self.restart_policy.as_deref() == Some("Always")
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawResources {
    requests: Option<BTreeMap<String, Value>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawPort<'a> {
    host_port: i64,
    #[serde(borrow, rename = "hostIP")]
    host_ip: Option<Str<'a>>,
    #[serde(borrow)]
    protocol: Option<Str<'a>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawStatus<'a> {
    #[serde(borrow)]
    phase: Option<Str<'a>>,
    #[serde(borrow)]
    nominated_node_name: Option<Str<'a>>,
    #[serde(borrow)]
    start_time: Option<Str<'a>>,
    #[serde(borrow)]
    conditions: Option<Vec<RawTold<'a>>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawTold<'a> {
    #[serde(borrow, rename = "type")]
    kind: Str<'a>,
    #[serde(borrow)]
    status: Str<'a>,
    #[serde(borrow)]
    reason: Option<Str<'a>>,
    #[serde(borrow)]
    message: Option<Str<'a>>,
}

#[derive(Deserialize)]
struct Named<'a> {
    #[serde(borrow, default)]
    metadata: Meta<'a>,
}

#[derive(Deserialize)]
struct RawBudget<'a> {
    #[serde(borrow, default)]
    metadata: Meta<'a>,
    #[serde(borrow, default)]
    spec: RawBudgetSpec<'a>,
    #[serde(borrow, default)]
    status: RawBudgetStatus<'a>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawBudgetSpec<'a> {
    #[serde(borrow)]
    selector: Option<RawSelector<'a>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawBudgetStatus<'a> {
    disruptions_allowed: i64,
    #[serde(borrow)]
    disrupted_pods: Option<Pairs<'a>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawNode<'a> {
    spec: RawNodeSpec,
    #[serde(borrow)]
    status: RawNodeStatus<'a>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawNodeSpec {
    unschedulable: Option<bool>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawNodeStatus<'a> {
    #[serde(borrow)]
    allocatable: Option<BTreeMap<Str<'a>, Value>>,
}
