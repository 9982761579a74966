//! A namespace may hold only so much. Upstream: `ResourceQuota`, and the controller that counts what is used.
//!
//! A write is charged to the `status.used` of the quotas that it falls under before it is committed: by compare and swap,
//! so that two writes at once cannot both take the last of it. What goes frees its share when it is counted anew, and
//! nothing is counted while a charge is on its way into the store.

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

/// Charges whose writes are not in the store yet.
#[derive(Debug, Default, Clone)]
pub(crate) struct Charges(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<ChargeState>,
    unspent: Notify,
}

#[derive(Debug, Default)]
struct ChargeState {
    /// How many there are, by namespace.
    under_way: HashMap<String, usize>,
    /// Namespaces that were charged for a write that failed.
    unspent: BTreeSet<String>,
}

/// Holds off the counting of a namespace until its write came through or failed.
#[derive(Debug)]
pub(crate) struct Charge {
    charges: Charges,
    namespace: String,
    is_spent: bool,
}

impl Charges {
    /// Until some namespace was charged for nothing.
    pub(crate) async fn unspent(&self) {
        self.0.unspent.notified().await;
    }

    pub(crate) fn take_unspent(&self) -> BTreeSet<String> {
        std::mem::take(&mut self.lock().unspent)
    }

    fn begin(&self, namespace: &str) -> Charge {
        *self.lock().under_way.entry(namespace.to_owned()).or_default() += 1;
        Charge { charges: self.clone(), namespace: namespace.to_owned(), is_spent: false }
    }

    fn is_idle(&self, namespace: &str) -> bool {
        !self.lock().under_way.contains_key(namespace)
    }

    fn lock(&self) -> MutexGuard<'_, ChargeState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Charge {
    /// The write was committed.
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

/// Writes the status of quotas. The registry does, which is above admission. Upstream: `QuotaAccessor`.
pub(crate) trait QuotaAccessor: Sync {
    /// Writes what `change` makes of the quota; `change` is called again if another write came first.
    fn update_status<'a>(
        &'a self,
        context: &'a Context,
        quota: &'a Target,
        change: &'a (dyn Fn(&Value) -> Result<Value, ApiError> + Sync),
    ) -> BoxFuture<'a, Result<Bytes, ApiError>>;
}

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
        // The quota is read anew for each try, and the charge worked out on what it says then.
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

/// Rule: a write is refused that would take more than a quota leaves, or that does not say how much of a rationed
/// resource it takes. What is used once the object is there; nothing if the quota does not concern it.
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
        let said = |from: &Amounts| {
            let said: Vec<_> = exceeded.iter().map(|it| format!("{it}={}", from[*it])).collect();
            said.join(",")
        };
        let why = format!(
            "exceeded quota: {name}, requested: {}, used: {}, limited: {}",
            said(&cost),
            said(&used),
            said(&hard)
        );
        return Err(attributes.forbid(object, &why));
    }
    Ok(Some(after))
}

/// Where processor or memory is rationed, every container must say how much it takes.
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
    let mut unsaid: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let spec = &pod["spec"];
    for container in list(spec, "containers").iter().chain(list(spec, "initContainers")) {
        let of = |which: &str| amounts(&container["resources"][which]);
        let said = compute(&of("requests"), &of("limits"));
        for name in restricted.iter().filter(|it| MUST_BE_SAID.contains(it) && !said.contains_key(**it)) {
            unsaid.entry(name).or_default().insert(str_at(container, "name"));
        }
    }
    if unsaid.is_empty() {
        return Ok(());
    }
    let unsaid: Vec<_> = unsaid
        .into_iter()
        .map(|(resource, containers)| {
            format!("{resource} for: {}", containers.into_iter().collect::<Vec<_>>().join(","))
        })
        .collect();
    Err(attributes.forbid(pod, &format!("failed quota: {quota}: must specify {}", unsaid.join("; "))))
}

/// Whether the write can change what is used at all.
fn can_cost(kind: &Kind, operation: Operation<'_>, object: &Value) -> bool {
    match operation {
        Operation::Create => true,
        Operation::Update { old } if is_pod(kind) => is_terminating(old) != is_terminating(object),
        Operation::Update { .. } => is_service(kind),
        Operation::Delete => false,
    }
}

/// Whether a quota's resource is one that objects of the kind use.
fn is_of(kind: &Kind, resource: &str) -> bool {
    if let Some(counted) = resource.strip_prefix("count/") {
        return counted == kind.resource();
    }
    if is_pod(kind) {
        let of_compute = resource.strip_prefix("requests.").or_else(|| resource.strip_prefix("limits."));
        let name = of_compute.unwrap_or(resource);
        return resource == "pods"
            || matches!(name, "cpu" | "memory" | "ephemeral-storage")
            || name.starts_with("hugepages-")
            // Resources of someone else's, which cannot be overcommitted.
            || (resource.starts_with("requests.") && name.contains('/') && !name.contains("kubernetes.io/"));
    }
    if is_service(kind) {
        return matches!(resource, "services" | "services.nodeports" | "services.loadbalancers");
    }
    kind.group.is_empty()
        && resource == kind.plural
        && matches!(kind.plural, "configmaps" | "resourcequotas" | "secrets")
}

/// What one object uses.
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

/// A quota without scopes concerns all objects; one with scopes the pods that are in all of them.
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

fn is_terminating(pod: &Value) -> bool {
    pod["spec"]["activeDeadlineSeconds"].as_i64().is_some_and(|it| 0 <= it)
}

/// It has ended, or has had its time to.
fn is_over(pod: &Value, now: Timestamp) -> bool {
    let is_past =
        |it: &Value| it.as_str().and_then(|it| it.parse().ok()).is_some_and(|it: Timestamp| it < now);
    matches!(str_at(pod, "status.phase"), "Succeeded" | "Failed")
        || is_past(&pod["metadata"]["deletionTimestamp"])
}

pub(crate) fn has_quotas(admission: &Admission, namespace: &str) -> bool {
    !admission.storage.list(quota_kind(), Some(namespace), &Selector::default()).0.is_empty()
}

/// Counts what the namespace uses, and says so in the status of its quotas. False if it could not be done now.
pub(crate) async fn count_quotas(
    admission: &Admission,
    accessor: &dyn QuotaAccessor,
    namespace: &str,
    now: Timestamp,
) -> bool {
    let mut is_done = true;
    for quota in quotas(admission, namespace) {
        // A charge that begins from here on changes the quota, so that what we counted without it is not written.
        let is_counted = admission.charges.is_idle(namespace) && {
            let status = counted(admission, namespace, &quota, now);
            status == quota["status"] || {
                let target = Target {
                    kind: quota_kind(),
                    namespace: Some(namespace.to_owned()),
                    name: str_at(&quota, "metadata.name").to_owned(),
                    subresource: Subresource::Status,
                };
                // With the version in it, only the quota that was read is changed.
                let update = |_: &Value| {
                    let mut quota = quota.clone();
                    quota["status"] = status.clone();
                    Ok(quota)
                };
                let done = accessor.update_status(&Context::of_server("update", now), &target, &update).await;
                done.is_ok()
            }
        };
        is_done &= is_counted;
    }
    is_done
}

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
