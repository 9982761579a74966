//! The API servers that the agent knows: those of its flags, and those in the EndpointSlices of the Service
//! `default/kubernetes`. The servers from the EndpointSlices are stored, so that the agent knows them after a restart.

use std::collections::BTreeSet;
use std::fmt;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use http::Uri;
use tokio_rustls::rustls::pki_types::ServerName;

/// Name of the file with the servers that were learned from EndpointSlices: one URL per line.
const SERVERS_FILE: &str = "servers";

/// Maximum number of learned servers. Clusters rarely have more than 5 API servers. With 16 servers that do not
/// respond, an agent tries all of them within a minute.
const LEARNED_SERVERS_MAX: usize = 16;

/// URL of an API server: `https://HOST:PORT`. Two URLs are equal if they have the same host and port.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ServerUrl {
    /// IP address, or host name in lower case. An IPv6 address is in brackets.
    host: String,
    port: u16,
    /// Name or IP address that the server's certificate must have.
    certificate_name: ServerName<'static>,
}

/// Error for a text that is not the URL of an API server.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not a server URL: expected https://HOST:PORT")]
pub struct InvalidServerUrl(String);

impl FromStr for ServerUrl {
    type Err = InvalidServerUrl;

    /// Parses an `https` URL. Its path is ignored, and its default port is 443.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || InvalidServerUrl(text.to_owned());
        let uri: Uri = text.parse().map_err(|_| invalid())?;
        let host = uri.host().filter(|_| uri.scheme_str() == Some("https")).ok_or_else(invalid)?;
        let port = uri.port_u16().unwrap_or(443);
        let host = host.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(Self::from(SocketAddr::new(address, port)));
        }
        let certificate_name = ServerName::try_from(host.clone()).map_err(|_| invalid())?;
        Ok(Self { host, port, certificate_name })
    }
}

impl From<SocketAddr> for ServerUrl {
    fn from(address: SocketAddr) -> Self {
        let host = match address.ip() {
            IpAddr::V4(address) => address.to_string(),
            IpAddr::V6(address) => format!("[{address}]"),
        };
        Self { host, port: address.port(), certificate_name: ServerName::IpAddress(address.ip().into()) }
    }
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "https://{}:{}", self.host, self.port)
    }
}

impl fmt::Debug for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl ServerUrl {
    /// Returns the host and port as in the URL, for example `[fd00::5]:6443`.
    pub fn authority(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// Returns the name or IP address that the server's certificate must have.
    pub(crate) fn certificate_name(&self) -> ServerName<'static> {
        self.certificate_name.clone()
    }

    /// Resolves the host to socket addresses. Returns an empty list if the host is a name that cannot be resolved.
    pub(crate) async fn resolve(&self) -> Vec<SocketAddr> {
        tokio::net::lookup_host(self.authority()).await.into_iter().flatten().collect()
    }
}

/// The servers that were tried, each with the reason of its failure.
#[derive(Debug, Clone)]
pub struct ServerFailures(pub(crate) Vec<(ServerUrl, String)>);

impl std::error::Error for ServerFailures {}

impl fmt::Display for ServerFailures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (server, why)) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{server}: {why}")?;
        }
        Ok(())
    }
}

/// The API servers that the agent knows.
#[derive(Debug)]
pub struct ApiServers {
    /// Servers of the flag `--server`. They are never removed.
    configured: Vec<ServerUrl>,
    learned: Mutex<LearnedServers>,
    /// File with the learned servers.
    path: PathBuf,
}

/// The servers that the EndpointSlices listed last.
#[derive(Debug)]
struct LearnedServers {
    servers: Vec<ServerUrl>,
    /// Whether `servers` was written to the file of the learned servers. If not, the next update writes it again.
    are_stored: bool,
}

impl ApiServers {
    /// Returns the API servers: the configured ones, and the learned ones that an earlier agent stored in `dir`, the
    /// directory of the node's keys and certificates.
    pub fn load(configured: Vec<ServerUrl>, dir: &Path) -> Self {
        let path = dir.join(SERVERS_FILE);
        let servers = read_servers(&path);
        Self { configured, learned: Mutex::new(LearnedServers { servers, are_stored: true }), path }
    }

    /// Returns the configured servers, followed by the learned ones that are not configured.
    pub fn all(&self) -> Vec<ServerUrl> {
        let mut all: Vec<ServerUrl> = Vec::new();
        for server in self.configured.iter().chain(&self.lock_learned().servers) {
            if !all.contains(server) {
                all.push(server.clone());
            }
        }
        all
    }

    /// Returns all servers in the order in which the node tries them.
    ///
    /// Rule: each node has its own order, by a hash of the node's name and the server's URL. So nodes are spread over
    /// the servers, and the nodes of a server that fails are spread over the other servers.
    pub(crate) fn in_order_for(&self, node: &str) -> Vec<ServerUrl> {
        let mut all = self.all();
        all.sort_by_cached_key(|server| {
            let mut hasher = DefaultHasher::new();
            (node, server.authority()).hash(&mut hasher);
            hasher.finish()
        });
        all
    }

    /// Replaces the learned servers by those that the EndpointSlices list, at most [`LEARNED_SERVERS_MAX`], and stores
    /// them. Returns whether the list changed.
    ///
    /// Rule: an agent knows the servers of its flags, and those that the EndpointSlices listed last. EndpointSlices
    /// without a server change nothing: a server sent them, so at least one is missing in them.
    pub(crate) fn replace_learned(&self, endpoints: &BTreeSet<SocketAddr>) -> bool {
        if endpoints.is_empty() {
            return false;
        }
        let mut learned = self.lock_learned();
        let servers: Vec<ServerUrl> =
            endpoints.iter().take(LEARNED_SERVERS_MAX).map(|it| ServerUrl::from(*it)).collect();
        let has_changed = learned.servers != servers;
        if has_changed {
            let (count, ignored) = (servers.len(), endpoints.len() - servers.len());
            tracing::info!(?servers, count, ignored, "learned the API servers of the cluster");
        }
        if has_changed || !learned.are_stored {
            let lines: String = servers.iter().map(|it| format!("{it}\n")).collect();
            let stored = muster_files::write_private_file(&self.path, lines.as_bytes());
            if let Err(error) = &stored {
                let file = self.path.display();
                tracing::warn!(%file, %error, "cannot store the API servers: they are unknown after a restart");
            }
            *learned = LearnedServers { servers, are_stored: stored.is_ok() };
        }
        has_changed
    }

    fn lock_learned(&self) -> MutexGuard<'_, LearnedServers> {
        self.learned.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads the stored servers, at most [`LEARNED_SERVERS_MAX`]. Invalid lines are ignored. Returns an empty list if the
/// file cannot be read.
fn read_servers(path: &Path) -> Vec<ServerUrl> {
    let file = path.display();
    let text = match std::fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Vec::new(),
        Err(error) => {
            tracing::warn!(%file, %error, "cannot read the stored API servers");
            return Vec::new();
        }
    };
    let text = String::from_utf8_lossy(&text);
    let lines = text.lines().map(str::trim).filter(|it| !it.is_empty());
    let (valid, invalid): (Vec<_>, Vec<_>) = lines.map(ServerUrl::from_str).partition(Result::is_ok);
    let mut servers: Vec<ServerUrl> = valid.into_iter().flatten().collect();
    let excess = servers.len().saturating_sub(LEARNED_SERVERS_MAX);
    if let Some(Err(error)) = invalid.first() {
        tracing::warn!(%file, count = invalid.len(), %error, "ignoring invalid lines in the stored API servers");
    }
    if 0 < excess {
        tracing::warn!(%file, excess, "ignoring stored API servers beyond the first {LEARNED_SERVERS_MAX}");
        servers.truncate(LEARNED_SERVERS_MAX);
    }
    servers
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> ServerUrl {
        text.parse().unwrap()
    }

    fn urls(servers: &[ServerUrl]) -> Vec<String> {
        servers.iter().map(ToString::to_string).collect()
    }

    fn endpoints(addresses: &[&str]) -> BTreeSet<SocketAddr> {
        addresses.iter().map(|it| it.parse().unwrap()).collect()
    }

    #[test]
    fn urls_are_parsed_and_compared_by_host_and_port() {
        let check = |text: &str, expected: &str| assert_eq!(url(text).to_string(), expected, "{text}");
        check("https://10.0.0.5:6443", "https://10.0.0.5:6443");
        check("https://10.0.0.5:6443/", "https://10.0.0.5:6443");
        check("https://Muster.Example", "https://muster.example:443");
        check("https://[FD00:0:0::5]:6443", "https://[fd00::5]:6443");
        assert_eq!(
            url("https://[fd00::5]:6443"),
            ServerUrl::from(SocketAddr::from(([0xfd00, 0, 0, 0, 0, 0, 0, 5], 6443)))
        );
        for text in
            ["", "10.0.0.5:6443", "http://10.0.0.5:6443", "https://", "https://a b:1", "https://a_%:1", "/x"]
        {
            assert!(text.parse::<ServerUrl>().is_err(), "{text}");
        }
    }

    #[test]
    fn learned_servers_are_stored_and_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let load = |flags: &[&str]| ApiServers::load(flags.iter().map(|it| url(it)).collect(), dir.path());
        let servers = load(&["https://10.0.0.5:6443"]);
        assert_eq!(urls(&servers.all()), ["https://10.0.0.5:6443"]);
        assert!(servers.replace_learned(&endpoints(&["10.0.0.5:6443", "10.0.0.6:6443", "[fd00::7]:6443"])));
        let known = ["https://10.0.0.5:6443", "https://10.0.0.6:6443", "https://[fd00::7]:6443"];
        assert_eq!(urls(&servers.all()), known);
        // The file outlives the flags.
        let file = std::fs::read_to_string(dir.path().join(SERVERS_FILE)).unwrap();
        assert_eq!(file, known.join("\n") + "\n");
        let restarted = load(&["https://gone.example:6443"]);
        let all = [&["https://gone.example:6443"][..], &known].concat();
        assert_eq!(urls(&restarted.all()), all);
        // EndpointSlices without a server change nothing.
        assert!(!restarted.replace_learned(&endpoints(&[])));
        assert_eq!(urls(&restarted.all()), all);
        // A server that left the EndpointSlices is dropped, one of the flags is not.
        assert!(restarted.replace_learned(&endpoints(&["10.0.0.6:6443"])));
        assert!(!restarted.replace_learned(&endpoints(&["10.0.0.6:6443"])), "nothing changed");
        assert_eq!(urls(&restarted.all()), ["https://gone.example:6443", "https://10.0.0.6:6443"]);
        assert_eq!(urls(&load(&[]).all()), ["https://10.0.0.6:6443"]);
    }

    #[test]
    fn servers_that_could_not_be_stored_are_stored_later() {
        let dir = tempfile::tempdir().unwrap();
        let pki = dir.path().join("pki");
        let servers = ApiServers::load(vec![url("https://10.0.0.5:6443")], &pki);
        assert!(servers.replace_learned(&endpoints(&["10.0.0.6:6443"])));
        assert_eq!(servers.all().len(), 2, "they are known nevertheless");
        std::fs::create_dir(&pki).unwrap();
        assert!(!servers.replace_learned(&endpoints(&["10.0.0.6:6443"])));
        assert_eq!(urls(&ApiServers::load(Vec::new(), &pki).all()), ["https://10.0.0.6:6443"]);
    }

    #[test]
    fn garbage_in_the_file_is_ignored_and_the_number_of_servers_is_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(SERVERS_FILE);
        std::fs::write(
            &path,
            b"\xff\xfe\nhttps://10.0.0.6:6443\n\nhttp://10.0.0.7:1\n  https://10.0.0.8:1  \nhttps://",
        )
        .unwrap();
        assert_eq!(urls(&read_servers(&path)), ["https://10.0.0.6:6443", "https://10.0.0.8:1"]);
        let many: Vec<String> = (0..40).map(|it| format!("10.0.0.{it}:6443")).collect();
        std::fs::write(&path, many.iter().map(|it| format!("https://{it}\n")).collect::<String>()).unwrap();
        assert_eq!(read_servers(&path).len(), LEARNED_SERVERS_MAX);
        let servers = ApiServers::load(vec![url("https://a:1")], dir.path());
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        servers.replace_learned(&endpoints(&many));
        assert_eq!(servers.all().len(), LEARNED_SERVERS_MAX + 1);
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert!(read_servers(&path).is_empty(), "a file that cannot be read");
    }

    #[test]
    fn nodes_are_spread_over_the_servers_and_over_the_rest_when_one_fails() {
        let dir = tempfile::tempdir().unwrap();
        let all = ["https://10.0.0.5:6443", "https://10.0.0.6:6443", "https://10.0.0.7:6443"].map(url);
        let servers = ApiServers::load(all.to_vec(), dir.path());
        let orders: Vec<_> = (0..300).map(|it| servers.in_order_for(&format!("node-{it}"))).collect();
        for first in &all {
            let of_first: Vec<_> = orders.iter().filter(|it| it[0] == *first).collect();
            assert!((60..=140).contains(&of_first.len()), "{}", of_first.len());
            for next in all.iter().filter(|it| *it != first) {
                let count = of_first.iter().filter(|it| it[1] == *next).count();
                assert!((20..=100).contains(&count), "{count}");
            }
        }
        assert_eq!(servers.in_order_for("node-1"), orders[1], "the order of a node is stable");
    }
}
