//! Reads request bodies within limits. Each body has a maximum size and a minimum rate. For each user and for each
//! connection, the number of unfinished bodies and the total size of large bodies are limited.

use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::Body;
use tokio::time::Instant;

use super::BodyError;
use super::usage::UsageKind;
use super::{RequestClient, UsageLease, UsageTracker};
use crate::error::ApiError;
use crate::request::{TrustLevel, User};

/// Maximum size of a request body in bytes, as in upstream. A ConfigMap may hold 1 MiB, and JSON escapes make its body
/// larger.
pub(crate) const BODY_BYTES_MAX: usize = 3 << 20;

/// Minimum average rate at which a request body must arrive after `RequestBodyContext::initial_timeout`.
const MIN_BYTES_PER_SECOND: u64 = 64 << 10;

/// Maximum size in bytes of a request body that is not charged to its user. The limits on the number of requests
/// already bound the memory of such bodies.
const UNCHARGED_BYTES_MAX: usize = 64 << 10;

/// A request body that has arrived completely. A large body is charged to its user until it is dropped, unless the user
/// is trusted.
#[derive(Debug, Default)]
pub(crate) struct RequestBody {
    pub(crate) bytes: Bytes,
    /// The charge for a large body: usage of the user, and permits of the connection unless the client is in-process.
    /// It ends when the body is dropped. `None` if the body is not charged.
    _charge: Option<(UsageLease, Option<tokio::sync::OwnedSemaphorePermit>)>,
}

/// Who sends a request body, and the limits that apply to the body.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestBodyContext<'a> {
    pub(crate) user: &'a User,
    /// The client that sends the body, if known.
    pub(crate) client: Option<&'a RequestClient>,
    /// Tracks the usage that is charged to users.
    pub(crate) usage: &'a std::sync::Arc<UsageTracker>,
    /// Time within which the first bytes of the body must arrive.
    pub(crate) initial_timeout: Duration,
}

impl RequestBodyContext<'_> {
    /// Acquires a permit for one unfinished body, which is a body that has not arrived completely. Returns a 429 error
    /// if none is free.
    ///
    /// Rule: the number of unfinished bodies is limited for each user and for each connection. Trusted users are not
    /// limited.
    fn acquire_body_permit(&self) -> Result<impl Sized + use<>, ApiError> {
        let too_many = || ApiError::too_many_requests(1);
        if self.user.trust_level() == TrustLevel::Trusted {
            return Ok(None);
        }
        let of_user = self.acquire_usage(UsageKind::UnfinishedBodies, 1).ok_or_else(too_many)?;
        let connection = self.client.and_then(|it| it.connection.as_ref());
        let of_connection = match connection {
            Some(it) => Some(it.unfinished_bodies.clone().try_acquire_owned().map_err(|_| too_many())?),
            None => None,
        };
        Ok(Some((of_user, of_connection)))
    }

    /// Charges the bytes of a large body to the user and the connection. Returns a 429 error if a limit would be
    /// exceeded, and `None` for a trusted user.
    ///
    /// Rule: the total size of large bodies is limited for each user and for each connection. Trusted users are not
    /// limited.
    fn charge_body_bytes(
        &self,
        bytes: usize,
    ) -> Result<Option<(UsageLease, Option<tokio::sync::OwnedSemaphorePermit>)>, ApiError> {
        let too_many = || ApiError::too_many_requests(1);
        if self.user.trust_level() == TrustLevel::Trusted {
            return Ok(None);
        }
        let of_user = self.acquire_usage(UsageKind::BodyBytes, bytes).ok_or_else(too_many)?;
        let of_connection = match self.client.and_then(|it| it.connection.as_ref()) {
            Some(it) => {
                let kib = u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX);
                Some(it.large_body_kib.clone().try_acquire_many_owned(kib).map_err(|_| too_many())?)
            }
            None => None,
        };
        Ok(Some((of_user, of_connection)))
    }

    /// Acquires a lease for an amount of usage, which is charged to the user until the lease is dropped. Returns `None`
    /// if that would exceed a limit.
    fn acquire_usage(&self, what: UsageKind, amount: usize) -> Option<UsageLease> {
        self.usage.acquire(&self.user.name, self.user.trust_level(), what, amount)
    }
}

/// Reads a request body until its end.
///
/// Rule: a body has at most 3 MiB. It must begin to arrive within `initial_timeout` and must then arrive at a minimum
/// rate. A body that arrives together with the headers does not count as unfinished.
pub(crate) async fn receive_body<B>(body: B, context: RequestBodyContext<'_>) -> Result<RequestBody, ApiError>
where
    B: Body<Error: Into<BodyError>>,
{
    if body.is_end_stream() {
        return Ok(RequestBody::default());
    }
    let announced = body.size_hint().exact().map(|it| usize::try_from(it).unwrap_or(usize::MAX));
    if announced.is_some_and(|it| BODY_BYTES_MAX < it) {
        return Err(ApiError::body_too_large(BODY_BYTES_MAX));
    }
    let mut body = pin!(body);
    let began = Instant::now();
    let (mut first, mut rest) = (Bytes::new(), BytesMut::new());
    let (mut unfinished, mut charged) = (None, None);
    loop {
        let received = first.len() + rest.len();
        if UNCHARGED_BYTES_MAX < received && charged.is_none() {
            charged = Some(context.charge_body_bytes(announced.unwrap_or(BODY_BYTES_MAX))?);
        }
        let mut next = pin!(body.frame());
        let polled = futures::poll!(next.as_mut()).map_err(Into::<BodyError>::into);
        let frame = match polled {
            Poll::Ready(frame) => frame,
            Poll::Pending => {
                if unfinished.is_none() {
                    unfinished = Some(context.acquire_body_permit()?);
                }
                let earned = Duration::from_millis(received as u64 * 1000 / MIN_BYTES_PER_SECOND);
                let deadline = began + context.initial_timeout + earned;
                let frame = tokio::time::timeout_at(deadline, next).await;
                frame.map_err(|_| ApiError::body_timeout())?.map(|it| it.map_err(Into::into))
            }
        };
        let Some(frame) = frame else { break };
        let failed = |error: BodyError| ApiError::bad_request(format!("read the request's body: {error}"));
        let frame = frame.map_err(failed)?;
        let Ok(mut data) = frame.into_data() else { continue };
        let length = bytes::Buf::remaining(&data);
        if BODY_BYTES_MAX < received + length {
            return Err(ApiError::body_too_large(BODY_BYTES_MAX));
        }
        if received == 0 {
            first = bytes::Buf::copy_to_bytes(&mut data, length);
        } else {
            bytes::BufMut::put(&mut rest, data);
        }
    }
    let bytes = if rest.is_empty() { first } else { [&first[..], &rest[..]].concat().into() };
    Ok(RequestBody { bytes, _charge: charged.flatten() })
}
