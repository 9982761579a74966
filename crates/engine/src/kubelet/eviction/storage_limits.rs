//! Eviction of pods that exceed their own ephemeral storage limits.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use muster_api::quantity::Quantity;
use muster_api::text::Text;

/// The ephemeral storage that a pod uses, and the limits of its volumes, of the pod and of its containers.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PodStorage {
    /// Usage and limit of each `emptyDir` volume on disk that has a `sizeLimit`.
    pub volumes: Vec<StorageUsage>,
    /// Usage and limit of the whole pod. The usage includes volumes and logs. The limit is the total of the limits of
    /// containers and init containers, computed like the pod's total request. Containers without a limit are left out.
    /// `None` if no container has a limit.
    pub pod: Option<StorageUsage>,
    /// Usage and limit of each main container that has a limit. The usage is the size of the container's writable layer
    /// and logs.
    pub containers: Vec<StorageUsage>,
}

/// The ephemeral storage that a volume, pod or container uses, and its limit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StorageUsage {
    /// Name of the volume, pod or container.
    pub name: Text,
    pub limit: Quantity,
    /// Ephemeral storage in use, in bytes.
    pub used: i64,
}

impl StorageUsage {
    /// Whether the usage is greater than the limit.
    fn exceeds_limit(&self) -> bool {
        self.limit < Quantity::from_bytes(self.used)
    }
}

/// The kinds of ephemeral storage limits that a pod can exceed. Upstream: `signalEmptyDirFsLimit`,
/// `signalEphemeralPodFsLimit`, `signalEphemeralContainerFsLimit`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum StorageLimit {
    /// The `sizeLimit` of an `emptyDir` volume.
    Volume,
    /// The `ephemeral-storage` limit of the pod, computed from the limits of its containers.
    Pod,
    /// The `ephemeral-storage` limit of a container.
    Container,
}

impl StorageLimit {
    /// Returns the name of the limit, as upstream names its signal.
    pub fn name(self) -> &'static str {
        match self {
            Self::Volume => "emptydirfs.limit",
            Self::Pod => "ephemeralpodfs.limit",
            Self::Container => "ephemeralcontainerfs.limit",
        }
    }
}

/// Returns the first ephemeral storage limit that a pod exceeds, and the message of its eviction. Volumes are checked
/// first, then the pod, then the containers. `None` if the pod exceeds no limit.
///
/// Rule: a pod that exceeds the ephemeral storage limit of an `emptyDir` volume, of the pod or of a container is
/// evicted, even if it is a daemon pod. The caller leaves out static and critical pods, and pods that are being
/// deleted: they are not evicted. Upstream: `localStorageEviction`.
pub fn exceeded_limit(storage: &PodStorage) -> Option<(StorageLimit, String)> {
    if let Some(StorageUsage { name, limit, .. }) = storage.volumes.iter().find(|it| it.exceeds_limit()) {
        let message = format!("Usage of EmptyDir volume {name:?} exceeds the limit \"{limit}\". ");
        return Some((StorageLimit::Volume, message));
    }
    if let Some(StorageUsage { limit, .. }) = storage.pod.as_ref().filter(|it| it.exceeds_limit()) {
        let message =
            format!("Pod ephemeral local storage usage exceeds the total limit of containers {limit}. ");
        return Some((StorageLimit::Pod, message));
    }
    let StorageUsage { name, limit, .. } = storage.containers.iter().find(|it| it.exceeds_limit())?;
    let message = format!("Container {name} exceeded its local ephemeral storage limit \"{limit}\". ");
    Some((StorageLimit::Container, message))
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn a_pod_that_exceeds_its_storage_limit_is_evicted() {
        let limited = |name: &str, limit: &str, used: i64| StorageUsage {
            name: name.into(),
            limit: Quantity::parse(limit).unwrap(),
            used,
        };
        let whole = |used| Some(limited("", "3M", used));
        let volume = |used| Vec::from([limited("tmp", "10Gi", 5), limited("data", "1Mi", used)]);
        let container = |used| Vec::from([limited("main", "1500Ki", used)]);
        let mib = 1 << 20;
        let all = [
            ("none", PodStorage::default()),
            (
                "at all",
                PodStorage { volumes: volume(mib), pod: whole(3_000_000), containers: container(1_536_000) },
            ),
            (
                "over a volume",
                PodStorage { volumes: volume(mib + 1), pod: whole(9 * mib), containers: container(0) },
            ),
            (
                "over the sum",
                PodStorage { volumes: volume(0), pod: whole(3_000_001), containers: container(2 * mib) },
            ),
            (
                "over a container",
                PodStorage { volumes: volume(0), pod: whole(0), containers: container(1_536_001) },
            ),
        ];
        let mut report = String::new();
        for (what, storage) in all {
            let result = match exceeded_limit(&storage) {
                Some((limit, message)) => format!("{}: {message}", limit.name()),
                None => "within limits".into(),
            };
            report += &format!("{what}: {result}\n");
        }
        expect![[r#"
            none: within limits
            at all: within limits
            over a volume: emptydirfs.limit: Usage of EmptyDir volume "data" exceeds the limit "1Mi". 
            over the sum: ephemeralpodfs.limit: Pod ephemeral local storage usage exceeds the total limit of containers 3M. 
            over a container: ephemeralcontainerfs.limit: Container main exceeded its local ephemeral storage limit "1500Ki". 
        "#]].assert_eq(&report);
    }
}
