//! Makes the plan of one DaemonSet in assist mode. Upstream's DaemonSet controller, which runs beside this one, creates
//! all pods, records the revisions and writes the node counts of the status. This controller deletes or evicts the
//! outdated pods of the rollout, and writes verdicts, the DaemonRollout and conditions.

use alloc::collections::BTreeSet;

use muster_api::time::{Time, earliest};
use serde_json::Value;

use super::controller_mode::managed_status_fields;
use super::status::{self, ConditionInput};
use super::{DecisionInput, next_wake_up};
use crate::daemonset::facts::ConditionType;
use crate::daemonset::manifest::ASSIST_FIELD_MANAGER;
use crate::daemonset::plan::{Plan, Settings};
use crate::daemonset::progressive::rollout::{FreezeReason, ProgressiveRollout};
use crate::daemonset::progressive_plan;
use crate::daemonset::why::Why;

/// Makes the plan of one DaemonSet in assist mode.
///
/// Rule: in assist mode a DaemonSet is left alone if it has no progressive rollout that [`is_handled_in_assist_mode`]
/// accepts: only the conditions that this controller applied earlier are removed. The plan of any other DaemonSet
/// contains only verdicts, the DaemonRollout, deletes and evictions of outdated pods, measurements, events and
/// conditions. It has no writes until upstream's controller has recorded the template as the newest revision.
pub(crate) fn make_assist_plan(input: &DecisionInput<'_>, settings: &Settings, now: Time) -> Plan {
    let (set, set_state) = (input.set, input.set_state);
    let mut plan = Plan::idle(set.clone());
    let Some(current) = &set_state.history.current else {
        plan.waiting = Some(Why::RevisionNotRecorded);
        return plan;
    };
    let applied = applied_conditions(&set.metadata);
    let Some(active) = set_state.progressive.as_ref().filter(|it| is_handled_in_assist_mode(it)) else {
        plan.conditions = status::conditions_to_apply(set, &set_state.totals, None, &applied, now);
        return plan;
    };
    if !set_state.history.writes.is_empty() {
        plan.waiting = Some(Why::RevisionNotRecorded);
        return plan;
    }
    plan.hash = current.hash.clone();
    let budget = progressive_plan::add_progressive_rollout_writes(&mut plan, input, active, settings, now);
    // Upstream's controller creates the pods.
    plan.create.clear();
    plan.create_stable.clear();
    plan.stable = None;
    let progress = ConditionInput {
        budget,
        unavailable_max: budget,
        stalled_since: input.stalled_since(now),
        refused: None,
        hold: progressive_plan::hold_message_for_conditions(&plan, input, active),
        rollout: progressive_plan::rollout_report(&plan, active),
    };
    let wanted = settings.conditions.then_some(&progress);
    plan.conditions = status::conditions_to_apply(set, &set_state.totals, wanted, &applied, now);
    plan.wake_at = earliest(plan.wake_at, next_wake_up(input, settings, now));
    plan
}

/// Whether assist mode acts on a DaemonSet: a policy selects the DaemonSet, or it has a DaemonRollout and its rollout
/// is not frozen as [`FreezeReason::NotOnDelete`].
fn is_handled_in_assist_mode(active: &ProgressiveRollout) -> bool {
    let is_rolled_out_by_upstream = active.frozen == Some(FreezeReason::NotOnDelete);
    active.policy.is_some() || (active.record.is_some() && !is_rolled_out_by_upstream)
}

/// Returns the types of the status conditions that this controller owns by server-side apply in assist mode. Reads them
/// from the `managedFields` in `metadata`, the JSON of a DaemonSet's metadata. Types that are not a [`ConditionType`]
/// are left out.
fn applied_conditions(metadata: &str) -> BTreeSet<ConditionType> {
    let entries = managed_status_fields(metadata);
    let ours = entries.iter().filter(|it| it.manager == ASSIST_FIELD_MANAGER);
    let keys =
        ours.flat_map(|it| it.fields_v1["f:status"]["f:conditions"].as_object()).flat_map(|it| it.keys());
    keys.filter_map(|key| {
        let key: Value = serde_json::from_str(key.strip_prefix("k:")?).ok()?;
        ConditionType::parse(key["type"].as_str()?)
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString as _;

    use serde_json::json;

    use super::*;

    #[test]
    fn only_conditions_of_the_own_field_manager_are_applied_ones() {
        let conditions = json!({"f:conditions": {
            ".": {}, "k:{\"type\":\"Stalled\"}": {".": {}}, "k:{\"type\":\"Theirs\"}": {}, "k:no": {}, "v:1": {},
        }});
        let entry = |manager: &str, subresource: &str| {
            let fields = json!({"f:status": conditions});
            json!({"manager": manager, "subresource": subresource, "operation": "Apply", "fieldsV1": fields})
        };
        let applied = |entry: Value| applied_conditions(&json!({"managedFields": [entry]}).to_string());
        assert_eq!(applied(entry("muster-assist", "status")), BTreeSet::from([ConditionType::Stalled]));
        assert_eq!(applied(entry("muster-assist", "")), BTreeSet::new());
        assert_eq!(applied(entry("kube-controller-manager", "status")), BTreeSet::new());
        assert_eq!(applied(json!({"manager": "muster-assist", "subresource": "status"})), BTreeSet::new());
        for metadata in ["", "{}", "[]", r#"{"managedFields": 1}"#] {
            assert_eq!(applied_conditions(metadata), BTreeSet::new());
        }
    }
}
