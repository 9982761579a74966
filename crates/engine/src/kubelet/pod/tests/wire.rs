//! Whole statuses, and parsing of objects.

use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::super::status::contains_fields;
use super::*;

/// Compares the status at the end of a scenario.
fn status(until_s: i64, scenario: &str, expected: Expect) {
    let mut scene = Scene::of(scenario);
    scene.run(until_s);
    expected.assert_eq(&serde_json::to_string_pretty(&scene.object["status"]).unwrap());
}

#[test]
fn status_of_a_running_pod() {
    status(
        50,
        "
        pod
        init first
        main web readiness=10,3
        5 exits first 0
        6 probe-fails web readiness
        30 exits web 3
        ",
        expect![[r#"
            {
              "conditions": [
                {
                  "lastTransitionTime": "1970-01-01T00:00:00Z",
                  "message": null,
                  "observedGeneration": 1,
                  "reason": null,
                  "status": "True",
                  "type": "PodReadyToStartContainers"
                },
                {
                  "lastTransitionTime": "1970-01-01T00:00:05Z",
                  "message": null,
                  "observedGeneration": 1,
                  "reason": null,
                  "status": "True",
                  "type": "Initialized"
                },
                {
                  "lastTransitionTime": "1970-01-01T00:00:30Z",
                  "message": "containers with unready status: [web]",
                  "observedGeneration": 1,
                  "reason": "ContainersNotReady",
                  "status": "False",
                  "type": "Ready"
                },
                {
                  "lastTransitionTime": "1970-01-01T00:00:30Z",
                  "message": "containers with unready status: [web]",
                  "observedGeneration": 1,
                  "reason": "ContainersNotReady",
                  "status": "False",
                  "type": "ContainersReady"
                },
                {
                  "lastTransitionTime": "1970-01-01T00:00:00Z",
                  "message": null,
                  "observedGeneration": 1,
                  "reason": null,
                  "status": "True",
                  "type": "PodScheduled"
                }
              ],
              "containerStatuses": [
                {
                  "containerID": "containerd://c4",
                  "image": "busybox:1",
                  "imageID": "sha256:busybox:1",
                  "lastState": {
                    "terminated": {
                      "containerID": "containerd://c3",
                      "exitCode": 3,
                      "finishedAt": "1970-01-01T00:00:30Z",
                      "reason": "Error",
                      "startedAt": "1970-01-01T00:00:05Z"
                    }
                  },
                  "name": "web",
                  "ready": false,
                  "restartCount": 1,
                  "started": true,
                  "state": {
                    "running": {
                      "startedAt": "1970-01-01T00:00:30Z"
                    }
                  }
                }
              ],
              "hostIP": "192.168.0.1",
              "hostIPs": [
                {
                  "ip": "192.168.0.1"
                }
              ],
              "initContainerStatuses": [
                {
                  "containerID": "containerd://c2",
                  "image": "busybox:1",
                  "imageID": "sha256:busybox:1",
                  "lastState": {},
                  "name": "first",
                  "ready": true,
                  "restartCount": 0,
                  "started": false,
                  "state": {
                    "terminated": {
                      "containerID": "containerd://c2",
                      "exitCode": 0,
                      "finishedAt": "1970-01-01T00:00:05Z",
                      "reason": "Completed",
                      "startedAt": "1970-01-01T00:00:00Z"
                    }
                  }
                }
              ],
              "observedGeneration": 1,
              "phase": "Running",
              "podIP": "10.0.0.1",
              "podIPs": [
                {
                  "ip": "10.0.0.1"
                }
              ],
              "startTime": "1970-01-01T00:00:00Z"
            }"#]],
    );
}

#[test]
fn status_of_an_evicted_pod() {
    status(
        50,
        "
        pod host-network
        main web
        30 terminate Evicted
        ",
        expect![[r#"
            {
              "conditions": [
                {
                  "lastTransitionTime": "1970-01-01T00:00:30Z",
                  "message": null,
                  "observedGeneration": 1,
                  "reason": null,
                  "status": "False",
                  "type": "PodReadyToStartContainers"
                },
                {
                  "lastTransitionTime": "1970-01-01T00:00:00Z",
                  "message": null,
                  "observedGeneration": 1,
                  "reason": null,
                  "status": "True",
                  "type": "Initialized"
                },
                {
                  "lastTransitionTime": "1970-01-01T00:00:30Z",
                  "message": null,
                  "observedGeneration": 1,
                  "reason": "PodFailed",
                  "status": "False",
                  "type": "Ready"
                },
                {
                  "lastTransitionTime": "1970-01-01T00:00:30Z",
                  "message": null,
                  "observedGeneration": 1,
                  "reason": "PodFailed",
                  "status": "False",
                  "type": "ContainersReady"
                },
                {
                  "lastTransitionTime": "1970-01-01T00:00:00Z",
                  "message": null,
                  "observedGeneration": 1,
                  "reason": null,
                  "status": "True",
                  "type": "PodScheduled"
                },
                {
                  "lastTransitionTime": "1970-01-01T00:00:30Z",
                  "message": "It was Evicted",
                  "observedGeneration": 1,
                  "reason": "TerminationByKubelet",
                  "status": "True",
                  "type": "DisruptionTarget"
                }
              ],
              "containerStatuses": [
                {
                  "containerID": "containerd://c2",
                  "image": "busybox:1",
                  "imageID": "sha256:busybox:1",
                  "lastState": {},
                  "name": "web",
                  "ready": false,
                  "restartCount": 0,
                  "started": false,
                  "state": {
                    "terminated": {
                      "containerID": "containerd://c2",
                      "exitCode": 143,
                      "finishedAt": "1970-01-01T00:00:30Z",
                      "reason": "Error",
                      "startedAt": "1970-01-01T00:00:00Z"
                    }
                  }
                }
              ],
              "hostIP": "192.168.0.1",
              "hostIPs": [
                {
                  "ip": "192.168.0.1"
                }
              ],
              "message": "It was Evicted",
              "observedGeneration": 1,
              "phase": "Failed",
              "podIP": "192.168.0.1",
              "podIPs": [
                {
                  "ip": "192.168.0.1"
                }
              ],
              "reason": "Evicted",
              "startTime": "1970-01-01T00:00:00Z"
            }"#]],
    );
}

#[test]
fn status_of_a_pod_that_never_started() {
    status(
        10,
        "
        pod
        main web image=nginx:1
        0 absent nginx:1
        0 fail pull
        ",
        expect![[r#"
            {
              "conditions": [
                {
                  "lastTransitionTime": "1970-01-01T00:00:00Z",
                  "message": null,
                  "observedGeneration": 1,
                  "reason": null,
                  "status": "True",
                  "type": "PodReadyToStartContainers"
                },
                {
                  "lastTransitionTime": "1970-01-01T00:00:00Z",
                  "message": null,
                  "observedGeneration": 1,
                  "reason": null,
                  "status": "True",
                  "type": "Initialized"
                },
                {
                  "lastTransitionTime": "1970-01-01T00:00:00Z",
                  "message": "containers with unready status: [web]",
                  "observedGeneration": 1,
                  "reason": "ContainersNotReady",
                  "status": "False",
                  "type": "Ready"
                },
                {
                  "lastTransitionTime": "1970-01-01T00:00:00Z",
                  "message": "containers with unready status: [web]",
                  "observedGeneration": 1,
                  "reason": "ContainersNotReady",
                  "status": "False",
                  "type": "ContainersReady"
                },
                {
                  "lastTransitionTime": "1970-01-01T00:00:00Z",
                  "message": null,
                  "observedGeneration": 1,
                  "reason": null,
                  "status": "True",
                  "type": "PodScheduled"
                }
              ],
              "containerStatuses": [
                {
                  "image": "nginx:1",
                  "imageID": "",
                  "lastState": {},
                  "name": "web",
                  "ready": false,
                  "restartCount": 0,
                  "started": false,
                  "state": {
                    "waiting": {
                      "message": "cannot pull",
                      "reason": "ErrImagePull"
                    }
                  }
                }
              ],
              "hostIP": "192.168.0.1",
              "hostIPs": [
                {
                  "ip": "192.168.0.1"
                }
              ],
              "observedGeneration": 1,
              "phase": "Pending",
              "podIP": "10.0.0.1",
              "podIPs": [
                {
                  "ip": "10.0.0.1"
                }
              ],
              "startTime": "1970-01-01T00:00:00Z"
            }"#]],
    );
}

#[test]
fn covers_compares_statuses() {
    let has = |part: Value, whole: Value| contains_fields(&part, &whole);
    assert!(has(json!({"a": 1, "b": null}), json!({"a": 1, "c": 2})));
    assert!(!has(json!({"a": 1}), json!({"a": 2})));
    assert!(!has(json!({"a": 1}), Value::Null));
    // Other conditions may exist, but no other container statuses.
    assert!(has(
        json!([{"type": "b", "status": "True"}]),
        json!([{"type": "a"}, {"type": "b", "status": "True"}])
    ));
    assert!(!has(json!([{"name": "b"}]), json!([{"name": "a"}, {"name": "b"}])));
    assert!(has(json!([{"name": "b"}, {"name": "a"}]), json!([{"name": "a"}, {"name": "b"}])));
    assert!(has(json!([]), Value::Null));
}

#[test]
fn a_changed_address_deletes_the_old_one() {
    let mut scene = Scene::of(
        "
        pod
        main web
        5 sandbox-dies
        ",
    );
    scene.hanging.insert("report".into());
    scene.run(4);
    // Nothing was reported yet: the first report is in flight.
    let reported = json!({"podIPs": [{"ip": "10.0.0.1"}]});
    scene.pod.reported = reported;
    let reports = |scene: &Scene| {
        let reports = scene.held.iter().filter_map(|it| match it {
            Action::Report(patch) => Some(patch["status"]["podIPs"].to_string()),
            _ => None,
        });
        reports.collect::<Vec<_>>()
    };
    let held = core::mem::take(&mut scene.held);
    held.iter().for_each(|it| scene.pod.apply_outcome(it, ActionOutcome::Done, Time::from_secs(4)));
    scene.pod.reported = json!({"podIPs": [{"ip": "10.0.0.9"}]});
    scene.run(4);
    expect![[r#"["[{\"ip\":\"10.0.0.1\"},{\"$patch\":\"delete\",\"ip\":\"10.0.0.9\"}]"]"#]]
        .assert_eq(&format!("{:?}", reports(&scene)));
}

#[test]
fn malformed_pods() {
    for text in [
        "",
        "7",
        r#"{"metadata": null}"#,
        r#"{"spec": 1}"#,
        r#"{"spec": {"containers": [1]}}"#,
        r#"{"spec": {"containers": [{"volumeMounts": [1]}]}}"#,
        r#"{"spec": {"containers": [{"lifecycle": {"postStart": 1}}]}}"#,
        r#"{"spec": {"tolerations": 1}}"#,
        r#"{"status": 1}"#,
    ] {
        let why = PodObject::parse(text.as_bytes()).unwrap_err();
        assert!(why.to_string().starts_with("read an object of pods: "), "{why}");
    }
}

/// As in Go.
#[test]
fn null_is_an_absent_field() {
    let decoded = |object: Value| format!("{:?}", PodObject::from_value(&object).unwrap());
    let absent = decoded(json!({}));
    let metadata = json!({"name": null, "uid": null, "annotations": null, "deletionTimestamp": null});
    assert_eq!(decoded(json!({"metadata": metadata, "spec": null, "status": null})), absent);
    let spec =
        json!({"containers": null, "initContainers": null, "readinessGates": null, "hostNetwork": null});
    assert_eq!(decoded(json!({"spec": spec})), absent);
    let container = |container: Value| decoded(json!({"spec": {"containers": [container]}}));
    let nulls = json!({
        "name": null, "image": null, "resources": null, "volumeMounts": null, "livenessProbe": null,
        "lifecycle": {"postStart": null, "preStop": null},
    });
    assert_eq!(container(nulls), container(json!({})));
}

/// Probes and hooks of an init container that is not a sidecar, and of an ephemeral container, are ignored.
#[test]
fn the_fields_of_containers() {
    let fields = json!({
        "image": "web", "resources": {"limits": {"cpu": 1}}, "lifecycle": {"preStop": {"exec": {}}},
        "livenessProbe": {"periodSeconds": 0, "failureThreshold": -1},
        "volumeMounts": [{"name": "data", "mountPath": "/data", "readOnly": true}, {}],
    });
    let named = |name: &str, restart_policy: Value| {
        let mut container = fields.clone();
        container["name"] = name.into();
        container["restartPolicy"] = restart_policy;
        container
    };
    let object = json!({"spec": {
        "restartPolicy": "OnFailure",
        "ephemeralContainers": [named("debug", "Always".into())],
        "containers": [named("web", Value::Null)],
        "initContainers": [named("first", Value::Null), named("proxy", "Always".into())],
    }});
    let pod = PodObject::from_value(&object).unwrap();
    let mut text = String::new();
    for it in pod.spec.all_containers() {
        let probe = it.liveness.as_ref().map(|it| (it.period, it.failures_max));
        let mounts = it.mounts.iter().map(|it| format!("{:?} {:?} {}", it.name, it.path, it.is_read_only));
        text += &format!(
            "{} {} {:?} {:?} {:?} {:?} {} {} {}\n",
            it.position,
            it.name,
            it.role,
            it.restart,
            it.pull,
            probe,
            it.has_pre_stop,
            it.resources,
            mounts.collect::<Vec<_>>().join(", "),
        );
    }
    expect![[r#"
        0 first Init OnFailure Always None false {"limits":{"cpu":1}} "data" "/data" true, "" "" false
        1 proxy Sidecar Always Always Some((1s, 3)) true {"limits":{"cpu":1}} "data" "/data" true, "" "" false
        2 web Main OnFailure Always Some((1s, 3)) true {"limits":{"cpu":1}} "data" "/data" true, "" "" false
        3 debug Ephemeral Never Always None false {"limits":{"cpu":1}} "data" "/data" true, "" "" false
    "#]]
    .assert_eq(&text);
}

#[test]
fn an_orphan_is_removed() {
    let mut scene = Scene::of("pod\nmain web");
    scene.run(5);
    scene.pod = PodStateMachine::orphan(ObjectKey::new("default", "web"), "u1".into(), host(), scene.now);
    scene.log.clear();
    scene.run(50);
    expect![[r#"
        0      - Killing: Stopping container web
        0    stop web c2 within 2s
        0    stop sandbox s1
        0    remove sandbox s1
        0    clean up with its logs
        0    finished
    "#]]
    .assert_eq(&scene.log);
}

#[test]
fn a_runtime_state_from_before_the_last_action_is_not_used() {
    let mut scene = Scene::of("pod\nmain web");
    scene.hanging.insert("start".into());
    scene.run(5);
    let before = RuntimeState {
        change_count: scene.pod.change_count(),
        sandboxes: scene.sandboxes.clone(),
        containers: scene.containers.clone(),
    };
    let held = core::mem::take(&mut scene.held);
    held.iter().for_each(|it| scene.complete(it));
    scene.pod.update_runtime_state(before, scene.now);
    assert_eq!(scene.pod.sync(scene.now).actions, [], "the container would be started twice");
}

#[test]
fn a_volume_mounted_twice_is_reported_once() {
    let mounts = json!([{"name": "v", "mountPath": "/a"}, {"name": "v", "mountPath": "/b"}]);
    let object = json!({
        "metadata": {"name": "web-1", "namespace": "shop", "uid": "u1"},
        "spec": {"nodeName": "n1", "containers": [{"name": "web", "image": "web:1", "volumeMounts": mounts}]},
    });
    let bytes = serde_json::to_vec(&object).unwrap();
    let now = Time::from_secs(1);
    let mut pod = PodStateMachine::new(parsed(&bytes), host(), now);
    pod.update_runtime_state(
        RuntimeState { change_count: pod.change_count(), ..RuntimeState::default() },
        now,
    );
    let reports = |pod: &mut PodStateMachine| {
        let actions = pod.sync(now).actions;
        actions.into_iter().filter(|it| matches!(it, Action::Report(_))).collect::<Vec<_>>()
    };
    let first = reports(&mut pod);
    assert_eq!(first.len(), 1);
    pod.apply_outcome(&first[0], ActionOutcome::Done, now);
    assert_eq!(reports(&mut pod), []);
}
