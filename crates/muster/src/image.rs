//! `muster image`: imports container images from archives into the nodes' container runtimes, and lists them.

use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use muster_agent::image;
use muster_agent::local_node;
use muster_agent::runtime::{CriClient, Runtime as _, v1};

use crate::agent::parse_runtime_socket;
use crate::logging::print_to_stdout;

#[derive(Debug, clap::Args)]
pub(crate) struct ImageArgs {
    #[command(subcommand)]
    command: ImageCommand,
}

#[derive(Debug, clap::Subcommand)]
enum ImageCommand {
    Import(ImportImagesArgs),
    List(ListImagesArgs),
}

/// Import images from archives of `docker save`, or from OCI layouts in a tar archive, gzipped or not
///
/// By default the images are imported on all real nodes of the running `muster up`; --runtime-endpoint selects one
/// container runtime instead. Archives in DIR/images are imported whenever a node of `muster up` starts.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  docker save my/agent:1.4 | gzip > agent.tar.gz; muster image import agent.tar.gz
  muster image import agent.tar --runtime-endpoint unix:///run/containerd/containerd.sock")]
struct ImportImagesArgs {
    /// Archives to import
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Name for the image, instead of the names in the archive
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    runtimes: RuntimeFlags,
}

/// List the images on the nodes
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  muster image list
  muster image list --runtime-endpoint unix:///run/containerd/containerd.sock")]
struct ListImagesArgs {
    #[command(flatten)]
    runtimes: RuntimeFlags,
}

/// Flags that select the container runtimes.
#[derive(Debug, clap::Args)]
struct RuntimeFlags {
    /// Data directory of the running `muster up`
    #[arg(long, value_name = "DIR", default_value = ".muster")]
    data_dir: PathBuf,
    /// Socket of a container runtime on this machine, instead of the nodes of `muster up`
    #[arg(long, value_name = "unix://PATH", value_parser = parse_runtime_socket)]
    runtime_endpoint: Option<PathBuf>,
}

impl RuntimeFlags {
    /// Checks that the selected container runtimes accept connections. Returns a client for each runtime, with the name
    /// of its node, or with `this machine` for the runtime of `--runtime-endpoint`.
    fn connect(&self) -> anyhow::Result<Vec<(String, CriClient)>> {
        let dir = self.data_dir.display();
        let sockets = match &self.runtime_endpoint {
            Some(socket) => vec![("this machine".to_owned(), socket.clone())],
            None => local_node::runtime_sockets(&self.data_dir).unwrap_or_default(),
        };
        if sockets.is_empty() {
            // Without permission to read the data directory, the nodes cannot be found.
            if self.data_dir.is_dir()
                && std::fs::read_dir(self.data_dir.join("nodes")).is_err_and(is_permission_denied)
            {
                bail!("no permission to use {dir}: become its owner, or choose another --data-dir");
            }
            bail!(
                "no real nodes are running for {dir}: choose another --data-dir, or give a --runtime-endpoint"
            );
        }
        for (_, socket) in &sockets {
            if let Err(error) = UnixStream::connect(socket) {
                let why = match error.kind() {
                    ErrorKind::PermissionDenied => "no permission to use it: use sudo",
                    _ => "no container runtime listens there: start it, or give another --runtime-endpoint",
                };
                return Err(error).context(format!("{}: {why}", socket.display()));
            }
        }
        Ok(sockets.into_iter().map(|(name, socket)| (name, CriClient::connect_lazy(&socket))).collect())
    }
}

/// Executes `muster image`.
pub(crate) async fn run(args: ImageArgs) -> anyhow::Result<()> {
    match args.command {
        ImageCommand::Import(args) => {
            for (node, runtime) in args.runtimes.connect()? {
                for file in &args.files {
                    let names = import_archive(&runtime, &node, file, args.name.as_deref()).await?;
                    for name in names {
                        print_to_stdout(format_args!("{node}: {name}"));
                    }
                }
            }
        }
        ImageCommand::List(args) => {
            let runtimes = args.runtimes.connect()?;
            print_to_stdout(format_args!("{:<16} {:<56} {:>12}  ID", "NODE", "IMAGE", "BYTES"));
            for (node, runtime) in runtimes {
                let images =
                    runtime.list_images().await.with_context(|| format!("list the images of {node}"))?;
                let mut lines: Vec<String> = images.iter().flat_map(|it| image_lines(&node, it)).collect();
                lines.sort();
                lines.iter().for_each(print_to_stdout);
            }
        }
    }
    Ok(())
}

/// Formats one output line for each tag of an image, or for each digest if the image has no tags. An image with neither
/// has one line with `<none>`.
fn image_lines(node: &str, image: &v1::Image) -> Vec<String> {
    let names = if image.repo_tags.is_empty() { &image.repo_digests } else { &image.repo_tags };
    let mut names: Vec<&str> = names.iter().map(String::as_str).collect();
    if names.is_empty() {
        names.push("<none>");
    }
    let id = image.id.trim_start_matches("sha256:").get(..12).unwrap_or(&image.id);
    names.into_iter().map(|name| format!("{node:<16} {name:<56} {:>12}  {id}", image.size)).collect()
}

fn is_permission_denied(error: std::io::Error) -> bool {
    error.kind() == ErrorKind::PermissionDenied
}

/// Imports an archive into the runtime of a node, and returns the names of its images.
async fn import_archive(
    runtime: &CriClient,
    node: &str,
    file: &Path,
    name: Option<&str>,
) -> anyhow::Result<Vec<String>> {
    let imported = image::import_archive(runtime, file, name).await;
    imported.with_context(|| format!("import {} on {node}", file.display()))
}
