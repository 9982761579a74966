//! Periodic reauthorization of long-running requests, such as watches, followed logs and exec. While a long-running
//! request runs, its credentials may expire or be revoked, and the permissions of its user may be removed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use hyper::HeaderMap;
use hyper::header::AUTHORIZATION;
use jiff::Timestamp;
use tokio::time::Instant;

use super::AccessControl;
use super::{authenticate, impersonated_user, require_authorized, require_authorized_anonymous};
use crate::connections::RequestClient;
use crate::error::ApiError;
use crate::request::{RequestAttributes, User};

/// Authenticates and authorizes a long-running request again at intervals. Holds the credentials of the request and the
/// actions that it performs.
#[derive(Debug, Clone)]
pub(crate) struct Reauthorization {
    /// The client of the request. Its certificate, if it has one, is checked for expiration each time.
    client: Option<Arc<RequestClient>>,
    /// The authenticated user of the connection when the request started. It is used only if there is no client
    /// certificate, as for an in-process client. The user of a certificate is read from `client` at each check, because
    /// the certificate may expire.
    peer: Option<User>,
    /// The `Authorization` and `Impersonate-…` headers of the request. All other headers are left out.
    headers: HeaderMap,
    /// The actions that the request performs. The request ends when one of them is no longer authorized.
    actions: Vec<RequestAttributes>,
    /// Interval between reauthorizations.
    interval: Duration,
}

impl Reauthorization {
    /// Creates the reauthorization of a request that performs `action`, with the credentials in `headers`.
    /// `interval` is the time between reauthorizations.
    pub(crate) fn new(
        peer: Option<&User>,
        client: Option<&Arc<RequestClient>>,
        headers: &HeaderMap,
        action: &RequestAttributes,
        interval: Duration,
    ) -> Self {
        let is_credential = |name: &hyper::header::HeaderName| {
            *name == AUTHORIZATION || name.as_str().starts_with("impersonate-")
        };
        let mut credentials = HeaderMap::new();
        for (name, value) in headers.iter().filter(|(name, _)| is_credential(name)) {
            credentials.append(name.clone(), value.clone());
        }
        Self {
            client: client.cloned(),
            peer: peer.cloned(),
            headers: credentials,
            actions: vec![action.clone()],
            interval,
        }
    }

    /// Adds another action that the request performs, so that each check authorizes it too.
    pub(crate) fn with_action(mut self, action: RequestAttributes) -> Self {
        self.actions.push(action);
        self
    }

    /// Returns the time of the first reauthorization of a stream, which is between half an interval and one interval
    /// after `began`. The delay differs between streams, so that streams that began at the same time are checked at
    /// different times.
    pub(crate) fn first_check_time(&self, began: Instant) -> Instant {
        /// Number of streams that were started so far. It spreads the first checks of streams over time.
        static STREAM_COUNT: AtomicU32 = AtomicU32::new(0);
        // The golden ratio spreads consecutive numbers evenly.
        let fraction = STREAM_COUNT.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9E37_79B9) >> 16;
        began + self.interval / 2 + self.interval / 2 * fraction / (1 << 16)
    }

    /// Returns the time of the reauthorization after the one at `last`.
    pub(crate) fn next_check_time(&self, last: Instant) -> Instant {
        last + self.interval
    }

    /// Authenticates and authorizes the request again. Returns an error if the request is no longer allowed and must
    /// end.
    pub(crate) fn check_access(&self, access: &AccessControl, now: Timestamp) -> Result<(), ApiError> {
        reauthorize(access, self, now)
    }

    /// Reauthorizes the request at intervals. Returns when the request is no longer allowed.
    pub(crate) async fn wait_until_denied(self, access: Arc<AccessControl>) {
        let mut next_check = self.first_check_time(Instant::now());
        loop {
            tokio::time::sleep_until(next_check).await;
            if let Err(error) = self.check_access(&access, Timestamp::now()) {
                tracing::debug!(why = error.message(), "closing a stream that is no longer authorized");
                return;
            }
            next_check = self.next_check_time(next_check);
        }
    }
}

/// Checks whether a long-running request is still allowed.
///
/// Rule: a long-running request is authenticated and authorized again in the same way as at its start. It ends when
/// either check fails.
fn reauthorize(access: &AccessControl, it: &Reauthorization, now: Timestamp) -> Result<(), ApiError> {
    let certificate = it.client.as_ref().and_then(|it| it.peer.as_ref());
    let peer = match certificate {
        Some(certificate) => certificate.user(now),
        None => it.peer.as_ref(),
    };
    let user = authenticate(access, peer, &it.headers, now)?;
    let impersonated_user = impersonated_user(access, &user, &it.headers)?;
    let allow = if user.is_anonymous() { require_authorized_anonymous } else { require_authorized };
    for action in &it.actions {
        allow(access, impersonated_user.as_ref().unwrap_or(&user), action)?;
    }
    Ok(())
}
