//! Pulls under way, for `ps`: which images the agent has noted as begun, since when, and how far containerd is.

use std::path::Path;
use std::time::{Duration, SystemTime};

use longshore_cri::CriClient;
use longshore_cri::containerd::Downloads;
use serde_json::{Value, json};

use super::print;

/// One pull.
#[derive(Debug)]
pub(super) struct Pull {
    image: String,
    since: Duration,
    bytes: Option<Downloads>,
}

/// The pulls that the agent with this root has begun and not ended.
pub(super) async fn under_way(root: &Path, client: &CriClient) -> Vec<Pull> {
    let mut pulls = noted(root, SystemTime::now());
    // The runtime counts bytes, not images: with several pulls nobody can tell whose they are.
    if let [pull] = pulls.as_mut_slice() {
        pull.bytes = client.downloads().await;
    }
    pulls
}

fn noted(root: &Path, now: SystemTime) -> Vec<Pull> {
    let Ok(entries) = std::fs::read_dir(root.join("image_manager/pulling")) else { return Vec::new() };
    let mut pulls: Vec<Pull> = entries
        .flatten()
        .filter_map(|entry| {
            let begun = entry.metadata().ok()?.modified().ok()?;
            let note: Value = serde_json::from_slice(&std::fs::read(entry.path()).ok()?).ok()?;
            let image = note["image"].as_str()?.to_owned();
            Some(Pull { image, since: now.duration_since(begun).unwrap_or_default(), bytes: None })
        })
        .collect();
    pulls.sort_by(|a, b| a.image.cmp(&b.image));
    pulls
}

impl Pull {
    pub(super) fn cells(&self) -> Vec<String> {
        let none = || "-".to_owned();
        vec![none(), none(), none(), self.state(), none(), print::age(self.since), self.image.clone(), none()]
    }

    pub(super) fn value(&self) -> Value {
        let mut value = json!({
            "namespace": "", "pod": "", "container": "", "state": "pulling", "restarts": "0",
            "age": print::age(self.since), "image": self.image, "id": "",
        });
        if let Some(bytes) = self.bytes {
            value["pulledBytes"] = json!(bytes.here);
            value["totalBytes"] = json!(bytes.total);
        }
        value
    }

    fn state(&self) -> String {
        match self.bytes {
            None => "pulling".to_owned(),
            Some(Downloads { here, total: 0 }) => format!("pulling, {}", mebibytes(here)),
            Some(Downloads { here, total }) => format!("pulling, {} of {}", mebibytes(here), mebibytes(total)),
        }
    }
}

/// Bytes as `12.3 MiB`, rounded down.
fn mebibytes(bytes: u64) -> String {
    let tenths = bytes / (1 << 10) * 10 / (1 << 10);
    format!("{}.{} MiB", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noted_pulls_are_shown_with_what_is_known() {
        let root = tempfile::tempdir().unwrap();
        assert!(noted(root.path(), SystemTime::now()).is_empty());
        let folder = root.path().join("image_manager/pulling");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("sha256-1"), r#"{"kind":"ImagePullIntent","image":"reg/a:1"}"#).unwrap();
        std::fs::write(folder.join("sha256-2"), "broken").unwrap();
        let mut pulls = noted(root.path(), SystemTime::now() + Duration::from_secs(7));
        assert_eq!((pulls.len(), pulls[0].cells()[6].as_str(), pulls[0].state().as_str()), (1, "reg/a:1", "pulling"));
        assert_eq!(pulls[0].cells()[5], "7s");
        pulls[0].bytes = Some(Downloads { here: 3 << 19, total: 6 << 20 });
        assert_eq!(pulls[0].state(), "pulling, 1.5 MiB of 6.0 MiB");
        assert_eq!(pulls[0].value()["totalBytes"], 6 << 20);
    }
}
