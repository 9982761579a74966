//! Rollouts in assist mode, beside upstream's DaemonSet controller: it creates a pod of the newest revision on every
//! node without one, records revisions and writes the counts.

use super::*;
use crate::controller::test_cluster::record_status_write;
use crate::daemonset::manifest::{Owner, controller_revision, daemon_pod, revision_hash};

/// What upstream's controller has written.
#[derive(Default)]
pub(super) struct Upstream {
    /// Number of pods that were created.
    created: usize,
    /// Number and labels of each revision, by name.
    revisions: BTreeMap<String, (i64, Value)>,
    /// All calls and events of the controller in assist mode.
    log: String,
}

impl Upstream {
    /// The calls of the controller, each once, without the names of objects.
    fn calls(&self) -> BTreeSet<String> {
        let calls = self.log.lines().filter(|it| !it.starts_with(' '));
        calls.map(|it| it.split(' ').take(2).collect::<Vec<_>>().join(" ")).collect()
    }
}

impl Fleet {
    /// Creates a fleet with upstream's controller, on which the image `v1` runs, and then a policy with this spec.
    fn assisted(nodes: usize, strategy: &str, spec: &Value) -> Self {
        let mut fleet = Self::assisted_without_policy(nodes, strategy);
        fleet.cluster.put(policy(spec));
        fleet.run_assisted(5);
        fleet
    }

    fn assisted_without_policy(nodes: usize, strategy: &str) -> Self {
        let settings = Settings { assist: true, ..Settings::default() };
        let objects = (1..=nodes).map(|it| node(&format!("n{it}"), Time::from_secs(0)));
        let mut set = daemon_set("v1", 1);
        set["spec"]["updateStrategy"] = json!({"type": strategy});
        let controller = DaemonSetController::new(settings, 4);
        let mut cluster = TestCluster::new(controller, objects.chain([set]));
        cluster.now = Time::from_secs(100);
        let (exposed, pods_seen) = (BTreeMap::new(), BTreeSet::new());
        let upstream = Some(Upstream::default());
        let mut fleet = Self { cluster, exposed, pods_seen, down_max: 0, upstream };
        fleet.run_assisted(10);
        fleet.down_max = 0;
        fleet
    }

    /// Runs the fleet, and keeps the log of the controller.
    fn run_assisted(&mut self, seconds: u64) -> String {
        let log = self.run(seconds);
        self.upstream.as_mut().unwrap().log += &log;
        log
    }

    /// Runs upstream's controller once, if there is one.
    pub(super) fn run_upstream(&mut self) {
        let Some(mut upstream) = self.upstream.take() else { return };
        let set = self.cluster.get("DaemonSet", "agent").clone();
        let owner =
            Owner { namespace: NAMESPACE, name: "agent", uid: set["metadata"]["uid"].as_str().unwrap() };
        let template = &set["spec"]["template"];
        let hash = revision_hash(template, None);
        let name = format!("agent-{hash}");
        let highest = upstream.revisions.values().map(|(number, _)| *number).max().unwrap_or(0);
        let now = self.cluster.now.to_rfc3339();
        match upstream.revisions.get_mut(&name) {
            None => {
                let annotations = &set["metadata"]["annotations"];
                let mut revision = controller_revision(owner, annotations, template, &hash, highest + 1);
                revision["kind"] = json!("ControllerRevision");
                revision["metadata"]["creationTimestamp"] = json!(now);
                upstream.revisions.insert(name, (highest + 1, revision["metadata"]["labels"].clone()));
                self.cluster.put(revision);
            }
            Some((number, _)) if *number < highest => {
                *number = highest + 1;
                self.cluster.patch("ControllerRevision", &name, &json!({"revision": highest + 1}));
            }
            Some(_) => {}
        }
        let zone = template["spec"]["nodeSelector"]["zone"].clone();
        let (eligible, excluded): (Vec<Value>, Vec<Value>) = self
            .cluster
            .all("Node")
            .into_iter()
            .partition(|it| zone.is_null() || it["metadata"]["labels"]["zone"] == zone);
        let pods = self.cluster.all("Pod");
        let pod_of = |node: &Value| pods.iter().find(|it| it["spec"]["nodeName"] == node["metadata"]["name"]);
        for pod in excluded.iter().filter_map(pod_of) {
            self.cluster.delete("Pod", pod["metadata"]["name"].as_str().unwrap());
        }
        for node in &eligible {
            if pod_of(node).is_none() {
                let node = &node["metadata"]["name"];
                let generation = set["metadata"]["generation"].as_i64();
                let node = node.as_str().unwrap();
                let mut pod = daemon_pod(owner, template, node, &hash, generation, Binding::Direct);
                upstream.created += 1;
                pod["kind"] = json!("Pod");
                pod["metadata"]["name"] = json!(format!("agent-{}", upstream.created));
                pod["metadata"]["namespace"] = json!(NAMESPACE);
                pod["metadata"]["creationTimestamp"] = json!(now);
                self.cluster.put(pod);
            }
        }
        let counts = json!({"desiredNumberScheduled": eligible.len(), "numberReady": pods.len()});
        if counts.as_object().unwrap().iter().any(|(field, count)| set["status"][field] != *count) {
            self.cluster.patch("DaemonSet", "agent", &json!({"status": counts}));
            let mut set = self.cluster.get("DaemonSet", "agent").clone();
            record_status_write(&mut set, "kube-controller-manager", self.cluster.now);
            self.cluster.put(set);
        }
        self.upstream = Some(upstream);
    }

    /// Asserts that the controller made only calls that assist mode allows, and that revisions and counts are those of
    /// upstream's controller.
    fn assert_only_allowed_calls(&self) {
        let upstream = self.upstream.as_ref().unwrap();
        let allowed = [
            "create daemonrollouts",
            "delete pods",
            "patch controllerrevisions",
            "patch daemonsets",
            "update daemonrollouts",
        ];
        let calls = upstream.calls();
        assert!(calls.iter().all(|it| allowed.contains(&it.as_str())), "{calls:?}");
        for revision in self.cluster.all("ControllerRevision") {
            let (number, labels) = &upstream.revisions[revision["metadata"]["name"].as_str().unwrap()];
            assert_eq!((&revision["revision"], &revision["metadata"]["labels"]), (&json!(number), labels));
        }
        let status = &self.cluster.get("DaemonSet", "agent")["status"];
        assert_eq!(status["observedGeneration"], Value::Null);
        assert_eq!(status["numberAvailable"], Value::Null);
    }
}

#[test]
fn without_policy_a_daemonset_is_left_alone() {
    for strategy in ["OnDelete", "RollingUpdate"] {
        let mut fleet = Fleet::assisted_without_policy(4, strategy);
        fleet.apply_image("v2");
        assert_eq!(fleet.run(60), "");
        assert_eq!(fleet.images(), "v1: 4");
    }
}

#[test]
fn a_canary_exposes_one_node_and_then_all_nodes_follow() {
    let mut fleet = Fleet::assisted(8, "OnDelete", &canary());
    assert_eq!(
        (fleet.phase().as_str(), fleet.verdicts()),
        ("Complete", ["v1 Good/Adopted".to_owned()].into())
    );
    fleet.apply_image("v2");
    fleet.run_assisted(30);
    assert_eq!((fleet.phase().as_str(), fleet.images().as_str()), ("Soaking", "v1: 7, v2: 1"));
    assert_eq!(fleet.exposed("v2"), 1);
    assert!(fleet.condition("Reconciling").starts_with("True Soaking"), "{}", fleet.condition("Reconciling"));
    assert_eq!(fleet.condition("Available"), "-");
    fleet.run_assisted(200);
    assert_eq!((fleet.phase().as_str(), fleet.images().as_str()), ("Complete", "v2: 8"));
    assert_eq!(fleet.verdicts(), ["v1 Good/Adopted", "v2 Good/Passed"]);
    // The policy's default of `maxUnavailable` is 1.
    assert_eq!(fleet.down_max, 1);
    assert_eq!(fleet.condition("Reconciling"), "-");
    fleet.assert_only_allowed_calls();
    assert_eq!(fleet.run(600), "", "a complete rollout writes nothing");
}

#[test]
fn a_bad_revision_stops_at_the_canary_until_the_template_is_reverted() {
    for on_failure in ["Auto", "Rollback", "Stop"] {
        let mut spec = canary();
        spec["onFailure"] = json!(on_failure);
        let mut fleet = Fleet::assisted(8, "OnDelete", &spec);
        fleet.apply_image("bad");
        fleet.run_assisted(900);
        assert_eq!((fleet.phase().as_str(), fleet.images().as_str()), ("Stopped", "bad: 1, v1: 7"));
        assert_eq!(fleet.verdicts(), ["v1 Good/Adopted", "bad Bad/Failed"]);
        let stalled = fleet.condition("Stalled");
        if on_failure == "Stop" {
            assert!(stalled.starts_with("True Stopped: revision 2 failed on 1 of 1 nodes"), "{stalled}");
        } else {
            assert!(
                stalled.starts_with("True CannotRollBack: revision 2 failed on 1 of 1 nodes"),
                "{stalled}"
            );
            assert!(stalled.ends_with("; assist mode cannot roll back: revert the template"), "{stalled}");
        }
        assert!(fleet.condition("Degraded").starts_with("True RolloutFailed"));
        assert_eq!(fleet.run(600), "", "a stopped rollout writes nothing");
        fleet.apply_image("v1");
        fleet.run_assisted(60);
        assert_eq!((fleet.phase().as_str(), fleet.images().as_str()), ("Complete", "v1: 8"));
        assert_eq!((fleet.condition("Stalled").as_str(), fleet.exposed("bad")), ("-", 1));
        fleet.assert_only_allowed_calls();
    }
}

#[test]
fn an_aborted_revision_stops() {
    let mut fleet = Fleet::assisted(4, "OnDelete", &canary());
    fleet.apply_image("v2");
    fleet.run_assisted(20);
    let revision = fleet.rollout()["status"]["current"]["revision"].clone();
    fleet.patch_rollout(&json!({"abort": {"revision": revision}}));
    fleet.run_assisted(300);
    assert_eq!((fleet.phase().as_str(), fleet.images().as_str()), ("Stopped", "v1: 3, v2: 1"));
    let message = fleet.rollout()["status"]["message"].clone();
    assert_eq!(message, "aborted by an operator; assist mode cannot roll back: revert the template");
    assert_eq!(fleet.verdicts(), ["v1 Good/Adopted", "v2 Bad/Aborted"]);
    fleet.assert_only_allowed_calls();
}

#[test]
fn a_node_that_joins_gets_the_newest_revision_and_is_unassigned() {
    let mut fleet = Fleet::assisted(4, "OnDelete", &canary());
    fleet.apply_image("v2");
    fleet.run_assisted(10);
    let now = fleet.cluster.now;
    fleet.cluster.put(node("n9", now));
    fleet.run_assisted(20);
    assert_eq!((fleet.phase().as_str(), fleet.images().as_str()), ("Soaking", "v1: 3, v2: 2"));
    let nodes = fleet.rollout()["status"]["nodes"].clone();
    let count = |field: &str| nodes[field].as_u64().unwrap_or(0);
    assert_eq!((count("admitted"), count("unassigned"), count("updated")), (1, 1, 2));
    fleet.run_assisted(200);
    assert_eq!((fleet.phase().as_str(), fleet.images().as_str()), ("Complete", "v2: 5"));
    fleet.assert_only_allowed_calls();
}

#[test]
fn a_failure_on_an_unassigned_node_stops_the_rollout() {
    let mut spec = canary();
    spec["paused"] = json!(true);
    let mut fleet = Fleet::assisted(4, "OnDelete", &spec);
    fleet.apply_image("bad");
    fleet.run_assisted(10);
    assert_eq!(fleet.images(), "v1: 4");
    let now = fleet.cluster.now;
    fleet.cluster.put(node("n9", now));
    fleet.run_assisted(60);
    assert_eq!((fleet.phase().as_str(), fleet.images().as_str()), ("Stopped", "bad: 1, v1: 4"));
    assert_eq!(fleet.rollout()["status"]["failures"]["nodes"][0]["node"], "n9");
    assert_eq!(fleet.verdicts(), ["v1 Good/Adopted", "bad Bad/Failed"]);
    fleet.assert_only_allowed_calls();
}

#[test]
fn an_unassigned_node_is_the_canary_if_the_step_has_no_other() {
    let mut spec = canary();
    spec["paused"] = json!(true);
    let mut fleet = Fleet::assisted(4, "OnDelete", &spec);
    fleet.apply_image("v2");
    fleet.run_assisted(5);
    let now = fleet.cluster.now;
    fleet.cluster.put(node("n9", now));
    fleet.run_assisted(20);
    let mut resumed = policy(&canary());
    resumed["metadata"]["generation"] = json!(2);
    fleet.cluster.put(resumed);
    fleet.run_assisted(40);
    assert_eq!(fleet.images(), "v1: 4, v2: 1");
    assert_eq!(fleet.rollout()["status"]["admitted"][0]["nodes"], json!(["n9"]));
    fleet.run_assisted(200);
    assert_eq!((fleet.phase().as_str(), fleet.images().as_str()), ("Complete", "v2: 5"));
}

#[test]
fn the_daemonrollout_of_a_deleted_daemonset_of_the_same_name_is_not_used() {
    let mut fleet = Fleet::assisted(4, "OnDelete", &canary());
    let stale = fleet.rollout();
    recreate_set(&mut fleet, "v2", 1);
    fleet.upstream = Some(Upstream::default());
    let log = fleet.run_assisted(60);
    assert_eq!(fleet.images(), "v2: 4");
    assert!(!log.contains("daemonrollouts"), "{log}");
    assert_eq!(fleet.rollout(), stale);
    fleet.cluster.delete("DaemonRollout", "agent");
    fleet.run_assisted(10);
    assert_eq!(
        (fleet.phase().as_str(), fleet.verdicts()),
        ("Complete", ["v2 Good/Adopted".to_owned()].into())
    );
}

#[test]
fn a_daemonset_that_is_not_on_delete_is_refused() {
    let mut fleet = Fleet::assisted(4, "RollingUpdate", &canary());
    fleet.apply_image("v2");
    fleet.run_assisted(60);
    assert_eq!(fleet.images(), "v1: 4");
    assert_eq!(fleet.cluster.all("DaemonRollout"), Vec::<Value>::new());
    assert_eq!(
        fleet.condition("Stalled"),
        "True NotOnDelete: kube-controller-manager replaces the pods: set spec.updateStrategy.type to OnDelete, or run \
         the controller without --assist"
    );
    assert_eq!(fleet.upstream.as_ref().unwrap().calls(), BTreeSet::from(["patch daemonsets".to_owned()]));
    // Without its policy the DaemonSet is left alone, and its conditions are removed.
    fleet.cluster.delete("RolloutPolicy", "careful");
    fleet.run_assisted(5);
    assert_eq!((fleet.condition("Stalled"), fleet.condition("Progressing")), ("-".into(), "-".into()));
    assert_eq!(fleet.run(600), "");
}

#[test]
fn conditions_of_other_field_managers_stay_and_are_not_written_again_and_again() {
    let mut fleet = Fleet::assisted_without_policy(4, "OnDelete");
    let theirs = json!([
        {"type": "Stalled", "status": "True", "reason": "Theirs", "message": "m"},
        {"type": "Other", "status": "True", "reason": "Theirs", "message": "m"},
    ]);
    fleet.cluster.patch("DaemonSet", "agent", &json!({"status": {"conditions": theirs}}));
    assert_eq!(fleet.run(60), "");
    fleet.cluster.put(policy(&canary()));
    fleet.run_assisted(20);
    assert_eq!(fleet.phase(), "Complete");
    assert_eq!(
        (fleet.condition("Stalled").as_str(), fleet.condition("Other").as_str()),
        ("True Theirs: m", "True Theirs: m")
    );
    assert_eq!(fleet.run(600), "");
}

#[test]
fn a_template_that_is_not_recorded_as_a_revision_yet_is_waited_for() {
    let mut fleet = Fleet::assisted(4, "OnDelete", &canary());
    let upstream = fleet.upstream.take();
    fleet.apply_image("v2");
    assert_eq!(fleet.run(120), "");
    fleet.upstream = upstream;
    fleet.run_assisted(30);
    assert_eq!(fleet.images(), "v1: 3, v2: 1");
    // A reverted template is recorded when its revision has the highest number.
    let upstream = fleet.upstream.take();
    fleet.apply_image("v1");
    assert_eq!(fleet.run(120), "");
    fleet.upstream = upstream;
    fleet.run_assisted(30);
    assert_eq!((fleet.phase().as_str(), fleet.images().as_str()), ("Complete", "v1: 4"));
    fleet.assert_only_allowed_calls();
}

/// What `muster plan` says about a change of the image, or of the whole DaemonSet.
fn plan(fleet: &Fleet, change: impl Fn(&mut Value)) -> String {
    let mut snapshot = fleet.snapshot();
    let mut changed = fleet.cluster.get("DaemonSet", "agent").clone();
    let generation = changed["metadata"]["generation"].as_i64().unwrap() + 1;
    changed["metadata"]["generation"] = json!(generation);
    changed["metadata"]["annotations"]["deprecated.daemonset.template.generation"] =
        json!(generation.to_string());
    change(&mut changed);
    snapshot.add_object(Kind::Sets, &serde_json::to_vec(&changed).unwrap()).unwrap();
    snapshot.preview_rollout(fleet.cluster.now).unwrap().to_string()
}

fn with_image(image: &str) -> impl Fn(&mut Value) {
    move |set| set["spec"]["template"]["spec"]["containers"][0]["image"] = json!(image)
}

#[test]
fn explain_tells_that_upstream_creates_the_pods_and_that_there_is_no_rollback() {
    let mut fleet = Fleet::assisted(4, "OnDelete", &canary());
    fleet.apply_image("bad");
    fleet.run_assisted(10);
    let now = fleet.cluster.now;
    fleet.cluster.put(node("n9", now));
    fleet.run_assisted(30);
    assert_eq!((fleet.phase().as_str(), fleet.images().as_str()), ("Stopped", "bad: 2, v1: 3"));
    expect![[r#"
        DaemonSet default/agent: revision 2, generation 2
        5 nodes: 5 should run it (3 outdated, 2 not ready), 0 should not

          NODES  STATE        WHY
              3  outdated     held by the rollout
                              n1, n3, n4
              2  not ready    CrashLoopBackOff
                              n2, n9
                              n2: pod agent-5: container c: CrashLoopBackOff, 5 restarts

        rollout     follows RolloutPolicy careful, in assist mode
                    Stopped, step "canary" (1 of 2): revision 2 failed on 1 of 1 nodes
                    (CrashLoopBackOff: n2); assist mode cannot roll back: revert the
                    template
                    1 of 5 nodes admitted; 4 nodes held: no pod there is deleted
                    a new node, or one whose pod is deleted, gets revision 2 even if it
                    is not admitted
                    1 node unassigned: not admitted, but with a revision that is not
                    good; counted in the step and in the failures
                    failed: n2 (CrashLoopBackOff), n9 (CrashLoopBackOff); 0 tolerated
                    there is no rollback: revert the template, or try again with: muster
                    rollout retry ds/agent
                    2 of 5 nodes up to date, 3 available
                    maxUnavailable 1: 2 unavailable, none left
                    waits for 2 nodes: CrashLoopBackOff: n2, n9
        controller  state unavailable: it was not asked
        note        No controller has observed generation 2 yet (last observed: 0): is
                    one running?
    "#]]
    .assert_eq(&fleet.explain(None));
    expect![[r#"
        DaemonSet default/agent on node n1: outdated, and should run there
          held by the rollout
          pod agent-1 of revision 7cf4d84d5b
          not admitted by the rollout; gets revision 5657b457c6 when its pod is deleted

        rollout     follows RolloutPolicy careful, in assist mode
                    Stopped, step "canary" (1 of 2): revision 2 failed on 1 of 1 nodes
                    (CrashLoopBackOff: n2); assist mode cannot roll back: revert the
                    template
                    1 of 5 nodes admitted; 4 nodes held: no pod there is deleted
                    a new node, or one whose pod is deleted, gets revision 2 even if it
                    is not admitted
                    1 node unassigned: not admitted, but with a revision that is not
                    good; counted in the step and in the failures
                    failed: n2 (CrashLoopBackOff), n9 (CrashLoopBackOff); 0 tolerated
                    there is no rollback: revert the template, or try again with: muster
                    rollout retry ds/agent
                    2 of 5 nodes up to date, 3 available
                    maxUnavailable 1: 2 unavailable, none left
                    waits for 2 nodes: CrashLoopBackOff: n2, n9
        controller  state unavailable: it was not asked
        note        No controller has observed generation 2 yet (last observed: 0): is
                    one running?
    "#]]
    .assert_eq(&fleet.explain(Some("n1")));
    let controller = ControllerAnswer::Unavailable("it was not asked".into());
    let explained = fleet.snapshot().explain(controller, fleet.cluster.now).unwrap().to_json(Some("n1"));
    assert_eq!(explained["rollout"]["progressive"]["assist"], true);
    assert_eq!(explained["nodes"][0]["admitted"], false);
    assert_eq!(explained["nodes"][0]["assignedRevision"], explained["daemonSet"]["revisionHash"]);
}

#[test]
fn plan_shows_the_steps_of_assist_mode_with_the_pods_of_upstream() {
    let mut fleet = Fleet::assisted(4, "OnDelete", &canary());
    expect![[r#"
        DaemonSet default/agent: new revision 2
        4 nodes: 0 gain a pod, 0 lose it, 4 get a new one, 0 keep theirs, 0 without

        replaces    4 nodes in 4 batches, maxUnavailable 1, policy careful: 1m10s at
                    least
                    1. n2 (step canary)
                    2. n4 (step all)
                    3. n3 (step all)
                    4. n1 (step all)
        note        The controller runs in assist mode: a new node, or one whose pod is
                    deleted, gets the new revision before its step, and a failed
                    revision is stopped, not rolled back.

        Nothing was changed. Assumes that every new pod becomes available and nothing
        else changes.
    "#]]
    .assert_eq(&plan(&fleet, with_image("v2")));
    // The nodes follow in that order.
    fleet.apply_image("v2");
    fleet.run_assisted(300);
    assert_eq!((fleet.phase().as_str(), fleet.images().as_str()), ("Complete", "v2: 4"));
    // A reverted template has no steps, and the old revision becomes the newest.
    expect![[r#"
        DaemonSet default/agent: rollback to revision 1, which becomes revision 3
        4 nodes: 0 gain a pod, 0 lose it, 4 get a new one, 0 keep theirs, 0 without

        replaces    4 nodes in 4 batches, maxUnavailable 1
                    1. n2 (step *)
                    2. n1 (step *)
                    3. n3 (step *)
                    4. n4 (step *)
        note        The controller runs in assist mode: a new node, or one whose pod is
                    deleted, gets the new revision before its step, and a failed
                    revision is stopped, not rolled back.

        Nothing was changed. Assumes that every new pod becomes available and nothing
        else changes.
    "#]]
    .assert_eq(&plan(&fleet, with_image("v1")));
}

#[test]
fn explain_and_plan_follow_the_update_strategy_of_a_refused_daemonset() {
    let mut fleet = Fleet::assisted(4, "RollingUpdate", &canary());
    let upstream = fleet.upstream.take();
    fleet.apply_image("v2");
    fleet.run(5);
    fleet.upstream = upstream;
    fleet.run_upstream();
    expect![[r#"
        DaemonSet default/agent: revision 2, generation 2
        4 nodes: 4 should run it (4 outdated), 0 should not

          NODES  STATE        WHY
              4  outdated     outdated, replaced next
                              n1, n2, n3, n4

        rollout     0 of 4 nodes up to date, 4 available
                    maxUnavailable 1: 0 unavailable, 1 left
                    next: n4, n3, n2, n1
        controller  state unavailable: it was not asked
        note        No controller has observed generation 2 yet (last observed: 0): is
                    one running?
        note        RolloutPolicy careful is refused (NotOnDelete):
                    kube-controller-manager replaces the pods: set
                    spec.updateStrategy.type to OnDelete, or run the controller without
                    --assist
    "#]]
    .assert_eq(&fleet.explain(None));
    expect![[r#"
        DaemonSet default/agent: new revision 3
        4 nodes: 0 gain a pod, 0 lose it, 4 get a new one, 0 keep theirs, 0 without

        replaces    4 nodes in 4 batches, maxUnavailable 1
                    1. n3
                    2. n4
                    3. n2
                    4. n1
        note        RolloutPolicy careful is refused (NotOnDelete):
                    kube-controller-manager replaces the pods: set
                    spec.updateStrategy.type to OnDelete, or run the controller without
                    --assist

        Nothing was changed. Assumes that every new pod becomes available and nothing
        else changes.
    "#]]
    .assert_eq(&plan(&fleet, with_image("v3")));
    // With the strategy that assist mode needs, the policy applies.
    let on_delete = plan(&fleet, |set| {
        with_image("v3")(set);
        set["spec"]["updateStrategy"] = json!({"type": "OnDelete"});
    });
    assert!(on_delete.contains("policy careful") && !on_delete.contains("NotOnDelete"), "{on_delete}");
}

#[test]
fn an_unknown_mode_is_told() {
    let mut fleet = Fleet::assisted(2, "OnDelete", &canary());
    fleet.apply_image("v2");
    fleet.run_assisted(20);
    // As with --conditions=false, where upstream's controller alone writes the status.
    let theirs = |it: &Value| it["manager"] == "kube-controller-manager";
    let entries = fleet.cluster.get("DaemonSet", "agent")["metadata"]["managedFields"].as_array().cloned();
    let entries: Vec<Value> = entries.unwrap().into_iter().filter(theirs).collect();
    assert_eq!(entries.len(), 1);
    fleet.cluster.patch("DaemonSet", "agent", &json!({"metadata": {"managedFields": entries}}));
    for text in [fleet.explain(None), plan(&fleet, with_image("v3"))] {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains("note Cannot tell whether the controller runs in assist mode"), "{text}");
    }
}

#[test]
fn nodes_that_the_new_template_excludes_hold_no_rollout() {
    let mut fleet = Fleet::assisted(8, "OnDelete", &canary());
    fleet.apply_image("v2");
    let selector = json!({"spec": {"template": {"spec": {"nodeSelector": {"zone": "a"}}}}});
    fleet.cluster.patch("DaemonSet", "agent", &selector);
    fleet.run_assisted(300);
    assert_eq!((fleet.phase().as_str(), fleet.images().as_str()), ("Complete", "v2: 4"));
    fleet.assert_only_allowed_calls();
}
