//! The order of versions: `v2`, `v1`, `v1beta2`, `v1alpha1`, then all others by their letters.

use std::cmp::{Ordering, Reverse};

/// What a version's name says: how ripe it is, its number, the number behind `alpha` or `beta`.
fn read(version: &str) -> Option<(u8, u32, u32)> {
    let rest = version.strip_prefix('v')?;
    let end = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
    let (number, rest) = rest.split_at(end);
    let number = number.parse().ok()?;
    if rest.is_empty() {
        return Some((2, number, 0));
    }
    let (ripe, minor) = match (rest.strip_prefix("beta"), rest.strip_prefix("alpha")) {
        (Some(minor), _) => (1, minor),
        (_, Some(minor)) => (0, minor),
        _ => return None,
    };
    Some((ripe, number, minor.parse().ok()?))
}

/// Compares two versions; the one that clients should prefer comes first.
pub(crate) fn order(a: &str, b: &str) -> Ordering {
    match (read(a), read(b)) {
        (Some(a), Some(b)) => Reverse(a).cmp(&Reverse(b)),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => a.cmp(b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ripe_versions_come_first_and_newer_before_older() {
        let mut versions =
            ["foo1", "v1alpha1", "v1", "v11beta2", "v10", "v3beta1", "foo10", "v2", "v12alpha1", "v10beta3"];
        versions.sort_by(|a, b| order(a, b));
        let want = ["v10", "v2", "v1", "v11beta2", "v10beta3", "v3beta1", "v12alpha1", "v1alpha1", "foo1", "foo10"];
        assert_eq!(versions, want);
    }
}
