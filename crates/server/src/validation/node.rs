//! Validation of Nodes.

use serde_json::Value;

use super::scheduling::check_taints;
use super::{WriteToValidate, format_as_go_struct};
use crate::small_map::SmallSet;
use crate::unstructured::{list_at, str_at};
use crate::validation::field_error::{ErrorPath, FieldErrors};
use crate::validation::{address, resources};

/// Validates a Node. Upstream: `ValidateNode`.
pub(crate) fn validate_node(write: &WriteToValidate, out: &mut FieldErrors) {
    let node = write.new;
    // Upstream's messages have the wrong path: taints are in `spec`.
    check_taints(list_at(&node["spec"], "taints"), &ErrorPath::new("metadata.taints"), out);
    for part in ["capacity", "allocatable"] {
        let at = ErrorPath::new("status");
        let at = at.field(part);
        for (name, amount) in node["status"][part].as_object().into_iter().flatten() {
            resources::check_quantity(name, amount, &at.field(name), out);
        }
    }
    let ranges: Vec<_> =
        list_at(&node["spec"], "podCIDRs").iter().map(|it| it.as_str().unwrap_or_default()).collect();
    let ranges_at = ErrorPath::new("spec.podCIDRs");
    for (index, range) in ranges.iter().enumerate() {
        address::check_cidr(range, &ranges_at.index(index), out);
    }
    let ipv6_count = ranges.iter().filter(|it| it.contains(':')).count();
    if 1 < ranges.len() && (ipv6_count != 1 || 2 < ranges.len()) {
        let why = "may specify no more than one CIDR for each IP family";
        out.invalid(&ranges_at, &node["spec"]["podCIDRs"], why);
    }
    if let Some(old) = write.old {
        check_node_update(node, old, out);
    }
}

/// Checks that an update of a Node does not change `externalID`, does not change `podCIDRs` or `providerID` once they
/// are set, and has no duplicate addresses.
fn check_node_update(new: &Value, old: &Value, out: &mut FieldErrors) {
    let addresses = list_at(&new["status"], "addresses");
    let mut seen = SmallSet::default();
    for (index, it) in addresses.iter().enumerate() {
        let at = ErrorPath::new("status.addresses");
        if !seen.insert(it) {
            out.duplicate(
                &at.index(index),
                format_as_go_struct(it, &[("Type", "type"), ("Address", "address")]),
            );
        }
    }
    let ranges = |node: &'_ Value| list_at(&node["spec"], "podCIDRs").to_vec();
    if !ranges(old).is_empty() && ranges(old) != ranges(new) {
        let why = "node updates may not change podCIDR except from \"\" to valid";
        out.forbidden(&ErrorPath::new("spec.podCIDRs"), why);
    }
    let (was, is) = (str_at(old, "spec.providerID"), str_at(new, "spec.providerID"));
    if !was.is_empty() && was != is {
        let why = "node updates may not change providerID except from \"\" to valid";
        out.forbidden(&ErrorPath::new("spec.providerID"), why);
    }
    if str_at(new, "spec.externalID") != str_at(old, "spec.externalID") {
        out.forbidden(&ErrorPath::new("spec.externalID"), "may not be updated");
    }
}
