//! The calls of the rollout policy controller and their API requests.

use alloc::format;
use alloc::string::ToString as _;
use alloc::sync::Arc;
use core::fmt;

use muster_api::muster_v1alpha1::policy::RolloutPolicyStatus;
use serde_json::json;

use super::WatchedPolicy;
use crate::controller::{Request, Verb};

/// An API call of the rollout policy controller: a write of the status of a policy.
#[derive(Clone, PartialEq, Debug)]
pub struct RolloutPolicyCall {
    /// The version of the policy that the status was computed from.
    pub policy: Arc<WatchedPolicy>,
    pub status: RolloutPolicyStatus,
}

impl RolloutPolicyCall {
    /// Returns the API request of the call. It contains the UID and resource version of the policy, so that the API
    /// server refuses it for any other version. The spec is not sent, because the API server ignores it in a status
    /// write.
    pub(super) fn request(&self) -> Request {
        let policy = &self.policy.policy;
        let resource = policy.kind.watched_kind().watch().resource;
        let mut metadata = json!({
            "name": policy.key.name.as_ref(),
            "uid": self.policy.uid.as_ref(),
            "resourceVersion": policy.resource_version.to_string(),
        });
        if resource.namespaced {
            metadata["namespace"] = policy.key.namespace.as_ref().into();
        }
        let body = json!({
            "apiVersion": resource.api_version(),
            "kind": policy.kind.as_str(),
            "metadata": metadata,
            "status": serde_json::to_value(&self.status).unwrap_or_default(),
        });
        let path = format!("{}/status", resource.path(&policy.key));
        Request { verb: Verb::Update, path, body: Some(body), metadata_only: true }
    }
}

/// Formats the call for logs and tests, such as `update rolloutpolicies/status a/careful: 2 1 0 0`. The numbers count
/// the matched, rolling, waiting and failed DaemonSets.
impl fmt::Display for RolloutPolicyCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let policy = &self.policy.policy;
        let sets = &self.status.sets;
        let plural = policy.kind.watched_kind().plural();
        write!(f, "update {plural}/status {}: ", policy.key)?;
        write!(f, "{} {} {} {}", sets.matched, sets.rolling, sets.waiting, sets.failed)
    }
}
