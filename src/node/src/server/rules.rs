//! Which right a path needs. Pure.

use http::Method;

/// The verb by which rights are asked for a method; others have none. Who begins something in a container creates, also
/// where a WebSocket makes a GET of it: a right to read must not be one to run commands.
pub(super) fn verb(method: &Method, path: &str) -> &'static str {
    const BEGUN: [&str; 4] = ["/run", "/exec", "/attach", "/portForward"];
    match *method {
        Method::GET if BEGUN.iter().any(|prefix| is_below(path, prefix)) => "create",
        Method::POST => "create",
        Method::GET => "get",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "",
    }
}

/// The subresources of `nodes` one of which must be allowed, in the order in which they are asked.
pub(super) fn subresources(path: &str) -> &'static [&'static str] {
    const TABLE: [(&str, &[&str]); 10] = [
        ("/pods", &["pods", "proxy"]),
        ("/runningpods", &["pods", "proxy"]),
        ("/healthz", &["healthz", "proxy"]),
        ("/configz", &["configz", "proxy"]),
        ("/stats", &["stats"]),
        ("/metrics", &["metrics"]),
        ("/logs", &["log"]),
        ("/checkpoint", &["checkpoint"]),
        ("/statusz", &["statusz"]),
        ("/flagz", &["configz"]),
    ];
    let found = TABLE.iter().find(|(prefix, _)| is_below(path, prefix));
    found.map_or(&["proxy"], |(_, subresources)| subresources)
}

/// Whether `path` is `prefix` or lies below it; whole segments count.
pub(super) fn is_below(path: &str, prefix: &str) -> bool {
    path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The label of a path in metrics: its first segment if it is one of ours.
pub(super) fn path_label(path: &str) -> &'static str {
    const KNOWN: [&str; 12] = [
        "pods",
        "runningpods",
        "healthz",
        "configz",
        "stats",
        "logs",
        "checkpoint",
        "run",
        "exec",
        "attach",
        "portForward",
        "containerLogs",
    ];
    const METRICS: [&str; 4] = ["metrics/cadvisor", "metrics/probes", "metrics/resource", "metrics/slis"];
    let path = path.trim_matches('/');
    if let Some(known) = METRICS.iter().find(|known| **known == path) {
        return known;
    }
    let first = path.split('/').next().unwrap_or_default();
    if first == "metrics" {
        return "metrics";
    }
    KNOWN.iter().find(|known| **known == first).copied().unwrap_or("other")
}

/// The label of a method in metrics.
pub(super) fn method_label(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::HEAD => "HEAD",
        Method::OPTIONS => "OPTIONS",
        _ => "other",
    }
}

/// The text with which a path is refused while debugging handlers are off.
pub(super) fn disabled(path: &str) -> bool {
    ["/run", "/exec", "/attach", "/portForward", "/containerLogs", "/runningpods", "/debug/pprof", "/logs"]
        .iter()
        .any(|prefix| is_below(path, prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_follow_whole_segments() {
        assert_eq!(subresources("/pods"), ["pods", "proxy"]);
        assert_eq!(subresources("/podsx"), ["proxy"]);
        assert_eq!(subresources("/runningpods/"), ["pods", "proxy"]);
        assert_eq!(subresources("/healthz/ping"), ["healthz", "proxy"]);
        assert_eq!(subresources("/metrics/cadvisor"), ["metrics"]);
        assert_eq!(subresources("/stats/summary"), ["stats"]);
        assert_eq!(subresources("/logs/syslog"), ["log"]);
        assert_eq!(subresources("/flagz"), ["configz"]);
        for path in ["/exec/a/b/c", "/containerLogs/a/b/c", "/debug/pprof/", "/", "/nothing"] {
            assert_eq!(subresources(path), ["proxy"], "{path}");
        }
        assert_eq!(verb(&Method::POST, "/pods"), "create");
        assert_eq!(verb(&Method::HEAD, "/exec/ns/p/c"), "");
    }

    #[test]
    fn to_run_something_in_a_container_takes_the_right_to_create_also_by_a_websocket() {
        for path in ["/exec/ns/p/c", "/attach/ns/p/c", "/portForward/ns/p", "/run/ns/p/c"] {
            assert_eq!(verb(&Method::GET, path), "create", "{path}");
        }
        for path in ["/pods", "/containerLogs/ns/p/c", "/executed", "/logs/"] {
            assert_eq!(verb(&Method::GET, path), "get", "{path}");
        }
    }

    #[test]
    fn labels_come_from_a_short_list() {
        for (path, label) in [
            ("/metrics", "metrics"),
            ("/metrics/cadvisor", "metrics/cadvisor"),
            ("/metrics/secret", "metrics"),
            ("/exec/ns/pod/c", "exec"),
            ("/admin.php", "other"),
            ("/", "other"),
        ] {
            assert_eq!(path_label(path), label);
        }
    }
}
