//! Types of single values in the kinds of `muster.dev`: enums, counts and percentages, durations and label selectors.

use alloc::borrow::ToOwned as _;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

#[cfg(feature = "schema")]
use super::syntax;
use crate::labels::Selector;
use crate::names;
use crate::text::Text;
use crate::time::parse_go_duration;

/// Defines an enum whose values are strings. The first value is the default. A string that is none of the values
/// decodes as `Unknown`, so that an object of a later version can be read. The validation reports such a string.
macro_rules! string_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident,)* }) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)*
            /// A string that is none of the values, such as a value of a later version.
            Unknown(String),
        }

        impl $name {
            /// All values as strings, without `Unknown`.
            pub const VALUES: &'static [&'static str] = &[$(stringify!($variant)),*];

            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$variant => stringify!($variant),)*
                    Self::Unknown(text) => text,
                }
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                match text {
                    $(stringify!($variant) => Self::$variant,)*
                    other => Self::Unknown(other.to_owned()),
                }
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::from(Self::VALUES[0])
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Ok(Self::from(String::deserialize(deserializer)?.as_str()))
            }
        }

        #[cfg(feature = "schema")]
        impl schemars::JsonSchema for $name {
            fn schema_name() -> alloc::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn inline_schema() -> bool {
                true
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({
                    "type": "string",
                    "enum": Self::VALUES,
                    "x-muster-type": stringify!($name),
                })
            }
        }
    };
}

string_enum! {
    /// A day of the week.
    Weekday { Mon, Tue, Wed, Thu, Fri, Sat, Sun, }
}

string_enum! {
    /// The criterion by which nodes are ordered for a rollout.
    OrderBy { Hash, Name, Label, }
}

string_enum! {
    /// Whether the next step begins automatically, or only after an operator has approved the step.
    ApprovalMode { Automatic, Manual, }
}

string_enum! {
    /// Whether a node that becomes NotReady counts as faulty.
    NodeNotReadyPolicy { Count, Ignore, }
}

string_enum! {
    /// The reaction to a failed rollout.
    FailureAction { Auto, Rollback, Stop, }
}

string_enum! {
    /// The reaction to a rollout that makes no progress.
    DeadlineAction { Report, Stop, Rollback, }
}

string_enum! {
    /// The revision that a node gets if it joins during a rollout.
    NewNodePolicy { Stable, Latest, }
}

string_enum! {
    /// How the old pod of a node is removed when it is replaced.
    ReplaceMethod { Delete, Evict, }
}

string_enum! {
    /// The result that an operator or another system reports for a check.
    ReportedResult { Pass, Fail, }
}

string_enum! {
    /// The outcome of a check. `Inconclusive` means that the check has neither passed nor failed.
    CheckOutcome { Inconclusive, Pass, Fail, }
}

string_enum! {
    /// The phase of a rollout.
    RolloutPhase {
        Complete,
        Rolling,
        Soaking,
        Waiting,
        PartiallyComplete,
        Stopped,
        RollingBack,
        RolledBack,
    }
}

/// A number of nodes, such as `5`, or a percentage of nodes, such as `10%`.
#[derive(Clone, PartialEq, Debug)]
pub enum CountOrPercent {
    Count(i64),
    /// A percentage from 0 to 100.
    Percent(u8),
    /// An invalid value, which the validation reports.
    Invalid(Value),
}

impl CountOrPercent {
    /// Returns the value as JSON.
    pub fn to_json(&self) -> Value {
        match self {
            Self::Count(count) => (*count).into(),
            Self::Percent(percent) => format!("{percent}%").into(),
            Self::Invalid(value) => value.clone(),
        }
    }

    /// Parses a percentage from `0%` to `100%` without leading zeros. Returns `None` for other texts.
    fn parse_percent(text: &str) -> Option<u8> {
        let is_canonical = text == "0%" || !text.starts_with('0');
        let percent = names::parse_percent(text).filter(|it| is_canonical && *it <= 100)?;
        u8::try_from(percent).ok()
    }
}

impl From<Value> for CountOrPercent {
    fn from(value: Value) -> Self {
        match (value.as_i64(), value.as_str().and_then(Self::parse_percent)) {
            (Some(count), _) => Self::Count(count),
            (_, Some(percent)) => Self::Percent(percent),
            _ => Self::Invalid(value),
        }
    }
}

impl Serialize for CountOrPercent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.to_json().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for CountOrPercent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(Self::from)
    }
}

/// The text of a duration in Go's format, such as `90s`, `10m` or `1h30m`. The text may be invalid.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GoDuration(String);

impl GoDuration {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Parses the duration. Returns `None` if the text is invalid or begins with a minus sign.
    pub fn parse(&self) -> Option<Duration> {
        // Refuses `-0` too, as the pattern of the schema does.
        let duration = parse_go_duration(&self.0).ok().filter(|_| !self.0.starts_with('-'))?;
        Duration::try_from(duration).ok()
    }

    /// Parses the duration. Returns zero if the text is invalid or the duration is negative, which the validation
    /// reports.
    pub fn duration_or_zero(&self) -> Duration {
        self.parse().unwrap_or_default()
    }
}

/// A label selector is a label query over a set of resources. The result of matchLabels and matchExpressions are ANDed.
/// An empty label selector matches all objects. A null label selector matches no objects.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector"))]
#[cfg_attr(feature = "schema", schemars(extend(
    "x-kubernetes-map-type" = "atomic",
    "x-kubernetes-validations" = [super::validation::rules::match_labels()],
)))]
#[serde(rename_all = "camelCase")]
pub struct OwnedLabelSelector {
    /// matchLabels is a map of {key,value} pairs. A single {key,value} in the matchLabels map is equivalent to an element
    /// of matchExpressions, whose key field is "key", the operator is "In", and the values array contains only "value".
    /// The requirements are ANDed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend(
        "type" = "object",
        "maxProperties" = super::validation::SELECTOR_ITEMS_MAX,
        "additionalProperties" = {
            "type": "string",
            "maxLength": syntax::LABEL_LENGTH_MAX,
            "pattern": syntax::LABEL_VALUE_PATTERN,
        },
    )))]
    pub match_labels: Option<BTreeMap<String, String>>,
    /// matchExpressions is a list of label selector requirements. The requirements are ANDed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(max = super::validation::SELECTOR_ITEMS_MAX)))]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub match_expressions: Option<Vec<OwnedLabelSelectorRequirement>>,
}

impl OwnedLabelSelector {
    /// Parses the selector. An empty selector matches everything. The error is a message that names the invalid
    /// requirement. Upstream: `LabelSelectorAsSelector`.
    pub fn to_selector(&self) -> Result<Selector, String> {
        let labels = self.match_labels.iter().flatten().map(|(key, value)| (key.as_str(), value.as_str()));
        let expressions = self.match_expressions.iter().flatten().map(|it| {
            let values = it.values.iter().flatten().map(|it| Text::from(it.as_str())).collect();
            (it.key.as_str(), it.operator.as_str(), values)
        });
        Selector::from_labels_and_expressions(labels, expressions)
    }
}

/// A label selector requirement is a selector that contains values, a key, and an operator that relates the key and
/// values.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(
    feature = "schema",
    schemars(rename = "io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelectorRequirement")
)]
#[cfg_attr(feature = "schema", schemars(extend(
    "required" = ["key", "operator"],
    "x-kubernetes-validations" = super::validation::rules::selector_values(),
)))]
#[serde(default)]
pub struct OwnedLabelSelectorRequirement {
    /// key is the label key that the selector applies to.
    #[cfg_attr(feature = "schema", schemars(transform = syntax::label_key_schema))]
    pub key: String,
    /// operator represents a key's relationship to a set of values. Valid operators are In, NotIn, Exists and
    /// DoesNotExist.
    #[cfg_attr(
        feature = "schema",
        schemars(extend("enum" = ["In", "NotIn", "Exists", "DoesNotExist"]))
    )]
    pub operator: String,
    /// values is an array of string values. If the operator is In or NotIn, the values array must be non-empty. If the
    /// operator is Exists or DoesNotExist, the values array must be empty. This array is replaced during a strategic
    /// merge patch.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(max = super::validation::SELECTOR_ITEMS_MAX)))]
    #[cfg_attr(feature = "schema", schemars(extend(
        "items" = {
            "type": "string",
            "maxLength": syntax::LABEL_LENGTH_MAX,
            "pattern": syntax::LABEL_VALUE_PATTERN,
        },
        "x-kubernetes-list-type" = "atomic",
    )))]
    pub values: Option<Vec<String>>,
}

/// JSON schemas of the types that do not derive them.
#[cfg(feature = "schema")]
mod schema {
    use alloc::borrow::Cow;

    use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

    use super::super::validation::rules;
    use super::{CountOrPercent, GoDuration, syntax};

    impl JsonSchema for CountOrPercent {
        fn schema_name() -> Cow<'static, str> {
            "CountOrPercent".into()
        }

        fn inline_schema() -> bool {
            true
        }

        /// Returns the schema of a count or percentage with the default bounds. Fields with other bounds replace them.
        fn json_schema(_: &mut SchemaGenerator) -> Schema {
            json_schema!({
                "x-kubernetes-int-or-string": true,
                "anyOf": [{"type": "integer"}, {"type": "string"}],
                "maxLength": 4,
                "minimum": 1,
                "pattern": syntax::PERCENT_PATTERN,
            })
        }
    }

    impl JsonSchema for GoDuration {
        fn schema_name() -> Cow<'static, str> {
            "GoDuration".into()
        }

        fn inline_schema() -> bool {
            true
        }

        /// Returns the schema of a duration with the CEL rule for
        /// [`NON_NEGATIVE_DURATION`](super::super::validation::NON_NEGATIVE_DURATION). Fields with other bounds replace
        /// the rule.
        fn json_schema(_: &mut SchemaGenerator) -> Schema {
            json_schema!({
                "type": "string",
                "maxLength": syntax::DURATION_LENGTH_MAX,
                "pattern": syntax::DURATION_PATTERN,
                "x-kubernetes-validations": rules::duration(&super::super::validation::NON_NEGATIVE_DURATION),
            })
        }
    }
}
