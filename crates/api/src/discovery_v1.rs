//! `discovery.k8s.io/v1`: EndpointSlices.

use alloc::vec::Vec;

use serde::Deserialize;

use crate::core_v1::{EndpointPort, ObjectReference};
use crate::json::Str;
use crate::meta_v1::ObjectMeta;

/// Upstream: `discovery/v1.EndpointSlice`.
#[derive(Deserialize, Clone, Debug)]
#[serde(rename_all = "camelCase")]
pub struct EndpointSlice<'a> {
    #[serde(borrow, default)]
    pub metadata: ObjectMeta<'a>,
    #[serde(borrow)]
    pub address_type: Option<Str<'a>>,
    #[serde(borrow)]
    pub ports: Option<Vec<EndpointPort<'a>>>,
    #[serde(borrow)]
    pub endpoints: Option<Vec<Endpoint<'a>>>,
}

/// Upstream: `discovery/v1.Endpoint`.
#[derive(Deserialize, Clone, Debug)]
#[serde(rename_all = "camelCase")]
pub struct Endpoint<'a> {
    #[serde(borrow)]
    pub addresses: Option<Vec<Str<'a>>>,
    pub conditions: Option<EndpointConditions>,
    #[serde(borrow)]
    pub hostname: Option<Str<'a>>,
    #[serde(borrow)]
    pub node_name: Option<Str<'a>>,
    #[serde(borrow)]
    pub zone: Option<Str<'a>>,
    #[serde(borrow)]
    pub target_ref: Option<ObjectReference<'a>>,
    #[serde(borrow)]
    pub hints: Option<EndpointHints<'a>>,
}

/// Upstream: `discovery/v1.EndpointConditions`.
#[derive(Deserialize, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct EndpointConditions {
    pub ready: Option<bool>,
    pub serving: Option<bool>,
    pub terminating: Option<bool>,
}

/// Upstream: `discovery/v1.EndpointHints`.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase")]
pub struct EndpointHints<'a> {
    #[serde(borrow)]
    pub for_zones: Option<Vec<TopologyHint<'a>>>,
    #[serde(borrow)]
    pub for_nodes: Option<Vec<TopologyHint<'a>>>,
}

/// The name of a zone or of a node. Upstream: `discovery/v1.ForZone`, `discovery/v1.ForNode`.
#[derive(Deserialize, Clone, Debug)]
pub struct TopologyHint<'a> {
    #[serde(borrow)]
    pub name: Option<Str<'a>>,
}
