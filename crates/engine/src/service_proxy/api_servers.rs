//! Finds the API servers of the cluster in the EndpointSlices of the Service `default/kubernetes`.

use alloc::collections::BTreeSet;
use core::net::SocketAddr;

use muster_api::object_key::ObjectKey;

use super::ProxyState;
use super::facts::Protocol;

/// Name of the port at which API servers serve HTTPS.
const HTTPS_PORT_NAME: &str = "https";

/// Returns the addresses and ports of the cluster's API servers.
///
/// Rule: the API servers are the ready endpoints in all EndpointSlices of the Service `default/kubernetes`, at the TCP
/// ports that are named `https`.
pub fn api_server_addresses(state: &ProxyState) -> BTreeSet<SocketAddr> {
    let mut found = BTreeSet::new();
    for slice in state.slices_of(&ObjectKey::new("default", "kubernetes")) {
        let https = |name: &str, protocol| name == HTTPS_PORT_NAME && protocol == Protocol::Tcp;
        for port in slice.ports.iter().filter(|it| https(&it.name, it.protocol)) {
            let ready = slice.endpoints.iter().filter(|it| it.ready);
            found.extend(ready.map(|it| SocketAddr::new(it.address, port.number)));
        }
    }
    found
}
