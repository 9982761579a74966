//! Decides whether the API server belongs to the cluster that the node has joined, and which actions the node may take
//! before it has verified this.
//!
//! A server that lost its database answers with an empty list of pods, under the same address and with the same
//! certificates. A node that trusted this empty list would stop every container. So the node records the UID of the
//! cluster that it joined, and compares the UID with that of the server after each complete list of pods.

use alloc::format;
use alloc::string::String;

use muster_api::text::Text;
use muster_api::well_known::NAMESPACE_SYSTEM;

/// The namespace whose UID serves as the UID of the cluster. Every cluster has this namespace, it cannot be deleted,
/// and a backup contains it.
pub const CLUSTER_UID_NAMESPACE: &str = NAMESPACE_SYSTEM;

/// Which cluster the node has joined, as recorded in a file on the node's disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClusterRecord {
    /// The node has joined no cluster yet.
    Nothing,
    /// The node joined the cluster with this UID.
    Cluster(Text),
    /// The file with the cluster UID cannot be read. It is never replaced automatically.
    Unreadable,
}

/// Whether the API server belongs to the node's cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerIdentity {
    /// It is not known whether the server belongs to the node's cluster: the cluster's UID has not been read yet, could
    /// not be read, or is not written to disk yet. Holds the error message, or `None` if there was no error, or if the
    /// server did not answer.
    Unverified(Option<Text>),
    /// The server belongs to the cluster that the node joined.
    Verified,
    /// The server belongs to another cluster, with the UID `found`. Also the identity of every server while the record
    /// on disk is unreadable.
    Foreign { found: Text },
}

/// The node's membership in a cluster: its record of the cluster, and whether the API server belongs to that cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Membership {
    /// The cluster that the node has joined, as recorded on disk.
    recorded: ClusterRecord,
    /// Whether the API server belongs to the cluster that the node has joined.
    identity: ServerIdentity,
    /// Whether the node has received a complete list of its pods from the verified server since the agent started.
    has_pod_list: bool,
}

impl Membership {
    /// Creates the membership from the record on disk. The API server is not verified yet.
    pub fn new(recorded: ClusterRecord) -> Self {
        Self { recorded, identity: ServerIdentity::Unverified(None), has_pod_list: false }
    }

    /// Compares the cluster UID that was read from the server with the recorded one. If the node has joined no cluster
    /// yet, returns the UID to write to disk. The caller writes it, and then calls
    /// [`Membership::record_joined_cluster`], which marks the server as verified. `None` if the record on disk names a
    /// cluster or is unreadable.
    ///
    /// Rule: a node belongs to the first cluster whose UID it reads, and to no other cluster until a user deletes the
    /// record.
    pub fn check_cluster_uid(&mut self, found: Text) -> Option<Text> {
        match &self.recorded {
            ClusterRecord::Nothing => {
                self.identity = ServerIdentity::Unverified(None);
                return Some(found);
            }
            ClusterRecord::Cluster(joined) if *joined == found => self.identity = ServerIdentity::Verified,
            ClusterRecord::Cluster(_) | ClusterRecord::Unreadable => {
                self.identity = ServerIdentity::Foreign { found }
            }
        }
        None
    }

    /// Records that the cluster's UID was written to disk, and marks the server as verified.
    pub fn record_joined_cluster(&mut self, uid: Text) {
        self.recorded = ClusterRecord::Cluster(uid);
        self.identity = ServerIdentity::Verified;
    }

    /// Records that the cluster's UID could not be read, or could not be written to disk. `why` is `None` if the server
    /// did not answer.
    pub fn mark_unverified(&mut self, why: Option<Text>) {
        self.identity = ServerIdentity::Unverified(why);
    }

    /// Returns whether the API server belongs to the node's cluster, as far as it is known.
    pub fn server_identity(&self) -> &ServerIdentity {
        &self.identity
    }

    /// Whether the API server is known to belong to the node's cluster.
    ///
    /// Rule: lists and events of pods are applied only while the server is verified to belong to the cluster that the
    /// node joined.
    pub fn is_verified(&self) -> bool {
        self.identity == ServerIdentity::Verified
    }

    /// Records that a complete list of pods was received, if the server is verified. Returns whether the server is
    /// verified: only then may the list be applied. The caller must have read the server's cluster UID after the list.
    pub fn record_pod_list(&mut self) -> bool {
        self.has_pod_list |= self.is_verified();
        self.is_verified()
    }

    /// Whether containers whose pod does not exist on the API server may be removed.
    ///
    /// Rule: containers of unknown pods are removed only after a verified server has returned a complete list of pods
    /// to this process, and only while the server is still verified.
    pub fn may_remove_orphans(&self) -> bool {
        self.has_pod_list && self.is_verified()
    }

    /// Returns the message that explains why the node is not ready. `None` if the server is verified, or is unverified
    /// without an error message. `record` is the path of the file with the cluster UID, for the message.
    pub fn not_ready_reason(&self, record: &str) -> Option<String> {
        let kept = "containers are kept and no pod is started or removed";
        match (&self.identity, &self.recorded) {
            (ServerIdentity::Foreign { found }, ClusterRecord::Cluster(joined)) => Some(format!(
                "this node joined cluster {joined}, but the API server is cluster {found}: {kept}; restore the cluster's \
                 database, or delete {record} and restart the agent to move the node to the new cluster"
            )),
            (ServerIdentity::Foreign { .. }, _) => Some(format!(
                "the record of the cluster that this node joined cannot be read: {kept}; delete {record} and restart the \
                 agent to join the cluster of the API server"
            )),
            (ServerIdentity::Unverified(Some(why)), _) => {
                Some(format!("cannot verify the identity of the cluster: {why}: {kept}"))
            }
            (ServerIdentity::Unverified(None) | ServerIdentity::Verified, _) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use expect_test::expect;

    use super::*;

    /// Applies events to a node with this record: `uid=X` the server has the UID X, `record` the node has recorded it,
    /// `list` a complete list was received, `silent` and `refused` the UID could not be read.
    fn check(recorded: ClusterRecord, events: &str) -> String {
        let mut node = Membership::new(recorded);
        let mut to_record = None;
        let mut lines = Vec::new();
        for event in events.split_whitespace() {
            let mut obeyed = "";
            match event.split_once('=') {
                Some(("uid", uid)) => to_record = node.check_cluster_uid(uid.into()),
                _ if event == "record" => {
                    node.record_joined_cluster(to_record.take().expect("a UID is to be recorded"))
                }
                _ if event == "silent" => node.mark_unverified(None),
                _ if event == "refused" => node.mark_unverified(Some("forbidden".into())),
                _ => obeyed = if node.record_pod_list() { ", list obeyed" } else { ", list ignored" },
            }
            let orphans = if node.may_remove_orphans() { "removed" } else { "kept" };
            lines.push(format!("{event}: orphans {orphans}{obeyed}"));
        }
        lines.extend(node.not_ready_reason("/var/lib/muster/cluster"));
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
        .assert_eq(&check(ClusterRecord::Nothing, "list uid=a list record list"));
    }

    #[test]
    fn a_restarted_agent_keeps_everything_until_the_same_cluster_gave_a_list() {
        expect![[r#"
            silent: orphans kept
            list: orphans kept, list ignored
            uid=a: orphans kept
            list: orphans removed, list obeyed"#]]
        .assert_eq(&check(ClusterRecord::Cluster("a".into()), "silent list uid=a list"));
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
        .assert_eq(&check(ClusterRecord::Cluster("a".into()), "uid=a list silent uid=b list uid=a list"));
        expect![[r#"
            uid=b: orphans kept
            list: orphans kept, list ignored
            this node joined cluster a, but the API server is cluster b: containers are kept and no pod is started or removed; restore the cluster's database, or delete /var/lib/muster/cluster and restart the agent to move the node to the new cluster"#]]
        .assert_eq(&check(ClusterRecord::Cluster("a".into()), "uid=b list"));
    }

    #[test]
    fn an_unreadable_record_or_uid_removes_nothing() {
        expect![[r#"
            uid=a: orphans kept
            list: orphans kept, list ignored
            the record of the cluster that this node joined cannot be read: containers are kept and no pod is started or removed; delete /var/lib/muster/cluster and restart the agent to join the cluster of the API server"#]]
        .assert_eq(&check(ClusterRecord::Unreadable, "uid=a list"));
        expect![[r#"
            refused: orphans kept
            list: orphans kept, list ignored
            cannot verify the identity of the cluster: forbidden: containers are kept and no pod is started or removed"#]]
        .assert_eq(&check(ClusterRecord::Cluster("a".into()), "refused list"));
    }
}
