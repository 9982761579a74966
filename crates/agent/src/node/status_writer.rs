//! Writes the status of one pod to the API server, and finally deletes the pod there.

use std::time::Duration;

use http::{Method, Request, header};
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use muster_api::well_known::{JSON_MEDIA_TYPE, STRATEGIC_MERGE_PATCH_MEDIA_TYPE};
use muster_engine::kubelet::pod::ActionOutcome;
use serde_json::{Value, json};

use super::executor::failed_outcome;
use super::pod_manager::{PodEntry, PodSource};
use super::sandbox;

/// Timeout for a response of the API server. A write without a response counts as failed and is retried later.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);

/// Writes the status of one pod to the API server, and deletes the pod.
pub(super) struct StatusWriter<'a> {
    pub client: &'a Client,
    pub entry: &'a PodEntry,
    pub pod: &'a Pod,
}

impl StatusWriter<'_> {
    /// Patches the status of the pod. For a static pod, patches the status of its mirror pod, and fails while the
    /// mirror pod does not exist. Does nothing for an orphan.
    pub(super) async fn patch_status(&self, mut patch: Value) -> ActionOutcome {
        let (name, namespace, uid) = sandbox::pod_ids(self.pod);
        let uid = match self.entry.source {
            PodSource::Api => uid.to_owned(),
            PodSource::Orphan => return ActionOutcome::Done,
            PodSource::Static => match self.entry.snapshot().mirror_uid {
                Some(uid) => uid,
                None => return failed_outcome("NoMirror", "the mirror pod does not exist yet"),
            },
        };
        // A newer pod of the same name is not patched.
        patch["metadata"]["uid"] = json!(uid);
        let request = Request::builder()
            .method(Method::PATCH)
            .uri(format!("/api/v1/namespaces/{namespace}/pods/{name}/status"))
            .header(header::CONTENT_TYPE, STRATEGIC_MERGE_PATCH_MEDIA_TYPE);
        self.send_request(request.body(patch.to_string().into_bytes())).await
    }

    /// Deletes the pod from the API server with grace period 0. All containers of the pod must have stopped.
    pub(super) async fn delete_pod(&self) -> ActionOutcome {
        let (name, namespace, uid) = sandbox::pod_ids(self.pod);
        let options = json!({
            "apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0, "preconditions": {"uid": uid},
        });
        let request = Request::builder()
            .method(Method::DELETE)
            .uri(format!("/api/v1/namespaces/{namespace}/pods/{name}"))
            .header(header::CONTENT_TYPE, JSON_MEDIA_TYPE);
        self.send_request(request.body(options.to_string().into_bytes())).await
    }

    /// Sends a request to the API server. For the deletion of a pod, the HTTP statuses 404 and 409 count as success.
    async fn send_request(&self, request: http::Result<Request<Vec<u8>>>) -> ActionOutcome {
        let request = match request {
            Ok(request) => request,
            Err(error) => return failed_outcome("Invalid", error.to_string()),
        };
        let is_delete = request.method() == Method::DELETE;
        match tokio::time::timeout(RESPONSE_TIMEOUT, self.client.request_text(request)).await {
            Ok(Ok(_)) => ActionOutcome::Done,
            Ok(Err(kube::Error::Api(status))) if is_delete && matches!(status.code, 404 | 409) => {
                ActionOutcome::Done
            }
            Ok(Err(kube::Error::Api(status))) => failed_outcome(&status.reason, status.message.clone()),
            Ok(Err(error)) => failed_outcome("Unreachable", error.to_string()),
            Err(_) => failed_outcome("Unreachable", "the API server does not respond"),
        }
    }
}
