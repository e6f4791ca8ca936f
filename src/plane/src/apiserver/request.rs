//! What a request asks for, read from its method, path and query the way clients mean it.

use http::Method;

use super::identity::Attributes;

/// A query, decoded.
#[derive(Debug, Clone, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// Reads a query string.
    pub(crate) fn parse(text: &str) -> Self {
        let pairs = text.split('&').filter(|pair| !pair.is_empty());
        Self(
            pairs
                .map(|pair| {
                    let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                    (decode(&key.replace('+', " ")), decode(&value.replace('+', " ")))
                })
                .collect(),
        )
    }

    /// Returns the first value of a key, or an empty text.
    pub(crate) fn get(&self, key: &str) -> &str {
        self.0.iter().find(|(own, _)| own == key).map_or("", |(_, value)| value)
    }

    /// Returns all values of a key.
    pub(crate) fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(own, _)| own == key).map(|(_, value)| value.as_str())
    }

    /// Whether a key is there and not set to `false` or `0`: upstream's conversion of booleans.
    pub(crate) fn flag(&self, key: &str) -> bool {
        let value = self.0.iter().find(|(own, _)| own == key).map(|(_, value)| value.as_str());
        value.is_some_and(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
    }
}

/// Decodes percent signs; broken ones stay as they are.
fn decode(text: &str) -> String {
    if !text.contains('%') {
        return text.to_owned();
    }
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut index = 0;
    while index < bytes.len() {
        // Not `from_str_radix`, which takes a sign.
        let digit = |offset: usize| char::from(*bytes.get(index + offset)?).to_digit(16);
        let byte = digit(1).zip(digit(2)).and_then(|(high, low)| u8::try_from(high * 16 + low).ok());
        match byte {
            Some(byte) if bytes[index] == b'%' => {
                out.push(byte);
                index += 3;
            }
            _ => {
                out.push(bytes[index]);
                index += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// What is asked for.
#[derive(Debug, Clone, Default)]
pub(crate) struct RequestInfo {
    /// The words of authorization.
    pub(crate) attributes: Attributes,
    /// Path behind a subresource.
    pub(crate) rest: String,
    /// Whether the path goes through a namespace to what it asks for.
    pub(crate) in_namespace: bool,
}

/// Subresources of a namespace itself, not things inside one.
const OF_NAMESPACES: [&str; 2] = ["status", "finalize"];

impl RequestInfo {
    /// Reads a request's head.
    pub(crate) fn parse(method: &Method, path: &str, query: &Query) -> Self {
        let parts: Vec<String> = path.split('/').filter(|part| !part.is_empty()).map(decode).collect();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let mut attributes = Attributes {
            verb: method.as_str().to_ascii_lowercase(),
            path: path.to_owned(),
            field_selector: query.get("fieldSelector").to_owned(),
            ..Attributes::default()
        };
        let rest = match parts.as_slice() {
            ["api", version, rest @ ..] if !rest.is_empty() => {
                attributes.version = (*version).to_owned();
                rest
            }
            ["apis", group, version, rest @ ..] if !rest.is_empty() => {
                attributes.api_group = (*group).to_owned();
                attributes.version = (*version).to_owned();
                rest
            }
            _ => return Self { attributes, ..Self::default() },
        };
        attributes.is_resource = true;
        let mut in_namespace = false;
        let inside = match rest {
            ["namespaces", namespace, resource, ..] if !OF_NAMESPACES.contains(resource) => {
                attributes.namespace = (*namespace).to_owned();
                in_namespace = true;
                &rest[2..]
            }
            // A namespace is in itself, as upstream's authorization sees it.
            ["namespaces", namespace, ..] => {
                attributes.namespace = (*namespace).to_owned();
                rest
            }
            other => other,
        };
        let part = |index: usize| inside.get(index).copied().unwrap_or_default().to_owned();
        (attributes.resource, attributes.name, attributes.subresource) = (part(0), part(1), part(2));
        let tail = inside.get(3..).unwrap_or_default().join("/");
        attributes.verb = verb(method, &attributes.name, query).to_owned();
        if attributes.name.is_empty() && matches!(attributes.verb.as_str(), "list" | "watch") {
            attributes.name = only_name(&attributes.field_selector);
        }
        Self { attributes, rest: tail, in_namespace }
    }
}

fn verb(method: &Method, name: &str, query: &Query) -> &'static str {
    match (method.as_str(), name.is_empty()) {
        // Asked for by name, an object is shown: who may see one must not watch them all.
        ("GET" | "HEAD", true) if query.flag("watch") => "watch",
        ("GET" | "HEAD", true) => "list",
        ("GET" | "HEAD", false) => "get",
        ("POST", _) => "create",
        ("PUT", _) => "update",
        ("PATCH", _) => "patch",
        ("DELETE", true) => "deletecollection",
        ("DELETE", false) => "delete",
        _ => "",
    }
}

/// A list by `metadata.name` is about that object: a node may ask it for the secrets of its pods.
fn only_name(selector: &str) -> String {
    let terms = selector.split(',').filter_map(|term| term.split_once('='));
    let name = terms.filter(|(key, _)| *key == "metadata.name").map(|(_, value)| value.trim_start_matches('=')).next();
    name.unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(method: &str, target: &str) -> Attributes {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        RequestInfo::parse(&method.parse().unwrap(), path, &Query::parse(query)).attributes
    }

    #[test]
    fn paths_are_read_as_upstream_does() {
        for (method, target, want) in [
            ("GET", "/api/v1/pods", ["list", "", "pods", "", "", ""]),
            ("GET", "/api/v1/namespaces/a/pods?watch=1", ["watch", "", "pods", "", "a", ""]),
            ("GET", "/api/v1/namespaces/a/secrets/s?watch=true", ["get", "", "secrets", "", "a", "s"]),
            ("GET", "/api/v1/namespaces/a/pods/p/log?watch=1", ["get", "", "pods", "log", "a", "p"]),
            ("GET", "/api/v1/pods?watch", ["watch", "", "pods", "", "", ""]),
            ("GET", "/api/v1/pods?watch=False", ["list", "", "pods", "", "", ""]),
            ("GET", "/api/v1/namespaces/a/pods/p", ["get", "", "pods", "", "a", "p"]),
            ("GET", "/api/v1/namespaces/a/pods/p/log", ["get", "", "pods", "log", "a", "p"]),
            ("POST", "/api/v1/namespaces/a/pods/p/exec", ["create", "", "pods", "exec", "a", "p"]),
            ("GET", "/api/v1/namespaces/a", ["get", "", "namespaces", "", "a", "a"]),
            ("PUT", "/api/v1/namespaces/a/finalize", ["update", "", "namespaces", "finalize", "a", "a"]),
            ("DELETE", "/api/v1/namespaces/a/pods", ["deletecollection", "", "pods", "", "a", ""]),
            (
                "PATCH",
                "/apis/coordination.k8s.io/v1/namespaces/a/leases/l",
                ["patch", "coordination.k8s.io", "leases", "", "a", "l"],
            ),
            (
                "GET",
                "/api/v1/namespaces/a/secrets?fieldSelector=metadata.name%3Ds&watch=true",
                ["watch", "", "secrets", "", "a", "s"],
            ),
        ] {
            let got = info(method, target);
            assert!(got.is_resource, "{target}");
            let got = [&*got.verb, &*got.api_group, &*got.resource, &*got.subresource, &*got.namespace, &*got.name];
            assert_eq!(got, want, "{method} {target}");
        }
        assert!(!info("GET", "/healthz").is_resource);
        assert!(!info("GET", "/apis/coordination.k8s.io/v1").is_resource);
        assert_eq!(info("GET", "/version").verb, "get");
    }

    #[test]
    fn queries_are_decoded_and_broken_escapes_stay() {
        let query = Query::parse("a=b%20c&labelSelector=x%3Dy%2Cz&broken=%zz%4&plus=a+b&empty");
        assert_eq!(query.get("a"), "b c");
        assert_eq!(query.get("labelSelector"), "x=y,z");
        assert_eq!(query.get("broken"), "%zz%4");
        assert_eq!(query.get("plus"), "a b");
        assert_eq!(query.get("empty"), "");
        assert_eq!(decode("a%+5b%20"), "a%+5b ");
    }
}
