//! Limits on what a request holds: its seat, and its response until it is sent.

use http_body_util::Either;
use hyper::StatusCode;

use super::RequestState;
use crate::connections::RESPONSE_KIB_MAX;
use crate::error::ApiError;
use crate::flow_control::response::{Holds, Meter};
use crate::flow_control::{Class, Seat, What};
use crate::http::{Api, Response};
use crate::request::{TrustLevel, User};

/// A larger response is charged by its bytes, a smaller one as one response.
const LARGE_RESPONSE_BYTES: usize = 64 << 10;

/// Why a response is not sent.
pub(super) enum Unsent {
    Refused(ApiError),
    /// The client has too many unsent responses even for an error: the stream is reset.
    Reset,
}

impl Api {
    pub(super) async fn seat(&self, class: Class<'_>, is_read: bool) -> Result<Seat, ApiError> {
        let metrics = &self.registry.metrics;
        match self.limits.flow_control.seat(class, is_read).await {
            Ok((seat, None)) => Ok(seat),
            Ok((seat, Some(waited))) => {
                metrics.flow_waited(class.level_name(), waited);
                Ok(seat)
            }
            Err(why) => {
                metrics.flow_rejected(class.level_name(), why.reason());
                Err(ApiError::too_many_requests(1))
            }
        }
    }

    pub(super) fn count_rejection(&self, refusal: &ApiError, what: &'static str) {
        if refusal.code == StatusCode::TOO_MANY_REQUESTS {
            self.registry.metrics.rejected(what);
        }
    }

    /// Rule: an unsent response is charged to its user: a small one as one response, a large one by its bytes.
    /// A large one also waits until enough bytes of earlier responses on its connection are sent. In-process
    /// clients are exempt. `bytes` is `None` for a streamed response.
    pub(super) async fn hold(&self, bytes: Option<usize>, state: &RequestState<'_>) -> Result<Holds, Unsent> {
        let Some(bytes) = bytes else {
            let meter = state.charged().map(|user| self.meter(user));
            return Ok(Holds { meter, ..Holds::default() });
        };
        if bytes <= LARGE_RESPONSE_BYTES {
            return self.hold_small(state);
        }
        let Some(user) = state.charged().filter(|_| !state.is_in_process()) else {
            return Ok(Holds::default());
        };
        let trust = user.trust();
        if trust == TrustLevel::Trusted {
            return Ok(Holds::default());
        }
        // The write is done, so the client must not be told to retry.
        let is_read = state.labels.is_read();
        let too_many =
            || Unsent::Refused(if is_read { ApiError::too_many_requests(1) } else { ApiError::timeout() });
        let lease = self.limits.usage.take(&user.name, trust, What::ResponseBytes, bytes);
        let mut holds = Holds { charge: Some(lease.ok_or_else(too_many)?), ..Holds::default() };
        if let Some(connection) = state.client.and_then(|it| it.connection.as_ref()) {
            let kib = u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX).min(RESPONSE_KIB_MAX);
            let acquiring = connection.response_kib.clone().acquire_many_owned(kib);
            let acquired = tokio::time::timeout(self.limits.config.response_timeout, acquiring).await;
            let acquired = acquired.ok().and_then(Result::ok);
            holds.kib_of_connection = Some(acquired.ok_or_else(|| Unsent::Refused(ApiError::timeout()))?);
        }
        Ok(holds)
    }

    /// Rule: small responses to anonymous clients are charged to the client's address, so that one client
    /// cannot use up the limit of the others.
    pub(super) fn hold_small(&self, state: &RequestState<'_>) -> Result<Holds, Unsent> {
        let (Some(client), false) = (state.client, state.is_in_process()) else {
            return Ok(Holds::default());
        };
        let user = state.charged();
        let trust = user.map_or(TrustLevel::Ordinary, User::trust);
        if trust == TrustLevel::Trusted {
            return Ok(Holds::default());
        }
        let usage = &self.limits.usage;
        let lease = match user.filter(|it| !it.is_anonymous()) {
            Some(user) => usage.take(&user.name, trust, What::SmallResponses, 1),
            None => usage.take(&client.address.to_string(), trust, What::SmallResponses, 1),
        };
        let charge = Some(lease.ok_or(Unsent::Reset)?);
        Ok(Holds { charge, is_small: true, ..Holds::default() })
    }

    /// Returns the meter that charges a streamed response to `user`.
    pub(in crate::http) fn meter(&self, user: &User) -> Meter {
        let trust = user.trust();
        Meter { usage: self.limits.usage.clone(), user: user.name.clone(), trust }
    }
}

/// Rule: requests with impersonation are charged to the impersonator, so that impersonation gives nobody more
/// seats. If the impersonator is trusted, the impersonated user is charged.
pub(super) fn charged<'a>(user: &'a User, impersonated: Option<&'a User>) -> &'a User {
    impersonated.filter(|_| user.trust() == TrustLevel::Trusted).unwrap_or(user)
}

/// Returns the size of a response that is not streamed.
pub(super) fn whole_bytes(response: &Response) -> Option<usize> {
    match response.body() {
        Either::Left(whole) => usize::try_from(hyper::body::Body::size_hint(whole).lower()).ok(),
        Either::Right(_) => None,
    }
}
