use super::*;
use crate::apiserver::hooks::Reviewer as _;
use crate::apiserver::resources::{REVIEWS, Review};

fn kind(kind: &str) -> &'static Review {
    REVIEWS.iter().find(|review| review.kind == kind).unwrap()
}

fn admin() -> UserInfo {
    UserInfo::new("admin", &["system:masters", "system:authenticated"])
}

async fn token(world: &World, user: &UserInfo, spec: Value) -> Result<Value, String> {
    let account = world.objects.get("account", "a", "default").unwrap();
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
    world.auth.token(user, "a", &account, request).await.map_err(|error| format!("{} {error}", error.code.as_u16()))
}

fn bound() -> Value {
    json!({"expirationSeconds": 3607, "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "p-uid"}})
}

#[tokio::test]
async fn a_token_request_is_answered_like_the_recorded_one() {
    let world = World::new();
    let mut answer = token(&world, &admin(), json!({"audiences": ["x"], "expirationSeconds": 600})).await.unwrap();
    assert!(!answer["status"]["token"].as_str().unwrap().is_empty());
    answer["status"]["token"] = json!("X");
    assert_eq!(
        answer,
        json!({"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1",
            "metadata": {"name": "default", "namespace": "a", "uid": "sa-uid", "creationTimestamp": "2026-11-29T12:00:00Z"},
            "spec": {"audiences": ["x"], "expirationSeconds": 600, "boundObjectRef": null},
            "status": {"token": "X", "expirationTimestamp": "2026-11-29T12:10:00Z"}})
    );
}

#[tokio::test]
async fn a_token_is_bound_only_to_a_pod_of_that_account_that_is_there() {
    let world = World::new();
    let answer = token(&world, &admin(), bound()).await.unwrap();
    let claims = jwt::peek(answer["status"]["token"].as_str().unwrap()).unwrap();
    assert_eq!(claims["kubernetes.io"]["pod"], json!({"name": "p", "uid": "p-uid"}));
    assert_eq!(claims["kubernetes.io"]["node"], json!({"name": "n1", "uid": "node-uid"}));
    assert_eq!(answer["spec"]["audiences"], json!([ISSUER]));

    let refused = |change: fn(&mut Value)| {
        let mut spec = bound();
        change(&mut spec);
        let world = &world;
        async move { token(world, &admin(), spec).await.unwrap_err() }
    };
    let absent = refused(|spec| spec["boundObjectRef"]["name"] = json!("gone")).await;
    assert_eq!(absent, "404 pods \"gone\" not found");
    let replaced = refused(|spec| spec["boundObjectRef"]["uid"] = json!("old")).await;
    assert!(replaced.starts_with("409") && replaced.contains("deleted and then recreated"), "{replaced}");
    let short = refused(|spec| spec["expirationSeconds"] = json!(599)).await;
    assert!(
        short.starts_with("422 TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds"),
        "{short}"
    );
    let strange = refused(|spec| spec["boundObjectRef"]["kind"] = json!("Lease")).await;
    assert!(strange.starts_with("400 cannot bind token"), "{strange}");
    let mut other = pod("a", "p", "n1");
    other["spec"]["serviceAccountName"] = json!("other");
    world.objects.put("pod", other);
    let foreign = refused(|_| {}).await;
    assert!(foreign.contains("different serviceaccount name"), "{foreign}");
}

#[tokio::test]
async fn a_node_gets_tokens_for_its_own_pods_only() {
    let world = World::new();
    assert!(token(&world, &node("n1"), bound()).await.is_ok());
    // And for audiences that the pod asks for.
    let mut vault = bound();
    vault["audiences"] = json!(["vault"]);
    let error = token(&world, &node("n1"), vault.clone()).await.unwrap_err();
    assert!(error.starts_with("403") && error.contains("audience \"vault\" not found in pod spec volume"), "{error}");
    let mut asking = pod("a", "p", "n1");
    asking["spec"]["volumes"] =
        json!([{"name": "v", "projected": {"sources": [{"serviceAccountToken": {"path": "t", "audience": "vault"}}]}}]);
    world.objects.put("pod", asking);
    assert!(token(&world, &node("n1"), vault).await.is_ok());
    world.objects.put("pod", pod("a", "p", "n1"));
    let error = token(&world, &node("n2"), bound()).await.unwrap_err();
    assert!(error.starts_with("403") && error.contains("scheduled on a different node"), "{error}");
    let error = token(&world, &node("n1"), json!({})).await.unwrap_err();
    assert!(error.starts_with("403") && error.contains("not bound to a pod"), "{error}");
}

#[tokio::test]
async fn token_reviews_know_our_tokens_and_no_others() {
    let world = World::new();
    let answer = token(&world, &admin(), bound()).await.unwrap();
    let review = |spec: Value| {
        let object = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec});
        let world = &world;
        async move { world.auth.review(&node("n1"), kind("TokenReview"), "", object).await.unwrap()["status"].clone() }
    };
    let status = review(json!({"token": answer["status"]["token"]})).await;
    assert_eq!(status["authenticated"], true);
    assert_eq!(status["user"]["username"], "system:serviceaccount:a:default");
    assert_eq!(status["audiences"], json!([ISSUER]));
    assert_eq!(status["user"]["extra"]["authentication.kubernetes.io/pod-name"], json!(["p"]));

    assert_eq!(review(json!({"token": "X"})).await, json!({"user": {}, "error": "invalid bearer token"}));
    let status = review(json!({"token": answer["status"]["token"], "audiences": ["vault"]})).await;
    assert!(status.get("authenticated").is_none() && status["error"].as_str().unwrap().contains("vault"));
    world.objects.remove("pod", "a", "p");
    let status = review(json!({"token": answer["status"]["token"]})).await;
    assert!(status["error"].as_str().unwrap().contains("is gone"));
}

#[tokio::test]
async fn access_reviews_decide_as_the_server_itself_does() {
    let world = World::new();
    let review = |of: &'static str, user: UserInfo, namespace: &'static str, spec: Value| {
        let object = json!({"apiVersion": "authorization.k8s.io/v1", "kind": of, "spec": spec});
        let world = &world;
        async move {
            let answer = world.auth.review(&user, kind(of), namespace, object).await;
            answer.map(|answer| answer["status"].clone()).map_err(|error| error.to_string())
        }
    };
    // The recorded one.
    let spec = json!({"user": "system:node:n1", "groups": ["system:nodes"], "resourceAttributes":
        {"verb": "get", "resource": "secrets", "namespace": "kube-system", "name": "s"}});
    assert_eq!(
        review("SubjectAccessReview", admin(), "", spec.clone()).await.unwrap(),
        json!({"allowed": false, "reason": "no relationship found between node 'n1' and this object"})
    );
    let port = json!({"user": "kube-apiserver-kubelet-client", "groups": ["system:authenticated"], "resourceAttributes":
        {"verb": "create", "version": "v1", "resource": "nodes", "subresource": "proxy", "name": "n1"}});
    let reason = "RBAC: allowed by ClusterRoleBinding \"system:kubelet-api-admin\" of ClusterRole \
                  \"system:kubelet-api-admin\" to User \"kube-apiserver-kubelet-client\"";
    assert_eq!(
        review("SubjectAccessReview", node("n1"), "", port).await.unwrap(),
        json!({"allowed": true, "reason": reason})
    );
    let own = json!({"resourceAttributes": {"verb": "list", "resource": "pods",
        "fieldSelector": {"requirements": [{"key": "spec.nodeName", "operator": "In", "values": ["n1"]}]}}});
    assert_eq!(review("SelfSubjectAccessReview", node("n1"), "", own.clone()).await.unwrap()["allowed"], true);
    assert_eq!(review("SelfSubjectAccessReview", node("n2"), "", own).await.unwrap()["allowed"], false);

    let error = review("LocalSubjectAccessReview", admin(), "a", spec).await.unwrap_err();
    assert!(error.contains("must match metadata.namespace"), "{error}");
    let error = review("SubjectAccessReview", admin(), "", json!({"resourceAttributes": {}})).await.unwrap_err();
    assert!(error.contains("at least one of user or group"), "{error}");
    let error = review("SelfSubjectAccessReview", admin(), "", json!({})).await.unwrap_err();
    assert!(error.contains("exactly one of"), "{error}");

    let me = review("SelfSubjectReview", node("n1"), "", json!({})).await.unwrap();
    assert_eq!(me["userInfo"]["username"], "system:node:n1");
}
