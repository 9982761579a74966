//! `muster image`: images without a registry.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use muster_agent::image;
use muster_agent::machine;
use muster_agent::runtime::{Cri, Runtime as _};

use crate::agent::socket;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Import(Import),
    List(List),
}

/// Import images from archives: what `docker save` writes, or an OCI layout in a tar, gzipped or not
///
/// Without --runtime-endpoint all nodes of the `muster up` get them that runs on the data directory. Archives in DIR/images are
/// imported whenever a node starts.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  docker save my/agent:1.4 | gzip > agent.tar.gz; muster image import agent.tar.gz
  muster image import agent.tar --runtime-endpoint unix:///run/containerd/containerd.sock")]
struct Import {
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// What the image is called, whatever the archive says
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    whose: Whose,
}

/// Show the images that nodes have
#[derive(Debug, clap::Args)]
struct List {
    #[command(flatten)]
    whose: Whose,
}

/// Whose images.
#[derive(Debug, clap::Args)]
struct Whose {
    /// The data directory of the `muster up`
    #[arg(long, value_name = "DIR", default_value = ".muster")]
    data_dir: PathBuf,
    /// A runtime of this machine's instead: containerd's socket
    #[arg(long, value_name = "unix://PATH", value_parser = socket)]
    runtime_endpoint: Option<PathBuf>,
}

impl Whose {
    /// The runtimes, each with the name of its node.
    fn runtimes(&self) -> anyhow::Result<Vec<(String, Cri)>> {
        if let Some(socket) = &self.runtime_endpoint {
            return Ok(vec![("this machine".to_owned(), Cri::connect(socket))]);
        }
        let sockets = machine::sockets(&self.data_dir).unwrap_or_default();
        if sockets.is_empty() {
            bail!(
                "no nodes of a `muster up` run on {}: choose another --data-dir, or give a --runtime-endpoint",
                self.data_dir.display()
            );
        }
        Ok(sockets.into_iter().map(|(name, socket)| (name, Cri::connect(&socket))).collect())
    }
}

pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    match args.command {
        Command::Import(args) => {
            for (node, runtime) in args.whose.runtimes()? {
                for file in &args.files {
                    let names = import(&runtime, &node, file, args.name.as_deref()).await?;
                    for name in names {
                        println!("{node}: {name}");
                    }
                }
            }
        }
        Command::List(args) => {
            println!("{:<16} {:<56} {:>12}  ID", "NODE", "IMAGE", "BYTES");
            for (node, runtime) in args.whose.runtimes()? {
                let images = runtime.images().await.with_context(|| format!("list the images of {node}"))?;
                for image in images {
                    let names = image.repo_tags.iter().chain(&image.repo_digests);
                    let name = names.map(String::as_str).next().unwrap_or("<none>");
                    let id = image.id.trim_start_matches("sha256:").get(..12).unwrap_or(&image.id);
                    println!("{node:<16} {name:<56} {:>12}  {id}", image.size);
                }
            }
        }
    }
    Ok(())
}

async fn import(runtime: &Cri, node: &str, file: &Path, name: Option<&str>) -> anyhow::Result<Vec<String>> {
    let imported = image::import(runtime, file, name).await;
    imported.with_context(|| format!("import {} on {node}", file.display()))
}
