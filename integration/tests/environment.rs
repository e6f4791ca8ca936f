//! The environment itself: isolated, with a working runtime, and gone afterwards.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::Command;

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

/// Says whether a process lives: one that ended and was not waited for does not.
fn lives(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.trim_start().starts_with(['Z', 'X']) && !rest.is_empty())
}

/// A process that nobody waits for and that has no mark of the run on it.
const STRAY: &str = "setsid sleep 1000 >/dev/null 2>&1 & echo $!";

#[test]
fn root_all_that_stands_in_a_runs_namespaces_ends_with_it_and_nothing_else() {
    let mut outside = Command::new("sleep").arg("1000").spawn().unwrap();
    let env = Env::bare(Version::V1_6).unwrap();
    let other = Env::bare(Version::V1_6).unwrap();
    let stray = env.run(Command::new("sh").args(["-c", STRAY])).unwrap();
    let elsewhere = other.run(Command::new("sh").args(["-c", STRAY])).unwrap();
    // As a container on the node's network does: a mount namespace of its own.
    let host_network = env.run(Command::new("sh").args(["-c", &format!("unshare --mount sh -c '{STRAY}'")])).unwrap();
    assert!([&stray, &elsewhere, &host_network].iter().all(|pid| lives(pid.trim())));
    drop(env);
    assert!(!lives(stray.trim()) && !lives(host_network.trim()));
    assert!(lives(elsewhere.trim()) && outside.try_wait().unwrap().is_none());
    drop(other);
    assert!(!lives(elsewhere.trim()));
    outside.kill().unwrap();
    outside.wait().unwrap();
}

#[test]
fn root_what_a_killed_run_left_is_removed_by_the_next() {
    let base = tempfile::Builder::new().prefix("longshore-base").tempdir_in("/var/tmp").unwrap();
    let testenv = |script: &str| {
        let mut command = Command::new(longshore_integration::tools::built("testenv").unwrap());
        command.args(["--", "sh", "-c", script]).env("LONGSHORE_TEST_DIR", base.path());
        command
    };
    // containerd, its run killed beside it, and a stray.
    let script = format!("({STRAY}) > $TEST_DIR/pid; kill -9 $PPID");
    assert!(!testenv(&script).output().unwrap().status.success());
    let mut entries = std::fs::read_dir(base.path()).unwrap().flatten().map(|entry| entry.path());
    let left = entries.find(|path| path.join("pid").exists()).unwrap();
    let pid = std::fs::read_to_string(left.join("pid")).unwrap();
    assert!(lives(pid.trim()));
    // A run is young for ten seconds, and left alone then.
    let long_ago = std::time::SystemTime::UNIX_EPOCH;
    std::fs::File::open(left.join("lock")).unwrap().set_modified(long_ago).unwrap();
    assert!(testenv("true").output().unwrap().status.success());
    assert!(!lives(pid.trim()) && !left.exists());
}
