//! The controller with exactly the rights that `deploy/kubernetes` gives it: enough for all that it does, and no more.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use muster_agent::sim;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::bed::cluster::TestCluster;
use crate::bed::{fresh_dir, kubectls};
use crate::{command, kubeconfig, text};

const DEPLOY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy");

/// Most of what is waited for takes a second; a machine that is busy with other tests takes its time.
const TIMEOUT: Duration = Duration::from_secs(120);

const ACCOUNT: &str = "system:serviceaccount:muster-system:muster-controller";

/// Asked for only where an admission plugin is on; only when an event comes again; only where a server sends no lists as
/// watches, or a write had no answer.
const RARE: [&str; 9] = [
    "update apps/daemonsets/finalizers",
    "patch /events",
    "list /nodes",
    "list /pods",
    "list apps/controllerrevisions",
    "list /namespaces",
    "list muster.dev/clusterrolloutpolicies",
    "list muster.dev/daemonrollouts",
    "list muster.dev/rolloutpolicies",
];

const SET: &str = r#"{
  "apiVersion": "apps/v1",
  "kind": "DaemonSet",
  "metadata": {"name": "web", "namespace": "default"},
  "spec": {
    "revisionHistoryLimit": 1,
    "selector": {"matchLabels": {"app": "web"}},
    "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "100%"}},
    "template": {
      "metadata": {"labels": {"app": "web"}},
      "spec": {"terminationGracePeriodSeconds": 1, "containers": [{"name": "c", "image": "web:1"}]}
    }
  }
}"#;

const POLICIES: &str = r#"{
  "apiVersion": "v1",
  "kind": "List",
  "items": [
    {
      "apiVersion": "muster.dev/v1alpha1",
      "kind": "RolloutPolicy",
      "metadata": {"name": "careful", "namespace": "default"},
      "spec": {"daemonSets": ["web"], "replace": {"method": "Evict"}}
    },
    {
      "apiVersion": "muster.dev/v1alpha1",
      "kind": "ClusterRolloutPolicy",
      "metadata": {"name": "every"},
      "spec": {"selector": {}}
    }
  ]
}"#;

const BUDGET: &str = r#"{
  "apiVersion": "policy/v1",
  "kind": "PodDisruptionBudget",
  "metadata": {"name": "web", "namespace": "default"},
  "spec": {"minAvailable": AVAILABLE, "selector": {"matchLabels": {"app": "web"}}}
}"#;

/// A server that tells every request, and nodes; there is no controller yet.
struct Cluster {
    dir: PathBuf,
    kubectl: PathBuf,
    servers: TestCluster,
    nodes: tokio::runtime::Runtime,
}

impl Cluster {
    fn start(name: &str) -> Self {
        let dir = fresh_dir(name);
        fs::create_dir_all(&dir).unwrap();
        let audit = dir.join("audit");
        // The status of policies is left to the controller under test.
        let flags = ["--without", "rollout-policy", "--audit-log", audit.to_str().unwrap()];
        let servers = TestCluster::serve(&dir, &flags);

        let nodes =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        nodes.block_on(async {
            let options = sim::FleetOptions { count: 3, ..sim::FleetOptions::default() };
            let nodes = sim::Fleet::register(servers.client().await, options).await.unwrap();
            tokio::spawn(nodes.run(CancellationToken::new()));
        });
        let kubectl = kubectls().into_values().next_back().expect("there is one");
        Self { dir, kubectl, servers, nodes }
    }

    fn says(&self, args: &[&str]) -> Result<String, String> {
        let kubeconfig = self.dir.join("kubeconfig");
        let output =
            command(&self.kubectl, &self.dir).env("KUBECONFIG", kubeconfig).args(args).output().unwrap();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }

    /// As the administrator, whose command works.
    fn admin(&self, args: &[&str]) -> String {
        self.says(args).unwrap_or_else(|said| panic!("kubectl {args:?}: {said}"))
    }

    fn apply(&self, name: &str, object: &str) {
        let path = self.dir.join(name);
        fs::write(&path, object).unwrap();
        self.admin(&["apply", "-f", path.to_str().unwrap()]);
    }

    fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.admin(&[args, &["-o", "json"]].concat())).unwrap()
    }

    /// Waits until what `look` says is `Some`.
    fn until<T>(&self, what: &str, look: impl Fn(&Self) -> Option<T>) -> T {
        let began = Instant::now();
        loop {
            if let Some(seen) = look(self) {
                return seen;
            }
            let pods = || self.says(&["get", "ds,pods,controllerrevisions", "-o", "wide"]);
            assert!(began.elapsed() < TIMEOUT, "{what} never came:\n{:?}", pods());
            thread::sleep(Duration::from_millis(200));
        }
    }

    /// The set's own pods, once each node has one of the image and nothing is left to do.
    fn rolled_out(&self, image: &str) -> Vec<String> {
        self.until(image, |it| {
            let set = it.says(&["get", "ds", "web", "-o", "json"]).ok()?;
            let set: Value = serde_json::from_str(&set).unwrap();
            let status = &set["status"];
            let is_seen = status["observedGeneration"] == set["metadata"]["generation"];
            let are_up = ["updatedNumberScheduled", "numberAvailable"].iter().all(|it| status[*it] == 3);
            let pods = it.json(&["get", "pods", "-l", "app=web"]);
            let pods = pods["items"].as_array().unwrap().clone();
            let is_new = |pod: &Value| {
                pod["spec"]["containers"][0]["image"] == image
                    && pod["metadata"]["ownerReferences"][0]["uid"] == set["metadata"]["uid"]
            };
            let is_done = is_seen && are_up && pods.len() == 3 && pods.iter().all(is_new);
            is_done.then(|| pods.iter().map(name).collect())
        })
    }

    fn stop(self) {
        self.nodes.shutdown_background();
        self.servers.stop();
    }
}

fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap().to_owned()
}

/// A test that fails must leave nothing behind.
struct Process(Child);

impl Process {
    /// As SIGTERM from a kubelet: it ends in order.
    fn end(&mut self) {
        assert!(Command::new("kill").args(["-TERM", &self.0.id().to_string()]).status().unwrap().success());
        assert_eq!(self.0.wait().unwrap().code(), Some(0));
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
#[ignore = "needs kubectl"]
fn the_role_is_enough_and_every_verb_of_it_is_used() {
    let cluster = Cluster::start("deploy");
    cluster.admin(&["apply", "-k", &format!("{DEPLOY}/kubernetes/access")]);
    cluster.admin(&["apply", "-f", &format!("{DEPLOY}/kubernetes/access/eviction-role.yaml")]);
    let token = cluster.admin(&["create", "token", "muster-controller", "-n", "muster-system"]);
    let account = kubeconfig(&cluster.kubectl, &cluster.dir, "account", &["--token", token.trim()]);
    let mut first = start_controller(&account);
    cluster
        .until("a leader", |it| it.says(&["get", "lease", "-n", "muster-system", "muster-controller"]).ok());
    let mut second = start_controller(&account);
    exercise(&cluster);
    first.end();
    // The other one goes on where the first has ended.
    cluster.admin(&["set", "image", "ds/web", "c=web:5"]);
    cluster.rolled_out("web:5");
    second.end();
    let mut release = Command::new(env!("CARGO_BIN_EXE_muster"));
    release.args([
        "controller",
        "release",
        "--leader-elect-resource-namespace",
        "muster-system",
        "--kubeconfig",
    ]);
    let released = release.arg(&account).output().unwrap();
    assert!(released.status.success(), "{}", text(&released.stderr));

    let asked = asked(&cluster.dir.join("audit"));
    let forbidden: Vec<_> = asked.iter().filter(|it| it.ends_with(" 403")).collect();
    assert_eq!(forbidden, Vec::<&String>::new(), "what the role should have allowed");
    let used: BTreeSet<String> =
        asked.iter().filter_map(|it| it.rsplit_once(' ')).map(|(what, _)| what.to_owned()).collect();
    let granted = granted(&cluster);
    let unused: Vec<_> = granted.difference(&used).filter(|it| !RARE.contains(&it.as_str())).collect();
    assert_eq!(unused, Vec::<&String>::new(), "what the role could do without");
    cluster.stop();
}

fn start_controller(account: &Path) -> Process {
    let mut controller = Command::new(env!("CARGO_BIN_EXE_muster"));
    controller
        .args(["controller", "--binding", "direct", "--metrics-addr", "off", "--kubeconfig"])
        .arg(account);
    controller.args(["--leader-elect-resource-namespace", "muster-system", "--log-level", "warn"]);
    Process(controller.spawn().unwrap())
}

/// Everything that a controller does, once.
fn exercise(cluster: &Cluster) {
    // A pod on each node, and a revision.
    cluster.apply("set", SET);
    let pods = cluster.rolled_out("web:1");
    // New revisions, with old ones pruned; then the second is the newest again.
    for image in ["web:2", "web:3"] {
        cluster.admin(&["set", "image", "ds/web", &format!("c={image}")]);
        cluster.rolled_out(image);
    }
    cluster.admin(&["rollout", "undo", "ds/web"]);
    cluster.rolled_out("web:2");
    // A pod that no longer matches is let go, and one that matches again is taken back.
    let stray = cluster.json(&["get", "pods", "-l", "app=web"])["items"][0].clone();
    assert!(!pods.contains(&name(&stray)));
    cluster.admin(&["label", "pod", &name(&stray), "app-"]);
    cluster.until("a pod without its set", |it| {
        let pod = it.json(&["get", "pod", &name(&stray)]);
        pod["metadata"]["ownerReferences"].is_null().then_some(())
    });
    cluster.rolled_out("web:2");
    cluster.admin(&["delete", "ds", "web", "--cascade=orphan"]);
    cluster.apply("set", &SET.replace("web:1", "web:2"));
    cluster.rolled_out("web:2");
    // Another's revision has the name that ours would have.
    cluster.admin(&["set", "image", "ds/web", "c=web:4"]);
    cluster.rolled_out("web:4");
    let revisions = cluster.json(&["get", "controllerrevisions", "-l", "app=web"]);
    let newest = revisions["items"].as_array().unwrap().iter().max_by_key(|it| it["revision"].as_u64());
    let taken = name(newest.unwrap());
    cluster.admin(&["delete", "ds", "web", "--cascade=foreground"]);
    cluster.apply(
        "taken",
        &format!(
            r#"{{"apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": {{"name": "{taken}", "namespace": "default"}},
               "data": {{"of": "somebody else"}}, "revision": 1}}"#
        ),
    );
    cluster.apply("set", &SET.replace("web:1", "web:4"));
    cluster.rolled_out("web:4");
    cluster.until("the collision", |it| {
        (it.json(&["get", "ds", "web"])["status"]["collisionCount"] == 1).then_some(())
    });
    // Policies: each has a status, and a rollout evicts the pods.
    cluster.apply("policies", POLICIES);
    let policy = |it: &Cluster, kind: &str, name: &str| {
        let policy = it.json(&["get", kind, name]);
        policy["status"].is_object().then(|| policy["status"].clone())
    };
    cluster.until("the status of the policies", |it| {
        let (careful, every) = (policy(it, "rpol", "careful")?, policy(it, "crpol", "every")?);
        let is_conflict = |it: &Value| it["type"] == "Conflict" && it["status"] == "True";
        let is_known = every["conditions"].as_array()?.iter().any(is_conflict);
        (careful["sets"]["matched"] == 1 && is_known).then_some(())
    });
    cluster.until("the first rollout", |it| phase(it).filter(|it| it == "Complete"));
    let budget = |it: &Cluster, available: &str| {
        it.apply("budget", &BUDGET.replace("AVAILABLE", available));
    };
    budget(cluster, "3");
    cluster.admin(&["set", "image", "ds/web", "c=web:6"]);
    cluster.until("a rollout that the budget holds", |it| {
        let rollout = it.json(&["get", "dro", "web"]);
        let message = rollout["status"]["message"].as_str()?;
        message.contains("evictions refused: a PodDisruptionBudget blocks").then_some(())
    });
    cluster.until("the rolling count", |it| {
        (policy(it, "rpol", "careful")?["sets"]["rolling"] == 1).then_some(())
    });
    budget(cluster, "1");
    cluster.rolled_out("web:6");
    cluster.until("the end of the rollout", |it| phase(it).filter(|it| it == "Complete"));
    cluster.admin(&["delete", "pdb", "web"]);
}

/// The phase of the DaemonRollout.
fn phase(cluster: &Cluster) -> Option<String> {
    let rollout = cluster.says(&["get", "dro", "web", "-o", "json"]).ok()?;
    let rollout: Value = serde_json::from_str(&rollout).unwrap();
    rollout["status"]["phase"].as_str().map(str::to_owned)
}

/// What the account asked for, and how it was answered: `VERB GROUP/RESOURCE CODE`.
fn asked(audit: &Path) -> BTreeSet<String> {
    let mut asked = BTreeSet::new();
    for line in text(&fs::read(audit).unwrap()).lines() {
        let event: Value = serde_json::from_str(line).unwrap();
        if event["user"]["username"] != ACCOUNT {
            continue;
        }
        let on = &event["objectRef"];
        let part = |name: &str| on[name].as_str().unwrap_or_default().to_owned();
        let mut resource = format!("{}/{}", part("apiGroup"), part("resource"));
        if on.is_null() {
            resource = event["requestURI"].as_str().unwrap().to_owned();
        } else if !on["subresource"].is_null() {
            resource = format!("{resource}/{}", part("subresource"));
        }
        let verb = event["verb"].as_str().unwrap();
        asked.insert(format!("{verb} {resource} {}", event["responseStatus"]["code"]));
    }
    asked
}

/// What the account may do, in the same words.
fn granted(cluster: &Cluster) -> BTreeSet<String> {
    let roles = [
        cluster.json(&["get", "clusterrole", "muster-controller"]),
        cluster.json(&["get", "clusterrole", "muster-controller-eviction"]),
        cluster.json(&["get", "role", "-n", "muster-system", "muster-controller-lease"]),
    ];
    let words = |it: &Value| -> Vec<String> {
        it.as_array().unwrap().iter().map(|it| it.as_str().unwrap().to_owned()).collect()
    };
    let mut granted = BTreeSet::new();
    for rule in roles.iter().flat_map(|it| it["rules"].as_array().unwrap()) {
        for group in words(&rule["apiGroups"]) {
            for resource in words(&rule["resources"]) {
                for verb in words(&rule["verbs"]) {
                    granted.insert(format!("{verb} {group}/{resource}"));
                }
            }
        }
    }
    granted
}

/// Every kubectl reads the manifests, as kustomize does, and applies those of a kind that this server has.
#[test]
#[ignore = "needs kubectl"]
fn every_kubectl_applies_the_manifests() {
    let mut cluster = Cluster::start("deploy-manifests");
    for (version, kubectl) in kubectls() {
        cluster.kubectl = kubectl;
        let minor: u32 = version.split('.').nth(1).and_then(|it| it.parse().ok()).unwrap_or(0);
        // Older ones have a kustomize that knows no `patches`.
        if minor < 21 {
            continue;
        }
        let said = cluster.admin(&["apply", "-k", &format!("{DEPLOY}/kubernetes/access")]);
        // The server has the roles for rollouts from the start, without the label of the manifests.
        let is_applied = |it: &str| {
            let is_configured = it.contains("muster-rollout-") && it.ends_with(" configured");
            it.ends_with(" created") || it.ends_with(" unchanged") || is_configured
        };
        assert!(said.lines().all(is_applied), "{version}: {said}");
        for of in ["kubernetes", "kubernetes/assist", "monitoring"] {
            let built = cluster.admin(&["kustomize", &format!("{DEPLOY}/{of}")]);
            assert!(built.contains("image: muster:0.1.0"), "{version}: {built}");
        }
    }
    cluster.stop();
}
