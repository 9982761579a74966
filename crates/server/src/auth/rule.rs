//! RBAC policy rules, and the requests that they allow.

use serde_json::{Value, json};

use crate::request::{AccessTarget, RequestAttributes};
use crate::unstructured::list;

/// A `PolicyRule` of a role.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rule {
    pub(crate) groups: Vec<String>,
    pub(crate) resources: Vec<String>,
    pub(crate) urls: Vec<String>,
    pub(crate) names: Vec<String>,
    pub(crate) verbs: Vec<String>,
}

impl Rule {
    /// Parses the `rules` of a role.
    pub(crate) fn all(rules: &Value) -> Vec<Self> {
        rules.as_array().into_iter().flatten().map(Self::read).collect()
    }

    fn read(rule: &Value) -> Self {
        let texts = |name| list(rule, name).iter().filter_map(Value::as_str).map(str::to_owned).collect();
        Self {
            groups: texts("apiGroups"),
            resources: texts("resources"),
            urls: texts("nonResourceURLs"),
            names: texts("resourceNames"),
            verbs: texts("verbs"),
        }
    }

    /// The rule as a JSON object.
    pub(crate) fn write(&self) -> Value {
        let mut rule = json!({"verbs": self.verbs});
        let lists = [
            ("apiGroups", &self.groups),
            ("resources", &self.resources),
            ("nonResourceURLs", &self.urls),
            ("resourceNames", &self.names),
        ];
        for (name, texts) in lists.into_iter().filter(|(_, it)| !it.is_empty()) {
            rule[name] = json!(texts);
        }
        rule
    }

    /// Rule: a policy rule allows a request if it matches its verb, API group, resource and name. `*` matches
    /// everything, `*/status` the subresource `status` of all resources, and a path that ends with `*` all paths with
    /// that prefix.
    /// Upstream: `RuleAllows`.
    pub(crate) fn allows(&self, attributes: &RequestAttributes) -> bool {
        if !has(&self.verbs, &attributes.verb) {
            return false;
        }
        match &attributes.on {
            AccessTarget::Path(path) => self.urls.iter().any(|it| url_covers(it, path)),
            AccessTarget::Resource(it) => {
                has(&self.groups, &it.group)
                    && self.resources.iter().any(|rule| names_resource(rule, &it.plural, &it.subresource))
                    && (self.names.is_empty() || self.names.contains(&it.name))
            }
        }
    }

    /// Whether `self` grants `part`, a rule with one verb on one resource or path. Upstream: `ruleCovers`.
    pub(crate) fn covers(&self, part: &Self) -> bool {
        let names = if part.names.is_empty() {
            self.names.is_empty()
        } else {
            self.names.is_empty() || part.names.iter().all(|it| self.names.contains(it))
        };
        let has_resource = |wanted: &String| {
            let (plural, subresource) = wanted.split_once('/').unwrap_or((wanted, ""));
            self.resources.contains(wanted)
                || self.resources.iter().any(|it| names_resource(it, plural, subresource))
        };
        names
            && part.verbs.iter().all(|it| has(&self.verbs, it))
            && part.groups.iter().all(|it| has(&self.groups, it))
            && part.resources.iter().all(has_resource)
            && part.urls.iter().all(|url| self.urls.iter().any(|it| url_covers(it, url)))
    }

    /// Splits the rule into rules with one verb on one resource or path each. Upstream: `BreakdownRule`.
    pub(crate) fn parts(&self) -> Vec<Self> {
        let one = |it: &String| vec![it.clone()];
        let mut parts = Vec::new();
        for group in &self.groups {
            for resource in &self.resources {
                for verb in &self.verbs {
                    let whole = Self {
                        groups: one(group),
                        resources: one(resource),
                        verbs: one(verb),
                        ..Self::default()
                    };
                    if self.names.is_empty() {
                        parts.push(whole);
                    } else {
                        parts.extend(self.names.iter().map(|it| Self { names: one(it), ..whole.clone() }));
                    }
                }
            }
        }
        for url in &self.urls {
            parts.extend(self.verbs.iter().map(|it| Self {
                urls: one(url),
                verbs: one(it),
                ..Self::default()
            }));
        }
        parts
    }

    /// Formats the rule as in error messages: `{APIGroups:["apps"], Resources:["daemonsets"], Verbs:["get"]}`.
    pub(crate) fn compact(&self) -> String {
        let lists = [
            ("APIGroups", &self.groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.urls),
            ("ResourceNames", &self.names),
            ("Verbs", &self.verbs),
        ];
        let fields = lists.into_iter().filter(|(_, it)| !it.is_empty());
        let fields: Vec<_> = fields.map(|(name, it)| format!("{name}:{}", go_strings(it))).collect();
        format!("{{{}}}", fields.join(", "))
    }
}

/// The permissions in `wanted` that `held` does not cover. Verbs on the same resource are combined again.
pub(crate) fn missing(held: &[Rule], wanted: &[Rule]) -> Vec<Rule> {
    let mut lacking: Vec<Rule> = Vec::new();
    let parts = wanted.iter().flat_map(Rule::parts);
    for part in parts.filter(|part| !held.iter().any(|it| it.covers(part))) {
        let is_same_resource = |it: &&mut Rule| {
            part.urls.is_empty()
                && (&it.groups, &it.resources, &it.urls, &it.names)
                    == (&part.groups, &part.resources, &part.urls, &part.names)
        };
        match lacking.iter_mut().find(is_same_resource) {
            Some(it) => it.verbs.extend(part.verbs),
            None => lacking.push(part),
        }
    }
    lacking
}

/// Formats a list of strings as Go's `%q` does: `["a" "b"]`.
pub(crate) fn go_strings(texts: &[String]) -> String {
    let texts: Vec<_> = texts.iter().map(|it| format!("{it:?}")).collect();
    format!("[{}]", texts.join(" "))
}

/// Whether the list contains the value or `*`.
fn has(list: &[String], wanted: &str) -> bool {
    list.iter().any(|it| it == "*" || it == wanted)
}

/// Whether a resource of a rule (`pods`, `pods/status`, `*/status`, `*`) matches a resource and subresource.
fn names_resource(rule: &str, plural: &str, subresource: &str) -> bool {
    if rule == "*" {
        return true;
    }
    match rule.split_once('/') {
        None => subresource.is_empty() && rule == plural,
        Some((resource, rule_subresource)) => {
            !subresource.is_empty()
                && rule_subresource == subresource
                && (resource == "*" || resource == plural)
        }
    }
}

fn url_covers(rule: &str, url: &str) -> bool {
    rule == url || (rule.ends_with('*') && url.starts_with(rule.trim_end_matches('*')))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(text: &str) -> Vec<Rule> {
        Rule::all(&serde_json::from_str(text).unwrap())
    }

    #[test]
    fn what_is_missing_is_said_thing_by_thing() {
        let held = rules(
            r#"[{"apiGroups":[""],"resources":["pods","*/status"],"verbs":["get","list"]},
                {"nonResourceURLs":["/healthz*"],"verbs":["get"]},
                {"apiGroups":[""],"resources":["secrets"],"resourceNames":["a"],"verbs":["get"]}]"#,
        );
        let wanted = rules(
            r#"[{"apiGroups":["","apps"],"resources":["pods","nodes/status"],"verbs":["get","delete"]},
                {"nonResourceURLs":["/healthz/ping","/metrics"],"verbs":["get"]},
                {"apiGroups":[""],"resources":["secrets"],"resourceNames":["a","b"],"verbs":["get"]},
                {"apiGroups":[""],"resources":["secrets"],"verbs":["get"]}]"#,
        );
        let said: Vec<_> = missing(&held, &wanted).iter().map(Rule::compact).collect();
        expect_test::expect![[r#"
            {APIGroups:[""], Resources:["pods"], Verbs:["delete"]}
            {APIGroups:[""], Resources:["nodes/status"], Verbs:["delete"]}
            {APIGroups:["apps"], Resources:["pods"], Verbs:["get" "delete"]}
            {APIGroups:["apps"], Resources:["nodes/status"], Verbs:["get" "delete"]}
            {NonResourceURLs:["/metrics"], Verbs:["get"]}
            {APIGroups:[""], Resources:["secrets"], ResourceNames:["b"], Verbs:["get"]}
            {APIGroups:[""], Resources:["secrets"], Verbs:["get"]}"#]]
        .assert_eq(&said.join("\n"));
    }
}
