//! What is asked and answered, not stored.

/// A review that is answered and not stored (token and access reviews); its handler lives with login and rights.
#[derive(Debug)]
pub struct Review {
    /// API group.
    pub group: &'static str,
    /// Name in paths.
    pub plural: &'static str,
    /// Name on command lines.
    pub singular: &'static str,
    /// Name in objects.
    pub kind: &'static str,
    /// Whether it is asked inside a namespace.
    pub namespaced: bool,
}

/// Reviews served.
pub static REVIEWS: &[Review] = &[
    Review {
        group: "authentication.k8s.io",
        plural: "selfsubjectreviews",
        singular: "selfsubjectreview",
        kind: "SelfSubjectReview",
        namespaced: false,
    },
    Review {
        group: "authentication.k8s.io",
        plural: "tokenreviews",
        singular: "tokenreview",
        kind: "TokenReview",
        namespaced: false,
    },
    Review {
        group: "authorization.k8s.io",
        plural: "localsubjectaccessreviews",
        singular: "localsubjectaccessreview",
        kind: "LocalSubjectAccessReview",
        namespaced: true,
    },
    Review {
        group: "authorization.k8s.io",
        plural: "selfsubjectaccessreviews",
        singular: "selfsubjectaccessreview",
        kind: "SelfSubjectAccessReview",
        namespaced: false,
    },
    Review {
        group: "authorization.k8s.io",
        plural: "selfsubjectrulesreviews",
        singular: "selfsubjectrulesreview",
        kind: "SelfSubjectRulesReview",
        namespaced: false,
    },
    Review {
        group: "authorization.k8s.io",
        plural: "subjectaccessreviews",
        singular: "subjectaccessreview",
        kind: "SubjectAccessReview",
        namespaced: false,
    },
];
