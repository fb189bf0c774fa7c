//! Messages about the checks on a host before a job starts, and the claim that precedes them.
//!
//! The claim is sent first. Each [`Check`] asks about one subject and is answered by its
//! [`Finding`]s; a check without findings is answered by [`crate::Event::Done`] alone.

use crate::files::Sum;
use crate::text::line;
use record::Role;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use std::net::SocketAddrV4;

/// What could not be claimed, because another job holds it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    /// What is claimed and by which job, as this job's problem.
    #[serde(flatten)]
    pub problem: Problem,
    /// Whether that job has claimed all of its hosts. Otherwise it may still give up.
    pub confirmed: bool,
}

/// A subject to check. The agent derives details from the job and its processes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "check", rename_all = "snake_case")]
pub enum Check {
    /// The processes' directories, scripts and ip_config, the partition config with this host's
    /// files, and the room for them in /dev/shm.
    Files,
    /// The limit on open files, which graph servers need.
    OpenFiles,
    /// The ports that the processes will listen on.
    Ports,
    /// This user's other jobs of the same name, and processes of jobs without a supervisor.
    Jobs,
    /// Files of DGL in /dev/shm; or whether the job can have a private /dev/shm.
    SharedMemory,
    /// Whether the kernel accepts the arguments and variables of all processes (ARG_MAX).
    ArgumentSizes,
    /// Whether each command can be run in its environment.
    Commands,
    /// Listens for test connections of other hosts, if processes here will communicate with theirs.
    Listen,
    /// Connects to other hosts that listen, and sends 64 KiB each way on the first connection to
    /// each address.
    Connect { targets: Vec<SocketAddrV4> },
    /// Stops listening.
    StopListening,
}

/// A module that a Python may have to find. The launcher writes its name into advice, so a host
/// cannot name others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Module {
    Dgl,
    Torch,
}

impl Module {
    pub const ALL: [Module; 2] = [Module::Dgl, Module::Torch];

    pub fn name(self) -> &'static str {
        match self {
            Module::Dgl => "dgl",
            Module::Torch => "torch",
        }
    }
}

#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "found", rename_all = "snake_case")]
pub enum Finding {
    /// Something that may prevent the start.
    Problem(Problem),
    /// A file that must be the same on all hosts that have it.
    Content {
        /// The program whose script it is. Other programs may run scripts of the same name.
        program: Option<Role>,
        /// The file, for users.
        #[serde(deserialize_with = "line")]
        file: String,
        hash: Sum,
    },
    IpConfig {
        /// Of its lines as `record::ip_config` writes them.
        hash: Sum,
    },
    /// The graph that the partition config describes.
    Graph {
        num_parts: u64,
        #[serde(deserialize_with = "line")]
        graph_name: String,
    },
    /// The version of dgl that a command imports.
    Dgl {
        #[serde(deserialize_with = "line")]
        version: String,
    },
    Listens {
        /// The named port, if the host could listen on it.
        port: Option<u16>,
        /// A free port on which it listens, too.
        ephemeral: u16,
    },
    Unreached {
        target: SocketAddrV4,
        #[serde(deserialize_with = "line")]
        why: String,
    },
    /// Small packets pass to and from another host, but large ones are lost.
    LosesLargePackets {
        target: SocketAddrV4,
        /// Whether packets from this host are lost; otherwise packets to it.
        outward: bool,
    },
}

/// Something that may prevent the start, in words of the host that found it. The launcher adds the
/// host and, by the subject alone, the fix, because users paste that.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    pub about: Subject,
    /// One line.
    #[serde(deserialize_with = "line")]
    pub problem: String,
    /// What differs from host to host, such as process numbers. A message about several hosts omits
    /// it.
    #[serde(
        default,
        deserialize_with = "line",
        skip_serializing_if = "String::is_empty"
    )]
    pub detail: String,
}

impl Problem {
    pub fn new(about: Subject, problem: impl Into<String>) -> Problem {
        Problem {
            about,
            problem: problem.into(),
            detail: String::new(),
        }
    }

    pub fn with(self, detail: String) -> Problem {
        Problem { detail, ..self }
    }
}

impl From<Problem> for Finding {
    fn from(problem: Problem) -> Finding {
        Finding::Problem(problem)
    }
}

/// What a problem is about, with all that determines its fix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// Another job has the name.
    Name {
        /// Whether that job is another user's.
        foreign: bool,
    },
    /// Processes of a job without a supervisor.
    Abandoned,
    /// A port, and perhaps /dev/shm too, that is in use.
    Port(Holder),
    /// A port that cannot be bound.
    UnusablePort,
    /// A port with connections of an ended server, in TIME_WAIT.
    LingeringPort {
        /// Whether no process can listen on it. Otherwise only processes without SO_REUSEADDR
        /// cannot, such as those of DGL 0.5.
        blocks: bool,
    },
    Address,
    /// Other hosts, or their ports.
    Reach,
    LargePackets,
    /// Files of DGL in /dev/shm that are in use.
    SharedMemory(Holder),
    /// Unused files of DGL in /dev/shm.
    StaleSharedMemory {
        /// Whether they are another user's, whose processes cannot be seen.
        foreign: bool,
    },
    SharedMemoryRoom,
    PrivateSharedMemory,
    /// A directory or file that is missing.
    File,
    /// A file that only DGL 0.5 finds: its path is relative to the working directory, not the
    /// partition config.
    OldPath,
    Permission,
    /// A copied file that differs from the records or from other hosts' copies.
    Copy,
    Partitions,
    OpenFiles,
    /// A command's first word.
    Command {
        path: bool,
    },
    /// A script with the line ends of Windows.
    LineEnds,
    /// A file on a file system that is mounted with noexec.
    MountedNoexec,
    /// A file that this user has no permission to execute.
    NotExecutable,
    /// A shell that does not run the text it gets.
    Shell,
    /// Arguments and variables that are too long.
    ArgumentSizes,
    /// A Python that does not run.
    Python,
    /// A module that a Python does not find.
    Module(Module),
    /// An answer that takes long.
    Answer,
    Host,
    /// Something without a known fix.
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Holder {
    Job,
    /// Another user's job, or one that does not answer.
    ForeignJob,
    /// A process of no job.
    Process,
    /// A process that this user cannot see.
    Hidden,
}

impl Holder {
    /// Whether it is a job, whose end can be awaited.
    pub fn is_job(self) -> bool {
        matches!(self, Holder::Job | Holder::ForeignJob)
    }
}
