//! Whole rollouts: the DaemonSet controller beside an in-memory API server and a kubelet that starts pods by their image.

use alloc::borrow::ToOwned as _;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use core::time::Duration;

use expect_test::expect;
use muster_api::object_key::ObjectKey;
use muster_api::time::Time;
use serde_json::{Value, json};

use crate::controller::CallError;
use crate::controller::MeasurementResult;
use crate::controller::test_cluster::TestCluster;
use crate::daemonset::DaemonSetController;
use crate::daemonset::facts::Kind;
use crate::daemonset::manifest::{Binding, REVISION_HASH_LABEL};
use crate::daemonset::plan::Settings;
use crate::explain::{ControllerAnswer, Snapshot};

/// Rollouts in assist mode.
mod assist;
/// Bugs that the simulator found.
mod regressions;

const NAMESPACE: &str = "default";

/// A cluster whose kubelets start every pod within a second. A container with the image `bad` crashes.
struct Fleet {
    cluster: TestCluster<DaemonSetController>,
    /// Every node that ever had a pod with the image, by image.
    exposed: BTreeMap<String, BTreeSet<String>>,
    /// Names of all pods that were ever seen.
    pods_seen: BTreeSet<String>,
    /// The largest number of nodes without a Ready pod at a time, since the first pods were Ready.
    down_max: usize,
    /// Upstream's DaemonSet controller, beside which the controller runs in assist mode. `None` without it.
    upstream: Option<assist::Upstream>,
}

fn controller() -> DaemonSetController {
    DaemonSetController::new(Settings { binding: Binding::Direct, ..Settings::default() }, 4)
}

fn daemon_set(image: &str, generation: i64) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {
            "name": "agent", "namespace": NAMESPACE, "generation": generation, "labels": {"team": "a"},
            "creationTimestamp": "1970-01-01T00:00:00Z",
            "annotations": {"deprecated.daemonset.template.generation": generation.to_string()},
        },
        "spec": {
            "selector": {"matchLabels": {"app": "agent"}},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 2}},
            "template": {
                "metadata": {"labels": {"app": "agent"}},
                "spec": {"containers": [{"name": "c", "image": image}]},
            },
        },
    })
}

fn node(name: &str, created: Time) -> Value {
    let zone = if name.ends_with(['1', '3', '5', '7', '9']) { "a" } else { "b" };
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {"zone": zone}, "creationTimestamp": created.to_rfc3339()},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}, "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": created.to_rfc3339()}]},
    })
}

fn policy(spec: &Value) -> Value {
    json!({
        "apiVersion": "muster.dev/v1alpha1", "kind": "RolloutPolicy",
        "metadata": {
            "name": "careful", "namespace": NAMESPACE, "generation": 1, "creationTimestamp": "1970-01-01T00:00:00Z",
        },
        "spec": spec,
    })
}

/// A canary of one node with a soak time of a minute, then all nodes.
fn canary() -> Value {
    json!({
        "daemonSets": ["agent"],
        "steps": [
            {"name": "canary", "nodes": 1, "soak": "60s"},
            {"name": "all", "nodes": "100%", "soak": "10s"},
        ],
    })
}

impl Fleet {
    /// Creates a fleet with this number of nodes, on which the image `v1` runs, and then a policy with this spec.
    fn new(nodes: usize, spec: &Value) -> Self {
        let mut fleet = Self::without_policy(nodes);
        fleet.cluster.put(policy(spec));
        fleet.run(5);
        fleet
    }

    fn without_policy(nodes: usize) -> Self {
        let objects = (1..=nodes).map(|it| node(&format!("n{it}"), Time::from_secs(0)));
        let mut cluster = TestCluster::new(controller(), objects.chain([daemon_set("v1", 1)]));
        cluster.now = Time::from_secs(100);
        let (exposed, pods_seen) = (BTreeMap::new(), BTreeSet::new());
        let mut fleet = Self { cluster, exposed, pods_seen, down_max: 0, upstream: None };
        fleet.run(10);
        fleet.down_max = 0;
        fleet
    }

    /// Lets the controller and the kubelets run for some seconds. Returns the calls and events.
    fn run(&mut self, seconds: u64) -> String {
        let mut log = String::new();
        for _ in 0..seconds {
            log += &self.cluster.run(Duration::from_secs(1));
            self.run_upstream();
            self.run_kubelets();
        }
        log
    }

    /// Starts new pods, and crashes those with the image `bad`.
    fn run_kubelets(&mut self) {
        let mut ready = BTreeSet::new();
        for pod in self.cluster.all("Pod") {
            let name = pod["metadata"]["name"].as_str().unwrap();
            let node = pod["spec"]["nodeName"].as_str().unwrap().to_owned();
            let image = pod["spec"]["containers"][0]["image"].as_str().unwrap();
            self.exposed.entry(image.to_owned()).or_default().insert(node.clone());
            self.pods_seen.insert(name.to_owned());
            let now = self.cluster.now.to_rfc3339();
            if pod["status"]["phase"].is_null() {
                let status = if image == "bad" {
                    json!({
                        "phase": "Running",
                        "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": now}],
                        "containerStatuses": [{
                            "name": "c", "restartCount": 5, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                        }],
                    })
                } else {
                    json!({
                        "phase": "Running",
                        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": now}],
                        "containerStatuses": [{
                            "name": "c", "restartCount": 0, "state": {"running": {"startedAt": now}},
                        }],
                    })
                };
                let name = name.to_owned();
                self.cluster.patch("Pod", &name, &json!({"status": status}));
            } else if pod["status"]["conditions"][0]["status"] == "True" {
                ready.insert(node);
            }
        }
        let nodes = self.cluster.all("Node").len();
        self.down_max = self.down_max.max(nodes.saturating_sub(ready.len()));
    }

    /// Changes the image of the DaemonSet's template.
    fn apply_image(&mut self, image: &str) {
        let generation = self.cluster.get("DaemonSet", "agent")["metadata"]["generation"].as_i64().unwrap();
        let before = self.cluster.get("DaemonSet", "agent").clone();
        let mut set = daemon_set(image, generation + 1);
        set["status"] = before["status"].clone();
        set["metadata"]["managedFields"] = before["metadata"]["managedFields"].clone();
        set["spec"]["updateStrategy"] = before["spec"]["updateStrategy"].clone();
        self.cluster.put(set);
    }

    fn patch_rollout(&mut self, spec: &Value) {
        let generation = self.rollout()["metadata"]["generation"].as_i64().unwrap_or(0) + 1;
        let patch = json!({"metadata": {"generation": generation}, "spec": spec});
        self.cluster.patch("DaemonRollout", "agent", &patch);
    }

    fn rollout(&self) -> Value {
        self.cluster.all("DaemonRollout").first().cloned().unwrap_or_default()
    }

    fn phase(&self) -> String {
        self.rollout()["status"]["phase"].as_str().unwrap_or("-").to_owned()
    }

    /// The images of all nodes, each with the number of its nodes: `v1: 3, v2: 1`.
    fn images(&self) -> String {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for pod in self.cluster.all("Pod") {
            let image = pod["spec"]["containers"][0]["image"].as_str().unwrap().to_owned();
            *counts.entry(image).or_default() += 1;
        }
        counts.iter().map(|(image, count)| format!("{image}: {count}")).collect::<Vec<_>>().join(", ")
    }

    /// The verdicts of all revisions by image: `v1 Good/Adopted`.
    fn verdicts(&self) -> Vec<String> {
        let mut revisions = self.cluster.all("ControllerRevision");
        revisions.sort_by_key(|it| it["revision"].as_i64());
        let describe = |it: &Value| {
            let image = it["data"]["spec"]["template"]["spec"]["containers"][0]["image"].as_str().unwrap();
            let annotation =
                |name: &str| it["metadata"]["annotations"][name].as_str().unwrap_or("-").to_owned();
            format!(
                "{image} {}/{}",
                annotation("muster.dev/verdict"),
                annotation("muster.dev/verdict-reason")
            )
        };
        revisions.iter().map(describe).collect()
    }

    fn condition(&self, kind: &str) -> String {
        let set = self.cluster.get("DaemonSet", "agent");
        let found =
            set["status"]["conditions"].as_array().into_iter().flatten().find(|it| it["type"] == kind);
        found.map_or("-".to_owned(), |it| {
            let text = |field: &str| it[field].as_str().unwrap_or_default().to_owned();
            format!("{} {}: {}", text("status"), text("reason"), text("message"))
        })
    }

    /// What `muster explain` and `muster plan` read.
    fn snapshot(&self) -> Snapshot {
        let mut snapshot = Snapshot::new(ObjectKey::new(NAMESPACE, "agent"));
        for kind in Kind::ALL {
            for object in self.cluster.all(kind.name()) {
                let object = serde_json::to_vec(&object).unwrap();
                snapshot.add_object(kind, &object).unwrap();
                if kind == Kind::Nodes {
                    snapshot.add_node_capacity(&object).unwrap();
                }
            }
        }
        snapshot
    }

    /// What `muster explain` says, for the whole set or for one node.
    fn explain(&self, node: Option<&str>) -> String {
        let snapshot = self.snapshot();
        let controller = ControllerAnswer::Unavailable("it was not asked".into());
        let explanation = snapshot.explain(controller, self.cluster.now).unwrap();
        node.map_or_else(|| explanation.to_string(), |node| explanation.node_text(node).unwrap())
    }

    /// The nodes that were ever exposed to an image.
    fn exposed(&self, image: &str) -> usize {
        self.exposed.get(image).map_or(0, BTreeSet::len)
    }
}

#[test]
fn without_policy_nothing_of_a_rollout_is_written() {
    let mut fleet = Fleet::without_policy(4);
    fleet.apply_image("v2");
    let log = fleet.run(30);
    assert_eq!(fleet.images(), "v2: 4");
    assert_eq!(fleet.cluster.all("DaemonRollout"), Vec::<Value>::new());
    assert!(!log.contains("daemonrollouts"), "{log}");
    assert_eq!(fleet.verdicts(), ["v1 -/-", "v2 -/-"]);
    assert_eq!((fleet.condition("Reconciling"), fleet.condition("Stalled")), ("-".into(), "-".into()));
}

#[test]
fn a_policy_that_comes_into_use_restarts_nothing_and_adopts_the_running_revision() {
    let mut fleet = Fleet::without_policy(4);
    let pods = fleet.pods_seen.clone();
    fleet.cluster.put(policy(&canary()));
    let log = fleet.run(20);
    // The status is written once: a status without a phase would be read as Complete.
    expect![[r#"
        create daemonrollouts 
        patch controllerrevisions agent-7cf4d84d5b
        update daemonrollouts agent
    "#]]
    .assert_eq(&log);
    assert_eq!((fleet.phase().as_str(), fleet.images().as_str()), ("Complete", "v1: 4"));
    assert_eq!(fleet.verdicts(), ["v1 Good/Adopted"]);
    assert_eq!(fleet.pods_seen, pods);
    assert_eq!(fleet.run(600), "", "a complete rollout writes nothing");
}

#[test]
fn a_pod_of_a_deleted_node_is_no_evidence_that_its_revision_is_good() {
    let mut fleet = Fleet::without_policy(1);
    fleet.cluster.delete("Node", "n1");
    fleet.apply_image("v2");
    fleet.cluster.put(policy(&canary()));
    fleet.run(5);
    assert_eq!(fleet.verdicts(), ["v1 -/-", "v2 -/-"]);
}

#[test]
fn a_good_revision_passes_the_canary_and_reaches_all_nodes_within_the_budget() {
    let mut fleet = Fleet::new(8, &canary());
    fleet.apply_image("v2");
    fleet.run(30);
    assert_eq!((fleet.phase().as_str(), fleet.images().as_str()), ("Soaking", "v1: 7, v2: 1"));
    assert_eq!(
        fleet.condition("Progressing"),
        "True Soaking: 1 of 8 nodes are up to date; 0 of 1 nodes of step \"canary\" have soaked"
    );
    fleet.run(120);
    assert_eq!((fleet.phase().as_str(), fleet.images().as_str()), ("Complete", "v2: 8"));
    assert_eq!(fleet.verdicts(), ["v1 Good/Adopted", "v2 Good/Passed"]);
    assert!(fleet.down_max <= 2, "{} nodes were down", fleet.down_max);
    assert_eq!(fleet.condition("Reconciling"), "-");
    assert_eq!(fleet.run(600), "", "a complete rollout writes nothing");
}

#[test]
fn a_bad_revision_is_stopped_at_the_canary_and_rolled_back() {
    let mut fleet = Fleet::new(8, &canary());
    fleet.apply_image("bad");
    fleet.run(900);
    assert_eq!((fleet.phase().as_str(), fleet.images().as_str()), ("RolledBack", "v1: 8"));
    assert_eq!(fleet.exposed("bad"), 1);
    assert_eq!(fleet.verdicts(), ["v1 Good/Adopted", "bad Bad/Failed"]);
    assert!(fleet.condition("Stalled").starts_with("True RolledBack: revision 2 failed on 1 of 1 nodes"));
    assert!(fleet.condition("Degraded").starts_with("True RolloutFailed: revision 2 failed on 1 of 1 nodes"));
    assert_eq!(fleet.run(600), "", "a rolled back rollout writes nothing");
}

#[test]
fn held_nodes_and_new_nodes_get_the_stable_revision() {
    let mut fleet = Fleet::new(4, &canary());
    fleet.apply_image("v2");
    fleet.run(10);
    assert_eq!(fleet.images(), "v1: 3, v2: 1");
    let now = fleet.cluster.now;
    for it in 10..14 {
        fleet.cluster.put(node(&format!("n{it}"), now));
    }
    // Every pod of the fleet ends: each node gets the revision that it is assigned again.
    for pod in fleet.cluster.all("Pod") {
        fleet.cluster.delete("Pod", pod["metadata"]["name"].as_str().unwrap());
    }
    fleet.run(10);
    assert_eq!(fleet.images(), "v1: 7, v2: 1");
    assert_eq!(fleet.exposed("v2"), 1);
    let generations: BTreeSet<String> = fleet
        .cluster
        .all("Pod")
        .iter()
        .map(|it| it["metadata"]["labels"]["pod-template-generation"].as_str().unwrap_or("none").to_owned())
        .collect();
    assert_eq!(generations, BTreeSet::from(["1".to_string(), "2".to_string()]));
    fleet.run(200);
    assert_eq!((fleet.phase().as_str(), fleet.images().as_str()), ("Complete", "v2: 8"));
}

#[test]
fn a_paused_rollout_replaces_nothing_and_still_fills_vacancies() {
    let mut fleet = Fleet::new(4, &canary());
    fleet.patch_rollout(&json!({"paused": true}));
    fleet.run(2);
    fleet.apply_image("v2");
    fleet.run(300);
    assert_eq!(fleet.images(), "v1: 4");
    assert_eq!(fleet.rollout()["status"]["paused"], true);
    assert!(fleet.condition("Progressing").starts_with("False Paused: 0 of 4 nodes are up to date"));
    let pod = fleet.cluster.all("Pod")[0]["metadata"]["name"].as_str().unwrap().to_owned();
    fleet.cluster.delete("Pod", &pod);
    fleet.run(5);
    assert_eq!(fleet.images(), "v1: 4");
    assert_eq!(fleet.run(300), "", "a paused rollout writes nothing");
    fleet.patch_rollout(&json!({"paused": false}));
    fleet.run(200);
    assert_eq!((fleet.phase().as_str(), fleet.images().as_str()), ("Complete", "v2: 4"));
}

#[test]
fn a_step_with_manual_approval_waits_for_it() {
    let mut spec = canary();
    spec["steps"][0]["approval"] = json!("Manual");
    let mut fleet = Fleet::new(4, &spec);
    fleet.apply_image("v2");
    fleet.run(300);
    assert_eq!((fleet.phase().as_str(), fleet.images().as_str()), ("Waiting", "v1: 3, v2: 1"));
    assert!(fleet.condition("Progressing").starts_with("False WaitingForApproval"));
    let revision = fleet.rollout()["status"]["current"]["revision"].clone();
    fleet.patch_rollout(&json!({"approve": {"revision": revision, "step": "canary"}}));
    fleet.run(100);
    assert_eq!((fleet.phase().as_str(), fleet.images().as_str()), ("Complete", "v2: 4"));
}

#[test]
fn an_aborted_rollout_returns_to_the_stable_revision() {
    let mut fleet = Fleet::new(6, &canary());
    fleet.apply_image("v2");
    fleet.run(20);
    let revision = fleet.rollout()["status"]["current"]["revision"].clone();
    fleet.patch_rollout(&json!({"abort": {"revision": revision}}));
    fleet.run(60);
    assert_eq!((fleet.phase().as_str(), fleet.images().as_str()), ("RolledBack", "v1: 6"));
    assert_eq!(fleet.verdicts(), ["v1 Good/Adopted", "v2 Bad/Aborted"]);
}

#[test]
fn a_bad_template_that_is_applied_again_stays_stopped_until_it_is_retried() {
    let mut fleet = Fleet::new(4, &canary());
    fleet.apply_image("bad");
    fleet.run(60);
    fleet.apply_image("v1");
    fleet.run(60);
    assert_eq!((fleet.phase().as_str(), fleet.images().as_str()), ("Complete", "v1: 4"));
    fleet.apply_image("bad");
    fleet.run(300);
    assert_eq!((fleet.phase().as_str(), fleet.images().as_str()), ("Stopped", "v1: 4"));
    assert!(fleet.condition("Stalled").starts_with("True Stopped: the revision failed before"));
    let revision = fleet.rollout()["status"]["current"]["revision"].clone();
    fleet.patch_rollout(&json!({"retry": {"revision": revision, "attempt": 2}}));
    fleet.run(60);
    assert_eq!((fleet.phase().as_str(), fleet.images().as_str()), ("RolledBack", "v1: 4"));
    assert_eq!(fleet.rollout()["status"]["attempt"], 2);
    assert_eq!(fleet.exposed("bad"), 1, "every attempt from one stable revision takes the same nodes first");
}

#[test]
fn a_deleted_policy_holds_a_rollout_that_is_rolled_back() {
    let mut fleet = Fleet::new(4, &canary());
    fleet.apply_image("bad");
    fleet.run(60);
    fleet.cluster.delete("RolloutPolicy", "careful");
    fleet.run(300);
    assert_eq!((fleet.phase().as_str(), fleet.images().as_str()), ("RolledBack", "v1: 4"));
    // Without the DaemonRollout the verdict still holds.
    fleet.cluster.delete("DaemonRollout", "agent");
    fleet.run(300);
    assert_eq!((fleet.images().as_str(), fleet.exposed("bad")), ("v1: 4", 1));
    assert!(fleet.condition("Stalled").starts_with("True KnownBad"));
}

#[test]
fn another_template_in_mid_canary_takes_the_same_node_first() {
    let mut fleet = Fleet::new(6, &canary());
    fleet.apply_image("v2");
    fleet.run(20);
    fleet.apply_image("v3");
    fleet.run(20);
    assert_eq!((fleet.phase().as_str(), fleet.images().as_str()), ("Soaking", "v1: 5, v3: 1"));
    assert_eq!(fleet.exposed["v2"], fleet.exposed["v3"]);
    assert_eq!(fleet.verdicts(), ["v1 Good/Adopted", "v2 Superseded/Superseded", "v3 -/-"]);
    // Back to the stable revision: only the canary is touched.
    let pods = fleet.pods_seen.len();
    fleet.apply_image("v1");
    fleet.run(60);
    assert_eq!((fleet.phase().as_str(), fleet.images().as_str()), ("Complete", "v1: 6"));
    assert_eq!(fleet.pods_seen.len(), pods + 1);
}

#[test]
fn a_controller_that_restarts_in_any_second_continues_where_it_was() {
    for image in ["v2", "bad"] {
        let mut expected = Fleet::new(5, &canary());
        expected.apply_image(image);
        expected.run(300);
        for restart_at in (1..100).step_by(6) {
            let mut fleet = Fleet::new(5, &canary());
            fleet.apply_image(image);
            fleet.run(restart_at);
            fleet.cluster.restart(controller());
            fleet.run(300);
            let end = |it: &Fleet| (it.phase(), it.images(), it.verdicts(), it.exposed("bad"));
            assert_eq!(end(&fleet), end(&expected), "restarted after {restart_at} s");
        }
    }
}

#[test]
fn zones_are_updated_one_after_the_other() {
    let spec = json!({
        "daemonSets": ["agent"],
        "steps": [{
            "name": "zones", "nodes": "100%", "soak": "10s",
            "groups": {"labelKey": "zone", "maxConcurrent": 1, "maxUnavailable": 1, "soak": "30s"},
        }],
    });
    let mut fleet = Fleet::new(8, &spec);
    fleet.apply_image("v2");
    let mut zones_with_both_max = 0;
    for _ in 0..300 {
        fleet.run(1);
        let mut images: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for pod in fleet.cluster.all("Pod") {
            let node = pod["spec"]["nodeName"].as_str().unwrap();
            let zone =
                fleet.cluster.get("Node", node)["metadata"]["labels"]["zone"].as_str().unwrap().to_owned();
            let image = pod["spec"]["containers"][0]["image"].as_str().unwrap().to_owned();
            images.entry(zone).or_default().insert(image);
        }
        zones_with_both_max = zones_with_both_max.max(images.values().filter(|it| 1 < it.len()).count());
    }
    assert_eq!((fleet.phase().as_str(), fleet.images().as_str()), ("Complete", "v2: 8"));
    assert_eq!((zones_with_both_max, fleet.down_max), (1, 1));
}

#[test]
fn a_policy_drives_a_daemonset_with_on_delete() {
    let mut fleet = Fleet::new(4, &canary());
    let mut set = daemon_set("v2", 2);
    set["spec"]["updateStrategy"] = json!({"type": "OnDelete"});
    set["status"] = fleet.cluster.get("DaemonSet", "agent")["status"].clone();
    fleet.cluster.put(set);
    fleet.run(300);
    assert_eq!((fleet.phase().as_str(), fleet.images().as_str()), ("Complete", "v2: 4"));
    assert_eq!(fleet.down_max, 1);
}

#[test]
fn a_max_unavailable_of_zero_beside_on_delete_is_named_with_what_to_do() {
    let mut fleet = Fleet::new(2, &canary());
    let strategy = |limit: u32| json!({"type": "OnDelete", "rollingUpdate": {"maxUnavailable": limit}});
    let mut set = daemon_set("v2", 2);
    set["spec"]["updateStrategy"] = strategy(0);
    set["status"] = fleet.cluster.get("DaemonSet", "agent")["status"].clone();
    let mut snapshot = fleet.snapshot();
    fleet.cluster.put(set);
    fleet.run(30);
    assert_eq!((fleet.phase().as_str(), fleet.images().as_str()), ("Rolling", "v1: 2"));
    let held = "spec.updateStrategy.rollingUpdate.maxUnavailable of the DaemonSet is 0, so no Ready pod is replaced: set \
                it to 1 or more, or remove it";
    assert_eq!(
        fleet.rollout()["status"]["message"],
        format!("0 of 1 nodes of step \"canary\" are updated; {held}")
    );
    let progressing = fleet.condition("Progressing");
    assert!(
        progressing.starts_with("False ZeroMaxUnavailable: 0 of 2 nodes are up to date; "),
        "{progressing}"
    );
    assert!(progressing.ends_with(held), "{progressing}");
    assert!(fleet.condition("Reconciling").ends_with(held), "{}", fleet.condition("Reconciling"));
    expect![[r#"
        DaemonSet default/agent: revision 2, generation 2
        2 nodes: 2 should run it (2 outdated), 0 should not

          NODES  STATE        WHY
              1  outdated     held by the rollout
                              n1
              1  outdated     outdated, and maxUnavailable is 0
                              n2

        rollout     follows RolloutPolicy careful
                    Rolling, step "canary" (1 of 2): 0 of 1 nodes of step "canary" are
                    updated; spec.updateStrategy.rollingUpdate.maxUnavailable of the
                    DaemonSet is 0, so no Ready pod is replaced: set it to 1 or more, or
                    remove it
                    1 of 2 nodes admitted; 1 node held at revision 1
                    0 of 2 nodes up to date, 2 available
                    maxUnavailable 0: 0 unavailable, none left
                    next: n2
        controller  state unavailable: it was not asked
    "#]]
    .assert_eq(&fleet.explain(None));
    snapshot
        .add_object(Kind::Sets, &serde_json::to_vec(fleet.cluster.get("DaemonSet", "agent")).unwrap())
        .unwrap();
    expect![[r#"
        DaemonSet default/agent: new revision 2
        2 nodes: 0 gain a pod, 0 lose it, 0 get a new one, 2 keep theirs, 0 without

        stops       with the old pod on 2 nodes: n1, n2
        note        spec.updateStrategy.rollingUpdate.maxUnavailable of the DaemonSet is
                    0, so no Ready pod is replaced: set it to 1 or more, or remove it

        Nothing was changed. Assumes that every new pod becomes available and nothing
        else changes.
    "#]]
    .assert_eq(&snapshot.preview_rollout(fleet.cluster.now).unwrap().to_string());
    assert_eq!(fleet.run(300), "", "a held rollout writes nothing");

    // The message is removed with its cause.
    fleet.cluster.patch("DaemonSet", "agent", &json!({"spec": {"updateStrategy": strategy(1)}}));
    fleet.run(30);
    assert_eq!((fleet.phase().as_str(), fleet.images().as_str()), ("Soaking", "v1: 1, v2: 1"));
    assert!(!fleet.rollout()["status"]["message"].as_str().unwrap().contains("maxUnavailable"));
    assert!(!fleet.condition("Progressing").contains("maxUnavailable"));
}

#[test]
fn an_invalid_policy_and_a_rollout_of_a_newer_version_hold_the_daemonset() {
    let mut spec = canary();
    spec["steps"][0]["nodes"] = json!("many");
    let mut fleet = Fleet::new(4, &spec);
    fleet.apply_image("v2");
    fleet.run(300);
    assert_eq!(fleet.images(), "v1: 4");

    let mut fleet = Fleet::new(4, &canary());
    let status = json!({"status": {"phase": "Meditating"}});
    fleet.cluster.patch("DaemonRollout", "agent", &status);
    fleet.apply_image("v2");
    let log = fleet.run(300);
    assert_eq!(fleet.images(), "v1: 4");
    assert_eq!(fleet.phase(), "Meditating", "it is left alone");
    assert!(!log.contains("daemonrollouts"), "{log}");
    assert!(fleet.condition("Stalled").contains("\"Meditating\" is unknown to this version"));
}

/// Deletes the DaemonSet with its pods and revisions, and creates it again with another UID and this image. The
/// DaemonRollout stays, because the garbage collector has not deleted it yet.
fn recreate_set(fleet: &mut Fleet, image: &str, generation: i64) {
    let strategy = fleet.cluster.get("DaemonSet", "agent")["spec"]["updateStrategy"].clone();
    fleet.cluster.delete("DaemonSet", "agent");
    for kind in ["Pod", "ControllerRevision"] {
        for object in fleet.cluster.all(kind) {
            fleet.cluster.delete(kind, object["metadata"]["name"].as_str().unwrap());
        }
    }
    let mut set = daemon_set(image, generation);
    set["metadata"]["uid"] = json!("uid-agent-2");
    set["spec"]["updateStrategy"] = strategy;
    fleet.cluster.put(set);
}

#[test]
fn the_daemonrollout_of_a_deleted_daemonset_of_the_same_name_is_not_used() {
    let mut fleet = Fleet::new(4, &canary());
    fleet.apply_image("bad");
    fleet.run(100);
    assert_eq!(fleet.phase(), "RolledBack");
    // The request of an operator to the deleted DaemonSet has no effect on the new one.
    fleet.patch_rollout(&json!({"paused": true}));
    let stale = fleet.rollout();
    recreate_set(&mut fleet, "v2", 1);
    let log = fleet.run(60);
    assert_eq!(fleet.images(), "v2: 4");
    assert!(!log.contains("daemonrollouts"), "{log}");
    assert_eq!(fleet.rollout(), stale);
    assert_eq!(fleet.condition("Stalled"), "-");
    let explained = fleet.explain(None);
    assert!(explained.contains("waits for the garbage collector to delete the DaemonRollout"), "{explained}");
    // Also a change of the stale object is not used.
    fleet.patch_rollout(&json!({"paused": false}));
    assert!(!fleet.run(60).contains("daemonrollouts"));
    fleet.cluster.delete("DaemonRollout", "agent");
    fleet.run(10);
    assert_eq!(fleet.phase(), "Complete");
    assert_eq!(fleet.rollout()["metadata"]["ownerReferences"][0]["uid"], "uid-agent-2");
    assert_eq!(fleet.verdicts(), ["v2 Good/Adopted"]);
}

#[test]
fn plan_assumes_that_the_garbage_collector_deletes_the_stale_daemonrollout() {
    let mut fleet = Fleet::new(2, &canary());
    fleet.patch_rollout(&json!({"paused": true}));
    recreate_set(&mut fleet, "v2", 1);
    fleet.run(60);
    let mut snapshot = fleet.snapshot();
    let mut changed = fleet.cluster.get("DaemonSet", "agent").clone();
    changed["metadata"]["generation"] = json!(2);
    changed["metadata"]["annotations"]["deprecated.daemonset.template.generation"] = json!("2");
    changed["spec"]["template"]["spec"]["containers"][0]["image"] = json!("v3");
    snapshot.add_object(Kind::Sets, &serde_json::to_vec(&changed).unwrap()).unwrap();
    let preview = snapshot.preview_rollout(fleet.cluster.now).unwrap().to_string();
    assert!(preview.contains("(step canary)") && preview.contains("(step all)"), "{preview}");
}

#[test]
fn pods_of_both_revisions_have_the_hash_of_their_revision() {
    let mut fleet = Fleet::new(3, &canary());
    fleet.apply_image("v2");
    fleet.run(10);
    let revisions = fleet.cluster.all("ControllerRevision");
    let hash_of = |image: &str| {
        let image_of =
            |it: &&Value| it["data"]["spec"]["template"]["spec"]["containers"][0]["image"] == *image;
        revisions.iter().find(image_of).unwrap()["metadata"]["labels"][REVISION_HASH_LABEL].clone()
    };
    for pod in fleet.cluster.all("Pod") {
        let image = pod["spec"]["containers"][0]["image"].as_str().unwrap();
        assert_eq!(pod["metadata"]["labels"][REVISION_HASH_LABEL], hash_of(image));
    }
}

#[test]
fn explain_tells_the_phase_the_revision_of_each_node_and_what_to_do() {
    let mut spec = canary();
    spec["steps"][0]["approval"] = json!("Manual");
    let mut fleet = Fleet::new(4, &spec);
    fleet.apply_image("v2");
    fleet.run(100);
    expect![[r#"
        DaemonSet default/agent: revision 2, generation 2
        4 nodes: 4 should run it (1 up to date, 3 outdated), 0 should not

          NODES  STATE        WHY
              1  up to date   its pod is available
                              n2
              3  outdated     held by the rollout
                              n1, n3, n4

        rollout     follows RolloutPolicy careful
                    Waiting, step "canary" (1 of 2): step "canary" waits for approval
                    1 of 4 nodes admitted; 3 nodes held at revision 1
                    approve with: muster rollout promote ds/agent
                    1 of 4 nodes up to date, 4 available
                    maxUnavailable 2: 0 unavailable, 2 left
        controller  state unavailable: it was not asked
    "#]]
    .assert_eq(&fleet.explain(None));
    expect![[r#"
        DaemonSet default/agent on node n2: up to date, and should run there
          its pod is available
          pod agent-28 of revision d86875ddf
          the rollout assigns revision d86875ddf to the node

        rollout     follows RolloutPolicy careful
                    Waiting, step "canary" (1 of 2): step "canary" waits for approval
                    1 of 4 nodes admitted; 3 nodes held at revision 1
                    approve with: muster rollout promote ds/agent
                    1 of 4 nodes up to date, 4 available
                    maxUnavailable 2: 0 unavailable, 2 left
        controller  state unavailable: it was not asked
    "#]]
    .assert_eq(&fleet.explain(Some("n2")));
    fleet.apply_image("bad");
    fleet.run(100);
    expect![[r#"
        DaemonSet default/agent: revision 3, generation 3
        4 nodes: 4 should run it (4 outdated), 0 should not

          NODES  STATE        WHY
              4  outdated     held by the rollout
                              n1, n2, n3, n4

        rollout     follows RolloutPolicy careful
                    RolledBack, step "canary" (1 of 2): revision 3 failed on 1 of 1
                    nodes (CrashLoopBackOff: n2)
                    0 of 4 nodes admitted; 4 nodes held at revision 1
                    failed: n2 (CrashLoopBackOff); 0 tolerated
                    change the template, or try again with: muster rollout retry
                    ds/agent
                    0 of 4 nodes up to date, 4 available
                    maxUnavailable 2: 0 unavailable, 2 left
        controller  state unavailable: it was not asked
    "#]]
    .assert_eq(&fleet.explain(None));
}

#[test]
fn plan_shows_the_steps_their_nodes_and_the_least_duration() {
    let mut spec = canary();
    spec["steps"][0]["approval"] = json!("Manual");
    let fleet = Fleet::new(5, &spec);
    let mut snapshot = fleet.snapshot();
    let mut changed = daemon_set("v2", 2);
    changed["metadata"]["uid"] = json!("uid-agent");
    changed["metadata"]["resourceVersion"] = json!("1000");
    snapshot.add_object(Kind::Sets, &serde_json::to_vec(&changed).unwrap()).unwrap();
    let preview = snapshot.preview_rollout(fleet.cluster.now).unwrap();
    expect![[r#"
        DaemonSet default/agent: new revision 2
        5 nodes: 0 gain a pod, 0 lose it, 5 get a new one, 0 keep theirs, 0 without

        replaces    5 nodes in 3 batches, maxUnavailable 2, policy careful: 1m10s at
                    least
                    1. n2 (step canary)
                    2. n4, n3 (step all)
                    3. n1, n5 (step all)

        Nothing was changed. Assumes that every new pod becomes available and nothing
        else changes.
    "#]]
    .assert_eq(&preview.to_string());
}

/// The steps of [`canary`], with outdated pods removed by eviction.
fn evicting() -> Value {
    let mut spec = canary();
    spec["replace"] = json!({"method": "Evict"});
    spec
}

/// The error of an eviction that a PodDisruptionBudget does not allow.
fn budget_exceeded() -> CallError {
    let message = "The disruption budget agents needs 7 healthy pods and has 7 currently".into();
    CallError::DisruptionBudget { message, retry_after: None }
}

/// The calls of a log that remove a pod: evictions and deletes, refused or not.
fn removals(log: &str) -> Vec<&str> {
    let removes = |it: &&str| it.starts_with("create pods/eviction") || it.starts_with("delete pods");
    log.lines().filter(removes).collect()
}

#[test]
fn ready_pods_are_evicted_and_other_pods_are_deleted() {
    let mut fleet = Fleet::new(6, &evicting());
    // The pod of one node is not Ready: it is deleted, because no PodDisruptionBudget protects it.
    let broken = fleet.cluster.all("Pod")[0]["metadata"]["name"].as_str().unwrap().to_owned();
    let not_ready = json!([{
        "type": "Ready", "status": "False", "lastTransitionTime": fleet.cluster.now.to_rfc3339(),
    }]);
    fleet.cluster.patch("Pod", &broken, &json!({"status": {"conditions": not_ready}}));
    fleet.apply_image("v2");
    let log = fleet.run(200);
    assert_eq!((fleet.phase().as_str(), fleet.images().as_str()), ("Complete", "v2: 6"));
    let removals = removals(&log);
    let deleted: Vec<&&str> = removals.iter().filter(|it| it.starts_with("delete")).collect();
    assert_eq!(deleted, [&&*format!("delete pods {broken}")]);
    assert_eq!(removals.len(), 6, "{removals:?}");
    assert!(
        log.contains("Normal event for DaemonSet default/agent: SuccessfulDelete Evicted pod: "),
        "{log}"
    );
    assert!(fleet.down_max <= 3, "{} nodes were down", fleet.down_max);
}

#[test]
fn without_the_method_evict_no_pod_is_evicted() {
    let mut fleet = Fleet::new(4, &canary());
    fleet.cluster.check_eviction = |_| panic!("a pod was evicted");
    fleet.apply_image("v2");
    fleet.run(200);
    assert_eq!((fleet.phase().as_str(), fleet.images().as_str()), ("Complete", "v2: 4"));
}

#[test]
fn a_disruption_budget_holds_its_nodes_and_no_others() {
    let mut spec = evicting();
    spec["steps"] = json!([{"name": "all", "nodes": "100%"}]);
    let mut fleet = Fleet::new(8, &spec);
    fleet.cluster.check_eviction = |pod| {
        let is_protected = ["n1", "n2", "n3"].contains(&pod["spec"]["nodeName"].as_str().unwrap());
        is_protected.then(budget_exceeded)
    };
    fleet.apply_image("v2");
    let log = fleet.run(120);
    // More nodes are protected than `maxUnavailable` allows to be down: the others are updated nevertheless.
    assert_eq!((fleet.phase().as_str(), fleet.images().as_str()), ("Rolling", "v1: 3, v2: 5"));
    let message = "evictions refused: a PodDisruptionBudget blocks 3 nodes";
    assert_eq!(
        fleet.rollout()["status"]["message"],
        format!("5 of 8 nodes of step \"all\" are updated; {message}")
    );
    assert!(fleet.condition("Progressing").ends_with(message), "{}", fleet.condition("Progressing"));
    let event = "Warning event for DaemonSet default/agent: EvictionRefused Error evicting: pod agent-";
    assert!(log.contains(event) && log.contains("The disruption budget agents needs 7"), "{log}");
    // Each of the three nodes is tried again every 30 s at most, and nothing else is written.
    fleet.run(60);
    let log = fleet.run(300);
    assert!((10..=33).contains(&removals(&log).len()), "{log}");
    assert!(!log.contains("daemonrollouts") && !log.contains("daemonsets"), "{log}");
    assert!(fleet.down_max <= 2, "{} nodes were down", fleet.down_max);

    fleet.cluster.check_eviction = |_| None;
    fleet.run(60);
    assert_eq!((fleet.phase().as_str(), fleet.images().as_str()), ("Complete", "v2: 8"));
    assert_eq!(fleet.rollout()["status"]["message"], Value::Null);
    assert!(!fleet.condition("Progressing").contains("evictions"), "{}", fleet.condition("Progressing"));
}

#[test]
fn a_disruption_budget_that_allows_one_disruption_at_a_time_slows_the_rollout_down() {
    let mut spec = evicting();
    spec["steps"] = json!([{"name": "all", "nodes": "100%"}]);
    let mut fleet = Fleet::new(6, &spec);
    fleet.apply_image("v2");
    let (mut is_down, mut down_max) = (false, 0);
    for _ in 0..120 {
        fleet.cluster.check_eviction = if is_down { |_| Some(budget_exceeded()) } else { |_| None };
        fleet.run(1);
        let is_ready = |it: &&Value| it["status"]["conditions"][0]["status"] == "True";
        let ready = fleet.cluster.all("Pod").iter().filter(is_ready).count();
        is_down = ready < 6;
        down_max = down_max.max(6 - ready);
    }
    assert_eq!((fleet.phase().as_str(), fleet.images().as_str()), ("Complete", "v2: 6"));
    assert!(down_max <= 2, "{down_max}");
}

#[test]
fn while_every_eviction_is_refused_few_are_tried() {
    let mut spec = evicting();
    spec["steps"] = json!([{"name": "all", "nodes": "100%"}]);
    let mut fleet = Fleet::new(60, &spec);
    fleet.cluster.check_eviction = |_| Some(budget_exceeded());
    let mut set = daemon_set("v2", 2);
    set["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"] = json!("100%");
    set["status"] = fleet.cluster.get("DaemonSet", "agent")["status"].clone();
    fleet.cluster.put(set);
    fleet.run(5);
    let log = fleet.run(20);
    let tried = removals(&log).len();
    assert!((50..=210).contains(&tried), "{tried} evictions in 20 s");
    fleet.run(200);
    assert_eq!(fleet.images(), "v1: 60");
    let message = fleet.rollout()["status"]["message"].as_str().unwrap().to_owned();
    assert!(message.ends_with("evictions refused: a PodDisruptionBudget blocks 60 nodes"), "{message}");
}

#[test]
fn a_missing_right_to_evict_names_the_role_to_apply() {
    let mut fleet = Fleet::new(3, &evicting());
    fleet.cluster.check_eviction = |_| {
        let message = "pods \"agent-x\" is forbidden: User \"system:serviceaccount:muster-system:muster-controller\" \
                       cannot create resource \"pods/eviction\" in API group \"\" in the namespace \"default\"";
        Some(CallError::Forbidden(message.into()))
    };
    fleet.apply_image("v2");
    fleet.run(60);
    assert_eq!(fleet.images(), "v1: 3");
    let progressing = fleet.condition("Progressing");
    assert!(progressing.contains("create on pods/eviction (1 node): apply"), "{progressing}");
    assert!(progressing.ends_with("deploy/kubernetes/access/eviction-role.yaml"), "{progressing}");
}

#[test]
fn a_rollback_evicts_ready_pods_and_reports_a_refusal_once() {
    let mut fleet = Fleet::new(4, &evicting());
    fleet.apply_image("v2");
    fleet.run(20);
    assert_eq!(fleet.images(), "v1: 3, v2: 1");
    fleet.cluster.check_eviction = |_| Some(budget_exceeded());
    let revision = fleet.rollout()["status"]["current"]["revision"].clone();
    fleet.patch_rollout(&json!({"abort": {"revision": revision}}));
    fleet.run(120);
    assert_eq!((fleet.phase().as_str(), fleet.images().as_str()), ("RollingBack", "v1: 3, v2: 1"));
    assert_eq!(
        fleet.rollout()["status"]["message"],
        "aborted by an operator; evictions refused: a PodDisruptionBudget blocks 1 node"
    );
    fleet.cluster.check_eviction = |_| None;
    fleet.run(60);
    assert_eq!((fleet.phase().as_str(), fleet.images().as_str()), ("RolledBack", "v1: 4"));
    assert_eq!(fleet.rollout()["status"]["message"], "aborted by an operator");
}

#[test]
fn with_surge_the_old_pod_is_deleted_once_the_new_one_is_available() {
    let mut fleet = Fleet::new(4, &evicting());
    fleet.cluster.check_eviction = |_| panic!("a pod was evicted");
    let mut set = daemon_set("v2", 2);
    set["spec"]["updateStrategy"]["rollingUpdate"] = json!({"maxSurge": 1, "maxUnavailable": 0});
    set["status"] = fleet.cluster.get("DaemonSet", "agent")["status"].clone();
    fleet.cluster.put(set);
    fleet.run(200);
    assert_eq!((fleet.phase().as_str(), fleet.images().as_str()), ("Complete", "v2: 4"));
    assert_eq!(fleet.down_max, 0);
}

#[test]
fn an_eviction_that_fails_in_another_way_is_tried_again() {
    type EvictionCheck = fn(&Value) -> Option<CallError>;
    let mut spec = evicting();
    spec["steps"] = json!([{"name": "all", "nodes": "100%"}]);
    let errors: [(EvictionCheck, &str); 3] = [
        (|_| Some(CallError::NoAnswer), "FailedDelete Error evicting: pod agent-"),
        (
            |_| Some(CallError::TooManyRequests { retry_after: None }),
            "FailedDelete Error evicting: pod agent-",
        ),
        (
            |_| Some(CallError::Server("This pod has more than one PodDisruptionBudget".into())),
            "EvictionRefused Error evicting: pod agent-",
        ),
    ];
    for (error, event) in errors {
        let mut fleet = Fleet::new(5, &spec);
        fleet.cluster.check_eviction = error;
        fleet.apply_image("v2");
        let log = fleet.run(60);
        assert!(log.contains(event), "{log}");
        assert!(removals(&log).len() < 60, "{log}");
        assert_eq!(fleet.images(), "v1: 5");
        fleet.cluster.check_eviction = |_| None;
        fleet.run(120);
        assert_eq!((fleet.phase().as_str(), fleet.images().as_str()), ("Complete", "v2: 5"));
        assert!(fleet.down_max <= 2, "{} nodes were down", fleet.down_max);
    }
}

/// The canary policy with a Prometheus check every 20 seconds, which fails the rollout with its third failure in a row.
fn checked_canary() -> Value {
    let mut spec = canary();
    let prometheus = json!({"url": "http://prometheus.monitoring:9090", "query": "errors > 1"});
    spec["checks"] = json!([{"name": "errors", "interval": "20s", "prometheus": prometheus}]);
    spec
}

fn measurements(log: &str) -> usize {
    log.lines().filter(|it| it.starts_with("measure errors")).count()
}

#[test]
fn a_failing_check_stops_the_rollout_at_the_canary() {
    let mut fleet = Fleet::new(8, &checked_canary());
    fleet.cluster.measured.insert("errors".into(), MeasurementResult::fail("5 errors per second"));
    fleet.apply_image("v2");
    let log = fleet.run(30);
    assert_eq!(measurements(&log), 2, "{log}");
    assert_eq!(log.matches("CheckFailed Check \"errors\" failed: 5 errors per second").count(), 1, "{log}");
    assert_eq!((fleet.phase().as_str(), fleet.images().as_str()), ("Soaking", "v1: 7, v2: 1"));
    assert_eq!(fleet.rollout()["status"]["checks"][0]["result"], "Fail");
    let log = fleet.run(100);
    assert_eq!(measurements(&log), 1, "no check is measured in a rollback: {log}");
    assert_eq!((fleet.phase().as_str(), fleet.images().as_str()), ("RolledBack", "v1: 8"));
    assert_eq!(fleet.exposed("v2"), 1);
    assert_eq!(fleet.verdicts(), ["v1 Good/Adopted", "v2 Bad/Failed"]);
    assert_eq!(fleet.rollout()["status"]["message"], "check \"errors\" failed: 5 errors per second");
    assert_eq!(fleet.run(600), "", "a rolled back rollout measures and writes nothing");
}

#[test]
fn a_check_without_data_holds_the_rollout_until_it_passes() {
    let mut fleet = Fleet::new(4, &checked_canary());
    fleet.apply_image("v2");
    fleet.run(600);
    assert_eq!((fleet.phase().as_str(), fleet.images().as_str()), ("Waiting", "v1: 3, v2: 1"));
    assert_eq!(fleet.rollout()["status"]["message"], "check \"errors\" has not passed: no data");
    assert!(fleet.condition("Progressing").starts_with("False WaitingForCheck"));
    let log = fleet.run(200);
    assert_eq!(
        (log.lines().count(), measurements(&log)),
        (10, 10),
        "a repeated result is not written: {log}"
    );
    fleet.cluster.measured.insert("errors".into(), MeasurementResult::Pass);
    fleet.run(120);
    assert_eq!((fleet.phase().as_str(), fleet.images().as_str()), ("Complete", "v2: 4"));
    assert_eq!(fleet.run(600), "", "a complete rollout measures and writes nothing");
}

#[test]
fn a_restart_forgets_the_consecutive_failures_and_a_retry_does_too() {
    let mut fleet = Fleet::new(4, &checked_canary());
    fleet.cluster.measured.insert("errors".into(), MeasurementResult::fail("errors"));
    fleet.apply_image("v2");
    fleet.run(30);
    fleet.cluster.restart(controller());
    // Two failures before the restart and two after it.
    let log = fleet.run(30);
    assert_eq!((measurements(&log), fleet.phase().as_str()), (2, "Soaking"), "{log}");
    fleet.run(60);
    assert_eq!(fleet.phase(), "RolledBack");
    fleet.cluster.measured.insert("errors".into(), MeasurementResult::Pass);
    let revision = fleet.rollout()["status"]["current"]["revision"].clone();
    fleet.patch_rollout(&json!({"retry": {"revision": revision, "attempt": 2}}));
    fleet.run(200);
    assert_eq!((fleet.phase().as_str(), fleet.images().as_str()), ("Complete", "v2: 4"));
}

#[test]
fn a_partially_complete_rollout_is_not_measured_and_stays_passed() {
    let mut spec = checked_canary();
    spec["steps"] = json!([{"name": "canary", "nodes": 1, "soak": "10s"}]);
    let mut fleet = Fleet::new(4, &spec);
    fleet.cluster.measured.insert("errors".into(), MeasurementResult::Pass);
    fleet.apply_image("v2");
    fleet.run(60);
    assert_eq!((fleet.phase().as_str(), fleet.images().as_str()), ("PartiallyComplete", "v1: 3, v2: 1"));
    assert_eq!(fleet.run(600), "");
    assert_eq!(fleet.phase(), "PartiallyComplete");
}
