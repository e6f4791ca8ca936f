//! Fills a cluster: everything goes through the API, as it would have come there.

use std::collections::BTreeMap;
use std::future::Future;

use anyhow::{Context as _, Result, ensure};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use http::Method;

use super::wire::revision_of;
use super::{Crew, Scale, bodies};

/// Requests at a time.
const AT_A_TIME: usize = 64;

/// What is there.
#[derive(Debug)]
pub struct Filled {
    /// Stored objects by kind.
    pub objects: BTreeMap<String, usize>,
    /// Uids of the replica sets.
    pub sets: Vec<String>,
    /// Revisions of the nodes' leases.
    pub leases: Vec<u64>,
}

impl Filled {
    /// All objects together.
    pub fn total(&self) -> usize {
        self.objects.values().sum()
    }
}

/// Makes all objects of a cluster of that size.
pub async fn fill(crew: &Crew, scale: &Scale) -> Result<Filled> {
    many(scale.namespaces, |index| async move {
        let name = scale.namespace(index);
        post(crew, index, "/api/v1/namespaces", bodies::named("v1", "Namespace", &name)).await.map(drop)
    })
    .await?;
    accounts(crew, scale).await?;
    many(scale.nodes, |index| async move {
        crew.nodes[index].post("/api/v1/nodes", bodies::node(index)).await?.good().map(drop)
    })
    .await?;
    let leases = many(scale.nodes, |index| async move {
        let body = bodies::lease(&Scale::node(index), None);
        let made = crew.nodes[index].post(LEASES, body).await?.good()?;
        Ok(revision_of(&made.body))
    })
    .await?;
    let sets = many(scale.sets(), |index| async move {
        let path = format!("/apis/apps/v1/namespaces/{}/replicasets", scale.set(index).0);
        let made = post(crew, index, &path, bodies::set(scale, index)).await?;
        let text = String::from_utf8(made)?;
        let uid = text.split_once("\"uid\":\"").and_then(|(_, rest)| rest.split_once('"')).context("a uid")?;
        Ok(uid.0.to_owned())
    })
    .await?;
    pods(crew, scale, &sets).await?;
    small(crew, scale).await?;
    let before = count(crew).await?;
    let left = scale.objects.saturating_sub(before.values().sum());
    many(left, |index| async move {
        let (namespace, pod, node) = scale.pod(index % scale.pods);
        let body = bodies::event(&namespace, &format!("{pod}.{index:x}"), &pod, &Scale::node(node));
        post(crew, index, &format!("/api/v1/namespaces/{namespace}/events"), body).await.map(drop)
    })
    .await?;
    Ok(Filled { objects: count(crew).await?, sets, leases })
}

/// Where the nodes' heartbeats are.
pub(super) const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";

async fn pods(crew: &Crew, scale: &Scale, sets: &[String]) -> Result<()> {
    many(scale.pods, |index| async move {
        let (namespace, name, node) = scale.pod(index);
        let set = index / Scale::REPLICAS;
        let path = format!("/api/v1/namespaces/{namespace}/pods");
        post(crew, index, &path, bodies::pod(scale, set, &sets[set], &name, Some(&Scale::node(node)))).await?;
        let path = format!("{path}/{name}/status");
        let told = crew.nodes[node].call(Method::PATCH, &path, STRATEGIC, bodies::status(index, 0)).await?;
        told.good().map(drop)
    })
    .await
    .map(drop)
}

/// How nodes tell states of pods.
pub(super) const STRATEGIC: &str = "application/strategic-merge-patch+json";

async fn small(crew: &Crew, scale: &Scale) -> Result<()> {
    many(scale.configmaps(), |index| async move {
        let (namespace, name) = scale.configmap(index);
        let path = format!("/api/v1/namespaces/{namespace}/configmaps");
        post(crew, index, &path, bodies::configmap(&name, index, 0)).await.map(drop)
    })
    .await?;
    many(scale.secrets(), |index| async move {
        let (namespace, name) = scale.secret(index);
        post(crew, index, &format!("/api/v1/namespaces/{namespace}/secrets"), bodies::secret(&name, index))
            .await
            .map(drop)
    })
    .await?;
    many(scale.share(2500), |index| async move {
        let path = format!("/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices", scale.namespace(index));
        post(crew, index, &path, bodies::slice(&format!("app-{index}-x7k2p"), index, scale.nodes)).await.map(drop)
    })
    .await?;
    many(scale.share(1000), |index| async move {
        let path = format!("/api/v1/namespaces/{}/serviceaccounts", scale.namespace(index));
        post(crew, index, &path, bodies::named("v1", "ServiceAccount", &format!("robot-{index}"))).await.map(drop)
    })
    .await?;
    many(scale.share(300), |index| async move {
        let path = format!("/api/v1/namespaces/{}/services", scale.namespace(index));
        post(crew, index, &path, bodies::service(&format!("app-{index}"))).await.map(drop)
    })
    .await
    .map(drop)
}

/// Waits until each namespace has the account that pods need.
async fn accounts(crew: &Crew, scale: &Scale) -> Result<()> {
    for index in 0..scale.namespaces {
        let path = format!("/api/v1/namespaces/{}/serviceaccounts/default", scale.namespace(index));
        let mut tries = 0;
        while !crew.controller(index).get(&path).await?.status.is_success() {
            tries += 1;
            ensure!(tries < 500, "{path} is not there after ten seconds");
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }
    Ok(())
}

/// Counts stored objects by kind, as the server's metrics tell them.
async fn count(crew: &Crew) -> Result<BTreeMap<String, usize>> {
    let text = crew.controller(0).get("/metrics").await?.good()?.body;
    let text = String::from_utf8(text.to_vec())?;
    let rows = text.lines().filter_map(|line| line.strip_prefix("apiserver_storage_objects{resource=\""));
    rows.map(|row| {
        let (kind, count) = row.split_once("\"} ").context("a count")?;
        Ok((kind.to_owned(), count.trim().parse()?))
    })
    .filter(|row| row.as_ref().map_or(true, |(_, count)| *count > 0))
    .collect()
}

async fn post(crew: &Crew, index: usize, path: &str, body: String) -> Result<Vec<u8>> {
    let answer = crew.controller(index).post(path, body).await?.good().with_context(|| path.to_owned())?;
    Ok(answer.body.to_vec())
}

async fn many<T, F: Future<Output = Result<T>>>(count: usize, make: impl Fn(usize) -> F) -> Result<Vec<T>> {
    stream::iter((0..count).map(make)).buffered(AT_A_TIME).try_collect().await
}
