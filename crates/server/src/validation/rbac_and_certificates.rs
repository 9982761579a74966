//! Validation of RBAC roles and bindings, and of CertificateSigningRequests.

use base64::{Engine as _, prelude::BASE64_STANDARD as BASE64};
use muster_api::well_known::API_GROUP_RBAC;
use serde_json::Value;

use super::{WriteToValidate, check_choice, check_required, format_as_go_struct, has_field};
use crate::small_map::SmallSet;
use crate::subresource::Subresource;
use crate::unstructured::{is_set, list_at, str_at};
use crate::validation::field_error::{ErrorPath, FieldErrors};
use crate::validation::{labels, names};

pub(crate) fn validate_role(write: &WriteToValidate, out: &mut FieldErrors) {
    check_policy_rules(write.new, true, out);
}

pub(crate) fn validate_cluster_role(write: &WriteToValidate, out: &mut FieldErrors) {
    check_policy_rules(write.new, false, out);
    let rule = &write.new["aggregationRule"];
    if rule.is_null() {
        return;
    }
    let (selectors, at) =
        (list_at(rule, "clusterRoleSelectors"), ErrorPath::new("aggregationRule.clusterRoleSelectors"));
    if selectors.is_empty() {
        out.required(&at, "at least one clusterRoleSelector required if aggregationRule is non-nil");
    }
    for (index, selector) in selectors.iter().enumerate() {
        let before = out.len();
        labels::check_selector(selector, &at.index(index), out);
        if out.len() != before {
            out.invalid(&at.index(index), &Value::Null, "invalid label selector.");
        }
    }
}

/// Checks the rules of a Role (if `is_namespaced`) or ClusterRole.
fn check_policy_rules(role: &Value, is_namespaced: bool, out: &mut FieldErrors) {
    for (index, rule) in list_at(role, "rules").iter().enumerate() {
        let at = ErrorPath::new("rules");
        let at = at.index(index);
        let is_given = |name: &str| is_set(&rule[name]);
        if !is_given("verbs") {
            out.required(&at.field("verbs"), "verbs must contain at least one value");
        }
        if is_given("nonResourceURLs") {
            let (urls, at) = (&rule["nonResourceURLs"], at.field("nonResourceURLs"));
            if is_namespaced {
                out.invalid(&at, urls, "namespaced rules cannot apply to non-resource URLs");
            }
            if is_given("apiGroups") || is_given("resources") || is_given("resourceNames") {
                out.invalid(&at, urls, "rules cannot apply to both regular resources and non-resource URLs");
            }
            continue;
        }
        if !is_given("apiGroups") {
            out.required(&at.field("apiGroups"), "resource rules must supply at least one api group");
        }
        if !is_given("resources") {
            out.required(&at.field("resources"), "resource rules must supply at least one resource");
        }
    }
}

pub(crate) fn validate_role_binding(write: &WriteToValidate, out: &mut FieldErrors) {
    check_role_binding(write, &["Role", "ClusterRole"], true, out);
}

pub(crate) fn validate_cluster_role_binding(write: &WriteToValidate, out: &mut FieldErrors) {
    check_role_binding(write, &["ClusterRole"], false, out);
}

/// Checks a RoleBinding (if `is_namespaced`) or ClusterRoleBinding. `kinds` are the kinds of roles to which it may
/// refer.
fn check_role_binding(write: &WriteToValidate, kinds: &[&str], is_namespaced: bool, out: &mut FieldErrors) {
    let (role, at) = (&write.new["roleRef"], ErrorPath::new("roleRef"));
    if str_at(role, "apiGroup") != API_GROUP_RBAC {
        out.unsupported(&at.field("apiGroup"), str_at(role, "apiGroup"), &[API_GROUP_RBAC]);
    }
    if !kinds.contains(&str_at(role, "kind")) {
        out.unsupported(&at.field("kind"), str_at(role, "kind"), kinds);
    }
    let name = str_at(role, "name");
    check_required(role, &["name"], &at, out);
    out.invalid_for_each(&at.field("name"), name, names::path_segment_name_errors(name, false));
    for (index, subject) in list_at(write.new, "subjects").iter().enumerate() {
        check_binding_subject(subject, is_namespaced, &ErrorPath::new("subjects").index(index), out);
    }
    if write.old.is_some_and(|old| old["roleRef"] != *role) {
        let role_in_go =
            format_as_go_struct(role, &[("APIGroup", "apiGroup"), ("Kind", "kind"), ("Name", "name")]);
        out.invalid(&at, role_in_go, "cannot change roleRef");
    }
}

/// Checks a subject of a RoleBinding (if `is_namespaced`) or ClusterRoleBinding: a user, group or service account.
fn check_binding_subject(subject: &Value, is_namespaced: bool, at: &ErrorPath, out: &mut FieldErrors) {
    let (name, group) = (str_at(subject, "name"), str_at(subject, "apiGroup"));
    check_required(subject, &["name"], at, out);
    match str_at(subject, "kind") {
        "ServiceAccount" => {
            if !name.is_empty() {
                out.invalid_for_each(&at.field("name"), name, names::dns_subdomain_errors(name));
            }
            if !group.is_empty() {
                out.unsupported(&at.field("apiGroup"), group, &[""]);
            }
            if !is_namespaced {
                check_required(subject, &["namespace"], at, out);
            }
        }
        "User" | "Group" if group != API_GROUP_RBAC => {
            out.unsupported(&at.field("apiGroup"), group, &[API_GROUP_RBAC])
        }
        "User" | "Group" => {}
        other => out.unsupported(&at.field("kind"), other, &["ServiceAccount", "User", "Group"]),
    }
}

pub(crate) fn validate_signing_request(write: &WriteToValidate, out: &mut FieldErrors) {
    let (request, at) = (write.new, ErrorPath::new("spec"));
    let spec = &request["spec"];
    if let Err(why) = check_pkcs10(str_at(spec, "request")) {
        out.invalid(&at.field("request"), &spec["request"], why);
    }
    check_key_usages(spec, write.old, &at.field("usages"), out);
    let signer = str_at(spec, "signerName");
    let is_stored = |name: &str| write.old.is_some_and(|old| str_at(old, "spec.signerName") == name);
    if signer == "kubernetes.io/legacy-unknown" && !is_stored(signer) {
        let why = "the legacy signerName is not allowed via this API version";
        out.invalid(&at.field("signerName"), signer, why);
    } else {
        check_signer_name(signer, &at.field("signerName"), out);
    }
    if let Some(seconds) = spec["expirationSeconds"].as_i64().filter(|it| *it < 600) {
        let why = "may not specify a duration less than 600 seconds (10 minutes)";
        out.invalid(&at.field("expirationSeconds"), seconds, why);
    }
    check_signing_request_conditions(
        list_at(&request["status"], "conditions"),
        &ErrorPath::new("status.conditions"),
        out,
    );
    if let Some(old) = write.old {
        check_signing_request_status_update(request, old, write.subresource, out);
    }
}

/// Checks that the base64 text `pem` contains a PKCS #10 certificate request in PEM format. Returns upstream's message
/// as the error.
fn check_pkcs10(pem: &str) -> Result<(), &'static str> {
    /// Upstream's message for data that is not a certificate request in PEM format.
    const NOT_A_REQUEST_MESSAGE: &str = "PEM block type must be CERTIFICATE REQUEST";
    let pem = BASE64.decode(pem).unwrap_or_default();
    let (_, block) = x509_parser::pem::parse_x509_pem(&pem).map_err(|_| NOT_A_REQUEST_MESSAGE)?;
    if block.label != "CERTIFICATE REQUEST" {
        return Err(NOT_A_REQUEST_MESSAGE);
    }
    use x509_parser::prelude::FromDer;
    let parsed = x509_parser::certification_request::X509CertificationRequest::from_der(&block.contents);
    parsed.map(drop).map_err(|_| "asn1: structure error")
}

/// All values that `spec.usages` of a CertificateSigningRequest may contain.
pub(crate) const KEY_USAGES: &[&str] = &[
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

/// Checks `spec.usages` of a CertificateSigningRequest. `old` is the request before an update, or `None` on create. The
/// list must not be empty. Its values are checked only on create.
fn check_key_usages(spec: &Value, old: Option<&Value>, at: &ErrorPath, out: &mut FieldErrors) {
    let usages = list_at(spec, "usages");
    if usages.is_empty() {
        out.required(at, "");
    }
    if old.is_some() {
        return;
    }
    for (index, usage) in usages.iter().enumerate() {
        check_choice(usage, KEY_USAGES, &at.index(index), out);
    }
    let mut seen = SmallSet::default();
    for (index, usage) in usages.iter().enumerate() {
        if !seen.insert(usage) {
            out.duplicate(&at.index(index), usage);
        }
    }
}

/// Checks a signer name, such as `example.com/signer-name`.
fn check_signer_name(name: &str, at: &ErrorPath, out: &mut FieldErrors) {
    if name.is_empty() {
        return out.required(at, "");
    }
    let Some((domain, path)) = name.split_once('/').filter(|(_, path)| !path.contains('/')) else {
        let why = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        return out.invalid(at, name, why);
    };
    if 253 < domain.len() {
        out.too_long(at, 253);
    }
    for (part, rule) in
        [(domain, names::dns_label_errors as fn(&str) -> Vec<String>), (path, names::dns_subdomain_errors)]
    {
        if let Some((label, errors)) =
            part.split('.').map(|it| (it, rule(it))).find(|(_, errors)| !errors.is_empty())
        {
            for why in errors {
                out.invalid(at, part, &format!("validating label {label:?}: {why}"));
            }
        }
        if part == domain && !domain.contains('.') {
            out.invalid(at, domain, "should be a domain with at least two segments separated by dots");
        }
    }
    if 571 < name.len() {
        out.too_long(at, 571);
    }
}

/// Checks the conditions in the status of a CertificateSigningRequest: required fields, supported values, no
/// duplicates, and not both `Approved` and `Denied`.
fn check_signing_request_conditions(conditions: &[Value], at: &ErrorPath, out: &mut FieldErrors) {
    let mut seen = SmallSet::default();
    for (index, it) in conditions.iter().enumerate() {
        let list_at = at;
        let (at, kind) = (at.index(index), str_at(it, "type"));
        check_required(it, &["type", "status"], &at, out);
        let allowed: &[&str] = match kind {
            "Approved" | "Denied" | "Failed" => &["True"],
            _ => &["False", "True", "Unknown"],
        };
        if is_set(&it["status"]) {
            check_choice(&it["status"], allowed, &at.field("status"), out);
        }
        let opposite = match kind {
            "Approved" => "Denied",
            "Denied" => "Approved",
            _ => "",
        };
        if !opposite.is_empty() && seen.contains(opposite) {
            out.invalid(list_at, kind, "Approved and Denied conditions are mutually exclusive");
        }
        if !seen.insert(kind) {
            out.duplicate(&at.field("type"), kind);
        }
    }
}

/// Checks an update of the status of a CertificateSigningRequest. The conditions `Approved`, `Denied` and `Failed` must
/// not be removed. `Approved` and `Denied` may be added or changed only through `/approval`. The certificate may be set
/// only through `/status`. A certificate that is set must not be changed.
fn check_signing_request_status_update(
    new: &Value,
    old: &Value,
    subresource: Subresource,
    out: &mut FieldErrors,
) {
    let at = ErrorPath::new("status.conditions");
    let conditions_of_type = |it: &Value, kind: &str| -> Vec<Value> {
        list_at(&it["status"], "conditions").iter().filter(|it| str_at(it, "type") == kind).cloned().collect()
    };
    for kind in ["Approved", "Denied", "Failed"] {
        if conditions_of_type(new, kind).len() < conditions_of_type(old, kind).len() {
            out.forbidden(&at, &format!("updates may not remove a condition of type {kind:?}"));
        }
    }
    if subresource == Subresource::Status || subresource == Subresource::Whole {
        for kind in ["Approved", "Denied"] {
            let (now, before) = (conditions_of_type(new, kind), conditions_of_type(old, kind));
            if before.len() < now.len() {
                out.forbidden(&at, &format!("updates may not add a condition of type {kind:?}"));
            } else if before.len() == now.len() && before != now {
                out.forbidden(&at, &format!("updates may not modify a condition of type {kind:?}\n"));
            }
        }
    }
    let (now, before) = (&new["status"]["certificate"], &old["status"]["certificate"]);
    let at = ErrorPath::new("status.certificate");
    if now != before && subresource != Subresource::Status {
        out.forbidden(&at, "updates may not set certificate content");
    } else if now != before && has_field(&old["status"], "certificate") {
        out.forbidden(&at, "updates may not modify existing certificate content");
    }
}
