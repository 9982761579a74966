//! Compiles the interfaces of container runtimes, and the one program of the sandbox image.

use std::env;
use std::error::Error;
use std::path::PathBuf;
use std::process::Command;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let files = [
        "proto/cri.proto",
        "proto/health.proto",
        "proto/containerd/content.proto",
        "proto/containerd/events.proto",
        "proto/containerd/images.proto",
        "proto/containerd/leases.proto",
    ];
    let files = protox::compile(files, ["proto"])?;
    tonic_prost_build::configure().build_server(false).compile_fds(files)?;

    println!("cargo::rerun-if-changed=pause/pause.c");
    println!("cargo::rerun-if-env-changed=CC");
    let compiler = env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let program = PathBuf::from(env::var("OUT_DIR")?).join("pause");
    let status = Command::new(&compiler)
        .args(["-Os", "-static", "-nostdlib", "-ffreestanding", "-fno-stack-protector", "-s", "-o"])
        .arg(&program)
        .arg("pause/pause.c")
        .status()
        .map_err(|it| format!("run {compiler}, a C compiler (Debian has it in gcc): {it}"))?;
    if !status.success() {
        return Err(format!("{compiler} could not build pause/pause.c: {status}").into());
    }
    Ok(())
}
