//! The review APIs: TokenReview, SelfSubjectReview, SelfSubjectRulesReview and the three kinds of SubjectAccessReview.
//! Reviews are answered and never stored.

use serde_json::{Value, json};

use super::AccessControl;
use super::policy_rule::PolicyRule;
use super::{authenticate_token, authorize, service_account_token};
use crate::error::ApiError;
use crate::request::{
    AccessTarget, RequestAttributes, RequestContext, RequestTarget, ResourceAttributes, User,
};
use crate::unstructured::{self, is_set, list_at, map_at_mut, str_at};
use crate::validation::FieldError;

/// Answers a SelfSubjectReview (`kubectl auth whoami`) with the user of the request.
pub(crate) fn review_self(context: &RequestContext, mut review: Value) -> Value {
    map_at_mut(&mut review, "metadata")
        .insert("creationTimestamp".into(), json!(unstructured::format_time(context.now)));
    review["status"] = json!({"userInfo": context.user.user_info()});
    review
}

/// Answers a TokenReview: authenticates the bearer token in `spec.token`. Returns the review with its status set, which
/// says why an invalid token is refused. Returns a 400 error if the review has no token.
pub(crate) fn review_token(
    access: &AccessControl,
    context: &RequestContext,
    mut review: Value,
) -> Result<Value, ApiError> {
    let token = str_at(&review, "spec.token");
    if token.is_empty() {
        return Err(ApiError::bad_request("token is required for TokenReview in authentication"));
    }
    let requested_audiences: Vec<&str> =
        list_at(&review["spec"], "audiences").iter().filter_map(Value::as_str).collect();
    let requested_audiences = if requested_audiences.is_empty() {
        vec![service_account_token::TOKEN_ISSUER]
    } else {
        requested_audiences
    };
    let status = match authenticate_token(access, token, &requested_audiences, context.now) {
        Ok(user) => {
            let claims = access.tokens.verified_claims(token);
            let token_audiences = claims.as_ref().map_or(&[][..], |it| &it.audiences);
            let audiences: Vec<_> =
                requested_audiences.iter().filter(|it| token_audiences.iter().any(|a| a == *it)).collect();
            json!({"authenticated": true, "user": user.user_info(), "audiences": audiences})
        }
        Err(why) => json!({"user": {}, "error": why}),
    };
    review["status"] = status;
    Ok(review)
}

/// Answers a SelfSubjectAccessReview (`kubectl auth can-i`): whether the user of the request may perform the request in
/// the spec.
pub(crate) fn review_own_access(
    access: &AccessControl,
    context: &RequestContext,
    target: &RequestTarget,
    review: Value,
) -> Result<Value, ApiError> {
    fail_if_invalid(target, &review, validate_access_review_spec(&review["spec"]))?;
    Ok(with_access_decision(access, &context.user, review))
}

/// Answers a SubjectAccessReview or LocalSubjectAccessReview: whether the user in the spec may perform the request in
/// the spec.
pub(crate) fn review_access(
    access: &AccessControl,
    target: &RequestTarget,
    review: Value,
) -> Result<Value, ApiError> {
    let spec = &review["spec"];
    let mut causes = validate_access_review_spec(spec);
    if !is_set(&spec["user"]) && !is_set(&spec["groups"]) {
        causes.push(FieldError::invalid("spec.user", "", "at least one of user or group must be specified"));
    }
    if let Some(namespace) = &target.namespace {
        let namespace_given = str_at(spec, "resourceAttributes.namespace");
        if is_set(&spec["resourceAttributes"]) && namespace_given != namespace {
            let field = "spec.resourceAttributes.namespace";
            causes.push(FieldError::invalid(field, namespace_given, "must match metadata.namespace"));
        }
        if is_set(&spec["nonResourceAttributes"]) {
            let field = "spec.nonResourceAttributes";
            let why = "disallowed on this kind of request";
            causes.push(FieldError::invalid(field, &spec["nonResourceAttributes"], why));
        }
    }
    fail_if_invalid(target, &review, causes)?;
    let texts = |list: &[Value]| list.iter().filter_map(|it| Some(it.as_str()?.to_owned())).collect();
    let user = User {
        name: str_at(spec, "user").to_owned(),
        uid: str_at(spec, "uid").to_owned(),
        groups: texts(list_at(spec, "groups")),
        extra: spec["extra"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(key, values)| (key.clone(), texts(values.as_array().map_or(&[], Vec::as_slice))))
            .collect(),
        ..User::default()
    };
    Ok(with_access_decision(access, &user, review))
}

/// Answers a SelfSubjectRulesReview (`kubectl auth can-i --list`): returns the review with the RBAC rules that apply in
/// `spec.namespace` to the user of the request. The permissions that the node authorizer grants are not included.
pub(crate) fn review_own_rules(
    access: &AccessControl,
    context: &RequestContext,
    mut review: Value,
) -> Result<Value, ApiError> {
    let namespace = str_at(&review, "spec.namespace").to_owned();
    if namespace.is_empty() {
        return Err(ApiError::bad_request("no namespace on request"));
    }
    let (rules, missing) = access.with_synced_rbac_index(|roles| roles.user_rules(&context.user, &namespace));
    let is_node = context.user.node_name().is_some();
    let rules_where = |is_wanted: fn(&PolicyRule) -> bool| {
        rules.iter().filter(|it| is_wanted(it)).map(PolicyRule::to_json).collect::<Vec<_>>()
    };
    let mut status = json!({
        "resourceRules": rules_where(|it| !it.resources.is_empty()),
        "nonResourceRules": rules_where(|it| !it.non_resource_urls.is_empty()),
        // The node authorizer depends on the pods of the node, so its permissions are not rules.
        "incomplete": is_node,
    });
    let node = is_node.then(|| "node authorizer does not support user rule resolution".to_owned());
    let errors: Vec<_> = node.into_iter().chain(missing).collect();
    if !errors.is_empty() {
        status["evaluationError"] = json!(errors.join(", "));
    }
    review["spec"] = json!({});
    review["status"] = status;
    Ok(review)
}

/// Checks whether `user` may perform the request in the spec of an access review. Returns the review with its status
/// set.
fn with_access_decision(access: &AccessControl, user: &User, mut review: Value) -> Value {
    let spec = &review["spec"];
    let attributes = if is_set(&spec["resourceAttributes"]) {
        let text = |name: &str| str_at(&spec["resourceAttributes"], name).to_owned();
        let field = |key: &str| {
            let selector = &spec["resourceAttributes"]["fieldSelector"];
            let required = |it: &&Value| it["key"] == key && it["operator"] == "In";
            let found = list_at(selector, "requirements").iter().find(required);
            found.and_then(|it| list_at(it, "values").first()?.as_str()).unwrap_or_default().to_owned()
        };
        let resource = ResourceAttributes {
            group: text("group"),
            version: text("version"),
            plural: text("resource"),
            subresource: text("subresource"),
            namespace: text("namespace"),
            name: text("name"),
            node_name: field("spec.nodeName"),
        };
        RequestAttributes::for_resource(&text("verb"), resource)
    } else {
        let path = str_at(spec, "nonResourceAttributes.path").to_owned();
        RequestAttributes {
            verb: str_at(spec, "nonResourceAttributes.verb").to_owned().into(),
            target: AccessTarget::Path(path),
        }
    };
    let (allowed, why) = match authorize(access, user, &attributes) {
        Ok(grant) => (true, grant.to_string()),
        Err(why) => (false, why),
    };
    review["status"] = json!({"allowed": allowed});
    if !why.is_empty() {
        review["status"]["reason"] = json!(why);
    }
    review
}

/// Returns the validation errors for the spec of an access review. The spec must have exactly one of
/// `resourceAttributes` and `nonResourceAttributes`.
fn validate_access_review_spec(spec: &Value) -> Vec<FieldError> {
    // An empty object counts as given.
    match (spec["resourceAttributes"].is_object(), spec["nonResourceAttributes"].is_object()) {
        (true, true) => vec![FieldError::invalid(
            "spec.nonResourceAttributes",
            &spec["nonResourceAttributes"],
            "cannot be specified in combination with resourceAttributes",
        )],
        (false, false) => vec![FieldError::invalid(
            "spec.resourceAttributes",
            &Value::Null,
            "exactly one of nonResourceAttributes or resourceAttributes must be specified",
        )],
        _ => Vec::new(),
    }
}

/// Returns a 422 error if the spec or the metadata of a review is invalid. `causes` are the validation errors of the
/// spec. The metadata may contain only `managedFields` and, for a namespaced review, `namespace`.
fn fail_if_invalid(
    target: &RequestTarget,
    review: &Value,
    mut causes: Vec<FieldError>,
) -> Result<(), ApiError> {
    let allowed: &[&str] =
        if target.namespace.is_some() { &["namespace", "managedFields"] } else { &["managedFields"] };
    let meta = review["metadata"].as_object();
    if meta.into_iter().flatten().any(|(name, value)| is_set(value) && !allowed.contains(&name.as_str())) {
        let why =
            if target.namespace.is_some() { "must be empty except for namespace" } else { "must be empty" };
        causes.push(FieldError::invalid("metadata", &review["metadata"], why));
    }
    if causes.is_empty() { Ok(()) } else { Err(ApiError::invalid(target.kind, "", &causes)) }
}
