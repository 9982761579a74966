//! `cargo sim SEED` replays one seed and prints its trace. `cargo sim --seeds N` runs N seeds on all cores. `cargo sim
//! --case FILE` runs one case of the catalogue and prints its trace.

#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use muster_sim::case::{Case, trace_case};
use muster_sim::faults::{InjectedFault, RequestFault, WatchFault};
use muster_sim::run::{RunResult, run_seed};

const HELP_TEXT: &str = "\
Runs the controllers in simulated clusters with injected faults, and checks every invariant at every step.

usage: cargo sim SEED                       replay one seed, with its trace
       cargo sim --seeds N [--from FIRST]   run N seeds, from FIRST (default 1)
       cargo sim --case FILE [FAULT N]      run one case of the catalogue, with its trace; FAULT is injected at
                                            the N-th write (Conflict, LostApplied, …) or event (Relist, …)

examples:
  cargo sim 8841                          print every step of seed 8841
  cargo sim --seeds 10000                 what `make test` runs
  cargo sim --seeds 10000 --from 1000000  clusters with rollout policies
  cargo sim --seeds 5000 --from 2000000   clusters with a second API server that lags behind";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let number = |text: &str| text.parse::<u64>().ok();
    match words.as_slice() {
        ["--seeds", count] => number(count).map_or_else(exit_with_usage, |count| run_many_seeds(1, count)),
        ["--seeds", count, "--from", first] => match (number(first), number(count)) {
            (Some(first), Some(count)) => run_many_seeds(first, count),
            _ => exit_with_usage(),
        },
        ["--case", file] => run_case_file(file, InjectedFault::default()),
        ["--case", file, fault, at] => number(at)
            .and_then(|at| parse_fault(fault, at))
            .map_or_else(exit_with_usage, |fault| run_case_file(file, fault)),
        ["--help" | "-h"] => {
            println!("{HELP_TEXT}");
            ExitCode::SUCCESS
        }
        [seed] => number(seed).map_or_else(exit_with_usage, run_one_seed),
        _ => exit_with_usage(),
    }
}

fn exit_with_usage() -> ExitCode {
    eprintln!("{HELP_TEXT}");
    ExitCode::from(2)
}

/// Runs one seed, and prints its trace and its result.
fn run_one_seed(seed: u64) -> ExitCode {
    let result = run_seed(seed, true);
    for line in &result.trace {
        println!("{line}");
    }
    print_result(&result);
    if result.violation.is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Parses the name of a fault, such as `Conflict` or `Relist`. `at` is the number of the write or watch event that gets
/// the fault. Returns `None` if no fault has this name.
fn parse_fault(fault: &str, at: u64) -> Option<InjectedFault> {
    let at = usize::try_from(at).ok()?;
    let write = RequestFault::ALL.into_iter().find(|it| format!("{it:?}") == fault).map(|it| (at, it));
    let watch = WatchFault::ALL.into_iter().find(|it| format!("{it:?}") == fault).map(|it| (at, it));
    (write.is_some() || watch.is_some()).then_some(InjectedFault { write, watch })
}

/// Runs one case file, and prints its trace and its result.
fn run_case_file(file: &str, fault: InjectedFault) -> ExitCode {
    let name = Path::new(file).file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let text = std::fs::read_to_string(file).map_err(|it| format!("{file}: {it}"));
    let case = text.and_then(|text| Case::parse(&name, &text).map_err(|it| it.to_string()));
    let case = match case {
        Ok(case) => case,
        Err(problem) => {
            eprintln!("{problem}");
            return ExitCode::from(2);
        }
    };
    let result = trace_case(&case, fault);
    for line in &result.trace {
        println!("{line}");
    }
    match &result.violation {
        None => {
            println!("{name} passed: {} writes, {} events; final state:", result.writes, result.deliveries);
            print!("{}", result.end);
            ExitCode::SUCCESS
        }
        Some(violation) => {
            println!("{name} violated {violation}\nthe cluster at that step:\n{}", result.scenario);
            ExitCode::FAILURE
        }
    }
}

fn print_result(result: &RunResult) {
    let Some(violation) = &result.violation else {
        println!(
            "seed {} passed: {} steps, {} writes, trace {:016x}, controller writes {:016x}",
            result.seed, result.steps, result.writes, result.hash, result.controller_writes_hash
        );
        return;
    };
    println!("seed {} violated {violation}", result.seed);
    println!("  at step {}, replay: cargo sim {}", result.steps, result.seed);
    println!("the cluster at that step, as scenario text for a test:");
    for line in result.scenario.lines() {
        println!("  {line}");
    }
}

/// Runs `count` seeds from `first` on all cores. Prints the first violation in full, some failed seeds of each violated
/// invariant, and the totals.
fn run_many_seeds(first: u64, count: u64) -> ExitCode {
    let started = Instant::now();
    let next = AtomicU64::new(first);
    let end = first.saturating_add(count);
    let steps = AtomicU64::new(0);
    let controller_writes = AtomicU64::new(0);
    let failed: Mutex<BTreeMap<u64, RunResult>> = Mutex::new(BTreeMap::new());
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    // A panic of a seed is reported as a violation; its message is in the report.
    std::panic::set_hook(Box::new(|_| {}));
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if end <= seed {
                        break;
                    }
                    let result = run_seed(seed, false);
                    steps.fetch_add(result.steps, Ordering::Relaxed);
                    // Wraps around, and does not depend on the order in which the seeds end.
                    controller_writes.fetch_add(
                        result.controller_writes_hash.rotate_left((seed % 64) as u32),
                        Ordering::Relaxed,
                    );
                    if result.violation.is_some() {
                        failed.lock().expect("no panic while it is held").insert(seed, result);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().expect("no panic while it was held");
    let mut by_invariant: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for (seed, result) in &failed {
        if let Some(violation) = &result.violation {
            by_invariant.entry(violation.invariant).or_default().push(*seed);
        }
    }
    if let Some(result) = failed.values().next() {
        print_result(result);
    }
    for (invariant, seeds) in &by_invariant {
        println!("{invariant}: {} seeds, the first {:?}", seeds.len(), &seeds[..seeds.len().min(8)]);
    }
    let steps = steps.into_inner();
    println!(
        "seeds {first}..{end}: {} passed, {} failed; controller writes {:016x}; {steps} steps in {:.1} s",
        count - u64::try_from(failed.len()).unwrap_or(0),
        failed.len(),
        controller_writes.into_inner(),
        started.elapsed().as_secs_f64()
    );
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
