//! Says what an error of the API client means for the person who must mend it.

use std::error::Error;

use super::Kubeconfig;

/// Returns one line: what is wrong, with which file and field, and until when its certificates were good.
pub fn explain(error: &kube::Error, kubeconfig: &Kubeconfig) -> String {
    let server = kubeconfig.server();
    let file = kubeconfig.path().display();
    if let kube::Error::Api(status) = error {
        if status.code != 401 {
            return status.message.clone();
        }
        let who = kubeconfig.identity().map_or_else(
            || "the credentials".to_owned(),
            |facts| {
                format!(
                    "client certificate {} (signed by {}, valid until {})",
                    facts.subject, facts.issuer, facts.not_after
                )
            },
        );
        return format!("{server} does not accept {who} of {file}: {}", status.message);
    }
    if let Some(error) = tls_error(error) {
        return tls(error, kubeconfig);
    }
    let last = chain(error).last().map_or_else(|| error.to_string(), ToString::to_string);
    format!("{server}: {last}")
}

/// Returns an error of the API client as one line for a log: the whole chain without repetitions, and of what the
/// apiserver answered only its message and code.
pub fn brief(error: &(dyn Error + 'static)) -> String {
    let mut parts = Vec::new();
    for link in chain(error) {
        if let Some(kube::Error::Api(status)) = link.downcast_ref() {
            parts.push(format!("{} ({})", status.message, status.code));
            break;
        }
        let text = link.to_string();
        // Many errors end with the text of what caused them.
        let own = match link.source().map(ToString::to_string) {
            Some(cause) => text.strip_suffix(&cause).map_or(text.as_str(), |own| own.trim_end_matches(": ")),
            None => &text,
        };
        if !own.is_empty() {
            parts.push(own.to_owned());
        }
    }
    parts.join(": ")
}

/// Whether the apiserver could not be reached at all (as opposed to having said no).
pub fn is_unreachable(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Service(_) | kube::Error::HyperError(_))
}

fn tls(error: &rustls::Error, kubeconfig: &Kubeconfig) -> String {
    use rustls::{CertificateError as Certificate, Error as Tls};
    let server = kubeconfig.server();
    let file = kubeconfig.path().display();
    let authority = kubeconfig
        .authority()
        .map_or_else(|| "the system's authorities".to_owned(), |authority| format!("{} of {file}", authority.field));
    match error {
        Tls::InvalidCertificate(Certificate::UnknownIssuer | Certificate::BadSignature) => {
            format!("{server}: the server's certificate is not signed by {authority}")
        }
        Tls::InvalidCertificate(Certificate::Expired) => format!("{server}: the server's certificate has expired"),
        Tls::InvalidCertificate(Certificate::ExpiredContext { not_after, .. }) => {
            format!("{server}: the server's certificate expired at {}", seconds(*not_after))
        }
        Tls::InvalidCertificate(Certificate::NotValidYet) => {
            format!("{server}: the server's certificate is not valid yet; is the clock right?")
        }
        Tls::InvalidCertificate(Certificate::NotValidYetContext { not_before, .. }) => {
            format!(
                "{server}: the server's certificate is not valid before {}; is the clock right?",
                seconds(*not_before)
            )
        }
        Tls::InvalidCertificate(Certificate::NotValidForName | Certificate::NotValidForNameContext { .. }) => {
            format!("{server}: the server's certificate is for another name: {error}")
        }
        Tls::AlertReceived(_) => match kubeconfig.identity() {
            Some(facts) => format!(
                "{server}: the server refused client certificate {} of {file} (valid until {}): {error}",
                facts.subject, facts.not_after
            ),
            None => format!("{server}: {error}"),
        },
        error => format!("{server}: {error}"),
    }
}

fn seconds(at: rustls_pki_types::UnixTime) -> String {
    i64::try_from(at.as_secs())
        .ok()
        .and_then(|seconds| jiff::Timestamp::from_second(seconds).ok())
        .map(|at| at.to_string())
        .unwrap_or_default()
}

fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error: &&'a (dyn Error + 'static)| (*error).source())
}

fn tls_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    if let Some(error) = error.downcast_ref::<rustls::Error>() {
        return Some(error);
    }
    // An io::Error does not show what it wraps as its source, only that one's source.
    match error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref) {
        Some(wrapped) => tls_error(wrapped),
        None => error.source().and_then(tls_error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("list of pods: {0}")]
    struct Outer(#[source] kube::Error);

    #[test]
    fn a_refusal_is_told_by_its_message_and_code() {
        let status = kube::core::Status::failure("Unauthorized", "Unauthorized").with_code(401);
        assert_eq!(brief(&Outer(kube::Error::Api(status.boxed()))), "list of pods: Unauthorized (401)");
    }

    #[test]
    fn a_chain_is_told_to_its_end_and_nothing_twice() {
        let inner = std::io::Error::other("no route");
        assert_eq!(brief(&Outer(kube::Error::Service(Box::new(inner)))), "list of pods: ServiceError: no route");
    }
}
