//! Network of a cluster on one machine: a bridge, and one network namespace for each node.

use std::fs::{self, File};
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::RangeInclusive;
use std::path::Path;
use std::process::Stdio;

use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use super::{LocalNode, LocalNodeError, RUN_DIR, file_error, prerequisites};
use crate::volumes::mount_table;

/// Second octets of the address ranges of clusters: `10.160.0.0/16` to `10.239.0.0/16`. Lower ranges are used for
/// Services and for the pods of simulated nodes, higher ranges by other tools.
pub(super) const CLUSTER_SECOND_OCTETS: RangeInclusive<u8> = 160..=239;

/// Third octet of node addresses. The pod CIDRs are other /24 networks of the range.
const NODE_SUBNET: u8 = 255;

/// Returns the address of the machine on the bridge of the cluster with this address range.
pub(super) fn bridge_address(range: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, range, NODE_SUBNET, 1)
}

/// Whether an address has the form of a machine's own address on the bridge of a local cluster, `10.RANGE.255.1`. No
/// other machine can reach such an address.
pub fn is_bridge_address(address: IpAddr) -> bool {
    matches!(address, IpAddr::V4(it) if CLUSTER_SECOND_OCTETS.contains(&it.octets()[1]) && it == bridge_address(it.octets()[1]))
}

/// Returns the address of the node `number` of a local cluster, `10.RANGE.255.(number + 1)`. `range` is the second octet
/// of the cluster's addresses.
pub(super) fn node_address(range: u8, number: u16) -> Ipv4Addr {
    Ipv4Addr::new(10, range, NODE_SUBNET, u8::try_from(number + 1).expect("NODES_MAX is below 255"))
}

/// Finds or creates the bridge of the cluster with this ID. Also enables IP forwarding, and masquerades the connections
/// that leave the cluster. Returns the cluster's address range, the second octet of its addresses.
///
/// Rule: a cluster keeps the address range that is stored in `range_file`, unless this machine has a route of another
/// program into that range. In this case, and if no range is stored, the cluster takes the first range into which no
/// other program has a route. The search starts at a range that depends on the cluster's ID.
pub(super) async fn ensure_bridge(range_file: &Path, id: &str) -> Result<u8, LocalNodeError> {
    // Two clusters that start simultaneously would take the same range.
    let lock_path = Path::new(RUN_DIR).join("lock");
    let lock = File::create(&lock_path).map_err(file_error(&lock_path))?;
    let _lock = tokio::task::spawn_blocking(move || lock.lock().map(|()| lock))
        .await
        .unwrap_or_else(|it| Err(std::io::Error::other(it)))
        .map_err(file_error(&lock_path))?;

    let bridge = bridge_name(id);
    let routes = run_command(Command::new("ip").args(["-4", "-o", "route", "show", "table", "all"])).await?;
    let foreign_routes: Vec<&str> = routes.lines().filter(|it| !it.contains(&bridge)).collect();
    let is_free = |range: u8| !foreign_routes.iter().any(|it| is_route_into(it, range));
    let before = fs::read_to_string(range_file).ok().and_then(|it| it.trim().parse().ok());
    let range = match before.filter(|it| CLUSTER_SECOND_OCTETS.contains(it) && is_free(*it)) {
        Some(range) => range,
        None => {
            let first = u32::from_str_radix(id, 16).unwrap_or_default();
            let count = u32::from(CLUSTER_SECOND_OCTETS.end() - CLUSTER_SECOND_OCTETS.start()) + 1;
            let mut all = (0..count).map(|it| CLUSTER_SECOND_OCTETS.start() + ((first + it) % count) as u8);
            all.find(|it| is_free(*it)).ok_or(LocalNodeError::NoFreeRange)?
        }
    };
    let mut file = File::create(range_file).map_err(file_error(range_file))?;
    writeln!(file, "{range}").map_err(file_error(range_file))?;

    if !link_exists(&bridge) {
        run_command(Command::new("ip").args(["link", "add", &bridge, "type", "bridge"])).await?;
    }
    let address = bridge_address(range);
    run_ip_batch(None, &format!("addr replace {address}/24 dev {bridge}\nlink set {bridge} up\n")).await?;
    let forward = Path::new("/proc/sys/net/ipv4/ip_forward");
    if fs::read_to_string(forward).is_ok_and(|it| it.trim() == "0") {
        fs::write(forward, "1").map_err(file_error(forward))?;
    }
    let table = nft_table_name(id);
    let rules = format!(
        "table ip {table}\ndelete table ip {table}\ntable ip {table} {{\n  chain outside {{\n    \
         type nat hook postrouting priority srcnat;\n    \
         ip saddr 10.{range}.0.0/16 ip daddr != 10.{range}.0.0/16 masquerade\n  }}\n}}\n"
    );
    run_with_stdin(Command::new("nft").args(["-f", "-"]), &rules).await?;
    Ok(range)
}

/// Whether a line of the output of `ip route` is a route whose destination begins in the cluster address range
/// `10.RANGE.0.0/16`.
fn is_route_into(route: &str, range: u8) -> bool {
    let mut words = route.split_whitespace();
    let first = words.next().unwrap_or_default();
    let kinds = ["local", "broadcast", "unreachable", "blackhole", "prohibit", "throw", "unicast"];
    let to = if kinds.contains(&first) { words.next().unwrap_or_default() } else { first };
    to.starts_with(&format!("10.{range}."))
}

/// Finds or creates the network namespace, links and routes of a node.
pub(super) async fn ensure_node_network(node: &LocalNode) -> Result<(), LocalNodeError> {
    let name = node.netns_name();
    let netns = node.netns_path();
    if !mount_table::is_mounted(&netns).map_err(file_error(&netns))? {
        // A stale file without a namespace would make `ip netns add` fail.
        let _ = fs::remove_file(&netns);
        run_command(Command::new("ip").args(["netns", "add", &name])).await?;
    }
    let (bridge, link) = (bridge_name(&node.id), node.link_name());
    if !link_exists(&link) {
        let add = ["link", "add", &link, "type", "veth", "peer", "name", "eth0", "netns", &name];
        run_command(Command::new("ip").args(add)).await?;
    }
    let (address, gateway) = (node.address(), bridge_address(node.range));
    let outside =
        format!("link set {link} master {bridge} up\nroute replace {} via {address}\n", node.pod_cidr());
    let inside = format!(
        "link set lo up\naddr replace {address}/24 dev eth0\nlink set eth0 up\nroute replace default via {gateway}\n"
    );
    run_ip_batch(Some(&name), &inside).await?;
    run_ip_batch(None, &outside).await
}

/// Restores missing routes of a node.
///
/// Rule: the default route of the node's network namespace and the machine's route to the node's pods are restored when
/// missing. Links are left unchanged.
pub(super) async fn restore_routes(node: &LocalNode) -> Result<(), LocalNodeError> {
    let name = node.netns_name();
    let (address, gateway) = (node.address(), bridge_address(node.range));
    let inside =
        run_command(Command::new("ip").args(["-n", &name, "-4", "-o", "route", "show", "default"])).await?;
    if inside.trim().is_empty() {
        run_ip_batch(Some(&name), &format!("route replace default via {gateway}\n")).await?;
    }
    let outside =
        run_command(Command::new("ip").args(["-4", "-o", "route", "show", &node.pod_cidr()])).await?;
    if outside.trim().is_empty() {
        run_ip_batch(None, &format!("route replace {} via {address}\n", node.pod_cidr())).await?;
    }
    Ok(())
}

/// Returns the name of the bridge of the cluster with this ID.
pub(super) fn bridge_name(id: &str) -> String {
    format!("mu{id}")
}

/// Returns the name of the network interface on the machine that connects the node with this number (the host end of
/// its veth pair).
pub(super) fn link_name(id: &str, number: u16) -> String {
    format!("mu{id}-{number}")
}

/// Returns the name of the nftables table of the cluster with this ID.
pub(super) fn nft_table_name(id: &str) -> String {
    format!("muster-{id}")
}

/// Removes the bridge, links and nftables table of the cluster with this ID. Failures are at most logged.
pub(super) async fn remove_network(id: &str) {
    let bridge = bridge_name(id);
    let links = fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
    let links = links.filter_map(|it| it.file_name().into_string().ok());
    let ours: Vec<String> =
        links.filter(|it| it.strip_prefix(&bridge).is_some_and(|it| it.starts_with('-'))).collect();
    for link in ours.iter().chain([&bridge]) {
        if link_exists(link)
            && let Err(error) = run_command(Command::new("ip").args(["link", "del", link])).await
            // The link disappears with the namespace of its other end.
            && link_exists(link)
        {
            tracing::warn!(link, %error, "cannot remove the link");
        }
    }
    // The table may not exist.
    let _ = run_command(Command::new("nft").args(["delete", "table", "ip", &nft_table_name(id)])).await;
}

/// Whether the machine has a network interface with this name.
pub(super) fn link_exists(link: &str) -> bool {
    Path::new("/sys/class/net").join(link).exists()
}

/// Runs `ip` commands, one per line of `commands`, in one process. The commands apply to the network namespace `netns`,
/// or to the network namespace of this process if `netns` is `None`.
async fn run_ip_batch(netns: Option<&str>, commands: &str) -> Result<(), LocalNodeError> {
    let mut ip = Command::new("ip");
    if let Some(netns) = netns {
        ip.args(["-n", netns]);
    }
    run_with_stdin(ip.args(["-batch", "-"]), commands).await
}

/// Runs a command with `text` on stdin.
async fn run_with_stdin(command: &mut Command, text: &str) -> Result<(), LocalNodeError> {
    let failed = |source| LocalNodeError::Spawn { program: "ip or nft", source };
    let command = command.env("PATH", prerequisites::search_path());
    let spawned =
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = spawned.spawn().map_err(failed)?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(text.as_bytes()).await.map_err(failed)?;
    }
    let output = child.wait_with_output().await.map_err(failed)?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(LocalNodeError::CommandFailed { command: command_line(command), message: stderr })
}

/// Runs a command and returns its stdout.
pub(super) async fn run_command(command: &mut Command) -> Result<String, LocalNodeError> {
    let command = command.env("PATH", prerequisites::search_path()).stdin(Stdio::null()).kill_on_drop(true);
    let output = command.output().await;
    let output = output.map_err(|source| LocalNodeError::Spawn { program: "ip or nft", source })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(LocalNodeError::CommandFailed { command: command_line(command), message: stderr })
}

/// Formats a command for an error message.
fn command_line(command: &Command) -> String {
    let command = command.as_std();
    let words = [command.get_program()].into_iter().chain(command.get_args());
    words.map(|it| it.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_that_lead_into_a_range() {
        let routes = [
            "10.160.0.0/16 dev docker0 proto kernel scope link",
            "local 10.160.255.1 dev muabc table local",
            "default via 10.160.0.1 dev eth0",
            "10.16.0.0/24 dev x",
            "192.168.0.0/24 dev x src 10.160.0.2",
        ];
        assert_eq!(routes.map(|it| is_route_into(it, 160)), [true, true, false, false, false]);
    }
}
