//! Clients of other languages, which `ci/clients` installs, and their scripts.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// Time after which a client that hangs is ended: a machine that is busy with other tests takes its time.
const TIMEOUT: Duration = Duration::from_secs(180);

/// A client that `ci/clients` installed, in a directory of its own.
pub(crate) struct Installed {
    pub(crate) name: &'static str,
    pub(crate) dir: PathBuf,
}

impl Installed {
    /// Finds a client in the directory that MUSTER_TEST_CLIENTS names. Panics if the variable is not set, or if
    /// `ci/clients` has not installed the client.
    pub(crate) fn find(name: &'static str) -> Self {
        let Some(all) = std::env::var_os("MUSTER_TEST_CLIENTS").map(PathBuf::from) else {
            panic!("MUSTER_TEST_CLIENTS is not set: it names the directory that ci/clients prints");
        };
        let missing = std::fs::read_to_string(all.join("missing")).unwrap_or_default();
        let why = missing.lines().find(|it| it.starts_with(&format!("{name}: ")));
        assert_eq!(why, None, "ci/clients could not install the client");
        let dir = all.join(name);
        // Debian's package of kubeclient is not in the directory.
        assert!(name == "kubeclient" || dir.exists(), "ci/clients has not installed {}", dir.display());
        Self { name, dir }
    }

    pub(crate) fn python(&self) -> Command {
        let mut command = Command::new(self.dir.with_file_name("python").join("bin/python"));
        command.env("PYTHONPATH", &self.dir);
        command
    }
}

pub(crate) fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients")
}

/// All that a command says. One that hangs is ended.
pub(crate) fn output(command: &mut Command) -> String {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = child.unwrap_or_else(|it| panic!("{command:?}: {it}"));
    let (id, (done, is_done)) = (child.id(), mpsc::channel::<()>());
    let watchdog = thread::spawn(move || {
        if is_done.recv_timeout(TIMEOUT) == Err(RecvTimeoutError::Timeout) {
            let _ = Command::new("kill").arg(id.to_string()).status();
        }
    });
    let output = child.wait_with_output().unwrap();
    drop(done);
    watchdog.join().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    text(&output.stdout) + &text(&output.stderr)
}
