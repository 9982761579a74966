//! Decodes Services, pods, nodes, Endpoints and EndpointSlices into facts: only the fields that the endpoints
//! controllers read.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};

use muster_api::core_v1::{self, EndpointAddress, PodWithoutContainerStatuses};
use muster_api::discovery_v1::{self, EndpointSlice, TopologyHint};
use muster_api::interner::Interner;
use muster_api::json::{self, IntOrString, StrMap};
use muster_api::labels::Selector;
use muster_api::meta_v1::{ObjectMeta, PartialObjectMetadata};
use muster_api::text::Text;
use muster_api::time::Time;
use muster_api::well_known::{ANNOTATION_LAST_APPLIED, LABEL_TOPOLOGY_ZONE, POD_READY};

use super::facts::{
    Address, Endpoint, EndpointHints, EndpointPort, Endpoints, EndpointsObject, IpFamily, Node, Pod, Service,
    ServicePort, Slice, SliceOwner, Subset, TargetPort, TargetRef, TrafficDistribution,
};
use crate::controller::{Malformed, Watch};

/// Decodes the JSON of an object of a watched kind, and keeps only the fields that the endpoints controllers read.
pub(super) fn decode_fact(
    watch: &Watch,
    object: &[u8],
    shared: &mut Interner,
) -> Result<EndpointsObject, Malformed> {
    let plural = &*watch.resource.plural;
    let decoded = match plural {
        "services" => {
            json::from_slice(object).map(|it| EndpointsObject::Service(Arc::new(service_fact(it, shared))))
        }
        "pods" => json::from_slice(object).map(|it| EndpointsObject::Pod(Arc::new(pod_fact(it, shared)))),
        "nodes" => json::from_slice(object).map(|it| EndpointsObject::Node(node_fact(&it, shared))),
        "endpoints" => json::from_slice(object)
            .map(|it| EndpointsObject::Endpoints(Arc::new(endpoints_fact(it, shared)))),
        _ => json::from_slice(object).map(|it| EndpointsObject::Slice(Arc::new(slice_fact(it, shared)))),
    };
    decoded.map_err(|source| Malformed::new(plural, source))
}

/// Parses an IP address as upstream does. `None` if the text is not an IP address. Leading zeros are allowed in IPv4
/// addresses, and an IPv4-mapped IPv6 address becomes an IPv4 address. Upstream: `ParseIPSloppy`.
pub(super) fn parse_address(text: &str) -> Option<IpAddr> {
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

/// Interns a string. Returns `None` if the string is `None` or empty.
fn intern_non_empty(it: Option<&str>, shared: &mut Interner) -> Option<Text> {
    it.filter(|it| !it.is_empty()).map(|it| shared.intern_text(it))
}

/// Returns the annotations of an object, except `kubectl.kubernetes.io/last-applied-configuration`.
fn annotations_without_last_applied(meta: &ObjectMeta<'_>, shared: &mut Interner) -> BTreeMap<Text, Text> {
    // The annotation of `kubectl apply` may be as large as the object.
    let all =
        meta.annotations.iter().flat_map(StrMap::pairs).filter(|(key, _)| *key != ANNOTATION_LAST_APPLIED);
    all.map(|(key, value)| (shared.intern_text(key), shared.intern_text(value))).collect()
}

/// Extracts the fields of a node that the endpoints controllers read.
fn node_fact(node: &PartialObjectMetadata<'_>, shared: &mut Interner) -> Node {
    let meta = &node.metadata;
    Node {
        // Interned, because pods have the node's name too.
        name: shared.intern_text(meta.name()),
        resource_version: meta.resource_version(),
        zone: intern_non_empty(meta.label(LABEL_TOPOLOGY_ZONE), shared),
    }
}

/// Extracts the fields of a Service that the endpoints controllers read.
fn service_fact(service: core_v1::Service<'_>, shared: &mut Interner) -> Service {
    let meta = service.metadata;
    let spec = service.spec.unwrap_or_default();
    let ports = spec.ports.into_iter().flatten().map(|it| ServicePort {
        name: shared.intern_text(it.name.as_deref().unwrap_or_default()),
        protocol: shared.intern_text(it.protocol.as_deref().unwrap_or("TCP")),
        app_protocol: it.app_protocol.map(|it| shared.intern_text(&it)),
        target: match it.target_port {
            Some(IntOrString::String(name)) => TargetPort::Name(shared.intern_text(&name)),
            Some(IntOrString::Int(number)) => TargetPort::Number(number),
            Some(IntOrString::Invalid(_)) | None => TargetPort::Number(it.port.unwrap_or_default().into()),
        },
    });
    let ports = ports.collect();
    let families = spec.ip_families.iter().flatten().filter_map(|it| match &**it {
        "IPv4" => Some(IpFamily::V4),
        "IPv6" => Some(IpFamily::V6),
        _ => None,
    });
    // Topology-aware hints take precedence over `trafficDistribution`.
    let has_topology_hints = meta
        .annotation("service.kubernetes.io/topology-aware-hints")
        .or_else(|| meta.annotation("service.kubernetes.io/topology-mode"))
        .is_some_and(|it| matches!(it, "Auto" | "auto"));
    let selector = spec.selector.filter(|it| !it.is_empty());
    Service {
        key: meta.key(shared),
        uid: meta.uid(),
        resource_version: meta.resource_version(),
        created: meta.creation_time(),
        deleting: meta.is_deleting(),
        labels: meta.labels(shared),
        is_external: spec.type_.as_deref() == Some("ExternalName"),
        is_headless: spec.cluster_ip.as_deref() == Some("None"),
        address: spec.cluster_ip.as_deref().and_then(parse_address),
        families: families.collect(),
        selector: selector.map(|it| Selector::from_pairs(it.pairs())),
        ports,
        publishes_unready: spec.publish_not_ready_addresses == Some(true),
        traffic: match spec.traffic_distribution.as_deref() {
            Some("PreferClose" | "PreferSameZone") if !has_topology_hints => TrafficDistribution::SameZone,
            Some("PreferSameNode") if !has_topology_hints => TrafficDistribution::SameNode,
            _ => TrafficDistribution::Anywhere,
        },
    }
}

/// Extracts the fields of a pod that the endpoints controllers read.
fn pod_fact(pod: PodWithoutContainerStatuses<'_>, shared: &mut Interner) -> Pod {
    let meta = pod.metadata;
    let (spec, status) = (pod.spec.unwrap_or_default(), pod.status.unwrap_or_default());
    let ports = spec.long_running_containers().flat_map(|it| it.ports.iter().flatten());
    let named_ports = ports.filter_map(|it| {
        let name = it.name.as_deref().filter(|it| !it.is_empty())?;
        let protocol = it.protocol.as_deref().unwrap_or("TCP");
        Some((shared.intern_text(name), shared.intern_text(protocol), it.container_port.unwrap_or_default()))
    });
    let named_ports = named_ports.collect();
    let ready = status.condition(POD_READY);
    let addresses = status.pod_ips.iter().flatten();
    Pod {
        key: meta.key(shared),
        uid: meta.uid(),
        resource_version: meta.resource_version(),
        labels: meta.labels(shared),
        node: intern_non_empty(spec.node_name.as_deref(), shared),
        hostname: intern_non_empty(spec.hostname.as_deref(), shared),
        subdomain: intern_non_empty(spec.subdomain.as_deref(), shared),
        addresses: addresses.filter_map(|it| parse_address(it.ip.as_deref()?)).collect(),
        named_ports,
        ready: ready.is_some_and(core_v1::PodCondition::is_true),
        ready_changed_at: ready.and_then(|it| Time::parse(it.last_transition_time.as_deref()?)),
        ended: status.is_terminal(),
        deleting: meta.is_deleting(),
    }
}

/// Decodes a `targetRef`.
fn decode_target_ref(reference: core_v1::ObjectReference<'_>, shared: &mut Interner) -> TargetRef {
    TargetRef {
        api_version: intern_non_empty(reference.api_version.as_deref(), shared),
        kind: intern_non_empty(reference.kind.as_deref(), shared),
        namespace: intern_non_empty(reference.namespace.as_deref(), shared),
        name: intern_non_empty(reference.name.as_deref(), shared),
        uid: intern_non_empty(reference.uid.as_deref(), shared),
        field_path: intern_non_empty(reference.field_path.as_deref(), shared),
    }
}

/// Decodes the ports of Endpoints or of an EndpointSlice, and sorts them.
fn decode_ports(ports: Option<Vec<core_v1::EndpointPort<'_>>>, shared: &mut Interner) -> Vec<EndpointPort> {
    let ports = ports.into_iter().flatten().map(|it| EndpointPort {
        name: shared.intern_text(it.name.as_deref().unwrap_or_default()),
        port: it.port.map(i64::from),
        protocol: shared.intern_text(it.protocol.as_deref().unwrap_or("TCP")),
        app_protocol: it.app_protocol.map(|it| shared.intern_text(&it)),
    });
    let mut ports: Vec<EndpointPort> = ports.collect();
    ports.sort();
    ports
}

/// Decodes the addresses of a subset.
fn decode_addresses(addresses: Option<Vec<EndpointAddress<'_>>>, shared: &mut Interner) -> Vec<Address> {
    let addresses = addresses.into_iter().flatten().map(|it| Address {
        ip: it.ip.as_deref().unwrap_or_default().into(),
        hostname: intern_non_empty(it.hostname.as_deref(), shared),
        node: intern_non_empty(it.node_name.as_deref(), shared),
        target: it.target_ref.map(|it| decode_target_ref(it, shared)),
    });
    addresses.collect()
}

/// Extracts the fields of Endpoints that the endpoints controllers read.
fn endpoints_fact(endpoints: core_v1::Endpoints<'_>, shared: &mut Interner) -> Endpoints {
    let meta = endpoints.metadata;
    let subsets = endpoints.subsets.into_iter().flatten().map(|it| Subset {
        ready: decode_addresses(it.addresses, shared),
        unready: decode_addresses(it.not_ready_addresses, shared),
        ports: decode_ports(it.ports, shared),
    });
    let subsets = subsets.collect();
    Endpoints {
        key: meta.key(shared),
        uid: meta.uid(),
        resource_version: meta.resource_version(),
        deleting: meta.is_deleting(),
        labels: meta.labels(shared),
        annotations: annotations_without_last_applied(&meta, shared),
        subsets,
    }
}

/// Decodes an endpoint of an EndpointSlice.
fn decode_endpoint(endpoint: discovery_v1::Endpoint<'_>, shared: &mut Interner) -> Endpoint {
    let mut addresses: Vec<Text> = endpoint.addresses.iter().flatten().map(|it| Text::from(&**it)).collect();
    addresses.sort();
    let mut names = |hints: Option<Vec<TopologyHint<'_>>>| -> Vec<Text> {
        let hints = hints.iter().flatten();
        hints.map(|it| shared.intern_text(it.name.as_deref().unwrap_or_default())).collect()
    };
    let hints = endpoint.hints.unwrap_or_default();
    let hints = EndpointHints { zones: names(hints.for_zones), nodes: names(hints.for_nodes) };
    Endpoint {
        addresses,
        hostname: intern_non_empty(endpoint.hostname.as_deref(), shared),
        node: intern_non_empty(endpoint.node_name.as_deref(), shared),
        zone: intern_non_empty(endpoint.zone.as_deref(), shared),
        condition: endpoint.conditions.unwrap_or_default(),
        target: endpoint.target_ref.map(|it| decode_target_ref(it, shared)),
        hints,
    }
}

/// Extracts the fields of an EndpointSlice that the endpoints controllers read.
fn slice_fact(slice: EndpointSlice<'_>, shared: &mut Interner) -> Slice {
    let meta = slice.metadata;
    let owners = meta.owner_references.iter().flatten().map(|it| SliceOwner {
        kind: shared.intern_text(it.kind.as_deref().unwrap_or_default()),
        name: shared.intern_text(it.name.as_deref().unwrap_or_default()),
        uid: shared.intern_text(it.uid.as_deref().unwrap_or_default()),
    });
    let owners = owners.collect();
    let endpoints = slice.endpoints.into_iter().flatten().map(|it| decode_endpoint(it, shared)).collect();
    Slice {
        key: meta.key(shared),
        uid: meta.uid(),
        resource_version: meta.resource_version(),
        deleting: meta.is_deleting(),
        labels: meta.labels(shared),
        annotations: annotations_without_last_applied(&meta, shared),
        owners,
        family: match slice.address_type.as_deref() {
            Some("IPv6") => Some(IpFamily::V6),
            Some("IPv4") => Some(IpFamily::V4),
            _ => None,
        },
        ports: decode_ports(slice.ports, shared),
        endpoints,
    }
}
