//! Notifications of the kernel about changed routes and addresses: a restarted network service, or a link that
//! goes down and up, also removes the agent's routes.

use std::io;
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, netlink, socket_with};
use tokio::net::UdpSocket;

/// Multicast group of IPv4 addresses, from `rtnetlink.h`.
const RTMGRP_IPV4_IFADDR: u32 = 0x10;
/// Multicast group of IPv4 routes. A link that comes up adds a route, so links need no group.
const RTMGRP_IPV4_ROUTE: u32 = 0x40;

/// Receive buffer. Longer messages are truncated: only their arrival matters.
const MESSAGE_BYTES_MAX: usize = 4096;

/// Subscription to changes of IPv4 routes and addresses. `None` if the kernel refuses it.
#[derive(Debug)]
pub(super) struct RouteChanges(Option<UdpSocket>);

impl RouteChanges {
    /// Subscribes to the kernel's notifications. If that fails, the state is checked periodically only.
    pub(super) fn subscribe() -> Self {
        let opened = open_socket();
        if let Err(error) = &opened {
            tracing::warn!(%error, "cannot subscribe to route changes");
        }
        Self(opened.ok())
    }

    /// Waits for a change since the last call.
    pub(super) async fn wait_for_change(&self) {
        let Some(socket) = &self.0 else { return std::future::pending().await };
        let mut piece = [0; MESSAGE_BYTES_MAX];
        // An overflowed buffer counts as a change.
        let _ = socket.recv(&mut piece).await;
        while socket.try_recv(&mut piece).is_ok() {}
    }
}

fn open_socket() -> io::Result<UdpSocket> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    // The default netlink protocol is that of routes.
    let socket: OwnedFd = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
    bind(&socket, &netlink::SocketAddrNetlink::new(0, RTMGRP_IPV4_IFADDR | RTMGRP_IPV4_ROUTE))?;
    // Any datagram socket can be received from like a UDP socket.
    UdpSocket::from_std(socket.into())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn nothing_is_news_until_something_changes() {
        let changes = RouteChanges::subscribe();
        assert!(changes.0.is_some(), "the kernel can be listened to");
        // Others may change something meanwhile, but not without end.
        let mut is_quiet = false;
        for _ in 0..20 {
            is_quiet |=
                tokio::time::timeout(Duration::from_millis(100), changes.wait_for_change()).await.is_err();
        }
        assert!(is_quiet);
    }
}
