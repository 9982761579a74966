//! The keys that sign service account tokens, and their rotation.
//!
//! The file `sa.key` has one or more private keys in PEM. The first one signs new tokens, and tokens that any of the
//! keys has signed are accepted. A rotation has two steps, because servers that share etcd do not read the file at the
//! same time. First a staged key is added, which all servers accept but which does not sign. It is activated when all
//! servers accept it.
//!
//! Upstream: `--service-account-signing-key-file` and several `--service-account-key-file`.

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD as BASE64URL};
use rcgen::PublicKeyData as _;
use ring::digest::{SHA256, digest};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};

/// File name of the keys in the data directory.
pub(crate) const SIGNING_KEY_FILE: &str = "sa.key";

/// First line of a private key in PEM.
const PEM_BEGIN: &str = "-----BEGIN PRIVATE KEY-----";
/// Last line of a private key in PEM.
const PEM_END: &str = "-----END PRIVATE KEY-----";
/// The line before a staged key in the key file. PEM parsers skip text between keys.
const STAGED_LINE: &str = "# staged: this key is accepted, and does not sign yet";

/// Maximum number of keys in a key file, so that operators remove old keys. The number does not affect the cost of
/// verification, which tries only the key that a token names.
const KEYS_MAX: usize = 16;

/// The keys with which a server signs and verifies tokens.
#[derive(Debug)]
pub(crate) struct SigningKeys {
    /// All keys of the key file, at least one. The first key signs new tokens.
    keys: Vec<SigningKey>,
}

/// A key pair on the curve P-256.
pub(crate) struct SigningKey {
    pub(crate) pair: EcdsaKeyPair,
    /// ID of the key pair, which is `kid` in the header of each token: the SHA-256 of the public key.
    pub(crate) id: String,
}

/// Whether a key of the key file signs new tokens, only verifies tokens, or is staged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SigningKeyState {
    /// The key signs new tokens.
    Signing,
    /// Tokens that the key has signed are accepted. The key no longer signs new tokens.
    Accepted,
    /// The key signs no tokens until it is activated. Servers already accept tokens signed with it.
    Staged,
}

/// A signing key as `muster signing-key list` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SigningKeyInfo {
    pub id: String,
    pub state: SigningKeyState,
}

/// Why a key file cannot be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum SigningKeyError {
    #[error("the key file has no private key in PEM")]
    NoKey,
    #[error("a signing key cannot be used")]
    Unusable(#[from] rcgen::Error),
    #[error("a signing key is not on the curve P-256")]
    Curve(#[from] ring::error::KeyRejected),
    #[error("no signing key has the ID {0}: `muster signing-key list` prints the IDs")]
    Unknown(String),
    #[error("{0} signs new tokens: run `muster signing-key rotate` first")]
    InUse(String),
    #[error("there are {KEYS_MAX} signing keys: remove old ones with `muster signing-key remove`")]
    TooMany,
}

impl SigningKeys {
    /// Parses the content of the key file. Fails if a key cannot be used.
    pub(crate) fn parse(text: &str) -> Result<Self, SigningKeyError> {
        let entries = KeyFile::parse(text)?.entries;
        let keys = entries.iter().map(|it| SigningKey::from_pem(&it.pem)).collect::<Result<Vec<_>, _>>()?;
        Ok(Self { keys })
    }

    /// Returns a set of keys with one new key.
    #[cfg(test)]
    pub(crate) fn generate() -> Result<Self, SigningKeyError> {
        Self::parse(&new_key_file()?)
    }

    /// Returns the key that signs new tokens.
    pub(crate) fn signing(&self) -> &SigningKey {
        // `parse` rejects an empty file.
        &self.keys[0]
    }

    /// Returns the key with this ID, or `None` if there is none.
    pub(crate) fn by_id(&self, id: &str) -> Option<&SigningKey> {
        self.keys.iter().find(|it| it.id == id)
    }

    /// Returns the digest of these keys, see [`digest_of_key_ids`].
    pub(crate) fn digest(&self) -> String {
        digest_of_key_ids(self.keys.iter().map(|it| &*it.id))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &SigningKey> {
        self.keys.iter()
    }
}

impl SigningKey {
    fn from_pem(pem: &str) -> Result<Self, SigningKeyError> {
        let key = rcgen::KeyPair::from_pem(pem)?;
        let id = BASE64URL.encode(digest(&SHA256, &key.subject_public_key_info()));
        let random = SystemRandom::new();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, key.serialized_der(), &random)?;
        Ok(Self { pair, id })
    }

    /// Returns the public key as an uncompressed point of the curve.
    pub(crate) fn public_key(&self) -> &[u8] {
        self.pair.public_key().as_ref()
    }
}

impl std::fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SigningKey").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Returns a digest of the IDs of signing keys. The order matters, because the first key signs new tokens. So two servers
/// with the same digest sign with the same key, and accept the same tokens.
fn digest_of_key_ids<'a>(ids: impl Iterator<Item = &'a str>) -> String {
    BASE64URL.encode(digest(&SHA256, ids.collect::<Vec<_>>().join("\n").as_bytes()))
}

/// Returns the content of a key file with one new key.
pub(crate) fn new_key_file() -> Result<String, SigningKeyError> {
    Ok(rcgen::KeyPair::generate()?.serialize_pem())
}

/// The parsed content of a key file, for commands that change it.
pub(crate) struct KeyFile {
    entries: Vec<KeyFileEntry>,
}

/// One key of a key file.
struct KeyFileEntry {
    id: String,
    pem: String,
    is_staged: bool,
}

impl KeyFile {
    /// Parses the content of a key file. Fails if the file has no key, or if a key cannot be used.
    pub(crate) fn parse(text: &str) -> Result<Self, SigningKeyError> {
        let (mut entries, mut rest) = (Vec::new(), text);
        while let Some((before, from_key)) = rest.find(PEM_BEGIN).map(|at| rest.split_at(at)) {
            let end = from_key.find(PEM_END).ok_or(SigningKeyError::NoKey)? + PEM_END.len();
            let (pem, after) = from_key.split_at(end);
            let pem = format!("{}\n", pem.trim_end());
            let id = SigningKey::from_pem(&pem)?.id;
            entries.push(KeyFileEntry { id, pem, is_staged: before.contains(STAGED_LINE) });
            rest = after;
        }
        if entries.is_empty() {
            return Err(SigningKeyError::NoKey);
        }
        Ok(Self { entries })
    }

    /// Returns the content of the key file as text.
    pub(crate) fn to_text(&self) -> String {
        let staged =
            |it: &KeyFileEntry| if it.is_staged { format!("{STAGED_LINE}\n") } else { String::new() };
        self.entries.iter().map(|it| staged(it) + &it.pem).collect()
    }

    /// Adds a staged key, which is accepted and does not sign yet. Adds none if there already is a staged key. Returns
    /// the ID of the staged key.
    pub(crate) fn stage(&mut self) -> Result<String, SigningKeyError> {
        if let Some(staged) = self.entries.iter().find(|it| it.is_staged) {
            return Ok(staged.id.clone());
        }
        if KEYS_MAX <= self.entries.len() {
            return Err(SigningKeyError::TooMany);
        }
        let mut added = Self::parse(&new_key_file()?)?.entries.remove(0);
        added.is_staged = true;
        let id = added.id.clone();
        self.entries.push(added);
        Ok(id)
    }

    /// Makes the key with this ID, normally the staged one, sign new tokens. Fails if the file has no such key.
    pub(crate) fn activate(&mut self, id: &str) -> Result<(), SigningKeyError> {
        let at = self.position(id)?;
        let mut activated = self.entries.remove(at);
        activated.is_staged = false;
        self.entries.insert(0, activated);
        Ok(())
    }

    /// Removes the key with this ID. Fails if the key signs new tokens.
    pub(crate) fn remove(&mut self, id: &str) -> Result<(), SigningKeyError> {
        match self.position(id)? {
            0 => Err(SigningKeyError::InUse(id.to_owned())),
            at => {
                self.entries.remove(at);
                Ok(())
            }
        }
    }

    /// Returns the index of the key with this ID in `entries`. Fails if there is no such key.
    fn position(&self, id: &str) -> Result<usize, SigningKeyError> {
        self.entries.iter().position(|it| it.id == id).ok_or_else(|| SigningKeyError::Unknown(id.to_owned()))
    }

    /// Returns the digest of the keys, which is that of the [`SigningKeys`] of a server with this file.
    pub(crate) fn digest(&self) -> String {
        digest_of_key_ids(self.entries.iter().map(|it| &*it.id))
    }

    /// Returns the ID and state of each key, in the order of the file.
    pub(crate) fn list(&self) -> Vec<SigningKeyInfo> {
        let state = |at: usize, it: &KeyFileEntry| match at {
            _ if it.is_staged => SigningKeyState::Staged,
            0 => SigningKeyState::Signing,
            _ => SigningKeyState::Accepted,
        };
        let entries = self.entries.iter().enumerate();
        entries.map(|(at, it)| SigningKeyInfo { id: it.id.clone(), state: state(at, it) }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_keys_is_limited() {
        let mut file = KeyFile::parse(&new_key_file().unwrap()).unwrap();
        for _ in 1..KEYS_MAX {
            let id = file.stage().unwrap();
            file.activate(&id).unwrap();
        }
        assert!(matches!(file.stage(), Err(SigningKeyError::TooMany)));
    }

    #[test]
    fn the_digest_changes_with_every_step_of_a_rotation() {
        let mut file = KeyFile::parse(&new_key_file().unwrap()).unwrap();
        let first = file.list()[0].id.clone();
        let digest = |file: &KeyFile| {
            assert_eq!(SigningKeys::parse(&file.to_text()).unwrap().digest(), file.digest());
            file.digest()
        };
        let mut digests = vec![digest(&file)];
        let second = file.stage().unwrap();
        digests.push(digest(&file));
        file.activate(&second).unwrap();
        digests.push(digest(&file));
        file.remove(&first).unwrap();
        digests.push(digest(&file));
        assert_eq!(digests.iter().collect::<std::collections::BTreeSet<_>>().len(), 4, "{digests:?}");
    }

    #[test]
    fn a_file_without_a_usable_key_is_rejected() {
        for wrong in
            ["", "# nothing", PEM_BEGIN, "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"]
        {
            assert!(SigningKeys::parse(wrong).is_err(), "{wrong}");
        }
        let other_curve =
            rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap().serialize_pem();
        assert!(matches!(SigningKeys::parse(&other_curve), Err(SigningKeyError::Curve(_))));
    }
}
