//! Several API servers on etcd under faults: three servers on three members, as processes in network namespaces, while
//! clients write, read and watch. Processes are killed and stopped, packets are dropped and delayed, databases and file
//! systems become full, and the history is compacted.
//!
//! The test needs root, `etcd`, `ip` and `nft`, so it is ignored by default. It fails if one of them is missing.
//! Variables: MUSTER_TEST_CHAOS_FAULTS (number of faults), MUSTER_TEST_CHAOS_SEED (seed of their order),
//! MUSTER_TEST_CHAOS_KIND (only kinds of faults with these words) and MUSTER_TEST_ETCD (another program than the `etcd`
//! on PATH).

mod cluster;
mod delay;
mod etcd;
mod fault;
mod file_system;
#[path = "../bed/history.rs"]
mod history;
mod load;
mod process;
#[path = "../bed/recorder.rs"]
mod recorder;
mod report;
mod scenario;
mod servers;
mod topology;

use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};

use cluster::Cluster;
use fault::{Deck, LEFT_OUT};
use recorder::random;
use report::{say, say_summary};
use scenario::Scenario;

/// Number of faults in `make test`. They take about five minutes.
const FAULTS: usize = 33;

/// Set in the process of the test that runs in namespaces of its own.
const IN_NAMESPACES: &str = "MUSTER_TEST_IN_NAMESPACES";

#[test]
#[ignore = "needs etcd in network namespaces: root, etcd, ip, nft"]
fn servers_on_etcd_stay_linearizable_under_faults() {
    if std::env::var_os(IN_NAMESPACES).is_some() {
        end_with_parent();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        return runtime.unwrap().block_on(run());
    }
    check_requirements();
    // Whatever is left of the test ends with the first process of its PID namespace, and then its mounts and networks.
    let mut test = Command::new("unshare")
        .args(["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"])
        .arg(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture", "servers_on_etcd_stay_linearizable_under_faults"])
        .env(IN_NAMESPACES, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let _open = test.stdin.take();
    let mut stdout = String::new();
    test.stdout.take().unwrap().read_to_string(&mut stdout).unwrap();
    // The process also succeeds if no test has this name.
    assert!(test.wait().unwrap().success() && stdout.contains("1 passed"), "see above");
}

/// Ends this process when the process that started it ends.
fn end_with_parent() {
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(1);
    });
}

/// Panics if a program is missing or namespaces are not allowed. The message says which.
fn check_requirements() {
    let succeeds = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|it| it.success())
    };
    for (program, argument) in [(etcd_program().as_str(), "--version"), ("ip", "-V"), ("nft", "--version")] {
        assert!(succeeds(program, &[argument]), "{program} does not run");
    }
    let namespaces = ["--net", "--mount", "--pid", "--fork", "--mount-proc", "true"];
    assert!(succeeds("unshare", &namespaces), "only root can create namespaces");
}

fn etcd_program() -> String {
    std::env::var("MUSTER_TEST_ETCD").ok().filter(|it| !it.is_empty()).unwrap_or_else(|| "etcd".to_owned())
}

/// The value of a variable that is a number.
fn number_of(variable: &str) -> Option<u64> {
    let value = std::env::var(variable).ok().filter(|it| !it.is_empty())?;
    Some(value.parse().unwrap_or_else(|_| panic!("{variable} is not a number: {value}")))
}

async fn run() {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("chaos");
    if dir.exists() {
        std::fs::remove_dir_all(&dir).unwrap();
    }
    std::fs::create_dir_all(&dir).unwrap();
    let count = number_of("MUSTER_TEST_CHAOS_FAULTS").map_or(FAULTS, |it| it.try_into().unwrap());
    let seed = number_of("MUSTER_TEST_CHAOS_SEED").unwrap_or_else(|| random() % 1_000_000);
    let cluster = Cluster::start(&dir, &etcd_program()).await;
    let (version, is_supported) = (cluster.version(), cluster.version().is_supported());
    say(&format!("{count} faults on etcd {version}, seed {seed}"));
    let mut scenario = Scenario::start(cluster).await;
    let kind = std::env::var("MUSTER_TEST_CHAOS_KIND").unwrap_or_default();
    let mut deck =
        Deck::new(seed, move |it| (is_supported || !it.is_known_to_fail()) && it.kind().contains(&kind));
    for number in 1..=count {
        scenario.run_fault(number, deck.draw()).await;
    }
    let report = scenario.finish().await;
    report.print_table();
    say_summary(&format!("etcd {version}, seed {seed}: {}", report.summary()));
    if !is_supported {
        say_summary(&format!("left out, because etcd {version} is known to fail: {LEFT_OUT}"));
    }
    let violations = report.violations();
    assert!(violations.is_empty(), "the logs are in {}: {violations:#?}", dir.display());
    std::fs::remove_dir_all(&dir).unwrap();
}
