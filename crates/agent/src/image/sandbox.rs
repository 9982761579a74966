//! The sandbox image: a pause program that is compiled into this binary, so no node needs a registry for it.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::archive::Blob;
use super::{BuiltImage, ImageDescriptor};
use crate::architecture;
use crate::digest::sha256_digest;

/// Default name of the built-in sandbox image. A containerd that is configured with another name gets the image under
/// that name.
pub const SANDBOX_IMAGE: &str = "localhost/muster/pause:1";

/// The pause program, which `build.rs` compiles.
const PAUSE_BINARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/pause"));

/// Builds the sandbox image, which has a size of a few kilobytes.
pub fn sandbox_image() -> BuiltImage {
    let mut header = tar::Header::new_gnu();
    header.set_size(PAUSE_BINARY.len() as u64);
    header.set_mode(0o755);
    let mut layer = tar::Builder::new(Vec::new());
    let written = layer.append_data(&mut header, "pause", PAUSE_BINARY).and_then(|()| layer.into_inner());
    let layer = blob_from_bytes(written.expect("writing to memory does not fail"));
    let config = json!({
        "architecture": architecture(),
        "os": "linux",
        "config": {"Entrypoint": ["/pause"], "WorkingDir": "/"},
        "rootfs": {"type": "layers", "diff_ids": [layer.digest]},
    });
    build_image(SANDBOX_IMAGE, &config, vec![layer])
}

/// Builds an image from its configuration and its layers.
fn build_image(name: &str, config: &Value, layers: Vec<Blob>) -> BuiltImage {
    let config = blob_from_bytes(config.to_string().into_bytes());
    let manifest = super::archive::build_manifest(&config, &layers);
    let target = ImageDescriptor {
        media_type: super::archive::MANIFEST_MEDIA_TYPE.to_owned(),
        digest: manifest.digest.clone(),
        size: manifest.size,
    };
    let blobs = layers.into_iter().chain([config, manifest]).collect();
    BuiltImage { name: name.to_owned(), target, blobs }
}

/// Builds a blob from its content, with its digest and size.
fn blob_from_bytes(content: Vec<u8>) -> Blob {
    Blob { digest: sha256_digest(&content), size: content.len() as u64, labels: HashMap::new(), content }
}
