pub mod cgroup;
pub mod facts;
pub mod oci;
pub mod tune;
