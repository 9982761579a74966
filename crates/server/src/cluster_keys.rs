//! The keys that all servers of a cluster share: the certificate authorities, the keys that sign service account
//! tokens, and the encryption keys for Secrets. The first server generates them. They are stored in etcd, encrypted
//! with the server token, and every server has a copy in its data directory.
//!
//! Upstream: kubeadm stores the same files in the Secret `kubeadm-certs`, encrypted with a certificate key.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::num::NonZeroU32;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use bytes::Bytes;
use muster_etcd::{EtcdApi as _, EtcdClient, Keyspace};
use muster_files::{sync_parent_dir, write_private_file};
use muster_store::{EncryptionKeys, KeyFileError};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::pbkdf2;
use ring::rand::{SecureRandom as _, SystemRandom};
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::pki::{Pki, PkiError};
use crate::registry::Registry;
use crate::signing_keys::{SIGNING_KEY_FILE, SigningKeys};
use crate::storage::data_dir;
use crate::storage::etcd::{EtcdOptions, EtcdStoreError};

/// Names of the files in the data directory that contain the cluster keys. They are written in this order, so the key
/// of a certificate is written before the certificate.
const CLUSTER_KEY_FILES: [&str; 6] =
    ["ca.key", "ca.crt", "nodes-ca.key", "nodes-ca.crt", SIGNING_KEY_FILE, ENCRYPTION_KEY_FILE];
/// File in the data directory with the encryption keys for Secrets.
pub const ENCRYPTION_KEY_FILE: &str = "encryption.key";
/// File that identifies the cluster. Two data directories belong to the same cluster only if this file has the same
/// content in both.
const IDENTITY_FILE: &str = "ca.crt";
/// File in the data directory with this server's copy of the server token.
pub const SERVER_TOKEN_FILE: &str = "server-token";
/// File in the data directory with the next server token while `muster token rotate --server` replaces the current one,
/// and after the command was interrupted. Either of the two tokens may then be that of the cluster.
const NEXT_SERVER_TOKEN_FILE: &str = "server-token.next";
/// Temporary directory in the data directory, in which new keys are generated.
const STAGING_DIR: &str = "new-keys";

/// Prefix of the encrypted cluster keys in etcd, which names their format.
const FORMAT_PREFIX: &[u8] = b"muster:cluster-keys:1:";
/// Length in bytes of the random salt. The key that encrypts the cluster keys is derived from the salt and the server
/// token.
const SALT_BYTES: usize = 16;
/// Number of rounds of PBKDF2. OWASP recommends at least 600,000 with SHA-256.
const PBKDF2_ROUNDS: NonZeroU32 = NonZeroU32::new(600_000).unwrap();
/// Length of a generated server token in bytes, before it is encoded.
const TOKEN_BYTES: usize = 32;
/// Minimum length of a server token in characters. An attacker with a copy of the encrypted keys could guess a shorter
/// token.
const TOKEN_CHARS_MIN: usize = 32;

/// Why the cluster keys cannot be fetched, generated or installed.
#[derive(Debug, thiserror::Error)]
pub enum ClusterKeysError {
    #[error(transparent)]
    Store(#[from] EtcdStoreError),
    #[error("generate the keys of the cluster")]
    Pki(#[from] PkiError),
    #[error(transparent)]
    KeyFile(#[from] KeyFileError),
    #[error("read or write {}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("other users may read {}: set its mode to 0600", path.display())]
    TokenNotPrivate { path: PathBuf },
    #[error("the server token in {} has fewer than {TOKEN_CHARS_MIN} characters", path.display())]
    ShortToken { path: PathBuf },
    #[error(
        "etcd already has a cluster: start this server with its token, in the file that --token-file names. A server of the cluster \
         has it in its data directory as {SERVER_TOKEN_FILE}"
    )]
    NoToken,
    #[error(
        "the server token is wrong: use that of the cluster in etcd. A server of the cluster has it in its data directory as \
         {SERVER_TOKEN_FILE}. If `muster token rotate --server` has replaced it, put the new token there, and into the file that \
         --token-file names. A backup that was made before needs the old token"
    )]
    WrongToken,
    #[error(
        "the keys of the cluster are encrypted with its server token, and {} does not exist: name the file with the token with \
         --token-file. A server of the cluster has it in its data directory as {SERVER_TOKEN_FILE}",
        path.display()
    )]
    TokenMissing { path: PathBuf },
    #[error(
        "{} does not exist: name the data directory that has the certificates and keys of the cluster with --data-dir",
        path.display()
    )]
    FileMissing { path: PathBuf },
    #[error("the keys of the cluster in etcd are damaged: restore a backup")]
    Damaged,
    #[error(
        "{} has the certificates of another cluster than etcd: choose another --data-dir or --etcd-prefix",
        path.display()
    )]
    OtherCluster { path: PathBuf },
    #[error(
        "{} has a database of its own, and etcd has no cluster: choose another --data-dir, or start without --etcd",
        path.display()
    )]
    HasDatabase { path: PathBuf },
    #[error(
        "{} has the keys of a cluster, and etcd has no cluster: restore a backup of etcd, or begin an empty cluster with these keys with \
         --new-cluster",
        path.display()
    )]
    ClusterLost { path: PathBuf },
    #[error("etcd has objects of a cluster, but not its keys: restore a backup of etcd")]
    KeysLost,
    #[error("etcd has no cluster with this prefix: choose another --etcd or --etcd-prefix")]
    NoCluster,
    #[error("another command has changed the keys of the cluster at the same time: run it again")]
    Changed,
    #[error("the system has no random numbers")]
    Random,
}

/// Fetches the cluster keys from etcd, or generates them if this is the first server, and writes them to the data
/// directory. Returns the encryption keys for Secrets. If etcd has no cluster but the data directory has keys, fails
/// unless `new_cluster` is set. With `new_cluster`, the new cluster uses these keys.
pub(crate) async fn install_cluster_keys(
    options: &EtcdOptions,
    data_dir: &Path,
    new_cluster: bool,
) -> Result<EncryptionKeys, ClusterKeysError> {
    let (client, keys) = (options.client()?, options.keyspace());
    client.check().await.map_err(EtcdStoreError::from)?;
    let state = muster_etcd::read_cluster_state(&client, &keys).await.map_err(EtcdStoreError::from)?;
    state.check_usable(&keys).map_err(EtcdStoreError::from)?;
    state.check_prefix().map_err(EtcdStoreError::from)?;
    let tokens = ServerTokens::find(options.token_file.as_deref(), data_dir)?;
    let stored = muster_etcd::read_cluster_keys(&client, &keys).await.map_err(EtcdStoreError::from)?;
    let (token, files) = match stored {
        Some(_) if tokens.candidates.is_empty() => return Err(ClusterKeysError::NoToken),
        Some(stored) => {
            let DecryptedClusterKeys { files, token } = tokens.decrypt(&stored)?;
            if let Some(file) = &options.token_file
                && tokens.candidates.first() != Some(&token)
            {
                let file = file.display().to_string();
                tracing::warn!(
                    file,
                    "this file does not have the server token of the cluster: using the token in the data directory"
                );
            }
            (token, files)
        }
        None => {
            let token = tokens.candidates.first().cloned().map_or_else(generate_token, Ok)?;
            let files = keys_for_new_cluster(&client, &keys, data_dir, new_cluster).await?;
            // The copy is written first: after a crash the keys in etcd can still be decrypted.
            tokens.keep(&token, data_dir)?;
            let sealed = encrypt_key_files(&files, &token)?;
            let created = muster_etcd::create_cluster_keys(&client, &keys, sealed.clone()).await;
            let stored = created.map_err(EtcdStoreError::from)?;
            // Another server may have been first.
            let files = if stored == sealed { files } else { decrypt_key_files(&stored, &token)? };
            (token, files)
        }
    };
    write_key_files(&files, data_dir)?;
    tokens.keep(&token, data_dir)?;
    Ok(EncryptionKeys::read(&data_dir.join(ENCRYPTION_KEY_FILE))?)
}

/// The content of the files in `CLUSTER_KEY_FILES`, by file name.
type ClusterKeyFiles = BTreeMap<String, String>;

/// The shared keys of a cluster that is backed up, restored or moved.
pub(crate) struct ClusterKeys {
    files: ClusterKeyFiles,
    /// The key files, encrypted with the server token.
    pub(crate) sealed: Bytes,
    /// The encryption keys for Secrets.
    pub(crate) encryption: EncryptionKeys,
}

impl ClusterKeys {
    /// Decrypts the keys with the server token in the file `token_file` or in the data directory.
    pub(crate) fn open(
        sealed: Bytes,
        token_file: Option<&Path>,
        data_dir: &Path,
    ) -> Result<Self, ClusterKeysError> {
        let DecryptedClusterKeys { files, .. } = DecryptedClusterKeys::open(&sealed, token_file, data_dir)?;
        Self::from_files(files, sealed, data_dir)
    }

    /// Whether a data directory has a server token.
    pub(crate) fn has_server_token(data_dir: &Path) -> bool {
        data_dir.join(SERVER_TOKEN_FILE).exists()
    }

    /// Reads the keys of a cluster that is stored in the data directory, and encrypts them with the server token.
    /// Generates a token if there is none, and writes the token to the data directory. `encryption` is the content of
    /// the key file for Secrets. If it is `None`, generates a key for Secrets.
    pub(crate) fn from_directory(
        token_file: Option<&Path>,
        data_dir: &Path,
        encryption: Option<&EncryptionKeys>,
    ) -> Result<Self, ClusterKeysError> {
        let read = |name: &str| {
            let path = data_dir.join(name);
            if !exists(&path)? {
                return Err(ClusterKeysError::FileMissing { path });
            }
            Ok((name.to_owned(), std::fs::read_to_string(&path).map_err(file_error(&path))?))
        };
        let names = CLUSTER_KEY_FILES.into_iter().filter(|it| *it != ENCRYPTION_KEY_FILE);
        let mut files: ClusterKeyFiles = names.map(read).collect::<Result<_, _>>()?;
        let encryption = match encryption {
            Some(keys) => keys.to_file_text(),
            None => in_staging_dir(data_dir, |staging| {
                let path = staging.join(ENCRYPTION_KEY_FILE);
                Ok(EncryptionKeys::write_file_with_new_key(None, &path)?.to_file_text())
            })?,
        };
        files.insert(ENCRYPTION_KEY_FILE.to_owned(), encryption);
        let tokens = ServerTokens::find(token_file, data_dir)?;
        let token = tokens.candidates.first().cloned().map_or_else(generate_token, Ok)?;
        // The copy is written first: after a crash the keys in etcd can still be decrypted.
        tokens.keep(&token, data_dir)?;
        let sealed = encrypt_key_files(&files, &token)?;
        Self::from_files(files, sealed, data_dir)
    }

    /// Creates the keys from the decrypted files and their encrypted form. Fails if the encryption keys for Secrets are
    /// missing or invalid. If they are invalid, the error names their file in `data_dir`.
    fn from_files(files: ClusterKeyFiles, sealed: Bytes, data_dir: &Path) -> Result<Self, ClusterKeysError> {
        let text = files.get(ENCRYPTION_KEY_FILE).ok_or(ClusterKeysError::Damaged)?;
        let encryption = EncryptionKeys::parse(text, &data_dir.join(ENCRYPTION_KEY_FILE))?;
        Ok(Self { files, sealed, encryption })
    }

    /// Whether the data directory has the certificates of this cluster.
    pub(crate) fn matches_data_dir(&self, data_dir: &Path) -> Result<bool, ClusterKeysError> {
        Ok(read_identity(data_dir)?.is_some_and(|it| self.files.get(IDENTITY_FILE) == Some(&it)))
    }

    /// Writes the keys to a data directory. Fails if it has the keys of another cluster.
    pub(crate) fn install(&self, data_dir: &Path) -> Result<(), ClusterKeysError> {
        write_key_files(&self.files, data_dir)
    }
}

/// The decrypted key files of a cluster, for a server or command that reads or changes one of them.
pub(crate) struct DecryptedClusterKeys {
    files: ClusterKeyFiles,
    /// The server token, with which the key files are encrypted.
    token: String,
}

impl DecryptedClusterKeys {
    /// Decrypts the keys with the server token in the file `token_file` or in the data directory.
    pub(crate) fn open(
        sealed: &[u8],
        token_file: Option<&Path>,
        data_dir: &Path,
    ) -> Result<Self, ClusterKeysError> {
        ServerTokens::require(token_file, data_dir)?.decrypt(sealed)
    }

    /// Returns the content of the key file `name`. Fails if there is no such file.
    pub(crate) fn file(&self, name: &str) -> Result<&str, ClusterKeysError> {
        self.files.get(name).map(String::as_str).ok_or(ClusterKeysError::Damaged)
    }

    /// Replaces the content of the key file `name`, and returns all key files, encrypted with the server token.
    pub(crate) fn replace_and_encrypt(
        &mut self,
        name: &str,
        content: String,
    ) -> Result<Bytes, ClusterKeysError> {
        self.files.insert(name.to_owned(), content);
        encrypt_key_files(&self.files, &self.token)
    }
}

/// The server tokens that a server or command has.
#[derive(Clone, PartialEq, Eq)]
struct ServerTokens {
    /// The tokens with which the keys of the cluster may be encrypted, without duplicates and in the order in which
    /// they are tried: the one in the file of `--token-file`, the one in the data directory, and the next token of an
    /// interrupted rotation.
    candidates: Vec<String>,
    /// The token in the data directory.
    copy: Option<String>,
    /// The next token of a rotation that is in progress or was interrupted.
    next: Option<String>,
}

impl ServerTokens {
    /// Reads the token in the file `named`, which must exist, and the tokens in the data directory.
    fn find(named: Option<&Path>, data_dir: &Path) -> Result<Self, ClusterKeysError> {
        let named = named.map(read_token).transpose()?;
        let copy = read_token_if_exists(&data_dir.join(SERVER_TOKEN_FILE))?;
        let next = read_token_if_exists(&data_dir.join(NEXT_SERVER_TOKEN_FILE))?;
        let mut candidates = Vec::new();
        for token in [named, copy.clone(), next.clone()].into_iter().flatten() {
            if !candidates.contains(&token) {
                candidates.push(token);
            }
        }
        Ok(Self { candidates, copy, next })
    }

    /// Reads the tokens as [`Self::find`], and fails if there is none.
    fn require(named: Option<&Path>, data_dir: &Path) -> Result<Self, ClusterKeysError> {
        let tokens = Self::find(named, data_dir)?;
        if tokens.candidates.is_empty() {
            return Err(ClusterKeysError::TokenMissing { path: data_dir.join(SERVER_TOKEN_FILE) });
        }
        Ok(tokens)
    }

    /// Decrypts the key files with the first token that can decrypt them.
    fn decrypt(&self, sealed: &[u8]) -> Result<DecryptedClusterKeys, ClusterKeysError> {
        for token in &self.candidates {
            match decrypt_key_files(sealed, token) {
                Err(ClusterKeysError::WrongToken) => {}
                opened => return opened.map(|files| DecryptedClusterKeys { files, token: token.clone() }),
            }
        }
        Err(ClusterKeysError::WrongToken)
    }

    /// Writes the token of the cluster to the data directory. If it is the next token of a rotation, ends the rotation.
    ///
    /// Rule: a token that is already in the data directory is not written again, because a rotation that runs at the
    /// same time may have replaced it.
    fn keep(&self, token: &str, data_dir: &Path) -> Result<(), ClusterKeysError> {
        if self.copy.as_deref() != Some(token) {
            write_token(&data_dir.join(SERVER_TOKEN_FILE), token)?;
        }
        // Removed last: after a crash before this, both files have the token.
        if self.next.as_deref() == Some(token) {
            let path = data_dir.join(NEXT_SERVER_TOKEN_FILE);
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(file_error(&path)(error));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Without the tokens, which must not get into a log.
impl fmt::Debug for ServerTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerTokens").finish_non_exhaustive()
    }
}

/// Replaces the server token of the cluster in etcd with a random one: encrypts the keys in etcd with it, and writes it
/// to the data directory, which must be that of a server of the cluster. The servers may run. Returns the new token.
///
/// If an earlier call was interrupted, completes it: returns the token that the earlier call has generated. Whenever a
/// call is interrupted, the data directory has the token of the cluster, as `server-token` or as `server-token.next`.
pub async fn rotate_server_token(options: &EtcdOptions, data_dir: &Path) -> Result<String, ClusterKeysError> {
    let (client, keys) = (options.client()?, options.keyspace());
    client.check().await.map_err(EtcdStoreError::from)?;
    let state = muster_etcd::read_cluster_state(&client, &keys).await.map_err(EtcdStoreError::from)?;
    state.check_usable(&keys).map_err(EtcdStoreError::from)?;
    let stored = muster_etcd::read_cluster_keys(&client, &keys).await.map_err(EtcdStoreError::from)?;
    let stored = stored.ok_or(ClusterKeysError::NoCluster)?;
    let rotation = TokenRotation::begin(&stored, options.token_file.as_deref(), data_dir)?;
    if let Some(sealed) = rotation.sealed.clone() {
        let replaced = muster_etcd::replace_cluster_keys(&client, &keys, stored, sealed).await;
        if !replaced.map_err(EtcdStoreError::from)? {
            return Err(ClusterKeysError::Changed);
        }
    }
    rotation.complete(data_dir)
}

/// A rotation of the server token whose next token is in the data directory.
struct TokenRotation {
    /// The key files, encrypted with the next token. `None` if etcd has them already, because an earlier rotation was
    /// interrupted after that.
    sealed: Option<Bytes>,
    next: String,
}

impl TokenRotation {
    /// Decrypts the keys of the cluster, writes the next token to the data directory, and encrypts the keys with it.
    /// Uses the next token that is there if an earlier rotation was interrupted, because the transaction of that
    /// rotation may still be on its way to etcd.
    fn begin(sealed: &[u8], token_file: Option<&Path>, data_dir: &Path) -> Result<Self, ClusterKeysError> {
        let tokens = ServerTokens::require(token_file, data_dir)?;
        let DecryptedClusterKeys { files, token } = tokens.decrypt(sealed)?;
        match read_identity(data_dir)? {
            None => return Err(ClusterKeysError::FileMissing { path: data_dir.join(IDENTITY_FILE) }),
            Some(own) if files.get(IDENTITY_FILE) != Some(&own) => {
                return Err(ClusterKeysError::OtherCluster { path: data_dir.to_owned() });
            }
            Some(_) => {}
        }
        let next = match tokens.next {
            Some(next) if next == token => return Ok(Self { sealed: None, next }),
            Some(next) => next,
            None => {
                let next = generate_token()?;
                write_token(&data_dir.join(NEXT_SERVER_TOKEN_FILE), &next)?;
                next
            }
        };
        Ok(Self { sealed: Some(encrypt_key_files(&files, &next)?), next })
    }

    /// Makes the next token the token of the data directory. Returns the token.
    fn complete(self, data_dir: &Path) -> Result<String, ClusterKeysError> {
        ServerTokens::find(None, data_dir)?.keep(&self.next, data_dir)?;
        Ok(self.next)
    }
}

/// Interval at which a server looks for changed keys in etcd.
pub const CLUSTER_KEYS_CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Checks etcd at intervals for changed keys of the cluster, so that a rotation of the signing keys needs no restart of
/// a server. Also raises the feature level of the cluster.
#[derive(Debug)]
pub(crate) struct ClusterKeysFollower {
    client: EtcdClient,
    keys: Keyspace,
    data_dir: PathBuf,
    /// The encrypted keys that were last decrypted.
    sealed: Bytes,
    /// The encrypted keys that could not be decrypted with the tokens in the data directory, and these tokens. `None`
    /// if the last keys could be decrypted.
    undecrypted: Option<(Bytes, ServerTokens)>,
    /// The feature level to which this server has raised the cluster. 0 if this server has not raised it yet.
    feature_level: u32,
}

impl ClusterKeysFollower {
    /// Creates the follower for a server whose data directory `data_dir` has the keys of the cluster.
    pub(crate) fn new(options: &EtcdOptions, data_dir: &Path) -> Result<Self, ClusterKeysError> {
        let (client, keys) = (options.client()?, options.keyspace());
        Ok(Self {
            client,
            keys,
            data_dir: data_dir.to_owned(),
            sealed: Bytes::new(),
            undecrypted: None,
            feature_level: 0,
        })
    }

    /// Reads the keys at once, because they may have changed while the server loaded the objects, and then every
    /// [`CLUSTER_KEYS_CHECK_INTERVAL`], until `stop` is cancelled. Installs changed signing keys in `registry`. Raises
    /// the feature level of the cluster to `feature_level`, the lowest level of all servers, unless that is `None`
    /// (unknown).
    pub(crate) async fn run(
        mut self,
        registry: Arc<Registry>,
        feature_level: watch::Receiver<Option<u32>>,
        stop: CancellationToken,
    ) {
        let mut rounds = tokio::time::interval(CLUSTER_KEYS_CHECK_INTERVAL);
        rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while stop.run_until_cancelled(rounds.tick()).await.is_some() {
            let synced = self.sync_signing_keys().await;
            registry.metrics.set_cluster_keys_unreadable(self.undecrypted.is_some());
            match synced {
                Ok(None) => {}
                Ok(Some(changed)) => registry.access.tokens.replace_keys(changed),
                Err(error) => {
                    tracing::warn!(%error, "cannot read the keys of the cluster; the server goes on with those it has");
                }
            }
            let level = feature_level.borrow().unwrap_or(0);
            if self.feature_level < level {
                match muster_etcd::raise_feature_level(&self.client, &self.keys, level).await {
                    Ok(()) => self.feature_level = level,
                    Err(error) => {
                        tracing::warn!(%error, level, "cannot raise the feature level of the cluster")
                    }
                }
            }
        }
    }

    /// Reads the signing keys from etcd. If they differ from the keys in the data directory, writes them to the data
    /// directory and returns them. Returns `None` if they are the same, or if etcd has no keys. Also returns `None` if
    /// the keys could not be decrypted before, and neither they nor the tokens in the data directory have changed.
    async fn sync_signing_keys(&mut self) -> Result<Option<Arc<SigningKeys>>, ClusterKeysError> {
        let stored = muster_etcd::read_cluster_keys(&self.client, &self.keys).await;
        let stored = match stored.map_err(EtcdStoreError::from)? {
            Some(stored) if stored != self.sealed => stored,
            // If the keys are missing in etcd, other parts of the server report that.
            _ => return Ok(None),
        };
        let tokens = ServerTokens::find(None, &self.data_dir)?;
        let attempt = (stored.clone(), tokens);
        if self.undecrypted.as_ref() == Some(&attempt) {
            return Ok(None);
        }
        self.undecrypted = Some(attempt.clone());
        // The derivation of the key takes long.
        let opened = tokio::task::spawn_blocking(move || attempt.1.decrypt(&attempt.0));
        let opened = opened.await.map_err(|_| ClusterKeysError::Damaged)??;
        self.undecrypted = None;
        let text = opened.file(SIGNING_KEY_FILE)?;
        let path = self.data_dir.join(SIGNING_KEY_FILE);
        let own = std::fs::read_to_string(&path).map_err(file_error(&path))?;
        let changed = if own == text {
            None
        } else {
            let changed = SigningKeys::parse(text).map_err(|_| ClusterKeysError::Damaged)?;
            write_private_file(&path, text.as_bytes()).map_err(file_error(&path))?;
            tracing::info!(
                signing = changed.signing().id,
                "the keys that sign service account tokens have changed"
            );
            Some(Arc::new(changed))
        };
        self.sealed = stored;
        Ok(changed)
    }
}

/// Returns the keys for a cluster that does not exist in etcd yet: those in the data directory if it has any, otherwise
/// new ones. Fails if etcd has objects of a cluster, if the data directory has a database, or if it has keys and
/// `new_cluster` is not set.
async fn keys_for_new_cluster(
    client: &EtcdClient,
    keys: &Keyspace,
    data_dir: &Path,
    new_cluster: bool,
) -> Result<ClusterKeyFiles, ClusterKeysError> {
    if muster_etcd::has_objects(client, keys).await.map_err(EtcdStoreError::from)? {
        return Err(ClusterKeysError::KeysLost);
    }
    if data_dir::has_store(data_dir) {
        return Err(ClusterKeysError::HasDatabase { path: data_dir.to_owned() });
    }
    let has_keys = exists(&data_dir.join(IDENTITY_FILE))?;
    if has_keys && !new_cluster {
        return Err(ClusterKeysError::ClusterLost { path: data_dir.to_owned() });
    }
    if has_keys {
        return generate_missing_keys(data_dir);
    }
    in_staging_dir(data_dir, generate_missing_keys)
}

/// Creates a temporary directory in the data directory, calls `generate` with its path, removes the directory, and
/// returns the result of `generate`.
fn in_staging_dir<T>(
    data_dir: &Path,
    generate: impl FnOnce(&Path) -> Result<T, ClusterKeysError>,
) -> Result<T, ClusterKeysError> {
    let staging = data_dir.join(STAGING_DIR);
    let recreated = std::fs::remove_dir_all(&staging).or_else(|error| match error.kind() {
        io::ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    });
    recreated.and_then(|()| std::fs::create_dir(&staging)).map_err(file_error(&staging))?;
    let generated = generate(&staging);
    std::fs::remove_dir_all(&staging).map_err(file_error(&staging))?;
    generated
}

/// Generates the key files that a directory does not have. Returns the content of all key files.
fn generate_missing_keys(dir: &Path) -> Result<ClusterKeyFiles, ClusterKeysError> {
    Pki::open(dir)?;
    let encryption = dir.join(ENCRYPTION_KEY_FILE);
    if !exists(&encryption)? {
        EncryptionKeys::write_file_with_new_key(None, &encryption)?;
    }
    let read = |name: &str| {
        let path = dir.join(name);
        Ok((name.to_owned(), std::fs::read_to_string(&path).map_err(file_error(&path))?))
    };
    CLUSTER_KEY_FILES.into_iter().map(read).collect()
}

/// Returns the certificate in the file `IDENTITY_FILE` of a data directory, or `None` if the file does not exist.
fn read_identity(data_dir: &Path) -> Result<Option<String>, ClusterKeysError> {
    let path = data_dir.join(IDENTITY_FILE);
    if !exists(&path)? {
        return Ok(None);
    }
    std::fs::read_to_string(&path).map(Some).map_err(file_error(&path))
}

/// Writes the key files to the data directory. Fails if it has the keys of another cluster.
fn write_key_files(files: &ClusterKeyFiles, data_dir: &Path) -> Result<(), ClusterKeysError> {
    let own = read_identity(data_dir)?;
    if own.is_some_and(|it| files.get(IDENTITY_FILE) != Some(&it)) {
        return Err(ClusterKeysError::OtherCluster { path: data_dir.to_owned() });
    }
    for name in CLUSTER_KEY_FILES {
        let content = files.get(name).ok_or(ClusterKeysError::Damaged)?;
        let path = data_dir.join(name);
        write_private_file(&path, content.as_bytes()).map_err(file_error(&path))?;
    }
    Ok(())
}

/// Encrypts the key files with a key that is derived from the server token.
fn encrypt_key_files(files: &ClusterKeyFiles, token: &str) -> Result<Bytes, ClusterKeysError> {
    let mut random = [0; SALT_BYTES + NONCE_LEN];
    SystemRandom::new().fill(&mut random).map_err(|_| ClusterKeysError::Random)?;
    let (salt, nonce) = random.split_at(SALT_BYTES);
    let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| ClusterKeysError::Random)?;
    let mut content = serde_json::to_vec(files).map_err(|_| ClusterKeysError::Damaged)?;
    derive_key(token, salt)
        .seal_in_place_append_tag(nonce, Aad::from(FORMAT_PREFIX), &mut content)
        .map_err(|_| ClusterKeysError::Random)?;
    Ok([FORMAT_PREFIX, &random, &content].concat().into())
}

/// Decrypts the output of [`encrypt_key_files`].
fn decrypt_key_files(sealed: &[u8], token: &str) -> Result<ClusterKeyFiles, ClusterKeysError> {
    let rest = sealed.strip_prefix(FORMAT_PREFIX).ok_or(ClusterKeysError::Damaged)?;
    let (salt, rest) = rest.split_at_checked(SALT_BYTES).ok_or(ClusterKeysError::Damaged)?;
    let (nonce, content) = rest.split_at_checked(NONCE_LEN).ok_or(ClusterKeysError::Damaged)?;
    let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| ClusterKeysError::Damaged)?;
    let mut content = content.to_vec();
    let opened = derive_key(token, salt).open_in_place(nonce, Aad::from(FORMAT_PREFIX), &mut content);
    let files = opened.map_err(|_| ClusterKeysError::WrongToken)?;
    serde_json::from_slice(files).map_err(|_| ClusterKeysError::Damaged)
}

/// Derives the key that encrypts the cluster keys from the server token and the salt.
fn derive_key(token: &str, salt: &[u8]) -> LessSafeKey {
    let mut key = [0; 32];
    pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, PBKDF2_ROUNDS, salt, token.as_bytes(), &mut key);
    LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &key).expect("the key has 32 bytes"))
}

/// Writes a new server token to this file, unless the file exists.
pub fn create_server_token_if_missing(path: &Path) -> Result<(), ClusterKeysError> {
    if exists(path)? {
        return Ok(());
    }
    write_private_file(path, generate_token()?.as_bytes()).map_err(file_error(path))
}

/// Generates a server token. Fails if the system has no random numbers.
fn generate_token() -> Result<String, ClusterKeysError> {
    let mut random = [0; TOKEN_BYTES];
    SystemRandom::new().fill(&mut random).map_err(|_| ClusterKeysError::Random)?;
    Ok(BASE64_URL_SAFE_NO_PAD.encode(random))
}

/// Reads a server token from a file. Fails if users other than the owner have access to the file, or if the token is
/// too short.
fn read_token(path: &Path) -> Result<String, ClusterKeysError> {
    let mode = std::fs::metadata(path).map_err(file_error(path))?.mode();
    let credentials = std::env::var_os("CREDENTIALS_DIRECTORY");
    if !is_private(path, mode, credentials.as_deref().map(Path::new)) {
        return Err(ClusterKeysError::TokenNotPrivate { path: path.to_owned() });
    }
    let token = std::fs::read_to_string(path).map_err(file_error(path))?.trim().to_owned();
    if token.chars().count() < TOKEN_CHARS_MIN {
        return Err(ClusterKeysError::ShortToken { path: path.to_owned() });
    }
    Ok(token)
}

/// Whether only the owner of the file `path` has access to it. `credentials` is the directory in which systemd passes
/// files to the service. Only the service can read it: systemd may grant that with an ACL, and the mode of a file with an
/// ACL has the permissions of the ACL in the bits of the group.
fn is_private(path: &Path, mode: u32, credentials: Option<&Path>) -> bool {
    let is_credential = credentials.is_some() && path.parent() == credentials;
    mode & 0o077 == 0 || (is_credential && mode & 0o037 == 0)
}

/// Writes a server token to a file in a data directory, which replaces the file atomically. The file belongs to the
/// owner of the directory, because the server may run as another user than the command that writes the token.
fn write_token(path: &Path, token: &str) -> Result<(), ClusterKeysError> {
    let partial = path.with_extension("partial");
    let written = || {
        write_private_file(&partial, token.as_bytes())?;
        let dir = std::fs::metadata(path.parent().ok_or(io::ErrorKind::InvalidFilename)?)?;
        if std::fs::metadata(&partial)?.uid() != dir.uid() {
            std::os::unix::fs::chown(&partial, Some(dir.uid()), Some(dir.gid()))?;
        }
        std::fs::rename(&partial, path)?;
        sync_parent_dir(path)
    };
    written().map_err(file_error(path))
}

/// Reads a server token from a file, as [`read_token`]. Returns `None` if the file does not exist.
fn read_token_if_exists(path: &Path) -> Result<Option<String>, ClusterKeysError> {
    match read_token(path) {
        Err(ClusterKeysError::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        read => read.map(Some),
    }
}

fn exists(path: &Path) -> Result<bool, ClusterKeysError> {
    std::fs::exists(path).map_err(file_error(path))
}

/// Returns a function that converts an IO error of the file at `path` to a [`ClusterKeysError`].
fn file_error(path: &Path) -> impl FnOnce(io::Error) -> ClusterKeysError + '_ {
    |source| ClusterKeysError::File { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sealed_keys_are_opened_with_the_same_token_only() {
        let dir = tempfile::tempdir().unwrap();
        let files = generate_missing_keys(dir.path()).unwrap();
        assert_eq!(files.keys().map(|it| &**it).collect::<Vec<_>>(), {
            let mut names = CLUSTER_KEY_FILES;
            names.sort_unstable();
            names
        });
        let token = generate_token().unwrap();
        let sealed = encrypt_key_files(&files, &token).unwrap();
        assert!(!sealed.windows(11).any(|it| it == b"PRIVATE KEY"));
        assert_ne!(encrypt_key_files(&files, &token).unwrap(), sealed, "no two are alike");
        assert_eq!(decrypt_key_files(&sealed, &token).unwrap(), files);
        assert!(matches!(decrypt_key_files(&sealed, "another"), Err(ClusterKeysError::WrongToken)));
        for at in [0, FORMAT_PREFIX.len(), FORMAT_PREFIX.len() + SALT_BYTES, sealed.len() - 1] {
            let mut changed = sealed.to_vec();
            changed[at] ^= 1;
            assert!(decrypt_key_files(&changed, &token).is_err(), "byte {at}");
        }
        assert!(matches!(decrypt_key_files(&sealed[..40], &token), Err(ClusterKeysError::Damaged)));
    }

    #[test]
    fn the_keys_of_another_cluster_are_not_overwritten() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let files = generate_missing_keys(one.path()).unwrap();
        let others = generate_missing_keys(two.path()).unwrap();
        write_key_files(&files, one.path()).unwrap();
        let refused = write_key_files(&files, two.path()).unwrap_err();
        assert!(matches!(refused, ClusterKeysError::OtherCluster { .. }), "{refused}");
        assert_eq!(generate_missing_keys(two.path()).unwrap(), others);
    }

    #[test]
    fn a_token_is_long_and_private() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let token = generate_token().unwrap();
        write_private_file(&path, format!("{token}\n").as_bytes()).unwrap();
        assert_eq!(read_token(&path).unwrap(), token);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(read_token(&path), Err(ClusterKeysError::TokenNotPrivate { .. })));
        write_private_file(&path, b"short").unwrap();
        assert!(matches!(read_token(&path), Err(ClusterKeysError::ShortToken { .. })));
        let credentials = Some(Path::new("/run/credentials/muster-server.service"));
        let path = Path::new("/run/credentials/muster-server.service/server-token");
        assert!(is_private(path, 0o100_440, credentials));
        assert!(!is_private(path, 0o100_444, credentials) && !is_private(path, 0o100_440, None));
        assert!(!is_private(Path::new("/etc/muster/server-token"), 0o100_440, credentials));
    }

    #[test]
    fn the_keys_of_a_data_directory_are_complete_or_refused() {
        let dir = tempfile::tempdir().unwrap();
        let files = generate_missing_keys(dir.path()).unwrap();
        let own = EncryptionKeys::read(&dir.path().join(ENCRYPTION_KEY_FILE)).unwrap();
        let keys = ClusterKeys::from_directory(None, dir.path(), Some(&own)).unwrap();
        assert_eq!(keys.files, files);
        // The token that was generated decrypts them.
        let opened = ClusterKeys::open(keys.sealed.clone(), None, dir.path()).unwrap();
        assert_eq!(opened.files, files);
        assert!(opened.matches_data_dir(dir.path()).unwrap());
        // A cluster without encryption gets a key, and the data directory does not have it yet.
        std::fs::remove_file(dir.path().join(ENCRYPTION_KEY_FILE)).unwrap();
        let keys = ClusterKeys::from_directory(None, dir.path(), None).unwrap();
        assert_ne!(keys.files, files);
        assert!(!dir.path().join(ENCRYPTION_KEY_FILE).exists() && !dir.path().join(STAGING_DIR).exists());
        keys.install(dir.path()).unwrap();
        assert_eq!(generate_missing_keys(dir.path()).unwrap(), keys.files);

        let empty = tempfile::tempdir().unwrap();
        let no_token = ClusterKeys::open(keys.sealed.clone(), None, empty.path());
        assert!(matches!(no_token, Err(ClusterKeysError::TokenMissing { .. })));
        assert!(!keys.matches_data_dir(empty.path()).unwrap());
        std::fs::remove_file(dir.path().join("nodes-ca.key")).unwrap();
        let refused = ClusterKeys::from_directory(None, dir.path(), None).err().unwrap().to_string();
        assert!(refused.contains("nodes-ca.key does not exist"), "{refused}");
    }

    /// Creates a data directory of a server of a cluster, with its keys and a server token. Returns the encrypted keys.
    fn server_of_a_cluster() -> (tempfile::TempDir, Bytes) {
        let dir = tempfile::tempdir().unwrap();
        generate_missing_keys(dir.path()).unwrap();
        let own = EncryptionKeys::read(&dir.path().join(ENCRYPTION_KEY_FILE)).unwrap();
        let sealed = ClusterKeys::from_directory(None, dir.path(), Some(&own)).unwrap().sealed;
        (dir, sealed)
    }

    fn server_token(dir: &Path) -> String {
        read_token(&dir.join(SERVER_TOKEN_FILE)).unwrap()
    }

    #[test]
    fn the_server_token_is_replaced() {
        let (dir, sealed) = server_of_a_cluster();
        let dir = dir.path();
        let old = server_token(dir);
        let rotation = TokenRotation::begin(&sealed, None, dir).unwrap();
        let replaced = rotation.sealed.clone().unwrap();
        let new = rotation.complete(dir).unwrap();
        assert_ne!(new, old);
        assert_eq!(server_token(dir), new);
        assert!(!dir.join(NEXT_SERVER_TOKEN_FILE).exists());
        assert!(decrypt_key_files(&replaced, &new).is_ok());
        assert!(matches!(decrypt_key_files(&replaced, &old), Err(ClusterKeysError::WrongToken)));
        // The next rotation has another token.
        let again = TokenRotation::begin(&replaced, None, dir).unwrap();
        assert!(again.sealed.is_some() && again.next != new);
    }

    /// The steps are: write the next token, write etcd, write the token, remove the next token.
    #[test]
    fn after_an_interrupted_rotation_the_data_directory_has_the_token_of_the_cluster() {
        let (dir, sealed) = server_of_a_cluster();
        let dir = dir.path();
        let (copy, next_file) = (dir.join(SERVER_TOKEN_FILE), dir.join(NEXT_SERVER_TOKEN_FILE));
        let old = server_token(dir);
        let TokenRotation { sealed: replaced, next } = TokenRotation::begin(&sealed, None, dir).unwrap();
        let replaced = replaced.unwrap();
        let opens = |sealed: &Bytes| DecryptedClusterKeys::open(sealed, None, dir).is_ok();
        // Killed before or after the transaction, which may also be applied later.
        assert!(opens(&sealed) && opens(&replaced));
        assert_eq!(server_token(dir), old);
        // The command is run again, and etcd was not changed: the token stays the same.
        let again = TokenRotation::begin(&sealed, None, dir).unwrap();
        assert_eq!(again.next, next);
        assert!(decrypt_key_files(&again.sealed.unwrap(), &next).is_ok());
        // The command is run again, and etcd was changed.
        let again = TokenRotation::begin(&replaced, None, dir).unwrap();
        assert!(again.sealed.is_none());
        assert_eq!(again.complete(dir).unwrap(), next);
        assert_eq!(server_token(dir), next);
        assert!(!next_file.exists());
        // Killed before the next token is removed.
        write_private_file(&next_file, next.as_bytes()).unwrap();
        let again = TokenRotation::begin(&replaced, None, dir).unwrap();
        assert!(again.sealed.is_none());
        assert_eq!(again.complete(dir).unwrap(), next);
        assert!(!next_file.exists());
        // A server that starts after the transaction keeps the token with which it has decrypted the keys.
        write_private_file(&copy, old.as_bytes()).unwrap();
        write_private_file(&next_file, next.as_bytes()).unwrap();
        let tokens = ServerTokens::find(None, dir).unwrap();
        tokens.keep(&tokens.decrypt(&replaced).unwrap().token, dir).unwrap();
        assert_eq!(server_token(dir), next);
        assert!(!next_file.exists());
        // A server that starts before the transaction leaves the next token to the command.
        write_private_file(&next_file, old.as_bytes()).unwrap();
        let tokens = ServerTokens::find(None, dir).unwrap();
        tokens.keep(&tokens.decrypt(&replaced).unwrap().token, dir).unwrap();
        assert!(next_file.exists());
    }

    /// The server runs as another user than the command.
    #[test]
    #[ignore = "needs root"]
    fn the_new_server_token_belongs_to_the_owner_of_the_data_directory() {
        const OWNER: u32 = 4711;
        let (dir, sealed) = server_of_a_cluster();
        let dir = dir.path();
        std::os::unix::fs::chown(dir, Some(OWNER), Some(OWNER)).unwrap();
        let owner_and_mode = |name: &str| {
            let metadata = std::fs::metadata(dir.join(name)).unwrap();
            (metadata.uid(), metadata.mode() & 0o777)
        };
        let rotation = TokenRotation::begin(&sealed, None, dir).unwrap();
        assert_eq!(owner_and_mode(NEXT_SERVER_TOKEN_FILE), (OWNER, 0o600));
        rotation.complete(dir).unwrap();
        assert_eq!(owner_and_mode(SERVER_TOKEN_FILE), (OWNER, 0o600));
    }

    #[test]
    fn a_server_with_an_old_token_file_uses_the_token_in_its_data_directory() {
        let (dir, sealed) = server_of_a_cluster();
        let dir = dir.path();
        let file = dir.join("token-file");
        write_private_file(&file, server_token(dir).as_bytes()).unwrap();
        let rotation = TokenRotation::begin(&sealed, None, dir).unwrap();
        let replaced = rotation.sealed.clone().unwrap();
        let new = rotation.complete(dir).unwrap();
        let tokens = ServerTokens::find(Some(&file), dir).unwrap();
        assert_eq!(tokens.decrypt(&replaced).unwrap().token, new);
        // A token that a rotation writes at the same time is not replaced by the one that was read before.
        write_private_file(&dir.join(SERVER_TOKEN_FILE), b"a later token").unwrap();
        tokens.keep(&new, dir).unwrap();
        assert_eq!(std::fs::read(dir.join(SERVER_TOKEN_FILE)).unwrap(), b"a later token");
    }

    #[test]
    fn the_server_token_is_not_replaced_in_another_data_directory() {
        let (dir, sealed) = server_of_a_cluster();
        let (other, _) = server_of_a_cluster();
        let empty = tempfile::tempdir().unwrap();
        let token = dir.path().join(SERVER_TOKEN_FILE);
        let begin = |dir: &Path| TokenRotation::begin(&sealed, Some(&token), dir).err().unwrap();
        assert!(matches!(begin(other.path()), ClusterKeysError::OtherCluster { .. }));
        assert!(matches!(begin(empty.path()), ClusterKeysError::FileMissing { .. }));
        assert!(!empty.path().join(NEXT_SERVER_TOKEN_FILE).exists());
    }
}
