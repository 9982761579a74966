//! Paths of the machine itself.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::timeout;

use super::{VolumeError, blocking, lock};

/// The looks at paths of the machine. Any of them may be on a disk, or behind a server, that does not answer.
#[derive(Debug, Default)]
pub(super) struct Looks {
    turns: Mutex<BTreeMap<PathBuf, Arc<tokio::sync::Mutex<()>>>>,
}

impl Looks {
    /// Rule: a path of the machine that does not answer is told of, and holds up nobody: no more than one look at it is under way,
    /// however often it is tried.
    pub(super) async fn take<T: Send + 'static>(
        &self,
        path: &Path,
        within: Duration,
        look: impl FnOnce() -> Result<T, VolumeError> + Send + 'static,
    ) -> Result<T, VolumeError> {
        let turn = {
            let mut turns = lock(&self.turns);
            turns.retain(|_, it| 1 < Arc::strong_count(it));
            turns.entry(path.to_owned()).or_default().clone()
        };
        let looking = async {
            let turn = turn.lock_owned().await;
            // The turn is over when the look is, whether or not somebody still waits for it.
            blocking(move || {
                let _turn = turn;
                look()
            })
            .await
        };
        timeout(within, looking).await.unwrap_or_else(|_| Err(VolumeError::Silent { path: path.to_owned() }))
    }
}

/// Rule: a hostPath is what its type says it is, or the pod waits; the two `OrCreate` types make it where nothing is.
/// Upstream: `hostpath.checkType`.
///
/// Without a type nothing is looked at, and the runtime makes a directory where nothing is.
pub(super) fn check(path: &Path, kind: &str) -> Result<(), VolumeError> {
    if kind.is_empty() {
        return Ok(());
    }
    let there = match fs::metadata(path) {
        Ok(it) => Some(it.file_type()),
        Err(why) if why.kind() == io::ErrorKind::NotFound => None,
        Err(source) => return Err(VolumeError::io("look at", path, source)),
    };
    let is = |test: fn(&fs::FileType) -> bool| there.as_ref().is_some_and(test);
    let refuse = |what| Err(VolumeError::HostPath { path: path.to_owned(), what });
    match kind {
        "DirectoryOrCreate" if there.is_none() => make_dir(path),
        "FileOrCreate" if there.is_none() => make_file(path),
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

/// Rule: a hostPath is absolute and has no `..`: where it leads is what is written.
pub(super) fn parse(path: &str) -> Result<&Path, VolumeError> {
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

fn make_dir(path: &Path) -> Result<(), VolumeError> {
    fs::create_dir_all(path)
        .and_then(|()| fs::set_permissions(path, Permissions::from_mode(0o755)))
        .map_err(|source| VolumeError::io("make the directory", path, source))
}

fn make_file(path: &Path) -> Result<(), VolumeError> {
    let made = OpenOptions::new().write(true).create(true).truncate(false).mode(0o644).open(path);
    made.map(drop).map_err(|source| VolumeError::io("make the file", path, source))
}
