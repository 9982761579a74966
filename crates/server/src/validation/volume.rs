//! Validation of volumes and volume sources.

use serde_json::Value;

use super::file_path::{check_local_path, check_no_parent_references, check_relative_path};
use super::{check_required, downward_api, has_field};
use crate::small_map::{SmallMap, SmallSet};
use crate::unstructured::{is_set, list_at, str_at};
use crate::validation::field_error::{ErrorPath, FieldErrors};
use crate::validation::{labels, metadata, names, resources};
use muster_api::quantity::Quantity;

/// A function that checks one type of volume source.
type VolumeSourceCheck = fn(&Value, &ErrorPath, &mut FieldErrors);

/// All types of volume sources: the field of the volume, the name of the field in upstream's messages, and the check.
/// The order is upstream's. If a volume has several sources, only the first in this order is checked.
const VOLUME_SOURCES: &[(&str, &str, VolumeSourceCheck)] = &[
    ("emptyDir", "emptyDir", check_empty_dir),
    ("hostPath", "hostPath", check_host_path),
    ("gitRepo", "gitRepo", check_git_repo),
    ("gcePersistentDisk", "persistentDisk", |it, at, out| {
        check_required(it, &["pdName"], at, out);
        check_partition(it, at, out);
    }),
    ("awsElasticBlockStore", "awsElasticBlockStore", |it, at, out| {
        check_required(it, &["volumeID"], at, out);
        check_partition(it, at, out);
    }),
    ("secret", "secret", |it, at, out| {
        check_required(it, &["secretName"], at, out);
        check_key_to_path_items(it, at, out);
    }),
    ("nfs", "nfs", check_nfs),
    ("iscsi", "iscsi", check_iscsi),
    ("glusterfs", "glusterfs", |it, at, out| check_required(it, &["endpoints", "path"], at, out)),
    ("flocker", "flocker", check_flocker),
    ("persistentVolumeClaim", "persistentVolumeClaim", |it, at, out| {
        check_required(it, &["claimName"], at, out)
    }),
    ("rbd", "rbd", |it, at, out| check_required(it, &["monitors", "image"], at, out)),
    ("cinder", "cinder", |it, at, out| {
        check_required(it, &["volumeID"], at, out);
        check_secret_ref(it, "secretRef", at, out);
    }),
    ("cephfs", "cephfs", |it, at, out| check_required(it, &["monitors"], at, out)),
    ("quobyte", "quobyte", check_quobyte),
    ("downwardAPI", "downwardAPI", check_downward_api),
    ("fc", "fc", check_fibre_channel),
    ("flexVolume", "flexVolume", check_flex_volume),
    ("configMap", "configMap", |it, at, out| {
        check_required(it, &["name"], at, out);
        check_key_to_path_items(it, at, out);
    }),
    ("azureFile", "azureFile", |it, at, out| check_required(it, &["secretName", "shareName"], at, out)),
    ("vsphereVolume", "vsphereVolume", |it, at, out| check_required(it, &["volumePath"], at, out)),
    ("photonPersistentDisk", "photonPersistentDisk", |it, at, out| check_required(it, &["pdID"], at, out)),
    ("portworxVolume", "portworxVolume", |it, at, out| check_required(it, &["volumeID"], at, out)),
    ("azureDisk", "azureDisk", check_azure_disk),
    ("storageos", "storageos", check_storage_os),
    ("projected", "projected", check_projected),
    ("scaleIO", "scaleIO", |it, at, out| check_required(it, &["gateway", "system", "volumeName"], at, out)),
    ("csi", "csi", check_csi),
    ("ephemeral", "ephemeral", check_ephemeral),
    ("image", "image", |it, at, out| {
        super::container::check_pull_policy(&it["pullPolicy"], &at.field("pullPolicy"), out)
    }),
];

/// Checks the volumes of a pod spec. Returns the valid volumes, which containers may mount. `pod` is the name of the
/// pod, or `None` for a pod template. The name is part of the names of the claims of ephemeral volumes.
pub(super) fn check_volumes<'a>(
    volumes: &'a [Value],
    pod: Option<&str>,
    at: &ErrorPath,
    out: &mut FieldErrors,
) -> SmallMap<&'a str, &'a Value> {
    let mut valid = SmallMap::default();
    let claim_name = |it: &Value| pod.map(|pod| format!("{pod}-{}", str_at(it, "name")));
    let ephemeral_claims: SmallSet<String> =
        volumes.iter().filter(|it| has_field(it, "ephemeral")).filter_map(claim_name).collect();
    for (index, volume) in volumes.iter().enumerate() {
        let at = at.index(index);
        let (name, before) = (str_at(volume, "name"), out.len());
        check_volume_source(volume, &at, out);
        if let Some(claim) = claim_name(volume).filter(|_| has_field(volume, "ephemeral") && !name.is_empty())
        {
            for why in names::dns_subdomain_name_errors(&claim, false) {
                out.invalid(&at.field("name"), name, &format!("PVC name {claim:?}: {why}"));
            }
        }
        let first = VOLUME_SOURCES.iter().find(|(field, ..)| has_field(volume, field));
        if first.is_some_and(|(field, ..)| *field == "image") && pod.is_some() {
            check_required(&volume["image"], &["reference"], &at.field("image"), out);
        }
        super::check_required_name(name, names::dns_label_errors, &at.field("name"), out);
        if valid.contains(name) {
            out.duplicate(&at.field("name"), name);
        }
        if out.len() == before {
            valid.insert_new(name, volume);
        }
        let claim = str_at(volume, "persistentVolumeClaim.claimName");
        if ephemeral_claims.contains(claim) {
            let why = "must not reference a PVC that gets created for an ephemeral volume";
            out.invalid(&at.field("persistentVolumeClaim.claimName"), claim, why);
        }
    }
    valid
}

/// Checks that a volume has exactly one source, and checks that source.
fn check_volume_source(volume: &Value, at: &ErrorPath, out: &mut FieldErrors) {
    let mut found = false;
    for (field, name_in_messages, check) in VOLUME_SOURCES {
        let source = &volume[field];
        if source.is_null() {
            continue;
        }
        if found {
            // Upstream misspells two names in this message only.
            let field = match *field {
                "cephfs" => "cephFS",
                "downwardAPI" => "downwarAPI",
                other => other,
            };
            out.forbidden(&at.field(field), "may not specify more than 1 volume type");
        } else {
            check(source, &at.field(name_in_messages), out);
        }
        found = true;
    }
    if !found {
        out.required(at, "must specify a volume type");
    }
    let portal = str_at(volume, "iscsi.targetPortal");
    let name = str_at(volume, "name");
    if has_field(&volume["iscsi"], "initiatorName") && 64 < name.len() + 1 + portal.len() {
        let why = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if \
                   iscsi.initiatorName is specified.";
        out.invalid(&at.field("name"), name, why);
    }
}

fn check_empty_dir(source: &Value, at: &ErrorPath, out: &mut FieldErrors) {
    if Quantity::from_json(&source["sizeLimit"]).is_negative() {
        out.forbidden(&at.field("sizeLimit"), "SizeLimit field must be a valid resource quantity");
    }
}

/// Supported types of a `hostPath` volume. The empty string is the default type.
pub(crate) const HOST_PATH_TYPES: &[&str] =
    &["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];

fn check_host_path(source: &Value, at: &ErrorPath, out: &mut FieldErrors) {
    let path = str_at(source, "path");
    if path.is_empty() {
        return out.required(&at.field("path"), "");
    }
    check_no_parent_references(path, &at.field("path"), out);
    super::check_choice(&source["type"], HOST_PATH_TYPES, &at.field("type"), out);
}

fn check_git_repo(source: &Value, at: &ErrorPath, out: &mut FieldErrors) {
    check_required(source, &["repository"], at, out);
    check_relative_path(str_at(source, "directory"), &at.field("directory"), out);
}

fn check_nfs(source: &Value, at: &ErrorPath, out: &mut FieldErrors) {
    check_required(source, &["server", "path"], at, out);
    let path = str_at(source, "path");
    if !path.starts_with('/') {
        out.invalid(&at.field("path"), path, "must be an absolute path");
    }
}

fn check_iscsi(source: &Value, at: &ErrorPath, out: &mut FieldErrors) {
    check_required(source, &["targetPortal", "iqn"], at, out);
    let iqn = str_at(source, "iqn");
    if !iqn.is_empty() {
        check_iscsi_name(iqn, &at.field("iqn"), out);
    }
    let lun = source["lun"].as_i64().unwrap_or(0);
    for why in names::range_errors(lun, 0, 255) {
        out.invalid(&at.field("lun"), lun, &why);
    }
    let needs_secret = source["chapAuthDiscovery"] == true || source["chapAuthSession"] == true;
    if needs_secret && source["secretRef"].is_null() {
        out.required(&at.field("secretRef"), "");
    }
    if let Some(initiator) = source["initiatorName"].as_str() {
        check_iscsi_name(initiator, &at.field("initiatorname"), out);
    }
}

/// Checks an iSCSI name, which starts with `iqn`, `eui` or `naa`.
fn check_iscsi_name(name: &str, at: &ErrorPath, out: &mut FieldErrors) {
    let is_valid = match name.get(..3) {
        Some("iqn") => is_iqn(name),
        Some("eui") => name.len() == 20 && name.bytes().skip(4).all(|it| it.is_ascii_alphanumeric()),
        Some("naa") => name.len() == 36 && name.bytes().skip(4).all(|it| it.is_ascii_alphanumeric()),
        _ => return out.invalid(at, name, "must be valid format starting with iqn, eui, or naa"),
    };
    if !is_valid {
        out.invalid(at, name, "must be valid format");
    }
}

/// Whether the name is an iSCSI qualified name such as `iqn.2001-04.com.example:storage`.
fn is_iqn(name: &str) -> bool {
    let digits = |it: &str, count| it.len() == count && it.bytes().all(|it| it.is_ascii_digit());
    let Some((date, rest)) = name.strip_prefix("iqn.").and_then(|it| it.split_once('.')) else {
        return false;
    };
    let Some((authority, unique)) = rest.split_once(':') else { return false };
    let is_dated = date.split_once('-').is_some_and(|(year, month)| digits(year, 4) && digits(month, 2));
    let is_authority = |it: char| it.is_ascii_alphanumeric() || it == '-' || it == '.';
    let is_unique = |it: char| !",;*&$|".contains(it) && !it.is_whitespace();
    is_dated
        && !authority.is_empty()
        && authority.chars().all(is_authority)
        && !unique.is_empty()
        && unique.chars().all(is_unique)
}

fn check_flocker(source: &Value, at: &ErrorPath, out: &mut FieldErrors) {
    let name = str_at(source, "datasetName");
    match (name.is_empty(), str_at(source, "datasetUUID").is_empty()) {
        (true, true) => out.required(at, "one of datasetName and datasetUUID is required"),
        (false, false) => {
            out.invalid(at, "resource", "datasetName and datasetUUID can not be specified simultaneously");
        }
        _ => {}
    }
    if name.contains('/') {
        out.invalid(&at.field("datasetName"), name, "must not contain '/'");
    }
}

fn check_quobyte(source: &Value, at: &ErrorPath, out: &mut FieldErrors) {
    /// Upstream's message for a malformed Quobyte registry.
    const REGISTRY_FORMAT_MESSAGE: &str = "must be a host:port pair or multiple pairs separated by commas";
    let registry = str_at(source, "registry");
    if registry.is_empty() {
        out.required(&at.field("registry"), REGISTRY_FORMAT_MESSAGE);
    } else if 65 <= str_at(source, "tenant").len() {
        out.required(&at.field("tenant"), "must be a UUID and may not exceed a length of 64 characters");
    } else {
        for _ in registry.split(',').filter(|it| !it.contains(':')) {
            out.invalid(&at.field("registry"), registry, REGISTRY_FORMAT_MESSAGE);
        }
    }
    check_required(source, &["volume"], at, out);
}

fn check_downward_api(source: &Value, at: &ErrorPath, out: &mut FieldErrors) {
    check_file_mode(&source["defaultMode"], &at.field("defaultMode"), out);
    for file in list_at(source, "items") {
        check_downward_api_file(file, at, out);
    }
}

/// Checks one file of a `downwardAPI` volume or of a `downwardAPI` source in a projected volume.
fn check_downward_api_file(file: &Value, at: &ErrorPath, out: &mut FieldErrors) {
    check_required(file, &["path"], at, out);
    check_local_path(str_at(file, "path"), &at.field("path"), out);
    if has_field(file, "fieldRef") {
        downward_api::check_field_ref(
            &file["fieldRef"],
            downward_api::VOLUME_FIELDS,
            &at.field("fieldRef"),
            out,
        );
        if has_field(file, "resourceFieldRef") {
            out.invalid(at, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously");
        }
    } else if has_field(file, "resourceFieldRef") {
        downward_api::check_resource_field_ref(
            &file["resourceFieldRef"],
            true,
            &at.field("resourceFieldRef"),
            out,
        );
    } else {
        out.required(at, "one of fieldRef and resourceFieldRef is required");
    }
    check_file_mode(&file["mode"], &at.field("mode"), out);
}

/// Checks a volume source `fc` (Fibre Channel).
fn check_fibre_channel(source: &Value, at: &ErrorPath, out: &mut FieldErrors) {
    let (targets, wwids) = (&source["targetWWNs"], &source["wwids"]);
    if !is_set(targets) && !is_set(wwids) {
        out.required(&at.field("targetWWNs"), "must specify either targetWWNs or wwids, but not both");
    }
    if is_set(targets) && is_set(wwids) {
        out.invalid(
            &at.field("targetWWNs"),
            targets,
            "targetWWNs and wwids can not be specified simultaneously",
        );
    }
    if is_set(targets) {
        match source["lun"].as_i64() {
            None => out.required(&at.field("lun"), "lun is required if targetWWNs is specified"),
            Some(lun) => {
                for why in names::range_errors(lun, 0, 255) {
                    out.invalid(&at.field("lun"), lun, &why);
                }
            }
        }
    }
}

fn check_flex_volume(source: &Value, at: &ErrorPath, out: &mut FieldErrors) {
    check_required(source, &["driver"], at, out);
    for key in source["options"].as_object().into_iter().flatten().map(|(key, _)| key) {
        let domain = format!(".{}", key.split('/').next().unwrap_or_default().to_lowercase());
        if domain.ends_with(".kubernetes.io") || domain.ends_with(".k8s.io") {
            let why = "kubernetes.io and k8s.io namespaces are reserved";
            out.invalid(&at.field("options").key(key), key, why);
        }
    }
}

fn check_azure_disk(source: &Value, at: &ErrorPath, out: &mut FieldErrors) {
    check_required(source, &["diskName", "diskURI"], at, out);
    super::check_choice(
        &source["cachingMode"],
        &["None", "ReadOnly", "ReadWrite"],
        &at.field("cachingMode"),
        out,
    );
    super::check_choice(&source["kind"], &["Dedicated", "Managed", "Shared"], &at.field("kind"), out);
    let (kind, uri) = (str_at(source, "kind"), str_at(source, "diskURI"));
    if kind == "Managed" && !uri.starts_with("/subscriptions/") {
        /// Upstream's format of the URI of a managed Azure disk, as the error shows it.
        const MANAGED_DISK_URI_FORMAT: &str =
            "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}";
        out.unsupported(&at.field("diskURI"), uri, &[MANAGED_DISK_URI_FORMAT]);
    }
    if has_field(source, "kind") && kind != "Managed" && !uri.starts_with("https://") {
        /// Upstream's format of the URI of an Azure disk in a blob, as the error shows it.
        const BLOB_DISK_URI_FORMAT: &str =
            "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd";
        out.unsupported(&at.field("diskURI"), uri, &[BLOB_DISK_URI_FORMAT]);
    }
}

fn check_storage_os(source: &Value, at: &ErrorPath, out: &mut FieldErrors) {
    super::check_required_name(
        str_at(source, "volumeName"),
        names::dns_label_errors,
        &at.field("volumeName"),
        out,
    );
    let namespace = str_at(source, "volumeNamespace");
    if !namespace.is_empty() {
        out.invalid_for_each(&at.field("volumeNamespace"), namespace, names::dns_label_errors(namespace));
    }
    check_secret_ref(source, "secretRef", at, out);
}

fn check_projected(source: &Value, at: &ErrorPath, out: &mut FieldErrors) {
    check_file_mode(&source["defaultMode"], &at.field("defaultMode"), out);
    let mut paths = SmallSet::default();
    for (index, source) in list_at(source, "sources").iter().enumerate() {
        let sources_at = at.field("sources");
        let source_at = sources_at.index(index);
        for name in ["secret", "configMap"] {
            let it = &source[name];
            if it.is_null() {
                continue;
            }
            let it_at = source_at.field(name);
            check_required(it, &["name"], &it_at, out);
            for (index, item) in list_at(it, "items").iter().enumerate() {
                check_key_to_path(item, &it_at.field("items").index(index), out);
                check_unique_path(&mut paths, str_at(item, "path"), str_at(it, "name"), at, out);
            }
        }
        if has_field(source, "downwardAPI") {
            for file in list_at(&source["downwardAPI"], "items") {
                check_downward_api_file(file, &source_at.field("downwardAPI"), out);
                let path = str_at(file, "path");
                check_unique_path(&mut paths, path, path, at, out);
            }
        }
        if has_field(source, "serviceAccountToken") {
            check_service_account_token(
                &source["serviceAccountToken"],
                &source_at.field("serviceAccountToken"),
                at,
                out,
            );
        }
        let kinds = ["secret", "configMap", "downwardAPI", "serviceAccountToken"];
        if 1 < kinds.iter().filter(|it| has_field(source, it)).count() {
            out.forbidden(&source_at, "may not specify more than 1 volume type per source");
        }
    }
}

/// Checks a projected service account token. `volume_at` is the path of the projected volume.
fn check_service_account_token(token: &Value, at: &ErrorPath, volume_at: &ErrorPath, out: &mut FieldErrors) {
    let seconds = token["expirationSeconds"].as_i64().unwrap_or(0);
    if seconds < 600 {
        let why = "may not specify a duration less than 10 minutes";
        out.invalid(&at.field("expirationSeconds"), seconds, why);
    }
    if 1 << 32 < seconds {
        let why = "may not specify a duration larger than 2^32 seconds";
        out.invalid(&at.field("expirationSeconds"), seconds, why);
    }
    let path = str_at(token, "path");
    if path.is_empty() {
        out.required(&volume_at.field("path"), "");
    } else {
        check_local_path(path, &volume_at.field("path"), out);
    }
}

/// Checks that a file path occurs only once in a projected volume. `seen` contains the paths of the files before it.
/// Adds the path to `seen`. `source` is the value that the error shows.
fn check_unique_path<'a>(
    seen: &mut SmallSet<&'a str>,
    path: &'a str,
    source: &str,
    at: &ErrorPath,
    out: &mut FieldErrors,
) {
    if path.is_empty() {
        return;
    }
    if !seen.insert(path) {
        out.invalid(at, source, "conflicting duplicate paths");
    }
}

fn check_csi(source: &Value, at: &ErrorPath, out: &mut FieldErrors) {
    let driver = str_at(source, "driver");
    if driver.is_empty() {
        out.required(&at.field("driver"), "");
    } else {
        if 63 < driver.len() {
            out.too_long(&at.field("driver"), 63);
        }
        out.invalid_for_each(
            &at.field("driver"),
            driver,
            names::dns_subdomain_errors(&driver.to_lowercase()),
        );
    }
    if has_field(source, "nodePublishSecretRef") {
        let name = str_at(source, "nodePublishSecretRef.name");
        if name.is_empty() {
            out.required(&at.field("nodePublishSecretRef.name"), "");
        } else {
            out.invalid_for_each(&at.field("name"), name, names::dns_subdomain_errors(name));
        }
    }
}

fn check_ephemeral(source: &Value, at: &ErrorPath, out: &mut FieldErrors) {
    let template = &source["volumeClaimTemplate"];
    if template.is_null() {
        return out.required(&at.field("volumeClaimTemplate"), "");
    }
    let at = at.field("volumeClaimTemplate");
    let (meta, meta_at) = (&template["metadata"], at.field("metadata"));
    metadata::check_annotations(&meta["annotations"], &meta_at.field("annotations"), out);
    labels::check_labels(&meta["labels"], &meta_at.field("labels"), out);
    for (name, value) in meta.as_object().into_iter().flatten() {
        if name != "labels" && name != "annotations" && is_set(value) {
            out.forbidden(&meta_at.field(name), "cannot be set");
        }
    }
    check_volume_claim(&template["spec"], &at.field("spec"), out);
}

/// Checks the spec of the PersistentVolumeClaim of an ephemeral volume.
fn check_volume_claim(spec: &Value, at: &ErrorPath, out: &mut FieldErrors) {
    /// Supported access modes of a PersistentVolumeClaim.
    const ACCESS_MODES: &[&str] = &["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
    let modes = list_at(spec, "accessModes");
    if modes.is_empty() {
        out.required(&at.field("accessModes"), "at least 1 access mode is required");
    }
    labels::check_selector(&spec["selector"], &at.field("selector"), out);
    for mode in modes {
        super::check_choice(mode, ACCESS_MODES, &at.field("accessModes"), out);
    }
    if 1 < modes.len() && modes.iter().any(|it| it == "ReadWriteOncePod") {
        out.forbidden(&at.field("accessModes"), "may not use ReadWriteOncePod with other access modes");
    }
    let storage = &spec["resources"]["requests"]["storage"];
    let (storage_at, amount) = (at.field("resources"), Quantity::from_json(storage));
    let storage_at = storage_at.key("storage");
    if storage.is_null() {
        out.required(&storage_at, "");
    } else if amount.is_zero() || amount.is_negative() {
        out.invalid(&storage_at, storage, "must be greater than zero");
    } else {
        resources::check_quantity("storage", storage, &storage_at, out);
    }
    for name in ["storageClassName", "volumeAttributesClassName"] {
        let class = str_at(spec, name);
        if !class.is_empty() {
            out.invalid_for_each(&at.field(name), class, names::dns_subdomain_errors(class));
        }
    }
    super::check_choice(&spec["volumeMode"], &["Block", "Filesystem"], &at.field("volumeMode"), out);
}

/// Checks `items` and `defaultMode` of a `configMap` or `secret` volume.
fn check_key_to_path_items(source: &Value, at: &ErrorPath, out: &mut FieldErrors) {
    check_file_mode(&source["defaultMode"], &at.field("defaultMode"), out);
    for (index, item) in list_at(source, "items").iter().enumerate() {
        check_key_to_path(item, &at.field("items").index(index), out);
    }
}

/// Checks one item of `items` in a ConfigMap or Secret volume: the key, and the path and mode of its file.
fn check_key_to_path(item: &Value, at: &ErrorPath, out: &mut FieldErrors) {
    check_required(item, &["key", "path"], at, out);
    check_local_path(str_at(item, "path"), &at.field("path"), out);
    check_file_mode(&item["mode"], &at.field("mode"), out);
}

/// Checks that a file mode is between 0 and 0777.
fn check_file_mode(mode: &Value, at: &ErrorPath, out: &mut FieldErrors) {
    if let Some(mode) = mode.as_i64().filter(|it| !(0..=0o777).contains(it)) {
        out.invalid(at, mode, "must be a number between 0 and 0777 (octal), both inclusive");
    }
}

/// Checks that the partition number of a disk volume is between 0 and 255. 0 stands for no partition number.
fn check_partition(source: &Value, at: &ErrorPath, out: &mut FieldErrors) {
    if let Some(partition) = source["partition"].as_i64().filter(|it| !(0..=255).contains(it)) {
        out.invalid(&at.field("partition"), partition, "must be between 1 and 255, inclusive");
    }
}

/// Checks the reference to a Secret in the field `name` of `source`. If the reference is present, it must name a
/// Secret.
fn check_secret_ref(source: &Value, name: &str, at: &ErrorPath, out: &mut FieldErrors) {
    if has_field(source, name) && str_at(&source[name], "name").is_empty() {
        out.required(&at.field(name).field("name"), "");
    }
}
