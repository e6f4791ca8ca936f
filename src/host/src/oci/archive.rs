//! The archive writer: one layer, one config, one manifest, an index that names the image.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write};
use std::path::{Path, PathBuf};

use serde_json::json;
use sha2::{Digest as _, Sha256};

/// Why an image archive could not be written.
#[derive(Debug, thiserror::Error)]
pub enum OciError {
    /// A file that goes into the image could not be read.
    #[error("read {path} for image {image}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The image being made.
        image: String,
        /// What the system said.
        source: io::Error,
    },
    /// The archive could not be written: disk full, no rights.
    #[error("write image archive {path}")]
    Write {
        /// The archive.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// We have no pause program for this machine.
    #[error("no pause program for processor architecture {0}")]
    Architecture(String),
}

/// What a file of the layer is made of.
#[derive(Debug, Clone)]
pub enum Source {
    /// These bytes.
    Bytes(Vec<u8>),
    /// A copy of this file (symbolic links followed).
    Path(PathBuf),
}

/// One entry of the layer; paths are absolute paths in the container or relative to its root.
#[derive(Debug, Clone)]
pub enum Entry {
    /// A directory.
    Directory {
        /// Path in the image.
        path: String,
        /// Permission bits.
        mode: u32,
    },
    /// A regular file.
    File {
        /// Path in the image.
        path: String,
        /// Permission bits.
        mode: u32,
        /// Content.
        source: Source,
    },
    /// A symbolic link.
    Link {
        /// Path in the image.
        path: String,
        /// Where it points.
        target: String,
    },
}

/// A description of an image with one layer.
#[derive(Debug, Clone, Default)]
pub struct ImageArchive {
    /// Full name with tag, e.g. `localhost/busybox:1`.
    pub name: String,
    /// Layer content, in order.
    pub entries: Vec<Entry>,
    /// Entry point, may be empty.
    pub entrypoint: Vec<String>,
    /// Default command, may be empty.
    pub command: Vec<String>,
    /// `NAME=value` environment.
    pub environment: Vec<String>,
    /// User, empty for root.
    pub user: String,
}

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenImage {
    /// `sha256:…` of the config: the image id a runtime shows.
    pub config_digest: String,
    /// `sha256:…` of the manifest.
    pub manifest_digest: String,
}

/// Returns the architecture in OCI's words.
pub(super) fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

impl ImageArchive {
    /// Writes the archive to `path`, replacing what is there.
    pub fn write(&self, path: &Path) -> Result<WrittenImage, OciError> {
        let write_error = |source| OciError::Write { path: path.to_path_buf(), source };
        let layer_path = path.with_extension("layer");
        let layer = self.write_layer(&layer_path);
        let (layer_digest, layer_size) = match layer {
            Ok(layer) => layer,
            Err(error) => {
                drop(std::fs::remove_file(&layer_path));
                return Err(error);
            }
        };
        let written = self.write_image(path, &layer_path, &layer_digest, layer_size).map_err(write_error);
        drop(std::fs::remove_file(&layer_path));
        written
    }

    fn write_layer(&self, path: &Path) -> Result<(String, u64), OciError> {
        let write_error = |source| OciError::Write { path: path.to_path_buf(), source };
        let file = File::create(path).map_err(write_error)?;
        let mut builder = tar::Builder::new(Hashing { inner: io::BufWriter::new(file), hash: Sha256::new(), size: 0 });
        for entry in &self.entries {
            match entry {
                Entry::Directory { path, mode } => {
                    let mut header = header(tar::EntryType::Directory, *mode, 0);
                    let name = format!("{}/", relative(path));
                    builder.append_data(&mut header, name, io::empty()).map_err(write_error)?;
                }
                Entry::Link { path, target } => {
                    let mut header = header(tar::EntryType::Symlink, 0o777, 0);
                    builder.append_link(&mut header, relative(path), target).map_err(write_error)?;
                }
                Entry::File { path, mode, source: Source::Bytes(bytes) } => {
                    let mut header = header(tar::EntryType::Regular, *mode, bytes.len() as u64);
                    builder.append_data(&mut header, relative(path), bytes.as_slice()).map_err(write_error)?;
                }
                Entry::File { path, mode, source: Source::Path(from) } => {
                    let read_error = |source| OciError::Read { path: from.clone(), image: self.name.clone(), source };
                    let file = File::open(from).map_err(read_error)?;
                    let size = file.metadata().map_err(read_error)?.len();
                    let mut header = header(tar::EntryType::Regular, *mode, size);
                    builder.append_data(&mut header, relative(path), file.take(size)).map_err(write_error)?;
                }
            }
        }
        let hashing = builder.into_inner().map_err(write_error)?;
        let Hashing { mut inner, hash, size } = hashing;
        inner.flush().map_err(write_error)?;
        Ok((digest(hash), size))
    }

    fn write_image(&self, path: &Path, layer: &Path, layer_digest: &str, layer_size: u64) -> io::Result<WrittenImage> {
        let mut config = json!({
            "architecture": architecture(),
            "os": "linux",
            "config": {},
            "rootfs": {"type": "layers", "diff_ids": [layer_digest]},
            "history": [{"created_by": "longshore"}],
        });
        let runs = &mut config["config"];
        if !self.entrypoint.is_empty() {
            runs["Entrypoint"] = json!(self.entrypoint);
        }
        if !self.command.is_empty() {
            runs["Cmd"] = json!(self.command);
        }
        if !self.environment.is_empty() {
            runs["Env"] = json!(self.environment);
        }
        if !self.user.is_empty() {
            runs["User"] = json!(self.user);
        }
        let config = config.to_string();
        let config_digest = digest_of(config.as_bytes());
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": {
                "mediaType": "application/vnd.oci.image.config.v1+json",
                "digest": config_digest,
                "size": config.len(),
            },
            "layers": [{
                "mediaType": "application/vnd.oci.image.layer.v1.tar",
                "digest": layer_digest,
                "size": layer_size,
            }],
        })
        .to_string();
        let manifest_digest = digest_of(manifest.as_bytes());
        let tag = self.name.rsplit(':').next().unwrap_or_default();
        let index = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": [{
                "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "digest": manifest_digest,
                "size": manifest.len(),
                "platform": {"architecture": architecture(), "os": "linux"},
                "annotations": {
                    "io.containerd.image.name": self.name,
                    "org.opencontainers.image.ref.name": tag,
                },
            }],
        })
        .to_string();

        let mut archive = tar::Builder::new(io::BufWriter::new(File::create(path)?));
        let mut put = |name: &str, bytes: &[u8]| {
            archive.append_data(&mut header(tar::EntryType::Regular, 0o644, bytes.len() as u64), name, bytes)
        };
        put("oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)?;
        put("index.json", index.as_bytes())?;
        put(&blob(&manifest_digest), manifest.as_bytes())?;
        put(&blob(&config_digest), config.as_bytes())?;
        let mut file = File::open(layer)?;
        file.rewind()?;
        archive.append_data(&mut header(tar::EntryType::Regular, 0o644, layer_size), blob(layer_digest), file)?;
        archive.into_inner()?.flush()?;
        Ok(WrittenImage { config_digest, manifest_digest })
    }
}

fn blob(digest: &str) -> String {
    format!("blobs/{}", digest.replace(':', "/"))
}

fn relative(path: &str) -> &str {
    path.trim_start_matches('/').trim_end_matches('/')
}

/// Owner, times and groups are zero: the same content gives the same image id on every machine.
fn header(kind: tar::EntryType, mode: u32, size: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header
}

fn digest(hash: Sha256) -> String {
    format!("sha256:{}", longshore_util::hex::encode(&hash.finalize()))
}

fn digest_of(bytes: &[u8]) -> String {
    let mut hash = Sha256::new();
    hash.update(bytes);
    digest(hash)
}

#[derive(Debug)]
struct Hashing<W> {
    inner: W,
    hash: Sha256,
    size: u64,
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(buffer)?;
        self.hash.update(&buffer[..written]);
        self.size += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
