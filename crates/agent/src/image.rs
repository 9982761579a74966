//! Imports images into containerd without a registry: from archives, and the built-in sandbox image.

/// Image archives: OCI layouts and the output of `docker save`.
mod archive;
/// The built-in sandbox image.
mod sandbox;

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use muster_api::image_reference::ImageReference;
use tokio::sync::mpsc;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

pub use self::sandbox::{SANDBOX_IMAGE, sandbox_image};

use self::archive::{Archive, ArchiveImage, Blob};
use crate::runtime::containerd::content::content_client::ContentClient;
use crate::runtime::containerd::content::{WriteAction, WriteContentRequest};
use crate::runtime::containerd::images::images_client::ImagesClient;
use crate::runtime::containerd::images::{CreateImageRequest, Descriptor, Image, UpdateImageRequest};
use crate::runtime::containerd::leases::leases_client::LeasesClient;
use crate::runtime::containerd::leases::{CreateRequest, DeleteRequest};
use crate::runtime::{CriClient, Runtime as _, RuntimeError};

/// The containerd namespace in which CRI keeps its images.
const CONTAINERD_NAMESPACE: &str = "k8s.io";

/// Maximum number of bytes of a blob that are sent to containerd in one message. containerd accepts messages of at most
/// 16 MiB.
const CHUNK_BYTES: usize = 1 << 20;

/// Lifetime of the containerd lease of an import. After the lease expires, containerd garbage-collects the content of
/// an interrupted import.
const LEASE_DURATION: Duration = Duration::from_secs(3600);

/// An error of an image import.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    #[error("read {path}")]
    File { path: PathBuf, source: io::Error },
    #[error(
        "{path} is not an image archive: {why}. `docker save` and OCI layouts in a tar are, gzipped or not"
    )]
    NotAnArchive { path: PathBuf, why: String },
    #[error(
        "{path} is for {platforms}, but this machine is linux/{}: use an image for this platform",
        crate::architecture()
    )]
    WrongPlatform { path: PathBuf, platforms: String },
    #[error(
        "{path} has {count} images, but --name can name only one: omit --name, or save the images one by one"
    )]
    SeveralImages { path: PathBuf, count: usize },
    #[error("the image in {path} has no name: give it one with --name")]
    NoName { path: PathBuf },
    #[error("{name:?} is not a valid image reference")]
    BadName { name: String },
    #[error("import into containerd: {tried}: {why}")]
    Containerd { tried: &'static str, why: String },
}

impl ImageError {
    /// Whether the import into containerd failed. All other errors are caused by the archive or by the image name.
    pub fn is_containerd_error(&self) -> bool {
        matches!(self, Self::Containerd { .. })
    }
}

/// Imports the images of an archive that can run on this machine, and returns their names. If `name` is given, there
/// must be only one such image, and it gets this name instead of its names in the archive.
pub async fn import_archive(
    runtime: &CriClient,
    path: &Path,
    name: Option<&str>,
) -> Result<Vec<String>, ImageError> {
    let at = path.to_owned();
    let archive = run_blocking(move || Archive::open(&at)).await?;
    let count = archive.images.iter().map(|it| it.target.digest.as_str()).collect::<BTreeSet<_>>().len();
    if name.is_some() && 1 < count {
        return Err(ImageError::SeveralImages { path: path.to_owned(), count });
    }
    let mut named: Vec<(String, &ArchiveImage)> = Vec::new();
    for image in &archive.images {
        let names: Vec<&str> = match name {
            Some(name) => vec![name],
            None => image.names.iter().map(String::as_str).collect(),
        };
        if names.is_empty() {
            return Err(ImageError::NoName { path: path.to_owned() });
        }
        for name in names {
            let name = normalize_name(name)?;
            if !named.iter().any(|(it, _)| *it == name) {
                named.push((name, image));
            }
        }
    }

    let lease = ContainerdLease::create(runtime.channel()).await?;
    for blob in archive.generated_manifests.iter() {
        lease.write_blob(blob, io::Cursor::new(blob.content.clone())).await?;
    }
    lease.write_archive(&archive).await?;
    for (name, image) in &named {
        lease.create_image(name, &image.target).await?;
    }
    lease.delete().await?;
    Ok(named.into_iter().map(|(name, _)| name).collect())
}

/// Imports an image that was built in memory.
pub async fn import_built_image(runtime: &CriClient, image: &BuiltImage) -> Result<(), ImageError> {
    let lease = ContainerdLease::create(runtime.channel()).await?;
    for blob in &image.blobs {
        lease.write_blob(blob, io::Cursor::new(blob.content.clone())).await?;
    }
    lease.create_image(&image.name, &image.target).await?;
    lease.delete().await
}

/// Imports the built-in sandbox image if the sandbox image that containerd is configured with is missing. Returns the
/// name under which the image was imported, or `None` if nothing was imported.
///
/// Rule: sandboxes need no registry. The built-in image is imported under the configured name.
pub async fn ensure_sandbox_image(runtime: &CriClient) -> Result<Option<String>, ImageError> {
    let failed = |it: RuntimeError| ImageError::Containerd {
        tried: "look for the sandbox image",
        why: it.to_string(),
    };
    let Some(name) = runtime.sandbox_image().await.map_err(failed)? else { return Ok(None) };
    if runtime.image_status(&name).await.map_err(failed)?.is_some() {
        return Ok(None);
    }
    import_built_image(runtime, &BuiltImage { name: normalize_name(&name)?, ..sandbox_image() }).await?;
    Ok(Some(name))
}

/// Returns the form of an image name under which containerd stores the image.
fn normalize_name(name: &str) -> Result<String, ImageError> {
    let reference = ImageReference::parse(name).map_err(|_| ImageError::BadName { name: name.to_owned() })?;
    Ok(reference.normalized())
}

/// An image that was built in memory: name, manifest descriptor and blobs.
#[derive(Debug)]
pub struct BuiltImage {
    name: String,
    /// Descriptor of the image's manifest.
    target: ImageDescriptor,
    blobs: Vec<Blob>,
}

/// OCI descriptor of the manifest that an image name refers to.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ImageDescriptor {
    media_type: String,
    digest: String,
    size: u64,
}

/// A containerd lease. Content that is written under the lease is not garbage-collected until the lease is deleted or
/// expires.
struct ContainerdLease {
    id: String,
    channel: Channel,
}

impl ContainerdLease {
    /// Creates a lease in containerd that expires after [`LEASE_DURATION`].
    async fn create(channel: Channel) -> Result<Self, ImageError> {
        let id = format!("muster-import-{}-{}", std::process::id(), Timestamp::now().as_nanosecond());
        let until = Timestamp::now() + LEASE_DURATION;
        let labels = [("containerd.io/gc.expire".to_owned(), until.to_string())].into();
        let request = containerd_request(CreateRequest { id: id.clone(), labels }, None);
        let created = LeasesClient::new(channel.clone()).create(request).await;
        created.map_err(|it| containerd_error("create a lease", &it))?;
        Ok(Self { id, channel })
    }

    /// Deletes the lease after the images were created.
    async fn delete(self) -> Result<(), ImageError> {
        let request = containerd_request(DeleteRequest { id: self.id.clone(), sync: false }, None);
        let given = LeasesClient::new(self.channel).delete(request).await;
        given.map(drop).map_err(|it| containerd_error("delete the lease", &it))
    }

    /// Writes the blobs in `Archive::blobs_by_file` to containerd's content store, in one pass over the archive.
    async fn write_archive(&self, archive: &Archive) -> Result<(), ImageError> {
        let (entries, mut read) = mpsc::channel::<(Blob, mpsc::Receiver<Vec<u8>>)>(1);
        let (path, blobs) = (archive.path.clone(), archive.blobs_by_file.clone());
        let reading = tokio::task::spawn_blocking(move || {
            archive::visit_files(&path, |name, content| {
                let Some(blob) = blobs.get(name) else { return Ok(()) };
                let (chunks, received) = mpsc::channel(2);
                if entries.blocking_send((blob.clone(), received)).is_err() {
                    return Err(io::Error::other("the import was cancelled"));
                }
                send_chunks(content, &chunks)
            })
        });
        while let Some((blob, chunks)) = read.recv().await {
            self.write_chunks(&blob, chunks).await?;
        }
        reading
            .await
            .unwrap_or_else(|it| Err(io::Error::other(it)))
            .map_err(|source| ImageError::File { path: archive.path.clone(), source })
    }

    /// Writes a blob to containerd's content store. `content` is read in a blocking task.
    async fn write_blob(&self, blob: &Blob, content: impl Read + Send + 'static) -> Result<(), ImageError> {
        let (chunks, received) = mpsc::channel(2);
        let reading = tokio::task::spawn_blocking(move || {
            let mut content = content;
            send_chunks(&mut content, &chunks)
        });
        self.write_chunks(blob, received).await?;
        let read = reading.await.unwrap_or_else(|it| Err(io::Error::other(it)));
        read.map_err(|it| ImageError::Containerd { tried: "read the generated content", why: it.to_string() })
    }

    /// Writes the chunks of a blob to containerd's content store, and commits the blob. Succeeds if containerd already
    /// has the blob.
    async fn write_chunks(&self, blob: &Blob, chunks: mpsc::Receiver<Vec<u8>>) -> Result<(), ImageError> {
        let total = i64::try_from(blob.size).unwrap_or(i64::MAX);
        let message = WriteContentRequest {
            action: WriteAction::Write as i32,
            r#ref: format!("{}-{}", self.id, blob.digest),
            total,
            expected: blob.digest.clone(),
            offset: 0,
            data: Vec::new(),
            labels: HashMap::new(),
        };
        let last = WriteContentRequest {
            action: WriteAction::Commit as i32,
            offset: total,
            labels: blob.labels.clone(),
            ..message.clone()
        };
        let messages =
            futures::stream::unfold((chunks, message, Some(last)), async |(mut chunks, next, last)| {
                let Some(data) = chunks.recv().await else {
                    let commit = last?;
                    return Some((commit, (chunks, next, None)));
                };
                let after = WriteContentRequest { offset: next.offset + data.len() as i64, ..next.clone() };
                Some((WriteContentRequest { data, ..next }, (chunks, after, last)))
            });
        let writing = async {
            let mut client = ContentClient::new(self.channel.clone());
            let mut answers = client.write(containerd_request(messages, Some(&self.id))).await?.into_inner();
            while answers.message().await?.is_some() {}
            Ok::<(), Status>(())
        };
        match writing.await {
            Err(status) if status.code() == Code::AlreadyExists => Ok(()),
            done => done.map_err(|it| containerd_error("write content", &it)),
        }
    }

    /// Creates or updates the image `name` with the manifest `target`.
    async fn create_image(&self, name: &str, target: &ImageDescriptor) -> Result<(), ImageError> {
        let image = Image {
            name: name.to_owned(),
            target: Some(Descriptor {
                media_type: target.media_type.clone(),
                digest: target.digest.clone(),
                size: i64::try_from(target.size).unwrap_or(i64::MAX),
                annotations: HashMap::new(),
            }),
            ..Image::default()
        };
        let mut images = ImagesClient::new(self.channel.clone());
        let created = images
            .create(containerd_request(CreateImageRequest { image: Some(image.clone()) }, Some(&self.id)))
            .await;
        match created {
            Err(status) if status.code() == Code::AlreadyExists => {
                let request = containerd_request(UpdateImageRequest { image: Some(image) }, Some(&self.id));
                images.update(request).await.map(drop).map_err(|it| containerd_error("create the image", &it))
            }
            created => created.map(drop).map_err(|it| containerd_error("create the image", &it)),
        }
    }
}

/// Reads content and sends it in chunks. A closed receiver is not an error, because containerd may already have the
/// content.
fn send_chunks(mut content: &mut dyn Read, chunks: &mpsc::Sender<Vec<u8>>) -> io::Result<()> {
    loop {
        let mut chunk = Vec::with_capacity(CHUNK_BYTES);
        (&mut content).take(CHUNK_BYTES as u64).read_to_end(&mut chunk)?;
        if chunk.is_empty() || chunks.blocking_send(chunk).is_err() {
            return Ok(());
        }
    }
}

/// Builds a request in containerd's namespace for CRI. The request is made under the lease with the ID `lease`, if one
/// is given.
fn containerd_request<T>(message: T, lease: Option<&str>) -> Request<T> {
    let mut request = Request::new(message);
    let namespace = CONTAINERD_NAMESPACE.parse().expect("the namespace is ASCII");
    request.metadata_mut().insert("containerd-namespace", namespace);
    if let Some(lease) = lease.and_then(|it| it.parse().ok()) {
        request.metadata_mut().insert("containerd-lease", lease);
    }
    request
}

/// Converts a gRPC status to an error. `tried` describes the operation that failed.
fn containerd_error(tried: &'static str, status: &Status) -> ImageError {
    ImageError::Containerd { tried, why: status.message().to_owned() }
}

/// Runs `work`, which reads an archive, on the blocking thread pool.
async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ImageError> + Send + 'static,
) -> Result<T, ImageError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|it| Err(ImageError::Containerd { tried: "read the archive", why: it.to_string() }))
}

fn open_file(path: &Path) -> Result<File, ImageError> {
    File::open(path).map_err(|source| ImageError::File { path: path.to_owned(), source })
}
