use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use longshore_api::resources::Amounts;
use longshore_host::mount::MountError;
use longshore_util::Tasks;
use longshore_util::clock::ManualClock;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::*;
use crate::model::{Alone, DesiredPod, PodKey, PodUid, PodView, ReadPods, SourceKind};
use crate::object::{Objects, ServiceMemory};
use crate::test_api::TestApi;

/// Mounts nothing and remembers what it was asked for; a bind is a link to the place.
#[derive(Debug, Default)]
struct NoMounts {
    mounted: Mutex<BTreeSet<PathBuf>>,
    busy: Mutex<bool>,
}

impl Mounter for NoMounts {
    fn is_mount_point(&self, path: &Path) -> Result<bool, MountError> {
        Ok(self.mounted.lock().contains(path))
    }

    fn tmpfs(&self, target: &Path, _size: Option<u64>) -> Result<(), MountError> {
        self.mounted.lock().insert(target.to_owned());
        Ok(())
    }

    fn huge_pages(&self, target: &Path, _page_size: u64) -> Result<(), MountError> {
        self.tmpfs(target, None)
    }

    fn held(&self, _path: &Path) -> Option<u64> {
        None
    }

    fn bind_fd(&self, source: BorrowedFd<'_>, target: &Path) -> Result<(), MountError> {
        let place = std::fs::read_link(format!("/proc/self/fd/{}", source.as_raw_fd())).unwrap();
        std::fs::write(target.with_extension("shows"), place.to_str().unwrap()).unwrap();
        self.tmpfs(target, None)
    }

    fn unmount(&self, target: &Path) -> Result<(), MountError> {
        self.mounted.lock().remove(target);
        Ok(())
    }

    fn unmount_under(&self, root: &Path) -> Result<(), MountError> {
        if *self.busy.lock() {
            return Err(MountError::Unmount { target: root.to_owned(), source: std::io::Error::other("busy") });
        }
        self.mounted.lock().retain(|path| !path.starts_with(root));
        Ok(())
    }
}

struct Scene {
    dir: tempfile::TempDir,
    api: TestApi,
    clock: Arc<ManualClock>,
    mounts: Arc<NoMounts>,
    alone: Alone,
    manager: VolumeManager,
    _tasks: Tasks,
}

fn scene() -> Scene {
    scene_in(tempfile::tempdir().unwrap())
}

fn scene_in(dir: tempfile::TempDir) -> Scene {
    let api = TestApi::default();
    let clock = Arc::new(ManualClock::new(Timestamp::UNIX_EPOCH));
    let tasks = Tasks::new();
    let mounts = Arc::new(NoMounts::default());
    let alone = Alone::default();
    let memory = ServiceMemory { alone: alone.clone(), file: None };
    let manager = VolumeManager::new(VolumeOptions {
        root: dir.path().to_owned(),
        objects: Objects::start(Some(api.client()), clock.clone(), memory, &tasks),
        mounter: mounts.clone(),
        allocatable: Amounts::new(),
        clock: clock.clone(),
    });
    Scene { dir, api, clock, mounts, alone, manager, _tasks: tasks }
}

impl Scene {
    fn put_map(&self, name: &str, data: Value) {
        let path = format!("/api/v1/namespaces/ns/configmaps/{name}");
        self.api.put(&path, json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}));
    }

    fn volume(&self, plugin: &str, name: &str) -> PathBuf {
        self.dir.path().join(format!("pods/u/volumes/kubernetes.io~{plugin}/{name}"))
    }
}

fn pod(volumes: Value, mounts: Value) -> DesiredPod {
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": "p", "namespace": "ns", "uid": "u", "labels": {"a": "1"}},
        "spec": {"volumes": volumes, "containers": [{"name": "c", "volumeMounts": mounts}]}}))
    .unwrap();
    DesiredPod {
        uid: PodUid::from("u"),
        key: PodKey::new("ns", "p"),
        pod: Arc::new(pod),
        source: SourceKind::Api,
        seen: Timestamp::UNIX_EPOCH,
    }
}

fn mount(name: &str) -> Value {
    json!([{"name": name, "mountPath": "/v"}])
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[derive(Debug)]
struct OnePod(DesiredPod);

impl ReadPods for OnePod {
    fn pods(&self) -> Vec<PodView> {
        vec![PodView { desired: self.0.clone(), status: None, mirror: None }]
    }

    fn by_key(&self, _key: &PodKey) -> Option<PodView> {
        self.pods().pop()
    }

    fn by_uid(&self, _uid: &str) -> Option<PodView> {
        self.pods().pop()
    }
}

#[tokio::test]
async fn a_configmap_stands_and_follows_its_changes() {
    let scene = scene();
    scene.put_map("cm", json!({"k": "1"}));
    let pod = pod(json!([{"name": "v", "configMap": {"name": "cm"}}]), mount("v"));
    let got = scene.manager.prepare(&pod).await.unwrap();
    let path = scene.volume("configmap", "v");
    assert_eq!((&got["v"].path, got["v"].read_only), (&path, true));
    assert_eq!(text(&path.join("k")), "1");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o777);
    assert!(scene.mounts.mounted.lock().is_empty());
    scene.put_map("cm", json!({"k": "2", "new": "x"}));
    scene.clock.advance(Duration::from_secs(60));
    scene.manager.refresh(&OnePod(pod)).await;
    assert_eq!((text(&path.join("k")), text(&path.join("new"))), ("2".to_owned(), "x".to_owned()));
}

#[tokio::test]
async fn an_absent_configmap_fails_as_recorded_unless_optional() {
    let scene = scene();
    let absent = pod(json!([{"name": "v", "configMap": {"name": "nope"}}]), mount("v"));
    assert_eq!(
        scene.manager.prepare(&absent).await.unwrap_err().to_string(),
        "MountVolume.SetUp failed for volume \"v\" : configmap \"nope\" not found"
    );
    let optional = pod(json!([{"name": "v", "configMap": {"name": "nope", "optional": true}}]), mount("v"));
    scene.manager.prepare(&optional).await.unwrap();
    assert!(scene.volume("configmap", "v").join("..data").exists());
}

#[tokio::test]
async fn a_host_path_of_the_wrong_kind_fails_as_recorded() {
    let scene = scene();
    let pod =
        pod(json!([{"name": "d", "hostPath": {"path": "/tmp/golden-hp/never", "type": "Directory"}}]), mount("d"));
    assert_eq!(
        scene.manager.prepare(&pod).await.unwrap_err().to_string(),
        "MountVolume.SetUp failed for volume \"d\" : hostPath type check failed: /tmp/golden-hp/never is not a directory"
    );
}

#[tokio::test]
async fn volumes_that_nobody_mounts_are_not_made() {
    let scene = scene();
    let volumes = json!([{"name": "v", "configMap": {"name": "nope"}}, {"name": "e", "emptyDir": {}}]);
    let got = scene.manager.prepare(&pod(volumes, mount("e"))).await.unwrap();
    assert_eq!(got.keys().collect::<Vec<_>>(), ["e"]);
}

#[tokio::test]
async fn an_empty_folder_keeps_what_the_pod_wrote() {
    let scene = scene();
    let pod = pod(
        json!([{"name": "e", "emptyDir": {}}, {"name": "m", "emptyDir": {"medium": "Memory"}}]),
        json!([{"name": "e", "mountPath": "/e"}, {"name": "m", "mountPath": "/m"}]),
    );
    scene.manager.prepare(&pod).await.unwrap();
    let path = scene.volume("empty-dir", "e");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o777);
    std::fs::write(path.join("f"), "kept").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
    scene.manager.prepare(&pod).await.unwrap();
    assert_eq!(text(&path.join("f")), "kept");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o700);
    assert!(scene.mounts.mounted.lock().contains(&scene.volume("empty-dir", "m")));
    assert!(scene.dir.path().join("pods/u/plugins/kubernetes.io~empty-dir/e/ready").exists());
}

#[tokio::test]
async fn a_projected_volume_joins_its_sources_and_renews_its_token() {
    let scene = scene();
    scene.put_map("kube-root-ca.crt", json!({"ca.crt": "CA"}));
    let clock = scene.clock.clone();
    scene.api.answer(move |asked| {
        let expires = longshore_util::clock::Clock::now(&*clock) + jiff::SignedDuration::from_secs(3607);
        let life = asked.body["spec"]["expirationSeconds"].as_i64()?;
        assert_eq!(life, 3607);
        Some((
            http::StatusCode::CREATED,
            json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": {}, "spec": {"audiences": []},
                "status": {"token": format!("until {expires}"), "expirationTimestamp": expires.to_string()}}),
        ))
    });
    let pod = pod(
        json!([{"name": "kube-api-access-x", "projected": {"defaultMode": 420, "sources": [
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}},
                                        {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}}]}}]),
        mount("kube-api-access-x"),
    );
    scene.manager.prepare(&pod).await.unwrap();
    let path = scene.volume("projected", "kube-api-access-x");
    assert!(scene.mounts.mounted.lock().contains(&path));
    assert_eq!((text(&path.join("ca.crt")), text(&path.join("namespace"))), ("CA".to_owned(), "ns".to_owned()));
    assert_eq!(text(&path.join("labels")), "a=\"1\"");
    let token = text(&path.join("token"));
    scene.clock.advance(Duration::from_secs(3000));
    let mut changed = pod.clone();
    Arc::make_mut(&mut changed.pod).metadata.labels = Some(BTreeMap::from([("a".to_owned(), "2".to_owned())]));
    scene.manager.refresh(&OnePod(changed)).await;
    assert_ne!(text(&path.join("token")), token);
    assert_eq!(text(&path.join("labels")), "a=\"2\"");
}

#[tokio::test]
async fn all_missing_sources_are_named_at_once() {
    let scene = scene();
    let pod = pod(
        json!([{"name": "p", "projected": {"sources": [{"configMap": {"name": "x"}}, {"secret": {"name": "y"}}]}}]),
        mount("p"),
    );
    assert_eq!(
        scene.manager.prepare(&pod).await.unwrap_err().message,
        "[configmap \"x\" not found, secret \"y\" not found]"
    );
}

#[tokio::test]
async fn sub_paths_are_bound_inside_the_volume_only() {
    let scene = scene();
    let pod = pod(
        json!([{"name": "e", "emptyDir": {}}]),
        json!([{"name": "e", "mountPath": "/a"}, {"name": "e", "mountPath": "/b", "subPathExpr": "logs/$(N)"}]),
    );
    let volumes = scene.manager.prepare(&pod).await.unwrap();
    let container = &pod.pod.spec.as_ref().unwrap().containers[0];
    let env = [("N".to_owned(), "p1".to_owned())];
    let bind = || scene.manager.sub_paths(&pod, container, &env, &volumes);
    let got = bind().await.unwrap();
    let target = scene.dir.path().join("pods/u/volume-subpaths/e/c/1");
    assert_eq!(got, BTreeMap::from([(1, target.clone())]));
    let inside = scene.volume("empty-dir", "e").join("logs/p1");
    assert_eq!(text(&target.with_extension("shows")), inside.to_str().unwrap());
    // The pod puts a link in the place: the next start refuses it.
    std::fs::remove_dir(&inside).unwrap();
    symlink("/etc", &inside).unwrap();
    assert_eq!(bind().await.unwrap_err().message, "failed to prepare subPath for volumeMount \"e\" of container \"c\"");
}

#[tokio::test]
async fn teardown_deletes_nothing_while_something_is_mounted() {
    let scene = scene();
    let pod = pod(json!([{"name": "e", "emptyDir": {}}]), mount("e"));
    scene.manager.prepare(&pod).await.unwrap();
    let file = scene.volume("empty-dir", "e").join("f");
    std::fs::write(&file, "x").unwrap();
    *scene.mounts.busy.lock() = true;
    let error = scene.manager.teardown(&pod.uid).await.unwrap_err();
    assert!(error.to_string().starts_with("UnmountVolume.TearDown failed : unmount "), "{error}");
    assert!(file.exists());
    // From the first try on nothing is made anew.
    assert!(scene.manager.prepare(&pod).await.is_err());
    assert_eq!(scene.manager.found().await, std::slice::from_ref(&pod.uid));
    *scene.mounts.busy.lock() = false;
    scene.manager.teardown(&pod.uid).await.unwrap();
    assert!(!file.exists());
    scene.manager.teardown(&pod.uid).await.unwrap();
    scene.manager.teardown(&PodUid::from("stranger")).await.unwrap();
}

#[tokio::test]
async fn a_pod_that_was_torn_down_is_not_refreshed() {
    let scene = scene();
    scene.put_map("cm", json!({"k": "1"}));
    let pod = pod(json!([{"name": "v", "configMap": {"name": "cm"}}]), mount("v"));
    scene.manager.prepare(&pod).await.unwrap();
    scene.manager.teardown(&pod.uid).await.unwrap();
    scene.manager.refresh(&OnePod(pod)).await;
    assert!(!scene.volume("configmap", "v").exists());
}

#[tokio::test]
async fn a_token_is_renewed_until_the_volumes_of_a_pod_that_ends_are_undone() {
    let scene = scene();
    let clock = scene.clock.clone();
    scene.api.answer(move |asked| {
        let now = longshore_util::clock::Clock::now(&*clock);
        let expires = now + jiff::SignedDuration::from_secs(asked.body["spec"]["expirationSeconds"].as_i64()?);
        let status = json!({"token": format!("made {now}"), "expirationTimestamp": expires.to_string()});
        let answer = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": {},
            "spec": {"audiences": []}, "status": status});
        Some((http::StatusCode::CREATED, answer))
    });
    let sources = json!([{"serviceAccountToken": {"expirationSeconds": 600, "path": "token"}}]);
    let mut pod = pod(json!([{"name": "t", "projected": {"sources": sources}}]), mount("t"));
    scene.manager.prepare(&pod).await.unwrap();
    let path = scene.volume("projected", "t").join("token");
    let mut seen = vec![text(&path)];
    let deleted = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(Timestamp::UNIX_EPOCH);
    Arc::make_mut(&mut pod.pod).metadata.deletion_timestamp = Some(deleted);
    // Half an hour of grace.
    for _ in 0..60 {
        scene.clock.advance(Duration::from_secs(30));
        scene.manager.refresh(&OnePod(pod.clone())).await;
        let now = text(&path);
        if seen.last() != Some(&now) {
            seen.push(now);
        }
    }
    assert_eq!(seen.len(), 4, "{seen:?}");
    scene.manager.teardown(&pod.uid).await.unwrap();
    assert!(!path.exists());
}

/// Field reports O-048 and O-049: a start without the apiserver.
#[tokio::test]
async fn a_node_that_stands_alone_does_with_what_was_written_and_holds_no_pod_up_for_a_token() {
    let access = json!([{"name": "access", "projected": {"sources": [
        {"serviceAccountToken": {"path": "token"}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
    ]}}, {"name": "m", "configMap": {"name": "cm"}}]);
    let pod = pod(access, json!([{"name": "access", "mountPath": "/a"}, {"name": "m", "mountPath": "/m"}]));
    let scene = scene();
    scene.alone.set(true);
    let refused = scene.manager.prepare(&pod).await.unwrap_err();
    assert_eq!(refused.volume, "m", "data that were never written are waited for: {refused}");
    let files = scene.volume("projected", "access");
    assert_eq!(std::fs::read_to_string(files.join("namespace")).unwrap(), "ns");
    assert!(!files.join("token").exists());
    // Written by an agent that had the apiserver, found by one that has not.
    scene.put_map("cm", json!({"k": "kept"}));
    scene.manager.prepare(&pod).await.unwrap();
    let later = self::scene_in(scene.dir);
    assert!(later.manager.prepare(&pod).await.is_err(), "an apiserver that says no is believed");
    later.alone.set(true);
    later.manager.prepare(&pod).await.unwrap();
    assert_eq!(std::fs::read_to_string(later.volume("configmap", "m").join("k")).unwrap(), "kept");
}
