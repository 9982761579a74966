//! Flags for the checks of progressive rollouts: Prometheus queries and webhooks.

use muster_control::{CheckEndpoint, CheckOptions};

/// Flags of `muster controller` and `muster up` for the checks of progressive rollouts.
#[derive(Debug, clap::Args)]
pub(crate) struct CheckFlags {
    /// URLs that checks of rollout policies may call, with all paths below them, such as
    /// http://prometheus.monitoring:9090; none by default
    #[arg(long, value_name = "URL-PREFIX,…", value_delimiter = ',')]
    check_endpoints: Vec<CheckEndpoint>,
}

impl CheckFlags {
    /// Returns the options with which the controller executes checks. `namespace` is the namespace of the controller,
    /// from which the Secrets and ConfigMaps of ClusterRolloutPolicies are read.
    pub(crate) fn check_options(&self, namespace: String) -> CheckOptions {
        CheckOptions { endpoints: self.check_endpoints.clone(), namespace }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use muster_api::well_known::NAMESPACE_SYSTEM;

    use super::*;

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        checks: CheckFlags,
    }

    fn parse(args: &[&str]) -> Result<usize, String> {
        let command = Command::try_parse_from([&["muster"], args].concat()).map_err(|it| it.to_string())?;
        Ok(command.checks.check_options(NAMESPACE_SYSTEM.to_owned()).endpoints.len())
    }

    #[test]
    fn endpoints_are_a_list_of_url_prefixes() {
        assert_eq!(parse(&[]), Ok(0));
        assert_eq!(parse(&["--check-endpoints", "http://prometheus:9090,https://hooks.example/team"]), Ok(2));
        let refused = parse(&["--check-endpoints", "http://user:password@prometheus"]).unwrap_err();
        assert!(refused.contains("must not have a user name or password"), "{refused}");
        assert!(parse(&["--check-endpoints", ""]).is_err());
    }
}
