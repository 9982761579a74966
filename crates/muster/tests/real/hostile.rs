//! Pods and agents that want what is not theirs, and what they get.

use std::fs;
use std::path::Path;

use expect_test::expect;
use serde_json::{Value, json};

use crate::bed::{Cluster, IMAGE, is_ready, items};
use crate::fields::{log, states};

/// A pod of one container that runs a script, with whatever else its spec has.
fn pod(namespace: &str, name: &str, node: &str, script: &str, more: Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "nodeName": node,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": false,
            "containers": [{"name": "c", "image": IMAGE, "imagePullPolicy": "Never", "command": ["sh", "-c", script]}],
        },
    });
    merge(&mut pod["spec"], more);
    pod
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (Value::Array(into), Value::Array(from)) if from.len() <= into.len() => {
            for (into, from) in into.iter_mut().zip(from) {
                merge(into, from);
            }
        }
        (into, from) => *into = from,
    }
}

#[test]
#[ignore = "needs real nodes: root, kubectl, containerd, runc, CNI plugins, ip, nft, iptables, busybox"]
fn hostile_pods_and_agents_get_nothing() {
    let cluster = Cluster::up("hostile", 2);
    cluster.kubectl(&["create", "namespace", "mallory"]);
    cluster.kubectl(&["create", "namespace", "alice"]);
    cluster.kubectl(&[
        "create",
        "secret",
        "generic",
        "-n",
        "alice",
        "key",
        "--from-literal=password=hunter2",
    ]);
    cluster.kubectl(&["create", "secret", "generic", "-n", "mallory", "own", "--from-literal=a=b"]);
    // Alice's pod is on the second node, and mallory's are on the first.
    let uses = json!({"volumes": [{"name": "key", "secret": {"secretName": "key"}}]});
    cluster.apply(&pod("alice", "works", "node-2", "echo alice is here; sleep 3600", uses).to_string());
    cluster.wait("alice's pod", || is_ready(&cluster.get(&["pod", "-n", "alice", "works"])).then_some(()));

    paths_in_specs(&cluster);
    links_in_volumes(&cluster);
    logs_of_others(&cluster);
    what_is_too_much(&cluster);
    an_agent_for_another(&cluster);
    into_another_namespace(&cluster);
    what_does_not_fit(&cluster);

    // Nobody else was harmed.
    let alice = cluster.get(&["pod", "-n", "alice", "works"]);
    assert_eq!(states(&alice), "c: runs, 0 restarts\n");
    let nodes = items(&cluster.get(&["nodes"]));
    assert!(nodes.len() == 2 && nodes.iter().all(is_ready), "{nodes:?}");
}

/// Nobody asked a scheduler: the node itself refuses what it cannot take.
fn what_does_not_fit(cluster: &Cluster) {
    let port = json!({"containers": [{"ports": [{"containerPort": 80, "hostPort": 30999}]}]});
    cluster.apply(&pod("mallory", "has-port", "node-1", "sleep 3600", port.clone()).to_string());
    let first = || is_ready(&cluster.get(&["pod", "-n", "mallory", "has-port"])).then_some(());
    cluster.wait("the pod that has the port", first);
    let asks = |what: &str, much: &str| json!({"containers": [{"resources": {"requests": {what: much}}}]});
    let all = [
        ("much-cpu", asks("cpu", "1000")),
        ("much-memory", asks("memory", "1000Ti")),
        ("same-port", port),
        ("other-node", json!({"nodeSelector": {"kubernetes.io/hostname": "node-2"}})),
    ];
    let mut seen = String::new();
    for (name, more) in all {
        cluster.apply(&pod("mallory", name, "node-1", "echo it runs", more).to_string());
        let status = cluster.wait("an answer", || {
            let status = cluster.get(&["pod", "-n", "mallory", name])["status"].take();
            (status["phase"] != "Pending").then_some(status)
        });
        let (phase, reason) = (status["phase"].as_str().unwrap(), status["reason"].as_str().unwrap());
        let message = status["message"].as_str().unwrap();
        // How much there is, the machine decides.
        let message = message.split(", used:").next().unwrap();
        seen += &format!("{name}: {phase}, {reason}: {message}\n");
        assert!(status["containerStatuses"].is_null(), "{status}");
    }
    expect![[r#"
        much-cpu: Failed, OutOfcpu: Pod was rejected: Node didn't have enough resource: cpu, requested: 1000000
        much-memory: Failed, OutOfmemory: Pod was rejected: Node didn't have enough resource: memory, requested: 1099511627776000
        same-port: Failed, NodePorts: Pod was rejected: Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports
        other-node: Failed, NodeAffinity: Pod was rejected: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector
    "#]].assert_eq(&seen);
    assert!(is_ready(&cluster.get(&["pod", "-n", "mallory", "has-port"])));
}

/// What leads out of its volume is not let in by the API server; the node, which need not trust it, is tested alone.
fn paths_in_specs(cluster: &Cluster) {
    let volumes = [
        json!({"name": "v", "hostPath": {"path": "/var/log/../../etc"}}),
        json!({"name": "v", "configMap": {"name": "m", "items": [{"key": "a", "path": "../../etc/cron.d/a"}]}}),
        json!({"name": "v", "secret": {"secretName": "own", "items": [{"key": "a", "path": "/etc/cron.d/a"}]}}),
        json!({"name": "../../v", "emptyDir": {}}),
    ];
    for volume in volumes {
        let hostile = pod("mallory", "paths", "node-1", "true", json!({"volumes": [volume]}));
        let (is_ok, said) = cluster.try_apply(&hostile.to_string());
        assert!(!is_ok && said.contains("spec.volumes[0]"), "{said}");
    }
    for mount in
        [json!({"subPath": "../.."}), json!({"subPath": "/etc"}), json!({"subPathExpr": "../$(HOME)"})]
    {
        let mut mounts = json!({"name": "v", "mountPath": "/v"});
        merge(&mut mounts, mount);
        let spec =
            json!({"volumes": [{"name": "v", "emptyDir": {}}], "containers": [{"volumeMounts": [mounts]}]});
        let (is_ok, said) = cluster.try_apply(&pod("mallory", "paths", "node-1", "true", spec).to_string());
        assert!(!is_ok && said.contains("volumeMounts") && said.contains("subPath"), "{said}");
    }
}

/// A container makes links in a volume, and the next one mounts what they lead to.
fn links_in_volumes(cluster: &Cluster) {
    let container = |name: &str, sub_path: &str| {
        let mounts = json!([{"name": "v", "mountPath": "/v", "subPath": sub_path}]);
        json!({"name": name, "image": IMAGE, "command": ["sh", "-c", "ls /v; cat /v/*"], "volumeMounts": mounts})
    };
    let links = "ln -s /etc /v/out; ln -s ../../../../../../../.. /v/up; ln -s /proc/self/root /v/proc; \
                 mkdir /v/dir; echo mine > /v/dir/file; ln -s dir /v/in";
    let init = json!({"name": "links", "image": IMAGE, "command": ["sh", "-c", links],
        "volumeMounts": [{"name": "v", "mountPath": "/v"}]});
    let mut hostile = pod("mallory", "links", "node-1", "true", json!({}));
    hostile["spec"]["initContainers"] = json!([init]);
    hostile["spec"]["containers"] = json!([
        container("c-out", "out"),
        container("c-up", "up/etc"),
        container("c-proc", "proc/etc"),
        container("in", "in")
    ]);
    hostile["spec"]["volumes"] = json!([{"name": "v", "emptyDir": {}}]);
    cluster.apply(&hostile.to_string());
    let pod = cluster.wait("what the links lead to", || {
        let pod = cluster.get(&["pod", "-n", "mallory", "links"]);
        let states = states(&pod);
        (states.matches("CreateContainerConfigError").count() == 3 && states.contains("in: exited"))
            .then_some(pod)
    });
    expect![[r#"
        c-out: waits for CreateContainerConfigError (volumeMount "v" of container "c-out": failed to prepare subPath: it does not exist, or leads out of its volume), 0 restarts
        c-proc: waits for CreateContainerConfigError (volumeMount "v" of container "c-proc": failed to prepare subPath: it does not exist, or leads out of its volume), 0 restarts
        c-up: waits for CreateContainerConfigError (volumeMount "v" of container "c-up": failed to prepare subPath: it does not exist, or leads out of its volume), 0 restarts
        in: exited with 0 Completed, 0 restarts
    "#]].assert_eq(&states(&pod));
    assert_eq!(log(cluster, &pod, "in"), "file\nmine\n");
    cluster.kubectl(&["delete", "pod", "-n", "mallory", "links", "--timeout=120s"]);
}

/// A pod that may write where logs are kept has those of its own node before it, and cannot have files of the machine
/// read out as its log.
fn logs_of_others(cluster: &Cluster) {
    let stolen = cluster.dir.join("not-yours");
    fs::create_dir_all(stolen.join("c")).unwrap();
    let secret = "2026-01-01T00:00:00Z stdout F not yours\n";
    fs::write(stolen.join("c/0.log"), secret).unwrap();
    let volumes = json!([
        {"name": "log", "hostPath": {"path": "/var/log"}},
        {"name": "machine", "hostPath": {"path": "/"}},
    ]);
    let mounts = json!([{"name": "log", "mountPath": "/log"}, {"name": "machine", "mountPath": "/machine"}]);
    let stolen = stolen.to_str().unwrap();
    let script = format!(
        "for d in /log /machine/var/log; do echo \"$d: $(ls $d/pods | sed 's/_[^_]*$//' | sort | tr '\\n' ' ')\"; done; \
         cd /log/pods/mallory_reads-file_*/c && ln -sf {stolen}/c/0.log 0.log; \
         cd /log/pods && for d in mallory_reads-dir_*; do mv $d moved && ln -s {stolen} $d; done; echo done"
    );
    for name in ["reads-file", "reads-dir"] {
        cluster.apply(&pod("mallory", name, "node-1", "echo own words; sleep 3600", json!({})).to_string());
        let said = || cluster.try_kubectl(&["logs", "-n", "mallory", name]).1;
        cluster.wait(&format!("the words of {name}"), || (said() == "own words\n").then_some(()));
    }
    let more = json!({"volumes": volumes, "containers": [{"volumeMounts": mounts}]});
    cluster.apply(&pod("mallory", "writes", "node-1", &script, more).to_string());
    let pod = cluster.wait("the pod that writes", || {
        let pod = cluster.get(&["pod", "-n", "mallory", "writes"]);
        states(&pod).contains("exited").then_some(pod)
    });
    expect![[r#"
        /log: mallory_reads-dir mallory_reads-file mallory_writes 
        /machine/var/log: mallory_reads-dir mallory_reads-file mallory_writes 
        done
    "#]]
    .assert_eq(&log(cluster, &pod, "c"));
    for name in ["reads-file", "reads-dir"] {
        let (_, said) = cluster.try_kubectl(&["logs", "-n", "mallory", name]);
        assert!(!said.contains("not yours"), "{name}: {said}");
    }
    cluster.kubectl(&["delete", "pod", "-n", "mallory", "--all", "--timeout=120s"]);
    // What the links led to is still there.
    assert_eq!(fs::read_to_string(Path::new(stolen).join("c/0.log")).unwrap(), secret);
}

/// Fields as large as the API server takes them.
fn what_is_too_much(cluster: &Cluster) {
    let large = "x".repeat(200 << 10);
    let env = json!([{"name": "LARGE", "value": large}]);
    let args = json!({"containers": [{"env": env}]});
    cluster.apply(&pod("mallory", "large-variable", "node-1", "true", args).to_string());
    let script = "head -c 1000000 /dev/zero | tr '\\0' y > /dev/termination-log; head -c 1000000 /dev/zero | tr '\\0' z";
    cluster.apply(&pod("mallory", "large-words", "node-1", script, json!({})).to_string());
    let limit = json!({"volumes": [{"name": "v", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}],
        "containers": [{"volumeMounts": [{"name": "v", "mountPath": "/v"}]}]});
    let script = "head -c 2000000 /dev/zero > /v/file || echo is full";
    cluster.apply(&pod("mallory", "large-file", "node-1", script, limit).to_string());

    let pod = cluster.wait("the end of large words", || {
        let pod = cluster.get(&["pod", "-n", "mallory", "large-words"]);
        states(&pod).contains("exited").then_some(pod)
    });
    let message = &pod["status"]["containerStatuses"][0]["state"]["terminated"]["message"];
    assert_eq!(message.as_str().map(str::len), Some(4096));
    let pod = cluster.wait("the end of a large file", || {
        let pod = cluster.get(&["pod", "-n", "mallory", "large-file"]);
        states(&pod).contains("exited").then_some(pod)
    });
    assert!(log(cluster, &pod, "c").contains("is full"));
    cluster.wait("an answer to a large variable", || {
        let states = states(&cluster.get(&["pod", "-n", "mallory", "large-variable"]));
        (states.contains("waits for") && !states.contains("ContainerCreating") || states.contains("exited"))
            .then_some(())
    });
    cluster.kubectl(&["delete", "pod", "-n", "mallory", "--all", "--timeout=120s"]);
}

/// The first node's own certificate is asked for what is the second's.
fn an_agent_for_another(cluster: &Cluster) {
    let pem = cluster.node(1).agent_root().join("pki/client.pem");
    let pem = pem.to_str().unwrap();
    let config = fs::read_to_string(cluster.kubeconfig()).unwrap();
    let server = config.lines().find_map(|it| it.trim().strip_prefix("server: ")).unwrap().to_owned();
    let authority = cluster.dir.join("ca.crt");
    let asks = |args: &[&str]| {
        let mut all = vec!["--kubeconfig=/dev/null", "--server", &server, "--client-certificate", pem];
        all.extend(["--client-key", pem, "--certificate-authority", authority.to_str().unwrap()]);
        all.extend(args);
        let output = std::process::Command::new(crate::bed::newest_kubectl()).args(all).output().unwrap();
        let said =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        let said = said.trim_end().rsplit('\n').next().unwrap_or_default().to_owned();
        format!("{}: {said}\n", args.join(" "))
    };
    let status = r#"{"status":{"phase":"Failed"}}"#;
    let mut told = String::new();
    for args in [
        &["auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"][..],
        &["get", "secret", "-n", "alice", "key"],
        &["get", "secrets", "-n", "alice"],
        &["get", "secrets", "-A"],
        &["patch", "pod", "-n", "alice", "works", "--subresource=status", "-p", status],
        &["delete", "pod", "-n", "alice", "works"],
        &["create", "token", "-n", "alice", "default"],
        &["label", "node", "node-2", "a=b"],
        &["label", "node", "node-1", "node-restriction.kubernetes.io/a=b"],
        &["delete", "node", "node-2"],
        &["get", "lease", "-n", "kube-node-lease", "node-2"],
    ] {
        told += &asks(args);
    }
    expect![[r#"
        auth whoami -o jsonpath={.status.userInfo.username}: system:node:node-1
        get secret -n alice key: Error from server (Forbidden): secrets "key" is forbidden: User "system:node:node-1" cannot get resource "secrets" in API group "" in the namespace "alice": no relationship found between node 'node-1' and this object
        get secrets -n alice: Error from server (Forbidden): secrets is forbidden: User "system:node:node-1" cannot list resource "secrets" in API group "" in the namespace "alice": No Object name found
        get secrets -A: Error from server (Forbidden): secrets is forbidden: User "system:node:node-1" cannot list resource "secrets" in API group "" at the cluster scope: can only read namespaced object of this type
        patch pod -n alice works --subresource=status -p {"status":{"phase":"Failed"}}: Error from server (Forbidden): pods "works" is forbidden: User "system:node:node-1" cannot get resource "pods/status" in API group "" in the namespace "alice"
        delete pod -n alice works: Error from server (Forbidden): pods "works" is forbidden: node "node-1" can only delete pods with spec.nodeName set to itself
        create token -n alice default: error: failed to create token: serviceaccounts "default" is forbidden: User "system:node:node-1" cannot create resource "serviceaccounts/token" in API group "" in the namespace "alice": no relationship found between node 'node-1' and this object
        label node node-2 a=b: Error from server (Forbidden): nodes "node-2" is forbidden: node "node-1" is not allowed to modify node "node-2"
        label node node-1 node-restriction.kubernetes.io/a=b: Error from server (Forbidden): nodes "node-1" is forbidden: is not allowed to modify labels: node-restriction.kubernetes.io/a
        delete node node-2: Error from server (Forbidden): nodes "node-2" is forbidden: User "system:node:node-1" cannot delete resource "nodes" in API group "" at the cluster scope
        get lease -n kube-node-lease node-2: Error from server (Forbidden): leases.coordination.k8s.io "node-2" is forbidden: User "system:node:node-1" cannot get resource "leases" in API group "coordination.k8s.io" in the namespace "kube-node-lease": can only access node lease with the same name as the requesting node
    "#]].assert_eq(&told);
}

/// Who may reach into the pods of one namespace reaches into no other's.
fn into_another_namespace(cluster: &Cluster) {
    cluster.kubectl(&["create", "serviceaccount", "-n", "mallory", "mallory"]);
    cluster.kubectl(&[
        "create",
        "role",
        "-n",
        "mallory",
        "reach",
        "--verb=*",
        "--resource=pods,pods/exec,pods/log",
    ]);
    let subject = "--serviceaccount=mallory:mallory";
    cluster.kubectl(&["create", "rolebinding", "-n", "mallory", "reach", "--role=reach", subject]);
    // Of alice's pods mallory may see that they are there.
    cluster.kubectl(&["create", "role", "-n", "alice", "look", "--verb=get", "--resource=pods"]);
    cluster.kubectl(&["create", "rolebinding", "-n", "alice", "look", "--role=look", subject]);
    let token = cluster.kubectl(&["create", "token", "-n", "mallory", "mallory"]);
    let config = cluster.dir.join("mallory.kubeconfig");
    let cluster_of = fs::read_to_string(cluster.kubeconfig()).unwrap();
    let server = cluster_of.lines().find_map(|it| it.trim().strip_prefix("server: ")).unwrap().to_owned();
    let authority = cluster.dir.join("ca.crt");
    let written = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": server, "certificate-authority": authority}}],
        "users": [{"name": "u", "user": {"token": token.trim()}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    });
    fs::write(&config, written.to_string()).unwrap();
    let config = config.to_str().unwrap();
    let mut told = String::new();
    for args in [
        &["logs", "-n", "alice", "works"][..],
        &["exec", "-n", "alice", "works", "--", "id"],
        &["attach", "-n", "alice", "works"],
        &["port-forward", "-n", "alice", "pod/works", "0:80"],
    ] {
        let mut all = vec!["--kubeconfig", config];
        all.extend(args);
        let output = std::process::Command::new(crate::bed::newest_kubectl()).args(all).output().unwrap();
        assert!(!output.status.success());
        told += String::from_utf8_lossy(&output.stderr).trim_end().rsplit('\n').next().unwrap_or_default();
        told += "\n";
    }
    expect![[r#"
        Error from server (Forbidden): pods "works" is forbidden: User "system:serviceaccount:mallory:mallory" cannot get resource "pods/log" in API group "" in the namespace "alice"
        Error from server (Forbidden): pods "works" is forbidden: User "system:serviceaccount:mallory:mallory" cannot create resource "pods/exec" in API group "" in the namespace "alice"
        Error from server (Forbidden): pods "works" is forbidden: User "system:serviceaccount:mallory:mallory" cannot create resource "pods/attach" in API group "" in the namespace "alice"
        error: error upgrading connection: pods "works" is forbidden: User "system:serviceaccount:mallory:mallory" cannot create resource "pods/portforward" in API group "" in the namespace "alice"
    "#]].assert_eq(&told);
}
