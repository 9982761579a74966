//! `muster migrate`: moves a cluster between a data directory and etcd.

use std::path::PathBuf;

use anyhow::bail;

use crate::backup::transfer;
use crate::data_dir::lock_for_administration;
use crate::encrypt;
use crate::etcd_flags::EtcdFlags;
use crate::logging::print_to_stdout;

/// Move a cluster from a data directory to etcd, or back
///
/// All servers must be stopped. Objects keep their UIDs. The cluster keeps its certificates and keys, which are stored
/// in etcd encrypted with the server token. New resourceVersions are higher than all earlier ones. The SQLite database is
/// kept as muster.db.moved. With --to-sqlite, the objects also remain in etcd, but servers refuse to start on them. To
/// complete an interrupted migration, run the same command again.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  muster migrate --data-dir /var/lib/muster --etcd https://10.0.0.1:2379,https://10.0.0.2:2379 \\
      --etcd-ca ca.crt --etcd-cert client.crt --etcd-key client.key
  muster migrate --data-dir /var/lib/muster --etcd http://127.0.0.1:2379 --to-sqlite    move the cluster back")]
pub(crate) struct MigrateArgs {
    /// Data directory of the server
    #[arg(long, value_name = "DIR", default_value = ".muster")]
    data_dir: PathBuf,
    /// Key file, if Secrets are encrypted [default: DIR/encryption.key]
    #[arg(long, value_name = "FILE", conflicts_with = "to_sqlite")]
    encryption_key_file: Option<PathBuf>,
    /// Move the cluster from etcd to the data directory
    #[arg(long)]
    to_sqlite: bool,
    #[command(flatten)]
    etcd: EtcdFlags,
}

/// Executes `muster migrate`.
pub(crate) async fn run(args: &MigrateArgs) -> anyhow::Result<()> {
    let Some(etcd) = args.etcd.options() else {
        bail!("name the members of etcd with --etcd, such as --etcd https://10.0.0.1:2379")
    };
    let dir = &args.data_dir;
    // A database that was already moved has an error of its own.
    if !args.to_sqlite && !muster_server::has_store(dir) && !dir.join("muster.db.moved").exists() {
        bail!("{} has no state to move: choose another --data-dir", dir.display());
    }
    let _lock = lock_for_administration(dir)?;
    if args.to_sqlite {
        let done = transfer(&etcd, dir, None, async |it| muster_server::migrate_to_sqlite(it).await).await?;
        print_to_stdout(format_args!(
            "{} from {} in etcd to {}, where the cluster continues at revision {}. Start the server without --etcd",
            moved_text(done.objects),
            etcd.prefix,
            dir.display(),
            done.revision
        ));
        return Ok(());
    }
    let keys = encrypt::read_keys(dir, args.encryption_key_file.as_deref())?;
    let done = transfer(&etcd, dir, keys, async |it| muster_server::migrate_to_etcd(it).await).await?;
    print_to_stdout(format_args!(
        "{} from {} to {} in etcd, where the cluster continues at revision {}. Start the server with --etcd. Other servers need the \
         server token in {}",
        moved_text(done.objects),
        dir.display(),
        etcd.prefix,
        done.revision,
        dir.join(muster_server::SERVER_TOKEN_FILE).display()
    ));
    Ok(())
}

/// Returns the text that says what was moved. `objects` is `None` if an earlier migration had already moved all
/// objects.
fn moved_text(objects: Option<usize>) -> String {
    objects.map_or_else(|| "completed the earlier migration".to_owned(), |it| format!("moved {it} objects"))
}
