//! Encryption at rest: Secrets are encrypted with AES-256-GCM before they are written, and decrypted when they are
//! read.
//!
//! Each value has its own key, which is derived from the active key of the key file and a random salt of 96 bits. Its
//! nonce is another 96 random bits. It is therefore practically impossible that two values share both key and nonce.
//! The store key and the revision are authenticated data, so that a value cannot be moved to another store key or
//! revision.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::{Engine as _, prelude::BASE64_STANDARD as BASE64};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::hmac;
use ring::rand::{SecureRandom as _, SystemRandom};

use crate::Revision;

/// Prefix of the store keys whose values are encrypted: the keys of Secrets.
const SECRETS_STORE_KEY_PREFIX: &str = "secrets/";

/// Prefix of an encrypted value. A value that is not encrypted is JSON and begins with a brace.
pub(crate) const ENCRYPTED_VALUE_PREFIX: &[u8] = b"\0muster:aes-256-gcm:1:";

/// Length of an AES-256 key in bytes.
const KEY_BYTES: usize = 32;
/// Length in bytes of the random salt from which the key of a value is derived.
const SALT_BYTES: usize = 12;
/// Length of the AES-GCM nonce of a value in bytes.
const NONCE_BYTES: usize = 12;

/// Maximum number of keys in a key file. Each rotation adds a key, and old keys are kept as long as a backup needs
/// them.
const KEYS_MAX: usize = 64;

/// Comment at the beginning of a key file.
const KEY_FILE_HEADER: &str = "# Keys for Secrets at rest: the first one writes, all of them read. Keep a copy: without it Secrets are lost.\n";

/// The encryption keys of a key file, in file order. The first key is the active key, which encrypts. Every key can
/// decrypt the values that it encrypted. Clones share the keys.
#[derive(Clone)]
pub struct EncryptionKeys(Arc<Vec<EncryptionKey>>);

/// One encryption key of a key file.
struct EncryptionKey {
    /// The ID of the key. Every value that is encrypted with the key contains this ID.
    id: String,
    /// The secret from which the AES-256 key of each value is derived.
    secret: [u8; KEY_BYTES],
}

/// Prints the IDs of the keys, never the keys themselves.
impl fmt::Debug for EncryptionKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|it| &it.id)).finish()
    }
}

/// Why a key file could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    #[error("read the encryption keys in {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("write the encryption keys to {}", path.display())]
    Write { path: PathBuf, source: io::Error },
    /// A line of the file is not an ID and a key, or repeats an ID.
    #[error("line {line} of {} is not a key: each line is an ID and 32 bytes in base64", path.display())]
    Line { path: PathBuf, line: usize },
    /// No key can be added, because the file has the maximum number of keys.
    #[error(
        "{} has {KEYS_MAX} keys and cannot get another: run `muster encrypt`, then remove the keys after the first",
        path.display()
    )]
    Full { path: PathBuf },
    /// The file contains no keys, or too many.
    #[error("{} has no keys, or more than {KEYS_MAX}", path.display())]
    Count { path: PathBuf },
    /// The mode of the file gives access to users other than its owner.
    #[error("other users may read {}: set its mode to 0600, and rotate the keys if someone may have read it", path.display())]
    Loose { path: PathBuf },
    #[error("the system has no random numbers")]
    Random,
}

impl EncryptionKeys {
    /// Reads a key file. Fails if the mode of the file gives any access to users other than its owner.
    pub fn read(path: &Path) -> Result<Self, KeyFileError> {
        use std::os::unix::fs::MetadataExt as _;
        let failed = |source| KeyFileError::Read { path: path.to_owned(), source };
        if std::fs::metadata(path).map_err(failed)?.mode() & 0o077 != 0 {
            return Err(KeyFileError::Loose { path: path.to_owned() });
        }
        Self::parse(&std::fs::read_to_string(path).map_err(failed)?, path)
    }

    /// Parses the content of a key file. Errors name `path`.
    pub fn parse(text: &str, path: &Path) -> Result<Self, KeyFileError> {
        let mut keys: Vec<EncryptionKey> = Vec::new();
        for (at, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = || KeyFileError::Line { path: path.to_owned(), line: at + 1 };
            let (id, secret) = line.split_once(' ').ok_or_else(wrong)?;
            let is_id = |it: &str| {
                (1..=64).contains(&it.len()) && it.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'-')
            };
            let secret: [u8; KEY_BYTES] =
                BASE64.decode(secret.trim()).ok().and_then(|it| it.try_into().ok()).ok_or_else(wrong)?;
            if !is_id(id) || keys.iter().any(|it| it.id == id) {
                return Err(wrong());
            }
            keys.push(EncryptionKey { id: id.to_owned(), secret });
        }
        if keys.is_empty() || KEYS_MAX < keys.len() {
            return Err(KeyFileError::Count { path: path.to_owned() });
        }
        Ok(Self(Arc::new(keys)))
    }

    /// Generates a key and writes a key file with the new key first and the keys in `kept` after it. The previous
    /// content of the file is not read. Returns the keys of the new file.
    pub fn write_file_with_new_key(kept: Option<&Self>, path: &Path) -> Result<Self, KeyFileError> {
        if kept.is_some_and(|it| KEYS_MAX <= it.0.len()) {
            return Err(KeyFileError::Full { path: path.to_owned() });
        }
        let mut random = [0; KEY_BYTES + 4];
        SystemRandom::new().fill(&mut random).map_err(|_| KeyFileError::Random)?;
        let (secret, id) = random.split_at(KEY_BYTES);
        let id: String = id.iter().map(|it| format!("{it:02x}")).collect();
        let mut text = format!("{KEY_FILE_HEADER}{id} {}\n", BASE64.encode(secret));
        text.push_str(&kept.map(Self::to_lines).unwrap_or_default());
        let written = muster_files::write_private_file(path, text.as_bytes());
        written.map_err(|source| KeyFileError::Write { path: path.to_owned(), source })?;
        Self::read(path)
    }

    /// Returns the keys as the content of a key file.
    pub fn to_file_text(&self) -> String {
        KEY_FILE_HEADER.to_owned() + &self.to_lines()
    }

    /// Returns one line of a key file for each key.
    fn to_lines(&self) -> String {
        self.0.iter().map(|it| format!("{} {}\n", it.id, BASE64.encode(it.secret))).collect()
    }

    /// Returns the ID of the active key, which encrypts new values.
    pub fn active_key_id(&self) -> &str {
        &self.0[0].id
    }

    /// Whether the key with this ID is in the key file.
    pub(crate) fn has_key(&self, id: &str) -> bool {
        self.0.iter().any(|it| it.id == id)
    }

    /// Encrypts the value of the object with the store key `key` for the commit at `revision`. Returns `None` if the
    /// object is not a Secret.
    pub fn encrypt(&self, key: &str, revision: Revision, value: &[u8]) -> Result<Option<Vec<u8>>, String> {
        if !is_key_of_secret(key) {
            return Ok(None);
        }
        let writer = &self.0[0];
        let mut random = [0; SALT_BYTES + NONCE_BYTES];
        SystemRandom::new().fill(&mut random).map_err(|_| "the system has no random numbers".to_owned())?;
        let mut encrypted = Vec::with_capacity(
            ENCRYPTED_VALUE_PREFIX.len() + writer.id.len() + 1 + random.len() + value.len() + 16,
        );
        encrypted.extend_from_slice(ENCRYPTED_VALUE_PREFIX);
        encrypted.extend_from_slice(writer.id.as_bytes());
        encrypted.push(b':');
        encrypted.extend_from_slice(&random);
        let mut content = value.to_vec();
        let (salt, nonce) = random.split_at(SALT_BYTES);
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| "a nonce has 12 bytes".to_owned())?;
        let tag = writer.derive_value_key(salt).seal_in_place_separate_tag(
            nonce,
            authenticated_data(key, revision),
            &mut content,
        );
        let tag = tag.map_err(|_| "a value could not be encrypted".to_owned())?;
        encrypted.extend_from_slice(&content);
        encrypted.extend_from_slice(tag.as_ref());
        Ok(Some(encrypted))
    }

    /// Decrypts the value that was encrypted for the store key `key` at `revision`. Returns `None` if the value is not
    /// encrypted.
    pub fn decrypt(
        &self,
        key: &str,
        revision: Revision,
        value: &[u8],
    ) -> Result<Option<Vec<u8>>, DecryptError> {
        let Some((id, rest)) = split_encrypted_value(value) else { return Ok(None) };
        let reader =
            self.0.iter().find(|it| it.id == id).ok_or_else(|| DecryptError::NoKey(id.to_owned()))?;
        let (random, content) =
            rest.split_at_checked(SALT_BYTES + NONCE_BYTES).ok_or(DecryptError::Changed)?;
        let (salt, nonce) = random.split_at(SALT_BYTES);
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| DecryptError::Changed)?;
        let mut content = content.to_vec();
        let opened = reader.derive_value_key(salt).open_in_place(
            nonce,
            authenticated_data(key, revision),
            &mut content,
        );
        let len = opened.map_err(|_| DecryptError::Changed)?.len();
        content.truncate(len);
        Ok(Some(content))
    }
}

/// Why a value cannot be decrypted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecryptError {
    /// The key with this ID is not in the key file.
    #[error("it is encrypted with the key {0}, which the key file does not have")]
    NoKey(String),
    /// The value was changed, or was not written for this store key at this revision.
    #[error("its encryption is damaged, or it belongs to another object")]
    Changed,
}

/// Whether a store key is the key of a Secret.
pub(crate) fn is_key_of_secret(key: &str) -> bool {
    key.starts_with(SECRETS_STORE_KEY_PREFIX)
}

/// Whether the value is encrypted.
#[cfg(test)]
fn is_encrypted(value: &[u8]) -> bool {
    split_encrypted_value(value).is_some()
}

/// Splits an encrypted value into the ID of its encryption key and the remaining bytes. Returns `None` if the value is
/// not encrypted.
fn split_encrypted_value(value: &[u8]) -> Option<(&str, &[u8])> {
    let rest = value.strip_prefix(ENCRYPTED_VALUE_PREFIX)?;
    let end = rest.iter().position(|it| *it == b':')?;
    Some((str::from_utf8(&rest[..end]).ok()?, &rest[end + 1..]))
}

/// Returns the data that AES-GCM authenticates together with a value: its revision and store key.
fn authenticated_data(key: &str, revision: Revision) -> Aad<Vec<u8>> {
    Aad::from([&revision.to_le_bytes()[..], key.as_bytes()].concat())
}

impl EncryptionKey {
    /// Derives the encryption key of one value from this key and the salt of the value. Upstream: KMS v2 derives the
    /// key of each value from a seed in a similar way.
    fn derive_value_key(&self, salt: &[u8]) -> LessSafeKey {
        let derived = hmac::sign(
            &hmac::Key::new(hmac::HMAC_SHA256, &self.secret),
            &[b"muster secret value 1 ", salt].concat(),
        );
        let key =
            UnboundKey::new(&AES_256_GCM, derived.as_ref()).expect("a SHA-256 digest is as long as the key");
        LessSafeKey::new(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_value_opens_under_its_own_name_and_revision_alone() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("keys");
        let keys = EncryptionKeys::write_file_with_new_key(None, &file).unwrap();
        let (key, value) = ("secrets/default/a", b"{\"data\":{}}");
        let encrypted = keys.encrypt(key, 7, value).unwrap().unwrap();
        assert!(is_encrypted(&encrypted) && !is_encrypted(value));
        assert!(!encrypted.windows(4).any(|it| it == b"data"));
        assert_ne!(keys.encrypt(key, 7, value).unwrap().unwrap(), encrypted, "no two are alike");
        assert_eq!(keys.decrypt(key, 7, &encrypted), Ok(Some(value.to_vec())));
        assert_eq!(keys.decrypt(key, 7, value), Ok(None), "what is not encrypted is read as it is");
        assert_eq!(keys.decrypt("secrets/default/b", 7, &encrypted), Err(DecryptError::Changed));
        assert_eq!(keys.decrypt(key, 8, &encrypted), Err(DecryptError::Changed));
        for at in 0..encrypted.len() {
            let mut changed = encrypted.clone();
            changed[at] ^= 1;
            assert_ne!(
                keys.decrypt(key, 7, &changed).ok().flatten().as_deref(),
                Some(&value[..]),
                "byte {at}"
            );
        }
        assert_eq!(keys.encrypt("configmaps/default/a", 7, value), Ok(None), "only Secrets are encrypted");
    }

    #[test]
    fn a_full_key_file_stays_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("keys");
        let mut keys = EncryptionKeys::write_file_with_new_key(None, &file).unwrap();
        for _ in 1..KEYS_MAX {
            keys = EncryptionKeys::write_file_with_new_key(Some(&keys), &file).unwrap();
        }
        let full = EncryptionKeys::write_file_with_new_key(Some(&keys), &file);
        assert!(matches!(full, Err(KeyFileError::Full { .. })), "{full:?}");
        assert_eq!(EncryptionKeys::read(&file).unwrap().active_key_id(), keys.active_key_id());
    }

    #[test]
    fn a_key_file_is_rotated_and_read_by_its_owner_alone() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("keys");
        let old = EncryptionKeys::write_file_with_new_key(None, &file).unwrap();
        let encrypted = old.encrypt("secrets/a/b", 1, b"x").unwrap().unwrap();
        let new = EncryptionKeys::write_file_with_new_key(Some(&old), &file).unwrap();
        assert_ne!(new.active_key_id(), old.active_key_id());
        assert_eq!(new.decrypt("secrets/a/b", 1, &encrypted), Ok(Some(b"x".to_vec())));
        let theirs = new.encrypt("secrets/a/b", 1, b"x").unwrap().unwrap();
        assert_eq!(
            old.decrypt("secrets/a/b", 1, &theirs),
            Err(DecryptError::NoKey(new.active_key_id().to_owned()))
        );
        assert!(!format!("{new:?}").contains(&BASE64.encode(new.0[0].secret)));

        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(EncryptionKeys::read(&file), Err(KeyFileError::Loose { .. })));
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        for wrong in ["", "# none\n", "a", "a YQ==\n"] {
            std::fs::write(&file, wrong).unwrap();
            assert!(EncryptionKeys::read(&file).is_err(), "{wrong:?}");
        }
    }
}
