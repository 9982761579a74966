//! Pod Security levels, policy versions, and the policy selected by a namespace's labels.

use std::fmt;
use std::str::FromStr;

use serde_json::{Map, Value};

use crate::validation::FieldError;

/// Prefix of the Pod Security labels on namespaces and of the annotations in the audit log.
pub(super) const LABEL_PREFIX: &str = "pod-security.kubernetes.io/";

/// Namespace label: the enforce level. A pod that violates it is refused.
pub(super) const ENFORCE_LABEL: &str = "pod-security.kubernetes.io/enforce";
/// Namespace label: the policy version of the enforce level.
pub(super) const ENFORCE_VERSION_LABEL: &str = "pod-security.kubernetes.io/enforce-version";
/// Namespace label: the audit level. Its violations are recorded in the audit log.
pub(super) const AUDIT_LABEL: &str = "pod-security.kubernetes.io/audit";
/// Namespace label: the policy version of the audit level.
pub(super) const AUDIT_VERSION_LABEL: &str = "pod-security.kubernetes.io/audit-version";
/// Namespace label: the warn level. Its violations are returned to the client as warnings.
pub(super) const WARN_LABEL: &str = "pod-security.kubernetes.io/warn";
/// Namespace label: the policy version of the warn level.
pub(super) const WARN_VERSION_LABEL: &str = "pod-security.kubernetes.io/warn-version";

/// Error message for a text that is not a Pod Security level.
const BAD_LEVEL_MESSAGE: &str = "must be one of privileged, baseline, restricted";
/// Error message for a text that is not a policy version.
const BAD_VERSION_MESSAGE: &str = r#"must be "latest" or "v1.x""#;

/// A level of the Pod Security Standards. The order of the variants is from the most permissive to the strictest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PodSecurityLevel {
    Privileged,
    Baseline,
    Restricted,
}

/// A version of the Pod Security Standards. `Latest` is newer than every minor version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PolicyVersion {
    /// The Standards of Kubernetes `v1.x`, where x is this minor version.
    Minor(u64),
    Latest,
}

/// Level and version of the Pod Security Standards that one mode (enforce, audit or warn) checks. Parsed from `LEVEL`
/// or `LEVEL:VERSION`. A missing version means `latest`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LevelVersion {
    pub level: PodSecurityLevel,
    pub version: PolicyVersion,
}

/// The Pod Security policy of a namespace: the level and version that each mode (enforce, audit, warn) checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NamespacePolicy {
    pub(super) enforce: LevelVersion,
    pub(super) audit: LevelVersion,
    pub(super) warn: LevelVersion,
}

impl LevelVersion {
    /// The `privileged` level, which has no controls.
    pub const PRIVILEGED: Self = Self { level: PodSecurityLevel::Privileged, version: PolicyVersion::Latest };

    /// Whether the level is `privileged`, which allows every pod.
    pub(super) fn is_privileged(self) -> bool {
        self.level == PodSecurityLevel::Privileged
    }

    /// Whether level and version are equal. At the `privileged` level, the version is not compared, because it has no
    /// effect.
    fn is_equivalent(self, other: Self) -> bool {
        self == other || self.is_privileged() && other.is_privileged()
    }
}

impl NamespacePolicy {
    /// Whether all three modes have the `privileged` level.
    pub(super) fn is_privileged(self) -> bool {
        [self.enforce, self.audit, self.warn].into_iter().all(LevelVersion::is_privileged)
    }

    /// Whether `self` and `other` are equivalent in all three modes.
    pub(super) fn is_equivalent(self, other: Self) -> bool {
        self.enforce.is_equivalent(other.enforce)
            && self.audit.is_equivalent(other.audit)
            && self.warn.is_equivalent(other.warn)
    }

    /// Returns the policy that the labels of a namespace select, and the errors in those labels.
    ///
    /// Rule: each label of a namespace replaces one default. An invalid level counts as `restricted` for enforce and as
    /// `privileged` for audit and warn. An invalid version counts as `latest`. If no label sets the warn level, the
    /// warn level is at least as strict as the level in a valid enforce label. If this raises the warn level, the warn
    /// version is the enforce version, unless a label sets it.
    /// Upstream: `PolicyToEvaluate`.
    pub(super) fn from_labels(labels: &Map<String, Value>, defaults: Self) -> (Self, Vec<FieldError>) {
        let mut labels = PolicyLabelParser { labels, errors: Vec::new() };
        let mut policy = defaults;
        let enforce = labels.parse_label::<PodSecurityLevel>(ENFORCE_LABEL);
        if let Some(level) = enforce {
            policy.enforce.level = level.unwrap_or(PodSecurityLevel::Restricted);
        }
        if let Some(version) = labels.parse_label::<PolicyVersion>(ENFORCE_VERSION_LABEL) {
            policy.enforce.version = version.unwrap_or(PolicyVersion::Latest);
        }
        if let Some(level) = labels.parse_label::<PodSecurityLevel>(AUDIT_LABEL) {
            policy.audit.level = level.unwrap_or(PodSecurityLevel::Privileged);
        }
        if let Some(version) = labels.parse_label::<PolicyVersion>(AUDIT_VERSION_LABEL) {
            policy.audit.version = version.unwrap_or(PolicyVersion::Latest);
        }
        let warn = labels.parse_label::<PodSecurityLevel>(WARN_LABEL);
        if let Some(level) = warn {
            policy.warn.level = level.unwrap_or(PodSecurityLevel::Privileged);
        }
        let warn_version = labels.parse_label::<PolicyVersion>(WARN_VERSION_LABEL);
        if let Some(version) = warn_version {
            policy.warn.version = version.unwrap_or(PolicyVersion::Latest);
        }
        let is_enforced = matches!(enforce, Some(Some(_)));
        if warn.is_none() && is_enforced && policy.warn.level < policy.enforce.level {
            policy.warn.level = policy.enforce.level;
            if warn_version.is_none() {
                policy.warn.version = policy.enforce.version;
            }
        }
        (policy, labels.errors)
    }
}

/// Parser of a namespace's Pod Security labels. Collects the errors in the values of the labels.
struct PolicyLabelParser<'a> {
    labels: &'a Map<String, Value>,
    errors: Vec<FieldError>,
}

impl PolicyLabelParser<'_> {
    /// Parses the value of a label. Returns `None` if the label is absent. If the value is invalid, records the error
    /// and returns `Some(None)`.
    fn parse_label<T: FromStr<Err = &'static str>>(&mut self, label: &str) -> Option<Option<T>> {
        let text = self.labels.get(label)?.as_str().unwrap_or_default();
        let parsed = text.parse::<T>();
        if let Err(why) = &parsed {
            self.errors.push(FieldError::invalid(format_args!("metadata.labels[{label}]"), text, why));
        }
        Some(parsed.ok())
    }
}

impl FromStr for PodSecurityLevel {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "privileged" => Ok(Self::Privileged),
            "baseline" => Ok(Self::Baseline),
            "restricted" => Ok(Self::Restricted),
            _ => Err(BAD_LEVEL_MESSAGE),
        }
    }
}

impl FromStr for PolicyVersion {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "latest" {
            return Ok(Self::Latest);
        }
        let minor = text.strip_prefix("v1.").ok_or(BAD_VERSION_MESSAGE)?;
        let is_plain =
            minor.bytes().all(|it| it.is_ascii_digit()) && (minor == "0" || !minor.starts_with('0'));
        // Go's int is signed.
        let minor = minor.parse::<i64>().ok().and_then(|it| u64::try_from(it).ok());
        minor.filter(|_| is_plain).map(Self::Minor).ok_or(BAD_VERSION_MESSAGE)
    }
}

impl FromStr for LevelVersion {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (level, version) = text.split_once(':').unwrap_or((text, "latest"));
        Ok(Self { level: level.parse()?, version: version.parse()? })
    }
}

impl PodSecurityLevel {
    /// Returns the level as it is written in labels, such as `baseline`.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Privileged => "privileged",
            Self::Baseline => "baseline",
            Self::Restricted => "restricted",
        }
    }
}

impl fmt::Display for PolicyVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Minor(minor) => write!(f, "v1.{minor}"),
            Self::Latest => write!(f, "latest"),
        }
    }
}

impl fmt::Display for LevelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.level.name(), self.version)
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use serde_json::json;

    use super::*;

    /// The policy and the complaints for labels without their prefix.
    fn read(labels: &[(&str, &str)], defaults: NamespacePolicy) -> String {
        let labels =
            labels.iter().map(|(name, value)| (format!("{LABEL_PREFIX}{name}"), json!(value))).collect();
        let (policy, causes) = NamespacePolicy::from_labels(&labels, defaults);
        let mut lines = format!("enforce {}, audit {}, warn {}\n", policy.enforce, policy.audit, policy.warn);
        for cause in causes {
            lines += &format!("  {}: {}\n", cause.field, cause.message);
        }
        lines
    }

    const PRIVILEGED: NamespacePolicy = NamespacePolicy {
        enforce: LevelVersion::PRIVILEGED,
        audit: LevelVersion::PRIVILEGED,
        warn: LevelVersion::PRIVILEGED,
    };

    #[test]
    fn labels_select_level_and_version_of_each_mode() {
        let strict: NamespacePolicy = NamespacePolicy {
            enforce: "baseline:v1.20".parse().unwrap(),
            audit: "restricted".parse().unwrap(),
            warn: "restricted:v1.30".parse().unwrap(),
        };
        let read = |labels: &[(&str, &str)]| read(labels, PRIVILEGED) + &read(labels, strict);
        expect![[r#"
            enforce privileged:latest, audit privileged:latest, warn privileged:latest
            enforce baseline:v1.20, audit restricted:latest, warn restricted:v1.30
            enforce baseline:latest, audit privileged:latest, warn baseline:latest
            enforce baseline:v1.20, audit restricted:latest, warn restricted:v1.30
            enforce restricted:v1.25, audit privileged:latest, warn restricted:v1.25
            enforce restricted:v1.25, audit restricted:latest, warn restricted:v1.30
            enforce restricted:v1.25, audit privileged:latest, warn restricted:v1.31
            enforce restricted:v1.25, audit restricted:latest, warn restricted:v1.31
            enforce restricted:latest, audit privileged:latest, warn privileged:latest
            enforce restricted:v1.20, audit restricted:latest, warn privileged:v1.30
            enforce privileged:latest, audit baseline:v1.0, warn privileged:latest
            enforce privileged:v1.20, audit baseline:v1.0, warn restricted:v1.30
        "#]]
        .assert_eq(
            &[
                read(&[("other", "x")]),
                read(&[("enforce", "baseline")]),
                read(&[("enforce", "restricted"), ("enforce-version", "v1.25")]),
                read(&[("enforce", "restricted"), ("enforce-version", "v1.25"), ("warn-version", "v1.31")]),
                read(&[("enforce", "restricted"), ("warn", "privileged")]),
                read(&[("enforce", "privileged"), ("audit", "baseline"), ("audit-version", "v1.0")]),
            ]
            .concat(),
        );
    }

    #[test]
    fn labels_that_cannot_be_read_enforce_restricted_and_do_not_audit_or_warn() {
        let labels = [
            ("enforce", "Baseline"),
            ("enforce-version", "v1.01"),
            ("audit", ""),
            ("audit-version", "v1.9223372036854775808"),
            ("warn", "strict"),
            ("warn-version", "1.30"),
        ];
        expect![[r#"
            enforce restricted:latest, audit privileged:latest, warn privileged:latest
              metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: "Baseline": must be one of privileged, baseline, restricted
              metadata.labels[pod-security.kubernetes.io/enforce-version]: Invalid value: "v1.01": must be "latest" or "v1.x"
              metadata.labels[pod-security.kubernetes.io/audit]: Invalid value: "": must be one of privileged, baseline, restricted
              metadata.labels[pod-security.kubernetes.io/audit-version]: Invalid value: "v1.9223372036854775808": must be "latest" or "v1.x"
              metadata.labels[pod-security.kubernetes.io/warn]: Invalid value: "strict": must be one of privileged, baseline, restricted
              metadata.labels[pod-security.kubernetes.io/warn-version]: Invalid value: "1.30": must be "latest" or "v1.x"
            enforce restricted:latest, audit privileged:latest, warn privileged:latest
              metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: "none": must be one of privileged, baseline, restricted
        "#]]
        .assert_eq(&(read(&labels, PRIVILEGED) + &read(&[("enforce", "none")], PRIVILEGED)));
        for text in ["", "v1", "v1.", "v1.+1", "v1.-1", "v2.1", "V1.1", "v1.1 ", "v1.1.1", "Latest"] {
            assert!(text.parse::<PolicyVersion>().is_err(), "{text:?}");
        }
    }
}
