//! Measures the capacity, memory, filesystems, processes, CPU time and network of the machine, as reported by the
//! kernel.

use std::fs;
use std::io;
use std::path::Path;

use muster_api::quantity::Quantity;
use muster_api::resources::ResourceQuantities;
use muster_engine::kubelet::eviction::{Signal, SignalObservation, SignalObservations};
use muster_engine::kubelet::node_status::NodeSystemInfo;

use super::stats::InterfaceStats;

/// Reads `nodeInfo` of the Node's status from the machine. A value that cannot be read is empty or 0, except that an
/// unknown operating system is `Linux`. The caller fills in the name and version of the runtime.
pub(super) fn read_node_info() -> NodeSystemInfo {
    let read = |path: &str| fs::read_to_string(path).map(|it| it.trim().to_owned()).unwrap_or_default();
    let first =
        |paths: &[&str]| paths.iter().map(|path| read(path)).find(|it| !it.is_empty()).unwrap_or_default();
    let machine_id = first(&["/etc/machine-id", "/var/lib/dbus/machine-id"]);
    let system_uuid = first(&["/sys/class/dmi/id/product_uuid"]);
    NodeSystemInfo {
        system_uuid: if system_uuid.is_empty() { machine_id.clone() } else { system_uuid },
        machine_id,
        boot_id: read("/proc/sys/kernel/random/boot_id"),
        kernel: read("/proc/sys/kernel/osrelease"),
        os_image: os_image(&first(&["/etc/os-release", "/usr/lib/os-release"])),
        runtime: String::new(),
        version: KUBELET_VERSION.to_owned(),
        swap_bytes: MachineMemory::read().map_or(0, |it| it.swap),
    }
}

/// The `kubeletVersion` in the Node's status: the version of the Kubernetes API that Muster serves, with Muster's own
/// version as build metadata.
const KUBELET_VERSION: &str = concat!("v1.36.0+muster-", env!("CARGO_PKG_VERSION"));

/// Returns the name of the operating system, or `Linux` if it is not given. `os_release` is the content of
/// `/etc/os-release`.
fn os_image(os_release: &str) -> String {
    let name = os_release.lines().find_map(|it| it.strip_prefix("PRETTY_NAME="));
    name.unwrap_or("Linux").trim_matches('"').to_owned()
}

/// Returns the capacity of the node: CPU, memory, ephemeral storage, huge pages and pods. `root` is the node's root
/// directory, whose filesystem is measured. Memory or storage that cannot be measured is omitted.
pub(super) fn node_capacity(root: &Path, pods_max: u16) -> ResourceQuantities {
    let mut all = ResourceQuantities::from([
        ("cpu".to_owned(), Quantity::from_units(cpu_count())),
        ("pods".to_owned(), Quantity::from_units(pods_max.into())),
    ]);
    if let Ok(memory) = MachineMemory::read() {
        all.insert("memory".to_owned(), Quantity::from_bytes(memory.total));
    }
    if let Ok(disk) = FilesystemUsage::read(root) {
        all.insert("ephemeral-storage".to_owned(), Quantity::from_bytes(disk.bytes));
    }
    all.extend(huge_page_capacity(Path::new("/sys/kernel/mm/hugepages")));
    all
}

/// Returns the number of online CPUs of the machine. If it cannot be read, returns the number of CPUs that this process
/// may use.
pub(super) fn cpu_count() -> i64 {
    // All online CPUs, not only those that this process may run on.
    let listed = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    match count_cpu_list(listed.trim()) {
        0 => std::thread::available_parallelism().map_or(1, |it| it.get() as i64),
        counted => counted,
    }
}

/// Counts the CPUs of a list such as `0-3,6`.
fn count_cpu_list(list: &str) -> i64 {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (i64, i64) = (first.parse().ok()?, last.parse().ok()?);
        (first <= last).then_some(last - first + 1)
    };
    list.split(',').filter_map(range).sum()
}

/// Returns the huge page capacity of the machine by resource name, for example `hugepages-2Mi`. `dir` has one directory
/// for each page size.
fn huge_page_capacity(dir: &Path) -> ResourceQuantities {
    let Ok(sizes) = fs::read_dir(dir) else { return ResourceQuantities::new() };
    let size = |entry: fs::DirEntry| {
        let name = entry.file_name();
        let kib: i64 = name.to_str()?.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
        let pages: i64 = fs::read_to_string(entry.path().join("nr_hugepages")).ok()?.trim().parse().ok()?;
        let bytes = kib.checked_mul(1024)?;
        let amount = Quantity::from_bytes(bytes.checked_mul(pages)?);
        Some((format!("hugepages-{}", Quantity::from_bytes(bytes)), amount))
    };
    sizes.flatten().filter_map(size).collect()
}

/// The machine's memory, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MachineMemory {
    pub(super) total: i64,
    /// Memory that can be allocated without reclaiming memory in use: free memory and inactive page cache.
    pub(super) available: i64,
    /// Used memory, including the page cache.
    pub(super) usage: i64,
    /// Anonymous memory, which is reported as RSS.
    pub(super) anonymous: i64,
    /// Total swap space.
    pub(super) swap: i64,
}

impl MachineMemory {
    /// Reads the machine's memory from `/proc/meminfo`.
    pub(super) fn read() -> io::Result<Self> {
        let text = fs::read_to_string("/proc/meminfo")?;
        Self::parse(&text).ok_or_else(|| io::Error::other("/proc/meminfo lacks MemTotal or MemFree"))
    }

    /// Parses the content of `/proc/meminfo`. Returns `None` if a required field is missing.
    fn parse(text: &str) -> Option<Self> {
        let of = |key: &str| -> Option<i64> {
            let line = text.lines().find_map(|it| it.strip_prefix(key)?.strip_prefix(':'))?;
            line.trim().strip_suffix("kB")?.trim().parse::<i64>().ok()?.checked_mul(1024)
        };
        let (total, free) = (of("MemTotal")?, of("MemFree")?);
        Some(Self {
            total,
            available: free + of("Inactive(file)").unwrap_or_default(),
            usage: total - free,
            anonymous: of("AnonPages").unwrap_or_default(),
            swap: of("SwapTotal").unwrap_or_default(),
        })
    }

    /// Returns the memory in use: total minus available.
    pub(super) fn working_set(self) -> i64 {
        self.total - self.available
    }
}

/// Capacity and usage of a filesystem, in bytes and inodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FilesystemUsage {
    /// Capacity without the blocks reserved for root.
    pub(super) bytes: i64,
    pub(super) available: i64,
    pub(super) used: i64,
    /// Total number of inodes. Zero on filesystems that allocate inodes dynamically.
    pub(super) inodes: i64,
    pub(super) inodes_free: i64,
}

impl FilesystemUsage {
    /// Measures the filesystem that contains this path.
    pub(super) fn read(path: &Path) -> io::Result<Self> {
        let stat = rustix::fs::statvfs(path)?;
        let bytes = |blocks: u64| i64::try_from(blocks.saturating_mul(stat.f_frsize)).unwrap_or(i64::MAX);
        let count = |it: u64| i64::try_from(it).unwrap_or(i64::MAX);
        let used = stat.f_blocks.saturating_sub(stat.f_bfree);
        Ok(Self {
            bytes: bytes(used.saturating_add(stat.f_bavail)),
            available: bytes(stat.f_bavail),
            used: bytes(used),
            inodes: count(stat.f_files),
            inodes_free: count(stat.f_ffree),
        })
    }
}

/// Returns the maximum number of processes and threads of the machine, and the current number. Returns `None` if the
/// numbers cannot be read.
pub(super) fn process_limit_and_count() -> Option<(i64, i64)> {
    let number = |path: &str| fs::read_to_string(path).ok()?.trim().parse::<i64>().ok();
    // The smaller of the two limits applies.
    let max = number("/proc/sys/kernel/pid_max")?.min(number("/proc/sys/kernel/threads-max")?);
    let load = fs::read_to_string("/proc/loadavg").ok()?;
    let (_, running) = load.split_whitespace().nth(3)?.split_once('/')?;
    Some((max, running.parse().ok()?))
}

/// Returns the busy time of all CPUs together, in nanoseconds. Returns `None` if it cannot be read.
pub(super) fn cpu_busy_nanos() -> Option<u64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    parse_busy_nanos(stat.lines().next()?)
}

/// Sums user, nice, system, irq and softirq time of a `cpu` line of `/proc/stat`, in nanoseconds. Other times, such as
/// idle, iowait and steal, do not count. Returns `None` for other lines.
fn parse_busy_nanos(line: &str) -> Option<u64> {
    /// Nanoseconds per clock tick. `USER_HZ` is 100 on all Linux architectures in use.
    const NANOS_PER_TICK: u64 = 10_000_000;
    let numbers: Vec<u64> =
        line.strip_prefix("cpu ")?.split_whitespace().filter_map(|it| it.parse().ok()).collect();
    let busy = [0, 1, 2, 5, 6].iter().filter_map(|it| numbers.get(*it)).sum::<u64>();
    busy.checked_mul(NANOS_PER_TICK)
}

/// Returns the boot time of the machine as a Unix timestamp in seconds. Returns `None` if it cannot be read.
pub(super) fn boot_time_s() -> Option<i64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    stat.lines().find_map(|it| it.strip_prefix("btime ")?.trim().parse().ok())
}

/// Returns the counters of the network interfaces in the node's network namespace. The first element is the interface
/// of the IPv4 default route, or the first interface if there is no such route. The second element has all interfaces
/// except loopback. Returns `None` if the counters cannot be read, or if loopback is the only interface.
pub(super) fn network_stats() -> Option<(InterfaceStats, Vec<InterfaceStats>)> {
    let all = parse_interfaces(&fs::read_to_string("/proc/net/dev").ok()?);
    let routes = fs::read_to_string("/proc/net/route").unwrap_or_default();
    // Columns: name, destination, …; destination zero is the default route.
    let default = routes.lines().find_map(|it| {
        let mut words = it.split_whitespace();
        let name = words.next()?;
        (words.next()? == "00000000").then_some(name)
    });
    let default = all.iter().find(|it| Some(it.name.as_str()) == default).or(all.first())?.clone();
    Some((default, all))
}

/// Parses the interfaces in the content of `/proc/net/dev`.
fn parse_interfaces(dev: &str) -> Vec<InterfaceStats> {
    let interface = |line: &str| {
        let (name, numbers) = line.split_once(':')?;
        let numbers: Vec<u64> = numbers.split_whitespace().filter_map(|it| it.parse().ok()).collect();
        let of = |it: usize| numbers.get(it).copied();
        Some(InterfaceStats {
            name: name.trim().to_owned(),
            rx_bytes: of(0)?,
            rx_errors: of(2)?,
            tx_bytes: of(8)?,
            tx_errors: of(10)?,
        })
    };
    dev.lines().filter_map(interface).filter(|it| it.name != "lo").collect()
}

/// Measures the eviction signals, and omits those that cannot be read or that a filesystem does not have. `root` is the
/// node's root directory. `images` is the directory of the image filesystem, or `None` if it is unknown.
pub(super) fn measure_signals(root: &Path, images: Option<&Path>) -> SignalObservations {
    let mut all = SignalObservations::new();
    if let Ok(memory) = MachineMemory::read() {
        all.insert(
            Signal::MemoryAvailable,
            SignalObservation { available: memory.available, capacity: memory.total },
        );
    }
    let disks = [
        (Some(root), Signal::NodefsAvailable, Signal::NodefsInodesFree),
        (images, Signal::ImagefsAvailable, Signal::ImagefsInodesFree),
    ];
    for (path, bytes, inodes) in disks {
        let Some(Ok(disk)) = path.map(FilesystemUsage::read) else { continue };
        all.insert(bytes, SignalObservation { available: disk.available, capacity: disk.bytes });
        if disk.inodes != 0 {
            all.insert(inodes, SignalObservation { available: disk.inodes_free, capacity: disk.inodes });
        }
    }
    if let Some((max, running)) = process_limit_and_count() {
        all.insert(Signal::PidAvailable, SignalObservation { available: max - running, capacity: max });
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_files_are_parsed() {
        let text = "MemTotal:        1000 kB\nMemFree:          100 kB\nMemAvailable:     900 kB\nInactive(file):   300 kB\n\
                    AnonPages:        50 kB\nSwapTotal:         0 kB\n";
        let memory = MachineMemory::parse(text).unwrap();
        assert_eq!(
            memory,
            MachineMemory {
                total: 1_024_000,
                available: 409_600,
                usage: 921_600,
                anonymous: 51_200,
                swap: 0
            }
        );
        assert_eq!(memory.working_set(), 614_400);
        assert_eq!(MachineMemory::parse("MemTotal: lots"), None);
        assert_eq!(
            [count_cpu_list("0-3,6"), count_cpu_list("0"), count_cpu_list(""), count_cpu_list("3-1")],
            [5, 1, 0, 0]
        );
        assert_eq!(
            os_image("NAME=x\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n"),
            "Debian GNU/Linux 12 (bookworm)"
        );
        assert_eq!(os_image(""), "Linux");
        assert_eq!(parse_busy_nanos("cpu  1 2 3 400 500 6 7 8 0 0"), Some(190_000_000));
        assert_eq!(parse_busy_nanos("intr 1"), None);
    }

    #[test]
    fn this_machine_is_measured() {
        let all = measure_signals(Path::new("/"), Some(Path::new("/")));
        assert!(all.values().all(|it| 0 <= it.available && it.available <= it.capacity), "{all:?}");
        assert!(
            all.contains_key(&Signal::MemoryAvailable) && all.contains_key(&Signal::PidAvailable),
            "{all:?}"
        );
    }
}
