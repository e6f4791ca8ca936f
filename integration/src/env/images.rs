//! The images of a run: pause (ours) and busybox, one applet link a command, made from the static busybox here.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use longshore_host::oci::{Entry, ImageArchive, PAUSE_IMAGE, Source, pause_archive};

/// Name of the image all cases use.
pub const BUSYBOX_IMAGE: &str = "localhost/busybox:1";

/// Writes the archives and returns them with their image names.
pub(super) fn archives(directory: &Path) -> Result<Vec<(PathBuf, &'static str)>> {
    let pause = directory.join("pause.tar");
    pause_archive(&pause)?;
    let busybox = directory.join("busybox.tar");
    busybox_archive(&busybox)?;
    Ok(vec![(pause, PAUSE_IMAGE), (busybox, BUSYBOX_IMAGE)])
}

fn busybox_archive(path: &Path) -> Result<()> {
    let program = ["/bin/busybox", "/usr/bin/busybox"].into_iter().map(Path::new).find(|path| path.exists());
    let Some(program) = program else { bail!("no busybox: apt-get install busybox-static") };
    let list = Command::new(program).arg("--list").output().context("list busybox applets")?;
    let file = |path: &str, text: &str| Entry::File {
        path: path.to_owned(),
        mode: 0o644,
        source: Source::Bytes(text.as_bytes().to_vec()),
    };
    let directory = |path: &str, mode| Entry::Directory { path: path.to_owned(), mode };
    let mut entries = vec![
        directory("/bin", 0o755),
        directory("/etc", 0o755),
        directory("/root", 0o700),
        directory("/tmp", 0o1777),
        directory("/var", 0o755),
        directory("/var/run", 0o755),
        file("/etc/passwd", "root:x:0:0:root:/root:/bin/sh\n"),
        file("/etc/group", "root:x:0:\n"),
        Entry::File { path: "/bin/busybox".to_owned(), mode: 0o755, source: Source::Path(program.to_path_buf()) },
    ];
    for applet in String::from_utf8_lossy(&list.stdout).lines().filter(|name| *name != "busybox") {
        entries.push(Entry::Link { path: format!("/bin/{applet}"), target: "busybox".to_owned() });
    }
    let image = ImageArchive {
        name: BUSYBOX_IMAGE.to_owned(),
        entries,
        command: vec!["sh".to_owned()],
        ..ImageArchive::default()
    };
    image.write(path)?;
    Ok(())
}
