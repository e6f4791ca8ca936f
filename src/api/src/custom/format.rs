//! Formats of texts. One that is not known demands nothing.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use base64::Engine as _;

use crate::names;

/// Whether a text has a format.
pub fn fits(format: &str, text: &str) -> bool {
    match format {
        "byte" => base64::engine::general_purpose::STANDARD.decode(text).is_ok(),
        "date" => is_date(text),
        "date-time" | "datetime" => is_date_time(text),
        "duration" => span(text).is_some(),
        "email" => {
            text.split_once('@').is_some_and(|(name, host)| !name.is_empty() && !host.is_empty() && !text.contains(' '))
        }
        "hostname" => !text.is_empty() && names::dns1123_subdomain(&text.to_lowercase()).is_empty(),
        "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        "ip" => text.parse::<IpAddr>().is_ok(),
        "cidr" => is_cidr(text),
        "mac" => is_mac(text),
        "uri" => is_uri(text),
        "uuid" => is_uuid(text, None),
        "uuid3" => is_uuid(text, Some('3')),
        "uuid4" => is_uuid(text, Some('4')),
        "uuid5" => is_uuid(text, Some('5')),
        _ => true,
    }
}

fn is_date(text: &str) -> bool {
    text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok()
}

fn is_date_time(text: &str) -> bool {
    text.get(10..11).is_some_and(|between| between.eq_ignore_ascii_case("t")) && text.parse::<jiff::Timestamp>().is_ok()
}

/// Reads a duration as Go writes it, `1h30m`, in nanoseconds.
pub fn span(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: f64 = 0.0;
    let mut whole: i64 = 0;
    while !rest.is_empty() {
        let end = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.')?;
        let (number, after) = rest.split_at(end);
        let units =
            [("ns", 1), ("us", 1_000), ("µs", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000), ("m", 60_000_000_000)];
        let units = units.into_iter().chain([("h", 3_600_000_000_000_i64)]);
        let (unit, size) = units.filter(|(unit, _)| after.starts_with(unit)).max_by_key(|(unit, _)| unit.len())?;
        match number.parse::<i64>() {
            Ok(number) => whole = whole.checked_add(number.checked_mul(size)?)?,
            #[expect(clippy::cast_precision_loss, reason = "a fraction of a unit is as exact as it was written")]
            Err(_) => total += number.parse::<f64>().ok()? * size as f64,
        }
        rest = after.get(unit.len()..)?;
    }
    // Fractions are small beside what fits.
    let fraction: i64 = format!("{:.0}", total.trunc()).parse().ok()?;
    let sum = whole.checked_add(fraction)?;
    Some(if negative { -sum } else { sum })
}

/// Whether a text is a range of addresses.
pub fn is_cidr(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else { return false };
    let most = match address.parse::<IpAddr>() {
        Ok(IpAddr::V4(_)) => 32,
        Ok(IpAddr::V6(_)) => 128,
        Err(_) => return false,
    };
    !length.is_empty()
        && length.bytes().all(|byte| byte.is_ascii_digit())
        && length.parse::<u8>().is_ok_and(|length| length <= most)
}

fn is_mac(text: &str) -> bool {
    let parts: Vec<&str> = text.split([':', '-']).collect();
    matches!(parts.len(), 6 | 8)
        && parts.iter().all(|part| part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Whether a text is an absolute address of something, or a path from the root.
pub fn is_uri(text: &str) -> bool {
    if text.is_empty() || text.chars().any(|letter| letter.is_control() || letter == ' ') {
        return false;
    }
    if text.starts_with('/') {
        return true;
    }
    text.split_once(':').is_some_and(|(scheme, _)| {
        scheme.starts_with(|letter: char| letter.is_ascii_alphabetic())
            && scheme.chars().all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '+' | '-' | '.'))
    })
}

fn is_uuid(text: &str, version: Option<char>) -> bool {
    let digits: String = text.chars().filter(|letter| *letter != '-').collect();
    let dashed =
        text.len() == 32 || (text.len() == 36 && [8, 13, 18, 23].iter().all(|at| text.get(*at..=*at) == Some("-")));
    dashed
        && digits.len() == 32
        && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
        && version.is_none_or(|version| digits.chars().nth(12) == Some(version))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_take_and_refuse() {
        for (format, yes, no) in [
            ("date", "2026-02-28", "2026-02-30"),
            ("date-time", "2026-02-28T10:00:00Z", "2026-02-28 10:00"),
            ("date-time", "2026-02-28T10:00:00.5+02:00", "yesterday"),
            ("duration", "1h30m", "1x"),
            ("duration", "1.5s", ""),
            ("ipv4", "10.0.0.1", "10.0.0"),
            ("ipv6", "::1", "10.0.0.1"),
            ("cidr", "10.0.0.0/8", "10.0.0.0/33"),
            ("uuid", "123e4567-e89b-12d3-a456-426614174000", "123e4567"),
            ("byte", "YWJj", "*"),
            ("email", "a@b.c", "a"),
            ("hostname", "a.example.com", "-"),
            ("uri", "https://example.com/x", "no scheme"),
            ("mac", "00:11:22:33:44:55", "00:11"),
        ] {
            assert!(fits(format, yes), "{format} {yes}");
            assert!(!fits(format, no), "{format} {no}");
        }
        assert!(fits("nobody-knows", "anything"));
        assert_eq!(span("1h30m"), Some(5_400_000_000_000));
        assert_eq!(span("-1.5s"), Some(-1_500_000_000));
        assert_eq!(span("99999999999999h"), None);
    }
}
