//! Service account tokens: JWTs signed by the API server, with an audience and an expiration, valid only while the
//! objects that they are bound to exist.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD as BASE64URL};
use jiff::{SignedDuration, Timestamp};
use ring::digest::{SHA256, digest};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};
use serde_json::{Value, json};
use uuid::Uuid;

use super::AccessControl;
use crate::kinds::Kind;
use crate::request::{AUTHENTICATED_GROUP, CREDENTIAL_ID_KEY, User, service_account_user_name};
use crate::signing_keys::{SigningKey, SigningKeys};
use crate::unstructured::{self, str_at};

/// Issuer (the claim `iss`) of all service account tokens. It is also the audience of a token if its TokenRequest names
/// no audience.
pub(crate) const TOKEN_ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

/// Tolerated clock skew when the claims `iat` and `exp` of a token are checked. A token also stays valid for this time
/// after the deletion timestamp of an object that it is bound to.
const CLOCK_SKEW: SignedDuration = SignedDuration::from_secs(60);

/// Maximum number of tokens in `TokenSigner::verified_cache`. Each needs about 500 bytes. A full cache is cleared.
const VERIFIED_TOKENS_MAX: usize = 8_192;

/// Maximum length in bytes of a token that is accepted. Each name in a token has at most 253 bytes, so the tokens of
/// this server are shorter, unless a TokenRequest lists very many audiences.
const TOKEN_BYTES_MAX: usize = 8_192;

/// Signs and verifies service account tokens.
pub(crate) struct TokenSigner {
    /// Keys that sign and verify tokens.
    keys: RwLock<Arc<SigningKeys>>,
    /// Source of the random numbers that signing needs.
    random: SystemRandom,
    /// Claims of verified tokens, by the SHA-256 of the token, so that the cache does not contain tokens.
    verified_cache: Mutex<HashMap<[u8; 32], Arc<TokenClaims>>>,
    /// Configured maximum lifetime in seconds of a token for a TokenRequest. Unset if none is configured.
    lifetime_s_max: OnceLock<i64>,
}

/// Maximum lifetime in seconds of a token that is not bound to an object, if no maximum is configured. A bound token
/// has no default maximum, because it becomes invalid when its object is deleted.
const UNBOUND_LIFETIME_S_MAX: i64 = 24 * 60 * 60;

impl fmt::Debug for TokenSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenSigner").field("keys", &self.keys()).finish_non_exhaustive()
    }
}

/// The claims of a service account token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TokenClaims {
    /// The claim `aud`: the recipients that may accept the token.
    pub(crate) audiences: Vec<String>,
    /// The claim `iat`: the time of issue, in seconds since the Unix epoch.
    pub(crate) issued_at_s: i64,
    /// The claim `exp`: the time of expiration, in seconds since the Unix epoch.
    pub(crate) expires_at_s: i64,
    /// The claim `jti`: a UUID that identifies the token in the revocation list and the audit log.
    pub(crate) id: String,
    /// Namespace of the service account, the pod and the Secret.
    pub(crate) namespace: String,
    /// The service account that the token authenticates.
    pub(crate) account: BoundObjectRef,
    /// The pod that the token is bound to, if any.
    pub(crate) pod: Option<BoundObjectRef>,
    /// The node that the token is bound to, if any. If the token is bound to a pod, the node of that pod, or `None` if
    /// the pod was not scheduled.
    pub(crate) node: Option<BoundObjectRef>,
    /// The Secret that the token is bound to, if any.
    pub(crate) secret: Option<BoundObjectRef>,
}

/// Name and UID of the service account of a token, or of an object that the token is bound to. For the node of a pod,
/// the UID is empty if the Node does not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BoundObjectRef {
    pub(crate) name: String,
    pub(crate) uid: String,
}

impl TokenSigner {
    /// Creates a signer with a new key.
    #[cfg(test)]
    pub(crate) fn with_generated_key() -> Self {
        Self::new(Arc::new(SigningKeys::generate().expect("generating a key does not fail")))
    }

    /// Creates a signer with these keys.
    pub(crate) fn new(keys: Arc<SigningKeys>) -> Self {
        Self {
            keys: RwLock::new(keys),
            random: SystemRandom::new(),
            verified_cache: Mutex::default(),
            lifetime_s_max: OnceLock::new(),
        }
    }

    /// Replaces the keys. A token that was signed with none of the new keys is rejected from now on.
    pub(crate) fn replace_keys(&self, keys: Arc<SigningKeys>) {
        let mut verified = self.verified_cache.lock().unwrap_or_else(PoisonError::into_inner);
        *self.keys.write().unwrap_or_else(PoisonError::into_inner) = keys;
        verified.clear();
    }

    /// Returns the keys with which tokens are signed and verified at present.
    pub(crate) fn keys(&self) -> Arc<SigningKeys> {
        self.keys.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets the maximum lifetime of tokens. Only the first call has an effect.
    pub(crate) fn set_max_lifetime(&self, lifetime: Duration) {
        let _ = self.lifetime_s_max.set(i64::try_from(lifetime.as_secs()).unwrap_or(i64::MAX));
    }

    /// Returns the lifetime of a token for which `requested_s` seconds are requested.
    ///
    /// Rule: a token has the requested lifetime, but at most the configured maximum. Without a configured maximum, a
    /// token that is not bound to a pod, Secret or node lives at most one day.
    /// Upstream: `--service-account-max-token-expiration`, which has no default maximum for unbound tokens.
    pub(crate) fn granted_lifetime_s(&self, requested_s: i64, is_bound: bool) -> i64 {
        match self.lifetime_s_max.get() {
            Some(max) => requested_s.min(*max),
            None if is_bound => requested_s,
            None => requested_s.min(UNBOUND_LIFETIME_S_MAX),
        }
    }

    /// Returns the token with these claims: a JWT signed with ES256.
    pub(crate) fn sign(&self, claims: &TokenClaims) -> Result<String, ring::error::Unspecified> {
        let keys = self.keys();
        let key = keys.signing();
        let header = json!({"alg": "ES256", "kid": key.id});
        let [header, claims] = [header, claims.to_json()].map(|it| BASE64URL.encode(it.to_string()));
        let signed = format!("{header}.{claims}");
        let signature = key.pair.sign(&self.random, signed.as_bytes())?;
        Ok(format!("{signed}.{}", BASE64URL.encode(signature)))
    }

    /// Verifies the signature of a token and returns its claims, from the cache if the token was verified before.
    /// Returns `None` if the token is too long, malformed or not signed with one of the keys.
    /// [`TokenClaims::authenticated_user`] checks whether the claims are still valid.
    pub(crate) fn verified_claims(&self, token: &str) -> Option<Arc<TokenClaims>> {
        if TOKEN_BYTES_MAX < token.len() {
            return None;
        }
        let fingerprint = <[u8; 32]>::try_from(digest(&SHA256, token.as_bytes()).as_ref()).expect("256 bits");
        let cached =
            self.verified_cache.lock().unwrap_or_else(PoisonError::into_inner).get(&fingerprint).cloned();
        if cached.is_some() {
            return cached;
        }
        let keys = self.keys();
        let claims = Arc::new(verify(&keys, token)?);
        let mut verified = self.verified_cache.lock().unwrap_or_else(PoisonError::into_inner);
        if !Arc::ptr_eq(&keys, &self.keys()) {
            // The keys were replaced in the meantime, so the result is not cached.
            return Some(claims);
        }
        if VERIFIED_TOKENS_MAX <= verified.len() {
            verified.clear();
        }
        verified.insert(fingerprint, claims.clone());
        Some(claims)
    }

    /// Returns the document at `/openid/v1/jwks`, with which other programs verify tokens offline.
    pub(crate) fn json_web_key_set(&self) -> Value {
        let keys = self.keys();
        let json_web_key = |key: &SigningKey| {
            // An uncompressed point: one marker byte, and two coordinates.
            let point = key.public_key();
            let [x, y] = [&point[1..33], &point[33..]].map(|it| BASE64URL.encode(it));
            json!({"use": "sig", "kty": "EC", "kid": key.id, "crv": "P-256", "alg": "ES256", "x": x, "y": y})
        };
        json!({"keys": keys.iter().map(json_web_key).collect::<Vec<_>>()})
    }
}

/// Verifies the signature of a token and parses its claims. Returns `None` if the token is malformed or was not signed
/// with one of these keys.
fn verify(keys: &SigningKeys, token: &str) -> Option<TokenClaims> {
    let (signed, signature) = token.rsplit_once('.')?;
    let (header, claims) = signed.split_once('.')?;
    let json = |it: &str| serde_json::from_slice::<Value>(&BASE64URL.decode(it).ok()?).ok();
    let header = json(header)?;
    if header["alg"] != "ES256" {
        return None;
    }
    let key = keys.by_id(header["kid"].as_str()?)?;
    let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, key.public_key());
    key.verify(signed.as_bytes(), &BASE64URL.decode(signature).ok()?).ok()?;
    TokenClaims::parse(&json(claims)?)
}

/// Returns the document at `/.well-known/openid-configuration`.
pub(crate) fn openid_configuration() -> Value {
    json!({
        "issuer": TOKEN_ISSUER,
        "jwks_uri": format!("{TOKEN_ISSUER}/openid/v1/jwks"),
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["ES256"],
    })
}

impl TokenClaims {
    pub(crate) fn new(
        namespace: &str,
        account: BoundObjectRef,
        audiences: Vec<String>,
        now: Timestamp,
        life_s: i64,
    ) -> Self {
        Self {
            audiences,
            issued_at_s: now.as_second(),
            expires_at_s: now.as_second().saturating_add(life_s),
            id: Uuid::new_v4().to_string(),
            namespace: namespace.to_owned(),
            account,
            pod: None,
            node: None,
            secret: None,
        }
    }

    /// Returns the user that a token with these claims authenticates. The caller has verified the token's signature.
    ///
    /// Rule: a token is valid for its audiences, from its issue time until it expires, with a tolerance of
    /// `CLOCK_SKEW`. Its service account must still exist with the same UID, and so must the pod, Secret or node that
    /// it is bound to. An object counts as gone when `CLOCK_SKEW` has passed since its deletion timestamp.
    /// Upstream: `validator.Validate`.
    ///
    /// The error says why the token is not valid. TokenReviews show it, so it contains no secret.
    pub(crate) fn authenticated_user(
        &self,
        access: &AccessControl,
        audiences: &[&str],
        now: Timestamp,
    ) -> Result<User, String> {
        if !self.audiences.iter().any(|it| audiences.contains(&it.as_str())) {
            let token_audiences = super::policy_rule::go_string_list(&self.audiences);
            return Err(format!(
                "token audiences {token_audiences} is invalid for the target audiences {audiences:?}"
            ));
        }
        if self.expires_at_s.saturating_add(CLOCK_SKEW.as_secs()) < now.as_second() {
            return Err("service account token has expired".to_owned());
        }
        if now.as_second().saturating_add(CLOCK_SKEW.as_secs()) < self.issued_at_s {
            return Err("service account token is not valid yet".to_owned());
        }
        let namespace = self.namespace.as_str();
        check_exists(access, "serviceaccounts", Some(namespace), &self.account, now)?;
        if let Some(secret) = &self.secret {
            check_exists(access, "secrets", Some(namespace), secret, now)?;
        }
        match (&self.pod, &self.node) {
            (Some(pod), _) => check_exists(access, "pods", Some(namespace), pod, now)?,
            (None, Some(node)) => check_exists(access, "nodes", None, node, now)?,
            (None, None) => {}
        }
        let mut user = User::service_account(namespace, &self.account.name);
        user.uid.clone_from(&self.account.uid);
        user.groups.push(AUTHENTICATED_GROUP.to_owned());
        user.extra.insert(CREDENTIAL_ID_KEY.to_owned(), vec![format!("JTI={}", self.id)]);
        for (kind, bound) in [("pod", &self.pod), ("node", &self.node)] {
            for (key, value) in bound.iter().flat_map(|it| [("name", &it.name), ("uid", &it.uid)]) {
                if !value.is_empty() {
                    let key = format!("authentication.kubernetes.io/{kind}-{key}");
                    user.extra.insert(key, vec![value.clone()]);
                }
            }
        }
        Ok(user)
    }

    /// Returns the claims as the JSON payload of the token.
    fn to_json(&self) -> Value {
        let mut kubernetes = json!({"namespace": self.namespace, "serviceaccount": self.account.to_json()});
        let bound = [("pod", &self.pod), ("node", &self.node), ("secret", &self.secret)];
        for (kind, bound) in bound.into_iter().filter_map(|(kind, it)| Some((kind, it.as_ref()?))) {
            kubernetes[kind] = bound.to_json();
        }
        json!({
            "iss": TOKEN_ISSUER,
            "sub": service_account_user_name(&self.namespace, &self.account.name),
            "aud": self.audiences,
            "iat": self.issued_at_s,
            "nbf": self.issued_at_s,
            "exp": self.expires_at_s,
            "jti": self.id,
            "kubernetes.io": kubernetes,
        })
    }

    /// Parses the claims of a token with a valid signature. Returns `None` if a required claim is missing. Also returns
    /// `None` if the issuer or subject is not the one that this server sets, which means that another program signed
    /// the token with the key of this server.
    fn parse(claims: &Value) -> Option<Self> {
        let kubernetes = &claims["kubernetes.io"];
        let reference = |name: &str| {
            let it = kubernetes.get(name)?;
            Some(BoundObjectRef { name: str_at(it, "name").to_owned(), uid: str_at(it, "uid").to_owned() })
        };
        let read = Self {
            audiences: unstructured::list_at(claims, "aud")
                .iter()
                .filter_map(|it| Some(it.as_str()?.to_owned()))
                .collect(),
            issued_at_s: claims["iat"].as_i64()?,
            expires_at_s: claims["exp"].as_i64()?,
            id: str_at(claims, "jti").to_owned(),
            namespace: str_at(kubernetes, "namespace").to_owned(),
            account: reference("serviceaccount")?,
            pod: reference("pod"),
            node: reference("node"),
            secret: reference("secret"),
        };
        let subject = service_account_user_name(&read.namespace, &read.account.name);
        (claims["iss"] == TOKEN_ISSUER && claims["sub"] == subject.as_str()).then_some(read)
    }
}

impl BoundObjectRef {
    /// Returns the name and UID as JSON, without those that are empty.
    fn to_json(&self) -> Value {
        let all = [("name", &self.name), ("uid", &self.uid)];
        json!(all.into_iter().filter(|(_, it)| !it.is_empty()).collect::<BTreeMap<_, _>>())
    }
}

/// Checks that the object that `reference` names exists with the same UID. An object that is being deleted counts as
/// existing until `CLOCK_SKEW` after its deletion timestamp.
fn check_exists(
    access: &AccessControl,
    plural: &str,
    namespace: Option<&str>,
    reference: &BoundObjectRef,
    now: Timestamp,
) -> Result<(), String> {
    let kind = Kind::builtin("", "v1", plural);
    let gone = || "service account token has been invalidated".to_owned();
    let stored = access.storage.find(kind, namespace, &reference.name).ok_or_else(gone)?;
    let stored = unstructured::parse_stored(&stored);
    let uid = str_at(&stored, "metadata.uid");
    if uid != reference.uid {
        return Err(format!("{} UID ({uid}) does not match claim ({})", kind.singular(), reference.uid));
    }
    let deleted: Option<Timestamp> = str_at(&stored, "metadata.deletionTimestamp").parse().ok();
    match deleted {
        Some(deleted) if deleted + CLOCK_SKEW < now => Err(gone()),
        _ => Ok(()),
    }
}
