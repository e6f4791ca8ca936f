//! Where probes and hooks go: named ports, and URLs as Go prints them.

use k8s_openapi::api::core::v1::{Container, HTTPGetAction};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// Why there is nowhere to go.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// Neither a number nor the name of a port.
    #[error("port {0:?} is neither a number nor the name of a port of the container")]
    UnknownPort(String),
    /// Out of range.
    #[error("invalid port number: {0}")]
    BadPort(i64),
}

/// The number of a port that is given by number or by the name of one of the container's ports.
pub fn container_port(container: &Container, port: &IntOrString) -> Result<u16, AddressError> {
    let number = match port {
        IntOrString::Int(number) => i64::from(*number),
        IntOrString::String(name) => {
            let named = container.ports.iter().flatten().find(|p| p.name.as_deref() == Some(name));
            match (named, name.parse::<i64>()) {
                (Some(named), _) => i64::from(named.container_port),
                (None, Ok(number)) => number,
                (None, Err(_)) => return Err(AddressError::UnknownPort(name.clone())),
            }
        }
    };
    u16::try_from(number).ok().filter(|port| *port > 0).ok_or(AddressError::BadPort(number))
}

/// A place that speaks HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    /// Over TLS.
    pub secure: bool,
    /// Name or address, IPv6 without brackets.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Path and query, never empty.
    pub path: String,
}

impl Url {
    /// Where an `httpGet` of a container goes; `address` is the pod's.
    pub fn of(action: &HTTPGetAction, container: &Container, address: &str) -> Result<Self, AddressError> {
        let path = escape(action.path.as_deref().unwrap_or_default());
        Ok(Self {
            secure: action.scheme.as_deref().is_some_and(|scheme| scheme.eq_ignore_ascii_case("https")),
            host: host(action.host.as_deref(), address),
            port: container_port(container, &action.port)?,
            path: if path.starts_with('/') { path } else { format!("/{path}") },
        })
    }

    /// The name of the connection: `host:port`.
    pub fn authority(&self) -> String {
        join(&self.host, self.port)
    }

    /// Where a redirect leads; `None` when it makes no sense.
    pub(super) fn redirected(&self, location: &str) -> Option<Self> {
        let location = location.split('#').next().unwrap_or_default();
        let rest = match location.split_once("://") {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => Some((false, rest)),
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("https") => Some((true, rest)),
            Some((scheme, _)) if scheme.bytes().all(|b| b.is_ascii_alphanumeric()) => return None,
            _ => location.strip_prefix("//").map(|rest| (self.secure, rest)),
        };
        let Some((secure, rest)) = rest else {
            let (folder, _) = self.path.split('?').next().unwrap_or_default().rsplit_once('/')?;
            let path = match location.chars().next() {
                Some('/') => escape(location),
                Some('?') => format!("{}{}", self.path.split('?').next().unwrap_or_default(), escape(location)),
                Some(_) => format!("{folder}/{}", escape(location)),
                None => self.path.clone(),
            };
            return Some(Self { path, ..self.clone() });
        };
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let authority: http::uri::Authority = authority.parse().ok()?;
        let path = escape(path);
        Some(Self {
            secure,
            host: authority.host().trim_matches(['[', ']']).to_owned(),
            port: authority.port_u16().unwrap_or(if secure { 443 } else { 80 }),
            path: if path.starts_with('/') { path } else { format!("/{path}") },
        })
    }
}

impl std::fmt::Display for Url {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let scheme = if self.secure { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority(), self.path)
    }
}

/// The host that an action names, or the pod's address.
pub(super) fn host(named: Option<&str>, address: &str) -> String {
    named.filter(|host| !host.is_empty()).unwrap_or(address).trim_matches(['[', ']']).to_owned()
}

/// `host:port`, with brackets around an IPv6 address.
pub(super) fn join(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// Makes a path from a manifest fit for a request line: what may not stand there is percent-encoded, a fragment dropped.
fn escape(path: &str) -> String {
    let path = path.split('#').next().unwrap_or_default();
    let mut out = String::with_capacity(path.len());
    for byte in path.bytes() {
        match byte {
            b'!' | b'$'..=b';' | b'=' | b'?'..=b'Z' | b'[' | b']' | b'_' | b'a'..=b'z' | b'~' => {
                out.push(char::from(byte));
            }
            _ => out.extend(['%', hex(byte >> 4), hex(byte & 15)]),
        }
    }
    out
}

fn hex(digit: u8) -> char {
    char::from_digit(digit.into(), 16).unwrap_or('0').to_ascii_uppercase()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ContainerPort;

    use super::*;

    fn container() -> Container {
        let port = ContainerPort { name: Some("web".into()), container_port: 8080, ..ContainerPort::default() };
        Container { ports: Some(vec![port]), ..Container::default() }
    }

    fn url(text: &str) -> Url {
        let any = Url { secure: false, host: String::new(), port: 1, path: "/".into() };
        any.redirected(text).unwrap()
    }

    #[test]
    fn ports_go_by_number_or_by_name() {
        let port = |text: &str| container_port(&container(), &IntOrString::String(text.into()));
        assert_eq!(container_port(&container(), &IntOrString::Int(90)), Ok(90));
        assert_eq!(port("web"), Ok(8080));
        assert_eq!(port("81"), Ok(81));
        assert_eq!(port("db"), Err(AddressError::UnknownPort("db".into())));
        assert_eq!(container_port(&container(), &IntOrString::Int(0)), Err(AddressError::BadPort(0)));
        assert_eq!(container_port(&container(), &IntOrString::Int(70000)), Err(AddressError::BadPort(70000)));
    }

    #[test]
    fn an_action_goes_to_the_pod_unless_it_names_a_host() {
        let action = |host: Option<&str>, path: &str, scheme: &str| HTTPGetAction {
            host: host.map(Into::into),
            path: Some(path.into()),
            scheme: Some(scheme.into()),
            port: IntOrString::String("web".into()),
            ..HTTPGetAction::default()
        };
        let shown = |a: HTTPGetAction| Url::of(&a, &container(), "10.0.0.7").unwrap().to_string();
        assert_eq!(shown(action(None, "/ready", "HTTP")), "http://10.0.0.7:8080/ready");
        assert_eq!(shown(action(Some(""), "", "HTTPS")), "https://10.0.0.7:8080/");
        assert_eq!(shown(action(Some("::1"), "a?b=c d#e", "HTTP")), "http://[::1]:8080/a?b=c%20d");
    }

    #[test]
    fn redirects_are_followed_from_where_one_stands() {
        let here = url("http://h:8080/a/b?c");
        let to = |location: &str| here.redirected(location).map(|url| url.to_string());
        assert_eq!(to("/x").as_deref(), Some("http://h:8080/x"));
        assert_eq!(to("x?y").as_deref(), Some("http://h:8080/a/x?y"));
        assert_eq!(to("?z").as_deref(), Some("http://h:8080/a/b?z"));
        assert_eq!(to("//o/p").as_deref(), Some("http://o:80/p"));
        assert_eq!(to("https://h").as_deref(), Some("https://h:443/"));
        assert_eq!(to("http://[::1]:5/q").as_deref(), Some("http://[::1]:5/q"));
        assert_eq!(to("ftp://h/"), None);
    }
}
