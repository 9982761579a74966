//! The controls of each level and policy version, and their evaluation. A pure function of a pod's metadata and spec,
//! used for pods and pod templates. Upstream: `k8s.io/pod-security-admission/policy`.

use std::collections::BTreeSet;

use serde_json::Value;

use super::level::{Level, LevelVersion, Version};
use super::{baseline, restricted};
use crate::unstructured::{list, str_at};

/// Metadata and spec of the pod or pod template that the controls check.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pod<'a> {
    pub(super) metadata: &'a Value,
    pub(super) spec: &'a Value,
}

/// The violation of one control by a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Violation {
    pub(super) reason: &'static str,
    /// The violating pod or containers, and the fields that they must or must not set.
    pub(super) detail: String,
}

/// Checks a pod against one control. `None`: the pod complies.
pub(super) type PolicyCheck = fn(Pod<'_>) -> Option<Violation>;

/// One control of the Pod Security Standards.
#[derive(Debug)]
struct Control {
    id: &'static str,
    level: Level,
    /// Oldest first: a minor version, and the check that applies since that version.
    revisions: &'static [(u64, PolicyCheck)],
    /// Id of the baseline control that this control includes.
    replaces: Option<&'static str>,
}

/// Builds a control of level baseline.
const fn baseline(id: &'static str, revisions: &'static [(u64, PolicyCheck)]) -> Control {
    Control { id, level: Level::Baseline, revisions, replaces: None }
}

/// Builds a control of level restricted.
const fn restricted(
    id: &'static str,
    revisions: &'static [(u64, PolicyCheck)],
    replaces: Option<&'static str>,
) -> Control {
    Control { id, level: Level::Restricted, revisions, replaces }
}

/// All controls: baseline first, then restricted, each sorted by id. Violations are listed in this order.
static CONTROLS: &[Control] = &[
    baseline("appArmorProfile", &[(0, baseline::app_armor_profile)]),
    baseline("capabilities_baseline", &[(0, baseline::capabilities)]),
    baseline("hostNamespaces", &[(0, baseline::host_namespaces)]),
    baseline("hostPathVolumes", &[(0, baseline::host_path_volumes)]),
    baseline("hostPorts", &[(0, baseline::host_ports)]),
    baseline("hostProbesAndHostLifecycle", &[(34, baseline::host_probes_and_lifecycle)]),
    baseline("privileged", &[(0, baseline::privileged)]),
    baseline("procMount", &[(0, baseline::proc_mount), (35, baseline::proc_mount_unless_user_namespace)]),
    baseline("seLinuxOptions", &[(0, baseline::se_linux_options_1_0), (31, baseline::se_linux_options_1_31)]),
    baseline(
        "seccompProfile_baseline",
        &[(0, baseline::seccomp_annotations), (19, baseline::seccomp_profile)],
    ),
    baseline(
        "sysctls",
        &[
            (0, baseline::sysctls_1_0),
            (27, baseline::sysctls_1_27),
            (29, baseline::sysctls_1_29),
            (32, baseline::sysctls_1_32),
        ],
    ),
    baseline("windowsHostProcess", &[(0, baseline::windows_host_process)]),
    restricted(
        "allowPrivilegeEscalation",
        &[
            (8, restricted::allow_privilege_escalation),
            (25, restricted::allow_privilege_escalation_unless_windows),
        ],
        None,
    ),
    restricted(
        "capabilities_restricted",
        &[(22, restricted::capabilities), (25, restricted::capabilities_unless_windows)],
        Some("capabilities_baseline"),
    ),
    // Until 1.35 the baseline control had no exception for user namespaces.
    restricted("procMount_restricted", &[(35, baseline::proc_mount)], Some("procMount")),
    restricted("restrictedVolumes", &[(0, restricted::volume_types)], Some("hostPathVolumes")),
    restricted(
        "runAsNonRoot",
        &[(0, restricted::run_as_non_root), (35, restricted::run_as_non_root_unless_user_namespace)],
        None,
    ),
    restricted(
        "runAsUser",
        &[(23, restricted::run_as_user), (35, restricted::run_as_user_unless_user_namespace)],
        None,
    ),
    restricted(
        "seccompProfile_restricted",
        &[(19, restricted::seccomp_profile), (25, restricted::seccomp_profile_unless_windows)],
        Some("seccompProfile_baseline"),
    ),
];

impl Control {
    /// The newest check whose version is at most `version`.
    fn check_at(&self, version: Version) -> Option<PolicyCheck> {
        self.revisions
            .iter()
            .rev()
            .find(|(since, _)| Version::Minor(*since) <= version)
            .map(|(_, check)| *check)
    }
}

/// Rule: a level includes the controls of all lower levels, each in the revision for the policy version. A restricted
/// control replaces the baseline control that it includes.
/// Upstream: `checkRegistry.EvaluatePod`.
pub(super) fn violations(policy: LevelVersion, pod: Pod<'_>) -> Vec<Violation> {
    let LevelVersion { level, version } = policy;
    let active = || CONTROLS.iter().filter(|it| it.level <= level);
    let is_replaced = |control: &Control| {
        active().any(|it| it.replaces == Some(control.id) && it.check_at(version).is_some())
    };
    active()
        .filter(|control| !is_replaced(control))
        .filter_map(|control| control.check_at(version).and_then(|check| check(pod)))
        .collect()
}

/// Formats violations with details: `privileged (container "c" must not set …), host namespaces (…)`.
pub(super) fn details(violations: &[Violation]) -> String {
    let text = |it: &Violation| format!("{} ({})", it.reason, it.detail);
    violations.iter().map(text).collect::<Vec<_>>().join(", ")
}

/// Formats violations without details: `privileged, host namespaces`.
pub(super) fn reasons(violations: &[Violation]) -> String {
    violations.iter().map(|it| it.reason).collect::<Vec<_>>().join(", ")
}

impl<'a> Pod<'a> {
    /// All containers: init containers first, then regular ones, then ephemeral ones.
    pub(super) fn containers(self) -> impl Iterator<Item = &'a Value> {
        ["initContainers", "containers", "ephemeralContainers"]
            .into_iter()
            .flat_map(move |it| list(self.spec, it))
    }

    /// Names of the containers for whose security context `is_bad` returns true. Without a security context it gets
    /// null.
    pub(super) fn containers_with(self, mut is_bad: impl FnMut(&'a Value) -> bool) -> Vec<&'a str> {
        self.containers().filter(|it| is_bad(&it["securityContext"])).map(|it| str_at(it, "name")).collect()
    }

    pub(super) fn annotations(self) -> impl Iterator<Item = (&'a str, &'a str)> {
        let annotations = self.metadata["annotations"].as_object();
        annotations
            .into_iter()
            .flatten()
            .map(|(name, value)| (name.as_str(), value.as_str().unwrap_or_default()))
    }

    pub(super) fn is_windows(self) -> bool {
        self.spec["os"]["name"] == "windows"
    }

    pub(super) fn has_user_namespace(self) -> bool {
        self.spec["hostUsers"] == false
    }
}

/// Quotes and joins: `"a", "b"`.
pub(super) fn quoted<'a>(items: impl IntoIterator<Item = &'a str>) -> String {
    items.into_iter().map(|it| format!("\"{it}\"")).collect::<Vec<_>>().join(", ")
}

/// Formats container names: `container "a"`, or `containers "a", "b"`.
pub(super) fn named_containers(names: &[&str]) -> String {
    format!("{} {}", if names.len() == 1 { "container" } else { "containers" }, quoted(names.iter().copied()))
}

/// The pod and containers that set a field: `pod`, `containers "a", "b"`. Messages join them with `and`.
pub(super) fn setters(is_pod: bool, containers: &[&str]) -> Vec<String> {
    let pod = is_pod.then(|| "pod".to_owned());
    let containers = (!containers.is_empty()).then(|| named_containers(containers));
    pod.into_iter().chain(containers).collect()
}

/// Values for a message: sorted, without duplicates.
pub(super) type Values<'a> = BTreeSet<&'a str>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controls_are_listed_by_level_and_name_and_their_revisions_by_version() {
        let names: Vec<_> = CONTROLS.iter().map(|it| (it.level, it.id)).collect();
        assert!(names.is_sorted());
        for control in CONTROLS {
            assert!(control.revisions.is_sorted_by_key(|(since, _)| since), "{}", control.id);
            let is_baseline = |id: &str| CONTROLS.iter().any(|it| it.id == id && it.level == Level::Baseline);
            assert!(control.replaces.is_none_or(is_baseline), "{}", control.id);
        }
    }
}
