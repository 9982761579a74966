//! Reconciles the default RBAC roles and bindings at start, and aggregates ClusterRoles.

use std::sync::Arc;

use futures::future::try_join_all;
use jiff::Timestamp;
use muster_api::well_known::API_GROUP_RBAC;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::auth::default_roles::{
    AUTO_UPDATE_ANNOTATION, default_cluster_role_bindings, default_cluster_roles,
};
use crate::auth::policy_rule::{PolicyRule, missing_rules};
use crate::error::ApiError;
use crate::kinds::Kind;
use crate::registry::{DeleteOptions, Registry};
use crate::request::{RequestContext, RequestTarget};
use crate::selector::ObjectSelector;
use crate::subresource::Subresource;
use crate::unstructured::{self, is_set, list_at, str_at};
use crate::validation::selector_matches;

/// Reconciles the default roles and bindings, and aggregates ClusterRoles.
///
/// Rule: missing default roles and bindings are created at start. Existing default roles get the rules that they lack,
/// and existing default bindings the subjects that they lack, unless their annotation
/// `rbac.authorization.kubernetes.io/autoupdate` is `false`. Additional rules and subjects are kept, except the
/// subjects of a binding that is recreated because its `roleRef` differs.
/// Upstream: `ReconcileRole` and `ReconcileRoleBinding`.
pub(crate) async fn ensure_default_roles(registry: &Registry, now: Timestamp) -> Result<(), ApiError> {
    let roles =
        default_cluster_roles(&registry.storage.kinds.served()).into_iter().map(|it| ("clusterroles", it));
    let bindings = default_cluster_role_bindings().into_iter().map(|it| ("clusterrolebindings", it));
    // Concurrent, so that many writes share one sync of the disk.
    let creations =
        roles.chain(bindings).map(|(plural, default)| ensure_default_object(registry, plural, default, now));
    try_join_all(creations).await?;
    aggregate_roles(registry, now).await
}

/// Creates a default role or binding if it is missing. Otherwise reconciles the stored one with the default. A binding
/// with another `roleRef` is deleted and created again.
async fn ensure_default_object(
    registry: &Registry,
    plural: &str,
    default: Value,
    now: Timestamp,
) -> Result<(), ApiError> {
    let target = rbac_target(plural, str_at(&default, "metadata.name"));
    let Some(stored) = registry.storage.find(target.kind, None, &target.name) else {
        return create_unless_exists(registry, target.kind, default, now).await;
    };
    let stored = unstructured::parse_stored(&stored);
    let Some(reconciled) = reconciled_with_default(&stored, &default) else { return Ok(()) };
    let context = RequestContext::for_server("update", now);
    if reconciled["roleRef"] == stored["roleRef"] {
        return registry.update(&context, &target, |_| Ok(reconciled.clone())).await.map(drop);
    }
    // The roleRef of a binding is immutable, so the binding is recreated.
    match registry.delete(&context, &target, &DeleteOptions::default()).await {
        Err(error) if !error.is_not_found_or_conflict() => return Err(error),
        _ => {}
    }
    create_unless_exists(registry, target.kind, default, now).await
}

/// Creates a default role or binding, unless another server that shares the store has just created it.
async fn create_unless_exists(
    registry: &Registry,
    kind: &'static Kind,
    default: Value,
    now: Timestamp,
) -> Result<(), ApiError> {
    let context = RequestContext::for_server("create", now);
    match registry.create(&context, kind, None, default).await {
        Err(error) if error.is_already_exists() => Ok(()),
        done => done.map(drop),
    }
}

/// Returns the stored role or binding, updated from the default. Adds missing rules and subjects, except the rules of a
/// role with an `aggregationRule`. Overwrites labels, annotations, `aggregationRule` and `roleRef` that differ from the
/// default. Returns `None` if nothing changes, or if `AUTO_UPDATE_ANNOTATION` of the stored object is `false`.
fn reconciled_with_default(stored: &Value, default: &Value) -> Option<Value> {
    if stored["metadata"]["annotations"][AUTO_UPDATE_ANNOTATION] == "false" {
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
        let missing = missing_rules(
            &PolicyRule::parse_list(&stored["rules"]),
            &PolicyRule::parse_list(&default["rules"]),
        );
        let rules = list_at(stored, "rules").iter().cloned().chain(missing.iter().map(PolicyRule::to_json));
        new["rules"] = rules.collect();
    }
    if is_set(&default["roleRef"]) {
        new["roleRef"] = default["roleRef"].clone();
        let same = |one: &Value, other: &Value| one["kind"] == other["kind"] && one["name"] == other["name"];
        let has = |subject: &&Value| list_at(stored, "subjects").iter().any(|it| same(it, subject));
        let missing: Vec<_> = list_at(default, "subjects").iter().filter(|it| !has(it)).cloned().collect();
        if !missing.is_empty() {
            new["subjects"] = list_at(stored, "subjects").iter().cloned().chain(missing).collect();
        }
    }
    (new != *stored).then_some(new)
}

/// Updates the rules of all ClusterRoles with an aggregation rule.
///
/// Rule: a ClusterRole with an aggregation rule has the rules of all other ClusterRoles that its selectors match,
/// without duplicates. The rules are in the order of the selectors and, for each selector, of the names of the
/// ClusterRoles.
/// Upstream: the clusterrole-aggregation controller.
async fn aggregate_roles(registry: &Registry, now: Timestamp) -> Result<(), ApiError> {
    // Aggregated roles may be aggregated from each other: no chain is longer than the number of roles.
    let roles = Kind::builtin(API_GROUP_RBAC, "v1", "clusterroles");
    let mut rounds = registry.storage.list(roles, None, &ObjectSelector::default()).0.len();
    loop {
        let (all, _) = registry.storage.list(roles, None, &ObjectSelector::default());
        let all: Vec<Value> = all.iter().map(|it| unstructured::parse_stored(it)).collect();
        let mut changed = false;
        for role in all.iter().filter(|it| is_set(&it["aggregationRule"]["clusterRoleSelectors"])) {
            let rules = aggregated_rules(role, &all);
            if list_at(role, "rules") == rules {
                continue;
            }
            changed = true;
            let context = RequestContext::for_server("update", now);
            let target = rbac_target("clusterroles", str_at(role, "metadata.name"));
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

/// Returns the rules of all ClusterRoles in `all` that the aggregation rule of `role` selects, without duplicates.
fn aggregated_rules(role: &Value, all: &[Value]) -> Vec<Value> {
    let selectors = list_at(&role["aggregationRule"], "clusterRoleSelectors");
    let mut rules: Vec<Value> = Vec::new();
    for selector in selectors {
        let others = all.iter().filter(|it| it["metadata"]["uid"] != role["metadata"]["uid"]);
        for other in others.filter(|it| selector_matches(selector, &it["metadata"]["labels"])) {
            for rule in list_at(other, "rules") {
                if !rules.contains(rule) {
                    rules.push(rule.clone());
                }
            }
        }
    }
    rules
}

/// Returns the target of a write to a cluster-scoped RBAC object.
fn rbac_target(plural: &str, name: &str) -> RequestTarget {
    let kind = Kind::builtin(API_GROUP_RBAC, "v1", plural);
    RequestTarget { kind, namespace: None, name: name.to_owned(), subresource: Subresource::Whole }
}

/// Aggregates ClusterRoles when they change, until `stop` is cancelled.
pub(crate) async fn run(registry: Arc<Registry>, stop: CancellationToken) {
    let roles = Kind::builtin(API_GROUP_RBAC, "v1", "clusterroles");
    let mut commits = registry.storage.watch_kind_revision(roles);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            changed = commits.changed() => if changed.is_err() { return },
        }
        if let Err(error) = aggregate_roles(&registry, Timestamp::now()).await {
            tracing::warn!(status = %error.status(), "cannot aggregate ClusterRoles");
        }
    }
}
