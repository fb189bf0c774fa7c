//! Files on their way to a host and from it: part-push and part-pull.
//!
//! To a host: `receive` takes a folder; `look`, `peers` and `claim` ask what is there; small files
//! come many in a [`Batch`], larger ones as `begin`, any number of `block`s and `end`. From a host:
//! `give`, `find`, then `read` for content. From host to host: `hand_on`, and over the connection
//! that is made for it `handed`, `block`s and `close`. Requests are not waited for one by one: each
//! is answered in its order, and `sync` tells how far the agent has come. Sizes are called `size`,
//! because `bytes` in a line announces what stands behind it. Content stands behind its line, at
//! most [`crate::codec::MAX_BODY`] bytes, with its BLAKE3 sum in the line.

use crate::Text;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::net::Ipv4Addr;

/// The content of one message at most.
pub const BLOCK: u64 = crate::codec::MAX_BODY as u64;
/// Files in one message at most, so that its line stays well below [`crate::codec::MAX_LINE`]: a
/// path has 4096 bytes at most.
pub const FILES_AT_ONCE: usize = 128;

/// What is asked. In a request, `{"do":"file","step":"…",…}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "snake_case")]
pub enum FileRequest {
    /// Files come; answered by [`FileEvent::Ready`].
    Receive(Receive),
    /// Files are fetched; answered by [`FileEvent::Ready`].
    Give(Give),
    /// What is there under these names, which stand behind the line, each ended by NUL; answered by
    /// [`FileEvent::There`], in their order.
    Look {
        /// With the sum of each file's content.
        sums: bool,
    },
    /// Which hosts of this push see the same folder; answered by [`FileEvent::Peers`].
    Peers,
    /// Takes what an earlier push left of a file; answered by [`FileEvent::Partial`].
    Claim {
        /// The name of what is left of it.
        key: String,
        /// The size of the whole file.
        #[serde(rename = "size")]
        bytes: u64,
        /// Where nothing is left of it, the file that has its place now.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        dst: Option<Text>,
    },
    /// Makes an empty folder; answered by [`FileEvent::Landed`].
    Folder {
        /// The number of the delivery.
        id: u32,
        /// The path of the folder on the host.
        dst: Text,
    },
    /// Small files, whose content stands behind the line; answered by [`FileEvent::Landed`].
    Batch(Batch),
    /// A file whose content comes in blocks.
    Begin(Begin),
    /// From here on the blocks of a file come in any order, over several connections.
    Scatter {
        /// The number of the delivery.
        id: u32,
    },
    /// A part of a file.
    Block(Block),
    /// A part of a file that is all zeros.
    Zeros(Zeros),
    /// All of a file has come: it gets its name. Answered by [`FileEvent::Landed`].
    End {
        /// The number of the delivery.
        id: u32,
    },
    /// What comes of a file goes on to another host; answered by [`FileEvent::HandedOn`] when that
    /// has all of it, or cannot be reached any more.
    HandOn(HandOn),
    /// It goes no longer to that host.
    KeepBack {
        /// The number of the delivery.
        id: u32,
        /// The number of the other host.
        host: u32,
    },
    /// The first word of another host over a connection of its own: parts of a file come, as
    /// [`FileRequest::Block`] and [`FileRequest::Zeros`], and then [`FileRequest::Close`] and
    /// [`FileRequest::Sync`]; nothing else may.
    Handed {
        /// The name of what has come of it.
        key: String,
    },
    /// No more of a file comes over this connection; of one that was begun over it, over none.
    Close {
        /// The number of the delivery.
        id: u32,
    },
    /// A file is not wanted any more; what has come of it is removed.
    Discard {
        /// The number of the delivery.
        id: u32,
    },
    /// Answered by [`FileEvent::Synced`] with the same number when all before it has been dealt
    /// with.
    Sync {
        /// A number that the caller chooses and the answer repeats.
        number: u64,
    },
    /// Opens a port to which this tool alone can connect; answered by [`FileEvent::Listening`].
    Listen(Listen),
    /// The first word over such a connection: the conversation of the login will go on over it.
    Continue,
    /// What follows comes over the connection that said [`FileRequest::Continue`], and is answered
    /// there, until that ends or something comes over the login again.
    Move,
    /// Which files and empty folders are there; answered by [`FileEvent::Found`], the last of them
    /// with `last`.
    Find {
        /// Files, and folders with all below them; relative to the folder of [`Give`].
        roots: Vec<Text>,
    },
    /// Whole files of at most [`BLOCK`] bytes each; answered by [`FileEvent::Batch`], each file in
    /// one of them, in their order.
    ReadSmall {
        /// Which, at most [`FILES_AT_ONCE`].
        files: Vec<Named>,
    },
    /// A part of a file; answered by [`FileEvent::Block`] or [`FileEvent::Zeros`] in order, and
    /// [`FileEvent::Read`].
    Read {
        /// The file.
        file: Named,
        /// The offset of the part in the file, in bytes.
        at: u64,
        /// The length of the part, in bytes.
        length: u64,
    },
    /// The sums of parts of a file; answered by [`FileEvent::Sums`].
    Sum {
        /// The file.
        file: Named,
        /// The size of the whole file.
        #[serde(rename = "size")]
        bytes: u64,
        /// Begin and end of each part.
        parts: Vec<(u64, u64)>,
    },
}

/// A folder takes files from here on; for this push alone, unless `dry`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receive {
    /// All files go below it.
    pub base: Text,
    /// A word of letters and digits that names the push.
    pub run: String,
    /// The number of this host.
    pub host: u32,
    /// Nothing is written.
    #[serde(default)]
    pub dry: bool,
    /// Each file is put on the disk before it gets its name, and its folder after that.
    #[serde(default)]
    pub fsync: bool,
    /// One more connection of a push that has the folder already.
    #[serde(default)]
    pub lane: bool,
}

/// A way to the host beside the login.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listen {
    /// The address to listen on, and no other.
    pub address: Ipv4Addr,
    /// The port; 0 for one that the system chooses.
    pub port: u16,
    /// The tool's public key.
    pub key: String,
    /// Public keys of hosts that may hand files on. Nobody else is let in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
}

/// Another host that what comes of a file goes on to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandOn {
    /// The number of the delivery, here.
    pub id: u32,
    /// The name of what has come of it, on both hosts.
    pub key: String,
    /// The number of the other host.
    pub host: u32,
    /// The number of the delivery there.
    pub there: u32,
    /// Where the other host listens,
    pub address: Ipv4Addr,
    /// on which port,
    pub port: u16,
    /// and its public key.
    pub peer: String,
    /// What it lacks: begin and end of each part.
    pub parts: Vec<(u64, u64)>,
}

/// A folder whose files are fetched; nothing is written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Give {
    /// The folder; `~` in front is the home there.
    pub base: Text,
}

/// A small file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Small {
    /// The number of the delivery.
    pub id: u32,
    /// The path on the host, absolute.
    pub dst: Text,
    /// The size of the whole file.
    #[serde(rename = "size")]
    pub bytes: u64,
    /// Permission bits.
    pub mode: u32,
    /// When it was changed, seconds and nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtime: Option<(i64, u32)>,
}

/// Small files, one behind the other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batch {
    /// At most [`FILES_AT_ONCE`], of [`BLOCK`] bytes in all.
    pub files: Vec<Small>,
    /// How the content stands behind the line.
    #[serde(flatten)]
    pub content: Content,
}

/// How content stands behind its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Content {
    /// The length of the content before compression, in bytes.
    pub length: u32,
    /// Whether the content is a zstd frame.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub packed: bool,
    /// The BLAKE3 sum of the content before compression.
    pub sum: Sum,
}

/// A file whose content comes in blocks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begin {
    /// What it will be.
    #[serde(flatten)]
    pub file: Small,
    /// The name of what has come of it: two words of hexadecimal digits, of its place and of its
    /// version.
    pub key: String,
    /// What of an earlier push stays: begin and end of each part.
    #[serde(default)]
    pub keep: Vec<(u64, u64)>,
    /// These parts are taken over from the file that has its place now.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub earlier: bool,
    /// Another connection has begun it; over this one come parts of it in any order.
    #[serde(default)]
    pub scattered: bool,
    /// Hosts hand it on: it comes in any order, and [`FileEvent::Came`] tells of what has come.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub chained: bool,
    /// It takes less room than its size says, so no room is taken for all of it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sparse: bool,
}

/// A part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    /// The number of the delivery.
    pub id: u32,
    /// The offset of the part in the file, in bytes.
    pub at: u64,
    /// How it stands behind the line.
    #[serde(flatten)]
    pub content: Content,
}

/// A part of a file in place of which nothing is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Zeros {
    /// Which file it is.
    pub id: u32,
    /// Where it begins.
    pub at: u64,
    /// How long it is.
    pub length: u64,
}

/// A file by its name, and by a number for the answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Named {
    /// A number that the caller chooses and the answer repeats.
    pub id: u32,
    /// Relative to the folder of [`Give`].
    pub path: Text,
}

/// What is told of files. In an event, `{"event":"file","told":"…",…}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "told", rename_all = "snake_case")]
pub enum FileEvent {
    /// The folder is taken.
    Ready {
        /// Room for this user on its file system.
        free_bytes: Option<u64>,
        /// There is nothing in it.
        empty: bool,
        /// The agent's public key, by which other hosts know it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<String>,
    },
    /// What is there, in the order of the question; `None` for nothing.
    There {
        /// So many of the names, the next behind those of the last such answer.
        entries: Vec<Option<Meta>>,
    },
    /// The hosts of this push that see the same folder.
    Peers {
        /// The numbers of those hosts.
        hosts: Vec<u32>,
    },
    /// What is there of a file that was claimed; the sums of its parts stand behind the line, 32
    /// bytes each.
    Partial {
        /// The name under which the part of the file is kept.
        key: String,
        /// Begin and end of each part; empty for none.
        parts: Vec<(u64, u64)>,
        /// They are of the file that has its place now.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        earlier: bool,
    },
    /// What has come of a file that hosts hand on; of very many parts the first.
    Came {
        /// The number of the delivery.
        id: u32,
        /// Begin and end of each part.
        parts: Vec<(u64, u64)>,
    },
    /// A host has all of a file that was to be handed on to it, or gets no more of it.
    HandedOn {
        /// The number of the delivery, on the host that says so.
        id: u32,
        /// The number of the other host.
        host: u32,
        /// Why it gets no more.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        problem: Option<String>,
        /// It could not be reached at all.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        unreached: bool,
    },
    /// What became of deliveries.
    Landed {
        /// These are there, whole.
        done: Vec<u32>,
        /// These are not.
        failed: Vec<(u32, Fault)>,
    },
    /// The port is open, or why it is not.
    Listening {
        /// The port; 0 where there is none.
        port: u16,
        /// The agent's public key.
        key: String,
        /// Why there is none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        problem: Option<String>,
    },
    /// The first word over a connection to that port: it is let in.
    Welcome,
    /// All before this [`FileRequest::Sync`] has been dealt with.
    Synced {
        /// The number of the request.
        number: u64,
    },
    /// Nothing came from the tool for too long, and it is taken for gone.
    Silence {
        /// The length of the silence, in seconds.
        seconds: u64,
    },
    /// What is there.
    Found {
        /// Files and empty folders.
        entries: Vec<Found>,
        /// No more come.
        last: bool,
    },
    /// Small files, one behind the other.
    Batch {
        /// Which, and how much of the content is each one's.
        files: Vec<Read>,
        /// How the content stands behind the line.
        #[serde(flatten)]
        content: Content,
    },
    /// A part of a file.
    Block(Block),
    /// A part of a file that is all zeros.
    Zeros(Zeros),
    /// The end of what was read of a file.
    Read(Read),
    /// The sums of parts of a file stand behind the line, 32 bytes each; none if it cannot be read.
    Sums {
        /// The caller's number.
        id: u32,
    },
}

/// What a host knows of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    /// The size of the whole file.
    #[serde(rename = "size")]
    pub bytes: u64,
    /// Type and permission bits, as stat(2) has them.
    pub mode: u32,
    /// When it was changed, seconds and nanoseconds.
    pub mtime: (i64, u32),
    /// Its inode: another one is another file, whatever its time says.
    pub inode: u64,
    /// Whether it takes less room than its size says: it has holes, or its file system compresses.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sparse: bool,
    /// Of its content, where that was asked for and could be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sum: Option<Sum>,
}

impl Meta {
    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.mode & 0o170_000 == 0o100_000
    }

    /// Whether it is a folder.
    pub fn is_folder(&self) -> bool {
        self.mode & 0o170_000 == 0o040_000
    }
}

/// A file or an empty folder of a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// Relative to the folder of [`Give`].
    pub path: Text,
    /// What it is.
    pub meta: Meta,
}

/// What was read of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Read {
    /// Which.
    pub id: u32,
    /// How much came.
    #[serde(rename = "size")]
    pub bytes: u64,
    /// What it was when all was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
    /// Why not all of it came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<Fault>,
}

/// Why a file could not be written or read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// The operating system's error number.
    System(i32),
    /// A link leads out of the folder that all files belong below.
    LeadsOut(Text),
    /// Bytes are missing.
    NotWhole,
    /// What came has another sum than what was sent.
    OtherSum,
    /// A message that does not fit to those before it.
    OutOfOrder,
    /// No regular file.
    NoFile,
}

impl Fault {
    /// An error of the operating system.
    pub fn system(error: &std::io::Error) -> Fault {
        // what has no number was made by the standard library from a short write
        Fault::System(error.raw_os_error().unwrap_or(5))
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const EFBIG: i32 = 27;
        match self {
            Fault::System(EFBIG) => {
                f.write_str("it is larger than the limit on the size of files there (ulimit -f)")
            }
            Fault::System(number) => write!(f, "{}", std::io::Error::from_raw_os_error(*number)),
            Fault::LeadsOut(folder) => write!(
                f,
                "{} leads out of the workspace by a link",
                folder.path().display()
            ),
            Fault::NotWhole => f.write_str("it did not arrive whole"),
            Fault::OtherSum => {
                f.write_str("its content arrived with another sum than it was sent with")
            }
            Fault::OutOfOrder => f.write_str("its parts came out of order"),
            Fault::NoFile => f.write_str("it is no regular file"),
        }
    }
}

/// A BLAKE3 sum; in JSON 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Sum(pub [u8; 32]);

impl std::fmt::Debug for Sum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.hex())
    }
}

impl Sum {
    fn hex(self) -> String {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let digits = self.0.iter().flat_map(|byte| [byte >> 4, byte & 15]);
        digits
            .map(|digit| char::from(DIGITS[usize::from(digit)]))
            .collect()
    }

    fn from_hex(text: &str) -> Option<Sum> {
        let mut sum = [0; 32];
        if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        for (at, byte) in sum.iter_mut().enumerate() {
            *byte = u8::from_str_radix(text.get(at * 2..at * 2 + 2)?, 16).ok()?;
        }
        Some(Sum(sum))
    }

    /// Sums as they stand behind a line; `None` if it is no whole number of them.
    pub fn list(bytes: &[u8]) -> Option<Vec<Sum>> {
        let (sums, rest) = bytes.as_chunks::<32>();
        rest.is_empty()
            .then(|| sums.iter().map(|sum| Sum(*sum)).collect())
    }
}

impl Serialize for Sum {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.hex())
    }
}

impl<'de> Deserialize<'de> for Sum {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Sum, D::Error> {
        let text = String::deserialize(deserializer)?;
        Sum::from_hex(&text)
            .ok_or_else(|| serde::de::Error::custom("a sum has 64 hexadecimal digits"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_has_64_digits() {
        let sum = Sum(std::array::from_fn(|at| (at * 9) as u8));
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

    #[test]
    fn no_size_is_taken_for_what_stands_behind_the_line() {
        let file = Small {
            id: 1,
            dst: "/w/a".into(),
            bytes: 7,
            mode: 0o600,
            mtime: None,
        };
        let begin = Begin {
            file,
            key: String::new(),
            keep: Vec::new(),
            earlier: false,
            scattered: false,
            chained: false,
            sparse: false,
        };
        let named = Named {
            id: 1,
            path: "a".into(),
        };
        let steps = [
            FileRequest::Begin(begin),
            FileRequest::Claim {
                key: String::new(),
                bytes: 7,
                dst: None,
            },
            FileRequest::Sum {
                file: named,
                bytes: 7,
                parts: Vec::new(),
            },
        ];
        for step in steps {
            let json = serde_json::to_string(&step).unwrap();
            assert!(
                json.contains("\"size\":7") && !json.contains("\"bytes\""),
                "{json}"
            );
        }
        let read = FileEvent::Read(Read {
            id: 1,
            bytes: 7,
            meta: None,
            fault: None,
        });
        assert!(!serde_json::to_string(&read).unwrap().contains("\"bytes\""));
    }

    #[test]
    fn a_step_is_one_flat_object() {
        let step = FileRequest::Block(Block {
            id: 3,
            at: 5,
            content: Content {
                length: 2,
                packed: false,
                sum: Sum([0; 32]),
            },
        });
        let json = serde_json::to_string(&step).unwrap();
        assert!(
            json.starts_with(r#"{"step":"block","id":3,"at":5,"length":2,"sum":"00"#),
            "{json}"
        );
        assert_eq!(serde_json::from_str::<FileRequest>(&json).unwrap(), step);
    }
}
