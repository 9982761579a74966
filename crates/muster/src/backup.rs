//! `muster backup` and `muster restore`: copy the store to a file and back.

use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::bail;
use muster_server::{EncryptionKeys, EtcdOptions, EtcdTransferOptions};

use crate::data_dir::lock_for_administration;
use crate::encrypt;
use crate::etcd_flags::EtcdFlags;
use crate::logging::{print_to_stderr, print_to_stdout};

/// Number of objects after which the next progress line is printed, if standard error is a terminal.
const PROGRESS_INTERVAL_OBJECTS: usize = 5_000;

/// Back up the cluster's state to a file, even while the server is running
///
/// The backup is a consistent snapshot of all objects, including Secrets. Secrets are encrypted in the backup if they
/// are encrypted in the data directory. The file is verified before it gets its final name, and only its owner may read
/// it. Certificates and keys of the data directory are not included: to restore encrypted Secrets, keep the key file
/// too.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  muster backup --data-dir /var/lib/muster /backups/muster-$(date +%F).db")]
pub(crate) struct BackupArgs {
    /// Data directory of the server
    #[arg(long, value_name = "DIR", default_value = ".muster")]
    data_dir: PathBuf,
    #[command(flatten)]
    etcd: EtcdFlags,
    /// Backup file to create; it must not exist
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// Replace the cluster's state with a backup
///
/// The server must be stopped. The previous state is kept as muster.db.replaced. The resourceVersion continues far
/// above the one in the backup, so clients that resume a watch get 410 Gone and list again.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  muster restore --data-dir /var/lib/muster /backups/muster-2026-11-15.db
  muster restore --data-dir /var/lib/muster --replace /backups/muster-2026-11-15.db")]
pub(crate) struct RestoreArgs {
    /// Data directory of the server
    #[arg(long, value_name = "DIR", default_value = ".muster")]
    data_dir: PathBuf,
    /// Key file, if Secrets are encrypted [default: DIR/encryption.key]
    #[arg(long, value_name = "FILE")]
    encryption_key_file: Option<PathBuf>,
    /// Restore even if the data directory already holds a state
    #[arg(long)]
    replace: bool,
    #[command(flatten)]
    etcd: EtcdFlags,
    /// Backup file written by `muster backup`
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// Executes `muster backup`.
pub(crate) async fn backup(args: &BackupArgs) -> anyhow::Result<()> {
    if let Some(etcd) = args.etcd.options() {
        let done = transfer(&etcd, &args.data_dir, None, async |it| {
            muster_server::backup_etcd(it, &args.file).await
        });
        let (done, file) = (done.await?, args.file.display());
        print_to_stdout(format_args!(
            "backed up {} objects of {} in etcd at revision {} to {file}",
            done.objects.unwrap_or(0),
            etcd.prefix,
            done.revision,
        ));
        return Ok(());
    }
    if !muster_server::has_store(&args.data_dir) {
        bail!("{} has no state to back up: choose another --data-dir", args.data_dir.display());
    }
    let revision = muster_server::backup(&args.data_dir, &args.file)?;
    print_to_stdout(format_args!(
        "backed up {} at revision {revision} to {}",
        args.data_dir.display(),
        args.file.display()
    ));
    Ok(())
}

/// Executes `muster restore`.
pub(crate) async fn restore(args: &RestoreArgs) -> anyhow::Result<()> {
    if let Some(etcd) = args.etcd.options() {
        let keys = encrypt::read_keys(&args.data_dir, args.encryption_key_file.as_deref())?;
        let done = transfer(&etcd, &args.data_dir, keys, async |it| {
            muster_server::restore_etcd(it, &args.file, args.replace).await
        });
        let done = done.await?;
        print_to_stdout(format_args!(
            "restored {} objects of {} to {} in etcd; it continues at revision {}, and clients must list again",
            done.objects.unwrap_or(0),
            args.file.display(),
            etcd.prefix,
            done.revision,
        ));
        return Ok(());
    }
    let _lock = lock_for_administration(&args.data_dir)?;
    if muster_server::has_store(&args.data_dir) && !args.replace {
        bail!(
            "{} already holds a state: add --replace to replace it; it is kept as muster.db.replaced",
            args.data_dir.display()
        );
    }
    muster_server::install_backup_keys(&args.data_dir, &args.file)?;
    let keys = encrypt::read_keys(&args.data_dir, args.encryption_key_file.as_deref())?;
    let revision = muster_server::restore(&args.data_dir, &args.file, keys.as_ref())?;
    print_to_stdout(format_args!(
        "restored {} to {}; it continues at revision {revision}, and clients must list again",
        args.file.display(),
        args.data_dir.display()
    ));
    Ok(())
}

/// Runs a backup, a restore or a migration of a cluster on etcd, and shows its progress.
pub(crate) async fn transfer<T>(
    etcd: &EtcdOptions,
    data_dir: &Path,
    encryption: Option<EncryptionKeys>,
    run: impl AsyncFnOnce(EtcdTransferOptions<'_>) -> Result<T, muster_server::TransferError>,
) -> anyhow::Result<T> {
    let is_terminal = io::stderr().is_terminal();
    let mut shown = 0;
    let mut on_progress = |objects: usize| {
        if is_terminal && shown + PROGRESS_INTERVAL_OBJECTS <= objects {
            shown = objects;
            print_to_stderr(format_args!("muster: {objects} objects"));
        }
    };
    let on_wait = |wait: Duration| {
        print_to_stderr(format_args!(
            "muster: checking for running servers: waiting {} s for writes to etcd",
            wait.as_secs()
        ));
    };
    let transfer =
        EtcdTransferOptions { etcd, data_dir, encryption, on_progress: &mut on_progress, on_wait: &on_wait };
    Ok(run(transfer).await?)
}
