//! What only a node with real containers can do for kubectl, with every kubectl on this machine: logs, exec, attach, port-forward,
//! cp, debug, top, proxy. The transcripts in `reach/` are written as those of the matrix.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;

use crate::bed::Cluster;
use crate::redact::Redactions;
use crate::transcript::{self, Entry, RECORDED, Transcript};

const TRANSCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/real/reach");

/// Each has a namespace of its own.
const VERSIONS_AT_ONCE: usize = 2;

/// Where a pod on the node's own network listens; each version has its own port of the node.
const PORT: u32 = 18_000;

#[test]
#[ignore = "needs real nodes: root, kubectl, containerd, runc, CNI plugins, ip, nft, iptables, busybox"]
fn every_kubectl_reaches_into_pods() {
    let cluster = Cluster::up("reach", 1);
    let transcripts = transcript::read(Path::new(TRANSCRIPTS));
    let mut kubectls = transcript::kubectls();
    let mut outcomes = run_all(&cluster, &transcripts, &kubectls);
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        assert!(
            RECORDED.iter().all(|it| outcomes.contains_key(it)),
            "an update needs every recorded version"
        );
        return transcript::update(&transcripts, &outcomes);
    }
    let entries: Vec<&Entry> = transcripts.iter().flat_map(|it| &it.entries).collect();
    let first = transcript::judge(&entries, &outcomes);
    // Only what is wrong twice counts, as in the matrix.
    let suspects: BTreeSet<u32> = first.wrong.keys().map(|(version, _)| *version).collect();
    kubectls.retain(|version, _| suspects.contains(version));
    outcomes.extend(run_all(&cluster, &transcripts, &kubectls));
    let second = transcript::judge(&entries, &outcomes);
    let wrong = second.wrong.iter().filter(|(which, _)| first.wrong.contains_key(which));
    let wrong: Vec<&str> = wrong.map(|(_, it)| it.as_str()).collect();
    assert!(wrong.is_empty(), "\n{}\n{}", wrong.join("\n"), cluster.logs());
}

fn run_all(
    cluster: &Cluster,
    transcripts: &[Transcript],
    kubectls: &BTreeMap<u32, PathBuf>,
) -> BTreeMap<u32, Vec<String>> {
    let left = Mutex::new(kubectls.iter().collect::<VecDeque<_>>());
    let outcomes = Mutex::new(BTreeMap::new());
    thread::scope(|scope| {
        for _ in 0..VERSIONS_AT_ONCE {
            scope.spawn(|| {
                loop {
                    let Some((&version, kubectl)) = left.lock().unwrap().pop_front() else { return };
                    let said = run_version(cluster, transcripts, version, kubectl);
                    outcomes.lock().unwrap().insert(version, said);
                }
            });
        }
    });
    outcomes.into_inner().unwrap()
}

fn run_version(cluster: &Cluster, transcripts: &[Transcript], version: u32, kubectl: &Path) -> Vec<String> {
    let files = ["reach.yaml", "forward", "through"].map(|it| Path::new(TRANSCRIPTS).join(it));
    let home = transcript::home(&format!("reach-home-1.{version}"), kubectl, &files);
    let port = (PORT + version).to_string();
    let manifests = fs::read_to_string(&files[0]).unwrap().replace(&PORT.to_string(), &port);
    fs::write(home.join("reach.yaml"), manifests).unwrap();
    fs::write(home.join("port"), port).unwrap();
    let namespace = format!("reach-{version}");
    fs::write(home.join("namespace"), &namespace).unwrap();
    cluster.kubectl(&["create", "namespace", &namespace]);
    let kubeconfig = fs::read_to_string(cluster.kubeconfig()).unwrap();
    let kubeconfig =
        kubeconfig.replace("    user: admin\n", &format!("    user: admin\n    namespace: {namespace}\n"));
    assert!(kubeconfig.contains(&namespace), "{kubeconfig}");
    let own = home.join("kubeconfig");
    fs::write(&own, kubeconfig).unwrap();
    let redactions = Redactions::new();
    let run = |entry: &Entry| {
        let said = transcript::run_line(&entry.line, &home, &own);
        redactions.text(&said, &home.display().to_string()).replace(&namespace, "NAMESPACE")
    };
    let said = transcripts.iter().flat_map(|it| &it.entries).map(run).collect();
    cluster.kubectl(&["delete", "namespace", &namespace]);
    fs::remove_dir_all(&home).unwrap();
    said
}
