//! A real etcd: the program `etcd` on PATH.

use std::fs::File;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

/// One member of etcd on loopback.
pub(crate) struct Etcd {
    pub(crate) url: String,
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
        let log = File::create(dir.path().join("log")).unwrap();
        let child = Command::new("etcd")
            .arg("--data-dir")
            .arg(dir.path().join("data"))
            .args(["--listen-client-urls", &url, "--advertise-client-urls", &url])
            .args(["--listen-peer-urls", &peer_url, "--initial-advertise-peer-urls", &peer_url])
            .args(["--initial-cluster", &format!("default={peer_url}")])
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .expect("run etcd (Debian has it in etcd-server)");
        let etcd = Self { url, child, dir };
        while TcpStream::connect(etcd.address()).is_err() {
            thread::sleep(Duration::from_millis(50));
        }
        etcd
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
