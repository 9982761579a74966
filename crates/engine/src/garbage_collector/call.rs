//! The calls about objects that belong to others, and what goes over the wire for each.

use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use muster_api::meta::ObjectKey;
use muster_api::text::Text;
use muster_api::time::Time;
use serde_json::{Value, json};

use super::{Identity, Object};
use crate::controller::Request;
use crate::daemonset::manifest::{Patch, Verb};
use crate::daemonset::why::Why;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Call {
    Read(Identity),
    Delete {
        object: Arc<Object>,
        propagation: Propagation,
        why: Why,
    },
    /// These owners are named no longer.
    Disown {
        object: Arc<Object>,
        owners: Vec<Text>,
        why: Why,
    },
    /// No owner is held up by it any longer.
    Unblock {
        object: Arc<Object>,
    },
    RemoveFinalizer {
        object: Arc<Object>,
        finalizer: &'static str,
    },
    /// A pod has failed, whatever its node might still say.
    Fail {
        object: Arc<Object>,
        why: Why,
        at: Time,
    },
    /// A pod goes at once: there is no node to wait for.
    Remove {
        object: Arc<Object>,
        why: Why,
    },
}

/// What becomes of the dependents of an object that is deleted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Propagation {
    Background,
    Foreground,
    Orphan,
}

impl Propagation {
    fn as_str(self) -> &'static str {
        match self {
            Self::Background => "Background",
            Self::Foreground => "Foreground",
            Self::Orphan => "Orphan",
        }
    }
}

pub fn request(call: &Call) -> Request {
    match call {
        Call::Read(it) => {
            Request { verb: Verb::Get, path: it.resource.path(&it.key), body: None, metadata_only: true }
        }
        Call::Delete { object, propagation, .. } => {
            let body = json!({
                "apiVersion": "v1",
                "kind": "DeleteOptions",
                "preconditions": {"uid": object.uid, "resourceVersion": object.resource_version.to_string()},
                "propagationPolicy": propagation.as_str(),
            });
            write(object, Verb::Delete, body)
        }
        // The UID alone is asked for: whatever else has changed, those owners are not to be named.
        Call::Disown { object, owners, .. } => {
            let owners: Vec<Value> =
                owners.iter().map(|uid| json!({"$patch": "delete", "uid": uid})).collect();
            let body = json!({"metadata": {"uid": object.uid, "ownerReferences": owners}});
            write(object, Verb::Patch(Patch::Strategic), body)
        }
        Call::Unblock { object } => {
            let blocking = object.owners.iter().filter(|it| it.blocks);
            let owners: Vec<Value> =
                blocking.map(|it| json!({"uid": it.uid, "blockOwnerDeletion": false})).collect();
            let body = json!({"metadata": {"uid": object.uid, "ownerReferences": owners}});
            write(object, Verb::Patch(Patch::Strategic), body)
        }
        // A merge replaces the whole list, so it is made only on the version that the list was read from.
        Call::RemoveFinalizer { object, finalizer } => {
            let rest: Vec<&Text> = object.finalizers.iter().filter(|it| ***it != **finalizer).collect();
            let version = object.resource_version.to_string();
            let metadata = json!({"uid": object.uid, "resourceVersion": version, "finalizers": rest});
            write(object, Verb::Patch(Patch::Merge), json!({"metadata": metadata}))
        }
        Call::Fail { object, why, at } => {
            let mut body = json!({"metadata": {"uid": object.uid}, "status": {"phase": "Failed"}});
            if *why == Why::NodeIsGone {
                body["status"]["conditions"] = json!([{
                    "type": "DisruptionTarget",
                    "status": "True",
                    "reason": "DeletionByPodGC",
                    "message": "PodGC: node no longer exists",
                    "lastTransitionTime": at.to_rfc3339(),
                }]);
            }
            let mut request = write(object, Verb::Patch(Patch::Strategic), body);
            request.path += "/status";
            request
        }
        Call::Remove { object, .. } => {
            let body = json!({
                "apiVersion": "v1",
                "kind": "DeleteOptions",
                "gracePeriodSeconds": 0,
                "preconditions": {"uid": object.uid},
            });
            write(object, Verb::Delete, body)
        }
    }
}

fn write(object: &Object, verb: Verb, body: Value) -> Request {
    Request { verb, path: object.resource.path(&object.key), body: Some(body), metadata_only: true }
}

/// As tests and logs show it.
impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(it) if it.uid.is_empty() => write!(f, "read {} {}", it.resource.kind, place(&it.key)),
            Self::Read(it) => write!(f, "read {} {} {}", it.resource.kind, place(&it.key), it.uid),
            Self::Delete { object, propagation, why } => {
                write!(f, "delete {object} {}: {why}", propagation.as_str())
            }
            Self::Disown { object, owners, why } => write!(f, "disown {object} {}: {why}", owners.join(" ")),
            Self::Unblock { object } => write!(f, "unblock the owners of {object}"),
            Self::RemoveFinalizer { object, finalizer } => write!(f, "release {object} from {finalizer}"),
            Self::Fail { object, why, .. } => write!(f, "fail {object}: {why}"),
            Self::Remove { object, why } => write!(f, "remove {object}: {why}"),
        }
    }
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.resource.kind, place(&self.key))
    }
}

fn place(key: &ObjectKey) -> String {
    if key.namespace.is_empty() { key.name.to_string() } else { key.to_string() }
}
