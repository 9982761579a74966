//! `muster encrypt`: encrypts Secrets at rest, rotates the encryption key, or decrypts Secrets.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use muster_server::{ENCRYPTION_KEY_FILE, EncryptionKeys};

use crate::data_dir::lock_for_administration;
use crate::logging::print_to_stdout;

/// Encrypt the Secrets in a data directory at rest, or rotate the encryption key
///
/// The server must be stopped. Secrets are encrypted with AES-256-GCM in muster.db and so in backups; names and labels
/// are not encrypted. The key file is created if it does not exist. Keep a copy of the key file apart from the backups:
/// without the key, the Secrets cannot be decrypted. Earlier backups and copies, and freed disk blocks of the old
/// muster.db, are not changed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  muster encrypt --data-dir /var/lib/muster                 use the key in /var/lib/muster/encryption.key
  muster encrypt --data-dir /var/lib/muster --encryption-key-file /etc/muster/encryption.key
  muster encrypt --data-dir /var/lib/muster --rotate        use a new key; old keys are kept for old backups
  muster encrypt --data-dir /var/lib/muster --decrypt       store Secrets unencrypted, for older versions")]
pub(crate) struct EncryptArgs {
    /// Data directory of the server
    #[arg(long, value_name = "DIR", default_value = ".muster")]
    data_dir: PathBuf,
    /// Key file [default: DIR/encryption.key]
    #[arg(long, value_name = "FILE")]
    encryption_key_file: Option<PathBuf>,
    /// Add a new key to the key file, and encrypt all Secrets with it
    #[arg(long)]
    rotate: bool,
    /// Store Secrets unencrypted
    #[arg(long, conflicts_with = "rotate")]
    decrypt: bool,
}

/// Executes `muster encrypt`.
pub(crate) fn run(args: &EncryptArgs) -> anyhow::Result<()> {
    let dir = &args.data_dir;
    if !dir.join("muster.db").exists() {
        bail!("{} has no state to encrypt: choose another --data-dir", dir.display());
    }
    let _lock = lock_for_administration(dir)?;
    let default = dir.join(ENCRYPTION_KEY_FILE);
    let file = args.encryption_key_file.as_ref().unwrap_or(&default);
    let found = if file.exists() { Some(EncryptionKeys::read(file)?) } else { None };
    // A new key is written only if the Secrets can be decrypted, so that a wrong or missing flag leaves no key file.
    muster_server::check_encryption_keys(dir, found.as_ref())?;
    if args.decrypt {
        let Some(keys) = found else {
            bail!("no keys in {}: give the key file with --encryption-key-file", file.display())
        };
        let count = muster_server::reencrypt_secrets(dir, Some(&keys), None)?;
        let done = format!("decrypted {count} versions of Secrets in {}", dir.display());
        if *file == default {
            // A server that found the key file would encrypt Secrets again.
            let aside = default.with_added_extension("unused");
            std::fs::rename(&default, &aside)
                .with_context(|| format!("{done}, but cannot rename {}", default.display()))?;
            print_to_stdout(format_args!(
                "{done}\nthe keys are now in {}; old backups need them",
                aside.display()
            ));
        } else {
            print_to_stdout(done);
        }
        return Ok(());
    }
    let keys = match &found {
        Some(keys) if !args.rotate => keys.clone(),
        found => EncryptionKeys::write_file_with_new_key(found.as_ref(), file)?,
    };
    // The old keys also read unencrypted Secrets, which is what a store without keys holds.
    let count = muster_server::reencrypt_secrets(dir, Some(&keys), Some(&keys))?;
    print_to_stdout(format_args!(
        "encrypted {count} versions of Secrets in {} with key {} of {}",
        dir.display(),
        keys.active_key_id(),
        file.display()
    ));
    if dir.join("muster.db.replaced").exists() {
        print_to_stdout(
            "muster.db.replaced is unchanged and may hold unencrypted Secrets: remove it when it is no longer needed",
        );
    }
    Ok(())
}

/// Reads the encryption keys from the key file `named`. If `named` is `None`, reads the default key file, and returns
/// `None` if that file does not exist.
pub(crate) fn read_keys(data_dir: &Path, named: Option<&Path>) -> anyhow::Result<Option<EncryptionKeys>> {
    let own = data_dir.join(ENCRYPTION_KEY_FILE);
    match named {
        Some(named) => {
            Ok(Some(EncryptionKeys::read(named).context(
                "create a key file with `muster encrypt`, or choose another --encryption-key-file",
            )?))
        }
        None if own.exists() => Ok(Some(EncryptionKeys::read(&own)?)),
        None => Ok(None),
    }
}

/// Creates the default key file with a new key, if the data directory is new.
///
/// Rule: `muster up` creates an encryption key in a new data directory, so that all Secrets are encrypted from the
/// start.
pub(crate) fn create_key_for_new_data_dir(data_dir: &Path) -> anyhow::Result<()> {
    let is_new = ["muster.db", "muster.db-wal", "cluster", "ca.key", ENCRYPTION_KEY_FILE]
        .iter()
        .all(|it| !data_dir.join(it).exists());
    if is_new {
        EncryptionKeys::write_file_with_new_key(None, &data_dir.join(ENCRYPTION_KEY_FILE))?;
    }
    Ok(())
}
