use std::path::Path;
use std::sync::Arc;

use longshore_api::resize::Bound;
use longshore_api::resources::CpuPolicy;
use longshore_host::cgroup::{Cgroups, Hierarchy, Version};
use serde_json::json;

use super::*;
use crate::model::{DesiredPod, PodKey, SourceKind};
use crate::pod::PodCgroups as _;

fn tree(folder: &Path) -> CgroupTree {
    let hierarchy = |name: &str| {
        std::fs::create_dir_all(folder.join(name)).unwrap();
        Hierarchy { mount: folder.join(name), controllers: vec![name.to_owned()] }
    };
    // The kernel makes these files; here somebody has to.
    for group in ["", "/burstable", "/besteffort", "/burstable/poda", "/burstable/podb", "/besteffort/pode"] {
        for (controller, file) in [("cpu", "cpu.shares"), ("memory", "memory.limit_in_bytes")] {
            let group = folder.join(format!("{controller}/kubepods{group}"));
            std::fs::create_dir_all(&group).unwrap();
            std::fs::write(group.join(file), "").unwrap();
        }
    }
    let groups = Cgroups::with_version(Version::V1(vec![hierarchy("cpu"), hierarchy("memory")]));
    let names = CgroupNames::new(CgroupDriver::Cgroupfs, "", true);
    let tree = CgroupTree::new(groups, names, CpuPolicy::default(), -1);
    tree.prepare().unwrap();
    tree
}

fn pod(uid: &str, requests: serde_json::Value) -> DesiredPod {
    let pod = json!({"metadata": {"name": uid, "namespace": "d", "uid": uid},
        "spec": {"containers": [{"name": "c", "resources": {"requests": requests}}]}});
    DesiredPod {
        uid: uid.into(),
        key: PodKey::new("d", uid),
        pod: Arc::new(serde_json::from_value(pod).unwrap()),
        source: SourceKind::Api,
        seen: jiff::Timestamp::UNIX_EPOCH,
    }
}

fn value(folder: &Path, file: &str) -> String {
    std::fs::read_to_string(folder.join(file)).unwrap_or_default().trim().to_owned()
}

#[tokio::test]
async fn burstable_pods_weigh_together_what_they_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let tree = tree(folder.path());
    let shares = || value(folder.path(), "cpu/kubepods/burstable/cpu.shares");
    let (a, b) = (pod("a", json!({"cpu": "500m"})), pod("b", json!({"cpu": "250m", "memory": "1Mi"})));
    tree.ensure(&a, false).await.unwrap();
    assert_eq!(shares(), "512");
    tree.ensure(&b, false).await.unwrap();
    tree.ensure(&b, false).await.unwrap();
    assert_eq!(shares(), "768");
    tree.ensure(&pod("e", json!({})), false).await.unwrap();
    assert_eq!(shares(), "768", "who asked for nothing weighs nothing");
    assert_eq!(value(folder.path(), "cpu/kubepods/besteffort/cpu.shares"), "2");
    drop(tree.remove(&a).await);
    assert_eq!(shares(), "256");
}

#[test]
fn all_pods_together_are_bound_to_what_the_machine_gives() {
    let folder = tempfile::tempdir().unwrap();
    let tree = tree(folder.path());
    assert!(tree.enforce(1500, 4 << 30).unwrap());
    assert_eq!(value(folder.path(), "cpu/kubepods/cpu.shares"), "1536");
    assert_eq!(value(folder.path(), "memory/kubepods/memory.limit_in_bytes"), (4_u64 << 30).to_string());
}

#[tokio::test]
async fn bounds_of_a_pod_move_one_by_one_and_are_left_alone_while_they_move() {
    let folder = tempfile::tempdir().unwrap();
    let tree = tree(folder.path());
    let group = |file: &str| folder.path().join(file.replace('@', "kubepods/burstable/poda"));
    std::fs::write(group("cpu/@/cpu.cfs_quota_us"), "-1").unwrap();
    std::fs::write(group("cpu/@/cpu.cfs_period_us"), "100000").unwrap();
    let small = pod("a", json!({"cpu": "100m"}));
    tree.ensure(&small, false).await.unwrap();
    let large = pod("a", json!({"cpu": "200m", "memory": "1Gi"}));
    let bounds = tree.bounds(&large).unwrap().unwrap();
    assert_eq!((bounds.now.shares, bounds.wanted.shares), (102, 204));
    assert_eq!((bounds.now.quota, bounds.wanted.quota, bounds.wanted.memory), (None, None, None));
    tree.ensure(&large, true).await.unwrap();
    assert_eq!(value(folder.path(), "cpu/kubepods/burstable/poda/cpu.shares"), "102", "a resize is under way");
    tree.bind(&large, Bound::Shares(204)).unwrap();
    tree.bind(&large, Bound::Memory(Some(4096))).unwrap();
    tree.bind(&large, Bound::Quota(Some(5000))).unwrap();
    let now = tree.bounds(&large).unwrap().unwrap().now;
    assert_eq!((now.shares, now.memory), (204, Some(4096)));
    assert_eq!(value(folder.path(), "cpu/kubepods/burstable/cpu.shares"), "204", "their class weighs as much");
    std::fs::write(group("memory/@/memory.usage_in_bytes"), "99").unwrap();
    assert_eq!(tree.memory_usage(&large), Some(99));
    assert!(tree.bounds(&pod("none", json!({}))).unwrap().is_none());
}

/// Found by the fuzzer on real containerd: the group of a start that was cut off, kept a moment longer by its process, had more
/// time than the pod was to have, and the resize never ended.
#[tokio::test]
async fn what_a_start_left_behind_does_not_hold_a_resize_for_ever() {
    let folder = tempfile::tempdir().unwrap();
    let tree = tree(folder.path());
    let own = pod("a", json!({"cpu": "100m"}));
    tree.ensure(&own, false).await.unwrap();
    let group = folder.path().join("cpu/kubepods/burstable/poda");
    std::fs::create_dir_all(group.join("left")).unwrap();
    std::fs::create_dir_all(group.join("runs")).unwrap();
    std::fs::write(group.join("runs/cgroup.procs"), "7\n").unwrap();
    // A folder in the file's place plays the kernel's refusal.
    drop(std::fs::remove_file(group.join("cpu.cfs_quota_us")));
    std::fs::create_dir_all(group.join("cpu.cfs_quota_us/full")).unwrap();
    assert_eq!(tree.bind(&own, Bound::Quota(Some(5000))).unwrap_err().reason, "ResizeError");
    assert!(!group.join("left").exists() && group.join("runs").exists());
}

#[tokio::test]
async fn a_pod_weighs_in_its_class_also_when_the_agent_starts_in_the_middle_of_its_resize() {
    let folder = tempfile::tempdir().unwrap();
    let tree = tree(folder.path());
    tree.ensure(&pod("a", json!({"cpu": "500m"})), true).await.unwrap();
    assert_eq!(value(folder.path(), "cpu/kubepods/burstable/cpu.shares"), "512");
    assert_eq!(value(folder.path(), "cpu/kubepods/burstable/poda/cpu.shares"), "");
}
