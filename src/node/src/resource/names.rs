//! Names of control groups, for both drivers.

use longshore_api::qos::Qos;

/// How groups are named and who makes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CgroupDriver {
    /// Plain folders.
    Cgroupfs,
    /// Slices of systemd.
    Systemd,
}

/// The naming scheme.
#[derive(Debug, Clone)]
pub struct CgroupNames {
    driver: CgroupDriver,
    /// Parts of the root, e.g. `["a", "b"]` for `/a/b`.
    root: Vec<String>,
    per_qos: bool,
}

impl CgroupNames {
    /// `root` is `cgroupRoot`; `per_qos` is `cgroupsPerQOS`.
    pub fn new(driver: CgroupDriver, root: &str, per_qos: bool) -> Self {
        let root = root.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect();
        Self { driver, root, per_qos }
    }

    /// The driver.
    pub fn driver(&self) -> CgroupDriver {
        self.driver
    }

    /// Says whether pods have groups of their own.
    pub fn per_qos(&self) -> bool {
        self.per_qos
    }

    /// The group above all pods.
    pub fn pods(&self) -> String {
        self.path(&[])
    }

    /// The group above the pods of a class; guaranteed pods stand right below all.
    pub fn class(&self, class: Qos) -> String {
        match class_part(class) {
            Some(part) => self.path(&[part.to_owned()]),
            None => self.path(&[]),
        }
    }

    /// The group of a pod, as the runtime gets it in `cgroup_parent`.
    pub fn pod(&self, uid: &str, class: Qos) -> String {
        if !self.per_qos {
            return self.without_pods();
        }
        let pod = format!("pod{uid}");
        match class_part(class) {
            Some(part) => self.path(&[part.to_owned(), pod]),
            None => self.path(&[pod]),
        }
    }

    /// The uid of a pod group's last part, if it is one.
    pub fn uid_of(&self, part: &str) -> Option<String> {
        match self.driver {
            CgroupDriver::Cgroupfs => part.strip_prefix("pod").map(str::to_owned),
            CgroupDriver::Systemd => {
                let name = part.strip_suffix(".slice")?;
                Some(name.rsplit_once("-pod")?.1.replace('_', "-"))
            }
        }
    }

    fn without_pods(&self) -> String {
        match self.driver {
            CgroupDriver::Cgroupfs => format!("/{}", self.root.join("/")),
            CgroupDriver::Systemd => slices(&self.root),
        }
    }

    fn path(&self, below: &[String]) -> String {
        let mut parts = self.root.clone();
        parts.push("kubepods".to_owned());
        parts.extend_from_slice(below);
        match self.driver {
            CgroupDriver::Cgroupfs => format!("/{}", parts.join("/")),
            CgroupDriver::Systemd => slices(&parts),
        }
    }
}

/// `["a", "b-c"]` becomes `/a.slice/a-b_c.slice`: a dash in a slice's name stands for a level.
fn slices(parts: &[String]) -> String {
    let mut out = String::new();
    let mut name = String::new();
    for part in parts {
        if !name.is_empty() {
            name.push('-');
        }
        name.push_str(&part.replace('-', "_"));
        out.push('/');
        out.push_str(&name);
        out.push_str(".slice");
    }
    if out.is_empty() { "/".to_owned() } else { out }
}

fn class_part(class: Qos) -> Option<&'static str> {
    match class {
        Qos::Guaranteed => None,
        Qos::Burstable => Some("burstable"),
        Qos::BestEffort => Some("besteffort"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_stock_agent() {
        let plain = CgroupNames::new(CgroupDriver::Cgroupfs, "/", true);
        assert_eq!(plain.pod("u-1", Qos::BestEffort), "/kubepods/besteffort/podu-1");
        assert_eq!(plain.pod("u-1", Qos::Guaranteed), "/kubepods/podu-1");
        let rooted = CgroupNames::new(CgroupDriver::Cgroupfs, "/a/b", true);
        assert_eq!(rooted.class(Qos::Burstable), "/a/b/kubepods/burstable");
        let slice = CgroupNames::new(CgroupDriver::Systemd, "/", true);
        assert_eq!(
            slice.pod("u-1", Qos::Burstable),
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podu_1.slice"
        );
        assert_eq!(slice.pod("u-1", Qos::Guaranteed), "/kubepods.slice/kubepods-podu_1.slice");
        let deep = CgroupNames::new(CgroupDriver::Systemd, "a/b", true);
        assert_eq!(deep.pods(), "/a.slice/a-b.slice/a-b-kubepods.slice");
        assert_eq!(CgroupNames::new(CgroupDriver::Cgroupfs, "/a", false).pod("u", Qos::Burstable), "/a");
        assert_eq!(slice.uid_of("kubepods-burstable-podu_1.slice").as_deref(), Some("u-1"));
        assert_eq!(plain.uid_of("podx").as_deref(), Some("x"));
        assert_eq!(plain.uid_of("besteffort"), None);
    }
}
