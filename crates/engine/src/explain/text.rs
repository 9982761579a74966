//! Formats an explanation as text: summary, nodes, rollout, controller, notes. Lines have at most 80 columns, except
//! lines with a single longer word, and the node lines of `-o wide`.

use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use core::fmt::{self, Write as _};
use core::time::Duration;

use muster_api::text::Text;
use muster_api::time::Time;

use super::{
    ControllerAnswer, ControllerMode, ControllerState, Explanation, NodeGroup, NodeSummary,
    ProgressiveRolloutSummary,
};
use crate::daemonset::facts::{ConditionType, IntOrPercent, UpdateStrategy};
use crate::daemonset::progressive::record::Phase;
use crate::daemonset::{ZERO_BUDGET_MESSAGE, is_budget_always_zero};

/// Maximum width of a line in characters.
const LINE_WIDTH: usize = 80;

/// Number of node names that [`format_names`] prints before `and N more`.
const SHORTENED_NAMES: usize = 5;

/// Column at which the reason of a group of nodes starts.
const REASON_COLUMN: usize = 22;
/// Column at which the text after a label, such as `rollout`, starts.
const LABEL_COLUMN: usize = 12;

/// Prints the summary, the groups of nodes, the rollout, the controller and the notes.
impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_summary(f)?;
        f.write_str("\n  NODES  STATE        WHY\n")?;
        for group in self.groups() {
            write_group(f, group.nodes.len(), &group)?;
            let named =
                format_names(group.nodes.iter().map(|it| it.explained.node.as_ref()), SHORTENED_NAMES);
            write_wrapped(f, REASON_COLUMN, &named)?;
            // Details of one node are enough: most nodes of a group have the same problem.
            if let Some(first) = group.nodes.iter().find(|it| !it.details.is_empty()) {
                let which =
                    if 1 < group.nodes.len() { format!("{}: ", first.explained.node) } else { String::new() };
                let more = if omits_details(&group) { &[] } else { first.details.as_slice() };
                for detail in more {
                    write_wrapped(f, REASON_COLUMN, &format!("{which}{detail}"))?;
                }
            }
        }
        self.write_rollout_and_controller(f)
    }
}

/// Whether the details of a group of nodes are left out: true for a group of several nodes in the state `Excluded`.
fn omits_details(group: &NodeGroup<'_>) -> bool {
    group.state == NodeSummary::Excluded && 1 < group.nodes.len()
}

impl Explanation {
    /// Formats the explanation with one line per node, for `-o wide`.
    pub fn to_wide_text(&self) -> String {
        let mut out = String::new();
        let _ = self.write_wide(&mut out);
        out
    }

    /// Formats the state of one node with all details, the rollout, the controller and the notes. `None` if there is no
    /// such node.
    pub fn node_text(&self, node: &str) -> Option<String> {
        let it = self.nodes.iter().find(|it| it.explained.node.as_ref() == node)?;
        let mut out = String::new();
        let (key, state) = (&self.key, it.explained.state.as_str());
        let should = if it.explained.state.should_run() { "should" } else { "should not" };
        let _ = writeln!(out, "DaemonSet {key} on node {node}: {state}, and {should} run there");
        for line in [&it.message].into_iter().chain(&it.details) {
            let _ = write_wrapped(&mut out, 2, line);
        }
        if let Some(pod) = &it.explained.pod {
            let revision = it.explained.revision.as_ref();
            let revision = revision.filter(|_| it.explained.assigned.is_some());
            let revision = revision.map_or(String::new(), |it| format!(" of revision {it}"));
            let _ = write_wrapped(&mut out, 2, &format!("pod {pod}{revision}"));
        }
        if let Some(assigned) = &it.explained.assigned {
            let is_left = self.mode == ControllerMode::Assist && it.explained.admitted == Some(false);
            let line = if is_left {
                format!("not admitted by the rollout; gets revision {assigned} when its pod is deleted")
            } else {
                format!("the rollout assigns revision {assigned} to the node")
            };
            let _ = write_wrapped(&mut out, 2, &line);
        }
        if it.explained.charged {
            let _ = write_wrapped(&mut out, 2, "counts against the rollout budget");
        }
        let _ = self.write_rollout_and_controller(&mut out);
        Some(out)
    }

    /// Writes the explanation as [`Self::to_wide_text`] returns it.
    fn write_wide(&self, f: &mut String) -> fmt::Result {
        self.write_summary(f)?;
        let name = |it: &super::NodeReport| it.explained.node.chars().count();
        let pod = |it: &super::NodeReport| it.explained.pod.as_deref().unwrap_or("-").chars().count();
        let name_width = self.nodes.iter().map(name).max().unwrap_or(0).max("NODE".len());
        let pod_width = self.nodes.iter().map(pod).max().unwrap_or(0).max("POD".len());
        writeln!(f, "\n{:name_width$}  {:11}  {:pod_width$}  WHY", "NODE", "STATE", "POD")?;
        for it in &self.nodes {
            let (node, pod) = (&it.explained.node, it.explained.pod.as_deref().unwrap_or("-"));
            let why = [&it.message].into_iter().chain(&it.details).map(String::as_str).collect::<Vec<_>>();
            let state = it.explained.state.as_str();
            writeln!(f, "{node:name_width$}  {state:11}  {pod:pod_width$}  {}", why.join("; "))?;
        }
        self.write_rollout_and_controller(f)
    }

    /// Writes the revision and generation of the DaemonSet, and how many nodes are in each state.
    fn write_summary(&self, f: &mut impl fmt::Write) -> fmt::Result {
        let generation = format!("generation {}", self.set.generation);
        let revision =
            self.revision.map_or("revision not recorded yet".to_string(), |it| format!("revision {it}"));
        writeln!(f, "DaemonSet {}: {revision}, {generation}", self.key)?;
        let named = |wanted: bool| {
            let states = NodeSummary::ALL
                .into_iter()
                .filter(|it| *it != NodeSummary::Gone && it.should_run() == wanted);
            let counts = states.map(|it| (it, self.count(it))).filter(|(_, count)| 0 < *count);
            let counts: Vec<(NodeSummary, usize)> = counts.collect();
            let total: usize = counts.iter().map(|(_, count)| count).sum();
            let parts: Vec<String> =
                counts.iter().map(|(state, count)| format!("{count} {}", state.as_str())).collect();
            (total, if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) })
        };
        let ((should, is), (should_not, is_not)) = (named(true), named(false));
        let nodes = pluralize(self.node_count(), "node");
        write_wrapped(
            f,
            0,
            &format!("{nodes}: {should} should run it{is}, {should_not} should not{is_not}"),
        )?;
        let gone = self.count(NodeSummary::Gone);
        if 0 < gone {
            write_wrapped(f, 0, &format!("and pods on {}", pluralize(gone, "deleted node")))?;
        }
        Ok(())
    }

    /// Writes the lines about the rollout, the lines about the controller, and the notes.
    fn write_rollout_and_controller(&self, f: &mut impl fmt::Write) -> fmt::Result {
        f.write_char('\n')?;
        write_labelled(f, "rollout", &self.rollout_lines())?;
        write_labelled(f, "controller", &self.controller_lines())?;
        for note in &self.notes {
            write_labelled(f, "note", core::slice::from_ref(note))?;
        }
        Ok(())
    }

    /// Returns the lines about the rollout, such as progress, budget, the nodes that the rollout waits for, and the
    /// nodes that it updates next.
    fn rollout_lines(&self) -> Vec<String> {
        let rollout = &self.rollout;
        let (updated, desired) = (rollout.counts.updated, rollout.counts.desired);
        let mut words = Vec::new();
        if rollout.hash.is_none() {
            words.push(
                "the template is not recorded as a revision yet: no pod is created until it is".to_string(),
            );
            return words;
        }
        words.extend(rollout.progressive.iter().flat_map(|it| self.progressive_lines(it)));
        if rollout.complete {
            let nodes = pluralize(usize::try_from(desired).unwrap_or(0), "node");
            words.push(format!("complete: {nodes} with an available pod of this revision"));
            return words;
        }
        words
            .push(format!("{updated} of {desired} nodes up to date, {} available", rollout.counts.available));
        words.push(self.budget_text());
        for (message, nodes) in self.wait_reasons() {
            let count = pluralize(nodes.len(), "node");
            words.push(format!(
                "waits for {count}: {message}: {}",
                format_names(nodes.iter().map(|it| it.as_ref()), 3)
            ));
        }
        if !rollout.next.is_empty() {
            words.push(format!(
                "next: {}",
                format_names(rollout.next.iter().map(Text::as_ref), SHORTENED_NAMES)
            ));
        }
        let stalled = |it: &&crate::daemonset::facts::Condition| {
            it.kind == ConditionType::Progressing
                && it.reason.as_ref() == crate::daemonset::status::REASON_STALLED
        };
        if let Some(condition) = self.set.status.conditions.iter().find(stalled) {
            let since =
                condition.since.map_or(String::new(), |it| format!(" at {}", format_time(it, self.now)));
            words.push(format!("no progress for ten minutes: stalled{since}"));
        }
        words
    }

    /// Returns the lines about a progressive rollout, such as policy, phase, nodes, failures, and what an operator can
    /// do.
    fn progressive_lines(&self, progressive: &ProgressiveRolloutSummary) -> Vec<String> {
        let is_assisted = self.mode == ControllerMode::Assist;
        let mut lines = Vec::new();
        let mode = if is_assisted { ", in assist mode" } else { "" };
        lines.push(match &progressive.policy {
            Some((kind, policy)) => format!("follows {} {policy}{mode}", kind.as_str()),
            None => format!("follows no policy{mode}"),
        });
        if let Some(frozen) = &progressive.frozen {
            lines.push(format!("held: {frozen}"));
            return lines;
        }
        if progressive.has_stale_record {
            let stale = "waits for the garbage collector to delete the DaemonRollout of an earlier DaemonSet with this \
                         name";
            lines.push(stale.to_string());
            return lines;
        }
        let Some((status, phase)) = progressive.status.as_ref().and_then(|it| Some((it, it.phase?))) else {
            lines.push("its DaemonRollout has no status yet".to_string());
            return lines;
        };
        let step = status.step.as_ref().filter(|_| phase != Phase::Complete);
        let step = step.map_or(String::new(), |it| {
            format!(
                ", step {:?} ({} of {})",
                &*it.name,
                it.index + 1,
                progressive.step_count.max(it.index + 1)
            )
        });
        let message = if status.message.is_empty() { String::new() } else { format!(": {}", status.message) };
        let paused = if status.paused { " (paused)" } else { "" };
        lines.push(format!("{}{paused}{step}{message}", phase.as_str()));
        let nodes = &status.nodes;
        if phase != Phase::Complete {
            let held = pluralize(nodes.held, "node");
            let held = match &progressive.stable {
                _ if is_assisted => format!("; {held} held: no pod there is deleted"),
                Some(stable) => format!("; {held} held at revision {}", stable.number),
                None => String::new(),
            };
            lines.push(format!("{} of {} nodes admitted{held}", nodes.admitted, nodes.eligible));
        }
        if is_assisted
            && phase != Phase::Complete
            && let Some(revision) = self.revision
        {
            lines.push(format!(
                "a new node, or one whose pod is deleted, gets revision {revision} even if it is not admitted"
            ));
        }
        if 0 < nodes.unassigned {
            let count = pluralize(nodes.unassigned, "node");
            lines.push(if is_assisted {
                format!(
                    "{count} unassigned: not admitted, but with a revision that is not good; counted in the step and in \
                     the failures"
                )
            } else {
                format!("{count} with a pod of a revision that is neither assigned nor good")
            });
        }
        let failures = &status.failures;
        if !failures.nodes.is_empty() {
            let failed: Vec<String> =
                failures.nodes.iter().map(|it| format!("{} ({})", it.node, it.reason)).collect();
            let names = format_names(failed.iter().map(String::as_str), 3);
            lines.push(format!("failed: {names}; {} tolerated", failures.allowed));
        }
        let command = match phase {
            Phase::Complete => None,
            _ if status.paused => Some("continue with: muster rollout resume"),
            Phase::Waiting => Some("approve with: muster rollout promote"),
            Phase::Stopped if is_assisted => {
                Some("there is no rollback: revert the template, or try again with: muster rollout retry")
            }
            Phase::Stopped | Phase::RolledBack => {
                Some("change the template, or try again with: muster rollout retry")
            }
            Phase::Rolling | Phase::Soaking | Phase::PartiallyComplete | Phase::RollingBack => None,
        };
        lines.extend(command.map(|it| format!("{it} ds/{}", self.key.name)));
        lines
    }

    /// Returns the status message of the DaemonRollout. Empty if there is no DaemonRollout or no message.
    fn rollout_message(&self) -> &str {
        let status = self.rollout.progressive.as_ref().and_then(|it| it.status.as_ref());
        status.map_or("", |it| &it.message)
    }

    /// Returns the line about `maxUnavailable` or `maxSurge`: the limit, the number of nodes that count against it, and
    /// how many are left. For `OnDelete`, the line says that a pod is replaced when a user deletes it. For a
    /// `maxUnavailable` of 0, the line is [`ZERO_BUDGET_MESSAGE`], unless the status message of the rollout contains
    /// that message already.
    fn budget_text(&self) -> String {
        let (charged, budget) = (self.rollout.charged, self.rollout.budget);
        let left = match budget.saturating_sub(charged) {
            0 => "none left".to_string(),
            left => format!("{left} left"),
        };
        match self.rollout.strategy {
            UpdateStrategy::OnDelete => {
                "OnDelete: old pods are replaced when a user deletes them".to_string()
            }
            // The status message of the rollout may have it already.
            strategy
                if is_budget_always_zero(strategy)
                    && !self.rollout_message().contains(ZERO_BUDGET_MESSAGE) =>
            {
                ZERO_BUDGET_MESSAGE.to_string()
            }
            UpdateStrategy::Drain(share) => {
                format!(
                    "maxUnavailable {}: {charged} unavailable, {left}",
                    format_rollout_limit(share, budget)
                )
            }
            UpdateStrategy::Surge(share) => {
                format!(
                    "maxSurge {}: {charged} with a second pod, {left}",
                    format_rollout_limit(share, budget)
                )
            }
        }
    }

    /// Returns the lines about the running controller. If it did not respond, returns one line with the reason.
    fn controller_lines(&self) -> Vec<String> {
        match &self.controller {
            ControllerAnswer::Unavailable(why) => Vec::from([format!("state unavailable: {why}")]),
            ControllerAnswer::Responded(it) => it.state_lines(self.now),
        }
    }
}

impl ControllerState {
    /// Returns lines about the controller's state for the DaemonSet: the plan in progress, what the next plan waits
    /// for, and when the DaemonSet is reconciled next.
    fn state_lines(&self, now: Time) -> Vec<String> {
        let mut words = Vec::new();
        if self.is_executing {
            words.push("executing a plan".to_string());
        }
        if 0 < self.memory.unseen_writes {
            let count = pluralize(self.memory.unseen_writes, "write");
            words.push(format!("waiting for the watch to deliver {count}"));
        }
        if let Some(at) = self.memory.retry_at.filter(|at| now < *at) {
            let failures = pluralize(self.memory.failures as usize, "call");
            words.push(format!("{failures} failed in a row; next attempt at {}", format_time(at, now)));
        }
        let waiting = self.memory.backoffs.values().filter(|it| now < it.ends_at()).count();
        if 0 < waiting {
            words.push(format!("failed-pod backoff on {}", pluralize(waiting, "node")));
        }
        if let Some(at) = self.panic_backoff_until.filter(|at| now < *at) {
            words.push(format!(
                "the last reconcile panicked; next reconcile at {} or later",
                format_time(at, now)
            ));
        }
        words.push(match self.wakes_at {
            _ if self.queued => "queued for the next reconcile".to_string(),
            Some(at) => format!("next reconcile at {}, or when something changes", format_time(at, now)),
            None => "next reconcile when something changes".to_string(),
        });
        words
    }
}

/// Writes the number of nodes in a group, their state and the reason.
fn write_group(f: &mut fmt::Formatter<'_>, count: usize, group: &NodeGroup<'_>) -> fmt::Result {
    let lead = format!("{count:7}  {:11}", group.state.as_str());
    write_hanging_indent(f, &lead, REASON_COLUMN, group.message)
}

/// Writes lines from a fixed column, with a label at the beginning of the first line.
pub(crate) fn write_labelled(f: &mut impl fmt::Write, label: &str, lines: &[String]) -> fmt::Result {
    for (at, line) in lines.iter().enumerate() {
        write_hanging_indent(f, if at == 0 { label } else { "" }, LABEL_COLUMN, line)?;
    }
    Ok(())
}

/// Writes text from column `at`, wrapped at [`LINE_WIDTH`].
pub(crate) fn write_wrapped(f: &mut impl fmt::Write, at: usize, words: &str) -> fmt::Result {
    write_hanging_indent(f, "", at, words)
}

/// Writes `lead`, then `words` from column `at`, wrapped at [`LINE_WIDTH`]. Further lines are indented to column `at`.
fn write_hanging_indent(f: &mut impl fmt::Write, lead: &str, at: usize, words: &str) -> fmt::Result {
    let mut line = format!("{lead:at$}");
    let mut used = line.chars().count();
    let mut is_fresh = true;
    for word in words.split(' ').filter(|it| !it.is_empty()) {
        let length = word.chars().count();
        if !is_fresh && LINE_WIDTH < used + 1 + length {
            writeln!(f, "{}", line.trim_end())?;
            line = format!("{:at$}", "");
            (used, is_fresh) = (at, true);
        }
        if !is_fresh {
            line.push(' ');
            used += 1;
        }
        line.push_str(word);
        (used, is_fresh) = (used + length, false);
    }
    writeln!(f, "{}", line.trim_end())
}

/// Formats a list of names, such as `n1, n2, n3 and 7 more`. Prints at most `most` names, or `most` + 1 if that
/// completes the list.
pub(crate) fn format_names<'a>(all: impl IntoIterator<Item = &'a str>, most: usize) -> String {
    let all: Vec<&str> = all.into_iter().collect();
    // One more name is not longer than "and 1 more".
    if all.len() <= most + 1 {
        return all.join(", ");
    }
    let shown = all.get(..most).unwrap_or_default();
    format!("{} and {} more", shown.join(", "), all.len() - most)
}

/// Formats a number and a noun, such as `1 node` or `2 nodes`.
pub(crate) fn pluralize(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

/// Formats the time of day of `at` (UTC), and the duration between `at` and `now`. Adds the date if `at` is on another
/// day.
pub(crate) fn format_time(at: Time, now: Time) -> String {
    let (text, today) = (at.to_rfc3339(), now.to_rfc3339());
    let shown = match (text.split_once('T'), today.split_once('T')) {
        (Some((day, time)), Some((this_day, _))) if day == this_day => time.to_string(),
        _ => text,
    };
    if now < at {
        format!("{shown} (in {})", format_duration(at.since(now)))
    } else {
        format!("{shown} ({} ago)", format_duration(now.since(at)))
    }
}

/// Formats a duration with its one or two largest units, such as `4s`, `3m20s`, `2h5m` or `3d4h`.
pub(crate) fn format_duration(span: Duration) -> String {
    let s = span.as_secs() + u64::from(500 <= span.subsec_millis());
    match s {
        0..60 => format!("{s}s"),
        60..3600 if s.is_multiple_of(60) => format!("{}m", s / 60),
        60..3600 => format!("{}m{}s", s / 60, s % 60),
        3600..86400 => format!("{}h{}m", s / 3600, s % 3600 / 60),
        _ => format!("{}d{}h", s / 86400, s % 86400 / 3600),
    }
}

/// Formats `maxUnavailable` or `maxSurge`, such as `3` or `10% (200 nodes)`. `budget` is the number of nodes that the
/// percentage stands for.
pub(crate) fn format_rollout_limit(share: IntOrPercent, budget: usize) -> String {
    match share {
        IntOrPercent::Count(_) => format_int_or_percent(share),
        IntOrPercent::Percent(_) => {
            format!("{} ({})", format_int_or_percent(share), pluralize(budget, "node"))
        }
    }
}

/// Formats a number or percentage, such as `3` or `10%`.
pub(crate) fn format_int_or_percent(share: IntOrPercent) -> String {
    match share {
        IntOrPercent::Count(count) => format!("{count}"),
        IntOrPercent::Percent(percent) => format!("{percent}%"),
    }
}
