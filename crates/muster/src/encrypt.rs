//! `muster encrypt`: Secrets at rest, encrypted, encrypted with another key, or decrypted.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use muster_server::Keys;

use crate::data_dir::lock;
use crate::logging::print;

/// The key file of a data directory, unless another one is named.
const KEY_FILE: &str = "encryption.key";

/// Encrypt the Secrets of a data directory, or change their key
///
/// The server must be stopped. Secrets are encrypted with AES-256-GCM in muster.db and so in backups; names and labels are not. The
/// keys are in the key file, which is made if it is not there: keep a copy of it apart from the backups, for nothing opens Secrets
/// without it. Backups and files that were made before stay as they are, and so do blocks of the disk that held the old muster.db.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  muster encrypt --data-dir /var/lib/muster                 with a key in /var/lib/muster/encryption.key
  muster encrypt --data-dir /var/lib/muster --encryption-key-file /etc/muster/encryption.key
  muster encrypt --data-dir /var/lib/muster --rotate        with a new key; old ones stay for old backups
  muster encrypt --data-dir /var/lib/muster --decrypt       Secrets unencrypted, as older versions read them")]
pub(crate) struct Args {
    /// The data directory of the server
    #[arg(long, value_name = "DIR", default_value = ".muster")]
    data_dir: PathBuf,
    /// The file with the keys [default: DIR/encryption.key]
    #[arg(long, value_name = "FILE")]
    encryption_key_file: Option<PathBuf>,
    /// Add a new key to the file, and encrypt everything with it
    #[arg(long)]
    rotate: bool,
    /// Store Secrets unencrypted
    #[arg(long, conflicts_with = "rotate")]
    decrypt: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let dir = &args.data_dir;
    if !dir.join("muster.db").exists() {
        bail!("{} has no state to encrypt: choose another --data-dir", dir.display());
    }
    let _lock = lock(dir)?;
    let default = dir.join(KEY_FILE);
    let file = args.encryption_key_file.as_ref().unwrap_or(&default);
    let found = if file.exists() { Some(Keys::read(file)?) } else { None };
    if args.decrypt {
        let Some(keys) = found else {
            bail!("there are no keys in {}: name their file with --encryption-key-file", file.display())
        };
        let count = muster_server::convert_secrets(dir, Some(&keys), None)?;
        let done = format!("decrypted {count} versions of Secrets in {}", dir.display());
        if *file == default {
            // A server that found it would encrypt again.
            let aside = default.with_added_extension("unused");
            std::fs::rename(&default, &aside)
                .with_context(|| format!("{done}, but cannot rename {}", default.display()))?;
            print(format_args!("{done}\nthe keys, which old backups need, are in {} now", aside.display()));
        } else {
            print(done);
        }
        return Ok(());
    }
    let keys = match &found {
        Some(keys) if !args.rotate => keys.clone(),
        found => Keys::add_to(found.as_ref(), file)?,
    };
    // Without keys, all Secrets were unencrypted: the keys for reading open those too.
    let count = muster_server::convert_secrets(dir, Some(&keys), Some(&keys))?;
    print(format_args!(
        "encrypted {count} versions of Secrets in {} with key {} of {}",
        dir.display(),
        keys.id(),
        file.display()
    ));
    if dir.join("muster.db.replaced").exists() {
        print(
            "muster.db.replaced is as it was, and may hold unencrypted Secrets: remove it when it is no longer needed",
        );
    }
    Ok(())
}

/// The keys of a data directory: those of the file that is named, or of its own if it has one.
pub(crate) fn keys(data_dir: &Path, named: Option<&Path>) -> anyhow::Result<Option<Keys>> {
    let own = data_dir.join(KEY_FILE);
    match named {
        Some(named) => Ok(Some(
            Keys::read(named)
                .context("make a key file with `muster encrypt`, or choose another --encryption-key-file")?,
        )),
        None if own.exists() => Ok(Some(Keys::read(&own)?)),
        None => Ok(None),
    }
}

/// Rule: a new data directory of `muster up` has a key of its own, and its Secrets are encrypted from the first one on.
pub(crate) fn keys_of_new(data_dir: &Path) -> anyhow::Result<()> {
    let is_new = ["muster.db", "muster.db-wal", "cluster", "ca.key", KEY_FILE]
        .iter()
        .all(|it| !data_dir.join(it).exists());
    if is_new {
        Keys::add_to(None, &data_dir.join(KEY_FILE))?;
    }
    Ok(())
}
