//! Pod lifecycle event generator: tells workers when something of their pod changed in the runtime, by the runtime's events and
//! by comparing all that it has. Upstream: PLEG.

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

/// The runtime is relisted this often: for what its events did not report, and for what belongs to no pod.
const RELIST_EVERY: Duration = Duration::from_secs(20);
/// An event stream that broke off is opened again after this time.
const FOLLOW_AGAIN: Duration = Duration::from_secs(1);

/// Wakes the worker of a pod at once when one of its containers or its sandbox exits.
pub(super) async fn watch_exits<R: Runtime>(node: &Arc<Node<R>>) {
    let mut was_followed = true;
    loop {
        let mut following = pin!(node.runtime.exits());
        let followed = tokio::select! {
            followed = &mut following => followed,
            // A runtime may answer only with its first event. Exits before that are found by asking for everything.
            () = tokio::time::sleep(FOLLOW_AGAIN) => {
                observe_all(node);
                following.await
            }
        };
        match followed {
            Ok(mut exits) => {
                was_followed = true;
                observe_all(node);
                while let Some(Ok(id)) = exits.next().await {
                    let entry = owner(node, &id);
                    node.pods.ends(id);
                    if let Some(entry) = entry {
                        entry.tell(|mail| mail.look = true);
                    }
                }
            }
            Err(error) if was_followed => {
                was_followed = false;
                tracing::warn!("the runtime's events cannot be followed, and are asked for again: {error}");
            }
            Err(_) => {}
        }
        tokio::time::sleep(FOLLOW_AGAIN).await;
    }
}

fn owner<R: Runtime>(node: &Node<R>, id: &str) -> Option<Arc<Entry>> {
    let all = node.pods.all();
    all.into_iter().find(|it| {
        let seen = it.shown().seen;
        seen.containers.iter().any(|it| *it.id == *id) || seen.sandboxes.iter().any(|it| *it.id == *id)
    })
}

fn observe_all<R: Runtime>(node: &Node<R>) {
    for entry in node.pods.all() {
        entry.tell(|mail| mail.look = true);
    }
}

/// Compares all that the runtime has with what the workers know, every [`RELIST_EVERY`], with or without an API server.
pub(super) async fn relist<R: Runtime>(node: &Arc<Node<R>>, listed: &Notify) {
    // What is not listed yet may be the API server's.
    let mut are_listed = false;
    loop {
        if let Err(error) = compare(node, are_listed).await {
            tracing::debug!("what the runtime has cannot be listed: {error}");
        }
        tokio::select! {
            () = listed.notified(), if !are_listed => are_listed = true,
            () = tokio::time::sleep(RELIST_EVERY) => {}
        }
    }
}

/// Wakes workers whose runtime state is out of date. Removes what belongs to no pod, once the pods of the API server are known.
async fn compare<R: Runtime>(node: &Arc<Node<R>>, are_listed: bool) -> Result<(), RuntimeError> {
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
        let shown = entry.shown();
        let uid = shown.object.metadata.uid.as_deref().unwrap_or_default();
        let has: BTreeSet<(String, bool)> = shown
            .seen
            .sandboxes
            .iter()
            .map(|it| (it.id.to_string(), it.is_ready))
            .chain(
                shown
                    .seen
                    .containers
                    .iter()
                    .map(|it| (it.id.to_string(), matches!(it.state, pod::State::Running { .. }))),
            )
            .collect();
        let is = found.remove(uid).map(|it| it.1).unwrap_or_default();
        if is != has {
            entry.tell(|mail| mail.look = true);
        }
    }
    if !are_listed || !node.membership.may_remove_orphans() {
        return Ok(());
    }
    for (uid, (key, _)) in found {
        node.pods.orphan(node, key, uid);
    }
    // Nothing runs of these, but something was kept for them.
    for (uid, key) in orphans::on_disk(&node.config) {
        node.pods.orphan(node, key, uid);
    }
    Ok(())
}
