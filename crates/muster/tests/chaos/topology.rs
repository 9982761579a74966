//! The network: one namespace for each etcd member and each API server, all on one bridge. The bridge is in the
//! namespace of the test, which reaches all of them.

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::process::{Command, Stdio};

use super::process::run;

/// Address of the test on the bridge.
pub(crate) const TEST_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 254);

/// A network namespace with an address on the bridge.
pub(crate) struct Host {
    name: String,
    pub(crate) address: Ipv4Addr,
}

/// What the packet filter of a host does.
#[derive(Default)]
pub(crate) struct Filter {
    /// Hosts whose packets are dropped when they arrive.
    pub(crate) deaf_to: Vec<Ipv4Addr>,
    /// Connections that are redirected.
    pub(crate) redirects: Vec<Redirect>,
}

/// New connections of a host to this address go to a port of the test instead.
pub(crate) struct Redirect {
    pub(crate) to: SocketAddrV4,
    pub(crate) test_port: u16,
}

/// Creates the bridge. `/run` becomes a file system of its own first, because it has the names of the namespaces.
pub(crate) fn create_bridge() {
    run(Command::new("mount").args(["-t", "tmpfs", "tmpfs", "/run"]));
    ip("link set lo up");
    ip("link add bridge type bridge");
    ip(&format!("address add {TEST_ADDRESS}/24 dev bridge"));
    ip("link set bridge up");
}

impl Host {
    /// Creates a host and connects it to the bridge.
    pub(crate) fn new(name: &str, address: Ipv4Addr) -> Self {
        ip(&format!("netns add {name}"));
        ip(&format!("link add {name} type veth peer name eth0 netns {name}"));
        ip(&format!("link set {name} master bridge up"));
        ip(&format!("-n {name} address add {address}/24 dev eth0"));
        ip(&format!("-n {name} link set eth0 up"));
        ip(&format!("-n {name} link set lo up"));
        Self { name: name.to_owned(), address }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// A command that runs on this host. The process has the PID that it is started with.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, program]).stdin(Stdio::null());
        command
    }

    /// Drops the packets of these addresses when they arrive, and passes all others on.
    pub(crate) fn drop_from(&self, addresses: &[Ipv4Addr]) {
        self.set_filter(&Filter { deaf_to: addresses.to_vec(), redirects: Vec::new() });
    }

    /// Resets the connections of this host to an address. Both sides learn of it at once.
    pub(crate) fn reset_connections(&self, to: SocketAddrV4) {
        let (address, port) = (to.ip().to_string(), format!(":{}", to.port()));
        let mut ss = self.command("ss");
        run(ss.args(["-K", "-t", "-n", "-H", "dst", &address, "dport", "=", &port]).stdout(Stdio::null()));
    }

    /// Replaces the packet filter.
    pub(crate) fn set_filter(&self, filter: &Filter) {
        let mut rules = "add table ip chaos\ndelete table ip chaos\nadd table ip chaos\n".to_owned();
        if !filter.deaf_to.is_empty() {
            rules += "add chain ip chaos arriving { type filter hook input priority 0; }\n";
        }
        for from in &filter.deaf_to {
            let _ = writeln!(rules, "add rule ip chaos arriving ip saddr {from} drop");
        }
        if !filter.redirects.is_empty() {
            rules += "add chain ip chaos connecting { type nat hook output priority -100; }\n";
            rules += "add chain ip chaos leaving { type filter hook output priority 0; }\n";
        }
        for Redirect { to, test_port } in &filter.redirects {
            let to = format!("ip daddr {} tcp dport {}", to.ip(), to.port());
            let _ = writeln!(rules, "add rule ip chaos connecting {to} dnat to {TEST_ADDRESS}:{test_port}");
        }
        let mut nft = self.command("nft");
        let mut nft = nft.args(["-f", "-"]).stdin(Stdio::piped()).spawn().unwrap();
        nft.stdin.take().unwrap().write_all(rules.as_bytes()).unwrap();
        assert!(nft.wait().unwrap().success(), "nft on {}:\n{rules}", self.name);
    }
}

fn ip(arguments: &str) {
    run(Command::new("ip").args(arguments.split(' ')));
}
