//! `longshore up` and `down` as a user meets them: from nothing to an answering pod, through kill -9 and back, and
//! nothing left behind.

#![expect(clippy::panic, reason = "a test fails by panicking")]

use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use longshore_integration::env::{Version, newest};
use longshore_integration::machine::Machine;

fn from_nothing_to_a_pod_and_back(version: Version) -> Result<()> {
    let machine = Machine::new(version)?;
    let (mut up, _) = machine.up(&["--demo"])?;
    let said = std::fs::read_to_string(up.log())?;
    ensure!(said.contains("Hello from pod hello"), "the sample did not answer:\n{said}");
    let listed = machine.run(&["get", "pods", "-A"])?;
    ensure!(listed.contains("hello") && listed.contains("Running"), "{listed}");
    let logs = machine.run(&["logs", "hello"])?;
    ensure!(logs.contains("demo server listens"), "{logs}");
    let before = machine.containers()?;
    ensure!(before.len() == 1, "{before:?}");

    // A second up on the same machine says so in one line.
    let second = machine.env().output(&mut machine.longshore(&["up"])?)?;
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    ensure!(!second.status.success() && said.contains("runs already"), "{said}");

    // kill -9: the pod goes on, and the next up finds it.
    up.kill()?;
    ensure!(machine.containers()? == before, "the pod did not outlive up");
    let (mut up, mut took) = machine.up(&[])?;
    ensure!(machine.containers()? == before, "the pod was not adopted");
    // Quick with all in place: other work on the machine may slow a try, not all of them.
    for _ in 0..3 {
        if took < Duration::from_secs(5) {
            break;
        }
        up.kill()?;
        (up, took) = machine.up(&[])?;
    }
    ensure!(took < Duration::from_secs(5), "up took {took:?} with all in place");
    ensure!(machine.containers()? == before, "the pod was not adopted");
    let listed = machine.run(&["get", "pods"])?;
    ensure!(listed.contains("1/1"), "{listed}");

    // Ctrl-C ends up, not the pod.
    up.signal(nix::sys::signal::Signal::SIGINT)?;
    let status = up.stop(Duration::from_secs(60))?;
    ensure!(status.success(), "{status}:\n{}", up.tail());
    ensure!(machine.containers()? == before, "the pod did not outlive Ctrl-C");

    machine.run(&["down"])?;
    machine.ensure_nothing_left()?;
    ensure!(machine.exists("/var/lib/longshore/pki/ca.crt"), "down without --purge keeps the data");
    machine.run(&["down", "--purge"])?;
    ensure!(!machine.exists("/var/lib/longshore/pki"), "down --purge removes the data");
    Ok(())
}

fn down_works_after_everything_was_killed(version: Version) -> Result<()> {
    let machine = Machine::new(version)?;
    let flags = machine.flags();
    machine.run(&["up", "--detach", "--demo", "--", &flags])?;
    ensure!(machine.containers()?.len() == 1);
    for file in ["/run/longshore/up.pid", "/run/longshore/containerd.pid"] {
        let pid = machine.env().within(|| std::fs::read_to_string(file))??;
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid.trim().parse()?), nix::sys::signal::Signal::SIGKILL)?;
    }
    machine.run(&["down"])?;
    machine.ensure_nothing_left()
}

fn ok(result: Result<()>) {
    if let Err(error) = result {
        panic!("{error:#}");
    }
}

#[test]
fn root_from_nothing_to_a_pod_and_back_on_debian_12_containerd() {
    ok(from_nothing_to_a_pod_and_back(Version::V1_6));
}

#[test]
fn root_from_nothing_to_a_pod_and_back_on_the_newest_containerd() {
    ok(from_nothing_to_a_pod_and_back(newest()));
}

#[test]
fn root_down_works_after_everything_was_killed() {
    ok(down_works_after_everything_was_killed(Version::V1_6));
}

#[test]
fn root_what_is_missing_is_said_with_the_command_that_mends_it() {
    let machine = Machine::new(Version::V1_6).unwrap();
    let mut command = machine.longshore(&["up"]).unwrap();
    command.env("PATH", "/nowhere");
    // Programs are also looked for where systems keep them: cover the runtime's.
    machine.env().run(Command::new("mount").args(["--bind", "/dev/null", "/usr/bin/containerd"])).unwrap();
    let output = machine.env().output(&mut command).unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success());
    assert!(said.contains("containerd: not installed") && said.contains("apt-get install containerd"), "{said}");
}
