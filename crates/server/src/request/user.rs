//! Users: authenticated identities, and the names and groups that have a meaning for the server.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use muster_api::well_known::{
    NAMESPACE_MUSTER_SYSTEM, NAMESPACE_SYSTEM, USER_GROUP_MASTERS, USER_GROUP_NODES, USER_NODE_PREFIX,
};
use serde_json::{Value, json};

use crate::validation::names;

/// Group of all authenticated users.
pub(crate) const AUTHENTICATED_GROUP: &str = "system:authenticated";

/// Group of all unauthenticated users.
pub(crate) const UNAUTHENTICATED_GROUP: &str = "system:unauthenticated";

/// Name of the user of requests without credentials.
pub(crate) const ANONYMOUS_USER: &str = "system:anonymous";

/// Prefix of the user names of service accounts.
const SERVICE_ACCOUNT_USER_PREFIX: &str = "system:serviceaccount:";

/// User name of the DaemonSet controller. Like the other components of Muster, it is not a member of `system:masters`.
pub(crate) const DAEMONSET_CONTROLLER_USER: &str = "system:muster-controller";
/// User name of the disruption controller.
pub(crate) const DISRUPTION_USER: &str = "system:muster-disruption";
/// User name of the endpoints controller.
pub(crate) const ENDPOINTS_USER: &str = "system:muster-endpoints";
/// User name of the garbage collector.
pub(crate) const GARBAGE_COLLECTOR_USER: &str = "system:muster-garbage-collector";
/// User name of the node lifecycle controller.
pub(crate) const NODE_LIFECYCLE_USER: &str = "system:muster-node-lifecycle";
/// User name of the rollout policy controller.
pub(crate) const ROLLOUT_POLICY_USER: &str = "system:muster-rollout-policy";
/// User name of the scheduler.
pub(crate) const SCHEDULER_USER: &str = "system:muster-scheduler";
/// User name of the process that runs simulated nodes.
pub(crate) const SIMULATED_NODES_USER: &str = "system:muster-simulated-nodes";

/// The users of all components of Muster.
const COMPONENT_USERS: [&str; 8] = [
    DAEMONSET_CONTROLLER_USER,
    DISRUPTION_USER,
    ENDPOINTS_USER,
    GARBAGE_COLLECTOR_USER,
    NODE_LIFECYCLE_USER,
    ROLLOUT_POLICY_USER,
    SCHEDULER_USER,
    SIMULATED_NODES_USER,
];

/// Namespaces whose service accounts take part in leader election with Leases in the same namespace.
const LEADER_ELECTION_NAMESPACES: [&str; 2] = [NAMESPACE_SYSTEM, NAMESPACE_MUSTER_SYSTEM];

/// Key in [`User::extra`] whose value identifies the certificate or token with which the user was authenticated.
pub(crate) const CREDENTIAL_ID_KEY: &str = "authentication.kubernetes.io/credential-id";

/// An authenticated or anonymous user. Upstream: `user.Info`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) name: String,
    /// UID of the user, for example of a service account. Empty for most other users.
    pub(crate) uid: String,
    pub(crate) groups: Vec<String>,
    /// Additional attributes of the user by key, such as [`CREDENTIAL_ID_KEY`].
    pub(crate) extra: BTreeMap<String, Vec<String>>,
    /// The client certificate that authenticated the user. `None` if the user was authenticated in another way.
    pub(crate) client_certificate: Option<ClientCertificate>,
}

/// The trust level of a user, which determines the usage limits that apply to the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TrustLevel {
    /// A user that is neither a node nor trusted.
    Ordinary,
    /// A node. It may open fewer watches than an ordinary user, but it may use the reserved part of each total limit.
    Node,
    /// A member of `system:masters` or a component of Muster. No per-user limit applies to it, and it may use the
    /// reserved part of each total limit.
    Trusted,
}

/// Serial number and issue time of a client certificate. Revocations refer to them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClientCertificate {
    /// Serial number of the certificate: lowercase hexadecimal digits without leading zeros.
    pub(crate) serial: Arc<str>,
    /// Issue time of the certificate in whole seconds, rounded down. For a certificate without the issue time
    /// extension, it is `notBefore`.
    pub(crate) issued_at: Timestamp,
}

impl User {
    pub(crate) fn new(name: impl Into<String>, groups: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let groups = groups.into_iter().map(Into::into).collect();
        Self { name: name.into(), groups, ..Self::default() }
    }

    /// Returns the user of a request without credentials.
    pub(crate) fn anonymous() -> Self {
        Self::new(ANONYMOUS_USER, [UNAUTHENTICATED_GROUP])
    }

    /// Returns the user of the server's own writes.
    pub(crate) fn server() -> Self {
        Self::new("system:apiserver", [USER_GROUP_MASTERS, AUTHENTICATED_GROUP])
    }

    /// Returns the user of a service account, without the group `system:authenticated`.
    pub(crate) fn service_account(namespace: &str, name: &str) -> Self {
        Self::new(service_account_user_name(namespace, name), service_account_groups(namespace))
    }

    pub(crate) fn is_in_group(&self, group: &str) -> bool {
        self.groups.iter().any(|it| it == group)
    }

    pub(crate) fn is_anonymous(&self) -> bool {
        self.name == ANONYMOUS_USER
    }

    /// Returns the name of the node if the user is a node, and `None` otherwise.
    ///
    /// Rule: a user is a node if it is in the group `system:nodes` and its name is `system:node:` followed by a valid
    /// Node name.
    /// Upstream: `NodeIdentity`.
    pub(crate) fn node_name(&self) -> Option<&str> {
        parse_node_name(&self.name).filter(|_| self.is_in_group(USER_GROUP_NODES))
    }

    /// Whether the user is in the group `system:nodes`, but its name is not the user name of a node. Such a user does
    /// not have the permissions of a node and may not write.
    pub(crate) fn is_unknown_node(&self) -> bool {
        self.is_in_group(USER_GROUP_NODES) && self.node_name().is_none()
    }

    pub(crate) fn trust_level(&self) -> TrustLevel {
        if self.is_in_group(USER_GROUP_MASTERS) || self.is_component() {
            TrustLevel::Trusted
        } else if self.node_name().is_some() {
            TrustLevel::Node
        } else {
            TrustLevel::Ordinary
        }
    }

    /// Whether the user is a component of Muster, by its name. Other names with the prefix `system:muster-` are names
    /// of ordinary users, because a certificate signing request may ask for any name.
    pub(crate) fn is_component(&self) -> bool {
        COMPONENT_USERS.contains(&self.name.as_str())
    }

    /// Returns the namespace of the Leases with which the user takes part in leader election, or `None` if it takes
    /// part in none. Components of Muster get `None`: they are recognized by [`Self::is_component`].
    ///
    /// Rule: kube-controller-manager and kube-scheduler elect their leaders with Leases in `kube-system`, and the
    /// service accounts of `kube-system` and `muster-system` with Leases in their own namespace.
    pub(crate) fn leader_election_namespace(&self) -> Option<&'static str> {
        let namespace = match self.name.as_str() {
            "system:kube-controller-manager" | "system:kube-scheduler" => NAMESPACE_SYSTEM,
            name => parse_service_account(name)?.0,
        };
        LEADER_ELECTION_NAMESPACES.into_iter().find(|it| *it == namespace)
    }

    /// Returns the user as the API type `UserInfo`, for reviews and the audit log.
    pub(crate) fn user_info(&self) -> Value {
        let mut info = json!({"username": self.name});
        if !self.uid.is_empty() {
            info["uid"] = json!(self.uid);
        }
        if !self.groups.is_empty() {
            info["groups"] = json!(self.groups);
        }
        if !self.extra.is_empty() {
            info["extra"] = json!(self.extra);
        }
        info
    }
}

/// Returns the node name in a user name, which is `NAME` in `system:node:NAME`. Returns `None` if the user name has
/// another form, or if `NAME` is not a DNS subdomain.
pub(crate) fn parse_node_name(user_name: &str) -> Option<&str> {
    user_name.strip_prefix(USER_NODE_PREFIX).filter(|it| names::dns_subdomain_errors(it).is_empty())
}

/// Returns the user name of a service account: `system:serviceaccount:NAMESPACE:NAME`.
pub(crate) fn service_account_user_name(namespace: &str, name: &str) -> String {
    format!("{SERVICE_ACCOUNT_USER_PREFIX}{namespace}:{name}")
}

/// Returns the groups of the service accounts in a namespace, besides `system:authenticated`.
pub(crate) fn service_account_groups(namespace: &str) -> Vec<String> {
    vec!["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")]
}

/// Returns the namespace and name of a service account from its user name, or `None` for another user name.
pub(crate) fn parse_service_account(user_name: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user_name.strip_prefix(SERVICE_ACCOUNT_USER_PREFIX)?.split_once(':')?;
    (!namespace.is_empty() && !name.is_empty() && !name.contains(':')).then_some((namespace, name))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_components_are_trusted_by_their_name() {
        let trust = |name: &str| User::new(name, ["system:authenticated"]).trust_level();
        assert!(COMPONENT_USERS.iter().all(|it| trust(it) == TrustLevel::Trusted));
        for name in ["system:muster-", "system:muster-controller2", "system:muster-x", "ann"] {
            assert_eq!(trust(name), TrustLevel::Ordinary, "{name}");
        }
    }

    #[test]
    fn a_node_has_a_name() {
        let node = |name: &str| User::new(name, [USER_GROUP_NODES]).node_name().map(str::to_owned);
        assert_eq!(node("system:node:n1").as_deref(), Some("n1"));
        assert_eq!(node("system:node:a.b-c").as_deref(), Some("a.b-c"));
        for name in [
            "system:node:",
            "system:node:N1",
            "system:node:a/b",
            "system:node:a b",
            "system:node:-a",
            "system:node",
            "n1",
            "system:node:a,spec.x=y",
        ] {
            assert_eq!(node(name), None, "{name}");
            assert!(User::new(name, [USER_GROUP_NODES]).is_unknown_node(), "{name}");
        }
        assert_eq!(User::new("system:node:n1", ["other"]).node_name(), None);
        assert!(!User::new("n1", ["other"]).is_unknown_node());
    }

    proptest! {
        /// Whatever a user is called, the node that it is has a name that a Node object can have.
        #[test]
        fn the_name_of_a_node_is_a_dns_name(prefix in "(system:node:|system:node|system:)?", rest in ".{0,20}|[a-z0-9.-]{0,20}", is_in in any::<bool>()) {
            let groups = if is_in { vec![USER_GROUP_NODES] } else { vec!["other"] };
            let user = User::new(format!("{prefix}{rest}"), groups);
            if let Some(node) = user.node_name() {
                prop_assert!(is_in);
                prop_assert!(!node.is_empty() && names::dns_subdomain_errors(node).is_empty(), "{node:?}");
                prop_assert_eq!(format!("system:node:{node}"), user.name.clone());
            }
            prop_assert_eq!(user.is_unknown_node(), is_in && user.node_name().is_none());
        }
    }
}
