//! What the tests of the whole stand on: the real binary, and every real kubectl that is on this machine.

#[path = "../cluster/mod.rs"]
pub(crate) mod cluster;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use cluster::{TestCluster, UpFlags};

/// Every kubectl there is, by version: those on PATH, those that stand beside the file that such a one really is,
/// and those that are named in MUSTER_TEST_KUBECTLS.
pub(crate) fn kubectls() -> BTreeMap<String, PathBuf> {
    let on_path = std::env::var_os("PATH").unwrap_or_default();
    let mut dirs: Vec<PathBuf> = std::env::split_paths(&on_path).collect();
    let real = dirs.iter().filter_map(|dir| fs::canonicalize(dir.join("kubectl")).ok()).collect::<Vec<_>>();
    dirs.extend(real.iter().filter_map(|it| it.parent().map(Path::to_owned)));

    let is_kubectl = |name: &OsStr| {
        let name = name.to_string_lossy();
        name == "kubectl" || name.strip_prefix("kubectl.1.").is_some_and(|it| it.parse::<u32>().is_ok())
    };
    let in_dirs = dirs.iter().filter_map(|dir| fs::read_dir(dir).ok()).flatten().flatten();
    let found = in_dirs.filter(|it| is_kubectl(&it.file_name())).map(|it| it.path());
    let named = std::env::var_os("MUSTER_TEST_KUBECTLS").unwrap_or_default();
    let named: Vec<PathBuf> = std::env::split_paths(&named).filter(|it| !it.as_os_str().is_empty()).collect();

    let mut all = BTreeMap::new();
    for kubectl in found.chain(named.iter().cloned()) {
        match version(&kubectl) {
            Some(version) => drop(all.entry(version).or_insert(kubectl)),
            None => assert!(!named.contains(&kubectl), "{} does not run", kubectl.display()),
        }
    }
    assert!(
        !all.is_empty(),
        "no kubectl was found. Install one, such as Debian's package kubernetes-client, so that `kubectl` is on PATH, \
         or name the binaries in MUSTER_TEST_KUBECTLS, separated by colons"
    );
    all
}

fn version(kubectl: &Path) -> Option<String> {
    let output = Command::new(kubectl).args(["version", "--client", "-o", "json"]).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let (_, rest) = text.split_once("\"gitVersion\": \"v")?;
    Some(rest.split_once('"')?.0.to_owned())
}

/// A cluster in a directory of its own.
pub(crate) struct Muster {
    cluster: TestCluster,
    #[allow(dead_code, reason = "each test binary uses a part")]
    pub(crate) dir: PathBuf,
}

impl Muster {
    /// Starts a cluster with so many simulated nodes, and waits until it says that it is ready.
    pub(crate) fn up(name: &str, nodes: u16) -> Self {
        let dir = fresh_dir(name);
        Self { cluster: TestCluster::up(&dir, UpFlags { nodes, ..UpFlags::default() }), dir }
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.cluster.kubeconfig()
    }

    /// Ctrl-C: it ends by itself, without an error and without another word.
    pub(crate) fn stop(self) {
        self.cluster.stop();
    }
}

pub(crate) fn fresh_dir(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("up-{name}"));
    if dir.exists() {
        fs::remove_dir_all(&dir).unwrap();
    }
    dir
}
