//! The output of `muster rollout status`: the state of a rollout, what it waits for, and what an operator can do next.
//! Also decides whether a rollout has ended.

use muster_api::muster_v1alpha1::daemon_rollout::{DaemonRolloutStatus, NodeFailure};
use muster_api::muster_v1alpha1::values::{CheckOutcome, RolloutPhase};
use muster_api::time::Time;
use muster_control::{ControllerMode, NOT_ON_DELETE_MESSAGE};
use serde_json::Value;

use super::change::{abort_hint, phase_text};
use super::printable;
use super::snapshot::{ALL_STEPS, RevisionRecord, RolloutSnapshot, StoredRollout, WaitsFor};

/// Maximum number of failed nodes in the text output. The output of `-o json` has all nodes that the status lists.
const LISTED_FAILURES_MAX: usize = 20;
/// Width of the first column of the text output, which has labels such as `revision` and `nodes`.
const LABEL_WIDTH: usize = 12;

/// Part of the output: what is different in assist mode, in which kube-controller-manager creates the pods.
const ASSIST_EFFECT: &str =
    "a new node, or one whose pod is deleted, gets the newest revision; there is no rollback";

/// Why `status --watch` may stop watching: the rollout has ended, or it waits for an approval.
#[derive(Debug)]
pub(super) enum WatchEnd {
    /// The rollout is complete or partially complete. In a partially complete rollout all steps have passed, but the
    /// policy does not cover all nodes. Without a DaemonRollout, all desired nodes are updated and have an available
    /// pod.
    Succeeded,
    /// The rollout stopped or was rolled back, or the DaemonSet has no DaemonRollout and its revision has the verdict
    /// `Bad`. The text is the error message.
    Failed(String),
    /// An operator must approve the current step before the rollout continues.
    WaitsForApproval,
}

/// Returns how the rollout of the DaemonSet's current template has ended, or that it waits for an approval. `None`
/// while it continues, and while the controller has not yet observed the latest DaemonSet and DaemonRollout.
pub(super) fn watch_end(snapshot: &RolloutSnapshot) -> Option<WatchEnd> {
    let Some(rollout) = &snapshot.rollout else {
        if snapshot.newest_revision()?.is_bad() {
            return Some(WatchEnd::Failed(format!("{} is held: {}", snapshot.set, held_text(snapshot))));
        }
        let [desired, updated, available, _] = node_counts(snapshot.daemon_set.as_ref()?);
        return (updated == desired && available == desired).then_some(WatchEnd::Succeeded);
    };
    if !is_of_newest_revision(snapshot, rollout) || !rollout.is_observed() {
        return None;
    }
    let status = &rollout.status;
    match status.phase {
        RolloutPhase::Complete | RolloutPhase::PartiallyComplete => Some(WatchEnd::Succeeded),
        RolloutPhase::Stopped | RolloutPhase::RolledBack => {
            let (set, message) = (&snapshot.set, printable(&status.message));
            Some(WatchEnd::Failed(format!("the rollout of {set} is {}: {message}", status.phase)))
        }
        RolloutPhase::Waiting => match snapshot.waits_for() {
            Some(WaitsFor::Approval { .. }) => Some(WatchEnd::WaitsForApproval),
            _ => None,
        },
        _ => None,
    }
}

/// Whether the status of the DaemonRollout is about the revision of the DaemonSet's current template.
fn is_of_newest_revision(snapshot: &RolloutSnapshot, rollout: &StoredRollout) -> bool {
    let newest = snapshot.newest_revision();
    newest.is_some_and(|newest| rollout.current().is_some_and(|it| it.revision == newest.hash))
}

/// Returns one line with the phase, step and message of a rollout. If there is no DaemonRollout, the line has the node
/// counts of the DaemonSet instead.
pub(super) fn summary_line(snapshot: &RolloutSnapshot) -> String {
    let Some(rollout) = &snapshot.rollout else {
        let [desired, updated, available, _] =
            snapshot.daemon_set.as_ref().map(node_counts).unwrap_or_default();
        return format!(
            "{}: {updated} of {desired} nodes updated, {available} available",
            snapshot.set.key()
        );
    };
    let mut line = format!("{}: {}", snapshot.set.key(), headline(snapshot, rollout));
    if !rollout.status.message.is_empty() {
        line.push_str(": ");
        line.push_str(&printable(&rollout.status.message));
    }
    line
}

/// Formats the phase and the step of a rollout, such as `Soaking, step canary (1 of 3)`. Omits the step if none has
/// started, or if the rollout is complete or rolled back. Omits the number of steps (`of 3`) if there is no policy.
/// The step `*` is shown as `all steps`. Returns `no status yet` if the controller has not written the status.
fn headline(snapshot: &RolloutSnapshot, rollout: &StoredRollout) -> String {
    if rollout.current().is_none() {
        return "no status yet".to_owned();
    }
    let status = &rollout.status;
    let mut text = phase_text(rollout);
    let is_ended = matches!(status.phase, RolloutPhase::Complete | RolloutPhase::RolledBack);
    if let Some(step) = status.step.as_ref().filter(|_| !is_ended) {
        if step.name == ALL_STEPS {
            text.push_str(", all steps");
        } else {
            text.push_str(&format!(", step {} ({}", printable(&step.name), i64::from(step.index) + 1));
            if let Some(policy) = &snapshot.policy {
                text.push_str(&format!(" of {}", policy.steps.len()));
            }
            text.push(')');
        }
    }
    text
}

/// Returns the text output of `muster rollout status`.
pub(super) fn status_text(snapshot: &RolloutSnapshot) -> String {
    let Some(rollout) = &snapshot.rollout else { return text_without_rollout(snapshot) };
    let status = &rollout.status;
    let mut text = format!("{}: {}\n", snapshot.set, headline(snapshot, rollout));
    if !status.message.is_empty() {
        text.push_str(&format!("{}\n", printable(&status.message)));
    }
    text.push('\n');
    let mut add = |name: &str, line: String| text.push_str(&format!("{name:LABEL_WIDTH$}{line}\n"));
    if let Some(current) = rollout.current() {
        let mut line =
            format!("{}, attempt {}", number_and_hash(current.number, &current.revision), status.attempt);
        match &status.stable {
            Some(stable) if stable.revision == current.revision => {
                line.push_str("; it is the stable revision")
            }
            Some(stable) => {
                line.push_str(&format!("; stable is {}", number_and_hash(stable.number, &stable.revision)));
            }
            None => line.push_str("; no stable revision is known"),
        }
        add("revision", line);
    }
    match &status.policy {
        Some(policy) => add("policy", format!("{} {}", printable(&policy.kind), printable(&policy.name))),
        None => add("policy", "none".to_owned()),
    }
    match snapshot.controller_mode() {
        _ if snapshot.is_refused_in_assist_mode() => {
            add("refused", format!("NotOnDelete: {NOT_ON_DELETE_MESSAGE}"))
        }
        ControllerMode::Own => {}
        ControllerMode::Assist => add("mode", format!("assist: {ASSIST_EFFECT}")),
        ControllerMode::Unknown => add("mode", format!("not known; in assist mode {ASSIST_EFFECT}")),
    }
    let nodes = &status.nodes;
    add(
        "nodes",
        format!(
            "{} eligible: {} admitted, {} updated, {} available, {} soaked, {} held",
            nodes.eligible, nodes.admitted, nodes.updated, nodes.available, nodes.soaked, nodes.held
        ),
    );
    if 0 < nodes.unassigned {
        let counted = match snapshot.controller_mode() {
            ControllerMode::Assist => ", counted in the step and in the failures",
            _ => "",
        };
        add("", format!("{} held with a pod of a revision that is not good{counted}", nodes.unassigned));
    }
    let failures = &status.failures;
    add("failures", format!("{}, at most {} allowed", nodes_text(failures.counted), failures.allowed));
    for failure in failures.nodes.iter().take(LISTED_FAILURES_MAX) {
        add("", failure_text(failure));
    }
    if let Some(more) = failures.nodes.len().checked_sub(LISTED_FAILURES_MAX).filter(|it| 0 < *it) {
        add("", format!("and {more} more: -o json lists all"));
    }
    if 0 < failures.excused_count {
        add(
            "",
            format!(
                "{} not counted: faulty before they got the revision",
                nodes_text(failures.excused_count)
            ),
        );
    }
    for (at, check) in status.checks.iter().enumerate() {
        let since = check.time.map(|it| format!(" since {}", it.to_rfc3339())).unwrap_or_default();
        let message =
            if check.message.is_empty() { String::new() } else { format!(": {}", printable(&check.message)) };
        let result = printable(check.result.as_str());
        add(
            if at == 0 { "checks" } else { "" },
            format!("{} {result}{since}{message}", printable(&check.name)),
        );
    }
    let mut name = "next";
    for line in next_lines(snapshot, rollout) {
        add(name, line);
        name = "";
    }
    text
}

/// Formats the number and hash of a revision, such as `2 (7d9c4b)`.
fn number_and_hash(number: i64, hash: &str) -> String {
    format!("{number} ({})", printable(hash))
}

/// Formats a count of nodes, such as `1 node` or `2 nodes`.
fn nodes_text(count: i32) -> String {
    if count == 1 { "1 node".to_owned() } else { format!("{count} nodes") }
}

/// Formats a failed node: its name, the reason and the time of the failure.
fn failure_text(failure: &NodeFailure) -> String {
    let time = failure.time.map(Time::to_rfc3339).unwrap_or_default();
    format!("{}: {} at {time}", printable(&failure.node), printable(&failure.reason))
}

/// Returns the lines under `next`: what the rollout waits for, and which commands an operator can run.
fn next_lines(snapshot: &RolloutSnapshot, rollout: &StoredRollout) -> Vec<String> {
    let (set, status) = (&snapshot.set, &rollout.status);
    let abort = abort_hint(snapshot);
    let retry = format!("`{}` starts the revision again", set.command("retry", ""));
    if rollout.current().is_none() || !rollout.is_observed() {
        return vec![
            "the controller has not observed the DaemonRollout yet: is `muster controller` running?".into(),
        ];
    }
    if snapshot.daemon_set.is_some() && !is_of_newest_revision(snapshot, rollout) {
        return vec!["the controller has not observed the last change of the DaemonSet yet".into()];
    }
    let mut lines = Vec::new();
    if rollout.spec.paused {
        lines.push(format!("`{}` ends the pause", set.command("resume", "")));
        if status.phase == RolloutPhase::Complete {
            return lines;
        }
    } else if status.paused {
        lines.push(policy_pause_text(snapshot, status));
    }
    match &status.phase {
        RolloutPhase::Complete => {}
        RolloutPhase::Rolling | RolloutPhase::Soaking => {
            if let Some(time) = status.step.as_ref().and_then(|it| it.passes_at) {
                lines.push(format!("the step passes at {} at the earliest", time.to_rfc3339()));
            }
            if !rollout.spec.paused {
                lines.push(format!("`{}` holds the other nodes", set.command("pause", "")));
            }
            lines.push(abort);
        }
        RolloutPhase::Waiting => {
            lines.push(waiting_text(snapshot));
            lines.push(abort);
        }
        RolloutPhase::PartiallyComplete => {
            lines.push(format!("`{}` updates the other nodes too", set.command("promote", "--full")));
            lines.push(abort);
        }
        RolloutPhase::Stopped if snapshot.is_bad_in_assist_mode() => {
            lines.extend(["revert or change the template, or:".into(), retry]);
        }
        RolloutPhase::Stopped
            if status.policy.is_none() && snapshot.newest_revision().is_some_and(|it| !it.is_bad()) =>
        {
            let promote = set.command("promote", "--full");
            lines.extend([
                "create a policy that selects the DaemonSet, or:".into(),
                format!("`{promote}` lets the rollout go on to all nodes"),
                abort,
            ]);
        }
        RolloutPhase::Stopped => lines.extend(["change the template, or:".into(), retry, abort]),
        RolloutPhase::RollingBack if rollout.spec.paused => {}
        RolloutPhase::RollingBack => lines.push("nodes are returning to the stable revision".into()),
        RolloutPhase::RolledBack => lines.extend(["change the template, or:".into(), retry]),
        RolloutPhase::Unknown(_) => {
            lines.push("this version of muster does not have the phase: use that of the controller".into());
        }
    }
    lines
}

/// Returns what a rollout in the phase `Waiting` waits for, with the command that ends the wait, if there is one. Empty
/// in any other phase.
fn waiting_text(snapshot: &RolloutSnapshot) -> String {
    let set = &snapshot.set;
    match snapshot.waits_for() {
        Some(WaitsFor::Check { check, is_external: true }) => {
            let words = format!("{} pass", printable(&check.name));
            format!("`{}` reports the result of the check: pass or fail", set.command("report", &words))
        }
        Some(WaitsFor::Check { check, is_external: false }) if check.result == CheckOutcome::Fail => {
            format!("check {} fails: it is repeated", printable(&check.name))
        }
        Some(WaitsFor::Check { .. }) => "the check is repeated until it has a result".into(),
        Some(WaitsFor::Approval { step }) => {
            format!("`{}` approves step {}", set.command("promote", ""), printable(step))
        }
        None => String::new(),
    }
}

/// Returns the text that says how a rollout can continue that is paused by its policy. If the policy sets `paused`, the
/// text says how to unset it. If the policy has windows, the text says that the next window continues the rollout.
/// Otherwise the text refers to the conditions of the policy.
fn policy_pause_text(snapshot: &RolloutSnapshot, status: &DaemonRolloutStatus) -> String {
    let policy = status.policy.as_ref();
    let name =
        policy.map(|it| format!("{} {}", printable(&it.kind), printable(&it.name))).unwrap_or_default();
    match &snapshot.policy {
        Some(it) if it.paused => format!("set spec.paused of the {name} to false"),
        Some(it) if !it.windows.is_empty() => format!("the next window of the {name} continues the rollout"),
        _ => format!("the {name} holds the rollout: see its conditions"),
    }
}

/// Returns the output of `muster rollout status` for a DaemonSet that has no DaemonRollout.
fn text_without_rollout(snapshot: &RolloutSnapshot) -> String {
    let Some(set) = &snapshot.daemon_set else { return String::new() };
    let strategy = snapshot.update_strategy();
    let [desired, updated, available, unavailable] = node_counts(set);
    let is_held = snapshot.newest_revision().is_some_and(RevisionRecord::is_bad);
    let state = if is_held {
        "held by the verdict Bad of its revision".to_owned()
    } else {
        format!("it follows its update strategy {}", printable(strategy))
    };
    let mut text = format!("{}: no DaemonRollout, {state}\n", snapshot.set);
    if !snapshot.are_kinds_served {
        text.push_str("The API server does not have the kinds of muster.dev.\n");
    }
    text.push('\n');
    let mut add = |name: &str, line: String| text.push_str(&format!("{name:LABEL_WIDTH$}{line}\n"));
    match snapshot.newest_revision() {
        Some(newest) => add("revision", number_and_hash(newest.number, &newest.hash)),
        None => add("revision", "the controller has not recorded the template yet".into()),
    }
    add(
        "nodes",
        format!("{desired} desired: {updated} updated, {available} available, {unavailable} unavailable"),
    );
    if snapshot.is_refused_in_assist_mode() {
        add("refused", format!("NotOnDelete: {NOT_ON_DELETE_MESSAGE}"));
    }
    if is_held {
        add("next", held_text(snapshot));
    } else if snapshot.has_stale_rollout {
        let stale = "the garbage collector deletes the DaemonRollout of an earlier DaemonSet with this name";
        add("next", stale.into());
    }
    text
}

/// Returns what a user can do about a DaemonSet that has no DaemonRollout and whose current revision has the verdict
/// `Bad`.
fn held_text(snapshot: &RolloutSnapshot) -> String {
    let retry = snapshot.set.command("retry", "");
    format!("no pod is replaced: change the template, or `{retry}` starts the revision again")
}

/// Returns four node counts from the status of a DaemonSet: desired, updated, available and unavailable.
fn node_counts(set: &Value) -> [i64; 4] {
    ["desiredNumberScheduled", "updatedNumberScheduled", "numberAvailable", "numberUnavailable"]
        .map(|it| set["status"][it].as_i64().unwrap_or_default())
}
