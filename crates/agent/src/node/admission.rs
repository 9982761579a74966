//! Lets pods in on the node: one after the other, so that two never take the same place.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node as ApiNode, Pod};
use k8s_openapi::api::node::v1::RuntimeClass;
use kube::Api;
use muster_engine::facts::{Shared, Text};
use muster_engine::pod::Ending;
use muster_engine::pod::admission::{self, Admission, Guest};
use muster_engine::scheduler;
use serde_json::{Value, json};

use super::Node;
use super::pods::{Entry, Source};
use crate::runtime::Runtime;

/// An API server that does not answer is not waited for longer: what the node knows of itself will do.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// So often it is looked whether those have ended that make room.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Waits until the pod is let in; why it is not, otherwise.
pub(super) async fn admit<R: Runtime>(node: &Arc<Node<R>>, entry: &Entry, object: &Pod) -> Option<Ending> {
    let phase = object.status.as_ref().and_then(|it| it.phase.as_deref());
    let is_leaving =
        object.metadata.deletion_timestamp.is_some() || matches!(phase, Some("Succeeded" | "Failed"));
    let guest = match read(object) {
        Ok(guest) => guest,
        Err(why) => return Some(admission::rejection("UnexpectedAdmissionError".into(), &why)),
    };
    // An agent that begins anew does not ask again what the one before has decided.
    if entry.source == Source::Orphan || is_leaving || guest.was_admitted {
        entry.show(|shown| shown.is_admitted = !is_leaving);
        return None;
    }
    loop {
        let turn = node.pods.admissions.lock().await;
        let view = match view(node).await {
            Ok(view) => view,
            Err(why) => return Some(admission::rejection("UnexpectedAdmissionError".into(), &why)),
        };
        let runtimes = runtimes(node, object).await;
        let others = others(node, &guest);
        let decided = admission::admit(&view, &others.iter().collect::<Vec<_>>(), &guest, &runtimes);
        match decided {
            Admission::Admitted => {
                entry.show(|shown| shown.is_admitted = true);
                return None;
            }
            Admission::Rejected(ending) => return Some(ending),
            Admission::AfterOthers(uids) => {
                drop(turn);
                make_room(node, &uids).await;
            }
        }
    }
}

fn read(object: &Pod) -> Result<Guest, String> {
    let json = serde_json::to_vec(object).map_err(|it| it.to_string())?;
    Guest::read(&json).map_err(|it| it.to_string())
}

/// Those that were let in and have not ended.
fn others<R: Runtime>(node: &Node<R>, guest: &Guest) -> Vec<Guest> {
    let all = node.pods.all().into_iter().map(|it| it.shown());
    let here = all.filter(|it| it.is_admitted && !it.has_ended);
    here.filter_map(|it| read(&it.object).ok()).filter(|it| it.uid() != guest.uid()).collect()
}

async fn make_room<R: Runtime>(node: &Node<R>, uids: &[Text]) {
    let entries: Vec<_> = uids.iter().filter_map(|it| node.pods.get(it)).collect();
    for entry in &entries {
        entry.end(admission::preempted());
    }
    let is_here = |it: &Arc<Entry>| {
        !it.shown().has_ended && node.pods.get(&uid(it)).is_some_and(|now| Arc::ptr_eq(&now, it))
    };
    while entries.iter().any(is_here) {
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn uid(entry: &Entry) -> String {
    entry.shown().object.metadata.uid.clone().unwrap_or_default()
}

/// The node as the API server has it: labels and taints are not the node's own to set. What it has to give is.
async fn view<R: Runtime>(node: &Node<R>) -> Result<scheduler::Node, String> {
    let nodes: Api<ApiNode> = Api::all(node.client.clone());
    let config = &node.config;
    let mut object = match tokio::time::timeout(ANSWER_WITHIN, nodes.get(&config.name)).await {
        Ok(Ok(found)) => serde_json::to_value(found).map_err(|it| it.to_string())?,
        _ => json!({
            "metadata": {"name": config.name, "labels": config.labels},
            "spec": {"taints": config.taints},
        }),
    };
    let amounts = node.allocatable();
    let amounts = amounts.iter().map(|(name, amount)| (name.clone(), amount.to_string().into()));
    let mut allocatable: serde_json::Map<String, Value> = amounts.collect();
    allocatable.entry("pods").or_insert_with(|| config.pods_max.to_string().into());
    if let Some(said) = object["status"]["allocatable"].as_object() {
        // Devices and the like are told to the API server alone.
        said.iter().for_each(|(name, amount)| {
            allocatable.entry(name.clone()).or_insert_with(|| amount.clone());
        });
    }
    object["status"]["allocatable"] = Value::Object(allocatable);
    let json = object.to_string();
    scheduler::node(json.as_bytes(), &mut Shared::default()).map_err(|it| it.to_string())
}

/// The pod's runtime class, if it can be had here.
async fn runtimes<R: Runtime>(node: &Node<R>, object: &Pod) -> BTreeSet<Text> {
    let class = object.spec.as_ref().and_then(|it| it.runtime_class_name.as_deref());
    let Some(class) = class.filter(|it| !it.is_empty()) else { return BTreeSet::new() };
    let classes: Api<RuntimeClass> = Api::all(node.client.clone());
    let handler = match tokio::time::timeout(ANSWER_WITHIN, classes.get_opt(class)).await {
        Ok(Ok(found)) => found.map(|it| it.handler),
        // Nobody knows: the runtime will say.
        _ => return [class.into()].into(),
    };
    let known = node.runtime.status().await.ok().and_then(|it| it.handlers);
    let is_known = handler.is_some_and(|it| known.is_none_or(|known| known.contains(&it)));
    if is_known { [class.into()].into() } else { BTreeSet::new() }
}
