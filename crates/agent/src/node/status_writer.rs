//! Writes to the API server for one pod: its status, and its deletion at the end.

use std::time::Duration;

use http::{Method, Request, header};
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use muster_engine::kubelet::pod::Outcome;
use serde_json::{Value, json};

use super::executor::failed;
use super::pod_manager::{Entry, Source};
use super::sandbox;

/// Time for the API server to respond; a write that takes longer has failed and is retried later.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// Writes the status of one pod to the API server, and deletes the pod.
pub(super) struct StatusWriter<'a> {
    pub client: &'a Client,
    pub entry: &'a Entry,
    pub pod: &'a Pod,
}

impl StatusWriter<'_> {
    /// Patches the status of the pod, or of its mirror pod.
    pub(super) async fn patch(&self, mut patch: Value) -> Outcome {
        let (name, namespace, uid) = sandbox::ids(self.pod);
        let uid = match self.entry.source {
            Source::Api => uid.to_owned(),
            Source::Orphan => return Outcome::Done,
            Source::Static => match self.entry.shown().mirror {
                Some(uid) => uid,
                None => return failed("NoMirror", "the mirror pod does not exist yet"),
            },
        };
        // A newer pod of the same name is not patched.
        patch["metadata"]["uid"] = json!(uid);
        let request = Request::builder()
            .method(Method::PATCH)
            .uri(format!("/api/v1/namespaces/{namespace}/pods/{name}/status"))
            .header(header::CONTENT_TYPE, "application/strategic-merge-patch+json");
        self.send(request.body(patch.to_string().into_bytes())).await
    }

    pub(super) async fn delete_pod(&self) -> Outcome {
        let (name, namespace, uid) = sandbox::ids(self.pod);
        let options = json!({
            "apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0, "preconditions": {"uid": uid},
        });
        let request = Request::builder()
            .method(Method::DELETE)
            .uri(format!("/api/v1/namespaces/{namespace}/pods/{name}"))
            .header(header::CONTENT_TYPE, "application/json");
        self.send(request.body(options.to_string().into_bytes())).await
    }

    /// Sends a request. The deletion of a pod that is already gone succeeds.
    async fn send(&self, request: http::Result<Request<Vec<u8>>>) -> Outcome {
        let request = match request {
            Ok(request) => request,
            Err(error) => return failed("Invalid", error.to_string()),
        };
        let is_delete = request.method() == Method::DELETE;
        match tokio::time::timeout(ANSWER_WITHIN, self.client.request_text(request)).await {
            Ok(Ok(_)) => Outcome::Done,
            Ok(Err(kube::Error::Api(status))) if is_delete && matches!(status.code, 404 | 409) => {
                Outcome::Done
            }
            Ok(Err(kube::Error::Api(status))) => failed(&status.reason, status.message.clone()),
            Ok(Err(error)) => failed("Unreachable", error.to_string()),
            Err(_) => failed("Unreachable", "the API server does not respond"),
        }
    }
}
