//! References to container images, such as `registry.example.com/team/app:1.2`, and the pull policy that depends on
//! them.
//!
//! Upstream: `pkg/util/parsers`, and `ParseNormalizedNamed` of `github.com/distribution/reference`.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use core::fmt;

/// Registry of an image reference that does not name a registry.
const DEFAULT_REGISTRY: &str = "docker.io";

/// Maximum length in bytes of the path of a repository, without the registry.
const REPOSITORY_BYTES_MAX: usize = 255;

/// A parsed image reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageReference<'a> {
    /// Host of the registry, with an optional port. `docker.io` if the reference does not name a registry.
    pub registry: &'a str,
    /// `library/` if the reference omits this part of the path of an official image of `docker.io`, such as `busybox`.
    /// Otherwise empty.
    implied_path: &'static str,
    /// Path of the repository in the registry, as in the reference.
    path: &'a str,
    pub tag: Option<&'a str>,
    pub digest: Option<&'a str>,
}

/// Why a text is not a valid image reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImageReferenceError {
    /// The text does not have the syntax of a reference.
    InvalidFormat,
    /// The text has the form of an image ID: 64 hexadecimal digits. Holds the text.
    ImageId(String),
    /// The path of the repository has uppercase letters. Holds the path.
    Uppercase(String),
    /// The path of the repository is longer than 255 bytes.
    TooLong,
    /// The hash algorithm of the digest is not known.
    UnsupportedDigest,
    /// The number of hexadecimal digits is wrong for the hash algorithm of the digest.
    InvalidDigestLength,
    /// The digest has uppercase letters.
    InvalidDigestFormat,
}

impl core::error::Error for ImageReferenceError {}

impl fmt::Display for ImageReferenceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidFormat => write!(f, "invalid reference format"),
            Self::ImageId(id) => {
                write!(f, "invalid repository name ({id}), cannot specify 64-byte hexadecimal strings")
            }
            Self::Uppercase(path) => {
                write!(f, "invalid reference format: repository name ({path}) must be lowercase")
            }
            Self::TooLong => {
                write!(f, "repository name must not be more than {REPOSITORY_BYTES_MAX} characters")
            }
            Self::UnsupportedDigest => write!(f, "unsupported digest algorithm"),
            Self::InvalidDigestLength => write!(f, "invalid checksum digest length"),
            Self::InvalidDigestFormat => write!(f, "invalid checksum digest format"),
        }
    }
}

impl<'a> ImageReference<'a> {
    /// Parses an image reference.
    ///
    /// Rule: the text before the first slash is the registry if it contains a dot, a colon or an uppercase letter, or
    /// is `localhost`. Otherwise the registry is `docker.io`, whose official images are in `library/`.
    /// `index.docker.io` means `docker.io`. Upstream: `ParseNormalizedNamed`.
    pub fn parse(text: &'a str) -> Result<Self, ImageReferenceError> {
        if is_lowercase_hex(text, 64) {
            return Err(ImageReferenceError::ImageId(text.to_owned()));
        }
        let is_registry =
            |it: &str| it.contains(['.', ':']) || it == "localhost" || it.contains(char::is_uppercase);
        let (registry, rest) = match text.split_once('/') {
            Some(("index.docker.io", rest)) => (DEFAULT_REGISTRY, rest),
            Some((registry, rest)) if is_registry(registry) => (registry, rest),
            _ => (DEFAULT_REGISTRY, text),
        };
        let before_tag = rest.split(':').next().unwrap_or(rest);
        if before_tag.contains(char::is_uppercase) {
            return Err(ImageReferenceError::Uppercase(before_tag.to_owned()));
        }
        let (name, digest) = rest.split_once('@').map_or((rest, None), |(name, it)| (name, Some(it)));
        let (path, tag) = name.split_once(':').map_or((name, None), |(path, tag)| (path, Some(tag)));
        let is_official = registry == DEFAULT_REGISTRY && !path.contains('/');
        let is_valid = is_registry_address(registry)
            && path.split('/').all(is_path_component)
            && tag.is_none_or(is_tag)
            && digest.is_none_or(has_digest_syntax);
        if !is_valid {
            return Err(ImageReferenceError::InvalidFormat);
        }
        let implied_path = if is_official { "library/" } else { "" };
        if REPOSITORY_BYTES_MAX < implied_path.len() + path.len() {
            return Err(ImageReferenceError::TooLong);
        }
        digest.map_or(Ok(()), validate_digest)?;
        Ok(Self { registry, implied_path, path, tag, digest })
    }

    /// Returns the form of the reference that runtimes use.
    ///
    /// Rule: `busybox` becomes `docker.io/library/busybox:latest`. If a reference has both a tag and a digest, the tag
    /// is dropped.
    /// Upstream: `ParseDockerRef`.
    pub fn normalized(&self) -> String {
        let Self { registry, implied_path, path, tag, digest } = self;
        match digest {
            Some(digest) => format!("{registry}/{implied_path}{path}@{digest}"),
            None => format!("{registry}/{implied_path}{path}:{}", tag.unwrap_or("latest")),
        }
    }
}

/// Returns the default `imagePullPolicy` of an image.
///
/// Rule: an image with the tag `latest`, explicit or implied, is always pulled, because the tag may refer to another
/// image later. An image with another tag, with a digest and no tag, or with an invalid reference is pulled if it is
/// not present.
/// Upstream: `SetDefaults_Container`.
pub fn default_pull_policy(image: &str) -> &'static str {
    let is_mutable = match ImageReference::parse(image) {
        Ok(ImageReference { tag: Some(tag), .. }) => tag == "latest",
        Ok(ImageReference { tag: None, digest, .. }) => digest.is_none(),
        Err(_) => false,
    };
    if is_mutable { "Always" } else { "IfNotPresent" }
}

/// Whether a text is a host name, an IPv4 address, or an IPv6 address in brackets, with an optional port.
fn is_registry_address(text: &str) -> bool {
    let is_label = |it: &str| {
        let inner = |it: u8| it.is_ascii_alphanumeric() || it == b'-';
        !it.is_empty() && it.bytes().all(inner) && !it.starts_with('-') && !it.ends_with('-')
    };
    let is_ipv6 = |it: &str| !it.is_empty() && it.bytes().all(|it| it.is_ascii_hexdigit() || it == b':');
    let (is_host, port) = match text.strip_prefix('[').and_then(|it| it.split_once(']')) {
        Some((address, "")) => (is_ipv6(address), None),
        Some((address, port)) => (is_ipv6(address) && port.starts_with(':'), port.get(1..)),
        None => {
            let (host, port) = text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port)));
            (host.split('.').all(is_label), port)
        }
    };
    is_host && port.is_none_or(|it| !it.is_empty() && it.bytes().all(|it| it.is_ascii_digit()))
}

/// Whether a text is a valid component of a repository path: lowercase letters and digits, separated by `.`, `_`, `__`
/// or dashes. Slashes separate the components.
fn is_path_component(text: &str) -> bool {
    let is_alphanumeric = |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit();
    let mut separators =
        text.split(|it: char| it.is_ascii() && is_alphanumeric(it as u8)).filter(|it| !it.is_empty());
    let ends = |it: Option<u8>| it.is_some_and(is_alphanumeric);
    ends(text.bytes().next())
        && ends(text.bytes().next_back())
        && separators.all(|it| matches!(it, "." | "_" | "__") || it.bytes().all(|it| it == b'-'))
}

/// Whether a text is a valid tag.
fn is_tag(text: &str) -> bool {
    let is_word = |it: u8| it.is_ascii_alphanumeric() || it == b'_';
    (1..=128).contains(&text.len())
        && text.bytes().next().is_some_and(is_word)
        && text.bytes().all(|it| is_word(it) || it == b'.' || it == b'-')
}

/// Whether a text has the syntax of a digest: a hash algorithm, a colon, and at least 32 hexadecimal digits.
fn has_digest_syntax(text: &str) -> bool {
    let is_part = |it: &str| {
        it.starts_with(|it: char| it.is_ascii_alphabetic()) && it.bytes().all(|it| it.is_ascii_alphanumeric())
    };
    text.split_once(':').is_some_and(|(algorithm, hex)| {
        algorithm.split(['-', '_', '+', '.']).all(is_part)
            && 32 <= hex.len()
            && hex.bytes().all(|it| it.is_ascii_hexdigit())
    })
}

/// Checks that a digest has a supported hash algorithm, the number of digits of this algorithm, and only lowercase
/// hexadecimal digits. Upstream: `Parse` of `go-digest`.
fn validate_digest(digest: &str) -> Result<(), ImageReferenceError> {
    let (digits, hex) = match digest.split_once(':') {
        Some(("sha256", hex)) => (64, hex),
        Some(("sha384", hex)) => (96, hex),
        Some(("sha512", hex)) => (128, hex),
        _ => return Err(ImageReferenceError::UnsupportedDigest),
    };
    if hex.len() != digits {
        return Err(ImageReferenceError::InvalidDigestLength);
    }
    if is_lowercase_hex(hex, digits) { Ok(()) } else { Err(ImageReferenceError::InvalidDigestFormat) }
}

/// Whether a text consists of this number of hexadecimal digits, without uppercase letters.
fn is_lowercase_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|it| it.is_ascii_digit() || (b'a'..=b'f').contains(&it))
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use expect_test::expect;

    use super::*;

    #[test]
    fn references_are_normalized_or_refused_as_upstream_does() {
        let hex = "0a".repeat(32);
        let texts = [
            "busybox",
            "busybox:1.36",
            "library/busybox",
            "me/tool:v1",
            "localhost/pause:1",
            "localhost:5000/a/b",
            "ghcr.io/org/it:2",
            "index.docker.io/busybox",
            "[::1]:5000/a",
            "Host/b/c__d",
            "a--b/c.d",
            &format!("busybox:1@sha256:{hex}"),
            &format!("busybox:latest@sha256:{hex}"),
            &format!("busybox@sha256:{}", hex.to_uppercase()),
            &format!("busybox@md5:{}", &hex[..32]),
            &hex,
            &format!("{hex}:1"),
            "",
            ":1",
            "/a",
            "a//b",
            "a..b",
            "a___b",
            "Upper",
            "a:b:c",
            "a:-b",
            "../x",
            "a b",
            "é.com/a",
            "-a.com/b",
            "a.com:/b",
            "a.com:70000/b",
            "x@sha256:1",
            &"a".repeat(248),
            &format!("me/{}", "a".repeat(253)),
        ];
        let normalized = |it: &&str| match ImageReference::parse(it) {
            Ok(reference) => reference.normalized(),
            Err(why) => format!("error: {why}"),
        };
        let shortened = |it: String| it.replace(&"a".repeat(100), "a…");
        let lines: Vec<String> =
            texts.iter().map(|it| shortened(format!("{it} -> {}", normalized(it)))).collect();
        expect![[r#"
            busybox -> docker.io/library/busybox:latest
            busybox:1.36 -> docker.io/library/busybox:1.36
            library/busybox -> docker.io/library/busybox:latest
            me/tool:v1 -> docker.io/me/tool:v1
            localhost/pause:1 -> localhost/pause:1
            localhost:5000/a/b -> localhost:5000/a/b:latest
            ghcr.io/org/it:2 -> ghcr.io/org/it:2
            index.docker.io/busybox -> docker.io/library/busybox:latest
            [::1]:5000/a -> [::1]:5000/a:latest
            Host/b/c__d -> Host/b/c__d:latest
            a--b/c.d -> docker.io/a--b/c.d:latest
            busybox:1@sha256:0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a -> docker.io/library/busybox@sha256:0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a
            busybox:latest@sha256:0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a -> docker.io/library/busybox@sha256:0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a
            busybox@sha256:0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A -> error: invalid checksum digest format
            busybox@md5:0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a -> error: unsupported digest algorithm
            0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a -> error: invalid repository name (0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a), cannot specify 64-byte hexadecimal strings
            0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a:1 -> docker.io/library/0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a:1
             -> error: invalid reference format
            :1 -> error: invalid reference format
            /a -> error: invalid reference format
            a//b -> error: invalid reference format
            a..b -> error: invalid reference format
            a___b -> error: invalid reference format
            Upper -> error: invalid reference format: repository name (Upper) must be lowercase
            a:b:c -> error: invalid reference format
            a:-b -> error: invalid reference format
            ../x -> error: invalid reference format
            a b -> error: invalid reference format
            é.com/a -> error: invalid reference format
            -a.com/b -> error: invalid reference format
            a.com:/b -> error: invalid reference format
            a.com:70000/b -> a.com:70000/b:latest
            x@sha256:1 -> error: invalid reference format
            a…a…aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa -> error: repository name must not be more than 255 characters
            me/a…a…aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa -> error: repository name must not be more than 255 characters"#]].assert_eq(&lines.join("\n"));
    }

    #[test]
    fn only_the_tag_latest_is_always_pulled() {
        let digest = format!("sha256:{}", "0".repeat(64));
        let always = ["a", "a:latest", "host:5000/a", "Host/b/c__d", &format!("a:latest@{digest}")]
            .map(default_pull_policy);
        assert_eq!(always, ["Always"; 5]);
        let if_not_present = [
            "a:1",
            "host:5000/a:1",
            &format!("a@{digest}"),
            &format!("a:1@{digest}"),
            "a@sha256:0",
            "",
            "A",
            "A:latest",
            "é",
            "é.com/a",
            "a b",
            "a:",
            "/a",
            "a//b",
        ]
        .map(default_pull_policy);
        assert_eq!(if_not_present, ["IfNotPresent"; 14]);
    }
}
