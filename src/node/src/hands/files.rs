//! The pod's own folders and files below `<root>/pods/<uid>`.

use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{Container, PodSpec};
use longshore_api::dns::PodHostname;
use longshore_api::hosts;
use longshore_host::{mount, path};

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
