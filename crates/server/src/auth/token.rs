//! Tokens of service accounts: signed by this server, for an audience and a time, and good only as long as what they are
//! bound to lives.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD as BASE64URL};
use jiff::{SignedDuration, Timestamp};
use rcgen::PublicKeyData as _;
use ring::digest::{SHA256, digest};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, UnparsedPublicKey,
};
use serde_json::{Value, json};
use uuid::Uuid;

use super::Access;
use crate::kinds::Kind;
use crate::pki::{Pki, PkiError};
use crate::request::{AUTHENTICATED, CREDENTIAL, User, account_name};
use crate::unstructured::{self, str_at};

/// Who signs, and for whom if nobody else is named: this server.
pub(crate) const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

/// Clocks differ by this much, and what is deleted is missed only then.
const LEEWAY: SignedDuration = SignedDuration::from_secs(60);

/// Tokens whose signature was found good and need not be checked again: one for each pod of a large cluster, at some
/// 500 bytes each.
const VERIFIED_MAX: usize = 8_192;

/// No token is longer: names of at most 253 bytes make up a few hundred bytes, and audiences are few.
const TOKEN_BYTES_MAX: usize = 8_192;

pub(crate) struct Tokens {
    key: EcdsaKeyPair,
    key_id: String,
    random: SystemRandom,
    /// By the digest of the token, so that no token is kept.
    verified: Mutex<HashMap<[u8; 32], Arc<Claims>>>,
    /// Seconds that a token is good for at most, if an administrator said so.
    life_s_max: OnceLock<i64>,
}

/// Of a token that is bound to no object, unless an administrator says otherwise: one that is ends with its object.
const UNBOUND_LIFE_S_MAX: i64 = 24 * 60 * 60;

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokens").field("key_id", &self.key_id).finish_non_exhaustive()
    }
}

/// What a token says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Claims {
    pub(crate) audiences: Vec<String>,
    pub(crate) issued_s: i64,
    pub(crate) expires_s: i64,
    pub(crate) id: String,
    pub(crate) namespace: String,
    pub(crate) account: Ref,
    pub(crate) pod: Option<Ref>,
    pub(crate) node: Option<Ref>,
    pub(crate) secret: Option<Ref>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ref {
    pub(crate) name: String,
    pub(crate) uid: String,
}

impl Tokens {
    /// With the key of the server's data directory.
    pub(crate) fn of(pki: &Pki) -> Result<Self, PkiError> {
        Self::new(pki.tokens_key()).map_err(|source| pki.bad_token_key(source))
    }

    #[cfg(test)]
    pub(crate) fn of_test() -> Self {
        let key = rcgen::KeyPair::generate().expect("there is randomness");
        Self::new(&key).expect("the key was just made for this")
    }

    /// The key is one on the curve P-256.
    fn new(key: &rcgen::KeyPair) -> Result<Self, ring::error::KeyRejected> {
        let random = SystemRandom::new();
        let key_id = BASE64URL.encode(digest(&SHA256, &key.subject_public_key_info()));
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, key.serialized_der(), &random)?;
        Ok(Self { key, key_id, random, verified: Mutex::default(), life_s_max: OnceLock::new() })
    }

    /// No token is good for longer. Only the first call counts.
    pub(crate) fn limit(&self, life: Duration) {
        let _ = self.life_s_max.set(i64::try_from(life.as_secs()).unwrap_or(i64::MAX));
    }

    /// Rule: a token lives as long as was asked for, but no longer than the administrator allows; without a limit, one that
    /// is bound to no pod, Secret or node lives a day at most.
    /// Upstream: `--service-account-max-token-expiration`, without the default.
    pub(crate) fn life_s(&self, asked_s: i64, is_bound: bool) -> i64 {
        match self.life_s_max.get() {
            Some(max) => asked_s.min(*max),
            None if is_bound => asked_s,
            None => asked_s.min(UNBOUND_LIFE_S_MAX),
        }
    }

    pub(crate) fn sign(&self, claims: &Claims) -> Result<String, ring::error::Unspecified> {
        let header = json!({"alg": "ES256", "kid": self.key_id});
        let [header, claims] = [header, claims.write()].map(|it| BASE64URL.encode(it.to_string()));
        let signed = format!("{header}.{claims}");
        let signature = self.key.sign(&self.random, signed.as_bytes())?;
        Ok(format!("{signed}.{}", BASE64URL.encode(signature)))
    }

    /// What the token says, if this server signed it. Whether it still holds is another question: [`Claims::user`].
    pub(crate) fn read(&self, token: &str) -> Option<Arc<Claims>> {
        if TOKEN_BYTES_MAX < token.len() {
            return None;
        }
        let print = <[u8; 32]>::try_from(digest(&SHA256, token.as_bytes()).as_ref()).expect("256 bits");
        let known = self.verified.lock().unwrap_or_else(PoisonError::into_inner).get(&print).cloned();
        if known.is_some() {
            return known;
        }
        let claims = Arc::new(self.verify(token)?);
        let mut verified = self.verified.lock().unwrap_or_else(PoisonError::into_inner);
        if VERIFIED_MAX <= verified.len() {
            verified.clear();
        }
        verified.insert(print, claims.clone());
        Some(claims)
    }

    fn verify(&self, token: &str) -> Option<Claims> {
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, claims) = signed.split_once('.')?;
        let json = |it: &str| serde_json::from_slice::<Value>(&BASE64URL.decode(it).ok()?).ok();
        let header = json(header)?;
        if header["alg"] != "ES256" || header["kid"] != self.key_id.as_str() {
            return None;
        }
        let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, self.key.public_key());
        key.verify(signed.as_bytes(), &BASE64URL.decode(signature).ok()?).ok()?;
        Claims::read(&json(claims)?)
    }

    /// The document at `/openid/v1/jwks`: with it anyone can check a token without asking the server.
    pub(crate) fn keys(&self) -> Value {
        // The public key is one byte that says "uncompressed", and the two coordinates.
        let point = self.key.public_key().as_ref();
        let [x, y] = [&point[1..33], &point[33..]].map(|it| BASE64URL.encode(it));
        json!({"keys": [{
            "use": "sig", "kty": "EC", "kid": self.key_id, "crv": "P-256", "alg": "ES256", "x": x, "y": y,
        }]})
    }
}

/// The document at `/.well-known/openid-configuration`.
pub(crate) fn discovery() -> Value {
    json!({
        "issuer": ISSUER,
        "jwks_uri": format!("{ISSUER}/openid/v1/jwks"),
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["ES256"],
    })
}

impl Claims {
    pub(crate) fn new(
        namespace: &str,
        account: Ref,
        audiences: Vec<String>,
        now: Timestamp,
        life_s: i64,
    ) -> Self {
        Self {
            audiences,
            issued_s: now.as_second(),
            expires_s: now.as_second().saturating_add(life_s),
            id: Uuid::new_v4().to_string(),
            namespace: namespace.to_owned(),
            account,
            pod: None,
            node: None,
            secret: None,
        }
    }

    /// Rule: a token is good for its audience and its time, and only while its account, and the pod, secret or node that it is
    /// bound to, are the ones it was made for.
    /// Upstream: `validator.Validate`. The error is for the log of whoever reviews a token, and holds no secret.
    pub(crate) fn user(&self, access: &Access, audiences: &[&str], now: Timestamp) -> Result<User, String> {
        if !self.audiences.iter().any(|it| audiences.contains(&it.as_str())) {
            let said = super::rule::go_strings(&self.audiences);
            return Err(format!("token audiences {said} is invalid for the target audiences {audiences:?}"));
        }
        if self.expires_s.saturating_add(LEEWAY.as_secs()) < now.as_second() {
            return Err("service account token has expired".to_owned());
        }
        if now.as_second().saturating_add(LEEWAY.as_secs()) < self.issued_s {
            return Err("service account token is not valid yet".to_owned());
        }
        let namespace = self.namespace.as_str();
        alive(access, "serviceaccounts", Some(namespace), &self.account, now)?;
        if let Some(secret) = &self.secret {
            alive(access, "secrets", Some(namespace), secret, now)?;
        }
        match (&self.pod, &self.node) {
            (Some(pod), _) => alive(access, "pods", Some(namespace), pod, now)?,
            (None, Some(node)) => alive(access, "nodes", None, node, now)?,
            (None, None) => {}
        }
        let mut user = User::account(namespace, &self.account.name);
        user.uid.clone_from(&self.account.uid);
        user.groups.push(AUTHENTICATED.to_owned());
        user.extra.insert(CREDENTIAL.to_owned(), vec![format!("JTI={}", self.id)]);
        for (what, bound) in [("pod", &self.pod), ("node", &self.node)] {
            for (key, value) in bound.iter().flat_map(|it| [("name", &it.name), ("uid", &it.uid)]) {
                if !value.is_empty() {
                    let key = format!("authentication.kubernetes.io/{what}-{key}");
                    user.extra.insert(key, vec![value.clone()]);
                }
            }
        }
        Ok(user)
    }

    fn write(&self) -> Value {
        let mut own = json!({"namespace": self.namespace, "serviceaccount": self.account.write()});
        let bound = [("pod", &self.pod), ("node", &self.node), ("secret", &self.secret)];
        for (what, bound) in bound.into_iter().filter_map(|(what, it)| Some((what, it.as_ref()?))) {
            own[what] = bound.write();
        }
        json!({
            "iss": ISSUER,
            "sub": account_name(&self.namespace, &self.account.name),
            "aud": self.audiences,
            "iat": self.issued_s,
            "nbf": self.issued_s,
            "exp": self.expires_s,
            "jti": self.id,
            "kubernetes.io": own,
        })
    }

    /// Only what this server signed is read, so that anything else about it is a key that was stolen or shared.
    fn read(claims: &Value) -> Option<Self> {
        let own = &claims["kubernetes.io"];
        let refer = |name: &str| {
            let it = own.get(name)?;
            Some(Ref { name: str_at(it, "name").to_owned(), uid: str_at(it, "uid").to_owned() })
        };
        let read = Self {
            audiences: unstructured::list(claims, "aud")
                .iter()
                .filter_map(|it| Some(it.as_str()?.to_owned()))
                .collect(),
            issued_s: claims["iat"].as_i64()?,
            expires_s: claims["exp"].as_i64()?,
            id: str_at(claims, "jti").to_owned(),
            namespace: str_at(own, "namespace").to_owned(),
            account: refer("serviceaccount")?,
            pod: refer("pod"),
            node: refer("node"),
            secret: refer("secret"),
        };
        let subject = account_name(&read.namespace, &read.account.name);
        (claims["iss"] == ISSUER && claims["sub"] == subject.as_str()).then_some(read)
    }
}

impl Ref {
    fn write(&self) -> Value {
        let all = [("name", &self.name), ("uid", &self.uid)];
        json!(all.into_iter().filter(|(_, it)| !it.is_empty()).collect::<BTreeMap<_, _>>())
    }
}

/// Whether the object is there, is the one that is meant, and is not on its way out.
fn alive(
    access: &Access,
    plural: &str,
    namespace: Option<&str>,
    wanted: &Ref,
    now: Timestamp,
) -> Result<(), String> {
    let kind = Kind::builtin("", "v1", plural);
    let gone = || "service account token has been invalidated".to_owned();
    let stored = access.storage.peek(kind, namespace, &wanted.name).ok_or_else(gone)?;
    let stored = unstructured::parse(&stored);
    let uid = str_at(&stored, "metadata.uid");
    if uid != wanted.uid {
        return Err(format!("{} UID ({uid}) does not match claim ({})", kind.singular(), wanted.uid));
    }
    let deleted: Option<Timestamp> = str_at(&stored, "metadata.deletionTimestamp").parse().ok();
    match deleted {
        Some(deleted) if deleted + LEEWAY < now => Err(gone()),
        _ => Ok(()),
    }
}
