//! Revisions, history and watches: synchronous, no HTTP.
//!
//! One store is one line of commits. Every commit writes or deletes one key and takes the next
//! [`Revision`], so revisions have no gaps. The state is what the commits left; the history is the last
//! of the commits themselves, so that a watcher can go on from any revision in it.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;

/// The number of a commit. The store before its first commit is at [`Store::FIRST`].
pub type Revision = u64;

/// Keys are paths, such as `daemonsets.apps/kube-system/fluentd` and `nodes//n1`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    pub key: Arc<str>,
    pub value: Bytes,
    pub created: Revision,
    pub modified: Revision,
}

/// What the writer believes of the key: the commit happens only if it is so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    Absent,
    At(Revision),
    Any,
}

/// The writer's belief was wrong, and nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Conflict {
    Exists { at: Revision },
    Missing,
    Moved { at: Revision },
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exists { at } => {
                write!(f, "the key exists since revision {at}: read it, and write with that revision")
            }
            Self::Missing => write!(f, "the key does not exist: create it, or forget it"),
            Self::Moved { at } => write!(f, "the key has moved on to revision {at}: read it again and retry"),
        }
    }
}

impl std::error::Error for Conflict {}

/// One commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub revision: Revision,
    pub key: Arc<str>,
    pub change: Change,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    Put {
        now: Arc<Record>,
        before: Option<Arc<Record>>,
    },
    /// `last` is the value as it went, carrying the revision of the deletion.
    Delete {
        before: Arc<Record>,
        last: Bytes,
    },
}

/// The history no longer reaches back that far: list, and watch from the list's revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compacted {
    pub floor: Revision,
}

impl fmt::Display for Compacted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the history begins after revision {}: list, and watch from the list's revision",
            self.floor
        )
    }
}

impl std::error::Error for Compacted {}

#[derive(Debug)]
pub struct Store {
    state: BTreeMap<Arc<str>, Arc<Record>>,
    /// The commits `floor + 1 ..= revision`, all of them, in order.
    history: VecDeque<Event>,
    history_max: usize,
    floor: Revision,
    revision: Revision,
}

impl Store {
    /// An empty store is at 1 and not at 0, because to Kubernetes clients a watch from "0" means
    /// "from anywhere", and they take the number from the list of an empty store.
    pub const FIRST: Revision = 1;

    /// Keeps the last `history_max` commits for watchers.
    pub fn new(history_max: usize) -> Self {
        Self {
            state: BTreeMap::new(),
            history: VecDeque::new(),
            history_max,
            floor: Self::FIRST,
            revision: Self::FIRST,
        }
    }

    pub fn revision(&self) -> Revision {
        self.revision
    }

    pub fn get(&self, key: &str) -> Option<&Arc<Record>> {
        self.state.get(key)
    }

    /// Every record whose key begins with `prefix`, ordered by key.
    pub fn list(&self, prefix: &str) -> impl Iterator<Item = &Arc<Record>> {
        self.state
            .range::<str, _>((Bound::Included(prefix), Bound::Unbounded))
            .map(|(_, record)| record)
            .take_while(move |record| record.key.starts_with(prefix))
    }

    /// `make` is given the revision of this commit, so that the value can carry it.
    pub fn put(
        &mut self,
        key: &str,
        expect: Expect,
        make: impl FnOnce(Revision) -> Bytes,
    ) -> Result<Arc<Record>, Conflict> {
        let before = self.check(key, expect)?;
        let revision = self.revision + 1;
        let key = before.as_ref().map_or_else(|| Arc::from(key), |it| it.key.clone());
        let created = before.as_ref().map_or(revision, |it| it.created);
        let now = Arc::new(Record { key: key.clone(), value: make(revision), created, modified: revision });

        self.state.insert(key.clone(), now.clone());
        self.commit(Event { revision, key, change: Change::Put { now: now.clone(), before } });
        Ok(now)
    }

    /// `make` gives the last value, which carries the revision of this deletion: watchers get it.
    pub fn delete(
        &mut self,
        key: &str,
        expect: Expect,
        make: impl FnOnce(Revision) -> Bytes,
    ) -> Result<Event, Conflict> {
        let before = self.check(key, expect)?.ok_or(Conflict::Missing)?;
        let revision = self.revision + 1;
        let last = make(revision);

        self.state.remove(key);
        let event = Event { revision, key: before.key.clone(), change: Change::Delete { before, last } };
        self.commit(event.clone());
        Ok(event)
    }

    /// The commits after `after` to keys that begin with `prefix`, in order, none left out.
    pub fn since(&self, prefix: &str, after: Revision) -> Result<impl Iterator<Item = &Event>, Compacted> {
        // There are no gaps, so the place of a commit in the history follows from its revision.
        let Some(skip) = after.checked_sub(self.floor) else { return Err(Compacted { floor: self.floor }) };
        let skip = usize::try_from(skip).unwrap_or(usize::MAX).min(self.history.len());
        Ok(self.history.range(skip..).filter(move |event| event.key.starts_with(prefix)))
    }

    /// Forgets the commits up to `floor`. The state stays.
    pub fn compact(&mut self, floor: Revision) {
        let floor = floor.min(self.revision);
        while self.floor < floor {
            self.forget_oldest();
        }
    }

    fn check(&self, key: &str, expect: Expect) -> Result<Option<Arc<Record>>, Conflict> {
        match (expect, self.state.get(key)) {
            (Expect::Any | Expect::Absent, None) => Ok(None),
            (Expect::At(_), None) => Err(Conflict::Missing),
            (Expect::Absent, Some(it)) => Err(Conflict::Exists { at: it.modified }),
            (Expect::At(at), Some(it)) if at != it.modified => Err(Conflict::Moved { at: it.modified }),
            (Expect::Any | Expect::At(_), Some(it)) => Ok(Some(it.clone())),
        }
    }

    fn commit(&mut self, event: Event) {
        assert_eq!(event.revision, self.revision + 1, "one commit, one revision");
        self.revision = event.revision;
        self.history.push_back(event);
        while self.history_max < self.history.len() {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        let oldest = self.history.pop_front().expect("the floor is below the revision");
        assert_eq!(oldest.revision, self.floor + 1, "the history has no gaps");
        self.floor = oldest.revision;
    }
}

#[cfg(test)]
mod tests;
