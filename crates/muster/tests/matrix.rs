//! Every verb of kubectl, with every kubectl on this machine, on a server of its own: judged by exit code and output.
//!
//! The files in `matrix/` are transcripts, run in the order of their names. A line that begins with `$ ` is a command
//! of the shell; what follows, indented by four spaces, is what it must print; `  ! ` marks what goes to stderr, and
//! `  exit` a code other than 0. A version that prints something else has a part of its own, which begins with
//! `  -- kubectl 1.N` and holds for the later ones too. What differs from run to run stands there in capitals: TIME,
//! AGE, UID, RV, IP and so on. Above a command may stand:
//!
//! - `# at once`: it does not wait for the pods to settle;
//! - `# a second later`: the entries of managedFields are sorted by the second of the last write, and it is shown;
//! - `# needs a node's agent`: simulated nodes have none, so what is expected is the error that says so;
//! - `# known to fail: why`: it does not do what it should. Once it does, the test fails until the line is gone.
//!
//! A version with something wrong is run once more, on a new server. Only what is wrong both times counts; the rest is
//! counted as `only once`.
//!
//! `UPDATE_EXPECT=1` writes what came into the transcripts, except below `known to fail`. `MUSTER_TEST_VERSIONS=1.20,1.33`
//! runs these alone. `MUSTER_TEST_CLUSTER=FILE` runs the commands on the cluster of that kubeconfig instead, to see
//! where the two differ.

#![allow(clippy::print_stdout)]

mod bed;
#[path = "bed/redact.rs"]
mod redact;
#[path = "bed/transcript.rs"]
mod transcript;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use bed::Muster;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Namespace, Pod, ResourceQuota, ServiceAccount};
use kube::api::ListParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Resource as _, ResourceExt as _};
use transcript::{Entry, RECORDED, Transcript, judge, run_line, update};

const TRANSCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/matrix");

/// More would only wait for each other on a small machine.
const VERSIONS_AT_ONCE: usize = 2;

/// A rollout on one node takes two seconds, but likewise.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(120);

#[test]
#[ignore = "needs kubectl"]
fn every_kubectl_command_behaves_as_on_kubernetes() {
    let transcripts = transcript::read(Path::new(TRANSCRIPTS));
    let mut kubectls = transcript::kubectls();
    let mut outcomes = run_all(&transcripts, &kubectls);
    let entries: Vec<&Entry> = transcripts.iter().flat_map(|it| &it.entries).collect();
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        let missing: Vec<_> = RECORDED.iter().filter(|it| !outcomes.contains_key(it)).collect();
        assert!(
            missing.is_empty(),
            "an update needs every recorded version: 1.N for N in {missing:?} is not here"
        );
        return update(&transcripts, &outcomes);
    }

    let first = judge(&entries, &outcomes);
    let suspects: BTreeSet<u32> = first.wrong.keys().map(|(version, _)| *version).collect();
    kubectls.retain(|version, _| suspects.contains(version));
    outcomes.extend(run_all(&transcripts, &kubectls));
    let second = judge(&entries, &outcomes);
    let (wrong, once): (Vec<_>, Vec<_>) =
        first.wrong.iter().partition(|(which, _)| second.wrong.contains_key(which));

    let listed = |versions: &mut dyn Iterator<Item = &u32>| {
        versions.map(|it| format!("1.{it}")).collect::<Vec<_>>().join(", ")
    };
    let known: usize = second.known.values().map(Vec::len).sum();
    for (at, versions) in &second.known {
        let why = entries[*at].note("known to fail:").unwrap_or_default();
        println!("known to fail:{why} ({}): $ {}", listed(&mut versions.iter()), entries[*at].line);
    }
    let full = |complaints: &[(&(u32, usize), &String)]| {
        complaints.iter().map(|(_, it)| it.as_str()).collect::<Vec<_>>().join("\n")
    };
    let waiting = entries.iter().filter(|it| it.note("needs a node's agent").is_some()).count();
    let summary = format!(
        "kubectl matrix: {} commands × {} kubectls ({}): {} as on a cluster, {} wrong, {} only once, {known} known to \
         fail; {waiting} of the commands are told that a simulated node has no agent: real nodes answer them in `real reach`\n",
        entries.len(),
        outcomes.len(),
        listed(&mut outcomes.keys()),
        entries.len() * outcomes.len() - known - wrong.len(),
        wrong.len(),
        once.len(),
    );
    // Not by a macro: what those print is kept back by the harness when a test passes.
    let once = if once.is_empty() { String::new() } else { format!("only once:\n{}\n", full(&once)) };
    let _ = std::io::stderr().write_all(format!("{once}{summary}").as_bytes());
    assert!(wrong.is_empty(), "\n{}\n{summary}", full(&wrong));
}

/// By version, what each command printed.
fn run_all(transcripts: &[Transcript], kubectls: &BTreeMap<u32, PathBuf>) -> BTreeMap<u32, Vec<String>> {
    let cluster = std::env::var_os("MUSTER_TEST_CLUSTER").map(PathBuf::from);
    let left = Mutex::new(kubectls.iter().collect::<VecDeque<_>>());
    let outcomes = Mutex::new(BTreeMap::new());
    thread::scope(|scope| {
        // One cluster has room for one at a time: all use the same names.
        for _ in 0..if cluster.is_some() { 1 } else { VERSIONS_AT_ONCE } {
            scope.spawn(|| {
                loop {
                    let Some((&version, kubectl)) = left.lock().unwrap().pop_front() else { return };
                    let said = run_version(transcripts, version, kubectl, cluster.as_deref());
                    outcomes.lock().unwrap().insert(version, said);
                }
            });
        }
    });
    outcomes.into_inner().unwrap()
}

fn run_version(
    transcripts: &[Transcript],
    version: u32,
    kubectl: &Path,
    cluster: Option<&Path>,
) -> Vec<String> {
    let muster = cluster.is_none().then(|| Muster::up(&format!("matrix-1.{version}"), 1));
    let kubeconfig = cluster.map_or_else(|| muster.as_ref().unwrap().kubeconfig(), Path::to_owned);
    let manifests =
        ["ds.yaml", "ds2.yaml", "bad.yaml", "runtimeclass.yaml"].map(|it| Path::new(TRANSCRIPTS).join(it));
    let home = transcript::home(&format!("matrix-home-1.{version}"), kubectl, &manifests);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let client = runtime.block_on(client(&kubeconfig));
    runtime.block_on(cleared(&client));
    let redactions = redact::Redactions::new();
    let run = |entry: &Entry| {
        let unsettled = match entry.note("at once") {
            None => runtime.block_on(settle(&client)),
            Some(_) => None,
        };
        if entry.note("a second later").is_some() {
            thread::sleep(Duration::from_secs(1));
        }
        let said = run_line(&entry.line, &home, &kubeconfig);
        let said = redactions.text(&said, &home.display().to_string());
        // So that what is wrong by that shows why.
        said + &unsettled.map(|it| format!("  ! before it, {it}\n")).unwrap_or_default()
    };
    let said = transcripts.iter().flat_map(|it| &it.entries).map(run).collect();
    if let Some(muster) = muster {
        muster.stop();
    }
    fs::remove_dir_all(&home).unwrap();
    said
}

async fn client(kubeconfig: &Path) -> Client {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    Client::try_from(config.unwrap()).unwrap()
}

/// Waits until the namespace that the version before left behind is gone.
async fn cleared(client: &Client) {
    let (namespaces, began) = (Api::<Namespace>::all(client.clone()), Instant::now());
    while began.elapsed() < SETTLE_TIMEOUT && namespaces.get_opt("nsx").await.is_ok_and(|it| it.is_some()) {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Waits until nothing is left to be done by anyone but kubectl. If that does not come, says what is left.
async fn settle(client: &Client) -> Option<String> {
    let began = Instant::now();
    loop {
        let left = match unsettled(client).await {
            Ok(None) => return None,
            Ok(Some(left)) => left,
            Err(error) => error.to_string(),
        };
        if SETTLE_TIMEOUT < began.elapsed() {
            return Some(left);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Something that is on its way: a set has not the pods it wants, a pod comes or goes, the event that tells of it is not
/// written yet, a new namespace is still bare, a quota was never counted.
async fn unsettled(client: &Client) -> kube::Result<Option<String>> {
    let all = ListParams::default();
    let sets = Api::<DaemonSet>::all(client.clone()).list(&all).await?;
    if let Some(set) = sets.iter().find(|it| it.meta().deletion_timestamp.is_none() && !is_rolled_out(it)) {
        return Ok(Some(format!("the set {} was not rolled out", set.name_any())));
    }
    let pods = Api::<Pod>::all(client.clone()).list(&all).await?;
    if let Some(pod) = pods.iter().find(|it| !is_at_rest(it)) {
        return Ok(Some(format!("the pod {} was coming or going", pod.name_any())));
    }
    let events = Api::<Event>::all(client.clone()).list(&all).await?;
    let told: BTreeSet<&str> = events.iter().filter_map(|it| it.message.as_deref()).collect();
    let is_untold = |pod: &&Pod| {
        pod.owner_references().iter().any(|it| it.controller == Some(true))
            && !told.contains(format!("Created pod: {}", pod.name_any()).as_str())
    };
    if let Some(pod) = pods.iter().find(is_untold) {
        return Ok(Some(format!("no event told of the pod {}", pod.name_any())));
    }
    for namespace in Api::<Namespace>::all(client.clone()).list(&all).await? {
        let name = namespace.name_any();
        let accounts = Api::<ServiceAccount>::namespaced(client.clone(), &name);
        let authorities = Api::<ConfigMap>::namespaced(client.clone(), &name);
        if namespace.meta().deletion_timestamp.is_none()
            && (accounts.get_opt("default").await?.is_none()
                || authorities.get_opt("kube-root-ca.crt").await?.is_none())
        {
            return Ok(Some(format!("the namespace {name} was bare")));
        }
    }
    let quotas = Api::<ResourceQuota>::all(client.clone()).list(&all).await?;
    let is_uncounted = |it: &&ResourceQuota| it.status.as_ref().and_then(|it| it.used.as_ref()).is_none();
    Ok(quotas.iter().find(is_uncounted).map(|it| format!("the quota {} was not counted", it.name_any())))
}

fn is_rolled_out(set: &DaemonSet) -> bool {
    set.status.as_ref().is_some_and(|it| {
        it.observed_generation == set.meta().generation
            && it.updated_number_scheduled.unwrap_or(0) == it.desired_number_scheduled
            && it.current_number_scheduled == it.desired_number_scheduled
            && it.number_available.unwrap_or(0) == it.desired_number_scheduled
    })
}

fn is_at_rest(pod: &Pod) -> bool {
    let is_bound = pod.spec.as_ref().is_some_and(|it| it.node_name.is_some());
    let is_running = pod.status.as_ref().is_some_and(|it| it.phase.as_deref() == Some("Running"));
    pod.meta().deletion_timestamp.is_none() && (!is_bound || is_running)
}
