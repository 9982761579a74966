//! What is kept of Services, of what stands behind them, and of nodes.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};
use core::time::Duration;

use muster_api::text::Text;
use serde::Deserialize;
use serde_json::Value;

use crate::daemonset::facts::Malformed;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Service {
    pub kind: ServiceType,
    pub ports: Vec<Port>,
    /// Addresses outside of the cluster's own that its user named, and those of a load balancer. Which of them lead to it
    /// is decided by `reserved_addresses`.
    pub external_ips: Vec<Ipv4Addr>,
    pub ingress: Vec<Ipv4Addr>,
    /// A client stays with its endpoint until it has been silent for so long.
    pub affinity: Option<Duration>,
    pub internal_traffic_policy: TrafficPolicy,
    pub external_traffic_policy: TrafficPolicy,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ServiceType {
    /// With an address of its own.
    Cluster(Vec<IpAddr>),
    /// Its name leads to its endpoints.
    Headless,
    /// Its name is another name for this one.
    External(Text),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Port {
    pub name: Text,
    pub protocol: Protocol,
    pub number: u16,
    /// `nodePort`.
    pub node_port: Option<u16>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Protocol {
    Tcp,
    Udp,
    Sctp,
}

/// `internalTrafficPolicy` or `externalTrafficPolicy`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TrafficPolicy {
    Anywhere,
    /// Endpoints on the same node only.
    Local,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Slice {
    /// The Service's name.
    pub service: Text,
    pub ports: Vec<SlicePort>,
    pub endpoints: Vec<Endpoint>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SlicePort {
    pub name: Text,
    pub protocol: Protocol,
    pub number: u16,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Endpoint {
    pub address: IpAddr,
    pub ready: bool,
    pub serving: bool,
    pub terminating: bool,
    pub node: Option<Text>,
    pub hostname: Option<Text>,
    /// Whom it is meant for, where somebody said so.
    pub for_nodes: Vec<Text>,
    pub for_zones: Vec<Text>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// Where other nodes reach it.
    pub address: Option<Ipv4Addr>,
    /// All of its addresses.
    pub addresses: Vec<Ipv4Addr>,
    /// The addresses of its pods.
    pub range: Option<Range>,
    pub zone: Option<Text>,
}

/// A range of addresses, such as `10.244.1.0/24`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Range {
    first: u32,
    bits: u8,
}

impl Protocol {
    fn read(text: Option<&str>) -> Option<Self> {
        match text {
            None | Some("" | "TCP") => Some(Self::Tcp),
            Some("UDP") => Some(Self::Udp),
            Some("SCTP") => Some(Self::Sctp),
            Some(_) => None,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
        }
    }
}

impl Range {
    /// `None`: no range, or one that holds less than its first address says.
    pub fn parse(text: &str) -> Option<Self> {
        let (first, bits) = text.split_once('/')?;
        let range = Self::around(first.parse().ok()?, bits.parse().ok()?)?;
        (range.first == u32::from(first.parse::<Ipv4Addr>().ok()?)).then_some(range)
    }

    /// The range of so many leading bits that the address is in.
    pub fn around(address: Ipv4Addr, bits: u8) -> Option<Self> {
        let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
        (bits <= 32).then(|| Self { first: u32::from(address) & mask, bits })
    }

    pub fn contains(self, address: Ipv4Addr) -> bool {
        Self::around(address, self.bits) == Some(self)
    }

    pub fn overlaps(self, other: Self) -> bool {
        let (wide, narrow) = if self.bits < other.bits { (self, other) } else { (other, self) };
        wide.contains(Ipv4Addr::from(narrow.first))
    }

    /// The one that a bridge has: the first that is not the range's own.
    pub fn gateway(self) -> Option<Ipv4Addr> {
        (self.bits <= 30).then(|| Ipv4Addr::from(self.first + 1))
    }
}

impl core::fmt::Display for Range {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}/{}", Ipv4Addr::from(self.first), self.bits)
    }
}

impl Service {
    /// From the object without its metadata.
    pub fn read(object: &Value) -> Result<Self, Malformed> {
        let raw = RawService::deserialize(object).map_err(|it| Malformed::new("services", it))?;
        let spec = raw.spec;
        let kind = match (spec.kind.as_deref(), spec.cluster_ip.as_deref()) {
            (Some("ExternalName"), _) => {
                ServiceType::External(spec.external_name.as_deref().unwrap_or("").into())
            }
            (_, Some("None")) => ServiceType::Headless,
            (_, one) => {
                let all = spec.cluster_ips.iter().map(String::as_str);
                let one = one.filter(|_| spec.cluster_ips.is_empty());
                ServiceType::Cluster(all.chain(one).filter_map(|it| it.parse().ok()).collect())
            }
        };
        let ingress = raw.status.load_balancer.ingress.iter().filter(|it| {
            // With `Proxy` the balancer wants to see all traffic itself.
            it.ip_mode.as_deref() != Some("Proxy")
        });
        let local = |it: Option<String>| match it.as_deref() {
            Some("Local") => TrafficPolicy::Local,
            _ => TrafficPolicy::Anywhere,
        };
        let timeout_s = spec.session_affinity_config.client_ip.timeout_seconds.unwrap_or(10_800);
        Ok(Self {
            kind,
            external_ips: spec.external_ips.iter().filter_map(|it| it.parse().ok()).collect(),
            ingress: ingress.filter_map(|it| it.ip.as_ref()?.parse().ok()).collect(),
            affinity: (spec.session_affinity.as_deref() == Some("ClientIP"))
                .then(|| Duration::from_secs(timeout_s)),
            internal_traffic_policy: local(spec.internal_traffic_policy),
            external_traffic_policy: local(spec.external_traffic_policy),
            ports: spec.ports.iter().filter_map(RawPort::read).collect(),
        })
    }
}

impl Slice {
    /// From the object without its metadata, and its labels. `None`: it is of no Service, or leads to names.
    pub fn read(labels: &BTreeMap<String, String>, object: &Value) -> Result<Option<Self>, Malformed> {
        let Some(service) = labels.get("kubernetes.io/service-name").filter(|it| !it.is_empty()) else {
            return Ok(None);
        };
        let raw = RawSlice::deserialize(object).map_err(|it| Malformed::new("endpointslices", it))?;
        if raw.address_type.as_deref() == Some("FQDN") {
            return Ok(None);
        }
        let port = |it: &RawSlicePort| {
            Some(SlicePort {
                name: it.name.as_deref().unwrap_or("").into(),
                protocol: Protocol::read(it.protocol.as_deref())?,
                number: it.port?,
            })
        };
        Ok(Some(Self {
            service: service.as_str().into(),
            ports: raw.ports.unwrap_or_default().iter().filter_map(port).collect(),
            endpoints: raw
                .endpoints
                .unwrap_or_default()
                .into_iter()
                .filter_map(RawEndpoint::into_fact)
                .collect(),
        }))
    }
}

impl Node {
    /// From the object without its metadata, and its labels.
    pub fn read(labels: &BTreeMap<String, String>, object: &Value) -> Result<Self, Malformed> {
        let raw = RawNode::deserialize(object).map_err(|it| Malformed::new("nodes", it))?;
        let inside = raw.status.addresses.iter().filter(|it| it.kind == "InternalIP");
        let ranges = raw.spec.pod_cidrs.iter().chain(&raw.spec.pod_cidr);
        Ok(Self {
            address: inside.filter_map(|it| it.address.parse().ok()).next(),
            addresses: raw.status.addresses.iter().filter_map(|it| it.address.parse().ok()).collect(),
            range: ranges.filter_map(|it| Range::parse(it)).next(),
            zone: labels.get("topology.kubernetes.io/zone").map(|it| it.as_str().into()),
        })
    }
}

#[derive(Deserialize)]
struct RawService {
    #[serde(default)]
    spec: RawServiceSpec,
    #[serde(default)]
    status: RawServiceStatus,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawServiceSpec {
    #[serde(rename = "type")]
    kind: Option<String>,
    #[serde(rename = "clusterIP")]
    cluster_ip: Option<String>,
    #[serde(rename = "clusterIPs")]
    cluster_ips: Vec<String>,
    external_name: Option<String>,
    #[serde(rename = "externalIPs")]
    external_ips: Vec<String>,
    ports: Vec<RawPort>,
    session_affinity: Option<String>,
    session_affinity_config: RawAffinity,
    internal_traffic_policy: Option<String>,
    external_traffic_policy: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawAffinity {
    #[serde(rename = "clientIP")]
    client_ip: RawClientIp,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawClientIp {
    timeout_seconds: Option<u64>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawPort {
    name: Option<String>,
    protocol: Option<String>,
    port: u16,
    node_port: Option<u16>,
}

impl RawPort {
    fn read(&self) -> Option<Port> {
        Some(Port {
            name: self.name.as_deref().unwrap_or("").into(),
            protocol: Protocol::read(self.protocol.as_deref())?,
            number: self.port,
            node_port: self.node_port.filter(|it| *it != 0),
        })
    }
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawServiceStatus {
    load_balancer: RawBalancer,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawBalancer {
    ingress: Vec<RawIngress>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawIngress {
    ip: Option<String>,
    ip_mode: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawSlice {
    address_type: Option<String>,
    ports: Option<Vec<RawSlicePort>>,
    endpoints: Option<Vec<RawEndpoint>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawSlicePort {
    name: Option<String>,
    protocol: Option<String>,
    port: Option<u16>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawEndpoint {
    addresses: Vec<String>,
    conditions: RawConditions,
    hostname: Option<String>,
    node_name: Option<String>,
    hints: RawHints,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawConditions {
    ready: Option<bool>,
    serving: Option<bool>,
    terminating: Option<bool>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawHints {
    for_zones: Vec<RawHint>,
    for_nodes: Vec<RawHint>,
}

#[derive(Deserialize)]
struct RawHint {
    name: String,
}

impl RawEndpoint {
    fn into_fact(self) -> Option<Endpoint> {
        let names = |hints: Vec<RawHint>| hints.iter().map(|it| it.name.as_str().into()).collect();
        let ready = self.conditions.ready.unwrap_or(true);
        Some(Endpoint {
            // All of an endpoint's addresses are the same one's, and clients use the first.
            address: self.addresses.first()?.parse::<IpAddr>().ok()?.to_canonical(),
            ready,
            serving: self.conditions.serving.unwrap_or(ready),
            terminating: self.conditions.terminating.unwrap_or(false),
            node: self.node_name.map(Text::from),
            hostname: self.hostname.filter(|it| !it.is_empty()).map(|it| it.to_ascii_lowercase().into()),
            for_nodes: names(self.hints.for_nodes),
            for_zones: names(self.hints.for_zones),
        })
    }
}

#[derive(Deserialize)]
struct RawNode {
    #[serde(default)]
    spec: RawNodeSpec,
    #[serde(default)]
    status: RawNodeStatus,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawNodeSpec {
    #[serde(rename = "podCIDR")]
    pod_cidr: Option<String>,
    #[serde(rename = "podCIDRs")]
    pod_cidrs: Vec<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawNodeStatus {
    addresses: Vec<RawAddress>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawAddress {
    #[serde(rename = "type")]
    kind: String,
    address: String,
}
