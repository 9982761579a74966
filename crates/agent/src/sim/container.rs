//! One container: how it starts, ends, and comes again. No clock is read here.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::clock::shifted;
use super::seen;
use super::told::{Exit, KILLED, Pace, Stop, ToContainer, ended};

/// Between the end of a container and what the node makes of it: long enough to be seen, as with a kubelet.
const SYNC: Duration = Duration::from_secs(1);

/// As the kubelet: 10 s, doubled each time, at most 5 min; and forgotten after a run twice as long.
const BACKOFF_MIN: Duration = Duration::from_secs(10);
const BACKOFF_MAX: Duration = Duration::from_secs(300);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Init,
    /// An init container that stays: the next one begins when it has started.
    Sidecar,
    Main,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RestartPolicy {
    Always,
    OnFailure,
    Never,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum State {
    /// `since`: when its turn came.
    Waiting {
        since: Option<Timestamp>,
    },
    /// The last of so many attempts to pull its image has just failed, or is some time ago.
    NoImage {
        attempts: u32,
        tried: Timestamp,
        backs_off: bool,
    },
    Running {
        since: Timestamp,
    },
    Ended(Ended),
    CrashLoop {
        until: Timestamp,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) code: i32,
    pub(super) reason: Box<str>,
    pub(super) started: Timestamp,
    pub(super) finished: Timestamp,
}

#[derive(Debug)]
pub(super) struct Container {
    pub(super) name: Box<str>,
    pub(super) image: Box<str>,
    pub(super) role: Role,
    pub(super) state: State,
    pub(super) last: Option<Ended>,
    pub(super) restarts: u32,
    /// Its startup probe has passed.
    pub(super) started: bool,
    pub(super) ready: bool,
    told: ToContainer,
    /// From its start until its startup probe passes, and from then until its readiness probe does.
    startup: Duration,
    readiness: Duration,
    /// Restarts that count for the back-off.
    crashes: u32,
}

impl Container {
    /// Goes on where `status`, its last report, ended.
    pub(super) fn new(
        container: seen::Container,
        role: Role,
        told: &ToContainer,
        status: Option<&seen::ContainerStatus>,
        now: Timestamp,
    ) -> Self {
        let delay = |probe: &Option<seen::Probe>| {
            let seconds = probe.as_ref().map_or(0, |it| it.initial_delay_seconds);
            Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
        };
        let role = match (role, container.restart_policy.as_deref()) {
            (Role::Init, Some("Always")) => Role::Sidecar,
            _ => role,
        };
        let told = match role {
            Role::Main => told.clone(),
            // A pod that is told to crash does so once its init containers are done.
            Role::Init | Role::Sidecar => ToContainer { exit: None, never_ready: false, ..told.clone() },
        };
        let mut new = Self {
            startup: delay(&container.startup_probe),
            readiness: delay(&container.readiness_probe),
            told: told.or_by_image(&container.image),
            name: container.name,
            image: container.image,
            role,
            state: State::Waiting { since: None },
            last: None,
            restarts: 0,
            started: false,
            ready: false,
            crashes: 0,
        };
        if let Some(status) = status {
            new.read_back(status, now);
        }
        new
    }

    fn read_back(&mut self, status: &seen::ContainerStatus, now: Timestamp) {
        self.restarts = status.restart_count;
        self.crashes = status.restart_count;
        self.ready = status.ready;
        self.started = status.started.unwrap_or_default();
        self.last = status.last_state.terminated.as_ref().map(|it| Ended::read_back(it, now));
        let waits_for = status.state.waiting.as_ref().and_then(|it| it.reason.as_deref());
        self.state = if let Some(running) = &status.state.running {
            // A time in the future was written before the clock was set back.
            State::Running { since: running.started_at.map_or(now, |it| it.min(now)) }
        } else if let Some(terminated) = &status.state.terminated {
            State::Ended(Ended::read_back(terminated, now))
        } else if let (Some("CrashLoopBackOff"), Some(last)) = (waits_for, &self.last) {
            State::CrashLoop { until: after(last.finished, backoff(self.crashes)) }
        } else if let Some("ErrImagePull" | "ImagePullBackOff") = waits_for {
            State::NoImage { attempts: 1, tried: now, backs_off: waits_for == Some("ImagePullBackOff") }
        } else {
            State::Waiting { since: None }
        };
    }

    /// Its definition has changed: the image is all that may.
    pub(super) fn see(&mut self, container: &seen::Container, told: &ToContainer, now: Timestamp) -> bool {
        if container.image == self.image {
            return false;
        }
        self.image = container.image.clone();
        self.told = told.clone().or_by_image(&self.image);
        self.crashes = 0;
        match &self.state {
            State::Running { since } => {
                self.state = State::Ended(Ended::new(0, ended(0), *since, now));
            }
            State::NoImage { .. } => self.state = State::Waiting { since: None },
            State::Waiting { .. } | State::Ended(_) | State::CrashLoop { .. } => {}
        }
        true
    }

    /// Does what is due, and says whether anything was, and when the next thing is.
    pub(super) fn step(
        &mut self,
        pace: Pace,
        policy: RestartPolicy,
        now: Timestamp,
    ) -> (bool, Option<Timestamp>) {
        let mut changed = false;
        loop {
            let due = self.due(pace, policy);
            match due {
                Some((at, next)) if at <= now => {
                    self.become_(next, now);
                    changed = true;
                }
                _ => {
                    let (probed, probes_at) = self.probe(now);
                    let wake_at = due.map(|(at, _)| at).into_iter().chain(probes_at).min();
                    return (changed || probed, wake_at);
                }
            }
        }
    }

    /// What it becomes next, and when.
    fn due(&mut self, pace: Pace, policy: RestartPolicy) -> Option<(Timestamp, Next)> {
        match &self.state {
            State::Waiting { since: None } => Some((Timestamp::MIN, Next::Begin)),
            State::Waiting { since: Some(since) } => {
                let next = if self.told.image_missing { Next::FailToPull { attempts: 1 } } else { Next::Run };
                Some((after(*since, self.told.start.unwrap_or(pace.start)), next))
            }
            State::NoImage { .. } if !self.told.image_missing => Some((Timestamp::MIN, Next::Run)),
            State::NoImage { attempts, tried, backs_off: false } => {
                Some((after(*tried, SYNC), Next::BackOff { attempts: *attempts, tried: *tried }))
            }
            State::NoImage { attempts, tried, backs_off: true } => {
                Some((after(*tried, backoff(*attempts)), Next::FailToPull { attempts: attempts + 1 }))
            }
            State::Running { since } => {
                let done = || Exit { after: pace.start, code: 0, reason: ended(0).into() };
                let exit = self.told.exit.clone().or_else(|| (self.role == Role::Init).then(done))?;
                Some((after(*since, exit.after), Next::Exit { code: exit.code, reason: exit.reason }))
            }
            State::Ended(it) if self.comes_again(it.code, policy) => {
                let again_at = after(it.finished, backoff(self.crashes));
                let looked_at = after(it.finished, SYNC);
                let waits = looked_at < again_at;
                Some((looked_at, if waits { Next::CrashLoop { until: again_at } } else { Next::Restart }))
            }
            State::Ended(_) => None,
            State::CrashLoop { until } => Some((*until, Next::Restart)),
        }
    }

    fn become_(&mut self, next: Next, now: Timestamp) {
        match next {
            Next::Begin => self.state = State::Waiting { since: Some(now) },
            Next::FailToPull { attempts } => {
                self.state = State::NoImage { attempts, tried: now, backs_off: false };
            }
            Next::BackOff { attempts, tried } => {
                self.state = State::NoImage { attempts, tried, backs_off: true };
            }
            Next::Run => self.state = State::Running { since: now },
            Next::Exit { code, reason } => self.end(code, &reason, now),
            Next::CrashLoop { until } => {
                if let State::Ended(ended) = &self.state {
                    self.last = Some(ended.clone());
                }
                self.state = State::CrashLoop { until };
            }
            Next::Restart => {
                if let State::Ended(ended) = &self.state {
                    self.last = Some(ended.clone());
                }
                self.restarts += 1;
                self.crashes += 1;
                self.state = State::Running { since: now };
            }
        }
    }

    fn end(&mut self, code: i32, reason: &str, now: Timestamp) {
        let State::Running { since } = self.state else { return };
        if after(since, BACKOFF_MAX * 2) <= now {
            self.crashes = 0;
        }
        self.state = State::Ended(Ended::new(code, reason, since, now));
    }

    fn probe(&mut self, now: Timestamp) -> (bool, Option<Timestamp>) {
        let (mut started, mut ready, mut wake_at) = (false, false, None);
        match &self.state {
            State::Running { since } if self.role != Role::Init => {
                let starts_at = after(*since, self.startup);
                let readies_at = after(starts_at, self.readiness);
                started = starts_at <= now;
                ready = readies_at <= now && !self.told.never_ready;
                wake_at = [starts_at, readies_at].into_iter().find(|it| now < *it);
            }
            State::Ended(it) => ready = self.role == Role::Init && it.code == 0,
            _ => {}
        }
        let changed = (self.started, self.ready) != (started, ready);
        (self.started, self.ready) = (started, ready);
        (changed, wake_at)
    }

    /// The clock was set by so much: what it waits for comes as soon as if it had not been.
    pub(super) fn shift(&mut self, by: SignedDuration) {
        match &mut self.state {
            State::Waiting { since: None } => {}
            State::Waiting { since: Some(at) }
            | State::NoImage { tried: at, .. }
            | State::Running { since: at }
            | State::CrashLoop { until: at } => *at = shifted(*at, by),
            State::Ended(ended) => {
                ended.started = shifted(ended.started, by);
                ended.finished = shifted(ended.finished, by);
            }
        }
    }

    /// Whether those after it may begin.
    pub(super) fn is_done_initializing(&self) -> bool {
        match self.role {
            Role::Init => matches!(&self.state, State::Ended(it) if it.code == 0),
            Role::Sidecar => self.started,
            Role::Main => true,
        }
    }

    /// Rule: as the pod's policy says; an init container that is done does not, and a sidecar always does.
    pub(super) fn comes_again(&self, code: i32, policy: RestartPolicy) -> bool {
        match (self.role, policy) {
            (Role::Sidecar, _) | (Role::Main, RestartPolicy::Always) => true,
            (Role::Init, RestartPolicy::Always | RestartPolicy::OnFailure)
            | (Role::Main, RestartPolicy::OnFailure) => code != 0,
            (Role::Init | Role::Main, RestartPolicy::Never) => false,
        }
    }

    pub(super) fn is_running(&self) -> bool {
        matches!(self.state, State::Running { .. })
    }

    pub(super) fn crashes(&self) -> u32 {
        self.crashes
    }

    /// The pod's sandbox was there for it.
    pub(super) fn has_begun(&self) -> bool {
        !matches!(self.state, State::Waiting { .. }) || self.has_run()
    }

    pub(super) fn has_run(&self) -> bool {
        matches!(self.state, State::Running { .. } | State::Ended(_)) || self.last.is_some()
    }

    /// It was asked to stop at `asked`: whether it did just now, and when it will.
    pub(super) fn stop(
        &mut self,
        asked: Timestamp,
        grace: Duration,
        pace: Pace,
        now: Timestamp,
    ) -> (bool, Option<Timestamp>) {
        if !self.is_running() {
            return (false, None);
        }
        let takes = match self.told.stop.unwrap_or(Stop::After(pace.stop)) {
            Stop::After(takes) => takes,
            Stop::Never => return (false, None),
        };
        let stops_at = after(asked, takes.min(grace));
        if now < stops_at {
            return (false, Some(stops_at));
        }
        let code = if grace < takes { KILLED } else { 0 };
        self.end(code, ended(code), now);
        self.probe(now);
        (true, None)
    }
}

impl Ended {
    fn new(code: i32, reason: &str, started: Timestamp, finished: Timestamp) -> Self {
        Self { code, reason: reason.into(), started, finished }
    }

    fn read_back(terminated: &seen::Terminated, now: Timestamp) -> Self {
        let finished = terminated.finished_at.map_or(now, |it| it.min(now));
        Self {
            code: terminated.exit_code,
            reason: terminated.reason.clone().unwrap_or_default(),
            started: terminated.started_at.map_or(finished, |it| it.min(finished)),
            finished,
        }
    }
}

enum Next {
    Begin,
    FailToPull { attempts: u32 },
    BackOff { attempts: u32, tried: Timestamp },
    Run,
    Exit { code: i32, reason: Box<str> },
    CrashLoop { until: Timestamp },
    Restart,
}

/// Rule: a container comes again at once the first time, then after 10 s, and after twice as long each time, up to 5 min.
pub(super) fn backoff(crashes: u32) -> Duration {
    match crashes {
        0 => Duration::ZERO,
        _ => BACKOFF_MIN.saturating_mul(1 << (crashes - 1).min(16)).min(BACKOFF_MAX),
    }
}

pub(super) fn after(at: Timestamp, span: Duration) -> Timestamp {
    let span = SignedDuration::try_from(span).unwrap_or(SignedDuration::MAX);
    at.checked_add(span).unwrap_or(Timestamp::MAX)
}
