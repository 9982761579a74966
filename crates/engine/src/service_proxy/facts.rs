//! Facts: the fields of Services, EndpointSlices and nodes that the service proxy reads.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};
use core::time::Duration;

use muster_api::cidr::Ipv4Cidr;
use muster_api::core_v1::{self, NodeAddress};
use muster_api::discovery_v1::{self, EndpointSlice, TopologyHint};
use muster_api::text::Text;
use muster_api::time::Time;
use muster_api::well_known::{LABEL_SERVICE_NAME, LABEL_TOPOLOGY_ZONE};
use serde::Deserialize;
use serde_json::Value;

use crate::controller::Malformed;

/// The fields of a Service that the service proxy reads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Service {
    /// The `creationTimestamp`. Of Services with the same external address and port, the oldest one gets the traffic.
    pub created: Time,
    /// The type of the Service: with cluster IPs, headless or `ExternalName`.
    pub kind: ServiceType,
    pub ports: Vec<Port>,
    /// The IPv4 addresses of `externalIPs`. The proxy ignores addresses that are reserved, such as the address of a
    /// node, or that the operator does not allow.
    pub external_ips: Vec<Ipv4Addr>,
    /// IPv4 addresses of the load balancer (`status.loadBalancer.ingress`), without addresses that have the IP mode
    /// `Proxy`. The proxy ignores reserved addresses, such as the address of a node.
    pub ingress: Vec<Ipv4Addr>,
    /// Timeout of `ClientIP` session affinity: a client keeps its endpoint until the client has been idle for this
    /// time. `None` without session affinity.
    pub affinity: Option<Duration>,
    pub internal_traffic_policy: TrafficPolicy,
    pub external_traffic_policy: TrafficPolicy,
}

/// The type of a Service, as far as DNS and the proxy distinguish it: with cluster IPs, headless or `ExternalName`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ServiceType {
    /// A Service with these cluster IPs.
    Cluster(Vec<IpAddr>),
    /// A Service with `clusterIP: None`. Its DNS name resolves to its endpoints.
    Headless,
    /// A Service of type `ExternalName`. Its DNS name is an alias (CNAME) of this name, or resolves to this value if it
    /// is an IP address.
    External(Text),
}

/// A port of a Service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Port {
    pub name: Text,
    pub protocol: Protocol,
    /// The port number of the Service port.
    pub number: u16,
    /// The node port (`nodePort`). `None` if the Service port has none.
    pub node_port: Option<u16>,
}

/// The protocol of a port.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Protocol {
    Tcp,
    Udp,
    Sctp,
}

/// The `internalTrafficPolicy` or `externalTrafficPolicy` of a Service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TrafficPolicy {
    /// Traffic goes to endpoints on all nodes (`Cluster`).
    Cluster,
    /// Traffic goes to endpoints on the same node only (`Local`). As external traffic policy, it does not apply to
    /// clients in the cluster.
    Local,
}

/// The fields of an EndpointSlice that the service proxy reads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Slice {
    /// Name of the Service that the slice belongs to.
    pub service: Text,
    pub ports: Vec<SlicePort>,
    pub endpoints: Vec<Endpoint>,
}

/// A port of an EndpointSlice.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SlicePort {
    pub name: Text,
    pub protocol: Protocol,
    /// The port number at which the endpoints of the slice serve.
    pub number: u16,
}

/// An endpoint of an EndpointSlice.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Endpoint {
    pub address: IpAddr,
    pub ready: bool,
    pub serving: bool,
    pub terminating: bool,
    /// Name of the endpoint's node. `None` if it is absent.
    pub node: Option<Text>,
    pub hostname: Option<Text>,
    /// Topology hints: nodes whose clients should use the endpoint. Empty without such hints.
    pub for_nodes: Vec<Text>,
    /// Topology hints: zones whose clients should use the endpoint. Empty without such hints.
    pub for_zones: Vec<Text>,
}

/// The fields of a node that the service proxy reads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// The first IPv4 address of type `InternalIP`, at which other nodes reach this node. `None` if the node has no
    /// such address.
    pub address: Option<Ipv4Addr>,
    /// All IPv4 addresses of the node.
    pub addresses: Vec<Ipv4Addr>,
    /// The pod CIDR of the node: the first IPv4 CIDR of `podCIDRs` and `podCIDR`. `None` if the node has no such CIDR.
    pub range: Option<Ipv4Cidr>,
    /// Zone of the node: the value of the label `topology.kubernetes.io/zone`. `None` if the node does not have the
    /// label.
    pub zone: Option<Text>,
}

impl Protocol {
    /// Parses the `protocol` of a port. An absent protocol is TCP. `None` if the protocol is unknown.
    fn parse(text: Option<&str>) -> Option<Self> {
        match text {
            None | Some("" | "TCP") => Some(Self::Tcp),
            Some("UDP") => Some(Self::Udp),
            Some("SCTP") => Some(Self::Sctp),
            Some(_) => None,
        }
    }

    /// Returns the name of the protocol in lower case, as `nft` and DNS use it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
        }
    }
}

impl Service {
    /// Decodes a Service from its `creationTimestamp` and its JSON.
    pub fn decode(created: Time, object: &Value) -> Result<Self, Malformed> {
        let core_v1::Service { spec, status, .. } =
            Deserialize::deserialize(object).map_err(|it| Malformed::new("services", it))?;
        let spec = spec.unwrap_or_default();
        let kind = match (spec.type_.as_deref(), spec.cluster_ip.as_deref()) {
            (Some("ExternalName"), _) => {
                ServiceType::External(spec.external_name.as_deref().unwrap_or("").into())
            }
            (_, Some("None")) => ServiceType::Headless,
            (_, one) => {
                let all = spec.cluster_ips.as_deref().unwrap_or_default();
                let one = one.filter(|_| all.is_empty());
                ServiceType::Cluster(
                    all.iter().map(|it| &**it).chain(one).filter_map(|it| it.parse().ok()).collect(),
                )
            }
        };
        let load_balancer = status.and_then(|it| it.load_balancer);
        let ingress = load_balancer.iter().flat_map(|it| it.ingress.iter().flatten());
        // With the IP mode `Proxy`, traffic from within the cluster must pass the load balancer too.
        let ingress = ingress.filter(|it| it.ip_mode.as_deref() != Some("Proxy"));
        let policy = |it: Option<&str>| match it {
            Some("Local") => TrafficPolicy::Local,
            _ => TrafficPolicy::Cluster,
        };
        let timeout_s = || spec.session_affinity_config.as_ref()?.client_ip.as_ref()?.timeout_seconds;
        Ok(Self {
            created,
            kind,
            external_ips: spec.external_ips.iter().flatten().filter_map(|it| it.parse().ok()).collect(),
            ingress: ingress.filter_map(|it| it.ip.as_ref()?.parse().ok()).collect(),
            affinity: (spec.session_affinity.as_deref() == Some("ClientIP"))
                .then(|| Duration::from_secs(timeout_s().unwrap_or(10_800))),
            internal_traffic_policy: policy(spec.internal_traffic_policy.as_deref()),
            external_traffic_policy: policy(spec.external_traffic_policy.as_deref()),
            ports: spec.ports.iter().flatten().filter_map(Port::decode).collect(),
        })
    }
}

impl Port {
    /// Decodes a port of a Service. `None` if the protocol is unknown or the port number is invalid.
    fn decode(port: &core_v1::ServicePort<'_>) -> Option<Self> {
        Some(Self {
            name: port.name.as_deref().unwrap_or("").into(),
            protocol: Protocol::parse(port.protocol.as_deref())?,
            number: u16::try_from(port.port.unwrap_or_default()).ok()?,
            node_port: port.node_port.and_then(|it| u16::try_from(it).ok()).filter(|it| *it != 0),
        })
    }
}

impl Slice {
    /// Decodes an EndpointSlice from its labels and its JSON. `None` if the slice belongs to no Service, or has the
    /// address type `FQDN`.
    pub fn decode(labels: &BTreeMap<String, String>, object: &Value) -> Result<Option<Self>, Malformed> {
        let Some(service) = labels.get(LABEL_SERVICE_NAME).filter(|it| !it.is_empty()) else {
            return Ok(None);
        };
        let slice = EndpointSlice::deserialize(object).map_err(|it| Malformed::new("endpointslices", it))?;
        if slice.address_type.as_deref() == Some("FQDN") {
            return Ok(None);
        }
        let port = |it: &core_v1::EndpointPort<'_>| {
            Some(SlicePort {
                name: it.name.as_deref().unwrap_or("").into(),
                protocol: Protocol::parse(it.protocol.as_deref())?,
                number: u16::try_from(it.port?).ok()?,
            })
        };
        Ok(Some(Self {
            service: service.as_str().into(),
            ports: slice.ports.iter().flatten().filter_map(port).collect(),
            endpoints: slice.endpoints.into_iter().flatten().filter_map(Endpoint::decode).collect(),
        }))
    }
}

impl Endpoint {
    /// Decodes an endpoint. `None` if it has no valid IP address.
    fn decode(endpoint: discovery_v1::Endpoint<'_>) -> Option<Self> {
        let names = |hints: Option<Vec<TopologyHint<'_>>>| {
            hints.iter().flatten().map(|it| it.name.as_deref().unwrap_or_default().into()).collect()
        };
        let hints = endpoint.hints.unwrap_or_default();
        let conditions = endpoint.conditions.unwrap_or_default();
        let ready = conditions.ready.unwrap_or(true);
        let hostname = endpoint.hostname.as_deref().filter(|it| !it.is_empty());
        Some(Self {
            // All addresses belong to the same endpoint; clients use the first.
            address: endpoint.addresses?.first()?.parse::<IpAddr>().ok()?.to_canonical(),
            ready,
            serving: conditions.serving.unwrap_or(ready),
            terminating: conditions.terminating.unwrap_or(false),
            node: endpoint.node_name.as_deref().map(Text::from),
            hostname: hostname.map(|it| it.to_ascii_lowercase().into()),
            for_nodes: names(hints.for_nodes),
            for_zones: names(hints.for_zones),
        })
    }
}

impl Node {
    /// Decodes a node from its labels and its JSON.
    pub fn decode(labels: &BTreeMap<String, String>, object: &Value) -> Result<Self, Malformed> {
        let core_v1::Node { spec, status, .. } =
            Deserialize::deserialize(object).map_err(|it| Malformed::new("nodes", it))?;
        let (spec, status) = (spec.unwrap_or_default(), status.unwrap_or_default());
        let addresses = || status.addresses.iter().flatten();
        let address = |it: &NodeAddress<'_>| it.address.as_deref()?.parse().ok();
        let internal_ips = addresses().filter(|it| it.type_.as_deref() == Some("InternalIP"));
        let ranges = spec.pod_cidrs.iter().flatten().chain(&spec.pod_cidr);
        Ok(Self {
            address: internal_ips.filter_map(address).next(),
            addresses: addresses().filter_map(address).collect(),
            range: ranges.filter_map(|it| Ipv4Cidr::parse(it).ok()).next(),
            zone: labels.get(LABEL_TOPOLOGY_ZONE).map(|it| it.as_str().into()),
        })
    }
}
