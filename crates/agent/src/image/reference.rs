//! Image references such as `busybox:1.36`.

use std::net::Ipv6Addr;

/// Registry of an image reference that does not name a registry.
const DEFAULT_REGISTRY: &str = "docker.io";

/// Maximum length of an image reference.
const REFERENCE_BYTES_MAX: usize = 1024;

/// Why a text is not a valid image reference. Upstream: `ErrReferenceInvalidFormat`, `ErrNameContainsUppercase`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ImageNameError {
    #[error("invalid reference format")]
    InvalidFormat,
    #[error("repository name must be lowercase")]
    Uppercase,
}

/// Normalizes an image reference to the form that runtimes use.
///
/// Rule: `busybox` becomes `docker.io/library/busybox:latest`. If a reference has both a tag and a digest, the tag is
/// dropped.
/// Upstream: `reference.ParseDockerRef`.
pub fn normalize_reference(name: &str) -> Result<String, ImageNameError> {
    if REFERENCE_BYTES_MAX < name.len() {
        return Err(ImageNameError::InvalidFormat);
    }
    let (rest, digest) = match name.split_once('@') {
        Some((rest, digest)) => (rest, Some(digest)),
        None => (name, None),
    };
    let (path, tag) = match rest.rsplit_once(':') {
        // A colon before the last slash separates a port.
        Some((path, tag)) if !tag.contains('/') => (path, Some(tag)),
        _ => (rest, None),
    };
    let is_registry =
        |it: &str| it.contains(['.', ':']) || it == "localhost" || it.contains(char::is_uppercase);
    let (registry, path) = match path.split_once('/') {
        Some((first, path)) if is_registry(first) => (first, path),
        _ => (DEFAULT_REGISTRY, path),
    };
    let registry = if registry == "index.docker.io" { DEFAULT_REGISTRY } else { registry };
    let library = if registry == DEFAULT_REGISTRY && !path.contains('/') { "library/" } else { "" };
    if is_registry_address(registry) && path.contains(|it: char| it.is_ascii_uppercase()) {
        return Err(ImageNameError::Uppercase);
    }
    let is_valid = is_registry_address(registry)
        && path.split('/').all(is_path_component)
        && tag.is_none_or(is_tag)
        && digest.is_none_or(is_digest);
    if !is_valid {
        return Err(ImageNameError::InvalidFormat);
    }
    Ok(match (tag, digest) {
        (_, Some(digest)) => format!("{registry}/{library}{path}@{digest}"),
        (tag, None) => format!("{registry}/{library}{path}:{}", tag.unwrap_or("latest")),
    })
}

/// Whether the text is a host name, an IPv4 address or an IPv6 address in brackets, with an optional port.
fn is_registry_address(text: &str) -> bool {
    let is_label = |it: &str| !it.is_empty() && it.chars().all(|it| it.is_ascii_alphanumeric() || it == '-');
    let (is_host, port) = match text.strip_prefix('[').and_then(|it| it.split_once(']')) {
        Some((address, "")) => (address.parse::<Ipv6Addr>().is_ok(), None),
        Some((address, port)) => (address.parse::<Ipv6Addr>().is_ok(), Some(port.trim_start_matches(':'))),
        None => {
            let (host, port) = text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port)));
            (host.split('.').all(is_label), port)
        }
    };
    is_host && port.is_none_or(|it| it.parse::<u16>().is_ok())
}

/// Whether the text is a valid component of a repository path. Slashes separate the components.
fn is_path_component(text: &str) -> bool {
    let is_end = |it: char| it.is_ascii_lowercase() || it.is_ascii_digit();
    let is_inside = |it: char| is_end(it) || "._-".contains(it);
    text.chars().all(is_inside) && text.starts_with(is_end) && text.ends_with(is_end)
}

/// Whether the text is a valid tag.
fn is_tag(text: &str) -> bool {
    let is_inside = |it: char| it.is_ascii_alphanumeric() || "._-".contains(it);
    (1..=128).contains(&text.len()) && text.chars().all(is_inside) && !text.starts_with(['.', '-'])
}

/// Whether the text is a digest: an algorithm, a colon, and at least 32 hexadecimal digits.
fn is_digest(text: &str) -> bool {
    let (algorithm, hex) = text.split_once(':').unwrap_or_default();
    !algorithm.is_empty() && 32 <= hex.len() && hex.bytes().all(|it| it.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn names() {
        let digest = format!("busybox:1@sha256:{}", "0a".repeat(32));
        let names = [
            "busybox",
            "busybox:1.36",
            "library/busybox",
            "me/tool:v1",
            "localhost/pause:1",
            "localhost:5000/a/b",
            "ghcr.io/org/it:2",
            "index.docker.io/busybox",
            &digest,
            "",
            ":1",
            "a//b",
            "Upper",
            "a:b:c",
            "../x",
            "a b",
            "x@sha256:1",
        ];
        let said: Vec<_> = names
            .iter()
            .map(|it| format!("{it} -> {}", normalize_reference(it).unwrap_or("none".into())))
            .collect();
        expect![[r#"
            busybox -> docker.io/library/busybox:latest
            busybox:1.36 -> docker.io/library/busybox:1.36
            library/busybox -> docker.io/library/busybox:latest
            me/tool:v1 -> docker.io/me/tool:v1
            localhost/pause:1 -> localhost/pause:1
            localhost:5000/a/b -> localhost:5000/a/b:latest
            ghcr.io/org/it:2 -> ghcr.io/org/it:2
            index.docker.io/busybox -> docker.io/library/busybox:latest
            busybox:1@sha256:0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a -> docker.io/library/busybox@sha256:0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a
             -> none
            :1 -> none
            a//b -> none
            Upper -> none
            a:b:c -> none
            ../x -> none
            a b -> none
            x@sha256:1 -> none"#]]
        .assert_eq(&said.join("\n"));
    }
}
