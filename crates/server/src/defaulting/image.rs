//! Parses image references to derive the default pull policy.
//!
//! Upstream: `pkg/util/parsers`, and the reference grammar of the container registries.

/// Returns the default `imagePullPolicy` of an image.
///
/// Rule: an image with the tag `latest`, explicit or implied, is always pulled, because the tag may refer to another
/// image later. An image with another tag, with a digest and no tag, or with an invalid reference is pulled if it is
/// not present.
pub(super) fn default_pull_policy(image: &str) -> &'static str {
    let is_mutable = match parse_image_reference(image) {
        Some((Some(tag), _)) => tag == "latest",
        Some((None, digest)) => digest.is_none(),
        None => false,
    };
    if is_mutable { "Always" } else { "IfNotPresent" }
}

/// Returns the tag and the digest of an image reference, or `None` if the reference is invalid.
fn parse_image_reference(image: &str) -> Option<(Option<&str>, Option<&str>)> {
    let (rest, digest) = image.split_once('@').map_or((image, None), |(rest, digest)| (rest, Some(digest)));
    let last = rest.rsplit('/').next()?;
    // A colon before the last slash belongs to a port.
    let (name, tag) = match last.split_once(':') {
        Some((_, tag)) => (&rest[..rest.len() - tag.len() - 1], Some(tag)),
        None => (rest, None),
    };
    let is_valid = is_repository_name(name) && tag.is_none_or(is_tag) && digest.is_none_or(is_digest);
    is_valid.then_some((tag, digest))
}

/// Whether a text is a valid repository name, with or without a registry host.
fn is_repository_name(name: &str) -> bool {
    /// Length of `docker.io/library/`, which is prepended to a name without a host.
    const IMPLIED_PREFIX_BYTES: usize = 18;
    /// Maximum length of a repository name, with the implied prefix.
    const NAME_BYTES_MAX: usize = 255;
    let is_host = |it: &str| {
        it.contains(['.', ':']) || it == "localhost" || it.bytes().any(|it| it.is_ascii_uppercase())
    };
    let (host, path) = match name.split_once('/') {
        Some((host, path)) if is_host(host) => (Some(host), path),
        _ => (None, name),
    };
    let bytes = if host.is_some() { name.len() } else { name.len() + IMPLIED_PREFIX_BYTES };
    let is_image_id =
        name.len() == 64 && name.bytes().all(|it| it.is_ascii_digit() || (b'a'..=b'f').contains(&it));
    bytes <= NAME_BYTES_MAX
        && !is_image_id
        && host.is_none_or(is_registry_host)
        && path.split('/').all(is_path_component)
}

/// Whether a text is a valid registry host, with or without a port.
fn is_registry_host(host: &str) -> bool {
    let (name, port) = host.rsplit_once(':').map_or((host, None), |(name, port)| (name, Some(port)));
    let is_label = |it: &str| {
        let inner = |it: u8| it.is_ascii_alphanumeric() || it == b'-';
        !it.is_empty() && it.bytes().all(inner) && !it.starts_with('-') && !it.ends_with('-')
    };
    let is_v6 = name.starts_with('[') && name.ends_with(']');
    (is_v6 || name.split('.').all(is_label))
        && port.is_none_or(|it| !it.is_empty() && it.bytes().all(|it| it.is_ascii_digit()))
}

/// Whether a text is a valid path component of a repository name: lowercase letters and digits, separated by `.`, `_`,
/// `__` or dashes.
fn is_path_component(text: &str) -> bool {
    let is_alphanumeric = |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit();
    let mut between =
        text.split(|it: char| it.is_ascii() && is_alphanumeric(it as u8)).filter(|it| !it.is_empty());
    let ends = |it: Option<u8>| it.is_some_and(is_alphanumeric);
    ends(text.bytes().next())
        && ends(text.bytes().next_back())
        && between.all(|it| matches!(it, "." | "_" | "__") || it.bytes().all(|it| it == b'-'))
}

/// Whether a text is a valid image tag.
fn is_tag(tag: &str) -> bool {
    let is_word = |it: u8| it.is_ascii_alphanumeric() || it == b'_';
    (1..=128).contains(&tag.len())
        && tag.bytes().next().is_some_and(is_word)
        && tag.bytes().all(|it| is_word(it) || it == b'.' || it == b'-')
}

/// Whether a text is a valid image digest, such as `sha256:…`.
fn is_digest(digest: &str) -> bool {
    digest.split_once(':').is_some_and(|(algorithm, hex)| {
        let is_part = |it: &str| {
            it.starts_with(|it: char| it.is_ascii_alphabetic())
                && it.bytes().all(|it| it.is_ascii_alphanumeric())
        };
        algorithm.split(['-', '_', '+', '.']).all(is_part)
            && 32 <= hex.len()
            && hex.bytes().all(|it| it.is_ascii_hexdigit())
    })
}
