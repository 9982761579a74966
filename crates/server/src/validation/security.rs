//! Validation of security contexts of pods and containers.

use serde_json::{Value, json};

use super::file_path::check_relative_path;
use super::pod::PodSpecToValidate;
use super::{check_choice, has_field};
use crate::small_map::SmallSet;
use crate::unstructured::{is_set, list_at, str_at};
use crate::validation::field_error::{ErrorPath, FieldErrors, InvalidValue};
use crate::validation::names;

pub(super) fn check_container_context(
    context: &Value,
    spec: &PodSpecToValidate,
    at: &ErrorPath,
    out: &mut FieldErrors,
) {
    for name in ["runAsUser", "runAsGroup"] {
        check_unix_id(&context[name], &at.field(name), out);
    }
    let mount = &context["procMount"];
    if let Some(kind) = mount.as_str() {
        if !matches!(kind, "Default" | "Unmasked") {
            out.unsupported(&at.field("procMount"), kind, &["Default", "Unmasked"]);
        }
        if kind == "Unmasked" && spec.uses_host_users() {
            out.invalid(&at.field("procMount"), kind, "`hostUsers` must be false to use `Unmasked`");
        }
    }
    check_seccomp(&context["seccompProfile"], &at.field("seccompProfile"), out);
    if context["allowPrivilegeEscalation"] == false {
        if context["privileged"] == true {
            let why = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
            out.invalid(at, format_security_context(context), why);
        }
        for _ in list_at(&context["capabilities"], "add").iter().filter(|it| *it == "CAP_SYS_ADMIN") {
            let why = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
            out.invalid(at, format_security_context(context), why);
        }
    }
    check_windows_options(&context["windowsOptions"], &at.field("windowsOptions"), out);
    check_app_armor(&context["appArmorProfile"], &at.field("appArmorProfile"), out);
}

pub(super) fn check_pod_context(spec: &PodSpecToValidate, at: &ErrorPath, out: &mut FieldErrors) {
    let context = &spec.json["securityContext"];
    for name in ["fsGroup", "runAsUser", "runAsGroup"] {
        check_unix_id(&context[name], &at.field(name), out);
    }
    for (index, group) in list_at(context, "supplementalGroups").iter().enumerate() {
        check_unix_id(group, &at.field("supplementalGroups").index(index), out);
    }
    if spec.json["shareProcessNamespace"] == true && spec.json["hostPID"] == true {
        let why = "ShareProcessNamespace and HostPID cannot both be enabled";
        out.invalid(&at.field("shareProcessNamespace"), &json!(true), why);
    }
    check_sysctls(spec, list_at(context, "sysctls"), &at.field("sysctls"), out);
    let group_at = at.field("fsGroupChangePolicy");
    check_choice(&context["fsGroupChangePolicy"], &["Always", "OnRootMismatch"], &group_at, out);
    check_seccomp(&context["seccompProfile"], &at.field("seccompProfile"), out);
    check_windows_options(&context["windowsOptions"], &at.field("windowsOptions"), out);
    check_app_armor(&context["appArmorProfile"], &at.field("appArmorProfile"), out);
    let merge_at = at.field("supplementalGroupsPolicy");
    check_choice(&context["supplementalGroupsPolicy"], &["Merge", "Strict"], &merge_at, out);
    let change_at = at.field("seLinuxChangePolicy");
    check_choice(&context["seLinuxChangePolicy"], &["Recursive"], &change_at, out);
}

/// Checks that a pod with `spec.os` sets no fields that only another operating system supports.
pub(super) fn check_os_fields(spec: &PodSpecToValidate, at: &ErrorPath, out: &mut FieldErrors) {
    let json = spec.json;
    let Some(os) = json.get("os").filter(|it| !it.is_null()) else { return };
    match str_at(os, "name") {
        "" => out.required(&at.field("os").field("name"), ""),
        "linux" => {
            /// Upstream's message for Windows options in a Linux pod.
            const LINUX_POD_MESSAGE: &str = "windows options cannot be set for a linux pod";
            if has_field(&json["securityContext"], "windowsOptions") {
                out.forbidden(&at.field("securityContext").field("windowsOptions"), LINUX_POD_MESSAGE);
            }
            spec.for_each_container(at, |container, at| {
                if has_field(&container["securityContext"], "windowsOptions") {
                    out.forbidden(&at.field("securityContext").field("windowsOptions"), LINUX_POD_MESSAGE);
                }
            });
        }
        "windows" => check_windows_pod(spec, at, out),
        other => out.unsupported(&at.field("os"), other, &["linux", "windows"]),
    }
}

/// Checks that a Windows pod sets no fields that only Linux supports.
fn check_windows_pod(spec: &PodSpecToValidate, at: &ErrorPath, out: &mut FieldErrors) {
    /// Upstream's message for a field that a Windows pod must not set.
    const WINDOWS_POD_MESSAGE: &str = "cannot be set for a windows pod";
    /// Fields that a Windows pod must not set. The flag is `true` for a field of the pod spec, and `false` for a field
    /// of its security context.
    const WINDOWS_POD_FORBIDDEN_FIELDS: &[(&str, bool)] = &[
        ("appArmorProfile", false),
        ("seLinuxOptions", false),
        ("hostUsers", true),
        ("hostPID", true),
        ("hostIPC", true),
        ("seccompProfile", false),
        ("fsGroup", false),
        ("fsGroupChangePolicy", false),
        ("sysctls", false),
        ("shareProcessNamespace", true),
        ("runAsUser", false),
        ("runAsGroup", false),
        ("supplementalGroups", false),
        ("supplementalGroupsPolicy", false),
        ("seLinuxChangePolicy", false),
    ];
    /// Fields that the security context of a container in a Windows pod must not set.
    const WINDOWS_CONTAINER_FORBIDDEN_FIELDS: &[&str] = &[
        "appArmorProfile",
        "seLinuxOptions",
        "seccompProfile",
        "capabilities",
        "readOnlyRootFilesystem",
        "privileged",
        "allowPrivilegeEscalation",
        "procMount",
        "runAsUser",
        "runAsGroup",
    ];
    let context_at = at.field("securityContext");
    for (name, is_spec_field) in WINDOWS_POD_FORBIDDEN_FIELDS {
        let value = if *is_spec_field { &spec.json[name] } else { &spec.json["securityContext"][name] };
        let is_given = if matches!(*name, "hostPID" | "hostIPC") { *value == true } else { !value.is_null() };
        if is_given {
            out.forbidden(
                &if *is_spec_field { at.field(name) } else { context_at.field(name) },
                WINDOWS_POD_MESSAGE,
            );
        }
    }
    spec.for_each_container(at, |container, at| {
        for name in WINDOWS_CONTAINER_FORBIDDEN_FIELDS
            .iter()
            .filter(|name| has_field(&container["securityContext"], name))
        {
            out.forbidden(&at.field("securityContext").field(name), WINDOWS_POD_MESSAGE);
        }
    });
}

/// Checks Windows HostProcess containers. If one container of a pod is a HostProcess container, all of them must be,
/// and the pod must use the host network. A container must not set another value of `hostProcess` than the pod.
pub(super) fn check_host_process(spec: &PodSpecToValidate, at: &ErrorPath, out: &mut FieldErrors) {
    let pod_value = spec.json["securityContext"]["windowsOptions"]["hostProcess"].as_bool();
    let (mut all, mut processes) = (0, 0);
    spec.for_each_container(at, |container, at| {
        all += 1;
        let own = container["securityContext"]["windowsOptions"]["hostProcess"].as_bool();
        if let (Some(pod), Some(own)) = (pod_value, own)
            && pod != own
        {
            let why = format!("pod hostProcess value must be identical if both are specified, was {pod}");
            let at = at.field("securityContext.windowsOptions.hostProcess");
            out.invalid(&at, &json!(own), &why);
        }
        if own.or(pod_value) == Some(true) {
            processes += 1;
        }
    });
    if processes == 0 {
        return;
    }
    if processes != all {
        let why =
            "If pod contains any hostProcess containers then all containers must be HostProcess containers";
        out.invalid(at, "", why);
    }
    if spec.json["hostNetwork"] != true {
        let why = "hostNetwork must be true if pod contains any hostProcess containers";
        out.invalid(&at.field("hostNetwork"), &json!(false), why);
    }
}

/// Checks that a pod with `hostUsers: false` does not use the network, PID or IPC namespace of the host, or block
/// devices.
pub(super) fn check_host_users(spec: &PodSpecToValidate, at: &ErrorPath, out: &mut FieldErrors) {
    /// Upstream's message for a field that must not be set if `hostUsers` is `false`.
    const NO_HOST_USERS_MESSAGE: &str = "when `hostUsers` is false";
    if spec.uses_host_users() {
        return;
    }
    for (name, field) in [("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")] {
        if spec.json[name] == true {
            out.forbidden(&at.field(field), NO_HOST_USERS_MESSAGE);
        }
    }
    spec.for_each_container(at, |container, at| {
        if is_set(&container["volumeDevices"]) {
            out.forbidden(&at.field("volumeDevices"), NO_HOST_USERS_MESSAGE);
        }
    });
}

/// Checks that a Unix user or group ID is in the valid range.
fn check_unix_id(id: &Value, at: &ErrorPath, out: &mut FieldErrors) {
    if let Some(id) = id.as_i64() {
        for why in names::unix_id_errors(id) {
            out.invalid(at, id, &why);
        }
    }
}

fn check_seccomp(profile: &Value, at: &ErrorPath, out: &mut FieldErrors) {
    /// Supported types of a seccomp profile.
    const SECCOMP_PROFILE_TYPES: &[&str] = &["Localhost", "RuntimeDefault", "Unconfined"];
    if profile.is_null() {
        return;
    }
    let kind = str_at(profile, "type");
    match kind {
        "" => out.required(&at.field("type"), "type is required when seccompProfile is set"),
        other if !SECCOMP_PROFILE_TYPES.contains(&other) => {
            out.unsupported(&at.field("type"), other, SECCOMP_PROFILE_TYPES)
        }
        _ => {}
    }
    let path_at = at.field("localhostProfile");
    match (kind, profile["localhostProfile"].as_str()) {
        ("Localhost", None) => out.required(&path_at, "must be set when seccomp type is Localhost"),
        ("Localhost", Some(path)) => check_relative_path(path, &path_at, out),
        (_, None) => {}
        (_, Some(path)) => {
            let profile_in_go = format!("{{\"Type\":{},\"LocalhostProfile\":{}}}", json!(kind), json!(path));
            out.invalid(
                &path_at,
                InvalidValue::Formatted(profile_in_go.into()),
                "can only be set when seccomp type is Localhost",
            );
        }
    }
}

pub(crate) fn is_valid_app_armor_profile(profile: &Value) -> bool {
    let mut causes = FieldErrors::default();
    check_app_armor(profile, &ErrorPath::new("appArmorProfile"), &mut causes);
    causes.is_empty()
}

fn check_app_armor(profile: &Value, at: &ErrorPath, out: &mut FieldErrors) {
    /// Maximum length of the name of an AppArmor profile in bytes.
    const APP_ARMOR_PROFILE_BYTES_MAX: usize = 4095;
    if profile.is_null() {
        return;
    }
    let path_at = at.field("localhostProfile");
    let path = profile["localhostProfile"].as_str();
    match (str_at(profile, "type"), path) {
        ("Localhost", None) => out.required(&path_at, "must be set when AppArmor type is Localhost"),
        ("Localhost", Some(path)) => {
            if path.trim() != path {
                out.invalid(&path_at, path, "must not be padded with whitespace");
            } else if path.is_empty() {
                out.required(&path_at, "must be set when AppArmor type is Localhost");
            }
            if APP_ARMOR_PROFILE_BYTES_MAX < path.len() {
                out.too_long(&path_at, APP_ARMOR_PROFILE_BYTES_MAX);
            }
        }
        ("RuntimeDefault" | "Unconfined", None) => {}
        ("RuntimeDefault" | "Unconfined", Some(path)) => {
            out.invalid(&path_at, path, "can only be set when AppArmor type is Localhost");
        }
        ("", _) => out.required(&at.field("type"), "type is required when appArmorProfile is set"),
        (other, _) => {
            out.unsupported(&at.field("type"), other, &["Localhost", "RuntimeDefault", "Unconfined"])
        }
    }
}

/// Checks `windowsOptions` of a security context.
fn check_windows_options(options: &Value, at: &ErrorPath, out: &mut FieldErrors) {
    /// Maximum length of a GMSA credential spec in bytes.
    const GMSA_CREDENTIAL_SPEC_BYTES_MAX: usize = 64 << 10;
    if let Some(name) = options["gmsaCredentialSpecName"].as_str() {
        out.invalid_for_each(&at.field("gmsaCredentialSpecName"), name, names::dns_subdomain_errors(name));
    }
    if let Some(spec) = options["gmsaCredentialSpec"].as_str() {
        let at = at.field("gmsaCredentialSpec");
        if spec.is_empty() {
            out.invalid(&at, spec, "gmsaCredentialSpec cannot be an empty string");
        } else if GMSA_CREDENTIAL_SPEC_BYTES_MAX < spec.len() {
            out.invalid(&at, spec, "gmsaCredentialSpec size must be under 64 KiB");
        }
    }
    if let Some(name) = options["runAsUserName"].as_str() {
        for why in windows_user_name_errors(name) {
            out.invalid(&at.field("runAsUserName"), name, why);
        }
    }
}

/// Returns the validation errors of a Windows user name, which is `DOMAIN\user` or `user`.
fn windows_user_name_errors(name: &str) -> Vec<&'static str> {
    let (domain, user) = name.split_once('\\').map_or((None, name), |(domain, user)| (Some(domain), user));
    if name.is_empty() {
        return vec!["runAsUserName cannot be an empty string"];
    }
    if name.chars().any(|it| it.is_ascii_control()) {
        return vec!["runAsUserName cannot contain control characters"];
    }
    if user.contains('\\') {
        return vec!["runAsUserName cannot contain more than one backslash"];
    }
    let mut errors = Vec::new();
    if let Some(domain) = domain {
        if 256 <= domain.len() {
            errors.push("runAsUserName's Domain length must be under 256 characters");
        }
        let is_net_bios = (1..=15).contains(&domain.chars().count())
            && !domain.starts_with('.')
            && !domain.contains(|it| "\\/:*?\"<>|".contains(it));
        let is_dns_label = |it: &str| {
            let inner = |it: u8| it.is_ascii_alphanumeric() || it == b'-';
            (1..=63).contains(&it.len())
                && it.bytes().all(inner)
                && !it.starts_with('-')
                && !it.ends_with('-')
        };
        if !is_net_bios && !domain.split('.').all(is_dns_label) {
            errors.push("runAsUserName's Domain doesn't match the NetBios nor the DNS format");
        }
    }
    if user.is_empty() {
        errors.push("runAsUserName's User cannot be empty");
    } else if 104 < user.len() {
        errors.push("runAsUserName's User length must not be longer than 104 characters");
    }
    if !user.is_empty() && user.chars().all(|it| it == '.' || it == ' ') {
        errors.push("runAsUserName's User cannot contain only periods or spaces");
    }
    if user.contains(|it| "\"/\\:;|=,+*?<>@[]".contains(it)) {
        errors.push("runAsUserName's User cannot contain the following characters: \"/\\:;|=,+*?<>@[]");
    }
    errors
}

/// Checks the names of sysctls. A pod that uses the network or IPC namespace of the host may not set the sysctls of
/// this namespace.
fn check_sysctls(spec: &PodSpecToValidate, sysctls: &[Value], at: &ErrorPath, out: &mut FieldErrors) {
    /// Syntax of a sysctl name, as upstream's message shows it.
    const SYSCTL_NAME_REGEX: &str = "^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
    let is_part = |it: &str| {
        let ends = |it: Option<u8>| it.is_some_and(|it| it.is_ascii_lowercase() || it.is_ascii_digit());
        let inner = |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'-' || it == b'_';
        it.bytes().all(inner) && ends(it.bytes().next()) && ends(it.bytes().next_back())
    };
    let mut seen = SmallSet::default();
    for (index, sysctl) in sysctls.iter().enumerate() {
        let at = at.index(index);
        let (at, name) = (at.field("name"), str_at(sysctl, "name"));
        if name.is_empty() {
            out.required(&at, "");
        } else if 253 < name.len() || !name.split(['.', '/']).all(is_part) {
            out.invalid(
                &at,
                name,
                &format!("must have at most 253 characters and match regex {SYSCTL_NAME_REGEX}"),
            );
        } else if !seen.insert(name) {
            out.duplicate(&at, name);
        }
        let dotted = name.replace('/', ".");
        let has_prefix = |prefixes: &[&str]| prefixes.iter().any(|it| dotted.starts_with(it));
        if spec.json["hostNetwork"] == true && has_prefix(&["net."]) {
            out.invalid(&at, name, "may not be specified when 'hostNetwork' is true");
        } else if spec.json["hostIPC"] == true
            && has_prefix(&["kernel.shm", "kernel.msg", "kernel.sem", "fs.mqueue."])
        {
            out.invalid(&at, name, "may not be specified when 'hostIPC' is true");
        }
    }
}

/// Formats the security context of a container for an error message, as Go prints the struct of upstream's internal
/// type.
fn format_security_context(context: &Value) -> InvalidValue<'static> {
    /// Go name and JSON name of each field of a container's security context, in the order of the Go struct.
    const SECURITY_CONTEXT_FIELDS: &[(&str, &str)] = &[
        ("Capabilities", "capabilities"),
        ("Privileged", "privileged"),
        ("SELinuxOptions", "seLinuxOptions"),
        ("WindowsOptions", "windowsOptions"),
        ("RunAsUser", "runAsUser"),
        ("RunAsGroup", "runAsGroup"),
        ("RunAsNonRoot", "runAsNonRoot"),
        ("ReadOnlyRootFilesystem", "readOnlyRootFilesystem"),
        ("AllowPrivilegeEscalation", "allowPrivilegeEscalation"),
        ("ProcMount", "procMount"),
        ("SeccompProfile", "seccompProfile"),
        ("AppArmorProfile", "appArmorProfile"),
    ];
    let go_fields: Vec<_> = SECURITY_CONTEXT_FIELDS
        .iter()
        .map(|(go, json)| match (*go, &context[json]) {
            ("Capabilities", it @ Value::Object(_)) => {
                format!("\"Capabilities\":{{\"Add\":{},\"Drop\":{}}}", it["add"], it["drop"])
            }
            (go, it) => format!("\"{go}\":{it}"),
        })
        .collect();
    InvalidValue::Formatted(format!("{{{}}}", go_fields.join(",")).into())
}
