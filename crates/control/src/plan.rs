//! `muster plan`: sends a DaemonSet as a dry run to get the object that the API server would store, reads the nodes and
//! pods, and calls the engine. Nothing is written.

use std::fmt;

use kube::Client;
use muster_api::object_key::ObjectKey;
use muster_api::well_known::JSON_MEDIA_TYPE;
use muster_engine::controller::{PatchFormat, Verb};
use muster_engine::daemonset::ControllerMode;
use muster_engine::daemonset::facts::Kind;
use muster_engine::explain::{Snapshot, SnapshotError};
use muster_engine::preview::{RolloutPreview, applied_object, merge_patch};
use muster_events::clock::now;
use serde_json::Value;

use crate::conflict_detection;
use crate::explain::{add_daemonset_to_snapshot, read_cluster_objects, read_pods_on_nodes, read_set};
use crate::read::{Permission, ReadError, get, send};
use crate::request::request;

/// A DaemonSet from a manifest file, whose rollout is to be previewed.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedSet {
    /// The `apiVersion` of the manifest.
    api_version: String,
    namespace: String,
    name: String,
    /// The manifest, with its namespace set.
    object: Value,
}

/// The variant of `kubectl apply` with which a manifest will be applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApplyMode {
    /// `kubectl apply`.
    ClientSide,
    /// `kubectl apply --server-side`; `force` is the flag `--force-conflicts`.
    ServerSide { force: bool },
}

/// API versions that have the kind DaemonSet. The first is the current one.
const DAEMONSET_API_VERSIONS: [&str; 3] = ["apps/v1", "apps/v1beta2", "extensions/v1beta1"];

/// Field manager of `kubectl apply`.
const CLIENT_SIDE_MANAGER: &str = "kubectl-client-side-apply";
/// Field manager of `kubectl apply --server-side`.
const SERVER_SIDE_MANAGER: &str = "kubectl";

/// Why the rollout of a manifest cannot be previewed.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    #[error("{kind} is not a DaemonSet")]
    OtherKind { kind: String },
    #[error("{api_version} has no DaemonSet: use {}", DAEMONSET_API_VERSIONS[0])]
    OtherVersion { api_version: String },
    #[error("metadata.name is missing or invalid")]
    NoName,
    #[error("namespace {namespace} does not exist: create it first")]
    NoNamespace { namespace: String },
    #[error("the API server would reject it: {message}")]
    Refused { message: String },
    #[error(transparent)]
    ReadError(#[from] ReadError),
}

impl PlannedSet {
    /// Returns the DaemonSet of a manifest. `namespace` is the default for a manifest without a namespace. Fails if the
    /// manifest has another kind, an API version without DaemonSets, or no valid name.
    pub fn from_manifest(mut object: Value, namespace: &str) -> Result<Self, PlanError> {
        let text = |at: &str| object.pointer(at).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (kind, api_version) = (text("/kind"), text("/apiVersion"));
        if kind != "DaemonSet" {
            let kind = if kind.is_empty() { "a document without a kind".to_owned() } else { kind };
            return Err(PlanError::OtherKind { kind });
        }
        if !DAEMONSET_API_VERSIONS.contains(&api_version.as_str()) {
            return Err(PlanError::OtherVersion { api_version });
        }
        let name = text("/metadata/name");
        if name.is_empty() || name.contains('/') {
            return Err(PlanError::NoName);
        }
        let explicit = text("/metadata/namespace");
        let namespace = if explicit.is_empty() { namespace.to_owned() } else { explicit };
        object["metadata"]["namespace"] = namespace.clone().into();
        Ok(Self { api_version, namespace, name, object })
    }

    /// Returns the URL path of the DaemonSets in the namespace.
    fn collection_path(&self) -> String {
        format!("/apis/{}/namespaces/{}/daemonsets", self.api_version, self.namespace)
    }

    /// Returns the permission to use this verb on DaemonSets of the namespace, for error messages.
    fn permission<'a>(&'a self, verb: &'a str) -> Permission<'a> {
        Permission { verb, kind: Kind::Sets, namespace: Some(&self.namespace) }
    }
}

impl fmt::Display for PlannedSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Previews the rollout that `kubectl apply` of the manifest would start. Nothing is written.
pub async fn plan(
    client: &Client,
    planned: &PlannedSet,
    mode: ApplyMode,
) -> Result<RolloutPreview, PlanError> {
    let (namespace, name) = (planned.namespace.as_str(), planned.name.as_str());
    let mut snapshot = Snapshot::new(ObjectKey::new(namespace, name));
    let live = read_set(client, namespace, name).await?;
    let after = dry_run_apply(client, planned, live.as_deref(), mode).await?;
    if let Some(live) = &live {
        add_daemonset_to_snapshot(&mut snapshot, namespace, live)?;
        read_cluster_objects(client, &mut snapshot, namespace).await?;
        add_daemonset_to_snapshot(&mut snapshot, namespace, &after)?;
        add_other_controller_note(&mut snapshot);
    } else {
        add_daemonset_to_snapshot(&mut snapshot, namespace, &after)?;
        read_cluster_objects(client, &mut snapshot, namespace).await?;
    }
    let gone = |SnapshotError::NoSuchSet| PlanError::NoName;
    let first = snapshot.preview_rollout(now()).map_err(gone)?;
    let nodes = first.nodes_to_check_fit(&snapshot).iter().map(ToString::to_string).collect();
    read_pods_on_nodes(client, &mut snapshot, &nodes).await?;
    snapshot.preview_rollout(now()).map_err(gone)
}

/// Adds a note for the user if another controller replaces the pods of the DaemonSet, because that controller may
/// update nodes in a different order. In assist mode Muster replaces the pods, so there is no note, unless assist mode
/// refuses the DaemonSet.
fn add_other_controller_note(snapshot: &mut Snapshot) {
    if snapshot.controller_mode() == ControllerMode::Assist && !snapshot.is_refused_in_assist_mode() {
        return;
    }
    let writer = snapshot.set().and_then(|it| conflict_detection::last_status_writer_name(&it.metadata));
    if let Some(writer) = writer.filter(|it| it != crate::CONTROLLER_NAME) {
        snapshot.add_note(format!(
            "{writer} runs this DaemonSet, in an unknown order of nodes; docs/differences.md lists other differences"
        ));
    }
}

/// Applies the manifest as a dry run. Returns the DaemonSet that the API server would store, with defaults, as JSON.
/// `live` is the existing DaemonSet, `None` if there is none.
async fn dry_run_apply(
    client: &Client,
    planned: &PlannedSet,
    live: Option<&str>,
    mode: ApplyMode,
) -> Result<String, PlanError> {
    let path = format!("{}/{}", planned.collection_path(), planned.name);
    let options = |manager: &str| format!("dryRun=All&fieldManager={manager}&fieldValidation=Strict");
    let (verb, path, body) = match (live, mode) {
        (_, ApplyMode::ServerSide { force }) => {
            let query = format!("{}&force={force}", options(SERVER_SIDE_MANAGER));
            (Verb::Patch(PatchFormat::Apply), format!("{path}?{query}"), planned.object.to_string())
        }
        (None, ApplyMode::ClientSide) => {
            let path = format!("{}?{}", planned.collection_path(), options(CLIENT_SIDE_MANAGER));
            (Verb::Create, path, planned.object.to_string())
        }
        (Some(live), ApplyMode::ClientSide) => {
            // The live object must have the API version of the manifest.
            let live = match planned.api_version.as_str() {
                "apps/v1" => live.to_owned(),
                _ => get(client, planned.permission("get"), path.clone()).await?,
            };
            let before: Value = serde_json::from_str(&live).map_err(|source| ReadError::Unreadable {
                operation: format!("read the DaemonSet {planned}"),
                source: source.into(),
            })?;
            let Some(mut patch) = merge_patch(&before, &applied_object(&before, &planned.object)) else {
                return Ok(live);
            };
            // The patch must apply to the object that it was computed from.
            patch["metadata"]["resourceVersion"] = before["metadata"]["resourceVersion"].clone();
            let path = format!("{path}?{}", options(CLIENT_SIDE_MANAGER));
            (Verb::Patch(PatchFormat::Merge), path, patch.to_string())
        }
    };
    let permission = planned.permission(verb.as_str());
    send(client, permission, request(verb, path, JSON_MEDIA_TYPE, body)).await.map_err(|error| match error {
        ReadError::Refused { code: 404, message, .. } if message.contains("namespaces") => {
            PlanError::NoNamespace { namespace: planned.namespace.clone() }
        }
        ReadError::Refused { code: 400..500, message, .. } => {
            PlanError::Refused { message: relevant_message(&message) }
        }
        error => error.into(),
    })
}

/// Returns the relevant part of an error message of the API server. For an unknown field the message starts with the
/// whole object, so only the strict decoding error at its end is kept. A long message is cut.
fn relevant_message(message: &str) -> String {
    /// Maximum length of the message in characters.
    const MESSAGE_CHARS_MAX: usize = 1000;
    let from = message.find("strict decoding error").unwrap_or(0);
    message.get(from..).unwrap_or(message).chars().take(MESSAGE_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use serde_json::json;

    use super::*;

    #[test]
    fn only_named_daemonsets_of_known_api_versions_are_accepted() {
        let results = [
            json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "web"}}),
            json!({"apiVersion": "extensions/v1beta1", "kind": "DaemonSet", "metadata": {"name": "web", "namespace": "b"}}),
            json!({"apiVersion": "v1", "kind": "DaemonSet", "metadata": {"name": "web"}}),
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}}),
            json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"generateName": "web-"}}),
            json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "../../secrets"}}),
            json!({}),
            json!([]),
            json!(null),
        ]
        .map(|it| PlannedSet::from_manifest(it, "a").map_or_else(|it| it.to_string(), |it| it.to_string()));
        expect![[r#"
            a/web
            b/web
            v1 has no DaemonSet: use apps/v1
            Deployment is not a DaemonSet
            metadata.name is missing or invalid
            metadata.name is missing or invalid
            a document without a kind is not a DaemonSet
            a document without a kind is not a DaemonSet
            a document without a kind is not a DaemonSet"#]]
        .assert_eq(&results.join("\n"));
    }
}
