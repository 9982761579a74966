//! The keys that all servers of a cluster share: the certificate authorities, the keys that sign service account
//! tokens, and the encryption keys for Secrets. The first server generates them. They are stored in etcd, encrypted
//! with the server token, and every server has a copy in its data directory.
//!
//! Upstream: kubeadm stores the same files in the Secret `kubeadm-certs`, encrypted with a certificate key.

use std::collections::BTreeMap;
use std::io;
use std::num::NonZeroU32;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use bytes::Bytes;
use muster_etcd::{EtcdApi as _, EtcdClient, Keyspace};
use muster_files::write_private_file;
use muster_store::{EncryptionKeys, KeyFileError};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::pbkdf2;
use ring::rand::{SecureRandom as _, SystemRandom};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::pki::{Pki, PkiError};
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
         {SERVER_TOKEN_FILE}"
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
    let token_copy = data_dir.join(SERVER_TOKEN_FILE);
    let token = find_token(options.token_file.as_deref(), data_dir)?;
    let stored = muster_etcd::read_cluster_keys(&client, &keys).await.map_err(EtcdStoreError::from)?;
    let (token, files) = match (token, stored) {
        (None, Some(_)) => return Err(ClusterKeysError::NoToken),
        (Some(token), Some(stored)) => {
            let files = decrypt_key_files(&stored, &token)?;
            (token, files)
        }
        (token, None) => {
            let token = token.map_or_else(generate_token, Ok)?;
            let files = keys_for_new_cluster(&client, &keys, data_dir, new_cluster).await?;
            // The copy is written first: after a crash the keys in etcd can still be decrypted.
            write_private_file(&token_copy, token.as_bytes()).map_err(file_error(&token_copy))?;
            let sealed = encrypt_key_files(&files, &token)?;
            let created = muster_etcd::create_cluster_keys(&client, &keys, sealed.clone()).await;
            let stored = created.map_err(EtcdStoreError::from)?;
            // Another server may have been first.
            let files = if stored == sealed { files } else { decrypt_key_files(&stored, &token)? };
            (token, files)
        }
    };
    write_key_files(&files, data_dir)?;
    write_private_file(&token_copy, token.as_bytes()).map_err(file_error(&token_copy))?;
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
    /// Decrypts the keys with the server token in the file `token_file` or, if that is `None`, in the data directory.
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
        let token = find_token(token_file, data_dir)?.map_or_else(generate_token, Ok)?;
        // The copy is written first: after a crash the keys in etcd can still be decrypted.
        let token_copy = data_dir.join(SERVER_TOKEN_FILE);
        write_private_file(&token_copy, token.as_bytes()).map_err(file_error(&token_copy))?;
        let sealed = encrypt_key_files(&files, &token)?;
        Self::from_files(files, sealed, data_dir)
    }

    /// Creates the keys from the decrypted files and their encrypted form. Fails if the encryption keys for Secrets are
    /// missing or invalid. The error names their file in `data_dir`.
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
    /// Decrypts the keys with the server token in the file `token_file` or, if that is `None`, in the data directory.
    pub(crate) fn open(
        sealed: &[u8],
        token_file: Option<&Path>,
        data_dir: &Path,
    ) -> Result<Self, ClusterKeysError> {
        let token = find_token(token_file, data_dir)?
            .ok_or_else(|| ClusterKeysError::TokenMissing { path: data_dir.join(SERVER_TOKEN_FILE) })?;
        Ok(Self { files: decrypt_key_files(sealed, &token)?, token })
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

/// Interval at which a server looks for changed keys in etcd.
pub const CLUSTER_KEYS_CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Checks etcd at intervals for changed keys of the cluster, so that a rotation of the signing keys needs no restart of
/// a server. Also raises the feature level of the cluster.
#[derive(Debug)]
pub(crate) struct ClusterKeysFollower {
    client: EtcdClient,
    keys: Keyspace,
    data_dir: PathBuf,
    /// The encrypted keys that were last read.
    sealed: Bytes,
    /// The feature level to which this server has raised the cluster. 0 if this server has not raised it yet.
    feature_level: u32,
}

impl ClusterKeysFollower {
    /// Creates the follower for a server whose data directory `data_dir` has the keys of the cluster.
    pub(crate) fn new(options: &EtcdOptions, data_dir: &Path) -> Result<Self, ClusterKeysError> {
        let (client, keys) = (options.client()?, options.keyspace());
        Ok(Self { client, keys, data_dir: data_dir.to_owned(), sealed: Bytes::new(), feature_level: 0 })
    }

    /// Reads the keys every [`CLUSTER_KEYS_CHECK_INTERVAL`], and passes changed signing keys to `on_changed`, until
    /// `stop` is cancelled. Raises the feature level of the cluster to `feature_level`, the lowest level of all
    /// servers, unless that is `None` (unknown).
    pub(crate) async fn run(
        mut self,
        on_changed: impl Fn(Arc<SigningKeys>),
        feature_level: watch::Receiver<Option<u32>>,
        stop: CancellationToken,
    ) {
        while stop.run_until_cancelled(tokio::time::sleep(CLUSTER_KEYS_CHECK_INTERVAL)).await.is_some() {
            match self.sync_signing_keys().await {
                Ok(None) => {}
                Ok(Some(changed)) => on_changed(changed),
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
    /// directory and returns them. Returns `None` if they are the same, or if etcd has no keys.
    async fn sync_signing_keys(&mut self) -> Result<Option<Arc<SigningKeys>>, ClusterKeysError> {
        let stored = muster_etcd::read_cluster_keys(&self.client, &self.keys).await;
        let stored = match stored.map_err(EtcdStoreError::from)? {
            Some(stored) if stored != self.sealed => stored,
            // If the keys are missing in etcd, other parts of the server report that.
            _ => return Ok(None),
        };
        let (sealed, dir) = (stored.clone(), self.data_dir.clone());
        // The derivation of the key takes long.
        let opened = tokio::task::spawn_blocking(move || DecryptedClusterKeys::open(&sealed, None, &dir));
        let opened = opened.await.map_err(|_| ClusterKeysError::Damaged)??;
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

/// Returns the server token in the file `named`. Without `named`, returns the one in the data directory, if it exists.
fn find_token(named: Option<&Path>, data_dir: &Path) -> Result<Option<String>, ClusterKeysError> {
    let copy = data_dir.join(SERVER_TOKEN_FILE);
    match named {
        Some(path) => read_token(path).map(Some),
        None if exists(&copy)? => read_token(&copy).map(Some),
        None => Ok(None),
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
    if mode & 0o077 != 0 {
        return Err(ClusterKeysError::TokenNotPrivate { path: path.to_owned() });
    }
    let token = std::fs::read_to_string(path).map_err(file_error(path))?.trim().to_owned();
    if token.chars().count() < TOKEN_CHARS_MIN {
        return Err(ClusterKeysError::ShortToken { path: path.to_owned() });
    }
    Ok(token)
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
}
