//! Whether a pod of a template may be on a node. Used by the DaemonSet controller, the scheduler and `muster explain`.

pub(crate) mod affinity;
mod node_name;
mod objections;
mod selector;
pub(crate) mod taints;

use muster_api::labels::Labels;

use crate::daemonset::facts::{Affinity, Node, Template};
use crate::daemonset::why::Why;

pub use objections::{Objection, objections};

/// What a template says to a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    Run,
    /// No new pod, but the one that is here may stay.
    Keep(Why),
    Leave(Why),
}

/// Rule: the strictest rule wins. What the template asks of the node's name and labels must hold; then its taints are
/// weighed. Whether the pod fits (ports, resources) is the scheduler's to say, so that a template that no longer fits
/// removes nothing. Upstream: `NodeShouldRunDaemonPod`.
pub fn verdict(template: &Template, node: &Node) -> Verdict {
    let asked = node_name::check(template, node)
        .and_then(|()| wanted(&template.node_selector, &template.affinity, node));
    match asked {
        Err(why) => Verdict::Leave(why),
        Ok(()) => taints::verdict(&template.tolerations, node),
    }
}

/// Whether a node has what is asked of its labels.
pub(crate) fn wanted(node_selector: &Labels, affinity: &Affinity, node: &Node) -> Result<(), Why> {
    selector::check(node_selector, node).and_then(|()| affinity::check(affinity, node))
}
