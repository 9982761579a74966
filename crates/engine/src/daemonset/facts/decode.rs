//! Decodes the JSON of API objects into facts: the fields that the rules of the DaemonSet controller read. Fields that
//! no rule reads are dropped, except fields that a write must send back, which are kept as JSON text.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use muster_api::apps_v1::{ControllerRevision, DaemonSet, DaemonSetStatus, DaemonSetUpdateStrategy};
use muster_api::core_v1::{
    self, ContainerStatus, NodeCondition, NodeSelectorRequirement, NodeSelectorTerm, PodCondition, PodStatus,
    PodTemplateSpec,
};
use muster_api::interner::Interner;
use muster_api::json::{self, IntOrString, StrMap};
use muster_api::labels;
use muster_api::meta_v1::{LabelSelector, ObjectMeta, PartialObjectMetadata};
use muster_api::names;
use muster_api::object_key::ObjectKey;
use muster_api::taints::{TaintEffect, Toleration, TolerationOperator};
use muster_api::text::Text;
use muster_api::time::Time;
use muster_api::well_known::{
    ANNOTATION_VERDICT, ANNOTATION_VERDICT_REASON, ANNOTATION_VERDICT_TIME, DISRUPTION_TARGET, NODE_READY,
    POD_READY,
};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::value::RawValue;

use super::pod_problem::PodProblem;
use super::{
    Condition, ConditionStatus, ConditionType, IntOrPercent, InvalidField, Kind, NamespaceLabels, Node,
    NodeRequirement, Phase, Pod, ReadyCondition, RequiredNodeAffinity, Revision, Selector, Set, Status,
    StatusCounts, StoredVerdict, TEMPLATE_GENERATION_ANNOTATION, Template, Term, UpdateStrategy,
};
use crate::controller::{self, Event, Malformed, WatchEvent, decode_watch_line};
use crate::daemonset::manifest;
use crate::daemonset::progressive::decode::{decode_cluster_policy, decode_policy, decode_rollout};
use crate::daemonset::progressive::policy::Policy;
use crate::daemonset::progressive::record::RolloutRecord;
use crate::daemonset::progressive::verdict::RevisionVerdict;
use crate::daemonset::template_equivalence;

/// An object of one of the kinds that the DaemonSet controller watches, decoded to the fields that rules read. Of an
/// object that was deleted or that concerns no DaemonSet, [`WatchedObject::Gone`] holds only kind, key and resource
/// version.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WatchedObject {
    Set(Arc<Set>),
    Node(Arc<Node>),
    Pod(Arc<Pod>),
    Revision(Arc<Revision>),
    /// A decoded RolloutPolicy or ClusterRolloutPolicy.
    Policy(Arc<Policy>),
    Rollout(Arc<RolloutRecord>),
    Namespace(Arc<NamespaceLabels>),
    /// The object was deleted, or it concerns no DaemonSet, because an object of a kind other than DaemonSet controls
    /// it.
    Gone {
        kind: Kind,
        key: ObjectKey,
        resource_version: u64,
    },
}

impl WatchedObject {
    /// Returns the kind of the object.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Set(_) => Kind::Sets,
            Self::Node(_) => Kind::Nodes,
            Self::Pod(_) => Kind::Pods,
            Self::Revision(_) => Kind::Revisions,
            Self::Policy(it) => it.kind.watched_kind(),
            Self::Rollout(_) => Kind::Rollouts,
            Self::Namespace(_) => Kind::Namespaces,
            Self::Gone { kind, .. } => *kind,
        }
    }

    /// Returns the event that a watch would deliver: `Deleted` for [`WatchedObject::Gone`], `Applied` for all others.
    pub fn into_event(self) -> Event<Self> {
        let kind = self.kind().index();
        match self {
            Self::Gone { .. } => Event::Deleted { kind, fact: self },
            fact => Event::Applied { kind, fact },
        }
    }
}

impl controller::DecodedObject for WatchedObject {
    fn key(&self) -> ObjectKey {
        match self {
            Self::Set(it) => it.key.clone(),
            Self::Node(it) => ObjectKey::new("", it.name.clone()),
            Self::Pod(it) => it.key.clone(),
            Self::Revision(it) => it.key.clone(),
            Self::Policy(it) => it.key.clone(),
            Self::Rollout(it) => it.key.clone(),
            Self::Namespace(it) => ObjectKey::new("", it.name.clone()),
            Self::Gone { key, .. } => key.clone(),
        }
    }

    fn resource_version(&self) -> u64 {
        match self {
            Self::Set(it) => it.resource_version,
            Self::Node(it) => it.resource_version,
            Self::Pod(it) => it.resource_version,
            Self::Revision(it) => it.resource_version,
            Self::Policy(it) => it.resource_version,
            Self::Rollout(it) => it.resource_version,
            Self::Namespace(it) => it.resource_version,
            Self::Gone { resource_version, .. } => *resource_version,
        }
    }

    fn is_relevant(&self) -> bool {
        !matches!(self, Self::Gone { .. })
    }
}

/// Decodes one line of a watch: `{"type":…,"object":…}`.
pub fn decode_watch_event(
    kind: Kind,
    line: &[u8],
    shared: &mut Interner,
) -> Result<WatchEvent<WatchedObject>, Malformed> {
    decode_watch_line(kind.plural(), line, |is_deleted, object| {
        if is_deleted { decode_deleted(kind, object, shared) } else { decode_object(kind, object, shared) }
    })
}

/// Decodes only the metadata of a deleted object, so that the deletion of an object with an invalid spec is decoded
/// too.
pub fn decode_deleted(kind: Kind, object: &[u8], shared: &mut Interner) -> Result<WatchedObject, Malformed> {
    let meta = from_slice::<PartialObjectMetadata<'_>>(kind, object)?.metadata;
    Ok(WatchedObject::Gone { kind, key: meta.key(shared), resource_version: meta.resource_version() })
}

/// Decodes an object that was listed, added or modified. A pod or ControllerRevision that an object of a kind other
/// than DaemonSet controls becomes [`WatchedObject::Gone`].
pub fn decode_object(kind: Kind, object: &[u8], shared: &mut Interner) -> Result<WatchedObject, Malformed> {
    let concerns_no_set = |meta: &ObjectMeta<'_>, shared: &mut Interner| WatchedObject::Gone {
        kind,
        key: meta.key(shared),
        resource_version: meta.resource_version(),
    };
    Ok(match kind {
        Kind::Sets => WatchedObject::Set(Arc::new(decode_set(object, shared)?)),
        Kind::Nodes => WatchedObject::Node(Arc::new(decode_node(object, shared)?)),
        Kind::Pods => {
            let pod: PodWithoutContainers<'_> = from_slice(kind, object)?;
            match controlling_daemonset_uid(&pod.metadata, shared) {
                Some(owner) => WatchedObject::Pod(Arc::new(extract_pod(&pod, owner, shared))),
                None => concerns_no_set(&pod.metadata, shared),
            }
        }
        Kind::Revisions => {
            let revision: ControllerRevision<'_> = from_slice(kind, object)?;
            match controlling_daemonset_uid(&revision.metadata, shared) {
                Some(owner) => WatchedObject::Revision(Arc::new(extract_revision(revision, owner, shared))),
                None => concerns_no_set(&revision.metadata, shared),
            }
        }
        Kind::Policies => WatchedObject::Policy(Arc::new(decode_policy(object, shared)?.policy)),
        Kind::ClusterPolicies => {
            WatchedObject::Policy(Arc::new(decode_cluster_policy(object, shared)?.policy))
        }
        Kind::Rollouts => WatchedObject::Rollout(Arc::new(decode_rollout(object, shared)?)),
        Kind::Namespaces => {
            let meta = from_slice::<PartialObjectMetadata<'_>>(kind, object)?.metadata;
            WatchedObject::Namespace(Arc::new(NamespaceLabels {
                name: shared.intern_text(meta.name()),
                resource_version: meta.resource_version(),
                labels: meta.labels(shared),
            }))
        }
    })
}

/// Decodes a DaemonSet. Returns an error if the JSON does not have the structure of a DaemonSet. Invalid fields get a
/// default, and most of them are reported in [`Set::faults`]. An invalid selector is not reported there: it becomes
/// [`Selector::Unreadable`].
pub fn decode_set(json: &[u8], shared: &mut Interner) -> Result<Set, Malformed> {
    let DaemonSet { metadata, spec, status } = from_slice(Kind::Sets, json)?;
    let meta: ObjectMeta<'_> = from_slice(Kind::Sets, metadata.get().as_bytes())?;
    let mut faults = Vec::new();
    let spec = spec.unwrap_or_default();
    let strategy = spec.update_strategy.unwrap_or_default();
    Ok(Set {
        key: meta.key(shared),
        uid: meta.uid(),
        resource_version: meta.resource_version(),
        generation: meta.generation(),
        created: meta.creation_time(),
        deleting: meta.is_deleting(),
        labels: meta.labels(shared),
        selector: decode_selector(spec.selector.as_ref()),
        rollout: decode_update_strategy(&strategy, &mut faults),
        on_delete_limit: strategy
            .rolling_update
            .as_ref()
            .filter(|_| strategy.type_.as_deref() == Some("OnDelete"))
            .and_then(|it| parse_int_or_percent(it.max_unavailable.as_ref()?)),
        min_ready: Duration::from_secs(non_negative_or_default(
            "spec.minReadySeconds",
            spec.min_ready_seconds.unwrap_or(0),
            0,
            &mut faults,
        )),
        history_max: usize::try_from(non_negative_or_default(
            "spec.revisionHistoryLimit",
            spec.revision_history_limit.unwrap_or(REVISION_HISTORY_LIMIT_DEFAULT),
            REVISION_HISTORY_LIMIT_DEFAULT,
            &mut faults,
        ))
        .unwrap_or(usize::MAX),
        template: decode_template(spec.template, shared, &mut faults)?,
        template_generation: template_generation(&meta),
        status: self::decode_status(status)?,
        metadata: metadata.get().into(),
        annotations: serde_json::to_string(&meta.annotations.unwrap_or_default())
            .unwrap_or_else(|_| String::from("{}"))
            .into(),
        faults,
    })
}

/// Default of `revisionHistoryLimit`. Upstream: `SetDefaults_DaemonSet`.
const REVISION_HISTORY_LIMIT_DEFAULT: i64 = 10;

/// Decodes a Node to the fields that the rules of the DaemonSet controller read.
pub fn decode_node(json: &[u8], shared: &mut Interner) -> Result<Node, Malformed> {
    Ok(extract_node(&from_slice(Kind::Nodes, json)?, shared))
}

/// Extracts the fields that rules read from a parsed Node.
pub(crate) fn extract_node(node: &core_v1::Node<'_>, shared: &mut Interner) -> Node {
    let taints = node.spec.iter().flat_map(|it| it.taints.iter().flatten());
    let taints = taints.map(|it| it.intern(shared)).collect();
    let ready = node.status.as_ref().and_then(|it| it.condition(NODE_READY));
    Node {
        name: shared.intern_text(node.metadata.name()),
        uid: node.metadata.uid(),
        resource_version: node.metadata.resource_version(),
        created: node.metadata.creation_time(),
        labels: node.metadata.labels(shared),
        taints: shared.intern_taints(taints),
        ready: ReadyCondition {
            status: ready.map_or(ConditionStatus::Unknown, NodeCondition::status),
            since: ready.and_then(|it| Time::parse(it.last_transition_time.as_deref()?)),
        },
    }
}

/// Decodes a pod. `None` if an object of a kind other than DaemonSet controls the pod.
pub fn decode_pod(json: &[u8], shared: &mut Interner) -> Result<Option<Pod>, Malformed> {
    let pod: PodWithoutContainers<'_> = from_slice(Kind::Pods, json)?;
    Ok(controlling_daemonset_uid(&pod.metadata, shared).map(|owner| extract_pod(&pod, owner, shared)))
}

/// Decodes a ControllerRevision. `None` if an object of a kind other than DaemonSet controls it.
pub fn decode_revision(json: &[u8], shared: &mut Interner) -> Result<Option<Revision>, Malformed> {
    let revision: ControllerRevision<'_> = from_slice(Kind::Revisions, json)?;
    Ok(controlling_daemonset_uid(&revision.metadata, shared)
        .map(|owner| extract_revision(revision, owner, shared)))
}

/// Parses JSON. The error names the kind of the object.
fn from_slice<'a, T: Deserialize<'a>>(kind: Kind, json: &'a [u8]) -> Result<T, Malformed> {
    json::from_slice(json).map_err(|source| Malformed::new(kind.plural(), source))
}

/// Returns `value` if it is not negative. Otherwise returns `instead` and reports the field in `faults`.
fn non_negative_or_default(
    field: &'static str,
    value: i64,
    instead: i64,
    faults: &mut Vec<InvalidField>,
) -> u64 {
    u64::try_from(value).unwrap_or_else(|_| {
        faults.push(InvalidField { field, problem: format!("{value} is negative; {instead} is used") });
        u64::try_from(instead).unwrap_or_default()
    })
}

/// Decodes the selector of a DaemonSet. An absent or invalid selector becomes `Selector::Unreadable`, an empty one
/// `Selector::Everything`.
fn decode_selector(selector: Option<&LabelSelector<'_>>) -> Selector {
    match LabelSelector::to_selector(selector) {
        Ok(labels::Selector::Nothing) => Selector::Unreadable("spec.selector is missing".into()),
        Ok(selector) if selector.is_empty() => Selector::Everything,
        Ok(selector) => Selector::Requirements(selector),
        Err(problem) => Selector::Unreadable(problem.into()),
    }
}

/// Decodes the update strategy. Reports invalid fields in `faults`.
///
/// Rule: the first of these cases that applies determines the strategy:
///
/// 1. The type is `OnDelete` or unknown: [`UpdateStrategy::OnDelete`].
/// 2. `maxSurge` or `maxUnavailable` is invalid: [`UpdateStrategy::OnDelete`].
/// 3. `maxSurge` is present and not zero: [`UpdateStrategy::Surge`].
/// 4. Otherwise: [`UpdateStrategy::Drain`] with `maxUnavailable`, or with one node if `maxUnavailable` is absent or
///    zero.
fn decode_update_strategy(
    strategy: &DaemonSetUpdateStrategy<'_>,
    faults: &mut Vec<InvalidField>,
) -> UpdateStrategy {
    match strategy.type_.as_deref() {
        Some("OnDelete") => return UpdateStrategy::OnDelete,
        None | Some("" | "RollingUpdate") => {}
        Some(other) => {
            faults.push(InvalidField {
                field: "spec.updateStrategy.type",
                problem: format!("{other:?} is neither RollingUpdate nor OnDelete; no pod is replaced"),
            });
            return UpdateStrategy::OnDelete;
        }
    }
    let rolling = strategy.rolling_update.as_ref();
    let surge = rolling.and_then(|it| it.max_surge.as_ref());
    let down = rolling.and_then(|it| it.max_unavailable.as_ref());
    let surge = parse_int_or_percent_or_default(
        "spec.updateStrategy.rollingUpdate.maxSurge",
        surge,
        IntOrPercent::Count(0),
    );
    let down = parse_int_or_percent_or_default(
        "spec.updateStrategy.rollingUpdate.maxUnavailable",
        down,
        IntOrPercent::Count(1),
    );
    match (surge, down) {
        (Ok(surge), Ok(_)) if !surge.is_zero() => UpdateStrategy::Surge(surge),
        (Ok(_), Ok(down)) if down.is_zero() => UpdateStrategy::Drain(IntOrPercent::Count(1)),
        (Ok(_), Ok(down)) => UpdateStrategy::Drain(down),
        (surge, down) => {
            faults.extend([surge.err(), down.err()].into_iter().flatten());
            UpdateStrategy::OnDelete
        }
    }
}

/// Parses `maxUnavailable` or `maxSurge`. Returns `absent` if the field is absent, and an error if its value is
/// invalid.
fn parse_int_or_percent_or_default(
    field: &'static str,
    value: Option<&IntOrString<'_>>,
    absent: IntOrPercent,
) -> Result<IntOrPercent, InvalidField> {
    let Some(value) = value else { return Ok(absent) };
    parse_int_or_percent(value).ok_or_else(|| InvalidField {
        field,
        problem: format!(
            "{value} is neither a whole number nor a percentage such as \"10%\"; no pod is replaced"
        ),
    })
}

/// Parses `maxUnavailable` or `maxSurge`. `None` if the value is invalid.
///
/// Rule: `maxUnavailable` and `maxSurge` are a non-negative integer, or a string of digits followed by `%`. The strings
/// "5" (which upstream once read as 5 %) and "+5%" are invalid.
pub(crate) fn parse_int_or_percent(value: &IntOrString<'_>) -> Option<IntOrPercent> {
    match value {
        IntOrString::Int(number) => u32::try_from(*number).ok().map(IntOrPercent::Count),
        IntOrString::String(text) => {
            let percent = names::parse_percent(text)?;
            u32::try_from(percent).ok().map(IntOrPercent::Percent)
        }
        IntOrString::Invalid(_) => None,
    }
}

/// Decodes the pod template. Reports each node affinity term that cannot be parsed in `faults`. Returns an error if the
/// JSON does not have the structure of a pod template.
fn decode_template(
    raw: Option<&RawValue>,
    shared: &mut Interner,
    faults: &mut Vec<InvalidField>,
) -> Result<Template, Malformed> {
    let text = raw.map_or("{}", RawValue::get);
    let parsed: PodTemplateSpec<'_, IgnoredAny> = from_slice(Kind::Sets, text.as_bytes())?;
    let value: Value = from_slice(Kind::Sets, text.as_bytes())?;
    let spec = parsed.spec.unwrap_or_default();
    let meta = parsed.metadata.unwrap_or_default();
    let mut tolerations: Vec<Toleration> =
        spec.tolerations.iter().flatten().map(|it| it.intern(shared)).collect();
    for it in manifest::automatic_tolerations(spec.host_network.unwrap_or(false)) {
        tolerations.push(Toleration {
            key: shared.intern_text(it.key),
            operator: TolerationOperator::Exists,
            effect: Some(TaintEffect::parse(it.effect)),
        });
    }
    let affinity = decode_node_affinity(spec.affinity.as_ref().and_then(|it| it.node_affinity.as_ref()));
    if let RequiredNodeAffinity::AnyOf(terms) = &affinity {
        for term in terms {
            if let Term::Unreadable(problem) = term {
                faults.push(InvalidField {
                    field: "spec.template.spec.affinity.nodeAffinity",
                    problem: format!("{problem}; that term matches no node"),
                });
            }
        }
    }
    Ok(Template {
        raw: text.into(),
        data: manifest::revision_data(&value).into(),
        identity: template_equivalence::template_identity(&value),
        labels: meta.labels(shared),
        node_name: spec.node_name.as_deref().filter(|it| !it.is_empty()).map(|it| shared.intern_text(it)),
        node_selector: shared.intern_labels(spec.node_selector.iter().flat_map(StrMap::pairs)),
        affinity,
        tolerations: shared.intern_tolerations(tolerations),
    })
}

/// Decodes the required node affinity of a pod or pod template. Preferred terms are ignored.
pub(crate) fn decode_node_affinity(affinity: Option<&core_v1::NodeAffinity<'_>>) -> RequiredNodeAffinity {
    match affinity.and_then(|it| it.required.as_ref()) {
        None => RequiredNodeAffinity::Anywhere,
        Some(required) => RequiredNodeAffinity::AnyOf(
            required.node_selector_terms.iter().flatten().map(decode_term).collect(),
        ),
    }
}

/// Decodes a node selector term. A term with an invalid requirement becomes `Term::Unreadable`.
pub(crate) fn decode_term(term: &NodeSelectorTerm<'_>) -> Term {
    let labels = term.match_expressions.iter().flatten();
    let labels = labels.map(|it| it.to_label_requirement().map(NodeRequirement::Label));
    let fields = term.match_fields.iter().flatten().map(decode_field_requirement);
    match labels.chain(fields).collect() {
        Ok(all) => Term::AllOf(all),
        Err(problem) => Term::Unreadable(Text::from(problem)),
    }
}

/// Decodes an entry of `matchFields`. Returns an error message unless the entry is an `In` or `NotIn` on
/// `metadata.name` with exactly one value.
fn decode_field_requirement(requirement: &NodeSelectorRequirement<'_>) -> Result<NodeRequirement, String> {
    let key = requirement.key();
    if key != "metadata.name" {
        return Err(format!("field {key:?} is not metadata.name"));
    }
    let Some([value]) = requirement.values.as_deref() else {
        return Err(format!("{key}: needs exactly one value"));
    };
    match requirement.operator() {
        "In" => Ok(NodeRequirement::NameIs((&**value).into())),
        "NotIn" => Ok(NodeRequirement::NameIsNot((&**value).into())),
        other => Err(format!("{key}: {other:?} is neither In nor NotIn")),
    }
}

/// Decodes the status of a DaemonSet. Conditions of types that this controller does not write are only in
/// `Status::raw`.
fn decode_status(raw: Option<&RawValue>) -> Result<Status, Malformed> {
    let Some(text) = raw.map(RawValue::get) else { return Ok(Status::default()) };
    let parsed: Option<DaemonSetStatus<'_>> = from_slice(Kind::Sets, text.as_bytes())?;
    let Some(parsed) = parsed else { return Ok(Status::default()) };
    let conditions = parsed.conditions.into_iter().flatten();
    let ours = conditions.filter_map(|it| {
        Some(Condition {
            kind: ConditionType::parse(it.type_.as_deref()?)?,
            status: ConditionStatus::parse(it.status.as_deref().unwrap_or_default()),
            reason: it.reason.as_deref().unwrap_or_default().into(),
            message: it.message.as_deref().unwrap_or_default().into(),
            since: it.last_transition_time.as_deref().and_then(Time::parse),
        })
    });
    Ok(Status {
        observed_generation: parsed.observed_generation.unwrap_or_default(),
        counts: StatusCounts {
            desired: parsed.desired_number_scheduled.unwrap_or_default(),
            current: parsed.current_number_scheduled.unwrap_or_default(),
            ready: parsed.number_ready.unwrap_or_default(),
            updated: parsed.updated_number_scheduled.unwrap_or_default(),
            available: parsed.number_available.unwrap_or_default(),
            unavailable: parsed.number_unavailable.unwrap_or_default(),
            misscheduled: parsed.number_misscheduled.unwrap_or_default(),
        },
        collisions: parsed.collision_count,
        conditions: ours.collect(),
        raw: Some(text.into()),
    })
}

/// A parsed pod whose container specs are skipped, because no rule of the DaemonSet controller reads them.
type PodWithoutContainers<'a> = core_v1::Pod<'a, IgnoredAny>;

/// Returns the value of the annotation [`TEMPLATE_GENERATION_ANNOTATION`]. `None` if it is absent or not a number.
fn template_generation(meta: &ObjectMeta<'_>) -> Option<i64> {
    meta.annotation(TEMPLATE_GENERATION_ANNOTATION)?.parse().ok()
}

/// Returns the UID of the DaemonSet that controls an object: `Some(Some(uid))`. Returns `Some(None)` if the object has
/// no controller, and `None` if an object of a kind other than DaemonSet controls it.
fn controlling_daemonset_uid(meta: &ObjectMeta<'_>, shared: &mut Interner) -> Option<Option<Text>> {
    match meta.controller() {
        None => Some(None),
        Some(it) if it.kind.as_deref() == Some("DaemonSet") => {
            Some(Some(shared.intern_text(it.uid.as_deref().unwrap_or_default())))
        }
        Some(_) => None,
    }
}

/// Returns the node that the affinity of a daemon pod names. `None` if it names no node.
///
/// Rule: an unbound daemon pod belongs to the node that its required node affinity names with the requirement
/// `matchFields metadata.name In [node]`. Upstream: `GetTargetNodeName`.
fn pinned_node_name<'a>(affinity: &'a core_v1::Affinity<'_>) -> Option<&'a str> {
    let required = affinity.node_affinity.as_ref()?.required.as_ref()?;
    let terms = required.node_selector_terms.iter().flatten();
    terms.flat_map(|term| term.match_fields.iter().flatten()).find_map(|it| match it.values.as_deref() {
        Some([node]) if it.key() == "metadata.name" && it.operator() == "In" => Some(&**node),
        _ => None,
    })
}

/// Extracts the fields that rules read from a parsed pod. `owner` is the UID of the DaemonSet that controls the pod,
/// `None` if the pod has no controller.
fn extract_pod(pod: &PodWithoutContainers<'_>, owner: Option<Text>, shared: &mut Interner) -> Pod {
    let (meta, spec, status) = (&pod.metadata, pod.spec.as_ref(), pod.status.as_ref());
    let node_name = spec.and_then(|it| it.node_name.as_deref()).filter(|it| !it.is_empty());
    let target = node_name.or_else(|| pinned_node_name(spec?.affinity.as_ref()?));
    let conditions = || status.iter().flat_map(|it| it.conditions.iter().flatten());
    let condition = |type_: &str| conditions().find(|it| it.type_.as_deref() == Some(type_));
    let ready = condition(POD_READY);
    let transition = |it: &PodCondition<'_>| it.last_transition_time.as_deref().and_then(Time::parse);
    let created = meta.creation_time();
    let containers = || {
        status
            .into_iter()
            .flat_map(|it| it.init_container_statuses.iter().chain(&it.container_statuses).flatten())
    };
    let started =
        |it: &ContainerStatus<'_>| Time::parse(it.state.as_ref()?.running.as_ref()?.started_at.as_deref()?);
    let restarts = containers().filter_map(|it| it.restart_count).max().unwrap_or(0);
    let tolerations = spec.iter().flat_map(|it| it.tolerations.iter().flatten());
    let tolerations = tolerations.map(|it| it.intern(shared)).collect();
    Pod {
        key: meta.key(shared),
        uid: meta.uid(),
        resource_version: meta.resource_version(),
        owner,
        labels: meta.labels(shared),
        target: target.map(|it| shared.intern_text(it)),
        bound: node_name.is_some(),
        created,
        deleting: meta.is_deleting(),
        phase: status.map_or(Phase::Pending, PodStatus::phase),
        // A Ready pod whose transition time cannot be parsed counts as Ready since its creation, the earliest possible
        // time.
        ready_since: ready.filter(|it| it.is_true()).map(|it| transition(it).unwrap_or(created)),
        // A pod that was never Ready has this condition since its creation.
        not_ready_since: ready
            .filter(|it| !it.is_true())
            .and_then(transition)
            .filter(|since| created < *since),
        last_started: containers().filter_map(started).max(),
        restarts: u32::try_from(restarts).unwrap_or(0),
        is_disrupted: condition(DISRUPTION_TARGET).is_some_and(|it| it.is_true()),
        problem: status.and_then(|it| PodProblem::from_status(it)?.reason()).map(|it| shared.intern_text(it)),
        tolerations: shared.intern_tolerations(tolerations),
    }
}

/// Extracts the fields that rules read from a parsed ControllerRevision. `owner` is the UID of the DaemonSet that
/// controls the revision, `None` if the revision has no controller.
fn extract_revision(
    revision: ControllerRevision<'_>,
    owner: Option<Text>,
    shared: &mut Interner,
) -> Revision {
    let meta = revision.metadata;
    let data = revision.data.unwrap_or(Value::Null);
    Revision {
        key: meta.key(shared),
        uid: meta.uid(),
        resource_version: meta.resource_version(),
        owner,
        labels: meta.labels(shared),
        number: revision.revision.unwrap_or_default(),
        template_generation: template_generation(&meta),
        identity: template_equivalence::revision_identity(&data),
        data: muster_api::go_json::to_string(&data).into(),
        created: meta.creation_time(),
        deleting: meta.is_deleting(),
        verdict: stored_verdict(&meta).map(Arc::new),
    }
}

/// Returns the verdict of a progressive rollout that the annotations of a ControllerRevision store. `None` if the
/// verdict annotation is absent or has an unknown value.
///
/// Rule: a verdict without a readable time counts as older than every other verdict.
fn stored_verdict(meta: &ObjectMeta<'_>) -> Option<StoredVerdict> {
    Some(StoredVerdict {
        verdict: RevisionVerdict::parse(meta.annotation(ANNOTATION_VERDICT)?)?,
        at: meta.annotation(ANNOTATION_VERDICT_TIME).and_then(Time::parse).unwrap_or_default(),
        reason: meta.annotation(ANNOTATION_VERDICT_REASON).unwrap_or_default().into(),
    })
}

/// Decodes the pod template of a revision from its `data`. `None` if `data` is not a patch that replaces the whole
/// template, or if the template cannot be decoded.
pub(crate) fn decode_revision_template(revision: &Revision, shared: &mut Interner) -> Option<Template> {
    let mut data: Value = serde_json::from_str(&revision.data).ok()?;
    revision.identity?;
    let template = data.get_mut("spec")?.get_mut("template")?;
    template.as_object_mut()?.remove("$patch");
    let text = muster_api::go_json::to_string(template);
    let raw: &RawValue = serde_json::from_str(&text).ok()?;
    decode_template(Some(raw), shared, &mut Vec::new()).ok()
}

#[cfg(test)]
mod tests;
