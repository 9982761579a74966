//! Pod Security admission: checks pods against the level selected by their namespace's labels. Upstream: `PodSecurity`.

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

/// Configuration of Pod Security admission: the policy of namespaces without labels, and the exemptions.
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

/// Minor version of the Kubernetes API that this server implements.
const SERVED_MINOR: u64 = 36;

/// The configured `PodSecurity`. Set at most once, before the server starts; the default is permissive.
#[derive(Debug, Default)]
pub(crate) struct Settings(OnceLock<PodSecurity>);

/// The configuration when none is set: level privileged everywhere.
static PERMISSIVE: PodSecurity = PodSecurity {
    enforce: LevelVersion::PRIVILEGED,
    audit: LevelVersion::PRIVILEGED,
    warn: LevelVersion::PRIVILEGED,
    exempt_namespaces: Vec::new(),
    exempt_users: Vec::new(),
    exempt_runtime_classes: Vec::new(),
};

impl Settings {
    /// Sets the configuration. Fails if an exempt name is invalid or if it was set before.
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
                let errors = rule.map(|it| it(name, false)).unwrap_or_default();
                if let Some(why) = errors.first() {
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

    /// The policy selected by the labels of a stored namespace, and the errors in those labels. A namespace without Pod
    /// Security labels is not parsed.
    fn policy_of(&self, namespace: &[u8]) -> (Policy, Vec<FieldError>) {
        let is_labelled = std::str::from_utf8(namespace).is_ok_and(|it| it.contains(level::PREFIX));
        if !is_labelled {
            return (self.defaults(), Vec::new());
        }
        self.policy_of_object(&unstructured::parse(namespace))
    }

    /// The policy selected by the labels of a parsed namespace, and the errors in those labels.
    fn policy_of_object(&self, namespace: &Value) -> (Policy, Vec<FieldError>) {
        match namespace["metadata"]["labels"].as_object() {
            Some(labels) => Policy::of_labels(labels, self.defaults()),
            None => (self.defaults(), Vec::new()),
        }
    }
}

/// Checks a pod, an object with a pod template, or a namespace, depending on `subject`.
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

/// Rule: a pod that violates the enforce level of its namespace is refused when it is created, and when an update
/// changes an image or adds an ephemeral container. Running pods stay, and other updates of them pass.
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
    let found = violations(policy.enforce, subject);
    let refusal = if found.is_empty() {
        count(admission, attributes, "allow", "enforce", policy.enforce);
        None
    } else {
        count(admission, attributes, "deny", "enforce", policy.enforce);
        let why = format!("violates PodSecurity \"{}\": {}", policy.enforce, details(&found));
        Some(attributes.forbid(pod, &why))
    };
    audit(admission, context, attributes, policy.audit, subject);
    match refusal {
        // No warnings: the error already lists the violations.
        Some(refusal) => Err(refusal),
        None => {
            warn(admission, context, attributes, policy.warn, subject);
            Ok(())
        }
    }
}

/// Rule: an object with a pod template is never refused. Violations are reported as warnings and in the audit log; the
/// pods created from it are refused.
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

/// Records violations of the audit level in the audit log.
fn audit(
    admission: &Admission,
    context: &Context,
    attributes: AdmissionAttributes<'_>,
    level: LevelVersion,
    pod: Pod<'_>,
) {
    let found = violations(level, pod);
    if !found.is_empty() {
        context.annotate_audit(AUDIT_VIOLATIONS, would_violate(level, &details(&found)));
        count(admission, attributes, "deny", "audit", level);
    }
}

/// Returns violations of the warn level to the client as a warning.
fn warn(
    admission: &Admission,
    context: &Context,
    attributes: AdmissionAttributes<'_>,
    level: LevelVersion,
    pod: Pod<'_>,
) {
    let found = violations(level, pod);
    if !found.is_empty() {
        context.warn(would_violate(level, &details(&found)));
        count(admission, attributes, "deny", "warn", level);
    }
}

fn would_violate(level: LevelVersion, details: &str) -> String {
    format!("would violate PodSecurity \"{level}\": {details}")
}

/// The policy of the namespace in which an object is written, and the errors in the namespace's labels.
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

/// Rule: requests in an exempt namespace or by an exempt user are neither checked nor warned about; the audit log
/// records the exemption.
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

/// Whether the pod's runtime class is exempt. Records the exemption.
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

/// Records an exemption in the audit log and in the metrics.
fn exempt(admission: &Admission, context: &Context, attributes: AdmissionAttributes<'_>, why: &'static str) {
    context.annotate_audit(EXEMPT, why);
    let (request_operation, resource, subresource) = labels_of(attributes);
    admission.metrics.pod_security_exempted(&PodSecurityExemption {
        request_operation,
        resource,
        subresource,
    });
}

/// Whether an update changes fields that the controls check. Of those fields, only images can change and ephemeral
/// containers can be added. Upstream: `isSignificantPodUpdate`.
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

/// Records errors in a namespace's Pod Security labels in the audit log.
fn annotate_unreadable(context: &Context, causes: &[FieldError]) {
    let lines: Vec<_> = causes.iter().map(|it| format!("{}: {}", it.field, it.message)).collect();
    match &lines[..] {
        [] => {}
        [one] => context.annotate_audit(ERROR, format!("Failed to parse policy: {one}")),
        all => context.annotate_audit(ERROR, format!("Failed to parse policy: [{}]", all.join(", "))),
    }
}

/// Counts an evaluation in the metrics.
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

/// Metric labels of a request: operation, resource, subresource.
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
