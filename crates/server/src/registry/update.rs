//! Changes to objects that stand. Upstream: the update and patch handlers, `BeforeUpdate` and the registry's `Update`.

use bytes::Bytes;
use muster_store::Expect;
use serde_json::{Value, json};

use super::delete::precondition_failed;
use super::{ATTEMPTS_MAX, Commit, Registry, check, create};
use crate::admission::{self, Attempt, Operation};
use crate::admit::Cause;
use crate::context::Context;
use crate::fields;
use crate::object::{self, is_set, list, map_mut, str_at};
use crate::refusal::Refusal;
use crate::route::{Part, Target};

const MODIFIED: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

impl Registry {
    /// Puts what `change` makes of the object in its place. `change` is asked again if another write comes first, so
    /// one that names no resourceVersion never meets a conflict.
    pub(crate) async fn update(
        &self,
        context: &Context,
        target: &Target,
        change: impl Fn(&Value) -> Result<Value, Refusal> + Sync,
    ) -> Result<Bytes, Refusal> {
        let change = |old: &Value| {
            let mut new = change(old)?;
            (target.kind.default)(&mut new);
            fields::updated(context, target, &mut new, Some(old));
            Ok(new)
        };
        for _ in 0..ATTEMPTS_MAX {
            if let Some(written) = self.try_update(context, target, &change).await? {
                return Ok(written);
            }
        }
        Err(Refusal::timeout())
    }

    /// Server-side apply. The object is created if there is none; the answer says whether it was.
    pub(crate) async fn apply(
        &self,
        context: &Context,
        target: &Target,
        applied: &Value,
        force: bool,
    ) -> Result<(bool, Bytes), Refusal> {
        let change = |old: Option<&Value>| {
            let mut new = fields::applied(context, target, applied, force, old)?;
            (target.kind.default)(&mut new);
            Ok(new)
        };
        for _ in 0..ATTEMPTS_MAX {
            if self.peek(target.kind, target.namespace.as_deref(), &target.name).is_some() {
                if let Some(written) = self.try_update(context, target, &|old| change(Some(old))).await? {
                    return Ok((false, written));
                }
                continue;
            }
            if target.part != Part::Whole {
                return Err(target.not_found());
            }
            let mut new = change(None)?;
            create::begin(target.kind, target.namespace.as_deref(), &mut new)?;
            match self.create_new(context, &mut target.clone(), new).await {
                Ok(created) => return Ok((true, created)),
                // Someone else was quicker: then it is an update.
                Err(it) if it.is_exists() => {}
                Err(it) => return Err(it),
            }
        }
        Err(Refusal::timeout())
    }

    /// A scheduler says where a pod goes: once.
    pub(crate) async fn bind(
        &self,
        context: &Context,
        target: &Target,
        binding: &Value,
    ) -> Result<(), Refusal> {
        let node = str_at(binding, "target.name");
        if node.is_empty() {
            return Err(Refusal::invalid(
                target.kind,
                &target.name,
                &[Cause::required("target.name", "name of the node to bind to")],
            ));
        }
        let bind = |pod: &Value| {
            let mut pod = pod.clone();
            let bound_to = str_at(&pod, "spec.nodeName");
            if !bound_to.is_empty() {
                let why = format!("pod {} is already assigned to node \"{bound_to}\"", target.name);
                return Err(Refusal::conflict(target.kind, &target.name, &why));
            }
            if is_set(&pod["metadata"]["deletionTimestamp"]) {
                let why = format!("pod {} is being deleted, cannot be assigned to a host", target.name);
                return Err(Refusal::conflict(target.kind, &target.name, &why));
            }
            pod["spec"]["nodeName"] = json!(node);
            if let Some(annotations) = binding["metadata"]["annotations"].as_object() {
                map_mut(&mut pod["metadata"], "annotations").extend(annotations.clone());
            }
            let scheduled = json!({
                "type": "PodScheduled",
                "status": "True",
                "lastProbeTime": null,
                "lastTransitionTime": object::time(context.now),
            });
            let mut conditions = list(&pod["status"], "conditions").to_vec();
            conditions.retain(|it| it["type"] != "PodScheduled");
            conditions.push(scheduled);
            pod["status"]["conditions"] = Value::Array(conditions);
            Ok(pod)
        };
        self.update(context, target, bind).await.map(drop)
    }

    /// Nothing is given back if another write came first.
    async fn try_update(
        &self,
        context: &Context,
        target: &Target,
        change: &(impl Fn(&Value) -> Result<Value, Refusal> + Sync),
    ) -> Result<Option<Bytes>, Refusal> {
        let record = self.standing(target)?;
        let old = object::parse(&record.value);
        let mut new = change(&old)?;
        let attempt = Attempt { target, operation: Operation::Update { old: &old } };
        admission::mutate(self, context, attempt, &mut new).await?;
        refuse_stale(target, &new, &old)?;
        prepare(target, &mut new, &old);
        check(target, &new, Some(&old))?;
        let charge = admission::validate(self, context, attempt, &new).await?;
        if new == old {
            return Ok(Some(record.value.clone()));
        }
        if context.dry_run {
            return Ok(Some(object::bytes(&new)));
        }
        let was_last_finalizer = is_set(&old["metadata"]["deletionTimestamp"])
            && list(&new["metadata"], "finalizers").is_empty()
            && old["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) == 0;
        let commit = if was_last_finalizer { Commit::Delete { last: &new } } else { Commit::Put(&new) };
        let written = self.commit(context, target, Expect::At(record.modified), commit).await?;
        if written.is_some() {
            admission::spent(charge);
        }
        Ok(written)
    }
}

/// Carries over from the old object what this write may not change, and counts what it changed.
fn prepare(target: &Target, new: &mut Value, old: &Value) {
    let kind = target.kind;
    new["apiVersion"] = json!(kind.stored().api_version());
    new["kind"] = json!(kind.kind);
    let meta = map_mut(new, "metadata");
    for name in [
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "generation",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ] {
        keep(meta, &old["metadata"], name);
    }
    match target.part {
        Part::EphemeralContainers => {
            let added = std::mem::replace(new, old.clone());
            keep(map_mut(new, "spec"), &added["spec"], "ephemeralContainers");
        }
        Part::Approval => {
            let decided = std::mem::replace(new, old.clone());
            keep(map_mut(new, "status"), &decided["status"], "conditions");
        }
        Part::Binding | Part::Eviction | Part::Agent => {}
        Part::Whole if kind.has_status_subresource() => {
            keep(new.as_object_mut().expect("it has metadata"), old, "status");
        }
        Part::Whole => {}
        Part::Status => {
            let (mut metadata, status) = (new["metadata"].take(), new["status"].take());
            keep(metadata.as_object_mut().expect("it is a map"), &old["metadata"], "ownerReferences");
            *new = old.clone();
            new["metadata"] = metadata;
            new["status"] = status;
        }
    }
    if kind.counts(new, old) {
        new["metadata"]["generation"] = json!(old["metadata"]["generation"].as_u64().unwrap_or(0) + 1);
    }
    raise_template_generation(new, old);
}

fn keep(new: &mut serde_json::Map<String, Value>, old: &Value, name: &str) {
    match old.get(name) {
        Some(value) => drop(new.insert(name.into(), value.clone())),
        None => drop(new.remove(name)),
    }
}

/// A DaemonSet that carries the old API's template generation has it raised with every change of its template: pods are
/// told old from new by it, so one that stood still would stop every update.
fn raise_template_generation(new: &mut Value, old: &Value) {
    const ANNOTATION: &str = "deprecated.daemonset.template.generation";
    if new["spec"]["template"] == old["spec"]["template"] {
        return;
    }
    let before = old["metadata"]["annotations"][ANNOTATION].as_str().and_then(|it| it.parse::<i64>().ok());
    if let Some(before) = before {
        new["metadata"]["annotations"][ANNOTATION] = before.saturating_add(1).to_string().into();
    }
}

/// The writer may say which object, and which version of it, it means.
fn refuse_stale(target: &Target, new: &Value, old: &Value) -> Result<(), Refusal> {
    let (new, old) = (&new["metadata"], &old["metadata"]);
    if is_set(&new["uid"]) && new["uid"] != old["uid"] {
        return Err(precondition_failed(target, "UID", &new["uid"], &old["uid"]));
    }
    if is_set(&new["resourceVersion"]) && new["resourceVersion"] != old["resourceVersion"] {
        return Err(Refusal::conflict(target.kind, &target.name, MODIFIED));
    }
    Ok(())
}
