//! The oracle: a second, simple implementation of the DaemonSet rules, on the authoritative state. It calls no rule of
//! the engine, so that the engine is not compared with itself.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use muster_api::labels::LabelOperator;
use muster_api::meta::ObjectKey;
use muster_api::taints::{Taint, TaintEffect, Toleration, TolerationOperator};
use muster_api::text::Text;
use muster_api::time::Time;
use muster_engine::daemonset::facts::{
    Affinity, Counts, Kind, Node, NodeRequirement, Pod, Revision, Rollout, Selector, Set, Term, Truth,
    Watched,
};

use crate::server::Server;

/// The state of the cluster at one revision per kind: the current state, or the state that a controller saw.
#[derive(Debug, Default)]
pub struct View {
    pub sets: BTreeMap<ObjectKey, Arc<Set>>,
    pub nodes: BTreeMap<Text, Arc<Node>>,
    pub pods: BTreeMap<ObjectKey, Arc<Pod>>,
    pub revisions: BTreeMap<ObjectKey, Arc<Revision>>,
}

impl View {
    pub fn now(server: &Server) -> Self {
        Self {
            sets: server.sets.clone(),
            nodes: server.nodes.clone(),
            pods: server.pods.clone(),
            revisions: server.revisions.clone(),
        }
    }

    pub fn at(server: &Server, snapshot: &BTreeMap<Kind, u64>) -> Self {
        let mut view = Self::default();
        for (kind, revision) in snapshot {
            for fact in server.list(*kind, *revision) {
                match fact {
                    Watched::Set(it) => drop(view.sets.insert(it.key.clone(), it)),
                    Watched::Node(it) => drop(view.nodes.insert(it.name.clone(), it)),
                    Watched::Pod(it) => drop(view.pods.insert(it.key.clone(), it)),
                    Watched::Revision(it) => drop(view.revisions.insert(it.key.clone(), it)),
                    _ => {}
                }
            }
        }
        view
    }

    /// The pods that the set controls.
    pub fn pods_of<'a>(&'a self, set: &'a Set) -> impl Iterator<Item = &'a Arc<Pod>> {
        self.pods
            .values()
            .filter(|it| it.owner.as_ref() == Some(&set.uid) && it.key.namespace == set.key.namespace)
    }

    /// The pods of the set on a node.
    pub fn pods_on<'a>(&'a self, set: &'a Set, node: &'a str) -> impl Iterator<Item = &'a Arc<Pod>> {
        self.pods_of(set).filter(move |it| it.target.as_deref() == Some(node))
    }

    pub fn revisions_of<'a>(&'a self, set: &'a Set) -> impl Iterator<Item = &'a Arc<Revision>> {
        self.revisions
            .values()
            .filter(|it| it.owner.as_ref() == Some(&set.uid) && it.key.namespace == set.key.namespace)
    }

    /// The nodes on which the set should run a pod.
    pub fn eligible_nodes<'a>(&'a self, set: &'a Set) -> impl Iterator<Item = &'a Arc<Node>> {
        self.nodes.values().filter(|it| eligible(set, it))
    }

    /// The revision hashes that stand for the current template.
    pub fn new_hashes(&self, set: &Set) -> BTreeSet<Text> {
        let same = self.revisions_of(set).filter(|it| means(set, it));
        same.filter_map(|it| it.hash().cloned()).collect()
    }

    pub fn is_new(&self, set: &Set, pod: &Pod) -> bool {
        self.is_new_by(set, pod, &self.new_hashes(set))
    }

    /// The creation time of the current revision.
    pub fn current_since(&self, set: &Set) -> Option<Time> {
        let same = self.revisions_of(set).filter(|it| means(set, it));
        same.max_by_key(|it| (!it.deleting, it.data == set.template.data, it.number, it.key.name.clone()))
            .map(|it| it.created)
    }

    /// Number of nodes that count against the rollout budget, as described in docs/differences.md.
    pub fn charged(&self, set: &Set, now: Time) -> usize {
        self.charged_nodes(set, now).len()
    }

    pub fn charged_nodes<'a>(&'a self, set: &'a Set, now: Time) -> Vec<&'a str> {
        let hashes = self.new_hashes(set);
        let new = |it: &Pod| self.is_new_by(set, it, &hashes);
        let names: BTreeSet<&str> = self
            .nodes
            .keys()
            .map(|it| it.as_ref())
            .chain(self.pods_of(set).filter_map(|it| it.target.as_deref()))
            .collect();
        let since = self.current_since(set);
        names.into_iter().filter(|name| self.is_charged(set, name, &new, since, now)).collect()
    }

    fn is_new_by(&self, set: &Set, pod: &Pod, hashes: &BTreeSet<Text>) -> bool {
        // A pod that is older than the set got its label from another set.
        let generation = set.template_generation.filter(|_| set.created <= pod.created);
        let generation = generation.map(|it| it.to_string());
        pod.hash().is_some_and(|it| hashes.contains(it))
            || generation.is_some_and(|it| {
                pod.labels.get("pod-template-generation").map(|it| it.as_ref()) == Some(it.as_str())
            })
    }

    fn is_charged(
        &self,
        set: &Set,
        name: &str,
        new: &dyn Fn(&Pod) -> bool,
        since: Option<Time>,
        now: Time,
    ) -> bool {
        let pods: Vec<&Arc<Pod>> = self.pods_on(set, name).filter(|it| !gone(it)).collect();
        let has_new = pods.iter().any(|it| new(it));
        let new_available = pods.iter().any(|it| new(it) && available(set, it, now));
        if self.nodes.get(name).is_some_and(|it| lost(it, since)) {
            return false;
        }
        if has_new && !new_available {
            return true;
        }
        if matches!(set.rollout, Rollout::Surge(_)) {
            return false;
        }
        let Some(node) = self.nodes.get(name) else { return false };
        let up = pods.iter().any(|it| live(it) && if new(it) { available(set, it, now) } else { ready(it) });
        if !keeps(set, node) {
            return false;
        }
        let real: Vec<&Taint> = untolerated(set, node).into_iter().filter(|it| !is_trouble(it)).collect();
        if real.is_empty() {
            let before = node.ready.since.is_some_and(|it| since.is_some_and(|since| it < since));
            let in_trouble = node.ready.status != Truth::True && !eligible(set, node);
            return !(up || in_trouble && before && pods.is_empty());
        }
        pods.iter().any(|it| it.deleting && real.iter().all(|taint| tolerated(&it.tolerations, taint)))
    }

    /// The expected counts of the status.
    pub fn counts(&self, set: &Set, now: Time) -> Counts {
        let hashes = self.new_hashes(set);
        let mut counts = Counts::default();
        for node in self.nodes.values() {
            let pods: Vec<&Arc<Pod>> = self.pods_on(set, &node.name).filter(|it| !gone(it)).collect();
            if !eligible(set, node) {
                counts.misscheduled += i64::from(!pods.is_empty());
                continue;
            }
            counts.desired += 1;
            let rank = |it: &Pod| {
                let (is_available, new) = (available(set, it, now), self.is_new_by(set, it, &hashes));
                match (is_available, new) {
                    (true, true) => 4,
                    (true, false) => 3,
                    _ if live(it) && ready(it) => 2,
                    _ => i32::from(!it.deleting),
                }
            };
            let counted = pods
                .iter()
                .max_by(|a, b| (rank(a), a.created, &b.key.name).cmp(&(rank(b), b.created, &a.key.name)));
            let Some(pod) = counted else { continue };
            counts.current += 1;
            counts.ready += i64::from(live(pod) && ready(pod));
            counts.available += i64::from(available(set, pod, now));
            counts.updated += i64::from(self.is_new_by(set, pod, &hashes));
        }
        counts.unavailable = counts.desired - counts.available;
        counts
    }
}

pub fn budget(set: &Set, desired: usize) -> usize {
    match set.rollout {
        Rollout::OnDelete => 0,
        Rollout::Drain(share) | Rollout::Surge(share) => match share {
            muster_engine::daemonset::facts::Share::Count(count) => count as usize,
            muster_engine::daemonset::facts::Share::Percent(percent) => {
                (desired * percent as usize).div_ceil(100).max(usize::from(0 < percent))
            }
        },
    }
}

pub fn means(set: &Set, revision: &Revision) -> bool {
    revision.data == set.template.data || revision.meaning == Some(set.template.meaning)
}

pub fn live(pod: &Pod) -> bool {
    !pod.deleting && !term(pod)
}

pub fn term(pod: &Pod) -> bool {
    matches!(
        pod.phase,
        muster_engine::daemonset::facts::Phase::Failed | muster_engine::daemonset::facts::Phase::Succeeded
    )
}

pub fn gone(pod: &Pod) -> bool {
    pod.deleting && term(pod)
}

pub fn ready(pod: &Pod) -> bool {
    pod.ready_since.is_some()
}

pub fn available(set: &Set, pod: &Pod, now: Time) -> bool {
    live(pod) && pod.ready_since.is_some_and(|since| set.min_ready.is_zero() || since + set.min_ready <= now)
}

pub fn lost(node: &Node, current_since: Option<Time>) -> bool {
    node.ready.status == Truth::Unknown
        && node.ready.since.is_some_and(|since| current_since.is_some_and(|current| since < current))
}

pub fn tolerated(tolerations: &[Toleration], taint: &Taint) -> bool {
    for toleration in tolerations {
        let effect = toleration.effect.is_none() || toleration.effect == Some(taint.effect);
        let key = toleration.key.is_empty() || toleration.key == taint.key;
        let value = match &toleration.operator {
            TolerationOperator::Exists => true,
            TolerationOperator::Equal(value) => *value == taint.value,
            TolerationOperator::Unknown => false,
        };
        if effect && key && value {
            return true;
        }
    }
    false
}

fn is_trouble(taint: &Taint) -> bool {
    taint.key.as_ref() == "node.kubernetes.io/not-ready"
        || taint.key.as_ref() == "node.kubernetes.io/unreachable"
}

/// Whether pods of the set tolerate a taint, by the template's tolerations or the automatic ones.
fn pod_tolerates(set: &Set, taint: &Taint) -> bool {
    let raw: serde_json::Value = serde_json::from_str(&set.template.raw).unwrap_or_default();
    let on_host = raw["spec"]["hostNetwork"] == true;
    let automatic = match (taint.key.as_ref(), taint.effect) {
        ("node.kubernetes.io/not-ready" | "node.kubernetes.io/unreachable", TaintEffect::NoExecute) => true,
        (
            "node.kubernetes.io/disk-pressure"
            | "node.kubernetes.io/memory-pressure"
            | "node.kubernetes.io/pid-pressure"
            | "node.kubernetes.io/unschedulable",
            TaintEffect::NoSchedule,
        ) => true,
        ("node.kubernetes.io/network-unavailable", TaintEffect::NoSchedule) => on_host,
        _ => false,
    };
    automatic || tolerated(&set.template.tolerations, taint)
}

fn untolerated<'a>(set: &Set, node: &'a Node) -> Vec<&'a Taint> {
    node.taints.iter().filter(|it| it.effect == TaintEffect::NoSchedule && !pod_tolerates(set, it)).collect()
}

/// Whether the node matches the template's node name, node selector and node affinity.
pub fn wanted(set: &Set, node: &Node) -> bool {
    let template = &set.template;
    let named = template.node_name.as_ref().is_none_or(|it| *it == node.name);
    let selected = template
        .node_selector
        .iter()
        .all(|(key, value)| node.labels.get(key).map(|it| it.as_ref()) == Some(value));
    let attracted = match &template.affinity {
        Affinity::Anywhere => true,
        Affinity::AnyOf(terms) => terms.iter().any(|term| match term {
            Term::Unreadable(_) => false,
            Term::AllOf(all) => !all.is_empty() && all.iter().all(|it| required(it, node)),
        }),
    };
    named && selected && attracted
}

fn required(requirement: &NodeRequirement, node: &Node) -> bool {
    let number = |key: &str| node.labels.get(key).and_then(|it| it.parse::<i64>().ok());
    match requirement {
        NodeRequirement::Label(it) => {
            let value = node.labels.get(&it.key);
            match &it.operator {
                LabelOperator::In(values) => value.is_some_and(|it| values.contains(it)),
                LabelOperator::NotIn(values) => !value.is_some_and(|it| values.contains(it)),
                LabelOperator::Exists => value.is_some(),
                LabelOperator::DoesNotExist => value.is_none(),
            }
        }
        NodeRequirement::Greater { key, than } => number(key).is_some_and(|it| *than < it),
        NodeRequirement::Less { key, than } => number(key).is_some_and(|it| it < *than),
        NodeRequirement::NameIs(name) => *name == node.name,
        NodeRequirement::NameIsNot(name) => *name != node.name,
    }
}

pub fn keeps(set: &Set, node: &Node) -> bool {
    wanted(set, node)
        && !node.taints.iter().any(|it| it.effect == TaintEffect::NoExecute && !pod_tolerates(set, it))
}

pub fn eligible(set: &Set, node: &Node) -> bool {
    keeps(set, node) && untolerated(set, node).is_empty()
}

pub fn selects(set: &Set, labels: &muster_api::labels::Labels) -> bool {
    match &set.selector {
        Selector::AllOf(all) => all.iter().all(|it| {
            let value = labels.get(&it.key);
            match &it.operator {
                LabelOperator::In(values) => value.is_some_and(|it| values.contains(it)),
                LabelOperator::NotIn(values) => !value.is_some_and(|it| values.contains(it)),
                LabelOperator::Exists => value.is_some(),
                LabelOperator::DoesNotExist => value.is_none(),
            }
        }),
        Selector::Everything | Selector::Unreadable(_) => false,
    }
}
