//! Defaults of the volumes of a pod.

use serde_json::{Map, Value};

use super::{for_each_object, remove_field, round_to_millis, set_if_absent, set_if_zero, with_object};
use crate::image_reference::default_pull_policy;

/// Default mode of the files in a volume: `rw-r--r--`.
const DEFAULT_FILE_MODE: i64 = 0o644;

/// Sets the defaults of a volume. Upstream: `SetDefaults_Volume` and the defaults of the volume sources.
pub(super) fn set_volume_defaults(volume: &mut Value) {
    if volume.as_object().is_some_and(|it| it.iter().all(|(name, it)| name == "name" || it.is_null())) {
        volume["emptyDir"] = Map::new().into();
    }
    with_object(volume, "image", |it| {
        let policy = default_pull_policy(it["reference"].as_str().unwrap_or_default());
        set_if_zero(it, "pullPolicy", policy);
    });
    // The empty type is stored explicitly: its absence would be a different template.
    with_object(volume, "hostPath", |it| set_if_absent(it, "type", ""));
    for source in ["configMap", "secret", "downwardAPI", "projected"] {
        with_object(volume, source, |it| set_if_absent(it, "defaultMode", DEFAULT_FILE_MODE));
    }
    with_object(volume, "downwardAPI", set_downward_api_defaults);
    with_object(volume, "projected", |it| {
        for_each_object(it, "sources", |source| {
            remove_field(source, "clusterTrustBundle");
            remove_field(source, "podCertificate");
            with_object(source, "downwardAPI", set_downward_api_defaults);
            with_object(source, "serviceAccountToken", |it| set_if_absent(it, "expirationSeconds", 3600));
        });
    });
    with_object(volume, "iscsi", |it| set_if_zero(it, "iscsiInterface", "default"));
    with_object(volume, "rbd", |it| {
        set_if_zero(it, "pool", "rbd");
        set_if_zero(it, "user", "admin");
        set_if_zero(it, "keyring", "/etc/ceph/keyring");
    });
    with_object(volume, "azureDisk", |it| {
        set_if_absent(it, "cachingMode", "ReadWrite");
        set_if_absent(it, "fsType", "ext4");
        set_if_absent(it, "readOnly", false);
        set_if_absent(it, "kind", "Shared");
    });
    with_object(volume, "scaleIO", |it| {
        set_if_zero(it, "storageMode", "ThinProvisioned");
        set_if_zero(it, "fsType", "xfs");
    });
    with_object(volume, "ephemeral.volumeClaimTemplate", |it| {
        set_if_absent(it, "spec", Map::new());
        with_object(it, "spec", |spec| {
            set_if_absent(spec, "volumeMode", "Filesystem");
            set_if_absent(spec, "resources", Map::new());
            with_object(spec, "resources", |it| {
                round_to_millis(it, "limits");
                round_to_millis(it, "requests");
            });
        });
    });
}

/// Sets `apiVersion` of the field references in a downward API volume or in a downward API source of a projected
/// volume.
fn set_downward_api_defaults(source: &mut Value) {
    for_each_object(source, "items", |it| {
        with_object(it, "fieldRef", |it| set_if_zero(it, "apiVersion", "v1"))
    });
}
