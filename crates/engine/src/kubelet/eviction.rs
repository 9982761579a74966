//! A node that runs short of something: when it is short, which pod goes, and what that pod is told.
//!
//! Upstream: `pkg/kubelet/eviction`. Pods of a DaemonSet go last, which upstream does not do: they would be back at once.
//! What a pod may take by its own word is in `limits`.

mod limits;

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

pub use self::limits::{Limit, Limited, Storage, over_its_limit};
use crate::kubelet::node_status::Pressures;

/// Why an evicted pod failed.
pub const REASON: &str = "Evicted";

/// Pods from this priority on keep the node itself running. Upstream: `SystemCriticalPriority`.
pub const CRITICAL: i32 = 2_000_000_000;

/// A pressure is over when it was not seen for so long: a node that goes to and fro would get and lose pods all the time.
pub const PRESSURE_MIN: Duration = Duration::from_secs(300);

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Signal {
    /// First, for what is short of memory cannot wait.
    MemoryAvailable,
    NodefsAvailable,
    NodefsInodesFree,
    ImagefsAvailable,
    ImagefsInodesFree,
    PidAvailable,
}

impl Signal {
    pub const ALL: [Self; 6] = [
        Self::MemoryAvailable,
        Self::NodefsAvailable,
        Self::NodefsInodesFree,
        Self::ImagefsAvailable,
        Self::ImagefsInodesFree,
        Self::PidAvailable,
    ];

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

    pub fn resource(self) -> Resource {
        match self {
            Self::MemoryAvailable => Resource::Memory,
            Self::NodefsAvailable | Self::ImagefsAvailable => Resource::EphemeralStorage,
            Self::NodefsInodesFree | Self::ImagefsInodesFree => Resource::Inodes,
            Self::PidAvailable => Resource::Pids,
        }
    }
}

/// What there is too little of, and what pods take of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Resource {
    Memory,
    EphemeralStorage,
    Inodes,
    Pids,
}

impl Resource {
    /// Whether dead containers and unused images take some of it.
    pub fn is_of_disks(self) -> bool {
        matches!(self, Self::EphemeralStorage | Self::Inodes)
    }

    fn amount(self, count: i64) -> Quantity {
        match self {
            Self::Memory | Self::EphemeralStorage => Quantity::from_bytes(count),
            Self::Inodes | Self::Pids => Quantity::from_units(count),
        }
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Memory => "memory",
            Self::EphemeralStorage => "ephemeral-storage",
            Self::Inodes => "inodes",
            Self::Pids => "pids",
        })
    }
}

/// How much must be left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Least {
    Of(Quantity),
    /// A share of what there is, in thousandths.
    Share(u32),
}

impl Least {
    fn of(self, capacity: i64) -> i64 {
        match self {
            Self::Of(amount) => i64::try_from(amount.units()).unwrap_or(i64::MAX),
            Self::Share(thousandths) => {
                i64::try_from(i128::from(capacity) * i128::from(thousandths) / 1000).unwrap_or(i64::MAX)
            }
        }
    }
}

/// What must be left of everything that is measured.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Thresholds {
    hard: BTreeMap<Signal, Least>,
    /// What may be missing for a while.
    soft: BTreeMap<Signal, (Least, Duration)>,
    /// How much more than its threshold must be left of what was short, before it no longer is.
    reclaim: BTreeMap<Signal, Least>,
}

/// A kubelet's.
impl Default for Thresholds {
    fn default() -> Self {
        let hard = BTreeMap::from([
            (Signal::MemoryAvailable, Least::Of(Quantity::from_bytes(100 << 20))),
            (Signal::NodefsAvailable, Least::Share(100)),
            (Signal::NodefsInodesFree, Least::Share(50)),
            (Signal::ImagefsAvailable, Least::Share(150)),
            (Signal::ImagefsInodesFree, Least::Share(50)),
        ]);
        Self { hard, soft: BTreeMap::new(), reclaim: BTreeMap::new() }
    }
}

impl Thresholds {
    /// Reads `memory.available<100Mi,nodefs.available<10%` over what is there: what is not named stays, and a share of
    /// none or of all takes the signal out, as upstream reads it.
    pub fn with_hard(mut self, text: &str) -> Result<Self, String> {
        for (signal, least) in amounts(text, '<')? {
            match least {
                Least::Share(0 | 1000) => self.hard.remove(&signal),
                least => self.hard.insert(signal, least),
            };
        }
        Ok(self)
    }

    /// Rule: what is short by a soft threshold may be so for the time that is given with it, and each has one.
    pub fn with_soft(mut self, text: &str, graces: &[(String, Duration)]) -> Result<Self, String> {
        let graces: BTreeMap<Signal, Duration> =
            graces.iter().map(|(name, grace)| Ok((signal(name)?, *grace))).collect::<Result<_, String>>()?;
        for (signal, least) in amounts(text, '<')? {
            if matches!(least, Least::Share(0 | 1000)) {
                continue;
            }
            let name = signal.name();
            let grace = graces.get(&signal).ok_or_else(|| {
                format!("it is not said for how long {name} may be short: add {name}=1m to --eviction-soft-grace-period")
            })?;
            self.soft.insert(signal, (least, *grace));
        }
        match graces.keys().find(|it| !self.soft.contains_key(it)) {
            Some(signal) => Err(format!(
                "{name} has a grace period, and no threshold: add {name}<AMOUNT to --eviction-soft",
                name = signal.name()
            )),
            None => Ok(self),
        }
    }

    /// Reads `memory.available=200Mi`.
    pub fn with_reclaim(mut self, text: &str) -> Result<Self, String> {
        self.reclaim.extend(amounts(text, '=')?);
        Ok(self)
    }

    /// What pods do not get, for there would be pressure.
    pub fn reserved(&self, signal: Signal, capacity: i64) -> i64 {
        self.hard.get(&signal).map_or(0, |it| it.of(capacity))
    }

    /// All of them, the hard ones first: what is short by them cannot wait.
    fn all(&self) -> impl Iterator<Item = (Name, Least, Duration)> {
        let hard = self.hard.iter().map(|(signal, least)| ((false, *signal), *least, Duration::ZERO));
        let soft = self.soft.iter().map(|(signal, (least, grace))| ((true, *signal), *least, *grace));
        hard.chain(soft)
    }
}

/// What a threshold is known by: whether it is soft, and what it is of.
type Name = (bool, Signal);

/// Reads `memory.available<100Mi,nodefs.available<10%`.
fn amounts(text: &str, sign: char) -> Result<Vec<(Signal, Least)>, String> {
    let parts = text.split(',').map(str::trim).filter(|it| !it.is_empty());
    parts.map(|it| amount(it, sign)).collect()
}

fn amount(part: &str, sign: char) -> Result<(Signal, Least), String> {
    let (name, least) = part
        .split_once(sign)
        .or_else(|| part.split_once('='))
        .ok_or_else(|| format!("{part:?} is no threshold: write it as memory.available{sign}100Mi"))?;
    let signal = signal(name.trim())?;
    let least = least.trim();
    let read = match least.strip_suffix('%') {
        Some(percent) => {
            share(percent).ok_or_else(|| format!("{least:?} of {name} is no share: write it as 10%"))?
        }
        None => match Quantity::parse(least) {
            Ok(amount) if !amount.is_negative() => Least::Of(amount),
            Ok(_) => return Err(format!("{least:?} of {name} is less than nothing")),
            Err(error) => return Err(format!("{least:?} of {name}: {error}")),
        },
    };
    Ok((signal, read))
}

fn signal(name: &str) -> Result<Signal, String> {
    Signal::ALL.into_iter().find(|it| it.name() == name).ok_or_else(|| {
        let known: Vec<_> = Signal::ALL.iter().map(|it| it.name()).collect();
        format!("{name:?} is not measured: it is one of {}", known.join(", "))
    })
}

fn share(percent: &str) -> Option<Least> {
    let thousandths = Quantity::parse(percent).ok()?.millis().checked_div(100)?;
    u32::try_from(thousandths).ok().filter(|it| *it <= 1000).map(Least::Share)
}

/// What was measured of a signal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Measure {
    pub available: i64,
    pub capacity: i64,
}

pub type Measures = BTreeMap<Signal, Measure>;

/// Something is short now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shortage {
    pub signal: Signal,
    pub least: i64,
    pub available: i64,
    /// By a soft threshold, for longer than it may be.
    pub is_soft: bool,
}

impl Shortage {
    pub fn resource(self) -> Resource {
        self.signal.resource()
    }

    /// Rule: what is short by a hard threshold cannot wait, and a container gets the least there is; by a soft one a pod
    /// has its own time, or the longest that the node gives, whichever is shorter.
    pub fn grace(self, own: Duration, longest: Duration) -> Duration {
        if self.is_soft { own.min(longest).max(GRACE_MIN) } else { GRACE_MIN }
    }
}

/// Upstream: `immediateEvictionGracePeriodSeconds`.
pub const GRACE_MIN: Duration = Duration::from_secs(1);

/// What a node is short of, and since when it no longer is.
#[derive(Clone, Debug)]
pub struct Watcher {
    thresholds: Thresholds,
    pressure_min: Duration,
    /// Since when a threshold is not met, and whether it was acted upon: then more must be left than it says.
    short: BTreeMap<Name, (Time, bool)>,
    memory: Option<Time>,
    disk: Option<Time>,
    pids: Option<Time>,
}

impl Watcher {
    pub fn new(thresholds: Thresholds, pressure_min: Duration) -> Self {
        Self { thresholds, pressure_min, short: BTreeMap::new(), memory: None, disk: None, pids: None }
    }

    /// Rule: a node is short of what it has less left of than its threshold says; once pods went for it, until as much more
    /// is left as is to be reclaimed at least. The pressure is said to last until it was not seen for five minutes. What
    /// could not be measured is not short.
    /// The most urgent shortage is answered: what is reclaimed for it may end the others. Of those by soft thresholds it is
    /// said at once that there is pressure, and they are answered when their time is over.
    pub fn see(&mut self, measures: &Measures, now: Time) -> (Pressures, Option<Shortage>) {
        let mut short = BTreeMap::new();
        let mut answered = None;
        for (name @ (is_soft, signal), least, grace) in self.thresholds.all() {
            let Some(measure) = measures.get(&signal) else { continue };
            let least = least.of(measure.capacity);
            let (since, was_answered) = self.short.get(&name).copied().unwrap_or((now, false));
            let more = self.thresholds.reclaim.get(&signal).filter(|_| was_answered);
            let wanted = least.saturating_add(more.map_or(0, |it| it.of(measure.capacity)));
            if wanted <= measure.available {
                continue;
            }
            let is_due = grace <= now.since(since);
            short.insert(name, (since, was_answered || is_due));
            if is_due && answered.is_none() {
                answered = Some(Shortage { signal, least, available: measure.available, is_soft });
            }
            *match signal.resource() {
                Resource::Memory => &mut self.memory,
                Resource::EphemeralStorage | Resource::Inodes => &mut self.disk,
                Resource::Pids => &mut self.pids,
            } = Some(now);
        }
        self.short = short;
        let lasts = |seen: Option<Time>| seen.is_some_and(|it| now < it + self.pressure_min || now == it);
        let pressures =
            Pressures { memory: lasts(self.memory), disk: lasts(self.disk), pids: lasts(self.pids) };
        (pressures, answered)
    }
}

/// A pod that may have to go.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Candidate {
    pub uid: Text,
    pub priority: i32,
    /// From a file on the node, or the mirror of such a one.
    pub is_static: bool,
    /// A DaemonSet made it.
    pub is_daemon: bool,
    /// What the pod asks for and what it takes, volumes and all. Where nobody knows what it takes, it goes first.
    pub request: i64,
    pub usage: Option<i64>,
    pub containers: Vec<Taker>,
}

/// A container, for the message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Taker {
    pub name: Text,
    pub request: i64,
    pub usage: Option<i64>,
}

/// Rule: first goes who takes more than they asked for, of those the least important, of those who takes most beyond what
/// they asked for. Daemon pods go when no other is left; static and critical pods do not go.
/// With PIDs, of which nobody asks for any, importance decides. Upstream: `rankMemoryPressure` and its neighbours.
pub fn first_to_go(shortage: Shortage, candidates: &[Candidate]) -> Option<&Candidate> {
    let may_go = |it: &&Candidate| !it.is_static && it.priority < CRITICAL;
    let order = |it: &&Candidate| {
        let excess = it.usage.map_or(i64::MAX, |usage| usage.saturating_sub(it.request));
        let exceeds = shortage.resource() != Resource::Pids && 0 < excess;
        (it.is_daemon, !exceeds, it.priority, Reverse(excess), it.uid.clone())
    };
    candidates.iter().filter(may_go).min_by_key(order)
}

/// What a pod is told that goes.
pub fn message(shortage: Shortage, pod: &Candidate) -> String {
    let resource = shortage.resource();
    let amount = |count| resource.amount(count);
    let mut message = format!(
        "The node was low on resource: {resource}. Threshold quantity: {}, available: {}. ",
        amount(shortage.least),
        amount(shortage.available)
    );
    if matches!(resource, Resource::Memory | Resource::EphemeralStorage) {
        for Taker { name, request, usage } in &pod.containers {
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

/// Rule: under pressure a node takes no new pods but critical ones; where only memory is short, also those that asked for
/// some, or that tolerate it. Upstream: the eviction manager's `Admit`.
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
        (pressures.memory, "MemoryPressure"),
        (pressures.disk, "DiskPressure"),
        (pressures.pids, "PIDPressure"),
    ];
    let named: Vec<&str> = named.iter().filter(|(holds, _)| *holds).map(|(_, name)| *name).collect();
    Err(format!("The node had condition: [{}]. ", named.join(" ")))
}

#[cfg(test)]
mod tests;
