//! Messages about files that part-push sends to a host and part-pull fetches.
//!
//! A sender sends [`FileStep`]s to a receiver: small files together in a [`Batch`], larger ones as
//! `open`, `write`s, and `commit` or `abandon`. In a push the tool is the sender, so these are
//! requests; in a pull the agent is, so they are events. A receiving host also gets `receive`,
//! which selects a directory, and `inspect`, `peers` and `claim`, which ask what exists. A sending
//! host gets `give`, `find`, then `send`. From host to host: `hand_on`, and over the connection
//! made for it `handed` and `write`s; the tool's `commit` has the checksum of the whole file.
//! Requests are pipelined and answered in order; `sync` shows how far the agent has come. Sizes are
//! called `size`, because `bytes` in a line announces the body after it. Content follows its line,
//! at most [`crate::codec::MAX_BODY`] bytes, with its sum in the line.

use crate::Text;
use crate::text::{message, names, optional_message};
use record::term::cut;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_with::skip_serializing_none;
use std::collections::BTreeSet;
use std::fmt;
use std::net::Ipv4Addr;

/// The most content in one message, in bytes.
pub const BLOCK: u64 = crate::codec::MAX_BODY as u64;
/// Pieces of a file are at least this long, except its last one.
const SHORTEST_PIECE: u64 = 64 << 10;
/// A host reports that it makes progress each time that it has read so many bytes of a file.
pub const READ_AT_ONCE: u64 = 1 << 30;
/// The most files in one message, which keep its line well below [`crate::codec::MAX_LINE`]: a path
/// has at most 4096 bytes.
pub const FILES_AT_ONCE: usize = 128;

/// A request about files: `{"do":"file","step":"…",…}`.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "snake_case")]
pub enum FileRequest {
    Receive(Receive),
    /// Announces that files are fetched; answered by [`FileEvent::Ready`].
    Give {
        /// The directory whose files are fetched. A leading `~` is the home on the host.
        base: Text,
    },
    /// Asks what exists under the names after the line, each ended by NUL; answered by
    /// [`FileEvent::Inspected`], in their order.
    Inspect {
        /// Also requests the checksum of each file of at most this many bytes.
        sums: Option<u64>,
        /// Whether a symbolic link stands for what it leads to.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        follow: bool,
    },
    /// Asks again for a directory in which another push was at work; answered by
    /// [`FileEvent::Ready`].
    Enter,
    /// Leaves the directory to other pushes until [`FileRequest::Enter`].
    Leave,
    /// Asks which hosts of this push share the directory; answered by [`FileEvent::Peers`].
    Peers,
    /// Asks which jobs run where files are replaced: the directories of these files follow the
    /// line, each ended by NUL. Answered by [`FileEvent::Jobs`].
    Jobs,
    /// Takes over the partial file of an earlier push; answered by [`FileEvent::Partial`].
    Claim {
        #[serde(rename = "key")]
        partial_key: String,
        /// The size of the whole file.
        #[serde(rename = "size")]
        bytes: u64,
        /// The file that it will replace, to be used if there is no partial file.
        dst: Option<Text>,
    },
    /// Passes a file on to another host as it arrives; [`FileEvent::NotHandedOn`] reports that this
    /// has stopped.
    HandOn(HandOn),
    /// The first message of another host over its connection: [`FileRequest::Write`]s of a file
    /// follow, then [`FileRequest::Sync`]. Nothing else is allowed there.
    Handed {
        #[serde(rename = "key")]
        partial_key: String,
    },
    /// Asks for [`FileEvent::Synced`] with the same number when everything before it is done.
    Sync {
        number: u64,
    },
    /// Opens a port for this tool, and for hosts that pass files on; answered by
    /// [`FileEvent::Listening`]. On each connection the agent first sends [`crate::Event::Alive`],
    /// then serves a separate session.
    Listen(Listen),
    /// Ends all connections to that port. Content that arrived over them is recorded before later
    /// requests are answered; unfinished parts may be requested again.
    EndDirect,
    /// Asks which files and empty directories exist; answered by [`FileEvent::Found`]s.
    Find {
        /// Files, and directories with all below; relative to the directory of
        /// [`FileRequest::Give`].
        roots: Vec<Text>,
        /// Globs of the directories below the roots whose names are of interest.
        enter: Vec<String>,
        /// The name of a file: directories below the roots that have it are left out, because the
        /// fetched files go there.
        mark: Option<String>,
    },
    /// Sends files; answered by [`FileEvent::Step`]s. Each file ends with its batch, `commit` or
    /// `abandon`.
    Send(FilesToSend),
    /// The next step. A receiving host answers with [`FileEvent::Landed`] at the end of a file; to
    /// a sending host, `abandon` means that a file is no longer wanted.
    #[serde(untagged)]
    Step(FileStep),
}

#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "snake_case")]
pub enum FileStep {
    Batch(Batch),
    /// Begins or continues a file that is sent in blocks.
    Open(Open),
    Write(Block),
    Commit {
        id: u32,
        /// The checksum of the whole file, if hosts pass it on; if it arrived with another one, it
        /// is not put in its place.
        sum: Option<Sum>,
    },
    /// No more of a file is sent over this connection, or over any, if the file was begun over it.
    Abandon {
        id: u32,
        /// Whether the received part is kept; otherwise the file is no longer wanted.
        keep: bool,
        /// Why a host cannot send it.
        fault: Option<FileFault>,
    },
}

/// Opens a directory for files; for this push alone, unless `dry`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receive {
    /// The directory below which all files go.
    pub base: Text,
    /// A word of letters and digits that names the push.
    pub run: String,
    pub host: u32,
    #[serde(default)]
    pub dry: bool,
    /// Whether each file is written to the disk (fsync) before it gets its name, and its directory
    /// after that.
    #[serde(default)]
    pub fsync: bool,
    /// Whether this is a direct connection of a push that has the directory already.
    #[serde(default)]
    pub direct: bool,
}

/// A port for connections beside the login.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listen {
    /// The address to listen on, and no other.
    pub address: Ipv4Addr,
    /// 0 lets the system choose.
    pub port: u16,
    /// The tool's public key.
    pub key: PublicKey,
    /// Public keys of hosts that may hand files on. Only they and the tool are let in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<PublicKey>,
}

/// Another host to which a file is passed on as it arrives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandOn {
    pub id: u32,
    /// The name of the partial file, on both hosts.
    #[serde(rename = "key")]
    pub partial_key: String,
    /// The delivery's number on the other host.
    #[serde(rename = "there")]
    pub other_id: u32,
    /// Where the other host listens.
    pub address: Ipv4Addr,
    pub port: u16,
    #[serde(rename = "peer")]
    pub public_key: PublicKey,
}

/// The attributes of a file or of an empty directory that the host creates.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileAttributes {
    pub id: u32,
    /// Absolute, on the host.
    pub dst: Text,
    /// The size of the whole file.
    #[serde(rename = "size")]
    pub bytes: u64,
    /// Permission bits; with the type of a directory, as in stat(2), an empty directory is made.
    pub mode: u32,
    /// The modification time: seconds and nanoseconds since 1970.
    pub mtime: Option<(i64, u32)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batch {
    /// At most [`FILES_AT_ONCE`], and at most [`BLOCK`] bytes in all.
    pub files: Vec<FileAttributes>,
    #[serde(flatten)]
    pub content: Content,
}

/// Describes the content that follows a line, or zeros, which are not sent.
#[skip_serializing_none]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Content {
    /// Before compression, in bytes.
    pub length: u32,
    /// Whether the content is a zstd frame.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub packed: bool,
    /// The 128-bit XXH3 sum of the content before compression: it finds errors, not malice. `None`
    /// for zeros.
    pub sum: Option<Hex<16>>,
}

#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Open {
    #[serde(flatten)]
    pub file: FileAttributes,
    /// The name of the partial file: two words of hexadecimal digits, for its place and version.
    #[serde(rename = "key")]
    pub partial_key: String,
    /// The parts kept from an earlier push: begin and end of each.
    #[serde(default)]
    pub keep: Vec<(u64, u64)>,
    /// If the kept parts are copied from the file that this one will replace: the checksum of the
    /// checksums of their pieces. A pull always has it, because only this machine knows that.
    /// Boxed, because all requests would grow with it.
    pub keep_sum: Option<Box<Sum>>,
    /// Who sends a file that hosts pass on. It arrives in order from its first byte, nothing is
    /// kept, and [`FileEvent::Arrived`] reports the progress.
    pub chained: Option<Upstream>,
}

/// Who sends a file that hosts pass on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Upstream {
    Tool,
    /// The host with this public key.
    Host(PublicKey),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    pub id: u32,
    /// In bytes.
    pub offset: u64,
    #[serde(flatten)]
    pub content: Content,
}

/// Files that a host is to send. If parts of a single file are kept, their checksums follow the
/// line, 32 bytes for each piece.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilesToSend {
    /// At most [`FILES_AT_ONCE`].
    pub files: Vec<FileToSend>,
    /// The begin and end of each part that the receiver has of the only file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<(u64, u64)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileToSend {
    pub id: u32,
    /// Relative to the directory of [`FileRequest::Give`].
    pub path: Text,
    /// As listed. Another version is not sent.
    pub meta: Meta,
}

/// An event about files: `{"event":"file","kind":"…",…}`.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum FileEvent {
    /// The directory is open, for this push alone unless another one is at work there.
    Ready(FolderReport),
    #[serde(rename = "there")]
    Inspected {
        /// The next entries, in the order of the request; `None` if nothing exists there.
        entries: Vec<Option<Meta>>,
        /// The indices of entries that cannot be examined, and why.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        hidden: Vec<(usize, FileFault)>,
        /// A directory in the workspace, if other users may replace its content.
        exposed: Option<Exposed>,
    },
    /// The hosts of this push that see the same directory.
    Peers { hosts: Vec<u32> },
    /// The user's jobs in the directory of the push with a process above or below a directory of
    /// the request.
    Jobs {
        #[serde(deserialize_with = "names")]
        names: BTreeSet<String>,
    },
    /// The claimed partial file. The checksums of its parts follow the line, 32 bytes each.
    Partial {
        #[serde(rename = "key")]
        partial_key: String,
        /// The begin and end of each part; empty if there are none.
        parts: Vec<(u64, u64)>,
        /// Whether they are parts of the file that this one will replace.
        #[serde(
            rename = "earlier",
            default,
            skip_serializing_if = "std::ops::Not::not"
        )]
        from_replaced_file: bool,
    },
    /// The progress of a file that hosts pass on.
    Arrived {
        id: u32,
        /// From the first byte on.
        #[serde(rename = "size")]
        bytes: u64,
    },
    /// A host gets no more of a file that was passed on to it.
    NotHandedOn {
        /// The delivery's number on the host that sends this event.
        id: u32,
        #[serde(deserialize_with = "message")]
        problem: String,
    },
    Landed {
        /// Deliveries whose whole file is in its place.
        done: Vec<u32>,
        failed: Vec<(u32, FileFault)>,
    },
    /// The port is open, or could not be opened.
    Listening {
        /// 0 if none could be opened.
        port: u16,
        /// Its public key, unless there is a problem.
        key: Option<PublicKey>,
        #[serde(default, deserialize_with = "optional_message")]
        problem: Option<String>,
    },
    /// Another [`READ_AT_ONCE`] bytes of a large file were read: for its checksums, or to copy what
    /// need not be sent.
    Read,
    /// Everything before this [`FileRequest::Sync`] has been handled.
    Synced { number: u64 },
    /// The tool sent nothing for too long, and counts as lost.
    Silence { seconds: u64 },
    /// Files and empty directories that exist.
    Found {
        entries: Vec<FoundFile>,
        /// What cannot be read, and what is neither file nor directory.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        unreadable: Vec<Unreadable>,
        /// Whether no more follow.
        last: bool,
    },
    /// The next step of the files that were requested.
    Step(FileStep),
}

impl FileRequest {
    /// How many events an honest host sends at most because of this request, which has a body of
    /// this length. The length of a list is unknown; it has a last event.
    pub fn most_events(&self, body_bytes: u64) -> u64 {
        let reads = |bytes: u64| bytes / READ_AT_ONCE;
        // a file that is sent may be read before and afterwards, too
        let pieces = |bytes: u64| bytes / SHORTEST_PIECE + 4 + 2 * reads(bytes);
        match self {
            FileRequest::Claim { bytes, .. } => 1 + reads(*bytes),
            // each name has at least a letter and its end
            FileRequest::Inspect { sums, .. } => {
                (body_bytes / 2).saturating_mul(1 + reads(sums.unwrap_or_default()))
            }
            FileRequest::Send(wanted) => {
                let pieces = wanted.files.iter().map(|file| pieces(file.meta.bytes));
                pieces.fold(0, u64::saturating_add)
            }
            FileRequest::Step(FileStep::Open(open)) if open.chained.is_some() => {
                pieces(open.file.bytes)
            }
            FileRequest::Step(FileStep::Open(open)) => 1 + reads(open.file.bytes),
            FileRequest::Find { .. } | FileRequest::Leave | FileRequest::EndDirect => 0,
            _ => 1,
        }
    }
}

impl FileAttributes {
    pub fn is_folder(&self) -> bool {
        is_folder(self.mode)
    }
}

impl FileEvent {
    pub fn landed(results: Vec<(u32, Result<(), FileFault>)>) -> FileEvent {
        let (mut done, mut failed) = (Vec::new(), Vec::new());
        for (id, result) in results {
            match result {
                Ok(()) => done.push(id),
                Err(fault) => failed.push((id, fault)),
            }
        }
        FileEvent::Landed { done, failed }
    }
}

#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FolderReport {
    /// Another push that is at work there. Nothing may be sent before [`FileRequest::Enter`].
    #[serde(default, deserialize_with = "optional_message")]
    pub busy: Option<String>,
    /// Why other hosts that share the directory cannot see that this push is at work there.
    #[serde(default, deserialize_with = "optional_message")]
    pub unlocked: Option<String>,
    /// Free space for this user, in bytes.
    pub free_bytes: Option<u64>,
    /// How many files this user may still make.
    pub free_inodes: Option<u64>,
    /// Whether the file system shows permissions that differ from those it was given.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ignores_modes: bool,
    /// Whether the directory is empty or missing.
    pub empty: bool,
    /// The agent's public key, by which other hosts know it.
    pub key: Option<PublicKey>,
    /// The workspace or a directory above it, if other users may replace its content.
    pub exposed: Option<Exposed>,
    /// Whether this push has made the directory, and members of a group that is not the user's own
    /// may write to it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub open_to_group: bool,
}

/// A directory whose content other users can replace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exposed {
    /// It belongs to one of them.
    Owned(Text),
    /// All of them may write to it, and it has no sticky bit.
    Writable(Text),
}

impl fmt::Display for Exposed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Exposed::Owned(folder) => write!(
                f,
                "{} belongs to another user, who can replace what is below it",
                shown(folder)
            ),
            Exposed::Writable(folder) => write!(
                f,
                "other users can write to {}, and so replace what is below it",
                shown(folder)
            ),
        }
    }
}

#[skip_serializing_none]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    #[serde(rename = "size")]
    pub bytes: u64,
    /// Type and permission bits, in the form of stat(2).
    pub mode: u32,
    /// The modification time: seconds and nanoseconds since 1970.
    pub mtime: (i64, u32),
    /// Another inode is another file, even with the same time.
    pub inode: u64,
    /// How many bytes of a listed file are sent, if holes make these fewer than its size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent: Option<u64>,
    /// The checksum of the content, if requested and readable.
    pub sum: Option<Sum>,
    /// Whether any user of the host may have put it there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub foreign: bool,
}

impl Meta {
    pub fn is_file(&self) -> bool {
        self.mode & 0o170_000 == 0o100_000
    }

    /// Whether both describe the same version of a file. Holes may change without a write: tmpfs
    /// fills those that are read through a mapping.
    pub fn is_same_version(&self, other: &Meta) -> bool {
        let (sent, foreign) = (other.sent, other.foreign);
        Meta {
            sent,
            foreign,
            ..*self
        } == *other
    }

    pub fn is_folder(&self) -> bool {
        is_folder(self.mode)
    }
}

pub const FOLDER: u32 = 0o040_000;

fn is_folder(mode: u32) -> bool {
    mode & 0o170_000 == FOLDER
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundFile {
    /// Relative to the directory of [`FileRequest::Give`].
    pub path: Text,
    pub meta: Meta,
}

/// A directory whose names cannot be read, a file or directory whose attributes cannot, or what has
/// no content to copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unreadable {
    /// Relative to the directory of [`FileRequest::Give`].
    pub path: Text,
    pub fault: FileFault,
    /// Whether it is a link to a file, so that nothing can be below it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_file: bool,
}

/// The most characters shown of a path that a host names: Linux's limit (PATH_MAX). A tool keeps
/// the fault of each file, and a message may hold a megabyte.
const MAX_SHOWN: usize = 4096;

fn shown(folder: &Text) -> String {
    cut(&folder.path().display().to_string(), MAX_SHOWN)
}

/// What to do about a link that may not be followed.
const REAL_PATH: &str = "give its real path, which `realpath` shows";

/// Why a file could not be written or read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileFault {
    System(i32),
    /// A symbolic link leads out of the directory below which all files belong.
    LeadsOut(Text),
    /// A symbolic link on the path to this directory was made by another user.
    LinkOfOther(Text),
    /// This user namespace does not show who made a symbolic link on the path to this directory.
    UnknownLink(Text),
    /// Another user may have named a symbolic link on the path to this directory.
    RenamedLink(Text),
    /// Bytes are missing.
    NotWhole,
    /// The received content has another checksum than the sent one.
    OtherSum,
    OutOfOrder,
    /// It is not the listed version, or changed while it was read.
    Changed,
    NoFile,
    /// It is a symbolic link to nothing.
    BrokenLink,
    /// The file to be replaced, of which parts should be kept, changed after its checksums were
    /// computed.
    EarlierChanged,
}

impl From<std::io::Error> for FileFault {
    fn from(error: std::io::Error) -> FileFault {
        // an error without a number was made by the standard library from a short write
        FileFault::System(error.raw_os_error().unwrap_or(5))
    }
}

impl FileFault {
    /// Whether the name has no content to copy: a special file, or a link that is broken or leads
    /// back to a directory above it.
    pub fn is_of_no_file(&self) -> bool {
        const ELOOP: i32 = 40;
        matches!(
            self,
            FileFault::NoFile | FileFault::BrokenLink | FileFault::System(ELOOP)
        )
    }

    /// The message for a fault on this machine.
    pub fn here(&self) -> String {
        match self {
            FileFault::System(number) => std::io::Error::from_raw_os_error(*number).to_string(),
            FileFault::EarlierChanged => {
                "the file that is here changed while it was compared".to_owned()
            }
            FileFault::LeadsOut(folder) => {
                format!(
                    "{} is a symbolic link that leads out of --to",
                    shown(folder)
                )
            }
            other => other.to_string(),
        }
    }
}

impl fmt::Display for FileFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const EFBIG: i32 = 27;
        match self {
            FileFault::System(EFBIG) => {
                f.write_str("it is larger than the host's limit on the size of files (ulimit -f)")
            }
            FileFault::System(number) => {
                write!(f, "{}", std::io::Error::from_raw_os_error(*number))
            }
            FileFault::LeadsOut(folder) => {
                write!(f, "{} leads out of the workspace by a link", shown(folder))
            }
            FileFault::LinkOfOther(folder) => write!(
                f,
                "{} is reached by a symbolic link that belongs to another user",
                shown(folder)
            ),
            FileFault::UnknownLink(folder) => write!(
                f,
                "{} is reached by a symbolic link whose owner this user namespace does not show: \
                 {REAL_PATH}",
                shown(folder)
            ),
            FileFault::RenamedLink(folder) => write!(
                f,
                "{} is reached by a symbolic link in a directory in which other users can rename \
                 it: {REAL_PATH}",
                shown(folder)
            ),
            FileFault::NotWhole => f.write_str("it did not arrive whole"),
            FileFault::OtherSum => {
                f.write_str("its content arrived with another sum than it was sent with")
            }
            FileFault::OutOfOrder => f.write_str("its parts came out of order"),
            FileFault::Changed => f.write_str("it changed on the host while it was read"),
            FileFault::NoFile => f.write_str("it is not a regular file"),
            FileFault::BrokenLink => f.write_str("it is a broken symbolic link"),
            FileFault::EarlierChanged => f.write_str(
                "the file that is there changed while it was compared; run this again, which \
                 compares it again",
            ),
        }
    }
}

/// A BLAKE3 checksum.
pub type Sum = Hex<32>;
/// An Ed25519 key.
pub type PublicKey = Hex<32>;

/// Bytes that are hexadecimal digits in JSON.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Hex<const N: usize>(pub [u8; N]);

impl<const N: usize> fmt::Display for Hex<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&record::hex::encode(&self.0))
    }
}

impl<const N: usize> fmt::Debug for Hex<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl<const N: usize> Hex<N> {
    fn parse(text: &str) -> Option<Hex<N>> {
        record::hex::decode(text)?.try_into().ok().map(Hex)
    }
}

impl Sum {
    /// Parses the checksums behind a line; `None` if there is a remainder.
    pub fn list(bytes: &[u8]) -> Option<Vec<Sum>> {
        let (sums, rest) = bytes.as_chunks::<32>();
        rest.is_empty()
            .then(|| sums.iter().map(|sum| Hex(*sum)).collect())
    }
}

impl<const N: usize> Serialize for Hex<N> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de, const N: usize> Deserialize<'de> for Hex<N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Hex<N>, D::Error> {
        let text = String::deserialize(deserializer)?;
        let wrong = || serde::de::Error::custom(format!("not {} hexadecimal digits", 2 * N));
        Hex::parse(&text).ok_or_else(wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_has_64_digits() {
        let sum: Sum = Hex(std::array::from_fn(|index| (index * 9) as u8));
        let json = serde_json::to_string(&sum).unwrap();
        assert_eq!(serde_json::from_str::<Sum>(&json).unwrap(), sum);
        for json in [
            "\"00\"".to_owned(),
            format!("\"{}é\"", "0".repeat(62)),
            format!("\"{}\"", "g".repeat(64)),
        ] {
            assert!(serde_json::from_str::<Sum>(&json).is_err(), "{json}");
        }
        assert_eq!(Sum::list(&[sum.0, sum.0].concat()), Some(vec![sum, sum]));
        assert_eq!(Sum::list(&[0; 33]), None);
    }

    /// One host's key is sent to all others.
    #[test]
    fn a_text_that_is_no_key_is_no_message() {
        let digits = "0".repeat(64);
        for (key, is_key) in [
            (digits.as_str(), true),
            ("", false),
            (&"0".repeat(1 << 19), false),
        ] {
            let ready = format!(r#"{{"kind":"ready","empty":true,"key":"{key}"}}"#);
            let listening = format!(r#"{{"kind":"listening","port":1,"key":"{key}"}}"#);
            for line in [ready, listening] {
                assert_eq!(serde_json::from_str::<FileEvent>(&line).is_ok(), is_key);
            }
        }
    }

    #[test]
    fn the_space_of_a_file_is_no_part_of_its_version() {
        let listed = Meta {
            bytes: 7,
            mode: 0o100_644,
            mtime: (1, 2),
            inode: 3,
            sent: Some(0),
            sum: None,
            foreign: false,
        };
        let table = [
            (
                Meta {
                    sent: None,
                    ..listed
                },
                true,
            ),
            (Meta { bytes: 8, ..listed }, false),
            (
                Meta {
                    mtime: (1, 3),
                    ..listed
                },
                false,
            ),
            (Meta { inode: 4, ..listed }, false),
        ];
        for (read, same) in table {
            assert_eq!(listed.is_same_version(&read), same, "{read:?}");
        }
    }

    #[test]
    fn no_size_is_taken_for_what_stands_behind_the_line() {
        let file = FileAttributes {
            id: 1,
            dst: "/w/a".into(),
            bytes: 7,
            mode: 0o600,
            mtime: None,
        };
        let open = Open {
            file,
            partial_key: String::new(),
            keep: Vec::new(),
            keep_sum: None,
            chained: None,
        };
        let steps = [
            FileRequest::Step(FileStep::Open(open)),
            FileRequest::Claim {
                partial_key: String::new(),
                bytes: 7,
                dst: None,
            },
        ];
        for step in steps {
            let json = serde_json::to_string(&step).unwrap();
            assert!(
                json.contains("\"size\":7") && !json.contains("\"bytes\""),
                "{json}"
            );
        }
    }

    #[test]
    fn a_step_is_one_flat_object() {
        let step = FileStep::Write(Block {
            id: 3,
            offset: 5,
            content: Content {
                length: 2,
                packed: false,
                sum: Some(Hex([255; 16])),
            },
        });
        let sum = "ff".repeat(16);
        let line = format!(r#"{{"step":"write","id":3,"offset":5,"length":2,"sum":"{sum}"}}"#);
        let request = FileRequest::Step(step.clone());
        assert_eq!(serde_json::to_string(&request).unwrap(), line);
        assert_eq!(serde_json::from_str::<FileRequest>(&line).unwrap(), request);
        let event = FileEvent::Step(step);
        let line = line.replacen('{', r#"{"kind":"step","#, 1);
        assert_eq!(serde_json::to_string(&event).unwrap(), line);
        assert_eq!(serde_json::from_str::<FileEvent>(&line).unwrap(), event);
    }
}
