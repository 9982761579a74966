//! The calls of the garbage collector and their API requests.

use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use muster_api::object_key::ObjectKey;
use muster_api::text::Text;
use muster_api::time::Time;
use muster_api::well_known::DISRUPTION_TARGET;
use serde_json::{Value, json};

use super::{ObjectIdentity, TrackedObject};
use crate::controller::{PatchFormat, Request, Verb, delete_options};
use crate::daemonset::why::Why;

/// A call of the garbage collector.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum GarbageCollectorCall {
    /// Reads an object, to learn whether it exists and whether it is being deleted.
    Read(ObjectIdentity),
    /// Deletes an object, with its `resourceVersion` as precondition.
    Delete { object: Arc<TrackedObject>, propagation: Propagation, why: Why },
    /// Removes the owner references with these UIDs from an object. Its other owner references stay.
    RemoveOwners { object: Arc<TrackedObject>, owners: Vec<Text>, why: Why },
    /// Changes `blockOwnerDeletion` from true to false in all owner references of an object.
    UnblockOwners { object: Arc<TrackedObject> },
    /// Removes a finalizer of the garbage collector from an object.
    RemoveFinalizer { object: Arc<TrackedObject>, finalizer: &'static str },
    /// Sets the phase of a pod to Failed before the pod is deleted. If the pod's node does not exist, also sets the
    /// condition `DisruptionTarget`, with `at` as its transition time.
    MarkPodFailed { object: Arc<TrackedObject>, why: Why, at: Time },
    /// Deletes a pod with grace period 0, so that the deletion does not wait for a kubelet.
    ForceDeletePod { object: Arc<TrackedObject>, why: Why },
}

/// The `propagationPolicy` of a delete: what happens to the dependents of the deleted object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Propagation {
    /// The dependents of the object are deleted after the object.
    Background,
    /// The dependents of the object are deleted before the object.
    Foreground,
    /// The dependents of the object are kept. Their owner reference to the object is removed.
    Orphan,
}

impl Propagation {
    /// Returns the value of `propagationPolicy`.
    fn as_str(self) -> &'static str {
        match self {
            Self::Background => "Background",
            Self::Foreground => "Foreground",
            Self::Orphan => "Orphan",
        }
    }
}

/// Returns the API request of a call.
pub fn request(call: &GarbageCollectorCall) -> Request {
    match call {
        GarbageCollectorCall::Read(it) => {
            Request { verb: Verb::Get, path: it.resource.path(&it.key), body: None, metadata_only: true }
        }
        GarbageCollectorCall::Delete { object, propagation, .. } => {
            let mut body = delete_options(&object.uid, Some(object.resource_version));
            body["propagationPolicy"] = propagation.as_str().into();
            write_request(object, Verb::Delete, body)
        }
        // The UID is the only precondition: other changes to the object do not matter.
        GarbageCollectorCall::RemoveOwners { object, owners, .. } => {
            let owners: Vec<Value> =
                owners.iter().map(|uid| json!({"$patch": "delete", "uid": uid})).collect();
            let body = json!({"metadata": {"uid": object.uid, "ownerReferences": owners}});
            write_request(object, Verb::Patch(PatchFormat::Strategic), body)
        }
        GarbageCollectorCall::UnblockOwners { object } => {
            let blocking = object.owners.iter().filter(|it| it.block_owner_deletion);
            let owners: Vec<Value> =
                blocking.map(|it| json!({"uid": it.uid, "blockOwnerDeletion": false})).collect();
            let body = json!({"metadata": {"uid": object.uid, "ownerReferences": owners}});
            write_request(object, Verb::Patch(PatchFormat::Strategic), body)
        }
        // A merge patch replaces the whole list: the `resourceVersion` that it was read from is the precondition.
        GarbageCollectorCall::RemoveFinalizer { object, finalizer } => {
            let rest: Vec<&Text> = object.finalizers.iter().filter(|it| ***it != **finalizer).collect();
            let version = object.resource_version.to_string();
            let metadata = json!({"uid": object.uid, "resourceVersion": version, "finalizers": rest});
            write_request(object, Verb::Patch(PatchFormat::Merge), json!({"metadata": metadata}))
        }
        GarbageCollectorCall::MarkPodFailed { object, why, at } => {
            let mut body = json!({"metadata": {"uid": object.uid}, "status": {"phase": "Failed"}});
            if *why == Why::NodeDeleted {
                body["status"]["conditions"] = json!([{
                    "type": DISRUPTION_TARGET,
                    "status": "True",
                    "reason": "DeletionByPodGC",
                    "message": "PodGC: node no longer exists",
                    "lastTransitionTime": at.to_rfc3339(),
                }]);
            }
            let mut request = write_request(object, Verb::Patch(PatchFormat::Strategic), body);
            request.path += "/status";
            request
        }
        GarbageCollectorCall::ForceDeletePod { object, .. } => {
            let mut body = delete_options(&object.uid, None);
            body["gracePeriodSeconds"] = 0.into();
            write_request(object, Verb::Delete, body)
        }
    }
}

/// Returns a request that writes an object. The response contains only the metadata of the object.
fn write_request(object: &TrackedObject, verb: Verb, body: Value) -> Request {
    Request { verb, path: object.resource.path(&object.key), body: Some(body), metadata_only: true }
}

/// Formats the call on one line, for logs and tests.
impl fmt::Display for GarbageCollectorCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(it) if it.uid.is_empty() => {
                write!(f, "read {} {}", it.resource.kind, display_key(&it.key))
            }
            Self::Read(it) => write!(f, "read {} {} {}", it.resource.kind, display_key(&it.key), it.uid),
            Self::Delete { object, propagation, why } => {
                write!(f, "delete {object} {}: {why}", propagation.as_str())
            }
            Self::RemoveOwners { object, owners, why } => {
                write!(f, "remove owners {} of {object}: {why}", owners.join(" "))
            }
            Self::UnblockOwners { object } => write!(f, "unblock the owners of {object}"),
            Self::RemoveFinalizer { object, finalizer } => {
                write!(f, "remove finalizer {finalizer} of {object}")
            }
            Self::MarkPodFailed { object, why, .. } => write!(f, "mark {object} as Failed: {why}"),
            Self::ForceDeletePod { object, why } => write!(f, "force-delete {object}: {why}"),
        }
    }
}

/// Formats kind, namespace and name of the object.
impl fmt::Display for TrackedObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.resource.kind, display_key(&self.key))
    }
}

/// Formats `NAMESPACE/NAME`, or only the name of a cluster-scoped object.
fn display_key(key: &ObjectKey) -> String {
    if key.namespace.is_empty() { key.name.to_string() } else { key.to_string() }
}
