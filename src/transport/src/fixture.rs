//! A small certificate world and a server in it, for the tests of this crate.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use jiff::Timestamp;
use longshore_util::Tasks;
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::pki::{Authority, KeyedCertificate, LeafRequest};
use crate::serve::{ServeOptions, bind, serve};
use crate::tls::{ReloadableCertificate, ServerTls, ServerTrust, client_config, server_config};

pub(crate) struct World {
    pub(crate) authority: Authority,
    pub(crate) now: Timestamp,
    pub(crate) tasks: Tasks,
}

impl World {
    pub(crate) fn new() -> Self {
        let now = Timestamp::now();
        Self {
            authority: Authority::generate("kubernetes", Duration::from_secs(3600), now).unwrap(),
            now,
            tasks: Tasks::new(),
        }
    }

    pub(crate) fn ca(&self) -> &str {
        &self.authority.keyed().certificate_pem
    }

    pub(crate) fn server_pair(&self) -> KeyedCertificate {
        let names = vec!["127.0.0.1".into(), "localhost".into()];
        self.authority.issue(&LeafRequest::server("server", names), self.now).unwrap()
    }

    pub(crate) fn client_pair(&self, name: &str) -> KeyedCertificate {
        self.authority.issue(&LeafRequest::client(name, Some("testers")), self.now).unwrap()
    }

    pub(crate) async fn serve(&self, app: Router, options: ServeOptions) -> SocketAddr {
        self.serve_with(ReloadableCertificate::from_pem(&self.server_pair()).unwrap(), app, options).await
    }

    pub(crate) async fn serve_with(
        &self,
        certificate: Arc<ReloadableCertificate>,
        app: Router,
        options: ServeOptions,
    ) -> SocketAddr {
        let listener = bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
        let address = listener.local_addr().unwrap();
        let tls = server_config(certificate, &ServerTls::default()).unwrap();
        let service = tower::service_fn(move |request| {
            use tower::ServiceExt as _;
            let app = app.clone();
            async move { Ok::<_, Infallible>(app.oneshot(request).await.unwrap_or_else(|never| match never {})) }
        });
        serve("test", listener, Some(tls), service, options, &self.tasks);
        address
    }

    pub(crate) async fn connect(
        &self,
        address: SocketAddr,
        trust: &ServerTrust,
        identity: Option<&KeyedCertificate>,
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(address).await?;
        let name = ServerName::from(address.ip());
        TlsConnector::from(client_config(trust, identity).unwrap()).connect(name, stream).await
    }

    pub(crate) fn trust(&self) -> ServerTrust {
        ServerTrust::Authorities(self.ca().to_owned())
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.tasks.cancel();
    }
}
