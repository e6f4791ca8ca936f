use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use longshore_cri::fake::{Failure, FakeOptions, FakeRuntime, On};
use longshore_cri::{ErrorKind, v1};
use longshore_util::Tasks;
use longshore_util::clock::ManualClock;
use tokio::time::Instant;

use super::*;
use crate::event::{EventRecorder, EventTarget};
use crate::model::{DesiredPod, PodKey, SourceKind};

struct Bench {
    runtime: FakeRuntime,
    manager: ImageManager,
    clock: Arc<ManualClock>,
    root: tempfile::TempDir,
}

const FREE: PullLimits = PullLimits { serial: false, parallel: None, per_second: 0, burst: 0 };

impl Bench {
    fn new() -> Self {
        Self::with(FREE)
    }

    fn with(limits: PullLimits) -> Self {
        let runtime = FakeRuntime::new(FakeOptions { any_image: false, ..FakeOptions::default() });
        let clock = Arc::new(ManualClock::new(Timestamp::from_second(1_000_000).unwrap()));
        let root = tempfile::tempdir().unwrap();
        let records = Records::open(root.path(), VerifyPolicy::NotPreloaded, clock.clone()).unwrap();
        let options = ImageOptions {
            images: Arc::new(runtime.clone()),
            events: EventRecorder::log_only(clock.clone()),
            clock: clock.clone(),
            limits,
            files: NodeFiles::none(),
            providers: None,
            records: Some(records),
            metrics: ImageMetrics::default(),
        };
        let manager = ImageManager::new(options, &Tasks::new());
        for image in ["a:1", "b:1", "c:1", "reg:5000/a:1"] {
            runtime.publish_image(image);
        }
        Self { runtime, manager, clock, root }
    }

    async fn ensure(&self, image: &str, policy: &str) -> Result<PresentImage, ImageError> {
        self.ensure_for("u", image, policy, Vec::new()).await
    }

    async fn ensure_for(
        &self,
        uid: &str,
        image: &str,
        policy: &str,
        secrets: Vec<Arc<Secret>>,
    ) -> Result<PresentImage, ImageError> {
        let pod = DesiredPod {
            uid: uid.into(),
            key: PodKey::new("n", uid),
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
            secrets,
        };
        self.manager.ensure(request).await
    }

    /// Images that are noted as being pulled.
    fn noted(&self) -> usize {
        std::fs::read_dir(self.root.path().join("image_manager/pulling")).unwrap().count()
    }

    fn pulls(&self) -> usize {
        self.runtime.failpoints().count("PullImage")
    }

    /// Makes each pull last a second.
    fn slow(&self) {
        self.runtime.failpoints().set(On::rpc("PullImage"), Failure::Delay(Duration::from_secs(1)));
    }
}

fn secret(name: &str, user: &str) -> Arc<Secret> {
    let text = format!(r#"{{"reg:5000":{{"username":"{user}","password":"x"}}}}"#);
    let mut secret = Secret { type_: Some("kubernetes.io/dockercfg".to_owned()), ..Secret::default() };
    secret.metadata.name = Some(name.to_owned());
    secret.data = Some([(".dockercfg".to_owned(), ByteString(text.into_bytes()))].into());
    Arc::new(secret)
}

#[tokio::test]
async fn the_policy_decides_whether_to_pull() {
    let bench = Bench::new();
    let error = bench.ensure("a:1", "Never").await.unwrap_err();
    assert_eq!(error.reason, "ErrImageNeverPull");
    let present = bench.ensure("a:1", "IfNotPresent").await.unwrap();
    assert_eq!(bench.ensure("a:1", "Never").await.unwrap(), present);
    assert_eq!(bench.pulls(), 1);
    bench.ensure("a:1", "Always").await.unwrap();
    assert_eq!(bench.pulls(), 2);
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

#[tokio::test(start_paused = true)]
async fn a_hundred_pods_with_one_image_make_one_pull() {
    let bench = Bench::new();
    bench.slow();
    let uids: Vec<String> = (0..100).map(|number| format!("u{number}")).collect();
    for policy in ["IfNotPresent", "Always"] {
        let before = bench.pulls();
        let all = uids.iter().map(|uid| bench.ensure_for(uid, "a:1", policy, Vec::new()));
        let ended = futures_util::future::join_all(all).await;
        assert!(ended.iter().all(|one| one.as_ref().is_ok_and(|one| one == ended[0].as_ref().unwrap())));
        assert_eq!(bench.pulls() - before, 1, "{policy}");
    }
}

#[tokio::test(start_paused = true)]
async fn all_who_wait_for_a_pull_share_its_failure() {
    let bench = Bench::new();
    bench.slow();
    let (one, two) = tokio::join!(
        bench.ensure_for("u1", "gone:1", "Always", vec![]),
        bench.ensure_for("u2", "gone:1", "Always", vec![])
    );
    assert_eq!(one.unwrap_err(), two.unwrap_err());
    // The slow failure counts, then the image is refused.
    assert_eq!(bench.pulls(), 1);
}

#[tokio::test]
async fn a_pull_goes_on_while_one_pod_waits() {
    let bench = Bench::new();
    bench.runtime.failpoints().set(On::rpc("PullImage"), Failure::Hang);
    let mut first = Box::pin(bench.ensure_for("u1", "a:1", "Always", vec![]));
    let mut second = Box::pin(bench.ensure_for("u2", "a:1", "Always", vec![]));
    let both = futures_util::future::select(&mut first, &mut second);
    assert!(tokio::time::timeout(Duration::from_millis(300), both).await.is_err());
    assert_eq!(bench.pulls(), 1);
    drop(first);
    bench.runtime.failpoints().clear_all();
    second.await.unwrap();
    assert_eq!(bench.pulls(), 1);
}

#[tokio::test(start_paused = true)]
async fn pods_with_different_logins_pull_for_themselves() {
    let bench = Bench::new();
    bench.slow();
    let (one, two, three) = tokio::join!(
        bench.ensure_for("u1", "reg:5000/a:1", "Always", vec![secret("s", "one")]),
        bench.ensure_for("u2", "reg:5000/a:1", "Always", vec![secret("s", "two")]),
        bench.ensure_for("u3", "reg:5000/a:1", "Always", vec![secret("s", "one")]),
    );
    assert!(one.is_ok() && two.is_ok() && three.is_ok());
    let mut users: Vec<String> = bench
        .runtime
        .failpoints()
        .requests::<v1::PullImageRequest>()
        .into_iter()
        .map(|request| request.auth.unwrap().username)
        .collect();
    users.sort();
    assert_eq!(users, ["one", "two"]);
}

#[tokio::test]
async fn logins_are_tried_until_one_is_good_and_all_errors_are_told() {
    let bench = Bench::new();
    let points = bench.runtime.failpoints();
    points
        .set(On::rpc("PullImage").once(), Failure::Error(ErrorKind::Other(longshore_cri::Code::Unknown), "no".into()));
    bench.ensure_for("u", "reg:5000/a:1", "Always", vec![secret("a", "one"), secret("b", "two")]).await.unwrap();
    assert_eq!(bench.pulls(), 2);
    points.set(On::rpc("PullImage").once(), Failure::Error(ErrorKind::Unavailable, "first".into()));
    points.set(On::rpc("PullImage").once(), Failure::Error(ErrorKind::Unavailable, "second".into()));
    let error = bench.ensure_for("u", "reg:5000/a:1", "Always", vec![secret("a", "one"), secret("b", "two")]).await;
    assert_eq!(error.unwrap_err().message, "[first, second]");
}

#[tokio::test]
async fn the_runtimes_own_words_become_reasons() {
    let bench = Bench::new();
    for (word, text) in [
        ("RegistryUnavailable", "image pull failed for a:1 because the registry is unavailable: down"),
        ("SignatureValidationFailed", "image pull failed for a:1 because the signature validation failed: down"),
    ] {
        let failure = Failure::Error(ErrorKind::Unavailable, format!("{word}: down"));
        bench.runtime.failpoints().set(On::rpc("PullImage").once(), failure);
        let error = bench.ensure("a:1", "Always").await.unwrap_err();
        assert_eq!((error.reason, error.message.as_str()), (word, text));
        bench.clock.advance(Duration::from_secs(1000));
    }
}

/// Pulls `images` at once and returns how long each took, in whole seconds.
async fn times(bench: &Bench, images: &[&str]) -> Vec<u64> {
    let begin = Instant::now();
    let all = images.iter().map(|image| async move {
        bench.ensure(image, "Always").await.unwrap();
        begin.elapsed().as_secs()
    });
    let mut times = futures_util::future::join_all(all).await;
    times.sort_unstable();
    times
}

#[tokio::test(start_paused = true)]
async fn different_images_are_pulled_one_by_one_or_side_by_side() {
    for (limits, want) in [
        (PullLimits { serial: true, ..FREE }, [1, 2, 3]),
        (PullLimits { parallel: Some(2), ..FREE }, [1, 1, 2]),
        (FREE, [1, 1, 1]),
    ] {
        let bench = Bench::with(limits);
        bench.slow();
        assert_eq!(times(&bench, &["a:1", "b:1", "c:1"]).await, want, "{limits:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_registry_that_hangs_does_not_keep_other_images_out() {
    let bench = Bench::with(PullLimits { serial: true, ..FREE });
    bench.runtime.failpoints().set(On::rpc("PullImage").once(), Failure::Hang);
    let mut hung = Box::pin(bench.ensure_for("u1", "a:1", "Always", vec![]));
    let small = async {
        tokio::time::sleep(Duration::from_millis(1)).await;
        let begin = Instant::now();
        bench.ensure_for("u2", "b:1", "Always", vec![]).await.unwrap();
        begin.elapsed().as_secs()
    };
    tokio::select! {
        _ = &mut hung => panic!("it hangs"),
        took = small => assert!(took <= 10, "{took}"),
    }
}

#[tokio::test(start_paused = true)]
async fn more_pulls_than_the_rate_allows_fail_and_back_off() {
    let bench = Bench::with(PullLimits { per_second: 1, burst: 1, ..FREE });
    bench.ensure("a:1", "Always").await.unwrap();
    let error = bench.ensure("b:1", "Always").await.unwrap_err();
    assert_eq!((error.reason, error.message.as_str()), ("ErrImagePull", "pull QPS exceeded"));
    assert_eq!(bench.ensure("b:1", "Always").await.unwrap_err().reason, "ImagePullBackOff");
}

#[tokio::test]
async fn a_pod_without_the_login_does_not_get_what_another_pod_pulled() {
    let bench = Bench::new();
    let image = "reg:5000/a:1";
    bench.ensure_for("a", image, "IfNotPresent", vec![secret("s", "one")]).await.unwrap();
    assert_eq!((bench.pulls(), bench.noted()), (1, 0));
    bench.ensure_for("b", image, "IfNotPresent", vec![secret("s", "one")]).await.unwrap();
    bench.ensure_for("c", image, "Never", vec![secret("s", "one")]).await.unwrap();
    assert_eq!(bench.pulls(), 1);
    let error = bench.ensure_for("d", image, "Never", vec![]).await.unwrap_err();
    assert_eq!(error.reason, "ErrImageNeverPull");
    assert!(error.message.ends_with("does not have the proper credentials to access the image"), "{}", error.message);
    // It must show its own right at the registry, and there it has none.
    bench.runtime.failpoints().set(
        On::rpc("PullImage").once(),
        Failure::Error(ErrorKind::Other(longshore_cri::Code::Unknown), "denied".into()),
    );
    let error = bench.ensure_for("d", image, "IfNotPresent", vec![]).await.unwrap_err();
    assert_eq!((error.reason, error.message.as_str()), ("ErrImagePull", "denied"));
    // With another secret that the registry takes it gets in, and from then on without a pull.
    bench.ensure_for("e", image, "IfNotPresent", vec![secret("t", "two")]).await.unwrap();
    bench.ensure_for("e", image, "IfNotPresent", vec![secret("t", "two")]).await.unwrap();
    assert_eq!(bench.pulls(), 3);
}

#[tokio::test]
async fn a_pull_that_was_given_up_is_settled() {
    let bench = Bench::new();
    let number = bench.runtime.failpoints().set(On::rpc("PullImage"), Failure::Hang);
    {
        let mut pull = Box::pin(bench.ensure("a:1", "Always"));
        while bench.pulls() == 0 {
            assert!(futures_util::poll!(&mut pull).is_pending());
            tokio::task::yield_now().await;
        }
        assert_eq!(bench.noted(), 1);
    }
    bench.runtime.failpoints().clear(number);
    while bench.noted() > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
