//! The end of a pod: its containers, then its sandbox, then all that is left of it.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use muster_api::text::Text;
use muster_api::time::Time;

use super::running_container::{Hook, RunningContainer};
use super::{Action, Cleaned, Container, Pod};
use crate::daemonset::facts::Phase;

/// The least that a container is given to end.
pub(super) const GRACE_MIN: Duration = Duration::from_secs(2);

/// Grace is counted in whole seconds: less than this is no change.
const NOTICEABLE: Duration = Duration::from_secs(1);

impl Pod {
    /// Whether nothing is to be begun any more.
    pub(super) fn is_ending(&self) -> bool {
        self.is_gone || self.object.deletion_grace.is_some() || self.ending.is_some() || self.ended.is_some()
    }

    pub(super) fn is_deleting(&self) -> bool {
        self.is_gone || self.object.deletion_grace.is_some()
    }

    /// All must have ended within `grace` from now, or earlier if that was said before.
    pub(super) fn limit(&mut self, grace: Duration, now: Time) {
        let by = now + grace;
        self.end_by = Some(self.end_by.map_or(by, |it| it.min(by)));
    }

    pub(super) fn limit_by_deletion(&mut self, now: Time) {
        if let Some(grace) = self.object.deletion_grace {
            self.limit(grace, now);
        }
    }

    pub(super) fn wind_down(&mut self, now: Time) {
        let by = self.end_by.unwrap_or(now + self.object.spec.grace);
        let last = self.last_to_run();
        last.iter().for_each(|it| self.stop(it, by, None, now));
        let begins = |it: &Action| matches!(it, Action::Start { .. } | Action::RunSandbox { .. });
        if !last.is_empty() || self.is_under_way(begins) {
            return;
        }
        if self.ended.is_none() {
            self.ended = Some(self.outcome());
        }
        let sandboxes: Vec<Text> =
            self.seen.iter().flat_map(|it| &it.sandboxes).map(|it| it.id.clone()).collect();
        let (done, rest): (Vec<_>, Vec<_>) = sandboxes.into_iter().partition(|it| self.stopped.contains(it));
        let is_stopped = rest.is_empty();
        rest.into_iter().for_each(|id| _ = self.give(Action::StopSandbox { id }, now));
        if !is_stopped || self.is_under_way(|it| matches!(it, Action::Prepare)) {
            return;
        }
        if !self.is_deleting() {
            self.is_prepared = false;
            if self.cleaned == Cleaned::Not {
                self.give(Action::CleanUp { with_logs: false }, now);
            }
            return;
        }
        // How its containers ended is not known to anybody once they are gone.
        if !self.is_reported(now) {
            return;
        }
        let strays = self.seen.iter().flat_map(|it| &it.containers).filter(|it| !done.contains(&it.sandbox));
        let strays: Vec<Text> = strays.map(|it| it.id.clone()).collect();
        if !done.is_empty() || !strays.is_empty() {
            done.into_iter().for_each(|id| _ = self.give(Action::RemoveSandbox { id }, now));
            strays.into_iter().for_each(|id| _ = self.give(Action::RemoveContainer { id }, now));
        } else if self.cleaned != Cleaned::All {
            self.give(Action::CleanUp { with_logs: true }, now);
        } else if !self.is_gone && !self.object.is_static {
            self.give(Action::Delete, now);
        }
    }

    /// Rule: main containers end side by side; sidecars after them, one by one, the last one first.
    fn last_to_run(&self) -> Vec<Container> {
        let running = self.seen.iter().flat_map(|it| &it.containers).filter(|it| it.state.may_run());
        let place = |it: &Container| self.object.spec.sidecars().position(|sidecar| sidecar.name == it.name);
        let first: Option<Option<usize>> =
            running.clone().map(place).max_by_key(|it| it.map_or(usize::MAX, |it| it));
        running.filter(|it| first == Some(place(it))).cloned().collect()
    }

    /// Ends one container by then. Asked again with an earlier time, it ends it earlier.
    pub(super) fn stop(&mut self, container: &Container, by: Time, why: Option<String>, now: Time) {
        let (id, name) = (container.id.clone(), container.name.clone());
        let has_hook = self.object.spec.find(&name).is_some_and(|it| it.has_pre_stop);
        let is_stopping =
            self.is_under_way(|it| matches!(it, Action::Stop { id, .. } if *id == container.id));
        let before = self.running_containers.get(&id).and_then(|it| it.stop_by);
        if is_stopping && before.is_none_or(|before| before <= by + NOTICEABLE) {
            return;
        }
        let by = before.map_or(by, |it| it.min(by));
        let grace = by.since(now);
        let pre_stop = before.is_none() && has_hook && !grace.is_zero();
        if !self.give(Action::Stop { container: name.clone(), id: id.clone(), grace, pre_stop }, now) {
            return;
        }
        let running = self
            .running_containers
            .entry(id)
            .or_insert_with(|| RunningContainer::new(&name, now, Hook::Done));
        running.stop_by = Some(by);
        if before.is_none() {
            self.note("Killing", why.unwrap_or_else(|| format!("Stopping container {name}")));
        }
    }

    /// Whether anything of it runs, or is about to.
    pub(super) fn is_any_running(&self) -> bool {
        self.is_under_way(|it| matches!(it, Action::Start { .. }))
            || self.seen.iter().flat_map(|it| &it.containers).any(|it| it.state.may_run())
    }

    /// Rule: a pod that was ended has failed, unless it was deleted and all its containers went well.
    fn outcome(&self) -> Phase {
        let main = &self.object.spec.main;
        let all_well = !main.is_empty() && main.iter().all(|it| self.exit_code(it) == Some(0));
        if self.ending.is_none() && all_well { Phase::Succeeded } else { Phase::Failed }
    }
}
