//! A registry on the environment's loopback (Debian's `docker-registry`), images to put into it, and a slow or broken line
//! before it.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use longshore_host::oci::{Entry, ImageArchive, Source};

use crate::env::{Env, Process, eventually, pause};

/// The one user of registries that want a login, and the word.
pub const USER: &str = "me";
/// See [`USER`].
pub const PASSWORD: &str = "word";
/// The same in the form that the registry reads.
const PASSWORDS: &str = "me:$2b$05$12POIgNe4JC784hOQoR6..7PYWEWdCuzjHI6KJzdY9mx.sNLVK9xK\n";

/// How a registry is to be reached.
#[derive(Debug, Clone, Default)]
pub struct RegistryOptions {
    /// Whether it wants a login.
    pub login: bool,
    /// Certificate and key, as PEM.
    pub tls: Option<(String, String)>,
}

/// A running registry. All of one environment share their storage.
#[derive(Debug)]
pub struct Registry<'env> {
    env: &'env Env,
    process: Process,
    address: String,
}

impl<'env> Registry<'env> {
    /// Starts one on 127.0.0.1 and tells containerd how to reach it.
    pub fn start(env: &'env Env, port: u16, options: &RegistryOptions) -> Result<Self> {
        let folder = env.directory().join(format!("registry-{port}"));
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join("htpasswd"), PASSWORDS)?;
        let address = format!("127.0.0.1:{port}");
        let tls = match &options.tls {
            None => String::new(),
            Some((certificate, key)) => {
                std::fs::write(folder.join("tls.crt"), certificate)?;
                std::fs::write(folder.join("tls.key"), key)?;
                let at = |name: &str| folder.join(name).display().to_string();
                format!("  tls:\n    certificate: {}\n    key: {}\n", at("tls.crt"), at("tls.key"))
            }
        };
        let auth = match options.login {
            true => format!("auth:\n  htpasswd:\n    realm: test\n    path: {}\n", folder.join("htpasswd").display()),
            false => String::new(),
        };
        let storage = storage(env).display().to_string();
        let text = format!(
            "version: 0.1\nlog:\n  accesslog:\n    disabled: false\nstorage:\n  filesystem:\n    rootdirectory: {storage}\nhttp:\n  addr: {address}\n{tls}{auth}"
        );
        let config = folder.join("config.yml");
        std::fs::write(&config, text)?;
        if options.tls.is_none() {
            trust_plain(env, &address)?;
        }
        let mut command = Command::new("docker-registry");
        command.arg("serve").arg(&config);
        let mut process = env.spawn(&format!("registry-{port}"), &mut command)?;
        let probe = address.clone();
        let up = eventually("the registry listens", Duration::from_secs(10), || {
            env.within(|| TcpStream::connect(&probe).is_ok()).unwrap_or(false)
        });
        process.check_alive()?;
        up?;
        Ok(Self { env, process, address })
    }

    /// Host and port.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Name of an image in it.
    pub fn image(&self, name: &str) -> String {
        format!("{}/{name}", self.address)
    }

    /// Requests whose line in the log holds all of the words.
    pub fn requests(&self, words: &[&str]) -> usize {
        let log = std::fs::read_to_string(self.process.log()).unwrap_or_default();
        log.lines().filter(|line| words.iter().all(|word| line.contains(word))).count()
    }

    /// Puts an image of about `bytes` into it; its layer is like no other's, and nothing of it stays in the runtime.
    pub fn push(&self, name: &str, bytes: usize) -> Result<()> {
        let image = self.image(name);
        let archive = self.env.directory().join("push.tar");
        write_image(&archive, &image, bytes)?;
        let run = |arguments: &[&str]| -> Result<String> {
            // A space of its own: the node's must not know the image.
            let mut command = Command::new(self.env.ctr(&[])?.get_program());
            command.args(["--address", &self.env.socket(), "-n", "push"]).args(arguments);
            self.env.run(&mut command)
        };
        let archive = archive.display().to_string();
        run(&["images", "import", "--local", &archive]).or_else(|_| run(&["images", "import", &archive]))?;
        let login = format!("{USER}:{PASSWORD}");
        let push = ["images", "push", "--local", "--plain-http", "--user", &login, &image];
        let without: Vec<&str> = push.iter().copied().filter(|word| *word != "--local").collect();
        run(&push).or_else(|_| run(&without))?;
        run(&["images", "rm", "--sync", &image])?;
        std::fs::remove_file(archive).map_err(Into::into)
    }

    /// Takes the layer out of the registry's storage.
    pub fn lose_layers(&self, name: &str) -> Result<()> {
        let layers = storage(self.env).join("docker/registry/v2/repositories").join(name).join("_layers/sha256");
        for entry in std::fs::read_dir(&layers).with_context(|| layers.display().to_string())?.flatten() {
            let digest = entry.file_name().to_string_lossy().into_owned();
            let blob = storage(self.env).join("docker/registry/v2/blobs/sha256").join(&digest[..2]).join(&digest);
            // The configuration is small, the layer is not.
            if std::fs::metadata(blob.join("data"))?.len() > 10_000 {
                std::fs::remove_dir_all(&blob)?;
            }
        }
        Ok(())
    }
}

fn storage(env: &Env) -> PathBuf {
    env.directory().join("registry")
}

/// Tells containerd that this address speaks HTTP without TLS.
pub fn trust_plain(env: &Env, address: &str) -> Result<()> {
    tell(
        env,
        address,
        &format!(
            "server = \"http://{address}\"\n\n[host.\"http://{address}\"]\ncapabilities = [\"pull\", \"resolve\"]\n"
        ),
    )
}

/// Writes containerd's file for a registry.
pub fn tell(env: &Env, address: &str, text: &str) -> Result<()> {
    env.within(|| {
        let folder = PathBuf::from("/etc/containerd/certs.d").join(address);
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join("hosts.toml"), text)
    })?
    .map_err(Into::into)
}

fn write_image(path: &std::path::Path, name: &str, bytes: usize) -> Result<()> {
    let program = ["/bin/busybox", "/usr/bin/busybox"].into_iter().map(std::path::Path::new).find(|path| path.exists());
    let Some(program) = program else { bail!("no busybox: apt-get install busybox-static") };
    let mut noise = vec![0; bytes.max(1)];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut noise)?;
    let file = |path: &str, mode, source| Entry::File { path: path.to_owned(), mode, source };
    let image = ImageArchive {
        name: name.to_owned(),
        entries: vec![
            Entry::Directory { path: "/bin".to_owned(), mode: 0o755 },
            file("/bin/busybox", 0o755, Source::Path(program.to_path_buf())),
            Entry::Link { path: "/bin/sh".to_owned(), target: "busybox".to_owned() },
            Entry::Link { path: "/bin/sleep".to_owned(), target: "busybox".to_owned() },
            Entry::Link { path: "/bin/cat".to_owned(), target: "busybox".to_owned() },
            file("/noise", 0o644, Source::Bytes(noise)),
            file("/name", 0o644, Source::Bytes(name.as_bytes().to_vec())),
        ],
        command: vec!["sleep".to_owned(), "3600".to_owned()],
        ..ImageArchive::default()
    };
    image.write(path)?;
    Ok(())
}

#[derive(Debug, Default)]
struct LineState {
    /// Bytes per second towards the caller; 0 = as fast as can be.
    rate: AtomicU64,
    /// All connections break, and new ones at once.
    broken: AtomicBool,
    ended: AtomicBool,
}

/// A line before a registry that can be made slow or broken.
#[derive(Debug)]
pub struct Line {
    state: Arc<LineState>,
    address: String,
}

impl Line {
    /// Listens on `port` and passes on to `to`; containerd is told of it.
    pub fn start(env: &Env, port: u16, to: &str) -> Result<Self> {
        let address = format!("127.0.0.1:{port}");
        trust_plain(env, &address)?;
        let state = Arc::new(LineState::default());
        let (shared, to, listen) = (Arc::clone(&state), to.to_owned(), address.clone());
        // Threads started inside stay inside.
        env.within(move || -> Result<()> {
            let listener = TcpListener::bind(&listen).with_context(|| format!("listen on {listen}"))?;
            std::thread::spawn(move || {
                for caller in listener.incoming().flatten() {
                    if shared.ended.load(Ordering::SeqCst) {
                        return;
                    }
                    let (shared, to) = (Arc::clone(&shared), to.clone());
                    std::thread::spawn(move || drop(pass(&caller, &to, &shared)));
                }
            });
            Ok(())
        })??;
        Ok(Self { state, address })
    }

    /// Name of an image behind it.
    pub fn image(&self, name: &str) -> String {
        format!("{}/{name}", self.address)
    }

    /// Bytes per second; 0 = as fast as can be.
    pub fn set_rate(&self, bytes: u64) {
        self.state.rate.store(bytes, Ordering::SeqCst);
    }

    /// Breaks all connections, and new ones at once, until it is mended.
    pub fn set_broken(&self, broken: bool) {
        self.state.broken.store(broken, Ordering::SeqCst);
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.state.ended.store(true, Ordering::SeqCst);
    }
}

fn pass(caller: &TcpStream, to: &str, state: &Arc<LineState>) -> Result<()> {
    let registry = TcpStream::connect(to)?;
    let (mut from_caller, mut to_registry) = (caller.try_clone()?, registry.try_clone()?);
    std::thread::spawn(move || {
        drop(std::io::copy(&mut from_caller, &mut to_registry));
        drop(to_registry.shutdown(Shutdown::Write));
    });
    let (mut from, mut out) = (&registry, caller);
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let count = from.read(&mut buffer)?;
        if count == 0 {
            drop(caller.shutdown(Shutdown::Write));
            return Ok(());
        }
        if state.broken.load(Ordering::SeqCst) || state.ended.load(Ordering::SeqCst) {
            drop(caller.shutdown(Shutdown::Both));
            drop(registry.shutdown(Shutdown::Both));
            bail!("broken");
        }
        out.write_all(&buffer[..count])?;
        let count = u64::try_from(count)?;
        let rate = state.rate.load(Ordering::SeqCst);
        if let Some(micros) = (count * 1_000_000).checked_div(rate) {
            pause(Duration::from_micros(micros));
        }
    }
}

/// The text of a secret of type `kubernetes.io/dockerconfigjson` for an address.
pub fn docker_config(address: &str, user: &str, password: &str) -> String {
    let login = serde_json::json!({"username": user, "password": password});
    let mut auths = serde_json::Map::new();
    auths.insert(address.to_owned(), login);
    serde_json::json!({ "auths": auths }).to_string()
}

/// Fails unless the registry program is here.
pub fn needs_program() -> Result<()> {
    let found = ["/usr/bin/docker-registry", "/usr/sbin/docker-registry"]
        .iter()
        .any(|path| std::path::Path::new(path).exists());
    ensure!(found, "no docker-registry: .ci/install installs it");
    Ok(())
}
