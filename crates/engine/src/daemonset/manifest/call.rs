//! Builds the verb, path and body of the HTTP request for each [`PlannedCall`].

use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

use muster_api::go_json;
use muster_api::muster_v1alpha1::{self, daemon_rollout::StatusCondition};
use muster_api::text::Text;
use serde_json::{Map, Value, json};

use super::{
    Binding, Owner, adopt_patch, controller_revision, daemon_pod, daemon_rollout, label_revision_patch,
    relabel_patch, release_patch, renumber_patch, verdict_patch,
};
use crate::controller::{self, PatchFormat, Verb, percent_encode};
use crate::daemonset::execution::PlannedCall;
use crate::daemonset::facts::{Condition, ConditionType, Kind, Pod, Selector, Set, Status};
use crate::daemonset::plan::{Claim, PodSource, RevisionWrite, RolloutWrite};
use crate::daemonset::progressive::decode::encode_status;
use crate::daemonset::progressive::record::{RolloutRecord, RolloutStatus};
use crate::daemonset::why::Why;

/// The API object that a call reads or writes, or the collection that it lists or in which it creates an object. Both
/// are in the DaemonSet's namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallTarget {
    pub kind: Kind,
    /// Name of the object. `None` for a list, and for a create other than an eviction: the body of such a create has
    /// `name` or `generateName`.
    pub name: Option<Text>,
    /// Name of the subresource, such as `status`. `None` for the object itself.
    pub subresource: Option<&'static str>,
}

/// Returns the Kubernetes request verb of a call, such as create or patch.
pub fn call_verb(call: &PlannedCall) -> Verb {
    match call {
        PlannedCall::ReadSet | PlannedCall::ReadRevision { .. } => Verb::Get,
        PlannedCall::ListPods => Verb::List,
        PlannedCall::CreatePod { .. }
        | PlannedCall::EvictPod { .. }
        | PlannedCall::WriteRevision(RevisionWrite::Create { .. })
        | PlannedCall::WriteRollout(RolloutWrite::Create) => Verb::Create,
        PlannedCall::Claim(_) => Verb::Patch(PatchFormat::Strategic),
        PlannedCall::RelabelPod { .. }
        | PlannedCall::WriteRevision(
            RevisionWrite::Renumber { .. } | RevisionWrite::Label { .. } | RevisionWrite::StoreVerdict { .. },
        ) => Verb::Patch(PatchFormat::Merge),
        PlannedCall::PutStatus { .. } | PlannedCall::WriteRollout(RolloutWrite::PutStatus { .. }) => {
            Verb::Update
        }
        PlannedCall::ApplyConditions { .. } => Verb::Patch(PatchFormat::Apply),
        PlannedCall::DeletePod { .. } | PlannedCall::DeleteRevision { .. } => Verb::Delete,
    }
}

/// Returns the API object or collection that a call for this DaemonSet reads or writes.
pub fn call_target(set: &Set, call: &PlannedCall) -> CallTarget {
    let whole = |kind, name: Option<&Text>| CallTarget { kind, name: name.cloned(), subresource: None };
    match call {
        PlannedCall::ReadSet => whole(Kind::Sets, Some(&set.key.name)),
        PlannedCall::PutStatus { of, .. } => {
            CallTarget { kind: Kind::Sets, name: Some(of.key.name.clone()), subresource: Some("status") }
        }
        PlannedCall::ApplyConditions { .. } => {
            CallTarget { kind: Kind::Sets, name: Some(set.key.name.clone()), subresource: Some("status") }
        }
        PlannedCall::WriteRollout(RolloutWrite::Create) => whole(Kind::Rollouts, None),
        PlannedCall::WriteRollout(RolloutWrite::PutStatus { record, .. }) => CallTarget {
            kind: Kind::Rollouts,
            name: Some(record.key.name.clone()),
            subresource: Some("status"),
        },
        PlannedCall::ListPods | PlannedCall::CreatePod { .. } => whole(Kind::Pods, None),
        PlannedCall::Claim(Claim::AdoptPod(pod) | Claim::ReleasePod(pod))
        | PlannedCall::RelabelPod { pod, .. }
        | PlannedCall::DeletePod { pod, .. } => whole(Kind::Pods, Some(&pod.key.name)),
        PlannedCall::EvictPod { pod, .. } => {
            CallTarget { kind: Kind::Pods, name: Some(pod.key.name.clone()), subresource: Some("eviction") }
        }
        PlannedCall::WriteRevision(RevisionWrite::Create { .. }) => whole(Kind::Revisions, None),
        PlannedCall::ReadRevision { name } => whole(Kind::Revisions, Some(name)),
        PlannedCall::Claim(Claim::AdoptRevision(revision) | Claim::ReleaseRevision(revision))
        | PlannedCall::WriteRevision(
            RevisionWrite::Renumber { revision, .. }
            | RevisionWrite::Label { revision }
            | RevisionWrite::StoreVerdict { revision, .. },
        )
        | PlannedCall::DeleteRevision { revision } => whole(Kind::Revisions, Some(&revision.key.name)),
    }
}

/// Returns the URL path and query of a call. `None` if the call lists pods and the DaemonSet's selector selects no pod.
pub fn call_path(set: &Set, call: &PlannedCall) -> Option<String> {
    let target = call_target(set, call);
    let mut path = target.kind.watch().resource.collection_path(Some(&set.key.namespace));
    for part in target.name.as_deref().into_iter().chain(target.subresource) {
        path = format!("{path}/{part}");
    }
    if call_verb(call) == Verb::Patch(PatchFormat::Apply) {
        path = format!("{path}?fieldManager={ASSIST_FIELD_MANAGER}&force=true");
    }
    if call_verb(call) == Verb::List {
        path = format!("{path}?labelSelector={}", percent_encode(&label_selector_query(set)?));
    }
    Some(path)
}

/// Returns the request body of a call. Encode it with [`muster_api::go_json::to_string`]. `None` if the call only
/// reads.
pub fn call_body(set: &Set, call: &PlannedCall, binding: Binding) -> Option<Value> {
    let owner = Owner { namespace: &set.key.namespace, name: &set.key.name, uid: &set.uid };
    let template = || serde_json::from_str(&set.template.raw).unwrap_or_default();
    Some(match call {
        PlannedCall::ReadSet | PlannedCall::ListPods | PlannedCall::ReadRevision { .. } => return None,
        PlannedCall::Claim(Claim::AdoptPod(it)) => {
            adopt_patch(owner, &it.uid, &it.resource_version.to_string())
        }
        PlannedCall::Claim(Claim::AdoptRevision(it)) => {
            adopt_patch(owner, &it.uid, &it.resource_version.to_string())
        }
        PlannedCall::Claim(Claim::ReleasePod(it)) => {
            release_patch(&set.uid, &it.uid, &it.resource_version.to_string())
        }
        PlannedCall::Claim(Claim::ReleaseRevision(it)) => {
            release_patch(&set.uid, &it.uid, &it.resource_version.to_string())
        }
        PlannedCall::WriteRevision(RevisionWrite::Create { name, hash, number }) => {
            let annotations = serde_json::from_str(&set.annotations).unwrap_or_default();
            let mut revision = controller_revision(owner, &annotations, &template(), hash, *number);
            // An equivalent template has the hash label of the first revision, but a name of its own.
            revision["metadata"]["name"] = name.as_ref().into();
            revision
        }
        PlannedCall::WriteRevision(RevisionWrite::Renumber { revision: it, number }) => {
            renumber_patch(*number, &it.uid, &it.resource_version.to_string())
        }
        PlannedCall::WriteRevision(RevisionWrite::Label { revision: it }) => {
            label_revision_patch(&it.key.name, &it.uid, &it.resource_version.to_string())
        }
        PlannedCall::WriteRevision(RevisionWrite::StoreVerdict { revision: it, verdict, reason, at }) => {
            verdict_patch(*verdict, reason, *at, &it.uid, &it.resource_version.to_string())
        }
        PlannedCall::WriteRollout(RolloutWrite::Create) => daemon_rollout(owner),
        PlannedCall::WriteRollout(RolloutWrite::PutStatus { record, status, conditions }) => {
            rollout_status_body(record, status, conditions)
        }
        PlannedCall::RelabelPod { pod: it, hash } => {
            relabel_patch(hash, &it.uid, &it.resource_version.to_string())
        }
        PlannedCall::CreatePod { node, hash, source: None, .. } => {
            daemon_pod(owner, &template(), node, hash, set.template_generation, binding)
        }
        PlannedCall::CreatePod { node, hash, source: Some(source), .. } => {
            let template = serde_json::from_str(&source.template).unwrap_or_default();
            daemon_pod(owner, &template, node, hash, source.generation, binding)
        }
        PlannedCall::DeletePod { pod, .. } => delete_options(&pod.uid, pod.resource_version),
        PlannedCall::EvictPod { pod, .. } => eviction_body(pod),
        PlannedCall::DeleteRevision { revision } => delete_options(&revision.uid, revision.resource_version),
        PlannedCall::PutStatus { of, status } => status_body(of, status),
        PlannedCall::ApplyConditions { conditions } => applied_conditions_body(owner, conditions),
    })
}

/// The JSON of the pods that one plan creates from one revision. These pods differ only in the node name, so the text
/// before and after the node name is encoded once.
#[derive(Debug)]
pub struct EncodedPod {
    /// JSON text of the pod before the node name.
    before: String,
    /// JSON text of the pod after the node name.
    after: String,
}

impl EncodedPod {
    /// Encodes the pod of a DaemonSet with a placeholder for the node name. `source` is the older revision that the pod
    /// is created from, or `None` for the DaemonSet's own template. Returns `None` if the template itself contains the
    /// placeholder.
    pub fn new(set: &Set, hash: &Text, source: Option<&Arc<PodSource>>, binding: Binding) -> Option<Self> {
        /// Stands for the node name in the encoded pod. Contains a control character, which no node name contains.
        const NODE_PLACEHOLDER: &str = "\u{1}node\u{1}";
        let call = PlannedCall::CreatePod {
            node: NODE_PLACEHOLDER.into(),
            hash: hash.clone(),
            why: Why::NoPodOnNode,
            source: source.cloned(),
        };
        let text = go_json::to_string(&call_body(set, &call, binding)?);
        let (before, after) = text.split_once(r"\u0001node\u0001")?;
        let once = !after.contains(r"\u0001node\u0001");
        once.then(|| Self { before: before.to_string(), after: after.to_string() })
    }

    /// Returns the JSON of the pod for one node. `None` if the name of the node contains a character other than ASCII
    /// letters, digits, `-` and `.`, because JSON might have to escape that character.
    pub fn for_node(&self, node: &str) -> Option<String> {
        let is_plain = |it: u8| it.is_ascii_alphanumeric() || matches!(it, b'-' | b'.');
        node.bytes().all(is_plain).then(|| [&self.before, node, &self.after].concat())
    }
}

/// Returns the body of a request that writes the status of a DaemonRollout.
///
/// Rule: a status write of a DaemonRollout has the UID and resource version of the object that the status was computed
/// from, so that the API server refuses the write for any other version. The spec, which belongs to operators, is not
/// sent.
fn rollout_status_body(
    record: &RolloutRecord,
    status: &RolloutStatus,
    conditions: &[StatusCondition],
) -> Value {
    let metadata = json!({
        "namespace": record.key.namespace.as_ref(),
        "name": record.key.name.as_ref(),
        "uid": record.uid.as_ref(),
        "resourceVersion": record.resource_version.to_string(),
    });
    let status = serde_json::to_value(encode_status(status, conditions.to_vec())).unwrap_or_default();
    json!({
        "apiVersion": muster_v1alpha1::API_VERSION,
        "kind": Kind::Rollouts.name(),
        "metadata": metadata,
        "status": status,
    })
}

/// Returns the body of a request that writes the status of a DaemonSet.
///
/// Rule: a status write sends the metadata of the object from which the status was computed, so that the API server
/// refuses the write for any other version and for another object with the same name. Unknown status fields and
/// conditions of other writers stay. Numbers that upstream omits when they are zero are omitted here too. The spec is
/// not sent, because the API server ignores it in a status write.
/// Upstream: `storeDaemonSetStatus`.
pub fn status_body(set: &Set, status: &Status) -> Value {
    let metadata: Value = serde_json::from_str(&set.metadata).unwrap_or_default();
    let before = status.raw.as_deref().and_then(|it| serde_json::from_str(it).ok());
    let mut fields = match before {
        Some(Value::Object(fields)) => fields,
        _ => Map::new(),
    };
    let counts = &status.counts;
    let always = [
        ("currentNumberScheduled", counts.current),
        ("numberMisscheduled", counts.misscheduled),
        ("desiredNumberScheduled", counts.desired),
        ("numberReady", counts.ready),
    ];
    let unless_zero = [
        ("observedGeneration", status.observed_generation),
        ("updatedNumberScheduled", counts.updated),
        ("numberAvailable", counts.available),
        ("numberUnavailable", counts.unavailable),
    ];
    for (name, count) in always {
        fields.insert(name.to_string(), count.into());
    }
    for (name, count) in unless_zero {
        match count {
            0 => drop(fields.remove(name)),
            count => drop(fields.insert(name.to_string(), count.into())),
        }
    }
    if let Some(collisions) = status.collisions {
        fields.insert("collisionCount".to_string(), collisions.into());
    }
    let conditions = merge_conditions(fields.remove("conditions"), status);
    if !conditions.is_empty() {
        fields.insert("conditions".to_string(), conditions.into());
    }
    json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata, "status": fields})
}

/// Field manager of this controller's writes, except those with [`ASSIST_FIELD_MANAGER`]. The API server derives this
/// name from the user agent of the requests.
pub const CONTROLLER_FIELD_MANAGER: &str = "muster-controller";

/// Field manager of the DaemonSet conditions that the controller applies in assist mode, where upstream's DaemonSet
/// controller writes the rest of the status.
pub const ASSIST_FIELD_MANAGER: &str = "muster-assist";

/// Returns the body of a server-side apply request that writes conditions to the status of a DaemonSet.
///
/// Rule: in assist mode the controller applies only conditions, because upstream's controller writes the other fields
/// of the status. The UID makes the API server refuse the request for another DaemonSet with the same name. A condition
/// has the fields of `apps/v1` only, because the API server refuses to apply unknown fields. Without conditions, the
/// body has no status, so that the API server removes the conditions that were applied before.
fn applied_conditions_body(set: Owner<'_>, conditions: &[Condition]) -> Value {
    let metadata = json!({"namespace": set.namespace, "name": set.name, "uid": set.uid});
    let mut body = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata});
    if !conditions.is_empty() {
        let conditions: Vec<Value> = conditions.iter().map(applied_condition).collect();
        body["status"] = json!({"conditions": conditions});
    }
    body
}

/// Returns the JSON of one condition in a server-side apply request.
fn applied_condition(condition: &Condition) -> Value {
    let mut body = json!({
        "type": condition.kind.as_str(),
        "status": condition.status.as_str(),
        "reason": condition.reason.as_ref(),
        "message": condition.message.as_ref(),
    });
    if let Some(since) = condition.since {
        body["lastTransitionTime"] = since.to_rfc3339().into();
    }
    body
}

/// Returns the `conditions` of the status to write. `before` is the value of `conditions` in the stored status.
///
/// Rule: a condition of this controller that is already stored keeps its position in the list. The controller's new
/// conditions are appended. A stored condition of this controller that `status` does not have is removed. Conditions of
/// other writers are not changed.
fn merge_conditions(before: Option<Value>, status: &Status) -> Vec<Value> {
    let before = match before {
        Some(Value::Array(conditions)) => conditions,
        _ => Vec::new(),
    };
    let ours = |it: &Value| it["type"].as_str().and_then(ConditionType::parse);
    let mut left: Vec<&Condition> = status.conditions.iter().collect();
    let mut conditions = Vec::new();
    for condition in before {
        match ours(&condition) {
            None => conditions.push(condition),
            Some(kind) => {
                let at = left.iter().position(|it| it.kind == kind);
                conditions.extend(at.map(|at| condition_body(left.remove(at), Some(&condition), status)));
            }
        }
    }
    conditions.extend(left.into_iter().map(|it| condition_body(it, None, status)));
    conditions
}

/// Returns the JSON of one condition. `before` is the stored condition of the same type, `None` if there is none.
/// Unknown fields of `before` are kept.
fn condition_body(condition: &Condition, before: Option<&Value>, status: &Status) -> Value {
    let mut fields = before.and_then(Value::as_object).cloned().unwrap_or_default();
    let mut put = |name: &str, value: Value| drop(fields.insert(name.to_string(), value));
    put("type", condition.kind.as_str().into());
    put("status", condition.status.as_str().into());
    put("reason", condition.reason.as_ref().into());
    put("message", condition.message.as_ref().into());
    put("observedGeneration", status.observed_generation.into());
    if let Some(since) = condition.since {
        put("lastTransitionTime", since.to_rfc3339().into());
    }
    fields.into()
}

/// Returns the body of a request that deletes an object.
///
/// Rule: the preconditions of a delete are the UID and resource version that the object had when the plan was made. So
/// neither another object with the same name nor another version of the object is deleted.
fn delete_options(uid: &str, resource_version: u64) -> Value {
    controller::delete_options(uid, Some(resource_version))
}

/// Returns the body of a request that evicts a pod.
///
/// Rule: an eviction has the same preconditions as a delete: the UID and resource version of the pod.
fn eviction_body(pod: &Pod) -> Value {
    json!({
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"namespace": pod.key.namespace.as_ref(), "name": pod.key.name.as_ref()},
        "deleteOptions": delete_options(&pod.uid, pod.resource_version),
    })
}

/// Returns the label selector of a DaemonSet as the value of the query parameter `labelSelector`, not percent-encoded.
/// `None` if the selector selects no pod.
pub fn label_selector_query(set: &Set) -> Option<String> {
    let Selector::Requirements(selector) = &set.selector else { return None };
    selector.to_query()
}

#[cfg(test)]
mod tests;
