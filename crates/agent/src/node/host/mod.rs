//! The node as its host keeps it: registered, heard of, honest about how it is, and with room left.

#[allow(dead_code)]
mod measure;
#[allow(dead_code)]
mod presence;
pub mod stats;

use muster_engine::facts::Key;
use muster_engine::loops::Reference;

pub use self::presence::{Host, Standing};

/// A kubelet's events name the node in place of its UID, and clients look for that.
fn node_reference(name: &str) -> Reference {
    Reference {
        api_version: "v1".into(),
        kind: "Node".into(),
        key: Key::new("", name),
        uid: name.into(),
        resource_version: 0,
    }
}
