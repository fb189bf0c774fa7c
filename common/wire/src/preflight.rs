//! Messages about the examination of a host before a job starts, and about the claim under which it
//! happens.
//!
//! A [`Claim`] is sent first. Each [`Check`] asks about one thing, and is answered by its
//! [`Finding`]s; a check without findings is answered by [`crate::Event::Done`] alone.

use crate::Text;
use record::Role;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use std::net::{Ipv4Addr, SocketAddrV4};

/// What a job claims on a host besides its name, from the beginning of the preflight and for as
/// long as it lives. Either all of it is claimed or nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Claim {
    /// The ports that its processes will listen on.
    pub ports: Vec<Port>,
    /// Whether the job has graph servers that use the host's own /dev/shm, which two jobs of DGL
    /// cannot share.
    pub shared_memory: bool,
}

/// A port that a process will listen on.
#[skip_serializing_none]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Port {
    /// The number of the port.
    pub port: u16,
    /// The address to which it is bound; absent for any address of the host.
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
    /// How long it has had the claim, in milliseconds.
    pub age_ms: u64,
    /// Whether the job has all of its hosts. A job that has not may still give up.
    pub confirmed: bool,
}

/// One thing to examine. Paths are relative to a folder, and that folder to the home of the login.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "check", rename_all = "snake_case")]
pub enum Check {
    /// Checks that a folder exists.
    Folder {
        /// The path of the folder.
        path: Text,
    },
    /// Checks that a file exists and can be read.
    File {
        /// The folder that `path` is relative to. If it does not exist, there are no findings.
        folder: Text,
        /// The path of the file.
        path: Text,
    },
    /// Reads the script that processes run: [`Finding::ScriptContent`], unless it is a folder.
    Script(Script),
    /// Reads the ip_config of the workspace: [`Finding::IpConfig`].
    IpConfig {
        /// The folder that `path` is relative to.
        folder: Text,
        /// The path of the ip_config.
        path: Text,
    },
    /// Checks the partition config, the files of this host's partition, and the room for it in
    /// /dev/shm.
    PartitionConfig {
        /// The folder that `path` is relative to.
        folder: Text,
        /// The path of the partition config.
        path: Text,
        /// The partition that graph servers of this host load; absent if none runs here.
        part: Option<u32>,
        /// Whether the job gets a private /dev/shm, which may hold half of the memory.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        private_shm: bool,
    },
    /// Checks that a process may have this many files open.
    OpenFiles {
        /// How many files the process must be able to open.
        need: u64,
    },
    /// Checks that ports can be listened on.
    Ports {
        /// The ports to be tried.
        ports: Vec<Port>,
    },
    /// Finds jobs of this user that run here under the name of this one, and processes of jobs
    /// without a supervisor.
    Jobs,
    /// Looks for files of DGL in /dev/shm.
    SharedMemory,
    /// Checks that the job can have a private /dev/shm.
    PrivateSharedMemory,
    /// Checks that the kernel takes the words and variables of all processes.
    ArgumentSizes,
    /// Checks that the command of a process can be run in its environment.
    Command {
        /// The `index` of the process.
        process: u32,
        /// The questions to the command if it is a Python; absent if it is not.
        python: Option<PythonQuestion>,
    },
    /// Listens so that the other hosts can connect: on a free port, and on `port` unless another
    /// job may need it.
    Listen {
        /// The host's address.
        address: Ipv4Addr,
        /// A port of the job, which it has claimed.
        port: Option<u16>,
    },
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
    /// The folder that `path` is relative to. If it does not exist, there are no findings.
    pub folder: Text,
    /// The path of the script.
    pub path: Text,
}

/// The questions to a Python.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PythonQuestion {
    /// The interpreter, in the words of the command.
    pub interpreter: Text,
    /// The script that it will run; absent if it runs a module. The modules that the script
    /// imports must be found too.
    pub script: Option<Text>,
    /// The modules that it must find.
    #[serde(default)]
    pub modules: Vec<Module>,
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
    /// Something that prevents the start, whatever the other hosts find.
    Problem {
        /// What has the problem. The launcher knows the fix.
        about: Subject,
        /// The problem in words.
        problem: String,
    },
    /// The script that processes run.
    ScriptContent {
        /// The requested script.
        script: Script,
        /// A hash of its content.
        hash: String,
    },
    /// The ip_config; its text follows this event.
    IpConfig,
    /// The content of the partition config that a launcher can judge.
    PartitionConfig {
        /// A hash of its content.
        hash: String,
        /// Its `num_parts`.
        num_parts: Option<u64>,
        /// Its `graph_name`.
        graph_name: Option<String>,
    },
    /// A file of the partition is where only DGL 0.5 finds it: relative to the working directory
    /// instead of the config.
    Elsewhere {
        /// The path that later versions use.
        path: Text,
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
        /// Whether no process can listen there. Otherwise only those that do not set SO_REUSEADDR
        /// cannot, such as DGL 0.5.
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
        /// The modules that it does not find, and must.
        missing: Vec<Module>,
        /// Which of them the script imports whenever it runs; absent if that is not known.
        imports: Option<Vec<Module>>,
        /// The version of dgl that it would import.
        dgl: Option<String>,
    },
    /// The host listens for the others.
    Listens {
        /// The named port, if the host could listen on it.
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
    /// Small packets pass between this host and another, and large ones are lost.
    LosesLargePackets {
        /// The address that was tried.
        target: SocketAddrV4,
        /// Whether those from this host are lost; otherwise those to it.
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

/// What a problem is about, by which its fix is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// A folder or file that is missing.
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

/// A process, in terms for people.
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
    /// Its user, if that is not the one who asks.
    pub user: Option<String>,
}

/// The owner of DGL's files in /dev/shm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SharedFiles {
    /// A process has them mapped.
    Used(Owner),
    /// They are this user's, and no process maps them; the name of one of them.
    Stale(Text),
    /// They are another user's, and no visible process has them mapped; the name of the user.
    Foreign(String),
}

/// Why a connection could not be made.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unreachable {
    /// There was no answer in time.
    TimedOut,
    /// The host, or something in between, refused it.
    Refused,
    /// Another error, in the words of the operating system.
    Other(String),
}
