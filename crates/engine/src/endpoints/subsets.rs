//! Computes the Endpoints of a Service with a selector. Endpoints are the predecessor of EndpointSlices, with all
//! addresses in one object.

use alloc::collections::BTreeMap;
use alloc::string::ToString as _;
use alloc::sync::Arc;
use alloc::vec::Vec;

use muster_api::text::Text;
use muster_api::time::Time;

use super::call::{EndpointsDraft, EndpointsWrite};
use super::facts::{
    Address, EndpointPort, Endpoints, IpFamily, Pod, Service, Subset, TargetRef, labels_except,
};
use super::{HEADLESS_LABEL, OVER_CAPACITY_ANNOTATION, TRIGGER_TIME_ANNOTATION};

/// Label `endpoints.kubernetes.io/managed-by` of Endpoints. EndpointSlices have another label,
/// [`super::MANAGED_BY_LABEL`].
const MANAGED_BY_LABEL: &str = "endpoints.kubernetes.io/managed-by";
/// Value of the label [`MANAGED_BY_LABEL`] of the Endpoints that this module writes.
const MANAGED_BY_VALUE: &str = "endpoint-controller";

/// Maximum number of addresses in one Endpoints object. Further addresses are left out. Upstream: `maxCapacity`.
const ADDRESSES_MAX: usize = 1000;

/// Returns the write after which the Endpoints of a Service contain its pods. `None` if they are up to date. `trigger`
/// is the value of the annotation `last-change-trigger-time`.
pub(super) fn endpoints_write<'a>(
    service: &Service,
    pods: impl Iterator<Item = &'a Arc<Pod>>,
    endpoints: Option<&Arc<Endpoints>>,
    trigger: Option<Time>,
) -> Option<EndpointsWrite> {
    let mut subsets = repack_subsets(address_ports(service, pods));
    let truncated = truncate_addresses(&mut subsets);
    if let Some(before) = endpoints {
        let was_truncated = before.annotations.contains_key(OVER_CAPACITY_ANNOTATION);
        let is_same = repack_subsets(flatten_subsets(&before.subsets)) == subsets
            && was_truncated == truncated
            && before.labels.get(MANAGED_BY_LABEL).is_some_and(|it| **it == *MANAGED_BY_VALUE)
            && labels_except(&before.labels, OWN_LABELS).eq(labels_except(&service.labels, OWN_LABELS));
        if is_same {
            return None;
        }
    }
    let mut labels: BTreeMap<Text, Text> = labels_except(&service.labels, OWN_LABELS).collect();
    if service.address.is_none() {
        labels.insert(HEADLESS_LABEL.into(), "".into());
    }
    labels.insert(MANAGED_BY_LABEL.into(), MANAGED_BY_VALUE.into());
    let time = trigger.map(|it| it.to_rfc3339().as_str().into());
    let annotations = [
        (TRIGGER_TIME_ANNOTATION.into(), time),
        (OVER_CAPACITY_ANNOTATION.into(), truncated.then(|| "truncated".into())),
    ];
    let draft = Arc::new(EndpointsDraft {
        key: service.key.clone(),
        labels,
        annotations: annotations.into(),
        subsets,
    });
    Some(match endpoints {
        Some(before) => EndpointsWrite::UpdateEndpoints(before.clone(), draft),
        None => EndpointsWrite::CreateEndpoints(draft),
    })
}

/// The labels of Endpoints that the controller sets itself. The other labels are copied from the Service.
const OWN_LABELS: &[&str] = &[HEADLESS_LABEL, MANAGED_BY_LABEL];

/// An address, one of its ports, and whether the address is ready. The port is `None` if the address has no ports.
type AddressPort = (Address, Option<EndpointPort>, bool);

/// Returns each combination of a pod address and a port at which the pod serves a port of the Service.
///
/// Rule: the Endpoints contain the address of each pod in the Service's first IP family, as ready or not ready.
/// Terminal pods are left out. Pods that serve no port of the Service are left out, unless the Service is headless and
/// has no ports. Pods that are being deleted are left out, unless the Service has `publishNotReadyAddresses`. Upstream:
/// `syncService` of the endpoints controller.
fn address_ports<'a>(
    service: &Service,
    pods: impl Iterator<Item = &'a Arc<Pod>>,
) -> impl Iterator<Item = AddressPort> {
    let family = match (&service.families[..], service.address) {
        ([first, ..], _) => Some(*first),
        ([], address) => address.map(IpFamily::of_address),
    };
    pods.filter(|it| !it.ended && (!it.deleting || service.publishes_unready)).flat_map(move |pod| {
        let is_of_family =
            |it: &&core::net::IpAddr| family.is_none_or(|family| IpFamily::of_address(**it) == family);
        let address = pod.addresses.iter().find(is_of_family).map(|ip| Address {
            ip: ip.to_string().as_str().into(),
            hostname: pod.hostname_in(service),
            node: pod.node.clone(),
            target: Some(TargetRef::for_pod(pod)),
        });
        let ready = service.publishes_unready || pod.ready;
        let ports = service.ports.iter().filter_map(|it| {
            Some(Some(EndpointPort {
                name: it.name.clone(),
                port: Some(pod.target_port_number(it)?),
                protocol: it.protocol.clone(),
                app_protocol: it.app_protocol.clone(),
            }))
        });
        // A headless Service needs no ports.
        let none = (service.ports.is_empty() && service.is_headless).then_some(None);
        let address_ports = ports.chain(none).filter_map(|port| Some((address.clone()?, port, ready)));
        address_ports.collect::<Vec<AddressPort>>()
    })
}

/// Returns each combination of an address and a port in the subsets. [`repack_subsets`] does the inverse.
pub(super) fn flatten_subsets(subsets: &[Subset]) -> impl Iterator<Item = AddressPort> + '_ {
    subsets.iter().flat_map(|subset| {
        let ready = subset.ready.iter().map(|it| (it, true));
        ready.chain(subset.unready.iter().map(|it| (it, false))).flat_map(|(address, ready)| {
            let ports = subset.ports.iter().cloned().map(Some);
            let none = subset.ports.is_empty().then_some(None);
            ports.chain(none).map(move |port| (address.clone(), port, ready))
        })
    })
}

/// Identifies an address by IP and pod UID, because host-network pods have the IP address of their node.
type AddressKey = (Text, Option<Text>);

/// Groups addresses with the same ports into sorted subsets. An address that occurs with the same port both as ready and
/// as not ready counts as not ready for that port. Upstream: `RepackSubsets`.
pub(super) fn repack_subsets(address_ports: impl Iterator<Item = AddressPort>) -> Vec<Subset> {
    let mut addresses: BTreeMap<AddressKey, Address> = BTreeMap::new();
    let mut by_port: BTreeMap<Option<EndpointPort>, BTreeMap<AddressKey, bool>> = BTreeMap::new();
    for (address, port, ready) in address_ports {
        let key = (address.ip.clone(), address.target.as_ref().and_then(|it| it.uid.clone()));
        *by_port.entry(port).or_default().entry(key.clone()).or_insert(true) &= ready;
        addresses.entry(key).or_insert(address);
    }
    let mut by_addresses: BTreeMap<BTreeMap<AddressKey, bool>, Vec<EndpointPort>> = BTreeMap::new();
    for (port, keys) in by_port {
        by_addresses.entry(keys).or_default().extend(port);
    }
    let subsets = by_addresses.into_iter().map(|(keys, ports)| {
        let addresses_that_are = |wanted: bool| -> Vec<Address> {
            let wanted = keys.iter().filter(|(_, ready)| **ready == wanted);
            wanted.filter_map(|(key, _)| addresses.get(key).cloned()).collect()
        };
        Subset { ready: addresses_that_are(true), unready: addresses_that_are(false), ports }
    });
    let mut subsets: Vec<Subset> = subsets.collect();
    subsets.sort_by(|a, b| a.ports.cmp(&b.ports));
    subsets
}

/// Removes addresses until at most [`ADDRESSES_MAX`] are left. Returns whether any address was removed.
///
/// Rule: of more than 1,000 addresses, 1,000 are kept: first the ready addresses, then those that are not ready. If not
/// all ready addresses, or not all others, can be kept, each subset keeps a proportional number of them. Upstream:
/// `truncateEndpoints`.
fn truncate_addresses(subsets: &mut [Subset]) -> bool {
    let count = |of: fn(&Subset) -> usize| subsets.iter().map(of).sum::<usize>();
    let (ready, unready) = (count(|it| it.ready.len()), count(|it| it.unready.len()));
    if ready + unready <= ADDRESSES_MAX {
        return false;
    }
    let only_ready = ADDRESSES_MAX < ready;
    let (limit, of) = if only_ready { (ADDRESSES_MAX, ready) } else { (ADDRESSES_MAX - ready, unready) };
    let mut left = limit;
    for subset in subsets {
        if only_ready {
            subset.unready.clear();
        }
        let list = if only_ready { &mut subset.ready } else { &mut subset.unready };
        list.truncate((list.len() * limit).div_ceil(of).min(left));
        left -= list.len();
    }
    true
}
