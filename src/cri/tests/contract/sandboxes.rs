use super::*;

pub(super) async fn names_itself(subject: &Subject) {
    let version = subject.runtime.version(v1::VersionRequest { version: "0.1.0".to_owned() }).await.unwrap();
    assert_eq!(version.runtime_api_version, "v1");
    assert!(!version.runtime_name.is_empty() && !version.runtime_version.is_empty());
    let status = subject.runtime.status(v1::StatusRequest { verbose: false }).await.unwrap().status.unwrap();
    for kind in ["RuntimeReady", "NetworkReady"] {
        assert!(status.conditions.iter().any(|condition| condition.r#type == kind), "{kind} is missing: {status:?}");
    }
    match subject.runtime.runtime_config(v1::RuntimeConfigRequest {}).await {
        Ok(config) => assert!(config.linux.is_some()),
        Err(error) => assert!(error.is_unimplemented(), "{error}"),
    }
}

pub(super) async fn live_and_die(subject: &Subject) {
    let pod = Pod::run(subject, "sandbox-life").await;
    let status = pod.status().await.unwrap();
    assert_eq!(status.id, pod.id);
    assert_eq!(status.state(), v1::PodSandboxState::SandboxReady);
    assert_eq!(status.metadata, pod.config.metadata);
    assert_eq!(status.labels, pod.config.labels);
    assert_eq!(status.annotations, pod.config.annotations);
    assert!(status.created_at > 1_600_000_000_000_000_000, "nanoseconds: {}", status.created_at);
    let mode = |status: v1::PodSandboxStatus| status.linux?.namespaces?.options.map(|options| options.network());
    assert_eq!(mode(status), Some(v1::NamespaceMode::Node));

    let mut ready = v1::PodSandboxStateValue::default();
    ready.set_state(v1::PodSandboxState::SandboxReady);
    let labels = v1::PodSandboxFilter { label_selector: of("sandbox-life"), ..Default::default() };
    let rows = subject.sandboxes(v1::PodSandboxFilter { state: Some(ready), ..labels.clone() }).await;
    assert_eq!(rows.len(), 1);
    assert_eq!((rows[0].id.as_str(), &rows[0].labels), (pod.id.as_str(), &pod.config.labels));
    assert!(
        subject.sandboxes(v1::PodSandboxFilter { label_selector: of("other"), ..Default::default() }).await.is_empty()
    );
    let by_id = v1::PodSandboxFilter { id: pod.id.clone(), ..Default::default() };
    assert_eq!(subject.sandboxes(by_id).await.len(), 1);

    pod.stop().await;
    pod.stop().await;
    assert_eq!(pod.status().await.unwrap().state(), v1::PodSandboxState::SandboxNotready);
    assert!(subject.sandboxes(v1::PodSandboxFilter { state: Some(ready), ..labels.clone() }).await.is_empty());
    assert_eq!(subject.sandboxes(labels.clone()).await.len(), 1);

    pod.end().await;
    pod.end().await;
    let error = pod.status().await.unwrap_err();
    assert!(error.is_not_found(), "{error}");
    assert!(subject.sandboxes(labels).await.is_empty());
}

/// The agent takes this error as "still being made": the words and the id in it are part of the contract.
pub(super) async fn keep_their_name(subject: &Subject) {
    let pod = Pod::run(subject, "sandbox-name").await;
    let again = v1::RunPodSandboxRequest { config: Some(pod.config.clone()), ..Default::default() };
    let error = subject.runtime.run_pod_sandbox(again.clone()).await.unwrap_err();
    let name = "contract_default_sandbox-name_0";
    assert_eq!(
        error.message,
        format!("failed to reserve sandbox name \"{name}\": name \"{name}\" is reserved for \"{}\"", pod.id)
    );
    assert_eq!(error.name_reserved_for(), Some(pod.id.as_str()));
    let next = Pod::run_with(subject, config(subject, "sandbox-name", 1, v1::NamespaceMode::Node)).await;
    let newer = next.status().await.unwrap().created_at;
    assert!(newer > pod.status().await.unwrap().created_at);

    pod.stop().await;
    assert!(subject.runtime.run_pod_sandbox(again.clone()).await.is_err(), "a stopped sandbox keeps its name");
    pod.end().await;
    let id = subject.runtime.run_pod_sandbox(again).await.unwrap().pod_sandbox_id;
    Pod { id, ..pod }.end().await;
    next.end().await;
}

pub(super) async fn take_their_containers_along(subject: &Subject) {
    let pod = Pod::run(subject, "sandbox-end").await;
    let running = pod.start(STUBBORN).await;
    let created = pod.create(POLITE, 0).await;
    pod.stop().await;
    let status = subject.container(&running).await.unwrap();
    assert_eq!((status.state(), status.exit_code), (v1::ContainerState::ContainerExited, 137));
    let request = v1::StartContainerRequest { container_id: created.clone() };
    assert!(subject.runtime.start_container(request).await.is_err(), "nothing starts in a stopped sandbox");
    pod.end().await;
    for id in [running, created] {
        assert!(subject.container(&id).await.unwrap_err().is_not_found());
    }
}

pub(super) async fn have_an_address(subject: &Subject) {
    let on_host = Pod::run(subject, "sandbox-host").await;
    assert_eq!(on_host.status().await.unwrap().network.unwrap_or_default().ip, "");
    on_host.end().await;
    if !subject.has_network {
        return;
    }
    let pod = Pod::run_with(subject, config(subject, "sandbox-net", 0, v1::NamespaceMode::Pod)).await;
    let ip = pod.status().await.unwrap().network.unwrap_or_default().ip;
    assert!(ip.parse::<std::net::IpAddr>().is_ok(), "{ip:?}");
    pod.stop().await;
    assert_eq!(pod.status().await.unwrap().network.unwrap_or_default().ip, "", "the address is given back");
    pod.end().await;
}
