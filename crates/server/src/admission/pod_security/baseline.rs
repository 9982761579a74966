//! The controls of the Pod Security level `baseline`, which forbid access to the host.

use std::collections::BTreeSet;

use muster_api::well_known::{
    ANNOTATION_APP_ARMOR_PREFIX, ANNOTATION_SECCOMP_CONTAINER_PREFIX, ANNOTATION_SECCOMP_POD,
};
use serde_json::Value;

use super::policy::{
    EvaluatedPod, PolicyViolation, SortedValues, format_containers, format_pod_and_containers, quote_list,
};
use crate::unstructured::{list_at, str_at};
use crate::validation::go_quoted;

/// Rule: AppArmor must not be disabled. A profile that a field or an annotation sets must be the runtime's default or a
/// local profile of the node.
/// Upstream: `appArmorProfile_1_0`.
pub(super) fn check_app_armor_profile(pod: EvaluatedPod<'_>) -> Option<PolicyViolation> {
    let (mut setters, values) = unconfined_profiles(pod, "appArmorProfile");
    let allowed = |it: &str| it.is_empty() || it == "runtime/default" || it.starts_with("localhost/");
    let mut annotations: Vec<String> = pod
        .annotations()
        .filter(|(name, value)| name.starts_with(ANNOTATION_APP_ARMOR_PREFIX) && !allowed(value))
        .map(|(name, value)| format!("{name}={}", go_quoted(value)))
        .collect();
    annotations.sort();
    if !annotations.is_empty() {
        setters.push(if annotations.len() == 1 { "annotation" } else { "annotations" }.to_owned());
    }
    let values: Vec<_> = values.into_iter().chain(annotations.iter().map(String::as_str)).collect();
    (!setters.is_empty()).then(|| PolicyViolation {
        reason: if values.len() == 1 { "forbidden AppArmor profile" } else { "forbidden AppArmor profiles" },
        detail: format!(
            "{} must not set AppArmor profile type to {}",
            setters.join(" and "),
            quote_list(values)
        ),
    })
}

/// Finds profiles of a type other than `RuntimeDefault` and `Localhost`. `field` is `appArmorProfile` or
/// `seccompProfile`. Returns the pod and containers with such a profile, formatted for a message, and the types of
/// these profiles.
pub(super) fn unconfined_profiles<'a>(pod: EvaluatedPod<'a>, field: &str) -> (Vec<String>, SortedValues<'a>) {
    let mut types = SortedValues::new();
    let mut is_unconfined = |context: &'a Value| {
        let kind = str_at(&context[field], "type");
        let is_unconfined = !context[field].is_null() && !matches!(kind, "RuntimeDefault" | "Localhost");
        if is_unconfined {
            types.insert(kind);
        }
        is_unconfined
    };
    let is_pod = is_unconfined(&pod.spec["securityContext"]);
    let containers = pod.container_names_where(is_unconfined);
    (format_pod_and_containers(is_pod, &containers), types)
}

/// Capabilities that the `baseline` level allows a container to add.
const ALLOWED_CAPABILITIES: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

/// Rule: a container may add only the capabilities that runtimes grant by default, except `NET_RAW`.
/// Upstream: `capabilitiesBaseline_1_0`.
pub(super) fn check_capabilities(pod: EvaluatedPod<'_>) -> Option<PolicyViolation> {
    let mut added = SortedValues::new();
    let containers = pod.container_names_where(|context| {
        let others: Vec<_> =
            added_capabilities(context).filter(|it| !ALLOWED_CAPABILITIES.contains(it)).collect();
        added.extend(&others);
        !others.is_empty()
    });
    (!containers.is_empty()).then(|| PolicyViolation {
        reason: "non-default capabilities",
        detail: added_capabilities_message(&containers, added),
    })
}

/// Returns `capabilities.add` of a container's security context.
pub(super) fn added_capabilities(context: &Value) -> impl Iterator<Item = &str> {
    list_at(&context["capabilities"], "add").iter().filter_map(Value::as_str)
}

/// Returns the detail of a violation: the message that these containers must not add these capabilities.
pub(super) fn added_capabilities_message(containers: &[&str], capabilities: SortedValues<'_>) -> String {
    format!(
        "{} must not include {} in securityContext.capabilities.add",
        format_containers(containers),
        quote_list(capabilities)
    )
}

/// Rule: a pod must not share the host's network, process or IPC namespace.
/// Upstream: `hostNamespaces_1_0`.
pub(super) fn check_host_namespaces(pod: EvaluatedPod<'_>) -> Option<PolicyViolation> {
    let shared: Vec<_> = ["hostNetwork", "hostPID", "hostIPC"]
        .into_iter()
        .filter(|it| pod.spec[*it] == true)
        .map(|it| format!("{it}=true"))
        .collect();
    (!shared.is_empty()).then(|| PolicyViolation { reason: "host namespaces", detail: shared.join(", ") })
}

/// Rule: a pod must not have a `hostPath` volume.
/// Upstream: `hostPathVolumes_1_0`.
pub(super) fn check_host_path_volumes(pod: EvaluatedPod<'_>) -> Option<PolicyViolation> {
    let volumes = list_at(pod.spec, "volumes").iter().filter(|it| !it["hostPath"].is_null());
    let names: Vec<_> = volumes.map(|it| str_at(it, "name")).collect();
    let noun = if names.len() == 1 { "volume" } else { "volumes" };
    (!names.is_empty()).then(|| PolicyViolation {
        reason: "hostPath volumes",
        detail: format!("{noun} {}", quote_list(names)),
    })
}

/// Rule: a container must not use a host port.
/// Upstream: `hostPorts_1_0`.
pub(super) fn check_host_ports(pod: EvaluatedPod<'_>) -> Option<PolicyViolation> {
    let mut ports = BTreeSet::new();
    let mut containers = Vec::new();
    for container in pod.containers() {
        let host_ports = list_at(container, "ports").iter().filter_map(|it| it["hostPort"].as_i64());
        let host_ports: Vec<_> = host_ports.filter(|it| *it != 0).map(|it| it.to_string()).collect();
        if !host_ports.is_empty() {
            containers.push(str_at(container, "name"));
            ports.extend(host_ports);
        }
    }
    (!containers.is_empty()).then(|| PolicyViolation {
        reason: "hostPort",
        detail: format!(
            "{} {} {} {}",
            format_containers(&containers),
            if containers.len() == 1 { "uses" } else { "use" },
            if ports.len() == 1 { "hostPort" } else { "hostPorts" },
            ports.into_iter().collect::<Vec<_>>().join(", ")
        ),
    })
}

/// Rule: probes and lifecycle hooks must not set a host, so that the kubelet cannot be made to connect to other hosts.
/// Upstream: `hostProbesAndHostLifecycleV1Dot34`.
pub(super) fn check_host_probes_and_lifecycle(pod: EvaluatedPod<'_>) -> Option<PolicyViolation> {
    let (mut containers, mut hosts) = (SortedValues::new(), SortedValues::new());
    for container in pod.containers() {
        let lifecycle = &container["lifecycle"];
        let handlers = [
            &container["livenessProbe"],
            &container["readinessProbe"],
            &container["startupProbe"],
            &lifecycle["postStart"],
            &lifecycle["preStop"],
        ];
        let target_hosts =
            handlers.into_iter().flat_map(|it| [str_at(it, "httpGet.host"), str_at(it, "tcpSocket.host")]);
        for host in target_hosts.filter(|it| !it.is_empty()) {
            containers.insert(str_at(container, "name"));
            hosts.insert(host);
        }
    }
    let containers: Vec<_> = containers.into_iter().collect();
    (!containers.is_empty()).then(|| PolicyViolation {
        reason: "probe or lifecycle host",
        detail: format!(
            "{} {} {} {}",
            format_containers(&containers),
            if containers.len() == 1 { "uses" } else { "use" },
            if hosts.len() == 1 { "probe or lifecycle host" } else { "probe or lifecycle hosts" },
            quote_list(hosts)
        ),
    })
}

/// Rule: a container must not be privileged.
/// Upstream: `privileged_1_0`.
pub(super) fn check_privileged(pod: EvaluatedPod<'_>) -> Option<PolicyViolation> {
    let containers = pod.container_names_where(|context| context["privileged"] == true);
    (!containers.is_empty()).then(|| PolicyViolation {
        reason: "privileged",
        detail: format!("{} must not set securityContext.privileged=true", format_containers(&containers)),
    })
}

/// Rule: `procMount` of a container, if set, must be `Default`, which keeps parts of `/proc` masked.
/// Upstream: `procMount_1_0`.
pub(super) fn check_proc_mount(pod: EvaluatedPod<'_>) -> Option<PolicyViolation> {
    let mut values = SortedValues::new();
    let containers = pod.container_names_where(|context| match context["procMount"].as_str() {
        None | Some("Default") => false,
        Some(other) => {
            values.insert(other);
            true
        }
    });
    (!containers.is_empty()).then(|| PolicyViolation {
        reason: "procMount",
        detail: format!(
            "{} must not set securityContext.procMount to {}",
            format_containers(&containers),
            quote_list(values)
        ),
    })
}

/// Rule: since version 1.35, the `baseline` level allows a pod in a user namespace to unmask `/proc`.
/// Upstream: `procMount1_35baseline`.
pub(super) fn check_proc_mount_unless_user_namespace(pod: EvaluatedPod<'_>) -> Option<PolicyViolation> {
    if pod.has_user_namespace() { None } else { check_proc_mount(pod) }
}

/// Runs [`check_se_linux_options`] with the SELinux types that versions 1.0 to 1.30 allow.
pub(super) fn check_se_linux_options_1_0(pod: EvaluatedPod<'_>) -> Option<PolicyViolation> {
    check_se_linux_options(pod, &["", "container_t", "container_init_t", "container_kvm_t"])
}

/// Runs [`check_se_linux_options`] with the SELinux types that versions since 1.31 allow.
pub(super) fn check_se_linux_options_1_31(pod: EvaluatedPod<'_>) -> Option<PolicyViolation> {
    check_se_linux_options(
        pod,
        &["", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"],
    )
}

/// Rule: the SELinux type must be one of `types`, and the SELinux user and role must not be set. Since version 1.31,
/// `types` includes `container_engine_t`.
/// Upstream: `seLinuxOptions`.
fn check_se_linux_options<'a>(pod: EvaluatedPod<'a>, types: &[&str]) -> Option<PolicyViolation> {
    let mut others = SortedValues::new();
    let (mut is_user_set, mut is_role_set) = (false, false);
    let mut is_bad = |context: &'a Value| {
        let options = &context["seLinuxOptions"];
        let kind = str_at(options, "type");
        let (has_user, has_role) = (!str_at(options, "user").is_empty(), !str_at(options, "role").is_empty());
        is_user_set |= has_user;
        is_role_set |= has_role;
        let is_other = !types.contains(&kind);
        if is_other {
            others.insert(kind);
        }
        is_other || has_user || has_role
    };
    let is_pod = is_bad(&pod.spec["securityContext"]);
    let containers = pod.container_names_where(is_bad);
    let setters = format_pod_and_containers(is_pod, &containers);
    if setters.is_empty() {
        return None;
    }
    let mut errors = Vec::new();
    if !others.is_empty() {
        errors.push(format!("{} {}", if others.len() == 1 { "type" } else { "types" }, quote_list(others)));
    }
    errors.extend(is_user_set.then(|| "user may not be set".to_owned()));
    errors.extend(is_role_set.then(|| "role may not be set".to_owned()));
    Some(PolicyViolation {
        reason: "seLinuxOptions",
        detail: format!(
            "{} set forbidden securityContext.seLinuxOptions: {}",
            setters.join(" and "),
            errors.join("; ")
        ),
    })
}

/// Rule: up to version 1.18, a seccomp annotation must name the runtime's default profile or a local profile of the
/// node.
/// Upstream: `seccompProfileBaseline_1_0`.
pub(super) fn check_seccomp_annotations(pod: EvaluatedPod<'_>) -> Option<PolicyViolation> {
    let allowed =
        |it: &str| matches!(it, "runtime/default" | "docker/default") || it.starts_with("localhost/");
    let names: BTreeSet<_> = pod.containers().map(|it| str_at(it, "name")).collect();
    let is_profile = |name: &str| {
        name == ANNOTATION_SECCOMP_POD
            || name.strip_prefix(ANNOTATION_SECCOMP_CONTAINER_PREFIX).is_some_and(|it| names.contains(it))
    };
    let forbidden: BTreeSet<_> = pod
        .annotations()
        .filter(|(name, value)| is_profile(name) && !allowed(value))
        .map(|(name, value)| format!("{name}={}", go_quoted(value)))
        .collect();
    (!forbidden.is_empty()).then(|| PolicyViolation {
        reason: "seccompProfile",
        detail: format!(
            "forbidden {} {}",
            if forbidden.len() == 1 { "annotation" } else { "annotations" },
            forbidden.into_iter().collect::<Vec<_>>().join(", ")
        ),
    })
}

/// Rule: since version 1.19, the field `seccompProfile` must not disable seccomp. A profile that is set must be the
/// runtime's default or a local profile of the node.
/// Upstream: `seccompProfileBaseline_1_19`.
pub(super) fn check_seccomp_profile(pod: EvaluatedPod<'_>) -> Option<PolicyViolation> {
    let (setters, types) = unconfined_profiles(pod, "seccompProfile");
    (!setters.is_empty()).then(|| seccomp_violation(&setters, types))
}

/// Returns the violation for seccomp profiles of forbidden types. `setters` are the pod and containers that set them.
pub(super) fn seccomp_violation(setters: &[String], types: SortedValues<'_>) -> PolicyViolation {
    PolicyViolation {
        reason: "seccompProfile",
        detail: format!(
            "{} must not set securityContext.seccompProfile.type to {}",
            setters.join(" and "),
            quote_list(types)
        ),
    }
}

/// The sysctls that are isolated from the host and from other pods, each with the minor version of Kubernetes that
/// first allows it.
const SAFE_SYSCTLS: [(u64, &str); 12] = [
    (0, "kernel.shm_rmid_forced"),
    (0, "net.ipv4.ip_local_port_range"),
    (0, "net.ipv4.tcp_syncookies"),
    (0, "net.ipv4.ping_group_range"),
    (0, "net.ipv4.ip_unprivileged_port_start"),
    (27, "net.ipv4.ip_local_reserved_ports"),
    (29, "net.ipv4.tcp_keepalive_time"),
    (29, "net.ipv4.tcp_fin_timeout"),
    (29, "net.ipv4.tcp_keepalive_intvl"),
    (29, "net.ipv4.tcp_keepalive_probes"),
    (32, "net.ipv4.tcp_rmem"),
    (32, "net.ipv4.tcp_wmem"),
];

/// Runs [`check_sysctls`] for versions 1.0 to 1.26.
pub(super) fn check_sysctls_1_0(pod: EvaluatedPod<'_>) -> Option<PolicyViolation> {
    check_sysctls(pod, 0)
}

/// Runs [`check_sysctls`] for versions 1.27 and 1.28.
pub(super) fn check_sysctls_1_27(pod: EvaluatedPod<'_>) -> Option<PolicyViolation> {
    check_sysctls(pod, 27)
}

/// Runs [`check_sysctls`] for versions 1.29 to 1.31.
pub(super) fn check_sysctls_1_29(pod: EvaluatedPod<'_>) -> Option<PolicyViolation> {
    check_sysctls(pod, 29)
}

/// Runs [`check_sysctls`] for versions since 1.32.
pub(super) fn check_sysctls_1_32(pod: EvaluatedPod<'_>) -> Option<PolicyViolation> {
    check_sysctls(pod, 32)
}

/// Rule: a pod may set only the sysctls in `SAFE_SYSCTLS` that the version `1.minor` allows. Versions 1.27, 1.29 and
/// 1.32 extended the list.
/// Upstream: `sysctls`.
fn check_sysctls(pod: EvaluatedPod<'_>, minor: u64) -> Option<PolicyViolation> {
    let is_safe = |name: &str| SAFE_SYSCTLS.iter().any(|(since, safe)| *since <= minor && *safe == name);
    let names = list_at(&pod.spec["securityContext"], "sysctls").iter().map(|it| str_at(it, "name"));
    let forbidden: Vec<_> = names.filter(|it| !is_safe(it)).collect();
    (!forbidden.is_empty())
        .then(|| PolicyViolation { reason: "forbidden sysctls", detail: forbidden.join(", ") })
}

/// Rule: neither the pod nor a container may set `hostProcess: true`, which runs a Windows container on the host.
/// Upstream: `windowsHostProcess_1_0`.
pub(super) fn check_windows_host_process(pod: EvaluatedPod<'_>) -> Option<PolicyViolation> {
    let is_host = |context: &Value| context["windowsOptions"]["hostProcess"] == true;
    let setters =
        format_pod_and_containers(is_host(&pod.spec["securityContext"]), &pod.container_names_where(is_host));
    (!setters.is_empty()).then(|| PolicyViolation {
        reason: "hostProcess",
        detail: format!(
            "{} must not set securityContext.windowsOptions.hostProcess=true",
            setters.join(" and ")
        ),
    })
}
