//! Enforces ResourceQuotas and keeps their usage. Upstream: the admission plugin `ResourceQuota`, and the resource
//! quota controller.
//!
//! A write is charged to `status.used` of the matching quotas before it is committed, by compare-and-swap, so that two
//! concurrent writes cannot both use the remaining quota. Deletions free quota when usage is recalculated. The usage of
//! a namespace is not recalculated while a charged write in it is in flight.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures::future::BoxFuture;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::Admission;
use super::resources::{self, Amounts, add, amounts, is_best_effort};
use super::{AdmissionAttributes, Operation};
use crate::error::ApiError;
use crate::kinds::Kind;
use crate::request::{Context, Target};
use crate::selector::Selector;
use crate::subresource::Subresource;
use crate::unstructured::{self, is_set, list, str_at};
use muster_api::quantity::Quantity;

/// Charges whose writes are not committed yet, by namespace.
#[derive(Debug, Default, Clone)]
pub(crate) struct Charges(Arc<Shared>);

/// The charges in flight, and the notification about failed ones.
#[derive(Debug, Default)]
struct Shared {
    state: Mutex<ChargeState>,
    unspent: Notify,
}

/// Numbers of charges in flight and of failed charges.
#[derive(Debug, Default)]
struct ChargeState {
    /// Number of charges in flight, by namespace.
    under_way: HashMap<String, usize>,
    /// Namespaces with charges for writes that failed: their usage must be recalculated.
    unspent: BTreeSet<String>,
}

/// Charge for one write. While it exists, the usage of its namespace is not recalculated. Dropped without `commit`, it
/// marks the charge as failed.
#[derive(Debug)]
pub(crate) struct Charge {
    charges: Charges,
    namespace: String,
    is_spent: bool,
}

impl Charges {
    /// Waits until a charged write fails.
    pub(crate) async fn unspent(&self) {
        self.0.unspent.notified().await;
    }

    /// Returns and clears the namespaces with failed charges.
    pub(crate) fn take_unspent(&self) -> BTreeSet<String> {
        std::mem::take(&mut self.lock().unspent)
    }

    /// Registers a charge in flight.
    fn begin(&self, namespace: &str) -> Charge {
        *self.lock().under_way.entry(namespace.to_owned()).or_default() += 1;
        Charge { charges: self.clone(), namespace: namespace.to_owned(), is_spent: false }
    }

    /// Whether the namespace has no charge in flight.
    fn is_idle(&self, namespace: &str) -> bool {
        !self.lock().under_way.contains_key(namespace)
    }

    fn lock(&self) -> MutexGuard<'_, ChargeState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Charge {
    /// Marks the charged write as committed.
    pub(crate) fn spent(mut self) {
        self.is_spent = true;
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let mut state = self.charges.lock();
        if let Some(count) = state.under_way.get_mut(&self.namespace) {
            *count -= 1;
            if *count == 0 {
                state.under_way.remove(&self.namespace);
            }
        }
        if !self.is_spent {
            state.unspent.insert(std::mem::take(&mut self.namespace));
            self.charges.0.unspent.notify_one();
        }
    }
}

/// Updates the status of quotas. Implemented by the registry, on which admission does not depend. Upstream:
/// `QuotaAccessor`.
pub(crate) trait QuotaAccessor: Sync {
    /// Writes the result of `change`; on a conflict, `change` is called again with the new quota.
    fn update_status<'a>(
        &'a self,
        context: &'a Context,
        quota: &'a Target,
        change: &'a (dyn Fn(&Value) -> Result<Value, ApiError> + Sync),
    ) -> BoxFuture<'a, Result<Bytes, ApiError>>;
}

/// Charges a write to all matching quotas of its namespace, or refuses it. Returns `None` if no quota applies.
pub(super) async fn charge(
    admission: &Admission,
    accessor: &dyn QuotaAccessor,
    context: &Context,
    attributes: AdmissionAttributes<'_>,
    object: &Value,
) -> Result<Option<Charge>, ApiError> {
    let (kind, namespace) = (attributes.target.kind.stored(), attributes.namespace());
    if namespace.is_empty() || !can_cost(kind, attributes.operation, object) {
        return Ok(None);
    }
    let quotas = quotas(admission, namespace);
    if quotas.is_empty() {
        return Ok(None);
    }
    let mut charge = admission.charges.begin(namespace);
    let mut is_charged = false;
    for quota in quotas {
        let target = Target {
            kind: quota_kind(),
            namespace: Some(namespace.to_owned()),
            name: str_at(&quota, "metadata.name").to_owned(),
            subresource: Subresource::Status,
        };
        let server = Context { dry_run: context.dry_run, ..Context::of_server("update", context.now) };
        // Each attempt reads the quota again and computes the charge from it.
        let update = |quota: &Value| {
            let mut quota = quota.clone();
            if let Some(used) = charged(&quota, kind, attributes, object, context.now)? {
                quota["status"]["used"] = said(&used);
            }
            Ok(quota)
        };
        match accessor.update_status(&server, &target, &update).await {
            Err(gone) if gone.code == hyper::StatusCode::NOT_FOUND => {}
            done => {
                is_charged |= unstructured::parse(&done?)["metadata"]["resourceVersion"]
                    != quota["metadata"]["resourceVersion"]
            }
        }
    }
    if !is_charged {
        charge.is_spent = true;
    }
    Ok(Some(charge))
}

/// Rule: a write is refused if it would exceed a quota, or if a pod does not set a compute resource that a quota
/// limits.
/// Returns the usage after the write, or `None` if the quota does not apply to the object.
fn charged(
    quota: &Value,
    kind: &Kind,
    attributes: AdmissionAttributes<'_>,
    object: &Value,
    now: Timestamp,
) -> Result<Option<Amounts>, ApiError> {
    let name = str_at(quota, "metadata.name");
    let (hard, used) = (amounts(&quota["status"]["hard"]), amounts(&quota["status"]["used"]));
    let mut restricted: Vec<&str> = hard.keys().map(String::as_str).filter(|it| is_of(kind, it)).collect();
    restricted.sort_unstable();
    if restricted.is_empty() || !in_scope(quota, kind, object) {
        return Ok(None);
    }
    if is_pod(kind) {
        refuse_unsaid(attributes, object, name, &restricted)?;
    }
    if restricted.iter().any(|it| !used.contains_key(*it)) {
        let why = format!("status unknown for quota: {name}, resources: {}", restricted.join(","));
        return Err(attributes.forbid(object, &why));
    }
    let mut cost = usage(kind, object, now);
    if let Operation::Update { old } = attributes.operation
        && in_scope(quota, kind, old)
    {
        for (name, before) in usage(kind, old, now) {
            if let Some(it) = cost.get_mut(&name) {
                *it = if *it <= before { Quantity::ZERO } else { it.minus(before) };
            }
        }
    }
    if let Some((resource, _)) = cost.iter().find(|(_, it)| it.is_negative()) {
        return Err(
            attributes.forbid(object, &format!("quota usage is negative for resource(s): {resource}"))
        );
    }
    cost.retain(|name, it| hard.contains_key(name) && !it.is_zero());
    if cost.is_empty() {
        return Ok(None);
    }
    let mut after = used.clone();
    add(&mut after, &cost);
    let exceeded: Vec<&String> = cost.keys().filter(|it| hard[*it] < after[*it]).collect();
    if !exceeded.is_empty() {
        let format_amounts = |from: &Amounts| {
            let amounts: Vec<_> = exceeded.iter().map(|it| format!("{it}={}", from[*it])).collect();
            amounts.join(",")
        };
        let why = format!(
            "exceeded quota: {name}, requested: {}, used: {}, limited: {}",
            format_amounts(&cost),
            format_amounts(&used),
            format_amounts(&hard)
        );
        return Err(attributes.forbid(object, &why));
    }
    Ok(Some(after))
}

/// Refuses a pod in which a container does not set a cpu or memory request or limit that the quota restricts.
fn refuse_unsaid(
    attributes: AdmissionAttributes<'_>,
    pod: &Value,
    quota: &str,
    restricted: &[&str],
) -> Result<(), ApiError> {
    const MUST_BE_SAID: [&str; 6] =
        ["cpu", "limits.cpu", "limits.memory", "memory", "requests.cpu", "requests.memory"];
    if is_set(&pod["spec"]["resources"]) {
        return Ok(());
    }
    let mut missing: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let spec = &pod["spec"];
    for container in list(spec, "containers").iter().chain(list(spec, "initContainers")) {
        let of = |which: &str| amounts(&container["resources"][which]);
        let usage = compute(&of("requests"), &of("limits"));
        for name in restricted.iter().filter(|it| MUST_BE_SAID.contains(it) && !usage.contains_key(**it)) {
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
    Err(attributes.forbid(pod, &format!("failed quota: {quota}: must specify {}", missing.join("; "))))
}

/// Whether the write can change the usage of a quota.
fn can_cost(kind: &Kind, operation: Operation<'_>, object: &Value) -> bool {
    match operation {
        Operation::Create => true,
        Operation::Update { old } if is_pod(kind) => is_terminating(old) != is_terminating(object),
        Operation::Update { .. } => is_service(kind),
        Operation::Delete => false,
    }
}

/// Whether a quota's resource name counts objects of the kind.
fn is_of(kind: &Kind, resource: &str) -> bool {
    if let Some(counted) = resource.strip_prefix("count/") {
        return counted == kind.resource();
    }
    if is_pod(kind) {
        let compute_name = resource.strip_prefix("requests.").or_else(|| resource.strip_prefix("limits."));
        let name = compute_name.unwrap_or(resource);
        return resource == "pods"
            || matches!(name, "cpu" | "memory" | "ephemeral-storage")
            || name.starts_with("hugepages-")
            // Extended resources, which cannot be overcommitted.
            || (resource.starts_with("requests.") && name.contains('/') && !name.contains("kubernetes.io/"));
    }
    if is_service(kind) {
        return matches!(resource, "services" | "services.nodeports" | "services.loadbalancers");
    }
    kind.group.is_empty()
        && resource == kind.plural
        && matches!(kind.plural, "configmaps" | "resourcequotas" | "secrets")
}

/// Quota usage of one object.
fn usage(kind: &Kind, object: &Value, now: Timestamp) -> Amounts {
    let mut used = Amounts::from([(format!("count/{}", kind.resource()), Quantity::whole(1))]);
    if is_pod(kind) {
        if !is_over(object, now) {
            let (mut requests, mut limits) =
                (resources::of_pod(object, "requests"), resources::of_pod(object, "limits"));
            let overhead = amounts(&object["spec"]["overhead"]);
            add(&mut requests, &overhead);
            for (name, amount) in &overhead {
                if let Some(limit) = limits.get_mut(name) {
                    *limit = limit.plus(*amount);
                }
            }
            used.extend(compute(&requests, &limits));
        }
    } else if is_service(kind) {
        let ports = list(&object["spec"], "ports");
        let count = |many: usize| Quantity::whole(i64::try_from(many).unwrap_or(i64::MAX));
        let with_node_port = ports.iter().filter(|it| it["nodePort"].as_i64().unwrap_or(0) != 0).count();
        let (node_ports, balancers) = match str_at(object, "spec.type") {
            "NodePort" => (ports.len(), 0),
            "LoadBalancer" if object["spec"]["allocateLoadBalancerNodePorts"] == false => (with_node_port, 1),
            "LoadBalancer" => (ports.len(), 1),
            _ => (0, 0),
        };
        used.insert("services".into(), Quantity::whole(1));
        used.insert("services.nodeports".into(), count(node_ports));
        used.insert("services.loadbalancers".into(), count(balancers));
    } else {
        used.insert(kind.plural.to_owned(), Quantity::whole(1));
    }
    used
}

/// Quota usage of a pod or container with these requests and limits.
fn compute(requests: &Amounts, limits: &Amounts) -> Amounts {
    let mut used = Amounts::from([("pods".to_owned(), Quantity::whole(1))]);
    for (name, amount) in requests {
        let is_hugepages = name.starts_with("hugepages-");
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

/// Whether a quota applies to an object: a quota without scopes applies to all objects, one with scopes to pods that
/// match every scope.
fn in_scope(quota: &Value, kind: &Kind, object: &Value) -> bool {
    let spec = &quota["spec"];
    let plain = list(spec, "scopes").iter().map(|it| (it.as_str().unwrap_or_default(), &Value::Null));
    let selectors = list(&spec["scopeSelector"], "matchExpressions").iter();
    let mut scopes = plain.chain(selectors.map(|it| (str_at(it, "scopeName"), it)));
    scopes.all(|(scope, selector)| is_pod(kind) && pod_in_scope(scope, selector, object))
}

fn pod_in_scope(scope: &str, selector: &Value, pod: &Value) -> bool {
    match scope {
        "Terminating" => is_terminating(pod),
        "NotTerminating" => !is_terminating(pod),
        "BestEffort" => is_best_effort(pod),
        "NotBestEffort" => !is_best_effort(pod),
        "PriorityClass" => {
            let class = str_at(pod, "spec.priorityClassName");
            let is_among = list(selector, "values").iter().any(|it| *it == class);
            match str_at(selector, "operator") {
                "In" => !class.is_empty() && is_among,
                "NotIn" => class.is_empty() || !is_among,
                "DoesNotExist" => class.is_empty(),
                _ => !class.is_empty(),
            }
        }
        "CrossNamespacePodAffinity" => reaches_other_namespaces(pod),
        _ => false,
    }
}

/// Whether the pod's affinity terms select pods in other namespaces.
fn reaches_other_namespaces(pod: &Value) -> bool {
    ["podAffinity", "podAntiAffinity"].into_iter().any(|which| {
        let affinity = &pod["spec"]["affinity"][which];
        let required = list(affinity, "requiredDuringSchedulingIgnoredDuringExecution").iter();
        let preferred = list(affinity, "preferredDuringSchedulingIgnoredDuringExecution").iter();
        required
            .chain(preferred.map(|it| &it["podAffinityTerm"]))
            .any(|it| is_set(&it["namespaces"]) || it["namespaceSelector"].is_object())
    })
}

/// Whether the pod is in the quota scope `Terminating`: it has an active deadline.
fn is_terminating(pod: &Value) -> bool {
    pod["spec"]["activeDeadlineSeconds"].as_i64().is_some_and(|it| 0 <= it)
}

/// Whether the pod is excluded from usage: it succeeded or failed, or its deletion is overdue.
fn is_over(pod: &Value, now: Timestamp) -> bool {
    let is_past =
        |it: &Value| it.as_str().and_then(|it| it.parse().ok()).is_some_and(|it: Timestamp| it < now);
    matches!(str_at(pod, "status.phase"), "Succeeded" | "Failed")
        || is_past(&pod["metadata"]["deletionTimestamp"])
}

/// Whether the namespace has a ResourceQuota.
pub(crate) fn has_quotas(admission: &Admission, namespace: &str) -> bool {
    !admission.storage.list(quota_kind(), Some(namespace), &Selector::default()).0.is_empty()
}

/// Recalculates the usage of a namespace and writes it to the status of its quotas. Returns false if it must be retried
/// later.
pub(crate) async fn count_quotas(
    admission: &Admission,
    accessor: &dyn QuotaAccessor,
    namespace: &str,
    now: Timestamp,
) -> bool {
    let mut all_written = true;
    for quota in quotas(admission, namespace) {
        // A charge that begins from here on changes the quota, so the update below fails with a conflict.
        let is_written = admission.charges.is_idle(namespace) && {
            let status = counted(admission, namespace, &quota, now);
            status == quota["status"] || {
                let target = Target {
                    kind: quota_kind(),
                    namespace: Some(namespace.to_owned()),
                    name: str_at(&quota, "metadata.name").to_owned(),
                    subresource: Subresource::Status,
                };
                // The status carries the resourceVersion, so only the quota that was read is updated.
                let update = |_: &Value| {
                    let mut quota = quota.clone();
                    quota["status"] = status.clone();
                    Ok(quota)
                };
                let done = accessor.update_status(&Context::of_server("update", now), &target, &update).await;
                done.is_ok()
            }
        };
        all_written &= is_written;
    }
    all_written
}

/// The status of a quota, calculated from all objects in the namespace.
fn counted(admission: &Admission, namespace: &str, quota: &Value, now: Timestamp) -> Value {
    let hard = amounts(&quota["spec"]["hard"]);
    let mut used: Amounts = hard.keys().map(|it| (it.clone(), Quantity::ZERO)).collect();
    let stored = admission.storage.kinds.writable().filter(|it| it.namespaced && it.is_stored());
    for kind in stored.filter(|kind| hard.keys().any(|it| is_of(kind, it))) {
        let (objects, _) = admission.storage.list(kind, Some(namespace), &Selector::default());
        for object in objects.iter().map(|it| unstructured::parse(it)).filter(|it| in_scope(quota, kind, it))
        {
            add(&mut used, &usage(kind, &object, now));
        }
    }
    used.retain(|name, _| hard.contains_key(name));
    json!({"hard": quota["spec"]["hard"], "used": said(&used)})
}

/// Quantities as a JSON object.
fn said(amounts: &Amounts) -> Value {
    amounts.iter().map(|(name, amount)| (name.clone(), json!(amount.to_string()))).collect()
}

fn quotas(admission: &Admission, namespace: &str) -> Vec<Value> {
    let (quotas, _) = admission.storage.list(quota_kind(), Some(namespace), &Selector::default());
    quotas.iter().map(|it| unstructured::parse(it)).collect()
}

fn quota_kind() -> &'static Kind {
    Kind::builtin("", "v1", "resourcequotas")
}

fn is_pod(kind: &Kind) -> bool {
    kind.group.is_empty() && kind.plural == "pods"
}

fn is_service(kind: &Kind) -> bool {
    kind.group.is_empty() && kind.plural == "services"
}
