//! Notifications of the kernel about changed routes and addresses. They make the agent check its routes, which are lost
//! when a network service is restarted, or when a link goes down and up.

use std::io;
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, netlink, socket_with};
use tokio::net::UdpSocket;

/// Netlink multicast group for changes of IPv4 addresses, from `rtnetlink.h`.
const RTMGRP_IPV4_IFADDR: u32 = 0x10;
/// Netlink multicast group for changes of IPv4 routes, from `rtnetlink.h`. A link that comes up adds a route, so the
/// group for links is not needed.
const RTMGRP_IPV4_ROUTE: u32 = 0x40;

/// Size of the receive buffer. Longer messages are truncated, because only the arrival of a message matters.
const MESSAGE_BYTES_MAX: usize = 4096;

/// Subscription to changes of IPv4 routes and addresses. It has no socket if the kernel refused the subscription.
#[derive(Debug)]
pub(super) struct RouteChanges(Option<UdpSocket>);

impl RouteChanges {
    /// Subscribes to the kernel's notifications. If that fails, routes are only checked periodically.
    pub(super) fn subscribe() -> Self {
        let opened = open_socket();
        if let Err(error) = &opened {
            tracing::warn!(%error, "cannot subscribe to route changes");
        }
        Self(opened.ok())
    }

    /// Waits until a route or address has changed since the last call. Never returns without a subscription.
    pub(super) async fn wait_for_change(&self) {
        let Some(socket) = &self.0 else { return std::future::pending().await };
        let mut piece = [0; MESSAGE_BYTES_MAX];
        // An overflowed buffer counts as a change.
        let _ = socket.recv(&mut piece).await;
        while socket.try_recv(&mut piece).is_ok() {}
    }
}

/// Opens a netlink socket that receives the notifications.
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
