//! The test environment: a real containerd of a chosen version in its own mount and network namespace, with images,
//! CNI and folders of its own, so that two runs never meet and nothing on the machine is touched.

pub mod env;
pub mod tools;
