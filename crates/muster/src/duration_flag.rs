//! Durations as flag values.

use std::time::Duration;

use anyhow::{Context as _, bail};

/// Parses a positive duration: `500ms`, `30s`, `15m`, `24h`, `7d`.
pub(crate) fn parse_duration(text: &str) -> anyhow::Result<Duration> {
    let (number, unit) = text.split_at(text.find(|it: char| !it.is_ascii_digit()).unwrap_or(text.len()));
    let unit_ms = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60 * 1000,
        "h" => 60 * 60 * 1000,
        "d" => 24 * 60 * 60 * 1000,
        _ => bail!("{text:?} is not a duration such as 500ms, 30s, 15m, 24h or 7d"),
    };
    let number: u32 = number.parse().with_context(|| format!("{text:?} has no number"))?;
    if number == 0 {
        bail!("{text:?} is not a positive duration");
    }
    Ok(Duration::from_millis(u64::from(number) * unit_ms))
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
