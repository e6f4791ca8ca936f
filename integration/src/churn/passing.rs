//! Pods that come and go.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, PostParams};

use super::{Dice, FOREVER, Faults, PASSING, Place, pod};
use crate::tools::say;

/// Makes and deletes pods until told to stop: some run until deleted, some end by themselves with a code.
pub(super) async fn churn(place: &Place, stop: &AtomicBool, mut dice: Dice, faults: &Faults) -> Result<()> {
    let mut made = 0usize;
    let mut alive: Vec<(String, bool)> = Vec::new();
    let mut api: Option<Api<Pod>> = None;
    while !stop.load(Ordering::Relaxed) {
        tokio::time::sleep(Duration::from_millis(50 + dice.below(150))).await;
        // The control plane may be the victim: what is refused now is tried again.
        let pods = match &api {
            Some(pods) => pods.clone(),
            None => match super::pods(place).await {
                Ok(made) => api.insert(made).clone(),
                Err(_) => continue,
            },
        };
        if alive.len() < PASSING {
            let ends = dice.below(3) == 0;
            let name = format!("passing-{made}");
            let new = if ends {
                pod(place, &name, "Never", "sleep 0.3; exit 3")?
            } else {
                pod(place, &name, "Always", FOREVER)?
            };
            if within(pods.create(&PostParams::default(), &new)).await.is_ok() {
                alive.push((name, ends));
            }
            made += 1;
            continue;
        }
        let index = usize::try_from(dice.below(alive.len() as u64))?;
        let (name, ends) = alive[index].clone();
        let pod = match within(pods.get_opt(&name)).await {
            Ok(Some(pod)) => pod,
            Ok(None) => {
                // Its delete was done although the answer was lost.
                alive.swap_remove(index);
                continue;
            }
            Err(_) => continue,
        };
        let phase = pod.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
        // A delete whose answer was lost may have come before the command began.
        if ends && phase == "Failed" && pod.metadata.deletion_timestamp.is_none() {
            check_exit(&pod, faults);
        }
        if within(pods.delete(&name, &DeleteParams::default())).await.is_ok() {
            alive.swap_remove(index);
        }
    }
    say(&format!("{made} pods came and went"));
    Ok(())
}

/// A call that may meet a dead server: given up after two seconds.
async fn within<T>(call: impl Future<Output = kube::Result<T>>) -> Result<T> {
    Ok(tokio::time::timeout(Duration::from_secs(2), call).await??)
}

fn check_exit(pod: &Pod, faults: &Faults) {
    let name = pod.metadata.name.clone().unwrap_or_default();
    let state = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref()?.first()?.state.clone());
    let terminated = state.and_then(|state| state.terminated);
    // A start that a kill cut off never ran the command: the agent makes it anew, and what is shown is the command's end.
    if terminated.as_ref().map(|terminated| terminated.exit_code) != Some(3) {
        faults.add(format!("{name}: ends with code 3, the status says {terminated:?}"));
    }
}
