//! Volumes as they are on disk: the tests compare whole directory trees. Tests that mount need root.

mod host_path;
mod payload;
mod removal;
mod sub_path;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use expect_test::{Expect, expect};
use http::{Request, Response, StatusCode};
use k8s_openapi::api::core::v1::{Pod, VolumeMount};
use kube::client::Body;
use muster_api::quantity::Quantity;
use muster_api::resources::ResourceQuantities;
use muster_engine::kubelet::downward_api::PodAddresses;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{VolumeManager, mount_table};
use crate::config::{Config, example};
use crate::references::PodReferenceClient;

/// A node's directory, and an API server that knows these objects, by their paths.
struct Bed {
    _dir: TempDir,
    root: PathBuf,
    volumes: VolumeManager,
    objects: Arc<Mutex<BTreeMap<String, Value>>>,
    tokens: Arc<AtomicU32>,
}

impl Bed {
    /// Needs root: volumes are mounted.
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let objects: Arc<Mutex<BTreeMap<String, Value>>> = Arc::default();
        let tokens: Arc<AtomicU32> = Arc::default();
        let (known, given) = (objects.clone(), tokens.clone());
        let answer = move |request: Request<Body>| {
            let (known, given) = (known.clone(), given.clone());
            async move {
                let path = request.uri().path().to_owned();
                let body = if path.ends_with("/token") {
                    let asked = request.into_body().collect_bytes().await.unwrap();
                    let asked: Value = serde_json::from_slice(&asked).unwrap();
                    let number = given.fetch_add(1, Ordering::Relaxed) + 1;
                    let bound = &asked["spec"]["boundObjectRef"]["uid"];
                    let token =
                        format!("token {number} of {path} for {} {bound}", asked["spec"]["audiences"]);
                    let lifetime_s = asked["spec"]["expirationSeconds"].as_i64().unwrap();
                    let expires = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(lifetime_s);
                    json!({"status": {"token": token, "expirationTimestamp": expires.to_string()}})
                } else {
                    let missing =
                        json!({"kind": "Status", "status": "Failure", "code": 404, "message": "not found"});
                    known.lock().unwrap().get(&path).cloned().unwrap_or(missing)
                };
                let code = body["code"].as_u64().unwrap_or(200) as u16;
                let answer = Response::builder().status(StatusCode::from_u16(code).unwrap());
                answer.body(Body::from(serde_json::to_vec(&body).unwrap()))
            }
        };
        let client = kube::Client::new(tower::service_fn(answer), "default");
        let var_log = root.join("var-log");
        fs::create_dir_all(&var_log).unwrap();
        let config = Config {
            root_dir: root.join("node"),
            host_path_mappings: vec![("/var/log".into(), var_log.clone())],
            var_log,
            ..example()
        };
        fs::create_dir_all(config.root_dir.join("pods")).unwrap();
        let volumes = VolumeManager::new(Arc::new(config), PodReferenceClient::new(client));
        Self { _dir: dir, root, volumes, objects, tokens }
    }

    fn put(&self, path: &str, object: Value) {
        self.objects.lock().unwrap().insert(format!("/api/v1/namespaces/shop/{path}"), object);
    }

    async fn prepare(&self, pod: &Pod) -> String {
        let node: ResourceQuantities =
            [("cpu".into(), Quantity::from_units(2)), ("memory".into(), Quantity::from_units(1 << 30))]
                .into();
        let json = serde_json::to_value(pod).unwrap();
        match self.volumes.prepare_volumes(pod, &json, PodAddresses::default(), &node).await {
            Ok(()) if self.volumes.are_volumes_final("u1") => "made, and settled".to_owned(),
            Ok(()) => "made".to_owned(),
            Err(why) => self.without_root(&why.to_string()),
        }
    }

    async fn mounts(&self, pod: &Pod) -> String {
        let env = [("POD".to_owned(), "web-1".to_owned()), ("UP".to_owned(), "../..".to_owned())].into();
        let mut told = String::new();
        for container in &pod.spec.as_ref().unwrap().containers {
            for (at, one) in container.volume_mounts.iter().flatten().enumerate() {
                // One at a time, so that the others are seen beside one that fails.
                let mut alone: Vec<VolumeMount> = container.volume_mounts.clone().unwrap();
                alone.truncate(at + 1);
                alone.drain(..at);
                match self
                    .volumes
                    .resolve_mounts(pod, &format!("{}-{at}", container.name), &alone, &env, false)
                    .await
                {
                    Err(why) => writeln!(told, "{}! {why}", one.mount_path).unwrap(),
                    Ok(mounts) => {
                        for it in mounts {
                            let mode = if it.readonly { "ro" } else { "rw" };
                            let propagation = it.propagation().as_str_name();
                            writeln!(told, "{} <- {} {mode} {propagation}", it.container_path, it.host_path)
                                .unwrap();
                        }
                    }
                }
            }
        }
        self.without_root(&told)
    }

    fn without_root(&self, text: &str) -> String {
        text.replace(self.root.to_str().unwrap(), "ROOT")
    }

    fn pod_dir(&self) -> PathBuf {
        self.root.join("node/pods/u1")
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        mount_table::unmount_below(&self.root).unwrap();
        super::removal::remove_pod_dir(&self.root).unwrap();
    }
}

fn pod(spec: Value) -> Pod {
    let metadata = json!({"name": "web-1", "namespace": "shop", "uid": "u1", "labels": {"app": "web"}});
    serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
}

/// All that is in a directory: kind and mode, owner and group, where links lead, what files hold.
fn tree(dir: &Path) -> String {
    let mut lines = Vec::new();
    look(dir, dir, &mut lines);
    lines.join("\n")
}

fn look(top: &Path, at: &Path, lines: &mut Vec<String>) {
    let mut entries: Vec<PathBuf> = fs::read_dir(at).unwrap().map(|it| it.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        let meta = fs::symlink_metadata(&path).unwrap();
        let name = path.strip_prefix(top).unwrap().to_str().unwrap();
        // `..2026_…` is the directory of now.
        let plain = |text: &str| {
            let of = |it: &str| {
                if it.starts_with("..2") { "..TIME".to_owned() } else { it.to_owned() }
            };
            text.split('/').map(of).collect::<Vec<_>>().join("/")
        };
        let (kind, what) = if meta.is_dir() {
            let fs = if mount_table::is_mounted(&path).unwrap() { " mounted" } else { "" };
            ('d', fs.to_owned())
        } else if meta.is_symlink() {
            ('l', format!(" -> {}", plain(fs::read_link(&path).unwrap().to_str().unwrap())))
        } else if meta.file_type().is_file() {
            ('f', format!(" {:?}", String::from_utf8_lossy(&fs::read(&path).unwrap())))
        } else {
            ('?', String::new())
        };
        lines.push(format!(
            "{kind}{:o} {}:{} {}{what}",
            meta.mode() & 0o7777,
            meta.uid(),
            meta.gid(),
            plain(name)
        ));
        if meta.is_dir() {
            look(top, &path, lines);
        }
    }
}

fn check(actual: &str, expected: Expect) {
    expected.assert_eq(actual);
}
