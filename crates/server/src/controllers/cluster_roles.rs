//! Reconciles the default RBAC roles and bindings at start, and aggregates ClusterRoles.

use std::sync::Arc;

use futures::future::try_join_all;
use jiff::Timestamp;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::auth::RBAC;
use crate::auth::default_roles::{AUTO_UPDATE, cluster_role_bindings, cluster_roles};
use crate::auth::rule::{Rule, missing};
use crate::error::ApiError;
use crate::kinds::Kind;
use crate::registry::{DeleteOptions, Registry};
use crate::request::{Context, Target};
use crate::selector::Selector;
use crate::subresource::Subresource;
use crate::unstructured::{self, is_set, list, str_at};

/// Rule: missing default roles and bindings are created at start. Existing ones get back missing rules and subjects,
/// unless the annotation `autoupdate` is false; additional ones stay.
/// Upstream: `ReconcileRole` and `ReconcileRoleBinding`.
pub(crate) async fn make(registry: &Registry, now: Timestamp) -> Result<(), ApiError> {
    let roles = cluster_roles().into_iter().map(|it| ("clusterroles", it));
    let bindings = cluster_role_bindings().into_iter().map(|it| ("clusterrolebindings", it));
    // Concurrent, so that many writes share one sync of the disk.
    let made = roles.chain(bindings).map(|(plural, default)| ensure(registry, plural, default, now));
    try_join_all(made).await?;
    aggregate(registry, now).await
}

/// Creates a default role or binding, or adds missing rules and subjects to the stored one.
async fn ensure(registry: &Registry, plural: &str, default: Value, now: Timestamp) -> Result<(), ApiError> {
    let target = target(plural, str_at(&default, "metadata.name"));
    let Some(stored) = registry.storage.peek(target.kind, None, &target.name) else {
        let context = Context::of_server("create", now);
        return registry.create(&context, target.kind, None, default).await.map(drop);
    };
    let stored = unstructured::parse(&stored);
    let Some(reconciled) = mended(&stored, &default) else { return Ok(()) };
    let context = Context::of_server("update", now);
    if reconciled["roleRef"] == stored["roleRef"] {
        return registry.update(&context, &target, |_| Ok(reconciled.clone())).await.map(drop);
    }
    // The roleRef of a binding is immutable, so the binding is recreated.
    registry.delete(&context, &target, &DeleteOptions::default()).await?;
    registry.create(&context, target.kind, None, default).await.map(drop)
}

/// The stored object with the missing parts of the default added; `None` if nothing is missing.
fn mended(stored: &Value, default: &Value) -> Option<Value> {
    if stored["metadata"]["annotations"][AUTO_UPDATE] == "false" {
        return None;
    }
    let mut new = stored.clone();
    for map in ["labels", "annotations"] {
        for (key, value) in default["metadata"][map].as_object().into_iter().flatten() {
            new["metadata"][map][key] = value.clone();
        }
    }
    if is_set(&default["aggregationRule"]) {
        new["aggregationRule"] = default["aggregationRule"].clone();
    } else if is_set(&default["rules"]) {
        let lacking = missing(&Rule::all(&stored["rules"]), &Rule::all(&default["rules"]));
        let rules = list(stored, "rules").iter().cloned().chain(lacking.iter().map(Rule::write));
        new["rules"] = rules.collect();
    }
    if is_set(&default["roleRef"]) {
        new["roleRef"] = default["roleRef"].clone();
        let same = |one: &Value, other: &Value| one["kind"] == other["kind"] && one["name"] == other["name"];
        let has = |wanted: &&Value| list(stored, "subjects").iter().any(|it| same(it, wanted));
        let lacking: Vec<_> = list(default, "subjects").iter().filter(|it| !has(it)).cloned().collect();
        if !lacking.is_empty() {
            new["subjects"] = list(stored, "subjects").iter().cloned().chain(lacking).collect();
        }
    }
    (new != *stored).then_some(new)
}

/// Rule: a ClusterRole with an aggregation rule has the rules of all ClusterRoles that its selectors match, in the
/// order of their names, without duplicates.
/// Upstream: the clusterrole-aggregation controller.
async fn aggregate(registry: &Registry, now: Timestamp) -> Result<(), ApiError> {
    // Aggregated roles may be aggregated from each other: no chain is longer than the number of roles.
    let roles = Kind::builtin(RBAC, "v1", "clusterroles");
    let mut rounds = registry.storage.list(roles, None, &Selector::default()).0.len();
    loop {
        let (all, _) = registry.storage.list(roles, None, &Selector::default());
        let all: Vec<Value> = all.iter().map(|it| unstructured::parse(it)).collect();
        let mut changed = false;
        for role in all.iter().filter(|it| is_set(&it["aggregationRule"]["clusterRoleSelectors"])) {
            let rules = gathered(role, &all);
            if list(role, "rules") == rules {
                continue;
            }
            changed = true;
            let context = Context::of_server("update", now);
            let target = target("clusterroles", str_at(role, "metadata.name"));
            let set_rules = |role: &Value| {
                let mut role = role.clone();
                role["rules"] = Value::Array(rules.clone());
                Ok(role)
            };
            registry.update(&context, &target, set_rules).await?;
        }
        if !changed || rounds == 0 {
            return Ok(());
        }
        rounds -= 1;
    }
}

/// The rules of all roles that the aggregation rule of `role` selects.
fn gathered(role: &Value, all: &[Value]) -> Vec<Value> {
    let selectors = list(&role["aggregationRule"], "clusterRoleSelectors");
    let mut rules: Vec<Value> = Vec::new();
    for selector in selectors {
        let others = all.iter().filter(|it| it["metadata"]["uid"] != role["metadata"]["uid"]);
        for other in others.filter(|it| selects(selector, &it["metadata"]["labels"])) {
            for rule in list(other, "rules") {
                if !rules.contains(rule) {
                    rules.push(rule.clone());
                }
            }
        }
    }
    rules
}

/// Whether a `LabelSelector` matches the labels. An invalid selector matches nothing.
fn selects(selector: &Value, labels: &Value) -> bool {
    let pairs = selector["matchLabels"].as_object().into_iter().flatten();
    let all_pairs = pairs.clone().all(|(key, value)| labels.get(key) == Some(value));
    let matches_expression = |it: &Value| {
        let label = labels.get(str_at(it, "key"));
        match str_at(it, "operator") {
            "In" => label.is_some_and(|label| list(it, "values").contains(label)),
            "NotIn" => label.is_none_or(|label| !list(it, "values").contains(label)),
            "Exists" => label.is_some(),
            "DoesNotExist" => label.is_none(),
            _ => false,
        }
    };
    all_pairs && list(selector, "matchExpressions").iter().all(matches_expression)
}

/// The target of a write to a cluster-scoped RBAC object.
fn target(plural: &str, name: &str) -> Target {
    let kind = Kind::builtin(RBAC, "v1", plural);
    Target { kind, namespace: None, name: name.to_owned(), subresource: Subresource::Whole }
}

/// Aggregates ClusterRoles when they change, until `stop`.
pub(crate) async fn keep(registry: Arc<Registry>, stop: CancellationToken) {
    let roles = Kind::builtin(RBAC, "v1", "clusterroles");
    let mut commits = registry.storage.commits_to(roles);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            changed = commits.changed() => if changed.is_err() { return },
        }
        if let Err(error) = aggregate(&registry, Timestamp::now()).await {
            tracing::warn!(status = %error.status(), "cannot aggregate ClusterRoles");
        }
    }
}
