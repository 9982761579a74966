//! Every case of the catalogue, without a fault and with one fault at every place where one can strike.

#![allow(clippy::print_stdout)]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use muster_sim::case::{Case, CaseResult, run_case};
use muster_sim::faults::InjectedFault;

fn cases() -> Vec<Case> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("catalogue");
    // A name, or part of one, for whoever works on a case.
    let only = std::env::var("CASE").unwrap_or_default();
    let mut cases = Case::read_folder(&folder).unwrap_or_else(|it| panic!("{it}"));
    cases.retain(|it| it.name.contains(&only));
    cases
}

/// Runs every job on all cores; what it says is collected in the order of the jobs.
fn on_all_cores<T: Sync>(jobs: &[T], work: impl Fn(&T) -> Option<String> + Sync) -> Vec<String> {
    let next = AtomicUsize::new(0);
    let said = Mutex::new(BTreeMap::new());
    // A panic in a world is a finding like any other; its message is in the verdict.
    std::panic::set_hook(Box::new(|_| {}));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some((at, job)) = {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    jobs.get(at).map(|job| (at, job))
                } {
                    if let Some(it) = work(job) {
                        said.lock().expect("no panic while it is held").insert(at, it);
                    }
                }
            });
        }
    });
    let _ = std::panic::take_hook();
    said.into_inner().expect("no panic while it was held").into_values().collect()
}

fn complaint(case: &Case, strike: InjectedFault, verdict: &CaseResult, what: &str) -> String {
    let at = match strike {
        InjectedFault { write: Some((at, fault)), .. } => format!(" with {fault:?} at write {at}"),
        InjectedFault { watch: Some((at, fault)), .. } => format!(" with {fault:?} at event {at}"),
        _ => String::new(),
    };
    format!("{}{at} broke {what}\nthe world then:\n{}", case.name, verdict.scenario)
}

fn must_hold(said: &[String], runs: usize) {
    const SHOWN: usize = 5;
    println!("{runs} runs");
    let shown: Vec<&str> = said.iter().take(SHOWN).map(String::as_str).collect();
    let names: Vec<&str> = said.iter().filter_map(|it| it.lines().next()).collect();
    assert!(
        said.is_empty(),
        "{}\n{} of {runs} runs broke:\n{}",
        shown.join("\n"),
        said.len(),
        names.join("\n")
    );
}

#[test]
fn every_case_ends_as_it_should() {
    let cases = cases();
    let said = on_all_cores(&cases, |case| {
        let verdict = run_case(case, InjectedFault::default());
        let violation = verdict.violation.as_ref()?;
        Some(complaint(case, InjectedFault::default(), &verdict, &violation.to_string()))
    });
    must_hold(&said, cases.len());
}

/// One fault at every write and at every delivered event: all invariants hold, the end is the same, and no node sees
/// more than one create and one delete more than it would have. If the script of the case has a line `faults`, the
/// writes and events before it have no fault.
#[test]
fn every_case_bears_one_fault_anywhere() {
    let cases = cases();
    let mut jobs = Vec::new();
    let mut runs = 0;
    for case in cases.iter().filter(|it| it.once.is_none()) {
        let calm = run_case(case, InjectedFault::default());
        let calm = std::sync::Arc::new(calm);
        for strike in calm.possible_faults() {
            jobs.push((case, calm.clone(), strike));
            runs += 1;
        }
    }
    let said = on_all_cores(&jobs, |(case, calm, strike)| {
        let verdict = run_case(case, *strike);
        if let Some(violation) = &verdict.violation {
            return Some(complaint(case, *strike, &verdict, &violation.to_string()));
        }
        let more = more_than_one_more(calm, &verdict)?;
        case.loose.is_none().then(|| complaint(case, *strike, &verdict, &format!("L8: {more}")))
    });
    must_hold(&said, runs);
}

/// L8.
fn more_than_one_more(calm: &CaseResult, struck: &CaseResult) -> Option<String> {
    struck.summary.iter().find_map(|((node, what), count)| {
        let usual = calm.summary.get(&(node.clone(), *what)).copied().unwrap_or(0);
        (usual + 1 < *count).then(|| format!("{count} times {what} on {node}, {usual} without the fault"))
    })
}
