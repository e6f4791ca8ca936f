use std::process::Command;

use super::*;

fn kubectl(config: &Path, args: &[&str]) -> Option<(bool, String)> {
    let out = Command::new("kubectl").arg("--kubeconfig").arg(config).args(args).output().ok()?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    Some((out.status.success(), text))
}

fn loopback() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plane_serves_over_tls_and_finds_its_objects_again() {
    let dir = tempfile::tempdir().unwrap();
    let mut stored = String::new();
    for round in 0..2 {
        let tasks = Tasks::new();
        let plane = Plane::start(PlaneOptions::new(dir.path().join("data"), loopback()), &tasks).await.unwrap();
        let config = plane.admin_kubeconfig.clone();
        let answer = tokio::task::spawn_blocking(move || kubectl(&config, &["get", "ns", "-o", "yaml"])).await.unwrap();
        let Some((ok, text)) = answer else {
            eprintln!("skipped: no kubectl on this machine");
            return;
        };
        assert!(ok, "{text}");
        for name in SYSTEM_NAMESPACES {
            assert!(text.contains(&format!("name: {name}")), "{text}");
        }
        let found = plane.registry().get(&NAMESPACES, "", "kube-system").unwrap().value().unwrap();
        if round == 0 {
            stored = found["metadata"]["uid"].to_string();
        }
        assert_eq!(found["metadata"]["uid"].to_string(), stored);
        tasks.cancel();
        tasks.join().await;
        plane.close().await;
    }
}

#[tokio::test]
async fn a_second_plane_on_the_same_data_is_refused_in_words() {
    let dir = tempfile::tempdir().unwrap();
    let tasks = Tasks::new();
    let _first = Plane::start(PlaneOptions::new(dir.path(), loopback()), &tasks).await.unwrap();
    let second = Plane::start(PlaneOptions::new(dir.path(), loopback()), &tasks).await;
    assert!(matches!(&second, Err(PlaneError::Store(OpenError::Locked { .. }))), "{second:?}");
}

#[tokio::test]
async fn a_taken_port_is_refused_in_words() {
    let dir = tempfile::tempdir().unwrap();
    let tasks = Tasks::new();
    let taken = tokio::net::TcpListener::bind(loopback()).await.unwrap();
    let started = Plane::start(PlaneOptions::new(dir.path(), taken.local_addr().unwrap()), &tasks).await;
    assert!(matches!(&started, Err(PlaneError::Bind(BindError::InUse { .. }))), "{started:?}");
}
