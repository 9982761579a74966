//! Hostname, `/etc/hosts` and DNS configuration of a pod.

use std::path::Path;

use k8s_openapi::api::core::v1::{Pod, PodDNSConfig, PodSpec};

use super::Config;
use crate::runtime::v1::DnsConfig;

/// Maximum number of nameservers of a pod. Upstream: `MaxDNSNameservers`.
const NAMESERVERS_MAX: usize = 3;
/// Maximum number of DNS search paths of a pod. Upstream: `MaxDNSSearchPaths`.
const SEARCH_PATHS_MAX: usize = 32;
/// Maximum total length of the DNS search paths of a pod. Upstream: `MaxDNSSearchListChars`.
const SEARCH_PATHS_CHARS_MAX: usize = 2048;

/// Maximum length of a DNS label.
const DNS_LABEL_CHARS_MAX: usize = 63;
/// Maximum length of a hostname in the Linux kernel.
const KERNEL_HOSTNAME_CHARS_MAX: usize = 64;

/// Hostname of a pod, and its DNS domain. Only a pod with a subdomain and without a `hostnameOverride` has a domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PodHostname {
    pub host: String,
    pub domain: Option<String>,
}

impl PodHostname {
    /// Determines the hostname and domain of a pod. Upstream: `GeneratePodHostNameAndDomain`.
    pub(crate) fn from_pod(pod: &Pod, spec: &PodSpec, cluster_domain: &str) -> Self {
        if let Some(name) = &spec.hostname_override {
            return Self { host: truncate_hostname(name), domain: None };
        }
        let name = spec.hostname.as_deref().filter(|it| !it.is_empty());
        let host = truncate_hostname(name.or(pod.metadata.name.as_deref()).unwrap_or_default());
        let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
        let subdomain = spec.subdomain.as_deref().filter(|it| !it.is_empty());
        Self { host, domain: subdomain.map(|it| format!("{it}.{namespace}.svc.{cluster_domain}")) }
    }

    /// Returns the hostname in the pod's UTS namespace. It is the FQDN if `setHostnameAsFQDN` is true and the pod has a
    /// domain. Fails if the FQDN is too long for the kernel.
    pub(crate) fn kernel_hostname(&self, spec: &PodSpec) -> Result<String, String> {
        let Some(domain) = self.domain.as_ref().filter(|_| spec.set_hostname_as_fqdn == Some(true)) else {
            return Ok(self.host.clone());
        };
        let name = format!("{}.{domain}", self.host);
        if KERNEL_HOSTNAME_CHARS_MAX < name.len() {
            let (max, is) = (KERNEL_HOSTNAME_CHARS_MAX, name.len());
            return Err(format!(
                "Failed to construct FQDN from Pod hostname and cluster domain, FQDN {name} is too long ({max} is the max, \
                 {is} characters requested)."
            ));
        }
        Ok(name)
    }

    /// Builds the content of the pod's `/etc/hosts`. For a hostNetwork pod, `of_node` is the content of the node's own
    /// `/etc/hosts`, which then replaces the entries for localhost and for the pod's IP addresses. For any other pod,
    /// `of_node` is `None`.
    pub(crate) fn hosts_file_content(
        &self,
        spec: &PodSpec,
        addresses: &[String],
        of_node: Option<&str>,
    ) -> String {
        let mut text = match of_node {
            Some(of_node) => format!("# Kubernetes-managed hosts file (host network).\n{of_node}"),
            None => "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n\
                     ::1\tlocalhost ip6-localhost ip6-loopback\nfe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\n\
                     fe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n"
                .to_owned(),
        };
        for address in addresses.iter().filter(|_| of_node.is_none()) {
            text += &match &self.domain {
                Some(domain) => format!("{address}\t{0}.{domain}\t{0}\n", self.host),
                None => format!("{address}\t{}\n", self.host),
            };
        }
        let aliases = spec.host_aliases.as_deref().unwrap_or_default();
        if !aliases.is_empty() {
            text += "\n# Entries added by HostAliases.\n";
        }
        for alias in aliases {
            text += &format!("{}\t{}\n", alias.ip, alias.hostnames.as_deref().unwrap_or_default().join("\t"));
        }
        text
    }
}

/// Truncates a name to at most [`DNS_LABEL_CHARS_MAX`] characters, and removes `-` and `.` at the end of a truncated
/// name, so that it is a valid hostname.
fn truncate_hostname(name: &str) -> String {
    match name.get(..DNS_LABEL_CHARS_MAX) {
        Some(head) if DNS_LABEL_CHARS_MAX < name.len() => head.trim_end_matches(['-', '.']).to_owned(),
        _ => name.to_owned(),
    }
}

/// Determines the DNS configuration of a pod. If the node's `resolv.conf` cannot be read, it counts as empty.
pub(crate) fn pod_dns(config: &Config, pod: &Pod, spec: &PodSpec) -> DnsConfig {
    let of_node = || parse_resolv_conf(&std::fs::read_to_string(&config.resolv_conf).unwrap_or_default());
    let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
    combine_dns(config, namespace, spec, of_node)
}

/// Combines the DNS configuration of the node, of the cluster and of the pod. `of_node` reads the node's `resolv.conf`.
///
/// Rule: with `dnsPolicy: ClusterFirst` or without a `dnsPolicy`, a pod uses the cluster DNS, but a hostNetwork pod
/// uses the DNS of the node. With `ClusterFirstWithHostNet`, every pod uses the cluster DNS. With `Default`, every pod
/// uses the DNS of the node. With `None`, a pod uses neither. A pod that uses the cluster DNS also gets the search
/// paths of the node, after those of the cluster. If the node has no cluster DNS, pods that would use it use the DNS of
/// the node. The pod's `dnsConfig` is added in every case. Duplicates, search paths of more than 253 characters, and
/// entries beyond the limits of nameservers and search paths are dropped. Upstream: `GetPodDNS`.
fn combine_dns(
    config: &Config,
    namespace: &str,
    spec: &PodSpec,
    of_node: impl FnOnce() -> DnsConfig,
) -> DnsConfig {
    let on_host = spec.host_network == Some(true);
    let is_cluster_first = match spec.dns_policy.as_deref() {
        Some("None") => None,
        Some("Default") => Some(false),
        Some("ClusterFirstWithHostNet") => Some(true),
        _ => Some(!on_host),
    };
    let mut dns = match (is_cluster_first, config.cluster_dns) {
        (None, _) => DnsConfig::default(),
        (Some(true), Some(server)) => {
            let domain = &config.cluster_domain;
            let mut searches =
                vec![format!("{namespace}.svc.{domain}"), format!("svc.{domain}"), domain.clone()];
            searches.extend(of_node().searches);
            DnsConfig { servers: vec![server.to_string()], searches, options: vec!["ndots:5".to_owned()] }
        }
        (Some(_), _) => of_node(),
    };
    if let Some(own) = &spec.dns_config {
        add_dns_config(&mut dns, own);
    }
    remove_duplicates(&mut dns.servers);
    remove_duplicates(&mut dns.searches);
    dns.servers.truncate(NAMESERVERS_MAX);
    dns.searches.retain(|it| it.len() <= 253);
    dns.searches.truncate(SEARCH_PATHS_MAX);
    while SEARCH_PATHS_CHARS_MAX < dns.searches.join(" ").len() {
        dns.searches.pop();
    }
    dns
}

/// Adds the pod's `dnsConfig` to a DNS configuration.
fn add_dns_config(dns: &mut DnsConfig, own: &PodDNSConfig) {
    dns.servers.extend(own.nameservers.iter().flatten().cloned());
    dns.searches.extend(own.searches.iter().flatten().cloned());
    for option in own.options.iter().flatten() {
        let Some(name) = &option.name else { continue };
        let text = match &option.value {
            Some(value) => format!("{name}:{value}"),
            None => name.clone(),
        };
        dns.options.retain(|it| it.split(':').next() != Some(name));
        dns.options.push(text);
    }
}

fn remove_duplicates(items: &mut Vec<String>) {
    let mut seen = std::collections::BTreeSet::new();
    items.retain(|it| seen.insert(it.clone()));
}

fn parse_resolv_conf(text: &str) -> DnsConfig {
    let mut dns = DnsConfig::default();
    for line in text.lines() {
        let line = line.split(['#', ';']).next().unwrap_or_default();
        let mut words = line.split_whitespace();
        match words.next() {
            Some("nameserver") => dns.servers.extend(words.next().map(str::to_owned)),
            // The last line wins.
            Some("search") => dns.searches = words.map(|it| it.trim_end_matches('.').to_owned()).collect(),
            Some("options") => dns.options.extend(words.map(str::to_owned)),
            _ => {}
        }
    }
    dns.searches.retain(|it| !it.is_empty());
    dns
}

/// Reads the node's own `/etc/hosts`, for hostNetwork pods. Returns an empty string if the file cannot be read.
pub(crate) fn read_node_hosts_file() -> String {
    std::fs::read_to_string(Path::new("/etc/hosts")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use serde_json::json;

    use super::*;
    use crate::config::example as config;

    fn pod(spec: serde_json::Value) -> Pod {
        let mut pod =
            json!({"metadata": {"name": "p", "namespace": "shop", "uid": "u"}, "spec": {"containers": []}});
        for (key, value) in spec.as_object().unwrap() {
            pod["spec"][key] = value.clone();
        }
        serde_json::from_value(pod).unwrap()
    }

    #[test]
    fn dns_configuration_of_a_pod() {
        let of_node = || {
            parse_resolv_conf(
                "nameserver 9.9.9.9 # quad\nsearch old\nsearch corp. lan\noptions timeout:1 rotate\n",
            )
        };
        let of = |spec: serde_json::Value| {
            let pod = pod(spec);
            let dns = combine_dns(&config(), "shop", pod.spec.as_ref().unwrap(), of_node);
            format!("{} | {} | {}", dns.servers.join(" "), dns.searches.join(" "), dns.options.join(" "))
        };
        let lines = [
            of(json!({})),
            of(json!({"hostNetwork": true})),
            of(json!({"hostNetwork": true, "dnsPolicy": "ClusterFirstWithHostNet"})),
            of(json!({"dnsPolicy": "Default"})),
            of(
                json!({"dnsPolicy": "None", "dnsConfig": {"nameservers": ["1.1.1.1", "1.1.1.1"], "searches": ["x"],
                "options": [{"name": "ndots", "value": "2"}, {"name": "edns0"}]}}),
            ),
            of(
                json!({"dnsConfig": {"nameservers": ["1.1.1.1"], "options": [{"name": "ndots", "value": "2"}]}}),
            ),
        ];
        expect![[r#"
            10.96.0.10 | shop.svc.cluster.local svc.cluster.local cluster.local corp lan | ndots:5
            9.9.9.9 | corp lan | timeout:1 rotate
            10.96.0.10 | shop.svc.cluster.local svc.cluster.local cluster.local corp lan | ndots:5
            9.9.9.9 | corp lan | timeout:1 rotate
            1.1.1.1 | x | ndots:2 edns0
            10.96.0.10 1.1.1.1 | shop.svc.cluster.local svc.cluster.local cluster.local corp lan | ndots:2"#]]
        .assert_eq(&lines.join("\n"));
    }

    #[test]
    fn hostname_of_a_pod() {
        let of = |spec: serde_json::Value| {
            let pod = pod(spec);
            let spec = pod.spec.as_ref().unwrap();
            let names = PodHostname::from_pod(&pod, spec, "cluster.local");
            format!(
                "{:?}\n{}",
                names.kernel_hostname(spec),
                names.hosts_file_content(spec, &["10.0.0.7".to_owned()], None)
            )
        };
        let texts = [
            of(json!({"hostAliases": [{"ip": "1.2.3.4", "hostnames": ["a", "b"]}]})),
            of(json!({"hostname": "web", "subdomain": "all", "setHostnameAsFQDN": true})),
            of(json!({"hostname": "w".repeat(63), "subdomain": "all", "setHostnameAsFQDN": true})),
        ];
        expect![[r#"
            Ok("p")
            # Kubernetes-managed hosts file.
            127.0.0.1	localhost
            ::1	localhost ip6-localhost ip6-loopback
            fe00::0	ip6-localnet
            fe00::0	ip6-mcastprefix
            fe00::1	ip6-allnodes
            fe00::2	ip6-allrouters
            10.0.0.7	p

            # Entries added by HostAliases.
            1.2.3.4	a	b

            Ok("web.all.shop.svc.cluster.local")
            # Kubernetes-managed hosts file.
            127.0.0.1	localhost
            ::1	localhost ip6-localhost ip6-loopback
            fe00::0	ip6-localnet
            fe00::0	ip6-mcastprefix
            fe00::1	ip6-allnodes
            fe00::2	ip6-allrouters
            10.0.0.7	web.all.shop.svc.cluster.local	web

            Err("Failed to construct FQDN from Pod hostname and cluster domain, FQDN wwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwww.all.shop.svc.cluster.local is too long (64 is the max, 90 characters requested).")
            # Kubernetes-managed hosts file.
            127.0.0.1	localhost
            ::1	localhost ip6-localhost ip6-loopback
            fe00::0	ip6-localnet
            fe00::0	ip6-mcastprefix
            fe00::1	ip6-allnodes
            fe00::2	ip6-allrouters
            10.0.0.7	wwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwww.all.shop.svc.cluster.local	wwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwww
        "#]].assert_eq(&texts.join("\n"));
    }
}
