//! Decides whether a pod that is created from a template may be on a node. The DaemonSet controller, the scheduler, the
//! node agent and `muster explain` use this module.

/// Checks whether a node matches the required node affinity of a template.
pub(crate) mod affinity;
/// Checks whether `nodeName` of a template allows a node.
mod node_name;
/// Lists all requirements of a template that a node does not meet.
mod objections;
/// Checks whether a node matches the node selector of a template.
mod selector;
/// Checks the taints of a node against the tolerations of a template.
pub(crate) mod taints;

use muster_api::labels::Labels;

use crate::daemonset::facts::{Node, RequiredNodeAffinity, Template};
use crate::daemonset::why::Why;

pub use objections::{Objection, objections};

/// Whether a node should run a pod of a template. `Keep` and `Leave` hold the first requirement that the node does not
/// meet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The node should run a pod of the template.
    Run,
    /// No new pod is created on the node, but an existing pod that is bound to it is kept.
    Keep(Why),
    /// No new pod is created on the node, and an existing pod is deleted.
    Leave(Why),
}

/// Returns whether a node should run a pod of a template, may only keep an existing one, or must not have one.
///
/// Rule: the template's node name, node selector and required node affinity are checked first, then the node's taints.
/// The first requirement that is not met decides the verdict. Ports and resources are not checked, because the
/// scheduler checks them. So no pod is deleted because its node has too few resources.
/// Upstream: `NodeShouldRunDaemonPod`.
pub fn verdict(template: &Template, node: &Node) -> Verdict {
    let asked = node_name::check_node_name(template, node)
        .and_then(|()| check_selector_and_affinity(&template.node_selector, &template.affinity, node));
    match asked {
        Err(why) => Verdict::Leave(why),
        Ok(()) => taints::taint_verdict(&template.tolerations, node),
    }
}

/// Checks whether a node matches a node selector and a required node affinity. The error is the reason why it does not.
pub(crate) fn check_selector_and_affinity(
    node_selector: &Labels,
    affinity: &RequiredNodeAffinity,
    node: &Node,
) -> Result<(), Why> {
    selector::check_node_selector(node_selector, node)
        .and_then(|()| affinity::check_node_affinity(affinity, node))
}
