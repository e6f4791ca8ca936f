//! Turns etcd's calls in `proto/etcd-v3.proto` into messages and a client. No protoc is needed.

use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let proto = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR")?).join("../../proto");
    let file = proto.join("etcd-v3.proto");
    println!("cargo::rerun-if-changed={}", file.display());
    tonic_prost_build::configure()
        .build_server(false)
        // Values may be Secrets.
        .skip_debug([".etcdserverpb.KeyValue", ".etcdserverpb.PutRequest"])
        .compile_fds(protox::compile([&file], [&proto])?)?;
    Ok(())
}
