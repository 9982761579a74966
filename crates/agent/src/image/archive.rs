//! Archives of images: OCI layouts, and what `docker save` writes. An archive is read twice, and nothing of it but its small
//! descriptions is ever in memory: first for what is there, then for the content.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io::{self, BufReader, Read, Seek as _};
use std::path::{Component, Path, PathBuf};

use flate2::read::MultiGzDecoder;
use serde_json::{Value, json};

use super::{ImageError, Target, open};
use crate::architecture;

pub(super) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
const INDEXES: [&str; 2] =
    ["application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json"];

/// What archives call an image, the whole of it first.
const NAMES: [&str; 2] = ["io.containerd.image.name", "org.opencontainers.image.ref.name"];

/// Descriptions are kilobytes; what is larger is content. All of them together, and how many files there may be.
const SMALL_MAX: u64 = 4 << 20;
const SMALL_ALL_MAX: usize = 64 << 20;
const FILES_MAX: usize = 100_000;

/// An index in an index in an index is nobody's.
const DEPTH_MAX: usize = 3;

#[derive(Debug)]
pub(super) struct Archive {
    pub(super) path: PathBuf,
    pub(super) images: Vec<Found>,
    /// The content that the images are made of, by the file of the archive that has it.
    pub(super) wanted: HashMap<String, Blob>,
    /// What the archive does not have, because it describes its images in another way.
    pub(super) made: Vec<Blob>,
    /// What the images are for that cannot run here.
    foreign: BTreeSet<String>,
}

#[derive(Debug)]
pub(super) struct Found {
    pub(super) names: Vec<String>,
    pub(super) target: Target,
}

/// A piece of content.
#[derive(Debug, Clone)]
pub(super) struct Blob {
    pub(super) digest: String,
    pub(super) size: u64,
    /// What containerd is told of it: what else it needs, so that nothing of that is collected.
    pub(super) labels: HashMap<String, String>,
    /// Only of what was made in memory.
    pub(super) content: Vec<u8>,
}

impl Archive {
    pub(super) fn open(path: &Path) -> Result<Self, ImageError> {
        let files = Files::read(path)?;
        let no_archive = |why: String| ImageError::NoArchive { path: path.to_owned(), why };
        let mut archive = Self {
            path: path.to_owned(),
            images: Vec::new(),
            wanted: HashMap::new(),
            made: Vec::new(),
            foreign: BTreeSet::new(),
        };
        let read = match (files.small.get("index.json"), files.small.get("manifest.json")) {
            (Some(index), _) => archive.layout(&files, index),
            (None, Some(manifest)) => archive.docker(&files, manifest),
            (None, None) => Err("it has neither an index.json nor a manifest.json".to_owned()),
        };
        read.map_err(no_archive)?;
        if archive.images.is_empty() {
            let theirs = Vec::from_iter(archive.foreign).join(", ");
            return Err(ImageError::OtherMachine { path: archive.path, theirs });
        }
        Ok(archive)
    }

    /// An OCI layout.
    fn layout(&mut self, files: &Files, index: &[u8]) -> Result<(), String> {
        let index = parse("index.json", index)?;
        for descriptor in list(&index["manifests"]) {
            let annotations = &descriptor["annotations"];
            let name = NAMES.iter().find_map(|it| annotations[it].as_str());
            if let Some(target) = self.descend(files, descriptor, 0)? {
                self.images.push(Found { names: name.map(str::to_owned).into_iter().collect(), target });
            }
        }
        if self.images.is_empty() && self.foreign.is_empty() {
            return Err("its index.json names no image".to_owned());
        }
        Ok(())
    }

    /// Rule: an image is taken if it is for this machine's system and processor, or does not say what it is for; a registry's is not
    /// taken otherwise either. `platform` is what a descriptor or the image itself says.
    fn is_ours(&mut self, platform: &Value) -> bool {
        let (Some(system), Some(processor)) = (platform["os"].as_str(), platform["architecture"].as_str())
        else {
            return true;
        };
        let is_ours = (system, processor) == ("linux", architecture());
        // What docker adds to an image to say where it comes from is for nobody.
        if !is_ours && system != "unknown" {
            self.foreign.insert(format!("{system}/{processor}"));
        }
        is_ours
    }

    /// The manifest that a descriptor leads to on this machine, if any.
    fn descend(&mut self, files: &Files, descriptor: &Value, depth: usize) -> Result<Option<Target>, String> {
        if !self.is_ours(&descriptor["platform"]) || DEPTH_MAX < depth {
            return Ok(None);
        }
        let media_type = text(&descriptor["mediaType"]);
        let (blob, file) = files.blob(descriptor)?;
        let Some(content) = files.small.get(&file) else { return Err(format!("{file} is too large")) };
        let content = parse(&file, content)?;
        if INDEXES.contains(&media_type) {
            for below in list(&content["manifests"]) {
                if files.blob(below).is_ok()
                    && let Some(target) = self.descend(files, below, depth + 1)?
                {
                    return Ok(Some(target));
                }
            }
            return Ok(None);
        }
        let (config, config_file) = files.blob(&content["config"])?;
        let Some(text) = files.small.get(&config_file) else {
            return Err(format!("{config_file} is too large"));
        };
        let says = parse(&config_file, text)?;
        if !self.is_ours(&says) {
            return Ok(None);
        }
        let diff_ids = says["rootfs"]["diff_ids"].clone();
        let mut layers = Vec::new();
        for (number, layer) in list(&content["layers"]).iter().enumerate() {
            let (mut layer, file) = files.blob(layer)?;
            layer.labels = uncompressed(diff_ids[number].as_str());
            layers.push(layer.clone());
            self.wanted.insert(file, layer);
        }
        let target =
            Target { media_type: media_type.to_owned(), digest: blob.digest.clone(), size: blob.size };
        self.wanted.insert(file, Blob { labels: references(&config, &layers), ..blob });
        self.wanted.insert(config_file, config);
        Ok(Some(target))
    }

    /// What `docker save` wrote before it wrote OCI layouts.
    fn docker(&mut self, files: &Files, manifest: &[u8]) -> Result<(), String> {
        for image in list(&parse("manifest.json", manifest)?) {
            let names =
                list(&image["RepoTags"]).iter().filter_map(|it| Some(it.as_str()?.to_owned())).collect();
            let config_file = files.find(text(&image["Config"]))?;
            let Some(content) = files.small.get(&config_file) else {
                return Err(format!("{config_file} is too large"));
            };
            let config = Blob {
                digest: digest(content),
                size: content.len() as u64,
                labels: HashMap::new(),
                content: Vec::new(),
            };
            let says = parse(&config_file, content)?;
            if !self.is_ours(&says) {
                continue;
            }
            let diff_ids = says["rootfs"]["diff_ids"].clone();
            let mut layers = Vec::new();
            for (number, layer) in list(&image["Layers"]).iter().enumerate() {
                let file = files.find(text(layer))?;
                // Layers are not compressed here, so they are what the image says they are.
                let Some(diff_id) = diff_ids[number].as_str() else {
                    return Err(format!("{config_file} does not name the layer {file}"));
                };
                let size = files.sizes.get(&file).copied().unwrap_or_default();
                let labels = uncompressed(Some(diff_id));
                let layer = Blob { digest: diff_id.to_owned(), size, labels, content: Vec::new() };
                layers.push(layer.clone());
                self.wanted.insert(file, layer);
            }
            let manifest = self::manifest(&config, &layers);
            let (digest, size) = (manifest.digest.clone(), manifest.size);
            self.images
                .push(Found { names, target: Target { media_type: MANIFEST.to_owned(), digest, size } });
            self.wanted.insert(config_file, config);
            self.made.push(manifest);
        }
        if self.images.is_empty() && self.foreign.is_empty() {
            return Err("its manifest.json names no image".to_owned());
        }
        Ok(())
    }
}

/// The files of an archive, and the text of its descriptions.
#[derive(Default)]
struct Files {
    sizes: HashMap<String, u64>,
    small: HashMap<String, Vec<u8>>,
    links: HashMap<String, String>,
}

impl Files {
    fn read(path: &Path) -> Result<Self, ImageError> {
        let mut files = Self::default();
        let mut all = 0;
        let visited = visit_all(path, |entry| {
            let Entry { name, size, link, content } = entry;
            if FILES_MAX <= files.sizes.len() + files.links.len() {
                return Err(io::Error::other(format!("it has more than {FILES_MAX} files")));
            }
            if let Some(link) = link {
                files.links.insert(name, link);
                return Ok(());
            }
            files.sizes.insert(name.clone(), size);
            let mut text = [0];
            if SMALL_MAX < size || content.read(&mut text)? == 0 || !matches!(text[0], b'{' | b'[') {
                return Ok(());
            }
            let mut text = text.to_vec();
            content.read_to_end(&mut text)?;
            all += text.len();
            if SMALL_ALL_MAX < all {
                return Err(io::Error::other("its descriptions are too large"));
            }
            files.small.insert(name, text);
            Ok(())
        });
        match visited {
            Ok(()) => Ok(files),
            Err(source) if source.raw_os_error().is_some() => {
                Err(ImageError::File { path: path.to_owned(), source })
            }
            Err(error) => Err(ImageError::NoArchive { path: path.to_owned(), why: broken(&error) }),
        }
    }

    /// The content that a descriptor names, and the file that has it.
    fn blob(&self, descriptor: &Value) -> Result<(Blob, String), String> {
        let digest = text(&descriptor["digest"]);
        let is_digest = digest
            .strip_prefix("sha256:")
            .filter(|it| it.len() == 64 && it.bytes().all(|it| it.is_ascii_hexdigit()));
        let Some(hex) = is_digest else { return Err(format!("{digest:?} is no digest that is known here")) };
        let file = self.find(&format!("blobs/sha256/{hex}"))?;
        let size = self.sizes.get(&file).copied().unwrap_or_default();
        Ok((Blob { digest: digest.to_owned(), size, labels: HashMap::new(), content: Vec::new() }, file))
    }

    /// The file of that name, or the one that it is a link to.
    fn find(&self, name: &str) -> Result<String, String> {
        let mut seen = HashSet::new();
        let mut at = plain(Path::new(name));
        while let Some(link) = self.links.get(&at) {
            if !seen.insert(at.clone()) {
                return Err(format!("{name} is a link that leads in circles"));
            }
            let beside = Path::new(&at).parent().unwrap_or(Path::new(""));
            at = plain(&beside.join(link));
        }
        if self.sizes.contains_key(&at) { Ok(at) } else { Err(format!("{name} is missing from it")) }
    }
}

/// Why a tar cannot be read. One that ends too early is the most frequent: a copy that broke off, or a disk that was full.
fn broken(error: &io::Error) -> String {
    let said = error.to_string();
    let is_cut = error.kind() == io::ErrorKind::UnexpectedEof
        || ["unexpected EOF", "incomplete deflate stream"].iter().any(|it| said.contains(it));
    if is_cut { format!("it ends in the middle of a file ({said}): copy it again") } else { said }
}

struct Entry<'a> {
    name: String,
    size: u64,
    link: Option<String>,
    content: &'a mut dyn Read,
}

/// Each file of the archive, in its order.
pub(super) fn visit(
    path: &Path,
    mut see: impl FnMut(&str, &mut dyn Read) -> io::Result<()>,
) -> io::Result<()> {
    visit_all(path, |entry| if entry.link.is_some() { Ok(()) } else { see(&entry.name, entry.content) })
}

fn visit_all(path: &Path, mut see: impl FnMut(Entry<'_>) -> io::Result<()>) -> io::Result<()> {
    let mut file = open(path).map_err(|it| match it {
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
        let name = plain(&entry.path()?);
        let size = entry.size();
        let link = match entry.link_name()? {
            Some(link) if kind.is_symlink() => Some(link.display().to_string()),
            // A hard link is a name from the top.
            Some(link) if kind.is_hard_link() => Some(format!("/{}", link.display())),
            _ if kind.is_file() => None,
            _ => continue,
        };
        see(Entry { name, size, link, content: &mut entry })?;
    }
    Ok(())
}

/// A path in the archive, from its top and without detours.
fn plain(path: &Path) -> String {
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

/// A manifest of layers that are not compressed.
pub(super) fn manifest(config: &Blob, layers: &[Blob]) -> Blob {
    let describe = |media_type: &str, blob: &Blob| json!({"mediaType": media_type, "digest": blob.digest, "size": blob.size});
    let content = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": describe(CONFIG, config),
        "layers": layers.iter().map(|it| describe(LAYER, it)).collect::<Vec<_>>(),
    });
    let content = content.to_string().into_bytes();
    let labels = references(config, layers);
    Blob { digest: digest(&content), size: content.len() as u64, labels, content }
}

/// As containerd wants to be told what a manifest needs.
fn references(config: &Blob, layers: &[Blob]) -> HashMap<String, String> {
    let layers = layers.iter().enumerate();
    let layers =
        layers.map(|(number, it)| (format!("containerd.io/gc.ref.content.l.{number}"), it.digest.clone()));
    let config = ("containerd.io/gc.ref.content.config".to_owned(), config.digest.clone());
    layers.chain([config]).collect()
}

fn uncompressed(diff_id: Option<&str>) -> HashMap<String, String> {
    diff_id.map(|it| ("containerd.io/uncompressed".to_owned(), it.to_owned())).into_iter().collect()
}

pub(super) fn digest(content: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, content);
    let hex: String = digest.as_ref().iter().map(|it| format!("{it:02x}")).collect();
    format!("sha256:{hex}")
}

fn parse(file: &str, text: &[u8]) -> Result<Value, String> {
    serde_json::from_slice(text).map_err(|it| format!("{file} cannot be read: {it}"))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests;
