//! Valid and invalid objects of muster.dev.

use serde_json::{Value, json};

/// One object per line: `+` if it is valid and `-` if not, what it is, and its spec or status.
const LISTED: &str = include_str!("agreement.txt");

/// A spec or a status.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) is_valid: bool,
    /// `policy`, `cluster`, `rollout`, `policy-status` or `rollout-status`.
    pub(crate) what: String,
    pub(crate) content: Value,
}

/// Returns the cases of `agreement.txt`.
pub(crate) fn listed_cases() -> impl Iterator<Item = Case> {
    LISTED.lines().filter_map(parse)
}

/// Reads a line. `<63>` stands for 63 letters.
fn parse(line: &str) -> Option<Case> {
    let (sign, rest) = line.split_once(' ').filter(|(sign, _)| matches!(*sign, "+" | "-"))?;
    let (what, json) = rest.split_once(' ').expect("a line has a kind and JSON");
    let mut text = String::new();
    for (index, part) in json.split('<').enumerate() {
        match part.split_once('>').filter(|_| 0 < index) {
            Some((count, part)) => {
                text.push_str(&"a".repeat(count.parse().expect("a number of letters")));
                text.push_str(part);
            }
            None => text.push_str(part),
        }
    }
    let content = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    Some(Case { is_valid: sign == "+", what: what.to_owned(), content: with_base(what, content) })
}

/// Adds a selector to a policy that has none, unless the line is about that.
fn with_base(what: &str, mut content: Value) -> Value {
    let object = content.as_object_mut().expect("a spec is an object");
    let has_target = ["selector", "daemonSets", "none"].iter().any(|it| object.contains_key(*it));
    object.remove("none");
    if matches!(what, "policy" | "cluster") && !has_target {
        object.insert("selector".to_owned(), json!({}));
    }
    content
}

/// Returns lists at their limit, and above it.
pub(crate) fn cases_of_long_lists() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut add = |what: &str, limit: usize, content: &dyn Fn(Vec<String>) -> Value| {
        for (count, is_valid) in [(limit, true), (limit + 1, false), (limit + 2, false)] {
            let names = (0..count).map(|it| format!("n{it}")).collect();
            cases.push(Case { is_valid, what: what.to_owned(), content: with_base(what, content(names)) });
        }
    };
    let named =
        |names: Vec<String>, item: &dyn Fn(String) -> Value| names.into_iter().map(item).collect::<Value>();
    let window = |_| json!({"start": "09:00", "end": "17:00"});
    let check = |name| json!({"name": name, "external": {}});
    add("policy", 10, &|it| json!({"windows": named(it, &window)}));
    add("policy", 20, &|it| json!({"steps": named(it, &|name| json!({"name": name}))}));
    add("policy", 10, &|it| json!({"checks": named(it, &check)}));
    add("policy", 20, &|it| json!({"failures": {"immediateFailureReasons": it}}));
    add(
        "policy",
        64,
        &|it| json!({"steps": [{"name": "a", "groups": {"labelKey": "zone", "sequence": it}}]}),
    );
    add("policy", 256, &|it| json!({"daemonSets": it}));
    let labels =
        |names: Vec<String>| names.into_iter().map(|it| (it, json!(""))).collect::<serde_json::Map<_, _>>();
    add("policy", 64, &|it| json!({"selector": {"matchLabels": labels(it)}}));
    add(
        "cluster",
        64,
        &|it| json!({"namespaceSelector": {"matchExpressions": named(it, &|key| json!({"key": key, "operator": "Exists"}))}}),
    );
    add(
        "cluster",
        64,
        &|it| json!({"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "In", "values": it}]}}),
    );
    let report = |check| json!({"check": check, "revision": "r", "result": "Pass"});
    add("rollout", 10, &|it| json!({"checkReports": named(it, &report)}));
    let failure = |node| json!({"node": node});
    add("rollout-status", 200, &|it| json!({"failures": {"nodes": named(it, &failure)}}));
    add("rollout-status", 200, &|it| json!({"failures": {"excused": named(it, &failure)}}));
    cases
}
