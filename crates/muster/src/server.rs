//! `muster server`: the API server and the built-in controllers, without the DaemonSet controller and without nodes.

use std::ffi::OsString;

use anyhow::Context as _;
use clap::{ArgMatches, CommandFactory as _};

use crate::command_line::find_given_flags;
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

/// IDs of the flags that belong to one server or one machine, and those for etcd, which [`EtcdFlags::save`] formats.
/// All other flags have the same values on all servers of a cluster on etcd.
const FLAGS_OF_ONE_SERVER: [&str; 21] = [
    "data_dir",
    "listen",
    "kubeconfig",
    "new_cluster",
    "encryption_key_file",
    "etcd",
    "etcd_ca",
    "etcd_cert",
    "etcd_key",
    "etcd_prefix",
    "etcd_any_version",
    "token_file",
    "feature_level",
    // The limits depend on the CPUs and the memory of the machine.
    "max_requests_inflight",
    "max_mutating_requests_inflight",
    "request_queue_timeout",
    "request_timeout",
    "request_body_timeout",
    "response_timeout",
    "max_watches",
    "max_connections",
];

/// Returns the flags on the command line of `muster server` that the other servers of the cluster need too, except those
/// for etcd. `matches` are those of the subcommand.
fn find_cluster_flags(matches: &ArgMatches) -> Vec<OsString> {
    find_given_flags::<ServerArgs>(matches, |it| !FLAGS_OF_ONE_SERVER.contains(&it))
}

/// Executes `muster server`.
pub(crate) async fn run(args: ServerArgs) -> anyhow::Result<()> {
    let start = async |supervisor: &mut _| {
        let etcd = args.etcd.options();
        let is_shared = etcd.is_some();
        let settings = args.serving.cluster_settings(None, args.reserved_pod_cidrs)?;
        let server = args.serving.bind_server(None, settings, etcd).await?;
        if is_shared {
            let matches = crate::Cli::command().get_matches();
            let (_, matches) = matches.subcommand().context("the command line has no subcommand")?;
            args.etcd.save(args.serving.data_dir(), &find_cluster_flags(matches))?;
        }
        let export = args.serving.start_server(server, &args.without, is_shared, supervisor)?;
        logging::print_ready_line(format_args!("ready: {export}"));
        Ok(())
    };
    args.serving.run_until_signal(start, async || (), async |_| Ok(())).await
}

#[cfg(test)]
mod tests {
    use clap::{Arg, Args as _, Command};
    use expect_test::expect;

    use super::*;

    fn command() -> Command {
        ServerArgs::augment_args(Command::new("server"))
    }

    #[test]
    fn every_flag_belongs_to_the_cluster_or_to_one_server() {
        let of_cluster = |it: &Arg| !FLAGS_OF_ONE_SERVER.contains(&it.get_id().as_str());
        let names: Vec<_> = command()
            .get_arguments()
            .filter(|it| of_cluster(it))
            .filter_map(|it| it.get_long().map(str::to_owned))
            .collect();
        expect![[r"
            advertise
            audit-log
            cluster-cidr
            allow-external-ips
            cluster-signing-duration
            store-bytes-max
            service-account-max-token-expiration
            shutdown-delay
            pod-security-default
            pod-security-default-audit
            pod-security-default-warn
            pod-security-exempt-namespaces
            pod-security-exempt-users
            pod-security-exempt-runtime-classes
            reauthorization-interval
            node-monitor-grace-period
            node-startup-grace-period
            without
            reserved-pod-cidrs"]]
        .assert_eq(&names.join("\n"));
        let ids: Vec<_> = command().get_arguments().map(|it| it.get_id().to_string()).collect();
        assert!(FLAGS_OF_ONE_SERVER.iter().all(|it| ids.iter().any(|id| id == it)), "{ids:?}");
    }

    #[test]
    fn other_servers_get_the_flags_of_the_cluster_as_they_were_given() {
        let matches = command()
            .try_get_matches_from([
                "server",
                "--data-dir=/d",
                "--listen=10.0.0.1:6443",
                "--etcd=http://127.0.0.1:2379",
                "--pod-security-default",
                "restricted",
                "--pod-security-exempt-users=a,b",
                "--pod-security-exempt-users=it's me",
                "--audit-log=/var/log/audit.log",
                "--max-watches=7",
                "--without=scheduler",
            ])
            .unwrap();
        assert_eq!(
            find_cluster_flags(&matches),
            [
                "--audit-log=/var/log/audit.log",
                "--pod-security-default=restricted",
                "--pod-security-exempt-users=a,b,it's me",
                "--without=scheduler",
            ]
        );
    }
}
