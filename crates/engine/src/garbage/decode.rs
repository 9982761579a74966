//! Objects as the API server sends them, whole or their metadata alone. What no rule reads is skipped, not kept.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::{Object, Owner, Resource};
use crate::facts::{Key, Shared};

/// An object of any kind, read and not yet understood: which kind it is does not stand in it.
#[derive(Deserialize, Clone, Debug)]
pub struct Raw {
    metadata: RawMeta,
}

#[derive(Deserialize, Clone, Debug)]
#[serde(rename_all = "camelCase")]
struct RawMeta {
    #[serde(default)]
    name: String,
    namespace: Option<String>,
    #[serde(default)]
    uid: String,
    #[serde(default)]
    resource_version: String,
    deletion_timestamp: Option<IgnoredAny>,
    finalizers: Option<Vec<String>>,
    owner_references: Option<Vec<RawOwner>>,
}

#[derive(Deserialize, Clone, Debug)]
#[serde(rename_all = "camelCase")]
struct RawOwner {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    uid: String,
    block_owner_deletion: Option<bool>,
}

impl Raw {
    pub fn resource_version(&self) -> &str {
        &self.metadata.resource_version
    }

    pub fn object(self, resource: &Arc<Resource>, shared: &mut Shared) -> Object {
        let meta = self.metadata;
        let owners = meta.owner_references.unwrap_or_default().into_iter().map(|it| Owner {
            api_version: shared.text(&it.api_version),
            kind: shared.text(&it.kind),
            name: shared.text(&it.name),
            uid: shared.text(&it.uid),
            blocks: it.block_owner_deletion == Some(true),
        });
        let owners = owners.collect();
        let finalizers = meta.finalizers.unwrap_or_default();
        Object {
            resource: resource.clone(),
            key: Key {
                namespace: shared.text(meta.namespace.as_deref().unwrap_or_default()),
                name: meta.name.as_str().into(),
            },
            uid: shared.text(&meta.uid),
            resource_version: meta.resource_version.parse().unwrap_or_default(),
            owners,
            deleting: meta.deletion_timestamp.is_some(),
            finalizers: finalizers.iter().map(|it| shared.text(it)).collect(),
        }
    }
}
