//! New objects. Upstream: the create handler, `BeforeCreate` and the registry's `Create`.

use bytes::Bytes;
use muster_store::{Expect, Revision};
use serde_json::{Value, json};

use super::{Registry, check, dedup_owners};
use crate::admission::{AdmissionAttributes, Charge, Operation};
use crate::error::ApiError;
use crate::kinds::{Kind, generated_suffix};
use crate::request::{Context, Target};
use crate::server_side_apply;
use crate::storage::Commit;
use crate::subresource::Subresource;
use crate::unstructured::{self, is_set, map_mut, str_at};

/// Most names that are generated before the create fails.
const NAMES_MAX: u32 = 8;

impl Registry {
    pub(crate) async fn create(
        &self,
        context: &Context,
        kind: &'static Kind,
        namespace: Option<&str>,
        mut object: Value,
    ) -> Result<Bytes, ApiError> {
        begin(kind, namespace, &mut object)?;
        dedup_owners(context, &mut object);
        (kind.default)(&mut object);
        let mut target = Target {
            kind,
            namespace: namespace.map(str::to_owned),
            name: str_at(&object, "metadata.name").to_owned(),
            subresource: Subresource::Whole,
        };
        server_side_apply::updated(context, &target, &mut object, None);
        self.create_new(context, &mut target, object).await
    }

    /// Admission, validation and commit of an object that is to be created; defaulting and managed fields are
    /// done.
    pub(super) async fn create_new(
        &self,
        context: &Context,
        target: &mut Target,
        mut object: Value,
    ) -> Result<Bytes, ApiError> {
        let kind = target.kind;
        let attributes = AdmissionAttributes { target, operation: Operation::Create };
        // An object created while its namespace is deleted would be left behind, so the commit requires that
        // the namespace is unchanged.
        let mut within = self.namespace_of(target);
        self.admission.mutate(context, attributes, &mut object).await?;
        dedup_owners(context, &mut object);
        let prefix = str_at(&object, "metadata.generateName").to_owned();
        let is_named = is_set(&object["metadata"]["name"]);
        kind.prepare_for_create(&mut object, context.now);
        for _ in 0..NAMES_MAX {
            if !is_named && !prefix.is_empty() {
                object["metadata"]["name"] = json!(format!("{prefix}{}", generated_suffix()));
            }
            if kind.holds_others {
                // The default label of a namespace contains its name.
                (kind.default)(&mut object);
            }
            target.name = str_at(&object, "metadata.name").to_owned();
            let attributes = AdmissionAttributes { target, operation: Operation::Create };
            check(context, target, &object, None)?;
            // A refused create must not be charged to a quota.
            if is_named && self.storage.store().get(&target.key()).is_some() {
                self.admission.check_write(&context.user, attributes, &object)?;
                return Err(self.exists(target));
            }
            let charge = self.admission.validate(self, context, attributes, &object).await?;
            if context.dry_run && self.storage.store().get(&target.key()).is_none() {
                return Ok(unstructured::bytes(&object));
            }
            if !context.dry_run
                && let Some(created) = self
                    .storage
                    .commit(context, target, Expect::Absent, Commit::New(&object, within.clone()))
                    .await?
            {
                charge.into_iter().for_each(Charge::spent);
                return Ok(created);
            }
            let changed = self.namespace_of(target);
            if changed != within {
                within = changed;
                self.admission.check_namespace(attributes, &object)?;
                continue;
            }
            // Another name is tried only if the server generated it.
            if is_named {
                return Err(self.exists(target));
            }
        }
        Err(ApiError::no_name_left(kind, &target.name))
    }

    /// Returns the key of the object's namespace, and the revision of its last change.
    fn namespace_of(&self, target: &Target) -> Option<(String, Revision)> {
        let key = Kind::namespace().key(None, target.namespace.as_deref()?);
        let since = self.storage.store().get(&key)?.modified;
        Some((key, since))
    }

    fn exists(&self, target: &Target) -> ApiError {
        let is_terminating = self
            .storage
            .stored(target)
            .is_ok_and(|it| is_set(&unstructured::parse(&it.value)["metadata"]["deletionTimestamp"]));
        let error = ApiError::exists(target.kind, &target.name);
        if is_terminating { error.prefixed("object is being deleted: ") } else { error }
    }
}

/// Removes fields that a client may not set in a new object, and checks its namespace against that of the
/// request.
pub(super) fn begin(kind: &Kind, namespace: Option<&str>, object: &mut Value) -> Result<(), ApiError> {
    object["apiVersion"] = json!(kind.stored().api_version());
    object["kind"] = json!(kind.kind);
    let meta = map_mut(object, "metadata");
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
