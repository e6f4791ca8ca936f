use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use futures_util::stream;
use parking_lot::Mutex;
use tokio::net::UnixListener;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use super::tasks::tasks_server::{Tasks as TasksApi, TasksServer};
use super::*;
use crate::ClientOptions;
use crate::v1::runtime_service_server::{RuntimeService as RuntimeApi, RuntimeServiceServer};

/// A runtime that refuses to remove a container as long as there is a task of it, as containerd does.
#[derive(Debug, Clone, Default)]
struct Containerd(Arc<Mutex<World>>);

#[derive(Debug, Default)]
struct World {
    containers: BTreeMap<String, v1::ContainerState>,
    tasks: BTreeMap<String, tasks::Status>,
    calls: Vec<String>,
}

impl Containerd {
    fn with(state: v1::ContainerState, task: tasks::Status) -> Self {
        let this = Self::default();
        this.0.lock().containers.insert("c".to_owned(), state);
        this.0.lock().tasks.insert("c".to_owned(), task);
        this
    }

    fn refusal(&self) -> Result<(), Status> {
        match self.0.lock().tasks.keys().next() {
            Some(id) => Err(Status::failed_precondition(format!("cannot delete running task {id}"))),
            None => Ok(()),
        }
    }

    fn note<T>(&self, call: &str, request: &Request<T>) {
        let namespace = request.metadata().get("containerd-namespace").and_then(|value| value.to_str().ok());
        self.0.lock().calls.push(format!("{call} {}", namespace.unwrap_or_default()));
    }

    fn calls(&self) -> Vec<String> {
        self.0.lock().calls.clone()
    }

    /// Serves it; the server ends with the test's runtime.
    fn serve(&self, path: &Path, with_tasks: bool) -> CriClient {
        let listener = UnixListener::bind(path).unwrap();
        let incoming = stream::unfold(listener, |listener| async move {
            Some((listener.accept().await.map(|(stream, _)| stream), listener))
        });
        let server = Server::builder()
            .add_service(RuntimeServiceServer::new(self.clone()))
            .add_optional_service(with_tasks.then(|| TasksServer::new(self.clone())))
            .serve_with_incoming(Box::pin(incoming));
        drop(longshore_util::spawn(&longshore_util::Tasks::new(), "runtime", async move { drop(server.await) }));
        CriClient::connect(path.to_str().unwrap(), ClientOptions::default()).unwrap()
    }
}

#[tonic::async_trait]
impl RuntimeApi for Containerd {
    async fn container_status(
        &self,
        request: Request<v1::ContainerStatusRequest>,
    ) -> Result<Response<v1::ContainerStatusResponse>, Status> {
        let id = request.into_inner().container_id;
        let state = self.0.lock().containers.get(&id).copied().ok_or_else(|| Status::not_found(id.clone()))?;
        let status = v1::ContainerStatus { id, state: state.into(), ..Default::default() };
        Ok(Response::new(v1::ContainerStatusResponse { status: Some(status), ..Default::default() }))
    }

    async fn list_containers(
        &self,
        request: Request<v1::ListContainersRequest>,
    ) -> Result<Response<v1::ListContainersResponse>, Status> {
        assert_eq!(request.into_inner().filter.unwrap().pod_sandbox_id, "s");
        let containers = self.0.lock().containers.clone().into_iter();
        let containers =
            containers.map(|(id, state)| v1::Container { id, state: state.into(), ..Default::default() }).collect();
        Ok(Response::new(v1::ListContainersResponse { containers }))
    }

    async fn remove_container(
        &self,
        request: Request<v1::RemoveContainerRequest>,
    ) -> Result<Response<v1::RemoveContainerResponse>, Status> {
        self.refusal()?;
        self.0.lock().containers.remove(&request.into_inner().container_id);
        Ok(Response::new(Default::default()))
    }

    async fn remove_pod_sandbox(
        &self,
        _: Request<v1::RemovePodSandboxRequest>,
    ) -> Result<Response<v1::RemovePodSandboxResponse>, Status> {
        self.refusal()?;
        self.0.lock().containers.clear();
        Ok(Response::new(Default::default()))
    }
}

#[tonic::async_trait]
impl TasksApi for Containerd {
    async fn get(&self, request: Request<tasks::GetRequest>) -> Result<Response<tasks::GetResponse>, Status> {
        self.note("get", &request);
        let id = request.into_inner().container_id;
        let status = self.0.lock().tasks.get(&id).copied().ok_or_else(|| Status::not_found(id.clone()))?;
        let process = tasks::Process { container_id: id, pid: 7, status: status.into() };
        Ok(Response::new(tasks::GetResponse { process: Some(process) }))
    }

    async fn kill(&self, request: Request<tasks::KillRequest>) -> Result<Response<tasks::KillResponse>, Status> {
        self.note("kill", &request);
        let tasks::KillRequest { container_id, signal, all } = request.into_inner();
        assert!(all && signal == 9);
        self.0.lock().tasks.insert(container_id, tasks::Status::Stopped);
        Ok(Response::new(Default::default()))
    }

    async fn wait(&self, request: Request<tasks::WaitRequest>) -> Result<Response<tasks::WaitResponse>, Status> {
        self.note("wait", &request);
        Ok(Response::new(Default::default()))
    }

    async fn delete(
        &self,
        request: Request<tasks::DeleteTaskRequest>,
    ) -> Result<Response<tasks::DeleteResponse>, Status> {
        self.note("delete", &request);
        let id = request.into_inner().container_id;
        let mut world = self.0.lock();
        if world.tasks.get(&id) != Some(&tasks::Status::Stopped) {
            return Err(Status::failed_precondition("task must be stopped before deletion"));
        }
        world.tasks.remove(&id);
        Ok(Response::new(Default::default()))
    }
}

async fn remove(client: &CriClient) -> Result<(), CriError> {
    client.remove_container(v1::RemoveContainerRequest { container_id: "c".to_owned() }).await.map(drop)
}

#[tokio::test]
async fn a_task_that_the_runtime_forgot_is_ended_and_its_container_goes() {
    let dir = tempfile::tempdir().unwrap();
    let all = ["get k8s.io", "kill k8s.io", "wait k8s.io", "delete k8s.io"];
    let cases: [(_, &[&str]); 3] = [
        (tasks::Status::Created, &all),
        (tasks::Status::Running, &all),
        (tasks::Status::Stopped, &["get k8s.io", "delete k8s.io"]),
    ];
    for (state, calls) in cases {
        let runtime = Containerd::with(v1::ContainerState::ContainerExited, state);
        let client = runtime.serve(&dir.path().join(state.as_str_name()), true);
        remove(&client).await.unwrap();
        assert!(runtime.0.lock().containers.is_empty());
        assert_eq!(runtime.calls(), calls);
    }
}

#[tokio::test]
async fn a_sandbox_with_such_a_container_goes() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = Containerd::with(v1::ContainerState::ContainerExited, tasks::Status::Created);
    let client = runtime.serve(&dir.path().join("s"), true);
    let request = v1::RemovePodSandboxRequest { pod_sandbox_id: "s".to_owned() };
    client.remove_pod_sandbox(request).await.unwrap();
    let world = runtime.0.lock();
    assert!(world.containers.is_empty() && world.tasks.is_empty());
}

#[tokio::test]
async fn the_task_of_a_container_that_is_not_shown_as_exited_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = Containerd::with(v1::ContainerState::ContainerRunning, tasks::Status::Running);
    let client = runtime.serve(&dir.path().join("s"), true);
    assert!(remove(&client).await.unwrap_err().message.contains("cannot delete running task"));
    let request = v1::RemovePodSandboxRequest { pod_sandbox_id: "s".to_owned() };
    assert!(client.remove_pod_sandbox(request).await.is_err());
    assert_eq!(runtime.calls(), [""; 0]);
}

#[tokio::test]
async fn a_refusal_of_a_runtime_without_tasks_stands() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = Containerd::with(v1::ContainerState::ContainerExited, tasks::Status::Created);
    let client = runtime.serve(&dir.path().join("s"), false);
    let error = remove(&client).await.unwrap_err();
    assert_eq!(error.message, "cannot delete running task c");
}
