//! Reads what volumes with data of the API need and turns it into files.

use k8s_openapi::api::core::v1::{
    ConfigMapVolumeSource, DownwardAPIVolumeSource, PodSpec, ProjectedVolumeSource, SecretVolumeSource,
    ServiceAccountTokenProjection, Volume, VolumeProjection,
};
use longshore_api::downward;
use longshore_api::resources::Amounts;
use std::path::PathBuf;
use std::time::Duration;

use super::atomic::{FileEntry, Payload};
use super::payload::{self, MODE};
use crate::model::DesiredPod;
use crate::object::{Changed, Lookup, Objects, TokenKey};

/// Mode of a token when it is given to one user or group.
const TOKEN_MODE: u32 = 0o600;
const TOKEN_SECONDS: i64 = 3600;
/// The configmap with the authority of the apiserver, which every namespace has.
const AUTHORITY: &str = "kube-root-ca.crt";

/// Reads the files of one pod's volumes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reader<'a> {
    pub(super) objects: &'a Objects,
    pub(super) pod: &'a DesiredPod,
    pub(super) spec: &'a PodSpec,
    pub(super) allocatable: &'a Amounts,
    /// How old what is in memory may be.
    pub(super) age: Duration,
}

/// Says whether a volume holds data of the API, which may change while the pod runs.
pub(super) fn holds_data(volume: &Volume) -> bool {
    volume.config_map.is_some()
        || volume.secret.is_some()
        || volume.downward_api.is_some()
        || volume.projected.is_some()
}

/// Says whether a volume holds something of that object.
pub(super) fn names(volume: &Volume, object: &Changed) -> bool {
    let secret = |name: &str| object.kind == "secret" && name == object.name;
    let config_map = |name: &str| object.kind == "configmap" && name == object.name;
    let parts = volume.projected.iter().flat_map(|source| source.sources.iter().flatten());
    volume.config_map.as_ref().is_some_and(|source| config_map(&source.name))
        || volume.secret.as_ref().and_then(|source| source.secret_name.as_deref()).is_some_and(secret)
        || parts.into_iter().any(|part| {
            part.config_map.as_ref().is_some_and(|source| config_map(&source.name))
                || part.secret.as_ref().is_some_and(|source| secret(&source.name))
        })
}

impl Reader<'_> {
    /// Returns the files of a volume; the error is a message for people.
    pub(super) async fn files(&self, volume: &Volume) -> Result<Payload, String> {
        let mut out = Payload::new();
        if let Some(source) = &volume.config_map {
            self.config_map(source, &mut out).await?;
        } else if let Some(source) = &volume.secret {
            self.secret(source, &mut out).await?;
        } else if let Some(source) = &volume.downward_api {
            self.downward(source, &mut out)?;
        } else if let Some(source) = &volume.projected {
            self.projected(source, &mut out).await?;
        }
        Ok(out)
    }

    async fn config_map(&self, source: &ConfigMapVolumeSource, out: &mut Payload) -> Result<(), String> {
        let optional = source.optional == Some(true);
        let found = self.objects.mounted_config_map(&self.pod.key.namespace, &source.name, self.age).await;
        match resolve(found, "configmap", &source.name, optional)? {
            Some(object) => payload::config_map(&object, source.items.as_deref(), source.default_mode, optional, out),
            None => Ok(()),
        }
    }

    async fn secret(&self, source: &SecretVolumeSource, out: &mut Payload) -> Result<(), String> {
        let name = source.secret_name.as_deref().unwrap_or_default();
        let optional = source.optional == Some(true);
        let found = self.objects.mounted_secret(&self.pod.key.namespace, name, self.age).await;
        match resolve(found, "secret", name, optional)? {
            Some(object) => payload::secret(&object, source.items.as_deref(), source.default_mode, optional, out),
            None => Ok(()),
        }
    }

    fn facts(&self) -> downward::Facts<'_> {
        downward::Facts { pod_ips: &[], host_ips: &[], allocatable: self.allocatable }
    }

    fn downward(&self, source: &DownwardAPIVolumeSource, out: &mut Payload) -> Result<(), String> {
        payload::downward_items(&self.pod.pod, source.items.as_deref(), source.default_mode, self.facts(), out)
    }

    async fn projected(&self, source: &ProjectedVolumeSource, out: &mut Payload) -> Result<(), String> {
        // All that is missing is named at once, not one a try.
        let mut errors = Vec::new();
        for part in source.sources.iter().flatten() {
            if let Err(error) = self.part(part, source.default_mode, out).await {
                errors.push(error);
            }
        }
        match errors.len() {
            0 => Ok(()),
            1 => Err(errors.remove(0)),
            _ => Err(format!("[{}]", errors.join(", "))),
        }
    }

    /// Of a volume that gives access to the apiserver and nothing else (a token for it, its authority, facts of the pod)
    /// what can be had without it; `None` of any other volume. Access is of no use while the apiserver is away.
    pub(super) fn without_access(&self, volume: &Volume) -> Option<Result<Payload, String>> {
        let projected = volume.projected.as_ref()?;
        let parts = projected.sources.as_deref().unwrap_or_default();
        let is_token = |part: &VolumeProjection| {
            part.service_account_token
                .as_ref()
                .is_some_and(|token| token.audience.as_ref().is_none_or(String::is_empty))
        };
        let is_authority =
            |part: &VolumeProjection| part.config_map.as_ref().is_some_and(|source| source.name == AUTHORITY);
        let is_known = |part: &VolumeProjection| is_token(part) || is_authority(part) || part.downward_api.is_some();
        if !parts.iter().any(is_token) || !parts.iter().all(is_known) {
            return None;
        }
        let mut out = Payload::new();
        let facts = parts.iter().filter_map(|part| part.downward_api.as_ref()).try_for_each(|source| {
            let items = source.items.as_deref();
            payload::downward_items(&self.pod.pod, items, projected.default_mode, self.facts(), &mut out)
        });
        Some(facts.map(|()| out))
    }

    async fn part(&self, part: &VolumeProjection, mode: Option<i32>, out: &mut Payload) -> Result<(), String> {
        let namespace = &self.pod.key.namespace;
        if let Some(source) = &part.config_map {
            let optional = source.optional == Some(true);
            let found = self.objects.mounted_config_map(namespace, &source.name, self.age).await;
            if let Some(object) = resolve(found, "configmap", &source.name, optional)? {
                payload::config_map(&object, source.items.as_deref(), mode, optional, out)?;
            }
            Ok(())
        } else if let Some(source) = &part.secret {
            let optional = source.optional == Some(true);
            let found = self.objects.mounted_secret(namespace, &source.name, self.age).await;
            if let Some(object) = resolve(found, "secret", &source.name, optional)? {
                payload::secret(&object, source.items.as_deref(), mode, optional, out)?;
            }
            Ok(())
        } else if let Some(source) = &part.downward_api {
            payload::downward_items(&self.pod.pod, source.items.as_deref(), mode, self.facts(), out)
        } else if let Some(source) = &part.service_account_token {
            self.token(source, mode, out).await
        } else {
            Err("projected source is not supported by this node".to_owned())
        }
    }

    async fn token(
        &self,
        source: &ServiceAccountTokenProjection,
        mode: Option<i32>,
        out: &mut Payload,
    ) -> Result<(), String> {
        let account = self.spec.service_account_name.as_deref().filter(|name| !name.is_empty()).unwrap_or("default");
        let key = TokenKey {
            namespace: self.pod.key.namespace.to_string(),
            account: account.to_owned(),
            pod: self.pod.key.name.to_string(),
            pod_uid: self.pod.uid.to_string(),
            audience: source.audience.clone().unwrap_or_default(),
            expiration_seconds: source.expiration_seconds.unwrap_or(TOKEN_SECONDS),
        };
        let token = self.objects.tokens().get(&key).await?;
        let user = only_user(self.spec);
        let private = user.is_some() || group(self.spec).is_some();
        let mode = if private { TOKEN_MODE } else { payload::mode(None, mode.or(Some(MODE))) };
        out.insert(PathBuf::from(&source.path), FileEntry { data: token.as_bytes().to_vec(), mode, owner: user });
        Ok(())
    }
}

fn resolve<T>(found: Lookup<T>, kind: &str, name: &str, optional: bool) -> Result<Option<std::sync::Arc<T>>, String> {
    match found {
        Lookup::Found(object) => Ok(Some(object)),
        Lookup::Missing if optional => Ok(None),
        Lookup::Missing => Err(format!("{kind} {name:?} not found")),
        Lookup::Failed(message) => Err(message),
    }
}

/// The group of the pod's volumes.
pub(super) fn group(spec: &PodSpec) -> Option<u32> {
    spec.security_context.as_ref()?.fs_group.and_then(|group| u32::try_from(group).ok())
}

/// The user of all containers, where they share one.
fn only_user(spec: &PodSpec) -> Option<u32> {
    let pod = spec.security_context.as_ref().and_then(|pod| pod.run_as_user);
    let own = spec
        .init_containers
        .iter()
        .flatten()
        .chain(&spec.containers)
        .map(|container| container.security_context.as_ref().and_then(|own| own.run_as_user))
        .chain(
            spec.ephemeral_containers
                .iter()
                .flatten()
                .map(|container| container.security_context.as_ref().and_then(|own| own.run_as_user)),
        );
    let mut users = own.map(|own| own.or(pod));
    let first = users.next()??;
    if users.all(|user| user == Some(first)) { u32::try_from(first).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn one_user_for_all_or_none() {
        let user = |spec: Value| only_user(&serde_json::from_value(spec).unwrap());
        let run = |id: i64| json!({"name": "c", "securityContext": {"runAsUser": id}});
        assert_eq!(user(json!({"containers": [run(5), run(5)]})), Some(5));
        assert_eq!(user(json!({"containers": [run(5), run(6)]})), None);
        assert_eq!(user(json!({"containers": [run(5), {"name": "d"}]})), None);
        assert_eq!(user(json!({"securityContext": {"runAsUser": 5}, "containers": [run(5), {"name": "d"}]})), Some(5));
        assert_eq!(user(json!({"containers": [{"name": "d"}]})), None);
    }
}
