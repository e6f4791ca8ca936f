//! Reads query strings as Go does.

/// The pairs of a query, decoded. What cannot be decoded is left out.
pub(super) fn pairs(query: Option<&str>) -> Vec<(String, String)> {
    let query = query.unwrap_or_default();
    query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .filter_map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((decode(key)?, decode(value)?))
        })
        .collect()
}

/// The first value of a name.
pub(super) fn get<'a>(pairs: &'a [(String, String)], name: &str) -> Option<&'a str> {
    pairs.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
}

/// All values of a name.
pub(super) fn all<'a>(pairs: &'a [(String, String)], name: &'a str) -> impl Iterator<Item = &'a str> {
    pairs.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
}

fn decode(text: &str) -> Option<String> {
    let mut bytes = text.bytes();
    let mut out = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        match byte {
            b'+' => out.push(b' '),
            b'%' => {
                let digits = [bytes.next()?, bytes.next()?];
                let digits = std::str::from_utf8(&digits).ok().filter(|_| digits.iter().all(u8::is_ascii_hexdigit))?;
                out.push(u8::from_str_radix(digits, 16).ok()?);
            }
            byte => out.push(byte),
        }
    }
    String::from_utf8(out).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_decoded() {
        let pairs = pairs(Some("command=sh&command=-c&command=echo+a%20%26&tty&bad=%zz&=x"));
        assert_eq!(all(&pairs, "command").collect::<Vec<_>>(), ["sh", "-c", "echo a &"]);
        assert_eq!(get(&pairs, "tty"), Some(""));
        assert_eq!(get(&pairs, "bad"), None);
        assert!(super::pairs(None).is_empty());
    }
}
