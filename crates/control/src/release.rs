//! `muster controller release`: prepares the change from Muster's controller to another controller. It removes what
//! only Muster's controller writes: status conditions, DaemonRollouts, and the verdicts about revisions.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use muster_api::interner::Interner;
use muster_api::object_key::ObjectKey;
use muster_api::well_known::JSON_MEDIA_TYPE;
use muster_engine::controller::lease::LeaseRecord;
use muster_engine::controller::{CallError, PatchFormat, Verb};
use muster_engine::daemonset::execution::{PlannedCall, Response};
use muster_engine::daemonset::facts::{self, Kind, Set};
use muster_engine::daemonset::manifest;
use muster_engine::daemonset::progressive::decode::decode_rollout;
use muster_engine::daemonset::progressive::record::{Phase, RolloutRecord};
use muster_events::clock::now;
use serde_json::Value;

use crate::call::CALL_TIMEOUT;
use crate::daemonset::send_standalone_call;
use crate::explain_query::ExplainQueries;
use crate::lease::{self, Term};
use crate::monitor::Monitor;
use crate::paged_list::{Page, page_query};
use crate::rate_limit::RateLimiter;
use crate::request::request;
use crate::{Context, Options};

/// Maximum number of attempts to write the status of one DaemonSet. Another client may keep writing the same status.
const STATUS_WRITE_ATTEMPTS_MAX: usize = 5;

/// Numbers of objects that `muster controller release` read and changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReleaseSummary {
    /// Number of DaemonSets that were read.
    pub sets: usize,
    /// Number of DaemonSets from whose status the controller's conditions were removed.
    pub changed: usize,
    /// Number of DaemonRollouts that were deleted.
    pub rollouts: usize,
    /// Number of ControllerRevisions from which the verdict of a progressive rollout was removed.
    pub verdicts: usize,
}

/// Why `muster controller release` failed.
#[derive(Debug, thiserror::Error)]
pub enum ReleaseError {
    #[error(
        "{holder} holds the Lease {lease}: stop every `muster controller` first, or it writes the conditions again; \
         --force skips this check"
    )]
    LeaderRunning { holder: String, lease: String },
    #[error(
        "progressive rollouts are not complete: {}; another controller would update every node of these DaemonSets at \
         once, also to a revision that failed: complete or revert the rollouts first; --force skips this check",
        .0.join(", ")
    )]
    RolloutsHeld(Vec<String>),
    #[error("{key}: {reason}; DaemonSets before it were released; run the command again")]
    Refused { key: ObjectKey, reason: String },
    #[error("the API server's response cannot be parsed")]
    Unreadable(#[from] serde_json::Error),
    #[error("the API server did not respond in time")]
    Timeout,
    #[error(transparent)]
    Call(#[from] kube::Error),
}

/// Deletes all DaemonRollouts, removes the verdicts of progressive rollouts from all ControllerRevisions, and removes
/// the conditions of this controller from the status of all DaemonSets. Calls `changed` for each DaemonSet that had
/// such a condition.
///
/// Rule: if the progressive rollout of any DaemonSet is not complete, the release fails and changes nothing, because
/// another controller would update all remaining nodes at once. With `force` the release continues nevertheless.
///
/// `leases` is the namespace and the possible names of the leader's Lease. The release fails if a leader holds one of
/// these Leases. Without a namespace, the Leases of these names in all namespaces are checked. If `leases` is `None`,
/// no Lease is checked.
pub async fn release(
    client: Client,
    leases: Option<(Option<&str>, &[String])>,
    force: bool,
    mut changed: impl FnMut(&ObjectKey),
) -> Result<ReleaseSummary, ReleaseError> {
    if let Some((namespace, names)) = leases {
        check_no_leaders(&client, namespace, names).await?;
    }
    let rollouts = list_rollouts(&client).await?;
    let is_complete = |it: &&RolloutRecord| matches!(it.status.phase, None | Some(Phase::Complete));
    let held = rollouts.iter().filter(|it| !is_complete(it) || it.unreadable.is_some());
    let held: Vec<String> = held
        .map(|it| format!("{} ({})", it.key, it.status.phase.map_or("unknown phase", Phase::as_str)))
        .collect();
    if !held.is_empty() && !force {
        return Err(ReleaseError::RolloutsHeld(held));
    }
    let options = Options::default();
    let context = Arc::new(Context {
        client: client.clone(),
        rate_limiter: RateLimiter::new(options.limits),
        options,
        term: Term::unlimited(CALL_TIMEOUT),
        monitor: Arc::new(Monitor::default()),
        explain_queries: ExplainQueries::default(),
        plan_observer: None,
    });
    let mut released = ReleaseSummary::default();
    for rollout in &rollouts {
        let path = Kind::Rollouts.watch().resource.path(&rollout.key);
        if write(&client, Verb::Delete, path, String::new(), &rollout.key).await? {
            released.rollouts += 1;
        }
    }
    released.verdicts = remove_verdicts(&client).await?;
    let mut page_token: Option<String> = None;
    loop {
        let (sets, next) = list_daemonset_page(&client, page_token.as_deref()).await?;
        for set in sets {
            released.sets += 1;
            if clear_conditions(&context, Arc::new(set), &mut changed).await? {
                released.changed += 1;
            }
        }
        if next.is_none() {
            return Ok(released);
        }
        page_token = next;
    }
}

/// Reads all DaemonRollouts. Skips those that cannot be parsed. Returns an empty list if the API server does not serve
/// the kind.
async fn list_rollouts(client: &Client) -> Result<Vec<RolloutRecord>, ReleaseError> {
    let interner = &mut Interner::default();
    let mut rollouts = Vec::new();
    let mut page_token: Option<String> = None;
    loop {
        let path = Kind::Rollouts.watch().resource.collection_path(None);
        let page = get(client, format!("{path}?{}", page_query(None, page_token.as_deref()))).await;
        let text = match page {
            Err(ReleaseError::Call(kube::Error::Api(status))) if status.code == 404 => return Ok(rollouts),
            page => page?,
        };
        let page: Page<'_> = serde_json::from_str(&text)?;
        for object in page.objects() {
            match decode_rollout(object, interner) {
                Ok(rollout) => rollouts.push(rollout),
                Err(error) => tracing::error!(%error, "skipping a DaemonRollout that cannot be parsed"),
            }
        }
        page_token = page.next_page_token();
        if page_token.is_none() {
            return Ok(rollouts);
        }
    }
}

/// Removes the verdicts of progressive rollouts from all ControllerRevisions. Returns the number of ControllerRevisions
/// that were changed.
async fn remove_verdicts(client: &Client) -> Result<usize, ReleaseError> {
    let interner = &mut Interner::default();
    let mut removed = 0;
    let mut page_token: Option<String> = None;
    loop {
        let path = Kind::Revisions.watch().resource.collection_path(None);
        let text = get(client, format!("{path}?{}", page_query(None, page_token.as_deref()))).await?;
        let page: Page<'_> = serde_json::from_str(&text)?;
        for object in page.objects() {
            let Ok(Some(revision)) = facts::decode_revision(object, interner) else { continue };
            if revision.verdict.is_none() {
                continue;
            }
            let version = revision.resource_version.to_string();
            let patch = manifest::verdict_patch(None, "", now(), &revision.uid, &version);
            let path = Kind::Revisions.watch().resource.path(&revision.key);
            let verb = Verb::Patch(PatchFormat::Merge);
            removed += usize::from(write(client, verb, path, patch.to_string(), &revision.key).await?);
        }
        page_token = page.next_page_token();
        if page_token.is_none() {
            return Ok(removed);
        }
    }
}

/// Sends a write request for the object with this key. Returns `false` if the object does not exist (status 404).
async fn write(
    client: &Client,
    verb: Verb,
    path: String,
    body: String,
    key: &ObjectKey,
) -> Result<bool, ReleaseError> {
    let request = request(verb, path, JSON_MEDIA_TYPE, body);
    let response = tokio::time::timeout(CALL_TIMEOUT * 3, client.request_text(request)).await;
    match response.map_err(|_| ReleaseError::Timeout)? {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
        Err(kube::Error::Api(status)) => {
            Err(ReleaseError::Refused { key: key.clone(), reason: status.message.clone() })
        }
        Err(error) => Err(error.into()),
    }
}

/// Checks that no leader holds a Lease with one of these names. A Lease that the user may not read is skipped if
/// another one can be read, because the user's role may cover the Lease of only one mode of the controller.
async fn check_no_leaders(
    client: &Client,
    namespace: Option<&str>,
    names: &[String],
) -> Result<(), ReleaseError> {
    let mut forbidden = None;
    let mut is_one_readable = names.is_empty();
    for name in names {
        match check_no_leader(client, namespace, name).await {
            Err(error) if is_forbidden(&error) => forbidden = Some(error),
            checked => {
                checked?;
                is_one_readable = true;
            }
        }
    }
    forbidden.filter(|_| !is_one_readable).map_or(Ok(()), Err)
}

/// Whether the error is a response with status 403 (Forbidden).
fn is_forbidden(error: &ReleaseError) -> bool {
    matches!(error, ReleaseError::Call(kube::Error::Api(status)) if status.code == 403)
}

/// Checks that no leader holds a Lease of this name in the namespace, or in any namespace if `namespace` is `None`. A
/// Lease with a holder is held until `renewTime` + `leaseDurationSeconds`, or forever if it has no `renewTime`.
async fn check_no_leader(client: &Client, namespace: Option<&str>, name: &str) -> Result<(), ReleaseError> {
    let objects = match namespace {
        Some(namespace) => match get(client, lease::path(namespace, name)).await {
            Ok(text) => vec![serde_json::from_str(&text)?],
            Err(ReleaseError::Call(kube::Error::Api(status))) if status.code == 404 => Vec::new(),
            Err(error) => return Err(error),
        },
        None => {
            let query = form_urlencoded::Serializer::new(String::new())
                .append_pair("fieldSelector", &format!("metadata.name={name}"))
                .finish();
            let text = get(client, format!("/apis/coordination.k8s.io/v1/leases?{query}")).await?;
            let list: Value = serde_json::from_str(&text)?;
            list["items"].as_array().cloned().unwrap_or_default()
        }
    };
    for object in objects {
        let record = LeaseRecord::read(&object["spec"]);
        let until = record.renewed.map(|it| it + Duration::from_secs(record.duration_s.into()));
        if !record.holder.is_empty() && until.is_none_or(|it| now() < it) {
            let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
            let (holder, lease) = (record.holder.to_string(), format!("{namespace}/{name}"));
            return Err(ReleaseError::LeaderRunning { holder, lease });
        }
    }
    Ok(())
}

/// Reads one page of DaemonSets. Returns the DaemonSets and the token of the next page, `None` after the last page.
/// Skips DaemonSets that cannot be parsed.
async fn list_daemonset_page(
    client: &Client,
    page_token: Option<&str>,
) -> Result<(Vec<Set>, Option<String>), ReleaseError> {
    let text = get(client, format!("/apis/apps/v1/daemonsets?{}", page_query(None, page_token))).await?;
    let page: Page<'_> = serde_json::from_str(&text)?;
    let interner = &mut Interner::default();
    let sets = page.objects().filter_map(|it| match facts::decode_set(it, interner) {
        Ok(set) => Some(set),
        Err(error) => {
            tracing::error!(%error, "skipping a DaemonSet that cannot be parsed");
            None
        }
    });
    Ok((sets.collect(), page.next_page_token()))
}

/// Reads the object or list at a URL path, and returns its JSON.
async fn get(client: &Client, path: String) -> Result<String, ReleaseError> {
    let request = request(Verb::Get, path, JSON_MEDIA_TYPE, String::new());
    let response = tokio::time::timeout(CALL_TIMEOUT * 3, client.request_text(request)).await;
    Ok(response.map_err(|_| ReleaseError::Timeout)??)
}

/// Removes the conditions of this controller from the status of one DaemonSet. If it removed any, calls `changed` and
/// returns `true`. Returns `false` if there are none, or if the DaemonSet no longer exists.
async fn clear_conditions(
    context: &Arc<Context>,
    mut set: Arc<Set>,
    changed: &mut impl FnMut(&ObjectKey),
) -> Result<bool, ReleaseError> {
    let refused = |key: &ObjectKey, reason: &CallError| {
        Err(ReleaseError::Refused { key: key.clone(), reason: reason.to_string() })
    };
    for _ in 0..STATUS_WRITE_ATTEMPTS_MAX {
        if set.status.conditions.is_empty() {
            return Ok(false);
        }
        let mut status = set.status.clone();
        status.conditions.clear();
        match send_standalone_call(context, &set, PlannedCall::PutStatus { of: set.clone(), status }).await {
            Response::Refused(CallError::NotFound) => return Ok(false),
            Response::Refused(CallError::Conflict) => {
                match send_standalone_call(context, &set, PlannedCall::ReadSet).await {
                    Response::Set(fresh) => set = fresh,
                    Response::Refused(CallError::NotFound) => return Ok(false),
                    Response::Refused(reason) => return refused(&set.key, &reason),
                    _ => {}
                }
            }
            Response::Refused(reason) => return refused(&set.key, &reason),
            _ => {
                changed(&set.key);
                return Ok(true);
            }
        }
    }
    refused(&set.key, &CallError::Conflict)
}
