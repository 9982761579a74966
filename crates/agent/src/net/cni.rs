//! Writes the CNI configuration of the pod network.

use muster_api::cidr::Ipv4Cidr;
use serde_json::json;

use super::NetworkError;
use crate::config::Config;

/// File name of the CNI configuration. The runtime uses the first file in alphabetical order.
const CONFLIST_FILE: &str = "10-muster.conflist";

/// Writes a CNI configuration with a bridge and the node's pod CIDR `range`. Does nothing if no CNI directory is
/// configured, or if the directory has a configuration of another program.
pub(super) async fn write_conflist(config: &Config, range: Ipv4Cidr) -> Result<(), NetworkError> {
    let Some(dir) = &config.cni_conf_dir else { return Ok(()) };
    let path = dir.join(CONFLIST_FILE);
    let failed = |source| NetworkError::Write { path: path.display().to_string(), source };
    let conf = conflist_json(config, range);
    if tokio::fs::read_to_string(&path).await.is_ok_and(|it| it == conf) {
        return Ok(());
    }
    tokio::fs::create_dir_all(dir).await.map_err(failed)?;
    let mut others = tokio::fs::read_dir(dir).await.map_err(failed)?;
    while let Some(other) = others.next_entry().await.map_err(failed)? {
        let name = other.file_name();
        let is_conf = name
            .to_str()
            .is_some_and(|it| [".conf", ".conflist", ".json"].iter().any(|end| it.ends_with(end)));
        if is_conf && name != CONFLIST_FILE {
            return Ok(());
        }
    }
    let partial = dir.join(".10-muster.partial");
    tokio::fs::write(&partial, conf).await.map_err(failed)?;
    tokio::fs::rename(&partial, &path).await.map_err(failed)
}

/// Builds the content of the CNI configuration. `range` is the node's pod CIDR.
fn conflist_json(config: &Config, range: Ipv4Cidr) -> String {
    let conf = json!({
        "cniVersion": "1.0.0",
        "name": "muster",
        "plugins": [
            {
                "type": "bridge",
                "bridge": "cni0",
                "isGateway": true,
                "hairpinMode": true,
                "ipMasq": false,
                "ipam": {
                    "type": "host-local",
                    "dataDir": config.root_dir.join("addresses"),
                    "ranges": [[{"subnet": range.to_string()}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": true}, "snat": true},
        ],
    });
    format!("{conf:#}\n")
}
