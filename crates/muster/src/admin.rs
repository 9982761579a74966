//! The administrator's connection to the API server, for commands that manage credentials.

use std::path::PathBuf;

use anyhow::Context as _;
use base64::Engine as _;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

/// Flags that select the administrator's credentials.
#[derive(Debug, clap::Args)]
pub(crate) struct AdminFlags {
    /// Kubeconfig of the administrator [default: $KUBECONFIG, or DIR/kubeconfig]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Data directory of the server, if it runs on this machine
    #[arg(long, value_name = "DIR", default_value = ".muster")]
    pub(crate) data_dir: PathBuf,
}

/// An API client with the administrator's credentials, and data from the certificates in the kubeconfig.
pub(crate) struct AdminConnection {
    pub(crate) client: Client,
    /// The cluster CA certificate, in DER. `None` if the kubeconfig has none.
    pub(crate) ca_certificate: Option<Vec<u8>>,
    /// The serial number of the client certificate. `None` if the kubeconfig has no client certificate that can be
    /// decoded.
    pub(crate) serial: Option<String>,
}

impl AdminFlags {
    /// Creates the client from the kubeconfig that the flags or `$KUBECONFIG` select.
    pub(crate) async fn connect(self) -> anyhow::Result<AdminConnection> {
        let path = self.kubeconfig.or_else(|| std::env::var_os("KUBECONFIG").map(PathBuf::from));
        let path = path.unwrap_or_else(|| self.data_dir.join("kubeconfig"));
        let kubeconfig = Kubeconfig::read_from(&path)
            .with_context(|| format!("read the kubeconfig {}: is the server running?", path.display()))?;
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        let ca_certificate = config.root_cert.iter().flatten().next().cloned();
        let inline = config.auth_info.client_certificate_data.as_deref();
        let certificate = match (inline, &config.auth_info.client_certificate) {
            (Some(inline), _) => base64::prelude::BASE64_STANDARD.decode(inline).ok(),
            (None, Some(path)) => Some(std::fs::read(path).with_context(|| format!("read {path}"))?),
            (None, None) => None,
        };
        let serial = certificate.and_then(|it| muster_server::certificate_serial(&it));
        Ok(AdminConnection { client: Client::try_from(config)?, ca_certificate, serial })
    }
}
