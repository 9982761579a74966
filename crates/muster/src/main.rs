//! The `muster` command: parses the command line and runs one subcommand.

mod agent;
mod backup;
mod cert;
mod controller;
mod data_dir;
mod encrypt;
mod explain;
mod image;
mod limit_flags;
mod logging;
mod nodes;
mod parts;
mod plan;
mod pod_security;
mod server;
mod serving;
mod sim_node;
mod sim_nodes;
mod span;
mod token;
mod up;

use std::io::{self, IsTerminal as _};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use tokio::runtime::{Builder, Runtime};

/// jemalloc: decoding many small API objects spent a sixth of the CPU time in the system allocator.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Time that the process waits for blocking calls when it exits.
const END_MAX: Duration = Duration::from_secs(10);

#[derive(Debug, Parser)]
#[command(
    version,
    about = "Kubernetes DaemonSets in one binary: API server, scheduler, controllers and node agent"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Up(up::Args),
    Down(data_dir::DownArgs),
    Server(server::Args),
    Agent(Box<agent::Args>),
    /// Import container images from archives, without a registry, and list them
    Image(image::Args),
    Controller(Box<controller::Args>),
    Explain(explain::Args),
    Plan(plan::Args),
    Backup(backup::BackupArgs),
    Restore(backup::RestoreArgs),
    Encrypt(encrypt::Args),
    /// List and revoke client certificates
    Cert(cert::Args),
    /// Create bootstrap tokens for new nodes; list and revoke tokens
    Token(token::Args),
    SimNodes(sim_nodes::Args),
    SimNode(sim_node::Args),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    let (format, level) = match &cli.command {
        Command::Controller(args) => args.logs(),
        Command::Explain(_) | Command::Plan(_) => (logging::Format::Text, "error"),
        _ => (logging::Format::Text, "warn"),
    };
    if let Err(error) = logging::init(format, level) {
        return failed(&error);
    }
    let done = match runtime(&cli.command) {
        Ok(runtime) => {
            let done = runtime.block_on(run(cli.command));
            // A blocking call on a disk that does not respond must not keep the process from exiting.
            runtime.shutdown_timeout(END_MAX);
            done
        }
        Err(error) => Err(error.into()),
    };
    logging::flush();
    match done.and_then(|()| logging::stdout_result()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

async fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Up(args) => up::run(args).await,
        Command::Down(args) => data_dir::down(&args).await,
        Command::Server(args) => server::run(args).await,
        Command::Agent(args) => agent::run(*args).await,
        Command::Image(args) => image::run(args).await,
        Command::Controller(args) => controller::run(*args).await,
        Command::Explain(args) => explain::run(&args).await,
        Command::Plan(args) => plan::run(&args).await,
        Command::Backup(args) => backup::backup(&args),
        Command::Restore(args) => backup::restore(&args),
        Command::Cert(args) => cert::run(args).await,
        Command::Encrypt(args) => encrypt::run(&args),
        Command::Token(args) => token::run(args).await,
        Command::SimNodes(args) => sim_nodes::run(args).await,
        Command::SimNode(args) => sim_node::run(args).await,
    }
}

/// Builds the Tokio runtime: multi-threaded for the server, which handles many requests concurrently. Single-threaded
/// for the controller, where moving responses between threads costs more than decoding them, and for the agent, which
/// is to use few resources of its node.
fn runtime(command: &Command) -> io::Result<Runtime> {
    let mut builder = match command {
        Command::Controller(_) | Command::Agent(_) => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    if let Command::Agent(_) = command {
        // Blocking disk calls are short. An idle thread would keep its memory.
        builder.thread_keep_alive(Duration::from_secs(1));
    }
    builder.enable_all().build()
}

fn failed(error: &anyhow::Error) -> ExitCode {
    logging::print_error(format_args!("muster: {error:#}"));
    logging::flush();
    ExitCode::FAILURE
}

/// Prints the help text, the version, or the command line error, and returns the exit code.
fn usage(error: &clap::Error) -> ExitCode {
    let is_error = error.use_stderr();
    if if is_error { io::stderr().is_terminal() } else { io::stdout().is_terminal() } {
        // clap prints in colour if the terminal supports it.
        let _ = error.print();
    } else if is_error {
        logging::print_error(error.render());
        logging::flush();
    } else {
        logging::print(error.render());
    }
    match logging::stdout_result() {
        Ok(()) => ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(1)),
        Err(error) => failed(&error),
    }
}
