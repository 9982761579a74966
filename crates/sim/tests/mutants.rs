//! Bugs that were once real are put back one at a time; something must notice each, and every check must notice one.

#![allow(clippy::print_stdout)]
#![cfg(feature = "mutants")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use muster_engine::mutant;
use muster_sim::case::{Case, run_case};
use muster_sim::faults::{WatchFault, WriteFault};
use muster_sim::mutants::{INVARIANTS, MUTANTS, Mutant};
use muster_sim::run::run;
use muster_sim::world::Strike;

/// Seeds to try when no case has noticed.
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
        let verdict = run_case(case, Strike::default());
        if let Some(it) = verdict.violation {
            return Some(Killed { by: case.name.clone(), invariant: it.invariant, detail: it.detail });
        }
    }
    of_bug.iter().find_map(|case| kill_with_strikes(case)).or_else(|| kill_with_seeds(sound))
}

fn kill_with_strikes(case: &Case) -> Option<Killed> {
    let calm = run_case(case, Strike::default());
    let writes = (1..=calm.writes).flat_map(|at| WriteFault::ALL.map(|fault| (at, fault)));
    let watches = (1..=calm.deliveries).flat_map(|at| WatchFault::ALL.map(|fault| (at, fault)));
    let strikes = writes
        .map(|it| Strike { write: Some(it), watch: None })
        .chain(watches.map(|it| Strike { write: None, watch: Some(it) }));
    for strike in strikes {
        let verdict = run_case(case, strike);
        let at = match strike {
            Strike { write: Some((at, fault)), .. } => format!("{fault:?} at write {at}"),
            Strike { watch: Some((at, fault)), .. } => format!("{fault:?} at event {at}"),
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
    (1..=SEEDS).filter(|seed| sound.contains(seed)).find_map(|seed| {
        let it = run(seed, false).violation?;
        Some(Killed { by: format!("seed {seed}"), invariant: it.invariant, detail: it.detail })
    })
}

/// S10: the same seed gives the same trace.
fn breaks_determinism() -> Option<Killed> {
    let differs = (1..=3).find(|seed| run(*seed, false).hash != run(*seed, false).hash)?;
    let detail = "two runs of one seed differ".to_owned();
    Some(Killed { by: format!("seed {differs}, twice"), invariant: "S10", detail })
}

#[test]
fn every_mutant_is_noticed_and_every_check_notices_one() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("catalogue");
    let cases = Case::all(&folder).unwrap_or_else(|it| panic!("{it}"));
    let cases: BTreeMap<String, Case> = cases.into_iter().map(|it| (it.name.clone(), it)).collect();
    let only = std::env::var("MUTANT").unwrap_or_default();
    let bugs: Vec<&Mutant> = MUTANTS.iter().filter(|it| only.is_empty() || it.name == only).collect();
    // A seed that breaks something without a bug proves nothing with one.
    let sound: BTreeSet<u64> = (1..=SEEDS).filter(|seed| run(*seed, false).violation.is_none()).collect();
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
                    mutant::set(bug.name);
                    let it = kill(bug, &cases, &sound);
                    mutant::reset();
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
fn a_run_without_a_mutant_is_the_same_twice() {
    for seed in 1..=3 {
        assert_eq!(run(seed, false).hash, run(seed, false).hash, "S10: seed {seed}");
    }
}

/// The list is the map of the switches in the code: none is missing in either.
#[test]
fn every_switch_is_in_the_list() {
    fn sources(folder: &Path, all: &mut String) {
        for entry in std::fs::read_dir(folder).expect("a folder of sources") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                sources(&path, all);
            } else if path.extension().is_some_and(|it| it == "rs") {
                all.push_str(&std::fs::read_to_string(&path).expect("a source"));
            }
        }
    }
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut all = String::new();
    sources(&here.join("src"), &mut all);
    sources(&here.join("../engine/src"), &mut all);
    let switches = all.split("mutant::is(\"").skip(1).filter_map(|it| it.split_once('"'));
    let switches: BTreeSet<&str> = switches.map(|it| it.0).filter(|it| *it != "NAME").collect();
    let listed: BTreeSet<&str> = MUTANTS.iter().map(|it| it.name).collect();
    assert_eq!(switches, listed);
}
