//! `muster server`: the API server, and what keeps its house.

use crate::logging;
use crate::parts;
use crate::serving::Serving;

/// Run the API server, until Ctrl-C or SIGTERM
///
/// It keeps its state in the data directory, and says `ready` once clients may come. Beside it run the loops that every
/// cluster has; DaemonSets are for `muster controller`, and nodes come from outside.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  muster server    on this machine only, on port 6443
  muster server --data-dir /var/lib/muster --listen 0.0.0.0:6443
  muster server --without all    the API and nothing beside it")]
pub(crate) struct Args {
    #[command(flatten)]
    serving: Serving,
    /// Leave these loops out, where others do their work (kube-controller-manager, kube-scheduler)
    #[arg(long, value_name = "LOOP", value_delimiter = ',', value_parser = parts::names())]
    without: Vec<String>,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let start = async |parts: &mut _| {
        let server = args.serving.bind(None).await?;
        let export = args.serving.serve(server, &args.without, parts)?;
        logging::announce(format_args!("ready: {export}"));
        Ok(())
    };
    args.serving.run(start, async || (), async |_| Ok(())).await
}
