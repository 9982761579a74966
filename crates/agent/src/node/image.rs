//! Image names and pull credentials.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Pod, Secret};
use muster_api::image_reference::ImageReference;
use serde::Deserialize;

use crate::references::PodReferenceClient;
use crate::runtime::v1::AuthConfig;

/// Normalizes the image name of a container. The error is the kubelet's message.
pub(crate) fn normalize_image_name(image: &str) -> Result<String, String> {
    let reference = ImageReference::parse(image);
    reference.map(|it| it.normalized()).map_err(|why| format!("couldn't parse image name {image:?}: {why}"))
}

/// Returns the credentials of the pod's imagePullSecrets that apply to an image, best match first. A Secret that cannot
/// be read is skipped, because the registry may allow anonymous pulls.
pub(crate) async fn registry_credentials(
    references: &PodReferenceClient,
    pod: &Pod,
    image: &str,
) -> Vec<AuthConfig> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
    let names = pod.spec.iter().flat_map(|it| it.image_pull_secrets.iter().flatten());
    let mut logins = Vec::new();
    for reference in names {
        match references.secret(namespace, &reference.name).await {
            Ok(secret) => logins.extend(logins_from_secret(&secret)),
            Err(error) => {
                let pod = pod.metadata.name.as_deref().unwrap_or_default();
                tracing::debug!(namespace, pod, "cannot read a pull secret: {error}");
            }
        }
    }
    matching_credentials(logins, image)
}

/// The name of a registry as the Secret spells it, and the credentials for it.
type RegistryLogin = (String, RegistryCredentials);

/// Content of a Secret of type `kubernetes.io/dockerconfigjson`.
#[derive(Debug, Clone, Default, Deserialize)]
struct DockerConfigFile {
    #[serde(default)]
    auths: BTreeMap<String, RegistryCredentials>,
}

/// Credentials for one registry in a Docker configuration.
#[derive(Clone, Default, Deserialize)]
struct RegistryCredentials {
    #[serde(default)]
    username: String,
    #[serde(default)]
    password: String,
    /// `USERNAME:PASSWORD` in base64.
    #[serde(default)]
    auth: String,
    #[serde(default, rename = "identitytoken")]
    identity_token: String,
    #[serde(default, rename = "registrytoken")]
    registry_token: String,
}

/// Prints a placeholder instead of the credentials.
impl std::fmt::Debug for RegistryCredentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RegistryCredentials")
    }
}

/// Reads the logins of a Secret of type `kubernetes.io/dockerconfigjson` or `kubernetes.io/dockercfg`. Any other
/// Secret, and a malformed one, has no logins.
fn logins_from_secret(secret: &Secret) -> Vec<RegistryLogin> {
    let data = secret.data.as_ref();
    let bytes = |key: &str| data.and_then(|it| it.get(key)).map(|it| it.0.as_slice());
    let auths = match secret.type_.as_deref() {
        Some("kubernetes.io/dockerconfigjson") => {
            let file = bytes(".dockerconfigjson").map(serde_json::from_slice::<DockerConfigFile>);
            file.and_then(Result::ok).unwrap_or_default().auths
        }
        Some("kubernetes.io/dockercfg") => {
            bytes(".dockercfg").and_then(|it| serde_json::from_slice(it).ok()).unwrap_or_default()
        }
        _ => BTreeMap::new(),
    };
    auths.into_iter().collect()
}

/// Returns the credentials that apply to an image, best match first.
///
/// Rule: a pull secret that names only a registry applies to all images of the registry. A pull secret that also names
/// a path applies only to the repositories at or below the path. The order is reverse alphabetical, so that a longer
/// path in a registry comes before a shorter one. Upstream: `BasicDockerKeyring.Lookup`.
fn matching_credentials(logins: Vec<RegistryLogin>, image: &str) -> Vec<AuthConfig> {
    let full = normalize_image_name(image).unwrap_or_default();
    let mut fitting: Vec<(String, AuthConfig)> = logins
        .into_iter()
        .filter_map(|(name, login)| {
            let registry = normalize_registry(&name);
            registry_matches(&registry, &full).then(|| {
                let auth = AuthConfig {
                    username: login.username,
                    password: login.password,
                    auth: login.auth,
                    // With a server address, containerd would not send the credentials to a mirror, nor to an
                    // address without a scheme.
                    server_address: String::new(),
                    identity_token: login.identity_token,
                    registry_token: login.registry_token,
                };
                (registry, auth)
            })
        })
        .collect();
    fitting.sort_by(|(a, _), (b, _)| b.cmp(a));
    fitting.into_iter().map(|(_, auth)| auth).collect()
}

/// Normalizes a registry name: drops the scheme and a trailing `/v1/` or `/v2/`, and turns a host name of Docker Hub
/// without a path into `docker.io`.
fn normalize_registry(name: &str) -> String {
    let name = name.trim_start_matches("https://").trim_start_matches("http://");
    let name = name.trim_end_matches('/').trim_end_matches("/v1").trim_end_matches("/v2");
    match name {
        "index.docker.io" | "registry-1.docker.io" => "docker.io".to_owned(),
        name => name.to_owned(),
    }
}

/// Whether the credentials for `registry` apply to an image. `registry` is a host with an optional port and path. In
/// the host, `*` stands for any text without a dot. The port of the image must be the same, and the repository of the
/// image must be at or below the path.
fn registry_matches(registry: &str, image: &str) -> bool {
    let (host, path) = registry.split_once('/').map_or((registry, ""), |(host, path)| (host, path));
    let (image_host, image_path) = image.split_once('/').unwrap_or((image, ""));
    let (name, port) = host.split_once(':').map_or((host, None), |(name, port)| (name, Some(port)));
    let (image_name, image_port) =
        image_host.split_once(':').map_or((image_host, None), |(name, port)| (name, Some(port)));
    let (parts, image_parts): (Vec<_>, Vec<_>) = (name.split('.').collect(), image_name.split('.').collect());
    port == image_port
        && parts.len() == image_parts.len()
        && parts.iter().zip(&image_parts).all(|(pattern, part)| glob_matches(pattern, part))
        && (path.is_empty()
            || image_path
                .strip_prefix(path)
                .is_some_and(|it| it.is_empty() || it.starts_with(['/', ':', '@'])))
}

/// Whether one label of a host name matches a pattern with `*`. Each piece between two stars is matched at its first
/// occurrence, so that no backtracking is needed.
fn glob_matches(pattern: &str, part: &str) -> bool {
    let mut pieces = pattern.split('*');
    let Some(mut rest) = pieces.next().and_then(|head| part.strip_prefix(head)) else { return false };
    let Some(tail) = pieces.next_back() else { return rest.is_empty() };
    for piece in pieces {
        match rest.split_once(piece) {
            Some((_, behind)) => rest = behind,
            None => return false,
        }
    }
    rest.ends_with(tail)
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use serde_json::json;

    use super::*;

    #[test]
    fn images_in_full() {
        let names = [
            "busybox",
            "busybox:1.36",
            "team/app",
            "localhost/app:1",
            "registry.test:5000/team/app",
            "registry.test/app@sha256:0123456789abcdef0123456789abcdef",
            "Busybox",
            "",
            "a b",
            "app:",
            "../etc",
            "registry.test/a//b",
        ];
        let lines = names.map(|it| format!("{it:?}: {:?}", normalize_image_name(it)));
        expect![[r#"
            "busybox": Ok("docker.io/library/busybox:latest")
            "busybox:1.36": Ok("docker.io/library/busybox:1.36")
            "team/app": Ok("docker.io/team/app:latest")
            "localhost/app:1": Ok("localhost/app:1")
            "registry.test:5000/team/app": Ok("registry.test:5000/team/app:latest")
            "registry.test/app@sha256:0123456789abcdef0123456789abcdef": Err("couldn't parse image name \"registry.test/app@sha256:0123456789abcdef0123456789abcdef\": invalid checksum digest length")
            "Busybox": Err("couldn't parse image name \"Busybox\": invalid reference format: repository name (Busybox) must be lowercase")
            "": Err("couldn't parse image name \"\": invalid reference format")
            "a b": Err("couldn't parse image name \"a b\": invalid reference format")
            "app:": Err("couldn't parse image name \"app:\": invalid reference format")
            "../etc": Err("couldn't parse image name \"../etc\": invalid reference format")
            "registry.test/a//b": Err("couldn't parse image name \"registry.test/a//b\": invalid reference format")"#]].assert_eq(&lines.join("\n"));
    }

    #[test]
    fn credentials_are_for_their_registry() {
        let file = json!({"auths": {
            "https://index.docker.io/v1/": {"username": "hub"},
            "registry.test": {"username": "all"},
            "registry.test/team": {"username": "team"},
            "*.test:5000": {"username": "port"},
        }});
        let secret: Secret = serde_json::from_value(json!({
            "type": "kubernetes.io/dockerconfigjson",
            "stringData": {}, "data": {},
        }))
        .unwrap();
        assert!(logins_from_secret(&secret).is_empty());
        let known: DockerConfigFile = serde_json::from_value(file).unwrap();
        let known: Vec<RegistryLogin> = known.auths.into_iter().collect();
        let lines = [
            "busybox",
            "registry.test/team/app:1",
            "registry.test/teams/app",
            "a.test:5000/x",
            "other.test/x",
        ]
        .map(|image| {
            let users: Vec<_> =
                matching_credentials(known.clone(), image).into_iter().map(|it| it.username).collect();
            format!("{image}: {}", users.join(" "))
        });
        expect![[r#"
            busybox: hub
            registry.test/team/app:1: team all
            registry.test/teams/app: all
            a.test:5000/x: port
            other.test/x: "#]]
        .assert_eq(&lines.join("\n"));
    }

    #[test]
    fn stars_stand_for_anything() {
        let cases = [
            ("registry", "registry"),
            ("registry", "registry2"),
            ("*", ""),
            ("*", "anything"),
            ("a*", "ab"),
            ("a*a", "a"),
            ("*b*d", "abcd"),
            ("*bc*cd", "abcd"),
            ("*b*b", "ab"),
        ];
        let all = cases.map(|(pattern, part)| format!("{pattern} {part}: {}", glob_matches(pattern, part)));
        expect![[r#"
            registry registry: true
            registry registry2: false
            * : true
            * anything: true
            a* ab: true
            a*a a: false
            *b*d abcd: true
            *bc*cd abcd: false
            *b*b ab: false"#]]
        .assert_eq(&all.join("\n"));
        // What a pod's author may write must not keep the node busy.
        assert!(!glob_matches(&"*a".repeat(400), &"a".repeat(399)));
    }
}
