//! Decides what a command of `muster rollout` writes to the spec of a DaemonRollout, and describes the effects. A
//! command that would have no effect fails with an error that says what to do instead.

use anyhow::{anyhow, bail};
use muster_api::muster_v1alpha1::daemon_rollout::{CheckReport, RevisionRef};
use muster_api::muster_v1alpha1::values::{ApprovalMode, ReportedResult, RolloutPhase};
use muster_control::{ControllerMode, NOT_ON_DELETE_MESSAGE};
use serde_json::{Value, json};

use super::access::not_served_error;
use super::printable;
use super::snapshot::{ALL_STEPS, RevisionRecord, RolloutSnapshot, SetName, StoredRollout, WaitsFor};

/// What an operator requests with a command of `muster rollout`.
#[derive(Debug)]
pub(super) enum OperatorAction {
    Pause,
    Resume,
    Promote(ApprovedSteps),
    Abort,
    Retry,
    Report { check: String, result: ReportedResult, message: Option<String> },
}

/// Which steps of the rollout `muster rollout promote` approves.
#[derive(Debug)]
pub(super) enum ApprovedSteps {
    /// The step that waits for an approval.
    Waiting,
    /// The step with this name.
    Named(String),
    /// All steps of the current revision.
    All,
}

/// A change or the deletion of a DaemonRollout, with a description for the user.
#[derive(Debug)]
pub(super) struct PlannedChange {
    /// The fields of the spec to write, as a JSON merge patch. Null if the DaemonRollout is deleted.
    pub(super) spec: Value,
    /// What the command does, and to which revision: the first line of the output.
    summary: String,
    /// What happens after the change. Each item is a line of the output.
    pub(super) consequences: Vec<String>,
}

impl PlannedChange {
    /// Returns the output of the command: the summary of the change and its consequences.
    pub(super) fn text(&self, set: &SetName, dry_run: bool) -> String {
        let dry_run = if dry_run { " (dry run)" } else { "" };
        format!("{}: {}{dry_run}\n{}\n", set.key(), self.summary, self.consequences.join("\n"))
    }
}

/// Returns the change that an operator requests. Fails if the change is not possible or would have no effect.
pub(super) fn plan_change(
    action: &OperatorAction,
    snapshot: &RolloutSnapshot,
) -> anyhow::Result<PlannedChange> {
    if !snapshot.are_kinds_served {
        return Err(not_served_error());
    }
    if snapshot.has_stale_rollout {
        return Err(stale_rollout_error(snapshot));
    }
    if snapshot.is_refused_in_assist_mode() {
        bail!("{} is not rolled out by a policy (NotOnDelete): {NOT_ON_DELETE_MESSAGE}", snapshot.set);
    }
    match action {
        OperatorAction::Pause => plan_pause(snapshot),
        OperatorAction::Resume => plan_resume(snapshot),
        OperatorAction::Promote(steps) => plan_promote(snapshot, steps),
        OperatorAction::Abort => plan_abort(snapshot),
        OperatorAction::Retry => plan_retry(snapshot),
        OperatorAction::Report { check, result, message } => {
            plan_report(snapshot, check, result, message.as_deref())
        }
    }
}

/// Returns the error for a DaemonRollout that is left from a deleted DaemonSet of the same name.
fn stale_rollout_error(snapshot: &RolloutSnapshot) -> anyhow::Error {
    anyhow!(
        "the DaemonRollout {} belongs to a deleted DaemonSet of the same name: try again when the garbage collector has \
         deleted it",
        snapshot.set.key()
    )
}

/// Plans a pause of the rollout. If there is no DaemonRollout, the write creates one. Fails if an operator has already
/// paused the rollout.
fn plan_pause(snapshot: &RolloutSnapshot) -> anyhow::Result<PlannedChange> {
    let set = &snapshot.set;
    let resume = format!("`{}` ends the pause.", set.command("resume", ""));
    let spec = json!({"paused": true});
    let Some(rollout) = &snapshot.rollout else {
        let revision = snapshot.newest_revision().map(|it| revision_text(it.number, &it.hash));
        return Ok(PlannedChange {
            spec,
            summary: format!(
                "paused at {}, DaemonRollout created",
                revision.unwrap_or_else(|| "a revision that is not recorded yet".into())
            ),
            consequences: vec![pause_effect(snapshot, &RolloutPhase::Complete), resume],
        });
    };
    if rollout.spec.paused {
        bail!("{set} is already paused: `{}` ends the pause", set.command("resume", ""));
    }
    let follows = pause_effect(snapshot, &rollout.status.phase);
    let summary = format!("paused at {}", current_revision_text(rollout));
    Ok(PlannedChange { spec, summary, consequences: vec![follows, resume] })
}

/// Returns the line of output that says what a pause does in this phase. In assist mode, or if the mode is unknown, the
/// line also says that a pause does not hold nodes that join the cluster or lose their pod.
fn pause_effect(snapshot: &RolloutSnapshot, phase: &RolloutPhase) -> String {
    let held = match phase {
        RolloutPhase::RollingBack => "The rollback stops: no node returns to the stable revision.",
        RolloutPhase::Complete => "No node gets a new revision: a change of the template is held.",
        _ => "No node gets a new revision. Failures are still counted.",
    };
    let replaced = match phase {
        RolloutPhase::Complete => "No pod is replaced after a change of the template.",
        _ => "No pod is replaced. Failures are still counted.",
    };
    let newest = "a new node, or one whose pod is deleted, still gets the newest revision.";
    match snapshot.controller_mode() {
        ControllerMode::Own => held.to_owned(),
        ControllerMode::Assist => format!("{replaced} In assist mode {newest}"),
        ControllerMode::Unknown => format!("{held} If the controller runs in assist mode, {newest}"),
    }
}

/// Returns a line that names the command `muster rollout abort` and says what it does.
pub(super) fn abort_hint(snapshot: &RolloutSnapshot) -> String {
    let command = snapshot.set.command("abort", "");
    match snapshot.controller_mode() {
        ControllerMode::Own => format!("`{command}` returns all nodes to the stable revision"),
        ControllerMode::Assist => {
            format!("`{command}` stops the rollout; only a reverted template rolls back")
        }
        ControllerMode::Unknown => {
            format!(
                "`{command}` returns all nodes to the stable revision; in assist mode it stops the rollout"
            )
        }
    }
}

/// Plans the end of an operator's pause. Fails if no operator has paused the rollout.
fn plan_resume(snapshot: &RolloutSnapshot) -> anyhow::Result<PlannedChange> {
    let set = &snapshot.set;
    let Some(rollout) = snapshot.rollout.as_ref().filter(|it| it.spec.paused) else {
        bail!("{set} is not paused by an operator: {}", policy_pause_hint(snapshot));
    };
    let status = &rollout.status;
    let follows = match (&status.phase, &status.step) {
        (RolloutPhase::RollingBack, _) => "The rollback continues.".to_owned(),
        (RolloutPhase::Complete | RolloutPhase::RolledBack | RolloutPhase::Stopped, _) => {
            format!("The rollout is {}: nothing moves until the template changes.", status.phase)
        }
        (_, Some(step)) => format!("The rollout continues with step {:?}.", step.name),
        (_, None) => "The rollout continues.".to_owned(),
    };
    let mut consequences = vec![follows];
    if snapshot.policy.as_ref().is_some_and(|it| it.paused) {
        consequences.push("Its policy pauses it too: set spec.paused of the policy to false.".into());
    }
    let summary = format!("resumed at {}", current_revision_text(rollout));
    Ok(PlannedChange { spec: json!({"paused": false}), summary, consequences })
}

/// Returns a hint for a rollout that no operator has paused: how to end a pause by the policy, or which command shows
/// the state of the rollout.
fn policy_pause_hint(snapshot: &RolloutSnapshot) -> String {
    let rollout = snapshot.rollout.as_ref();
    match rollout.filter(|it| it.status.paused).and_then(|it| it.status.policy.as_ref()) {
        Some(policy) if snapshot.policy.as_ref().is_some_and(|it| it.paused) => {
            format!("set spec.paused of the {} {} to false", printable(&policy.kind), printable(&policy.name))
        }
        Some(policy) => format!(
            "its {} {} holds it; `{}` shows why",
            printable(&policy.kind),
            printable(&policy.name),
            snapshot.set.command("status", "")
        ),
        None => format!("`{}` shows its state", snapshot.set.command("status", "")),
    }
}

/// Plans the approval of one step, or of all steps, of the current revision. Fails if there is nothing to approve, for
/// example because no step waits for an approval, the step has passed, needs no approval or is approved already, or the
/// rollout is complete or has failed. Also fails if the policy has no step of the given name, if there is no
/// DaemonRollout, or if it has no status yet.
fn plan_promote(snapshot: &RolloutSnapshot, steps: &ApprovedSteps) -> anyhow::Result<PlannedChange> {
    let (rollout, current) = rollout_and_current_revision(snapshot, "approve")?;
    let (set, status) = (&snapshot.set, &rollout.status);
    let revision = current_revision_text(rollout);
    match status.phase {
        RolloutPhase::Complete => bail!("nothing to approve: {revision} of {set} is complete"),
        RolloutPhase::RollingBack | RolloutPhase::RolledBack => bail!(
            "nothing to approve: {revision} of {set} failed: change the template, or start it again with `{}`",
            set.command("retry", "")
        ),
        RolloutPhase::Stopped => check_stopped_promotion(snapshot, rollout, steps)?,
        _ => {}
    }
    let current_step = status.step.as_ref();
    let step = match steps {
        ApprovedSteps::All => ALL_STEPS,
        ApprovedSteps::Named(name) => {
            check_step_approvable(snapshot, name)?;
            name
        }
        ApprovedSteps::Waiting => match snapshot.waits_for() {
            Some(WaitsFor::Approval { step }) => step,
            Some(WaitsFor::Check { check, is_external }) => {
                let name = check.name.as_str();
                let report = set.command("report", &format!("{} pass", printable(name)));
                let hint =
                    if is_external { format!(": `{report}` reports its result") } else { String::new() };
                bail!("nothing to approve: {set} waits for check {name:?}, not for an approval{hint}");
            }
            None => {
                let name = current_step.map_or("", |it| it.name.as_str());
                let command = set.command("promote", &format!("--step {}", printable(name)));
                let hint = if needs_approval(snapshot, name) {
                    format!("`{command}` approves step {name:?} in advance")
                } else {
                    format!("`{}` shows its state", set.command("status", ""))
                };
                bail!(
                    "nothing to approve: {set} is {} and does not wait for an approval: {hint}",
                    phase_text(rollout)
                );
            }
        },
    };
    if rollout.is_approved(step) {
        bail!(
            "step {step:?} of {revision} is approved already: `{}` shows what the rollout waits for",
            set.command("status", "")
        );
    }
    let mut consequences = Vec::new();
    let summary = if step == ALL_STEPS {
        consequences.push(
            "Every eligible node gets the revision, without soak time and approvals. The failure budget still applies."
                .to_owned(),
        );
        format!("all steps of {revision} approved")
    } else {
        consequences.push(match next_step(snapshot, step) {
            Some(next) => format!("When the step has passed, step {next:?} starts."),
            None => "When the step has passed, the rollout is complete.".to_owned(),
        });
        format!("step {step:?} of {revision} approved")
    };
    consequences.extend(pause_note(snapshot));
    let spec = json!({"approve": {"revision": current.revision, "step": step}});
    Ok(PlannedChange { spec, summary, consequences })
}

/// Checks that an approval can make a stopped rollout continue. Fails if its revision has the verdict `Bad`, because
/// only a retry starts it again, or if the revisions could not be read. Otherwise only the approval of all steps is
/// accepted. Such a rollout has stopped, for example, because its policy was deleted, and has no steps to approve one
/// by one.
fn check_stopped_promotion(
    snapshot: &RolloutSnapshot,
    rollout: &StoredRollout,
    steps: &ApprovedSteps,
) -> anyhow::Result<()> {
    let (set, message) = (&snapshot.set, printable(&rollout.status.message));
    let stopped = format!("nothing to approve: the rollout of {set} has stopped ({message})");
    let Some(newest) = snapshot.newest_revision() else {
        bail!(
            "{stopped}, and whether the revision failed is not known: the ClusterRole view lets you read it"
        );
    };
    match steps {
        _ if newest.is_bad() => bail!("{stopped}: `{}` starts it again", set.command("retry", "")),
        ApprovedSteps::All => Ok(()),
        _ => bail!("{stopped}: `{}` lets it go on to all nodes", set.command("promote", "--full")),
    }
}

/// Fails if the policy has no step of this name, or if the step has already passed or needs no approval. Succeeds if
/// the policy could not be read.
fn check_step_approvable(snapshot: &RolloutSnapshot, name: &str) -> anyhow::Result<()> {
    let Some(policy) = &snapshot.policy else { return Ok(()) };
    let Some(index) = policy.steps.iter().position(|it| it.name == name) else {
        let names: Vec<String> = policy.steps.iter().map(|it| printable(&it.name)).collect();
        bail!("the policy of {} has no step {name:?}: it has {}", snapshot.set, names.join(", "));
    };
    let current = snapshot.rollout.as_ref().and_then(|it| it.status.step.as_ref());
    if current.is_some_and(|it| usize::try_from(it.index).is_ok_and(|current| index < current)) {
        bail!("nothing to approve: step {name:?} of {} has passed already", snapshot.set);
    }
    if !needs_approval(snapshot, name) {
        bail!("nothing to approve: step {name:?} has approval: Automatic, so it passes without one");
    }
    Ok(())
}

/// Whether the policy requires that an operator approves the step with this name. False if the policy could not be
/// read.
fn needs_approval(snapshot: &RolloutSnapshot, name: &str) -> bool {
    let steps = snapshot.policy.iter().flat_map(|it| &it.steps);
    steps.into_iter().any(|it| it.name == name && it.approval == ApprovalMode::Manual)
}

/// Returns the name of the step after the one with this name. `None` after the last step, if the policy has no such
/// step, or if the policy could not be read.
fn next_step<'a>(snapshot: &'a RolloutSnapshot, name: &str) -> Option<&'a str> {
    let steps = &snapshot.policy.as_ref()?.steps;
    let index = steps.iter().position(|it| it.name == name)?;
    steps.get(index + 1).map(|it| it.name.as_str())
}

/// Returns a sentence that says that an operator has paused the rollout and how to resume it. `None` if no operator has
/// paused it.
fn pause_note(snapshot: &RolloutSnapshot) -> Option<String> {
    let is_paused = snapshot.rollout.as_ref().is_some_and(|it| it.spec.paused);
    is_paused.then(|| format!("It is paused: `{}` ends the pause.", snapshot.set.command("resume", "")))
}

/// Plans the abort of the rollout of the current revision. Also ends an operator's pause, which would stop the
/// rollback. Fails if there is nothing to abort.
fn plan_abort(snapshot: &RolloutSnapshot) -> anyhow::Result<PlannedChange> {
    let (rollout, current) = rollout_and_current_revision(snapshot, "abort")?;
    let (set, status) = (&snapshot.set, &rollout.status);
    let revision = current_revision_text(rollout);
    match status.phase {
        RolloutPhase::Complete => bail!(
            "nothing to abort: {revision} of {set} is complete: `kubectl rollout undo ds/{} -n {}` returns to the one before",
            set.name,
            set.namespace
        ),
        RolloutPhase::RolledBack => bail!("nothing to abort: {set} has returned to the stable revision"),
        RolloutPhase::Stopped if snapshot.is_bad_in_assist_mode() => {
            bail!(
                "nothing to abort: {revision} of {set} has the verdict Bad, and assist mode cannot roll back: revert the template"
            )
        }
        RolloutPhase::RollingBack if !rollout.spec.paused => {
            bail!("nothing to abort: {set} is returning to the stable revision")
        }
        _ => {}
    }
    let mut spec = json!({"abort": {"revision": current.revision}});
    let mode = snapshot.controller_mode();
    let mut consequences = vec![match &status.stable {
        _ if mode == ControllerMode::Assist => {
            "The rollout stops, and nodes keep their pods: assist mode cannot roll back.".to_owned()
        }
        Some(stable) => format!(
            "All nodes return to {}, within maxUnavailable of the DaemonSet.",
            revision_text(stable.number, &stable.revision)
        ),
        None => "No good revision is known, so the rollout stops and nodes keep their pods.".to_owned(),
    }];
    match (mode, &status.stable) {
        (ControllerMode::Assist, Some(stable)) => consequences.push(format!(
            "Revert the template: then all nodes return to {}.",
            revision_text(stable.number, &stable.revision)
        )),
        (ControllerMode::Unknown, Some(_)) => consequences.push(
            "If the controller runs in assist mode, the rollout stops instead: revert the template then."
                .into(),
        ),
        _ => {}
    }
    if rollout.spec.paused {
        spec["paused"] = json!(false);
        consequences.push(match mode {
            ControllerMode::Assist => {
                "The pause ends, because it would hold the reverted template too.".into()
            }
            _ => "The pause ends, because it would stop the rollback.".into(),
        });
    }
    consequences.push(format!(
        "The revision gets the verdict Bad: `{}` starts it again, and a changed template starts a new one.",
        set.command("retry", "")
    ));
    Ok(PlannedChange { spec, summary: format!("aborted {revision}"), consequences })
}

/// Plans a new attempt of a rollout that has stopped, is being rolled back or was rolled back, for example because it
/// failed or was aborted. The change also removes the requests of the last attempt. Fails in any other phase, if the
/// DaemonRollout has no status yet, or if a retry is already requested. Without a DaemonRollout, fails unless the
/// current revision has the verdict `Bad`.
fn plan_retry(snapshot: &RolloutSnapshot) -> anyhow::Result<PlannedChange> {
    let set = &snapshot.set;
    if snapshot.rollout.is_none() {
        return plan_retry_without_rollout(snapshot);
    }
    let (rollout, current) = rollout_and_current_revision(snapshot, "retry")?;
    let (status, revision) = (&rollout.status, current_revision_text(rollout));
    let is_failed =
        matches!(status.phase, RolloutPhase::Stopped | RolloutPhase::RollingBack | RolloutPhase::RolledBack);
    if !is_failed {
        bail!("nothing to retry: {revision} of {set} has not failed, it is {}", phase_text(rollout));
    }
    if rollout.is_retry_pending() {
        bail!("a retry of {revision} is requested already: is `muster controller` running?");
    }
    let attempt = status.attempt.saturating_add(1);
    // Requests of the last attempt name the same revision: they would end or shorten the new attempt.
    let spec = json!({
        "retry": {"revision": current.revision, "attempt": attempt},
        "abort": null,
        "approve": null,
        "checkReports": null,
    });
    let mut consequences = vec![match snapshot.policy.as_ref().and_then(|it| it.steps.first()) {
        Some(step) => format!(
            "The rollout starts again at step {:?}, without the failures of the last attempt.",
            step.name
        ),
        None => {
            "The rollout starts again at the first step, without the failures of the last attempt.".to_owned()
        }
    }];
    consequences.extend(pause_note(snapshot));
    Ok(PlannedChange { spec, summary: format!("attempt {attempt} of {revision} requested"), consequences })
}

/// Plans a new attempt for a DaemonSet whose DaemonRollout was deleted. Fails unless the current revision has the
/// verdict `Bad`.
fn plan_retry_without_rollout(snapshot: &RolloutSnapshot) -> anyhow::Result<PlannedChange> {
    let set = &snapshot.set;
    let newest = snapshot.newest_revision();
    let Some(bad) = newest.filter(|it| it.is_bad()) else {
        bail!("nothing to retry: {set} has no DaemonRollout, and its current revision has not failed");
    };
    // The controller counts a revision with the verdict Bad as attempt 1.
    let attempt = 2;
    Ok(PlannedChange {
        spec: json!({"retry": {"revision": bad.hash, "attempt": attempt}}),
        summary: format!(
            "attempt {attempt} of {} requested, DaemonRollout created",
            revision_text(bad.number, &bad.hash)
        ),
        consequences: vec!["The verdict Bad is removed, and the rollout starts at the first step.".into()],
    })
}

/// Plans a report of the result of an external check for the current revision. Fails if the rollout has ended or
/// failed, or if the policy has no external check of this name. If the policy could not be read, the status must have a
/// check of this name.
fn plan_report(
    snapshot: &RolloutSnapshot,
    check: &str,
    result: &ReportedResult,
    message: Option<&str>,
) -> anyhow::Result<PlannedChange> {
    let (rollout, current) = rollout_and_current_revision(snapshot, "report on")?;
    let (set, status) = (&snapshot.set, &rollout.status);
    let revision = current_revision_text(rollout);
    let is_ended = matches!(
        status.phase,
        RolloutPhase::Complete | RolloutPhase::Stopped | RolloutPhase::RollingBack | RolloutPhase::RolledBack
    );
    if is_ended {
        bail!("nothing to report on: the rollout of {revision} of {set} is {}", phase_text(rollout));
    }
    match (snapshot.is_external(check), &snapshot.policy) {
        (Some(true), _) => {}
        (Some(false), _) => {
            bail!("the controller runs check {check:?} itself: only external checks are reported")
        }
        (None, Some(policy)) => {
            let external = policy.checks.iter().filter(|it| it.external.is_some());
            let names: Vec<String> = external.map(|it| printable(&it.name)).collect();
            let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            bail!("the policy of {set} has no check {check:?}: its external checks are: {names}");
        }
        (None, None) if status.checks.iter().any(|it| it.name == check) => {}
        (None, None) => bail!("the rollout of {set} has no check {check:?}"),
    }
    // Reports on other revisions have no effect. They are dropped, so that the list stays short.
    let mut reports: Vec<CheckReport> = rollout.spec.check_reports.clone();
    reports.retain(|it| it.revision == current.revision && it.check != check);
    reports.push(CheckReport {
        check: check.to_owned(),
        revision: current.revision.clone(),
        result: result.clone(),
        message: message.map(str::to_owned),
    });
    let follows = match (result, snapshot.controller_mode()) {
        (ReportedResult::Pass, _) => "The check no longer keeps a step from passing.",
        (_, ControllerMode::Assist) => {
            "The revision fails, and the rollout stops; only a reverted template rolls back."
        }
        (_, ControllerMode::Own | ControllerMode::Unknown) => {
            "The revision fails: onFailure of the policy decides whether its nodes return to the stable revision."
        }
    };
    Ok(PlannedChange {
        spec: json!({"checkReports": reports}),
        summary: format!("check {check:?} of {revision} reported: {result}"),
        consequences: vec![follows.to_owned()],
    })
}

/// Returns the summary and the consequences of deleting the DaemonRollout. Fails if there is no DaemonRollout.
pub(super) fn plan_forget(snapshot: &RolloutSnapshot) -> anyhow::Result<PlannedChange> {
    let set = &snapshot.set;
    if !snapshot.are_kinds_served {
        return Err(not_served_error());
    }
    if snapshot.has_stale_rollout {
        return Err(stale_rollout_error(snapshot));
    }
    let rollout = snapshot.rollout.as_ref();
    let rollout = rollout.ok_or_else(|| anyhow!("nothing to forget: {set} has no DaemonRollout"))?;
    let is_bad = snapshot.newest_revision().is_some_and(RevisionRecord::is_bad);
    let mut consequences = Vec::new();
    if rollout.spec.paused {
        consequences.push("The pause ends.".to_owned());
    }
    if is_bad {
        consequences.push(format!(
            "The current revision has the verdict Bad, which is kept: the DaemonSet is still held until `{}` or a change \
             of the template.",
            set.command("retry", "")
        ));
    } else if rollout.status.phase != RolloutPhase::Complete && rollout.status.policy.is_none() {
        consequences.push(match snapshot.update_strategy() {
            "OnDelete" => "Outdated pods stay until they are deleted.".to_owned(),
            _ => "All nodes get the current revision.".to_owned(),
        });
    }
    consequences.push(match &rollout.status.policy {
        Some(policy) => format!(
            "The controller creates a new DaemonRollout, because the {} {} applies; a rollout starts at its first step.",
            printable(&policy.kind),
            printable(&policy.name)
        ),
        None if is_bad => "No policy applies: then the DaemonSet follows its update strategy.".to_owned(),
        None => "No policy applies: the DaemonSet follows its update strategy.".to_owned(),
    });
    let summary = format!("DaemonRollout deleted at {}", current_revision_text(rollout));
    Ok(PlannedChange { spec: Value::Null, summary, consequences })
}

/// Returns the DaemonRollout and its current revision. Fails if there is no DaemonRollout, or if the controller has not
/// written its status yet. `verb` is what the operator wants to do, for the error message.
fn rollout_and_current_revision<'a>(
    snapshot: &'a RolloutSnapshot,
    verb: &str,
) -> anyhow::Result<(&'a StoredRollout, &'a RevisionRef)> {
    let set = &snapshot.set;
    let Some(rollout) = &snapshot.rollout else {
        bail!(
            "nothing to {verb}: {set} has no DaemonRollout, so it follows its update strategy: a RolloutPolicy that selects it \
             has steps and checks, and `{}` holds it",
            set.command("pause", "")
        );
    };
    let current = rollout.current().ok_or_else(|| {
        anyhow!("the DaemonRollout {} has no status yet: is `muster controller` running?", set.key())
    })?;
    Ok((rollout, current))
}

/// Formats the number and hash of the current revision, or says that it is not recorded yet.
fn current_revision_text(rollout: &StoredRollout) -> String {
    match rollout.current() {
        Some(current) => revision_text(current.number, &current.revision),
        None => "a revision that is not recorded yet".to_owned(),
    }
}

/// Formats the number and hash of a revision, such as `revision 2 (7d9c4b)`.
fn revision_text(number: i64, hash: &str) -> String {
    format!("revision {number} ({})", printable(hash))
}

/// Formats the phase of a rollout, followed by `(paused)` if it is paused.
pub(super) fn phase_text(rollout: &StoredRollout) -> String {
    let phase = printable(rollout.status.phase.as_str());
    if rollout.status.paused { format!("{phase} (paused)") } else { phase }
}
