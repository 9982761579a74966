//! How daemons are reached: they push, or have a port of their node, or stand behind a headless Service or one with an
//! address; and how a node is drained of all others.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use expect_test::expect;

use crate::bed::{Muster, kubectls};

const MANIFEST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kubectl/reach.yaml");
const BUDGET: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kubectl/drain.yaml");

/// Far longer than anything takes on a machine that is busy with other things.
const PATIENCE: Duration = Duration::from_secs(120);

struct Kubectl<'a> {
    of: &'a Muster,
    path: PathBuf,
}

impl Kubectl<'_> {
    /// Whether it went well, what it showed, and what it said beside it.
    fn told(&self, args: &[&str]) -> (bool, String, String) {
        let mut command = Command::new(&self.path);
        command.args(args).env("KUBECONFIG", self.of.kubeconfig()).env("HOME", &self.of.dir);
        let output = command.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.success(), text(&output.stdout), text(&output.stderr))
    }

    fn run(&self, args: &[&str]) -> String {
        let (went_well, shown, said) = self.told(args);
        assert!(went_well, "{args:?}: {said}");
        shown
    }

    fn get(&self, what: &[&str], template: &str) -> BTreeSet<String> {
        let template = format!("jsonpath={template}");
        let said = self.run(&[&["get"], what, &["-o", &template]].concat());
        said.split_whitespace().map(str::to_owned).collect()
    }

    /// Waits until `get` shows what it should.
    fn until(
        &self,
        what: &[&str],
        template: &str,
        is: impl Fn(&BTreeSet<String>) -> bool,
    ) -> BTreeSet<String> {
        let began = Instant::now();
        loop {
            let found = self.get(what, template);
            if is(&found) {
                return found;
            }
            assert!(began.elapsed() < PATIENCE, "{what:?} {template}: {found:?}");
            thread::sleep(Duration::from_millis(200));
        }
    }
}

#[test]
#[ignore = "needs kubectl"]
fn daemons_are_reached_in_four_ways() {
    let muster = Muster::up("reach", 3);
    let kubectl = Kubectl { of: &muster, path: kubectls().into_values().next_back().expect("there is one") };
    kubectl.run(&["apply", "-f", MANIFEST]);
    kubectl.run(&["rollout", "status", "ds/agent", "--timeout=120s"]);
    let pods = ["pods", "-l", "app=agent"];

    // Push: each knows where to send to.
    let pushes_to = "{range .items[*]}{.spec.nodeName}->{.spec.containers[0].env[0].value} {end}";
    expect!["sim-1->stats.default.svc:9091 sim-2->stats.default.svc:9091 sim-3->stats.default.svc:9091"]
        .assert_eq(&kubectl.get(&pods, pushes_to).into_iter().collect::<Vec<_>>().join(" "));

    // The address of the node, and the port that is known.
    let on_nodes = kubectl
        .get(&["nodes"], "{range .items[*]}{.status.addresses[?(@.type=='InternalIP')].address}:9100 {end}");
    let host_ports =
        kubectl.get(&pods, "{range .items[*]}{.status.hostIP}:{.spec.containers[0].ports[0].hostPort} {end}");
    assert_eq!((host_ports.len(), &host_ports), (3, &on_nodes));

    // DNS: a headless Service has the address of each daemon, in both kinds of endpoints.
    let addresses = |pods_now: &BTreeSet<String>, service: &str| {
        let all = |found: &BTreeSet<String>| found == pods_now;
        kubectl.until(&["endpoints", service], "{.subsets[*].addresses[*].ip}", all);
        let slices = format!("kubernetes.io/service-name={service}");
        let ready = "{.items[*].endpoints[?(@.conditions.ready==true)].addresses[0]}";
        kubectl.until(&["endpointslices", "-l", &slices], ready, all);
    };
    let ips = |found: &Kubectl<'_>| found.get(&pods, "{.items[*].status.podIP}");
    let at_first = ips(&kubectl);
    assert_eq!(at_first.len(), 3);
    addresses(&at_first, "agents");
    let headless = kubectl.get(&["service", "agents"], "{.spec.clusterIP}");
    assert_eq!(headless, BTreeSet::from(["None".to_owned()]));
    let places = "{range .items[*].endpoints[*]}{.nodeName}={.targetRef.kind} {end}";
    let slices = ["endpointslices", "-l", "kubernetes.io/service-name=agents"];
    expect!["sim-1=Pod sim-2=Pod sim-3=Pod"]
        .assert_eq(&kubectl.get(&slices, places).into_iter().collect::<Vec<_>>().join(" "));

    // Service: one address, and any of them behind it, at the port that the pod calls so.
    addresses(&at_first, "agent");
    let one = kubectl.get(&["service", "agent"], "{.spec.clusterIP}");
    assert!(one.first().is_some_and(|it| it.parse::<std::net::IpAddr>().is_ok()), "{one:?}");
    let ports = "{.subsets[*].ports[*].name}:{.subsets[*].ports[*].port}";
    assert_eq!(kubectl.get(&["endpoints", "agent"], ports), BTreeSet::from(["metrics:9100".to_owned()]));

    // After a rollout there are others in the same places.
    kubectl.run(&["set", "image", "ds/agent", "agent=example.org/agent:2"]);
    kubectl.run(&["rollout", "status", "ds/agent", "--timeout=120s"]);
    let is_only_new = |found: &BTreeSet<String>| found == &BTreeSet::from(["example.org/agent:2".to_owned()]);
    kubectl.until(&pods, "{.items[*].spec.containers[0].image}", is_only_new);
    for service in ["agents", "agent"] {
        addresses(&ips(&kubectl), service);
    }

    // What belongs to a Service goes with it.
    kubectl.run(&["delete", "service", "agents", "agent"]);
    kubectl.until(&["endpoints"], "{.items[*].metadata.name}", |it| {
        !it.contains("agent") && !it.contains("agents")
    });
    kubectl.until(
        &["endpointslices", "-l", "app!=none"],
        "{.items[*].metadata.labels.kubernetes\\.io/service-name}",
        |it| !it.contains("agent") && !it.contains("agents"),
    );
    muster.stop();
}

#[test]
#[ignore = "needs kubectl"]
fn a_node_is_drained_as_its_budgets_allow() {
    let all = kubectls();
    let (first, last) = (all.values().next(), all.values().next_back());
    for (index, path) in BTreeSet::from_iter(first.into_iter().chain(last)).into_iter().enumerate() {
        let muster = Muster::up(&format!("drain-{index}"), 2);
        let kubectl = Kubectl { of: &muster, path: path.clone() };
        kubectl.run(&["apply", "-f", MANIFEST]);
        kubectl.run(&["apply", "-f", BUDGET]);
        kubectl.run(&["rollout", "status", "ds/agent", "--timeout=120s"]);
        let allows = "{.status.disruptionsAllowed}/{.status.currentHealthy}/{.status.desiredHealthy}/{.status.expectedPods}";
        let shows = |wanted: &str| {
            let wanted = BTreeSet::from([wanted.to_owned()]);
            kubectl.until(&["pdb", "web"], allows, |found| *found == wanted);
        };
        shows("0/2/2/2");
        let pods_on = |node: &str| {
            let on = format!("spec.nodeName={node}");
            let pods = kubectl.get(&["pods", "--field-selector", &on], "{.items[*].metadata.labels.app}");
            pods.into_iter().collect::<Vec<_>>().join(" ")
        };

        // Daemons would come back, and what nobody made will not: it must be said that both is meant.
        let (went_well, _, said) = kubectl.told(&["drain", "sim-1", "--timeout=1s"]);
        assert!(!went_well && said.contains("--ignore-daemonsets") && said.contains("--force"), "{said}");
        let asked = ["drain", "sim-1", "--ignore-daemonsets", "--force"];
        let (went_well, _, said) = kubectl.told(&[&asked[..], &["--timeout=3s"]].concat());
        assert!(!went_well && said.contains("would violate the pod's disruption budget"), "{said}");
        assert_eq!(pods_on("sim-1"), "agent web");

        kubectl.run(&["patch", "pdb", "web", "--type=merge", "-p", r#"{"spec":{"minAvailable":1}}"#]);
        shows("1/2/1/2");
        // Old ones ask about a pod without its kind whether it can be tried dry, and no cluster can say so.
        if Some(path) == last {
            kubectl.run(&[&asked[..], &["--dry-run=server"]].concat());
            assert_eq!(pods_on("sim-1"), "agent web");
            shows("1/2/1/2");
        }
        let said = kubectl.run(&[&asked[..], &["--timeout=120s"]].concat());
        assert!(said.contains("pod/web-1 evicted") && said.contains("node/sim-1 "), "{said}");
        assert_eq!(pods_on("sim-1"), "agent");
        shows("0/1/1/1");
        let closed = kubectl.get(&["node", "sim-1"], "{.spec.unschedulable}");
        assert_eq!(closed, BTreeSet::from(["true".to_owned()]));

        // The last one is protected from eviction, and not from being deleted.
        kubectl.run(&[
            "drain",
            "sim-2",
            "--ignore-daemonsets",
            "--force",
            "--disable-eviction",
            "--timeout=120s",
        ]);
        assert_eq!(pods_on("sim-2"), "agent");
        shows("0/0/1/0");
        muster.stop();
    }
}
