//! Pod lifecycle event generator: wakes the worker of a pod when its sandbox or containers change in the runtime,
//! by the runtime's events and by periodic relists. Upstream: PLEG.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use muster_api::meta::ObjectKey;
use muster_engine::kubelet::pod;
use tokio::sync::Notify;

use super::pod_manager::Entry;
use super::{Node, orphans};
use crate::runtime::{Runtime, RuntimeError, label};

/// Interval of relists, which find changes without an event, and orphans.
const RELIST_EVERY: Duration = Duration::from_secs(20);
/// Delay before a broken event stream is opened again.
const FOLLOW_AGAIN: Duration = Duration::from_secs(1);

/// Wakes the worker of a pod as soon as one of its containers or its sandbox exits.
pub(super) async fn watch_exits<R: Runtime>(node: &Arc<Node<R>>) {
    let mut is_healthy = true;
    loop {
        let mut opening = pin!(node.runtime.exits());
        let opened = tokio::select! {
            opened = &mut opening => opened,
            // A runtime may respond only with its first event; exits before that are found by a resync.
            () = tokio::time::sleep(FOLLOW_AGAIN) => {
                observe_all(node);
                opening.await
            }
        };
        match opened {
            Ok(mut exits) => {
                is_healthy = true;
                observe_all(node);
                while let Some(Ok(id)) = exits.next().await {
                    let entry = owner(node, &id);
                    node.pods.ends(id);
                    if let Some(entry) = entry {
                        entry.tell(|update| update.look = true);
                    }
                }
            }
            Err(error) if is_healthy => {
                is_healthy = false;
                tracing::warn!("cannot watch the runtime's events, retrying: {error}");
            }
            Err(_) => {}
        }
        tokio::time::sleep(FOLLOW_AGAIN).await;
    }
}

fn owner<R: Runtime>(node: &Node<R>, id: &str) -> Option<Arc<Entry>> {
    let all = node.pods.all();
    all.into_iter().find(|it| {
        let state = it.shown().seen;
        state.containers.iter().any(|it| *it.id == *id) || state.sandboxes.iter().any(|it| *it.id == *id)
    })
}

fn observe_all<R: Runtime>(node: &Node<R>) {
    for entry in node.pods.all() {
        entry.tell(|update| update.look = true);
    }
}

/// Relists the runtime periodically, with or without an API server.
pub(super) async fn relist<R: Runtime>(node: &Arc<Node<R>>, listed: &Notify) {
    // Before the first list, an unknown pod may be one of the API server's.
    let mut pods_are_listed = false;
    loop {
        if let Err(error) = compare(node, pods_are_listed).await {
            tracing::debug!("cannot relist the runtime: {error}");
        }
        tokio::select! {
            () = listed.notified(), if !pods_are_listed => pods_are_listed = true,
            () = tokio::time::sleep(RELIST_EVERY) => {}
        }
    }
}

/// Wakes workers whose runtime state is out of date. Removes orphans once the pods of the API server are known.
async fn compare<R: Runtime>(node: &Arc<Node<R>>, pods_are_listed: bool) -> Result<(), RuntimeError> {
    let mut found: BTreeMap<String, (ObjectKey, BTreeSet<(String, bool)>)> = BTreeMap::new();
    for it in node.runtime.sandboxes(None).await? {
        let Some(metadata) = it.metadata else { continue };
        let key = ObjectKey::new(&*metadata.namespace, &*metadata.name);
        let of_pod = found.entry(metadata.uid).or_insert_with(|| (key, BTreeSet::new()));
        of_pod.1.insert((it.id, it.state == crate::runtime::v1::PodSandboxState::SandboxReady as i32));
    }
    for it in node.runtime.containers(None).await? {
        let Some(uid) = it.labels.get(label::POD_UID) else { continue };
        let text = |label: &str| it.labels.get(label).map_or("", |it| it.as_str());
        let key = ObjectKey::new(text(label::POD_NAMESPACE), text(label::POD_NAME));
        let of_pod = found.entry(uid.clone()).or_insert_with(|| (key, BTreeSet::new()));
        of_pod.1.insert((it.id, it.state == crate::runtime::v1::ContainerState::ContainerRunning as i32));
    }
    for entry in node.pods.all() {
        let snapshot = entry.shown();
        let uid = snapshot.object.metadata.uid.as_deref().unwrap_or_default();
        let known: BTreeSet<(String, bool)> = snapshot
            .seen
            .sandboxes
            .iter()
            .map(|it| (it.id.to_string(), it.is_ready))
            .chain(
                snapshot
                    .seen
                    .containers
                    .iter()
                    .map(|it| (it.id.to_string(), matches!(it.state, pod::State::Running { .. }))),
            )
            .collect();
        let actual = found.remove(uid).map(|it| it.1).unwrap_or_default();
        if actual != known {
            entry.tell(|update| update.look = true);
        }
    }
    if !pods_are_listed || !node.membership.may_remove_orphans() {
        return Ok(());
    }
    for (uid, (key, _)) in found {
        node.pods.orphan(node, key, uid);
    }
    // These pods have no containers, but directories or logs.
    for (uid, key) in orphans::on_disk(&node.config) {
        node.pods.orphan(node, key, uid);
    }
    Ok(())
}
