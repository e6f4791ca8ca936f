//! Which images a login is for: a registry's host with a pattern in each of its parts, a port, a path to begin with. Pure.

/// Scheme, host and path of a place as it stands in a docker configuration, brought into the one form that is compared.
///
/// Schemes are dropped, and so is the version of the registry's API that old clients put behind the host.
pub(crate) fn normalise(place: &str) -> String {
    let bare = place.strip_prefix("https://").or_else(|| place.strip_prefix("http://")).unwrap_or(place);
    let (host, path) = bare.find('/').map_or((bare, ""), |at| bare.split_at(at));
    let path = if path.starts_with("/v1/") || path.starts_with("/v2/") { &path[3..] } else { path };
    if path == "/" { host.to_owned() } else { format!("{host}{path}") }
}

/// Says whether a normalised place covers a repository such as `reg.example.com:5000/team/app`.
pub(crate) fn covers(place: &str, repository: &str) -> bool {
    let ((wanted, prefix), (given, path)) = (split(place), split(repository));
    let ((wanted, wanted_port), (given, given_port)) = (port(wanted), port(given));
    let (wanted, given): (Vec<&str>, Vec<&str>) = (wanted.split('.').collect(), given.split('.').collect());
    wanted_port == given_port
        && wanted.len() == given.len()
        && path.starts_with(prefix)
        // The first also for an address in brackets, which read as a pattern would be something else.
        && wanted.iter().zip(&given).all(|(pattern, part)| pattern == part || glob(pattern, part))
}

/// Host and port, and the path with its slash.
fn split(text: &str) -> (&str, &str) {
    text.find('/').map_or((text, ""), |at| text.split_at(at))
}

fn port(host: &str) -> (&str, &str) {
    match host.rsplit_once(':') {
        // A colon inside brackets belongs to the address.
        Some((name, port)) if !port.contains(']') => (name, port),
        _ => (host, ""),
    }
}

/// Matches one part of a host: `*`, `?`, `[a-z]`, `[^a]`, `\` before a character that is meant itself.
pub(crate) fn glob(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    let (mut at, mut from) = (0, 0);
    // Where the last star stood and how much of the text it has taken: one way back is enough.
    let mut star: Option<(usize, usize)> = None;
    loop {
        if pattern.get(at) == Some(&'*') {
            star = Some((at, from));
            at += 1;
            continue;
        }
        if at == pattern.len() && from == text.len() {
            return true;
        }
        if let Some(next) = text.get(from).and_then(|c| one(&pattern, at, *c)) {
            (at, from) = (next, from + 1);
            continue;
        }
        let Some((back, taken)) = star.filter(|(_, taken)| *taken < text.len()) else { return false };
        star = Some((back, taken + 1));
        (at, from) = (back + 1, taken + 1);
    }
}

/// The place behind one element of a pattern, if that element matches the character.
fn one(pattern: &[char], at: usize, c: char) -> Option<usize> {
    match pattern.get(at)? {
        '?' => Some(at + 1),
        '\\' => (*pattern.get(at + 1)? == c).then_some(at + 2),
        '[' => class(pattern, at + 1, c),
        own => (*own == c).then_some(at + 1),
    }
}

fn class(pattern: &[char], mut at: usize, c: char) -> Option<usize> {
    let negated = pattern.get(at) == Some(&'^');
    at += usize::from(negated);
    let (begin, mut found) = (at, false);
    loop {
        if pattern.get(at)? == &']' && at > begin {
            return (found != negated).then_some(at + 1);
        }
        let (low, next) = member(pattern, at)?;
        let (high, next) = if pattern.get(next) == Some(&'-') { member(pattern, next + 1)? } else { (low, next) };
        found |= (low..=high).contains(&c);
        at = next;
    }
}

fn member(pattern: &[char], at: usize) -> Option<(char, usize)> {
    match pattern.get(at)? {
        '\\' => Some((*pattern.get(at + 1)?, at + 2)),
        own => Some((*own, at + 1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_lose_scheme_and_version() {
        for (given, want) in [
            ("https://index.docker.io/v1/", "index.docker.io"),
            ("http://reg:5000", "reg:5000"),
            ("reg/", "reg"),
            ("reg/v2/team", "reg/team"),
            ("reg/team/", "reg/team/"),
            ("reg/v1", "reg/v1"),
        ] {
            assert_eq!(normalise(given), want, "{given}");
        }
    }

    #[test]
    fn a_place_covers_hosts_by_part_port_and_path() {
        for (place, repository, want) in [
            ("reg.example.com", "reg.example.com/a", true),
            ("*.example.com", "reg.example.com/a", true),
            ("*.example.com", "a.reg.example.com/a", false),
            ("*.*.example.com", "a.reg.example.com/a", true),
            ("reg*.example.com", "reg1.example.com/a", true),
            ("reg.*", "reg.example/a", true),
            ("reg.example.com:5000", "reg.example.com/a", false),
            ("reg.example.com", "reg.example.com:5000/a", false),
            ("*.example.com:5000", "reg.example.com:5000/a", true),
            ("reg.example.com/team", "reg.example.com/team/a", true),
            ("reg.example.com/team", "reg.example.com/teams/a", true),
            ("reg.example.com/team/", "reg.example.com/teams/a", false),
            ("[fd00::1]:5000", "[fd00::1]:5000/a", true),
            ("[fd00::1]", "[fd00::1]:5000/a", false),
        ] {
            assert_eq!(covers(place, repository), want, "{place} {repository}");
        }
    }

    #[test]
    fn patterns_are_those_of_path_names() {
        for (pattern, text, want) in [
            ("", "", true),
            ("*", "", true),
            ("a*c*e", "abcde", true),
            ("a*c", "abcd", false),
            ("*ab", "aab", true),
            ("?", "", false),
            ("a?c", "abc", true),
            ("[a-c]x", "bx", true),
            ("[^a-c]x", "bx", false),
            ("[]x", "]x", false),
            ("[\\]]x", "]x", true),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("[a", "a", false),
            ("**a", "bba", true),
        ] {
            assert_eq!(glob(pattern, text), want, "{pattern} {text}");
        }
    }
}
