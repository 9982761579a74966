//! Adds the kubelets of nodes, sends heartbeats, and crashes and restarts nodes.

use std::time::Duration;

use muster_api::object_key::ObjectKey;
use muster_api::text::Text;
use muster_engine::daemonset::facts::Kind;
use serde_json::{Value, json};

use super::{SimTask, World};
use crate::kubelet::{HEARTBEAT_INTERVAL, Kubelet, SyncIteration};
use crate::lagging_server::ServerId;
use crate::server::Actor;

impl World {
    /// Adds the kubelet of a node, with random clock skew and random delays of its containers.
    pub fn add_kubelet(&mut self, node: &Text) {
        let skew_s = self.fault_rates.skew_s * 1_000_000;
        let skew =
            i64::try_from(self.rng.below(2 * skew_s + 1)).unwrap_or(0) - i64::try_from(skew_s).unwrap_or(0);
        let start = Duration::from_millis(self.rng.between(20, 1500));
        let stop = Duration::from_millis(self.rng.between(20, 3000));
        let mut kubelet = Kubelet::new(skew, start, stop);
        kubelet.server = self.random_server();
        self.kubelets.insert(node.clone(), kubelet);
        self.schedule_kubelet_sync(node);
    }

    /// Makes all live nodes renew their Lease and set their Ready condition to True.
    pub fn send_heartbeats(&mut self) {
        self.schedule_after(HEARTBEAT_INTERVAL, SimTask::SendHeartbeats);
        let clock = self.now.to_rfc3339();
        let alive = self.kubelets.iter().filter(|(_, it)| it.alive).map(|(node, _)| node.clone());
        let alive: Vec<Text> = alive.filter(|it| self.server.nodes.contains_key(it)).collect();
        for node in alive {
            let ready = |it: &mut Value| set_node_ready(it, "True", &clock);
            let _ = self.server.update(Kind::Nodes, &ObjectKey::new("", node.clone()), Actor::Kubelet, ready);
            self.server.leases.insert(node, self.now);
        }
        self.schedule_lease_delivery();
    }

    /// Crashes a node. It stays down until [`World::reboot_node`].
    pub fn crash_node(&mut self, node: &Text) {
        if let Some(kubelet) = self.kubelets.get_mut(node).filter(|it| it.alive) {
            (kubelet.alive, kubelet.dead_since) = (false, Some(self.now));
            self.trace.add_line(self.now, || format!("node {node} crashes"));
        }
    }

    /// Reboots a crashed node. Its containers are stopped, and a new kubelet process starts.
    pub fn reboot_node(&mut self, node: &Text) {
        let revision = self.server.revision();
        if let Some(kubelet) = self.kubelets.get_mut(node).filter(|it| !it.alive) {
            kubelet.reboot(self.now, revision);
            self.trace.add_line(self.now, || format!("node {node} is back"));
            self.schedule_kubelet_sync(node);
        }
    }

    /// Restarts the kubelet of a node while its containers keep running.
    pub fn restart_kubelet_of(&mut self, node: &Text) {
        let revision = self.server.revision();
        if let Some(kubelet) = self.kubelets.get_mut(node) {
            kubelet.restart_kubelet(revision);
            self.trace.add_line(self.now, || format!("the kubelet of {node} restarts"));
            self.schedule_kubelet_sync(node);
        }
    }

    /// Crashes a random running container on a node. In some cases, chosen at random, the whole sandbox of the
    /// container crashes.
    pub fn crash_random_container(&mut self, node: &Text) {
        let Some(kubelet) = self.kubelets.get_mut(node).filter(|it| it.alive) else { return };
        if let Some(what) = kubelet.crash_container(&mut self.rng, self.now) {
            self.trace.add_line(self.now, || format!("{what} on {node} crashes"));
            self.schedule_kubelet_sync(node);
        }
    }

    /// Creates the sandbox and container of a pod that a scenario declares as running, and adds the container's status
    /// to `pod`, the JSON of the pod. Does nothing for a pod that is not running or whose node has no kubelet.
    pub fn add_running_pod(&mut self, pod: &mut Value) {
        let node = pod["spec"]["nodeName"].as_str();
        if let Some(kubelet) = node.and_then(|it| self.kubelets.get_mut(it)) {
            kubelet.add_running_pod(pod, self.now);
        }
    }

    /// Runs one iteration of the sync loop of a node's kubelet, which reads its bound pods and their containers, and
    /// syncs each changed pod.
    pub fn sync_kubelet(&mut self, node: &Text) {
        if self.kubelet_sync_due.get(node).is_some_and(|at| *at <= self.now) {
            self.kubelet_sync_due.remove(node);
        }
        let Self {
            now,
            server,
            lagging,
            kubelets,
            image_behaviours: behaviours,
            fault_rates,
            rng,
            checks,
            ..
        } = self;
        let Some(kubelet) = kubelets.get_mut(node).filter(|it| it.alive) else { return };
        if !server.nodes.contains_key(node) {
            return;
        }
        let clock = kubelet.node_time(*now);
        let mut iteration = SyncIteration {
            node,
            now: *now,
            clock,
            server,
            lagging: lagging.as_ref().filter(|_| kubelet.server == ServerId::Lagging),
            behaviours,
            fault_rates,
            rng,
            checks,
            next_at: None,
            crashes_node: false,
        };
        kubelet.run_sync_iteration(&mut iteration);
        let (again, crashes_node) = (iteration.next_at, iteration.crashes_node);
        if let Some(at) = again {
            self.schedule_kubelet_sync_at(node, at);
        }
        if crashes_node {
            self.crash_node(node);
        }
    }

    /// Returns the image of the first container of a pod, or an empty string if the pod does not exist.
    pub fn pod_image(&self, key: &ObjectKey) -> String {
        let object = self.server.object(Kind::Pods, key);
        object.and_then(|it| it["spec"]["containers"][0]["image"].as_str()).unwrap_or_default().to_owned()
    }
}

/// Sets the Ready condition of a node to `status`. `clock` is the transition time, if the status changes.
fn set_node_ready(node: &mut Value, status: &str, clock: &str) {
    let mut conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let before = conditions.iter().find(|it| it["type"] == "Ready").cloned();
    if before.is_some_and(|it| it["status"] == status) {
        return;
    }
    conditions.retain(|it| it["type"] != "Ready");
    conditions.push(json!({"type": "Ready", "status": status, "lastTransitionTime": clock}));
    node["status"]["conditions"] = conditions.into();
}
