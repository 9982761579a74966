//! Authorization of what lasts: a watch, a log that is followed, a command. Credentials may expire or be revoked and rights be taken
//! away while it runs, so both are checked again and again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use hyper::HeaderMap;
use hyper::header::AUTHORIZATION;
use jiff::Timestamp;
use tokio::time::Instant;

use super::Access;
use super::{allow, allow_stranger, authenticate, impersonated};
use crate::connections::Client;
use crate::error::ApiError;
use crate::request::{RequestAttributes, User};

/// The credentials of a request that lasts, and what it does.
#[derive(Debug, Clone)]
pub(crate) struct Reauthorization {
    client: Option<Arc<Client>>,
    /// Who the certificate named when the request came; `client` has the certificate, if there is one.
    peer: Option<User>,
    /// `Authorization` and `Impersonate-…`, and no others.
    headers: HeaderMap,
    actions: Vec<RequestAttributes>,
    every: Duration,
}

impl Reauthorization {
    pub(crate) fn new(
        peer: Option<&User>,
        client: Option<&Arc<Client>>,
        headers: &HeaderMap,
        action: &RequestAttributes,
        every: Duration,
    ) -> Self {
        let is_credential = |name: &hyper::header::HeaderName| {
            *name == AUTHORIZATION || name.as_str().starts_with("impersonate-")
        };
        let mut kept = HeaderMap::new();
        for (name, value) in headers.iter().filter(|(name, _)| is_credential(name)) {
            kept.append(name.clone(), value.clone());
        }
        Self {
            client: client.cloned(),
            peer: peer.cloned(),
            headers: kept,
            actions: vec![action.clone()],
            every,
        }
    }

    /// It does this, too.
    pub(crate) fn and(mut self, action: RequestAttributes) -> Self {
        self.actions.push(action);
        self
    }

    /// When the first check of a stream is due. It comes earlier than the following ones, at a time that is spread out, so that
    /// streams that began together are not checked together.
    pub(crate) fn first(&self, began: Instant) -> Instant {
        static STREAMS: AtomicU32 = AtomicU32::new(0);
        // The golden ratio spreads consecutive numbers evenly.
        let part = STREAMS.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9E37_79B9) >> 16;
        began + self.every / 2 + self.every / 2 * part / (1 << 16)
    }

    /// When the check after that at `last` is due.
    pub(crate) fn next(&self, last: Instant) -> Instant {
        last + self.every
    }

    pub(crate) fn check(&self, access: &Access, now: Timestamp) -> Result<(), ApiError> {
        still_allowed(access, self, now)
    }

    /// Waits until the check fails.
    pub(crate) async fn denied(self, access: Arc<Access>) {
        let mut due = self.first(Instant::now());
        loop {
            tokio::time::sleep_until(due).await;
            if let Err(refusal) = self.check(&access, Timestamp::now()) {
                tracing::debug!(why = refusal.message(), "a stream ends: it is no longer authorized");
                return;
            }
            due = self.next(due);
        }
    }
}

/// Rule: what lasts is authenticated and authorized again as its request was, and ends when that fails.
fn still_allowed(access: &Access, it: &Reauthorization, now: Timestamp) -> Result<(), ApiError> {
    let certificate = it.client.as_ref().and_then(|it| it.peer.as_ref());
    let peer = match certificate {
        Some(certificate) => certificate.user(now),
        None => it.peer.as_ref(),
    };
    let user = authenticate(access, peer, &it.headers, now)?;
    let other = impersonated(access, &user, &it.headers)?;
    let allow = if user.is_anonymous() { allow_stranger } else { allow };
    for action in &it.actions {
        allow(access, other.as_ref().unwrap_or(&user), action)?;
    }
    Ok(())
}
