use expect_test::expect;

use super::*;
use crate::registry::Registry;
use crate::request::User;

const NOW: &str = "2026-01-01T00:00:00Z";

struct World {
    registry: Registry,
    said: String,
}

impl World {
    async fn new(range: &str, left: u32) -> Self {
        let registry = Registry::new(100);
        crate::bootstrap::ensure_test_objects(&registry, NOW.parse().unwrap()).await.unwrap();
        registry.admission.pod_cidrs.set_range(parse_cluster_range(range).unwrap(), left);
        Self { registry, said: String::new() }
    }

    /// A node that joins under its own name, or one that somebody else makes.
    async fn join(&mut self, name: &str, by: &str, spec: Value, address: &str) {
        let groups = if by.starts_with("system:node:") { "system:nodes" } else { "system:masters" };
        let context = RequestContext::new(User::new(by, [groups]), "create", NOW.parse().unwrap());
        let node = json!({
            "metadata": {"name": name},
            "spec": spec,
            "status": {"addresses": [{"type": "InternalIP", "address": address}]},
        });
        let made = self.registry.create(&context, nodes(), None, node).await;
        self.said += &match made {
            Ok(made) => format!("{name}: {}\n", unstructured::parse_stored(&made)["spec"]["podCIDRs"]),
            Err(refusal) => format!("{name}: {}\n", refusal.message()),
        };
    }
}

fn nodes() -> &'static Kind {
    Kind::builtin("", "v1", "nodes")
}

#[tokio::test]
async fn each_node_has_its_own() {
    let mut world = World::new("10.244.0.0/22", 0).await;
    world.join("n1", "system:node:n1", json!({}), "10.244.1.7").await;
    world.join("sim", "somebody", json!({"podCIDR": "10.244.2.0/24"}), "10.200.0.1").await;
    world.join("bare", "somebody", json!({}), "10.200.0.2").await;
    world.join("n2", "system:node:n2", json!({}), "172.30.0.2").await;
    world.join("n3", "system:node:n3", json!({}), "172.30.0.3").await;
    let context = RequestContext::for_server("delete", NOW.parse().unwrap());
    let target = crate::request::RequestTarget {
        kind: nodes(),
        namespace: None,
        name: "n1".into(),
        subresource: crate::subresource::Subresource::Whole,
    };
    world.registry.delete(&context, &target, &Default::default()).await.unwrap();
    world.join("n4", "system:node:n4", json!({}), "172.30.0.4").await;
    expect![[r#"
        n1: ["10.244.0.0/24"]
        sim: ["10.244.2.0/24"]
        bare: null
        n2: ["10.244.3.0/24"]
        n3: null
        n4: ["10.244.0.0/24"]
    "#]]
    .assert_eq(&world.said);
}

#[tokio::test]
async fn a_chosen_pod_cidr_must_be_in_range_and_free() {
    let mut world = World::new("10.244.0.0/16", 3).await;
    for (name, range) in [
        ("n1", "10.244.1.0/24"),
        ("n2", "10.244.1.0/25"),
        ("n3", "10.244.0.0/16"),
        ("n4", "0.0.0.0/0"),
        ("n5", "8.8.8.0/24"),
        ("n6", "fd00::/64"),
        ("n9", "10.244.5.7/32"),
    ] {
        let by = format!("system:node:{name}");
        world.join(name, &by, json!({"podCIDR": range, "podCIDRs": [range]}), "172.30.0.2").await;
    }
    world
        .join("n7", "system:node:n7", json!({"podCIDRs": ["10.244.9.0/24", "10.244.10.0/24"]}), "172.30.0.3")
        .await;
    world.join("n8", "system:node:n8", json!({}), "172.30.0.4").await;
    expect![[r#"
        n1: ["10.244.1.0/24"]
        n2: nodes "n2" is forbidden: spec.podCIDR 10.244.1.0/25 overlaps the addresses of node "n1"
        n3: nodes "n3" is forbidden: a node's spec.podCIDR must be one range of 2 to 256 addresses in 10.244.0.0/16
        n4: nodes "n4" is forbidden: a node's spec.podCIDR must be one range of 2 to 256 addresses in 10.244.0.0/16
        n5: nodes "n5" is forbidden: a node's spec.podCIDR must be one range of 2 to 256 addresses in 10.244.0.0/16
        n6: nodes "n6" is forbidden: a node's spec.podCIDR must be one range of 2 to 256 addresses in 10.244.0.0/16
        n9: nodes "n9" is forbidden: a node's spec.podCIDR must be one range of 2 to 256 addresses in 10.244.0.0/16
        n7: nodes "n7" is forbidden: a node's spec.podCIDR must be one range of 2 to 256 addresses in 10.244.0.0/16
        n8: ["10.244.3.0/24"]
    "#]].assert_eq(&world.said);
}

#[tokio::test]
async fn a_node_that_was_there_before_is_given_one_when_it_speaks() {
    let mut world = World::new("10.244.0.0/16", 0).await;
    world.join("n1", "somebody", json!({}), "172.30.0.1").await;
    let user = User::new("system:node:n1", ["system:nodes"]);
    let context = RequestContext::new(user, "update", NOW.parse().unwrap());
    let target = crate::request::RequestTarget {
        kind: nodes(),
        namespace: None,
        name: "n1".into(),
        subresource: crate::subresource::Subresource::Whole,
    };
    for _ in 0..2 {
        let updated = world.registry.update(&context, &target, |it| Ok(it.clone())).await.unwrap();
        world.said += &format!("n1: {}\n", unstructured::parse_stored(&updated)["spec"]["podCIDRs"]);
    }
    expect![[r#"
        n1: null
        n1: ["10.244.0.0/24"]
        n1: ["10.244.0.0/24"]
    "#]]
    .assert_eq(&world.said);
}

#[test]
fn ranges_to_give_of() {
    let all =
        ["10.244.0.0/16", "10.244.0.1/16", "10.0.0.0/8", "10.96.4.0/24", "10.244.0.0/25", "x", "fd00::/48"];
    let said = all.map(|it| format!("{:?}", parse_cluster_range(it).map(|it| it.to_string())));
    expect![[r#"
        Ok("10.244.0.0/16")
        Err("\"10.244.0.1/16\" is not a range of 256 addresses or more such as 10.244.0.0/16")
        Err("10.0.0.0/8 overlaps the Service range 10.96.0.0/16")
        Err("10.96.4.0/24 overlaps the Service range 10.96.0.0/16")
        Err("\"10.244.0.0/25\" is not a range of 256 addresses or more such as 10.244.0.0/16")
        Err("\"x\" is not a range of 256 addresses or more such as 10.244.0.0/16")
        Err("\"fd00::/48\" is not a range of 256 addresses or more such as 10.244.0.0/16")"#]]
    .assert_eq(&said.join("\n"));
}
