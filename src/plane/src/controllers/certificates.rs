//! Certificates for nodes and people: requests of nodes for their own client certificate are approved where roles allow
//! it, and what has been approved is signed by the plane's authority, for its three signers.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use longshore_transport::pki::{Authority, CertificateRequest, Usage};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::feed::Feed;
use crate::apiserver::error::ApiError;
use crate::apiserver::identity::{Attributes, GROUP_MASTERS, UserInfo};
use crate::apiserver::object::{child, list, text, time};
use crate::apiserver::registry::{Part, Registry, WriteOptions};
use crate::apiserver::resources::CERTIFICATESIGNINGREQUESTS;

/// Client certificates of nodes.
const NODE_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
/// Client certificates of anybody.
const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
/// Certificates that nodes serve with.
const NODE_SERVER: &str = "kubernetes.io/kubelet-serving";

const NODE_PREFIX: &str = "system:node:";
const NODE_GROUP: &str = "system:nodes";

/// How long a certificate is good when nothing is asked, and at most.
const VALIDITY: Duration = Duration::from_secs(365 * 24 * 3600);

pub(super) async fn run(registry: Registry, authority: Arc<Authority>, token: CancellationToken) {
    let mut requests = Feed::new(&registry, &CERTIFICATESIGNINGREQUESTS);
    loop {
        let changed = tokio::select! {
            biased;
            () = token.cancelled() => return,
            changed = requests.next() => changed,
        };
        for (_, name) in changed {
            if let Err(error) = look(&registry, &authority, &name).await {
                tracing::warn!(request = %name, %error, "a request for a certificate could not be served");
            }
        }
    }
}

async fn look(registry: &Registry, authority: &Authority, name: &str) -> Result<(), ApiError> {
    let Some(object) = registry.find(&CERTIFICATESIGNINGREQUESTS, "", name)? else { return Ok(()) };
    let has = |kind: &str| list(&object, "/status/conditions").iter().any(|own| text(own, "/type") == kind);
    if has("Denied") || has("Failed") || !text(&object, "/status/certificate").is_empty() {
        return Ok(());
    }
    let Some(request) = read(&object) else { return Ok(()) };
    if !has("Approved") {
        return match approval(registry, &object, &request) {
            Some(message) => decide(registry, name, "Approved", "AutoApproved", message).await,
            None => Ok(()),
        };
    }
    let usage = match fits(&object, &request) {
        Some(Ok(usage)) => usage,
        Some(Err(fault)) => return decide(registry, name, "Failed", "SignerValidationFailure", fault).await,
        None => return Ok(()),
    };
    let asked = object.pointer("/spec/expirationSeconds").and_then(Value::as_u64);
    let validity = asked.map_or(VALIDITY, Duration::from_secs).min(VALIDITY);
    let signed = authority.sign(&request, usage, validity, registry.clock().now()).map_err(ApiError::internal)?;
    let change = |mut object: Value| {
        child(&mut object, "status").insert("certificate".to_owned(), json!(STANDARD.encode(&signed)));
        Ok(Some(object))
    };
    let own = WriteOptions::default();
    registry.modify(&CERTIFICATESIGNINGREQUESTS, "", name, Part::Status, &own, change).await.map(drop)
}

fn read(object: &Value) -> Option<CertificateRequest> {
    let pem = String::from_utf8(STANDARD.decode(text(object, "/spec/request")).ok()?).ok()?;
    CertificateRequest::from_pem(&pem).ok()
}

fn usages(object: &Value) -> Vec<&str> {
    let mut usages: Vec<&str> = list(object, "/spec/usages").iter().filter_map(Value::as_str).collect();
    // Keys of the elliptic kind do not encipher; both forms are asked for.
    usages.retain(|usage| *usage != "key encipherment");
    usages.sort_unstable();
    usages
}

fn is_of_node(request: &CertificateRequest) -> bool {
    request.organization() == NODE_GROUP
        && request.common_name().strip_prefix(NODE_PREFIX).is_some_and(|name| !name.is_empty())
}

/// Says what kind of certificate a request gets, or why it gets none; nothing for signers that are not ours.
fn fits(object: &Value, request: &CertificateRequest) -> Option<Result<Usage, &'static str>> {
    let plain = request.names().is_empty() && !request.has_other_names();
    Some(match text(object, "/spec/signerName") {
        NODE_CLIENT if !is_of_node(request) => Err("subject must be that of a node"),
        NODE_CLIENT if !plain => Err("names are not allowed in a client certificate of a node"),
        NODE_CLIENT if usages(object) != ["client auth", "digital signature"] => {
            Err("usages must be digital signature and client auth")
        }
        NODE_CLIENT => Ok(Usage::Client),
        NODE_SERVER if !is_of_node(request) => Err("subject must be that of a node"),
        NODE_SERVER if text(object, "/spec/username") != request.common_name() => Err("a node may only ask for itself"),
        NODE_SERVER if request.names().is_empty() || request.has_other_names() => {
            Err("at least one DNS name or address is needed, and nothing else")
        }
        NODE_SERVER if usages(object) != ["digital signature", "server auth"] => {
            Err("usages must be digital signature and server auth")
        }
        NODE_SERVER => Ok(Usage::Server),
        CLIENT if request.organization() == GROUP_MASTERS => Err("nobody becomes a master of the cluster by a request"),
        CLIENT if !usages(object).contains(&"client auth") => Err("usages must have client auth"),
        CLIENT if usages(object).iter().any(|usage| !matches!(*usage, "client auth" | "digital signature")) => {
            Err("usages must be digital signature and client auth")
        }
        CLIENT => Ok(Usage::Client),
        _ => return None,
    })
}

/// Says why a request is approved without anybody's doing.
fn approval(registry: &Registry, object: &Value, request: &CertificateRequest) -> Option<&'static str> {
    if text(object, "/spec/signerName") != NODE_CLIENT || !matches!(fits(object, request), Some(Ok(_))) {
        return None;
    }
    let groups = list(object, "/spec/groups").iter().filter_map(Value::as_str).map(str::to_owned);
    let user =
        UserInfo { name: text(object, "/spec/username").to_owned(), groups: groups.collect(), ..UserInfo::default() };
    let may = |subresource: &str| {
        let asked = Attributes {
            verb: "create".to_owned(),
            api_group: "certificates.k8s.io".to_owned(),
            version: "v1".to_owned(),
            resource: "certificatesigningrequests".to_owned(),
            subresource: subresource.to_owned(),
            is_resource: true,
            ..Attributes::default()
        };
        registry.rbac().allows(&user, &asked).is_some()
    };
    if user.name == request.common_name() && may("selfnodeclient") {
        return Some("Auto approving self kubelet client certificate after SubjectAccessReview.");
    }
    may("nodeclient").then_some("Auto approving kubelet client certificate after SubjectAccessReview.")
}

async fn decide(
    registry: &Registry,
    name: &str,
    kind: &'static str,
    reason: &'static str,
    message: &'static str,
) -> Result<(), ApiError> {
    let now = time(registry.clock().now());
    let change = |mut object: Value| {
        let conditions = child(&mut object, "status").entry("conditions").or_insert_with(|| json!([]));
        if let Some(conditions) = conditions.as_array_mut() {
            conditions.push(json!({"type": kind, "status": "True", "reason": reason, "message": message,
                "lastUpdateTime": now, "lastTransitionTime": now}));
        }
        Ok(Some(object))
    };
    let part = if kind == "Failed" { Part::Status } else { Part::Approval };
    registry.modify(&CERTIFICATESIGNINGREQUESTS, "", name, part, &WriteOptions::default(), change).await.map(drop)
}

#[cfg(test)]
mod tests {
    use longshore_transport::pki::certificates_from_pem;
    use longshore_transport::tls::ClientCa;
    use longshore_util::Tasks;
    use longshore_util::clock::{Clock as _, SharedClock, SystemClock};

    use super::*;
    use crate::apiserver::registry::ClusterFacts;
    use crate::apiserver::resources::NAMESPACES;
    use crate::store::{Limits, MemoryStore};

    /// Made with openssl: subject O=system:nodes, CN=system:node:n1, P-256, no names.
    const NODE_REQUEST: &str = include_str!("../../tests/data/node-n1.csr");

    fn object(name: &str, user: &str, groups: &[&str], signer: &str) -> Value {
        json!({"metadata": {"name": name}, "spec": {"request": STANDARD.encode(NODE_REQUEST), "signerName": signer,
            "usages": ["digital signature", "client auth"], "username": user, "groups": groups}})
    }

    async fn world() -> (Registry, Arc<Authority>, Tasks) {
        let clock: SharedClock = Arc::new(SystemClock);
        let store = Arc::new(MemoryStore::new(Limits::default(), Arc::clone(&clock)));
        let registry = Registry::new(store, clock, ClusterFacts::default());
        for name in ["kube-system", "kube-public"] {
            let namespace = json!({"metadata": {"name": name}});
            registry.create(&NAMESPACES, "", namespace, &WriteOptions::default()).await.unwrap();
        }
        crate::apiserver::rbac::bootstrap::ensure(&registry).await.unwrap();
        let authority = Arc::new(Authority::generate("kubernetes", VALIDITY * 2, SystemClock.now()).unwrap());
        let tasks = Tasks::new();
        tasks.essential("signer", run(registry.clone(), Arc::clone(&authority), tasks.token().clone()));
        (registry, authority, tasks)
    }

    async fn settled(registry: &Registry, name: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let mut feed = Feed::new(registry, &CERTIFICATESIGNINGREQUESTS);
        let seen = async {
            loop {
                feed.next().await;
                let found = registry.find(&CERTIFICATESIGNINGREQUESTS, "", name).unwrap().unwrap();
                if wanted(&found) {
                    return found;
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(20), seen).await.unwrap()
    }

    #[tokio::test]
    async fn a_node_that_joins_gets_its_certificate_and_a_stranger_none() {
        let (registry, authority, tasks) = world().await;
        let own = WriteOptions::default();
        let joins = ["system:bootstrappers", "system:bootstrappers:kubeadm:default-node-token"];
        let stranger = object("stranger", "jane", &["system:authenticated"], NODE_CLIENT);
        registry.create(&CERTIFICATESIGNINGREQUESTS, "", stranger, &own).await.unwrap();
        let joining = object("joins", "system:bootstrap:abcdef", &joins, NODE_CLIENT);
        registry.create(&CERTIFICATESIGNINGREQUESTS, "", joining, &own).await.unwrap();
        let signed = settled(&registry, "joins", |found| !text(found, "/status/certificate").is_empty()).await;
        assert_eq!(text(&signed, "/status/conditions/0/reason"), "AutoApproved");
        let pem = STANDARD.decode(text(&signed, "/status/certificate")).unwrap();
        let certificate = certificates_from_pem(&pem, "signed").unwrap();
        let judge = ClientCa::from_pem(&authority.keyed().certificate_pem).unwrap();
        assert_eq!(judge.verify(&certificate, SystemClock.now()).unwrap().common_name, "system:node:n1");
        let renewal = object("renews", "system:node:n1", &["system:nodes"], NODE_CLIENT);
        registry.create(&CERTIFICATESIGNINGREQUESTS, "", renewal, &own).await.unwrap();
        settled(&registry, "renews", |found| !text(found, "/status/certificate").is_empty()).await;
        let left = registry.find(&CERTIFICATESIGNINGREQUESTS, "", "stranger").unwrap().unwrap();
        assert_eq!(left["status"], json!({}));
        tasks.cancel();
    }

    #[tokio::test]
    async fn what_does_not_fit_its_signer_fails_though_it_was_approved() {
        let (registry, _, tasks) = world().await;
        let own = WriteOptions::default();
        let serving = object("serving", "system:node:n1", &["system:nodes"], NODE_SERVER);
        registry.create(&CERTIFICATESIGNINGREQUESTS, "", serving, &own).await.unwrap();
        decide(&registry, "serving", "Approved", "Test", "").await.unwrap();
        let failed = |found: &Value| list(found, "/status/conditions").iter().any(|own| own["type"] == "Failed");
        let found = settled(&registry, "serving", failed).await;
        assert_eq!(text(&found, "/status/certificate"), "");
        tasks.cancel();
    }
}
