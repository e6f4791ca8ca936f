//! Columns as rows of a table: name, type, whether only `-o wide` shows it, and where its cell comes from.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::Column;
use super::cells::{age, non_empty};
use super::values as of;
use crate::apiserver::object::text;

/// Where a cell comes from.
#[derive(Debug, Clone, Copy)]
pub(super) enum Cell {
    /// The object's name.
    Name,
    /// The time since it was made.
    Age,
    /// When it was made.
    Made,
    /// A text, perhaps empty.
    Text(&'static str),
    /// A text, or a word where there is none.
    Or(&'static str, &'static str),
    /// A number, or nought.
    Number(&'static str),
    /// A boolean, or false.
    Flag(&'static str),
    /// Computed.
    Of(fn(&Value, Timestamp) -> Value),
}

/// A column and its cells.
type Row = (&'static str, &'static str, u8, Cell);

use Cell::{Age, Flag, Made, Name, Number, Of, Or, Text};

const NONE: &str = "<none>";
const NAME: Row = ("Name", "string", 0, Name);
const AGE: Row = ("Age", "string", 0, Age);

const fn shown(name: &'static str, cell: Cell) -> Row {
    (name, "string", 0, cell)
}

const fn wide(name: &'static str, cell: Cell) -> Row {
    (name, "string", 1, cell)
}

const fn number(name: &'static str, pointer: &'static str) -> Row {
    (name, "integer", 0, Number(pointer))
}

const fn flag(name: &'static str, pointer: &'static str) -> Row {
    (name, "boolean", 0, Flag(pointer))
}

const CONTAINERS: Row = wide("Containers", Of(|object, _| of::containers(object, "/spec/template", "name")));
const IMAGES: Row = wide("Images", Of(|object, _| of::containers(object, "/spec/template", "image")));
const SELECTOR: Row = wide("Selector", Of(|object, _| of::selector(object, "/spec/selector")));

/// Kinds, and the columns that they have.
type Kinds = &'static [(&'static [&'static str], &'static [Row])];

fn rows(kind: &str) -> Option<&'static [Row]> {
    let all = WORKLOADS.iter().chain(STORAGE).chain(CLUSTER);
    all.filter(|(kinds, _)| kinds.contains(&kind)).map(|(_, rows)| *rows).next()
}

static WORKLOADS: Kinds = &[
    (
        &["Deployment"],
        &[
            NAME,
            shown("Ready", Of(|object, _| of::fraction(object, "/status/readyReplicas", "/spec/replicas"))),
            shown("Up-to-date", Number("/status/updatedReplicas")),
            shown("Available", Number("/status/availableReplicas")),
            AGE,
            CONTAINERS,
            IMAGES,
            SELECTOR,
        ],
    ),
    (
        &["ReplicaSet", "ReplicationController"],
        &[
            NAME,
            number("Desired", "/spec/replicas"),
            number("Current", "/status/replicas"),
            number("Ready", "/status/readyReplicas"),
            AGE,
            CONTAINERS,
            IMAGES,
            SELECTOR,
        ],
    ),
    (
        &["DaemonSet"],
        &[
            NAME,
            number("Desired", "/status/desiredNumberScheduled"),
            number("Current", "/status/currentNumberScheduled"),
            number("Ready", "/status/numberReady"),
            number("Up-to-date", "/status/updatedNumberScheduled"),
            number("Available", "/status/numberAvailable"),
            shown("Node Selector", Of(|object, _| of::pairs(object, "/spec/template/spec/nodeSelector"))),
            AGE,
            CONTAINERS,
            IMAGES,
            SELECTOR,
        ],
    ),
    (
        &["StatefulSet"],
        &[
            NAME,
            shown("Ready", Of(|object, _| of::fraction(object, "/status/readyReplicas", "/spec/replicas"))),
            AGE,
            CONTAINERS,
            IMAGES,
        ],
    ),
    (
        &["ControllerRevision"],
        &[NAME, shown("Controller", Of(|object, _| of::controller(object))), number("Revision", "/revision"), AGE],
    ),
    (
        &["Job"],
        &[
            NAME,
            shown("Status", Of(|object, _| of::job_status(object))),
            shown("Completions", Of(|object, _| of::completions(object))),
            shown("Duration", Of(of::job_duration)),
            AGE,
            CONTAINERS,
            IMAGES,
            SELECTOR,
        ],
    ),
    (
        &["CronJob"],
        &[
            NAME,
            shown("Schedule", Text("/spec/schedule")),
            shown("Timezone", Or("/spec/timeZone", NONE)),
            flag("Suspend", "/spec/suspend"),
            ("Active", "integer", 0, Of(|object, _| of::count(object, "/status/active"))),
            shown("Last Schedule", Of(|object, now| of::since(object, "/status/lastScheduleTime", now))),
            AGE,
            wide("Containers", Of(|object, _| of::containers(object, "/spec/jobTemplate/spec/template", "name"))),
            wide("Images", Of(|object, _| of::containers(object, "/spec/jobTemplate/spec/template", "image"))),
            wide("Selector", Of(|object, _| of::selector(object, "/spec/jobTemplate/spec/selector"))),
        ],
    ),
    (
        &["PodTemplate"],
        &[
            NAME,
            shown("Containers", Of(|object, _| of::containers(object, "/template", "name"))),
            shown("Images", Of(|object, _| of::containers(object, "/template", "image"))),
            shown("Pod Labels", Of(|object, _| of::pairs(object, "/template/metadata/labels"))),
        ],
    ),
    (
        &["PodDisruptionBudget"],
        &[
            NAME,
            shown("Min Available", Of(|object, _| of::amount(object, "/spec/minAvailable"))),
            shown("Max Unavailable", Of(|object, _| of::amount(object, "/spec/maxUnavailable"))),
            number("Allowed Disruptions", "/status/disruptionsAllowed"),
            AGE,
        ],
    ),
    (&["Scale"], &[NAME, number("Desired", "/spec/replicas"), number("Available", "/status/replicas"), AGE]),
];

static STORAGE: Kinds = &[
    (
        &["PersistentVolume"],
        &[
            NAME,
            shown("Capacity", Text("/spec/capacity/storage")),
            shown("Access Modes", Of(|object, _| of::access_modes(object, "/spec/accessModes"))),
            shown("Reclaim Policy", Text("/spec/persistentVolumeReclaimPolicy")),
            shown("Status", Of(|object, _| of::phase(object))),
            shown("Claim", Of(|object, _| of::claim(object))),
            shown("StorageClass", Text("/spec/storageClassName")),
            shown("VolumeAttributesClass", Or("/spec/volumeAttributesClassName", "<unset>")),
            shown("Reason", Text("/status/reason")),
            AGE,
            wide("VolumeMode", Or("/spec/volumeMode", "<unset>")),
        ],
    ),
    (
        &["PersistentVolumeClaim"],
        &[
            NAME,
            shown("Status", Of(|object, _| of::phase(object))),
            shown("Volume", Text("/spec/volumeName")),
            shown("Capacity", Of(|object, _| of::if_bound(object, json!(text(object, "/status/capacity/storage"))))),
            shown(
                "Access Modes",
                Of(|object, _| of::if_bound(object, of::access_modes(object, "/status/accessModes"))),
            ),
            shown("StorageClass", Text("/spec/storageClassName")),
            shown("VolumeAttributesClass", Or("/spec/volumeAttributesClassName", "<unset>")),
            AGE,
            wide("VolumeMode", Or("/spec/volumeMode", "<unset>")),
        ],
    ),
    (
        &["StorageClass"],
        &[
            ("Name", "string", 0, Of(|object, _| of::class_name(object))),
            shown("Provisioner", Text("/provisioner")),
            shown("ReclaimPolicy", Or("/reclaimPolicy", "Delete")),
            shown("VolumeBindingMode", Or("/volumeBindingMode", "Immediate")),
            shown("AllowVolumeExpansion", Flag("/allowVolumeExpansion")),
            AGE,
        ],
    ),
    (
        &["VolumeAttachment"],
        &[
            NAME,
            shown("Attacher", Text("/spec/attacher")),
            shown("PV", Text("/spec/source/persistentVolumeName")),
            shown("Node", Text("/spec/nodeName")),
            flag("Attached", "/status/attached"),
            AGE,
        ],
    ),
    (
        &["CSIDriver"],
        &[
            NAME,
            flag("AttachRequired", "/spec/attachRequired"),
            flag("PodInfoOnMount", "/spec/podInfoOnMount"),
            flag("StorageCapacity", "/spec/storageCapacity"),
            shown("TokenRequests", Of(|object, _| of::joined(object, "/spec/tokenRequests", "/audience", "<unset>"))),
            flag("RequiresRepublish", "/spec/requiresRepublish"),
            shown("Modes", Of(|object, _| of::joined(object, "/spec/volumeLifecycleModes", "", NONE))),
            AGE,
        ],
    ),
    (
        &["ResourceQuota"],
        &[
            NAME,
            shown("Request", Of(|object, _| of::quota(object, false))),
            shown("Limit", Of(|object, _| of::quota(object, true))),
            AGE,
        ],
    ),
];

static CLUSTER: Kinds = &[
    (&["Endpoints"], &[NAME, shown("Endpoints", Of(|object, _| of::endpoints(object))), AGE]),
    (
        &["EndpointSlice"],
        &[
            NAME,
            shown("AddressType", Text("/addressType")),
            shown("Ports", Of(|object, _| of::slice_ports(object))),
            shown("Endpoints", Of(|object, _| of::slice_addresses(object))),
            AGE,
        ],
    ),
    (
        &["Ingress"],
        &[
            NAME,
            shown("Class", Or("/spec/ingressClassName", NONE)),
            shown("Hosts", Of(|object, _| of::hosts(object))),
            shown("Address", Of(|object, _| of::ingress_address(object))),
            shown("Ports", Of(|object, _| of::ingress_ports(object))),
            AGE,
        ],
    ),
    (
        &["IngressClass"],
        &[
            NAME,
            shown("Controller", Text("/spec/controller")),
            shown("Parameters", Of(|object, _| of::parameters(object))),
            AGE,
        ],
    ),
    (
        &["NetworkPolicy"],
        &[NAME, shown("Pod-Selector", Of(|object, _| of::selector(object, "/spec/podSelector"))), AGE],
    ),
    (
        &["RoleBinding", "ClusterRoleBinding"],
        &[
            NAME,
            shown(
                "Role",
                Of(|object, _| json!(format!("{}/{}", text(object, "/roleRef/kind"), text(object, "/roleRef/name")))),
            ),
            AGE,
            wide("Users", Of(|object, _| of::subjects(object, "User"))),
            wide("Groups", Of(|object, _| of::subjects(object, "Group"))),
            wide("ServiceAccounts", Of(|object, _| of::subjects(object, "ServiceAccount"))),
        ],
    ),
    (
        &["CertificateSigningRequest"],
        &[
            NAME,
            AGE,
            shown("SignerName", Text("/spec/signerName")),
            shown("Requestor", Text("/spec/username")),
            shown("RequestedDuration", Of(|object, _| of::requested(object))),
            shown("Condition", Of(|object, _| of::request_state(object))),
        ],
    ),
    (
        &["PriorityClass"],
        &[
            NAME,
            number("Value", "/value"),
            flag("Global-Default", "/globalDefault"),
            AGE,
            shown("PreemptionPolicy", Text("/preemptionPolicy")),
        ],
    ),
    (&["LimitRange", "Role", "ClusterRole", "CustomResourceDefinition"], &[NAME, ("Created At", "date", 0, Made)]),
];

/// Returns the columns of a kind that is told here.
pub(super) fn columns(kind: &str) -> Option<Vec<Column>> {
    let rows = rows(kind)?.iter();
    Some(rows.map(|&(name, kind, priority, _)| Column { name, kind, priority }).collect())
}

/// Returns the cells of an object of such a kind.
pub(super) fn cells(kind: &str, object: &Value, now: Timestamp) -> Option<Vec<Value>> {
    let rows = rows(kind)?.iter();
    Some(rows.map(|(_, _, _, cell)| value(*cell, object, now)).collect())
}

fn value(cell: Cell, object: &Value, now: Timestamp) -> Value {
    match cell {
        Name => json!(text(object, "/metadata/name")),
        Age => json!(age(text(object, "/metadata/creationTimestamp"), now)),
        Made => json!(text(object, "/metadata/creationTimestamp")),
        Text(pointer) => json!(text(object, pointer)),
        Or(pointer, NONE) => json!(non_empty(text(object, pointer))),
        Or(pointer, other) => match text(object, pointer) {
            "" => json!(other),
            own => json!(own),
        },
        Number(pointer) => json!(object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0)),
        Flag(pointer) => json!(object.pointer(pointer).and_then(Value::as_bool).unwrap_or(false)),
        Of(compute) => compute(object, now),
    }
}
