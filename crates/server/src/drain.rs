//! A namespace that is deleted is emptied first, and goes when nothing is left in it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use muster_store::{Change, Revision};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::context::Context;
use crate::kinds::{KINDS, Kind};
use crate::object::{self, is_set, list, map_mut, str_at};
use crate::refusal::Refusal;
use crate::registry::{DeleteOptions, Propagation, Registry};
use crate::route::{Part, Target};
use crate::selector::Selector;

/// While a namespace waits for a node to stop its pods, it is looked at again no more often than this.
const PAUSE: Duration = Duration::from_millis(50);

/// Empties the namespaces that are being deleted, until `stop`.
pub(crate) async fn run(registry: Arc<Registry>, stop: CancellationToken) {
    let (mut namespaces, mut heads) = (registry.heads_of(Kind::namespace()), registry.heads());
    let (mut dying, mut seen) = all(&registry);
    loop {
        namespaces.mark_unchanged();
        heads.mark_unchanged();
        match registry.since(&Kind::namespace().prefix(None), seen) {
            Err(_) => (dying, seen) = all(&registry),
            Ok((events, revision)) => {
                seen = revision;
                for event in events {
                    match &event.change {
                        Change::Put { now, .. } => note(&mut dying, &object::parse(&now.value)),
                        Change::Delete { last, .. } => {
                            dying.remove(str_at(&object::parse(last), "metadata.name"));
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
            changed = heads.changed(), if !dying.is_empty() => if changed.is_err() { return },
        }
        if !dying.is_empty() {
            tokio::time::sleep(PAUSE).await;
        }
    }
}

fn all(registry: &Registry) -> (BTreeSet<String>, Revision) {
    let (namespaces, revision) = registry.list(Kind::namespace(), None, &Selector::default());
    let mut dying = BTreeSet::new();
    for namespace in namespaces {
        note(&mut dying, &object::parse(&namespace));
    }
    (dying, revision)
}

fn note(dying: &mut BTreeSet<String>, namespace: &Value) {
    if is_set(&namespace["metadata"]["deletionTimestamp"]) {
        dying.insert(str_at(namespace, "metadata.name").to_owned());
    }
}

/// Nothing new comes into a namespace that is being deleted, so once it is empty it stays so.
async fn drain(registry: &Registry, namespace: &str) -> Result<(), Refusal> {
    let context = Context::of_server("delete", Timestamp::now());
    let options = DeleteOptions { propagation: Some(Propagation::Background), ..DeleteOptions::default() };
    let mut is_empty = true;
    for kind in KINDS.iter().filter(|it| it.namespaced && it.is_stored()) {
        let here = || registry.list(kind, Some(namespace), &Selector::default()).0;
        for object in here() {
            let target = Target {
                kind,
                namespace: Some(namespace.to_owned()),
                name: str_at(&object::parse(&object), "metadata.name").to_owned(),
                part: Part::Whole,
            };
            match registry.delete(&context, &target, &options).await {
                Err(it) if !it.is_not_found() => return Err(it),
                _ => {}
            }
        }
        is_empty &= here().is_empty();
    }
    if !is_empty {
        return Ok(());
    }
    let target =
        Target { kind: Kind::namespace(), namespace: None, name: namespace.to_owned(), part: Part::Finalize };
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
