//! Formats a rollout preview as text. Lines have at most 80 columns, except lines with a single longer word.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use core::fmt;

use muster_api::text::Text;

use super::{RevisionChange, RolloutPreview};
use crate::explain::{NodeSummary, format_duration, format_names, pluralize, write_labelled, write_wrapped};

/// Maximum number of batches that are printed. For further batches only their number is printed.
const BATCHES_MAX: usize = 8;

/// Number of node names that [`format_names`] prints before `and N more`.
const SHORTENED_NAMES: usize = 5;

/// Formats the preview as `muster plan` prints it.
impl fmt::Display for RolloutPreview {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_wrapped(f, 0, &format!("DaemonSet {}: {}", self.key, self.change))?;
        write_wrapped(f, 0, &self.counts_line())?;
        f.write_str("\n")?;
        let loses: BTreeSet<&Text> = self.loses.iter().collect();
        let all = |nodes: &[Text]| format_names(nodes.iter().map(Text::as_ref), SHORTENED_NAMES);
        if !self.gains.is_empty() {
            write_labelled(f, "gains", &[all(&self.gains)])?;
        }
        write_labelled(f, "loses", &self.reason_lines(|node, _| loses.contains(node)))?;
        if !self.batches.is_empty() {
            write_labelled(f, "replaces", &self.rollout_order_lines())?;
        }
        if !self.waits.is_empty() {
            let nodes = pluralize(self.waits.len(), "node");
            let words = format!("OnDelete: {nodes} until a user deletes the old pod: {}", all(&self.waits));
            write_labelled(f, "waits", &[words])?;
        }
        if let Some(stops) = &self.stops {
            let mut words = Vec::new();
            if !stops.left.is_empty() {
                let nodes = pluralize(stops.left.len(), "node");
                words.push(format!("with the old pod on {nodes}: {}", all(&stops.left)));
            }
            for (why, nodes) in &stops.wait_reasons {
                let waits = if stops.left.is_empty() { "for" } else { "waits for" };
                words.push(format!("{waits} {}: {why}: {}", pluralize(nodes.len(), "node"), all(nodes)));
            }
            write_labelled(f, if stops.left.is_empty() { "waits" } else { "stops" }, &words)?;
        }
        write_labelled(
            f,
            "without",
            &self.reason_lines(|node, state| lacks_pod(state) && !loses.contains(node)),
        )?;
        for note in &self.after.notes {
            write_labelled(f, "note", core::slice::from_ref(note))?;
        }
        let words =
            "Nothing was changed. Assumes that every new pod becomes available and nothing else changes.";
        f.write_str("\n")?;
        write_wrapped(f, 0, words)
    }
}

/// Whether a node in this state has no pod of the DaemonSet.
fn lacks_pod(state: NodeSummary) -> bool {
    matches!(state, NodeSummary::Excluded | NodeSummary::Missing)
}

impl RolloutPreview {
    /// Returns the number of nodes whose pod is replaced: those that are in a batch and not in `keeps`.
    pub fn replaced_node_count(&self) -> usize {
        let keeps: BTreeSet<&Text> = self.keeps.iter().collect();
        self.batches.iter().flat_map(|it| &it.nodes).filter(|it| !keeps.contains(it)).count()
    }

    /// Returns the number of nodes that have a pod neither before nor after the rollout.
    pub fn nodes_without_pod_count(&self) -> usize {
        let without = self.after.nodes.iter().filter(|it| lacks_pod(it.explained.state)).count();
        without.saturating_sub(self.loses.len())
    }

    /// Returns the line with the number of nodes that gain, lose, replace or keep their pod.
    fn counts_line(&self) -> String {
        format!(
            "{}: {} gain a pod, {} lose it, {} get a new one, {} keep theirs, {} without",
            pluralize(self.after.node_count(), "node"),
            self.gains.len(),
            self.loses.len(),
            self.replaced_node_count(),
            self.keeps.len(),
            self.nodes_without_pod_count()
        )
    }

    /// Returns one line for each reason, such as `3 nodes: taint gpu=yes:NoSchedule is not tolerated: n1, n2, n3`.
    /// `is_asked` selects the nodes by name and by state after the rollout.
    fn reason_lines(&self, is_asked: impl Fn(&Text, NodeSummary) -> bool) -> Vec<String> {
        let groups = self.after.groups().into_iter().filter_map(|group| {
            let nodes =
                group.nodes.iter().map(|it| &it.explained.node).filter(|it| is_asked(it, group.state));
            let nodes: Vec<&str> = nodes.map(Text::as_ref).collect();
            let count = pluralize(nodes.len(), "node");
            (!nodes.is_empty())
                .then(|| format!("{count}: {}: {}", group.message, format_names(nodes, SHORTENED_NAMES)))
        });
        groups.collect()
    }

    /// Returns the lines about the order of the rollout: the number of batches, the minimum duration, and the nodes of
    /// the first [`BATCHES_MAX`] batches.
    fn rollout_order_lines(&self) -> Vec<String> {
        let (strategy, share) = crate::explain::strategy_name_and_limit(self.after.rollout.strategy);
        let within = share.map_or(String::new(), |share| format!(", {strategy} {share}"));
        let takes = if self.at_least.is_zero() {
            String::new()
        } else if let Some(policy) = &self.policy {
            format!(", policy {policy}: {} at least", format_duration(self.at_least))
        } else {
            format!(
                ", minReadySeconds {}: {} at least",
                self.set.min_ready.as_secs(),
                format_duration(self.at_least)
            )
        };
        let batches = match self.batches.len() {
            1 => "1 batch".to_string(),
            count => format!("{count} batches"),
        };
        let mut words = Vec::new();
        let nodes = self.batches.iter().map(|it| it.nodes.len()).sum();
        words.push(format!("{} in {batches}{within}{takes}", pluralize(nodes, "node")));
        let width = self.batches.len().to_string().len();
        for (at, batch) in (1..).zip(&self.batches).take(BATCHES_MAX) {
            let nodes = format_names(batch.nodes.iter().map(Text::as_ref), SHORTENED_NAMES);
            let count = match batch.nodes.len() {
                count if count <= SHORTENED_NAMES + 1 => String::new(),
                count => format!("{count} nodes: "),
            };
            let step = batch.step.as_ref().map_or(String::new(), |it| format!(" (step {it})"));
            words.push(format!("{at:width$}. {count}{nodes}{step}"));
        }
        let more = self.batches.len().saturating_sub(BATCHES_MAX);
        if 0 < more {
            words.push(format!("and {more} more"));
        }
        words
    }
}

/// Formats the change for the first line of the preview.
impl fmt::Display for RevisionChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create => f.write_str("new"),
            Self::Nothing => f.write_str("no change"),
            Self::NoRestart => f.write_str("a change that replaces no pod"),
            Self::NewRevision { number } => write!(f, "new revision {number}"),
            Self::Rollback { old_number, new_number } => {
                write!(f, "rollback to revision {old_number}, which becomes revision {new_number}")
            }
        }
    }
}
