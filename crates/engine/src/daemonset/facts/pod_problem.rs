use muster_api::core_v1::{ContainerStatus, PodPhase, PodStatus};
use muster_api::well_known::POD_SCHEDULED;

/// Why a pod does not start, why it failed, or why it runs and is not Ready.
#[derive(Clone, Debug)]
pub(crate) enum PodProblem<'a> {
    /// A container waits for a reason other than `ContainerCreating` or `PodInitializing`.
    Waiting { container: &'a ContainerStatus<'a>, reason: &'a str, message: Option<&'a str> },
    /// The phase of the pod is `Failed`.
    Failed { reason: Option<&'a str>, message: Option<&'a str> },
    /// The condition `PodScheduled` is False.
    Unschedulable { reason: Option<&'a str>, message: Option<&'a str> },
    /// A regular container, not an init container, runs and is not ready.
    NotReady { container: &'a ContainerStatus<'a> },
}

impl<'a> PodProblem<'a> {
    /// Reads the problem of a pod from its status. `None` if the status shows no problem.
    ///
    /// Rule: the problem of a pod is the first of these that exists:
    ///
    /// 1. a container, init containers first, that waits for a reason other than `ContainerCreating` or
    ///    `PodInitializing`;
    /// 2. the phase `Failed`;
    /// 3. the condition `PodScheduled` with the status False;
    /// 4. a regular container that runs and is not ready.
    ///
    /// A waiting container comes before the phase as in the column STATUS of kubectl (upstream: `printPod`). The phase
    /// comes before `PodScheduled` because the scheduler ignores failed pods, so that their condition is stale.
    pub(crate) fn from_status(status: &'a PodStatus<'a>) -> Option<Self> {
        let text = |it: Option<&'a str>| it.filter(|it| !it.is_empty());
        let own = status.container_statuses.iter().flatten();
        let stuck = |container: &'a ContainerStatus<'a>| {
            let waiting = container.state.as_ref()?.waiting.as_ref()?;
            let reason = text(waiting.reason.as_deref())?;
            let is_progressing = matches!(reason, "ContainerCreating" | "PodInitializing");
            let message = waiting.message.as_deref();
            (!is_progressing).then_some(Self::Waiting { container, reason, message })
        };
        let failed = || {
            let (reason, message) = (text(status.reason.as_deref()), status.message.as_deref());
            (status.phase() == PodPhase::Failed).then_some(Self::Failed { reason, message })
        };
        let unschedulable = || {
            let scheduled = status.condition(POD_SCHEDULED).filter(|it| it.is_false())?;
            let (reason, message) = (text(scheduled.reason.as_deref()), scheduled.message.as_deref());
            Some(Self::Unschedulable { reason, message })
        };
        let is_not_ready = |it: &&ContainerStatus<'_>| {
            it.ready == Some(false) && it.state.as_ref().is_some_and(|it| it.running.is_some())
        };
        let not_ready = || own.clone().find(is_not_ready).map(|container| Self::NotReady { container });
        let mut all = status.init_container_statuses.iter().flatten().chain(own.clone());
        all.find_map(stuck).or_else(failed).or_else(unschedulable).or_else(not_ready)
    }

    /// Returns the reason as Kubernetes names it, such as `CrashLoopBackOff`. `None` for [`Self::NotReady`], for which
    /// Kubernetes has no name.
    pub(crate) fn reason(&self) -> Option<&'a str> {
        match *self {
            Self::Waiting { reason, .. } => Some(reason),
            Self::Failed { reason, .. } => Some(reason.unwrap_or("Failed")),
            Self::Unschedulable { reason, .. } => Some(reason.unwrap_or("Unschedulable")),
            Self::NotReady { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::{String, ToString as _};
    use alloc::vec::Vec;

    use serde_json::{Value, json};

    use super::*;

    fn reason(status: &Value) -> Option<String> {
        let text = status.to_string();
        let status: PodStatus<'_> = serde_json::from_str(&text).expect("a pod status");
        PodProblem::from_status(&status).map(|it| it.reason().unwrap_or("not ready").to_string())
    }

    #[test]
    fn a_waiting_container_comes_first_then_the_failure_then_the_scheduler_then_readiness() {
        let waiting = |reason: &str| json!({"waiting": {"reason": reason}});
        let mut status = json!({
            "phase": "Failed",
            "reason": "Evicted",
            "conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}],
            "initContainerStatuses": [{"state": waiting("ImagePullBackOff")}],
            "containerStatuses": [{"state": waiting("CrashLoopBackOff")}, {"ready": false, "state": {"running": {}}}],
        });
        let mut order = Vec::new();
        order.push(reason(&status));
        status["initContainerStatuses"] = json!([{"state": waiting("PodInitializing")}]);
        order.push(reason(&status));
        status["containerStatuses"][0]["state"] = waiting("");
        order.push(reason(&status));
        status["phase"] = json!("Pending");
        order.push(reason(&status));
        status["conditions"] = json!([]);
        order.push(reason(&status));
        status["containerStatuses"][1]["ready"] = json!(true);
        order.push(reason(&status));
        let expected = ["ImagePullBackOff", "CrashLoopBackOff", "Evicted", "SchedulingGated", "not ready"];
        assert_eq!(order.iter().flatten().collect::<Vec<_>>(), expected);
        assert_eq!(order.last(), Some(&None));
    }

    #[test]
    fn a_failure_or_refusal_without_a_reason_has_a_default_one() {
        assert_eq!(reason(&json!({"phase": "Failed", "reason": ""})).as_deref(), Some("Failed"));
        let conditions = json!([{"type": "PodScheduled", "status": "False"}]);
        assert_eq!(reason(&json!({"conditions": conditions})).as_deref(), Some("Unschedulable"));
    }
}
