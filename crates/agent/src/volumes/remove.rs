//! What a pod leaves behind is deleted, and nothing beside it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, ResolveFlags, openat, openat2, renameat, unlinkat};
use rustix::io::Errno;

/// Directories open at once: what is nested deeper is first moved up, so that no depth is too deep.
const DEPTH_MAX: u32 = 32;

/// Rule: no link is followed and no mount is entered when a pod's directory is deleted. What is not there is deleted.
pub(super) fn remove(dir: &Path) -> io::Result<()> {
    let (Some(parent), Some(name)) = (dir.parent(), dir.file_name()) else {
        return Err(io::Error::other("a root is not deleted"));
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let parent = match openat(CWD, parent, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(()),
        other => other?,
    };
    let top = match open(&parent, Path::new(name)) {
        Err(Errno::NOENT) => return Ok(()),
        other => other?,
    };
    let mut moved = 0;
    while empty(&top, &top, 0, &mut moved)? {}
    unlinkat(&parent, name, AtFlags::REMOVEDIR)?;
    Ok(())
}

/// Deletes all that is in a directory. Whether something was moved to the top, which is then not empty yet.
fn empty(dir: &OwnedFd, top: &OwnedFd, depth: u32, moved: &mut u64) -> io::Result<bool> {
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
        if depth < DEPTH_MAX {
            let child = open(dir, name)?;
            has_moved |= empty(&child, top, depth + 1, moved)?;
            unlinkat(dir, name, AtFlags::REMOVEDIR)?;
        } else {
            move_up(dir, name, top, moved)?;
            has_moved = true;
        }
    }
    Ok(has_moved)
}

fn move_up(dir: &OwnedFd, name: &std::ffi::CStr, top: &OwnedFd, moved: &mut u64) -> io::Result<()> {
    loop {
        *moved += 1;
        match renameat(dir, name, top, format!(".deep-{moved}")) {
            // A name that is taken, by whoever wrote here.
            Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => {}
            other => return Ok(other?),
        }
    }
}

fn open(dir: impl AsFd, name: impl rustix::path::Arg) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let within = ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH;
    openat2(dir, name, flags, Mode::empty(), within)
}
