//! Who asks.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// Everyone who showed who they are, and everyone who did not.
pub(crate) const AUTHENTICATED: &str = "system:authenticated";
pub(crate) const UNAUTHENTICATED: &str = "system:unauthenticated";
pub(crate) const ANONYMOUS: &str = "system:anonymous";

/// May do anything, whatever the roles say: it is how one gets back in after locking oneself out.
pub(crate) const MASTERS: &str = "system:masters";

pub(crate) const NODES: &str = "system:nodes";
const NODE_PREFIX: &str = "system:node:";
const ACCOUNT_PREFIX: &str = "system:serviceaccount:";

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) groups: Vec<String>,
    pub(crate) extra: BTreeMap<String, Vec<String>>,
}

impl User {
    pub(crate) fn new(name: impl Into<String>, groups: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let groups = groups.into_iter().map(Into::into).collect();
        Self { name: name.into(), groups, ..Self::default() }
    }

    /// Someone who may ask for nothing but what is public.
    pub(crate) fn anonymous() -> Self {
        Self::new(ANONYMOUS, [UNAUTHENTICATED])
    }

    /// The server itself, for what it writes on its own behalf.
    pub(crate) fn server() -> Self {
        Self::new("system:apiserver", [MASTERS, AUTHENTICATED])
    }

    pub(crate) fn account(namespace: &str, name: &str) -> Self {
        Self::new(account_name(namespace, name), account_groups(namespace))
    }

    pub(crate) fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|it| it == group)
    }

    pub(crate) fn is_anonymous(&self) -> bool {
        self.name == ANONYMOUS
    }

    /// The node that this user is. Upstream: `NodeIdentity`.
    pub(crate) fn node(&self) -> Option<&str> {
        self.name.strip_prefix(NODE_PREFIX).filter(|_| self.is_in(NODES))
    }

    /// As reviews, signing requests and the audit log tell of a user.
    pub(crate) fn info(&self) -> Value {
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

pub(crate) fn account_name(namespace: &str, name: &str) -> String {
    format!("{ACCOUNT_PREFIX}{namespace}:{name}")
}

pub(crate) fn account_groups(namespace: &str) -> Vec<String> {
    vec!["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")]
}

/// Namespace and name of the service account that is called so.
pub(crate) fn account_of(user_name: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user_name.strip_prefix(ACCOUNT_PREFIX)?.split_once(':')?;
    (!namespace.is_empty() && !name.is_empty() && !name.contains(':')).then_some((namespace, name))
}
