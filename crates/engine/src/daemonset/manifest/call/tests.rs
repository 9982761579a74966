use alloc::sync::Arc;
use alloc::vec;

use expect_test::{Expect, expect};
use muster_api::interner::Interner;
use muster_api::time::Time;

use super::*;
use crate::daemonset::facts::{self, ConditionStatus, Pod, Revision, StatusCounts};

fn set(status: Value) -> Arc<Set> {
    let object = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {
            "name": "web", "namespace": "ops", "uid": "u-1", "resourceVersion": "41", "generation": 3,
            "annotations": {"kubernetes.io/change-cause": "because", "deprecated.daemonset.template.generation": "3"},
            "managedFields": [{"manager": "kubectl"}],
            "newField": true,
        },
        "spec": {
            "selector": {
                "matchLabels": {"app": "web"},
                "matchExpressions": [
                    {"key": "tier", "operator": "NotIn", "values": ["a", "b"]},
                    {"key": "on", "operator": "Exists"}, {"key": "off", "operator": "DoesNotExist"},
                ],
            },
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "web", "image": "web:1"}], "newField": 1},
            },
        },
        "status": status,
    });
    Arc::new(facts::decode_set(object.to_string().as_bytes(), &mut Interner::default()).unwrap())
}

fn pod() -> Arc<Pod> {
    let object = json!({
        "metadata": {"name": "web-1", "namespace": "ops", "uid": "p-1", "resourceVersion": "7"},
        "spec": {"nodeName": "n1"},
    });
    Arc::new(facts::decode_pod(object.to_string().as_bytes(), &mut Interner::default()).unwrap().unwrap())
}

fn revision() -> Arc<Revision> {
    let object = json!({
        "metadata": {"name": "web-abc", "namespace": "ops", "uid": "r-1", "resourceVersion": "8"},
        "revision": 1, "data": {},
    });
    Arc::new(
        facts::decode_revision(object.to_string().as_bytes(), &mut Interner::default()).unwrap().unwrap(),
    )
}

fn check_status(status: Value, change: impl Fn(&mut Status), want: Expect) {
    let set = set(status);
    let mut status = set.status.clone();
    change(&mut status);
    let body = status_body(&set, &status);
    assert_eq!(body["metadata"]["resourceVersion"], "41");
    want.assert_eq(&serde_json::to_string_pretty(&body["status"]).unwrap());
}

fn condition(kind: ConditionType, since: i64) -> Condition {
    Condition {
        kind,
        status: ConditionStatus::True,
        reason: "Because".into(),
        message: "it is so".into(),
        since: Some(Time::from_secs(since)),
    }
}

#[test]
fn a_status_goes_back_with_the_metadata_as_it_came_and_without_a_spec() {
    let set = set(json!({}));
    let body = status_body(&set, &set.status);
    expect![[r#"{"annotations":{"deprecated.daemonset.template.generation":"3","kubernetes.io/change-cause":"because"},"generation":3,"managedFields":[{"manager":"kubectl"}],"name":"web","namespace":"ops","newField":true,"resourceVersion":"41","uid":"u-1"}"#]]
        .assert_eq(&go_json::to_string(&body["metadata"]));
    assert_eq!(body.get("spec"), None);
    assert_eq!((&body["apiVersion"], &body["kind"]), (&json!("apps/v1"), &json!("DaemonSet")));
}

#[test]
fn counts_are_left_out_at_zero_where_upstream_leaves_them_out() {
    let before = json!({"updatedNumberScheduled": 3, "numberAvailable": 3, "numberUnavailable": 1});
    check_status(
        before,
        |status| status.counts = StatusCounts::default(),
        expect![[r#"
            {
              "currentNumberScheduled": 0,
              "desiredNumberScheduled": 0,
              "numberMisscheduled": 0,
              "numberReady": 0
            }"#]],
    );
    let counts = StatusCounts {
        desired: 7,
        current: 6,
        ready: 5,
        updated: 4,
        available: 3,
        unavailable: 4,
        misscheduled: 1,
    };
    check_status(
        json!(null),
        |status| (status.counts, status.observed_generation, status.collisions) = (counts, 3, Some(2)),
        expect![[r#"
            {
              "collisionCount": 2,
              "currentNumberScheduled": 6,
              "desiredNumberScheduled": 7,
              "numberAvailable": 3,
              "numberMisscheduled": 1,
              "numberReady": 5,
              "numberUnavailable": 4,
              "observedGeneration": 3,
              "updatedNumberScheduled": 4
            }"#]],
    );
}

#[test]
fn what_others_wrote_survives_and_our_conditions_keep_their_places() {
    check_status(
        json!({
            "numberReady": 1, "newField": {"a": 1}, "collisionCount": 4,
            "conditions": [
                {"type": "Theirs", "status": "True", "extra": 1},
                {"type": "Progressing", "status": "False", "reason": "Old", "lastTransitionTime": "2026-01-01T00:00:00Z"},
                {"type": "AlsoTheirs", "status": "Unknown"},
            ],
        }),
        |status| {
            status.observed_generation = 3;
            status.conditions =
                vec![condition(ConditionType::Available, 1), condition(ConditionType::Progressing, 2)];
        },
        expect![[r#"
            {
              "collisionCount": 4,
              "conditions": [
                {
                  "extra": 1,
                  "status": "True",
                  "type": "Theirs"
                },
                {
                  "lastTransitionTime": "1970-01-01T00:00:02Z",
                  "message": "it is so",
                  "observedGeneration": 3,
                  "reason": "Because",
                  "status": "True",
                  "type": "Progressing"
                },
                {
                  "status": "Unknown",
                  "type": "AlsoTheirs"
                },
                {
                  "lastTransitionTime": "1970-01-01T00:00:01Z",
                  "message": "it is so",
                  "observedGeneration": 3,
                  "reason": "Because",
                  "status": "True",
                  "type": "Available"
                }
              ],
              "currentNumberScheduled": 0,
              "desiredNumberScheduled": 0,
              "newField": {
                "a": 1
              },
              "numberMisscheduled": 0,
              "numberReady": 1,
              "observedGeneration": 3
            }"#]],
    );
}

#[test]
fn a_condition_that_is_ours_no_longer_goes() {
    check_status(
        json!({"conditions": [{"type": "Degraded", "status": "True"}, {"type": "Theirs", "status": "True"}]}),
        |status| status.conditions.clear(),
        expect![[r#"
            {
              "conditions": [
                {
                  "status": "True",
                  "type": "Theirs"
                }
              ],
              "currentNumberScheduled": 0,
              "desiredNumberScheduled": 0,
              "numberMisscheduled": 0,
              "numberReady": 0
            }"#]],
    );
}

#[test]
fn every_call_has_its_verb_target_and_body() {
    let (pod, revision) = (pod(), revision());
    let (text, why) = (|it: &str| Text::from(it), Why::NoPodOnNode);
    let calls = [
        PlannedCall::ReadSet,
        PlannedCall::ListPods,
        PlannedCall::ReadRevision { name: text("web-abc") },
        PlannedCall::Claim(Claim::AdoptPod(pod.clone())),
        PlannedCall::Claim(Claim::ReleasePod(pod.clone())),
        PlannedCall::Claim(Claim::AdoptRevision(revision.clone())),
        PlannedCall::Claim(Claim::ReleaseRevision(revision.clone())),
        PlannedCall::WriteRevision(RevisionWrite::Create {
            name: text("web-abc"),
            hash: text("abc"),
            number: 2,
        }),
        PlannedCall::WriteRevision(RevisionWrite::Renumber { revision: revision.clone(), number: 5 }),
        PlannedCall::WriteRevision(RevisionWrite::Label { revision: revision.clone() }),
        PlannedCall::RelabelPod { pod: pod.clone(), hash: text("abc") },
        PlannedCall::DeletePod { pod: pod.clone(), why: why.clone() },
        PlannedCall::EvictPod { pod, why: why.clone() },
        PlannedCall::CreatePod { node: text("n1"), hash: text("abc"), why, source: None },
        PlannedCall::DeleteRevision { revision },
        PlannedCall::PutStatus { of: set(json!({})), status: Status::default() },
        PlannedCall::ApplyConditions { conditions: Vec::new() },
        PlannedCall::ApplyConditions {
            conditions: Vec::from([facts::Condition {
                kind: facts::ConditionType::Stalled,
                status: facts::ConditionStatus::True,
                reason: text("CannotRollBack"),
                message: text("revert the template"),
                since: Some(muster_api::time::Time::from_secs(60)),
            }]),
        },
    ];
    let set = set(json!({}));
    let mut out = String::new();
    for call in &calls {
        let (verb, target) = (call_verb(call), call_target(&set, call));
        let body = call_body(&set, call, Binding::Direct)
            .map_or_else(|| "-".to_string(), |it| go_json::to_string(&it));
        out += &alloc::format!(
            "{} {}{} {}\n  {body}\n",
            match verb {
                Verb::Patch(patch) => patch.content_type(),
                verb => verb.as_str(),
            },
            target.kind.plural(),
            target.subresource.map_or(String::new(), |it| alloc::format!("/{it}")),
            target.name.as_deref().unwrap_or("-"),
        );
    }
    expect![[r#"
        get daemonsets web
          -
        list pods -
          -
        get controllerrevisions web-abc
          -
        application/strategic-merge-patch+json pods web-1
          {"metadata":{"ownerReferences":[{"apiVersion":"apps/v1","blockOwnerDeletion":true,"controller":true,"kind":"DaemonSet","name":"web","uid":"u-1"}],"resourceVersion":"7","uid":"p-1"}}
        application/strategic-merge-patch+json pods web-1
          {"metadata":{"ownerReferences":[{"$patch":"delete","uid":"u-1"}],"resourceVersion":"7","uid":"p-1"}}
        application/strategic-merge-patch+json controllerrevisions web-abc
          {"metadata":{"ownerReferences":[{"apiVersion":"apps/v1","blockOwnerDeletion":true,"controller":true,"kind":"DaemonSet","name":"web","uid":"u-1"}],"resourceVersion":"8","uid":"r-1"}}
        application/strategic-merge-patch+json controllerrevisions web-abc
          {"metadata":{"ownerReferences":[{"$patch":"delete","uid":"u-1"}],"resourceVersion":"8","uid":"r-1"}}
        create controllerrevisions -
          {"apiVersion":"apps/v1","data":{"spec":{"template":{"$patch":"replace","metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"image":"web:1","name":"web"}],"newField":1}}}},"kind":"ControllerRevision","metadata":{"annotations":{"deprecated.daemonset.template.generation":"3","kubernetes.io/change-cause":"because"},"labels":{"app":"web","controller-revision-hash":"abc"},"name":"web-abc","namespace":"ops","ownerReferences":[{"apiVersion":"apps/v1","blockOwnerDeletion":true,"controller":true,"kind":"DaemonSet","name":"web","uid":"u-1"}]},"revision":2}
        application/merge-patch+json controllerrevisions web-abc
          {"metadata":{"resourceVersion":"8","uid":"r-1"},"revision":5}
        application/merge-patch+json controllerrevisions web-abc
          {"metadata":{"labels":{"controller-revision-hash":"web-abc"},"resourceVersion":"8","uid":"r-1"}}
        application/merge-patch+json pods web-1
          {"metadata":{"labels":{"controller-revision-hash":"abc"},"resourceVersion":"7","uid":"p-1"}}
        delete pods web-1
          {"apiVersion":"v1","kind":"DeleteOptions","preconditions":{"resourceVersion":"7","uid":"p-1"}}
        create pods/eviction web-1
          {"apiVersion":"policy/v1","deleteOptions":{"apiVersion":"v1","kind":"DeleteOptions","preconditions":{"resourceVersion":"7","uid":"p-1"}},"kind":"Eviction","metadata":{"name":"web-1","namespace":"ops"}}
        create pods -
          {"apiVersion":"v1","kind":"Pod","metadata":{"generateName":"web-","labels":{"app":"web","controller-revision-hash":"abc","pod-template-generation":"3"},"namespace":"ops","ownerReferences":[{"apiVersion":"apps/v1","blockOwnerDeletion":true,"controller":true,"kind":"DaemonSet","name":"web","uid":"u-1"}]},"spec":{"containers":[{"image":"web:1","name":"web"}],"newField":1,"nodeName":"n1","schedulerName":"kubernetes.io/daemonset-controller","tolerations":[{"effect":"NoExecute","key":"node.kubernetes.io/not-ready","operator":"Exists"},{"effect":"NoExecute","key":"node.kubernetes.io/unreachable","operator":"Exists"},{"effect":"NoSchedule","key":"node.kubernetes.io/disk-pressure","operator":"Exists"},{"effect":"NoSchedule","key":"node.kubernetes.io/memory-pressure","operator":"Exists"},{"effect":"NoSchedule","key":"node.kubernetes.io/pid-pressure","operator":"Exists"},{"effect":"NoSchedule","key":"node.kubernetes.io/unschedulable","operator":"Exists"}]}}
        delete controllerrevisions web-abc
          {"apiVersion":"v1","kind":"DeleteOptions","preconditions":{"resourceVersion":"8","uid":"r-1"}}
        update daemonsets/status web
          {"apiVersion":"apps/v1","kind":"DaemonSet","metadata":{"annotations":{"deprecated.daemonset.template.generation":"3","kubernetes.io/change-cause":"because"},"generation":3,"managedFields":[{"manager":"kubectl"}],"name":"web","namespace":"ops","newField":true,"resourceVersion":"41","uid":"u-1"},"status":{"currentNumberScheduled":0,"desiredNumberScheduled":0,"numberMisscheduled":0,"numberReady":0}}
        application/apply-patch+yaml daemonsets/status web
          {"apiVersion":"apps/v1","kind":"DaemonSet","metadata":{"name":"web","namespace":"ops","uid":"u-1"}}
        application/apply-patch+yaml daemonsets/status web
          {"apiVersion":"apps/v1","kind":"DaemonSet","metadata":{"name":"web","namespace":"ops","uid":"u-1"},"status":{"conditions":[{"lastTransitionTime":"1970-01-01T00:01:00Z","message":"revert the template","reason":"CannotRollBack","status":"True","type":"Stalled"}]}}
    "#]].assert_eq(&out);
}

#[test]
fn a_selector_as_a_list_call_spells_it() {
    let set = set(json!({}));
    assert_eq!(label_selector_query(&set).as_deref(), Some("app in (web),tier notin (a,b),on,!off"));
    let everything = Set { selector: facts::Selector::Everything, ..(*set).clone() };
    assert_eq!(label_selector_query(&everything), None);
}

#[test]
fn a_pod_through_the_stencil_is_the_pod() {
    let set = set(json!({}));
    for binding in [Binding::Scheduler, Binding::Direct] {
        let encoded_pod = EncodedPod::new(&set, &"h".into(), None, binding).unwrap();
        for node in ["n1", "ip-10-0-0-1.compute.internal"] {
            let call = PlannedCall::CreatePod {
                node: node.into(),
                hash: "h".into(),
                why: Why::NoPodOnNode,
                source: None,
            };
            let whole = go_json::to_string(&call_body(&set, &call, binding).unwrap());
            assert_eq!(encoded_pod.for_node(node).unwrap(), whole);
        }
        assert_eq!(encoded_pod.for_node("a\"b"), None);
    }
    // A template that contains the placeholder has no encoded pod.
    let mut odd = Arc::unwrap_or_clone(set);
    odd.template.raw = r#"{"spec":{"hostname":"\u0001node\u0001"}}"#.into();
    assert!(EncodedPod::new(&odd, &"h".into(), None, Binding::Scheduler).is_none());
}
