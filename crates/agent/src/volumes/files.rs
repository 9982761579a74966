//! The files of a volume on disk, all exchanged at once.
//!
//! As a kubelet lays them out: `..data` links to a directory with the files of now, and each name that a container
//! sees links into `..data`. A container that reads through the links sees the old files or the new ones, never some
//! of each.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::payload::File;

const DATA: &str = "..data";
const DATA_NEXT: &str = "..data_tmp";

/// What a group may do with the files and the directories of a volume that it cannot write to.
const GROUP_FILE: u32 = 0o440;
const GROUP_DIR: u32 = 0o2550;

/// Rule: the files of a volume change together, and only when one of them is another. Upstream: `AtomicWriter.Write`.
pub(super) fn write(volume: &Path, files: &BTreeMap<String, File>, group: Option<u32>) -> io::Result<()> {
    let current = match fs::read_link(volume.join(DATA)) {
        Ok(link) => Some(link),
        Err(why) if why.kind() == io::ErrorKind::NotFound => None,
        Err(why) => return Err(why),
    };
    let is_current = match &current {
        Some(it) => holds(&volume.join(it), files, group)?,
        None => false,
    };
    let kept = if is_current { current } else { Some(exchange(volume, files, group)?) };

    let wanted: BTreeSet<&str> = files.keys().map(|it| it.split('/').next().unwrap_or(it)).collect();
    for name in &wanted {
        show(volume, name, group)?;
    }
    for entry in fs::read_dir(volume)? {
        let entry = entry?;
        let (name, path) = (entry.file_name(), entry.path());
        let Some(name) = name.to_str() else { continue };
        if entry.file_type()?.is_symlink() {
            let is_ours = fs::read_link(&path)?.starts_with(DATA);
            if is_ours && !wanted.contains(name) {
                fs::remove_file(&path)?;
            }
        } else if name.starts_with("..") && Some(Path::new(name)) != kept.as_deref() {
            fs::remove_dir_all(&path)?;
        }
    }
    Ok(())
}

/// Writes all files into a directory of their own, and makes `..data` point to it.
fn exchange(volume: &Path, files: &BTreeMap<String, File>, group: Option<u32>) -> io::Result<PathBuf> {
    let now = Timestamp::now();
    let name = format!("..{}.{:09}", now.strftime("%Y_%m_%d_%H_%M_%S"), now.subsec_nanosecond());
    let name = PathBuf::from(name);
    let dir = volume.join(&name);
    fs::create_dir(&dir)?;
    own_dir(&dir, group)?;
    for (path, file) in files {
        let path = dir.join(path);
        let mut missing: Vec<&Path> = path.ancestors().skip(1).take_while(|it| *it != dir).collect();
        missing.reverse();
        for parent in missing {
            match fs::create_dir(parent) {
                Ok(()) => own_dir(parent, group)?,
                Err(why) if why.kind() == io::ErrorKind::AlreadyExists => {}
                Err(why) => return Err(why),
            }
        }
        fs::write(&path, &file.data)?;
        std::os::unix::fs::chown(&path, file.user, group)?;
        fs::set_permissions(&path, Permissions::from_mode(mode_of(file, group)))?;
    }
    match fs::remove_file(volume.join(DATA_NEXT)) {
        Err(why) if why.kind() != io::ErrorKind::NotFound => return Err(why),
        _ => {}
    }
    symlink(&name, volume.join(DATA_NEXT))?;
    fs::rename(volume.join(DATA_NEXT), volume.join(DATA))?;
    Ok(name)
}

/// Whether a directory has these files, and no others.
fn holds(dir: &Path, files: &BTreeMap<String, File>, group: Option<u32>) -> io::Result<bool> {
    let mut found = 0;
    let mut todo = vec![dir.to_owned()];
    while let Some(at) = todo.pop() {
        let entries = match fs::read_dir(&at) {
            Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(false),
            other => other?,
        };
        for entry in entries {
            let (entry, path) = entry.map(|it| (it.file_type(), it.path()))?;
            if entry?.is_dir() {
                todo.push(path);
                continue;
            }
            let name = path.strip_prefix(dir).ok().and_then(Path::to_str);
            let Some(file) = name.and_then(|it| files.get(it)) else { return Ok(false) };
            let there = fs::symlink_metadata(&path)?;
            let is_same = there.mode() & 0o777 == mode_of(file, group)
                && there.uid() == file.user.unwrap_or(0)
                && there.len() == file.data.len() as u64
                && fs::read(&path)? == file.data;
            if !is_same {
                return Ok(false);
            }
            found += 1;
        }
    }
    Ok(found == files.len())
}

/// The link that a container sees.
fn show(volume: &Path, name: &str, group: Option<u32>) -> io::Result<()> {
    let (link, target) = (volume.join(name), Path::new(DATA).join(name));
    match fs::read_link(&link) {
        Ok(there) if there == target => return Ok(()),
        Ok(_) => fs::remove_file(&link)?,
        Err(why) if why.kind() == io::ErrorKind::NotFound => {}
        // A directory made for another volume's mount gives way while it is empty.
        Err(why) if why.kind() == io::ErrorKind::InvalidInput => {
            if fs::remove_dir(&link).is_err() {
                // Something is mounted there, or is in it: the file stays hidden, as it would be below the mount.
                return Ok(());
            }
        }
        Err(why) => return Err(why),
    }
    symlink(target, &link)?;
    std::os::unix::fs::lchown(&link, None, group)
}

fn mode_of(file: &File, group: Option<u32>) -> u32 {
    if group.is_some() { file.mode | GROUP_FILE } else { file.mode }
}

fn own_dir(dir: &Path, group: Option<u32>) -> io::Result<()> {
    std::os::unix::fs::chown(dir, None, group)?;
    let mode = if group.is_some() { 0o755 | GROUP_DIR } else { 0o755 };
    fs::set_permissions(dir, Permissions::from_mode(mode))
}
