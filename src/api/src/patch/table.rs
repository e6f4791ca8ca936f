//! How the fields of the built-in types are merged by a strategic merge patch. A field that is not listed merges when it
//! is a map and is replaced when it is a list.

/// A type of the API, by its name in this table; kinds are types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place(&'static str);

/// What the table says of a field.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rule {
    /// A list is merged by this key; empty for primitives.
    pub(super) merge_key: Option<&'static str>,
    /// The patch's value replaces a map as a whole.
    pub(super) replace: bool,
    /// The type of the field, or of its items.
    pub(super) child: Place,
}

#[derive(Clone, Copy)]
enum How {
    /// Maps merge, lists are replaced; the type inside has rules.
    Inside,
    /// A list of objects with that key.
    By(&'static str),
    /// A list of primitives, united.
    Unite,
    /// A map that is replaced.
    Replace,
}
use How::{By, Inside, Replace, Unite};

/// Type, field, how it is merged, type of what is inside.
const FIELDS: &[(&str, &str, How, &str)] = &[
    ("ObjectMeta", "ownerReferences", By("uid"), ""),
    ("ObjectMeta", "finalizers", Unite, ""),
    ("Pod", "spec", Inside, "PodSpec"),
    ("Pod", "status", Inside, "PodStatus"),
    ("PodTemplate", "template", Inside, "PodTemplateSpec"),
    ("PodTemplateSpec", "metadata", Inside, "ObjectMeta"),
    ("PodTemplateSpec", "spec", Inside, "PodSpec"),
    ("PodSpec", "containers", By("name"), "Container"),
    ("PodSpec", "initContainers", By("name"), "Container"),
    ("PodSpec", "ephemeralContainers", By("name"), "Container"),
    ("PodSpec", "volumes", By("name"), "Volume"),
    ("PodSpec", "imagePullSecrets", By("name"), ""),
    ("PodSpec", "hostAliases", By("ip"), ""),
    ("PodSpec", "topologySpreadConstraints", By("topologyKey"), ""),
    ("PodSpec", "resourceClaims", By("name"), ""),
    ("PodSpec", "schedulingGates", By("name"), ""),
    ("Container", "ports", By("containerPort"), ""),
    ("Container", "env", By("name"), ""),
    ("Container", "volumeMounts", By("mountPath"), ""),
    ("Container", "volumeDevices", By("devicePath"), ""),
    ("Volume", "ephemeral", Inside, "EphemeralVolume"),
    ("EphemeralVolume", "volumeClaimTemplate", Inside, "PersistentVolumeClaim"),
    ("PodStatus", "conditions", By("type"), ""),
    ("PodStatus", "podIPs", By("ip"), ""),
    ("PodStatus", "hostIPs", By("ip"), ""),
    ("PodStatus", "resourceClaimStatuses", By("name"), ""),
    ("Node", "spec", Inside, "NodeSpec"),
    ("Node", "status", Inside, "NodeStatus"),
    ("NodeSpec", "podCIDRs", Unite, ""),
    ("NodeStatus", "conditions", By("type"), ""),
    ("NodeStatus", "addresses", By("type"), ""),
    ("Service", "spec", Inside, "ServiceSpec"),
    ("Service", "status", Inside, "Conditions"),
    ("ServiceSpec", "ports", By("port"), ""),
    ("ServiceAccount", "secrets", By("name"), ""),
    ("Namespace", "status", Inside, "Conditions"),
    ("PersistentVolumeClaim", "metadata", Inside, "ObjectMeta"),
    ("PersistentVolumeClaim", "status", Inside, "Conditions"),
    ("ReplicationController", "spec", Inside, "Templated"),
    ("ReplicationController", "status", Inside, "Conditions"),
    ("Deployment", "spec", Inside, "Templated"),
    ("Deployment", "status", Inside, "Conditions"),
    ("ReplicaSet", "spec", Inside, "Templated"),
    ("ReplicaSet", "status", Inside, "Conditions"),
    ("DaemonSet", "spec", Inside, "Templated"),
    ("DaemonSet", "status", Inside, "Conditions"),
    ("StatefulSet", "spec", Inside, "Templated"),
    ("StatefulSet", "status", Inside, "Conditions"),
    ("Job", "spec", Inside, "Templated"),
    ("Job", "status", Inside, "Conditions"),
    ("CronJob", "spec", Inside, "CronJobSpec"),
    ("CronJobSpec", "jobTemplate", Inside, "Job"),
    ("Templated", "template", Inside, "PodTemplateSpec"),
    ("Conditions", "conditions", By("type"), ""),
    ("PodDisruptionBudget", "spec", Inside, "PodDisruptionBudgetSpec"),
    ("PodDisruptionBudgetSpec", "selector", Replace, ""),
    ("PodDisruptionBudget", "status", Inside, "Conditions"),
    ("HorizontalPodAutoscaler", "status", Inside, "Conditions"),
    ("APIService", "status", Inside, "Conditions"),
    ("MutatingWebhookConfiguration", "webhooks", By("name"), "Webhook"),
    ("ValidatingWebhookConfiguration", "webhooks", By("name"), "Webhook"),
    ("Webhook", "matchConditions", By("name"), ""),
    ("ResourceClaim", "status", Inside, "ResourceClaimStatus"),
    ("ResourceClaimStatus", "reservedFor", By("uid"), ""),
    ("NetworkPolicy", "status", Inside, "Conditions"),
    ("ServiceCIDR", "status", Inside, "Conditions"),
];

/// The type that a kind starts with.
pub(super) fn root(kind: &str) -> Place {
    // Names from the table itself, so that a place is a static text.
    Place(FIELDS.iter().find(|(name, ..)| *name == kind).map_or("Object", |(name, ..)| name))
}

impl Place {
    /// What is known of a field.
    pub(super) fn field(self, name: &str) -> Rule {
        let known = FIELDS.iter().find(|(place, field, ..)| *place == self.0 && *field == name);
        let (how, child) = match known {
            Some((_, _, how, child)) => (*how, *child),
            // Every kind has metadata; other types have it in the table.
            None if name == "metadata" && !self.0.is_empty() => (Inside, "ObjectMeta"),
            None => (Inside, ""),
        };
        let merge_key = match how {
            By(key) => Some(key),
            Unite => Some(""),
            Inside | Replace => None,
        };
        Rule { merge_key, replace: matches!(how, Replace), child: Self(child) }
    }
}
