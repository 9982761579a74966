//! The settings that all servers of a cluster must have in common. The first server on etcd stores them there, and a
//! server with other settings refuses to start.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use jiff::SignedDuration;
use muster_api::cidr::Ipv4Cidr;
use muster_api::time::format_duration;
use muster_etcd::EtcdError;

use crate::admission::{PodSecurityConfiguration, parse_cluster_range, parse_external_ip_ranges};
use crate::pki;
use crate::registry::Registry;
use crate::storage::etcd::{EtcdOptions, EtcdStoreError, QUIET_PERIOD};

/// Default of `--cluster-cidr`.
pub const DEFAULT_CLUSTER_CIDR: &str = "10.244.0.0/16";

/// The settings that all servers of a cluster must have in common: the range from which nodes are assigned pod CIDRs,
/// and the policy. Servers with different ranges would assign pod CIDRs of different ranges, and refuse the pod CIDRs of
/// nodes that other servers accept. Servers with different policies would admit different objects.
#[derive(Debug, Clone)]
pub struct ClusterSettings {
    /// The range of all pod CIDRs that nodes are assigned.
    cluster_range: Ipv4Cidr,
    /// Number of pod CIDRs at the start of the range that no node is assigned.
    reserved_pod_cidrs: u32,
    /// The ranges that `spec.externalIPs` of Services may use.
    external_ip_ranges: Vec<Ipv4Cidr>,
    policy: ClusterPolicy,
}

/// What a cluster allows, apart from its objects: the Pod Security of namespaces without labels, external IPs, and the
/// lifetimes of certificates and tokens.
#[derive(Debug, Clone)]
pub struct ClusterPolicy {
    /// The levels of namespaces without Pod Security labels, and the exemptions.
    pub pod_security: PodSecurityConfiguration,
    /// The CIDRs that `spec.externalIPs` of Services may use.
    pub allow_external_ips: Vec<String>,
    /// Maximum lifetime of the certificates that a server signs for CertificateSigningRequests. A request that does not
    /// specify a lifetime gets this maximum.
    pub certificate_lifetime_max: Duration,
    /// Maximum lifetime of service account tokens for TokenRequests. A request for a longer lifetime gets a token with
    /// this maximum. `None` if only tokens that are not bound to an object have a maximum.
    pub token_lifetime_max: Option<Duration>,
}

/// Why a server cannot have these settings.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    #[error("choose another --cluster-cidr: {0}")]
    ClusterCidr(String),
    #[error("choose other --pod-security-exempt-… flags: {0}")]
    PodSecurity(String),
    #[error("choose another --allow-external-ips: {0}")]
    ExternalIps(String),
}

/// A flag with its value. The value is empty if the flag is not given.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SettingFlag {
    name: String,
    value: String,
}

/// Formats the flag for messages, such as `with --cluster-cidr=10.244.0.0/16` or `without --allow-external-ips`.
impl fmt::Display for SettingFlag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.value {
            "" => write!(f, "without --{}", self.name),
            value => write!(f, "with --{}={value}", self.name),
        }
    }
}

/// A flag that differs between the servers of a cluster, each as [`SettingFlag`] formats it.
#[derive(Debug, PartialEq, Eq)]
struct DifferentFlag {
    own: String,
    stored: String,
}

impl From<DifferentFlag> for EtcdStoreError {
    fn from(DifferentFlag { own, stored }: DifferentFlag) -> Self {
        Self::OtherSettings { own, stored }
    }
}

impl ClusterSettings {
    /// Creates the settings from the values of `--cluster-cidr` and `--reserved-pod-cidrs`, and the policy. Fails if a
    /// value cannot be used.
    pub fn new(
        cluster_cidr: &str,
        reserved_pod_cidrs: u32,
        policy: ClusterPolicy,
    ) -> Result<Self, SettingsError> {
        let cluster_range = parse_cluster_range(cluster_cidr).map_err(SettingsError::ClusterCidr)?;
        policy.pod_security.check().map_err(SettingsError::PodSecurity)?;
        let ranges = parse_external_ip_ranges(&policy.allow_external_ips);
        let external_ip_ranges = ranges.map_err(SettingsError::ExternalIps)?;
        Ok(Self { cluster_range, reserved_pod_cidrs, external_ip_ranges, policy })
    }

    /// Applies the settings to a registry that serves no requests yet. Must be called only once for each registry.
    pub(crate) fn apply(&self, registry: &Registry) {
        let admission = &registry.admission;
        admission.pod_cidrs.set_range(self.cluster_range, self.reserved_pod_cidrs);
        admission.external_ips.set_ranges(self.external_ip_ranges.clone());
        let configured = admission.pod_security.set_configuration(self.policy.pod_security.clone());
        configured.expect("the configuration is checked, and is set once");
        if let Some(lifetime) = self.policy.token_lifetime_max {
            registry.access.tokens.set_max_lifetime(lifetime);
        }
    }

    /// Returns the maximum lifetime of certificates for CertificateSigningRequests. No certificate outlives the CA.
    pub(crate) fn certificate_lifetime_max(&self) -> SignedDuration {
        let lifetime = SignedDuration::try_from(self.policy.certificate_lifetime_max);
        lifetime.unwrap_or(SignedDuration::MAX).min(SignedDuration::from_hours(pki::CA_LIFETIME_DAYS * 24))
    }

    /// Returns the flags with these settings. Equal settings have equal flags: lists are sorted, and values with several
    /// notations have one of them.
    fn flags(&self) -> Vec<SettingFlag> {
        let ClusterPolicy { pod_security, certificate_lifetime_max, token_lifetime_max, .. } = &self.policy;
        let list = |values: &[String]| {
            values
                .iter()
                .map(String::as_str)
                .collect::<BTreeSet<_>>()
                .into_iter()
                .collect::<Vec<_>>()
                .join(",")
        };
        let ranges: Vec<_> = self.external_ip_ranges.iter().map(ToString::to_string).collect();
        let flags = [
            ("cluster-cidr", self.cluster_range.to_string()),
            ("reserved-pod-cidrs", self.reserved_pod_cidrs.to_string()),
            ("pod-security-default", pod_security.enforce.to_string()),
            ("pod-security-default-audit", pod_security.audit.to_string()),
            ("pod-security-default-warn", pod_security.warn.to_string()),
            ("pod-security-exempt-namespaces", list(&pod_security.exempt_namespaces)),
            ("pod-security-exempt-users", list(&pod_security.exempt_users)),
            ("pod-security-exempt-runtime-classes", list(&pod_security.exempt_runtime_classes)),
            ("allow-external-ips", list(&ranges)),
            ("cluster-signing-duration", format_duration(*certificate_lifetime_max)),
            (
                "service-account-max-token-expiration",
                token_lifetime_max.map(format_duration).unwrap_or_default(),
            ),
        ];
        flags.map(|(name, value)| SettingFlag { name: name.to_owned(), value }).into()
    }

    /// Returns the value under which the settings are stored in etcd: the flags, one on each line.
    fn to_value(&self) -> Bytes {
        let lines = self.flags().into_iter().map(|it| format!("--{}={}\n", it.name, it.value));
        lines.collect::<String>().into()
    }

    /// Returns the first flag that has another value in `stored`. A flag that only one of the two has belongs to another
    /// version of Muster, and is not compared.
    fn find_difference(&self, stored: &[u8]) -> Option<DifferentFlag> {
        let stored = String::from_utf8_lossy(stored);
        let stored = stored.lines().filter_map(|it| it.strip_prefix("--")?.split_once('='));
        let stored: Vec<SettingFlag> = stored
            .map(|(name, value)| SettingFlag { name: name.to_owned(), value: value.to_owned() })
            .collect();
        self.flags().into_iter().find_map(|own| {
            let stored = stored.iter().find(|it| it.name == own.name).filter(|it| **it != own)?;
            Some(DifferentFlag { stored: stored.to_string(), own: own.to_string() })
        })
    }

    /// Stores the settings in etcd if the cluster has none. If the stored settings are different, replaces them if no
    /// other server runs, and fails otherwise.
    ///
    /// Rule: the settings of a cluster are changed by a server that starts with other settings while no server runs. So
    /// this function waits for [`QUIET_PERIOD`], and replaces the stored settings if no server has written meanwhile.
    pub(crate) async fn store_or_replace_if_alone(&self, etcd: &EtcdOptions) -> Result<(), EtcdStoreError> {
        let (client, keys) = (etcd.client()?, etcd.keyspace());
        let stored = match muster_etcd::read_cluster_settings(&client, &keys).await? {
            Some(stored) => stored,
            None => match muster_etcd::create_cluster_settings(&client, &keys, self.to_value()).await {
                Ok(stored) => stored,
                // The server must start, so that it can serve deletes. A later start stores the settings.
                Err(EtcdError::NoSpace) => return Ok(()),
                Err(error) => return Err(error.into()),
            },
        };
        let Some(DifferentFlag { own, stored: other }) = self.find_difference(&stored) else { return Ok(()) };
        tracing::warn!(
            own,
            stored = other,
            "this server has other settings than the cluster: waiting {QUIET_PERIOD:?} to see whether other servers run"
        );
        let state = muster_etcd::read_cluster_state(&client, &keys).await?;
        tokio::time::sleep(QUIET_PERIOD).await;
        if muster_etcd::replace_cluster_settings(&client, &keys, &state, stored, self.to_value()).await? {
            tracing::warn!(
                own,
                old = other,
                "changed the settings of the cluster, because no other server runs"
            );
            return Ok(());
        }
        // A server that started at the same time may have changed the settings to those of this server.
        self.compare(etcd).await
    }

    /// Fails if etcd has other settings.
    pub(crate) async fn compare(&self, etcd: &EtcdOptions) -> Result<(), EtcdStoreError> {
        let stored = muster_etcd::read_cluster_settings(&etcd.client()?, &etcd.keyspace()).await?;
        match stored.and_then(|it| self.find_difference(&it)) {
            Some(different) => Err(different.into()),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    fn policy() -> ClusterPolicy {
        ClusterPolicy {
            pod_security: PodSecurityConfiguration {
                enforce: "privileged".parse().unwrap(),
                audit: "privileged".parse().unwrap(),
                warn: "privileged".parse().unwrap(),
                exempt_namespaces: Vec::new(),
                exempt_users: Vec::new(),
                exempt_runtime_classes: Vec::new(),
            },
            allow_external_ips: Vec::new(),
            certificate_lifetime_max: Duration::from_secs(365 * 86_400),
            token_lifetime_max: None,
        }
    }

    fn settings(change: impl FnOnce(&mut ClusterPolicy)) -> ClusterSettings {
        let mut policy = policy();
        change(&mut policy);
        ClusterSettings::new(DEFAULT_CLUSTER_CIDR, 0, policy).unwrap()
    }

    #[test]
    fn settings_differ_in_the_values_of_flags_that_both_have() {
        let own = settings(|_| ());
        let difference = |stored: &[u8]| own.find_difference(stored).map(|it| (it.own, it.stored));
        assert_eq!(difference(&own.to_value()), None);
        let pair = |own: &str, stored: &str| Some((own.to_owned(), stored.to_owned()));
        let range = |range, reserved| ClusterSettings::new(range, reserved, policy()).unwrap().to_value();
        assert_eq!(
            difference(&range("10.245.0.0/16", 3)),
            pair("with --cluster-cidr=10.244.0.0/16", "with --cluster-cidr=10.245.0.0/16")
        );
        assert_eq!(
            difference(&range(DEFAULT_CLUSTER_CIDR, 3)),
            pair("with --reserved-pod-cidrs=0", "with --reserved-pod-cidrs=3")
        );
        // Another version has other flags.
        assert_eq!(difference(b"--cluster-cidr=10.244.0.0/16\n--other=1\n"), None);
        assert_eq!(difference(b""), None);
    }

    #[test]
    fn servers_with_another_policy_have_other_settings() {
        let own = settings(|_| ());
        let difference = |change: &dyn Fn(&mut ClusterPolicy)| {
            let stored = settings(change).to_value();
            own.find_difference(&stored).map_or_else(String::new, |it| format!("{} / {}", it.own, it.stored))
        };
        let restricted = "restricted".parse().unwrap();
        let day = Duration::from_secs(86_400);
        let names = || vec!["b".to_owned(), "a".to_owned()];
        let differences = [
            difference(&|it| it.pod_security.enforce = restricted),
            difference(&|it| it.pod_security.audit = restricted),
            difference(&|it| it.pod_security.warn = restricted),
            difference(&|it| it.pod_security.exempt_namespaces = names()),
            difference(&|it| it.pod_security.exempt_users = names()),
            difference(&|it| it.pod_security.exempt_runtime_classes = names()),
            difference(&|it| it.allow_external_ips = vec!["192.0.2.0/28".to_owned()]),
            difference(&|it| it.certificate_lifetime_max = day),
            difference(&|it| it.token_lifetime_max = Some(day)),
        ];
        expect![[r"
            with --pod-security-default=privileged:latest / with --pod-security-default=restricted:latest
            with --pod-security-default-audit=privileged:latest / with --pod-security-default-audit=restricted:latest
            with --pod-security-default-warn=privileged:latest / with --pod-security-default-warn=restricted:latest
            without --pod-security-exempt-namespaces / with --pod-security-exempt-namespaces=a,b
            without --pod-security-exempt-users / with --pod-security-exempt-users=a,b
            without --pod-security-exempt-runtime-classes / with --pod-security-exempt-runtime-classes=a,b
            without --allow-external-ips / with --allow-external-ips=192.0.2.0/28
            with --cluster-signing-duration=365d / with --cluster-signing-duration=1d
            without --service-account-max-token-expiration / with --service-account-max-token-expiration=1d"]]
        .assert_eq(&differences.join("\n"));
        // The order of a list makes no difference.
        let sorted = settings(|it| it.pod_security.exempt_users = vec!["a".to_owned(), "b".to_owned()]);
        let unsorted = settings(|it| it.pod_security.exempt_users = names());
        assert_eq!(sorted.find_difference(&unsorted.to_value()), None);
    }
}
