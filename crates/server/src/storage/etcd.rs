//! The store on etcd, which several servers share: its options and its connection.

use std::path::PathBuf;
use std::time::Duration;

use muster_etcd::{
    ClientError, ClientTls, EtcdClient, EtcdError, InvalidPrefix, Keyspace, OpenError, UnusableError,
};
use muster_store::{Db, DbOptions, EncryptionKeys};

/// Default prefix of all keys of a cluster in etcd.
pub const DEFAULT_ETCD_PREFIX: &str = "/muster/v1";

/// Time without a write to etcd after which all servers count as stopped. A running server writes at least every five
/// seconds, because it renews Leases.
pub(crate) const QUIET_PERIOD: Duration = Duration::from_secs(12);

/// Options with which the store on etcd is opened.
#[derive(Debug, Clone)]
pub struct EtcdOptions {
    /// URLs of the etcd members, such as `https://10.0.0.1:2379`.
    pub endpoints: Vec<String>,
    /// PEM files for TLS. They are required for URLs with `https`. `None` if no URL has `https`.
    pub tls: Option<EtcdTlsFiles>,
    /// Prefix of all keys of the cluster in etcd.
    pub prefix: String,
    /// Whether to accept unsupported versions of etcd, which may lose watch events.
    pub accepts_any_version: bool,
    /// File with the server token, which decrypts the keys that all servers share. `None` uses the copy in the data
    /// directory, or generates a token for a new cluster.
    pub token_file: Option<PathBuf>,
    /// The highest feature level that this process supports. At most [`FEATURE_LEVEL`](muster_etcd::FEATURE_LEVEL).
    pub feature_level: u32,
}

/// PEM files for TLS connections to etcd.
#[derive(Debug, Clone)]
pub struct EtcdTlsFiles {
    /// Certificates of the CA that signed the certificates of the etcd members.
    pub ca: PathBuf,
    /// Client certificate with which the server authenticates to etcd.
    pub cert: PathBuf,
    /// Private key of the client certificate.
    pub key: PathBuf,
}

/// Why the store on etcd cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum EtcdStoreError {
    #[error("choose another --etcd")]
    Client(#[from] ClientError),
    #[error("choose another --etcd-prefix")]
    Prefix(#[from] InvalidPrefix),
    #[error("open the store on etcd")]
    Etcd(#[from] EtcdError),
    #[error("open the store on etcd")]
    Open(#[from] OpenError),
    #[error(transparent)]
    Unusable(#[from] UnusableError),
    #[error(
        "the servers of this cluster run {stored}, and this one was started {own}: start it {stored}. To change the setting, stop all \
         servers, and start them with the new value"
    )]
    OtherSettings { own: String, stored: String },
}

impl EtcdOptions {
    /// Returns a client of the etcd cluster, without connecting. Fails if the prefix is not allowed.
    pub(crate) fn client(&self) -> Result<EtcdClient, EtcdStoreError> {
        Keyspace::check_prefix(&self.prefix)?;
        let tls = self.tls.as_ref().map(|it| ClientTls::from_files(&it.ca, &it.cert, &it.key)).transpose()?;
        let client = EtcdClient::new(&self.endpoints, tls.as_ref())?;
        Ok(if self.accepts_any_version { client.accept_any_version() } else { client })
    }

    pub(crate) fn keyspace(&self) -> Keyspace {
        Keyspace::new(&self.prefix, 0).with_feature_level_max(self.feature_level)
    }

    /// Opens the store. `encryption` has the keys for Secrets, or is `None` if Secrets are not encrypted.
    pub(crate) fn open(
        &self,
        encryption: Option<EncryptionKeys>,
        options: DbOptions,
    ) -> Result<Db, EtcdStoreError> {
        let (published, backend) = muster_etcd::open(self.client()?, self.keyspace(), encryption, options)?;
        Ok(Db::new(published, backend))
    }
}

#[cfg(test)]
mod tests {
    use muster_etcd::FEATURE_LEVEL;

    use super::*;

    /// The error and its cause, as the command prints them.
    fn with_cause(error: &EtcdStoreError) -> String {
        format!("{error}: {}", std::error::Error::source(error).unwrap())
    }

    #[test]
    fn a_prefix_with_a_reserved_segment_is_refused() {
        let options = EtcdOptions {
            endpoints: vec!["http://127.0.0.1:2379".to_owned()],
            tls: None,
            prefix: "/muster/o".to_owned(),
            accepts_any_version: false,
            token_file: None,
            feature_level: FEATURE_LEVEL,
        };
        let error = with_cause(&options.client().unwrap_err());
        expect_test::expect![[
            r#"choose another --etcd-prefix: /muster/o has the segment "o", which is reserved for keys of Muster"#
        ]]
        .assert_eq(&error);
    }

    #[test]
    fn errors_name_the_flag() {
        let options = |url: &str| EtcdOptions {
            endpoints: vec![url.to_owned()],
            tls: None,
            prefix: DEFAULT_ETCD_PREFIX.to_owned(),
            accepts_any_version: false,
            token_file: None,
            feature_level: FEATURE_LEVEL,
        };
        let error = |url: &str| with_cause(&options(url).client().unwrap_err());
        expect_test::expect![[r"
            choose another --etcd: http://10.0.0.1:2379 is not on this machine, so it must use https
            choose another --etcd: https://10.0.0.1:2379 is not the URL of an etcd member, such as https://10.0.0.1:2379: https needs certificates
            choose another --etcd: etcd is not the URL of an etcd member, such as https://10.0.0.1:2379: it begins with neither https:// nor http://
        "]]
        .assert_eq(&["http://10.0.0.1:2379", "https://10.0.0.1:2379", "etcd"].map(|it| error(it) + "\n").concat());
    }
}
