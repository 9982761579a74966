//! `muster controller release`: removes the status conditions that only Muster's controller writes, before another
//! controller takes over.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use muster_api::interner::Interner;
use muster_api::meta::ObjectKey;
use muster_engine::controller::lease::LeaseRecord;
use muster_engine::controller::{CallError, Verb};
use muster_engine::daemonset::execution::{Call, Response};
use muster_engine::daemonset::facts::{self, Set};
use serde_json::Value;

use crate::call::CALL_TIMEOUT;
use crate::clock::now;
use crate::daemonset::call_once;
use crate::explain_query::ExplainQueries;
use crate::lease::{self, Term};
use crate::monitor::Monitor;
use crate::paged_list::{Page, page_query};
use crate::rate_limit::RateLimiter;
use crate::request::{JSON_MEDIA_TYPE, request};
use crate::{Context, Options};

/// Maximum number of attempts to write the status of one DaemonSet. Another client may keep writing the same status.
const STATUS_WRITE_ATTEMPTS_MAX: usize = 5;

/// How many DaemonSets `muster controller release` read and changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReleaseSummary {
    /// Number of DaemonSets that were read.
    pub sets: usize,
    /// Number of DaemonSets that had conditions to remove.
    pub changed: usize,
}

/// Why `muster controller release` failed.
#[derive(Debug, thiserror::Error)]
pub enum ReleaseError {
    #[error(
        "{holder} holds the Lease {lease}: stop every `muster controller` first, or it writes the conditions again; \
         --force skips this check"
    )]
    LeaderRunning { holder: String, lease: String },
    #[error("{key}: {reason}; DaemonSets before it were released; run the command again")]
    Refused { key: ObjectKey, reason: String },
    #[error("the API server's response cannot be parsed")]
    Unreadable(#[from] serde_json::Error),
    #[error("the API server did not respond in time")]
    Timeout,
    #[error(transparent)]
    Call(#[from] kube::Error),
}

/// Removes the conditions `Available`, `Progressing` and `Degraded` from the status of every DaemonSet, and nothing
/// else. Calls `changed` for each DaemonSet that had such a condition.
///
/// `leases` is the namespace and the name of the leader's Lease, to check that no leader runs. Without a namespace, the
/// Leases of that name in all namespaces are checked. With `None`, there is no check.
pub async fn release(
    client: Client,
    leases: Option<(Option<&str>, &str)>,
    mut changed: impl FnMut(&ObjectKey),
) -> Result<ReleaseSummary, ReleaseError> {
    if let Some((namespace, name)) = leases {
        check_no_leader(&client, namespace, name).await?;
    }
    let options = Options::default();
    let context = Arc::new(Context {
        client: client.clone(),
        rate_limiter: RateLimiter::new(options.limits),
        options,
        term: Term::unlimited(CALL_TIMEOUT),
        monitor: Arc::new(Monitor::default()),
        explain_queries: ExplainQueries::default(),
        observer: None,
    });
    let mut released = ReleaseSummary::default();
    let mut page_token: Option<String> = None;
    loop {
        let (sets, next) = list_page(&client, page_token.as_deref()).await?;
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

/// Checks that no leader holds a Lease of this name, in one namespace or in all. A Lease is held until `renewTime` +
/// `leaseDurationSeconds`.
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
async fn list_page(
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

/// Removes the conditions `Available`, `Progressing` and `Degraded` from the status of one DaemonSet. If there were
/// any, calls `changed` and returns `true`.
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
        match call_once(context, &set, Call::PutStatus { of: set.clone(), status }).await {
            Response::Refused(CallError::NotFound) => return Ok(false),
            Response::Refused(CallError::Conflict) => match call_once(context, &set, Call::ReadSet).await {
                Response::Set(fresh) => set = fresh,
                Response::Refused(CallError::NotFound) => return Ok(false),
                Response::Refused(reason) => return refused(&set.key, &reason),
                _ => {}
            },
            Response::Refused(reason) => return refused(&set.key, &reason),
            _ => {
                changed(&set.key);
                return Ok(true);
            }
        }
    }
    refused(&set.key, &CallError::Conflict)
}
