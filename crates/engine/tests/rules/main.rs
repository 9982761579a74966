//! A world in, a plan out, both as text. Each module holds the tests of one rule, named for what upstream asserts or for
//! where Muster differs.

use expect_test::Expect;
use muster_engine::daemonset::placement::Verdict;
use muster_engine::daemonset::plan::Settings;
use muster_engine::scenario::World;

mod claims;
mod history;
mod placement;
mod rollout;
mod roster;
mod status;
mod surge;
mod takeover;
#[path = "../world/mod.rs"]
mod world;

use world::{Scene, parse, status_text, text};

/// The plan for the only set of a world. Its revision objects are part of the world.
fn check(world: &str, plan: Expect) {
    plan.assert_eq(&text(&Scene::of(world).reconcile()));
}

/// The same for a world that the scenario language has no words for.
fn check_changed(world: &str, change: impl Fn(&mut World), plan: Expect) {
    plan.assert_eq(&text(&changed(world, change).reconcile()));
}

fn changed(world: &str, change: impl Fn(&mut World)) -> Scene {
    let mut world = parse(world);
    change(&mut world);
    Scene::from(&world, Settings::default())
}

/// What is true of each node.
fn explained(world: &str, lines: Expect) {
    let mut scene = Scene::of(world);
    let _ = scene.reconcile();
    lines.assert_eq(&explanation(&scene));
}

fn explanation(scene: &Scene) -> String {
    let mut out = String::new();
    for it in scene.planner.explain(&scene.key()) {
        let verdict = match it.verdict {
            Some(Verdict::Run) => "run",
            Some(Verdict::Keep(_)) => "keep",
            Some(Verdict::Leave(_)) => "leave",
            None => "gone",
        };
        out += &format!("{}  {verdict}  {}  {}\n", it.node, it.pod.as_deref().unwrap_or("-"), it.why);
    }
    out
}

/// The status that would be written.
fn check_status(world: &str, lines: Expect) {
    lines.assert_eq(&status_text(&Scene::of(world).reconcile()));
}
