//! The default roles are made at the start, and the roles that are gathered from others are kept in step with them.

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

/// Rule: a default role that is missing is made at the start; one that stands gets back the rules and subjects that it
/// lacks, unless it is annotated not to. What was added to it stays.
/// Upstream: `ReconcileRole` and `ReconcileRoleBinding`.
pub(crate) async fn make(registry: &Registry, now: Timestamp) -> Result<(), ApiError> {
    let roles = cluster_roles().into_iter().map(|it| ("clusterroles", it));
    let bindings = cluster_role_bindings().into_iter().map(|it| ("clusterrolebindings", it));
    // All at once, so that one sync of the disk does for many.
    let made = roles.chain(bindings).map(|(plural, default)| ensure(registry, plural, default, now));
    try_join_all(made).await?;
    aggregate(registry, now).await
}

async fn ensure(registry: &Registry, plural: &str, default: Value, now: Timestamp) -> Result<(), ApiError> {
    let target = target(plural, str_at(&default, "metadata.name"));
    let Some(stands) = registry.storage.peek(target.kind, None, &target.name) else {
        let context = Context::of_server("create", now);
        return registry.create(&context, target.kind, None, default).await.map(drop);
    };
    let stands = unstructured::parse(&stands);
    let Some(mended) = mended(&stands, &default) else { return Ok(()) };
    let context = Context::of_server("update", now);
    if mended["roleRef"] == stands["roleRef"] {
        return registry.update(&context, &target, |_| Ok(mended.clone())).await.map(drop);
    }
    // A binding cannot be made to refer to another role.
    registry.delete(&context, &target, &DeleteOptions::default()).await?;
    registry.create(&context, target.kind, None, default).await.map(drop)
}

/// What stands, with what it lacks of the default, if it lacks anything.
fn mended(stands: &Value, default: &Value) -> Option<Value> {
    if stands["metadata"]["annotations"][AUTO_UPDATE] == "false" {
        return None;
    }
    let mut new = stands.clone();
    for map in ["labels", "annotations"] {
        for (key, value) in default["metadata"][map].as_object().into_iter().flatten() {
            new["metadata"][map][key] = value.clone();
        }
    }
    if is_set(&default["aggregationRule"]) {
        new["aggregationRule"] = default["aggregationRule"].clone();
    } else if is_set(&default["rules"]) {
        let lacking = missing(&Rule::all(&stands["rules"]), &Rule::all(&default["rules"]));
        let rules = list(stands, "rules").iter().cloned().chain(lacking.iter().map(Rule::write));
        new["rules"] = rules.collect();
    }
    if is_set(&default["roleRef"]) {
        new["roleRef"] = default["roleRef"].clone();
        let same = |one: &Value, other: &Value| one["kind"] == other["kind"] && one["name"] == other["name"];
        let has = |wanted: &&Value| list(stands, "subjects").iter().any(|it| same(it, wanted));
        let lacking: Vec<_> = list(default, "subjects").iter().filter(|it| !has(it)).cloned().collect();
        if !lacking.is_empty() {
            new["subjects"] = list(stands, "subjects").iter().cloned().chain(lacking).collect();
        }
    }
    (new != *stands).then_some(new)
}

/// Rule: a ClusterRole with an aggregation rule has the rules of all ClusterRoles that one of its selectors selects, in the
/// order of their names, each once.
/// Upstream: the clusterrole-aggregation controller.
async fn aggregate(registry: &Registry, now: Timestamp) -> Result<(), ApiError> {
    // A role may be gathered from roles that are gathered themselves: no chain is longer than there are roles.
    let roles = Kind::builtin(RBAC, "v1", "clusterroles");
    let mut rounds = registry.storage.list(roles, None, &Selector::default()).0.len();
    loop {
        let (all, _) = registry.storage.list(roles, None, &Selector::default());
        let all: Vec<Value> = all.iter().map(|it| unstructured::parse(it)).collect();
        let mut changed = false;
        for role in all.iter().filter(|it| is_set(&it["aggregationRule"]["clusterRoleSelectors"])) {
            let gathered = gathered(role, &all);
            if list(role, "rules") == gathered {
                continue;
            }
            changed = true;
            let context = Context::of_server("update", now);
            let target = target("clusterroles", str_at(role, "metadata.name"));
            let put = |role: &Value| {
                let mut role = role.clone();
                role["rules"] = Value::Array(gathered.clone());
                Ok(role)
            };
            registry.update(&context, &target, put).await?;
        }
        if !changed || rounds == 0 {
            return Ok(());
        }
        rounds -= 1;
    }
}

fn gathered(role: &Value, all: &[Value]) -> Vec<Value> {
    let selectors = list(&role["aggregationRule"], "clusterRoleSelectors");
    let mut rules: Vec<Value> = Vec::new();
    for selector in selectors {
        let chosen = all.iter().filter(|it| it["metadata"]["uid"] != role["metadata"]["uid"]);
        for other in chosen.filter(|it| selects(selector, &it["metadata"]["labels"])) {
            for rule in list(other, "rules") {
                if !rules.contains(rule) {
                    rules.push(rule.clone());
                }
            }
        }
    }
    rules
}

/// A label selector as it is written in objects. One that cannot be read selects nothing.
fn selects(selector: &Value, labels: &Value) -> bool {
    let pairs = selector["matchLabels"].as_object().into_iter().flatten();
    let all_pairs = pairs.clone().all(|(key, value)| labels.get(key) == Some(value));
    let holds = |it: &Value| {
        let label = labels.get(str_at(it, "key"));
        match str_at(it, "operator") {
            "In" => label.is_some_and(|label| list(it, "values").contains(label)),
            "NotIn" => label.is_none_or(|label| !list(it, "values").contains(label)),
            "Exists" => label.is_some(),
            "DoesNotExist" => label.is_none(),
            _ => false,
        }
    };
    all_pairs && list(selector, "matchExpressions").iter().all(holds)
}

fn target(plural: &str, name: &str) -> Target {
    let kind = Kind::builtin(RBAC, "v1", plural);
    Target { kind, namespace: None, name: name.to_owned(), subresource: Subresource::Whole }
}

/// Keeps gathered roles in step until `stop`.
pub(crate) async fn keep(registry: Arc<Registry>, stop: CancellationToken) {
    let roles = Kind::builtin(RBAC, "v1", "clusterroles");
    let mut commits = registry.storage.commits_to(roles);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            changed = commits.changed() => if changed.is_err() { return },
        }
        if let Err(refusal) = aggregate(&registry, Timestamp::now()).await {
            tracing::warn!(status = %refusal.status(), "gather the rules of aggregated roles");
        }
    }
}
