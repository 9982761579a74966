//! Kubelets that start, fail, stop slowly, die and come back.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use muster_engine::facts::{Key, Kind, Phase, Text};
use muster_engine::mutant;
use muster_engine::time::Time;
use serde_json::{Value, json};

use crate::server::Actor;
use crate::world::{Task, World};

/// Three may be missed before a node counts as silent.
pub const BEAT_EVERY: Duration = Duration::from_secs(3);

/// What the containers of an image do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Nature {
    #[default]
    Good,
    NeverReady,
    /// The node rejects the pod, or it ends at once.
    Fails,
    /// Runs to its end.
    Ends,
    /// Takes its node with it.
    KillsNode,
    /// Waits in the kubelet's back-off.
    Crashes,
}

#[derive(Clone, Debug, Default)]
pub struct Kubelet {
    pub alive: bool,
    /// Since when it has been silent.
    pub dead_since: Option<Time>,
    /// Containers by pod UID, and since when.
    pub running: BTreeMap<Text, Running>,
    /// How far its clock is off, in microseconds.
    pub skew: i64,
    pub start: Duration,
    pub stop: Duration,
    /// A node that is shutting down fails its pods and rejects new ones.
    pub shutting_down: bool,
}

#[derive(Clone, Debug)]
pub struct Running {
    pub key: Key,
    pub since: Time,
    pub stopping_since: Option<Time>,
}

impl World {
    pub fn add_kubelet(&mut self, node: &Text) {
        let skew_s = self.mix.skew_s * 1_000_000;
        let skew =
            i64::try_from(self.rng.below(2 * skew_s + 1)).unwrap_or(0) - i64::try_from(skew_s).unwrap_or(0);
        let start = Duration::from_millis(self.rng.between(20, 1500));
        let stop = Duration::from_millis(self.rng.between(20, 3000));
        let kubelet = Kubelet { alive: true, skew, start, stop, ..Kubelet::default() };
        self.kubelets.insert(node.clone(), kubelet);
        self.wake_kubelet(node);
    }

    /// Every node that lives renews its lease, and says that it is ready.
    pub fn beat(&mut self) {
        self.after(BEAT_EVERY, Task::Beat);
        let clock = self.now.to_rfc3339();
        let alive = self.kubelets.iter().filter(|(_, it)| it.alive).map(|(node, _)| node.clone());
        let alive: Vec<Text> = alive.filter(|it| self.server.nodes.contains_key(it)).collect();
        for node in alive {
            let ready = |it: &mut Value| set_node_ready(it, "True", &clock);
            let _ = self.server.update(Kind::Nodes, &Key::new("", node.clone()), Actor::Kubelet, ready);
            self.server.leases.insert(node, self.now);
        }
        self.expect_heartbeats();
    }

    /// One round of a kubelet: what is bound to it, and what runs on it.
    pub fn kubelet(&mut self, node: &Text) {
        if self.woken.get(node).is_some_and(|at| *at <= self.now) {
            self.woken.remove(node);
        }
        let Some(kubelet) = self.kubelets.get(node).filter(|it| it.alive) else { return };
        let (now, start, stop, shutting_down) =
            (self.now, kubelet.start, kubelet.stop, kubelet.shutting_down);
        if !self.server.nodes.contains_key(node) {
            return;
        }
        let mut again: Option<Time> = None;
        let mut at = |time: Time| again = Some(again.map_or(time, |it| it.min(time)));
        let bound: Vec<(Key, Text, bool, Phase, bool)> = self
            .server
            .objects(Kind::Pods)
            .filter(|(_, object)| object["spec"]["nodeName"].as_str() == Some(node))
            .map(|(key, object)| {
                let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
                let phase = match object["status"]["phase"].as_str() {
                    Some("Running") => Phase::Running,
                    Some("Failed") => Phase::Failed,
                    Some("Succeeded") => Phase::Succeeded,
                    _ => Phase::Pending,
                };
                let deleting = !object["metadata"]["deletionTimestamp"].is_null();
                (key.clone(), Text::from(uid), deleting, phase, is_ready(object))
            })
            .collect();
        let uids: BTreeSet<Text> = bound.iter().map(|it| it.1.clone()).collect();
        if let Some(kubelet) = self.kubelets.get_mut(node) {
            // What has no pod any more is stopped at once: it was removed by force.
            kubelet.running.retain(|uid, _| uids.contains(uid) || mutant::is("S6"));
        }
        for (key, uid, deleting, phase, ready) in bound {
            let running = self.kubelets.get(node).and_then(|it| it.running.get(&uid)).cloned();
            let image = self.image(&key);
            let nature = if shutting_down {
                Nature::Fails
            } else {
                self.natures.get(&image).copied().unwrap_or_default()
            };
            match (running, deleting) {
                (None, true) => self.remove_pod(&key, &uid),
                (Some(running), true) => {
                    let since = running.stopping_since.unwrap_or(now);
                    if since + stop <= now {
                        if let Some(kubelet) = self.kubelets.get_mut(node) {
                            kubelet.running.remove(&uid);
                        }
                        self.remove_pod(&key, &uid);
                    } else {
                        if let Some(it) = self.kubelets.get_mut(node).and_then(|it| it.running.get_mut(&uid))
                        {
                            it.stopping_since = Some(since);
                        }
                        at(since + stop);
                    }
                }
                (None, false) if matches!(phase, Phase::Pending | Phase::Running) => {
                    if nature == Nature::Fails {
                        self.set_phase(&key, "Failed", false, node);
                        continue;
                    }
                    let running = Running { key: key.clone(), since: now, stopping_since: None };
                    if let Some(kubelet) = self.kubelets.get_mut(node) {
                        kubelet.running.insert(uid.clone(), running);
                    }
                    at(now + start);
                }
                (Some(running), false) if running.since + start <= now => match nature {
                    Nature::Good if !ready || phase != Phase::Running => {
                        self.set_phase(&key, "Running", true, node)
                    }
                    Nature::NeverReady if ready || phase != Phase::Running => {
                        self.set_phase(&key, "Running", false, node)
                    }
                    Nature::Crashes => self.set_crashing(&key),
                    Nature::Fails => {
                        self.stop_container(node, &uid);
                        self.set_phase(&key, "Failed", false, node);
                    }
                    Nature::Ends => {
                        self.stop_container(node, &uid);
                        self.set_phase(&key, "Succeeded", false, node);
                    }
                    Nature::KillsNode => {
                        self.set_phase(&key, "Running", false, node);
                        self.kill_node(node);
                    }
                    Nature::Good | Nature::NeverReady => {}
                },
                (Some(running), false) => at(running.since + start),
                (None, false) => {}
            }
        }
        if let Some(at) = again {
            self.wake_kubelet_at(node, at);
        }
    }

    pub fn kill_node(&mut self, node: &Text) {
        if let Some(kubelet) = self.kubelets.get_mut(node).filter(|it| it.alive) {
            (kubelet.alive, kubelet.dead_since) = (false, Some(self.now));
            self.trace.say(self.now, || format!("node {node} dies"));
        }
    }

    pub fn revive_node(&mut self, node: &Text) {
        if let Some(kubelet) = self.kubelets.get_mut(node).filter(|it| !it.alive) {
            (kubelet.alive, kubelet.dead_since, kubelet.shutting_down) = (true, None, false);
            // A reboot: nothing runs any more, the pods are started again.
            kubelet.running.clear();
            self.trace.say(self.now, || format!("node {node} is back"));
            self.wake_kubelet(node);
        }
    }

    /// A cluster that loses its pods a few times after a call that went wrong (only as a mutant).
    pub fn lose_pods_after(&mut self, fault: bool) {
        self.losses = if fault { 4 } else { self.losses.saturating_sub(1) };
        if 0 < self.losses {
            let pods: Vec<Key> = self.server.pods.keys().cloned().collect();
            for key in pods {
                let _ = self.server.delete(Kind::Pods, &key, None, None, true, Actor::Garbage);
            }
        }
    }

    fn stop_container(&mut self, node: &Text, uid: &Text) {
        if let Some(kubelet) = self.kubelets.get_mut(node) {
            kubelet.running.remove(uid);
        }
    }

    pub fn image(&self, key: &Key) -> String {
        let object = self.server.object(Kind::Pods, key);
        object.and_then(|it| it["spec"]["containers"][0]["image"].as_str()).unwrap_or_default().to_owned()
    }

    fn remove_pod(&mut self, key: &Key, uid: &Text) {
        let finish = self
            .server
            .object(Kind::Pods, key)
            .is_some_and(|it| !it["metadata"]["finalizers"].as_array().is_none_or(Vec::is_empty));
        if finish {
            // A finalizer holds the object; the kubelet only says that nothing runs any more.
            let _ = self.server.update(Kind::Pods, key, Actor::Kubelet, |it| {
                it["status"]["phase"] = "Failed".into();
                it["status"]["conditions"] = json!([]);
            });
        } else {
            let _ = self.server.delete(Kind::Pods, key, Some(uid), None, true, Actor::Kubelet);
        }
    }

    fn set_phase(&mut self, key: &Key, phase: &str, ready: bool, node: &Text) {
        let skew = self.kubelets.get(node).map_or(0, |it| it.skew);
        let clock = Time::from_micros(self.now.as_micros() + skew).to_rfc3339();
        let _ = self.server.update(Kind::Pods, key, Actor::Kubelet, |it| set_ready(it, phase, ready, &clock));
    }

    fn set_crashing(&mut self, key: &Key) {
        let clock = self.now.to_rfc3339();
        let _ = self.server.update(Kind::Pods, key, Actor::Kubelet, |it| {
            set_ready(it, "Running", false, &clock);
            it["status"]["containerStatuses"] =
                json!([{"state": {"waiting": {"reason": "CrashLoopBackOff"}}}]);
        });
    }
}

pub fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|it| it["type"] == "Ready" && it["status"] == "True")
}

/// Sets phase and Ready; the time of Ready changes only with it.
pub fn set_ready(pod: &mut Value, phase: &str, ready: bool, clock: &str) {
    let status = if ready { "True" } else { "False" };
    let conditions = pod["status"]["conditions"].as_array();
    let before = conditions.into_iter().flatten().find(|it| it["type"] == "Ready").cloned();
    pod["status"]["phase"] = phase.into();
    if before.is_none_or(|it| it["status"] != status) {
        pod["status"]["conditions"] =
            json!([{"type": "Ready", "status": status, "lastTransitionTime": clock}]);
    }
    if let Some(status) = pod["status"].as_object_mut() {
        status.remove("containerStatuses");
    }
}

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
