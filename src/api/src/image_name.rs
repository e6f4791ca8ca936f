//! Image names as users write them: parsing with the usual short forms, the default tag, the default pull policy.
//! The texts of refusals are those that users know from the stock agent.

const DEFAULT_DOMAIN: &str = "docker.io";
const LEGACY_DOMAIN: &str = "index.docker.io";
const OFFICIAL: &str = "library";
const NAME_MAX: usize = 255;
const TAG_MAX: usize = 128;

/// A parsed image name; `domain/path` is complete, e.g. `docker.io/library/busybox`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageName {
    /// Registry host, with port if one was given.
    pub domain: String,
    /// Repository path inside the registry.
    pub path: String,
    /// Tag as written.
    pub tag: Option<String>,
    /// Digest as written, `algorithm:hex`.
    pub digest: Option<String>,
}

/// Why a text is not an image name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImageNameError {
    /// Nothing but hex digits as long as an id: it would be ambiguous.
    #[error("invalid repository name ({0}), cannot specify 64-byte hexadecimal strings")]
    Identifier(String),
    /// The repository has upper-case letters.
    #[error("invalid reference format: repository name ({0}) must be lowercase")]
    UpperCase(String),
    /// Any other break of the grammar.
    #[error("invalid reference format")]
    Format,
    /// The repository name is longer than a registry accepts.
    #[error("repository name must not be more than {NAME_MAX} characters")]
    TooLong,
    /// The digest names an algorithm that nobody verifies.
    #[error("unsupported digest algorithm")]
    DigestAlgorithm,
    /// The digest is too short or too long for its algorithm.
    #[error("invalid checksum digest length")]
    DigestLength,
}

impl ImageName {
    /// Returns `domain/path` without tag and digest.
    pub fn repository(&self) -> String {
        format!("{}/{}", self.domain, self.path)
    }
}

/// Parses an image name, completing short forms (`busybox` is `docker.io/library/busybox`).
pub fn parse(text: &str) -> Result<ImageName, ImageNameError> {
    if text.len() == 64 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)) {
        return Err(ImageNameError::Identifier(text.to_owned()));
    }
    let (domain, remainder) = split_domain(text);
    let remote = remainder.split_once(':').map_or(remainder.as_str(), |(remote, _)| remote);
    if remote.chars().any(char::is_uppercase) {
        return Err(ImageNameError::UpperCase(remote.to_owned()));
    }
    let (rest, digest) = match remainder.split_once('@') {
        Some((rest, digest)) => (rest, Some(digest)),
        None => (remainder.as_str(), None),
    };
    let (path, tag) = match rest.split_once(':') {
        Some((path, tag)) => (path, Some(tag)),
        None => (rest, None),
    };
    if !is_domain(&domain) || !path.split('/').all(is_path_component) || !tag.is_none_or(is_tag) {
        return Err(ImageNameError::Format);
    }
    if let Some(digest) = digest {
        check_digest(digest)?;
    }
    if domain.len() + 1 + path.len() > NAME_MAX {
        return Err(ImageNameError::TooLong);
    }
    Ok(ImageName { path: path.to_owned(), tag: tag.map(str::to_owned), digest: digest.map(str::to_owned), domain })
}

/// Returns the name with `:latest` where neither tag nor digest is given; otherwise as written.
///
/// The error is the message that the pod's status and the event `InspectFailed` carry.
pub fn with_default_tag(text: &str) -> Result<String, String> {
    match parse(text) {
        Ok(name) if name.tag.is_none() && name.digest.is_none() => Ok(format!("{text}:latest")),
        Ok(_) => Ok(text.to_owned()),
        Err(error) => {
            Err(format!("Failed to apply default image tag {text:?}: couldn't parse image name {text:?}: {error}"))
        }
    }
}

/// Returns the pull policy that a container gets when it names none.
pub fn default_pull_policy(text: &str) -> &'static str {
    match parse(text) {
        Ok(ImageName { digest: Some(_), tag: None, .. }) => "IfNotPresent",
        Ok(ImageName { tag: Some(tag), .. }) if tag == "latest" => "Always",
        Ok(ImageName { tag: None, .. }) => "Always",
        // A name that cannot be read counts as having no tag "latest".
        Ok(_) | Err(_) => "IfNotPresent",
    }
}

fn split_domain(text: &str) -> (String, String) {
    let (mut domain, mut remainder) = match text.split_once('/') {
        Some((first, rest))
            if first.contains(['.', ':']) || first == "localhost" || first.chars().any(char::is_uppercase) =>
        {
            (first.to_owned(), rest.to_owned())
        }
        _ => (DEFAULT_DOMAIN.to_owned(), text.to_owned()),
    };
    if domain == LEGACY_DOMAIN {
        DEFAULT_DOMAIN.clone_into(&mut domain);
    }
    if domain == DEFAULT_DOMAIN && !remainder.contains('/') {
        remainder = format!("{OFFICIAL}/{remainder}");
    }
    (domain, remainder)
}

fn is_domain(text: &str) -> bool {
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let Some((address, after)) = rest.split_once(']') else { return false };
        if address.is_empty() || !address.bytes().all(|b| b.is_ascii_hexdigit() || b == b':') {
            return false;
        }
        (None, if after.is_empty() { None } else { Some(after.strip_prefix(':').unwrap_or("x")) })
    } else {
        match text.split_once(':') {
            Some((host, port)) => (Some(host), Some(port)),
            None => (Some(text), None),
        }
    };
    let component = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
            && !part.starts_with('-')
            && !part.ends_with('-')
    };
    host.is_none_or(|host| host.split('.').all(component))
        && port.is_none_or(|port| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()))
}

/// Alphanumeric runs joined by one dot, one or two underscores, or any number of dashes.
fn is_path_component(text: &str) -> bool {
    let is_word = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = text.as_bytes();
    if !bytes.first().is_some_and(is_word) || !bytes.last().is_some_and(is_word) {
        return false;
    }
    bytes.split(is_word).all(|separator| match separator {
        [] | [b'.' | b'_'] | [b'_', b'_'] => true,
        dashes => dashes.iter().all(|b| *b == b'-'),
    })
}

fn is_tag(text: &str) -> bool {
    let is_word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    text.len() <= TAG_MAX
        && text.bytes().next().is_some_and(is_word)
        && text.bytes().all(|b| is_word(b) || matches!(b, b'.' | b'-'))
}

fn check_digest(text: &str) -> Result<(), ImageNameError> {
    let Some((algorithm, hex)) = text.split_once(':') else { return Err(ImageNameError::Format) };
    let is_algorithm = algorithm.split(['+', '.', '-', '_']).all(|part| {
        part.bytes().next().is_some_and(|b| b.is_ascii_alphabetic()) && part.bytes().all(|b| b.is_ascii_alphanumeric())
    });
    if !is_algorithm || hex.len() < 32 || !hex.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(ImageNameError::Format);
    }
    let length = match algorithm {
        "sha256" => 64,
        "sha384" => 96,
        "sha512" => 128,
        _ => return Err(ImageNameError::DigestAlgorithm),
    };
    if hex.len() != length {
        return Err(ImageNameError::DigestLength);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHA: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn short_names_are_completed() {
        for (text, repository, tag) in [
            ("busybox", "docker.io/library/busybox", None),
            ("busybox:1", "docker.io/library/busybox", Some("1")),
            ("a/b:c", "docker.io/a/b", Some("c")),
            ("localhost/busybox:1", "localhost/busybox", Some("1")),
            ("127.0.0.1:1/absent:1", "127.0.0.1:1/absent", Some("1")),
            ("registry.k8s.io/pause:3.10", "registry.k8s.io/pause", Some("3.10")),
            ("index.docker.io/x", "docker.io/library/x", None),
            ("[fd00::1]:5000/x/y__z", "[fd00::1]:5000/x/y__z", None),
            ("host:5000/a-b--c.d_e", "host:5000/a-b--c.d_e", None),
        ] {
            let name = parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(name.repository(), repository, "{text}");
            assert_eq!(name.tag.as_deref(), tag, "{text}");
        }
    }

    #[test]
    fn broken_names_are_refused() {
        for text in [
            "",
            " ",
            "a b",
            "a/",
            "/a",
            "a:",
            "a:b:c",
            "a@",
            "a@sha256",
            "a@sha256:00",
            "-a",
            "a_",
            "a..b",
            "a___b",
            "http://x/y",
            "../x",
            "a//b",
            "host:x/y",
            "a:\u{e9}",
        ] {
            assert!(parse(text).is_err(), "{text:?}");
        }
        assert_eq!(parse(&"a".repeat(300)), Err(ImageNameError::TooLong));
        assert_eq!(parse(&format!("a@md5:{}", "0".repeat(32))), Err(ImageNameError::DigestAlgorithm));
        assert_eq!(parse(&format!("a@sha256:{}", "0".repeat(40))), Err(ImageNameError::DigestLength));
        assert!(matches!(parse(&"a".repeat(64)), Err(ImageNameError::Identifier(_))));
    }

    #[test]
    fn refusal_text_is_as_recorded() {
        assert_eq!(
            with_default_tag("Not A/Valid:IMAGE@").unwrap_err(),
            "Failed to apply default image tag \"Not A/Valid:IMAGE@\": couldn't parse image name \"Not A/Valid:IMAGE@\": \
             invalid reference format: repository name (Valid) must be lowercase"
        );
    }

    #[test]
    fn default_tag_is_added_only_where_nothing_is_given() {
        assert_eq!(with_default_tag("a").unwrap(), "a:latest");
        assert_eq!(with_default_tag("h:5/a").unwrap(), "h:5/a:latest");
        assert_eq!(with_default_tag("a:1").unwrap(), "a:1");
        let digest = format!("a@{SHA}");
        assert_eq!(with_default_tag(&digest).unwrap(), digest);
    }

    #[test]
    fn pull_policy_follows_the_tag() {
        assert_eq!(default_pull_policy("a"), "Always");
        assert_eq!(default_pull_policy("a:latest"), "Always");
        assert_eq!(default_pull_policy("a:1"), "IfNotPresent");
        assert_eq!(default_pull_policy(&format!("a@{SHA}")), "IfNotPresent");
        assert_eq!(default_pull_policy(&format!("a:latest@{SHA}")), "Always");
        assert_eq!(default_pull_policy("Not A/Valid:IMAGE@"), "IfNotPresent");
    }
}
