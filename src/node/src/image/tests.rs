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
}
