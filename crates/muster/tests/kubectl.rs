//! The whole of it, as a user has it: the real binary, and every real kubectl that is on this machine.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use expect_test::expect;

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/fluentd.yaml");

/// Three pods take about a second; a machine that is busy with other tests takes its time.
const ROLLOUT_TIMEOUT: Duration = Duration::from_secs(60);

#[test]
fn every_kubectl_rolls_a_daemonset_out() {
    let kubectls = kubectls();
    assert!(
        !kubectls.is_empty(),
        "no kubectl was found. Install one, such as Debian's package kubernetes-client, so that `kubectl` is on PATH, \
         or name the binaries in MUSTER_TEST_KUBECTLS, separated by colons"
    );
    for (version, kubectl) in &kubectls {
        println!("kubectl {version}: {}", kubectl.display());
        // A server for each: what one leaves behind is no help to the next.
        let muster = Muster::up(version);
        assert_eq!(
            muster.kubectl(kubectl, &["apply", "-f", EXAMPLE]),
            "daemonset.apps/fluentd-elasticsearch created\n",
            "kubectl {version}"
        );
        let shown = muster.sets_once_rolled_out(kubectl);
        expect![[r#"
            NAME                    DESIRED   CURRENT   READY   UP-TO-DATE   AVAILABLE   NODE SELECTOR   AGE
            fluentd-elasticsearch   3         3         3       3            3           <none>          AGE
        "#]]
        .assert_eq(&shown);
        muster.stop();
    }
    println!("{} versions of kubectl ran", kubectls.len());
}

#[test]
fn one_data_directory_has_one_server() {
    let muster = Muster::up("twice");
    let again = run(muster_up(&muster.dir));
    assert_eq!(
        (again.0, again.1.replace(&muster.dir.display().to_string(), "DIR")),
        (
            Some(1),
            "muster: another muster is running on DIR: stop that one, or choose another --data-dir\n"
                .to_owned()
        )
    );
    muster.stop();
}

#[test]
fn real_nodes_are_refused_for_now() {
    let dir = fresh_dir("real-nodes");
    let mut command = muster_up(&dir);
    command.args(["--nodes", "1"]);
    let refused = "muster: real nodes are not there yet: leave --nodes away, and use --sim-nodes N\n";
    assert_eq!(run(command), (Some(1), refused.to_owned()));
}

#[test]
fn a_port_in_use_is_said_to_be() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_muster"));
    command.args(["up", "--listen", &address, "--data-dir"]).arg(fresh_dir("port"));
    let said =
        format!("muster: {address} is in use: is another server running? Choose another with --listen\n");
    assert_eq!(run(command), (Some(1), said));
}

/// Every kubectl there is, by version: those on PATH, those that stand beside the file that such a one really is,
/// and those that are named in MUSTER_TEST_KUBECTLS.
fn kubectls() -> BTreeMap<String, PathBuf> {
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
    all
}

fn version(kubectl: &Path) -> Option<String> {
    let output = Command::new(kubectl).args(["version", "--client", "-o", "json"]).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let (_, rest) = text.split_once("\"gitVersion\": \"v")?;
    Some(rest.split_once('"')?.0.to_owned())
}

struct Muster {
    child: Child,
    stdout: BufReader<ChildStdout>,
    dir: PathBuf,
}

impl Muster {
    /// Starts a server, and waits until it says that it is ready.
    fn up(name: &str) -> Self {
        let dir = fresh_dir(name);
        let mut child = muster_up(&dir).stdout(Stdio::piped()).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let muster = Self { child, stdout, dir };
        assert_eq!(
            line,
            format!(
                "ready: 3 simulated nodes; export KUBECONFIG={}\n",
                muster.dir.join("kubeconfig").display()
            )
        );
        muster
    }

    fn kubectl(&self, kubectl: &Path, args: &[&str]) -> String {
        let output = Command::new(kubectl)
            .args(args)
            .env("KUBECONFIG", self.dir.join("kubeconfig"))
            // So that no discovery cached from another server is believed.
            .env("HOME", &self.dir)
            .output()
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "{} {args:?}: {}", kubectl.display(), text(&output.stderr));
        text(&output.stdout)
    }

    /// What `kubectl get ds` shows once all pods are there, or else what it showed last.
    fn sets_once_rolled_out(&self, kubectl: &Path) -> String {
        let began = Instant::now();
        loop {
            let shown = self.kubectl(kubectl, &["get", "ds", "-n", "kube-system"]);
            let counts: Vec<_> =
                shown.lines().last().unwrap_or_default().split_whitespace().skip(1).take(5).collect();
            if counts == ["3"; 5] || ROLLOUT_TIMEOUT < began.elapsed() {
                return without_age(&shown);
            }
            thread::sleep(Duration::from_millis(200));
        }
    }

    /// Ctrl-C: it ends by itself, without an error and without another word.
    fn stop(mut self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "");
        fs::remove_dir_all(&self.dir).unwrap();
    }
}

/// A test that fails must not leave a server behind.
impl Drop for Muster {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn muster_up(dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_muster"));
    command.args(["up", "--listen", "127.0.0.1:0", "--data-dir"]).arg(dir);
    command
}

/// The exit code and what was said on stderr.
fn run(mut command: Command) -> (Option<i32>, String) {
    let output = command.output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn fresh_dir(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("up-{name}"));
    if dir.exists() {
        fs::remove_dir_all(&dir).unwrap();
    }
    dir
}

/// The last column, which changes from run to run.
fn without_age(table: &str) -> String {
    let mut lines: Vec<String> = table.lines().map(str::to_owned).collect();
    for row in lines.iter_mut().skip(1) {
        let end = row.trim_end().rfind(' ').map_or(0, |it| it + 1);
        row.replace_range(end.., "AGE");
    }
    lines.iter().map(|it| format!("{it}\n")).collect()
}
