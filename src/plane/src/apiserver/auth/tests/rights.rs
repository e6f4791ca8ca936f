use super::*;
use crate::apiserver::identity::{Attributes, Decision, Forbidden, USER_ANONYMOUS};

/// Reads `verb resource[.group][/subresource] [namespace/]name [field selector]`; `-` is no name.
fn asked(line: &str) -> Attributes {
    let words: Vec<&str> = line.split_whitespace().collect();
    let (resource, subresource) = words[1].split_once('/').unwrap_or((words[1], ""));
    let (resource, group) = resource.split_once('.').unwrap_or((resource, ""));
    let (namespace, name) = words[2].split_once('/').unwrap_or(("", words[2]));
    Attributes {
        verb: words[0].into(),
        api_group: group.into(),
        version: "v1".into(),
        resource: resource.into(),
        subresource: subresource.into(),
        namespace: namespace.into(),
        name: if name == "-" { String::new() } else { name.into() },
        is_resource: true,
        field_selector: words.get(3).copied().unwrap_or_default().into(),
        ..Attributes::default()
    }
}

fn path(verb: &str, path: &str) -> Attributes {
    Attributes { verb: verb.into(), path: path.into(), ..Attributes::default() }
}

#[test]
fn a_node_may_do_this_and_nothing_else() {
    let world = World::new();
    let allowed = "
        get nodes n1
        create nodes -
        patch nodes n1
        patch nodes/status n1
        update nodes/status n1
        list nodes - metadata.name=n1
        watch nodes - metadata.name=n1
        list pods - spec.nodeName=n1
        watch pods - spec.nodeName=n1
        list pods - spec.nodeName==n1
        get pods a/p
        delete pods a/p
        create pods a/-
        patch pods/status a/p
        update pods/status a/p
        create pods/eviction a/p
        get secrets a/s-p
        get secrets a/s-p-env
        get secrets a/s-p-pull
        get secrets a/s-p-projected
        watch secrets a/- metadata.name=s-p
        list configmaps a/- metadata.name=c-p
        get configmaps a/c-p
        get serviceaccounts a/default
        create serviceaccounts/token a/default
        list services -
        watch services -
        create events a/-
        patch events a/e
        create events.events.k8s.io a/-
        get leases.coordination.k8s.io kube-node-lease/n1
        create leases.coordination.k8s.io kube-node-lease/-
        update leases.coordination.k8s.io kube-node-lease/n1
        patch leases.coordination.k8s.io kube-node-lease/n1
        create csinodes.storage.k8s.io -
        get csinodes.storage.k8s.io n1
        patch csinodes.storage.k8s.io n1
        list csidrivers.storage.k8s.io -
        watch runtimeclasses.node.k8s.io -
        create tokenreviews.authentication.k8s.io -
        create subjectaccessreviews.authorization.k8s.io -
        create selfsubjectreviews.authentication.k8s.io -
        create certificatesigningrequests.certificates.k8s.io -";
    let denied = "
        get nodes n2
        list nodes -
        list nodes - metadata.name=n2
        delete nodes n1
        patch nodes n2
        patch nodes/status n2
        get nodes/proxy n1
        list pods -
        list pods a/-
        list pods - spec.nodeName=n2
        watch pods - spec.nodeName!=n1
        get pods a/q
        get pods a/absent
        get pods b/p
        delete pods a/q
        update pods a/p
        patch pods a/p
        deletecollection pods a/- spec.nodeName=n1
        patch pods/status a/q
        create pods/binding a/p
        create pods/exec a/p
        get pods/log a/p
        create pods/eviction a/q
        get secrets a/s-q
        get secrets a/secret
        get secrets b/s-p
        list secrets a/-
        list secrets -
        watch secrets a/- metadata.name=s-q
        update secrets a/s-p
        create configmaps a/-
        get configmaps a/s-p
        get configmaps a/kube-root-ca.crt
        get serviceaccounts a/other
        create serviceaccounts a/-
        create serviceaccounts/token a/other
        create serviceaccounts/token b/default
        create services a/-
        get events a/e
        list events -
        get leases.coordination.k8s.io kube-node-lease/n2
        get leases.coordination.k8s.io kube-system/n1
        create leases.coordination.k8s.io kube-system/-
        list leases.coordination.k8s.io kube-node-lease/-
        get csinodes.storage.k8s.io n2
        create csidrivers.storage.k8s.io -
        create runtimeclasses.node.k8s.io -
        get namespaces a
        delete namespaces a
        list secrets.apps a/- metadata.name=s-p";
    for (lines, want) in [(allowed, true), (denied, false)] {
        for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
            assert_eq!(world.auth.decide(&node("n1"), &asked(line)).is_allowed(), want, "{line}");
        }
    }
}

#[test]
fn a_node_reads_the_claims_and_volumes_of_its_pods() {
    let world = World::new();
    let mut own = pod("a", "v", "n1");
    own["spec"]["volumes"] = json!([{"name": "x", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "scratch", "ephemeral": {}}]);
    world.objects.put("pod", own);
    world
        .objects
        .put("volume", json!({"metadata": {"name": "pv"}, "spec": {"claimRef": {"namespace": "a", "name": "data"}}}));
    world.objects.put("volume", json!({"metadata": {"name": "free"}, "spec": {}}));
    world.objects.put("attachment", json!({"metadata": {"name": "va"}, "spec": {"nodeName": "n1"}}));
    for (line, want) in [
        ("get persistentvolumeclaims a/data", true),
        ("get persistentvolumeclaims a/v-scratch", true),
        ("patch persistentvolumeclaims/status a/data", true),
        ("get persistentvolumeclaims a/other", false),
        ("get persistentvolumeclaims b/data", false),
        ("update persistentvolumeclaims a/data", false),
        ("list persistentvolumeclaims a/-", false),
        ("get persistentvolumes pv", true),
        ("get persistentvolumes free", false),
        ("get persistentvolumes gone", false),
        ("get volumeattachments.storage.k8s.io va", true),
        ("get volumeattachments.storage.k8s.io gone", false),
    ] {
        assert_eq!(world.auth.decide(&node("n1"), &asked(line)).is_allowed(), want, "{line}");
    }
    assert!(!world.auth.decide(&node("n2"), &asked("get persistentvolumes pv")).is_allowed());
    assert!(!world.auth.decide(&node("n2"), &asked("get volumeattachments.storage.k8s.io va")).is_allowed());
}

#[test]
fn a_pod_that_is_gone_is_not_refused_to_its_node() {
    let world = World::new();
    for line in ["delete pods a/absent", "patch pods/status a/absent", "create pods/eviction a/absent"] {
        assert!(world.auth.decide(&node("n1"), &asked(line)).is_allowed(), "{line}");
    }
}

#[tokio::test]
async fn roles_give_rights_until_they_are_taken_away() {
    use crate::apiserver::registry::DeleteOptions;
    use crate::apiserver::resources::{CLUSTERROLEBINDINGS, ROLEBINDINGS};
    let world = World::new();
    let user = UserInfo::new("jane", &["system:authenticated"]);
    let may = |line: &str| world.auth.decide(&user, &asked(line)).is_allowed();
    assert!(!may("get pods a/p"));
    let binding = |name: &str, role: &str| {
        json!({"metadata": {"name": name}, "roleRef": {"kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "User", "name": "jane"}]})
    };
    let own = WriteOptions::default();
    world.registry.create(&ROLEBINDINGS, "a", binding("jane", "edit"), &own).await.unwrap();
    for (line, want) in [
        ("get pods a/p", true),
        ("create pods/exec a/p", true),
        ("delete deployments.apps a/d", true),
        ("get pods b/p", false),
        ("list pods -", false),
        ("create rolebindings.rbac.authorization.k8s.io a/-", false),
        ("get nodes n1", false),
    ] {
        assert_eq!(may(line), want, "{line}");
    }
    let words = world.auth.reason(&user, &asked("get pods a/p"));
    assert_eq!(words, "RBAC: allowed by RoleBinding \"jane/a\" of ClusterRole \"edit\" to User \"jane\"");
    world.registry.create(&CLUSTERROLEBINDINGS, "", binding("jane", "view"), &own).await.unwrap();
    assert!(may("get pods b/p") && may("list pods -") && !may("get secrets b/s") && may("get secrets a/s"));
    let gone = DeleteOptions::default();
    world.registry.delete(&ROLEBINDINGS, "a", "jane", &gone).await.unwrap();
    assert!(!may("get secrets a/s") && may("get pods a/p"));
    world.registry.delete(&CLUSTERROLEBINDINGS, "", "jane", &gone).await.unwrap();
    assert!(!may("get pods a/p"));
}

#[tokio::test]
async fn nobody_gives_away_what_he_has_not() {
    use crate::apiserver::resources::{CLUSTERROLEBINDINGS, ROLEBINDINGS, ROLES};
    let world = World::new();
    let jane = WriteOptions {
        user: Some(Arc::new(UserInfo::new("jane", &["system:authenticated"]))),
        ..WriteOptions::default()
    };
    let binding = json!({"metadata": {"name": "jane"}, "roleRef": {"kind": "ClusterRole", "name": "admin"},
        "subjects": [{"kind": "User", "name": "jane"}]});
    let registry = &world.registry;
    let refused = registry.create(&ROLEBINDINGS, "a", binding.clone(), &jane).await.unwrap_err();
    assert!(refused.message.contains("is attempting to grant RBAC permissions not currently held"), "{refused}");
    registry.create(&ROLEBINDINGS, "a", binding.clone(), &WriteOptions::default()).await.unwrap();
    let rule = |resource: &str| {
        json!({"metadata": {"name": resource},
        "rules": [{"apiGroups": [""], "resources": [resource], "verbs": ["get"]}]})
    };
    registry.create(&ROLES, "a", rule("pods"), &jane).await.unwrap();
    let refused = registry.create(&ROLES, "a", rule("nodes"), &jane).await.unwrap_err();
    assert!(refused.message.ends_with(r#"{APIGroups:[""], Resources:["nodes"], Verbs:["get"]}"#), "{refused}");
    let mut wide = binding;
    wide["metadata"]["name"] = json!("wide");
    assert!(registry.create(&CLUSTERROLEBINDINGS, "", wide, &jane).await.is_err());
}

#[test]
fn a_node_loses_the_secret_with_the_pod() {
    let world = World::new();
    let secret = asked("get secrets a/s-p");
    assert!(world.auth.decide(&node("n1"), &secret).is_allowed());
    world.objects.put("pod", pod("a", "p", "n2"));
    assert!(!world.auth.decide(&node("n1"), &secret).is_allowed());
    assert!(world.auth.decide(&node("n2"), &secret).is_allowed());
    world.objects.remove("pod", "a", "p");
    world.objects.remove("pod", "a", "q");
    assert!(!world.auth.decide(&node("n2"), &secret).is_allowed());
}

#[test]
fn a_mirror_pod_opens_nothing() {
    let world = World::new();
    let mut mirror = pod("a", "m", "n1");
    mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
    world.objects.put("pod", mirror);
    assert!(!world.auth.decide(&node("n1"), &asked("get secrets a/s-m")).is_allowed());
    assert!(world.auth.decide(&node("n1"), &asked("get pods a/m")).is_allowed());
}

#[test]
fn refusals_say_what_the_stock_server_says() {
    let world = World::new();
    let text = |line: &str| {
        let asked = asked(line);
        let Decision::Deny { reason } = world.auth.decide(&node("n1"), &asked) else { panic!("{line} is allowed") };
        Forbidden { user: &node("n1"), attributes: &asked, reason: &reason }.to_string()
    };
    assert_eq!(
        text("get secrets kube-system/s"),
        "secrets \"s\" is forbidden: User \"system:node:n1\" cannot get resource \"secrets\" in API group \"\" in the \
         namespace \"kube-system\": no relationship found between node 'n1' and this object"
    );
    assert_eq!(
        text("list pods -"),
        "pods is forbidden: User \"system:node:n1\" cannot list resource \"pods\" in API group \"\" at the cluster \
         scope: can only list/watch pods with spec.nodeName field selector"
    );
}

#[test]
fn administrators_may_do_everything() {
    let world = World::new();
    for group in ["system:masters", "kubeadm:cluster-admins"] {
        let user = UserInfo::new("kubernetes-admin", &[group, "system:authenticated"]);
        for line in ["delete nodes n1", "get secrets kube-system/s", "create pods/exec a/p", "get nodes/proxy n1"] {
            assert!(world.auth.decide(&user, &asked(line)).is_allowed(), "{group} {line}");
        }
        assert!(world.auth.decide(&user, &path("get", "/metrics")).is_allowed());
    }
}

#[test]
fn the_apiserver_s_own_client_may_use_the_nodes_ports_only() {
    let world = World::new();
    let user = UserInfo::new("kube-apiserver-kubelet-client", &["system:authenticated"]);
    for (line, want) in [
        ("create nodes/proxy n1", true),
        ("get nodes/log n1", true),
        ("get nodes/metrics n1", true),
        // Upstream's role has it, too.
        ("get nodes n1", true),
        ("patch nodes n1", false),
        ("get pods a/p", false),
        ("get secrets a/s-p", false),
    ] {
        assert_eq!(world.auth.decide(&user, &asked(line)).is_allowed(), want, "{line}");
    }
}

#[test]
fn a_service_account_may_look_around_and_ask_about_itself() {
    let world = World::new();
    let groups = ["system:serviceaccounts", "system:serviceaccounts:a", "system:authenticated"];
    let user = UserInfo::new("system:serviceaccount:a:default", &groups);
    for (asked, want) in [
        (path("get", "/api"), true),
        (path("get", "/apis/apps/v1"), true),
        (path("get", "/openapi/v3"), true),
        (path("get", "/metrics"), false),
        (path("post", "/api"), false),
        (path("get", "/apiserver"), false),
        (asked("create selfsubjectaccessreviews.authorization.k8s.io -"), true),
        (asked("create subjectaccessreviews.authorization.k8s.io -"), false),
        (asked("get pods a/p"), false),
        (asked("create serviceaccounts/token a/default"), false),
    ] {
        assert_eq!(world.auth.decide(&user, &asked).is_allowed(), want, "{asked:?}");
    }
}

#[test]
fn who_has_not_logged_in_sees_health_and_version_only() {
    let world = World::new();
    let user = UserInfo::new(USER_ANONYMOUS, &["system:unauthenticated"]);
    for (asked, want) in [
        (path("get", "/healthz"), true),
        (path("get", "/readyz/ping"), false),
        (path("get", "/version"), true),
        (path("get", "/api"), false),
        (path("get", "/"), false),
        (asked("list nodes -"), false),
        (asked("create selfsubjectreviews.authentication.k8s.io -"), false),
    ] {
        assert_eq!(world.auth.decide(&user, &asked).is_allowed(), want, "{asked:?}");
    }
}
