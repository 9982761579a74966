//! Taints and tolerations, and the function that matches them.

use core::fmt;

use crate::text::Text;

/// The effect of a taint on pods that do not tolerate the taint.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum TaintEffect {
    NoSchedule,
    PreferNoSchedule,
    NoExecute,
    /// An effect that is none of the others. Rules about effects ignore a taint with an unknown effect.
    Unknown,
}

impl TaintEffect {
    /// Parses the effect of a taint. Returns `Unknown` for an invalid text.
    pub fn parse(text: &str) -> Self {
        match text {
            "NoSchedule" => Self::NoSchedule,
            "PreferNoSchedule" => Self::PreferNoSchedule,
            "NoExecute" => Self::NoExecute,
            _ => Self::Unknown,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoSchedule => "NoSchedule",
            Self::PreferNoSchedule => "PreferNoSchedule",
            Self::NoExecute => "NoExecute",
            Self::Unknown => "Unknown",
        }
    }
}

/// A taint of a node. The value is empty if the taint has none.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Taint {
    pub key: Text,
    pub value: Text,
    pub effect: TaintEffect,
}

/// Formats the taint as `KEY[=VALUE]:EFFECT`.
impl fmt::Display for Taint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.value.is_empty() {
            write!(f, "{}:{}", self.key, self.effect.as_str())
        } else {
            write!(f, "{}={}:{}", self.key, self.value, self.effect.as_str())
        }
    }
}

/// A toleration of a pod, without its `tolerationSeconds`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Toleration {
    /// Key of the tolerated taints. An empty key matches every taint key.
    pub key: Text,
    /// Operator and value, which the value of a tolerated taint must match.
    pub operator: TolerationOperator,
    /// Effect of the tolerated taints. `None` matches every effect.
    pub effect: Option<TaintEffect>,
}

/// Operator and value of a toleration.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum TolerationOperator {
    /// The toleration matches every value of a taint.
    Exists,
    /// The toleration matches only taints with this value.
    Equal(Text),
    /// An unknown operator, which tolerates nothing.
    Unknown,
}

impl Toleration {
    /// Creates a toleration from the fields of an API object, in which absent fields are empty. An empty operator means
    /// `Equal`. `value` is called only for `Equal`.
    pub fn new(key: Text, operator: &str, value: impl FnOnce() -> Text, effect: &str) -> Self {
        let op = match operator {
            "" | "Equal" => TolerationOperator::Equal(value()),
            "Exists" => TolerationOperator::Exists,
            _ => TolerationOperator::Unknown,
        };
        Self { key, operator: op, effect: (!effect.is_empty()).then(|| TaintEffect::parse(effect)) }
    }

    /// Whether this toleration tolerates the taint.
    ///
    /// Rule: a toleration tolerates a taint if its effect, its key and its operator match. An empty effect matches
    /// every effect, and an empty key matches every key. Upstream: `ToleratesTaint`.
    pub fn tolerates(&self, taint: &Taint) -> bool {
        self.effect.is_none_or(|effect| effect == taint.effect)
            && (self.key.is_empty() || self.key == taint.key)
            && match &self.operator {
                TolerationOperator::Exists => true,
                TolerationOperator::Equal(value) => *value == taint.value,
                TolerationOperator::Unknown => false,
            }
    }
}

/// Whether any of the tolerations tolerates the taint.
pub fn any_tolerates(tolerations: &[Toleration], taint: &Taint) -> bool {
    tolerations.iter().any(|it| it.tolerates(taint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tolerations_match_taints_as_upstream_does() {
        let taint = Taint { key: "gpu".into(), value: "a100".into(), effect: TaintEffect::NoSchedule };
        let plain = Taint { key: "gpu".into(), value: "".into(), effect: TaintEffect::NoSchedule };
        for ((key, operator, value, effect), fits_taint, fits_plain) in [
            (("gpu", "Exists", "", "NoSchedule"), true, true),
            (("gpu", "Exists", "", ""), true, true),
            (("gpu", "Exists", "", "NoExecute"), false, false),
            (("cpu", "Exists", "", ""), false, false),
            (("", "Exists", "", ""), true, true),
            (("gpu", "Equal", "a100", "NoSchedule"), true, false),
            (("gpu", "", "a100", ""), true, false),
            (("gpu", "Equal", "h100", ""), false, false),
            (("gpu", "", "", ""), false, true),
            // An empty key matches every key, with any operator.
            (("", "Equal", "a100", ""), true, false),
            (("", "Equal", "", ""), false, true),
            // An unknown operator tolerates nothing.
            (("gpu", "Similar", "a100", ""), false, false),
            (("gpu", "Similar", "", ""), false, false),
        ] {
            let toleration = Toleration::new(key.into(), operator, || value.into(), effect);
            assert_eq!(toleration.tolerates(&taint), fits_taint, "{toleration:?} {taint}");
            assert_eq!(
                any_tolerates(core::slice::from_ref(&toleration), &plain),
                fits_plain,
                "{toleration:?} {plain}"
            );
        }
    }
}
