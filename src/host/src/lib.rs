pub mod oci;
