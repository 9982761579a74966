//! Commits objects to the store. Every write goes through this module.

use std::sync::atomic::Ordering;
use std::time::Instant;

use bytes::Bytes;
use muster_api::well_known::{
    ANNOTATION_CONFIG_MIRROR, NAMESPACE_MUSTER_SYSTEM, NAMESPACE_NODE_LEASE, NAMESPACE_SYSTEM,
    USER_GROUP_MASTERS,
};
use muster_store::{
    Allocation, CommitConflict, CommitError, CommitWrite, LinkedUpdate, ObjectDraft, Precondition, Revision,
    WriteClass,
};
use serde_json::Value;
use tokio::sync::oneshot;

use super::ObjectStorage;
use super::fence::{LeaderFence, begins_term};
use crate::error::ApiError;
use crate::request::{RequestContext, RequestTarget, User};
use crate::subresource::Subresource;

/// Maximum size of a stored object in bytes. Upstream: etcd accepts requests of 1.5 MiB, most of which is the object.
pub(crate) const OBJECT_BYTES_MAX: usize = 14 * (1 << 20) / 10;

/// Maximum length in bytes of a resourceVersion, which is a 64-bit number in decimal.
const RESOURCE_VERSION_BYTES_MAX: usize = 20;

/// Maximum size in bytes of an object that a node or a leader election writes into the reserved part of the store. A
/// Node with the names of 50 images has about 15 KiB, and a Lease less than 1 KiB.
const RESERVE_OBJECT_BYTES_MAX: usize = 64 << 10;

/// Namespaces with objects of the cluster itself. Components of Muster may use the reserved part of the store for
/// writes to these namespaces.
const SYSTEM_NAMESPACES: [&str; 3] = [NAMESPACE_SYSTEM, NAMESPACE_NODE_LEASE, NAMESPACE_MUSTER_SYSTEM];

/// A write of one object, as the argument of [`ObjectStorage::commit`].
pub(crate) enum ObjectCommit<'a> {
    /// Creates the object.
    Create {
        object: &'a Value,
        /// The store key of the Namespace of the object, and the revision that the Namespace must still have. `None` if
        /// no Namespace is checked.
        namespace_revision: Option<(String, Revision)>,
        /// The allocation of a value, such as a cluster IP, from a pool. `None` if the object allocates no value.
        allocation: Option<Allocation>,
        /// Updates of the ResourceQuotas whose usage the object increases.
        quotas: &'a [QuotaUpdate],
    },
    /// Replaces the stored object `old` with `object`.
    Update { object: &'a Value, old: &'a Value, allocation: Option<Allocation>, quotas: &'a [QuotaUpdate] },
    /// Replaces the stored object with this object, which has a deletion timestamp. No size limit applies.
    MarkDeleted(&'a Value),
    /// Removes the object.
    Delete,
}

/// An update of a ResourceQuota that is committed together with the object that changes the usage.
#[derive(Debug)]
pub(crate) struct QuotaUpdate {
    pub(crate) target: RequestTarget,
    /// Precondition: the revision that the stored ResourceQuota must have.
    pub(crate) expected_revision: Revision,
    /// The ResourceQuota with its new usage.
    pub(crate) quota: Value,
}

impl QuotaUpdate {
    /// Returns the update in the form in which the commit of another object contains it.
    fn to_linked_update(&self) -> LinkedUpdate {
        LinkedUpdate {
            key: self.target.key(),
            at: self.expected_revision,
            index: self.target.kind.build_selector_index(&self.quota),
            draft: serialize_draft(&self.quota),
        }
    }
}

impl ObjectStorage {
    /// Commits a write, and returns the JSON of the stored object when the write is durable. For a delete, returns the
    /// last state of the object. Returns `None` if a precondition no longer holds, because of a concurrent write.
    /// Returns an error if the object or the store would be too large, if the disk is full, or if too many commits are
    /// queued. Also returns an error if the Lease of the current task's [`LeaderFence`] has another holder, if the
    /// store has failed, or if the store cannot say whether the write was applied. Sets `is_disk_full` if the disk is
    /// full, and otherwise clears it.
    pub(crate) async fn commit(
        &self,
        context: &RequestContext,
        target: &RequestTarget,
        expect: Precondition,
        commit: ObjectCommit<'_>,
    ) -> Result<Option<Bytes>, ApiError> {
        let kind = target.kind.storage_kind();
        let put = |object: &Value, draft: ObjectDraft| {
            let now_s = u64::try_from(context.now.as_second()).unwrap_or(0);
            CommitWrite::Put {
                index: kind.build_selector_index(object),
                expires_s: kind.ttl_s.map(|it| now_s + it),
                draft,
            }
        };
        let begins_term = match commit {
            ObjectCommit::Create { object, .. } => begins_term(target, object, &Value::Null),
            ObjectCommit::Update { object, old, .. } => begins_term(target, object, old),
            ObjectCommit::MarkDeleted(_) | ObjectCommit::Delete => false,
        };
        let (write, namespace_revision, allocation, quotas, class) = match commit {
            ObjectCommit::Create { object, namespace_revision, allocation, quotas } => {
                let draft = self.draft_within_limit(target, object)?;
                let class = write_class(&context.user, target, object, stored_bytes_max(&draft));
                (put(object, draft), namespace_revision, allocation, quotas, class)
            }
            ObjectCommit::Update { object, allocation, quotas, .. } => {
                let draft = self.draft_within_limit(target, object)?;
                let class = write_class(&context.user, target, object, stored_bytes_max(&draft));
                (put(object, draft), None, allocation, quotas, class)
            }
            ObjectCommit::MarkDeleted(object) => {
                (put(object, serialize_draft(object)), None, None, &[][..], WriteClass::Deletion)
            }
            ObjectCommit::Delete => (CommitWrite::Delete, None, None, &[][..], WriteClass::Deletion),
        };
        let linked = quotas.iter().map(QuotaUpdate::to_linked_update).collect();
        let begun = Instant::now();
        let (done, outcome) = oneshot::channel();
        let commit = muster_store::Commit {
            key: target.key(),
            expect,
            within: namespace_revision,
            allocation,
            class,
            write,
            linked,
            fence: LeaderFence::current(),
            begins_term,
        };
        // The write completes even if the client disconnects.
        self.db.commit(commit, move |it| drop(done.send(it)));
        let outcome = outcome.await;
        self.is_disk_full.store(matches!(outcome, Ok(Err(CommitError::DiskFull))), Ordering::Relaxed);
        match outcome {
            Ok(Err(CommitError::StorageFull { .. })) => {
                self.is_shared_storage_full.store(true, Ordering::Relaxed);
            }
            // A full storage accepts deletions.
            Ok(Ok(_)) if class != WriteClass::Deletion => {
                self.is_shared_storage_full.store(false, Ordering::Relaxed);
            }
            _ => {}
        }
        match outcome {
            Ok(Ok(event)) => {
                self.metrics.record_commit(begun.elapsed());
                Ok(Some(event.latest_value().clone()))
            }
            Ok(Err(CommitError::Conflict(error @ CommitConflict::Fenced))) => {
                Err(ApiError::conflict(target.kind, &target.name, &error.to_string()))
            }
            Ok(Err(CommitError::Conflict(_))) => Ok(None),
            Ok(Err(CommitError::SizeLimitExceeded(over))) => {
                Err(ApiError::forbidden(target.kind, &target.name, &over.to_string()))
            }
            Ok(Err(error @ CommitError::TooLarge { .. })) => {
                let (resource, name) = (target.kind.group_resource(), &target.name);
                Err(ApiError::entity_too_large(&format!("{resource} \"{name}\": {error}")))
            }
            Ok(Err(CommitError::QueueFull)) => Err(ApiError::too_many_requests(1)),
            Ok(Err(error @ (CommitError::StorageFull { .. } | CommitError::Unavailable { .. }))) => {
                Err(ApiError::service_unavailable(error.to_string()))
            }
            Ok(Err(CommitError::OutcomeUnknown { .. })) => Err(ApiError::timeout()),
            Ok(Err(error)) => Err(ApiError::internal(&error.to_string())),
            Err(_) => Err(ApiError::internal("the store has stopped")),
        }
    }

    /// Serializes an object for the store. Fails if it is too large.
    ///
    /// Rule: an object of more than 1.4 MiB is not stored. A larger object may exist from the time before this limit.
    /// It can be deleted, and can be updated if it does not grow.
    fn draft_within_limit(&self, target: &RequestTarget, object: &Value) -> Result<ObjectDraft, ApiError> {
        let draft = serialize_draft(object);
        let bytes = stored_bytes_max(&draft);
        if OBJECT_BYTES_MAX < bytes {
            // Both sizes count the longest resourceVersion, so that an object cannot grow by the digits of the stored
            // one.
            let stored = self.read_store().get(&target.key()).map_or(0, |it| {
                it.value.len().saturating_sub(it.modified.to_string().len()) + RESOURCE_VERSION_BYTES_MAX
            });
            if stored < bytes {
                let (resource, name) = (target.kind.group_resource(), &target.name);
                let why = format!(
                    "{resource} \"{name}\" would be stored with {bytes} bytes, limit is {OBJECT_BYTES_MAX}"
                );
                return Err(ApiError::entity_too_large(&why));
            }
        }
        Ok(draft)
    }

    /// Logs a warning for each stored object that is larger than [`OBJECT_BYTES_MAX`], with its key and its size in
    /// bytes.
    pub(crate) fn warn_about_oversized_objects(&self) {
        for object in self.read_store().list("").filter(|it| OBJECT_BYTES_MAX < it.value.len()) {
            tracing::warn!(
                key = &*object.key,
                bytes = object.value.len(),
                "an object exceeds the size limit: it can be read and deleted, but not grow"
            );
        }
    }
}

/// Returns the maximum size in bytes that an object has when it is stored.
fn stored_bytes_max(draft: &ObjectDraft) -> usize {
    draft.head.len() + RESOURCE_VERSION_BYTES_MAX + draft.tail.len()
}

/// Returns the write class of a create or update, which determines whether the write may use the reserved part of the
/// store. `object` is the object to store, and `bytes` its size.
///
/// Rule: the reserved part of the store is for `system:masters`; for components of Muster that write a Node or an
/// object in `kube-system`, `kube-node-lease` or `muster-system`; for a node that writes its own Node, its own Lease or
/// the status of a pod that is not a mirror pod; and for the Leases of leader elections. An object that a node or a
/// leader election writes there has at most 64 KiB. Events never use the reserved part.
///
/// A node may create any number of mirror pods, so neither they nor their status use the reserved part. All other pods
/// are created by other users.
fn write_class(user: &User, target: &RequestTarget, object: &Value, bytes: usize) -> WriteClass {
    let resource = target.kind.resource();
    let namespace = target.namespace.as_deref();
    let may_use_reserve = if matches!(resource, ("" | "events.k8s.io", "events")) {
        false
    } else if user.is_in_group(USER_GROUP_MASTERS) {
        true
    } else if user.is_component() {
        resource == ("", "nodes") || namespace.is_some_and(|it| SYSTEM_NAMESPACES.contains(&it))
    } else if RESERVE_OBJECT_BYTES_MAX < bytes {
        false
    } else if let Some(node) = user.node_name() {
        match resource {
            ("", "nodes") => target.name == node,
            ("coordination.k8s.io", "leases") => {
                namespace == Some(NAMESPACE_NODE_LEASE) && target.name == node
            }
            ("", "pods") => {
                target.subresource == Subresource::Status
                    && object["metadata"]["annotations"].get(ANNOTATION_CONFIG_MIRROR).is_none()
            }
            _ => false,
        }
    } else {
        resource == ("coordination.k8s.io", "leases")
            && namespace.is_some()
            && user.leader_election_namespace() == namespace
    };
    if may_use_reserve { WriteClass::System } else { WriteClass::Ordinary }
}

/// Serializes an object without its resourceVersion. `apiVersion` and `kind` come first, so that a list can omit them
/// from its items without parsing the items.
fn serialize_draft(object: &Value) -> ObjectDraft {
    let is_first = |name: &str| matches!(name, "apiVersion" | "kind");
    let fields = || object.as_object().into_iter().flatten().filter(|it| it.0 != "metadata");
    let mut head = Vec::with_capacity(2048);
    head.push(b'{');
    for field in fields().filter(|it| is_first(it.0)).chain(fields().filter(|it| !is_first(it.0))) {
        write_field(&mut head, field);
        head.push(b',');
    }
    head.extend_from_slice(br#""metadata":{"resourceVersion":""#);
    let mut tail = Vec::with_capacity(1024);
    tail.push(b'"');
    let meta = object["metadata"].as_object();
    for field in meta.into_iter().flatten().filter(|it| it.0 != "resourceVersion") {
        tail.push(b',');
        write_field(&mut tail, field);
    }
    tail.extend_from_slice(b"}}");
    ObjectDraft { head, tail }
}

/// Appends a field of a JSON object to `text`, with its name and value.
fn write_field(text: &mut Vec<u8>, (name, value): (&String, &Value)) {
    serde_json::to_writer(&mut *text, name).expect("a field name is written into memory");
    text.push(b':');
    serde_json::to_writer(text, value).expect("JSON is written into memory");
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use expect_test::expect;
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;
    use crate::bootstrap;
    use crate::kinds::Kind;
    use crate::registry::{DeleteOptions, Registry};
    use crate::request::User;
    use crate::subresource::Subresource;

    #[test]
    fn a_draft_is_the_object_with_its_version() {
        let check = |object: Value| {
            let stored = serialize_draft(&object).with_revision(17);
            let mut expected = object;
            expected["metadata"]["resourceVersion"] = json!("17");
            assert_eq!(serde_json::from_slice::<Value>(&stored).unwrap(), expected);
            assert_eq!(
                ObjectDraft::split(&stored),
                Some(serialize_draft(&expected)),
                "the store finds the version"
            );
        };
        check(
            json!({"kind": "A", "metadata": {"name": "a", "resourceVersion": "3"}, "z\"": {"metadata": null}}),
        );
        check(json!({"metadata": {}}));
        check(json!({}));
    }

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    async fn registry(bytes_max: usize) -> Registry {
        let window = muster_store::HistoryWindow { events_max: 100, bytes_max: usize::MAX };
        let limits = muster_store::StoreLimits::with_total(bytes_max);
        let registry = Registry::for_test(window, limits);
        bootstrap::ensure_test_objects(&registry, NOW).await.unwrap();
        registry
    }

    fn context(groups: &[&str]) -> RequestContext {
        RequestContext::new(User::new("someone", groups.iter().copied()), "create", NOW)
    }

    fn maps() -> &'static Kind {
        Kind::builtin("", "v1", "configmaps")
    }

    fn map(name: &str, bytes: usize) -> Value {
        json!({"metadata": {"name": name}, "data": {"x": "y".repeat(bytes)}})
    }

    fn target(name: &str) -> RequestTarget {
        RequestTarget {
            kind: maps(),
            namespace: Some("default".into()),
            name: name.into(),
            subresource: Subresource::Whole,
        }
    }

    fn said<T>(outcome: Result<T, ApiError>) -> String {
        match outcome {
            Ok(_) => "ok".to_owned(),
            Err(refusal) => {
                let status = refusal.status();
                let text = |it: &str| status[it].as_str().unwrap_or_default().to_owned();
                format!("{} {}: {}", status["code"], text("reason"), text("message"))
            }
        }
    }

    /// Many keys without values: validation bounds the values alone.
    fn keys(bytes: usize) -> Value {
        (0..bytes / 206).map(|it| (format!("{it:0200}"), json!(""))).collect::<serde_json::Map<_, _>>().into()
    }

    #[tokio::test]
    async fn an_object_has_a_largest_size_and_one_that_has_more_may_only_shrink() {
        let registry = registry(64 << 20).await;
        let tenant = context(&[]);
        let create = async |bytes| {
            let object = json!({"metadata": {"name": "large"}, "data": keys(bytes)});
            said(registry.create(&tenant, maps(), Some("default"), object).await)
        };
        let refused = create(OBJECT_BYTES_MAX).await;
        assert!(
            refused.starts_with("413 RequestEntityTooLarge: Request entity too large: configmaps \"large\" would be stored with "),
            "{refused}"
        );
        assert_eq!(create(OBJECT_BYTES_MAX / 4).await, "ok");
        let grow = async |name: &'static str, bytes: usize| {
            let change = |old: &Value| {
                let mut new = old.clone();
                new["data"] = keys(bytes);
                Ok(new)
            };
            said(registry.update(&tenant, &target(name), change).await)
        };
        let revision = registry.storage.revision();
        assert!(grow("large", OBJECT_BYTES_MAX).await.starts_with("413 "));
        assert_eq!(registry.storage.revision(), revision, "nothing is written");

        // As an earlier version stored it.
        let mut old = json!({"metadata": {"name": "older"}, "data": keys(2 * OBJECT_BYTES_MAX)});
        old["apiVersion"] = json!("v1");
        old["kind"] = json!("ConfigMap");
        old["metadata"]["namespace"] = json!("default");
        old["metadata"]["uid"] = json!("00000000-0000-0000-0000-000000000001");
        let (done, stored) = oneshot::channel();
        let write = CommitWrite::Put {
            index: maps().build_selector_index(&old),
            expires_s: None,
            draft: serialize_draft(&old),
        };
        let commit = muster_store::Commit {
            key: target("older").key(),
            expect: Precondition::Absent,
            within: None,
            allocation: None,
            linked: Vec::new(),
            fence: None,
            begins_term: false,
            class: WriteClass::System,
            write,
        };
        registry.storage.db.commit(commit, move |it| drop(done.send(it)));
        stored.await.unwrap().unwrap();
        let log = tempfile::NamedTempFile::new().unwrap();
        let subscriber = tracing_subscriber::fmt()
            .without_time()
            .with_ansi(false)
            .with_target(false)
            .with_writer(Mutex::new(log.reopen().unwrap()))
            .finish();
        tracing::subscriber::with_default(subscriber, || registry.storage.warn_about_oversized_objects());
        expect![[r#"
             WARN an object exceeds the size limit: it can be read and deleted, but not grow key="configmaps/default/older" bytes=2936076
        "#]].assert_eq(std::fs::read_to_string(log).unwrap().trim_start());
        assert!(registry.storage.get(&target("older")).is_ok());
        assert!(grow("older", 3 * OBJECT_BYTES_MAX).await.starts_with("413 "));
        assert_eq!(grow("older", 2 * OBJECT_BYTES_MAX - 10_000).await, "ok");
        let with_value = async |bytes: usize| {
            let change = |old: &Value| {
                let mut new = old.clone();
                new["data"][format!("{:0200}", 0)] = json!("x".repeat(bytes));
                Ok(new)
            };
            said(registry.update(&tenant, &target("older"), change).await)
        };
        for bytes in 1..30 {
            assert!(with_value(bytes).await.starts_with("413 "), "it may not grow by {bytes} bytes");
        }
        assert_eq!(said(registry.delete(&tenant, &target("older"), &DeleteOptions::default()).await), "ok");
    }

    #[test]
    fn the_reserve_is_for_the_cluster_itself() {
        use Subresource::{Status, Whole};
        use WriteClass::{Ordinary, System};
        const SMALL: usize = RESERVE_OBJECT_BYTES_MAX;
        const LARGE: usize = RESERVE_OBJECT_BYTES_MAX + 1;
        let user = |name: &str| User::new(name, ["system:authenticated"]);
        let tenant = user("tenant");
        let node = User::new("system:node:n", ["system:nodes", "system:authenticated"]);
        let component = user("system:muster-controller");
        let elector = User::service_account("kube-system", "elector");
        let scheduler = user("system:kube-scheduler");
        let leases = "coordination.k8s.io";
        let (team, system, heartbeats) = (Some("team"), Some("kube-system"), Some("kube-node-lease"));
        for (group, plural, namespace, name, subresource, bytes, user, expected) in [
            ("", "configmaps", team, "x", Whole, SMALL, &tenant, Ordinary),
            ("", "configmaps", system, "x", Whole, SMALL, &tenant, Ordinary),
            ("", "configmaps", system, "x", Whole, SMALL, &elector, Ordinary),
            ("", "configmaps", system, "x", Whole, LARGE, &component, System),
            ("", "configmaps", team, "x", Whole, SMALL, &component, Ordinary),
            ("", "configmaps", team, "x", Whole, LARGE, &User::server(), System),
            (leases, "leases", team, "x", Whole, SMALL, &tenant, Ordinary),
            (leases, "leases", system, "x", Whole, SMALL, &tenant, Ordinary),
            (leases, "leases", system, "x", Whole, SMALL, &elector, System),
            (leases, "leases", system, "x", Whole, LARGE, &elector, Ordinary),
            (leases, "leases", heartbeats, "x", Whole, SMALL, &elector, Ordinary),
            (leases, "leases", system, "x", Whole, SMALL, &scheduler, System),
            (leases, "leases", Some("muster-system"), "x", Whole, SMALL, &component, System),
            (leases, "leases", heartbeats, "n", Whole, SMALL, &node, System),
            (leases, "leases", heartbeats, "n", Whole, LARGE, &node, Ordinary),
            (leases, "leases", heartbeats, "x", Whole, SMALL, &node, Ordinary),
            (leases, "leases", system, "n", Whole, SMALL, &node, Ordinary),
            ("", "nodes", None, "n", Whole, SMALL, &node, System),
            ("", "nodes", None, "n", Status, SMALL, &node, System),
            ("", "nodes", None, "n", Status, LARGE, &node, Ordinary),
            ("", "nodes", None, "x", Status, SMALL, &node, Ordinary),
            ("", "nodes", None, "n", Whole, SMALL, &tenant, Ordinary),
            ("", "nodes", None, "n", Whole, LARGE, &component, System),
            ("metrics.k8s.io", "nodes", None, "n", Whole, SMALL, &node, Ordinary),
            ("", "pods", team, "x", Status, SMALL, &node, System),
            ("", "pods", system, "x", Status, LARGE, &node, Ordinary),
            ("", "pods", team, "mirror", Status, SMALL, &node, Ordinary),
            ("", "pods", system, "x", Whole, SMALL, &node, Ordinary),
            ("", "pods", team, "x", Status, SMALL, &tenant, Ordinary),
            ("", "events", system, "x", Whole, SMALL, &node, Ordinary),
            ("", "events", heartbeats, "n", Whole, SMALL, &node, Ordinary),
            ("events.k8s.io", "events", system, "x", Whole, SMALL, &component, Ordinary),
            ("", "events", system, "x", Whole, SMALL, &User::server(), Ordinary),
        ] {
            let version = if group == "metrics.k8s.io" { "v1beta1" } else { "v1" };
            let target = RequestTarget {
                kind: Kind::builtin(group, version, plural),
                namespace: namespace.map(Into::into),
                name: name.into(),
                subresource,
            };
            let annotations =
                if name == "mirror" { json!({ANNOTATION_CONFIG_MIRROR: "x"}) } else { json!({}) };
            let object = json!({"metadata": {"annotations": annotations}});
            let found = write_class(user, &target, &object, bytes);
            assert_eq!(found, expected, "{plural} {namespace:?} {name} of {bytes} bytes by {}", user.name);
        }
    }

    #[tokio::test]
    async fn a_node_cannot_use_up_the_reserve() {
        let registry = registry(2 << 20).await;
        let context_of = |node: &str| {
            RequestContext::new(User::new(format!("system:node:{node}"), ["system:nodes"]), "create", NOW)
        };
        let create_as = async |context: &RequestContext, group: &str, plural: &str, object: Value| {
            let namespace = object["metadata"]["namespace"].as_str().map(str::to_owned);
            let kind = Kind::builtin(group, "v1", plural);
            registry.create(context, kind, namespace.as_deref(), object).await
        };
        let register = async |node: &str| {
            let context = context_of(node);
            let lease = json!({"metadata": {"name": node, "namespace": NAMESPACE_NODE_LEASE}});
            let object = json!({"metadata": {"name": node}});
            let stored = create_as(&context, "", "nodes", object).await.unwrap();
            assert_eq!(said(create_as(&context, "coordination.k8s.io", "leases", lease).await), "ok");
            serde_json::from_slice::<Value>(&stored).unwrap()["metadata"]["uid"].clone()
        };
        let uid = register("n").await;
        let hostile = context_of("n");
        let is_full = |outcome: String| {
            assert!(outcome == "ok" || outcome.starts_with("403 "), "{outcome}");
            outcome.contains("exceeded store limit")
        };
        for namespace in [NAMESPACE_SYSTEM, NAMESPACE_NODE_LEASE] {
            let event = |index| {
                json!({
                    "metadata": {"name": format!("e{index}"), "namespace": namespace},
                    "involvedObject": {"kind": "Pod", "name": "x", "namespace": namespace},
                    "message": "x".repeat(60 << 10),
                })
            };
            let mut refused = 0;
            for index in 0..40 {
                refused += usize::from(is_full(said(create_as(&hostile, "", "events", event(index)).await)));
            }
            assert!(0 < refused && registry.storage.largest_namespaces(1)[0].1 <= 1 << 20, "{namespace}");
        }
        // Small mirror pods, which still fit, and then their status.
        let mut refused = 0;
        for index in 0..20 {
            let pod = json!({
                "metadata": {
                    "name": format!("m{index}"), "namespace": NAMESPACE_SYSTEM,
                    "annotations": {ANNOTATION_CONFIG_MIRROR: "x"},
                    "ownerReferences": [
                        {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": uid, "controller": true}
                    ],
                },
                "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "a"}]},
            });
            let created = said(create_as(&hostile, "", "pods", pod).await);
            if is_full(created) {
                refused += 1;
                continue;
            }
            let target = RequestTarget {
                kind: Kind::builtin("", "v1", "pods"),
                namespace: Some(NAMESPACE_SYSTEM.into()),
                name: format!("m{index}"),
                subresource: Subresource::Status,
            };
            let change = |old: &Value| {
                let mut new = old.clone();
                new["status"]["message"] = json!("x".repeat(30 << 10));
                Ok(new)
            };
            refused += usize::from(is_full(said(registry.update(&hostile, &target, change).await)));
        }
        assert!(0 < refused);
        let (bytes, bytes_max) = registry.storage.used_bytes_and_capacity();
        assert!(bytes <= bytes_max - bytes_max / 10, "{bytes} of {bytes_max}");
        let administrator = context(&[USER_GROUP_MASTERS]);
        let created = registry.create(&administrator, maps(), Some("default"), map("a", 60 << 10)).await;
        assert_eq!(said(created), "ok");
        register("other").await;
    }

    #[tokio::test]
    async fn a_full_store_refuses_growth_and_takes_deletes() {
        let registry = std::sync::Arc::new(registry(1 << 20).await);
        let create = async |groups: &[&str], namespace: &str, name: &str, bytes: usize| {
            said(registry.create(&context(groups), maps(), Some(namespace), map(name, bytes)).await)
        };
        assert_eq!(create(&[], "default", "a", 400 << 10).await, "ok");
        let refused = create(&[], "default", "b", 200 << 10).await;
        assert!(
            refused.starts_with(
                "403 Forbidden: configmaps \"b\" is forbidden: exceeded store limit of namespace default"
            ),
            "{refused}"
        );
        assert_eq!(create(&[USER_GROUP_MASTERS], "default", "b", 500 << 10).await, "ok");
        let refused = create(&[], "default", "c", 100 << 10).await;
        assert!(
            refused.starts_with("403 Forbidden: configmaps \"c\" is forbidden: exceeded store limit: "),
            "{refused}"
        );
        // The last tenth is for the cluster itself.
        assert!(create(&[], "kube-system", "c", 90 << 10).await.starts_with("403 "));
        assert_eq!(create(&[USER_GROUP_MASTERS], "kube-system", "c", 90 << 10).await, "ok");
        assert!(create(&[USER_GROUP_MASTERS], "default", "d", 90 << 10).await.starts_with("403 "));
        let (bytes, bytes_max) = registry.storage.used_bytes_and_capacity();
        assert!(bytes <= bytes_max, "{bytes} of {bytes_max}");
        assert_eq!(registry.storage.largest_namespaces(1)[0].0, "default");
        let api = crate::http::Api::new(registry.clone(), tokio_util::sync::CancellationToken::new());
        let text = api.metrics_text();
        assert!(text.contains(&format!("muster_store_bytes {bytes}")), "{text}");
        assert!(text.contains("muster_store_namespace_bytes{namespace=\"default\"}"), "{text}");
        let deleted = registry.delete(&context(&[]), &target("b"), &DeleteOptions::default()).await;
        assert_eq!(said(deleted), "ok");
        assert_eq!(create(&[], "default", "e", 50 << 10).await, "ok");
    }
}
