//! Folders, files, sockets and devices of the machine. Checks what the manifest says of the path. Blocking.

use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;

/// Makes or checks the path; the error is a message for people.
pub(super) fn set_up(path: &Path, kind: &str) -> Result<(), String> {
    let text = path.display();
    if path.components().any(|part| part == std::path::Component::ParentDir) {
        return Err(format!("invalid HostPath `{text}`: must not contain '..'"));
    }
    let is = |what: &str, holds: bool| {
        if holds { Ok(()) } else { Err(format!("hostPath type check failed: {text} is not a {what}")) }
    };
    // Links are followed: the manifest's author names places of the machine, and checks what is there.
    let facts = std::fs::metadata(path);
    let absent = facts.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
    let found = |test: fn(&std::fs::FileType) -> bool| facts.as_ref().is_ok_and(|facts| test(&facts.file_type()));
    match kind {
        "" => Ok(()),
        "DirectoryOrCreate" if absent => std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(path)
            .map_err(|error| format!("mkdir {text}: {}", reason(&error))),
        "DirectoryOrCreate" | "Directory" => is("directory", found(std::fs::FileType::is_dir)),
        "FileOrCreate" if absent => std::fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o644)
            .open(path)
            .map(drop)
            .map_err(|error| format!("open {text}: {}", reason(&error))),
        "FileOrCreate" | "File" => is("file", found(std::fs::FileType::is_file)),
        "Socket" => is("socket file", found(std::fs::FileType::is_socket)),
        "CharDevice" => is("character device", found(std::fs::FileType::is_char_device)),
        "BlockDevice" => is("block device", found(std::fs::FileType::is_block_device)),
        other => Err(format!("{other} is an invalid volume type")),
    }
}

/// The kernel's words without the number.
fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    let plain = text.split(" (os error").next().unwrap_or_default();
    plain.to_lowercase()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn kinds_are_checked_with_the_recorded_texts() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("file"), "").unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        for (name, kind, want) in [
            ("never", "", Ok(())),
            ("never", "Directory", Err("directory")),
            ("file", "Directory", Err("directory")),
            ("file", "DirectoryOrCreate", Err("directory")),
            ("file", "File", Ok(())),
            (".", "File", Err("file")),
            (".", "FileOrCreate", Err("file")),
            ("socket", "Socket", Ok(())),
            ("file", "Socket", Err("socket file")),
            ("file", "CharDevice", Err("character device")),
            ("file", "BlockDevice", Err("block device")),
        ] {
            let path = at(name);
            let want = want.map_err(|what| format!("hostPath type check failed: {} is not a {what}", path.display()));
            assert_eq!(set_up(&path, kind), want, "{name} {kind}");
        }
        assert!(set_up(Path::new("/dev/null"), "CharDevice").is_ok());
        assert_eq!(set_up(&at("x"), "Odd").unwrap_err(), "Odd is an invalid volume type");
        assert!(set_up(&at("a/../../b"), "").unwrap_err().contains("'..'"));
    }

    #[test]
    fn what_is_missing_is_made_but_no_parent_of_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        set_up(&at("d/e"), "DirectoryOrCreate").unwrap();
        set_up(&at("d/f"), "FileOrCreate").unwrap();
        let mode = |name: &str| std::fs::metadata(at(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode("d/e"), mode("d/f")), (0o755, 0o644));
        assert!(set_up(&at("none/f"), "FileOrCreate").unwrap_err().ends_with("no such file or directory"));
        // What is there keeps its content.
        std::fs::write(at("d/f"), "kept").unwrap();
        set_up(&at("d/f"), "FileOrCreate").unwrap();
        assert_eq!(std::fs::read_to_string(at("d/f")).unwrap(), "kept");
    }
}
