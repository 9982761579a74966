//! Which nodes fit: taints, host ports, resources.

use expect_test::expect;

use super::*;

#[test]
fn nodes_are_counted_per_reason() {
    let label = json!({"metadata": {"labels": {"disk": "ssd"}}});
    let pod = json!({"spec": {
        "nodeSelector": {"disk": "ssd"},
        "containers": [{"resources": {"requests": {"cpu": "2", "memory": "1Gi", "example.com/gpu": "1"}}}],
    }});
    TestScheduler::new()
        .node("a", with(tainted("NoSchedule"), label.clone()))
        .node("b", json!({"spec": {"unschedulable": true}}))
        .node("c", json!({}))
        .node("d", label)
        .pod("y", on("d", cpu("1")))
        .pod("x", pod)
        .expect_calls(&expect!["report default/x as unschedulable: 0/4 nodes are available: 1 Insufficient cpu, 1 Insufficient example.com/gpu, 1 node(s) didn't match Pod's node affinity/selector, 1 node(s) had untolerated taint(s), 1 node(s) were unschedulable. preemption: 0/4 nodes are available: 4 Preemption is not helpful for scheduling."])
        .expect_events(&expect!["Warning FailedScheduling x: 0/4 nodes are available: 1 Insufficient cpu, 1 Insufficient example.com/gpu, 1 node(s) didn't match Pod's node affinity/selector, 1 node(s) had untolerated taint(s), 1 node(s) were unschedulable. preemption: 0/4 nodes are available: 4 Preemption is not helpful for scheduling."]);
}

#[test]
fn there_are_no_nodes() {
    TestScheduler::new()
        .pod("x", json!({}))
        .expect_calls(&expect!["report default/x as unschedulable: no nodes available to schedule pods"]);
}

#[test]
fn a_daemon_pod_is_bound_to_its_node_only() {
    TestScheduler::new()
        .node("a", json!({}))
        .node("b", tainted("NoSchedule"))
        .pod("x-a", pinned("a"))
        .pod("x-b", pinned("b"))
        .pod("x-c", pinned("c"))
        .expect_calls(&expect![[r#"
            bind default/x-a to a
            report default/x-b as unschedulable: 0/2 nodes are available: 1 node(s) didn't satisfy plugin(s) [NodeAffinity], 1 node(s) had untolerated taint(s). preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.
            report default/x-c as unschedulable: 0/2 nodes are available: 2 node(s) didn't satisfy plugin(s) [NodeAffinity]. preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."#]])
        // The missing node is added, and the other one loses its taint.
        .node("c", json!({}))
        .node("b", json!({"spec": {"taints": []}}))
        .expect_calls(&expect![[r#"
            bind default/x-b to b
            bind default/x-c to c"#]]);
}

#[test]
fn a_host_port_is_used_once_per_node() {
    TestScheduler::new()
        .node("a", json!({}))
        .pod("x-1", port(80, ""))
        .pod("x-2", port(80, "127.0.0.1"))
        .pod("x-3", port(81, "127.0.0.1"))
        .pod("x-4", port(81, "127.0.0.2"))
        .expect_calls(&expect![[r#"
            bind default/x-1 to a
            report default/x-2 as unschedulable: 0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.
            bind default/x-3 to a
            bind default/x-4 to a"#]])
        .delete_pod("x-1")
        .expect_calls(&expect!["bind default/x-2 to a"]);
}

#[test]
fn requests_are_those_of_the_containers_or_of_the_largest_init_container() {
    let init = json!({"spec": {
        "containers": [{"resources": {"requests": {"cpu": "500m"}}}],
        "initContainers": [
            {"restartPolicy": "Always", "resources": {"requests": {"cpu": "250m"}}},
            {"resources": {"requests": {"cpu": "1250m"}}},
        ],
        "overhead": {"cpu": "100m"},
    }});
    TestScheduler::new()
        .node("a", json!({}))
        .pod("x-1", init)
        .expect_calls(&expect!["bind default/x-1 to a"])
        .pod("x-2", cpu("401m"))
        .expect_calls(&expect!["report default/x-2 as unschedulable: 0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."])
        .pod("x-3", cpu("400m"))
        .expect_calls(&expect!["bind default/x-3 to a"]);
}

#[test]
fn a_node_has_at_most_its_allocatable_number_of_pods() {
    TestScheduler::new()
        .node("a", json!({"status": {"allocatable": {"pods": "1"}}}))
        .pod("x-1", json!({}))
        .pod("x-2", cpu("3"))
        .expect_calls(&expect![[r#"
            bind default/x-1 to a
            report default/x-2 as unschedulable: 0/1 nodes are available: 1 Insufficient cpu, 1 Too many pods. preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."#]]);
}
