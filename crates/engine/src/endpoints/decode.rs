//! Objects as the API server sends them. What no rule reads is skipped, not kept.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};

use muster_api::interner::Interner;
use muster_api::text::Text;
use muster_api::time::Time;
use serde::Deserialize;
use serde_json::Value;

use super::facts::{
    Address, Endpoint, EndpointConditions, EndpointPort, Endpoints, Fact, Family, Hints, Node, Pod, Service,
    ServicePort, Slice, SliceOwner, Subset, TargetPort, TargetRef, TrafficDistribution,
};
use crate::controller::Watch;
use crate::daemonset::facts::Malformed;
use crate::daemonset::facts::decode::{Meta, Pairs, Str};

/// What `kubectl apply` leaves may be as large as the object, and is nobody's business here.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

pub(super) fn fact(watch: &Watch, object: &[u8], shared: &mut Interner) -> Result<Fact, Malformed> {
    let plural = &*watch.resource.plural;
    let malformed = |source| Malformed::new(plural, source);
    Ok(match plural {
        "services" => {
            let raw: RawService<'_> = serde_json::from_slice(object).map_err(malformed)?;
            Fact::Service(Arc::new(raw.into_fact(shared)))
        }
        "pods" => {
            let raw: RawPod<'_> = serde_json::from_slice(object).map_err(malformed)?;
            Fact::Pod(Arc::new(raw.into_fact(shared)))
        }
        "nodes" => {
            let raw: RawNode<'_> = serde_json::from_slice(object).map_err(malformed)?;
            Fact::Node(raw.into_fact(shared))
        }
        "endpoints" => {
            let raw: RawEndpoints<'_> = serde_json::from_slice(object).map_err(malformed)?;
            Fact::Endpoints(Arc::new(raw.into_fact(shared)))
        }
        _ => {
            let raw: RawSlice<'_> = serde_json::from_slice(object).map_err(malformed)?;
            Fact::Slice(Arc::new(raw.into_fact(shared)))
        }
    })
}

/// As Go reads an address: with leading zeros, and an IPv4 one that is written as an IPv6 one is an IPv4 one.
pub(super) fn address(text: &str) -> Option<IpAddr> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some(address.to_canonical());
    }
    let mut octets = [0; 4];
    let mut parts = text.split('.');
    for octet in &mut octets {
        *octet = parts.next().filter(|it| it.len() <= 3)?.parse().ok()?;
    }
    parts.next().is_none().then_some(IpAddr::V4(Ipv4Addr::from(octets)))
}

fn said(it: Option<Str<'_>>, shared: &mut Interner) -> Option<Text> {
    it.filter(|it| !it.is_empty()).map(|it| shared.intern_text(&it))
}

fn annotations(meta: &Meta<'_>, shared: &mut Interner) -> BTreeMap<Text, Text> {
    let all = meta.annotations.iter().flatten().filter(|(key, _)| *key != LAST_APPLIED);
    all.map(|(key, value)| (shared.intern_text(key), shared.intern_text(value))).collect()
}

#[derive(Deserialize)]
struct RawNode<'a> {
    #[serde(borrow, default)]
    metadata: Meta<'a>,
}

impl RawNode<'_> {
    fn into_fact(self, shared: &mut Interner) -> Node {
        let labels = self.metadata.labels(shared);
        let name = self.metadata.key(shared).name;
        Node {
            // Pods name it too.
            name: shared.intern_text(&name),
            resource_version: self.metadata.resource_version(),
            zone: labels.get("topology.kubernetes.io/zone").filter(|it| !it.is_empty()).cloned(),
        }
    }
}

#[derive(Deserialize)]
struct RawService<'a> {
    #[serde(borrow, default)]
    metadata: Meta<'a>,
    #[serde(borrow, default)]
    spec: RawServiceSpec<'a>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawServiceSpec<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<Str<'a>>,
    #[serde(borrow)]
    selector: Option<Pairs<'a>>,
    #[serde(borrow, rename = "clusterIP")]
    cluster_ip: Option<Str<'a>>,
    #[serde(borrow)]
    ip_families: Option<Vec<Str<'a>>>,
    #[serde(borrow)]
    ports: Option<Vec<RawServicePort<'a>>>,
    publish_not_ready_addresses: Option<bool>,
    #[serde(borrow)]
    traffic_distribution: Option<Str<'a>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawServicePort<'a> {
    #[serde(borrow)]
    name: Option<Str<'a>>,
    #[serde(borrow)]
    protocol: Option<Str<'a>>,
    #[serde(borrow)]
    app_protocol: Option<Str<'a>>,
    port: i64,
    target_port: Option<Value>,
}

impl RawService<'_> {
    fn into_fact(self, shared: &mut Interner) -> Service {
        let spec = self.spec;
        let ports = spec.ports.into_iter().flatten().map(|it| ServicePort {
            name: shared.intern_text(it.name.as_deref().unwrap_or_default()),
            protocol: shared.intern_text(it.protocol.as_deref().unwrap_or("TCP")),
            app_protocol: it.app_protocol.map(|it| shared.intern_text(&it)),
            target: match it.target_port {
                Some(Value::String(name)) => TargetPort::Name(shared.intern_text(&name)),
                Some(Value::Number(number)) => TargetPort::Number(number.as_i64().unwrap_or_default()),
                _ => TargetPort::Number(it.port),
            },
        });
        let ports = ports.collect();
        let families = spec.ip_families.into_iter().flatten().filter_map(|it| match it.as_ref() {
            "IPv4" => Some(Family::V4),
            "IPv6" => Some(Family::V6),
            _ => None,
        });
        let annotation = |key: &str| self.metadata.annotations.as_ref().and_then(|it| it.get(key));
        // Hints by topology are another way to say where traffic goes, and come first.
        let is_by_topology = annotation("service.kubernetes.io/topology-aware-hints")
            .or_else(|| annotation("service.kubernetes.io/topology-mode"))
            .is_some_and(|it| matches!(it.as_ref(), "Auto" | "auto"));
        let selector = spec.selector.filter(|it| !it.is_empty());
        Service {
            key: self.metadata.key(shared),
            uid: self.metadata.uid(),
            resource_version: self.metadata.resource_version(),
            created: self.metadata.created(),
            deleting: self.metadata.deletion_timestamp.is_some(),
            labels: self.metadata.labels(shared),
            is_external: spec.kind.as_deref() == Some("ExternalName"),
            is_headless: spec.cluster_ip.as_deref() == Some("None"),
            address: spec.cluster_ip.as_deref().and_then(address),
            families: families.collect(),
            selector: selector
                .map(|it| shared.intern_labels(it.iter().map(|(key, value)| (key.as_ref(), value.as_ref())))),
            ports,
            publishes_unready: spec.publish_not_ready_addresses == Some(true),
            traffic: match spec.traffic_distribution.as_deref() {
                Some("PreferClose" | "PreferSameZone") if !is_by_topology => TrafficDistribution::SameZone,
                Some("PreferSameNode") if !is_by_topology => TrafficDistribution::SameNode,
                _ => TrafficDistribution::Anywhere,
            },
        }
    }
}

#[derive(Deserialize)]
struct RawPod<'a> {
    #[serde(borrow, default)]
    metadata: Meta<'a>,
    #[serde(borrow, default)]
    spec: RawPodSpec<'a>,
    #[serde(borrow, default)]
    status: RawPodStatus<'a>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawPodSpec<'a> {
    #[serde(borrow)]
    node_name: Option<Str<'a>>,
    #[serde(borrow)]
    hostname: Option<Str<'a>>,
    #[serde(borrow)]
    subdomain: Option<Str<'a>>,
    #[serde(borrow)]
    containers: Option<Vec<RawContainer<'a>>>,
    #[serde(borrow)]
    init_containers: Option<Vec<RawContainer<'a>>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawContainer<'a> {
    #[serde(borrow)]
    restart_policy: Option<Str<'a>>,
    #[serde(borrow)]
    ports: Option<Vec<RawContainerPort<'a>>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawContainerPort<'a> {
    #[serde(borrow)]
    name: Option<Str<'a>>,
    #[serde(borrow)]
    protocol: Option<Str<'a>>,
    container_port: i64,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawPodStatus<'a> {
    #[serde(borrow)]
    phase: Option<Str<'a>>,
    #[serde(borrow, rename = "podIPs")]
    ips: Option<Vec<RawIp<'a>>>,
    #[serde(borrow)]
    conditions: Option<Vec<RawCondition<'a>>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawIp<'a> {
    #[serde(borrow)]
    ip: Str<'a>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawCondition<'a> {
    #[serde(borrow, rename = "type")]
    kind: Str<'a>,
    #[serde(borrow)]
    status: Str<'a>,
    #[serde(borrow)]
    last_transition_time: Option<Str<'a>>,
}

impl RawPod<'_> {
    fn into_fact(self, shared: &mut Interner) -> Pod {
        let (spec, status) = (self.spec, self.status);
        // A container that starts before the others and stays is reached as they are.
        let stays = |it: &RawContainer<'_>| it.restart_policy.as_deref() == Some("Always");
        let beside = spec.init_containers.into_iter().flatten().filter(stays);
        let containers = spec.containers.into_iter().flatten().chain(beside);
        let ports = containers.flat_map(|it| it.ports.unwrap_or_default());
        let named = ports.filter(|it| it.name.as_deref().is_some_and(|it| !it.is_empty()));
        let named_ports = named.map(|it| {
            let name = shared.intern_text(it.name.as_deref().unwrap_or_default());
            (name, shared.intern_text(it.protocol.as_deref().unwrap_or("TCP")), it.container_port)
        });
        let named_ports = named_ports.collect();
        let ready = status.conditions.iter().flatten().find(|it| it.kind == "Ready");
        Pod {
            key: self.metadata.key(shared),
            uid: self.metadata.uid(),
            resource_version: self.metadata.resource_version(),
            labels: self.metadata.labels(shared),
            node: said(spec.node_name, shared),
            hostname: said(spec.hostname, shared),
            subdomain: said(spec.subdomain, shared),
            addresses: status.ips.into_iter().flatten().filter_map(|it| address(&it.ip)).collect(),
            named_ports,
            ready: ready.is_some_and(|it| it.status == "True"),
            ready_changed_at: ready.and_then(|it| Time::parse(it.last_transition_time.as_deref()?)),
            ended: matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")),
            deleting: self.metadata.deletion_timestamp.is_some(),
        }
    }
}

#[derive(Deserialize)]
struct RawEndpoints<'a> {
    #[serde(borrow, default)]
    metadata: Meta<'a>,
    #[serde(borrow, default)]
    subsets: Option<Vec<RawSubset<'a>>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawSubset<'a> {
    #[serde(borrow)]
    addresses: Option<Vec<RawAddress<'a>>>,
    #[serde(borrow)]
    not_ready_addresses: Option<Vec<RawAddress<'a>>>,
    #[serde(borrow)]
    ports: Option<Vec<RawPort<'a>>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawAddress<'a> {
    #[serde(borrow)]
    ip: Str<'a>,
    #[serde(borrow)]
    hostname: Option<Str<'a>>,
    #[serde(borrow)]
    node_name: Option<Str<'a>>,
    #[serde(borrow)]
    target_ref: Option<RawReferent<'a>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawReferent<'a> {
    #[serde(borrow)]
    api_version: Option<Str<'a>>,
    #[serde(borrow)]
    kind: Option<Str<'a>>,
    #[serde(borrow)]
    namespace: Option<Str<'a>>,
    #[serde(borrow)]
    name: Option<Str<'a>>,
    #[serde(borrow)]
    uid: Option<Str<'a>>,
    #[serde(borrow)]
    field_path: Option<Str<'a>>,
}

impl RawReferent<'_> {
    fn into_fact(self, shared: &mut Interner) -> TargetRef {
        TargetRef {
            api_version: said(self.api_version, shared),
            kind: said(self.kind, shared),
            namespace: said(self.namespace, shared),
            name: said(self.name, shared),
            uid: said(self.uid, shared),
            field_path: said(self.field_path, shared),
        }
    }
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawPort<'a> {
    #[serde(borrow)]
    name: Option<Str<'a>>,
    port: Option<i64>,
    #[serde(borrow)]
    protocol: Option<Str<'a>>,
    #[serde(borrow)]
    app_protocol: Option<Str<'a>>,
}

impl RawPort<'_> {
    fn into_fact(self, shared: &mut Interner) -> EndpointPort {
        EndpointPort {
            name: shared.intern_text(self.name.as_deref().unwrap_or_default()),
            port: self.port,
            protocol: shared.intern_text(self.protocol.as_deref().unwrap_or("TCP")),
            app_protocol: self.app_protocol.map(|it| shared.intern_text(&it)),
        }
    }
}

fn ports(raw: Option<Vec<RawPort<'_>>>, shared: &mut Interner) -> Vec<EndpointPort> {
    let mut ports: Vec<EndpointPort> = raw.into_iter().flatten().map(|it| it.into_fact(shared)).collect();
    ports.sort();
    ports
}

fn addresses(raw: Option<Vec<RawAddress<'_>>>, shared: &mut Interner) -> Vec<Address> {
    let read = |it: RawAddress<'_>| Address {
        ip: it.ip.as_ref().into(),
        hostname: said(it.hostname, shared),
        node: said(it.node_name, shared),
        target: it.target_ref.map(|it| it.into_fact(shared)),
    };
    raw.into_iter().flatten().map(read).collect()
}

impl RawEndpoints<'_> {
    fn into_fact(self, shared: &mut Interner) -> Endpoints {
        let subsets = self.subsets.into_iter().flatten().map(|it| Subset {
            ready: addresses(it.addresses, shared),
            unready: addresses(it.not_ready_addresses, shared),
            ports: ports(it.ports, shared),
        });
        let subsets = subsets.collect();
        Endpoints {
            key: self.metadata.key(shared),
            uid: self.metadata.uid(),
            resource_version: self.metadata.resource_version(),
            deleting: self.metadata.deletion_timestamp.is_some(),
            labels: self.metadata.labels(shared),
            annotations: annotations(&self.metadata, shared),
            subsets,
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawSlice<'a> {
    #[serde(borrow, default)]
    metadata: Meta<'a>,
    #[serde(borrow, default)]
    address_type: Option<Str<'a>>,
    #[serde(borrow, default)]
    ports: Option<Vec<RawPort<'a>>>,
    #[serde(borrow, default)]
    endpoints: Option<Vec<RawEndpoint<'a>>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawEndpoint<'a> {
    #[serde(borrow)]
    addresses: Option<Vec<Str<'a>>>,
    #[serde(borrow)]
    hostname: Option<Str<'a>>,
    #[serde(borrow)]
    node_name: Option<Str<'a>>,
    #[serde(borrow)]
    zone: Option<Str<'a>>,
    conditions: Option<EndpointConditions>,
    #[serde(borrow)]
    target_ref: Option<RawReferent<'a>>,
    #[serde(borrow)]
    hints: Option<RawHints<'a>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawHints<'a> {
    #[serde(borrow)]
    for_zones: Option<Vec<RawHint<'a>>>,
    #[serde(borrow)]
    for_nodes: Option<Vec<RawHint<'a>>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawHint<'a> {
    #[serde(borrow)]
    name: Str<'a>,
}

impl RawEndpoint<'_> {
    fn into_fact(self, shared: &mut Interner) -> Endpoint {
        let mut addresses: Vec<Text> = self.addresses.iter().flatten().map(|it| it.as_ref().into()).collect();
        addresses.sort();
        let mut names = |raw: Option<Vec<RawHint<'_>>>| -> Vec<Text> {
            raw.into_iter().flatten().map(|it| shared.intern_text(&it.name)).collect()
        };
        let hints = self.hints.unwrap_or_default();
        let hints = Hints { zones: names(hints.for_zones), nodes: names(hints.for_nodes) };
        Endpoint {
            addresses,
            hostname: said(self.hostname, shared),
            node: said(self.node_name, shared),
            zone: said(self.zone, shared),
            condition: self.conditions.unwrap_or_default(),
            target: self.target_ref.map(|it| it.into_fact(shared)),
            hints,
        }
    }
}

impl RawSlice<'_> {
    fn into_fact(self, shared: &mut Interner) -> Slice {
        let owners = self.metadata.owner_references.iter().flatten().map(|it| SliceOwner {
            kind: shared.intern_text(it.kind.as_deref().unwrap_or_default()),
            name: shared.intern_text(it.name.as_deref().unwrap_or_default()),
            uid: shared.intern_text(it.uid.as_deref().unwrap_or_default()),
        });
        let owners = owners.collect();
        let endpoints = self.endpoints.into_iter().flatten().map(|it| it.into_fact(shared)).collect();
        Slice {
            key: self.metadata.key(shared),
            uid: self.metadata.uid(),
            resource_version: self.metadata.resource_version(),
            deleting: self.metadata.deletion_timestamp.is_some(),
            labels: self.metadata.labels(shared),
            annotations: annotations(&self.metadata, shared),
            owners,
            family: match self.address_type.as_deref() {
                Some("IPv6") => Some(Family::V6),
                Some("IPv4") => Some(Family::V4),
                _ => None,
            },
            ports: ports(self.ports, shared),
            endpoints,
        }
    }
}
