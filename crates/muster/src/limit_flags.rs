//! Flags for the limits and deadlines of the API server.

use std::num::NonZeroUsize;
use std::time::Duration;

use anyhow::bail;
use muster_server::LimitsConfig;

use crate::duration_flag;

/// Maximum of `--reauthorization-interval`, so that a watch or stream ends at most a minute after its credential was
/// revoked.
const REAUTHORIZATION_INTERVAL_MAX: Duration = Duration::from_secs(60);

/// Flags for the limits and deadlines of the API server.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Limits of the API server")]
pub(crate) struct LimitFlags {
    /// Maximum number of concurrent read requests; further requests wait in a fair queue per user
    #[arg(long, value_name = "N", default_value = "400")]
    max_requests_inflight: NonZeroUsize,
    /// Maximum number of concurrent write requests; further requests wait in a fair queue per user
    #[arg(long, value_name = "N", default_value = "200")]
    max_mutating_requests_inflight: NonZeroUsize,
    /// Time after which a queued request is rejected with 429
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration_flag::parse_duration)]
    request_queue_timeout: Duration,
    /// Time after which a request times out with 504; watches, logs, exec and proxies are exempt
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration_flag::parse_duration)]
    request_timeout: Duration,
    /// Time for the first bytes of a request body, which must then arrive at 64 KiB/s on average, or the request is
    /// rejected with 408
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration_flag::parse_duration)]
    request_body_timeout: Duration,
    /// Time without progress after which an unread response is dropped: over HTTP/2 its stream is reset, over HTTP/1
    /// the connection is closed; the whole response must also be read within this time plus 1s per 16 KiB, except for
    /// watches, logs, exec and proxies
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration_flag::parse_duration)]
    response_timeout: Duration,
    /// Interval at which the credentials and permissions of open watches, logs, exec and port-forwards are rechecked, at
    /// most 60s
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_reauthorization_interval)]
    reauthorization_interval: Duration,
    /// Maximum number of concurrent watches of all users; one user may have at most 5,000
    #[arg(long, value_name = "N", default_value = "50000")]
    max_watches: NonZeroUsize,
    /// Maximum number of concurrent connections; the limit on open files may lower it
    #[arg(long, value_name = "N", default_value = "10000")]
    max_connections: NonZeroUsize,
}

impl LimitFlags {
    /// Returns the server's limits that the flags specify.
    pub(crate) fn limits_config(&self) -> LimitsConfig {
        LimitsConfig {
            reads: self.max_requests_inflight.get(),
            writes: self.max_mutating_requests_inflight.get(),
            queue_timeout: self.request_queue_timeout,
            request_timeout: self.request_timeout,
            body_timeout: self.request_body_timeout,
            response_timeout: self.response_timeout,
            reauthorize_interval: self.reauthorization_interval,
            watches: self.max_watches.get(),
            connections: self.max_connections.get(),
        }
    }
}

/// Parses a positive duration of at most [`REAUTHORIZATION_INTERVAL_MAX`].
fn parse_reauthorization_interval(text: &str) -> anyhow::Result<Duration> {
    let interval = duration_flag::parse_duration(text)?;
    if REAUTHORIZATION_INTERVAL_MAX < interval {
        bail!(
            "{text:?} is longer than 60s, and a watch or stream must end within a minute after its credential was revoked"
        );
    }
    Ok(interval)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        limits: LimitFlags,
    }

    #[test]
    fn the_defaults_of_the_flags_are_those_of_the_server() {
        let parsed = Command::parse_from(["muster"]);
        assert_eq!(parsed.limits.limits_config(), LimitsConfig::default());
        assert!(Command::try_parse_from(["muster", "--request-timeout", "0s"]).is_err());
    }

    #[test]
    fn reauthorization_interval_is_at_most_a_minute() {
        let parse = |it| Command::try_parse_from(["muster", "--reauthorization-interval", it]);
        let Ok(parsed) = parse("1m") else { panic!("1m is accepted") };
        assert_eq!(parsed.limits.limits_config().reauthorize_interval, REAUTHORIZATION_INTERVAL_MAX);
        for too_long in ["61s", "2m", "24h"] {
            let Err(error) = parse(too_long) else { panic!("{too_long} is refused") };
            let expected = format!("{too_long:?} is longer than 60s");
            assert!(error.to_string().contains(&expected), "{error}");
        }
    }
}
