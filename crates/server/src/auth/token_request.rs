//! The subresource `token` of service accounts: issues tokens on request.

use jiff::SignedDuration;
use serde_json::{Value, json};

use super::Access;
use super::token::{Claims, ISSUER, Ref};
use crate::error::ApiError;
use crate::kinds::Kind;
use crate::request::{Context, Target};
use crate::unstructured::{self, is_set, list, str_at};
use crate::validation::FieldError;

const GROUP: &str = "authentication.k8s.io";
const KIND: &str = "TokenRequest";

/// Default lifetime of a token: one hour.
const LIFE_S: i64 = 60 * 60;
/// Minimum lifetime of a token: ten minutes.
const LIFE_S_MIN: i64 = 10 * 60;
/// Maximum lifetime of a token: 2^32 seconds.
const LIFE_S_MAX: i64 = 1 << 32;

/// Rule: a token is issued for the requested service account, audiences and lifetime. It is bound to a pod, Secret or
/// node if the request names an existing one; a pod must use the service account.
/// Upstream: `TokenREST.Create`.
pub(crate) fn answer(
    access: &Access,
    context: &Context,
    target: &Target,
    mut request: Value,
) -> Result<Value, ApiError> {
    let namespace = target.namespace.as_deref().unwrap_or_default();
    for (field, expected) in [("name", target.name.as_str()), ("namespace", namespace)] {
        let given = str_at(&request["metadata"], field);
        if !given.is_empty() && given != expected {
            let why = format!("must match the service account {field} if specified");
            let cause = FieldError::invalid(format!("metadata.{field}"), given, &why);
            return Err(ApiError::invalid_in(GROUP, KIND, &target.name, &[cause]));
        }
    }
    let account = unstructured::parse(&access.storage.get(target)?);
    let account_uid = str_at(&account, "metadata.uid").to_owned();
    let given_uid = str_at(&request, "metadata.uid");
    if !given_uid.is_empty() && given_uid != account_uid {
        let why = format!(
            "the UID in the token request ({given_uid}) does not match the UID of the service account ({account_uid})"
        );
        return Err(ApiError::conflict_of_kind(GROUP, KIND, &target.name, &why));
    }
    let audiences: Vec<String> =
        list(&request["spec"], "audiences").iter().filter_map(|it| Some(it.as_str()?.to_owned())).collect();
    let audiences = if audiences.is_empty() { vec![ISSUER.to_owned()] } else { audiences };
    let life_s = request["spec"]["expirationSeconds"].as_i64().unwrap_or(LIFE_S);
    let error = match life_s {
        ..LIFE_S_MIN => Some("may not specify a duration less than 10 minutes"),
        LIFE_S_MIN..=LIFE_S_MAX => None,
        _ => Some("may not specify a duration larger than 2^32 seconds"),
    };
    if let Some(why) = error {
        let cause = FieldError::invalid("spec.expirationSeconds", &json!(life_s), why);
        return Err(ApiError::invalid_in(GROUP, KIND, "", &[cause]));
    }
    let is_bound = is_set(&request["spec"]["boundObjectRef"]);
    let life_s = access.tokens.life_s(life_s, is_bound);

    let account = Ref { name: target.name.clone(), uid: account_uid };
    let mut claims = Claims::new(namespace, account, audiences.clone(), context.now, life_s);
    if is_set(&request["spec"]["boundObjectRef"]) {
        bind(access, namespace, &request["spec"]["boundObjectRef"], &mut claims)?;
    }
    let token = access.tokens.sign(&claims).map_err(|_| ApiError::internal("cannot sign the token"))?;
    let expires = context.now + SignedDuration::from_secs(life_s);
    request["apiVersion"] = json!(format!("{GROUP}/v1"));
    request["kind"] = json!(KIND);
    request["metadata"] = json!({
        "name": target.name,
        "namespace": namespace,
        "uid": claims.account.uid,
        "creationTimestamp": unstructured::time(context.now),
    });
    request["spec"]["audiences"] = json!(audiences);
    request["spec"]["expirationSeconds"] = json!(life_s);
    if request["spec"].get("boundObjectRef").is_none() {
        request["spec"]["boundObjectRef"] = Value::Null;
    }
    request["status"] = json!({"token": token, "expirationTimestamp": unstructured::time(expires)});
    Ok(request)
}

/// Binds the claims to the object that the request references.
fn bind(access: &Access, namespace: &str, bound: &Value, claims: &mut Claims) -> Result<(), ApiError> {
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
    let stored = access.storage.peek(kind_row, kind_row.namespaced.then_some(namespace), name);
    let stored = unstructured::parse(&stored.ok_or_else(|| ApiError::not_found(kind_row, name))?);
    let uid = str_at(&stored, "metadata.uid").to_owned();
    let given_uid = str_at(bound, "uid");
    if !given_uid.is_empty() && given_uid != uid {
        let why = format!(
            "the UID in the bound object reference ({given_uid}) does not match the UID in record. The object might have been \
             deleted and then recreated"
        );
        return Err(ApiError::conflict_of_kind("", kind, name, &why));
    }
    let bound = Some(Ref { name: name.to_owned(), uid });
    match kind {
        "Pod" => {
            let account = &claims.account.name;
            if str_at(&stored, "spec.serviceAccountName") != account {
                return Err(ApiError::bad_request(format!(
                    "cannot bind token for serviceaccount {account:?} to pod running with different serviceaccount name."
                )));
            }
            claims.node = node_of(access, str_at(&stored, "spec.nodeName"));
            claims.pod = bound;
        }
        "Node" => claims.node = bound,
        _ => claims.secret = bound,
    }
    Ok(())
}

/// Reference to the node of a pod. A missing node is referenced by name only.
fn node_of(access: &Access, name: &str) -> Option<Ref> {
    if name.is_empty() {
        return None;
    }
    let nodes = Kind::builtin("", "v1", "nodes");
    let stored = access.storage.peek(nodes, None, name).map(|it| unstructured::parse(&it));
    let uid = stored.as_ref().map_or("", |it| str_at(it, "metadata.uid")).to_owned();
    Some(Ref { name: name.to_owned(), uid })
}
