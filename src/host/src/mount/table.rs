//! The kernel's table of mounts.

use std::path::{Path, PathBuf};

use super::MountError;

const TABLE: &str = "/proc/thread-self/mountinfo";

/// Returns the mount points at and below `root`, last made and deepest first, as they have to be undone. The way to `root`
/// may lead through links.
pub fn under(root: &Path) -> Result<Vec<PathBuf>, MountError> {
    let root = &real(root);
    let table = std::fs::read(TABLE).map_err(|source| MountError::Look { path: root.to_owned(), source })?;
    let mut found: Vec<PathBuf> = parse(&table).into_iter().filter(|point| point.starts_with(root)).collect();
    found.reverse();
    Ok(found)
}

/// The path as the kernel's table has it: its folder without links. What stands there is not followed.
pub(super) fn real(path: &Path) -> PathBuf {
    let folder = path.parent().and_then(|folder| folder.canonicalize().ok());
    match (folder, path.file_name()) {
        (Some(folder), Some(name)) => folder.join(name),
        _ => path.to_owned(),
    }
}

/// Reads the mount points out of a table, in the order in which they were made.
pub fn parse(table: &[u8]) -> Vec<PathBuf> {
    use std::os::unix::ffi::OsStringExt as _;
    table
        .split(|byte| *byte == b'\n')
        .filter_map(|line| line.split(|byte| *byte == b' ').nth(4))
        .map(|point| PathBuf::from(std::ffi::OsString::from_vec(unescape(point))))
        .collect()
}

/// The kernel writes blanks, tabs, line feeds and backslashes as three octal digits.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((byte, after)) = rest.split_first() {
        let code = after.get(..3).filter(|digits| digits.iter().all(|digit| (b'0'..=b'7').contains(digit)));
        match (byte, code) {
            (b'\\', Some(digits)) => {
                let value = digits.iter().fold(0_u16, |sum, digit| sum * 8 + u16::from(digit - b'0'));
                out.push(u8::try_from(value).unwrap_or(b'?'));
                rest = after.get(3..).unwrap_or_default();
            }
            _ => {
                out.push(*byte);
                rest = after;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_read_with_their_odd_characters() {
        let table =
            b"22 1 0:20 / /sys rw - sysfs sysfs rw\n30 22 0:5 /x /var/a\\040b\\134c rw shared:1 - tmpfs tmpfs rw\n\n";
        assert_eq!(parse(table), [PathBuf::from("/sys"), PathBuf::from("/var/a b\\c")]);
        assert!(parse(b"broken line").is_empty());
    }

    #[test]
    fn a_neighbour_with_the_same_beginning_is_not_below() {
        let points = parse(b"1 1 0:1 / /a/pod1 rw - t t rw\n2 1 0:1 / /a/pod10/v rw - t t rw\n");
        let below: Vec<_> = points.iter().filter(|point| point.starts_with("/a/pod1")).collect();
        assert_eq!(below, [&PathBuf::from("/a/pod1")]);
    }
}
