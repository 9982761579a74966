//! Facts: the fields of Services, pods, nodes, Endpoints and EndpointSlices that the endpoints controllers read.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;

use muster_api::discovery_v1::EndpointConditions;
use muster_api::labels::{Labels, Selector};
use muster_api::object_key::ObjectKey;
use muster_api::text::Text;
use muster_api::time::Time;

use crate::controller::{self, ObjectReference};

/// A decoded object of one of the kinds that the endpoints controllers watch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EndpointsObject {
    Service(Arc<Service>),
    Pod(Arc<Pod>),
    Node(Node),
    Endpoints(Arc<Endpoints>),
    Slice(Arc<Slice>),
}

impl controller::DecodedObject for EndpointsObject {
    fn key(&self) -> ObjectKey {
        match self {
            Self::Service(it) => it.key.clone(),
            Self::Pod(it) => it.key.clone(),
            Self::Node(it) => ObjectKey { namespace: Text::from(""), name: it.name.clone() },
            Self::Endpoints(it) => it.key.clone(),
            Self::Slice(it) => it.key.clone(),
        }
    }

    fn resource_version(&self) -> u64 {
        match self {
            Self::Service(it) => it.resource_version,
            Self::Pod(it) => it.resource_version,
            Self::Node(it) => it.resource_version,
            Self::Endpoints(it) => it.resource_version,
            Self::Slice(it) => it.resource_version,
        }
    }
}

/// The fields of a Service that its endpoints depend on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Service {
    pub key: ObjectKey,
    pub uid: Text,
    pub resource_version: u64,
    /// The `creationTimestamp` of the Service.
    pub created: Time,
    pub deleting: bool,
    pub labels: Labels,
    /// Whether the Service has the type `ExternalName`.
    pub is_external: bool,
    /// Whether the Service has `clusterIP: None`.
    pub is_headless: bool,
    /// The `clusterIP`. `None` for a headless Service, for an `ExternalName` Service, and before an address is
    /// allocated.
    pub address: Option<IpAddr>,
    /// The `ipFamilies`, the primary one first. May be empty: then
    /// [`Self::families_or_default`] returns a default.
    pub families: Vec<IpFamily>,
    /// The Service's selector. `None` if the Service has no selector: then users or other controllers write its
    /// endpoints.
    pub selector: Option<Selector>,
    pub ports: Vec<ServicePort>,
    /// Whether pods that are not ready count as ready endpoints (`publishNotReadyAddresses`).
    pub publishes_unready: bool,
    /// The `trafficDistribution`: which endpoints clients prefer.
    pub traffic: TrafficDistribution,
}

/// An IP family: IPv4 or IPv6.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum IpFamily {
    V4,
    V6,
}

impl IpFamily {
    /// Returns the IP family of an address.
    pub(super) fn of_address(address: IpAddr) -> Self {
        if address.is_ipv6() { Self::V6 } else { Self::V4 }
    }

    /// Returns the name of the family in the API, such as `IPv4`.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }
}

/// A port of a Service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServicePort {
    pub name: Text,
    pub protocol: Text,
    pub app_protocol: Option<Text>,
    /// The `targetPort`: the port of the pods. If it is absent, the `port` of the Service.
    pub target: TargetPort,
}

/// The `targetPort` of a Service: number or name of a port of its pods.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TargetPort {
    Number(i64),
    Name(Text),
}

/// The `trafficDistribution` of a Service: which endpoints its clients prefer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TrafficDistribution {
    /// Clients have no preference, or the Service has topology-aware hints, which take precedence.
    Anywhere,
    /// Clients prefer endpoints in their zone (`PreferSameZone`, `PreferClose`).
    SameZone,
    /// Clients prefer endpoints on their node (`PreferSameNode`).
    SameNode,
}

impl Service {
    /// Whether the Service's selector matches the pod's labels. False if the Service has no selector. The caller must
    /// pass a pod in the same namespace.
    pub(super) fn selects(&self, pod: &Pod) -> bool {
        self.selector.as_ref().is_some_and(|it| it.matches(&pod.labels))
    }

    /// Returns the IP families of the Service, the primary one first. If the field `families` is empty, returns the
    /// family of the cluster IP or, without a cluster IP, both families.
    pub(super) fn families_or_default(&self) -> Vec<IpFamily> {
        match (&self.families[..], self.address) {
            ([], Some(address)) => [IpFamily::of_address(address)].into(),
            ([], None) => [IpFamily::V4, IpFamily::V6].into(),
            (families, _) => families.into(),
        }
    }

    /// Returns a reference to the Service, for events about it.
    pub(super) fn object_reference(&self) -> ObjectReference {
        ObjectReference::new("v1", "Service", self.key.clone(), self.uid.clone(), self.resource_version)
    }
}

/// The fields of a pod that the endpoints controllers read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pod {
    pub key: ObjectKey,
    pub uid: Text,
    pub resource_version: u64,
    pub labels: Labels,
    /// Name of the pod's node. `None` until the pod is bound.
    pub node: Option<Text>,
    pub hostname: Option<Text>,
    /// The `spec.subdomain`: name of the headless Service in whose DNS domain the pod has a hostname. `None` if it is
    /// absent.
    pub subdomain: Option<Text>,
    /// The `podIPs`: all IP addresses of the pod.
    pub addresses: Vec<IpAddr>,
    /// Name, protocol and number of each named port of the pod's long-running containers.
    pub named_ports: Arc<[(Text, Text, i64)]>,
    /// Whether the pod's condition `Ready` is True.
    pub ready: bool,
    /// Transition time of the pod's condition `Ready`. `None` if the pod has no such condition, or if the time is
    /// missing.
    pub ready_changed_at: Option<Time>,
    /// Whether the pod has ended: its phase is Succeeded or Failed.
    pub ended: bool,
    pub deleting: bool,
}

impl Pod {
    /// Whether two versions of a pod have the same endpoints: all fields are equal, except `resource_version` and
    /// `ready_changed_at`.
    pub(super) fn is_equivalent(&self, other: &Self) -> bool {
        self.uid == other.uid
            && self.labels == other.labels
            && self.node == other.node
            && self.hostname == other.hostname
            && self.subdomain == other.subdomain
            && self.addresses == other.addresses
            && self.named_ports == other.named_ports
            && self.ready == other.ready
            && self.ended == other.ended
            && self.deleting == other.deleting
    }

    /// Returns the port number at which this pod serves a Service port. A numeric `targetPort` is that number. A named
    /// `targetPort` is looked up among the named container ports with the same protocol. `None` if the pod has no port
    /// with that name. Upstream: `FindPort`.
    pub(super) fn target_port_number(&self, port: &ServicePort) -> Option<i64> {
        match &port.target {
            TargetPort::Number(number) => Some(*number),
            TargetPort::Name(name) => {
                let mut named = self.named_ports.iter();
                named.find(|(it, protocol, _)| it == name && *protocol == port.protocol).map(|(_, _, it)| *it)
            }
        }
    }

    /// Returns the pod's hostname in the DNS domain of the Service. `None` if the pod has no hostname, or if its
    /// subdomain is not the name of the Service.
    pub(super) fn hostname_in(&self, service: &Service) -> Option<Text> {
        self.hostname.clone().filter(|_| self.subdomain.as_ref() == Some(&service.key.name))
    }
}

/// A node and its zone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    pub name: Text,
    pub resource_version: u64,
    /// Value of the label `topology.kubernetes.io/zone`. `None` if the node does not have the label.
    pub zone: Option<Text>,
}

/// An Endpoints object: all addresses of a Service in one object. It is the predecessor of EndpointSlices.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Endpoints {
    pub key: ObjectKey,
    pub uid: Text,
    pub resource_version: u64,
    pub deleting: bool,
    pub labels: Labels,
    pub annotations: BTreeMap<Text, Text>,
    /// The addresses of the Service, grouped by their ports.
    pub subsets: Vec<Subset>,
}

/// Addresses that have the same ports. Upstream: `v1.EndpointSubset`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Subset {
    /// Addresses that are ready (`addresses`).
    pub ready: Vec<Address>,
    /// Addresses that are not ready (`notReadyAddresses`).
    pub unready: Vec<Address>,
    pub ports: Vec<EndpointPort>,
}

/// An address of an Endpoints object. Upstream: `v1.EndpointAddress`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Address {
    pub ip: Text,
    pub hostname: Option<Text>,
    pub node: Option<Text>,
    /// The `targetRef`: the object that has the address, usually a pod. `None` if it is absent.
    pub target: Option<TargetRef>,
}

/// A port of an Endpoints object or of an EndpointSlice. An unnamed port has an empty name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct EndpointPort {
    pub name: Text,
    pub port: Option<i64>,
    pub protocol: Text,
    pub app_protocol: Option<Text>,
}

/// The `targetRef` of an endpoint: the object that has the address, usually a pod. Its `resourceVersion` is ignored,
/// because otherwise every change of a pod would change its endpoint.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct TargetRef {
    pub api_version: Option<Text>,
    pub kind: Option<Text>,
    pub namespace: Option<Text>,
    pub name: Option<Text>,
    pub uid: Option<Text>,
    pub field_path: Option<Text>,
}

impl TargetRef {
    /// Returns the `targetRef` of a pod.
    pub(super) fn for_pod(pod: &Pod) -> Self {
        Self {
            kind: Some("Pod".into()),
            namespace: Some(pod.key.namespace.clone()),
            name: Some(pod.key.name.clone()),
            uid: Some(pod.uid.clone()),
            ..Self::default()
        }
    }
}

/// The fields of an EndpointSlice that the endpoints controllers read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Slice {
    pub key: ObjectKey,
    pub uid: Text,
    pub resource_version: u64,
    pub deleting: bool,
    pub labels: Labels,
    pub annotations: BTreeMap<Text, Text>,
    pub owners: Vec<SliceOwner>,
    /// IP family of the slice's addresses. `None` for any address type other than `IPv4` and `IPv6`.
    pub family: Option<IpFamily>,
    pub ports: Vec<EndpointPort>,
    pub endpoints: Vec<Endpoint>,
}

/// An owner reference of an EndpointSlice.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SliceOwner {
    pub kind: Text,
    pub name: Text,
    pub uid: Text,
}

impl Slice {
    /// Whether the slice has an owner reference with this kind and UID.
    pub(super) fn is_owned_by(&self, kind: &str, uid: &Text) -> bool {
        self.owners.iter().any(|it| *it.kind == *kind && it.uid == *uid)
    }

    /// Returns the value of a label. The value is empty if the slice does not have the label.
    pub(super) fn label(&self, key: &str) -> &str {
        self.labels.get(key).map_or("", |it| it)
    }
}

/// An endpoint of an EndpointSlice.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Endpoint {
    /// IP addresses of the endpoint, sorted.
    pub addresses: Vec<Text>,
    pub hostname: Option<Text>,
    pub node: Option<Text>,
    /// Zone of the endpoint's node. `None` if the zone is not known.
    pub zone: Option<Text>,
    /// The conditions of the endpoint: whether it is `ready`, `serving` and `terminating`.
    pub condition: EndpointConditions,
    /// The `targetRef`: the object that has the addresses, usually a pod. `None` if it is absent.
    pub target: Option<TargetRef>,
    /// Zones and nodes whose clients should use the endpoint.
    pub hints: EndpointHints,
}

/// The fields that identify an endpoint while its conditions change: its addresses, its hostname, and the namespace and
/// name of its `targetRef`.
pub(super) type EndpointIdentity = (Vec<Text>, Option<Text>, Option<Text>, Option<Text>);

impl Endpoint {
    /// Returns the fields that identify the endpoint within its Service.
    pub(super) fn endpoint_identity(&self) -> EndpointIdentity {
        let target = self.target.as_ref();
        let (namespace, name) =
            (target.and_then(|it| it.namespace.clone()), target.and_then(|it| it.name.clone()));
        (self.addresses.clone(), self.hostname.clone(), namespace, name)
    }
}

/// Zones and nodes whose clients should use an endpoint. Upstream: `discovery/v1.EndpointHints`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EndpointHints {
    pub zones: Vec<Text>,
    pub nodes: Vec<Text>,
}

/// Returns the labels whose keys are not in `keys`.
pub(super) fn labels_except<'a>(
    labels: &'a Labels,
    keys: &'a [&str],
) -> impl Iterator<Item = (Text, Text)> + 'a {
    labels.iter().filter(|(key, _)| !keys.contains(key)).map(|(key, value)| (key.into(), value.into()))
}
