//! The environment of a container from all its sources. Lowest first: service variables, `envFrom` in order, `env` in order.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Container, EnvVar, EnvVarSource, Secret};
use longshore_api::service_env::{self, ServiceFact};
use longshore_api::{downward, expand, names};

use super::{ConfigError, NodeFacts};
use crate::model::DesiredPod;
use crate::object::Lookup;

/// Objects by name, all of the pod's namespace, as far as they were asked for.
#[derive(Debug, Clone, Default)]
pub struct Objects {
    /// Configmaps.
    pub config_maps: BTreeMap<String, Lookup<ConfigMap>>,
    /// Secrets.
    pub secrets: BTreeMap<String, Lookup<Secret>>,
    /// Files of variables by volume and path.
    pub files: BTreeMap<(String, String), EnvFile>,
}

/// A file of variables in a volume of the pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EnvFile {
    /// What stands in it.
    Read(BTreeMap<String, String>),
    /// It is not there.
    Missing,
    /// Why it cannot be used.
    Failed(String),
}

/// Names of the objects that a container's environment needs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct References {
    /// Configmaps.
    pub config_maps: BTreeSet<String>,
    /// Secrets.
    pub secrets: BTreeSet<String>,
    /// Files of variables: volume and path.
    pub files: BTreeSet<(String, String)>,
}

/// Collects what must be read before [`environment`].
pub fn references(container: &Container) -> References {
    let mut out = References::default();
    for source in container.env_from.iter().flatten() {
        out.config_maps.extend(source.config_map_ref.iter().map(|reference| reference.name.clone()));
        out.secrets.extend(source.secret_ref.iter().map(|reference| reference.name.clone()));
    }
    for source in container.env.iter().flatten().filter_map(|variable| variable.value_from.as_ref()) {
        out.config_maps.extend(source.config_map_key_ref.iter().map(|reference| reference.name.clone()));
        out.secrets.extend(source.secret_key_ref.iter().map(|reference| reference.name.clone()));
        out.files.extend(source.file_key_ref.iter().map(|file| (file.volume_name.clone(), file.path.clone())));
    }
    out
}

/// What an environment is made from.
#[derive(Debug, Clone, Copy)]
pub struct EnvInput<'a> {
    /// The pod.
    pub pod: &'a DesiredPod,
    /// The container.
    pub container: &'a Container,
    /// The objects that [`references`] names.
    pub objects: &'a Objects,
    /// Services of the cluster; `None` before they were read once.
    pub services: Option<&'a [ServiceFact]>,
    /// Addresses of the pod.
    pub pod_ips: &'a [String],
    /// The node.
    pub facts: &'a NodeFacts,
}

/// Builds the environment; later entries of the same name have taken the place of earlier ones.
pub fn environment(input: &EnvInput<'_>) -> Result<Vec<(String, String)>, ConfigError> {
    let spec = super::sandbox::spec_of(input.pod)?;
    let links = spec.enable_service_links.unwrap_or(true);
    let services = match input.services {
        Some(services) => service_env::variables(services, &input.pod.key.namespace, links),
        // Static pods start without an apiserver: they are how a control plane starts.
        None if input.pod.source.is_static() => BTreeMap::new(),
        None => {
            return Err(ConfigError::new("services have not yet been read at least once, cannot construct envvars"));
        }
    };
    let mut own: BTreeMap<String, String> = BTreeMap::new();
    let mut order: Vec<String> = Vec::new();
    let mut put = |own: &mut BTreeMap<String, String>, name: String, value: String| {
        if own.insert(name.clone(), value).is_none() {
            order.push(name);
        }
    };
    for (name, value) in from_objects(input)? {
        put(&mut own, name, value);
    }
    for variable in input.container.env.iter().flatten() {
        let value = match &variable.value_from {
            Some(source) if variable.value.as_deref().unwrap_or_default().is_empty() => {
                match from_source(input, variable, source)? {
                    Some(value) => value,
                    None => continue,
                }
            }
            _ => {
                let lookup = |name: &str| own.get(name).or_else(|| services.get(name)).map(String::as_str);
                expand::expand(variable.value.as_deref().unwrap_or_default(), lookup)
            }
        };
        put(&mut own, variable.name.clone(), value);
    }
    let mut out: Vec<(String, String)> = services.into_iter().filter(|(name, _)| !own.contains_key(name)).collect();
    for name in order {
        if let Some(value) = own.remove(&name) {
            out.push((name, value));
        }
    }
    Ok(out)
}

fn from_objects(input: &EnvInput<'_>) -> Result<Vec<(String, String)>, ConfigError> {
    let mut out = Vec::new();
    for source in input.container.env_from.iter().flatten() {
        let prefix = source.prefix.as_deref().unwrap_or_default();
        let mut put = |key: &str, value: String| {
            let name = format!("{prefix}{key}");
            if names::is_env_name(&name) {
                out.push((name, value));
            }
        };
        if let Some(reference) = &source.config_map_ref {
            let Some(object) = config_map(input, &reference.name, reference.optional)? else { continue };
            object.data.iter().flatten().for_each(|(key, value)| put(key, value.clone()));
        } else if let Some(reference) = &source.secret_ref {
            let Some(object) = secret(input, &reference.name, reference.optional)? else { continue };
            object.data.iter().flatten().for_each(|(key, value)| put(key, text(&value.0)));
        }
    }
    Ok(out)
}

fn from_source(input: &EnvInput<'_>, variable: &EnvVar, source: &EnvVarSource) -> Result<Option<String>, ConfigError> {
    let namespace = &input.pod.key.namespace;
    let facts = downward::Facts {
        pod_ips: input.pod_ips,
        host_ips: &input.facts.host_ips,
        allocatable: &input.facts.allocatable,
    };
    if let Some(field) = &source.field_ref {
        return downward::field(&input.pod.pod, &field.field_path, facts).map(Some).map_err(ConfigError::new);
    }
    if let Some(resource) = &source.resource_field_ref {
        let own = &input.container.name;
        return downward::resource(&input.pod.pod, resource, own, facts).map(Some).map_err(ConfigError::new);
    }
    if let Some(reference) = &source.config_map_key_ref {
        let Some(object) = config_map(input, &reference.name, reference.optional)? else { return Ok(None) };
        let value = object.data.as_ref().and_then(|data| data.get(&reference.key)).cloned();
        let what = format!("ConfigMap {namespace}/{}", reference.name);
        return present(value, &reference.key, &what, reference.optional);
    }
    if let Some(reference) = &source.secret_key_ref {
        let Some(object) = secret(input, &reference.name, reference.optional)? else { return Ok(None) };
        let value = object.data.as_ref().and_then(|data| data.get(&reference.key)).map(|value| text(&value.0));
        let what = format!("Secret {namespace}/{}", reference.name);
        return present(value, &reference.key, &what, reference.optional);
    }
    if let Some(reference) = &source.file_key_ref {
        let place = (reference.volume_name.clone(), reference.path.clone());
        let what = format!("file {:?} of volume {:?}", reference.path, reference.volume_name);
        let value = match input.objects.files.get(&place) {
            Some(EnvFile::Read(variables)) => variables.get(&reference.key).cloned(),
            Some(EnvFile::Failed(why)) => return Err(ConfigError::new(format!("{what}: {why}"))),
            Some(EnvFile::Missing) | None if reference.optional == Some(true) => None,
            Some(EnvFile::Missing) | None => return Err(ConfigError::new(format!("{what} not found"))),
        };
        return present(value, &reference.key, &what, reference.optional);
    }
    Err(ConfigError::new(format!("variable {:?} has a source that this node does not support", variable.name)))
}

fn present(
    value: Option<String>,
    key: &str,
    object: &str,
    optional: Option<bool>,
) -> Result<Option<String>, ConfigError> {
    match value {
        None if optional != Some(true) => Err(ConfigError::new(format!("couldn't find key {key} in {object}"))),
        value => Ok(value),
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn config_map(input: &EnvInput<'_>, name: &str, optional: Option<bool>) -> Result<Option<Arc<ConfigMap>>, ConfigError> {
    resolved(input.objects.config_maps.get(name), "configmap", name, optional)
}

fn secret(input: &EnvInput<'_>, name: &str, optional: Option<bool>) -> Result<Option<Arc<Secret>>, ConfigError> {
    resolved(input.objects.secrets.get(name), "secret", name, optional)
}

fn resolved<T>(
    lookup: Option<&Lookup<T>>,
    kind: &str,
    name: &str,
    optional: Option<bool>,
) -> Result<Option<Arc<T>>, ConfigError> {
    match lookup {
        Some(Lookup::Found(object)) => Ok(Some(Arc::clone(object))),
        Some(Lookup::Missing) if optional == Some(true) => Ok(None),
        Some(Lookup::Missing) | None => Err(ConfigError::new(format!("{kind} {name:?} not found"))),
        Some(Lookup::Failed(message)) => Err(ConfigError::new(message.clone())),
    }
}
