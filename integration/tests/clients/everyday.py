"""What programs do with the stock Python client, against the node of the test: everyday.py KUBECONFIG POD."""

import sys
import threading
import time

from kubernetes import client, config, dynamic, watch
from kubernetes.stream import portforward, stream

config.load_kube_config(sys.argv[1])
POD, NAMESPACE = sys.argv[2], "default"
core, apps = client.CoreV1Api(), client.AppsV1Api()


def same(got, want):
    assert got == want, f"got {got!r}, want {want!r}"


def configmap(name, **data):
    metadata = client.V1ObjectMeta(name=name, labels={"by": "python"})
    return client.V1ConfigMap(metadata=metadata, data=data)


def objects():
    made = core.create_namespaced_config_map(NAMESPACE, configmap("py", x="1"))
    assert made.metadata.uid and made.metadata.creation_timestamp
    made.data["x"] = "2"
    same(core.replace_namespaced_config_map("py", NAMESPACE, made).data, {"x": "2"})
    same(core.patch_namespaced_config_map("py", NAMESPACE, {"data": {"y": "1"}}).data, {"x": "2", "y": "1"})
    steps = [{"op": "replace", "path": "/data/x", "value": "3"}, {"op": "remove", "path": "/data/y"}]
    same(core.patch_namespaced_config_map("py", NAMESPACE, steps).data, {"x": "3"})
    wanted = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "py"}, "data": {"z": "1"}}
    applied = core.patch_namespaced_config_map(
        "py", NAMESPACE, wanted, field_manager="test", _content_type="application/apply-patch+yaml"
    )
    same(applied.data, {"x": "3", "z": "1"})
    try:
        core.replace_namespaced_config_map("py", NAMESPACE, made)
        raise AssertionError("an old version was written")
    except client.ApiException as error:
        same((error.status, error.reason), (409, "Conflict"))
    try:
        core.read_namespaced_config_map("none", NAMESPACE)
        raise AssertionError("read what is not there")
    except client.ApiException as error:
        same(error.status, 404)


def lists():
    for name in ("a", "b", "c"):
        core.create_namespaced_config_map(NAMESPACE, configmap(f"py-{name}"))
    names, page = [], None
    while True:
        got = core.list_namespaced_config_map(NAMESPACE, limit=2, _continue=page, label_selector="by=python")
        names += [item.metadata.name for item in got.items]
        page = got.metadata._continue
        if not page:
            break
    same(names, ["py", "py-a", "py-b", "py-c"])
    got = core.list_config_map_for_all_namespaces(field_selector="metadata.name=py-b")
    same([item.metadata.name for item in got.items], ["py-b"])
    core.delete_namespaced_config_map("py-a", NAMESPACE)
    core.delete_collection_namespaced_config_map(NAMESPACE, label_selector="by=python")
    same(core.list_namespaced_config_map(NAMESPACE, label_selector="by=python").items, [])


def watches():
    since = core.list_namespaced_config_map(NAMESPACE).metadata.resource_version

    def later():
        time.sleep(0.2)
        core.create_namespaced_config_map(NAMESPACE, configmap("seen"))
        core.patch_namespaced_config_map("seen", NAMESPACE, {"data": {"a": "1"}})
        core.delete_namespaced_config_map("seen", NAMESPACE)

    other = threading.Thread(target=later)
    other.start()
    told, watcher = [], watch.Watch()
    options = {"resource_version": since, "timeout_seconds": 30, "label_selector": "by=python"}
    for event in watcher.stream(core.list_namespaced_config_map, NAMESPACE, **options):
        told.append((event["type"], event["object"].metadata.name))
        if event["type"] == "DELETED":
            watcher.stop()
    other.join()
    same(told, [("ADDED", "seen"), ("MODIFIED", "seen"), ("DELETED", "seen")])


def pods():
    same(core.read_namespaced_pod(POD, NAMESPACE).status.phase, "Running")
    assert "line 0" in core.read_namespaced_pod_log(POD, NAMESPACE, container="main")
    lines = watch.Watch().stream(core.read_namespaced_pod_log, POD, NAMESPACE, container="main")
    same([line for line, _ in zip(lines, range(3))], ["line 0", "line 1", "line 2"])
    options = {"container": "main", "stderr": True, "stdin": False, "stdout": True, "tty": False}
    command = ["sh", "-c", "echo out; echo err >&2"]
    out = stream(core.connect_get_namespaced_pod_exec, POD, NAMESPACE, command=command, **options)
    same(sorted(out.split()), ["err", "out"])
    options["stdin"] = True
    shell = stream(
        core.connect_get_namespaced_pod_exec, POD, NAMESPACE, command=["sh"], _preload_content=False, **options
    )
    shell.write_stdin("echo $((6*7)); exit 3\n")
    shell.run_forever(timeout=30)
    same((shell.read_stdout(), shell.returncode), ("42\n", 3))
    forward = portforward(core.connect_get_namespaced_pod_portforward, POD, NAMESPACE, ports="8080")
    socket = forward.socket(8080)
    socket.setblocking(True)
    socket.sendall(b"GET / HTTP/1.0\r\n\r\n")
    answer = b""
    while piece := socket.recv(1024):
        answer += piece
    assert answer.endswith(b"served\n"), answer


def dynamics():
    deployments = dynamic.DynamicClient(client.ApiClient()).resources.get(api_version="apps/v1", kind="Deployment")
    labels = {"app": "py"}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"selector": {"matchLabels": labels}, "template": pod}
    body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "py"}, "spec": spec}
    same(deployments.create(namespace=NAMESPACE, body=body).spec.replicas, 1)
    same(apps.patch_namespaced_deployment_scale("py", NAMESPACE, {"spec": {"replicas": 3}}).spec.replicas, 3)
    same(apps.read_namespaced_deployment_status("py", NAMESPACE).spec.replicas, 3)
    body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "py"}, "spec": {"replicas": 4}}
    applied = deployments.server_side_apply(
        namespace=NAMESPACE, body=body, field_manager="test", force_conflicts=True
    )
    same(applied.spec.replicas, 4)
    apps.delete_namespaced_deployment("py", NAMESPACE, propagation_policy="Foreground")


def reviews():
    assert client.VersionApi().get_code().git_version.startswith("v1.")
    assert "apps" in [group.name for group in client.ApisApi().get_api_versions().groups]
    asked = client.V1ResourceAttributes(verb="delete", resource="nodes")
    review = client.V1SelfSubjectAccessReview(spec=client.V1SelfSubjectAccessReviewSpec(resource_attributes=asked))
    assert client.AuthorizationV1Api().create_self_subject_access_review(review).status.allowed
    wanted = client.AuthenticationV1TokenRequest(spec=client.V1TokenRequestSpec(audiences=[], expiration_seconds=600))
    token = core.create_namespaced_service_account_token("default", NAMESPACE, wanted).status.token
    # A program in a pod logs in like this.
    own = client.Configuration.get_default_copy()
    own.cert_file = own.key_file = None
    own.api_key, own.api_key_prefix = {"authorization": token}, {"authorization": "Bearer"}
    robot = client.ApiClient(own)
    me = client.AuthenticationV1Api(robot).create_self_subject_review({}).status.user_info.username
    same(me, "system:serviceaccount:default:default")
    try:
        client.CoreV1Api(robot).list_node()
        raise AssertionError("an account without rights listed nodes")
    except client.ApiException as error:
        same(error.status, 403)


for step in (objects, lists, watches, pods, dynamics, reviews):
    step()
print("all steps done")
