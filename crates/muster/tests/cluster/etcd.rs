//! A real etcd: the program `etcd` on PATH.

use std::fs::File;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

/// One member of etcd on loopback.
pub(crate) struct Etcd {
    pub(crate) url: String,
    peer_url: String,
    child: Child,
    /// The data of the member, which is deleted at the end of the test.
    pub(crate) dir: TempDir,
}

impl Etcd {
    pub(crate) fn start() -> Self {
        // In the target directory, because the temporary directory may be in memory.
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let (url, peer_url) = (format!("http://{}", free()), format!("http://{}", free()));
        let child = spawn(dir.path(), &url, &peer_url);
        let etcd = Self { url, peer_url, child, dir };
        etcd.wait_until_it_listens();
        etcd
    }

    fn wait_until_it_listens(&self) {
        while TcpStream::connect(self.address()).is_err() {
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Saves a snapshot with `etcdctl` to a file of this test.
    pub(crate) fn save_snapshot(&self) -> PathBuf {
        let file = self.dir.path().join("snapshot.db");
        etcdctl(&["--endpoints", &self.url, "snapshot", "save", file.to_str().unwrap()]);
        file
    }

    /// Kills etcd, restores a snapshot in place of its data, and starts it again. The restored member has the same name,
    /// peer URL and cluster token, and therefore the same IDs.
    pub(crate) fn restore_snapshot(&mut self, snapshot: &Path) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        let data = self.dir.path().join("data");
        std::fs::remove_dir_all(&data).unwrap();
        etcdctl(&[
            "snapshot",
            "restore",
            snapshot.to_str().unwrap(),
            "--data-dir",
            data.to_str().unwrap(),
            "--name",
            "default",
            "--initial-cluster",
            &format!("default={}", self.peer_url),
            "--initial-advertise-peer-urls",
            &self.peer_url,
        ]);
        self.child = spawn(self.dir.path(), &self.url, &self.peer_url);
        self.wait_until_it_listens();
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.url.trim_start_matches("http://").parse().unwrap()
    }

    /// The flags of a server on this etcd. Debian's etcd is older than the supported versions.
    pub(crate) fn flags(&self) -> [&str; 3] {
        ["--etcd", &self.url, "--etcd-any-version"]
    }

    /// The flags of a server that shares this etcd with others. `token` is the file with their server token.
    pub(crate) fn flags_with_token<'a>(&'a self, token: &'a Path) -> Vec<&'a str> {
        flags_with_token(&self.url, token)
    }
}

/// Starts a member with these URLs for clients and peers, and with its data and its log in `dir`.
fn spawn(dir: &Path, url: &str, peer_url: &str) -> Child {
    let log = File::create(dir.join("log")).unwrap();
    Command::new("etcd")
        .arg("--data-dir")
        .arg(dir.join("data"))
        .args(["--listen-client-urls", url, "--advertise-client-urls", url])
        .args(["--listen-peer-urls", peer_url, "--initial-advertise-peer-urls", peer_url])
        .args(["--initial-cluster", &format!("default={peer_url}")])
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .expect("run etcd (Debian has it in etcd-server)")
}

/// Runs `etcdctl`. Panics if it fails.
fn etcdctl(arguments: &[&str]) {
    let output = Command::new("etcdctl").env("ETCDCTL_API", "3").args(arguments).output();
    let output = output.expect("run etcdctl (Debian has it in etcd-client)");
    assert!(output.status.success(), "{output:?}");
}

/// The flags of a server that shares the etcd at `url` with others. `token` is the file with their server token.
pub(crate) fn flags_with_token<'a>(url: &'a str, token: &'a Path) -> Vec<&'a str> {
    vec!["--etcd", url, "--etcd-any-version", "--token-file", token.to_str().unwrap()]
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
