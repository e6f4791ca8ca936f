//! The host's resolver file: read anew whenever a sandbox is made, and what is wrong with it told once per change.

use std::collections::HashMap;

use longshore_api::dns::{self, Resolver};
use parking_lot::Mutex;

use crate::model::PodUid;

type Warnings = Vec<(&'static str, String)>;

/// What was read and told last.
#[derive(Debug, Default)]
pub(super) struct ResolverFile {
    /// Empty when pods get nothing of the host's.
    path: String,
    text: Mutex<Option<String>>,
    told: Mutex<HashMap<PodUid, Warnings>>,
}

/// What the file says since it changed.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) resolver: Resolver,
    /// What is beyond the limits, for people who look after the node.
    pub(super) warnings: Vec<String>,
}

impl ResolverFile {
    pub(super) fn new(path: &str) -> Self {
        Self { path: path.to_owned(), ..Self::default() }
    }

    /// Reads the file; `None` when it is what it was, or cannot be read: then what was known stands.
    pub(super) fn changed(&self) -> Option<Read> {
        if self.path.is_empty() {
            return None;
        }
        let now = std::fs::read_to_string(&self.path).ok()?;
        let mut text = self.text.lock();
        if text.as_ref() == Some(&now) {
            return None;
        }
        let resolver = dns::parse_resolv_conf(&now);
        *text = Some(now);
        Some(Read { warnings: dns::host_warnings(&self.path, &resolver), resolver })
    }

    /// Whether a pod has not been told this yet: a sandbox that is tried over and over is no news.
    pub(super) fn is_news(&self, uid: &PodUid, warnings: &Warnings) -> bool {
        let mut told = self.told.lock();
        if warnings.is_empty() {
            told.remove(uid);
            return false;
        }
        told.insert(uid.clone(), warnings.clone()).as_ref() != Some(warnings)
    }

    /// The pod has gone.
    pub(super) fn forget(&self, uid: &PodUid) {
        self.told.lock().remove(uid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_file_is_read_and_its_faults_are_told_once_per_change() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("resolv.conf");
        let domains: Vec<String> = (0..33).map(|number| format!("d{number}")).collect();
        std::fs::write(&path, format!("nameserver 10.0.0.1\nsearch {}\n", domains.join(" "))).unwrap();
        let file = ResolverFile::new(path.to_str().unwrap());
        let read = file.changed().unwrap();
        assert_eq!(read.resolver.servers, ["10.0.0.1"]);
        assert_eq!(read.warnings.len(), 1, "{:?}", read.warnings);
        assert!(file.changed().is_none());
        std::fs::write(&path, "nameserver 10.0.0.2\n").unwrap();
        let read = file.changed().unwrap();
        assert_eq!((read.resolver.servers, read.warnings.len()), (vec!["10.0.0.2".to_owned()], 0));
        std::fs::remove_file(&path).unwrap();
        assert!(file.changed().is_none());
    }

    #[test]
    fn a_pod_is_told_once_until_what_is_told_changes() {
        let file = ResolverFile::new("");
        let uid = PodUid::from("u");
        let one = vec![("DNSConfigForming", "four servers".to_owned())];
        assert_eq!([file.is_news(&uid, &one), file.is_news(&uid, &one)], [true, false]);
        let other = vec![("DNSConfigForming", "five servers".to_owned())];
        assert_eq!(
            [file.is_news(&uid, &other), file.is_news(&uid, &Vec::new()), file.is_news(&uid, &other)],
            [true, false, true]
        );
        file.forget(&uid);
        assert!(file.is_news(&uid, &other));
    }
}
