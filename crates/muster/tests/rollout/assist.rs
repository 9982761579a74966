//! `muster controller --assist` and the commands beside it, on a server without a DaemonSet controller of its own. A
//! stand-in of this test has the place of kube-controller-manager: it records revisions, creates a pod of the newest
//! revision on every node without one, and writes the counts.

use muster_engine::daemonset::manifest::{Binding, Owner, controller_revision, daemon_pod, revision_hash};
use tokio::task::JoinHandle;

use super::*;
use crate::bed::cluster::TestCluster;

/// Query parameter with the field manager of kube-controller-manager.
const MANAGER: &str = "fieldManager=kube-controller-manager";

// The commands block the thread of the test, while the stand-in must go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_canary_beside_kube_controller_manager_is_aborted_and_reverted() {
    let cluster = Cluster::serve("assist").await;
    let _nodes = cluster.process(&["sim-nodes", "--count", "3"]);
    let upstream = cluster.run_upstream();
    cluster.create_set_with(json!({"type": "RollingUpdate"})).await;
    cluster.complete_without_policy().await;
    let _controller =
        cluster.process(&["controller", "--assist", "--leader-elect=false", "--metrics-addr", "off"]);
    cluster.create(POLICIES, policy(json!({"steps": canary_steps()}))).await;

    // With RollingUpdate it is refused.
    cluster
        .until("the DaemonSet is refused", async || cluster.condition("Stalled").await == "NotOnDelete")
        .await;
    expect![[r#"
        $ muster rollout status ds/web
        DaemonSet default/web: no DaemonRollout, it follows its update strategy RollingUpdate

        revision    1 (66cc47f568)
        nodes       3 desired: 3 updated, 3 available, 0 unavailable
        refused     NotOnDelete: kube-controller-manager replaces the pods: set spec.updateStrategy.type to OnDelete, or run the controller without --assist

        $ muster rollout pause ds/web
        muster: DaemonSet default/web is not rolled out by a policy (NotOnDelete): kube-controller-manager replaces the pods: set spec.updateStrategy.type to OnDelete, or run the controller without --assist
        [exit 1]
    "#]].assert_eq(&cluster.all(&["status ds/web", "pause ds/web"]));

    let strategy = json!({"spec": {"updateStrategy": {"type": "OnDelete", "rollingUpdate": null}}});
    cluster.merge(&format!("{SETS}/web"), &strategy).await;
    cluster.phase("Complete").await;
    cluster.wait_for_node_age().await;
    expect![[r#"
        $ muster plan -f web.yaml
        DaemonSet default/web: new revision 2
        3 nodes: 0 gain a pod, 0 lose it, 3 get a new one, 0 keep theirs, 0 without

        replaces    3 nodes in 3 batches, maxUnavailable 1
                    1. sim-1 (step canary)
                    2. sim-3 (step rest)
                    3. sim-2 (step rest)
        note        The controller runs in assist mode: a new node, or one whose pod is
                    deleted, gets the new revision before its step, and a failed
                    revision is stopped, not rolled back.

        Nothing was changed. Assumes that every new pod becomes available and nothing
        else changes.
    "#]]
    .assert_eq(&cluster.plan("web:2").await);

    cluster.set_image("web:2").await;
    cluster.phase("Waiting").await;
    // A user deletes the pod of a node that is not admitted.
    cluster.delete_pod_of("sim-3").await;
    cluster
        .until("the node is unassigned", async || {
            cluster.rollout().await["status"]["nodes"]["unassigned"] == 1
                && cluster.images().await == "web:1 web:2 web:2"
                && cluster.rollout().await["status"]["nodes"]["available"] == 2
        })
        .await;
    expect![[r#"
        $ muster rollout status ds/web
        DaemonSet default/web: Waiting, step canary (1 of 2)
        step "canary" waits for approval

        revision    2 (75d7c47879), attempt 1; stable is 1 (66cc47f568)
        policy      RolloutPolicy careful
        mode        assist: a new node, or one whose pod is deleted, gets the newest revision; there is no rollback
        nodes       3 eligible: 1 admitted, 2 updated, 2 available, 2 soaked, 2 held
                    1 held with a pod of a revision that is not good, counted in the step and in the failures
        failures    0 nodes, at most 0 allowed
        next        `muster rollout promote ds/web` approves step canary
                    `muster rollout abort ds/web` stops the rollout; only a reverted template rolls back

        $ muster rollout abort ds/web --dry-run
        default/web: aborted revision 2 (75d7c47879) (dry run)
        The rollout stops, and nodes keep their pods: assist mode cannot roll back.
        Revert the template: then all nodes return to revision 1 (66cc47f568).
        The revision gets the verdict Bad: `muster rollout retry ds/web` starts it again, and a changed template starts a new one.
    "#]].assert_eq(&cluster.all(&["status ds/web", "abort ds/web --dry-run"]));
    expect![[r#"
        $ muster explain ds/web
        DaemonSet default/web: revision 2, generation 3
        3 nodes: 3 should run it (2 up to date, 1 outdated), 0 should not

          NODES  STATE        WHY
              2  up to date   its pod is available
                              sim-1, sim-3
              1  outdated     held by the rollout
                              sim-2

        rollout     follows RolloutPolicy careful, in assist mode
                    Waiting, step "canary" (1 of 2): step "canary" waits for approval
                    1 of 3 nodes admitted; 2 nodes held: no pod there is deleted
                    a new node, or one whose pod is deleted, gets revision 2 even if it
                    is not admitted
                    1 node unassigned: not admitted, but with a revision that is not
                    good; counted in the step and in the failures
                    approve with: muster rollout promote ds/web
                    2 of 3 nodes up to date, 3 available
                    maxUnavailable 1: 0 unavailable, 1 left
    "#]]
    .assert_eq(&cluster.explain());

    expect![[r#"
        $ muster rollout abort ds/web
        default/web: aborted revision 2 (75d7c47879)
        The rollout stops, and nodes keep their pods: assist mode cannot roll back.
        Revert the template: then all nodes return to revision 1 (66cc47f568).
        The revision gets the verdict Bad: `muster rollout retry ds/web` starts it again, and a changed template starts a new one.
    "#]].assert_eq(&cluster.all(&["abort ds/web"]));
    cluster.phase("Stopped").await;
    cluster
        .until("the DaemonSet is stalled", async || cluster.condition("Stalled").await == "CannotRollBack")
        .await;
    expect![[r#"
        $ muster rollout status ds/web
        DaemonSet default/web: Stopped, step canary (1 of 2)
        aborted by an operator; assist mode cannot roll back: revert the template

        revision    2 (75d7c47879), attempt 1; stable is 1 (66cc47f568)
        policy      RolloutPolicy careful
        mode        assist: a new node, or one whose pod is deleted, gets the newest revision; there is no rollback
        nodes       3 eligible: 1 admitted, 2 updated, 2 available, 2 soaked, 2 held
                    1 held with a pod of a revision that is not good, counted in the step and in the failures
        failures    0 nodes, at most 0 allowed
        next        revert or change the template, or:
                    `muster rollout retry ds/web` starts the revision again

        $ muster rollout abort ds/web
        muster: nothing to abort: revision 2 (75d7c47879) of DaemonSet default/web has the verdict Bad, and assist mode cannot roll back: revert the template
        [exit 1]
    "#]].assert_eq(&cluster.all(&["status ds/web", "abort ds/web"]));

    cluster.set_image("web:1").await;
    cluster.phase("Complete").await;
    assert_eq!(cluster.images().await, "web:1 web:1 web:1");
    upstream.abort();
}

/// A process of the real binary, which ends with the test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Cluster {
    /// Starts a server without a DaemonSet controller and without nodes.
    async fn serve(name: &str) -> Self {
        Self::start_with(name, |dir| TestCluster::serve(dir, &[])).await
    }

    fn process(&self, args: &[&str]) -> Process {
        let mut command = Command::new(env!("CARGO_BIN_EXE_muster"));
        command.args(args).arg("--kubeconfig").arg(self.dir.join("kubeconfig"));
        Process(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    /// The reason of a condition of the DaemonSet.
    async fn condition(&self, kind: &str) -> String {
        let set = self.get(&format!("{SETS}/web")).await;
        let conditions = set["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let found = conditions.iter().find(|it| it["type"] == kind);
        found.map(|it| it["reason"].as_str().unwrap().to_owned()).unwrap_or_default()
    }

    /// Deletes the pod on a node.
    async fn delete_pod_of(&self, node: &str) {
        let pods = self.get("/api/v1/namespaces/default/pods").await;
        let pods = pods["items"].as_array().unwrap().clone();
        let pod = pods.iter().find(|it| it["spec"]["nodeName"] == node).unwrap();
        let path = format!("/api/v1/namespaces/default/pods/{}", pod["metadata"]["name"].as_str().unwrap());
        self.send(Request::delete(path), "application/json", &Value::Null).await;
    }

    /// Runs the stand-in of kube-controller-manager until the returned task is aborted.
    fn run_upstream(&self) -> JoinHandle<()> {
        let upstream = Upstream(self.client.clone());
        tokio::spawn(async move {
            loop {
                // A conflict with a write of the test is resolved by the next round.
                let _ = upstream.reconcile().await;
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        })
    }
}

/// The DaemonSet controller of kube-controller-manager, as far as this test needs it.
struct Upstream(Client);

impl Upstream {
    async fn send(&self, request: http::request::Builder, body: &Value) -> Result<Value, kube::Error> {
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let request = request.header("Content-Type", "application/merge-patch+json").body(body).unwrap();
        self.0.request(request).await
    }

    async fn get(&self, path: &str) -> Result<Value, kube::Error> {
        self.send(Request::get(path), &Value::Null).await
    }

    async fn create(&self, path: &str, object: &Value) -> Result<Value, kube::Error> {
        let request = Request::post(format!("{path}?{MANAGER}")).header("Content-Type", "application/json");
        self.0.request(request.body(object.to_string().into_bytes()).unwrap()).await
    }

    async fn reconcile(&self) -> Result<(), kube::Error> {
        let set = self.get(&format!("{SETS}/web")).await?;
        let owner =
            Owner { namespace: "default", name: "web", uid: set["metadata"]["uid"].as_str().unwrap() };
        let template = &set["spec"]["template"];
        let hash = revision_hash(template, None);
        let revisions_path = "/apis/apps/v1/namespaces/default/controllerrevisions";
        let revisions = self.get(revisions_path).await?;
        let revisions = revisions["items"].as_array().unwrap();
        let highest = revisions.iter().map(|it| it["revision"].as_i64().unwrap()).max().unwrap_or(0);
        let name = format!("web-{hash}");
        match revisions.iter().find(|it| it["metadata"]["name"] == *name) {
            None => {
                let annotations = &set["metadata"]["annotations"];
                let revision = controller_revision(owner, annotations, template, &hash, highest + 1);
                self.create(revisions_path, &revision).await?;
            }
            Some(revision) if revision["revision"].as_i64().unwrap() < highest => {
                let path = format!("{revisions_path}/{name}?{MANAGER}");
                self.send(Request::patch(path), &json!({"revision": highest + 1})).await?;
            }
            Some(_) => {}
        }
        let nodes = self.get("/api/v1/nodes").await?;
        let nodes: Vec<&str> = nodes["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| it["metadata"]["name"].as_str().unwrap())
            .collect();
        let pods_path = "/api/v1/namespaces/default/pods";
        let pods = self.get(pods_path).await?;
        let pods = pods["items"].as_array().unwrap();
        for node in &nodes {
            if !pods.iter().any(|it| it["spec"]["nodeName"] == **node) {
                let annotations = &set["metadata"]["annotations"];
                let generation = annotations["deprecated.daemonset.template.generation"].as_str();
                let generation = generation.and_then(|it| it.parse().ok());
                let pod = daemon_pod(owner, template, node, &hash, generation, Binding::Direct);
                self.create(pods_path, &pod).await?;
            }
        }
        let is_ready = |it: &&Value| {
            let conditions = it["status"]["conditions"].as_array();
            conditions.into_iter().flatten().any(|it| it["type"] == "Ready" && it["status"] == "True")
        };
        let ready = pods.iter().filter(is_ready).count();
        let is_new = |it: &&Value| it["metadata"]["labels"]["controller-revision-hash"] == *hash;
        let counts = json!({
            "observedGeneration": set["metadata"]["generation"],
            "desiredNumberScheduled": nodes.len(),
            "currentNumberScheduled": pods.len(),
            "updatedNumberScheduled": pods.iter().filter(is_new).count(),
            "numberReady": ready,
            "numberAvailable": ready,
            "numberUnavailable": nodes.len().saturating_sub(ready),
        });
        if counts.as_object().unwrap().iter().any(|(field, count)| set["status"][field] != *count) {
            let path = format!("{SETS}/web/status?{MANAGER}");
            self.send(Request::patch(path), &json!({"status": counts})).await?;
        }
        Ok(())
    }
}
