//! Strings, maps and other values of decoded JSON, which are borrowed from the JSON text where possible.

use alloc::borrow::{Cow, ToOwned as _};
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use core::fmt;
use core::marker::PhantomData;
use core::ops::Deref;

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, Serializer};
use serde_json::Value;

use crate::quantity::Quantity;

/// Decodes an object from JSON text. The whole text is checked for UTF-8 once, which is cheaper than a check of each
/// string. Invalid UTF-8 is an error only in fields that are not skipped.
pub fn from_slice<'a, T: Deserialize<'a>>(json: &'a [u8]) -> Result<T, serde_json::Error> {
    match core::str::from_utf8(json) {
        Ok(text) => serde_json::from_str(text),
        // Invalid UTF-8 in skipped fields is accepted.
        Err(_) => serde_json::from_slice(json),
    }
}

/// Whether a value is set: present, not null and not empty. Zero and `false` count as set. In most fields of API
/// objects, absent, null and empty are equivalent.
pub fn is_set(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::String(it) => !it.is_empty(),
        Value::Array(it) => !it.is_empty(),
        Value::Object(it) => !it.is_empty(),
        Value::Bool(_) | Value::Number(_) => true,
    }
}

/// A string that is borrowed from the JSON text, unless the string contains escapes. An `Option<Cow<str>>`, or a
/// `Cow<str>` in a list, would always be copied, because serde borrows only where a field itself is a `Cow`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Str<'a>(Cow<'a, str>);

impl Deref for Str<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for Str<'_> {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl PartialEq<str> for Str<'_> {
    fn eq(&self, other: &str) -> bool {
        *self.0 == *other
    }
}

impl PartialEq<&str> for Str<'_> {
    fn eq(&self, other: &&str) -> bool {
        *self.0 == **other
    }
}

impl fmt::Display for Str<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for Str<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Str<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct StrVisitor;
        impl<'de> Visitor<'de> for StrVisitor {
            type Value = Str<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Str<'de>, E> {
                Ok(Str(Cow::Borrowed(text)))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Str<'de>, E> {
                Ok(Str(Cow::Owned(text.to_owned())))
            }

            fn visit_string<E: Error>(self, text: String) -> Result<Str<'de>, E> {
                Ok(Str(Cow::Owned(text)))
            }
        }
        deserializer.deserialize_str(StrVisitor)
    }
}

/// A map with string keys, sorted by key. If a key occurs several times in the JSON text, the last value is used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StrMap<'a, V = Str<'a>>(Vec<(Str<'a>, V)>);

impl<V> Default for StrMap<'_, V> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'a, V> StrMap<'a, V> {
    /// Returns the value of a key, or `None` if the map does not contain the key.
    pub fn get(&self, key: &str) -> Option<&V> {
        let at = self.0.binary_search_by(|(it, _)| (**it).cmp(key)).ok()?;
        self.0.get(at).map(|(_, value)| value)
    }

    /// Returns the keys and values, sorted by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &V)> {
        self.0.iter().map(|(key, value)| (&**key, value))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Creates a map from entries in any order. Of entries with the same key, the last one is kept.
    fn from_entries(mut entries: Vec<(Str<'a>, V)>) -> Self {
        if !entries.is_sorted_by(|one, next| one.0 < next.0) {
            entries.sort_by(|one, other| one.0.cmp(&other.0));
            entries.dedup_by(|later, first| {
                let is_same_key = later.0 == first.0;
                if is_same_key {
                    core::mem::swap(later, first);
                }
                is_same_key
            });
        }
        Self(entries)
    }
}

impl<'a> StrMap<'a> {
    /// Returns the keys and values, both as strings, sorted by key.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (&**key, &**value))
    }
}

impl<'de: 'a, 'a, V: Deserialize<'de>> Deserialize<'de> for StrMap<'a, V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct StrMapVisitor<'a, V>(PhantomData<(&'a (), V)>);
        impl<'de: 'a, 'a, V: Deserialize<'de>> Visitor<'de> for StrMapVisitor<'a, V> {
            type Value = StrMap<'a, V>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(StrMap::from_entries(entries))
            }
        }
        deserializer.deserialize_map(StrMapVisitor(PhantomData))
    }
}

impl<V: Serialize> Serialize for StrMap<'_, V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

/// An integer or a string. Upstream: `intstr.IntOrString`.
#[derive(Clone, PartialEq, Debug)]
pub enum IntOrString<'a> {
    Int(i64),
    String(Str<'a>),
    /// A value that is neither a signed 64-bit integer nor a string.
    Invalid(serde_json::Value),
}

impl fmt::Display for IntOrString<'_> {
    /// Formats the value as JSON.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(number) => write!(f, "{number}"),
            Self::String(text) => write!(f, "{}", serde_json::Value::from(&**text)),
            Self::Invalid(value) => write!(f, "{value}"),
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for IntOrString<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct IntOrStringVisitor;
        impl<'de> Visitor<'de> for IntOrStringVisitor {
            type Value = IntOrString<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number or a string")
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
                Ok(IntOrString::Int(number))
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
                Ok(i64::try_from(number)
                    .map_or_else(|_| IntOrString::Invalid(number.into()), IntOrString::Int))
            }

            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(IntOrString::String(Str(Cow::Borrowed(text))))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(IntOrString::String(Str(Cow::Owned(text.to_owned()))))
            }

            fn visit_f64<E: Error>(self, number: f64) -> Result<Self::Value, E> {
                Ok(IntOrString::Invalid(number.into()))
            }

            fn visit_bool<E: Error>(self, it: bool) -> Result<Self::Value, E> {
                Ok(IntOrString::Invalid(it.into()))
            }

            fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
                Ok(IntOrString::Invalid(serde_json::Value::Null))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Self::Value, A::Error> {
                let list = serde::de::value::SeqAccessDeserializer::new(list);
                serde_json::Value::deserialize(list).map(IntOrString::Invalid)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                let map = serde::de::value::MapAccessDeserializer::new(map);
                serde_json::Value::deserialize(map).map(IntOrString::Invalid)
            }
        }
        deserializer.deserialize_any(IntOrStringVisitor)
    }
}

/// The text of a quantity, which is parsed on demand. A JSON number is accepted too. Any other JSON value becomes an
/// empty text.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct QuantityText<'a>(Str<'a>);

impl QuantityText<'_> {
    /// Parses the quantity. Returns zero if it is invalid, as [`Quantity::from_json`] does.
    pub fn quantity(&self) -> Quantity {
        Quantity::parse(&self.0).unwrap_or(Quantity::ZERO)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for QuantityText<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct QuantityVisitor;
        impl<'de> Visitor<'de> for QuantityVisitor {
            type Value = QuantityText<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a quantity")
            }

            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(QuantityText(Str(Cow::Borrowed(text))))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(QuantityText(Str(Cow::Owned(text.to_owned()))))
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
                Ok(QuantityText(Str(Cow::Owned(number.to_string()))))
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
                Ok(QuantityText(Str(Cow::Owned(number.to_string()))))
            }

            fn visit_f64<E: Error>(self, number: f64) -> Result<Self::Value, E> {
                Ok(QuantityText(Str(Cow::Owned(serde_json::Value::from(number).to_string()))))
            }

            fn visit_bool<E: Error>(self, _: bool) -> Result<Self::Value, E> {
                Ok(QuantityText::default())
            }

            fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
                Ok(QuantityText::default())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                while list.next_element::<IgnoredAny>()?.is_some() {}
                Ok(QuantityText::default())
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(QuantityText::default())
            }
        }
        deserializer.deserialize_any(QuantityVisitor)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn strings_are_borrowed_unless_they_have_escapes() {
        let list: Vec<Option<Str<'_>>> =
            serde_json::from_str(r#"["plain", "with \"quotes\"", null]"#).unwrap();
        assert!(matches!(list[0], Some(Str(Cow::Borrowed("plain")))));
        assert_eq!(list[1].as_deref(), Some("with \"quotes\""));
        assert_eq!(list[2], None);
        let value = json!(["plain"]);
        let list = Vec::<Str<'_>>::deserialize(&value).unwrap();
        assert!(matches!(list[0], Str(Cow::Borrowed("plain"))));
        assert!(serde_json::from_str::<Str<'_>>("5").is_err());
    }

    #[test]
    fn invalid_utf_8_matters_only_in_fields_that_are_read() {
        #[derive(serde::Deserialize)]
        struct Named<'a> {
            #[serde(borrow)]
            name: Option<Str<'a>>,
        }
        let name = |json: &[u8]| {
            from_slice::<Named<'_>>(json).ok().map(|it| it.name.unwrap_or_default().to_string())
        };
        assert_eq!(name("{\"name\": \"\u{e9}\"}".as_bytes()).as_deref(), Some("\u{e9}"));
        assert_eq!(name(b"{\"name\": \"a\", \"other\": \"\xff\"}").as_deref(), Some("a"));
        assert_eq!(name(b"{\"name\": \"\xff\"}"), None);
    }

    #[test]
    fn maps_are_sorted_and_the_last_of_duplicate_keys_counts() {
        let map: StrMap<'_> = serde_json::from_str(r#"{"b": "1", "a": "2", "b": "3", "b": "4"}"#).unwrap();
        assert_eq!(map.pairs().collect::<Vec<_>>(), [("a", "2"), ("b", "4")]);
        assert_eq!(map.get("b").map(|it| &**it), Some("4"));
        assert_eq!(map.get("c"), None);
        assert_eq!(serde_json::to_string(&map).unwrap(), r#"{"a":"2","b":"4"}"#);
        for wrong in [r#"{"a": 1}"#, r#"{"a": null}"#, "[]", "5"] {
            assert!(serde_json::from_str::<StrMap<'_>>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn numbers_and_strings() {
        for (json, expected) in [
            (json!(5), IntOrString::Int(5)),
            (json!(-5), IntOrString::Int(-5)),
            (json!("10%"), IntOrString::String(Str("10%".into()))),
            (json!(1.5), IntOrString::Invalid(json!(1.5))),
            (json!(u64::MAX), IntOrString::Invalid(json!(u64::MAX))),
            (json!({"a": [1]}), IntOrString::Invalid(json!({"a": [1]}))),
            (json!([true]), IntOrString::Invalid(json!([true]))),
        ] {
            let text = json.to_string();
            let parsed: IntOrString<'_> = serde_json::from_str(&text).unwrap();
            assert_eq!(parsed, expected);
            assert_eq!(parsed.to_string(), text);
            assert_eq!(IntOrString::deserialize(&json).unwrap(), expected);
        }
        assert_eq!(serde_json::from_str::<Option<IntOrString<'_>>>("null").unwrap(), None);
    }

    #[test]
    fn quantities_are_those_of_their_json_value() {
        for value in
            [json!("500m"), json!(2), json!(-1), json!(0.5), json!(null), json!(true), json!({"a": 1})]
        {
            let text = Value::to_string(&value);
            let parsed: QuantityText<'_> = serde_json::from_str(&text).unwrap();
            assert_eq!(parsed.quantity(), Quantity::from_json(&value), "{text}");
        }
    }
}
