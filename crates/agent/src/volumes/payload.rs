//! Collects the files of a ConfigMap, Secret, projected or downward API volume before they are written.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{DownwardAPIVolumeFile, KeyToPath, Pod, Volume, VolumeProjection};
use muster_api::resources::ResourceQuantities;
use muster_engine::kubelet::downward_api::{self, PodAddresses};
use serde_json::Value;

use super::VolumeError;
use crate::references::{DataKind, PodReferenceClient};

/// Maximum total size of a volume's files: the size of sixteen full ConfigMaps. The limit is needed because the agent
/// holds the files in its own memory.
const VOLUME_BYTES_MAX: usize = 16 << 20;

/// Maximum length of a file name that the kernel accepts, in bytes.
const NAME_BYTES_MAX: usize = 255;
/// Maximum length of a file's path in a volume, in bytes.
const PATH_BYTES_MAX: usize = 4096;

/// Default of a volume's `defaultMode`.
const DEFAULT_FILE_MODE: i32 = 0o644;

/// The files of one volume, by their paths relative to the volume.
#[derive(Debug, Default)]
pub(super) struct VolumePayload {
    pub(super) files: BTreeMap<String, VolumeFile>,
    /// Whether the files may be different at the next refresh.
    pub(super) may_change: bool,
    /// Total size in bytes of all files that were added, including those that a later file with the same path replaced.
    bytes: usize,
}

/// Content, mode and owner of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct VolumeFile {
    pub(super) data: Vec<u8>,
    pub(super) mode: u32,
    /// UID of the file's owner. `None` means root.
    pub(super) user: Option<u32>,
}

/// The pod whose volumes are set up, and the values that the downward API needs.
pub(super) struct PodContext<'a> {
    /// The pod as the API type.
    pub(super) pod: &'a Pod,
    /// The pod object as JSON.
    pub(super) pod_json: &'a Value,
    /// The current IP addresses of the pod and the node.
    pub(super) addresses: PodAddresses<'a>,
    /// Allocatable resources of the node.
    pub(super) allocatable: &'a ResourceQuantities,
}

impl VolumePayload {
    /// Collects the files of a volume. Returns `None` for a volume whose files the agent does not write, such as an
    /// emptyDir.
    pub(super) async fn collect_files(
        volume: &Volume,
        context: &PodContext<'_>,
        references: &PodReferenceClient,
    ) -> Result<Option<Self>, VolumeError> {
        let mut payload = Self::default();
        if let Some(it) = &volume.config_map {
            let source = (DataKind::ConfigMap, it.name.as_str());
            let (items, mode) = (it.items.as_deref(), it.default_mode);
            payload.add_data(source, items, it.optional, mode, context, references).await?;
        } else if let Some(it) = &volume.secret {
            let source = (DataKind::Secret, it.secret_name.as_deref().unwrap_or_default());
            let (items, mode) = (it.items.as_deref(), it.default_mode);
            payload.add_data(source, items, it.optional, mode, context, references).await?;
        } else if let Some(source) = &volume.downward_api {
            payload.add_downward_api(source.items.iter().flatten(), source.default_mode, context)?;
        } else if let Some(source) = &volume.projected {
            for part in source.sources.iter().flatten() {
                payload.add_projection(part, source.default_mode, context, references).await?;
            }
        } else {
            return Ok(None);
        }
        Ok(Some(payload))
    }

    /// Adds the files of one source of a projected volume. `mode` is the volume's `defaultMode`. A service account
    /// token gets mode 0600 instead if the pod has an fsGroup or its containers have a common user.
    async fn add_projection(
        &mut self,
        part: &VolumeProjection,
        mode: Option<i32>,
        context: &PodContext<'_>,
        references: &PodReferenceClient,
    ) -> Result<(), VolumeError> {
        if let Some(it) = &part.config_map {
            let source = (DataKind::ConfigMap, it.name.as_str());
            self.add_data(source, it.items.as_deref(), it.optional, mode, context, references).await
        } else if let Some(it) = &part.secret {
            let source = (DataKind::Secret, it.name.as_str());
            self.add_data(source, it.items.as_deref(), it.optional, mode, context, references).await
        } else if let Some(it) = &part.downward_api {
            self.add_downward_api(it.items.iter().flatten(), mode, context)
        } else if let Some(it) = &part.service_account_token {
            let audience = it.audience.as_deref().filter(|it| !it.is_empty());
            let token =
                references.service_account_token(context.pod, audience, it.expiration_seconds).await?;
            let (user, group) = (common_user(context.pod), fs_group(context.pod));
            // Only its user may read a token; a group gets access by ownership.
            let mode = if user.is_some() || group.is_some() { Some(0o600) } else { mode };
            self.may_change = true;
            self.add_file(&it.path, token.as_bytes().to_vec(), mode, user)
        } else {
            let kind = if part.cluster_trust_bundle.is_some() {
                "clusterTrustBundle"
            } else if part.pod_certificate.is_some() {
                "podCertificate"
            } else {
                "of an unknown kind"
            };
            Err(VolumeError::Unsupported(format!("a projected source {kind} is not supported by this node")))
        }
    }

    /// Adds the files of a ConfigMap or Secret. A missing optional object has no files. `mode` is the volume's
    /// `defaultMode`.
    async fn add_data(
        &mut self,
        (kind, name): (DataKind, &str),
        items: Option<&[KeyToPath]>,
        is_optional: Option<bool>,
        mode: Option<i32>,
        context: &PodContext<'_>,
        references: &PodReferenceClient,
    ) -> Result<(), VolumeError> {
        let is_optional = is_optional == Some(true);
        let Some(found) = references.data(kind, context.pod, name, is_optional).await? else {
            self.may_change = true;
            return Ok(());
        };
        self.may_change |= !found.is_immutable;
        let data = found.data.into_iter().chain(found.binary_data).collect();
        self.add_keys(kind.resource(), name, data, items, mode, is_optional)
    }

    /// Adds the keys of a ConfigMap or Secret as files. If `items` lists keys, only the listed keys are added,
    /// otherwise all keys. A listed key that does not exist is an error unless `is_optional` is true. `mode` is the
    /// volume's `defaultMode`.
    fn add_keys(
        &mut self,
        kind: &'static str,
        name: &str,
        mut data: BTreeMap<String, Vec<u8>>,
        items: Option<&[KeyToPath]>,
        mode: Option<i32>,
        is_optional: bool,
    ) -> Result<(), VolumeError> {
        let Some(items) = items.filter(|it| !it.is_empty()) else {
            for (key, bytes) in data {
                self.add_file(&key, bytes, mode, None)?;
            }
            return Ok(());
        };
        for (at, item) in items.iter().enumerate() {
            // The same key may be mapped to several paths; the last one takes the bytes.
            let is_used_again = items[at + 1..].iter().any(|it| it.key == item.key);
            let bytes = if is_used_again { data.get(&item.key).cloned() } else { data.remove(&item.key) };
            match bytes {
                Some(bytes) => self.add_file(&item.path, bytes, item.mode.or(mode), None)?,
                None if is_optional => {}
                None => {
                    return Err(VolumeError::MissingKey { kind, name: name.into(), key: item.key.clone() });
                }
            }
        }
        Ok(())
    }

    /// Adds the files of a downward API volume, or of a downward API source of a projected volume. `mode` is the
    /// volume's `defaultMode`.
    fn add_downward_api<'a>(
        &mut self,
        items: impl Iterator<Item = &'a DownwardAPIVolumeFile>,
        mode: Option<i32>,
        context: &PodContext<'_>,
    ) -> Result<(), VolumeError> {
        for item in items {
            let resolved = if let Some(it) = &item.field_ref {
                self.may_change = true;
                downward_api::field_value(context.pod_json, context.addresses, &it.field_path)
            } else if let Some(it) = &item.resource_field_ref {
                let container = it.container_name.as_deref().unwrap_or_default();
                let divisor = it.divisor.as_ref().map_or("", |it| it.0.as_str());
                downward_api::resource_value(
                    context.pod_json,
                    container,
                    &it.resource,
                    divisor,
                    context.allocatable,
                )
            } else {
                Ok(String::new())
            };
            self.add_file(&item.path, resolved?.into_bytes(), item.mode.or(mode), None)?;
        }
        Ok(())
    }

    /// Adds one file, and replaces an earlier file with the same path. Fails if its path is invalid, or if the files
    /// exceed [`VOLUME_BYTES_MAX`] in total.
    fn add_file(
        &mut self,
        path: &str,
        data: Vec<u8>,
        mode: Option<i32>,
        user: Option<u32>,
    ) -> Result<(), VolumeError> {
        let path = validate_file_path(path)?;
        self.bytes = self.bytes.saturating_add(data.len());
        if self.bytes > VOLUME_BYTES_MAX {
            return Err(VolumeError::TooLarge { bytes_max: VOLUME_BYTES_MAX });
        }
        let mode = u32::try_from(mode.unwrap_or(DEFAULT_FILE_MODE)).unwrap_or_default() & 0o777;
        self.files.insert(path, VolumeFile { data, mode, user });
        Ok(())
    }
}

/// Checks and normalizes the path of a file in a volume.
///
/// Rule: a file stays within its volume. Its path is relative, has no component `..`, and does not start with `..`,
/// which is reserved for the volume's own links. The lengths of the path and of its components are limited. Upstream:
/// `validatePath` of the atomic writer.
fn validate_file_path(path: &str) -> Result<String, VolumeError> {
    let refuse = |why| Err(VolumeError::Path { path: path.chars().take(NAME_BYTES_MAX).collect(), why });
    if path.is_empty() || path.contains('\0') {
        return refuse("must not be empty");
    }
    if path.starts_with('/') {
        return refuse("must be relative path");
    }
    if path.len() > PATH_BYTES_MAX {
        return refuse("must be less than or equal to 4096 characters");
    }
    let parts: Vec<&str> = path.split('/').filter(|it| !it.is_empty() && *it != ".").collect();
    if parts.contains(&"..") {
        return refuse("must not contain '..'");
    }
    if parts.iter().any(|it| it.len() > NAME_BYTES_MAX) {
        return refuse("filenames must be less than or equal to 255 characters");
    }
    match parts.first() {
        None => refuse("must not be empty"),
        Some(first) if first.starts_with("..") => refuse("must not start with '..'"),
        Some(_) => Ok(parts.join("/")),
    }
}

/// Returns the pod's fsGroup, or `None` if it is not set or is not a valid GID.
pub(super) fn fs_group(pod: &Pod) -> Option<u32> {
    let group = pod.spec.as_ref()?.security_context.as_ref()?.fs_group?;
    u32::try_from(group).ok()
}

/// Returns the `runAsUser` that all init and main containers of the pod have in common. A container without `runAsUser`
/// has the pod's `runAsUser`. Returns `None` if the containers have different users, or if one of them has none.
/// Upstream: `FsUserFrom`.
fn common_user(pod: &Pod) -> Option<u32> {
    let spec = pod.spec.as_ref()?;
    let of_pod = spec.security_context.as_ref().and_then(|it| it.run_as_user);
    let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let mut users =
        containers.map(|it| it.security_context.as_ref().and_then(|it| it.run_as_user).or(of_pod));
    let first = users.next()??;
    let is_common = users.all(|it| it == Some(first));
    u32::try_from(first).ok().filter(|_| is_common)
}
