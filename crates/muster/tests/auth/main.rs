//! Who may do what, as users meet it: real kubectls with other credentials than the administrator's.

#[path = "../bed/mod.rs"]
mod bed;
mod deploy;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use base64::{Engine as _, prelude::BASE64_STANDARD as BASE64};
use expect_test::{Expect, expect};

use crate::bed::cluster::{TestCluster, UpFlags};
use crate::bed::{Muster, fresh_dir, kubectls};

/// The newest kubectl, with one server.
struct Bench {
    muster: Muster,
    kubectl: PathBuf,
}

impl Bench {
    /// The user that the server authenticates, with kubectl's exit code, or "401".
    fn whoami(&self, kubeconfig: &Path) -> String {
        let said = self.says(kubeconfig, &["auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"]);
        if said.contains("Unauthorized") || said.contains("must be logged in") {
            return "401".to_owned();
        }
        said
    }

    fn new(name: &str) -> Self {
        let newest = |it: &String| it.split('.').map(|it| it.parse::<u32>().unwrap_or(0)).collect::<Vec<_>>();
        let all = kubectls();
        let version = all.keys().max_by_key(|it| newest(it)).expect("there is one").clone();
        Self { muster: Muster::up(name, 1), kubectl: all[&version].clone() }
    }

    /// As the administrator, whose command works.
    fn admin(&self, args: &[&str]) -> String {
        let output = command(&self.kubectl, &self.muster.dir)
            .env("KUBECONFIG", self.muster.kubeconfig())
            .args(args)
            .output()
            .unwrap();
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{args:?}: {err}");
        out
    }

    /// What kubectl says on both channels, and how it ended.
    fn says(&self, kubeconfig: &Path, args: &[&str]) -> String {
        let output = command(&self.kubectl, &self.muster.dir)
            .env("KUBECONFIG", kubeconfig)
            .args(args)
            .output()
            .unwrap();
        let said = text(&output.stdout) + &text(&output.stderr);
        // What its cache of the discovery logs on the side has times in it.
        let said: Vec<_> = said.lines().filter(|it| !it.contains("memcache.go")).collect();
        format!("[{}] {}", output.status.code().unwrap_or(-1), said.join("\n"))
    }

    /// A kubeconfig with the certificate that a signing request of this name was given.
    fn certified(&self, name: &str) -> PathBuf {
        let dir = &self.muster.dir;
        let certificate = self.admin(&["get", "csr", name, "-o", "jsonpath={.status.certificate}"]);
        let [path, key] = ["crt", "key"].map(|it| dir.join(format!("{name}.{it}")));
        fs::write(&path, BASE64.decode(certificate).unwrap()).unwrap();
        let credentials = [
            "--embed-certs".to_owned(),
            format!("--client-certificate={}", path.display()),
            format!("--client-key={}", key.display()),
        ];
        kubeconfig(&self.kubectl, dir, name, &credentials.each_ref().map(String::as_str))
    }

    fn check(&self, kubeconfig: &Path, commands: &[&str], expected: &Expect) {
        let mut said = String::new();
        for line in commands {
            let args: Vec<_> = line.split(' ').collect();
            said += &format!("$ kubectl {line}\n{}\n", self.says(kubeconfig, &args));
        }
        expected.assert_eq(&said);
    }
}

/// A kubeconfig for whoever has these credentials, beside the administrator's in `dir`.
fn kubeconfig(kubectl: &Path, dir: &Path, name: &str, credentials: &[&str]) -> PathBuf {
    let path = dir.join(name);
    fs::copy(dir.join("kubeconfig"), &path).unwrap();
    let set = |args: &[&str]| {
        let done = command(kubectl, dir).env("KUBECONFIG", &path).arg("config").args(args).output().unwrap();
        assert!(done.status.success(), "{args:?}: {}", text(&done.stderr));
    };
    set(&[&["set-credentials", "other"], credentials].concat());
    set(&["set-context", "muster", "--user", "other"]);
    path
}

/// A CertificateSigningRequest, made with openssl. Its key is left in `dir`.
fn signing_request(dir: &Path, name: &str, subject: &str, signer: &str) -> String {
    let request = Command::new("openssl")
        .args(["req", "-new", "-newkey", "rsa:2048", "-nodes", "-subj", subject, "-keyout"])
        .arg(dir.join(format!("{name}.key")))
        .output()
        .expect("openssl is installed");
    assert!(request.status.success(), "{}", text(&request.stderr));
    let request = BASE64.encode(request.stdout);
    format!(
        "apiVersion: certificates.k8s.io/v1
kind: CertificateSigningRequest
metadata: {{name: {name}}}
spec:
  request: {request}
  signerName: kubernetes.io/{signer}
  expirationSeconds: 3600
  usages: [client auth, digital signature]
"
    )
}

fn command(kubectl: &Path, home: &Path) -> Command {
    let mut command = Command::new(kubectl);
    command.env("HOME", home);
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
#[ignore = "needs kubectl"]
fn roles_decide_what_kubectl_may_do() {
    let bench = Bench::new("auth-roles");
    let admin = bench.muster.kubeconfig();
    bench.check(
        &admin,
        &[
            "auth whoami -o jsonpath={.status.userInfo.username}",
            "auth can-i delete daemonsets",
            "auth can-i delete daemonsets --as eve",
            "auth can-i get /metrics --as eve",
            "get nodes --as eve",
            "get configmaps --as eve --as-group system:masters -n kube-public -o name",
            "create serviceaccount bot",
            "create role reader --verb=list --resource=pods",
            "create rolebinding reader --role=reader --serviceaccount=default:bot",
            "auth can-i list pods --as system:serviceaccount:default:bot",
            "auth can-i list pods --as system:serviceaccount:default:bot -n kube-system",
            "create role pods --verb=delete --resource=pods --as system:serviceaccount:default:bot",
        ],
        &expect![[r#"
            $ kubectl auth whoami -o jsonpath={.status.userInfo.username}
            [0] kubernetes-admin
            $ kubectl auth can-i delete daemonsets
            [0] yes
            $ kubectl auth can-i delete daemonsets --as eve
            [1] no
            $ kubectl auth can-i get /metrics --as eve
            [1] no
            $ kubectl get nodes --as eve
            [1] Error from server (Forbidden): nodes is forbidden: User "eve" cannot list resource "nodes" in API group "" at the cluster scope
            $ kubectl get configmaps --as eve --as-group system:masters -n kube-public -o name
            [0] configmap/kube-root-ca.crt
            $ kubectl create serviceaccount bot
            [0] serviceaccount/bot created
            $ kubectl create role reader --verb=list --resource=pods
            [0] role.rbac.authorization.k8s.io/reader created
            $ kubectl create rolebinding reader --role=reader --serviceaccount=default:bot
            [0] rolebinding.rbac.authorization.k8s.io/reader created
            $ kubectl auth can-i list pods --as system:serviceaccount:default:bot
            [0] yes
            $ kubectl auth can-i list pods --as system:serviceaccount:default:bot -n kube-system
            [1] no
            $ kubectl create role pods --verb=delete --resource=pods --as system:serviceaccount:default:bot
            [1] Error from server (Forbidden): roles.rbac.authorization.k8s.io is forbidden: User "system:serviceaccount:default:bot" cannot create resource "roles" in API group "rbac.authorization.k8s.io" in the namespace "default"
        "#]],
    );

    let token = bench.admin(&["create", "token", "bot", "--duration", "10m"]);
    let bot = kubeconfig(&bench.kubectl, &bench.muster.dir, "bot", &["--token", token.trim()]);
    let commands =
        ["get pods", "get pods -w --request-timeout=5s", "get pods -A", "get secrets", "delete pods --all"];
    bench.check(&bot, &commands, &expect![[r#"
        $ kubectl get pods
        [0] No resources found in default namespace.
        $ kubectl get pods -w --request-timeout=5s
        [1] Error from server (Forbidden): pods is forbidden: User "system:serviceaccount:default:bot" cannot watch resource "pods" in API group "" in the namespace "default"
        $ kubectl get pods -A
        [1] Error from server (Forbidden): pods is forbidden: User "system:serviceaccount:default:bot" cannot list resource "pods" in API group "" at the cluster scope
        $ kubectl get secrets
        [1] Error from server (Forbidden): secrets is forbidden: User "system:serviceaccount:default:bot" cannot list resource "secrets" in API group "" in the namespace "default"
        $ kubectl delete pods --all
        [0] No resources found
    "#]]);

    bench.admin(&["delete", "serviceaccount", "bot"]);
    bench.check(
        &bot,
        &["get pods"],
        &expect![[r#"
        $ kubectl get pods
        [1] error: You must be logged in to the server (Unauthorized)
    "#]],
    );
    bench.muster.stop();
}

#[test]
#[ignore = "needs kubectl"]
fn credentials_that_are_none_are_refused() {
    let bench = Bench::new("auth-false");
    let nobody =
        kubeconfig(&bench.kubectl, &bench.muster.dir, "nobody", &["--token", "aaaaaa.bbbbbbbbbbbbbbbb"]);
    bench.check(&nobody, &["get pods"], &expect![[r#"
        $ kubectl get pods
        [1] error: You must be logged in to the server (the server has asked for the client to provide credentials)
    "#]]);

    let secret = "apiVersion: v1
kind: Secret
metadata: {name: bootstrap-token-aaaaaa, namespace: kube-system}
type: bootstrap.kubernetes.io/token
stringData:
  token-id: aaaaaa
  token-secret: bbbbbbbbbbbbbbbb
  usage-bootstrap-authentication: 'true'
  expiration: '2026-01-01T00:00:00Z'
";
    let path = bench.muster.dir.join("secret.yaml");
    fs::write(&path, secret).unwrap();
    bench.admin(&["apply", "-f", path.to_str().unwrap()]);
    bench.check(
        &nobody,
        &["auth whoami"],
        &expect![[r#"
        $ kubectl auth whoami
        [1] error: You must be logged in to the server (Unauthorized)
    "#]],
    );
    let later = secret.replace("'2026-01-01T00:00:00Z'", "'2999-01-01T00:00:00Z'");
    fs::write(&path, later).unwrap();
    bench.admin(&["apply", "-f", path.to_str().unwrap()]);
    bench.check(
        &nobody,
        &["auth whoami -o jsonpath={.status.userInfo.username}"],
        &expect![[r#"
        $ kubectl auth whoami -o jsonpath={.status.userInfo.username}
        [0] system:bootstrap:aaaaaa
    "#]],
    );

    // A server of another authority.
    let other = Muster::up("auth-other", 0);
    let config = fs::read_to_string(bench.muster.kubeconfig()).unwrap();
    let theirs = fs::read_to_string(other.kubeconfig()).unwrap();
    let line =
        |text: &str, name: &str| text.lines().find(|it| it.trim().starts_with(name)).unwrap().to_owned();
    let mixed = config.replace(&line(&config, "server:"), &line(&theirs, "server:"));
    let mixed_path = bench.muster.dir.join("mixed");
    fs::write(&mixed_path, &mixed).unwrap();
    let said = bench.says(&mixed_path, &["get", "pods"]);
    assert!(said.contains("certificate signed by unknown authority"), "{said}");
    // A client whose certificate is of another authority.
    let ca = "certificate-authority-data:";
    let mixed = mixed.replace(&line(&config, ca), &line(&theirs, ca));
    fs::write(&mixed_path, &mixed).unwrap();
    let said = bench.says(&mixed_path, &["get", "pods"]);
    assert!(said.starts_with("[1] Unable to connect to the server"), "{said}");
    other.stop();
    bench.muster.stop();
}

#[test]
#[ignore = "needs kubectl and openssl"]
fn a_certificate_is_requested_approved_and_used() {
    let bench = Bench::new("auth-csr");
    let dir = &bench.muster.dir;
    let object = signing_request(dir, "ann", "/O=dev/O=ops/CN=ann", "kube-apiserver-client");
    fs::write(dir.join("csr.yaml"), object).unwrap();
    bench.admin(&["apply", "-f", dir.join("csr.yaml").to_str().unwrap()]);
    let admin = bench.muster.kubeconfig();
    bench.check(
        &admin,
        &[
            "create clusterrole reader --verb=get,update --resource=certificatesigningrequests,certificatesigningrequests/approval",
            "create clusterrolebinding reader --clusterrole=reader --user=eve",
            "certificate approve ann --as eve",
            "certificate approve ann",
            "wait csr/ann --for=jsonpath={.status.certificate} --timeout=30s",
        ],
        &expect![[r#"
            $ kubectl create clusterrole reader --verb=get,update --resource=certificatesigningrequests,certificatesigningrequests/approval
            [0] clusterrole.rbac.authorization.k8s.io/reader created
            $ kubectl create clusterrolebinding reader --clusterrole=reader --user=eve
            [0] clusterrolebinding.rbac.authorization.k8s.io/reader created
            $ kubectl certificate approve ann --as eve
            [1] Error from server (Forbidden): certificatesigningrequests.certificates.k8s.io "ann" is forbidden: user not permitted to approve requests with signerName "kubernetes.io/kube-apiserver-client"
            $ kubectl certificate approve ann
            [0] certificatesigningrequest.certificates.k8s.io/ann approved
            $ kubectl wait csr/ann --for=jsonpath={.status.certificate} --timeout=30s
            [0] certificatesigningrequest.certificates.k8s.io/ann condition met
        "#]],
    );
    let ann = bench.certified("ann");
    bench.check(
        &ann,
        &["auth whoami -o jsonpath={.status.userInfo['username','groups']}", "get pods"],
        &expect![[r#"
            $ kubectl auth whoami -o jsonpath={.status.userInfo['username','groups']}
            [0] ann ["dev","ops","system:authenticated"]
            $ kubectl get pods
            [1] Error from server (Forbidden): pods is forbidden: User "ann" cannot list resource "pods" in API group "" in the namespace "default"
        "#]],
    );
    bench.muster.stop();
}

/// As an agent does: a token, a request, a certificate, and then only what is the node's own.
#[test]
#[ignore = "needs kubectl and openssl"]
fn a_node_joins_with_a_token() {
    let bench = Bench::new("auth-node");
    let dir = &bench.muster.dir;
    let subject = "/O=system:nodes/CN=system:node:n9";
    let request = signing_request(dir, "n9", subject, "kube-apiserver-client-kubelet");
    fs::write(dir.join("csr.yaml"), request).unwrap();
    let made = Command::new(env!("CARGO_BIN_EXE_muster"))
        .args(["token", "create", "--ttl", "10m", "--kubeconfig"])
        .arg(bench.muster.kubeconfig())
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", text(&made.stderr));
    let token = kubeconfig(&bench.kubectl, dir, "token", &["--token", text(&made.stdout).trim()]);
    let said = bench.says(&token, &["create", "-f", dir.join("csr.yaml").to_str().unwrap()]);
    assert_eq!(said, "[0] certificatesigningrequest.certificates.k8s.io/n9 created");
    assert_eq!(bench.says(&token, &["auth", "can-i", "list", "secrets", "-n", "kube-system"]), "[1] no");
    bench.admin(&["wait", "csr/n9", "--for=jsonpath={.status.certificate}", "--timeout=30s"]);

    let node = bench.certified("n9");
    fs::write(dir.join("node.yaml"), "{apiVersion: v1, kind: Node, metadata: {name: n9}}").unwrap();
    let said = bench.says(&node, &["create", "-f", dir.join("node.yaml").to_str().unwrap()]);
    assert_eq!(said, "[0] node/n9 created");
    bench.check(
        &node,
        &[
            "get node n9 -o name",
            "label node n9 rack=7",
            "label node n9 node-restriction.kubernetes.io/trusted=yes",
            "taint node n9 a=b:NoSchedule",
            "label node sim-1 rack=7",
            "get nodes -o name",
            "get secrets -n kube-system",
            "get pods -A --field-selector spec.nodeName=n9",
            "delete node n9",
        ],
        &expect![[r#"
            $ kubectl get node n9 -o name
            [0] node/n9
            $ kubectl label node n9 rack=7
            [0] node/n9 labeled
            $ kubectl label node n9 node-restriction.kubernetes.io/trusted=yes
            [1] Error from server (Forbidden): nodes "n9" is forbidden: is not allowed to modify labels: node-restriction.kubernetes.io/trusted
            $ kubectl taint node n9 a=b:NoSchedule
            [1] Error from server (Forbidden): nodes "n9" is forbidden: node "n9" is not allowed to modify taints
            $ kubectl label node sim-1 rack=7
            [1] Error from server (Forbidden): nodes "sim-1" is forbidden: node "n9" is not allowed to modify node "sim-1"
            $ kubectl get nodes -o name
            [0] node/n9
            node/sim-1
            $ kubectl get secrets -n kube-system
            [1] Error from server (Forbidden): secrets is forbidden: User "system:node:n9" cannot list resource "secrets" in API group "" in the namespace "kube-system": No Object name found
            $ kubectl get pods -A --field-selector spec.nodeName=n9
            [0] No resources found
            $ kubectl delete node n9
            [1] Error from server (Forbidden): nodes "n9" is forbidden: User "system:node:n9" cannot delete resource "nodes" in API group "" at the cluster scope
        "#]],
    );
    bench.muster.stop();
}

/// `muster` as the administrator: what it says on both channels, and how it ended.
fn muster(bench: &Bench, args: &[&str], input: &str) -> String {
    let mut child = Command::new(env!("CARGO_BIN_EXE_muster"))
        .args(args)
        .arg("--kubeconfig")
        .arg(bench.muster.kubeconfig())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = text(&output.stdout) + &text(&output.stderr);
    format!("[{}] {}", output.status.code().unwrap_or(-1), said.trim())
}

#[test]
#[ignore = "needs kubectl and openssl"]
fn revoked_credentials_are_refused_from_the_next_request_on() {
    let bench = Bench::new("auth-revoked");
    let dir = &bench.muster.dir;
    let who = |kubeconfig: &Path| bench.whoami(kubeconfig);

    // Service account tokens: one of its own, and one in a Secret.
    bench.admin(&["create", "serviceaccount", "bot"]);
    let made = bench.admin(&["create", "token", "bot"]);
    let loose = kubeconfig(&bench.kubectl, dir, "loose", &["--token", made.trim()]);
    assert_eq!(who(&loose), "[0] system:serviceaccount:default:bot");
    let said = muster(&bench, &["token", "revoke", "-"], &made);
    assert!(
        said.starts_with("[0] revoked token ") && said.ends_with("(system:serviceaccount:default:bot)"),
        "{said}"
    );
    assert_eq!(who(&loose), "401");
    let secret = "{apiVersion: v1, kind: Secret, type: kubernetes.io/service-account-token, \
                  metadata: {name: kept, finalizers: [example.com/kept], annotations: {kubernetes.io/service-account.name: bot}}}";
    fs::write(dir.join("secret.yaml"), secret).unwrap();
    bench.admin(&["create", "-f", dir.join("secret.yaml").to_str().unwrap()]);
    bench.admin(&["wait", "secret/kept", "--for=jsonpath={.data.token}", "--timeout=30s"]);
    let token =
        BASE64.decode(bench.admin(&["get", "secret", "kept", "-o", "jsonpath={.data.token}"])).unwrap();
    let kept = kubeconfig(&bench.kubectl, dir, "kept", &["--token", text(&token).trim()]);
    assert_eq!(who(&kept), "[0] system:serviceaccount:default:bot");
    assert!(muster(&bench, &["token", "list"], "").contains("default/kept"));
    assert_eq!(
        muster(&bench, &["token", "revoke", "default/kept"], ""),
        "[0] revoked the token of Secret default/kept"
    );
    assert_eq!(who(&kept), "401");

    // Bootstrap tokens.
    let token = Command::new(env!("CARGO_BIN_EXE_muster"))
        .args(["token", "create", "--for", "n7", "--description", "rack 7", "--kubeconfig"])
        .arg(bench.muster.kubeconfig())
        .output()
        .unwrap();
    let said = text(&token.stderr);
    let token = text(&token.stdout).trim().to_owned();
    // The command that is printed does not hold the token, which `ps` would show.
    assert!(!token.is_empty() && !said.contains(&token), "{said}");
    let id = token.split('.').next().unwrap();
    let join = kubeconfig(&bench.kubectl, dir, "join", &["--token", &token]);
    assert_eq!(who(&join), format!("[0] system:bootstrap:{id}"));
    let listed = muster(&bench, &["token", "list"], "");
    let row = listed.lines().find(|it| it.starts_with(id)).unwrap_or_else(|| panic!("{listed}"));
    assert!(row.contains("bootstrap") && row.contains("n7") && row.ends_with("rack 7"), "{row}");
    assert_eq!(muster(&bench, &["token", "revoke", id], ""), format!("[0] revoked bootstrap token {id}"));
    assert_eq!(who(&join), "401");

    // Certificates: the administrator's own stays.
    let request = signing_request(dir, "eve", "/CN=eve", "kube-apiserver-client");
    fs::write(dir.join("csr.yaml"), request).unwrap();
    bench.admin(&["create", "-f", dir.join("csr.yaml").to_str().unwrap()]);
    bench.admin(&["certificate", "approve", "eve"]);
    bench.admin(&["wait", "csr/eve", "--for=jsonpath={.status.certificate}", "--timeout=30s"]);
    let eve = bench.certified("eve");
    assert_eq!(who(&eve), "[0] eve");
    let rows = |subject: &str| -> Vec<Vec<String>> {
        let listed = muster(&bench, &["cert", "list"], "");
        let rows = listed.lines().map(|it| it.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        rows.filter(|it| it.get(1).is_some_and(|it| it == subject)).collect()
    };
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while rows("eve").is_empty() || rows("kubernetes-admin").is_empty() {
        assert!(std::time::Instant::now() < deadline, "{}", muster(&bench, &["cert", "list"], ""));
    }
    let serial = rows("eve")[0][0].clone();
    assert_eq!(rows("eve")[0].last().unwrap(), "-");
    // Every server has made a kubeconfig of its own.
    let unused = rows("kubernetes-admin").len() - 1;
    let said = muster(&bench, &["cert", "revoke", "--subject", "kubernetes-admin"], "");
    assert!(said.starts_with("[0] revoked all certificates of \"kubernetes-admin\" issued up to "), "{said}");
    assert!(said.ends_with(&format!(", except the one in use ({unused} recorded)")), "{said}");
    assert_eq!(muster(&bench, &["cert", "revoke", &serial], ""), format!("[0] revoked {serial} (eve)"));
    assert_eq!(who(&eve), "401");
    assert_ne!(rows("eve")[0].last().unwrap(), "-");
    assert_eq!(who(&bench.muster.kubeconfig()), "[0] kubernetes-admin");
    let valid = rows("kubernetes-admin").iter().filter(|it| it.last().unwrap() == "-").count();
    assert_eq!(valid, 1);
    bench.muster.stop();
}

/// However many certificates a node has, recorded or not, its name is enough to revoke them.
#[test]
#[ignore = "needs kubectl and openssl"]
fn a_node_with_many_certificates_is_revoked_by_its_name() {
    let bench = Bench::new("auth-revoked-node");
    let dir = &bench.muster.dir;
    let who = |kubeconfig: &Path| bench.whoami(kubeconfig);
    let subject = "/O=system:nodes/CN=system:node:evil";
    let certify = |name: &str, requester: &Path| {
        let request = signing_request(dir, name, subject, "kube-apiserver-client-kubelet");
        fs::write(dir.join("csr.yaml"), request).unwrap();
        let said = bench.says(requester, &["create", "-f", dir.join("csr.yaml").to_str().unwrap()]);
        assert!(said.starts_with("[0]"), "{said}");
        if requester == bench.muster.kubeconfig() {
            bench.admin(&["certificate", "approve", name]);
        }
        bench.admin(&[
            "wait",
            &format!("csr/{name}"),
            "--for=jsonpath={.status.certificate}",
            "--timeout=30s",
        ]);
        bench.certified(name)
    };
    let first = certify("evil-0", &bench.muster.kubeconfig());
    let held: Vec<_> = (1..6).map(|number| certify(&format!("evil-{number}"), &first)).collect();
    let listed = || {
        let listed = muster(&bench, &["cert", "list"], "");
        let rows = listed.lines().filter(|it| it.contains("system:node:evil"));
        rows.map(|it| !it.trim_end().ends_with('-')).collect::<Vec<_>>()
    };
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while listed().len() < 6 {
        assert!(std::time::Instant::now() < deadline, "{:?}", listed());
    }
    assert_eq!(listed(), [false; 6], "each request is recorded once");
    // As if there were too many to record.
    bench.admin(&["delete", "configmap", "-n", "kube-system", "muster-issued-certificates-0"]);
    let said = muster(&bench, &["cert", "revoke", "--subject", "system:node:evil"], "");
    assert!(said.starts_with("[0] revoked all certificates of \"system:node:evil\" issued up to "), "{said}");
    assert!(said.ends_with("Z (0 recorded)"), "{said}");
    for it in held.iter().chain([&first]) {
        assert_eq!(who(it), "401");
    }
    assert_eq!(who(&bench.muster.kubeconfig()), "[0] kubernetes-admin");
    // The next seconds are revoked, too.
    std::thread::sleep(std::time::Duration::from_secs(7));
    let again = certify("evil-again", &bench.muster.kubeconfig());
    assert_eq!(who(&again), "[0] system:node:evil");
    bench.muster.stop();
}

/// Everything is logged, and nothing that is secret.
#[test]
#[ignore = "needs kubectl"]
fn secrets_are_in_no_log() {
    let all = kubectls();
    let kubectl = all.values().next_back().expect("there is one");
    let (dir, logs) = (fresh_dir("auth-log"), fresh_dir("auth-log-files"));
    fs::create_dir_all(&logs).unwrap();
    let (log, audit) = (logs.join("log"), logs.join("audit"));
    let server = ["--audit-log", audit.to_str().unwrap()];
    let flags = UpFlags { nodes: 1, server: &server, trace_log: Some(&log), ..UpFlags::default() };
    let cluster = TestCluster::up(&dir, flags);
    let run = |args: &[&str]| {
        let output =
            command(kubectl, &dir).env("KUBECONFIG", dir.join("kubeconfig")).args(args).output().unwrap();
        (output.status.success(), text(&output.stdout), text(&output.stderr))
    };
    let made = run(&["create", "secret", "generic", "s", "--from-literal=key=correct-horse-battery-staple"]);
    let read = run(&["get", "secret", "s", "-o", "yaml"]);
    let token = run(&["create", "token", "default"]).1.trim().to_owned();
    let as_bearer = |token: &str| {
        let path = kubeconfig(kubectl, &dir, "bearer", &["--token", token]);
        run(&["--kubeconfig", path.to_str().unwrap(), "auth", "whoami"])
    };
    let (used, bad) = (as_bearer(&token), as_bearer("not.a.token-at-all"));
    cluster.stop();
    assert!(made.0 && read.0 && used.0 && !bad.0, "{made:?} {read:?} {used:?} {bad:?}");

    let log = text(&fs::read(&log).unwrap());
    let audit = text(&fs::read(&audit).unwrap());
    assert!(log.contains("/api/v1/namespaces/default/secrets"), "the log tells of the requests");
    assert!(audit.contains("\"resource\":\"secrets\""), "the audit log does too");
    let encoded = BASE64.encode("correct-horse-battery-staple");
    let signature = token.rsplit('.').next().unwrap();
    let secrets = ["correct-horse-battery-staple", &encoded, signature, "token-at-all", "PRIVATE KEY"];
    for (name, text) in [("log", &log), ("audit log", &audit)] {
        for secret in secrets {
            let found = text.lines().find(|it| it.contains(secret));
            assert_eq!(found, None, "the {name} holds {secret}");
        }
    }
    fs::remove_dir_all(&logs).unwrap();
}
