//! Addresses, ranges of them, and URLs.

use std::net::IpAddr;
use std::sync::Arc;

use super::eval::{Found, failed};
use super::value::Val;
use crate::custom::format;

/// The parts of a URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Url {
    scheme: String,
    host: String,
    path: String,
    query: String,
}

impl Url {
    fn parse(text: &str) -> Option<Self> {
        if !format::is_uri(text) {
            return None;
        }
        let rest = text.split('#').next().unwrap_or_default();
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (scheme, rest) = if rest.starts_with('/') { ("", rest) } else { rest.split_once(':')? };
        let (host, path) = match rest.strip_prefix("//") {
            Some(rest) => rest.split_at(rest.find('/').unwrap_or(rest.len())),
            None => ("", rest),
        };
        let host = host.rsplit('@').next().unwrap_or_default();
        Some(Self { scheme: scheme.to_owned(), host: host.to_owned(), path: path.to_owned(), query: query.to_owned() })
    }

    /// Splits host and port.
    fn host_and_port(&self) -> (&str, &str) {
        let end = self.host.rfind(']').map_or(0, |at| at + 1);
        match self.host.get(end..).and_then(|rest| rest.rfind(':')) {
            Some(at) => {
                (self.host.get(..end + at).unwrap_or_default(), self.host.get(end + at + 1..).unwrap_or_default())
            }
            None => (&self.host, ""),
        }
    }
}

fn range(text: &str) -> Option<(IpAddr, u8)> {
    if !format::is_cidr(text) {
        return None;
    }
    let (address, length) = text.split_once('/')?;
    Some((address.parse().ok()?, length.parse().ok()?))
}

/// Returns an address as bits from the left, and how many bits such an address has.
fn bits(address: IpAddr) -> (u128, u8) {
    match address {
        IpAddr::V4(address) => (u128::from(u32::from(address)) << 96, 32),
        IpAddr::V6(address) => (u128::from(address), 128),
    }
}

fn mask(length: u8) -> u128 {
    if length == 0 { 0 } else { u128::MAX << (128 - u32::from(length.min(128))) }
}

fn holds(range: (IpAddr, u8), address: IpAddr) -> bool {
    let ((own, kind), (other, other_kind)) = (bits(range.0), bits(address));
    kind == other_kind && (own ^ other) & mask(range.1) == 0
}

fn masked(address: IpAddr, length: u8) -> IpAddr {
    let kept = bits(address).0 & mask(length);
    match address {
        IpAddr::V4(_) => IpAddr::V4(u32::try_from(kept >> 96).unwrap_or_default().into()),
        IpAddr::V6(_) => IpAddr::V6(kept.into()),
    }
}

/// A function without a value in front; nothing if there is none such.
pub(super) fn function<'v>(name: &str, args: &[Val<'v>]) -> Option<Found<'v>> {
    let [Val::Text(text)] = args else { return None };
    Some(match name {
        "ip" => match text.parse::<IpAddr>() {
            Ok(address) => Ok(Val::Ip(address)),
            Err(_) => failed(format!("IP Address {text:?} parse error during conversion from string")),
        },
        "isIP" => Ok(Val::Bool(text.parse::<IpAddr>().is_ok())),
        "cidr" => match range(text) {
            Some((address, length)) => Ok(Val::Cidr(address, length)),
            None => failed(format!("network address parse error during conversion from string: {text:?}")),
        },
        "isCIDR" => Ok(Val::Bool(range(text).is_some())),
        "url" => match Url::parse(text) {
            Some(url) => Ok(Val::Url(Arc::new(url))),
            None => failed(format!("URL parse error during conversion from string: {text:?}")),
        },
        "isURL" => Ok(Val::Bool(Url::parse(text).is_some())),
        _ => return None,
    })
}

/// Whether an address is written as it would be written anew.
pub(super) fn is_canonical<'v>(text: &str) -> Found<'v> {
    match text.parse::<IpAddr>() {
        Ok(address) => Ok(Val::Bool(address.to_string() == text)),
        Err(_) => failed(format!("IP Address {text:?} parse error during conversion from string")),
    }
}

/// A function of a value; nothing if there is none such.
pub(super) fn method<'v>(on: &Val<'v>, name: &str, args: &[Val<'v>]) -> Option<Found<'v>> {
    let found = match (on, name, args) {
        (Val::Ip(address), "family", []) => Val::Int(if address.is_ipv4() { 4 } else { 6 }),
        (Val::Ip(address), "isUnspecified", []) => Val::Bool(address.is_unspecified()),
        (Val::Ip(address), "isLoopback", []) => Val::Bool(address.is_loopback()),
        (Val::Ip(address), "isLinkLocalMulticast", []) => Val::Bool(match address {
            IpAddr::V4(address) => matches!(address.octets(), [224, 0, 0, _]),
            IpAddr::V6(address) => address.segments()[0] & 0xff0f == 0xff02,
        }),
        (Val::Ip(address), "isLinkLocalUnicast", []) => Val::Bool(is_link_local(*address)),
        (Val::Ip(address), "isGlobalUnicast", []) => Val::Bool(
            !address.is_unspecified()
                && !address.is_loopback()
                && !address.is_multicast()
                && !is_link_local(*address)
                && *address != IpAddr::from([255, 255, 255, 255]),
        ),
        (Val::Cidr(address, length), "containsIP", [Val::Ip(other)]) => Val::Bool(holds((*address, *length), *other)),
        (Val::Cidr(address, length), "containsIP", [Val::Text(text)]) => match text.parse() {
            Ok(other) => Val::Bool(holds((*address, *length), other)),
            Err(_) => return Some(failed(format!("IP Address {text:?} parse error during conversion from string"))),
        },
        (Val::Cidr(address, length), "containsCIDR", [other]) => {
            let other = match other {
                Val::Cidr(address, length) => Some((*address, *length)),
                Val::Text(text) => range(text),
                _ => return None,
            };
            match other {
                Some((other, more)) => Val::Bool(more >= *length && holds((*address, *length), other)),
                None => return Some(failed("network address parse error during conversion from string")),
            }
        }
        (Val::Cidr(address, _), "ip", []) => Val::Ip(*address),
        (Val::Cidr(_, length), "prefixLength", []) => Val::Int(i64::from(*length)),
        (Val::Cidr(address, length), "masked", []) => Val::Cidr(masked(*address, *length), *length),
        (Val::Url(url), "getScheme", []) => Val::text(url.scheme.as_str()),
        (Val::Url(url), "getHost", []) => Val::text(url.host.as_str()),
        (Val::Url(url), "getHostname", []) => Val::text(url.host_and_port().0.trim_matches(['[', ']'])),
        (Val::Url(url), "getPort", []) => Val::text(url.host_and_port().1),
        (Val::Url(url), "getEscapedPath", []) => Val::text(url.path.as_str()),
        (Val::Url(url), "getQuery", []) => {
            let mut entries: Vec<(String, Vec<Val<'v>>)> = Vec::new();
            for (key, value) in url
                .query
                .split('&')
                .filter(|pair| !pair.is_empty())
                .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
            {
                match entries.iter_mut().find(|(own, _)| own == key) {
                    Some((_, values)) => values.push(Val::text(value)),
                    None => entries.push((key.to_owned(), vec![Val::text(value)])),
                }
            }
            Val::Map(Arc::new(entries.into_iter().map(|(key, values)| (Val::text(key), Val::list(values))).collect()))
        }
        _ => return None,
    };
    Some(Ok(found))
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.segments()[0] & 0xffc0 == 0xfe80,
    }
}
