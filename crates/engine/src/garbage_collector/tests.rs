//! A world in, the calls out, as text. A small API server carries the calls out, so that a story goes to its end.
//!
//! A line is an object: `KIND NAME`, and then
//! - `ns=NAME`: in that namespace, else in `a`; a Node is in none;
//! - `uid=UID`: else the name is its UID too;
//! - `of=KIND/NAME[@UID][!]`: names this owner; `!` blocks its deletion;
//! - `deleting`, `finalizer=NAME`;
//! - of a pod: `on=NODE`, `ended=TIME`: since when it was there, `evicted`; `graceful`: it is being
//!   deleted, and its node has time for it; of a node: `out-of-service`;
//! - `unseen`: no watch has shown it; `stale`: it is gone, and no watch has said so;
//! - `refused=N`: the server answers the first N calls about it with an error.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use expect_test::{Expect, expect};
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

const SERVED: &[(&str, &str, &str, bool)] = &[
    ("", "Pod", "pods", true),
    ("", "Node", "nodes", false),
    ("", "ConfigMap", "configmaps", true),
    ("apps", "DaemonSet", "daemonsets", true),
];

fn resources() -> Vec<Arc<Resource>> {
    let all = SERVED.iter().map(|(group, kind, plural, namespaced)| {
        Arc::new(Resource {
            group: (*group).into(),
            version: "v1".into(),
            kind: (*kind).into(),
            plural: (*plural).into(),
            namespaced: *namespaced,
        })
    });
    all.collect()
}

/// Plays a world to its end, and shows each call and what is left.
fn play(world: &str, story: Expect) {
    let mut scene = Scene::of(world);
    scene.run();
    story.assert_eq(&scene.told());
}

struct Scene {
    graph: Graph,
    server: BTreeMap<Text, Object>,
    refused: BTreeMap<Text, u32>,
    queue: BTreeSet<Text>,
    wakes: BTreeMap<Text, Time>,
    now: Time,
    until: Time,
    version: u64,
    story: String,
    /// What the watches have not shown yet, if they are late.
    late: Option<Vec<Event>>,
}

impl Scene {
    fn of(world: &str) -> Self {
        let (mut server, mut seen, mut refused) = (BTreeMap::new(), Vec::new(), BTreeMap::new());
        for (version, line) in (1..).zip(world.lines().map(str::trim).filter(|it| !it.is_empty())) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let object = object(&words, version);
            if !words.contains(&"unseen") {
                seen.push(object.clone());
            }
            if let Some(times) = words.iter().find_map(|it| it.strip_prefix("refused=")) {
                refused.insert(object.uid.clone(), times.parse().unwrap());
            }
            if !words.contains(&"stale") {
                server.insert(object.uid.clone(), object);
            }
        }
        let mut scene = Self {
            graph: Graph::new(resources(), resources()),
            server,
            refused,
            queue: BTreeSet::new(),
            wakes: BTreeMap::new(),
            now: Time::from_secs(0),
            until: Time::from_secs(15),
            version: 100,
            story: String::new(),
            late: None,
        };
        for resource in resources() {
            let objects = seen.iter().filter(|it| it.resource == resource).cloned().collect();
            scene.apply(Event::Listed { resource, objects });
        }
        scene
    }

    fn apply(&mut self, event: Event) {
        self.queue.extend(self.graph.apply(event));
    }

    fn happens(&mut self, event: Event) {
        match &mut self.late {
            Some(late) => late.push(event),
            None => self.apply(event),
        }
    }

    fn show(&mut self) {
        self.late.take().into_iter().flatten().for_each(|it| self.apply(it));
    }

    /// Until nothing is left to do: looks, calls and their events; at last the timers, as they come.
    fn run(&mut self) {
        for _ in 0..2000 {
            let Some(uid) = self.queue.pop_first() else {
                let Some((uid, at)) =
                    self.wakes.iter().min_by_key(|(_, at)| **at).map(|(u, t)| (u.clone(), *t))
                else {
                    return;
                };
                // What is only waited for, because a server that is not there may come back, has no end.
                if self.until < at {
                    return;
                }
                self.now = at;
                self.wakes.remove(&uid);
                self.queue.insert(uid);
                continue;
            };
            let reconcile = self.graph.reconcile(&uid, self.now);
            match reconcile.wake_at {
                Some(at) => drop(self.wakes.insert(uid, at)),
                None => drop(self.wakes.remove(&uid)),
            }
            for call in reconcile.calls {
                if let Call::Delete { object, .. } = &call {
                    self.assert_unowned(object);
                }
                let (outcome, event) = self.make(&call);
                let refusal = match &outcome {
                    Outcome::Refused(it) => format!("  -> {it}"),
                    Outcome::Done | Outcome::Found(_) => String::new(),
                };
                self.story += &format!("{call}{refusal}\n");
                self.queue.extend(self.graph.done(&call, outcome, self.now));
                event.into_iter().for_each(|it| self.happens(it));
            }
        }
        panic!("no end:\n{}", self.story);
    }

    fn make(&mut self, call: &Call) -> (Outcome, Option<Event>) {
        let uid = match call {
            Call::Read(it) => {
                let is_it = |o: &&Object| o.resource == it.resource && o.key == it.key;
                let found = self.server.values().find(is_it).cloned();
                let found = found.map_or(Outcome::Refused(Refusal::NotFound), Outcome::Found);
                return (found, None);
            }
            Call::Delete { object, .. }
            | Call::Disown { object, .. }
            | Call::Unblock { object }
            | Call::RemoveFinalizer { object, .. }
            | Call::Fail { object, .. }
            | Call::Remove { object, .. } => object.uid.clone(),
        };
        if let Some(times) = self.refused.get_mut(&uid).filter(|it| 0 < **it) {
            *times -= 1;
            return (Outcome::Refused(Refusal::Server("not now".to_string())), None);
        }
        let Some(object) = self.server.get_mut(&uid) else {
            return (Outcome::Refused(Refusal::NotFound), None);
        };
        match call {
            Call::Read(_) => unreachable!("read above"),
            Call::Delete { object: seen, .. } | Call::RemoveFinalizer { object: seen, .. }
                if seen.resource_version != object.resource_version =>
            {
                return (Outcome::Refused(Refusal::Conflict), None);
            }
            Call::Delete { propagation, .. } => {
                object.deleting = true;
                object.pod = object.pod.take().map(|it| Arc::new(Pod { at_once: true, ..(*it).clone() }));
                match propagation {
                    Propagation::Foreground if !object.has(FOREGROUND) => {
                        object.finalizers.push(FOREGROUND.into())
                    }
                    Propagation::Orphan if !object.has(ORPHAN) => object.finalizers.push(ORPHAN.into()),
                    _ => {}
                }
            }
            Call::Disown { owners, .. } => object.owners.retain(|it| !owners.contains(&it.uid)),
            Call::Unblock { .. } => object.owners.iter_mut().for_each(|it| it.blocks = false),
            Call::Fail { .. } => Arc::make_mut(object.pod.as_mut().unwrap()).ended = true,
            Call::Remove { .. } => {
                object.deleting = true;
                Arc::make_mut(object.pod.as_mut().unwrap()).at_once = true;
            }
            Call::RemoveFinalizer { finalizer, .. } => object.finalizers.retain(|it| **it != **finalizer),
        }
        self.version += 1;
        object.resource_version = self.version;
        if object.deleting && object.finalizers.is_empty() {
            self.server.remove(&uid);
            return (Outcome::Done, Some(Event::Deleted { uid }));
        }
        let now = object.clone();
        (Outcome::Done, Some(Event::Applied(now)))
    }

    fn told(&self) -> String {
        let mut story = self.story.clone();
        for object in self.server.values() {
            story += &format!("left: {object}");
            for it in &object.owners {
                story += &format!(" of {}", it.uid);
            }
            story += if object.deleting { " deleting\n" } else { "\n" };
        }
        story
    }
}

fn object(words: &[&str], version: u64) -> Object {
    let said = |word: &str| words.iter().find_map(|it| it.strip_prefix(word));
    let resource = resources().into_iter().find(|it| *it.kind == *words[0]).unwrap();
    let namespace = if resource.namespaced { said("ns=").unwrap_or("a") } else { "" };
    let owner = |word: &str| {
        let (word, blocks) = word.strip_suffix('!').map_or((word, false), |it| (it, true));
        let (kind, name) = word.split_once('/').unwrap();
        let (name, uid) = name.split_once('@').unwrap_or((name, name));
        let group = SERVED.iter().find(|it| it.1 == kind).map_or("other.io", |it| it.0);
        let api_version = if group.is_empty() { "v1".to_string() } else { format!("{group}/v1") };
        Owner {
            api_version: api_version.as_str().into(),
            kind: kind.into(),
            name: name.into(),
            uid: uid.into(),
            blocks,
        }
    };
    let pod = (words[0] == "Pod").then(|| {
        Arc::new(Pod {
            node: said("on=").unwrap_or_default().into(),
            ended: said("ended=").is_some(),
            evicted: words.contains(&"evicted"),
            created: Time::from_secs(said("ended=").map_or(0, |it| it.parse().unwrap())),
            at_once: words.contains(&"deleting") && !words.contains(&"graceful"),
        })
    });
    Object {
        pod,
        out_of_service: (words[0] == "Node").then(|| words.contains(&"out-of-service")),
        resource,
        key: ObjectKey::new(namespace, words[1]),
        uid: said("uid=").unwrap_or(words[1]).into(),
        resource_version: version,
        owners: words.iter().filter_map(|it| it.strip_prefix("of=")).map(owner).collect(),
        deleting: words.contains(&"deleting"),
        finalizers: words.iter().filter_map(|it| it.strip_prefix("finalizer=")).map(Text::from).collect(),
    }
}

#[test]
fn what_has_its_owner_or_none_stays() {
    play(
        "DaemonSet web
         Pod web-1 of=DaemonSet/web!
         Pod alone",
        expect![[r#"
            left: Pod a/alone
            left: DaemonSet a/web
            left: Pod a/web-1 of web
        "#]],
    );
}

#[test]
fn background_all_that_is_owned_goes_and_the_owner_is_asked_for_once() {
    play(
        "Pod web-1 of=DaemonSet/web!
         Pod web-2 of=DaemonSet/web!
         Pod web-3 of=DaemonSet/web!
         ConfigMap of-a-pod of=Pod/web-3",
        expect![[r#"
            read DaemonSet a/web web  -> not found
            delete Pod a/web-1 Background: its owners are gone
            delete Pod a/web-2 Background: its owners are gone
            delete Pod a/web-3 Background: its owners are gone
            read Pod a/web-3 web-3  -> not found
            delete ConfigMap a/of-a-pod Background: its owners are gone
        "#]],
    );
}

#[test]
fn another_that_has_taken_the_name_is_no_owner() {
    play(
        "DaemonSet web uid=new
         Pod old-1 of=DaemonSet/web@old!
         Pod new-1 of=DaemonSet/web@new!",
        expect![[r#"
            read DaemonSet a/web old
            delete Pod a/old-1 Background: its owners are gone
            left: DaemonSet a/web
            left: Pod a/new-1 of new
        "#]],
    );
}

#[test]
fn an_owner_that_no_watch_has_shown_yet_is_one() {
    play(
        "DaemonSet web unseen
         Pod web-1 of=DaemonSet/web!",
        expect![[r#"
            read DaemonSet a/web web
            read DaemonSet a/web web
            left: DaemonSet a/web
            left: Pod a/web-1 of web
        "#]],
    );
}

#[test]
fn an_owner_in_another_namespace_is_none() {
    play(
        "DaemonSet web ns=b
         Pod web-1 of=DaemonSet/web!",
        expect![[r#"
            read DaemonSet a/web web  -> not found
            delete Pod a/web-1 Background: its owners are gone
            left: DaemonSet b/web
        "#]],
    );
}

#[test]
fn an_owner_of_another_kind_or_name_is_none() {
    play(
        "DaemonSet web
         Pod by-kind of=ConfigMap/web@web
         Pod by-name of=DaemonSet/other@web",
        expect![[r#"
            read ConfigMap a/web web  -> not found
            delete Pod a/by-kind Background: its owners are gone
            read DaemonSet a/other web  -> not found
            delete Pod a/by-name Background: its owners are gone
            left: DaemonSet a/web
        "#]],
    );
}

#[test]
fn an_owner_without_a_namespace_owns_anywhere() {
    play(
        "Node n1
         Pod mirror-1 of=Node/n1
         Pod mirror-2 ns=b of=Node/n2
         Node child of=Node/n1
         Node orphan of=Node/n2",
        expect![[r#"
            read Node n2 n2  -> not found
            delete Pod b/mirror-2 Background: its owners are gone
            delete Node orphan Background: its owners are gone
            left: Node child of n1
            left: Pod a/mirror-1 of n1
            left: Node n1
        "#]],
    );
}

#[test]
fn a_namespaced_owner_of_what_is_in_no_namespace_cannot_be_told() {
    play(
        "Node n1 of=DaemonSet/web",
        expect![[r#"
        left: Node n1 of web
    "#]],
    );
}

#[test]
fn an_owner_of_a_kind_that_is_not_served_cannot_be_told() {
    play(
        "Pod p of=Widget/w of=DaemonSet/gone",
        expect![[r#"
        left: Pod a/p of w of gone
    "#]],
    );
}

#[test]
fn of_several_owners_only_the_absent_are_dropped() {
    play(
        "DaemonSet web
         DaemonSet waits deleting finalizer=foregroundDeletion
         Pod p of=DaemonSet/web of=DaemonSet/gone of=DaemonSet/waits!",
        expect![[r#"
            read DaemonSet a/gone gone  -> not found
            disown Pod a/p gone waits: its owners are gone
            release DaemonSet a/waits from foregroundDeletion
            left: Pod a/p of web
            left: DaemonSet a/web
        "#]],
    );
}

#[test]
fn foreground_the_owner_goes_last() {
    play(
        "DaemonSet web deleting finalizer=foregroundDeletion
         Pod web-1 of=DaemonSet/web!
         Pod web-2 of=DaemonSet/web!",
        expect![[r#"
            read DaemonSet a/web web
            delete Pod a/web-1 Background: its owner is leaving, and waits for it
            delete Pod a/web-2 Background: its owner is leaving, and waits for it
            release DaemonSet a/web from foregroundDeletion
        "#]],
    );
}

#[test]
fn foreground_waits_only_for_those_that_block() {
    play(
        "DaemonSet web deleting finalizer=foregroundDeletion
         Pod slow of=DaemonSet/web finalizer=example.com/slow
         Pod quick of=DaemonSet/web!",
        expect![[r#"
            read DaemonSet a/web web
            delete Pod a/quick Background: its owner is leaving, and waits for it
            delete Pod a/slow Background: its owner is leaving, and waits for it
            release DaemonSet a/web from foregroundDeletion
            left: Pod a/slow of web deleting
        "#]],
    );
}

#[test]
fn foreground_waits_for_one_that_somebody_holds() {
    play(
        "DaemonSet web deleting finalizer=foregroundDeletion
         Pod held of=DaemonSet/web! finalizer=example.com/slow",
        expect![[r#"
            read DaemonSet a/web web
            delete Pod a/held Background: its owner is leaving, and waits for it
            left: Pod a/held of web deleting
            left: DaemonSet a/web deleting
        "#]],
    );
}

#[test]
fn foreground_goes_down_level_by_level() {
    play(
        "DaemonSet web deleting finalizer=foregroundDeletion
         Pod web-1 of=DaemonSet/web!
         ConfigMap of-web-1 of=Pod/web-1!",
        expect![[r#"
            read DaemonSet a/web web
            delete Pod a/web-1 Foreground: its owner is leaving, and waits for it
            read Pod a/web-1 web-1
            delete ConfigMap a/of-web-1 Background: its owner is leaving, and waits for it
            release Pod a/web-1 from foregroundDeletion
            release DaemonSet a/web from foregroundDeletion
        "#]],
    );
}

#[test]
fn foreground_in_a_circle_comes_to_an_end() {
    play(
        "ConfigMap one deleting finalizer=foregroundDeletion of=ConfigMap/two!
         ConfigMap two of=ConfigMap/one!",
        expect![[r#"
            read ConfigMap a/one one
            unblock the owners of ConfigMap a/two
            release ConfigMap a/one from foregroundDeletion
            read ConfigMap a/one one  -> not found
            delete ConfigMap a/two Background: its owners are gone
        "#]],
    );
}

#[test]
fn foreground_that_was_called_off_is_asked_for_before_anything_goes() {
    let mut scene = Scene::of(
        "DaemonSet web deleting finalizer=foregroundDeletion
         Pod web-1 of=DaemonSet/web!",
    );
    // Somebody has asked for orphans meanwhile, and the watch is late.
    let web = scene.server.get_mut("web").unwrap();
    (web.finalizers, web.resource_version) = (Vec::from([ORPHAN.into()]), 50);
    let shown = Event::Applied(web.clone());
    let pod = Text::from("web-1");
    let read = scene.graph.reconcile(&pod, scene.now).calls.remove(0);
    let (outcome, _) = scene.make(&read);
    scene.queue.extend(scene.graph.done(&read, outcome, scene.now));
    scene.apply(shown);
    scene.run();
    expect![[r#"
        disown Pod a/web-1 web: its owner is leaving, and lets it go
        release DaemonSet a/web from orphan
        left: Pod a/web-1
    "#]]
    .assert_eq(&scene.told());
}

#[test]
fn orphan_the_dependents_let_go_and_stay() {
    play(
        "DaemonSet web deleting finalizer=orphan finalizer=example.com/other
         DaemonSet db
         Pod web-1 of=DaemonSet/web!
         Pod web-2 of=DaemonSet/web! of=DaemonSet/db
         Pod web-3 of=DaemonSet/web! deleting finalizer=example.com/slow",
        expect![[r#"
            disown Pod a/web-1 web: its owner is leaving, and lets it go
            disown Pod a/web-2 web: its owner is leaving, and lets it go
            disown Pod a/web-3 web: its owner is leaving, and lets it go
            release DaemonSet a/web from orphan
            left: DaemonSet a/db
            left: DaemonSet a/web deleting
            left: Pod a/web-1
            left: Pod a/web-2 of db
            left: Pod a/web-3 deleting
        "#]],
    );
}

#[test]
fn orphan_waits_a_little_for_what_is_shown_late() {
    let mut scene = Scene::of("DaemonSet web deleting finalizer=orphan");
    let late = object(&["Pod", "web-1", "of=DaemonSet/web!"], 50);
    scene.server.insert(late.uid.clone(), late.clone());
    let uid = Text::from("web");
    assert_eq!(
        scene.graph.reconcile(&uid, scene.now),
        Reconcile { wake_at: Some(scene.now + ORPHANS_SHOWN_WITHIN), ..Reconcile::default() }
    );
    scene.apply(Event::Applied(late));
    scene.run();
    expect![[r#"
        disown Pod a/web-1 web: its owner is leaving, and lets it go
        release DaemonSet a/web from orphan
        left: Pod a/web-1
    "#]]
    .assert_eq(&scene.told());
}

#[test]
fn what_an_object_is_to_do_with_its_own_dependents_is_honoured() {
    play(
        "Pod keeps of=DaemonSet/gone finalizer=orphan
         ConfigMap kept of=Pod/keeps
         Pod waits of=DaemonSet/gone finalizer=foregroundDeletion
         ConfigMap first of=Pod/waits!",
        expect![[r#"
            read DaemonSet a/gone gone  -> not found
            delete Pod a/keeps Orphan: its owners are gone
            disown ConfigMap a/kept keeps: its owner is leaving, and lets it go
            delete Pod a/waits Foreground: its owners are gone
            read Pod a/waits waits
            delete ConfigMap a/first Background: its owner is leaving, and waits for it
            release Pod a/waits from foregroundDeletion
            release Pod a/keeps from orphan
            left: ConfigMap a/kept
        "#]],
    );
}

#[test]
fn a_refused_call_is_tried_again_later_each_time() {
    let mut scene = Scene::of("Pod p of=DaemonSet/gone refused=3");
    scene.run();
    expect![[r#"
        read DaemonSet a/gone gone  -> not found
        delete Pod a/p Background: its owners are gone  -> not now
        delete Pod a/p Background: its owners are gone  -> not now
        delete Pod a/p Background: its owners are gone  -> not now
        delete Pod a/p Background: its owners are gone
    "#]]
    .assert_eq(&scene.told());
    assert_eq!(scene.now, Time::from_secs(0) + Duration::from_millis(100 + 200 + 400));
}

#[test]
fn an_object_that_has_changed_is_not_deleted_on_old_news() {
    let mut scene = Scene::of("Pod p of=DaemonSet/gone");
    // It has been adopted, and the watch is late.
    let adopted = object(&["Pod", "p", "of=DaemonSet/web"], 60);
    scene.server.insert("p".into(), adopted.clone());
    scene.server.insert("web".into(), object(&["DaemonSet", "web"], 10));
    let reconcile = scene.graph.reconcile(&"p".into(), scene.now);
    let [Call::Read(_)] = &reconcile.calls[..] else { panic!("{reconcile:?}") };
    let keys = scene.graph.done(&reconcile.calls[0], Outcome::Refused(Refusal::NotFound), scene.now);
    let reconcile = keys.iter().map(|it| scene.graph.reconcile(it, scene.now)).next().unwrap();
    assert_eq!(scene.make(&reconcile.calls[0]), (Outcome::Refused(Refusal::Conflict), None));
    scene.queue.extend(scene.graph.done(&reconcile.calls[0], Outcome::Refused(Refusal::Conflict), scene.now));
    scene.apply(Event::Applied(adopted));
    scene.run();
    expect![[r#"
        read DaemonSet a/web web
        read DaemonSet a/web web
        left: Pod a/p of web
        left: DaemonSet a/web
    "#]]
    .assert_eq(&scene.told());
}

#[test]
fn an_object_that_is_gone_already_is_not_asked_for_again_and_again() {
    play(
        "Pod p of=DaemonSet/gone stale",
        expect![[r#"
            read DaemonSet a/gone gone  -> not found
            delete Pod a/p Background: its owners are gone  -> not found
            read DaemonSet a/gone gone  -> not found
            delete Pod a/p Background: its owners are gone  -> not found
        "#]],
    );
}

#[test]
fn nothing_is_decided_before_every_kind_was_listed() {
    let mut graph = Graph::new(resources(), resources());
    for resource in resources().into_iter().take(3) {
        let pods = [object(&["Pod", "p", "of=DaemonSet/gone"], 1)];
        let objects = pods.into_iter().filter(|it| it.resource == resource).collect();
        assert_eq!(graph.apply(Event::Listed { resource, objects }), BTreeSet::new());
        assert_eq!(graph.reconcile(&"p".into(), Time::from_secs(1)), Reconcile::default());
    }
    let last = Event::Listed { resource: resources()[3].clone(), objects: Vec::new() };
    assert_eq!(graph.apply(last), BTreeSet::from(["p".into()]));
}

#[test]
fn objects_missing_from_a_list_are_removed() {
    let mut scene = Scene::of(
        "DaemonSet web
         Pod web-1 of=DaemonSet/web",
    );
    scene.server.remove("web");
    let sets = resources()[3].clone();
    scene.apply(Event::Listed { resource: sets, objects: Vec::new() });
    scene.run();
    expect![[r#"
        read DaemonSet a/web web  -> not found
        delete Pod a/web-1 Background: its owners are gone
    "#]]
    .assert_eq(&scene.told());
}

#[test]
fn a_change_that_says_nothing_of_owners_is_nothing_to_look_at() {
    let mut scene = Scene::of(
        "DaemonSet web
         Pod web-1 of=DaemonSet/web",
    );
    scene.run();
    let touched = |line: &[&str]| object(line, 90);
    assert_eq!(scene.graph.apply(Event::Applied(touched(&["DaemonSet", "web"]))), BTreeSet::new());
    assert_eq!(
        scene.graph.apply(Event::Applied(touched(&["Pod", "web-1", "of=DaemonSet/web"]))),
        BTreeSet::new()
    );
}

#[test]
fn api_requests_of_calls() {
    let object = Arc::new(object(
        &["DaemonSet", "web", "uid=u", "of=Node/n1!", "of=Node/n2", "finalizer=orphan", "finalizer=mine"],
        7,
    ));
    let pod = Arc::new(self::object(&["Pod", "p", "uid=u"], 7));
    let why = Why::OwnersAreGone;
    let resource = resources()[1].clone();
    let calls = [
        Call::Read(Identity { resource, key: ObjectKey::new("", "../a b"), uid: "n1".into() }),
        Call::Delete { object: object.clone(), propagation: Propagation::Foreground, why: why.clone() },
        Call::Disown { object: object.clone(), owners: Vec::from(["n1".into(), "n2".into()]), why },
        Call::Unblock { object: object.clone() },
        Call::RemoveFinalizer { object, finalizer: ORPHAN },
        Call::Fail { object: pod.clone(), why: Why::NodeIsGone, at: Time::from_secs(5) },
        Call::Fail { object: pod.clone(), why: Why::NeverBound, at: Time::from_secs(5) },
        Call::Remove { object: pod, why: Why::NeverBound },
    ];
    let mut said = String::new();
    for call in &calls {
        let crate::controller::Request { verb, path, body, .. } = request(call);
        let body = body.map(|it| it.to_string()).unwrap_or_default();
        said += &format!("{} {path} {body}\n", verb.as_str());
    }
    expect![[r#"
        get /api/v1/nodes/..%2Fa%20b 
        delete /apis/apps/v1/namespaces/a/daemonsets/web {"apiVersion":"v1","kind":"DeleteOptions","preconditions":{"resourceVersion":"7","uid":"u"},"propagationPolicy":"Foreground"}
        patch /apis/apps/v1/namespaces/a/daemonsets/web {"metadata":{"ownerReferences":[{"$patch":"delete","uid":"n1"},{"$patch":"delete","uid":"n2"}],"uid":"u"}}
        patch /apis/apps/v1/namespaces/a/daemonsets/web {"metadata":{"ownerReferences":[{"blockOwnerDeletion":false,"uid":"n1"}],"uid":"u"}}
        patch /apis/apps/v1/namespaces/a/daemonsets/web {"metadata":{"finalizers":["mine"],"resourceVersion":"7","uid":"u"}}
        patch /api/v1/namespaces/a/pods/p/status {"metadata":{"uid":"u"},"status":{"conditions":[{"lastTransitionTime":"1970-01-01T00:00:05Z","message":"PodGC: node no longer exists","reason":"DeletionByPodGC","status":"True","type":"DisruptionTarget"}],"phase":"Failed"}}
        patch /api/v1/namespaces/a/pods/p/status {"metadata":{"uid":"u"},"status":{"phase":"Failed"}}
        delete /api/v1/namespaces/a/pods/p {"apiVersion":"v1","gracePeriodSeconds":0,"kind":"DeleteOptions","preconditions":{"uid":"u"}}
    "#]].assert_eq(&said);
}

/// The same, for as long as a missing node is believed to come back, and longer.
fn play_long(world: &str, story: Expect) {
    let mut scene = Scene::of(world);
    scene.until = Time::from_secs(55);
    scene.run();
    scene.story += &format!("at {} s\n", scene.now.as_micros() / 1_000_000);
    story.assert_eq(&scene.told());
}

#[test]
fn pods_of_a_node_that_is_gone_go_after_a_while_and_it_is_asked_for_first() {
    play_long(
        "Node n1
         Pod here on=n1
         Pod gone-1 on=n2
         Pod gone-2 on=n2 ended=1
         Pod gone-3 on=n3
         Pod nowhere",
        expect![[r#"
            read Node n2  -> not found
            fail Pod a/gone-1: its node is gone
            remove Pod a/gone-1: its node is gone
            remove Pod a/gone-2: its node is gone
            read Node n3  -> not found
            fail Pod a/gone-3: its node is gone
            remove Pod a/gone-3: its node is gone
            at 40 s
            left: Pod a/here
            left: Node n1
            left: Pod a/nowhere
        "#]],
    );
}

#[test]
fn pods_of_a_node_that_no_watch_shows_stay() {
    play_long(
        "Node n1 unseen
         Pod here on=n1",
        expect![[r#"
            read Node n1
            read Node n1
            at 50 s
            left: Pod a/here
            left: Node n1
        "#]],
    );
}

#[test]
fn pods_of_a_node_that_comes_back_stay() {
    let mut scene = Scene::of("Pod here on=n1");
    scene.run();
    scene.now = Time::from_secs(30);
    let node = object(&["Node", "n1"], 70);
    scene.server.insert("n1".into(), node.clone());
    scene.apply(Event::Applied(node));
    scene.until = Time::from_secs(100);
    scene.run();
    expect![[r#"
        left: Pod a/here
        left: Node n1
    "#]]
    .assert_eq(&scene.told());
}

#[test]
fn pods_that_are_deleted_before_they_are_bound_go() {
    play(
        "Pod waits
         Pod leaves deleting graceful finalizer=example.com/slow
         Pod held deleting finalizer=example.com/slow",
        expect![[r#"
            fail Pod a/leaves: deleted before it was bound
            remove Pod a/leaves: deleted before it was bound
            left: Pod a/held deleting
            left: Pod a/leaves deleting
            left: Pod a/waits
        "#]],
    );
}

#[test]
fn pods_that_are_deleted_on_a_node_out_of_service_go() {
    play(
        "Node n1 out-of-service
         Node n2
         Pod stays on=n1
         Pod leaves on=n1 deleting graceful
         Pod is-stopped on=n2 deleting graceful",
        expect![[r#"
            fail Pod a/leaves: deleted on a node that is out of service
            left: Pod a/is-stopped deleting
            left: Node n1
            left: Node n2
            left: Pod a/stays
        "#]],
    );
}

#[test]
fn of_the_pods_that_have_ended_the_oldest_go_and_evicted_ones_before() {
    let mut scene = Scene::of("Node n1");
    scene.graph.pods.ended_max = 2;
    for line in [
        "Pod old on=n1 ended=1",
        "Pod older on=n1 ended=0",
        "Pod evicted on=n1 ended=9 evicted",
        "Pod new on=n1 ended=5",
        "Pod newer on=n1 ended=6",
        "Pod runs on=n1",
    ] {
        let words: Vec<&str> = line.split_whitespace().collect();
        let pod = object(&words, 40);
        scene.server.insert(pod.uid.clone(), pod.clone());
        scene.apply(Event::Applied(pod));
    }
    scene.run();
    expect![[r#"
        remove Pod a/evicted: ended, as too many others have since
        remove Pod a/old: ended, as too many others have since
        remove Pod a/older: ended, as too many others have since
        left: Node n1
        left: Pod a/new
        left: Pod a/newer
        left: Pod a/runs
    "#]]
    .assert_eq(&scene.told());
}

#[test]
fn pods_of_a_node_that_may_come_back_go_with_their_owners() {
    play(
        "Pod gone on=n1 of=DaemonSet/web!",
        expect![[r#"
        read DaemonSet a/web web  -> not found
        delete Pod a/gone Background: its owners are gone
    "#]],
    );
}

#[test]
fn orphan_whoever_names_the_owner_lets_go_be_the_name_right_or_wrong() {
    play(
        "DaemonSet web deleting finalizer=orphan
         Pod wrong of=DaemonSet/other@web
         Pod elsewhere ns=b of=DaemonSet/web",
        expect![[r#"
            disown Pod b/elsewhere web: its owner is leaving, and lets it go
            disown Pod a/wrong web: its owner is leaving, and lets it go
            release DaemonSet a/web from orphan
            left: Pod b/elsewhere
            left: Pod a/wrong
        "#]],
    );
}

/// What somebody does to a made-up world.
#[derive(Clone, Debug)]
enum Step {
    /// A user deletes an object.
    Delete { at: usize, propagation: Propagation },
    /// The watches show what has happened so far.
    Show,
    /// The collector does what it has to do.
    Run,
}

fn propagation() -> impl Strategy<Value = Propagation> {
    prop_oneof![Just(Propagation::Background), Just(Propagation::Foreground), Just(Propagation::Orphan)]
}

/// A line of a world for each object. Owners may be any of them, one that is not there, or one under a wrong name.
fn worlds() -> impl Strategy<Value = Vec<String>> {
    let owner = (0..8_usize, any::<bool>(), 0..6_u8);
    let one = (0..SERVED.len(), 0..2_u8, vec(owner, 0..3), 0..8_u8);
    vec(one, 1..7).prop_map(|all| {
        let kinds: Vec<&str> = all.iter().map(|(kind, ..)| SERVED[*kind].1).collect();
        let line = |(at, (kind, namespace, owners, finalizer)): (usize, &(usize, u8, Vec<_>, u8))| {
            let mut line = format!("{} o{at}", SERVED[*kind].1);
            if *namespace == 1 {
                line += " ns=b";
            }
            for (of, blocks, wrong) in owners {
                let kind = kinds.get(*of).copied().unwrap_or("ConfigMap");
                let name = if *wrong == 0 { "other" } else { &format!("o{of}") };
                line += &format!(" of={kind}/{name}@o{of}{}", if *blocks { "!" } else { "" });
            }
            line += match finalizer {
                0 => " finalizer=orphan",
                1 => " finalizer=foregroundDeletion",
                2 => " unseen",
                _ => "",
            };
            line
        };
        all.iter().enumerate().map(line).collect()
    })
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let delete = (0..7_usize, propagation()).prop_map(|(at, propagation)| Step::Delete { at, propagation });
    vec(prop_oneof![3 => delete, 1 => Just(Step::Show), 2 => Just(Step::Run)], 0..8)
}

proptest! {
    /// However late the watches are: nothing goes that has an owner, and in the end nothing stays that has none.
    #[test]
    fn nothing_goes_too_early_and_nothing_stays_too_long(world in worlds(), steps in steps()) {
        let mut scene = Scene::of(&world.join("\n"));
        for step in steps {
            match step {
                Step::Delete { at, propagation } => {
                    let Some(object) = scene.server.get(format!("o{at}").as_str()) else { continue };
                    let call = Call::Delete { object: Arc::new(object.clone()), propagation, why: Why::OwnersAreGone };
                    scene.late.get_or_insert_default();
                    scene.make(&call).1.into_iter().for_each(|it| scene.happens(it));
                }
                Step::Show => scene.show(),
                Step::Run => {
                    scene.until = scene.now + Duration::from_secs(1);
                    scene.run();
                }
            }
        }
        scene.show();
        // Those that no watch had shown at all.
        let all: Vec<Object> = scene.server.values().cloned().collect();
        all.into_iter().for_each(|it| scene.apply(Event::Applied(it)));
        scene.until = scene.now + Duration::from_secs(20);
        scene.run();
        for object in scene.server.values() {
            let dependents = scene.server.values().filter(|it| it.blocks(&object.uid)).count();
            let lost = !object.owners.is_empty()
                && object.owners.iter().all(|it| scene.owner(object, it) == Some(Standing::Absent));
            prop_assert!(!lost || object.deleting, "{object} stays without an owner:\n{}", scene.told());
            prop_assert!(object.standing() != Standing::Orphaning, "{object} is held:\n{}", scene.told());
            prop_assert!(
                object.standing() != Standing::Waiting || 0 < dependents,
                "{object} waits for nobody:\n{}",
                scene.told()
            );
        }
    }
}

impl Scene {
    /// The server takes the delete only of the version that was looked at.
    fn assert_unowned(&self, object: &Object) {
        let now = self.server.get(&object.uid).filter(|it| it.resource_version == object.resource_version);
        for owner in now.iter().flat_map(|it| &it.owners) {
            let standing = self.owner(object, owner);
            assert_ne!(standing, Some(Standing::Solid), "{object} has an owner:\n{}", self.told());
        }
    }

    /// What the server itself knows of an owner. `None`: it cannot be told.
    fn owner(&self, object: &Object, owner: &Owner) -> Option<Standing> {
        let identity = self.graph.identity(object, owner)?;
        let is_it = |it: &&Object| it.resource == identity.resource && it.key == identity.key;
        let found = self.server.get(&owner.uid).filter(is_it);
        Some(found.map_or(Standing::Absent, Object::standing))
    }
}
