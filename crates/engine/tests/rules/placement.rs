use expect_test::expect;
use muster_engine::daemonset::facts::Kind;
use serde_json::json;

use super::world::{Scene, each, names, parse};
use super::{check, check_changed, explained};

#[test]
fn one_pod_on_every_node() {
    check(
        "set d\nrev d-1\nnode a\nnode b\nnode c\nnode d\nnode e",
        expect![[r#"
        c  create  no pod on the node
        e  create  no pod on the node
        a  create  no pod on the node
        b  create  no pod on the node
        d  create  no pod on the node
        wake at 600
    "#]],
    );
}

#[test]
fn no_node_no_pod() {
    check(
        "set d\nrev d-1",
        expect![[r#"
        nothing
    "#]],
    );
}

#[test]
fn one_node_one_pod() {
    check(
        "set d\nrev d-1\nnode a",
        expect![[r#"
        a  create  no pod on the node
        wake at 600
    "#]],
    );
}

#[test]
fn a_node_that_is_not_ready_gets_a_pod() {
    check(
        "
        set d
        rev d-1
        node a not-ready
        node b not-ready taint=node.kubernetes.io/not-ready:NoExecute
        node c unknown taint=node.kubernetes.io/unreachable:NoExecute
        node d new
        ",
        expect![[r#"
            c  create  no pod on the node
            a  create  no pod on the node
            b  create  no pod on the node
            d  create  no pod on the node
            wake at 600
        "#]],
    );
}

#[test]
fn node_condition_taints_are_tolerated() {
    check(
        "
        set d
        rev d-1
        node disk taint=node.kubernetes.io/disk-pressure:NoSchedule
        node memory taint=node.kubernetes.io/memory-pressure:NoSchedule
        node pid taint=node.kubernetes.io/pid-pressure:NoSchedule
        node cordoned cordoned taint=node.kubernetes.io/unschedulable:NoSchedule
        ",
        expect![[r#"
            disk  create  no pod on the node
            pid  create  no pod on the node
            memory  create  no pod on the node
            cordoned  create  no pod on the node
            wake at 600
        "#]],
    );
}

#[test]
fn a_node_without_network_gets_only_host_network_pods() {
    let node = "rev d-1\nnode a taint=node.kubernetes.io/network-unavailable:NoSchedule";
    check(
        &format!("set d host-network\n{node}"),
        expect![[r#"
        a  create  no pod on the node
        wake at 600
    "#]],
    );
    check(
        &format!("set d\n{node}"),
        expect![[r#"
        nothing
    "#]],
    );
}

/// It is not on the host's network, so nothing is tolerated by itself.
#[test]
fn a_network_agent_tolerates_network_unavailable_in_its_template() {
    let taint = "node.kubernetes.io/network-unavailable:NoSchedule";
    let nodes = format!("rev d-1\nnode bare taint={taint}\nnode set-up");
    check(
        &format!("set d tolerate={taint}\n{nodes}"),
        expect![[r#"
            set-up  create  no pod on the node
            bare  create  no pod on the node
            wake at 600
        "#]],
    );
    check(
        &format!("set d\n{nodes}"),
        expect![[r#"
            set-up  create  no pod on the node
            wake at 600
        "#]],
    );
}

#[test]
fn an_untolerated_no_schedule_taint_keeps_pods_away() {
    check(
        "set d\nrev d-1\nnode a taint=gpu:NoSchedule\nnode b",
        expect![[r#"
        b  create  no pod on the node
        wake at 600
    "#]],
    );
    explained(
        "set d\nrev d-1\nnode a taint=gpu=yes:NoSchedule",
        expect![[r#"
        a  keep  -  taint gpu=yes:NoSchedule is not tolerated
    "#]],
    );
}

#[test]
fn a_toleration_matches_key_value_and_effect_and_empty_fields_match_all() {
    let node = "rev d-1\nnode a taint=gpu=yes:NoSchedule";
    for fits in ["gpu=yes:NoSchedule", "gpu:NoSchedule", "gpu=yes", "gpu", "*"] {
        check(
            &format!("set d tolerate={fits}\n{node}"),
            expect![[r#"
            a  create  no pod on the node
            wake at 600
        "#]],
        );
    }
    for fits_not in ["gpu=no:NoSchedule", "gpu:NoExecute", "cpu", "gpu=yes:PreferNoSchedule"] {
        check(
            &format!("set d tolerate={fits_not}\n{node}"),
            expect![[r#"
            nothing
        "#]],
        );
    }
}

#[test]
fn tolerations_do_not_hurt_on_a_node_without_taints() {
    check(
        "set d tolerate=gpu:NoSchedule tolerate=*\nrev d-1\nnode a",
        expect![[r#"
        a  create  no pod on the node
        wake at 600
    "#]],
    );
}

#[test]
fn a_taint_that_only_prefers_does_nothing() {
    check(
        "set d\nrev d-1\nnode a taint=x:PreferNoSchedule",
        expect![[r#"
        a  create  no pod on the node
        wake at 600
    "#]],
    );
}

#[test]
fn an_effect_no_rule_knows_does_nothing() {
    check_changed(
        "set d\nrev d-1\nnode a",
        |world| world.nodes[0]["spec"]["taints"] = json!([{"key": "x", "effect": "NoBreakfast"}]),
        expect![[r#"
            a  create  no pod on the node
            wake at 600
        "#]],
    );
}

#[test]
fn a_running_pod_outlasts_no_schedule_and_leaves_at_no_execute() {
    check(
        "set d\nrev d-1\nnode a taint=x:NoSchedule\npod d-1 on=a ready",
        expect![[r#"
        nothing
    "#]],
    );
    check(
        "set d\nrev d-1\nnode a taint=x:NoExecute\npod d-1 on=a ready",
        expect![[r#"
        a  delete d-1  taint x:NoExecute is not tolerated
    "#]],
    );
}

#[test]
fn the_strictest_of_several_taints_wins() {
    check(
        "set d\nrev d-1\nnode a taint=x:NoSchedule taint=y:NoExecute\npod d-1 on=a ready",
        expect![[r#"
        a  delete d-1  taint y:NoExecute is not tolerated
    "#]],
    );
}

#[test]
fn a_pod_is_created_when_the_taint_is_removed() {
    let mut scene = Scene::of("set d\nrev d-1\nnode a taint=x:NoSchedule");
    assert!(scene.reconcile().create.is_empty());
    let clean = parse("node a rv=2").nodes.remove(0);
    assert_eq!(scene.event(Kind::Nodes, "MODIFIED", &clean), [scene.key()]);
    assert_eq!(scene.reconcile().create.len(), 1);
}

#[test]
fn a_node_is_reevaluated_for_labels_taints_and_readiness_but_not_for_heartbeats() {
    let mut scene = Scene::of("set d\nset e\nrev d-1 of=d\nrev e-1 of=e\nnode a");
    let mut keys = |line: &str| {
        let mut node = parse(line).nodes.remove(0);
        node["status"]["allocatable"]["cpu"] = json!("96");
        node["status"]["conditions"][0]["lastHeartbeatTime"] = json!("2027-01-01T00:00:00Z");
        scene.event(Kind::Nodes, "MODIFIED", &node).len()
    };
    assert_eq!(keys("node a rv=2"), 0, "a heartbeat");
    assert_eq!(keys("node a rv=3 label=zone:a"), 2, "a label");
    assert_eq!(keys("node a rv=4 label=zone:a"), 0, "nothing");
    assert_eq!(keys("node a rv=5 label=zone:a taint=x:NoSchedule"), 2, "a taint");
    assert_eq!(keys("node a rv=6 label=zone:a taint=x:NoSchedule not-ready since=5"), 2, "readiness");
    assert_eq!(keys("node b rv=7"), 2, "a new node, whether it matches or not");
    assert_eq!(keys("node b rv=8 uid=other"), 2, "another node of that name");
}

#[test]
fn resource_fit_is_left_to_the_scheduler() {
    // Neither a port that is taken nor more than the node has creates less, or deletes anything.
    let change = |world: &mut muster_engine::scenario::World| {
        let container = &mut world.sets[0]["spec"]["template"]["spec"]["containers"][0];
        container["resources"] = json!({"requests": {"cpu": "9999"}});
        container["ports"] = json!([{"containerPort": 80, "hostPort": 80}]);
        world.pods.iter_mut().filter(|it| it["metadata"]["name"] == "other").for_each(|it| {
            it["spec"]["containers"][0]["ports"] = json!([{"containerPort": 80, "hostPort": 80}]);
        });
    };
    let world = "
        set d on-delete
        node a
        node b
        pod d-1 on=a ready hash=x
        pod other of=none on=a ready
        rev d-1 template=1 hash=x
    ";
    // The template changed, so a revision comes first; then a pod for b, and the one on a stays.
    check_changed(
        world,
        change,
        expect![[r#"
        create revision d-6cdb6f9d number 2
    "#]],
    );
    let with_revision = |world: &mut muster_engine::scenario::World| {
        change(world);
        let mut template = world.sets[0]["spec"]["template"].clone();
        template["$patch"] = json!("replace");
        world.revisions[0]["data"]["spec"]["template"] = template;
    };
    check_changed(
        world,
        with_revision,
        expect![[r#"
        b  create  no pod on the node
        wake at 600
    "#]],
    );
}

#[test]
fn a_node_selector_matches_nodes_with_all_its_labels() {
    let nodes = each("a b c", "node $ label=zone:x label=disk:ssd")
        + &each("d e", "node $ label=zone:x")
        + &each("f", "node $ label=zone:y label=disk:ssd")
        + "node g";
    check(
        &format!("set d node-selector=zone:x node-selector=disk:ssd\nrev d-1\n{nodes}"),
        expect![[r#"
        c  create  no pod on the node
        a  create  no pod on the node
        b  create  no pod on the node
        wake at 600
    "#]],
    );
    check(
        &format!("set d node-selector=zone:z\nrev d-1\n{nodes}"),
        expect![[r#"
        nothing
    "#]],
    );
}

#[test]
fn a_template_that_names_a_node_runs_there_only() {
    let nodes = "rev d-1\nnode a label=zone:x\nnode b";
    check(
        &format!("set d node-name=a\n{nodes}"),
        expect![[r#"
        a  create  no pod on the node
        wake at 600
    "#]],
    );
    check(
        &format!("set d node-name=nowhere\n{nodes}"),
        expect![[r#"
        nothing
    "#]],
    );
    check(
        &format!("set d node-name=a node-selector=zone:x\n{nodes}"),
        expect![[r#"
        a  create  no pod on the node
        wake at 600
    "#]],
    );
    check(
        &format!("set d node-name=b node-selector=zone:x\n{nodes}"),
        expect![[r#"
        nothing
    "#]],
    );
}

#[test]
fn required_affinity_selects_nodes_that_match_any_term() {
    let nodes = "rev d-1\nnode a label=zone:x label=cpus:8\nnode b label=zone:y label=cpus:64\nnode c";
    check(
        &format!("set d affinity=zone:in:x,z\n{nodes}"),
        expect![[r#"
        a  create  no pod on the node
        wake at 600
    "#]],
    );
    check(
        &format!("set d affinity=zone:not-in:x\n{nodes}"),
        expect![[r#"
        c  create  no pod on the node
        b  create  no pod on the node
        wake at 600
    "#]],
    );
    check(
        &format!("set d affinity=zone:exists+cpus:gt:8\n{nodes}"),
        expect![[r#"
        b  create  no pod on the node
        wake at 600
    "#]],
    );
    check(
        &format!("set d affinity=cpus:lt:9 affinity=zone:not-exists\n{nodes}"),
        expect![[r#"
        a  create  no pod on the node
        c  create  no pod on the node
        wake at 600
    "#]],
    );
}

#[test]
fn affinity_terms_are_ored_and_may_name_nodes() {
    let nodes =
        format!("rev d-1\n{}", each(&names("n", 4), "node $")) + "node x label=zone:x\nnode y label=zone:y";
    check(
        &format!(
            "set d affinity=zone:in:x affinity=metadata.name:in:n1 affinity=metadata.name:in:n3\n{nodes}"
        ),
        expect![[r#"
            n3  create  no pod on the node
            n1  create  no pod on the node
            x  create  no pod on the node
            wake at 600
        "#]],
    );
    check(
        &format!("set d affinity=zone:in:x+metadata.name:in:n1\n{nodes}"),
        expect![[r#"
        nothing
    "#]],
    );
}

#[test]
fn an_empty_term_and_an_empty_list_of_terms_match_nothing() {
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    for terms in [json!([]), json!([{}]), json!([{"matchExpressions": [], "matchFields": []}])] {
        check_changed(
            "set d\nnode a",
            |world| {
                let template = &mut world.sets[0]["spec"]["template"];
                template["spec"]["affinity"] =
                    json!({"nodeAffinity": {required: {"nodeSelectorTerms": terms}}});
                let mut revision = parse("set d\nrev d-1").revisions.remove(0);
                let mut data = world.sets[0]["spec"]["template"].clone();
                data["$patch"] = json!("replace");
                revision["data"]["spec"]["template"] = data;
                world.revisions = vec![revision];
            },
            expect![[r#"
                nothing
            "#]],
        );
    }
}

#[test]
fn preferred_affinity_is_the_scheduler_s_business() {
    check_changed(
        "set d\nnode a",
        |world| {
            world.sets[0]["spec"]["template"]["spec"]["affinity"] = json!({"nodeAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {
                    "matchExpressions": [{"key": "zone", "operator": "In", "values": ["nowhere"]}]}}]}});
            let mut revision = parse("set d\nrev d-1").revisions.remove(0);
            let mut data = world.sets[0]["spec"]["template"].clone();
            data["$patch"] = json!("replace");
            revision["data"]["spec"]["template"] = data;
            world.revisions = vec![revision];
        },
        expect![[r#"
            a  create  no pod on the node
            wake at 600
        "#]],
    );
}

#[test]
fn every_verdict_has_its_reason() {
    explained(
        "
        set d node-selector=zone:x affinity=metadata.name:not-in:b tolerate=ok
        rev d-1
        node a label=zone:x
        node b label=zone:x
        node c label=zone:y
        node d label=zone:x taint=gpu=big:NoSchedule
        node e label=zone:x taint=gpu:NoExecute
        node f label=zone:x taint=ok:NoExecute
        pod d-g for=g
        pod d-h on=h ready
        ",
        expect![[r#"
            a  run  -  no pod on the node
            b  leave  -  no term of the node affinity matches
            c  leave  -  the node selector requires zone=x
            d  keep  -  taint gpu=big:NoSchedule is not tolerated
            e  leave  -  taint gpu:NoExecute is not tolerated
            f  run  -  no pod on the node
            g  gone  d-g  its node was deleted
            h  gone  d-h  its node was deleted
        "#]],
    );
    explained(
        "set d node-name=b\nrev d-1\nnode a\nnode b",
        expect![[r#"
        a  leave  -  the template has nodeName b
        b  run  -  no pod on the node
    "#]],
    );
}

#[test]
fn a_node_that_no_longer_matches_loses_its_pod_bound_or_not() {
    check(
        "
        set d node-selector=zone:x
        rev d-1
        node a
        node b
        node c label=zone:x
        pod d-a on=a ready
        pod d-b for=b
        pod d-c on=c ready
        ",
        expect![[r#"
            a  delete d-a  the node selector requires zone=x
            b  delete d-b  the node selector requires zone=x
        "#]],
    );
}
