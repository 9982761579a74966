//! Simulated nodes: any number in one process, all behind one watch of the pods.
//!
//! A pod bound to one of them becomes Running and Ready, and goes when it is deleted; one whose image no registry has
//! stays Pending. What a pod needs next is read from the pod alone ([`Step::of`]), so a watch that is lost and begins
//! anew changes nothing.

use std::collections::{BTreeMap, HashSet};
use std::net::Ipv4Addr;
use std::pin::pin;
use std::time::Duration;

use futures::stream::FuturesUnordered;
use futures::{StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Container, Node, Pod};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Resource as _, ResourceExt as _};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// How long a container takes to start or to stop: long enough to be seen.
const STEP_TAKES: Duration = Duration::from_millis(300);

/// After a step that failed for no reason of its own, such as a lost connection.
const STEP_RETRY: Duration = Duration::from_secs(1);

/// As the kubelet: a heartbeat every 10 s, and four may be missed.
const HEARTBEAT_EVERY: Duration = Duration::from_secs(10);
const LEASE_S: u64 = 40;

const LEASE_NAMESPACE: &str = "kube-node-lease";

/// Every image can be had but those with this in their name: so one can see a rollout that is stuck.
const NO_SUCH_IMAGE: &str = "non-existent";

/// Two bytes of the nodes' addresses tell them apart.
pub const NODES_MAX: u16 = 50_000;

#[expect(missing_debug_implementations, reason = "the client has none")]
pub struct Nodes {
    client: Client,
    /// By name, the node's number: its addresses follow from it.
    numbers: BTreeMap<String, u16>,
}

/// Makes `count` nodes known to the API server, Ready.
pub async fn register(client: Client, count: u16) -> kube::Result<Nodes> {
    assert!(count <= NODES_MAX, "{count} nodes are more than there are addresses");
    let numbers: BTreeMap<String, u16> = (1..=count).map(|it| (format!("sim-{it}"), it)).collect();
    let nodes: Api<Node> = Api::all(client.clone());
    for (name, number) in &numbers {
        let node = node(name, *number, Timestamp::now());
        let typed = serde_json::from_value(node.clone()).map_err(kube::Error::SerdeError)?;
        match nodes.create(&PostParams::default(), &typed).await {
            Err(kube::Error::Api(refused)) if refused.code == 409 => {
                let status = Patch::Merge(json!({"status": node["status"]}));
                nodes.patch_status(name, &PatchParams::default(), &status).await?;
            }
            other => {
                other?;
                // A new node is tainted until it is seen to be ready, and this one is.
                let untainted = Patch::Merge(json!({"spec": {"taints": null}}));
                nodes.patch(name, &PatchParams::default(), &untainted).await?;
            }
        }
    }
    Ok(Nodes { client, numbers })
}

impl Nodes {
    /// Plays the nodes until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.beat() => {}
            () = self.serve_pods() => {}
        }
    }

    async fn beat(&self) {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), LEASE_NAMESPACE);
        let mut due = tokio::time::interval(HEARTBEAT_EVERY);
        loop {
            due.tick().await;
            for name in self.numbers.keys() {
                if let Err(error) = renew(&self.client, &leases, name).await {
                    tracing::warn!(node = name, %error, "a heartbeat failed; the next one is due soon");
                }
            }
        }
    }

    async fn serve_pods(&self) {
        let pods = watcher::watcher(Api::<Pod>::all(self.client.clone()), watcher::Config::default());
        let mut pods = pin!(pods.default_backoff().applied_objects());
        let mut under_way = HashSet::new();
        let mut steps = FuturesUnordered::new();
        loop {
            tokio::select! {
                pod = pods.try_next() => match pod {
                    Ok(Some(pod)) => {
                        let Some(task) = self.task(&pod) else { continue };
                        if under_way.insert(task.id()) {
                            steps.push(self.carry_out(task));
                        }
                    }
                    Ok(None) => return,
                    Err(error) => tracing::warn!(%error, "the watch of the pods was lost; it begins anew"),
                },
                Some(id) = steps.next() => {
                    under_way.remove(&id);
                }
            }
        }
    }

    fn task(&self, pod: &Pod) -> Option<Task> {
        let number = *self.numbers.get(pod.spec.as_ref()?.node_name.as_ref()?)?;
        Some(Task {
            namespace: pod.namespace()?,
            name: pod.name_any(),
            uid: pod.uid()?,
            step: Step::of(pod, number, Timestamp::now())?,
        })
    }

    /// Tries until the step is done, or there is nothing left to do it to.
    async fn carry_out(&self, task: Task) -> (String, &'static str) {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &task.namespace);
        tokio::time::sleep(STEP_TAKES).await;
        loop {
            let done = match &task.step {
                Step::Start { status } => {
                    let patch = json!({"metadata": {"uid": task.uid}, "status": status});
                    let params = PatchParams::default();
                    pods.patch_status(&task.name, &params, &Patch::Merge(patch)).await.map(drop)
                }
                Step::Remove => {
                    let uid = Some(task.uid.clone());
                    let params = DeleteParams {
                        preconditions: Some(Preconditions { uid, resource_version: None }),
                        ..DeleteParams::default().grace_period(0)
                    };
                    pods.delete(&task.name, &params).await.map(drop)
                }
            };
            match done {
                Ok(()) => return task.id(),
                // It is gone, or another one has its name now.
                Err(kube::Error::Api(refused)) if matches!(refused.code, 404 | 409) => return task.id(),
                Err(error) => {
                    tracing::warn!(pod = task.name, %error, "try again");
                    tokio::time::sleep(STEP_RETRY).await;
                }
            }
        }
    }
}

#[derive(Debug)]
struct Task {
    namespace: String,
    name: String,
    uid: String,
    step: Step,
}

impl Task {
    fn id(&self) -> (String, &'static str) {
        let step = match self.step {
            Step::Start { .. } => "start",
            Step::Remove => "remove",
        };
        (self.uid.clone(), step)
    }
}

/// What the node does next for a pod.
#[derive(Debug, PartialEq)]
enum Step {
    Start { status: Value },
    Remove,
}

impl Step {
    fn of(pod: &Pod, node: u16, now: Timestamp) -> Option<Self> {
        if pod.meta().deletion_timestamp.is_some() {
            return Some(Self::Remove);
        }
        let phase = pod.status.as_ref().and_then(|it| it.phase.as_deref());
        let told = pod.status.as_ref().is_some_and(|it| it.container_statuses.is_some());
        let stuck = told && containers(pod).any(lacks_image);
        let due = matches!(phase, None | Some("Pending")) && !stuck;
        due.then(|| Self::Start { status: status(pod, node, now) })
    }
}

/// What the node says of a pod that it has started, or has tried to start.
fn status(pod: &Pod, node: u16, now: Timestamp) -> Value {
    let now = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let uid = pod.uid().unwrap_or_default();
    let host_ip = host_ip(node).to_string();
    let on_host = pod.spec.as_ref().and_then(|it| it.host_network).unwrap_or(false);
    let pod_ip = if on_host { host_ip.clone() } else { pod_ip(node, &uid).to_string() };
    let up = !containers(pod).any(lacks_image);
    let container = |it: &Container| {
        if up {
            return json!({
                "name": it.name,
                "image": it.image,
                "imageID": "",
                "containerID": format!("sim://{uid}/{}", it.name),
                "ready": true,
                "started": true,
                "restartCount": 0,
                "state": {"running": {"startedAt": now}},
            });
        }
        let waiting = if lacks_image(it) {
            let image = it.image.as_deref().unwrap_or_default();
            json!({"reason": "ImagePullBackOff", "message": format!("no registry has the image {image:?}")})
        } else {
            json!({"reason": "ContainerCreating"})
        };
        json!({
            "name": it.name,
            "image": it.image,
            "imageID": "",
            "ready": false,
            "started": false,
            "restartCount": 0,
            "state": {"waiting": waiting},
        })
    };
    let condition = |(kind, holds): (&str, bool)| {
        let status = if holds { "True" } else { "False" };
        json!({"type": kind, "status": status, "lastTransitionTime": now})
    };
    let conditions = [
        ("PodScheduled", true),
        ("PodReadyToStartContainers", true),
        ("Initialized", true),
        ("ContainersReady", up),
        ("Ready", up),
    ];
    json!({
        "phase": if up { "Running" } else { "Pending" },
        "conditions": conditions.map(condition),
        "hostIP": host_ip,
        "hostIPs": [{"ip": host_ip}],
        "podIP": pod_ip,
        "podIPs": [{"ip": pod_ip}],
        "startTime": now,
        "containerStatuses": containers(pod).map(container).collect::<Vec<_>>(),
    })
}

fn containers(pod: &Pod) -> impl Iterator<Item = &Container> {
    pod.spec.iter().flat_map(|it| &it.containers)
}

fn lacks_image(container: &Container) -> bool {
    container.image.as_ref().is_some_and(|it| it.contains(NO_SUCH_IMAGE))
}

fn host_ip(node: u16) -> Ipv4Addr {
    let [high, low] = node.to_be_bytes();
    Ipv4Addr::new(10, 200, high, low)
}

/// Nobody sends packets there, so it is enough that the pods of a node seldom share an address.
fn pod_ip(node: u16, uid: &str) -> Ipv4Addr {
    let [high, low] = node.to_be_bytes();
    let last = uid.bytes().fold(0_u8, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte));
    Ipv4Addr::new(10, high, low, last)
}

fn node(name: &str, number: u16, now: Timestamp) -> Value {
    let now = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let arch = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let condition = |kind: &str, status: &str, reason: &str| {
        json!({
            "type": kind,
            "status": status,
            "reason": reason,
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        })
    };
    let resources = json!({"cpu": "4", "memory": "8Gi", "ephemeral-storage": "64Gi", "pods": "110"});
    json!({
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": arch,
            },
        },
        "status": {
            "capacity": resources,
            "allocatable": resources,
            "addresses": [
                {"type": "InternalIP", "address": host_ip(number).to_string()},
                {"type": "Hostname", "address": name},
            ],
            "conditions": [
                condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
                condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
                condition("PIDPressure", "False", "KubeletHasSufficientPID"),
                condition("Ready", "True", "KubeletReady"),
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 0}},
            "nodeInfo": {
                "machineID": "",
                "systemUUID": "",
                "bootID": "",
                "kernelVersion": "simulated",
                "osImage": "simulated",
                "containerRuntimeVersion": "sim://0",
                "kubeletVersion": concat!("muster-sim-", env!("CARGO_PKG_VERSION")),
                "kubeProxyVersion": "",
                "operatingSystem": "linux",
                "architecture": arch,
            },
        },
    })
}

async fn renew(client: &Client, leases: &Api<Lease>, node: &str) -> kube::Result<()> {
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
    let patch = Patch::Merge(json!({"spec": {"renewTime": now}}));
    match leases.patch(node, &PatchParams::default(), &patch).await {
        Err(kube::Error::Api(refused)) if refused.code == 404 => {
            let spec = json!({"holderIdentity": node, "leaseDurationSeconds": LEASE_S, "renewTime": now});
            // It goes with its node, and does not come again without it.
            let Some(owner) = Api::<Node>::all(client.clone()).get_opt(node).await? else { return Ok(()) };
            let owner = json!({"apiVersion": "v1", "kind": "Node", "name": node, "uid": owner.uid()});
            let lease = json!({"metadata": {"name": node, "ownerReferences": [owner]}, "spec": spec});
            let lease = serde_json::from_value(lease).map_err(kube::Error::SerdeError)?;
            leases.create(&PostParams::default(), &lease).await.map(drop)
        }
        other => other.map(drop),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pod: Value, step: Option<&str>) {
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let said = Step::of(&pod, 1, Timestamp::UNIX_EPOCH).map(|step| match step {
            Step::Start { status } => {
                let container = &status["containerStatuses"][0];
                let reason = &container["state"]["waiting"]["reason"];
                let (ip, host, name) = (&status["podIP"], &status["hostIP"], &container["name"]);
                format!("{} {ip} {host} {name} {reason}", status["phase"])
            }
            Step::Remove => "remove".to_owned(),
        });
        assert_eq!(said.as_deref(), step);
    }

    #[test]
    fn a_pod_says_what_it_needs() {
        let spec = json!({"containers": [{"name": "c"}]});
        check(
            json!({"metadata": {"uid": "u"}, "spec": spec, "status": {"phase": "Pending"}}),
            Some(r#""Running" "10.0.1.117" "10.200.0.1" "c" null"#),
        );
        let on_host = json!({"hostNetwork": true, "containers": [{"name": "c"}]});
        check(
            json!({"metadata": {"uid": "u"}, "spec": on_host}),
            Some(r#""Running" "10.200.0.1" "10.200.0.1" "c" null"#),
        );
        check(json!({"metadata": {}, "spec": spec, "status": {"phase": "Running"}}), None);
        check(json!({"metadata": {}, "spec": spec, "status": {"phase": "Succeeded"}}), None);
        let missing = json!({"containers": [{"name": "c", "image": "web:non-existent"}]});
        check(
            json!({"metadata": {"uid": "u"}, "spec": missing, "status": {"phase": "Pending"}}),
            Some(r#""Pending" "10.0.1.117" "10.200.0.1" "c" "ImagePullBackOff""#),
        );
        let told = json!({"phase": "Pending", "containerStatuses": []});
        check(json!({"metadata": {}, "spec": missing, "status": told}), None);
        check(
            json!({"metadata": {"uid": "u"}, "spec": spec, "status": told}),
            Some(r#""Running" "10.0.1.117" "10.200.0.1" "c" null"#),
        );
        let going = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
        check(json!({"metadata": going, "spec": spec, "status": {"phase": "Running"}}), Some("remove"));
    }
}
