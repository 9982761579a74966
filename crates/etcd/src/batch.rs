//! The transaction of a batch of commits: which commits it has, what it compares and what it writes.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use muster_store::{
    Commit, CommitConflict, CommitError, CommitWrite, Fence, ObjectDraft, OnCommitted, Precondition,
    SelectorIndex, StoreLimits, StoredObject, WriteClass,
};
use tokio::time::Instant;

use crate::keyspace::Keyspace;
use crate::lane;
use crate::object_value::ObjectCodec;
use crate::proto::TxnRequest;

/// Maximum number of objects that one transaction writes. Each needs one operation, and etcd allows 128.
const BATCH_WRITES_MAX: usize = 100;

/// Maximum number of keys of objects and of terms that one transaction compares. etcd allows 128 compares, and 128
/// operations for the case that a compare fails. The other 8 are for the [lane](crate::lane) of the transaction, for
/// `m/restoring` and `m/source`, and for the [pools](crate::allocation_pool) from which the objects allocate values.
const BATCH_COMPARES_MAX: usize = 120;

/// Maximum size of the values in one transaction of several commits.
const BATCH_BYTES_MAX: usize = 1 << 20;

/// Maximum size of the values of one commit. etcd allows 1.5 MiB in a request, which also has the keys and the
/// compares.
const COMMIT_BYTES_MAX: usize = (3 << 19) - (32 << 10);

/// A commit that waits for a transaction.
pub(crate) struct QueuedCommit {
    pub(crate) commit: Commit,
    /// `None` after the commit was answered. This may be before the other commits of its transaction are answered.
    pub(crate) done: Option<OnCommitted>,
    /// The time after which the commit is answered even if its outcome is not known.
    pub(crate) deadline: Instant,
    /// How often a transaction with this commit was refused and the commit was queued again. After several refusals,
    /// the commit gets a transaction of its own.
    pub(crate) refusals: u32,
}

/// Checks the preconditions of a commit against the published objects: those on its key, its namespace and its linked
/// objects. Also fails if the commit deletes an object that does not exist. `before` is the published object of the
/// commit's key, and `get` returns the published object of another key.
pub(crate) fn check_preconditions<'a>(
    commit: &Commit,
    before: Option<&Arc<StoredObject>>,
    get: impl Fn(&str) -> Option<&'a Arc<StoredObject>>,
) -> Result<(), CommitConflict> {
    let linked = commit.linked.iter().map(|it| (&it.key, it.at));
    for (key, revision) in commit.within.iter().map(|(key, at)| (key, *at)).chain(linked) {
        Precondition::At(revision).check(get(key))?;
    }
    commit.expect.check(before)?;
    match &commit.write {
        CommitWrite::Delete if before.is_none() => Err(CommitConflict::Missing),
        _ => Ok(()),
    }
}

/// Returns the etcd revisions that a commit expects of its key, its namespace and its linked objects. A key that must
/// not exist has revision 0. `before` is the published object of the key, whose revision `Precondition::Any` expects.
pub(crate) fn expected_revisions(
    keys: &Keyspace,
    commit: &Commit,
    before: Option<&Arc<StoredObject>>,
) -> Vec<(Bytes, i64)> {
    let own = match commit.expect {
        Precondition::Absent => 0,
        Precondition::At(revision) => keys.etcd_revision(revision),
        Precondition::Any => before.map_or(0, |it| keys.etcd_revision(it.modified)),
    };
    let within =
        commit.within.iter().map(|(key, revision)| (keys.object_key(key), keys.etcd_revision(*revision)));
    let linked = commit.linked.iter().map(|it| (keys.object_key(&it.key), keys.etcd_revision(it.at)));
    [(keys.object_key(&commit.key), own)].into_iter().chain(within).chain(linked).collect()
}

/// Returns the etcd key of the term of the Lease in the commit's [`Fence`](muster_store::Fence), and the etcd revision
/// after which this key must not have been written. `None` if the commit has no fence.
pub(crate) fn fence_bound(keys: &Keyspace, fence: Option<&Fence>) -> Option<(Bytes, i64)> {
    let fence = fence?;
    Some((keys.term_key(&fence.lease), keys.etcd_revision(fence.at)))
}

/// Returns the store keys that a commit writes.
pub(crate) fn written_keys(commit: &Commit) -> impl Iterator<Item = &String> {
    std::iter::once(&commit.key).chain(commit.linked.iter().map(|it| &it.key))
}

/// Whether etcd refuses the commit when it has no space. A commit that deletes an object, or that marks it as deleted,
/// is the way to free space.
pub(crate) fn needs_quota(commit: &Commit) -> bool {
    commit.class != WriteClass::Deletion || !commit.linked.is_empty()
}

/// A transaction and its commits, in the order of their operations.
pub(crate) struct Batch {
    pub(crate) commits: Vec<QueuedCommit>,
    /// The pools from which the commits allocate values, each with the etcd revision after which its key must not have
    /// been written.
    pub(crate) pools: BTreeMap<&'static str, i64>,
    pub(crate) request: TxnRequest,
}

/// Collects the commits of a transaction.
#[derive(Default)]
pub(crate) struct BatchBuilder {
    pub(crate) commits: Vec<QueuedCommit>,
    /// The keys that the transaction compares so far, each with the etcd revision of its expected last write.
    compared: HashMap<Bytes, i64>,
    /// See [`Batch::pools`].
    pools: BTreeMap<&'static str, i64>,
    /// The keys of the terms of Leases, each with the etcd revision after which it must not have been written, see
    /// [`muster_store::Fence`].
    fences: BTreeMap<Bytes, i64>,
    /// The keys of the terms that the commits begin, because they give a Lease to another holder.
    begun_terms: Vec<Bytes>,
    request: TxnRequest,
    /// Total size of the values that the transaction writes so far.
    bytes: usize,
}

impl BatchBuilder {
    /// Whether no further commit can be added, because the transaction writes the maximum number of objects.
    pub(crate) fn is_full(&self) -> bool {
        BATCH_WRITES_MAX <= self.request.success.len()
    }

    /// Whether the commit can be added: the transaction has space for it, and no commit that was added before requires
    /// another revision of the same Namespace object (`Commit::within`). Always `true` for the first commit; if it is
    /// too large for any transaction, [`Self::add`] or etcd rejects it.
    pub(crate) fn fits(&self, keys: &Keyspace, commit: &Commit) -> bool {
        let size = |index: &SelectorIndex, draft: &ObjectDraft| {
            index.as_bytes().len() + draft.head.len() + draft.tail.len()
        };
        let own_bytes = match &commit.write {
            CommitWrite::Put { index, draft, .. } => size(index, draft),
            CommitWrite::Delete => 0,
        };
        let bytes = own_bytes + commit.linked.iter().map(|it| size(&it.index, &it.draft)).sum::<usize>();
        let within = commit
            .within
            .as_ref()
            .map(|(key, revision)| (keys.object_key(key), keys.etcd_revision(*revision)));
        // Two commits that expect different revisions of a namespace cannot both succeed.
        let agrees = within.as_ref().is_none_or(|(key, at)| self.compared.get(key).is_none_or(|it| it == at));
        let compares = self.compared.len() + self.fences.len() + 3 + commit.linked.len();
        let writes = self.request.success.len() + self.begun_terms.len() + 2 + commit.linked.len();
        self.commits.is_empty()
            || (agrees
                && self.bytes + bytes <= BATCH_BYTES_MAX
                && compares <= BATCH_COMPARES_MAX
                && writes <= BATCH_WRITES_MAX)
    }

    /// Adds a commit, which must satisfy [`check_preconditions`]. `get` returns the published object of a key. If the
    /// commit writes too many objects or too large values, or if a value cannot be encrypted, returns the commit with
    /// the error.
    pub(crate) fn add<'a>(
        &mut self,
        keys: &Keyspace,
        codec: &ObjectCodec,
        queued: QueuedCommit,
        get: impl Fn(&str) -> Option<&'a Arc<StoredObject>>,
    ) -> Result<(), Box<(QueuedCommit, CommitError)>> {
        let commit = &queued.commit;
        if BATCH_WRITES_MAX < 1 + commit.linked.len() {
            let why = format!(
                "it changes {} objects at once, limit is {BATCH_WRITES_MAX}",
                1 + commit.linked.len()
            );
            return Err(Box::new((queued, CommitError::Unavailable { why })));
        }
        let first = self.request.success.len();
        let encode = |index_in_commit: usize, key: &str, index, expires_s, draft| {
            let position = u8::try_from(first + index_in_commit).expect("at most 128 operations");
            let created = get(key).map(|it| keys.position(it.created));
            codec.encode(key, position, created, expires_s, index, draft)
        };
        let own = match &commit.write {
            CommitWrite::Put { index, expires_s, draft } => {
                encode(0, &commit.key, index, *expires_s, draft).map(Some)
            }
            CommitWrite::Delete => Ok(None),
        };
        let linked = commit.linked.iter().enumerate().map(|(at, it)| {
            let expires_s = get(&it.key).and_then(|it| it.expires_s);
            encode(1 + at, &it.key, &it.index, expires_s, &it.draft).map(Some)
        });
        let values: Vec<Option<Bytes>> = match std::iter::once(own).chain(linked).collect() {
            Ok(values) => values,
            Err(why) => return Err(Box::new((queued, CommitError::Unavailable { why }))),
        };
        let bytes = values.iter().flatten().map(Bytes::len).sum();
        if COMMIT_BYTES_MAX < bytes {
            let error = CommitError::TooLarge { bytes, bytes_max: COMMIT_BYTES_MAX };
            return Err(Box::new((queued, error)));
        }
        for (compared, revision) in expected_revisions(keys, commit, get(&commit.key)) {
            self.compare(compared, revision);
        }
        if let Some((key, bound)) = fence_bound(keys, commit.fence.as_ref()) {
            let lowest = self.fences.entry(key).or_insert(bound);
            *lowest = bound.min(*lowest);
        }
        if commit.begins_term {
            self.begun_terms.push(keys.term_key(&commit.key));
        }
        self.bytes += bytes;
        let needs_quota = needs_quota(commit);
        for (key, value) in written_keys(commit).zip(values) {
            let key = keys.object_key(key);
            self.request.success.push(match value {
                Some(value) if needs_quota => lane::put(key, value),
                Some(value) => lane::without_quota(lane::put(key, value)),
                None => lane::delete(key),
            });
        }
        self.commits.push(queued);
        Ok(())
    }

    /// Adds the condition that nobody has written the key of the pool after the etcd revision `bound`. Of several
    /// bounds of one pool, the lowest applies.
    pub(crate) fn add_pool_condition(&mut self, pool: &'static str, bound: i64) {
        let lowest = self.pools.entry(pool).or_insert(bound);
        *lowest = bound.min(*lowest);
    }

    /// Adds the condition that the key was last written at this etcd revision, or does not exist if `revision` is 0.
    /// Adds no second condition if the key is compared already.
    fn compare(&mut self, key: Bytes, revision: i64) {
        if self.compared.insert(key.clone(), revision).is_none() {
            self.request.compare.push(lane::revision_is(key.clone(), revision));
            self.request.failure.push(lane::keys_only_range_op(key, Bytes::new()));
        }
    }

    /// Builds the transaction, or returns `None` if it has no commits. `source_revision` is the etcd revision of
    /// `m/source` when this server loaded the objects: a server that has not yet seen a restore must not write to the
    /// restored cluster.
    pub(crate) fn build(mut self, keys: &Keyspace, source_revision: i64) -> Option<Batch> {
        self.compare(keys.restoring_key(), 0);
        self.compare(keys.source_key(), source_revision);
        for (key, bound) in std::mem::take(&mut self.fences) {
            self.request.compare.push(lane::revision_is_at_most(key.clone(), bound));
            self.request.failure.push(lane::keys_only_range_op(key, Bytes::new()));
        }
        // After the objects, whose positions are those of their operations.
        let begun_terms = self.begun_terms.iter().map(|it| lane::put(it.clone(), Bytes::new()));
        self.request.success.extend(begun_terms);
        for (pool, bound) in &self.pools {
            let key = keys.allocation_pool_key(pool);
            self.request.compare.push(lane::revision_is_at_most(key.clone(), *bound));
            self.request.success.push(lane::put(key.clone(), Bytes::new()));
            self.request.failure.push(lane::keys_only_range_op(key, Bytes::new()));
        }
        let Self { commits, pools, request, .. } = self;
        (!commits.is_empty()).then_some(Batch { commits, pools, request })
    }
}

/// The size of the published objects in bytes, as if the puts of a batch were already made. The deletes of the batch
/// are not subtracted.
pub(crate) struct BatchUsage {
    pub(crate) bytes: usize,
    /// Size of each namespace in which the batch puts objects.
    pub(crate) namespaces: HashMap<String, usize>,
}

impl BatchUsage {
    /// Checks a put against the limits, and adds its growth to the sizes. A delete always passes.
    ///
    /// The limits can be exceeded by the size of the transactions that all servers have in progress, because each
    /// server counts only what it has published.
    pub(crate) fn check(
        &mut self,
        limits: &StoreLimits,
        store: &muster_store::Store,
        commit: &Commit,
        before: Option<&Arc<StoredObject>>,
    ) -> Result<(), CommitError> {
        let CommitWrite::Put { draft, .. } = &commit.write else { return Ok(()) };
        // A resourceVersion has at most 20 digits.
        let bytes = commit.key.len() + draft.head.len() + draft.tail.len() + 20;
        let before = before.map_or(0, |it| it.key.len() + it.value.len());
        let growth =
            isize::try_from(bytes).unwrap_or(isize::MAX) - isize::try_from(before).unwrap_or(isize::MAX);
        let namespace = muster_store::namespace_of(&commit.key);
        let namespace_bytes = namespace.map(|it| {
            let pending = self.namespaces.get(it).copied();
            (it, pending.unwrap_or_else(|| store.usage().namespace_bytes(it)))
        });
        limits.check_growth(commit.class, growth, self.bytes, namespace_bytes)?;
        self.bytes = self.bytes.saturating_add_signed(growth);
        if let Some((namespace, bytes)) = namespace_bytes {
            self.namespaces.insert(namespace.to_owned(), bytes.saturating_add_signed(growth));
        }
        Ok(())
    }
}
