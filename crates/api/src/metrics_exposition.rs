//! The exposition formats of `/metrics`: content negotiation, and conversion from OpenMetrics to the Prometheus text
//! format.
//!
//! The metrics library writes OpenMetrics. A scraper that does not request OpenMetrics gets the Prometheus text format,
//! as from upstream's components.

use alloc::string::String;

/// A text format of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpositionFormat {
    /// The Prometheus text format, version 0.0.4.
    Text,
    /// The OpenMetrics text format, version 1.0.0.
    OpenMetrics,
}

impl ExpositionFormat {
    /// Returns the format that an `Accept` header selects.
    ///
    /// Rule: a client gets OpenMetrics if its `Accept` header gives OpenMetrics a weight above zero, and gives neither
    /// plain text nor a wildcard a higher weight. Otherwise it gets plain text. Upstream:
    /// `expfmt.NegotiateIncludingOpenMetrics`.
    pub fn negotiate(accept: &str) -> Self {
        let mut best = (0.0, Self::Text);
        for range in accept.split(',') {
            let mut parameters = range.split(';').map(str::trim);
            let format = match parameters.next().unwrap_or_default() {
                "application/openmetrics-text" => Self::OpenMetrics,
                "text/plain" | "text/*" | "*/*" => Self::Text,
                _ => continue,
            };
            let mut weight = 1.0;
            for parameter in parameters {
                if let Some(value) = parameter.strip_prefix("q=") {
                    weight = value.trim().parse::<f32>().unwrap_or(0.0);
                }
            }
            let is_better = best.0 < weight || (best.0 == weight && format == Self::OpenMetrics);
            if 0.0 < weight && is_better {
                best = (weight, format);
            }
        }
        best.1
    }

    /// Returns the media type of the format, for the header `Content-Type`.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// Converts metrics in the OpenMetrics format to this format.
    pub fn encode(self, metrics: String) -> String {
        match self {
            Self::OpenMetrics => metrics,
            Self::Text => to_prometheus_text(&metrics),
        }
    }
}

/// Converts OpenMetrics to the Prometheus text format. In the text format, the name of a counter has the suffix
/// `_total` in the HELP and TYPE lines as in the samples, and there are no UNIT and EOF lines. Metrics of the type
/// `info` become gauges with the suffix `_info`, and other types that the text format does not have become `untyped`.
fn to_prometheus_text(metrics: &str) -> String {
    let mut text = String::with_capacity(metrics.len());
    // HELP precedes TYPE, which decides how both are written.
    let mut help: Option<(&str, &str)> = None;
    for line in metrics.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = Some(rest.split_once(' ').unwrap_or((rest, "")));
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|it| it.split_once(' ')) {
            let (suffix, kind) = match kind {
                "counter" => ("_total", kind),
                "info" => ("_info", "gauge"),
                "gauge" | "histogram" | "summary" => ("", kind),
                _ => ("", "untyped"),
            };
            if let Some((_, help)) = help.take().filter(|it| it.0 == name) {
                write_line(&mut text, &["# HELP ", name, suffix, " ", help]);
            }
            write_line(&mut text, &["# TYPE ", name, suffix, " ", kind]);
        } else if !line.starts_with('#') {
            write_line(&mut text, &[line]);
        }
    }
    text
}

/// Appends a line to the text: the parts, then a newline.
fn write_line(text: &mut String, parts: &[&str]) {
    for part in parts {
        text.push_str(part);
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use alloc::borrow::ToOwned as _;

    use super::*;

    #[test]
    fn plain_text_unless_openmetrics_is_asked_for() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;q=0.3,*/*;q=0.1";
        for (accept, format) in [
            ("", ExpositionFormat::Text),
            ("*/*", ExpositionFormat::Text),
            ("text/plain", ExpositionFormat::Text),
            ("application/json", ExpositionFormat::Text),
            ("application/openmetrics-text", ExpositionFormat::OpenMetrics),
            ("application/openmetrics-text; version=1.0.0, text/plain", ExpositionFormat::OpenMetrics),
            ("application/openmetrics-text;q=0.1,text/plain;q=0.9", ExpositionFormat::Text),
            ("application/openmetrics-text;q=0", ExpositionFormat::Text),
            (prometheus, ExpositionFormat::OpenMetrics),
        ] {
            assert_eq!(ExpositionFormat::negotiate(accept), format, "{accept}");
        }
    }

    #[test]
    fn openmetrics_is_rewritten_as_plain_text() {
        let metrics = "\
# HELP requests Requests answered.
# TYPE requests counter
requests_total{code=\"200\"} 3
# HELP took_seconds Time.
# TYPE took_seconds histogram
# UNIT took_seconds seconds
took_seconds_sum 1.5
took_seconds_bucket{le=\"+Inf\"} 2
# TYPE build info
build_info{version=\"1\"} 1
# EOF
";
        let text = "\
# HELP requests_total Requests answered.
# TYPE requests_total counter
requests_total{code=\"200\"} 3
# HELP took_seconds Time.
# TYPE took_seconds histogram
took_seconds_sum 1.5
took_seconds_bucket{le=\"+Inf\"} 2
# TYPE build_info gauge
build_info{version=\"1\"} 1
";
        assert_eq!(ExpositionFormat::Text.encode(metrics.to_owned()), text);
        assert_eq!(ExpositionFormat::OpenMetrics.encode(metrics.to_owned()), metrics);
    }
}
