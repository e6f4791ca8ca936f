//! Agents that are started with something broken: each says in one line what is wrong and with which file or port, and
//! either ends or goes on trying.

use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use longshore_integration::cluster::{Cluster, ClusterOptions};
use longshore_integration::env::{Env, NODE_ADDRESS, Process, eventually, newest};
use longshore_integration::tools;
use longshore_transport::pki::{Authority, kubeadm};

const SOON: Duration = Duration::from_secs(15);

struct Place<'env> {
    env: &'env Env,
    count: usize,
}

/// What becomes of the agent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    Ends,
    TriesOn,
}

impl Place<'_> {
    fn file(&self, name: &str) -> PathBuf {
        self.env.directory().join(name)
    }

    /// The usual arguments of an agent of its own.
    fn agent(&mut self, kubeconfig: &str, config: &str) -> Result<Command> {
        self.count += 1;
        let mut command = Command::new(tools::built("longshore")?);
        command.arg("agent").arg("--config").arg(self.file(config)).arg("--kubeconfig").arg(self.file(kubeconfig));
        command.arg(format!("--root-dir=/tmp/root-{}", self.count));
        command.args(["--hostname-override", Cluster::NODE, "--node-ip", NODE_ADDRESS]);
        Ok(command)
    }

    fn config(&self, name: &str, change: impl FnOnce(&mut serde_json::Value)) -> Result<()> {
        let mut config: serde_json::Value = serde_json::from_slice(&std::fs::read(self.file("kubelet.yaml"))?)?;
        change(&mut config);
        std::fs::write(self.file(name), config.to_string())?;
        Ok(())
    }

    /// Writes a kubeconfig with something else in place of one field's value.
    fn kubeconfig(&self, name: &str, field: &str, value: &str) -> Result<()> {
        self.kubeconfig_with(name, &[(field, value)])
    }

    /// The same for several fields.
    fn kubeconfig_with(&self, name: &str, values: &[(&str, &str)]) -> Result<()> {
        let text = std::fs::read_to_string(self.file("node.kubeconfig"))?;
        let lines = text.lines().map(|line| {
            let key = line.split_once(':').map(|(key, _)| key);
            match values.iter().find(|(field, _)| key.is_some_and(|key| key.trim() == *field)) {
                Some((_, value)) => format!("{}: {value}", key.unwrap_or_default()),
                None => line.to_owned(),
            }
        });
        std::fs::write(self.file(name), lines.collect::<Vec<_>>().join("\n"))?;
        Ok(())
    }

    /// Starts it and waits for its words.
    fn says(&mut self, mut command: Command, words: &[&str], then: Then) -> Result<()> {
        let name = format!("bad-{}", self.count);
        let mut process = self.env.spawn(&name, &mut command)?;
        let said = |process: &Process| {
            let text = std::fs::read_to_string(process.log()).unwrap_or_default();
            text.lines().any(|line| words.iter().all(|word| line.contains(word)))
        };
        let told = eventually(&format!("{words:?} is said"), SOON, || said(&process));
        told.with_context(|| format!("{command:?}\n{}", process.tail()))?;
        if then == Then::Ends {
            let mut ended = false;
            eventually("it ends", SOON, || {
                ended = process.check_alive().is_err();
                ended
            })?;
            return Ok(());
        }
        process.check_alive()?;
        process.kill()
    }
}

#[test]
fn root_a_bad_start_says_in_one_line_what_is_wrong() {
    let run = || -> Result<()> {
        let env = Env::start(newest())?;
        let mut cluster = Cluster::start(&env, ClusterOptions::default())?;
        let mut place = Place { env: &env, count: 0 };
        let ours = place.agent("node.kubeconfig", "kubelet.yaml")?;
        place.says(ours, &["0.0.0.0:10250 is in use by another process", "ss -ltnp"], Then::Ends)?;
        cluster.agent()?.check_alive()?;
        let status = cluster.agent()?.stop(SOON)?;
        ensure!(status.success(), "the agent ended with {status}");
        ports(&mut place)?;
        kubeconfigs(&mut place)?;
        runtimes(&mut place)?;
        roots(&mut place)
    };
    if let Err(error) = run() {
        panic!("{error:#}");
    }
}

/// The health port in use is no reason to leave the node without its agent.
fn ports(place: &mut Place<'_>) -> Result<()> {
    let held = place.env.within(|| std::net::TcpListener::bind("127.0.0.1:10248"))??;
    let command = place.agent("node.kubeconfig", "kubelet.yaml")?;
    place.says(command, &["127.0.0.1:10248 is in use by another process"], Then::TriesOn)?;
    drop(held);
    Ok(())
}

fn kubeconfigs(place: &mut Place<'_>) -> Result<()> {
    let other = Authority::generate("somebody-else", Duration::from_secs(3600), jiff::Timestamp::now())?;
    let wrong_ca = base64::engine::general_purpose::STANDARD.encode(&other.keyed().certificate_pem);
    place.kubeconfig("wrong-ca", "certificate-authority-data", &wrong_ca)?;
    place.kubeconfig("no-server", "server", &format!("https://{NODE_ADDRESS}:1"))?;
    place.kubeconfig("not-base64", "client-key-data", "'%%%'")?;
    place.kubeconfig("other-certificate", "client-certificate-data", &wrong_ca)?;
    let past = jiff::Timestamp::now() - Duration::from_secs(2 * 365 * 24 * 3600);
    let [certificate, key] = ["ca.crt", "ca.key"].map(|name| place.file("plane/pki").join(name));
    let ours = Authority::from_pem(&std::fs::read_to_string(certificate)?, &std::fs::read_to_string(key)?)?;
    let old = ours.issue(&kubeadm::node(Cluster::NODE), past)?;
    let [certificate, key] =
        [&old.certificate_pem, &old.key_pem].map(|pem| base64::engine::general_purpose::STANDARD.encode(pem));
    place.kubeconfig_with("expired", &[("client-certificate-data", &certificate), ("client-key-data", &key)])?;
    std::fs::write(place.file("empty"), "")?;
    std::fs::write(place.file("noise"), [0xff; 100])?;
    let text = std::fs::read_to_string(place.file("node.kubeconfig"))?;
    std::fs::write(place.file("half"), &text[..text.len() / 2])?;
    for (name, words, then) in [
        ("absent", "No such file or directory", Then::Ends),
        ("empty", "not a kubeconfig", Then::Ends),
        ("noise", "utf-8", Then::Ends),
        ("half", "kubeconfig", Then::Ends),
        ("not-base64", "client-key-data", Then::Ends),
        ("expired", "CN=system:node:qnode-1 expired at 20", Then::TriesOn),
        ("other-certificate", "client-key-data: is not the key of users", Then::Ends),
        ("wrong-ca", "the server's certificate is not signed by clusters", Then::TriesOn),
        ("no-server", "Connection refused", Then::TriesOn),
    ] {
        let command = place.agent(name, "kubelet.yaml")?;
        let file = place.file(name).display().to_string();
        let words = if name == "no-server" { vec![words] } else { vec![words, file.as_str()] };
        place.says(command, &words, then)?;
    }
    Ok(())
}

fn runtimes(place: &mut Place<'_>) -> Result<()> {
    // A server that is no CRI, and one that never says a word.
    let noise = place.env.within(|| UnixListener::bind("/run/noise.sock"))??;
    let mute = place.env.within(|| UnixListener::bind("/run/mute.sock"))??;
    std::thread::spawn(move || {
        for stream in noise.incoming().flatten() {
            use std::io::Write as _;
            let mut stream = stream;
            drop(stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n"));
        }
    });
    place.env.within(|| std::fs::write("/run/file.sock", "x"))??;
    for (endpoint, words, then) in [
        ("unix:///run/absent.sock", "there is no such socket", Then::TriesOn),
        ("unix:///run/noise.sock", "container runtime does not answer", Then::TriesOn),
        ("unix:///run/mute.sock", "no answer within 2 s", Then::TriesOn),
        ("unix:///run/file.sock", "is not a socket", Then::TriesOn),
        ("tcp://127.0.0.1:1", "scheme \"tcp\" is not supported", Then::Ends),
    ] {
        place.config("runtime.json", |config| config["containerRuntimeEndpoint"] = endpoint.into())?;
        let command = place.agent("node.kubeconfig", "runtime.json")?;
        place.says(command, &[words, endpoint], then)?;
    }
    drop(mute);
    Ok(())
}

/// Not root, a root folder that cannot be written, one that is a file.
fn roots(place: &mut Place<'_>) -> Result<()> {
    for name in ["kubelet.yaml", "node.kubeconfig"] {
        place.env.run(Command::new("chmod").arg("a+r").arg(place.file(name)))?;
    }
    place
        .env
        .run(Command::new("sh").args(["-ec", "mkdir /run/ro; mount -t tmpfs -o ro tmpfs /run/ro; touch /run/file"]))?;
    let agent = place.agent("node.kubeconfig", "kubelet.yaml")?;
    let mut command = Command::new("setpriv");
    command.args(["--reuid=1000", "--regid=1000", "--clear-groups"]).arg(agent.get_program()).args(agent.get_args());
    // The folders above the test's own are root's.
    let text = place.env.output(&mut command)?;
    let text = String::from_utf8_lossy(&text.stderr).into_owned();
    ensure!(text.contains("Permission denied") || text.contains("run as root"), "{text}");
    for (root, words) in [("/run/ro/x", "Read-only file system"), ("/run/file", "File exists")] {
        let mut command = place.agent("node.kubeconfig", "kubelet.yaml")?;
        command.arg(format!("--root-dir={root}"));
        place.says(command, &[words, root, "--root-dir"], Then::Ends)?;
    }
    Ok(())
}
