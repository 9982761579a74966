//! Compiles the part of etcd's gRPC interface that the backend uses.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let files = protox::compile(["proto/etcd.proto"], ["proto"])?;
    // Keys and values share the received buffer instead of being copied.
    tonic_prost_build::configure().bytes(".").build_server(false).compile_fds(files)?;
    Ok(())
}
