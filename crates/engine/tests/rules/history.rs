use expect_test::expect;
use serde_json::json;

use super::world::{Scene, parse, text};
use super::{changed, check, check_changed, check_status};

#[test]
fn a_template_without_a_revision_gets_one_before_any_pod() {
    check(
        "set d\nnode a",
        expect![[r#"
        create revision d-67d7c6686 number 1
    "#]],
    );
    check(
        "set d template=2\nrev d-1 template=1\nnode a\npod x on=a rev=1 ready",
        expect![[r#"
        create revision d-86795bb95 number 2
    "#]],
    );
}

#[test]
fn numbers_go_on_from_the_highest_there_is() {
    check(
        "set d template=9\nrev d-1 template=1 number=41\nrev d-2 template=2 number=7",
        expect![[r#"
        create revision d-5c84bd8bd6 number 42
    "#]],
    );
}

#[test]
fn the_name_comes_from_the_template_and_the_collision_count() {
    let name = |world: &str| Scene::of(world).reconcile().to_string();
    let without = name("set d");
    assert_ne!(without, name("set d collisions=1"));
    assert_ne!(without, name("set d template=2"));
    assert_eq!(without, name("set d uid=other"));
}

#[test]
fn a_raised_collision_count_changes_the_name_in_the_next_plan() {
    let mut scene = Scene::of("set d");
    let first = scene.reconcile().to_string();
    scene.then("set d collisions=1 rv=2");
    assert_ne!(first, scene.reconcile().to_string());
}

#[test]
fn a_revision_without_a_label_is_given_its_name() {
    check(
        "set d\nrev d-1 hash=none\nnode a",
        expect![[r#"
        label revision d-1
    "#]],
    );
}

#[test]
fn a_rollback_renumbers_the_old_revision() {
    check(
        "
        set d template=1
        rev d-1 template=1
        rev d-2 template=2
        rev d-3 template=3
        node a
        node b
        node c
        pod x on=a rev=1 ready
        pod y on=b rev=3 ready
        pod z on=c rev=3 ready
        ",
        expect![[r#"
            renumber d-1 to 4
            c  delete z  outdated
            wake at 600
        "#]],
    );
    // It has the highest number already: nothing to renumber.
    check(
        "set d template=1\nrev d-1 template=1 number=3\nrev d-2 template=2",
        expect![[r#"
        nothing
    "#]],
    );
}

#[test]
fn a_revision_that_is_held_in_deletion_still_names_what_pods_run() {
    check(
        "set d\nrev d-1 deleting\nnode a",
        expect![[r#"
            a  create  no pod on the node
            wake at 600
        "#]],
    );
}

#[test]
fn on_delete_records_the_template_and_leaves_the_pods() {
    check(
        "set d template=2 on-delete\nrev d-1 template=1\nrev d-2 template=2\nnode a\nnode b\npod x on=a rev=1 ready\npod y on=b rev=1",
        expect![[r#"
            nothing
            wake at 600
        "#]],
    );
    // A pod the user deleted comes back as the current revision.
    let plan = Scene::of(
        "set d template=2 on-delete\nrev d-1 template=1\nrev d-2 template=2 hash=two\nnode a\nnode b\npod x on=a rev=1 ready",
    )
    .reconcile();
    assert_eq!((plan.create.len(), plan.hash.as_ref()), (1, "two"));
}

#[test]
fn a_pod_is_new_by_its_hash_or_by_its_template_generation() {
    // Upstream: TestIsPodUpdated. One old pod is one delete: the set may do without all of them.
    let table = [
        ("", "hash=cur", "new"),
        ("", "hash=old", "old"),
        ("", "hash=none", "old"),
        ("", "hash=none generation-label=5", "old"),
        ("template-generation=5", "hash=none generation-label=5", "new"),
        ("template-generation=5", "hash=old generation-label=5", "new"),
        ("template-generation=5", "hash=cur generation-label=4", "new"),
        ("template-generation=5", "hash=old generation-label=4", "old"),
        ("template-generation=5", "hash=cur", "new"),
        ("template-generation=5", "hash=none", "old"),
        // Older than the set, so its generation is another set's.
        ("template-generation=5 made=50", "hash=old generation-label=5 made=49", "old"),
        ("template-generation=5 made=50", "hash=old generation-label=5 made=50", "new"),
        ("template-generation=5 made=50", "hash=cur generation-label=5 made=49", "new"),
    ];
    for surge in ["max-unavailable=100%", "max-surge=100%"] {
        for (set, pod, want) in table {
            let plan = Scene::of(&format!(
                "set d {set} {surge}\nrev d-1 hash=cur\nrev d-0 template=2 number=0 hash=old\nnode a\npod x on=a ready {pod}"
            ))
            .reconcile();
            let is = if plan.delete.is_empty() && plan.create.is_empty() { "new" } else { "old" };
            assert_eq!(is, want, "{set} {surge} {pod}");
        }
    }
}

#[test]
fn a_template_generation_that_is_no_number_does_not_count() {
    check_changed(
        "set d template-generation=5 max-unavailable=1\nrev d-1 hash=cur\nnode a\npod x on=a ready hash=none generation-label=5",
        |world| {
            world.sets[0]["metadata"]["annotations"]["deprecated.daemonset.template.generation"] =
                json!("five");
        },
        expect![[r#"
            a  delete x  outdated
            wake at 600
        "#]],
    );
}

#[test]
fn a_duplicate_is_left_alone_for_a_minute() {
    // Whoever made it by hand may be about to delete the first one, as Kubernetes' conformance tests do.
    let world = "
        set d
        rev d-1 hash=one
        rev d-2 hash=two number=2 made=100
        node a
        pod x on=a hash=one ready
    ";
    check(
        &format!("now 159\n{world}"),
        expect![[r#"
        nothing
        wake at 160
    "#]],
    );
    check(
        &format!("now 160\n{world}"),
        expect![[r#"
        relabel x to two
    "#]],
    );
}

#[test]
fn only_pods_of_the_duplicate_are_relabelled_and_then_it_goes() {
    let world = "
        now 1000
        set d max-unavailable=1
        rev d-0 template=7 number=0 hash=old
        rev d-1 hash=one
        rev d-2 hash=two number=2
        node a
        node b
        node c
        node e
        pod x on=a hash=one ready
        pod y on=b hash=two ready
        pod z on=c hash=old ready
        pod g on=e hash=one failed deleting finalizer=f
        pod h on=e hash=two ready
    ";
    check(
        world,
        expect![[r#"
            relabel g to two
            relabel x to two
            c  delete z  outdated
            wake at 1600
        "#]],
    );
    check(
        &world.replace("hash=one ready", "hash=two ready").replace("hash=one failed", "hash=two failed"),
        expect![[r#"
            c  delete z  outdated
            delete revision d-1
            wake at 1600
        "#]],
    );
}

#[test]
fn two_duplicates_of_an_old_revision_are_nobody_s_business() {
    check(
        "now 1000\nset d template=2\nrev d-2 template=2 number=3\nrev d-0 template=1 hash=p\nrev d-1 template=1 hash=q number=2",
        expect![[r#"
            nothing
        "#]],
    );
}

#[test]
fn revisions_over_the_history_limit_are_deleted_lowest_number_first() {
    let world = "
        set d template=9 history=2
        rev d-9 template=9
        rev d-1 template=1 number=4
        rev d-2 template=2 number=3
        rev d-3 template=3 number=2
        rev d-4 template=4 number=1
    ";
    check(
        world,
        expect![[r#"
        delete revision d-4
        delete revision d-3
    "#]],
    );
    check(
        &world.replace("history=2", "history=10"),
        expect![[r#"
        nothing
    "#]],
    );
    check(
        &world.replace("history=2", "history=0"),
        expect![[r#"
        delete revision d-4
        delete revision d-3
        delete revision d-2
        delete revision d-1
    "#]],
    );
}

#[test]
fn a_revision_that_a_pod_carries_is_never_pruned() {
    // Not by a running pod, nor by one that ended and that only a finalizer holds.
    check(
        "
        set d template=9 history=0 on-delete
        rev d-9 template=9
        rev d-1 template=1
        rev d-2 template=2
        rev d-3 template=3
        node a
        node b
        pod x on=a rev=1 ready
        pod y on=b rev=2 failed deleting finalizer=f
        pod z on=b ready
        ",
        expect![[r#"
            delete revision d-3
            wake at 600
        "#]],
    );
}

#[test]
fn carried_revisions_count_towards_the_limit() {
    // Upstream: cleanupHistory. Three old ones, one may stay: the two that no pod carries go.
    check(
        "set d template=9 history=1 on-delete\nrev d-9 template=9\nrev d-1 template=1\nrev d-2 template=2\nrev d-3 template=3\nnode a\npod x on=a rev=1 ready",
        expect![[r#"
            delete revision d-2
            delete revision d-3
            wake at 600
        "#]],
    );
}

#[test]
fn a_field_that_a_newer_server_defaults_restarts_nothing() {
    let world = "
        set d
        rev d-1 hash=one
        node a
        pod x on=a hash=one ready
    ";
    let defaulted = |world: &mut muster_engine::scenario::World| {
        world.sets[0]["spec"]["template"]["spec"]["dnsPolicy"] = json!("ClusterFirst");
        world.sets[0]["spec"]["template"]["spec"]["containers"][0]["securityContext"] = json!(null);
    };
    check_changed(
        world,
        defaulted,
        expect![[r#"
        nothing
    "#]],
    );
}

#[test]
fn pods_of_every_revision_that_means_the_same_are_up_to_date() {
    // Two revisions, one as it was before the upgrade and one after: neither's pods are replaced, neither is folded.
    let world = "
        now 1000
        set d
        rev d-1 hash=one
        rev d-2 hash=two number=2
        node a
        node b
        pod x on=a hash=one ready
        pod y on=b hash=two ready
    ";
    let upgraded = |world: &mut muster_engine::scenario::World| {
        world.revisions[1]["data"]["spec"]["template"]["spec"]["dnsPolicy"] = json!("ClusterFirst");
        world.sets[0]["spec"]["template"]["spec"]["dnsPolicy"] = json!("ClusterFirst");
    };
    check_changed(
        world,
        upgraded,
        expect![[r#"
        nothing
    "#]],
    );
    let mut scene = super::changed(world, upgraded);
    assert_eq!(scene.reconcile().status.expect("counts").counts.updated, 2);
}

#[test]
fn another_image_is_another_meaning() {
    check_changed(
        "set d\nrev d-1 hash=one\nnode a\npod x on=a hash=one ready",
        |world| world.sets[0]["spec"]["template"]["spec"]["containers"][0]["image"] = json!("d:other"),
        expect![[r#"
            create revision d-5f56758cf5 number 2
        "#]],
    );
}

#[test]
fn a_change_beside_the_template_makes_no_revision() {
    check(
        "set d gen=7 max-unavailable=3\nrev d-1\nnode a\npod x on=a ready",
        expect![[r#"
        nothing
    "#]],
    );
}

#[test]
fn annotations_go_into_the_revision_and_not_into_the_name() {
    let mut world = parse("set d");
    world.sets[0]["metadata"]["annotations"] = json!({"kubernetes.io/change-cause": "because"});
    let mut scene = Scene::from(&world, muster_engine::daemonset::plan::Settings::default());
    assert_eq!(text(&scene.reconcile()), text(&Scene::of("set d").reconcile()));
}

#[test]
fn nothing_is_counted_before_the_template_is_recorded() {
    check_status(
        "set d template=2 observed=1\nrev d-1 template=1\nnode a",
        expect![[r#"
            desired=0 current=0 ready=0 updated=0 available=0 unavailable=0 misscheduled=0 observed=1
            Available=Unknown since 0 NotYetKnown: waiting for the template to be recorded as a revision
            Progressing=Unknown since 0 NotYetKnown: waiting for the template to be recorded as a revision
            Degraded=Unknown since 0 NotYetKnown: waiting for the template to be recorded as a revision
        "#]],
    );
}

#[test]
fn a_template_spelt_anew_is_recorded_with_the_label_of_its_pods() {
    const GENERATION: &str = "deprecated.daemonset.template.generation";
    let world = "set d template-generation=2\nrev d-one hash=one\nnode a\npod x on=a hash=one ready";
    let made_at = |generation: &str, said: &str| {
        changed(world, |world| {
            world.revisions[0]["metadata"]["annotations"] = json!({ GENERATION: generation });
            if !said.is_empty() {
                world.sets[0]["spec"]["template"]["spec"][said] = json!(true);
            }
        })
        .reconcile()
    };
    // The user said what is so anyway: upstream will look for these very bytes, and find the label of the pod.
    let plan = made_at("1", "hostUsers");
    expect![[r#"
        create revision d-7494d6bcf8 number 2
        [Create { name: "d-7494d6bcf8", hash: "one", number: 2 }]"#]]
    .assert_eq(&format!("{plan}{:?}", plan.steps));
    // The API server fills in a field: the template generation stays.
    expect![[r#""#]].assert_eq(&made_at("2", "hostUsers").to_string());
    // Beyond the limit the older spelling goes: the label of the pod is that of the newer one too.
    check_changed(
        "set d template-generation=2 history=0\nrev d-one hash=one\nrev d-two hash=one number=2\nnode a\npod x on=a hash=one ready",
        |world| world.revisions[0]["data"]["spec"]["template"]["spec"]["hostUsers"] = json!(true),
        expect![[r#"
            delete revision d-one
        "#]],
    );
    // Nothing was spelt anew; the set went back to this template.
    expect![""].assert_eq(&made_at("1", "").to_string());
}
