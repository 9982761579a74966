//! A world in, a plan out, both as text. Each module holds the tests of one rule, named for what upstream asserts.

use expect_test::Expect;
use muster_engine::cache::{Cache, Event};
use muster_engine::facts::{self, Key, Kind, Shared, Watched};
use muster_engine::placement::Verdict;
use muster_engine::plan::{Plan, Settings};
use muster_engine::scenario::{self, World};
use muster_engine::time::Time;

mod history;
mod placement;
mod rollout;
mod roster;
mod status;
mod surge;

/// The plan for the only set of a world. Its nodes' revision objects are part of the world.
fn check(world: &str, plan: Expect) {
    plan.assert_eq(&text(&look(world)));
}

/// What is true of each node.
fn explained(world: &str, lines: Expect) {
    let (mut cache, key, now) = cached(world);
    let _ = cache.look(&key, now);
    let mut out = String::new();
    for it in cache.explain(&key) {
        let verdict = match it.verdict {
            Some(Verdict::Run) => "run",
            Some(Verdict::Keep(_)) => "keep",
            Some(Verdict::Leave(_)) => "leave",
            None => "gone",
        };
        out += &format!("{}  {verdict}  {}  {}\n", it.node, it.pod.as_deref().unwrap_or("-"), it.why);
    }
    lines.assert_eq(&out);
}

/// The status that would be written.
fn check_status(world: &str, lines: Expect) {
    let plan = look(world);
    let mut out = String::new();
    match &plan.status {
        None => out += "as it is\n",
        Some(status) => {
            let it = status.counts;
            out += &format!(
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
                out +=
                    &format!("{}={} {}: {}\n", it.kind.as_str(), it.status.as_str(), it.reason, it.message);
            }
        }
    }
    lines.assert_eq(&out);
}

fn text(plan: &Plan) -> String {
    let mut out = plan.to_string();
    if out.is_empty() {
        out += "nothing\n";
    }
    if let Some(at) = plan.wake_at {
        let second = at.as_micros() / 1_000_000 - scenario::EPOCH_S;
        out += &format!("wake at {second}\n");
    }
    out
}

fn look(world: &str) -> Plan {
    let (mut cache, key, now) = cached(world);
    cache.look(&key, now).expect("the set is there")
}

fn cached(world: &str) -> (Cache, Key, Time) {
    let world = scenario::parse(world).unwrap_or_else(|it| panic!("{it}"));
    let now = Time::from_secs(scenario::EPOCH_S + world.now);
    let cache = cache_of(&world);
    let key = cache.keys().next().expect("a set").clone();
    (cache, key, now)
}

fn cache_of(world: &World) -> Cache {
    let mut shared = Shared::default();
    let mut cache = Cache::new(Settings::default());
    let kinds = [
        (Kind::Sets, &world.sets),
        (Kind::Nodes, &world.nodes),
        (Kind::Pods, &world.pods),
        (Kind::Revisions, &world.revisions),
    ];
    for (kind, objects) in kinds {
        let items = objects.iter().map(|object| {
            let line = serde_json::json!({"type": "ADDED", "object": object}).to_string();
            facts::watched(kind, line.as_bytes(), &mut shared).expect("a well-formed object")
        });
        let items: Vec<Watched> = items.collect();
        let _ = cache.apply(Event::Listed { kind, items, resource_version: 1_000 });
    }
    cache
}
