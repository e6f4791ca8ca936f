use std::os::unix::fs::PermissionsExt as _;

use super::*;
use crate::event::EventRecorder;
use crate::model::{DesiredPod, PodKey};
use crate::source::fixture::{Recorder, clock, pod};

struct Scene {
    dir: tempfile::TempDir,
    alone: Alone,
    mux: Arc<Mux>,
    seen: Arc<Recorder>,
    _tasks: Tasks,
}

/// Sources and memory over a directory; the journal knows the pods of these uids as alive.
fn scene(dir: tempfile::TempDir, alive: &[&str]) -> Scene {
    let (seen, alone, tasks) = (Recorder::new(), Alone::default(), Tasks::new());
    let options = RecallOptions {
        directory: dir.path().join("pods"),
        alive: alive.iter().map(|uid| PodUid::from(*uid)).collect(),
        alone: alone.clone(),
    };
    let recall = Arc::new(Recall::new(options, seen.clone()));
    let events = EventRecorder::log_only(clock());
    let sink: Arc<dyn PodSink> = recall.clone();
    let mux = Arc::new(Mux::new([SourceKind::Api, SourceKind::File], sink, clock(), events));
    recall.start(Arc::clone(&mux), &tasks);
    mux.replace(SourceKind::File, Vec::new());
    Scene { dir, alone, mux, seen, _tasks: tasks }
}

impl Scene {
    fn files(&self) -> Vec<String> {
        let mut names: Vec<String> =
            files(&self.dir.path().join("pods")).into_iter().map(|(uid, _)| uid.to_string()).collect();
        names.sort();
        names
    }

    /// Until the files are as wanted; writing is another thread's work.
    async fn until_files(&self, wanted: &[&str]) {
        for _ in 0..100 {
            if self.files() == wanted {
                return;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
            // The clock stands; the disk does not.
            spawn_blocking(|| ()).await.unwrap();
        }
        panic!("{:?} instead of {wanted:?}", self.files());
    }

    /// This agent ends, another begins on what it left.
    fn again(self, alive: &[&str]) -> Self {
        scene(self.dir, alive)
    }
}

fn written(uid: &str) -> Pod {
    let mut pod = pod(&format!("p{uid}"), uid, "i", "1");
    pod.status = Some(k8s_openapi::api::core::v1::PodStatus { phase: Some("Running".into()), ..Default::default() });
    pod
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_silent_apiserver_run_as_they_were_last_known_until_it_speaks() {
    let scene = scene(tempfile::tempdir().unwrap(), &[]);
    scene.mux.replace(SourceKind::Api, vec![written("1"), written("2"), written("3")]);
    scene.until_files(&["1", "2", "3"]).await;
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    let pods = scene.dir.path().join("pods");
    assert_eq!((mode(&pods), mode(&pods.join("1.json"))), (0o700, 0o600));

    // 3 is none that the journal knows: it was deleted in the last moment.
    let scene = scene.again(&["1", "2"]);
    tokio::time::sleep(PATIENCE - Duration::from_secs(1)).await;
    assert!(scene.seen.take().is_empty(), "too early");
    scene.seen.wait_for("set p2").await;
    let changes = scene.seen.changes.lock().clone();
    let PodChange::Set(first) = &changes[0] else { panic!("{changes:?}") };
    assert_eq!((first.pod.status.as_ref(), first.source), (None, SourceKind::Api));
    assert_eq!(scene.seen.take(), ["set p1", "set p2"]);
    assert!(scene.alone.is());

    // 1 was deleted meanwhile, 4 is new.
    scene.mux.replace(SourceKind::Api, vec![written("2"), written("4")]);
    assert_eq!(scene.seen.take(), ["remove 1", "status p2", "set p4", "ready"]);
    scene.until_files(&["2", "4"]).await;
    assert!(!scene.alone.is());
}

#[tokio::test(start_paused = true)]
async fn an_apiserver_that_speaks_in_time_has_the_only_word() {
    let scene = scene(tempfile::tempdir().unwrap(), &[]);
    scene.mux.replace(SourceKind::Api, vec![written("1")]);
    scene.until_files(&["1"]).await;
    let scene = scene.again(&["1"]);
    tokio::time::sleep(PATIENCE / 2).await;
    scene.mux.replace(SourceKind::Api, Vec::new());
    tokio::time::sleep(PATIENCE * 2).await;
    assert_eq!(scene.seen.take(), ["ready"]);
    scene.until_files(&[]).await;
    // A pod that comes and goes at once is never written.
    scene.mux.apply(SourceKind::Api, written("5"));
    scene.mux.remove(SourceKind::Api, &PodUid::from("5"));
    scene.mux.apply(SourceKind::Api, written("6"));
    scene.until_files(&["6"]).await;
}

/// What is kept of a pod must not undo a change that runs already.
#[tokio::test(start_paused = true)]
async fn a_change_of_a_pod_that_is_kept_is_written_at_once() {
    let scene = scene(tempfile::tempdir().unwrap(), &[]);
    scene.mux.replace(SourceKind::Api, vec![written("1")]);
    scene.until_files(&["1"]).await;
    tokio::time::sleep(GATHER * 2).await;
    scene.mux.apply(SourceKind::Api, pod("p1", "1", "newer", "2"));
    let kept = scene.dir.path().join("pods/1.json");
    for _ in 0..10 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        spawn_blocking(|| ()).await.unwrap();
    }
    assert!(std::fs::read_to_string(kept).unwrap().contains("newer"));
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_is_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let pods = dir.path().join("pods");
    std::fs::create_dir(&pods).unwrap();
    let good = serde_json::to_vec(&written("1")).unwrap();
    std::fs::write(pods.join("1.json"), &good).unwrap();
    std::fs::write(pods.join("2.json"), "").unwrap();
    std::fs::write(pods.join("3.json"), &good).unwrap();
    std::fs::write(pods.join("4.json"), r#"{"metadata": {"uid": "4"}}"#).unwrap();
    std::fs::write(pods.join("5.json"), vec![b' '; usize::try_from(LONGEST).unwrap() + 1]).unwrap();
    nix::unistd::mkfifo(&pods.join("6.json"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    std::os::unix::fs::symlink("/dev/zero", pods.join("7.json")).unwrap();
    std::fs::create_dir(pods.join("8.json")).unwrap();
    let scene = scene(dir, &["1", "2", "3", "4", "5", "6", "7", "8"]);
    tokio::time::sleep(PATIENCE * 2).await;
    scene.seen.wait_for("set p1").await;
    assert_eq!(scene.seen.take(), ["set p1"]);
}

#[test]
fn what_fails_is_tried_again_and_told() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("pods");
    std::fs::write(&place, "a file where the folder should be").unwrap();
    let desired = DesiredPod {
        uid: PodUid::from("1"),
        key: PodKey::new("default", "p1"),
        pod: Arc::new(written("1")),
        source: SourceKind::Api,
        seen: jiff::Timestamp::UNIX_EPOCH,
    };
    let open: Open = [(desired.uid, Some(desired.pod))].into();
    let (failed, fault) = write(&place, open, None);
    assert!(fault.unwrap().contains("pods"));
    std::fs::remove_file(&place).unwrap();
    assert_eq!(write(&place, failed, None), (Open::new(), None));
    assert_eq!(read(&place, &[PodUid::from("1")].into()).len(), 1);
}
