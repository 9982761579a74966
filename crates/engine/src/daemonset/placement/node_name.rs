use crate::daemonset::facts::{Node, Template};
use crate::daemonset::why::Why;

/// Checks whether the template's `nodeName` allows a node. The error is the reason why it does not.
///
/// Rule: a pod of a template with `nodeName` runs only on the node with that name.
pub(super) fn check_node_name(template: &Template, node: &Node) -> Result<(), Why> {
    match &template.node_name {
        Some(named) if *named != node.name => Err(Why::NodeNameMismatch { named: named.clone() }),
        _ => Ok(()),
    }
}
