//! Secrets of type `kubernetes.io/service-account-token`: long-lived service account tokens.

use base64::{Engine as _, prelude::BASE64_STANDARD as BASE64};
use jiff::Timestamp;
use muster_api::well_known::{
    ANNOTATION_SERVICE_ACCOUNT_NAME, ANNOTATION_SERVICE_ACCOUNT_UID, SECRET_TYPE_SERVICE_ACCOUNT_TOKEN,
};
use serde_json::{Value, json};

use super::ServerIdentity;
use crate::auth::{BoundObjectRef, TOKEN_ISSUER, TokenClaims};
use crate::error::ApiError;
use crate::kinds::Kind;
use crate::registry::{DeleteOptions, Registry};
use crate::request::{RequestContext, RequestTarget};
use crate::selector::ObjectSelector;
use crate::subresource::Subresource;
use crate::unstructured::{self, is_set, map_at_mut, str_at};

/// Lifetime of a token in a Secret, in seconds. It is effectively unlimited. The token becomes invalid when its Secret
/// or service account is deleted.
const TOKEN_LIFETIME_S: i64 = 1 << 32;

/// Namespace and name of a Secret.
pub(super) type SecretName = (String, String);

/// Whether the Secret is a token Secret, which has the type `kubernetes.io/service-account-token`.
pub(super) fn is_token_secret(secret: &Value) -> bool {
    secret["type"] == SECRET_TYPE_SERVICE_ACCOUNT_TOKEN
}

/// Returns the namespace and name of each token Secret of the service account `of_account`, which is given by namespace
/// and name. If `of_account` is `None`, returns all token Secrets.
pub(super) fn list_token_secrets(
    registry: &Registry,
    of_account: Option<(&str, &str)>,
) -> impl Iterator<Item = SecretName> {
    let (secrets, _) = registry.storage.list(
        Kind::builtin("", "v1", "secrets"),
        of_account.map(|(namespace, _)| namespace),
        &ObjectSelector::default(),
    );
    let account = of_account.map(|(_, account)| account.to_owned());
    secrets.into_iter().filter_map(move |it| {
        let secret = unstructured::parse_stored(&it);
        let is_of_account = |account: &String| {
            secret["metadata"]["annotations"][ANNOTATION_SERVICE_ACCOUNT_NAME] == account.as_str()
        };
        let is_selected = is_token_secret(&secret) && account.as_ref().is_none_or(is_of_account);
        let meta = |field: &str| str_at(&secret["metadata"], field).to_owned();
        is_selected.then(|| (meta("namespace"), meta("name")))
    })
}

/// Adds the missing data to a token Secret, or deletes the Secret.
///
/// Rule: a token Secret gets a token, the namespace and the CA certificate. If its service account does not exist or
/// has another UID, the Secret is deleted. Upstream: `tokens_controller`.
pub(super) async fn reconcile(
    registry: &Registry,
    server: &ServerIdentity,
    (namespace, name): &SecretName,
    now: Timestamp,
) -> Result<(), ApiError> {
    let secrets = Kind::builtin("", "v1", "secrets");
    let Some(stored) = registry.storage.find(secrets, Some(namespace), name) else { return Ok(()) };
    let secret = unstructured::parse_stored(&stored);
    if !is_token_secret(&secret) || is_set(&secret["metadata"]["deletionTimestamp"]) {
        return Ok(());
    }
    let target = RequestTarget {
        kind: secrets,
        namespace: Some(namespace.clone()),
        name: name.clone(),
        subresource: Subresource::Whole,
    };
    let Some(account) = referenced_account(registry, namespace, &secret) else {
        let uid = Some(str_at(&secret, "metadata.uid").to_owned());
        let options = DeleteOptions { uid, ..DeleteOptions::default() };
        return registry
            .delete(&RequestContext::for_server("delete", now), &target, &options)
            .await
            .map(drop);
    };
    if !missing_data(&secret, server).iter().any(|it| *it) {
        return Ok(());
    }
    let fill = |secret: &Value| with_token_data(registry, server, namespace, &account, secret, now);
    registry.update(&RequestContext::for_server("update", now), &target, fill).await.map(drop)
}

/// Returns the service account that the annotations of the Secret name. Returns `None` if the account does not exist,
/// or if the annotations contain another UID.
fn referenced_account(registry: &Registry, namespace: &str, secret: &Value) -> Option<BoundObjectRef> {
    let annotation = |key: &str| secret["metadata"]["annotations"][key].as_str().unwrap_or_default();
    let stored = registry.storage.find(
        Kind::builtin("", "v1", "serviceaccounts"),
        Some(namespace),
        annotation(ANNOTATION_SERVICE_ACCOUNT_NAME),
    )?;
    let uid = str_at(&unstructured::parse_stored(&stored), "metadata.uid").to_owned();
    let is_same = annotation(ANNOTATION_SERVICE_ACCOUNT_UID).is_empty()
        || annotation(ANNOTATION_SERVICE_ACCOUNT_UID) == uid;
    is_same.then(|| BoundObjectRef { name: annotation(ANNOTATION_SERVICE_ACCOUNT_NAME).to_owned(), uid })
}

/// Returns three flags for a token Secret: whether the CA certificate is missing or outdated, whether the namespace is
/// missing, and whether the token is missing.
fn missing_data(secret: &Value, server: &ServerIdentity) -> [bool; 3] {
    let has = |key: &str| is_set(&secret["data"][key]) && secret["data"][key] != "";
    [secret["data"]["ca.crt"] != BASE64.encode(&server.ca_pem).as_str(), !has("namespace"), !has("token")]
}

/// Returns a copy of a token Secret with the missing data added, an outdated CA certificate replaced, and the
/// annotations with the name and UID of its service account set. Fails if the token cannot be signed.
fn with_token_data(
    registry: &Registry,
    server: &ServerIdentity,
    namespace: &str,
    account: &BoundObjectRef,
    secret: &Value,
    now: Timestamp,
) -> Result<Value, ApiError> {
    let mut new = secret.clone();
    let [needs_ca, needs_namespace, needs_token] = missing_data(secret, server);
    let data = map_at_mut(&mut new, "data");
    if needs_ca {
        data.insert("ca.crt".into(), json!(BASE64.encode(&server.ca_pem)));
    }
    if needs_namespace {
        data.insert("namespace".into(), json!(BASE64.encode(namespace)));
    }
    if needs_token {
        let mut claims = TokenClaims::new(
            namespace,
            account.clone(),
            vec![TOKEN_ISSUER.to_owned()],
            now,
            TOKEN_LIFETIME_S,
        );
        let meta = |field: &str| str_at(&secret["metadata"], field).to_owned();
        claims.secret = Some(BoundObjectRef { name: meta("name"), uid: meta("uid") });
        let token =
            registry.access.tokens.sign(&claims).map_err(|_| ApiError::internal("cannot sign the token"))?;
        data.insert("token".into(), json!(BASE64.encode(token)));
    }
    let annotations = map_at_mut(&mut new["metadata"], "annotations");
    annotations.insert(ANNOTATION_SERVICE_ACCOUNT_NAME.into(), json!(account.name));
    annotations.insert(ANNOTATION_SERVICE_ACCOUNT_UID.into(), json!(account.uid));
    Ok(new)
}
