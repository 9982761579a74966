//! What every command that serves has in common: a data directory of its own, an address, and an end when asked.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::anyhow;
use hyper::Request;
use hyper::header::{HeaderValue, USER_AGENT};
use muster_agent::local_node::{LocalCluster, NODES_MAX};
use muster_files::{overwrite_private, write_private};
use muster_server::{ApiServer, BuiltinUser, StoreOptions};
use tokio::signal::unix::{SignalKind, signal};

use crate::data_dir::lock;
use crate::encrypt;
use crate::limit_flags::LimitFlags;
use crate::parts::{self, Choices, Parts};
use crate::{pod_security, span};

/// Minimum: the objects that every cluster has, and a few large ones.
const STORE_BYTES_MIN: usize = 16 << 20;

#[derive(Debug, clap::Args)]
pub(crate) struct Serving {
    /// Where the cluster's state, the certificates and the kubeconfig are kept
    #[arg(long, value_name = "DIR", default_value = ".muster")]
    data_dir: PathBuf,
    /// Where the API server listens; port 0 takes any free one
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:6443")]
    listen: SocketAddr,
    /// Where to write the administrator's kubeconfig [default: DIR/kubeconfig]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Tell every request to this file, one line of JSON each, without bodies
    #[arg(long, value_name = "FILE")]
    audit_log: Option<PathBuf>,
    /// The addresses of pods: each node that joins and brings none is given 256 of them
    #[arg(long, value_name = "RANGE", default_value = "10.244.0.0/16")]
    cluster_cidr: String,
    /// Ranges of addresses that spec.externalIPs of Services may be in; none by default. Agents need the same flag
    #[arg(long, value_name = "RANGE,…", value_delimiter = ',')]
    allow_external_ips: Vec<String>,
    /// How long the certificates of nodes, and others that are asked for, are good at most
    #[arg(long, value_name = "TIME", default_value = "365d", value_parser = span::parse)]
    cluster_signing_duration: Duration,
    /// Begin an empty cluster where the database of the old one is lost or damaged. Nodes of `muster up` then end all pods; other
    /// nodes keep theirs, and join the new cluster once the file `cluster` in their --root is removed and the agent is restarted
    #[arg(long)]
    new_cluster: bool,
    /// Encrypt Secrets at rest with the first key of this file; `muster encrypt` makes one [default: DIR/encryption.key if it is there]
    #[arg(long, value_name = "FILE")]
    encryption_key_file: Option<PathBuf>,
    /// Bytes that all objects may have together, as 512Mi or 2Gi; the last tenth is for nodes, leases, kube-system and system:masters,
    /// and one namespace may use half
    #[arg(long, value_name = "BYTES", default_value = "2Gi", value_parser = size)]
    store_bytes_max: usize,
    /// Maximum lifetime of service account tokens; without it, tokens that are not bound to an object are valid for a day
    #[arg(long, value_name = "TIME", value_parser = span::parse)]
    service_account_max_token_expiration: Option<Duration>,
    #[command(flatten)]
    pod_security: pod_security::Flags,
    #[command(flatten)]
    limits: LimitFlags,
    #[command(flatten)]
    choices: Choices,
}

impl Serving {
    pub(crate) fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    pub(crate) fn is_new_cluster(&self) -> bool {
        self.new_cluster
    }

    pub(crate) fn allow_external_ips(&self) -> &[String] {
        &self.allow_external_ips
    }

    /// Creates a key file in a new data directory, unless the command line names one.
    pub(crate) fn encrypt_if_new(&self) -> anyhow::Result<()> {
        match self.encryption_key_file {
            Some(_) => Ok(()),
            None => encrypt::keys_of_new(&self.data_dir),
        }
    }

    /// Does `start` and waits until a signal comes or something fails; says what is to come, and ends every part, at once if
    /// another signal comes. What is left to do then is done while nobody else can have the data directory.
    pub(crate) async fn run(
        &self,
        start: impl AsyncFnOnce(&mut Parts) -> anyhow::Result<()>,
        tell: impl AsyncFnOnce(),
        finish: impl AsyncFnOnce(Pace) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        // Asked for before anything is started, so that a Ctrl-C is never lost.
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut asked = async || {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        };

        let lock = lock(&self.data_dir)?;
        let mut parts = Parts::default();
        let working = async {
            start(&mut parts).await?;
            tokio::select! {
                ended = parts.ended() => Err(ended),
                lost = lock.lost() => Err(lost),
            }
        };
        let ended = tokio::select! {
            () = asked() => Ok(()),
            ended = working => ended,
        };
        let (hurry, has_failed) = (parts.hurry(), ended.is_err());
        let ending = async {
            if has_failed {
                // Whoever comes next finds the containers as they are.
                parts.hurry().cancel();
            } else {
                tell().await;
            }
            parts.end().await;
        };
        tokio::pin!(ending);
        let pace = tokio::select! {
            () = &mut ending => Pace::Orderly,
            () = asked() => {
                hurry.cancel();
                ending.await;
                Pace::AtOnce
            }
        };
        let pace = if has_failed { Pace::Failed } else { pace };
        let finished = finish(pace).await;
        ended.and(finished)
    }

    /// Nodes on this machine have a network of their own: where the server is in it, and the addresses that its pods have, which
    /// the nodes bring with them.
    pub(crate) async fn bind(&self, machine: Option<&LocalCluster>) -> anyhow::Result<ApiServer> {
        let nodes = machine.map(|it| it.address().into());
        let options = StoreOptions {
            new_cluster: self.new_cluster,
            bytes_max: self.store_bytes_max,
            keys: encrypt::keys(&self.data_dir, self.encryption_key_file.as_deref())?,
        };
        let mut server = ApiServer::bind_with_options(self.listen, nodes, &self.data_dir, &options).await?;
        if let Some(path) = &self.audit_log {
            server.write_audit_log(path)?;
        }
        server.set_certificate_lifetime_max(self.cluster_signing_duration);
        if let Some(life) = self.service_account_max_token_expiration {
            server.set_token_lifetime_max(life);
        }
        let exempted = server.set_pod_security(self.pod_security.settings());
        exempted.map_err(|why| anyhow::anyhow!("choose other --pod-security-exempt-… flags: {why}"))?;
        server.set_limits(self.limits.config());
        let given = match machine {
            Some(machine) => server.assign_pod_cidrs(&machine.pods(), u32::from(NODES_MAX) + 1),
            None => server.assign_pod_cidrs(&self.cluster_cidr, 0),
        };
        given.map_err(|why| anyhow!("choose another --cluster-cidr: {why}"))?;
        let allowed = server.allow_external_ips(&self.allow_external_ips);
        allowed.map_err(|why| anyhow!("choose another --allow-external-ips: {why}"))?;
        Ok(server)
    }

    /// Starts the server and the loops beside it, and writes the administrator's kubeconfig. Gives the line that the
    /// administrator's shell needs.
    pub(crate) fn serve(
        &self,
        server: ApiServer,
        without: &[String],
        parts: &mut Parts,
    ) -> anyhow::Result<String> {
        let path = self.kubeconfig.clone().unwrap_or_else(|| self.data_dir.join("kubeconfig"));
        let path = std::path::absolute(&path)?;
        let kubeconfig = server.kubeconfig(BuiltinUser::Admin)?;
        let written = write_private(&path, kubeconfig.as_bytes()).or_else(|error| {
            // The kubeconfig of the last start has room for this one.
            let is_full = error.kind() == io::ErrorKind::StorageFull;
            let is_overwritten = is_full && overwrite_private(&path, kubeconfig.as_bytes()).is_ok();
            if is_overwritten { Ok(()) } else { Err(error) }
        });
        written.map_err(|error| match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                anyhow!(
                    "the disk is full: there is no room left to write {}. Make room, and try again",
                    path.display()
                )
            }
            _ => {
                let what = format!("choose another --kubeconfig: {} cannot be written", path.display());
                anyhow::Error::from(error).context(what)
            }
        })?;
        for it in parts::loops(without) {
            let (client, choices, stop) = (client(&server, it.who, it.name), self.choices, parts.stop());
            parts.keep(it.name, move || {
                let running = (it.run)(client.clone(), &choices, stop.clone());
                async move {
                    running.await;
                    Ok(())
                }
            });
        }
        parts.serve(server);
        Ok(format!("export KUBECONFIG={}", shell_word(&path)))
    }
}

/// A number of bytes, with a binary suffix or none.
fn size(text: &str) -> Result<usize, String> {
    let units = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("", 0)];
    let (number, shift) =
        units.iter().find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, *shift))).unwrap_or((text, 0));
    let bytes = number.parse::<usize>().ok().and_then(|it| it.checked_mul(1 << shift));
    bytes
        .filter(|it| STORE_BYTES_MIN <= *it)
        .ok_or_else(|| "a number of bytes from 16Mi on, such as 512Mi or 2Gi".to_owned())
}

/// How it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    Orderly,
    /// Whoever asked for it asked twice.
    AtOnce,
    /// Nobody asked: it could not start, or broke down.
    Failed,
}

/// A client of the server in this process, for one of its parts, which is called so wherever it asks. Nothing is on the
/// wire, and nothing is tried again behind the part's back.
pub(crate) fn client(server: &ApiServer, who: BuiltinUser, name: &str) -> kube::Client {
    let client = server.loopback_client(who);
    let agent = format!("muster-{name}/{}", env!("CARGO_PKG_VERSION"));
    let agent = HeaderValue::from_str(&agent).expect("a name and a version are plain text");
    let ask = move |mut request: Request<kube::client::Body>| {
        request.headers_mut().insert(USER_AGENT, agent.clone());
        let client = client.clone();
        async move { client.send(request).await }
    };
    kube::Client::new(tower::service_fn(ask), "default")
}

/// Quoted where a shell would not take it as it is.
fn shell_word(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |it: char| it.is_ascii_alphanumeric() || "/._-+:@%,".contains(it);
    if text.chars().all(is_plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}
