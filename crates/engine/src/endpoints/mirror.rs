//! Mirrors the Endpoints of Services without a selector into EndpointSlices, which most clients read. Upstream:
//! `endpointslicemirroring`.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::ToString as _;
use alloc::sync::Arc;
use alloc::vec::Vec;

use muster_api::discovery_v1::EndpointConditions;
use muster_api::text::Text;
use muster_api::well_known::LABEL_SKIP_MIRROR;

use super::call::{EndpointsWrite, SliceDraft};
use super::decode::parse_address;
use super::facts::{Address, Endpoint, EndpointHints, EndpointPort, Endpoints, IpFamily, Slice, SliceOwner};
use super::subsets::{flatten_subsets, repack_subsets};
use super::{MANAGED_BY_LABEL, SERVICE_NAME_LABEL, TRIGGER_TIME_ANNOTATION};
use crate::controller::{EventRecord, KubeEvent, ObjectReference};

/// Value of the label `endpointslice.kubernetes.io/managed-by` of the EndpointSlices that this module writes.
pub(super) const MANAGED_BY_VALUE: &str = "endpointslicemirroring-controller.k8s.io";

/// Maximum number of addresses per subset that are mirrored. Upstream: `mirroring-max-endpoints-per-subset`.
const ENDPOINTS_PER_SUBSET_MAX: usize = 1000;

/// Annotation of Endpoints that contains a leader election record. Old clients used Endpoints instead of a Lease.
const LEADER_ANNOTATION: &str = "control-plane.alpha.kubernetes.io/leader";

/// Whether the Endpoints of a Service without a selector are mirrored into EndpointSlices.
///
/// Rule: the Endpoints of a Service without a selector are mirrored, unless they have the label `skip-mirror` with the
/// value `true`, or the annotation of a leader election record. Upstream: `shouldMirror`.
pub(super) fn is_mirrored(endpoints: &Endpoints) -> bool {
    let skips = endpoints.labels.get(LABEL_SKIP_MIRROR).is_some_and(|it| **it == *"true");
    !skips && !is_leader_election_record(endpoints)
}

/// Whether the Endpoints have a leader election record, in the annotation [`LEADER_ANNOTATION`].
pub(super) fn is_leader_election_record(endpoints: &Endpoints) -> bool {
    endpoints.annotations.contains_key(LEADER_ANNOTATION)
}

/// Returns the writes after which the EndpointSlices mirror the Endpoints of a Service, and the events to record. There
/// is one slice for each IP family and list of ports. No slice is created for Endpoints that are being deleted.
pub(super) fn slice_writes(
    endpoints: &Endpoints,
    slices: &[&Arc<Slice>],
) -> (Vec<EndpointsWrite>, Vec<EventRecord>) {
    let (desired, events) = desired_slices(endpoints);
    let mut existing: BTreeMap<(IpFamily, Vec<EndpointPort>), Vec<&Arc<Slice>>> = BTreeMap::new();
    let (mut created, mut changed, mut spare) = (Vec::new(), Vec::new(), Vec::new());
    for slice in slices {
        match slice.family {
            Some(family) => existing.entry((family, slice.ports.clone())).or_default().push(slice),
            None => spare.push(*slice),
        }
    }
    for ((family, ports), group) in desired {
        let draft = slice_draft(endpoints, family, ports.clone(), group);
        let mut slices = existing.remove(&(family, ports)).unwrap_or_default().into_iter();
        match slices.next() {
            None => created.push(draft),
            Some(slice) if is_up_to_date(slice, &draft) => {}
            Some(slice) => changed.push(slice_update(slice, draft)),
        }
        spare.extend(slices);
    }
    spare.extend(existing.into_values().flatten());
    let mut writes = Vec::new();
    for draft in created {
        let same_family = spare.iter().position(|it| it.family == Some(draft.family));
        writes.push(match same_family {
            Some(index) => slice_update(spare.swap_remove(index), draft),
            None if endpoints.deleting => continue,
            None => EndpointsWrite::CreateSlice(Arc::new(draft)),
        });
    }
    writes.extend(changed);
    writes.extend(spare.into_iter().map(|it| EndpointsWrite::DeleteSlice(it.clone())));
    (writes, events)
}

/// The desired endpoints of each EndpointSlice. The slices are identified by IP family and list of ports.
type DesiredSlices = BTreeMap<(IpFamily, Vec<EndpointPort>), Vec<Endpoint>>;

/// Returns the desired endpoints of the slices that mirror the Endpoints, and the events about addresses that cannot be
/// mirrored.
fn desired_slices(endpoints: &Endpoints) -> (DesiredSlices, Vec<EventRecord>) {
    let mut desired = DesiredSlices::new();
    let (mut invalid, mut skipped) = (0, 0);
    for subset in repack_subsets(flatten_subsets(&endpoints.subsets)) {
        let mut added = 0;
        let ready = subset.ready.iter().map(|it| (it, true));
        for (it, ready) in ready.chain(subset.unready.iter().map(|it| (it, false))) {
            if ENDPOINTS_PER_SUBSET_MAX <= added {
                skipped += 1;
                continue;
            }
            match mirrored_endpoint(it, ready) {
                Some((family, endpoint)) => {
                    added += 1;
                    desired.entry((family, subset.ports.clone())).or_default().push(endpoint);
                }
                None => invalid += 1,
            }
        }
    }
    let mut events = Vec::new();
    let mut warn = |reason, message| {
        let Endpoints { key, uid, resource_version, .. } = endpoints;
        let about = ObjectReference::new("v1", "Endpoints", key.clone(), uid.clone(), *resource_version);
        events.push(EventRecord { about, event: KubeEvent::warning(reason, message) });
    };
    if 0 < invalid {
        warn(
            "InvalidIPAddress",
            format!("Skipped {invalid} invalid IP addresses when mirroring to EndpointSlices"),
        );
    }
    if 0 < skipped {
        warn(
            "TooManyAddressesToMirror",
            format!(
                "A max of {ENDPOINTS_PER_SUBSET_MAX} addresses can be mirrored to EndpointSlices per Endpoints subset. {skipped} addresses were skipped"
            ),
        );
    }
    (desired, events)
}

/// Returns the IP family of an address of Endpoints, and the endpoint that mirrors it. `None` if the address is
/// invalid.
fn mirrored_endpoint(it: &Address, ready: bool) -> Option<(IpFamily, Endpoint)> {
    let ip = parse_address(&it.ip)?;
    let endpoint = Endpoint {
        addresses: [ip.to_string().as_str().into()].into(),
        hostname: it.hostname.clone(),
        node: it.node.clone(),
        zone: None,
        condition: EndpointConditions { ready: Some(ready), ..EndpointConditions::default() },
        target: it.target.clone(),
        hints: EndpointHints::default(),
    };
    Some((IpFamily::of_address(ip), endpoint))
}

/// Returns the desired content of the EndpointSlice with the endpoints `group`, which mirror addresses of the
/// Endpoints.
fn slice_draft(
    endpoints: &Endpoints,
    family: IpFamily,
    ports: Vec<EndpointPort>,
    group: Vec<Endpoint>,
) -> SliceDraft {
    let mut labels: BTreeMap<Text, Text> =
        endpoints.labels.iter().map(|(key, value)| (key.into(), value.into())).collect();
    labels.insert(SERVICE_NAME_LABEL.into(), endpoints.key.name.clone());
    labels.insert(MANAGED_BY_LABEL.into(), MANAGED_BY_VALUE.into());
    let own = endpoints.annotations.iter().filter(|(key, _)| ***key != *TRIGGER_TIME_ANNOTATION);
    let annotations = own.map(|(key, value)| (key.clone(), Some(value.clone()))).collect();
    SliceDraft {
        owner: SliceOwner {
            kind: "Endpoints".into(),
            name: endpoints.key.name.clone(),
            uid: endpoints.uid.clone(),
        },
        labels,
        annotations,
        family,
        ports,
        endpoints: group,
    }
}

/// Returns the write that changes a mirrored slice to the content of the draft. The write also removes annotations that
/// the Endpoints do not have.
fn slice_update(slice: &Arc<Slice>, mut draft: SliceDraft) -> EndpointsWrite {
    for key in slice.annotations.keys() {
        draft.annotations.entry(key.clone()).or_default();
    }
    EndpointsWrite::UpdateSlice(slice.clone(), Arc::new(draft))
}

/// Whether the slice already has the content of the draft.
fn is_up_to_date(slice: &Slice, draft: &SliceDraft) -> bool {
    let labels = slice.labels.iter().map(|(key, value)| (Text::from(key), Text::from(value)));
    let annotations = slice.annotations.iter().map(|(key, value)| (key.clone(), Some(value.clone())));
    let by_identity = |all: &[Endpoint]| -> BTreeMap<_, _> {
        all.iter().map(|it| (it.endpoint_identity(), it.clone())).collect()
    };
    slice.is_owned_by("Endpoints", &draft.owner.uid)
        && labels.eq(draft.labels.clone())
        && annotations.eq(draft.annotations.clone())
        && by_identity(&slice.endpoints) == by_identity(&draft.endpoints)
}
