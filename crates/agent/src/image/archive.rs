//! Image archives: OCI layouts and the output of `docker save`. An archive is read twice, first for its manifests
//! and configurations, then for its blobs. Only the small JSON files are held in memory.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io::{self, BufReader, Read, Seek as _};
use std::path::{Component, Path, PathBuf};

use flate2::read::MultiGzDecoder;
use serde_json::{Value, json};

use super::{ImageDescriptor, ImageError, open_file};
use crate::architecture;
use crate::digest::sha256_digest;

/// Media type of OCI image manifests.
pub(super) const MANIFEST_MEDIA_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";
/// Media type of OCI image configurations.
const CONFIG_MEDIA_TYPE: &str = "application/vnd.oci.image.config.v1+json";
/// Media type of uncompressed OCI layers.
const LAYER_MEDIA_TYPE: &str = "application/vnd.oci.image.layer.v1.tar";
/// Media types of image indexes, which list the manifests of several platforms.
const INDEX_MEDIA_TYPES: [&str; 2] =
    ["application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json"];

/// Annotations with the name of an image, in order of preference. The second one may contain only a part of the name,
/// such as the tag.
const NAME_ANNOTATIONS: [&str; 2] = ["io.containerd.image.name", "org.opencontainers.image.ref.name"];

/// Maximum size of a file that is read as JSON. A larger file is assumed to be a layer.
const JSON_FILE_BYTES_MAX: u64 = 4 << 20;
/// Maximum total size of the JSON files of an archive.
const JSON_TOTAL_BYTES_MAX: usize = 64 << 20;
/// Maximum number of files and links in an archive.
const FILES_MAX: usize = 100_000;

/// Maximum number of image indexes that are nested in each other below `index.json`.
const INDEX_DEPTH_MAX: usize = 3;

/// The images of an archive that can run on this machine, and the blobs that they need.
#[derive(Debug)]
pub(super) struct Archive {
    pub(super) path: PathBuf,
    pub(super) images: Vec<ArchiveImage>,
    /// The blobs of these images that are in the archive, that is, all except generated manifests, by file name.
    pub(super) blobs_by_file: HashMap<String, Blob>,
    /// Manifests that were generated for images of `docker save`, which have no OCI manifest.
    pub(super) generated_manifests: Vec<Blob>,
    /// Platforms of the images that cannot run on this machine.
    foreign_platforms: BTreeSet<String>,
}

/// An image of the archive: its names, and the descriptor of its manifest.
#[derive(Debug)]
pub(super) struct ArchiveImage {
    pub(super) names: Vec<String>,
    /// Descriptor of the image's manifest.
    pub(super) target: ImageDescriptor,
}

/// A blob: manifest, configuration or layer.
#[derive(Debug, Clone)]
pub(super) struct Blob {
    pub(super) digest: String,
    pub(super) size: u64,
    /// containerd labels of the blob. Labels that reference other blobs protect the referenced blobs from garbage
    /// collection.
    pub(super) labels: HashMap<String, String>,
    /// Content of a generated blob. Empty for a blob whose content is in the archive.
    pub(super) content: Vec<u8>,
}

impl Archive {
    /// Reads the manifests and configurations of an archive. Fails if no image of the archive can run on this machine.
    pub(super) fn open(path: &Path) -> Result<Self, ImageError> {
        let files = ArchiveFiles::read(path)?;
        let no_archive = |why: String| ImageError::NotAnArchive { path: path.to_owned(), why };
        let mut archive = Self {
            path: path.to_owned(),
            images: Vec::new(),
            blobs_by_file: HashMap::new(),
            generated_manifests: Vec::new(),
            foreign_platforms: BTreeSet::new(),
        };
        let read = match (files.json_files.get("index.json"), files.json_files.get("manifest.json")) {
            (Some(index), _) => archive.read_oci_layout(&files, index),
            (None, Some(manifest)) => archive.read_docker_archive(&files, manifest),
            (None, None) => Err("neither index.json nor manifest.json is in it".to_owned()),
        };
        read.map_err(no_archive)?;
        if archive.images.is_empty() {
            let platforms = Vec::from_iter(archive.foreign_platforms).join(", ");
            return Err(ImageError::WrongPlatform { path: archive.path, platforms });
        }
        Ok(archive)
    }

    /// Reads the images of an OCI layout from its `index.json`.
    fn read_oci_layout(&mut self, files: &ArchiveFiles, index: &[u8]) -> Result<(), String> {
        let index = parse_json("index.json", index)?;
        for descriptor in as_array(&index["manifests"]) {
            let annotations = &descriptor["annotations"];
            let name = NAME_ANNOTATIONS.iter().find_map(|it| annotations[it].as_str());
            if let Some(target) = self.resolve_manifest(files, descriptor, 0)? {
                self.images
                    .push(ArchiveImage { names: name.map(str::to_owned).into_iter().collect(), target });
            }
        }
        if self.images.is_empty() && self.foreign_platforms.is_empty() {
            return Err("index.json names no image".to_owned());
        }
        Ok(())
    }

    /// Whether an image is for the platform of this machine. Records every other platform, except `unknown`, in
    /// `foreign_platforms`. `platform` is the platform object of a descriptor, or an image configuration.
    ///
    /// Rule: an image is imported if its platform is this machine's, or if it names no platform. Pulls from a registry
    /// follow the same rule.
    fn matches_platform(&mut self, platform: &Value) -> bool {
        let (Some(system), Some(processor)) = (platform["os"].as_str(), platform["architecture"].as_str())
        else {
            return true;
        };
        let is_ours = (system, processor) == ("linux", architecture());
        // Attestations, which docker adds to an index, have the platform `unknown`.
        if !is_ours && system != "unknown" {
            self.foreign_platforms.insert(format!("{system}/{processor}"));
        }
        is_ours
    }

    /// Follows a descriptor to the manifest for this machine's platform, and adds the blobs of that image to
    /// `blobs_by_file`. Returns `None` if there is no such manifest, or if it is nested in more than
    /// [`INDEX_DEPTH_MAX`] image indexes. `depth` is the number of indexes that were followed to the descriptor.
    fn resolve_manifest(
        &mut self,
        files: &ArchiveFiles,
        descriptor: &Value,
        depth: usize,
    ) -> Result<Option<ImageDescriptor>, String> {
        if !self.matches_platform(&descriptor["platform"]) || INDEX_DEPTH_MAX < depth {
            return Ok(None);
        }
        let media_type = as_str(&descriptor["mediaType"]);
        let (blob, file) = files.find_blob(descriptor)?;
        let Some(content) = files.json_files.get(&file) else { return Err(format!("{file} is too large")) };
        let content = parse_json(&file, content)?;
        if INDEX_MEDIA_TYPES.contains(&media_type) {
            for below in as_array(&content["manifests"]) {
                if files.find_blob(below).is_ok()
                    && let Some(target) = self.resolve_manifest(files, below, depth + 1)?
                {
                    return Ok(Some(target));
                }
            }
            return Ok(None);
        }
        let (config, config_file) = files.find_blob(&content["config"])?;
        let Some(text) = files.json_files.get(&config_file) else {
            return Err(format!("{config_file} is too large"));
        };
        let image_config = parse_json(&config_file, text)?;
        if !self.matches_platform(&image_config) {
            return Ok(None);
        }
        let diff_ids = image_config["rootfs"]["diff_ids"].clone();
        let mut layers = Vec::new();
        for (number, layer) in as_array(&content["layers"]).iter().enumerate() {
            let (mut layer, file) = files.find_blob(layer)?;
            layer.labels = uncompressed_label(diff_ids[number].as_str());
            layers.push(layer.clone());
            self.blobs_by_file.insert(file, layer);
        }
        let target = ImageDescriptor {
            media_type: media_type.to_owned(),
            digest: blob.digest.clone(),
            size: blob.size,
        };
        self.blobs_by_file.insert(file, Blob { labels: gc_reference_labels(&config, &layers), ..blob });
        self.blobs_by_file.insert(config_file, config);
        Ok(Some(target))
    }

    /// Reads the images of the older `docker save` format from its `manifest.json`.
    fn read_docker_archive(&mut self, files: &ArchiveFiles, manifest: &[u8]) -> Result<(), String> {
        for image in as_array(&parse_json("manifest.json", manifest)?) {
            let names =
                as_array(&image["RepoTags"]).iter().filter_map(|it| Some(it.as_str()?.to_owned())).collect();
            let config_file = files.resolve_link(as_str(&image["Config"]))?;
            let Some(content) = files.json_files.get(&config_file) else {
                return Err(format!("{config_file} is too large"));
            };
            let config = Blob {
                digest: sha256_digest(content),
                size: content.len() as u64,
                labels: HashMap::new(),
                content: Vec::new(),
            };
            let image_config = parse_json(&config_file, content)?;
            if !self.matches_platform(&image_config) {
                continue;
            }
            let diff_ids = image_config["rootfs"]["diff_ids"].clone();
            let mut layers = Vec::new();
            for (number, layer) in as_array(&image["Layers"]).iter().enumerate() {
                let file = files.resolve_link(as_str(layer))?;
                // Layers are not compressed in this format, so their digests are the diff IDs of the
                // configuration.
                let Some(diff_id) = diff_ids[number].as_str() else {
                    return Err(format!("{config_file} does not name the layer {file}"));
                };
                let size = files.sizes.get(&file).copied().unwrap_or_default();
                let labels = uncompressed_label(Some(diff_id));
                let layer = Blob { digest: diff_id.to_owned(), size, labels, content: Vec::new() };
                layers.push(layer.clone());
                self.blobs_by_file.insert(file, layer);
            }
            let manifest = self::build_manifest(&config, &layers);
            let (digest, size) = (manifest.digest.clone(), manifest.size);
            self.images.push(ArchiveImage {
                names,
                target: ImageDescriptor { media_type: MANIFEST_MEDIA_TYPE.to_owned(), digest, size },
            });
            self.blobs_by_file.insert(config_file, config);
            self.generated_manifests.push(manifest);
        }
        if self.images.is_empty() && self.foreign_platforms.is_empty() {
            return Err("manifest.json names no image".to_owned());
        }
        Ok(())
    }
}

/// The files of an archive: sizes, links, and the content of JSON files.
#[derive(Default)]
struct ArchiveFiles {
    /// Size of each file, by name.
    sizes: HashMap<String, u64>,
    /// Content of each small file that may be JSON, by name.
    json_files: HashMap<String, Vec<u8>>,
    /// Target of each link, by name.
    links: HashMap<String, String>,
}

impl ArchiveFiles {
    /// Reads the names and sizes of all files, the links, and the content of small JSON files.
    fn read(path: &Path) -> Result<Self, ImageError> {
        let mut files = Self::default();
        let mut all = 0;
        let visited = visit_entries(path, |entry| {
            let ArchiveEntry { name, size, link, content } = entry;
            if FILES_MAX <= files.sizes.len() + files.links.len() {
                return Err(io::Error::other(format!("it has more than {FILES_MAX} files")));
            }
            if let Some(link) = link {
                files.links.insert(name, link);
                return Ok(());
            }
            files.sizes.insert(name.clone(), size);
            let mut text = [0];
            if JSON_FILE_BYTES_MAX < size || content.read(&mut text)? == 0 || !matches!(text[0], b'{' | b'[')
            {
                return Ok(());
            }
            let mut text = text.to_vec();
            content.read_to_end(&mut text)?;
            all += text.len();
            if JSON_TOTAL_BYTES_MAX < all {
                return Err(io::Error::other("its JSON files are too large"));
            }
            files.json_files.insert(name, text);
            Ok(())
        });
        match visited {
            Ok(()) => Ok(files),
            Err(source) if source.raw_os_error().is_some() => {
                Err(ImageError::File { path: path.to_owned(), source })
            }
            Err(error) => {
                Err(ImageError::NotAnArchive { path: path.to_owned(), why: describe_read_error(&error) })
            }
        }
    }

    /// Finds the blob that a descriptor references. Returns the blob and the name of its file.
    fn find_blob(&self, descriptor: &Value) -> Result<(Blob, String), String> {
        let digest = as_str(&descriptor["digest"]);
        let is_digest = digest
            .strip_prefix("sha256:")
            .filter(|it| it.len() == 64 && it.bytes().all(|it| it.is_ascii_hexdigit()));
        let Some(hex) = is_digest else { return Err(format!("{digest:?} is not a sha256 digest")) };
        let file = self.resolve_link(&format!("blobs/sha256/{hex}"))?;
        let size = self.sizes.get(&file).copied().unwrap_or_default();
        Ok((Blob { digest: digest.to_owned(), size, labels: HashMap::new(), content: Vec::new() }, file))
    }

    /// Follows links from the file `name`, and returns the name of the file that has the content.
    fn resolve_link(&self, name: &str) -> Result<String, String> {
        let mut visited = HashSet::new();
        let mut at = normalize_path(Path::new(name));
        while let Some(link) = self.links.get(&at) {
            if !visited.insert(at.clone()) {
                return Err(format!("{name} is a cyclic link"));
            }
            let beside = Path::new(&at).parent().unwrap_or(Path::new(""));
            at = normalize_path(&beside.join(link));
        }
        if self.sizes.contains_key(&at) { Ok(at) } else { Err(format!("{name} is missing from it")) }
    }
}

/// Returns a message for the user that explains why an archive cannot be read. Most often the archive is truncated,
/// because a copy was interrupted or the disk was full.
fn describe_read_error(error: &io::Error) -> String {
    let message = error.to_string();
    let is_cut = error.kind() == io::ErrorKind::UnexpectedEof
        || ["unexpected EOF", "incomplete deflate stream"].iter().any(|it| message.contains(it));
    if is_cut { format!("the archive is truncated ({message}): copy it again") } else { message }
}

/// A file or link of a tar archive.
struct ArchiveEntry<'a> {
    name: String,
    size: u64,
    link: Option<String>,
    content: &'a mut dyn Read,
}

/// Calls `visit` for each file of the archive, in archive order.
pub(super) fn visit_files(
    path: &Path,
    mut visit: impl FnMut(&str, &mut dyn Read) -> io::Result<()>,
) -> io::Result<()> {
    visit_entries(path, |entry| if entry.link.is_some() { Ok(()) } else { visit(&entry.name, entry.content) })
}

/// Calls `visit` for each file and link of the archive, in archive order.
fn visit_entries(path: &Path, mut visit: impl FnMut(ArchiveEntry<'_>) -> io::Result<()>) -> io::Result<()> {
    let mut file = open_file(path).map_err(|it| match it {
        ImageError::File { source, .. } => source,
        other => io::Error::other(other.to_string()),
    })?;
    let mut magic = [0; 2];
    let is_gzip = file.read(&mut magic)? == 2 && magic == [0x1f, 0x8b];
    file.rewind()?;
    let file = BufReader::with_capacity(64 << 10, file);
    let content: Box<dyn Read> = if is_gzip { Box::new(MultiGzDecoder::new(file)) } else { Box::new(file) };
    let mut archive = tar::Archive::new(content);
    for entry in archive.entries()? {
        let mut entry = entry?;
        let kind = entry.header().entry_type();
        let name = normalize_path(&entry.path()?);
        let size = entry.size();
        let link = match entry.link_name()? {
            Some(link) if kind.is_symlink() => Some(link.display().to_string()),
            // The target of a hard link is relative to the root of the archive.
            Some(link) if kind.is_hard_link() => Some(format!("/{}", link.display())),
            _ if kind.is_file() => None,
            _ => continue,
        };
        visit(ArchiveEntry { name, size, link, content: &mut entry })?;
    }
    Ok(())
}

/// Returns the path relative to the root of the archive, with `.` and `..` resolved.
fn normalize_path(path: &Path) -> String {
    let mut parts: Vec<String> = Vec::new();
    for part in path.components() {
        match part {
            Component::Normal(it) => parts.push(it.to_string_lossy().into_owned()),
            Component::ParentDir => drop(parts.pop()),
            Component::RootDir | Component::Prefix(_) => parts.clear(),
            Component::CurDir => {}
        }
    }
    parts.join("/")
}

/// Builds the OCI manifest of an image with uncompressed layers, as a blob.
pub(super) fn build_manifest(config: &Blob, layers: &[Blob]) -> Blob {
    let describe = |media_type: &str, blob: &Blob| json!({"mediaType": media_type, "digest": blob.digest, "size": blob.size});
    let content = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST_MEDIA_TYPE,
        "config": describe(CONFIG_MEDIA_TYPE, config),
        "layers": layers.iter().map(|it| describe(LAYER_MEDIA_TYPE, it)).collect::<Vec<_>>(),
    });
    let content = content.to_string().into_bytes();
    let labels = gc_reference_labels(config, layers);
    Blob { digest: sha256_digest(&content), size: content.len() as u64, labels, content }
}

/// Returns the containerd labels for a manifest's blob. They reference the other blobs of the image, so that containerd
/// does not garbage-collect these blobs.
fn gc_reference_labels(config: &Blob, layers: &[Blob]) -> HashMap<String, String> {
    let layers = layers.iter().enumerate();
    let layers =
        layers.map(|(number, it)| (format!("containerd.io/gc.ref.content.l.{number}"), it.digest.clone()));
    let config = ("containerd.io/gc.ref.content.config".to_owned(), config.digest.clone());
    layers.chain([config]).collect()
}

/// Returns the labels of a layer's blob in containerd. The only label holds `diff_id`, the digest of the layer's
/// uncompressed content, which containerd needs. Returns no label if `diff_id` is `None`.
fn uncompressed_label(diff_id: Option<&str>) -> HashMap<String, String> {
    diff_id.map(|it| ("containerd.io/uncompressed".to_owned(), it.to_owned())).into_iter().collect()
}

/// Parses the content of a file as JSON. The error names the file.
fn parse_json(file: &str, text: &[u8]) -> Result<Value, String> {
    serde_json::from_slice(text).map_err(|it| format!("cannot parse {file}: {it}"))
}

/// Returns the elements of a JSON array, or an empty slice for any other value.
fn as_array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Returns the text of a JSON string, or an empty string for any other value.
fn as_str(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests;
