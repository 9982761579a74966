//! Labels and label selectors.

use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use crate::text::Text;

/// Labels, sorted by key. Objects with equal labels may share one list in memory.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Labels(Arc<[(Text, Text)]>);

impl Labels {
    /// Creates labels from unsorted pairs. If a key occurs several times, its lowest value is used.
    pub fn new(mut pairs: Vec<(Text, Text)>) -> Self {
        pairs.sort();
        pairs.dedup_by(|later, first| later.0 == first.0);
        Self(pairs.into())
    }

    /// Creates labels from pairs that are sorted and have no duplicate keys.
    pub(crate) fn from_sorted(pairs: Arc<[(Text, Text)]>) -> Self {
        Self(pairs)
    }

    /// Returns the value of a label, or `None` if there is no such label.
    pub fn get(&self, key: &str) -> Option<&Text> {
        let at = self.0.binary_search_by(|(k, _)| k.as_ref().cmp(key)).ok()?;
        self.0.get(at).map(|(_, value)| value)
    }

    /// Returns the keys and values, sorted by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_ref(), value.as_ref()))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A label selector. Upstream: `labels.Selector`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Selector {
    /// A selector that matches nothing, such as a null selector.
    #[default]
    Nothing,
    /// A selector that matches if all requirements match. Without requirements it matches everything.
    AllOf(Vec<LabelRequirement>),
}

impl Selector {
    /// Creates a selector that matches the labels that have all these pairs of key and value, as `spec.selector` of a
    /// Service does. Upstream: `labels.SelectorFromSet`.
    pub fn from_pairs<'a>(pairs: impl Iterator<Item = (&'a str, &'a str)>) -> Self {
        Self::AllOf(pairs.map(|(key, value)| LabelRequirement::equals(key, value)).collect())
    }

    /// Creates a selector from the pairs of key and value in `matchLabels`, and from key, operator and values of each
    /// element of `matchExpressions`. The error is a message about the first invalid element.
    pub fn from_labels_and_expressions<'a>(
        labels: impl Iterator<Item = (&'a str, &'a str)>,
        expressions: impl Iterator<Item = (&'a str, &'a str, Vec<Text>)>,
    ) -> Result<Self, String> {
        let labels = labels.map(|(key, value)| Ok(LabelRequirement::equals(key, value)));
        let expressions =
            expressions.map(|(key, operator, values)| LabelRequirement::parse(key, operator, values));
        labels.chain(expressions).collect::<Result<_, _>>().map(Self::AllOf)
    }

    /// Whether the selector matches the labels.
    pub fn matches(&self, labels: &Labels) -> bool {
        self.matches_lookup(|key| labels.get(key).map(|it| &**it))
    }

    /// Whether the selector matches an object. `lookup` returns the value of the object's label with a key, or `None`
    /// if the object does not have the label.
    pub fn matches_lookup<'a>(&self, lookup: impl Fn(&str) -> Option<&'a str>) -> bool {
        match self {
            Self::Nothing => false,
            Self::AllOf(all) => all.iter().all(|it| it.matches_value(lookup(&it.key))),
        }
    }

    /// Returns the selector as the value of the query parameter `labelSelector`, not percent-encoded. `None` if the
    /// selector matches nothing.
    pub fn to_query(&self) -> Option<String> {
        let Self::AllOf(requirements) = self else { return None };
        let one = |it: &LabelRequirement| {
            let (key, of) = (&it.key, |values: &[Text]| values.join(","));
            match &it.operator {
                LabelOperator::In(values) => format!("{key} in ({})", of(values)),
                LabelOperator::NotIn(values) => format!("{key} notin ({})", of(values)),
                LabelOperator::Exists => key.to_string(),
                LabelOperator::DoesNotExist => format!("!{key}"),
                LabelOperator::GreaterThan(bound) => format!("{key}>{bound}"),
                LabelOperator::LessThan(bound) => format!("{key}<{bound}"),
            }
        };
        let parts: Vec<String> = requirements.iter().map(one).collect();
        Some(parts.join(","))
    }

    /// Whether the selector has no requirements and matches everything. Upstream: `Selector.Empty`.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::AllOf(all) if all.is_empty())
    }
}

/// One requirement of a label selector or of a node selector. A missing label satisfies only `NotIn` and
/// `DoesNotExist`. Upstream: `labels.Requirement`.
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
    /// The value of the label is an integer greater than this integer.
    GreaterThan(i64),
    /// The value of the label is an integer less than this integer.
    LessThan(i64),
}

impl LabelRequirement {
    /// Creates the requirement `key=value`.
    pub fn equals(key: &str, value: &str) -> Self {
        Self { key: key.into(), operator: LabelOperator::In([value.into()].into()) }
    }

    /// Parses a requirement of a label selector (`matchExpressions`). The error is a message for the user.
    pub fn parse(key: &str, operator: &str, values: Vec<Text>) -> Result<Self, String> {
        if key.is_empty() {
            return Err("a requirement has no key".into());
        }
        let parsed = match (operator, values.is_empty()) {
            ("In", false) => LabelOperator::In(values),
            ("NotIn", false) => LabelOperator::NotIn(values),
            ("Exists", true) => LabelOperator::Exists,
            ("DoesNotExist", true) => LabelOperator::DoesNotExist,
            ("In" | "NotIn", true) => return Err(format!("{key}: {operator} needs values")),
            ("Exists" | "DoesNotExist", false) => return Err(format!("{key}: {operator} takes no values")),
            _ => return Err(format!("{key}: {operator:?} is not an operator")),
        };
        Ok(Self { key: key.into(), operator: parsed })
    }

    /// Parses a requirement of a node selector, which may also have the operators `Gt` and `Lt`. The error is a message
    /// for the user.
    pub fn parse_for_node(key: &str, operator: &str, values: Vec<Text>) -> Result<Self, String> {
        if !matches!(operator, "Gt" | "Lt") {
            return Self::parse(key, operator, values);
        }
        let [value] = values.as_slice() else {
            return Err(format!("{key}: {operator} needs exactly one value"));
        };
        let bound =
            value.parse().map_err(|_| format!("{key}: {operator} {value:?} is not a whole number"))?;
        let parsed = match operator {
            "Gt" => LabelOperator::GreaterThan(bound),
            _ => LabelOperator::LessThan(bound),
        };
        Ok(Self { key: key.into(), operator: parsed })
    }

    /// Whether the labels satisfy the requirement.
    pub fn matches(&self, labels: &Labels) -> bool {
        self.matches_value(labels.get(&self.key).map(|it| &**it))
    }

    /// Whether this value of the label satisfies the requirement. The value is `None` if the object does not have the
    /// label.
    ///
    /// Rule: a missing label satisfies only `NotIn` and `DoesNotExist`. Upstream: `labels.Requirement.Matches`.
    pub fn matches_value(&self, value: Option<&str>) -> bool {
        let is_in = |values: &[Text]| value.is_some_and(|value| values.iter().any(|it| **it == *value));
        let number = || value.and_then(|it| it.parse::<i64>().ok());
        match &self.operator {
            LabelOperator::In(values) => is_in(values),
            LabelOperator::NotIn(values) => !is_in(values),
            LabelOperator::Exists => value.is_some(),
            LabelOperator::DoesNotExist => value.is_none(),
            LabelOperator::GreaterThan(bound) => number().is_some_and(|it| *bound < it),
            LabelOperator::LessThan(bound) => number().is_some_and(|it| it < *bound),
        }
    }
}

/// Formats the requirement for messages, such as `zone in (a, b)`.
impl fmt::Display for LabelRequirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = &self.key;
        match &self.operator {
            LabelOperator::In(values) if values.len() == 1 => write!(f, "{key}={}", values.concat()),
            LabelOperator::In(values) => write!(f, "{key} in ({})", values.join(", ")),
            LabelOperator::NotIn(values) => write!(f, "{key} not in ({})", values.join(", ")),
            LabelOperator::Exists => write!(f, "a label {key}"),
            LabelOperator::DoesNotExist => write!(f, "no label {key}"),
            LabelOperator::GreaterThan(bound) => write!(f, "{key} > {bound}"),
            LabelOperator::LessThan(bound) => write!(f, "{key} < {bound}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `"Operator values"`.
    fn parse(text: &str) -> Result<LabelRequirement, String> {
        let mut words = text.split(' ');
        let operator = words.next().unwrap_or_default();
        LabelRequirement::parse_for_node("key", operator, words.map(Text::from).collect())
    }

    #[test]
    fn a_requirement_matches_the_value_of_a_label() {
        for (requirement, value, matches) in [
            ("In a b", Some("b"), true),
            ("In a b", Some("c"), false),
            ("In a b", None, false),
            ("NotIn a b", Some("b"), false),
            ("NotIn a b", Some("c"), true),
            ("NotIn a b", None, true),
            ("Exists", Some(""), true),
            ("Exists", None, false),
            ("DoesNotExist", Some(""), false),
            ("DoesNotExist", None, true),
            ("Gt 4", Some("5"), true),
            ("Gt 4", Some("4"), false),
            ("Gt 4", Some("five"), false),
            ("Gt 4", None, false),
            ("Lt 4", Some("3"), true),
            ("Lt 4", Some("4"), false),
        ] {
            let parsed = parse(requirement).unwrap();
            assert_eq!(parsed.matches_value(value), matches, "{requirement} {value:?}");
            let labels = Labels::new(value.map(|it| ("key".into(), it.into())).into_iter().collect());
            assert_eq!(Selector::AllOf([parsed].into()).matches(&labels), matches, "{requirement} {value:?}");
        }
    }

    #[test]
    fn a_selector_of_pairs_matches_labels_that_have_them_all() {
        let selector = Selector::from_pairs([("app", "web"), ("tier", "front")].into_iter());
        for (pairs, matches) in [
            (&[("app", "web"), ("tier", "front"), ("zone", "a")][..], true),
            (&[("app", "web"), ("tier", "back")], false),
            (&[("app", "web")], false),
        ] {
            let labels =
                Labels::new(pairs.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect());
            assert_eq!(selector.matches(&labels), matches, "{pairs:?}");
        }
    }

    #[test]
    fn an_invalid_requirement_is_an_error_with_a_message() {
        for (requirement, problem) in [
            ("In", "key: In needs values"),
            ("NotIn", "key: NotIn needs values"),
            ("Exists a", "key: Exists takes no values"),
            ("DoesNotExist a", "key: DoesNotExist takes no values"),
            ("Like a", "key: \"Like\" is not an operator"),
            ("Gt", "key: Gt needs exactly one value"),
            ("Lt 1 2", "key: Lt needs exactly one value"),
            ("Gt four", "key: Gt \"four\" is not a whole number"),
        ] {
            assert_eq!(parse(requirement).unwrap_err(), problem);
        }
        // `Gt` and `Lt` are operators of node selectors only.
        let gt = LabelRequirement::parse("key", "Gt", ["4".into()].into());
        assert_eq!(gt.unwrap_err(), "key: \"Gt\" is not an operator");
        assert_eq!(
            LabelRequirement::parse("", "Exists", Vec::new()).unwrap_err(),
            "a requirement has no key"
        );
    }
}
