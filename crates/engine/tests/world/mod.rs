//! A world on its way through the engine: what tests of every rule share.
#![allow(dead_code, reason = "each test binary uses its part")]

use muster_api::interner::Interner;
use muster_api::object_key::ObjectKey;
use muster_api::time::Time;
use muster_engine::controller::CallError;
use muster_engine::controller::Event;
use muster_engine::daemonset::execution::{Execution, ExecutionReport, NextStep, PlannedCall, Response};
use muster_engine::daemonset::facts::{self, Kind, Set, WatchedObject};
use muster_engine::daemonset::manifest;
use muster_engine::daemonset::plan::{Plan, Settings};
use muster_engine::daemonset::planner::Planner;
use muster_engine::scenario::{self, World};
use serde_json::{Value, json};

/// A cache that was told a world, and the time there.
pub(crate) struct Scene {
    pub(crate) planner: Planner,
    pub(crate) now: Time,
    pub(crate) shared: Interner,
    /// The newest resource version there is.
    listed: u64,
}

impl Scene {
    pub(crate) fn of(world: &str) -> Self {
        Self::from(&parse(world), Settings::default())
    }

    pub(crate) fn from(world: &World, settings: Settings) -> Self {
        let mut scene = Self {
            planner: Planner::new(settings),
            now: Time::default(),
            shared: Interner::default(),
            listed: 1_000,
        };
        scene.list(world);
        scene
    }

    /// The world has become this one, and the cache has seen it.
    pub(crate) fn then(&mut self, world: &str) -> Vec<ObjectKey> {
        self.list(&parse(world))
    }

    pub(crate) fn list(&mut self, world: &World) -> Vec<ObjectKey> {
        self.now = at(world.now);
        self.listed += 1;
        let mut keys = Vec::new();
        for (kind, objects) in kinds(world) {
            let items: Vec<WatchedObject> = objects.iter().map(|it| self.read(kind, "ADDED", it)).collect();
            let listed = Event::Listed { kind: kind.index(), facts: items, resource_version: self.listed };
            keys.extend(self.planner.apply(listed));
        }
        keys.sort();
        keys.dedup();
        keys
    }

    /// One event of a watch, newer than all before.
    pub(crate) fn event(&mut self, kind: Kind, what: &str, object: &Value) -> Vec<ObjectKey> {
        let said = object["metadata"]["resourceVersion"].as_str().and_then(|it| it.parse().ok());
        self.listed = said.unwrap_or(0).max(self.listed + 1);
        let mut object = object.clone();
        object["metadata"]["resourceVersion"] = self.listed.to_string().into();
        let watched = self.read(kind, what, &object);
        self.planner.apply(watched.into_event())
    }

    fn read(&mut self, kind: Kind, what: &str, object: &Value) -> WatchedObject {
        let line = json!({"type": what, "object": object}).to_string();
        facts::decode_watch_event(kind, line.as_bytes(), &mut self.shared)
            .expect("a well-formed object")
            .into_fact()
            .expect("a fact")
    }

    pub(crate) fn key(&self) -> ObjectKey {
        self.planner.keys().next().expect("a set").clone()
    }

    pub(crate) fn reconcile(&mut self) -> Plan {
        let key = self.key();
        self.planner.reconcile(&key, self.now).expect("the set is there")
    }

    pub(crate) fn reconcile_at(&mut self, second: i64) -> Plan {
        self.now = at(second);
        self.reconcile()
    }

    /// Carries a plan out and reports it; gives back the calls, one a line.
    pub(crate) fn act(&mut self, plan: Plan, answer: impl FnMut(&PlannedCall) -> Response) -> String {
        let key = plan.set.key.clone();
        let (calls, report) = carry_out(plan, answer);
        self.planner.apply_report(&key, &report, self.now);
        calls
    }
}

/// Makes every call of a plan, in order; one that failed says so.
pub(crate) fn carry_out(
    plan: Plan,
    mut answer: impl FnMut(&PlannedCall) -> Response,
) -> (String, ExecutionReport) {
    let mut calls = String::new();
    let set = plan.set.clone();
    let mut act = Execution::new(plan);
    loop {
        match act.next() {
            NextStep::Done => return (calls, act.finish()),
            NextStep::Wait => unreachable!("every call is answered at once"),
            NextStep::Call(call) => {
                let outcome = answer(&call);
                calls += &said(&set, &call);
                if let Response::Refused(refusal) = &outcome {
                    calls += &format!("  refused: {refusal}");
                }
                calls.push('\n');
                act.apply_response(&call, outcome);
            }
        }
    }
}

/// `create pods  on a`
pub(crate) fn said(set: &Set, call: &PlannedCall) -> String {
    let (verb, target) = (manifest::call_verb(call), manifest::call_target(set, call));
    let subresource = target.subresource.map_or(String::new(), |it| format!("/{it}"));
    let what = match call {
        PlannedCall::CreatePod { node, .. } => format!("on {node}"),
        _ => target.name.map_or(String::new(), |it| it.to_string()),
    };
    format!("{} {}{subresource} {what}", verb.as_str(), target.kind.plural()).trim_end().to_owned()
}

/// Everything succeeds, at this resource version.
pub(crate) fn granted(resource_version: u64) -> impl FnMut(&PlannedCall) -> Response {
    move |call| match call {
        PlannedCall::DeletePod { .. } | PlannedCall::EvictPod { .. } | PlannedCall::DeleteRevision { .. } => {
            Response::Deleted
        }
        PlannedCall::ListPods => Response::Pods(Vec::new()),
        PlannedCall::ReadSet | PlannedCall::ReadRevision { .. } => Response::Refused(CallError::NotFound),
        _ => Response::Wrote { name: "made".into(), resource_version },
    }
}

pub(crate) fn parse(world: &str) -> World {
    scenario::parse(world).unwrap_or_else(|it| panic!("{it}"))
}

pub(crate) fn kinds(world: &World) -> [(Kind, &Vec<Value>); 8] {
    static NONE: Vec<Value> = Vec::new();
    [
        (Kind::Sets, &world.sets),
        (Kind::Nodes, &world.nodes),
        (Kind::Pods, &world.pods),
        (Kind::Revisions, &world.revisions),
        (Kind::Policies, &NONE),
        (Kind::ClusterPolicies, &NONE),
        (Kind::Rollouts, &NONE),
        (Kind::Namespaces, &NONE),
    ]
}

/// A scenario's second.
pub(crate) fn at(second: i64) -> Time {
    Time::from_secs(scenario::EPOCH_S + second)
}

pub(crate) fn second(time: Time) -> i64 {
    time.as_micros().div_euclid(1_000_000) - scenario::EPOCH_S
}

/// The plan, one line per action.
pub(crate) fn text(plan: &Plan) -> String {
    let mut out = plan.to_string();
    if out.is_empty() {
        out += "nothing\n";
    }
    if let Some(at) = plan.wake_at {
        out += &format!("wake at {}\n", second(at));
    }
    out
}

/// `line` once for each word of `names`, which it says as `$`.
pub(crate) fn each(names: &str, line: &str) -> String {
    names.split_whitespace().map(|name| line.replace('$', name) + "\n").collect()
}

/// `prefix1 … prefixN`, with leading zeros.
pub(crate) fn names(prefix: &str, count: usize) -> String {
    let width = count.to_string().len();
    (1..=count).map(|it| format!("{prefix}{it:0width$} ")).collect()
}

/// The status of a plan, one line for the counts and one for each condition.
pub(crate) fn status_text(plan: &Plan) -> String {
    let Some(status) = &plan.status else { return "as it is\n".to_owned() };
    let it = status.counts;
    let mut out = format!(
        "desired={} current={} ready={} updated={} available={} unavailable={} misscheduled={} observed={}\n",
        it.desired,
        it.current,
        it.ready,
        it.updated,
        it.available,
        it.unavailable,
        it.misscheduled,
        status.observed_generation
    );
    for it in &status.conditions {
        let since = it.since.map_or(String::new(), |it| format!(" since {}", second(it)));
        out += &format!("{}={}{since} {}: {}\n", it.kind.as_str(), it.status.as_str(), it.reason, it.message);
    }
    out
}
