//! The process itself: read from /proc at each scrape, so that nothing runs in between.

use std::fmt::Error;
use std::fs;
use std::sync::OnceLock;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// Clock ticks per second in /proc; fixed by the kernel's interface on Linux.
const TICKS: f64 = 100.0;

/// Answers the usual `process_*` families.
#[derive(Debug)]
pub(super) struct ProcessCollector;

impl Collector for ProcessCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        if let Some(stat) = Stat::read() {
            let cpu = ConstCounter::new(stat.cpu_seconds);
            cpu.encode(encoder.encode_descriptor(
                "process_cpu_seconds",
                "Total user and system CPU time spent in seconds",
                None,
                cpu.metric_type(),
            )?)?;
            gauge(&mut encoder, "process_resident_memory_bytes", "Resident memory size in bytes", stat.resident)?;
            gauge(&mut encoder, "process_virtual_memory_bytes", "Virtual memory size in bytes", stat.virtual_size)?;
            start_time(&mut encoder, &stat)?;
        }
        if let Ok(entries) = fs::read_dir("/proc/self/fd") {
            let open = f64::from(u32::try_from(entries.count()).unwrap_or(u32::MAX));
            gauge(&mut encoder, "process_open_fds", "Number of open file descriptors", open)?;
        }
        Ok(())
    }
}

/// Answers when the process started, alone.
#[derive(Debug)]
pub(super) struct StartTimeCollector;

impl Collector for StartTimeCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        Stat::read().map_or(Ok(()), |stat| start_time(&mut encoder, &stat))
    }
}

fn start_time(encoder: &mut DescriptorEncoder<'_>, stat: &Stat) -> Result<(), Error> {
    let Some(start) = stat.start else { return Ok(()) };
    gauge(encoder, "process_start_time_seconds", "Start time of the process since unix epoch in seconds", start)
}

fn gauge(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: f64) -> Result<(), Error> {
    let gauge = ConstGauge::new(value);
    gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)
}

struct Stat {
    cpu_seconds: f64,
    virtual_size: f64,
    resident: f64,
    start: Option<f64>,
}

impl Stat {
    fn read() -> Option<Self> {
        let text = fs::read_to_string("/proc/self/stat").ok()?;
        // The command's name may hold blanks and brackets; fields are counted from its end.
        let fields: Vec<&str> = text.rsplit_once(") ")?.1.split_ascii_whitespace().collect();
        let number = |index: usize| fields.get(index).and_then(|field| field.parse::<f64>().ok());
        Some(Self {
            cpu_seconds: (number(11)? + number(12)?) / TICKS,
            virtual_size: number(20)?,
            resident: resident()?,
            start: boot_time().zip(number(19)).map(|(boot, ticks)| boot + ticks / TICKS),
        })
    }
}

fn resident() -> Option<f64> {
    let text = fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().trim_end_matches("kB").trim().parse::<f64>().ok().map(|kib| kib * 1024.0)
}

fn boot_time() -> Option<f64> {
    static BOOT: OnceLock<Option<f64>> = OnceLock::new();
    *BOOT.get_or_init(|| {
        let text = fs::read_to_string("/proc/stat").ok()?;
        text.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
    })
}
