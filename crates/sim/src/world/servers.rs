//! The second API server: which server handles a request, how the lagging server catches up, and moves of clients
//! between the servers.

use std::time::Duration;

use muster_api::object_key::ObjectKey;
use muster_api::text::Text;
use muster_engine::daemonset::facts::Kind;

use super::replica::ListVersion;
use super::{SimTask, World};
use crate::controllers::SimController;
use crate::lagging_server::{LaggingServer, ReadBarrier, ServerFaults, ServerId, visible_revision};

/// What happens to a request when it is to reach a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RequestAdmission {
    /// The server handles the request.
    Handled,
    /// The server handles the request later.
    Waits,
    /// The request gets no response: the server is down, or the request does not reach it in time.
    Unreachable,
}

impl World {
    /// Adds a second API server, which lags behind. Draws the server of each built-in controller and of each kubelet
    /// again.
    pub fn add_lagging_server(&mut self, faults: ServerFaults) {
        let lagging = LaggingServer::new(faults);
        for controller in self.controllers.values_mut() {
            controller.set_server(lagging.random_server(&mut self.rng));
        }
        for kubelet in self.kubelets.values_mut() {
            kubelet.server = lagging.random_server(&mut self.rng);
        }
        self.lagging = Some(lagging);
    }

    /// Returns the revision up to which the state of a server is complete.
    pub(super) fn visible_revision(&self, server: ServerId) -> u64 {
        visible_revision(server, &self.server, self.lagging.as_ref())
    }

    /// Whether a server is running.
    pub(super) fn is_server_up(&self, server: ServerId) -> bool {
        self.lagging.as_ref().is_none_or(|it| it.down != Some(server))
    }

    /// Draws the server to which a client sends its next request. The watches of the client are on `server`.
    pub(super) fn route_request(&mut self, server: ServerId) -> ServerId {
        self.lagging.as_ref().map_or(server, |it| it.route_request(server, &mut self.rng))
    }

    /// Draws the server to which a process connects when it starts.
    pub(super) fn random_server(&mut self) -> ServerId {
        self.lagging.as_ref().map_or(ServerId::Current, |it| it.random_server(&mut self.rng))
    }

    /// Returns the read barrier of a request that arrives now.
    pub(super) fn read_barrier(&self) -> ReadBarrier {
        ReadBarrier { revision: self.server.revision(), acknowledged: self.checks.acknowledged_revision }
    }

    /// Decides whether a server handles a request now. If the request must wait, `task` is executed when the request
    /// can be handled. `barrier` is the read barrier of the request, and `written` the object that it writes, if it
    /// writes a known object. Checks S17: the server handles the request in a state that contains every write that was
    /// acknowledged before the request.
    pub(super) fn admit_request(
        &mut self,
        server: ServerId,
        barrier: ReadBarrier,
        written: Option<&(Kind, ObjectKey)>,
        task: SimTask,
    ) -> RequestAdmission {
        if !self.is_server_up(server) {
            return RequestAdmission::Unreachable;
        }
        let Some(lagging) = self.lagging.as_ref().filter(|_| server == ServerId::Lagging) else {
            return RequestAdmission::Handled;
        };
        if let Some(revision) = lagging.revision_to_wait_for(&self.server, barrier, written) {
            self.wait_for_revision(revision, task);
            return RequestAdmission::Waits;
        }
        self.checks.check_fresh_state(barrier.acknowledged, lagging.revision());
        RequestAdmission::Handled
    }

    /// Executes `task` when the lagging server has reached a revision.
    pub(super) fn wait_for_revision(&mut self, revision: u64, task: SimTask) {
        self.sequence += 1;
        self.waiting_tasks.insert((revision, self.sequence), task);
        self.schedule_ready_tasks();
    }

    /// Keeps the lagging server within its maximum lag, and schedules the task with which it catches up further.
    pub(super) fn follow_store(&mut self) {
        let Some(lagging) = &self.lagging else { return };
        if lagging.down == Some(ServerId::Lagging) {
            return;
        }
        let missing = lagging.count_missing_commits(&self.server);
        self.apply_to_lagging_server(missing.saturating_sub(lagging.faults.lag_max));
        let Some(lagging) = &mut self.lagging else { return };
        if 0 < lagging.count_missing_commits(&self.server) && !lagging.is_catch_up_scheduled {
            lagging.is_catch_up_scheduled = true;
            let delay = Duration::from_millis(self.rng.between(1, lagging.faults.catch_up_ms_max.max(1)));
            self.schedule_after(delay, SimTask::CatchUp);
        }
    }

    /// Makes the lagging server apply a random number of the commits that it misses, at least one.
    pub(super) fn catch_up(&mut self) {
        let Some(lagging) = &mut self.lagging else { return };
        lagging.is_catch_up_scheduled = false;
        if lagging.down == Some(ServerId::Lagging) {
            return;
        }
        let missing = lagging.count_missing_commits(&self.server);
        let count = self.rng.between(1, missing.max(1));
        self.apply_to_lagging_server(count);
    }

    /// Makes the lagging server apply at most `count` of the commits that it misses. Schedules the delivery of these
    /// commits to the watches of this server, and the tasks that waited for them.
    fn apply_to_lagging_server(&mut self, count: u64) {
        let Some(lagging) = &mut self.lagging else { return };
        let before = lagging.revision();
        let mut kinds = lagging.apply_commits(&self.server, count);
        kinds.sort_unstable();
        kinds.dedup();
        let changes_pods = kinds.iter().any(|it| matches!(it, Kind::Pods | Kind::Nodes));
        for node in self.kubelets_of(ServerId::Lagging) {
            let is_waiting = self.kubelets.get(&node).is_some_and(|it| before < it.watched_revision());
            if changes_pods || is_waiting {
                self.schedule_kubelet_sync(&node);
            }
        }
        for kind in kinds {
            for replica in 0..self.replicas.len() {
                self.schedule_delivery(replica, kind);
            }
            self.schedule_delivery_to_controllers(ServerId::Lagging, kind);
        }
        self.schedule_ready_tasks();
    }

    /// Schedules the tasks that waited for a revision that the lagging server has reached.
    fn schedule_ready_tasks(&mut self) {
        let Some(lagging) = &self.lagging else { return };
        let later = self.waiting_tasks.split_off(&(lagging.revision() + 1, 0));
        let ready = std::mem::replace(&mut self.waiting_tasks, later);
        for task in ready.into_values() {
            self.schedule_after(Duration::ZERO, task);
        }
    }

    /// Injects random faults of the two servers: kills a server, or moves clients to the other server. Does nothing
    /// while a server is down.
    pub(super) fn inject_server_faults(&mut self) {
        let Some(lagging) = &mut self.lagging else { return };
        let kills = self.rng.chance(lagging.faults.kill);
        if lagging.down.is_some() {
            return;
        }
        if kills {
            let server = if self.rng.chance(500) { ServerId::Lagging } else { ServerId::Current };
            return self.kill_server(server);
        }
        for index in 0..self.replicas.len() {
            if self.draw_client_move() {
                self.move_replica(index);
            }
        }
        for controller in self.controllers.keys().copied().collect::<Vec<_>>() {
            if self.draw_client_move() {
                self.move_controller(controller);
            }
        }
        for node in self.kubelets.keys().cloned().collect::<Vec<_>>() {
            if self.draw_client_move() {
                self.move_kubelet(&node);
            }
        }
    }

    /// Returns the nodes whose kubelets watch this server.
    fn kubelets_of(&self, server: ServerId) -> Vec<Text> {
        self.kubelets.iter().filter(|(_, it)| it.server == server).map(|(node, _)| node.clone()).collect()
    }

    /// Draws at random whether the next client is moved to the other server. Always `false` if there is one server.
    fn draw_client_move(&mut self) -> bool {
        self.lagging.as_ref().is_some_and(|it| self.rng.chance(it.faults.move_client))
    }

    /// Kills a server. Requests that it has not answered get no response. Its clients continue on the other server. A
    /// built-in controller may also crash with the server, as if it ran in the same process, and start again on the
    /// other server.
    pub fn kill_server(&mut self, server: ServerId) {
        let Some(lagging) = self.lagging.as_mut().filter(|it| it.down.is_none()) else { return };
        self.trace.add_line(self.now, || format!("the {server:?} server is killed"));
        lagging.down = Some(server);
        let down = Duration::from_millis(self.rng.between(500, 20_000));
        if server == ServerId::Lagging {
            for task in std::mem::take(&mut self.waiting_tasks).into_values() {
                self.schedule_after(Duration::ZERO, task);
            }
        }
        self.schedule_after(down, SimTask::StartServer(server));
        for index in 0..self.replicas.len() {
            if self.replicas[index].server == server {
                self.move_replica(index);
            }
        }
        for controller in self.controllers.keys().copied().collect::<Vec<_>>() {
            if self.controllers.get(&controller).is_some_and(|it| it.server() == server) {
                if self.rng.chance(300) {
                    self.restart_controller(controller, server.other());
                } else {
                    self.move_controller(controller);
                }
            }
        }
        for node in self.kubelets_of(server) {
            self.move_kubelet(&node);
        }
    }

    /// Starts a killed server. The lagging server first applies all commits that it misses.
    pub fn start_server(&mut self, server: ServerId) {
        let Some(lagging) = self.lagging.as_mut().filter(|it| it.down == Some(server)) else { return };
        lagging.down = None;
        self.trace.add_line(self.now, || format!("the {server:?} server starts"));
        if server == ServerId::Lagging {
            self.apply_to_lagging_server(u64::MAX);
        }
    }

    /// Ends the faults of the two servers: starts a killed server, and ends the lag of the lagging server.
    pub(super) fn end_server_faults(&mut self) {
        let Some(lagging) = &mut self.lagging else { return };
        lagging.faults.turn_off();
        if let Some(down) = lagging.down {
            self.start_server(down);
        }
    }

    /// Moves each running replica of the DaemonSet controller to the server that it does not use now. A replica stays
    /// if the other server is not running.
    pub fn move_replicas(&mut self) {
        for index in 0..self.replicas.len() {
            self.move_replica(index);
        }
    }

    /// Moves the watches of a replica of the DaemonSet controller to the other server. A watch is resumed there from
    /// its last revision after a short interruption, or the kind is listed again. Does nothing if the replica or the
    /// other server is not running.
    ///
    /// Rule: a watch from a resourceVersion that the server has not reached yet delivers nothing until it has. A list
    /// that must not be older than a resourceVersion waits in the same way.
    pub(super) fn move_replica(&mut self, index: usize) {
        let server = self.replicas[index].server.other();
        if self.lagging.is_none() || !self.replicas[index].alive || !self.is_server_up(server) {
            return;
        }
        self.trace.add_line(self.now, || format!("replica {index} moves to the {server:?} server"));
        self.replicas[index].server = server;
        let can_list = self.replicas[index].can_send_requests(self.now);
        for kind in Kind::ALL {
            let list = self.rng.below(6);
            let gap = Duration::from_millis(self.rng.between(1, 2000));
            if self.replicas[index].awaits_list(kind) {
                self.list_kind(index, kind, ListVersion::Fresh);
                continue;
            }
            let Some(watched) = self.replicas[index].delivered_revision(kind) else { continue };
            match list {
                0 if can_list => self.list_kind(index, kind, ListVersion::Any),
                1 if can_list => self.list_kind(index, kind, ListVersion::NotOlderThan(watched)),
                2 if can_list => self.list_kind(index, kind, ListVersion::Fresh),
                _ => self.resume_watch(index, kind, watched, gap),
            }
        }
    }

    /// Moves a built-in controller to the other server, where its watches are resumed. Does nothing if the controller
    /// does not exist, if there is no other server, or if the other server is down.
    pub(super) fn move_controller(&mut self, controller: SimController) {
        let Some(process) = self.controllers.get_mut(&controller) else { return };
        let server = process.server().other();
        if self.lagging.as_ref().is_none_or(|it| it.down == Some(server)) {
            return;
        }
        process.set_server(server);
        self.trace.add_line(self.now, || format!("{controller:?} moves to the {server:?} server"));
        for kind in Kind::ALL {
            self.schedule_delivery_to_controllers(server, kind);
        }
    }

    /// Moves the watch of a kubelet to the other server, where it is resumed.
    fn move_kubelet(&mut self, node: &Text) {
        if let Some(kubelet) = self.kubelets.get_mut(node) {
            kubelet.server = kubelet.server.other();
            self.schedule_kubelet_sync(node);
        }
    }
}

#[cfg(test)]
mod tests {
    use muster_store::Store;
    use serde_json::json;

    use super::*;
    use crate::faults::FaultRates;
    use crate::server::Actor;

    #[test]
    fn tasks_wait_for_their_revision_in_order() {
        let mut world = World::new(1, 1, FaultRates::without_faults());
        world.add_lagging_server(ServerFaults::only_lag(2));
        for name in ["a", "b"] {
            world.server.create(Kind::Nodes, json!({"metadata": {"name": name}}), Actor::User).unwrap();
        }
        let first = Store::FIRST_REVISION + 1;
        world.wait_for_revision(first + 1, SimTask::SendHeartbeats);
        world.wait_for_revision(first, SimTask::SendBookmarks);
        world.wait_for_revision(first, SimTask::InjectFaults);
        assert!(world.tasks.is_empty());
        world.apply_to_lagging_server(1);
        assert_eq!(Vec::from_iter(world.tasks.values()), [&SimTask::SendBookmarks, &SimTask::InjectFaults]);
        assert_eq!(Vec::from_iter(world.waiting_tasks.values()), [&SimTask::SendHeartbeats]);
        world.tasks.clear();
        world.apply_to_lagging_server(1);
        assert_eq!(Vec::from_iter(world.tasks.values()), [&SimTask::SendHeartbeats]);
        assert!(world.waiting_tasks.is_empty());
    }
}
