//! Writes the files of a ConfigMap, Secret, projected or downward API volume atomically.
//!
//! The layout is the kubelet's: `..data` links to a directory with the current files, and each visible name links into
//! `..data`. The content of all files changes in one step, when `..data` is replaced.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::payload::VolumeFile;

/// Name of the symbolic link to the directory with the current files.
const DATA_LINK: &str = "..data";
/// Temporary name of a new symbolic link, which then replaces [`DATA_LINK`].
const DATA_LINK_NEXT: &str = "..data_tmp";

/// Mode bits that are added to the files of a read-only volume with an fsGroup.
const FS_GROUP_FILE_MODE: u32 = 0o440;
/// Mode bits that are added to the directories of a read-only volume with an fsGroup.
const FS_GROUP_DIR_MODE: u32 = 0o2550;

/// Writes the files of a volume, and removes links and directories of earlier writes. `group` is the pod's fsGroup.
///
/// Rule: the files of a volume are replaced together, and only if a file has changed. Upstream: `AtomicWriter.Write`.
pub(super) fn write_files(
    volume: &Path,
    files: &BTreeMap<String, VolumeFile>,
    group: Option<u32>,
) -> io::Result<()> {
    let current = match fs::read_link(volume.join(DATA_LINK)) {
        Ok(link) => Some(link),
        Err(why) if why.kind() == io::ErrorKind::NotFound => None,
        Err(why) => return Err(why),
    };
    let is_current = match &current {
        Some(it) => contains_exactly(&volume.join(it), files, group)?,
        None => false,
    };
    let current_dir = if is_current { current } else { Some(replace_data_dir(volume, files, group)?) };

    let visible_names: BTreeSet<&str> = files.keys().map(|it| it.split('/').next().unwrap_or(it)).collect();
    for name in &visible_names {
        link_file(volume, name, group)?;
    }
    for entry in fs::read_dir(volume)? {
        let entry = entry?;
        let (name, path) = (entry.file_name(), entry.path());
        let Some(name) = name.to_str() else { continue };
        if entry.file_type()?.is_symlink() {
            let is_ours = fs::read_link(&path)?.starts_with(DATA_LINK);
            if is_ours && !visible_names.contains(name) {
                fs::remove_file(&path)?;
            }
        } else if name.starts_with("..") && Some(Path::new(name)) != current_dir.as_deref() {
            fs::remove_dir_all(&path)?;
        }
    }
    Ok(())
}

/// Writes all files into a new directory and points `..data` to it. Returns the name of the new directory in the
/// volume.
fn replace_data_dir(
    volume: &Path,
    files: &BTreeMap<String, VolumeFile>,
    group: Option<u32>,
) -> io::Result<PathBuf> {
    let now = Timestamp::now();
    let name = format!("..{}.{:09}", now.strftime("%Y_%m_%d_%H_%M_%S"), now.subsec_nanosecond());
    let name = PathBuf::from(name);
    let dir = volume.join(&name);
    fs::create_dir(&dir)?;
    set_dir_group_and_mode(&dir, group)?;
    for (path, file) in files {
        let path = dir.join(path);
        let mut missing: Vec<&Path> = path.ancestors().skip(1).take_while(|it| *it != dir).collect();
        missing.reverse();
        for parent in missing {
            match fs::create_dir(parent) {
                Ok(()) => set_dir_group_and_mode(parent, group)?,
                Err(why) if why.kind() == io::ErrorKind::AlreadyExists => {}
                Err(why) => return Err(why),
            }
        }
        fs::write(&path, &file.data)?;
        std::os::unix::fs::chown(&path, file.user, group)?;
        fs::set_permissions(&path, Permissions::from_mode(file_mode(file, group)))?;
    }
    match fs::remove_file(volume.join(DATA_LINK_NEXT)) {
        Err(why) if why.kind() != io::ErrorKind::NotFound => return Err(why),
        _ => {}
    }
    symlink(&name, volume.join(DATA_LINK_NEXT))?;
    fs::rename(volume.join(DATA_LINK_NEXT), volume.join(DATA_LINK))?;
    Ok(name)
}

/// Whether a directory contains exactly these files, with the same content, mode and user. The group is not compared.
fn contains_exactly(
    dir: &Path,
    files: &BTreeMap<String, VolumeFile>,
    group: Option<u32>,
) -> io::Result<bool> {
    let mut found = 0;
    let mut pending = vec![dir.to_owned()];
    while let Some(at) = pending.pop() {
        let entries = match fs::read_dir(&at) {
            Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(false),
            other => other?,
        };
        for entry in entries {
            let (entry, path) = entry.map(|it| (it.file_type(), it.path()))?;
            if entry?.is_dir() {
                pending.push(path);
                continue;
            }
            let name = path.strip_prefix(dir).ok().and_then(Path::to_str);
            let Some(file) = name.and_then(|it| files.get(it)) else { return Ok(false) };
            let found_file = fs::symlink_metadata(&path)?;
            let is_same = found_file.mode() & 0o777 == file_mode(file, group)
                && found_file.uid() == file.user.unwrap_or(0)
                && found_file.len() == file.data.len() as u64
                && fs::read(&path)? == file.data;
            if !is_same {
                return Ok(false);
            }
            found += 1;
        }
    }
    Ok(found == files.len())
}

/// Creates the visible link to a file or directory in `..data`. Another link or an empty directory with the same name
/// is replaced. Anything else with that name stays instead of the link, for example a mount point.
fn link_file(volume: &Path, name: &str, group: Option<u32>) -> io::Result<()> {
    let (link, target) = (volume.join(name), Path::new(DATA_LINK).join(name));
    match fs::read_link(&link) {
        Ok(existing) if existing == target => return Ok(()),
        Ok(_) => fs::remove_file(&link)?,
        Err(why) if why.kind() == io::ErrorKind::NotFound => {}
        // An empty directory, created as the mount point of another volume, is replaced.
        Err(why) if why.kind() == io::ErrorKind::InvalidInput => {
            if fs::remove_dir(&link).is_err() {
                // The directory is a mount point or not empty: the file stays hidden, as it would be below the
                // mount.
                return Ok(());
            }
        }
        Err(why) => return Err(why),
    }
    symlink(target, &link)?;
    std::os::unix::fs::lchown(&link, None, group)
}

/// Returns the mode with which a file is written. In a volume with an fsGroup, the owner and the group can read the
/// file.
fn file_mode(file: &VolumeFile, group: Option<u32>) -> u32 {
    if group.is_some() { file.mode | FS_GROUP_FILE_MODE } else { file.mode }
}

/// Sets the group and the mode of a directory in the volume. The group is unchanged if `group` is `None`.
fn set_dir_group_and_mode(dir: &Path, group: Option<u32>) -> io::Result<()> {
    std::os::unix::fs::chown(dir, None, group)?;
    let mode = if group.is_some() { 0o755 | FS_GROUP_DIR_MODE } else { 0o755 };
    fs::set_permissions(dir, Permissions::from_mode(mode))
}
