//! JSON as the API server sends it, straight into facts. What no rule reads is skipped, not kept.

use alloc::borrow::{Cow, ToOwned};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use muster_api::interner::Interner;
use muster_api::labels::{LabelOperator, LabelRequirement, Labels};
use muster_api::meta::ObjectKey;
use muster_api::taints::{Taint, TaintEffect, Toleration, TolerationOperator};
use muster_api::text::Text;
use muster_api::time::Time;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::{
    Affinity, Condition, ConditionType, Counts, Fault, GENERATION_ANNOTATION, Kind, Malformed, Node,
    NodeRequirement, Phase, Pod, Ready, Revision, Rollout, Selector, Set, Share, Status, Template, Term,
    Told, Truth,
};
use crate::daemonset::manifest;
use crate::daemonset::template_equivalence;

/// One line of a watch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Watched {
    Set(Arc<Set>),
    Node(Arc<Node>),
    Pod(Arc<Pod>),
    Revision(Arc<Revision>),
    /// The object is gone, or has become one that concerns no DaemonSet.
    Gone {
        kind: Kind,
        key: ObjectKey,
        resource_version: u64,
    },
    Bookmark {
        resource_version: u64,
        /// What there was when the watch began has been told: from here on it tells changes.
        ends_list: bool,
    },
    /// The server ended the watch; 410 means that the history was compacted away and a list is due.
    Error {
        code: i64,
        message: String,
    },
}

impl Watched {
    /// `None` for what is about no object.
    pub fn key(&self) -> Option<ObjectKey> {
        match self {
            Self::Set(it) => Some(it.key.clone()),
            Self::Node(it) => Some(ObjectKey::new("", it.name.clone())),
            Self::Pod(it) => Some(it.key.clone()),
            Self::Revision(it) => Some(it.key.clone()),
            Self::Gone { key, .. } => Some(key.clone()),
            Self::Bookmark { .. } | Self::Error { .. } => None,
        }
    }

    /// How far the watch that brought it has come.
    pub fn resource_version(&self) -> Option<u64> {
        match self {
            Self::Set(it) => Some(it.resource_version),
            Self::Node(it) => Some(it.resource_version),
            Self::Pod(it) => Some(it.resource_version),
            Self::Revision(it) => Some(it.resource_version),
            Self::Gone { resource_version, .. } | Self::Bookmark { resource_version, .. } => {
                Some(*resource_version)
            }
            Self::Error { .. } => None,
        }
    }
}

/// Reads one line of a watch: `{"type":…,"object":…}`.
pub fn watched(kind: Kind, line: &[u8], shared: &mut Interner) -> Result<Watched, Malformed> {
    super::line(kind.plural(), line, |told, object| match told {
        Told::Put => listed(kind, object, shared),
        Told::Gone => {
            let meta = from_slice::<Headed<'_>>(kind, object)?.metadata;
            Ok(Watched::Gone { kind, key: meta.key(shared), resource_version: meta.resource_version() })
        }
        Told::Bookmark { resource_version, ends_list } => {
            Ok(Watched::Bookmark { resource_version, ends_list })
        }
        Told::Error { code, message } => Ok(Watched::Error { code, message }),
    })
}

/// Reads an object that was listed, added or changed.
pub fn listed(kind: Kind, object: &[u8], shared: &mut Interner) -> Result<Watched, Malformed> {
    let concerns_no_set = |meta: &Meta<'_>, shared: &mut Interner| Watched::Gone {
        kind,
        key: meta.key(shared),
        resource_version: meta.resource_version(),
    };
    Ok(match kind {
        Kind::Sets => Watched::Set(Arc::new(set(object, shared)?)),
        Kind::Nodes => Watched::Node(Arc::new(node(object, shared)?)),
        Kind::Pods => {
            let raw: RawPod<'_> = from_slice(kind, object)?;
            match raw.metadata.owner(shared) {
                Some(owner) => Watched::Pod(Arc::new(raw.into_fact(owner, shared))),
                None => concerns_no_set(&raw.metadata, shared),
            }
        }
        Kind::Revisions => {
            let raw: RawRevision<'_> = from_slice(kind, object)?;
            match raw.metadata.owner(shared) {
                Some(owner) => Watched::Revision(Arc::new(raw.into_fact(owner, shared))),
                None => concerns_no_set(&raw.metadata, shared),
            }
        }
    })
}

pub fn set(json: &[u8], shared: &mut Interner) -> Result<Set, Malformed> {
    let raw: RawSet<'_> = from_slice(Kind::Sets, json)?;
    let meta: Meta<'_> = from_slice(Kind::Sets, raw.metadata.get().as_bytes())?;
    let mut faults = Vec::new();
    let spec = raw.spec.unwrap_or_default();
    let annotations = meta.annotations.clone().unwrap_or_default();
    let strategy = spec.update_strategy.unwrap_or_default();
    Ok(Set {
        key: meta.key(shared),
        uid: meta.uid(),
        resource_version: meta.resource_version(),
        generation: meta.generation.unwrap_or_default(),
        created: meta.created(),
        deleting: meta.deletion_timestamp.is_some(),
        selector: selector(spec.selector),
        rollout: rollout(&strategy, &mut faults),
        min_ready: Duration::from_secs(not_negative(
            "spec.minReadySeconds",
            spec.min_ready_seconds.unwrap_or(0),
            0,
            &mut faults,
        )),
        history_max: usize::try_from(not_negative(
            "spec.revisionHistoryLimit",
            spec.revision_history_limit.unwrap_or(HISTORY_MAX),
            HISTORY_MAX,
            &mut faults,
        ))
        .unwrap_or(usize::MAX),
        template: template(spec.template, shared, &mut faults)?,
        template_generation: meta.template_generation(),
        status: status(raw.status)?,
        metadata: raw.metadata.get().into(),
        annotations: serde_json::to_string(&annotations).unwrap_or_else(|_| String::from("{}")).into(),
        faults,
    })
}

/// Upstream's default of `revisionHistoryLimit`.
const HISTORY_MAX: i64 = 10;

pub fn node(json: &[u8], shared: &mut Interner) -> Result<Node, Malformed> {
    let raw: RawNode<'_> = from_slice(Kind::Nodes, json)?;
    let taints = raw.spec.and_then(|it| it.taints).unwrap_or_default();
    let taints = taints
        .into_iter()
        .map(|it| Taint {
            key: shared.intern_text(&it.key.unwrap_or_default()),
            value: shared.intern_text(&it.value.unwrap_or_default()),
            effect: TaintEffect::parse(&it.effect.unwrap_or_default()),
        })
        .collect();
    let conditions = raw.status.and_then(|it| it.conditions).unwrap_or_default();
    let ready = conditions.iter().find(|it| it.kind.as_ref() == "Ready");
    Ok(Node {
        name: shared.intern_text(raw.metadata.name.as_deref().unwrap_or_default()),
        uid: raw.metadata.uid(),
        resource_version: raw.metadata.resource_version(),
        labels: raw.metadata.labels(shared),
        taints: shared.intern_taints(taints),
        ready: Ready {
            status: ready.map_or(Truth::Unknown, |it| Truth::parse(&it.status)),
            since: ready.and_then(|it| Time::parse(it.last_transition_time.as_deref()?)),
        },
    })
}

/// `None`: another kind of controller has this pod, so it concerns no DaemonSet.
pub fn pod(json: &[u8], shared: &mut Interner) -> Result<Option<Pod>, Malformed> {
    let raw: RawPod<'_> = from_slice(Kind::Pods, json)?;
    Ok(raw.metadata.owner(shared).map(|owner| raw.into_fact(owner, shared)))
}

/// `None`: another kind of controller has it.
pub fn revision(json: &[u8], shared: &mut Interner) -> Result<Option<Revision>, Malformed> {
    let raw: RawRevision<'_> = from_slice(Kind::Revisions, json)?;
    Ok(raw.metadata.owner(shared).map(|owner| raw.into_fact(owner, shared)))
}

fn from_slice<'a, T: Deserialize<'a>>(kind: Kind, json: &'a [u8]) -> Result<T, Malformed> {
    serde_json::from_slice(json).map_err(|source| Malformed::new(kind.plural(), source))
}

fn not_negative(field: &'static str, value: i64, instead: i64, faults: &mut Vec<Fault>) -> u64 {
    u64::try_from(value).unwrap_or_else(|_| {
        faults.push(Fault { field, problem: format!("{value} is negative, {instead} is used") });
        u64::try_from(instead).unwrap_or_default()
    })
}

fn selector(raw: Option<RawSelector<'_>>) -> Selector {
    let Some(raw) = raw else { return Selector::Unreadable("spec.selector is missing".into()) };
    match requirements(raw) {
        Ok(all) if all.is_empty() => Selector::Everything,
        Ok(all) => Selector::AllOf(all),
        Err(problem) => Selector::Unreadable(problem.into()),
    }
}

/// All of them must hold.
pub(crate) fn requirements(raw: RawSelector<'_>) -> Result<Vec<LabelRequirement>, String> {
    let mut all = Vec::new();
    for (key, value) in raw.match_labels.into_iter().flatten() {
        all.push(LabelRequirement {
            key: key.as_ref().into(),
            operator: LabelOperator::In([value.as_ref().into()].into()),
        });
    }
    for it in raw.match_expressions.into_iter().flatten() {
        let op = it.label_op()?;
        all.push(LabelRequirement { key: it.key.unwrap_or_default().as_ref().into(), operator: op });
    }
    Ok(all)
}

/// Rule: maxSurge, where it is set, makes it a surge; else maxUnavailable nodes may be down; both zero means one.
/// A strategy that cannot be read replaces nothing.
fn rollout(raw: &RawStrategy<'_>, faults: &mut Vec<Fault>) -> Rollout {
    match raw.kind.as_deref() {
        Some("OnDelete") => return Rollout::OnDelete,
        None | Some("" | "RollingUpdate") => {}
        Some(other) => {
            faults.push(Fault {
                field: "spec.updateStrategy.type",
                problem: format!("{other:?} is neither RollingUpdate nor OnDelete; nothing is replaced"),
            });
            return Rollout::OnDelete;
        }
    }
    let rolling = raw.rolling_update.as_ref();
    let surge = rolling.and_then(|it| it.max_surge.as_ref());
    let down = rolling.and_then(|it| it.max_unavailable.as_ref());
    let surge = share("spec.updateStrategy.rollingUpdate.maxSurge", surge, Share::Count(0));
    let down = share("spec.updateStrategy.rollingUpdate.maxUnavailable", down, Share::Count(1));
    match (surge, down) {
        (Ok(surge), Ok(_)) if !surge.is_zero() => Rollout::Surge(surge),
        (Ok(_), Ok(down)) if down.is_zero() => Rollout::Drain(Share::Count(1)),
        (Ok(_), Ok(down)) => Rollout::Drain(down),
        (surge, down) => {
            faults.extend([surge.err(), down.err()].into_iter().flatten());
            Rollout::OnDelete
        }
    }
}

/// Rule: a count is a whole number or a text that ends in `%`; the text "5" is neither (upstream once read it as 5 %).
fn share(field: &'static str, value: Option<&Value>, absent: Share) -> Result<Share, Fault> {
    let read = match value {
        None | Some(Value::Null) => Some(absent),
        Some(Value::Number(number)) => {
            number.as_u64().and_then(|it| u32::try_from(it).ok()).map(Share::Count)
        }
        Some(Value::String(text)) => {
            text.strip_suffix('%').and_then(|it| it.parse().ok()).map(Share::Percent)
        }
        Some(_) => None,
    };
    read.ok_or_else(|| Fault {
        field,
        problem: format!(
            "{} is neither a whole number nor a percentage such as \"10%\"; nothing is replaced",
            value.unwrap_or(&Value::Null)
        ),
    })
}

fn template(
    raw: Option<&RawValue>,
    shared: &mut Interner,
    faults: &mut Vec<Fault>,
) -> Result<Template, Malformed> {
    let text = raw.map_or("{}", RawValue::get);
    let parsed: RawTemplate<'_> = from_slice(Kind::Sets, text.as_bytes())?;
    let value: Value = from_slice(Kind::Sets, text.as_bytes())?;
    let spec = parsed.spec.unwrap_or_default();
    let meta = parsed.metadata.unwrap_or_default();
    let mut tolerations: Vec<Toleration> =
        spec.tolerations.into_iter().flatten().map(|it| it.into_fact(shared)).collect();
    for it in manifest::automatic_tolerations(spec.host_network.unwrap_or(false)) {
        tolerations.push(Toleration {
            key: shared.intern_text(it.key),
            operator: TolerationOperator::Exists,
            effect: Some(TaintEffect::parse(it.effect)),
        });
    }
    let affinity = node_affinity(spec.affinity);
    if let Affinity::AnyOf(terms) = &affinity {
        for term in terms {
            if let Term::Unreadable(problem) = term {
                faults.push(Fault {
                    field: "spec.template.spec.affinity.nodeAffinity",
                    problem: format!("{problem}; that term matches no node"),
                });
            }
        }
    }
    let pairs = spec.node_selector.unwrap_or_default();
    Ok(Template {
        raw: text.into(),
        data: manifest::revision_data(&value).into(),
        meaning: template_equivalence::of_template(&value),
        labels: meta.labels(shared),
        node_name: spec.node_name.as_deref().filter(|it| !it.is_empty()).map(|it| shared.intern_text(it)),
        node_selector: shared.intern_labels(pairs.iter().map(|(key, value)| (key.as_ref(), value.as_ref()))),
        affinity,
        tolerations: shared.intern_tolerations(tolerations),
    })
}

fn node_affinity(raw: Option<RawAffinity<'_>>) -> Affinity {
    let Some(required) = raw.and_then(|it| it.node_affinity).and_then(|it| it.required) else {
        return Affinity::Anywhere;
    };
    Affinity::AnyOf(required.terms.into_iter().flatten().map(term).collect())
}

pub(crate) fn term(raw: RawTerm<'_>) -> Term {
    let mut all = Vec::new();
    for it in raw.match_expressions.into_iter().flatten() {
        match it.node_requirement() {
            Ok(requirement) => all.push(requirement),
            Err(problem) => return Term::Unreadable(problem.into()),
        }
    }
    for it in raw.match_fields.into_iter().flatten() {
        match it.field_requirement() {
            Ok(requirement) => all.push(requirement),
            Err(problem) => return Term::Unreadable(problem.into()),
        }
    }
    Term::AllOf(all)
}

fn status(raw: Option<&RawValue>) -> Result<Status, Malformed> {
    let Some(text) = raw.map(RawValue::get) else { return Ok(Status::default()) };
    let parsed: Option<RawStatus<'_>> = from_slice(Kind::Sets, text.as_bytes())?;
    let Some(parsed) = parsed else { return Ok(Status::default()) };
    let conditions = parsed.conditions.into_iter().flatten();
    let ours = conditions.filter_map(|it| {
        Some(Condition {
            kind: ConditionType::parse(&it.kind)?,
            status: Truth::parse(&it.status),
            reason: it.reason.unwrap_or_default().as_ref().into(),
            message: it.message.unwrap_or_default().as_ref().into(),
            since: it.last_transition_time.as_deref().and_then(Time::parse),
        })
    });
    Ok(Status {
        observed_generation: parsed.observed_generation.unwrap_or_default(),
        counts: Counts {
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

pub(crate) type Str<'a> = Cow<'a, str>;
pub(crate) type Pairs<'a> = BTreeMap<Str<'a>, Str<'a>>;

#[derive(Deserialize)]
struct Headed<'a> {
    #[serde(borrow, default)]
    metadata: Meta<'a>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Meta<'a> {
    #[serde(borrow)]
    name: Option<Str<'a>>,
    #[serde(borrow)]
    namespace: Option<Str<'a>>,
    #[serde(borrow)]
    uid: Option<Str<'a>>,
    #[serde(borrow)]
    resource_version: Option<Str<'a>>,
    pub(crate) generation: Option<i64>,
    #[serde(borrow)]
    creation_timestamp: Option<Str<'a>>,
    #[serde(borrow)]
    pub(crate) deletion_timestamp: Option<Str<'a>>,
    #[serde(borrow)]
    labels: Option<Pairs<'a>>,
    #[serde(borrow)]
    pub(crate) annotations: Option<Pairs<'a>>,
    #[serde(borrow)]
    pub(crate) owner_references: Option<Vec<RawOwner<'a>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RawOwner<'a> {
    #[serde(borrow, default)]
    pub(crate) api_version: Option<Str<'a>>,
    #[serde(borrow, default)]
    pub(crate) name: Option<Str<'a>>,
    #[serde(borrow, default)]
    pub(crate) kind: Option<Str<'a>>,
    #[serde(borrow, default)]
    pub(crate) uid: Option<Str<'a>>,
    #[serde(default)]
    pub(crate) controller: Option<bool>,
}

impl Meta<'_> {
    fn template_generation(&self) -> Option<i64> {
        self.annotations.as_ref()?.get(GENERATION_ANNOTATION)?.parse().ok()
    }

    pub(crate) fn key(&self, shared: &mut Interner) -> ObjectKey {
        ObjectKey {
            namespace: shared.intern_text(self.namespace.as_deref().unwrap_or_default()),
            name: self.name.as_deref().unwrap_or_default().into(),
        }
    }

    pub(crate) fn uid(&self) -> Text {
        self.uid.as_deref().unwrap_or_default().into()
    }

    pub(crate) fn resource_version(&self) -> u64 {
        self.resource_version.as_deref().and_then(|it| it.parse().ok()).unwrap_or_default()
    }

    pub(crate) fn generation(&self) -> i64 {
        self.generation.unwrap_or_default()
    }

    pub(crate) fn created(&self) -> Time {
        self.creation_timestamp.as_deref().and_then(Time::parse).unwrap_or_default()
    }

    pub(crate) fn labels(&self, shared: &mut Interner) -> Labels {
        shared.intern_labels(self.labels.iter().flatten().map(|(key, value)| (key.as_ref(), value.as_ref())))
    }

    /// The controlling DaemonSet's UID, `Some(None)` for an orphan, `None` where something else controls it.
    fn owner(&self, shared: &mut Interner) -> Option<Option<Text>> {
        let controller = self.owner_references.iter().flatten().find(|it| it.controller == Some(true));
        match controller {
            None => Some(None),
            Some(it) if it.kind.as_deref() == Some("DaemonSet") => {
                Some(Some(shared.intern_text(it.uid.as_deref().unwrap_or_default())))
            }
            Some(_) => None,
        }
    }
}

#[derive(Deserialize)]
struct RawSet<'a> {
    #[serde(borrow)]
    metadata: &'a RawValue,
    #[serde(borrow, default)]
    spec: Option<RawSetSpec<'a>>,
    #[serde(borrow, default)]
    status: Option<&'a RawValue>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawSetSpec<'a> {
    #[serde(borrow)]
    selector: Option<RawSelector<'a>>,
    #[serde(borrow)]
    template: Option<&'a RawValue>,
    #[serde(borrow)]
    update_strategy: Option<RawStrategy<'a>>,
    min_ready_seconds: Option<i64>,
    revision_history_limit: Option<i64>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct RawSelector<'a> {
    #[serde(borrow)]
    match_labels: Option<Pairs<'a>>,
    #[serde(borrow)]
    match_expressions: Option<Vec<RawRequirement<'a>>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(crate) struct RawRequirement<'a> {
    #[serde(borrow)]
    key: Option<Str<'a>>,
    #[serde(borrow)]
    operator: Option<Str<'a>>,
    #[serde(borrow)]
    values: Option<Vec<Str<'a>>>,
}

impl RawRequirement<'_> {
    fn values(&self) -> Vec<Text> {
        self.values.iter().flatten().map(|it| it.as_ref().into()).collect()
    }

    fn label_op(&self) -> Result<LabelOperator, String> {
        let key = self.key.as_deref().unwrap_or_default();
        let operator = self.operator.as_deref().unwrap_or_default();
        let values = self.values();
        if key.is_empty() {
            return Err("a requirement has no key".to_owned());
        }
        match (operator, values.is_empty()) {
            ("In", false) => Ok(LabelOperator::In(values)),
            ("NotIn", false) => Ok(LabelOperator::NotIn(values)),
            ("Exists", true) => Ok(LabelOperator::Exists),
            ("DoesNotExist", true) => Ok(LabelOperator::DoesNotExist),
            ("In" | "NotIn", true) => Err(format!("{key}: {operator} needs values")),
            ("Exists" | "DoesNotExist", false) => Err(format!("{key}: {operator} takes no values")),
            _ => Err(format!("{key}: {operator:?} is not an operator")),
        }
    }

    fn node_requirement(&self) -> Result<NodeRequirement, String> {
        let key = self.key.as_deref().unwrap_or_default();
        let operator = self.operator.as_deref().unwrap_or_default();
        if !matches!(operator, "Gt" | "Lt") {
            return self
                .label_op()
                .map(|op| NodeRequirement::Label(LabelRequirement { key: key.into(), operator: op }));
        }
        let values = self.values();
        let [value] = values.as_slice() else {
            return Err(format!("{key}: {operator} needs exactly one value"));
        };
        let than = value.parse().map_err(|_| format!("{key}: {operator} {value:?} is not a whole number"))?;
        Ok(match operator {
            "Gt" => NodeRequirement::Greater { key: key.into(), than },
            _ => NodeRequirement::Less { key: key.into(), than },
        })
    }

    fn field_requirement(&self) -> Result<NodeRequirement, String> {
        let key = self.key.as_deref().unwrap_or_default();
        if key != "metadata.name" {
            return Err(format!("field {key:?} is not metadata.name"));
        }
        let values = self.values();
        let [value] = values.as_slice() else { return Err(format!("{key}: needs exactly one value")) };
        match self.operator.as_deref().unwrap_or_default() {
            "In" => Ok(NodeRequirement::NameIs(value.clone())),
            "NotIn" => Ok(NodeRequirement::NameIsNot(value.clone())),
            other => Err(format!("{key}: {other:?} is neither In nor NotIn")),
        }
    }
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawStrategy<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<Str<'a>>,
    rolling_update: Option<RawRolling>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawRolling {
    max_unavailable: Option<Value>,
    max_surge: Option<Value>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawTemplate<'a> {
    #[serde(borrow)]
    metadata: Option<Meta<'a>>,
    #[serde(borrow)]
    spec: Option<RawPodSpec<'a>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawPodSpec<'a> {
    #[serde(borrow)]
    node_name: Option<Str<'a>>,
    #[serde(borrow)]
    node_selector: Option<Pairs<'a>>,
    #[serde(borrow)]
    affinity: Option<RawAffinity<'a>>,
    #[serde(borrow)]
    tolerations: Option<Vec<RawToleration<'a>>>,
    host_network: Option<bool>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawAffinity<'a> {
    #[serde(borrow)]
    node_affinity: Option<RawNodeAffinity<'a>>,
}

impl RawAffinity<'_> {
    /// Rule: an unbound daemon pod belongs to the node that its required affinity names: one term with one
    /// `matchFields metadata.name In [node]`. Upstream: `GetTargetNodeName`.
    fn pinned_to(&self) -> Option<&str> {
        let terms = self.node_affinity.as_ref()?.required.as_ref()?.terms.as_deref()?;
        terms.iter().flat_map(|term| term.match_fields.iter().flatten()).find_map(|it| {
            let names_a_node =
                it.key.as_deref() == Some("metadata.name") && it.operator.as_deref() == Some("In");
            match it.values.as_deref() {
                Some([node]) if names_a_node => Some(node.as_ref()),
                _ => None,
            }
        })
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawNodeAffinity<'a> {
    #[serde(borrow, rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    required: Option<RawRequired<'a>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawRequired<'a> {
    #[serde(borrow, rename = "nodeSelectorTerms")]
    terms: Option<Vec<RawTerm<'a>>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct RawTerm<'a> {
    #[serde(borrow)]
    match_expressions: Option<Vec<RawRequirement<'a>>>,
    #[serde(borrow)]
    match_fields: Option<Vec<RawRequirement<'a>>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(crate) struct RawToleration<'a> {
    #[serde(borrow)]
    key: Option<Str<'a>>,
    #[serde(borrow)]
    operator: Option<Str<'a>>,
    #[serde(borrow)]
    value: Option<Str<'a>>,
    #[serde(borrow)]
    effect: Option<Str<'a>>,
}

impl RawToleration<'_> {
    pub(crate) fn into_fact(self, shared: &mut Interner) -> Toleration {
        let key = shared.intern_text(self.key.as_deref().unwrap_or_default());
        let value = || shared.intern_text(self.value.as_deref().unwrap_or_default());
        let operator = self.operator.as_deref().unwrap_or_default();
        Toleration::new(key, operator, value, self.effect.as_deref().unwrap_or_default())
    }
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawStatus<'a> {
    observed_generation: Option<i64>,
    desired_number_scheduled: Option<i64>,
    current_number_scheduled: Option<i64>,
    number_ready: Option<i64>,
    updated_number_scheduled: Option<i64>,
    number_available: Option<i64>,
    number_unavailable: Option<i64>,
    number_misscheduled: Option<i64>,
    collision_count: Option<i32>,
    #[serde(borrow)]
    conditions: Option<Vec<RawCondition<'a>>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawCondition<'a> {
    #[serde(borrow, rename = "type")]
    kind: Str<'a>,
    #[serde(borrow)]
    status: Str<'a>,
    #[serde(borrow)]
    reason: Option<Str<'a>>,
    #[serde(borrow)]
    message: Option<Str<'a>>,
    #[serde(borrow)]
    last_transition_time: Option<Str<'a>>,
}

#[derive(Deserialize)]
struct RawNode<'a> {
    #[serde(borrow, default)]
    metadata: Meta<'a>,
    #[serde(borrow, default)]
    spec: Option<RawNodeSpec<'a>>,
    #[serde(borrow, default)]
    status: Option<RawNodeStatus<'a>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawNodeSpec<'a> {
    #[serde(borrow)]
    taints: Option<Vec<RawTaint<'a>>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawTaint<'a> {
    #[serde(borrow)]
    key: Option<Str<'a>>,
    #[serde(borrow)]
    value: Option<Str<'a>>,
    #[serde(borrow)]
    effect: Option<Str<'a>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawNodeStatus<'a> {
    #[serde(borrow)]
    conditions: Option<Vec<RawCondition<'a>>>,
}

#[derive(Deserialize)]
struct RawPod<'a> {
    #[serde(borrow, default)]
    metadata: Meta<'a>,
    #[serde(borrow, default)]
    spec: Option<RawPodSpec<'a>>,
    #[serde(borrow, default)]
    status: Option<RawPodStatus<'a>>,
}

impl RawPod<'_> {
    fn into_fact(self, owner: Option<Text>, shared: &mut Interner) -> Pod {
        let spec = self.spec.unwrap_or_default();
        let status = self.status.unwrap_or_default();
        let node_name = spec.node_name.as_deref().filter(|it| !it.is_empty());
        let target = node_name.or_else(|| spec.affinity.as_ref()?.pinned_to());
        let ready = status
            .conditions
            .iter()
            .flatten()
            .find(|it| it.kind.as_ref() == "Ready" && it.status.as_ref() == "True");
        let created = self.metadata.created();
        let tolerations = spec.tolerations.into_iter().flatten().map(|it| it.into_fact(shared)).collect();
        Pod {
            key: self.metadata.key(shared),
            uid: self.metadata.uid(),
            resource_version: self.metadata.resource_version(),
            owner,
            labels: self.metadata.labels(shared),
            target: target.map(|it| shared.intern_text(it)),
            bound: node_name.is_some(),
            created,
            deleting: self.metadata.deletion_timestamp.is_some(),
            phase: match status.phase.as_deref() {
                Some("Running") => Phase::Running,
                Some("Succeeded") => Phase::Succeeded,
                Some("Failed") => Phase::Failed,
                _ => Phase::Pending,
            },
            // A Ready pod whose time cannot be read has been so since it was made: the earliest it can be.
            ready_since: ready
                .map(|it| it.last_transition_time.as_deref().and_then(Time::parse).unwrap_or(created)),
            trouble: status.trouble().map(|it| shared.intern_text(it)),
            tolerations: shared.intern_tolerations(tolerations),
        }
    }
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawPodStatus<'a> {
    #[serde(borrow)]
    phase: Option<Str<'a>>,
    #[serde(borrow)]
    reason: Option<Str<'a>>,
    #[serde(borrow)]
    conditions: Option<Vec<RawCondition<'a>>>,
    #[serde(borrow)]
    init_container_statuses: Option<Vec<RawContainerStatus<'a>>>,
    #[serde(borrow)]
    container_statuses: Option<Vec<RawContainerStatus<'a>>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawContainerStatus<'a> {
    #[serde(borrow)]
    state: Option<RawContainerState<'a>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawContainerState<'a> {
    #[serde(borrow)]
    waiting: Option<RawWaiting<'a>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawWaiting<'a> {
    #[serde(borrow)]
    reason: Option<Str<'a>>,
}

impl RawPodStatus<'_> {
    /// Rule: a container that waits for something that will not come by itself is in trouble, in the kubelet's word;
    /// so is a pod that no node has room for, and a pod that failed.
    fn trouble(&self) -> Option<&str> {
        let containers = self.init_container_statuses.iter().chain(&self.container_statuses).flatten();
        let mut waiting = containers.filter_map(|it| it.state.as_ref()?.waiting.as_ref()?.reason.as_deref());
        let stuck = waiting.find(|reason| !matches!(*reason, "ContainerCreating" | "PodInitializing"));
        let failed =
            (self.phase.as_deref() == Some("Failed")).then(|| self.reason.as_deref().unwrap_or("Failed"));
        let unschedulable = || {
            let scheduled = self.conditions.iter().flatten().find(|it| it.kind.as_ref() == "PodScheduled")?;
            (scheduled.status.as_ref() == "False")
                .then(|| scheduled.reason.as_deref().unwrap_or("Unschedulable"))
        };
        stuck.or(failed).or_else(unschedulable)
    }
}

#[derive(Deserialize)]
struct RawRevision<'a> {
    #[serde(borrow, default)]
    metadata: Meta<'a>,
    #[serde(default)]
    data: Option<Value>,
    #[serde(default)]
    revision: Option<i64>,
}

impl RawRevision<'_> {
    fn into_fact(self, owner: Option<Text>, shared: &mut Interner) -> Revision {
        let data = self.data.unwrap_or(Value::Null);
        Revision {
            key: self.metadata.key(shared),
            uid: self.metadata.uid(),
            resource_version: self.metadata.resource_version(),
            owner,
            labels: self.metadata.labels(shared),
            number: self.revision.unwrap_or_default(),
            template_generation: self.metadata.template_generation(),
            meaning: template_equivalence::of_revision(&data),
            data: muster_api::go_json::to_string(&data).into(),
            created: self.metadata.created(),
            deleting: self.metadata.deletion_timestamp.is_some(),
        }
    }
}

#[cfg(test)]
mod tests;
