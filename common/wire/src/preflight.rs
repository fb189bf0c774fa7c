//! Messages about the checks on a host before a job starts, and about the claim that precedes them.
//!
//! The claim is sent first. Each [`Check`] asks about one subject and is answered by its
//! [`Finding`]s; a check without findings is answered by [`crate::Event::Done`] alone.

use crate::Text;
use record::Role;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use std::net::SocketAddrV4;

/// Something that could not be claimed, because another job holds it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    /// The thing that is taken.
    pub claimed: Claimed,
    /// The job that holds it.
    pub by: Claimant,
}

/// One thing that can be claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Claimed {
    /// The name of the job.
    Name,
    /// A port.
    Port(u16),
    /// DGL's use of /dev/shm.
    SharedMemory,
}

/// A job that holds a claim.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claimant {
    /// The name of the job, as its holder reports it; absent if the holder does not answer.
    pub job: Option<String>,
    /// The user to whom the job belongs, if it is not this one.
    pub user: Option<String>,
    /// The process that holds the claim, which is the job's agent; absent if it is in a container.
    pub pid: Option<u32>,
    /// For how long it has held the claim, in milliseconds.
    pub age_ms: u64,
    /// Whether the job has claimed all of its hosts. Otherwise it may still give up.
    pub confirmed: bool,
}

/// A subject to check. The agent derives the details from the job and its processes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "check", rename_all = "snake_case")]
pub enum Check {
    /// The directories and scripts of the processes, their ip_config, the partition config with the
    /// files of this host's partition, and the room for it in /dev/shm.
    Files,
    /// The limit on open files, which graph servers need.
    OpenFiles,
    /// The ports that the processes will listen on.
    Ports,
    /// Other jobs of this user with the same name, and processes of jobs without a supervisor.
    Jobs,
    /// Files of DGL in /dev/shm; or whether the job can have a private /dev/shm.
    SharedMemory,
    /// Whether the kernel accepts the arguments and variables of all processes (ARG_MAX).
    ArgumentSizes,
    /// Whether each command can be run in its environment.
    Commands,
    /// Listens for test connections of other hosts, if processes of this one will communicate with
    /// theirs.
    Listen,
    /// Connects to other hosts that listen, and sends 64 KiB each way on the first connection to
    /// each address.
    Connect {
        /// The addresses to connect to.
        targets: Vec<SocketAddrV4>,
    },
    /// Stops listening.
    StopListening,
}

/// A script that the processes of a program run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Script {
    /// The program. Others may run scripts of the same name.
    pub program: Role,
    /// The directory to which `path` is relative. If it does not exist, there are no findings.
    pub folder: Text,
    /// The path of the script.
    pub path: Text,
}

/// A module that a Python may have to find. The launcher writes its name into advice, so a host
/// cannot name others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Module {
    /// DGL.
    Dgl,
    /// PyTorch.
    Torch,
}

impl Module {
    /// All modules.
    pub const ALL: [Module; 2] = [Module::Dgl, Module::Torch];

    /// The name by which Python imports it.
    pub fn name(self) -> &'static str {
        match self {
            Module::Dgl => "dgl",
            Module::Torch => "torch",
        }
    }
}

/// A finding of a check.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "found", rename_all = "snake_case")]
pub enum Finding {
    /// A problem that prevents the start, whatever the other hosts report.
    Problem {
        /// What the problem is about; the launcher chooses the fix by it.
        about: Subject,
        /// The problem in words.
        problem: String,
    },
    /// The script that the processes run.
    ScriptContent {
        /// The script as the processes name it.
        script: Script,
        /// A hash of its content.
        hash: String,
    },
    /// The ip_config; its text follows this event.
    IpConfig,
    /// The content of the partition config, as far as the launcher compares it.
    PartitionConfig {
        /// A hash of its content.
        hash: String,
        /// Its `num_parts`.
        num_parts: Option<u64>,
        /// Its `graph_name`.
        graph_name: Option<String>,
    },
    /// A file of the partition has a path that is relative to the working directory instead of the
    /// config, so that only DGL 0.5 finds it.
    Elsewhere {
        /// The path that later versions use.
        path: Text,
    },
    /// A port is taken.
    PortTaken {
        /// The number of the port.
        port: u16,
        /// The process that uses it.
        by: Owner,
    },
    /// Connections of a server that has ended are still in TIME_WAIT on a port.
    PortLingers {
        /// The number of the port.
        port: u16,
        /// Whether no process at all can listen on it. Otherwise only processes without
        /// SO_REUSEADDR cannot, such as those of DGL 0.5.
        blocks: bool,
    },
    /// A job of this name runs here.
    NameInUse,
    /// Processes of a job without a supervisor run here.
    Abandoned {
        /// The name of the job.
        job: String,
        /// The process ids.
        pids: Vec<u32>,
    },
    /// There are files of DGL in /dev/shm.
    SharedMemory {
        /// The owner of the files, and whether they are used.
        state: SharedFiles,
        /// How many files there are.
        files: u64,
        /// The sum of their sizes. (A field named `bytes` would announce a frame.)
        total_bytes: u64,
    },
    /// The command is a Python, and it runs.
    Python {
        /// The path of the interpreter itself.
        executable: String,
        /// The version of Python.
        version: String,
        /// The required modules that it does not find.
        missing: Vec<Module>,
        /// The version of dgl that it would import.
        dgl: Option<String>,
    },
    /// The host listens for the others.
    Listens {
        /// The named port, if the host could listen on it.
        port: Option<u16>,
        /// The free port on which the host listens, too.
        ephemeral: u16,
    },
    /// A connection could not be made.
    Unreached {
        /// The address that was tried.
        target: SocketAddrV4,
        /// The reason.
        why: Unreachable,
    },
    /// Small packets pass between this host and another, but large ones are lost.
    LosesLargePackets {
        /// The address that was tried.
        target: SocketAddrV4,
        /// Whether packets from this host are lost; otherwise packets to it.
        outward: bool,
    },
}

impl Finding {
    /// A problem in words.
    pub fn problem(about: Subject, problem: impl Into<String>) -> Finding {
        let problem = problem.into();
        Finding::Problem { about, problem }
    }
}

/// What a problem is about; it determines the fix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// A directory or file that is missing.
    File,
    /// A file that cannot be read.
    Permission,
    /// The content of the partition config.
    PartitionConfig,
    /// The room in /dev/shm.
    SharedMemory,
    /// A private /dev/shm.
    PrivateSharedMemory,
    /// The limit on open files.
    OpenFiles,
    /// A port that cannot be bound.
    Port,
    /// An address that is not the host's.
    Address,
    /// The first word of a command.
    Command,
    /// A shell that does not run the text that it is given.
    Shell,
    /// Words and variables that are too long.
    ArgumentSizes,
    /// A Python that does not run.
    Python,
}

/// A process, described for users.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Owner {
    /// The process id; absent if only its user may see it.
    pub pid: Option<u32>,
    /// The beginning of its command line, or its name if that is empty.
    pub command: Option<String>,
    /// The job to which it belongs.
    pub job: Option<String>,
    /// Its user, if it is not the user who asks.
    pub user: Option<String>,
}

/// The owner of DGL's files in /dev/shm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SharedFiles {
    /// A process has them mapped.
    Used(Owner),
    /// They belong to this user and no process maps them; the name of one of them.
    Stale(Text),
    /// They belong to another user, and no visible process has them mapped; the name of the user.
    Foreign(String),
}

/// Why a connection could not be made.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unreachable {
    /// No answer arrived in time.
    TimedOut,
    /// The host, or a firewall in between, refused it.
    Refused,
    /// Another error, in the words of the operating system.
    Other(String),
}
