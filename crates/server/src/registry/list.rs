//! Reading many objects at once.

use bytes::Bytes;
use muster_store::Revision;

use super::Registry;
use crate::kinds::Kind;
use crate::object;
use crate::selector::Selector;

impl Registry {
    pub(crate) fn list(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        selector: &Selector,
    ) -> (Vec<Bytes>, Revision) {
        let store = self.store();
        let all: Vec<Bytes> = store.list(&kind.prefix(namespace)).map(|it| it.value.clone()).collect();
        let revision = store.revision();
        drop(store);
        let chosen = |it: &Bytes| selector.is_empty() || selector.matches(&object::parse(it));
        (all.into_iter().filter(chosen).collect(), revision)
    }
}
