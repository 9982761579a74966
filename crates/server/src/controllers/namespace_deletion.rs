//! Deletes the content of each terminating namespace, then removes its finalizer `kubernetes`. Upstream: the namespace
//! controller.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::error::ApiError;
use crate::kinds::Kind;
use crate::registry::{DeleteOptions, DeletePropagation, Registry};
use crate::request::{RequestContext, RequestTarget};
use crate::selector::ObjectSelector;
use crate::storage::{ObjectChange, ObjectChangeReader};
use crate::subresource::Subresource;
use crate::unstructured::{self, is_set, list_at, map_at_mut, str_at};

/// Minimum time between two passes over the terminating namespaces. Each pass deletes the objects that can be deleted.
/// A namespace needs several passes while it waits for nodes to stop its pods.
const PASS_INTERVAL_MIN: Duration = Duration::from_millis(50);

/// Deletes the content of terminating namespaces until `stop` is cancelled.
pub(crate) async fn run(registry: Arc<Registry>, stop: CancellationToken) {
    let (mut namespaces, mut commits) =
        (registry.storage.watch_kind_revision(Kind::namespace_kind()), registry.storage.watch_revision());
    let mut changes = ObjectChangeReader::default();
    let mut terminating = BTreeSet::new();
    loop {
        namespaces.mark_unchanged();
        commits.mark_unchanged();
        changes.for_each_change(&registry.storage, Kind::namespace_kind(), |change| match change {
            ObjectChange::Reset => terminating.clear(),
            ObjectChange::Put { now, .. } => {
                add_if_terminating(&mut terminating, &unstructured::parse_stored(now));
            }
            ObjectChange::Delete { before } => {
                terminating.remove(str_at(&unstructured::parse_stored(before), "metadata.name"));
            }
        });
        for namespace in &terminating {
            if let Err(error) = delete_all_content(&registry, namespace).await {
                tracing::warn!(namespace, status = %error.status(), "cannot delete the content of a namespace");
            }
        }
        tokio::select! {
            () = stop.cancelled() => return,
            changed = namespaces.changed() => if changed.is_err() { return },
            // Any deletion may be the last one that a namespace waits for.
            changed = commits.changed(), if !terminating.is_empty() => if changed.is_err() { return },
        }
        if !terminating.is_empty() {
            tokio::time::sleep(PASS_INTERVAL_MIN).await;
        }
    }
}

/// Adds the name of the namespace to `terminating` if the namespace is being deleted.
fn add_if_terminating(terminating: &mut BTreeSet<String>, namespace: &Value) {
    if is_set(&namespace["metadata"]["deletionTimestamp"]) {
        terminating.insert(str_at(namespace, "metadata.name").to_owned());
    }
}

/// Deletes the objects of a terminating namespace, and removes its finalizer `kubernetes` when no object remains.
///
/// Rule: pods are deleted before all other objects, because pods may use the other objects. Remaining objects and
/// finalizers are reported in the namespace's conditions. Upstream: `deleteAllContent`.
async fn delete_all_content(registry: &Registry, namespace: &str) -> Result<(), ApiError> {
    let context = RequestContext::for_server("delete", Timestamp::now());
    let options =
        DeleteOptions { propagation: Some(DeletePropagation::Background), ..DeleteOptions::default() };
    let mut remaining = RemainingContent::default();
    let (pods, others): (Vec<&Kind>, Vec<&Kind>) = registry
        .storage
        .kinds
        .served()
        .all()
        .filter(|it| it.namespaced && it.is_stored())
        .partition(|it| it.resource() == ("", "pods"));
    // No objects can be created in the namespace, so a kind that is empty stays empty.
    for kinds in [pods, others] {
        if !remaining.is_empty() {
            break;
        }
        for kind in kinds {
            let remaining_objects =
                || registry.storage.list(kind, Some(namespace), &ObjectSelector::default()).0;
            for object in remaining_objects() {
                let target = RequestTarget {
                    kind,
                    namespace: Some(namespace.to_owned()),
                    name: str_at(&unstructured::parse_stored(&object), "metadata.name").to_owned(),
                    subresource: Subresource::Whole,
                };
                match registry.delete(&context, &target, &options).await {
                    Err(it) if !it.is_not_found() => return Err(it),
                    _ => {}
                }
            }
            for object in remaining_objects() {
                remaining.count_remaining(kind, &unstructured::parse_stored(&object));
            }
        }
    }
    if !remaining.is_empty() {
        return remaining.write_conditions(registry, namespace).await;
    }
    let target = RequestTarget {
        kind: Kind::namespace_kind(),
        namespace: None,
        name: namespace.to_owned(),
        subresource: Subresource::Finalize,
    };
    let finalize = |old: &Value| {
        let mut new = old.clone();
        let mut finalizers = list_at(&old["spec"], "finalizers").to_vec();
        finalizers.retain(|it| *it != "kubernetes");
        map_at_mut(&mut new, "spec").insert("finalizers".into(), json!(finalizers));
        Ok(new)
    };
    match registry.update(&context, &target, finalize).await {
        Err(it) if !it.is_not_found() => Err(it),
        _ => Ok(()),
    }
}

/// Counts the objects and finalizers that remain in a terminating namespace, for the conditions of the namespace.
#[derive(Default)]
struct RemainingContent {
    /// Number of remaining objects by resource and API group, such as `daemonsets.apps` or `pods.`.
    objects: BTreeMap<String, usize>,
    /// Number of remaining objects by finalizer. An object counts once for each of its finalizers.
    finalizers: BTreeMap<String, usize>,
}

impl RemainingContent {
    /// Whether no object of the namespace remains.
    fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Counts one remaining object and its finalizers.
    fn count_remaining(&mut self, kind: &Kind, object: &Value) {
        *self.objects.entry(format!("{}.{}", kind.plural, kind.group)).or_default() += 1;
        for finalizer in list_at(&object["metadata"], "finalizers").iter().filter_map(Value::as_str) {
            *self.finalizers.entry(finalizer.to_owned()).or_default() += 1;
        }
    }

    /// Writes [`Self::namespace_conditions`] to the status of the namespace.
    async fn write_conditions(&self, registry: &Registry, namespace: &str) -> Result<(), ApiError> {
        let context = RequestContext::for_server("update", Timestamp::now());
        let name = namespace.to_owned();
        let target = RequestTarget {
            kind: Kind::namespace_kind(),
            namespace: None,
            name,
            subresource: Subresource::Status,
        };
        let change = |old: &Value| {
            let mut new = old.clone();
            let old_conditions = list_at(&old["status"], "conditions");
            let mut conditions: Vec<Value> = old_conditions.to_vec();
            for mut condition in self.namespace_conditions() {
                let is_same_type = |it: &&mut Value| it["type"] == condition["type"];
                let Some(before) = conditions.iter_mut().find(is_same_type) else {
                    condition["lastTransitionTime"] = json!(unstructured::format_time(context.now));
                    conditions.push(condition);
                    continue;
                };
                let same = before["status"] == condition["status"];
                let now = json!(unstructured::format_time(context.now));
                condition["lastTransitionTime"] =
                    if same { before["lastTransitionTime"].take() } else { now };
                *before = condition;
            }
            map_at_mut(&mut new, "status").insert("conditions".into(), conditions.into());
            Ok(new)
        };
        match registry.update(&context, &target, change).await {
            Err(it) if !it.is_not_found() => Err(it),
            _ => Ok(()),
        }
    }

    /// Returns the five conditions that upstream's namespace controller sets on a terminating namespace. The first
    /// three are always `False`. They report failures that do not occur in this server, because it knows all kinds and
    /// retries failed deletions.
    fn namespace_conditions(&self) -> [Value; 5] {
        let condition = |kind: &str, status: &str, reason: &str, message: &str| json!({"type": kind, "status": status, "reason": reason, "message": message});
        let format_counts = |counts: &BTreeMap<String, usize>, verb: &str| {
            let each = counts.iter().map(|(name, count)| format!("{name} {verb} {count} resource instances"));
            each.collect::<Vec<_>>().join(", ")
        };
        let objects = format!("Some resources are remaining: {}", format_counts(&self.objects, "has"));
        let finalizers = format!(
            "Some content in the namespace has finalizers remaining: {}",
            format_counts(&self.finalizers, "in")
        );
        [
            condition(
                "NamespaceDeletionDiscoveryFailure",
                "False",
                "ResourcesDiscovered",
                "All resources successfully discovered",
            ),
            condition(
                "NamespaceDeletionGroupVersionParsingFailure",
                "False",
                "ParsedGroupVersions",
                "All legacy kube types successfully parsed",
            ),
            condition(
                "NamespaceDeletionContentFailure",
                "False",
                "ContentDeleted",
                "All content successfully deleted, may be waiting on finalization",
            ),
            condition("NamespaceContentRemaining", "True", "SomeResourcesRemain", &objects),
            if self.finalizers.is_empty() {
                condition(
                    "NamespaceFinalizersRemaining",
                    "False",
                    "ContentHasNoFinalizers",
                    "All content-preserving finalizers finished",
                )
            } else {
                condition("NamespaceFinalizersRemaining", "True", "SomeFinalizersRemain", &finalizers)
            },
        ]
    }
}
