use std::path::Path;
use std::time::Duration;

use futures_util::StreamExt as _;
use tokio::io::AsyncReadExt as _;

use super::*;
use crate::fake::{self, Failure, FakeOptions, FakeRuntime, On};

fn client(path: &Path) -> CriClient {
    CriClient::connect(path.to_str().unwrap(), ClientOptions::default()).unwrap()
}

fn impatient(path: &Path, request_timeout: Duration) -> CriClient {
    CriClient::connect(path.to_str().unwrap(), ClientOptions { request_timeout, ..Default::default() }).unwrap()
}

fn sandbox(uid: &str, attempt: u32) -> v1::RunPodSandboxRequest {
    let metadata =
        v1::PodSandboxMetadata { name: uid.to_owned(), uid: uid.to_owned(), namespace: "default".to_owned(), attempt };
    v1::RunPodSandboxRequest {
        config: Some(v1::PodSandboxConfig { metadata: Some(metadata), ..Default::default() }),
        ..Default::default()
    }
}

async fn list(client: &CriClient) -> Result<usize, CriError> {
    Ok(client.list_pod_sandbox(v1::ListPodSandboxRequest::default()).await?.items.len())
}

#[tokio::test]
async fn what_is_wrong_with_an_endpoint_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("cri.sock");
    assert!(matches!(client(&socket).check().await, Err(CheckError::Missing { .. })));

    let file = dir.path().join("file");
    std::fs::write(&file, "x").unwrap();
    let error = client(&file).check().await.unwrap_err();
    assert!(matches!(error, CheckError::NotASocket { .. }) && !error.may_heal());

    let dead = dir.path().join("dead.sock");
    drop(tokio::net::UnixListener::bind(&dead).unwrap());
    let error = client(&dead).check().await.unwrap_err();
    assert!(matches!(error, CheckError::NobodyListens { .. }) && error.may_heal());

    let rude = tokio::net::UnixListener::bind(&socket).unwrap();
    let answering = async {
        loop {
            let (mut stream, _) = rude.accept().await.unwrap();
            let _read = stream.read(&mut [0; 64]).await;
            let _written = tokio::io::AsyncWriteExt::write_all(&mut stream, b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        }
    };
    let client = client(&socket);
    let error = tokio::select! { error = client.check() => error.unwrap_err(), () = answering => unreachable!() };
    assert!(matches!(error, CheckError::NotCri { .. }), "{error}");
    assert!(error.to_string().contains("is not a CRI v1 runtime"), "{error}");
}

#[tokio::test]
async fn another_version_and_a_missing_service_are_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("cri.sock");
    let runtime = FakeRuntime::default();
    let _server = fake::serve(runtime.clone(), &socket).unwrap();
    let found = client(&socket).check().await.unwrap();
    assert_eq!((found.runtime_name.as_str(), found.runtime_api_version.as_str()), ("fake", "v1"));

    let refuse = Failure::Error(ErrorKind::Unimplemented, "unknown service runtime.v1.RuntimeService".to_owned());
    runtime.failpoints().set(On::rpc("Version").once(), refuse);
    assert!(matches!(client(&socket).check().await, Err(CheckError::NotCri { .. })));
}

#[tokio::test]
async fn errors_keep_the_code_and_words_of_the_runtime() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("cri.sock");
    let _server = fake::serve(FakeRuntime::default(), &socket).unwrap();
    let client = client(&socket);
    let first = client.run_pod_sandbox(sandbox("a", 0)).await.unwrap().pod_sandbox_id;
    let error = client.run_pod_sandbox(sandbox("a", 0)).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "rpc error: code = FailedPrecondition desc = failed to reserve sandbox name \"a_default_a_0\": name \"a_default_a_0\" \
             is reserved for \"{first}\""
        )
    );
    let status = client.container_status(v1::ContainerStatusRequest::default()).await.unwrap_err();
    assert!(status.is_not_found() && status.rpc == "ContainerStatus");
    assert!(
        client.checkpoint_container(v1::CheckpointContainerRequest::default()).await.unwrap_err().is_unimplemented()
    );
}

#[tokio::test]
async fn a_runtime_that_goes_and_comes_is_found_again() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("cri.sock");
    let runtime = FakeRuntime::default();
    let client = client(&socket);
    let error = list(&client).await.unwrap_err();
    assert!(error.is_unavailable(), "{error:?}");
    assert_eq!(
        error.message,
        format!(
            "connection error: desc = \"transport: Error while dialing: dial unix {}: connect: no such file or \
             directory\"",
            socket.display()
        )
    );

    let server = fake::serve(runtime.clone(), &socket).unwrap();
    let until = Instant::now() + Duration::from_secs(5);
    while list(&client).await.is_err() {
        assert!(Instant::now() < until, "not found again");
        tokio::task::yield_now().await;
    }
    runtime.failpoints().set(On::rpc("ListPodSandbox").once(), Failure::CrashConnection);
    let error = list(&client).await.unwrap_err();
    assert!(error.is_unavailable() && error.is_uncertain(), "{error:?}");
    assert_eq!(list(&client).await.unwrap(), 0, "a new connection is made by the next call");
    drop(server);
}

#[tokio::test]
async fn a_hanging_call_ends_at_its_deadline_and_hurts_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("cri.sock");
    let runtime = FakeRuntime::default();
    let _server = fake::serve(runtime.clone(), &socket).unwrap();
    let client = impatient(&socket, Duration::from_millis(100));
    // On the same connection, with time enough for a loaded machine.
    let patient = CriClient { options: Arc::default(), ..client.clone() };
    runtime.failpoints().set(On::any().pod("stuck"), Failure::Hang);

    let stuck: Vec<_> = (0..200).map(|attempt| client.run_pod_sandbox(sandbox("stuck", attempt))).collect();
    let stuck = futures_util::future::join_all(stuck);
    let others = async {
        for attempt in 0..20 {
            patient.run_pod_sandbox(sandbox("fine", attempt)).await.unwrap();
        }
    };
    let (answers, ()) = tokio::join!(stuck, others);
    for answer in answers {
        let error = answer.unwrap_err();
        assert_eq!(error.to_string(), "rpc error: code = DeadlineExceeded desc = context deadline exceeded");
    }
    assert_eq!(list(&patient).await.unwrap(), 20);
}

#[tokio::test]
async fn work_done_without_an_answer_is_told_as_uncertain() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("cri.sock");
    let runtime = FakeRuntime::default();
    let _server = fake::serve(runtime.clone(), &socket).unwrap();
    let client = impatient(&socket, Duration::from_millis(100));
    runtime.failpoints().set(On::rpc("RunPodSandbox").once(), Failure::DropReply);
    assert!(client.run_pod_sandbox(sandbox("a", 0)).await.unwrap_err().is_uncertain());
    runtime.failpoints().set(On::rpc("RunPodSandbox").once(), Failure::SwallowReply);
    assert!(client.run_pod_sandbox(sandbox("b", 0)).await.unwrap_err().is_deadline_exceeded());
    assert_eq!(runtime.sandboxes().len(), 2);
}

#[tokio::test]
async fn events_are_refused_early_or_flow_from_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let old = dir.path().join("old.sock");
    let _old = fake::serve(FakeRuntime::new(FakeOptions::without_events()), &old).unwrap();
    let Err(error) = client(&old).container_events().await else { panic!("no refusal") };
    assert!(error.is_unimplemented());

    let new = dir.path().join("new.sock");
    let runtime = FakeRuntime::default();
    let _new = fake::serve(runtime.clone(), &new).unwrap();
    let client = client(&new);
    let mut events = client.container_events().await.unwrap();
    client.run_pod_sandbox(sandbox("a", 0)).await.unwrap();
    let event = events.next().await.unwrap().unwrap();
    assert_eq!(event.container_event_type(), v1::ContainerEventType::ContainerCreatedEvent);
    assert_eq!(event.pod_sandbox_status.unwrap().metadata.unwrap().uid, "a");
    events.next().await.unwrap().unwrap();

    runtime.failpoints().crash();
    assert!(events.next().await.unwrap().unwrap_err().is_unavailable(), "a broken stream says so");
    assert!(events.next().await.is_none());
}

#[tokio::test]
async fn a_subscriber_that_does_not_read_stops_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("cri.sock");
    let runtime = FakeRuntime::default();
    let _server = fake::serve(runtime.clone(), &socket).unwrap();
    let client = client(&socket);
    let _unread = client.container_events().await.unwrap();
    for attempt in 0..300 {
        let mut request = sandbox("a", attempt);
        if let Some(config) = &mut request.config {
            config.annotations.insert("big".to_owned(), "x".repeat(4096));
        }
        client.run_pod_sandbox(request).await.unwrap();
    }
    assert_eq!(list(&client).await.unwrap(), 300);
}

#[tokio::test]
async fn lists_up_to_sixteen_mebibytes_pass() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("cri.sock");
    let _server = fake::serve(FakeRuntime::default(), &socket).unwrap();
    let client = client(&socket);
    let mut request = sandbox("big", 0);
    if let Some(config) = &mut request.config {
        config.annotations.insert("big".to_owned(), "x".repeat(7 << 20));
    }
    client.run_pod_sandbox(request.clone()).await.unwrap();
    assert_eq!(list(&client).await.unwrap(), 1);
}

#[tokio::test]
async fn calls_are_counted_under_upstreams_names() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("cri.sock");
    let _server = fake::serve(FakeRuntime::default(), &socket).unwrap();
    let client = client(&socket);
    let mut registry = prometheus_client::registry::Registry::default();
    client.options.metrics.register(&mut registry);
    list(&client).await.unwrap();
    client.image_fs_info(v1::ImageFsInfoRequest {}).await.unwrap();
    let _refused = client.container_status(v1::ContainerStatusRequest::default()).await;
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    for line in [
        "kubelet_runtime_operations_total{operation_type=\"list_podsandbox\"} 1",
        "kubelet_runtime_operations_total{operation_type=\"image_fs_info\"} 1",
        "kubelet_runtime_operations_errors_total{operation_type=\"container_status\"} 1",
        "kubelet_runtime_operations_duration_seconds_count{operation_type=\"list_podsandbox\"} 1",
    ] {
        assert!(text.contains(line), "{line} is not in {text}");
    }
}

#[tokio::test]
async fn both_services_share_a_connection_where_the_socket_is_one() {
    let options = ClientOptions::default;
    let (runtime, images) = CriClient::connect_both("/run/a.sock", Some("unix:///run/a.sock"), options()).unwrap();
    assert!(Arc::ptr_eq(&runtime.options, &images.options));
    let (runtime, images) = CriClient::connect_both("/run/a.sock", Some("/run/b.sock"), options()).unwrap();
    assert!(!Arc::ptr_eq(&runtime.options, &images.options));
    assert_eq!(images.endpoint().to_string(), "unix:///run/b.sock");
}
