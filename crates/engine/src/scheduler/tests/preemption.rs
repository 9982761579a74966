//! Preemption and nominated nodes.

use expect_test::expect;

use super::*;

#[test]
fn a_pod_of_higher_priority_preempts_and_keeps_its_nominated_node() {
    TestScheduler::new()
        .node("a", json!({}))
        .node("b", json!({}))
        .pod("low-1", with_priority(1, on("a", cpu("2"))))
        .pod("mid-1", with_priority(2, on("b", cpu("1"))))
        .pod("low-2", with_priority(1, on("b", cpu("1"))))
        .pod("high", with_priority(9, cpu("1")))
        .expect_calls(&expect![[r#"
            mark default/low-1 as preempted by default/high
            report default/high as unschedulable (nominated node a): 0/2 nodes are available: 2 Insufficient cpu.
            delete default/low-1 for default/high"#]])
        // While the victims terminate, pods of the same or lower priority cannot use the nominated node.
        .pod("small", with_priority(3, cpu("1")))
        .expect_calls(&expect![
            "report default/small as unschedulable (nominated node a): 0/2 nodes are available: 2 Insufficient cpu."
        ])
        .delete_pod("low-1")
        .expect_calls(&expect![[r#"
            bind default/high to a
            bind default/small to a"#]])
        .expect_events(&expect![[r#"
            Warning FailedScheduling high: 0/2 nodes are available: 2 Insufficient cpu.
            Normal Preempted low-1: Preempted by pod uid of high on node a
            Warning FailedScheduling small: 0/2 nodes are available: 2 Insufficient cpu.
            Normal Scheduled high: Successfully assigned default/high to a
            Normal Scheduled small: Successfully assigned default/small to a"#]]);
}

#[test]
fn a_nomination_ends_when_its_pod_is_deleted() {
    TestScheduler::new()
        .node("a", json!({}))
        .pod("low", with_priority(1, on("a", cpu("2"))))
        .pod("high", with_priority(9, cpu("2")))
        .pod("next", with_priority(5, cpu("2")))
        .expect_calls(&expect![[r#"
            mark default/low as preempted by default/high
            report default/high as unschedulable (nominated node a): 0/1 nodes are available: 1 Insufficient cpu.
            report default/next as unschedulable: 0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 Insufficient cpu.
            delete default/low for default/high"#]])
        .delete_pod("low")
        .delete_pod("high")
        .expect_calls(&expect!["bind default/next to a"]);
}

#[test]
fn a_pod_of_still_higher_priority_takes_a_nominated_node() {
    TestScheduler::new()
        .node("a", json!({}))
        .pod("low", with_priority(1, on("a", cpu("2"))))
        .pod("high", with_priority(9, cpu("2")))
        .expect_calls(&expect![[r#"
            mark default/low as preempted by default/high
            report default/high as unschedulable (nominated node a): 0/1 nodes are available: 1 Insufficient cpu.
            delete default/low for default/high"#]])
        .pod("highest", with_priority(10, cpu("2")))
        .expect_calls(&expect![[r#"
            clear the nomination of default/high
            report default/highest as unschedulable (nominated node a): 0/1 nodes are available: 1 Insufficient cpu.
            report default/high as unschedulable: 0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 Insufficient cpu."#]])
        .delete_pod("low")
        .expect_calls(&expect!["bind default/highest to a"]);
}

#[test]
fn a_pod_with_preemption_policy_never_waits() {
    TestScheduler::new()
        .node("a", json!({}))
        .pod("low", with_priority(1, on("a", cpu("2"))))
        .pod("high", with_priority(9, with(cpu("1"), json!({"spec": {"preemptionPolicy": "Never"}}))))
        .expect_calls(&expect!["report default/high as unschedulable: 0/1 nodes are available: 1 Insufficient cpu. preemption: not eligible due to preemptionPolicy=Never."])
        .delete_pod("low")
        .expect_calls(&expect!["bind default/high to a"]);
}

#[test]
fn preemption_that_does_not_help_reports_why() {
    TestScheduler::new()
        .node("a", json!({}))
        .node("b", tainted("NoSchedule"))
        .node("c", json!({}))
        .pod("low", with_priority(1, on("a", cpu("1"))))
        .pod("high-1", with_priority(20, on("a", cpu("1"))))
        .pod("high-2", with_priority(20, on("c", cpu("1"))))
        .pod("x", with_priority(9, cpu("1500m")))
        .expect_calls(&expect!["report default/x as unschedulable: 0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient cpu. preemption: 0/3 nodes are available: 1 Insufficient cpu, 1 No preemption victims found for incoming pod, 1 Preemption is not helpful for scheduling."]);
}

#[test]
fn preemption_respects_budgets_if_possible() {
    TestScheduler::new()
        .node("a", json!({}))
        .node("b", json!({}))
        .budget("kept", 0)
        .pod("kept-1", on("a", cpu("2")))
        .pod("free-1", with_priority(1, on("b", cpu("2"))))
        .pod("high", with_priority(9, cpu("1")))
        .expect_calls(&expect![[r#"
            mark default/free-1 as preempted by default/high
            report default/high as unschedulable (nominated node b): 0/2 nodes are available: 2 Insufficient cpu.
            delete default/free-1 for default/high"#]]);
}

#[test]
fn a_pod_does_not_preempt_a_pod_it_has_affinity_to() {
    TestScheduler::new()
        .node("a", json!({}))
        .pod("web-1", with_priority(1, on("a", cpu("2"))))
        .pod("x", with_priority(9, with(cpu("1"), required_affinity("podAffinity", "web"))))
        .expect_calls(&expect!["report default/x as unschedulable: 0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 node(s) didn't match pod affinity rules."]);
}

#[test]
fn an_assumed_pod_may_be_preempted() {
    let mut scheduler = TestScheduler::new();
    scheduler.node("a", json!({})).pod("low", with_priority(1, cpu("2")));
    assert_eq!(scheduler.queue.reconcile_due(scheduler.now).calls.len(), 1, "the binding is in flight");
    scheduler
        .pod("high", with_priority(9, cpu("2")))
        .expect_calls(&expect![[r#"
        mark default/low as preempted by default/high
        report default/high as unschedulable (nominated node a): 0/1 nodes are available: 1 Insufficient cpu.
        delete default/low for default/high"#]])
        .expect_events(&expect![[r#"
        Warning FailedScheduling high: 0/1 nodes are available: 1 Insufficient cpu.
        Normal Preempted low: Preempted by pod uid of high on node a"#]]);
}
