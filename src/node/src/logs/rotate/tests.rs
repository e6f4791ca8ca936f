use std::fs;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::PodStatus;
use longshore_cri::fake::{Failure, FakeOptions, FakeRuntime, On};
use longshore_cri::{ErrorKind, ImageService as _, RuntimeService as _};
use longshore_util::clock::ManualClock;
use serde_json::json;

use super::*;
use crate::model::{DesiredPod, MirrorUid, PodKey, SourceKind};

#[derive(Debug)]
struct Pods(PodView);

impl ReadPods for Pods {
    fn pods(&self) -> Vec<PodView> {
        vec![self.0.clone()]
    }

    fn by_key(&self, _: &PodKey) -> Option<PodView> {
        None
    }

    fn by_uid(&self, _: &str) -> Option<PodView> {
        None
    }
}

struct Bench {
    runtime: FakeRuntime,
    options: RotateOptions,
    clock: Arc<ManualClock>,
    log: PathBuf,
    _folder: tempfile::TempDir,
}

impl Bench {
    /// A pod with one running container whose log has `text`.
    async fn new(text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let runtime = FakeRuntime::new(FakeOptions::default());
        let logs = folder.path().join("n_p_u");
        let log = logs.join("c/0.log");
        fs::create_dir_all(log.parent().unwrap()).unwrap();
        let sandbox = v1::PodSandboxConfig {
            metadata: Some(v1::PodSandboxMetadata {
                name: "p".into(),
                namespace: "n".into(),
                uid: "u".into(),
                attempt: 0,
            }),
            log_directory: logs.display().to_string(),
            ..Default::default()
        };
        let request = v1::RunPodSandboxRequest { config: Some(sandbox.clone()), ..Default::default() };
        let pod_sandbox_id = runtime.run_pod_sandbox(request).await.unwrap().pod_sandbox_id;
        let image = v1::ImageSpec { image: "a:1".into(), ..Default::default() };
        runtime.pull_image(v1::PullImageRequest { image: Some(image.clone()), ..Default::default() }).await.unwrap();
        let config = v1::ContainerConfig {
            metadata: Some(v1::ContainerMetadata { name: "c".into(), attempt: 0 }),
            image: Some(image),
            log_path: "c/0.log".into(),
            ..Default::default()
        };
        let request =
            v1::CreateContainerRequest { pod_sandbox_id, config: Some(config), sandbox_config: Some(sandbox) };
        let container_id = runtime.create_container(request).await.unwrap().container_id;
        runtime.start_container(v1::StartContainerRequest { container_id: container_id.clone() }).await.unwrap();
        fs::write(&log, text).unwrap();
        let status: PodStatus = serde_json::from_value(json!({"containerStatuses": [{
            "name": "c", "image": "", "imageID": "", "ready": true, "restartCount": 0,
            "containerID": format!("containerd://{container_id}"), "state": {"running": {}},
        }]}))
        .unwrap();
        let desired = DesiredPod {
            uid: "u".into(),
            key: PodKey::new("n", "p"),
            pod: Arc::default(),
            source: SourceKind::Api,
            seen: Timestamp::UNIX_EPOCH,
        };
        let view = PodView { desired, status: Some(Arc::new(status)), mirror: None::<MirrorUid> };
        let clock = Arc::new(ManualClock::new("2026-01-01T00:00:00Z".parse().unwrap()));
        let options = RotateOptions {
            size: 10,
            files: 3,
            workers: 1,
            every: Duration::from_secs(10),
            folder: folder.path().to_owned(),
            runtime: Arc::new(runtime.clone()),
            pods: Arc::new(Pods(view)),
            clock: clock.clone(),
        };
        Self { runtime, options, clock, log, _folder: folder }
    }

    fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(self.log.parent().unwrap()).unwrap();
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn reopened(&self) -> usize {
        self.runtime.failpoints().count("ReopenContainerLog")
    }
}

#[tokio::test]
async fn a_log_that_has_grown_is_moved_away_and_as_many_are_kept_as_wanted() {
    let bench = Bench::new("short").await;
    bench.options.look().await;
    assert_eq!((bench.files(), bench.reopened()), (vec!["0.log".to_owned()], 0));
    for _ in 0..4 {
        fs::write(&bench.log, "longer than ten").unwrap();
        bench.clock.advance(Duration::from_secs(10));
        bench.options.look().await;
    }
    let kept: Vec<String> = bench.files().into_iter().filter(|name| name != "0.log").collect();
    assert_eq!(kept, ["0.log.20260101-000030.gz", "0.log.20260101-000040"]);
    assert_eq!(bench.reopened(), 4);
}

#[tokio::test]
async fn a_log_comes_back_when_the_runtime_does_not_open_it_anew() {
    let bench = Bench::new("longer than ten").await;
    bench.runtime.failpoints().set(On::rpc("ReopenContainerLog"), Failure::Error(ErrorKind::Unavailable, "no".into()));
    bench.options.look().await;
    assert_eq!(bench.files(), ["0.log"]);
    assert_eq!(fs::read_to_string(&bench.log).unwrap(), "longer than ten");
}

#[tokio::test]
async fn a_log_that_somebody_took_away_is_opened_anew() {
    let bench = Bench::new("short").await;
    fs::remove_file(&bench.log).unwrap();
    bench.options.look().await;
    assert_eq!(bench.reopened(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_look_comes_back_with_the_interval_and_ends_with_the_agent() {
    let bench = Bench::new("longer than ten").await;
    let tasks = Tasks::new();
    rotate(bench.options.clone(), &tasks);
    while bench.reopened() == 0 {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    tasks.cancel();
    tasks.join().await;
}
