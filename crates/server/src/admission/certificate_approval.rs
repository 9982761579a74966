//! Authorizes the creation, approval and signing of CertificateSigningRequests. Upstream: the admission plugins
//! CertificateApproval, CertificateSigning and CertificateSubjectRestriction.

use jiff::Timestamp;
use muster_api::well_known::{API_GROUP_CERTIFICATES, USER_GROUP_MASTERS};
use serde_json::{Value, json};

use crate::auth::bootstrap_token::NODE_EXTRA_KEY;
use crate::auth::{AccessControl, authorize};
use crate::error::ApiError;
use crate::pki::CertificateRequest;
use crate::request::{RequestAttributes, RequestTarget, ResourceAttributes, User, parse_node_name};
use crate::small_map::SmallMap;
use crate::unstructured::{self, is_set, list_at, str_at};
use crate::validation::FieldError;

/// Name of the built-in signer of the client certificates with which users authenticate to the API server.
pub(crate) const CLIENT_CERTIFICATE_SIGNER: &str = "kubernetes.io/kube-apiserver-client";

/// Checks whether the user may create, approve or sign a CertificateSigningRequest. Returns a 422 error for a new
/// CertificateSigningRequest whose `spec.request` cannot be parsed.
///
/// Rule: approving or denying a CertificateSigningRequest requires the verb `approve` on its signer. Changing its
/// certificate or conditions through `/status` requires the verb `sign`. A request to `CLIENT_CERTIFICATE_SIGNER` that
/// asks for the group `system:masters` is refused. A user with a bootstrap token that names a node cannot request a
/// certificate of another node. Upstream: the admission plugins CertificateApproval, CertificateSigning and
/// CertificateSubjectRestriction.
///
/// `old` is the stored object, or `None` for a create.
pub(crate) fn check_signing_request_write(
    access: &AccessControl,
    user: &User,
    target: &RequestTarget,
    subresource: &str,
    new: &Value,
    old: Option<&Value>,
) -> Result<(), ApiError> {
    let forbid = |why: String| Err(ApiError::forbidden(target.kind, &target.name, &why));
    let Some(old) = old else {
        let request = match CertificateRequest::from_object(new) {
            Ok(request) => request,
            Err(error) => {
                let cause = FieldError::invalid("spec.request", &new["spec"]["request"], &error.to_string());
                return Err(ApiError::invalid(target.kind, &target.name, &[cause]));
            }
        };
        if requests_masters_group(&request) && new["spec"]["signerName"] == CLIENT_CERTIFICATE_SIGNER {
            return forbid(MASTERS_FORBIDDEN_MESSAGE.to_owned());
        }
        if let Some(node) = parse_node_name(&request.common_name)
            && !may_request_node_certificate(&json!(user.extra), node)
        {
            return forbid(format!("this bootstrap token may not join node {node:?}"));
        }
        return Ok(());
    };
    let signer = str_at(old, "spec.signerName");
    let of = |it: &Value, field: &str| it["status"][field].clone();
    let is_signed =
        of(new, "certificate") != of(old, "certificate") || of(new, "conditions") != of(old, "conditions");
    match subresource {
        "approval" if !is_allowed_on_signer(access, user, "approve", signer) => {
            forbid(format!("user not permitted to approve requests with signerName {signer:?}"))
        }
        "status" if is_signed && !is_allowed_on_signer(access, user, "sign", signer) => {
            forbid(format!("user not permitted to sign requests with signerName {signer:?}"))
        }
        _ => Ok(()),
    }
}

/// Error message for a CertificateSigningRequest that is refused because it asks for the group `system:masters`.
pub(crate) const MASTERS_FORBIDDEN_MESSAGE: &str =
    "use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed";

/// Whether the requested certificate would give its user the group `system:masters`.
pub(crate) fn requests_masters_group(request: &CertificateRequest) -> bool {
    request.organizations.iter().any(|it| it == USER_GROUP_MASTERS)
}

/// Fills in the timestamps that conditions of a CertificateSigningRequest lack: `lastUpdateTime` with `now`, and
/// `lastTransitionTime` with the stored value if the status of the condition has not changed, otherwise with `now`.
pub(crate) fn set_condition_times(now: Timestamp, new: &mut Value, old: &Value) {
    let conditions = new.get_mut("status").and_then(|it| it.get_mut("conditions"));
    let Some(conditions) = conditions.and_then(Value::as_array_mut) else { return };
    let old_conditions: SmallMap<(&Value, &Value), &Value> = list_at(&old["status"], "conditions")
        .iter()
        .map(|it| ((&it["type"], &it["status"]), &it["lastTransitionTime"]))
        .collect();
    for condition in conditions.iter_mut().filter(|it| it.is_object()) {
        if !is_set(&condition["lastUpdateTime"]) {
            condition["lastUpdateTime"] = json!(unstructured::format_time(now));
        }
        if !is_set(&condition["lastTransitionTime"]) {
            let since = old_conditions.get(&(&condition["type"], &condition["status"]));
            let since = since.map(|it| (*it).clone()).filter(is_set);
            condition["lastTransitionTime"] = since.unwrap_or_else(|| json!(unstructured::format_time(now)));
        }
    }
}

/// Whether the user may approve (verb `approve`) or sign (verb `sign`) requests for the signer. RBAC rules may name the
/// signer, or all signers of its domain as `domain/*`.
fn is_allowed_on_signer(access: &AccessControl, user: &User, verb: &str, signer: &str) -> bool {
    let domain = signer.split('/').next().unwrap_or_default();
    [signer.to_owned(), format!("{domain}/*")].into_iter().any(|name| {
        let attributes = ResourceAttributes {
            group: API_GROUP_CERTIFICATES.to_owned(),
            plural: "signers".to_owned(),
            name,
            ..ResourceAttributes::default()
        };
        authorize(access, user, &RequestAttributes::for_resource(verb, attributes)).is_ok()
    })
}

/// Whether a user with the attributes `extra` may request a certificate for the node `node`. If `extra` has the key
/// `NODE_EXTRA_KEY` with a list that is not empty, only the nodes in the list are allowed. Otherwise every node is
/// allowed.
pub(crate) fn may_request_node_certificate(extra: &Value, node: &str) -> bool {
    let nodes = list_at(extra, NODE_EXTRA_KEY);
    nodes.is_empty() || nodes.iter().any(|it| it == node)
}
