//! Names that are not the cluster's: whom a node asks for them, and what its pods hear.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, TcpListener, UdpSocket};
use std::path::PathBuf;
use std::thread;

use expect_test::expect;
use serde_json::json;

use crate::bed::{Cluster, IMAGE, is_ready};
use crate::net::Pod;

/// What the nodes of the cluster with that name are told that the machine asks. It is written when the resolver is there.
pub(crate) fn resolv_conf(cluster: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("real-{cluster}")).join("resolv.conf")
}

/// Starts a resolver on this machine, and has the nodes ask it, after one that never answers.
pub(crate) fn start_resolver(cluster: &Cluster, name: &str) {
    let address = cluster.address();
    let socket = UdpSocket::bind((address, 53)).unwrap();
    thread::spawn(move || {
        let mut buffer = [0; 512];
        while let Ok((length, client)) = socket.recv_from(&mut buffer) {
            let _ = socket.send_to(&answer(&buffer[..length], true), client);
        }
    });
    let listener = TcpListener::bind((address, 53)).unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut length = [0; 2];
            let mut question = Vec::new();
            if stream.read_exact(&mut length).is_ok() {
                question.resize(usize::from(u16::from_be_bytes(length)), 0);
            }
            if stream.read_exact(&mut question).is_ok() && 12 < question.len() {
                let answer = answer(&question, false);
                let length = u16::try_from(answer.len()).unwrap().to_be_bytes();
                let _ = stream.write_all(&[&length[..], &answer].concat());
            }
        }
    });
    let text = format!("search corp.test\nnameserver {}\nnameserver {address}\n", silent(address));
    fs::write(resolv_conf(name), text).unwrap();
}

/// An address of the nodes' network that nobody has.
fn silent(address: IpAddr) -> String {
    let text = address.to_string();
    let (network, _) = text.rsplit_once('.').unwrap();
    format!("{network}.250")
}

/// What the resolver says: it knows a few addresses, and those of `big.test` do not fit in a packet.
fn answer(question: &[u8], is_udp: bool) -> Vec<u8> {
    let mut labels = Vec::new();
    let mut at = 12;
    while let Some(length) = question.get(at).map(|it| usize::from(*it)).filter(|it| 0 < *it) {
        labels.push(String::from_utf8_lossy(&question[at + 1..at + 1 + length]).to_lowercase());
        at += 1 + length;
    }
    let end = at + 5;
    let is_address = question[at + 2] == 1;
    let (addresses, is_known): (Vec<u8>, bool) = match labels.join(".").as_str() {
        "outside.test" => (vec![7], true),
        "short.corp.test" => (vec![8], true),
        "big.test" => ((1..=60).collect(), true),
        _ => (Vec::new(), false),
    };
    let is_cut = is_udp && 1 < addresses.len();
    let addresses = if is_cut || !is_address { Vec::new() } else { addresses };
    let mut said = question[..2].to_vec();
    said.extend([if is_cut { 0x87 } else { 0x85 }, if is_known { 0x80 } else { 0x83 }, 0, 1, 0]);
    said.push(u8::try_from(addresses.len()).unwrap());
    said.extend([0, 0, 0, 0]);
    said.extend(&question[12..end]);
    for last in addresses {
        said.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 5, 0, 4, 192, 0, 2, last]);
    }
    said
}

/// What pods hear of names that others know.
pub(crate) fn others_are_asked(cluster: &Cluster, name: &str, asks: &Pod) {
    let external = |name: &str, stands_for: &str| {
        json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name},
            "spec": {"type": "ExternalName", "externalName": stands_for},
        })
    };
    cluster.apply(&external("far", "outside.test").to_string());
    cluster.apply(&external("far-and-big", "big.test").to_string());
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "as-its-node"},
        "spec": {
            "nodeName": "node-1",
            "dnsPolicy": "Default",
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "app", "image": IMAGE, "command": ["sleep", "3600"]}],
        },
    });
    cluster.apply(&pod.to_string());
    cluster.wait("the pod runs", || is_ready(&cluster.get(&["pod", "as-its-node"])).then_some(()));

    // The first of the resolvers never answers; the next does.
    cluster.wait("the node has heard of the names", || {
        (asks.addresses(cluster, "far.default.svc.cluster.local").len() == 1).then_some(())
    });
    let mut said = String::new();
    let names = ["outside.test", "short", "far.default.svc.cluster.local", "nowhere.test"];
    for name in names {
        let lines = cluster.wait("it is answered in time", || {
            let said = asks.says(cluster, &format!("nslookup -type=a {name}"));
            (!said.contains("timed out")).then_some(said)
        });
        let told: Vec<&str> = lines
            .lines()
            .skip_while(|it| !it.is_empty())
            .filter(|it| !it.is_empty())
            .map(|it| it.trim())
            .collect();
        said += &format!("{name}: {}\n", told.join(", "));
    }
    let at_node = cluster.try_kubectl(&["exec", "as-its-node", "--", "cat", "/etc/resolv.conf"]).1;
    said += &format!("as its node:\n{at_node}");
    said += &format!("as the cluster:\n{}\n", asks.says(cluster, "cat /etc/resolv.conf"));
    // What does not fit is asked for again over TCP, by whoever asks.
    for (name, count) in asks.over_tcp(cluster, &["big.test", "far-and-big.default.svc.cluster.local"]) {
        said += &format!("{name} over TCP: {count} answers\n");
    }
    let address = cluster.address().to_string();
    let said = said.replace(&silent(cluster.address()), "SILENT").replace(&address, "RESOLVER");
    expect![[r#"
        outside.test: Name:	outside.test, Address: 192.0.2.7
        short: ** server can't find short.default.svc.cluster.local: NXDOMAIN, ** server can't find short.svc.cluster.local: NXDOMAIN, ** server can't find short.cluster.local: NXDOMAIN, Name:	short.corp.test, Address: 192.0.2.8, command terminated with exit code 1
        far.default.svc.cluster.local: far.default.svc.cluster.local	canonical name = outside.test, Name:	outside.test, Address: 192.0.2.7
        nowhere.test: ** server can't find nowhere.test: NXDOMAIN, command terminated with exit code 1
        as its node:
        search corp.test
        nameserver SILENT
        nameserver RESOLVER
        as the cluster:
        search default.svc.cluster.local svc.cluster.local cluster.local corp.test
        nameserver 10.96.0.10
        options ndots:5
        big.test over TCP: 60 answers
        far-and-big.default.svc.cluster.local over TCP: 61 answers
    "#]].assert_eq(&said);

    // Nobody listens there: it is said at once that nobody knows.
    let refusing = cluster.node(1).address();
    fs::write(resolv_conf(name), format!("nameserver {refusing}\n")).unwrap();
    cluster.wait("nobody can be asked", || {
        asks.says(cluster, "nslookup -type=a outside.test").contains("SERVFAIL").then_some(())
    });
}

impl Pod {
    /// How many records are answered to questions for addresses, asked on one connection.
    fn over_tcp(&self, cluster: &Cluster, names: &[&str]) -> Vec<(String, u16)> {
        let mut asked = Vec::new();
        for name in names {
            let mut question = vec![0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
            for label in name.split('.') {
                question.push(u8::try_from(label.len()).unwrap());
                question.extend(label.as_bytes());
            }
            question.extend([0, 0, 1, 0, 1]);
            asked.extend(u16::try_from(question.len()).unwrap().to_be_bytes());
            asked.extend(question);
        }
        let asked: String = asked.iter().map(|it| format!("\\\\{it:03o}")).collect();
        // The connection ends when nothing is asked on it for a while.
        let script = format!("printf {asked} | nc 10.96.0.10 53 | xxd -p | tr -d '\\n'");
        let heard = self.says(cluster, &script);
        let bytes: Vec<u8> = (0..heard.len() / 2)
            .map(|at| u8::from_str_radix(&heard[2 * at..2 * at + 2], 16).unwrap_or_default())
            .collect();
        let mut rest = &bytes[..];
        let mut counts = Vec::new();
        for name in names {
            let Some((length, after)) = rest.split_first_chunk::<2>() else { break };
            counts.push(((*name).to_owned(), u16::from_be_bytes([after[6], after[7]])));
            rest = &after[usize::from(u16::from_be_bytes(*length))..];
        }
        counts
    }
}
