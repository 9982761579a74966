//! `muster rollout`: shows the progressive rollout of a DaemonSet, and sends the requests of operators to it.
//!
//! - `access`: reads and writes objects of the API server;
//! - `snapshot`: the objects of one rollout, as the commands read them;
//! - `change`: what a command writes to the spec of the DaemonRollout, and when it is refused;
//! - `progress`: the output of `status`, and whether a rollout has ended;
//! - `history`: the output of `history`.

/// Reads and writes the objects of a rollout in the API server.
mod access;
/// Decides what a command writes to the spec of a DaemonRollout, and when the command is refused.
mod change;
/// The output of `muster rollout history`.
mod history;
/// The output of `muster rollout status`, and whether a rollout has ended.
mod progress;
/// The DaemonRollout, policy, DaemonSet and revisions of one rollout, as the commands read them.
mod snapshot;

use std::io::{self, BufRead as _, IsTerminal as _, Read as _, Write as _};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};
use kube::Client;
use muster_api::muster_v1alpha1::values::ReportedResult;
use serde_json::Value;

use crate::controller::KubeconfigFlags;
use crate::duration_flag;
use crate::explain::parse_daemonset_name;
use crate::logging::print_to_stdout;

use self::access::{RolloutApi, WriteError};
use self::change::{ApprovedSteps, OperatorAction, plan_change};
use self::progress::WatchEnd;
use self::snapshot::{RolloutSnapshot, SetName};

/// Interval at which `status --watch` reads the rollout.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);
/// Time after the last successful read during which `status --watch` retries failed reads. Then it exits with the
/// error.
const WATCH_RETRY_TIMEOUT: Duration = Duration::from_secs(60);
/// Exit code of `status --watch --exit-on-wait` if the rollout waits for an approval.
const EXIT_WAITING: u8 = 2;

/// Show, pause, promote, abort and retry the progressive rollout of a DaemonSet
///
/// Each change is one write to the spec of the DaemonRollout with the same name, using your own permissions. The
/// ClusterRole muster-rollout-operator grants all commands, and muster-rollout-viewer the read-only ones. `status`,
/// `history` and `forget` also read the DaemonSet and its revisions, which the ClusterRole view grants. The other
/// commands read them if permitted, to detect whether the controller runs in assist mode. No command changes the
/// DaemonSet or its policy. A change applies to one revision and has no effect on later ones.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  muster rollout status ds/fluent-bit -n logging        phase, step, nodes, failures, and what to do next
  muster rollout status ds/fluent-bit -n logging -w     follow it until it ends
  muster rollout promote ds/fluent-bit -n logging       approve the step that waits for approval
  muster rollout abort ds/fluent-bit -n logging         return all nodes to the stable revision

docs/rollouts.md describes policies, DaemonRollouts and all commands.")]
pub(crate) struct RolloutArgs {
    #[command(subcommand)]
    command: RolloutCommand,
}

#[derive(Debug, clap::Subcommand)]
enum RolloutCommand {
    Status(StatusArgs),
    History(HistoryArgs),
    /// Pause a rollout: no node gets a new revision, and a rollback stops
    ///
    /// Also works without a policy, and before the template changes: the DaemonRollout is created if there is none.
    #[command(after_help = "Examples:
  muster rollout pause ds/fluent-bit -n logging
  muster rollout pause ds/fluent-bit -n logging --dry-run")]
    Pause(RequestArgs),
    /// Continue a rollout that `pause` paused
    #[command(after_help = "Examples:
  muster rollout resume ds/fluent-bit -n logging")]
    Resume(RequestArgs),
    Promote(PromoteArgs),
    /// Abort the rollout of the current revision: all nodes return to the stable revision
    ///
    /// Also ends a pause by an operator, which would stop the rollback. The revision gets the verdict Bad: it is not
    /// rolled out again without `retry`. In assist mode there is no rollback: the rollout stops until the template is
    /// reverted.
    #[command(after_help = "Examples:
  muster rollout abort ds/fluent-bit -n logging")]
    Abort(RequestArgs),
    /// Start a failed or aborted rollout of the current revision again, at its first step
    ///
    /// Removes the verdict Bad, and the approval, the abort and the check reports of the last attempt.
    #[command(after_help = "Examples:
  muster rollout retry ds/fluent-bit -n logging")]
    Retry(RequestArgs),
    Report(ReportArgs),
    Forget(ForgetArgs),
}

/// Flags that name the DaemonSet and its cluster.
#[derive(Debug, clap::Args)]
struct SetFlags {
    /// DaemonSet: ds/NAME, daemonset/NAME or NAME
    #[arg(value_name = "ds/NAME")]
    set: String,
    /// Namespace of the DaemonSet [default: that of the kubeconfig's context, or `default`]
    #[arg(long, short, value_name = "NAME")]
    namespace: Option<String>,
    #[command(flatten)]
    cluster: KubeconfigFlags,
}

/// Flags of the commands that write to the DaemonRollout.
#[derive(Debug, clap::Args)]
struct WriteFlags {
    /// Send the request as a server-side dry run: it is checked, but not stored
    #[arg(long)]
    dry_run: bool,
}

/// Arguments of `pause`, `resume`, `abort` and `retry`, which need only the DaemonSet.
#[derive(Debug, clap::Args)]
struct RequestArgs {
    #[command(flatten)]
    set: SetFlags,
    #[command(flatten)]
    write: WriteFlags,
}

/// Show phase, step, nodes, failures and checks of a rollout, and what to do next
///
/// A DaemonSet without a DaemonRollout follows its update strategy; then its counts are shown.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  muster rollout status ds/fluent-bit -n logging
  muster rollout status ds/fluent-bit -n logging -o json | jq .status.nodes
  muster rollout status ds/fluent-bit -n logging --watch --exit-on-wait --timeout 1h

Exit codes of --watch: 0 the rollout is complete, or as complete as its policy allows; 1 it failed, or an error
occurred; 2 it waits for an approval (only with --exit-on-wait). Without --watch: 0, or 1 if an error occurred.")]
struct StatusArgs {
    #[command(flatten)]
    set: SetFlags,
    /// Follow the rollout until it is complete, partially complete, stopped or rolled back
    #[arg(long, short)]
    watch: bool,
    /// With --watch: exit with code 2 as soon as the rollout waits for an approval
    #[arg(long, requires = "watch")]
    exit_on_wait: bool,
    /// With --watch: fail if the rollout has not ended after this time, such as 30m [default: no limit]
    #[arg(long, value_name = "TIME", requires = "watch", value_parser = duration_flag::parse_duration)]
    timeout: Option<Duration>,
    /// Output format: text, or the DaemonRollout as json or yaml
    #[arg(long, short, value_name = "FORMAT", default_value = "text", value_parser = ["text", "json", "yaml"], conflicts_with = "watch")]
    output: String,
}

/// List the revisions of a DaemonSet with their verdicts
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  muster rollout history ds/fluent-bit -n logging")]
struct HistoryArgs {
    #[command(flatten)]
    set: SetFlags,
}

/// Approve a step of the current revision, or all its steps
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  muster rollout promote ds/fluent-bit -n logging                  the step that waits for approval
  muster rollout promote ds/fluent-bit -n logging --step canary    a step by name, also in advance
  muster rollout promote ds/fluent-bit -n logging --full           all steps: no soak time, no approvals")]
struct PromoteArgs {
    #[command(flatten)]
    set: SetFlags,
    /// Name of the step [default: the step that waits for approval]
    #[arg(long, value_name = "NAME", conflicts_with = "full")]
    step: Option<String>,
    /// Approve all steps: the rollout goes on to all nodes without further steps and soak times. maxUnavailable and the
    /// failure budget still apply
    #[arg(long)]
    full: bool,
    #[command(flatten)]
    write: WriteFlags,
}

/// Report the result of an external check of the current revision
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  muster rollout report ds/fluent-bit smoke pass -n logging
  muster rollout report ds/fluent-bit smoke fail -n logging --message 'job 1724: no logs arrive'")]
struct ReportArgs {
    #[command(flatten)]
    set: SetFlags,
    /// Name of the check in the policy
    #[arg(value_name = "CHECK")]
    check: String,
    /// Result of the check
    #[arg(value_name = "pass|fail", value_parser = ["pass", "fail"])]
    result: String,
    /// Explanation of the result
    #[arg(long, value_name = "TEXT")]
    message: Option<String>,
    #[command(flatten)]
    write: WriteFlags,
}

/// Delete the DaemonRollout of a DaemonSet, after asking
///
/// With a policy, the controller creates a new one and starts at the first step. Without a policy, the DaemonSet
/// follows its update strategy again. Verdicts are kept: a revision with the verdict Bad is still held.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  muster rollout forget ds/fluent-bit -n logging
  muster rollout forget ds/fluent-bit -n logging --yes")]
struct ForgetArgs {
    #[command(flatten)]
    set: SetFlags,
    /// Delete without asking
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    write: WriteFlags,
}

/// Executes `muster rollout`, and returns the exit code.
pub(crate) async fn run(args: RolloutArgs) -> anyhow::Result<ExitCode> {
    let (set, write, action) = match args.command {
        RolloutCommand::Status(args) => return show_status(&args).await,
        RolloutCommand::History(args) => return show_history(&args).await,
        RolloutCommand::Forget(args) => return forget(&args).await,
        RolloutCommand::Pause(args) => (args.set, args.write, OperatorAction::Pause),
        RolloutCommand::Resume(args) => (args.set, args.write, OperatorAction::Resume),
        RolloutCommand::Abort(args) => (args.set, args.write, OperatorAction::Abort),
        RolloutCommand::Retry(args) => (args.set, args.write, OperatorAction::Retry),
        RolloutCommand::Promote(args) => {
            let steps = match args.step {
                _ if args.full => ApprovedSteps::All,
                Some(name) => ApprovedSteps::Named(name),
                None => ApprovedSteps::Waiting,
            };
            (args.set, args.write, OperatorAction::Promote(steps))
        }
        RolloutCommand::Report(args) => {
            let result = if args.result == "pass" { ReportedResult::Pass } else { ReportedResult::Fail };
            let report = OperatorAction::Report { check: args.check, result, message: args.message };
            (args.set, args.write, report)
        }
    };
    let api = connect(&set, OPERATOR_ROLE).await?;
    print_to_stdout(submit_request(&api, &action, write.dry_run).await?.trim_end());
    Ok(ExitCode::SUCCESS)
}

/// Name of the ClusterRole that `status` and `history` need, in addition to the ClusterRole view.
const VIEWER_ROLE: &str = "muster-rollout-viewer";
/// Name of the ClusterRole that the commands of `muster rollout` need, except `status` and `history`.
const OPERATOR_ROLE: &str = "muster-rollout-operator";

/// Creates the client for the rollout of the DaemonSet that the flags name. Error messages name `role`, the ClusterRole
/// that grants the command.
async fn connect(flags: &SetFlags, role: &'static str) -> anyhow::Result<RolloutApi> {
    let name = parse_daemonset_name(std::slice::from_ref(&flags.set))?.to_owned();
    let config = flags.cluster.client_config().await?;
    let namespace = flags.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
    for it in [&namespace, &name] {
        // The API server has the exact rules. This keeps the text from being anything but one path segment.
        if it.is_empty() || it.contains(|it: char| !it.is_ascii_alphanumeric() && !"-.".contains(it)) {
            bail!("{it:?} is not a name");
        }
    }
    let set = SetName { namespace, name, is_namespace_given: flags.namespace.is_some() };
    Ok(RolloutApi::new(Client::try_from(config)?, set, role))
}

/// Executes `muster rollout status`.
async fn show_status(args: &StatusArgs) -> anyhow::Result<ExitCode> {
    let api = connect(&args.set, VIEWER_ROLE).await?;
    if args.watch {
        return watch(&api, args).await;
    }
    let snapshot = api.read_all().await?;
    if args.output == "text" {
        print_to_stdout(progress::status_text(&snapshot).trim_end());
        return Ok(ExitCode::SUCCESS);
    }
    let Some(rollout) = &snapshot.rollout else {
        bail!("{} has no DaemonRollout: it follows its update strategy", snapshot.set);
    };
    let mut object = rollout.object.clone();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    if args.output == "json" {
        print_to_stdout(format_args!("{object:#}"));
    } else {
        let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
        let text = serde_saphyr::to_string_with_options(&object, options);
        print_to_stdout(text.context("write the DaemonRollout as YAML")?.trim_end());
    }
    Ok(ExitCode::SUCCESS)
}

/// Executes `muster rollout status --watch`: prints a line for each change of a rollout until it ends, or with
/// `--exit-on-wait` until it waits for an approval. Returns the exit code.
async fn watch(api: &RolloutApi, args: &StatusArgs) -> anyhow::Result<ExitCode> {
    let began = Instant::now();
    let mut last_line = String::new();
    let mut answered = began;
    // The first read reports every error: later ones may be due to a restart of the API server.
    let mut read = Ok(api.read_all().await?);
    loop {
        match read {
            Ok(snapshot) => {
                answered = Instant::now();
                let line = progress::summary_line(&snapshot);
                if line != last_line {
                    print_to_stdout(&line);
                    last_line = line;
                }
                match progress::watch_end(&snapshot) {
                    Some(WatchEnd::Succeeded) => return Ok(ExitCode::SUCCESS),
                    Some(WatchEnd::Failed(problem)) => bail!(problem),
                    Some(WatchEnd::WaitsForApproval) if args.exit_on_wait => {
                        return Ok(ExitCode::from(EXIT_WAITING));
                    }
                    Some(WatchEnd::WaitsForApproval) | None => {}
                }
            }
            Err(error) if WATCH_RETRY_TIMEOUT < answered.elapsed() => return Err(error),
            Err(_) => {}
        }
        if let Some(timeout) = args.timeout.filter(|it| *it < began.elapsed()) {
            bail!("the rollout has not ended after {} s: {last_line}", timeout.as_secs());
        }
        tokio::time::sleep(WATCH_INTERVAL).await;
        read = api.read_all().await;
    }
}

/// Executes `muster rollout history`.
async fn show_history(args: &HistoryArgs) -> anyhow::Result<ExitCode> {
    let api = connect(&args.set, VIEWER_ROLE).await?;
    let snapshot = api.read_all().await?;
    print_to_stdout(history::table(&snapshot).trim_end());
    Ok(ExitCode::SUCCESS)
}

/// Writes the request of an operator to the DaemonRollout, and returns the text that the command prints. After a write
/// conflict, reads the objects again and retries once.
async fn submit_request(api: &RolloutApi, action: &OperatorAction, dry_run: bool) -> anyhow::Result<String> {
    let mut is_second = false;
    loop {
        let snapshot = api.read_for_write().await?;
        let change = plan_change(action, &snapshot)?;
        match api.write_spec(&snapshot, &change.spec, dry_run).await {
            Ok(()) => return Ok(change.text(&snapshot.set, dry_run)),
            Err(WriteError::Conflict(_)) if !is_second => is_second = true,
            Err(WriteError::Conflict(message)) => return Err(second_conflict_error(&snapshot.set, &message)),
            Err(WriteError::Other(error)) => return Err(error),
        }
    }
}

/// Returns the error for a write that failed with a conflict twice.
fn second_conflict_error(set: &SetName, message: &str) -> anyhow::Error {
    anyhow!("the DaemonRollout {} changed twice meanwhile: try again: {message}", set.key())
}

/// Executes `muster rollout forget`.
async fn forget(args: &ForgetArgs) -> anyhow::Result<ExitCode> {
    let api = connect(&args.set, OPERATOR_ROLE).await?;
    let snapshot = api.read_all().await?;
    let change = change::plan_forget(&snapshot)?;
    let is_confirmed = args.yes || args.write.dry_run;
    if !is_confirmed && !confirm(&snapshot, &change.consequences)? {
        bail!("the DaemonRollout {} was not deleted", snapshot.set.key());
    }
    match api.delete(&snapshot, args.write.dry_run).await {
        Ok(()) => {
            print_to_stdout(change.text(&snapshot.set, args.write.dry_run).trim_end());
            Ok(ExitCode::SUCCESS)
        }
        Err(WriteError::Conflict(message)) => {
            bail!("another DaemonRollout {} was created meanwhile: try again: {message}", snapshot.set.key())
        }
        Err(WriteError::Other(error)) => Err(error),
    }
}

/// Maximum length in bytes of the answer that [`confirm`] reads.
const ANSWER_BYTES_MAX: u64 = 64;

/// Prints the consequences, and asks on the terminal whether the DaemonRollout is to be deleted. Returns whether the
/// user agrees. Fails if standard input is not a terminal.
fn confirm(snapshot: &RolloutSnapshot, consequences: &[String]) -> anyhow::Result<bool> {
    if !io::stdin().is_terminal() {
        bail!("forget asks before it deletes, and standard input is not a terminal: give --yes");
    }
    print_to_stdout(consequences.join("\n"));
    let mut stdout = io::stdout();
    write!(stdout, "Delete the DaemonRollout {}? [y/N] ", snapshot.set.key()).context("ask")?;
    stdout.flush().context("ask")?;
    let mut answer = String::new();
    io::stdin().lock().take(ANSWER_BYTES_MAX).read_line(&mut answer).context("read the answer")?;
    Ok(["y", "yes"].contains(&answer.trim().to_ascii_lowercase().as_str()))
}

/// Returns text from the API server as one line that can be printed on a terminal. Control characters, and characters
/// that change the direction of text, are escaped. Text of more than 1000 characters is cut.
fn printable(text: &str) -> String {
    /// Maximum number of characters to print. Messages of the controller are shorter.
    const CHARS_MAX: usize = 1000;
    /// Unicode characters that change the direction of text. With them, a terminal could show a line in a misleading
    /// order.
    const BIDI_CONTROLS: [char; 12] = [
        '\u{061c}', '\u{200e}', '\u{200f}', '\u{202a}', '\u{202b}', '\u{202c}', '\u{202d}', '\u{202e}',
        '\u{2066}', '\u{2067}', '\u{2068}', '\u{2069}',
    ];
    let mut out = String::new();
    for (at, char) in text.chars().enumerate() {
        match char {
            _ if at == CHARS_MAX => {
                out.push('…');
                break;
            }
            it if it.is_control() || BIDI_CONTROLS.contains(&it) => out.extend(it.escape_default()),
            it => out.push(it),
        }
    }
    out
}

/// Returns the string at a JSON pointer of an object. Empty if there is no such string.
fn string_at(object: &Value, pointer: &str) -> String {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests;
