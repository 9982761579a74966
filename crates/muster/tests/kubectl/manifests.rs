//! Manifests as people have them: those in `examples/`, and those that texts on DaemonSets show.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use expect_test::expect;
use serde_json::Value;

use crate::bed::{Muster, kubectls};

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
const FRAGMENTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kubectl");

/// Each takes a few seconds; a machine that is busy with other tests takes its time.
const PATIENCE: Duration = Duration::from_secs(120);

/// All files of the folder, so that a new one is tried as well, and shows that it is.
#[test]
#[ignore = "needs kubectl"]
fn every_example_rolls_out_and_leaves_nothing_behind() {
    let muster = Muster::up("examples", 3);
    let kubectl = newest(&muster);
    // A node of the control plane, one with a GPU, and one with disks to share.
    let ours = "node-role.kubernetes.io";
    let [master, control_plane] = ["master", "control-plane"].map(|it| format!("{ours}/{it}:NoSchedule"));
    kubectl.run(&["taint", "node", "sim-1", &master, &control_plane]);
    kubectl.run(&["label", "node", "sim-2", "hardware=big", "nvidia.com/gpu.present=true"]);
    kubectl.run(&["label", "node", "sim-3", "hardware=small", "storage=glusterfs"]);
    // Nodes are Ready a moment before each has its lease.
    let leases = |world: &BTreeSet<String>| world.iter().filter(|it| it.starts_with("Lease ")).count();
    let before = eventually(|| Some(kubectl.world()).filter(|it| leases(it) == 3));
    let before = before.expect("each node has a lease");

    let mut files: Vec<PathBuf> = fs::read_dir(EXAMPLES).unwrap().map(|it| it.unwrap().path()).collect();
    files.retain(|it| it.extension().is_some_and(|it| it == "yaml"));
    files.sort();
    let mut shown = String::new();
    for path in &files {
        let file = path.display().to_string();
        let applied = kubectl.run(&["apply", "-f", &file]);
        shown += &format!("{}\n{}", path.file_name().unwrap().display(), indented(&applied));
        shown += &indented(&kubectl.pods_once_settled());
        // What is in a namespace that the file deletes may be gone before kubectl gets to it.
        kubectl.run(&["delete", "--ignore-not-found", "-f", &file]);
        let after = eventually(|| Some(kubectl.world()).filter(|it| *it == before));
        assert_eq!(after.unwrap_or_else(|| kubectl.world()), before, "{file} leaves something behind");
    }
    expect![[r#"
        busybox-log-shipper.yaml
          configmap/busybox-log-shipper created
          daemonset.apps/busybox-log-shipper created
          sim-2  busybox-log-shipper
          sim-3  busybox-log-shipper
        busybox-node-exporter.yaml
          configmap/busybox-node-exporter created
          service/busybox-node-exporter created
          daemonset.apps/busybox-node-exporter created
          sim-1  busybox-node-exporter
          sim-2  busybox-node-exporter
          sim-3  busybox-node-exporter
        flannel.yaml
          namespace/kube-flannel created
          serviceaccount/flannel created
          clusterrole.rbac.authorization.k8s.io/flannel created
          clusterrolebinding.rbac.authorization.k8s.io/flannel created
          configmap/kube-flannel-cfg created
          daemonset.apps/kube-flannel-ds created
          sim-1  kube-flannel-ds
          sim-2  kube-flannel-ds
          sim-3  kube-flannel-ds
        fluent-bit.yaml
          namespace/logging created
          serviceaccount/fluent-bit created
          clusterrole.rbac.authorization.k8s.io/fluent-bit created
          clusterrolebinding.rbac.authorization.k8s.io/fluent-bit created
          configmap/fluent-bit created
          service/fluent-bit created
          daemonset.apps/fluent-bit created
          sim-2  fluent-bit
          sim-3  fluent-bit
        fluentd-labels.yaml
          daemonset.apps/fluentd-elasticsearch created
          sim-2  fluentd-elasticsearch
          sim-3  fluentd-elasticsearch
        fluentd-masters.yaml
          daemonset.apps/fluentd-elasticsearch created
          sim-1  fluentd-elasticsearch
          sim-2  fluentd-elasticsearch
          sim-3  fluentd-elasticsearch
        fluentd-v1beta1.yaml
          daemonset.extensions/fluentd-elasticsearch created
          sim-2  fluentd-elasticsearch
          sim-3  fluentd-elasticsearch
        fluentd.yaml
          daemonset.apps/fluentd-elasticsearch created
          sim-2  fluentd-elasticsearch
          sim-3  fluentd-elasticsearch
        glusterd.yaml
          daemonset.apps/glusterd created
          sim-3  glusterd
        gpu-plugin.yaml
          daemonset.apps/nvidia-device-plugin-daemonset created
          sim-2  nvidia-device-plugin-daemonset
        hardware.yaml
          daemonset.apps/collectd-big created
          daemonset.apps/collectd-small created
          sim-2  collectd-big
          sim-3  collectd-small
        kube-proxy.yaml
          serviceaccount/kube-proxy created
          clusterrole.rbac.authorization.k8s.io/kube-proxy created
          clusterrolebinding.rbac.authorization.k8s.io/kube-proxy created
          configmap/kube-proxy created
          daemonset.apps/kube-proxy created
          sim-1  kube-proxy
          sim-2  kube-proxy
          sim-3  kube-proxy
        network-agent.yaml
          daemonset.apps/weave-net created
          sim-2  weave-net
          sim-3  weave-net
        node-exporter-v1beta1.yaml
          daemonset.extensions/node-exporter created
          sim-2  node-exporter
          sim-3  node-exporter
        node-exporter.yaml
          namespace/monitoring created
          serviceaccount/node-exporter created
          service/node-exporter created
          daemonset.apps/node-exporter created
          sim-1  node-exporter
          sim-2  node-exporter
          sim-3  node-exporter
        pod-on-one-node.yaml
          pod/with-node-affinity created
          pod with-node-affinity
        pod-with-toleration.yaml
          pod/with-toleration created
          pod with-toleration
    "#]]
    .assert_eq(&shown);
    muster.stop();
}

/// Two of them are of `extensions/v1beta1`, and say nothing of a selector.
#[test]
#[ignore = "needs kubectl"]
fn every_kubectl_applies_daemonsets_of_old_documentation() {
    let muster = Muster::up("old-sets", 2);
    let shown = by_version(&muster, |kubectl| {
        let roll_out = |file| {
            let file = Path::new(EXAMPLES).join(file).display().to_string();
            let applied = kubectl.run(&["apply", "-f", &file]);
            let pods = indented(&kubectl.pods_once_settled());
            kubectl.run(&["delete", "--ignore-not-found", "-f", &file]);
            let gone = eventually(|| kubectl.items("pods").is_empty().then_some(()));
            gone.expect("the pods go with their set");
            applied + &pods
        };
        ["fluentd.yaml", "fluentd-v1beta1.yaml", "node-exporter-v1beta1.yaml"].map(roll_out).concat()
    });
    expect![[r#"
        daemonset.apps/fluentd-elasticsearch created
          sim-1  fluentd-elasticsearch
          sim-2  fluentd-elasticsearch
        daemonset.extensions/fluentd-elasticsearch created
          sim-1  fluentd-elasticsearch
          sim-2  fluentd-elasticsearch
        daemonset.extensions/node-exporter created
          sim-1  node-exporter
          sim-2  node-exporter
    "#]]
    .assert_eq(&all_say(shown));
    muster.stop();
}

/// It is the server that knows. Today's kubectl lets it say so; an old one reads its schema, and knows no warnings.
#[test]
#[ignore = "needs kubectl"]
fn every_kubectl_reports_unknown_fields() {
    let muster = Muster::up("misspelt", 1);
    let shown = by_version(&muster, |kubectl| {
        let apply = |how| {
            let said = kubectl.said(&["apply", how, "-f", "misspelt.yaml"]);
            kubectl.said(&["delete", "-f", "misspelt.yaml"]);
            said
        };
        ["--validate=true", "--validate=warn", "--validate=false"].map(apply).concat()
    });
    let (old, new): (Vec<_>, Vec<_>) = shown.into_iter().partition(|(minor, _)| *minor < 25);
    if !new.is_empty() {
        expect![[r#"
            Error from server (BadRequest): error when creating "misspelt.yaml": DaemonSet in version "v1" cannot be handled as a DaemonSet: strict decoding error: unknown field "metadata.lables"
            Warning: unknown field "metadata.lables"
            daemonset.apps/fluentd-elasticsearch created
            daemonset.apps/fluentd-elasticsearch created
        "#]].assert_eq(&all_say(new));
    }
    if !old.is_empty() {
        expect![[r#"
            error: error validating "misspelt.yaml": error validating data: ValidationError(DaemonSet.metadata): unknown field "lables" in io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta; if you choose to ignore these errors, turn validation off with --validate=false
            Error: invalid argument "warn" for "--validate" flag: strconv.ParseBool: parsing "warn": invalid syntax
            See 'kubectl apply --help' for usage.
            Warning: unknown field "metadata.lables"
            daemonset.apps/fluentd-elasticsearch created
        "#]].assert_eq(&all_say(old));
    }
    muster.stop();
}

/// Pods of which a text shows only what it speaks of.
#[test]
#[ignore = "needs kubectl"]
fn every_kubectl_reports_pods_without_containers() {
    let muster = Muster::up("fragments", 1);
    let shown = by_version(&muster, |kubectl| {
        // An old kubectl would not even ask.
        let apply = |file| kubectl.said(&["apply", "--validate=false", "-f", file]);
        ["pod-with-node-affinity.yaml", "pod-with-toleration.yaml"].map(apply).concat()
    });
    expect![[r#"
        The Pod "with-node-affinity" is invalid: spec.containers: Required value
        The Pod "with-toleration" is invalid: spec.containers: Required value
    "#]]
    .assert_eq(&all_say(shown));
    muster.stop();
}

/// The first of them asks for a label that no node has: `metadata.name` is a field, and old texts take it for a label.
#[test]
#[ignore = "needs kubectl"]
fn pods_of_old_documentation_are_placed_once_they_have_a_container() {
    let muster = Muster::up("whole-pods", 2);
    let kubectl = newest(&muster);
    kubectl.run(&["cordon", "sim-1", "sim-2"]);
    for file in ["pod-with-node-affinity.yaml", "pod-with-toleration.yaml"] {
        let fragment = fs::read_to_string(Path::new(FRAGMENTS).join(file)).unwrap();
        let whole = muster.dir.join(file);
        fs::write(&whole, format!("{fragment}  containers:\n  - name: c\n    image: pause\n")).unwrap();
        kubectl.run(&["apply", "-f", &whole.display().to_string()]);
    }
    kubectl.run(&["run", "ordinary", "--image=pause"]);
    let is_judged = |pod: &Value| condition(pod, "PodScheduled").is_some();
    eventually(|| kubectl.items("pods").iter().all(is_judged).then_some(())).expect("each is looked at");
    expect![[r#"
        ordinary: 0/2 nodes are available: 2 node(s) were unschedulable. preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.
        with-node-affinity: 0/2 nodes are available: 2 node(s) were unschedulable. preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.
        with-toleration: has a node
    "#]]
    .assert_eq(&kubectl.places());

    kubectl.run(&["uncordon", "sim-2"]);
    let is_bound = |pod: &Value| pod["spec"]["nodeName"].is_string();
    let of = |name: &str| kubectl.items("pods").into_iter().find(|it| it["metadata"]["name"] == name);
    eventually(|| of("ordinary").as_ref().is_some_and(is_bound).then_some(())).expect("it is bound");
    kubectl.run(&["label", "node", "sim-2", "metadata.name=node-geektime"]);
    eventually(|| kubectl.items("pods").iter().all(is_bound).then_some(())).expect("the label brings it");
    expect![[r#"
        ordinary: has a node
        with-node-affinity: has a node
        with-toleration: has a node
    "#]]
    .assert_eq(&kubectl.places());
    assert_eq!(of("with-node-affinity").unwrap()["spec"]["nodeName"], "sim-2");
    muster.stop();
}

fn newest(muster: &Muster) -> Kubectl<'_> {
    Kubectl { of: muster, path: kubectls().into_values().next_back().expect("there is one") }
}

/// What came of it with each kubectl there is: the N of its version 1.N, and the text.
fn by_version(muster: &Muster, run: impl Fn(&Kubectl<'_>) -> String) -> Vec<(u32, String)> {
    let minor = |version: &str| version.split('.').nth(1).and_then(|it| it.parse().ok()).unwrap_or_default();
    kubectls()
        .into_iter()
        .map(|(version, path)| (minor(&version), run(&Kubectl { of: muster, path })))
        .collect()
}

/// The one text that all of them have.
fn all_say(shown: Vec<(u32, String)>) -> String {
    let (_, first) = shown.first().cloned().expect("there is a kubectl");
    for (minor, text) in shown {
        assert_eq!(text, first, "kubectl 1.{minor} differs");
    }
    first
}

/// One kubectl, on one cluster.
struct Kubectl<'a> {
    of: &'a Muster,
    path: PathBuf,
}

impl Kubectl<'_> {
    fn run(&self, args: &[&str]) -> String {
        self.of.kubectl(&self.path, args)
    }

    /// What it prints, whether it succeeds or not.
    fn said(&self, args: &[&str]) -> String {
        let output = Command::new(&self.path)
            .args(args)
            .current_dir(FRAGMENTS)
            .env("KUBECONFIG", self.of.kubeconfig())
            .env("HOME", &self.of.dir)
            .output()
            .unwrap();
        [output.stderr, output.stdout].iter().map(|it| String::from_utf8_lossy(it)).collect()
    }

    /// The kind, namespace and name of all there is, but for what is told of it.
    fn world(&self) -> BTreeSet<String> {
        let kinds = self.run(&["api-resources", "--verbs=list", "-o", "name"]);
        let kinds = kinds.lines().filter(|it| !it.starts_with("events")).collect::<Vec<_>>().join(",");
        let name = |it: &Value| {
            let of = |field: &str| it["metadata"][field].as_str().unwrap_or_default().to_owned();
            format!("{} {}/{}", it["kind"].as_str().unwrap_or_default(), of("namespace"), of("name"))
        };
        // Servers that share a store have Leases there, which come and go with them.
        let is_of_server = |it: &String| it.starts_with("Lease kube-system/");
        self.items(&kinds).iter().map(name).filter(|it| !is_of_server(it)).collect()
    }

    /// By node, the sets that have a ready pod there, once every set has all it wants; then the pods that no set has.
    fn pods_once_settled(&self) -> String {
        let settled = eventually(|| {
            // The sets first: pods that are read before the status of their set may be older than it.
            let are_settled = self.items("daemonsets").iter().all(is_settled);
            let pods = self.items("pods");
            (are_settled && pods.iter().all(is_ready)).then_some(pods)
        });
        let line = |pod: &Value| match pod["metadata"]["ownerReferences"][0]["name"].as_str() {
            Some(set) => format!("{}  {set}\n", pod["spec"]["nodeName"].as_str().unwrap_or("nowhere")),
            None => format!("pod {}\n", pod["metadata"]["name"].as_str().unwrap_or_default()),
        };
        let lines: BTreeSet<String> = settled.expect("it settles").iter().map(line).collect();
        lines.into_iter().collect()
    }

    /// Of each pod that it has a node, or why not.
    fn places(&self) -> String {
        let line = |pod: &Value| {
            let place = match condition(pod, "PodScheduled").filter(|it| it["status"] == "False") {
                Some(refused) => refused["message"].as_str().unwrap_or_default().to_owned(),
                None => "has a node".to_owned(),
            };
            format!("{}: {place}\n", pod["metadata"]["name"].as_str().unwrap_or_default())
        };
        self.items("pods").iter().map(line).collect()
    }

    fn items(&self, kinds: &str) -> Vec<Value> {
        let text = self.run(&["get", kinds, "--all-namespaces", "-o", "json"]);
        let Value::Object(mut list) = serde_json::from_str(&text).expect("kubectl prints JSON") else {
            return Vec::new();
        };
        list.remove("items").and_then(|it| it.as_array().cloned()).unwrap_or_default()
    }
}

fn is_settled(set: &Value) -> bool {
    let count = |field: &str| set["status"][field].as_u64().unwrap_or_default();
    let wanted = count("desiredNumberScheduled");
    let all = ["currentNumberScheduled", "numberReady", "updatedNumberScheduled", "numberAvailable"];
    set["metadata"]["generation"] == set["status"]["observedGeneration"]
        && all.iter().all(|it| count(it) == wanted)
}

fn is_ready(pod: &Value) -> bool {
    condition(pod, "Ready").is_some_and(|it| it["status"] == "True")
}

fn condition<'a>(pod: &'a Value, kind: &str) -> Option<&'a Value> {
    pod["status"]["conditions"].as_array()?.iter().find(|it| it["type"] == kind)
}

/// What `look` finds, as soon as it finds something.
fn eventually<T>(look: impl Fn() -> Option<T>) -> Option<T> {
    let began = Instant::now();
    loop {
        if let found @ Some(_) = look() {
            return found;
        }
        if PATIENCE < began.elapsed() {
            return None;
        }
        thread::sleep(Duration::from_millis(200));
    }
}

fn indented(text: &str) -> String {
    text.lines().map(|it| format!("  {it}\n")).collect()
}
