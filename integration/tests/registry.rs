//! Images from a real registry: logins right, wrong and absent, one pull for many pods, lines that are slow or break, a
//! certificate that nobody knows, a layer that is lost, programs that give logins, images as volumes.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use longshore_integration::cluster::{Cluster, ClusterOptions};
use longshore_integration::env::{Env, Version, eventually, newest};
use longshore_integration::registry::{self, Line, PASSWORD, Registry, RegistryOptions, USER};
use longshore_integration::tools;
use longshore_transport::pki::{Authority, LeafRequest, SubjectAltName};
use serde_json::{Value, json};

const MIB: usize = 1 << 20;

/// A node, and what its pods are made with.
struct Node<'env> {
    cluster: Cluster<'env>,
}

impl Node<'_> {
    fn create(&self, object: &Value) -> Result<()> {
        let file = self.cluster.env().directory().join("object.json");
        std::fs::write(&file, object.to_string())?;
        self.cluster.kubectl(&["create", "--validate=false", "-f", &file.display().to_string()]).map(drop)
    }

    /// Makes a pod; `more` goes into its spec.
    fn pod(&self, name: &str, image: &str, more: &Value) -> Result<()> {
        let mut spec = json!({
            "nodeName": Cluster::NODE, "terminationGracePeriodSeconds": 0, "automountServiceAccountToken": false,
            "containers": [{
                "name": "c", "image": image, "imagePullPolicy": "IfNotPresent", "command": ["sleep", "3600"],
            }],
        });
        for (key, value) in more.as_object().into_iter().flatten() {
            spec[key] = value.clone();
        }
        self.create(&json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}))
    }

    fn secret(&self, name: &str, text: &str) -> Result<()> {
        self.create(&json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name},
            "type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": text},
        }))
    }

    fn ready(&self, name: &str, within: Duration) -> Result<()> {
        let timeout = format!("--timeout={}s", within.as_secs());
        let waited = self.cluster.kubectl(&["wait", "--for=condition=Ready", &format!("pod/{name}"), &timeout]);
        waited.map(drop).with_context(|| self.waiting(name).unwrap_or_default())
    }

    /// Reason and message of the waiting container.
    fn waiting(&self, name: &str) -> Result<String> {
        let path = "jsonpath={.status.containerStatuses[0].state.waiting.reason}: \
                    {.status.containerStatuses[0].state.waiting.message}";
        self.cluster.kubectl(&["get", "pod", name, "-o", path])
    }

    /// Waits until a pull has failed, and returns what is said of it.
    fn refused(&self, name: &str) -> Result<String> {
        let mut said = String::new();
        eventually("the pull fails", Duration::from_secs(45), || {
            said = self.waiting(name).unwrap_or_default();
            said.starts_with("ErrImagePull") || said.starts_with("ImagePullBackOff")
        })
        .with_context(|| format!("{name}: {said}"))?;
        Ok(said)
    }

    /// Waits until `longshore ps` shows the pull of an image with its bytes.
    fn pulls(&self, image: &str) -> Result<()> {
        let env = self.cluster.env();
        let mut shown = String::new();
        eventually("ps shows the pull", Duration::from_secs(20), || {
            let mut ps = std::process::Command::new(tools::built("longshore").unwrap());
            ps.args(["ps", "--runtime-endpoint", &env.endpoint()]);
            shown = env.run(&mut ps).unwrap_or_default();
            shown.lines().any(|line| line.contains(image) && line.contains("MiB"))
        })
        .with_context(|| shown)
    }

    fn delete(&self, names: &[&str]) -> Result<()> {
        let mut words = vec!["delete", "pod", "--timeout=30s"];
        words.extend(names);
        self.cluster.kubectl(&words).map(drop)
    }
}

fn secrets(name: &str) -> Value {
    json!({"imagePullSecrets": [{"name": name}]})
}

/// A program that gives the login for one registry.
fn provider(env: &Env, address: &str) -> Result<Vec<String>> {
    let folder = env.directory().join("providers");
    std::fs::create_dir_all(&folder)?;
    let answer = json!({
        "kind": "CredentialProviderResponse", "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
        "cacheKeyType": "Registry", "auth": {address: {"username": USER, "password": PASSWORD}},
    });
    let program = folder.join("login");
    std::fs::write(&program, format!("#!/bin/sh\ncat >>{}\necho '{answer}'\n", folder.join("asked").display()))?;
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755))?;
    let config = json!({
        "apiVersion": "kubelet.config.k8s.io/v1", "kind": "CredentialProviderConfig",
        "providers": [{
            "name": "login", "matchImages": [address], "defaultCacheDuration": "10m",
            "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
        }],
    });
    let file = folder.join("config.json");
    std::fs::write(&file, config.to_string())?;
    Ok(vec![
        format!("--image-credential-provider-config={}", file.display()),
        format!("--image-credential-provider-bin-dir={}", folder.display()),
    ])
}

fn images_come_from_a_registry(version: Version) -> Result<()> {
    registry::needs_program()?;
    let env = Env::start_with_registries(version)?;
    let login = RegistryOptions { login: true, ..RegistryOptions::default() };
    let open = Registry::start(&env, 5000, &RegistryOptions::default())?;
    let closed = Registry::start(&env, 5001, &login)?;
    let helped = Registry::start(&env, 5002, &login)?;
    let line = Line::start(&env, 5003, open.address())?;
    for (name, bytes) in [("small:1", MIB / 8), ("big:1", 6 * MIB), ("lost:1", MIB / 8), ("cut:1", 4 * MIB)] {
        open.push(name, bytes)?;
    }
    closed.push("private:1", MIB / 8)?;
    helped.push("helped:1", MIB / 8)?;
    let flags = provider(&env, helped.address())?;
    let cluster = Cluster::start(&env, ClusterOptions { flags, ..ClusterOptions::default() })?;
    let mut node = Node { cluster };
    logins(&mut node, &closed).context("logins")?;
    helper(&node, &helped).context("a program that gives logins")?;
    one_pull(&node, &open, &line).context("one pull for many")?;
    faults(&node, &open, &line).context("faults")?;
    certificate(&node).context("certificate")?;
    volume(&node, &open, version).context("image volume")
}

/// The right secret lets in, the wrong one and none do not, also when the image is here and the agent is a new one.
fn logins(node: &mut Node<'_>, registry: &Registry<'_>) -> Result<()> {
    let image = registry.image("private:1");
    node.secret("right", &registry::docker_config(registry.address(), USER, PASSWORD))?;
    node.secret("wrong", &registry::docker_config("https://127.0.0.1:5001/v2/", USER, "no"))?;
    node.pod("absent", &image, &json!({}))?;
    node.pod("wrong", &image, &secrets("wrong"))?;
    for name in ["absent", "wrong"] {
        let said = node.refused(name)?;
        ensure!(said.contains("401") || said.contains("authorization failed"), "{name}: {said}");
    }
    node.pod("right", &image, &secrets("right"))?;
    node.ready("right", Duration::from_secs(30))?;
    let records = node.cluster.env().within(|| {
        let read = |name: &str| -> Vec<String> {
            let files = std::fs::read_dir(format!("/var/lib/kubelet/image_manager/{name}")).unwrap().flatten();
            files.map(|file| std::fs::read_to_string(file.path()).unwrap()).collect()
        };
        (read("pulling"), read("pulled"))
    })?;
    ensure!(records.0.is_empty(), "{records:?}");
    ensure!(
        records.1.iter().any(|text| text.contains("\"127.0.0.1:5001/private\"") && text.contains("right")),
        "{records:?}"
    );
    node.cluster.kill_agent()?;
    node.cluster.start_agent()?;
    node.cluster.wait_ready(Duration::from_secs(30))?;
    node.pod("stranger", &image, &json!({}))?;
    let said = node.refused("stranger")?;
    ensure!(said.contains("401") || said.contains("authorization failed"), "stranger: {said}");
    let let_in = || registry.requests(&["/v2/private/manifests/", "\" 200 "]);
    let before = let_in();
    node.pod("friend", &image, &secrets("right"))?;
    node.ready("friend", Duration::from_secs(30))?;
    ensure!(let_in() == before, "a known login pulled anew");
    node.delete(&["absent", "wrong", "right", "stranger", "friend"])
}

fn helper(node: &Node<'_>, registry: &Registry<'_>) -> Result<()> {
    node.pod("helped", &registry.image("helped:1"), &json!({}))?;
    node.ready("helped", Duration::from_secs(30))?;
    let asked = std::fs::read_to_string(node.cluster.env().directory().join("providers/asked"))?;
    ensure!(asked.contains("\"image\":\"127.0.0.1:5002/helped\""), "{asked}");
    // The node's own login: all pods may use what came by it.
    node.pod("beside", &registry.image("helped:1"), &json!({"restartPolicy": "Never"}))?;
    node.ready("beside", Duration::from_secs(30))?;
    node.delete(&["helped", "beside"])
}

/// Ten pods that want the same big image over a slow line make one pull; a small one does not wait for it; `ps` tells.
fn one_pull(node: &Node<'_>, registry: &Registry<'_>, line: &Line) -> Result<()> {
    line.set_rate(MIB as u64 / 3);
    let resolved = || registry.requests(&["HEAD /v2/big/manifests/1"]);
    let before = resolved();
    let names: Vec<String> = (0..10).map(|number| format!("big-{number}")).collect();
    for name in &names {
        node.pod(name, &line.image("big:1"), &json!({}))?;
    }
    node.pulls(&line.image("big:1"))?;
    let begin = Instant::now();
    node.pod("small", &registry.image("small:1"), &json!({}))?;
    node.ready("small", Duration::from_secs(20))?;
    tools::say(&format!("a small image beside a big one: {:?}", begin.elapsed()));
    line.set_rate(0);
    for name in &names {
        node.ready(name, Duration::from_secs(60))?;
    }
    ensure!(resolved() - before == 1, "{} pulls", resolved() - before);
    let mut all: Vec<&str> = names.iter().map(String::as_str).collect();
    all.push("small");
    node.delete(&all)
}

/// A line that breaks and a layer that is lost fail one pod; both are told, and the first heals.
fn faults(node: &Node<'_>, registry: &Registry<'_>, line: &Line) -> Result<()> {
    line.set_rate(MIB as u64 / 2);
    node.pod("cut", &line.image("cut:1"), &json!({}))?;
    node.pulls(&line.image("cut:1"))?;
    line.set_broken(true);
    let said = node.refused("cut")?;
    ensure!(said.contains("failed to pull and unpack image"), "cut: {said}");
    registry.lose_layers("lost")?;
    node.pod("lost", &registry.image("lost:1"), &json!({}))?;
    let said = node.refused("lost")?;
    ensure!(said.contains("not found") || said.contains("404"), "lost: {said}");
    line.set_rate(0);
    line.set_broken(false);
    node.ready("cut", Duration::from_secs(60))?;
    node.delete(&["cut", "lost"])
}

/// A certificate that nobody vouches for is told as such; once it is trusted the pod starts.
fn certificate(node: &Node<'_>) -> Result<()> {
    let env = node.cluster.env();
    let now = longshore_util::clock::Clock::now(&longshore_util::clock::SystemClock);
    let authority = Authority::generate("test", Duration::from_secs(86_400), now)?;
    let names = vec![SubjectAltName::Ip("127.0.0.1".parse()?)];
    let leaf = authority.issue(&LeafRequest::server("registry", names), now)?;
    let tls = Some((leaf.certificate_pem.clone(), leaf.key_pem.clone()));
    let registry = Registry::start(env, 5004, &RegistryOptions { tls, login: false })?;
    let address = registry.address();
    // Said twice: for an address of the machine's own, older ones would speak plain HTTP.
    let reach = format!(
        "server = \"https://{address}\"\n\n[host.\"https://{address}\"]\ncapabilities = [\"pull\", \"resolve\"]\n"
    );
    registry::tell(env, address, &reach)?;
    node.pod("certificate", &registry.image("small:1"), &json!({}))?;
    let said = node.refused("certificate")?;
    ensure!(said.contains("x509") || said.contains("certificate"), "{said}");
    let file = env.directory().join("registry-ca.crt");
    std::fs::write(&file, &authority.keyed().certificate_pem)?;
    let trusted = format!("{reach}ca = \"{}\"\n", file.display());
    registry::tell(env, address, &trusted)?;
    node.ready("certificate", Duration::from_secs(60))?;
    node.delete(&["certificate"])
}

/// An image as a volume where the runtime can; elsewhere one clear sentence.
fn volume(node: &Node<'_>, registry: &Registry<'_>, version: Version) -> Result<()> {
    let spec = |sub_path: &str| {
        let mut mount = json!({"name": "v", "mountPath": "/v"});
        if !sub_path.is_empty() {
            mount["subPath"] = json!(sub_path);
        }
        json!({
            "volumes": [{"name": "v", "image": {"reference": registry.image("small:1"), "pullPolicy": "IfNotPresent"}}],
            "containers": [{
                "name": "c", "image": "localhost/busybox:1", "command": ["sleep", "3600"], "volumeMounts": [mount],
            }],
        })
    };
    let refused = |name: &str| -> Result<String> {
        let mut said = String::new();
        eventually("the container is refused", Duration::from_secs(30), || {
            said = node.waiting(name).unwrap_or_default();
            said.starts_with("CreateContainerConfigError")
        })
        .with_context(|| said.clone())?;
        Ok(said)
    };
    node.pod("volume", "", &spec(""))?;
    if version == Version::V2_1 {
        node.ready("volume", Duration::from_secs(30))?;
        let read = node.cluster.kubectl(&["exec", "volume", "--", "cat", "/v/name"])?;
        ensure!(read == registry.image("small:1"), "{read}");
        ensure!(node.cluster.kubectl(&["exec", "volume", "--", "touch", "/v/x"]).is_err(), "the volume is writable");
        node.pod("folder", "", &spec("bin"))?;
        let said = refused("folder")?;
        ensure!(said.contains("cannot mount a folder of an image (subPath), containerd 2.2 can"), "{said}");
        return node.delete(&["volume", "folder"]);
    }
    let said = refused("volume")?;
    ensure!(said.contains("cannot mount images, containerd 2.1 can"), "{said}");
    node.delete(&["volume"])
}

#[test]
fn root_images_come_from_a_registry_on_the_newest_containerd() {
    images_come_from_a_registry(newest()).unwrap();
}

#[test]
fn root_images_come_from_a_registry_on_debian_12_containerd() {
    images_come_from_a_registry(Version::V1_6).unwrap();
}
