//! The calls that the backend makes to etcd. [`EtcdClient`](crate::EtcdClient) makes them over gRPC, and tests
//! implement them in memory with faults.

use std::pin::Pin;
use std::time::Duration;

use futures::Stream;
use tokio::time::Instant;

use crate::proto::{
    CompactionRequest, RangeRequest, RangeResponse, TxnRequest, TxnResponse, WatchCreateRequest,
    WatchResponse,
};

/// Time after which [`retry`] gives up.
pub(crate) const RETRY_TIMEOUT: Duration = Duration::from_secs(30);

/// Delay before [`retry`] repeats a call.
pub(crate) const RETRY_DELAY: Duration = Duration::from_millis(200);

/// Messages of a member that cannot execute requests at the moment: a learner, a member that does not know the version
/// of its cluster yet, and one without a leader. It sends them before it proposes a request.
/// Upstream: `newUnaryInterceptor` and `newStreamInterceptor`.
const NOT_SERVED_MESSAGES: [&str; 4] =
    ["rpc not supported for learner", "not capable", "no leader", "not leader"];

/// The calls that the backend makes to etcd. A write is sent to another member only if the first one has not executed
/// it. After a write without a response, the backend decides whether to repeat it. A read may be repeated at other
/// members.
pub trait EtcdApi: Send + Sync + 'static {
    /// Checks that a member responds, that the members have a supported version, and that they belong to one etcd
    /// cluster. It is called once, before all other calls.
    fn check(&self) -> impl Future<Output = Result<(), EtcdError>> + Send;

    /// Reads a range of keys.
    fn range(&self, request: RangeRequest) -> impl Future<Output = Result<RangeResponse, EtcdError>> + Send;

    /// Executes a transaction.
    fn txn(&self, request: TxnRequest) -> impl Future<Output = Result<TxnResponse, EtcdError>> + Send;

    /// Compacts the history of etcd.
    fn compact(&self, request: CompactionRequest) -> impl Future<Output = Result<(), EtcdError>> + Send;

    /// Opens a watch on a member that has a leader. The stream ends with an error when the member loses its leader.
    fn watch(
        &self,
        request: WatchCreateRequest,
    ) -> impl Future<Output = Result<WatchStream, EtcdError>> + Send;
}

/// The responses of a watch.
pub type WatchStream = Pin<Box<dyn Stream<Item = Result<WatchResponse, EtcdError>> + Send>>;

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EtcdError {
    /// There was no usable response. A transaction may or may not have been applied.
    #[error("etcd did not respond: {why}")]
    NoResponse { why: String },
    /// No member could execute the request. A transaction was not applied.
    #[error("no member of etcd can serve requests: {why}")]
    NotServed { why: String },
    /// The alarm NOSPACE is active: etcd accepts only reads and deletes. The transaction that exceeds the quota gets
    /// this error too, although it is applied.
    #[error(
        "the database of etcd is full (alarm NOSPACE): reads and deletes still work. Delete objects, then compact and \
         defragment etcd and run `etcdctl alarm disarm`, or raise --quota-backend-bytes of etcd first"
    )]
    NoSpace,
    /// etcd rejected the request. A rejected transaction was not applied.
    #[error("etcd rejected the request: {why}")]
    Rejected { why: String },
    /// A member has a version that is not supported.
    #[error("{why}")]
    Version { why: String },
    /// The members belong to different etcd clusters, or all of them to another one than before.
    #[error("{why}")]
    Foreign { why: String },
    /// The requested revision was compacted.
    #[error("etcd has compacted the requested revision")]
    Compacted,
}

impl EtcdError {
    /// Whether a repetition of the call is not expected to succeed: the error is neither [`Self::NoResponse`] nor
    /// [`Self::NotServed`].
    pub(crate) fn is_final(&self) -> bool {
        !matches!(self, Self::NoResponse { .. } | Self::NotServed { .. })
    }

    /// Classifies the gRPC status of a failed call.
    pub(crate) fn from_status(status: &tonic::Status) -> Self {
        let why = format!("{} ({:?})", status.message(), status.code());
        match status.code() {
            // The code of some of these depends on the version of etcd.
            _ if NOT_SERVED_MESSAGES.iter().any(|it| status.message().contains(it)) => {
                Self::NotServed { why }
            }
            tonic::Code::ResourceExhausted if status.message().contains("space exceeded") => Self::NoSpace,
            tonic::Code::OutOfRange if status.message().contains("compacted") => Self::Compacted,
            tonic::Code::InvalidArgument
            | tonic::Code::OutOfRange
            | tonic::Code::FailedPrecondition
            | tonic::Code::PermissionDenied
            | tonic::Code::Unauthenticated
            | tonic::Code::Unimplemented => Self::Rejected { why },
            // "etcdserver: too many requests": the request was not proposed.
            tonic::Code::ResourceExhausted if status.message().contains("too many requests") => {
                Self::Rejected { why }
            }
            _ => Self::NoResponse { why },
        }
    }
}

/// Repeats a call until etcd responds, or until [`RETRY_TIMEOUT`] has passed. The call must have the same result if it
/// is executed twice.
pub(crate) async fn retry<T, F: Future<Output = Result<T, EtcdError>>>(
    mut call: impl FnMut() -> F,
) -> Result<T, EtcdError> {
    let deadline = Instant::now() + RETRY_TIMEOUT;
    loop {
        match call().await {
            Err(error) if !error.is_final() && Instant::now() < deadline => {
                tokio::time::sleep(RETRY_DELAY).await;
            }
            result => return result,
        }
    }
}
