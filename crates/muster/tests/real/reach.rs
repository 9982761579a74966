//! What only a node with real containers can do for kubectl, with every kubectl on this machine: logs, exec, attach, port-forward,
//! cp, debug, top. The transcripts in `reach/` are written as those of the matrix.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::bed::Cluster;
use crate::redact::Redactions;
use crate::transcript::{self, Entry, RECORDED, Transcript};

const TRANSCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/real/reach");

#[test]
fn every_kubectl_reaches_into_pods() {
    let Some(cluster) = Cluster::up("reach", 1) else { return };
    let transcripts = transcript::read(Path::new(TRANSCRIPTS));
    let mut kubectls = transcript::kubectls();
    let mut outcomes = run_all(&cluster, &transcripts, &kubectls);
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        assert!(RECORDED.iter().all(|it| outcomes.contains_key(it)), "an update needs every recorded version");
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

/// One after the other: they use the same names.
fn run_all(
    cluster: &Cluster,
    transcripts: &[Transcript],
    kubectls: &BTreeMap<u32, PathBuf>,
) -> BTreeMap<u32, Vec<String>> {
    let files = ["reach.yaml", "forward"].map(|it| Path::new(TRANSCRIPTS).join(it));
    let redactions = Redactions::new();
    let run = |(version, kubectl): (&u32, &PathBuf)| {
        let home = transcript::home(&format!("reach-home-1.{version}"), kubectl, &files);
        let run = |entry: &Entry| {
            let said = transcript::run_line(&entry.line, &home, &cluster.kubeconfig());
            redactions.text(&said, &home.display().to_string())
        };
        let said = transcripts.iter().flat_map(|it| &it.entries).map(run).collect();
        fs::remove_dir_all(&home).unwrap();
        (*version, said)
    };
    kubectls.iter().map(run).collect()
}
