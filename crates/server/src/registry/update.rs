//! Updates existing objects. Upstream: the update and patch handlers, `BeforeUpdate` and the registry's `Update`.

use std::sync::Arc;

use bytes::Bytes;
use muster_api::well_known::POD_SCHEDULED;
use muster_store::{Precondition, StoredObject};
use serde_json::{Value, json};

use super::{Registry, WRITE_ATTEMPTS_MAX, create, dedup_owner_references, validate_object};
use crate::admission::{AdmissionAttributes, AdmissionOperation};
use crate::error::ApiError;
use crate::request::{RequestAttributes, RequestContext, RequestTarget, ResourceAttributes};
use crate::storage::ObjectCommit;
use crate::subresource::Subresource;
use crate::unstructured::{self, is_set, list_at, map_at_mut, str_at};
use crate::validation::FieldError;
use crate::{auth, decode, server_side_apply};

/// Upstream's error message for an update whose resourceVersion differs from the stored one.
const OBJECT_MODIFIED_MESSAGE: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

/// The outcome of a write that creates or updates an object, with the resulting object as JSON.
#[derive(Debug)]
pub(crate) enum WriteOutcome {
    Created(Bytes),
    Updated(Bytes),
}

impl Registry {
    /// Replaces the stored object with `object`, for a PUT. Creates the object if it does not exist and the kind allows
    /// this.
    pub(crate) async fn replace(
        &self,
        context: &RequestContext,
        target: &RequestTarget,
        mut object: Value,
    ) -> Result<WriteOutcome, ApiError> {
        dedup_owner_references(context, &mut object);
        (target.kind.apply_defaults)(&mut object);
        let change = |old: Option<&Value>| {
            let uid = &object["metadata"]["uid"];
            if let Some(old) = old.filter(|old| is_set(uid) && old["metadata"]["uid"] != *uid) {
                return Err(uid_mismatch_error(
                    target,
                    str_at(&object, "metadata.uid"),
                    str_at(old, "metadata.uid"),
                ));
            }
            let mut new = object.clone();
            server_side_apply::track_field_ownership(context, &self.storage.kinds, target, &mut new, old);
            Ok(new)
        };
        self.create_or_update(context, target, target.kind.allows_create_on_update, change).await
    }

    /// Replaces the stored object with the result of `change`, and returns the resulting object. Fails if the object
    /// does not exist. `change` gets the stored object, and is called again after a concurrent write.
    pub(crate) async fn update(
        &self,
        context: &RequestContext,
        target: &RequestTarget,
        change: impl Fn(&Value) -> Result<Value, ApiError> + Sync,
    ) -> Result<Bytes, ApiError> {
        let change = |old: Option<&Value>| {
            let old = old.ok_or_else(|| target.not_found_error())?;
            let mut new = change(old)?;
            (target.kind.apply_defaults)(&mut new);
            server_side_apply::track_field_ownership(
                context,
                &self.storage.kinds,
                target,
                &mut new,
                Some(old),
            );
            Ok(new)
        };
        match self.create_or_update(context, target, false, change).await? {
            WriteOutcome::Created(object) | WriteOutcome::Updated(object) => Ok(object),
        }
    }

    /// Merges the configuration `applied` into the object (server-side apply). Creates the object if it does not exist.
    /// If `applied` changes fields that other managers own, the apply fails with a conflict. With `force`, the manager
    /// of the request takes these fields over instead. `check` validates and may change the merged object.
    pub(crate) async fn apply(
        &self,
        context: &RequestContext,
        target: &RequestTarget,
        applied: &Value,
        force: bool,
        check: impl Fn(&mut Value) -> Result<(), ApiError> + Sync,
    ) -> Result<WriteOutcome, ApiError> {
        let uid = str_at(applied, "metadata.uid");
        let change = |old: Option<&Value>| {
            if old.is_none() && !uid.is_empty() {
                let why = format!(
                    "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
                );
                return Err(ApiError::conflict(target.kind, &target.name, &why));
            }
            let new = server_side_apply::apply_configuration(
                context,
                &self.storage.kinds,
                target,
                applied,
                force,
                old,
            )?;
            let mut new = decode::decode_apply_result(target.kind.typed(), &new, applied)?;
            check(&mut new)?;
            let mut new = target.kind.to_storage_version(new);
            (target.kind.apply_defaults)(&mut new);
            Ok(new)
        };
        self.create_or_update(context, target, true, change).await
    }

    /// Binds a pod to the node that `binding` names, for a scheduler. Fails if the pod is already bound or is being
    /// deleted.
    pub(crate) async fn bind_pod(
        &self,
        context: &RequestContext,
        target: &RequestTarget,
        binding: &Value,
    ) -> Result<(), ApiError> {
        if str_at(binding, "metadata.name") != target.name {
            return Err(ApiError::bad_request("name in URL does not match name in Binding object"));
        }
        let node = str_at(binding, "target.name");
        if node.is_empty() {
            return Err(ApiError::invalid(
                target.kind,
                &target.name,
                &[FieldError::required("target.name", "name of the node to bind to")],
            ));
        }
        let bind = |pod: &Value| {
            let mut pod = pod.clone();
            let bound_to = str_at(&pod, "spec.nodeName");
            if !bound_to.is_empty() {
                let why = format!("pod {} is already assigned to node \"{bound_to}\"", target.name);
                return Err(ApiError::conflict(target.kind, &target.name, &why));
            }
            if is_set(&pod["metadata"]["deletionTimestamp"]) {
                let why = format!("pod {} is being deleted, cannot be assigned to a host", target.name);
                return Err(ApiError::conflict(target.kind, &target.name, &why));
            }
            pod["spec"]["nodeName"] = json!(node);
            if let Some(annotations) = binding["metadata"]["annotations"].as_object() {
                map_at_mut(&mut pod["metadata"], "annotations").extend(annotations.clone());
            }
            let scheduled = json!({
                "type": POD_SCHEDULED,
                "status": "True",
                "lastProbeTime": null,
                "lastTransitionTime": unstructured::format_time(context.now),
            });
            let mut conditions = list_at(&pod["status"], "conditions").to_vec();
            conditions.retain(|it| it["type"] != POD_SCHEDULED);
            conditions.push(scheduled);
            pod["status"]["conditions"] = Value::Array(conditions);
            // The nomination ends with the binding.
            if let Some(status) = pod["status"].as_object_mut() {
                status.remove("nominatedNodeName");
            }
            Ok(pod)
        };
        let bind = |pod: Option<&Value>| bind(pod.ok_or_else(|| target.not_found_error())?);
        // Managed fields stay as they are: the server writes on behalf of the scheduler.
        self.create_or_update(context, target, false, bind).await.map(drop)
    }

    /// Updates an object. Creates the object if it does not exist, unless `may_create` is false or the target is a
    /// subresource.
    ///
    /// `change` computes the new object from the stored object. It is called again after a concurrent write, so that
    /// such a write causes no conflict error for an update without a resourceVersion.
    async fn create_or_update(
        &self,
        context: &RequestContext,
        target: &RequestTarget,
        may_create: bool,
        change: impl Fn(Option<&Value>) -> Result<Value, ApiError> + Sync,
    ) -> Result<WriteOutcome, ApiError> {
        for _ in 0..WRITE_ATTEMPTS_MAX {
            match self.storage.get_record(target) {
                Ok(record) => {
                    if let Some(updated) = self.try_update(context, target, &record, &change).await? {
                        return Ok(WriteOutcome::Updated(updated));
                    }
                }
                Err(_) if may_create && target.subresource == Subresource::Whole => {
                    authorize_create(self, context, target)?;
                    let mut new = change(None)?;
                    create::normalize_new_metadata(target.kind, target.namespace.as_deref(), &mut new)?;
                    match self.admit_and_create(context, &mut target.clone(), new).await {
                        Ok(created) => return Ok(WriteOutcome::Created(created)),
                        // Another client has created it: continue with an update.
                        Err(it) if it.is_already_exists() => {}
                        Err(it) => return Err(it),
                    }
                }
                Err(it) => return Err(it),
            }
        }
        Err(ApiError::timeout())
    }

    /// Attempts an update once, and returns the resulting object. An update that changes nothing is not written, and
    /// neither is a dry run. If the object is being deleted and nothing delays its deletion after the update, the
    /// object is removed instead of stored. Returns `None` if a concurrent write has changed the object in the
    /// meantime, so that the caller must try again.
    async fn try_update(
        &self,
        context: &RequestContext,
        target: &RequestTarget,
        record: &Arc<StoredObject>,
        change: &(impl Fn(Option<&Value>) -> Result<Value, ApiError> + Sync),
    ) -> Result<Option<Bytes>, ApiError> {
        let old = unstructured::parse_stored(&record.value);
        let pool = self.admission.allocation_pool(target.kind);
        let mut new = change(Some(&old))?;
        let attributes = AdmissionAttributes { target, operation: AdmissionOperation::Update { old: &old } };
        self.admission.mutate(context, attributes, &mut new).await?;
        dedup_owner_references(context, &mut new);
        check_resource_version(target, &new, &old)?;
        target.kind.prepare_for_update(target.subresource, &mut new, &old);
        validate_object(context, target, &new, Some(&old))?;
        let charge = self.admission.validate(context, attributes, &new).await?;
        if is_unchanged(&new, &old) {
            return Ok(Some(record.value.clone()));
        }
        if context.dry_run {
            return Ok(Some(unstructured::to_bytes(&new)));
        }
        let is_gone = should_delete_during_update(target, &new, &old);
        // Watches get the last stored object; the writer gets the object that it sent.
        let allocation = pool.and_then(|it| it.allocation(&new, &old));
        let quotas = charge.as_ref().map_or(&[][..], |it| &it.updates);
        let commit = match is_gone {
            true => ObjectCommit::Delete,
            false => ObjectCommit::Update { object: &new, old: &old, allocation, quotas },
        };
        let written = self.storage.commit(context, target, Precondition::At(record.modified), commit).await?;
        Ok(if is_gone { written.map(|_| unstructured::to_bytes(&new)) } else { written })
    }
}

/// Checks that the user of an update or apply may also create the object, because permission to update does not imply
/// permission to create.
fn authorize_create(
    registry: &Registry,
    context: &RequestContext,
    target: &RequestTarget,
) -> Result<(), ApiError> {
    let create = RequestAttributes::for_resource("create", ResourceAttributes::of_target(target, ""));
    auth::require_authorized(&registry.access, &context.user, &create).map(drop)
}

/// Checks that the resourceVersion of an update equals the stored one. An update without a resourceVersion, or with
/// `0`, passes unless the kind requires a resourceVersion.
fn check_resource_version(target: &RequestTarget, new: &Value, old: &Value) -> Result<(), ApiError> {
    let (new, old) = (&new["metadata"]["resourceVersion"], &old["metadata"]["resourceVersion"]);
    match new.as_str().unwrap_or_default() {
        "" | "0" if target.kind.requires_resource_version => {
            Err(ApiError::resource_version_required(target.kind, &target.name))
        }
        "" | "0" => Ok(()),
        _ if new == old => Ok(()),
        _ => Err(ApiError::conflict(target.kind, &target.name, OBJECT_MODIFIED_MESSAGE)),
    }
}

/// Returns the error for an update whose UID differs from the stored one. Upstream's etcd storage has the same message.
fn uid_mismatch_error(target: &RequestTarget, expected: &str, found: &str) -> ApiError {
    let (plural, name) = (target.kind.plural, &target.name);
    let namespace = target.namespace.as_ref().map_or_else(String::new, |it| format!("{it}/"));
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: /registry/{plural}/{namespace}{name}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {expected}, UID in object meta: {found}"
    );
    ApiError::conflict(target.kind, &target.name, &why)
}

/// Whether an update changes nothing except timestamps in managed fields.
fn is_unchanged(new: &Value, old: &Value) -> bool {
    /// Whether two objects are equal if their fields `name` are compared with `same` instead of `==`.
    fn is_equal_except(new: &Value, old: &Value, name: &str, same: impl Fn(&Value, &Value) -> bool) -> bool {
        let (Some(new), Some(old)) = (new.as_object(), old.as_object()) else { return new == old };
        new.len() == old.len()
            && new.iter().all(|(at, new)| {
                old.get(at).is_some_and(|old| if at == name { same(new, old) } else { new == old })
            })
    }
    is_equal_except(new, old, "metadata", |new, old| {
        is_equal_except(new, old, "managedFields", |new, old| match (new.as_array(), old.as_array()) {
            (Some(new), Some(old)) => {
                let mut pairs = new.iter().zip(old);
                new.len() == old.len()
                    && pairs.all(|(new, old)| is_equal_except(new, old, "time", |_, _| true))
            }
            _ => new == old,
        })
    })
}

/// Whether an update deletes the object: it is being deleted, and neither finalizers nor a grace period delay its
/// deletion any longer. Upstream: `ShouldDeleteDuringUpdate`.
fn should_delete_during_update(target: &RequestTarget, new: &Value, old: &Value) -> bool {
    is_set(&old["metadata"]["deletionTimestamp"])
        && list_at(&new["metadata"], "finalizers").is_empty()
        && old["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) == 0
        && !(target.kind.has_spec_finalizers && is_set(&new["spec"]["finalizers"]))
}
