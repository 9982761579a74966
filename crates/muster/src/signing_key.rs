//! `muster signing-key`: lists, rotates and removes the keys that sign service account tokens.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;
use muster_server::{LaggingServer, SigningKeyAdmin, SigningKeyState};

use crate::data_dir::{DataDirLock, lock_for_administration};
use crate::etcd_flags::EtcdFlags;
use crate::logging::{aligned_table, print_to_stderr, print_to_stdout};

/// Time for which the commands wait until all servers use changed keys. A server reads them within five seconds, and
/// publishes that in its Lease within another five. A server that was killed counts as dead after 15 seconds.
const SERVERS_TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Debug, clap::Args)]
pub(crate) struct SigningKeyArgs {
    #[command(subcommand)]
    command: SigningKeyCommand,
}

#[derive(Debug, clap::Subcommand)]
enum SigningKeyCommand {
    List(ListArgs),
    Rotate(RotateArgs),
    Remove(RemoveArgs),
}

/// Flags that select the cluster.
#[derive(Debug, clap::Args)]
struct ClusterFlags {
    /// Data directory of a server of the cluster
    #[arg(long, value_name = "DIR", default_value = ".muster")]
    data_dir: PathBuf,
    #[command(flatten)]
    etcd: EtcdFlags,
}

/// List the keys with which service account tokens are signed
///
/// One key signs new tokens. Tokens that were signed with the other keys are accepted. With --etcd, also names the
/// servers that do not use these keys yet, on standard error.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  muster signing-key list --data-dir /var/lib/muster
  muster signing-key list --data-dir /var/lib/muster --etcd https://10.0.0.1:2379 \\
      --etcd-ca ca.crt --etcd-cert client.crt --etcd-key client.key")]
struct ListArgs {
    #[command(flatten)]
    cluster: ClusterFlags,
}

/// Sign new service account tokens with a new key
///
/// Tokens that were signed with the old key stay valid until they expire, or until `muster signing-key remove`. With
/// --etcd, the servers go on running: the command waits until all of them accept the new key before it signs, and then
/// until all of them sign with it. If a server does not in time, the command names it and fails. Without --etcd, the
/// server must be stopped. If the command is interrupted, run it again.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  muster signing-key rotate --data-dir /var/lib/muster     the server in this directory is stopped
  muster signing-key rotate --data-dir /var/lib/muster --etcd https://10.0.0.1:2379 \\
      --etcd-ca ca.crt --etcd-cert client.crt --etcd-key client.key")]
struct RotateArgs {
    #[command(flatten)]
    cluster: ClusterFlags,
}

/// Remove a key, so that the tokens that were signed with it become invalid
///
/// Pods get new tokens for their volumes within an hour of a rotation. Tokens in Secrets, and those of `kubectl create
/// token`, must be created again. With --etcd, the servers go on running: the command waits until none of them accepts the
/// key. If one still does, the command names it and fails.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  muster signing-key remove 3uX2…Kc --data-dir /var/lib/muster")]
struct RemoveArgs {
    /// ID of the key, as `muster signing-key list` prints it
    #[arg(value_name = "KEY-ID")]
    key: String,
    #[command(flatten)]
    cluster: ClusterFlags,
}

/// What to do about a server that does not use the keys of the cluster.
const LAGGING_SERVER_ADVICE: &str = "If the log of such a server says `the server token is wrong`, put the token of the cluster into \
                                     `server-token` in its data directory. If the server runs an older version, update it. \
                                     Otherwise restart or stop it";

/// Executes `muster signing-key`.
pub(crate) async fn run(args: &SigningKeyArgs) -> anyhow::Result<()> {
    match &args.command {
        SigningKeyCommand::List(args) => list(args).await,
        SigningKeyCommand::Rotate(args) => rotate(args).await,
        SigningKeyCommand::Remove(args) => remove(args).await,
    }
}

impl ClusterFlags {
    /// Opens the signing keys for a change. Without `--etcd`, also locks the data directory, so that no server runs
    /// meanwhile. With `--etcd`, returns no lock.
    fn open_for_change(&self) -> anyhow::Result<(SigningKeyAdmin, Option<DataDirLock>)> {
        let etcd = self.etcd.options();
        let lock = if etcd.is_some() { None } else { Some(self.lock_data_dir()?) };
        Ok((SigningKeyAdmin::open(&self.data_dir, etcd.as_ref())?, lock))
    }

    /// Locks the data directory. Fails if it has no state of a server, or if a server runs on it.
    fn lock_data_dir(&self) -> anyhow::Result<DataDirLock> {
        if !muster_server::has_store(&self.data_dir) {
            bail!(
                "{} has no state of a server: choose another --data-dir, or add --etcd",
                self.data_dir.display()
            );
        }
        lock_for_administration(&self.data_dir)
    }
}

/// Executes `muster signing-key list`.
async fn list(args: &ListArgs) -> anyhow::Result<()> {
    let etcd = args.cluster.etcd.options();
    let admin = SigningKeyAdmin::open(&args.cluster.data_dir, etcd.as_ref())?;
    let keys = admin.list().await?;
    let mut rows = vec![["KEY", "STATE"].map(str::to_owned)];
    rows.extend(keys.into_iter().map(|it| {
        let state = match it.state {
            SigningKeyState::Signing => "signs new tokens",
            SigningKeyState::Accepted => "accepted",
            SigningKeyState::Staged => "accepted; a rotation is not complete",
        };
        [it.id, state.to_owned()]
    }));
    print_to_stdout(aligned_table(&rows));
    let lagging = admin.wait_for_servers(Duration::ZERO, &mut |_| ()).await?;
    if !lagging.is_empty() {
        print_to_stderr(format_args!(
            "muster: {} not use these keys yet: {}",
            servers_do(&lagging),
            names_of(&lagging)
        ));
    }
    Ok(())
}

/// Executes `muster signing-key rotate`.
///
/// Rule: a key signs only when all live servers accept it. The staged key stays in etcd if the command fails or is killed,
/// and the next call continues with it.
async fn rotate(args: &RotateArgs) -> anyhow::Result<()> {
    let (keys, _lock) = args.cluster.open_for_change()?;
    let old: Vec<_> =
        keys.list().await?.into_iter().filter(|it| it.state != SigningKeyState::Staged).collect();
    let new = keys.stage_key().await?;
    let lagging = wait_for_servers(&keys, &format!("accept key {new}")).await?;
    if !lagging.is_empty() {
        bail!(
            "key {new} does not sign yet, because {} not accept it: {}. {LAGGING_SERVER_ADVICE}. Then run this command again",
            servers_do(&lagging),
            names_of(&lagging)
        );
    }
    keys.activate_key(&new).await?;
    let lagging = wait_for_servers(&keys, &format!("sign with key {new}")).await?;
    if !lagging.is_empty() {
        bail!(
            "key {new} signs new tokens, but {} not use it: {}. {LAGGING_SERVER_ADVICE}. Remove no old key until `muster signing-key \
             list` names no server",
            servers_do(&lagging),
            names_of(&lagging)
        );
    }
    print_to_stdout(format_args!("key {new} signs new tokens"));
    for it in old {
        print_to_stdout(format_args!(
            "key {} is still accepted: `muster signing-key remove {}` removes it",
            it.id, it.id
        ));
    }
    Ok(())
}

/// Executes `muster signing-key remove`.
async fn remove(args: &RemoveArgs) -> anyhow::Result<()> {
    let (keys, _lock) = args.cluster.open_for_change()?;
    keys.remove_key(&args.key).await?;
    let lagging = wait_for_servers(&keys, &format!("reject key {}", args.key)).await?;
    if !lagging.is_empty() {
        bail!(
            "key {} is removed, but {} not reject the tokens that it has signed: {}. {LAGGING_SERVER_ADVICE}. `muster signing-key list` \
             names the servers that do not use the keys of the cluster",
            args.key,
            servers_do(&lagging),
            names_of(&lagging)
        );
    }
    print_to_stdout(format_args!("removed key {}: the tokens that it has signed are invalid", args.key));
    Ok(())
}

/// Waits until all live servers use the keys of the cluster, and shows which do not. `expected` completes the message
/// `waiting until all servers …`, for example `accept key 3uX2`. Returns the servers that do not use the keys after
/// [`SERVERS_TIMEOUT`].
async fn wait_for_servers(keys: &SigningKeyAdmin, expected: &str) -> anyhow::Result<Vec<LaggingServer>> {
    let mut on_change = |lagging: &[LaggingServer]| {
        print_to_stderr(format_args!("muster: waiting until all servers {expected}: {}", names_of(lagging)));
    };
    Ok(keys.wait_for_servers(SERVERS_TIMEOUT, &mut on_change).await?)
}

fn servers_do(servers: &[LaggingServer]) -> &'static str {
    if servers.len() == 1 { "one server does" } else { "some servers do" }
}

fn names_of(servers: &[LaggingServer]) -> String {
    servers.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
