//! The narrow rights of a node's agent: itself, its pods, and what its pods name.

use super::Auth;
use super::rights::deny;
use crate::apiserver::identity::{Attributes, Decision};
use crate::apiserver::object::text;

/// Namespace of the nodes' heartbeats.
const LEASE_NAMESPACE: &str = "kube-node-lease";

fn reads(verb: &str) -> bool {
    matches!(verb, "get" | "list" | "watch")
}

fn writes(verb: &str) -> bool {
    matches!(verb, "update" | "patch")
}

impl Auth {
    pub(super) fn decide_node(&self, node: &str, asked: &Attributes) -> Decision {
        if !asked.is_resource {
            return deny("");
        }
        let resource = (asked.api_group.as_str(), asked.resource.as_str(), asked.subresource.as_str());
        let verb = asked.verb.as_str();
        match resource {
            ("", "nodes", "") => own_node(node, asked),
            ("", "nodes", "status") if writes(verb) || verb == "get" => own_name(node, asked, "Node object"),
            // What the agent's own port asks about requests for itself.
            ("", "pods", "") => self.pods(node, asked),
            ("", "pods", "status") if verb == "get" => self.own_pod(node, asked),
            ("", "pods", "status") if writes(verb) => self.own_pod_or_none(node, asked),
            ("", "pods", "eviction") if verb == "create" => self.own_pod_or_none(node, asked),
            ("", "persistentvolumeclaims", "") if verb == "get" => self.claim_of_pods(node, asked),
            ("", "persistentvolumeclaims", "status") if verb == "get" || writes(verb) => {
                self.claim_of_pods(node, asked)
            }
            ("", "persistentvolumes", "") if verb == "get" => self.volume_of_pods(node, asked),
            ("storage.k8s.io", "volumeattachments", "") if verb == "get" => self.own_attachment(node, asked),
            ("", "endpoints", "") if verb == "get" => Decision::Allow,
            ("", "secrets" | "configmaps", "") => self.named_by_pods(node, asked),
            ("", "serviceaccounts", "") if reads(verb) => self.account_of_pods(node, asked),
            ("", "serviceaccounts", "token") if verb == "create" => self.account_of_pods(node, asked),
            ("", "services", "") if reads(verb) => Decision::Allow,
            ("" | "events.k8s.io", "events", "") if verb == "create" || writes(verb) => Decision::Allow,
            ("coordination.k8s.io", "leases", "") => lease(node, asked),
            ("storage.k8s.io", "csinodes", "") if verb == "create" => Decision::Allow,
            ("storage.k8s.io", "csinodes", "") if matches!(verb, "get" | "update" | "patch" | "delete") => {
                own_name(node, asked, "CSINode")
            }
            ("storage.k8s.io", "csidrivers", "") | ("node.k8s.io", "runtimeclasses", "") if reads(verb) => {
                Decision::Allow
            }
            ("authentication.k8s.io", "tokenreviews", "") if verb == "create" => Decision::Allow,
            ("authorization.k8s.io", "subjectaccessreviews" | "localsubjectaccessreviews", "") if verb == "create" => {
                Decision::Allow
            }
            ("certificates.k8s.io", "certificatesigningrequests", "") if verb == "create" || reads(verb) => {
                Decision::Allow
            }
            _ => deny(""),
        }
    }

    fn pods(&self, node: &str, asked: &Attributes) -> Decision {
        match asked.verb.as_str() {
            // What is created must be a mirror pod of this node: that stands in the body, see admission.
            "create" => Decision::Allow,
            "list" | "watch" if selects(asked, "spec.nodeName") == Some(node) => Decision::Allow,
            "list" | "watch" => deny("can only list/watch pods with spec.nodeName field selector"),
            "get" => self.own_pod(node, asked),
            "delete" => self.own_pod_or_none(node, asked),
            _ => deny(""),
        }
    }

    /// A pod that is gone is answered with 404, so that an agent knows that it need not try again.
    fn own_pod_or_none(&self, node: &str, asked: &Attributes) -> Decision {
        match self.objects.node_of_pod(&asked.namespace, &asked.name) {
            Some(own) if own != node => no_relationship(node),
            Some(_) | None => Decision::Allow,
        }
    }

    fn uses_claim(&self, node: &str, namespace: &str, claim: &str) -> bool {
        let pods = self.pods.of(self.objects.as_ref(), namespace);
        pods.iter().any(|pod| pod.node == node && pod.claims.contains(claim))
    }

    fn claim_of_pods(&self, node: &str, asked: &Attributes) -> Decision {
        if self.uses_claim(node, &asked.namespace, &asked.name) { Decision::Allow } else { no_relationship(node) }
    }

    fn volume_of_pods(&self, node: &str, asked: &Attributes) -> Decision {
        let Some(volume) = self.objects.volume(&asked.name) else { return no_relationship(node) };
        let (namespace, claim) = (text(&volume, "/spec/claimRef/namespace"), text(&volume, "/spec/claimRef/name"));
        if !claim.is_empty() && self.uses_claim(node, namespace, claim) {
            return Decision::Allow;
        }
        no_relationship(node)
    }

    fn own_attachment(&self, node: &str, asked: &Attributes) -> Decision {
        match self.objects.attachment(&asked.name) {
            Some(attachment) if text(&attachment, "/spec/nodeName") == node => Decision::Allow,
            _ => no_relationship(node),
        }
    }

    fn own_pod(&self, node: &str, asked: &Attributes) -> Decision {
        match self.objects.node_of_pod(&asked.namespace, &asked.name) {
            Some(own) if own == node => Decision::Allow,
            _ => no_relationship(node),
        }
    }

    fn named_by_pods(&self, node: &str, asked: &Attributes) -> Decision {
        if !reads(&asked.verb) {
            return deny("");
        }
        let Some(name) = one_name(asked) else { return deny("can only read namespaced object of this type") };
        let pods = self.pods.of(self.objects.as_ref(), &asked.namespace);
        let named = pods.iter().filter(|pod| pod.node == node).any(|pod| {
            let names = if asked.resource == "secrets" { &pod.secrets } else { &pod.configmaps };
            names.contains(name)
        });
        if named { Decision::Allow } else { no_relationship(node) }
    }

    fn account_of_pods(&self, node: &str, asked: &Attributes) -> Decision {
        let Some(name) = one_name(asked) else { return deny("can only read namespaced object of this type") };
        let pods = self.pods.of(self.objects.as_ref(), &asked.namespace);
        if pods.iter().any(|pod| pod.node == node && !pod.is_mirror && pod.service_account == name) {
            return Decision::Allow;
        }
        no_relationship(node)
    }
}

fn no_relationship(node: &str) -> Decision {
    deny(format!("no relationship found between node '{node}' and this object"))
}

fn own_node(node: &str, asked: &Attributes) -> Decision {
    match asked.verb.as_str() {
        // The name stands in the body, see admission.
        "create" => Decision::Allow,
        "get" | "update" | "patch" => own_name(node, asked, "Node object"),
        "list" | "watch" if one_name(asked) == Some(node) => Decision::Allow,
        "list" | "watch" => deny(format!("node '{node}' can only read its own Node object")),
        _ => deny(""),
    }
}

fn own_name(node: &str, asked: &Attributes, what: &str) -> Decision {
    if asked.name == node {
        return Decision::Allow;
    }
    deny(format!("node '{node}' can only access its own {what}"))
}

fn lease(node: &str, asked: &Attributes) -> Decision {
    if asked.namespace != LEASE_NAMESPACE {
        return deny(format!("can only access leases in the \"{LEASE_NAMESPACE}\" system namespace"));
    }
    match asked.verb.as_str() {
        "create" => Decision::Allow,
        "get" | "update" | "patch" | "delete" if asked.name == node => Decision::Allow,
        "get" | "update" | "patch" | "delete" => {
            deny("can only access node lease with the same name as the requesting node")
        }
        _ => deny("can only get, create, update, patch, or delete a node lease"),
    }
}

/// The one object that a request is about: by name, or by a list that selects one name.
fn one_name(asked: &Attributes) -> Option<&str> {
    if !asked.name.is_empty() {
        return Some(&asked.name);
    }
    selects(asked, "metadata.name")
}

/// Returns the value that a field selector demands of a field.
fn selects<'a>(asked: &'a Attributes, field: &str) -> Option<&'a str> {
    asked.field_selector.split(',').find_map(|term| {
        let (key, value) = term.split_once('=')?;
        let value = value.strip_prefix('=').unwrap_or(value);
        (key == field && !value.is_empty()).then_some(value)
    })
}
