//! Objects in a real etcd, old and new: the store's contract, keys as upstream lays them out, several apiservers.

#![expect(clippy::panic, reason = "a test fails by panicking")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{DeleteParams, DynamicObject, ObjectMeta, Patch, PatchParams, PostParams};
use longshore_integration::etcd::{Etcd, EtcdVersion, PlaneProcess};
use longshore_plane::store::{
    Draft, EtcdOptions, EtcdStore, EventKind, Limits, ListRequest, MemoryStore, OpenError, Revision, Store, StoreError,
};
use longshore_transport::client::{ClientOptions, Kubeconfig};
use longshore_util::Tasks;
use longshore_util::clock::{SharedClock, SystemClock};
use serde_json::{Value, json};

fn clock() -> SharedClock {
    Arc::new(SystemClock)
}

fn draft(value: &str) -> Draft {
    Draft::of(&json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "x"}, "data": {"v": value}}))
}

fn facts(bytes: &[u8]) -> Result<(String, u64)> {
    let object: Value = serde_json::from_slice(bytes)?;
    let version = object["metadata"]["resourceVersion"].as_str().context("a version")?.parse()?;
    Ok((object["data"]["v"].as_str().unwrap_or_default().to_owned(), version))
}

/// What every engine must do, in revisions relative to each other.
async fn contract(store: &dyn Store) -> Result<()> {
    let before = store.revision();
    let made = store.create("configmaps/a/1", draft("x")).await?;
    ensure!(made.revision > before && facts(&made.value.bytes())? == ("x".to_owned(), made.revision.0));
    let taken = store.create("configmaps/a/1", draft("y")).await;
    ensure!(matches!(taken, Err(StoreError::Exists { .. })), "{taken:?}");
    let stale = store.update("configmaps/a/1", Revision(made.revision.0 - 1), draft("y")).await;
    ensure!(matches!(&stale, Err(StoreError::Conflict { found, .. }) if *found == made.revision), "{stale:?}");
    let changed = store.update("configmaps/a/1", made.revision, draft("y")).await?;
    ensure!(changed.revision > made.revision && facts(&changed.value.bytes())? == ("y".to_owned(), changed.revision.0));
    ensure!(store.get("configmaps/a/1").is_some_and(|entry| entry.value.bytes() == changed.value.bytes()), "read back");
    ensure!(store.update("configmaps/a/2", made.revision, draft("y")).await.is_err_and(|e| e.is_not_found()));
    ensure!(store.delete("configmaps/a/1", made.revision, draft("z")).await.is_err_and(|e| e.is_conflict()));

    let mut watch = store.watch("configmaps/a/", made.revision)?;
    store.create("secrets/a/1", draft("other")).await?;
    let second = store.create("configmaps/a/2", draft("e")).await?;
    let gone = store.delete("configmaps/a/1", changed.revision, draft("y")).await?;
    ensure!(facts(&gone.value.bytes())? == ("y".to_owned(), gone.revision.0), "a deletion has its own revision");
    ensure!(store.get("configmaps/a/1").is_none());
    let mut seen = Vec::new();
    while seen.len() < 3 {
        seen.extend(tokio::time::timeout(Duration::from_secs(5), watch.next()).await??);
    }
    let told: Vec<_> = seen.iter().map(|event| (event.kind, event.revision, event.previous.is_some())).collect();
    let wanted = [
        (EventKind::Updated, changed.revision, true),
        (EventKind::Created, second.revision, false),
        (EventKind::Deleted, gone.revision, true),
    ];
    ensure!(told == wanted, "{told:?}");
    ensure!(
        facts(&seen[2].object())? == ("y".to_owned(), gone.revision.0),
        "the last state at the deletion's revision"
    );

    let request = ListRequest { prefix: "configmaps/a/", ..ListRequest::default() };
    ensure!(store.list(&request)?.entries.len() == 1);
    let then = store.list(&ListRequest { at: Some(second.revision), ..request })?;
    ensure!(then.entries.len() == 2, "as it was: {then:?}");
    let future = store.list(&ListRequest { at: Some(Revision(u64::MAX)), ..request });
    ensure!(matches!(future, Err(StoreError::Future { .. })), "{future:?}");
    ensure!(store.watch("configmaps/", Revision(gone.revision.0 + 1_000_000)).is_err());

    // Of many who write from the same state, one wins.
    let base = store.create("configmaps/a/race", draft("0")).await?;
    let tries = (0..16).map(|n| {
        let text = n.to_string();
        async move { store.update("configmaps/a/race", base.revision, draft(&text)).await }
    });
    let outcomes = futures_util::future::join_all(tries).await;
    ensure!(outcomes.iter().filter(|outcome| outcome.is_ok()).count() == 1, "{outcomes:?}");
    ensure!(outcomes.iter().all(|outcome| outcome.as_ref().err().is_none_or(StoreError::is_conflict)), "{outcomes:?}");
    store.settle().await?;
    Ok(())
}

fn on_a_runtime(work: impl Future<Output = Result<()>>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().worker_threads(2).build();
    if let Err(error) = runtime.map_err(Into::into).and_then(|runtime| runtime.block_on(work)) {
        panic!("{error:?}");
    }
}

async fn stop(tasks: Tasks) {
    tasks.cancel();
    drop(tokio::time::timeout(Duration::from_secs(5), tasks.join()).await);
}

#[test]
fn the_contract_holds_in_memory_and_in_every_etcd() {
    on_a_runtime(async {
        contract(&MemoryStore::new(Limits::default(), clock())).await.context("memory")?;
        for version in EtcdVersion::ALL {
            let directory = tempfile::tempdir()?;
            let etcd = Etcd::start(version, directory.path(), &[])?;
            // Something that is not ours lies around it.
            etcd.put("/other/key", "x")?;
            let tasks = Tasks::new();
            let store = EtcdStore::open(EtcdOptions::new(vec![etcd.url()], clock()), &tasks).await?;
            contract(&store).await.with_context(|| format!("{version:?}"))?;
            // Foreign writes move the revision on; who reads the present does not wait for an event that never comes.
            etcd.put("/other/key", "y")?;
            tokio::time::timeout(Duration::from_secs(2), store.settle()).await??;
            // Another one opened on the same etcd sees the same.
            let again = EtcdStore::open(EtcdOptions::new(vec![etcd.url()], clock()), &tasks).await?;
            let all = ListRequest::default();
            let values = |store: &EtcdStore| -> Result<Vec<_>> {
                Ok(store
                    .list(&all)?
                    .entries
                    .into_iter()
                    .map(|entry| (entry.key, entry.revision, entry.value.bytes()))
                    .collect())
            };
            ensure!(values(&store)? == values(&again)?, "{:?} {:?}", values(&store)?, values(&again)?);
            stop(tasks).await;
        }
        Ok(())
    });
}

#[test]
fn history_that_etcd_dropped_and_values_of_others_are_told() {
    on_a_runtime(async {
        let directory = tempfile::tempdir()?;
        let mut etcd = Etcd::start(EtcdVersion::V3_5, directory.path(), &[])?;
        let tasks = Tasks::new();
        let store = EtcdStore::open(EtcdOptions::new(vec![etcd.url()], clock()), &tasks).await?;
        let first = store.create("configmaps/a/1", draft("1")).await?;
        let mut watch = store.watch("configmaps/", first.revision)?;
        // While etcd is away, a write fails and says what is the matter; nothing is lost.
        etcd.kill()?;
        let failed = store.create("configmaps/a/2", draft("2")).await.err().context("written without etcd")?;
        ensure!(failed.to_string().contains(&etcd.url()), "{failed}");
        ensure!(store.get("configmaps/a/1").is_some(), "what is here can be read");
        etcd.restart()?;
        // Others write, and the history up to there is dropped before we can follow it.
        for n in 0..5 {
            etcd.put(
                "/registry/configmaps/a/3",
                &json!({"metadata": {"name": "3"}, "data": {"v": n.to_string()}}).to_string(),
            )?;
        }
        let status = etcd.call("maintenance/status", &json!({}))?;
        let now = status["header"]["revision"].as_str().context("a revision")?.to_owned();
        drop(etcd.call("kv/compaction", &json!({"revision": now})));
        tokio::time::timeout(Duration::from_secs(10), store.settle()).await??;
        ensure!(
            store.get("configmaps/a/3").is_some_and(|entry| facts(&entry.value.bytes()).is_ok_and(|(v, _)| v == "4"))
        );
        // The watch either saw everything or is told to list again; never a gap.
        let told = tokio::time::timeout(Duration::from_secs(5), watch.next()).await?;
        match told {
            Ok(events) => ensure!(events.len() <= 5 && events[0].kind == EventKind::Created, "{events:?}"),
            Err(error) => ensure!(matches!(error, StoreError::Compacted { .. }), "{error}"),
        }
        stop(tasks).await;

        // A value that somebody damaged costs that object alone.
        etcd.put("/registry/configmaps/a/bad", "{\"metadata\": ")?;
        let tasks = Tasks::new();
        let store = EtcdStore::open(EtcdOptions::new(vec![etcd.url()], clock()), &tasks).await?;
        ensure!(store.get("configmaps/a/1").is_some() && store.get("configmaps/a/bad").is_none());
        ensure!(store.unreadable("configmaps/a/bad").is_some_and(|why| why.contains("not JSON")));
        let taken = store.create("configmaps/a/bad", draft("x")).await;
        ensure!(matches!(taken, Err(StoreError::Exists { .. })), "{taken:?}");
        etcd.put("/registry/configmaps/a/worse", "17")?;
        etcd.put("/registry/configmaps/a/bad", "{\"metadata\": {\"name\": \"bad\"}}")?;
        store.settle().await?;
        ensure!(store.get("configmaps/a/bad").is_some() && store.unreadable("configmaps/a/bad").is_none(), "put right");
        ensure!(store.unreadable("configmaps/a/worse").is_some_and(|why| &*why == "no object"));
        stop(tasks).await;

        etcd.put("/registry/pods/default/foreign", "k8s\0protobuf")?;
        let tasks = Tasks::new();
        let refused = EtcdStore::open(EtcdOptions::new(vec![etcd.url()], clock()), &tasks).await;
        let text = refused.err().map(|error: OpenError| error.to_string()).unwrap_or_default();
        ensure!(text.contains("/registry/pods/default/foreign") && text.contains("protobuf"), "{text}");
        stop(tasks).await;
        Ok(())
    });
}

async fn api(kubeconfig: &Path) -> Result<Api<ConfigMap>> {
    let client = Kubeconfig::load(kubeconfig, Timestamp::now()).await?.client(&ClientOptions::default())?;
    Ok(Api::namespaced(client, "default"))
}

fn map(name: &str, value: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        data: Some([("v".to_owned(), value.to_owned())].into()),
        ..ConfigMap::default()
    }
}

/// A kind that is defined through one apiserver is served by the other, as soon as that is told.
async fn a_custom_kind(first: &Api<ConfigMap>, second: &Api<ConfigMap>) -> Result<()> {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let definition: CustomResourceDefinition = serde_json::from_value(
        json!({"metadata": {"name": "things.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"}, "versions": [
            {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}}),
    )?;
    let definitions: Api<CustomResourceDefinition> = Api::all(first.clone().into_client());
    definitions.create(&PostParams::default(), &definition).await?;
    let established = kube::runtime::conditions::is_crd_established();
    let wait = kube::runtime::wait::await_condition(definitions, "things.example.com", established);
    tokio::time::timeout(Duration::from_secs(20), wait).await??;
    let resource = kube::api::ApiResource {
        group: "example.com".to_owned(),
        version: "v1".to_owned(),
        api_version: "example.com/v1".to_owned(),
        kind: "Thing".to_owned(),
        plural: "things".to_owned(),
    };
    let things = |api: &Api<ConfigMap>| -> Api<DynamicObject> {
        Api::namespaced_with(api.clone().into_client(), "default", &resource)
    };
    let thing = DynamicObject::new("x", &resource).data(json!({"spec": {"a": 1}}));
    let made = things(second).create(&PostParams::default(), &thing).await?;
    let read = things(first).get("x").await?;
    ensure!(read.data["spec"]["a"] == 1 && read.metadata.uid == made.metadata.uid, "{read:?}");
    Ok(())
}

/// What a path of the apiserver answers, whatever the code: the body of an error is in its text.
async fn ask(client: &kube::Client, path: &str) -> Result<String> {
    let request = http::Request::get(path).body(kube::client::Body::empty())?;
    let answer = client.send(request).await?;
    let code = answer.status().as_u16();
    let body = http_body_util::BodyExt::collect(answer.into_body()).await?.to_bytes();
    Ok(format!("{code} {}", String::from_utf8_lossy(&body)))
}

#[test]
fn an_apiserver_is_not_ready_while_etcd_is_away_and_lives_on_with_a_damaged_value() {
    on_a_runtime(async {
        let directory = tempfile::tempdir()?;
        let mut etcd = Etcd::start(EtcdVersion::V3_5, directory.path(), &[])?;
        etcd.put("/registry/configmaps/default/bad", "{\"metadata\": ")?;
        let plane = PlaneProcess::start(&directory.path().join("one"), Some(&etcd))?;
        let config = Kubeconfig::load(&plane.kubeconfig(), Timestamp::now()).await?;
        let client = config.client(&ClientOptions::default())?;
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
        let failed = maps.get("bad").await.err().context("a damaged object was shown")?.to_string();
        ensure!(failed.contains("configmaps/default/bad cannot be read: not JSON"), "{failed}");
        let failed = maps.delete("bad", &DeleteParams::default()).await.err().context("deleted")?.to_string();
        ensure!(failed.contains("cannot be read"), "{failed}");
        maps.create(&PostParams::default(), &map("good", "1")).await?;

        let wanted = "200 [+]ping ok\n[+]etcd ok\n[+]shutdown ok\nreadyz check passed\n";
        ensure!(ask(&client, "/readyz?verbose").await? == wanted);
        etcd.kill()?;
        let answer = ask(&client, "/readyz").await?;
        ensure!(answer.starts_with("500 [+]ping ok\n[-]etcd failed: reason withheld\n"), "{answer}");
        ensure!(ask(&client, "/readyz/etcd").await?.starts_with("500 internal server error: "));
        ensure!(ask(&client, "/healthz").await?.starts_with("500 "));
        ensure!(ask(&client, "/livez").await? == "200 ok", "starting anew would not help");
        etcd.restart()?;
        for _ in 0..600 {
            if ask(&client, "/readyz").await? == "200 ok" {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        anyhow::bail!("not ready again: {}", ask(&client, "/readyz?verbose").await?)
    });
}

#[test]
fn two_apiservers_on_one_etcd_are_one_cluster() {
    on_a_runtime(async {
        for version in EtcdVersion::ALL {
            let directory = tempfile::tempdir()?;
            let etcd = Etcd::start(version, directory.path(), &[])?;
            let one = PlaneProcess::start(&directory.path().join("one"), Some(&etcd))?;
            let two = one.another(&directory.path().join("two"))?;
            let (first, second) = (api(&one.kubeconfig()).await?, api(&two.kubeconfig()).await?);
            for n in 0..50 {
                let name = format!("m{n}");
                first.create(&PostParams::default(), &map(&name, "1")).await?;
                // Answered there, so seen here, at once.
                let read = second.get(&name).await.with_context(|| format!("{version:?} {name}"))?;
                let patch = Patch::Merge(json!({"data": {"v": "2"}}));
                let changed = second.patch(&name, &PatchParams::default(), &patch).await?;
                ensure!(changed.metadata.resource_version != read.metadata.resource_version);
                let back = first.get(&name).await?;
                ensure!(back == changed, "{back:?}");
                let listed = first.list(&kube::api::ListParams::default()).await?;
                ensure!(listed.items.contains(&changed), "{name} is not listed as it is");
                second.delete(&name, &DeleteParams::default()).await?;
                ensure!(first.get_opt(&name).await?.is_none(), "{name} is still there");
            }
            let tries = (0..10).map(|n| {
                let api = if n % 2 == 0 { first.clone() } else { second.clone() };
                async move { api.create(&PostParams::default(), &map("race", &n.to_string())).await }
            });
            let outcomes = futures_util::future::join_all(tries).await;
            ensure!(outcomes.iter().filter(|outcome| outcome.is_ok()).count() == 1, "{outcomes:?}");
            a_custom_kind(&first, &second).await.with_context(|| format!("{version:?}"))?;
            let keys = etcd.keys()?;
            for wanted in [
                "/registry/apiextensions.k8s.io/customresourcedefinitions/things.example.com",
                "/registry/example.com/things/default/x",
                "/registry/configmaps/default/race",
                "/registry/namespaces/kube-system",
                "/registry/services/specs/default/kubernetes",
                "/registry/serviceaccounts/default/default",
            ] {
                ensure!(keys.iter().any(|key| key == wanted), "{wanted} is not among {keys:?}");
            }
        }
        Ok(())
    });
}
