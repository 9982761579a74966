//! The controls of each Pod Security level and policy version, and their evaluation. The evaluation is a pure function
//! of the metadata and spec of a pod or pod template. Upstream: `k8s.io/pod-security-admission/policy`.

use std::collections::BTreeSet;

use serde_json::Value;

use super::level::{LevelVersion, PodSecurityLevel, PolicyVersion};
use super::{baseline, restricted};
use crate::unstructured::{list_at, str_at};

/// Metadata and spec of the pod or pod template that the controls check.
#[derive(Debug, Clone, Copy)]
pub(super) struct EvaluatedPod<'a> {
    pub(super) metadata: &'a Value,
    pub(super) spec: &'a Value,
}

/// The violation of one control by a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PolicyViolation {
    /// Short description of the violation, such as `hostPath volumes`.
    pub(super) reason: &'static str,
    /// The offending containers or volumes and the field values that the control forbids, as text for a message.
    pub(super) detail: String,
}

/// Function that checks a pod against one control. Returns the violation, or `None` if the pod complies.
pub(super) type PolicyCheck = fn(EvaluatedPod<'_>) -> Option<PolicyViolation>;

/// One control of the Pod Security Standards.
#[derive(Debug)]
struct PolicyControl {
    /// Name of the control in upstream's registry, such as `hostPorts`.
    id: &'static str,
    /// The lowest level that includes the control.
    level: PodSecurityLevel,
    /// The check functions of this control, oldest first. Each has the minor version of Kubernetes from which on it
    /// applies, until the next one applies.
    revisions: &'static [(u64, PolicyCheck)],
    /// ID of the control of the `baseline` level that this control of the `restricted` level replaces, if any.
    replaces_baseline: Option<&'static str>,
}

/// Builds a control of the `baseline` level.
const fn baseline_control(id: &'static str, revisions: &'static [(u64, PolicyCheck)]) -> PolicyControl {
    PolicyControl { id, level: PodSecurityLevel::Baseline, revisions, replaces_baseline: None }
}

/// Builds a control of the `restricted` level. `replaces` is the ID of the `baseline` control that it replaces, if any.
const fn restricted_control(
    id: &'static str,
    revisions: &'static [(u64, PolicyCheck)],
    replaces: Option<&'static str>,
) -> PolicyControl {
    PolicyControl { id, level: PodSecurityLevel::Restricted, revisions, replaces_baseline: replaces }
}

/// All controls: those of the `baseline` level and then those of the `restricted` level, each sorted by ID. Violations
/// are listed in this order.
static POLICY_CONTROLS: &[PolicyControl] = &[
    baseline_control("appArmorProfile", &[(0, baseline::check_app_armor_profile)]),
    baseline_control("capabilities_baseline", &[(0, baseline::check_capabilities)]),
    baseline_control("hostNamespaces", &[(0, baseline::check_host_namespaces)]),
    baseline_control("hostPathVolumes", &[(0, baseline::check_host_path_volumes)]),
    baseline_control("hostPorts", &[(0, baseline::check_host_ports)]),
    baseline_control("hostProbesAndHostLifecycle", &[(34, baseline::check_host_probes_and_lifecycle)]),
    baseline_control("privileged", &[(0, baseline::check_privileged)]),
    baseline_control(
        "procMount",
        &[(0, baseline::check_proc_mount), (35, baseline::check_proc_mount_unless_user_namespace)],
    ),
    baseline_control(
        "seLinuxOptions",
        &[(0, baseline::check_se_linux_options_1_0), (31, baseline::check_se_linux_options_1_31)],
    ),
    baseline_control(
        "seccompProfile_baseline",
        &[(0, baseline::check_seccomp_annotations), (19, baseline::check_seccomp_profile)],
    ),
    baseline_control(
        "sysctls",
        &[
            (0, baseline::check_sysctls_1_0),
            (27, baseline::check_sysctls_1_27),
            (29, baseline::check_sysctls_1_29),
            (32, baseline::check_sysctls_1_32),
        ],
    ),
    baseline_control("windowsHostProcess", &[(0, baseline::check_windows_host_process)]),
    restricted_control(
        "allowPrivilegeEscalation",
        &[
            (8, restricted::check_allow_privilege_escalation),
            (25, restricted::check_allow_privilege_escalation_unless_windows),
        ],
        None,
    ),
    restricted_control(
        "capabilities_restricted",
        &[(22, restricted::check_capabilities), (25, restricted::check_capabilities_unless_windows)],
        Some("capabilities_baseline"),
    ),
    // Until 1.35 the baseline control had no exception for user namespaces.
    restricted_control("procMount_restricted", &[(35, baseline::check_proc_mount)], Some("procMount")),
    restricted_control("restrictedVolumes", &[(0, restricted::check_volume_types)], Some("hostPathVolumes")),
    restricted_control(
        "runAsNonRoot",
        &[
            (0, restricted::check_run_as_non_root),
            (35, restricted::check_run_as_non_root_unless_user_namespace),
        ],
        None,
    ),
    restricted_control(
        "runAsUser",
        &[(23, restricted::check_run_as_user), (35, restricted::check_run_as_user_unless_user_namespace)],
        None,
    ),
    restricted_control(
        "seccompProfile_restricted",
        &[(19, restricted::check_seccomp_profile), (25, restricted::check_seccomp_profile_unless_windows)],
        Some("seccompProfile_baseline"),
    ),
];

impl PolicyControl {
    /// Returns the newest check of the control that is not newer than `version`, or `None` if the control does not
    /// exist in that version.
    fn check_for_version(&self, version: PolicyVersion) -> Option<PolicyCheck> {
        self.revisions
            .iter()
            .rev()
            .find(|(since, _)| PolicyVersion::Minor(*since) <= version)
            .map(|(_, check)| *check)
    }
}

/// Checks a pod against a level and version. Returns one violation for each control that the pod violates.
///
/// Rule: a level includes the controls of all lower levels. Each control is checked in the revision for the policy
/// version. A `restricted` control replaces the `baseline` control that it includes.
/// Upstream: `checkRegistry.EvaluatePod`.
pub(super) fn evaluate_pod(policy: LevelVersion, pod: EvaluatedPod<'_>) -> Vec<PolicyViolation> {
    let LevelVersion { level, version } = policy;
    let active = || POLICY_CONTROLS.iter().filter(|it| it.level <= level);
    let is_replaced = |control: &PolicyControl| {
        active().any(|it| it.replaces_baseline == Some(control.id) && it.check_for_version(version).is_some())
    };
    active()
        .filter(|control| !is_replaced(control))
        .filter_map(|control| control.check_for_version(version).and_then(|check| check(pod)))
        .collect()
}

/// Formats violations with details: `privileged (container "c" must not set …), host namespaces (…)`.
pub(super) fn format_details(violations: &[PolicyViolation]) -> String {
    let text = |it: &PolicyViolation| format!("{} ({})", it.reason, it.detail);
    violations.iter().map(text).collect::<Vec<_>>().join(", ")
}

/// Formats violations without details: `privileged, host namespaces`.
pub(super) fn format_reasons(violations: &[PolicyViolation]) -> String {
    violations.iter().map(|it| it.reason).collect::<Vec<_>>().join(", ")
}

impl<'a> EvaluatedPod<'a> {
    /// Returns all containers: init containers first, then regular ones, then ephemeral ones.
    pub(super) fn containers(self) -> impl Iterator<Item = &'a Value> {
        ["initContainers", "containers", "ephemeralContainers"]
            .into_iter()
            .flat_map(move |it| list_at(self.spec, it))
    }

    /// Returns the names of the containers for whose security context `is_bad` returns true. The security context is
    /// null for a container that has none.
    pub(super) fn container_names_where(self, mut is_bad: impl FnMut(&'a Value) -> bool) -> Vec<&'a str> {
        self.containers().filter(|it| is_bad(&it["securityContext"])).map(|it| str_at(it, "name")).collect()
    }

    /// Returns the keys and values of the pod's annotations.
    pub(super) fn annotations(self) -> impl Iterator<Item = (&'a str, &'a str)> {
        let annotations = self.metadata["annotations"].as_object();
        annotations
            .into_iter()
            .flatten()
            .map(|(name, value)| (name.as_str(), value.as_str().unwrap_or_default()))
    }

    /// Whether the pod sets `os.name: windows`.
    pub(super) fn is_windows(self) -> bool {
        self.spec["os"]["name"] == "windows"
    }

    /// Whether the pod runs in a user namespace (`hostUsers: false`).
    pub(super) fn has_user_namespace(self) -> bool {
        self.spec["hostUsers"] == false
    }
}

/// Quotes and joins strings: `"a", "b"`.
pub(super) fn quote_list<'a>(items: impl IntoIterator<Item = &'a str>) -> String {
    items.into_iter().map(|it| format!("\"{it}\"")).collect::<Vec<_>>().join(", ")
}

/// Formats container names: `container "a"`, or `containers "a", "b"`.
pub(super) fn format_containers(names: &[&str]) -> String {
    format!(
        "{} {}",
        if names.len() == 1 { "container" } else { "containers" },
        quote_list(names.iter().copied())
    )
}

/// Returns the parts of a message that name the violating pod and containers: `pod` if `is_pod` is set, and `containers
/// "a", "b"`. The caller joins the parts with `and`.
pub(super) fn format_pod_and_containers(is_pod: bool, containers: &[&str]) -> Vec<String> {
    let pod = is_pod.then(|| "pod".to_owned());
    let containers = (!containers.is_empty()).then(|| format_containers(containers));
    pod.into_iter().chain(containers).collect()
}

/// The field values that a message lists: sorted, without duplicates.
pub(super) type SortedValues<'a> = BTreeSet<&'a str>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controls_are_listed_by_level_and_name_and_their_revisions_by_version() {
        let names: Vec<_> = POLICY_CONTROLS.iter().map(|it| (it.level, it.id)).collect();
        assert!(names.is_sorted());
        for control in POLICY_CONTROLS {
            assert!(control.revisions.is_sorted_by_key(|(since, _)| since), "{}", control.id);
            let is_baseline = |id: &str| {
                POLICY_CONTROLS.iter().any(|it| it.id == id && it.level == PodSecurityLevel::Baseline)
            };
            assert!(control.replaces_baseline.is_none_or(is_baseline), "{}", control.id);
        }
    }
}
