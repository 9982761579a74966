//! The subresource `token` of service accounts: issues a service account token for a TokenRequest.

use jiff::SignedDuration;
use muster_api::well_known::API_GROUP_AUTHENTICATION;
use serde_json::{Value, json};

use super::AccessControl;
use super::service_account_token::{BoundObjectRef, TOKEN_ISSUER, TokenClaims};
use crate::error::ApiError;
use crate::kinds::Kind;
use crate::request::{RequestContext, RequestTarget};
use crate::unstructured::{self, is_set, list_at, str_at};
use crate::validation::FieldError;

/// Kind name of TokenRequest in `kind` and in error messages.
const TOKEN_REQUEST_KIND: &str = "TokenRequest";

/// Lifetime of a token whose TokenRequest has no `spec.expirationSeconds`: one hour.
const DEFAULT_LIFETIME_S: i64 = 60 * 60;
/// Minimum of `spec.expirationSeconds` in a TokenRequest: ten minutes.
const LIFETIME_S_MIN: i64 = 10 * 60;
/// Maximum of `spec.expirationSeconds` in a TokenRequest: 2^32 seconds.
const LIFETIME_S_MAX: i64 = 1 << 32;

/// Issues a service account token for a TokenRequest. Returns the TokenRequest with its status set.
///
/// Rule: a token is issued for the service account, audiences and lifetime of a TokenRequest. It is bound to the pod,
/// Secret or node in `spec.boundObjectRef`, which must exist. A token can be bound to a pod only if the pod runs with
/// the same service account.
/// Upstream: `TokenREST.Create`.
pub(crate) fn create_token(
    access: &AccessControl,
    context: &RequestContext,
    target: &RequestTarget,
    mut request: Value,
) -> Result<Value, ApiError> {
    let namespace = target.namespace.as_deref().unwrap_or_default();
    for (field, expected) in [("name", target.name.as_str()), ("namespace", namespace)] {
        let given = str_at(&request["metadata"], field);
        if !given.is_empty() && given != expected {
            let why = format!("must match the service account {field} if specified");
            let cause = FieldError::invalid(format!("metadata.{field}"), given, &why);
            return Err(ApiError::invalid_of_kind(
                API_GROUP_AUTHENTICATION,
                TOKEN_REQUEST_KIND,
                &target.name,
                &[cause],
            ));
        }
    }
    let account = unstructured::parse_stored(&access.storage.get(target)?);
    let account_uid = str_at(&account, "metadata.uid").to_owned();
    let given_uid = str_at(&request, "metadata.uid");
    if !given_uid.is_empty() && given_uid != account_uid {
        let why = format!(
            "the UID in the token request ({given_uid}) does not match the UID of the service account ({account_uid})"
        );
        return Err(ApiError::conflict_naming_kind(
            API_GROUP_AUTHENTICATION,
            TOKEN_REQUEST_KIND,
            &target.name,
            &why,
        ));
    }
    let audiences: Vec<String> = list_at(&request["spec"], "audiences")
        .iter()
        .filter_map(|it| Some(it.as_str()?.to_owned()))
        .collect();
    let audiences = if audiences.is_empty() { vec![TOKEN_ISSUER.to_owned()] } else { audiences };
    let lifetime_s = request["spec"]["expirationSeconds"].as_i64().unwrap_or(DEFAULT_LIFETIME_S);
    let error = match lifetime_s {
        ..LIFETIME_S_MIN => Some("may not specify a duration less than 10 minutes"),
        LIFETIME_S_MIN..=LIFETIME_S_MAX => None,
        _ => Some("may not specify a duration larger than 2^32 seconds"),
    };
    if let Some(why) = error {
        let cause = FieldError::invalid("spec.expirationSeconds", &json!(lifetime_s), why);
        return Err(ApiError::invalid_of_kind(API_GROUP_AUTHENTICATION, TOKEN_REQUEST_KIND, "", &[cause]));
    }
    let is_bound = is_set(&request["spec"]["boundObjectRef"]);
    let lifetime_s = access.tokens.granted_lifetime_s(lifetime_s, is_bound);

    let account = BoundObjectRef { name: target.name.clone(), uid: account_uid };
    let mut claims = TokenClaims::new(namespace, account, audiences.clone(), context.now, lifetime_s);
    if is_set(&request["spec"]["boundObjectRef"]) {
        bind_claims(access, namespace, &request["spec"]["boundObjectRef"], &mut claims)?;
    }
    let token = access.tokens.sign(&claims).map_err(|_| ApiError::internal("cannot sign the token"))?;
    let expires = context.now + SignedDuration::from_secs(lifetime_s);
    request["apiVersion"] = json!(format!("{API_GROUP_AUTHENTICATION}/v1"));
    request["kind"] = json!(TOKEN_REQUEST_KIND);
    request["metadata"] = json!({
        "name": target.name,
        "namespace": namespace,
        "uid": claims.account.uid,
        "creationTimestamp": unstructured::format_time(context.now),
    });
    request["spec"]["audiences"] = json!(audiences);
    request["spec"]["expirationSeconds"] = json!(lifetime_s);
    if request["spec"].get("boundObjectRef").is_none() {
        request["spec"]["boundObjectRef"] = Value::Null;
    }
    request["status"] = json!({"token": token, "expirationTimestamp": unstructured::format_time(expires)});
    Ok(request)
}

/// Binds the claims to the object that `spec.boundObjectRef` of a TokenRequest (`bound`) names. Claims that are bound
/// to a pod also name the node of the pod. Returns an error if the object does not exist or has another UID, if its
/// kind is not Pod, Node or Secret, or if it is a pod with another service account.
fn bind_claims(
    access: &AccessControl,
    namespace: &str,
    bound: &Value,
    claims: &mut TokenClaims,
) -> Result<(), ApiError> {
    let name = str_at(bound, "name");
    let (version, kind) = (str_at(bound, "apiVersion"), str_at(bound, "kind"));
    let plural = match (version, kind) {
        ("v1", "Pod") => "pods",
        ("v1", "Node") => "nodes",
        ("v1", "Secret") => "secrets",
        _ => {
            let why = format!("cannot bind token to object of type {version}, Kind={kind}");
            return Err(ApiError::bad_request(why));
        }
    };
    let kind_row = Kind::builtin("", "v1", plural);
    let stored = access.storage.find(kind_row, kind_row.namespaced.then_some(namespace), name);
    let stored = unstructured::parse_stored(&stored.ok_or_else(|| ApiError::not_found(kind_row, name))?);
    let uid = str_at(&stored, "metadata.uid").to_owned();
    let given_uid = str_at(bound, "uid");
    if !given_uid.is_empty() && given_uid != uid {
        let why = format!(
            "the UID in the bound object reference ({given_uid}) does not match the UID in record. The object might have been \
             deleted and then recreated"
        );
        return Err(ApiError::conflict_naming_kind("", kind, name, &why));
    }
    let bound = Some(BoundObjectRef { name: name.to_owned(), uid });
    match kind {
        "Pod" => {
            let account = &claims.account.name;
            if str_at(&stored, "spec.serviceAccountName") != account {
                return Err(ApiError::bad_request(format!(
                    "cannot bind token for serviceaccount {account:?} to pod running with different serviceaccount name."
                )));
            }
            claims.node = node_reference(access, str_at(&stored, "spec.nodeName"));
            claims.pod = bound;
        }
        "Node" => claims.node = bound,
        _ => claims.secret = bound,
    }
    Ok(())
}

/// Returns a reference to the Node `name`. The UID is empty if the Node does not exist. Returns `None` if `name` is
/// empty, which is the case for a pod that is not scheduled.
fn node_reference(access: &AccessControl, name: &str) -> Option<BoundObjectRef> {
    if name.is_empty() {
        return None;
    }
    let nodes = Kind::builtin("", "v1", "nodes");
    let stored = access.storage.find(nodes, None, name).map(|it| unstructured::parse_stored(&it));
    let uid = stored.as_ref().map_or("", |it| str_at(it, "metadata.uid")).to_owned();
    Some(BoundObjectRef { name: name.to_owned(), uid })
}
