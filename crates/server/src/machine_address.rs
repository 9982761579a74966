//! Finds the IP address of this machine.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};

/// Returns the IPv4 address at which other machines reach this machine, or `None` if there is no route to other
/// machines.
///
/// This is the source address that the kernel selects for a UDP socket that is connected to a remote address.
/// Connecting the socket sends no packet.
pub(crate) fn machine_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).ok()?;
    Some(socket.local_addr().ok()?.ip()).filter(|it| !it.is_loopback() && !it.is_unspecified())
}
