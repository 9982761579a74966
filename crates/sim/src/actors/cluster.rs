//! The rest of a cluster: a scheduler, and the node lifecycle.

use std::time::Duration;

use muster_engine::facts::{Key, Kind, Text, Truth};
use muster_engine::mutant;
use muster_engine::placement::tolerates;
use serde_json::{Value, json};

use super::kubelet::set_ready;
use crate::server::Actor;
use crate::world::{Task, World};

/// How long a node may be silent before it is called unreachable.
const SILENT: Duration = Duration::from_secs(10);

impl World {
    /// Binds pending pods to the one node they may go to, if they tolerate its taints.
    pub fn schedule(&mut self) {
        let pending: Vec<(Key, Text)> = self
            .server
            .pods
            .values()
            .filter(|it| !it.bound && it.live())
            .filter_map(|pod| {
                let node = self.server.nodes.get(pod.target.as_ref()?)?;
                let blocked = node.taints.iter().any(|taint| {
                    let effect = taint.effect.as_str();
                    matches!(effect, "NoSchedule" | "NoExecute") && !tolerates(&pod.tolerations, taint)
                });
                (!blocked || mutant::is("L11")).then(|| (pod.key.clone(), node.name.clone()))
            })
            .collect();
        for (key, node) in pending {
            if mutant::is("L11") {
                continue;
            }
            let _ = self.server.update(Kind::Pods, &key, Actor::Scheduler, |it| {
                it["spec"]["nodeName"] = node.as_ref().into()
            });
        }
    }

    /// Silent nodes become Unknown and get their taints, and lose them when they report again.
    pub fn node_lifecycle(&mut self) {
        self.after(Duration::from_secs(2), Task::NodeLifecycle);
        self.evict();
        let clock = self.now.to_rfc3339();
        let nodes: Vec<Text> = self.kubelets.keys().cloned().collect();
        for node in nodes {
            let Some(kubelet) = self.kubelets.get(&node) else { continue };
            let silent = kubelet.dead_since.is_some_and(|since| since + SILENT <= self.now);
            let alive = kubelet.alive;
            if !self.server.nodes.contains_key(&node) || (!silent && !alive) {
                continue;
            }
            let was_unknown =
                self.server.nodes.get(&node).is_some_and(|it| it.ready.status == Truth::Unknown);
            let status = if silent { "Unknown" } else { "True" };
            let key = Key::new("", node.clone());
            let _ = self.server.update(Kind::Nodes, &key, Actor::NodeLifecycle, |it| {
                set_node_ready(it, status, &clock);
                set_unreachable(it, silent);
            });
            // The node's own word comes first.
            if silent && was_unknown {
                self.mark_pods_not_ready(&node, &clock);
            }
        }
    }

    fn mark_pods_not_ready(&mut self, node: &Text, clock: &str) {
        let on_node: Vec<Key> = self
            .server
            .pods
            .values()
            .filter(|it| it.bound && it.target.as_ref() == Some(node) && it.ready_since.is_some())
            .map(|it| it.key.clone())
            .collect();
        for key in on_node {
            let _ = self
                .server
                .update(Kind::Pods, &key, Actor::NodeLifecycle, |it| set_ready(it, "Running", false, clock));
        }
    }

    /// Taint eviction: a pod that does not tolerate a NoExecute taint of its node goes.
    fn evict(&mut self) {
        let evicted: Vec<Key> = self
            .server
            .pods
            .values()
            .filter(|it| it.bound && it.live())
            .filter(|pod| {
                let node = pod.target.as_ref().and_then(|it| self.server.nodes.get(it));
                let mut taints = node.into_iter().flat_map(|it| it.taints.iter());
                taints.any(|it| it.effect.as_str() == "NoExecute" && !tolerates(&pod.tolerations, it))
            })
            .map(|it| it.key.clone())
            .collect();
        for key in evicted {
            let _ = self.server.delete(Kind::Pods, &key, None, None, false, Actor::NodeLifecycle);
        }
    }
}

pub(crate) fn set_node_ready(node: &mut Value, status: &str, clock: &str) {
    let mut conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let before = conditions.iter().find(|it| it["type"] == "Ready").cloned();
    if before.is_some_and(|it| it["status"] == status) {
        return;
    }
    conditions.retain(|it| it["type"] != "Ready");
    conditions.push(json!({"type": "Ready", "status": status, "lastTransitionTime": clock}));
    node["status"]["conditions"] = conditions.into();
}

fn set_unreachable(node: &mut Value, unreachable: bool) {
    const KEY: &str = "node.kubernetes.io/unreachable";
    let mut taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    taints.retain(|it| it["key"] != KEY);
    if unreachable {
        taints.push(json!({"key": KEY, "effect": "NoSchedule"}));
        taints.push(json!({"key": KEY, "effect": "NoExecute"}));
    }
    let none_before = node["spec"]["taints"].is_null();
    if !(taints.is_empty() && none_before) {
        node["spec"]["taints"] = taints.into();
    }
}
