//! Eviction of pods from a node under resource pressure. This module decides when there is pressure, which pod is
//! evicted, and with which message.
//!
//! Upstream: `pkg/kubelet/eviction`. Unlike upstream, daemon pods are evicted last, because they would be created again
//! at once. The eviction of a pod that exceeds its own ephemeral storage limits is in [`storage_limits`].

/// Eviction of pods that exceed their own ephemeral storage limits.
mod storage_limits;

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::fmt;
use core::time::Duration;

use muster_api::quantity::Quantity;
use muster_api::text::Text;
use muster_api::time::Time;
use muster_api::well_known::{
    NODE_DISK_PRESSURE, NODE_MEMORY_PRESSURE, NODE_PID_PRESSURE, SYSTEM_CRITICAL_PRIORITY,
};

pub use self::storage_limits::{PodStorage, StorageLimit, StorageUsage, exceeded_limit};
use crate::kubelet::node_status::Pressures;

/// Reason in the status of an evicted pod.
pub const EVICTED_REASON: &str = "Evicted";

/// Default time for which a pressure condition stays True after the pressure was last observed. Without this delay, the
/// condition of a node whose usage oscillates around a threshold would change all the time. Upstream:
/// `eviction-pressure-transition-period`.
pub const PRESSURE_TRANSITION_PERIOD: Duration = Duration::from_secs(300);

/// An eviction signal: a measured amount, such as available memory, that the node compares with thresholds. Upstream:
/// `evictionapi.Signal`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Signal {
    /// Available memory. It is the first variant, because memory pressure is the most urgent.
    MemoryAvailable,
    NodefsAvailable,
    NodefsInodesFree,
    ImagefsAvailable,
    ImagefsInodesFree,
    PidAvailable,
}

impl Signal {
    /// All eviction signals, in the order of the variants.
    pub const ALL: [Self; 6] = [
        Self::MemoryAvailable,
        Self::NodefsAvailable,
        Self::NodefsInodesFree,
        Self::ImagefsAvailable,
        Self::ImagefsInodesFree,
        Self::PidAvailable,
    ];

    /// Returns the name of the signal, as in the flags that set thresholds.
    pub fn name(self) -> &'static str {
        match self {
            Self::MemoryAvailable => "memory.available",
            Self::NodefsAvailable => "nodefs.available",
            Self::NodefsInodesFree => "nodefs.inodesFree",
            Self::ImagefsAvailable => "imagefs.available",
            Self::ImagefsInodesFree => "imagefs.inodesFree",
            Self::PidAvailable => "pid.available",
        }
    }

    /// Returns the resource that the signal measures.
    pub fn resource(self) -> EvictionResource {
        match self {
            Self::MemoryAvailable => EvictionResource::Memory,
            Self::NodefsAvailable | Self::ImagefsAvailable => EvictionResource::EphemeralStorage,
            Self::NodefsInodesFree | Self::ImagefsInodesFree => EvictionResource::Inodes,
            Self::PidAvailable => EvictionResource::Pids,
        }
    }
}

/// The resource that an eviction signal measures.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum EvictionResource {
    Memory,
    EphemeralStorage,
    Inodes,
    Pids,
}

impl EvictionResource {
    /// Whether the resource is on a disk, so that removing dead containers and unused images frees it.
    pub fn is_on_disk(self) -> bool {
        matches!(self, Self::EphemeralStorage | Self::Inodes)
    }

    /// Converts an amount of this resource, in bytes or as a count, to a quantity for messages.
    fn to_quantity(self, count: i64) -> Quantity {
        match self {
            Self::Memory | Self::EphemeralStorage => Quantity::from_bytes(count),
            Self::Inodes | Self::Pids => Quantity::from_units(count),
        }
    }
}

impl fmt::Display for EvictionResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Memory => "memory",
            Self::EphemeralStorage => "ephemeral-storage",
            Self::Inodes => "inodes",
            Self::Pids => "pids",
        })
    }
}

/// The value of an eviction threshold or of a minimum reclaim: an amount of a resource that must be available.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ThresholdValue {
    /// An absolute amount of the resource.
    Quantity(Quantity),
    /// A fraction of the resource's capacity, in thousandths.
    CapacityThousandths(u32),
}

impl ThresholdValue {
    /// Returns the amount that must be available if the resource has this capacity.
    fn required_amount(self, capacity: i64) -> i64 {
        match self {
            Self::Quantity(amount) => i64::try_from(amount.units()).unwrap_or(i64::MAX),
            Self::CapacityThousandths(thousandths) => {
                i64::try_from(i128::from(capacity) * i128::from(thousandths) / 1000).unwrap_or(i64::MAX)
            }
        }
    }
}

/// The eviction thresholds of a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Thresholds {
    /// Hard thresholds. When one is crossed, pods are evicted at once.
    hard: BTreeMap<Signal, ThresholdValue>,
    /// Soft thresholds, each with its grace period. When one has been crossed for its grace period, pods are evicted.
    soft: BTreeMap<Signal, (ThresholdValue, Duration)>,
    /// Minimum reclaim: amount that must be available in addition to the threshold after an eviction, so that the
    /// threshold is not crossed again at once. Upstream: `eviction-minimum-reclaim`.
    reclaim: BTreeMap<Signal, ThresholdValue>,
}

/// The default hard thresholds of the kubelet; no soft thresholds and no minimum reclaim.
impl Default for Thresholds {
    fn default() -> Self {
        let hard = BTreeMap::from([
            (Signal::MemoryAvailable, ThresholdValue::Quantity(Quantity::from_bytes(100 << 20))),
            (Signal::NodefsAvailable, ThresholdValue::CapacityThousandths(100)),
            (Signal::NodefsInodesFree, ThresholdValue::CapacityThousandths(50)),
            (Signal::ImagefsAvailable, ThresholdValue::CapacityThousandths(150)),
            (Signal::ImagefsInodesFree, ThresholdValue::CapacityThousandths(50)),
        ]);
        Self { hard, soft: BTreeMap::new(), reclaim: BTreeMap::new() }
    }
}

impl Thresholds {
    /// Sets the hard thresholds that `text` lists, for example `memory.available<100Mi,nodefs.available<10%`. Signals
    /// that `text` does not list keep their thresholds. As upstream, 0% or 100% removes a threshold. The error is a
    /// message for the user.
    pub fn with_hard_thresholds(mut self, text: &str) -> Result<Self, String> {
        for (signal, least) in parse_thresholds(text, '<')? {
            match least {
                ThresholdValue::CapacityThousandths(0 | 1000) => self.hard.remove(&signal),
                least => self.hard.insert(signal, least),
            };
        }
        Ok(self)
    }

    /// Sets the soft thresholds that `text` lists, for example `memory.available<300Mi`. `graces` are the grace
    /// periods, each with the name of its signal. As upstream, a threshold of 0% or 100% is ignored. The error is a
    /// message for the user.
    ///
    /// Rule: a soft threshold evicts pods after it has been crossed for its grace period. Each soft threshold must have
    /// a grace period, and each grace period a soft threshold.
    pub fn with_soft_thresholds(mut self, text: &str, graces: &[(String, Duration)]) -> Result<Self, String> {
        let graces: BTreeMap<Signal, Duration> = graces
            .iter()
            .map(|(name, grace)| Ok((parse_signal(name)?, *grace)))
            .collect::<Result<_, String>>()?;
        for (signal, least) in parse_thresholds(text, '<')? {
            if matches!(least, ThresholdValue::CapacityThousandths(0 | 1000)) {
                continue;
            }
            let name = signal.name();
            let grace = graces.get(&signal).ok_or_else(|| {
                format!("{name} has a soft threshold, but no grace period: add {name}=1m to --eviction-soft-grace-period")
            })?;
            self.soft.insert(signal, (least, *grace));
        }
        match graces.keys().find(|it| !self.soft.contains_key(it)) {
            Some(signal) => Err(format!(
                "{name} has a grace period, but no soft threshold: add {name}<AMOUNT to --eviction-soft",
                name = signal.name()
            )),
            None => Ok(self),
        }
    }

    /// Sets the minimum reclaim of each signal that `text` lists, for example `memory.available=200Mi`. The error is a
    /// message for the user.
    pub fn with_minimum_reclaim(mut self, text: &str) -> Result<Self, String> {
        self.reclaim.extend(parse_thresholds(text, '=')?);
        Ok(self)
    }

    /// Returns the amount of a resource that must stay available because of the hard threshold of `signal`; 0 if the
    /// signal has none. This amount is not allocatable to pods. `capacity` is the total amount of the resource.
    pub fn reserved_amount(&self, signal: Signal, capacity: i64) -> i64 {
        self.hard.get(&signal).map_or(0, |it| it.required_amount(capacity))
    }

    /// Returns all thresholds with their grace periods, in order of urgency: hard thresholds, whose grace period is
    /// zero, first.
    fn all_thresholds(&self) -> impl Iterator<Item = (ThresholdKey, ThresholdValue, Duration)> {
        let hard = self.hard.iter().map(|(signal, least)| ((false, *signal), *least, Duration::ZERO));
        let soft = self.soft.iter().map(|(signal, (least, grace))| ((true, *signal), *least, *grace));
        hard.chain(soft)
    }
}

/// Key of a threshold: whether it is a soft threshold, and its signal.
type ThresholdKey = (bool, Signal);

/// Parses a list of thresholds, for example `memory.available<100Mi,nodefs.available<10%`. `sign` or `=` separates
/// signal and value. The error is a message for the user.
fn parse_thresholds(text: &str, sign: char) -> Result<Vec<(Signal, ThresholdValue)>, String> {
    let parts = text.split(',').map(str::trim).filter(|it| !it.is_empty());
    parts.map(|it| parse_threshold(it, sign)).collect()
}

/// Parses one threshold, for example `memory.available<100Mi`. `sign` or `=` separates signal and value. The error is a
/// message for the user.
fn parse_threshold(part: &str, sign: char) -> Result<(Signal, ThresholdValue), String> {
    let (name, least) = part
        .split_once(sign)
        .or_else(|| part.split_once('='))
        .ok_or_else(|| format!("{part:?} is not a threshold: write it as memory.available{sign}100Mi"))?;
    let signal = parse_signal(name.trim())?;
    let least = least.trim();
    let read = match least.strip_suffix('%') {
        Some(percent) => parse_percentage(percent)
            .ok_or_else(|| format!("{least:?} of {name} is not a percentage: write it as 10%"))?,
        None => match Quantity::parse(least) {
            Ok(amount) if !amount.is_negative() => ThresholdValue::Quantity(amount),
            Ok(_) => return Err(format!("{least:?} of {name} is negative")),
            Err(error) => return Err(format!("{least:?} of {name}: {error}")),
        },
    };
    Ok((signal, read))
}

/// Parses the name of an eviction signal. The error is a message for the user.
fn parse_signal(name: &str) -> Result<Signal, String> {
    Signal::ALL.into_iter().find(|it| it.name() == name).ok_or_else(|| {
        let known: Vec<_> = Signal::ALL.iter().map(|it| it.name()).collect();
        format!("{name:?} is not an eviction signal: use one of {}", known.join(", "))
    })
}

/// Parses a percentage that was written without the sign `%`. `None` if it is not a number from 0 to 100.
fn parse_percentage(percent: &str) -> Option<ThresholdValue> {
    let thousandths = Quantity::parse(percent).ok()?.millis().checked_div(100)?;
    u32::try_from(thousandths).ok().filter(|it| *it <= 1000).map(ThresholdValue::CapacityThousandths)
}

/// The measured value of an eviction signal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SignalObservation {
    /// Amount of the resource that is available now: bytes, inodes or PIDs.
    pub available: i64,
    /// Total amount of the resource, in the unit of `available`.
    pub capacity: i64,
}

/// The measured value of each eviction signal. A signal that could not be measured is absent.
pub type SignalObservations = BTreeMap<Signal, SignalObservation>;

/// A threshold for which a pod is to be evicted: it is crossed and its grace period has ended. A threshold becomes
/// crossed when less of the resource is available than its value. Before its grace period has ended, it stops being
/// crossed when its value is available. After that, it stops only when its value plus the minimum reclaim is available.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CrossedThreshold {
    pub signal: Signal,
    /// Value of the threshold, without the minimum reclaim.
    pub threshold: i64,
    /// Amount of the resource that is available.
    pub available: i64,
    /// Whether this is a soft threshold, whose grace period has ended.
    pub is_soft: bool,
}

impl CrossedThreshold {
    /// Returns the resource that is short.
    pub fn resource(self) -> EvictionResource {
        self.signal.resource()
    }

    /// Returns the grace period of a pod that is evicted for this threshold. `own` is the grace period in the pod's
    /// spec. `longest` is the node's `eviction-max-pod-grace-period`.
    ///
    /// Rule: for a hard threshold the grace period of the evicted pod is one second. For a soft threshold it is the
    /// pod's own grace period, but at most the `eviction-max-pod-grace-period` of the node, and at least one second.
    pub fn pod_grace_period(self, own: Duration, longest: Duration) -> Duration {
        if self.is_soft {
            own.min(longest).max(HARD_EVICTION_GRACE_PERIOD)
        } else {
            HARD_EVICTION_GRACE_PERIOD
        }
    }
}

/// Grace period of a pod that is evicted for a hard threshold, and minimum grace period for a soft threshold. Upstream:
/// `immediateEvictionGracePeriodSeconds`.
pub const HARD_EVICTION_GRACE_PERIOD: Duration = Duration::from_secs(1);

/// Tracks which thresholds are crossed, and when each kind of pressure was last observed.
#[derive(Clone, Debug)]
pub struct ThresholdMonitor {
    thresholds: Thresholds,
    /// Time for which a pressure condition stays True after the pressure was last observed.
    pressure_transition_period: Duration,
    /// The crossed thresholds. The first value is the time at which the threshold was crossed. The second value is
    /// whether its grace period has ended, so that pods are evicted for it. If so, the threshold stays crossed until
    /// its value plus the minimum reclaim is available.
    crossed: BTreeMap<ThresholdKey, (Time, bool)>,
    /// Time at which memory pressure was last observed. `None` if it was never observed.
    memory: Option<Time>,
    /// Time at which disk pressure was last observed. `None` if it was never observed.
    disk: Option<Time>,
    /// Time at which PID pressure was last observed. `None` if it was never observed.
    pids: Option<Time>,
}

impl ThresholdMonitor {
    /// Creates a monitor of these thresholds, none of which is crossed yet.
    pub fn new(thresholds: Thresholds, pressure_transition_period: Duration) -> Self {
        Self {
            thresholds,
            pressure_transition_period,
            crossed: BTreeMap::new(),
            memory: None,
            disk: None,
            pids: None,
        }
    }

    /// Applies the measured values. Returns the pressure conditions, and the most urgent crossed threshold whose grace
    /// period has ended: a pod is to be evicted for it. The threshold is `None` if no pod is to be evicted.
    ///
    /// Rule: a threshold is crossed while less than its value is available. Once pods are evicted for it, it stays
    /// crossed until the minimum reclaim is available too. A signal that could not be measured crosses no threshold.
    ///
    /// A pressure condition stays True for the pressure transition period after the pressure was last observed. A soft
    /// threshold sets the pressure condition as soon as it is crossed, but is returned only when its grace period has
    /// ended. Only the most urgent threshold is returned, because an eviction for it may free enough for the other
    /// thresholds too.
    pub fn observe(
        &mut self,
        measures: &SignalObservations,
        now: Time,
    ) -> (Pressures, Option<CrossedThreshold>) {
        let mut still_crossed = BTreeMap::new();
        let mut due = None;
        for (name @ (is_soft, signal), least, grace) in self.thresholds.all_thresholds() {
            let Some(measure) = measures.get(&signal) else { continue };
            let least = least.required_amount(measure.capacity);
            let (since, has_evicted) = self.crossed.get(&name).copied().unwrap_or((now, false));
            let more = self.thresholds.reclaim.get(&signal).filter(|_| has_evicted);
            let required = least.saturating_add(more.map_or(0, |it| it.required_amount(measure.capacity)));
            if required <= measure.available {
                continue;
            }
            let is_due = grace <= now.since(since);
            still_crossed.insert(name, (since, has_evicted || is_due));
            if is_due && due.is_none() {
                due = Some(CrossedThreshold {
                    signal,
                    threshold: least,
                    available: measure.available,
                    is_soft,
                });
            }
            *match signal.resource() {
                EvictionResource::Memory => &mut self.memory,
                EvictionResource::EphemeralStorage | EvictionResource::Inodes => &mut self.disk,
                EvictionResource::Pids => &mut self.pids,
            } = Some(now);
        }
        self.crossed = still_crossed;
        let lasts = |seen: Option<Time>| {
            seen.is_some_and(|it| now < it + self.pressure_transition_period || now == it)
        };
        let pressures =
            Pressures { memory: lasts(self.memory), disk: lasts(self.disk), pids: lasts(self.pids) };
        (pressures, due)
    }
}

/// A pod that may be evicted: the fields by which pods are ranked, and the usage of its containers for the eviction
/// message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EvictionCandidate {
    pub uid: Text,
    pub priority: i32,
    /// Whether the pod is a static pod or a mirror pod.
    pub is_static: bool,
    /// Whether a DaemonSet owns the pod.
    pub is_daemon: bool,
    /// Amount of the resource under pressure that the pod requests. Zero if it requests none.
    pub request: i64,
    /// The pod's usage of the resource under pressure, including its volumes. `None` if the usage is unknown. An
    /// unknown usage ranks above every known usage.
    pub usage: Option<i64>,
    /// Requests and usage of the pod's containers, for the eviction message.
    pub containers: Vec<ContainerUsage>,
}

/// Request and usage of a container, for the eviction message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ContainerUsage {
    pub name: Text,
    /// Amount of the resource under pressure that the container requests. Zero if it requests none.
    pub request: i64,
    /// The container's usage of the resource under pressure. `None` if it is unknown.
    pub usage: Option<i64>,
}

/// Chooses the pod to evict for a crossed threshold. `None` if no pod may be evicted.
///
/// Rule: the pods are ordered by these criteria: pods that use more than they request come before others, then pods of
/// lower priority, then pods with more usage above their request. The first pod is evicted. Daemon pods come after all
/// other pods. Static and critical pods are never evicted. For PIDs, which cannot be requested, the first criterion is
/// left out. Upstream: `rankMemoryPressure`, `rankDiskPressureFunc`, `rankPIDPressure`.
pub fn choose_pod_to_evict(
    shortage: CrossedThreshold,
    candidates: &[EvictionCandidate],
) -> Option<&EvictionCandidate> {
    let is_evictable = |it: &&EvictionCandidate| !it.is_static && it.priority < SYSTEM_CRITICAL_PRIORITY;
    let order = |it: &&EvictionCandidate| {
        let excess = it.usage.map_or(i64::MAX, |usage| usage.saturating_sub(it.request));
        let exceeds = shortage.resource() != EvictionResource::Pids && 0 < excess;
        (it.is_daemon, !exceeds, it.priority, Reverse(excess), it.uid.clone())
    };
    candidates.iter().filter(is_evictable).min_by_key(order)
}

/// Returns the message in the status of an evicted pod. Upstream: `evictionMessage`.
pub fn eviction_message(shortage: CrossedThreshold, pod: &EvictionCandidate) -> String {
    let resource = shortage.resource();
    let amount = |count| resource.to_quantity(count);
    let mut message = format!(
        "The node was low on resource: {resource}. Threshold quantity: {}, available: {}. ",
        amount(shortage.threshold),
        amount(shortage.available)
    );
    if matches!(resource, EvictionResource::Memory | EvictionResource::EphemeralStorage) {
        for ContainerUsage { name, request, usage } in &pod.containers {
            if let Some(usage) = usage.filter(|it| request < it) {
                message += &format!(
                    "Container {name} was using {}, request is {}, has larger consumption of {resource}. ",
                    amount(usage),
                    amount(*request)
                );
            }
        }
    }
    message
}

/// Checks whether a node with these pressure conditions admits a pod with these properties. The error is the message of
/// the rejection.
///
/// Rule: a node under pressure admits critical pods only. If memory is the only pressure, the node also admits pods
/// that are not BestEffort, and pods that tolerate the taint of memory pressure. Upstream: the eviction manager's
/// `Admit`.
pub fn admit(
    pressures: Pressures,
    is_critical: bool,
    is_best_effort: bool,
    tolerates_memory_pressure: bool,
) -> Result<(), String> {
    if pressures.is_none() || is_critical {
        return Ok(());
    }
    let only_memory = pressures.memory && !pressures.disk && !pressures.pids;
    if only_memory && (!is_best_effort || tolerates_memory_pressure) {
        return Ok(());
    }
    let named = [
        (pressures.memory, NODE_MEMORY_PRESSURE),
        (pressures.disk, NODE_DISK_PRESSURE),
        (pressures.pids, NODE_PID_PRESSURE),
    ];
    let named: Vec<&str> = named.iter().filter(|(holds, _)| *holds).map(|(_, name)| *name).collect();
    Err(format!("The node had condition: [{}]. ", named.join(" ")))
}

#[cfg(test)]
mod tests;
