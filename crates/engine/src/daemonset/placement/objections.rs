//! Objections: all requirements of a template that a node does not meet. A [`Verdict`](super::Verdict) holds only the
//! first unmet requirement.

use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use core::fmt;

use muster_api::taints::{TaintEffect, any_tolerates};

use super::affinity::matches_requirement;
use crate::daemonset::facts::{Node, NodeRequirement, RequiredNodeAffinity, Template, Term};

/// One requirement of a pod template that a node does not meet.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Objection {
    /// The requirement as a message. It is the same for all nodes that do not meet the requirement.
    pub requirement: String,
    /// The value that the node has instead of the required one, as a message, such as `the node has no label disk`.
    /// `None` if the message `requirement` is sufficient.
    pub node_value: Option<String>,
}

impl fmt::Display for Objection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.requirement)?;
        self.node_value.as_ref().map_or(Ok(()), |it| write!(f, "; {it}"))
    }
}

/// Returns all requirements of a template that a node does not meet.
///
/// Rule: unmet requirements are listed in the order in which placement checks them: the node name, each label of the
/// node selector, each term of the node affinity with its first unmet requirement (if the node matches no term), each
/// untolerated `NoExecute` taint, each untolerated `NoSchedule` taint.
pub fn objections(template: &Template, node: &Node) -> Vec<Objection> {
    let mut all = Vec::new();
    if let Some(named) = template.node_name.as_ref().filter(|it| **it != node.name) {
        all.push(Objection { requirement: format!("the template has nodeName {named}"), node_value: None });
    }
    for (key, value) in template.node_selector.iter() {
        if node.labels.get(key).is_none_or(|it| it.as_ref() != value) {
            let requirement = format!("the node selector requires {key}={value}");
            all.push(Objection { requirement, node_value: Some(label_text(node, key)) });
        }
    }
    all.extend(affinity_objections(template, node));
    for effect in [TaintEffect::NoExecute, TaintEffect::NoSchedule] {
        let untolerated = node.taints.iter().filter(|it| it.effect == effect);
        for taint in untolerated.filter(|it| !any_tolerates(&template.tolerations, it)) {
            all.push(Objection { requirement: format!("taint {taint} is not tolerated"), node_value: None });
        }
    }
    all
}

/// Returns the objections that follow from the required node affinity. Empty if the node matches at least one term, or
/// if the template has no required node affinity. Otherwise there is one objection for each term, or a single one if
/// the affinity has no terms.
fn affinity_objections(template: &Template, node: &Node) -> Vec<Objection> {
    let RequiredNodeAffinity::AnyOf(terms) = &template.affinity else { return Vec::new() };
    let several = 1 < terms.len();
    let mut all = Vec::new();
    for (at, term) in (1..).zip(terms) {
        let which = if several { format!("node affinity, term {at},") } else { "node affinity".to_string() };
        let (requirement, node_value) = match term {
            Term::Unreadable(problem) => (format!("{which} is invalid: {problem}"), None),
            Term::AllOf(all) if all.is_empty() => (format!("{which} is empty, which matches no node"), None),
            Term::AllOf(all) => match all.iter().find(|it| !matches_requirement(it, node)) {
                None => return Vec::new(),
                Some(it) => (
                    format!("{which} requires {it}"),
                    requirement_label_key(it).map(|key| label_text(node, key)),
                ),
            },
        };
        all.push(Objection { requirement, node_value });
    }
    if terms.is_empty() {
        let requirement = "the node affinity has no terms, which matches no node".to_string();
        all.push(Objection { requirement, node_value: None });
    }
    all
}

/// Returns the key of the label that a requirement compares. `None` if the requirement compares the name of the node.
fn requirement_label_key(requirement: &NodeRequirement) -> Option<&str> {
    match requirement {
        NodeRequirement::Label(it) => Some(&it.key),
        NodeRequirement::NameIs(_) | NodeRequirement::NameIsNot(_) => None,
    }
}

/// Returns a message about a label of a node: its value, or that the node does not have the label.
fn label_text(node: &Node, key: &str) -> String {
    match node.labels.get(key) {
        Some(value) => format!("the node has {key}={value}"),
        None => format!("the node has no label {key}"),
    }
}

impl fmt::Display for NodeRequirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Label(it) => write!(f, "{it}"),
            Self::NameIs(name) => write!(f, "the name {name}"),
            Self::NameIsNot(name) => write!(f, "a name other than {name}"),
        }
    }
}
