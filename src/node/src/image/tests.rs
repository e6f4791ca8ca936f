use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use longshore_cri::fake::{FakeOptions, FakeRuntime};
use longshore_cri::v1;
use longshore_util::clock::ManualClock;

use super::*;
use crate::event::{EventRecorder, EventTarget};
use crate::model::{DesiredPod, PodKey, SourceKind};

struct Bench {
    runtime: FakeRuntime,
    manager: ImageManager,
    clock: Arc<ManualClock>,
}

impl Bench {
    fn new() -> Self {
        let runtime = FakeRuntime::new(FakeOptions { any_image: false, ..FakeOptions::default() });
        let clock = Arc::new(ManualClock::new(Timestamp::from_second(1_000_000).unwrap()));
        let manager = ImageManager::new(ImageOptions {
            images: Arc::new(runtime.clone()),
            events: EventRecorder::log_only(clock.clone()),
            clock: clock.clone(),
            serial: false,
            parallel: None,
        });
        Self { runtime, manager, clock }
    }

    async fn ensure(&self, image: &str, policy: &str) -> Result<PresentImage, ImageError> {
        let pod = DesiredPod {
            uid: "u".into(),
            key: PodKey::new("n", "p"),
            pod: Arc::default(),
            source: SourceKind::Api,
            seen: Timestamp::UNIX_EPOCH,
        };
        let request = ImageRequest {
            pod: &pod,
            target: &EventTarget::pod(&pod),
            image,
            policy: Some(policy),
            sandbox: v1::PodSandboxConfig::default(),
            logins: Vec::new(),
        };
        self.manager.ensure(request).await
    }
}

#[tokio::test]
async fn the_policy_decides_whether_to_pull() {
    let bench = Bench::new();
    bench.runtime.publish_image("docker.io/library/a:1");
    bench.runtime.publish_image("a:1");
    let error = bench.ensure("a:1", "Never").await.unwrap_err();
    assert_eq!(error.reason, "ErrImageNeverPull");
    let present = bench.ensure("a:1", "IfNotPresent").await.unwrap();
    assert_eq!(bench.ensure("a:1", "Never").await.unwrap(), present);
    assert_eq!(bench.runtime.failpoints().count("PullImage"), 1);
    bench.ensure("a:1", "Always").await.unwrap();
    assert_eq!(bench.runtime.failpoints().count("PullImage"), 2);
    assert_eq!(bench.ensure("Not A/Valid:IMAGE@", "Always").await.unwrap_err().reason, "InvalidImageName");
}

#[tokio::test]
async fn a_failed_pull_backs_off_and_keeps_its_error() {
    let bench = Bench::new();
    let first = bench.ensure("gone:1", "IfNotPresent").await.unwrap_err();
    assert_eq!(first.reason, "ErrImagePull");
    let second = bench.ensure("gone:1", "IfNotPresent").await.unwrap_err();
    assert_eq!(second.reason, "ImagePullBackOff");
    assert_eq!(second.message, format!("Back-off pulling image \"gone:1\": ErrImagePull: {}", first.message));
    assert_eq!(second.retry_after, Some(Duration::from_secs(10)));
    bench.clock.advance(Duration::from_secs(10));
    assert_eq!(bench.ensure("gone:1", "IfNotPresent").await.unwrap_err().reason, "ErrImagePull");
    bench.clock.advance(Duration::from_secs(10));
    assert_eq!(bench.ensure("gone:1", "IfNotPresent").await.unwrap_err().reason, "ImagePullBackOff");
use longshore_cri::ErrorKind;
use longshore_cri::fake::{Failure, FakeOptions, FakeRuntime, On};
use longshore_util::Tasks;
use longshore_util::clock::ManualClock;
use parking_lot::Mutex;

use super::*;

struct Scene {
    runtime: Arc<FakeRuntime>,
    clock: Arc<ManualClock>,
    manager: ImageManager,
    told: Mutex<Vec<String>>,
    _tasks: Tasks,
}

fn scene(parallel: Option<usize>) -> Scene {
    let runtime = Arc::new(FakeRuntime::new(FakeOptions::default()));
    let clock = Arc::new(ManualClock::new(Timestamp::UNIX_EPOCH));
    let tasks = Tasks::new();
    let images: SharedImages = runtime.clone();
    let manager = ImageManager::new(images, ImageOptions { parallel }, clock.clone(), &tasks);
    Scene { runtime, clock, manager, told: Mutex::default(), _tasks: tasks }
}

impl Scene {
    async fn ensure(&self, pod: &str, image: &str, policy: PullPolicy) -> Result<PresentImage, ImageError> {
        let request = ImageRequest {
            pod_uid: pod.into(),
            image: image.to_owned(),
            policy,
            keyring: Keyring::default(),
            sandbox: None,
        };
        self.manager
            .ensure(&request, |event| self.told.lock().push(format!("{} {}", event.reason, event.message)))
            .await
    }

    fn pulls(&self) -> usize {
        self.runtime.failpoints().count("PullImage")
    }
}

fn shown(error: &ImageError) -> String {
    let event = error.event.as_ref().map(|event| format!("{} {}", event.reason, event.message)).unwrap_or_default();
    format!("{} | {} | {event}", error.reason, error.message)
}

#[tokio::test]
async fn a_present_image_is_not_fetched() {
    let scene = scene(None);
    let id = scene.runtime.add_image("localhost/busybox:1");
    let got = scene.ensure("a", "localhost/busybox:1", PullPolicy::IfNotPresent).await.unwrap();
    assert_eq!(got.reference, id);
    assert_eq!(
        got.message,
        "Container image \"localhost/busybox:1\" already present on machine and can be accessed by the pod"
    );
    assert_eq!(scene.pulls(), 0);
    assert!(scene.told.lock().is_empty());
}

#[tokio::test]
async fn an_absent_image_is_fetched_and_always_fetches_again() {
    let scene = scene(None);
    let got = scene.ensure("a", "r.example/x:1", PullPolicy::IfNotPresent).await.unwrap();
    assert!(got.message.starts_with("Successfully pulled image \"r.example/x:1\" in "), "{}", got.message);
    assert_eq!(*scene.told.lock(), ["Pulling Pulling image \"r.example/x:1\""]);
    scene.ensure("a", "r.example/x:1", PullPolicy::IfNotPresent).await.unwrap();
    assert_eq!(scene.pulls(), 1);
    scene.ensure("a", "r.example/x:1", PullPolicy::Always).await.unwrap();
    assert_eq!(scene.pulls(), 2);
}

#[tokio::test]
async fn the_texts_of_refusals_are_as_recorded() {
    let scene = scene(None);
    let error = scene.ensure("a", "Not A/Valid:IMAGE@", PullPolicy::IfNotPresent).await.unwrap_err();
    let text = "Failed to apply default image tag \"Not A/Valid:IMAGE@\": couldn't parse image name \
                \"Not A/Valid:IMAGE@\": invalid reference format: repository name (Valid) must be lowercase";
    assert_eq!(shown(&error), format!("InvalidImageName | {text} | InspectFailed {text}"));
    let error = scene.ensure("a", "localhost/absent:1", PullPolicy::Never).await.unwrap_err();
    let text = "Container image \"localhost/absent:1\" is not present with pull policy of Never";
    assert_eq!(shown(&error), format!("ErrImageNeverPull | {text} | ErrImageNeverPull {text}"));
}

#[tokio::test]
async fn a_failed_pull_backs_off_and_tries_again() {
    let scene = scene(None);
    let why = "failed to resolve image: connection refused";
    scene
        .runtime
        .failpoints()
        .set(On::rpc("PullImage"), Failure::Error(ErrorKind::Other(longshore_cri::Code::Unknown), why.to_owned()));
    let image = "127.0.0.1:1/absent:1";
    let error = scene.ensure("a", image, PullPolicy::IfNotPresent).await.unwrap_err();
    assert_eq!(shown(&error), format!("ErrImagePull | {why} | Failed Failed to pull image \"{image}\": {why}"));
    let error = scene.ensure("a", image, PullPolicy::IfNotPresent).await.unwrap_err();
    assert_eq!(
        shown(&error),
        format!(
            "ImagePullBackOff | Back-off pulling image \"{image}\": ErrImagePull: {why} | BackOff Back-off pulling image \"{image}\""
        )
    );
    assert_eq!(error.retry_after, Some(Duration::from_secs(10)));
    assert_eq!(scene.pulls(), 1);
    // Another pod has its own count.
    scene.ensure("b", image, PullPolicy::IfNotPresent).await.unwrap_err();
    assert_eq!(scene.pulls(), 2);
    scene.clock.advance(Duration::from_secs(10));
    assert_eq!(scene.ensure("a", image, PullPolicy::IfNotPresent).await.unwrap_err().reason, "ErrImagePull");
    let error = scene.ensure("a", image, PullPolicy::IfNotPresent).await.unwrap_err();
    assert_eq!(error.retry_after, Some(Duration::from_secs(20)));
    scene.runtime.failpoints().clear_all();
    scene.clock.advance(Duration::from_secs(20));
    scene.ensure("a", image, PullPolicy::IfNotPresent).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn one_pull_answers_all_who_wait() {
    let scene = scene(Some(1));
    scene.runtime.failpoints().set(On::rpc("PullImage"), Failure::Delay(Duration::from_secs(5)));
    let (a, b, c) = tokio::join!(
        scene.ensure("a", "r.example/x:1", PullPolicy::IfNotPresent),
        scene.ensure("b", "r.example/x:1", PullPolicy::Always),
        scene.ensure("c", "r.example/y:1", PullPolicy::IfNotPresent),
    );
    assert!(a.is_ok() && b.is_ok() && c.is_ok());
    assert_eq!(scene.pulls(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_asker_that_goes_away_leaves_the_pull_running() {
    let scene = scene(None);
    scene.runtime.failpoints().set(On::rpc("PullImage"), Failure::Delay(Duration::from_secs(5)));
    let ask = scene.ensure("a", "r.example/x:1", PullPolicy::IfNotPresent);
    assert!(tokio::time::timeout(Duration::from_secs(1), ask).await.is_err());
    tokio::time::sleep(Duration::from_secs(6)).await;
    scene.ensure("b", "r.example/x:1", PullPolicy::IfNotPresent).await.unwrap();
    assert_eq!(scene.pulls(), 1);
}

#[tokio::test]
async fn a_runtime_that_cannot_be_asked_is_an_inspect_error() {
    let scene = scene(None);
    scene.runtime.failpoints().set(On::rpc("ImageStatus"), Failure::Error(ErrorKind::Unavailable, "gone".to_owned()));
    let error = scene.ensure("a", "r.example/x:1", PullPolicy::IfNotPresent).await.unwrap_err();
    assert_eq!(error.reason, "ImageInspectError");
    assert_eq!(error.event.unwrap().reason, "InspectFailed");
}

#[test]
fn reasons_that_the_runtime_names_come_through() {
    assert_eq!(reason_of("SignatureValidationFailed: bad key"), ("SignatureValidationFailed", "bad key"));
    assert_eq!(reason_of("plain"), ("ErrImagePull", "plain"));
    assert_eq!(PullPolicy::of(None, "a:latest"), PullPolicy::Always);
    assert_eq!(PullPolicy::of(Some("Never"), "a:latest"), PullPolicy::Never);
}
