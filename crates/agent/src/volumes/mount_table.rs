//! Reads the mount table of this mount namespace, and unmounts mounts.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::mount::{MountPropagationFlags, UnmountFlags, mount_change, unmount};

/// One mount of this mount namespace.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MountInfo {
    pub(super) mount_point: PathBuf,
    /// Whether the mount is shared. Mounts below a shared mount propagate to its peer group.
    pub(super) is_shared: bool,
    /// Whether the mount is a slave. Mounts below its master propagate to it.
    pub(super) is_slave: bool,
    pub(super) filesystem_type: String,
}

/// Reads the mounts of this mount namespace.
pub(super) fn read_mounts() -> io::Result<Vec<MountInfo>> {
    Ok(parse_mountinfo(&fs::read_to_string("/proc/self/mountinfo")?))
}

/// Parses the content of `/proc/self/mountinfo`, with lines such as `36 35 98:0 / /mnt rw,noatime shared:1 - ext4
/// /dev/root rw`. Lines with too few fields are skipped.
fn parse_mountinfo(text: &str) -> Vec<MountInfo> {
    let of_line = |line: &str| {
        let mut words = line.split(' ');
        let point = words.nth(4)?;
        let flags: Vec<&str> = words.by_ref().skip(1).take_while(|it| *it != "-").collect();
        Some(MountInfo {
            mount_point: unescape_octal(point),
            is_shared: flags.iter().any(|it| it.starts_with("shared:")),
            is_slave: flags.iter().any(|it| it.starts_with("master:")),
            filesystem_type: words.next()?.to_owned(),
        })
    };
    text.lines().filter_map(of_line).collect()
}

/// Decodes octal escapes such as `\040` for a space.
fn unescape_octal(text: &str) -> PathBuf {
    let bytes = text.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let code = bytes.get(at + 1..at + 4).filter(|_| bytes[at] == b'\\');
        let code = code.and_then(|it| u8::from_str_radix(std::str::from_utf8(it).ok()?, 8).ok());
        plain.push(code.unwrap_or(bytes[at]));
        at += if code.is_some() { 4 } else { 1 };
    }
    OsString::from_vec(plain).into()
}

/// Returns the mount that contains a path, or `None` if no mount does. If two mounts have the same mount point, the
/// later one is returned, because it is on top.
pub(super) fn mount_of_path<'a>(mounts: &'a [MountInfo], path: &Path) -> Option<&'a MountInfo> {
    let above = mounts.iter().filter(|it| path.starts_with(&it.mount_point));
    above.max_by_key(|it| it.mount_point.components().count())
}

/// Whether something is mounted at exactly this path.
pub(crate) fn is_mounted(path: &Path) -> io::Result<bool> {
    Ok(read_mounts()?.iter().any(|it| it.mount_point == path))
}

/// Unmounts all mounts at or below a directory of the agent, before the directory is deleted. Fails if one of them is
/// still mounted afterwards.
///
/// Rule: the deepest mounts are unmounted first. Each mount is made private before its unmount, because an unmount in a
/// shared mount propagates to its peers. If one unmount fails, the other mounts are still unmounted.
pub(crate) fn unmount_below(dir: &Path) -> io::Result<()> {
    let mut last_error = None;
    // Twice: a mount below another one shows when the upper one is gone.
    for _ in 0..2 {
        let mut points = mounts_below(dir)?;
        points.sort_by_key(|it| std::cmp::Reverse(it.components().count()));
        for point in &points {
            last_error = unmount_point(point).err().or(last_error);
        }
        if points.is_empty() {
            return Ok(());
        }
    }
    match mounts_below(dir)?.first() {
        None => Ok(()),
        Some(point) => {
            let why = last_error.map_or_else(String::new, |it| format!(": {it}"));
            Err(io::Error::other(format!("{} is still mounted{why}", point.display())))
        }
    }
}

/// Unmounts the topmost mount of a mount point, after it and the mounts below it were made private. A busy mount is
/// detached immediately and disappears with its last user. A path that is not a mount point counts as unmounted.
pub(super) fn unmount_point(point: &Path) -> io::Result<()> {
    match mount_change(point, MountPropagationFlags::PRIVATE | MountPropagationFlags::REC) {
        Ok(()) | Err(Errno::INVAL | Errno::NOENT) => {}
        Err(why) => return Err(why.into()),
    }
    match unmount(point, UnmountFlags::NOFOLLOW) {
        Err(Errno::BUSY) => Ok(unmount(point, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH)?),
        Ok(()) | Err(Errno::INVAL | Errno::NOENT) => Ok(()),
        Err(why) => Err(why.into()),
    }
}

/// Returns the mount points at or below the directory, in the order of the mount table.
pub(crate) fn mounts_below(dir: &Path) -> io::Result<Vec<PathBuf>> {
    Ok(read_mounts()?.into_iter().map(|it| it.mount_point).filter(|it| it.starts_with(dir)).collect())
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn a_table_is_read() {
        let mounts = parse_mountinfo(
            "22 1 254:0 / / rw,relatime - ext4 /dev/root rw\n\
             36 22 98:0 /mnt1 /mnt/a\\040b rw,noatime master:1 shared:7 - ext3 /dev/root rw,errors=continue\n\
             37 22 0:5 / /mnt/a\\040b/c\\134d rw shared:8 - tmpfs tmpfs rw\n\
             short line\n",
        );
        let over = |path: &str| {
            mount_of_path(&mounts, Path::new(path)).map(|it| it.mount_point.display().to_string())
        };
        expect![[r#"
            [
                MountInfo {
                    mount_point: "/",
                    is_shared: false,
                    is_slave: false,
                    filesystem_type: "ext4",
                },
                MountInfo {
                    mount_point: "/mnt/a b",
                    is_shared: true,
                    is_slave: true,
                    filesystem_type: "ext3",
                },
                MountInfo {
                    mount_point: "/mnt/a b/c\\d",
                    is_shared: true,
                    is_slave: false,
                    filesystem_type: "tmpfs",
                },
            ]
            Some("/mnt/a b") Some("/") Some("/mnt/a b/c\\d")
        "#]]
        .assert_eq(&format!(
            "{mounts:#?}\n{:?} {:?} {:?}\n",
            over("/mnt/a b/x"),
            over("/mnt/a"),
            over("/mnt/a b/c\\d")
        ));
    }
}
