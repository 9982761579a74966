//! `muster server`: the API server and the built-in controllers, without the DaemonSet controller and without nodes.

use crate::etcd_flags::EtcdFlags;
use crate::logging;
use crate::serving_flags::ServingFlags;
use crate::supervisor;

/// Run the API server and its built-in controllers, until Ctrl-C or SIGTERM
///
/// The state is stored in the data directory. The line `ready: …` is printed once the server accepts requests. The
/// scheduler, garbage collector, node lifecycle, endpoints, disruption and rollout policy controllers run in the same
/// process. `muster controller` runs the DaemonSet controller, and `muster agent` adds nodes.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  muster server                  listen on 127.0.0.1:6443
  muster server --data-dir /var/lib/muster --listen 0.0.0.0:6443
  muster server --without all    the API server only, without controllers")]
pub(crate) struct ServerArgs {
    #[command(flatten)]
    serving: ServingFlags,
    #[command(flatten)]
    etcd: EtcdFlags,
    /// Built-in controllers to disable, for example if kube-controller-manager or kube-scheduler replaces them
    #[arg(long, value_name = "CONTROLLER", value_delimiter = ',', value_parser = supervisor::controller_name_parser())]
    without: Vec<String>,
    /// Number of /24 ranges at the beginning of --cluster-cidr that are not assigned to nodes
    #[arg(long, hide = true, default_value_t = 0)]
    reserved_pod_cidrs: u32,
}

/// Executes `muster server`.
pub(crate) async fn run(args: ServerArgs) -> anyhow::Result<()> {
    let start = async |supervisor: &mut _| {
        let etcd = args.etcd.options();
        let is_shared = etcd.is_some();
        let settings = args.serving.cluster_settings(None, args.reserved_pod_cidrs)?;
        let server = args.serving.bind_server(None, settings, etcd).await?;
        if is_shared {
            args.etcd.save(args.serving.data_dir(), args.serving.advertised_url(), settings)?;
        }
        let export = args.serving.start_server(server, &args.without, is_shared, supervisor)?;
        logging::print_ready_line(format_args!("ready: {export}"));
        Ok(())
    };
    args.serving.run_until_signal(start, async || (), async |_| Ok(())).await
}
