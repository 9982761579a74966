//! The EndpointSlices of a Service that selects pods.

use alloc::collections::BTreeMap;
use alloc::string::ToString as _;
use alloc::sync::Arc;
use alloc::vec::Vec;

use muster_api::labels::Labels;
use muster_api::text::Text;
use muster_api::time::Time;

use super::call::{Change, Draft};
use super::facts::{
    Condition, Endpoint, Family, Hints, Identity, Owner, Pod, Port, Referent, Service, Slice, Traffic,
};
use super::{HEADLESS, MANAGED_BY, SERVICE_NAME, TRIGGER_TIME};

/// Who keeps these slices, in upstream's word.
pub(super) const CONTROLLER: &str = "endpointslice-controller.k8s.io";

/// So many endpoints are in one slice at most: a change of one of them is a write of all. Upstream:
/// `max-endpoints-per-slice`.
const ENDPOINTS_MAX: usize = 100;

/// Where a node stands; the outer `None` if there is no such node.
pub(super) type Zones = BTreeMap<Text, Option<Text>>;

/// What must be written so that the slices show these pods.
pub(super) fn changes<'a>(
    service: &Service,
    pods: impl Iterator<Item = &'a Arc<Pod>> + Clone,
    zones: &Zones,
    slices: &[&Arc<Slice>],
    trigger: Option<Time>,
) -> Vec<Change> {
    let families = service.families();
    let mut changes = Vec::new();
    for family in &families {
        let slices: Vec<&Arc<Slice>> =
            slices.iter().copied().filter(|it| it.family == Some(*family)).collect();
        let wanted = wanted(service, pods.clone(), zones, *family);
        let writer = Writer { service, family: *family, trigger };
        changes.extend(writer.changes(wanted, &slices));
    }
    let is_lost = |it: &&&Arc<Slice>| it.family.is_none_or(|it| !families.contains(&it));
    changes.extend(slices.iter().filter(is_lost).map(|it| Change::DeleteSlice((*it).clone())));
    changes
}

/// Endpoints that have the same ports, which is what one slice can hold.
type Group = BTreeMap<Identity, Endpoint>;

/// Rule: every pod that a Service selects is an endpoint of it while it has an address and has not ended, whatever its
/// state: that is in the endpoint's conditions. One whose node is not there is left out, unless the Service publishes what
/// is not ready. Upstream: `reconcileByAddressType`.
fn wanted<'a>(
    service: &Service,
    pods: impl Iterator<Item = &'a Arc<Pod>>,
    zones: &Zones,
    family: Family,
) -> BTreeMap<Vec<Port>, Group> {
    let mut groups: BTreeMap<Vec<Port>, Group> = BTreeMap::new();
    for pod in pods.filter(|it| !it.ended && !it.addresses.is_empty()) {
        let group = groups.entry(ports(service, pod)).or_default();
        let zone = pod.node.as_ref().and_then(|it| zones.get(it));
        if zone.is_none() && !service.publishes_unready {
            continue;
        }
        let endpoint = endpoint(service, pod, zone.cloned().flatten(), family);
        if !endpoint.addresses.is_empty() {
            group.insert(endpoint.identity(), endpoint);
        }
    }
    groups
}

fn ports(service: &Service, pod: &Pod) -> Vec<Port> {
    let found = service.ports.iter().filter_map(|it| {
        Some(Port {
            name: it.name.clone(),
            port: Some(pod.port(it)?),
            protocol: it.protocol.clone(),
            app_protocol: it.app_protocol.clone(),
        })
    });
    let mut ports: Vec<Port> = found.collect();
    ports.sort();
    ports
}

/// Rule: an endpoint is ready if its pod is and is not being deleted, or if the Service publishes what is not ready; it
/// serves while its pod is ready, even if that is being deleted. Upstream: `podToEndpoint`.
fn endpoint(service: &Service, pod: &Pod, zone: Option<Text>, family: Family) -> Endpoint {
    let of_family = pod.addresses.iter().filter(|it| Family::of(**it) == family);
    let mut addresses: Vec<Text> = of_family.map(|it| it.to_string().as_str().into()).collect();
    addresses.sort();
    let ready = service.publishes_unready || (pod.ready && !pod.deleting);
    let condition =
        Condition { ready: Some(ready), serving: Some(pod.ready), terminating: Some(pod.deleting) };
    // Who is not ready is meant for nobody.
    let of = |it: &Option<Text>, is_meant: bool| it.iter().filter(|_| ready && is_meant).cloned().collect();
    let hints = Hints {
        zones: of(&zone, service.traffic != Traffic::Anywhere),
        nodes: of(&pod.node, service.traffic == Traffic::SameNode),
    };
    Endpoint {
        addresses,
        hostname: pod.hostname_in(service),
        node: pod.node.clone(),
        zone,
        condition,
        target: Some(Referent::pod(pod)),
        hints,
    }
}

/// What becomes of a slice that is there.
struct Place<'a> {
    slice: &'a Arc<Slice>,
    endpoints: Vec<Endpoint>,
    changed: bool,
}

struct Writer<'a> {
    service: &'a Service,
    family: Family,
    trigger: Option<Time>,
}

impl Writer<'_> {
    fn changes(&self, wanted: BTreeMap<Vec<Port>, Group>, slices: &[&Arc<Slice>]) -> Vec<Change> {
        let is_own = |it: &&&Arc<Slice>| it.is_of("Service", &self.service.uid);
        let mut by_ports: BTreeMap<&Vec<Port>, Vec<&Arc<Slice>>> = BTreeMap::new();
        for slice in slices.iter().filter(is_own) {
            by_ports.entry(&slice.ports).or_default().push(slice);
        }
        let (mut fresh, mut changed, mut spare) = (Vec::new(), Vec::new(), Vec::new());
        for (ports, group) in wanted {
            let slices = by_ports.remove(&ports).unwrap_or_default();
            let (new, kept) = self.fill(group, slices);
            fresh.extend(new.into_iter().map(|endpoints| (ports.clone(), endpoints)));
            for place in kept {
                let is_emptied = place.endpoints.is_empty() && !place.slice.endpoints.is_empty();
                match place.changed {
                    true if is_emptied => spare.push(place.slice),
                    true => changed.push(place),
                    false => {}
                }
            }
        }
        // Nobody has these ports any more.
        spare.extend(by_ports.into_values().flatten());
        let strange = slices.iter().copied().filter(|it| !is_own(&it));
        let gone = spare.len() + strange.clone().count();
        if gone == slices.len() && fresh.is_empty() {
            // There is always one slice, so that clients can tell a Service without pods from one that is not looked after.
            let stands = |it: &&Arc<Slice>| {
                it.ports.is_empty() && it.endpoints.is_empty() && !relabels(self.service, it)
            };
            match &spare[..] {
                [only] if gone == 1 && stands(only) => spare.clear(),
                _ => fresh.push((Vec::new(), Vec::new())),
            }
        }
        let mut changes = Vec::new();
        // What would be deleted is used for what would be created.
        for (ports, endpoints) in fresh {
            let draft = Arc::new(self.draft(ports, endpoints));
            changes.push(match spare.pop() {
                Some(slice) => Change::UpdateSlice(slice.clone(), draft),
                None if self.service.deleting => continue,
                None => Change::CreateSlice(draft),
            });
        }
        changes.extend(changed.into_iter().map(|it| {
            let draft = self.draft(it.slice.ports.clone(), it.endpoints);
            Change::UpdateSlice(it.slice.clone(), Arc::new(draft))
        }));
        let spare = spare.into_iter().chain(strange);
        changes.extend(spare.map(|it| Change::DeleteSlice(it.clone())));
        changes
    }

    /// Rule: an endpoint stays in its slice. New ones go where something is written anyway, the fullest slice first; then
    /// into the one slice that they fill best; then into new ones. Upstream: `reconcileByPortMapping`.
    fn fill<'a>(
        &self,
        mut group: Group,
        slices: Vec<&'a Arc<Slice>>,
    ) -> (Vec<Vec<Endpoint>>, Vec<Place<'a>>) {
        let mut places = Vec::new();
        for slice in slices {
            let mut changed = relabels(self.service, slice);
            let mut endpoints = Vec::with_capacity(slice.endpoints.len());
            for before in &slice.endpoints {
                let Some(now) = group.remove(&before.identity()) else {
                    changed = true;
                    continue;
                };
                changed |= now != *before;
                endpoints.push(now);
            }
            places.push(Place { slice, endpoints, changed });
        }
        let mut rest = group.into_values();
        places.sort_by(|a, b| b.endpoints.len().cmp(&a.endpoints.len()).then(a.slice.key.cmp(&b.slice.key)));
        for place in places.iter_mut().filter(|it| it.changed && !it.endpoints.is_empty()) {
            let room = ENDPOINTS_MAX.saturating_sub(place.endpoints.len());
            place.endpoints.extend(rest.by_ref().take(room));
        }
        let mut fresh = Vec::new();
        let mut rest: Vec<Endpoint> = rest.collect();
        while !rest.is_empty() {
            let count = rest.len();
            let fits = |it: &&mut Place<'_>| !it.changed && it.endpoints.len() + count <= ENDPOINTS_MAX;
            match places.iter_mut().find(fits).filter(|_| count < ENDPOINTS_MAX) {
                Some(place) => {
                    place.endpoints.append(&mut rest);
                    place.changed = true;
                }
                None => fresh.push(rest.drain(..count.min(ENDPOINTS_MAX)).collect()),
            }
        }
        (fresh, places)
    }

    fn draft(&self, ports: Vec<Port>, endpoints: Vec<Endpoint>) -> Draft {
        let service = self.service;
        let mut labels: BTreeMap<Text, Text> = own_labels(&service.labels).collect();
        if service.address.is_none() {
            labels.insert(HEADLESS.into(), "".into());
        }
        labels.insert(SERVICE_NAME.into(), service.key.name.clone());
        labels.insert(MANAGED_BY.into(), CONTROLLER.into());
        let time = self.trigger.map(|it| it.to_rfc3339().as_str().into());
        Draft {
            owner: Owner { kind: "Service".into(), name: service.key.name.clone(), uid: service.uid.clone() },
            labels,
            annotations: [(TRIGGER_TIME.into(), time)].into(),
            family: self.family,
            ports,
            endpoints,
        }
    }
}

/// Whether the labels of the Service are not those of the slice, but for those that say what the slice is.
fn relabels(service: &Service, slice: &Slice) -> bool {
    !own_labels(&service.labels).eq(own_labels(&slice.labels))
}

fn own_labels(labels: &Labels) -> impl Iterator<Item = (Text, Text)> + '_ {
    let own = labels.iter().filter(|(key, _)| ![HEADLESS, SERVICE_NAME, MANAGED_BY].contains(key));
    own.map(|(key, value)| (key.into(), value.into()))
}
