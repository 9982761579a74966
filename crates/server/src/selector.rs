//! Label and field selectors of list, watch and delete requests.

/// Parses label selectors.
mod labels;

use muster_api::labels::LabelRequirement;
use muster_store::{SelectorIndex, StoredObject};
use serde_json::Value;

use crate::error::ApiError;
use crate::kinds::Kind;
use crate::unstructured;

/// A label selector and a field selector of a request. An object matches if it meets all requirements of both.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct ObjectSelector {
    labels: Vec<LabelRequirement>,
    fields: Vec<FieldRequirement>,
}

/// One requirement of a field selector, such as `spec.nodeName=n1`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FieldRequirement {
    /// Dotted path of the field in the storage version.
    path: String,
    value: String,
    /// Whether the field must be equal to `value` (`=`) or must differ from it (`!=`).
    is_equal: bool,
}

impl ObjectSelector {
    /// Parses a label selector and a field selector for objects of `kind`. Fails if a selector is malformed, or if the
    /// kind does not support a field in the field selector.
    pub(crate) fn parse(kind: &Kind, labels: &str, fields: &str) -> Result<Self, ApiError> {
        let labels = labels::parse_label_selector(labels).map_err(ApiError::bad_request)?;
        let fields = parse_field_selector(fields).map_err(ApiError::bad_request)?;
        let known = |path: &str| {
            path == "metadata.name"
                || (kind.namespaced && path == "metadata.namespace")
                || kind.selectable_fields.contains(&path)
        };
        match fields.iter().map(|it| &it.path).find(|it| !known(it)) {
            None => {
                let stored = |it: FieldRequirement| FieldRequirement {
                    path: kind.stored_field(&it.path).to_owned(),
                    ..it
                };
                Ok(Self { labels, fields: fields.into_iter().map(stored).collect() })
            }
            Some(unknown) if kind.selectable_fields.is_empty() => Err(ApiError::bad_request(format!(
                "{unknown:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
            ))),
            Some(unknown) => Err(ApiError::bad_request(format!("field label not supported: {unknown}"))),
        }
    }

    /// Returns the selector restricted to the object with this name, for a list or watch whose path contains a name.
    /// Fails if the selector has field requirements, but does not require this name.
    /// Upstream: `ListResource`.
    pub(crate) fn for_object(mut self, name: &str) -> Result<Self, ApiError> {
        if self.fields.is_empty() {
            self.fields.push(FieldRequirement {
                path: "metadata.name".to_owned(),
                value: name.to_owned(),
                is_equal: true,
            });
        } else if self.required_value("metadata.name") != Some(name) {
            return Err(ApiError::bad_request("fieldSelector metadata.name doesn't match requested name"));
        }
        Ok(self)
    }

    /// Whether the selector has no requirements, so that it matches every object.
    pub(crate) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Returns the value that the field selector requires for the field `path` with `=`, or `None` if it has no such
    /// requirement.
    pub(crate) fn required_value(&self, path: &str) -> Option<&str> {
        self.fields.iter().find(|it| it.is_equal && it.path == path).map(|it| &*it.value)
    }

    /// Whether the selector matches a stored object. Reads only the store key and the selector index of the object, and
    /// does not parse it.
    pub(crate) fn matches(&self, record: &StoredObject) -> bool {
        self.labels.iter().all(|it| it.matches_value(record.index.label(&it.key)))
            && self.fields.iter().all(|it| (indexed_field(record, &it.path) == it.value) == it.is_equal)
    }
}

/// Returns the value of the selectable field `path` of a stored object, without parsing the object. Namespace and name
/// come from the store key, and other fields from the selector index, which omits empty fields.
fn indexed_field<'a>(record: &'a StoredObject, path: &str) -> &'a str {
    let mut from_end = record.key.rsplit('/');
    match path {
        "metadata.name" => from_end.next().unwrap_or_default(),
        "metadata.namespace" => from_end.nth(1).unwrap_or_default(),
        path => record.index.field(path).unwrap_or(if BOOLEAN_FIELDS.contains(&path) { "false" } else { "" }),
    }
}

/// Selectable fields with a boolean value. If such a field is absent, its value is `false`.
const BOOLEAN_FIELDS: [&str; 2] = ["spec.hostNetwork", "spec.unschedulable"];

impl Kind {
    /// Returns the selector index of an object, which contains its labels and selectable fields.
    pub(crate) fn build_selector_index(&self, object: &Value) -> SelectorIndex {
        let labels = object["metadata"]["labels"].as_object().into_iter().flatten();
        let fields: Vec<_> =
            self.selectable_fields.iter().map(|path| (*path, selectable_value(object, path))).collect();
        SelectorIndex::new(
            labels.filter_map(|(name, value)| Some((&**name, value.as_str()?))),
            fields.iter().filter(|it| !it.1.is_empty()).map(|(path, value)| (*path, &**value)),
        )
    }
}

/// Returns the value of the selectable field `path`. The field `source` of an Event has the value of `source.component`
/// or, if that is empty, of `reportingComponent`. Any other field has the value at `path`.
fn selectable_value(object: &Value, path: &str) -> String {
    match path {
        "source" => {
            let component = unstructured::field_text(object, "source.component");
            if component.is_empty() {
                unstructured::field_text(object, "reportingComponent")
            } else {
                component
            }
        }
        path => unstructured::field_text(object, path),
    }
}

/// Parses a field selector such as `a=b,c!=d`. A backslash escapes a comma, an equals sign or a backslash.
fn parse_field_selector(text: &str) -> Result<Vec<FieldRequirement>, String> {
    let mut terms = Vec::new();
    let (mut begin, mut is_escaped) = (0, false);
    for (at, it) in text.char_indices() {
        match it {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            ',' => {
                terms.push(&text[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[begin..]);
    terms.sort_unstable();
    let parse = |term: &str| {
        let Some((at, operator)) = term.char_indices().find_map(|(at, _)| {
            ["!=", "==", "="].into_iter().find(|it| term[at..].starts_with(it)).map(|it| (at, it))
        }) else {
            return Err(format!("invalid selector: '{text}'; can't understand '{term}'"));
        };
        let value = unescape_value(&term[at + operator.len()..])?;
        Ok(FieldRequirement { path: term[..at].to_owned(), value, is_equal: operator != "!=" })
    };
    terms.into_iter().filter(|it| !it.is_empty()).map(parse).collect()
}

/// Returns the value of a field selector requirement with its escape sequences resolved. Fails for an invalid escape
/// sequence or an unescaped comma or equals sign.
fn unescape_value(text: &str) -> Result<String, String> {
    let mut value = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(it) = rest.next() {
        match it {
            '\\' => match rest.next() {
                Some(it @ ('\\' | ',' | '=')) => value.push(it),
                Some(it) => return Err(format!("invalid field selector: invalid escape sequence: \\{it}")),
                None => return Err("invalid field selector: invalid escape sequence: \\".into()),
            },
            ',' | '=' => {
                return Err(format!(
                    "invalid field selector: unescaped character in value: {}",
                    u32::from(it)
                ));
            }
            it => value.push(it),
        }
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn check(labels: &str, fields: &str, matches: bool) {
        let pod = json!({
            "metadata": {"name": "p", "namespace": "a", "labels": {"app": "web", "tier": "", "example.com/x": "1"}},
            "spec": {"nodeName": "n1"},
            "status": {"phase": "Running"},
        });
        let kind = Kind::builtin("", "v1", "pods");
        let selector = ObjectSelector::parse(kind, labels, fields).unwrap();
        let record = StoredObject {
            key: kind.store_key(Some("a"), "p").into(),
            value: pod.to_string().into(),
            index: kind.build_selector_index(&pod),
            created: 2,
            modified: 2,
            expires_s: None,
        };
        assert_eq!(selector.matches(&record), matches, "{labels} {fields}");
    }

    #[test]
    fn labels() {
        check("", "", true);
        check("app=web,example.com/x==1", "", true);
        check("app=web,app!=web", "", false);
        check("app in (db, web),tier", "", true);
        check("app notin (db,web)", "", false);
        check("other notin (x)", "", true);
        check("other!=x,!other", "", true);
        check("!app", "", false);
        check("tier=", "", true);
        check("tier in ()", "", true);
        check("app in (,web)", "", true);
        check("example.com/x>0,example.com/x<2", "", true);
        check("example.com/x>1", "", false);
        check("app>1", "", false);
        check("in in (in),notin", "", false);
    }

    #[test]
    fn fields() {
        check("", "metadata.name=p,metadata.namespace=a,spec.nodeName=n1", true);
        check("", "metadata.name=a", false);
        check("", "status.phase!=Running", false);
        check("", "status.podIP=", true);
        check("", "spec.hostNetwork=false", true);
        check("", "spec.hostNetwork!=true", true);
        check("", "spec.hostNetwork=", false);
        check("", r"metadata.name==p,metadata.namespace!=a\,b", true);
    }

    #[test]
    fn events_are_selected_by_source() {
        let kind = Kind::builtin("", "v1", "events");
        let source = |event: Value| kind.build_selector_index(&event).field("source").map(ToOwned::to_owned);
        let old = json!({"source": {"component": "kubelet", "host": "n1"}, "reportingComponent": "other"});
        let new = json!({"source": {}, "reportingComponent": "muster"});
        assert_eq!(source(old).as_deref(), Some("kubelet"));
        assert_eq!(source(new).as_deref(), Some("muster"));
        assert_eq!(source(json!({})), None);
    }

    fn wrong(group: &str, plural: &str, labels: &str, fields: &str, golden: &Expect) {
        let kind = Kind::builtin(group, "v1", plural);
        let refusal = ObjectSelector::parse(kind, labels, fields).unwrap_err();
        assert_eq!(refusal.code, 400);
        golden.assert_eq(refusal.message());
    }

    #[test]
    fn invalid_selectors_are_refused() {
        let labels = |text, golden: Expect| wrong("apps", "daemonsets", text, "", &golden);
        labels("a in b", expect!["unable to parse requirement: found 'b' expected: '('"]);
        labels("a in (b", expect!["unable to parse requirement: found '', expected: ',' or ')'"]);
        labels("a in (b=c)", expect!["unable to parse requirement: found '=', expected: ',' or ')'"]);
        labels(
            "a in (!)",
            expect!["unable to parse requirement: found '!', expected: ',', ')' or identifier"],
        );
        labels(
            "a b",
            expect!["unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"],
        );
        labels("a=b=c", expect!["found '=', expected: ',' or 'end of string'"]);
        labels("a=b,", expect!["found '', expected: identifier after ','"]);
        labels("a=(", expect!["unable to parse requirement: found '(', expected: identifier"]);
        labels("=b", expect!["found '=', expected: !, identifier, or 'end of string'"]);
        labels("!", expect!["unable to parse requirement: found '', expected: identifier"]);
        labels("!a=b", expect!["found '=', expected: ',' or 'end of string'"]);
        labels(
            "a>b",
            expect![[
                r#"unable to parse requirement: values[0]: Invalid value: "b": for 'Gt', 'Lt' operators, the value must be an integer"#
            ]],
        );
        labels(
            "a_/b",
            expect![[
                r#"unable to parse requirement: <nil>: Invalid value: "a_/b": prefix part a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"#
            ]],
        );
        labels(
            "a=b/c",
            expect![[
                r#"unable to parse requirement: values[0][a]: Invalid value: "b/c": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"#
            ]],
        );
        labels(
            "a in (b/c,d/e)",
            expect![[
                r#"unable to parse requirement: [values[0][a]: Invalid value: "b/c": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?'), values[1][a]: Invalid value: "d/e": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')]"#
            ]],
        );

        wrong(
            "apps",
            "daemonsets",
            "",
            "spec.foo=1",
            &expect![[
                r#""spec.foo" is not a known field selector: only "metadata.name", "metadata.namespace""#
            ]],
        );
        wrong("", "pods", "", "spec.foo=1", &expect!["field label not supported: spec.foo"]);
        wrong(
            "",
            "pods",
            "",
            "metadata.name=a,x",
            &expect!["invalid selector: 'metadata.name=a,x'; can't understand 'x'"],
        );
        wrong(
            "",
            "pods",
            "",
            r"metadata.name=a\b",
            &expect![[r#"invalid field selector: invalid escape sequence: \b"#]],
        );
        wrong(
            "",
            "pods",
            "",
            "metadata.name=a=b",
            &expect!["invalid field selector: unescaped character in value: 61"],
        );
    }

    proptest! {
        #[test]
        fn no_selector_is_too_strange(labels in "[a-c=!<>(), /in\\x00]{0,20}", fields in r"[a-c=!,.\\]{0,20}") {
            let _ = ObjectSelector::parse(Kind::builtin("", "v1", "pods"), &labels, &fields);
            let _ = ObjectSelector::parse(Kind::builtin("", "v1", "pods"), &fields, &labels);
        }
    }
}
