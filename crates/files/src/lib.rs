//! Private files and directories, to which only their owner has access. [`write_private_file`] replaces a file
//! atomically.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown,
};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

/// Mode of a private file: only the owner may read and write it.
const PRIVATE_FILE_MODE: u32 = 0o600;

/// Mode of a private directory: only the owner has access.
const PRIVATE_DIR_MODE: u32 = 0o700;

/// Suffix of the temporary files that [`write_private_file`] creates.
const TEMPORARY_SUFFIX: &str = ".tmp";

/// Suffix of the temporary files of earlier versions of Muster, which appended it to the name of the final file.
const OLD_TEMPORARY_SUFFIX: &str = ".new";

/// Writes a file with mode 0600, and replaces an existing file atomically.
///
/// Rule: a private file is created under a random name with O_EXCL, O_NOFOLLOW and mode 0600, synced, and only then
/// renamed to its final name. If another user placed a file or a symbolic link at the final name, it is replaced and
/// never opened.
pub fn write_private_file(path: &Path, content: &[u8]) -> io::Result<()> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
    let temporary = path.with_file_name(temporary_file_name(name));
    let written = || {
        let mut file = create_private_file(&temporary)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    };
    if let Err(error) = written() {
        // Remove the partial file, unless O_EXCL found a file of another user under its name.
        if error.kind() != io::ErrorKind::AlreadyExists {
            let _ = fs::remove_file(&temporary);
        }
        return Err(error);
    }
    sync_parent_dir(path)
}

/// Overwrites an existing file in place, and sets its mode to 0600. This reuses the blocks of the file, so it may
/// succeed on a full disk, where [`write_private_file`] fails. It is not atomic: a crash may leave a partial file.
pub fn overwrite_private_file(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = private_open_options().open(path)?;
    file.set_permissions(Permissions::from_mode(PRIVATE_FILE_MODE))?;
    file.write_all(content)?;
    file.set_len(content.len() as u64)?;
    file.sync_all()
}

/// Creates a file with mode 0600. Fails if the file exists.
pub fn create_private_file(path: &Path) -> io::Result<File> {
    let file = private_open_options().create_new(true).open(path)?;
    // The umask may have removed permissions of the owner.
    file.set_permissions(Permissions::from_mode(PRIVATE_FILE_MODE))?;
    Ok(file)
}

/// Opens or creates a file for reading and writing, and sets its mode to 0600. Fails if `path` is a symbolic link.
pub fn open_private_file(path: &Path) -> io::Result<File> {
    let file = private_open_options().create(true).truncate(false).open(path)?;
    repair_mode(&file)?;
    Ok(file)
}

/// Opens or creates a file for appending, and sets its mode to 0600. Fails if `path` is a symbolic link.
pub fn append_to_private_file(path: &Path) -> io::Result<File> {
    let file = private_open_options().append(true).create(true).open(path)?;
    repair_mode(&file)?;
    Ok(file)
}

/// Sets the mode of an open file to 0600, unless it has this mode.
fn repair_mode(file: &File) -> io::Result<()> {
    if file.metadata()?.permissions().mode() & 0o777 != PRIVATE_FILE_MODE {
        file.set_permissions(Permissions::from_mode(PRIVATE_FILE_MODE))?;
    }
    Ok(())
}

/// Returns options that open a file for reading and writing, but not through a symbolic link. A file that is created
/// with them has mode 0600.
fn private_open_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    let no_follow = i32::try_from(OFlags::NOFOLLOW.bits()).expect("a flag of open(2) is an int");
    options.read(true).write(true).mode(PRIVATE_FILE_MODE).custom_flags(no_follow);
    options
}

/// Result of [`make_private_dir`]: who had access to the directory before the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DirPrivacy {
    /// Only the user of the process had access.
    Private,
    /// Other users had access. `mode` was the mode of the directory before the call. Its mode is 0700 now.
    Repaired { mode: u32 },
    /// The directory belongs to another user, who could replace every file in it. `owner` is the Unix user ID of that
    /// user. The directory was not changed.
    Foreign { owner: u32 },
}

/// Creates a directory and its missing parents with mode 0700. Succeeds, and changes no mode, if the directory exists.
pub fn create_private_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(PRIVATE_DIR_MODE).create(path)
}

/// Creates a directory with mode 0700. Fails if `path` exists.
pub fn create_new_private_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(PRIVATE_DIR_MODE).create(path)
}

/// Restricts access to a directory to the user of the process.
///
/// Rule: a data directory belongs to the user of the process, and only that user may access it. A wider mode is changed
/// to 0700. A directory of another user is not changed, and [`DirPrivacy::Foreign`] is returned.
pub fn make_private_dir(path: &Path) -> io::Result<DirPrivacy> {
    let found = fs::metadata(path)?;
    if found.uid() != rustix::process::geteuid().as_raw() {
        return Ok(DirPrivacy::Foreign { owner: found.uid() });
    }
    let mode = found.mode() & 0o777;
    if mode & 0o077 == 0 {
        return Ok(DirPrivacy::Private);
    }
    fs::set_permissions(path, Permissions::from_mode(PRIVATE_DIR_MODE))?;
    Ok(DirPrivacy::Repaired { mode })
}

/// Gives the files of root in a directory to the owner of the directory. Does nothing if the process is not of root, or if
/// root owns the directory. Subdirectories are left as they are.
///
/// Rule: the owner of the directory controls the names in it. So only a file without another hard link is given to the
/// owner, and symbolic links are not followed: the owner could have linked to a file of root elsewhere.
pub fn give_files_to_dir_owner(dir: &Path) -> io::Result<()> {
    let owner = fs::metadata(dir)?;
    if !rustix::process::geteuid().is_root() || owner.uid() == 0 {
        return Ok(());
    }
    let flags =
        i32::try_from((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits()).expect("flags of open(2) are an int");
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let is_file_of_root = |it: &fs::Metadata| it.is_file() && it.uid() == 0 && it.nlink() == 1;
        if !is_file_of_root(&fs::symlink_metadata(&path)?) {
            continue;
        }
        let file = OpenOptions::new().read(true).custom_flags(flags).open(&path)?;
        // The owner may have replaced the file.
        if is_file_of_root(&file.metadata()?) {
            fchown(&file, Some(owner.uid()), Some(owner.gid()))?;
        }
    }
    Ok(())
}

/// Removes the temporary files that killed processes left in a directory. No other process may write private files in
/// the directory during the call, because its temporary files would be removed.
pub fn remove_temporary_files(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        if is_temporary_file(&name, dir) && entry.file_type()?.is_file() {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Returns a random name for the temporary file of `name`: a dot, `name`, a dot, 16 hexadecimal digits and `.tmp`.
fn temporary_file_name(name: &OsStr) -> PathBuf {
    let mut temporary = OsStr::new(".").to_owned();
    temporary.push(name);
    temporary.push(format!(".{:016x}{TEMPORARY_SUFFIX}", RandomState::new().hash_one(std::process::id())));
    temporary.into()
}

/// Whether `name` is the name of a temporary file of this version of Muster, or of an earlier version. A name with the
/// suffix of earlier versions counts only if the final file exists in `dir` or is `kubeconfig`.
fn is_temporary_file(name: &OsStr, dir: &Path) -> bool {
    let Some(name) = name.to_str() else { return false };
    if let Some(of) = name.strip_suffix(OLD_TEMPORARY_SUFFIX) {
        // A `ca.key.new` is a temporary file only beside a `ca.key`; a `kubeconfig.new` always is.
        return dir.join(of).exists() || of == "kubeconfig";
    }
    let random = name.strip_prefix('.').and_then(|it| it.strip_suffix(TEMPORARY_SUFFIX));
    let random = random.and_then(|it| it.rsplit_once('.')).map(|(_, random)| random);
    random.is_some_and(|it| it.len() == 16 && it.bytes().all(|it| it.is_ascii_hexdigit()))
}

/// Syncs the parent directory of `path`, so that the creation or renaming of a file in it is durable.
pub fn sync_parent_dir(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|it| !it.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{chown, symlink};

    use tempfile::tempdir;

    use super::*;

    /// The names of the files in a directory, sorted.
    fn names(dir: &Path) -> Vec<String> {
        let entries = fs::read_dir(dir).unwrap();
        let mut names: Vec<_> = entries.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().mode() & 0o7777
    }

    #[test]
    fn a_file_that_was_put_there_before_is_replaced_and_not_opened() {
        let dir = tempdir().unwrap();
        let (path, victim) = (dir.path().join("kubeconfig"), dir.path().join("victim"));
        for planted in ["kubeconfig", "kubeconfig.new"] {
            fs::write(dir.path().join(planted), "planted").unwrap();
            fs::set_permissions(dir.path().join(planted), Permissions::from_mode(0o666)).unwrap();
        }
        let mut reader = File::open(dir.path().join("kubeconfig.new")).unwrap();
        write_private_file(&path, b"secret").unwrap();
        assert_eq!((fs::read(&path).unwrap(), mode(&path)), (b"secret".to_vec(), 0o600));
        let read = io::read_to_string(&mut reader).unwrap();
        assert_eq!(read, "planted", "the file that was planted never holds the secret");

        fs::write(&victim, "as it was").unwrap();
        fs::remove_file(&path).unwrap();
        symlink(&victim, &path).unwrap();
        write_private_file(&path, b"secret").unwrap();
        assert_eq!(fs::read(&victim).unwrap(), b"as it was");
        assert!(fs::symlink_metadata(&path).unwrap().is_file());
        assert_eq!(names(dir.path()), ["kubeconfig", "kubeconfig.new", "victim"], "no temporary file stays");
    }

    #[test]
    fn a_file_is_overwritten_in_place() {
        let dir = tempdir().unwrap();
        let path = dir.path().join("a");
        assert_eq!(overwrite_private_file(&path, b"new").unwrap_err().kind(), io::ErrorKind::NotFound);
        write_private_file(&path, b"longer").unwrap();
        let before = fs::metadata(&path).unwrap().ino();
        overwrite_private_file(&path, b"new").unwrap();
        assert_eq!((fs::read(&path).unwrap(), fs::metadata(&path).unwrap().ino()), (b"new".to_vec(), before));
        assert_eq!(names(dir.path()), ["a"]);
    }

    #[test]
    fn a_symbolic_link_is_not_opened_and_loose_modes_are_repaired() {
        let dir = tempdir().unwrap();
        let lock = dir.path().join("lock");
        fs::write(dir.path().join("victim"), "").unwrap();
        symlink(dir.path().join("victim"), &lock).unwrap();
        open_private_file(&lock).unwrap_err();
        create_private_file(&lock).unwrap_err();
        fs::remove_file(&lock).unwrap();
        fs::write(&lock, "17").unwrap();
        fs::set_permissions(&lock, Permissions::from_mode(0o666)).unwrap();
        open_private_file(&lock).unwrap();
        assert_eq!((fs::read(&lock).unwrap(), mode(&lock)), (b"17".to_vec(), 0o600));

        fs::set_permissions(dir.path(), Permissions::from_mode(0o777)).unwrap();
        assert_eq!(make_private_dir(dir.path()).unwrap(), DirPrivacy::Repaired { mode: 0o777 });
        assert_eq!((make_private_dir(dir.path()).unwrap(), mode(dir.path())), (DirPrivacy::Private, 0o700));
    }

    #[test]
    #[ignore = "needs root"]
    fn files_of_root_are_given_to_the_owner_of_their_directory() {
        const OWNER: u32 = 4711;
        let dir = tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let owner = |name: &str| fs::symlink_metadata(path(name)).unwrap().uid();
        for name in ["written", "of-another-user", "linked", "target"] {
            write_private_file(&path(name), b"").unwrap();
        }
        give_files_to_dir_owner(dir.path()).unwrap();
        assert_eq!(owner("written"), 0, "root owns the directory");
        let outside = tempdir().unwrap();
        fs::hard_link(path("linked"), outside.path().join("linked")).unwrap();
        fs::rename(path("target"), outside.path().join("target")).unwrap();
        symlink(outside.path().join("target"), path("symbolic")).unwrap();
        fs::create_dir(path("dir")).unwrap();
        chown(path("of-another-user"), Some(OWNER + 1), None).unwrap();
        chown(dir.path(), Some(OWNER), Some(OWNER)).unwrap();
        give_files_to_dir_owner(dir.path()).unwrap();
        let owners = ["written", "of-another-user", "linked", "symbolic", "dir"].map(owner);
        assert_eq!(owners, [OWNER, OWNER + 1, 0, 0, 0]);
        assert_eq!(fs::metadata(outside.path().join("target")).unwrap().uid(), 0);
    }

    #[test]
    fn a_failed_write_leaves_no_file_and_old_temporary_files_are_removed() {
        let dir = tempdir().unwrap();
        fs::create_dir(dir.path().join("taken")).unwrap();
        write_private_file(&dir.path().join("taken"), b"a directory is in the way").unwrap_err();
        assert_eq!(names(dir.path()), ["taken"]);

        for name in [
            "ca.key",
            "ca.key.new",
            ".ca.key.0123456789abcdef.tmp",
            ".other.tmp",
            "notes.new",
            "kubeconfig.new",
        ] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        remove_temporary_files(dir.path()).unwrap();
        assert_eq!(names(dir.path()), [".other.tmp", "ca.key", "notes.new", "taken"]);
    }
}
