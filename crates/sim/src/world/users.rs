//! Executes user actions on the cluster, and draws random user actions.

use std::time::Duration;

use muster_api::object_key::ObjectKey;
use muster_api::text::Text;
use muster_api::well_known::LABEL_CONTROLLER_REVISION_HASH;
use muster_engine::daemonset::facts::Kind;
use muster_engine::scenario;
use serde_json::{Value, json};

use super::World;
use crate::kubelet::ImageBehaviour;
use crate::server::Actor;
use crate::user_action::{ScriptPodRef, SetDeletion, UserAction};

impl World {
    /// Executes one user action. An action on an object that does not exist has no effect.
    pub fn execute_user_action(&mut self, action: &UserAction) {
        self.trace.add_line(self.now, || format!("user: {action:?}"));
        match action {
            UserAction::ChangeTemplate { set, number } => self.edit_set(set, |it| {
                let name = it["metadata"]["name"].as_str().unwrap_or_default();
                it["spec"]["template"]["spec"]["containers"][0]["image"] = format!("{name}:{number}").into();
            }),
            UserAction::ChangeStrategy { set, strategy } => {
                let strategy = strategy.clone();
                self.edit_set(set, |it| it["spec"]["updateStrategy"] = parse_strategy(&strategy));
            }
            UserAction::ChangeMinReadySeconds { set, seconds } => self.edit_set(set, |it| it["spec"]["minReadySeconds"] = (*seconds).into()),
            UserAction::ChangeRevisionHistoryLimit { set, limit } => self.edit_set(set, |it| it["spec"]["revisionHistoryLimit"] = (*limit).into()),
            UserAction::ChangeTolerations { set, key } => self.edit_set(set, |it| {
                it["spec"]["template"]["spec"]["tolerations"] =
                    key.iter().map(|key| json!({"key": key, "operator": "Exists"})).collect();
            }),
            UserAction::ChangeNodeSelector { set, label } => self.edit_set(set, |it| {
                it["spec"]["template"]["spec"]["nodeSelector"] =
                    label.as_ref().map_or_else(|| json!({}), |(key, value)| json!({ key: value }));
            }),
            UserAction::ApplyNewDefaults { set } => self.edit_set(set, |it| {
                it["spec"]["template"]["spec"]["containers"][0]["terminationMessagePolicy"] = "File".into();
                it["spec"]["template"]["spec"]["restartPolicy"] = "Always".into();
            }),
            UserAction::ClearSelector { set } => self.edit_set(set, |it| it["spec"]["selector"] = json!({})),
            UserAction::AddForeignCondition { set } => self.edit_set(set, |it| {
                let mut conditions = it["status"]["conditions"].as_array().cloned().unwrap_or_default();
                conditions.retain(|it| it["type"] != "StatusUpdate");
                conditions.push(json!({"type": "StatusUpdate", "status": "True", "reason": "E2E", "message": "set from outside"}));
                it["status"]["conditions"] = conditions.into();
                it["status"]["ofANewerCluster"] = "kept".into();
            }),
            UserAction::DeleteSet { set, how } => self.delete_set(&parse_object_key(set), *how),
            UserAction::AddObjects { lines } => self.add_scenario_objects(lines),
            UserAction::DeletePod { pod, force } => {
                if let Some(key) = self.find_pod(pod) {
                    let _ = self.server.delete(Kind::Pods, &key, None, None, *force, Actor::User);
                }
            }
            UserAction::OrphanPod { pod } => self.edit_pod(pod, |it| it["metadata"]["ownerReferences"] = json!([])),
            UserAction::RelabelPod { pod } => self.edit_pod(pod, |it| it["metadata"]["labels"]["app"] = "debug".into()),
            UserAction::AddPodFinalizer { pod } => self.edit_pod(pod, |it| it["metadata"]["finalizers"] = json!(["example.com/hold"])),
            UserAction::RemovePodFinalizers { pod } => self.edit_pod(pod, |it| it["metadata"]["finalizers"] = json!([])),
            UserAction::ChangePodRevisionHash { pod, hash } => {
                self.edit_pod(pod, |it| it["metadata"]["labels"][LABEL_CONTROLLER_REVISION_HASH] = hash.as_str().into());
            }
            UserAction::CreateLookalikePod { set, node } => self.create_lookalike_pod(set, node),
            UserAction::DuplicateRevision { set } => self.duplicate_revision(set),
            UserAction::DeleteRevision { set } => {
                if let Some(key) = self.newest_revision(set) {
                    let _ = self.server.delete(Kind::Revisions, &key, None, None, false, Actor::User);
                }
            }
            UserAction::OrphanRevision { set } => {
                if let Some(key) = self.newest_revision(set) {
                    let _ = self.server.update(Kind::Revisions, &key, Actor::User, |it| {
                        it["metadata"]["ownerReferences"] = json!([]);
                    });
                }
            }
            UserAction::RelabelRevision { set } => {
                if let Some(key) = self.newest_revision(set) {
                    let _ = self.server.update(Kind::Revisions, &key, Actor::User, |it| {
                        it["metadata"]["labels"]["app"] = "debug".into();
                    });
                }
            }
            UserAction::CreateCollidingRevision { set, number } => self.create_colliding_revision(set, *number),
            UserAction::LabelNode { node, key, value } => self.edit_node(node, |it| match value {
                Some(value) => it["metadata"]["labels"][key] = value.as_str().into(),
                None => drop(it["metadata"]["labels"].as_object_mut().and_then(|it| it.remove(key))),
            }),
            UserAction::TaintNode { node, key, effect } => self.edit_node(node, |it| {
                let mut taints = it["spec"]["taints"].as_array().cloned().unwrap_or_default();
                taints.retain(|it| it["key"] != **key || it["effect"] != **effect);
                taints.push(json!({"key": key, "effect": effect}));
                it["spec"]["taints"] = taints.into();
            }),
            UserAction::UntaintNode { node, key } => self.edit_node(node, |it| {
                let mut taints = it["spec"]["taints"].as_array().cloned().unwrap_or_default();
                taints.retain(|it| it["key"] != **key);
                it["spec"]["taints"] = taints.into();
            }),
            UserAction::RemoveNode { node } => {
                let name = Text::from(node.as_str());
                let _ = self.server.delete(Kind::Nodes, &ObjectKey::new("", name.clone()), None, None, true, Actor::User);
                self.kubelets.remove(&name);
            }
            UserAction::CrashNode { node } => self.crash_node(&Text::from(node.as_str())),
            UserAction::CrashNodes { label } => self.nodes_with_label(label).iter().for_each(|it| self.crash_node(it)),
            UserAction::RebootNode { node } => self.reboot_node(&Text::from(node.as_str())),
            UserAction::RebootNodes { label } => self.nodes_with_label(label).iter().for_each(|it| self.reboot_node(it)),
            UserAction::RestartKubelet { node } => self.restart_kubelet_of(&Text::from(node.as_str())),
            UserAction::ShutDownNode { node } => {
                if let Some(kubelet) = self.kubelets.get_mut(node.as_str()) {
                    kubelet.shutting_down = true;
                }
                self.schedule_kubelet_sync(&Text::from(node.as_str()));
            }
            UserAction::ChangeContainerStopDelay { node, seconds } => {
                if let Some(kubelet) = self.kubelets.get_mut(node.as_str()) {
                    kubelet.stop_delay = Duration::from_secs(*seconds);
                }
            }
            UserAction::ChangeImageBehaviour { image, behaviour } => {
                self.image_behaviours.insert(image.clone(), *behaviour);
                let nodes: Vec<Text> = self.kubelets.keys().cloned().collect();
                nodes.iter().for_each(|it| self.schedule_kubelet_sync(it));
            }
            UserAction::ChangePodQuota { max } => self.server.quota = *max,
            UserAction::MarkNamespaceTerminating { terminating } => self.server.namespace_terminating = *terminating,
            UserAction::SetSchedulerRunning { runs } => self.set_scheduler_enabled(*runs),
            UserAction::SetGarbageCollectorRunning { runs } => self.garbage_collector_runs = *runs,
            UserAction::CrashReplicas => {
                for index in 0..self.replicas.len() {
                    self.crash_replica(index);
                }
            }
            UserAction::CrashLeader => {
                if let Some(leader) = self.replicas.iter().position(|it| it.is_leader) {
                    self.crash_replica(leader);
                }
            }
            UserAction::FreezeLeader { seconds } => {
                let leader = self.replicas.iter().position(|it| it.is_leader).unwrap_or(0);
                self.freeze_replica(leader, Duration::from_secs(*seconds));
            }
            UserAction::SwitchServer => self.move_replicas(),
            UserAction::KillServer(server) => self.kill_server(*server),
            UserAction::StallWatches { kind, seconds } => self.stall_watches(*kind, Duration::from_secs(*seconds)),
            UserAction::StepClocks { seconds } => {
                for index in 0..self.replicas.len() {
                    self.step_clock(index, seconds * 1_000_000);
                }
            }
            UserAction::ResyncSets => self.enqueue_all_sets(),
            UserAction::ApplyPolicy { .. }
            | UserAction::DeletePolicy { .. }
            | UserAction::PausePolicy { .. }
            | UserAction::PauseRollout { .. }
            | UserAction::ApproveStep { .. }
            | UserAction::AbortRollout { .. }
            | UserAction::RetryRollout { .. }
            | UserAction::DeleteRollout { .. }
            | UserAction::WipeRolloutStatus { .. } => self.execute_operator_action(action),
            UserAction::Wait { seconds } => self.run_for(Duration::from_secs(*seconds)),
            UserAction::WaitUntilConverged => self.run_until_converged(),
            UserAction::WaitUntilConvergedWithin { seconds } => self.run_until_converged_within(Duration::from_secs(*seconds)),
            UserAction::InjectFault { trigger, fault } => self.next_fault = Some((*trigger, *fault)),
        }
        self.process_new_commits();
    }

    /// Executes a random user action.
    pub fn execute_random_user_action(&mut self) {
        // Operators of rollouts act in clusters with policies only, so that other clusters draw the same actions.
        let action = if self.has_policies && self.rng.chance(450) {
            self.random_operator_action()
        } else {
            self.random_user_action()
        };
        let Some(action) = action else { return };
        self.execute_user_action(&action);
    }

    /// Draws a random user action. Returns `None` if the drawn action needs an object that the cluster does not have,
    /// or adds one that it already has.
    fn random_user_action(&mut self) -> Option<UserAction> {
        let sets: Vec<String> = self.server.sets.keys().map(|it| it.name.to_string()).collect();
        let nodes: Vec<String> = self.server.nodes.keys().map(|it| it.to_string()).collect();
        let pods: Vec<String> = self.server.pods.keys().map(|it| it.name.to_string()).collect();
        let set = self.rng.pick(&sets).cloned();
        let node = self.rng.pick(&nodes).cloned();
        let pod = self.rng.pick(&pods).cloned().map(ScriptPodRef::ByName);
        let taint = || "gpu".to_owned();
        Some(match self.rng.below(35) {
            0..=5 => UserAction::ChangeTemplate { set: set?, number: self.rng.between(1, 4) },
            6 => UserAction::ChangeStrategy { set: set?, strategy: self.random_strategy() },
            7 => UserAction::ChangeMinReadySeconds { set: set?, seconds: self.rng.below(3) * 5 },
            8 => UserAction::ChangeRevisionHistoryLimit { set: set?, limit: self.rng.below(4) },
            9 => {
                let key = self.rng.chance(500).then(taint);
                UserAction::ChangeTolerations { set: set?, key }
            }
            10 => UserAction::AddForeignCondition { set: set? },
            11..=13 => UserAction::DeletePod { pod: pod?, force: self.rng.chance(300) },
            14 => UserAction::OrphanPod { pod: pod? },
            15 => UserAction::RelabelPod { pod: pod? },
            16 => UserAction::AddPodFinalizer { pod: pod? },
            17 | 18 => UserAction::RemovePodFinalizers { pod: pod? },
            19 => UserAction::CreateLookalikePod { set: set?, node: node? },
            20 => UserAction::DuplicateRevision { set: set? },
            21 => UserAction::DeleteRevision { set: set? },
            22 => UserAction::OrphanRevision { set: set? },
            23 => UserAction::CreateCollidingRevision { set: set?, number: self.rng.between(1, 4) },
            24 => {
                let value = self.rng.chance(700).then(|| "a".to_owned());
                UserAction::LabelNode { node: node?, key: "zone".into(), value }
            }
            25 => {
                let effect = if self.rng.chance(600) { "NoSchedule" } else { "NoExecute" };
                UserAction::TaintNode { node: node?, key: taint(), effect: effect.into() }
            }
            26 | 27 => UserAction::UntaintNode { node: node?, key: taint() },
            28 => UserAction::RemoveNode { node: node? },
            29 => {
                let number = self.rng.below(6);
                let name = format!("n{number}");
                if nodes.contains(&name) {
                    return None;
                }
                UserAction::AddObjects { lines: format!("node {name} label=zone:a") }
            }
            30 => {
                let image = format!("{}:{}", set?, self.rng.between(1, 4));
                let behaviours = [
                    ImageBehaviour::BecomesReady,
                    ImageBehaviour::NeverReady,
                    ImageBehaviour::PodFails,
                    ImageBehaviour::Completes,
                    ImageBehaviour::CrashesNode,
                    ImageBehaviour::CrashLoops,
                ];
                UserAction::ChangeImageBehaviour { image, behaviour: *self.rng.pick(&behaviours)? }
            }
            31 => {
                let label = self.rng.chance(500).then(|| ("zone".to_owned(), "a".to_owned()));
                UserAction::ChangeNodeSelector { set: set?, label }
            }
            32 => {
                let how = [SetDeletion::Background, SetDeletion::Foreground, SetDeletion::Orphan];
                UserAction::DeleteSet { set: set?, how: *self.rng.pick(&how)? }
            }
            33 => UserAction::ChangePodRevisionHash { pod: pod?, hash: "edited".into() },
            _ => {
                let name = ["d", "e"][usize::try_from(self.rng.below(2)).unwrap_or(0)];
                if sets.iter().any(|it| it == name) {
                    return None;
                }
                UserAction::AddObjects { lines: format!("set {name} template={}", self.rng.between(1, 4)) }
            }
        })
    }

    /// Draws a random update strategy, as a case script spells it, such as `max-surge=1`.
    pub fn random_strategy(&mut self) -> String {
        let strategies = [
            "max-unavailable=1",
            "max-unavailable=2",
            "max-unavailable=50%",
            "max-surge=1",
            "max-surge=50%",
            "on-delete",
        ];
        (*self.rng.pick(&strategies).unwrap_or(&"max-unavailable=1")).to_owned()
    }

    /// Updates a DaemonSet as a user. Does nothing if the set does not exist.
    fn edit_set(&mut self, set: &str, change: impl FnOnce(&mut Value)) {
        let _ = self.server.update(Kind::Sets, &parse_object_key(set), Actor::User, change);
    }

    /// Updates a node as a user. Does nothing if the node does not exist.
    fn edit_node(&mut self, node: &str, change: impl FnOnce(&mut Value)) {
        let _ = self.server.update(Kind::Nodes, &ObjectKey::new("", node), Actor::User, change);
    }

    /// Updates a pod as a user. Does nothing if the pod does not exist.
    fn edit_pod(&mut self, pod: &ScriptPodRef, change: impl FnOnce(&mut Value)) {
        if let Some(key) = self.find_pod(pod) {
            let _ = self.server.update(Kind::Pods, &key, Actor::User, change);
        }
    }

    /// Returns the names of the nodes with this label, a key and a value.
    fn nodes_with_label(&self, (key, value): &(String, String)) -> Vec<Text> {
        let nodes = self.server.nodes.values();
        let of_label = nodes.filter(|it| it.labels.get(key).is_some_and(|it| **it == **value));
        of_label.map(|it| it.name.clone()).collect()
    }

    /// Returns the key of the pod that a script refers to, or `None` if there is no such pod.
    fn find_pod(&self, pod: &ScriptPodRef) -> Option<ObjectKey> {
        match pod {
            ScriptPodRef::ByName(name) => {
                Some(parse_object_key(name)).filter(|it| self.server.object(Kind::Pods, it).is_some())
            }
            ScriptPodRef::OnNode { set, node } => {
                let uid = &self.server.sets.get(&parse_object_key(set))?.uid;
                let mut pods = self.server.pods.values();
                let found =
                    pods.find(|it| it.owner.as_ref() == Some(uid) && it.target.as_deref() == Some(node));
                found.map(|it| it.key.clone())
            }
        }
    }

    /// Deletes a DaemonSet with the propagation policy `how`.
    fn delete_set(&mut self, key: &ObjectKey, how: SetDeletion) {
        let finalizer = match how {
            SetDeletion::Background => None,
            SetDeletion::Foreground => Some("foregroundDeletion"),
            SetDeletion::Orphan => Some("orphan"),
        };
        if let Some(finalizer) = finalizer {
            let _ = self
                .server
                .update(Kind::Sets, key, Actor::User, |it| it["metadata"]["finalizers"] = json!([finalizer]));
        }
        let _ = self.server.delete(Kind::Sets, key, None, None, false, Actor::User);
    }

    /// Creates the objects that the lines of a scenario describe, at the current time.
    pub fn add_scenario_objects(&mut self, text: &str) {
        let lines = format!("now {}\n{}", self.now.as_micros() / 1_000_000 - scenario::EPOCH_S, text);
        let world = scenario::parse(&lines).unwrap_or_else(|it| panic!("{it}"));
        self.load_scenario(world);
    }

    /// Creates the objects of a parsed scenario, and the kubelets of its nodes.
    pub fn load_scenario(&mut self, world: scenario::World) {
        let fresh = |mut object: Value| {
            if let Some(meta) = object["metadata"].as_object_mut() {
                meta.remove("resourceVersion");
            }
            object
        };
        for object in world.nodes {
            let name = Text::from(object["metadata"]["name"].as_str().unwrap_or_default());
            let _ = self.server.create(Kind::Nodes, fresh(object), Actor::User);
            self.add_kubelet(&name);
        }
        for mut object in world.sets {
            // A set that is added later is a new object with a new UID, even under an old name.
            let exists_in_log = self
                .server
                .log
                .iter()
                .any(|it| it.kind == Kind::Sets && object["metadata"]["name"] == *it.key.name);
            if exists_in_log {
                object["metadata"]["uid"] = Value::Null;
            }
            let _ = self.server.create(Kind::Sets, fresh(object), Actor::User);
        }
        for object in world.revisions {
            let _ = self.server.create(Kind::Revisions, fresh(object), Actor::User);
        }
        for mut object in world.pods {
            self.add_running_pod(&mut object);
            let _ = self.server.create(Kind::Pods, fresh(object), Actor::User);
        }
    }

    /// Creates a pod on a node. The pod has the labels and the spec of a set's template, but no owner.
    fn create_lookalike_pod(&mut self, set: &str, node: &str) {
        let Some(object) = self.server.object(Kind::Sets, &parse_object_key(set)) else { return };
        let template = object["spec"]["template"].clone();
        let mut spec = template["spec"].clone();
        spec["nodeName"] = node.into();
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"generateName": "impostor-", "namespace": "default", "labels": template["metadata"]["labels"]},
            "spec": spec,
        });
        let _ = self.server.create(Kind::Pods, pod, Actor::User);
    }

    /// Returns the key of the set's ControllerRevision with the highest number, or `None` if the set has no revision.
    fn newest_revision(&self, set: &str) -> Option<ObjectKey> {
        let uid = &self.server.sets.get(&parse_object_key(set))?.uid;
        let mine = self.server.revisions.values().filter(|it| it.owner.as_ref() == Some(uid));
        mine.max_by_key(|it| it.number).map(|it| it.key.clone())
    }

    /// Creates a copy of the newest ControllerRevision of a set, under another name.
    fn duplicate_revision(&mut self, set: &str) {
        let Some(key) = self.newest_revision(set) else { return };
        let Some(object) = self.server.object(Kind::Revisions, &key) else { return };
        let mut copy = (**object).clone();
        let name = format!("{}-copy", key.name);
        copy["metadata"] = json!({
            "name": name, "namespace": key.namespace.as_ref(),
            "labels": object["metadata"]["labels"], "ownerReferences": object["metadata"]["ownerReferences"],
        });
        // The copy gets its own hash: with a shared hash, the template of a pod would be ambiguous.
        let hash = object["metadata"]["labels"][LABEL_CONTROLLER_REVISION_HASH].as_str().unwrap_or_default();
        copy["metadata"]["labels"][LABEL_CONTROLLER_REVISION_HASH] = format!("{hash}-copy").into();
        copy["revision"] = (object["revision"].as_i64().unwrap_or(0) + 1).into();
        let _ = self.server.create(Kind::Revisions, copy, Actor::User);
    }

    /// Creates a ControllerRevision with another template, under the name that the revision of the image `SET:number`
    /// would get.
    fn create_colliding_revision(&mut self, set: &str, number: u64) {
        let Some(object) = self.server.object(Kind::Sets, &parse_object_key(set)) else { return };
        let mut template = object["spec"]["template"].clone();
        template["spec"]["containers"][0]["image"] = format!("{set}:{number}").into();
        let collisions = object["status"]["collisionCount"].as_i64().and_then(|it| i32::try_from(it).ok());
        let hash = muster_engine::daemonset::manifest::revision_hash(&template, collisions);
        let mut other = template.clone();
        other["spec"]["containers"][0]["image"] = format!("{set}:squatter").into();
        let owner = muster_engine::daemonset::manifest::Owner {
            namespace: "default",
            name: set,
            uid: object["metadata"]["uid"].as_str().unwrap_or_default(),
        };
        let revision =
            muster_engine::daemonset::manifest::controller_revision(owner, &json!({}), &other, &hash, 1);
        let mut with_other = (**object).clone();
        with_other["spec"]["template"] = other;
        self.server.record_template(&with_other);
        let _ = self.server.create(Kind::Revisions, revision, Actor::User);
    }
}

/// Parses `NAMESPACE/NAME` or `NAME`, with `default` as the default namespace.
pub(super) fn parse_object_key(name: &str) -> ObjectKey {
    match name.split_once('/') {
        Some((namespace, name)) => ObjectKey::new(namespace, name),
        None => ObjectKey::new("default", name),
    }
}

/// Parses an update strategy of a script into the `updateStrategy` of a DaemonSet. `max-unavailable=N` sets
/// `maxUnavailable` to N and `maxSurge` to 0. `max-surge=N` sets `maxSurge` to N and `maxUnavailable` to 0.
/// `only-max-unavailable=N` sets `maxUnavailable` and omits `maxSurge`. Every other text means `OnDelete`.
fn parse_strategy(text: &str) -> Value {
    let amount = |it: &str| it.parse::<u64>().map_or_else(|_| it.trim_matches('"').into(), Value::from);
    match text.split_once('=') {
        // As stored by clusters before maxSurge existed.
        Some(("only-max-unavailable", it)) => {
            json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": amount(it)}})
        }
        Some(("max-unavailable", it)) => {
            json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": amount(it), "maxSurge": 0}})
        }
        Some(("max-surge", it)) => {
            json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": amount(it)}})
        }
        _ => json!({"type": "OnDelete"}),
    }
}
