//! subPath mounts.
//!
//! Containers can change a volume while a subPath is resolved. Therefore a path is never checked first and used later.
//! The kernel resolves the path in one step that cannot leave the volume, and the opened file is mounted.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, fchmod, fstat, mkdirat, openat, openat2, statat,
};
use rustix::io::Errno;
use rustix::mount::mount_bind;

use super::{VolumeError, mount_table};

/// Maximum number of attempts to resolve a path. An attempt is repeated when directories were moved during the
/// resolution, or when a signal interrupted it.
const RESOLVE_ATTEMPTS_MAX: u32 = 16;

/// Parses and validates a subPath.
///
/// Rule: a subPath is relative and has no `..`. Upstream: `makeMounts`.
pub(super) fn parse_sub_path(sub_path: &str) -> Result<PathBuf, VolumeError> {
    let refuse = |why| Err(VolumeError::Path { path: sub_path.into(), why });
    let path = Path::new(sub_path);
    if path.is_absolute() || sub_path.contains('\0') {
        return refuse("must be relative path");
    }
    if path.components().any(|it| it == Component::ParentDir) {
        return refuse("must not contain '..'");
    }
    Ok(path.components().filter(|it| *it != Component::CurDir).collect())
}

/// Opens a subPath of a volume, and creates missing directories with the mode of the volume's directory.
///
/// Rule: a subPath stays in its volume, even if a container creates symbolic links. Upstream: `PrepareSafeSubpath`,
/// `SafeMakeDir`.
pub(super) fn open_sub_path(volume: &Path, sub_path: &Path) -> io::Result<OwnedFd> {
    let base = openat(CWD, volume, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    if sub_path.as_os_str().is_empty() {
        return Ok(base);
    }
    match open_beneath(&base, sub_path, OFlags::PATH) {
        Err(Errno::NOENT) => {
            create_dirs(&base, sub_path, Mode::from_raw_mode(fstat(&base)?.st_mode & 0o7777))?;
            Ok(open_beneath(&base, sub_path, OFlags::PATH)?)
        }
        other => Ok(other?),
    }
}

/// Creates a directory and its missing parents in a volume, with this mode. Does nothing if the path exists.
pub(super) fn create_dir_in_volume(volume: &Path, path: &Path, mode: u32) -> io::Result<()> {
    let base = openat(CWD, volume, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    match open_beneath(&base, path, OFlags::PATH) {
        Err(Errno::NOENT) => create_dirs(&base, path, Mode::from_raw_mode(mode)),
        other => Ok(other.map(drop)?),
    }
}

/// Creates a directory and its missing parents beneath `base`, with this mode.
fn create_dirs(base: &OwnedFd, path: &Path, mode: Mode) -> io::Result<()> {
    let mut parent = open_beneath(base, Path::new("."), OFlags::PATH)?;
    let mut done = PathBuf::new();
    for name in path.components() {
        done.push(name);
        let next = open_beneath(base, &done, OFlags::PATH | OFlags::DIRECTORY);
        parent = match next {
            Err(Errno::NOENT) => {
                match mkdirat(&parent, name.as_os_str(), mode) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(why) => return Err(why.into()),
                }
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
                let made = open_beneath(&parent, Path::new(&name), flags)?;
                // Independent of the process's umask.
                fchmod(&made, mode)?;
                made
            }
            other => other?,
        };
    }
    Ok(())
}

/// Opens a path beneath `base`. The kernel refuses a path that leads out of `base`.
fn open_beneath(base: impl AsFd, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let within = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let mut tries = 0;
    loop {
        tries += 1;
        match openat2(base.as_fd(), path, flags | OFlags::CLOEXEC, Mode::empty(), within) {
            Err(Errno::AGAIN | Errno::INTR) if tries < RESOLVE_ATTEMPTS_MAX => {}
            other => return other,
        }
    }
}

/// Bind-mounts an opened file or directory at `target`, a path in the pod's directory that containers cannot change. An
/// existing mount of the same file stays, and a mount of another file is replaced.
pub(super) fn bind_mount(opened: &OwnedFd, target: &Path) -> io::Result<()> {
    let opened_stat = fstat(opened)?;
    if mount_table::is_mounted(target)? {
        let existing = statat(CWD, target, AtFlags::SYMLINK_NOFOLLOW)?;
        if (existing.st_dev, existing.st_ino) == (opened_stat.st_dev, opened_stat.st_ino) {
            return Ok(());
        }
        mount_table::unmount_point(target)?;
    }
    let is_dir = FileType::from_raw_mode(opened_stat.st_mode) == FileType::Directory;
    match fs::symlink_metadata(target) {
        Ok(existing) if existing.is_dir() && !is_dir => fs::remove_dir(target)?,
        Ok(existing) if !existing.is_dir() && is_dir => fs::remove_file(target)?,
        _ => {}
    }
    if is_dir {
        fs::create_dir_all(target)?;
    } else {
        fs::create_dir_all(target.parent().unwrap_or(target))?;
        fs::OpenOptions::new().write(true).create(true).truncate(false).open(target)?;
        fs::set_permissions(target, fs::Permissions::from_mode(0o640))?;
    }
    mount_bind(format!("/proc/self/fd/{}", opened.as_raw_fd()), target)?;
    Ok(())
}
