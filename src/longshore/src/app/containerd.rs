//! Our own containerd: config, state and socket below `/run/longshore`, root below `/var/lib/longshore`. Never the
//! system's or Docker's. It outlives us on purpose and is found again by its socket and process id.

use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use longshore_cri::{ClientOptions, CriClient, ImageService as _, v1};
use longshore_host::oci::PAUSE_IMAGE;

use super::cni;
use super::fail::Hint;
use super::paths::Paths;
use super::process::{Known, find_program, run};

/// Until a fresh containerd answers; a cold disk is slow.
const START: Duration = Duration::from_secs(30);
/// Until a plain question to it is answered.
const ANSWER: Duration = Duration::from_secs(10);

/// A container runtime's program on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Installed {
    pub(crate) program: PathBuf,
    pub(crate) version: String,
    pub(crate) major: u32,
}

/// Returns the containerd on this machine.
pub(crate) async fn installed() -> Option<Installed> {
    let program = find_program("containerd")?;
    let text = run(&program, &["--version"], ANSWER).await.ok()?;
    let version = version_of(&text)?;
    let major = version.split('.').next()?.parse().ok()?;
    Some(Installed { program, version, major })
}

/// `containerd github.com/containerd/containerd/v2 2.1.9 …`, `… v1.7.24 …`, `… 1.6.20~ds1 …`
fn version_of(text: &str) -> Option<String> {
    let word = text.split_whitespace().nth(2)?.trim_start_matches('v');
    let end = word.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(word.len());
    let version = word[..end].trim_end_matches('.');
    version.starts_with(|letter: char| letter.is_ascii_digit()).then(|| version.to_owned())
}

/// Our containerd, running.
#[derive(Debug, Clone)]
pub(crate) struct Running {
    /// `unix://…`
    pub(crate) endpoint: String,
    /// What it says of itself.
    pub(crate) version: String,
    /// Whether it ran already.
    pub(crate) found: bool,
}

/// The word of its command line by which our containerd is known.
fn mark(paths: &Paths) -> String {
    paths.containerd_config().display().to_string()
}

/// Returns our containerd's process if it runs.
pub(crate) fn process(paths: &Paths) -> Option<Known> {
    Known::from_file(&paths.containerd_pid(), &mark(paths))
        .or_else(|| Known::all(&format!("--config {}", mark(paths))).into_iter().next())
}

/// The endpoint of our containerd.
pub(crate) fn endpoint(paths: &Paths) -> String {
    format!("unix://{}", paths.containerd_socket().display())
}

/// Finds our containerd running or starts it, and waits until it answers.
pub(crate) async fn ensure(paths: &Paths, installed: &Installed, cni_config: &Path) -> Result<Running> {
    let endpoint = endpoint(paths);
    let client = CriClient::connect(&endpoint, ClientOptions { request_timeout: ANSWER, ..ClientOptions::default() })?;
    if process(paths).is_some()
        && let Ok(version) = client.check().await
    {
        return Ok(Running { endpoint, version: version.runtime_version, found: true });
    }
    if let Some(silent) = process(paths) {
        // It runs but does not answer within the deadline: shims and containers survive its restart.
        silent.stop(Duration::from_secs(5)).await;
    }
    start(paths, installed, cni_config)?;
    let version = wait(paths, &client).await?;
    Ok(Running { endpoint, version, found: false })
}

fn start(paths: &Paths, installed: &Installed, cni_config: &Path) -> Result<()> {
    for folder in [paths.containerd_root(), paths.containerd_state()] {
        std::fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
    }
    let facts = Facts {
        restrict_oom: !may_lower_oom_score(),
        plugins: cni::plugin_folder().unwrap_or_else(|| PathBuf::from(cni::PLUGIN_FOLDERS[0])),
        cni_config: cni_config.to_path_buf(),
    };
    let config = paths.containerd_config();
    longshore_util::atomic::write(&config, config_text(paths, installed.major, &facts).as_bytes(), 0o600)
        .with_context(|| format!("write {}", config.display()))?;
    let log = File::options()
        .create(true)
        .append(true)
        .open(paths.containerd_log())
        .with_context(|| format!("open {}", paths.containerd_log().display()))?;
    let path = std::env::var("PATH").unwrap_or_default();
    let folder = installed.program.parent().unwrap_or_else(|| Path::new("/usr/bin"));
    let child = std::process::Command::new(&installed.program)
        .arg("--config")
        .arg(&config)
        .env("PATH", format!("{}:{path}:/usr/sbin:/usr/bin:/sbin:/bin", folder.display()))
        // Variables meant for us (a registry proxy is meant for it) stay; a service manager's socket is not.
        .env_remove("NOTIFY_SOCKET")
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        // Ctrl-C goes to the terminal's group: containerd is to outlive it.
        .process_group(0)
        .spawn()
        .with_context(|| format!("start {}", installed.program.display()))?;
    longshore_util::atomic::write(&paths.containerd_pid(), format!("{}\n", child.id()).as_bytes(), 0o644)?;
    Ok(())
}

async fn wait(paths: &Paths, client: &CriClient) -> Result<String> {
    let mut last = None;
    let answered = async {
        loop {
            match client.check().await {
                Ok(version) => return Some(version.runtime_version),
                Err(error) => last = Some(error),
            }
            process(paths)?;
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
    };
    let outcome = tokio::time::timeout(START, answered).await;
    if let Ok(Some(version)) = outcome {
        return Ok(version);
    }
    let words = last_error_line(&paths.containerd_log());
    let hint = format!("see {}", paths.containerd_log().display());
    match outcome {
        Ok(_) => Err(Hint::error(format!("containerd ended at its start{words}"), hint)),
        Err(_) => {
            let error = Hint::new(format!("containerd does not answer after {} s{words}", START.as_secs()), hint);
            Err(last.map_or_else(|| anyhow::anyhow!("no answer"), anyhow::Error::from).context(error))
        }
    }
}

/// The last line of a log that looks like a failure, as `: text`, or nothing.
fn last_error_line(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let line = text.lines().rev().find(|line| line.contains("level=fatal") || line.contains("level=error"));
    let line = line.or_else(|| text.lines().rev().find(|line| line.starts_with("containerd:")));
    // A program that never came as far as its own log says why in its own way.
    let line = line.or_else(|| text.lines().rev().find(|line| !line.trim().is_empty()));
    line.map(|line| format!(": {}", line.split_once("msg=").map_or(line, |(_, message)| message))).unwrap_or_default()
}

#[derive(Debug)]
struct Facts {
    restrict_oom: bool,
    plugins: PathBuf,
    cni_config: PathBuf,
}

/// Whether this process may make others less likely to be killed: containers are given scores below ours.
fn may_lower_oom_score() -> bool {
    const CAP_SYS_RESOURCE: u32 = 24;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|text| u64::from_str_radix(text.trim(), 16).ok())
        .is_some_and(|set| set & (1 << CAP_SYS_RESOURCE) != 0)
}

fn config_text(paths: &Paths, major: u32, facts: &Facts) -> String {
    let Facts { restrict_oom, plugins, cni_config } = facts;
    let (plugins, cni_config) = (plugins.display(), cni_config.display());
    let root = paths.containerd_root();
    let head = format!(
        "root = '{root}'\n\
         state = '{state}'\n\n\
         [grpc]\n\
         address = '{socket}'\n\n\
         [plugins.'io.containerd.internal.v1.opt']\n\
         path = '{root}/opt'\n\n",
        root = root.display(),
        state = paths.containerd_state().display(),
        socket = paths.containerd_socket().display(),
    );
    if major >= 2 {
        format!(
            "# made by longshore up; written anew at each start of this containerd\n\
             version = 3\n{head}\
             [plugins.'io.containerd.cri.v1.images'.pinned_images]\n\
             sandbox = '{PAUSE_IMAGE}'\n\n\
             [plugins.'io.containerd.cri.v1.runtime']\n\
             restrict_oom_score_adj = {restrict_oom}\n\n\
             [plugins.'io.containerd.cri.v1.runtime'.cni]\n\
             bin_dirs = ['{plugins}']\n\
             conf_dir = '{cni_config}'\n"
        )
    } else {
        format!(
            "# made by longshore up; written anew at each start of this containerd\n\
             version = 2\n{head}\
             [plugins.'io.containerd.grpc.v1.cri']\n\
             sandbox_image = '{PAUSE_IMAGE}'\n\
             restrict_oom_score_adj = {restrict_oom}\n\n\
             [plugins.'io.containerd.grpc.v1.cri'.cni]\n\
             bin_dir = '{plugins}'\n\
             conf_dir = '{cni_config}'\n"
        )
    }
}

/// Imports an image archive unless the runtime has the image; returns whether it was imported.
pub(crate) async fn import(
    client: &CriClient,
    socket: &Path,
    name: &str,
    make: impl FnOnce(&Path) -> Result<()> + Send + 'static,
    scratch: &Path,
) -> Result<bool> {
    if has_image(client, name).await? {
        return Ok(false);
    }
    let ctr = find_program("ctr")
        .ok_or_else(|| Hint::error("no ctr program to import images with", "apt-get install containerd"))?;
    let archive = scratch.join(format!("{}.tar", name.replace(['/', ':'], "-")));
    let file = archive.clone();
    tokio::task::spawn_blocking(move || make(&file)).await.context("write the image archive")??;
    let arguments = [
        "--address",
        &socket.display().to_string(),
        "-n",
        "k8s.io",
        "images",
        "import",
        &archive.display().to_string(),
    ];
    let imported = run(&ctr, &arguments, Duration::from_secs(120)).await;
    drop(std::fs::remove_file(&archive));
    imported.with_context(|| format!("import image {name}"))?;
    // The CRI side learns of it by an event.
    let seen = async {
        while !has_image(client, name).await? {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        anyhow::Ok(())
    };
    match tokio::time::timeout(ANSWER, seen).await {
        Ok(result) => result.map(|()| true),
        Err(_) => bail!("image {name} was imported but the runtime does not show it"),
    }
}

async fn has_image(client: &CriClient, name: &str) -> Result<bool> {
    let image = v1::ImageSpec { image: name.to_owned(), ..v1::ImageSpec::default() };
    let request = v1::ImageStatusRequest { image: Some(image), verbose: false };
    Ok(client.image_status(request).await?.image.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_distributions_and_upstream_write_them() {
        for (text, version) in [
            ("containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u3", "1.6.20"),
            ("containerd containerd.io v1.7.24 88bf19b2105c8b17560993bee28a01ddc2f97182", "1.7.24"),
            ("containerd github.com/containerd/containerd/v2 2.1.9+unknown ", "2.1.9"),
        ] {
            assert_eq!(version_of(text).as_deref(), Some(version), "{text}");
        }
        assert_eq!(version_of("containerd"), None);
    }

    #[test]
    fn both_config_versions_name_our_folders_only() {
        let paths = Paths { data: "/d".into(), run: "/r".into(), kubelet: "/k".into() };
        let facts = Facts { restrict_oom: true, plugins: "/p".into(), cni_config: "/c".into() };
        for (major, version) in [(1, "version = 2"), (2, "version = 3")] {
            let text = config_text(&paths, major, &facts);
            assert!(text.contains(version), "{text}");
            assert!(text.contains("root = '/d/containerd'") && text.contains("address = '/r/containerd.sock'"));
            assert!(text.contains("restrict_oom_score_adj = true") && text.contains(PAUSE_IMAGE));
            assert!(!text.contains("/run/containerd") && !text.contains("/var/lib/containerd"));
        }
    }
}
