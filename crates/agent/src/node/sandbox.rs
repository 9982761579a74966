//! Builds the CRI configuration of a pod's sandbox.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, SELinuxOptions};
use muster_api::qos::QosClass;

use super::naming::{self, PodHostname};
use super::{Config, cgroup};
use crate::parsed_pod::ParsedPod;
use crate::runtime::{label, v1};

/// Builds the CRI configuration of a pod's sandbox. CRI also needs it for each container that is created in the
/// sandbox. `attempt` is the number of earlier sandboxes of the pod. Fails if the pod has no spec, if it sets
/// `hostUsers` to false, or if its hostname is its FQDN (`setHostnameAsFQDN`) and the FQDN is too long for the kernel.
pub(crate) fn sandbox_config(
    config: &Config,
    pod: &ParsedPod,
    attempt: u32,
) -> Result<v1::PodSandboxConfig, String> {
    let spec = pod.spec.as_ref().ok_or("the pod has no spec")?;
    // The pod would run with more privileges than it asked for.
    if spec.host_users == Some(false) {
        return Err(
            "spec.hostUsers: false is not supported: this node has no user namespaces for pods".to_owned()
        );
    }
    let (name, namespace, uid) = pod_ids(pod);
    let on_host = spec.host_network == Some(true);
    let hostname = if on_host {
        String::new()
    } else {
        PodHostname::from_pod(pod, spec, &config.cluster_domain).kernel_hostname(spec)?
    };
    let mut labels = pod.metadata.labels.clone().unwrap_or_default();
    labels.extend(pod_labels(pod));
    Ok(v1::PodSandboxConfig {
        metadata: Some(v1::PodSandboxMetadata {
            name: name.to_owned(),
            uid: uid.to_owned(),
            namespace: namespace.to_owned(),
            attempt,
        }),
        hostname,
        log_directory: config.log_dir(namespace, name, uid).to_string_lossy().into_owned(),
        dns_config: Some(naming::pod_dns(config, pod, spec)),
        port_mappings: spec
            .containers
            .iter()
            .chain(pod.init_containers().filter(|it| it.is_sidecar).map(|it| it.container))
            .flat_map(port_mappings)
            .collect(),
        labels: labels.into_iter().collect(),
        annotations: pod.metadata.annotations.clone().unwrap_or_default().into_iter().collect(),
        linux: Some(linux_config(config, spec, pod.qos, uid)),
    })
}

/// Returns the name, namespace and UID of a pod. A missing namespace is `default`.
pub(crate) fn pod_ids(pod: &Pod) -> (&str, &str, &str) {
    let metadata = &pod.metadata;
    let name = metadata.name.as_deref().unwrap_or_default();
    let namespace = metadata.namespace.as_deref().unwrap_or("default");
    (name, namespace, metadata.uid.as_deref().unwrap_or_default())
}

/// Returns the CRI labels that identify the pod of a sandbox or container.
pub(crate) fn pod_labels(pod: &Pod) -> BTreeMap<String, String> {
    let (name, namespace, uid) = pod_ids(pod);
    [(label::POD_NAME, name), (label::POD_NAMESPACE, namespace), (label::POD_UID, uid)]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into()
}

/// Converts the host ports of a container to CRI port mappings.
fn port_mappings(container: &Container) -> Vec<v1::PortMapping> {
    let mapped = container.ports.iter().flatten().filter(|it| it.host_port.is_some_and(|it| it != 0));
    mapped
        .map(|port| v1::PortMapping {
            protocol: match port.protocol.as_deref() {
                Some("UDP") => v1::Protocol::Udp,
                Some("SCTP") => v1::Protocol::Sctp,
                _ => v1::Protocol::Tcp,
            } as i32,
            container_port: port.container_port,
            host_port: port.host_port.unwrap_or_default(),
            host_ip: port.host_ip.clone().unwrap_or_default(),
        })
        .collect()
}

/// Builds the Linux part of the sandbox configuration: cgroup, security context and sysctls.
fn linux_config(config: &Config, spec: &PodSpec, qos: QosClass, uid: &str) -> v1::LinuxPodSandboxConfig {
    let security = spec.security_context.clone().unwrap_or_default();
    let sysctls = security.sysctls.iter().flatten().map(|it| (it.name.clone(), it.value.clone()));
    v1::LinuxPodSandboxConfig {
        cgroup_parent: cgroup::pod_cgroup_path(&config.cgroup_parent, qos, uid),
        sysctls: sysctls.collect(),
        security_context: Some(v1::LinuxSandboxSecurityContext {
            namespace_options: Some(namespace_options(spec)),
            selinux_options: security.se_linux_options.as_ref().map(selinux_options),
            run_as_user: security.run_as_user.map(|value| v1::Int64Value { value }),
            run_as_group: security.run_as_group.filter(|_| security.run_as_user.is_some()).map(int64_value),
            supplemental_groups: supplemental_groups(spec),
            supplemental_groups_policy: supplemental_groups_policy(spec),
            // A container can be privileged only in a privileged sandbox.
            privileged: main_and_init_containers(spec).any(is_privileged),
            seccomp: Some(security_profile(v1::security_profile::ProfileType::RuntimeDefault)),
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// Wraps a number in the CRI message type.
fn int64_value(value: i64) -> v1::Int64Value {
    v1::Int64Value { value }
}

/// Returns a CRI security profile of this type, without a profile file.
pub(crate) fn security_profile(kind: v1::security_profile::ProfileType) -> v1::SecurityProfile {
    v1::SecurityProfile { profile_type: kind as i32, localhost_ref: String::new() }
}

/// Returns the main containers and the init containers of a pod.
fn main_and_init_containers(spec: &PodSpec) -> impl Iterator<Item = &Container> {
    spec.containers.iter().chain(spec.init_containers.iter().flatten())
}

/// Whether the security context of the container sets `privileged`.
pub(crate) fn is_privileged(container: &Container) -> bool {
    container.security_context.as_ref().and_then(|it| it.privileged) == Some(true)
}

/// Returns the CRI options for the Linux namespaces of a pod: whether each is shared with the node or within the pod,
/// or is separate for each container.
pub(crate) fn namespace_options(spec: &PodSpec) -> v1::NamespaceOption {
    use v1::NamespaceMode::{Container, Node, Pod};
    let on_node = |it: Option<bool>| if it == Some(true) { Node } else { Pod };
    let pid = match (spec.host_pid, spec.share_process_namespace) {
        (Some(true), _) => Node,
        (_, Some(true)) => Pod,
        _ => Container,
    };
    v1::NamespaceOption {
        network: on_node(spec.host_network) as i32,
        ipc: on_node(spec.host_ipc) as i32,
        pid: pid as i32,
        target_id: String::new(),
    }
}

/// Converts SELinux options to a CRI value.
pub(crate) fn selinux_options(options: &SELinuxOptions) -> v1::SeLinuxOption {
    let text = |it: &Option<String>| it.clone().unwrap_or_default();
    v1::SeLinuxOption {
        user: text(&options.user),
        role: text(&options.role),
        r#type: text(&options.type_),
        level: text(&options.level),
    }
}

/// Returns the supplemental groups of every process of the pod: `supplementalGroups` and `fsGroup`.
pub(crate) fn supplemental_groups(spec: &PodSpec) -> Vec<i64> {
    let security = spec.security_context.as_ref();
    let fs_group = security.and_then(|it| it.fs_group);
    let supplemental = security.and_then(|it| it.supplemental_groups.as_ref()).into_iter().flatten().copied();
    fs_group.into_iter().chain(supplemental).collect()
}

/// Whether `supplementalGroupsPolicy` is `Strict`.
pub(crate) fn has_strict_groups_policy(spec: &PodSpec) -> bool {
    let policy = spec.security_context.as_ref().and_then(|it| it.supplemental_groups_policy.as_deref());
    policy == Some("Strict")
}

/// Converts `supplementalGroupsPolicy` to a CRI value.
pub(crate) fn supplemental_groups_policy(spec: &PodSpec) -> i32 {
    match has_strict_groups_policy(spec) {
        true => v1::SupplementalGroupsPolicy::Strict as i32,
        false => v1::SupplementalGroupsPolicy::Merge as i32,
    }
}
