//! Endpoints that somebody wrote by hand, shown as EndpointSlices too: clients read only those.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::ToString as _;
use alloc::sync::Arc;
use alloc::vec::Vec;

use muster_api::text::Text;

use super::call::{Change, Draft};
use super::decode::address;
use super::facts::{Address, Condition, Endpoint, Endpoints, Family, Hints, Owner, Port, Slice, reference};
use super::subsets::{all, packed};
use super::{MANAGED_BY, SERVICE_NAME, TRIGGER_TIME};
use crate::controller::EventRecord;
use crate::daemonset::plan::Event;

/// Who keeps these slices, in upstream's word.
pub(super) const CONTROLLER: &str = "endpointslicemirroring-controller.k8s.io";

/// So many addresses of a subset are shown. Upstream: `mirroring-max-endpoints-per-subset`.
const ENDPOINTS_MAX: usize = 1000;

const SKIP: &str = "endpointslice.kubernetes.io/skip-mirror";
const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";

/// Rule: Endpoints are mirrored if their Service selects no pods, unless they say that they want no mirror, or are only
/// the place where an election is held. Upstream: `shouldMirror`.
pub(super) fn is_mirrored(endpoints: &Endpoints) -> bool {
    let skips = endpoints.labels.get(SKIP).is_some_and(|it| **it == *"true");
    !skips && !is_election(endpoints)
}

pub(super) fn is_election(endpoints: &Endpoints) -> bool {
    endpoints.annotations.contains_key(LEADER)
}

/// One slice for each set of ports and each family.
pub(super) fn changes(endpoints: &Endpoints, slices: &[&Arc<Slice>]) -> (Vec<Change>, Vec<EventRecord>) {
    let (wanted, events) = wanted(endpoints);
    let mut standing: BTreeMap<(Family, Vec<Port>), Vec<&Arc<Slice>>> = BTreeMap::new();
    let (mut fresh, mut changed, mut spare) = (Vec::new(), Vec::new(), Vec::new());
    for slice in slices {
        match slice.family {
            Some(family) => standing.entry((family, slice.ports.clone())).or_default().push(slice),
            None => spare.push(*slice),
        }
    }
    for ((family, ports), group) in wanted {
        let draft = draft(endpoints, family, ports.clone(), group);
        let mut there = standing.remove(&(family, ports)).unwrap_or_default().into_iter();
        match there.next() {
            None => fresh.push(draft),
            Some(slice) if shows(slice, &draft) => {}
            Some(slice) => changed.push(replace(slice, draft)),
        }
        spare.extend(there);
    }
    spare.extend(standing.into_values().flatten());
    let mut changes = Vec::new();
    for draft in fresh {
        let same_family = spare.iter().position(|it| it.family == Some(draft.family));
        changes.push(match same_family {
            Some(index) => replace(spare.swap_remove(index), draft),
            None if endpoints.deleting => continue,
            None => Change::CreateSlice(Arc::new(draft)),
        });
    }
    changes.extend(changed);
    changes.extend(spare.into_iter().map(|it| Change::DeleteSlice(it.clone())));
    (changes, events)
}

type Wanted = BTreeMap<(Family, Vec<Port>), Vec<Endpoint>>;

fn wanted(endpoints: &Endpoints) -> (Wanted, Vec<EventRecord>) {
    let mut wanted = Wanted::new();
    let (mut invalid, mut skipped) = (0, 0);
    for subset in packed(all(&endpoints.subsets)) {
        let mut added = 0;
        let ready = subset.ready.iter().map(|it| (it, true));
        for (it, ready) in ready.chain(subset.unready.iter().map(|it| (it, false))) {
            if ENDPOINTS_MAX <= added {
                skipped += 1;
                continue;
            }
            match endpoint(it, ready) {
                Some((family, endpoint)) => {
                    added += 1;
                    wanted.entry((family, subset.ports.clone())).or_default().push(endpoint);
                }
                None => invalid += 1,
            }
        }
    }
    let mut events = Vec::new();
    let mut tell = |reason, message| {
        let Endpoints { key, uid, resource_version, .. } = endpoints;
        let about = reference("Endpoints", key, uid, *resource_version);
        events.push(EventRecord { about, event: Event::warning(reason, message) });
    };
    if 0 < invalid {
        tell(
            "InvalidIPAddress",
            format!("Skipped {invalid} invalid IP addresses when mirroring to EndpointSlices"),
        );
    }
    if 0 < skipped {
        tell(
            "TooManyAddressesToMirror",
            format!(
                "A max of {ENDPOINTS_MAX} addresses can be mirrored to EndpointSlices per Endpoints subset. {skipped} addresses were skipped"
            ),
        );
    }
    (wanted, events)
}

fn endpoint(it: &Address, ready: bool) -> Option<(Family, Endpoint)> {
    let ip = address(&it.ip)?;
    let endpoint = Endpoint {
        addresses: [ip.to_string().as_str().into()].into(),
        hostname: it.hostname.clone(),
        node: it.node.clone(),
        zone: None,
        condition: Condition { ready: Some(ready), ..Condition::default() },
        target: it.target.clone(),
        hints: Hints::default(),
    };
    Some((Family::of(ip), endpoint))
}

fn draft(endpoints: &Endpoints, family: Family, ports: Vec<Port>, group: Vec<Endpoint>) -> Draft {
    let mut labels: BTreeMap<Text, Text> =
        endpoints.labels.iter().map(|(key, value)| (key.into(), value.into())).collect();
    labels.insert(SERVICE_NAME.into(), endpoints.key.name.clone());
    labels.insert(MANAGED_BY.into(), CONTROLLER.into());
    let own = endpoints.annotations.iter().filter(|(key, _)| ***key != *TRIGGER_TIME);
    let annotations = own.map(|(key, value)| (key.clone(), Some(value.clone()))).collect();
    Draft {
        owner: Owner {
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

/// Annotations that the Endpoints do not have go.
fn replace(slice: &Arc<Slice>, mut draft: Draft) -> Change {
    for key in slice.annotations.keys() {
        draft.annotations.entry(key.clone()).or_default();
    }
    Change::UpdateSlice(slice.clone(), Arc::new(draft))
}

/// Whether the slice says what the draft would.
fn shows(slice: &Slice, draft: &Draft) -> bool {
    let labels = slice.labels.iter().map(|(key, value)| (Text::from(key), Text::from(value)));
    let annotations = slice.annotations.iter().map(|(key, value)| (key.clone(), Some(value.clone())));
    let by_identity =
        |all: &[Endpoint]| -> BTreeMap<_, _> { all.iter().map(|it| (it.identity(), it.clone())).collect() };
    slice.is_of("Endpoints", &draft.owner.uid)
        && labels.eq(draft.labels.clone())
        && annotations.eq(draft.annotations.clone())
        && by_identity(&slice.endpoints) == by_identity(&draft.endpoints)
}
