//! Where objects lie in etcd: as a stock apiserver lays them out, so that its tools and backups find them.
//!
//! The store's own keys are `plural/…` for the core group and `group/plural/…` for all others. In etcd the group of a
//! built-in kind is left out, a few kinds keep names of old, and kinds of a custom group keep their group.

/// Built-in kinds outside the core group; the rest of what has a group is custom.
const BUILT_IN: &[(&str, &str)] = &[
    ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
    ("admissionregistration.k8s.io", "validatingadmissionpolicies"),
    ("admissionregistration.k8s.io", "validatingadmissionpolicybindings"),
    ("admissionregistration.k8s.io", "validatingwebhookconfigurations"),
    ("apps", "controllerrevisions"),
    ("apps", "daemonsets"),
    ("apps", "deployments"),
    ("apps", "replicasets"),
    ("apps", "statefulsets"),
    ("autoscaling", "horizontalpodautoscalers"),
    ("batch", "cronjobs"),
    ("batch", "jobs"),
    ("certificates.k8s.io", "certificatesigningrequests"),
    ("certificates.k8s.io", "clustertrustbundles"),
    ("coordination.k8s.io", "leases"),
    ("discovery.k8s.io", "endpointslices"),
    ("networking.k8s.io", "ingressclasses"),
    ("networking.k8s.io", "ingress"),
    ("networking.k8s.io", "ipaddresses"),
    ("networking.k8s.io", "networkpolicies"),
    ("networking.k8s.io", "servicecidrs"),
    ("node.k8s.io", "runtimeclasses"),
    ("policy", "poddisruptionbudgets"),
    ("rbac.authorization.k8s.io", "clusterrolebindings"),
    ("rbac.authorization.k8s.io", "clusterroles"),
    ("rbac.authorization.k8s.io", "rolebindings"),
    ("rbac.authorization.k8s.io", "roles"),
    ("resource.k8s.io", "deviceclasses"),
    ("resource.k8s.io", "resourceclaims"),
    ("resource.k8s.io", "resourceclaimtemplates"),
    ("resource.k8s.io", "resourceslices"),
    ("scheduling.k8s.io", "priorityclasses"),
    ("storage.k8s.io", "csidrivers"),
    ("storage.k8s.io", "csinodes"),
    ("storage.k8s.io", "csistoragecapacities"),
    ("storage.k8s.io", "storageclasses"),
    ("storage.k8s.io", "volumeattachments"),
    ("storage.k8s.io", "volumeattributesclasses"),
];

/// Kinds that lie under another name than their own: ours, etcd's.
const RENAMED: &[(&str, &str)] = &[
    ("nodes/", "minions/"),
    ("services/", "services/specs/"),
    ("endpoints/", "services/endpoints/"),
    ("replicationcontrollers/", "controllers/"),
    ("networking.k8s.io/ingresses/", "networking.k8s.io/ingress/"),
];

/// Returns the key in etcd, without the prefix of the whole store.
pub(super) fn to_etcd(key: &str) -> String {
    let renamed = RENAMED.iter().find_map(|(ours, theirs)| Some(format!("{theirs}{}", key.strip_prefix(ours)?)));
    let key = renamed.unwrap_or_else(|| key.to_owned());
    match split(&key) {
        Some((group, plural, _)) if BUILT_IN.contains(&(group, plural)) => {
            key.get(group.len() + 1..).unwrap_or_default().to_owned()
        }
        _ => key,
    }
}

/// Returns the store's own key for one in etcd.
pub(super) fn from_etcd(key: &str) -> String {
    let plural = key.split('/').next().unwrap_or_default();
    let key = match BUILT_IN.iter().find(|(_, known)| *known == plural) {
        Some((group, _)) => format!("{group}/{key}"),
        None => key.to_owned(),
    };
    let renamed = RENAMED.iter().find_map(|(ours, theirs)| Some(format!("{ours}{}", key.strip_prefix(theirs)?)));
    renamed.unwrap_or(key)
}

fn split(key: &str) -> Option<(&str, &str, &str)> {
    let (group, rest) = key.split_once('/')?;
    let (plural, rest) = rest.split_once('/')?;
    Some((group, plural, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_lie_where_a_stock_apiserver_puts_them_and_come_back() {
        for (ours, theirs) in [
            ("pods/default/web", "pods/default/web"),
            ("nodes/n1", "minions/n1"),
            ("services/default/web", "services/specs/default/web"),
            ("endpoints/default/web", "services/endpoints/default/web"),
            ("replicationcontrollers/default/web", "controllers/default/web"),
            ("apps/deployments/default/web", "deployments/default/web"),
            ("coordination.k8s.io/leases/kube-node-lease/n1", "leases/kube-node-lease/n1"),
            ("networking.k8s.io/ingresses/default/web", "ingress/default/web"),
            ("rbac.authorization.k8s.io/clusterroles/view", "clusterroles/view"),
            ("example.com/widgets/default/w", "example.com/widgets/default/w"),
            (
                "apiextensions.k8s.io/customresourcedefinitions/widgets.example.com",
                "apiextensions.k8s.io/customresourcedefinitions/widgets.example.com",
            ),
            // A name may look like a kind.
            ("configmaps/default/nodes", "configmaps/default/nodes"),
        ] {
            assert_eq!(to_etcd(ours), theirs);
            assert_eq!(from_etcd(theirs), ours);
        }
    }
}
