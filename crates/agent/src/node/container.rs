//! Builds the CRI configuration of a container, and reads its termination message.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{AppArmorProfile, PodSpec, SeccompProfile};
use muster_api::well_known::DEFAULT_TERMINATION_GRACE_PERIOD_S;
use muster_engine::kubelet::downward_api;

use super::{Config, cgroup, sandbox};
use crate::parsed_pod::{ParsedPod, PodContainer};
use crate::runtime::{annotation, label, v1};

/// Annotation of a CRI container with the hash of its spec.
pub(crate) const HASH_ANNOTATION: &str = "io.kubernetes.container.hash";

/// Paths that containers with the default `procMount` cannot read.
const MASKED_PATHS: [&str; 10] = [
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/sys/firmware",
];
/// Paths that containers with the default `procMount` cannot write.
const READONLY_PATHS: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// Maximum length of a termination message in bytes. Upstream: `MaxContainerTerminationMessageLength`.
const TERMINATION_MESSAGE_BYTES_MAX: u64 = 4096;
/// Maximum length in bytes of a termination message that is taken from the container's log. Upstream:
/// `MaxContainerTerminationMessageLogLength`.
const LOG_FALLBACK_BYTES_MAX: usize = 2048;
/// Maximum number of log lines in a termination message that is taken from the container's log. Upstream:
/// `MaxContainerTerminationMessageLogLines`.
const LOG_FALLBACK_LINES_MAX: usize = 80;

/// Builds the CRI configuration of a container from these inputs.
pub(crate) struct ContainerConfigBuilder<'a> {
    pub config: &'a Config,
    pub pod: &'a ParsedPod,
    pub pod_container: PodContainer<'a>,
    /// Number of earlier instances of the container.
    pub attempt: u32,
    /// Hash of the container's spec.
    pub hash: &'a str,
    pub image: &'a v1::Image,
    /// The resolved environment variables.
    pub variables: &'a BTreeMap<String, String>,
    /// Volume mounts of the container. `build` adds the mounts of `/etc/hosts` and of the termination message file,
    /// unless the container has volumes mounted there.
    pub mounts: Vec<v1::Mount>,
    /// Allocatable memory of the node in bytes.
    pub node_memory: i64,
    /// ID of the container whose PID namespace an ephemeral container shares (`targetContainerName`). `None` if it
    /// shares none.
    pub target_id: Option<String>,
}

impl ContainerConfigBuilder<'_> {
    /// Builds the CRI configuration, and creates the termination message file on the node if the container needs one.
    /// The error is a message for the pod's status.
    pub(crate) fn build(self) -> Result<v1::ContainerConfig, String> {
        let container = self.pod_container.container;
        let spec = self.pod.spec.as_ref().ok_or("the pod has no spec")?;
        let expand = |text: &String| {
            downward_api::expand_variables(text, |name| self.variables.get(name).cloned(), &mut |_| {})
        };
        let security = self.security_context(spec)?;
        let resources = cgroup::container_resources(self.pod, self.pod_container, self.node_memory);
        let mut mounts = self.mounts;
        let uid = sandbox::pod_ids(self.pod).2;
        let is_mounted = |mounts: &[v1::Mount], path: &str| mounts.iter().any(|it| it.container_path == path);
        if !is_mounted(&mounts, "/etc/hosts") {
            let host_path = hosts_file_path(self.config, uid);
            mounts.push(file_mount("/etc/hosts", &host_path));
        }
        let message_path = container.termination_message_path.as_deref().unwrap_or("/dev/termination-log");
        if !message_path.is_empty() && !is_mounted(&mounts, message_path) {
            let host_path = termination_message_file_path(self.config, uid, &container.name, self.attempt);
            create_termination_message_file(&host_path)
                .map_err(|error| format!("create {}: {error}", host_path.display()))?;
            mounts.push(file_mount(message_path, &host_path));
        }
        let mut labels = sandbox::pod_labels(self.pod);
        labels.insert(label::CONTAINER_NAME.to_owned(), container.name.clone());
        let grace =
            spec.termination_grace_period_seconds.unwrap_or(DEFAULT_TERMINATION_GRACE_PERIOD_S).to_string();
        let annotations = [
            (HASH_ANNOTATION, self.hash.to_owned()),
            ("io.kubernetes.container.restartCount", self.attempt.to_string()),
            ("io.kubernetes.container.terminationMessagePath", message_path.to_owned()),
            (
                "io.kubernetes.container.terminationMessagePolicy",
                container.termination_message_policy.clone().unwrap_or_else(|| "File".to_owned()),
            ),
            (annotation::POD_GRACE_PERIOD, grace),
        ];
        Ok(v1::ContainerConfig {
            metadata: Some(v1::ContainerMetadata { name: container.name.clone(), attempt: self.attempt }),
            image: Some(v1::ImageSpec {
                image: self.image.id.clone(),
                user_specified_image: container.image.clone().unwrap_or_default(),
                ..Default::default()
            }),
            command: container.command.iter().flatten().map(expand).collect(),
            args: container.args.iter().flatten().map(expand).collect(),
            working_dir: container.working_dir.clone().unwrap_or_default(),
            envs: self
                .variables
                .iter()
                .map(|(key, value)| v1::KeyValue { key: key.clone(), value: value.clone().into_bytes() })
                .collect(),
            mounts,
            labels: labels.into_iter().collect(),
            annotations: annotations.map(|(key, value)| (key.to_owned(), value)).into(),
            log_path: log_path(&container.name, self.attempt),
            stdin: container.stdin == Some(true),
            stdin_once: container.stdin_once == Some(true),
            tty: container.tty == Some(true),
            linux: Some(v1::LinuxContainerConfig {
                resources: Some(resources),
                security_context: Some(security),
            }),
            ..Default::default()
        })
    }

    /// Builds the CRI security context of the container.
    fn security_context(&self, spec: &PodSpec) -> Result<v1::LinuxContainerSecurityContext, String> {
        let of_pod = spec.security_context.clone().unwrap_or_default();
        let own = self.pod_container.container.security_context.clone().unwrap_or_default();
        let run_as_user = own.run_as_user.or(of_pod.run_as_user);
        self.verify_run_as_non_root(run_as_user, own.run_as_non_root.or(of_pod.run_as_non_root))?;
        let is_privileged = own.privileged == Some(true);
        let mut namespaces = sandbox::namespace_options(spec);
        if let Some(id) = &self.target_id {
            namespaces.pid = v1::NamespaceMode::Target as i32;
            namespaces.target_id.clone_from(id);
        }
        let is_unmasked = own.proc_mount.as_deref() == Some("Unmasked");
        let paths =
            |of: &[&str]| if is_unmasked { vec![] } else { of.iter().map(|&it| it.to_owned()).collect() };
        let int = |value| v1::Int64Value { value };
        let image_user = self.image.uid.as_ref().map(|it| it.value);
        Ok(v1::LinuxContainerSecurityContext {
            capabilities: own.capabilities.map(|it| v1::Capability {
                add_capabilities: it.add.unwrap_or_default(),
                drop_capabilities: it.drop.unwrap_or_default(),
            }),
            privileged: is_privileged,
            namespace_options: Some(namespaces),
            selinux_options: own
                .se_linux_options
                .or(of_pod.se_linux_options.clone())
                .as_ref()
                .map(sandbox::selinux_options),
            run_as_user: run_as_user.or(image_user).map(int),
            run_as_username: match run_as_user {
                None => self.image.username.clone(),
                Some(_) => String::new(),
            },
            run_as_group: own.run_as_group.or(of_pod.run_as_group).map(int),
            readonly_rootfs: own.read_only_root_filesystem == Some(true),
            supplemental_groups: sandbox::supplemental_groups(spec),
            supplemental_groups_policy: sandbox::supplemental_groups_policy(spec),
            no_new_privs: own.allow_privilege_escalation == Some(false),
            masked_paths: paths(&MASKED_PATHS),
            readonly_paths: paths(&READONLY_PATHS),
            seccomp: Some(seccomp_profile(
                self.config,
                own.seccomp_profile.or(of_pod.seccomp_profile.clone()),
                is_privileged,
            )?),
            apparmor: apparmor_profile(own.app_armor_profile.or(of_pod.app_armor_profile.clone()))?,
            apparmor_profile: String::new(),
            seccomp_profile_path: String::new(),
        })
    }

    /// Checks the user of a container with `runAsNonRoot`.
    ///
    /// Rule: a container with `runAsNonRoot` is started only if its user is known not to be root. Upstream:
    /// `verifyRunAsNonRoot`.
    fn verify_run_as_non_root(&self, run_as_user: Option<i64>, non_root: Option<bool>) -> Result<(), String> {
        if non_root != Some(true) {
            return Ok(());
        }
        let (name, namespace, uid) = sandbox::pod_ids(self.pod);
        let subject =
            format!("(pod: \"{name}_{namespace}({uid})\", container: {})", self.pod_container.container.name);
        match (run_as_user, self.image.uid.as_ref().map(|it| it.value)) {
            (Some(0), _) => Err(format!("container's runAsUser breaks non-root policy {subject}")),
            (Some(_), _) => Ok(()),
            (None, Some(0)) => {
                Err(format!("container has runAsNonRoot and image will run as root {subject}"))
            }
            (None, None) if !self.image.username.is_empty() => Err(format!(
                "container has runAsNonRoot and image has non-numeric user ({}), cannot verify user is non-root {subject}",
                self.image.username
            )),
            (None, None) => Err(format!("container has runAsNonRoot and image will run as root {subject}")),
            (None, Some(_)) => Ok(()),
        }
    }
}

/// Converts the seccomp profile of a container to a CRI value.
///
/// Rule: a privileged container is unconfined. Any other container without a seccomp profile is unconfined too, or runs
/// with `RuntimeDefault` if the node's `seccomp_default` is true. Upstream: `--seccomp-default`.
fn seccomp_profile(
    config: &Config,
    profile: Option<SeccompProfile>,
    is_privileged: bool,
) -> Result<v1::SecurityProfile, String> {
    use v1::security_profile::ProfileType::{Localhost, RuntimeDefault, Unconfined};
    let Some(profile) = profile.filter(|_| !is_privileged) else {
        let is_default = config.seccomp_default && !is_privileged;
        return Ok(sandbox::security_profile(if is_default { RuntimeDefault } else { Unconfined }));
    };
    Ok(match profile.type_.as_str() {
        "RuntimeDefault" => sandbox::security_profile(RuntimeDefault),
        "Localhost" => {
            let name = profile.localhost_profile.filter(|it| !it.is_empty());
            let name = name.ok_or("localhostProfile must be set if seccompProfile type is Localhost.")?;
            if name.split('/').any(|it| it == "..") || name.starts_with('/') {
                return Err(format!(
                    "localhostProfile {name:?} must be a path below the node's seccomp directory"
                ));
            }
            let path = config.root_dir.join("seccomp").join(name);
            let mut profile = sandbox::security_profile(Localhost);
            profile.localhost_ref = path.to_string_lossy().into_owned();
            profile
        }
        _ => sandbox::security_profile(Unconfined),
    })
}

/// Converts the AppArmor profile of a container or its pod to a CRI value. Returns `None` if there is no profile. An
/// unknown type counts as `Unconfined`. Fails if the type is `Localhost` and `localhostProfile` is not set.
fn apparmor_profile(profile: Option<AppArmorProfile>) -> Result<Option<v1::SecurityProfile>, String> {
    use v1::security_profile::ProfileType::{Localhost, RuntimeDefault, Unconfined};
    let Some(profile) = profile else { return Ok(None) };
    Ok(Some(match profile.type_.as_str() {
        "RuntimeDefault" => sandbox::security_profile(RuntimeDefault),
        "Localhost" => {
            let name = profile.localhost_profile.filter(|it| !it.is_empty());
            let mut profile = sandbox::security_profile(Localhost);
            profile.localhost_ref =
                name.ok_or("localhostProfile must be set if appArmorProfile type is Localhost.")?;
            profile
        }
        _ => sandbox::security_profile(Unconfined),
    }))
}

/// Returns the CRI mount of the file `host_path` on the node at `container_path` in the container.
fn file_mount(container_path: &str, host_path: &Path) -> v1::Mount {
    v1::Mount {
        container_path: container_path.to_owned(),
        host_path: host_path.to_string_lossy().into_owned(),
        selinux_relabel: true,
        ..Default::default()
    }
}

/// Returns the path of a container's log, relative to its pod's log directory.
pub(crate) fn log_path(container: &str, attempt: u32) -> String {
    format!("{container}/{attempt}.log")
}

/// Returns the path of the file on the node that the pod sees as `/etc/hosts`.
pub(crate) fn hosts_file_path(config: &Config, uid: &str) -> PathBuf {
    config.pod_dir(uid).join("etc-hosts")
}

/// Returns the path of the file on the node in which a container writes its termination message.
fn termination_message_file_path(config: &Config, uid: &str, container: &str, attempt: u32) -> PathBuf {
    config.pod_dir(uid).join("containers").join(container).join(attempt.to_string())
}

/// Creates the termination message file, writable for every user in the container.
fn create_termination_message_file(path: &Path) -> io::Result<()> {
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir)?;
    }
    fs::OpenOptions::new().create(true).append(true).open(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o666))
}

/// Reads the termination message of a container from its file. `has_failed` is whether the container exited with an
/// error. If it did, and `terminationMessagePolicy` is `FallbackToLogsOnError`, the end of the container's log replaces
/// an empty message. Upstream: `getTerminationMessage`.
pub(crate) fn termination_message(
    config: &Config,
    pod: &ParsedPod,
    container: &str,
    attempt: u32,
    has_failed: bool,
) -> String {
    let (name, namespace, uid) = sandbox::pod_ids(pod);
    let message = read_tail(
        &termination_message_file_path(config, uid, container, attempt),
        TERMINATION_MESSAGE_BYTES_MAX,
    )
    .unwrap_or_default();
    if !message.is_empty() || !has_failed {
        return message;
    }
    let policy = pod.container(container).and_then(|it| it.container.termination_message_policy.as_deref());
    if policy != Some("FallbackToLogsOnError") {
        return message;
    }
    let log = config.log_dir(namespace, name, uid).join(log_path(container, attempt));
    let lines_at_most = (LOG_FALLBACK_LINES_MAX * 256) as u64;
    read_tail(&log, lines_at_most.max(16 << 10)).map(|text| message_from_log(&text)).unwrap_or_default()
}

/// Reads the last `bytes_max` bytes of a regular file. Fails for any other file, and for a symbolic link.
fn read_tail(path: &Path, bytes_max: u64) -> io::Result<String> {
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let flags = i32::try_from(flags.bits()).unwrap_or_default();
    let mut file = fs::OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    file.seek(SeekFrom::Start(metadata.len().saturating_sub(bytes_max)))?;
    let mut bytes = Vec::new();
    file.take(bytes_max).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Builds a termination message from the last lines of a CRI log, without timestamps, streams and tags. The message has
/// at most [`LOG_FALLBACK_LINES_MAX`] lines and [`LOG_FALLBACK_BYTES_MAX`] bytes. It begins after the last line that is
/// not in the CRI format, such as a first line that was cut off.
fn message_from_log(text: &str) -> String {
    let mut message = String::new();
    for line in text.lines().rev().take(LOG_FALLBACK_LINES_MAX) {
        let mut parts = line.splitn(4, ' ');
        let (Some(_), Some("stdout" | "stderr"), Some(tag), Some(text)) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            break;
        };
        let text = if tag.starts_with('P') { text.to_owned() } else { format!("{text}\n") };
        if LOG_FALLBACK_BYTES_MAX < message.len() + text.len() {
            let remaining = LOG_FALLBACK_BYTES_MAX - message.len();
            message.insert_str(0, &text[text.ceil_char_boundary(text.len() - remaining)..]);
            break;
        }
        message.insert_str(0, &text);
    }
    message
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn a_log_stands_in_for_last_words() {
        let log = "cut off\n2026-01-01T00:00:00Z stdout F one\n2026-01-01T00:00:00Z stderr P tw\n2026-01-01T00:00:00Z stderr F o\n";
        expect![[r#""one\ntwo\n""#]].assert_eq(&format!("{:?}", message_from_log(log)));
        let long = format!("t stdout F {}\nt stdout F end\n", "é".repeat(2000));
        let said = message_from_log(&long);
        assert!(said.len() <= LOG_FALLBACK_BYTES_MAX && said.ends_with("é\nend\n"), "{}", said.len());
    }

    #[test]
    fn a_container_without_a_seccomp_profile_has_the_default_of_the_node() {
        use v1::security_profile::ProfileType::{RuntimeDefault, Unconfined};
        let asked = |is_default: bool, profile: Option<&str>, is_privileged: bool| {
            let config = Config { seccomp_default: is_default, ..crate::config::example() };
            let profile = profile.map(|it| SeccompProfile { type_: it.to_owned(), localhost_profile: None });
            seccomp_profile(&config, profile, is_privileged).unwrap().profile_type
        };
        assert_eq!(asked(false, None, false), Unconfined as i32);
        assert_eq!(asked(true, None, false), RuntimeDefault as i32);
        assert_eq!(asked(true, Some("Unconfined"), false), Unconfined as i32);
        assert_eq!(asked(true, None, true), Unconfined as i32, "privileged");
    }
}
