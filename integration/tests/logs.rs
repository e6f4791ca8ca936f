//! Logs of a container that writes without end: bound on disk, followed through rotation without a gap, kept parts readable.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use longshore_integration::cluster::{Cluster, ClusterOptions};
use longshore_integration::env::{Env, Version, eventually, newest};
use serde_json::{Value, json};

/// Lines of a hundred bytes, two thousand a second for a while, numbered; then one that is no UTF-8, and peace.
const WRITER: &str = "n=0; while [ $n -lt 40000 ]; do i=0; while [ $i -lt 200 ]; do \
    echo \"$n 0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890\"; \
    n=$((n+1)); i=$((i+1)); done; sleep 0.1; done; printf '\\377 end\\n'; sleep 3600";
const LINES: usize = 40_000;

fn pod() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "writer"},
        "spec": {
            "nodeName": Cluster::NODE, "terminationGracePeriodSeconds": 0, "automountServiceAccountToken": false,
            "containers": [{"name": "c", "image": "localhost/busybox:1", "command": ["sh", "-c", WRITER]}],
        },
    })
}

/// The numbers at the beginnings of lines.
fn numbers(text: &[u8]) -> Vec<usize> {
    let lines = text.split(|byte| *byte == b'\n');
    lines.filter_map(|line| String::from_utf8_lossy(line).split(' ').next()?.parse().ok()).collect()
}

fn ensure_gapless(numbers: &[usize]) -> Result<()> {
    for pair in numbers.windows(2) {
        ensure!(pair[1] == pair[0] + 1, "{} comes after {}", pair[1], pair[0]);
    }
    Ok(())
}

fn a_log_is_bound_and_nothing_of_it_is_missed(version: Version) -> Result<()> {
    let env = Env::start(version)?;
    let config = json!({
        "containerLogMaxSize": "300Ki", "containerLogMaxFiles": 4, "containerLogMonitorInterval": "3s",
    });
    let config = config.as_object().cloned().unwrap_or_default();
    let cluster = Cluster::start(&env, ClusterOptions { config, ..ClusterOptions::default() })?;
    let file = env.directory().join("writer.json");
    std::fs::write(&file, pod().to_string())?;
    cluster.kubectl(&["create", "--validate=false", "-f", &file.display().to_string()])?;
    cluster.kubectl(&["wait", "--for=condition=Ready", "pod/writer", "--timeout=30s"])?;
    let mut follow = env.spawn("follow", &mut cluster.kubectl_command(&["logs", "-f", "writer"])?)?;
    eventually("the follower sees the end", Duration::from_secs(90), || {
        follow.check_alive().is_ok() && std::fs::read(follow.log()).is_ok_and(|text| text.ends_with(b"\xff end\n"))
    })
    .with_context(|| follow.tail())?;
    let followed = numbers(&std::fs::read(follow.log())?);
    ensure_gapless(&followed).context("followed")?;
    ensure!(followed.first() == Some(&0) && followed.len() == LINES, "{} lines followed", followed.len());
    follow.kill()?;

    let uid = cluster.kubectl(&["get", "pod", "writer", "-o", "jsonpath={.metadata.uid}"])?;
    let folder = format!("/var/log/pods/default_writer_{uid}/c");
    // The last look may still move the end away; after it nothing changes.
    let log = format!("{folder}/0.log");
    eventually("the log is within its bounds", Duration::from_secs(10), || {
        env.within(|| std::fs::metadata(&log).is_ok_and(|meta| meta.len() < 300 * 1024)).unwrap_or(false)
    })?;
    let mut files: Vec<String> = env.within(|| {
        let entries = std::fs::read_dir(&folder).unwrap().flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    })?;
    files.sort();
    ensure!(files.len() == 4, "{files:?}");
    ensure!(files.iter().filter(|name| name.ends_with(".gz")).count() == 2, "{files:?}");

    let kept = env.output(&mut cluster.kubectl_command(&["logs", "writer"])?)?.stdout;
    ensure!(kept.ends_with(b"\xff end\n"), "the end is missing");
    let kept = numbers(&kept);
    ensure_gapless(&kept).context("kept")?;
    ensure!(kept.last() == Some(&(LINES - 1)) && kept.len() > 9_000, "{} lines kept", kept.len());
    let count = kept.len() - 10;
    let tail = numbers(cluster.kubectl(&["logs", "writer", &format!("--tail={count}")])?.as_bytes());
    ensure!(
        tail.first() == Some(&(LINES + 1 - count)) && tail.last() == Some(&(LINES - 1)),
        "{} of {count}",
        tail.len()
    );
    Ok(())
}

#[test]
fn root_a_log_is_bound_and_nothing_of_it_is_missed_on_the_newest_containerd() {
    a_log_is_bound_and_nothing_of_it_is_missed(newest()).unwrap();
}

#[test]
#[ignore = "long: part of make test-all"]
fn root_a_log_is_bound_and_nothing_of_it_is_missed_on_debian_12_containerd() {
    a_log_is_bound_and_nothing_of_it_is_missed(Version::V1_6).unwrap();
}
