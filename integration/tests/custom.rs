//! A stock kubectl on a custom kind: from its definition over all that people do with objects to the deletion of both.
//!
//! One cluster serves all; each step is a function of its own and builds on those before it.

use std::time::Duration;

use anyhow::{Result, ensure};
use longshore_integration::cluster::{Cluster, ClusterOptions};
use longshore_integration::env::{Env, eventually, newest};

const PATIENCE: Duration = Duration::from_secs(30);

const DEFINITION: &str = r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: crontabs.stable.example.com}
spec:
  group: stable.example.com
  scope: Namespaced
  names: {plural: crontabs, singular: crontab, kind: CronTab, shortNames: [ct], categories: [all]}
  versions:
  - name: v1beta1
    served: true
    storage: false
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, x-kubernetes-preserve-unknown-fields: true}
  - name: v1
    served: true
    storage: true
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas, labelSelectorPath: .status.labelSelector}
    additionalPrinterColumns:
    - {name: Spec, type: string, description: When it runs, jsonPath: .spec.cronSpec}
    - {name: Replicas, type: integer, jsonPath: .spec.replicas}
    - {name: Image, type: string, priority: 1, jsonPath: .spec.image}
    - {name: Age, type: date, jsonPath: .metadata.creationTimestamp}
    selectableFields: [{jsonPath: .spec.image}]
    schema:
      openAPIV3Schema:
        description: A table of things to do.
        type: object
        properties:
          spec:
            type: object
            required: [cronSpec]
            properties:
              cronSpec: {type: string, description: When it runs., pattern: '^(\d+|\*)(/\d+)?(\s+(\d+|\*)(/\d+)?){4}$'}
              image: {type: string, default: "busybox"}
              replicas: {type: integer, default: 1, minimum: 1, maximum: 10}
              ports:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name]
                items:
                  type: object
                  required: [name]
                  properties: {name: {type: string}, port: {type: integer}}
            x-kubernetes-validations:
            - {rule: "self.replicas < 5 || self.image != 'busybox'", message: busybox does not scale}
            - {rule: "self.image == oldSelf.image || self.replicas > 1", message: an image changes only while there are others}
          status:
            type: object
            properties: {replicas: {type: integer}, labelSelector: {type: string}, phase: {type: string}}
"#;

type Step = fn(&Cluster<'_>) -> Result<()>;

const STEPS: [(&str, Step); 9] = [
    ("define", define),
    ("create and get", create_and_get),
    ("explain", explain),
    ("refuse", refuse),
    ("apply", apply_both_ways),
    ("edit, patch, scale", change),
    ("watch and wait", wait),
    ("owners and namespaces", owners),
    ("delete", delete),
];

#[test]
fn root_kubectl_on_a_custom_kind() {
    let env = Env::start(newest()).unwrap();
    let cluster = Cluster::start(&env, ClusterOptions::default()).unwrap();
    for (name, step) in STEPS {
        step(&cluster).unwrap_or_else(|error| panic!("{name}: {error:#}"));
    }
}

fn file(cluster: &Cluster<'_>, name: &str, text: &str) -> Result<String> {
    let file = cluster.env().directory().join(name);
    std::fs::write(&file, text)?;
    Ok(file.display().to_string())
}

/// Runs kubectl and returns what it says when it fails.
fn failure(cluster: &Cluster<'_>, arguments: &[&str]) -> Result<String> {
    let outcome = cluster.kubectl(arguments);
    ensure!(outcome.is_err(), "{arguments:?} went through");
    Ok(outcome.err().map(|error| format!("{error:#}")).unwrap_or_default())
}

fn crontab(name: &str, spec: &str) -> String {
    format!("{{apiVersion: stable.example.com/v1, kind: CronTab, metadata: {{name: {name}}}, spec: {{{spec}}}}}")
}

fn define(cluster: &Cluster<'_>) -> Result<()> {
    let path = file(cluster, "crd.yaml", DEFINITION)?;
    let out = cluster.kubectl(&["apply", "-f", &path])?;
    ensure!(out.contains("crontabs.stable.example.com created"), "{out}");
    cluster.kubectl(&["wait", "--for=condition=Established", "crd/crontabs.stable.example.com", "--timeout=30s"])?;
    let out = cluster.kubectl(&["get", "crd"])?;
    ensure!(out.contains("crontabs.stable.example.com") && out.contains("CREATED AT"), "{out}");
    let again = cluster.kubectl(&["apply", "-f", &path])?;
    ensure!(again.contains("unchanged"), "{again}");
    let out = cluster.kubectl(&["api-resources", "--api-group=stable.example.com"])?;
    ensure!(out.contains("ct") && out.contains("stable.example.com/v1 ") && out.contains("CronTab"), "{out}");
    Ok(())
}

fn create_and_get(cluster: &Cluster<'_>) -> Result<()> {
    let path = file(cluster, "one.yaml", &crontab("one", "cronSpec: '* * * * */5'"))?;
    cluster.kubectl(&["create", "-f", &path])?;
    let out = cluster.kubectl(&["get", "ct"])?;
    ensure!(out.contains("SPEC") && out.contains("* * * * */5") && !out.contains("IMAGE"), "{out}");
    let out = cluster.kubectl(&["get", "crontabs", "-o", "wide"])?;
    ensure!(out.contains("IMAGE") && out.contains("busybox"), "{out}");
    let out = cluster.kubectl(&["get", "ct", "one", "-o", "yaml"])?;
    ensure!(out.contains("replicas: 1") && out.contains("apiVersion: stable.example.com/v1"), "{out}");
    let out =
        cluster.kubectl(&["get", "crontabs.v1beta1.stable.example.com", "one", "-o", "jsonpath={.apiVersion}"])?;
    ensure!(out == "stable.example.com/v1beta1", "{out}");
    let out = cluster.kubectl(&["get", "all"])?;
    ensure!(out.contains("crontab.stable.example.com/one"), "{out}");
    let out = cluster.kubectl(&["get", "ct", "--field-selector", "spec.image=busybox", "-o", "name"])?;
    ensure!(out.trim() == "crontab.stable.example.com/one", "{out}");
    let out = cluster.kubectl(&["describe", "ct", "one"])?;
    ensure!(out.contains("Cron Spec:"), "{out}");
    Ok(())
}

fn explain(cluster: &Cluster<'_>) -> Result<()> {
    let out = cluster.kubectl(&["explain", "crontab"])?;
    ensure!(out.contains("A table of things to do.") && out.contains("spec"), "{out}");
    let out = cluster.kubectl(&["explain", "ct.spec.cronSpec"])?;
    ensure!(out.contains("When it runs.") && out.contains("<string>"), "{out}");
    Ok(())
}

fn refuse(cluster: &Cluster<'_>) -> Result<()> {
    let bad = |spec: &str| -> Result<String> {
        let path = file(cluster, "bad.yaml", &crontab("bad", spec))?;
        failure(cluster, &["create", "--validate=false", "-f", &path])
    };
    let out = bad("cronSpec: whenever")?;
    ensure!(out.contains("spec.cronSpec in body should match"), "{out}");
    let out = bad("replicas: 2")?;
    ensure!(out.contains("spec.cronSpec: Required value"), "{out}");
    let out = bad("cronSpec: '* * * * *', replicas: 11")?;
    ensure!(out.contains("spec.replicas in body should be less than or equal to 10"), "{out}");
    let out = bad("cronSpec: '* * * * *', replicas: 5")?;
    ensure!(out.contains("spec: Invalid value: \"object\": busybox does not scale"), "{out}");
    let path = file(cluster, "odd.yaml", &crontab("odd", "cronSpec: '* * * * *', odd: 1"))?;
    let out = failure(cluster, &["apply", "-f", &path])?;
    ensure!(out.contains("unknown field \"spec.odd\""), "{out}");
    Ok(())
}

fn apply_both_ways(cluster: &Cluster<'_>) -> Result<()> {
    let first = file(cluster, "two.yaml", &crontab("two", "cronSpec: '* * * * *', ports: [{name: a, port: 1}]"))?;
    cluster.kubectl(&["apply", "-f", &first])?;
    let out = cluster.kubectl(&["apply", "-f", &first])?;
    ensure!(out.contains("unchanged"), "{out}");
    let next = file(cluster, "two.yaml", &crontab("two", "cronSpec: '*/2 * * * *', ports: [{name: a, port: 1}]"))?;
    let difference = cluster.env().output(&mut cluster.kubectl_command(&["diff", "-f", &next])?)?;
    let shown = String::from_utf8_lossy(&difference.stdout).into_owned();
    ensure!(shown.contains("+  cronSpec: '*/2 * * * *'"), "{shown}{}", String::from_utf8_lossy(&difference.stderr));
    let out = cluster.kubectl(&["apply", "-f", &next])?;
    ensure!(out.contains("configured"), "{out}");
    let other = file(cluster, "ports.yaml", &crontab("two", "cronSpec: '*/2 * * * *', ports: [{name: b, port: 2}]"))?;
    cluster.kubectl(&["apply", "--server-side", "--field-manager=other", "-f", &other])?;
    let out = cluster.kubectl(&["get", "ct", "two", "-o", "jsonpath={.spec.ports[*].name}"])?;
    ensure!(out == "a b", "{out}");
    let theirs = file(cluster, "theirs.yaml", &crontab("two", "cronSpec: '*/3 * * * *'"))?;
    let out = failure(cluster, &["apply", "--server-side", "--field-manager=third", "-f", &theirs])?;
    ensure!(out.contains(".spec.cronSpec"), "{out}");
    cluster.kubectl(&["apply", "--server-side", "--field-manager=third", "--force-conflicts", "-f", &theirs])?;
    Ok(())
}

fn change(cluster: &Cluster<'_>) -> Result<()> {
    let generation = || cluster.kubectl(&["get", "ct", "one", "-o", "jsonpath={.metadata.generation}"]);
    let before = generation()?;
    cluster.kubectl(&["label", "ct", "one", "a=b"])?;
    ensure!(generation()? == before, "a label is no change of the specification");
    let out = cluster.kubectl(&["scale", "ct", "one", "--replicas=3"])?;
    ensure!(out.contains("scaled"), "{out}");
    ensure!(generation()? != before, "a scale is a change of the specification");
    let out = cluster.kubectl(&["patch", "ct", "one", "--type=merge", "-p", r#"{"spec":{"image":"nginx"}}"#])?;
    ensure!(out.contains("patched"), "{out}");
    cluster.kubectl(&["scale", "ct", "one", "--replicas=1"])?;
    let out = failure(cluster, &["patch", "ct", "one", "--type=merge", "-p", r#"{"spec":{"image":"other"}}"#])?;
    ensure!(out.contains("an image changes only while there are others"), "{out}");
    let out = failure(cluster, &["patch", "ct", "one", "--type=strategic", "-p", r#"{"spec":{"image":"other"}}"#])?;
    ensure!(out.contains("415") || out.contains("media type") || out.contains("strategic"), "{out}");
    let mut edit = cluster.kubectl_command(&["edit", "ct", "one"])?;
    let done = cluster.env().output(edit.env("KUBE_EDITOR", "sed -i 's/replicas: 1/replicas: 2/'"))?;
    ensure!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let out = cluster.kubectl(&["get", "ct", "one", "-o", "jsonpath={.spec.replicas}"])?;
    ensure!(out == "2", "{out}");
    Ok(())
}

fn wait(cluster: &Cluster<'_>) -> Result<()> {
    let status = r#"{"status":{"phase":"Done","replicas":2}}"#;
    cluster.kubectl(&["patch", "ct", "one", "--subresource=status", "--type=merge", "-p", status])?;
    cluster.kubectl(&["wait", "--for=jsonpath={.status.phase}=Done", "ct/one", "--timeout=30s"])?;
    let out = cluster.kubectl(&["get", "ct", "one", "-o", "jsonpath={.status.phase}"])?;
    ensure!(out == "Done", "{out}");
    Ok(())
}

fn owners(cluster: &Cluster<'_>) -> Result<()> {
    let uid = cluster.kubectl(&["get", "ct", "two", "-o", "jsonpath={.metadata.uid}"])?;
    let child = format!(
        "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: of-two, ownerReferences: [{{apiVersion: stable.example.com/v1, \
         kind: CronTab, name: two, uid: {uid}}}]}}}}"
    );
    cluster.kubectl(&["apply", "-f", &file(cluster, "child.yaml", &child)?])?;
    cluster.kubectl(&["delete", "ct", "two", "--timeout=30s"])?;
    eventually("what belonged to it goes", PATIENCE, || cluster.kubectl(&["get", "cm", "of-two"]).is_err())?;
    cluster.kubectl(&["create", "namespace", "short"])?;
    let path = file(cluster, "three.yaml", &crontab("three", "cronSpec: '* * * * *'"))?;
    cluster.kubectl(&["create", "-n", "short", "-f", &path])?;
    cluster.kubectl(&["delete", "namespace", "short", "--timeout=30s"])?;
    let out = cluster.kubectl(&["get", "ct", "-A", "-o", "name"])?;
    ensure!(out.trim() == "crontab.stable.example.com/one", "{out}");
    Ok(())
}

fn delete(cluster: &Cluster<'_>) -> Result<()> {
    cluster.kubectl(&["delete", "crd", "crontabs.stable.example.com", "--timeout=30s"])?;
    let out = failure(cluster, &["get", "crontabs"])?;
    // kubectl may still have the kind from its last look at what is served.
    let gone = ["the server doesn't have a resource type", "the server could not find the requested resource"];
    ensure!(gone.iter().any(|text| out.contains(text)), "{out}");
    let path = file(cluster, "crd.yaml", DEFINITION)?;
    cluster.kubectl(&["apply", "--server-side", "-f", &path])?;
    cluster.kubectl(&["wait", "--for=condition=Established", "crd/crontabs.stable.example.com", "--timeout=30s"])?;
    eventually("the kind is served again", PATIENCE, || cluster.kubectl(&["get", "crontabs"]).is_ok())?;
    let out = cluster.kubectl(&["get", "crontabs", "-o", "name"])?;
    ensure!(out.trim().is_empty(), "objects outlived their kind: {out}");
    Ok(())
}
