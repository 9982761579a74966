//! `pods/eviction`: deletes a pod if its PodDisruptionBudget allows it. Upstream: `EvictionREST`.

use hyper::StatusCode;
use muster_api::core_v1::PodPhase;
use muster_api::well_known::DISRUPTION_TARGET;
use serde_json::{Value, json};

use super::created_status;
use crate::error::ApiError;
use crate::kinds::Kind;
use crate::registry::{DeleteOptions, DeletePropagation, Registry};
use crate::request::{RequestContext, RequestTarget};
use crate::selector::ObjectSelector;
use crate::subresource::Subresource;
use crate::unstructured::{self, is_condition_true, is_set, list_at, map_at_mut, str_at};
use crate::validation::selector_matches;

/// Maximum number of pods in `status.disruptedPods` of a PodDisruptionBudget, which lists the evicted pods that the
/// disruption controller has not processed yet. If it lists more, evictions are refused, because probably no disruption
/// controller is running. Upstream: `MaxDisruptedPodSize`.
const DISRUPTED_PODS_MAX: usize = 2000;

/// Maximum number of attempts to delete a pending pod that other clients change at the same time. Upstream:
/// `EvictionsRetry`.
const EVICTION_ATTEMPTS_MAX: u32 = 20;

/// Message of the 429 error for an eviction that the PodDisruptionBudget does not allow.
const BUDGET_VIOLATED_MESSAGE: &str = "Cannot evict pod as it would violate the pod's disruption budget.";

/// Evicts the pod `target`, and returns the `Status` for the response. `eviction` is the Eviction object in the request
/// body.
pub(super) async fn evict_pod(
    registry: &Registry,
    context: &RequestContext,
    target: &RequestTarget,
    eviction: &Value,
) -> Result<Value, ApiError> {
    let name = str_at(eviction, "metadata.name");
    if !name.is_empty() && name != target.name {
        return Err(ApiError::bad_request("name in URL does not match name in Eviction object"));
    }
    let delete_options = &eviction["deleteOptions"];
    let context = RequestContext {
        dry_run: context.dry_run || list_at(delete_options, "dryRun").iter().any(|it| it == "All"),
        field_manager: context.field_manager.clone(),
        user_agent: context.user_agent.clone(),
        ..RequestContext::new(context.user.clone(), "delete", context.now)
    };
    let target = RequestTarget { subresource: Subresource::Whole, ..target.clone() };
    let eviction = Eviction { registry, context: &context, target: &target };
    eviction.evict(&parse_delete_options(delete_options)).await?;
    Ok(created_status())
}

/// One eviction request: the pod to evict (`target`) and the context of the request.
struct Eviction<'a> {
    registry: &'a Registry,
    context: &'a RequestContext,
    target: &'a RequestTarget,
}

impl Eviction<'_> {
    /// Evicts the pod. A finished, terminating or pending pod is deleted without regard to PodDisruptionBudgets. Any
    /// other pod that a PodDisruptionBudget selects is deleted only if the budget allows it.
    async fn evict(&self, requested_options: &DeleteOptions) -> Result<(), ApiError> {
        // Authorization, node restriction, admission and preconditions come before the budget is charged and
        // the pod's condition is set.
        self.registry.check_delete(self.context, self.target, requested_options).await?;
        for _ in 0..EVICTION_ATTEMPTS_MAX {
            let pod = unstructured::parse_stored(&self.registry.storage.get(self.target)?);
            let phase = str_at(&pod, "status.phase");
            let is_over =
                PodPhase::parse(phase).is_terminal() || is_set(&pod["metadata"]["deletionTimestamp"]);
            if is_over {
                return self.delete_pod(&pod, requested_options, None).await;
            }
            // A pending pod is not disrupted, but it must not have started in the meantime.
            if phase == "Pending" {
                match self.delete_pod(&pod, requested_options, Some(resource_version(&pod))).await {
                    Err(conflict)
                        if conflict.code == StatusCode::CONFLICT
                            && requested_options.resource_version.is_none() =>
                    {
                        continue;
                    }
                    done => return done,
                }
            }
            return self.evict_within_budget(&pod, requested_options).await;
        }
        Err(ApiError::timeout())
    }

    /// Decrements `disruptionsAllowed` of the PodDisruptionBudget that selects the pod, and deletes the pod. Fails if
    /// [`charge_budget`] fails, or if several budgets select the pod. Deletes the pod without decrementing if no budget
    /// selects it, or if it is not Ready and the budget allows the eviction of unhealthy pods.
    async fn evict_within_budget(
        &self,
        pod: &Value,
        requested_options: &DeleteOptions,
    ) -> Result<(), ApiError> {
        let budgets = self.matching_budgets(pod);
        let budget = match &budgets[..] {
            [] => return self.delete_pod(pod, requested_options, None).await,
            [one] => one,
            _ => {
                return Err(ApiError::internal_without_reason(
                    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
                ));
            }
        };
        let name = str_at(budget, "metadata.name").to_owned();
        if !is_condition_true(pod, "Ready") && allows_unhealthy_pod_eviction(budget) {
            // The budget does not count an unready pod as healthy, so it may be deleted unless it has become
            // ready.
            return match self.delete_pod(pod, requested_options, Some(resource_version(pod))).await {
                Err(conflict)
                    if conflict.code == StatusCode::CONFLICT
                        && requested_options.resource_version.is_none() =>
                {
                    Err(budget_being_processed_error(&name))
                }
                done => done,
            };
        }
        let target = RequestTarget {
            kind: budget_kind(),
            namespace: self.target.namespace.clone(),
            name,
            subresource: Subresource::Status,
        };
        let server = RequestContext {
            dry_run: self.context.dry_run,
            ..RequestContext::for_server("update", self.context.now)
        };
        // The update reads the budget again for each attempt and charges it by compare-and-swap, so that two
        // evictions never use the same allowance.
        let charge = |budget: &Value| {
            charge_budget(budget, str_at(pod, "metadata.name"), &unstructured::format_time(self.context.now))
        };
        self.registry.update(&server, &target, charge).await?;
        self.delete_pod(pod, requested_options, None).await
    }

    /// Sets the condition `DisruptionTarget`, except in a dry run, and deletes the pod. Fails with a conflict if the
    /// `resourceVersion` of the pod is not that of the request or, if the request has none, `at`; or if the pod changes
    /// after the condition was set. Without either, any version of the pod is deleted.
    async fn delete_pod(
        &self,
        pod: &Value,
        requested_options: &DeleteOptions,
        at: Option<String>,
    ) -> Result<(), ApiError> {
        let mut at = requested_options.resource_version.clone().or(at);
        if !self.context.dry_run {
            let target = RequestTarget { subresource: Subresource::Status, ..self.target.clone() };
            let uid = requested_options.uid.clone().unwrap_or_else(|| str_at(pod, "metadata.uid").to_owned());
            let now = unstructured::format_time(self.context.now);
            let update = |pod: &Value| self.with_disruption_condition(pod, &uid, at.as_deref(), &now);
            let server = RequestContext::for_server("update", self.context.now);
            let marked = self.registry.update(&server, &target, update).await?;
            // The condition changed the resourceVersion.
            at = at.map(|_| resource_version(&unstructured::parse_stored(&marked)));
        }
        let options = DeleteOptions {
            grace_s: requested_options.grace_s,
            propagation: requested_options.propagation,
            uid: requested_options.uid.clone(),
            resource_version: at,
            ..DeleteOptions::default()
        };
        self.registry.delete(self.context, self.target, &options).await.map(drop)
    }

    /// Returns the pod with the condition `DisruptionTarget`. Fails if the UID of the pod is not `uid`, or if `at` is
    /// set and is not the `resourceVersion` of the pod.
    fn with_disruption_condition(
        &self,
        pod: &Value,
        uid: &str,
        at: Option<&str>,
        now: &str,
    ) -> Result<Value, ApiError> {
        let conflict = |why: &str| Err(ApiError::conflict(self.target.kind, &self.target.name, why));
        let (found_uid, found) = (str_at(pod, "metadata.uid"), str_at(pod, "metadata.resourceVersion"));
        if found_uid != uid {
            return conflict(&format!(
                "the UID in the precondition ({uid}) does not match the UID in record ({found_uid}). The object might have been deleted and then recreated"
            ));
        }
        if let Some(at) = at.filter(|it| *it != found) {
            return conflict(&format!(
                "the ResourceVersion in the precondition ({at}) does not match the ResourceVersion in record ({found}). The object might have been modified"
            ));
        }
        let mut pod = pod.clone();
        if !is_condition_true(&pod, DISRUPTION_TARGET) {
            let mut conditions = list_at(&pod["status"], "conditions").to_vec();
            conditions.retain(|it| it["type"] != DISRUPTION_TARGET);
            conditions.push(json!({
                "type": DISRUPTION_TARGET,
                "status": "True",
                "reason": "EvictionByEvictionAPI",
                "message": "Eviction API: evicting",
                "lastProbeTime": null,
                "lastTransitionTime": now,
            }));
            map_at_mut(&mut pod, "status").insert("conditions".into(), Value::Array(conditions));
        }
        Ok(pod)
    }

    /// Returns the PodDisruptionBudgets that select the pod. All of them are in the namespace of the pod.
    fn matching_budgets(&self, pod: &Value) -> Vec<Value> {
        let namespace = self.target.namespace.as_deref();
        let (budgets, _) = self.registry.storage.list(budget_kind(), namespace, &ObjectSelector::default());
        let budgets = budgets.iter().map(|it| unstructured::parse_stored(it));
        budgets.filter(|it| selector_matches(&it["spec"]["selector"], &pod["metadata"]["labels"])).collect()
    }
}

/// Returns the PodDisruptionBudget with the eviction of the pod named `pod` recorded in its status. Fails if the budget
/// allows no disruption, if its status is not up to date, or if it lists too many evicted pods.
///
/// Rule: an eviction decrements `disruptionsAllowed` of its PodDisruptionBudget. The eviction is refused if
/// `disruptionsAllowed` is zero.
fn charge_budget(budget: &Value, pod: &str, now: &str) -> Result<Value, ApiError> {
    let (name, status) = (str_at(budget, "metadata.name"), &budget["status"]);
    let number = |field: &str| status[field].as_i64().unwrap_or(0);
    if number("observedGeneration") < budget["metadata"]["generation"].as_i64().unwrap_or(0) {
        return Err(budget_being_processed_error(name));
    }
    let allowed = number("disruptionsAllowed");
    let forbid = |why: &str| Err(ApiError::forbidden(budget_kind(), name, why));
    if allowed < 0 {
        return forbid("pdb disruptions allowed is negative");
    }
    if DISRUPTED_PODS_MAX < status["disruptedPods"].as_object().map_or(0, serde_json::Map::len) {
        return forbid("DisruptedPods map too big - too many evictions not confirmed by PDB controller");
    }
    if allowed == 0 {
        return Err(ApiError::disruption_budget_exceeded(BUDGET_VIOLATED_MESSAGE, 0).with_cause(
            "DisruptionBudget",
            &no_disruption_reason(budget),
            "",
        ));
    }
    let mut budget = budget.clone();
    let status = map_at_mut(&mut budget, "status");
    status.insert("disruptionsAllowed".into(), json!(allowed - 1));
    // The disruption controller no longer counts this pod as healthy.
    let slot = status.entry("disruptedPods").or_insert_with(|| json!({}));
    if !slot.is_object() {
        *slot = json!({});
    }
    slot[pod] = json!(now);
    if allowed == 1 {
        let generation = budget["metadata"]["generation"].clone();
        for condition in
            budget["status"].get_mut("conditions").and_then(Value::as_array_mut).into_iter().flatten()
        {
            if condition["type"] == "DisruptionAllowed" && condition["status"] != "False" {
                condition["status"] = json!("False");
                condition["reason"] = json!("InsufficientPods");
                condition["observedGeneration"] = generation.clone();
                condition["lastTransitionTime"] = json!(now);
            }
        }
    }
    Ok(budget)
}

/// Returns an error message that says why the PodDisruptionBudget allows no disruption.
fn no_disruption_reason(budget: &Value) -> String {
    let (name, status) = (str_at(budget, "metadata.name"), &budget["status"]);
    let number = |field: &str| status[field].as_i64().unwrap_or(0);
    let (healthy, desired) = (number("currentHealthy"), number("desiredHealthy"));
    let condition = list_at(status, "conditions").iter().find(|it| it["type"] == "DisruptionAllowed");
    let condition = condition.filter(|it| it["status"] == "False" && is_set(&it["message"]));
    match condition.map(|it| (str_at(it, "reason"), str_at(it, "message"))) {
        Some(("SyncFailed", message)) => format!(
            "The disruption budget {name} does not allow evicting pods currently because it failed sync: {message}"
        ),
        _ if healthy <= desired => {
            format!("The disruption budget {name} needs {desired} healthy pods and has {healthy} currently")
        }
        Some((reason, message)) => format!(
            "The disruption budget {name} does not allow evicting pods currently ({reason}): {message}"
        ),
        None => format!("The disruption budget {name} does not allow evicting pods currently"),
    }
}

/// Returns the error for an eviction that the client should repeat after 10 seconds. Either the status of the
/// PodDisruptionBudget is not up to date, or the pod has changed in the meantime.
fn budget_being_processed_error(budget: &str) -> ApiError {
    let cause = format!("The disruption budget {budget} is still being processed by the server.");
    ApiError::disruption_budget_exceeded(BUDGET_VIOLATED_MESSAGE, 10).with_cause(
        "DisruptionBudget",
        &cause,
        "",
    )
}

/// Whether a pod that is not Ready may be evicted without decrementing `disruptionsAllowed`. With the
/// `unhealthyPodEvictionPolicy` `AlwaysAllow`, it always may. Otherwise it may if `desiredHealthy` is positive and at
/// least `desiredHealthy` pods are healthy.
fn allows_unhealthy_pod_eviction(budget: &Value) -> bool {
    let number = |field: &str| budget["status"][field].as_i64().unwrap_or(0);
    budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
        || (number("desiredHealthy") <= number("currentHealthy") && 0 < number("desiredHealthy"))
}

fn resource_version(object: &Value) -> String {
    str_at(object, "metadata.resourceVersion").to_owned()
}

/// Parses `deleteOptions` of an Eviction object, except `dryRun`. An invalid propagation policy counts as absent.
fn parse_delete_options(options: &Value) -> DeleteOptions {
    let text = |it: &Value| it.as_str().filter(|it| !it.is_empty()).map(str::to_owned);
    DeleteOptions {
        grace_s: options["gracePeriodSeconds"].as_i64(),
        propagation: match str_at(options, "propagationPolicy") {
            "Foreground" => Some(DeletePropagation::Foreground),
            "Orphan" => Some(DeletePropagation::Orphan),
            "Background" => Some(DeletePropagation::Background),
            _ => None,
        },
        uid: text(&options["preconditions"]["uid"]),
        resource_version: text(&options["preconditions"]["resourceVersion"]),
        ..DeleteOptions::default()
    }
}

/// Returns the kind PodDisruptionBudget.
fn budget_kind() -> &'static Kind {
    Kind::builtin("policy", "v1", "poddisruptionbudgets")
}
