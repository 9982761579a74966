use alloc::format;

use crate::facts::{Node, Template};
use crate::why::Why;

/// Rule: every pair of the node selector must be among the node's labels.
pub(super) fn selected(template: &Template, node: &Node) -> Result<(), Why> {
    let missing = template
        .node_selector
        .iter()
        .find(|(key, value)| node.labels.get(key).is_none_or(|label| label.as_ref() != *value));
    match missing {
        Some((key, value)) => Err(Why::SelectorAsksForLabel { label: format!("{key}={value}").into() }),
        None => Ok(()),
    }
}
