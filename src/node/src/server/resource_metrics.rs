//! `/metrics/resource`: what containers, pods and the node use now; read by metrics-server for `kubectl top`. Asked of the
//! runtime and /proc at each scrape, nothing is measured in between.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use http::{HeaderValue, Response, header};
use longshore_cri::v1;

use super::router::Shared;

/// Clock ticks per second in /proc/stat, fixed by the kernel's interface on Linux.
const TICKS: u64 = 100;
const NANOS: u64 = 1_000_000_000;

/// One container's figures.
#[derive(Debug, Default, PartialEq, Eq)]
struct Figures {
    namespace: String,
    pod: String,
    container: String,
    cpu: Option<(u64, i64)>,
    memory: Option<(u64, i64)>,
    swap: Option<(u64, i64)>,
    started: Option<i64>,
}

/// Reads one figure: its text and, if the figure has one, its time.
type Value<'a> = &'a dyn Fn(&Figures) -> Option<(String, Option<i64>)>;

/// What the node uses.
#[derive(Debug, Default, PartialEq, Eq)]
struct Node {
    cpu_nanos: u64,
    memory: u64,
    swap: u64,
}

/// Answers a scrape. A runtime that does not answer is told as an error in the text, as upstream does.
pub(super) async fn get(State(shared): State<Arc<Shared>>) -> Response<Body> {
    let runtime = &shared.deps.runtime;
    let filter = v1::ContainerFilter {
        state: Some(v1::ContainerStateValue { state: v1::ContainerState::ContainerRunning.into() }),
        ..v1::ContainerFilter::default()
    };
    let (stats, list) = tokio::join!(
        runtime.list_container_stats(v1::ListContainerStatsRequest::default()),
        runtime.list_containers(v1::ListContainersRequest { filter: Some(filter) }),
    );
    let failed = stats.is_err() || list.is_err();
    let list = list.unwrap_or_default().containers;
    let started = list.iter().map(|container| (container.id.as_str(), container.created_at)).collect();
    let stats = stats.unwrap_or_default().stats;
    let figures: Vec<Figures> = stats.iter().filter_map(|stats| figures(stats, &started)).collect();
    let now = shared.deps.clock.now().as_nanosecond();
    let text = render(&figures, &node(), i64::try_from(now).unwrap_or(0), failed);
    let mut response = Response::new(Body::from(text));
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

fn figures(stats: &v1::ContainerStats, started: &BTreeMap<&str, i64>) -> Option<Figures> {
    let attributes = stats.attributes.as_ref()?;
    let label = |name: &str| attributes.labels.get(name).cloned();
    let value = |value: Option<&v1::UInt64Value>, at: i64| value.map(|value| (value.value, at));
    // Ended containers have figures in some runtimes; only what runs uses anything.
    let started = *started.get(attributes.id.as_str())?;
    Some(Figures {
        namespace: label("io.kubernetes.pod.namespace")?,
        pod: label("io.kubernetes.pod.name")?,
        container: label("io.kubernetes.container.name")?,
        cpu: stats.cpu.as_ref().and_then(|cpu| value(cpu.usage_core_nano_seconds.as_ref(), cpu.timestamp)),
        memory: stats.memory.as_ref().and_then(|memory| value(memory.working_set_bytes.as_ref(), memory.timestamp)),
        swap: stats.swap.as_ref().and_then(|swap| value(swap.swap_usage_bytes.as_ref(), swap.timestamp)),
        started: Some(started),
    })
}

fn node() -> Node {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    parse_node(&stat, &memory)
}

fn parse_node(stat: &str, memory: &str) -> Node {
    let numbers = stat.lines().find_map(|line| line.strip_prefix("cpu ")).unwrap_or_default();
    let ticks: Vec<u64> = numbers.split_ascii_whitespace().map(|field| field.parse().unwrap_or(0)).collect();
    // user, nice, system; not idle, not iowait; irq, softirq, steal. Guests are within user.
    let busy: u64 =
        ticks.iter().take(8).enumerate().filter(|(at, _)| !matches!(at, 3 | 4)).map(|(_, value)| value).sum();
    let kib = |key: &str| -> u64 {
        let line = memory.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default();
        line.trim().trim_end_matches("kB").trim().parse().unwrap_or(0)
    };
    let used = kib("MemTotal:").saturating_sub(kib("MemFree:")).saturating_sub(kib("Inactive(file):"));
    let swap = kib("SwapTotal:").saturating_sub(kib("SwapFree:"));
    Node {
        cpu_nanos: busy.saturating_mul(NANOS / TICKS),
        memory: used.saturating_mul(1024),
        swap: swap.saturating_mul(1024),
    }
}

/// Nanoseconds as seconds, without floats.
fn seconds(nanos: u64) -> String {
    format!("{}.{:09}", nanos / NANOS, nanos % NANOS)
}

struct Text(String);

impl Text {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _infallible = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    fn sample(&mut self, name: &str, labels: &str, value: &str, at_nanos: Option<i64>) {
        let _infallible = match at_nanos {
            Some(at) => writeln!(self.0, "{name}{labels} {value} {}", at / 1_000_000),
            None => writeln!(self.0, "{name}{labels} {value}"),
        };
    }
}

fn render(figures: &[Figures], node: &Node, now: i64, failed: bool) -> String {
    let mut text = Text(String::with_capacity(1024 + figures.len() * 512));
    containers(&mut text, figures);
    text.family("node_cpu_usage_seconds_total", "counter", "Cumulative cpu time consumed by the node in core-seconds");
    text.sample("node_cpu_usage_seconds_total", "", &seconds(node.cpu_nanos), Some(now));
    text.family("node_memory_working_set_bytes", "gauge", "Current working set of the node in bytes");
    text.sample("node_memory_working_set_bytes", "", &node.memory.to_string(), Some(now));
    text.family("node_swap_usage_bytes", "gauge", "Current swap usage of the node in bytes");
    text.sample("node_swap_usage_bytes", "", &node.swap.to_string(), Some(now));
    pods(&mut text, figures);
    text.family(
        "resource_scrape_error",
        "gauge",
        "1 if there was an error while getting container metrics, 0 otherwise",
    );
    text.sample("resource_scrape_error", "", if failed { "1" } else { "0" }, None);
    text.0
}

fn containers(text: &mut Text, figures: &[Figures]) {
    let labels =
        |of: &Figures| format!("{{container=\"{}\",namespace=\"{}\",pod=\"{}\"}}", of.container, of.namespace, of.pod);
    let mut family = |name: &str, kind, help, value: Value<'_>| {
        text.family(name, kind, help);
        for of in figures {
            if let Some((value, at)) = value(of) {
                text.sample(name, &labels(of), &value, at);
            }
        }
    };
    family(
        "container_cpu_usage_seconds_total",
        "counter",
        "Cumulative cpu time consumed by the container in core-seconds",
        &|of| of.cpu.map(|(nanos, at)| (seconds(nanos), Some(at))),
    );
    family("container_memory_working_set_bytes", "gauge", "Current working set of the container in bytes", &|of| {
        of.memory.map(|(bytes, at)| (bytes.to_string(), Some(at)))
    });
    family("container_start_time_seconds", "gauge", "Start time of the container since unix epoch in seconds", &|of| {
        of.started.and_then(|at| u64::try_from(at).ok()).map(|at| (seconds(at), None))
    });
    family("container_swap_usage_bytes", "gauge", "Current amount of the container swap usage in bytes", &|of| {
        of.swap.map(|(bytes, at)| (bytes.to_string(), Some(at)))
    });
}

/// A pod uses what its containers use.
fn pods(text: &mut Text, figures: &[Figures]) {
    let mut sums: BTreeMap<(&str, &str), Figures> = BTreeMap::new();
    for of in figures {
        let sum = sums.entry((&of.namespace, &of.pod)).or_default();
        add(&mut sum.cpu, of.cpu);
        add(&mut sum.memory, of.memory);
        add(&mut sum.swap, of.swap);
    }
    let mut family = |name: &str, kind, help, value: &dyn Fn(&Figures) -> Option<(String, i64)>| {
        text.family(name, kind, help);
        for ((namespace, pod), sum) in &sums {
            if let Some((value, at)) = value(sum) {
                text.sample(name, &format!("{{namespace=\"{namespace}\",pod=\"{pod}\"}}"), &value, Some(at));
            }
        }
    };
    family(
        "pod_cpu_usage_seconds_total",
        "counter",
        "Cumulative cpu time consumed by the pod in core-seconds",
        &|sum| sum.cpu.map(|(nanos, at)| (seconds(nanos), at)),
    );
    family("pod_memory_working_set_bytes", "gauge", "Current working set of the pod in bytes", &|sum| {
        sum.memory.map(|(bytes, at)| (bytes.to_string(), at))
    });
    family("pod_swap_usage_bytes", "gauge", "Current amount of the pod swap usage in bytes", &|sum| {
        sum.swap.map(|(bytes, at)| (bytes.to_string(), at))
    });
}

fn add(sum: &mut Option<(u64, i64)>, more: Option<(u64, i64)>) {
    if let Some((value, at)) = more {
        let (have, latest) = sum.unwrap_or((0, at));
        *sum = Some((have.saturating_add(value), latest.max(at)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_has_upstreams_families() {
        let figures = [Figures {
            namespace: "ns".into(),
            pod: "p".into(),
            container: "a".into(),
            cpu: Some((21_076_122, 1_795_958_004_863_000_000)),
            memory: Some((520_192, 1_795_958_004_863_000_000)),
            swap: None,
            started: Some(1_795_958_004_501_335_100),
        }];
        let text =
            render(&figures, &Node { cpu_nanos: 1_500_000_000, memory: 7, swap: 0 }, 1_795_957_999_554_000_000, false);
        for line in [
            "container_cpu_usage_seconds_total{container=\"a\",namespace=\"ns\",pod=\"p\"} 0.021076122 1795958004863",
            "container_memory_working_set_bytes{container=\"a\",namespace=\"ns\",pod=\"p\"} 520192 1795958004863",
            "container_start_time_seconds{container=\"a\",namespace=\"ns\",pod=\"p\"} 1795958004.501335100",
            "node_cpu_usage_seconds_total 1.500000000 1795957999554",
            "pod_cpu_usage_seconds_total{namespace=\"ns\",pod=\"p\"} 0.021076122 1795958004863",
            "# TYPE pod_swap_usage_bytes gauge",
            "resource_scrape_error 0",
        ] {
            assert!(text.lines().any(|have| have == line), "{line} not in\n{text}");
        }
    }

    #[test]
    fn the_nodes_figures_come_from_proc() {
        let stat = "cpu  10 1 20 1000 50 2 3 4 9 9\ncpu0 1 1 1\n";
        let memory = "MemTotal: 100 kB\nMemFree: 30 kB\nInactive(file): 20 kB\nSwapTotal: 5 kB\nSwapFree: 1 kB\n";
        assert_eq!(parse_node(stat, memory), Node { cpu_nanos: 400_000_000, memory: 50 * 1024, swap: 4 * 1024 });
    }
}
