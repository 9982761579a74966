//! The rest of a cluster: a scheduler.

use muster_engine::facts::{Key, Kind, Text};
use muster_engine::mutant;
use muster_engine::placement::tolerates;
use serde_json::{Value, json};

use crate::server::Actor;
use crate::world::World;

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
