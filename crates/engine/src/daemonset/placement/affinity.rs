use crate::daemonset::facts::{Affinity, Node, NodeRequirement, Term};
use crate::daemonset::why::Why;

/// Rule: one term of the required node affinity must hold, whole; an empty term, an empty list and a term that cannot
/// be read hold nowhere. Preferred affinity is the scheduler's business.
pub(super) fn check(affinity: &Affinity, node: &Node) -> Result<(), Why> {
    let Affinity::AnyOf(terms) = affinity else { return Ok(()) };
    if terms.iter().any(|it| matches_term(it, node)) {
        return Ok(());
    }
    let unreadable = terms.iter().find_map(|term| match term {
        Term::Unreadable(problem) => Some(problem.clone()),
        Term::AllOf(_) => None,
    });
    Err(unreadable.map_or(Why::AffinityMatchesNotThisNode, |problem| Why::AffinityCannotBeRead { problem }))
}

/// Whether a node is one that a term describes.
pub(crate) fn matches_term(term: &Term, node: &Node) -> bool {
    match term {
        Term::AllOf(requirements) => {
            !requirements.is_empty() && requirements.iter().all(|it| matches_requirement(it, node))
        }
        Term::Unreadable(_) => false,
    }
}

/// Rule: a requirement is about a label of the node, or about its name.
pub(super) fn matches_requirement(requirement: &NodeRequirement, node: &Node) -> bool {
    match requirement {
        NodeRequirement::Label(label) => label.matches(&node.labels),
        NodeRequirement::NameIs(name) => *name == node.name,
        NodeRequirement::NameIsNot(name) => *name != node.name,
    }
}
