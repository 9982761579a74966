//! Elements of field paths. Each element leads from a value to one of its fields, map entries or list items. The text
//! form and the order of the elements are upstream's.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;

use muster_api::go_json;
use serde_json::{Map, Value};

/// The encoder with which structured-merge-diff writes the values in the names of `fieldsV1`. Upstream:
/// `SerializePathElement`.
const ENCODER: go_json::Encoder = go_json::Encoder::JsonIterator;

/// One element of a field path. The order of the variants is upstream's.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PathElement<'a> {
    /// A field of an object, or an entry of a map.
    Field(Cow<'a, str>),
    /// An item of a list that is identified by key fields: the names and values of these fields, ordered by name.
    Key(Vec<(Cow<'a, str>, ElementValue<'a>)>),
    /// An item of a set, identified by its value.
    Value(ElementValue<'a>),
    /// An item of a list, identified by its index.
    Index(i64),
}

/// A JSON value in a path element. Values are ordered as in upstream.
#[derive(Debug, Clone)]
pub(super) struct ElementValue<'a>(pub(super) Cow<'a, Value>);

/// Error for `fieldsV1` with an invalid name, or with a value that is neither an object nor null.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct InvalidPathElement;

impl<'a> PathElement<'a> {
    /// Parses a name in `fieldsV1`, such as `f:spec`. Returns `None` for an element of an unknown type, which is
    /// ignored as in upstream.
    pub(super) fn parse(text: &'a str) -> Result<Option<Self>, InvalidPathElement> {
        let Some((kind, rest)) = text.split_at_checked(2) else { return Err(InvalidPathElement) };
        match kind {
            "f:" => Ok(Some(Self::Field(Cow::Borrowed(rest)))),
            "k:" => {
                let Value::Object(fields) = parse_leading_json(rest)? else { return Err(InvalidPathElement) };
                let item = |(name, value)| (Cow::Owned(name), ElementValue(Cow::Owned(value)));
                Ok(Some(Self::Key(fields.into_iter().map(item).collect())))
            }
            "v:" => Ok(Some(Self::Value(ElementValue(Cow::Owned(parse_leading_json(rest)?))))),
            "i:" => rest.parse().map(|it| Some(Self::Index(it))).map_err(|_| InvalidPathElement),
            _ if kind.ends_with(':') => Ok(None),
            _ => Err(InvalidPathElement),
        }
    }

    /// Returns the element with copies of all borrowed text and values.
    pub(super) fn into_owned(self) -> PathElement<'static> {
        let own = |it: ElementValue<'_>| ElementValue(Cow::Owned(it.0.into_owned()));
        match self {
            Self::Field(name) => PathElement::Field(Cow::Owned(name.into_owned())),
            Self::Key(fields) => {
                let fields = fields.into_iter();
                PathElement::Key(fields.map(|(name, it)| (Cow::Owned(name.into_owned()), own(it))).collect())
            }
            Self::Value(it) => PathElement::Value(own(it)),
            Self::Index(at) => PathElement::Index(at),
        }
    }

    /// Encodes the element as a name in `fieldsV1`, such as `f:spec`.
    pub(super) fn to_fields_v1(&self) -> String {
        match self {
            Self::Field(name) => {
                let mut out = String::with_capacity(2 + name.len());
                out.push_str("f:");
                out.push_str(name);
                out
            }
            Self::Key(fields) => {
                let mut out = String::from("k:{");
                for (at, (name, item)) in fields.iter().enumerate() {
                    if at != 0 {
                        out.push(',');
                    }
                    go_json::write_object_field(&mut out, name, ENCODER);
                    go_json::write_value(&mut out, &item.0, ENCODER);
                }
                out.push('}');
                out
            }
            Self::Value(item) => {
                let mut out = String::from("v:");
                go_json::write_value(&mut out, &item.0, ENCODER);
                out
            }
            Self::Index(at) => format!("i:{at}"),
        }
    }
}

/// Prints the element as in conflict messages, such as `.spec` or `[name="c"]`.
impl fmt::Display for PathElement<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(out, ".{name}"),
            Self::Key(fields) => {
                for (at, (name, item)) in fields.iter().enumerate() {
                    write!(out, "{}{name}={item}", if at == 0 { "[" } else { "," })?;
                }
                write!(out, "]")
            }
            Self::Value(item) => write!(out, "[={item}]"),
            Self::Index(at) => write!(out, "[{at}]"),
        }
    }
}

impl fmt::Display for ElementValue<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            Value::String(text) => write!(out, "{text:?}"),
            Value::Number(number) => match number.as_f64() {
                Some(float) if number.is_f64() => write!(out, "{float}"),
                _ => write!(out, "{number}"),
            },
            Value::Array(items) => {
                write!(out, "[")?;
                for (at, item) in items.iter().enumerate() {
                    write!(out, "{}{}", if at == 0 { "" } else { "," }, ElementValue(Cow::Borrowed(item)))?;
                }
                write!(out, "]")
            }
            Value::Object(fields) => fields
                .iter()
                .try_for_each(|(name, it)| write!(out, "{name}={}", ElementValue(Cow::Borrowed(it)))),
            other => write!(out, "{other}"),
        }
    }
}

impl Ord for ElementValue<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        compare_values(&self.0, &other.0)
    }
}

impl PartialOrd for ElementValue<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for ElementValue<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for ElementValue<'_> {}

/// Compares values of any type in upstream's order, in which `1` and `1.0` are equal.
pub(super) fn compare_values(left: &Value, right: &Value) -> Ordering {
    let rank = |it: &Value| match it {
        Value::Number(it) if it.is_f64() => 0,
        Value::Number(_) => 1,
        Value::String(_) => 2,
        Value::Bool(_) => 3,
        Value::Array(_) => 4,
        Value::Object(_) => 5,
        Value::Null => 6,
    };
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => match (left.as_i64(), right.as_i64()) {
            (Some(left), Some(right)) => left.cmp(&right),
            _ => left.as_f64().unwrap_or(0.0).total_cmp(&right.as_f64().unwrap_or(0.0)),
        },
        (Value::String(left), Value::String(right)) => left.cmp(right),
        (Value::Bool(left), Value::Bool(right)) => left.cmp(right),
        (Value::Array(left), Value::Array(right)) => {
            let first =
                left.iter().zip(right).map(|(left, right)| compare_values(left, right)).find(|it| it.is_ne());
            first.unwrap_or_else(|| left.len().cmp(&right.len()))
        }
        (Value::Object(left), Value::Object(right)) => compare_maps(left, right),
        _ => rank(left).cmp(&rank(right)),
    }
}

/// Compares maps by their entries in order of name, and then by length.
fn compare_maps(left: &Map<String, Value>, right: &Map<String, Value>) -> Ordering {
    let by_name_and_value = |(left, right): ((&String, &Value), (&String, &Value))| {
        left.0.cmp(right.0).then_with(|| compare_values(left.1, right.1))
    };
    let first = left.iter().zip(right).map(by_name_and_value).find(|it| it.is_ne());
    first.unwrap_or_else(|| left.len().cmp(&right.len()))
}

/// Parses the JSON value at the start of the text. The rest of the text is ignored, as in upstream.
fn parse_leading_json(text: &str) -> Result<Value, InvalidPathElement> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter();
    values.next().and_then(Result::ok).ok_or(InvalidPathElement)
}
