//! The directory of an emptyDir volume, which exists as long as its pod. As in the kubelet, ConfigMap, Secret, downward
//! API and projected volumes are created in the same way and then filled with files.

use std::ffi::CString;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_bind, mount_change};

use super::mount_table;

/// Options with which the directory of a volume is created: of an emptyDir volume, or of a volume that the agent then
/// fills with files.
#[derive(Debug, Clone, Copy)]
pub(super) struct EmptyDir {
    pub(super) medium: EmptyDirMedium,
    /// The pod's fsGroup. `None` if it has none.
    pub(super) group: Option<u32>,
    /// Whether a container mounts the volume with Bidirectional propagation, so that the volume must be a shared mount.
    pub(super) is_shared: bool,
}

/// Where the files of an [`EmptyDir`] are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EmptyDirMedium {
    Disk,
    /// A tmpfs of at most this size. Without a size, the kernel's limit applies, which is half of the machine's memory.
    Memory {
        bytes_max: Option<u64>,
    },
}

impl EmptyDir {
    /// Creates the directory of the volume, and mounts it if needed. Sets the directory's mode, and its group if
    /// `group` is set. Then creates the marker file `ready`. Does nothing if the volume was already created and a mount
    /// that it needs still exists, because the pod may have changed the directory in the meantime.
    pub(super) fn create(&self, dir: &Path, ready: &Path) -> io::Result<()> {
        let mounts = mount_table::read_mounts()?;
        let is_mounted = mounts.iter().any(|it| it.mount_point == dir);
        // The marker survives a reboot, a mount does not.
        let needs_mount = self.is_shared || self.medium != EmptyDirMedium::Disk;
        if dir.is_dir() && ready.exists() && (is_mounted || !needs_mount) {
            return Ok(());
        }
        fs::create_dir_all(dir)?;
        fs::set_permissions(dir, Permissions::from_mode(0o777))?;
        let is_memory = mounts.iter().any(|it| it.mount_point == dir && it.filesystem_type == "tmpfs");
        if let EmptyDirMedium::Memory { bytes_max } = self.medium
            && !is_memory
        {
            mount_tmpfs(dir, bytes_max)?;
        }
        if self.is_shared {
            if !mount_table::is_mounted(dir)? {
                mount_bind(dir, dir)?;
            }
            // Private first, else it would join the peer group of the mount that it was bound from.
            mount_change(dir, MountPropagationFlags::PRIVATE)?;
            mount_change(dir, MountPropagationFlags::SHARED)?;
        }
        if let Some(group) = self.group {
            std::os::unix::fs::chown(dir, None, Some(group))?;
            let mode = fs::symlink_metadata(dir)?.permissions().mode();
            fs::set_permissions(dir, Permissions::from_mode(mode & 0o7777 | 0o2770))?;
        }
        fs::create_dir_all(ready.parent().unwrap_or(ready))?;
        fs::write(ready, "")
    }
}

/// Mounts a tmpfs with this maximum size, or with the kernel's default size if `bytes_max` is `None`. Its pages are
/// excluded from swap if the kernel supports that.
fn mount_tmpfs(dir: &Path, bytes_max: Option<u64>) -> io::Result<()> {
    let size = bytes_max.map(|it| format!("size={it}"));
    let options = |is_noswap: bool| {
        let options = [size.as_deref(), is_noswap.then_some("noswap")];
        CString::new(options.into_iter().flatten().collect::<Vec<_>>().join(","))
    };
    let try_with =
        |options: CString| mount("tmpfs", dir, "tmpfs", MountFlags::empty(), Some(options.as_c_str()));
    match try_with(options(true)?) {
        Err(Errno::INVAL) => Ok(try_with(options(false)?)?),
        other => Ok(other?),
    }
}
