//! Progressive rollouts: which revision each node is assigned, how fast a new revision reaches the nodes, and when a
//! rollout is stopped or rolled back.
//!
//! The current revision is the revision of the DaemonSet's template. The stable revision is the revision with the
//! latest `Good` verdict. A node that is admitted is assigned the current revision; every other node is held at the
//! stable revision. Exceptions: without a stable revision, every node is assigned the current revision, and in a
//! rollback, every node is assigned the stable revision. The DaemonSet's `maxUnavailable` and `maxSurge` still limit
//! how many nodes are down at a time.
//!
//! In this diagram, a cell is the state of the DaemonSet on one node:
//!
//! ```text
//! RolloutPolicy ----> policy -----+
//! DaemonRollout ----> record -----+--> membership --> cells (one per node) --> counts --> phase --> DaemonRollout status
//! ControllerRevision verdicts ----+                                              ^          +----> verdict
//! Pods, Nodes ------------------------------------------------> analysis --------+
//! ```
//!
//! - [`policy`]: the decoded RolloutPolicy or ClusterRolloutPolicy, and which policy governs a DaemonSet;
//! - [`record`]: the decoded DaemonRollout: the operator's requests and the stored state of the rollout;
//! - [`decode`]: decoding of policies and DaemonRollouts, and encoding of a DaemonRollout's status;
//! - `rollout`: the rollout of one DaemonSet: its objects, its revisions, and the revision of each node;
//! - [`order`]: the order in which nodes are admitted;
//! - [`window`]: the maintenance windows of a policy;
//! - [`membership`]: which nodes are admitted now, and which nodes are admitted next;
//! - [`analysis`]: when a node has failed with the current revision, when its failure is excused, and when it
//!   has soaked;
//! - `check`: when the checks of a policy are measured, and their results;
//! - [`counts`]: sums over all nodes, updated whenever a cell changes;
//! - `groups`: which groups of nodes, such as zones, are updated at a time;
//! - [`verdict`]: the verdicts about revisions;
//! - [`phase`]: the state machine of a rollout.

/// Decides when a node has failed, when its failure is excused, and when it has soaked.
pub mod analysis;
/// Decides when checks are measured, and keeps their results.
pub(crate) mod check;
/// Counts of the nodes of a rollout.
pub mod counts;
/// Decodes policies and DaemonRollouts, and encodes the status of a DaemonRollout.
pub mod decode;
/// Decides which groups of nodes are updated at a time.
pub(crate) mod groups;
/// Decides which nodes are admitted now, and which nodes are admitted next.
pub mod membership;
/// The order in which nodes are admitted.
pub mod order;
/// The state machine of a rollout.
pub mod phase;
/// The decoded rollout policies, and which of them governs a DaemonSet.
pub mod policy;
/// The decoded DaemonRollout: the operator's requests (spec) and the stored state of the rollout (status).
pub mod record;
/// The progressive rollout of one DaemonSet, and the revision that each node is assigned.
pub(crate) mod rollout;
/// The verdicts about revisions.
pub mod verdict;
/// The maintenance windows of a policy.
pub mod window;
