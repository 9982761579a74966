//! Creates, updates and deletes objects. The code is the same for every kind and independent of HTTP. Upstream:
//! `genericregistry.Store`.
//!
//! A write reads the stored object, computes the new object without holding a lock, and commits it only if the stored
//! object has not changed. Otherwise the write starts again. The order is upstream's: decoding and conversion
//! (done by the caller) → defaulting → managed fields → mutating admission → server-owned fields → validation →
//! validating admission → commit.

/// Creates objects.
mod create;
/// Deletes objects.
mod delete;
/// Stores of in-process tests.
#[cfg(test)]
pub(crate) mod test_store;
/// Updates existing objects.
mod update;

use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use muster_store::{Db, DbOptions, HistoryWindow, OnFailure, StoreLimits};
use serde_json::Value;

#[cfg(test)]
use self::test_store::TestStore;
use crate::admission::{AdmissionChain, QuotaAccessor};
use crate::auth::{AccessControl, TokenSigner};
use crate::error::ApiError;
use crate::metrics::ServerMetrics;
use crate::request::{RequestContext, RequestTarget};
use crate::small_map::SmallSet;
use crate::storage::ObjectStorage;
use crate::unstructured::str_at;
use crate::validation::WriteToValidate;

pub(crate) use self::delete::{DeleteOptions, DeleteOutcome, DeletePropagation};
pub(crate) use self::update::WriteOutcome;

/// Maximum number of attempts of a write that conflicts with concurrent writes. Each conflict means that another write
/// to the object succeeded. After this number of conflicts, the object is written too often for this write to succeed
/// soon, so the write fails.
const WRITE_ATTEMPTS_MAX: u32 = 64;

/// Creates, updates and deletes objects of all kinds, with admission and validation.
#[derive(Debug)]
pub(crate) struct Registry {
    pub(crate) storage: Arc<ObjectStorage>,
    /// Authentication and authorization.
    pub(crate) access: Arc<AccessControl>,
    /// The admission plugins, which run for every write.
    pub(crate) admission: AdmissionChain,
    pub(crate) metrics: Arc<ServerMetrics>,
}

impl Registry {
    /// Creates the registry. `open` opens the database, and `window` and `limits` bound its history and size.
    /// `on_failure` is called when the store can no longer be written. `tokens` signs service account tokens.
    pub(crate) fn open<E>(
        open: impl FnOnce(DbOptions) -> Result<Db, E>,
        window: HistoryWindow,
        limits: StoreLimits,
        on_failure: OnFailure,
        tokens: TokenSigner,
    ) -> Result<Self, E> {
        let metrics = Arc::new(ServerMetrics::default());
        let storage = Arc::new(ObjectStorage::open(open, window, limits, on_failure, metrics.clone())?);
        let access = Arc::new(AccessControl::new(storage.clone(), tokens));
        let admission = AdmissionChain::new(storage.clone(), access.clone(), metrics.clone());
        Ok(Self { storage, access, admission, metrics })
    }

    /// Returns a registry on a new [`TestStore`], with unlimited size and a history of at most `history_max` events.
    #[cfg(test)]
    pub(crate) fn new(history_max: usize) -> Self {
        let window = HistoryWindow { events_max: history_max, bytes_max: usize::MAX };
        Self::for_test(window, StoreLimits::UNLIMITED)
    }

    /// Returns a registry on a new [`TestStore`].
    #[cfg(test)]
    pub(crate) fn for_test(window: HistoryWindow, limits: StoreLimits) -> Self {
        TestStore::new().open(window, limits).swap_remove(0)
    }
}

impl QuotaAccessor for Registry {
    fn update_status<'a>(
        &'a self,
        context: &'a RequestContext,
        quota: &'a RequestTarget,
        change: &'a (dyn Fn(&Value) -> Result<Value, ApiError> + Sync),
    ) -> BoxFuture<'a, Result<Bytes, ApiError>> {
        self.update(context, quota, change).boxed()
    }
}

/// Removes duplicates from `metadata.ownerReferences`, and adds a warning to the response if there were any.
fn dedup_owner_references(context: &RequestContext, object: &mut Value) {
    let Some(owners) = object["metadata"].get_mut("ownerReferences").and_then(Value::as_array_mut) else {
        return;
    };
    if owners.len() < 2 {
        return;
    }
    let mut seen = SmallSet::default();
    let is_new: Vec<bool> = owners.iter().map(|it| seen.insert(it)).collect();
    let mut duplicates = Vec::new();
    let mut is_new = is_new.into_iter();
    owners.retain(|owner| {
        let is_new = is_new.next().unwrap_or(true);
        if !is_new {
            duplicates.push(str_at(owner, "uid").to_owned());
        }
        is_new
    });
    if !duplicates.is_empty() {
        context.add_warning(format!(
            ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may \
             reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
            duplicates.join(", ")
        ));
    }
}

/// Validates a new or updated object. If it is valid, adds the warnings about it to the response. `old` is the stored
/// object, or `None` on create.
fn validate_object(
    context: &RequestContext,
    target: &RequestTarget,
    new: &Value,
    old: Option<&Value>,
) -> Result<(), ApiError> {
    let write = WriteToValidate { new, old, subresource: target.subresource };
    let causes = target.kind.validate(&write);
    if !causes.is_empty() {
        return Err(ApiError::invalid(target.kind, &target.name, &causes));
    }
    for warning in (target.kind.warnings)(&write) {
        context.add_warning(warning);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::request::User;

    #[test]
    fn duplicate_owner_references_are_removed_in_linear_time() {
        let started = std::time::Instant::now();
        let owner = |uid: usize| json!({"kind": "Pod", "name": "p", "uid": uid.to_string()});
        let owners: Vec<Value> = (0..50_000).chain([0, 1]).map(owner).collect();
        let mut object = json!({"metadata": {"ownerReferences": owners}});
        let context = RequestContext::new(
            User::new("a", ["system:authenticated"]),
            "create",
            jiff::Timestamp::UNIX_EPOCH,
        );
        dedup_owner_references(&context, &mut object);
        assert_eq!(object["metadata"]["ownerReferences"], (0..50_000).map(owner).collect::<Value>());
        assert!(context.take_warnings()[0].ends_with("observed: 0, 1"));
        assert!(started.elapsed().as_secs() < 20, "{:?}", started.elapsed());
    }
}
