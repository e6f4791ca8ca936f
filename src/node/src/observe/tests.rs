use std::sync::Arc;
use std::time::Duration;

use longshore_cri::fake::{Failure, FakeOptions, FakeRuntime, On, Program};
use longshore_cri::{ErrorKind, ImageService as _, RuntimeService as _, labels, v1};
use longshore_util::Tasks;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use super::*;
use crate::model::{PodUid, Terminate};

/// Remembers who was woken and when.
#[derive(Debug)]
struct Wakes {
    log: Mutex<Vec<(String, Instant)>>,
    count: watch::Sender<usize>,
}

impl Wakes {
    fn new() -> Arc<Self> {
        Arc::new(Self { log: Mutex::default(), count: watch::Sender::new(0) })
    }

    fn forget(&self) {
        self.log.lock().clear();
    }

    fn woken(&self) -> Vec<String> {
        let mut pods: Vec<_> = self.log.lock().iter().map(|(uid, _)| uid.clone()).collect();
        pods.sort();
        pods.dedup();
        pods
    }

    /// Waits until that pod is woken, at most so long; says how long it took.
    async fn wait_for(&self, uid: &str, at_most: Duration) -> Option<Duration> {
        let began = Instant::now();
        let mut count = self.count.subscribe();
        let woken = async {
            while !self.log.lock().iter().any(|(other, _)| other == uid) {
                count.changed().await.unwrap();
            }
        };
        tokio::time::timeout(at_most, woken).await.ok().map(|()| began.elapsed())
    }
}

impl PodControl for Wakes {
    fn wake(&self, uid: &PodUid) {
        self.log.lock().push((uid.as_str().to_owned(), Instant::now()));
        self.count.send_modify(|count| *count += 1);
    }

    fn verdict(&self, _: &PodUid) {}

    fn terminate(&self, _: &PodUid, _: Terminate) {}
}

fn sandbox(uid: &str, attempt: u32) -> v1::PodSandboxConfig {
    v1::PodSandboxConfig {
        metadata: Some(v1::PodSandboxMetadata {
            name: uid.to_owned(),
            uid: uid.to_owned(),
            namespace: "default".to_owned(),
            attempt,
        }),
        labels: [(labels::POD_UID.to_owned(), uid.to_owned())].into(),
        ..Default::default()
    }
}

/// Makes a pod with one running container; returns the container's id.
async fn pod(runtime: &FakeRuntime, uid: &str, attempt: u32) -> String {
    let config = sandbox(uid, attempt);
    let request = v1::RunPodSandboxRequest { config: Some(config.clone()), ..Default::default() };
    let pod_sandbox_id = runtime.run_pod_sandbox(request).await.unwrap().pod_sandbox_id;
    let image = Some(v1::ImageSpec { image: "busybox:1".to_owned(), ..Default::default() });
    let image = runtime.pull_image(v1::PullImageRequest { image, ..Default::default() }).await.unwrap().image_ref;
    let container = v1::ContainerConfig {
        metadata: Some(v1::ContainerMetadata { name: "main".to_owned(), attempt }),
        image: Some(v1::ImageSpec { image, ..Default::default() }),
        labels: config.labels.clone(),
        ..Default::default()
    };
    let request = v1::CreateContainerRequest { pod_sandbox_id, config: Some(container), sandbox_config: Some(config) };
    let container_id = runtime.create_container(request).await.unwrap().container_id;
    runtime.start_container(v1::StartContainerRequest { container_id: container_id.clone() }).await.unwrap();
    container_id
}

struct Scene {
    runtime: FakeRuntime,
    wakes: Arc<Wakes>,
    observer: Observer,
    options: ObserverOptions,
    _tasks: Tasks,
}

/// An observer over a runtime in which three pods run.
async fn scene(options: FakeOptions) -> Scene {
    let runtime = FakeRuntime::new(options);
    for uid in ["a", "b", "c"] {
        pod(&runtime, uid, 0).await;
    }
    let (wakes, tasks, options) = (Wakes::new(), Tasks::new(), ObserverOptions::default());
    let observer = Observer::start(Arc::new(runtime.clone()), wakes.clone(), options.clone(), &tasks);
    for uid in ["a", "b", "c"] {
        assert!(wakes.wait_for(uid, Duration::from_secs(1)).await.is_some(), "the first look wakes all");
    }
    // Lets the start-up looks pass.
    tokio::time::sleep(Duration::from_secs(10)).await;
    runtime.failpoints().forget_calls();
    wakes.forget();
    Scene { runtime, wakes, observer, options, _tasks: tasks }
}

fn main_of(scene: &Scene, uid: &str) -> String {
    scene.runtime.container_id(uid, "main").unwrap()
}

#[tokio::test(start_paused = true)]
async fn with_events_an_end_wakes_its_pod_alone_and_at_once() {
    let scene = scene(FakeOptions::default()).await;
    scene.runtime.exit(&main_of(&scene, "b"), 1);
    let took = scene.wakes.wait_for("b", Duration::from_secs(5)).await.unwrap();
    assert!(took < Duration::from_millis(10), "{took:?}");
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(scene.wakes.woken(), ["b"]);
    assert_eq!(scene.options.metrics.lost_events.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn without_events_an_end_is_seen_within_a_second() {
    let scene = scene(FakeOptions::without_events()).await;
    for (uid, wait) in [("a", 0), ("b", 5_333), ("c", 12_717)] {
        tokio::time::sleep(Duration::from_millis(wait)).await;
        scene.wakes.forget();
        scene.runtime.exit(&main_of(&scene, uid), 0);
        let took = scene.wakes.wait_for(uid, Duration::from_secs(5)).await.unwrap();
        assert!(took <= Duration::from_millis(1000), "{uid}: {took:?}");
        assert_eq!(scene.wakes.woken(), [uid]);
    }
}

#[tokio::test(start_paused = true)]
async fn without_events_a_sandbox_that_ends_is_seen_within_seconds() {
    let scene = scene(FakeOptions::without_events()).await;
    let sandboxes = scene.runtime.sandboxes();
    let of_b = sandboxes.iter().find(|one| one.metadata.as_ref().is_some_and(|metadata| metadata.uid == "b"));
    scene.runtime.kill_sandbox(&of_b.unwrap().id);
    let took = scene.wakes.wait_for("b", Duration::from_secs(10)).await.unwrap();
    assert!(took <= Duration::from_secs(4), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn without_events_an_expected_change_is_looked_for_sooner() {
    let scene = scene(FakeOptions::without_events()).await;
    scene.runtime.set_program("main", Program::exits(0, Duration::from_millis(100)));
    pod(&scene.runtime, "d", 0).await;
    scene.observer.expect();
    let took = scene.wakes.wait_for("d", Duration::from_secs(5)).await.unwrap();
    assert!(took <= Duration::from_millis(310), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_comes_to_life_is_not_woken_for_that() {
    for options in [FakeOptions::default(), FakeOptions::without_events()] {
        let scene = scene(options).await;
        pod(&scene.runtime, "d", 0).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(scene.wakes.woken().is_empty(), "its worker did it");
        scene.runtime.exit(&main_of(&scene, "d"), 1);
        assert!(scene.wakes.wait_for("d", Duration::from_secs(1)).await.is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn with_events_an_idle_runtime_is_left_alone() {
    let scene = scene(FakeOptions::default()).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    let looks = scene.runtime.failpoints().count("ListPodSandbox");
    assert!((25..=31).contains(&looks), "{looks}");
    assert!(scene.wakes.woken().is_empty());
    assert!(scene.observer.check().is_ok());
}

#[tokio::test(start_paused = true)]
async fn events_that_get_lost_are_noticed_and_made_up_for() {
    // A gate of its own before the observer: the runtime changes without it hearing of that.
    let scene = scene(FakeOptions::default()).await;
    let id = main_of(&scene, "a");
    scene.runtime.mute_events(true);
    scene.runtime.exit(&id, 1);
    assert!(scene.wakes.wait_for("a", Duration::from_secs(21)).await.is_some(), "the net catches it");
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(scene.options.metrics.lost_events.get(), 1);
    scene.runtime.exit(&main_of(&scene, "b"), 1);
    let took = scene.wakes.wait_for("b", Duration::from_secs(5)).await.unwrap();
    assert!(took <= Duration::from_millis(1000), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_comes_back_is_looked_at_and_all_its_pods_are_woken() {
    let scene = scene(FakeOptions::default()).await;
    scene.runtime.failpoints().set(On::any(), Failure::Error(ErrorKind::Unavailable, "down".to_owned()));
    scene.runtime.failpoints().crash();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let tries = scene.runtime.failpoints().count("ListPodSandbox");
    assert!(tries < 20, "an outage is waited out with a back-off, not {tries} tries a minute");
    assert!(scene.wakes.woken().is_empty());
    scene.runtime.exit(&main_of(&scene, "c"), 1);
    scene.runtime.failpoints().clear_all();
    for uid in ["a", "b", "c"] {
        assert!(scene.wakes.wait_for(uid, Duration::from_secs(6)).await.is_some());
    }
    tokio::time::sleep(Duration::from_secs(10)).await;
    scene.wakes.forget();
    scene.runtime.exit(&main_of(&scene, "a"), 1);
    let took = scene.wakes.wait_for("a", Duration::from_secs(5)).await.unwrap();
    assert!(took < Duration::from_millis(10), "the stream is up again: {took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_list_that_hangs_stops_no_event_and_shows_as_unhealthy_after_three_minutes() {
    let scene = scene(FakeOptions::default()).await;
    scene.runtime.failpoints().set(On::rpc("ListContainers"), Failure::Hang);
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert!(scene.observer.check().is_ok());
    scene.runtime.exit(&main_of(&scene, "b"), 1);
    let took = scene.wakes.wait_for("b", Duration::from_secs(5)).await.unwrap();
    assert!(took < Duration::from_millis(10), "{took:?}");
    tokio::time::sleep(Duration::from_secs(120)).await;
    let error = scene.observer.check().unwrap_err();
    assert!(error.starts_with("PLEG is not healthy: pleg was last seen active 3m"), "{error}");
    assert!(error.ends_with("ago; threshold is 3m0s"), "{error}");
    scene.runtime.failpoints().clear_all();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(scene.observer.check().is_ok());
}

#[tokio::test(start_paused = true)]
async fn the_first_look_must_succeed_before_the_node_is_ready() {
    let runtime = FakeRuntime::default();
    runtime.failpoints().set(On::any(), Failure::Error(ErrorKind::Unavailable, "down".to_owned()));
    let tasks = Tasks::new();
    let observer = Observer::start(Arc::new(runtime.clone()), Wakes::new(), ObserverOptions::default(), &tasks);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(observer.check().unwrap_err(), "PLEG is not healthy: pleg has yet to be successful");
    runtime.failpoints().clear_all();
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert!(observer.check().is_ok());
}
