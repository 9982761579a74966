use alloc::format;
use alloc::string::ToString as _;

use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::*;
use crate::explain::tests::{snapshot, time};
use crate::scenario::{self, World};

/// Previews the rollout of the DaemonSet in the last line of the scenario.
fn check(world: &str, planned: &str, want: Expect) {
    want.assert_eq(&preview_rollout(world, planned).to_string());
}

fn preview_rollout(world: &str, planned: &str) -> RolloutPreview {
    let live = scenario::parse(world).expect("a scenario");
    forecast_of(&live, planned, |_| {})
}

fn forecast_of(live: &World, planned: &str, change: impl Fn(&mut Value)) -> RolloutPreview {
    let planned = scenario::parse(planned).expect("a scenario").sets.remove(0);
    let mut world = live.clone();
    if world.sets.is_empty() {
        world.sets.push(planned.clone());
    }
    let mut snapshot = snapshot(&world);
    for node in &world.nodes {
        snapshot.add_node_capacity(node.to_string().as_bytes()).expect("it is a node");
    }
    for pod in &world.pods {
        snapshot.add_scheduled_pod(pod.to_string().as_bytes()).expect("it is a pod");
    }
    if !live.sets.is_empty() {
        let mut planned = planned;
        change(&mut planned);
        snapshot.add_object(Kind::Sets, planned.to_string().as_bytes()).expect("it is a set");
    }
    snapshot.preview_rollout(time(live)).expect("the set is there")
}

const FIVE: &str = "
    now  1000
    set  web    template=1 max-unavailable=2 gen=1
    node n1     label=disk:ssd
    node n2     label=disk:ssd
    node n3     label=disk:ssd
    node n4     label=disk:ssd
    node n5     taint=gpu=yes:NoSchedule
    pod  web-1  on=n1 ready since=100
    pod  web-2  on=n2 ready since=100
    pod  web-3  on=n3 ready since=100
    pod  web-4  on=n4 ready since=100
    rev  web-a  template=1 number=3
    rev  web-z  template=9 number=2
";

#[test]
fn a_new_set() {
    check(
        "now 10\nnode n1\nnode n2 taint=gpu=yes:NoSchedule\nnode n3 not-ready since=1",
        "set web",
        expect![[r#"
            DaemonSet default/web: new
            3 nodes: 2 gain a pod, 0 lose it, 0 get a new one, 0 keep theirs, 1 without

            gains       n1, n3
            waits       for 1 node: its node is not ready: n3
            without     1 node: taint gpu=yes:NoSchedule is not tolerated: n2

            Nothing was changed. Assumes that every new pod becomes available and nothing
            else changes.
        "#]],
    );
}

#[test]
fn pods_that_a_new_set_adopts_are_replaced_and_not_gained() {
    let mut live = scenario::parse(
        "
        now  1000
        set  web  template=1
        node n1
        node n2
        node n3
        pod  o-1  on=n1 ready since=100 orphan
        pod  o-2  on=n2 ready since=100 orphan
    ",
    )
    .expect("a scenario");
    live.sets.clear();
    expect![[r#"
        DaemonSet default/web: new
        3 nodes: 1 gain a pod, 0 lose it, 2 get a new one, 0 keep theirs, 0 without

        gains       n3
        replaces    2 nodes in 2 batches, maxUnavailable 1
                    1. n2
                    2. n1

        Nothing was changed. Assumes that every new pod becomes available and nothing
        else changes.
    "#]]
    .assert_eq(&forecast_of(&live, "set web template=2", |_| {}).to_string());
}

#[test]
fn a_new_revision_goes_in_batches() {
    check(
        FIVE,
        "set web template=2 max-unavailable=2 gen=2",
        expect![[r#"
        DaemonSet default/web: new revision 4
        5 nodes: 0 gain a pod, 0 lose it, 4 get a new one, 0 keep theirs, 1 without

        replaces    4 nodes in 2 batches, maxUnavailable 2
                    1. n4, n3
                    2. n2, n1
        without     1 node: taint gpu=yes:NoSchedule is not tolerated: n5

        Nothing was changed. Assumes that every new pod becomes available and nothing
        else changes.
    "#]],
    );
    check(
        FIVE,
        "set web template=2 max-unavailable=1 min-ready=30 gen=2",
        expect![[r#"
            DaemonSet default/web: new revision 4
            5 nodes: 0 gain a pod, 0 lose it, 4 get a new one, 0 keep theirs, 1 without

            replaces    4 nodes in 4 batches, maxUnavailable 1, minReadySeconds 30: 2m at
                        least
                        1. n4
                        2. n3
                        3. n2
                        4. n1
            without     1 node: taint gpu=yes:NoSchedule is not tolerated: n5

            Nothing was changed. Assumes that every new pod becomes available and nothing
            else changes.
        "#]],
    );
    check(
        FIVE,
        "set web template=2 max-surge=50% gen=2",
        expect![[r#"
        DaemonSet default/web: new revision 4
        5 nodes: 0 gain a pod, 0 lose it, 4 get a new one, 0 keep theirs, 1 without

        replaces    4 nodes in 2 batches, maxSurge 50%
                    1. n4, n3
                    2. n2, n1
        without     1 node: taint gpu=yes:NoSchedule is not tolerated: n5

        Nothing was changed. Assumes that every new pod becomes available and nothing
        else changes.
    "#]],
    );
    check(
        FIVE,
        "set web template=2 on-delete gen=2",
        expect![[r#"
        DaemonSet default/web: new revision 4
        5 nodes: 0 gain a pod, 0 lose it, 0 get a new one, 4 keep theirs, 1 without

        waits       OnDelete: 4 nodes until a user deletes the old pod: n1, n2, n3, n4
        without     1 node: taint gpu=yes:NoSchedule is not tolerated: n5

        Nothing was changed. Assumes that every new pod becomes available and nothing
        else changes.
    "#]],
    );
}

#[test]
fn an_earlier_revision_again() {
    check(
        FIVE,
        "set web template=9 max-unavailable=100% gen=2",
        expect![[r#"
        DaemonSet default/web: rollback to revision 2, which becomes revision 4
        5 nodes: 0 gain a pod, 0 lose it, 4 get a new one, 0 keep theirs, 1 without

        replaces    4 nodes in 1 batch, maxUnavailable 100%
                    1. n3, n2, n1, n4
        without     1 node: taint gpu=yes:NoSchedule is not tolerated: n5

        Nothing was changed. Assumes that every new pod becomes available and nothing
        else changes.
    "#]],
    );
}

#[test]
fn nothing_and_next_to_nothing() {
    check(
        FIVE,
        "set web template=1 max-unavailable=2 gen=1",
        expect![[r#"
        DaemonSet default/web: no change
        5 nodes: 0 gain a pod, 0 lose it, 0 get a new one, 4 keep theirs, 1 without

        without     1 node: taint gpu=yes:NoSchedule is not tolerated: n5

        Nothing was changed. Assumes that every new pod becomes available and nothing
        else changes.
    "#]],
    );
    check(
        FIVE,
        "set web template=1 max-unavailable=3 gen=2",
        expect![[r#"
        DaemonSet default/web: a change that replaces no pod
        5 nodes: 0 gain a pod, 0 lose it, 0 get a new one, 4 keep theirs, 1 without

        without     1 node: taint gpu=yes:NoSchedule is not tolerated: n5

        Nothing was changed. Assumes that every new pod becomes available and nothing
        else changes.
    "#]],
    );
}

#[test]
fn a_set_that_moves() {
    check(
        FIVE,
        "set web template=1 max-unavailable=2 gen=2 tolerate=gpu:NoSchedule",
        expect![[r#"
            DaemonSet default/web: new revision 4
            5 nodes: 1 gain a pod, 0 lose it, 4 get a new one, 0 keep theirs, 0 without

            gains       n5
            replaces    4 nodes in 2 batches, maxUnavailable 2
                        1. n3, n1
                        2. n2, n4

            Nothing was changed. Assumes that every new pod becomes available and nothing
            else changes.
        "#]],
    );
    check(
        &format!("{FIVE}\nnode n6"),
        "set web template=1 max-unavailable=2 gen=2 node-selector=disk:ssd",
        expect![[r#"
            DaemonSet default/web: new revision 4
            6 nodes: 0 gain a pod, 0 lose it, 4 get a new one, 0 keep theirs, 2 without

            replaces    4 nodes in 2 batches, maxUnavailable 2
                        1. n1, n3
                        2. n2, n4
            without     2 nodes: the node selector requires disk=ssd: n5, n6

            Nothing was changed. Assumes that every new pod becomes available and nothing
            else changes.
        "#]],
    );
    check(
        FIVE,
        "set web template=1 max-unavailable=2 gen=2 node-selector=disk:hdd",
        expect![[r#"
        DaemonSet default/web: new revision 4
        5 nodes: 0 gain a pod, 4 lose it, 0 get a new one, 0 keep theirs, 1 without

        loses       4 nodes: the node selector requires disk=hdd: n1, n2, n3, n4
        without     1 node: the node selector requires disk=hdd: n5

        Nothing was changed. Assumes that every new pod becomes available and nothing
        else changes.
    "#]],
    );
}

#[test]
fn what_does_not_fit_stops_it() {
    let mut live = scenario::parse(FIVE).expect("a scenario");
    for node in &mut live.nodes {
        node["status"]["allocatable"] = json!({"cpu": "2", "pods": "10"});
    }
    live.nodes[1]["status"]["allocatable"]["cpu"] = "500m".into();
    let wanting = |set: &mut Value| {
        set["spec"]["template"]["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "1"}});
    };
    let said = forecast_of(&live, "set web template=2 max-unavailable=1 gen=2", wanting);
    expect![[r#"
        DaemonSet default/web: new revision 4
        5 nodes: 0 gain a pod, 0 lose it, 2 get a new one, 2 keep theirs, 1 without

        replaces    2 nodes in 2 batches, maxUnavailable 1
                    1. n4
                    2. n2
        stops       with the old pod on 2 nodes: n1, n3
                    waits for 1 node: insufficient cpu: n2
        without     1 node: taint gpu=yes:NoSchedule is not tolerated: n5

        Nothing was changed. Assumes that every new pod becomes available and nothing
        else changes.
    "#]]
    .assert_eq(&said.to_string());
    // With surge both pods run side by side, and only one of them can use the host port.
    let port = |set: &mut Value| {
        set["spec"]["template"]["spec"]["containers"][0]["ports"] =
            json!([{"containerPort": 1, "hostPort": 80}]);
    };
    port(&mut live.sets[0]);
    live.pods
        .iter_mut()
        .for_each(|it| it["spec"]["containers"][0]["ports"] = json!([{"containerPort": 1, "hostPort": 80}]));
    live.revisions[0]["data"]["spec"]["template"] = live.sets[0]["spec"]["template"].clone();
    let said = forecast_of(&live, "set web template=2 max-surge=1 gen=2", port);
    expect![[r#"
        DaemonSet default/web: new revision 4
        5 nodes: 0 gain a pod, 0 lose it, 0 get a new one, 4 keep theirs, 1 without

        replaces    1 node in 1 batch, maxSurge 1
                    1. n1
        stops       with the old pod on 4 nodes: n1, n2, n3, n4
                    waits for 1 node: host port 80/TCP is in use: n1
        without     1 node: taint gpu=yes:NoSchedule is not tolerated: n5

        Nothing was changed. Assumes that every new pod becomes available and nothing
        else changes.
    "#]]
    .assert_eq(&said.to_string());
    let said = forecast_of(&live, "set web template=2 max-unavailable=1 gen=2", port);
    expect![[r#"
        DaemonSet default/web: new revision 4
        5 nodes: 0 gain a pod, 0 lose it, 4 get a new one, 0 keep theirs, 1 without

        replaces    4 nodes in 4 batches, maxUnavailable 1
                    1. n1
                    2. n4
                    3. n3
                    4. n2
        without     1 node: taint gpu=yes:NoSchedule is not tolerated: n5

        Nothing was changed. Assumes that every new pod becomes available and nothing
        else changes.
    "#]]
    .assert_eq(&said.to_string());
}

#[test]
fn a_pod_in_trouble_stops_it() {
    let world = "
        now  1000
        set  web    template=2 gen=2
        node n1
        node n2
        node n3
        pod  web-1  on=n1 rev=1 ready since=100
        pod  web-2  on=n2 rev=2 waiting=CrashLoopBackOff
        pod  web-3  on=n3 rev=1 ready since=100
        rev  web-a  template=1
        rev  web-b  template=2 number=2
    ";
    check(
        world,
        "set web template=3 gen=3",
        expect![[r#"
        DaemonSet default/web: new revision 3
        3 nodes: 0 gain a pod, 0 lose it, 3 get a new one, 0 keep theirs, 0 without

        replaces    3 nodes in 3 batches, maxUnavailable 1
                    1. n2
                    2. n3
                    3. n1

        Nothing was changed. Assumes that every new pod becomes available and nothing
        else changes.
    "#]],
    );
    check(
        world,
        "set web template=2 gen=3 min-ready=5",
        expect![[r#"
        DaemonSet default/web: a change that replaces no pod
        3 nodes: 0 gain a pod, 0 lose it, 0 get a new one, 3 keep theirs, 0 without

        stops       with the old pod on 2 nodes: n1, n3
                    waits for 1 node: CrashLoopBackOff: n2

        Nothing was changed. Assumes that every new pod becomes available and nothing
        else changes.
    "#]],
    );
}

#[test]
fn for_programs() {
    let said = preview_rollout(FIVE, "set web template=2 max-unavailable=2 gen=2 min-ready=10").to_json();
    let said = json!({"change": said["change"], "counts": said["counts"], "gains": said["gains"], "loses": said["loses"],
        "rollout": said["rollout"], "first": said["after"][0], "notes": said["notes"]});
    expect![[r#"
        {
          "change": {
            "kind": "newRevision",
            "revision": 4
          },
          "counts": {
            "gain": 0,
            "keep": 0,
            "lose": 0,
            "replace": 4,
            "total": 5,
            "without": 1
          },
          "first": {
            "admitted": null,
            "assignedRevision": null,
            "changesAt": null,
            "details": [],
            "message": "its pod is available",
            "node": "n1",
            "pod": null,
            "reason": "UpToDate",
            "revision": "849fb4b4d5",
            "shouldRun": true,
            "state": "upToDate",
            "usesBudget": false
          },
          "gains": [],
          "loses": [],
          "notes": [],
          "rollout": {
            "atLeastSeconds": 20,
            "batches": [
              {
                "afterSeconds": 0,
                "nodes": [
                  "n4",
                  "n3"
                ],
                "step": null
              },
              {
                "afterSeconds": 10,
                "nodes": [
                  "n2",
                  "n1"
                ],
                "step": null
              }
            ],
            "limit": "2",
            "policy": null,
            "stops": null,
            "strategy": "maxUnavailable",
            "waitForDelete": []
          }
        }"#]]
    .assert_eq(&serde_json::to_string_pretty(&said).expect("it is JSON"));
}

#[test]
fn hundreds_go_in_order() {
    let mut world = "now 1000\nset web\nrev web-a\n".to_string();
    for at in 0..600 {
        world += &format!("node n{at:04}\npod web-{at} on=n{at:04} ready since=500\n");
    }
    let said = preview_rollout(&world, "set web template=2 gen=2");
    let mut order: Vec<&Text> = said.batches.iter().flat_map(|it| &it.nodes).collect();
    assert_eq!((said.batches.len(), order.len()), (600, 600));
    order.sort();
    order.dedup();
    assert_eq!(order.len(), 600);
    let said = said.to_string();
    assert!(said.contains("600 nodes in 600 batches, maxUnavailable 1\n"), "{said}");
    assert!(said.contains("and 592 more\n"), "{said}");
}

#[test]
fn as_kubectl_applies() {
    let last = json!({"metadata": {"name": "web", "labels": {"a": "1", "b": "1"}}, "spec": {
        "minReadySeconds": 5,
        "template": {"spec": {
            "nodeSelector": {"disk": "ssd"},
            "tolerations": [{"key": "x"}],
            "containers": [{"name": "a", "image": "a:1", "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "1"}]}, {"name": "b"}],
        }},
    }});
    let live = json!({
        "metadata": {"name": "web", "uid": "u", "resourceVersion": "7", "labels": {"a": "1", "b": "1", "theirs": "1"},
            "annotations": {LAST_APPLIED_ANNOTATION: last.to_string(), "theirs": "1"}},
        "spec": {
            "minReadySeconds": 5,
            "revisionHistoryLimit": 10,
            "template": {
                "metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": "then"}},
                "spec": {
                    "dnsPolicy": "ClusterFirst",
                    "nodeSelector": {"disk": "ssd"},
                    "tolerations": [{"key": "x"}, {"key": "theirs"}],
                    "containers": [
                        {"name": "a", "image": "a:1", "imagePullPolicy": "IfNotPresent",
                            "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "1"}, {"name": "THEIRS", "value": "1"}]},
                        {"name": "b"},
                        {"name": "injected"},
                    ],
                },
            },
        },
        "status": {"numberReady": 3},
    });
    let file = json!({
        "metadata": {"name": "web", "labels": {"a": "2"}, "creationTimestamp": null},
        "spec": {"template": {"spec": {
            "tolerations": [{"key": "y"}],
            "containers": [{"name": "a", "image": "a:2", "env": [{"name": "Y", "value": "2"}, {"name": "Z", "value": "1"}]}],
        }}},
        "status": {"numberReady": 99},
    });
    let after = applied_object(&live, &file);
    let patch = merge_patch(&live, &after).expect("something changes");
    expect![[r#"
        {
          "metadata": {
            "labels": {
              "a": "2",
              "b": null
            }
          },
          "spec": {
            "minReadySeconds": null,
            "template": {
              "spec": {
                "containers": [
                  {
                    "env": [
                      {
                        "name": "Y",
                        "value": "2"
                      },
                      {
                        "name": "Z",
                        "value": "1"
                      },
                      {
                        "name": "THEIRS",
                        "value": "1"
                      }
                    ],
                    "image": "a:2",
                    "imagePullPolicy": "IfNotPresent",
                    "name": "a"
                  },
                  {
                    "name": "injected"
                  }
                ],
                "nodeSelector": null,
                "tolerations": [
                  {
                    "key": "y"
                  }
                ]
              }
            }
          }
        }"#]]
    .assert_eq(&serde_json::to_string_pretty(&patch).expect("it is JSON"));
    assert_eq!(
        merge_patch(&live, &applied_object(&live, &last)),
        merge_patch(&live, &{
            let mut same = live.clone();
            // The list of tolerations has no merge key: it is replaced as a whole.
            same["spec"]["template"]["spec"]["tolerations"] = json!([{"key": "x"}]);
            same
        })
    );
    assert_eq!(merge_patch(&live, &live), None);
}
