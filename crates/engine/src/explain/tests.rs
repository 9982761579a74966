use alloc::string::ToString as _;
use core::time::Duration;

use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::*;
use crate::controller::Backoff;
use crate::daemonset::RolloutDeletion;
use crate::daemonset::SetInMemoryState;
use crate::daemonset::execution::CreateResult;
use crate::daemonset::facts::Kind;
use crate::scenario::{self, World};

/// Explains the only DaemonSet of a scenario.
pub(crate) fn snapshot(world: &World) -> Snapshot {
    let set = world.sets.first().expect("a world has a set");
    let text = |at: &str| set.pointer(at).and_then(|it| it.as_str()).expect("a set has a name").to_string();
    let mut snapshot = Snapshot::new(ObjectKey::new(text("/metadata/namespace"), text("/metadata/name")));
    let kinds = [
        (Kind::Sets, &world.sets),
        (Kind::Nodes, &world.nodes),
        (Kind::Pods, &world.pods),
        (Kind::Revisions, &world.revisions),
    ];
    for (kind, objects) in kinds {
        for object in objects {
            snapshot.add_object(kind, object.to_string().as_bytes()).expect("a scenario is well formed");
        }
    }
    snapshot
}

pub(crate) fn time(world: &World) -> Time {
    Time::from_secs(scenario::EPOCH_S + world.now)
}

fn unknown() -> ControllerAnswer {
    ControllerAnswer::Unavailable("this cluster's controller has no endpoint for it".to_string())
}

fn explanation(world: &str, controller: ControllerAnswer) -> Explanation {
    let world = scenario::parse(world).expect("a scenario");
    snapshot(&world).explain(controller, time(&world)).expect("the set is there")
}

fn check(world: &str, want: Expect) {
    want.assert_eq(&explanation(world, unknown()).to_string());
}

const MIXED: &str = "
    now  1000
    set  web    template=2 max-unavailable=1 node-selector=disk:ssd affinity=zone:in:a,b observed=2
    node n1     label=disk:ssd label=zone:a
    node n2     label=disk:ssd label=zone:b
    node n3     label=disk:ssd label=zone:a
    node n4     label=disk:ssd label=zone:c
    node n5     label=disk:hdd label=zone:a
    node n6     label=zone:a taint=gpu=yes:NoSchedule
    node n7     label=disk:ssd label=zone:a taint=gpu=yes:NoSchedule
    node n8     label=disk:ssd label=zone:a taint=gone:NoExecute
    node n9     label=disk:ssd label=zone:a cordoned
    pod  web-1  on=n1 rev=2 ready since=100
    pod  web-2  on=n2 rev=1 ready since=100
    pod  web-3  on=n3 rev=2 waiting=ImagePullBackOff
    pod  web-7  on=n7 rev=1 ready since=100 tolerate=none
    pod  web-8  on=n8 rev=1 ready since=100
    pod  web-9  on=n9 rev=1 ready since=100
    pod  web-x  on=gone rev=1 ready since=100
    rev  web-a  template=1 number=1
    rev  web-b  template=2 number=2 made=900
";

#[test]
fn every_node_is_in_one_line() {
    check(
        MIXED,
        expect![[r#"
            DaemonSet default/web: revision 2, generation 2
            9 nodes: 4 should run it (1 up to date, 2 outdated, 1 not ready), 5 should not
            (1 kept, 1 removing, 3 excluded)
            and pods on 1 deleted node

              NODES  STATE        WHY
                  1  up to date   its pod is available
                                  n1
                  2  outdated     outdated, waits for the rollout budget (1 of 1 used)
                                  n2, n9
                  1  not ready    ImagePullBackOff
                                  n3
                                  pod web-3: container web: ImagePullBackOff
                  1  kept         existing pod kept; taint gpu=yes:NoSchedule prevents a new
                                  one
                                  n7
                                  taint gpu=yes:NoSchedule is not tolerated
                  1  removing     taint gone:NoExecute is not tolerated
                                  n8
                  2  excluded     the node selector requires disk=ssd
                                  n5, n6
                  1  excluded     node affinity requires zone in (a, b)
                                  n4
                                  the node has zone=c
                  1  gone         node was deleted
                                  gone

            rollout     2 of 4 nodes up to date, 3 available
                        maxUnavailable 1: 1 unavailable, none left
                        waits for 1 node: ImagePullBackOff: n3
                        next: n2, n9
            controller  state unavailable: this cluster's controller has no endpoint for it
        "#]],
    );
}

#[test]
fn every_node_has_a_line() {
    expect![[r#"
        DaemonSet default/web: revision 2, generation 2
        9 nodes: 4 should run it (1 up to date, 2 outdated, 1 not ready), 5 should not
        (1 kept, 1 removing, 3 excluded)
        and pods on 1 deleted node

        NODE  STATE        POD    WHY
        n1    up to date   web-1  its pod is available
        n2    outdated     web-2  outdated, waits for the rollout budget (1 of 1 used)
        n3    not ready    web-3  ImagePullBackOff; pod web-3: container web: ImagePullBackOff
        n4    excluded     -      node affinity requires zone in (a, b); the node has zone=c
        n5    excluded     -      the node selector requires disk=ssd; the node has disk=hdd
        n6    excluded     -      the node selector requires disk=ssd; the node has no label disk; taint gpu=yes:NoSchedule is not tolerated
        n7    kept         web-7  existing pod kept; taint gpu=yes:NoSchedule prevents a new one; taint gpu=yes:NoSchedule is not tolerated
        n8    removing     web-8  taint gone:NoExecute is not tolerated
        n9    outdated     web-9  outdated, waits for the rollout budget (1 of 1 used)
        gone  gone         web-x  node was deleted

        rollout     2 of 4 nodes up to date, 3 available
                    maxUnavailable 1: 1 unavailable, none left
                    waits for 1 node: ImagePullBackOff: n3
                    next: n2, n9
        controller  state unavailable: this cluster's controller has no endpoint for it
    "#]].assert_eq(&explanation(MIXED, unknown()).to_wide_text());
}

#[test]
fn one_node_is_told_everything() {
    let all = explanation(MIXED, unknown());
    expect![[r#"
        DaemonSet default/web on node n3: not ready, and should run there
          ImagePullBackOff
          pod web-3: container web: ImagePullBackOff
          pod web-3
          counts against the rollout budget

        rollout     2 of 4 nodes up to date, 3 available
                    maxUnavailable 1: 1 unavailable, none left
                    waits for 1 node: ImagePullBackOff: n3
                    next: n2, n9
        controller  state unavailable: this cluster's controller has no endpoint for it

        DaemonSet default/web on node n6: excluded, and should not run there
          the node selector requires disk=ssd
          the node has no label disk
          taint gpu=yes:NoSchedule is not tolerated

        rollout     2 of 4 nodes up to date, 3 available
                    maxUnavailable 1: 1 unavailable, none left
                    waits for 1 node: ImagePullBackOff: n3
                    next: n2, n9
        controller  state unavailable: this cluster's controller has no endpoint for it

        DaemonSet default/web on node n7: kept, and should not run there
          existing pod kept; taint gpu=yes:NoSchedule prevents a new one
          taint gpu=yes:NoSchedule is not tolerated
          pod web-7

        rollout     2 of 4 nodes up to date, 3 available
                    maxUnavailable 1: 1 unavailable, none left
                    waits for 1 node: ImagePullBackOff: n3
                    next: n2, n9
        controller  state unavailable: this cluster's controller has no endpoint for it

        no such node
    "#]]
    .assert_eq(
        &["n3", "n6", "n7", "n99"].map(|it| all.node_text(it).unwrap_or("no such node\n".into())).join("\n"),
    );
}

#[test]
fn for_programs() {
    let world = "
        now  1000
        set  web    max-unavailable=10% observed=1
        node n1
        node n2     taint=gpu=yes:NoSchedule
        pod  web-1  on=n1 failed=Evicted
        rev  web-a
    ";
    let json =
        serde_json::to_string_pretty(&explanation(world, unknown()).to_json(None)).expect("it is JSON");
    expect![[r#"
        {
          "at": "2026-01-01T00:16:40Z",
          "controller": {
            "known": false,
            "why": "this cluster's controller has no endpoint for it"
          },
          "counts": {
            "excluded": 1,
            "gone": 0,
            "kept": 0,
            "missing": 0,
            "notReady": 1,
            "outdated": 0,
            "pending": 0,
            "removing": 0,
            "terminating": 0,
            "total": 2,
            "upToDate": 0
          },
          "daemonSet": {
            "generation": 1,
            "name": "web",
            "namespace": "default",
            "observedGeneration": 1,
            "revision": 1,
            "revisionHash": "794686fc5b",
            "uid": "u-web"
          },
          "nodes": [
            {
              "admitted": null,
              "assignedRevision": null,
              "changesAt": null,
              "details": [
                "pod web-1: Evicted"
              ],
              "message": "Evicted",
              "node": "n1",
              "pod": "web-1",
              "reason": "NotReady",
              "revision": "794686fc5b",
              "shouldRun": true,
              "state": "notReady",
              "usesBudget": true
            },
            {
              "admitted": null,
              "assignedRevision": null,
              "changesAt": null,
              "details": [],
              "message": "taint gpu=yes:NoSchedule is not tolerated",
              "node": "n2",
              "pod": null,
              "reason": "UntoleratedNoScheduleTaint",
              "revision": null,
              "shouldRun": false,
              "state": "excluded",
              "usesBudget": false
            }
          ],
          "notes": [],
          "rollout": {
            "budget": 1,
            "complete": false,
            "limit": "10%",
            "next": [],
            "progressive": null,
            "strategy": "maxUnavailable",
            "used": 1,
            "waitsFor": [
              {
                "message": "Evicted",
                "nodes": [
                  "n1"
                ]
              }
            ]
          }
        }"#]]
    .assert_eq(&json);
}

#[test]
fn what_the_controller_remembers() {
    let world = "
        now  1000
        set  web    observed=1
        node n1
        node n2
        pod  web-1  on=n1 failed=Evicted
        pod  web-2  on=n2 ready since=100
        rev  web-a
    ";
    let now = Time::from_secs(scenario::EPOCH_S + 1000);
    let last = now - Duration::from_secs(10);
    let delay = Duration::from_secs(64);
    let memory = SetInMemoryState {
        generation: 1,
        backoffs: [("n1".into(), Backoff { delay, since: last })].into(),
        rollout_deletions: [("n2".into(), RolloutDeletion { hash: "a".into(), at: last })].into(),
        unseen_writes: 2,
        failures: 3,
        retry_at: Some(now + Duration::from_secs(2)),
        advanced_at: Some(now - Duration::from_secs(100)),
        creates: CreateResult::Succeeded,
    };
    let controller = ControllerState {
        memory,
        is_executing: true,
        queued: false,
        wakes_at: Some(now + Duration::from_secs(54)),
        panic_backoff_until: None,
    };
    let sent = controller.to_json();
    assert_eq!(ControllerState::from_json(sent.to_string().as_bytes()).as_ref(), Some(&controller));
    assert_eq!(ControllerState::from_json(b"{}"), None);
    assert_eq!(ControllerState::from_json(b"404 page not found"), None);
    expect![[r#"{"advancedAt":"2026-01-01T00:15:00.000000Z","backoffs":{"n1":{"delayMs":64000,"failedAt":"2026-01-01T00:16:30.000000Z"}},"creates":{"refused":null},"executing":true,"failures":3,"generation":1,"nextReconcileAt":"2026-01-01T00:17:34.000000Z","panicBackoffUntil":null,"queued":false,"retryAt":"2026-01-01T00:16:42.000000Z","rolloutDeletions":{"n2":{"at":"2026-01-01T00:16:30.000000Z","hash":"a"}},"unseenWrites":2}"#]].assert_eq(&sent.to_string());
    expect![[r#"
        DaemonSet default/web: revision 1, generation 1
        2 nodes: 2 should run it (1 up to date, 1 not ready), 0 should not

          NODES  STATE        WHY
              1  up to date   its pod is available
                              n2
              1  not ready    failed-pod backoff
                              n1
                              the failed pod is replaced at 00:17:34Z (in 54s)
                              pod web-1: Evicted

        rollout     2 of 2 nodes up to date, 1 available
                    maxUnavailable 1: 1 unavailable, none left
                    waits for 1 node: failed-pod backoff: n1
        controller  executing a plan
                    waiting for the watch to deliver 2 writes
                    3 calls failed in a row; next attempt at 00:16:42Z (in 2s)
                    failed-pod backoff on 1 node
                    next reconcile at 00:17:34Z (in 54s), or when something changes
    "#]]
    .assert_eq(&explanation(world, ControllerAnswer::Responded(controller)).to_string());
}

#[test]
fn thousands_are_grouped() {
    let mut world = "now 1000\nset web max-unavailable=10% template=2 observed=2\nrev web-a template=1\nrev web-b template=2 number=2\n".to_string();
    for at in 0..3000 {
        world +=
            &format!("node node-{at:04}{}\n", if at % 3 == 0 { " taint=gpu=yes:NoSchedule" } else { "" });
        if at % 3 != 0 {
            world += &format!(
                "pod web-{at} on=node-{at:04} ready since=500 rev={}\n",
                if at < 2000 { 2 } else { 1 }
            );
        }
    }
    check(
        &world,
        expect![[r#"
            DaemonSet default/web: revision 2, generation 2
            3000 nodes: 2000 should run it (1333 up to date, 667 outdated), 1000 should not
            (1000 excluded)

              NODES  STATE        WHY
               1333  up to date   its pod is available
                                  node-0001, node-0002, node-0004, node-0005, node-0007 and
                                  1328 more
                667  outdated     outdated, replaced next
                                  node-2000, node-2002, node-2003, node-2005, node-2006 and
                                  662 more
               1000  excluded     taint gpu=yes:NoSchedule is not tolerated
                                  node-0000, node-0003, node-0006, node-0009, node-0012 and
                                  995 more

            rollout     1333 of 2000 nodes up to date, 2000 available
                        maxUnavailable 10% (200 nodes): 0 unavailable, 200 left
                        next: node-2924, node-2645, node-2065, node-2180, node-2155 and 662
                        more
            controller  state unavailable: this cluster's controller has no endpoint for it
        "#]],
    );
}

#[test]
fn a_set_that_no_controller_saw() {
    check(
        "now 10\nset web observed=0\nnode n1\nnode n2 taint=x:NoSchedule",
        expect![[r#"
            DaemonSet default/web: revision not recorded yet, generation 1
            2 nodes: 1 should run it (1 missing), 1 should not (1 excluded)

              NODES  STATE        WHY
                  1  missing      no pod yet
                                  n1
                  1  excluded     taint x:NoSchedule is not tolerated
                                  n2

            rollout     the template is not recorded as a revision yet: no pod is created
                        until it is
            controller  state unavailable: this cluster's controller has no endpoint for it
            note        No controller has observed generation 1 yet (last observed: 0): is
                        one running?
        "#]],
    );
}

#[test]
fn strategies() {
    let world = |strategy: &str| {
        format!(
            "
            now  1000
            set  web    template=2 {strategy} min-ready=60 observed=2
            node n1
            node n2
            node n3
            pod  web-1  on=n1 rev=1 ready since=100
            pod  web-2  on=n2 rev=1 ready since=100
            pod  web-3  on=n3 rev=2 ready since=990
            rev  web-a  template=1
            rev  web-b  template=2 number=2 made=900
            "
        )
    };
    let said = |strategy| explanation(&world(strategy), unknown()).to_string();
    expect![[r#"
        DaemonSet default/web: revision 2, generation 2
        3 nodes: 3 should run it (2 outdated, 1 not ready), 0 should not

          NODES  STATE        WHY
              2  outdated     outdated, replaced when a user deletes it
                              n1, n2
              1  not ready    pod ready for less than minReadySeconds
                              n3
                              available at 00:17:30Z (in 50s)

        rollout     1 of 3 nodes up to date, 2 available
                    OnDelete: old pods are replaced when a user deletes them
        controller  state unavailable: this cluster's controller has no endpoint for it

        ---
        DaemonSet default/web: revision 2, generation 2
        3 nodes: 3 should run it (2 outdated, 1 not ready), 0 should not

          NODES  STATE        WHY
              2  outdated     outdated, replaced next
                              n1, n2
              1  not ready    pod ready for less than minReadySeconds
                              n3
                              available at 00:17:30Z (in 50s)

        rollout     1 of 3 nodes up to date, 2 available
                    maxUnavailable 2: 1 unavailable, 1 left
                    waits for 1 node: pod ready for less than minReadySeconds: n3
                    next: n2, n1
        controller  state unavailable: this cluster's controller has no endpoint for it

        ---
        DaemonSet default/web: revision 2, generation 2
        3 nodes: 3 should run it (2 outdated, 1 not ready), 0 should not

          NODES  STATE        WHY
              2  outdated     outdated, replaced next
                              n1, n2
              1  not ready    pod ready for less than minReadySeconds
                              n3
                              available at 00:17:30Z (in 50s)

        rollout     1 of 3 nodes up to date, 2 available
                    maxSurge 50% (2 nodes): 1 with a second pod, 1 left
                    waits for 1 node: pod ready for less than minReadySeconds: n3
                    next: n2, n1
        controller  state unavailable: this cluster's controller has no endpoint for it
    "#]]
    .assert_eq(&["on-delete", "max-unavailable=2", "max-surge=50%"].map(said).join("\n---\n"));
}

#[test]
fn words_in_eighty_columns() {
    let mut out = "begins\n".to_string();
    let words =
        "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen";
    write_wrapped(&mut out, 20, words).expect("a string takes everything");
    expect![[r#"
        begins
                            one two three four five six seven eight nine ten eleven
                            twelve thirteen fourteen fifteen sixteen
    "#]]
    .assert_eq(&out);
    let spans = [0, 59, 60, 200, 3600, 7500, 90_000].map(|s| format_duration(Duration::from_secs(s)));
    expect!["0s 59s 1m 3m20s 1h0m 2h5m 1d1h"].assert_eq(&spans.join(" "));
    let few = format_names(["a", "b", "c"], 2);
    let many = format_names(["a", "b", "c", "d"], 2);
    expect!["a, b, c; a, b and 2 more"].assert_eq(&[few, many].join("; "));
}

#[test]
fn ports_and_amounts() {
    let mut world = scenario::parse(
        "
        now  1000
        set  web    observed=1
        node n1
        node n2
        node n3
        node n4
        pod  web-1  for=n1
        rev  web-a
        ",
    )
    .expect("a scenario");
    let container = &mut world.sets[0]["spec"]["template"]["spec"]["containers"][0];
    container["ports"] = json!([{"containerPort": 80, "hostPort": 9100}]);
    container["resources"] = json!({"requests": {"cpu": "1500m", "memory": "1Gi"}});
    world.revisions[0]["data"]["spec"]["template"]["spec"]["containers"][0] = container.clone();
    world.pods[0]["status"] = json!({"phase": "Pending", "conditions": [{
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
        "message": "0/4 nodes are available: 1 Insufficient cpu, 3 node(s) didn't satisfy plugin(s) [NodeAffinity].",
    }]});
    for node in &mut world.nodes {
        node["status"]["allocatable"] = json!({"cpu": "2", "memory": "4Gi", "pods": "110"});
    }
    world.nodes[3]["status"]["allocatable"]["pods"] = "1".into();
    let guest = |name: &str, node: &str, spec: Value| {
        json!({
            "metadata": {"name": name, "namespace": "other", "uid": name},
            "spec": {"nodeName": node, "containers": [spec]},
        })
    };
    let guests = [
        guest("busy", "n1", json!({"resources": {"requests": {"cpu": "600m"}}})),
        guest("exporter", "n2", json!({"ports": [{"containerPort": 1, "hostPort": 9100}]})),
        guest("small", "n3", json!({"resources": {"requests": {"cpu": "500m"}}})),
        guest("only", "n4", json!({})),
    ];
    let mut snapshot = snapshot(&world);
    for node in &world.nodes {
        snapshot.add_node_capacity(node.to_string().as_bytes()).expect("it is a node");
    }
    for pod in &guests {
        snapshot.add_scheduled_pod(pod.to_string().as_bytes()).expect("it is a pod");
    }
    let said = snapshot.explain(unknown(), time(&world)).expect("the set is there");
    expect![[r#"
        DaemonSet default/web: revision 1, generation 1
        4 nodes: 4 should run it (1 pending, 3 missing), 0 should not

          NODES  STATE        WHY
              1  pending      insufficient cpu
                              n1
                              the pod requests 1500m; of 2 on the node, 600m are
                              requested
                              pod web-1: the scheduler: 0/4 nodes are available: 1
                              Insufficient cpu, 3 node(s) didn't satisfy plugin(s)
                              [NodeAffinity].
              1  missing      host port 9100/TCP is in use
                              n2
                              pod other/exporter uses it
              1  missing      no pod yet
                              n3
              1  missing      too many pods
                              n4
                              the node allows 1 pods

        rollout     1 of 4 nodes up to date, 0 available
                    maxUnavailable 1: 4 unavailable, none left
                    waits for 1 node: host port 9100/TCP is in use: n2
                    waits for 1 node: insufficient cpu: n1
                    waits for 1 node: no pod yet: n3
                    waits for 1 node: too many pods: n4
        controller  state unavailable: this cluster's controller has no endpoint for it
    "#]]
    .assert_eq(&said.to_string());
}

#[test]
fn what_ails_a_pod() {
    let waiting = |reason: &str, message: &str| json!({"waiting": {"reason": reason, "message": message}});
    let said = [
        json!({"containerStatuses": [{"name": "a", "state": {"running": {}}}, {"name": "b", "restartCount": 4, "state":
            waiting("CrashLoopBackOff", "back-off 40s restarting failed container")}]}),
        json!({"initContainerStatuses": [{"name": "i", "state": waiting("ErrImagePull", "not\nfound")}]}),
        json!({"containerStatuses": [{"name": "a", "state": waiting("ContainerCreating", "")}]}),
        json!({"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}),
        json!({"phase": "Failed"}),
        json!({"phase": "Failed", "message": format!("tried {}the cause", "x".repeat(1000))}),
        json!({"containerStatuses": [{"name": "a", "restartCount": 1, "state": waiting("CrashLoopBackOff", "back-off 10s"),
            "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}]}),
        json!({"containerStatuses": [{"name": "a", "restartCount": 2, "state": waiting("CrashLoopBackOff", "back-off 20s"),
            "lastState": {"terminated": {"exitCode": 128, "reason": "StartError", "message": "no such file"}}}]}),
        json!({"containerStatuses": [{"name": "a", "ready": true, "started": true, "state": {"running": {}}},
            {"name": "b", "ready": false, "started": true, "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}]}),
        json!({"containerStatuses": [{"name": "a", "ready": false, "started": false, "restartCount": 3, "state": {"running": {}},
            "lastState": {"terminated": {"exitCode": 1, "reason": "Error"}}}]}),
        json!({"containerStatuses": [{"name": "a", "ready": true, "started": true, "state": {"running": {}}}]}),
        json!({"conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]}),
        json!({"phase": "Failed", "reason": "Preempting",
            "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}),
        json!([]),
    ]
    .map(|status| {
        let pod = json!({"status": status}).to_string();
        pod_problem::pod_problem_message(pod.as_bytes()).unwrap_or("-".into())
    });
    expect![[r#"
        container b: CrashLoopBackOff, 4 restarts: back-off 40s restarting failed container
        container i: ErrImagePull: not found
        -
        Evicted: The node was low on resource: memory.
        failed
        failed: tried xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxthe cause
        container a: CrashLoopBackOff, 1 restart: back-off 10s; last terminated with OOMKilled, exit code 137
        container a: CrashLoopBackOff, 2 restarts: back-off 20s; last terminated with StartError, exit code 128: no such file
        container b runs, and its readiness probe has not succeeded
        container a runs, 3 restarts, and its startup probe has not succeeded; last terminated with Error, exit code 1
        -
        the scheduler: SchedulingGated
        Preempting
        -"#]].assert_eq(&said.join("\n"));
}

#[test]
fn why_pods_cannot_be_created() {
    let world = "
        now  1000
        set  web    observed=1
        node n1
        node n2
        rev  web-a
    ";
    let now = Time::from_secs(scenario::EPOCH_S + 1000);
    let creates = CreateResult::Refused(
        "error looking up service account default/web: serviceaccount \"web\" not found".into(),
    );
    let memory = SetInMemoryState {
        generation: 1,
        failures: 100,
        retry_at: Some(now + Duration::from_secs(17)),
        creates,
        ..SetInMemoryState::default()
    };
    let controller = ControllerState {
        memory,
        wakes_at: Some(now + Duration::from_secs(17)),
        ..ControllerState::default()
    };
    let sent = controller.to_json();
    assert_eq!(ControllerState::from_json(sent.to_string().as_bytes()).as_ref(), Some(&controller));
    expect![[r#"
        DaemonSet default/web: revision 1, generation 1
        2 nodes: 2 should run it (2 missing), 0 should not

          NODES  STATE        WHY
              2  missing      pods cannot be created: error looking up service account
                              default/web: serviceaccount "web" not found
                              n1, n2

        rollout     0 of 2 nodes up to date, 0 available
                    maxUnavailable 1: 2 unavailable, none left
                    waits for 2 nodes: pods cannot be created: error looking up service
                    account default/web: serviceaccount "web" not found: n1, n2
        controller  100 calls failed in a row; next attempt at 00:16:57Z (in 17s)
                    next reconcile at 00:16:57Z (in 17s), or when something changes
    "#]]
    .assert_eq(&explanation(world, ControllerAnswer::Responded(controller)).to_string());
}
