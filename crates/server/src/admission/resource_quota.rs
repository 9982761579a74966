//! Enforces ResourceQuotas and updates their usage. Upstream: the admission plugin `ResourceQuota`, and the resource
//! quota controller.
//!
//! A write that increases usage is committed together with the new `status.used` of the matching quotas. This update of
//! the quotas is called a charge. The commit requires that the quotas are unchanged, so two concurrent writes, even on
//! two servers, cannot both use the remaining quota, and no crash leaves a charge without its write. Deletions free
//! quota only when usage is recalculated.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use bytes::Bytes;
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

use super::AdmissionChain;
use super::{AdmissionAttributes, AdmissionOperation};
use crate::error::ApiError;
use crate::kinds::{Kind, QuotaEvaluator};
use crate::request::{RequestContext, RequestTarget};
use crate::selector::ObjectSelector;
use crate::storage::QuotaUpdate;
use crate::subresource::Subresource;
use crate::unstructured::{self, is_set, list_at, str_at};
use crate::validation::resources::is_native_resource;
use muster_api::core_v1::PodPhase;
use muster_api::qos::QosClass;
use muster_api::quantity::Quantity;
use muster_api::resources::{
    ResourceQuantities, add_quantities, is_huge_pages, quantities_from_json, spec_pod_total,
    spec_total_with_overhead,
};

/// Serializes the writes that change the usage of ResourceQuotas in a namespace. Concurrent writes of this server would
/// otherwise conflict with each other and be retried, because each updates the quota. The locks only save retries: the
/// commit itself checks that the quotas are unchanged.
#[derive(Debug, Default)]
pub(crate) struct QuotaLocks(Mutex<HashMap<String, Weak<AsyncMutex<()>>>>);

impl QuotaLocks {
    /// Waits until no other write of this server changes the usage of quotas in the namespace.
    async fn lock(&self, namespace: &str) -> OwnedMutexGuard<()> {
        let lock = {
            let mut locks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            match locks.get(namespace).and_then(Weak::upgrade) {
                Some(lock) => lock,
                None => {
                    locks.retain(|_, it| 0 < it.strong_count());
                    let lock = Arc::new(AsyncMutex::default());
                    locks.insert(namespace.to_owned(), Arc::downgrade(&lock));
                    lock
                }
            }
        };
        lock.lock_owned().await
    }
}

/// The usage that a write adds to the quotas of its namespace. The caller commits `updates` together with the write,
/// and drops the `QuotaCharge` only after the commit, because it holds the lock of the namespace in [`QuotaLocks`].
#[derive(Debug)]
pub(crate) struct QuotaCharge {
    pub(crate) updates: Vec<QuotaUpdate>,
    _lock: OwnedMutexGuard<()>,
}

/// Updates the status of quotas. The registry implements this trait, so that admission does not depend on the registry.
/// Upstream: `QuotaAccessor`.
pub(crate) trait QuotaAccessor: Sync {
    /// Writes the quota that `change` returns. After a concurrent write, calls `change` again with the quota that is
    /// stored now. Fails if `change` returns a quota with an outdated `resourceVersion`.
    fn update_status<'a>(
        &'a self,
        context: &'a RequestContext,
        quota: &'a RequestTarget,
        change: &'a (dyn Fn(&Value) -> Result<Value, ApiError> + Sync),
    ) -> BoxFuture<'a, Result<Bytes, ApiError>>;
}

/// Computes the new usage of each quota whose usage a write increases. The caller commits the new usage together with
/// the write. Fails if a quota does not allow the write, see [`usage_after_write`]. Returns `None` if the object has no
/// namespace, if the namespace has no quota, or if the write does not increase the usage of a quota.
pub(super) async fn prepare_quota_charge(
    admission: &AdmissionChain,
    context: &RequestContext,
    attributes: AdmissionAttributes<'_>,
    object: &Value,
) -> Result<Option<QuotaCharge>, ApiError> {
    let (kind, namespace) = (attributes.target.kind.storage_kind(), attributes.namespace());
    if namespace.is_empty()
        || !can_increase_usage(kind, attributes.operation, object)
        || !has_quotas(admission, namespace)
    {
        return Ok(None);
    }
    let lock = admission.quota_locks.lock(namespace).await;
    let mut updates = Vec::new();
    for mut quota in list_quotas(admission, namespace) {
        let Some(used) = usage_after_write(&quota, kind, attributes, object, context.now)? else { continue };
        quota["status"]["used"] = quantities_to_json(&used);
        let expected_revision =
            str_at(&quota, "metadata.resourceVersion").parse().expect("the store wrote the version");
        updates.push(QuotaUpdate { target: quota_status_target(&quota), expected_revision, quota });
    }
    Ok((!updates.is_empty()).then_some(QuotaCharge { updates, _lock: lock }))
}

/// Returns the target of a write to the status of a quota.
fn quota_status_target(quota: &Value) -> RequestTarget {
    RequestTarget {
        kind: resource_quota_kind(),
        namespace: Some(str_at(quota, "metadata.namespace").to_owned()),
        name: str_at(quota, "metadata.name").to_owned(),
        subresource: Subresource::Status,
    }
}

/// Returns the usage of a quota after a write. Returns `None` if the quota does not apply to the object, or if the
/// write does not increase the usage.
///
/// Rule: a write is refused if it would exceed a quota, or if the current usage of the quota is unknown. A pod is also
/// refused if it does not set a cpu or memory request or limit for which the quota has a maximum.
fn usage_after_write(
    quota: &Value,
    kind: &Kind,
    attributes: AdmissionAttributes<'_>,
    object: &Value,
    now: Timestamp,
) -> Result<Option<ResourceQuantities>, ApiError> {
    let name = str_at(quota, "metadata.name");
    let (hard, used) =
        (quantities_from_json(&quota["status"]["hard"]), quantities_from_json(&quota["status"]["used"]));
    let mut restricted: Vec<&str> =
        hard.keys().map(String::as_str).filter(|it| kind_uses_quota_resource(kind, it)).collect();
    restricted.sort_unstable();
    if restricted.is_empty() || !matches_scopes(quota, kind, object) {
        return Ok(None);
    }
    if kind.quota_evaluator == QuotaEvaluator::Pod {
        require_compute_resources(attributes, object, name, &restricted)?;
    }
    if restricted.iter().any(|it| !used.contains_key(*it)) {
        let why = format!("status unknown for quota: {name}, resources: {}", restricted.join(","));
        return Err(attributes.forbidden(object, &why));
    }
    let mut cost = object_usage(kind, object, now);
    if let AdmissionOperation::Update { old } = attributes.operation
        && matches_scopes(quota, kind, old)
    {
        for (name, before) in object_usage(kind, old, now) {
            if let Some(it) = cost.get_mut(&name) {
                *it = if *it <= before { Quantity::ZERO } else { it.minus(before) };
            }
        }
    }
    if let Some((resource, _)) = cost.iter().find(|(_, it)| it.is_negative()) {
        return Err(
            attributes.forbidden(object, &format!("quota usage is negative for resource(s): {resource}"))
        );
    }
    cost.retain(|name, it| hard.contains_key(name) && !it.is_zero());
    if cost.is_empty() {
        return Ok(None);
    }
    let mut after = used.clone();
    add_quantities(&mut after, &cost);
    let exceeded: Vec<&String> = cost.keys().filter(|it| hard[*it] < after[*it]).collect();
    if !exceeded.is_empty() {
        let format_amounts = |from: &ResourceQuantities| {
            let amounts: Vec<_> = exceeded.iter().map(|it| format!("{it}={}", from[*it])).collect();
            amounts.join(",")
        };
        let why = format!(
            "exceeded quota: {name}, requested: {}, used: {}, limited: {}",
            format_amounts(&cost),
            format_amounts(&used),
            format_amounts(&hard)
        );
        return Err(attributes.forbidden(object, &why));
    }
    Ok(Some(after))
}

/// Refuses a pod if one of its containers leaves out a cpu or memory request or limit for which the quota has a
/// maximum. A pod with pod-level resources is not checked. `restricted` lists the resources of the quota that apply to
/// pods.
fn require_compute_resources(
    attributes: AdmissionAttributes<'_>,
    pod: &Value,
    quota: &str,
    restricted: &[&str],
) -> Result<(), ApiError> {
    /// Quota resources that each container must set if a quota limits them.
    const REQUIRED_IF_LIMITED: [&str; 6] =
        ["cpu", "limits.cpu", "limits.memory", "memory", "requests.cpu", "requests.memory"];
    if is_set(&pod["spec"]["resources"]) {
        return Ok(());
    }
    let mut missing: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let spec = &pod["spec"];
    for container in list_at(spec, "containers").iter().chain(list_at(spec, "initContainers")) {
        let of = |which: &str| quantities_from_json(&container["resources"][which]);
        let usage = compute_resource_usage(&of("requests"), &of("limits"));
        for name in
            restricted.iter().filter(|it| REQUIRED_IF_LIMITED.contains(it) && !usage.contains_key(**it))
        {
            missing.entry(name).or_default().insert(str_at(container, "name"));
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    let missing: Vec<_> = missing
        .into_iter()
        .map(|(resource, containers)| {
            format!("{resource} for: {}", containers.into_iter().collect::<Vec<_>>().join(","))
        })
        .collect();
    Err(attributes.forbidden(pod, &format!("failed quota: {quota}: must specify {}", missing.join("; "))))
}

/// Whether the write can increase the usage of a quota. Creates can, and so can updates of Services, and updates that
/// set or remove `activeDeadlineSeconds` of a pod, because other quotas then apply to the pod.
fn can_increase_usage(kind: &Kind, operation: AdmissionOperation<'_>, object: &Value) -> bool {
    match operation {
        AdmissionOperation::Create => true,
        AdmissionOperation::Update { old } if kind.quota_evaluator == QuotaEvaluator::Pod => {
            has_active_deadline(old) != has_active_deadline(object)
        }
        AdmissionOperation::Update { .. } => kind.quota_evaluator == QuotaEvaluator::Service,
        AdmissionOperation::Delete => false,
    }
}

/// Whether objects of the kind use the quota resource `resource`, such as `count/pods` or `requests.cpu`.
fn kind_uses_quota_resource(kind: &Kind, resource: &str) -> bool {
    if let Some(counted) = resource.strip_prefix("count/") {
        return counted == kind.group_resource();
    }
    match kind.quota_evaluator {
        QuotaEvaluator::ObjectCount => false,
        QuotaEvaluator::ObjectCountAndPlural => resource == kind.plural,
        QuotaEvaluator::Pod => {
            let compute_name =
                resource.strip_prefix("requests.").or_else(|| resource.strip_prefix("limits."));
            let name = compute_name.unwrap_or(resource);
            resource == "pods"
                || matches!(name, "cpu" | "memory" | "ephemeral-storage")
                || is_huge_pages(name)
                // Extended resources, which cannot be overcommitted.
                || (resource.starts_with("requests.") && !is_native_resource(name))
        }
        QuotaEvaluator::Service => {
            matches!(resource, "services" | "services.nodeports" | "services.loadbalancers")
        }
    }
}

/// Returns the usage of one object, by quota resource such as `count/pods` or `requests.cpu`.
fn object_usage(kind: &Kind, object: &Value, now: Timestamp) -> ResourceQuantities {
    let mut used =
        ResourceQuantities::from([(format!("count/{}", kind.group_resource()), Quantity::from_units(1))]);
    match kind.quota_evaluator {
        QuotaEvaluator::ObjectCount => {}
        QuotaEvaluator::ObjectCountAndPlural => {
            used.insert(kind.plural.to_owned(), Quantity::from_units(1));
        }
        QuotaEvaluator::Pod if is_excluded_from_usage(object, now) => {}
        QuotaEvaluator::Pod => {
            let spec = &object["spec"];
            let mut requests = spec_pod_total(spec, "requests");
            add_quantities(&mut requests, &quantities_from_json(&spec["overhead"]));
            used.extend(compute_resource_usage(&requests, &spec_total_with_overhead(spec, "limits")));
        }
        QuotaEvaluator::Service => {
            let ports = list_at(&object["spec"], "ports");
            let count = |many: usize| Quantity::from_units(i64::try_from(many).unwrap_or(i64::MAX));
            let with_node_port = ports.iter().filter(|it| it["nodePort"].as_i64().unwrap_or(0) != 0).count();
            let (node_ports, balancers) = match str_at(object, "spec.type") {
                "NodePort" => (ports.len(), 0),
                "LoadBalancer" if object["spec"]["allocateLoadBalancerNodePorts"] == false => {
                    (with_node_port, 1)
                }
                "LoadBalancer" => (ports.len(), 1),
                _ => (0, 0),
            };
            used.insert("services".into(), Quantity::from_units(1));
            used.insert("services.nodeports".into(), count(node_ports));
            used.insert("services.loadbalancers".into(), count(balancers));
        }
    }
    used
}

/// Returns the usage of one pod or container with these requests and limits, by quota resource such as `pods` or
/// `requests.cpu`.
fn compute_resource_usage(requests: &ResourceQuantities, limits: &ResourceQuantities) -> ResourceQuantities {
    let mut used = ResourceQuantities::from([("pods".to_owned(), Quantity::from_units(1))]);
    for (name, amount) in requests {
        let is_hugepages = is_huge_pages(name);
        if matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage") || is_hugepages {
            used.insert(name.clone(), *amount);
            used.insert(format!("requests.{name}"), *amount);
        } else if name.contains('/') {
            used.insert(format!("requests.{name}"), *amount);
        }
    }
    for (name, amount) in limits {
        if matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage") {
            used.insert(format!("limits.{name}"), *amount);
        }
    }
    used
}

/// Whether a quota applies to an object. A quota without scopes applies to all objects. A quota with scopes applies
/// only to pods that are in every scope.
fn matches_scopes(quota: &Value, kind: &Kind, object: &Value) -> bool {
    let spec = &quota["spec"];
    let plain = list_at(spec, "scopes").iter().map(|it| (it.as_str().unwrap_or_default(), &Value::Null));
    let selectors = list_at(&spec["scopeSelector"], "matchExpressions").iter();
    let mut scopes = plain.chain(selectors.map(|it| (str_at(it, "scopeName"), it)));
    scopes.all(|(scope, selector)| {
        kind.quota_evaluator == QuotaEvaluator::Pod && matches_scope(scope, selector, object)
    })
}

/// Whether a pod is in one scope. `selector` is the match expression of the scope, or null for a scope without one.
fn matches_scope(scope: &str, selector: &Value, pod: &Value) -> bool {
    match scope {
        "Terminating" => has_active_deadline(pod),
        "NotTerminating" => !has_active_deadline(pod),
        "BestEffort" => QosClass::of_pod(pod) == QosClass::BestEffort,
        "NotBestEffort" => QosClass::of_pod(pod) != QosClass::BestEffort,
        "PriorityClass" => {
            let class = str_at(pod, "spec.priorityClassName");
            let is_among = list_at(selector, "values").iter().any(|it| *it == class);
            match str_at(selector, "operator") {
                "In" => !class.is_empty() && is_among,
                "NotIn" => class.is_empty() || !is_among,
                "DoesNotExist" => class.is_empty(),
                _ => !class.is_empty(),
            }
        }
        "CrossNamespacePodAffinity" => has_cross_namespace_affinity(pod),
        _ => false,
    }
}

/// Whether an affinity or anti-affinity term of the pod sets `namespaces` or `namespaceSelector`, so that it can select
/// pods in other namespaces.
fn has_cross_namespace_affinity(pod: &Value) -> bool {
    ["podAffinity", "podAntiAffinity"].into_iter().any(|which| {
        let affinity = &pod["spec"]["affinity"][which];
        let required = list_at(affinity, "requiredDuringSchedulingIgnoredDuringExecution").iter();
        let preferred = list_at(affinity, "preferredDuringSchedulingIgnoredDuringExecution").iter();
        required
            .chain(preferred.map(|it| &it["podAffinityTerm"]))
            .any(|it| is_set(&it["namespaces"]) || it["namespaceSelector"].is_object())
    })
}

/// Whether the pod sets `activeDeadlineSeconds`, which puts it in the quota scope `Terminating`.
fn has_active_deadline(pod: &Value) -> bool {
    pod["spec"]["activeDeadlineSeconds"].as_i64().is_some_and(|it| 0 <= it)
}

/// Whether the pod uses no quota except `count/pods`, because it succeeded or failed, or because more time than its
/// grace period has passed since its deletion timestamp. Upstream: `QuotaV1Pod`.
fn is_excluded_from_usage(pod: &Value, now: Timestamp) -> bool {
    let is_overdue = || {
        let deletion: Timestamp = str_at(pod, "metadata.deletionTimestamp").parse().ok()?;
        let grace_s = pod["metadata"]["deletionGracePeriodSeconds"].as_i64()?;
        Some(deletion.saturating_add(SignedDuration::from_secs(grace_s)).is_ok_and(|it| it < now))
    };
    PodPhase::parse(str_at(pod, "status.phase")).is_terminal() || is_overdue().unwrap_or(false)
}

/// Whether the namespace has a ResourceQuota.
pub(crate) fn has_quotas(admission: &AdmissionChain, namespace: &str) -> bool {
    !admission.storage.list(resource_quota_kind(), Some(namespace), &ObjectSelector::default()).0.is_empty()
}

/// Recalculates the usage of a namespace and writes it to the status of the namespace's quotas. Returns false if the
/// usage of a quota could not be written. The caller must then retry later.
pub(crate) async fn recalculate_quotas(
    admission: &AdmissionChain,
    accessor: &dyn QuotaAccessor,
    namespace: &str,
    now: Timestamp,
) -> bool {
    let _lock = admission.quota_locks.lock(namespace).await;
    let mut all_written = true;
    for quota in list_quotas(admission, namespace) {
        // A write that increases the usage from here on also updates the quota, so the update below fails with a
        // conflict.
        let status = recalculated_status(admission, namespace, &quota, now);
        if status == quota["status"] {
            continue;
        }
        // The status carries the resourceVersion, so only the quota that was read is updated.
        let update = |_: &Value| {
            let mut quota = quota.clone();
            quota["status"] = status.clone();
            Ok(quota)
        };
        let context = RequestContext::for_server("update", now);
        all_written &= accessor.update_status(&context, &quota_status_target(&quota), &update).await.is_ok();
    }
    all_written
}

/// Returns the status of a quota, calculated from all objects in the namespace.
fn recalculated_status(admission: &AdmissionChain, namespace: &str, quota: &Value, now: Timestamp) -> Value {
    let hard = quantities_from_json(&quota["spec"]["hard"]);
    let mut used: ResourceQuantities = hard.keys().map(|it| (it.clone(), Quantity::ZERO)).collect();
    let kinds = admission.storage.kinds.served();
    let stored = kinds.all().filter(|it| it.namespaced && it.is_stored());
    for kind in stored.filter(|kind| hard.keys().any(|it| kind_uses_quota_resource(kind, it))) {
        let (objects, _) = admission.storage.list(kind, Some(namespace), &ObjectSelector::default());
        for object in objects
            .iter()
            .map(|it| unstructured::parse_stored(it))
            .filter(|it| matches_scopes(quota, kind, it))
        {
            add_quantities(&mut used, &object_usage(kind, &object, now));
        }
    }
    used.retain(|name, _| hard.contains_key(name));
    json!({"hard": quota["spec"]["hard"], "used": quantities_to_json(&used)})
}

/// Formats a resource list as a JSON object.
fn quantities_to_json(amounts: &ResourceQuantities) -> Value {
    amounts.iter().map(|(name, amount)| (name.clone(), json!(amount.to_string()))).collect()
}

fn list_quotas(admission: &AdmissionChain, namespace: &str) -> Vec<Value> {
    let (quotas, _) =
        admission.storage.list(resource_quota_kind(), Some(namespace), &ObjectSelector::default());
    quotas.iter().map(|it| unstructured::parse_stored(it)).collect()
}

fn resource_quota_kind() -> &'static Kind {
    Kind::builtin("", "v1", "resourcequotas")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_counts_until_its_grace_period_has_passed_after_its_deletion_timestamp() {
        let now: Timestamp = "2026-01-01T00:01:00Z".parse().unwrap();
        let is_excluded = |pod: Value| is_excluded_from_usage(&pod, now);
        let deleted = |at: &str, grace_s: Value| json!({"metadata": {"deletionTimestamp": at, "deletionGracePeriodSeconds": grace_s}});
        assert!(!is_excluded(json!({"metadata": {}, "status": {"phase": "Running"}})));
        assert!(is_excluded(json!({"metadata": {}, "status": {"phase": "Failed"}})));
        assert!(!is_excluded(deleted("2026-01-01T00:00:40Z", json!(30))), "overdue in ten seconds");
        assert!(!is_excluded(deleted("2026-01-01T00:00:30Z", json!(30))), "not after this time yet");
        assert!(is_excluded(deleted("2026-01-01T00:00:29Z", json!(30))));
        assert!(!is_excluded(deleted("2026-01-01T00:00:00Z", Value::Null)), "without a grace period");
        assert!(!is_excluded(deleted("2026-01-01T00:00:00Z", json!(i64::MAX))));
    }
}
