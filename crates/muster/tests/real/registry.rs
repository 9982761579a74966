//! Images come to real nodes from a registry: one that asks for a password or a token, and one that stands in for another.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use base64::{Engine as _, prelude::BASE64_STANDARD as BASE64};
use expect_test::expect;
use serde_json::{Value, json};

use crate::bed::{Cluster, archive, is_ready, items};

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const USER: &str = "ann:secret";
const BEARER: &str = "Bearer let-me-in";

/// A registry with one image of busybox in all repositories. Those in `basic/` want a password, those in `bearer/` a token.
struct Registry {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    /// By digest.
    blobs: PathBuf,
    /// What a tag stands for.
    tags: Mutex<BTreeMap<String, String>>,
}

impl Registry {
    fn serve(address: IpAddr, dir: &Path) -> Self {
        fs::create_dir_all(dir).unwrap();
        assert!(Command::new("tar").arg("-xf").arg(archive()).arg("-C").arg(dir).status().unwrap().success());
        let index: Value = serde_json::from_slice(&fs::read(dir.join("index.json")).unwrap()).unwrap();
        let digest = index["manifests"][0]["digest"].as_str().unwrap().to_owned();
        let tags = Mutex::new(BTreeMap::from([("1".to_owned(), digest)]));
        let shared = Arc::new(Shared { blobs: dir.join("blobs").join("sha256"), tags });
        let listener = TcpListener::bind((address, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let of_all = shared.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = of_all.clone();
                thread::spawn(move || drop(shared.answer(stream, address)));
            }
        });
        Self { address, shared }
    }

    /// The tag stands for another image from now on, which says so.
    fn change(&self, tag: &str) {
        let mut tags = self.shared.tags.lock().unwrap();
        let mut manifest: Value = serde_json::from_slice(&self.shared.blob(&tags[tag]).unwrap()).unwrap();
        let config = self.shared.blob(manifest["config"]["digest"].as_str().unwrap()).unwrap();
        let mut config: Value = serde_json::from_slice(&config).unwrap();
        config["config"]["Env"].as_array_mut().unwrap().push(json!("CHANGED=yes"));
        let config = config.to_string();
        manifest["config"]["size"] = json!(config.len());
        manifest["config"]["digest"] = json!(self.shared.put(&config));
        tags.insert(tag.to_owned(), self.shared.put(&manifest.to_string()));
    }
}

impl Shared {
    fn blob(&self, digest: &str) -> Option<Vec<u8>> {
        let hex = digest.strip_prefix("sha256:").filter(|it| it.bytes().all(|it| it.is_ascii_hexdigit()))?;
        fs::read(self.blobs.join(hex)).ok()
    }

    fn put(&self, content: &str) -> String {
        let mut sum = Command::new("sha256sum").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        sum.stdin.take().unwrap().write_all(content.as_bytes()).unwrap();
        let said = String::from_utf8(sum.wait_with_output().unwrap().stdout).unwrap();
        let hex = said.split_whitespace().next().unwrap();
        fs::write(self.blobs.join(hex), content).unwrap();
        format!("sha256:{hex}")
    }

    /// One question on each connection.
    fn answer(&self, mut stream: TcpStream, own: SocketAddr) -> std::io::Result<()> {
        let mut lines = BufReader::new(stream.try_clone()?).lines();
        let first = lines.next().unwrap_or_else(|| Ok(String::new()))?;
        let mut login = String::new();
        for line in lines {
            let line = line?;
            if line.is_empty() {
                break;
            }
            if let Some((name, value)) = line.split_once(": ")
                && name.eq_ignore_ascii_case("authorization")
            {
                login = value.to_owned();
            }
        }
        let mut words = first.split(' ');
        let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let (status, headers, body) = self.reply(method, path, &login, own);
        let length = body.len();
        write!(
            stream,
            "HTTP/1.1 {status}\r\n{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n"
        )?;
        if method == "HEAD" { Ok(()) } else { stream.write_all(&body) }
    }

    fn reply(
        &self,
        method: &str,
        path: &str,
        login: &str,
        own: SocketAddr,
    ) -> (&'static str, String, Vec<u8>) {
        let basic = format!("Basic {}", BASE64.encode(USER));
        let no = |status: &'static str, headers: String, code: &str| {
            (status, headers, json!({"errors": [{"code": code, "message": "no"}]}).to_string().into_bytes())
        };
        if path.starts_with("/token") {
            // Who would post it is to ask as of old.
            return match method {
                "GET" if login == basic => {
                    let token = json!({"token": BEARER.trim_start_matches("Bearer ")});
                    (
                        "200 OK",
                        "Content-Type: application/json\r\n".to_owned(),
                        token.to_string().into_bytes(),
                    )
                }
                "GET" => no("401 Unauthorized", String::new(), "UNAUTHORIZED"),
                _ => no("405 Method Not Allowed", String::new(), "UNSUPPORTED"),
            };
        }
        let path = path.split('?').next().unwrap_or_default();
        let Some(rest) = path.strip_prefix("/v2/") else {
            return no("404 Not Found", String::new(), "NAME_UNKNOWN");
        };
        let (wanted, challenge) = match rest.split('/').next() {
            Some("basic") => (basic.as_str(), "Basic realm=\"test\"".to_owned()),
            Some("bearer") => {
                let scope = "repository:bearer/app:pull";
                let told = format!("Bearer realm=\"http://{own}/token\",service=\"test\",scope=\"{scope}\"");
                (BEARER, told)
            }
            _ => ("", String::new()),
        };
        if !wanted.is_empty() && login != wanted {
            return no("401 Unauthorized", format!("WWW-Authenticate: {challenge}\r\n"), "UNAUTHORIZED");
        }
        let (name, reference) = rest.rsplit_once('/').unwrap_or_default();
        let tagged = self.tags.lock().unwrap().get(reference).cloned();
        let digest = tagged.unwrap_or_else(|| reference.to_owned());
        match self.blob(&digest) {
            Some(blob) => {
                let kind = if name.ends_with("/manifests") { MANIFEST } else { "application/octet-stream" };
                let headers = format!("Content-Type: {kind}\r\nDocker-Content-Digest: {digest}\r\n");
                ("200 OK", headers, blob)
            }
            None => no("404 Not Found", String::new(), "MANIFEST_UNKNOWN"),
        }
    }
}

/// Has a node's containerd ask these hosts, one after the other, for what is called after `name`.
fn hosts(cluster: &Cluster, name: &str, server: &str, mirrors: &[SocketAddr]) {
    let dir = cluster.dir.join("registries").join(name);
    fs::create_dir_all(&dir).unwrap();
    let mut text = format!("server = \"{server}\"\n");
    for mirror in mirrors {
        text += &format!("[host.\"http://{mirror}\"]\n  capabilities = [\"pull\", \"resolve\"]\n");
    }
    fs::write(dir.join("hosts.toml"), text).unwrap();
}

/// A pod that says whether its image is the changed one.
fn pod(name: &str, image: &str, policy: &str, more: &Value) -> String {
    let mut spec = json!({
        "nodeName": "node-1",
        "terminationGracePeriodSeconds": 1,
        "containers": [{
            "name": "app",
            "image": image,
            "imagePullPolicy": policy,
            "command": ["sh", "-c", "echo changed: ${CHANGED:-no}; exec sleep 3600"],
        }],
    });
    for (key, value) in more.as_object().unwrap() {
        spec[key] = value.clone();
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}).to_string()
}

/// Images come from a registry, to who may have them.
pub(crate) fn images_are_pulled(cluster: &Cluster) {
    let address = cluster.address();
    let registry = Registry::serve(address, &cluster.dir.join("registry"));
    let at = registry.address;
    hosts(cluster, "registry.test", &format!("http://{at}"), &[at]);
    // Nobody is at the registry itself, nor at the first of those who stand in for it.
    let nobody = SocketAddr::new(address, 1);
    hosts(cluster, "mirrored.test", &format!("http://{nobody}"), &[nobody, at]);

    let (user, password) = USER.split_once(':').unwrap();
    let secret = |name: &str, kind: &str, key: &str, file: &Value| {
        json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name},
            "type": format!("kubernetes.io/{kind}"),
            "data": {key: BASE64.encode(file.to_string())},
        })
        .to_string()
    };
    let login = json!({"username": user, "password": password, "auth": BASE64.encode(USER)});
    let wrong = json!({"username": user, "password": "guessed"});
    let auths = |login: &Value| json!({"auths": {"https://registry.test/v1/": login}});
    cluster.apply(&secret("json", "dockerconfigjson", ".dockerconfigjson", &auths(&login)));
    cluster.apply(&secret("wrong", "dockerconfigjson", ".dockerconfigjson", &auths(&wrong)));
    let auth_alone = json!({"registry.test": {"auth": BASE64.encode(USER)}});
    cluster.apply(&secret("cfg", "dockercfg", ".dockercfg", &auth_alone));
    let account = json!({
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": "puller"},
        "imagePullSecrets": [{"name": "json"}],
    });
    cluster.apply(&account.to_string());

    let secrets = |names: &[&str]| {
        let names: Vec<_> = names.iter().map(|it| json!({"name": it})).collect();
        json!({"imagePullSecrets": names})
    };
    let cases = [
        ("open", "registry.test/open/app:1", json!({})),
        ("password", "registry.test/basic/app:1", secrets(&["json"])),
        ("password-of-old", "registry.test/basic/app:1", secrets(&["cfg"])),
        ("token", "registry.test/bearer/app:1", secrets(&["cfg"])),
        ("account", "registry.test/bearer/app:1", json!({"serviceAccountName": "puller"})),
        ("second-try", "registry.test/basic/app:1", secrets(&["missing", "wrong", "json"])),
        ("mirror", "mirrored.test/open/app:1", json!({})),
    ];
    for (name, image, more) in &cases {
        cluster.apply(&pod(name, image, "Always", more));
    }
    let refused = [
        ("wrong-password", "registry.test/basic/app:1", secrets(&["wrong"])),
        ("no-password", "registry.test/basic/app:1", json!({})),
        ("no-token", "registry.test/bearer/app:1", secrets(&["wrong"])),
        ("no-such-tag", "registry.test/open/app:2", json!({})),
    ];
    for (name, image, more) in &refused {
        cluster.apply(&pod(name, image, "Always", more));
    }
    let mut told = String::new();
    for (name, ..) in &cases {
        let pod =
            cluster.wait(&format!("{name} runs"), || Some(cluster.get(&["pod", name])).filter(is_ready));
        let id = pod["status"]["containerStatuses"][0]["imageID"].as_str().unwrap_or_default().to_owned();
        // The image is the same everywhere, so which of its names comes first does not matter.
        let digest = registry.shared.tags.lock().unwrap()["1"].clone();
        let is_it = if id.ends_with(&digest) { "the registry's image" } else { id.as_str() };
        told += &format!("{name}: {is_it}, {}", cluster.kubectl(&["logs", name]));
    }
    expect![[r#"
        open: the registry's image, changed: no
        password: the registry's image, changed: no
        password-of-old: the registry's image, changed: no
        token: the registry's image, changed: no
        account: the registry's image, changed: no
        second-try: the registry's image, changed: no
        mirror: the registry's image, changed: no
    "#]]
    .assert_eq(&told);

    // As a kubelet says it: first what the registry said, and then that it is tried later.
    let mut told = String::new();
    for (name, ..) in &refused {
        let waiting = cluster.wait(&format!("{name} waits"), || {
            let pod = cluster.get(&["pod", name]);
            let waiting = pod["status"]["containerStatuses"][0]["state"]["waiting"].clone();
            (waiting["reason"] == "ImagePullBackOff").then_some(waiting)
        });
        told += &format!("{name}: {}\n", waiting["message"].as_str().unwrap_or_default());
        let events = cluster.wait("it is told", || {
            let of_pod = format!("involvedObject.name={name}");
            let events = items(&cluster.get(&["events", "--field-selector", &of_pod]));
            let mut events: Vec<String> = events
                .iter()
                .filter(|it| it["reason"] != "Scheduled")
                .map(|it| format!("  {} {}\n", it["reason"], it["message"]).replace('\\', ""))
                .collect();
            events.sort();
            events.dedup();
            let is_whole = ["Back-off", "Error: ImagePullBackOff"]
                .iter()
                .all(|wanted| events.iter().any(|it| it.contains(wanted)));
            is_whole.then_some(events)
        });
        told += &events.concat();
    }
    expect![[r#"
        wrong-password: Back-off pulling image "registry.test/basic/app:1": ErrImagePull: failed to pull and unpack image "registry.test/basic/app:1": failed to resolve reference "registry.test/basic/app:1": pulling from host REGISTRY failed with status code [manifests 1]: 401 Unauthorized
          "BackOff" "Back-off pulling image "registry.test/basic/app:1""
          "Failed" "Error: ErrImagePull"
          "Failed" "Error: ImagePullBackOff"
          "Failed" "Failed to pull image "registry.test/basic/app:1": failed to pull and unpack image "registry.test/basic/app:1": failed to resolve reference "registry.test/basic/app:1": pulling from host REGISTRY failed with status code [manifests 1]: 401 Unauthorized"
          "Pulling" "Pulling image "registry.test/basic/app:1""
        no-password: Back-off pulling image "registry.test/basic/app:1": ErrImagePull: failed to pull and unpack image "registry.test/basic/app:1": failed to resolve reference "registry.test/basic/app:1": pulling from host REGISTRY failed with status code [manifests 1]: 401 Unauthorized
          "BackOff" "Back-off pulling image "registry.test/basic/app:1""
          "Failed" "Error: ErrImagePull"
          "Failed" "Error: ImagePullBackOff"
          "Failed" "Failed to pull image "registry.test/basic/app:1": failed to pull and unpack image "registry.test/basic/app:1": failed to resolve reference "registry.test/basic/app:1": pulling from host REGISTRY failed with status code [manifests 1]: 401 Unauthorized"
          "Pulling" "Pulling image "registry.test/basic/app:1""
        no-token: Back-off pulling image "registry.test/bearer/app:1": ErrImagePull: failed to pull and unpack image "registry.test/bearer/app:1": failed to resolve reference "registry.test/bearer/app:1": failed to authorize: failed to fetch oauth token: unexpected status: 401 Unauthorized
          "BackOff" "Back-off pulling image "registry.test/bearer/app:1""
          "Failed" "Error: ErrImagePull"
          "Failed" "Error: ImagePullBackOff"
          "Failed" "Failed to pull image "registry.test/bearer/app:1": failed to pull and unpack image "registry.test/bearer/app:1": failed to resolve reference "registry.test/bearer/app:1": failed to authorize: failed to fetch oauth token: unexpected status: 401 Unauthorized"
          "Pulling" "Pulling image "registry.test/bearer/app:1""
        no-such-tag: Back-off pulling image "registry.test/open/app:2": ErrImagePull: failed to pull and unpack image "registry.test/open/app:2": failed to resolve reference "registry.test/open/app:2": registry.test/open/app:2: not found
          "BackOff" "Back-off pulling image "registry.test/open/app:2""
          "Failed" "Error: ErrImagePull"
          "Failed" "Error: ImagePullBackOff"
          "Failed" "Failed to pull image "registry.test/open/app:2": failed to pull and unpack image "registry.test/open/app:2": failed to resolve reference "registry.test/open/app:2": registry.test/open/app:2: not found"
          "Pulling" "Pulling image "registry.test/open/app:2""
    "#]].assert_eq(&told.replace(&at.to_string(), "REGISTRY"));

    // A tag that stands for another image: who has one keeps it, who always asks gets the new one.
    registry.change("1");
    cluster.apply(&pod("kept", "registry.test/open/app:1", "IfNotPresent", &json!({})));
    let says = |name: &str| {
        cluster.wait(&format!("{name} runs"), || is_ready(&cluster.get(&["pod", name])).then_some(()));
        cluster.kubectl(&["logs", name])
    };
    let kept = says("kept");
    cluster.apply(&pod("asked", "registry.test/open/app:1", "Always", &json!({})));
    assert_eq!((kept, says("asked")), ("changed: no\n".to_owned(), "changed: yes\n".to_owned()));
}
