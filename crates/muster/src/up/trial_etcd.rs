//! The etcd cluster of `muster up --servers`: three members on this machine, from the program `etcd` on PATH. For trying
//! several servers, not for production, because all members share one machine and one disk.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use super::child_process::{data_dir_argument, open_log, read_log_tail};

/// Number of members. A cluster of three keeps working while one member is down.
pub(super) const MEMBER_COUNT: u8 = 3;

/// Port on which a member serves clients. Every member has a loopback address of its own.
const CLIENT_PORT: u16 = 2379;
/// Port on which a member serves the other members.
const PEER_PORT: u16 = 2380;

/// Maximum time until the members have elected a leader.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Interval between two health checks during the start.
const HEALTH_CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum time for the response to a health check.
const HEALTH_CHECK_TIMEOUT: Duration = Duration::from_secs(2);

/// One member of the etcd cluster.
#[derive(Debug, Clone)]
pub(super) struct EtcdMember {
    /// The number of the member, from 1 on.
    number: u8,
    address: Ipv4Addr,
    data_dir: PathBuf,
    log: PathBuf,
    /// The name of each member and the URL at which the other members reach it, as in `--initial-cluster`.
    initial_cluster: String,
}

impl EtcdMember {
    /// Returns the members of the trial etcd cluster of a `muster up`, without starting them. `data_dir` is the data
    /// directory of the `muster up`, an absolute path. `log_dir` is the directory for the logs of the members.
    pub(super) fn of_data_dir(data_dir: &Path, log_dir: &Path) -> Vec<Self> {
        let subnet = loopback_subnet(data_dir);
        let address = |number| Ipv4Addr::new(127, subnet[0], subnet[1], number);
        let peer =
            |number| format!("etcd-{number}=http://{}", SocketAddr::new(address(number).into(), PEER_PORT));
        let initial_cluster = (1..=MEMBER_COUNT).map(peer).collect::<Vec<_>>().join(",");
        let member = |number| Self {
            number,
            address: address(number),
            data_dir: member_dir(data_dir, number),
            log: log_dir.join(format!("etcd-{number}.log")),
            initial_cluster: initial_cluster.clone(),
        };
        (1..=MEMBER_COUNT).map(member).collect()
    }

    /// Returns the name of the member.
    pub(super) fn name(&self) -> String {
        format!("etcd-{}", self.number)
    }

    /// Returns the data directory.
    pub(super) fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    /// Returns the URL for clients.
    pub(super) fn client_url(&self) -> String {
        format!("http://{}", self.client_address())
    }

    /// Returns the address and port for clients.
    fn client_address(&self) -> SocketAddr {
        SocketAddr::new(IpAddr::V4(self.address), CLIENT_PORT)
    }

    /// Starts the process of the member.
    pub(super) fn spawn(&self) -> anyhow::Result<Child> {
        let peer_url = format!("http://{}", SocketAddr::new(self.address.into(), PEER_PORT));
        let mut command = Command::new("etcd");
        command.arg("--name").arg(self.name()).arg(data_dir_argument(&self.data_dir));
        command.args([
            "--listen-client-urls",
            &self.client_url(),
            "--advertise-client-urls",
            &self.client_url(),
        ]);
        command.args(["--listen-peer-urls", &peer_url, "--initial-advertise-peer-urls", &peer_url]);
        command.args(["--initial-cluster", &self.initial_cluster, "--initial-cluster-state", "new"]);
        command.args(["--logger", "zap", "--log-level", "warn"]);
        let log = open_log(&self.log)?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let spawned = command.process_group(0).kill_on_drop(true).spawn();
        spawned.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => anyhow::anyhow!(
                "--servers needs the program `etcd` on PATH: install it, such as the package etcd-server of Debian"
            ),
            _ => anyhow::Error::from(error).context("run etcd"),
        })
    }

    /// Waits until the member has a leader. Fails if its process exits.
    pub(super) async fn wait_until_healthy(&self, process: &mut Child) -> anyhow::Result<()> {
        let began = Instant::now();
        while !self.is_healthy().await {
            if let Some(status) = process.try_wait().context("wait for etcd")? {
                bail!("{} exited ({status}): {}", self.name(), read_log_tail(&self.log));
            }
            if START_TIMEOUT < began.elapsed() {
                bail!(
                    "{} has no leader after {} s: see {}",
                    self.name(),
                    START_TIMEOUT.as_secs(),
                    self.log.display()
                );
            }
            tokio::time::sleep(HEALTH_CHECK_INTERVAL).await;
        }
        Ok(())
    }

    /// Whether the member has a leader and answers.
    async fn is_healthy(&self) -> bool {
        let ask = async {
            let mut connection = TcpStream::connect(self.client_address()).await?;
            connection.write_all(b"GET /health HTTP/1.0\r\n\r\n").await?;
            let mut response = Vec::new();
            connection.take(64 << 10).read_to_end(&mut response).await?;
            io::Result::Ok(response)
        };
        let response = tokio::time::timeout(HEALTH_CHECK_TIMEOUT, ask).await;
        let healthy = br#""health":"true""#;
        response.is_ok_and(|it| it.is_ok_and(|it| it.windows(healthy.len()).any(|it| it == healthy)))
    }
}

/// Returns the data directory of a member.
pub(super) fn member_dir(data_dir: &Path, number: u8) -> PathBuf {
    data_dir.join(format!("etcd-{number}"))
}

/// Returns the second and third byte of the loopback addresses of a cluster. They depend on its data directory, so that
/// two clusters on this machine usually have different addresses and can use the same ports. 127.0.0.0/16 is not used.
fn loopback_subnet(data_dir: &Path) -> [u8; 2] {
    // FNV-1a: the addresses must be the same at every start and in every version.
    let bytes = data_dir.as_os_str().as_encoded_bytes();
    let hash =
        bytes.iter().fold(0x811c_9dc5_u32, |hash, it| (hash ^ u32::from(*it)).wrapping_mul(0x0100_0193));
    let [first, second, ..] = hash.to_be_bytes();
    [first.max(1), second]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_members_of_two_clusters_have_different_addresses() {
        let urls = |dir: &str| {
            let members = EtcdMember::of_data_dir(Path::new(dir), Path::new("/logs"));
            members.iter().map(EtcdMember::client_url).collect::<Vec<_>>()
        };
        assert_eq!(urls("/var/lib/muster"), urls("/var/lib/muster"));
        expect_test::expect![[r#"
            [
                "http://127.197.174.1:2379",
                "http://127.197.174.2:2379",
                "http://127.197.174.3:2379",
            ]
        "#]]
        .assert_debug_eq(&urls("/var/lib/muster"));
        assert_ne!(urls("/var/lib/muster"), urls("/var/lib/muster2"));
    }
}
