use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;

/// Compares the printed text: in canonical order, without defaults. Printing is stable, and parsing the printed text
/// gives the same objects.
fn check(text: &str, want: Expect) {
    let world = parse(text).unwrap();
    let printed = print(&world);
    want.assert_eq(&printed);
    assert_eq!(parse(&printed).unwrap(), world);
}

fn check_error(text: &str, want: Expect) {
    want.assert_eq(&parse(text).unwrap_err().to_string());
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap()
}

#[test]
fn every_word_is_parsed_and_printed() {
    check(
        "
        now  1000
        set  web     template=2 max-unavailable=25% min-ready=10 history=3 select=app:web select=tier:x pod-label=team:ops node-selector=zone:a affinity=zone:in:a,b+disk:exists affinity=metadata.name:in:n1 tolerate=gpu=yes:NoSchedule tolerate=*:NoExecute@300 host-network gen=7 observed=6 status=desired:3,ready:2 collisions=1 template-generation=5 deleting=990 finalizer=a/b uid=abc rv=9 made=5
        set  log     ns=ops on-delete
        set  net     max-surge=10% node-name=n1
        node n1      label=zone:a label=disk:ssd ready since=3
        node n2      taint=gpu=yes:NoSchedule taint=x:NoExecute@900 cordoned not-ready since=900 deleting
        node n3      unknown made=2
        node n4      new
        pod  web-1   of=web on=n1 ready since=950 made=900
        pod  web-2   of=web for=n2 rev=1
        pod  web-3   of=web on=n2 for=n3 starting deleting finalizer=x
        pod  web-4   of=web on=n1 direct waiting=CrashLoopBackOff rv=77
        pod  web-5   of=web on=n1 waiting=ErrImagePull hash=none generation-label=5
        pod  web-6   of=web on=n1 failed=Evicted orphan label=tier:y label=more:z unlabel=app
        pod  web-7   of=web on=n1 succeeded owner=old tolerate=none hash=xyz
        pod  web-8   of=web on=n1 unready tolerate=a:NoSchedule tolerate=node.kubernetes.io/not-ready:NoExecute tolerate=b
        pod  web-9   of=web deleting=995
        pod  log-1   of=log on=n3 failed
        pod  other   of=none on=n1 ready label=app:web tolerate=gpu
        pod  ghost   of=none owner=u-gone
        rev  web-a   of=web template=1 made=100
        rev  web-b   of=web number=4 hash=xyz orphan
        rev  web-c   of=web template=3 hash=none owner=old
        rev  left    of=none template=2 owner=u-gone
        ",
        expect![[r#"
            now  1000
            set  web    template=2 max-unavailable=25% min-ready=10 history=3 select=app:web select=tier:x pod-label=team:ops node-selector=zone:a affinity=zone:in:a,b+disk:exists affinity=metadata.name:in:n1 tolerate=gpu=yes:NoSchedule tolerate=*:NoExecute@300 host-network gen=7 observed=6 status=desired:3,ready:2 collisions=1 template-generation=5 made=5 deleting=990 finalizer=a/b uid=abc rv=9
            set  log    ns=ops on-delete
            set  net    max-surge=10% node-name=n1
            node n1     label=disk:ssd label=zone:a since=3
            node n2     taint=gpu=yes:NoSchedule taint=x:NoExecute@900 cordoned not-ready since=900 deleting
            node n3     unknown made=2
            node n4     new
            pod  web-1  of=web on=n1 ready since=950 made=900
            pod  web-2  of=web for=n2 rev=1
            pod  web-3  of=web on=n2 for=n3 starting deleting finalizer=x
            pod  web-4  of=web on=n1 direct waiting=CrashLoopBackOff rv=77
            pod  web-5  of=web on=n1 hash=none generation-label=5 waiting=ErrImagePull
            pod  web-6  of=web orphan on=n1 label=more:z label=tier:y unlabel=app failed=Evicted
            pod  web-7  of=web owner=old on=n1 tolerate=none succeeded
            pod  web-8  of=web on=n1 tolerate=a:NoSchedule tolerate=node.kubernetes.io/not-ready:NoExecute tolerate=b unready
            pod  web-9  of=web deleting=995
            pod  log-1  ns=ops of=log on=n3 failed
            pod  other  of=none on=n1 label=app:web tolerate=gpu ready
            pod  ghost  of=none owner=u-gone
            rev  web-a  of=web template=1 made=100
            rev  web-b  of=web orphan number=4 hash=xyz
            rev  web-c  of=web owner=old template=3 hash=none
            rev  left   of=none owner=u-gone template=2
        "#]],
    );
}

#[test]
fn short_lines_have_defaults() {
    check(
        "set web\nnode a\npod x on=a ready\nrev web-1",
        expect![[r#"
        now  0
        set  web
        node a
        pod  x      on=a ready
        rev  web-1
    "#]],
    );
    check(
        "",
        expect![[r#"
        now  0
    "#]],
    );
    check(
        "  # nothing\n\nnow 5 # seconds\npod x",
        expect![[r#"
        now  5
        pod  x
    "#]],
    );
}

#[test]
fn defaults_are_not_printed() {
    check(
        "now 0\nset web ns=default template=1 max-unavailable=1 max-surge=0 min-ready=0 history=10 select=app:web pod-label=app:web gen=1 observed=1 status=ready:0 uid=u-web rv=1 made=0
         node a ready since=0 uid=n-a
         pod x of=web ns=default on=a for=a rev=1 hash=794686fc5b label=app:web starting since=0 made=0 owner=u-web
         rev r of=web template=1 number=1",
        expect![[r#"
            now  0
            set  web
            node a
            pod  x    on=a starting
            rev  r
        "#]],
    );
}

#[test]
fn objects_are_complete() {
    let world = parse(
        "now 60\nset web tolerate=gpu:NoSchedule\nnode a\npod web-1 on=a ready made=30 since=40\nrev web-r",
    )
    .unwrap();
    expect![[r#"
        {
          "apiVersion": "apps/v1",
          "kind": "DaemonSet",
          "metadata": {
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "generation": 1,
            "name": "web",
            "namespace": "default",
            "resourceVersion": "1",
            "uid": "u-web"
          },
          "spec": {
            "minReadySeconds": 0,
            "revisionHistoryLimit": 10,
            "selector": {
              "matchLabels": {
                "app": "web"
              }
            },
            "template": {
              "metadata": {
                "labels": {
                  "app": "web"
                }
              },
              "spec": {
                "containers": [
                  {
                    "image": "web:1",
                    "name": "web"
                  }
                ],
                "tolerations": [
                  {
                    "effect": "NoSchedule",
                    "key": "gpu",
                    "operator": "Exists"
                  }
                ]
              }
            },
            "updateStrategy": {
              "rollingUpdate": {
                "maxSurge": 0,
                "maxUnavailable": 1
              },
              "type": "RollingUpdate"
            }
          },
          "status": {
            "currentNumberScheduled": 0,
            "desiredNumberScheduled": 0,
            "numberAvailable": 0,
            "numberMisscheduled": 0,
            "numberReady": 0,
            "numberUnavailable": 0,
            "observedGeneration": 1,
            "updatedNumberScheduled": 0
          }
        }"#]]
    .assert_eq(&pretty(&world.sets[0]));
    expect![[r#"
        {
          "apiVersion": "v1",
          "kind": "Node",
          "metadata": {
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {},
            "name": "a",
            "resourceVersion": "1",
            "uid": "n-a"
          },
          "spec": {},
          "status": {
            "allocatable": {
              "cpu": "4",
              "memory": "8Gi",
              "pods": "110"
            },
            "capacity": {
              "cpu": "4",
              "memory": "8Gi",
              "pods": "110"
            },
            "conditions": [
              {
                "lastHeartbeatTime": "2026-01-01T00:00:00Z",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
                "status": "True",
                "type": "Ready"
              }
            ]
          }
        }"#]]
    .assert_eq(&pretty(&world.nodes[0]));
    expect![[r#"
        {
          "apiVersion": "v1",
          "kind": "Pod",
          "metadata": {
            "creationTimestamp": "2026-01-01T00:00:30Z",
            "generateName": "web-",
            "generation": 1,
            "labels": {
              "app": "web",
              "controller-revision-hash": "6d7d7dc4d6"
            },
            "name": "web-1",
            "namespace": "default",
            "ownerReferences": [
              {
                "apiVersion": "apps/v1",
                "blockOwnerDeletion": true,
                "controller": true,
                "kind": "DaemonSet",
                "name": "web",
                "uid": "u-web"
              }
            ],
            "resourceVersion": "1",
            "uid": "p-web-1"
          },
          "spec": {
            "affinity": {
              "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                  "nodeSelectorTerms": [
                    {
                      "matchFields": [
                        {
                          "key": "metadata.name",
                          "operator": "In",
                          "values": [
                            "a"
                          ]
                        }
                      ]
                    }
                  ]
                }
              }
            },
            "containers": [
              {
                "image": "web:1",
                "name": "web"
              }
            ],
            "nodeName": "a",
            "tolerations": [
              {
                "effect": "NoSchedule",
                "key": "gpu",
                "operator": "Exists"
              },
              {
                "effect": "NoExecute",
                "key": "node.kubernetes.io/not-ready",
                "operator": "Exists"
              },
              {
                "effect": "NoExecute",
                "key": "node.kubernetes.io/unreachable",
                "operator": "Exists"
              },
              {
                "effect": "NoSchedule",
                "key": "node.kubernetes.io/disk-pressure",
                "operator": "Exists"
              },
              {
                "effect": "NoSchedule",
                "key": "node.kubernetes.io/memory-pressure",
                "operator": "Exists"
              },
              {
                "effect": "NoSchedule",
                "key": "node.kubernetes.io/pid-pressure",
                "operator": "Exists"
              },
              {
                "effect": "NoSchedule",
                "key": "node.kubernetes.io/unschedulable",
                "operator": "Exists"
              }
            ]
          },
          "status": {
            "conditions": [
              {
                "lastTransitionTime": "2026-01-01T00:00:30Z",
                "status": "True",
                "type": "PodScheduled"
              },
              {
                "lastTransitionTime": "2026-01-01T00:00:40Z",
                "status": "True",
                "type": "Ready"
              }
            ],
            "containerStatuses": [
              {
                "image": "web:1",
                "name": "web",
                "ready": true,
                "restartCount": 0,
                "state": {
                  "running": {
                    "startedAt": "2026-01-01T00:00:40Z"
                  }
                }
              }
            ],
            "phase": "Running",
            "startTime": "2026-01-01T00:00:30Z"
          }
        }"#]]
    .assert_eq(&pretty(&world.pods[0]));
    expect![[r#"
        {
          "apiVersion": "apps/v1",
          "data": {
            "spec": {
              "template": {
                "$patch": "replace",
                "metadata": {
                  "labels": {
                    "app": "web"
                  }
                },
                "spec": {
                  "containers": [
                    {
                      "image": "web:1",
                      "name": "web"
                    }
                  ],
                  "tolerations": [
                    {
                      "effect": "NoSchedule",
                      "key": "gpu",
                      "operator": "Exists"
                    }
                  ]
                }
              }
            }
          },
          "kind": "ControllerRevision",
          "metadata": {
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {
              "app": "web",
              "controller-revision-hash": "6d7d7dc4d6"
            },
            "name": "web-r",
            "namespace": "default",
            "ownerReferences": [
              {
                "apiVersion": "apps/v1",
                "blockOwnerDeletion": true,
                "controller": true,
                "kind": "DaemonSet",
                "name": "web",
                "uid": "u-web"
              }
            ],
            "resourceVersion": "1",
            "uid": "r-web-r"
          },
          "revision": 1
        }"#]]
    .assert_eq(&pretty(&world.revisions[0]));
}

#[test]
fn a_pod_has_the_hash_of_its_revision() {
    let world = parse("set web template=2\npod a rev=1\npod b\nrev one template=1 hash=first").unwrap();
    assert_eq!(hash_label(&world.pods[0]), "first");
    assert_eq!(hash_label(&world.pods[1]), manifest::revision_hash(&world.sets[0]["spec"]["template"], None));
    let collided = parse("set web template=2 collisions=1\npod b\nrev two").unwrap();
    assert_ne!(hash_label(&collided.pods[0]), hash_label(&world.pods[1]));
    assert_eq!(hash_label(&collided.pods[0]), hash_label(&collided.revisions[0]));
}

#[test]
fn the_order_of_lines_does_not_matter_between_kinds() {
    let one = parse("set web\nnode a\npod x on=a ready\nrev r hash=h\nnow 5").unwrap();
    let other = parse("now 5\nrev r hash=h\npod x on=a ready\nnode a\nset web").unwrap();
    assert_eq!(one, other);
}

#[test]
fn sets_of_one_name_differ_by_namespace() {
    check(
        "set web\nset web ns=ops\npod x of=web ns=ops\npod x of=web ns=default\npod y of=none ns=ops",
        expect![[r#"
            now  0
            set  web
            set  web  ns=ops
            pod  x    ns=ops of=web
            pod  x    ns=default of=web
            pod  y    ns=ops of=none
        "#]],
    );
}

#[test]
fn times() {
    assert_eq!(to_timestamp(0), "2026-01-01T00:00:00Z");
    assert_eq!(to_timestamp(1000), "2026-01-01T00:16:40Z");
    assert_eq!(parse_timestamp("2026-01-01T00:16:40Z"), Some(1000));
    assert_eq!(parse_timestamp("2026-01-01T00:16:40.5Z"), Some(1000));
    assert_eq!(parse_timestamp("yesterday"), None);
    assert!(parse_timestamp(&to_timestamp(i64::MAX)).is_some());
    assert!(parse_timestamp(&to_timestamp(i64::MIN)).is_some());
}

#[test]
fn errors_name_line_word_and_allowed_words() {
    check_error("sett web", expect!["line 1, `sett`: not a kind of line; allowed: now, set, node, pod, rev"]);
    check_error("now", expect!["line 1, `now`: wants a time, in seconds"]);
    check_error("set web\nnode", expect!["line 2, `node`: wants a name"]);
    check_error("now soon", expect!["line 1, `soon`: wants a time, in seconds"]);
    check_error("now 1 2", expect!["line 1, `2`: not a word of this line; allowed: nothing more"]);
    check_error("now 1\nnow 2", expect!["line 2, `2`: given twice; first on line 1"]);
    check_error("now 9999999999999", expect!["line 1, `9999999999999`: wants a time, in seconds"]);
    check_error(
        "set web colour=red",
        expect![
            "line 1, `colour=red`: not a word of this line; allowed: ns, template, on-delete, max-unavailable, max-surge, min-ready, history, select, pod-label, node-selector, affinity, tolerate, host-network, node-name, gen, observed, status, collisions, template-generation, made, deleting, finalizer, uid, rv"
        ],
    );
    check_error(
        "node a zone=b",
        expect![
            "line 1, `zone=b`: not a word of this line; allowed: label, taint, cordoned, ready, not-ready, unknown, new, since, made, deleting, finalizer, uid, rv"
        ],
    );
    check_error(
        "pod a onn=b",
        expect![
            "line 1, `onn=b`: not a word of this line; allowed: ns, of, orphan, owner, on, for, direct, rev, hash, generation-label, label, unlabel, tolerate, ready, unready, starting, failed, succeeded, waiting, since, made, deleting, finalizer, uid, rv"
        ],
    );
    check_error(
        "rev a on=b",
        expect![
            "line 1, `on=b`: not a word of this line; allowed: ns, of, orphan, owner, template, number, hash, made, deleting, finalizer, uid, rv"
        ],
    );
    check_error(
        "set web host-network=yes",
        expect!["line 1, `host-network=yes`: `host-network` has no value"],
    );
    check_error("set web template", expect!["line 1, `template`: wants a value: `template=…`"]);
    check_error("set web template=", expect!["line 1, `template=`: wants a value: `template=…`"]);
    check_error("set web template=two", expect!["line 1, `template=two`: wants a whole number"]);
    check_error("set web gen=1 gen=2", expect!["line 1, `gen=2`: given twice"]);
    check_error(
        "set web max-surge=half",
        expect!["line 1, `max-surge=half`: wants a number, or a share such as 25%"],
    );
    check_error(
        "set web on-delete max-surge=1",
        expect!["line 1, `max-surge=1`: contradicts `on-delete`; allowed is one of: on-delete, max-surge"],
    );
    check_error("set web select=app", expect!["line 1, `select=app`: wants KEY:VALUE"]);
    check_error(
        "set web affinity=zone:within:a",
        expect![
            "line 1, `affinity=zone:within:a`: wants KEY:OPERATOR:V,V with operator one of: in, not-in, exists, not-exists, gt, lt"
        ],
    );
    check_error(
        "set web tolerate=gpu:Never",
        expect![
            "line 1, `tolerate=gpu:Never`: wants KEY[=VALUE]:EFFECT[@SECONDS] with EFFECT one of: NoSchedule, PreferNoSchedule, NoExecute"
        ],
    );
    check_error(
        "set web status=happy:1",
        expect![
            "line 1, `status=happy:1`: wants NAME:COUNT,… with names of: current, misscheduled, desired, ready, updated, available, unavailable"
        ],
    );
    check_error(
        "node a taint=gpu",
        expect![
            "line 1, `taint=gpu`: wants KEY[=VALUE]:EFFECT[@SECONDS] with EFFECT one of: NoSchedule, PreferNoSchedule, NoExecute"
        ],
    );
    check_error(
        "node a taint=gpu:NoExecute@noon",
        expect![
            "line 1, `taint=gpu:NoExecute@noon`: wants KEY[=VALUE]:EFFECT[@SECONDS] with EFFECT one of: NoSchedule, PreferNoSchedule, NoExecute"
        ],
    );
    check_error(
        "node a ready unknown",
        expect!["line 1, `unknown`: contradicts `ready`; allowed is one of: ready, not-ready, unknown, new"],
    );
    check_error(
        "node a new since=4",
        expect!["line 1, `since`: a new node has no condition that could have a time"],
    );
    check_error("node a\n\nnode a", expect!["line 3, `a`: given twice; first on line 1"]);
    check_error("set web\npod x ready", expect!["line 2, `ready`: wants a node: say on="]);
    check_error("set web\npod x for=a since=4", expect!["line 2, `since`: wants a node: say on="]);
    check_error(
        "set web\npod x on=a ready failed",
        expect![
            "line 2, `failed`: contradicts `ready`; allowed is one of: ready, unready, starting, failed, succeeded, waiting"
        ],
    );
    check_error("set web\npod x direct", expect!["line 2, `direct`: wants a node: say on="]);
    check_error(
        "set web\npod x orphan owner=u",
        expect!["line 2, `owner=u`: contradicts `orphan`; allowed is one of: orphan, owner"],
    );
    check_error("set web\npod x made=dawn", expect!["line 2, `made=dawn`: wants a time, in seconds"]);
    check_error(
        "set web\npod x of=log",
        expect!["line 2, `of=log`: of which set? allowed: of=none, of=web ns=default"],
    );
    check_error(
        "set web\nset log\npod x",
        expect!["line 3, `x`: of which set? allowed: of=none, of=web ns=default, of=log ns=default"],
    );
    check_error(
        "set web\nset log\nrev x",
        expect!["line 3, `x`: of which set? allowed: of=none, of=web ns=default, of=log ns=default"],
    );
    check_error("pod x of=web", expect!["line 1, `of=web`: of which set? allowed: of=none"]);
    check_error("pod x for=a", expect!["line 1, `for`: wants a set: say of="]);
}

#[test]
fn printing_never_panics() {
    for odd in [
        json!(null),
        json!([]),
        json!({"metadata": 3, "spec": [], "status": "x"}),
        json!({"metadata": {"name": "a b"}}),
    ] {
        let all = || alloc::vec![odd.clone(), odd.clone()];
        let world = World { now: i64::MIN, sets: all(), nodes: all(), pods: all(), revisions: all() };
        assert!(!print(&world).is_empty());
    }
}

/// Valid lines of every kind, with every word.
fn scenario() -> impl Strategy<Value = String> {
    fn some(words: &'static [&'static str]) -> impl Strategy<Value = String> {
        prop::sample::subsequence(words, 0..=words.len().min(5)).prop_map(|it| it.join(" "))
    }
    fn one(words: &'static [&'static str]) -> impl Strategy<Value = &'static str> {
        prop::sample::select(words)
    }
    let any = || some(&["made=7", "deleting", "finalizer=f", "uid=odd", "rv=3"]);
    let set = (
        any(),
        one(&[
            "",
            "on-delete",
            "max-surge=1",
            "max-surge=5%",
            "max-unavailable=0",
            "max-surge=0 max-unavailable=3",
        ]),
        some(&[
            "template=2",
            "min-ready=4",
            "history=0",
            "select=a:b",
            "pod-label=app:z",
            "node-selector=k:v",
            "affinity=k:in:a,b+metadata.name:not-in:n",
            "affinity=k:not-exists",
            "tolerate=*",
            "tolerate=k=:NoSchedule",
            "tolerate=node.kubernetes.io/unreachable:NoExecute@5",
            "host-network",
            "gen=4",
            "observed=0",
            "status=current:1,unavailable:2",
            "collisions=0",
            "template-generation=2",
        ]),
    );
    let node = (
        any(),
        one(&["", "new", "ready", "not-ready since=3", "unknown since=-4"]),
        some(&["label=a:b", "label=c:", "taint=x:NoExecute@9", "taint=y=z:PreferNoSchedule", "cordoned"]),
    );
    let pod = (
        any(),
        one(&["of=s0", "of=s1 ns=ops", "of=none", "of=s0 orphan", "of=s1 owner=other", "of=none owner=gone"]),
        one(&[
            "",
            "on=n0",
            "on=n1 ready",
            "on=n0 unready since=6",
            "on=n0 starting",
            "on=n1 waiting=CrashLoopBackOff",
            "on=n1 waiting=ErrImagePull",
            "on=n0 failed=Evicted",
            "failed",
            "on=n1 succeeded",
        ]),
        some(&["tolerate=*", "label=app:q", "label=z:z", "tolerate=node.kubernetes.io/not-ready:NoExecute"]),
        some(&["rev=1", "rev=3", "hash=h", "generation-label=2", "unlabel=app", "unlabel=nope"]),
    );
    let rev = (
        any(),
        one(&["of=s0", "of=s1", "of=s0 orphan", "of=s1 owner=other", "of=none", "of=none owner=gone"]),
        some(&["template=1", "template=3", "number=9"]),
        one(&["", "hash=none", "hash=h"]),
    );
    (
        prop::collection::vec(set, 2),
        prop::collection::vec(node, 2),
        prop::collection::vec(pod, 0..4),
        prop::collection::vec(rev, 0..4),
        0i64..10,
    )
        .prop_map(|(sets, nodes, pods, revs, now)| {
            let mut out = format!("now {now}\n");
            for (at, (any, strategy, rest)) in sets.into_iter().enumerate() {
                let namespace = ["", "ns=ops"][at];
                out += &format!("set s{at} {namespace} {any} {strategy} {rest}\n")
                    .replace("uid=odd", ["uid=odd", ""][at]);
            }
            for (at, (any, state, rest)) in nodes.into_iter().enumerate() {
                out += &format!("node n{at} {any} {state} {rest}\n");
            }
            for (at, (any, of, state, rest, daemon)) in pods.into_iter().enumerate() {
                let daemon = if of.starts_with("of=none") { String::new() } else { daemon };
                let daemon =
                    if daemon.contains("rev=1 rev=3") { daemon.replace("rev=3", "") } else { daemon };
                out += &format!("pod p{at} {any} {of} {state} {rest} {daemon}\n");
            }
            for (at, (any, of, rest, hash)) in revs.into_iter().enumerate() {
                let rest = if rest.contains("template=1 template=3") {
                    rest.replace("template=3", "")
                } else {
                    rest
                };
                out += &format!("rev r{at} {any} {of} {rest} {hash}\n");
            }
            out
        })
}

proptest! {
    #[test]
    fn a_printed_scenario_parses_to_the_same_objects(text in scenario()) {
        let world = parse(&text).map_err(|it| TestCaseError::fail(format!("{it}\n{text}")))?;
        let printed = print(&world);
        let again = parse(&printed).map_err(|it| TestCaseError::fail(format!("{it}\n{printed}")))?;
        prop_assert_eq!(print(&again), printed.clone());
        prop_assert!(again == world, "{}\nprinted\n{}", text, printed);
    }

    #[test]
    fn parsing_never_panics(text in "((now|set|node|pod|rev|x) ?[a-z0-9]{0,2}( (of|on|taint|tolerate|affinity|status|made|since|hash|select)=[a-z:=@+,*0-9%]{0,6})*\n){0,4}") {
        if let Ok(world) = parse(&text) {
            let _ = print(&world);
        }
    }
}
