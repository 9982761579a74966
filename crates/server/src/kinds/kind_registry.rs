//! The registry of the kinds that a server serves. Requests, discovery, OpenAPI, default roles and the conversion of
//! managed fields find their kinds here, so that a kind can be added and removed while the server runs.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, RwLock};

use ring::digest::{SHA256, SHA256_OUTPUT_LEN, digest};

use super::Kind;
use super::builtin::builtin_kinds;

/// Maximum total size in bytes of the definitions that one registry accepts. The [`Kind`] that is built from a
/// definition stays in memory until the server stops, and needs about as many bytes as the definition. A
/// CustomResourceDefinition has about 50 kB, so 64 MiB are enough for 500 of them and for 800 changes to them.
const DEFINITIONS_BYTES_MAX: usize = 64 << 20;

/// The built-in kinds, with which every registry begins.
static BUILTIN_KINDS: LazyLock<Arc<ServedKinds>> =
    LazyLock::new(|| Arc::new(builtin_kinds().fold(ServedKinds::default(), ServedKinds::with_kind)));

/// Returns the built-in kind with this group, version and plural name, or `None` if it does not exist.
pub(super) fn find_builtin(group: &str, version: &str, plural: &str) -> Option<&'static Kind> {
    BUILTIN_KINDS.find(group, version, plural)
}

/// The registry of the kinds that a server serves: the built-in kinds, and kinds that were added at run time.
#[derive(Debug)]
pub(crate) struct KindRegistry {
    /// The kinds that are served now. Each change replaces the whole [`ServedKinds`], so that a reader never waits for
    /// a change.
    served: RwLock<Arc<ServedKinds>>,
    /// The definitions that were registered. This lock is held during each change of `served`, so that no change is
    /// lost.
    definitions: Mutex<Definitions>,
}

/// The kinds that a server serves at one moment.
#[derive(Debug, Clone, Default)]
pub(crate) struct ServedKinds {
    /// All served kinds, in the order in which discovery lists them. If several groups serve the same resource, clients
    /// prefer the first group. If a group has several versions, clients prefer the first version.
    all: Vec<&'static Kind>,
    /// The kinds by group, version and plural name.
    by_path: HashMap<(&'static str, &'static str, &'static str), &'static Kind>,
    /// The kinds in whose version objects are stored, by the first segment of the store keys of these objects, such as
    /// `daemonsets.apps`.
    by_stored_resource: HashMap<String, &'static Kind>,
}

/// The definitions of kinds that were registered since the server started, such as the JSON of a
/// CustomResourceDefinition, each with the [`Kind`] that was built from it.
#[derive(Debug, Default)]
struct Definitions {
    /// The kind of each definition, by the SHA-256 of the definition.
    kinds: HashMap<[u8; SHA256_OUTPUT_LEN], &'static Kind>,
    /// Total size in bytes of the definitions in `kinds`.
    bytes: usize,
}

/// Why a kind cannot be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RegisterError {
    #[error("a built-in kind has the same group, version and plural name")]
    BuiltIn,
    #[error(
        "the objects of this resource are stored in another version: the kind must have a conversion to it"
    )]
    StoredInOtherVersion,
    #[error(
        "too many kinds were defined or changed since the server started, limit is {DEFINITIONS_BYTES_MAX} bytes: restart it"
    )]
    TooManyDefinitions,
}

impl KindRegistry {
    /// Returns a registry with the built-in kinds.
    pub(crate) fn builtin() -> Self {
        Self { served: RwLock::new(BUILTIN_KINDS.clone()), definitions: Mutex::default() }
    }

    /// Returns the kinds that are served now.
    pub(crate) fn served(&self) -> Arc<ServedKinds> {
        self.served.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the kind with this group, version and plural name, or `None` if it is not served.
    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<&'static Kind> {
        self.served.read().unwrap_or_else(PoisonError::into_inner).find(group, version, plural)
    }

    /// Adds a kind, and returns it. Replaces a kind with the same group, version and plural name that was added
    /// earlier. Requests and watches that have begun keep the replaced [`Kind`]. Fails if a built-in kind has the same
    /// group, version and plural name, if the objects are stored in another version and the kind has no conversion to
    /// it, or if the total size of all definitions would exceed [`DEFINITIONS_BYTES_MAX`]. Definitions of replaced and
    /// removed kinds count, too.
    ///
    /// `definition` is the text that defines the kind, such as the JSON of a CustomResourceDefinition, and `build`
    /// builds the [`Kind`] from it. The [`Kind`] and all that it refers to stay in memory until the server stops,
    /// because requests and watches hold `&'static Kind`. If the same definition is registered again, the existing
    /// [`Kind`] is used again.
    ///
    /// The caller then adds the permissions of the kind to the default roles with `ensure_default_roles`.
    #[cfg_attr(not(test), expect(dead_code, reason = "kinds are added only by tests until CRDs are served"))]
    pub(crate) fn register(
        &self,
        definition: &[u8],
        build: impl FnOnce() -> Kind,
    ) -> Result<&'static Kind, RegisterError> {
        let mut definitions = self.lock_definitions();
        let kind = definitions.row(definition, build)?;
        let served = self.served();
        served.check_addition(kind)?;
        self.replace_served(ServedKinds::clone(&served).with_kind(kind));
        Ok(kind)
    }

    /// Removes a kind that was added with [`KindRegistry::register`], and returns it. Returns `None` if there is no
    /// such kind. Requests and watches that have begun keep the [`Kind`]. `ObjectStorage::remove_kind` calls this
    /// function, and also ends the watches.
    pub(crate) fn remove(&self, group: &str, version: &str, plural: &str) -> Option<&'static Kind> {
        let _changing = self.lock_definitions();
        if find_builtin(group, version, plural).is_some() {
            return None;
        }
        let served = self.served();
        let removed = served.find(group, version, plural)?;
        self.replace_served(ServedKinds::clone(&served).without_kind(removed));
        Some(removed)
    }

    fn replace_served(&self, served: ServedKinds) {
        *self.served.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(served);
    }

    fn lock_definitions(&self) -> MutexGuard<'_, Definitions> {
        self.definitions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Definitions {
    /// Returns the kind of a definition. Builds the kind if the definition is new.
    fn row(
        &mut self,
        definition: &[u8],
        build: impl FnOnce() -> Kind,
    ) -> Result<&'static Kind, RegisterError> {
        let hash = digest(&SHA256, definition).as_ref().try_into().expect("SHA-256 has a fixed length");
        if let Some(kind) = self.kinds.get(&hash) {
            return Ok(kind);
        }
        let bytes = self.bytes + definition.len();
        if DEFINITIONS_BYTES_MAX < bytes {
            return Err(RegisterError::TooManyDefinitions);
        }
        let kind: &'static Kind = Box::leak(Box::new(build()));
        self.bytes = bytes;
        self.kinds.insert(hash, kind);
        Ok(kind)
    }
}

impl ServedKinds {
    /// Returns the kind with this group, version and plural name, or `None` if it is not served.
    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<&'static Kind> {
        self.by_path.get(&(group, version, plural)).copied()
    }

    /// Returns the kind in whose version the objects of a resource are stored, or `None` if that version is not served.
    /// `resource` is the first segment of the store keys of the objects, such as `daemonsets.apps`.
    pub(crate) fn find_stored(&self, resource: &str) -> Option<&'static Kind> {
        self.by_stored_resource.get(resource).copied()
    }

    /// Returns the kind that serves the same stored objects as `kind` in the version `api_version`, or `None` if there
    /// is no such kind.
    pub(crate) fn find_in_version(&self, kind: &Kind, api_version: &str) -> Option<&'static Kind> {
        let stored = kind.storage_kind().resource();
        self.all().find(|it| it.storage_kind().resource() == stored && it.api_version() == api_version)
    }

    /// Returns all served kinds, in the order in which discovery lists them.
    pub(crate) fn all(&self) -> impl Iterator<Item = &'static Kind> {
        self.all.iter().copied()
    }

    /// Returns the kinds that clients can write, in the order in which discovery lists them.
    pub(crate) fn writable(&self) -> impl Iterator<Item = &'static Kind> {
        self.all().filter(|it| it.is_writable())
    }

    /// Returns the served groups and versions, in the order in which discovery lists them.
    pub(crate) fn group_versions(&self) -> Vec<(&'static str, &'static str)> {
        let mut found = Vec::new();
        for kind in self.all() {
            if !found.contains(&(kind.group, kind.version)) {
                found.push((kind.group, kind.version));
            }
        }
        found
    }

    /// Whether a kind of the group is served.
    pub(crate) fn has_group(&self, group: &str) -> bool {
        self.all.iter().any(|it| it.group == group)
    }

    /// Checks that a kind can be added. A built-in kind cannot be replaced.
    ///
    /// Rule: all objects of a resource are stored in one version, the storage version. A kind in another version must
    /// have a conversion to the storage version.
    fn check_addition(&self, kind: &Kind) -> Result<(), RegisterError> {
        if find_builtin(kind.group, kind.version, kind.plural).is_some() {
            return Err(RegisterError::BuiltIn);
        }
        let stored = self.find_stored(&kind.group_resource());
        if kind.is_stored() && stored.is_some_and(|it| it.version != kind.version) {
            return Err(RegisterError::StoredInOtherVersion);
        }
        Ok(())
    }

    /// Adds a kind at the end of the order, or replaces the kind with the same group, version and plural name.
    fn with_kind(mut self, kind: &'static Kind) -> Self {
        match self.find(kind.group, kind.version, kind.plural) {
            Some(replaced) => {
                if replaced.is_stored() {
                    self.by_stored_resource.remove(&replaced.group_resource());
                }
                for it in self.all.iter_mut().filter(|it| std::ptr::eq(**it, replaced)) {
                    *it = kind;
                }
            }
            None => self.all.push(kind),
        }
        self.by_path.insert((kind.group, kind.version, kind.plural), kind);
        if kind.is_stored() {
            self.by_stored_resource.insert(kind.group_resource(), kind);
        }
        self
    }

    /// Removes a kind.
    fn without_kind(mut self, kind: &'static Kind) -> Self {
        self.all.retain(|it| !std::ptr::eq(*it, kind));
        self.by_path.remove(&(kind.group, kind.version, kind.plural));
        if kind.is_stored() {
            self.by_stored_resource.remove(&kind.group_resource());
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::super::DEFAULT_KIND;
    use super::*;

    const WIDGETS: Kind =
        Kind { group: "example.com", kind: "Widget", plural: "widgets", short_names: &["w"], ..DEFAULT_KIND };

    #[test]
    fn every_kind_is_found_by_its_own_path_alone() {
        let kinds = KindRegistry::builtin();
        assert_eq!(kinds.served().all().count(), builtin_kinds().count());
        for kind in builtin_kinds() {
            let found = kinds.find(kind.group, kind.version, kind.plural).expect("it is served");
            assert!(std::ptr::eq(found, kind), "{}: another kind has the same path", kind.group_resource());
            let stored = kinds.served().find_stored(&kind.group_resource());
            assert_eq!(stored.is_some_and(|it| std::ptr::eq(it, kind)), kind.is_stored(), "{}", kind.kind);
            let version = kinds.served().find_in_version(kind.storage_kind(), &kind.api_version());
            assert!(version.is_some_and(|it| std::ptr::eq(it, kind)), "{}", kind.group_resource());
        }
        assert!(kinds.find("", "v2", "pods").is_none());
    }

    #[test]
    fn a_kind_is_added_replaced_and_removed() {
        let kinds = KindRegistry::builtin();
        let before = kinds.served();
        let first = kinds.register(b"1", || WIDGETS).unwrap();
        assert!(std::ptr::eq(kinds.find("example.com", "v1", "widgets").unwrap(), first));
        assert!(std::ptr::eq(kinds.served().find_stored("widgets.example.com").unwrap(), first));
        assert!(before.find("example.com", "v1", "widgets").is_none(), "earlier readers keep what they have");
        assert!(kinds.served().has_group("example.com") && !before.has_group("example.com"));
        assert!(KindRegistry::builtin().find("example.com", "v1", "widgets").is_none(), "another server");

        // Another definition replaces the row in its place, and the first definition has the first row again.
        let gadgets = Kind { kind: "Gadget", plural: "gadgets", ..WIDGETS };
        kinds.register(b"gadgets", || gadgets).unwrap();
        let second = kinds.register(b"2", || Kind { short_names: &[], ..WIDGETS }).unwrap();
        assert!(!std::ptr::eq(first, second));
        assert!(std::ptr::eq(kinds.find("example.com", "v1", "widgets").unwrap(), second));
        let again = kinds.register(b"1", || panic!("the definition has a row")).unwrap();
        assert!(std::ptr::eq(again, first));
        let added: Vec<_> = kinds.served().all().skip(before.all().count()).map(|it| it.plural).collect();
        assert_eq!(added, ["widgets", "gadgets"]);

        assert!(std::ptr::eq(kinds.remove("example.com", "v1", "widgets").unwrap(), first));
        assert!(kinds.remove("example.com", "v1", "widgets").is_none());
        assert!(kinds.find("example.com", "v1", "widgets").is_none());
        assert!(kinds.served().find_stored("widgets.example.com").is_none());
        assert!(kinds.find("example.com", "v1", "gadgets").is_some());
    }

    #[test]
    fn a_built_in_kind_is_neither_replaced_nor_removed() {
        let kinds = KindRegistry::builtin();
        let pods = Kind { kind: "Pod", plural: "pods", ..DEFAULT_KIND };
        assert_eq!(kinds.register(b"1", || pods).unwrap_err(), RegisterError::BuiltIn);
        assert!(kinds.remove("", "v1", "pods").is_none());
        assert!(std::ptr::eq(kinds.find("", "v1", "pods").unwrap(), Kind::builtin("", "v1", "pods")));
    }

    #[test]
    fn the_objects_of_a_resource_are_stored_in_one_version() {
        let kinds = KindRegistry::builtin();
        kinds.register(b"1", || WIDGETS).unwrap();
        let other = kinds.register(b"2", || Kind { version: "v2", ..WIDGETS });
        assert_eq!(other.unwrap_err(), RegisterError::StoredInOtherVersion);
        let pods = Kind { version: "v2", kind: "Pod", plural: "pods", ..DEFAULT_KIND };
        assert_eq!(kinds.register(b"3", || pods).unwrap_err(), RegisterError::StoredInOtherVersion);
    }

    #[test]
    fn the_definitions_of_a_server_are_limited() {
        let kinds = KindRegistry::builtin();
        let large = vec![b'x'; DEFINITIONS_BYTES_MAX];
        kinds.register(&large, || WIDGETS).unwrap();
        assert_eq!(kinds.register(b"1", || WIDGETS).unwrap_err(), RegisterError::TooManyDefinitions);
        kinds.register(&large, || WIDGETS).unwrap();
    }
}
