//! Known bugs are put back one at a time: some invariant must notice each, and every invariant must notice one.
//!
//! The engine and the simulator of this test are copies with all mutants built in: see `build.rs` and `mutants/README.md`.

#![allow(clippy::print_stdout)]

extern crate alloc;
// The copies ask for `mutants::active()`.
extern crate self as mutants;

mod build_script;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use sim::case::{Case, run_case};
use sim::faults::InjectedFault;
use sim::run::{FIRST_SECOND_SERVER_SEED, run_seed};

include!(concat!(env!("OUT_DIR"), "/mutants.rs"));

/// A known bug that can be switched on.
struct Mutant {
    name: &'static str,
    bug: &'static str,
    /// Cases of the catalogue that are expected to notice.
    cases: &'static [&'static str],
}

/// The ids of all invariants.
const INVARIANTS: [&str; 62] = [
    "W1", "W2", "W3", "W4", "W5", "W6", "W7", "W8", "W9", "W10", "W11", "W12", "W13", "W14", "W15", "W16",
    "W17", "W18", "W19", "W20", "W21", "W22", "W23", "W24", "W25", "W26", "W27", "W28", "S1", "S2", "S3",
    "S4", "S5", "S6", "S7", "S8", "S9", "S10", "S11", "S12", "S13", "S14", "S15", "S16", "S17", "S18", "S19",
    "L1", "L2", "L3", "L4", "L5", "L6", "L7", "L8", "L9", "L10", "L11", "L12", "L13", "L14", "L15",
];

thread_local! {
    static ACTIVE: Cell<usize> = const { Cell::new(0) };
}

/// The number of the mutant that is switched on for this thread: its place in `MUTANTS`, counted from one.
fn active() -> usize {
    ACTIVE.get()
}

/// Runs with a mutant switched on for this thread.
fn with<T>(name: &str, run: impl FnOnce() -> T) -> T {
    let at = MUTANTS.iter().position(|it| it.name == name);
    ACTIVE.set(at.unwrap_or_else(|| panic!("no mutant {name}")) + 1);
    let result = run();
    ACTIVE.set(0);
    result
}

/// Number of seeds to try when no case has noticed, with one API server and with two.
const SEEDS: u64 = 40;

struct Killed {
    by: String,
    invariant: &'static str,
    detail: String,
}

fn kill(bug: &Mutant, cases: &BTreeMap<String, Case>, sound: &BTreeSet<u64>) -> Option<Killed> {
    if bug.name == "S10" {
        return breaks_determinism();
    }
    let of_bug: Vec<&Case> =
        bug.cases.iter().map(|it| cases.get(*it).unwrap_or_else(|| panic!("no case {it}"))).collect();
    for case in &of_bug {
        let verdict = run_case(case, InjectedFault::default());
        if let Some(it) = verdict.violation {
            return Some(Killed { by: case.name.clone(), invariant: it.invariant, detail: it.detail });
        }
    }
    of_bug.iter().find_map(|case| kill_with_strikes(case)).or_else(|| kill_with_seeds(sound))
}

fn kill_with_strikes(case: &Case) -> Option<Killed> {
    let calm = run_case(case, InjectedFault::default());
    for strike in calm.possible_faults() {
        let verdict = run_case(case, strike);
        let at = match strike {
            InjectedFault { write: Some((at, fault)), .. } => format!("{fault:?} at write {at}"),
            InjectedFault { watch: Some((at, fault)), .. } => format!("{fault:?} at event {at}"),
            _ => String::new(),
        };
        let by = format!("{}, {at}", case.name);
        if let Some(it) = verdict.violation {
            return Some(Killed { by, invariant: it.invariant, detail: it.detail });
        }
        let more = verdict
            .summary
            .iter()
            .find(|(place, count)| calm.summary.get(*place).copied().unwrap_or(0) + 1 < **count);
        if let Some(more) = more
            && case.loose.is_none()
        {
            return Some(Killed { by, invariant: "L8", detail: format!("{more:?}") });
        }
    }
    None
}

fn kill_with_seeds(sound: &BTreeSet<u64>) -> Option<Killed> {
    sound.iter().copied().find_map(|seed| {
        let it = run_seed(seed, false).violation?;
        Some(Killed { by: format!("seed {seed}"), invariant: it.invariant, detail: it.detail })
    })
}

/// S10: the same seed gives the same trace.
fn breaks_determinism() -> Option<Killed> {
    let differs = (1..=3).find(|seed| run_seed(*seed, false).hash != run_seed(*seed, false).hash)?;
    let detail = "two runs of one seed differ".to_owned();
    Some(Killed { by: format!("seed {differs}, twice"), invariant: "S10", detail })
}

#[test]
fn every_mutant_is_noticed_and_every_check_notices_one() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("catalogue");
    let cases = Case::read_folder(&folder).unwrap_or_else(|it| panic!("{it}"));
    let cases: BTreeMap<String, Case> = cases.into_iter().map(|it| (it.name.clone(), it)).collect();
    let only = std::env::var("MUTANT").unwrap_or_default();
    let bugs: Vec<&Mutant> = MUTANTS.iter().filter(|it| only.is_empty() || it.name == only).collect();
    // A seed that breaks something without a bug proves nothing with one.
    let seeds = (1..=SEEDS).chain(FIRST_SECOND_SERVER_SEED..FIRST_SECOND_SERVER_SEED + SEEDS);
    let sound: BTreeSet<u64> = seeds.filter(|seed| run_seed(*seed, false).violation.is_none()).collect();
    let next = AtomicUsize::new(0);
    let killed: Mutex<BTreeMap<usize, Option<Killed>>> = Mutex::new(BTreeMap::new());
    std::panic::set_hook(Box::new(|_| {}));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(bug) = bugs.get(at) else { break };
                    let started = std::time::Instant::now();
                    let it = with(bug.name, || kill(bug, &cases, &sound));
                    if std::env::var("VERBOSE").is_ok() {
                        let killed = it.as_ref().map(|it| (it.invariant, &it.by));
                        println!("{:.1} s {}: {killed:?}", started.elapsed().as_secs_f64(), bug.name);
                    }
                    killed.lock().expect("no panic while it is held").insert(at, it);
                }
            });
        }
    });
    let _ = std::panic::take_hook();
    let killed = killed.into_inner().expect("no panic while it was held");
    let mut survivors = Vec::new();
    let mut killers = BTreeSet::new();
    for (bug, killed) in bugs.iter().zip(killed.values()) {
        match killed {
            Some(it) => {
                killers.insert(it.invariant);
                let detail: String = it.detail.lines().next().unwrap_or_default().chars().take(90).collect();
                println!("{:<11} {:<4} {:<34} {} ({detail})", bug.name, it.invariant, it.by, bug.bug);
            }
            None => survivors.push(bug.name),
        }
    }
    let idle: Vec<_> = INVARIANTS.iter().filter(|it| !killers.contains(*it) && only.is_empty()).collect();
    println!("{} mutants, {} noticed", bugs.len(), bugs.len() - survivors.len());
    assert!(
        survivors.is_empty() && idle.is_empty(),
        "survivors: {survivors:?}; checks that never fail: {idle:?}"
    );
}

#[test]
fn without_a_mutant_the_copy_runs_as_the_shipped_engine_does() {
    for seed in (1..=10).chain(FIRST_SECOND_SERVER_SEED..FIRST_SECOND_SERVER_SEED + 10) {
        assert_eq!(run_seed(seed, false).hash, muster_sim::run::run_seed(seed, false).hash, "seed {seed}");
    }
}

/// The comparison of the incremental cache with one made from scratch can fail: each of these bugs keeps an old cell.
#[test]
fn the_incremental_cache_is_found_wrong_where_a_cell_is_forgotten() {
    for bug in ["B16", "stale-cell", "stale-timer", "stale-total"] {
        assert!(with(bug, || incremental::run(incremental::CASES).is_err()), "{bug} went unnoticed");
    }
}
