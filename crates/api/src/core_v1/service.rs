//! API types of Services and Endpoints.

use alloc::vec::Vec;

use serde::Deserialize;

use crate::json::{IntOrString, Str, StrMap};
use crate::meta_v1::ObjectMeta;

/// Upstream: `v1.Service`.
#[derive(Deserialize, Clone, Debug)]
pub struct Service<'a> {
    #[serde(borrow, default)]
    pub metadata: ObjectMeta<'a>,
    #[serde(borrow)]
    pub spec: Option<ServiceSpec<'a>>,
    #[serde(borrow)]
    pub status: Option<ServiceStatus<'a>>,
}

/// Upstream: `v1.ServiceSpec`.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase")]
pub struct ServiceSpec<'a> {
    #[serde(borrow, rename = "type")]
    pub type_: Option<Str<'a>>,
    #[serde(borrow)]
    pub selector: Option<StrMap<'a>>,
    #[serde(borrow, rename = "clusterIP")]
    pub cluster_ip: Option<Str<'a>>,
    #[serde(borrow, rename = "clusterIPs")]
    pub cluster_ips: Option<Vec<Str<'a>>>,
    #[serde(borrow)]
    pub ip_families: Option<Vec<Str<'a>>>,
    #[serde(borrow)]
    pub external_name: Option<Str<'a>>,
    #[serde(borrow, rename = "externalIPs")]
    pub external_ips: Option<Vec<Str<'a>>>,
    #[serde(borrow)]
    pub ports: Option<Vec<ServicePort<'a>>>,
    #[serde(borrow)]
    pub session_affinity: Option<Str<'a>>,
    pub session_affinity_config: Option<SessionAffinityConfig>,
    #[serde(borrow)]
    pub internal_traffic_policy: Option<Str<'a>>,
    #[serde(borrow)]
    pub external_traffic_policy: Option<Str<'a>>,
    #[serde(borrow)]
    pub traffic_distribution: Option<Str<'a>>,
    pub publish_not_ready_addresses: Option<bool>,
}

/// Upstream: `v1.ServicePort`.
#[derive(Deserialize, Clone, Debug)]
#[serde(rename_all = "camelCase")]
pub struct ServicePort<'a> {
    #[serde(borrow)]
    pub name: Option<Str<'a>>,
    #[serde(borrow)]
    pub protocol: Option<Str<'a>>,
    #[serde(borrow)]
    pub app_protocol: Option<Str<'a>>,
    pub port: Option<i32>,
    #[serde(borrow)]
    pub target_port: Option<IntOrString<'a>>,
    pub node_port: Option<i32>,
}

/// Upstream: `v1.SessionAffinityConfig`.
#[derive(Deserialize, Clone, Debug)]
pub struct SessionAffinityConfig {
    #[serde(rename = "clientIP")]
    pub client_ip: Option<ClientIpConfig>,
}

/// Upstream: `v1.ClientIPConfig`.
#[derive(Deserialize, Clone, Debug)]
#[serde(rename_all = "camelCase")]
pub struct ClientIpConfig {
    pub timeout_seconds: Option<u64>,
}

/// Upstream: `v1.ServiceStatus`.
#[derive(Deserialize, Clone, Debug)]
#[serde(rename_all = "camelCase")]
pub struct ServiceStatus<'a> {
    #[serde(borrow)]
    pub load_balancer: Option<LoadBalancerStatus<'a>>,
}

/// Upstream: `v1.LoadBalancerStatus`.
#[derive(Deserialize, Clone, Debug)]
pub struct LoadBalancerStatus<'a> {
    #[serde(borrow)]
    pub ingress: Option<Vec<LoadBalancerIngress<'a>>>,
}

/// Upstream: `v1.LoadBalancerIngress`.
#[derive(Deserialize, Clone, Debug)]
#[serde(rename_all = "camelCase")]
pub struct LoadBalancerIngress<'a> {
    #[serde(borrow)]
    pub ip: Option<Str<'a>>,
    #[serde(borrow)]
    pub ip_mode: Option<Str<'a>>,
}

/// Upstream: `v1.Endpoints`.
#[derive(Deserialize, Clone, Debug)]
pub struct Endpoints<'a> {
    #[serde(borrow, default)]
    pub metadata: ObjectMeta<'a>,
    #[serde(borrow)]
    pub subsets: Option<Vec<EndpointSubset<'a>>>,
}

/// Upstream: `v1.EndpointSubset`.
#[derive(Deserialize, Clone, Debug)]
#[serde(rename_all = "camelCase")]
pub struct EndpointSubset<'a> {
    #[serde(borrow)]
    pub addresses: Option<Vec<EndpointAddress<'a>>>,
    #[serde(borrow)]
    pub not_ready_addresses: Option<Vec<EndpointAddress<'a>>>,
    #[serde(borrow)]
    pub ports: Option<Vec<EndpointPort<'a>>>,
}

/// Upstream: `v1.EndpointAddress`.
#[derive(Deserialize, Clone, Debug)]
#[serde(rename_all = "camelCase")]
pub struct EndpointAddress<'a> {
    #[serde(borrow)]
    pub ip: Option<Str<'a>>,
    #[serde(borrow)]
    pub hostname: Option<Str<'a>>,
    #[serde(borrow)]
    pub node_name: Option<Str<'a>>,
    #[serde(borrow)]
    pub target_ref: Option<ObjectReference<'a>>,
}

/// A port of Endpoints or of an EndpointSlice, which have the same fields. Upstream: `v1.EndpointPort`,
/// `discoveryv1.EndpointPort`.
#[derive(Deserialize, Clone, Debug)]
#[serde(rename_all = "camelCase")]
pub struct EndpointPort<'a> {
    #[serde(borrow)]
    pub name: Option<Str<'a>>,
    pub port: Option<i32>,
    #[serde(borrow)]
    pub protocol: Option<Str<'a>>,
    #[serde(borrow)]
    pub app_protocol: Option<Str<'a>>,
}

/// Upstream: `v1.ObjectReference`.
#[derive(Deserialize, Clone, Debug)]
#[serde(rename_all = "camelCase")]
pub struct ObjectReference<'a> {
    #[serde(borrow)]
    pub api_version: Option<Str<'a>>,
    #[serde(borrow)]
    pub kind: Option<Str<'a>>,
    #[serde(borrow)]
    pub namespace: Option<Str<'a>>,
    #[serde(borrow)]
    pub name: Option<Str<'a>>,
    #[serde(borrow)]
    pub uid: Option<Str<'a>>,
    #[serde(borrow)]
    pub field_path: Option<Str<'a>>,
}
