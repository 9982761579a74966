//! A namespace that is deleted is emptied first, and goes when nothing is left in it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use muster_store::{Change, Revision};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::error::ApiError;
use crate::kinds::Kind;
use crate::registry::{DeleteOptions, Propagation, Registry};
use crate::request::{Context, Target};
use crate::selector::Selector;
use crate::subresource::Subresource;
use crate::unstructured::{self, is_set, list, map_mut, str_at};

/// While a namespace waits for a node to stop its pods, it is looked at again no more often than this.
const PAUSE: Duration = Duration::from_millis(50);

/// Empties the namespaces that are being deleted, until `stop`.
pub(crate) async fn run(registry: Arc<Registry>, stop: CancellationToken) {
    let (mut namespaces, mut commits) =
        (registry.storage.commits_to(Kind::namespace()), registry.storage.commits());
    let (mut dying, mut seen) = all(&registry);
    loop {
        namespaces.mark_unchanged();
        commits.mark_unchanged();
        match registry.storage.since(&Kind::namespace().prefix(None), seen) {
            Err(_) => (dying, seen) = all(&registry),
            Ok((events, revision)) => {
                seen = revision;
                for event in events {
                    match &event.change {
                        Change::Put { now, .. } => note(&mut dying, &unstructured::parse(&now.value)),
                        Change::Delete { last, .. } => {
                            dying.remove(str_at(&unstructured::parse(last), "metadata.name"));
                        }
                    }
                }
            }
        }
        for namespace in &dying {
            if let Err(refusal) = drain(&registry, namespace).await {
                tracing::warn!(namespace, status = %refusal.status(), "empty a namespace that is being deleted");
            }
        }
        tokio::select! {
            () = stop.cancelled() => return,
            changed = namespaces.changed() => if changed.is_err() { return },
            // Whatever goes may be the last that a namespace waits for.
            changed = commits.changed(), if !dying.is_empty() => if changed.is_err() { return },
        }
        if !dying.is_empty() {
            tokio::time::sleep(PAUSE).await;
        }
    }
}

fn all(registry: &Registry) -> (BTreeSet<String>, Revision) {
    let (namespaces, revision) = registry.storage.list(Kind::namespace(), None, &Selector::default());
    let mut dying = BTreeSet::new();
    for namespace in namespaces {
        note(&mut dying, &unstructured::parse(&namespace));
    }
    (dying, revision)
}

fn note(dying: &mut BTreeSet<String>, namespace: &Value) {
    if is_set(&namespace["metadata"]["deletionTimestamp"]) {
        dying.insert(str_at(namespace, "metadata.name").to_owned());
    }
}

/// Rule: of a namespace that is being deleted the pods go first, then all else: what a pod relies on outlives it. What
/// stays, and whose finalizers hold it, is told in the namespace's conditions. Upstream: `deleteAllContent`.
async fn drain(registry: &Registry, namespace: &str) -> Result<(), ApiError> {
    let context = Context::of_server("delete", Timestamp::now());
    let options = DeleteOptions { propagation: Some(Propagation::Background), ..DeleteOptions::default() };
    let mut left = Left::default();
    let (pods, others): (Vec<&Kind>, Vec<&Kind>) = registry
        .storage
        .kinds
        .writable()
        .filter(|it| it.namespaced && it.is_stored())
        .partition(|it| it.resource() == "pods");
    // Nothing new comes in, so once a kind is empty it stays so.
    for kinds in [pods, others] {
        if !left.is_nothing() {
            break;
        }
        for kind in kinds {
            let here = || registry.storage.list(kind, Some(namespace), &Selector::default()).0;
            for object in here() {
                let target = Target {
                    kind,
                    namespace: Some(namespace.to_owned()),
                    name: str_at(&unstructured::parse(&object), "metadata.name").to_owned(),
                    subresource: Subresource::Whole,
                };
                match registry.delete(&context, &target, &options).await {
                    Err(it) if !it.is_not_found() => return Err(it),
                    _ => {}
                }
            }
            for object in here() {
                left.count(kind, &unstructured::parse(&object));
            }
        }
    }
    if !left.is_nothing() {
        return left.write_conditions(registry, namespace).await;
    }
    let target = Target {
        kind: Kind::namespace(),
        namespace: None,
        name: namespace.to_owned(),
        subresource: Subresource::Finalize,
    };
    let finalize = |old: &Value| {
        let mut new = old.clone();
        let mut finalizers = list(&old["spec"], "finalizers").to_vec();
        finalizers.retain(|it| *it != "kubernetes");
        map_mut(&mut new, "spec").insert("finalizers".into(), json!(finalizers));
        Ok(new)
    };
    match registry.update(&context, &target, finalize).await {
        Err(it) if !it.is_not_found() => Err(it),
        _ => Ok(()),
    }
}

/// What a namespace waits for.
#[derive(Default)]
struct Left {
    /// How many of each kind, and how many that each finalizer holds.
    objects: BTreeMap<String, usize>,
    finalizers: BTreeMap<String, usize>,
}

impl Left {
    fn is_nothing(&self) -> bool {
        self.objects.is_empty()
    }

    fn count(&mut self, kind: &Kind, object: &Value) {
        *self.objects.entry(format!("{}.{}", kind.plural, kind.group)).or_default() += 1;
        for finalizer in list(&object["metadata"], "finalizers").iter().filter_map(Value::as_str) {
            *self.finalizers.entry(finalizer.to_owned()).or_default() += 1;
        }
    }

    async fn write_conditions(&self, registry: &Registry, namespace: &str) -> Result<(), ApiError> {
        let context = Context::of_server("update", Timestamp::now());
        let name = namespace.to_owned();
        let target =
            Target { kind: Kind::namespace(), namespace: None, name, subresource: Subresource::Status };
        let change = |old: &Value| {
            let mut new = old.clone();
            let stood = list(&old["status"], "conditions");
            let mut conditions: Vec<Value> = stood.to_vec();
            for mut condition in self.conditions() {
                let of_its_type = |it: &&mut Value| it["type"] == condition["type"];
                let Some(before) = conditions.iter_mut().find(of_its_type) else {
                    condition["lastTransitionTime"] = json!(unstructured::time(context.now));
                    conditions.push(condition);
                    continue;
                };
                let same = before["status"] == condition["status"];
                let now = json!(unstructured::time(context.now));
                condition["lastTransitionTime"] =
                    if same { before["lastTransitionTime"].take() } else { now };
                *before = condition;
            }
            map_mut(&mut new, "status").insert("conditions".into(), conditions.into());
            Ok(new)
        };
        match registry.update(&context, &target, change).await {
            Err(it) if !it.is_not_found() => Err(it),
            _ => Ok(()),
        }
    }

    /// Upstream's five. Three of them cannot be otherwise here: the kinds are known, and what cannot be deleted is tried
    /// again.
    fn conditions(&self) -> [Value; 5] {
        let said = |kind: &str, status: &str, reason: &str, message: &str| json!({"type": kind, "status": status, "reason": reason, "message": message});
        let listed = |counts: &BTreeMap<String, usize>, verb: &str| {
            let each = counts.iter().map(|(name, count)| format!("{name} {verb} {count} resource instances"));
            each.collect::<Vec<_>>().join(", ")
        };
        let objects = format!("Some resources are remaining: {}", listed(&self.objects, "has"));
        let finalizers = format!(
            "Some content in the namespace has finalizers remaining: {}",
            listed(&self.finalizers, "in")
        );
        [
            said(
                "NamespaceDeletionDiscoveryFailure",
                "False",
                "ResourcesDiscovered",
                "All resources successfully discovered",
            ),
            said(
                "NamespaceDeletionGroupVersionParsingFailure",
                "False",
                "ParsedGroupVersions",
                "All legacy kube types successfully parsed",
            ),
            said(
                "NamespaceDeletionContentFailure",
                "False",
                "ContentDeleted",
                "All content successfully deleted, may be waiting on finalization",
            ),
            said("NamespaceContentRemaining", "True", "SomeResourcesRemain", &objects),
            if self.finalizers.is_empty() {
                said(
                    "NamespaceFinalizersRemaining",
                    "False",
                    "ContentHasNoFinalizers",
                    "All content-preserving finalizers finished",
                )
            } else {
                said("NamespaceFinalizersRemaining", "True", "SomeFinalizersRemain", &finalizers)
            },
        ]
    }
}
