//! Behaviour of simulated nodes and pods, set by annotations and by words in image names.
//!
//! | annotation of a pod | value, for example | effect |
//! |---|---|---|
//! | `sim.muster.dev/start-delay` | `30s` | time that each container takes to start |
//! | `sim.muster.dev/stop-delay` | `5s`, `never` | stop time of each container; with `never` a pod stays Terminating |
//! | `sim.muster.dev/exit-after` | `10s` | its main containers exit this long after their start |
//! | `sim.muster.dev/exit-code` | `1` | exit code of its main containers, by default 0 (137 for `OOMKilled`) |
//! | `sim.muster.dev/exit-reason` | `OOMKilled` | exit reason of its main containers, else `Completed` or `Error` |
//! | `sim.muster.dev/never-ready` | `true` | the readiness probes of its main containers never pass |
//! | `sim.muster.dev/image-missing` | `true` | its images cannot be pulled |
//!
//! | annotation of a node | value, for example | effect |
//! |---|---|---|
//! | `sim.muster.dev/fail` | `not-ready,slow-start` | the node has these faults, which are names of `NodeFault`s |
//! | `sim.muster.dev/start-delay`, `sim.muster.dev/stop-delay` | `30s` | default for the pods of the node |
//!
//! A main container exits on its own if the pod has at least one of the three `exit-` annotations. Without
//! `exit-after`, it exits after one second.
//!
//! Words in the image name of a container, listed in `IMAGE_NAME_BEHAVIOURS`, have similar effects on that container.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use muster_api::time;
use muster_engine::kubelet::fake_runtime::{EXIT_CODE_SIGKILL, exit_reason};
use muster_engine::kubelet::pod::ContainerRole;

/// Annotation of a node with the names of its faults.
pub const FAULTS_ANNOTATION: &str = "sim.muster.dev/fail";
/// Annotation with the time that containers take to start.
const START_DELAY_ANNOTATION: &str = "sim.muster.dev/start-delay";
/// Annotation with the time that containers take to stop.
const STOP_DELAY_ANNOTATION: &str = "sim.muster.dev/stop-delay";
/// Annotation with the time after which containers exit on their own.
const EXIT_AFTER_ANNOTATION: &str = "sim.muster.dev/exit-after";
/// Annotation with the exit code of containers that exit on their own.
const EXIT_CODE_ANNOTATION: &str = "sim.muster.dev/exit-code";
/// Annotation with the exit reason of containers that exit on their own.
const EXIT_REASON_ANNOTATION: &str = "sim.muster.dev/exit-reason";
/// Annotation that, if it is `true`, keeps readiness probes from passing.
const NEVER_READY_ANNOTATION: &str = "sim.muster.dev/never-ready";
/// Annotation that, if it is `true`, makes image pulls fail.
const IMAGE_MISSING_ANNOTATION: &str = "sim.muster.dev/image-missing";

/// Label with the name of the fleet that a node belongs to. One process simulates all nodes of a fleet.
pub const FLEET_LABEL: &str = "sim.muster.dev/fleet";

/// Words in image names, and the effect of each word on a container whose image name contains it.
pub const IMAGE_NAME_BEHAVIOURS: [(&str, &str); 6] = [
    ("non-existent", "the image cannot be pulled"),
    ("crash-loop", "exits with code 1 after a second"),
    ("out-of-memory", "is OOMKilled after a second"),
    ("slow-start", "takes half a minute to start"),
    ("never-ready", "its readiness probe never passes"),
    ("hangs", "never stops, and stays Terminating"),
];

/// Default time from the start of a container until it exits on its own. It applies if an annotation or the image name
/// makes the container exit, and no annotation sets the time.
const EXIT_DELAY_DEFAULT: Duration = Duration::from_secs(1);
/// Start delay of containers whose node has the fault `slow-start`, or whose image name contains `slow-start`, unless
/// an annotation sets another delay.
const SLOW_START_DELAY: Duration = Duration::from_secs(30);

/// Upper limit of parsed durations. It can be added to any timestamp without overflow.
const DURATION_MAX: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// A fault of a simulated node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeFault {
    /// The Ready condition is False, and no container is started or stopped.
    NotReady,
    /// The condition MemoryPressure is True.
    MemoryPressure,
    /// The condition DiskPressure is True.
    DiskPressure,
    /// The condition PIDPressure is True.
    PidPressure,
    /// The condition NetworkUnavailable is True, as before a CNI agent has set up the node. The node is still Ready.
    NetworkUnavailable,
    /// The node makes no API calls, and no container is started or stopped.
    Silent,
    /// The Node object is deleted, as if the machine were removed permanently.
    Vanish,
    /// Containers take half a minute to start, unless an annotation sets another time.
    SlowStart,
}

impl NodeFault {
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

    /// Returns the name of the fault in annotations and on the command line.
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

    /// Parses the name of a fault.
    pub fn parse(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|it| it.name() == text).ok_or_else(|| {
            let all = Self::ALL.map(Self::name).join(", ");
            format!("{text:?} is not a fault of simulated nodes: expected one of {all}")
        })
    }
}

impl fmt::Display for NodeFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How long containers take to start and to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContainerTimings {
    /// Time that containers take to start.
    pub start: Duration,
    /// Time that containers take to stop.
    pub stop: Duration,
}

impl Default for ContainerTimings {
    /// Returns defaults that are long enough for users to observe starts and stops.
    fn default() -> Self {
        Self { start: Duration::from_millis(300), stop: Duration::from_millis(300) }
    }
}

/// Behaviour of a simulated node, from the annotations of its Node object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct NodeBehaviour {
    faults: Vec<NodeFault>,
    /// Time that containers on the node take to start, from the Node's annotation. `None` means the default, or
    /// `SLOW_START_DELAY` with the fault `SlowStart`.
    start: Option<Duration>,
    /// Time that containers on the node take to stop. `None` means the default.
    stop: Option<Duration>,
}

impl NodeBehaviour {
    /// Reads the behaviour of a node from its annotations. Each invalid annotation is passed to `on_invalid` and
    /// ignored.
    pub(super) fn read(annotations: &BTreeMap<String, String>, on_invalid: &mut dyn FnMut(String)) -> Self {
        let mut reader = AnnotationReader { annotations, on_invalid };
        let fail = reader.annotations.get(FAULTS_ANNOTATION).map(String::as_str).unwrap_or_default();
        let mut faults = Vec::new();
        for name in fail.split(',').map(str::trim).filter(|it| !it.is_empty()) {
            match NodeFault::parse(name) {
                Ok(fault) => faults.push(fault),
                Err(error) => (reader.on_invalid)(format!("{FAULTS_ANNOTATION}: {error}")),
            }
        }
        Self {
            faults,
            start: reader.parse_annotation(START_DELAY_ANNOTATION, parse_duration),
            stop: reader.parse_annotation(STOP_DELAY_ANNOTATION, parse_duration),
        }
    }

    pub(super) fn has_fault(&self, fault: NodeFault) -> bool {
        self.faults.contains(&fault)
    }

    /// Whether the node starts and stops containers.
    ///
    /// Rule: a node that is NotReady, silent or deleted starts and stops no containers. A node with only other faults
    /// starts and stops them.
    pub(super) fn runs_containers(&self) -> bool {
        ![NodeFault::NotReady, NodeFault::Silent, NodeFault::Vanish].into_iter().any(|it| self.has_fault(it))
    }

    /// Whether the node makes API calls.
    ///
    /// Rule: a node that is silent or deleted makes no API calls. A node with only other faults makes them.
    pub(super) fn is_connected(&self) -> bool {
        ![NodeFault::Silent, NodeFault::Vanish].into_iter().any(|it| self.has_fault(it))
    }

    /// Returns how long containers on the node take to start and to stop. `default_timings` apply where the node sets
    /// none.
    pub(super) fn timings(&self, default_timings: ContainerTimings) -> ContainerTimings {
        let slow = self.has_fault(NodeFault::SlowStart).then_some(SLOW_START_DELAY);
        ContainerTimings {
            start: self.start.or(slow).unwrap_or(default_timings.start),
            stop: self.stop.unwrap_or(default_timings.stop),
        }
    }
}

/// How long a container takes to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StopBehaviour {
    After(Duration),
    Never,
}

/// When and how a container exits on its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ExitBehaviour {
    /// Time from the start of the container until its exit.
    pub(super) after: Duration,
    pub(super) code: i32,
    pub(super) reason: Box<str>,
}

/// Behaviour of a container, from the pod's annotations and the image name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ContainerBehaviour {
    /// Time that the container takes to start. `None` means the default of the node.
    pub(super) start: Option<Duration>,
    /// Time that the container takes to stop. `None` means the default of the node.
    pub(super) stop: Option<StopBehaviour>,
    /// How the container exits on its own. `None` if neither an annotation nor the image name specifies it.
    pub(super) exit: Option<ExitBehaviour>,
    /// Whether the readiness probes of the container never pass.
    pub(super) never_ready: bool,
    /// Whether the image of the container cannot be pulled.
    pub(super) image_missing: bool,
}

impl ContainerBehaviour {
    /// Reads the behaviour of a pod's containers from the pod's annotations. Each invalid annotation is passed to
    /// `on_invalid` and ignored.
    pub(super) fn read(annotations: &BTreeMap<String, String>, on_invalid: &mut dyn FnMut(String)) -> Self {
        // Fast path: most pods have no such annotation.
        if !annotations.keys().any(|it| it.starts_with("sim.muster.dev/")) {
            return Self::default();
        }
        let mut reader = AnnotationReader { annotations, on_invalid };
        let stop = |it: &str| {
            if it == "never" {
                Ok(StopBehaviour::Never)
            } else {
                parse_duration(it).map(StopBehaviour::After)
            }
        };
        let code = |it: &str| match it.parse() {
            Ok(code @ 0..=255) => Ok(code),
            _ => Err(format!("{it:?} is not an exit code from 0 to 255")),
        };
        let after = reader.parse_annotation(EXIT_AFTER_ANNOTATION, parse_duration);
        let code = reader.parse_annotation(EXIT_CODE_ANNOTATION, code);
        let reason = reader.parse_annotation(EXIT_REASON_ANNOTATION, |it| Ok(it.to_owned()));
        let exit = (after.is_some() || code.is_some() || reason.is_some()).then(|| {
            let code =
                code.unwrap_or(if reason.as_deref() == Some("OOMKilled") { EXIT_CODE_SIGKILL } else { 0 });
            let reason = reason.map_or_else(|| exit_reason(code).into(), String::into_boxed_str);
            ExitBehaviour { after: after.unwrap_or(EXIT_DELAY_DEFAULT), code, reason }
        });
        Self {
            start: reader.parse_annotation(START_DELAY_ANNOTATION, parse_duration),
            stop: reader.parse_annotation(STOP_DELAY_ANNOTATION, stop),
            exit,
            never_ready: reader.parse_annotation(NEVER_READY_ANNOTATION, parse_bool).unwrap_or_default(),
            image_missing: reader.parse_annotation(IMAGE_MISSING_ANNOTATION, parse_bool).unwrap_or_default(),
        }
    }

    /// Returns the behaviour of one container: the behaviour that the pod's annotations set, changed by words in the
    /// container's image name. `exit` and `never_ready` of the annotations apply only to main containers.
    pub(super) fn for_container(&self, role: ContainerRole, image: &str) -> Self {
        let own = match role {
            ContainerRole::Main => self.clone(),
            // Only main containers crash, after the init containers have completed.
            ContainerRole::Init | ContainerRole::Sidecar | ContainerRole::Ephemeral => {
                Self { exit: None, never_ready: false, ..self.clone() }
            }
        };
        own.with_behaviour_of_image(image)
    }

    /// Returns how the container exits on its own, or `None` if it keeps running. By default, an init container
    /// completes, and other containers keep running.
    pub(super) fn exit_behaviour(
        self,
        role: ContainerRole,
        timings: ContainerTimings,
    ) -> Option<ExitBehaviour> {
        let complete = || ExitBehaviour { after: timings.start, code: 0, reason: exit_reason(0).into() };
        self.exit.or_else(|| (role == ContainerRole::Init).then(complete))
    }

    /// Adds the effects of the words in the image name, see [`IMAGE_NAME_BEHAVIOURS`].
    fn with_behaviour_of_image(mut self, image: &str) -> Self {
        let has = |word: &str| image.contains(word);
        let exit =
            |code, reason: &str| ExitBehaviour { after: EXIT_DELAY_DEFAULT, code, reason: reason.into() };
        self.image_missing |= has("non-existent");
        self.never_ready |= has("never-ready");
        if has("crash-loop") {
            self.exit.get_or_insert_with(|| exit(1, "Error"));
        }
        if has("out-of-memory") {
            self.exit.get_or_insert_with(|| exit(EXIT_CODE_SIGKILL, "OOMKilled"));
        }
        if has("slow-start") {
            self.start.get_or_insert(SLOW_START_DELAY);
        }
        if has("hangs") {
            self.stop.get_or_insert(StopBehaviour::Never);
        }
        self
    }
}

/// Parses annotations, and passes the errors of invalid annotations to `on_invalid`.
struct AnnotationReader<'a> {
    annotations: &'a BTreeMap<String, String>,
    on_invalid: &'a mut dyn FnMut(String),
}

impl AnnotationReader<'_> {
    /// Returns the parsed value of an annotation, or `None` if it is absent or invalid.
    fn parse_annotation<T>(&mut self, key: &str, parse: impl Fn(&str) -> Result<T, String>) -> Option<T> {
        let text = self.annotations.get(key)?;
        parse(text).map_err(|error| (self.on_invalid)(format!("{key}: {error}"))).ok()
    }
}

/// Parses `true` or `false`.
fn parse_bool(text: &str) -> Result<bool, String> {
    text.parse().map_err(|_| format!("{text:?} is neither true nor false"))
}

/// Parses a duration such as `0`, `300ms`, `30s`, `5m` or `1h`. The result is at most [`DURATION_MAX`].
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    time::parse_duration(text)
        .map(|it| it.min(DURATION_MAX))
        .map_err(|_| format!("{text:?} is not a duration such as 0, 300ms, 30s, 5m or 1h"))
}
