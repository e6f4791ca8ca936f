//! The pod's own folders and files below `<root>/pods/<uid>`.

use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{Container, PodSpec, Volume};
use longshore_api::dns::PodHostname;
use longshore_api::{env_file, hosts};
use longshore_host::{mount, path};

use crate::pod::config::EnvFile;

/// Where containers look for the hosts file.
const HOSTS: &str = "/etc/hosts";

/// Makes the folders that every pod has.
pub(super) fn folders(pod: &Path) -> io::Result<()> {
    for folder in [pod.to_owned(), pod.join("volumes"), pod.join("plugins")] {
        match std::fs::DirBuilder::new().mode(0o750).create(&folder) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            other => other?,
        }
    }
    Ok(())
}

/// Reads a file of variables in a volume; `place` is where it stands, if it does.
pub(super) fn variables(spec: &PodSpec, volume: &str, place: Option<&Path>, path: &str) -> EnvFile {
    let is_empty_dir = |own: &&Volume| own.name == volume && own.empty_dir.is_some();
    if spec.volumes.iter().flatten().find(is_empty_dir).is_none() {
        return EnvFile::Failed("variables can be read from files in emptyDir volumes of the pod only".to_owned());
    }
    let Some(place) = place else {
        return EnvFile::Failed("no container of the pod mounts the volume".to_owned());
    };
    let bytes = match path::read_beneath(place, Path::new(path), env_file::MAX_BYTES) {
        Ok(Some(bytes)) => bytes,
        Ok(None) => return EnvFile::Missing,
        Err(error) => {
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            return EnvFile::Failed(cause.unwrap_or_else(|| error.to_string()));
        }
    };
    match String::from_utf8(bytes) {
        Ok(text) => env_file::parse(&text).map_or_else(|error| EnvFile::Failed(error.to_string()), EnvFile::Read),
        Err(_) => EnvFile::Failed("not UTF-8".to_owned()),
    }
}

/// Writes the hosts file anew for each container: addresses change with the sandbox.
pub(super) fn hosts(pod: &Path, spec: &PodSpec, names: &PodHostname, ips: &[String]) -> io::Result<PathBuf> {
    let aliases = spec.host_aliases.as_deref().unwrap_or_default();
    let text = if spec.host_network.unwrap_or(false) {
        hosts::host_network(&std::fs::read_to_string(HOSTS).unwrap_or_default(), aliases)
    } else {
        hosts::pod_network(ips, &names.hostname, &names.domain, aliases)
    };
    let file = pod.join("etc-hosts");
    // Written in place: running containers have this very file mounted.
    if std::fs::read_to_string(&file).is_ok_and(|old| old == text) {
        return Ok(file);
    }
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o644).custom_flags(nix::libc::O_NOFOLLOW);
    io::Write::write_all(&mut options.open(&file)?, text.as_bytes())?;
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644))?;
    Ok(file)
}

/// Makes a fresh file for the termination message of one container instance.
pub(super) fn termination(pod: &Path, container: &Container) -> io::Result<Option<PathBuf>> {
    if container.termination_message_path.as_deref().is_none_or(str::is_empty) {
        return Ok(None);
    }
    let folder = pod.join("containers").join(&container.name);
    std::fs::DirBuilder::new().recursive(true).mode(0o750).create(&folder)?;
    let id = uuid::Uuid::new_v4().simple().to_string();
    let file = folder.join(id.get(..8).unwrap_or(&id));
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true).mode(0o666).open(&file)?;
    // Whatever user the container runs as, it may leave its last words.
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o666))?;
    Ok(Some(file))
}

/// Removes a folder with what is in it; a missing one is fine.
pub(super) fn remove(folder: &Path) -> Result<(), String> {
    match std::fs::symlink_metadata(folder) {
        Ok(meta) if meta.is_dir() => path::remove_tree(folder).map_err(|error| error.to_string()),
        Ok(_) => Err(format!("{} is not a folder", folder.display())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(format!("{}: {error}", folder.display())),
    }
}

/// Removes a pod's folder, but never while anything is mounted in it: what is mounted is somebody's data.
pub(super) fn remove_pod(folder: &Path) -> Result<(), String> {
    let mounted = mount::under(folder).map_err(|error| error.to_string())?;
    if let Some(first) = mounted.first() {
        return Err(format!("{} is still mounted", first.display()));
    }
    remove(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_container_instance_gets_a_message_file_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let container = Container {
            name: "c".into(),
            termination_message_path: Some("/dev/termination-log".into()),
            ..Container::default()
        };
        let one = termination(folder.path(), &container).unwrap().unwrap();
        let two = termination(folder.path(), &container).unwrap().unwrap();
        assert_ne!(one, two);
        assert_eq!(one.file_name().unwrap().len(), 8);
        assert_eq!(std::fs::metadata(&one).unwrap().permissions().mode() & 0o777, 0o666);
    }

    #[test]
    fn variables_are_read_from_plain_files_of_an_empty_dir_alone() {
        let volume = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(volume.path().join("good"), "K='v'").unwrap();
        std::fs::write(volume.path().join("bad"), "K=v").unwrap();
        std::fs::write(volume.path().join("large"), vec![b'#'; env_file::MAX_BYTES + 1]).unwrap();
        std::fs::write(outside.path().join("secret"), "K='stolen'").unwrap();
        std::os::unix::fs::symlink(outside.path().join("secret"), volume.path().join("link")).unwrap();
        nix::unistd::mkfifo(&volume.path().join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let spec: PodSpec = serde_json::from_value(serde_json::json!({"containers": [], "volumes": [
            {"name": "v", "emptyDir": {}}, {"name": "h", "hostPath": {"path": "/"}}
        ]}))
        .unwrap();
        let read = |name: &str| variables(&spec, "v", Some(volume.path()), name);
        assert_eq!(read("good"), EnvFile::Read([("K".to_owned(), "v".to_owned())].into()));
        assert_eq!(read("gone"), EnvFile::Missing);
        for (name, why) in
            [("bad", "line 1"), ("large", "more than"), ("link", "out of"), ("pipe", "not a regular file")]
        {
            let EnvFile::Failed(text) = read(name) else { panic!("{name} was read") };
            assert!(text.contains(why), "{name}: {text}");
        }
        assert!(matches!(variables(&spec, "h", Some(volume.path()), "good"), EnvFile::Failed(_)));
        assert!(matches!(variables(&spec, "v", None, "good"), EnvFile::Failed(_)));
    }

    #[test]
    fn a_link_in_place_of_the_hosts_file_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let victim = folder.path().join("victim");
        std::fs::write(&victim, "keep").unwrap();
        std::os::unix::fs::symlink(&victim, folder.path().join("etc-hosts")).unwrap();
        let names = PodHostname { hostname: "p".into(), domain: String::new(), sandbox: "p".into() };
        assert!(hosts(folder.path(), &PodSpec::default(), &names, &["10.0.0.1".into()]).is_err());
        assert_eq!(std::fs::read_to_string(victim).unwrap(), "keep");
    }

    #[test]
    fn what_is_gone_needs_no_removal() {
        let folder = tempfile::tempdir().unwrap();
        remove_pod(&folder.path().join("none")).unwrap();
        folders(&folder.path().join("pod")).unwrap();
        folders(&folder.path().join("pod")).unwrap();
        remove_pod(&folder.path().join("pod")).unwrap();
        assert!(!folder.path().join("pod").exists());
    }
}
