//! Injects faults into processes and nodes, at the fault rates of the seed.

use std::time::Duration;

use muster_api::object_key::ObjectKey;
use muster_api::text::Text;
use muster_engine::daemonset::facts::Kind;

use super::{SimTask, World};
use crate::server::Actor;

impl World {
    /// Injects random faults and user actions, and schedules the next injection.
    pub fn inject_faults(&mut self) {
        self.schedule_after(Duration::from_millis(500), SimTask::InjectFaults);
        self.inject_server_faults();
        for replica in 0..self.replicas.len() {
            if self.rng.chance(self.fault_rates.crash) {
                self.crash_replica(replica);
            }
            if self.rng.chance(self.fault_rates.freeze_process) {
                let span = Duration::from_millis(self.rng.between(500, 40_000));
                self.freeze_replica(replica, span);
            }
            if self.rng.chance(self.fault_rates.cut_off) {
                let span = Duration::from_millis(self.rng.between(500, 30_000));
                self.partition_replica(replica, span);
            }
            if self.rng.chance(self.fault_rates.clock_step) {
                let seconds = i64::try_from(self.rng.below(7200)).unwrap_or(0) - 3600;
                self.step_clock(replica, seconds * 1_000_000);
            }
        }
        if self.rng.chance(self.fault_rates.node_fault) {
            let Some(node) = self.random_node() else { return };
            let dead = self.kubelets.get(&node).is_some_and(|it| !it.alive);
            if dead { self.reboot_node(&node) } else { self.crash_node(&node) }
        }
        if self.rng.chance(self.fault_rates.kubelet_crash)
            && let Some(node) = self.random_node()
        {
            self.restart_kubelet_of(&node);
        }
        if self.rng.chance(self.fault_rates.container_crash)
            && let Some(node) = self.random_node()
        {
            self.crash_random_container(&node);
        }
        if self.rng.chance(self.fault_rates.user) && 0 < self.user_actions_left {
            self.user_actions_left -= 1;
            self.execute_random_user_action();
        }
    }

    /// Draws one of the nodes. Returns `None` if the cluster has no nodes.
    fn random_node(&mut self) -> Option<Text> {
        let nodes: Vec<Text> = self.kubelets.keys().cloned().collect();
        self.rng.pick(&nodes).cloned()
    }

    /// Ends all faults and allows no further user actions. Starts a killed API server. Reboots crashed nodes, ends
    /// shutdowns of nodes, and ends the clock steps, network partitions and stalled watches of replicas. Removes the
    /// finalizers of all pods, removes the pod quota, and switches on the scheduler and the garbage collector. Resets
    /// every image to the default behaviour, in which its containers become ready.
    pub fn end_all_faults(&mut self) {
        self.fault_rates.turn_off_faults();
        self.end_server_faults();
        self.user_actions_left = 0;
        self.image_behaviours.clear();
        self.server.quota = None;
        (self.scheduler_runs, self.garbage_collector_runs) = (true, true);
        for index in 0..self.replicas.len() {
            self.end_replica_faults(index);
        }
        let held: Vec<ObjectKey> = self.server.pods.keys().cloned().collect();
        for key in held {
            let free = |it: &mut serde_json::Value| {
                if !it["metadata"]["finalizers"].is_null() {
                    it["metadata"]["finalizers"] = serde_json::json!([]);
                }
            };
            let _ = self.server.update(Kind::Pods, &key, Actor::User, free);
        }
        let nodes: Vec<Text> = self.kubelets.keys().cloned().collect();
        for node in nodes {
            self.reboot_node(&node);
            if let Some(kubelet) = self.kubelets.get_mut(&node) {
                kubelet.shutting_down = false;
            }
            self.schedule_kubelet_sync(&node);
        }
    }
}
