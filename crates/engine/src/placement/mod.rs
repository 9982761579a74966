//! May a pod of this template be on this node? Asked by the DaemonSet rules, and by whoever explains them.

mod affinity;
mod node_name;
mod objections;
mod selector;
pub(crate) mod taints;

use crate::facts::{Node, Template, Truth};
use crate::mutant;
use crate::why::Why;

pub use objections::{Objection, objections};
pub use taints::tolerates;

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
    let asked = node_name::named(template, node)
        .and_then(|()| selector::selected(template, node))
        .and_then(|()| affinity::attracted(template, node));
    match asked {
        Err(why) => Verdict::Leave(why),
        Ok(()) if mutant::is("B23") && node.ready.status != Truth::True => {
            Verdict::Leave(Why::AffinityMatchesNotThisNode)
        }
        Ok(()) => taints::weigh(&template.tolerations, node),
    }
}
