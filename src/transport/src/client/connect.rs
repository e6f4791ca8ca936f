//! Makes `kube` clients: each with connections of its own, dead peers found by keep-alive, deadlines and a rate.

use std::time::Duration;

use http::HeaderValue;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{Body, ConfigExt as _};
use tower::{BoxError, ServiceBuilder};

use super::deadline::DeadlineLayer;
use super::limit::RateLayer;
use super::{Kubeconfig, KubeconfigError, REQUEST_TIMEOUT, Rate};

/// Settings of one client.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// The `User-Agent` header.
    pub user_agent: String,
    /// Until the connection stands.
    pub connect_timeout: Duration,
    /// Until the head of an answer, and between two pieces of its body; a watch's body may be silent for ever.
    pub request_timeout: Duration,
    /// Requests per second; none is no limit.
    pub rate: Option<Rate>,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            user_agent: concat!("longshore/", env!("CARGO_PKG_VERSION")).to_owned(),
            connect_timeout: Duration::from_secs(10),
            request_timeout: REQUEST_TIMEOUT,
            rate: None,
        }
    }
}

/// Settings of the agent's clients.
#[derive(Debug, Clone)]
pub struct ClientsOptions {
    /// The `User-Agent` header.
    pub user_agent: String,
    /// `kubeAPIQPS`, `kubeAPIBurst`.
    pub rate: Option<Rate>,
    /// `eventRecordQPS`, `eventBurst`.
    pub event_rate: Option<Rate>,
    /// No heartbeat may take longer: the shorter of `nodeStatusUpdateFrequency` and the lease's renew interval.
    pub heartbeat_timeout: Duration,
}

impl Default for ClientsOptions {
    fn default() -> Self {
        Self {
            user_agent: ClientOptions::default().user_agent,
            rate: Some(Rate { per_second: 50, burst: 100 }),
            event_rate: Some(Rate { per_second: 50, burst: 100 }),
            heartbeat_timeout: Duration::from_secs(10),
        }
    }
}

/// The agent's clients. A flood of one kind of request never delays the others.
#[derive(Clone)]
pub struct Clients {
    /// For everything else.
    pub main: kube::Client,
    /// For events.
    pub events: kube::Client,
    /// For node status and lease: no rate, short deadline.
    pub heartbeat: kube::Client,
}

impl std::fmt::Debug for Clients {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Clients").finish_non_exhaustive()
    }
}

impl Kubeconfig {
    /// Makes a client. Needs a tokio runtime; connects when it is first used.
    pub fn client(&self, options: &ClientOptions) -> Result<kube::Client, KubeconfigError> {
        crate::tls::install_provider();
        let failed = |source| KubeconfigError::Client { path: self.path().to_owned(), source: Box::new(source) };
        let mut config = self.config().clone();
        if let Ok(agent) = HeaderValue::from_str(&options.user_agent) {
            config.headers.push((http::header::USER_AGENT, agent));
        }
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_nodelay(true);
        http.set_connect_timeout(Some(options.connect_timeout));
        // A watch is silent for minutes: the kernel asks whether the other side is there, and gives a connection up on
        // which nothing was acknowledged for twenty seconds, whether it was asked or sent something.
        http.set_keepalive(Some(Duration::from_secs(10)));
        http.set_keepalive_interval(Some(Duration::from_secs(5)));
        http.set_keepalive_retries(Some(2));
        http.set_tcp_user_timeout(Some(Duration::from_secs(20)));
        let https = config.rustls_https_connector_with_connector(http).map_err(failed)?;
        let client: legacy::Client<_, Body> = legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(Duration::from_secs(90))
            .build(https);
        let service = ServiceBuilder::new()
            .map_err(BoxError::from)
            .option_layer(options.rate.map(RateLayer::new))
            .layer(config.base_uri_layer())
            .option_layer(config.auth_layer().map_err(failed)?)
            .layer(config.extra_headers_layer().map_err(failed)?)
            .layer(DeadlineLayer::new(options.request_timeout))
            .service(client);
        Ok(kube::Client::new(service, config.default_namespace))
    }

    /// Makes the agent's clients.
    pub fn clients(&self, options: &ClientsOptions) -> Result<Clients, KubeconfigError> {
        let base = ClientOptions { user_agent: options.user_agent.clone(), ..ClientOptions::default() };
        let heartbeat = ClientOptions {
            connect_timeout: options.heartbeat_timeout.min(base.connect_timeout),
            request_timeout: options.heartbeat_timeout,
            ..base.clone()
        };
        Ok(Clients {
            main: self.client(&ClientOptions { rate: options.rate, ..base.clone() })?,
            events: self.client(&ClientOptions { rate: options.event_rate, ..base })?,
            heartbeat: self.client(&heartbeat)?,
        })
    }
}
