use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use k8s_openapi::api::core::v1::Pod;
use longshore_util::Tasks;
use longshore_util::clock::ManualClock;
use serde_json::{Value, json};

use super::*;
use crate::model::{PodKey, SourceKind};
use crate::test_api::TestApi;

struct Bench {
    folder: tempfile::TempDir,
    clock: Arc<ManualClock>,
    api: TestApi,
    providers: Providers,
}

/// A program that notes each request and answers with what stands in a file beside it.
const PROGRAM: &str = "#!/bin/sh\ncat >>\"$DIR/asked\"; echo >>\"$DIR/asked\"; [ -z \"$1\" ] || echo \"$1\" >>\"$DIR/asked\"; \
                       [ ! -e \"$DIR/slow\" ] || sleep 60; [ ! -e \"$DIR/fail\" ] || { echo broken >&2; exit 3; }; \
                       cat \"$DIR/answer\"\n";

fn answer(scope: &str, cache: Option<&str>) -> Value {
    let mut answer = json!({
        "kind": "CredentialProviderResponse", "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
        "cacheKeyType": scope, "auth": {"reg.example.com": {"username": "me", "password": "word"}},
    });
    if let Some(cache) = cache {
        answer["cacheDuration"] = json!(cache);
    }
    answer
}

impl Bench {
    fn new(extra: &Value) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        std::fs::write(path.join("program"), PROGRAM).unwrap();
        std::fs::set_permissions(path.join("program"), std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut provider = json!({
            "name": "program", "matchImages": ["*.example.com"], "defaultCacheDuration": "10m",
            "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
            "env": [{"name": "DIR", "value": path.to_str().unwrap()}],
        });
        for (key, value) in extra.as_object().unwrap() {
            provider[key] = value.clone();
        }
        let file = json!({
            "apiVersion": "kubelet.config.k8s.io/v1", "kind": "CredentialProviderConfig", "providers": [provider],
        });
        std::fs::write(path.join("config.yaml"), file.to_string()).unwrap();
        let clock = Arc::new(ManualClock::new(Timestamp::from_second(1_000_000).unwrap()));
        let api = TestApi::default();
        let options = ProviderOptions {
            config: path.join("config.yaml"),
            programs: path.to_owned(),
            tokens: true,
            objects: Objects::start(
                Some(api.client()),
                clock.clone(),
                crate::object::ServiceMemory::default(),
                &Tasks::new(),
            ),
            clock: clock.clone(),
        };
        let providers = Providers::load(options, &ImageMetrics::default()).unwrap();
        let bench = Self { folder, clock, api, providers };
        bench.says(&answer("Image", None));
        bench
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn says(&self, answer: &Value) {
        std::fs::write(self.path().join("answer"), answer.to_string()).unwrap();
    }

    async fn ask(&self, image: &str) -> Vec<Login> {
        self.providers.logins(&pod(None), image).await
    }

    fn asked(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.path().join("asked")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

fn pod(account: Option<&str>) -> DesiredPod {
    let mut pod = Pod::default();
    pod.spec.get_or_insert_default().service_account_name = account.map(str::to_owned);
    DesiredPod {
        uid: "u".into(),
        key: PodKey::new("n", "p"),
        pod: Arc::new(pod),
        source: SourceKind::Api,
        seen: Timestamp::UNIX_EPOCH,
    }
}

#[tokio::test]
async fn a_program_is_asked_with_its_arguments_for_images_that_it_serves() {
    let bench = Bench::new(&json!({"args": ["--loud"]}));
    assert!(bench.ask("other.where.com/a").await.is_empty() && bench.asked().is_empty());
    let found = bench.ask("reg.example.com/a").await;
    assert_eq!((found[0].auth.username.as_str(), &found[0].source), ("me", &Source::Node));
    let want = r#"{"kind":"CredentialProviderRequest","apiVersion":"credentialprovider.kubelet.k8s.io/v1","image":"reg.example.com/a"}"#;
    assert_eq!(bench.asked(), [want, "--loud"]);
    // It was asked for this one, too, and its logins are not for it.
    assert!(bench.ask("two.example.com/a").await.is_empty());
}

#[tokio::test]
async fn an_answer_serves_for_what_and_as_long_as_it_says() {
    for (scope, same, registry, other) in
        [("Image", true, false, false), ("Registry", true, true, false), ("Global", true, true, true)]
    {
        let bench = Bench::new(&json!({}));
        bench.says(&answer(scope, None));
        bench.ask("reg.example.com/a").await;
        for (image, cached) in
            [("reg.example.com/a", same), ("reg.example.com/b", registry), ("two.example.com/a", other)]
        {
            let before = bench.asked().len();
            bench.ask(image).await;
            assert_eq!(bench.asked().len() == before, cached, "{scope} {image}");
        }
    }
    for (cache, serves) in [(None, 600), (Some("30s"), 30), (Some("0s"), 0)] {
        let bench = Bench::new(&json!({}));
        bench.says(&answer("Image", cache));
        bench.ask("reg.example.com/a").await;
        bench.clock.advance(Duration::from_secs(u64::max(serves, 1) - 1));
        bench.ask("reg.example.com/a").await;
        assert_eq!(bench.asked().len(), if serves == 0 { 2 } else { 1 }, "{cache:?}");
        bench.clock.advance(Duration::from_secs(2));
        bench.ask("reg.example.com/a").await;
        assert_eq!(bench.asked().len(), if serves == 0 { 3 } else { 2 }, "{cache:?}");
    }
}

#[tokio::test]
async fn all_who_ask_at_once_share_one_run() {
    let bench = Bench::new(&json!({}));
    bench.says(&answer("Image", Some("0s")));
    let (one, two) = tokio::join!(bench.ask("reg.example.com/a"), bench.ask("reg.example.com/a"));
    assert_eq!((one.len(), two.len(), bench.asked().len()), (1, 1, 1));
}

#[tokio::test]
async fn a_program_that_fails_gives_no_logins_and_is_asked_again() {
    let bench = Bench::new(&json!({}));
    std::fs::write(bench.path().join("fail"), "").unwrap();
    assert!(bench.ask("reg.example.com/a").await.is_empty());
    std::fs::remove_file(bench.path().join("fail")).unwrap();
    assert_eq!(bench.ask("reg.example.com/a").await.len(), 1);
    bench.clock.advance(Duration::from_secs(1000));
    bench.says(&json!({"kind": "nonsense"}));
    assert!(bench.ask("reg.example.com/a").await.is_empty());
}

#[tokio::test]
async fn a_program_that_is_given_up_leaves_no_process() {
    let bench = Bench::new(&json!({}));
    std::fs::write(bench.path().join("slow"), "").unwrap();
    let marker = bench.path().display().to_string();
    let lives = || {
        let list = std::fs::read_dir("/proc").unwrap().flatten();
        list.filter(|entry| {
            let environ = std::fs::read(entry.path().join("environ")).unwrap_or_default();
            String::from_utf8_lossy(&environ).contains(&format!("DIR={marker}"))
        })
        .count()
    };
    {
        let pod = pod(None);
        let mut asks = Box::pin(bench.providers.logins(&pod, "reg.example.com/a"));
        // Until the program and its child stand.
        while lives() < 2 {
            assert!(futures_util::poll!(&mut asks).is_pending());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    let mut left = lives();
    for _ in 0..200 {
        if left == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
        left = lives();
    }
    assert_eq!(left, 0);
}

#[tokio::test]
async fn a_program_may_act_for_a_pods_account() {
    let bench = Bench::new(&json!({"tokenAttributes": {
        "serviceAccountTokenAudience": "aud", "cacheType": "ServiceAccount", "requireServiceAccount": true,
        "requiredServiceAccountAnnotationKeys": ["example.com/id"],
        "optionalServiceAccountAnnotationKeys": ["example.com/none"],
    }}));
    bench.says(&answer("Image", None));
    let path = "/api/v1/namespaces/n/serviceaccounts/builder";
    let logins = |account: Option<&'static str>| {
        let bench = &bench;
        async move { bench.providers.logins(&pod(account), "reg.example.com/a").await }
    };
    assert!(logins(None).await.is_empty() && logins(Some("builder")).await.is_empty());
    let object = |annotations: Value| {
        json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": "builder", "namespace": "n", "uid": "77", "annotations": annotations},
        })
    };
    bench.api.put(path, object(json!({"other": "x"})));
    bench.clock.advance(Duration::from_secs(60));
    assert!(logins(Some("builder")).await.is_empty());
    bench.api.put(path, object(json!({"example.com/id": "7", "other": "x"})));
    bench.clock.advance(Duration::from_secs(60));
    bench.api.answer(|asked| {
        let expires = "2099-01-01T00:00:00Z";
        let answer = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": {},
            "spec": asked.body["spec"], "status": {"token": "t0ken", "expirationTimestamp": expires},
        });
        asked.path.ends_with("/token").then_some((http::StatusCode::CREATED, answer))
    });
    let found = logins(Some("builder")).await;
    let origin = Origin { uid: "77".into(), namespace: "n".into(), name: "builder".into() };
    assert_eq!(found[0].source, Source::ServiceAccount(origin));
    let asked: Value = serde_json::from_str(bench.asked().last().unwrap()).unwrap();
    assert_eq!(asked["serviceAccountToken"], "t0ken");
    assert_eq!(asked["serviceAccountAnnotations"], json!({"example.com/id": "7"}));
    let before = bench.asked().len();
    logins(Some("builder")).await;
    assert_eq!(bench.asked().len(), before);
}

#[tokio::test]
async fn a_program_that_is_not_there_is_told_at_once() {
    let bench = Bench::new(&json!({}));
    std::fs::remove_file(bench.path().join("program")).unwrap();
    let options = ProviderOptions {
        config: bench.path().join("config.yaml"),
        programs: bench.path().to_owned(),
        tokens: true,
        objects: bench.providers.objects.clone(),
        clock: bench.clock.clone(),
    };
    let error = Providers::load(options, &ImageMetrics::default()).unwrap_err();
    assert!(error.to_string().contains("no program"), "{error}");
}
