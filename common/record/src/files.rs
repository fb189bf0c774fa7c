//! The partitioned graph, its files, and the result of each copy.

use crate::encoded::{edited, path_fields, unbase64};
use crate::error::{Fault, Report};
use crate::jsonl::Stream;
use crate::term::count;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Begins the names of part-push's own files on a host. Files with such names are not copied: they
/// would be taken for a lock, or remain after an interrupted push.
pub const RESERVED: &str = ".part-push.";

/// The partitioned graph and its location on the hosts.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Graph {
    /// The name of the graph in the partition config.
    pub graph_name: String,
    /// The number of partitions: the number of hosts, or for workers a multiple of it.
    pub num_parts: u32,
    /// The number of file records in the stream.
    pub files: u32,
    /// The directory of the job on every host, absolute.
    pub workspace: String,
    /// The partition config, relative to the workspace.
    pub part_config: String,
    /// The ip_config, relative to the workspace.
    pub ip_config: String,
}

/// The workspace of a job without a graph.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Workspace {
    /// The directory of the job on every host, absolute.
    pub workspace: String,
    /// The ip_config, relative to the workspace.
    pub ip_config: String,
}

/// A file and its destination. It is on this machine (`src`) or made from the record (`content`).
/// Otherwise it must already be on the host, for instance because a job downloaded it: part-push
/// only checks that. A `dst` that ends in `/` is an empty directory.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FileCopy {
    /// The number of this record in its set: 0 to `of` - 1.
    pub id: u32,
    /// How many records the set has.
    pub of: u32,
    /// The host that gets the file; absent if every host gets it.
    pub host: Option<u32>,
    /// The kind of file: config, ip_config, partition, map, script or extra.
    pub kind: String,
    /// The path of the file on this machine, absolute.
    pub src: Option<String>,
    /// `src` in base64, where the path is not UTF-8.
    pub src_b64: Option<String>,
    /// The text of a file that a tool made, in place of `src`.
    pub content: Option<String>,
    /// The path of the file on this machine from which `content` was made, absolute; part-push does
    /// not replace this file. Absent if nothing in it would be lost.
    pub original: Option<String>,
    /// `original` in base64, where the path is not UTF-8.
    pub original_b64: Option<String>,
    /// The path of the file on the host, absolute.
    pub dst: Option<String>,
    /// `dst` in base64, where the path is not UTF-8.
    pub dst_b64: Option<String>,
    /// The size in bytes; 0 if it is unknown, because the file must already be on the host.
    pub bytes: u64,
    /// When the file was last changed, in seconds since 1970; absent for a file made from
    /// `content`.
    pub mtime_s: Option<i64>,
    /// The nanoseconds of that time, beside `mtime_s`.
    pub mtime_nsec: Option<u32>,
    /// Permission bits, as a decimal number: 420 is 0644.
    pub mode: u32,
}

impl FileCopy {
    pub fn is_folder(&self) -> Result<bool, Fault> {
        Ok(self.destination()?.as_os_str().as_bytes().ends_with(b"/"))
    }

    /// `None` for a file made from `content`.
    pub fn source(&self) -> Result<Option<PathBuf>, Fault> {
        self.path_of("src", &self.src, &self.src_b64)
    }

    pub fn original(&self) -> Result<Option<PathBuf>, Fault> {
        self.path_of("original", &self.original, &self.original_b64)
    }

    fn location(&self) -> String {
        format!("file record {}", self.id)
    }

    fn path_of(
        &self,
        field: &str,
        text: &Option<String>,
        encoded: &Option<String>,
    ) -> Result<Option<PathBuf>, Fault> {
        match (text, encoded) {
            (Some(path), _) => Ok(Some(PathBuf::from(path))),
            (None, Some(path)) => Ok(Some(PathBuf::from(unbase64(
                &self.location(),
                &format!("{field}_b64"),
                path,
            )?))),
            (None, None) => Ok(None),
        }
    }

    pub fn destination(&self) -> Result<PathBuf, Fault> {
        let missing = || edited(self.location(), "has neither dst nor dst_b64");
        self.path_of("dst", &self.dst, &self.dst_b64)?
            .ok_or_else(missing)
    }
}

pub fn is_reserved(path: &Path) -> bool {
    path.iter()
        .any(|name| name.as_bytes().starts_with(RESERVED.as_bytes()))
}

/// A file on this machine, as file records describe it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LocalFile {
    pub path: PathBuf,
    pub bytes: u64,
    /// In seconds since 1970.
    pub mtime_s: i64,
    pub mtime_nsec: u32,
    pub mode: u32,
    /// Device and inode: the file under any name.
    pub identity: (u64, u64),
}

impl LocalFile {
    pub fn of(path: PathBuf, meta: &Metadata) -> LocalFile {
        LocalFile {
            path,
            bytes: meta.len(),
            mtime_s: meta.mtime(),
            mtime_nsec: u32::try_from(meta.mtime_nsec()).unwrap_or(0),
            mode: meta.mode() & 0o777,
            identity: (meta.dev(), meta.ino()),
        }
    }

    pub fn record(&self) -> FileCopy {
        let (src, src_b64) = path_fields(&self.path);
        FileCopy {
            src,
            src_b64,
            bytes: self.bytes,
            mtime_s: Some(self.mtime_s),
            mtime_nsec: Some(self.mtime_nsec),
            mode: self.mode,
            ..FileCopy::default()
        }
    }
}

/// Whether a file of this machine has another size or time than its record. A record without a
/// time, or with a part of it, has only a size to compare.
pub fn has_changed(meta: &Metadata, bytes: u64, mtime: Option<(i64, u32)>) -> bool {
    meta.len() != bytes
        || mtime.is_some_and(|(s, ns)| s != meta.mtime() || i64::from(ns) != meta.mtime_nsec())
}

/// A warning for who edits a script and starts it from the records of an earlier copy: the hosts
/// still have the old one. A file that is missing here proves nothing, because another machine may
/// have copied it.
pub fn changed_since_copied(stream: &Stream) -> Result<Option<String>, Report> {
    if !stream.has::<Pushed>() {
        return Ok(None);
    }
    let mut changed = Vec::new();
    for file in stream.all::<FileCopy>()? {
        if let Some(path) = file.source()?
            && let Ok(meta) = path.metadata()
            && has_changed(&meta, file.bytes, file.mtime_s.zip(file.mtime_nsec))
        {
            changed.push(path);
        }
    }
    let Some(first) = changed.first() else {
        return Ok(None);
    };
    let which = match changed.len() as u64 - 1 {
        0 => format!("{} has", first.display()),
        more => format!("{} and {} have", first.display(), count(more, "other file")),
    };
    Ok(Some(format!(
        "{which} changed since these records were written, and the hosts may have the old \
         version; run part-map and part-push again"
    )))
}

/// A delivery: one file that goes to one host.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Pushed {
    /// The number of this delivery: 0 to `of` - 1.
    pub id: u32,
    /// How many deliveries there are.
    pub of: u32,
    /// The `id` of the file record.
    pub file: u32,
    /// The `id` of the host.
    pub host: u32,
    /// Whether the whole file is on the host.
    pub ok: bool,
    /// The size of the file in bytes.
    pub bytes: u64,
    /// How many bytes this machine sent for it.
    pub sent_bytes: u64,
    /// The whole file was on the host already.
    pub skipped: bool,
    /// Milliseconds from the beginning of the sending to the host's confirmation.
    pub elapsed_ms: u64,
    /// Why the file is not on the host.
    pub error: Option<String>,
}

/// A file that was copied from a host, or a failure of the host before a file was known.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Pulled {
    /// The number of this file: 0 to `of` - 1; absent without a file.
    pub id: Option<u32>,
    /// How many files there are.
    pub of: Option<u32>,
    /// The `id` of the host.
    pub host: u32,
    /// The path of the file on the host, relative to the workspace.
    pub src: Option<String>,
    /// `src` in base64, where the path is not UTF-8.
    pub src_b64: Option<String>,
    /// The path of the file on this machine.
    pub dst: Option<String>,
    /// `dst` in base64, where the path is not UTF-8.
    pub dst_b64: Option<String>,
    /// Whether the whole file is on this machine.
    pub ok: bool,
    /// The size of the file in bytes.
    pub bytes: u64,
    /// How many bytes were received for it.
    pub received_bytes: u64,
    /// The whole file was on this machine already.
    pub skipped: bool,
    /// Why the file is not on this machine.
    pub error: Option<String>,
}
