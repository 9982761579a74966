//! The one way into the store.

use std::sync::atomic::Ordering;
use std::time::Instant;

use bytes::Bytes;
use muster_store::{CommitError, Expect, Make, Revision, Write};
use serde_json::Value;
use tokio::sync::oneshot;

use super::Registry;
use crate::context::Context;
use crate::refusal::Refusal;
use crate::route::Target;

/// What a commit leaves under a key.
pub(super) enum Commit<'a> {
    /// A new object, in a namespace that must not have changed since.
    New(&'a Value, Option<(String, Revision)>),
    Put(&'a Value),
    Delete {
        last: &'a Value,
    },
}

impl Registry {
    /// Gives the object as it was written, once that is durable; nothing if another write came first.
    pub(super) async fn commit(
        &self,
        context: &Context,
        target: &Target,
        expect: Expect,
        commit: Commit<'_>,
    ) -> Result<Option<Bytes>, Refusal> {
        let kind = target.kind.stored();
        let put = |object: &Value| {
            let now_s = u64::try_from(context.now.as_second()).unwrap_or(0);
            Write::Put {
                index: kind.index(object),
                expires_s: kind.lifetime_s.map(|it| now_s + it),
                make: Draft::of(object).make(),
            }
        };
        let (write, within) = match commit {
            Commit::New(object, within) => (put(object), within),
            Commit::Put(object) => (put(object), None),
            Commit::Delete { last } => (Write::Delete { make: Draft::of(last).make() }, None),
        };
        let begun = Instant::now();
        let (done, outcome) = oneshot::channel();
        let commit = muster_store::Commit { key: target.key(), expect, within, write };
        // Whoever asked may be gone when it is done, which changes nothing.
        self.db.commit(commit, move |it| drop(done.send(it)));
        let outcome = outcome.await;
        self.is_full.store(matches!(outcome, Ok(Err(CommitError::Full))), Ordering::Relaxed);
        match outcome {
            Ok(Ok(event)) => {
                self.metrics.committed(begun.elapsed());
                Ok(Some(event.value().clone()))
            }
            Ok(Err(CommitError::Conflict(_))) => Ok(None),
            Ok(Err(CommitError::Crowded)) => Err(Refusal::too_many_requests(1)),
            Ok(Err(error)) => Err(Refusal::internal(&error.to_string())),
            Err(_) => Err(Refusal::internal("the store has ended")),
        }
    }
}

/// An object in JSON but for its resourceVersion, which is known only when everything else is done: the thread that
/// writes has no more to do than to put it in.
struct Draft {
    before: Vec<u8>,
    after: Vec<u8>,
}

impl Draft {
    /// Version and kind come first, so that a list can leave them out of its items without a look at the rest.
    fn of(object: &Value) -> Self {
        let is_first = |name: &str| matches!(name, "apiVersion" | "kind");
        let fields = || object.as_object().into_iter().flatten().filter(|it| it.0 != "metadata");
        let mut before = Vec::with_capacity(2048);
        before.push(b'{');
        for field in fields().filter(|it| is_first(it.0)).chain(fields().filter(|it| !is_first(it.0))) {
            write_field(&mut before, field);
            before.push(b',');
        }
        before.extend_from_slice(br#""metadata":{"resourceVersion":""#);
        let mut after = Vec::with_capacity(1024);
        after.push(b'"');
        let meta = object["metadata"].as_object();
        for field in meta.into_iter().flatten().filter(|it| it.0 != "resourceVersion") {
            after.push(b',');
            write_field(&mut after, field);
        }
        after.extend_from_slice(b"}}");
        Self { before, after }
    }

    fn make(self) -> Make {
        Make::new(move |revision: Revision| {
            // As long as it is, to the byte: it stays in memory.
            [&*self.before, revision.to_string().as_bytes(), &*self.after].concat().into()
        })
    }
}

fn write_field(text: &mut Vec<u8>, (name, value): (&String, &Value)) {
    serde_json::to_writer(&mut *text, name).expect("a name is written into memory");
    text.push(b':');
    serde_json::to_writer(text, value).expect("JSON is written into memory");
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_draft_is_the_object_with_its_version() {
        let check = |object: Value| {
            let draft = Draft::of(&object);
            let made: Value =
                serde_json::from_slice(&[&*draft.before, b"17", &*draft.after].concat()).unwrap();
            let mut expected = object;
            expected["metadata"]["resourceVersion"] = json!("17");
            assert_eq!(made, expected);
        };
        check(
            json!({"kind": "A", "metadata": {"name": "a", "resourceVersion": "3"}, "z\"": {"metadata": null}}),
        );
        check(json!({"metadata": {}}));
        check(json!({}));
    }
}
