//! `muster down`: removes what a killed `muster up` has left on this machine.

use std::fs::TryLockError;
use std::path::{Path, PathBuf};

use anyhow::bail;
use muster_agent::local_node;

use crate::data_dir::{data_dir_error, lock_holder_text, open_lock_file};
use crate::logging::{print_to_stderr, print_to_stdout};
use crate::up::stop_leftover_processes;

/// Remove the containers and node processes of a `muster up` that was killed
///
/// The real nodes of a killed `muster up` keep running. This command stops their containers and removes their
/// containerds, network namespaces, bridges, mounts and cgroups. The data directory is kept, and the next `muster up`
/// continues with it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  sudo muster down --data-dir /var/lib/muster")]
pub(crate) struct DownArgs {
    /// Data directory of the killed `muster up`
    #[arg(long, value_name = "DIR", default_value = ".muster")]
    data_dir: PathBuf,
}

/// Executes `muster down`.
pub(crate) async fn run(args: &DownArgs) -> anyhow::Result<()> {
    let dir = &args.data_dir;
    if !dir.join("lock").exists() {
        return clean_up_without_data_dir(dir).await;
    }
    let mut file = open_lock_file(dir).map_err(|error| data_dir_error(dir, &error))?;
    match file.try_lock() {
        Ok(()) => {
            for pid in stop_leftover_processes(dir).await? {
                print_to_stdout(format_args!("stopped: process {pid}"));
            }
            remove_local_nodes(dir).await?;
            let dir = dir.display();
            print_to_stdout(format_args!(
                "nothing is running on {dir}. `muster up --data-dir {dir}` continues with its data; to delete the cluster, remove \
                 the directory"
            ));
            Ok(())
        }
        Err(TryLockError::WouldBlock) => {
            bail!(
                "muster{} is still running on {}: stop it with Ctrl-C or SIGTERM",
                lock_holder_text(&mut file),
                dir.display()
            )
        }
        Err(TryLockError::Error(error)) => Err(data_dir_error(dir, &error)),
    }
}

/// Executes `muster down` for a directory without a lock file, such as a data directory that was deleted. Finds the
/// mounts, namespaces and cgroups of the nodes by the path of the directory.
async fn clean_up_without_data_dir(dir: &Path) -> anyhow::Result<()> {
    if local_node::find_leftovers(dir)?.0.is_empty() {
        bail!("{} is not the data directory of a `muster up`: choose another --data-dir", dir.display());
    }
    if let Some(up) = local_node::supervisor_pid(dir)? {
        bail!(
            "muster (process {up}) is still running on {}, which was deleted: stop it with SIGTERM",
            dir.display()
        );
    }
    remove_local_nodes(dir).await?;
    print_to_stdout(format_args!("removed all leftovers of the deleted data directory {}", dir.display()));
    Ok(())
}

/// Removes the real nodes of the data directory from this machine, and prints what was removed. Fails if anything is
/// left.
async fn remove_local_nodes(dir: &Path) -> anyhow::Result<()> {
    let pods = local_node::count_running_pods(dir).await;
    if 0 < pods {
        let pods = if pods == 1 { "1 pod".to_owned() } else { format!("{pods} pods") };
        print_to_stderr(format_args!(
            "muster: stopping {pods}, up to {} s",
            local_node::STOP_GRACE_MAX.as_secs()
        ));
    }
    // A containerd whose files were deleted cannot stop pods gracefully.
    let abandoned = local_node::clean_up_abandoned(dir).await?;
    let removed = local_node::clean_up(dir, local_node::STOP_GRACE_MAX).await?;
    let left = local_node::find_leftovers(dir)?;
    if !left.0.is_empty() {
        bail!("could not be removed (try as root): {}", left.0.join(", "));
    }
    for it in abandoned.0.iter().chain(&removed.0) {
        print_to_stdout(format_args!("removed: {it}"));
    }
    Ok(())
}
