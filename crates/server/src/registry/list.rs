//! Reading many objects at once.

use bytes::Bytes;
use muster_store::Revision;

use super::Registry;
use crate::kinds::Kind;
use crate::selector::Selector;

impl Registry {
    pub(crate) fn list(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        selector: &Selector,
    ) -> (Vec<Bytes>, Revision) {
        let store = self.store();
        let prefix = kind.prefix(namespace);
        let all = store.list(&prefix);
        (all.filter(|it| selector.matches(it)).map(|it| it.value.clone()).collect(), store.revision())
    }
}
