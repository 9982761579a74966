//! Validation of an object as kube-apiserver does it: defaults, structural schema, validation rules.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use cel::{Context, Program};
use regex::Regex;
use serde_json::Value;

/// Keywords of a schema that can refuse a value.
const KEYWORDS: [&str; 12] = [
    "enum",
    "maximum",
    "maxItems",
    "maxLength",
    "maxProperties",
    "minimum",
    "minItems",
    "minLength",
    "pattern",
    "required",
    "type",
    "x-kubernetes-list-type",
];

/// Keywords whose errors keep kube-apiserver from evaluating rules. Upstream: `hasBlockingErr`.
const BLOCKING_KEYWORDS: [&str; 6] = ["enum", "maxItems", "maxLength", "maxProperties", "required", "type"];

/// Evaluates schemas, and counts by which keyword or rule values were refused.
#[derive(Debug, Default)]
pub(crate) struct SchemaValidator {
    programs: BTreeMap<String, Program>,
    patterns: BTreeMap<String, Regex>,
    /// By field and keyword, or by the text of a rule.
    pub(crate) refusals: BTreeMap<String, usize>,
    /// Why the current object is refused.
    errors: Vec<String>,
    /// Whether the rules are not evaluated for the current object.
    is_blocked: bool,
}

impl SchemaValidator {
    /// Returns the errors of an object. Its defaults are set first.
    pub(crate) fn errors(&mut self, schema: &Value, object: &Value) -> Vec<String> {
        let mut object = object.clone();
        set_defaults(schema, &mut object);
        self.is_blocked = false;
        self.check_schema(schema, &object, "");
        if !self.is_blocked {
            self.check_rules(schema, &object, "");
        }
        std::mem::take(&mut self.errors)
    }

    fn refuse(&mut self, key: String, path: &str, why: &str) {
        *self.refusals.entry(key).or_default() += 1;
        self.errors.push(format!("{path}: {why}"));
    }

    fn check_schema(&mut self, schema: &Value, value: &Value, path: &str) {
        let refused: Vec<&str> =
            KEYWORDS.iter().copied().filter(|it| !self.satisfies(it, schema, value)).collect();
        for keyword in &refused {
            self.is_blocked |= BLOCKING_KEYWORDS.contains(keyword);
            self.refuse(coverage_key(path, keyword), path, &format!("{keyword}: {}", schema[keyword]));
        }
        for part in schema["allOf"].as_array().into_iter().flatten() {
            self.check_schema(part, value, path);
        }
        if !refused.contains(&"type") {
            for (schema, value, path) in children(schema, value, path) {
                self.check_schema(schema, value, &path);
            }
        }
    }

    fn check_rules(&mut self, schema: &Value, value: &Value, path: &str) {
        for (schema, value, path) in children(schema, value, path) {
            self.check_rules(schema, value, &path);
        }
        for rule in schema["x-kubernetes-validations"].as_array().into_iter().flatten() {
            let text = rule["rule"].as_str().expect("a rule is text");
            if !self.holds(text, value) {
                self.refuse(text.to_owned(), path, rule["message"].as_str().expect("a rule has a message"));
            }
        }
    }

    fn satisfies(&mut self, keyword: &str, schema: &Value, value: &Value) -> bool {
        let Some(said) = schema.get(keyword) else {
            let is_int_or_string = schema["x-kubernetes-int-or-string"] == true;
            return keyword != "type" || !is_int_or_string || value.is_i64() || value.is_string();
        };
        let limit = said.as_u64().and_then(|it| usize::try_from(it).ok()).unwrap_or_default();
        let length = value.as_str().map(|it| it.chars().count());
        let items = value.as_array().map(Vec::len);
        match keyword {
            "type" => match said.as_str() {
                Some("object") => value.is_object(),
                Some("array") => value.is_array(),
                Some("string") => value.is_string(),
                Some("integer") => value.is_i64(),
                Some("boolean") => value.is_boolean(),
                other => panic!("no type is {other:?}"),
            },
            "enum" => said.as_array().is_some_and(|it| it.contains(value)),
            "maximum" => value.as_i64().is_none_or(|it| Some(it) <= said.as_i64()),
            "minimum" => value.as_i64().is_none_or(|it| said.as_i64() <= Some(it)),
            "maxItems" => items.is_none_or(|it| it <= limit),
            "minItems" => items.is_none_or(|it| limit <= it),
            "maxLength" => length.is_none_or(|it| it <= limit),
            "minLength" => length.is_none_or(|it| limit <= it),
            "maxProperties" => value.as_object().is_none_or(|it| it.len() <= limit),
            "pattern" => {
                let pattern = said.as_str().expect("a pattern is text");
                value.as_str().is_none_or(|it| self.matches(pattern, it))
            }
            "required" => {
                let mut names = said.as_array().into_iter().flatten().filter_map(Value::as_str);
                value.as_object().is_none_or(|it| names.all(|name| it.contains_key(name)))
            }
            "x-kubernetes-list-type" => {
                let keys = schema["x-kubernetes-list-map-keys"].as_array();
                let key = |item: &Value| match keys {
                    Some(keys) => {
                        keys.iter().map(|it| item[it.as_str().unwrap_or_default()].to_string()).collect()
                    }
                    None => item.to_string(),
                };
                let all: Vec<String> = value.as_array().into_iter().flatten().map(key).collect();
                said == "atomic" || all.iter().collect::<BTreeSet<_>>().len() == all.len()
            }
            other => panic!("{other} is not a keyword"),
        }
    }

    fn matches(&mut self, pattern: &str, text: &str) -> bool {
        let known = self.patterns.entry(pattern.to_owned());
        known
            .or_insert_with(|| Regex::new(pattern).expect("a pattern is a regular expression"))
            .is_match(text)
    }

    /// Evaluates a rule. A rule that cannot be evaluated would refuse the value with a message that says nothing.
    fn holds(&mut self, rule: &str, value: &Value) -> bool {
        let program = self
            .programs
            .entry(rule.to_owned())
            .or_insert_with(|| Program::compile(rule).unwrap_or_else(|error| panic!("{rule}: {error}")));
        let mut context = Context::default();
        context.add_variable_from_value("self", cel_value(value));
        match program.execute(&context) {
            Ok(cel::Value::Bool(holds)) => holds,
            other => panic!("{rule} of {value} is {other:?}"),
        }
    }
}

/// Fields and items of a value with their schemas and paths. Fields that the schema does not have are pruned.
fn children<'a>(schema: &'a Value, value: &'a Value, path: &str) -> Vec<(&'a Value, &'a Value, String)> {
    let field = |(name, value): (&String, &'a Value)| {
        let of = schema["properties"].get(name).or_else(|| schema.get("additionalProperties"))?;
        Some((of, value, format!("{path}.{name}")))
    };
    let item = |(index, item)| (&schema["items"], item, format!("{path}[{index}]"));
    let fields = value.as_object().into_iter().flatten().filter_map(field);
    fields.chain(value.as_array().into_iter().flatten().enumerate().map(item)).collect()
}

/// Everything in a schema that can refuse a value, by the keys of the refusals.
pub(crate) fn refusal_keys(schema: &Value, path: &str, found: &mut BTreeSet<String>) {
    for keyword in KEYWORDS {
        // Types are tested by the decoding. An atomic list refuses nothing.
        if keyword != "type" && schema.get(keyword).is_some_and(|it| it != "atomic") {
            found.insert(coverage_key(path, keyword));
        }
    }
    for rule in schema["x-kubernetes-validations"].as_array().into_iter().flatten() {
        found.extend(rule["rule"].as_str().map(str::to_owned));
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        refusal_keys(property, &format!("{path}.{name}"), found);
    }
    if let Some(items) = schema.get("items") {
        refusal_keys(items, &format!("{path}[0]"), found);
    }
}

/// The last name of a path and a keyword: fields with one name have one type.
fn coverage_key(path: &str, keyword: &str) -> String {
    let name = path.rsplit('.').next().unwrap_or_default();
    let (name, item) = name.split_once('[').map_or((name, ""), |(name, _)| (name, "[]"));
    format!("{name}{item} {keyword}")
}

/// Sets the defaults of absent fields in every object that is there. Upstream: `defaulting.Default`.
pub(crate) fn set_defaults(schema: &Value, value: &mut Value) {
    match value {
        Value::Object(object) => {
            for (name, property) in schema["properties"].as_object().into_iter().flatten() {
                if let Some(default) = property.get("default") {
                    object.entry(name.clone()).or_insert_with(|| default.clone());
                }
                if let Some(value) = object.get_mut(name) {
                    set_defaults(property, value);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|it| set_defaults(&schema["items"], it)),
        _ => {}
    }
}

/// A JSON value as CEL has it: whole numbers are signed.
fn cel_value(value: &Value) -> cel::Value {
    match value {
        Value::Null => cel::Value::Null,
        Value::Bool(it) => cel::Value::Bool(*it),
        Value::Number(it) => it.as_i64().map_or(cel::Value::Null, cel::Value::Int),
        Value::String(it) => it.as_str().into(),
        Value::Array(items) => items.iter().map(cel_value).collect::<Vec<_>>().into(),
        Value::Object(object) => {
            object.iter().map(|(name, it)| (name.clone(), cel_value(it))).collect::<HashMap<_, _>>().into()
        }
    }
}
