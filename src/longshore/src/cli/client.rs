//! What the API commands share: where the apiserver is and as whom to talk to it.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use longshore_transport::client::{ClientOptions, Kubeconfig};

use crate::app::fail::Hint;
use crate::app::paths;

/// Flags of every command that talks to the apiserver.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Connection {
    /// Kubeconfig file [default: $KUBECONFIG, then /var/lib/longshore/admin.kubeconfig]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
}

/// Flag for the namespace.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Namespace {
    /// Namespace
    #[arg(short, long)]
    pub(crate) namespace: Option<String>,
}

impl Namespace {
    /// The namespace to look in.
    pub(crate) fn name<'name>(&'name self, client: &'name kube::Client) -> &'name str {
        self.namespace.as_deref().unwrap_or_else(|| client.default_namespace())
    }
}

impl Connection {
    /// Returns a client; nothing is sent yet.
    pub(crate) async fn client(&self) -> Result<kube::Client> {
        let path = paths::kubeconfig(self.kubeconfig.as_deref());
        if !path.exists() {
            return Err(Hint::error(
                format!("no kubeconfig at {}", path.display()),
                "longshore up makes one; or pass --kubeconfig FILE",
            ));
        }
        let kubeconfig = Kubeconfig::load(&path, jiff::Timestamp::now()).await?;
        for problem in kubeconfig.problems() {
            tracing::warn!(file = %path.display(), %problem, "kubeconfig");
        }
        kubeconfig.client(&ClientOptions::default()).context("make an API client")
    }
}

/// Says in the apiserver's words what went wrong, and what to do when it is not there.
pub(crate) fn explain(error: kube::Error) -> anyhow::Error {
    if longshore_transport::client::is_unreachable(&error) {
        let text = last_cause(&error);
        return Hint::error(
            format!("the apiserver does not answer: {text}"),
            "longshore up starts it; longshore ps shows the node without it",
        );
    }
    match error {
        kube::Error::Api(status) => anyhow::anyhow!("{} ({})", status.message, status.reason),
        other => anyhow::Error::new(other),
    }
}

/// The cause below all others says what happened; those above only through which layers it came.
fn last_cause(error: &dyn std::error::Error) -> String {
    let mut last = error;
    while let Some(cause) = last.source() {
        last = cause;
    }
    last.to_string()
}
