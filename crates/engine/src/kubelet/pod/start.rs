//! How a container comes to run: its back-off, its image, its start.

use alloc::format;
use core::time::Duration;

use muster_api::text::Text;
use muster_api::time::Time;

use super::running_container::{Hook, RunningContainer};
use super::spec::{ContainerSpec, Pull};
use super::wait::BackOff;
use super::{Action, Container, Outcome, Pod, State};

/// What is known of one container of the spec, whichever container of the runtime it is just now.
#[derive(Clone, Debug, Default)]
pub(super) struct StartHistory {
    /// Why it does not run, as reason and message.
    pub waiting: Option<(Text, Text)>,
    /// The highest attempt that was ever seen.
    pub attempt: Option<u32>,
    /// It was ended to come again as another.
    pub is_replaced: bool,
    crash: Option<BackOff>,
    /// The container whose end has been waited for.
    waited_for: Option<Text>,
    image: Image,
    /// When the image was last found not to be there.
    absent_at: Option<Time>,
    pull: Option<BackOff>,
    pulling_since: Option<Time>,
    /// How the last pull failed, and when.
    pull_failed: Option<(Time, Text)>,
    /// A start that failed is tried again then; the wait doubles.
    retry: Option<(Duration, Time)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Image {
    #[default]
    Unknown,
    Absent,
    Present,
}

/// The first wait after a container could not be made, and the longest.
const RETRY: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(10);

/// How often an image is looked for that could not be pulled.
const FIND_AGAIN: Duration = Duration::from_secs(10);

/// For so long a failed pull is called one; then it is said that it waits.
const PULL_FAILED: Duration = Duration::from_secs(2);

impl Pod {
    /// Goes one step further towards a running container.
    pub(super) fn start(&mut self, container: &ContainerSpec, sandbox: &Text, now: Time) {
        let name = &container.name;
        let is_busy = |it: &Action| it.container() == Some(name) && !matches!(it, Action::Probe { .. });
        if self.is_under_way(is_busy) || self.backs_off(name, now) || !self.is_prepared {
            return;
        }
        let history = self.start_histories.entry(name.clone()).or_default();
        if let Some((_, at)) = history.retry.filter(|(_, at)| now < *at) {
            return self.wake(at);
        }
        let image = container.image.clone();
        match (history.image, container.pull) {
            (Image::Unknown, Pull::Always) => self.pull(container, now),
            (Image::Unknown, _) => {
                self.give(Action::FindImage { container: name.clone(), image }, now);
            }
            (Image::Absent, Pull::Never) => {
                history.image = Image::Unknown;
                let message = format!("Container image {image:?} is not present with pull policy of Never");
                if history.wait("ErrImageNeverPull", message.clone()) {
                    self.warn("ErrImageNeverPull", message.clone());
                    self.warn("Failed", format!("Error: ErrImageNeverPull: {message}"));
                }
                self.retry(name, now);
            }
            // While a pull waits, somebody may bring the image: it is looked for again.
            (Image::Absent, _) if history.find_again_at().is_some_and(|at| at <= now) => {
                self.give(Action::FindImage { container: name.clone(), image }, now);
            }
            (Image::Absent, _) => self.pull(container, now),
            (Image::Present, _) => {
                let attempt = self.next_attempt(name);
                let hash = container.hash();
                self.give(
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

    /// Rule: what ended is begun again at once the first time; from then on it waits, longer each time.
    fn backs_off(&mut self, name: &Text, now: Time) -> bool {
        let Some(last) = self.newest(name) else { return false };
        let State::Exited { started, finished, .. } = last.state else { return false };
        let (id, attempt) = (last.id.clone(), last.attempt);
        let title = self.title();
        let history = self.start_histories.entry(name.clone()).or_default();
        if history.waited_for.as_ref() == Some(&id) {
            return false;
        }
        // Whoever comes new to a container that was begun again before does not begin it at once.
        let crash = history.crash.or_else(|| (0 < attempt).then(|| BackOff::first(started)));
        if let Some(crash) = crash.filter(|it| !it.is_stale(finished) && now < finished + it.delay) {
            let delay = span(crash.delay);
            let message = format!("back-off {delay} restarting failed container={name} pod={title}");
            if history.wait("CrashLoopBackOff", message) {
                self.warn("BackOff", format!("Back-off restarting failed container {name} in pod {title}"));
            }
            self.wake(finished + crash.delay);
            return true;
        }
        history.crash = Some(BackOff::next(crash, finished, now));
        history.waited_for = Some(id);
        history.image = Image::Unknown;
        false
    }

    fn pull(&mut self, container: &ContainerSpec, now: Time) {
        let (name, image) = (container.name.clone(), container.image.clone());
        let history = self.start_histories.entry(name.clone()).or_default();
        if let (Some(pull), Some((failed, why))) = (history.pull, history.pull_failed.clone())
            && now < failed + pull.delay
        {
            if now < failed + PULL_FAILED {
                return self.wake(failed + PULL_FAILED);
            }
            let again_at = history.find_again_at();
            let message = format!("Back-off pulling image {image:?}: ErrImagePull: {why}");
            if history.wait("ImagePullBackOff", message) {
                self.note("BackOff", format!("Back-off pulling image {image:?}"));
                self.warn("Failed", "Error: ImagePullBackOff".into());
            }
            return self.wake(again_at.map_or(failed + pull.delay, |at| at.min(failed + pull.delay)));
        }
        history.pulling_since = Some(now);
        if self.give(Action::Pull { container: name, image: image.clone() }, now) {
            self.note("Pulling", format!("Pulling image {image:?}"));
        }
    }

    pub(super) fn image_found(&mut self, name: &Text, outcome: Outcome, now: Time) {
        let image = self.object.spec.find(name).map(|it| it.image.clone()).unwrap_or_default();
        let history = self.start_histories.entry(name.clone()).or_default();
        match outcome {
            Outcome::Present => {
                history.image = Image::Present;
                // Said once of a container that cannot be made again and again.
                if history.retry.is_none() {
                    let message = format!(
                        "Container image {image:?} already present on machine and can be accessed by the pod"
                    );
                    self.note("Pulled", message);
                }
            }
            Outcome::Absent => (history.image, history.absent_at) = (Image::Absent, Some(now)),
            Outcome::Failed { reason, message } => {
                if history.wait(&reason, message.as_ref()) {
                    self.warn("InspectFailed", message.as_ref().into());
                    self.warn("Failed", format!("Error: {reason}"));
                }
                self.retry(name, now);
            }
            _ => {}
        }
    }

    pub(super) fn image_pulled(&mut self, name: &Text, outcome: Outcome, now: Time) {
        let image = self.object.spec.find(name).map(|it| it.image.clone()).unwrap_or_default();
        let history = self.start_histories.entry(name.clone()).or_default();
        if let Outcome::Failed { reason, message } = outcome {
            history.pull = Some(BackOff::next(history.pull, now, now));
            history.pull_failed = Some((now, message.clone()));
            history.wait(&reason, message.as_ref());
            self.warn("Failed", format!("Failed to pull image {image:?}: {message}"));
            self.warn("Failed", format!("Error: {reason}"));
            return;
        }
        history.image = Image::Present;
        let took = span_of(now.since(history.pulling_since.unwrap_or(now)));
        let size = match outcome {
            Outcome::Pulled { bytes } => format!(" Image size: {bytes} bytes."),
            _ => "".into(),
        };
        self.note(
            "Pulled",
            format!("Successfully pulled image {image:?} in {took} ({took} including waiting).{size}"),
        );
    }

    pub(super) fn started(&mut self, name: &Text, outcome: Outcome, now: Time) {
        let has_hook = self.object.spec.find(name).is_some_and(|it| it.has_post_start);
        let history = self.start_histories.entry(name.clone()).or_default();
        history.image = Image::Unknown;
        match outcome {
            Outcome::Started { id } => {
                history.waiting = None;
                history.retry = None;
                history.is_replaced = false;
                self.running_containers.insert(
                    id,
                    RunningContainer::new(name, now, if has_hook { Hook::Due } else { Hook::Done }),
                );
                self.note("Created", format!("Created container: {name}"));
                self.note("Started", format!("Started container {name}"));
            }
            Outcome::Failed { reason, message } => {
                history.wait(&reason, message.as_ref());
                self.warn("Failed", format!("Error: {message}"));
                self.retry(name, now);
            }
            _ => {}
        }
    }

    fn retry(&mut self, name: &Text, now: Time) {
        let history = self.start_histories.entry(name.clone()).or_default();
        let wait = history.retry.map_or(RETRY, |(wait, _)| (wait * 2).min(RETRY_MAX));
        history.retry = Some((wait, now + wait));
        self.wake(now + wait);
    }

    /// Of all containers that the spec's one has been, the last.
    pub(super) fn newest(&self, name: &str) -> Option<&Container> {
        let all = self.seen.iter().flat_map(|it| &it.containers);
        all.filter(|it| *it.name == *name).max_by_key(|it| it.attempt)
    }

    /// Rule: restarts are counted over all that the runtime has, and all that was ever reported.
    fn next_attempt(&self, name: &str) -> u32 {
        let seen = self.newest(name).map(|it| it.attempt + 1);
        let tracked = self.start_histories.get(name).and_then(|it| it.attempt).map(|it| it + 1);
        let known = self.known(name);
        let count = known["restartCount"].as_u64().and_then(|it| u32::try_from(it).ok()).unwrap_or(0);
        let told = if known["containerID"].is_string() { count.saturating_add(1) } else { count };
        seen.or(tracked).unwrap_or(told)
    }
}

impl StartHistory {
    /// Rule: the back-off of a pull belongs to its image: another image is pulled at once. Upstream: `backOffKey` in
    /// `EnsureImageExists`.
    pub(super) fn forget_image(&mut self) {
        self.image = Image::Unknown;
        self.absent_at = None;
        self.pull = None;
        self.pull_failed = None;
        self.retry = None;
    }

    /// Whether nothing is remembered that the runtime state does not show.
    pub(super) fn is_empty(&self) -> bool {
        let Self { waiting, is_replaced, crash, pull, pull_failed, retry, .. } = self;
        waiting.is_none()
            && !is_replaced
            && crash.is_none()
            && pull.is_none()
            && pull_failed.is_none()
            && retry.is_none()
    }

    /// When an image that could not be pulled is looked for again.
    fn find_again_at(&self) -> Option<Time> {
        self.pull_failed.as_ref().and(self.absent_at).map(|at| at + FIND_AGAIN)
    }

    /// Whether it waits for something else than before.
    fn wait(&mut self, reason: &str, message: impl Into<Text>) -> bool {
        let is_new = self.waiting.as_ref().is_none_or(|(before, _)| **before != *reason);
        self.waiting = Some((reason.into(), message.into()));
        is_new
    }
}

/// As Go writes a duration of whole seconds.
fn span(span: Duration) -> alloc::string::String {
    match (span.as_secs() / 60, span.as_secs() % 60) {
        (0, seconds) => format!("{seconds}s"),
        (minutes, seconds) => format!("{minutes}m{seconds}s"),
    }
}

/// As Go writes a duration, to the millisecond.
fn span_of(took: Duration) -> alloc::string::String {
    match took.as_millis() {
        millis if millis < 1000 => format!("{millis}ms"),
        millis => format!("{}.{:03}s", millis / 1000, millis % 1000),
    }
}
