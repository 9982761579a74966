//! Defaults of fields that a client left out, with one function for each kind. The functions also remove fields that
//! upstream does not store, and round quantities. The defaults of pods are in `muster_api::defaulting`, because nodes
//! set them too.
//!
//! The JSON of an object with defaults must equal upstream's byte for byte, because upstream compares the pod templates
//! in ControllerRevisions by their bytes.
//!
//! Upstream: `pkg/apis/*/v1/defaults.go`.

/// Defaults of DaemonSets.
mod daemonset;
/// Defaults that the types of `muster.dev` in the crate `api` declare.
mod declared_defaults;
/// Defaults of the kinds that have no module of their own.
mod other_kinds;
/// Defaults of Services and Endpoints.
mod service;

use muster_api::defaulting::{set_if_absent, with_object_or_new};
use serde_json::Value;

pub(crate) use self::daemonset::set_daemonset_defaults;
pub(crate) use self::declared_defaults::{
    set_cluster_rollout_policy_defaults, set_daemon_rollout_defaults, set_rollout_policy_defaults,
};
pub(crate) use self::other_kinds::{
    normalize_lease, normalize_resource_quota, normalize_role, normalize_service_account,
    set_endpoint_slice_defaults, set_limit_range_defaults, set_namespace_defaults, set_node_defaults,
    set_pod_template_defaults, set_priority_class_defaults, set_role_binding_defaults, set_secret_defaults,
};
pub(crate) use self::service::{set_endpoints_defaults, set_service_defaults};
pub(crate) use muster_api::defaulting::set_pod_defaults;

/// [`Kind::apply_defaults`](crate::kinds::Kind::apply_defaults) of a kind that has no defaults. Does nothing.
pub(crate) fn no_defaults(_: &mut Value) {}

/// Copies the quantities in the field `from` to the field `name`, except those of resources that `name` already has.
fn copy_missing_resources(object: &mut Value, name: &str, from: &str) {
    let Some(amounts) = object[from].as_object().cloned() else { return };
    with_object_or_new(object, name, |it| {
        for (resource, amount) in amounts {
            set_if_absent(it, &resource, amount);
        }
    });
}

#[cfg(test)]
mod tests;
