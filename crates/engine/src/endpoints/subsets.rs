//! The Endpoints of a Service that selects pods: the older kind, which holds all addresses in one object.

use alloc::collections::BTreeMap;
use alloc::string::ToString as _;
use alloc::sync::Arc;
use alloc::vec::Vec;

use muster_api::labels::Labels;
use muster_api::text::Text;
use muster_api::time::Time;

use super::call::{Change, EndpointsDraft};
use super::facts::{Address, Endpoints, Family, Pod, Port, Referent, Service, Subset};
use super::{HEADLESS, OVER_CAPACITY, TRIGGER_TIME};

/// Who keeps them, and the label that says so.
const MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
const CONTROLLER: &str = "endpoint-controller";

/// More addresses than this are left out: the object would not fit. Upstream: `maxCapacity`.
const ADDRESSES_MAX: usize = 1000;

pub(super) fn change<'a>(
    service: &Service,
    pods: impl Iterator<Item = &'a Arc<Pod>>,
    endpoints: Option<&Arc<Endpoints>>,
    trigger: Option<Time>,
) -> Option<Change> {
    let mut subsets = packed(offers(service, pods));
    let truncated = truncate(&mut subsets);
    if let Some(before) = endpoints {
        let says_truncated = before.annotations.contains_key(OVER_CAPACITY);
        let is_same = packed(all(&before.subsets)) == subsets
            && says_truncated == truncated
            && before.labels.get(MANAGED_BY).is_some_and(|it| **it == *CONTROLLER)
            && own_labels(&before.labels).eq(own_labels(&service.labels));
        if is_same {
            return None;
        }
    }
    let mut labels: BTreeMap<Text, Text> = own_labels(&service.labels).collect();
    if service.address.is_none() {
        labels.insert(HEADLESS.into(), "".into());
    }
    labels.insert(MANAGED_BY.into(), CONTROLLER.into());
    let time = trigger.map(|it| it.to_rfc3339().as_str().into());
    let annotations =
        [(TRIGGER_TIME.into(), time), (OVER_CAPACITY.into(), truncated.then(|| "truncated".into()))];
    let draft = Arc::new(EndpointsDraft {
        key: service.key.clone(),
        labels,
        annotations: annotations.into(),
        subsets,
    });
    Some(match endpoints {
        Some(before) => Change::UpdateEndpoints(before.clone(), draft),
        None => Change::CreateEndpoints(draft),
    })
}

fn own_labels(labels: &Labels) -> impl Iterator<Item = (Text, Text)> + '_ {
    let own = labels.iter().filter(|(key, _)| ![HEADLESS, MANAGED_BY].contains(key));
    own.map(|(key, value)| (key.into(), value.into()))
}

/// An address with one of its ports, if it has any, and whether it is ready.
type Offer = (Address, Option<Port>, bool);

/// Rule: a pod has its address of the Service's first family, ready or not, in the Endpoints; not if it has ended, and while
/// it is being deleted only if the Service publishes what is not ready. Upstream: `syncService` of the endpoints controller.
fn offers<'a>(service: &Service, pods: impl Iterator<Item = &'a Arc<Pod>>) -> impl Iterator<Item = Offer> {
    let family = match (&service.families[..], service.address) {
        ([first, ..], _) => Some(*first),
        ([], address) => address.map(Family::of),
    };
    pods.filter(|it| !it.ended && (!it.deleting || service.publishes_unready)).flat_map(move |pod| {
        let is_of_family = |it: &&core::net::IpAddr| family.is_none_or(|family| Family::of(**it) == family);
        let address = pod.addresses.iter().find(is_of_family).map(|ip| Address {
            ip: ip.to_string().as_str().into(),
            hostname: pod.hostname_in(service),
            node: pod.node.clone(),
            target: Some(Referent::pod(pod)),
        });
        let ready = service.publishes_unready || pod.ready;
        let ports = service.ports.iter().filter_map(|it| {
            Some(Some(Port {
                name: it.name.clone(),
                port: Some(pod.port(it)?),
                protocol: it.protocol.clone(),
                app_protocol: it.app_protocol.clone(),
            }))
        });
        // A headless Service needs no ports.
        let none = (service.ports.is_empty() && service.is_headless).then_some(None);
        let offers = ports.chain(none).filter_map(|port| Some((address.clone()?, port, ready)));
        offers.collect::<Vec<Offer>>()
    })
}

pub(super) fn all(subsets: &[Subset]) -> impl Iterator<Item = Offer> + '_ {
    subsets.iter().flat_map(|subset| {
        let ready = subset.ready.iter().map(|it| (it, true));
        ready.chain(subset.unready.iter().map(|it| (it, false))).flat_map(|(address, ready)| {
            let ports = subset.ports.iter().cloned().map(Some);
            let none = subset.ports.is_empty().then_some(None);
            ports.chain(none).map(move |port| (address.clone(), port, ready))
        })
    })
}

/// Two pods may have one address, that of their node.
type Place = (Text, Option<Text>);

/// Addresses with the same ports come together, each subset in order. An address that is said to be both is not ready.
/// Upstream: `RepackSubsets`.
pub(super) fn packed(offers: impl Iterator<Item = Offer>) -> Vec<Subset> {
    let mut addresses: BTreeMap<Place, Address> = BTreeMap::new();
    let mut by_port: BTreeMap<Option<Port>, BTreeMap<Place, bool>> = BTreeMap::new();
    for (address, port, ready) in offers {
        let place = (address.ip.clone(), address.target.as_ref().and_then(|it| it.uid.clone()));
        *by_port.entry(port).or_default().entry(place.clone()).or_insert(true) &= ready;
        addresses.entry(place).or_insert(address);
    }
    let mut by_addresses: BTreeMap<BTreeMap<Place, bool>, Vec<Port>> = BTreeMap::new();
    for (port, places) in by_port {
        by_addresses.entry(places).or_default().extend(port);
    }
    let subsets = by_addresses.into_iter().map(|(places, ports)| {
        let of = |wanted: bool| -> Vec<Address> {
            let wanted = places.iter().filter(|(_, ready)| **ready == wanted);
            wanted.filter_map(|(place, _)| addresses.get(place).cloned()).collect()
        };
        Subset { ready: of(true), unready: of(false), ports }
    });
    let mut subsets: Vec<Subset> = subsets.collect();
    subsets.sort_by(|a, b| a.ports.cmp(&b.ports));
    subsets
}

/// Rule: of more than 1,000 addresses the ready ones stay, in each subset as many as its share. Says whether any was left
/// out. Upstream: `truncateEndpoints`.
fn truncate(subsets: &mut [Subset]) -> bool {
    let count = |of: fn(&Subset) -> usize| subsets.iter().map(of).sum::<usize>();
    let (ready, unready) = (count(|it| it.ready.len()), count(|it| it.unready.len()));
    if ready + unready <= ADDRESSES_MAX {
        return false;
    }
    let only_ready = ADDRESSES_MAX < ready;
    let (room, of) = if only_ready { (ADDRESSES_MAX, ready) } else { (ADDRESSES_MAX - ready, unready) };
    let mut left = room;
    for subset in subsets {
        if only_ready {
            subset.unready.clear();
        }
        let list = if only_ready { &mut subset.ready } else { &mut subset.unready };
        list.truncate((list.len() * room).div_ceil(of).min(left));
        left -= list.len();
    }
    true
}
