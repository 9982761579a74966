//! What a request needs before it is handled and answered: a state that is current enough (see the read barrier), a seat
//! of flow control while the request is handled, and a share of the memory for unsent responses until the response is
//! sent.

use std::net::IpAddr;
use std::time::Duration;

use http_body_util::Either;
use hyper::StatusCode;

use super::RequestState;
use crate::connections::UNSENT_RESPONSES_KIB_MAX;
use crate::error::ApiError;
use crate::flow_control::response::{ResponseCharges, ResponseMeter};
use crate::flow_control::{FlowClass, Seat, UsageKind};
use crate::http::{Api, ApiResponse};
use crate::request::{TrustLevel, User};

/// Size above which a response is large. Until it is sent, a large response counts against the limit on bytes, and any
/// other response against the limit on the number of responses. [`Api::charge_response`] lists exceptions.
const LARGE_RESPONSE_BYTES: usize = 64 << 10;

/// Maximum time since the last read barrier for which requests with `resourceVersion=0` are answered without waiting for
/// a new one. kube-apiserver caches positive decisions of an authorization webhook for the same time
/// (`--authorization-webhook-cache-authorized-ttl`).
pub(super) const UNCONFIRMED_STATE_AGE_MAX: Duration = Duration::from_secs(5 * 60);

/// How current the state of this server must be for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::http) enum RequiredState {
    /// The state in memory, however old it is.
    Any,
    /// The state in memory, if it included all acknowledged writes at some time within this duration. Otherwise the
    /// request waits for the read barrier.
    ConfirmedWithin(Duration),
    /// A state with every write that any server acknowledged before. The request waits for the read barrier.
    Current,
}

/// Why a response that a handler returned is not sent.
pub(super) enum ResponseRejection {
    /// The response exceeds a limit. The contained error is sent instead.
    Refused(ApiError),
    /// The client has too many unsent responses, so that not even an error is sent. The HTTP/2 stream or the connection
    /// is reset.
    Reset,
}

impl Api {
    /// Waits until the state of this server is as current as `required`. `address` is the address of the client, or
    /// `None` if the client has a valid certificate or is in this process.
    ///
    /// Rule: on a storage that several servers share, requests without a valid client certificate are charged to the
    /// client's address while they wait, because a bearer token is not verified yet. Fails with 429 if too many
    /// requests of the address wait.
    pub(in crate::http) async fn wait_for_state(
        &self,
        required: RequiredState,
        address: Option<IpAddr>,
    ) -> Result<(), ApiError> {
        let storage = &self.registry.storage;
        match required {
            RequiredState::Any => return Ok(()),
            RequiredState::ConfirmedWithin(age) if storage.is_confirmed_within(age) => return Ok(()),
            RequiredState::ConfirmedWithin(_) | RequiredState::Current => {}
        }
        let charge = match address.filter(|_| storage.is_shared()).map(|it| it.to_string()) {
            None => None,
            Some(address) => {
                let usage = &self.limits.usage;
                let charge = usage.acquire(&address, TrustLevel::Ordinary, UsageKind::UnverifiedWaits, 1);
                if charge.is_none() {
                    self.registry.metrics.count_refused_request("barrier");
                    return Err(ApiError::too_many_requests(1));
                }
                charge
            }
        };
        let waited = storage.wait_until_fresh().await;
        drop(charge);
        waited
    }

    /// Waits for a flow control seat, and records the waiting time or the rejection in the metrics. Fails if flow
    /// control rejects the request.
    pub(super) async fn acquire_seat(&self, class: FlowClass<'_>, is_read: bool) -> Result<Seat, ApiError> {
        let metrics = &self.registry.metrics;
        match self.limits.flow_control.acquire_seat(class, is_read).await {
            Ok((seat, None)) => Ok(seat),
            Ok((seat, Some(waited))) => {
                metrics.record_flow_wait(class.level_name(), waited);
                Ok(seat)
            }
            Err(why) => {
                metrics.count_flow_rejection(class.level_name(), why.metric_label());
                Err(ApiError::too_many_requests(1))
            }
        }
    }

    /// Counts a request in the metrics if `refusal` has the code 429. `what` is the name of the exceeded limit.
    pub(super) fn count_rejection(&self, refusal: &ApiError, what: &'static str) {
        if refusal.code == StatusCode::TOO_MANY_REQUESTS {
            self.registry.metrics.count_refused_request(what);
        }
    }

    /// Counts a response against the limits of its user until it is sent. Returns the charges, which end when they are
    /// dropped. `bytes` is the size of the response, or `None` for a streamed response. A streamed response is not
    /// charged here: its charges contain a meter, which charges the frames while they are sent.
    ///
    /// Rule: a small response is charged as one response, and a large response by its bytes. A large response also
    /// waits until enough bytes of earlier responses on its connection are sent. Neither applies to the responses to
    /// in-process clients and trusted users.
    pub(super) async fn charge_response(
        &self,
        bytes: Option<usize>,
        state: &RequestState<'_>,
    ) -> Result<ResponseCharges, ResponseRejection> {
        let Some(bytes) = bytes else {
            let meter = state.charged_user().map(|user| self.response_meter(user));
            return Ok(ResponseCharges { meter, ..ResponseCharges::default() });
        };
        if bytes <= LARGE_RESPONSE_BYTES {
            return self.charge_small_response(state);
        }
        let Some(user) = state.charged_user().filter(|_| !state.is_in_process()) else {
            return Ok(ResponseCharges::default());
        };
        let trust = user.trust_level();
        if trust == TrustLevel::Trusted {
            return Ok(ResponseCharges::default());
        }
        // The write is done, so the error must not ask the client to retry.
        let is_read = state.labels.is_read();
        let too_many = || {
            ResponseRejection::Refused(if is_read {
                ApiError::too_many_requests(1)
            } else {
                ApiError::timeout()
            })
        };
        let lease = self.limits.usage.acquire(&user.name, trust, UsageKind::UnsentResponseBytes, bytes);
        let mut charges =
            ResponseCharges { charge: Some(lease.ok_or_else(too_many)?), ..ResponseCharges::default() };
        if let Some(connection) = state.client.and_then(|it| it.connection.as_ref()) {
            let kib = u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX).min(UNSENT_RESPONSES_KIB_MAX);
            let acquiring = connection.unsent_response_kib.clone().acquire_many_owned(kib);
            let acquired = tokio::time::timeout(self.limits.config.response_timeout, acquiring).await;
            let acquired = acquired.ok().and_then(Result::ok);
            charges.connection_kib =
                Some(acquired.ok_or_else(|| ResponseRejection::Refused(ApiError::timeout()))?);
        }
        Ok(charges)
    }

    /// Counts a response of at most `LARGE_RESPONSE_BYTES` against the limit on unsent responses until it is sent.
    /// Fails if the client has too many unsent responses. Responses to in-process clients and trusted users are not
    /// counted.
    ///
    /// Rule: small responses to anonymous clients are charged to the client's address, so that one client cannot use up
    /// the limit of the others.
    pub(super) fn charge_small_response(
        &self,
        state: &RequestState<'_>,
    ) -> Result<ResponseCharges, ResponseRejection> {
        let (Some(client), false) = (state.client, state.is_in_process()) else {
            return Ok(ResponseCharges::default());
        };
        let user = state.charged_user();
        let trust = user.map_or(TrustLevel::Ordinary, User::trust_level);
        if trust == TrustLevel::Trusted {
            return Ok(ResponseCharges::default());
        }
        let usage = &self.limits.usage;
        let lease = match user.filter(|it| !it.is_anonymous()) {
            Some(user) => usage.acquire(&user.name, trust, UsageKind::UnsentSmallResponses, 1),
            None => usage.acquire(&client.address.to_string(), trust, UsageKind::UnsentSmallResponses, 1),
        };
        let charge = Some(lease.ok_or(ResponseRejection::Reset)?);
        Ok(ResponseCharges { charge, is_small: true, ..ResponseCharges::default() })
    }

    /// Returns the meter that counts the unsent frames above 4 KiB of a streamed response against the limit of `user`.
    pub(in crate::http) fn response_meter(&self, user: &User) -> ResponseMeter {
        let trust = user.trust_level();
        ResponseMeter { usage: self.limits.usage.clone(), user: user.name.clone(), trust }
    }
}

/// Returns the user whose limits a request counts against.
///
/// Rule: a request with impersonation is charged to the impersonator, so that users cannot get more seats by
/// impersonation. If the impersonator is trusted, the impersonated user is charged.
pub(super) fn charged_user<'a>(user: &'a User, impersonated: Option<&'a User>) -> &'a User {
    impersonated.filter(|_| user.trust_level() == TrustLevel::Trusted).unwrap_or(user)
}

/// Returns the size of a response body in bytes, or `None` if the response is streamed.
pub(super) fn response_size(response: &ApiResponse) -> Option<usize> {
    match response.body() {
        Either::Left(whole) => usize::try_from(hyper::body::Body::size_hint(whole).lower()).ok(),
        Either::Right(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impersonation_is_charged_to_the_impersonator_unless_it_is_trusted() {
        let account = User::service_account("default", "default");
        let other = User::new("other", ["system:authenticated"]);
        let charged = |user: &User| charged_user(user, Some(&other)).name.clone();
        assert_eq!(charged(&account), account.name, "names that it takes give it no further seats");
        assert_eq!(charged(&User::new("system:node:a", ["system:nodes"])), "system:node:a");
        assert_eq!(charged(&User::server()), "other");
        assert_eq!(charged_user(&account, None).name, account.name);
    }
}
