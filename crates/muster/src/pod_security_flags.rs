//! Flags of Pod Security admission.

use muster_server::{PodSecurityConfiguration, PodSecurityLevelVersion};

/// Flags of Pod Security admission.
#[derive(Debug, clap::Args)]
pub(crate) struct PodSecurityFlags {
    /// Pod Security level to enforce in namespaces without an enforce label: privileged, baseline or restricted, and
    /// optionally a version, as in baseline:v1.34
    #[arg(long, value_name = "LEVEL", default_value = "privileged")]
    pod_security_default: PodSecurityLevelVersion,
    /// Pod Security level for audit annotations in namespaces without an audit label
    #[arg(long, value_name = "LEVEL", default_value = "privileged")]
    pod_security_default_audit: PodSecurityLevelVersion,
    /// Pod Security level for warnings in namespaces without a warn label [default: that of --pod-security-default]
    #[arg(long, value_name = "LEVEL")]
    pod_security_default_warn: Option<PodSecurityLevelVersion>,
    /// Namespaces that are exempt from Pod Security, regardless of their labels
    #[arg(long, value_name = "NAMESPACE", value_delimiter = ',')]
    pod_security_exempt_namespaces: Vec<String>,
    /// Users that are exempt from Pod Security; pods of a controller are created by the controller's user
    #[arg(long, value_name = "USER", value_delimiter = ',')]
    pod_security_exempt_users: Vec<String>,
    /// Runtime classes whose pods are exempt from Pod Security
    #[arg(long, value_name = "CLASS", value_delimiter = ',')]
    pod_security_exempt_runtime_classes: Vec<String>,
}

impl PodSecurityFlags {
    /// Returns the settings of Pod Security admission that the flags specify.
    pub(crate) fn pod_security_settings(&self) -> PodSecurityConfiguration {
        PodSecurityConfiguration {
            enforce: self.pod_security_default,
            audit: self.pod_security_default_audit,
            warn: self.pod_security_default_warn.unwrap_or(self.pod_security_default),
            exempt_namespaces: self.pod_security_exempt_namespaces.clone(),
            exempt_users: self.pod_security_exempt_users.clone(),
            exempt_runtime_classes: self.pod_security_exempt_runtime_classes.clone(),
        }
    }
}
