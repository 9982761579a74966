//! Table columns of `kubectl get` for rollout policies and DaemonRollouts. The CustomResourceDefinitions declare the
//! same columns.

use serde_json::{Value, json};

use super::{
    AGE_COLUMN, Column, Field, NAME_COLUMN, boolean_column, integer_column, integer_or_zero, text_column,
};
use crate::unstructured::{list_at, str_at};

/// Columns of RolloutPolicies and ClusterRolloutPolicies.
pub(crate) const ROLLOUT_POLICY_COLUMNS: &[Column] = &[
    NAME_COLUMN,
    integer_column("Sets", Field("status.sets.matched"), |it, _| daemonset_count(it, "matched")),
    integer_column("Rolling", Field("status.sets.rolling"), |it, _| daemonset_count(it, "rolling")),
    integer_column("Waiting", Field("status.sets.waiting"), |it, _| daemonset_count(it, "waiting")),
    integer_column("Failed", Field("status.sets.failed"), |it, _| daemonset_count(it, "failed")),
    boolean_column("Paused", Field("spec.paused"), |it, _| json!(it["spec"]["paused"] == true)),
    AGE_COLUMN,
    integer_column("Steps", Field("spec.steps"), |it, _| json!(list_at(&it["spec"], "steps").len()))
        .only_wide(),
    text_column("On-Failure", Field("spec.onFailure"), |it, _| json!(str_at(it, "spec.onFailure")))
        .only_wide(),
];

pub(crate) const DAEMON_ROLLOUT_COLUMNS: &[Column] = &[
    NAME_COLUMN,
    text_column("Phase", Field("status.phase"), |it, _| json!(str_at(it, "status.phase"))),
    text_column("Step", Field("status.step.name"), |it, _| json!(str_at(it, "status.step.name"))),
    integer_column("Updated", Field("status.nodes.updated"), |it, _| {
        integer_or_zero(&it["status"]["nodes"]["updated"])
    }),
    integer_column("Held", Field("status.nodes.held"), |it, _| {
        integer_or_zero(&it["status"]["nodes"]["held"])
    }),
    integer_column("Faulty", Field("status.failures.counted"), |it, _| {
        integer_or_zero(&it["status"]["failures"]["counted"])
    }),
    text_column("Revision", Field("status.current.revision"), |it, _| {
        json!(str_at(it, "status.current.revision"))
    }),
    text_column("Stable", Field("status.stable.revision"), |it, _| {
        json!(str_at(it, "status.stable.revision"))
    }),
    AGE_COLUMN,
    text_column("Policy", Field("status.policy.name"), |it, _| json!(str_at(it, "status.policy.name")))
        .only_wide(),
    text_column("Message", Field("status.message"), |it, _| json!(str_at(it, "status.message"))).only_wide(),
];

/// Returns the field `name` of `status.sets` of a policy, which is a number of DaemonSets. Returns zero if the field is
/// absent.
fn daemonset_count(policy: &Value, name: &str) -> Value {
    integer_or_zero(&policy["status"]["sets"][name])
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::super::tests::rows;
    use super::*;

    #[test]
    fn policies_and_rollouts() {
        let policies = [
            json!({"metadata": {"name": "new", "creationTimestamp": "2026-01-09T23:59:00Z"}, "spec": {}}),
            json!({
                "metadata": {"name": "careful", "creationTimestamp": "2026-01-09T00:00:00Z"},
                "spec": {"paused": true, "steps": [{}, {}], "onFailure": "Auto"},
                "status": {"sets": {"matched": 12, "rolling": 1, "waiting": 2, "failed": 3}},
            }),
        ];
        expect![[r#"
            new | 0 | 0 | 0 | 0 | false | 60s | 0 | 
            careful | 12 | 1 | 2 | 3 | true | 24h | 2 | Auto
        "#]]
        .assert_eq(&rows(ROLLOUT_POLICY_COLUMNS, &policies));
        let rollouts = [json!({
            "metadata": {"name": "web", "creationTimestamp": "2026-01-09T00:00:00Z"},
            "status": {
                "phase": "Soaking", "step": {"name": "canary"}, "nodes": {"updated": 1, "held": 499},
                "failures": {"counted": 0}, "current": {"revision": "7d9c4b"}, "stable": {"revision": "5f77aa"},
                "policy": {"name": "careful"}, "message": "soaking until 12:00",
            },
        })];
        expect![[r#"
            web | Soaking | canary | 1 | 499 | 0 | 7d9c4b | 5f77aa | 24h | careful | soaking until 12:00
        "#]]
        .assert_eq(&rows(DAEMON_ROLLOUT_COLUMNS, &rollouts));
    }
}
