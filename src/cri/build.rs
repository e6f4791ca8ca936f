//! Turns `proto/*.proto` into messages, clients and servers. No protoc is needed.

use std::path::PathBuf;

use prost::Message as _;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let proto = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR")?).join("../../proto");
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    let file = proto.join("cri-v1.proto");
    println!("cargo::rerun-if-changed={}", file.display());

    let descriptors = protox::compile([&file], [&proto])?;
    // Read by the test that compares the contract table with what is generated here.
    std::fs::write(out.join("cri-v1.bin"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure()
        // Ordered maps: the same pod makes the same bytes, which recordings and comparisons rely on.
        .btree_map(".")
        // These may hold secrets; their Debug is written by hand in src/redact.rs.
        .skip_debug([".runtime.v1.AuthConfig", ".runtime.v1.KeyValue"])
        // Runtimes of different ages lack calls; a server made from this answers UNIMPLEMENTED by itself.
        .generate_default_stubs(true)
        .compile_fds(descriptors)?;

    for (name, server) in
        [("health-v1.proto", true), ("containerd-tasks.proto", true), ("containerd-content-v1.proto", false)]
    {
        let file = proto.join(name);
        println!("cargo::rerun-if-changed={}", file.display());
        tonic_prost_build::configure().build_server(server).compile_fds(protox::compile([&file], [&proto])?)?;
    }
    Ok(())
}
