//! Pod lifecycle event generator. Wakes the worker of a pod when its sandbox or containers change in the runtime.
//! Changes are detected by the runtime's events and by periodic relists. Upstream: PLEG.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use muster_api::object_key::ObjectKey;
use muster_engine::kubelet::pod;
use tokio::sync::Notify;

use super::pod_manager::PodEntry;
use super::{NodeAgent, orphans};
use crate::runtime::{Runtime, RuntimeError, label};

/// Interval at which the containers of the runtime are listed. A list finds orphans, and changes that caused no event.
const RELIST_INTERVAL: Duration = Duration::from_secs(20);
/// Delay before a broken stream of runtime events is opened again. Also the time after which all pods are synced again
/// if the stream is not open yet.
const RECONNECT_DELAY: Duration = Duration::from_secs(1);

/// Watches the runtime's exit events and records each exit. Wakes the worker of a pod when one of the pod's containers
/// or its sandbox exits. Wakes all workers when the stream of events is opened, and when opening it takes longer than
/// [`RECONNECT_DELAY`]. Never returns.
pub(super) async fn watch_exits<R: Runtime>(node: &Arc<NodeAgent<R>>) {
    let mut is_healthy = true;
    loop {
        let mut opening = pin!(node.runtime.watch_exits());
        let opened = tokio::select! {
            opened = &mut opening => opened,
            // A runtime may respond only with its first event; exits before that are found by a resync.
            () = tokio::time::sleep(RECONNECT_DELAY) => {
                resync_all_pods(node);
                opening.await
            }
        };
        match opened {
            Ok(mut exits) => {
                is_healthy = true;
                resync_all_pods(node);
                while let Some(Ok(id)) = exits.next().await {
                    let entry = find_pod_by_runtime_id(node, &id);
                    node.pods.record_exit(id);
                    if let Some(entry) = entry {
                        entry.notify_worker(|update| update.runtime_changed = true);
                    }
                }
            }
            Err(error) if is_healthy => {
                is_healthy = false;
                tracing::warn!("cannot watch the runtime's events, retrying: {error}");
            }
            Err(_) => {}
        }
        tokio::time::sleep(RECONNECT_DELAY).await;
    }
}

/// Returns the pod whose last-read runtime state has the container or sandbox with this ID, or `None` if there is none.
fn find_pod_by_runtime_id<R: Runtime>(node: &NodeAgent<R>, id: &str) -> Option<Arc<PodEntry>> {
    let all = node.pods.all_pods();
    all.into_iter().find(|it| {
        let state = it.snapshot().runtime_state;
        state.containers.iter().any(|it| *it.id == *id) || state.sandboxes.iter().any(|it| *it.id == *id)
    })
}

/// Makes all workers read the runtime state of their pods again.
fn resync_all_pods<R: Runtime>(node: &NodeAgent<R>) {
    for entry in node.pods.all_pods() {
        entry.notify_worker(|update| update.runtime_changed = true);
    }
}

/// Lists the sandboxes and containers of the runtime periodically, even while the API server is unreachable. Orphans
/// are removed only after `listed` was notified, which means that the API server's pods were listed. Never returns.
pub(super) async fn relist<R: Runtime>(node: &Arc<NodeAgent<R>>, listed: &Notify) {
    // Before the first list, an unknown pod may be one of the API server's.
    let mut pods_are_listed = false;
    loop {
        if let Err(error) = relist_once(node, pods_are_listed).await {
            tracing::debug!("cannot relist the runtime: {error}");
        }
        tokio::select! {
            () = listed.notified(), if !pods_are_listed => pods_are_listed = true,
            () = tokio::time::sleep(RELIST_INTERVAL) => {}
        }
    }
}

/// Lists the sandboxes and containers of the runtime once, and wakes the workers whose runtime state is out of date.
/// Also starts the cleanup of orphans, if the API server's pods were listed (`pods_are_listed`) and the cluster is
/// confirmed.
async fn relist_once<R: Runtime>(
    node: &Arc<NodeAgent<R>>,
    pods_are_listed: bool,
) -> Result<(), RuntimeError> {
    let mut found: BTreeMap<String, (ObjectKey, BTreeSet<(String, bool)>)> = BTreeMap::new();
    for it in node.runtime.list_sandboxes(None).await? {
        let Some(metadata) = it.metadata else { continue };
        let key = ObjectKey::new(&*metadata.namespace, &*metadata.name);
        let of_pod = found.entry(metadata.uid).or_insert_with(|| (key, BTreeSet::new()));
        of_pod.1.insert((it.id, it.state == crate::runtime::v1::PodSandboxState::SandboxReady as i32));
    }
    for it in node.runtime.list_containers(None).await? {
        let Some(uid) = it.labels.get(label::POD_UID) else { continue };
        let text = |label: &str| it.labels.get(label).map_or("", |it| it.as_str());
        let key = ObjectKey::new(text(label::POD_NAMESPACE), text(label::POD_NAME));
        let of_pod = found.entry(uid.clone()).or_insert_with(|| (key, BTreeSet::new()));
        of_pod.1.insert((it.id, it.state == crate::runtime::v1::ContainerState::ContainerRunning as i32));
    }
    for entry in node.pods.all_pods() {
        let snapshot = entry.snapshot();
        let uid = snapshot.object.metadata.uid.as_deref().unwrap_or_default();
        let known: BTreeSet<(String, bool)> =
            snapshot
                .runtime_state
                .sandboxes
                .iter()
                .map(|it| (it.id.to_string(), it.is_ready))
                .chain(
                    snapshot.runtime_state.containers.iter().map(|it| {
                        (it.id.to_string(), matches!(it.state, pod::ContainerState::Running { .. }))
                    }),
                )
                .collect();
        let actual = found.remove(uid).map(|it| it.1).unwrap_or_default();
        if actual != known {
            entry.notify_worker(|update| update.runtime_changed = true);
        }
    }
    if !pods_are_listed || !node.membership.may_remove_orphans() {
        return Ok(());
    }
    for (uid, (key, _)) in found {
        node.pods.clean_up_orphan(node, key, uid);
    }
    // These pods have no containers, but directories or logs.
    for (uid, key) in orphans::pods_on_disk(&node.config) {
        node.pods.clean_up_orphan(node, key, uid);
    }
    Ok(())
}
