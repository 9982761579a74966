//! Every pod of a namespace that ever existed during a test, from a watch without gaps.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::{Arc, Mutex};

use futures::{AsyncBufReadExt as _, StreamExt as _};
use http::{Method, Request};
use kube::Client;
use serde_json::Value;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::bed::{items, name, readiness, send, target_node};

/// A daemon pod, as it was seen last.
#[derive(Debug, Clone)]
pub(crate) struct SeenPod {
    pub(crate) uid: String,
    pub(crate) name: String,
    pub(crate) node: String,
    pub(crate) image: String,
    pub(crate) is_ready: bool,
}

/// Records pods in the background until all its clones are dropped.
#[derive(Clone)]
pub(crate) struct PodHistory {
    record: Arc<Mutex<Record>>,
    _stop: Arc<DropGuard>,
}

#[derive(Debug, Default)]
struct Record {
    /// Pods that exist now, by UID.
    present: BTreeMap<String, SeenPod>,
    /// Nodes of all pods that ever existed, by image.
    nodes_by_image: BTreeMap<String, BTreeSet<String>>,
    /// Why the history has a gap.
    gap: Option<String>,
}

impl PodHistory {
    /// Starts to record the pods at this path. There are none yet.
    pub(crate) fn record(client: Client, path: &'static str) -> Self {
        let record = Arc::new(Mutex::new(Record::default()));
        let stop = CancellationToken::new();
        let (recorded, stopped) = (Arc::clone(&record), stop.clone());
        tokio::spawn(async move {
            let watching = watch(&client, path, |event| recorded.lock().unwrap().apply(event));
            tokio::select! {
                () = stopped.cancelled() => {}
                gap = watching => recorded.lock().unwrap().gap = Some(gap),
            }
        });
        Self { record, _stop: Arc::new(stop.drop_guard()) }
    }

    /// Panics if events were lost.
    #[track_caller]
    pub(crate) fn assert_complete(&self) {
        let gap = self.record.lock().unwrap().gap.clone();
        assert_eq!(gap, None, "the history of pods has a gap");
    }

    pub(crate) fn present(&self) -> Vec<SeenPod> {
        self.record.lock().unwrap().present.values().cloned().collect()
    }

    /// Returns the nodes that ever had a pod with this image, bound or not.
    pub(crate) fn nodes_with(&self, image: &str) -> BTreeSet<String> {
        self.record.lock().unwrap().nodes_by_image.get(image).cloned().unwrap_or_default()
    }

    /// Returns the image of the pod of each node. A node has no entry if its pod is not Ready, and the images of all
    /// its pods if it has several.
    pub(crate) fn ready_images(&self) -> BTreeMap<String, String> {
        let mut images: BTreeMap<String, String> = BTreeMap::new();
        for pod in self.present().into_iter().filter(|it| it.is_ready) {
            let of_node = images.entry(pod.node).or_default();
            of_node.push_str(if of_node.is_empty() { "" } else { ", " });
            of_node.push_str(&pod.image);
        }
        images
    }
}

/// Passes every event of the objects at this path on. There are no objects yet. Returns only if events were lost, and
/// why.
pub(crate) async fn watch(client: &Client, path: &str, mut apply: impl FnMut(&Value)) -> String {
    let list = match send(client, Method::GET, path, &Value::Null).await {
        Ok(list) => list,
        Err(error) => return format!("list: {error}"),
    };
    let mut version = list["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
    if !items(list).is_empty() {
        return "there were objects before the first event".to_owned();
    }
    loop {
        let query = format!("{path}?watch=true&allowWatchBookmarks=true&resourceVersion={version}");
        let stream = match client.request_stream(Request::get(query).body(Vec::new()).unwrap()).await {
            Ok(stream) => stream,
            Err(kube::Error::Api(status)) if status.code == 410 => return status.to_string(),
            // A server that is busy: the next watch continues at the same version.
            Err(_) => {
                tokio::time::sleep(std::time::Duration::from_millis(200)).await;
                continue;
            }
        };
        let mut lines = pin!(stream.lines());
        // The server ends a watch after some minutes.
        while let Some(Ok(line)) = lines.next().await {
            let event: Value = match serde_json::from_str(&line) {
                Ok(event) => event,
                Err(error) => return format!("{error}: {line}"),
            };
            if event["type"] == "ERROR" {
                return event["object"].to_string();
            }
            if let Some(seen) = event["object"]["metadata"]["resourceVersion"].as_str() {
                seen.clone_into(&mut version);
            }
            apply(&event);
        }
    }
}

impl Record {
    fn apply(&mut self, event: &Value) {
        let pod = &event["object"];
        let uid = pod["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        match event["type"].as_str() {
            Some("ADDED" | "MODIFIED") => {
                let image = pod["spec"]["containers"][0]["image"].as_str().unwrap_or_default().to_owned();
                let node = target_node(pod);
                self.nodes_by_image.entry(image.clone()).or_default().insert(node.clone());
                let is_ready = readiness(pod) == "Ready";
                let seen = SeenPod { uid: uid.clone(), name: name(pod), node, image, is_ready };
                self.present.insert(uid, seen);
            }
            Some("DELETED") => drop(self.present.remove(&uid)),
            _ => {}
        }
    }
}
