//! `muster backup` and `muster restore`: the store as one file.

use std::path::PathBuf;

use anyhow::bail;

use crate::data_dir::lock;
use crate::encrypt;
use crate::logging::print;

/// Copy the cluster's state to a file, also while a server serves it
///
/// The copy is the state at one moment. It is checked before it gets its name, and holds all objects, Secrets too, which are encrypted
/// if they are in the data directory: only its owner may read it. Certificates and keys are other files of the data directory, and are
/// not in it: the key file is needed to restore encrypted Secrets.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  muster backup --data-dir /var/lib/muster /backups/muster-$(date +%F).db")]
pub(crate) struct BackupArgs {
    /// The data directory of the server
    #[arg(long, value_name = "DIR", default_value = ".muster")]
    data_dir: PathBuf,
    /// The file to write; it must not be there yet
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// Put a backup in the place of the cluster's state
///
/// The server must be stopped. What was in its place is kept beside it as muster.db.replaced. Revisions go on far after
/// those of the backup, so every client that watches is told to list again when it comes back.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  muster restore --data-dir /var/lib/muster /backups/muster-2026-11-15.db
  muster restore --data-dir /var/lib/muster --replace /backups/muster-2026-11-15.db")]
pub(crate) struct RestoreArgs {
    /// The data directory of the server
    #[arg(long, value_name = "DIR", default_value = ".muster")]
    data_dir: PathBuf,
    /// The file with the keys, if Secrets are encrypted [default: DIR/encryption.key]
    #[arg(long, value_name = "FILE")]
    encryption_key_file: Option<PathBuf>,
    /// Restore although the data directory has a state already
    #[arg(long)]
    replace: bool,
    /// What `muster backup` wrote
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

pub(crate) fn backup(args: &BackupArgs) -> anyhow::Result<()> {
    if !muster_server::has_store(&args.data_dir) {
        bail!("{} has no state to back up: choose another --data-dir", args.data_dir.display());
    }
    let revision = muster_server::backup(&args.data_dir, &args.file)?;
    print(format_args!(
        "backed up {} at revision {revision} to {}",
        args.data_dir.display(),
        args.file.display()
    ));
    Ok(())
}

pub(crate) fn restore(args: &RestoreArgs) -> anyhow::Result<()> {
    let _lock = lock(&args.data_dir)?;
    if muster_server::has_store(&args.data_dir) && !args.replace {
        bail!(
            "{} has a state already: add --replace, and it is kept beside the new one",
            args.data_dir.display()
        );
    }
    let keys = encrypt::keys(&args.data_dir, args.encryption_key_file.as_deref())?;
    let revision = muster_server::restore(&args.data_dir, &args.file, keys.as_ref())?;
    print(format_args!(
        "restored {} to {}; it goes on at revision {revision}: clients that watched before must list again",
        args.file.display(),
        args.data_dir.display()
    ));
    Ok(())
}
