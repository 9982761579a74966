//! Rollout policies, and the actions of operators on progressive rollouts. They are drawn at random, or come from the
//! script of a test case.

use muster_api::object_key::ObjectKey;
use muster_api::text::Text;
use muster_engine::daemonset::facts::Kind;
use serde_json::{Value, json};

use super::World;
use super::users::parse_object_key;
use crate::server::Actor;
use crate::user_action::UserAction;

/// Name of the RolloutPolicy in random clusters.
const RANDOM_POLICY_NAME: &str = "careful";

impl World {
    /// Adds a random RolloutPolicy that selects all sets of the default namespace. From then on, the random user
    /// actions include those of operators.
    pub fn add_random_policy(&mut self) {
        self.has_policies = true;
        let spec = self.random_policy();
        self.apply_policy(Kind::Policies, RANDOM_POLICY_NAME, spec);
        // The first revision needs some time before another one can be rolled out over it.
        self.user_actions_left += 20;
    }

    /// Executes an action of an operator on a policy or a DaemonRollout. Ignores all other actions, and actions on
    /// objects that do not exist.
    pub(super) fn execute_operator_action(&mut self, action: &UserAction) {
        match action {
            UserAction::ApplyPolicy { kind, name, spec } => {
                let spec = serde_json::from_str(spec).unwrap_or_else(|it| panic!("policy {name}: {it}"));
                self.apply_policy(*kind, name, spec);
            }
            UserAction::DeletePolicy { kind, name } => {
                let key = policy_key(*kind, name);
                let _ = self.server.delete(*kind, &key, None, None, false, Actor::User);
            }
            UserAction::PausePolicy { name, paused } => {
                let _ = self.server.update(Kind::Policies, &parse_object_key(name), Actor::User, |it| {
                    it["spec"]["paused"] = (*paused).into();
                });
            }
            UserAction::PauseRollout { set, paused } => {
                self.edit_rollout(set, |it, _| it["spec"]["paused"] = (*paused).into());
            }
            UserAction::ApproveStep { set, step, template } => {
                let hash = template.map(|it| self.hash_of_template(set, it));
                self.edit_rollout(set, |it, current| {
                    let revision = hash.unwrap_or(current);
                    it["spec"]["approve"] = json!({"revision": revision, "step": step});
                });
            }
            UserAction::AbortRollout { set, template } => {
                let hash = template.map(|it| self.hash_of_template(set, it));
                self.edit_rollout(set, |it, current| {
                    it["spec"]["abort"] = json!({"revision": hash.unwrap_or(current)});
                });
            }
            UserAction::RetryRollout { set, template } => {
                let hash = template.map(|it| self.hash_of_template(set, it));
                self.edit_rollout(set, |it, current| {
                    let attempt = it["status"]["attempt"].as_i64().unwrap_or(0) + 1;
                    it["spec"]["retry"] = json!({"revision": hash.unwrap_or(current), "attempt": attempt});
                });
            }
            UserAction::DeleteRollout { set } => {
                let key = parse_object_key(set);
                let _ = self.server.delete(Kind::Rollouts, &key, None, None, false, Actor::User);
            }
            UserAction::WipeRolloutStatus { set } => self.edit_rollout(set, |it, _| it["status"] = json!({})),
            _ => {}
        }
    }

    /// Draws a random action of an operator. Returns `None` if the action needs a set and there is none.
    pub(super) fn random_operator_action(&mut self) -> Option<UserAction> {
        let sets: Vec<String> = self.server.sets.keys().map(|it| it.name.to_string()).collect();
        let set = self.rng.pick(&sets).cloned();
        let name = || RANDOM_POLICY_NAME.to_owned();
        let is_stale = self.rng.chance(200);
        let template = is_stale.then(|| self.rng.between(1, 4));
        Some(match self.rng.below(20) {
            0..=6 => UserAction::ChangeTemplate { set: set?, number: self.rng.between(1, 4) },
            7 => UserAction::PauseRollout { set: set?, paused: true },
            8 | 9 => UserAction::PauseRollout { set: set?, paused: false },
            10 | 11 => {
                let step = if self.rng.chance(150) { "*" } else { "canary" };
                UserAction::ApproveStep { set: set?, step: step.to_owned(), template }
            }
            12 => UserAction::AbortRollout { set: set?, template },
            13 | 14 => UserAction::RetryRollout { set: set?, template },
            15 => UserAction::DeleteRollout { set: set? },
            16 => UserAction::WipeRolloutStatus { set: set? },
            17 => UserAction::PausePolicy { name: name(), paused: self.rng.chance(300) },
            18 if self.rng.chance(400) => UserAction::DeletePolicy { kind: Kind::Policies, name: name() },
            _ => UserAction::ApplyPolicy {
                kind: Kind::Policies,
                name: name(),
                spec: self.random_policy().to_string(),
            },
        })
    }

    /// Draws a random spec of a RolloutPolicy: its steps, its limits, and the reaction to a failure.
    fn random_policy(&mut self) -> Value {
        let soak = *self.rng.pick(&["0s", "5s", "15s"]).unwrap_or(&"0s");
        let approval = if self.rng.chance(250) { "Manual" } else { "Automatic" };
        let canary = json!({"name": "canary", "nodes": 1, "soak": soak, "approval": approval});
        let all = json!({"name": "all", "nodes": "100%", "soak": "5s"});
        let zone_canary = json!({
            "name": "canary", "nodes": 1, "soak": soak, "selector": {"matchLabels": {"zone": "a"}},
        });
        let groups = json!({
            "name": "zones", "nodes": "100%", "soak": soak,
            "groups": {"labelKey": "zone", "maxConcurrent": 1, "maxUnavailable": 1, "soak": "3s"},
        });
        let steps = [
            json!([canary, all]),
            json!([canary, {"name": "half", "nodes": 3, "soak": soak}, all]),
            json!([canary, groups]),
            json!([zone_canary, all]),
            json!([{"name": "canary", "nodes": "50%", "soak": soak}]),
            json!([{"name": "canary", "nodes": "34%", "soak": soak, "spread": {"labelKey": "zone"}}, all]),
            json!([all]),
        ];
        let steps = self.rng.pick(&steps).cloned().unwrap_or_default();
        let max_nodes = [json!(0), json!(1), json!("2%"), json!("40%")];
        let orders =
            [json!({"by": "Hash"}), json!({"by": "Name"}), json!({"by": "Label", "labelKey": "zone"})];
        let pick = |world: &mut Self, of: &[&str]| Value::from(*world.rng.pick(of).unwrap_or(&""));
        json!({
            "selector": {},
            "steps": steps,
            "paused": self.rng.chance(50),
            "maxUnavailable": self.rng.between(1, 2),
            "order": self.rng.pick(&orders).cloned(),
            "failures": {
                "maxNodes": self.rng.pick(&max_nodes).cloned(),
                "maxRestarts": self.rng.below(3),
                "readyTimeout": pick(self, &["15s", "40s"]),
                "nodeNotReady": pick(self, &["Count", "Ignore"]),
            },
            "onFailure": pick(self, &["Auto", "Rollback", "Stop"]),
            "progressDeadline": pick(self, &["40s", "90s"]),
            "onDeadline": pick(self, &["Report", "Stop", "Rollback"]),
            "newNodes": if self.rng.chance(250) { "Latest" } else { "Stable" },
        })
    }

    /// Creates the policy of this kind and name. If the policy already exists, replaces its spec.
    fn apply_policy(&mut self, kind: Kind, name: &str, spec: Value) {
        let key = policy_key(kind, name);
        if self.server.object(kind, &key).is_some() {
            let _ = self.server.update(kind, &key, Actor::User, |it| it["spec"] = spec);
            return;
        }
        let kind_name = if kind == Kind::ClusterPolicies { "ClusterRolloutPolicy" } else { "RolloutPolicy" };
        let policy = json!({
            "apiVersion": "muster.dev/v1alpha1", "kind": kind_name,
            "metadata": {"name": key.name.as_ref(), "namespace": key.namespace.as_ref()}, "spec": spec,
        });
        let _ = self.server.create(kind, policy, Actor::User);
    }

    /// Updates the DaemonRollout of a set as an operator. `change` gets the object and the hash of the current
    /// revision. The hash is the text `none` if the status names no revision.
    fn edit_rollout(&mut self, set: &str, change: impl FnOnce(&mut Value, String)) {
        let _ = self.server.update(Kind::Rollouts, &parse_object_key(set), Actor::User, |it| {
            let current = it["status"]["current"]["revision"].as_str().unwrap_or("none").to_owned();
            change(it, current);
        });
    }

    /// Returns the hash of the set's newest revision with the image `SET:number`. Returns the text `none` if there is
    /// no such revision.
    fn hash_of_template(&self, set: &str, number: u64) -> String {
        let image = format!("{set}:{number}");
        let uid = self.server.sets.get(&parse_object_key(set)).map(|it| it.uid.clone());
        let revisions = self.server.revisions.values().filter(|it| it.owner == uid);
        let of_image = revisions.filter(|it| {
            let object = self.server.object(Kind::Revisions, &it.key);
            object
                .is_some_and(|it| it["data"]["spec"]["template"]["spec"]["containers"][0]["image"] == *image)
        });
        let newest = of_image.max_by_key(|it| it.number).and_then(|it| it.hash_label().cloned());
        newest.unwrap_or_else(|| Text::from("none")).to_string()
    }

    /// Whether the set that owns a DaemonRollout does not exist any more. A set of the same name may have been created
    /// since.
    pub(super) fn is_owner_gone(&self, rollout: &ObjectKey) -> bool {
        let Some(object) = self.server.object(Kind::Rollouts, rollout) else { return false };
        let owner = object["metadata"]["ownerReferences"][0]["uid"].as_str();
        owner.is_some_and(|owner| !self.server.sets.values().any(|it| *it.uid == *owner))
    }

    /// Deletes the DaemonRollout of a deleted set, as the garbage collector would.
    pub(super) fn garbage_collect_rollout(&mut self, set: &ObjectKey) {
        let _ = self.server.delete(Kind::Rollouts, set, None, None, false, Actor::GarbageCollector);
    }
}

/// Returns the key of a policy. A ClusterRolloutPolicy has no namespace.
fn policy_key(kind: Kind, name: &str) -> ObjectKey {
    if kind == Kind::ClusterPolicies { ObjectKey::new("", name) } else { parse_object_key(name) }
}
