//! Logins of the node itself, in the files where docker clients of that machine keep them. Blocking, small.

use std::path::{Path, PathBuf};

use super::config::{self, Places};

/// A file bigger than this is no login file.
const LIMIT: u64 = 1 << 20;

/// Where the node's logins may stand.
#[derive(Debug, Clone)]
pub struct NodeFiles {
    /// Folders with a `config.json`, the first that can be read counts.
    json: Vec<PathBuf>,
    /// Folders with a `.dockercfg`, looked at when there is none of the above.
    old: Vec<PathBuf>,
}

impl NodeFiles {
    /// The usual places: the agent's root, its working directory, the home of its user, the root of the machine.
    pub fn usual(root: &Path, home: Option<&Path>) -> Self {
        let mut json = vec![root.to_owned(), PathBuf::from(".")];
        let mut old = json.clone();
        if let Some(home) = home {
            json.push(home.join(".docker"));
            old.push(home.to_owned());
        }
        json.push("/.docker".into());
        old.push("/".into());
        Self { json, old }
    }

    /// No place at all.
    pub fn none() -> Self {
        Self { json: Vec::new(), old: Vec::new() }
    }

    /// Reads the logins there are now.
    pub(crate) fn read(&self) -> Places {
        let json = self.json.iter().map(|folder| folder.join("config.json"));
        if let Some(places) = first(json, config::config_json) {
            return places;
        }
        let old = self.old.iter().map(|folder| folder.join(".dockercfg"));
        first(old, config::dockercfg).unwrap_or_default()
    }
}

/// The first file that can be read and understood.
fn first(files: impl Iterator<Item = PathBuf>, parse: fn(&[u8]) -> Result<Places, String>) -> Option<Places> {
    for file in files {
        let Ok(meta) = std::fs::metadata(&file) else { continue };
        if !meta.is_file() || meta.len() > LIMIT {
            continue;
        }
        match std::fs::read(&file).map_err(|error| error.to_string()).and_then(|bytes| parse(&bytes)) {
            Ok(places) => return Some(places),
            Err(error) => tracing::warn!(path = %file.display(), error, "logins for registries cannot be read"),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_readable_file_counts_and_the_new_form_before_the_old() {
        let (root, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let files = NodeFiles {
            json: vec![root.path().to_owned(), home.path().join(".docker")],
            old: vec![root.path().to_owned(), home.path().to_owned()],
        };
        assert!(files.read().is_empty());
        let text = |user: &str| format!(r#"{{"r":{{"username":"{user}","password":"x"}}}}"#);
        std::fs::write(home.path().join(".dockercfg"), text("old")).unwrap();
        assert_eq!(files.read()["r"].username, "old");
        std::fs::create_dir(home.path().join(".docker")).unwrap();
        std::fs::write(home.path().join(".docker/config.json"), format!(r#"{{"auths":{}}}"#, text("new"))).unwrap();
        assert_eq!(files.read()["r"].username, "new");
        std::fs::write(root.path().join("config.json"), "broken").unwrap();
        assert_eq!(files.read()["r"].username, "new");
    }
}
