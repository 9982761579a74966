//! Parses durations in flag values.

use std::time::Duration;

use anyhow::bail;
use muster_api::time::{self, DurationError};

/// Parses a positive duration such as `500ms`, `30s`, `15m`, `24h` or `7d`.
pub(crate) fn parse_duration(text: &str) -> anyhow::Result<Duration> {
    match parse_nonnegative_duration(text)? {
        Duration::ZERO => bail!("{text:?} is not a positive duration"),
        duration => Ok(duration),
    }
}

/// Parses a duration that may be zero, such as `0s`, `500ms`, `30s`, `15m`, `24h` or `7d`.
pub(crate) fn parse_nonnegative_duration(text: &str) -> anyhow::Result<Duration> {
    match time::parse_duration(text) {
        Ok(duration) => Ok(duration),
        Err(DurationError::InvalidUnit) => {
            bail!("{text:?} is not a duration such as 500ms, 30s, 15m, 24h or 7d")
        }
        Err(DurationError::InvalidNumber) => bail!("{text:?} has no number"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        let said: Vec<_> = ["500ms", "30s", "15m", "24h", "7d", "0s", "15", "h", ""]
            .iter()
            .map(|it| parse_duration(it).map_err(|it| it.to_string()))
            .map(|it| format!("{it:?}"))
            .collect();
        expect_test::expect![[r#"
            Ok(500ms)
            Ok(30s)
            Ok(900s)
            Ok(86400s)
            Ok(604800s)
            Err("\"0s\" is not a positive duration")
            Err("\"15\" is not a duration such as 500ms, 30s, 15m, 24h or 7d")
            Err("\"h\" has no number")
            Err("\"\" is not a duration such as 500ms, 30s, 15m, 24h or 7d")"#]]
        .assert_eq(&said.join("\n"));
    }
}
