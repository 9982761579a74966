//! What a pod may take of the node's disk by its own word.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use muster_api::quantity::Quantity;
use muster_api::text::Text;

/// The limits that a pod has set itself on the disk, with what it takes of each. One without any has no such value.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Storage {
    /// Its empty directories on disk.
    pub volumes: Vec<Limited>,
    /// What all its containers may take together, with everything that is kept for the pod.
    pub whole: Option<Limited>,
    /// Their writable layers and logs.
    pub containers: Vec<Limited>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limited {
    pub name: Text,
    pub limit: Quantity,
    pub used: i64,
}

impl Limited {
    fn is_over(&self) -> bool {
        self.limit < Quantity::from_bytes(self.used)
    }
}

/// Which of its limits a pod is over. Upstream: the signals that are not measured of the node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Limit {
    Volume,
    Whole,
    Container,
}

impl Limit {
    pub fn name(self) -> &'static str {
        match self {
            Self::Volume => "emptydirfs.limit",
            Self::Whole => "ephemeralpodfs.limit",
            Self::Container => "ephemeralcontainerfs.limit",
        }
    }
}

/// Rule: a pod goes that takes more of the disk than it said itself: in an empty directory, with all it has, or in one of
/// its containers. It goes whoever made it, for no other pod would make it smaller.
/// Upstream: `localStorageEviction`.
pub fn over_its_limit(storage: &Storage) -> Option<(Limit, String)> {
    if let Some(Limited { name, limit, .. }) = storage.volumes.iter().find(|it| it.is_over()) {
        let message = format!("Usage of EmptyDir volume {name:?} exceeds the limit \"{limit}\". ");
        return Some((Limit::Volume, message));
    }
    if let Some(Limited { limit, .. }) = storage.whole.as_ref().filter(|it| it.is_over()) {
        let message =
            format!("Pod ephemeral local storage usage exceeds the total limit of containers {limit}. ");
        return Some((Limit::Whole, message));
    }
    let Limited { name, limit, .. } = storage.containers.iter().find(|it| it.is_over())?;
    let message = format!("Container {name} exceeded its local ephemeral storage limit \"{limit}\". ");
    Some((Limit::Container, message))
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn a_pod_is_held_to_its_own_word() {
        let limited = |name: &str, limit: &str, used: i64| Limited {
            name: name.into(),
            limit: Quantity::parse(limit).unwrap(),
            used,
        };
        let whole = |used| Some(limited("", "3M", used));
        let volume = |used| Vec::from([limited("tmp", "10Gi", 5), limited("data", "1Mi", used)]);
        let container = |used| Vec::from([limited("main", "1500Ki", used)]);
        let mib = 1 << 20;
        let all = [
            ("none", Storage::default()),
            (
                "at all",
                Storage { volumes: volume(mib), whole: whole(3_000_000), containers: container(1_536_000) },
            ),
            (
                "over a volume",
                Storage { volumes: volume(mib + 1), whole: whole(9 * mib), containers: container(0) },
            ),
            (
                "over the sum",
                Storage { volumes: volume(0), whole: whole(3_000_001), containers: container(2 * mib) },
            ),
            (
                "over a container",
                Storage { volumes: volume(0), whole: whole(0), containers: container(1_536_001) },
            ),
        ];
        let mut said = String::new();
        for (what, storage) in all {
            let verdict = match over_its_limit(&storage) {
                Some((limit, message)) => format!("{}: {message}", limit.name()),
                None => "stays".into(),
            };
            said += &format!("{what}: {verdict}\n");
        }
        expect![[r#"
            none: stays
            at all: stays
            over a volume: emptydirfs.limit: Usage of EmptyDir volume "data" exceeds the limit "1Mi". 
            over the sum: ephemeralpodfs.limit: Pod ephemeral local storage usage exceeds the total limit of containers 3M. 
            over a container: ephemeralcontainerfs.limit: Container main exceeded its local ephemeral storage limit "1500Ki". 
        "#]].assert_eq(&said);
    }
}
