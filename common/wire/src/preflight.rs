//! What is looked at on a host before a job starts, and the claim under which that happens.
//!
//! A [`Claim`] comes first. A [`Check`] each is asked about one thing, and answered by the
//! [`Finding`]s that it has; one that finds nothing to tell is answered by [`crate::Event::Done`]
//! alone.

use crate::Text;
use serde::{Deserialize, Serialize};
use std::net::{Ipv4Addr, SocketAddrV4};

/// What a job takes on a host, beside its name, from the first look on and for as long as it lives.
/// All of it is taken or nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Claim {
    /// The ports that its processes will listen on.
    pub ports: Vec<Port>,
    /// Whether it has graph servers that use the host's own /dev/shm, which two jobs of DGL cannot
    /// share.
    pub shared_memory: bool,
}

/// A port that a process will listen on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Port {
    /// The number of the port.
    pub port: u16,
    /// The address it is bound to; any address of the host where this is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<Ipv4Addr>,
}

/// What could not be claimed, because another job has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    /// What is taken.
    pub what: Claimed,
    /// The job that has it.
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
    /// /dev/shm, as far as DGL uses it.
    SharedMemory,
}

/// A job that holds a claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claimant {
    /// Its name, as it says itself; absent where the holder does not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// The user that it belongs to, if that is not the one who asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The process that holds the claim: the job's agent. Absent where it is in a container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// How long it has had the claim, in milliseconds.
    pub age_ms: u64,
    /// Whether it has all of its hosts. One that has not may still give up.
    pub confirmed: bool,
}

/// One thing that is looked at. Paths are relative to a folder, that one to the home of the login.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "check", rename_all = "snake_case")]
pub enum Check {
    /// A folder is there.
    Folder {
        /// The path that is looked at.
        path: Text,
    },
    /// A file is there and can be read.
    File {
        /// The folder that `path` is relative to. Nothing is told where it does not exist.
        folder: Text,
        /// The path that is looked at.
        path: Text,
    },
    /// What the ip_config of the workspace says: [`Finding::IpConfig`].
    IpConfig {
        /// The folder that `path` is relative to.
        folder: Text,
        /// The path that is looked at.
        path: Text,
    },
    /// The partition config, the files of this host's partition, and room for it in /dev/shm.
    PartitionConfig {
        /// The folder that `path` is relative to.
        folder: Text,
        /// The path that is looked at.
        path: Text,
        /// The partition that graph servers of this host load; absent where none runs here.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        part: Option<u32>,
        /// The job gets a /dev/shm of its own, which may hold half of the memory.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        private_shm: bool,
    },
    /// A process may have so many files open.
    OpenFiles {
        /// How many files the process must be able to open.
        need: u64,
    },
    /// Ports can be listened on.
    Ports {
        /// The ports to be tried.
        ports: Vec<Port>,
    },
    /// Jobs of this user that run here by the name of this one, and processes of jobs that have
    /// died.
    Jobs,
    /// Files of DGL in /dev/shm.
    SharedMemory,
    /// The job can have a /dev/shm of its own.
    PrivateSharedMemory,
    /// The command of a process can be run in its environment.
    Command {
        /// The `index` of the process.
        process: u32,
        /// Set if the command is a Python: what it is asked.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        python: Option<PythonQuestion>,
    },
    /// Listens so that the other hosts can connect: on a free port, and on this one where no other
    /// job can be in need of it.
    Listen {
        /// The host's address.
        address: Ipv4Addr,
        /// A port of the job, which it has claimed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        port: Option<u16>,
    },
    /// Connects to other hosts that listen.
    Connect {
        /// The addresses to connect to.
        targets: Vec<SocketAddrV4>,
    },
    /// Listens no longer.
    StopListening,
}

/// What a Python is asked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PythonQuestion {
    /// The script that it will run. Without one it runs a module.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub script: Option<Text>,
    /// The modules that it must find.
    pub modules: Vec<String>,
}

/// What a check has found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "found", rename_all = "snake_case")]
pub enum Finding {
    /// There is no such folder.
    NoFolder {
        /// The path that is looked at.
        path: Text,
    },
    /// There is no such file.
    NoFile {
        /// The whole path.
        path: Text,
    },
    /// A file is there and cannot be read.
    Unreadable {
        /// The whole path.
        path: Text,
    },
    /// The ip_config; its text stands behind this event.
    IpConfig,
    /// The partition config, as far as a launcher can judge it.
    PartitionConfig {
        /// A hash of its content.
        hash: String,
        /// Its `num_parts`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        num_parts: Option<u64>,
        /// Its `graph_name`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        graph_name: Option<String>,
    },
    /// The partition config has nothing of this host's partition.
    NoPartition {
        /// The config.
        config: Text,
        /// The partition.
        part: u32,
    },
    /// The partition config names no graph for this host's partition.
    NoGraph {
        /// The config.
        config: Text,
        /// The partition.
        part: u32,
    },
    /// A file of the partition lies where only DGL 0.5 looks for it: it is not relative to the
    /// config but to the working directory.
    Elsewhere {
        /// Where later versions look.
        path: Text,
    },
    /// The partition does not fit into /dev/shm.
    SmallSharedMemory {
        /// What its files have.
        need_bytes: u64,
        /// The room there.
        free_bytes: u64,
    },
    /// The job cannot have a /dev/shm of its own.
    NoPrivateSharedMemory {
        /// The error, in the words of the operating system.
        error: String,
    },
    /// A process cannot have as many open files as it needs.
    FewOpenFiles {
        /// The hard limit.
        limit: u64,
        /// What is needed.
        need: u64,
    },
    /// A port is taken.
    PortTaken {
        /// The number of the port.
        port: u16,
        /// The process that has it.
        by: Owner,
    },
    /// Connections of a server that has ended are still in TIME_WAIT on a port.
    PortLingers {
        /// The number of the port.
        port: u16,
        /// Whether nobody can listen there. Otherwise only those cannot that do not set
        /// SO_REUSEADDR, as DGL 0.5.
        blocks: bool,
    },
    /// A port cannot be bound for another reason.
    PortUnusable {
        /// The number of the port.
        port: u16,
        /// The error, in the words of the operating system.
        error: String,
    },
    /// An address that processes of the job will bind is none of this host's.
    ForeignAddress {
        /// The address.
        address: Ipv4Addr,
    },
    /// A job of this name runs here.
    NameInUse,
    /// Processes of a job run here that nobody watches any more.
    Abandoned {
        /// The name of the job.
        job: String,
        /// The processes.
        pids: Vec<u32>,
    },
    /// Files of DGL in /dev/shm.
    SharedMemory {
        /// To whom the files belong.
        state: SharedFiles,
        /// How many files there are.
        files: u64,
        /// Their sizes together. (A field `bytes` would announce a frame.)
        total_bytes: u64,
    },
    /// There is no such command in the environment of the process.
    NoCommand {
        /// Its first word.
        word: Text,
    },
    /// The command is a Python, and it does not run.
    NoPython {
        /// The last line that it said, or why it could not be started.
        said: String,
    },
    /// The command is a Python, and it runs.
    Python {
        /// Its own path.
        executable: String,
        /// Its version.
        version: String,
        /// Modules that it does not find.
        missing: Vec<String>,
        /// The version of dgl that it would import.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        dgl: Option<String>,
    },
    /// The host listens.
    Listens {
        /// The named port, if the host could listen on it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        port: Option<u16>,
        /// The free port on which the host listens as well.
        ephemeral: u16,
    },
    /// A connection could not be made.
    Unreached {
        /// The address that was tried.
        target: SocketAddrV4,
        /// The reason.
        why: Unreachable,
    },
}

/// A process as people know it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Owner {
    /// Its number; absent where only its user may see that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Its command line or, where it has none, its name; cut.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// The job that it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// Its user, if that is not the one who asks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

/// Whose files of DGL are in /dev/shm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SharedFiles {
    /// A process has them mapped.
    Used(Owner),
    /// They are this user's and nobody has them mapped; one of them.
    Stale(Text),
    /// They are another user's, and no process is seen that has them mapped; the user.
    Foreign(String),
}

/// Why a connection could not be made.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unreachable {
    /// Nothing came back.
    TimedOut,
    /// The host, or something in between, refused it.
    Refused,
    /// What else the system says.
    Other(String),
}
