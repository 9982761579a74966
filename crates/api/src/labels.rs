//! Labels and label requirements.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use crate::text::Text;

/// Labels, sorted by key and shared between objects with equal labels.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Labels(Arc<[(Text, Text)]>);

impl Labels {
    /// Sorts the pairs; of duplicate keys, the lowest value stays.
    pub fn new(mut pairs: Vec<(Text, Text)>) -> Self {
        pairs.sort();
        pairs.dedup_by(|later, first| later.0 == first.0);
        Self(pairs.into())
    }

    /// Wraps pairs that are sorted and have no duplicate keys.
    pub(crate) fn from_sorted(pairs: Arc<[(Text, Text)]>) -> Self {
        Self(pairs)
    }

    pub fn get(&self, key: &str) -> Option<&Text> {
        let at = self.0.binary_search_by(|(k, _)| k.as_ref().cmp(key)).ok()?;
        self.0.get(at).map(|(_, value)| value)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_ref(), value.as_ref()))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// One requirement of a label selector. A missing label satisfies only `NotIn` and `DoesNotExist`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LabelRequirement {
    pub key: Text,
    pub operator: LabelOperator,
}

/// Operator and values of a label requirement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LabelOperator {
    In(Vec<Text>),
    NotIn(Vec<Text>),
    Exists,
    DoesNotExist,
}

impl LabelRequirement {
    /// Rule: whether the labels satisfy the requirement. Upstream: `labels.Requirement.Matches`.
    pub fn matches(&self, labels: &Labels) -> bool {
        let value = labels.get(&self.key);
        match &self.operator {
            LabelOperator::In(values) => value.is_some_and(|it| values.contains(it)),
            LabelOperator::NotIn(values) => value.is_none_or(|it| !values.contains(it)),
            LabelOperator::Exists => value.is_some(),
            LabelOperator::DoesNotExist => value.is_none(),
        }
    }
}

impl fmt::Display for LabelRequirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = &self.key;
        match &self.operator {
            LabelOperator::In(values) if values.len() == 1 => write!(f, "{key}={}", values.concat()),
            LabelOperator::In(values) => write!(f, "{key} in ({})", values.join(", ")),
            LabelOperator::NotIn(values) => write!(f, "{key} not in ({})", values.join(", ")),
            LabelOperator::Exists => write!(f, "a label {key}"),
            LabelOperator::DoesNotExist => write!(f, "no label {key}"),
        }
    }
}
