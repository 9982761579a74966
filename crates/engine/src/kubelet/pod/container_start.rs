//! The start of a container: waits for the crash backoff, pulls the image, and starts the container.

use alloc::format;
use core::time::Duration;

use muster_api::text::Text;
use muster_api::time::Time;

use super::backoff::CONTAINER_BACKOFF;
use super::pod_object::{ContainerSpec, ImagePullPolicy};
use super::running_container::{HookState, RunningContainer};
use super::{Action, ActionOutcome, Container, ContainerState, PodStateMachine};
use crate::controller::{Backoff, BackoffPolicy};

/// The kubelet's record of the starts of one container of the spec, over all its instances: its attempts, the state of
/// its image, its backoffs, and why it waits.
#[derive(Clone, Debug, Default)]
pub(super) struct StartHistory {
    /// Reason and message of the state `waiting` in the container's status: the last failure or backoff since the last
    /// successful start. `None` if there was none.
    pub waiting: Option<(Text, Text)>,
    /// The highest attempt number of an instance that this process has observed in the runtime. `None` if it has
    /// observed none.
    pub attempt: Option<u32>,
    /// Whether the container is stopped because its image changed, and was not started again yet.
    pub is_replaced: bool,
    /// Backoff of the restarts of a container that has exited (`CrashLoopBackOff`). `None` before the first restart by
    /// this process.
    crash: Option<Backoff>,
    /// Container ID of the last terminated instance whose crash backoff has passed, so that the container may start
    /// again. `None` if there is no such instance.
    backed_off_for: Option<Text>,
    /// Whether the image of the container is on the node.
    image: ImageState,
    /// Time at which the image was last found to be absent from the node. `None` if it was not found to be absent.
    absent_at: Option<Time>,
    /// Backoff of failed image pulls (`ImagePullBackOff`). `None` if no pull of this image has failed.
    pull: Option<Backoff>,
    /// Time at which the last pull began. `None` before the first pull.
    last_pull_began_at: Option<Time>,
    /// Time and message of the last failed pull. `None` if no pull of this image has failed.
    pull_failed: Option<(Time, Text)>,
    /// After a failed start or image check: the current delay, and the time of the next attempt. `None` if none has
    /// failed since the last successful start or change of the image.
    retry: Option<(Duration, Time)>,
}

/// Whether the image of a container is on the node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum ImageState {
    /// It is not known whether the image is on the node. The image is checked or pulled before the next start.
    #[default]
    Unknown,
    Absent,
    Present,
}

/// Backoff after consecutive failed starts or image checks of a container.
const START_BACKOFF: BackoffPolicy =
    BackoffPolicy { min: Duration::from_secs(1), max: Duration::from_secs(10) };

/// Interval at which the agent checks whether an image that could not be pulled is now on the node.
const IMAGE_CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// Time after a failed pull at which the waiting reason, such as `ErrImagePull`, becomes `ImagePullBackOff`.
const ERR_IMAGE_PULL_DURATION: Duration = Duration::from_secs(2);

impl PodStateMachine {
    /// Issues the next action to start a container in this sandbox: check for the image, pull the image, or start the
    /// container. Issues no action during a backoff, before the pod is prepared, and if the image is absent and may not
    /// be pulled. Also issues none while another action of the container is in flight, except for a probe.
    pub(super) fn start(&mut self, container: &ContainerSpec, sandbox: &Text, now: Time) {
        let name = &container.name;
        let is_busy = |it: &Action| it.container_name() == Some(name) && !matches!(it, Action::Probe { .. });
        if self.is_in_flight(is_busy) || self.check_crash_backoff(name, now) || !self.is_prepared {
            return;
        }
        let history = self.start_histories.entry(name.clone()).or_default();
        if let Some((_, at)) = history.retry.filter(|(_, at)| now < *at) {
            return self.request_sync_at(at);
        }
        let image = container.image.clone();
        match (history.image, container.pull) {
            (ImageState::Unknown, ImagePullPolicy::Always) => self.pull(container, now),
            (ImageState::Unknown, _) => {
                self.issue(Action::FindImage { container: name.clone(), image }, now);
            }
            (ImageState::Absent, ImagePullPolicy::Never) => {
                history.image = ImageState::Unknown;
                let message = format!("Container image {image:?} is not present with pull policy of Never");
                if history.set_waiting("ErrImageNeverPull", message.clone()) {
                    self.record_warning("ErrImageNeverPull", message.clone());
                    self.record_warning("Failed", format!("Error: ErrImageNeverPull: {message}"));
                }
                self.schedule_start_retry(name, now);
            }
            // During the backoff of a pull, the image may be imported: check again.
            (ImageState::Absent, _) if history.next_image_check_at().is_some_and(|at| at <= now) => {
                self.issue(Action::FindImage { container: name.clone(), image }, now);
            }
            (ImageState::Absent, _) => self.pull(container, now),
            (ImageState::Present, _) => {
                let attempt = self.next_attempt(name);
                let hash = container.hash();
                self.issue(
                    Action::Start {
                        container: name.clone(),
                        position: container.position,
                        sandbox: sandbox.clone(),
                        attempt,
                        hash,
                    },
                    now,
                );
            }
        }
    }

    /// Returns whether the restart of a terminated container must still wait for its crash backoff. If so, sets the
    /// waiting reason `CrashLoopBackOff`. On the first call after the backoff, computes the backoff of the next
    /// restart, and resets the state of the image, so that the image is checked again. Returns `false` for a container
    /// that is not terminated.
    ///
    /// Rule: a terminated container is restarted at once the first time, and after an increasing backoff each further
    /// time. If it ran so long that the backoff has expired, it is restarted at once again. After a restart of the
    /// agent, a container that was restarted before waits for the shortest backoff.
    fn check_crash_backoff(&mut self, name: &Text, now: Time) -> bool {
        let Some(last) = self.newest_container(name) else { return false };
        let ContainerState::Exited { started, finished, .. } = last.state else { return false };
        let (id, attempt) = (last.id.clone(), last.attempt);
        let title = self.display_name();
        let history = self.start_histories.entry(name.clone()).or_default();
        if history.backed_off_for.as_ref() == Some(&id) {
            return false;
        }
        // After a restart of the agent, a container with restarts is not restarted at once.
        let crash = history.crash.or_else(|| (0 < attempt).then(|| CONTAINER_BACKOFF.initial(started)));
        if let Some(crash) =
            crash.filter(|it| !CONTAINER_BACKOFF.has_expired(*it, finished) && now < finished + it.delay)
        {
            let delay = format_seconds(crash.delay);
            let message = format!("back-off {delay} restarting failed container={name} pod={title}");
            if history.set_waiting("CrashLoopBackOff", message) {
                self.record_warning(
                    "BackOff",
                    format!("Back-off restarting failed container {name} in pod {title}"),
                );
            }
            self.request_sync_at(finished + crash.delay);
            return true;
        }
        history.crash = Some(CONTAINER_BACKOFF.next(crash, finished, now));
        history.backed_off_for = Some(id);
        history.image = ImageState::Unknown;
        false
    }

    /// Issues the pull of a container's image. During the backoff of a failed pull, sets the waiting reason
    /// `ImagePullBackOff` after [`ERR_IMAGE_PULL_DURATION`] instead.
    fn pull(&mut self, container: &ContainerSpec, now: Time) {
        let (name, image) = (container.name.clone(), container.image.clone());
        let history = self.start_histories.entry(name.clone()).or_default();
        if let (Some(pull), Some((failed, why))) = (history.pull, history.pull_failed.clone())
            && now < failed + pull.delay
        {
            if now < failed + ERR_IMAGE_PULL_DURATION {
                return self.request_sync_at(failed + ERR_IMAGE_PULL_DURATION);
            }
            let again_at = history.next_image_check_at();
            let message = format!("Back-off pulling image {image:?}: ErrImagePull: {why}");
            if history.set_waiting("ImagePullBackOff", message) {
                self.record_event("BackOff", format!("Back-off pulling image {image:?}"));
                self.record_warning("Failed", "Error: ImagePullBackOff".into());
            }
            return self
                .request_sync_at(again_at.map_or(failed + pull.delay, |at| at.min(failed + pull.delay)));
        }
        history.last_pull_began_at = Some(now);
        if self.issue(Action::Pull { container: name, image: image.clone() }, now) {
            self.record_event("Pulling", format!("Pulling image {image:?}"));
        }
    }

    /// Applies the outcome of [`Action::FindImage`].
    pub(super) fn apply_find_image_outcome(&mut self, name: &Text, outcome: ActionOutcome, now: Time) {
        let image = self.object.spec.find_container(name).map(|it| it.image.clone()).unwrap_or_default();
        let history = self.start_histories.entry(name.clone()).or_default();
        match outcome {
            ActionOutcome::Present => {
                history.image = ImageState::Present;
                // The event is recorded once, not for each retry of the start.
                if history.retry.is_none() {
                    let message = format!(
                        "Container image {image:?} already present on machine and can be accessed by the pod"
                    );
                    self.record_event("Pulled", message);
                }
            }
            ActionOutcome::Absent => (history.image, history.absent_at) = (ImageState::Absent, Some(now)),
            ActionOutcome::Failed { reason, message } => {
                if history.set_waiting(&reason, message.as_ref()) {
                    self.record_warning("InspectFailed", message.as_ref().into());
                    self.record_warning("Failed", format!("Error: {reason}"));
                }
                self.schedule_start_retry(name, now);
            }
            _ => {}
        }
    }

    /// Applies the outcome of [`Action::Pull`].
    pub(super) fn apply_pull_outcome(&mut self, name: &Text, outcome: ActionOutcome, now: Time) {
        let image = self.object.spec.find_container(name).map(|it| it.image.clone()).unwrap_or_default();
        let history = self.start_histories.entry(name.clone()).or_default();
        if let ActionOutcome::Failed { reason, message } = outcome {
            history.pull = Some(CONTAINER_BACKOFF.next(history.pull, now, now));
            history.pull_failed = Some((now, message.clone()));
            history.set_waiting(&reason, message.as_ref());
            self.record_warning("Failed", format!("Failed to pull image {image:?}: {message}"));
            self.record_warning("Failed", format!("Error: {reason}"));
            return;
        }
        history.image = ImageState::Present;
        let took = format_millis(now.since(history.last_pull_began_at.unwrap_or(now)));
        let size = match outcome {
            ActionOutcome::Pulled { bytes } => format!(" Image size: {bytes} bytes."),
            _ => "".into(),
        };
        self.record_event(
            "Pulled",
            format!("Successfully pulled image {image:?} in {took} ({took} including waiting).{size}"),
        );
    }

    /// Applies the outcome of [`Action::Start`].
    pub(super) fn apply_start_outcome(&mut self, name: &Text, outcome: ActionOutcome, now: Time) {
        let has_hook = self.object.spec.find_container(name).is_some_and(|it| it.has_post_start);
        let history = self.start_histories.entry(name.clone()).or_default();
        history.image = ImageState::Unknown;
        match outcome {
            ActionOutcome::Started { id } => {
                history.waiting = None;
                history.retry = None;
                history.is_replaced = false;
                self.running_containers.insert(
                    id,
                    RunningContainer::new(
                        name,
                        now,
                        if has_hook { HookState::Pending } else { HookState::Done },
                    ),
                );
                self.record_event("Created", format!("Created container: {name}"));
                self.record_event("Started", format!("Started container {name}"));
            }
            ActionOutcome::Failed { reason, message } => {
                history.set_waiting(&reason, message.as_ref());
                self.record_warning("Failed", format!("Error: {message}"));
                self.schedule_start_retry(name, now);
            }
            _ => {}
        }
    }

    /// Sets the backoff after a failed start or image check of a container, and requests a sync at its end.
    fn schedule_start_retry(&mut self, name: &Text, now: Time) {
        let history = self.start_histories.entry(name.clone()).or_default();
        let wait = START_BACKOFF.next_delay(history.retry.map(|(wait, _)| wait));
        history.retry = Some((wait, now + wait));
        self.request_sync_at(now + wait);
    }

    /// Returns the newest instance of a container in the runtime. `None` if the runtime has no instance.
    pub(super) fn newest_container(&self, name: &str) -> Option<&Container> {
        self.newest_instance(|it| *it.name == *name)
    }

    /// Returns the container instance in the runtime with the highest attempt number, of those for which `counts`
    /// returns true.
    pub(super) fn newest_instance(&self, counts: impl Fn(&Container) -> bool) -> Option<&Container> {
        let all = self.runtime_state.iter().flat_map(|it| &it.containers);
        all.filter(|it| counts(it)).max_by_key(|it| it.attempt)
    }

    /// Returns the attempt number of the next instance of a container.
    ///
    /// Rule: the next attempt number is one above the highest one of the container's instances in the runtime. If the
    /// runtime has no instance, it is one above the highest attempt number that this process has observed. If it has
    /// observed none, it is the reported restart count, plus one if the status has a container ID.
    fn next_attempt(&self, name: &str) -> u32 {
        let in_runtime = self.newest_container(name).map(|it| it.attempt + 1);
        let tracked = self.start_histories.get(name).and_then(|it| it.attempt).map(|it| it + 1);
        let known = self.reported_container(name);
        let count = known["restartCount"].as_u64().and_then(|it| u32::try_from(it).ok()).unwrap_or(0);
        let next = if known["containerID"].is_string() { count.saturating_add(1) } else { count };
        in_runtime.or(tracked).unwrap_or(next)
    }
}

impl StartHistory {
    /// Forgets the state of the image and the backoffs of failed pulls and starts, because the image of the container
    /// has changed. The crash backoff stays.
    ///
    /// Rule: the backoff of a pull belongs to its image. Another image is pulled at once. Upstream: `backOffKey` in
    /// `EnsureImageExists`.
    pub(super) fn reset_image(&mut self) {
        self.image = ImageState::Unknown;
        self.absent_at = None;
        self.pull = None;
        self.pull_failed = None;
        self.retry = None;
    }

    /// Whether the history can be built again from the runtime state. False if it holds a waiting reason, a backoff
    /// (also one that has passed) or a failed pull, or if the container is being replaced.
    pub(super) fn can_be_rebuilt(&self) -> bool {
        let Self { waiting, is_replaced, crash, pull, pull_failed, retry, .. } = self;
        waiting.is_none()
            && !is_replaced
            && crash.is_none()
            && pull.is_none()
            && pull_failed.is_none()
            && retry.is_none()
    }

    /// Returns the time of the next check whether an image that could not be pulled is now on the node. `None` if no
    /// pull of this image has failed, or if no check has found the image to be absent.
    fn next_image_check_at(&self) -> Option<Time> {
        self.pull_failed.as_ref().and(self.absent_at).map(|at| at + IMAGE_CHECK_INTERVAL)
    }

    /// Sets reason and message of the state `waiting`. Returns whether the reason differs from the previous one.
    fn set_waiting(&mut self, reason: &str, message: impl Into<Text>) -> bool {
        let is_new = self.waiting.as_ref().is_none_or(|(before, _)| **before != *reason);
        self.waiting = Some((reason.into(), message.into()));
        is_new
    }
}

/// Formats a duration of less than an hour in minutes and whole seconds, such as `1m20s`.
fn format_seconds(duration: Duration) -> alloc::string::String {
    match (duration.as_secs() / 60, duration.as_secs() % 60) {
        (0, seconds) => format!("{seconds}s"),
        (minutes, seconds) => format!("{minutes}m{seconds}s"),
    }
}

/// Formats a duration with a precision of milliseconds, such as `987ms` or `1.234s`.
fn format_millis(took: Duration) -> alloc::string::String {
    match took.as_millis() {
        millis if millis < 1000 => format!("{millis}ms"),
        millis => format!("{}.{:03}s", millis / 1000, millis % 1000),
    }
}
