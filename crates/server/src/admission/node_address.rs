//! Restricts the addresses that a node may add to the status of its Node, because agents and the API server trust the
//! addresses of a Node.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use serde_json::Value;

use super::AdmissionChain;
use super::service_address::SERVICE_RANGE;
use super::{AdmissionAttributes, AdmissionOperation};
use crate::error::ApiError;
use crate::request::RequestContext;
use crate::small_map::SmallSet;
use crate::unstructured::{list_at, str_at};

/// Checks the addresses that a node adds to its Node.
///
/// Rule: a node may not add to `status.addresses` of its Node an address in the Service range or in the pod CIDR of
/// another Node. Nor may it add a second address in the cluster's pod range, because each address in that range blocks
/// the allocation of one pod CIDR. Other users may add such addresses. Addresses that are already stored, and IPv6
/// addresses, are not checked.
/// Upstream: does not check.
///
/// Two Nodes may have the same address, and so may a Node and the API server, because several agents on one machine
/// share its address.
pub(super) fn validate(
    admission: &AdmissionChain,
    context: &RequestContext,
    attributes: AdmissionAttributes<'_>,
    node: &Value,
) -> Result<(), ApiError> {
    let Some(name) = context.user.node_name() else { return Ok(()) };
    let old = match attributes.operation {
        AdmissionOperation::Update { old } => list_at(&old["status"], "addresses"),
        AdmissionOperation::Create | AdmissionOperation::Delete => &[],
    };
    let stored: SmallSet<&str> = old.iter().map(|it| str_at(it, "address")).collect();
    let all = list_at(&node["status"], "addresses")
        .iter()
        .filter_map(|it| parse_canonical_ipv4(str_at(it, "address")));
    let ranges = &admission.pod_cidrs;
    let all: BTreeSet<Ipv4Addr> = all.collect();
    let cluster_range_count = all.iter().filter(|it| ranges.is_in_cluster_range(**it)).count();
    let addresses = list_at(&node["status"], "addresses").iter().map(|it| str_at(it, "address"));
    for added in addresses.filter(|it| !stored.contains(it)) {
        let Some(address) = parse_canonical_ipv4(added) else { continue };
        if SERVICE_RANGE.contains(address) {
            let why = format!("status.addresses: {address} is in the Service range {SERVICE_RANGE}");
            return Err(attributes.forbidden(node, &why));
        }
        if ranges.is_in_cluster_range(address) && 1 < cluster_range_count {
            let why = "status.addresses: more than one address is in the cluster's pod range";
            return Err(attributes.forbidden(node, why));
        }
        if let Some(other) = ranges.pod_cidr_owner(admission, context.now, address, name) {
            let why = format!("status.addresses: {address} is in the pod range of node {other:?}");
            return Err(attributes.forbidden(node, &why));
        }
    }
    Ok(())
}

/// Parses an IPv4 address, also in IPv4-mapped IPv6 notation (`::ffff:10.96.0.1`). White space around it is ignored.
/// Returns `None` for any other text.
fn parse_canonical_ipv4(text: &str) -> Option<Ipv4Addr> {
    match text.trim().parse::<IpAddr>().ok()?.to_canonical() {
        IpAddr::V4(it) => Some(it),
        IpAddr::V6(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use muster_api::cidr::Ipv4Cidr;
    use serde_json::json;

    use super::*;
    use crate::kinds::Kind;
    use crate::registry::Registry;
    use crate::request::RequestTarget;
    use crate::request::User;
    use crate::subresource::Subresource;
    use crate::unstructured;

    const NOW: &str = "2026-01-01T00:00:00Z";

    struct World {
        registry: Registry,
        said: String,
    }

    impl World {
        async fn new() -> Self {
            let registry = Registry::new(100);
            crate::bootstrap::ensure_test_objects(&registry, NOW.parse().unwrap()).await.unwrap();
            registry.admission.pod_cidrs.set_range(Ipv4Cidr::parse("10.244.0.0/16").unwrap(), 0);
            Self { registry, said: String::new() }
        }

        async fn join(&mut self, by: &str, name: &str, address: &str) {
            let node = json!({"metadata": {"name": name}, "status": {"addresses": said(&[address])}});
            let context = context(by, "create");
            let made = self.registry.create(&context, nodes(), None, node).await;
            self.say(name, made.map(drop));
        }

        async fn set(&mut self, by: &str, name: &str, subresource: Subresource, addresses: &[&str]) {
            let target = RequestTarget { kind: nodes(), namespace: None, name: name.into(), subresource };
            let context = context(by, "update");
            let updated = self.registry.update(&context, &target, |it| {
                let mut node = it.clone();
                node["status"]["addresses"] = said(addresses);
                Ok(node)
            });
            let updated = updated.await;
            self.say(&format!("{name} by {by}"), updated.map(drop));
        }

        fn say(&mut self, what: &str, done: Result<(), ApiError>) {
            let done = done.map_or_else(|it| it.message().to_owned(), |()| "ok".to_owned());
            self.said += &format!("{what}: {done}\n");
        }

        fn stored(&self, name: &str) -> Vec<String> {
            let node = unstructured::parse_stored(&self.registry.storage.find(nodes(), None, name).unwrap());
            let addresses = list_at(&node["status"], "addresses").iter();
            addresses.map(|it| str_at(it, "address").to_owned()).collect()
        }
    }

    fn nodes() -> &'static Kind {
        Kind::builtin("", "v1", "nodes")
    }

    fn context(by: &str, verb: &'static str) -> RequestContext {
        let group = if by.starts_with("system:node:") { "system:nodes" } else { "system:masters" };
        RequestContext::new(User::new(by, [group]), verb, NOW.parse().unwrap())
    }

    fn said(addresses: &[&str]) -> Value {
        let kinds = ["InternalIP", "ExternalIP"].into_iter().cycle();
        addresses.iter().zip(kinds).map(|(it, kind)| json!({"type": kind, "address": it})).collect()
    }

    #[tokio::test]
    async fn a_node_cannot_claim_an_address_of_a_service_or_of_another_nodes_pods() {
        let mut world = World::new().await;
        let (own, admin) = ("system:node:n2", "admin");
        world.join("system:node:n1", "n1", "172.30.0.1").await;
        // The machine's address, shared by two agents.
        world.join(own, "n2", "172.30.0.1").await;
        world.join("system:node:n3", "n3", "10.96.0.1").await;
        for addresses in [
            &["172.30.0.2", "10.96.0.1"][..],
            &["10.96.255.255"],
            &["::ffff:10.96.0.10"],
            &["172.30.0.2", "10.244.0.7"],
            &["10.244.8.7", "10.244.9.7"],
            &["10.244.1.7", "2001:db8::1"],
        ] {
            world.set(own, "n2", Subresource::Status, addresses).await;
        }
        assert_eq!(world.stored("n2"), ["10.244.1.7", "2001:db8::1"]);
        // What somebody else stored does not keep the node from writing its status.
        world.set(admin, "n2", Subresource::Status, &["10.96.0.1"]).await;
        world.set(own, "n2", Subresource::Status, &["10.96.0.1", "172.30.0.2"]).await;
        expect![[r#"
            n1: ok
            n2: ok
            n3: nodes "n3" is forbidden: status.addresses: 10.96.0.1 is in the Service range 10.96.0.0/16
            n2 by system:node:n2: nodes "n2" is forbidden: status.addresses: 10.96.0.1 is in the Service range 10.96.0.0/16
            n2 by system:node:n2: nodes "n2" is forbidden: status.addresses: 10.96.255.255 is in the Service range 10.96.0.0/16
            n2 by system:node:n2: nodes "n2" is forbidden: status.addresses: 10.96.0.10 is in the Service range 10.96.0.0/16
            n2 by system:node:n2: nodes "n2" is forbidden: status.addresses: 10.244.0.7 is in the pod range of node "n1"
            n2 by system:node:n2: nodes "n2" is forbidden: status.addresses: more than one address is in the cluster's pod range
            n2 by system:node:n2: ok
            n2 by admin: ok
            n2 by system:node:n2: ok
        "#]].assert_eq(&world.said);
    }
}
