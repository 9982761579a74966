//! Validates the Pod Security labels of namespaces, and warns about existing pods that violate a stricter enforce
//! level.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::Value;

use super::level::{self, LevelVersion, NamespacePolicy};
use super::policy::{EvaluatedPod, evaluate_pod, format_reasons};
use super::{AdmissionAttributes, AdmissionOperation, PodSecurityConfiguration};
use crate::admission::AdmissionChain;
use crate::error::ApiError;
use crate::kinds::Kind;
use crate::request::RequestContext;
use crate::selector::ObjectSelector;
use crate::unstructured::{self, list_at, str_at};

/// Maximum number of existing pods that are checked against a new enforce level when a namespace is updated.
const CHECKED_PODS_MAX: usize = 3_000;
/// Maximum time spent on checking existing pods against a new enforce level when a namespace is updated.
const PODS_CHECK_TIMEOUT: Duration = Duration::from_secs(1);

/// Number of existing pods that are checked before the task yields to other tasks.
const PODS_PER_YIELD: usize = 64;

/// Checks the Pod Security labels of a written namespace.
///
/// Rule: a new namespace must have valid Pod Security labels. An update with invalid labels is accepted only if the
/// stored labels have the same errors. A stricter enforce level is accepted, with warnings about existing pods that
/// violate it. For an exempt namespace, the warning is that its labels have no effect.
/// Upstream: `ValidateNamespace`.
pub(super) async fn validate(
    admission: &AdmissionChain,
    context: &RequestContext,
    attributes: AdmissionAttributes<'_>,
    namespace: &Value,
) -> Result<(), ApiError> {
    let settings = admission.pod_security.get();
    let name = attributes.target.name.as_str();
    let (policy, causes) = settings.policy_of_parsed_namespace(namespace);
    let is_exempt = settings.exempt_namespaces.iter().any(|it| it == name);
    let invalid = || ApiError::invalid(attributes.target.kind, name, &causes);
    match attributes.operation {
        AdmissionOperation::Create if !causes.is_empty() => return Err(invalid()),
        AdmissionOperation::Create => {}
        AdmissionOperation::Update { old } => {
            let (before, old_causes) = settings.policy_of_parsed_namespace(old);
            let is_same = causes.len() == old_causes.len()
                && causes.iter().zip(&old_causes).all(|(a, b)| a.field == b.field && a.message == b.message);
            if !causes.is_empty() && !is_same {
                return Err(invalid());
            }
            if !may_be_stricter(policy.enforce, before.enforce) {
                return Ok(());
            }
        }
        AdmissionOperation::Delete => return Ok(()),
    }
    if is_exempt {
        if let Some(warning) = exempt_namespace_warning(settings, name, policy, namespace) {
            context.add_warning(warning);
        }
        return Ok(());
    }
    if !attributes.is_create() {
        let kind = Kind::builtin("", "v1", "pods");
        let (pods, _) = admission.storage.list(kind, Some(name), &ObjectSelector::default());
        for warning in evaluate_pods_in_namespace(settings, name, policy.enforce, &pods).await {
            context.add_warning(warning);
        }
    }
    Ok(())
}

/// Whether a pod that complies with the enforce level `old` may violate `new`. Assumes so if the policy version
/// changes, unless the new level is `privileged`.
fn may_be_stricter(new: LevelVersion, old: LevelVersion) -> bool {
    new != old && !new.is_privileged() && !(new.version == old.version && new.level < old.level)
}

/// Returns warnings about the existing pods of a namespace that violate a new enforce level.
///
/// Rule: the warnings are grouped by the violated controls, and name the first pod of each group. At most 3,000 pods
/// are checked, for at most one second, starting with pods without a controller and one pod of each controller. Pods
/// with an exempt runtime class are skipped.
/// Upstream: `EvaluatePodsInNamespace`.
async fn evaluate_pods_in_namespace(
    settings: &PodSecurityConfiguration,
    namespace: &str,
    enforce: LevelVersion,
    pods: &[Bytes],
) -> Vec<String> {
    let mut evaluation = NamespaceEvaluation {
        enforce,
        deadline: Instant::now() + PODS_CHECK_TIMEOUT,
        checked: 0,
        groups: BTreeMap::new(),
    };
    let mut total = pods.len();
    let mut controllers = BTreeSet::new();
    let mut replicas = Vec::new();
    for (at, stored) in pods.iter().enumerate() {
        if evaluation.is_limit_reached() {
            break;
        }
        if at % PODS_PER_YIELD == PODS_PER_YIELD - 1 {
            tokio::task::yield_now().await;
        }
        let pod = unstructured::parse_stored(stored);
        if settings.exempts_runtime_class(&pod["spec"]) {
            total -= 1;
            continue;
        }
        let owner = list_at(&pod["metadata"], "ownerReferences").iter().find(|it| it["controller"] == true);
        if owner.is_some_and(|it| !controllers.insert(str_at(it, "uid").to_owned())) {
            replicas.push(stored);
        } else {
            evaluation.check_pod(&pod);
        }
    }
    for (at, stored) in replicas.into_iter().enumerate() {
        if evaluation.is_limit_reached() {
            break;
        }
        if at % PODS_PER_YIELD == PODS_PER_YIELD - 1 {
            tokio::task::yield_now().await;
        }
        evaluation.check_pod(&unstructured::parse_stored(stored));
    }
    let NamespaceEvaluation { checked, groups, .. } = evaluation;
    let mut warnings = Vec::new();
    if checked < total {
        warnings.push(format!(
            "new PodSecurity enforce level only checked against the first {checked} of {total} existing pods"
        ));
    }
    if !groups.is_empty() {
        warnings.push(format!(
            "existing pods in namespace \"{namespace}\" violate the new PodSecurity enforce level \"{enforce}\""
        ));
    }
    let mut lines: Vec<_> = groups
        .into_iter()
        .map(|(reasons, (name, count))| match count {
            1 => format!("{name}: {reasons}"),
            2 => format!("{name} (and 1 other pod): {reasons}"),
            _ => format!("{name} (and {} other pods): {reasons}", count - 1),
        })
        .collect();
    lines.sort();
    warnings.append(&mut lines);
    warnings
}

/// A check of the existing pods of a namespace, with the violations found so far.
struct NamespaceEvaluation {
    /// The new enforce level that the pods are checked against.
    enforce: LevelVersion,
    /// Time at which the check stops, even if pods remain unchecked.
    deadline: Instant,
    /// Number of pods checked so far.
    checked: usize,
    /// The violating pods, grouped by the reasons of their violations. The value is the alphabetically first pod name
    /// and the number of pods in the group.
    groups: BTreeMap<String, (String, usize)>,
}

impl NamespaceEvaluation {
    /// Whether `CHECKED_PODS_MAX` or the deadline is reached.
    fn is_limit_reached(&self) -> bool {
        CHECKED_PODS_MAX <= self.checked || self.deadline <= Instant::now()
    }

    /// Checks one pod and records its violations.
    fn check_pod(&mut self, pod: &Value) {
        self.checked += 1;
        let found =
            evaluate_pod(self.enforce, EvaluatedPod { metadata: &pod["metadata"], spec: &pod["spec"] });
        if found.is_empty() {
            return;
        }
        let name = str_at(pod, "metadata.name");
        let (first, count) =
            self.groups.entry(format_reasons(&found)).or_insert_with(|| (name.to_owned(), 0));
        if name < first.as_str() {
            name.clone_into(first);
        }
        *count += 1;
    }
}

/// Returns a warning that the Pod Security labels of an exempt namespace have no effect. The warning lists the ignored
/// policy. Returns `None` if the policy is `privileged` or equals the default policy.
/// Upstream: `exemptNamespaceWarning`.
fn exempt_namespace_warning(
    settings: &PodSecurityConfiguration,
    name: &str,
    policy: NamespacePolicy,
    namespace: &Value,
) -> Option<String> {
    if policy.is_privileged() || policy.is_equivalent(settings.default_policy()) {
        return None;
    }
    let labels = &namespace["metadata"]["labels"];
    let modes = [
        ("enforce", policy.enforce, level::ENFORCE_LABEL, level::ENFORCE_VERSION_LABEL),
        ("audit", policy.audit, level::AUDIT_LABEL, level::AUDIT_VERSION_LABEL),
        ("warn", policy.warn, level::WARN_LABEL, level::WARN_VERSION_LABEL),
    ];
    let ignored_modes: Vec<_> = modes
        .into_iter()
        .filter(|(_, it, level, version)| {
            !it.is_privileged() && (labels[*level].is_string() || labels[*version].is_string())
        })
        .map(|(mode, it, ..)| format!("{mode}={it}"))
        .collect();
    Some(format!(
        "namespace \"{name}\" is exempt from Pod Security, and the policy ({}) will be ignored",
        ignored_modes.join(", ")
    ))
}
