//! What keeps a pod from a node, with the particulars: for whoever asks why, not for whoever binds.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString as _};

use muster_api::meta::ObjectKey;
use muster_api::text::Text;

use super::around::Around;
use super::rooms::Room;
use super::{Lack, Pod, Scheduler, Unfit, fit};

/// Why a pod does not fit on a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Obstacle {
    /// The same words for all nodes that have it.
    pub what: String,
    pub detail: Option<String>,
}

/// Asks about one pod on many nodes.
#[derive(Debug)]
pub struct Fitting<'a> {
    all: &'a Scheduler,
    pod: &'a Pod,
    around: Around,
}

impl Scheduler {
    pub fn fitting<'a>(&'a self, pod: &'a Pod) -> Fitting<'a> {
        Fitting { all: self, pod, around: Around::of(self, pod) }
    }
}

impl Fitting<'_> {
    /// `None`: it fits, or nothing is known of the node. `without` are pods taken to be gone.
    pub fn obstacle(&self, node: &Text, without: &BTreeSet<ObjectKey>) -> Option<Obstacle> {
        let room = self.all.rooms.get(node)?;
        let unfit = fit::check(self.all, self.pod, &self.around, room, without).err()?;
        let (what, detail) = match &unfit {
            Unfit::PortTaken => self.port(room, without),
            Unfit::Short(lacks) => match lacks.first() {
                Some(Lack::Of { resource, .. }) => {
                    (format!("too little {resource}"), Some(self.shortage(room, resource, without)))
                }
                Some(Lack::Pods) | None => {
                    let most = room.node.allocatable.get("pods").copied().unwrap_or(0);
                    ("no room for another pod".to_string(), Some(format!("the node takes {most} pods")))
                }
            },
            other => (other.reasons().join(", "), None),
        };
        Some(Obstacle { what, detail })
    }

    fn port(&self, room: &Room, without: &BTreeSet<ObjectKey>) -> (String, Option<String>) {
        for other in room.pods.values().filter(|it| !without.contains(&it.key)) {
            for port in &self.pod.wants.ports {
                if other.wants.ports.iter().any(|it| it.meets(port)) {
                    let what = format!("host port {}/{} is taken", port.number, port.protocol);
                    return (what, Some(format!("pod {} has it", other.key)));
                }
            }
        }
        ("a host port is taken".to_string(), None)
    }

    fn shortage(&self, room: &Room, resource: &Text, without: &BTreeSet<ObjectKey>) -> String {
        let of = |pod: &Pod| pod.wants.amount(resource).unwrap_or(0);
        let given = room.node.allocatable.get(resource).copied().unwrap_or(0);
        let others = room.pods.values().filter(|it| !without.contains(&it.key));
        let taken = others.map(|it| of(it)).fold(0, i64::saturating_add);
        let amount = |it: i64| amount(resource, it);
        format!(
            "it asks for {}; of {} on the node {} are requested",
            amount(of(self.pod)),
            amount(given),
            amount(taken)
        )
    }
}

/// As manifests write amounts: cores or thousandths of one, and the largest unit that leaves no rest.
fn amount(resource: &str, amount: i64) -> String {
    if resource == "cpu" {
        return if amount % 1000 == 0 { format!("{}", amount / 1000) } else { format!("{amount}m") };
    }
    let is_bytes =
        resource == "memory" || resource == "ephemeral-storage" || resource.starts_with("hugepages-");
    let units = [("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1_i64 << 10)];
    match units.into_iter().find(|(_, size)| is_bytes && amount != 0 && amount % size == 0) {
        Some((unit, size)) => format!("{}{unit}", amount / size),
        None => format!("{amount}"),
    }
}
