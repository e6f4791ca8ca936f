use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use jiff::Timestamp;
use longshore_util::Tasks;
use longshore_util::clock::ManualClock;
use serde_json::json;

use super::*;
use crate::test_api::TestApi;

const PATH: &str = "/api/v1/namespaces/ns/configmaps/cm";

struct Scene {
    api: TestApi,
    clock: Arc<ManualClock>,
    objects: Objects,
    _tasks: Tasks,
}

fn scene() -> Scene {
    let api = TestApi::default();
    let clock = Arc::new(ManualClock::new(Timestamp::UNIX_EPOCH));
    let tasks = Tasks::new();
    let objects = Objects::start(Some(api.client()), clock.clone(), ServiceMemory::default(), &tasks);
    Scene { api, clock, objects, _tasks: tasks }
}

fn map(value: &str) -> serde_json::Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cm", "namespace": "ns"}, "data": {"k": value}})
}

impl Scene {
    async fn value(&self, age: u64) -> String {
        match self.objects.config_map("ns", "cm", Duration::from_secs(age)).await {
            Lookup::Found(object) => object.data.as_ref().unwrap()["k"].clone(),
            other => format!("{other:?}"),
        }
    }

    fn reads(&self) -> usize {
        self.api.asked().iter().filter(|asked| asked.path == PATH).count()
    }
}

#[tokio::test]
async fn an_answer_serves_until_it_is_too_old() {
    let scene = scene();
    scene.api.put(PATH, map("1"));
    assert_eq!(scene.value(20).await, "1");
    scene.api.put(PATH, map("2"));
    assert_eq!(scene.value(20).await, "1");
    scene.clock.advance(Duration::from_secs(21));
    assert_eq!(scene.value(20).await, "2");
    assert_eq!(scene.reads(), 2);
}

#[tokio::test]
async fn many_askers_share_one_read() {
    let scene = scene();
    scene.api.put(PATH, map("1"));
    let all = futures_util::future::join_all((0..10).map(|_| scene.value(20))).await;
    assert!(all.iter().all(|value| value == "1"));
    assert_eq!(scene.reads(), 1);
}

#[tokio::test]
async fn an_absent_object_is_asked_for_each_time() {
    let scene = scene();
    assert_eq!(scene.value(20).await, "Missing");
    scene.api.put(PATH, map("1"));
    assert_eq!(scene.value(20).await, "1");
    scene.api.remove(PATH);
    scene.clock.advance(Duration::from_secs(30));
    assert_eq!(scene.value(20).await, "Missing");
}

#[tokio::test]
async fn an_apiserver_in_trouble_leaves_the_older_answer_serving() {
    let scene = scene();
    let trouble = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let flag = Arc::clone(&trouble);
    scene.api.answer(move |asked| {
        let fails = asked.path == PATH && flag.load(std::sync::atomic::Ordering::SeqCst);
        fails.then(|| (StatusCode::INTERNAL_SERVER_ERROR, json!({"kind": "Status", "code": 500})))
    });
    assert!(scene.value(20).await.starts_with("Failed"));
    trouble.store(false, std::sync::atomic::Ordering::SeqCst);
    scene.api.put(PATH, map("1"));
    assert_eq!(scene.value(20).await, "1");
    scene.clock.advance(Duration::from_secs(60));
    trouble.store(true, std::sync::atomic::Ordering::SeqCst);
    assert_eq!(scene.value(20).await, "1");
}

#[tokio::test]
async fn an_immutable_object_is_read_once() {
    let scene = scene();
    let mut object = map("1");
    object["immutable"] = json!(true);
    scene.api.put(PATH, object);
    assert_eq!(scene.value(20).await, "1");
    scene.clock.advance(Duration::from_secs(3600));
    assert_eq!(scene.value(20).await, "1");
    assert_eq!(scene.reads(), 1);
}

#[tokio::test]
async fn without_an_apiserver_the_message_says_so() {
    let clock = Arc::new(ManualClock::new(Timestamp::UNIX_EPOCH));
    let objects = Objects::start(None, clock, ServiceMemory::default(), &Tasks::new());
    let answer = objects.secret("ns", "s", FRESH).await;
    assert!(matches!(answer, Lookup::Failed(message) if message.contains("no apiserver")));
}

#[tokio::test]
async fn debug_shows_no_secret() {
    let scene = scene();
    scene.api.put(
        "/api/v1/namespaces/ns/secrets/s",
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"k": "aHVudGVyMg=="}}),
    );
    let found = scene.objects.secret("ns", "s", FRESH).await;
    let text = format!("{found:?} {:?}", scene.objects);
    assert!(!text.contains("hunter2") && !text.contains("aHVudGVyMg") && !text.contains("104, 117"), "{text}");
}

fn key() -> TokenKey {
    TokenKey {
        namespace: "ns".to_owned(),
        account: "default".to_owned(),
        pod: "p".to_owned(),
        pod_uid: "u".to_owned(),
        audience: String::new(),
        expiration_seconds: 3600,
    }
}

fn answer_tokens(scene: &Scene) {
    let clock = scene.clock.clone();
    let count = std::sync::atomic::AtomicU32::new(0);
    scene.api.answer(move |asked| {
        if !asked.path.ends_with("/serviceaccounts/default/token") {
            return None;
        }
        assert_eq!(asked.body["spec"]["boundObjectRef"]["uid"], "u");
        let number = count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        let expires = longshore_util::clock::Clock::now(&*clock) + jiff::SignedDuration::from_secs(3600);
        Some((
            StatusCode::CREATED,
            json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": {},
                "spec": {"audiences": []},
                "status": {"token": format!("t{number}"), "expirationTimestamp": expires.to_string()}}),
        ))
    });
}

#[tokio::test]
async fn a_token_is_renewed_at_four_fifths_of_its_life() {
    let scene = scene();
    answer_tokens(&scene);
    let tokens = scene.objects.tokens();
    assert_eq!(&*tokens.get(&key()).await.unwrap(), "t0");
    scene.clock.advance(Duration::from_secs(2879));
    assert_eq!(&*tokens.get(&key()).await.unwrap(), "t0");
    scene.clock.advance(Duration::from_secs(2));
    assert_eq!(&*tokens.get(&key()).await.unwrap(), "t1");
}

#[tokio::test]
async fn a_token_that_cannot_be_renewed_serves_until_it_ends() {
    let scene = scene();
    answer_tokens(&scene);
    let tokens = scene.objects.tokens();
    tokens.get(&key()).await.unwrap();
    scene.clock.advance(Duration::from_secs(3000));
    scene.api.fail_next([StatusCode::SERVICE_UNAVAILABLE]);
    assert_eq!(&*tokens.get(&key()).await.unwrap(), "t0");
    scene.clock.advance(Duration::from_secs(700));
    scene.api.fail_next([StatusCode::SERVICE_UNAVAILABLE]);
    assert!(tokens.get(&key()).await.unwrap_err().starts_with("failed to fetch token"));
    tokens.forget_pod("u");
    assert!(!format!("{tokens:?}").contains("t0"));
}
