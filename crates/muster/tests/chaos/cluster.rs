//! Three API servers on three members of etcd, and how a fault is made and repaired.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;
use std::time::Duration;

use muster_etcd::EtcdVersion;

use super::delay::DelayProxies;
use super::etcd::{CLIENT_PORT, CallError, Member, PEER_PORT, QUOTA_BYTES, create_members};
use super::fault::{Fault, MEMBERS, SERVERS};
use super::servers::ApiServer;
use super::topology::{Filter, Host, Redirect, create_bridge};

/// Number of revisions that a stopped server does not see before the compaction. etcd keeps about a hundred watch
/// responses for a client that does not read.
const UNSEEN_REVISIONS: u64 = 400;

/// Time between two large values while file systems are full, and for the answer to one.
const FILLER_INTERVAL: Duration = Duration::from_secs(3);
const FILLER_TIMEOUT: Duration = Duration::from_millis(500);

/// Time from the failure of a write of a member to its exit, at most.
const EXIT_DELAY: Duration = Duration::from_millis(500);

/// Maximum time for a step of a fault or of its repair.
const STEP_TIMEOUT: Duration = Duration::from_secs(60);

/// The processes, and what is wrong with them.
pub(crate) struct Cluster {
    pub(crate) members: Vec<Member>,
    pub(crate) servers: Vec<ApiServer>,
    version: EtcdVersion,
    /// What delays connections at the moment, and the hosts whose connections go there.
    delay: Option<Delay>,
    /// Revision of etcd at the end of each repair.
    revisions: Vec<u64>,
}

/// Connections that are delayed.
#[derive(Default)]
struct Delay {
    proxies: DelayProxies,
    /// The connections: the index of a host in [`Cluster::hosts`], and where it connects to.
    connections: Vec<(usize, SocketAddrV4)>,
}

impl Cluster {
    /// Starts etcd and the servers, and waits until all of them answer.
    pub(crate) async fn start(dir: &Path, etcd: &str) -> Self {
        create_bridge();
        let hosts = |name: &str, first: u8, count: usize| {
            let host = |it: u8| Host::new(&format!("{name}-{it}"), Ipv4Addr::new(10, 77, 0, first + it));
            (1..=count).map(|it| host(u8::try_from(it).unwrap())).collect::<Vec<_>>()
        };
        let (mut members, files) = create_members(hosts("etcd", 0, MEMBERS), etcd, dir);
        members.iter_mut().for_each(Member::start);
        for member in &members {
            retry(async || member.read_revision().await).await.expect("etcd does not start");
        }
        let version = members[0].version().await.unwrap();

        let token = dir.join("token");
        muster_files::write_private_file(&token, "t".repeat(32).as_bytes()).unwrap();
        let urls: Vec<String> = members.iter().map(Member::client_url).collect();
        let mut flags = vec!["--etcd".to_owned(), urls.join(",")];
        for (flag, file) in [
            ("--etcd-ca", &files.ca),
            ("--etcd-cert", &files.cert),
            ("--etcd-key", &files.key),
            ("--token-file", &token),
        ] {
            flags.extend([flag.to_owned(), file.display().to_string()]);
        }
        if !version.is_supported() {
            flags.push("--etcd-any-version".to_owned());
        }
        let servers = hosts("server", 10, SERVERS).into_iter().enumerate();
        let mut servers: Vec<ApiServer> =
            servers.map(|(number, host)| ApiServer::new(host, number, dir, &flags)).collect();
        servers.iter_mut().for_each(ApiServer::start);
        for server in &servers {
            let has_started = async || if server.has_kubeconfig() { Ok(()) } else { Err(()) };
            retry(has_started).await.expect("a server does not start");
        }
        Self { members, servers, version, delay: None, revisions: Vec::new() }
    }

    pub(crate) fn version(&self) -> EtcdVersion {
        self.version
    }

    /// The number of the leader.
    pub(crate) async fn leader(&self) -> usize {
        let find = async || {
            for (number, member) in self.members.iter().enumerate() {
                if member.status().await.is_ok_and(|it| it.0) {
                    return Ok(number);
                }
            }
            Err("no member is the leader")
        };
        retry(find).await.unwrap()
    }

    /// Makes a fault. `leader` is the number of the leader.
    pub(crate) async fn inject(&mut self, fault: Fault, leader: usize) -> Result<(), String> {
        match fault {
            Fault::KillServer(server) => self.servers[server].kill(),
            Fault::StopServer(server) => self.servers[server].stop(),
            Fault::KillMember(member) => self.members[member.number(leader)].kill(),
            Fault::StopMember(member) => self.members[member.number(leader)].stop(),
            Fault::KillLeaderAndServer(server) => {
                self.members[leader].kill();
                self.servers[server].kill();
            }
            Fault::StopLeaderAndServer(server) => {
                self.members[leader].stop();
                self.servers[server].stop();
            }
            Fault::KillQuorum(left) => self.members_without(left).for_each(Member::kill),
            Fault::StopQuorum(left) => self.members_without(left).for_each(|it| it.stop()),
            Fault::CutMember(member) => self.cut_member(member.number(leader), true, true),
            Fault::DeafMember(member) => self.cut_member(member.number(leader), true, false),
            Fault::MuteMember(member) => self.cut_member(member.number(leader), false, true),
            Fault::CutLeaderFromOne => {
                let other = (leader + 1) % MEMBERS;
                self.members[leader].host.drop_from(&[self.members[other].host.address]);
                self.members[other].host.drop_from(&[self.members[leader].host.address]);
            }
            Fault::CutAllMembers => {
                for member in 0..MEMBERS {
                    self.cut_member(member, true, false);
                }
            }
            Fault::CutServer(server) => self.cut_server(server, &self.member_addresses(), true, true),
            Fault::DeafServer(server) => self.cut_server(server, &self.member_addresses(), true, false),
            Fault::MuteServer(server) => self.cut_server(server, &self.member_addresses(), false, true),
            Fault::CutServerFromLeader(server) => {
                self.cut_server(server, &[self.members[leader].host.address], true, true);
            }
            Fault::DelayMember(member) => {
                let member = self.members[member.number(leader)].host.address;
                self.delay(|from, to| from == member || to == member).await;
            }
            Fault::DelayMembers => {
                let members = self.member_addresses();
                self.delay(|from, _| members.contains(&from)).await;
            }
            Fault::DelayServer(server) => {
                let server = self.servers[server].host.address;
                self.delay(|from, _| from == server).await;
            }
            Fault::FullDatabase => self.fill_databases().await?,
            Fault::FullFileSystem(member) => self.fill_file_systems(&[member.number(leader)]).await?,
            Fault::FullFileSystemsOfQuorum(left) => {
                let members: Vec<usize> = (0..MEMBERS).filter(|it| *it != left).collect();
                self.fill_file_systems(&members).await?;
            }
            Fault::FullFileSystems => self.fill_file_systems(&[0, 1, 2]).await?,
            Fault::CompactUnderStoppedServer(server) => {
                self.servers[server].stop();
                let member = &self.members[leader];
                let until = read(member).await? + UNSEEN_REVISIONS;
                let has_passed = async || match member.read_revision().await {
                    Ok(revision) if until <= revision => Ok(revision),
                    other => Err(format!("{other:?}, not {until}")),
                };
                let revision = retry(has_passed).await?;
                retry(async || member.compact(revision).await).await.map_err(|it| it.to_string())?;
            }
        }
        Ok(())
    }

    /// Ends a fault: frees space, starts what was killed or has exited without space, continues what was stopped, and
    /// passes all packets on at once.
    pub(crate) async fn repair(&mut self, fault: Fault) -> Result<(), String> {
        let delayed = self.delay.take().map(|delay| {
            self.reset(&delay.connections);
            delay.proxies.connections()
        });
        for host in self.hosts() {
            host.set_filter(&Filter::default());
        }
        let freed = if fault.fills_file_systems() { self.free_file_systems().await } else { Ok(()) };
        self.members.iter_mut().for_each(Member::ensure_running);
        self.servers.iter_mut().for_each(ApiServer::ensure_running);
        freed?;
        if delayed == Some(0) {
            return Err("no connection was delayed".to_owned());
        }
        if fault == Fault::FullDatabase {
            retry(async || self.members[0].delete_fillers().await).await.map_err(|it| it.to_string())?;
            let revision = read(&self.members[0]).await?;
            self.compact_and_defragment(revision).await?;
            retry(async || self.members[0].disarm().await).await.map_err(|it| it.to_string())?;
        }
        Ok(())
    }

    /// Waits until all members have caught up. Then compacts the history of older faults if a database is large.
    /// Returns whether it did.
    pub(crate) async fn settle(&mut self) -> Result<bool, String> {
        let mut size = 0;
        for (number, member) in self.members.iter_mut().enumerate() {
            member.check_running()?;
            let caught_up = retry(async || member.read_revision().await).await;
            caught_up.map_err(|it| format!("member {} does not catch up: {it}", number + 1))?;
            let status = retry(async || member.status().await).await.map_err(|it| it.to_string())?;
            size = size.max(status.1);
        }
        self.revisions.push(read(&self.members[0]).await?);
        match &self.revisions[..] {
            [.., older, _, _] if QUOTA_BYTES / 2 < size => {
                self.compact_and_defragment(*older).await?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    async fn compact_and_defragment(&self, revision: u64) -> Result<(), String> {
        let compacted = retry(async || match self.members[0].compact(revision).await {
            // An earlier attempt had no response.
            Err(CallError::Rejected(why)) if why.contains("has been compacted") => Ok(()),
            other => other,
        });
        compacted.await.map_err(|it| it.to_string())?;
        for member in &self.members {
            retry(async || member.defragment().await).await.map_err(|it| it.to_string())?;
        }
        Ok(())
    }

    fn hosts(&self) -> impl Iterator<Item = &Host> {
        self.members.iter().map(|it| &it.host).chain(self.servers.iter().map(|it| &it.host))
    }

    fn member_addresses(&self) -> Vec<Ipv4Addr> {
        self.members.iter().map(|it| it.host.address).collect()
    }

    fn members_without(&mut self, left: usize) -> impl Iterator<Item = &mut Member> {
        self.members.iter_mut().enumerate().filter(move |(it, _)| *it != left).map(|(_, it)| it)
    }

    /// Drops the packets between a member and the others: those that arrive at it, those that arrive at the others, or
    /// both.
    fn cut_member(&self, member: usize, arriving: bool, leaving: bool) {
        let member = &self.members[member].host;
        let others = || self.members.iter().map(|it| &it.host).filter(|it| it.address != member.address);
        if arriving {
            member.drop_from(&others().map(|it| it.address).collect::<Vec<_>>());
        }
        if leaving {
            others().for_each(|it| it.drop_from(&[member.address]));
        }
    }

    /// Drops the packets between a server and members: those that arrive at the server, those that leave it, or both.
    fn cut_server(&self, server: usize, members: &[Ipv4Addr], arriving: bool, leaving: bool) {
        let server = &self.servers[server].host;
        if arriving {
            server.drop_from(members);
        }
        if leaving {
            let hosts = self.members.iter().map(|it| &it.host).filter(|it| members.contains(&it.address));
            hosts.for_each(|it| it.drop_from(&[server.address]));
        }
    }

    /// Delays all connections to members for which `is_delayed` is true, given the addresses of both sides.
    async fn delay(&mut self, is_delayed: impl Fn(Ipv4Addr, Ipv4Addr) -> bool) {
        let mut delay = Delay::default();
        for (number, host) in self.hosts().enumerate() {
            let mut redirects = Vec::new();
            for to in self.member_addresses() {
                if to == host.address || !is_delayed(host.address, to) {
                    continue;
                }
                for port in [CLIENT_PORT, PEER_PORT] {
                    let to = SocketAddrV4::new(to, port);
                    let test_port = delay.proxies.add(to.into()).await;
                    redirects.push(Redirect { to, test_port });
                    delay.connections.push((number, to));
                }
            }
            if !redirects.is_empty() {
                host.set_filter(&Filter { deaf_to: Vec::new(), redirects });
            }
        }
        self.reset(&delay.connections);
        self.delay = Some(delay);
    }

    /// Resets connections, which are then opened again.
    fn reset(&self, connections: &[(usize, SocketAddrV4)]) {
        for (host, to) in connections {
            self.hosts().nth(*host).expect("it is a host").reset_connections(*to);
        }
    }

    /// Writes large values until no member accepts a write.
    async fn fill_databases(&self) -> Result<(), String> {
        let mut key = 0;
        for member in &self.members {
            while !member.write_filler(key).await.is_err_and(|it| it.is_no_space()) {
                key += 1;
                if QUOTA_BYTES < (key as u64) << 20 {
                    return Err("etcd accepts more than its quota".to_owned());
                }
            }
        }
        Ok(())
    }

    /// Frees the space of all members, and waits until those have exited whose last write failed.
    async fn free_file_systems(&mut self) -> Result<(), String> {
        self.members.iter().for_each(|it| it.file_system.free());
        tokio::time::sleep(EXIT_DELAY).await;
        self.members.iter_mut().try_for_each(|it| it.has_exited_without_space().map(drop))
    }

    /// Fills the file systems of these members, and waits until those of them have exited that write to their data. A
    /// member without a quorum does not write. Large values use up the free pages of the databases.
    async fn fill_file_systems(&mut self, members: &[usize]) -> Result<(), String> {
        let exits = members.len().min(MEMBERS / 2 + 1);
        let deadline = tokio::time::Instant::now() + STEP_TIMEOUT;
        let mut filled = tokio::time::Instant::now();
        loop {
            let mut exited = 0;
            for member in members {
                // A member that removes an old file makes space.
                self.members[*member].file_system.fill();
                exited += usize::from(self.members[*member].has_exited_without_space()?);
            }
            if exits <= exited {
                return Ok(());
            }
            if filled.elapsed() >= FILLER_INTERVAL {
                filled = tokio::time::Instant::now();
                for member in &self.members {
                    if let Ok(Ok(())) = tokio::time::timeout(FILLER_TIMEOUT, member.write_filler(0)).await {
                        break;
                    }
                }
            }
            if deadline < tokio::time::Instant::now() {
                return Err(format!("of {} members without space, {exited} have exited", members.len()));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

async fn read(member: &Member) -> Result<u64, String> {
    retry(async || member.read_revision().await).await.map_err(|it| it.to_string())
}

/// Repeats a step until it succeeds, or returns its last error.
async fn retry<T, E>(mut step: impl AsyncFnMut() -> Result<T, E>) -> Result<T, E> {
    let deadline = tokio::time::Instant::now() + STEP_TIMEOUT;
    loop {
        match step().await {
            Err(_) if tokio::time::Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            result => return result,
        }
    }
}
