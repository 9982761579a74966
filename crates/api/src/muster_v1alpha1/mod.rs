//! `muster.dev/v1alpha1`: progressive rollouts of DaemonSets.
//!
//! - [`policy`]: RolloutPolicy and ClusterRolloutPolicy, which say how DaemonSets are rolled out;
//! - [`checks`]: the checks of a policy; [`daemon_rollout`]: DaemonRollout, the rollout of one DaemonSet;
//! - [`values`]: enums, durations, counts and selectors; [`syntax`]: the syntax of names;
//! - [`validation`]: the validation of all fields.
//!
//! The doc comments are the descriptions that `kubectl explain` prints. With the feature `schema` the types have JSON
//! schemas, from which the type table of the server and the CustomResourceDefinitions are generated. Decoding is
//! lenient: unknown fields are ignored, absent fields have their defaults, and invalid values are kept for the
//! validation to report.

/// The checks in a policy.
pub mod checks;
/// DaemonRollout: the rollout of one DaemonSet.
pub mod daemon_rollout;
/// RolloutPolicy and ClusterRolloutPolicy.
pub mod policy;
/// Syntax of names, durations, URLs and other strings.
pub mod syntax;
/// Validation of the kinds.
pub mod validation;
/// Types of single values: enums, durations, counts and selectors.
pub mod values;

/// API group of the kinds.
pub const GROUP: &str = "muster.dev";
/// API version of the kinds, without the group.
pub const VERSION: &str = "v1alpha1";
/// API group and version of the kinds, as in the field `apiVersion`.
pub const API_VERSION: &str = "muster.dev/v1alpha1";
/// Category of all kinds of the group, so that `kubectl get muster` lists them all.
pub const CATEGORY: &str = "muster";

/// Names and scope of the kind RolloutPolicy.
pub const ROLLOUT_POLICY: KindNames =
    KindNames { kind: "RolloutPolicy", plural: "rolloutpolicies", short_name: "rpol", namespaced: true };
/// Names and scope of the kind ClusterRolloutPolicy.
pub const CLUSTER_ROLLOUT_POLICY: KindNames = KindNames {
    kind: "ClusterRolloutPolicy",
    plural: "clusterrolloutpolicies",
    short_name: "crpol",
    namespaced: false,
};
/// Names and scope of the kind DaemonRollout.
pub const DAEMON_ROLLOUT: KindNames =
    KindNames { kind: "DaemonRollout", plural: "daemonrollouts", short_name: "dro", namespaced: true };

/// Names of a kind, and its scope.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KindNames {
    pub kind: &'static str,
    pub plural: &'static str,
    pub short_name: &'static str,
    pub namespaced: bool,
}
