use std::fs;
use std::os::unix::fs::symlink;

use serde_json::json;

use super::*;
use crate::event::EventRecorder;
use crate::model::{PodChange, PodSink};
use crate::source::fixture::{Recorder, clock, manifest};

struct Source {
    dir: tempfile::TempDir,
    seen: Arc<Recorder>,
    tasks: Tasks,
}

impl Source {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), seen: Recorder::new(), tasks: Tasks::new() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    fn put(&self, name: &str, pod: &str, image: &str) {
        self.write(name, &manifest(pod, image).to_string());
    }

    fn start_at(&self, path: PathBuf, every: Duration) {
        let sink: Arc<dyn PodSink> = self.seen.clone();
        let mux = Arc::new(Mux::new([SourceKind::File], sink, clock(), EventRecorder::log_only(clock())));
        start(path, every, "node".into(), mux, &self.tasks);
    }

    async fn start(&self) {
        self.start_at(self.dir.path().to_owned(), Duration::from_secs(600));
        self.seen.wait_for("ready").await;
    }

    fn uid(&self, name: &str) -> String {
        let changes = self.seen.changes.lock();
        let found = changes.iter().rev().find_map(|change| match change {
            PodChange::Set(pod) if &*pod.key.name == name => Some(pod.uid.to_string()),
            _ => None,
        });
        found.unwrap()
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        self.tasks.cancel();
    }
}

#[tokio::test]
async fn manifests_come_change_and_go() {
    let source = Source::new();
    source.put("a.yaml", "a", "i");
    source.put("b.yml", "b", "i");
    source.start().await;
    let first = source.uid("a-node");
    assert_eq!(source.seen.take(), ["set a-node", "set b-node", "ready"]);
    source.put("c.json", "c", "i");
    source.seen.wait_for("set c-node").await;
    source.seen.take();
    source.put("a.yaml", "a", "other");
    source.seen.wait_for("set a-node").await;
    assert_ne!(source.uid("a-node"), first);
    assert_eq!(source.seen.take(), [format!("remove {first}"), "set a-node".to_owned()]);
    // Back to what it was: the same pod again.
    source.put("a.yaml", "a", "i");
    source.seen.wait_for("set a-node").await;
    assert_eq!(source.uid("a-node"), first);
    source.seen.take();
    fs::remove_file(source.path("a.yaml")).unwrap();
    source.seen.wait_for(&format!("remove {first}")).await;
    assert_eq!(source.seen.take(), [format!("remove {first}")]);
}

#[tokio::test]
async fn what_editors_do_is_harmless() {
    let source = Source::new();
    source.put("a.yaml", "a", "i");
    source.start().await;
    source.seen.take();
    for name in [".a.yaml.swp", "a.yaml~", "#a.yaml#", ".hidden.yaml", "4913", "a.yaml.bak", "README.md"] {
        source.put(name, "stray", "i");
    }
    // The rename dance: the file is away for a moment and back with the same content.
    fs::rename(source.path("a.yaml"), source.path("a.yaml.orig")).unwrap();
    tokio::time::sleep(Duration::from_millis(120)).await;
    source.put("a.yaml.new", "a", "i");
    fs::rename(source.path("a.yaml.new"), source.path("a.yaml")).unwrap();
    // Half-written, empty, garbage: the last good pod stays.
    for text in ["", "apiVersion: v1\nkind: Po", "{\"apiVersion\": \"v1\",", "\u{0}\u{1}"] {
        source.write("a.yaml", text);
        tokio::time::sleep(Duration::from_millis(60)).await;
    }
    source.put("last.yaml", "last", "i");
    source.seen.wait_for("set last-node").await;
    assert_eq!(source.seen.take(), ["set last-node"]);
}

#[tokio::test]
async fn one_bad_manifest_does_not_hide_the_others() {
    let source = Source::new();
    source.write("a.yaml", "kind: [");
    source.write("b.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n");
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..12 {
        let line = vec![format!("*a{}", level - 1); 10].join(", ");
        bomb.push_str(&["a", &level.to_string(), ": &a", &level.to_string(), " [", &line, "]\n"].concat());
    }
    source.write("c.yaml", &bomb);
    fs::write(source.path("d.yaml"), vec![b'#'; 11 * 1024 * 1024]).unwrap();
    let mut tricky = manifest("e", "i");
    tricky["metadata"]["name"] = json!("../../etc");
    source.write("e.yaml", &tricky.to_string());
    tricky = manifest("f", "i");
    tricky["metadata"]["uid"] = json!("../../x");
    source.write("f.yaml", &tricky.to_string());
    fs::create_dir(source.path("g.yaml")).unwrap();
    symlink("/no/such/file", source.path("h.yaml")).unwrap();
    nix::unistd::mkfifo(&source.path("i.yaml"), nix::sys::stat::Mode::S_IRUSR).unwrap();
    source.put("z.yaml", "good", "i");
    source.start().await;
    assert_eq!(source.seen.take(), ["set good-node", "ready"]);
}

#[tokio::test]
async fn links_to_files_are_followed_and_the_safety_net_sees_their_changes() {
    let source = Source::new();
    let elsewhere = tempfile::tempdir().unwrap();
    let target = elsewhere.path().join("real");
    fs::write(&target, manifest("a", "i").to_string()).unwrap();
    symlink(&target, source.path("a.yaml")).unwrap();
    source.start_at(source.dir.path().to_owned(), Duration::from_millis(100));
    source.seen.wait_for("ready").await;
    assert_eq!(source.seen.take(), ["set a-node", "ready"]);
    fs::write(&target, manifest("a", "other").to_string()).unwrap();
    source.seen.wait_for("set a-node").await;
}

#[tokio::test]
async fn a_directory_that_comes_later_is_found_and_one_that_goes_takes_its_pods() {
    let source = Source::new();
    let late = source.path("late");
    source.start_at(late.clone(), Duration::from_millis(200));
    source.seen.wait_for("ready").await;
    fs::create_dir(&late).unwrap();
    fs::write(late.join("a.yaml"), manifest("a", "i").to_string()).unwrap();
    source.seen.wait_for("set a-node").await;
    let uid = source.uid("a-node");
    fs::remove_dir_all(&late).unwrap();
    source.seen.wait_for(&format!("remove {uid}")).await;
    source.seen.take();
    fs::create_dir(&late).unwrap();
    fs::write(late.join("a.yaml"), manifest("a", "i").to_string()).unwrap();
    source.seen.wait_for("set a-node").await;
}

#[tokio::test]
async fn a_single_file_is_a_source_too() {
    let source = Source::new();
    source.put("only.manifest", "a", "i");
    source.start_at(source.path("only.manifest"), Duration::from_secs(600));
    source.seen.wait_for("ready").await;
    assert_eq!(source.seen.take(), ["set a-node", "ready"]);
    source.put("only.manifest", "a", "other");
    source.seen.wait_for("set a-node").await;
    source.seen.take();
    source.write("only.manifest", "broken: [");
    source.put("new", "b", "i");
    fs::rename(source.path("new"), source.path("only.manifest")).unwrap();
    source.seen.wait_for("set b-node").await;
}

#[test]
fn a_limit_of_inotify_is_named_with_its_value_and_the_wanted_one() {
    let of = |code: i32| limit_of(&std::io::Error::from_raw_os_error(code), |_| Ok("16\n".to_owned()));
    assert_eq!(
        of(nix::libc::EMFILE).as_deref(),
        Some(
            "fs.inotify.max_user_instances is 16 and used up; set it to 512: sysctl -w fs.inotify.max_user_instances=512"
        )
    );
    assert!(of(nix::libc::ENOSPC).is_some_and(|text| text.starts_with("fs.inotify.max_user_watches is 16")));
    assert_eq!(of(nix::libc::ENOENT), None);
}
