//! `muster server`: the API server and the built-in controllers, without the DaemonSet controller and without nodes.

use crate::logging;
use crate::parts;
use crate::serving::Serving;

/// Run the API server and its built-in controllers, until Ctrl-C or SIGTERM
///
/// The state is stored in the data directory. The line `ready: …` is printed once the server accepts requests. The
/// scheduler, garbage collector, node lifecycle, endpoints and disruption controllers run in the same process. `muster
/// controller` runs the DaemonSet controller, and `muster agent` adds nodes.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  muster server                  listen on 127.0.0.1:6443
  muster server --data-dir /var/lib/muster --listen 0.0.0.0:6443
  muster server --without all    the API server only, without controllers")]
pub(crate) struct Args {
    #[command(flatten)]
    serving: Serving,
    /// Built-in controllers to disable, for example if kube-controller-manager or kube-scheduler replaces them
    #[arg(long, value_name = "CONTROLLER", value_delimiter = ',', value_parser = parts::names())]
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
