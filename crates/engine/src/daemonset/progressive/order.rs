//! The order in which nodes are admitted to a rollout, that is, assigned the current revision.

use alloc::format;
use alloc::string::String;

use muster_api::labels::Labels;
use muster_api::text::Text;

use crate::hash_ordered_map::hash_pair;

/// The order in which nodes are admitted to a rollout, that is, assigned the current revision. Upstream's rolling
/// update has no defined order: it updates nodes as they come from its cache.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum NodeOrder {
    /// Nodes are ordered by a hash of the stable revision and the node name, which spreads each step over racks and
    /// zones.
    #[default]
    Hash,
    /// Nodes are ordered by their name.
    Name,
    /// Nodes are ordered by the value of the label with this key. Values that are non-negative integers are compared as
    /// numbers and come before other values. Nodes without the label come last. Nodes with the same value are ordered
    /// as by `Hash`.
    Label(Text),
}

/// The position of a node in the order in which nodes are admitted to a rollout. It depends only on the node, the
/// stable revision and the [`NodeOrder`], so it does not change when other nodes join or leave.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct OrderKey(Text);

impl OrderKey {
    /// Creates a position from the text that the status of a DaemonRollout stores.
    pub fn from_stored(text: Text) -> Self {
        Self(text)
    }

    /// Returns the text that the status of a DaemonRollout stores for this position.
    pub fn as_text(&self) -> &Text {
        &self.0
    }
}

impl NodeOrder {
    /// Returns the position of a node in the order. `stable_hash` is the hash of the stable revision. `name` and
    /// `labels` are those of the node.
    ///
    /// Rule: nodes are admitted in the order of a hash of the stable revision and the node name, unless the policy
    /// orders them by name or label. Every rollout that starts from the same stable revision admits the same nodes
    /// first, so that a corrected template reaches the nodes of the failed rollout before it reaches others.
    pub fn key(&self, stable_hash: &str, name: &str, labels: &Labels) -> OrderKey {
        let hash = || format!("{:016x}", hash_pair(stable_hash, name));
        OrderKey(match self {
            Self::Hash => hash().into(),
            Self::Name => name.into(),
            // A space sorts before all characters of label values, so that `a` comes before `a-b`.
            Self::Label(key) => format!("{} {}", sortable_value(labels.get(key)), hash()).into(),
        })
    }
}

/// Returns a sort key for the value of a label: non-negative integers come first and are ordered by their value, then
/// come other values, and last a missing label.
fn sortable_value(value: Option<&Text>) -> String {
    match value {
        Some(value) => match value.parse::<u64>() {
            Ok(number) => format!("0{number:020}"),
            Err(_) => format!("1{value}"),
        },
        None => String::from("2"),
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    fn labels(value: Option<&str>) -> Labels {
        Labels::new(value.map(|it| (Text::from("rack"), Text::from(it))).into_iter().collect())
    }

    #[test]
    fn label_values_are_ordered_as_numbers_then_text_then_missing() {
        let order = NodeOrder::Label("rack".into());
        let mut nodes: Vec<(OrderKey, Option<&str>)> =
            [None, Some("b"), Some("10"), Some("a-b"), Some("9"), Some("a")]
                .into_iter()
                .map(|it| (order.key("s", "n", &labels(it)), it))
                .collect();
        nodes.sort();
        let values: Vec<Option<&str>> = nodes.into_iter().map(|(_, it)| it).collect();
        assert_eq!(values, [Some("9"), Some("10"), Some("a"), Some("a-b"), Some("b"), None]);
    }

    #[test]
    fn the_hash_order_depends_on_the_stable_revision_and_the_node_name_only() {
        let key = |stable, name| NodeOrder::Hash.key(stable, name, &labels(None));
        assert_eq!(key("s1", "n1"), NodeOrder::Hash.key("s1", "n1", &labels(Some("x"))));
        assert_ne!(key("s1", "n1"), key("s2", "n1"));
        assert_ne!(key("s1", "n1"), key("s1", "n2"));
        assert_eq!(OrderKey::from_stored(key("s1", "n1").as_text().clone()), key("s1", "n1"));
    }
}
