//! `cargo sim SEED` replays one seed with its trace; `cargo sim --seeds N` runs many, on all cores.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use muster_sim::run::{Verdict, run};

const HELP: &str = "\
Runs the engine in simulated worlds full of faults, and checks every invariant at every step.

usage: cargo sim SEED                       replay one seed, with its trace
       cargo sim --seeds N [--from FIRST]   run N seeds, from FIRST (default 1)

examples:
  cargo sim 8841              what happened in seed 8841, step by step
  cargo sim --seeds 10000     what `make test` runs";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let number = |text: &str| text.parse::<u64>().ok();
    match words.as_slice() {
        ["--seeds", count] => number(count).map_or_else(usage, |count| many(1, count)),
        ["--seeds", count, "--from", first] => match (number(first), number(count)) {
            (Some(first), Some(count)) => many(first, count),
            _ => usage(),
        },
        ["--help" | "-h"] => {
            println!("{HELP}");
            ExitCode::SUCCESS
        }
        [seed] => number(seed).map_or_else(usage, one),
        _ => usage(),
    }
}

fn usage() -> ExitCode {
    eprintln!("{HELP}");
    ExitCode::from(2)
}

fn one(seed: u64) -> ExitCode {
    let verdict = run(seed, true);
    for line in &verdict.trace {
        println!("{line}");
    }
    report(&verdict);
    if verdict.violation.is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn report(verdict: &Verdict) {
    let Some(violation) = &verdict.violation else {
        println!(
            "seed {} held: {} steps, {} writes, trace {:016x}",
            verdict.seed, verdict.steps, verdict.writes, verdict.hash
        );
        return;
    };
    println!("seed {} broke {violation}", verdict.seed);
    println!("  at step {}, replay: cargo sim {}", verdict.steps, verdict.seed);
    println!("the world then, ready to paste into a test:");
    for line in verdict.scenario.lines() {
        println!("  {line}");
    }
}

fn many(first: u64, count: u64) -> ExitCode {
    let started = Instant::now();
    let next = AtomicU64::new(first);
    let end = first.saturating_add(count);
    let steps = AtomicU64::new(0);
    let failed: Mutex<BTreeMap<u64, Verdict>> = Mutex::new(BTreeMap::new());
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    // A seed that panics is a finding like any other; its message is in the report.
    std::panic::set_hook(Box::new(|_| {}));
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if end <= seed {
                        break;
                    }
                    let verdict = run(seed, false);
                    steps.fetch_add(verdict.steps, Ordering::Relaxed);
                    if verdict.violation.is_some() {
                        failed.lock().expect("no panic while it is held").insert(seed, verdict);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().expect("no panic while it was held");
    let mut by_invariant: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for (seed, verdict) in &failed {
        if let Some(violation) = &verdict.violation {
            by_invariant.entry(violation.invariant).or_default().push(*seed);
        }
    }
    if let Some(verdict) = failed.values().next() {
        report(verdict);
    }
    for (invariant, seeds) in &by_invariant {
        println!("{invariant}: {} seeds, the first {:?}", seeds.len(), &seeds[..seeds.len().min(8)]);
    }
    let steps = steps.into_inner();
    println!(
        "seeds {first}..{end}: {} held, {} broke; {steps} steps in {:.1} s",
        count - u64::try_from(failed.len()).unwrap_or(0),
        failed.len(),
        started.elapsed().as_secs_f64()
    );
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
