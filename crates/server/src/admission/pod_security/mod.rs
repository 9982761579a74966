//! Pod Security admission: checks pods against the level that the labels of their namespace select. Upstream:
//! `PodSecurity`.
//!
//! `level` parses the labels. `policy` lists the controls of each level, which are in `baseline` and `restricted`.
//! `namespace` validates the labels when a namespace is written.

/// The controls of the `baseline` level.
mod baseline;
/// Pod Security levels and versions, and the namespace labels that select them.
mod level;
/// Validates the Pod Security labels of a namespace.
mod namespace;
/// Evaluates a pod against the controls of a level.
mod policy;
/// The controls of the `restricted` level.
mod restricted;
#[cfg(test)]
mod tests;

use std::sync::OnceLock;

use serde_json::Value;

use self::level::NamespacePolicy;
pub use self::level::{LevelVersion, PodSecurityLevel, PolicyVersion};
use self::policy::{EvaluatedPod, evaluate_pod, format_details};
use super::{AdmissionAttributes, AdmissionOperation};
use crate::admission::AdmissionChain;
use crate::error::ApiError;
use crate::kinds::{AdmissionPlugin, Kind, PodSecuritySubject};
use crate::metrics::{PodSecurityEvaluationLabels, PodSecurityExemptionLabels};
use crate::request::RequestContext;
use crate::small_map::SmallMap;
use crate::subresource::Subresource;
use crate::unstructured::{self, list_at, str_at};
use crate::validation::{FieldError, names};

/// Configuration of Pod Security admission: the defaults for modes that a namespace does not set by labels, and the
/// exemptions.
#[derive(Debug, Clone)]
pub struct PodSecurityConfiguration {
    /// Default level and version of the enforce mode, which refuses pods with violations.
    pub enforce: LevelVersion,
    /// Default level and version of the audit mode, which records violations in the audit log.
    pub audit: LevelVersion,
    /// Default level and version of the warn mode, which returns violations to the client as warnings.
    pub warn: LevelVersion,
    /// Names of the namespaces whose objects are not checked.
    pub exempt_namespaces: Vec<String>,
    /// Names of the users whose pods and pod templates are not checked.
    pub exempt_users: Vec<String>,
    /// Names of the runtime classes whose pods and pod templates are not checked.
    pub exempt_runtime_classes: Vec<String>,
}

/// Audit annotation: the enforce level and version that the pod was checked against.
const ENFORCE_POLICY_ANNOTATION: &str = "pod-security.kubernetes.io/enforce-policy";
/// Audit annotation: the violations of the audit level.
const AUDIT_VIOLATIONS_ANNOTATION: &str = "pod-security.kubernetes.io/audit-violations";
/// Audit annotation: why the request is exempt (`namespace`, `user` or `runtimeClass`).
const EXEMPT_ANNOTATION: &str = "pod-security.kubernetes.io/exempt";
/// Audit annotation: the errors in the Pod Security labels of the namespace.
const ERROR_ANNOTATION: &str = "pod-security.kubernetes.io/error";

/// Minor version of the Kubernetes API that this server implements.
const SERVED_KUBERNETES_MINOR: u64 = 36;

/// Holds the [`PodSecurityConfiguration`], which is set at most once, before the server starts.
#[derive(Debug, Default)]
pub(crate) struct PodSecurityCell(OnceLock<PodSecurityConfiguration>);

/// Configuration that applies if none is set: the `privileged` level, unless the labels of a namespace select another
/// one.
static DEFAULT_CONFIGURATION: PodSecurityConfiguration = PodSecurityConfiguration {
    enforce: LevelVersion::PRIVILEGED,
    audit: LevelVersion::PRIVILEGED,
    warn: LevelVersion::PRIVILEGED,
    exempt_namespaces: Vec::new(),
    exempt_users: Vec::new(),
    exempt_runtime_classes: Vec::new(),
};

impl PodSecurityCell {
    /// Sets the configuration. Returns an error message if an exempt name is invalid or if a configuration is set
    /// already.
    pub(crate) fn set_configuration(&self, settings: PodSecurityConfiguration) -> Result<(), String> {
        settings.check()?;
        self.0.set(settings).map_err(|_| "Pod Security is configured already".to_owned())
    }

    /// Returns the configuration that was set, or `DEFAULT_CONFIGURATION` if none was set.
    fn get(&self) -> &PodSecurityConfiguration {
        self.0.get().unwrap_or(&DEFAULT_CONFIGURATION)
    }
}

impl PodSecurityConfiguration {
    /// Returns an error message if an exempt name is invalid.
    pub(crate) fn check(&self) -> Result<(), String> {
        for (what, exempt, rule) in [
            ("namespace", &self.exempt_namespaces, Some(names::dns_label_name_errors as names::NameRule)),
            ("user", &self.exempt_users, None),
            (
                "runtime class",
                &self.exempt_runtime_classes,
                Some(names::dns_subdomain_name_errors as names::NameRule),
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
        Ok(())
    }

    /// Returns the policy of a namespace without Pod Security labels.
    fn default_policy(&self) -> NamespacePolicy {
        NamespacePolicy { enforce: self.enforce, audit: self.audit, warn: self.warn }
    }

    /// Whether the runtime class of a pod spec is exempt from Pod Security.
    fn exempts_runtime_class(&self, spec: &Value) -> bool {
        let class = str_at(spec, "runtimeClassName");
        !class.is_empty() && self.exempt_runtime_classes.iter().any(|it| it == class)
    }

    /// Returns the policy that the labels of a namespace select, and the errors in those labels. `namespace` is the
    /// stored JSON text, which is parsed only if it contains Pod Security labels.
    fn policy_of_stored_namespace(&self, namespace: &[u8]) -> (NamespacePolicy, Vec<FieldError>) {
        let is_labelled = std::str::from_utf8(namespace).is_ok_and(|it| it.contains(level::LABEL_PREFIX));
        if !is_labelled {
            return (self.default_policy(), Vec::new());
        }
        self.policy_of_parsed_namespace(&unstructured::parse_stored(namespace))
    }

    /// Returns the policy that the labels of a parsed namespace select, and the errors in those labels.
    fn policy_of_parsed_namespace(&self, namespace: &Value) -> (NamespacePolicy, Vec<FieldError>) {
        match namespace["metadata"]["labels"].as_object() {
            Some(labels) => NamespacePolicy::from_labels(labels, self.default_policy()),
            None => (self.default_policy(), Vec::new()),
        }
    }
}

/// Runs Pod Security admission on a written object. `subject` says whether `object` is a pod, an object with a pod
/// template, or a namespace. Writes to subresources are not checked, except `ephemeralcontainers` of a pod.
pub(super) async fn validate(
    admission: &AdmissionChain,
    context: &RequestContext,
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

/// Checks a pod against the policy of its namespace.
///
/// Rule: a pod that violates the enforce level of its namespace is refused when it is created, and when an update
/// changes an image or the number of containers. Other updates are allowed, and existing pods keep running. Exempt pods
/// are not checked.
/// Upstream: `ValidatePod`.
fn validate_pod(
    admission: &AdmissionChain,
    context: &RequestContext,
    attributes: AdmissionAttributes<'_>,
    pod: &Value,
) -> Result<(), ApiError> {
    let settings = admission.pod_security.get();
    if record_if_exempt(admission, settings, context, attributes) {
        return Ok(());
    }
    let (policy, causes) = namespace_policy(admission, settings, attributes);
    if causes.is_empty() && policy.is_privileged() {
        context.annotate_audit(ENFORCE_POLICY_ANNOTATION, "privileged:latest");
        count_evaluation(admission, attributes, "allow", "enforce", LevelVersion::PRIVILEGED);
        return Ok(());
    }
    if let AdmissionOperation::Update { old } = attributes.operation
        && !is_significant_update(pod, old)
    {
        return Ok(());
    }
    let subject = EvaluatedPod { metadata: &pod["metadata"], spec: &pod["spec"] };
    if record_if_exempt_runtime_class(admission, settings, context, attributes, subject) {
        return Ok(());
    }
    annotate_label_errors(context, &causes);
    context.annotate_audit(ENFORCE_POLICY_ANNOTATION, policy.enforce.to_string());
    let found = evaluate_pod(policy.enforce, subject);
    let refusal = if found.is_empty() {
        count_evaluation(admission, attributes, "allow", "enforce", policy.enforce);
        None
    } else {
        count_evaluation(admission, attributes, "deny", "enforce", policy.enforce);
        let why = format!("violates PodSecurity \"{}\": {}", policy.enforce, format_details(&found));
        Some(attributes.forbidden(pod, &why))
    };
    record_audit_violations(admission, context, attributes, policy.audit, subject);
    match refusal {
        // No warnings: the error already lists the violations.
        Some(refusal) => Err(refusal),
        None => {
            warn_about_violations(admission, context, attributes, policy.warn, subject);
            Ok(())
        }
    }
}

/// Checks the pod template of an object. `template_at` is the JSON pointer to the template.
///
/// Rule: an object with a pod template is never refused, because the pods that are created from the template are
/// checked themselves. Violations by the template are reported as warnings and in the audit log.
/// Upstream: `ValidatePodController`.
fn validate_template(
    admission: &AdmissionChain,
    context: &RequestContext,
    attributes: AdmissionAttributes<'_>,
    object: &Value,
    template_at: &str,
) {
    let settings = admission.pod_security.get();
    if record_if_exempt(admission, settings, context, attributes) {
        return;
    }
    let (policy, causes) = namespace_policy(admission, settings, attributes);
    if causes.is_empty() && policy.warn.is_privileged() && policy.audit.is_privileged() {
        return;
    }
    let Some(template) = object.pointer(template_at) else { return };
    let subject = EvaluatedPod { metadata: &template["metadata"], spec: &template["spec"] };
    if record_if_exempt_runtime_class(admission, settings, context, attributes, subject) {
        return;
    }
    annotate_label_errors(context, &causes);
    record_audit_violations(admission, context, attributes, policy.audit, subject);
    warn_about_violations(admission, context, attributes, policy.warn, subject);
}

/// Checks a pod against the audit level `level`, and records its violations in the audit log and in the metrics.
fn record_audit_violations(
    admission: &AdmissionChain,
    context: &RequestContext,
    attributes: AdmissionAttributes<'_>,
    level: LevelVersion,
    pod: EvaluatedPod<'_>,
) {
    if let Some(message) = check_mode(admission, attributes, "audit", level, pod) {
        context.annotate_audit(AUDIT_VIOLATIONS_ANNOTATION, message);
    }
}

/// Checks a pod against the warn level `level`. Reports its violations to the client as a warning and counts them in
/// the metrics.
fn warn_about_violations(
    admission: &AdmissionChain,
    context: &RequestContext,
    attributes: AdmissionAttributes<'_>,
    level: LevelVersion,
    pod: EvaluatedPod<'_>,
) {
    if let Some(message) = check_mode(admission, attributes, "warn", level, pod) {
        context.add_warning(message);
    }
}

/// Checks a pod against the level of the mode `audit` or `warn`, whose violations do not cause a refusal. If the pod
/// violates the level, counts the evaluation in the metrics and returns the message.
fn check_mode(
    admission: &AdmissionChain,
    attributes: AdmissionAttributes<'_>,
    mode: &'static str,
    level: LevelVersion,
    pod: EvaluatedPod<'_>,
) -> Option<String> {
    let found = evaluate_pod(level, pod);
    if found.is_empty() {
        return None;
    }
    count_evaluation(admission, attributes, "deny", mode, level);
    Some(format!("would violate PodSecurity \"{level}\": {}", format_details(&found)))
}

/// Returns the policy of the namespace of the request, and the errors in the namespace's labels.
fn namespace_policy(
    admission: &AdmissionChain,
    settings: &PodSecurityConfiguration,
    attributes: AdmissionAttributes<'_>,
) -> (NamespacePolicy, Vec<FieldError>) {
    match admission.storage.find(Kind::namespace_kind(), None, attributes.namespace()) {
        Some(namespace) => settings.policy_of_stored_namespace(&namespace),
        None => (settings.default_policy(), Vec::new()),
    }
}

/// Returns whether the namespace or the user of the request is exempt from Pod Security. Records an exemption in the
/// audit log and in the metrics.
///
/// Rule: requests in an exempt namespace or by an exempt user are neither checked nor warned about. The audit log
/// records the exemption.
/// Upstream: `exemptNamespace`, `exemptUser`.
fn record_if_exempt(
    admission: &AdmissionChain,
    settings: &PodSecurityConfiguration,
    context: &RequestContext,
    attributes: AdmissionAttributes<'_>,
) -> bool {
    let why = if settings.exempt_namespaces.iter().any(|it| it == attributes.namespace()) {
        "namespace"
    } else if settings.exempt_users.contains(&context.user.name) {
        "user"
    } else {
        return false;
    };
    record_exemption(admission, context, attributes, why);
    true
}

/// Returns whether the pod's runtime class is exempt from Pod Security. Records an exemption in the audit log and in
/// the metrics.
fn record_if_exempt_runtime_class(
    admission: &AdmissionChain,
    settings: &PodSecurityConfiguration,
    context: &RequestContext,
    attributes: AdmissionAttributes<'_>,
    pod: EvaluatedPod<'_>,
) -> bool {
    let is_exempt = settings.exempts_runtime_class(pod.spec);
    if is_exempt {
        record_exemption(admission, context, attributes, "runtimeClass");
    }
    is_exempt
}

/// Records an exemption in the audit log and in the metrics. `why` is `namespace`, `user` or `runtimeClass`.
fn record_exemption(
    admission: &AdmissionChain,
    context: &RequestContext,
    attributes: AdmissionAttributes<'_>,
    why: &'static str,
) {
    context.annotate_audit(EXEMPT_ANNOTATION, why);
    let (request_operation, resource, subresource) = metric_labels(attributes);
    admission.metrics.count_pod_security_exemption(&PodSecurityExemptionLabels {
        request_operation,
        resource,
        subresource,
    });
}

/// Whether an update of a pod requires a new check: it changes an image, changes the number of regular or init
/// containers, or adds an ephemeral container. Upstream: `isSignificantPodUpdate`.
fn is_significant_update(pod: &Value, old: &Value) -> bool {
    let lists = |name: &str| (list_at(&pod["spec"], name), list_at(&old["spec"], name));
    let changed = ["containers", "initContainers"].into_iter().any(|name| {
        let (new, old) = lists(name);
        new.len() != old.len()
            || new.iter().zip(old).any(|(new, old)| str_at(new, "image") != str_at(old, "image"))
    });
    let (new, old) = lists("ephemeralContainers");
    let old_by_name: SmallMap<&Value, &Value> = old.iter().map(|it| (&it["name"], it)).collect();
    changed
        || new.iter().any(|new| {
            let before = old_by_name.get(&new["name"]);
            before.is_none_or(|before| str_at(before, "image") != str_at(new, "image"))
        })
}

/// Records the errors in a namespace's Pod Security labels (`causes`) in the audit log.
fn annotate_label_errors(context: &RequestContext, causes: &[FieldError]) {
    let lines: Vec<_> = causes.iter().map(|it| format!("{}: {}", it.field, it.message)).collect();
    match &lines[..] {
        [] => {}
        [one] => context.annotate_audit(ERROR_ANNOTATION, format!("Failed to parse policy: {one}")),
        all => {
            context.annotate_audit(ERROR_ANNOTATION, format!("Failed to parse policy: [{}]", all.join(", ")))
        }
    }
}

/// Counts one evaluation of a pod or template in the metrics. `decision` is `allow` or `deny`. `mode` is `enforce`,
/// `audit` or `warn`.
fn count_evaluation(
    admission: &AdmissionChain,
    attributes: AdmissionAttributes<'_>,
    decision: &'static str,
    mode: &'static str,
    level: LevelVersion,
) {
    let (request_operation, resource, subresource) = metric_labels(attributes);
    admission.metrics.count_pod_security_evaluation(&PodSecurityEvaluationLabels {
        decision,
        policy_level: level.level.name(),
        policy_version: match level.version {
            PolicyVersion::Minor(minor) if !level.is_privileged() && SERVED_KUBERNETES_MINOR < minor => {
                "future".into()
            }
            PolicyVersion::Minor(_) if !level.is_privileged() => level.version.to_string().into(),
            _ => "latest".into(),
        },
        mode,
        request_operation,
        resource,
        subresource,
    });
}

/// Returns the metric labels of a request: operation, resource, subresource.
fn metric_labels(attributes: AdmissionAttributes<'_>) -> (&'static str, &'static str, &'static str) {
    let operation = if attributes.is_create() { "create" } else { "update" };
    let is_pod = attributes
        .target
        .kind
        .admission_plugins
        .contains(&AdmissionPlugin::PodSecurity(PodSecuritySubject::Pod));
    let resource = if is_pod { "pod" } else { "controller" };
    let subresource = if attributes.target.subresource == Subresource::EphemeralContainers {
        "ephemeralcontainers"
    } else {
        ""
    };
    (operation, resource, subresource)
}
