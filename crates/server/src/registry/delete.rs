//! Deletes: immediately, or after a grace period and finalizers. Upstream: `BeforeDelete` and the registry's
//! `Delete`.

use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use muster_store::Expect;
use serde_json::{Value, json};

use super::{ATTEMPTS_MAX, Registry};
use crate::admission::{AdmissionAttributes, Operation};
use crate::error::ApiError;
use crate::kinds::Kind;
use crate::request::{Context, Target};
use crate::storage::Commit;
use crate::unstructured::{self, is_set, list, map_mut, str_at};

const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";

#[derive(Debug, Default, Clone)]
pub(crate) struct DeleteOptions {
    pub(crate) grace_s: Option<i64>,
    pub(crate) propagation: Option<Propagation>,
    /// Preconditions.
    pub(crate) uid: Option<String>,
    pub(crate) version: Option<String>,
    /// The client sent `orphanDependents: false`: if the object still exists afterwards, the status is 202.
    pub(crate) is_cascade_asked: bool,
}

/// What happens to the dependents of the deleted object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Propagation {
    Background,
    Foreground,
    Orphan,
}

/// The outcome of a delete.
#[derive(Debug)]
pub(crate) enum Deleted {
    Gone {
        last: Bytes,
    },
    /// The deletion waits for the grace period or for finalizers.
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
    ) -> Result<Deleted, ApiError> {
        for _ in 0..ATTEMPTS_MAX {
            if let Some(deleted) = self.try_delete(context, target, options).await? {
                return Ok(deleted);
            }
        }
        Err(ApiError::timeout())
    }

    /// Performs all checks of a delete without writing.
    pub(crate) async fn may_delete(
        &self,
        context: &Context,
        target: &Target,
        options: &DeleteOptions,
    ) -> Result<(), ApiError> {
        let old = unstructured::parse(&self.storage.stored(target)?.value);
        refuse_other_object(target, options, &old)?;
        let attributes = AdmissionAttributes { target, operation: Operation::Delete };
        self.admission.mutate(context, attributes, &mut Value::Null).await?;
        self.admission.validate(self, context, attributes, &Value::Null).await.map(drop)
    }

    /// Returns `None` if a concurrent write came first.
    async fn try_delete(
        &self,
        context: &Context,
        target: &Target,
        options: &DeleteOptions,
    ) -> Result<Option<Deleted>, ApiError> {
        let record = self.storage.stored(target)?;
        let old = unstructured::parse(&record.value);
        refuse_other_object(target, options, &old)?;
        let attributes = AdmissionAttributes { target, operation: Operation::Delete };
        self.admission.mutate(context, attributes, &mut Value::Null).await?;
        self.admission.validate(self, context, attributes, &Value::Null).await?;

        let mut object = old.clone();
        let (is_final, is_stored) = match mark(target.kind, &mut object, options, context.now) {
            Mark::Unchanged => return Ok(Some(Deleted::Marked { now: record.value.clone() })),
            Mark::Wait if object == old => return Ok(Some(Deleted::Marked { now: record.value.clone() })),
            Mark::Wait => (false, true),
            Mark::Go { is_marked } => (true, is_marked),
        };
        if context.dry_run {
            return Ok(Some(if is_final {
                Deleted::Gone { last: unstructured::bytes(&object) }
            } else {
                Deleted::Marked { now: unstructured::bytes(&object) }
            }));
        }
        let commit = if is_stored { Commit::Mark(&object) } else { Commit::Delete };
        let stored = self.storage.commit(context, target, Expect::At(record.modified), commit).await?;
        Ok(match stored {
            None => None,
            Some(now) if is_stored && is_final => Some(self.delete_marked(context, target, now).await?),
            Some(now) if is_stored => Some(Deleted::Marked { now }),
            Some(last) => Some(Deleted::Gone { last }),
        })
    }

    /// Rule: a deletion timestamp is stored before the object is deleted, also with a grace period of zero, so
    /// that watches get it in an event of its own and the deletion event has the last stored object.
    /// Upstream: `updateForGracefulDeletionAndFinalizers`, then `Storage.Delete`.
    async fn delete_marked(
        &self,
        context: &Context,
        target: &Target,
        marked: Bytes,
    ) -> Result<Deleted, ApiError> {
        let uid = |it: &Value| str_at(it, "metadata.uid").to_owned();
        let marked_uid = uid(&unstructured::parse(&marked));
        for _ in 0..ATTEMPTS_MAX {
            // The node's agent may have deleted the pod as soon as it saw the timestamp.
            let Ok(record) = self.storage.stored(target) else { return Ok(Deleted::Gone { last: marked }) };
            let object = unstructured::parse(&record.value);
            if uid(&object) != marked_uid {
                return Ok(Deleted::Gone { last: marked });
            }
            if !list(&object["metadata"], "finalizers").is_empty() {
                return Ok(Deleted::Marked { now: record.value.clone() });
            }
            let expect = Expect::At(record.modified);
            if let Some(last) = self.storage.commit(context, target, expect, Commit::Delete).await? {
                return Ok(Deleted::Gone { last });
            }
        }
        Err(ApiError::timeout())
    }
}

/// What a delete does to the object.
enum Mark {
    /// The object is being deleted already, and this delete changes nothing.
    Unchanged,
    /// The deletion waits for the grace period or for finalizers.
    Wait,
    /// The object is deleted now. `is_marked`: it has a new deletion timestamp or grace period, which is stored
    /// first.
    Go { is_marked: bool },
}

/// Sets deletion timestamp, grace period and finalizers.
fn mark(kind: &Kind, object: &mut Value, options: &DeleteOptions, now: Timestamp) -> Mark {
    let is_first = !is_set(&object["metadata"]["deletionTimestamp"]);
    if kind.holds_others && is_set(&object["spec"]["finalizers"]) {
        if !is_first {
            return Mark::Unchanged;
        }
        map_mut(object, "status").insert("phase".into(), json!("Terminating"));
        object["metadata"]["deletionTimestamp"] = json!(unstructured::time(now));
        set_finalizers(kind, object, options.propagation);
        return Mark::Wait;
    }
    let grace = if kind.graceful { grace(object, options.grace_s, now) } else { Grace::None };
    if let Grace::Running = grace {
        return Mark::Unchanged;
    }
    let is_held = set_finalizers(kind, object, options.propagation);
    let until = match grace {
        Grace::Until { at, grace_s } => Some((at, grace_s)),
        Grace::None if is_held => Some((deadline(object).map_or(now, |at| at.min(now)), 0)),
        Grace::None | Grace::Running => None,
    };
    let meta = &mut object["metadata"];
    if let Some((at, grace_s)) = until {
        meta["deletionTimestamp"] = json!(unstructured::time(at));
        meta["deletionGracePeriodSeconds"] = json!(grace_s);
        if let Some(generation) = meta["generation"].as_u64().filter(|_| is_first) {
            meta["generation"] = json!(generation + 1);
        }
    }
    match until {
        Some((_, grace_s)) if is_held || grace_s != 0 => Mark::Wait,
        _ => Mark::Go { is_marked: until.is_some() },
    }
}

/// The grace period of a delete.
enum Grace {
    /// No grace period, and the object's earlier grace period was zero.
    None,
    /// The object has a grace period that this delete does not shorten.
    Running,
    Until {
        at: Timestamp,
        grace_s: i64,
    },
}

fn grace(object: &Value, wanted_s: Option<i64>, now: Timestamp) -> Grace {
    // Clamped so that the deletion timestamp stays representable.
    let after = |at: Timestamp, s: i64| at + SignedDuration::from_secs(s.clamp(0, i32::MAX.into()));
    let wanted_s = wanted_s.map(|s| if s < 0 { 1 } else { s.min(i32::MAX.into()) });
    let meta = &object["metadata"];
    let Some(deletion_at) = deadline(object) else {
        let is_bound = !str_at(object, "spec.nodeName").is_empty();
        let is_over = matches!(str_at(object, "status.phase"), "Succeeded" | "Failed");
        let spec_s = object["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap_or(0);
        let spec_s = if spec_s < 0 { 1 } else { spec_s.min(i32::MAX.into()) };
        let grace_s = if is_bound && !is_over { wanted_s.unwrap_or(spec_s) } else { 0 };
        return Grace::Until { at: after(now, grace_s), grace_s };
    };
    match (meta["deletionGracePeriodSeconds"].as_i64().unwrap_or(0), wanted_s) {
        (0, _) => Grace::None,
        (granted_s, Some(wanted_s)) if wanted_s < granted_s => {
            let began = deletion_at - SignedDuration::from_secs(granted_s.clamp(0, i32::MAX.into()));
            let at = after(began, wanted_s);
            if now <= at {
                return Grace::Until { at, grace_s: wanted_s };
            }
            // The shorter period has passed already. Unless it is zero, the node still confirms the end of the
            // pod.
            Grace::Until { at: now, grace_s: wanted_s.min(1) }
        }
        _ => Grace::Running,
    }
}

fn deadline(object: &Value) -> Option<Timestamp> {
    str_at(object, "metadata.deletionTimestamp").parse().ok()
}

/// Sets the finalizer for the garbage collector that the propagation policy requires. Returns whether the
/// object has any finalizer.
fn set_finalizers(kind: &Kind, object: &mut Value, propagation: Option<Propagation>) -> bool {
    let finalizers_before = list(&object["metadata"], "finalizers");
    let is_ours = |it: &&Value| **it == FOREGROUND || **it == ORPHAN;
    let wanted = match propagation {
        _ if !kind.owns_others => None,
        None => finalizers_before.iter().find(is_ours).and_then(Value::as_str),
        Some(Propagation::Background) => None,
        Some(Propagation::Foreground) => Some(FOREGROUND),
        Some(Propagation::Orphan) => Some(ORPHAN),
    };
    let wanted = wanted.map(str::to_owned);
    if wanted.as_deref() != finalizers_before.iter().find(is_ours).and_then(Value::as_str) {
        let mut finalizers: Vec<Value> =
            finalizers_before.iter().filter(|it| !is_ours(it)).cloned().collect();
        finalizers.extend(wanted.map(Value::String));
        let meta = map_mut(object, "metadata");
        if finalizers.is_empty() {
            meta.remove("finalizers");
        } else {
            meta.insert("finalizers".into(), Value::Array(finalizers));
        }
    }
    !list(&object["metadata"], "finalizers").is_empty()
}

fn refuse_other_object(target: &Target, options: &DeleteOptions, object: &Value) -> Result<(), ApiError> {
    let (uid, version) = (str_at(object, "metadata.uid"), str_at(object, "metadata.resourceVersion"));
    let conflict = |why: String| {
        Err(ApiError::conflict_of_kind(target.kind.group, target.kind.kind, &target.name, &why))
    };
    match (&options.uid, &options.version) {
        (Some(wanted), _) if wanted != uid => conflict(format!(
            "the UID in the precondition ({wanted}) does not match the UID in record ({uid}). The object might have been deleted and then recreated"
        )),
        (_, Some(wanted)) if wanted != version => conflict(format!(
            "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record ({version}). The object might have been modified"
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bootstrap;
    use crate::subresource::Subresource;

    #[tokio::test]
    async fn a_marked_object_that_is_gone_held_or_replaced_is_not_deleted_again() {
        let now = Timestamp::UNIX_EPOCH;
        let registry = Registry::new(100);
        bootstrap::make_bare(&registry, now).await.unwrap();
        let context = Context::of_server("delete", now);
        let kind = Kind::find("", "v1", "configmaps").unwrap();
        let target = Target {
            kind,
            namespace: Some("default".into()),
            name: "a".into(),
            subresource: Subresource::Whole,
        };
        let create = async |finalizers: Value| {
            let object = json!({"metadata": {"name": "a", "finalizers": finalizers}});
            registry.create(&context, kind, Some("default"), object).await.unwrap()
        };
        let delete = async |marked: &Bytes| {
            let deleted = registry.delete_marked(&context, &target, marked.clone()).await.unwrap();
            let (what, object) = match deleted {
                Deleted::Gone { last } => ("gone", last),
                Deleted::Marked { now } => ("marked", now),
            };
            format!("{what} {}", str_at(&unstructured::parse(&object), "metadata.resourceVersion"))
        };
        let first = create(json!([])).await;
        assert_eq!(delete(&first).await, "gone 7", "deleted here");
        assert_eq!(
            delete(&first).await,
            "gone 6",
            "deleted by another client, the version is that of the mark"
        );
        let second = create(json!(["example.com/mine"])).await;
        assert_eq!(delete(&first).await, "gone 6", "another object with this name is left alone");
        assert_eq!(delete(&second).await, "marked 8");
        assert!(registry.storage.get(&target).is_ok());
    }
}
