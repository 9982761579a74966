//! The faults, and the order in which they come.

/// Number of etcd members, and of API servers.
pub(crate) const MEMBERS: usize = 3;
pub(crate) const SERVERS: usize = 3;

/// Something that goes wrong. Members and servers are numbered from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    KillServer(usize),
    StopServer(usize),
    KillMember(Which),
    StopMember(Which),
    KillLeaderAndServer(usize),
    StopLeaderAndServer(usize),
    /// All members but this one are killed.
    KillQuorum(usize),
    /// All members but this one are stopped.
    StopQuorum(usize),
    /// No packet passes between this member and the others.
    CutMember(Which),
    /// No packet passes between the leader and one other member.
    CutLeaderFromOne,
    /// No packet passes between any two members.
    CutAllMembers,
    /// No packet passes between this server and etcd.
    CutServer(usize),
    /// No packet passes between this server and the leader.
    CutServerFromLeader(usize),
    /// Packets of the other members do not arrive at this one.
    DeafMember(Which),
    /// Packets of this member do not arrive at the others.
    MuteMember(Which),
    /// Packets of etcd do not arrive at this server.
    DeafServer(usize),
    /// Packets of this server do not arrive at etcd.
    MuteServer(usize),
    /// Packets between this member and the other members and the servers take longer.
    DelayMember(Which),
    /// Packets between members take longer.
    DelayMembers,
    /// Packets between this server and etcd take longer.
    DelayServer(usize),
    /// The databases of the members have reached the quota of etcd.
    FullDatabase,
    /// The file system with the data of this member has no space. The member exits.
    FullFileSystem(Which),
    /// The same for all members but this one.
    FullFileSystemsOfQuorum(usize),
    /// The same for all members. Two of them exit, or all.
    FullFileSystems,
    /// This server is stopped until its watch is behind the compacted revision.
    CompactUnderStoppedServer(usize),
}

/// Which member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Which {
    Number(usize),
    Leader,
}

/// What a fault does to the writes through the servers. Servers in no list are stopped or killed.
pub(crate) struct Impact {
    /// Servers through which writes are acknowledged again.
    pub(crate) serving: Vec<usize>,
    /// Servers that refuse writes.
    pub(crate) refusing: Vec<usize>,
}

/// Why the faults of [`Fault::is_known_to_fail`] are left out.
pub(crate) const LEFT_OUT: &str = "SIGSTOP of members (stale reads, fixed in 3.4.42, 3.5.28 and 3.6.9), and compaction under a \
                                   stopped watch (lost events, fixed in 3.4.36 and 3.5.18)";

impl Which {
    /// The number of the member.
    pub(crate) fn number(self, leader: usize) -> usize {
        match self {
            Self::Number(number) => number,
            Self::Leader => leader,
        }
    }
}

impl Fault {
    /// Whether versions of etcd that Muster does not support are known to fail under this fault.
    pub(crate) fn is_known_to_fail(self) -> bool {
        matches!(
            self,
            Self::StopMember(_)
                | Self::StopLeaderAndServer(_)
                | Self::StopQuorum(_)
                | Self::CompactUnderStoppedServer(_)
        )
    }

    /// Whether the fault takes the space of members, which then exit.
    pub(crate) fn fills_file_systems(self) -> bool {
        matches!(self, Self::FullFileSystem(_) | Self::FullFileSystemsOfQuorum(_) | Self::FullFileSystems)
    }

    /// The fault without its target.
    pub(crate) fn kind(self) -> &'static str {
        match self {
            Self::KillServer(_) => "SIGKILL of a server",
            Self::StopServer(_) => "SIGSTOP of a server",
            Self::KillMember(Which::Number(_)) => "SIGKILL of a member",
            Self::KillMember(Which::Leader) => "SIGKILL of the leader",
            Self::StopMember(Which::Number(_)) => "SIGSTOP of a member",
            Self::StopMember(Which::Leader) => "SIGSTOP of the leader",
            Self::KillLeaderAndServer(_) => "SIGKILL of the leader and a server",
            Self::StopLeaderAndServer(_) => "SIGSTOP of the leader and a server",
            Self::KillQuorum(_) => "SIGKILL of two members",
            Self::StopQuorum(_) => "SIGSTOP of two members",
            Self::CutMember(Which::Number(_)) => "a member cut from the others",
            Self::CutMember(Which::Leader) => "the leader cut from the others",
            Self::CutLeaderFromOne => "the leader cut from one member",
            Self::CutAllMembers => "all members cut from each other",
            Self::CutServer(_) => "a server cut from etcd",
            Self::CutServerFromLeader(_) => "a server cut from the leader",
            Self::DeafMember(Which::Number(_)) => "a member does not hear the others",
            Self::DeafMember(Which::Leader) => "the leader does not hear the others",
            Self::MuteMember(Which::Number(_)) => "a member is not heard by the others",
            Self::MuteMember(Which::Leader) => "the leader is not heard by the others",
            Self::DeafServer(_) => "a server does not hear etcd",
            Self::MuteServer(_) => "a server is not heard by etcd",
            Self::DelayMember(Which::Number(_)) => "200 ms delay at a member",
            Self::DelayMember(Which::Leader) => "200 ms delay at the leader",
            Self::DelayMembers => "200 ms delay between members",
            Self::DelayServer(_) => "200 ms delay between a server and etcd",
            Self::FullDatabase => "full database (alarm NOSPACE)",
            Self::FullFileSystem(Which::Number(_)) => "full file system of a member",
            Self::FullFileSystem(Which::Leader) => "full file system of the leader",
            Self::FullFileSystemsOfQuorum(_) => "full file systems of two members",
            Self::FullFileSystems => "full file systems of all members",
            Self::CompactUnderStoppedServer(_) => "compaction under a stopped watch",
        }
    }

    pub(crate) fn impact(self) -> Impact {
        let all = || (0..SERVERS).collect::<Vec<_>>();
        let without = |server: usize| all().into_iter().filter(|it| *it != server).collect::<Vec<_>>();
        let (serving, refusing) = match self {
            Self::KillServer(server)
            | Self::StopServer(server)
            | Self::KillLeaderAndServer(server)
            | Self::StopLeaderAndServer(server)
            | Self::CompactUnderStoppedServer(server) => (without(server), vec![]),
            Self::CutServer(server) | Self::DeafServer(server) | Self::MuteServer(server) => {
                (without(server), vec![server])
            }
            Self::KillQuorum(_)
            | Self::StopQuorum(_)
            | Self::CutAllMembers
            | Self::FullDatabase
            | Self::FullFileSystemsOfQuorum(_)
            | Self::FullFileSystems => (vec![], all()),
            Self::KillMember(_)
            | Self::StopMember(_)
            | Self::CutMember(_)
            | Self::CutLeaderFromOne
            | Self::CutServerFromLeader(_)
            | Self::DeafMember(_)
            | Self::MuteMember(_)
            | Self::DelayMember(_)
            | Self::DelayMembers
            | Self::DelayServer(_)
            | Self::FullFileSystem(_) => (all(), vec![]),
        };
        Impact { serving, refusing }
    }

    /// The fault with its targets in words. `leader` is the number of the leader before the fault.
    pub(crate) fn describe(self, leader: usize) -> String {
        let (member, server) = self.targets();
        let member = member.map(|it| format!("member {}", it.number(leader) + 1));
        let server = server.map(|it| format!("server {}", it + 1));
        let targets: Vec<String> = [member, server].into_iter().flatten().collect();
        if targets.is_empty() {
            return self.kind().to_owned();
        }
        format!("{} ({})", self.kind(), targets.join(", "))
    }

    /// The member and the server that the fault hits or, if it hits two members, the one that it does not hit.
    fn targets(self) -> (Option<Which>, Option<usize>) {
        match self {
            Self::KillServer(server)
            | Self::StopServer(server)
            | Self::CutServer(server)
            | Self::DeafServer(server)
            | Self::MuteServer(server)
            | Self::DelayServer(server)
            | Self::CompactUnderStoppedServer(server) => (None, Some(server)),
            Self::KillLeaderAndServer(server)
            | Self::StopLeaderAndServer(server)
            | Self::CutServerFromLeader(server) => (Some(Which::Leader), Some(server)),
            Self::KillMember(member)
            | Self::StopMember(member)
            | Self::CutMember(member)
            | Self::DeafMember(member)
            | Self::MuteMember(member)
            | Self::DelayMember(member)
            | Self::FullFileSystem(member) => (Some(member), None),
            Self::KillQuorum(_) | Self::StopQuorum(_) | Self::FullFileSystemsOfQuorum(_) => (None, None),
            Self::CutLeaderFromOne => (Some(Which::Leader), None),
            Self::CutAllMembers | Self::DelayMembers | Self::FullDatabase | Self::FullFileSystems => {
                (None, None)
            }
        }
    }
}

/// The faults in random order. Each kind comes once before the first one comes again, and a kill or a stop of a single
/// process once for each process.
pub(crate) struct Deck {
    random: Random,
    /// Whether a fault is in the deck.
    includes: Box<dyn Fn(Fault) -> bool>,
    rest: Vec<Fault>,
}

impl Deck {
    pub(crate) fn new(seed: u64, includes: impl Fn(Fault) -> bool + 'static) -> Self {
        Self { random: Random(seed), includes: Box::new(includes), rest: Vec::new() }
    }

    pub(crate) fn draw(&mut self) -> Fault {
        if self.rest.is_empty() {
            self.rest = self.shuffled();
        }
        self.rest.pop().expect("no kind of fault is selected")
    }

    fn shuffled(&mut self) -> Vec<Fault> {
        let random = &mut self.random;
        let mut faults: Vec<Fault> =
            (0..SERVERS).flat_map(|it| [Fault::KillServer(it), Fault::StopServer(it)]).collect();
        let members = (0..MEMBERS).map(Which::Number).chain([Which::Leader]);
        faults.extend(members.flat_map(|it| [Fault::KillMember(it), Fault::StopMember(it)]));
        let mut one_of = |count: usize| random.below(count);
        let mut member = || Which::Number(one_of(MEMBERS));
        faults.extend([
            Fault::CutMember(member()),
            Fault::CutMember(Which::Leader),
            Fault::DeafMember(member()),
            Fault::DeafMember(Which::Leader),
            Fault::MuteMember(member()),
            Fault::MuteMember(Which::Leader),
            Fault::DelayMember(member()),
            Fault::DelayMember(Which::Leader),
            Fault::FullFileSystem(member()),
            Fault::FullFileSystem(Which::Leader),
        ]);
        faults.extend([
            Fault::KillLeaderAndServer(one_of(SERVERS)),
            Fault::StopLeaderAndServer(one_of(SERVERS)),
            Fault::KillQuorum(one_of(MEMBERS)),
            Fault::StopQuorum(one_of(MEMBERS)),
            Fault::CutLeaderFromOne,
            Fault::CutAllMembers,
            Fault::CutServer(one_of(SERVERS)),
            Fault::CutServerFromLeader(one_of(SERVERS)),
            Fault::DeafServer(one_of(SERVERS)),
            Fault::MuteServer(one_of(SERVERS)),
            Fault::DelayMembers,
            Fault::DelayServer(one_of(SERVERS)),
            Fault::FullDatabase,
            Fault::FullFileSystemsOfQuorum(one_of(MEMBERS)),
            Fault::FullFileSystems,
            Fault::CompactUnderStoppedServer(one_of(SERVERS)),
        ]);
        faults.retain(|it| (self.includes)(*it));
        for last in (1..faults.len()).rev() {
            faults.swap(last, self.random.below(last + 1));
        }
        faults
    }
}

/// A generator of pseudo-random numbers (SplitMix64).
struct Random(u64);

impl Random {
    /// A number below `bound`.
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        usize::try_from(mixed % bound as u64).expect("it is less than a usize")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_faults_and_every_kind_comes() {
        let draw = |seed, all, count: usize| {
            let mut deck = Deck::new(seed, move |it| all || !it.is_known_to_fail());
            (0..count).map(|_| deck.draw()).collect::<Vec<_>>()
        };
        assert_eq!(draw(7, true, 100), draw(7, true, 100));
        assert_ne!(draw(7, true, 100), draw(8, true, 100));
        let kinds = |faults: &[Fault]| {
            let mut kinds: Vec<_> = faults.iter().map(|it| it.kind()).collect();
            kinds.sort_unstable();
            kinds.dedup();
            kinds.len()
        };
        assert_eq!((kinds(&draw(7, true, 40)), kinds(&draw(7, false, 33))), (32, 27));
        assert!(draw(7, false, 33).iter().all(|it| !it.is_known_to_fail()));
    }
}
