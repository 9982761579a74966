//! The scheduling queue: order, backoff, and parked pods.

use expect_test::expect;

use super::*;

#[test]
fn pods_are_scheduled_by_priority_then_by_age() {
    TestScheduler::new()
        .pod("young", cpu("1"))
        .pod("old", with(cpu("1"), json!({"metadata": {"creationTimestamp": "1970-01-01T00:00:00Z"}})))
        .pod("important", with_priority(5, cpu("1")))
        .node("a", json!({}))
        .expect_calls(&expect![[r#"
            bind default/important to a
            bind default/old to a
            report default/young as unschedulable: 0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."#]]);
}

#[test]
fn the_parked_pod_of_highest_priority_gets_freed_resources() {
    let patient =
        |priority| with_priority(priority, with(cpu("2"), json!({"spec": {"preemptionPolicy": "Never"}})));
    let mut scheduler = TestScheduler::new();
    scheduler.node("a", json!({})).pod("x", on("a", cpu("2"))).pod("low", patient(1));
    scheduler.expect_calls(&expect!["report default/low as unschedulable: 0/1 nodes are available: 1 Insufficient cpu. preemption: not eligible due to preemptionPolicy=Never."]);
    scheduler.pod("high", patient(5));
    scheduler.expect_calls(&expect!["report default/high as unschedulable: 0/1 nodes are available: 1 Insufficient cpu. preemption: not eligible due to preemptionPolicy=Never."]);
    scheduler.delete_pod("x").expect_calls(&expect!["bind default/high to a"]);
}

#[test]
fn of_many_activated_pods_one_is_tried_and_the_others_wait_for_their_backoff() {
    let mut scheduler = TestScheduler::new();
    scheduler.node("a", json!({})).pod("x", on("a", cpu("2")));
    for number in 1..=4 {
        scheduler.pod(&format!("wait-{number}"), cpu("2"));
    }
    scheduler.expect_calls(&expect![[r#"
        report default/wait-1 as unschedulable: 0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.
        report default/wait-2 as unschedulable: 0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.
        report default/wait-3 as unschedulable: 0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.
        report default/wait-4 as unschedulable: 0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."#]]);
    let tried = scheduler.events.len();
    scheduler.delete_pod("x").expect_calls(&expect!["bind default/wait-1 to a"]);
    // One of the others is tried at once, the rest after their backoff.
    let failures = |scheduler: &TestScheduler| {
        scheduler.events[tried..].iter().filter(|it| it.contains("FailedScheduling")).count()
    };
    assert_eq!(failures(&scheduler), 1);
    scheduler.advance(1).expect_calls(&expect![""]);
    assert_eq!(failures(&scheduler), 3);
}

#[test]
fn a_parked_pod_is_tried_again_only_after_a_helpful_change_or_five_minutes() {
    TestScheduler::new()
        .node("a", json!({}))
        .pod("x", cpu("3"))
        .expect_calls(&expect!["report default/x as unschedulable: 0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."])
        // None of these changes helps.
        .pod("y", on("a", cpu("1")))
        .delete_pod("y")
        .node("b", json!({}))
        .advance(299)
        .expect_calls(&expect![""])
        .advance(1)
        .expect_calls(&expect!["report default/x as unschedulable: 0/2 nodes are available: 2 Insufficient cpu. preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."])
        .node("b", json!({"status": {"allocatable": {"cpu": "4"}}}))
        .expect_calls(&expect!["bind default/x to b"]);
}

#[test]
fn a_clock_set_back_keeps_no_pod_parked() {
    let mut scheduler = TestScheduler::new();
    scheduler.advance(10_000).node("a", json!({})).pod("x", cpu("3")).expect_calls(&expect!["report default/x as unschedulable: 0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."]);
    scheduler.now = scheduler.now - Duration::from_secs(3600);
    scheduler
        .node("a", json!({"status": {"allocatable": {"cpu": "4"}}}))
        .expect_calls(&expect!["bind default/x to a"]);
    // Nor a pod in backoff after a failed binding.
    scheduler.refusal = Some(CallError::Server("the server is not well".into()));
    scheduler.pod("y", cpu("1")).expect_calls(&expect!["bind default/y to a"]);
    scheduler.refusal = None;
    scheduler.now = scheduler.now - Duration::from_secs(3600);
    scheduler.expect_calls(&expect!["bind default/y to a"]);
}

#[test]
fn unschedulable_pods_do_not_block_the_queue() {
    let mut scheduler = TestScheduler::new();
    scheduler.node("a", json!({})).pod("big", with_priority(9, cpu("8")));
    scheduler.expect_calls(&expect!["report default/big as unschedulable: 0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."]);
    for round in 0..3 {
        let name = format!("small-{round}");
        scheduler.pod(&name, cpu("100m"));
    }
    scheduler.expect_calls(&expect![[r#"
        bind default/small-0 to a
        bind default/small-1 to a
        bind default/small-2 to a"#]]);
}
