//! The `muster` command: parses the command line and runs one subcommand.

/// The administrator's connection to the API server.
mod admin;
/// `muster agent`: runs the node agent.
mod agent;
/// `muster backup` and `muster restore`: copy the store to a file and back.
mod backup;
/// `muster cert`: lists and revokes client certificates.
mod cert;
/// Flags for the checks of progressive rollouts: Prometheus queries and webhooks.
mod check_flags;
/// The flags on the command line of this process.
mod command_line;
/// `muster controller`: runs the DaemonSet controller.
mod controller;
/// The lock, owner and mode of the data directory.
mod data_dir;
/// `muster down`: removes what a killed `muster up` has left.
mod down;
/// Parses durations in flag values.
mod duration_flag;
/// `muster encrypt`: encrypts Secrets at rest.
mod encrypt;
/// Flags for a store on etcd.
mod etcd_flags;
/// `muster explain`: explains why a DaemonSet has a pod on a node, or has none.
mod explain;
/// `muster image`: imports and lists container images.
mod image;
/// Flags for the limits of the API server.
mod limit_flags;
/// Writes log lines to standard error, and messages to standard error and standard output.
mod logging;
/// `muster migrate`: moves a cluster between a data directory and etcd.
mod migrate;
/// `muster plan`: previews a rollout.
mod plan;
/// Flags of Pod Security admission.
mod pod_security_flags;
/// The real nodes of `muster up`.
mod real_nodes;
/// The list of revoked credentials.
mod revocation_list;
/// `muster rollout`: shows and controls progressive rollouts.
mod rollout;
/// `muster server`: runs the API server.
mod server;
/// Flags, start and shutdown of the API server of `muster up` and `muster server`.
mod serving_flags;
/// Receives SIGINT and SIGTERM.
mod signals;
/// `muster signing-key`: lists, rotates and removes the keys that sign service account tokens.
mod signing_key;
/// `muster sim-node`: changes simulated nodes.
mod sim_node;
/// `muster sim-nodes`: runs simulated nodes.
mod sim_nodes;
/// Supervises the tasks of one process and restarts them.
mod supervisor;
/// `muster token`: creates bootstrap tokens for new nodes, and lists and revokes tokens.
mod token;
/// `muster up`: runs a whole cluster.
mod up;

use std::io::{self, IsTerminal as _};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use tokio::runtime::{Builder, Runtime};

/// The memory allocator, jemalloc. The system allocator used a sixth of the CPU time when many small API objects were
/// decoded.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Maximum time that the process waits, when it exits, for tasks on the blocking thread pool.
const RUNTIME_SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, Parser)]
#[command(
    version,
    about = "Kubernetes DaemonSets in one binary: API server, scheduler, controllers and node agent"
)]
struct Cli {
    #[command(subcommand)]
    command: MusterCommand,
}

#[derive(Debug, Subcommand)]
enum MusterCommand {
    Up(up::UpArgs),
    Down(down::DownArgs),
    Server(server::ServerArgs),
    Agent(Box<agent::AgentArgs>),
    /// Import container images from archives, without a registry, and list them
    Image(image::ImageArgs),
    Controller(Box<controller::ControllerArgs>),
    Explain(explain::ExplainArgs),
    Plan(plan::PlanArgs),
    Rollout(Box<rollout::RolloutArgs>),
    Backup(backup::BackupArgs),
    Restore(backup::RestoreArgs),
    Migrate(migrate::MigrateArgs),
    Encrypt(encrypt::EncryptArgs),
    /// List and revoke client certificates
    Cert(cert::CertArgs),
    /// List, rotate and remove the keys that sign service account tokens
    SigningKey(signing_key::SigningKeyArgs),
    /// Create bootstrap tokens for new nodes; list and revoke tokens
    Token(token::TokenArgs),
    SimNodes(sim_nodes::SimNodesArgs),
    SimNode(sim_node::SimNodeArgs),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return exit_with_usage(&error),
    };
    let (format, level) = match &cli.command {
        MusterCommand::Controller(args) => args.log_settings(),
        MusterCommand::Explain(_) | MusterCommand::Plan(_) | MusterCommand::Rollout(_) => {
            (logging::LogFormat::Text, "error")
        }
        _ => (logging::LogFormat::Text, "warn"),
    };
    if let Err(error) = logging::init(format, level) {
        return exit_with_error(&error);
    }
    let done = match build_runtime(&cli.command) {
        Ok(runtime) => {
            let done = runtime.block_on(run_command(cli.command));
            // A blocking call on a disk that does not respond must not keep the process from exiting.
            runtime.shutdown_timeout(RUNTIME_SHUTDOWN_TIMEOUT);
            done
        }
        Err(error) => Err(error.into()),
    };
    logging::flush();
    match done.and_then(|code| logging::stdout_result().map(|()| code)) {
        Ok(code) => code,
        Err(error) => exit_with_error(&error),
    }
}

/// Executes the subcommand, and returns the exit code.
async fn run_command(command: MusterCommand) -> anyhow::Result<ExitCode> {
    let done = match command {
        MusterCommand::Rollout(args) => return rollout::run(*args).await,
        MusterCommand::Up(args) => up::run(args).await,
        MusterCommand::Down(args) => down::run(&args).await,
        MusterCommand::Server(args) => server::run(args).await,
        MusterCommand::Agent(args) => agent::run(*args).await,
        MusterCommand::Image(args) => image::run(args).await,
        MusterCommand::Controller(args) => controller::run(*args).await,
        MusterCommand::Explain(args) => explain::run(&args).await,
        MusterCommand::Plan(args) => plan::run(&args).await,
        MusterCommand::Backup(args) => backup::backup(&args).await,
        MusterCommand::Restore(args) => backup::restore(&args).await,
        MusterCommand::Migrate(args) => migrate::run(&args).await,
        MusterCommand::Cert(args) => cert::run(args).await,
        MusterCommand::Encrypt(args) => encrypt::run(&args),
        MusterCommand::SigningKey(args) => signing_key::run(&args).await,
        MusterCommand::Token(args) => token::run(args).await,
        MusterCommand::SimNodes(args) => sim_nodes::run(args).await,
        MusterCommand::SimNode(args) => sim_node::run(args).await,
    };
    done.map(|()| ExitCode::SUCCESS)
}

/// Builds the Tokio runtime. The controller and the agent get a single-threaded runtime. In the controller, moving
/// responses between threads would cost more than decoding them. The agent should use few resources of its node. All
/// other commands get a multi-threaded runtime, because the server handles many requests concurrently.
fn build_runtime(command: &MusterCommand) -> io::Result<Runtime> {
    let mut builder = match command {
        MusterCommand::Controller(_) | MusterCommand::Agent(_) => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    if let MusterCommand::Agent(_) = command {
        // Blocking disk calls are short. An idle thread would keep its memory.
        builder.thread_keep_alive(Duration::from_secs(1));
    }
    builder.enable_all().build()
}

/// Prints the error of a command and returns the exit code.
fn exit_with_error(error: &anyhow::Error) -> ExitCode {
    logging::print_to_stderr(format_args!("muster: {error:#}"));
    logging::flush();
    ExitCode::FAILURE
}

/// Prints the help text, the version, or the command line error, and returns the exit code.
fn exit_with_usage(error: &clap::Error) -> ExitCode {
    let is_error = error.use_stderr();
    if if is_error { io::stderr().is_terminal() } else { io::stdout().is_terminal() } {
        // clap prints in colour if the terminal supports it.
        let _ = error.print();
    } else if is_error {
        logging::print_to_stderr(error.render());
        logging::flush();
    } else {
        logging::print_to_stdout(error.render());
    }
    match logging::stdout_result() {
        Ok(()) => ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(1)),
        Err(error) => exit_with_error(&error),
    }
}
