use crate::daemonset::facts::{Node, NodeRequirement, RequiredNodeAffinity, Term};
use crate::daemonset::why::Why;

/// Checks whether a node matches the required node affinity. The error is the reason why it does not.
///
/// Rule: the node must match all requirements of at least one term of the required node affinity. An empty term, an
/// empty list of terms and a term that cannot be parsed match no node. Preferred node affinity is ignored here, because
/// only the scheduler uses it.
pub(super) fn check_node_affinity(affinity: &RequiredNodeAffinity, node: &Node) -> Result<(), Why> {
    let RequiredNodeAffinity::AnyOf(terms) = affinity else { return Ok(()) };
    if terms.iter().any(|it| matches_term(it, node)) {
        return Ok(());
    }
    let unreadable = terms.iter().find_map(|term| match term {
        Term::Unreadable(problem) => Some(problem.clone()),
        Term::AllOf(_) => None,
    });
    Err(unreadable.map_or(Why::NodeAffinityMismatch, |problem| Why::NodeAffinityInvalid { problem }))
}

/// Whether a node matches a node selector term.
pub(crate) fn matches_term(term: &Term, node: &Node) -> bool {
    match term {
        Term::AllOf(requirements) => {
            !requirements.is_empty() && requirements.iter().all(|it| matches_requirement(it, node))
        }
        Term::Unreadable(_) => false,
    }
}

/// Whether a node meets one requirement of a node selector term.
///
/// Rule: a requirement compares a label of the node (`matchExpressions`) or the name of the node (`matchFields`).
pub(super) fn matches_requirement(requirement: &NodeRequirement, node: &Node) -> bool {
    match requirement {
        NodeRequirement::Label(label) => label.matches(&node.labels),
        NodeRequirement::NameIs(name) => *name == node.name,
        NodeRequirement::NameIsNot(name) => *name != node.name,
    }
}
