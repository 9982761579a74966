//! Taking away what only this controller writes, before another one takes over.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use muster_engine::controller::lease::Record;
use muster_engine::daemonset::execution::{Call, Outcome, Refusal};
use muster_engine::daemonset::facts::{self, Key, Set, Shared};
use muster_engine::daemonset::manifest::Verb;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::call::{CALL_TIMEOUT, Caller};
use crate::daemonset::now;
use crate::inquiry::Inquiries;
use crate::lanes::Lanes;
use crate::lease::{self, Term};
use crate::monitor::Monitor;
use crate::request::{JSON, request};
use crate::{Context, Options};

/// DaemonSets read at once.
const PAGE: usize = 500;

/// A set whose status somebody else keeps writing is given up after so many tries.
const TRIES: usize = 5;

/// What was looked at, and what was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Released {
    pub sets: usize,
    pub changed: usize,
}

#[derive(Debug, thiserror::Error)]
pub enum NotReleased {
    #[error(
        "{holder} leads, by the Lease {lease}: stop every `muster controller` first, or its conditions come back; \
         --force goes on all the same"
    )]
    Led { holder: String, lease: String },
    #[error("{key}: {refusal}; what was done so far stays done, so try again")]
    Refused { key: Key, refusal: String },
    #[error("the API server's answer cannot be read")]
    Unreadable(#[from] serde_json::Error),
    #[error("the API server did not answer in time")]
    Timeout,
    #[error(transparent)]
    Call(#[from] kube::Error),
}

/// Removes the conditions `Available`, `Progressing` and `Degraded` from the status of every DaemonSet, and nothing else.
/// `changed` hears of each set that had some. `leases` says where a leader would be known: in the Lease of this name, in
/// one namespace or in any of them; without it nobody asks.
pub async fn release(
    client: Client,
    leases: Option<(Option<&str>, &str)>,
    mut changed: impl FnMut(&Key),
) -> Result<Released, NotReleased> {
    if let Some((namespace, name)) = leases {
        refuse_while_led(&client, namespace, name).await?;
    }
    let options = Options::default();
    let context = Arc::new(Context {
        client: client.clone(),
        lanes: Lanes::new(options.limits),
        options,
        term: Term::unlimited(CALL_TIMEOUT),
        monitor: Arc::new(Monitor::default()),
        inquiries: Inquiries::default(),
        witness: None,
    });
    let mut released = Released::default();
    let mut from = String::new();
    loop {
        let (sets, next) = page(&client, &from).await?;
        for set in sets {
            released.sets += 1;
            if clear(&context, Arc::new(set), &mut changed).await? {
                released.changed += 1;
            }
        }
        if next.is_empty() {
            return Ok(released);
        }
        from = next;
    }
}

/// A lease is held by what it says and by the clock.
async fn refuse_while_led(client: &Client, namespace: Option<&str>, name: &str) -> Result<(), NotReleased> {
    let objects = match namespace {
        Some(namespace) => match get(client, lease::path(namespace, name)).await {
            Ok(text) => vec![serde_json::from_str(&text)?],
            Err(NotReleased::Call(kube::Error::Api(status))) if status.code == 404 => Vec::new(),
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
        let record = Record::read(&object["spec"]);
        let until = record.renewed.map(|it| it + Duration::from_secs(record.duration_s.into()));
        if !record.holder.is_empty() && until.is_none_or(|it| now() < it) {
            let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
            let (holder, lease) = (record.holder.to_string(), format!("{namespace}/{name}"));
            return Err(NotReleased::Led { holder, lease });
        }
    }
    Ok(())
}

async fn page(client: &Client, from: &str) -> Result<(Vec<Set>, String), NotReleased> {
    #[derive(Deserialize)]
    struct List<'a> {
        metadata: Head,
        #[serde(borrow)]
        items: Vec<&'a RawValue>,
    }
    #[derive(Deserialize)]
    struct Head {
        #[serde(default, rename = "continue")]
        next: String,
    }
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.append_pair("limit", &PAGE.to_string());
    if !from.is_empty() {
        query.append_pair("continue", from);
    }
    let text = get(client, format!("/apis/apps/v1/daemonsets?{}", query.finish())).await?;
    let list: List<'_> = serde_json::from_str(&text)?;
    let shared = &mut Shared::default();
    let sets = list.items.iter().filter_map(|it| match facts::set(it.get().as_bytes(), shared) {
        Ok(set) => Some(set),
        Err(error) => {
            tracing::error!(%error, "a DaemonSet was left out");
            None
        }
    });
    Ok((sets.collect(), list.metadata.next))
}

async fn get(client: &Client, path: String) -> Result<String, NotReleased> {
    let request = request(Verb::Get, path, JSON, String::new());
    let answer = tokio::time::timeout(CALL_TIMEOUT * 3, client.request_text(request)).await;
    Ok(answer.map_err(|_| NotReleased::Timeout)??)
}

/// Whether there was anything to remove.
async fn clear(
    context: &Arc<Context>,
    mut set: Arc<Set>,
    changed: &mut impl FnMut(&Key),
) -> Result<bool, NotReleased> {
    let refused = |key: &Key, refusal: &Refusal| {
        Err(NotReleased::Refused { key: key.clone(), refusal: refusal.to_string() })
    };
    for _ in 0..TRIES {
        if set.status.conditions.is_empty() {
            return Ok(false);
        }
        let mut status = set.status.clone();
        status.conditions.clear();
        let caller = Caller::new(context.clone(), set.clone());
        match caller.make(&Call::PutStatus { of: set.clone(), status }).await {
            Outcome::Refused(Refusal::NotFound) => return Ok(false),
            Outcome::Refused(Refusal::Conflict) => match caller.make(&Call::ReadSet).await {
                Outcome::Set(fresh) => set = fresh,
                Outcome::Refused(Refusal::NotFound) => return Ok(false),
                Outcome::Refused(refusal) => return refused(&set.key, &refusal),
                _ => {}
            },
            Outcome::Refused(refusal) => return refused(&set.key, &refusal),
            _ => {
                changed(&set.key);
                return Ok(true);
            }
        }
    }
    refused(&set.key, &Refusal::Conflict)
}
