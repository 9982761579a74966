//! How fast pods are sent off, zone by zone: where many nodes fail at once, it is rather the network between them and us.
//! Upstream: `handleDisruption`, `ComputeZoneState`.

use alloc::collections::{BTreeMap, BTreeSet};
use core::time::Duration;

use muster_api::text::Text;
use muster_api::time::Time;

use super::Settings;
use super::decode::Node;
use super::taints::{self, SendOff};
use crate::daemonset::facts::Truth;

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Zones {
    zones: BTreeMap<Text, Zone>,
    /// Zones with a node that is ready.
    standing: usize,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Zone {
    ready: usize,
    not_ready: usize,
    /// Nodes whose pods are to be sent off, and since when.
    waiting: BTreeMap<Text, Time>,
    /// Those among them whose turn has not come: who has waited longest is first.
    queue: BTreeSet<(Time, Text)>,
    turned_at: Option<Time>,
}

impl Zone {
    fn is_empty(&self) -> bool {
        self.ready == 0 && self.not_ready == 0 && self.waiting.is_empty()
    }
}

impl Zones {
    /// A node has come or gone or changed.
    pub(super) fn change(&mut self, before: Option<&Node>, after: Option<&Node>, now: Time) {
        if let Some(node) = before {
            self.count(node, |count| *count = count.saturating_sub(1));
            let moved = after.is_none_or(|it| it.zone != node.zone || !taints::waits(it));
            if let Some(zone) = self.zones.get_mut(&node.zone).filter(|_| moved)
                && let Some(since) = zone.waiting.remove(&node.name)
            {
                zone.queue.remove(&(since, node.name.clone()));
            }
        }
        if let Some(node) = after {
            self.count(node, |count| *count += 1);
            if taints::waits(node) {
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

    fn count(&mut self, node: &Node, add: impl FnOnce(&mut usize)) {
        if node.excluded {
            return;
        }
        let zone = self.zones.entry(node.zone.clone()).or_default();
        let stood = usize::from(0 < zone.ready);
        add(if node.ready() == Some(Truth::True) { &mut zone.ready } else { &mut zone.not_ready });
        self.standing = self.standing + usize::from(0 < zone.ready) - stood;
    }

    /// Rule: when no node of any zone is ready, pods are sent off no node, and those that were on their way stay: there is
    /// none that they could go to. Upstream: `FullDisruption` of all zones.
    pub(super) fn are_all_down(&self) -> bool {
        self.standing == 0 && self.zones.values().any(|it| 0 < it.not_ready)
    }

    /// What does not depend on the order in which nodes came.
    #[cfg(test)]
    pub(super) fn digest(&self) -> alloc::string::String {
        let of = |zone: &Zone| alloc::format!("{} {} {:?}", zone.ready, zone.not_ready, zone.waiting.keys());
        let zones: BTreeMap<_, _> = self.zones.iter().map(|(name, it)| (name, of(it))).collect();
        alloc::format!("{} {zones:#?}", self.standing)
    }

    /// Nobody's turn has come: all wait anew.
    pub(super) fn recall(&mut self) {
        for zone in self.zones.values_mut() {
            zone.queue = zone.waiting.iter().map(|(name, since)| (*since, name.clone())).collect();
        }
    }

    pub(super) fn send_off(&self, node: &Node) -> SendOff {
        if self.are_all_down() {
            return SendOff::Never;
        }
        let zone = self.zones.get(&node.zone);
        let since = zone.and_then(|it| it.waiting.get(&node.name));
        match (zone, since) {
            (Some(zone), Some(since)) if !zone.queue.contains(&(*since, node.name.clone())) => SendOff::Now,
            _ => SendOff::Later,
        }
    }

    /// Whose turn it is in a zone, if it is anyone's; and when it may be the next one's. A node that was in trouble before
    /// we listened has its grace to show that it is well.
    pub(super) fn turn(
        &mut self,
        zone: &Text,
        settings: &Settings,
        listening: Time,
        now: Time,
    ) -> (Option<Text>, Option<Time>) {
        let all_down = self.are_all_down();
        let Some(zone) = self.zones.get_mut(zone).filter(|it| !it.queue.is_empty() && !all_down) else {
            return (None, None);
        };
        let Some(pace) = pace(zone, settings) else { return (None, None) };
        // A clock that was set back must not make the wait longer.
        let mut next_at = zone.turned_at.map_or(now, |it| it.min(now) + pace);
        let trusted_at = listening + settings.grace;
        let first = if now < trusted_at {
            let after = listening + Duration::from_micros(1);
            zone.queue.range((after, Text::from(""))..).next().cloned()
        } else {
            zone.queue.first().cloned()
        };
        if first.is_none() {
            next_at = next_at.max(trusted_at);
        }
        if now < next_at {
            return (None, Some(next_at));
        }
        if let Some(first) = &first {
            zone.turned_at = Some(now);
            zone.queue.remove(first);
        }
        (first.map(|(_, name)| name), (!zone.queue.is_empty()).then_some(now + pace))
    }
}

/// Rule: in each zone one node after the other, ten seconds apart, sends off its pods. Where more than two nodes and 55 % of
/// a zone are not ready, they are a hundred seconds apart; and none does in a zone of up to fifty nodes. A zone that is
/// down as a whole goes on as usual, for there are others to go to. Upstream: `setLimiterInZone`.
fn pace(zone: &Zone, settings: &Settings) -> Option<Duration> {
    let size = zone.ready + zone.not_ready;
    let is_partly_down = 0 < zone.ready
        && 2 < zone.not_ready
        && size.saturating_mul(settings.unhealthy_zone_percent) <= zone.not_ready.saturating_mul(100);
    if !is_partly_down {
        Some(settings.send_off_every)
    } else if settings.large_zone < size {
        Some(settings.send_off_every_if_partly_down)
    } else {
        None
    }
}
