//! Creates objects. Upstream: the create handler, `BeforeCreate` and the registry's `Create`.

use bytes::Bytes;
use muster_store::{Precondition, Revision};
use serde_json::{Value, json};

use super::{Registry, WRITE_ATTEMPTS_MAX, dedup_owner_references, validate_object};
use crate::admission::{AdmissionAttributes, AdmissionOperation};
use crate::error::ApiError;
use crate::kinds::{Kind, generate_name_suffix};
use crate::request::{RequestContext, RequestTarget};
use crate::server_side_apply;
use crate::storage::ObjectCommit;
use crate::subresource::Subresource;
use crate::unstructured::{self, is_set, map_at_mut, str_at};

/// Maximum number of attempts of a create. An attempt must be repeated if the generated name is in use, or if the
/// Namespace has changed in the meantime. With `generateName`, each attempt has a new name. Attempts that must be
/// repeated because the usage of a quota has changed are not counted.
const CREATE_ATTEMPTS_MAX: u32 = 8;

impl Registry {
    /// Creates an object, for a POST. Returns the stored object as JSON. In a dry run, returns the object that would be
    /// stored.
    pub(crate) async fn create(
        &self,
        context: &RequestContext,
        kind: &'static Kind,
        namespace: Option<&str>,
        mut object: Value,
    ) -> Result<Bytes, ApiError> {
        normalize_new_metadata(kind, namespace, &mut object)?;
        dedup_owner_references(context, &mut object);
        (kind.apply_defaults)(&mut object);
        let mut target = RequestTarget {
            kind,
            namespace: namespace.map(str::to_owned),
            name: str_at(&object, "metadata.name").to_owned(),
            subresource: Subresource::Whole,
        };
        server_side_apply::track_field_ownership(context, &self.storage.kinds, &target, &mut object, None);
        self.admit_and_create(context, &mut target, object).await
    }

    /// Runs admission and validation for a new object, and commits it unless this is a dry run. Returns the resulting
    /// object. The caller has already applied defaults and set managed fields.
    pub(super) async fn admit_and_create(
        &self,
        context: &RequestContext,
        target: &mut RequestTarget,
        object: Value,
    ) -> Result<Bytes, ApiError> {
        if self.admission.allocation_pool(target.kind).is_none() {
            return self.try_create(context, target, object).await?.ok_or_else(ApiError::timeout);
        }
        for _ in 0..WRITE_ATTEMPTS_MAX {
            if let Some(created) = self.try_create(context, target, object.clone()).await? {
                return Ok(created);
            }
        }
        Err(ApiError::timeout())
    }

    /// Runs mutating admission for a new object once, and then attempts to commit the object up to
    /// [`CREATE_ATTEMPTS_MAX`] times. Returns the object as [`Registry::admit_and_create`] does. Returns `None` if
    /// another server has allocated a value, such as a cluster IP, from the same pool at the same time, so that the
    /// caller must run admission again to choose another value.
    async fn try_create(
        &self,
        context: &RequestContext,
        target: &mut RequestTarget,
        mut object: Value,
    ) -> Result<Option<Bytes>, ApiError> {
        let kind = target.kind;
        let pool = self.admission.allocation_pool(kind);
        let attributes = AdmissionAttributes { target, operation: AdmissionOperation::Create };
        // An object created while its namespace is deleted would be left behind, so the commit requires that
        // the namespace is unchanged.
        let mut namespace_revision = self.namespace_revision(target);
        self.admission.mutate(context, attributes, &mut object).await?;
        dedup_owner_references(context, &mut object);
        let prefix = str_at(&object, "metadata.generateName").to_owned();
        let is_named = is_set(&object["metadata"]["name"]);
        kind.prepare_for_create(&mut object, context.now);
        let (mut names_left, mut quota_attempts_left) = (CREATE_ATTEMPTS_MAX, WRITE_ATTEMPTS_MAX);
        while 0 < names_left {
            names_left -= 1;
            if !is_named && !prefix.is_empty() {
                object["metadata"]["name"] = json!(format!("{prefix}{}", generate_name_suffix()));
            }
            if kind.has_spec_finalizers {
                // The default label of a namespace contains its name.
                (kind.apply_defaults)(&mut object);
            }
            target.name = str_at(&object, "metadata.name").to_owned();
            let attributes = AdmissionAttributes { target, operation: AdmissionOperation::Create };
            validate_object(context, target, &object, None)?;
            if is_named && self.storage.read_store().get(&target.key()).is_some() {
                self.admission.check_privilege_escalation(&context.user, attributes, &object)?;
                return Err(self.already_exists_error(target));
            }
            let charge = self.admission.validate(context, attributes, &object).await?;
            if context.dry_run && self.storage.read_store().get(&target.key()).is_none() {
                return Ok(Some(unstructured::to_bytes(&object)));
            }
            let allocation = pool.and_then(|it| it.allocation(&object, &Value::Null));
            let allocates = allocation.is_some();
            let quotas = charge.as_ref().map_or(&[][..], |it| &it.updates);
            if !context.dry_run
                && let Some(created) = self
                    .storage
                    .commit(
                        context,
                        target,
                        Precondition::Absent,
                        ObjectCommit::Create {
                            object: &object,
                            namespace_revision: namespace_revision.clone(),
                            allocation,
                            quotas,
                        },
                    )
                    .await?
            {
                return Ok(Some(created));
            }
            let changed = self.namespace_revision(target);
            if changed != namespace_revision {
                namespace_revision = changed;
                self.admission.check_namespace(attributes, &object)?;
                continue;
            }
            let is_absent = || self.storage.read_store().get(&target.key()).is_none();
            if allocates && is_absent() {
                return Ok(None);
            }
            // The usage of a quota has changed: charge the new usage.
            if charge.is_some() && is_absent() {
                if quota_attempts_left == 0 {
                    return Err(ApiError::timeout());
                }
                quota_attempts_left -= 1;
                names_left += 1;
                continue;
            }
            // Another name is tried only if the server generated it.
            if is_named {
                return Err(self.already_exists_error(target));
            }
        }
        Err(ApiError::name_generation_failed(kind, &target.name))
    }

    /// Returns the store key of the Namespace that contains the object, and the revision of the last commit to this
    /// Namespace. Returns `None` for a cluster-scoped object, and if the Namespace does not exist.
    fn namespace_revision(&self, target: &RequestTarget) -> Option<(String, Revision)> {
        let key = Kind::namespace_kind().store_key(None, target.namespace.as_deref()?);
        let since = self.storage.read_store().get(&key)?.modified;
        Some((key, since))
    }

    /// Returns the error for a create of an object that already exists. If that object is being deleted, the message
    /// says so.
    fn already_exists_error(&self, target: &RequestTarget) -> ApiError {
        let is_terminating = self
            .storage
            .get_record(target)
            .is_ok_and(|it| is_set(&unstructured::parse_stored(&it.value)["metadata"]["deletionTimestamp"]));
        let error = ApiError::already_exists(target.kind, &target.name);
        if is_terminating { error.with_message_prefix("object is being deleted: ") } else { error }
    }
}

/// Sets `apiVersion`, `kind` and namespace of a new object, and removes the metadata that a client may not set. Fails
/// if the object has a resourceVersion, or if its namespace differs from the namespace of the request.
pub(super) fn normalize_new_metadata(
    kind: &Kind,
    namespace: Option<&str>,
    object: &mut Value,
) -> Result<(), ApiError> {
    object["apiVersion"] = json!(kind.storage_kind().api_version());
    object["kind"] = json!(kind.kind);
    let meta = map_at_mut(object, "metadata");
    if meta.get("resourceVersion").is_some_and(is_set) {
        return Err(ApiError::bad_request("resourceVersion should not be set on objects to be created"));
    }
    for name in ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
        meta.remove(name);
    }
    match (namespace, meta.get("namespace").and_then(Value::as_str)) {
        (Some(namespace), None | Some("")) => drop(meta.insert("namespace".into(), json!(namespace))),
        (Some(namespace), Some(found)) if found == namespace => {}
        // A cluster-scoped object has no namespace.
        (None, _) => drop(meta.remove("namespace")),
        (Some(_), Some(_)) => {
            return Err(ApiError::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
    }
    Ok(())
}
