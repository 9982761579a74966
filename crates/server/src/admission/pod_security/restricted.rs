//! The controls of the Pod Security level `restricted`, which require hardening of every container.

use serde_json::Value;

use super::baseline::{
    added_capabilities, added_capabilities_message, seccomp_violation, unconfined_profiles,
};
use super::policy::{
    EvaluatedPod, PolicyViolation, SortedValues, format_containers, format_pod_and_containers, quote_list,
};
use crate::unstructured::{list_at, str_at};

/// Rule: every container must set `allowPrivilegeEscalation: false`.
/// Upstream: `allowPrivilegeEscalation_1_8`.
pub(super) fn check_allow_privilege_escalation(pod: EvaluatedPod<'_>) -> Option<PolicyViolation> {
    let containers = pod.container_names_where(|context| context["allowPrivilegeEscalation"] != false);
    (!containers.is_empty()).then(|| PolicyViolation {
        reason: "allowPrivilegeEscalation != false",
        detail: format!(
            "{} must set securityContext.allowPrivilegeEscalation=false",
            format_containers(&containers)
        ),
    })
}

/// Rule: since version 1.25, Windows pods need not set `allowPrivilegeEscalation`, which has no effect on Windows.
/// Upstream: `allowPrivilegeEscalation_1_25`.
pub(super) fn check_allow_privilege_escalation_unless_windows(
    pod: EvaluatedPod<'_>,
) -> Option<PolicyViolation> {
    if pod.is_windows() { None } else { check_allow_privilege_escalation(pod) }
}

/// Rule: every container must drop `ALL` capabilities and may add only `NET_BIND_SERVICE`.
/// Upstream: `capabilitiesRestricted_1_22`.
pub(super) fn check_capabilities(pod: EvaluatedPod<'_>) -> Option<PolicyViolation> {
    let drops_all = |context: &Value| list_at(&context["capabilities"], "drop").iter().any(|it| it == "ALL");
    let not_dropping = pod.container_names_where(|context| !drops_all(context));
    let mut added = SortedValues::new();
    let adding = pod.container_names_where(|context| {
        let others: Vec<_> = added_capabilities(context).filter(|it| *it != "NET_BIND_SERVICE").collect();
        added.extend(&others);
        !others.is_empty()
    });
    let mut details = Vec::new();
    if !not_dropping.is_empty() {
        details.push(format!(
            r#"{} must set securityContext.capabilities.drop=["ALL"]"#,
            format_containers(&not_dropping)
        ));
    }
    if !adding.is_empty() {
        details.push(added_capabilities_message(&adding, added));
    }
    (!details.is_empty())
        .then(|| PolicyViolation { reason: "unrestricted capabilities", detail: details.join("; ") })
}

/// Rule: since version 1.25, the capabilities of Windows pods are not checked, because Windows has no capabilities.
/// Upstream: `capabilitiesRestricted_1_25`.
pub(super) fn check_capabilities_unless_windows(pod: EvaluatedPod<'_>) -> Option<PolicyViolation> {
    if pod.is_windows() { None } else { check_capabilities(pod) }
}

/// Volume types that the `restricted` level allows.
const ALLOWED_VOLUME_TYPES: [&str; 9] = [
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
];

/// Forbidden volume types that the message of a violation names, in the order in which upstream checks for them. Other
/// forbidden types are called `unknown`.
const NAMED_FORBIDDEN_VOLUME_TYPES: [&str; 21] = [
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "gitRepo",
    "nfs",
    "iscsi",
    "glusterfs",
    "rbd",
    "flexVolume",
    "cinder",
    "cephfs",
    "flocker",
    "fc",
    "azureFile",
    "vsphereVolume",
    "quobyte",
    "azureDisk",
    "photonPersistentDisk",
    "portworxVolume",
    "scaleIO",
    "storageos",
];

/// Rule: every volume must be of a type in `ALLOWED_VOLUME_TYPES`. These types are managed by Kubernetes or by a
/// storage driver.
/// Upstream: `restrictedVolumes_1_0`.
pub(super) fn check_volume_types(pod: EvaluatedPod<'_>) -> Option<PolicyViolation> {
    let (mut names, mut types) = (Vec::new(), SortedValues::new());
    for volume in list_at(pod.spec, "volumes") {
        let is_of = |kind: &str| !volume[kind].is_null();
        if ALLOWED_VOLUME_TYPES.into_iter().any(is_of) {
            continue;
        }
        names.push(str_at(volume, "name"));
        types.insert(NAMED_FORBIDDEN_VOLUME_TYPES.into_iter().find(|it| is_of(it)).unwrap_or("unknown"));
    }
    (!names.is_empty()).then(|| PolicyViolation {
        reason: "restricted volume types",
        detail: format!(
            "{} {} {} {} {}",
            if names.len() == 1 { "volume" } else { "volumes" },
            quote_list(names.iter().copied()),
            if names.len() == 1 { "uses" } else { "use" },
            if types.len() == 1 { "restricted volume type" } else { "restricted volume types" },
            quote_list(types)
        ),
    })
}

/// Rule: every container must run as non-root. Either the container sets `runAsNonRoot: true`, or the pod sets it and
/// the container does not override it. The pod must not set it to `false`.
/// Upstream: `runAsNonRoot1_0`.
pub(super) fn check_run_as_non_root(pod: EvaluatedPod<'_>) -> Option<PolicyViolation> {
    /// `PolicyViolation::reason` of both violations that this function can return.
    const VIOLATION_REASON: &str = "runAsNonRoot != true";
    let pod_value = &pod.spec["securityContext"]["runAsNonRoot"];
    let refusing = pod.container_names_where(|context| context["runAsNonRoot"] == false);
    let setters = format_pod_and_containers(*pod_value == false, &refusing);
    if !setters.is_empty() {
        let detail = format!("{} must not set securityContext.runAsNonRoot=false", setters.join(" and "));
        return Some(PolicyViolation { reason: VIOLATION_REASON, detail });
    }
    let unset = pod.container_names_where(|context| context["runAsNonRoot"].is_null() && *pod_value != true);
    (!unset.is_empty()).then(|| PolicyViolation {
        reason: VIOLATION_REASON,
        detail: format!("pod or {} must set securityContext.runAsNonRoot=true", format_containers(&unset)),
    })
}

/// Rule: since version 1.35, a pod in a user namespace may run as root, because root in a user namespace is not root on
/// the host.
/// Upstream: `runAsNonRoot1_35`.
pub(super) fn check_run_as_non_root_unless_user_namespace(pod: EvaluatedPod<'_>) -> Option<PolicyViolation> {
    if pod.has_user_namespace() { None } else { check_run_as_non_root(pod) }
}

/// Rule: neither the pod nor a container may set `runAsUser: 0`.
/// Upstream: `runAsUser1_23`.
pub(super) fn check_run_as_user(pod: EvaluatedPod<'_>) -> Option<PolicyViolation> {
    let is_root = |context: &Value| context["runAsUser"] == 0;
    let setters =
        format_pod_and_containers(is_root(&pod.spec["securityContext"]), &pod.container_names_where(is_root));
    (!setters.is_empty()).then(|| PolicyViolation {
        reason: "runAsUser=0",
        detail: format!("{} must not set runAsUser=0", setters.join(" and ")),
    })
}

/// Rule: since version 1.35, a pod in a user namespace may set `runAsUser: 0`.
/// Upstream: `runAsUser1_35`.
pub(super) fn check_run_as_user_unless_user_namespace(pod: EvaluatedPod<'_>) -> Option<PolicyViolation> {
    if pod.has_user_namespace() { None } else { check_run_as_user(pod) }
}

/// Rule: every container must have a seccomp profile, set on the container or on the pod. That profile must be the
/// runtime's default or a local profile of the node.
/// Upstream: `seccompProfileRestricted_1_19`.
pub(super) fn check_seccomp_profile(pod: EvaluatedPod<'_>) -> Option<PolicyViolation> {
    let (setters, types) = unconfined_profiles(pod, "seccompProfile");
    if !setters.is_empty() {
        return Some(seccomp_violation(&setters, types));
    }
    let is_pod_confined = !pod.spec["securityContext"]["seccompProfile"].is_null();
    let without =
        pod.container_names_where(|context| context["seccompProfile"].is_null() && !is_pod_confined);
    (!without.is_empty()).then(|| PolicyViolation {
        reason: "seccompProfile",
        detail: format!(
            r#"pod or {} must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost""#,
            format_containers(&without)
        ),
    })
}

/// Rule: since version 1.25, the seccomp profiles of Windows pods are not checked, because Windows has no seccomp.
/// Upstream: `seccompProfileRestricted_1_25`.
pub(super) fn check_seccomp_profile_unless_windows(pod: EvaluatedPod<'_>) -> Option<PolicyViolation> {
    if pod.is_windows() { None } else { check_seccomp_profile(pod) }
}
