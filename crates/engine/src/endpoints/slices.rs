//! Computes the EndpointSlices of a Service with a selector. Upstream: `endpointslice.Reconciler`.

use alloc::collections::BTreeMap;
use alloc::string::ToString as _;
use alloc::sync::Arc;
use alloc::vec::Vec;

use muster_api::discovery_v1::EndpointConditions;
use muster_api::text::Text;
use muster_api::time::Time;

use super::call::{EndpointsWrite, SliceDraft};
use super::facts::{
    Endpoint, EndpointHints, EndpointIdentity, EndpointPort, IpFamily, Pod, Service, Slice, SliceOwner,
    TargetRef, TrafficDistribution, labels_except,
};
use super::{HEADLESS_LABEL, MANAGED_BY_LABEL, SERVICE_NAME_LABEL, TRIGGER_TIME_ANNOTATION};

/// Value of the label `endpointslice.kubernetes.io/managed-by` of the EndpointSlices that this module writes.
pub(super) const MANAGED_BY_VALUE: &str = "endpointslice-controller.k8s.io";

/// The labels of an EndpointSlice that the controller sets itself. The other labels are copied from the Service.
const OWN_LABELS: &[&str] = &[HEADLESS_LABEL, SERVICE_NAME_LABEL, MANAGED_BY_LABEL];

/// Maximum number of endpoints per EndpointSlice. It limits the size of a write, because a change of one endpoint
/// writes the whole slice. Upstream: `max-endpoints-per-slice`.
const ENDPOINTS_PER_SLICE_MAX: usize = 100;

/// The zone of each existing node, by node name. `None` for a node without a zone.
pub(super) type NodeZones = BTreeMap<Text, Option<Text>>;

/// Returns the writes after which a Service's EndpointSlices contain exactly its endpoints. `slices` are the existing
/// slices. `zones` are the zones of all nodes. `trigger` is the value of the annotation `last-change-trigger-time`.
pub(super) fn slice_writes<'a>(
    service: &Service,
    pods: impl Iterator<Item = &'a Arc<Pod>> + Clone,
    zones: &NodeZones,
    slices: &[&Arc<Slice>],
    trigger: Option<Time>,
) -> Vec<EndpointsWrite> {
    let families = service.families_or_default();
    let mut writes = Vec::new();
    for family in &families {
        let slices: Vec<&Arc<Slice>> =
            slices.iter().copied().filter(|it| it.family == Some(*family)).collect();
        let desired = desired_endpoints(service, pods.clone(), zones, *family);
        let writer = SliceReconciler { service, family: *family, trigger };
        writes.extend(writer.slice_writes(desired, &slices));
    }
    let has_other_family = |it: &&&Arc<Slice>| it.family.is_none_or(|it| !families.contains(&it));
    writes
        .extend(slices.iter().filter(has_other_family).map(|it| EndpointsWrite::DeleteSlice((*it).clone())));
    writes
}

/// The endpoints of a Service that have the same ports, by their identity. Only endpoints of one group can share an
/// EndpointSlice.
type EndpointGroup = BTreeMap<EndpointIdentity, Endpoint>;

/// Returns the endpoints that a Service should have in one IP family, grouped by their ports.
///
/// Rule: every pod that a Service selects is an endpoint while the pod has an address and is not terminal. The
/// conditions of the endpoint show the readiness of the pod. A pod whose node does not exist is left out, unless the
/// Service has `publishNotReadyAddresses`. Upstream: `reconcileByAddressType`.
fn desired_endpoints<'a>(
    service: &Service,
    pods: impl Iterator<Item = &'a Arc<Pod>>,
    zones: &NodeZones,
    family: IpFamily,
) -> BTreeMap<Vec<EndpointPort>, EndpointGroup> {
    let mut groups: BTreeMap<Vec<EndpointPort>, EndpointGroup> = BTreeMap::new();
    for pod in pods.filter(|it| !it.ended && !it.addresses.is_empty()) {
        let group = groups.entry(endpoint_ports(service, pod)).or_default();
        let zone = pod.node.as_ref().and_then(|it| zones.get(it));
        if zone.is_none() && !service.publishes_unready {
            continue;
        }
        let endpoint = pod_endpoint(service, pod, zone.cloned().flatten(), family);
        if !endpoint.addresses.is_empty() {
            group.insert(endpoint.endpoint_identity(), endpoint);
        }
    }
    groups
}

/// Returns the ports at which a pod serves the ports of a Service, sorted.
fn endpoint_ports(service: &Service, pod: &Pod) -> Vec<EndpointPort> {
    let found = service.ports.iter().filter_map(|it| {
        Some(EndpointPort {
            name: it.name.clone(),
            port: Some(pod.target_port_number(it)?),
            protocol: it.protocol.clone(),
            app_protocol: it.app_protocol.clone(),
        })
    });
    let mut ports: Vec<EndpointPort> = found.collect();
    ports.sort();
    ports
}

/// Returns the endpoint of a pod. `zone` is the zone of the pod's node.
///
/// Rule: an endpoint is `ready` if its pod is ready and not being deleted, or if the Service has
/// `publishNotReadyAddresses`. An endpoint is `serving` while its pod is ready, even if the pod is being deleted.
/// Upstream: `podToEndpoint`.
fn pod_endpoint(service: &Service, pod: &Pod, zone: Option<Text>, family: IpFamily) -> Endpoint {
    let of_family = pod.addresses.iter().filter(|it| IpFamily::of_address(**it) == family);
    let mut addresses: Vec<Text> = of_family.map(|it| it.to_string().as_str().into()).collect();
    addresses.sort();
    let ready = service.publishes_unready || (pod.ready && !pod.deleting);
    let condition =
        EndpointConditions { ready: Some(ready), serving: Some(pod.ready), terminating: Some(pod.deleting) };
    // An endpoint that is not ready has no hints.
    let of = |it: &Option<Text>, is_meant: bool| it.iter().filter(|_| ready && is_meant).cloned().collect();
    let hints = EndpointHints {
        zones: of(&zone, service.traffic != TrafficDistribution::Anywhere),
        nodes: of(&pod.node, service.traffic == TrafficDistribution::SameNode),
    };
    Endpoint {
        addresses,
        hostname: pod.hostname_in(service),
        node: pod.node.clone(),
        zone,
        condition,
        target: Some(TargetRef::for_pod(pod)),
        hints,
    }
}

/// An existing EndpointSlice, and its desired endpoints.
struct SlicePlan<'a> {
    slice: &'a Arc<Slice>,
    endpoints: Vec<Endpoint>,
    /// Whether the slice differs from its desired content, so that it must be written.
    changed: bool,
}

/// Computes the writes of the EndpointSlices of a Service, for one IP family.
struct SliceReconciler<'a> {
    service: &'a Service,
    family: IpFamily,
    /// Value of the annotation `last-change-trigger-time`. `None` if the annotation is not written.
    trigger: Option<Time>,
}

impl SliceReconciler<'_> {
    /// Returns the writes after which the EndpointSlices contain the desired endpoints. No slice is created for a
    /// Service that is being deleted. `slices` are the existing slices of the IP family.
    fn slice_writes(
        &self,
        desired: BTreeMap<Vec<EndpointPort>, EndpointGroup>,
        slices: &[&Arc<Slice>],
    ) -> Vec<EndpointsWrite> {
        let is_own = |it: &&&Arc<Slice>| it.is_owned_by("Service", &self.service.uid);
        let mut by_ports: BTreeMap<&Vec<EndpointPort>, Vec<&Arc<Slice>>> = BTreeMap::new();
        for slice in slices.iter().filter(is_own) {
            by_ports.entry(&slice.ports).or_default().push(slice);
        }
        let (mut created, mut changed, mut spare) = (Vec::new(), Vec::new(), Vec::new());
        for (ports, group) in desired {
            let slices = by_ports.remove(&ports).unwrap_or_default();
            let (new, kept) = self.fill_slices(group, slices);
            created.extend(new.into_iter().map(|endpoints| (ports.clone(), endpoints)));
            for plan in kept {
                let is_emptied = plan.endpoints.is_empty() && !plan.slice.endpoints.is_empty();
                match plan.changed {
                    true if is_emptied => spare.push(plan.slice),
                    true => changed.push(plan),
                    false => {}
                }
            }
        }
        // No pod has these ports any more.
        spare.extend(by_ports.into_values().flatten());
        let foreign = slices.iter().copied().filter(|it| !is_own(&it));
        let gone = spare.len() + foreign.clone().count();
        if gone == slices.len() && created.is_empty() {
            // A placeholder slice shows clients that the Service has no pods, rather than not being reconciled yet.
            let is_placeholder = |it: &&Arc<Slice>| {
                it.ports.is_empty() && it.endpoints.is_empty() && !labels_differ(self.service, it)
            };
            match &spare[..] {
                [only] if gone == 1 && is_placeholder(only) => spare.clear(),
                _ => created.push((Vec::new(), Vec::new())),
            }
        }
        let mut writes = Vec::new();
        // Slices that would be deleted are reused for those that would be created.
        for (ports, endpoints) in created {
            let draft = Arc::new(self.slice_draft(ports, endpoints));
            writes.push(match spare.pop() {
                Some(slice) => EndpointsWrite::UpdateSlice(slice.clone(), draft),
                None if self.service.deleting => continue,
                None => EndpointsWrite::CreateSlice(draft),
            });
        }
        writes.extend(changed.into_iter().map(|it| {
            let draft = self.slice_draft(it.slice.ports.clone(), it.endpoints);
            EndpointsWrite::UpdateSlice(it.slice.clone(), Arc::new(draft))
        }));
        let spare = spare.into_iter().chain(foreign);
        writes.extend(spare.map(|it| EndpointsWrite::DeleteSlice(it.clone())));
        writes
    }

    /// Distributes the endpoints of `group` over the existing slices with the same ports, and over new slices. Returns
    /// the endpoints of each new slice, and the existing slices with their desired endpoints.
    ///
    /// Rule: an endpoint stays in its slice. New endpoints are added to slices that are written anyway, the fullest
    /// first, except to slices that have lost all their endpoints. The remaining endpoints first fill whole new slices.
    /// Those left over are added to the fullest unchanged slice that has space for all of them, else to one more new
    /// slice. Upstream: `reconcileByPortMapping`.
    fn fill_slices<'a>(
        &self,
        mut group: EndpointGroup,
        slices: Vec<&'a Arc<Slice>>,
    ) -> (Vec<Vec<Endpoint>>, Vec<SlicePlan<'a>>) {
        let mut plans = Vec::new();
        for slice in slices {
            let mut changed = labels_differ(self.service, slice);
            let mut endpoints = Vec::with_capacity(slice.endpoints.len());
            for before in &slice.endpoints {
                let Some(now) = group.remove(&before.endpoint_identity()) else {
                    changed = true;
                    continue;
                };
                changed |= now != *before;
                endpoints.push(now);
            }
            plans.push(SlicePlan { slice, endpoints, changed });
        }
        let mut rest = group.into_values();
        plans.sort_by(|a, b| b.endpoints.len().cmp(&a.endpoints.len()).then(a.slice.key.cmp(&b.slice.key)));
        for plan in plans.iter_mut().filter(|it| it.changed && !it.endpoints.is_empty()) {
            let free = ENDPOINTS_PER_SLICE_MAX.saturating_sub(plan.endpoints.len());
            plan.endpoints.extend(rest.by_ref().take(free));
        }
        let mut created = Vec::new();
        let mut rest: Vec<Endpoint> = rest.collect();
        while !rest.is_empty() {
            let count = rest.len();
            let fits = |it: &&mut SlicePlan<'_>| {
                !it.changed && it.endpoints.len() + count <= ENDPOINTS_PER_SLICE_MAX
            };
            match plans.iter_mut().find(fits).filter(|_| count < ENDPOINTS_PER_SLICE_MAX) {
                Some(plan) => {
                    plan.endpoints.append(&mut rest);
                    plan.changed = true;
                }
                None => created.push(rest.drain(..count.min(ENDPOINTS_PER_SLICE_MAX)).collect()),
            }
        }
        (created, plans)
    }

    /// Returns the desired content of an EndpointSlice with these ports and endpoints.
    fn slice_draft(&self, ports: Vec<EndpointPort>, endpoints: Vec<Endpoint>) -> SliceDraft {
        let service = self.service;
        let mut labels: BTreeMap<Text, Text> = labels_except(&service.labels, OWN_LABELS).collect();
        if service.address.is_none() {
            labels.insert(HEADLESS_LABEL.into(), "".into());
        }
        labels.insert(SERVICE_NAME_LABEL.into(), service.key.name.clone());
        labels.insert(MANAGED_BY_LABEL.into(), MANAGED_BY_VALUE.into());
        let time = self.trigger.map(|it| it.to_rfc3339().as_str().into());
        SliceDraft {
            owner: SliceOwner {
                kind: "Service".into(),
                name: service.key.name.clone(),
                uid: service.uid.clone(),
            },
            labels,
            annotations: [(TRIGGER_TIME_ANNOTATION.into(), time)].into(),
            family: self.family,
            ports,
            endpoints,
        }
    }
}

/// Whether the labels that an EndpointSlice copied from its Service differ from the labels of the Service.
fn labels_differ(service: &Service, slice: &Slice) -> bool {
    !labels_except(&service.labels, OWN_LABELS).eq(labels_except(&slice.labels, OWN_LABELS))
}
