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

/// Whether the pod of a template may run on a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    Run,
    /// No new pod is created, but the existing one is kept.
    Keep(Why),
    Leave(Why),
}

/// Rule: the strictest rule wins: first the template's node name, node selector and required node affinity, then the
/// node's taints. Ports and resources are left to the scheduler, so that a template that no longer fits deletes no pod.
/// Upstream: `NodeShouldRunDaemonPod`.
pub fn verdict(template: &Template, node: &Node) -> Verdict {
    let asked = node_name::check_node_name(template, node)
        .and_then(|()| wanted(&template.node_selector, &template.affinity, node));
    match asked {
        Err(why) => Verdict::Leave(why),
        Ok(()) => taints::taint_verdict(&template.tolerations, node),
    }
}

/// Checks the node selector and the required node affinity.
pub(crate) fn wanted(node_selector: &Labels, affinity: &Affinity, node: &Node) -> Result<(), Why> {
    selector::check_node_selector(node_selector, node)
        .and_then(|()| affinity::check_node_affinity(affinity, node))
}
