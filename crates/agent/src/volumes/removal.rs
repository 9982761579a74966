//! Deletes the directory of a pod, and nothing outside it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, ResolveFlags, openat, openat2, renameat, unlinkat};
use rustix::io::Errno;

/// Maximum depth, below the top directory, of directories that are open simultaneously. A deeper directory is first
/// moved to the top directory, so that trees of any depth can be deleted.
const OPEN_DEPTH_MAX: u32 = 32;

/// Deletes the directory of a pod. A missing directory counts as deleted.
///
/// Rule: no symbolic link is followed, and no mount is entered.
pub(super) fn remove_pod_dir(dir: &Path) -> io::Result<()> {
    let (Some(parent), Some(name)) = (dir.parent(), dir.file_name()) else {
        return Err(io::Error::other("the root directory cannot be deleted"));
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let parent = match openat(CWD, parent, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(()),
        other => other?,
    };
    let top = match open_subdirectory(&parent, Path::new(name)) {
        Err(Errno::NOENT) => return Ok(()),
        other => other?,
    };
    let mut moved = 0;
    while remove_children(&top, &top, 0, &mut moved)? {}
    unlinkat(&parent, name, AtFlags::REMOVEDIR)?;
    Ok(())
}

/// Deletes the content of a directory. Returns whether an entry was moved to the directory `top`, which may therefore
/// not be empty yet. `moved` counts the moved entries.
fn remove_children(dir: &OwnedFd, top: &OwnedFd, depth: u32, moved: &mut u64) -> io::Result<bool> {
    let mut has_moved = false;
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        match unlinkat(dir, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => continue,
            Err(Errno::ISDIR | Errno::PERM) => {}
            Err(why) => return Err(why.into()),
        }
        if depth < OPEN_DEPTH_MAX {
            let child = open_subdirectory(dir, name)?;
            has_moved |= remove_children(&child, top, depth + 1, moved)?;
            unlinkat(dir, name, AtFlags::REMOVEDIR)?;
        } else {
            move_to_top_dir(dir, name, top, moved)?;
            has_moved = true;
        }
    }
    Ok(has_moved)
}

/// Moves an entry to the directory `top`, under a new name.
fn move_to_top_dir(dir: &OwnedFd, name: &std::ffi::CStr, top: &OwnedFd, moved: &mut u64) -> io::Result<()> {
    loop {
        *moved += 1;
        match renameat(dir, name, top, format!(".deep-{moved}")) {
            // The name exists, created by a container.
            Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => {}
            other => return Ok(other?),
        }
    }
}

/// Opens a subdirectory without following links or entering mounts. Fails if the entry is not a directory.
fn open_subdirectory(dir: impl AsFd, name: impl rustix::path::Arg) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let within = ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH;
    openat2(dir, name, flags, Mode::empty(), within)
}
