//! Simulated pods and nodes, as the API server sees them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use expect_test::{Expect, expect};
use jiff::{SignedDuration, Timestamp};
use muster_api::time::Time;
use serde_json::{Value, json};

use super::behaviour::{ContainerBehaviour, ContainerTimings, NodeBehaviour, NodeFault, parse_duration};
use super::node;
use super::pod::{PodCall, SimulatedHost, SimulatedPod};
use super::wire;

const TIMINGS: ContainerTimings =
    ContainerTimings { start: Duration::from_secs(1), stop: Duration::from_secs(2) };

/// A pod on a node, and the API server that keeps what the node says.
struct World {
    object: Value,
    pod: SimulatedPod,
    now: Timestamp,
    version: u64,
    told: String,
    gone: bool,
    timings: ContainerTimings,
}

impl World {
    fn new(annotations: Value, spec: Value) -> Self {
        let meta = json!({"namespace": "default", "name": "p", "uid": "u", "annotations": annotations,
            "resourceVersion": "1", "generation": 1});
        let scheduled = json!([{"type": "PodScheduled", "status": "True"}]);
        let object =
            json!({"metadata": meta, "spec": spec, "status": {"phase": "Pending", "conditions": scheduled}});
        let now = Timestamp::from_second(1_767_225_600).unwrap();
        let mut pod =
            SimulatedPod::new(&seen(&object), host(TIMINGS), now, &mut |error| panic!("{error}")).unwrap();
        pod.address = Some(node::pod_address(1, 5));
        Self { object, pod, now, version: 1, told: String::new(), gone: false, timings: TIMINGS }
    }

    /// Everything that happens for so long.
    fn run(mut self, seconds: u64) -> Self {
        let end = self.now + SignedDuration::from_secs(seconds.cast_signed());
        loop {
            let step = self.pod.step(host(self.timings), self.now);
            match step.call {
                Some(PodCall::Report(patch)) => {
                    self.tell(&patch["status"]);
                    merge(&mut self.object["status"], &patch["status"]);
                    self.changed();
                    self.pod.handle_call_success(self.version, host(self.timings), self.now);
                }
                Some(PodCall::Delete) => {
                    self.line("removed");
                    self.gone = true;
                    return self;
                }
                None => match step.wake_at {
                    Some(at) if at <= end => self.now = at.max(self.now),
                    _ => {
                        self.now = end;
                        return self;
                    }
                },
            }
        }
    }

    /// The node's process ends, and begins again: all it knows is what the API server has.
    fn restart(mut self) -> Self {
        self.line("restart");
        self.pod = SimulatedPod::new(&seen(&self.object), host(self.timings), self.now, &mut |error| {
            panic!("{error}")
        })
        .unwrap();
        self
    }

    fn change(mut self, path: &str, value: Value) -> Self {
        let (parent, key) = path.rsplit_once('/').unwrap();
        self.object.pointer_mut(parent).unwrap()[key] = value;
        self.changed();
        self
    }

    fn delete(self, grace_s: i64) -> Self {
        let mut world = self.change("/metadata/deletionGracePeriodSeconds", grace_s.into());
        world.line(&format!("deleted, with {grace_s} s"));
        world.change("/metadata/deletionTimestamp", "2026-01-01T00:00:00Z".into())
    }

    fn changed(&mut self) {
        self.version += 1;
        self.object["metadata"]["resourceVersion"] = self.version.to_string().into();
        self.pod.apply_event(seen(&self.object), host(self.timings), self.now);
    }

    fn tell(&mut self, status: &Value) {
        let conditions = status["conditions"].as_array().unwrap().iter();
        let holding = conditions.filter(|it| it["status"] == "True").filter_map(|it| it["type"].as_str());
        let short = holding.map(|it| match it {
            "PodReadyToStartContainers" => "sandbox",
            "ContainersReady" => "containers",
            other => other,
        });
        let mut text =
            format!("{} [{}]", status["phase"].as_str().unwrap(), short.collect::<Vec<_>>().join(" "));
        for list in ["initContainerStatuses", "containerStatuses"] {
            for container in status[list].as_array().into_iter().flatten() {
                write!(text, "; {}", container_text(container)).unwrap();
            }
        }
        self.line(&text);
    }

    fn line(&mut self, text: &str) {
        let at = self.now.as_second() - 1_767_225_600;
        writeln!(self.told, "{at:<4} {text}").unwrap();
    }

    fn check(self, expect: &Expect) {
        expect.assert_eq(&self.told);
    }
}

fn container_text(container: &Value) -> String {
    let state = |it: &Value| {
        let (kind, of) =
            it.as_object().unwrap().iter().next().map(|(kind, of)| (kind.clone(), of.clone()))?;
        let code = of.get("exitCode").map(|it| format!(" {it}")).unwrap_or_default();
        Some(format!("{}{code}", of["reason"].as_str().unwrap_or(&kind)))
    };
    let mut text = format!("{} {}", container["name"].as_str().unwrap(), state(&container["state"]).unwrap());
    for flag in ["started", "ready"] {
        if container[flag] == true {
            write!(text, " {flag}").unwrap();
        }
    }
    if container["restartCount"] != 0 {
        write!(text, " x{}", container["restartCount"]).unwrap();
    }
    if let Some(last) = state(&container["lastState"]) {
        write!(text, " after {last}").unwrap();
    }
    text
}

fn seen(object: &Value) -> wire::Pod {
    serde_json::from_str(&object.to_string()).unwrap()
}

fn host(timings: ContainerTimings) -> SimulatedHost {
    SimulatedHost { address: node::host_address(1), timings }
}

/// As the API server merges a status: conditions by their type.
fn merge(into: &mut Value, patch: &Value) {
    for (key, value) in patch.as_object().unwrap() {
        if key != "conditions" {
            into[key] = value.clone();
            continue;
        }
        for condition in value.as_array().unwrap() {
            let all = into["conditions"].as_array_mut().unwrap();
            all.retain(|it| it["type"] != condition["type"]);
            all.push(condition.clone());
        }
    }
}

fn one(image: &str) -> Value {
    json!({"nodeName": "n", "containers": [{"name": "c", "image": image}]})
}

/// The deletion is stored before the report, and its event comes after the report's response.
#[test]
fn a_deletion_is_seen_though_a_later_report_was_answered_first() {
    let mut world = World::new(json!({}), one("web"));
    let Some(PodCall::Report(patch)) = world.pod.step(host(TIMINGS), world.now).call else {
        panic!("no report")
    };
    world.object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    world.object["metadata"]["deletionGracePeriodSeconds"] = 30.into();
    world.object["metadata"]["resourceVersion"] = "2".into();
    let deletion = seen(&world.object);
    merge(&mut world.object["status"], &patch["status"]);
    world.object["metadata"]["resourceVersion"] = "3".into();
    world.version = 3;
    world.pod.handle_call_success(3, host(TIMINGS), world.now);
    world.pod.apply_event(deletion, host(TIMINGS), world.now);
    world.pod.apply_event(seen(&world.object), host(TIMINGS), world.now);
    assert!(world.run(60).gone);
}

#[test]
fn a_pod_starts_and_stops() {
    World::new(json!({}), one("web")).run(60).delete(30).run(60).check(&expect![[r#"
        0    Pending [sandbox Initialized PodScheduled]; c ContainerCreating
        1    Running [sandbox Initialized Ready containers PodScheduled]; c running started ready
        60   deleted, with 30 s
        62   Succeeded [Initialized PodScheduled]; c Completed 0
        62   removed
    "#]]);
    World::new(json!({}), one("web")).delete(30).run(60).check(&expect![[r#"
        0    deleted, with 30 s
        0    Failed [Initialized PodScheduled]; c ContainerStatusUnknown 137
        0    removed
    "#]]);
}

#[test]
fn instant_actions_are_reported_in_one_status() {
    let mut world = World::new(json!({}), one("web"));
    world.timings = ContainerTimings { start: Duration::ZERO, stop: Duration::ZERO };
    world.run(60).delete(30).run(60).check(&expect![[r#"
        0    Running [sandbox Initialized Ready containers PodScheduled]; c running started ready
        60   deleted, with 30 s
        60   Succeeded [Initialized PodScheduled]; c Completed 0
        60   removed
    "#]]);
}

#[test]
fn a_restarted_node_goes_on_where_it_was() {
    World::new(json!({}), one("web")).run(60).restart().run(60).check(&expect![[r#"
        0    Pending [sandbox Initialized PodScheduled]; c ContainerCreating
        1    Running [sandbox Initialized Ready containers PodScheduled]; c running started ready
        60   restart
    "#]]);
    let crashes = json!({"sim.muster.dev/exit-after": "2s", "sim.muster.dev/exit-code": "1"});
    World::new(crashes, one("web")).run(20).restart().run(60).check(&expect![[r#"
        0    Pending [sandbox Initialized PodScheduled]; c ContainerCreating
        1    Running [sandbox Initialized Ready containers PodScheduled]; c running started ready
        3    Running [sandbox Initialized PodScheduled]; c Error 1
        4    Running [sandbox Initialized Ready containers PodScheduled]; c running started ready x1 after Error 1
        6    Running [sandbox Initialized PodScheduled]; c CrashLoopBackOff x1 after Error 1
        17   Running [sandbox Initialized Ready containers PodScheduled]; c running started ready x2 after Error 1
        19   Running [sandbox Initialized PodScheduled]; c CrashLoopBackOff x2 after Error 1
        20   restart
        20   Running [sandbox Initialized PodScheduled]; c CrashLoopBackOff x2 after Error 1
        30   Running [sandbox Initialized Ready containers PodScheduled]; c running started ready x3 after Error 1
        32   Running [sandbox Initialized PodScheduled]; c CrashLoopBackOff x3 after Error 1
        53   Running [sandbox Initialized Ready containers PodScheduled]; c running started ready x4 after Error 1
        55   Running [sandbox Initialized PodScheduled]; c CrashLoopBackOff x4 after Error 1
    "#]]);
    World::new(json!({}), one("web")).run(60).delete(30).run(1).restart().run(9).check(&expect![[r#"
        0    Pending [sandbox Initialized PodScheduled]; c ContainerCreating
        1    Running [sandbox Initialized Ready containers PodScheduled]; c running started ready
        60   deleted, with 30 s
        61   restart
        63   Succeeded [Initialized PodScheduled]; c Completed 0
        63   removed
    "#]]);
}

#[test]
fn init_containers_go_first_and_those_that_stay_go_last() {
    let spec = json!({
        "nodeName": "n",
        "initContainers": [
            {"name": "first", "image": "i"},
            {"name": "proxy", "image": "i", "restartPolicy": "Always", "startupProbe": {"initialDelaySeconds": 3}},
            {"name": "last", "image": "i"},
        ],
        "containers": [{"name": "a", "image": "i"}, {"name": "b", "image": "i"}],
    });
    World::new(json!({}), spec.clone()).run(60).delete(30).run(60).check(&expect![[r#"
        0    Pending [sandbox PodScheduled]; first PodInitializing; proxy PodInitializing; last PodInitializing; a PodInitializing; b PodInitializing
        1    Pending [sandbox PodScheduled]; first running started; proxy PodInitializing; last PodInitializing; a PodInitializing; b PodInitializing
        2    Pending [sandbox PodScheduled]; first Completed 0 ready; proxy PodInitializing; last PodInitializing; a PodInitializing; b PodInitializing
        3    Pending [sandbox PodScheduled]; first Completed 0 ready; proxy running; last PodInitializing; a PodInitializing; b PodInitializing
        6    Pending [sandbox PodScheduled]; first Completed 0 ready; proxy running started ready; last PodInitializing; a PodInitializing; b PodInitializing
        7    Pending [sandbox PodScheduled]; first Completed 0 ready; proxy running started ready; last running started; a PodInitializing; b PodInitializing
        8    Pending [sandbox Initialized PodScheduled]; first Completed 0 ready; proxy running started ready; last Completed 0 ready; a PodInitializing; b PodInitializing
        9    Running [sandbox Initialized Ready containers PodScheduled]; first Completed 0 ready; proxy running started ready; last Completed 0 ready; a running started ready; b running started ready
        60   deleted, with 30 s
        62   Running [sandbox Initialized PodScheduled]; first Completed 0 ready; proxy running started ready; last Completed 0 ready; a Completed 0; b Completed 0
        64   Succeeded [Initialized PodScheduled]; first Completed 0 ready; proxy Completed 0; last Completed 0 ready; a Completed 0; b Completed 0
        64   removed
    "#]]);
    let mut never = spec;
    never["restartPolicy"] = "Never".into();
    never["initContainers"][2]["image"] = "crash-loop".into();
    World::new(json!({}), never).run(60).check(&expect![[r#"
        0    Pending [sandbox PodScheduled]; first PodInitializing; proxy PodInitializing; last PodInitializing; a PodInitializing; b PodInitializing
        1    Pending [sandbox PodScheduled]; first running started; proxy PodInitializing; last PodInitializing; a PodInitializing; b PodInitializing
        2    Pending [sandbox PodScheduled]; first Completed 0 ready; proxy PodInitializing; last PodInitializing; a PodInitializing; b PodInitializing
        3    Pending [sandbox PodScheduled]; first Completed 0 ready; proxy running; last PodInitializing; a PodInitializing; b PodInitializing
        6    Pending [sandbox PodScheduled]; first Completed 0 ready; proxy running started ready; last PodInitializing; a PodInitializing; b PodInitializing
        7    Pending [sandbox PodScheduled]; first Completed 0 ready; proxy running started ready; last running started; a PodInitializing; b PodInitializing
        8    Pending [sandbox PodScheduled]; first Completed 0 ready; proxy running started ready; last Error 1; a PodInitializing; b PodInitializing
        10   Failed [PodScheduled]; first Completed 0 ready; proxy Completed 0; last Error 1; a PodInitializing; b PodInitializing
    "#]]);
}

#[test]
fn probes_pass_after_their_delay() {
    let container = json!({"name": "c", "image": "web", "startupProbe": {"initialDelaySeconds": 5},
        "readinessProbe": {"initialDelaySeconds": 10}});
    World::new(json!({}), json!({"nodeName": "n", "containers": [container]})).run(60).check(&expect![[r#"
        0    Pending [sandbox Initialized PodScheduled]; c ContainerCreating
        1    Running [sandbox Initialized PodScheduled]; c running
        6    Running [sandbox Initialized PodScheduled]; c running started
        11   Running [sandbox Initialized Ready containers PodScheduled]; c running started ready
    "#]]);
    World::new(json!({"sim.muster.dev/never-ready": "true"}), one("web")).run(60).check(&expect![[r#"
        0    Pending [sandbox Initialized PodScheduled]; c ContainerCreating
        1    Running [sandbox Initialized PodScheduled]; c running started
    "#]]);
}

#[test]
fn a_gate_holds_a_pod_back() {
    let mut spec = one("web");
    spec["readinessGates"] = json!([{"conditionType": "lb"}]);
    let world = World::new(json!({}), spec).run(10);
    let conditions = world.object["status"]["conditions"].clone();
    let ready = conditions.as_array().unwrap().iter().find(|it| it["type"] == "Ready").unwrap();
    expect![[
        r#""ReadinessGatesNotReady" "corresponding condition of pod readiness gate \"lb\" does not exist.""#
    ]]
    .assert_eq(&format!("{} {}", ready["reason"], ready["message"]));
    let mut conditions = conditions;
    conditions.as_array_mut().unwrap().push(json!({"type": "lb", "status": "True"}));
    world.change("/status/conditions", conditions).run(10).check(&expect![[r#"
        0    Pending [sandbox Initialized PodScheduled]; c ContainerCreating
        1    Running [sandbox Initialized containers PodScheduled]; c running started ready
        10   Running [sandbox Initialized Ready containers PodScheduled]; c running started ready
    "#]]);
}

/// Another client writes the condition of a gate just before the pod's own status write, and the events of both writes
/// arrive after the response.
#[test]
fn a_gate_that_opens_during_a_status_write_is_observed() {
    let mut spec = one("web");
    spec["readinessGates"] = json!([{"conditionType": "lb"}]);
    let mut world = World::new(json!({}), spec).run(0);
    world.now += SignedDuration::from_secs(1);
    let Some(PodCall::Report(patch)) = world.pod.step(host(world.timings), world.now).call else {
        panic!("the container runs, and no status is reported");
    };
    world.tell(&patch["status"]);
    let conditions = world.object["status"]["conditions"].as_array_mut().unwrap();
    conditions.push(json!({"type": "lb", "status": "True"}));
    world.object["metadata"]["resourceVersion"] = "10".into();
    let before = world.object.clone();
    merge(&mut world.object["status"], &patch["status"]);
    world.object["metadata"]["resourceVersion"] = "11".into();
    world.version = 11;
    world.pod.handle_call_success(11, host(world.timings), world.now);
    for object in [&before, &world.object] {
        world.pod.apply_event(seen(object), host(world.timings), world.now);
    }
    world.run(10).check(&expect![[r#"
        0    Pending [sandbox Initialized PodScheduled]; c ContainerCreating
        1    Running [sandbox Initialized containers PodScheduled]; c running started ready
        1    Running [sandbox Initialized Ready containers PodScheduled]; c running started ready
    "#]]);
}

#[test]
fn pod_conditions_changed_by_another_client_are_corrected() {
    let world = World::new(json!({}), one("web")).run(10);
    let lost = json!([{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "False"}]);
    world.change("/status/conditions", lost).run(10).check(&expect![[r#"
        0    Pending [sandbox Initialized PodScheduled]; c ContainerCreating
        1    Running [sandbox Initialized Ready containers PodScheduled]; c running started ready
        10   Running [sandbox Initialized Ready containers PodScheduled]; c running started ready
    "#]]);
}

#[test]
fn a_phase_set_by_another_client_is_kept() {
    let world = World::new(json!({}), one("web")).run(10);
    world.change("/status/phase", "Failed".into()).run(10).delete(30).run(10).check(&expect![[r#"
        0    Pending [sandbox Initialized PodScheduled]; c ContainerCreating
        1    Running [sandbox Initialized Ready containers PodScheduled]; c running started ready
        20   deleted, with 30 s
        20   removed
    "#]]);
}

#[test]
fn a_container_that_ends_comes_again_later_each_time() {
    World::new(json!({}), one("crash-loop")).run(900).delete(30).run(60).check(&expect![[r#"
        0    Pending [sandbox Initialized PodScheduled]; c ContainerCreating
        1    Running [sandbox Initialized Ready containers PodScheduled]; c running started ready
        2    Running [sandbox Initialized PodScheduled]; c Error 1
        3    Running [sandbox Initialized Ready containers PodScheduled]; c running started ready x1 after Error 1
        4    Running [sandbox Initialized PodScheduled]; c CrashLoopBackOff x1 after Error 1
        15   Running [sandbox Initialized Ready containers PodScheduled]; c running started ready x2 after Error 1
        16   Running [sandbox Initialized PodScheduled]; c CrashLoopBackOff x2 after Error 1
        37   Running [sandbox Initialized Ready containers PodScheduled]; c running started ready x3 after Error 1
        38   Running [sandbox Initialized PodScheduled]; c CrashLoopBackOff x3 after Error 1
        79   Running [sandbox Initialized Ready containers PodScheduled]; c running started ready x4 after Error 1
        80   Running [sandbox Initialized PodScheduled]; c CrashLoopBackOff x4 after Error 1
        161  Running [sandbox Initialized Ready containers PodScheduled]; c running started ready x5 after Error 1
        162  Running [sandbox Initialized PodScheduled]; c CrashLoopBackOff x5 after Error 1
        323  Running [sandbox Initialized Ready containers PodScheduled]; c running started ready x6 after Error 1
        324  Running [sandbox Initialized PodScheduled]; c CrashLoopBackOff x6 after Error 1
        625  Running [sandbox Initialized Ready containers PodScheduled]; c running started ready x7 after Error 1
        626  Running [sandbox Initialized PodScheduled]; c CrashLoopBackOff x7 after Error 1
        900  deleted, with 30 s
        900  Failed [Initialized PodScheduled]; c Error 1 x7 after Error 1
        900  removed
    "#]]);
    World::new(json!({}), one("out-of-memory")).run(5).check(&expect![[r#"
        0    Pending [sandbox Initialized PodScheduled]; c ContainerCreating
        1    Running [sandbox Initialized Ready containers PodScheduled]; c running started ready
        2    Running [sandbox Initialized PodScheduled]; c OOMKilled 137
        3    Running [sandbox Initialized Ready containers PodScheduled]; c running started ready x1 after OOMKilled 137
        4    Running [sandbox Initialized PodScheduled]; c CrashLoopBackOff x1 after OOMKilled 137
    "#]]);
}

#[test]
fn a_run_of_some_length_ends_as_the_policy_says() {
    for (policy, code) in [("Never", "0"), ("Never", "3"), ("OnFailure", "0"), ("OnFailure", "3")] {
        let mut spec = one("job");
        spec["restartPolicy"] = policy.into();
        let told = json!({"sim.muster.dev/exit-after": "5s", "sim.muster.dev/exit-code": code});
        let world = World::new(told, spec).run(10);
        match (policy, code) {
            ("Never", "0") => world.check(&expect![[r#"
                0    Pending [sandbox Initialized PodScheduled]; c ContainerCreating
                1    Running [sandbox Initialized Ready containers PodScheduled]; c running started ready
                6    Succeeded [Initialized PodScheduled]; c Completed 0
            "#]]),
            ("Never", _) => world.check(&expect![[r#"
                0    Pending [sandbox Initialized PodScheduled]; c ContainerCreating
                1    Running [sandbox Initialized Ready containers PodScheduled]; c running started ready
                6    Failed [Initialized PodScheduled]; c Error 3
            "#]]),
            (_, "0") => world.check(&expect![[r#"
                0    Pending [sandbox Initialized PodScheduled]; c ContainerCreating
                1    Running [sandbox Initialized Ready containers PodScheduled]; c running started ready
                6    Succeeded [Initialized PodScheduled]; c Completed 0
            "#]]),
            _ => world.check(&expect![[r#"
                0    Pending [sandbox Initialized PodScheduled]; c ContainerCreating
                1    Running [sandbox Initialized Ready containers PodScheduled]; c running started ready
                6    Running [sandbox Initialized PodScheduled]; c Error 3
                7    Running [sandbox Initialized Ready containers PodScheduled]; c running started ready x1 after Error 3
            "#]]),
        }
    }
}

#[test]
fn an_image_that_is_nowhere_is_tried_again() {
    let world = World::new(json!({}), one("web:non-existent")).run(60);
    let world = world.change("/spec/containers/0/image", "web:2".into()).run(10);
    world.check(&expect![[r#"
        0    Pending [sandbox Initialized PodScheduled]; c ErrImagePull
        2    Pending [sandbox Initialized PodScheduled]; c ImagePullBackOff
        10   Pending [sandbox Initialized PodScheduled]; c ErrImagePull
        12   Pending [sandbox Initialized PodScheduled]; c ImagePullBackOff
        30   Pending [sandbox Initialized PodScheduled]; c ErrImagePull
        32   Pending [sandbox Initialized PodScheduled]; c ImagePullBackOff
        60   Pending [sandbox Initialized PodScheduled]; c ImagePullBackOff
        61   Running [sandbox Initialized Ready containers PodScheduled]; c running started ready
    "#]]);
}

#[test]
fn a_container_that_takes_too_long_to_stop_is_killed_and_one_that_hangs_stays() {
    let slow = json!({"sim.muster.dev/stop-delay": "1m"});
    World::new(slow, one("web")).run(5).delete(10).run(60).check(&expect![[r#"
        0    Pending [sandbox Initialized PodScheduled]; c ContainerCreating
        1    Running [sandbox Initialized Ready containers PodScheduled]; c running started ready
        5    deleted, with 10 s
        15   Failed [Initialized PodScheduled]; c Error 137
        15   removed
    "#]]);
    World::new(json!({}), one("hangs")).run(5).delete(10).run(600).check(&expect![[r#"
        0    Pending [sandbox Initialized PodScheduled]; c ContainerCreating
        1    Running [sandbox Initialized Ready containers PodScheduled]; c running started ready
        5    deleted, with 10 s
    "#]]);
}

#[test]
fn a_status_in_full() {
    let world = World::new(json!({}), one("crash-loop")).run(4);
    expect![[r#"
        {
          "conditions": [
            {
              "lastTransitionTime": "2026-01-01T00:00:00Z",
              "message": null,
              "observedGeneration": 1,
              "reason": null,
              "status": "True",
              "type": "PodReadyToStartContainers"
            },
            {
              "lastTransitionTime": "2026-01-01T00:00:00Z",
              "message": null,
              "observedGeneration": 1,
              "reason": null,
              "status": "True",
              "type": "Initialized"
            },
            {
              "lastTransitionTime": "2026-01-01T00:00:04Z",
              "message": "containers with unready status: [c]",
              "observedGeneration": 1,
              "reason": "ContainersNotReady",
              "status": "False",
              "type": "Ready"
            },
            {
              "lastTransitionTime": "2026-01-01T00:00:04Z",
              "message": "containers with unready status: [c]",
              "observedGeneration": 1,
              "reason": "ContainersNotReady",
              "status": "False",
              "type": "ContainersReady"
            },
            {
              "lastTransitionTime": "2026-01-01T00:00:00Z",
              "message": null,
              "observedGeneration": 1,
              "reason": null,
              "status": "True",
              "type": "PodScheduled"
            }
          ],
          "containerStatuses": [
            {
              "containerID": "sim://u/c/1",
              "image": "crash-loop",
              "imageID": "sim://crash-loop",
              "lastState": {
                "terminated": {
                  "containerID": "sim://u/c/1",
                  "exitCode": 1,
                  "finishedAt": "2026-01-01T00:00:04Z",
                  "reason": "Error",
                  "startedAt": "2026-01-01T00:00:03Z"
                }
              },
              "name": "c",
              "ready": false,
              "restartCount": 1,
              "started": false,
              "state": {
                "waiting": {
                  "message": "back-off 10s restarting failed container=c pod=p_default(u)",
                  "reason": "CrashLoopBackOff"
                }
              }
            }
          ],
          "hostIP": "10.200.0.1",
          "hostIPs": [
            {
              "ip": "10.200.0.1"
            }
          ],
          "observedGeneration": 1,
          "phase": "Running",
          "podIP": "10.0.1.5",
          "podIPs": [
            {
              "ip": "10.0.1.5"
            }
          ],
          "startTime": "2026-01-01T00:00:00Z"
        }"#]]
    .assert_eq(&serde_json::to_string_pretty(&world.object["status"]).unwrap());
}

#[test]
fn invalid_annotations_are_reported_and_ignored() {
    let annotations: BTreeMap<String, String> = [
        ("sim.muster.dev/fail", "silent, on-fire"),
        ("sim.muster.dev/start-delay", "soon"),
        ("sim.muster.dev/stop-delay", "never"),
        ("sim.muster.dev/exit-code", "256"),
        ("sim.muster.dev/exit-after", "3"),
        ("sim.muster.dev/never-ready", "yes"),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .into();
    let mut said = String::new();
    let node = NodeBehaviour::read(&annotations, &mut |it| writeln!(said, "node: {it}").unwrap());
    let container = ContainerBehaviour::read(&annotations, &mut |it| writeln!(said, "pod: {it}").unwrap());
    writeln!(said, "{node:?}\n{container:?}").unwrap();
    expect![[r#"
        node: sim.muster.dev/fail: "on-fire" is not a fault of simulated nodes: expected one of not-ready, memory-pressure, disk-pressure, pid-pressure, network-unavailable, silent, vanish, slow-start
        node: sim.muster.dev/start-delay: "soon" is not a duration such as 0, 300ms, 30s, 5m or 1h
        node: sim.muster.dev/stop-delay: "never" is not a duration such as 0, 300ms, 30s, 5m or 1h
        pod: sim.muster.dev/exit-after: "3" is not a duration such as 0, 300ms, 30s, 5m or 1h
        pod: sim.muster.dev/exit-code: "256" is not an exit code from 0 to 255
        pod: sim.muster.dev/start-delay: "soon" is not a duration such as 0, 300ms, 30s, 5m or 1h
        pod: sim.muster.dev/never-ready: "yes" is neither true nor false
        NodeBehaviour { faults: [Silent], start: None, stop: None }
        ContainerBehaviour { start: None, stop: Some(Never), exit: None, never_ready: false, image_missing: false }
    "#]].assert_eq(&said);
}

#[test]
fn spans() {
    let said = ["0", "300ms", "30s", "5m", "1h", "9999999h", "5", "s", "", "1d", "-1s"].map(parse_duration);
    let said = said.map(|it| format!("{it:?}")).join("\n");
    expect![[r#"
        Ok(0ns)
        Ok(300ms)
        Ok(30s)
        Ok(300s)
        Ok(3600s)
        Ok(31622400s)
        Err("\"5\" is not a duration such as 0, 300ms, 30s, 5m or 1h")
        Err("\"s\" is not a duration such as 0, 300ms, 30s, 5m or 1h")
        Err("\"\" is not a duration such as 0, 300ms, 30s, 5m or 1h")
        Ok(86400s)
        Err("\"-1s\" is not a duration such as 0, 300ms, 30s, 5m or 1h")"#]]
    .assert_eq(&said);
}

#[test]
fn a_node_reports_its_faults_as_conditions() {
    let mut said = String::new();
    let mut shown = Value::Null;
    for (at, fail) in
        ["", "not-ready", "memory-pressure,disk-pressure", "pid-pressure", "network-unavailable", ""]
            .into_iter()
            .enumerate()
    {
        let annotations = BTreeMap::from([("sim.muster.dev/fail".to_owned(), fail.to_owned())]);
        let told = NodeBehaviour::read(&annotations, &mut |it| panic!("{it}"));
        let now = Time::from_secs(at as i64);
        let before = node::is_status_current(&told, &shown);
        let status = node::node_status("n", 1, &told, &shown, now);
        shown = status["conditions"].clone();
        writeln!(said, "{fail}: {}", if before { "as before" } else { "new" }).unwrap();
        for it in status["conditions"].as_array().unwrap() {
            let [kind, status, reason, since] =
                ["type", "status", "reason", "lastTransitionTime"].map(|key| it[key].as_str().unwrap());
            writeln!(said, "  {kind}={status} {reason} since {}", &since[18..]).unwrap();
        }
    }
    expect![[r#"
        : new
          MemoryPressure=False KubeletHasSufficientMemory since 0Z
          DiskPressure=False KubeletHasNoDiskPressure since 0Z
          PIDPressure=False KubeletHasSufficientPID since 0Z
          Ready=True KubeletReady since 0Z
        not-ready: new
          MemoryPressure=False KubeletHasSufficientMemory since 0Z
          DiskPressure=False KubeletHasNoDiskPressure since 0Z
          PIDPressure=False KubeletHasSufficientPID since 0Z
          Ready=False KubeletNotReady since 1Z
        memory-pressure,disk-pressure: new
          MemoryPressure=True KubeletHasInsufficientMemory since 2Z
          DiskPressure=True KubeletHasDiskPressure since 2Z
          PIDPressure=False KubeletHasSufficientPID since 0Z
          Ready=True KubeletReady since 2Z
        pid-pressure: new
          MemoryPressure=False KubeletHasSufficientMemory since 3Z
          DiskPressure=False KubeletHasNoDiskPressure since 3Z
          PIDPressure=True KubeletHasInsufficientPID since 3Z
          Ready=True KubeletReady since 2Z
        network-unavailable: new
          MemoryPressure=False KubeletHasSufficientMemory since 3Z
          DiskPressure=False KubeletHasNoDiskPressure since 3Z
          PIDPressure=False KubeletHasSufficientPID since 4Z
          Ready=True KubeletReady since 2Z
          NetworkUnavailable=True NoRouteCreated since 4Z
        : new
          MemoryPressure=False KubeletHasSufficientMemory since 3Z
          DiskPressure=False KubeletHasNoDiskPressure since 3Z
          PIDPressure=False KubeletHasSufficientPID since 4Z
          Ready=True KubeletReady since 2Z
          NetworkUnavailable=False RouteCreated since 5Z
    "#]]
    .assert_eq(&said);
}

#[test]
fn which_faults_stop_containers_and_calls() {
    let mut said = String::new();
    for fault in NodeFault::ALL {
        let annotations = BTreeMap::from([("sim.muster.dev/fail".to_owned(), fault.to_string())]);
        let told = NodeBehaviour::read(&annotations, &mut |it| panic!("{it}"));
        let timings = told.timings(TIMINGS);
        writeln!(
            said,
            "{fault}: speaks {}, works {}, {timings:?}",
            told.is_connected(),
            told.runs_containers()
        )
        .unwrap();
    }
    expect![[r#"
        not-ready: speaks true, works false, ContainerTimings { start: 1s, stop: 2s }
        memory-pressure: speaks true, works true, ContainerTimings { start: 1s, stop: 2s }
        disk-pressure: speaks true, works true, ContainerTimings { start: 1s, stop: 2s }
        pid-pressure: speaks true, works true, ContainerTimings { start: 1s, stop: 2s }
        network-unavailable: speaks true, works true, ContainerTimings { start: 1s, stop: 2s }
        silent: speaks false, works false, ContainerTimings { start: 1s, stop: 2s }
        vanish: speaks false, works false, ContainerTimings { start: 1s, stop: 2s }
        slow-start: speaks true, works true, ContainerTimings { start: 30s, stop: 2s }
    "#]]
    .assert_eq(&said);
}

#[test]
fn addresses_say_the_number() {
    for number in [1, 255, 256, 24_575, 24_576, 24_577, node::NODES_MAX] {
        let new = node::NewNode { name: "n".into(), number, ..node::NewNode::default() };
        let object: wire::Node = serde_json::from_value(new.to_object(Time::default())).unwrap();
        assert_eq!(node::node_number(&object), Some(number), "{:?}", object.pod_cidr);
    }
    for range in ["10.96.0.0/24", "10.250.0.0/24", "10.0.1.4/30", "192.168.0.0/24", "x"] {
        let object = json!({"metadata": {}, "spec": {"podCIDR": range}});
        let object: wire::Node = serde_json::from_value(object).unwrap();
        assert_eq!(node::node_number(&object), None, "{range}");
    }
}

#[test]
fn no_two_pods_of_a_node_have_one_address() {
    let mut addresses = node::PodAddressPool::new(3);
    let kept = "10.0.3.2".parse().unwrap();
    assert_eq!(addresses.allocate_address(Some(kept)), kept);
    let mut lent = vec![kept];
    lent.extend((0..253).map(|_| addresses.allocate_address(None)));
    lent.sort();
    let all: Vec<_> = (1..=254).map(|it| super::node::pod_address(3, it)).collect();
    assert_eq!(lent, all);
    addresses.release_address(Some(all[200]));
    assert_eq!([(); 3].map(|()| addresses.allocate_address(None)), [all[200], all[253], all[253]]);
}

#[test]
fn a_simulated_node_registers_as_a_real_one_does() {
    let now = Time::default();
    let new =
        node::NewNode { name: "sim-7".into(), number: 7, fleet: "up".into(), ..node::NewNode::default() };
    let object = new.to_object(now).to_string().replace(crate::architecture(), "ARCH");
    let object = object.replace(env!("CARGO_PKG_VERSION"), "VERSION");
    expect![[r#"{"apiVersion":"v1","kind":"Node","metadata":{"labels":{"beta.kubernetes.io/arch":"ARCH","beta.kubernetes.io/os":"linux","kubernetes.io/arch":"ARCH","kubernetes.io/hostname":"sim-7","kubernetes.io/os":"linux","sim.muster.dev/fleet":"up"},"name":"sim-7"},"spec":{"podCIDR":"10.0.7.0/24","podCIDRs":["10.0.7.0/24"]},"status":{"addresses":[{"address":"10.200.0.7","type":"InternalIP"},{"address":"sim-7","type":"Hostname"}],"allocatable":{"cpu":"4","ephemeral-storage":"64Gi","memory":"8Gi","pods":"110"},"capacity":{"cpu":"4","ephemeral-storage":"64Gi","memory":"8Gi","pods":"110"},"conditions":[{"lastHeartbeatTime":"1970-01-01T00:00:00Z","lastTransitionTime":"1970-01-01T00:00:00Z","message":"kubelet has sufficient memory available","reason":"KubeletHasSufficientMemory","status":"False","type":"MemoryPressure"},{"lastHeartbeatTime":"1970-01-01T00:00:00Z","lastTransitionTime":"1970-01-01T00:00:00Z","message":"kubelet has no disk pressure","reason":"KubeletHasNoDiskPressure","status":"False","type":"DiskPressure"},{"lastHeartbeatTime":"1970-01-01T00:00:00Z","lastTransitionTime":"1970-01-01T00:00:00Z","message":"kubelet has sufficient PID available","reason":"KubeletHasSufficientPID","status":"False","type":"PIDPressure"},{"lastHeartbeatTime":"1970-01-01T00:00:00Z","lastTransitionTime":"1970-01-01T00:00:00Z","message":"kubelet is posting ready status","reason":"KubeletReady","status":"True","type":"Ready"}],"daemonEndpoints":{"kubeletEndpoint":{"Port":0}},"nodeInfo":{"architecture":"ARCH","bootID":"00000000-0000-0000-0001-000000000007","containerRuntimeVersion":"sim://0","kernelVersion":"simulated","kubeProxyVersion":"","kubeletVersion":"v1.36.0+muster-sim-VERSION","machineID":"00000000000000000000000000000007","operatingSystem":"linux","osImage":"simulated","systemUUID":"00000000-0000-0000-0000-000000000007"}}}"#]].assert_eq(&object);
}
