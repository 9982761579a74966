//! The eviction manager: measures the node's resources, reports pressure, removes unused images, rotates logs, evicts
//! pods, and sets the CPU shares of the QoS cgroups.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1 as core;
use kube::ResourceExt as _;
use muster_api::core_v1::PodPhase;
use muster_api::object_key::ObjectKey;
use muster_api::resources::{ResourceQuantities, spec_total_with_overhead};
use muster_api::text::Text;
use muster_api::well_known::DEFAULT_TERMINATION_GRACE_PERIOD_S;
use muster_engine::controller::{EventRecord, KubeEvent, ObjectReference};
use muster_engine::kubelet::eviction::{
    self, ContainerUsage, CrossedThreshold, EvictionCandidate, EvictionResource, ThresholdMonitor,
};
use muster_engine::kubelet::image_gc::{self, ImageGc, ImageGcPolicy};
use muster_engine::kubelet::pod::PodTermination;
use tokio::time::{Instant, sleep};

use super::ephemeral_storage::StorageLimitChecker;
use super::measure::{self, FilesystemUsage};
use super::stats::{ContainerStats, PodStats};
use super::{log_rotation, node_reference};
use crate::clock::now;
use crate::node::{NodeAgent, cgroup};
use crate::parsed_pod::{ParsedPod, PodContainer};
use crate::runtime::Runtime;

/// Maximum interval between two image garbage collections. The interval is six times
/// `EvictionAndGcConfig::check_interval`, but at most this long.
const IMAGE_GC_INTERVAL_MAX: Duration = Duration::from_secs(60);

/// Maximum time that the eviction manager waits for an evicted pod to terminate, before it evicts another pod.
/// Upstream: `podCleanupTimeout`.
const POD_CLEANUP_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval at which the eviction manager checks whether an evicted pod has terminated.
const POD_CLEANUP_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Runs the eviction manager and never returns. It needs the API server only for the first list of the node's pods,
/// before which it evicts no pod.
pub(super) async fn run<R: Runtime>(node: &Arc<NodeAgent<R>>) {
    EvictionManager { node }.run().await;
}

/// Reports the pressure conditions of a node, evicts its pods, removes unused images, rotates logs, and sets the CPU
/// shares of the QoS cgroups.
struct EvictionManager<'a, R> {
    node: &'a NodeAgent<R>,
}

impl<R: Runtime> EvictionManager<'_, R> {
    /// Checks eviction thresholds, the limits of pods, and logs at intervals of `EvictionAndGcConfig::check_interval`,
    /// and images at longer intervals. Never returns.
    async fn run(&self) {
        let config = &self.node.config.eviction_and_gc;
        let mut watcher =
            ThresholdMonitor::new(config.eviction_thresholds.clone(), config.pressure_transition_period);
        let mut garbage = ImageGc::default();
        let mut limit_checks = StorageLimitChecker::default();
        // The image filesystem is unknown until the runtime reports it.
        let mut images: Option<PathBuf> = None;
        let mut collected: Option<Instant> = None;
        loop {
            if collected.is_none_or(|it| IMAGE_GC_INTERVAL_MAX.min(config.check_interval * 6) <= it.elapsed())
            {
                collected = Some(Instant::now());
                images = self.image_dir().await.or(images);
                if let Some(images) = &images {
                    self.remove_unused_images(&mut garbage, ImageGcGoal::LowerDiskUsage(images)).await;
                }
            }
            if images.is_none() {
                images = self.image_dir().await;
            }
            let images = images.as_deref();
            let (pressures, crossed) = watcher.observe(&self.measure_signals(images), now());
            self.node.state.set_pressures(pressures);
            self.set_qos_cpu_shares();
            // A pod that is evicted for its own limit may free what is missing.
            let has_evicted = self.evict_pods_over_limits(&mut limit_checks).await;
            if let Some(crossed) = crossed.filter(|_| !has_evicted) {
                self.reclaim_resource(crossed, &watcher, &mut garbage, images).await;
            }
            let log_dir = self.node.config.var_log.join("pods");
            log_rotation::rotate_logs(
                &*self.node.runtime,
                &log_dir,
                config.log_bytes_max,
                config.log_files_max,
            )
            .await;
            sleep(config.check_interval).await;
        }
    }

    /// Measures the eviction signals. `images` is the directory of the image filesystem, or `None` if it is unknown.
    fn measure_signals(&self, images: Option<&Path>) -> eviction::SignalObservations {
        measure::measure_signals(&self.node.config.root_dir, images)
    }

    /// Returns the directory of the image filesystem, or `None` if the runtime does not report it.
    async fn image_dir(&self) -> Option<PathBuf> {
        let found = self.node.runtime.image_fs_info().await.ok()?;
        Some(PathBuf::from(&found.first()?.fs_id.as_ref()?.mountpoint))
    }

    /// Updates the CPU shares of the cgroups of the QoS classes. Does nothing until the pods of the API server were
    /// listed.
    fn set_qos_cpu_shares(&self) {
        let Some(pods) = self.active_pods() else { return };
        let pods = pods.iter().map(|it| &**it);
        if let Err(error) = cgroup::set_qos_cpu_shares(&self.node.config.cgroup_parent, pods) {
            tracing::debug!(node = self.node.config.name, %error, "cannot set the CPU shares of the QoS classes");
        }
    }

    /// Evicts the pods that exceed their own ephemeral storage limits, daemon pods included. Static and critical pods,
    /// and pods that are already being deleted, are not evicted. Waits for the evicted pods to terminate. Returns
    /// whether a pod was evicted.
    async fn evict_pods_over_limits(&self, limit_checks: &mut StorageLimitChecker) -> bool {
        let Some(pods) = self.active_pods() else { return false };
        let is_evictable =
            |it: &ParsedPod| it.metadata.deletion_timestamp.is_none() && !it.candidate.is_critical();
        let pods: Vec<_> = pods.into_iter().filter(|it| is_evictable(it)).collect();
        let over = limit_checks
            .pods_over_limit(self.node, &pods, self.node.config.eviction_and_gc.check_interval)
            .await;
        for (pod, limit, message) in &over {
            self.evict_pod(pod, limit.name(), message, eviction::HARD_EVICTION_GRACE_PERIOD, false);
        }
        for (pod, ..) in &over {
            self.wait_for_pod_cleanup(&pod.uid().unwrap_or_default()).await;
        }
        !over.is_empty()
    }

    /// Reclaims the resource of an eviction threshold that is met. If the resource is disk space or inodes, removes
    /// unused images first, and stops if no threshold is met after that. Then evicts at most one pod, and waits for it
    /// to terminate.
    async fn reclaim_resource(
        &self,
        crossed: CrossedThreshold,
        watcher: &ThresholdMonitor,
        garbage: &mut ImageGc,
        images: Option<&Path>,
    ) {
        let resource = crossed.resource();
        tracing::warn!(
            node = self.node.config.name,
            signal = crossed.signal.name(),
            available = crossed.available,
            least = crossed.threshold,
            "an eviction threshold is met: the node is short of {resource}"
        );
        let message = format!("Attempting to reclaim {resource}");
        self.record_event(
            node_reference(&self.node.config.name),
            KubeEvent::warning("EvictionThresholdMet", message),
        );
        if resource.is_on_disk() {
            self.remove_unused_images(garbage, ImageGcGoal::RemoveAllUnused).await;
            let mut again = watcher.clone();
            if again.observe(&self.measure_signals(images), now()).1.is_none() {
                tracing::info!(
                    node = self.node.config.name,
                    "removing unused images freed enough disk space"
                );
                return;
            }
        }
        let Some(pods) = self.active_pods() else { return };
        // Pods without stats rank first, so without a response of the runtime no pod is chosen.
        let summary = match self.node.stats.summary().await {
            Ok(summary) => summary,
            Err(error) => {
                tracing::warn!(node = self.node.config.name, %error, "cannot rank pods for eviction");
                return;
            }
        };
        let stats = |pod: &core::Pod| {
            summary.pods.iter().find(|it| Some(it.pod_ref.uid.as_str()) == pod.uid().as_deref())
        };
        let candidates: Vec<EvictionCandidate> = pods
            .iter()
            .filter(|it| it.metadata.deletion_timestamp.is_none())
            .map(|pod| eviction_candidate(pod, stats(pod), resource))
            .collect();
        let Some(pod) = eviction::choose_pod_to_evict(crossed, &candidates) else {
            tracing::warn!(node = self.node.config.name, "no pod can be evicted");
            return;
        };
        let message = eviction::eviction_message(crossed, pod);
        let Some(object) = pods.iter().find(|it| it.uid().as_deref() == Some(&*pod.uid)) else { return };
        let own = object
            .spec
            .as_ref()
            .and_then(|it| it.termination_grace_period_seconds)
            .unwrap_or(DEFAULT_TERMINATION_GRACE_PERIOD_S);
        let own = Duration::from_secs(u64::try_from(own).unwrap_or(0));
        let grace = crossed.pod_grace_period(own, self.node.config.eviction_and_gc.eviction_grace_max);
        self.evict_pod(object, crossed.signal.name(), &message, grace, true);
        self.wait_for_pod_cleanup(&pod.uid).await;
    }

    /// Starts the termination of a pod and records the eviction. `signal` is the name of the eviction signal, or of the
    /// limit if the pod exceeded its own limit. If `is_disruption` is true, the pod gets the condition
    /// `DisruptionTarget`.
    fn evict_pod(
        &self,
        pod: &core::Pod,
        signal: &'static str,
        message: &str,
        grace: Duration,
        is_disruption: bool,
    ) {
        self.node.metrics.count_eviction(signal);
        tracing::warn!(pod = pod.name_any(), namespace = pod.namespace(), signal, message, "evicting a pod");
        self.record_event(
            pod_reference(pod),
            KubeEvent::warning(eviction::EVICTED_REASON, message.to_owned()),
        );
        let Some(entry) = self.node.pods.get(&pod.uid().unwrap_or_default()) else { return };
        entry.terminate(PodTermination {
            reason: eviction::EVICTED_REASON.into(),
            message: message.into(),
            grace: Some(grace),
            is_rejection: false,
            is_disruption,
        });
    }

    /// Waits until the pod with this UID has no ready sandbox, at most [`POD_CLEANUP_TIMEOUT`].
    async fn wait_for_pod_cleanup(&self, uid: &str) {
        let since = Instant::now();
        while since.elapsed() < POD_CLEANUP_TIMEOUT {
            sleep(POD_CLEANUP_POLL_INTERVAL).await;
            let runs = match self.node.runtime.list_sandboxes(Some(uid)).await {
                Ok(sandboxes) => sandboxes.iter().any(|it| it.state == 0),
                Err(_) => true,
            };
            if !runs {
                return;
            }
        }
    }

    /// Removes the unused images that the goal requires. Does nothing if the runtime does not respond.
    async fn remove_unused_images(&self, garbage: &mut ImageGc, goal: ImageGcGoal<'_>) {
        let (Ok(images), Ok(containers)) =
            (self.node.runtime.list_images().await, self.node.runtime.list_containers(None).await)
        else {
            return;
        };
        let names = |it: &crate::runtime::v1::Container| {
            let image = it.image.as_ref().map(|it| it.image.clone());
            image.into_iter().chain([it.image_ref.clone()]).collect::<Vec<_>>()
        };
        let in_use: BTreeSet<String> = containers.iter().flat_map(names).collect();
        let is_used = |it: &crate::runtime::v1::Image| {
            in_use.contains(&it.id)
                || it.repo_tags.iter().chain(&it.repo_digests).any(|it| in_use.contains(it))
        };
        let used: BTreeSet<Text> =
            images.iter().filter(|it| is_used(it)).map(|it| it.id.as_str().into()).collect();
        let images: Vec<image_gc::Image> = images
            .into_iter()
            .map(|it| image_gc::Image {
                id: it.id.into(),
                bytes: i64::try_from(it.size).unwrap_or(i64::MAX),
                is_from_registry: !it.repo_digests.is_empty(),
                is_pinned: it.pinned,
            })
            .collect();
        let at = now();
        garbage.observe(&images, &used, at);
        let config = &self.node.config.eviction_and_gc;
        let limits = ImageGcPolicy {
            high: config.image_gc_high_percent,
            low: config.image_gc_low_percent,
            age_min: config.image_age_min,
        };
        let unused: Vec<Text> = match goal {
            ImageGcGoal::RemoveAllUnused => {
                garbage.unused_images(&images, &used, Duration::ZERO, at).into_iter().map(|it| it.0).collect()
            }
            ImageGcGoal::LowerDiskUsage(dir) => match FilesystemUsage::read(dir) {
                Ok(FilesystemUsage { bytes, used: used_bytes, .. }) => {
                    let disk = image_gc::ImageFilesystem { bytes, used: used_bytes };
                    garbage.images_to_delete(&images, &used, disk, limits, at)
                }
                Err(_) => Vec::new(),
            },
        };
        for image in unused {
            tracing::info!(node = self.node.config.name, %image, "removing an unused image");
            if let Err(error) = self.node.runtime.remove_image(&image).await {
                tracing::warn!(node = self.node.config.name, %image, %error, "cannot remove an image");
            }
        }
    }

    /// Returns the admitted pods that have not terminated. Other pods are omitted, because their eviction would free
    /// nothing. Returns `None` until the pods of the API server were listed.
    fn active_pods(&self) -> Option<Vec<Arc<ParsedPod>>> {
        self.node.pods.mirror_pods()?;
        // A pod that ended before the agent started is not marked as ended until its first sync.
        let was_over = |it: &core::Pod| {
            let phase = it.status.as_ref().and_then(|it| it.phase.as_deref());
            phase.is_some_and(|it| PodPhase::parse(it).is_terminal())
        };
        let admitted = self.node.pods.all_pods().into_iter().filter(|it| it.is_admitted());
        let snapshots = admitted.map(|it| it.snapshot());
        Some(snapshots.filter(|it| !it.has_ended && !was_over(&it.object)).map(|it| it.object).collect())
    }

    /// Records a Kubernetes Event about the object `about`.
    fn record_event(&self, about: ObjectReference, event: KubeEvent) {
        self.node.recorder.record(EventRecord { about, event });
    }
}

/// The goal of an image garbage collection.
#[derive(Clone, Copy)]
enum ImageGcGoal<'a> {
    /// If the disk usage of the image filesystem has reached the high threshold, reduce it to the low threshold.
    LowerDiskUsage(&'a Path),
    /// Remove all unused images, because the node is short of disk space.
    RemoveAllUnused,
}

/// Returns the object reference for Events about a pod.
fn pod_reference(pod: &core::Pod) -> ObjectReference {
    ObjectReference::new(
        "v1",
        "Pod",
        ObjectKey::new(pod.namespace().unwrap_or_default(), pod.name_any()),
        pod.uid().unwrap_or_default().into(),
        0,
    )
}

/// Converts a pod to a candidate for the eviction rules, with its request and usage of the resource.
fn eviction_candidate(
    pod: &ParsedPod,
    stats: Option<&PodStats>,
    resource: EvictionResource,
) -> EvictionCandidate {
    let spec = pod.spec.as_ref();
    let name = match resource {
        EvictionResource::Memory => "memory",
        EvictionResource::EphemeralStorage => "ephemeral-storage",
        EvictionResource::Inodes | EvictionResource::Pids => "",
    };
    let amount =
        |of: &ResourceQuantities| of.get(name).map_or(0, |it| i64::try_from(it.units()).unwrap_or(i64::MAX));
    let bytes = |it: u64| i64::try_from(it).unwrap_or(i64::MAX);
    let usage_of = |of: PodContainer<'_>| {
        let name = of.container.name.as_str();
        let stats = stats.and_then(|it| it.containers.iter().find(|it| it.name == name));
        ContainerUsage {
            name: name.into(),
            request: amount(&of.requests()),
            usage: stats.map(|it| bytes(container_usage(it, resource))),
        }
    };
    let usage = stats.map(|it| match resource {
        EvictionResource::Memory => it.memory.working_set_bytes,
        EvictionResource::EphemeralStorage => it.ephemeral_storage.used_bytes,
        EvictionResource::Inodes => it.ephemeral_storage.inodes_used,
        EvictionResource::Pids => it.process_stats.as_ref().map_or(0, |it| it.process_count),
    });
    EvictionCandidate {
        uid: pod.uid().unwrap_or_default().into(),
        priority: spec.and_then(|it| it.priority).unwrap_or(0),
        is_static: pod.candidate.is_static,
        is_daemon: pod
            .owner_references()
            .iter()
            .any(|it| it.controller == Some(true) && it.kind == "DaemonSet"),
        request: amount(&spec_total_with_overhead(&pod.json["spec"], "requests")),
        usage: usage.map(bytes),
        containers: pod.main_containers().chain(pod.init_containers()).map(usage_of).collect(),
    }
}

/// Returns a container's usage of the resource, in bytes or inodes. The usage of process IDs is always 0, because it is
/// not measured for each container.
fn container_usage(stats: &ContainerStats, resource: EvictionResource) -> u64 {
    match resource {
        EvictionResource::Memory => stats.memory.working_set_bytes,
        EvictionResource::EphemeralStorage => stats.rootfs.used_bytes + stats.logs.used_bytes,
        EvictionResource::Inodes => stats.rootfs.inodes_used + stats.logs.inodes_used,
        EvictionResource::Pids => 0,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Upstream: `GetResourceRequestQuantity`.
    #[test]
    fn the_request_of_a_pod_is_that_of_its_pod_level_with_its_overhead() {
        let request = |spec: Value| {
            let pod =
                ParsedPod::new(json!({"metadata": {"name": "web", "uid": "u1"}, "spec": spec})).unwrap();
            let candidate = eviction_candidate(&pod, None, EvictionResource::Memory);
            (candidate.request, candidate.containers.iter().map(|it| it.request).sum::<i64>())
        };
        let containers = json!([{"name": "a", "resources": {"requests": {"memory": "10"}}}]);
        let pod_level = json!({"requests": {"memory": "100"}});
        let overhead = json!({"memory": "1"});
        assert_eq!(request(json!({"containers": containers})), (10, 10));
        assert_eq!(request(json!({"containers": containers, "overhead": overhead})), (11, 10));
        assert_eq!(
            request(json!({"containers": containers, "resources": pod_level, "overhead": overhead})),
            (101, 10)
        );
        assert_eq!(request(json!({"containers": [{"name": "a"}], "overhead": overhead})), (0, 0));
    }
}
