//! A stock kubectl against the server, in the clear. Skipped with a reason where there is none.

use std::process::{Command, Stdio};

use longshore_transport::serve::{ServeOptions, bind, serve};
use longshore_util::Tasks;

use super::Server;
use crate::apiserver::server::ApiService;

fn kubectl(server: &str, args: &[&str], input: &str) -> (bool, String) {
    let folder = std::env::temp_dir().join(format!("longshore-kubectl-{}", std::process::id()));
    let mut child = Command::new("kubectl")
        .args(["--server", server, "--cache-dir"])
        .arg(&folder)
        .args(args)
        .env("KUBECONFIG", "/dev/null")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), input.as_bytes()).unwrap();
    let out = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    (out.status.success(), text)
}

const MANIFEST: &str = r"
apiVersion: v1
kind: ConfigMap
metadata: {name: cm, namespace: a}
data: {mode: '0644'}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: a}
spec: {selector: {app: x}, ports: [{port: 80}]}
---
apiVersion: v1
kind: Pod
metadata: {name: p, namespace: a, labels: {app: x}}
spec:
  nodeName: n1
  containers: [{name: c, image: 'i:1'}]
";

#[tokio::test(flavor = "multi_thread")]
async fn a_stock_kubectl_applies_gets_describes_waits_and_deletes() {
    if Command::new("kubectl").args(["version", "--client"]).output().is_err() {
        eprintln!("skipped: no kubectl on this machine");
        return;
    }
    let api = Server::start().await.api;
    let tasks = Tasks::new();
    let listener = bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    serve("test-api", listener, None, ApiService(api), ServeOptions::default(), &tasks);

    tokio::task::spawn_blocking(move || {
        let run = |args: &[&str], input: &str| {
            let (ok, text) = kubectl(&server, args, input);
            assert!(ok, "kubectl {args:?}: {text}");
            text
        };
        // With its own checks on, as people call it.
        let text = run(&["apply", "-f", "-"], MANIFEST);
        for line in ["configmap/cm created", "service/web created", "pod/p created"] {
            assert!(text.contains(line), "{text}");
        }
        let text = run(&["apply", "--validate=false", "-f", "-"], &MANIFEST.replace("0644", "0600"));
        for line in ["configmap/cm configured", "service/web unchanged", "pod/p unchanged"] {
            assert!(text.contains(line), "{text}");
        }
        let (ok, text) = kubectl(&server, &["apply", "-f", "-"], &MANIFEST.replace("\ndata:", "\ndate:"));
        assert!(!ok && text.contains("unknown field \"date\""), "{text}");
        let text = run(&["get", "pods", "-n", "a"], "");
        assert!(text.contains("NAME   READY   STATUS    RESTARTS   AGE"), "{text}");
        assert!(text.contains("p      0/1     Pending   0"), "{text}");
        let text = run(&["get", "cm,svc,sa,po", "-A", "-o", "wide"], "");
        assert!(text.contains("service/web") && text.contains("configmap/cm"), "{text}");
        assert_eq!(run(&["get", "cm", "cm", "-n", "a", "-o", "jsonpath={.data.mode}"], ""), "0600");
        let text = run(&["describe", "pod", "p", "-n", "a"], "");
        assert!(text.contains("Service Account:  default"), "{text}");
        run(&["describe", "svc", "web", "-n", "a"], "");
        run(&["label", "pod", "p", "-n", "a", "extra=1"], "");
        run(&["annotate", "cm", "cm", "-n", "a", "note=x"], "");
        let text = run(&["api-resources"], "");
        assert!(text.contains("runtimeclasses") && text.contains("leases"), "{text}");
        let text = run(&["wait", "--for=jsonpath={.status.phase}=Pending", "pod/p", "-n", "a", "--timeout=5s"], "");
        assert!(text.contains("condition met"), "{text}");
        let text = run(&["delete", "pod", "p", "-n", "a", "--now", "--wait=false"], "");
        assert!(text.contains("pod \"p\" deleted"), "{text}");
        let text = run(&["delete", "pod", "p", "-n", "a", "--force", "--grace-period=0"], "");
        assert!(text.contains("force deleted"), "{text}");
        let text = run(&["delete", "-f", "-"], MANIFEST.split("---").next().unwrap());
        assert!(text.contains("configmap \"cm\" deleted"), "{text}");
        let (ok, text) = kubectl(&server, &["get", "pod", "gone", "-n", "a"], "");
        assert!(!ok && text.contains("Error from server (NotFound): pods \"gone\" not found"), "{text}");
        // Typed clients send protobuf.
        let text = run(&["create", "ns", "b"], "");
        assert!(text.contains("namespace/b created"), "{text}");
        run(&["create", "configmap", "made", "-n", "b", "--from-literal=a=1"], "");
        run(&["create", "secret", "generic", "made", "-n", "b", "--from-literal=a=1"], "");
        run(&["create", "serviceaccount", "made", "-n", "b"], "");
        run(&["create", "service", "clusterip", "made", "-n", "b", "--tcp=80:8080"], "");
        run(&["delete", "configmap", "made", "-n", "b"], "");
        // Lists are checked against the document of version 2, which kubectl takes in protobuf alone.
        let list = r#"{"apiVersion": "v1", "kind": "List", "items": [
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one", "namespace": "b"}, "data": {"a": "1"}},
            {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "two", "namespace": "b"}}]}"#;
        let text = run(&["create", "-f", "-"], list);
        assert!(text.contains("configmap/one created") && text.contains("secret/two created"), "{text}");
        let (ok, text) = kubectl(&server, &["apply", "-f", "-"], &list.replace("data\"", "date\""));
        assert!(!ok && text.contains("unknown field \"date\""), "{text}");
        applies_on_the_server(&run);
        explains(&run);
        let text = run(&["get", "events", "-A"], "");
        assert!(text.contains("No resources found"), "{text}");
        let text = run(&["version", "-o", "json"], "");
        assert!(text.contains("v1.36"), "{text}");
    })
    .await
    .unwrap();
    tasks.cancel();
    tasks.join().await;
}

/// Server-side apply as people use it: over nothing, again, with a conflict, by force, as a diff.
fn applies_on_the_server(run: &dyn Fn(&[&str], &str) -> String) {
    // No brace comes first: older kubectls take that for JSON.
    let mine = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: ssa, namespace: b}\ndata: {a: \"1\"}\n";
    let text = run(&["apply", "--server-side", "-f", "-"], mine);
    assert!(text.contains("configmap/ssa serverside-applied"), "{text}");
    run(&["apply", "--server-side", "-f", "-"], mine);
    let text = run(&["get", "cm", "ssa", "-n", "b", "-o", "yaml", "--show-managed-fields"], "");
    assert!(text.contains("manager: kubectl") && text.contains("operation: Apply"), "{text}");
    // What was applied by the client moves over to the server.
    let mine = mine.replace("ssa", "moved");
    run(&["apply", "-f", "-"], &mine);
    run(&["apply", "--server-side", "-f", "-"], &mine.replace("\"1\"", "\"2\""));
    let text =
        run(&["get", "cm", "moved", "-n", "b", "-o", "jsonpath={.metadata.managedFields[*].operation} {.data.a}"], "");
    assert!(text.ends_with(" 2") && !text.contains("Update"), "{text}");
}

/// Types as kubectl shows them: names, types, what is required.
fn explains(run: &dyn Fn(&[&str], &str) -> String) {
    let text = run(&["explain", "pod"], "");
    assert!(text.contains("KIND:       Pod") && text.contains("VERSION:    v1"), "{text}");
    assert!(text.contains("spec\t<PodSpec>") && text.contains("metadata\t<ObjectMeta>"), "{text}");
    let text = run(&["explain", "pods.spec.containers"], "");
    assert!(text.contains("FIELD: containers <[]Container>"), "{text}");
    assert!(text.contains("name\t<string> -required-") && text.contains("ports\t<[]ContainerPort>"), "{text}");
    let text = run(&["explain", "leases.spec.leaseDurationSeconds"], "");
    assert!(text.contains("<integer>"), "{text}");
    let text = run(&["explain", "tokenreviews.spec"], "");
    assert!(text.contains("audiences\t<[]string>"), "{text}");
    let text = run(&["explain", "cm.data"], "");
    assert!(text.contains("<map[string]string>"), "{text}");
    let text = run(&["explain", "pods.spec.containers", "--output=plaintext-openapiv2"], "");
    assert!(text.contains("imagePullPolicy\t<string>") && text.contains("ports\t<[]Object>"), "{text}");
}
