//! Asks a gRPC server how it is (`grpc.health.v1`), for probes: one plaintext connection for one question. It never
//! waits longer than the caller allows; what the answer means is the caller's to say.

use std::net::SocketAddr;
use std::time::Duration;

use tonic::transport::Endpoint;
use tonic::{Code, Request, Status};

use crate::error::code_name;
use v1::HealthCheckRequest;
use v1::health_check_response::ServingStatus;
use v1::health_client::HealthClient;

/// Messages, client and server of package `grpc.health.v1`, generated from `proto/health-v1.proto`.
#[expect(clippy::all, reason = "generated code")]
pub mod v1 {
    tonic::include_proto!("grpc.health.v1");
}

/// Answers are a few bytes; a server that sends more is not one of these.
const MESSAGE_LIMIT: usize = 64 * 1024;

/// Why there was no good answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HealthError {
    /// No connection.
    #[error("{0}")]
    Connect(String),
    /// No connection in time.
    #[error("context deadline exceeded")]
    ConnectTimeout,
    /// No answer in time.
    #[error("health rpc did not complete")]
    Timeout,
    /// The server does not know this protocol.
    #[error("{0}")]
    Unimplemented(String),
    /// Any other refusal, in the words of Go's gRPC.
    #[error("{0}")]
    Refused(String),
    /// It answered that it does not serve; the name of its state.
    #[error("responded with {0:?}")]
    NotServing(&'static str),
}

/// Asks for the health of `service` (empty: the whole server).
pub async fn check(address: SocketAddr, service: &str, user_agent: &str, timeout: Duration) -> Result<(), HealthError> {
    let begin = tokio::time::Instant::now();
    let connect = |error: tonic::transport::Error| HealthError::Connect(innermost(&error));
    let endpoint = Endpoint::from_shared(format!("http://{address}")).map_err(connect)?;
    let endpoint = endpoint.user_agent(user_agent).map_err(connect)?;
    let channel = tokio::time::timeout(timeout, endpoint.connect())
        .await
        .map_err(|_| HealthError::ConnectTimeout)?
        .map_err(connect)?;
    let mut client = HealthClient::new(channel).max_decoding_message_size(MESSAGE_LIMIT);
    let left = timeout.saturating_sub(begin.elapsed());
    let mut request = Request::new(HealthCheckRequest { service: service.to_owned() });
    request.set_timeout(left);
    let answer = tokio::time::timeout(left, client.check(request)).await.map_err(|_| HealthError::Timeout)?;
    let status = answer.map_err(|status| refused(&status))?.into_inner().status();
    match status {
        ServingStatus::Serving => Ok(()),
        ServingStatus::Unknown | ServingStatus::NotServing | ServingStatus::ServiceUnknown => {
            Err(HealthError::NotServing(status.as_str_name()))
        }
    }
}

fn refused(status: &Status) -> HealthError {
    match status.code() {
        Code::Unimplemented => HealthError::Unimplemented(status.message().to_owned()),
        Code::DeadlineExceeded => HealthError::Timeout,
        // What the client says when the request's own time is over.
        Code::Cancelled if status.message() == "Timeout expired" => HealthError::Timeout,
        code => HealthError::Refused(format!("rpc error: code = {} desc = {}", code_name(code), status.message())),
    }
}

/// The cause behind "transport error", which says nothing.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use longshore_util::{Tasks, spawn};
    use tokio::net::TcpListener;
    use tonic::Response;
    use tonic::transport::Server;

    use super::v1::HealthCheckResponse;
    use super::v1::health_server::{Health, HealthServer};
    use super::*;

    struct Doctor;

    #[tonic::async_trait]
    impl Health for Doctor {
        async fn check(&self, request: Request<HealthCheckRequest>) -> Result<Response<HealthCheckResponse>, Status> {
            let status = match request.get_ref().service.as_str() {
                "" => ServingStatus::Serving,
                "ill" => ServingStatus::NotServing,
                "slow" => {
                    tokio::time::sleep(Duration::from_secs(30)).await;
                    ServingStatus::Serving
                }
                _ => return Err(Status::not_found("unknown service")),
            };
            Ok(Response::new(HealthCheckResponse { status: status.into() }))
        }
    }

    #[tokio::test]
    async fn each_answer_is_told_apart() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let tasks = Tasks::new();
        let incoming = tokio_stream::wrappers::TcpListenerStream::new(listener);
        let server = Server::builder().add_service(HealthServer::new(Doctor)).serve_with_incoming(incoming);
        let running = spawn(&tasks, "doctor", server);
        let ask = async |service: &str, millis| {
            check(address, service, "kube-probe/1.36", Duration::from_millis(millis)).await
        };
        assert_eq!(ask("", 5000).await, Ok(()));
        assert_eq!(ask("ill", 5000).await, Err(HealthError::NotServing("NOT_SERVING")));
        let refused = "rpc error: code = NotFound desc = unknown service";
        assert_eq!(ask("else", 5000).await, Err(HealthError::Refused(refused.to_owned())));
        assert_eq!(ask("slow", 100).await, Err(HealthError::Timeout));
        running.abort();
        drop(running.await);
        let gone = ask("", 5000).await.unwrap_err();
        assert!(matches!(&gone, HealthError::Connect(text) if text.contains("refused")), "{gone:?}");
    }

    #[tokio::test]
    async fn a_server_that_says_nothing_is_given_up_in_time() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let answer = check(address, "", "kube-probe/1.36", Duration::from_millis(200)).await;
        assert!(matches!(answer, Err(HealthError::ConnectTimeout | HealthError::Timeout)), "{answer:?}");
    }
}
