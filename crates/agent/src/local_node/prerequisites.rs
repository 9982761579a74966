//! Programs, CNI plugins and cgroups that a machine needs to run nodes.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::node::CGROUP_ROOT;

/// Programs that local nodes need, with the Debian package of each.
const REQUIRED_PROGRAMS: [(&str, &str); 7] = [
    ("containerd", "containerd"),
    ("containerd-shim-runc-v2", "containerd"),
    ("runc", "runc"),
    ("ip", "iproute2"),
    ("nsenter", "util-linux"),
    ("iptables", "iptables"),
    ("nft", "nftables"),
];

/// CNI plugins that the pod network needs.
const CNI_PLUGINS: [&str; 4] = ["bridge", "host-local", "loopback", "portmap"];
/// Directories that are searched for CNI plugins.
const CNI_PLUGIN_DIRS: [&str; 3] = ["/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"];

/// Directories of system programs. Not every user has them on the PATH.
const SYSTEM_DIRS: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// Programs and privileges that this machine lacks to run local nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingPrerequisites {
    /// Whether this process runs as root, which local nodes require.
    is_root: bool,
    /// The missing programs. Missing CNI plugins are one entry.
    programs: Vec<&'static str>,
    /// The Debian packages of the missing programs.
    packages: Vec<&'static str>,
}

impl fmt::Display for MissingPrerequisites {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if !self.is_root {
            parts.push("nodes that run containers need root: use sudo".to_owned());
        }
        if !self.programs.is_empty() {
            let (what, packages) = (self.programs.join(", "), self.packages.join(" "));
            parts.push(format!("this machine has no {what}: apt-get install {packages}"));
        }
        f.write_str(&parts.join("; "))
    }
}

/// Whether this process runs as root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Finds what is missing to run local nodes: root privileges of this process, programs and CNI plugins. Returns `None`
/// if nothing is missing.
pub fn find_missing_prerequisites() -> Option<MissingPrerequisites> {
    let is_root = is_root();
    let mut missing = MissingPrerequisites { is_root, programs: Vec::new(), packages: Vec::new() };
    for (program, package) in REQUIRED_PROGRAMS {
        if find_program(program).is_none() {
            missing.programs.push(program);
            missing.packages.push(package);
        }
    }
    if cni_plugin_dir().is_none() {
        missing.programs.push("CNI plugins");
        missing.packages.push("containernetworking-plugins");
    }
    missing.packages.dedup();
    (!is_root || !missing.programs.is_empty()).then_some(missing)
}

/// Lists the missing programs and cgroup controllers that a joining machine needs for every pod. Each entry is a
/// message for the user. containerd, runc and the CNI plugins are not checked, because they belong to the container
/// runtime.
pub fn missing_agent_prerequisites() -> Vec<String> {
    let programs = REQUIRED_PROGRAMS.iter().filter(|(program, _)| ["ip", "nft"].contains(program));
    let missing = programs.filter(|(program, _)| find_program(program).is_none());
    let missing =
        missing.map(|(program, package)| format!("this machine has no {program}: apt-get install {package}"));
    missing.chain(missing_cgroup_controllers(Path::new(CGROUP_ROOT))).collect()
}

/// Describes the cgroup controllers that the machine lacks. Returns `None` if nothing is missing.
///
/// Rule: pods need the cgroup controllers `cpu` and `memory`, in cgroup v1 or v2.
fn missing_cgroup_controllers(root: &Path) -> Option<String> {
    let at = root.display();
    let controllers = std::fs::read_to_string(root.join("cgroup.controllers"));
    let has = |name: &str| match &controllers {
        Ok(it) => it.split_whitespace().any(|it| it == name),
        Err(_) => root.join(name).is_dir(),
    };
    let missing: Vec<&str> = ["cpu", "memory"].into_iter().filter(|it| !has(it)).collect();
    match missing[..] {
        [] => None,
        [_, _] if controllers.is_err() => {
            Some(format!("no cgroups are mounted at {at}: mount -t cgroup2 none {at}"))
        }
        _ => Some(format!("the cgroups at {at} have no controller {}", missing.join(" and "))),
    }
}

/// Lists the missing programs that a joining machine needs for some pods only (CNI plugins, iptables). Each entry is a
/// message for the user with the package to install.
pub fn missing_optional_tools() -> Vec<String> {
    let mut missing = Vec::new();
    if cni_plugin_dir().is_none() {
        let (plugins, dirs) = (CNI_PLUGINS.join(", "), CNI_PLUGIN_DIRS.join(", "));
        missing.push(format!(
            "the CNI plugins {plugins} are not in any of {dirs}: apt-get install containernetworking-plugins, and set \
             containerd's bin_dir to where they are"
        ));
    }
    if find_program("iptables").is_none() {
        missing
            .push("this machine has no iptables, which hostPort needs: apt-get install iptables".to_owned());
    }
    missing
}

/// Returns the first directory that has all CNI plugins of the pod network, or `None` if no directory has them all.
pub(super) fn cni_plugin_dir() -> Option<PathBuf> {
    let mut dirs = CNI_PLUGIN_DIRS.iter().map(PathBuf::from);
    dirs.find(|dir| CNI_PLUGINS.iter().all(|it| dir.join(it).exists()))
}

/// Finds a program in the PATH and in [`SYSTEM_DIRS`]. Returns its path, or `None` if it is not installed.
fn find_program(program: &str) -> Option<PathBuf> {
    let on_path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = std::env::split_paths(&on_path).chain(SYSTEM_DIRS.iter().map(PathBuf::from));
    dirs.map(|it| it.join(program)).find(|it| is_program(it))
}

/// Whether the path is an executable file.
fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    path.metadata().is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
}

/// Returns the PATH for containerd, `ip` and `nft`: the PATH of this process, and [`SYSTEM_DIRS`]. containerd's plugins
/// call `iptables`, which may not be on the PATH of this process.
pub(super) fn search_path() -> std::ffi::OsString {
    let on_path = std::env::var_os("PATH").unwrap_or_default();
    let dirs: Vec<PathBuf> =
        std::env::split_paths(&on_path).chain(SYSTEM_DIRS.iter().map(PathBuf::from)).collect();
    std::env::join_paths(dirs).unwrap_or(on_path)
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn cgroups_that_are_missing_are_named_with_their_path() {
        let missing = |prepare: &dyn Fn(&Path)| {
            let root = tempfile::tempdir().unwrap();
            prepare(root.path());
            let missing =
                missing_cgroup_controllers(root.path()).unwrap_or_else(|| "nothing is missing".to_owned());
            missing.replace(&root.path().display().to_string(), "/sys/fs/cgroup")
        };
        let controllers = |text: &'static str| {
            move |root: &Path| std::fs::write(root.join("cgroup.controllers"), text).unwrap()
        };
        let v1 =
            |root: &Path| ["cpu", "memory"].iter().for_each(|it| std::fs::create_dir(root.join(it)).unwrap());
        let said = [
            missing(&|_| {}),
            missing(&controllers("cpuset cpu io memory\n")),
            missing(&controllers("cpu\n")),
            missing(&v1),
        ];
        expect![[r#"
            no cgroups are mounted at /sys/fs/cgroup: mount -t cgroup2 none /sys/fs/cgroup
            nothing is missing
            the cgroups at /sys/fs/cgroup have no controller memory
            nothing is missing"#]]
        .assert_eq(&said.join("\n"));
    }

    #[test]
    fn missing_tools_are_named_with_their_packages() {
        let all = [
            MissingPrerequisites { is_root: false, programs: vec![], packages: vec![] },
            MissingPrerequisites {
                is_root: true,
                programs: vec!["containerd", "runc"],
                packages: vec!["containerd", "runc"],
            },
            MissingPrerequisites { is_root: false, programs: vec!["nft"], packages: vec!["nftables"] },
        ];
        expect![[r#"
            nodes that run containers need root: use sudo
            this machine has no containerd, runc: apt-get install containerd runc
            nodes that run containers need root: use sudo; this machine has no nft: apt-get install nftables"#]]
        .assert_eq(&all.map(|it| it.to_string()).join("\n"));
    }
}
