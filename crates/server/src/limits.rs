//! Limits and timeouts of the server: connections, requests, watches, streams.

use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::connections::ConnectionTracker;
use crate::flow_control::large_body::LargeBodyExecutor;
use crate::flow_control::{FlowControl, UsageKind, UsageLease, UsageLimit, UsageTracker};
use crate::request::{TrustLevel, User};

/// Default maximum number of client connections. 5,000 nodes use one or two connections each. With buffers of 50 kB
/// each, 10,000 connections use at most 500 MB.
const CONNECTIONS_MAX: usize = 10_000;

/// Number of file descriptors that client connections may not use, because the store, logs, listeners and connections
/// to agents need them. Each stream to an agent has its own connection.
const FILE_DESCRIPTORS_RESERVED: usize = 200 + AGENT_STREAMS_MAX;

/// Default maximum number of watches. 5,000 nodes have about eight watches each. At 11 kB each, 50,000 watches use 550
/// MB.
const WATCHES_MAX: usize = 50_000;

/// Number of watches out of [`WATCHES_MAX`] that are reserved for nodes, Muster's own components and members of
/// `system:masters`. If fewer watches are configured, at most three fifths of them are reserved.
const WATCHES_RESERVED: usize = 30_000;

/// Maximum number of watches of one user, except nodes, Muster's own components and members of `system:masters`.
const WATCHES_OF_USER_MAX: usize = 5_000;

/// Maximum number of watches of one node.
const WATCHES_OF_NODE_MAX: usize = 200;

/// Maximum number of streams to agents, such as logs, exec, attach, port-forwards and proxied requests. 500 of
/// them (as many as [`AGENT_STREAMS_OF_USER_MAX`]) are reserved for nodes, Muster's own components and members of
/// `system:masters`. With two buffers of 16 kB and two TLS connections each, 2,000 streams use about 200 MB.
const AGENT_STREAMS_MAX: usize = 2_000;

/// Maximum number of streams to agents of one user, except Muster's own components and members of `system:masters`.
const AGENT_STREAMS_OF_USER_MAX: usize = 500;

/// Maximum number of request bodies that the server receives at the same time. Nodes may send as many in addition.
/// Muster's own components and members of `system:masters` are not limited.
const REQUEST_BODIES_MAX: usize = 4_000;

/// Maximum number of request bodies that the server receives at the same time from one user. Muster's own components
/// and members of `system:masters` are not limited.
const REQUEST_BODIES_OF_USER_MAX: usize = 100;

/// Maximum total bytes of the buffered request bodies that are larger than 64 KiB. Smaller bodies do not count. The
/// same limit applies separately to the bytes of unsent responses that are larger than 64 KiB and of unsent frames of
/// streamed responses that are larger than 4 KiB. Bodies and responses of Muster's own components and members of
/// `system:masters` do not count, except streamed responses.
const BUFFERED_BYTES_MAX: usize = 512 << 20;

/// Like [`BUFFERED_BYTES_MAX`], but for the request bodies of one user, and separately for the unsent responses of one
/// user. It does not apply to Muster's own components and members of `system:masters`.
const BUFFERED_BYTES_OF_USER_MAX: usize = 64 << 20;

/// Bytes in addition to [`BUFFERED_BYTES_MAX`] that are reserved for nodes, and for streamed responses to Muster's own
/// components and members of `system:masters`.
const BUFFERED_BYTES_RESERVED: usize = 64 << 20;

/// Maximum number of unsent small responses (up to 64 KiB). At 20 kB each for stream, task and buffers, 4,000 responses
/// use 80 MB. Nodes may use [`SMALL_RESPONSES_OF_USER_MAX`] in addition. Responses to Muster's own components and
/// members of `system:masters` do not count.
const SMALL_RESPONSES_MAX: usize = 4_000;

/// Maximum number of unsent small responses (up to 64 KiB) of one user, except Muster's own components and members of
/// `system:masters`. This is the number of streams of two HTTP/2 connections.
const SMALL_RESPONSES_OF_USER_MAX: usize = 500;

/// Maximum number of requests without a valid client certificate that wait for the read barrier. With headers of up to
/// 64 KiB each, they hold at most 250 MiB.
const UNVERIFIED_WAITS_MAX: usize = 4_000;

/// Maximum number of requests without a valid client certificate from one address that wait for the read barrier. A
/// read barrier takes a few milliseconds, so one address can send about 100,000 requests with tokens per second.
const UNVERIFIED_WAITS_OF_ADDRESS_MAX: usize = 500;

/// Maximum number of streams on one HTTP/2 connection, as in upstream. Connections of Muster's own components and of
/// users in `system:masters` have [`TRUSTED_HTTP2_STREAMS_MAX`] instead.
const HTTP2_STREAMS_MAX: u32 = 250;

/// Maximum number of streams on one HTTP/2 connection of Muster's own components or of a user in `system:masters`. It
/// is larger than [`HTTP2_STREAMS_MAX`], because one process may have the watches of thousands of simulated nodes.
const TRUSTED_HTTP2_STREAMS_MAX: u32 = 4_000;

/// Maximum number of response bytes buffered for one HTTP/2 stream.
pub(crate) const STREAM_BUFFER_BYTES: usize = 128 << 10;

/// Maximum number of headers of a request.
pub(crate) const HEADERS_MAX: usize = 100;

/// Maximum total bytes of the headers of a request: enough for a token of 8 KiB, many impersonated groups, and a URL.
pub(crate) const HEADER_BYTES_MAX: usize = 64 << 10;

/// Maximum length of a URL in bytes: half of [`HEADER_BYTES_MAX`], and enough for long label selectors.
pub(crate) const URL_BYTES_MAX: usize = 32 << 10;

/// Maximum time until the headers of the next HTTP/1 request are complete. If it is exceeded, the server closes the
/// connection. An HTTP/2 connection is closed if the client sends nothing for this time.
pub(crate) const HEADER_TIMEOUT: Duration = Duration::from_secs(90);

/// Interval at which the server pings the client of an HTTP/2 connection.
pub(crate) const HTTP2_PING_INTERVAL: Duration = Duration::from_secs(30);

/// Maximum time that the server waits for the response to an HTTP/2 ping. Afterwards it closes the connection.
pub(crate) const HTTP2_PING_TIMEOUT: Duration = Duration::from_secs(20);

/// Maximum duration of a watch, even if the client requests a longer `timeoutSeconds`.
pub(crate) const WATCH_TIMEOUT_MAX: Duration = Duration::from_secs(12 * 60 * 60);

/// Limits and timeouts that flags of `muster server` and `muster up` set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitsConfig {
    /// Maximum number of read requests that execute at the same time (seats). Upstream: `--max-requests-inflight`.
    pub reads: usize,
    /// Maximum number of write requests that execute at the same time (seats). Upstream:
    /// `--max-mutating-requests-inflight`.
    pub writes: usize,
    /// Maximum time that a request waits in the queue for a seat.
    pub queue_timeout: Duration,
    /// Maximum duration of a request, except watches and streams. `Duration::MAX` means no limit. Upstream:
    /// `--request-timeout`.
    pub request_timeout: Duration,
    /// Maximum time until a request body begins to arrive. After that, the body must arrive at a minimum average rate.
    pub body_timeout: Duration,
    /// Maximum time that the server waits for a client that reads nothing of a response.
    pub response_timeout: Duration,
    /// Interval at which the clients of open watches and streams are authenticated and authorized again.
    pub reauthorize_interval: Duration,
    /// Maximum number of watches of all users together.
    pub watches: usize,
    /// Maximum number of client connections. The server reduces it if the limit on open files is too low.
    pub connections: usize,
}

impl Default for LimitsConfig {
    fn default() -> Self {
        Self {
            reads: 400,
            writes: 200,
            queue_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(60),
            body_timeout: Duration::from_secs(10),
            response_timeout: Duration::from_secs(60),
            reauthorize_interval: Duration::from_secs(60),
            watches: WATCHES_MAX,
            connections: CONNECTIONS_MAX,
        }
    }
}

/// The configured limits, and the current usage that is checked against them.
#[derive(Debug)]
pub(crate) struct ServerLimits {
    pub(crate) config: LimitsConfig,
    /// The open connections, by client address and user.
    pub(crate) connections: Arc<ConnectionTracker>,
    /// Seats and queues: which requests execute, and which wait.
    pub(crate) flow_control: Arc<FlowControl>,
    /// Runs the handlers of requests with large bodies.
    pub(crate) large_bodies: LargeBodyExecutor,
    /// Resource usage of each user: request bodies, responses, watches and agent streams.
    pub(crate) usage: Arc<UsageTracker>,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self::new(LimitsConfig::default())
    }
}

impl ServerLimits {
    pub(crate) fn new(config: LimitsConfig) -> Self {
        let watches_reserved = WATCHES_RESERVED.min(config.watches * 3 / 5);
        let bytes = UsageLimit {
            per_user_max: BUFFERED_BYTES_OF_USER_MAX,
            per_node_max: BUFFERED_BYTES_OF_USER_MAX,
            total_max: BUFFERED_BYTES_MAX,
            reserve: BUFFERED_BYTES_RESERVED,
        };
        let small_responses = UsageLimit {
            per_user_max: SMALL_RESPONSES_OF_USER_MAX,
            per_node_max: SMALL_RESPONSES_OF_USER_MAX,
            total_max: SMALL_RESPONSES_MAX,
            reserve: SMALL_RESPONSES_OF_USER_MAX,
        };
        let bodies = UsageLimit {
            per_user_max: REQUEST_BODIES_OF_USER_MAX,
            per_node_max: REQUEST_BODIES_OF_USER_MAX,
            total_max: REQUEST_BODIES_MAX,
            reserve: REQUEST_BODIES_MAX,
        };
        let watches = UsageLimit {
            per_user_max: WATCHES_OF_USER_MAX.min(config.watches),
            per_node_max: WATCHES_OF_NODE_MAX.min(config.watches),
            total_max: config.watches - watches_reserved,
            reserve: watches_reserved,
        };
        let agent_streams = UsageLimit {
            per_user_max: AGENT_STREAMS_OF_USER_MAX,
            per_node_max: AGENT_STREAMS_OF_USER_MAX,
            total_max: AGENT_STREAMS_MAX - AGENT_STREAMS_OF_USER_MAX,
            reserve: AGENT_STREAMS_OF_USER_MAX,
        };
        let unverified_waits = UsageLimit {
            per_user_max: UNVERIFIED_WAITS_OF_ADDRESS_MAX,
            per_node_max: UNVERIFIED_WAITS_OF_ADDRESS_MAX,
            total_max: UNVERIFIED_WAITS_MAX,
            reserve: 0,
        };
        Self {
            config,
            connections: Arc::new(ConnectionTracker::new(config.connections)),
            flow_control: Arc::new(FlowControl::new(config.reads, config.writes, config.queue_timeout)),
            large_bodies: LargeBodyExecutor::default(),
            usage: Arc::new(UsageTracker::new([
                bodies,
                bytes,
                bytes,
                small_responses,
                watches,
                agent_streams,
                unverified_waits,
            ])),
        }
    }

    /// Acquires a lease for one watch. Returns `None` if the user, or all users together, have too many watches.
    pub(crate) fn acquire_watch(&self, user: &User) -> Option<UsageLease> {
        self.usage.acquire(&user.name, user.trust_level(), UsageKind::Watches, 1)
    }

    /// Acquires a lease for one stream to an agent. Returns `None` if the user, or all users together, have too many
    /// streams.
    pub(crate) fn acquire_agent_stream(&self, user: &User) -> Option<UsageLease> {
        self.usage.acquire(&user.name, user.trust_level(), UsageKind::AgentStreams, 1)
    }
}

/// Returns the maximum number of streams on an HTTP/2 connection. `peer` is the user of the client certificate.
///
/// Rule: an HTTP/2 connection may have 250 streams, as in upstream. A connection of one of Muster's own components or
/// of a user in `system:masters` may have 4,000.
pub(crate) fn http2_streams_max(peer: Option<&User>) -> u32 {
    match peer.map(User::trust_level) {
        Some(TrustLevel::Trusted) => TRUSTED_HTTP2_STREAMS_MAX,
        _ => HTTP2_STREAMS_MAX,
    }
}

/// Raises the limit on open files, and returns the number of connections that it allows, at most `requested`.
///
/// Rule: the soft limit on open files is raised to the hard limit. 2,200 file descriptors are reserved for other uses
/// than client connections, 2,000 of them for streams to agents. With a low limit, at most half of the file descriptors
/// are reserved.
pub(crate) fn raise_open_file_limit(requested: usize) -> usize {
    let limit = getrlimit(Resource::Nofile);
    if limit.current < limit.maximum || limit.maximum.is_none() {
        // In a container this may not be permitted; then the soft limit applies.
        let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
        if let Err(error) = setrlimit(Resource::Nofile, raised) {
            tracing::debug!(%error, "cannot raise the limit on open files");
        }
    }
    let files = getrlimit(Resource::Nofile)
        .current
        .map_or(usize::MAX, |it| usize::try_from(it).unwrap_or(usize::MAX));
    let fit = connections_for_files(files).min(requested);
    if fit < requested {
        tracing::warn!(
            files,
            connections = fit,
            "the limit on open files allows fewer connections: raise it with ulimit -n"
        );
    }
    fit
}

/// Returns the number of connections that a limit of `files` open files allows. Reserves `FILE_DESCRIPTORS_RESERVED`
/// files for other uses, but never more than half of all files.
fn connections_for_files(files: usize) -> usize {
    files.saturating_sub(FILE_DESCRIPTORS_RESERVED).max(files / 2).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_files_for_the_rest() {
        let fit: Vec<_> = [64, 1024, 4400, 5000, 1 << 20].map(connections_for_files).into();
        assert_eq!(fit, [32, 512, 2200, 2800, (1 << 20) - 2200]);
        for files in [4400, 5000, 1 << 20] {
            assert!(connections_for_files(files) + AGENT_STREAMS_MAX < files, "{files}");
        }
    }

    #[test]
    fn the_soft_limit_on_files_is_raised() {
        assert!(1 <= raise_open_file_limit(10));
        let limit = getrlimit(Resource::Nofile);
        assert_eq!(limit.current, limit.maximum);
    }

    #[test]
    fn watches_of_one_user_and_of_one_node_are_bounded() {
        let limits = ServerLimits::new(LimitsConfig::default());
        let watches = |user: &User| std::iter::from_fn(|| limits.acquire_watch(user)).collect::<Vec<_>>();
        let flood = watches(&User::service_account("default", "default"));
        let node = watches(&User::new("system:node:a", ["system:nodes"]));
        assert_eq!((flood.len(), node.len()), (5_000, 200));
        assert!(limits.acquire_watch(&User::service_account("default", "other")).is_some());
        assert!(limits.acquire_watch(&User::new("system:node:b", ["system:nodes"])).is_some());
    }

    #[test]
    fn users_together_leave_the_reserved_watches() {
        let limits = ServerLimits::new(LimitsConfig::default());
        let users = (0..6).map(|it| User::service_account("default", &it.to_string()));
        let mut held = Vec::new();
        for user in users {
            held.extend(std::iter::from_fn(|| limits.acquire_watch(&user)));
        }
        assert_eq!(held.len(), WATCHES_MAX - WATCHES_RESERVED);
        assert!(limits.acquire_watch(&User::new("system:node:a", ["system:nodes"])).is_some());
    }

    #[test]
    fn watches_of_a_user_leave_watches_for_others() {
        let limits = ServerLimits::new(LimitsConfig { watches: 20, ..LimitsConfig::default() });
        let watches = |user: &User| std::iter::from_fn(|| limits.acquire_watch(user)).collect::<Vec<_>>();
        let flood = watches(&User::service_account("default", "default"));
        assert_eq!(flood.len(), 8, "three fifths of a small total are reserved");
        assert!(limits.acquire_watch(&User::service_account("default", "other")).is_none());
        assert!(limits.acquire_watch(&User::new("system:node:a", ["system:nodes"])).is_some());
        assert!(limits.acquire_watch(&User::server()).is_some());
        assert!(
            limits.acquire_watch(&User::new("system:muster-controller", ["system:authenticated"])).is_some()
        );
    }
}
