//! The size of a store in bytes, in total and per namespace, and its limits.

use std::collections::HashMap;
use std::fmt;

use crate::StoredObject;

/// The size of all objects, and of the objects of each namespace. The size of an object is the length of its key and
/// value. The sizes are exact and updated with every commit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoreUsage {
    /// Total size of all objects, including cluster-scoped ones.
    bytes: usize,
    /// Size of the objects of each namespace that has objects.
    namespaces: HashMap<Box<str>, usize>,
}

impl StoreUsage {
    /// Returns the size of all objects in bytes, including cluster-scoped ones.
    pub fn total_bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the size of the objects of a namespace in bytes, or 0 if it has no objects.
    pub fn namespace_bytes(&self, namespace: &str) -> usize {
        self.namespaces.get(namespace).copied().unwrap_or(0)
    }

    /// Returns the `count` largest namespaces with their sizes in bytes, largest first.
    pub fn largest_namespaces(&self, count: usize) -> Vec<(&str, usize)> {
        let mut all: Vec<_> = self.namespaces.iter().map(|(name, bytes)| (&**name, *bytes)).collect();
        all.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
        all.truncate(count);
        all
    }

    /// Adds the size of a stored object.
    pub(crate) fn add_object(&mut self, record: &StoredObject) {
        let bytes = object_bytes(record);
        self.bytes += bytes;
        let Some(namespace) = namespace_of(&record.key) else { return };
        match self.namespaces.get_mut(namespace) {
            Some(held) => *held += bytes,
            None => drop(self.namespaces.insert(namespace.into(), bytes)),
        }
    }

    /// Subtracts the size of an object that was deleted or replaced.
    pub(crate) fn remove_object(&mut self, record: &StoredObject) {
        let bytes = object_bytes(record);
        self.bytes -= bytes;
        let Some(namespace) = namespace_of(&record.key) else { return };
        let held = self.namespaces.get_mut(namespace).expect("a removed record was added before");
        *held -= bytes;
        if *held == 0 {
            self.namespaces.remove(namespace);
        }
    }
}

/// Returns the size of an object: the length of its key and value in bytes.
pub(crate) fn object_bytes(record: &StoredObject) -> usize {
    record.key.len() + record.value.len()
}

/// Returns the namespace in a store key `kind/namespace/name`, or `None` for a cluster-scoped object.
pub fn namespace_of(key: &str) -> Option<&str> {
    let (namespace, _) = key.split_once('/')?.1.split_once('/')?;
    (!namespace.is_empty()).then_some(namespace)
}

/// Limits on the size of a store. Only growth is limited: if the store already exceeds a limit, its objects stay and
/// can be read, replaced by smaller ones and deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreLimits {
    /// Maximum total size of all objects in bytes.
    pub bytes_max: usize,
    /// Part of `bytes_max` that [`WriteClass::Ordinary`] may not use.
    pub reserved_bytes: usize,
    /// Maximum size of the objects of one namespace in bytes. It applies only to [`WriteClass::Ordinary`].
    pub namespace_bytes_max: usize,
}

impl StoreLimits {
    /// Limits that allow every write.
    pub const UNLIMITED: Self =
        Self { bytes_max: usize::MAX, reserved_bytes: 0, namespace_bytes_max: usize::MAX };

    /// Returns the limits for a store of at most `bytes_max` bytes. Writes of [`WriteClass::Ordinary`] may not use the
    /// last tenth, and may not grow a namespace beyond half of `bytes_max`.
    pub fn with_total(bytes_max: usize) -> Self {
        Self { bytes_max, reserved_bytes: bytes_max / 10, namespace_bytes_max: bytes_max / 2 }
    }

    /// Checks that a write does not exceed a limit. `growth` is the number of bytes by which the write grows the store,
    /// negative if the store shrinks. `bytes` is the size of the store before the write. `namespace` is the namespace
    /// of the object and its size before the write, or `None` for a cluster-scoped object.
    ///
    /// Rule: a write that would grow the store beyond a limit is rejected. A write that does not grow the store is
    /// never rejected, and neither is a write of [`WriteClass::Deletion`].
    pub fn check_growth(
        self,
        class: WriteClass,
        growth: isize,
        bytes: usize,
        namespace: Option<(&str, usize)>,
    ) -> Result<(), SizeLimitExceeded> {
        let growth = usize::try_from(growth).unwrap_or(0);
        if growth == 0 || class == WriteClass::Deletion {
            return Ok(());
        }
        let bytes_max = match class {
            WriteClass::System | WriteClass::Deletion => self.bytes_max,
            WriteClass::Ordinary => self.bytes_max - self.reserved_bytes,
        };
        if bytes_max < bytes.saturating_add(growth) {
            return Err(SizeLimitExceeded { namespace: None, bytes, bytes_max });
        }
        match namespace {
            Some((namespace, bytes))
                if class == WriteClass::Ordinary
                    && self.namespace_bytes_max < bytes.saturating_add(growth) =>
            {
                let namespace = Some(namespace.to_owned());
                Err(SizeLimitExceeded { namespace, bytes, bytes_max: self.namespace_bytes_max })
            }
            _ => Ok(()),
        }
    }
}

/// The class of a write, which determines the limits that apply to it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum WriteClass {
    /// A write that is in none of the other classes. All limits apply.
    #[default]
    Ordinary,
    /// A write that keeps the cluster running, such as the renewal of a node's Lease. It may use the reserved bytes and
    /// exceed the limit of the namespace.
    System,
    /// A write that deletes an object or sets its deletion timestamp. No limit applies.
    Deletion,
}

/// Error for a write that would exceed the size limit of the store or of a namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SizeLimitExceeded {
    /// The namespace whose limit would be exceeded, or `None` for the limit of the whole store.
    pub namespace: Option<String>,
    /// Bytes in use before the write, in the namespace or in the store.
    pub bytes: usize,
    /// The exceeded limit in bytes.
    pub bytes_max: usize,
}

impl fmt::Display for SizeLimitExceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { namespace, bytes, bytes_max } = self;
        match namespace {
            None => write!(f, "exceeded store limit: {bytes} of {bytes_max} bytes are used")?,
            Some(name) => {
                write!(f, "exceeded store limit of namespace {name}: {bytes} of {bytes_max} bytes are used")?;
            }
        }
        f.write_str(": delete objects first")
    }
}

impl std::error::Error for SizeLimitExceeded {}
