//! Reads and deletes conntrack entries of UDP flows over netlink. The program `conntrack` is not used, because not
//! every machine has it.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use muster_engine::service_proxy::UdpFlow;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, sendto, socket_with,
};

/// Timeout for a response of the kernel, which normally responds immediately.
const RECV_TIMEOUT: Duration = Duration::from_secs(2);

/// Size of the receive buffer, larger than any netlink datagram.
const DATAGRAM_BYTES_MAX: usize = 1 << 16;

// Constants of `netlink.h`, `nfnetlink.h` and `nfnetlink_conntrack.h`.
/// Type of the message that ends a multi-part response.
const NLMSG_DONE: u16 = 3;
/// Type of a message with an error or an acknowledgement.
const NLMSG_ERROR: u16 = 2;
/// Type of a request that reads conntrack entries.
const CT_GET: u16 = 0x101;
/// Type of a request that deletes a conntrack entry.
const CT_DELETE: u16 = 0x102;
/// Flag of every request.
const NLM_F_REQUEST: u16 = 0x1;
/// Flag of a request that the kernel must acknowledge.
const NLM_F_ACK: u16 = 0x4;
/// Flag of a request that reads all entries.
const NLM_F_DUMP: u16 = 0x300;
/// Attribute with the addresses and ports of a flow's original direction.
const CTA_TUPLE_ORIG: u16 = 1;
/// Attribute with the addresses and ports of a flow's reply direction.
const CTA_TUPLE_REPLY: u16 = 2;
/// Flag of an attribute that contains attributes.
const NLA_F_NESTED: u16 = 0x8000;
/// Protocol number of UDP.
const IPPROTO_UDP: u8 = 17;
/// Address family of IPv4.
const AF_INET: u8 = 2;

/// Deletes the conntrack entries of UDP flows for which `is_stale` returns `true`, and returns their number, including
/// those that expired meanwhile.
pub(super) fn delete_udp_flows(is_stale: impl Fn(UdpFlow) -> bool) -> io::Result<usize> {
    let socket =
        socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, Some(netlink::NETFILTER))?;
    set_socket_timeout(&socket, Timeout::Recv, Some(RECV_TIMEOUT))?;
    let mut stale_flows = Vec::new();
    send_request(&socket, CT_GET, NLM_F_REQUEST | NLM_F_DUMP, &[])?;
    for_each_message(&socket, |attributes| {
        if let Some((flow, sent)) = parse_flow(attributes)
            && is_stale(flow)
        {
            stale_flows.push(sent.to_vec());
        }
    })?;
    for sent in &stale_flows {
        send_request(
            &socket,
            CT_DELETE,
            NLM_F_REQUEST | NLM_F_ACK,
            &encode_attribute(CTA_TUPLE_ORIG | NLA_F_NESTED, sent),
        )?;
        match for_each_message(&socket, |_| {}) {
            // The flow expired meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            done => done?,
        }
    }
    Ok(stale_flows.len())
}

/// Sends a netlink request of type `what`.
fn send_request(socket: &OwnedFd, what: u16, flags: u16, attributes: &[u8]) -> io::Result<()> {
    let length = u32::try_from(20 + attributes.len()).map_err(io::Error::other)?;
    let mut message = Vec::new();
    message.extend(length.to_ne_bytes());
    message.extend(what.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    message.extend([0; 8]);
    message.extend([AF_INET, 0, 0, 0]);
    message.extend(attributes);
    sendto(socket, &message, SendFlags::empty(), &netlink::SocketAddrNetlink::new(0, 0))?;
    Ok(())
}

/// Receives a response, and calls `handle` with the attributes of each of its messages.
fn for_each_message(socket: &OwnedFd, mut handle: impl FnMut(&[u8])) -> io::Result<()> {
    let mut piece = vec![0; DATAGRAM_BYTES_MAX];
    loop {
        let (length, _) = recv(socket, &mut piece[..], RecvFlags::empty())?;
        let mut rest = piece.get(..length).unwrap_or_default();
        while let Some((message, what, after)) = split_message(rest) {
            match what {
                NLMSG_DONE => return Ok(()),
                NLMSG_ERROR => return parse_error(message),
                _ => handle(message.get(4..).unwrap_or_default()),
            }
            rest = after;
        }
    }
}

/// Splits off the first netlink message. Returns its payload, its type, and the remaining bytes. Returns `None` if the
/// message is incomplete.
fn split_message(bytes: &[u8]) -> Option<(&[u8], u16, &[u8])> {
    let length = usize::try_from(u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?)).ok()?;
    let what = u16::from_ne_bytes(bytes.get(4..6)?.try_into().ok()?);
    let after = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    Some((bytes.get(16..length)?, what, after))
}

/// Returns the error in a message of type `NLMSG_ERROR`. Returns `Ok` for the error code 0, which is an
/// acknowledgement.
fn parse_error(message: &[u8]) -> io::Result<()> {
    let number = message.get(..4).and_then(|it| it.try_into().ok()).map_or(0, i32::from_ne_bytes);
    if number == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(-number)) }
}

/// Parses a conntrack entry. Returns the UDP flow, and the encoded original tuple by which the kernel identifies the
/// entry. Returns `None` if the entry is not of UDP over IPv4.
fn parse_flow(attributes: &[u8]) -> Option<(UdpFlow, &[u8])> {
    let (sent, answered) =
        (find_attribute(attributes, CTA_TUPLE_ORIG)?, find_attribute(attributes, CTA_TUPLE_REPLY)?);
    let of = |tuple, address: u16, port: u16| {
        let (addresses, ports) = (find_attribute(tuple, 1)?, find_attribute(tuple, 2)?);
        let address: [u8; 4] = find_attribute(addresses, address)?.try_into().ok()?;
        let port: [u8; 2] = find_attribute(ports, port)?.try_into().ok()?;
        (find_attribute(ports, 1)? == [IPPROTO_UDP])
            .then(|| (Ipv4Addr::from(address), u16::from_be_bytes(port)))
    };
    Some((UdpFlow { destination: of(sent, 2, 3)?, backend: of(answered, 1, 2)? }, sent))
}

/// Returns the value of the first attribute of this type, or `None` if there is none.
fn find_attribute(mut attributes: &[u8], attribute_type: u16) -> Option<&[u8]> {
    loop {
        let length = usize::from(u16::from_ne_bytes(attributes.get(..2)?.try_into().ok()?));
        let what = u16::from_ne_bytes(attributes.get(2..4)?.try_into().ok()?) & !NLA_F_NESTED;
        let value = attributes.get(4..length)?;
        if what == attribute_type {
            return Some(value);
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
}

/// Encodes a netlink attribute of type `what`.
fn encode_attribute(what: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(value.len() + 4).unwrap_or(u16::MAX);
    let mut attribute = [length.to_ne_bytes(), what.to_ne_bytes()].concat();
    attribute.extend(value);
    attribute.resize(attribute.len().next_multiple_of(4), 0);
    attribute
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuple(from: [u8; 4], to: [u8; 4], from_port: u16, to_port: u16, protocol: u8) -> Vec<u8> {
        let addresses = [encode_attribute(1, &from), encode_attribute(2, &to)].concat();
        let ports = [
            encode_attribute(1, &[protocol]),
            encode_attribute(2, &from_port.to_be_bytes()),
            encode_attribute(3, &to_port.to_be_bytes()),
        ];
        [encode_attribute(1 | NLA_F_NESTED, &addresses), encode_attribute(2 | NLA_F_NESTED, &ports.concat())]
            .concat()
    }

    #[test]
    fn a_flow_as_the_kernel_reports_it() {
        let (client, service, pod) = ([10, 244, 0, 9], [10, 96, 1, 5], [10, 244, 1, 2]);
        let told = |protocol| {
            let sent = tuple(client, service, 4000, 514, protocol);
            let answered = tuple(pod, client, 5140, 4000, protocol);
            [
                encode_attribute(CTA_TUPLE_ORIG | NLA_F_NESTED, &sent),
                encode_attribute(CTA_TUPLE_REPLY | NLA_F_NESTED, &answered),
            ]
            .concat()
        };
        let bytes = told(IPPROTO_UDP);
        let (flow, sent) = parse_flow(&bytes).expect("a flow");
        assert_eq!(flow, UdpFlow { destination: (service.into(), 514), backend: (pod.into(), 5140) });
        assert_eq!(sent, tuple(client, service, 4000, 514, IPPROTO_UDP));
        assert_eq!(parse_flow(&told(6)), None);
        for length in 0..bytes.len() {
            // Whatever is cut off, nothing is made up.
            assert_eq!(parse_flow(&bytes[..length]), None);
        }
    }

    #[test]
    fn messages_one_after_another() {
        let mut bytes = Vec::new();
        for (length, what) in [(21u32, CT_GET), (16, NLMSG_DONE)] {
            bytes.extend(length.to_ne_bytes());
            bytes.extend(what.to_ne_bytes());
            bytes.resize(bytes.len() + length.next_multiple_of(4) as usize - 6, 7);
        }
        let (first, what, after) = split_message(&bytes).expect("a message");
        assert_eq!((first, what), (&[7; 5][..], CT_GET));
        let (second, what, after) = split_message(after).expect("a message");
        assert_eq!((second, what, after), (&[][..], NLMSG_DONE, &[][..]));
        assert!(split_message(after).is_none());
        assert!(parse_error(&0i32.to_ne_bytes()).is_ok());
        assert_eq!(parse_error(&(-2i32).to_ne_bytes()).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
