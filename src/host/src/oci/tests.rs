use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;

use super::*;

#[test]
fn the_archive_names_the_image_and_holds_what_the_manifest_says() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.tar");
    let written = ImageArchive {
        name: "localhost/a:1".to_owned(),
        entries: vec![
            Entry::Directory { path: "/etc".to_owned(), mode: 0o755 },
            Entry::File { path: "/etc/x".to_owned(), mode: 0o644, source: Source::Bytes(b"hello".to_vec()) },
            Entry::Link { path: "/y".to_owned(), target: "etc/x".to_owned() },
        ],
        entrypoint: vec!["/y".to_owned()],
        ..ImageArchive::default()
    }
    .write(&path)
    .unwrap();
    let mut files = std::collections::BTreeMap::new();
    for entry in tar::Archive::new(std::fs::File::open(&path).unwrap()).entries().unwrap() {
        let mut entry = entry.unwrap();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).unwrap();
        files.insert(entry.path().unwrap().display().to_string(), bytes);
    }
    let index: serde_json::Value = serde_json::from_slice(&files["index.json"]).unwrap();
    assert_eq!(index["manifests"][0]["annotations"]["io.containerd.image.name"], "localhost/a:1");
    assert_eq!(index["manifests"][0]["digest"], written.manifest_digest.as_str());
    let blob = |digest: &str| files[&format!("blobs/{}", digest.replace(':', "/"))].clone();
    let manifest: serde_json::Value = serde_json::from_slice(&blob(&written.manifest_digest)).unwrap();
    let layer = manifest["layers"][0]["digest"].as_str().unwrap();
    assert_eq!(manifest["layers"][0]["size"], blob(layer).len());
    let config: serde_json::Value = serde_json::from_slice(&blob(&written.config_digest)).unwrap();
    assert_eq!(config["rootfs"]["diff_ids"][0], layer);
    assert_eq!(config["config"]["Entrypoint"][0], "/y");
    assert!(!directory.path().join("a.layer").exists());
}

#[test]
fn the_pause_program_reaps_and_ends_on_term() {
    let Some(program) = pause::program(std::env::consts::ARCH) else { return };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pause");
    std::fs::write(&path, program).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    // A shell starts a child, then becomes the pause program: the child is orphaned to nobody else and must be reaped.
    let script = format!("sleep 0.05 & echo $!; exec {}", path.display());
    let mut child =
        std::process::Command::new("sh").args(["-c", &script]).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut out, &mut line).unwrap();
    let sleeper = format!("/proc/{}", line.trim());
    let gone = (0..200).any(|_| {
        std::thread::park_timeout(std::time::Duration::from_millis(10));
        !std::path::Path::new(&sleeper).exists()
    });
    assert!(gone, "the child was not reaped");
    assert!(child.try_wait().unwrap().is_none(), "a child's end must not end the pause program");
    let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn there_is_a_pause_program_for_both_architectures() {
    for architecture in ["x86_64", "aarch64"] {
        let program = pause::program(architecture).unwrap();
        assert!(program.len() < 512, "{architecture}");
        assert_eq!(&program[..4], b"\x7fELF");
    }
    assert!(pause::program("sparc").is_none());
}

#[test]
fn shared_objects_are_read_from_the_maps() {
    let maps = "7f0-7f1 r-xp 00000000 08:01 12 /usr/lib/x86_64-linux-gnu/libc.so.6\n\
                7f2-7f3 r--p 00000000 08:01 13 /usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2\n\
                7f4-7f5 r--p 00000000 08:01 14 /usr/bin/longshore\n\
                7f6-7f7 rw-p 00000000 00:00 0 [stack]\n";
    let names: Vec<String> = shared::parse(maps).iter().map(|path| path.display().to_string()).collect();
    assert_eq!(names, ["/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2", "/usr/lib/x86_64-linux-gnu/libc.so.6"]);
}
