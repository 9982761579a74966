//! The lock, owner and mode of the data directory.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{anyhow, bail};
use muster_files::DirPrivacy;
use muster_server::{ENCRYPTION_KEY_FILE, SERVER_TOKEN_FILE};

/// Names of files and directories by which a data directory is recognized. A directory that is not empty is accepted as
/// a data directory only if it contains one of them.
const DATA_DIR_FILES: [&str; 11] = [
    "lock",
    SERVER_TOKEN_FILE,
    "cluster",
    ENCRYPTION_KEY_FILE,
    "muster.db",
    "muster.db-wal",
    "ca.crt",
    "ca.key",
    "sa.key",
    "kubeconfig",
    "images",
];

/// Directory that a file system such as ext4 creates in its root directory. A new data directory may contain it.
const LOST_AND_FOUND: &str = "lost+found";

/// Interval of checks that the path of the lock file still refers to the locked file.
const LOCK_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Interval of attempts to lock a data directory that another process has locked.
const LOCK_RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// Exclusive lock on a data directory. Released on drop.
#[derive(Debug)]
pub(crate) struct DataDirLock {
    file: File,
    path: PathBuf,
    /// The data directory, if it belongs to another user than root, who runs the process. The files of root in it are
    /// given to that user on drop.
    foreign_dir: Option<PathBuf>,
}

impl Drop for DataDirLock {
    fn drop(&mut self) {
        let Some(dir) = &self.foreign_dir else { return };
        if let Err(error) = muster_files::give_files_to_dir_owner(dir) {
            tracing::warn!(%error, "cannot give the files of root in {} to the owner of the directory", dir.display());
        }
    }
}

impl DataDirLock {
    /// Waits until the lock file is removed or replaced, and returns the error with which the process must exit. From
    /// then on, a second process could lock the directory.
    pub(crate) async fn wait_until_lost(&self) -> anyhow::Error {
        while self.is_held() {
            tokio::time::sleep(LOCK_CHECK_INTERVAL).await;
        }
        anyhow!(
            "{} was removed or replaced while this process held it, so the process exits: start it again",
            self.path.display()
        )
    }

    /// Whether the path of the lock file still refers to the locked file. Also `true` if this cannot be determined.
    fn is_held(&self) -> bool {
        let identity = |it: fs::Metadata| (it.dev(), it.ino());
        match (self.file.metadata(), fs::metadata(&self.path)) {
            (Ok(held), Ok(named)) => identity(held) == identity(named),
            // Only NotFound means removed; other errors are ignored.
            (_, Err(error)) => error.kind() != io::ErrorKind::NotFound,
            (Err(_), Ok(_)) => true,
        }
    }
}

/// Creates the data directory if it is missing, locks it, and removes the temporary files of killed processes.
///
/// Rule: only one process at a time uses a data directory, because two processes would write the same files. The
/// directory must be empty or an earlier data directory, so that files of other programs are not mixed in. Only the
/// user who runs the process may access the directory.
pub(crate) fn lock(dir: &Path) -> anyhow::Result<DataDirLock> {
    lock_dir(dir, false)
}

/// Locks the data directory as [`lock`], for a command that an administrator runs while the server is stopped.
///
/// Rule: root may run such a command in the data directory of another user, for example the user of a systemd unit, who
/// cannot read the certificates for etcd. The files that root has written there are then given to that user when the lock
/// is dropped. If the command is killed before that, it must be run again.
pub(crate) fn lock_for_administration(dir: &Path) -> anyhow::Result<DataDirLock> {
    lock_dir(dir, true)
}

/// Locks the data directory. With `accepts_root`, root may use the directory of another user.
fn lock_dir(dir: &Path, accepts_root: bool) -> anyhow::Result<DataDirLock> {
    muster_files::create_private_dir(dir).map_err(|error| data_dir_error(dir, &error))?;
    let entries = fs::read_dir(dir).map_err(|error| data_dir_error(dir, &error))?;
    let names: Vec<_> =
        entries.flatten().map(|it| it.file_name()).filter(|it| it != LOST_AND_FOUND).collect();
    if !names.is_empty() && !names.iter().any(|it| DATA_DIR_FILES.iter().any(|ours| it == ours)) {
        bail!("{} has files in it that are not muster's: choose another --data-dir", dir.display());
    }
    let mut foreign_dir = None;
    match muster_files::make_private_dir(dir).map_err(|error| data_dir_error(dir, &error))? {
        DirPrivacy::Private => {}
        DirPrivacy::Repaired { mode } if mode & 0o022 != 0 => tracing::warn!(
            dir = %dir.display(),
            "other users could write to the data directory (mode {mode:04o}); its mode is 0700 now. They may have replaced keys"
        ),
        // Other users could not write, and the files are readable by their owner only.
        DirPrivacy::Repaired { mode } => {
            tracing::info!(dir = %dir.display(), "the mode of the data directory is 0700 now, it was {mode:04o}");
        }
        DirPrivacy::Foreign { .. } if accepts_root && rustix::process::geteuid().is_root() => {
            foreign_dir = Some(dir.to_owned());
        }
        DirPrivacy::Foreign { owner } => bail!(
            "{} belongs to another user (UID {owner}), who could replace its keys: change its owner, or choose another --data-dir",
            dir.display()
        ),
    }
    let mut file = open_lock_file(dir).map_err(|error| data_dir_error(dir, &error))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            bail!(
                "another muster{} is running on {}: stop that one, or choose another --data-dir",
                lock_holder_text(&mut file),
                dir.display()
            )
        }
        Err(TryLockError::Error(error)) => return Err(data_dir_error(dir, &error)),
    }
    // The PID is for the error message of a second process.
    let written = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
    written.map_err(|error| data_dir_error(dir, &error))?;
    muster_files::remove_temporary_files(dir).map_err(|error| data_dir_error(dir, &error))?;
    Ok(DataDirLock { file, path: dir.join("lock"), foreign_dir })
}

/// Waits until no process holds the lock of the data directory. If the lock file is replaced meanwhile, the process that
/// held its lock is waited for.
pub(crate) async fn wait_until_unlocked(dir: &Path) -> anyhow::Result<()> {
    let file = open_lock_file(dir).map_err(|error| data_dir_error(dir, &error))?;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) => tokio::time::sleep(LOCK_RETRY_INTERVAL).await,
            Err(TryLockError::Error(error)) => return Err(data_dir_error(dir, &error)),
        }
    }
}

pub(crate) fn open_lock_file(dir: &Path) -> io::Result<File> {
    muster_files::open_private_file(&dir.join("lock"))
}

/// Reads the PID of the process that holds the lock from the lock file, and formats it as ` (process PID)` for an error
/// message. Returns an empty string if the PID is unknown.
pub(crate) fn lock_holder_text(file: &mut File) -> String {
    let mut text = String::new();
    let read = file.rewind().and_then(|()| file.take(20).read_to_string(&mut text));
    match (read, text.trim().parse::<u32>()) {
        (Ok(_), Ok(pid)) => format!(" (process {pid})"),
        _ => String::new(),
    }
}

/// Returns the error for a data directory that cannot be used. The message says what the user can do.
pub(crate) fn data_dir_error(dir: &Path, error: &io::Error) -> anyhow::Error {
    let dir = dir.display();
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            anyhow!("no permission to use {dir}: become its owner, or choose another --data-dir")
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            anyhow!("{dir} is on a read-only file system: choose another --data-dir")
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            anyhow!("no disk space left for {dir}: free some, or choose another --data-dir")
        }
        io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
            anyhow!("{dir} or one of its parents is not a directory: choose another --data-dir")
        }
        _ => anyhow!("cannot use {dir} as the data directory: {error}. Choose another --data-dir"),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn every_reason_says_what_to_do() {
        let reasons = [
            io::ErrorKind::PermissionDenied,
            io::ErrorKind::ReadOnlyFilesystem,
            io::ErrorKind::StorageFull,
            io::ErrorKind::NotADirectory,
            io::ErrorKind::Other,
        ];
        let said = reasons.map(|it| data_dir_error(Path::new("d"), &it.into()).to_string());
        expect![[r#"
            no permission to use d: become its owner, or choose another --data-dir
            d is on a read-only file system: choose another --data-dir
            no disk space left for d: free some, or choose another --data-dir
            d or one of its parents is not a directory: choose another --data-dir
            cannot use d as the data directory: other error. Choose another --data-dir"#]]
        .assert_eq(&said.join("\n"));
    }
}
