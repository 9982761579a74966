//! Writes log lines to standard error, as text for people or as JSON for log collectors.
//!
//! While standard error cannot be written, lines are dropped, see [`output`]. Repeated warnings and errors are
//! rate-limited, see [`repeat_suppression`].

/// Writes to standard error and standard output.
mod output;
/// Suppresses repeated warnings and errors.
mod repeat_suppression;

use std::backtrace::{Backtrace, BacktraceStatus};
use std::fmt;
use std::io::IsTerminal as _;
use std::panic::PanicHookInfo;
use std::sync::Mutex;
use std::time::Instant;

use anyhow::Context as _;
use jiff::Timestamp;
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::Directive;
use tracing_subscriber::fmt::format::{Format as TextFormat, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use output::StderrQueue;
use repeat_suppression::{PrintDecision, RecentMessages};

pub(crate) use output::{
    aligned_table, flush, overwrite_terminal_line, print_ready_line, print_to_stderr, print_to_stdout,
    stdout_result,
};

/// Format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(crate) enum LogFormat {
    #[default]
    Text,
    /// One JSON object per line
    Json,
}

/// Starts logging, and sets the panic hook. `level` is one level, or a list such as `warn,muster_control=debug`. The
/// variable RUST_LOG overrides `level`.
pub(crate) fn init(format: LogFormat, level: &str) -> anyhow::Result<()> {
    let filter = match std::env::var("RUST_LOG") {
        Ok(filter) if !filter.is_empty() => EnvFilter::new(filter),
        _ => {
            let filter = EnvFilter::builder().parse(level);
            let filter = filter.with_context(|| format!("{level:?} is not a log level"))?;
            // rustls warns about each client that sends an IP address as SNI, as Ruby's Kubernetes client does.
            if level.contains(ERRORS_ONLY_TARGET) {
                filter
            } else {
                filter.add_directive(errors_only_directive())
            }
        }
    };
    // Internal errors are reported with `eprintln!`, which panics if standard error cannot be written.
    let lines = tracing_subscriber::fmt().with_env_filter(filter).log_internal_errors(false);
    let lines = lines.with_writer(StderrQueue::get_or_start());
    match format {
        LogFormat::Text => {
            let text = TextFormat::default().with_ansi(std::io::stderr().is_terminal());
            lines.event_format(RepeatLimitedFormat::new(text)).init();
            set_panic_hook(|panic| {
                let thread = std::thread::current();
                let trace = Backtrace::capture();
                let trace = if trace.status() == BacktraceStatus::Captured {
                    trace.to_string()
                } else {
                    String::new()
                };
                print_to_stderr(format_args!(
                    "thread '{}' {panic}\n{trace}",
                    thread.name().unwrap_or("unnamed")
                ));
            });
        }
        LogFormat::Json => {
            output::set_dropped_lines_format(dropped_lines_json);
            lines.event_format(RepeatLimitedFormat::new(JsonFormat)).init();
            set_panic_hook(|panic| tracing::error!(%panic));
        }
    }
    Ok(())
}

/// Sets a panic hook that calls `report` and then flushes the log. The default hook writes directly to standard error
/// and can block.
fn set_panic_hook(report: fn(&PanicHookInfo<'_>)) {
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        // A panic in the main thread ends the process.
        flush();
    }));
}

/// Log target of rustls from which only errors are logged, unless the log level names the target or RUST_LOG is set.
const ERRORS_ONLY_TARGET: &str = "rustls::msgs::handshake";

/// Returns the log filter that logs only errors of [`ERRORS_ONLY_TARGET`].
fn errors_only_directive() -> Directive {
    format!("{ERRORS_ONLY_TARGET}=error").parse().expect("a target and a level")
}

/// Formats a log event with `F`, unless the event is suppressed, see [`repeat_suppression`]. Appends the number of
/// messages that were suppressed before the event.
struct RepeatLimitedFormat<F> {
    format: F,
    repeats: Mutex<RecentMessages>,
}

impl<F> RepeatLimitedFormat<F> {
    fn new(format: F) -> Self {
        Self { format, repeats: Mutex::default() }
    }
}

impl<S, N, F> FormatEvent<S, N> for RepeatLimitedFormat<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N> + AppendRepeatCount,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let verdict = repeat_suppression::decide_print(&self.repeats, event, Instant::now());
        let PrintDecision::Print { repeated, similar } = verdict else { return Ok(()) };
        let mut line = String::new();
        self.format.format_event(context, Writer::new(&mut line), event)?;
        if 0 < repeated {
            F::append_repeat_count(&mut line, "repeated", &format!("repeated {repeated} times"), repeated);
        }
        if 0 < similar {
            F::append_repeat_count(
                &mut line,
                "suppressed",
                &format!("{similar} similar messages suppressed"),
                similar,
            );
        }
        writer.write_str(&line)
    }
}

/// Appends the number of suppressed messages to a formatted log line.
trait AppendRepeatCount {
    /// Appends `count` to a line. A text line gets `words`, and a JSON line gets a field `name`.
    fn append_repeat_count(line: &mut String, name: &str, words: &str, count: u64);
}

impl<L, T> AppendRepeatCount for TextFormat<L, T> {
    fn append_repeat_count(line: &mut String, _: &str, words: &str, _: u64) {
        line.truncate(line.trim_end().len());
        *line += &format!(" ({words})\n");
    }
}

impl AppendRepeatCount for JsonFormat {
    fn append_repeat_count(line: &mut String, name: &str, _: &str, count: u64) {
        line.truncate(line.trim_end().len().saturating_sub(1));
        *line += &format!(",\"{name}\":{count}}}\n");
    }
}

/// Formats a log event as one JSON object.
struct JsonFormat;

impl<S, N> FormatEvent<S, N> for JsonFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let metadata = event.metadata();
        let mut line = JsonLogFields(Map::new());
        event.record(&mut line);
        // These come last, so that event fields of the same name cannot replace them.
        line.insert_common_fields(*metadata.level(), metadata.target());
        writeln!(writer, "{}", Value::Object(line.0))
    }
}

/// Returns the JSON line that reports the number of dropped lines.
fn dropped_lines_json(count: u64) -> String {
    let mut line = JsonLogFields(Map::new());
    line.insert_field("message", "log lines could not be written");
    line.insert_field("dropped", count);
    line.insert_common_fields(Level::WARN, module_path!());
    format!("{}\n", Value::Object(line.0))
}

/// The fields of one log event, as a JSON object.
struct JsonLogFields(Map<String, Value>);

impl JsonLogFields {
    /// Adds the fields that each line has: its time, level and target.
    fn insert_common_fields(&mut self, level: Level, target: &str) {
        self.insert_field("time", Timestamp::now().to_string());
        self.insert_field("level", level.as_str());
        self.insert_field("target", target);
    }

    /// Adds a field of the log event.
    fn insert_field(&mut self, name: &str, value: impl Into<Value>) {
        self.0.insert(name.to_owned(), value.into());
    }
}

impl Visit for JsonLogFields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.insert_field(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.insert_field(field.name(), value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.insert_field(field.name(), value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.insert_field(field.name(), value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.insert_field(field.name(), value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.insert_field(field.name(), value);
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(line);
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_repeated_warning_is_printed_once_and_other_lines_always() {
        let lines = Lines::default();
        let writer = lines.clone();
        let text = TextFormat::default().with_ansi(false).without_time().with_target(false);
        let logging = tracing_subscriber::fmt().with_writer(move || writer.clone());
        tracing::subscriber::with_default(
            logging.event_format(RepeatLimitedFormat::new(text)).finish(),
            || {
                for _ in 0..3 {
                    for node in ["a", "b"] {
                        tracing::warn!(node, "a heartbeat failed");
                    }
                    tracing::info!("as usual");
                }
            },
        );
        let said = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        let warnings = " WARN a heartbeat failed node=\"a\"\n WARN a heartbeat failed node=\"b\"\n";
        assert_eq!(said, format!("{warnings}{}", " INFO as usual\n".repeat(3)));
    }

    #[test]
    fn counts_are_added_to_text_and_to_json() {
        let mut text = "WARN muster: a heartbeat failed\n".to_owned();
        TextFormat::<(), ()>::append_repeat_count(&mut text, "repeated", "repeated 3 times", 3);
        assert_eq!(text, "WARN muster: a heartbeat failed (repeated 3 times)\n");
        let mut json = "{\"level\":\"WARN\"}\n".to_owned();
        JsonFormat::append_repeat_count(&mut json, "repeated", "repeated 3 times", 3);
        assert_eq!(json, "{\"level\":\"WARN\",\"repeated\":3}\n");
    }
}
