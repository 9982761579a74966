//! Explains why a pod does not fit on a node, for `muster explain` and `muster plan`. The check itself is
//! [`filter::check_fit`].

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString as _};

use muster_api::object_key::ObjectKey;
use muster_api::resources::is_huge_pages;
use muster_api::text::Text;

use super::node_info::NodeInfo;
use super::topology_counts::TopologyCounts;
use super::{Pod, Scheduler, Shortage, UnfitReason, filter};

/// Why a pod does not fit on a node, as `muster explain` prints it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnfitDetail {
    /// The reason, such as `insufficient memory`, without the amounts on this node. `muster explain` groups nodes with
    /// the same reason.
    pub reason: String,
    /// The part of the reason that may differ from node to node, such as the amounts of memory. `None` if the reason
    /// has no such part.
    pub detail: Option<String>,
}

/// Explains why one pod does not fit on nodes. Everything that does not depend on the node is computed once.
#[derive(Debug)]
pub struct FitExplainer<'a> {
    /// The scheduler with all nodes and pods.
    all: &'a Scheduler,
    pod: &'a Pod,
    /// The counts by topology domain for pod affinity, pod anti-affinity and topology spread. They are computed once and
    /// used for every node.
    topology_counts: TopologyCounts,
}

impl Scheduler {
    /// Returns a [`FitExplainer`] of this pod for the nodes of this scheduler.
    pub fn fit_explainer<'a>(&'a self, pod: &'a Pod) -> FitExplainer<'a> {
        FitExplainer { all: self, pod, topology_counts: TopologyCounts::for_pod(self, pod) }
    }
}

impl FitExplainer<'_> {
    /// Returns why the pod does not fit on the node with this name. `None` if the pod fits, or if there is no such
    /// node. Pods in `without` count as removed from the node.
    pub fn unfit_detail(&self, node: &Text, without: &BTreeSet<ObjectKey>) -> Option<UnfitDetail> {
        let info = self.all.nodes.get(node)?;
        let unfit = filter::check_fit(self.all, self.pod, &self.topology_counts, info, without).err()?;
        let (reason, detail) = match &unfit {
            UnfitReason::HostPort => self.host_port_conflict(info, without),
            UnfitReason::Insufficient(shortages) => match shortages.first() {
                Some(Shortage::Resource { resource, .. }) => {
                    (format!("insufficient {resource}"), Some(self.shortage_detail(info, resource, without)))
                }
                Some(Shortage::Pods) | None => {
                    let most = info.node.allocatable.get("pods").copied().unwrap_or(0);
                    ("too many pods".to_string(), Some(format!("the node allows {most} pods")))
                }
            },
            other => (other.messages().join(", "), None),
        };
        Some(UnfitDetail { reason, detail })
    }

    /// Returns the reason and the detail of a host port conflict. The detail names the pod on the node that uses the
    /// host port. It is `None` if no pod on the node uses the host port.
    fn host_port_conflict(&self, info: &NodeInfo, without: &BTreeSet<ObjectKey>) -> (String, Option<String>) {
        for other in info.pods.values().filter(|it| !without.contains(&it.key)) {
            for port in &self.pod.requirements.ports {
                if other.requirements.ports.iter().any(|it| it.conflicts_with(port)) {
                    let what = format!("host port {}/{} is in use", port.number, port.protocol);
                    return (what, Some(format!("pod {} uses it", other.key)));
                }
            }
        }
        ("a host port is in use".to_string(), None)
    }

    /// Returns a text with three amounts of a resource: the request of the pod, the allocatable amount of the node, and
    /// the requests of the pods on the node. Pods in `without` count as removed from the node.
    fn shortage_detail(&self, info: &NodeInfo, resource: &Text, without: &BTreeSet<ObjectKey>) -> String {
        let of = |pod: &Pod| pod.requirements.request(resource).unwrap_or(0);
        let allocatable = info.node.allocatable.get(resource).copied().unwrap_or(0);
        let others = info.pods.values().filter(|it| !without.contains(&it.key));
        let requested = others.map(|it| of(it)).fold(0, i64::saturating_add);
        let amount = |it: i64| format_amount(resource, it);
        format!(
            "the pod requests {}; of {} on the node, {} are requested",
            amount(of(self.pod)),
            amount(allocatable),
            amount(requested)
        )
    }
}

/// Formats an amount of a resource as in a manifest. An amount of `cpu` is given in millicores, and formatted in cores
/// if it is a whole number of cores. Bytes are formatted in the largest of the units `Gi`, `Mi` and `Ki` that divides
/// the amount. Other amounts are formatted as they are.
fn format_amount(resource: &str, amount: i64) -> String {
    if resource == "cpu" {
        return if amount % 1000 == 0 { format!("{}", amount / 1000) } else { format!("{amount}m") };
    }
    let is_bytes = resource == "memory" || resource == "ephemeral-storage" || is_huge_pages(resource);
    let units = [("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1_i64 << 10)];
    match units.into_iter().find(|(_, size)| is_bytes && amount != 0 && amount % size == 0) {
        Some((unit, size)) => format!("{}{unit}", amount / size),
        None => format!("{amount}"),
    }
}
