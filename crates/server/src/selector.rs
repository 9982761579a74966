//! Label and field selectors: which objects a list, a watch or a delete is about.

use muster_store::{Index, Record};
use serde_json::Value;

use crate::convert;
use crate::kinds::Kind;
use crate::object;
use crate::refusal::Refusal;

#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Selector {
    labels: Vec<Label>,
    fields: Vec<Field>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Label {
    key: String,
    must: Must,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Must {
    Exist,
    NotExist,
    BeIn(Vec<String>),
    NotBeIn(Vec<String>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Field {
    path: String,
    value: String,
    equal: bool,
}

impl Selector {
    pub(crate) fn parse(kind: &Kind, labels: &str, fields: &str) -> Result<Self, Refusal> {
        let labels = parse_labels(labels)
            .map_err(|why| Refusal::bad_request(format!("unable to parse requirement: {why}")))?;
        let fields = parse_fields(fields).map_err(|it| {
            Refusal::bad_request(format!("invalid selector: '{it}'; can't understand '{it}'"))
        })?;
        let known = |path: &str| {
            path == "metadata.name"
                || (kind.namespaced && path == "metadata.namespace")
                || kind.fields.contains(&path)
        };
        if let Some(unknown) = fields.iter().find(|it| !known(&it.path)) {
            return Err(Refusal::bad_request(format!(
                "\"{}\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"{}",
                unknown.path,
                kind.fields.iter().map(|it| format!(", \"{it}\"")).collect::<String>()
            )));
        }
        let fields = fields.into_iter();
        let fields =
            fields.map(|it| Field { path: convert::field(kind, &it.path).to_owned(), ..it }).collect();
        Ok(Self { labels, fields })
    }

    /// Asks the record's index alone: no object is parsed to be selected.
    pub(crate) fn matches(&self, record: &Record) -> bool {
        self.labels.iter().all(|it| it.matches(record.index.label(&it.key)))
            && self.fields.iter().all(|it| (field(record, &it.path) == it.value) == it.equal)
    }
}

/// Keys end in the namespace and the name; the other fields are in the index unless they are empty.
fn field<'a>(record: &'a Record, path: &str) -> &'a str {
    let mut from_end = record.key.rsplit('/');
    match path {
        "metadata.name" => from_end.next().unwrap_or_default(),
        "metadata.namespace" => from_end.nth(1).unwrap_or_default(),
        path => record.index.field(path).unwrap_or_default(),
    }
}

impl Kind {
    /// All that a selector may ask of an object of this kind.
    pub(crate) fn index(&self, object: &Value) -> Index {
        let labels = object["metadata"]["labels"].as_object().into_iter().flatten();
        let fields: Vec<_> = self.fields.iter().map(|path| (*path, object::text(object, path))).collect();
        Index::new(
            labels.filter_map(|(name, value)| Some((&**name, value.as_str()?))),
            fields.iter().filter(|it| !it.1.is_empty()).map(|(path, value)| (*path, &**value)),
        )
    }
}

impl Label {
    fn matches(&self, value: Option<&str>) -> bool {
        let among = |values: &[String]| value.is_some_and(|value| values.iter().any(|it| it == value));
        match &self.must {
            Must::Exist => value.is_some(),
            Must::NotExist => value.is_none(),
            Must::BeIn(values) => among(values),
            // A missing label is not among any values.
            Must::NotBeIn(values) => !among(values),
        }
    }
}

/// `a=b, c!=d, e in (f,g), h notin (i), j, !k`
fn parse_labels(text: &str) -> Result<Vec<Label>, String> {
    let mut labels = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        // A comma ends the requirement, unless it stands in the parentheses of a set.
        let mut depth = 0_u32;
        let end = rest.find(|it| {
            depth = if it == '(' { depth + 1 } else { depth.saturating_sub(u32::from(it == ')')) };
            depth == 0 && it == ','
        });
        let (one, after) = end.map_or((rest, ""), |at| (&rest[..at], &rest[at + 1..]));
        labels.push(parse_label(one.trim())?);
        rest = after.trim();
    }
    Ok(labels)
}

fn parse_label(text: &str) -> Result<Label, String> {
    let (key, must) = if let Some(key) = text.strip_prefix('!') {
        (key, Must::NotExist)
    } else if let Some((key, value)) = text.split_once("!=") {
        (key, Must::NotBeIn(vec![value.trim().to_owned()]))
    } else if let Some((key, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
        (key, Must::BeIn(vec![value.trim().to_owned()]))
    } else if let Some((head, set)) = text.split_once('(') {
        let set = set.strip_suffix(')').ok_or_else(|| format!("\"{text}\" has no closing parenthesis"))?;
        let values = set.split(',').map(|it| it.trim().to_owned()).collect();
        match head.trim().rsplit_once(char::is_whitespace) {
            Some((key, "in")) => (key, Must::BeIn(values)),
            Some((key, "notin")) => (key, Must::NotBeIn(values)),
            _ => return Err(format!("\"{text}\" has neither 'in' nor 'notin' before its values")),
        }
    } else {
        (text, Must::Exist)
    };
    let key = key.trim();
    let is_key = |it: char| it.is_ascii_alphanumeric() || matches!(it, '-' | '_' | '.' | '/');
    if key.is_empty() || !key.chars().all(is_key) {
        return Err(format!("\"{key}\" is not a label key"));
    }
    Ok(Label { key: key.to_owned(), must })
}

fn parse_fields(text: &str) -> Result<Vec<Field>, &str> {
    let parse = |term| -> Result<Field, _> {
        let (path, value, equal) = if let Some((path, value)) = str::split_once(term, "!=") {
            (path, value, false)
        } else if let Some((path, value)) = term.split_once("==").or_else(|| term.split_once('=')) {
            (path, value, true)
        } else {
            return Err(term);
        };
        Ok(Field { path: path.to_owned(), value: value.to_owned(), equal })
    };
    text.split(',').map(str::trim).filter(|it| !it.is_empty()).map(parse).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(labels: &str, fields: &str, matches: bool) {
        let pod = json!({
            "metadata": {"name": "p", "namespace": "a", "labels": {"app": "web", "tier": "", "example.com/x": "1"}},
            "spec": {"nodeName": "n1"},
            "status": {"phase": "Running"},
        });
        let kind = Kind::find("", "v1", "pods").unwrap();
        let selector = Selector::parse(kind, labels, fields).unwrap();
        let record = Record {
            key: kind.key(Some("a"), "p").into(),
            value: pod.to_string().into(),
            index: kind.index(&pod),
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
    }

    #[test]
    fn fields() {
        check("", "metadata.name=p,metadata.namespace=a,spec.nodeName=n1", true);
        check("", "metadata.name=a", false);
        check("", "status.phase!=Running", false);
        check("", "status.podIP=", true);
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        let kind = Kind::find("apps", "v1", "daemonsets").unwrap();
        for (labels, fields) in [("a in b", ""), ("a in (b", ""), ("a b", ""), ("", "spec.foo=1"), ("", "x")]
        {
            assert!(Selector::parse(kind, labels, fields).is_err(), "{labels} {fields}");
        }
    }
}
