//! The environment itself: isolated, with a working runtime, and gone afterwards.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use longshore_integration::env::{BUSYBOX_IMAGE, Env, Version, newest};

fn runs_a_container(version: Version) {
    let env = Env::start(version).unwrap();
    let cgroup = format!("{}/first", env.cgroup_root());
    let out = env
        .run(&mut env.ctr(&["run", "--rm", "--cgroup", &cgroup, BUSYBOX_IMAGE, "first", "sh", "-c", "id -u"]).unwrap())
        .unwrap();
    assert_eq!(out.trim(), "0");
    assert!(env.within(|| std::path::Path::new(&env.socket()).exists()).unwrap());
    assert!(!std::path::Path::new(&env.socket()).exists(), "the socket is seen inside only");
    let directory = env.directory().to_path_buf();
    drop(env);
    assert!(!directory.exists());
}

#[test]
fn root_a_container_runs_on_debian_12_containerd() {
    runs_a_container(Version::V1_6);
}

#[test]
fn root_a_container_runs_on_the_newest_containerd() {
    runs_a_container(newest());
}
