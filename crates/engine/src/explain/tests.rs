use alloc::string::ToString as _;
use core::time::Duration;

use expect_test::{Expect, expect};

use super::*;
use crate::cache::Remembered;
use crate::daemonset::Backoff;
use crate::facts::Kind;
use crate::scenario::{self, World};

/// A world, with its only set looked at.
pub(crate) fn picture(world: &World) -> Picture {
    let set = world.sets.first().expect("a world has a set");
    let text = |at: &str| set.pointer(at).and_then(|it| it.as_str()).expect("a set has a name").to_string();
    let mut picture = Picture::of(Key::new(text("/metadata/namespace"), text("/metadata/name")));
    let kinds = [
        (Kind::Sets, &world.sets),
        (Kind::Nodes, &world.nodes),
        (Kind::Pods, &world.pods),
        (Kind::Revisions, &world.revisions),
    ];
    for (kind, objects) in kinds {
        for object in objects {
            picture.take(kind, object.to_string().as_bytes()).expect("a scenario is well formed");
        }
    }
    picture
}

pub(crate) fn time(world: &World) -> Time {
    Time::from_secs(scenario::EPOCH_S + world.now)
}

fn unknown() -> Told {
    Told::NotKnown("this cluster's controller has no endpoint for it".to_string())
}

fn explanation(world: &str, controller: Told) -> Explanation {
    let world = scenario::parse(world).expect("a scenario");
    picture(&world).explain(controller, time(&world)).expect("the set is there")
}

fn check(world: &str, want: Expect) {
    want.assert_eq(&explanation(world, unknown()).to_string());
}

const MIXED: &str = "
    now  1000
    set  web    template=2 max-unavailable=1 node-selector=disk:ssd affinity=zone:in:a,b observed=1
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
    check(MIXED, expect![[""]]);
}

#[test]
fn every_node_has_a_line() {
    expect![[""]].assert_eq(&explanation(MIXED, unknown()).wide());
}

#[test]
fn one_node_is_told_everything() {
    let all = explanation(MIXED, unknown());
    expect![[""]].assert_eq(&all.clone().only("n6").expect("it is there").to_string());
    assert_eq!(all.only("n99"), None);
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
    let json = serde_json::to_string_pretty(&explanation(world, unknown()).to_json()).expect("it is JSON");
    expect![[""]].assert_eq(&json);
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
    let remembered = Remembered {
        generation: 1,
        backoffs: [("n1".into(), Backoff { last, delay })].into(),
        unseen_writes: 2,
        failures: 3,
        retry_at: Some(now + Duration::from_secs(2)),
        advanced_at: Some(now - Duration::from_secs(100)),
    };
    let controller = Controller {
        remembered,
        acts: true,
        queued: false,
        wakes_at: Some(now + Duration::from_secs(54)),
        left_alone_until: None,
    };
    let sent = controller.to_json();
    assert_eq!(Controller::of_json(sent.to_string().as_bytes()).as_ref(), Some(&controller));
    assert_eq!(Controller::of_json(b"{}"), None);
    assert_eq!(Controller::of_json(b"404 page not found"), None);
    expect![[""]].assert_eq(&sent.to_string());
    expect![[""]].assert_eq(&explanation(world, Told::By(controller)).to_string());
}

#[test]
fn thousands_are_grouped() {
    let mut world = "now 1000\nset web max-unavailable=10% template=2 observed=1\nrev web-a template=1\nrev web-b template=2 number=2\n".to_string();
    for at in 0..3000 {
        world += &format!("node node-{at:04}{}\n", if at % 3 == 0 { " taint=gpu=yes:NoSchedule" } else { "" });
        if at % 3 != 0 {
            world += &format!("pod web-{at} on=node-{at:04} ready since=500 rev={}\n", if at < 2000 { 2 } else { 1 });
        }
    }
    check(&world, expect![[""]]);
}

#[test]
fn a_set_that_no_controller_saw() {
    check("now 10\nset web observed=0\nnode n1\nnode n2 taint=x:NoSchedule", expect![[""]]);
}

#[test]
fn strategies() {
    let world = |strategy: &str| {
        format!(
            "
            now  1000
            set  web    template=2 {strategy} min-ready=60 observed=1
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
    expect![[""]].assert_eq(&["on-delete", "max-unavailable=2", "max-surge=50%"].map(said).join("\n---\n"));
}

#[test]
fn words_in_eighty_columns() {
    let mut out = String::new();
    let words = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen";
    wrapped(&mut out, 20, words).expect("a string takes everything");
    expect![[""]].assert_eq(&out);
    let spans = [0, 59, 60, 200, 3600, 7500, 90_000].map(|s| span(Duration::from_secs(s)));
    expect![[""]].assert_eq(&spans.join(" "));
    let few = names(["a", "b", "c"], 2);
    let many = names(["a", "b", "c", "d"], 2);
    expect![[""]].assert_eq(&[few, many].join("; "));
}
