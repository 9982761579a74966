//! Table columns of pods: status, readiness and restarts.

use jiff::Timestamp;
use muster_api::core_v1::{PodPhase, is_sidecar_policy};
use serde_json::{Value, json};

use super::{AGE_COLUMN, Column, Field, Literal, NAME_COLUMN, format_age, non_empty_or, text_column};
use crate::unstructured::{is_condition_true, is_set, list_at, str_at};

pub(crate) const POD_COLUMNS: &[Column] = &[
    NAME_COLUMN,
    text_column(
        "Ready",
        Literal("The aggregate readiness state of this pod for accepting traffic."),
        |it, _| {
            let summary = PodSummary::from_pod(it);
            json!(format!("{}/{}", summary.ready, summary.containers))
        },
    ),
    text_column("Status", Literal("The aggregate status of the containers in this pod."), |it, _| {
        json!(PodSummary::from_pod(it).status)
    }),
    text_column(
        "Restarts",
        Literal(
            "The number of times the containers in this pod have been restarted and when the last container in this pod has restarted.",
        ),
        |it, now| {
            let summary = PodSummary::from_pod(it);
            json!(match summary.restarted_at {
                Some(at) if summary.restarts != 0 =>
                    format!("{} ({} ago)", summary.restarts, format_age(&json!(at.to_string()), now)),
                _ => summary.restarts.to_string(),
            })
        },
    ),
    AGE_COLUMN,
    text_column("IP", Field("status.podIP"), |it, _| {
        json!(
            list_at(&it["status"], "podIPs")
                .first()
                .map_or("<none>", |it| non_empty_or(str_at(it, "ip"), "<none>"))
        )
    })
    .only_wide(),
    text_column("Node", Field("spec.nodeName"), |it, _| {
        json!(non_empty_or(str_at(it, "spec.nodeName"), "<none>"))
    })
    .only_wide(),
    text_column("Nominated Node", Field("status.nominatedNodeName"), |it, _| {
        json!(non_empty_or(str_at(it, "status.nominatedNodeName"), "<none>"))
    })
    .only_wide(),
    text_column("Readiness Gates", Field("spec.readinessGates"), |it, _| json!(readiness_gates(it)))
        .only_wide(),
];

/// Returns the row condition `Completed`, by which clients can hide completed pods, or `None` if the pod has not
/// completed.
pub(crate) fn completed_condition(pod: &Value) -> Option<Value> {
    let (reason, message) = match str_at(pod, "status.phase") {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return None,
    };
    Some(json!({"type": "Completed", "status": "True", "reason": reason, "message": message}))
}

/// Status, readiness and restarts of a pod, as the table shows them.
struct PodSummary {
    /// The column `Status`, such as `Running` or `CrashLoopBackOff`.
    status: String,
    /// Number of ready containers.
    ready: usize,
    /// Number of containers, including sidecars.
    containers: usize,
    /// Number of container restarts.
    restarts: i64,
    /// Time at which a container last terminated before it was restarted. `None` if no container was restarted.
    restarted_at: Option<Timestamp>,
}

impl PodSummary {
    /// Summarizes a pod. The status is, in this order of precedence:
    /// - for a pod that is being deleted: `Unknown` if its node is lost, or else `Terminating` if it has not ended;
    /// - the reason why a container does not run, such as `CrashLoopBackOff`, or `Init:…` while init containers run.
    ///   `Completed` is replaced by `Running` if a ready container runs and the pod is Ready, or else by the reason of
    ///   a failed container, or else by `NotReady` if a ready container runs;
    /// - `SchedulingGated` for a pod with scheduling gates;
    /// - `status.reason` of the pod or, if that is empty, its phase.
    fn from_pod(pod: &Value) -> Self {
        let (spec, status) = (&pod["spec"], &pod["status"]);
        let is_gated = list_at(status, "conditions")
            .iter()
            .any(|it| it["type"] == "PodScheduled" && it["reason"] == "SchedulingGated");
        let reason = match str_at(status, "reason") {
            _ if is_gated => "SchedulingGated",
            "" => str_at(status, "phase"),
            reason => reason,
        };
        let sidecars = list_at(spec, "initContainers").iter().filter(|it| is_sidecar(it)).count();
        let mut summary = Self {
            status: reason.to_owned(),
            ready: 0,
            containers: list_at(spec, "containers").len() + sidecars,
            restarts: 0,
            restarted_at: None,
        };
        let is_initializing = summary.add_init_containers(pod);
        if !is_initializing || is_condition_true(pod, "Initialized") {
            summary.add_containers(pod);
        }
        if is_set(&pod["metadata"]["deletionTimestamp"]) {
            if status["reason"] == "NodeLost" {
                "Unknown".clone_into(&mut summary.status);
            } else if !PodPhase::parse(str_at(status, "phase")).is_terminal() {
                "Terminating".clone_into(&mut summary.status);
            }
        }
        summary
    }

    /// Adds the init containers to the summary. Returns whether the pod is still being initialized.
    fn add_init_containers(&mut self, pod: &Value) -> bool {
        let specs = list_at(&pod["spec"], "initContainers");
        for (at, status) in list_at(&pod["status"], "initContainerStatuses").iter().enumerate() {
            self.count_restarts(status);
            let (waiting, ended) = (&status["state"]["waiting"], &status["state"]["terminated"]);
            let is_sidecar = specs.iter().any(|it| it["name"] == status["name"] && is_sidecar(it));
            if ended.is_object() && ended["exitCode"].as_i64().unwrap_or(0) == 0 {
                continue;
            }
            if is_sidecar && status["started"] == true {
                self.ready += usize::from(status["ready"] == true);
                continue;
            }
            self.status = match str_at(waiting, "reason") {
                _ if ended.is_object() => format!("Init:{}", termination_reason(ended)),
                "" | "PodInitializing" => format!("Init:{at}/{}", specs.len()),
                reason => format!("Init:{reason}"),
            };
            return true;
        }
        false
    }

    /// Adds the regular containers of an initialized pod to the summary. For such a pod, the restarts of an init
    /// container count only if it is a sidecar.
    fn add_containers(&mut self, pod: &Value) {
        // Once the pod is initialized, restarts of init containers do not count, except for sidecars.
        (self.restarts, self.restarted_at) = (0, None);
        let specs = list_at(&pod["spec"], "initContainers");
        for status in list_at(&pod["status"], "initContainerStatuses") {
            if specs.iter().any(|it| it["name"] == status["name"] && is_sidecar(it)) {
                self.count_restarts(status);
            }
        }
        let (mut is_any_running, mut failure) = (false, None);
        for status in list_at(&pod["status"], "containerStatuses").iter().rev() {
            self.count_restarts(status);
            let (waiting, ended) = (&status["state"]["waiting"], &status["state"]["terminated"]);
            if !str_at(waiting, "reason").is_empty() {
                str_at(waiting, "reason").clone_into(&mut self.status);
            } else if ended.is_object() {
                self.status = termination_reason(ended);
                if ended["exitCode"].as_i64().unwrap_or(0) != 0 {
                    failure = Some(self.status.clone());
                }
            } else if status["ready"] == true && status["state"]["running"].is_object() {
                is_any_running = true;
                self.ready += 1;
            }
        }
        if self.status == "Completed" {
            let is_ready = is_condition_true(pod, "Ready");
            match failure {
                _ if is_any_running && is_ready => "Running".clone_into(&mut self.status),
                Some(failure) => self.status = failure,
                None if is_any_running => "NotReady".clone_into(&mut self.status),
                None => {}
            }
        }
    }

    /// Adds the restarts of a container. `status` is its container status.
    fn count_restarts(&mut self, status: &Value) {
        self.restarts = self.restarts.saturating_add(status["restartCount"].as_i64().unwrap_or(0));
        let ended_at = str_at(status, "lastState.terminated.finishedAt").parse::<Timestamp>().ok();
        self.restarted_at = self.restarted_at.max(ended_at);
    }
}

/// Returns the reason why a container terminated, or its signal or exit code if there is no reason. `ended` is
/// `state.terminated` of its status.
fn termination_reason(ended: &Value) -> String {
    match (str_at(ended, "reason"), ended["signal"].as_i64().unwrap_or(0)) {
        ("", 0) => format!("ExitCode:{}", ended["exitCode"].as_i64().unwrap_or(0)),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

/// Whether an init container is a sidecar.
fn is_sidecar(init_container: &Value) -> bool {
    is_sidecar_policy(init_container["restartPolicy"].as_str())
}

/// Returns the text of the column `Readiness Gates`: how many of the gates are true, such as `1/2`, or `<none>` for a
/// pod without gates.
fn readiness_gates(pod: &Value) -> String {
    let gates = list_at(&pod["spec"], "readinessGates");
    if gates.is_empty() {
        return "<none>".to_owned();
    }
    let is_true = |gate: &&Value| is_condition_true(pod, str_at(gate, "conditionType"));
    format!("{}/{}", gates.iter().filter(is_true).count(), gates.len())
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::super::tests::rows;
    use super::*;

    fn pod(spec: Value, status: Value) -> Value {
        json!({"metadata": {"name": "p", "creationTimestamp": "2026-01-09T23:00:00Z"}, "spec": spec, "status": status})
    }

    #[test]
    fn a_row_shows_why_a_pod_does_not_run() {
        let one = json!({"containers": [{"name": "c"}], "nodeName": "n1"});
        let inits = json!({"containers": [{"name": "c"}], "initContainers": [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}]});
        let container = |state: Value| json!([{"name": "c", "restartCount": 3, "state": state, "lastState": {"terminated": {"finishedAt": "2026-01-09T23:57:00Z"}}}]);
        let running = json!([{"name": "c", "ready": true, "restartCount": 0, "state": {"running": {}}}]);
        let mut leaving = pod(one.clone(), json!({"phase": "Running", "containerStatuses": running}));
        leaving["metadata"]["deletionTimestamp"] = json!("2026-01-10T00:00:00Z");
        let mut lost = leaving.clone();
        lost["status"]["reason"] = json!("NodeLost");
        let mut ended = leaving.clone();
        ended["status"]["phase"] = json!("Succeeded");
        let pods = [
            pod(one.clone(), json!({"phase": "Pending"})),
            pod(
                one.clone(),
                json!({"phase": "Running", "podIPs": [{"ip": "10.0.0.1"}], "containerStatuses": running}),
            ),
            pod(
                one.clone(),
                json!({"phase": "Running", "containerStatuses": container(json!({"waiting": {"reason": "CrashLoopBackOff"}}))}),
            ),
            pod(
                one.clone(),
                json!({"phase": "Failed", "containerStatuses": container(json!({"terminated": {"exitCode": 3}}))}),
            ),
            pod(
                one.clone(),
                json!({"phase": "Failed", "containerStatuses": container(json!({"terminated": {"exitCode": 137, "signal": 9}}))}),
            ),
            pod(
                one.clone(),
                json!({"phase": "Succeeded", "containerStatuses": container(json!({"terminated": {"exitCode": 0, "reason": "Completed"}}))}),
            ),
            pod(one.clone(), json!({"phase": "Failed", "reason": "Evicted"})),
            pod(
                one.clone(),
                json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]}),
            ),
            pod(
                inits.clone(),
                json!({"phase": "Pending", "initContainerStatuses": [{"name": "i", "state": {"running": {}}}, {"name": "s", "state": {"waiting": {"reason": "PodInitializing"}}}]}),
            ),
            pod(
                inits.clone(),
                json!({"phase": "Pending", "initContainerStatuses": [{"name": "i", "restartCount": 2, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}),
            ),
            pod(
                inits.clone(),
                json!({"phase": "Pending", "initContainerStatuses": [{"name": "i", "state": {"terminated": {"exitCode": 1, "reason": "Error"}}}]}),
            ),
            pod(
                inits,
                json!({"phase": "Running", "containerStatuses": running, "initContainerStatuses": [
                    {"name": "i", "restartCount": 7, "state": {"terminated": {"exitCode": 0}}},
                    {"name": "s", "started": true, "ready": true, "restartCount": 1, "state": {"running": {}}},
                ]}),
            ),
            leaving,
            lost,
            ended,
        ];
        expect![[r#"
            p | 0/1 | Pending | 0 | 60m | <none> | n1 | <none> | <none>
            p | 1/1 | Running | 0 | 60m | 10.0.0.1 | n1 | <none> | <none>
            p | 0/1 | CrashLoopBackOff | 3 (3m ago) | 60m | <none> | n1 | <none> | <none>
            p | 0/1 | ExitCode:3 | 3 (3m ago) | 60m | <none> | n1 | <none> | <none>
            p | 0/1 | Signal:9 | 3 (3m ago) | 60m | <none> | n1 | <none> | <none>
            p | 0/1 | Completed | 3 (3m ago) | 60m | <none> | n1 | <none> | <none>
            p | 0/1 | Evicted | 0 | 60m | <none> | n1 | <none> | <none>
            p | 0/1 | SchedulingGated | 0 | 60m | <none> | n1 | <none> | <none>
            p | 0/2 | Init:0/2 | 0 | 60m | <none> | <none> | <none> | <none>
            p | 0/2 | Init:CrashLoopBackOff | 2 | 60m | <none> | <none> | <none> | <none>
            p | 0/2 | Init:Error | 0 | 60m | <none> | <none> | <none> | <none>
            p | 2/2 | Running | 1 | 60m | <none> | <none> | <none> | <none>
            p | 1/1 | Terminating | 0 | 60m | <none> | n1 | <none> | <none>
            p | 1/1 | Unknown | 0 | 60m | <none> | n1 | <none> | <none>
            p | 1/1 | Succeeded | 0 | 60m | <none> | n1 | <none> | <none>
        "#]]
        .assert_eq(&rows(POD_COLUMNS, &pods));
    }

    #[test]
    fn readiness_gates_are_counted() {
        let gated = json!({
            "spec": {"readinessGates": [{"conditionType": "a"}, {"conditionType": "b"}]},
            "status": {"conditions": [{"type": "a", "status": "True"}, {"type": "b", "status": "False"}]},
        });
        assert_eq!(readiness_gates(&gated), "1/2");
    }
}
