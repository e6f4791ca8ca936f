pub mod cgroup;
pub mod facts;
pub mod mount;
pub mod notify;
pub mod oci;
pub mod path;
pub mod process;
pub mod tune;
