//! `muster server`: the API server, and what keeps its house.

use crate::serving::Serving;

/// Run the API server, until Ctrl-C or SIGTERM
///
/// It keeps its state in the data directory, and says `ready` once clients may come. What is deleted takes along what
/// belongs to it. There is nothing else beside it: no other controllers, no nodes.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  muster server    on this machine only, on port 6443
  muster server --data-dir /var/lib/muster --listen 0.0.0.0:6443")]
pub(crate) struct Args {
    #[command(flatten)]
    serving: Serving,
    /// Take away what belongs to what was deleted; `false` where another collector does, such as kube-controller-manager's
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    garbage_collector: bool,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let start = async |stop: &_, tasks: &mut _| {
        let server = args.serving.bind().await?;
        let export = args.serving.serve(server, args.garbage_collector, stop, tasks)?;
        println!("ready: {export}");
        Ok(())
    };
    args.serving.run(start).await
}
