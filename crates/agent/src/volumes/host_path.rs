//! hostPath volumes.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::timeout;

use super::{VolumeError, lock, run_blocking};

/// Runs operations on host paths with a timeout, because a path may be on a disk or file server that does not respond.
/// Examples are the check of a path's type and the mount of a subPath.
#[derive(Debug, Default)]
pub(super) struct HostPathOperations {
    /// One lock for each path with an operation in progress. The locks of other paths are removed at the next
    /// operation.
    path_locks: Mutex<BTreeMap<PathBuf, Arc<tokio::sync::Mutex<()>>>>,
}

impl HostPathOperations {
    /// Runs `operation` on a path and returns its result. Fails if there is no result within the timeout `within`,
    /// which includes the wait for an earlier operation on the path.
    ///
    /// Rule: a host path that does not respond is reported and does not block other paths. At most one operation on a
    /// path runs at a time, even if the operation is retried.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        path: &Path,
        within: Duration,
        operation: impl FnOnce() -> Result<T, VolumeError> + Send + 'static,
    ) -> Result<T, VolumeError> {
        let turn = {
            let mut turns = lock(&self.path_locks);
            turns.retain(|_, it| 1 < Arc::strong_count(it));
            turns.entry(path.to_owned()).or_default().clone()
        };
        let operating = async {
            let turn = turn.lock_owned().await;
            // The lock is held until the operation ends, even if its caller has timed out.
            run_blocking(move || {
                let _turn = turn;
                operation()
            })
            .await
        };
        timeout(within, operating)
            .await
            .unwrap_or_else(|_| Err(VolumeError::HostPathTimeout { path: path.to_owned() }))
    }
}

/// Checks the `type` of a hostPath volume. Without a type nothing is checked, and the runtime creates a missing
/// directory.
///
/// Rule: a pod is not started before its hostPath has the declared type. The types `FileOrCreate` and
/// `DirectoryOrCreate` create a missing file or directory. Upstream: `hostpath.checkType`.
pub(super) fn ensure_type(path: &Path, kind: &str) -> Result<(), VolumeError> {
    if kind.is_empty() {
        return Ok(());
    }
    let found = match fs::metadata(path) {
        Ok(it) => Some(it.file_type()),
        Err(why) if why.kind() == io::ErrorKind::NotFound => None,
        Err(source) => return Err(VolumeError::from_io("inspect", path, source)),
    };
    let is = |test: fn(&fs::FileType) -> bool| found.as_ref().is_some_and(test);
    let refuse = |what| Err(VolumeError::HostPath { path: path.to_owned(), what });
    match kind {
        "DirectoryOrCreate" if found.is_none() => create_dir(path),
        "FileOrCreate" if found.is_none() => create_file(path),
        "Directory" | "DirectoryOrCreate" if !is(fs::FileType::is_dir) => refuse("a directory"),
        "File" | "FileOrCreate" if !is(fs::FileType::is_file) => refuse("a file"),
        "Socket" if !is(fs::FileType::is_socket) => refuse("a socket file"),
        "CharDevice" if !is(fs::FileType::is_char_device) => refuse("a character device"),
        "BlockDevice" if !is(fs::FileType::is_block_device) => refuse("a block device"),
        "Directory" | "DirectoryOrCreate" | "File" | "FileOrCreate" | "Socket" | "CharDevice"
        | "BlockDevice" => Ok(()),
        other => Err(VolumeError::Unsupported(format!("{other} is an invalid volume type"))),
    }
}

/// Parses and validates the path of a hostPath volume.
///
/// Rule: a hostPath is absolute and has no `..`.
pub(super) fn parse_host_path(path: &str) -> Result<&Path, VolumeError> {
    let refuse = |why| Err(VolumeError::Path { path: path.into(), why });
    let parsed = Path::new(path);
    if parsed.components().any(|it| it == Component::ParentDir) {
        return refuse("must not contain '..'");
    }
    if !parsed.is_absolute() || path.contains('\0') {
        return refuse("must be an absolute path");
    }
    Ok(parsed)
}

/// Creates the directory of a hostPath volume with mode 0755. Missing parents get the default mode.
fn create_dir(path: &Path) -> Result<(), VolumeError> {
    fs::create_dir_all(path)
        .and_then(|()| fs::set_permissions(path, Permissions::from_mode(0o755)))
        .map_err(|source| VolumeError::from_io("create the directory", path, source))
}

/// Creates the file of a hostPath volume. Its directory must exist.
fn create_file(path: &Path) -> Result<(), VolumeError> {
    let made = OpenOptions::new().write(true).create(true).truncate(false).mode(0o644).open(path);
    made.map(drop).map_err(|source| VolumeError::from_io("create the file", path, source))
}
