//! Approves, signs and removes CertificateSigningRequests. Upstream: the controllers csrapproving, csrsigning and
//! csrcleaner.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use base64::{Engine as _, prelude::BASE64_STANDARD as BASE64};
use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use muster_api::well_known::{
    API_GROUP_CERTIFICATES, SIGNER_KUBELET_CLIENT, SIGNER_KUBELET_SERVING, USER_GROUP_NODES,
};
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::admission::certificate_approval::{
    CLIENT_CERTIFICATE_SIGNER, MASTERS_FORBIDDEN_MESSAGE, may_request_node_certificate,
    requests_masters_group,
};
use crate::auth::{authorize, node_addresses, revocation};
use crate::error::ApiError;
use crate::kinds::Kind;
use crate::pki::{CertificateRequest, KeyUsage, Pki};
use crate::registry::{DeleteOptions, Registry};
use crate::request::{
    RequestAttributes, RequestContext, RequestTarget, ResourceAttributes, User, parse_node_name,
};
use crate::selector::ObjectSelector;
use crate::subresource::Subresource;
use crate::unstructured::{self, is_condition_true, is_set, list_at, str_at};

/// Default of `lifetime_max`, the maximum lifetime of a certificate. `lifetime_max` is also the lifetime of a
/// certificate whose request sets no `expirationSeconds`.
pub(crate) const DEFAULT_LIFETIME_MAX: SignedDuration = SignedDuration::from_hours(365 * 24);

/// Minimum lifetime of a certificate whose request sets `expirationSeconds`, unless `lifetime_max` is shorter.
const LIFETIME_MIN: SignedDuration = SignedDuration::from_mins(10);

/// Time by which `notBefore` of a certificate is backdated, because clocks differ. A certificate is never backdated by
/// more than its lifetime. Otherwise most of its validity would be over when it is issued, and a client that renews
/// after a fraction of the validity would renew immediately.
const BACKDATE_DURATION: SignedDuration = SignedDuration::from_mins(5);
/// Lifetime from which a certificate counts as long-lived. The lifetime of a long-lived certificate is counted from its
/// backdated `notBefore`. A shorter lifetime is counted from the time of issue.
const LONG_LIFETIME_MIN: SignedDuration = SignedDuration::from_hours(8);

/// Age at which an approved or denied CertificateSigningRequest is deleted.
const DECIDED_REQUEST_TTL: SignedDuration = SignedDuration::from_hours(1);
/// Age at which a pending CertificateSigningRequest is deleted.
const PENDING_REQUEST_TTL: SignedDuration = SignedDuration::from_hours(24);
/// Interval at which the server checks all CertificateSigningRequests and deletes old ones.
const CLEANUP_INTERVAL: Duration = Duration::from_secs(10 * 60);
/// Time after which the server checks all CertificateSigningRequests again if it could not reconcile one of them, for
/// example because the disk was full.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);

/// Approves, signs and deletes CertificateSigningRequests until `stop` is cancelled. Reconciles a request when it
/// changes, and all requests at `CLEANUP_INTERVAL`, or at `RETRY_INTERVAL` after a failure. No certificate expires
/// later than `lifetime_max` after it was issued.
pub(crate) async fn run(
    registry: Arc<Registry>,
    pki: Arc<Pki>,
    lifetime_max: SignedDuration,
    stop: CancellationToken,
) {
    let kind = signing_request_kind();
    let mut commits = registry.storage.watch_kind_revision(kind);
    let mut synced = registry.storage.revision();
    // The first check is immediate.
    let mut next_cleanup = Instant::now();
    loop {
        let is_cleanup = tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep_until(next_cleanup) => true,
            changed = commits.changed() => match changed {
                Ok(()) => false,
                Err(_) => return,
            },
        };
        if is_cleanup {
            next_cleanup = Instant::now() + CLEANUP_INTERVAL;
        }
        let changes = registry.storage.events_since(&kind.store_key_prefix(None), synced);
        let requests: Vec<Bytes> = match changes {
            Ok((events, head)) if !is_cleanup => {
                synced = head;
                events.iter().map(|it| it.latest_value().clone()).collect()
            }
            _ => {
                synced = registry.storage.revision();
                registry.storage.list(kind, None, &ObjectSelector::default()).0
            }
        };
        let now = Timestamp::now();
        for request in requests {
            match reconcile(&registry, &pki, lifetime_max, &unstructured::parse_stored(&request), now).await {
                // A request that was changed or deleted meanwhile is reconciled again on its event.
                Err(error) if !error.is_not_found_or_conflict() => {
                    tracing::warn!(status = %error.status(), "cannot reconcile a CertificateSigningRequest, will retry");
                    next_cleanup = next_cleanup.min(Instant::now() + RETRY_INTERVAL);
                }
                _ => {}
            }
        }
    }
}

/// Reconciles a CertificateSigningRequest. Deletes it if it is old. Approves or denies it if it is undecided and needs
/// no decision by an administrator. Signs it if it is approved. An update fails if the stored request has another
/// `resourceVersion` than `object`, so that a changed request is not overwritten. A delete fails if it has another UID,
/// so that a new request of the same name is not deleted.
pub(crate) async fn reconcile(
    registry: &Registry,
    pki: &Pki,
    lifetime_max: SignedDuration,
    object: &Value,
    now: Timestamp,
) -> Result<(), ApiError> {
    let has = |condition| is_condition_true(object, condition);
    let is_signed = is_set(&object["status"]["certificate"]);
    let is_decided = has("Approved") || has("Denied");
    let created: Option<Timestamp> = str_at(object, "metadata.creationTimestamp").parse().ok();
    let ttl = if is_decided { DECIDED_REQUEST_TTL } else { PENDING_REQUEST_TTL };
    let target = |subresource| RequestTarget {
        kind: signing_request_kind(),
        namespace: None,
        name: str_at(object, "metadata.name").to_owned(),
        subresource,
    };
    if created.is_some_and(|created| created + ttl < now) {
        let context = RequestContext::for_server("delete", now);
        let uid = Some(str_at(object, "metadata.uid").to_owned());
        let options = DeleteOptions { uid, ..DeleteOptions::default() };
        return match registry.delete(&context, &target(Subresource::Whole), &options).await {
            Err(it) if !it.is_not_found_or_conflict() => Err(it),
            _ => Ok(()),
        };
    }
    let Ok(request) = CertificateRequest::from_object(object) else { return Ok(()) };
    let context = RequestContext::for_server("update", now);
    if !is_decided && !is_signed {
        let decided = auto_decide_node_client(registry, object, &request);
        let decided = decided
            .or_else(|| auto_approve_node_serving(registry, object, &request).map(ApprovalDecision::Approve));
        let (decision, reason, why) = match decided {
            Some(ApprovalDecision::Approve(why)) => ("Approved", "AutoApproved", why.to_owned()),
            Some(ApprovalDecision::Deny(why)) => ("Denied", NODE_IS_READY_REASON, why),
            None => return Ok(()),
        };
        let condition = json!({
            "type": decision,
            "status": "True",
            "reason": reason,
            "message": why,
            "lastUpdateTime": unstructured::format_time(now),
            "lastTransitionTime": unstructured::format_time(now),
        });
        let decided = with_condition(object, &condition);
        let decide = |_: &Value| Ok(decided.clone());
        let written = registry.update(&context, &target(Subresource::Approval), decide).await?;
        if decision == "Denied" {
            return Ok(());
        }
        // Signs exactly the approved version: a write in between leads to a conflict.
        return sign_approved_request(
            registry,
            pki,
            lifetime_max,
            &unstructured::parse_stored(&written),
            now,
        )
        .await;
    }
    if is_signed || !has("Approved") || has("Denied") || has("Failed") {
        return Ok(());
    }
    sign_approved_request(registry, pki, lifetime_max, object, now).await
}

/// Signs an approved CertificateSigningRequest. If it cannot be signed, adds the condition `Failed` with the reason.
/// Does nothing if `object` is no longer the stored version, if its PKCS #10 request cannot be parsed, or if it names a
/// signer that this server does not have.
///
/// Rule: a request is signed once, and a client certificate is recorded only if it was written to its request. A watch
/// may deliver an approval again after the request was signed, so a version that is no longer stored is skipped.
async fn sign_approved_request(
    registry: &Registry,
    pki: &Pki,
    lifetime_max: SignedDuration,
    object: &Value,
    now: Timestamp,
) -> Result<(), ApiError> {
    let Ok(request) = CertificateRequest::from_object(object) else { return Ok(()) };
    let context = RequestContext::for_server("update", now);
    let name = str_at(object, "metadata.name").to_owned();
    let target = RequestTarget {
        kind: signing_request_kind(),
        namespace: None,
        name,
        subresource: Subresource::Status,
    };
    let stored = registry
        .storage
        .find(signing_request_kind(), None, &target.name)
        .map(|it| unstructured::parse_stored(&it));
    if stored.is_none_or(|it| it["metadata"]["resourceVersion"] != object["metadata"]["resourceVersion"]) {
        return Ok(());
    }
    let signed = match sign_certificate(pki, lifetime_max, object, &request, now) {
        Some(Ok(_)) if let Some(why) = revoked_subject_error(registry, object, &request) => Some(Err(why)),
        signed => signed,
    };
    match signed {
        None => Ok(()),
        Some(Ok(certificate)) => {
            let mut signed = object.clone();
            signed["status"]["certificate"] = json!(BASE64.encode(&certificate));
            let sign = |_: &Value| Ok(signed.clone());
            registry.update(&context, &target, sign).await?;
            if requested_usages(object).contains(&"client auth") {
                pki.queue_issued_certificate(&certificate);
            }
            Ok(())
        }
        Some(Err(why)) => {
            let condition = json!({
                "type": "Failed",
                "status": "True",
                "reason": "SignerValidationFailure",
                "message": why,
                "lastUpdateTime": unstructured::format_time(now),
                "lastTransitionTime": unstructured::format_time(now),
            });
            let failed = with_condition(object, &condition);
            let fail = |_: &Value| Ok(failed.clone());
            registry.update(&context, &target, fail).await.map(drop)
        }
    }
}

/// Returns the error message for a request that must not be signed because the certificates of its subject are revoked.
/// Returns `None` if the request may be signed.
///
/// Rule: a request created before the certificates of its subject were revoked is not signed, because the revoked node
/// may have created the request and may still watch it.
fn revoked_subject_error(
    registry: &Registry,
    object: &Value,
    request: &CertificateRequest,
) -> Option<String> {
    let revoked_until = revocation::revoked_until(&registry.access, &request.common_name)?;
    let created: Option<Timestamp> = str_at(object, "metadata.creationTimestamp").parse().ok();
    created.is_none_or(|it| it <= revoked_until).then(|| {
        format!(
            "certificates and signing requests of {:?} up to {revoked_until} are revoked: create a new request",
            request.common_name
        )
    })
}

/// Returns the CertificateSigningRequest with a condition added.
fn with_condition(old: &Value, condition: &Value) -> Value {
    let mut new = old.clone();
    let conditions = list_at(&old["status"], "conditions").iter().chain([condition]);
    new["status"]["conditions"] = conditions.cloned().collect();
    new
}

/// An automatic decision on a CertificateSigningRequest, with the message of its condition.
enum ApprovalDecision {
    /// Approve the request, with this message.
    Approve(&'static str),
    /// Deny the request, with this message.
    Deny(String),
}

/// Reason of the condition `Denied` of a request for the name of a Ready node. The agent recognizes this denial by the
/// reason.
const NODE_IS_READY_REASON: &str = "NodeIsReady";

/// Decides on a request for a node's client certificate. Returns `None` if an administrator must decide, and for any
/// other request.
///
/// Rule: the request is approved automatically in two cases. A new node joins with a bootstrap token: RBAC allows the
/// requester to create `certificatesigningrequests/nodeclient`. A node renews its certificate: RBAC allows it to create
/// `certificatesigningrequests/selfnodeclient`, and the request is for its own name. A bootstrap token that names a
/// node is accepted for that node only. A request that is not such a renewal is denied while a Ready node of that name
/// exists, because the requester would take over the identity of that node. A new request is approved once the node is
/// NotReady or its Node is deleted.
/// Upstream: the csrapproving controller, which does not check the Node.
fn auto_decide_node_client(
    registry: &Registry,
    object: &Value,
    request: &CertificateRequest,
) -> Option<ApprovalDecision> {
    if object["spec"]["signerName"] != SIGNER_KUBELET_CLIENT
        || check_node_client_request(request, object).is_err()
    {
        return None;
    }
    let texts = |it: &[Value]| it.iter().filter_map(|it| Some(it.as_str()?.to_owned())).collect::<Vec<_>>();
    let user = User::new(str_at(object, "spec.username"), texts(list_at(&object["spec"], "groups")));
    let may_create = |subresource: &str| {
        let resource = ResourceAttributes {
            group: API_GROUP_CERTIFICATES.to_owned(),
            plural: "certificatesigningrequests".to_owned(),
            subresource: subresource.to_owned(),
            ..ResourceAttributes::default()
        };
        authorize(&registry.access, &user, &RequestAttributes::for_resource("create", resource)).is_ok()
    };
    if user.name == request.common_name && may_create("selfnodeclient") {
        return Some(ApprovalDecision::Approve(
            "Auto approving self kubelet client certificate after SubjectAccessReview.",
        ));
    }
    let name = parse_node_name(&request.common_name)?;
    if !may_create("nodeclient") || !may_request_node_certificate(&object["spec"]["extra"], name) {
        return None;
    }
    Some(match ready_node_address(registry, name) {
        // The agent searches the message for `at ADDRESS:` to recognize itself.
        Some(at) => ApprovalDecision::Deny(format!(
            "a Ready node {name:?} already exists at {at}: choose another name, or, to replace it with this machine, stop \
             it and wait until it is NotReady, or run kubectl delete node {name}"
        )),
        None => {
            ApprovalDecision::Approve("Auto approving kubelet client certificate after SubjectAccessReview.")
        }
    })
}

/// Returns the first address of a Ready Node, or `an unknown address` if its status has none. Returns `None` if the
/// Node does not exist, is not Ready or is being deleted.
fn ready_node_address(registry: &Registry, name: &str) -> Option<String> {
    let nodes = Kind::builtin("", "v1", "nodes");
    let node = unstructured::parse_stored(&registry.storage.find(nodes, None, name)?);
    if is_set(&node["metadata"]["deletionTimestamp"]) || !is_condition_true(&node, "Ready") {
        return None;
    }
    let mut at = list_at(&node["status"], "addresses").iter().map(|it| str_at(it, "address"));
    Some(at.next().unwrap_or("an unknown address").to_owned())
}

/// Decides whether to approve a request for a node's serving certificate. Returns the message of the approval. Returns
/// `None` if an administrator must decide, and for any other request.
///
/// Rule: the request is approved automatically if a node requests it only for its own name and for addresses that its
/// Node has and no other Node has. Upstream: not approved automatically.
fn auto_approve_node_serving(
    registry: &Registry,
    object: &Value,
    request: &CertificateRequest,
) -> Option<&'static str> {
    if object["spec"]["signerName"] != SIGNER_KUBELET_SERVING
        || check_node_serving_request(request, object).is_err()
    {
        return None;
    }
    let is_node = list_at(&object["spec"], "groups").iter().any(|it| it == USER_GROUP_NODES);
    if !is_node || str_at(object, "spec.username") != request.common_name {
        return None;
    }
    let name = parse_node_name(&request.common_name)?;
    let is_own = request.dns_names.iter().all(|it| it == name)
        && node_addresses::addresses_belong_only_to_node(&registry.access, name, &request.ip_addresses);
    is_own.then_some("Auto approving kubelet serving certificate: it names only the node and its addresses.")
}

/// Returns the signed certificate in PEM, or the reason why the signer refuses the request. Returns `None` if this
/// server does not have the signer that the request names.
fn sign_certificate(
    pki: &Pki,
    lifetime_max: SignedDuration,
    object: &Value,
    request: &CertificateRequest,
    now: Timestamp,
) -> Option<Result<String, String>> {
    let checked = match str_at(object, "spec.signerName") {
        CLIENT_CERTIFICATE_SIGNER => check_client_request(request, object),
        SIGNER_KUBELET_CLIENT => check_node_client_request(request, object),
        SIGNER_KUBELET_SERVING => check_node_serving_request(request, object),
        _ => return None,
    };
    if let Err(why) = checked {
        return Some(Err(why.to_owned()));
    }
    let requested = object["spec"]["expirationSeconds"].as_i64().map(SignedDuration::from_secs);
    let validity = certificate_validity(requested, lifetime_max, now);
    let usages: Vec<KeyUsage> = requested_usages(object).into_iter().filter_map(parse_usage).collect();
    Some(pki.issue_certificate(request, &usages, validity, now).map_err(|error| error.to_string()))
}

/// Returns `notBefore` and `notAfter` of a certificate. `requested` is the `expirationSeconds` of its request.
fn certificate_validity(
    requested: Option<SignedDuration>,
    lifetime_max: SignedDuration,
    now: Timestamp,
) -> (Timestamp, Timestamp) {
    let lifetime = requested.map_or(lifetime_max, |it| it.max(LIFETIME_MIN)).min(lifetime_max);
    let from = now - BACKDATE_DURATION.min(lifetime);
    (from, if lifetime < LONG_LIFETIME_MIN { now + lifetime } else { from + lifetime })
}

/// Checks a request to the signer `kubernetes.io/kube-apiserver-client`, which signs client certificates of users. The
/// error is the reason for the refusal.
fn check_client_request(request: &CertificateRequest, object: &Value) -> Result<(), String> {
    // Checked again, because an older server may have stored the request.
    if requests_masters_group(request) {
        return Err(MASTERS_FORBIDDEN_MESSAGE.to_owned());
    }
    let usages = requested_usages(object);
    let allowed = ["digital signature", "key encipherment", "client auth"];
    if let Some(other) = usages.iter().find(|it| !allowed.contains(it)) {
        return Err(format!("invalid usage for client certificate: {other}"));
    }
    if !usages.contains(&"client auth") {
        return Err("missing required usage for client certificate: client auth".to_owned());
    }
    Ok(())
}

/// Checks a request to the signer `kubernetes.io/kube-apiserver-client-kubelet`, which signs client certificates of
/// nodes. The error is the reason for the refusal.
fn check_node_client_request(request: &CertificateRequest, object: &Value) -> Result<(), String> {
    let refuse = |why: &str| Err(why.to_owned());
    if request.organizations != [USER_GROUP_NODES] {
        return refuse("subject organization is not system:nodes");
    }
    if !request.dns_names.is_empty() {
        return refuse("DNS subjectAltNames are not allowed");
    }
    if 0 < request.email_count {
        return refuse("Email subjectAltNames are not allowed");
    }
    if !request.ip_addresses.is_empty() {
        return refuse("IP subjectAltNames are not allowed");
    }
    if 0 < request.uri_count {
        return refuse("URI subjectAltNames are not allowed");
    }
    if parse_node_name(&request.common_name).is_none() {
        return refuse("subject common name is not system:node: and the name of a node");
    }
    check_usages(object, "client auth")
}

/// Checks a request to the signer `kubernetes.io/kubelet-serving`, which signs serving certificates of nodes. The error
/// is the reason for the refusal.
fn check_node_serving_request(request: &CertificateRequest, object: &Value) -> Result<(), String> {
    let refuse = |why: &str| Err(why.to_owned());
    if request.organizations != [USER_GROUP_NODES] {
        return refuse("subject organization is not system:nodes");
    }
    if request.dns_names.is_empty() && request.ip_addresses.is_empty() {
        return refuse("DNS or IP subjectAltName is required");
    }
    if 0 < request.email_count {
        return refuse("Email subjectAltNames are not allowed");
    }
    if 0 < request.uri_count {
        return refuse("URI subjectAltNames are not allowed");
    }
    check_usages(object, "server auth")?;
    if parse_node_name(&request.common_name).is_none() {
        return refuse("subject common name is not system:node: and the name of a node");
    }
    Ok(())
}

/// Checks that the requested key usages are `purpose` and `digital signature`, with or without `key encipherment`. The
/// error is the reason for the refusal.
fn check_usages(object: &Value, purpose: &str) -> Result<(), String> {
    let usages: BTreeSet<_> = requested_usages(object).into_iter().collect();
    let required = BTreeSet::from([purpose, "digital signature"]);
    if usages.is_superset(&required) && usages.difference(&required).all(|it| *it == "key encipherment") {
        return Ok(());
    }
    Err(format!("usages did not match [{purpose} digital signature key encipherment]"))
}

/// Returns `spec.usages` of a CertificateSigningRequest.
fn requested_usages(object: &Value) -> Vec<&str> {
    list_at(&object["spec"], "usages").iter().filter_map(Value::as_str).collect()
}

/// Parses one of `spec.usages`. Returns `None` if the server does not support the usage.
fn parse_usage(text: &str) -> Option<KeyUsage> {
    match text {
        "digital signature" => Some(KeyUsage::DigitalSignature),
        "key encipherment" => Some(KeyUsage::KeyEncipherment),
        "server auth" => Some(KeyUsage::ServerAuth),
        "client auth" => Some(KeyUsage::ClientAuth),
        _ => None,
    }
}

fn signing_request_kind() -> &'static Kind {
    Kind::builtin(API_GROUP_CERTIFICATES, "v1", "certificatesigningrequests")
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn how_long_a_certificate_is_good() {
        let now: Timestamp = "2026-01-01T12:00:00Z".parse().unwrap();
        let s = SignedDuration::from_secs;
        let cases = [
            ("nothing is said", None, DEFAULT_LIFETIME_MAX),
            ("a day is asked for", Some(s(86_400)), DEFAULT_LIFETIME_MAX),
            ("an hour is asked for", Some(s(3_600)), DEFAULT_LIFETIME_MAX),
            ("too little is asked for", Some(s(1)), DEFAULT_LIFETIME_MAX),
            ("too much is asked for", Some(s(1 << 31)), DEFAULT_LIFETIME_MAX),
            ("nobody gets more than a minute", Some(s(3_600)), s(60)),
        ];
        let said = cases.map(|(what, asked, lifetime_max)| {
            let (from, until) = certificate_validity(asked, lifetime_max, now);
            format!("{what}: {from} to {until}")
        });
        expect![[r#"
            nothing is said: 2026-01-01T11:55:00Z to 2027-01-01T11:55:00Z
            a day is asked for: 2026-01-01T11:55:00Z to 2026-01-02T11:55:00Z
            an hour is asked for: 2026-01-01T11:55:00Z to 2026-01-01T13:00:00Z
            too little is asked for: 2026-01-01T11:55:00Z to 2026-01-01T12:10:00Z
            too much is asked for: 2026-01-01T11:55:00Z to 2027-01-01T11:55:00Z
            nobody gets more than a minute: 2026-01-01T11:59:00Z to 2026-01-01T12:01:00Z"#]]
        .assert_eq(&said.join("\n"));
    }
}
