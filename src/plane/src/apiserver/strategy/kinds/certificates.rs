//! Requests for certificates: what is asked stays as it was asked, and a decision stands once it is made.

use base64::Engine as _;
use k8s_openapi::api::certificates::v1 as certificates;
use serde_json::{Value, json};

use crate::apiserver::error::Cause;
use crate::apiserver::object::{child, list, text};
use crate::apiserver::strategy::described::{Check, Described, Frozen};
use crate::apiserver::strategy::typed;

/// Requests for certificates.
pub(crate) static CERTIFICATE_SIGNING_REQUESTS: Described = Described {
    status: Some("{}"),
    checks: &[Check::Required("spec.request", ""), Check::Required("spec.usages", "")],
    rules: Some(request),
    carry_status: Some(keep_decisions),
    frozen: &[Frozen::Immutable("spec")],
    ..Described::new(typed::<certificates::CertificateSigningRequest>)
};

fn request(object: &Value, causes: &mut Vec<Cause>) {
    let sent = text(object, "/spec/request");
    if !sent.is_empty() && !is_request(sent) {
        let text = "PEM block type must be CERTIFICATE REQUEST";
        causes.push(Cause::invalid("spec.request", &json!(sent), text));
    }
    let signer = text(object, "/spec/signerName");
    match signer.split_once('/') {
        _ if signer.is_empty() => causes.push(Cause::required("spec.signerName", "")),
        Some((domain, path)) if !path.is_empty() && domain.contains('.') => {}
        _ => {
            let text = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
            causes.push(Cause::invalid("spec.signerName", &json!(signer), text));
        }
    }
    if let Some(seconds) = object.pointer("/spec/expirationSeconds").and_then(Value::as_i64).filter(|own| *own < 600) {
        let text = "may not specify a duration less than 600 seconds (10 minutes)";
        causes.push(Cause::invalid("spec.expirationSeconds", &json!(seconds), text));
    }
}

fn is_request(encoded: &str) -> bool {
    let Ok(pem) = base64::engine::general_purpose::STANDARD.decode(encoded) else { return false };
    let Ok(pem) = String::from_utf8(pem) else { return false };
    pem.contains("-----BEGIN CERTIFICATE REQUEST-----") && pem.contains("-----END CERTIFICATE REQUEST-----")
}

/// Decisions are made through `approval`, which takes a right on the signer; a status brings none and takes none away.
fn keep_decisions(object: &mut Value, old: &Value) {
    let decides = |condition: &&Value| matches!(text(condition, "/type"), "Approved" | "Denied");
    let kept = list(old, "/status/conditions").iter().filter(decides);
    let others = list(object, "/status/conditions").iter().filter(|condition| !decides(condition));
    let conditions: Vec<Value> = kept.chain(others).cloned().collect();
    let status = child(object, "status");
    if conditions.is_empty() {
        status.remove("conditions");
    } else {
        status.insert("conditions".to_owned(), conditions.into());
    }
}

/// What may not be done to the decisions about a request.
pub(crate) fn approval_causes(object: &Value, old: &Value) -> Vec<Cause> {
    const PATH: &str = "status.conditions";
    let decisions = |object: &Value, kind: &str| -> Vec<Value> {
        let all = list(object, "/status/conditions").iter();
        all.filter(|condition| text(condition, "/type") == kind).cloned().collect()
    };
    let mut causes = Vec::new();
    for kind in ["Approved", "Denied", "Failed"] {
        let (now, before) = (decisions(object, kind), decisions(old, kind));
        if now.len() < before.len() {
            let text = format!("updates may not remove a condition of type {kind:?}");
            causes.push(Cause::forbidden(PATH, &text));
        } else if !before.is_empty() && now != before {
            let text = format!("updates may not add a condition of type {kind:?}");
            causes.push(Cause::forbidden(PATH, &text));
        }
    }
    if !decisions(object, "Approved").is_empty() && !decisions(object, "Denied").is_empty() {
        let text = "Approved and Denied conditions are mutually exclusive";
        causes.push(Cause::invalid(PATH, &json!("Denied"), text));
    }
    causes
}
