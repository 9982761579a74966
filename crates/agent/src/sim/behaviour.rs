//! How simulated nodes and their pods behave, by annotations and by words in the names of images: the whole list.
//!
//! | annotation of a pod | value | what it does |
//! |---|---|---|
//! | `sim.muster.dev/start-delay` | `30s` | so long each container takes to start |
//! | `sim.muster.dev/stop-delay` | `5s`, `never` | so long it takes to stop: it is killed when its grace is over; `never` stays Terminating |
//! | `sim.muster.dev/exit-after` | `10s` | its containers end so long after they started … |
//! | `sim.muster.dev/exit-code` | `1` | … with this code, 0 if none is said |
//! | `sim.muster.dev/exit-reason` | `OOMKilled` | … and this reason |
//! | `sim.muster.dev/never-ready` | `true` | its readiness probes never pass |
//! | `sim.muster.dev/image-missing` | `true` | no registry has its images |
//!
//! | annotation of a node | value | what it does |
//! |---|---|---|
//! | `sim.muster.dev/fail` | [`Trouble`]s, with commas between them | see there |
//! | `sim.muster.dev/start-delay`, `sim.muster.dev/stop-delay` | `30s` | for all its pods that say nothing themselves |
//!
//! A container does the same if its image has one of [`WORDS`] in its name.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use muster_engine::kubelet::pod::Role;

pub const FAIL: &str = "sim.muster.dev/fail";
const START_DELAY: &str = "sim.muster.dev/start-delay";
const STOP_DELAY: &str = "sim.muster.dev/stop-delay";
const EXIT_AFTER: &str = "sim.muster.dev/exit-after";
const EXIT_CODE: &str = "sim.muster.dev/exit-code";
const EXIT_REASON: &str = "sim.muster.dev/exit-reason";
const NEVER_READY: &str = "sim.muster.dev/never-ready";
const IMAGE_MISSING: &str = "sim.muster.dev/image-missing";

/// The nodes that have this label, with the fleet's name, are played by the process that plays the fleet.
pub const FLEET: &str = "sim.muster.dev/fleet";

/// In the name of an image, and what its containers do then.
pub const WORDS: [(&str, &str); 6] = [
    ("non-existent", "no registry has it"),
    ("crash-loop", "ends with code 1 after a second"),
    ("out-of-memory", "is killed for its memory after a second"),
    ("slow-start", "takes half a minute to start"),
    ("never-ready", "its readiness probe never passes"),
    ("hangs", "never stops, and stays Terminating"),
];

const CRASH_AFTER: Duration = Duration::from_secs(1);
const SLOW_START: Duration = Duration::from_secs(30);

/// Killed for its memory, or for taking too long to stop: as a shell says it of signal 9.
pub(super) const KILLED: i32 = 137;

/// Longer than anybody waits, and short enough to be added to any time.
const SPAN_MAX: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// What can be wrong with a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trouble {
    /// Ready is False, and nothing is started or stopped.
    NotReady,
    MemoryPressure,
    DiskPressure,
    PidPressure,
    /// The condition NetworkUnavailable, as before a network agent has set a node up; it is Ready all the same.
    NetworkUnavailable,
    /// It says nothing more: no heartbeats, and nothing of its pods.
    Silent,
    /// Its Node object is deleted, as if the machine were gone for good.
    Vanish,
    /// Containers take half a minute to start.
    SlowStart,
}

impl Trouble {
    pub const ALL: [Self; 8] = [
        Self::NotReady,
        Self::MemoryPressure,
        Self::DiskPressure,
        Self::PidPressure,
        Self::NetworkUnavailable,
        Self::Silent,
        Self::Vanish,
        Self::SlowStart,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::NotReady => "not-ready",
            Self::MemoryPressure => "memory-pressure",
            Self::DiskPressure => "disk-pressure",
            Self::PidPressure => "pid-pressure",
            Self::NetworkUnavailable => "network-unavailable",
            Self::Silent => "silent",
            Self::Vanish => "vanish",
            Self::SlowStart => "slow-start",
        }
    }

    pub fn parse(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|it| it.name() == text).ok_or_else(|| {
            let all = Self::ALL.map(Self::name).join(", ");
            format!("{text:?} is nothing that a simulated node can have: it is one of {all}")
        })
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How long containers take where nobody says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    pub start: Duration,
    pub stop: Duration,
}

impl Default for Pace {
    /// Long enough to be seen.
    fn default() -> Self {
        Self { start: Duration::from_millis(300), stop: Duration::from_millis(300) }
    }
}

/// What a node is reader.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct NodeBehaviour {
    troubles: Vec<Trouble>,
    start: Option<Duration>,
    stop: Option<Duration>,
}

impl NodeBehaviour {
    /// An annotation that cannot be read is passed to `complain` and ignored.
    pub(super) fn read(annotations: &BTreeMap<String, String>, complain: &mut dyn FnMut(String)) -> Self {
        let mut reader = Reader { annotations, complain };
        let fail = reader.annotations.get(FAIL).map(String::as_str).unwrap_or_default();
        let mut troubles = Vec::new();
        for name in fail.split(',').map(str::trim).filter(|it| !it.is_empty()) {
            match Trouble::parse(name) {
                Ok(trouble) => troubles.push(trouble),
                Err(error) => (reader.complain)(format!("{FAIL}: {error}")),
            }
        }
        Self { troubles, start: reader.get(START_DELAY, span), stop: reader.get(STOP_DELAY, span) }
    }

    pub(super) fn has(&self, trouble: Trouble) -> bool {
        self.troubles.contains(&trouble)
    }

    /// Rule: a node that is not ready, silent or gone starts and stops nothing; with anything else it does.
    pub(super) fn works(&self) -> bool {
        ![Trouble::NotReady, Trouble::Silent, Trouble::Vanish].into_iter().any(|it| self.has(it))
    }

    /// Rule: of a node that is silent or gone the API server hears nothing; with anything else it does.
    pub(super) fn speaks(&self) -> bool {
        ![Trouble::Silent, Trouble::Vanish].into_iter().any(|it| self.has(it))
    }

    pub(super) fn pace(&self, usual: Pace) -> Pace {
        let slow = self.has(Trouble::SlowStart).then_some(SLOW_START);
        Pace { start: self.start.or(slow).unwrap_or(usual.start), stop: self.stop.unwrap_or(usual.stop) }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    After(Duration),
    Never,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Exit {
    pub(super) after: Duration,
    pub(super) code: i32,
    pub(super) reason: Box<str>,
}

/// What a container is reader.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ContainerBehaviour {
    pub(super) start: Option<Duration>,
    pub(super) stop: Option<Stop>,
    pub(super) exit: Option<Exit>,
    pub(super) never_ready: bool,
    pub(super) image_missing: bool,
}

impl ContainerBehaviour {
    /// An annotation that cannot be read is passed to `complain` and ignored.
    pub(super) fn read(annotations: &BTreeMap<String, String>, complain: &mut dyn FnMut(String)) -> Self {
        // Few pods have such an annotation.
        if !annotations.keys().any(|it| it.starts_with("sim.muster.dev/")) {
            return Self::default();
        }
        let mut reader = Reader { annotations, complain };
        let stop = |it: &str| if it == "never" { Ok(Stop::Never) } else { span(it).map(Stop::After) };
        let code = |it: &str| match it.parse() {
            Ok(code @ 0..=255) => Ok(code),
            _ => Err(format!("{it:?} is no exit code from 0 to 255")),
        };
        let after = reader.get(EXIT_AFTER, span);
        let code = reader.get(EXIT_CODE, code);
        let reason = reader.get(EXIT_REASON, |it| Ok(it.to_owned()));
        let exit = (after.is_some() || code.is_some() || reason.is_some()).then(|| {
            let code = code.unwrap_or(if reason.as_deref() == Some("OOMKilled") { KILLED } else { 0 });
            let reason = reason.map_or_else(|| exit_reason(code).into(), String::into_boxed_str);
            Exit { after: after.unwrap_or(CRASH_AFTER), code, reason }
        });
        Self {
            start: reader.get(START_DELAY, span),
            stop: reader.get(STOP_DELAY, stop),
            exit,
            never_ready: reader.get(NEVER_READY, flag).unwrap_or_default(),
            image_missing: reader.get(IMAGE_MISSING, flag).unwrap_or_default(),
        }
    }

    /// The behaviour of one container: by the pod's annotations, and by words in the name of its image.
    pub(super) fn of(&self, role: Role, image: &str) -> Self {
        let own = match role {
            Role::Main => self.clone(),
            // A pod that is to crash does so once its init containers are done.
            Role::Init | Role::Sidecar | Role::Ephemeral => {
                Self { exit: None, never_ready: false, ..self.clone() }
            }
        };
        own.or_by_image(image)
    }

    /// How the container exits by itself: an init container completes, all others run on.
    pub(super) fn exit_or_complete(self, role: Role, pace: Pace) -> Option<Exit> {
        let complete = || Exit { after: pace.start, code: 0, reason: exit_reason(0).into() };
        self.exit.or_else(|| (role == Role::Init).then(complete))
    }

    fn or_by_image(mut self, image: &str) -> Self {
        let has = |word: &str| image.contains(word);
        let exit = |code, reason: &str| Exit { after: CRASH_AFTER, code, reason: reason.into() };
        self.image_missing |= has("non-existent");
        self.never_ready |= has("never-ready");
        if has("crash-loop") {
            self.exit.get_or_insert_with(|| exit(1, "Error"));
        }
        if has("out-of-memory") {
            self.exit.get_or_insert_with(|| exit(KILLED, "OOMKilled"));
        }
        if has("slow-start") {
            self.start.get_or_insert(SLOW_START);
        }
        if has("hangs") {
            self.stop.get_or_insert(Stop::Never);
        }
        self
    }
}

/// What the kubelet calls the end of a container.
pub(super) fn exit_reason(code: i32) -> &'static str {
    if code == 0 { "Completed" } else { "Error" }
}

struct Reader<'a> {
    annotations: &'a BTreeMap<String, String>,
    complain: &'a mut dyn FnMut(String),
}

impl Reader<'_> {
    fn get<T>(&mut self, key: &str, parse: impl Fn(&str) -> Result<T, String>) -> Option<T> {
        let text = self.annotations.get(key)?;
        parse(text).map_err(|error| (self.complain)(format!("{key}: {error}"))).ok()
    }
}

fn flag(text: &str) -> Result<bool, String> {
    text.parse().map_err(|_| format!("{text:?} is neither true nor false"))
}

/// `0`, `300ms`, `30s`, `5m`, `1h`.
pub fn span(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a time such as 0, 300ms, 30s, 5m or 1h");
    let (number, unit) = text.split_at(text.find(|it: char| !it.is_ascii_digit()).unwrap_or(text.len()));
    let number: u32 = number.parse().map_err(|_| wrong())?;
    let unit_ms = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60 * 1000,
        "h" => 60 * 60 * 1000,
        "" if number == 0 => 1,
        _ => return Err(wrong()),
    };
    Ok(Duration::from_millis(u64::from(number) * unit_ms).min(SPAN_MAX))
}
