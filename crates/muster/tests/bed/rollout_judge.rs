//! The judge of rollouts: follows the pods of a DaemonSet by a watch, while servers and etcd fail, and checks every state
//! against the budget of the rollout.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

/// Time without an event after which a watch is opened again. The server of the watch may be gone.
const WATCH_SILENCE: Duration = Duration::from_secs(5);

/// The label of pods that has the version of their template.
const VERSION: &str = "version";

/// A DaemonSet in the namespace `default` with `maxUnavailable` 1, whose pods have a label `app` with its name, and a
/// label [`VERSION`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct JudgedSet {
    pub(crate) name: &'static str,
    pub(crate) nodes: usize,
    /// `minReadySeconds`.
    pub(crate) min_ready: SignedDuration,
}

/// The pods of a DaemonSet by name, and the `resourceVersion` at which they were so.
#[derive(Debug, Clone)]
pub(crate) struct PodsAt {
    pub(crate) pods: BTreeMap<String, Pod>,
    resource_version: String,
}

/// Adds the labels, the rolling update and the `minReadySeconds` of a judged DaemonSet to its manifest.
pub(crate) fn complete_manifest(manifest: &mut Value, set: &JudgedSet, version: &str) {
    let labels = json!({"app": set.name, VERSION: version});
    manifest["spec"]["selector"] = json!({"matchLabels": {"app": set.name}});
    manifest["spec"]["template"]["metadata"]["labels"] = labels;
    manifest["spec"]["minReadySeconds"] = json!(set.min_ready.as_secs());
    manifest["spec"]["updateStrategy"] =
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}});
}

/// A patch of a DaemonSet that begins a rollout.
pub(crate) fn version_patch(version: &str) -> Value {
    json!({"spec": {"template": {"metadata": {"labels": {VERSION: version}}}}})
}

/// Repeats a call until it succeeds. Fails after `limit`.
pub(crate) async fn retry<T>(
    limit: Duration,
    what: &str,
    mut call: impl AsyncFnMut() -> Result<T, kube::Error>,
) -> T {
    let began = Instant::now();
    loop {
        match call().await {
            Ok(done) => return done,
            Err(error) => assert!(began.elapsed() < limit, "{what}: {error}"),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn version(pod: &Pod) -> &str {
    pod.labels().get(VERSION).map_or("", String::as_str)
}

/// The node of a daemon pod, which has a node before it is scheduled to it.
fn node(pod: &Pod) -> String {
    let affinity = serde_json::to_value(&pod.spec.as_ref().unwrap().affinity).unwrap();
    let fields =
        "/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0/matchFields/0";
    affinity.pointer(&format!("{fields}/values/0")).and_then(|it| it.as_str()).unwrap().to_owned()
}

/// Since when a pod is Ready. `None` if it is not.
fn ready_since(pod: &Pod) -> Option<Timestamp> {
    let conditions = pod.status.iter().flat_map(|it| it.conditions.iter().flatten());
    let ready = conditions.into_iter().find(|it| it.type_ == "Ready" && it.status == "True")?;
    Some(ready.last_transition_time.as_ref().unwrap().0)
}

/// When the deletion of a pod was requested. `None` if it is not being deleted.
fn deleted_at(pod: &Pod) -> Option<Timestamp> {
    let grace = SignedDuration::from_secs(pod.metadata.deletion_grace_period_seconds.unwrap_or(0));
    Some(pod.metadata.deletion_timestamp.as_ref()?.0 - grace)
}

fn live(pods: &BTreeMap<String, Pod>) -> impl Iterator<Item = &Pod> {
    pods.values().filter(|it| deleted_at(it).is_none())
}

/// One line for each pod, for messages.
pub(crate) fn describe(pods: &BTreeMap<String, Pod>) -> String {
    let line = |it: &Pod| {
        let (since, deleted) = (ready_since(it), deleted_at(it));
        format!(
            "{} {} {} ready since {since:?}, deleted at {deleted:?}",
            node(it),
            it.name_any(),
            version(it)
        )
    };
    pods.values().map(line).collect::<Vec<_>>().join("\n")
}

impl JudgedSet {
    fn selector(&self) -> String {
        format!("app={}", self.name)
    }

    /// Lists the pods. Repeats the call for at most `limit`.
    pub(crate) async fn list_pods(&self, client: &Client, limit: Duration) -> PodsAt {
        let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
        let params = ListParams::default().labels(&self.selector());
        let pods = retry(limit, "list the pods", async || pods.list(&params).await).await;
        let resource_version = pods.metadata.resource_version.clone().unwrap();
        PodsAt { pods: pods.items.into_iter().map(|it| (it.name_any(), it)).collect(), resource_version }
    }

    /// Whether every node has one pod of this version, which is Ready, and no other pod.
    pub(crate) fn is_complete(&self, pods: &BTreeMap<String, Pod>, to: &str) -> bool {
        let is_right = |it: &Pod| version(it) == to && ready_since(it).is_some() && deleted_at(it).is_none();
        let nodes: BTreeSet<String> = pods.values().map(node).collect();
        pods.len() == self.nodes && nodes.len() == self.nodes && pods.values().all(is_right)
    }

    /// Follows a rollout by a watch, which continues after its last event when it breaks. So no state is missed, and
    /// each is judged. Sends the number of nodes that have a pod of the new version, and returns the pods after the
    /// rollout.
    ///
    /// Rules of a rollout with `maxUnavailable` 1:
    /// - A node never has two pods that are not being deleted.
    /// - At most one node has no Ready pod.
    /// - A pod is deleted only while all other nodes have Ready pods, and those of the new version have been Ready for
    ///   `minReadySeconds`.
    pub(crate) async fn judge_rollout(
        &self,
        client: &Client,
        mut now: PodsAt,
        to: &str,
        updated: &tokio::sync::watch::Sender<usize>,
    ) -> PodsAt {
        let api: Api<Pod> = Api::namespaced(client.clone(), "default");
        let params = WatchParams::default().labels(&self.selector());
        loop {
            let opened = tokio::time::timeout(WATCH_SILENCE, api.watch(&params, &now.resource_version)).await;
            let mut events = match opened {
                Ok(Ok(events)) => events.boxed(),
                Ok(Err(kube::Error::Api(status))) if status.code == 410 => {
                    panic!("events are lost: {status:?}")
                }
                Ok(Err(_)) | Err(_) => {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            while let Ok(Some(Ok(event))) = tokio::time::timeout(WATCH_SILENCE, events.next()).await {
                let before = now.pods.clone();
                match event {
                    WatchEvent::Added(pod) | WatchEvent::Modified(pod) => {
                        now.resource_version = pod.resource_version().unwrap();
                        now.pods.insert(pod.name_any(), pod);
                    }
                    WatchEvent::Deleted(pod) => {
                        now.resource_version = pod.resource_version().unwrap();
                        now.pods.remove(&pod.name_any());
                    }
                    WatchEvent::Bookmark(bookmark) => {
                        now.resource_version = bookmark.metadata.resource_version;
                        continue;
                    }
                    WatchEvent::Error(status) if status.code == 410 => panic!("events are lost: {status:?}"),
                    WatchEvent::Error(_) => break,
                }
                if let Err(why) = self.check_state(&before, &now.pods, to) {
                    panic!("{why}:\n{}", describe(&now.pods));
                }
                let new: BTreeSet<String> =
                    live(&now.pods).filter(|it| version(it) == to).map(node).collect();
                updated.send_replace(new.len());
                if self.is_complete(&now.pods, to) {
                    return now;
                }
            }
        }
    }

    /// Checks a state of the pods, and the change that led to it, by the rules of [`Self::judge_rollout`].
    fn check_state(
        &self,
        before: &BTreeMap<String, Pod>,
        now: &BTreeMap<String, Pod>,
        to: &str,
    ) -> Result<(), String> {
        let mut nodes = BTreeSet::new();
        if let Some(pod) = live(now).find(|it| !nodes.insert(node(it))) {
            return Err(format!("{} has two pods", node(pod)));
        }
        let ready: BTreeSet<String> = live(now).filter(|it| ready_since(it).is_some()).map(node).collect();
        if ready.len() + 1 < self.nodes {
            return Err(format!("{} nodes have no Ready pod", self.nodes - ready.len()));
        }
        for gone in live(before) {
            let name = gone.name_any();
            let at = match now.get(&name) {
                Some(pod) if pod.uid() == gone.uid() => deleted_at(pod),
                _ => return Err(format!("{name} was removed without a grace period")),
            };
            let Some(at) = at else { continue };
            let is_up = |it: &&Pod| {
                ready_since(it).is_some_and(|since| version(it) != to || since + self.min_ready <= at)
            };
            let up: BTreeSet<String> = live(now).filter(is_up).map(node).collect();
            if up.len() + 1 != self.nodes {
                return Err(format!("{name} was deleted at {at} while {} other nodes were up", up.len()));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SET: JudgedSet = JudgedSet { name: "d", nodes: 2, min_ready: SignedDuration::from_secs(5) };

    /// A pod on a node. Its version is its name. `ready` and `deleted` are seconds of a minute.
    fn pod(node: &str, name: &str, ready: Option<u8>, deleted: Option<u8>) -> (String, Pod) {
        let at = |it: u8| format!("2026-01-01T00:00:{it:02}Z");
        let terms = json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]);
        let pod = json!({
            "metadata": {
                "name": name,
                "uid": name,
                "labels": {VERSION: name},
                "deletionTimestamp": deleted.map(|it| at(it + 1)),
                "deletionGracePeriodSeconds": deleted.map(|_| 1),
            },
            "spec": {
                "containers": [],
                "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}},
            },
            "status": {"conditions": ready.map(|it| json!([{"type": "Ready", "status": "True", "lastTransitionTime": at(it)}]))},
        });
        (name.to_owned(), serde_json::from_value(pod).unwrap())
    }

    #[test]
    fn a_rollout_that_leaves_its_budget_is_found() {
        let before = BTreeMap::from([pod("n1", "a", Some(10), None), pod("n2", "b", Some(0), None)]);
        let check = |now: [(String, Pod); 2], to: &str| SET.check_state(&before, &now.into(), to);
        let is_ready = pod("n1", "a", Some(10), None);
        assert_eq!(check([is_ready.clone(), pod("n2", "b", Some(0), Some(15))], "a"), Ok(()));
        assert_eq!(check([is_ready.clone(), pod("n2", "b", Some(0), Some(14))], "c"), Ok(()));
        assert_eq!(check([is_ready.clone(), pod("n2", "b", None, None)], "a"), Ok(()));
        let found = [
            check([is_ready.clone(), pod("n2", "b", Some(0), Some(14))], "a"),
            check([pod("n1", "a", None, None), pod("n2", "b", None, None)], "a"),
            check([is_ready.clone(), pod("n1", "b", None, None)], "a"),
            check([is_ready, pod("n2", "c", None, None)], "a"),
        ];
        expect_test::expect![[r#"
            b was deleted at 2026-01-01T00:00:14Z while 0 other nodes were up
            2 nodes have no Ready pod
            n1 has two pods
            b was removed without a grace period"#]]
        .assert_eq(&found.map(Result::unwrap_err).join("\n"));
    }
}
