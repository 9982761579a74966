//! The address of this machine.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};

/// Address at which other machines reach this one; `None` without a route to them. Connecting a datagram socket sends
/// nothing; it only selects the source address.
pub(crate) fn machine_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).ok()?;
    Some(socket.local_addr().ok()?.ip()).filter(|it| !it.is_loopback() && !it.is_unspecified())
}
