use alloc::format;

use muster_api::labels::Labels;

use crate::daemonset::facts::Node;
use crate::daemonset::why::Why;

/// Checks whether a node matches the node selector. The error is the reason why it does not.
///
/// Rule: the node must have every label of the node selector, with the same value.
pub(super) fn check_node_selector(selector: &Labels, node: &Node) -> Result<(), Why> {
    let missing = selector
        .iter()
        .find(|(key, value)| node.labels.get(key).is_none_or(|label| label.as_ref() != *value));
    match missing {
        Some((key, value)) => Err(Why::NodeSelectorMismatch { label: format!("{key}={value}").into() }),
        None => Ok(()),
    }
}
