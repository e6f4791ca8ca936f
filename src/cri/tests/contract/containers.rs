use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;

use super::*;
use v1::ContainerEventType as Event;

pub(super) async fn live_and_die(subject: &Subject) {
    let pod = Pod::run(subject, "container-life").await;
    let id = pod.create(POLITE, 0).await;
    let status = subject.container(&id).await.unwrap();
    assert_eq!(status.state(), v1::ContainerState::ContainerCreated);
    assert_eq!((status.started_at, status.finished_at), (0, 0));
    assert_eq!(status.labels, pod.config.labels);
    assert_eq!(status.annotations, pod.config.annotations);
    assert_eq!(status.log_path, format!("{}/polite_0.log", pod.config.log_directory));
    assert!(!status.image_ref.is_empty() && !status.image.unwrap().image.is_empty());

    let start = v1::StartContainerRequest { container_id: id.clone() };
    subject.runtime.start_container(start.clone()).await.unwrap();
    let status = subject.container(&id).await.unwrap();
    assert_eq!(status.state(), v1::ContainerState::ContainerRunning);
    assert!(status.started_at >= status.created_at);
    assert!(subject.runtime.start_container(start).await.is_err(), "a running container is not started");

    let mut running = v1::ContainerStateValue::default();
    running.set_state(v1::ContainerState::ContainerRunning);
    let by_label = v1::ContainerFilter { label_selector: of("container-life"), ..Default::default() };
    for filter in [
        v1::ContainerFilter { state: Some(running), ..by_label.clone() },
        v1::ContainerFilter { pod_sandbox_id: pod.id.clone(), ..Default::default() },
        v1::ContainerFilter { id: id.clone(), ..Default::default() },
    ] {
        let rows = subject.containers(filter).await;
        assert_eq!(rows.len(), 1);
        assert_eq!((rows[0].id.as_str(), rows[0].pod_sandbox_id.as_str()), (id.as_str(), pod.id.as_str()));
        assert_eq!(rows[0].labels, pod.config.labels);
    }

    // The process is there only a moment after the start; give its shell time to set the trap.
    tokio::time::sleep(Duration::from_millis(300)).await;
    subject.stop(&id, 10).await.unwrap();
    let status = subject.container(&id).await.unwrap();
    assert_eq!((status.state(), status.exit_code), (v1::ContainerState::ContainerExited, 7));
    assert_eq!(status.reason, "Error");
    subject.stop(&id, 10).await.unwrap();
    assert!(subject.containers(v1::ContainerFilter { state: Some(running), ..by_label }).await.is_empty());

    subject.remove(&id).await.unwrap();
    subject.remove(&id).await.unwrap();
    assert!(subject.container(&id).await.unwrap_err().is_not_found());

    let running = pod.start(STUBBORN).await;
    subject.remove(&running).await.unwrap();
    assert!(subject.container(&running).await.unwrap_err().is_not_found(), "a running container is killed and removed");
    pod.end().await;
}

pub(super) async fn keep_their_name(subject: &Subject) {
    let pod = Pod::run(subject, "container-name").await;
    let id = pod.create(POLITE, 0).await;
    let error = subject.runtime.create_container(pod.request(POLITE, 0)).await.unwrap_err();
    let name = "polite_contract_default_container-name_0";
    let (begin, end) =
        (format!("failed to reserve container name \"{name}\""), format!(": name \"{name}\" is reserved for \"{id}\""));
    assert!(error.message.starts_with(&begin) && error.message.ends_with(&end), "{error}");
    assert_eq!(error.name_reserved_for(), Some(id.as_str()));
    let next = pod.create(POLITE, 1).await;
    let created = subject.container(&id).await.unwrap().created_at;
    assert!(subject.container(&next).await.unwrap().created_at > created);
    subject.remove(&id).await.unwrap();
    pod.create(POLITE, 0).await;
    pod.end().await;
}

pub(super) async fn tell_how_they_ended(subject: &Subject) {
    let pod = Pod::run(subject, "container-end").await;
    let (fails, succeeds) = (pod.start(FAILS).await, pod.start(SUCCEEDS).await);
    for (id, code, reason) in [(fails, 3, "Error"), (succeeds, 0, "Completed")] {
        let status = subject.ended(&id).await;
        assert_eq!((status.exit_code, status.reason.as_str()), (code, reason));
        assert!(status.finished_at >= status.started_at && status.started_at >= status.created_at);
    }
    let log = std::fs::read_to_string(subject.logs.join("container-end/succeeds_0.log")).unwrap();
    assert!(log.trim_end().ends_with(" stdout F hello"), "{log:?}");
    assert!(subject.runtime.reopen_container_log(v1::ReopenContainerLogRequest::default()).await.is_err());
    pod.end().await;
}

pub(super) async fn are_killed_after_their_grace(subject: &Subject) {
    let pod = Pod::run(subject, "container-grace").await;
    let (slow, quick) = (pod.start(STUBBORN).await, pod.start(POLITE).await);
    tokio::time::sleep(Duration::from_millis(300)).await;
    let began = Instant::now();
    subject.stop(&slow, 1).await.unwrap();
    let took = began.elapsed();
    assert!((Duration::from_millis(900)..Duration::from_secs(5)).contains(&took), "{took:?}");
    assert_eq!(subject.container(&slow).await.unwrap().exit_code, 137);
    subject.stop(&quick, 0).await.unwrap();
    assert_eq!(subject.container(&quick).await.unwrap().exit_code, 137, "no grace is a kill");
    pod.end().await;
}

pub(super) async fn run_commands(subject: &Subject) {
    let pod = Pod::run(subject, "container-exec").await;
    let id = pod.start(POLITE).await;
    let command = ["/bin/sh", "-c", "echo out; echo err >&2; exit 5"].map(str::to_owned).to_vec();
    let request = v1::ExecSyncRequest { container_id: id.clone(), cmd: command, timeout: 10 };
    let reply = subject.runtime.exec_sync(request.clone()).await.unwrap();
    assert_eq!((reply.stdout.as_slice(), reply.stderr.as_slice(), reply.exit_code), (&b"out\n"[..], &b"err\n"[..], 5));

    let exec =
        v1::ExecRequest { container_id: id.clone(), cmd: vec!["true".to_owned()], stdout: true, ..Default::default() };
    let url = subject.runtime.exec(exec).await.unwrap().url;
    assert!(url.starts_with("http"), "{url}");
    let attach = v1::AttachRequest { container_id: id.clone(), stdout: true, ..Default::default() };
    assert!(subject.runtime.attach(attach).await.unwrap().url.starts_with("http"));
    let forward = v1::PortForwardRequest { pod_sandbox_id: pod.id.clone(), port: vec![80] };
    assert!(subject.runtime.port_forward(forward).await.unwrap().url.starts_with("http"));

    subject.stop(&id, 0).await.unwrap();
    let error = subject.runtime.exec_sync(request).await.unwrap_err();
    assert!(error.message.contains("container is in CONTAINER_EXITED state"), "{error}");
    pod.end().await;
}

pub(super) async fn show_figures(subject: &Subject) {
    let pod = Pod::run(subject, "container-stats").await;
    let id = pod.start(POLITE).await;
    let filter = v1::ContainerStatsFilter { label_selector: of("container-stats"), ..Default::default() };
    let request = v1::ListContainerStatsRequest { filter: Some(filter) };
    let until = Instant::now() + Duration::from_secs(20);
    // A runtime may need a moment until its first figures are there.
    let stats = loop {
        let stats = subject.runtime.list_container_stats(request.clone()).await.unwrap().stats;
        if stats.len() == 1 && stats[0].cpu.is_some() && stats[0].memory.is_some() {
            break stats;
        }
        assert!(Instant::now() < until, "{stats:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    assert_eq!(stats[0].attributes.as_ref().unwrap().id, id);
    match subject.runtime.pod_sandbox_stats(v1::PodSandboxStatsRequest { pod_sandbox_id: pod.id.clone() }).await {
        Ok(answer) => assert_eq!(answer.stats.unwrap().attributes.unwrap().id, pod.id),
        Err(error) => assert!(error.is_unimplemented(), "{error}"),
    }
    pod.end().await;
}

pub(super) async fn that_are_not_there(subject: &Subject) {
    let ghost = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    let error = subject.container(ghost).await.unwrap_err();
    assert!(error.is_not_found(), "{error}");
    subject.remove(ghost).await.unwrap();
    match subject.stop(ghost, 1).await {
        Ok(()) => {}
        Err(error) => assert!(error.is_not_found(), "{error}"),
    }
    let start = v1::StartContainerRequest { container_id: ghost.to_owned() };
    assert!(subject.runtime.start_container(start).await.unwrap_err().is_not_found());
    let stop = v1::StopPodSandboxRequest { pod_sandbox_id: ghost.to_owned() };
    if let Err(error) = subject.runtime.stop_pod_sandbox(stop).await {
        assert!(error.is_not_found(), "{error}");
    }

    let pod = Pod::run(subject, "container-ghost").await;
    let request = v1::CreateContainerRequest { pod_sandbox_id: ghost.to_owned(), ..pod.request(POLITE, 0) };
    let error = subject.runtime.create_container(request).await.unwrap_err();
    assert!(error.is_not_found(), "{error}");
    let mut request = pod.request(POLITE, 0);
    if let Some(config) = &mut request.config {
        config.image = image("localhost/not-there:1");
    }
    assert!(subject.runtime.create_container(request).await.is_err());
    // A create that failed has left no name behind.
    pod.create(POLITE, 0).await;
    pod.end().await;
}

pub(super) async fn tell_events(subject: &Subject) {
    let mut events = match subject.runtime.container_events().await {
        Ok(events) => events,
        Err(error) => {
            assert!(error.is_unimplemented() && !subject.has_events, "{error}");
            return;
        }
    };
    assert!(subject.has_events);
    let pod = Pod::run(subject, "container-events").await;
    let id = pod.start(FAILS).await;
    let mut seen = Vec::new();
    let until = Instant::now() + Duration::from_secs(20);
    let mut exit_code = None;
    while seen.last() != Some(&Event::ContainerDeletedEvent) {
        let Ok(Some(event)) = tokio::time::timeout_at(until, events.next()).await else {
            panic!("events end with {seen:?}");
        };
        let event = event.unwrap();
        if event.container_id != id {
            continue;
        }
        seen.push(event.container_event_type());
        if event.container_event_type() == Event::ContainerStoppedEvent {
            let sandbox = event.pod_sandbox_status.unwrap();
            assert_eq!(sandbox.labels, pod.config.labels, "an event tells its pod");
            let own = event.containers_statuses.iter().find(|status| status.id == id).unwrap();
            exit_code = Some((own.state(), own.exit_code));
            subject.remove(&id).await.unwrap();
        }
    }
    let wanted = [
        Event::ContainerCreatedEvent,
        Event::ContainerStartedEvent,
        Event::ContainerStoppedEvent,
        Event::ContainerDeletedEvent,
    ];
    assert_eq!(seen, wanted);
    assert_eq!(exit_code, Some((v1::ContainerState::ContainerExited, 3)));

    // Without these a relist would take the end of each sandbox for an event that was lost. Each is waited for before the
    // next step: containerd tells an end from a goroutine of its own, and drops it when the sandbox is gone by then.
    pod.stop().await;
    assert_eq!(next_of(&mut events, &pod.id).await, Event::ContainerStoppedEvent);
    pod.end().await;
    let mut last = next_of(&mut events, &pod.id).await;
    while last == Event::ContainerStoppedEvent {
        last = next_of(&mut events, &pod.id).await;
    }
    assert_eq!(last, Event::ContainerDeletedEvent);
}

/// The next event of a container or sandbox.
async fn next_of(events: &mut BoxStream<'static, Result<v1::ContainerEventResponse, CriError>>, id: &str) -> Event {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let Ok(Some(event)) = tokio::time::timeout_at(until, events.next()).await else {
            panic!("no further event of {id}");
        };
        let event = event.unwrap();
        if event.container_id == id {
            return event.container_event_type();
        }
    }
}
