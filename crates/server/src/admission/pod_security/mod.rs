//! Pod Security admission: pods are held to the level that their namespace's labels select. Upstream: `PodSecurity`.

mod baseline;
mod level;
mod namespace;
mod policy;
mod restricted;
#[cfg(test)]
mod tests;

use std::sync::OnceLock;

use serde_json::Value;

use self::level::Policy;
pub use self::level::{Level, LevelVersion, Version};
use self::policy::{Pod, details, violations};
use super::{AdmissionAttributes, Operation};
use crate::admission::Admission;
use crate::error::ApiError;
use crate::kinds::{AdmissionPlugin, Kind, PodSecuritySubject};
use crate::metrics::{PodSecurityEvaluation, PodSecurityExemption};
use crate::request::Context;
use crate::subresource::Subresource;
use crate::unstructured::{self, list, str_at};
use crate::validation::{FieldError, names};

/// The policy of namespaces without labels, and the exemptions from every policy.
#[derive(Debug, Clone)]
pub struct PodSecurity {
    pub enforce: LevelVersion,
    pub audit: LevelVersion,
    pub warn: LevelVersion,
    pub exempt_namespaces: Vec<String>,
    pub exempt_users: Vec<String>,
    pub exempt_runtime_classes: Vec<String>,
}

// Annotations in the audit log.
const ENFORCE_POLICY: &str = "pod-security.kubernetes.io/enforce-policy";
const AUDIT_VIOLATIONS: &str = "pod-security.kubernetes.io/audit-violations";
const EXEMPT: &str = "pod-security.kubernetes.io/exempt";
const ERROR: &str = "pod-security.kubernetes.io/error";

/// The minor version of the API that is served.
const SERVED_MINOR: u64 = 36;

/// Set at most once, before the server serves.
#[derive(Debug, Default)]
pub(crate) struct Settings(OnceLock<PodSecurity>);

static PERMISSIVE: PodSecurity = PodSecurity {
    enforce: LevelVersion::PRIVILEGED,
    audit: LevelVersion::PRIVILEGED,
    warn: LevelVersion::PRIVILEGED,
    exempt_namespaces: Vec::new(),
    exempt_users: Vec::new(),
    exempt_runtime_classes: Vec::new(),
};

impl Settings {
    /// `Err` says what is wrong with the exemptions.
    pub(crate) fn set(&self, settings: PodSecurity) -> Result<(), String> {
        for (what, exempt, rule) in [
            ("namespace", &settings.exempt_namespaces, Some(names::label_name as names::NameRule)),
            ("user", &settings.exempt_users, None),
            (
                "runtime class",
                &settings.exempt_runtime_classes,
                Some(names::subdomain_name as names::NameRule),
            ),
        ] {
            for name in exempt {
                let wrong = rule.map(|it| it(name, false)).unwrap_or_default();
                if let Some(why) = wrong.first() {
                    return Err(format!("invalid {what} name {name:?}: {why}"));
                }
                if name.is_empty() {
                    return Err(format!("empty {what} name"));
                }
            }
        }
        self.0.set(settings).map_err(|_| "Pod Security is configured already".to_owned())
    }

    fn get(&self) -> &PodSecurity {
        self.0.get().unwrap_or(&PERMISSIVE)
    }
}

impl PodSecurity {
    fn defaults(&self) -> Policy {
        Policy { enforce: self.enforce, audit: self.audit, warn: self.warn }
    }

    fn exempts_runtime_class(&self, spec: &Value) -> bool {
        let class = str_at(spec, "runtimeClassName");
        !class.is_empty() && self.exempt_runtime_classes.iter().any(|it| it == class)
    }

    /// The policy that the labels of a stored namespace select. Most namespaces have no such labels, and are not parsed.
    fn policy_of(&self, namespace: &[u8]) -> (Policy, Vec<FieldError>) {
        let is_labelled = std::str::from_utf8(namespace).is_ok_and(|it| it.contains(level::PREFIX));
        if !is_labelled {
            return (self.defaults(), Vec::new());
        }
        self.policy_of_object(&unstructured::parse(namespace))
    }

    fn policy_of_object(&self, namespace: &Value) -> (Policy, Vec<FieldError>) {
        match namespace["metadata"]["labels"].as_object() {
            Some(labels) => Policy::of_labels(labels, self.defaults()),
            None => (self.defaults(), Vec::new()),
        }
    }
}

pub(super) async fn validate(
    admission: &Admission,
    context: &Context,
    attributes: AdmissionAttributes<'_>,
    subject: PodSecuritySubject,
    object: &Value,
) -> Result<(), ApiError> {
    match (subject, attributes.target.subresource) {
        (PodSecuritySubject::Namespace, Subresource::Whole) => {
            namespace::validate(admission, context, attributes, object).await
        }
        (PodSecuritySubject::Pod, Subresource::Whole | Subresource::EphemeralContainers) => {
            validate_pod(admission, context, attributes, object)
        }
        (PodSecuritySubject::Template(at), Subresource::Whole) => {
            validate_template(admission, context, attributes, object, at);
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Rule: a pod that violates the enforce level of its namespace is refused when it is created, and when an update changes an
/// image or adds an ephemeral container. Pods that run already stay, and their other updates pass.
/// Upstream: `ValidatePod`.
fn validate_pod(
    admission: &Admission,
    context: &Context,
    attributes: AdmissionAttributes<'_>,
    pod: &Value,
) -> Result<(), ApiError> {
    let settings = admission.pod_security.get();
    if is_exempt(admission, settings, context, attributes) {
        return Ok(());
    }
    let (policy, causes) = policy_of(admission, settings, attributes);
    if causes.is_empty() && policy.is_privileged() {
        context.annotate_audit(ENFORCE_POLICY, "privileged:latest");
        count(admission, attributes, "allow", "enforce", LevelVersion::PRIVILEGED);
        return Ok(());
    }
    if let Operation::Update { old } = attributes.operation
        && !is_significant(pod, old)
    {
        return Ok(());
    }
    let subject = Pod { metadata: &pod["metadata"], spec: &pod["spec"] };
    if is_exempt_class(admission, settings, context, attributes, subject) {
        return Ok(());
    }
    annotate_unreadable(context, &causes);
    context.annotate_audit(ENFORCE_POLICY, policy.enforce.to_string());
    let wrong = violations(policy.enforce, subject);
    let refusal = if wrong.is_empty() {
        count(admission, attributes, "allow", "enforce", policy.enforce);
        None
    } else {
        count(admission, attributes, "deny", "enforce", policy.enforce);
        let why = format!("violates PodSecurity \"{}\": {}", policy.enforce, details(&wrong));
        Some(attributes.forbid(pod, &why))
    };
    audit(admission, context, attributes, policy.audit, subject);
    match refusal {
        // The refusal says it already.
        Some(refusal) => Err(refusal),
        None => {
            warn(admission, context, attributes, policy.warn, subject);
            Ok(())
        }
    }
}

/// Rule: an object with a pod template is never refused: violations are warned about and audited, and its pods are refused.
/// Upstream: `ValidatePodController`.
fn validate_template(
    admission: &Admission,
    context: &Context,
    attributes: AdmissionAttributes<'_>,
    object: &Value,
    template_at: &str,
) {
    let settings = admission.pod_security.get();
    if is_exempt(admission, settings, context, attributes) {
        return;
    }
    let (policy, causes) = policy_of(admission, settings, attributes);
    if causes.is_empty() && policy.warn.is_privileged() && policy.audit.is_privileged() {
        return;
    }
    let Some(template) = object.pointer(template_at) else { return };
    let subject = Pod { metadata: &template["metadata"], spec: &template["spec"] };
    if is_exempt_class(admission, settings, context, attributes, subject) {
        return;
    }
    annotate_unreadable(context, &causes);
    audit(admission, context, attributes, policy.audit, subject);
    warn(admission, context, attributes, policy.warn, subject);
}

fn audit(
    admission: &Admission,
    context: &Context,
    attributes: AdmissionAttributes<'_>,
    level: LevelVersion,
    pod: Pod<'_>,
) {
    let wrong = violations(level, pod);
    if !wrong.is_empty() {
        context.annotate_audit(AUDIT_VIOLATIONS, would_violate(level, &details(&wrong)));
        count(admission, attributes, "deny", "audit", level);
    }
}

fn warn(
    admission: &Admission,
    context: &Context,
    attributes: AdmissionAttributes<'_>,
    level: LevelVersion,
    pod: Pod<'_>,
) {
    let wrong = violations(level, pod);
    if !wrong.is_empty() {
        context.warn(would_violate(level, &details(&wrong)));
        count(admission, attributes, "deny", "warn", level);
    }
}

fn would_violate(level: LevelVersion, details: &str) -> String {
    format!("would violate PodSecurity \"{level}\": {details}")
}

/// The policy of the namespace of the object that is written, and what is wrong with its labels.
fn policy_of(
    admission: &Admission,
    settings: &PodSecurity,
    attributes: AdmissionAttributes<'_>,
) -> (Policy, Vec<FieldError>) {
    match admission.storage.peek(Kind::namespace(), None, attributes.namespace()) {
        Some(namespace) => settings.policy_of(&namespace),
        None => (settings.defaults(), Vec::new()),
    }
}

/// Rule: requests in an exempt namespace or by an exempt user are neither checked nor warned about; the audit log says why.
/// Upstream: `exemptNamespace`, `exemptUser`.
fn is_exempt(
    admission: &Admission,
    settings: &PodSecurity,
    context: &Context,
    attributes: AdmissionAttributes<'_>,
) -> bool {
    let why = if settings.exempt_namespaces.iter().any(|it| it == attributes.namespace()) {
        "namespace"
    } else if settings.exempt_users.contains(&context.user.name) {
        "user"
    } else {
        return false;
    };
    exempt(admission, context, attributes, why);
    true
}

fn is_exempt_class(
    admission: &Admission,
    settings: &PodSecurity,
    context: &Context,
    attributes: AdmissionAttributes<'_>,
    pod: Pod<'_>,
) -> bool {
    let is_exempt = settings.exempts_runtime_class(pod.spec);
    if is_exempt {
        exempt(admission, context, attributes, "runtimeClass");
    }
    is_exempt
}

fn exempt(admission: &Admission, context: &Context, attributes: AdmissionAttributes<'_>, why: &'static str) {
    context.annotate_audit(EXEMPT, why);
    let (request_operation, resource, subresource) = labels_of(attributes);
    admission.metrics.pod_security_exempted(&PodSecurityExemption {
        request_operation,
        resource,
        subresource,
    });
}

/// Whether an update changes what the controls look at. Of those fields only images may change, and ephemeral containers be
/// added. Upstream: `isSignificantPodUpdate`.
fn is_significant(pod: &Value, old: &Value) -> bool {
    let lists = |name: &str| (list(&pod["spec"], name), list(&old["spec"], name));
    let changed = ["containers", "initContainers"].into_iter().any(|name| {
        let (new, old) = lists(name);
        new.len() != old.len()
            || new.iter().zip(old).any(|(new, old)| str_at(new, "image") != str_at(old, "image"))
    });
    let (new, old) = lists("ephemeralContainers");
    changed
        || new.iter().any(|new| {
            let before = old.iter().find(|it| it["name"] == new["name"]);
            before.is_none_or(|before| str_at(before, "image") != str_at(new, "image"))
        })
}

fn annotate_unreadable(context: &Context, causes: &[FieldError]) {
    let lines: Vec<_> = causes.iter().map(|it| format!("{}: {}", it.field, it.message)).collect();
    match &lines[..] {
        [] => {}
        [one] => context.annotate_audit(ERROR, format!("Failed to parse policy: {one}")),
        all => context.annotate_audit(ERROR, format!("Failed to parse policy: [{}]", all.join(", "))),
    }
}

fn count(
    admission: &Admission,
    attributes: AdmissionAttributes<'_>,
    decision: &'static str,
    mode: &'static str,
    level: LevelVersion,
) {
    let (request_operation, resource, subresource) = labels_of(attributes);
    admission.metrics.pod_security_evaluated(&PodSecurityEvaluation {
        decision,
        policy_level: level.level.name(),
        policy_version: match level.version {
            Version::Minor(minor) if !level.is_privileged() && SERVED_MINOR < minor => "future".into(),
            Version::Minor(_) if !level.is_privileged() => level.version.to_string().into(),
            _ => "latest".into(),
        },
        mode,
        request_operation,
        resource,
        subresource,
    });
}

/// The labels of a request in metrics: operation, resource, subresource.
fn labels_of(attributes: AdmissionAttributes<'_>) -> (&'static str, &'static str, &'static str) {
    let operation = if attributes.is_create() { "create" } else { "update" };
    let is_pod =
        attributes.target.kind.plugins.contains(&AdmissionPlugin::PodSecurity(PodSecuritySubject::Pod));
    let resource = if is_pod { "pod" } else { "controller" };
    let subresource = if attributes.target.subresource == Subresource::EphemeralContainers {
        "ephemeralcontainers"
    } else {
        ""
    };
    (operation, resource, subresource)
}
