use serde_json::{Value, json};

use super::image::pull_policy;
use super::{each, fill, fill_absent, forget, round_resources, with};
use crate::unstructured::str_at;

/// Default mode of files in a volume: `rw-r--r--`.
const FILE_MODE: i64 = 0o644;

/// Sets the defaults of a volume. Upstream: `SetDefaults_Volume` and those of the volume sources.
pub(super) fn volume(volume: &mut Value) {
    if volume.as_object().is_some_and(|it| it.iter().all(|(name, it)| name == "name" || it.is_null())) {
        volume["emptyDir"] = json!({});
    }
    with(volume, "image", |it| {
        let policy = pull_policy(str_at(it, "reference"));
        fill(it, "pullPolicy", policy);
    });
    // The empty type is stored explicitly: its absence would be a different template.
    with(volume, "hostPath", |it| fill_absent(it, "type", ""));
    for source in ["configMap", "secret", "downwardAPI", "projected"] {
        with(volume, source, |it| fill_absent(it, "defaultMode", FILE_MODE));
    }
    with(volume, "downwardAPI", downward);
    with(volume, "projected", |it| {
        each(it, "sources", |source| {
            forget(source, "clusterTrustBundle");
            forget(source, "podCertificate");
            with(source, "downwardAPI", downward);
            with(source, "serviceAccountToken", |it| fill_absent(it, "expirationSeconds", 3600));
        });
    });
    with(volume, "iscsi", |it| fill(it, "iscsiInterface", "default"));
    with(volume, "rbd", |it| {
        fill(it, "pool", "rbd");
        fill(it, "user", "admin");
        fill(it, "keyring", "/etc/ceph/keyring");
    });
    with(volume, "azureDisk", |it| {
        fill_absent(it, "cachingMode", "ReadWrite");
        fill_absent(it, "fsType", "ext4");
        fill_absent(it, "readOnly", false);
        fill_absent(it, "kind", "Shared");
    });
    with(volume, "scaleIO", |it| {
        fill(it, "storageMode", "ThinProvisioned");
        fill(it, "fsType", "xfs");
    });
    with(volume, "ephemeral.volumeClaimTemplate", |it| {
        fill_absent(it, "spec", json!({}));
        with(it, "spec", |spec| {
            fill_absent(spec, "volumeMode", "Filesystem");
            fill_absent(spec, "resources", json!({}));
            with(spec, "resources", |it| {
                round_resources(it, "limits");
                round_resources(it, "requests");
            });
        });
    });
}

/// Sets the API version of field references.
fn downward(source: &mut Value) {
    each(source, "items", |it| with(it, "fieldRef", |it| fill(it, "apiVersion", "v1")));
}
