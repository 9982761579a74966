//! Lists and changes the keys that sign service account tokens, for the command `muster signing-key`.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use muster_etcd::{EtcdClient, Keyspace};
use muster_files::write_private_file;
use tokio::time::Instant;

use crate::bootstrap::server_leases::{self, ObservedServers, RENEW_INTERVAL, ServerLease};
use crate::cluster_keys::{ClusterKeysError, DecryptedClusterKeys};
use crate::signing_keys::{KeyFile, SIGNING_KEY_FILE, SigningKeyError, SigningKeyInfo};
use crate::storage::etcd::{EtcdOptions, EtcdStoreError};
use crate::unstructured;

/// Interval at which [`SigningKeyAdmin::wait_for_servers`] reads the Leases of the servers.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Why the signing keys of a cluster cannot be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum SigningKeyAdminError {
    #[error("read or write {}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Key(#[from] SigningKeyError),
    #[error(transparent)]
    Cluster(#[from] ClusterKeysError),
    #[error("read the Leases of the servers")]
    Leases(#[from] muster_etcd::LoadError),
}

/// A live server that does not use the signing keys in etcd yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaggingServer {
    /// Name of the Lease of the server in `kube-system`.
    pub lease: String,
    /// Address of the server. `None` if it listens on a loopback address only.
    pub endpoint: Option<SocketAddr>,
}

impl fmt::Display for LaggingServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.endpoint {
            Some(endpoint) => write!(f, "{endpoint} (Lease {})", self.lease),
            None => write!(f, "the server of Lease {}", self.lease),
        }
    }
}

/// The signing keys of a cluster, for the commands that list and change them.
#[derive(Debug)]
pub struct SigningKeyAdmin {
    location: SigningKeyLocation,
}

/// Where the signing keys of a cluster are stored.
#[derive(Debug)]
enum SigningKeyLocation {
    /// In the data directory of the only server, which must be stopped.
    DataDir(PathBuf),
    /// In etcd, encrypted with the server token.
    Etcd { client: EtcdClient, keys: Keyspace, token_file: Option<PathBuf>, data_dir: PathBuf },
}

impl SigningKeyAdmin {
    /// Opens the signing keys in etcd, or those in the data directory if `etcd` is `None`. The server of the data
    /// directory must be stopped. The servers on etcd may run.
    pub fn open(data_dir: &Path, etcd: Option<&EtcdOptions>) -> Result<Self, SigningKeyAdminError> {
        let location = match etcd {
            None => SigningKeyLocation::DataDir(data_dir.to_owned()),
            Some(options) => SigningKeyLocation::Etcd {
                client: options.client().map_err(ClusterKeysError::from)?,
                keys: options.keyspace(),
                token_file: options.token_file.clone(),
                data_dir: data_dir.to_owned(),
            },
        };
        Ok(Self { location })
    }

    /// Returns all signing keys of the cluster.
    pub async fn list(&self) -> Result<Vec<SigningKeyInfo>, SigningKeyAdminError> {
        self.update(|it| Ok(it.list())).await
    }

    /// Adds a staged key, which servers accept and which does not sign yet. Adds none if there already is a staged key.
    /// Returns the ID of the staged key.
    pub async fn stage_key(&self) -> Result<String, SigningKeyAdminError> {
        self.update(KeyFile::stage).await
    }

    /// Waits until all live servers use the stored keys, at most for `timeout`. Calls `on_change` with the servers that do
    /// not use them yet, first and whenever these change. Returns the servers that do not use the keys at the end, so
    /// none if all of them do. Without etcd there is nothing to wait for.
    ///
    /// Rule: a server publishes in its Lease a digest of the keys that it uses. A server whose Lease has not been renewed
    /// for 15 seconds counts as dead. So after a server was killed, this function waits for 15 seconds.
    pub async fn wait_for_servers(
        &self,
        timeout: Duration,
        on_change: &mut (dyn FnMut(&[LaggingServer]) + Send),
    ) -> Result<Vec<LaggingServer>, SigningKeyAdminError> {
        let SigningKeyLocation::Etcd { client, keys, .. } = &self.location else { return Ok(Vec::new()) };
        let digest = self.update(|it| Ok(it.digest())).await?;
        let prefix = server_leases::lease_store_key_prefix();
        let began = Instant::now();
        let (mut detector, mut reported) = (LaggingServerDetector::new(digest, began), Vec::new());
        loop {
            let leases = muster_etcd::read_objects_with_prefix(client, keys, &prefix).await?;
            let leases =
                leases.iter().map(|it| ServerLease::from_stored(&unstructured::parse_stored(&it.value)));
            let lagging = detector.observe(leases.collect(), Instant::now());
            if lagging.is_empty() || timeout <= began.elapsed() {
                return Ok(lagging);
            }
            if lagging != reported {
                on_change(&lagging);
                reported = lagging;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Makes the staged key `id` sign new tokens. The caller first waits until all servers accept the key.
    pub async fn activate_key(&self, id: &str) -> Result<(), SigningKeyAdminError> {
        self.update(|it| it.activate(id)).await
    }

    /// Removes the key `id`, which must not be the one that signs new tokens. Tokens that the removed key has signed
    /// become invalid.
    pub async fn remove_key(&self, id: &str) -> Result<(), SigningKeyAdminError> {
        self.update(|it| it.remove(id)).await
    }

    /// Reads the key file, calls `change` with its content, and writes the content back if `change` has changed it.
    async fn update<T>(
        &self,
        change: impl FnOnce(&mut KeyFile) -> Result<T, SigningKeyError>,
    ) -> Result<T, SigningKeyAdminError> {
        match &self.location {
            SigningKeyLocation::DataDir(dir) => {
                let path = dir.join(SIGNING_KEY_FILE);
                let failed = |source| SigningKeyAdminError::File { path: path.clone(), source };
                let text = std::fs::read_to_string(&path).map_err(failed)?;
                let (changed, result) = apply_change(&text, change)?;
                if changed != text {
                    write_private_file(&path, changed.as_bytes()).map_err(failed)?;
                }
                Ok(result)
            }
            SigningKeyLocation::Etcd { client, keys, token_file, data_dir } => {
                let stored = muster_etcd::read_cluster_keys(client, keys).await;
                let stored = stored.map_err(EtcdStoreError::from).map_err(ClusterKeysError::from)?;
                let stored = stored.ok_or(ClusterKeysError::NoCluster)?;
                let mut opened = DecryptedClusterKeys::open(&stored, token_file.as_deref(), data_dir)?;
                let text = opened.file(SIGNING_KEY_FILE)?.to_owned();
                let (changed, result) = apply_change(&text, change)?;
                if changed != text {
                    let sealed = opened.replace_and_encrypt(SIGNING_KEY_FILE, changed)?;
                    let replaced = muster_etcd::replace_cluster_keys(client, keys, stored, sealed).await;
                    if !replaced.map_err(EtcdStoreError::from).map_err(ClusterKeysError::from)? {
                        return Err(ClusterKeysError::Changed.into());
                    }
                }
                Ok(result)
            }
        }
    }
}

/// Finds the live servers whose signing keys do not have a digest.
#[derive(Debug)]
struct LaggingServerDetector {
    servers: ObservedServers,
    /// The digest of the keys that servers should use.
    digest: String,
    /// Time of the last call of [`Self::observe`].
    observed_at: Instant,
}

impl LaggingServerDetector {
    fn new(digest: String, now: Instant) -> Self {
        Self { servers: ObservedServers::default(), digest, observed_at: now }
    }

    /// Records the stored Leases. Returns the live servers whose signing keys have another digest.
    fn observe(&mut self, leases: Vec<ServerLease>, now: Instant) -> Vec<LaggingServer> {
        if RENEW_INTERVAL < now - self.observed_at {
            // etcd did not respond for a while, so servers could not renew their Leases either.
            self.servers.mark_all_renewed(now);
        }
        self.observed_at = now;
        let differs = |it: &&ServerLease| it.signing_keys.as_ref() != Some(&self.digest);
        let mut lagging: Vec<_> = leases
            .iter()
            .filter(differs)
            .map(|it| LaggingServer { lease: it.name.clone(), endpoint: it.endpoint })
            .collect();
        // The servers delete expired Leases.
        let _expired = self.servers.observe(leases, now);
        let live = self.servers.live_lease_names();
        lagging.retain(|it| live.contains(&it.lease));
        lagging
    }
}

/// Applies a change to the text of a key file. Returns the new text, and the result of the change.
fn apply_change<T>(
    text: &str,
    change: impl FnOnce(&mut KeyFile) -> Result<T, SigningKeyError>,
) -> Result<(String, T), SigningKeyError> {
    let mut file = KeyFile::parse(text)?;
    let before = file.to_text();
    let result = change(&mut file)?;
    let after = file.to_text();
    // Unless a key changes, a file that an administrator has written stays as it is.
    Ok((if after == before { text.to_owned() } else { after }, result))
}

#[cfg(test)]
mod tests {
    use muster_api::well_known::{ANNOTATION_SERVER_ENDPOINT, ANNOTATION_SERVER_SIGNING_KEYS};
    use serde_json::json;

    use super::*;
    use crate::signing_keys::{SigningKeyState, SigningKeys, new_key_file};

    fn states(keys: &[SigningKeyInfo]) -> Vec<SigningKeyState> {
        keys.iter().map(|it| it.state).collect()
    }

    #[test]
    fn live_servers_with_other_keys_lag() {
        let lease = |name: &str, version: u32, digest: Option<&str>| {
            ServerLease::from_stored(&json!({"metadata": {
                "name": name,
                "resourceVersion": version.to_string(),
                "annotations": {ANNOTATION_SERVER_SIGNING_KEYS: digest, ANNOTATION_SERVER_ENDPOINT: "10.0.0.1:6443"},
            }}))
        };
        let start = Instant::now();
        let mut detector = LaggingServerDetector::new("new".to_owned(), start);
        let mut observe = |seconds: u64, leases: Vec<ServerLease>| {
            let lagging = detector.observe(leases, start + Duration::from_secs(seconds));
            lagging.iter().map(|it| it.lease.clone()).collect::<Vec<_>>()
        };
        assert_eq!(observe(0, Vec::new()), [""; 0], "all servers are stopped");
        let leases = |version: u32, of_b: &str| {
            vec![
                lease("a", version, Some("new")),
                lease("b", version, Some(of_b)),
                // Another version of Muster, which is killed.
                lease("c", 1, None),
            ]
        };
        assert_eq!(observe(1, leases(1, "old")), ["b", "c"]);
        assert_eq!(observe(6, leases(2, "new")), ["c"]);
        assert_eq!(observe(11, leases(3, "new")), ["c"]);
        assert_eq!(observe(15, leases(3, "new")), ["c"]);
        assert_eq!(observe(16, leases(3, "new")), [""; 0]);
        // etcd did not respond: the server may be live.
        assert_eq!(observe(60, leases(3, "old")), ["b", "c"]);
        let lagging = LaggingServer { lease: "b".to_owned(), endpoint: "10.0.0.1:6443".parse().ok() };
        assert_eq!(lagging.to_string(), "10.0.0.1:6443 (Lease b)");
    }

    #[tokio::test]
    async fn a_key_is_staged_activated_and_removed() {
        use SigningKeyState::{Accepted, Signing, Staged};
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(SIGNING_KEY_FILE);
        let admin = SigningKeyAdmin::open(dir.path(), None).unwrap();
        assert!(matches!(admin.list().await, Err(SigningKeyAdminError::File { .. })));
        write_private_file(&path, new_key_file().unwrap().as_bytes()).unwrap();
        let read = || SigningKeys::parse(&std::fs::read_to_string(&path).unwrap()).unwrap();
        let first = read().signing().id.clone();

        let second = admin.stage_key().await.unwrap();
        assert_eq!(admin.stage_key().await.unwrap(), second, "an interrupted rotation goes on");
        assert_eq!(states(&admin.list().await.unwrap()), [Signing, Staged]);
        assert_eq!(read().signing().id, first);
        assert!(read().by_id(&second).is_some(), "its tokens are accepted before it signs");

        admin.activate_key(&second).await.unwrap();
        assert_eq!(states(&admin.list().await.unwrap()), [Signing, Accepted]);
        assert_eq!(read().signing().id, second);
        assert!(read().by_id(&first).is_some(), "tokens of the old key stay valid");

        let refused = admin.remove_key(&second).await.unwrap_err();
        assert_eq!(
            refused.to_string(),
            format!("{second} signs new tokens: run `muster signing-key rotate` first")
        );
        assert!(matches!(
            admin.remove_key("x").await,
            Err(SigningKeyAdminError::Key(SigningKeyError::Unknown(_)))
        ));
        admin.remove_key(&first).await.unwrap();
        assert_eq!(states(&admin.list().await.unwrap()), [Signing]);
        assert!(read().by_id(&first).is_none());
        assert!(matches!(
            admin.activate_key(&first).await,
            Err(SigningKeyAdminError::Key(SigningKeyError::Unknown(_)))
        ));
    }
}
