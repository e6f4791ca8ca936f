//! Puts the image room together: limits, logins, programs that give logins, records.

use std::path::Path;
use std::sync::Arc;

use longshore_util::Tasks;

use super::{AgentError, AgentOptions};
use crate::event::EventRecorder;
use crate::image::{
    ImageManager, ImageMetrics, ImageOptions, NodeFiles, ProviderError, ProviderOptions, Providers, Records,
    VerifyPolicy,
};
use crate::object::Objects;
use crate::telemetry::SharedTelemetry;

pub(super) fn start(
    options: &AgentOptions,
    objects: &Objects,
    events: &EventRecorder,
    telemetry: &SharedTelemetry,
    tasks: &Tasks,
) -> Result<ImageManager, AgentError> {
    let metrics = telemetry.register(ImageMetrics::register);
    let root = options.root();
    let providers = providers(options, objects, &metrics)?.map(Arc::new);
    let records = records(options, &root)?;
    let options = ImageOptions {
        images: Arc::clone(&options.images),
        events: events.clone(),
        clock: Arc::clone(&options.clock),
        limits: options.pull_limits(),
        files: NodeFiles::usual(&root, std::env::home_dir().as_deref()),
        providers,
        records,
        metrics,
    };
    Ok(ImageManager::new(options, tasks))
}

fn providers(
    options: &AgentOptions,
    objects: &Objects,
    metrics: &ImageMetrics,
) -> Result<Option<Providers>, ProviderError> {
    let process = &options.settings.process;
    let (config, programs) = (&process.image_credential_provider_config, &process.image_credential_provider_bin_dir);
    match (config.is_empty(), programs.is_empty()) {
        (true, true) => return Ok(None),
        (true, false) => return Err(ProviderError::Half("the first")),
        (false, true) => return Err(ProviderError::Half("the second")),
        (false, false) => {}
    }
    let options = ProviderOptions {
        config: config.into(),
        programs: programs.into(),
        tokens: options.settings.gates.is_enabled("KubeletServiceAccountTokenForCredentialProviders"),
        objects: objects.clone(),
        clock: Arc::clone(&options.clock),
    };
    Providers::load(options, metrics).map(Some)
}

fn records(options: &AgentOptions, root: &Path) -> Result<Option<Records>, AgentError> {
    if !options.settings.gates.is_enabled("KubeletEnsureSecretPulledImages") {
        return Ok(None);
    }
    let config = &options.settings.config;
    let policy = VerifyPolicy::parse(
        &config.image_pull_credentials_verification_policy,
        &config.preloaded_images_verification_allowlist,
    );
    Records::open(root, policy, Arc::clone(&options.clock)).map(Some).map_err(AgentError::PullRecords)
}
