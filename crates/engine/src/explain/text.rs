//! Prints an explanation as text: summary, nodes by reason, rollout, controller. Lines have at most 80 columns, except
//! for longer words.

use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use core::fmt::{self, Write as _};
use core::time::Duration;

use muster_api::text::Text;
use muster_api::time::Time;

use super::{ControllerAnswer, ControllerState, Explanation, Group, NodeState};
use crate::daemonset::facts::{ConditionType, Rollout, Share};

/// Maximum width of a line.
const COLUMNS: usize = 80;

/// Maximum number of node names printed for a group.
const NAMES_MAX: usize = 5;

/// Columns at which the text of a group, and of the rollout and controller lines, begins.
const REASON_AT: usize = 22;
const REST_AT: usize = 12;

/// Prints the summary, the groups of nodes, the rollout and the controller.
impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.head(f)?;
        f.write_str("\n  NODES  STATE        WHY\n")?;
        for group in self.groups() {
            row(f, group.nodes.len(), &group)?;
            let named = names(group.nodes.iter().map(|it| it.is.node.as_ref()), NAMES_MAX);
            below(f, REASON_AT, &named)?;
            // Details of one node are enough: most nodes of a group have the same problem.
            if let Some(first) = group.nodes.iter().find(|it| !it.details.is_empty()) {
                let which =
                    if 1 < group.nodes.len() { format!("{}: ", first.is.node) } else { String::new() };
                let more = if is_plain(&group) { &[] } else { first.details.as_slice() };
                for detail in more {
                    below(f, REASON_AT, &format!("{which}{detail}"))?;
                }
            }
        }
        self.tail(f)
    }
}

/// Whether the message of a group says everything, so that no details are printed.
fn is_plain(group: &Group<'_>) -> bool {
    group.state == NodeState::Excluded && 1 < group.nodes.len()
}

impl Explanation {
    /// Prints one line per node (`-o wide`).
    pub fn wide(&self) -> String {
        let mut out = String::new();
        let _ = self.write_wide(&mut out);
        out
    }

    /// Prints everything about one node; `None` if there is no such node.
    pub fn for_node(&self, node: &str) -> Option<String> {
        let it = self.nodes.iter().find(|it| it.is.node.as_ref() == node)?;
        let mut out = String::new();
        let (key, state) = (&self.key, it.is.state.as_str());
        let should = if it.is.state.should_run() { "should" } else { "should not" };
        let _ = writeln!(out, "DaemonSet {key} on node {node}: {state}, and {should} run there");
        for line in [&it.message].into_iter().chain(&it.details) {
            let _ = wrapped(&mut out, 2, line);
        }
        if let Some(pod) = &it.is.pod {
            let _ = wrapped(&mut out, 2, &format!("pod {pod}"));
        }
        if it.is.charged {
            let _ = wrapped(&mut out, 2, "the rollout counts it as down until that is over");
        }
        let _ = self.tail(&mut out);
        Some(out)
    }

    fn write_wide(&self, f: &mut String) -> fmt::Result {
        self.head(f)?;
        let name = |it: &super::OnNode| it.is.node.chars().count();
        let pod = |it: &super::OnNode| it.is.pod.as_deref().unwrap_or("-").chars().count();
        let name_width = self.nodes.iter().map(name).max().unwrap_or(0).max("NODE".len());
        let pod_width = self.nodes.iter().map(pod).max().unwrap_or(0).max("POD".len());
        writeln!(f, "\n{:name_width$}  {:11}  {:pod_width$}  WHY", "NODE", "STATE", "POD")?;
        for it in &self.nodes {
            let (node, pod) = (&it.is.node, it.is.pod.as_deref().unwrap_or("-"));
            let why = [&it.message].into_iter().chain(&it.details).map(String::as_str).collect::<Vec<_>>();
            let state = it.is.state.as_str();
            writeln!(f, "{node:name_width$}  {state:11}  {pod:pod_width$}  {}", why.join("; "))?;
        }
        self.tail(f)
    }

    fn head(&self, f: &mut impl fmt::Write) -> fmt::Result {
        let generation = format!("generation {}", self.set.generation);
        let revision = self.revision.map_or("not recorded yet".to_string(), |it| format!("revision {it}"));
        writeln!(f, "DaemonSet {}: {revision}, {generation}", self.key)?;
        let named = |wanted: bool| {
            let states =
                NodeState::ALL.into_iter().filter(|it| *it != NodeState::Gone && it.should_run() == wanted);
            let counts = states.map(|it| (it, self.count(it))).filter(|(_, count)| 0 < *count);
            let counts: Vec<(NodeState, usize)> = counts.collect();
            let total: usize = counts.iter().map(|(_, count)| count).sum();
            let parts: Vec<String> =
                counts.iter().map(|(state, count)| format!("{count} {}", state.as_str())).collect();
            (total, if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) })
        };
        let ((should, is), (should_not, is_not)) = (named(true), named(false));
        let nodes = counted(self.node_count(), "node");
        wrapped(f, 0, &format!("{nodes}: {should} should run it{is}, {should_not} should not{is_not}"))?;
        let gone = self.count(NodeState::Gone);
        if 0 < gone {
            wrapped(f, 0, &format!("and pods on {} that no longer exist", counted(gone, "node")))?;
        }
        Ok(())
    }

    fn tail(&self, f: &mut impl fmt::Write) -> fmt::Result {
        f.write_char('\n')?;
        labelled(f, "rollout", &self.rollout_words())?;
        labelled(f, "controller", &self.controller_words())?;
        for note in &self.notes {
            labelled(f, "note", core::slice::from_ref(note))?;
        }
        Ok(())
    }

    /// Lines about the rollout: progress, budget, the nodes it waits for, and the nodes it updates next.
    fn rollout_words(&self) -> Vec<String> {
        let rollout = &self.rollout;
        let (updated, desired) = (rollout.counts.updated, rollout.counts.desired);
        let mut words = Vec::new();
        if rollout.hash.is_none() {
            words.push(
                "the template is not recorded as a revision yet: no pod is made before it is".to_string(),
            );
            return words;
        }
        if rollout.complete {
            let nodes = counted(usize::try_from(desired).unwrap_or(0), "node");
            words.push(format!("complete: {nodes} with an available pod of this revision"));
            return words;
        }
        words
            .push(format!("{updated} of {desired} nodes up to date, {} available", rollout.counts.available));
        words.push(self.budget_words());
        for (message, nodes) in self.waits_for() {
            let count = counted(nodes.len(), "node");
            words.push(format!(
                "waits for {count}: {message}: {}",
                names(nodes.iter().map(|it| it.as_ref()), 3)
            ));
        }
        if !rollout.next.is_empty() {
            words.push(format!("next: {}", names(rollout.next.iter().map(Text::as_ref), NAMES_MAX)));
        }
        let stalled = |it: &&crate::daemonset::facts::Condition| {
            it.kind == ConditionType::Progressing
                && it.reason.as_ref() == crate::daemonset::status::REASON_STALLED
        };
        if let Some(condition) = self.set.status.conditions.iter().find(stalled) {
            let since = condition.since.map_or(String::new(), |it| format!(" at {}", moment(it, self.now)));
            words.push(format!("nothing has advanced for ten minutes: called stalled{since}"));
        }
        words
    }

    fn budget_words(&self) -> String {
        let (charged, budget) = (self.rollout.charged, self.rollout.budget);
        let left = match budget.saturating_sub(charged) {
            0 => "none left".to_string(),
            left => format!("{left} left"),
        };
        match self.set.rollout {
            Rollout::OnDelete => "OnDelete: old pods are replaced when somebody deletes them".to_string(),
            Rollout::Drain(share) => {
                format!("maxUnavailable {}: {charged} down, {left}", of_nodes(share, budget))
            }
            Rollout::Surge(share) => {
                format!("maxSurge {}: {charged} with a second pod, {left}", of_nodes(share, budget))
            }
        }
    }

    fn controller_words(&self) -> Vec<String> {
        match &self.controller {
            ControllerAnswer::NotKnown(why) => Vec::from([format!("not known from outside: {why}")]),
            ControllerAnswer::By(it) => it.words(self.now),
        }
    }
}

impl ControllerState {
    /// Lines about the controller: what it does, what it waits for, and when it reconciles next.
    fn words(&self, now: Time) -> Vec<String> {
        let mut words = Vec::new();
        if self.acts {
            words.push("carries out a plan for it now".to_string());
        }
        if 0 < self.remembered.unseen_writes {
            let count = counted(self.remembered.unseen_writes, "own write");
            words.push(format!("waits until its watches show {count}"));
        }
        if let Some(at) = self.remembered.retry_at.filter(|at| now < *at) {
            let failures = counted(self.remembered.failures as usize, "call");
            words.push(format!("{failures} failed in a row, tried again at {}", moment(at, now)));
        }
        let waiting = self.remembered.backoffs.values().filter(|it| now < it.until()).count();
        if 0 < waiting {
            words.push(format!("holds failed pods back on {}", counted(waiting, "node")));
        }
        if let Some(at) = self.left_alone_until.filter(|at| now < *at) {
            words.push(format!("it made the controller panic, and is left alone until {}", moment(at, now)));
        }
        words.push(match self.wakes_at {
            _ if self.queued => "looks at it next".to_string(),
            Some(at) => format!("looks again at {}, or when something changes", moment(at, now)),
            None => "looks again when something changes".to_string(),
        });
        words
    }
}

fn row(f: &mut fmt::Formatter<'_>, count: usize, group: &Group<'_>) -> fmt::Result {
    let lead = format!("{count:7}  {:11}", group.state.as_str());
    hanging(f, &lead, REASON_AT, group.message)
}

fn below(f: &mut impl fmt::Write, at: usize, words: &str) -> fmt::Result {
    hanging(f, "", at, words)
}

pub(crate) fn labelled(f: &mut impl fmt::Write, label: &str, lines: &[String]) -> fmt::Result {
    for (at, line) in lines.iter().enumerate() {
        hanging(f, if at == 0 { label } else { "" }, REST_AT, line)?;
    }
    Ok(())
}

pub(crate) fn wrapped(f: &mut impl fmt::Write, at: usize, words: &str) -> fmt::Result {
    hanging(f, "", at, words)
}

/// Writes `lead`, then the words from column `at` on, wrapped with a hanging indent.
fn hanging(f: &mut impl fmt::Write, lead: &str, at: usize, words: &str) -> fmt::Result {
    let mut line = format!("{lead:at$}");
    let mut used = line.chars().count();
    let mut is_fresh = true;
    for word in words.split(' ').filter(|it| !it.is_empty()) {
        let length = word.chars().count();
        if !is_fresh && COLUMNS < used + 1 + length {
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

/// Formats a list of names: `n1, n2, n3 and 7 more`.
pub(crate) fn names<'a>(all: impl IntoIterator<Item = &'a str>, most: usize) -> String {
    let all: Vec<&str> = all.into_iter().collect();
    // One more name is not longer than "and 1 more".
    if all.len() <= most + 1 {
        return all.join(", ");
    }
    let shown = all.get(..most).unwrap_or_default();
    format!("{} and {} more", shown.join(", "), all.len() - most)
}

pub(crate) fn counted(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

/// Formats a time of day, with the date if it is another day, and its distance from now.
pub(crate) fn moment(at: Time, now: Time) -> String {
    let (text, today) = (at.to_rfc3339(), now.to_rfc3339());
    let shown = match (text.split_once('T'), today.split_once('T')) {
        (Some((day, time)), Some((this_day, _))) if day == this_day => time.to_string(),
        _ => text,
    };
    if now < at {
        format!("{shown} (in {})", span(at.since(now)))
    } else {
        format!("{shown} ({} ago)", span(now.since(at)))
    }
}

/// Formats a duration: `4s`, `3m20s`, `2h5m`, `3d4h`.
pub(crate) fn span(span: Duration) -> String {
    let s = span.as_secs() + u64::from(500 <= span.subsec_millis());
    match s {
        0..60 => format!("{s}s"),
        60..3600 if s.is_multiple_of(60) => format!("{}m", s / 60),
        60..3600 => format!("{}m{}s", s / 60, s % 60),
        3600..86400 => format!("{}h{}m", s / 3600, s % 3600 / 60),
        _ => format!("{}d{}h", s / 86400, s % 86400 / 3600),
    }
}

/// Formats `maxUnavailable` or `maxSurge`: `3`, or `10% (200 nodes)`.
pub(crate) fn of_nodes(share: Share, budget: usize) -> String {
    match share {
        Share::Count(_) => in_words(share),
        Share::Percent(_) => format!("{} ({})", in_words(share), counted(budget, "node")),
    }
}

pub(crate) fn in_words(share: Share) -> String {
    match share {
        Share::Count(count) => format!("{count}"),
        Share::Percent(percent) => format!("{percent}%"),
    }
}
