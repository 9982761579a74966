//! DaemonSets of all shapes, with their revisions, pods and nodes, as kube-controller-manager v1.36.4 left them on a
//! kube-apiserver of that version: what it recorded is what we would record, and there is nothing left for us to do.
//!
//! `tests/takeover` has a file for each set: the set, its revisions by number, its pods. One object a line, in the API
//! server's own bytes but for `managedFields`. `v1.33` has their templates as that version spells them, and the data of the
//! revisions that it makes of them: it also writes the time of a template that was never made, as `null`.

use std::fs;
use std::path::PathBuf;

use expect_test::expect;
use muster_api::interner::Interner;
use muster_api::object_key::ObjectKey;
use muster_api::time::Time;
use muster_engine::controller::Event;
use muster_engine::daemonset::facts::{self, Kind, StatusCounts, WatchedObject};
use muster_engine::daemonset::manifest::{self, Binding, Owner};
use muster_engine::daemonset::plan::{Plan, Settings};
use muster_engine::daemonset::planner::Planner;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// When the world was recorded.
const NOW: &str = "2026-11-16T03:18:34Z";

struct Recorded {
    name: String,
    set: String,
    revisions: Vec<String>,
    pods: Vec<String>,
}

fn lines(file: &str) -> Vec<String> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/takeover").join(file);
    fs::read_to_string(path).expect("a recorded world").lines().map(str::to_owned).collect()
}

fn recorded() -> Vec<Recorded> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/takeover");
    let files = fs::read_dir(folder).expect("the recorded worlds").map(|it| it.expect("a file").file_name());
    let mut names: Vec<String> = files
        .filter_map(|it| Some(it.to_str()?.strip_suffix(".jsonl")?.to_owned()))
        .filter(|it| it != "nodes")
        .collect();
    names.sort();
    let read = |name: String| {
        let mut lines = lines(&format!("{name}.jsonl")).into_iter();
        let set = lines.next().expect("a set");
        let (revisions, pods) = lines.partition(|it| it.contains(r#""data":{"#));
        Recorded { name, set, revisions, pods }
    };
    names.into_iter().map(read).collect()
}

fn value(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

/// What is planned for each set of the recorded world.
fn plans(settings: Settings) -> Vec<(String, Plan)> {
    plans_of(recorded(), settings)
}

fn plans_of(all: Vec<Recorded>, settings: Settings) -> Vec<(String, Plan)> {
    let mut planner = Planner::new(settings);
    let mut shared = Interner::default();
    let mut list = |kind, objects: Vec<&String>| {
        let item = |it: &String| {
            let line = format!(r#"{{"type":"ADDED","object":{it}}}"#);
            facts::decode_watch_event(kind, line.as_bytes(), &mut shared)
                .expect("an object")
                .into_fact()
                .expect("a fact")
        };
        let items: Vec<WatchedObject> = objects.into_iter().map(item).collect();
        let _ =
            planner.apply(Event::Listed { kind: kind.index(), facts: items, resource_version: 1_000_000 });
    };
    list(Kind::Sets, all.iter().map(|it| &it.set).collect());
    list(Kind::Nodes, lines("nodes.jsonl").iter().collect());
    list(Kind::Pods, all.iter().flat_map(|it| &it.pods).collect());
    list(Kind::Revisions, all.iter().flat_map(|it| &it.revisions).collect());
    Kind::OPTIONAL.into_iter().for_each(|kind| list(kind, Vec::new()));
    let now = Time::parse(NOW).expect("a time");
    let mut look = |name: String| {
        let plan =
            planner.reconcile(&ObjectKey::new("shapes", name.as_str()), now).expect("a set that is known");
        (name, plan)
    };
    all.into_iter().map(|it| look(it.name)).collect()
}

fn counted(it: &StatusCounts) -> String {
    format!(
        "desired {} current {} ready {} updated {} available {} unavailable {} misscheduled {}",
        it.desired, it.current, it.ready, it.updated, it.available, it.unavailable, it.misscheduled
    )
}

/// What would be written for each set, where that is anything.
fn said(plans: &[(String, Plan)]) -> String {
    let mut out = String::new();
    for (name, plan) in plans.iter().filter(|(_, plan)| !plan.is_idle()) {
        out += &format!("{name}\n{plan}");
        if let Some(status) = &plan.status {
            let (before, after) = (counted(&plan.set.status.counts), counted(&status.counts));
            out += &format!("  {before}\n  {after}\n");
        }
    }
    out
}

#[test]
fn a_takeover_of_a_converged_cluster_writes_only_wrong_statuses() {
    // No set is looked at by upstream when a node gets a taint that keeps new pods away; this one was not touched since.
    let plans = plans(Settings { conditions: false, ..Settings::default() });
    assert_eq!(plans.len(), 51);
    expect![[r#"
        misscheduled
          desired 5 current 5 ready 5 updated 5 available 5 unavailable 0 misscheduled 0
          desired 4 current 4 ready 4 updated 4 available 4 unavailable 0 misscheduled 1
    "#]]
    .assert_eq(&said(&plans));
}

#[test]
fn conditions_are_all_that_is_added() {
    for (name, mut plan) in plans(Settings::default()) {
        let status = plan.status.take().expect("conditions");
        assert!(plan.is_idle(), "{name}: {plan}");
        assert!(!status.conditions.is_empty(), "{name}");
        if name != "misscheduled" {
            assert_eq!(counted(&status.counts), counted(&plan.set.status.counts), "{name}");
        }
    }
}

#[test]
fn a_revision_equals_upstreams_byte_for_byte() {
    #[derive(Deserialize)]
    struct Revision<'a> {
        #[serde(borrow)]
        data: &'a RawValue,
        revision: i64,
    }
    for it in recorded() {
        let theirs: Vec<Revision<'_>> =
            it.revisions.iter().map(|it| serde_json::from_str(it).expect("a revision")).collect();
        let newest = theirs.iter().max_by_key(|it| it.revision).expect("a history");
        let ours = manifest::revision_data(&value(&it.set)["spec"]["template"]);
        assert_eq!(ours, newest.data.get(), "{}", it.name);
    }
}

#[test]
fn what_an_older_server_writes_is_written_there_and_restarts_nothing() {
    #[derive(Deserialize)]
    struct Spelt<'a> {
        name: String,
        template: Value,
        #[serde(borrow)]
        data: &'a RawValue,
    }
    let mut all = recorded();
    // It has fields that v1.33 does not know, and would drop.
    all.retain(|it| it.name != "new-fields");
    for line in lines("v1.33/templates.jsonl") {
        let older: Spelt<'_> = serde_json::from_str(&line).expect("a template");
        assert_eq!(manifest::revision_data(&older.template), older.data.get(), "{}", older.name);
        if let Some(it) = all.iter_mut().find(|it| it.name == older.name) {
            let mut set = value(&it.set);
            set["spec"]["template"] = older.template;
            it.set = set.to_string();
        }
    }
    // Two were rolled back: what they went back to was made at another template generation, so they are recorded anew,
    // with the label of their pods.
    expect![[r#"
        drain-percent
        create revision drain-percent-575bb5589f number 4
        history
        create revision history-5cbc8687dd number 6
        misscheduled
          desired 5 current 5 ready 5 updated 5 available 5 unavailable 0 misscheduled 0
          desired 4 current 4 ready 4 updated 4 available 4 unavailable 0 misscheduled 1
    "#]]
    .assert_eq(&said(&plans_of(all, Settings { conditions: false, ..Settings::default() })));
}

#[test]
fn a_revision_is_labelled_annotated_and_owned_as_upstream_does_it() {
    for it in recorded() {
        let set = value(&it.set);
        let newest = it.revisions.iter().map(|it| value(it)).max_by_key(|it| it["revision"].as_i64());
        let newest = newest.expect("a history");
        let text = |at: &Value| at.as_str().expect("text").to_owned();
        let hash = text(&newest["metadata"]["labels"]["controller-revision-hash"]);
        let (name, uid) = (text(&set["metadata"]["name"]), text(&set["metadata"]["uid"]));
        let owner = Owner { namespace: "shapes", name: &name, uid: &uid };
        let template = &set["spec"]["template"];
        let ours = manifest::controller_revision(owner, &Value::Null, template, &hash, 1);
        for field in ["name", "namespace", "labels", "ownerReferences"] {
            assert_eq!(ours["metadata"][field], newest["metadata"][field], "{name}: {field}");
        }
    }
}

#[test]
fn a_pod_equals_upstreams_except_for_server_set_fields() {
    for it in recorded() {
        let set = value(&it.set);
        let template = &set["spec"]["template"];
        let newest = it.revisions.iter().map(|it| value(it)).max_by_key(|it| it["revision"].as_i64());
        let current = newest.expect("a history")["metadata"]["labels"][manifest::REVISION_HASH_LABEL].clone();
        let text = |at: &Value| at.as_str().expect("text").to_owned();
        let (name, uid) = (text(&set["metadata"]["name"]), text(&set["metadata"]["uid"]));
        let owner = Owner { namespace: "shapes", name: &name, uid: &uid };
        for raw in &it.pods {
            let theirs = value(raw);
            let labels = &theirs["metadata"]["labels"];
            if labels[manifest::REVISION_HASH_LABEL] != current
                || theirs["metadata"]["deletionTimestamp"].is_string()
            {
                continue;
            }
            let pod = facts::decode_pod(raw.as_bytes(), &mut Interner::default())
                .expect("a pod")
                .expect("of a set");
            let node = pod.target.expect("a node");
            let generation =
                labels[manifest::TEMPLATE_GENERATION_LABEL].as_str().and_then(|it| it.parse().ok());
            let hash = text(&current);
            let ours = manifest::daemon_pod(owner, template, &node, &hash, generation, Binding::Scheduler);
            let mut missing = Vec::new();
            lacks(&ours["metadata"], &theirs["metadata"], "metadata", &mut missing);
            lacks(&ours["spec"], &theirs["spec"], "spec", &mut missing);
            assert!(missing.is_empty(), "{}: {missing:#?}", theirs["metadata"]["name"]);
        }
    }
}

/// Which fields of `ours` are not in `theirs`, or other ones.
fn lacks(ours: &Value, theirs: &Value, at: &str, missing: &mut Vec<String>) {
    match (ours, theirs) {
        (Value::Object(ours), Value::Object(theirs)) => {
            for (key, ours) in ours {
                lacks(ours, theirs.get(key).unwrap_or(&Value::Null), &format!("{at}.{key}"), missing);
            }
        }
        // The server appends: a token's volume, and where it is mounted.
        (Value::Array(ours), Value::Array(theirs)) if ours.len() <= theirs.len() => {
            for (number, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
                lacks(ours, theirs, &format!("{at}[{number}]"), missing);
            }
        }
        _ if ours == theirs => {}
        _ => missing.push(format!("{at}: {ours} is {theirs}")),
    }
}
