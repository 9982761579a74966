//! Resource usage of the node, its pods and their containers, as in the kubelet's `/stats/summary`.
//!
//! Usage is measured only on request.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use muster_api::time::Time;
use serde::Serialize;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};

use super::measure::{self, FilesystemUsage, MachineMemory};
use crate::clock::now;
use crate::config::Config;
use crate::runtime::{Runtime, RuntimeError, label, v1};
use crate::volumes::{self, mount_table};

/// Time for which a measured summary is cached.
const CACHE_DURATION: Duration = Duration::from_secs(1);

/// Maximum age of the previous CPU sample from which a rate is computed. If there is none, or it is older, two new
/// samples are taken, [`RATE_WINDOW_MIN`] apart.
const RATE_WINDOW_MAX: Duration = Duration::from_secs(60);
/// Time between two CPU samples if no recent sample exists.
const RATE_WINDOW_MIN: Duration = Duration::from_secs(1);

/// Maximum number of files and directories that are counted in a directory tree. For a larger tree, the result is too
/// low.
const FILES_COUNTED_MAX: usize = 100_000;

/// Resource usage of the node and its pods. Upstream: `stats.Summary`.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StatsSummary {
    pub node: NodeStats,
    pub pods: Vec<PodStats>,
}

/// Resource usage of the node. An optional value is `None` if it cannot be measured. Upstream: `stats.NodeStats`.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeStats {
    pub node_name: String,
    /// Boot time of the machine, or the time of the measurement if the boot time cannot be read.
    pub start_time: String,
    pub cpu: CpuStats,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryStats>,
    /// Counters of the network interfaces in the node's network namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkStats>,
    /// Filesystem of the node's root directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fs: Option<FsStats>,
    pub runtime: RuntimeStats,
    /// Current and maximum number of processes and threads of the machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rlimit: Option<RlimitStats>,
}

/// Filesystems of the container runtime. A filesystem that cannot be measured is `None`. Upstream:
/// `stats.RuntimeStats`.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RuntimeStats {
    /// Filesystem that stores images.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_fs: Option<FsStats>,
    /// Filesystem that stores the writable layers of containers. The agent reports the values of `image_fs` here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container_fs: Option<FsStats>,
}

/// Current and maximum number of processes and threads. Upstream: `stats.RlimitStats`.
#[derive(Debug, Clone, Serialize)]
pub struct RlimitStats {
    pub time: String,
    /// Maximum number of processes and threads.
    pub maxpid: i64,
    /// Current number of processes and threads.
    pub curproc: i64,
}

/// Resource usage of a pod. Upstream: `stats.PodStats`.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodStats {
    pub pod_ref: PodReference,
    pub start_time: String,
    pub containers: Vec<ContainerStats>,
    pub cpu: CpuStats,
    pub memory: MemoryStats,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkStats>,
    /// Disk usage of the pod: its directory, and the logs and writable layers of its running containers.
    #[serde(rename = "ephemeral-storage")]
    pub ephemeral_storage: FsStats,
    #[serde(rename = "process_stats", skip_serializing_if = "Option::is_none")]
    pub process_stats: Option<ProcessStats>,
}

/// Name, namespace and UID of a pod. Upstream: `stats.PodReference`.
#[derive(Debug, Clone, Serialize, PartialEq, Eq, Hash)]
pub struct PodReference {
    pub name: String,
    pub namespace: String,
    pub uid: String,
}

/// Number of processes of a pod. Upstream: `stats.ProcessStats`.
#[derive(Debug, Clone, Serialize)]
pub struct ProcessStats {
    pub process_count: u64,
}

/// Resource usage of a container. Upstream: `stats.ContainerStats`.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerStats {
    pub name: String,
    pub start_time: String,
    pub cpu: CpuStats,
    pub memory: MemoryStats,
    /// Usage of the container's writable layer.
    pub rootfs: FsStats,
    /// Usage of the container's log files, including those of earlier instances.
    pub logs: FsStats,
}

/// CPU usage. Upstream: `stats.CPUStats`.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CpuStats {
    pub time: String,
    /// Average CPU usage since the previous sample, or since the start if there is none, in billionths of a core.
    pub usage_nano_cores: u64,
    /// Cumulative CPU time in nanoseconds.
    pub usage_core_nano_seconds: u64,
}

/// Memory usage. Upstream: `stats.MemoryStats`.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MemoryStats {
    pub time: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available_bytes: Option<u64>,
    pub usage_bytes: u64,
    pub working_set_bytes: u64,
    pub rss_bytes: u64,
    pub page_faults: u64,
    pub major_page_faults: u64,
}

/// Capacity of a filesystem, and the usage of all or a part of it. Upstream: `stats.FsStats`.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FsStats {
    pub time: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity_bytes: Option<u64>,
    pub used_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inodes_free: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inodes: Option<u64>,
    pub inodes_used: u64,
}

/// Counters of the network interfaces of the node or of a pod. Upstream: `stats.NetworkStats`.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NetworkStats {
    pub time: String,
    /// The interface of the default route, or the first interface if the default route is unknown.
    #[serde(flatten)]
    pub default: InterfaceStats,
    pub interfaces: Vec<InterfaceStats>,
}

/// Counters of one network interface. Upstream: `stats.InterfaceStats`.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InterfaceStats {
    pub name: String,
    pub rx_bytes: u64,
    pub rx_errors: u64,
    pub tx_bytes: u64,
    pub tx_errors: u64,
}

/// Measures the resource usage of the node and its pods.
#[derive(Debug)]
pub struct StatsProvider<R> {
    config: Arc<Config>,
    runtime: Arc<R>,
    /// The last measured summary. `None` before the first measurement, and after a measurement that failed. The lock is
    /// held while a new summary is measured.
    last: Mutex<Option<CachedSummary>>,
}

/// The last summary, and the CPU samples from which it was computed.
#[derive(Debug)]
struct CachedSummary {
    measured_at: Instant,
    summary: Arc<StatsSummary>,
    /// CPU samples by container ID or sandbox ID. The key of the node's sample is the empty string. A sample is a
    /// timestamp and the cumulative CPU time, both in nanoseconds.
    cpu_samples: HashMap<String, (i64, u64)>,
}

impl<R: Runtime> StatsProvider<R> {
    pub fn new(config: Arc<Config>, runtime: Arc<R>) -> Self {
        Self { config, runtime, last: Mutex::new(None) }
    }

    /// Returns the current resource usage, at most `CACHE_DURATION` old. Concurrent callers share one result. Without a
    /// recent CPU sample, the call takes at least `RATE_WINDOW_MIN`.
    pub async fn summary(&self) -> Result<Arc<StatsSummary>, RuntimeError> {
        let mut last = self.last.lock().await;
        if let Some(it) = last.as_ref().filter(|it| it.measured_at.elapsed() < CACHE_DURATION) {
            return Ok(it.summary.clone());
        }
        let before = match last.take().filter(|it| it.measured_at.elapsed() < RATE_WINDOW_MAX) {
            Some(it) => it.cpu_samples,
            None => {
                let first = self.collect_summary(HashMap::new()).await?;
                sleep(RATE_WINDOW_MIN).await;
                first.cpu_samples
            }
        };
        let collected = self.collect_summary(before).await?;
        let summary = collected.summary.clone();
        *last = Some(collected);
        Ok(summary)
    }

    /// Measures a new summary of the node, of the pods with a ready sandbox, and of their running containers. `before`
    /// has the CPU samples of the previous summary.
    async fn collect_summary(
        &self,
        before: HashMap<String, (i64, u64)>,
    ) -> Result<CachedSummary, RuntimeError> {
        let sandboxes = self.runtime.list_sandboxes(None).await?;
        let containers = self.runtime.container_stats(None).await?;
        // Runtimes without pod stats still have container stats.
        let pods = self.runtime.pod_stats().await.unwrap_or_default();
        let image_fs = self.runtime.image_fs_info().await.unwrap_or_default();
        let created: HashMap<String, i64> = self
            .runtime
            .list_containers(None)
            .await?
            .into_iter()
            .filter(|it| it.state == v1::ContainerState::ContainerRunning as i32)
            .map(|it| (it.id, it.created_at))
            .collect();

        let time = muster_events::clock::now().to_rfc3339();
        let mut collector =
            StatsCollector { time: time.clone(), previous_samples: before, new_samples: HashMap::new() };
        let image_path = image_fs.first().and_then(|it| it.fs_id.as_ref()).map(|it| it.mountpoint.clone());
        let images = image_path.and_then(|it| FilesystemUsage::read(Path::new(&it)).ok());
        let own = FilesystemUsage::read(&self.config.root_dir).ok();

        let mut by_sandbox: HashMap<String, v1::LinuxPodSandboxStats> =
            pods.into_iter().filter_map(|it| Some((it.attributes?.id, it.linux?))).collect();
        let mut by_pod: HashMap<String, Vec<v1::ContainerStats>> = HashMap::new();
        for stats in containers {
            let Some(attributes) = &stats.attributes else { continue };
            if let Some(uid) =
                attributes.labels.get(label::POD_UID).filter(|_| created.contains_key(&attributes.id))
            {
                by_pod.entry(uid.clone()).or_default().push(stats);
            }
        }

        let mut all = Vec::new();
        for sandbox in sandboxes {
            if sandbox.state != v1::PodSandboxState::SandboxReady as i32 {
                continue;
            }
            let Some(meta) = sandbox.metadata else { continue };
            let pod_ref = PodReference { name: meta.name, namespace: meta.namespace, uid: meta.uid };
            let mut of_pod = by_pod.remove(&pod_ref.uid).unwrap_or_default();
            of_pod.sort_by(|a, b| container_name(a).cmp(container_name(b)));
            let log_dir = self.config.log_dir(&pod_ref.namespace, &pod_ref.name, &pod_ref.uid);
            let mut containers = Vec::new();
            for stats in of_pod {
                let started =
                    stats.attributes.as_ref().and_then(|it| created.get(&it.id)).copied().unwrap_or(0);
                let logs = disk_usage(log_dir.join(container_name(&stats))).await;
                containers.push(collector.container_stats(stats, started, logs, images, own));
            }
            let linux = by_sandbox.remove(&sandbox.id);
            let volumes = disk_usage(self.config.pod_dir(&pod_ref.uid)).await;
            all.push(collector.pod_stats(
                pod_ref,
                &sandbox.id,
                sandbox.created_at,
                linux,
                containers,
                volumes,
                own,
            ));
        }
        all.sort_by(|a, b| {
            (&a.pod_ref.namespace, &a.pod_ref.name).cmp(&(&b.pod_ref.namespace, &b.pod_ref.name))
        });

        let images_used = image_fs.first().map_or(0, |it| value_or_zero(it.used_bytes));
        let node = NodeStats {
            node_name: self.config.name.clone(),
            start_time: measure::boot_time_s()
                .map_or_else(|| time.clone(), |it| Time::from_secs(it).to_rfc3339()),
            cpu: collector.cpu_stats(
                String::new(),
                now().as_micros() * 1000,
                measure::cpu_busy_nanos().unwrap_or(0),
                0,
            ),
            memory: MachineMemory::read().ok().map(|it| collector.node_memory_stats(it)),
            network: measure::network_stats().map(|(default, interfaces)| NetworkStats {
                time: time.clone(),
                default,
                interfaces,
            }),
            fs: own.map(|it| collector.fs_stats(Some(it), None)),
            runtime: RuntimeStats {
                image_fs: images.map(|it| collector.fs_stats(Some(it), Some((images_used, 0)))),
                container_fs: images.map(|it| collector.fs_stats(Some(it), Some((images_used, 0)))),
            },
            rlimit: measure::process_limit_and_count().map(|(maxpid, curproc)| RlimitStats {
                time,
                maxpid,
                curproc,
            }),
        };
        let summary = Arc::new(StatsSummary { node, pods: all });
        Ok(CachedSummary { measured_at: Instant::now(), summary, cpu_samples: collector.new_samples })
    }
}

/// Builds the stats of one summary. CPU rates are computed from the samples of the previous summary.
struct StatsCollector {
    /// Time of the measurement.
    time: String,
    /// CPU samples of the previous summary, see [`CachedSummary::cpu_samples`].
    previous_samples: HashMap<String, (i64, u64)>,
    /// CPU samples of this summary.
    new_samples: HashMap<String, (i64, u64)>,
}

impl StatsCollector {
    /// Records a new CPU sample under `sample_key`, and returns the CPU stats. `at` is the time of the new sample, and
    /// `since` is the start of the container or sandbox, both in nanoseconds. The CPU rate is the average since the
    /// previous sample. If there is no previous sample, it is the average since the start.
    fn cpu_stats(&mut self, sample_key: String, at: i64, cpu_nanos: u64, since: i64) -> CpuStats {
        // Without a previous sample, the rate is the average since the start.
        let (before, worked_before) = self.previous_samples.get(&sample_key).copied().unwrap_or((since, 0));
        let span = u128::try_from(at - before).unwrap_or(0);
        let work = u128::from(cpu_nanos.saturating_sub(worked_before));
        let rate = (work * 1_000_000_000).checked_div(span).unwrap_or(0);
        self.new_samples.insert(sample_key, (at, cpu_nanos));
        CpuStats {
            time: self.time.clone(),
            usage_nano_cores: u64::try_from(rate).unwrap_or(u64::MAX),
            usage_core_nano_seconds: cpu_nanos,
        }
    }

    /// Converts the memory usage from CRI. A missing value counts as zero, except that available memory that is missing
    /// or zero becomes `None`.
    fn memory_stats(&self, it: Option<v1::MemoryUsage>) -> MemoryStats {
        let it = it.unwrap_or_default();
        MemoryStats {
            time: self.time.clone(),
            available_bytes: it.available_bytes.map(|it| it.value).filter(|it| *it != 0),
            usage_bytes: value_or_zero(it.usage_bytes),
            working_set_bytes: value_or_zero(it.working_set_bytes),
            rss_bytes: value_or_zero(it.rss_bytes),
            page_faults: value_or_zero(it.page_faults),
            major_page_faults: value_or_zero(it.major_page_faults),
        }
    }

    /// Converts the memory usage of the machine to the stats of the node.
    fn node_memory_stats(&self, it: MachineMemory) -> MemoryStats {
        let bytes = |it: i64| u64::try_from(it).unwrap_or(0);
        MemoryStats {
            time: self.time.clone(),
            available_bytes: Some(bytes(it.available)),
            usage_bytes: bytes(it.usage),
            working_set_bytes: bytes(it.working_set()),
            rss_bytes: bytes(it.anonymous),
            ..MemoryStats::default()
        }
    }

    /// Returns the stats of the filesystem `disk`. If `disk` is `None`, the capacity, the available bytes, and the
    /// total and free inodes are unknown. If `used` is given, its bytes and inodes replace the usage of the whole
    /// filesystem. If both are `None`, the usage is 0.
    fn fs_stats(&self, disk: Option<FilesystemUsage>, used: Option<(u64, u64)>) -> FsStats {
        let count = |it: i64| u64::try_from(it).unwrap_or(0);
        let (used_bytes, inodes_used) = used
            .or_else(|| disk.map(|it| (count(it.used), count(it.inodes - it.inodes_free))))
            .unwrap_or_default();
        FsStats {
            time: self.time.clone(),
            available_bytes: disk.map(|it| count(it.available)),
            capacity_bytes: disk.map(|it| count(it.bytes)),
            used_bytes,
            inodes_free: disk.map(|it| count(it.inodes_free)),
            inodes: disk.map(|it| count(it.inodes)),
            inodes_used,
        }
    }

    /// Returns the stats of a container. `started` is its creation time in nanoseconds. `logs` is the disk usage of its
    /// logs in bytes and inodes. `images` is the image filesystem, and `own` is the filesystem of the node's root
    /// directory.
    fn container_stats(
        &mut self,
        stats: v1::ContainerStats,
        started: i64,
        logs: (u64, u64),
        images: Option<FilesystemUsage>,
        own: Option<FilesystemUsage>,
    ) -> ContainerStats {
        let name = container_name(&stats).to_owned();
        let id = stats.attributes.map(|it| it.id).unwrap_or_default();
        let cpu = stats.cpu.unwrap_or_default();
        let layer = stats.writable_layer.unwrap_or_default();
        ContainerStats {
            name,
            start_time: Time::from_micros(started / 1000).to_rfc3339(),
            cpu: self.cpu_stats(id, cpu.timestamp, value_or_zero(cpu.usage_core_nano_seconds), started),
            memory: self.memory_stats(stats.memory),
            rootfs: self
                .fs_stats(images, Some((value_or_zero(layer.used_bytes), value_or_zero(layer.inodes_used)))),
            logs: self.fs_stats(own, Some(logs)),
        }
    }

    /// Returns the stats of a pod. Without pod stats of the runtime (`linux`), CPU and memory are the sums over the
    /// containers. `created` is the creation time of the sandbox in nanoseconds. `volumes` is the disk usage of the
    /// pod's directory in bytes and inodes. `own` is the filesystem of the node's root directory.
    #[expect(clippy::too_many_arguments, reason = "the inputs of one pod's stats come from several sources")]
    fn pod_stats(
        &mut self,
        pod_ref: PodReference,
        sandbox: &str,
        created: i64,
        linux: Option<v1::LinuxPodSandboxStats>,
        containers: Vec<ContainerStats>,
        volumes: (u64, u64),
        own: Option<FilesystemUsage>,
    ) -> PodStats {
        let linux = linux.unwrap_or_default();
        let cpu = match linux.cpu {
            Some(it) => self.cpu_stats(
                sandbox.to_owned(),
                it.timestamp,
                value_or_zero(it.usage_core_nano_seconds),
                created,
            ),
            None => CpuStats {
                time: self.time.clone(),
                usage_nano_cores: containers.iter().map(|it| it.cpu.usage_nano_cores).sum(),
                usage_core_nano_seconds: containers.iter().map(|it| it.cpu.usage_core_nano_seconds).sum(),
            },
        };
        let memory = match linux.memory {
            Some(it) => self.memory_stats(Some(it)),
            None => MemoryStats {
                time: self.time.clone(),
                usage_bytes: containers.iter().map(|it| it.memory.usage_bytes).sum(),
                working_set_bytes: containers.iter().map(|it| it.memory.working_set_bytes).sum(),
                rss_bytes: containers.iter().map(|it| it.memory.rss_bytes).sum(),
                ..MemoryStats::default()
            },
        };
        let network = linux.network.and_then(|it| {
            Some(NetworkStats {
                time: self.time.clone(),
                default: interface_stats(it.default_interface.clone()?),
                interfaces: it
                    .default_interface
                    .into_iter()
                    .chain(it.interfaces)
                    .map(interface_stats)
                    .collect(),
            })
        });
        let of_containers = containers.iter().flat_map(|it| [&it.rootfs, &it.logs]);
        let (bytes, inodes) = of_containers
            .fold(volumes, |(bytes, inodes), it| (bytes + it.used_bytes, inodes + it.inodes_used));
        PodStats {
            pod_ref,
            start_time: Time::from_micros(created / 1000).to_rfc3339(),
            cpu,
            memory,
            network,
            ephemeral_storage: self.fs_stats(own, Some((bytes, inodes))),
            process_stats: linux
                .process
                .map(|it| ProcessStats { process_count: value_or_zero(it.process_count) }),
            containers,
        }
    }
}

/// Returns the disk usage of a directory tree in bytes and inodes. Mounts in the tree do not count, except emptyDir
/// volumes on the same filesystem. The entries of a directory that cannot be read do not count. At most
/// [`FILES_COUNTED_MAX`] entries are counted.
pub(super) async fn disk_usage(dir: PathBuf) -> (u64, u64) {
    tokio::task::spawn_blocking(move || walk_disk_usage(&dir)).await.unwrap_or_default()
}

/// Returns the disk usage of a directory tree in bytes and inodes, as [`disk_usage`] does. Blocks the thread.
fn walk_disk_usage(dir: &Path) -> (u64, u64) {
    use std::os::unix::fs::MetadataExt as _;
    let Ok(dir) = dir.canonicalize() else { return (0, 0) };
    let Ok(top) = dir.symlink_metadata() else { return (0, 0) };
    // Mounts count as elsewhere even on the same filesystem: a subPath of another volume, or a bind mount from
    // within a container.
    let mounts: BTreeSet<PathBuf> = mount_table::mounts_below(&dir).unwrap_or_default().into_iter().collect();
    let is_elsewhere = |it: &Path| mounts.contains(it) && !volumes::is_empty_dir_path(it);
    let (mut bytes, mut inodes) = (0, 0);
    let mut waiting = vec![dir];
    while let Some(dir) = waiting.pop() {
        let Ok(entries) = std::fs::read_dir(&dir) else { continue };
        for entry in entries.flatten() {
            // Metadata of the entry itself; symbolic links are not followed.
            let Ok(found) = entry.metadata() else { continue };
            if found.dev() != top.dev() || is_elsewhere(&entry.path()) {
                continue;
            }
            bytes += found.blocks() * 512;
            inodes += 1;
            if FILES_COUNTED_MAX <= inodes {
                return (bytes, inodes as u64);
            }
            if found.is_dir() {
                waiting.push(entry.path());
            }
        }
    }
    (bytes, inodes as u64)
}

/// Returns the name of the container in the pod spec, from the labels of its stats, or an empty string.
pub(super) fn container_name(stats: &v1::ContainerStats) -> &str {
    let name = stats.attributes.as_ref().and_then(|it| it.labels.get(label::CONTAINER_NAME));
    name.map(String::as_str).unwrap_or_default()
}

/// Returns the value of an optional CRI number, or 0.
fn value_or_zero(it: Option<v1::UInt64Value>) -> u64 {
    it.map_or(0, |it| it.value)
}

/// Converts the counters of a network interface from CRI.
fn interface_stats(it: v1::NetworkInterfaceUsage) -> InterfaceStats {
    InterfaceStats {
        name: it.name,
        rx_bytes: value_or_zero(it.rx_bytes),
        rx_errors: value_or_zero(it.rx_errors),
        tx_bytes: value_or_zero(it.tx_bytes),
        tx_errors: value_or_zero(it.tx_errors),
    }
}

impl StatsSummary {
    /// Formats the summary as Prometheus metrics, like the kubelet's `/metrics/resource`.
    pub fn resource_metrics(&self) -> String {
        let seconds = |nanos: u64| format!("{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000);
        let epoch = |time: &str| Time::parse(time).unwrap_or_default().as_micros() / 1_000_000;
        let of_pod =
            |it: &PodStats| format!("namespace=\"{}\",pod=\"{}\"", it.pod_ref.namespace, it.pod_ref.name);
        let containers = || self.pods.iter().flat_map(|pod| pod.containers.iter().map(move |it| (pod, it)));
        let of_container = |pod: &PodStats, it: &ContainerStats| {
            let PodReference { namespace, name, .. } = &pod.pod_ref;
            format!("container=\"{}\",namespace=\"{namespace}\",pod=\"{name}\"", it.name)
        };
        let mut text = String::new();
        let mut family = |name: &str, kind: &str, help: &str, values: Vec<(String, String)>| {
            let _ = writeln!(text, "# HELP {name} [STABLE] {help}\n# TYPE {name} {kind}");
            for (labels, value) in values {
                let labels = if labels.is_empty() { labels } else { format!("{{{labels}}}") };
                let _ = writeln!(text, "{name}{labels} {value}");
            }
        };
        family(
            "container_cpu_usage_seconds_total",
            "counter",
            "Cumulative cpu time consumed by the container in core-seconds",
            containers()
                .map(|(pod, it)| (of_container(pod, it), seconds(it.cpu.usage_core_nano_seconds)))
                .collect(),
        );
        family(
            "container_memory_working_set_bytes",
            "gauge",
            "Current working set of the container in bytes",
            containers()
                .map(|(pod, it)| (of_container(pod, it), it.memory.working_set_bytes.to_string()))
                .collect(),
        );
        family(
            "container_start_time_seconds",
            "gauge",
            "Start time of the container since unix epoch in seconds",
            containers()
                .map(|(pod, it)| (of_container(pod, it), epoch(&it.start_time).to_string()))
                .collect(),
        );
        family(
            "node_cpu_usage_seconds_total",
            "counter",
            "Cumulative cpu time consumed by the node in core-seconds",
            vec![(String::new(), seconds(self.node.cpu.usage_core_nano_seconds))],
        );
        family(
            "node_memory_working_set_bytes",
            "gauge",
            "Current working set of the node in bytes",
            self.node.memory.iter().map(|it| (String::new(), it.working_set_bytes.to_string())).collect(),
        );
        family(
            "pod_cpu_usage_seconds_total",
            "counter",
            "Cumulative cpu time consumed by the pod in core-seconds",
            self.pods.iter().map(|it| (of_pod(it), seconds(it.cpu.usage_core_nano_seconds))).collect(),
        );
        family(
            "pod_memory_working_set_bytes",
            "gauge",
            "Current working set of the pod in bytes",
            self.pods.iter().map(|it| (of_pod(it), it.memory.working_set_bytes.to_string())).collect(),
        );
        family(
            "resource_scrape_error",
            "gauge",
            "1 if there was an error while getting container metrics, 0 otherwise",
            vec![(String::new(), "0".to_owned())],
        );
        text
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rustix::mount::mount_bind;

    use super::*;

    #[test]
    #[ignore = "needs root"]
    fn disk_usage_excludes_mounts() {
        let root = tempfile::tempdir().unwrap();
        let (pod, others) = (root.path().join("pod"), root.path().join("others"));
        let own = pod.join("volumes/kubernetes.io~empty-dir/own");
        let (part, within) = (pod.join("volume-subpaths/part"), own.join("within"));
        for dir in [&others, &part, &within] {
            fs::create_dir_all(dir).unwrap();
        }
        fs::write(others.join("big"), vec![1; 1 << 20]).unwrap();
        fs::write(own.join("small"), vec![1; 64 << 10]).unwrap();
        let before = walk_disk_usage(&pod);
        // An empty directory that is shared is bound to itself, and stays the pod's.
        for (from, to) in [(&own, &own), (&others, &part), (&others, &within)] {
            mount_bind(from, to).unwrap();
        }
        let after = walk_disk_usage(&pod);
        mount_table::unmount_below(&root.path().canonicalize().unwrap()).unwrap();
        assert!((64 << 10..1 << 20).contains(&before.0), "{before:?}");
        // Without the two directories that something is mounted over.
        assert_eq!(after.1, before.1 - 2, "{before:?} {after:?}");
        assert!((64 << 10..=before.0).contains(&after.0), "{before:?} {after:?}");
    }
}
