//! Image references.

/// Registry of a reference that names none.
const DEFAULT_REGISTRY: &str = "docker.io";

/// Longest reference that is parsed.
const REFERENCE_BYTES_MAX: usize = 512;

/// Rule: normalizes an image reference to the form that runtimes use: `busybox` becomes
/// `docker.io/library/busybox:latest`. `None` if it is not a valid reference.
/// Upstream: `reference.ParseDockerRef`.
pub fn normalize_reference(name: &str) -> Option<String> {
    if REFERENCE_BYTES_MAX < name.len() {
        return None;
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
    let path = match registry {
        DEFAULT_REGISTRY if !path.contains('/') => format!("library/{path}"),
        _ => path.to_owned(),
    };

    let is_part = |it: &str| {
        let inside = |it: char| it.is_ascii_lowercase() || it.is_ascii_digit() || "._-".contains(it);
        let end = |it: char| it.is_ascii_lowercase() || it.is_ascii_digit();
        it.chars().all(inside) && it.starts_with(end) && it.ends_with(end)
    };
    let is_host = |it: &str| {
        let inside = |it: char| it.is_ascii_alphanumeric() || ".-:[]".contains(it);
        !it.is_empty() && it.chars().all(inside)
    };
    let is_tag = |it: &str| {
        let inside = |it: char| it.is_ascii_alphanumeric() || "._-".contains(it);
        (1..=128).contains(&it.len()) && it.chars().all(inside) && !it.starts_with(['.', '-'])
    };
    let is_digest = |it: &str| {
        it.strip_prefix("sha256:")
            .is_some_and(|it| it.len() == 64 && it.bytes().all(|it| it.is_ascii_hexdigit()))
    };
    let is_good = is_host(registry)
        && path.split('/').all(is_part)
        && tag.is_none_or(is_tag)
        && digest.is_none_or(is_digest);
    is_good.then(|| match (tag, digest) {
        (_, Some(digest)) => format!("{registry}/{path}@{digest}"),
        (tag, None) => format!("{registry}/{path}:{}", tag.unwrap_or("latest")),
    })
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
            ../x -> ../x:latest
            a b -> none
            x@sha256:1 -> none"#]]
        .assert_eq(&said.join("\n"));
    }
}
