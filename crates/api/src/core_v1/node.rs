//! API types of nodes.

use alloc::vec::Vec;

use serde::Deserialize;

use super::{ConditionStatus, ResourceList};
use crate::interner::Interner;
use crate::json::Str;
use crate::meta_v1::ObjectMeta;
use crate::taints::{self, TaintEffect};

/// Upstream: `v1.Node`.
#[derive(Deserialize, Clone, Debug)]
pub struct Node<'a> {
    #[serde(borrow, default)]
    pub metadata: ObjectMeta<'a>,
    #[serde(borrow)]
    pub spec: Option<NodeSpec<'a>>,
    #[serde(borrow)]
    pub status: Option<NodeStatus<'a>>,
}

/// Upstream: `v1.NodeSpec`.
#[derive(Deserialize, Clone, Debug, Default)]
pub struct NodeSpec<'a> {
    pub unschedulable: Option<bool>,
    #[serde(borrow)]
    pub taints: Option<Vec<Taint<'a>>>,
    #[serde(borrow, rename = "podCIDR")]
    pub pod_cidr: Option<Str<'a>>,
    #[serde(borrow, rename = "podCIDRs")]
    pub pod_cidrs: Option<Vec<Str<'a>>>,
}

/// Upstream: `v1.Taint`.
#[derive(Deserialize, Clone, Debug)]
#[serde(rename_all = "camelCase")]
pub struct Taint<'a> {
    #[serde(borrow)]
    pub key: Option<Str<'a>>,
    #[serde(borrow)]
    pub value: Option<Str<'a>>,
    #[serde(borrow)]
    pub effect: Option<Str<'a>>,
    #[serde(borrow)]
    pub time_added: Option<Str<'a>>,
}

impl Taint<'_> {
    /// Converts the taint of the API object into a [`taints::Taint`] with interned strings.
    pub fn intern(&self, interner: &mut Interner) -> taints::Taint {
        taints::Taint {
            key: interner.intern_text(self.key.as_deref().unwrap_or_default()),
            value: interner.intern_text(self.value.as_deref().unwrap_or_default()),
            effect: TaintEffect::parse(self.effect.as_deref().unwrap_or_default()),
        }
    }
}

/// Upstream: `v1.NodeStatus`.
#[derive(Deserialize, Clone, Debug, Default)]
pub struct NodeStatus<'a> {
    #[serde(borrow)]
    pub conditions: Option<Vec<NodeCondition<'a>>>,
    #[serde(borrow)]
    pub addresses: Option<Vec<NodeAddress<'a>>>,
    #[serde(borrow)]
    pub allocatable: Option<ResourceList<'a>>,
}

impl<'a> NodeStatus<'a> {
    /// Returns the condition of this type, or `None` if the node does not have it.
    pub fn condition(&self, type_: &str) -> Option<&NodeCondition<'a>> {
        self.conditions.iter().flatten().find(|it| it.type_.as_deref() == Some(type_))
    }
}

/// Upstream: `v1.NodeCondition`.
#[derive(Deserialize, Clone, Debug)]
#[serde(rename_all = "camelCase")]
pub struct NodeCondition<'a> {
    #[serde(borrow, rename = "type")]
    pub type_: Option<Str<'a>>,
    #[serde(borrow)]
    pub status: Option<Str<'a>>,
    #[serde(borrow)]
    pub last_heartbeat_time: Option<Str<'a>>,
    #[serde(borrow)]
    pub last_transition_time: Option<Str<'a>>,
}

impl NodeCondition<'_> {
    /// Returns the status of the condition, or `Unknown` if it is absent or invalid.
    pub fn status(&self) -> ConditionStatus {
        ConditionStatus::parse(self.status.as_deref().unwrap_or_default())
    }
}

/// Upstream: `v1.NodeAddress`.
#[derive(Deserialize, Clone, Debug)]
pub struct NodeAddress<'a> {
    #[serde(borrow, rename = "type")]
    pub type_: Option<Str<'a>>,
    #[serde(borrow)]
    pub address: Option<Str<'a>>,
}
