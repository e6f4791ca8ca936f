//! `longshore up` in a containerd of others: it refuses one with pods, leaves everything else in it alone, and `down`
//! removes nothing but its own.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use longshore_cri::{ClientOptions, CriClient, ImageService as _, RuntimeService as _, labels, v1};
use longshore_integration::env::{BUSYBOX_IMAGE, Env, Process, eventually, newest};
use longshore_integration::tools;

struct Strangers {
    env: Env,
}

impl Strangers {
    fn longshore(&self, arguments: &[&str]) -> Result<Command> {
        let mut command = Command::new(tools::built("longshore")?);
        command.args(arguments).env("PATH", self.env.search_path()?).env_remove("KUBECONFIG").env("HOME", "/root");
        Ok(command)
    }

    fn up(&self) -> Result<Process> {
        let (endpoint, flags) = (self.env.endpoint(), format!("--cgroup-root={}", self.env.cgroup_root()));
        let words = ["up", "--runtime-endpoint", &endpoint, "--", &flags];
        let mut process = self.env.spawn("up", &mut self.longshore(&words)?)?;
        let mut failure = None;
        eventually("up is ready or has failed", Duration::from_secs(60), || {
            failure = process.check_alive().err();
            failure.is_some() || self.there("/run/longshore/ready")
        })?;
        failure.map_or(Ok(process), Err)
    }

    fn there(&self, path: &str) -> bool {
        self.env.within(|| std::path::Path::new(path).exists()).unwrap_or(false)
    }

    /// A sandbox with one running container, as somebody else's program makes it.
    fn make_pod(&self, name: &'static str, uid: Option<&'static str>) -> Result<()> {
        let (endpoint, cgroup) = (self.env.endpoint(), format!("{}/strangers", self.env.cgroup_root()));
        self.env.block_on(move || async move {
            let client = CriClient::connect(&endpoint, ClientOptions::default())?;
            let labels = uid.map(|uid| (labels::POD_UID.to_owned(), uid.to_owned())).into_iter().collect();
            let config = v1::PodSandboxConfig {
                metadata: Some(v1::PodSandboxMetadata {
                    name: name.to_owned(),
                    uid: format!("{name}-uid"),
                    namespace: "theirs".to_owned(),
                    attempt: 0,
                }),
                labels,
                linux: Some(v1::LinuxPodSandboxConfig { cgroup_parent: cgroup, ..Default::default() }),
                ..Default::default()
            };
            let request = v1::RunPodSandboxRequest { config: Some(config.clone()), ..Default::default() };
            let pod_sandbox_id = client.run_pod_sandbox(request).await?.pod_sandbox_id;
            let container = v1::ContainerConfig {
                metadata: Some(v1::ContainerMetadata { name: name.to_owned(), attempt: 0 }),
                image: Some(v1::ImageSpec { image: BUSYBOX_IMAGE.to_owned(), ..Default::default() }),
                command: vec!["sleep".to_owned(), "1000".to_owned()],
                ..Default::default()
            };
            let request =
                v1::CreateContainerRequest { pod_sandbox_id, config: Some(container), sandbox_config: Some(config) };
            let container_id = client.create_container(request).await?.container_id;
            client.start_container(v1::StartContainerRequest { container_id }).await?;
            Ok(())
        })
    }

    /// All that the runtime holds and runs, but what is ours: sandboxes, containers, images, tasks of all namespaces.
    fn inventory(&self) -> Result<Vec<String>> {
        let endpoint = self.env.endpoint();
        let mut found = self.env.block_on(move || async move {
            let client = CriClient::connect(&endpoint, ClientOptions::default())?;
            let mut found = Vec::new();
            for one in client.list_pod_sandbox(v1::ListPodSandboxRequest::default()).await?.items {
                if one.metadata.as_ref().is_some_and(|metadata| metadata.namespace == "theirs") {
                    found.push(format!("sandbox {} {:?}", one.id, one.state()));
                }
            }
            for one in client.list_containers(v1::ListContainersRequest::default()).await?.containers {
                if !one.labels.contains_key(labels::POD_UID) {
                    found.push(format!("container {} {:?}", one.id, one.state()));
                }
            }
            for one in client.list_images(v1::ListImagesRequest::default()).await?.images {
                found.extend(one.repo_tags.into_iter().map(|tag| format!("image {tag}")));
            }
            Ok(found)
        })?;
        for namespace in ["other", "moby"] {
            for what in ["containers", "images", "tasks"] {
                let text = self.env.run(&mut self.in_namespace(namespace, &[what, "ls"])?)?;
                found.extend(text.lines().skip(1).map(|line| format!("{namespace} {what} {line}")));
            }
        }
        found.sort();
        Ok(found)
    }

    /// A `ctr` command in a containerd namespace that is not Kubernetes'.
    fn in_namespace(&self, namespace: &str, arguments: &[&str]) -> Result<Command> {
        let mut command = self.env.ctr(&[])?;
        command.args(["-n", namespace]).args(arguments);
        Ok(command)
    }
}

#[test]
fn root_up_in_a_runtime_of_others_touches_nothing_but_its_own() {
    if let Err(error) = others_are_left_alone() {
        panic!("{error:#}");
    }
}

fn others_are_left_alone() -> Result<()> {
    let place = Strangers { env: Env::start(newest())? };
    let env = &place.env;
    // Somebody's pod without our labels, containers in other namespaces, and what another kubelet left on the machine.
    place.make_pod("plain", None)?;
    let export = env.directory().join("busybox-again.tar").display().to_string();
    env.run(&mut env.ctr(&["images", "export", &export, BUSYBOX_IMAGE])?)?;
    for namespace in ["other", "moby"] {
        env.run(&mut place.in_namespace(namespace, &["images", "import", &export])?)?;
        let cgroup = format!("{}/strangers/{namespace}", env.cgroup_root());
        let run = ["run", "-d", "--cgroup", &cgroup, BUSYBOX_IMAGE, "theirs", "sleep", "1000"];
        env.run(&mut place.in_namespace(namespace, &run)?)?;
    }
    let left = [
        "/var/lib/kubelet/pods/0b0e6d3e-0000-4000-8000-000000000001/volumes/data",
        "/var/log/pods/theirs_old_0b0e6d3e-0000-4000-8000-000000000001/c/0.log",
    ];
    for file in left {
        env.run(Command::new("install").args(["-D", "/etc/hostname", file]))?;
    }
    let before = place.inventory()?;
    ensure!(before.iter().filter(|line| line.contains("tasks")).count() == 2, "{before:?}");

    let mut up = place.up()?;
    env.run(&mut place.longshore(&["apply", "-f", &pod_file(env)?])?)?;
    let running = || {
        let text = place.longshore(&["get", "pod", "ours", "-o", "json"]).and_then(|mut get| env.run(&mut get));
        text.is_ok_and(|text| text.contains("\"phase\": \"Running\""))
    };
    eventually("our pod runs", Duration::from_secs(20), running)?;
    // A pod that another agent makes while ours runs; then time for a collection, and one after a restart.
    place.make_pod("labelled", Some("0b0e6d3e-0000-4000-8000-000000000002"))?;
    up.kill()?;
    env.within(|| std::fs::remove_file("/run/longshore/ready"))??;
    let up = place.up().context("a second up on the same runtime")?;
    eventually("our pod is found", Duration::from_secs(20), running)?;
    longshore_integration::env::pause(Duration::from_secs(2));
    let during = place.inventory()?;
    for line in &before {
        ensure!(during.contains(line), "{line} is gone; there is {during:?}\n{}", up.tail());
    }
    let theirs = during.iter().filter(|line| line.starts_with("sandbox") && line.contains("SandboxReady")).count();
    ensure!(theirs == 2, "the pod of another agent was touched: {during:?}\n{}", up.tail());

    env.run(&mut place.longshore(&["down", "--purge"])?)?;
    let after = place.inventory()?;
    for line in during.iter().filter(|line| !line.starts_with("image localhost/pause")) {
        ensure!(after.contains(line), "down took {line}; there is {after:?}");
    }
    for file in left {
        ensure!(place.there(file), "{file} of another agent was removed");
    }
    ensure!(!env.run(&mut env.ctr(&["tasks", "ls"])?)?.is_empty());
    let endpoint = env.endpoint();
    let ours = env.block_on(move || async move {
        let client = CriClient::connect(&endpoint, ClientOptions::default())?;
        Ok(client.list_pod_sandbox(v1::ListPodSandboxRequest::default()).await?.items)
    })?;
    ensure!(ours.len() == 2, "ours is left in the runtime: {ours:?}");

    // With somebody's pod in it, the runtime is refused in one line that says what to do.
    let error = place.up().map(drop).err().context("up goes into a runtime with pods of others")?;
    let text = format!("{error:#}");
    ensure!(text.contains("holds 1 pods that longshore did not make"), "{text}");
    ensure!(text.contains("leave --runtime-endpoint out"), "{text}");
    Ok(())
}

fn pod_file(env: &Env) -> Result<String> {
    let path = env.directory().join("ours.json");
    let pod = serde_json::json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "ours"},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [{
            "name": "c", "image": BUSYBOX_IMAGE, "imagePullPolicy": "Never", "command": ["sleep", "1000"]}]},
    });
    std::fs::write(&path, pod.to_string())?;
    Ok(path.display().to_string())
}
