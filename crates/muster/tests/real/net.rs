//! The network of real nodes, as pods see it: Services, names, host ports, and pods of other nodes.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use expect_test::expect;
use serde_json::Value;

use super::bed::{Cluster, IMAGE, is_ready};
use super::names;

/// A daemon that says on which node it is, and is ready as long as its file is there; and all the ways to it.
fn manifests() -> String {
    let service = |name: &str, spec: &str| {
        format!(
            "---\n{{apiVersion: v1, kind: Service, metadata: {{name: {name}}}, spec: {{selector: {{app: web}}, ports: [{{name: http, port: 80}}], {spec}}}}}\n"
        )
    };
    format!(
        r#"
apiVersion: apps/v1
kind: DaemonSet
metadata: {{name: web}}
spec:
  selector: {{matchLabels: {{app: web}}}}
  template:
    metadata: {{labels: {{app: web}}}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: web
        image: {IMAGE}
        command: [sh, -c, "mkdir /www; echo $NODE > /www/index.html; touch /tmp/ready; exec httpd -f -p 80 -h /www"]
        env: [{{name: NODE, valueFrom: {{fieldRef: {{fieldPath: spec.nodeName}}}}}}]
        ports: [{{containerPort: 80, hostPort: 8099}}]
        readinessProbe: {{exec: {{command: [test, -e, /tmp/ready]}}, periodSeconds: 1, failureThreshold: 1}}
{}{}{}{}{}---
{{apiVersion: v1, kind: Service, metadata: {{name: none}}, spec: {{selector: {{app: nothing}}, ports: [{{port: 80}}]}}}}
---
{{apiVersion: v1, kind: Service, metadata: {{name: other}}, spec: {{type: ExternalName, externalName: web.default.svc.cluster.local}}}}
"#,
        service("web", "type: ClusterIP"),
        service("peers", "clusterIP: None"),
        service("local", "internalTrafficPolicy: Local"),
        service("open", "type: NodePort"),
        service("sticky", "sessionAffinity: ClientIP"),
    )
}

pub(crate) struct Pod {
    name: String,
    node: String,
    address: String,
    host: String,
}

impl Pod {
    fn of(pod: &Value) -> Self {
        let text = |it: &Value| it.as_str().unwrap_or_default().to_owned();
        Self {
            name: text(&pod["metadata"]["name"]),
            node: text(&pod["spec"]["nodeName"]),
            address: text(&pod["status"]["podIP"]),
            host: text(&pod["status"]["hostIP"]),
        }
    }

    /// What a script says in it, on both outputs.
    pub(crate) fn says(&self, cluster: &Cluster, script: &str) -> String {
        cluster.try_kubectl(&["exec", &self.name, "--", "sh", "-c", script]).1.trim().to_owned()
    }

    /// Who answers, of twenty times that it asks.
    fn answered_by(&self, cluster: &Cluster, url: &str) -> String {
        let ask = format!("for i in $(seq 20); do timeout 9 wget -q -O - {url} 2>&1; done | sort -u");
        self.says(cluster, &ask).lines().collect::<Vec<_>>().join(" ")
    }

    /// What a name stands for.
    pub(crate) fn addresses(&self, cluster: &Cluster, name: &str) -> BTreeSet<String> {
        let said = self.says(cluster, &format!("nslookup -type=a {name}"));
        let answers = said.lines().skip_while(|it| !it.is_empty());
        answers.filter_map(|it| it.strip_prefix("Address: ")).map(|it| it.trim().to_owned()).collect()
    }
}

#[test]
#[ignore = "needs real nodes: root, kubectl, containerd, runc, CNI plugins, ip, nft, iptables, busybox"]
fn daemons_are_found_from_every_node() {
    let resolv_conf = format!("--agent-flag=--resolv-conf={}", names::resolv_conf("net").display());
    let cluster = Cluster::up_with("net", 2, &[&resolv_conf]);
    names::start_resolver(&cluster, "net");
    cluster.apply(&manifests());
    let pods: Vec<Pod> = cluster.ready_pods("app=web", 2).iter().map(Pod::of).collect();
    let node_port = cluster.get(&["service", "open"])["spec"]["ports"][0]["nodePort"].to_string();

    // The rules follow the endpoints; from then on all is as it is.
    let both = || pods.iter().map(|it| it.address.clone()).collect::<BTreeSet<_>>();
    for pod in &pods {
        cluster.wait("every node knows both daemons", || {
            let is_known = pod.addresses(&cluster, "peers.default.svc.cluster.local") == both()
                && pod.answered_by(&cluster, "http://web") == "node-1 node-2";
            is_known.then_some(())
        });
    }
    let mut said = String::new();
    for pod in &pods {
        let other = pods.iter().find(|it| it.name != pod.name).expect("there are two");
        let mut tell = |what: &str, heard: String| said += &format!("{} {what}: {heard}\n", pod.node);
        tell("to a Service", pod.answered_by(&cluster, "http://web"));
        tell(
            "to a Service by its whole name",
            pod.answered_by(&cluster, "http://web.default.svc.cluster.local"),
        );
        tell("to another name of it", pod.answered_by(&cluster, "http://other"));
        tell("to a Service of its own node", pod.answered_by(&cluster, "http://local"));
        tell("to a Service that keeps to one, how many answer", {
            let heard = pod.answered_by(&cluster, "http://sticky");
            heard.split(' ').filter(|it| it.starts_with("node-")).count().to_string()
        });
        tell("to a Service without endpoints", refused(&pod.answered_by(&cluster, "http://none")));
        tell("to the other pod", pod.answered_by(&cluster, &format!("http://{}", other.address)));
        tell("to the other pod by its name", {
            let host = other.address.replace('.', "-");
            pod.answered_by(&cluster, &format!("http://{host}.peers"))
        });
        for to in &pods {
            let of = |port: &str| format!("http://{}:{port}", to.host);
            tell(&format!("to the host port of {}", to.node), pod.answered_by(&cluster, &of("8099")));
            tell(&format!("to the node port of {}", to.node), pod.answered_by(&cluster, &of(&node_port)));
        }
        tell("to the API, as", who_am_i(&cluster, pod));
        let place = cluster.node(number_of(&pod.node));
        let on_node = |url: &str| {
            let ask = "for i in $(seq 20); do timeout 9 busybox wget -q -O - $0 2>&1; done | sort -u";
            let mut nsenter = Command::new("nsenter");
            nsenter.arg(format!("--net={}", place.netns_path().display())).args(["sh", "-c", ask, url]);
            let heard = String::from_utf8(nsenter.output().unwrap().stdout).unwrap();
            heard.lines().collect::<Vec<_>>().join(" ")
        };
        let address = cluster.get(&["service", "web"])["spec"]["clusterIP"].as_str().unwrap().to_owned();
        tell("itself, to a Service", on_node(&format!("http://{address}")));
    }
    expect![[r#"
        node-1 to a Service: node-1 node-2
        node-1 to a Service by its whole name: node-1 node-2
        node-1 to another name of it: node-1 node-2
        node-1 to a Service of its own node: node-1
        node-1 to a Service that keeps to one, how many answer: 1
        node-1 to a Service without endpoints: refused
        node-1 to the other pod: node-2
        node-1 to the other pod by its name: node-2
        node-1 to the host port of node-1: node-1
        node-1 to the node port of node-1: node-1 node-2
        node-1 to the host port of node-2: node-2
        node-1 to the node port of node-2: node-1 node-2
        node-1 to the API, as: system:serviceaccount:default:default
        node-1 itself, to a Service: node-1 node-2
        node-2 to a Service: node-1 node-2
        node-2 to a Service by its whole name: node-1 node-2
        node-2 to another name of it: node-1 node-2
        node-2 to a Service of its own node: node-2
        node-2 to a Service that keeps to one, how many answer: 1
        node-2 to a Service without endpoints: refused
        node-2 to the other pod: node-1
        node-2 to the other pod by its name: node-1
        node-2 to the host port of node-1: node-1
        node-2 to the node port of node-1: node-1 node-2
        node-2 to the host port of node-2: node-2
        node-2 to the node port of node-2: node-1 node-2
        node-2 to the API, as: system:serviceaccount:default:default
        node-2 itself, to a Service: node-1 node-2
    "#]]
    .assert_eq(&said);

    names::others_are_asked(&cluster, "net", &pods[0]);
    packets_find_their_way(&cluster);

    // One that is not ready is no longer found, and when none is, none is.
    let mut said = String::new();
    for gone in &pods {
        gone.says(&cluster, "rm /tmp/ready");
        cluster.wait("the daemon is not ready", || {
            (!is_ready(&cluster.get(&["pod", &gone.name]))).then_some(())
        });
        let left: BTreeSet<String> = match gone.node.as_str() {
            "node-1" => [pods[1].address.clone()].into(),
            _ => BTreeSet::new(),
        };
        for pod in &pods {
            cluster.wait("its name leads there no more", || {
                (pod.addresses(&cluster, "peers.default.svc.cluster.local") == left).then_some(())
            });
            let heard = cluster.wait("its Service leads there no more", || {
                let heard = pod.answered_by(&cluster, "http://web");
                (!heard.contains(&gone.node)).then_some(heard)
            });
            said += &format!("{} not ready, from {}: {}\n", gone.node, pod.node, refused(&heard));
        }
    }
    expect![[r#"
        node-1 not ready, from node-1: node-2
        node-1 not ready, from node-2: node-2
        node-2 not ready, from node-1: refused
        node-2 not ready, from node-2: refused
    "#]]
    .assert_eq(&said);
}

/// UDP: a daemon that says which node it is on and who asks, behind a host port and Services that do or do not keep to their node.
fn echo_manifests() -> String {
    let service = |name: &str, spec: &str| {
        format!(
            "---\n{{apiVersion: v1, kind: Service, metadata: {{name: {name}}}, spec: {{selector: {{app: echo}}, ports: [{{port: 7000, protocol: UDP}}], {spec}}}}}\n"
        )
    };
    format!(
        r#"
apiVersion: apps/v1
kind: DaemonSet
metadata: {{name: echo}}
spec:
  selector: {{matchLabels: {{app: echo}}}}
  template:
    metadata: {{labels: {{app: echo}}}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: echo
        image: {IMAGE}
        # busybox has nothing that listens for packets; every Debian has perl.
        command: [chroot, /machine, perl, "-MIO::Socket::INET", -e]
        args: ['$s = IO::Socket::INET->new(LocalPort => 7000, Proto => "udp"); while ($s->recv($_, 9)) {{ $s->send("$ENV{{NODE}} to " . $s->peerhost) }}']
        env: [{{name: NODE, valueFrom: {{fieldRef: {{fieldPath: spec.nodeName}}}}}}]
        ports: [{{containerPort: 7000, hostPort: 7001, protocol: UDP}}]
        volumeMounts: [{{name: machine, mountPath: /machine, readOnly: true}}]
      volumes: [{{name: machine, hostPath: {{path: /}}}}]
{}{}{}{}"#,
        service("echo", "type: ClusterIP"),
        service("echo-local", "internalTrafficPolicy: Local"),
        service("echo-open", "type: NodePort"),
        service("echo-kept", "type: NodePort, externalTrafficPolicy: Local"),
    )
}

/// Who answers to a packet, of twenty that are sent from ports of their own.
const ASK: &str = r#"use IO::Socket::INET; my %by; for (1..20) { my $b; for my $try (1..5) { my $s = IO::Socket::INET->new(PeerAddr => $ARGV[0], PeerPort => $ARGV[1], Proto => "udp"); $s->send("x"); eval { local $SIG{ALRM} = sub { die }; alarm 3; $s->recv($b, 99); alarm 0 }; last if length $b } $by{$b} = 1 } print join(", ", sort keys %by)"#;

fn packets_find_their_way(cluster: &Cluster) {
    cluster.apply(&echo_manifests());
    let pods: Vec<Pod> = cluster.ready_pods("app=echo", 2).iter().map(Pod::of).collect();
    let service = |name: &str| cluster.get(&["service", name]);
    let address = |name: &str| service(name)["spec"]["clusterIP"].as_str().unwrap_or_default().to_owned();
    let port = |name: &str| service(name)["spec"]["ports"][0]["nodePort"].to_string();
    let named = |mut text: String| {
        for pod in &pods {
            text = text.replace(&pod.address, &format!("POD-{}", &pod.node[5..]));
            text = text.replace(&pod.host, &format!("HOST-{}", &pod.node[5..]));
            // Where its node is for its pods: as that one comes who would else be answered from elsewhere than it asked.
            let bridge = cluster.node(number_of(&pod.node)).pod_cidr().replace(".0/24", ".1");
            text = text.replace(&bridge, &format!("BRIDGE-{}", &pod.node[5..]));
        }
        text.replace(&cluster.address().to_string(), "MACHINE")
    };
    let outside = |to: &str, port: &str| {
        let output = Command::new("perl").args(["-e", ASK, to, port]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let inside = |pod: &Pod, to: &str, port: &str| {
        let ask = ["exec", &pod.name, "--", "chroot", "/machine", "perl", "-e", ASK, to, port];
        cluster.try_kubectl(&ask).1
    };
    for pod in &pods {
        cluster.wait("every node knows both daemons", || {
            let heard = inside(pod, &address("echo"), "7000");
            (heard.contains("node-1") && heard.contains("node-2")).then_some(())
        });
    }
    let mut said = String::new();
    for pod in &pods {
        let node = &pod.node;
        let mut tell = |what: &str, heard: String| said += &format!("{node} {what}: {}\n", named(heard));
        tell("to a Service", inside(pod, &address("echo"), "7000"));
        tell("to a Service of its own node", inside(pod, &address("echo-local"), "7000"));
        for to in &pods {
            tell(&format!("to the host port of {}", to.node), inside(pod, &to.host, "7001"));
        }
    }
    for to in &pods {
        let mut tell = |what: &str, heard: String| {
            said += &format!("from outside, to {what} {}: {}\n", to.node, named(heard))
        };
        tell("the host port of", outside(&to.host, "7001"));
        tell("the node port of", outside(&to.host, &port("echo-open")));
        tell("the node port that keeps to", outside(&to.host, &port("echo-kept")));
    }
    expect![[r#"
        node-1 to a Service: node-1 to BRIDGE-1, node-2 to POD-1
        node-1 to a Service of its own node: node-1 to BRIDGE-1
        node-1 to the host port of node-1: node-1 to BRIDGE-1
        node-1 to the host port of node-2: node-2 to HOST-1
        node-2 to a Service: node-1 to POD-2, node-2 to BRIDGE-2
        node-2 to a Service of its own node: node-2 to BRIDGE-2
        node-2 to the host port of node-1: node-1 to HOST-2
        node-2 to the host port of node-2: node-2 to BRIDGE-2
        from outside, to the host port of node-1: node-1 to MACHINE
        from outside, to the node port of node-1: node-1 to BRIDGE-1, node-2 to HOST-1
        from outside, to the node port that keeps to node-1: node-1 to MACHINE
        from outside, to the host port of node-2: node-2 to MACHINE
        from outside, to the node port of node-2: node-1 to HOST-2, node-2 to BRIDGE-2
        from outside, to the node port that keeps to node-2: node-2 to MACHINE
    "#]]
    .assert_eq(&said);
}

/// Who the API says that asks, with the token of the pod's account and the certificate that it is given, from where the pod is.
/// busybox knows too little of TLS to ask by itself.
fn who_am_i(cluster: &Cluster, pod: &Pod) -> String {
    let place = cluster.node(number_of(&pod.node));
    let held = place.containerd_socket().with_file_name("state/io.containerd.grpc.v1.cri/netns");
    let netns: Vec<_> = fs::read_dir(&held).unwrap().map(|it| it.unwrap().path()).collect();
    let [netns] = &netns[..] else { panic!("{}: one pod was to be there, not {netns:?}", held.display()) };
    let of_pod =
        |name: &str| pod.says(cluster, &format!("cat /var/run/secrets/kubernetes.io/serviceaccount/{name}"));
    let authority = cluster.dir.join("of-a-pod.crt");
    fs::write(&authority, of_pod("ca.crt")).unwrap();
    let mut ask = Command::new("nsenter");
    ask.arg(format!("--net={}", netns.display())).arg(cluster.kubectl_command(&[]).get_program());
    ask.args(["--kubeconfig", "/dev/null", "--server", "https://10.96.0.1", "--token", &of_pod("token")]);
    ask.arg("--certificate-authority").arg(&authority);
    ask.args(["auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"]);
    let output = ask.output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn refused(heard: &str) -> String {
    let is_refused =
        heard.starts_with("wget: can't connect to remote host") && heard.ends_with("Connection refused");
    if is_refused { "refused".to_owned() } else { heard.to_owned() }
}

fn number_of(node: &str) -> u16 {
    node.trim_start_matches("node-").parse().expect("a node of the cluster")
}
