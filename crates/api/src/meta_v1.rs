//! `meta.k8s.io/v1`: metadata of all objects, and label selectors.

use alloc::string::String;
use alloc::vec::Vec;

use serde::Deserialize;
use serde_json::Value;

use crate::interner::Interner;
use crate::json::{Str, StrMap};
use crate::labels::{Labels, Selector};
use crate::object_key::ObjectKey;
use crate::text::Text;
use crate::time::Time;

/// Upstream: `metav1.ObjectMeta`.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase")]
pub struct ObjectMeta<'a> {
    #[serde(borrow)]
    pub name: Option<Str<'a>>,
    #[serde(borrow)]
    pub namespace: Option<Str<'a>>,
    #[serde(borrow)]
    pub uid: Option<Str<'a>>,
    #[serde(borrow)]
    pub resource_version: Option<Str<'a>>,
    pub generation: Option<i64>,
    #[serde(borrow)]
    pub creation_timestamp: Option<Str<'a>>,
    #[serde(borrow)]
    pub deletion_timestamp: Option<Str<'a>>,
    pub deletion_grace_period_seconds: Option<i64>,
    #[serde(borrow)]
    pub labels: Option<StrMap<'a>>,
    #[serde(borrow)]
    pub annotations: Option<StrMap<'a>>,
    #[serde(borrow)]
    pub owner_references: Option<Vec<OwnerReference<'a>>>,
    #[serde(borrow)]
    pub finalizers: Option<Vec<Str<'a>>>,
}

impl ObjectMeta<'_> {
    /// Returns the namespace and name of the object. The namespace is interned.
    pub fn key(&self, interner: &mut Interner) -> ObjectKey {
        ObjectKey { namespace: interner.intern_text(self.namespace()), name: self.name().into() }
    }

    /// Returns the name, or "" if it is absent.
    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    /// Returns the namespace, or "" if it is absent.
    pub fn namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or_default()
    }

    /// Returns the UID, or "" if it is absent.
    pub fn uid(&self) -> Text {
        self.uid.as_deref().unwrap_or_default().into()
    }

    /// Returns the resource version as a number, or zero if it is absent or not a number.
    pub fn resource_version(&self) -> u64 {
        self.resource_version.as_deref().and_then(|it| it.parse().ok()).unwrap_or_default()
    }

    /// Returns the generation, or zero if it is absent.
    pub fn generation(&self) -> i64 {
        self.generation.unwrap_or_default()
    }

    /// Returns the `creationTimestamp`, or the Unix epoch if it is absent or invalid.
    pub fn creation_time(&self) -> Time {
        self.creation_timestamp.as_deref().and_then(Time::parse).unwrap_or_default()
    }

    /// Whether the object has a `deletionTimestamp`.
    pub fn is_deleting(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    /// Returns the labels, with interned strings.
    pub fn labels(&self, interner: &mut Interner) -> Labels {
        interner.intern_labels(self.labels.iter().flat_map(StrMap::pairs))
    }

    /// Returns the value of a label, or `None` if the object does not have it.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.as_ref()?.get(key).map(|it| &**it)
    }

    /// Returns the value of an annotation, or `None` if the object does not have it.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.as_ref()?.get(key).map(|it| &**it)
    }

    /// Returns the owner reference with `controller: true`, or `None` if there is none. Upstream:
    /// `metav1.GetControllerOf`.
    pub fn controller(&self) -> Option<&OwnerReference<'_>> {
        self.owner_references.iter().flatten().find(|it| it.controller == Some(true))
    }
}

/// Upstream: `metav1.OwnerReference`.
#[derive(Deserialize, Clone, Debug)]
#[serde(rename_all = "camelCase")]
pub struct OwnerReference<'a> {
    #[serde(borrow)]
    pub api_version: Option<Str<'a>>,
    #[serde(borrow)]
    pub kind: Option<Str<'a>>,
    #[serde(borrow)]
    pub name: Option<Str<'a>>,
    #[serde(borrow)]
    pub uid: Option<Str<'a>>,
    pub controller: Option<bool>,
    pub block_owner_deletion: Option<bool>,
}

/// An entry of `managedFields`, which lists the fields that one manager owns. Upstream: `metav1.ManagedFieldsEntry`.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct ManagedFieldsEntry {
    pub manager: String,
    /// The subresource through which the manager wrote the fields. Empty for the main resource.
    pub subresource: String,
    /// Time at which the manager last changed these fields, in RFC 3339. Empty if it is missing.
    pub time: String,
    pub fields_v1: Value,
}

/// The metadata of an object, of which only `managedFields` is decoded.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct ManagedFields {
    pub managed_fields: Vec<ManagedFieldsEntry>,
}

/// The metadata of a list. Upstream: `metav1.ListMeta`.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct ListMeta {
    pub resource_version: String,
    /// The token with which the next page is requested. Empty on the last page.
    pub r#continue: String,
}

/// The metadata of an object of any kind. Upstream: `metav1.PartialObjectMetadata`.
#[derive(Deserialize, Clone, Debug)]
pub struct PartialObjectMetadata<'a> {
    #[serde(borrow, default)]
    pub metadata: ObjectMeta<'a>,
}

/// Upstream: `metav1.LabelSelector`.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase")]
pub struct LabelSelector<'a> {
    #[serde(borrow)]
    pub match_labels: Option<StrMap<'a>>,
    #[serde(borrow)]
    pub match_expressions: Option<Vec<LabelSelectorRequirement<'a>>>,
}

impl LabelSelector<'_> {
    /// Parses a label selector. The error is a message about the first invalid requirement.
    ///
    /// Rule: a null selector matches nothing, and an empty selector matches everything. Upstream:
    /// `LabelSelectorAsSelector`.
    pub fn to_selector(selector: Option<&Self>) -> Result<Selector, String> {
        let Some(selector) = selector else { return Ok(Selector::Nothing) };
        let labels = selector.match_labels.iter().flat_map(StrMap::pairs);
        let expressions = selector.match_expressions.iter().flatten().map(|it| {
            let values = it.values.iter().flatten().map(|it| Text::from(&**it)).collect();
            (it.key.as_deref().unwrap_or_default(), it.operator.as_deref().unwrap_or_default(), values)
        });
        Selector::from_labels_and_expressions(labels, expressions)
    }
}

/// Upstream: `metav1.LabelSelectorRequirement`.
#[derive(Deserialize, Clone, Debug)]
pub struct LabelSelectorRequirement<'a> {
    #[serde(borrow)]
    pub key: Option<Str<'a>>,
    #[serde(borrow)]
    pub operator: Option<Str<'a>>,
    #[serde(borrow)]
    pub values: Option<Vec<Str<'a>>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selector(json: &str) -> Result<Selector, String> {
        LabelSelector::to_selector(serde_json::from_str::<Option<LabelSelector<'_>>>(json).unwrap().as_ref())
    }

    #[test]
    fn a_null_selector_matches_nothing_and_an_empty_one_everything() {
        let labels = Labels::new([("app".into(), "web".into())].into());
        for (json, matches) in [
            ("null", false),
            ("{}", true),
            (r#"{"matchLabels": null, "matchExpressions": []}"#, true),
            (r#"{"matchLabels": {"app": "web"}}"#, true),
            (r#"{"matchLabels": {"app": "db"}}"#, false),
            (r#"{"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["db"]}]}"#, true),
            (
                r#"{"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "a", "operator": "Exists"}]}"#,
                false,
            ),
        ] {
            assert_eq!(selector(json).unwrap().matches(&labels), matches, "{json}");
        }
        let invalid = r#"{"matchExpressions": [{"key": "a", "operator": "In"}]}"#;
        assert_eq!(selector(invalid).unwrap_err(), "a: In needs values");
    }

    /// As in Go: `null` is an absent field, and a value of another type is an error.
    #[test]
    fn null_is_an_absent_field_and_another_type_is_malformed() {
        let nulls = r#"{"name": null, "labels": null, "deletionTimestamp": null, "ownerReferences": null}"#;
        let meta: ObjectMeta<'_> = serde_json::from_str(nulls).unwrap();
        assert_eq!((meta.name(), meta.is_deleting()), ("", false));
        let wrong = [
            r#"{"deletionTimestamp": 5}"#,
            r#"{"labels": {"a": 1}}"#,
            r#"{"ownerReferences": [5]}"#,
            r#"{"ownerReferences": {}}"#,
            "5",
        ];
        for wrong in wrong {
            assert!(serde_json::from_str::<ObjectMeta<'_>>(wrong).is_err(), "{wrong}");
        }
    }
}
