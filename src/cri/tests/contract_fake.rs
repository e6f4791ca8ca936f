//! The contract of a runtime holds for the fake, in-process and over a socket, with events and without.

mod contract;

use std::sync::Arc;
use std::time::Duration;

use contract::{FAILS, POLITE, STUBBORN, SUCCEEDS, Subject, holds};
use longshore_cri::fake::{self, ExecReply, FakeOptions, FakeRuntime, OnTerm, Program, Proxy};
use longshore_cri::{ClientOptions, CriClient};

const IMAGE: &str = "localhost/busybox:1";

fn fake(options: FakeOptions) -> FakeRuntime {
    let runtime = FakeRuntime::new(FakeOptions { log_files: true, ..options });
    runtime.add_image(IMAGE);
    runtime.deny_image("localhost:1/not-there:1");
    let short = Duration::from_millis(200);
    let polite = OnTerm::Exit { code: 7, after: Duration::from_millis(10) };
    runtime.set_program(POLITE.name, Program { on_term: polite, ..Program::default() });
    runtime.set_program(STUBBORN.name, Program::stubborn());
    runtime.set_program(FAILS.name, Program::exits(3, short));
    runtime.set_program(SUCCEEDS.name, Program { output: vec!["hello".to_owned()], ..Program::exits(0, short) });
    runtime.on_exec(|_| ExecReply { stdout: b"out\n".to_vec(), stderr: b"err\n".to_vec(), exit_code: 5 });
    runtime
}

fn subject<R>(runtime: R, logs: &std::path::Path, has_events: bool) -> Subject
where
    R: longshore_cri::RuntimeService + longshore_cri::ImageService,
{
    let runtime = Arc::new(runtime);
    Subject {
        runtime: runtime.clone(),
        images: runtime,
        image: IMAGE.to_owned(),
        cgroup: "/contract".to_owned(),
        logs: logs.to_owned(),
        has_events,
        has_network: true,
    }
}

#[tokio::test]
async fn holds_in_process() {
    let dir = tempfile::tempdir().unwrap();
    holds(&subject(fake(FakeOptions::default()), dir.path(), true)).await;
}

#[tokio::test]
async fn holds_without_events() {
    let dir = tempfile::tempdir().unwrap();
    holds(&subject(fake(FakeOptions::without_events()), dir.path(), false)).await;
}

#[tokio::test]
async fn holds_over_a_socket_and_through_a_proxy() {
    let dir = tempfile::tempdir().unwrap();
    let connect =
        |name: &str| CriClient::connect(dir.path().join(name).to_str().unwrap(), ClientOptions::default()).unwrap();
    let _server = fake::serve(fake(FakeOptions::default()), dir.path().join("fake.sock")).unwrap();
    let proxy = Proxy::before(Arc::new(connect("fake.sock")), Arc::new(connect("fake.sock")));
    let _between = fake::serve(proxy.clone(), dir.path().join("proxy.sock")).unwrap();
    holds(&subject(connect("proxy.sock"), dir.path(), true)).await;
    assert!(proxy.failpoints().count("CreateContainer") > 5, "the proxy has seen the calls");
}
