//! Tests of the worker with a runtime that only runs sandboxes.

use std::sync::{Mutex, PoisonError};

use kube::core::WatchEvent;
use serde_json::json;

use super::*;
use crate::config::{Config, example};
use crate::node::pod_manager::PodSource;
use crate::parsed_pod::tests::DECODED_PODS;
use crate::runtime::{ExitStream, RuntimeError, RuntimeErrorKind, RuntimeStatus, v1};

/// A runtime that runs sandboxes and refuses every other operation.
#[derive(Default)]
struct SandboxRuntime {
    /// UIDs of the pods whose sandboxes were run.
    run: Mutex<Vec<String>>,
}

/// Implements operations of the runtime, which are all refused.
macro_rules! refused_operations {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        $(async fn $name(&self, $($argument: $type),*) -> Result<$result, RuntimeError> {
            $(let _ = $argument;)*
            Err(RuntimeError {
                operation: stringify!($name),
                kind: RuntimeErrorKind::Refused,
                message: "not supported by the test".to_owned(),
            })
        })*
    };
}

impl Runtime for SandboxRuntime {
    async fn status(&self) -> Result<RuntimeStatus, RuntimeError> {
        Ok(RuntimeStatus::default())
    }

    async fn run_sandbox(&self, config: v1::PodSandboxConfig, _: &str) -> Result<String, RuntimeError> {
        let uid = config.metadata.map(|it| it.uid).unwrap_or_default();
        self.run.lock().unwrap_or_else(PoisonError::into_inner).push(uid);
        Ok("s1".to_owned())
    }

    refused_operations! {
        version() -> v1::VersionResponse;
        list_sandboxes(uid: Option<&str>) -> Vec<v1::PodSandbox>;
        sandbox_status(id: &str) -> v1::PodSandboxStatus;
        stop_sandbox(id: &str) -> ();
        remove_sandbox(id: &str) -> ();
        list_containers(uid: Option<&str>) -> Vec<v1::Container>;
        container_status(id: &str) -> v1::ContainerStatus;
        create_container(sandbox: &str, config: v1::ContainerConfig, sandbox_config: v1::PodSandboxConfig) -> String;
        start_container(id: &str) -> ();
        stop_container(id: &str, grace: Duration) -> ();
        remove_container(id: &str) -> ();
        update_resources(id: &str, resources: v1::LinuxContainerResources) -> ();
        reopen_log(id: &str) -> ();
        exec_sync(id: &str, command: &[String], timeout: Duration) -> v1::ExecSyncResponse;
        exec(request: v1::ExecRequest) -> String;
        attach(request: v1::AttachRequest) -> String;
        port_forward(sandbox: &str, ports: &[u16]) -> String;
        list_images() -> Vec<v1::Image>;
        image_status(name: &str) -> Option<v1::Image>;
        pull_image(name: &str, auth: Option<v1::AuthConfig>, sandbox_config: Option<v1::PodSandboxConfig>) -> String;
        remove_image(name: &str) -> ();
        image_fs_info() -> Vec<v1::FilesystemUsage>;
        container_stats(uid: Option<&str>) -> Vec<v1::ContainerStats>;
        pod_stats() -> Vec<v1::PodSandboxStats>;
        watch_exits() -> ExitStream;
    }
}

#[tokio::test]
async fn a_pod_is_parsed_once_between_the_watch_event_and_the_runtime() {
    let root = tempfile::tempdir().unwrap();
    let config = Config { root_dir: root.path().to_owned(), var_log: root.path().join("log"), ..example() };
    let answer =
        |_| std::future::ready(Ok::<_, std::io::Error>(http::Response::new(kube::client::Body::empty())));
    let client = kube::Client::new(tower::service_fn(answer), "default");
    let (recorder, _) = crate::node::event_recorder(client.clone(), "m1".to_owned());
    let runtime = Arc::new(SandboxRuntime::default());
    let node = NodeAgent::new(client, Arc::new(config), runtime.clone(), recorder, Arc::default());

    let event = json!({"type": "ADDED", "object": {
        "metadata": {"name": "web", "namespace": "shop", "uid": "u-1"},
        "spec": {
            "containers": [{"name": "main", "image": "web:1"}],
            "ephemeralContainers": [{"name": "debug", "image": "busybox"}],
        },
    }});
    let Ok(WatchEvent::Added(pod)) = serde_json::from_str::<WatchEvent<ParsedPod>>(&event.to_string()) else {
        panic!("the watch event has a pod");
    };
    let pod = Arc::new(pod);
    node.pods.upsert_pod(&node, PodSource::Api, pod.clone());
    let entry = node.pods.get("u-1").unwrap();
    let object = entry.snapshot().object;
    let worker = Worker::new(node.clone(), entry, object);
    let executor = worker.executor();
    assert!(Arc::ptr_eq(&executor.pod, &pod), "the actions are executed with the pod of the watch event");
    assert_eq!(executor.execute(Action::RunSandbox { attempt: 0 }).await, ActionOutcome::Done);
    node.stopping.cancel();
    assert_eq!(*runtime.run.lock().unwrap(), ["u-1"]);
    assert_eq!(DECODED_PODS.with(std::cell::Cell::get), 1, "number of times that the pod was decoded");
}
