//! Deletes objects, either immediately or after a grace period and finalizers. Upstream: `BeforeDelete` and the
//! registry's `Delete`.

use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use muster_api::core_v1::PodPhase;
use muster_api::well_known::{FINALIZER_FOREGROUND, FINALIZER_ORPHAN};
use muster_store::Precondition;
use serde_json::{Value, json};

use super::{Registry, WRITE_ATTEMPTS_MAX};
use crate::admission::{AdmissionAttributes, AdmissionOperation};
use crate::error::ApiError;
use crate::kinds::Kind;
use crate::request::{RequestContext, RequestTarget};
use crate::storage::ObjectCommit;
use crate::unstructured::{self, is_set, list_at, map_at_mut, str_at};

/// Options of a delete. Upstream: `metav1.DeleteOptions`.
#[derive(Debug, Default, Clone)]
pub(crate) struct DeleteOptions {
    /// Requested grace period in seconds. `None` for the default of the object.
    pub(crate) grace_s: Option<i64>,
    /// Requested propagation policy. If it is `None`, a finalizer `foregroundDeletion` or `orphan` that the object
    /// already has stays, unless the object's kind cannot own objects.
    pub(crate) propagation: Option<DeletePropagation>,
    /// Precondition of the delete: the UID that the object must have. `None` for any UID.
    pub(crate) uid: Option<String>,
    /// Precondition of the delete: the resourceVersion that the object must have. `None` for any resourceVersion.
    pub(crate) resource_version: Option<String>,
    /// Whether the client sent `orphanDependents: false`. If the object still exists after such a delete, the response
    /// code is 202 instead of 200.
    pub(crate) requests_cascade: bool,
}

/// The propagation policy: what happens to the dependents of a deleted object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeletePropagation {
    /// The garbage collector deletes the dependents after the object.
    Background,
    /// The object is deleted after its dependents.
    Foreground,
    /// The dependents stay, and their owner references to the object are removed.
    Orphan,
}

/// The outcome of a delete: whether the object was removed or still exists. For a dry run, the outcome that the delete
/// would have.
#[derive(Debug)]
pub(crate) enum DeleteOutcome {
    /// The object no longer exists. `last` is its last state.
    Removed { last: Bytes },
    /// The object still exists, because its deletion waits for the grace period or for finalizers. `now` is its current
    /// state.
    Pending { now: Bytes },
}

impl Registry {
    /// Deletes an object, or marks it for deletion if a grace period or finalizers delay the deletion.
    pub(crate) async fn delete(
        &self,
        context: &RequestContext,
        target: &RequestTarget,
        options: &DeleteOptions,
    ) -> Result<DeleteOutcome, ApiError> {
        for _ in 0..WRITE_ATTEMPTS_MAX {
            if let Some(deleted) = self.try_delete(context, target, options).await? {
                return Ok(deleted);
            }
        }
        Err(ApiError::timeout())
    }

    /// Checks whether a delete would be allowed: the object exists, the preconditions hold and admission allows it.
    /// Writes nothing.
    pub(crate) async fn check_delete(
        &self,
        context: &RequestContext,
        target: &RequestTarget,
        options: &DeleteOptions,
    ) -> Result<(), ApiError> {
        let old = unstructured::parse_stored(&self.storage.get_record(target)?.value);
        check_preconditions(target, options, &old)?;
        let attributes = AdmissionAttributes { target, operation: AdmissionOperation::Delete };
        self.admission.mutate(context, attributes, &mut Value::Null).await?;
        self.admission.validate(context, attributes, &Value::Null).await.map(drop)
    }

    /// Attempts a delete once. Returns `None` if a concurrent write has changed the object in the meantime, so that the
    /// caller must try again.
    async fn try_delete(
        &self,
        context: &RequestContext,
        target: &RequestTarget,
        options: &DeleteOptions,
    ) -> Result<Option<DeleteOutcome>, ApiError> {
        let record = self.storage.get_record(target)?;
        let old = unstructured::parse_stored(&record.value);
        check_preconditions(target, options, &old)?;
        let attributes = AdmissionAttributes { target, operation: AdmissionOperation::Delete };
        self.admission.mutate(context, attributes, &mut Value::Null).await?;
        self.admission.validate(context, attributes, &Value::Null).await?;

        let mut object = old.clone();
        let (is_final, is_stored) = match mark_for_deletion(target.kind, &mut object, options, context.now) {
            DeleteEffect::Unchanged => return Ok(Some(DeleteOutcome::Pending { now: record.value.clone() })),
            DeleteEffect::Wait if object == old => {
                return Ok(Some(DeleteOutcome::Pending { now: record.value.clone() }));
            }
            DeleteEffect::Wait => (false, true),
            DeleteEffect::Delete { is_marked } => (true, is_marked),
        };
        if context.dry_run {
            return Ok(Some(if is_final {
                DeleteOutcome::Removed { last: unstructured::to_bytes(&object) }
            } else {
                DeleteOutcome::Pending { now: unstructured::to_bytes(&object) }
            }));
        }
        let commit = if is_stored { ObjectCommit::MarkDeleted(&object) } else { ObjectCommit::Delete };
        let stored = self.storage.commit(context, target, Precondition::At(record.modified), commit).await?;
        Ok(match stored {
            None => None,
            Some(now) if is_stored && is_final => {
                Some(self.delete_marked_object(context, target, now).await?)
            }
            Some(now) if is_stored => Some(DeleteOutcome::Pending { now }),
            Some(last) => Some(DeleteOutcome::Removed { last }),
        })
    }

    /// Deletes an object whose deletion timestamp the caller has already stored. `marked` is the object with this
    /// timestamp. If the object now has finalizers, it is not deleted, and the outcome is [`DeleteOutcome::Pending`].
    ///
    /// Rule: if a kind has graceful deletion, a deletion timestamp is stored before the object is deleted, also with a
    /// grace period of zero. Watches therefore get an event with the timestamp, and the deletion event contains the
    /// last stored object.
    /// Upstream: `updateForGracefulDeletionAndFinalizers`, then `Storage.Delete`.
    async fn delete_marked_object(
        &self,
        context: &RequestContext,
        target: &RequestTarget,
        marked: Bytes,
    ) -> Result<DeleteOutcome, ApiError> {
        let uid = |it: &Value| str_at(it, "metadata.uid").to_owned();
        let marked_uid = uid(&unstructured::parse_stored(&marked));
        for _ in 0..WRITE_ATTEMPTS_MAX {
            // The node's agent may have deleted the pod as soon as it saw the timestamp.
            let Ok(record) = self.storage.get_record(target) else {
                return Ok(DeleteOutcome::Removed { last: marked });
            };
            let object = unstructured::parse_stored(&record.value);
            if uid(&object) != marked_uid {
                return Ok(DeleteOutcome::Removed { last: marked });
            }
            if !list_at(&object["metadata"], "finalizers").is_empty() {
                return Ok(DeleteOutcome::Pending { now: record.value.clone() });
            }
            let expect = Precondition::At(record.modified);
            if let Some(last) = self.storage.commit(context, target, expect, ObjectCommit::Delete).await? {
                return Ok(DeleteOutcome::Removed { last });
            }
        }
        Err(ApiError::timeout())
    }
}

/// The effect of a delete on the stored object.
enum DeleteEffect {
    /// The object is already being deleted, and this delete changes nothing.
    Unchanged,
    /// The object is stored with a deletion timestamp, and stays until its grace period ends and its finalizers are
    /// removed.
    Wait,
    /// The object is deleted immediately. If `is_marked` is set, the delete has changed the object's deletion timestamp
    /// or grace period, and the changed object is stored before it is deleted.
    Delete { is_marked: bool },
}

/// Sets the deletion timestamp, grace period and finalizers of an object for a delete, and the phase of a Namespace.
/// Returns what the delete does with the object.
fn mark_for_deletion(
    kind: &Kind,
    object: &mut Value,
    options: &DeleteOptions,
    now: Timestamp,
) -> DeleteEffect {
    let is_first = !is_set(&object["metadata"]["deletionTimestamp"]);
    if kind.has_spec_finalizers && is_set(&object["spec"]["finalizers"]) {
        if !is_first {
            return DeleteEffect::Unchanged;
        }
        map_at_mut(object, "status").insert("phase".into(), json!("Terminating"));
        object["metadata"]["deletionTimestamp"] = json!(unstructured::format_time(now));
        set_propagation_finalizers(kind, object, options.propagation);
        return DeleteEffect::Wait;
    }
    let grace =
        if kind.deletes_gracefully { grace_period(object, options.grace_s, now) } else { GracePeriod::None };
    if let GracePeriod::Running = grace {
        return DeleteEffect::Unchanged;
    }
    let is_held = set_propagation_finalizers(kind, object, options.propagation);
    let until = match grace {
        GracePeriod::Until { at, grace_s } => Some((at, grace_s)),
        GracePeriod::None if is_held => Some((deletion_timestamp(object).map_or(now, |at| at.min(now)), 0)),
        GracePeriod::None | GracePeriod::Running => None,
    };
    let meta = &mut object["metadata"];
    if let Some((at, grace_s)) = until {
        meta["deletionTimestamp"] = json!(unstructured::format_time(at));
        meta["deletionGracePeriodSeconds"] = json!(grace_s);
        if let Some(generation) = meta["generation"].as_u64().filter(|_| is_first) {
            meta["generation"] = json!(generation + 1);
        }
    }
    match until {
        Some((_, grace_s)) if is_held || grace_s != 0 => DeleteEffect::Wait,
        _ => DeleteEffect::Delete { is_marked: until.is_some() },
    }
}

/// How long the deletion of an object waits for its grace period.
enum GracePeriod {
    /// The deletion does not wait. Either the kind has no grace period, or the object is already being deleted with a
    /// grace period of zero.
    None,
    /// The object is already being deleted, and this delete does not shorten its grace period.
    Running,
    /// The grace period is `grace_s` seconds, possibly zero, and ends at `at`.
    Until { at: Timestamp, grace_s: i64 },
}

/// Returns the grace period of a pod that is deleted. `requested_s` is the grace period that the delete requests.
fn grace_period(object: &Value, requested_s: Option<i64>, now: Timestamp) -> GracePeriod {
    // Clamped so that the deletion timestamp stays representable.
    let after = |at: Timestamp, s: i64| at + SignedDuration::from_secs(s.clamp(0, i32::MAX.into()));
    let requested_s = requested_s.map(|s| if s < 0 { 1 } else { s.min(i32::MAX.into()) });
    let meta = &object["metadata"];
    let Some(deletion_at) = deletion_timestamp(object) else {
        let is_bound = !str_at(object, "spec.nodeName").is_empty();
        let is_over = PodPhase::parse(str_at(object, "status.phase")).is_terminal();
        let spec_s = object["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap_or(0);
        let spec_s = if spec_s < 0 { 1 } else { spec_s.min(i32::MAX.into()) };
        let grace_s = if is_bound && !is_over { requested_s.unwrap_or(spec_s) } else { 0 };
        return GracePeriod::Until { at: after(now, grace_s), grace_s };
    };
    match (meta["deletionGracePeriodSeconds"].as_i64().unwrap_or(0), requested_s) {
        (0, _) => GracePeriod::None,
        (granted_s, Some(requested_s)) if requested_s < granted_s => {
            let began = deletion_at - SignedDuration::from_secs(granted_s.clamp(0, i32::MAX.into()));
            let at = after(began, requested_s);
            if now <= at {
                return GracePeriod::Until { at, grace_s: requested_s };
            }
            // The shorter period has passed already. Unless it is zero, the node still confirms the end of the
            // pod.
            GracePeriod::Until { at: now, grace_s: requested_s.min(1) }
        }
        _ => GracePeriod::Running,
    }
}

/// Returns `metadata.deletionTimestamp` of an object, or `None` if the object is not being deleted.
fn deletion_timestamp(object: &Value) -> Option<Timestamp> {
    str_at(object, "metadata.deletionTimestamp").parse().ok()
}

/// Adds or removes the finalizers `foregroundDeletion` and `orphan` as the propagation policy requires. For a kind that
/// cannot own objects, removes both. Otherwise changes neither of them if `propagation` is `None`. Returns whether the
/// object then has any finalizer.
fn set_propagation_finalizers(
    kind: &Kind,
    object: &mut Value,
    propagation: Option<DeletePropagation>,
) -> bool {
    let finalizers_before = list_at(&object["metadata"], "finalizers");
    let is_ours = |it: &&Value| **it == FINALIZER_FOREGROUND || **it == FINALIZER_ORPHAN;
    let finalizer = match propagation {
        _ if !kind.can_own_objects => None,
        None => finalizers_before.iter().find(is_ours).and_then(Value::as_str),
        Some(DeletePropagation::Background) => None,
        Some(DeletePropagation::Foreground) => Some(FINALIZER_FOREGROUND),
        Some(DeletePropagation::Orphan) => Some(FINALIZER_ORPHAN),
    };
    let finalizer = finalizer.map(str::to_owned);
    if finalizer.as_deref() != finalizers_before.iter().find(is_ours).and_then(Value::as_str) {
        let mut finalizers: Vec<Value> =
            finalizers_before.iter().filter(|it| !is_ours(it)).cloned().collect();
        finalizers.extend(finalizer.map(Value::String));
        let meta = map_at_mut(object, "metadata");
        if finalizers.is_empty() {
            meta.remove("finalizers");
        } else {
            meta.insert("finalizers".into(), Value::Array(finalizers));
        }
    }
    !list_at(&object["metadata"], "finalizers").is_empty()
}

/// Checks that the object has the UID and resourceVersion that the delete options require. Otherwise returns a conflict
/// error.
fn check_preconditions(
    target: &RequestTarget,
    options: &DeleteOptions,
    object: &Value,
) -> Result<(), ApiError> {
    let (uid, version) = (str_at(object, "metadata.uid"), str_at(object, "metadata.resourceVersion"));
    let conflict = |why: String| {
        Err(ApiError::conflict_naming_kind(target.kind.group, target.kind.kind, &target.name, &why))
    };
    match (&options.uid, &options.resource_version) {
        (Some(expected), _) if expected != uid => conflict(format!(
            "the UID in the precondition ({expected}) does not match the UID in record ({uid}). The object might have been deleted and then recreated"
        )),
        (_, Some(expected)) if expected != version => conflict(format!(
            "the ResourceVersion in the precondition ({expected}) does not match the ResourceVersion in record ({version}). The object might have been modified"
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
        bootstrap::ensure_test_objects(&registry, now).await.unwrap();
        let context = RequestContext::for_server("delete", now);
        let kind = Kind::builtin("", "v1", "configmaps");
        let target = RequestTarget {
            kind,
            namespace: Some("default".into()),
            name: "a".into(),
            subresource: Subresource::Whole,
        };
        let create = async |finalizers: Value| {
            let object = json!({"metadata": {"name": "a", "finalizers": finalizers}});
            registry.create(&context, kind, Some("default"), object).await.unwrap()
        };
        let revision = || registry.storage.revision();
        let delete = async |marked: &Bytes| {
            let deleted = registry.delete_marked_object(&context, &target, marked.clone()).await.unwrap();
            let (what, object) = match deleted {
                DeleteOutcome::Removed { last } => ("gone", last),
                DeleteOutcome::Pending { now } => ("marked", now),
            };
            format!("{what} {}", str_at(&unstructured::parse_stored(&object), "metadata.resourceVersion"))
        };
        let first = create(json!([])).await;
        let marked = revision();
        assert_eq!(delete(&first).await, format!("gone {}", revision()), "deleted here");
        assert!(marked < revision());
        assert_eq!(
            delete(&first).await,
            format!("gone {marked}"),
            "deleted by another client, the version is that of the mark"
        );
        let second = create(json!(["example.com/mine"])).await;
        let held = revision();
        assert_eq!(
            delete(&first).await,
            format!("gone {marked}"),
            "another object with this name is left alone"
        );
        assert_eq!(delete(&second).await, format!("marked {held}"));
        assert!(registry.storage.get(&target).is_ok());
    }
}
