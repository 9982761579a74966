//! Whether an API server speaks for the cluster that a node has joined, and what the node may do before that is proven.
//!
//! A server that lost its database answers with an empty list of pods, under the same address and with the same
//! certificates. A node that believed it would end every container. So the node records the UID of the cluster it joined,
//! and compares it with what the server says after each complete list.

use alloc::format;
use alloc::string::String;

use muster_api::text::Text;

/// The namespace whose UID identifies a cluster: every cluster has it, it cannot be deleted, and a backup contains it.
pub const NAMESPACE: &str = "kube-system";

/// What the node has recorded on disk about the cluster that it joined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recorded {
    Nothing,
    Cluster(Text),
    /// There is a record, and it cannot be read. It is never replaced by itself.
    Unreadable,
}

/// What is known about the API server that the node talks to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// It was not asked yet, or did not answer the last time; with the reason if it refused to answer.
    Unverified(Option<Text>),
    /// It is the cluster that the node joined.
    Proven,
    /// It is another one.
    Foreign { found: Text },
}

/// The node's view of its cluster, from the start of the agent on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Membership {
    recorded: Recorded,
    standing: Standing,
    /// A complete list of the node's pods was taken from the proven cluster since the agent started.
    is_listed: bool,
}

impl Membership {
    pub fn new(recorded: Recorded) -> Self {
        Self { recorded, standing: Standing::Unverified(None), is_listed: false }
    }

    /// Rule: a node belongs to the first cluster that it reads the UID of, and to no other until its record is deleted by
    /// hand. Returns the UID to record; the cluster is proven once [`Membership::recorded`] was called.
    pub fn identified(&mut self, found: Text) -> Option<Text> {
        match &self.recorded {
            Recorded::Nothing => {
                self.standing = Standing::Unverified(None);
                return Some(found);
            }
            Recorded::Cluster(joined) if *joined == found => self.standing = Standing::Proven,
            Recorded::Cluster(_) | Recorded::Unreadable => self.standing = Standing::Foreign { found },
        }
        None
    }

    /// The UID is on disk.
    pub fn recorded(&mut self, uid: Text) {
        self.recorded = Recorded::Cluster(uid);
        self.standing = Standing::Proven;
    }

    /// The UID could not be read or recorded; with a reason worth reporting, unless the server just did not answer.
    pub fn unverified(&mut self, why: Option<Text>) {
        self.standing = Standing::Unverified(why);
    }

    pub fn standing(&self) -> &Standing {
        &self.standing
    }

    /// Rule: a list or an event is obeyed only while the server is proven to be the cluster that the node joined.
    pub fn may_obey(&self) -> bool {
        self.standing == Standing::Proven
    }

    /// A complete list of pods has arrived and the server was asked for the UID after that. Whether the list is obeyed.
    pub fn listed(&mut self) -> bool {
        self.is_listed |= self.may_obey();
        self.may_obey()
    }

    /// Rule: containers that belong to no known pod are removed only after the proven cluster gave a complete list of pods
    /// to this process, and only while it is still proven.
    pub fn may_remove_orphans(&self) -> bool {
        self.is_listed && self.may_obey()
    }

    /// Why the node is not ready, if it is because of its cluster. `record` is the file with the UID.
    pub fn trouble(&self, record: &str) -> Option<String> {
        let kept = "containers are kept and no pod is started or removed";
        match (&self.standing, &self.recorded) {
            (Standing::Foreign { found }, Recorded::Cluster(joined)) => Some(format!(
                "this node joined cluster {joined}, but the API server is cluster {found}: {kept}; restore the cluster's \
                 database, or delete {record} and restart the agent to move the node to the new cluster"
            )),
            (Standing::Foreign { .. }, _) => Some(format!(
                "the record of the cluster that this node joined cannot be read: {kept}; delete {record} and restart the \
                 agent to join the cluster of the API server"
            )),
            (Standing::Unverified(Some(why)), _) => {
                Some(format!("cannot verify the identity of the cluster: {why}: {kept}"))
            }
            (Standing::Unverified(None) | Standing::Proven, _) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use expect_test::expect;

    use super::*;

    /// Plays events to a node that has recorded `recorded`: `uid=X` the server says that its UID is X, `record` the node
    /// could write it, `list` a complete list arrived, `silent` and `refused` for a server that does not say.
    fn play(recorded: Recorded, events: &str) -> String {
        let mut node = Membership::new(recorded);
        let mut to_record = None;
        let mut lines = Vec::new();
        for event in events.split_whitespace() {
            let mut obeyed = "";
            match event.split_once('=') {
                Some(("uid", uid)) => to_record = node.identified(uid.into()),
                _ if event == "record" => node.recorded(to_record.take().expect("there is one to record")),
                _ if event == "silent" => node.unverified(None),
                _ if event == "refused" => node.unverified(Some("forbidden".into())),
                _ => obeyed = if node.listed() { ", list obeyed" } else { ", list ignored" },
            }
            let orphans = if node.may_remove_orphans() { "removed" } else { "kept" };
            lines.push(format!("{event}: orphans {orphans}{obeyed}"));
        }
        lines.extend(node.trouble("/var/lib/muster/cluster"));
        lines.join("\n")
    }

    #[test]
    fn a_new_node_records_its_cluster_and_removes_orphans_after_a_list() {
        expect![[r#"
            list: orphans kept, list ignored
            uid=a: orphans kept
            list: orphans kept, list ignored
            record: orphans kept
            list: orphans removed, list obeyed"#]]
        .assert_eq(&play(Recorded::Nothing, "list uid=a list record list"));
    }

    #[test]
    fn a_restarted_agent_keeps_everything_until_the_same_cluster_gave_a_list() {
        expect![[r#"
            silent: orphans kept
            list: orphans kept, list ignored
            uid=a: orphans kept
            list: orphans removed, list obeyed"#]]
        .assert_eq(&play(Recorded::Cluster("a".into()), "silent list uid=a list"));
    }

    #[test]
    fn another_cluster_at_the_same_address_removes_nothing_until_the_first_is_back() {
        expect![[r#"
            uid=a: orphans kept
            list: orphans removed, list obeyed
            silent: orphans kept
            uid=b: orphans kept
            list: orphans kept, list ignored
            uid=a: orphans removed
            list: orphans removed, list obeyed"#]]
        .assert_eq(&play(Recorded::Cluster("a".into()), "uid=a list silent uid=b list uid=a list"));
        expect![[r#"
            uid=b: orphans kept
            list: orphans kept, list ignored
            this node joined cluster a, but the API server is cluster b: containers are kept and no pod is started or removed; restore the cluster's database, or delete /var/lib/muster/cluster and restart the agent to move the node to the new cluster"#]]
        .assert_eq(&play(Recorded::Cluster("a".into()), "uid=b list"));
    }

    #[test]
    fn an_unreadable_record_or_uid_removes_nothing() {
        expect![[r#"
            uid=a: orphans kept
            list: orphans kept, list ignored
            the record of the cluster that this node joined cannot be read: containers are kept and no pod is started or removed; delete /var/lib/muster/cluster and restart the agent to join the cluster of the API server"#]]
        .assert_eq(&play(Recorded::Unreadable, "uid=a list"));
        expect![[r#"
            refused: orphans kept
            list: orphans kept, list ignored
            cannot verify the identity of the cluster: forbidden: containers are kept and no pod is started or removed"#]]
        .assert_eq(&play(Recorded::Cluster("a".into()), "refused list"));
    }
}
