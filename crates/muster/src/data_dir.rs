//! The data directory: whose it is, and that one process has it.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{anyhow, bail};
use muster_agent::local_node;
use muster_files::Found;

use crate::logging::{print, print_error};

/// A directory that has one of these has been ours before.
const OURS: [&str; 10] = [
    "lock",
    "cluster",
    "encryption.key",
    "muster.db",
    "muster.db-wal",
    "ca.crt",
    "ca.key",
    "sa.key",
    "kubeconfig",
    "images",
];

/// A file system has it for itself.
const NOBODYS: &str = "lost+found";

/// Interval of the check that the path of the lock file still names the locked file.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// The lock on a data directory, until it is dropped.
#[derive(Debug)]
pub(crate) struct Lock {
    file: File,
    path: PathBuf,
}

impl Lock {
    /// Returns when the lock file was removed or replaced: from then on a second process could lock the directory.
    pub(crate) async fn lost(&self) -> anyhow::Error {
        while self.is_held() {
            tokio::time::sleep(CHECK_EVERY).await;
        }
        anyhow!(
            "{} was removed or replaced while it was held, so this process ends: start it again",
            self.path.display()
        )
    }

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

/// Rule: one process has a data directory at a time, for two would write the same files; it is empty or has been ours before, so
/// that our files are not mixed with others; and only its owner, who runs the process, may read or write it.
pub(crate) fn lock(dir: &Path) -> anyhow::Result<Lock> {
    muster_files::create_private_dir(dir).map_err(|error| cannot_use(dir, &error))?;
    let entries = fs::read_dir(dir).map_err(|error| cannot_use(dir, &error))?;
    let names: Vec<_> = entries.flatten().map(|it| it.file_name()).filter(|it| it != NOBODYS).collect();
    if !names.is_empty() && !names.iter().any(|it| OURS.iter().any(|ours| it == ours)) {
        bail!("{} has files in it that are not muster's: choose another --data-dir", dir.display());
    }
    match muster_files::make_private_dir(dir).map_err(|error| cannot_use(dir, &error))? {
        Found::Private => {}
        Found::Repaired { mode } if mode & 0o022 != 0 => tracing::warn!(
            dir = %dir.display(),
            "others could write the data directory (mode {mode:04o}): its mode is 0700 now. Keys in it may have been exchanged"
        ),
        // What is in it was still readable by its owner only.
        Found::Repaired { mode } => {
            tracing::info!(dir = %dir.display(), "the mode of the data directory is 0700 now, it was {mode:04o}");
        }
        Found::Foreign { owner } => bail!(
            "{} belongs to another user (UID {owner}), who could exchange its keys: change its owner, or choose another --data-dir",
            dir.display()
        ),
    }
    let mut file = open(dir).map_err(|error| cannot_use(dir, &error))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            bail!(
                "another muster{} is running on {}: stop that one, or choose another --data-dir",
                holder(&mut file),
                dir.display()
            )
        }
        Err(TryLockError::Error(error)) => return Err(cannot_use(dir, &error)),
    }
    // For whoever comes while we run; nobody else reads it.
    let noted = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
    noted.map_err(|error| cannot_use(dir, &error))?;
    muster_files::remove_temporary(dir).map_err(|error| cannot_use(dir, &error))?;
    Ok(Lock { file, path: dir.join("lock") })
}

/// Clear up after a `muster up` that was killed
///
/// Its containers run on until then. They go, and with them all that its nodes had of this machine: containerds, network
/// namespaces, bridges, mounts and cgroups. The data directory stays, and the next `muster up` goes on with it.
#[derive(Debug, clap::Args)]
pub(crate) struct DownArgs {
    /// The data directory of the `muster up`
    #[arg(long, value_name = "DIR", default_value = ".muster")]
    data_dir: PathBuf,
}

pub(crate) async fn down(args: &DownArgs) -> anyhow::Result<()> {
    let dir = &args.data_dir;
    if !dir.join("lock").exists() {
        return down_without_directory(dir).await;
    }
    let mut file = open(dir).map_err(|error| cannot_use(dir, &error))?;
    match file.try_lock() {
        Ok(()) => {
            clear(dir).await?;
            let dir = dir.display();
            print(format_args!(
                "nothing runs on {dir}. Its data stays: `muster up --data-dir {dir}` goes on with it, and to forget the cluster \
                 remove the directory"
            ));
            Ok(())
        }
        Err(TryLockError::WouldBlock) => {
            bail!(
                "muster{} is still running on {}: stop it with Ctrl-C or SIGTERM",
                holder(&mut file),
                dir.display()
            )
        }
        Err(TryLockError::Error(error)) => Err(cannot_use(dir, &error)),
    }
}

/// For a data directory that was removed. Mounts, namespaces and cgroups of its nodes are found by its path.
async fn down_without_directory(dir: &Path) -> anyhow::Result<()> {
    if local_node::leftovers(dir)?.0.is_empty() {
        bail!("no muster has been up on {}: choose another --data-dir", dir.display());
    }
    if let Some(up) = local_node::user_of(dir)? {
        bail!(
            "muster (process {up}) is still running on {}, which was removed: stop it with SIGTERM",
            dir.display()
        );
    }
    clear(dir).await?;
    print(format_args!("removed what the deleted data directory {} had left", dir.display()));
    Ok(())
}

async fn clear(dir: &Path) -> anyhow::Result<()> {
    let pods = local_node::pods(dir).await;
    if 0 < pods {
        let pods = if pods == 1 { "1 pod".to_owned() } else { format!("{pods} pods") };
        print_error(format_args!("muster: ending {pods}, up to {} s", local_node::GRACE.as_secs()));
    }
    // Without its files a containerd cannot end pods in an orderly way.
    let abandoned = local_node::clear_abandoned(dir).await?;
    let was = local_node::clear(dir, local_node::GRACE).await?;
    let left = local_node::leftovers(dir)?;
    if !left.0.is_empty() {
        bail!("this is left, although it was to go; root may do it: {}", left.0.join(", "));
    }
    for it in abandoned.0.iter().chain(&was.0) {
        print(format_args!("removed: {it}"));
    }
    Ok(())
}

fn open(dir: &Path) -> io::Result<File> {
    muster_files::open_private(&dir.join("lock"))
}

/// Which process has the lock, if it says so.
fn holder(file: &mut File) -> String {
    let mut text = String::new();
    let read = file.rewind().and_then(|()| file.take(20).read_to_string(&mut text));
    match (read, text.trim().parse::<u32>()) {
        (Ok(_), Ok(pid)) => format!(" (process {pid})"),
        _ => String::new(),
    }
}

fn cannot_use(dir: &Path, error: &io::Error) -> anyhow::Error {
    let dir = dir.display();
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            anyhow!("no permission to use {dir}: become its owner, or choose another --data-dir")
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            anyhow!("{dir} is on a file system that cannot be written: choose another --data-dir")
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            anyhow!("there is no room left for {dir}: make some, or choose another --data-dir")
        }
        io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
            anyhow!("{dir} is not a directory, or lies in what is none: choose another --data-dir")
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
        let said = reasons.map(|it| cannot_use(Path::new("d"), &it.into()).to_string());
        expect![[r#"
            no permission to use d: become its owner, or choose another --data-dir
            d is on a file system that cannot be written: choose another --data-dir
            there is no room left for d: make some, or choose another --data-dir
            d is not a directory, or lies in what is none: choose another --data-dir
            cannot use d as the data directory: other error. Choose another --data-dir"#]]
        .assert_eq(&said.join("\n"));
    }
}
