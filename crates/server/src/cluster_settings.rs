//! The settings that all servers of a cluster must have in common. The first server on etcd stores them there, and a
//! server with other settings refuses to start.

use bytes::Bytes;
use muster_api::cidr::Ipv4Cidr;
use muster_etcd::EtcdError;

use crate::admission::parse_cluster_range;
use crate::storage::etcd::{EtcdOptions, EtcdStoreError, QUIET_PERIOD};

/// Default of `--cluster-cidr`.
pub const DEFAULT_CLUSTER_CIDR: &str = "10.244.0.0/16";

/// The settings that all servers of a cluster must have in common: the range from which nodes are assigned pod CIDRs.
/// Servers with different ranges would assign pod CIDRs of different ranges, and refuse the pod CIDRs of nodes that other
/// servers accept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClusterSettings {
    /// The range of all pod CIDRs that nodes are assigned.
    pub(crate) cluster_range: Ipv4Cidr,
    /// Number of pod CIDRs at the start of the range that no node is assigned.
    pub(crate) reserved_pod_cidrs: u32,
}

/// A flag that differs between the servers of a cluster, each with its value, such as `--cluster-cidr=10.244.0.0/16`.
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
    /// Creates the settings from the values of `--cluster-cidr` and `--reserved-pod-cidrs`. Returns an error message if
    /// the range cannot be used.
    pub fn new(cluster_cidr: &str, reserved_pod_cidrs: u32) -> Result<Self, String> {
        Ok(Self { cluster_range: parse_cluster_range(cluster_cidr)?, reserved_pod_cidrs })
    }

    /// Returns the flags with these settings.
    fn flags(&self) -> [String; 2] {
        [
            format!("--cluster-cidr={}", self.cluster_range),
            format!("--reserved-pod-cidrs={}", self.reserved_pod_cidrs),
        ]
    }

    /// Returns the flags that another server needs to have these settings: those that do not have their default value.
    pub fn non_default_flags(&self) -> Vec<String> {
        let defaults =
            [format!("--cluster-cidr={DEFAULT_CLUSTER_CIDR}"), "--reserved-pod-cidrs=0".to_owned()];
        self.flags().into_iter().filter(|it| !defaults.contains(it)).collect()
    }

    /// Returns the value under which the settings are stored in etcd: the flags, one on each line.
    fn to_value(self) -> Bytes {
        (self.flags().join("\n") + "\n").into()
    }

    /// Returns the first flag that has another value in `stored`. A flag that only one of the two has belongs to another
    /// version of Muster, and is not compared.
    fn find_difference(&self, stored: &[u8]) -> Option<DifferentFlag> {
        let stored = String::from_utf8_lossy(stored);
        self.flags().into_iter().find_map(|own| {
            let name = own.split_once('=').map_or(&*own, |(name, _)| name);
            let has_name = |it: &&str| it.split_once('=').is_some_and(|(it, _)| it == name);
            let stored = stored.lines().find(has_name).filter(|it| *it != own)?.to_owned();
            Some(DifferentFlag { stored, own })
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
    use super::*;

    #[test]
    fn settings_differ_in_the_values_of_flags_that_both_have() {
        let settings = |range, reserved| ClusterSettings::new(range, reserved).unwrap();
        let own = settings(DEFAULT_CLUSTER_CIDR, 0);
        let difference = |stored: &[u8]| own.find_difference(stored).map(|it| (it.own, it.stored));
        assert_eq!(difference(&own.to_value()), None);
        let pair = |own: &str, stored: &str| Some((own.to_owned(), stored.to_owned()));
        assert_eq!(
            difference(&settings("10.245.0.0/16", 3).to_value()),
            pair("--cluster-cidr=10.244.0.0/16", "--cluster-cidr=10.245.0.0/16")
        );
        assert_eq!(
            difference(&settings(DEFAULT_CLUSTER_CIDR, 3).to_value()),
            pair("--reserved-pod-cidrs=0", "--reserved-pod-cidrs=3")
        );
        // Another version has other flags.
        assert_eq!(difference(b"--cluster-cidr=10.244.0.0/16\n--other=1\n"), None);
        assert_eq!(difference(b""), None);
        assert!(own.non_default_flags().is_empty());
        assert_eq!(settings("10.245.0.0/16", 0).non_default_flags(), ["--cluster-cidr=10.245.0.0/16"]);
        assert_eq!(settings(DEFAULT_CLUSTER_CIDR, 3).non_default_flags(), ["--reserved-pod-cidrs=3"]);
    }
}
