//! Bindings, watch events, and the API requests of calls.

use alloc::vec;

use expect_test::expect;

use super::*;

#[test]
fn only_pods_of_this_scheduler_are_bound() {
    TestScheduler::new()
        .node("a", json!({}))
        .pod("other", json!({"spec": {"schedulerName": "other"}}))
        .pod("gated", json!({"spec": {"schedulingGates": [{"name": "wait"}]}}))
        .pod("leaving", json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}))
        .pod("done", json!({"status": {"phase": "Failed"}}))
        .pod("ours", json!({"spec": {"schedulerName": "default-scheduler"}}))
        .expect_calls(&expect!["bind default/ours to a"])
        .patch_pod("gated", json!({"spec": {"schedulingGates": []}}))
        .expect_calls(&expect!["bind default/gated to a"]);
}

#[test]
fn api_requests_of_calls() {
    let mut scheduler = TestScheduler::new();
    scheduler.pod("x", json!({"metadata": {"generation": 3}}));
    let pod = match scheduler.fact(0, &scheduler.pods["x"].clone()) {
        SchedulerObject::Pod(pod) => pod,
        other => panic!("{other:?}"),
    };
    let at = scheduler.now;
    let calls = [
        SchedulerCall::Bind { pod: pod.clone(), node: "a".into() },
        SchedulerCall::WriteUnschedulable {
            pod: pod.clone(),
            message: "why".into(),
            nominated_node: Some("a".into()),
            at,
        },
        SchedulerCall::ClearNomination { pod: pod.clone() },
        SchedulerCall::MarkVictim { victim: pod.clone(), node: "a".into(), by: pod.clone(), at },
        SchedulerCall::DeleteVictim { victim: pod.clone(), node: "a".into(), by: pod },
    ];
    let lines: Vec<String> = calls
        .iter()
        .map(Scheduler::request)
        .map(|it| format!("{:?} {}\n  {}", it.verb, it.path, it.body.unwrap_or_default()))
        .collect();
    expect![[r#"
        Create /api/v1/namespaces/default/pods/x/binding
          {"apiVersion":"v1","kind":"Binding","metadata":{"name":"x","namespace":"default","uid":"uid of x"},"target":{"apiVersion":"v1","kind":"Node","name":"a"}}
        Patch(Strategic) /api/v1/namespaces/default/pods/x/status
          {"metadata":{"uid":"uid of x"},"status":{"conditions":[{"lastTransitionTime":"1970-01-12T13:46:40Z","message":"why","observedGeneration":3,"reason":"Unschedulable","status":"False","type":"PodScheduled"}],"nominatedNodeName":"a"}}
        Patch(Strategic) /api/v1/namespaces/default/pods/x/status
          {"metadata":{"uid":"uid of x"},"status":{"nominatedNodeName":null}}
        Patch(Strategic) /api/v1/namespaces/default/pods/x/status
          {"metadata":{"uid":"uid of x"},"status":{"conditions":[{"lastTransitionTime":"1970-01-12T13:46:40Z","message":"default-scheduler: preempting to accommodate a higher priority pod","observedGeneration":3,"reason":"PreemptionByScheduler","status":"True","type":"DisruptionTarget"}]}}
        Delete /api/v1/namespaces/default/pods/x
          {"apiVersion":"v1","kind":"DeleteOptions","preconditions":{"uid":"uid of x"}}"#]].assert_eq(&lines.join("\n"));
}

#[test]
fn a_failed_binding_is_retried_after_a_backoff() {
    let mut scheduler = TestScheduler::new();
    scheduler.refusal = Some(CallError::Server("the server is not well".into()));
    scheduler
        .node("a", json!({}))
        .pod("x", cpu("2"))
        .expect_calls(&expect!["bind default/x to a"])
        .expect_events(&expect!["Warning FailedScheduling x: binding rejected: the server is not well"]);
    scheduler.advance(1).expect_calls(&expect!["bind default/x to a"]);
    scheduler.advance(1).expect_calls(&expect![""]);
    scheduler.refusal = None;
    scheduler.advance(1).expect_calls(&expect!["bind default/x to a"]);
}

#[test]
fn an_assumed_pod_counts_before_the_watch_shows_its_binding() {
    let mut scheduler = TestScheduler::new();
    scheduler.node("a", json!({})).pod("x", cpu("2")).pod("y", cpu("2"));
    let step = scheduler.queue.reconcile_due(scheduler.now);
    let calls: Vec<String> = step.calls.iter().map(ToString::to_string).collect();
    expect![[r#"
        bind default/x to a
        report default/y as unschedulable: 0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."#]].assert_eq(&calls.join("\n"));
    // An event that is older than the binding changes nothing.
    scheduler.patch_pod("x", json!({"metadata": {"annotations": {"a": "b"}}}));
    assert_eq!(scheduler.queue.reconcile_due(scheduler.now).calls, vec![]);
}

#[test]
fn objects_missing_from_a_list_are_removed() {
    let mut scheduler = TestScheduler::new();
    scheduler.node("a", json!({})).pod("x-1", on("a", cpu("2"))).pod("x-2", cpu("2"));
    scheduler.expect_calls(&expect!["report default/x-2 as unschedulable: 0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."]);
    let x_2 = scheduler.pods["x-2"].clone();
    let facts = vec![scheduler.fact(0, &x_2)];
    scheduler.queue.apply(Event::Listed { kind: 0, facts, resource_version: 1 }, scheduler.now);
    scheduler.pods.remove("x-1");
    scheduler.expect_calls(&expect!["bind default/x-2 to a"]);
}

#[test]
fn pods_of_an_unknown_node_count_when_it_appears() {
    TestScheduler::new()
        .pod("x-1", on("a", cpu("2")))
        .pod("x-2", cpu("2"))
        .node("a", json!({}))
        .expect_calls(&expect!["report default/x-2 as unschedulable: 0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."])
        .delete_node("a")
        .node("a", json!({}))
        .expect_calls(&expect![""])
        .delete_pod("x-1")
        .expect_calls(&expect!["bind default/x-2 to a"]);
}

#[test]
fn a_pod_of_the_same_name_with_another_uid_is_another_pod() {
    TestScheduler::new()
        .node("a", json!({}))
        .pod("x", cpu("2"))
        .expect_calls(&expect!["bind default/x to a"])
        .patch_pod("x", json!({"metadata": {"uid": "another"}, "spec": {"nodeName": null}}))
        .expect_calls(&expect!["bind default/x to a"]);
}

#[test]
fn event_messages_are_truncated() {
    let message = call::truncate_event_message(&"ü".repeat(2000));
    assert_eq!((message.len(), message.ends_with("ü ...")), (1024, true));
    assert_eq!(call::truncate_event_message("short"), "short");
}
