//! Decodes the objects that the rollout policy controller watches.

use alloc::sync::Arc;

use muster_api::interner::Interner;
use muster_api::json;
use muster_api::labels::Labels;
use muster_api::meta_v1::PartialObjectMetadata;
use muster_api::muster_v1alpha1::daemon_rollout::DaemonRollout;
use muster_api::object_key::ObjectKey;
use muster_api::text::Text;

use crate::controller::{self, Malformed, Watch};
use crate::daemonset::facts::Kind;
use crate::daemonset::progressive::decode::{WatchedPolicy, decode_cluster_policy, decode_policy};
use crate::daemonset::progressive::record::Phase;

/// The fields of a watched object that the rollout policy controller reads.
#[derive(Clone, PartialEq, Debug)]
pub enum RolloutPolicyObject {
    /// The fields of a RolloutPolicy or ClusterRolloutPolicy.
    Policy(Arc<WatchedPolicy>),
    /// The fields of a DaemonSet.
    Set { key: ObjectKey, resource_version: u64, labels: Labels },
    /// The fields of a Namespace.
    Namespace { name: Text, resource_version: u64, labels: Labels },
    /// The fields of a DaemonRollout.
    Rollout { key: ObjectKey, resource_version: u64, state: RolloutState },
}

/// The state of a DaemonSet's rollout. The status of a policy counts the DaemonSets in each state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RolloutState {
    /// The rollout has not started, is complete, or has passed the last step of a policy whose steps do not cover all
    /// nodes. Also the state of a rollout whose phase this version does not know.
    #[default]
    Idle,
    /// Nodes are being updated, or the rollout waits for the soak time of updated nodes.
    Rolling,
    /// The rollout waits for an approval or for a check to pass.
    Waiting,
    /// The rollout has stopped, is being rolled back, or was rolled back.
    Failed,
}

impl RolloutState {
    /// Returns the state of a rollout that is in this phase.
    fn for_phase(phase: Phase) -> Self {
        match phase {
            Phase::Complete | Phase::PartiallyComplete => Self::Idle,
            Phase::Rolling | Phase::Soaking => Self::Rolling,
            Phase::Waiting => Self::Waiting,
            Phase::Stopped | Phase::RollingBack | Phase::RolledBack => Self::Failed,
        }
    }
}

impl controller::DecodedObject for RolloutPolicyObject {
    fn key(&self) -> ObjectKey {
        match self {
            Self::Policy(it) => it.policy.key.clone(),
            Self::Set { key, .. } | Self::Rollout { key, .. } => key.clone(),
            Self::Namespace { name, .. } => ObjectKey::new("", name.clone()),
        }
    }

    fn resource_version(&self) -> u64 {
        match self {
            Self::Policy(it) => it.policy.resource_version,
            Self::Set { resource_version, .. }
            | Self::Namespace { resource_version, .. }
            | Self::Rollout { resource_version, .. } => *resource_version,
        }
    }
}

/// Decodes an object of the kind of `watch`. `watch` must be one of the controller's watches. Panics if its kind is
/// unknown.
pub(super) fn decode_fact(
    watch: &Watch,
    object: &[u8],
    shared: &mut Interner,
) -> Result<RolloutPolicyObject, Malformed> {
    let kind = Kind::from_plural(&watch.resource.plural).expect("the controller watches these kinds only");
    let malformed = |it| Malformed::new(kind.plural(), it);
    Ok(match kind {
        Kind::Policies => RolloutPolicyObject::Policy(Arc::new(decode_policy(object, shared)?)),
        Kind::ClusterPolicies => {
            RolloutPolicyObject::Policy(Arc::new(decode_cluster_policy(object, shared)?))
        }
        Kind::Rollouts => {
            let DaemonRollout { metadata, status, .. } = json::from_slice(object).map_err(malformed)?;
            let phase = Phase::parse(status.phase.as_str());
            RolloutPolicyObject::Rollout {
                key: metadata.key(shared),
                resource_version: metadata.resource_version(),
                state: phase.map(RolloutState::for_phase).unwrap_or_default(),
            }
        }
        kind => {
            let PartialObjectMetadata { metadata, .. } = json::from_slice(object).map_err(malformed)?;
            let (resource_version, labels) = (metadata.resource_version(), metadata.labels(shared));
            match kind {
                Kind::Namespaces => {
                    RolloutPolicyObject::Namespace { name: metadata.name().into(), resource_version, labels }
                }
                _ => RolloutPolicyObject::Set { key: metadata.key(shared), resource_version, labels },
            }
        }
    })
}
