use expect_test::expect;
use muster_engine::daemonset::facts::Kind;
use serde_json::{Value, json};

use super::world::{Scene, granted, parse, text};
use super::{check, check_changed};

#[test]
fn a_matching_orphan_is_adopted_first() {
    check(
        "set d\nrev d-1\nnode a\nnode b\npod o on=a ready orphan",
        expect![[r#"
        adopt pod o
    "#]],
    );
}

#[test]
fn a_terminating_or_unmatched_orphan_is_not_adopted() {
    check(
        "set d\nrev d-1\nnode a\npod o on=a ready orphan deleting\npod p on=a orphan unlabel=app",
        expect![[r#"
            a  create  no pod on the node
            wake at 600
        "#]],
    );
}

#[test]
fn labels_and_expressions_of_a_selector_must_both_match() {
    let change = |world: &mut muster_engine::scenario::World| {
        let tier = json!({"key": "tier", "operator": "In", "values": ["node", "host"]});
        world.sets[0]["spec"]["selector"]["matchExpressions"] = json!([tier]);
        world.sets[0]["spec"]["template"]["metadata"]["labels"]["tier"] = json!("node");
        world.revisions[0]["metadata"]["labels"]["tier"] = json!("node");
        for (pod, label) in world.pods.iter_mut().zip(["node", "host", "pod", "", "node"]) {
            pod["metadata"]["labels"]["tier"] = json!(label);
        }
    };
    check_changed(
        "
        set d
        rev d-1
        node a
        pod both on=a orphan
        pod other-value on=a orphan
        pod no-expression on=a orphan
        pod empty on=a orphan
        pod no-label on=a orphan unlabel=app
        ",
        change,
        expect![[r#"
            adopt pod both
            adopt pod other-value
        "#]],
    );
}

#[test]
fn a_pod_of_ours_that_no_longer_matches_is_released() {
    check(
        "set d\nrev d-1\nnode a\npod x on=a ready unlabel=app",
        expect![[r#"
        release pod x
    "#]],
    );
}

#[test]
fn pods_of_another_controller_are_never_changed() {
    let change = |world: &mut muster_engine::scenario::World| {
        world.pods[0]["metadata"]["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u-r", "controller": true}]);
    };
    check_changed(
        "set d\nrev d-1\nnode a\npod x on=a ready",
        change,
        expect![[r#"
        a  create  no pod on the node
        wake at 600
    "#]],
    );
    // Nor what another set has, a former one of this name among them.
    check(
        "set d uid=new\nrev d-1\nnode a\npod x on=a ready owner=old",
        expect![[r#"
        a  create  no pod on the node
        wake at 600
    "#]],
    );
}

#[test]
fn an_owner_that_is_no_controller_does_not_count() {
    let change = |world: &mut muster_engine::scenario::World| {
        world.pods[0]["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "u-c"}]);
    };
    check_changed(
        "set d\nrev d-1\nnode a\npod x on=a ready",
        change,
        expect![[r#"
        adopt pod x
    "#]],
    );
}

#[test]
fn nothing_of_another_namespace_is_claimed_or_counted() {
    let world = "
        set d
        set e ns=far
        node a
        rev d-1 of=d
        rev e-1 of=e ns=far
        pod o of=e ns=far on=a ready orphan label=app:d
        pod x of=e ns=far on=a ready label=app:d
    ";
    let change = |world: &mut muster_engine::scenario::World| {
        let uid = world.sets[0]["metadata"]["uid"].clone();
        world.pods[1]["metadata"]["ownerReferences"][0]["uid"] = uid;
        world.revisions[1]["metadata"]["ownerReferences"] = json!(null);
        world.revisions[1]["metadata"]["labels"]["app"] = json!("d");
    };
    check_changed(
        world,
        change,
        expect![[r#"
        a  create  no pod on the node
        wake at 600
    "#]],
    );
}

#[test]
fn a_revision_is_adopted_and_released_like_a_pod() {
    check(
        "set d\nrev d-1 orphan\nnode a",
        expect![[r#"
        adopt revision d-1
    "#]],
    );
    check_changed(
        "set d\nrev d-1\nrev d-2 template=2\nnode a",
        |world| world.revisions[1]["metadata"]["labels"] = json!({}),
        expect![[r#"
            release revision d-2
        "#]],
    );
    check(
        "set d\nrev d-1\nrev d-2 template=2 orphan deleting\nnode a\npod x on=a ready",
        expect![[r#"
        nothing
    "#]],
    );
}

#[test]
fn a_set_with_an_empty_selector_touches_nothing_and_says_so_once() {
    let world = "set d\nrev d-1\nnode a\nnode b\npod x on=a ready\npod o on=b ready orphan";
    let everything = |world: &mut muster_engine::scenario::World| {
        world.sets[0]["spec"]["selector"] = json!({});
    };
    let mut scene = super::changed(world, everything);
    let plan = scene.reconcile();
    expect![[r#"
        event SelectingAll: This daemon set is selecting all pods. A non-empty selector is required.
    "#]]
    .assert_eq(&text(&plan));
    assert!(!plan.is_idle(), "the event is to be recorded");
    assert_eq!(scene.act(plan, granted(1)), "");
    assert!(scene.reconcile().is_idle());
    // A new version of the same spec is not told of again, a new spec is.
    let mut again = parse(world);
    everything(&mut again);
    again.sets[0]["metadata"]["resourceVersion"] = json!("2");
    scene.list(&again);
    assert!(scene.reconcile().is_idle());
    again.sets[0]["metadata"]["generation"] = json!(2);
    scene.list(&again);
    assert!(!scene.reconcile().is_idle());
}

#[test]
fn a_selector_that_cannot_be_read_touches_nothing_and_says_why() {
    let selectors = [
        Value::Null,
        json!({"matchExpressions": [{"key": "app", "operator": "Like", "values": ["d"]}]}),
        json!({"matchExpressions": [{"key": "app", "operator": "In"}]}),
        json!({"matchExpressions": [{"operator": "Exists"}]}),
        json!({"matchLabels": {"app": "d"}, "matchExpressions": [{"key": "app", "operator": "Exists", "values": ["x"]}]}),
    ];
    let mut out = String::new();
    for selector in selectors {
        let mut scene = super::changed("set d\nrev d-1\nnode a\npod x on=a failed", |world| {
            world.sets[0]["spec"]["selector"] = selector.clone();
        });
        out += &text(&scene.reconcile());
    }
    expect![[r#"
        event InvalidSelector: The selector is invalid: spec.selector is missing
        event InvalidSelector: The selector is invalid: app: "Like" is not an operator
        event InvalidSelector: The selector is invalid: app: In needs values
        event InvalidSelector: The selector is invalid: a requirement has no key
        event InvalidSelector: The selector is invalid: app: Exists takes no values
    "#]]
    .assert_eq(&out);
}

#[test]
fn of_two_sets_with_one_selector_each_keeps_its_own() {
    let world = parse(
        "
        set d select=app:x
        set e select=app:x
        rev d-1 of=d
        rev e-1 of=e
        node a
        pod d-a of=d on=a ready
        pod e-a of=e on=a ready
        ",
    );
    let mut scene = Scene::from(&world, muster_engine::daemonset::plan::Settings::default());
    let keys: Vec<_> = scene.planner.keys().cloned().collect();
    for key in keys {
        let plan = scene.planner.reconcile(&key, scene.now).expect("the set is there");
        expect![[r#"
            nothing
        "#]]
        .assert_eq(&text(&plan));
    }
}

fn keys(scene: &mut Scene, what: &str, pod: &Value) -> String {
    let keys = scene.event(Kind::Pods, what, pod);
    keys.iter().map(|it| it.name.to_string()).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_pod_event_enqueues_its_owner_or_its_possible_adopters() {
    let world = "
        set d select=app:x
        set e select=app:x
        set f select=app:y
        set g ns=far select=app:x
        node a
    ";
    let mut scene = Scene::of(world);
    let pod = |line: &str| parse(&format!("{world}\n{line}")).pods.remove(0);
    let mut said = String::new();
    let mut check = |what: &str, line: &str| {
        let keys = keys(&mut scene, what, &pod(line));
        said += &format!("{what} {line}: {keys}\n");
    };
    check("ADDED", "pod p of=d on=a rv=2");
    check("MODIFIED", "pod p of=d on=a rv=3 ready");
    check("MODIFIED", "pod p of=e on=a rv=4 ready");
    check("MODIFIED", "pod p of=e on=a rv=5 ready orphan");
    check("MODIFIED", "pod p of=d on=a rv=6 ready orphan label=app:y");
    check("MODIFIED", "pod p of=d on=a rv=7 ready orphan label=app:z");
    check("DELETED", "pod p of=d on=a rv=8 ready orphan label=app:z");
    check("ADDED", "pod q of=d on=a rv=9");
    check("DELETED", "pod q of=d on=a rv=10");
    check("ADDED", "pod r of=none on=a rv=11");
    check("DELETED", "pod r of=none on=a rv=12");
    check("ADDED", "pod s of=d on=a rv=13 owner=nobody");
    check("DELETED", "pod s of=d on=a rv=14 owner=nobody");
    expect![[r#"
        ADDED pod p of=d on=a rv=2: d
        MODIFIED pod p of=d on=a rv=3 ready: d
        MODIFIED pod p of=e on=a rv=4 ready: d e
        MODIFIED pod p of=e on=a rv=5 ready orphan: d e
        MODIFIED pod p of=d on=a rv=6 ready orphan label=app:y: d e f
        MODIFIED pod p of=d on=a rv=7 ready orphan label=app:z: f
        DELETED pod p of=d on=a rv=8 ready orphan label=app:z: 
        ADDED pod q of=d on=a rv=9: d
        DELETED pod q of=d on=a rv=10: d
        ADDED pod r of=none on=a rv=11: 
        DELETED pod r of=none on=a rv=12: 
        ADDED pod s of=d on=a rv=13 owner=nobody: 
        DELETED pod s of=d on=a rv=14 owner=nobody: 
    "#]]
    .assert_eq(&said);
}

#[test]
fn a_set_made_anew_under_its_old_name_starts_afresh() {
    let mut scene = Scene::of("set d uid=one\nrev d-1\nnode a");
    let plan = scene.reconcile();
    assert_eq!(plan.create.len(), 1);
    scene.act(plan, granted(5_000));
    expect![[r#"
        wait  waiting for the watch to deliver 2 writes
        wake at 10
    "#]]
    .assert_eq(&text(&scene.reconcile()));
    // Its writes have not come back, but the new one has nothing to wait for.
    let anew = parse("set d uid=two rv=2").sets.remove(0);
    assert_eq!(scene.event(Kind::Sets, "MODIFIED", &anew), [scene.key()]);
    expect![[r#"
        create revision d-67d7c6686 number 1
    "#]]
    .assert_eq(&text(&scene.reconcile()));
}
