//! New objects. Upstream: the create handler, `BeforeCreate` and the registry's `Create`.

use bytes::Bytes;
use muster_store::{Expect, Revision};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{Commit, Registry, check, dedup_owners};
use crate::admission::{self, Attempt, Operation};
use crate::auth;
use crate::context::Context;
use crate::fields;
use crate::kinds::Kind;
use crate::object::{self, is_set, map_mut, str_at};
use crate::refusal::Refusal;
use crate::route::{Part, Target};

/// How many names are made up before the prefix counts as used up.
const NAMES_MAX: u32 = 8;

impl Registry {
    pub(crate) async fn create(
        &self,
        context: &Context,
        kind: &'static Kind,
        namespace: Option<&str>,
        mut object: Value,
    ) -> Result<Bytes, Refusal> {
        begin(kind, namespace, &mut object)?;
        dedup_owners(context, &mut object);
        (kind.default)(&mut object);
        let mut target = Target {
            kind,
            namespace: namespace.map(str::to_owned),
            name: str_at(&object, "metadata.name").to_owned(),
            part: Part::Whole,
        };
        fields::updated(context, &target, &mut object, None);
        self.create_new(context, &mut target, object).await
    }

    /// The rest of the way of an object that is to be created, once its managed fields are known.
    pub(super) async fn create_new(
        &self,
        context: &Context,
        target: &mut Target,
        mut object: Value,
    ) -> Result<Bytes, Refusal> {
        let kind = target.kind;
        let attempt = Attempt { target, operation: Operation::Create };
        // What is made as its namespace goes would be left behind for ever: the commit holds only if it still stands.
        let mut within = self.namespace_of(target);
        admission::mutate(self, context, attempt, &mut object).await?;
        dedup_owners(context, &mut object);
        let prefix = str_at(&object, "metadata.generateName").to_owned();
        let is_named = is_set(&object["metadata"]["name"]);
        kind.prepare_for_create(&mut object, context.now);
        for _ in 0..NAMES_MAX {
            if !is_named && !prefix.is_empty() {
                object["metadata"]["name"] = json!(format!("{prefix}{}", suffix()));
            }
            if kind.holds_others {
                // Others choose it by a label with its name.
                (kind.default)(&mut object);
            }
            target.name = str_at(&object, "metadata.name").to_owned();
            let attempt = Attempt { target, operation: Operation::Create };
            check(context, target, &object, None)?;
            // What is refused charges no quota.
            if is_named && self.store().get(&target.key()).is_some() {
                auth::check_write(self, &context.user, attempt, &object)?;
                return Err(self.exists(target));
            }
            let charge = admission::validate(self, context, attempt, &object).await?;
            if context.dry_run && self.store().get(&target.key()).is_none() {
                return Ok(object::bytes(&object));
            }
            if !context.dry_run
                && let Some(created) =
                    self.commit(context, target, Expect::Absent, Commit::New(&object, within.clone())).await?
            {
                admission::spent(charge);
                return Ok(created);
            }
            let now = self.namespace_of(target);
            if now != within {
                within = now;
                admission::check_namespace(self, attempt, &object)?;
                continue;
            }
            // Another name is tried only where we made it up.
            if is_named {
                return Err(self.exists(target));
            }
        }
        Err(Refusal::no_name_left(kind, &target.name))
    }

    /// The key of the namespace that it is in, and since when that is as it is.
    fn namespace_of(&self, target: &Target) -> Option<(String, Revision)> {
        let key = Kind::namespace().key(None, target.namespace.as_deref()?);
        let since = self.store().get(&key)?.modified;
        Some((key, since))
    }

    fn exists(&self, target: &Target) -> Refusal {
        let stands = self
            .standing(target)
            .is_ok_and(|it| is_set(&object::parse(&it.value)["metadata"]["deletionTimestamp"]));
        let refusal = Refusal::exists(target.kind, &target.name);
        if stands { refusal.prefixed("object is being deleted: ") } else { refusal }
    }
}

/// Takes away what no client may say of a new object, and holds it to the namespace of the request.
pub(super) fn begin(kind: &Kind, namespace: Option<&str>, object: &mut Value) -> Result<(), Refusal> {
    object["apiVersion"] = json!(kind.stored().api_version());
    object["kind"] = json!(kind.kind);
    let meta = map_mut(object, "metadata");
    if meta.get("resourceVersion").is_some_and(is_set) {
        return Err(Refusal::bad_request("resourceVersion should not be set on objects to be created"));
    }
    for name in ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
        meta.remove(name);
    }
    match (namespace, meta.get("namespace").and_then(Value::as_str)) {
        (Some(namespace), None | Some("")) => drop(meta.insert("namespace".into(), json!(namespace))),
        (Some(namespace), Some(said)) if said == namespace => {}
        // What lives in no namespace is not asked which.
        (None, _) => drop(meta.remove("namespace")),
        (Some(_), Some(_)) => {
            return Err(Refusal::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
    }
    Ok(())
}

/// Five letters that make no words, as upstream.
pub(crate) fn suffix() -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    // The low 62 bits of a random UUID are all random, and 27^5 is far below 2^62.
    let mut random = Uuid::new_v4().as_u64_pair().1 & (u64::MAX >> 2);
    let mut letter = || {
        let (rest, at) = (random / LETTERS.len() as u64, random % LETTERS.len() as u64);
        random = rest;
        char::from(LETTERS[usize::try_from(at).expect("below 27")])
    };
    std::iter::repeat_with(&mut letter).take(5).collect()
}
