//! The kernel's word that routes or addresses of this machine changed: a restarted network service, or a link that went down and
//! up, takes ours away with its own.

use std::io;
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, netlink, socket_with};
use tokio::net::UdpSocket;

/// Of the kernel's header `rtnetlink.h`: addresses and routes of IPv4. A link that comes up brings a route of its own.
const ADDRESSES: u32 = 0x10;
const ROUTES: u32 = 0x40;

/// Longer messages are cut off, which does not matter: only that there is one does.
const PIECE_MAX: usize = 4096;

#[derive(Debug)]
pub(super) struct Changes(Option<UdpSocket>);

impl Changes {
    /// Where the kernel cannot be listened to, the state is compared at intervals alone.
    pub(super) fn listen() -> Self {
        let opened = open();
        if let Err(error) = &opened {
            tracing::warn!(%error, "the kernel's changes of routes cannot be followed");
        }
        Self(opened.ok())
    }

    /// Something changed since it was last asked.
    pub(super) async fn changed(&self) {
        let Some(socket) = &self.0 else { return std::future::pending().await };
        let mut piece = [0; PIECE_MAX];
        // An overflowed buffer counts as a change.
        let _ = socket.recv(&mut piece).await;
        while socket.try_recv(&mut piece).is_ok() {}
    }
}

fn open() -> io::Result<UdpSocket> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    // Without a protocol it is that of routes.
    let socket: OwnedFd = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
    bind(&socket, &netlink::SocketAddrNetlink::new(0, ADDRESSES | ROUTES))?;
    // Received from alone, a socket of datagrams is like any other.
    UdpSocket::from_std(socket.into())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn nothing_is_news_until_something_changes() {
        let changes = Changes::listen();
        assert!(changes.0.is_some(), "the kernel can be listened to");
        // Others may change something meanwhile, but not without end.
        let mut is_quiet = false;
        for _ in 0..20 {
            is_quiet |= tokio::time::timeout(Duration::from_millis(100), changes.changed()).await.is_err();
        }
        assert!(is_quiet);
    }
}
