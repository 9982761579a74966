//! Flags for a store on etcd, which several servers share.

use std::path::PathBuf;

use muster_server::{DEFAULT_ETCD_PREFIX, EtcdOptions, EtcdTlsFiles};

/// The flags that begin with `--etcd`, and the server token.
#[derive(Debug, clap::Args)]
pub(crate) struct EtcdFlags {
    /// URLs of the members of an etcd cluster, in which the objects are stored instead of the data directory
    #[arg(long, value_name = "URL,…", value_delimiter = ',', hide = true)]
    etcd: Vec<String>,
    /// CA certificates of etcd in PEM
    #[arg(long, value_name = "FILE", requires = "etcd", requires = "etcd_cert", hide = true)]
    etcd_ca: Option<PathBuf>,
    /// Client certificate for etcd in PEM
    #[arg(long, value_name = "FILE", requires = "etcd_key", hide = true)]
    etcd_cert: Option<PathBuf>,
    /// Private key of the client certificate for etcd in PEM
    #[arg(long, value_name = "FILE", requires = "etcd_ca", hide = true)]
    etcd_key: Option<PathBuf>,
    /// Prefix of all keys of this cluster in etcd
    #[arg(long, value_name = "PREFIX", default_value = DEFAULT_ETCD_PREFIX, hide = true)]
    etcd_prefix: String,
    /// Accept versions of etcd that are known to lose watch events, for tests
    #[arg(long, requires = "etcd", hide = true)]
    etcd_any_version: bool,
    /// File with the server token, which decrypts the keys that all servers share [default: DIR/server-token]
    #[arg(long, value_name = "FILE", requires = "etcd", hide = true)]
    token_file: Option<PathBuf>,
}

impl EtcdFlags {
    /// Returns the options of the store on etcd. `None` without `--etcd`.
    pub(crate) fn options(&self) -> Option<EtcdOptions> {
        let tls = match (&self.etcd_ca, &self.etcd_cert, &self.etcd_key) {
            (Some(ca), Some(cert), Some(key)) => {
                Some(EtcdTlsFiles { ca: ca.clone(), cert: cert.clone(), key: key.clone() })
            }
            _ => None,
        };
        (!self.etcd.is_empty()).then(|| EtcdOptions {
            endpoints: self.etcd.clone(),
            tls,
            prefix: self.etcd_prefix.clone(),
            accepts_any_version: self.etcd_any_version,
            token_file: self.token_file.clone(),
        })
    }
}
