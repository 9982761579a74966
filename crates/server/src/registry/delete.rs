//! Deleting: at once, or marked while someone has something to do first. Upstream: `BeforeDelete` and the registry's `Delete`.

use bytes::Bytes;
use jiff::SignedDuration;
use muster_store::Expect;
use serde_json::{Value, json};

use super::{ATTEMPTS_MAX, Commit, Registry};
use crate::admission::{self, Attempt, Operation};
use crate::context::Context;
use crate::kinds::{KINDS, Kind};
use crate::object::{self, is_set, list, str_at};
use crate::refusal::Refusal;
use crate::route::Target;
use crate::standing::NAMESPACES;

#[derive(Debug, Default)]
pub(crate) struct DeleteOptions {
    pub(crate) grace_s: Option<i64>,
    pub(crate) propagation: Option<Propagation>,
    /// Preconditions.
    pub(crate) uid: Option<String>,
    pub(crate) version: Option<String>,
}

/// What becomes of the objects that the deleted one owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Propagation {
    Background,
    Foreground,
    Orphan,
}

#[derive(Debug)]
pub(crate) enum Deleted {
    Gone {
        last: Bytes,
    },
    /// Someone else has something to do first: a node, or whoever holds a finalizer.
    Marked {
        now: Bytes,
    },
}

impl Registry {
    pub(crate) async fn delete(
        &self,
        context: &Context,
        target: &Target,
        options: &DeleteOptions,
    ) -> Result<Deleted, Refusal> {
        for _ in 0..ATTEMPTS_MAX {
            if let Some(deleted) = self.try_delete(context, target, options).await? {
                return Ok(deleted);
            }
        }
        Err(Refusal::timeout())
    }

    /// Nothing is given back if another write came first.
    async fn try_delete(
        &self,
        context: &Context,
        target: &Target,
        options: &DeleteOptions,
    ) -> Result<Option<Deleted>, Refusal> {
        let record = self.standing(target)?;
        let old = object::parse(&record.value);
        refuse_other_object(target, options, &old)?;
        self.refuse_namespace_in_use(target)?;
        let attempt = Attempt { target, operation: Operation::Delete };
        admission::mutate(self, context, attempt, &mut Value::Null).await?;
        admission::validate(self, context, attempt, &Value::Null).await?;

        let mut object = old.clone();
        let meta = &mut object["metadata"];
        let finalizers = finalizers_at_delete(list(meta, "finalizers"), options.propagation);
        let is_first = !is_set(&meta["deletionTimestamp"]);
        let granted_s = if is_first { None } else { meta["deletionGracePeriodSeconds"].as_i64() };
        let wanted_s = grace_s(target.kind, &object, options.grace_s);
        // A second delete may shorten the time that the first one gave, and never lengthen it.
        let grace_s = granted_s.map_or(wanted_s, |granted_s| wanted_s.min(granted_s));

        let meta = &mut object["metadata"];
        if finalizers.is_empty() {
            meta.as_object_mut().expect("every object has metadata").remove("finalizers");
        } else {
            meta["finalizers"] = json!(finalizers);
        }
        if granted_s != Some(grace_s) {
            meta["deletionTimestamp"] = json!(object::time(context.now + SignedDuration::from_secs(grace_s)));
            meta["deletionGracePeriodSeconds"] = json!(grace_s);
        }
        if let Some(generation) = meta["generation"].as_u64().filter(|_| is_first) {
            meta["generation"] = json!(generation + 1);
        }
        let is_gone = finalizers.is_empty() && grace_s == 0;
        if context.dry_run {
            return Ok(Some(if is_gone {
                Deleted::Gone { last: record.value.clone() }
            } else {
                Deleted::Marked { now: object::bytes(&object) }
            }));
        }
        if !is_gone && object == old {
            return Ok(Some(Deleted::Marked { now: record.value.clone() }));
        }
        let commit = if is_gone { Commit::Delete { last: &object } } else { Commit::Put(&object) };
        let Some(now) = self.commit(context, target, Expect::At(record.modified), commit).await? else {
            return Ok(None);
        };
        Ok(Some(if is_gone { Deleted::Gone { last: now } } else { Deleted::Marked { now } }))
    }

    /// There is no namespace controller yet that would empty it, so a namespace must be empty to go.
    fn refuse_namespace_in_use(&self, target: &Target) -> Result<(), Refusal> {
        if !std::ptr::eq(target.kind, Kind::namespace()) {
            return Ok(());
        }
        if NAMESPACES.contains(&target.name.as_str()) {
            return Err(Refusal::forbidden(target.kind, &target.name, "this namespace may not be deleted"));
        }
        let holds =
            |it: &&Kind| it.namespaced && self.store().list(&it.prefix(Some(&target.name))).next().is_some();
        match KINDS.iter().find(holds) {
            None => Ok(()),
            Some(kind) => {
                let why = format!("it still holds {}: delete them first", kind.plural);
                Err(Refusal::conflict(target.kind, &target.name, &why))
            }
        }
    }
}

fn refuse_other_object(target: &Target, options: &DeleteOptions, object: &Value) -> Result<(), Refusal> {
    let meta = &object["metadata"];
    if let Some(uid) = options.uid.as_ref().filter(|it| meta["uid"] != **it) {
        return Err(precondition_failed(target, "UID", &json!(uid), &meta["uid"]));
    }
    if let Some(version) = options.version.as_ref().filter(|it| meta["resourceVersion"] != **it) {
        return Err(precondition_failed(
            target,
            "ResourceVersion",
            &json!(version),
            &meta["resourceVersion"],
        ));
    }
    Ok(())
}

pub(super) fn precondition_failed(target: &Target, what: &str, wanted: &Value, found: &Value) -> Refusal {
    let text = |it: &Value| it.as_str().unwrap_or_default().to_owned();
    let why = format!(
        "Precondition failed: {what} in precondition: {}, {what} in object meta: {}",
        text(wanted),
        text(found)
    );
    Refusal::conflict(target.kind, &target.name, &why)
}

fn finalizers_at_delete(held: &[Value], propagation: Option<Propagation>) -> Vec<Value> {
    const FOREGROUND: &str = "foregroundDeletion";
    const ORPHAN: &str = "orphan";
    let mut finalizers = held.to_vec();
    let Some(propagation) = propagation else { return finalizers };
    finalizers.retain(|it| it != FOREGROUND && it != ORPHAN);
    match propagation {
        Propagation::Background => {}
        Propagation::Foreground => finalizers.push(json!(FOREGROUND)),
        Propagation::Orphan => finalizers.push(json!(ORPHAN)),
    }
    finalizers
}

/// How long a node has to stop the object: no time at all if no node has it.
fn grace_s(kind: &Kind, object: &Value, wanted_s: Option<i64>) -> i64 {
    let is_on_a_node = !str_at(object, "spec.nodeName").is_empty();
    let is_over = matches!(str_at(object, "status.phase"), "Succeeded" | "Failed");
    if !kind.graceful || !is_on_a_node || is_over {
        return 0;
    }
    let said_s = object["spec"]["terminationGracePeriodSeconds"].as_i64();
    match wanted_s.or(said_s).unwrap_or(30) {
        negative_s if negative_s < 0 => 1,
        // So that no one's number takes the deadline out of the calendar.
        s => s.min(i64::from(i32::MAX)),
    }
}
