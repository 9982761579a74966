//! Limits the rate at which nodes are tainted `NoExecute` in each zone. If many nodes fail at once, the likely cause is
//! the network between these nodes and the control plane. The pods on these nodes probably still run, so not all of
//! them should be evicted. Upstream: `handleDisruption`, `ComputeZoneState`.

use alloc::collections::{BTreeMap, BTreeSet};
use core::time::Duration;

use muster_api::core_v1::ConditionStatus;
use muster_api::text::Text;
use muster_api::time::Time;

use super::Config;
use super::decode::Node;
use super::taints::{self, EvictionPermission};

/// The zones of the cluster, by name. They limit how fast unhealthy nodes are tainted `NoExecute`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Zones {
    zones: BTreeMap<Text, Zone>,
    /// Number of zones with at least one ready node.
    zones_with_ready_nodes: usize,
}

/// One zone: counts of its nodes, and its unhealthy nodes that have no `NoExecute` taint yet. Excluded nodes are those
/// with the label `node.kubernetes.io/exclude-disruption`.
#[derive(Debug, Default, PartialEq, Eq)]
struct Zone {
    /// Number of nodes whose condition `Ready` is True. Excluded nodes are not counted.
    ready: usize,
    /// Number of nodes whose condition `Ready` is not True. Excluded nodes are not counted.
    not_ready: usize,
    /// Unhealthy nodes without a `NoExecute` taint, by name, each with the time at which the controller first saw it
    /// unhealthy.
    waiting: BTreeMap<Text, Time>,
    /// The nodes of `waiting` that must not be tainted yet, because nodes are tainted one after the other. The node
    /// that has waited longest is first.
    queue: BTreeSet<(Time, Text)>,
    /// Time at which a node was last removed from `queue`, so that it could be tainted. `None` before the first
    /// removal.
    last_dequeued_at: Option<Time>,
}

impl Zone {
    /// Whether the zone has no counted nodes and no waiting nodes, so that its entry can be removed.
    fn is_empty(&self) -> bool {
        self.ready == 0 && self.not_ready == 0 && self.waiting.is_empty()
    }
}

impl Zones {
    /// Updates the zones after a node was added, changed or deleted.
    pub(super) fn update_node(&mut self, before: Option<&Node>, after: Option<&Node>, now: Time) {
        if let Some(node) = before {
            self.adjust_counts(node, |count| *count = count.saturating_sub(1));
            let moved = after.is_none_or(|it| it.zone != node.zone || !taints::needs_no_execute_taint(it));
            if let Some(zone) = self.zones.get_mut(&node.zone).filter(|_| moved)
                && let Some(since) = zone.waiting.remove(&node.name)
            {
                zone.queue.remove(&(since, node.name.clone()));
            }
        }
        if let Some(node) = after {
            self.adjust_counts(node, |count| *count += 1);
            if taints::needs_no_execute_taint(node) {
                let zone = self.zones.entry(node.zone.clone()).or_default();
                if !zone.waiting.contains_key(&node.name) {
                    zone.waiting.insert(node.name.clone(), now);
                    zone.queue.insert((now, node.name.clone()));
                }
            }
        }
        if let Some(node) = before
            && self.zones.get(&node.zone).is_some_and(Zone::is_empty)
        {
            self.zones.remove(&node.zone);
        }
    }

    /// Applies `adjust` to the number of ready or of not ready nodes in the zone of a node, depending on whether that
    /// node is ready. Excluded nodes are not counted.
    fn adjust_counts(&mut self, node: &Node, adjust: impl FnOnce(&mut usize)) {
        if node.excluded {
            return;
        }
        let zone = self.zones.entry(node.zone.clone()).or_default();
        let had_ready_nodes = usize::from(0 < zone.ready);
        adjust(if node.ready() == Some(ConditionStatus::True) {
            &mut zone.ready
        } else {
            &mut zone.not_ready
        });
        self.zones_with_ready_nodes =
            self.zones_with_ready_nodes + usize::from(0 < zone.ready) - had_ready_nodes;
    }

    /// Whether the cluster has nodes, but none of them is ready. Excluded nodes are not counted.
    ///
    /// Rule: while no node of any zone is ready, no pod is evicted, and `NoExecute` taints of unhealthy nodes are
    /// removed, because the pods could not run elsewhere. Upstream: `FullDisruption` of all zones.
    pub(super) fn are_all_down(&self) -> bool {
        self.zones_with_ready_nodes == 0 && self.zones.values().any(|it| 0 < it.not_ready)
    }

    /// Formats the part of the state that does not depend on the order of events, so that tests can compare it.
    #[cfg(test)]
    pub(super) fn comparable_state(&self) -> alloc::string::String {
        let of = |zone: &Zone| alloc::format!("{} {} {:?}", zone.ready, zone.not_ready, zone.waiting.keys());
        let zones: BTreeMap<_, _> = self.zones.iter().map(|(name, it)| (name, of(it))).collect();
        alloc::format!("{} {zones:#?}", self.zones_with_ready_nodes)
    }

    /// Puts all unhealthy nodes without a `NoExecute` taint back into the queues of their zones, so that each waits
    /// again until it may be tainted.
    pub(super) fn requeue_all(&mut self) {
        for zone in self.zones.values_mut() {
            zone.queue = zone.waiting.iter().map(|(name, since)| (*since, name.clone())).collect();
        }
    }

    /// Returns whether a node may be tainted `NoExecute` now, must wait, or must not be tainted because no node of the
    /// cluster is ready.
    pub(super) fn eviction_permission(&self, node: &Node) -> EvictionPermission {
        if self.are_all_down() {
            return EvictionPermission::Suspended;
        }
        let zone = self.zones.get(&node.zone);
        let since = zone.and_then(|it| it.waiting.get(&node.name));
        match (zone, since) {
            (Some(zone), Some(since)) if !zone.queue.contains(&(*since, node.name.clone())) => {
                EvictionPermission::Now
            }
            _ => EvictionPermission::Waiting,
        }
    }

    /// Removes the next node from the queue of a zone, if a node may be tainted `NoExecute` now. Returns the name of
    /// the removed node, and the time at which to call this function again. The name is `None` if no node was removed.
    /// The time is `None` if no node waits, or if no node may be tainted until the zones change.
    ///
    /// A node that has been unhealthy since before `observed_since` first gets its grace period to send a heartbeat.
    pub(super) fn dequeue_node(
        &mut self,
        zone: &Text,
        config: &Config,
        observed_since: Time,
        now: Time,
    ) -> (Option<Text>, Option<Time>) {
        let all_down = self.are_all_down();
        let Some(zone) = self.zones.get_mut(zone).filter(|it| !it.queue.is_empty() && !all_down) else {
            return (None, None);
        };
        let Some(interval) = eviction_interval(zone, config) else { return (None, None) };
        // A clock that was set back must not make the wait longer.
        let mut next_at = zone.last_dequeued_at.map_or(now, |it| it.min(now) + interval);
        let observed_long_enough_at = observed_since + config.node_monitor_grace_period;
        let first = if now < observed_long_enough_at {
            let after = observed_since + Duration::from_micros(1);
            zone.queue.range((after, Text::from(""))..).next().cloned()
        } else {
            zone.queue.first().cloned()
        };
        if first.is_none() {
            next_at = next_at.max(observed_long_enough_at);
        }
        if now < next_at {
            return (None, Some(next_at));
        }
        if let Some(first) = &first {
            zone.last_dequeued_at = Some(now);
            zone.queue.remove(first);
        }
        (first.map(|(_, name)| name), (!zone.queue.is_empty()).then_some(now + interval))
    }
}

/// Returns the minimum time between adding the `NoExecute` taint to two nodes of a zone. `None` if no node of the zone
/// may be tainted now.
///
/// Rule: in each zone one node is tainted `NoExecute` every ten seconds (this and the other numbers are defaults). A
/// zone is partly down if it has a ready node, but more than two and at least 55 % of its nodes are not ready. Then the
/// interval is a hundred seconds in a zone of more than fifty nodes, and no node is tainted in a smaller zone. A zone
/// without any ready node has the usual interval, because its pods can run in other zones. Upstream:
/// `setLimiterInZone`.
fn eviction_interval(zone: &Zone, config: &Config) -> Option<Duration> {
    let size = zone.ready + zone.not_ready;
    let is_partly_down = 0 < zone.ready
        && 2 < zone.not_ready
        && size.saturating_mul(config.unhealthy_zone_percent) <= zone.not_ready.saturating_mul(100);
    if !is_partly_down {
        Some(config.eviction_interval)
    } else if config.large_zone_threshold < size {
        Some(config.secondary_eviction_interval)
    } else {
        None
    }
}
