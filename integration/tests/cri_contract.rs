//! The contract of a runtime (`src/cri/tests/contract`) holds for real containerds of several ages, as it does for the
//! fake: what tests on the fake prove is true of the real thing.

#[path = "../../src/cri/tests/contract/mod.rs"]
mod contract;

use std::sync::Arc;

use contract::{Subject, holds};
use longshore_cri::{ClientOptions, CriClient};
use longshore_integration::env::{BUSYBOX_IMAGE, Env, Version, newest};

fn holds_for(version: Version, has_events: bool) -> anyhow::Result<()> {
    let env = Env::start(version)?;
    let (endpoint, cgroup, logs) =
        (env.endpoint(), format!("{}/contract", env.cgroup_root()), env.directory().join("logs"));
    env.block_on(|| async move {
        let client = Arc::new(CriClient::connect(&endpoint, ClientOptions::default())?);
        client.check().await?;
        let subject = Subject {
            runtime: client.clone(),
            images: client,
            image: BUSYBOX_IMAGE.to_owned(),
            cgroup,
            logs,
            has_events,
            has_network: true,
        };
        holds(&subject).await;
        Ok(())
    })
}

#[test]
fn root_holds_for_debian_12_containerd() -> anyhow::Result<()> {
    holds_for(Version::V1_6, false)
}

#[test]
fn root_holds_for_the_newest_containerd() -> anyhow::Result<()> {
    holds_for(newest(), true)
}

#[test]
#[ignore = "long: part of make test-all"]
fn root_holds_for_containerd_1_7() -> anyhow::Result<()> {
    holds_for(Version::V1_7, true)
}
