//! Which cgroup driver is used: agent and runtime must name groups in the same way, and the runtime knows its own.

use longshore_cri::{SharedRuntime, v1};

use super::options::ASK_WITHIN;
use crate::resource::CgroupDriver;

/// The runtime's driver where it tells, else the configured one; and what to say when they differ.
pub(super) async fn agreed(runtime: &SharedRuntime, configured: &str) -> (CgroupDriver, Option<String>) {
    let own = if configured == "systemd" { CgroupDriver::Systemd } else { CgroupDriver::Cgroupfs };
    let ask = runtime.runtime_config(v1::RuntimeConfigRequest {});
    let Ok(Ok(answer)) = tokio::time::timeout(ASK_WITHIN, ask).await else { return (own, None) };
    let Some(linux) = answer.linux else { return (own, None) };
    let told = match linux.cgroup_driver() {
        v1::CgroupDriver::Systemd => CgroupDriver::Systemd,
        v1::CgroupDriver::Cgroupfs => CgroupDriver::Cgroupfs,
    };
    let differs = (told != own).then(|| {
        format!(
            "cgroup driver: the agent's configuration says {} (cgroupDriver, --cgroup-driver), the runtime's says {} \
             (containerd: SystemdCgroup of runc's options, CRI-O: cgroup_manager); the runtime's is used",
            name(own),
            name(told)
        )
    });
    (told, differs)
}

fn name(driver: CgroupDriver) -> &'static str {
    match driver {
        CgroupDriver::Cgroupfs => "cgroupfs",
        CgroupDriver::Systemd => "systemd",
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use longshore_cri::fake::{FakeOptions, FakeRuntime};

    use super::*;

    async fn with(configured: &str, runtime: Option<v1::CgroupDriver>) -> (CgroupDriver, Option<String>) {
        let options = FakeOptions { cgroup_driver: runtime, ..FakeOptions::default() };
        let runtime: SharedRuntime = Arc::new(FakeRuntime::new(options));
        agreed(&runtime, configured).await
    }

    #[tokio::test]
    async fn the_runtimes_cgroup_driver_counts_and_a_difference_is_told() {
        let (driver, said) = with("cgroupfs", Some(v1::CgroupDriver::Systemd)).await;
        assert_eq!(driver, CgroupDriver::Systemd);
        let said = said.unwrap();
        for word in ["configuration says cgroupfs", "cgroupDriver", "runtime's says systemd", "SystemdCgroup"] {
            assert!(said.contains(word), "{word} in {said}");
        }
        let (driver, said) = with("systemd", Some(v1::CgroupDriver::Cgroupfs)).await;
        assert!(driver == CgroupDriver::Cgroupfs && said.is_some());
        assert_eq!(with("systemd", Some(v1::CgroupDriver::Systemd)).await, (CgroupDriver::Systemd, None));
    }

    #[tokio::test]
    async fn a_runtime_that_does_not_tell_leaves_it_to_the_configuration() {
        assert_eq!(with("systemd", None).await, (CgroupDriver::Systemd, None));
        assert_eq!(with("", None).await, (CgroupDriver::Cgroupfs, None));
    }
}
