//! The whole of it, as a user has it: the real binary, and every real kubectl that is on this machine.

mod bed;
#[path = "kubectl/manifests.rs"]
mod manifests;
#[path = "kubectl/reach.rs"]
mod reach;

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use bed::{Muster, kubectls};
use expect_test::expect;

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/fluentd.yaml");

/// Three pods take about a second; a machine that is busy with other tests takes its time.
const ROLLOUT_TIMEOUT: Duration = Duration::from_secs(60);

#[test]
#[ignore = "needs kubectl"]
fn every_kubectl_rolls_a_daemonset_out() {
    let kubectls = kubectls();
    for (version, kubectl) in &kubectls {
        println!("kubectl {version}: {}", kubectl.display());
        // A server for each: what one leaves behind is no help to the next.
        let muster = Muster::up(version, 3);
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
#[ignore = "needs kubectl"]
fn the_controller_of_up_is_asked_through_its_server() {
    let kubectl = kubectls().into_values().next_back().expect("there is one");
    let muster = Muster::up("explain", 3);
    muster.kubectl(&kubectl, &["apply", "-f", EXAMPLE]);
    muster.sets_once_rolled_out(&kubectl);
    let explained = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_muster"));
        command.args(["explain", "ds/fluentd-elasticsearch", "-n", "kube-system", "--kubeconfig"]);
        let output = command.arg(muster.kubeconfig()).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
    };
    // It may have something to write down yet.
    let began = Instant::now();
    while !explained().contains("next reconcile when") && began.elapsed() < ROLLOUT_TIMEOUT {
        thread::sleep(Duration::from_millis(200));
    }
    expect![[r#"
        DaemonSet kube-system/fluentd-elasticsearch: revision 1, generation 1
        3 nodes: 3 should run it (3 up to date), 0 should not

          NODES  STATE        WHY
              3  up to date   its pod is available
                              sim-1, sim-2, sim-3

        rollout     complete: 3 nodes with an available pod of this revision
        controller  next reconcile when something changes
    "#]]
    .assert_eq(&explained());
    let who = ["get", "--raw", "/debug/explain?namespace=kube-system&name=fluentd-elasticsearch"];
    assert!(muster.kubectl(&kubectl, &who).starts_with(r#"{"advancedAt":"#));
    let stranger = Command::new(&kubectl)
        .args(who)
        .args(["--as", "stranger"])
        .env("KUBECONFIG", muster.kubeconfig())
        .env("HOME", &muster.dir)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&stranger.stderr);
    assert!(said.contains(r#"User "stranger" cannot get path "/debug/explain""#), "{said}");
    muster.stop();
}

#[test]
#[ignore = "needs kubectl"]
fn deletes_cascade_to_dependents_or_orphan_them() {
    let kubectl = kubectls().into_values().next_back().expect("there is one");
    let muster = Muster::up("garbage", 3);
    let run = |args: &[&str]| muster.kubectl(&kubectl, &[args, &["-n", "kube-system"]].concat());
    let owned = || {
        let what = "jsonpath={range .items[*]}{.kind} of [{.metadata.ownerReferences[*].name}]{'\\n'}{end}";
        run(&["get", "pods,controllerrevisions", "-o", what])
    };
    let names = || run(&["get", "pods", "-o", "name"]);
    run(&["apply", "-f", EXAMPLE]);
    muster.sets_once_rolled_out(&kubectl);
    let before = names();

    // The set goes once they have let go of it, and another one takes them as they are.
    run(&["delete", "ds", "fluentd-elasticsearch", "--cascade=orphan"]);
    expect![[r#"
        Pod of []
        Pod of []
        Pod of []
        ControllerRevision of []
    "#]]
    .assert_eq(&owned());
    run(&["apply", "-f", EXAMPLE]);
    muster.sets_once_rolled_out(&kubectl);
    assert_eq!(names(), before);

    // The set goes last.
    run(&["delete", "ds", "fluentd-elasticsearch", "--cascade=foreground"]);
    assert_eq!(owned(), "");

    // The set goes first.
    run(&["apply", "-f", EXAMPLE]);
    muster.sets_once_rolled_out(&kubectl);
    run(&["delete", "ds", "fluentd-elasticsearch", "--cascade=background"]);
    let began = Instant::now();
    while !owned().is_empty() && began.elapsed() < ROLLOUT_TIMEOUT {
        thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(owned(), "");
    muster.stop();
}

impl Muster {
    fn kubectl(&self, kubectl: &Path, args: &[&str]) -> String {
        let output = Command::new(kubectl)
            .args(args)
            .env("KUBECONFIG", self.kubeconfig())
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
