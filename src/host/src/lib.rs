pub mod cgroup;
pub mod facts;
pub mod mount;
pub mod oci;
pub mod path;
pub mod tune;
