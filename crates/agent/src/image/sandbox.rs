//! The sandbox image: a pause program that is compiled into this binary, so no node needs a registry for it.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::archive::{Blob, digest};
use super::{Made, Target};
use crate::architecture;

/// Name of the built-in sandbox image on every node.
pub const SANDBOX_IMAGE: &str = "localhost/muster/pause:1";

const PAUSE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/pause"));

/// Builds the sandbox image; it has a few kilobytes.
pub fn sandbox_image() -> Made {
    let mut header = tar::Header::new_gnu();
    header.set_size(PAUSE.len() as u64);
    header.set_mode(0o755);
    let mut layer = tar::Builder::new(Vec::new());
    let written = layer.append_data(&mut header, "pause", PAUSE).and_then(|()| layer.into_inner());
    let layer = blob(written.expect("writing to memory does not fail"));
    let config = json!({
        "architecture": architecture(),
        "os": "linux",
        "config": {"Entrypoint": ["/pause"], "WorkingDir": "/"},
        "rootfs": {"type": "layers", "diff_ids": [layer.digest]},
    });
    made(SANDBOX_IMAGE, &config, vec![layer])
}

fn made(name: &str, config: &Value, layers: Vec<Blob>) -> Made {
    let config = blob(config.to_string().into_bytes());
    let manifest = super::archive::manifest(&config, &layers);
    let target = Target {
        media_type: super::archive::MANIFEST.to_owned(),
        digest: manifest.digest.clone(),
        size: manifest.size,
    };
    let blobs = layers.into_iter().chain([config, manifest]).collect();
    Made { name: name.to_owned(), target, blobs }
}

fn blob(content: Vec<u8>) -> Blob {
    Blob { digest: digest(&content), size: content.len() as u64, labels: HashMap::new(), content }
}
