//! Muster puts one pod on every node that should have one, and keeps it there.

mod backup;
mod controller;
mod server;
mod serving;
mod token;
mod up;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tracing_subscriber::EnvFilter;

#[derive(Debug, Parser)]
#[command(version, about = "Puts one pod on every node that should have one, and keeps it there")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Up(up::Args),
    Server(server::Args),
    Controller(controller::Args),
    Backup(backup::BackupArgs),
    Restore(backup::RestoreArgs),
    /// Tokens with which new nodes join
    Token(token::Args),
}

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let done = match cli.command {
        Command::Up(args) => up::run(args).await,
        Command::Server(args) => server::run(args).await,
        Command::Controller(args) => controller::run(args).await,
        Command::Backup(args) => backup::backup(&args),
        Command::Restore(args) => backup::restore(&args),
        Command::Token(args) => token::run(args).await,
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("muster: {error:#}");
            ExitCode::FAILURE
        }
    }
}
