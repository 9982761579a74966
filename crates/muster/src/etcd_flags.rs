//! Flags for a store on etcd, which several servers share.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::builder::RangedI64ValueParser;
use muster_files::write_private_file;
use muster_server::{DEFAULT_ETCD_PREFIX, EtcdOptions, EtcdTlsFiles, FEATURE_LEVEL};

/// Flags for a store on etcd: the flags that begin with `--etcd`, and the file with the server token.
#[derive(Debug, clap::Args)]
pub(crate) struct EtcdFlags {
    /// URLs of the members of an etcd cluster, in which the objects are stored instead of the data directory
    #[arg(long, value_name = "URL,…", value_delimiter = ',')]
    etcd: Vec<String>,
    /// CA certificates of etcd in PEM
    #[arg(long, value_name = "FILE", requires = "etcd", requires = "etcd_cert")]
    etcd_ca: Option<PathBuf>,
    /// Client certificate for etcd in PEM
    #[arg(long, value_name = "FILE", requires = "etcd_key")]
    etcd_cert: Option<PathBuf>,
    /// Private key of the client certificate for etcd in PEM
    #[arg(long, value_name = "FILE", requires = "etcd_ca")]
    etcd_key: Option<PathBuf>,
    /// Prefix of all keys of this cluster in etcd
    #[arg(long, value_name = "PREFIX", default_value = DEFAULT_ETCD_PREFIX)]
    etcd_prefix: String,
    /// Accept versions of etcd that are known to lose watch events, for tests
    #[arg(long, requires = "etcd")]
    etcd_any_version: bool,
    /// File with the server token, which decrypts the keys that all servers share [default: DIR/server-token]
    #[arg(long, value_name = "FILE", requires = "etcd")]
    token_file: Option<PathBuf>,
    /// Highest feature level that this process supports, for tests of an upgrade
    #[arg(long, hide = true, value_name = "LEVEL", default_value_t = FEATURE_LEVEL, value_parser = feature_level_parser())]
    feature_level: u32,
}

/// Returns the parser of `--feature-level`. A process cannot support a higher level than its version.
fn feature_level_parser() -> RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(..=i64::from(FEATURE_LEVEL))
}

/// Name of a file in the data directory of a server on etcd. It has the flags of this server that the other servers of
/// the cluster need too, one on each line.
const FLAGS_FILE: &str = "etcd-flags";

impl EtcdFlags {
    /// Writes a file in the data directory with the flags that the other servers of the cluster need: those for etcd,
    /// and `cluster_flags`. `muster token create --server` reads this file.
    pub(crate) fn save(&self, data_dir: &Path, cluster_flags: &[OsString]) -> anyhow::Result<()> {
        let mut flags = vec![format!("--etcd={}", self.etcd.join(","))];
        let files = [("ca", &self.etcd_ca), ("cert", &self.etcd_cert), ("key", &self.etcd_key)];
        for (name, file) in files {
            if let Some(file) = file {
                flags.push(format!("--etcd-{name}={}", std::path::absolute(file)?.display()));
            }
        }
        if self.etcd_prefix != DEFAULT_ETCD_PREFIX {
            flags.push(format!("--etcd-prefix={}", self.etcd_prefix));
        }
        if self.etcd_any_version {
            flags.push("--etcd-any-version".to_owned());
        }
        flags.extend(cluster_flags.iter().map(|it| it.to_string_lossy().into_owned()));
        let path = data_dir.join(FLAGS_FILE);
        let written = write_private_file(&path, (flags.join("\n") + "\n").as_bytes());
        written.with_context(|| format!("write {}", path.display()))
    }

    /// Returns the flags that [`Self::save`] has written. Fails if they cannot be read, for example because no server
    /// on etcd uses the data directory.
    pub(crate) fn read_saved(data_dir: &Path) -> anyhow::Result<Vec<String>> {
        let path = data_dir.join(FLAGS_FILE);
        let text = std::fs::read_to_string(&path).with_context(|| {
            format!(
                "read {}: run this command on the machine of a server that was started with --etcd, and name its data \
                 directory with --data-dir",
                path.display()
            )
        })?;
        Ok(text.lines().map(str::to_owned).collect())
    }

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
            feature_level: self.feature_level,
        })
    }
}
