//! RBAC policy rules, and the requests that they allow.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use serde_json::{Value, json};

use crate::request::{AccessTarget, RequestAttributes};
use crate::unstructured::list_at;

/// A policy rule of a Role or ClusterRole. Upstream: `rbacv1.PolicyRule`.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PolicyRule {
    pub(crate) api_groups: Vec<String>,
    pub(crate) resources: Vec<String>,
    pub(crate) non_resource_urls: Vec<String>,
    pub(crate) resource_names: Vec<String>,
    pub(crate) verbs: Vec<String>,
}

impl PolicyRule {
    /// Parses the field `rules` of a Role or ClusterRole.
    pub(crate) fn parse_list(rules: &Value) -> Vec<Self> {
        rules.as_array().into_iter().flatten().map(Self::parse).collect()
    }

    /// Parses one item of `rules` of a Role or ClusterRole.
    fn parse(rule: &Value) -> Self {
        let texts = |name| list_at(rule, name).iter().filter_map(Value::as_str).map(str::to_owned).collect();
        Self {
            api_groups: texts("apiGroups"),
            resources: texts("resources"),
            non_resource_urls: texts("nonResourceURLs"),
            resource_names: texts("resourceNames"),
            verbs: texts("verbs"),
        }
    }

    /// Returns the rule as JSON. Leaves out empty lists, except `verbs`.
    pub(crate) fn to_json(&self) -> Value {
        let mut rule = json!({"verbs": self.verbs});
        let lists = [
            ("apiGroups", &self.api_groups),
            ("resources", &self.resources),
            ("nonResourceURLs", &self.non_resource_urls),
            ("resourceNames", &self.resource_names),
        ];
        for (name, texts) in lists.into_iter().filter(|(_, it)| !it.is_empty()) {
            rule[name] = json!(texts);
        }
        rule
    }

    /// Whether the rule allows a request.
    ///
    /// Rule: a policy rule allows a request for a resource if it matches the verb, API group, resource and object name
    /// of the request. It allows any other request if it matches the verb and the path. `*` matches every verb, API
    /// group, resource with its subresources, or path. A rule without resource names matches every object name.
    /// `*/status` matches the subresource `status` of all resources. A path that ends with `*` matches all paths with
    /// that prefix.
    /// Upstream: `RuleAllows`.
    pub(crate) fn allows(&self, attributes: &RequestAttributes) -> bool {
        if !matches_any(&self.verbs, &attributes.verb) {
            return false;
        }
        match &attributes.target {
            AccessTarget::Path(path) => self.non_resource_urls.iter().any(|it| matches_url(it, path)),
            AccessTarget::Resource(it) => {
                matches_any(&self.api_groups, &it.group)
                    && self.resources.iter().any(|rule| matches_resource(rule, &it.plural, &it.subresource))
                    && (self.resource_names.is_empty() || self.resource_names.contains(&it.name))
            }
        }
    }

    /// Whether this rule grants everything that `part` grants. `part` is a rule that
    /// [`PolicyRule::split_by_verb_and_resource`] returned: one verb on one resource or path.
    /// Upstream: `ruleCovers`.
    pub(crate) fn covers(&self, part: &Self) -> bool {
        let names = if part.resource_names.is_empty() {
            self.resource_names.is_empty()
        } else {
            self.resource_names.is_empty()
                || part.resource_names.iter().all(|it| self.resource_names.contains(it))
        };
        let has_resource = |resource: &String| {
            let (plural, subresource) = resource.split_once('/').unwrap_or((resource, ""));
            self.resources.contains(resource)
                || self.resources.iter().any(|it| matches_resource(it, plural, subresource))
        };
        names
            && part.verbs.iter().all(|it| matches_any(&self.verbs, it))
            && part.api_groups.iter().all(|it| matches_any(&self.api_groups, it))
            && part.resources.iter().all(has_resource)
            && part
                .non_resource_urls
                .iter()
                .all(|url| self.non_resource_urls.iter().any(|it| matches_url(it, url)))
    }

    /// Splits the rule into rules with one verb on one resource or path each, and with at most one resource name.
    /// Upstream: `BreakdownRule`.
    pub(crate) fn split_by_verb_and_resource(&self) -> impl Iterator<Item = Self> + '_ {
        fn one(text: &str) -> Vec<String> {
            vec![text.to_owned()]
        }
        let names: Vec<Option<&String>> = match &self.resource_names[..] {
            [] => vec![None],
            names => names.iter().map(Some).collect(),
        };
        let of_verb = move |group: &str, resource: &str, verb: &str| -> Vec<Self> {
            let part = |name: &Option<&String>| Self {
                api_groups: one(group),
                resources: one(resource),
                verbs: one(verb),
                resource_names: name.iter().map(|it| (*it).clone()).collect(),
                ..Self::default()
            };
            names.iter().map(part).collect()
        };
        let resources =
            self.api_groups.iter().flat_map(|group| self.resources.iter().map(move |it| (group, it)));
        let resources =
            resources.flat_map(|(group, it)| self.verbs.iter().map(move |verb| (group, it, verb)));
        let urls =
            self.non_resource_urls.iter().flat_map(|url| self.verbs.iter().map(move |verb| (url, verb)));
        let urls =
            urls.map(|(url, verb)| Self { non_resource_urls: one(url), verbs: one(verb), ..Self::default() });
        resources.flat_map(move |(group, it, verb)| of_verb(group, it, verb)).chain(urls)
    }

    /// Returns an upper bound of the memory that all parts of the rule would take, see
    /// [`PolicyRule::split_by_verb_and_resource`].
    pub(crate) fn split_bytes(&self) -> usize {
        /// Memory of a part without the text of its strings.
        const PART_BYTES: usize = 200;
        let longest = |texts: &[String]| texts.iter().map(String::len).max().unwrap_or_default();
        let count = |texts: &[String]| texts.len().max(1);
        let resources = [&self.api_groups, &self.resources, &self.verbs, &self.resource_names];
        let urls = [&self.non_resource_urls, &self.verbs];
        let bytes = |lists: &[&Vec<String>]| {
            let part: usize = lists.iter().map(|it| longest(it)).sum();
            lists.iter().map(|it| count(it)).fold(part + PART_BYTES, usize::saturating_mul)
        };
        bytes(&resources).saturating_add(bytes(&urls))
    }

    /// Formats the rule as in error messages: `{APIGroups:["apps"], Resources:["daemonsets"], Verbs:["get"]}`.
    pub(crate) fn format_compact(&self) -> String {
        let lists = [
            ("APIGroups", &self.api_groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.non_resource_urls),
            ("ResourceNames", &self.resource_names),
            ("Verbs", &self.verbs),
        ];
        let fields = lists.into_iter().filter(|(_, it)| !it.is_empty());
        let fields: Vec<_> = fields.map(|(name, it)| format!("{name}:{}", go_string_list(it))).collect();
        format!("{{{}}}", fields.join(", "))
    }
}

/// Returns the permissions in `requested` that no rule in `held` covers. The missing verbs on one resource are combined
/// into one rule.
pub(crate) fn missing_rules(held: &[PolicyRule], requested: &[PolicyRule]) -> Vec<PolicyRule> {
    let mut missing: Vec<PolicyRule> = Vec::new();
    // The index in `missing` of each resource, which is a rule without verbs.
    let mut indices: HashMap<PolicyRule, usize> = HashMap::new();
    let parts = requested.iter().flat_map(PolicyRule::split_by_verb_and_resource);
    for part in parts.filter(|part| !held.iter().any(|it| it.covers(part))) {
        if !part.non_resource_urls.is_empty() {
            missing.push(part);
            continue;
        }
        let resource = PolicyRule { verbs: Vec::new(), ..part.clone() };
        match indices.entry(resource) {
            Entry::Occupied(it) => missing[*it.get()].verbs.extend(part.verbs),
            Entry::Vacant(it) => {
                it.insert(missing.len());
                missing.push(part);
            }
        }
    }
    missing
}

/// Formats a list of strings as Go's `%q` does: `["a" "b"]`.
pub(crate) fn go_string_list(texts: &[String]) -> String {
    let texts: Vec<_> = texts.iter().map(|it| format!("{it:?}")).collect();
    format!("[{}]", texts.join(" "))
}

/// Whether `list`, a list of verbs or API groups of a policy rule, contains the value or `*`.
fn matches_any(list: &[String], value: &str) -> bool {
    list.iter().any(|it| it == "*" || it == value)
}

/// Whether a resource of a rule (`pods`, `pods/status`, `*/status`, `*`) matches a resource and subresource.
fn matches_resource(rule: &str, plural: &str, subresource: &str) -> bool {
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

/// Whether a non-resource URL of a rule (`/healthz`, `/openapi/*`) matches a path.
fn matches_url(rule: &str, url: &str) -> bool {
    rule == url || (rule.ends_with('*') && url.starts_with(rule.trim_end_matches('*')))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(text: &str) -> Vec<PolicyRule> {
        PolicyRule::parse_list(&serde_json::from_str(text).unwrap())
    }

    #[test]
    fn missing_permissions_are_listed_one_by_one() {
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
        let said: Vec<_> = missing_rules(&held, &wanted).iter().map(PolicyRule::format_compact).collect();
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

    #[test]
    fn the_parts_of_a_rule_are_made_one_by_one() {
        let texts: Vec<String> = (0..1_000).map(|it| it.to_string()).collect();
        let rule = PolicyRule {
            api_groups: texts.clone(),
            resources: texts.clone(),
            resource_names: texts.clone(),
            verbs: texts,
            ..PolicyRule::default()
        };
        assert_eq!(rule.split_by_verb_and_resource().take(2_000).count(), 2_000);
        assert!(1_000_usize.pow(4) < rule.split_bytes());
        let small = rules(r#"[{"apiGroups":[""],"resources":["pods"],"verbs":["get","list"]}]"#);
        assert_eq!(small[0].split_by_verb_and_resource().count(), 2);
        assert!(small[0].split_bytes() < 2_000);
    }
}
