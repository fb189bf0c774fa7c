//! Messages about the stacks of the threads of a job's processes.

use crate::reap::Pick;
use crate::text::{COMMAND, NAME, first};
use record::profile::{CountedStack, ThreadProfile};
use record::stacks::ProcessState;
use record::term::cut;
use record::{Process, Role, Thread};
use serde::{Deserialize, Deserializer, Serialize};
use serde_with::skip_serializing_none;
use std::collections::BTreeMap;

/// The variables by which launchers number the processes of a job. Nothing else of a process's
/// environment leaves its host.
pub const RANK_VARIABLES: [&str; 6] = [
    "RANK",
    "DGL_ROLE",
    "OMPI_COMM_WORLD_RANK",
    "PMI_RANK",
    "SLURM_PROCID",
    crate::job::JOB,
];
/// Variables that describe the job of a process that has one of [`RANK_VARIABLES`].
pub const JOB_VARIABLES: [&str; 15] = [
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_RUN_ID",
    "DGL_CONF_PATH",
    "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "PMI_SIZE",
    "PMIX_NAMESPACE",
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
    "SLURM_STEP_NUM_TASKS",
];

/// A process that has one of [`RANK_VARIABLES`], its own or inherited, or is a [`Torchrun`].
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankProcess {
    pub pid: i32,
    pub start_ticks: u64,
    pub parent: i32,
    pub is_python: bool,
    /// By the variables of torch and DGL.
    pub role: Option<Role>,
    pub rank: Option<u32>,
    pub command: String,
    pub variables: BTreeMap<String, String>,
    pub torchrun: Option<Torchrun>,
}

/// How a torchrun of several nodes meets the others, by its arguments or its variables `PET_…`.
/// Nothing else of them leaves the host, except the beginning of the command.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Torchrun {
    pub min_nodes: u32,
    pub max_nodes: u32,
    /// `None` if the rendezvous gives each node its rank.
    pub node_rank: Option<u32>,
    /// Where the nodes meet, such as `10.0.0.1:29500`.
    pub endpoint: String,
    pub id: String,
}

impl RankProcess {
    /// With these variables alone, and short.
    pub fn in_bounds(self) -> RankProcess {
        let text = |text: &str| cut(text, COMMAND);
        let is_known = |name: &str| RANK_VARIABLES.contains(&name) || JOB_VARIABLES.contains(&name);
        let variables = self.variables.into_iter();
        let known = variables.filter(|(name, _)| is_known(name));
        RankProcess {
            command: text(&self.command),
            variables: known.map(|(name, value)| (name, text(&value))).collect(),
            torchrun: self.torchrun.map(|torchrun| Torchrun {
                endpoint: cut(&torchrun.endpoint, NAME),
                id: cut(&torchrun.id, NAME),
                ..torchrun
            }),
            ..self
        }
    }
}

/// A process that the tool has chosen among those that [`crate::Request::FindRanks`] found.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChosenProcess {
    pub job: String,
    pub pid: i32,
    pub start_ticks: u64,
    pub role: Option<Role>,
    pub rank: Option<u32>,
    /// The rank's own process, if this is a child of it.
    pub parent: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakeStacks {
    #[serde(flatten)]
    pub pick: Pick,
    pub connections: bool,
    /// The processes to read, if the agent is to read them itself: those of a job without a
    /// supervisor.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub chosen: Vec<ChosenProcess>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordStacks {
    #[serde(flatten)]
    pub pick: Pick,
    pub time_ms: u64,
    /// Samples per second.
    pub rate: u32,
    /// As in [`TakeStacks`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub chosen: Vec<ChosenProcess>,
}

/// A process's counted stacks. In the record, only the tool knows `host`, `id` and `time_ms`.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CountedStacks {
    #[serde(flatten, deserialize_with = "profile")]
    pub record: record::Profile,
    pub why: Option<Why>,
}

/// A process's Python stacks. In the record, only the tool knows `host`, `id` and `time_ms`.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessStacks {
    #[serde(flatten, deserialize_with = "stack")]
    pub record: record::Stack,
    pub why: Option<Why>,
}

/// The most threads of a process that a host reads. More would not help users; with [`MAX_FRAMES`]
/// for each, a message with JSON's escapes stays below its largest size.
pub const MAX_THREADS: usize = 64;
/// See [`MAX_THREADS`].
pub const MAX_FRAMES: usize = 40;
/// The most bytes of a thread's or frame's name; a mark follows if it was truncated.
pub const MAX_TEXT: usize = 160;
/// The most connections of a process that a host reports: those that transferred data last.
pub const MAX_CONNECTIONS: usize = 128;
/// How many different stacks of a process a host counts; the others are counted together.
pub const MAX_COUNTED_STACKS: usize = 1000;
/// The most different frames of a process that a host reports. A job that repeats the same steps
/// has far fewer, some kilobytes.
pub const MAX_COUNTED_FRAMES: usize = 4000;
/// How many frames of a counted stack a host sends.
pub const MAX_COUNTED_DEPTH: usize = 120;

impl ProcessStacks {
    /// The record of this stack; `processes` provides the id, if they have this process.
    pub fn into_record(self, host: u32, processes: &[Process], time_ms: u64) -> record::Stack {
        let stack = self.record;
        let named = NamedProcess::of(processes, host, stack.role, stack.rank);
        record::Stack {
            host,
            id: named.id,
            role: named.role,
            rank: named.rank,
            time_ms,
            ..stack
        }
    }
}

impl CountedStacks {
    /// See [`ProcessStacks::into_record`].
    pub fn into_record(self, host: u32, processes: &[Process], time_ms: u64) -> record::Profile {
        let profile = self.record;
        let named = NamedProcess::of(processes, host, profile.role, profile.rank);
        record::Profile {
            host,
            id: named.id,
            role: named.role,
            rank: named.rank,
            time_ms,
            ..profile
        }
    }
}

/// The process that a host reports about, which the plan must have on that host: another one counts
/// as of unknown role. Without a plan, the report is trusted.
struct NamedProcess {
    id: Option<u32>,
    role: Option<Role>,
    rank: Option<u32>,
}

impl NamedProcess {
    fn of(processes: &[Process], host: u32, role: Option<Role>, rank: Option<u32>) -> NamedProcess {
        let is_its = |process: &&Process| {
            process.host == host && Some(process.role) == role && Some(process.rank) == rank
        };
        let id = processes.iter().find(is_its).map(|process| process.id);
        let believed = id.is_some() || processes.is_empty();
        NamedProcess {
            id,
            role: role.filter(|_| believed),
            rank: rank.filter(|_| believed),
        }
    }
}

/// Reads what a host reports about a process.
pub(crate) fn rank_process<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Box<RankProcess>, D::Error> {
    RankProcess::deserialize(deserializer).map(|process| Box::new(process.in_bounds()))
}

/// Reads a host's record, limited to what host-agent reads.
fn stack<'de, D: Deserializer<'de>>(deserializer: D) -> Result<record::Stack, D::Error> {
    let stack = record::Stack::deserialize(deserializer)?;
    let thread = |thread: Thread| Thread {
        name: thread.name.map(text),
        frames: texts(thread.frames, MAX_FRAMES),
        system_call: thread.system_call.map(text),
        ..thread
    };
    let threads = first(stack.threads, MAX_THREADS).into_iter();
    Ok(record::Stack {
        job: cut(&stack.job, NAME),
        command: cut(&stack.command, COMMAND),
        threads: threads.map(thread).collect(),
        state: stack.state.map(|state| ProcessState {
            function: state.function.map(text),
            ..state
        }),
        error: stack.error.map(|error| cut(&error, NAME)),
        connections: first(stack.connections, MAX_CONNECTIONS),
        ..stack
    })
}

/// As [`stack`] does.
fn profile<'de, D: Deserializer<'de>>(deserializer: D) -> Result<record::Profile, D::Error> {
    let profile = record::Profile::deserialize(deserializer)?;
    let stack = |stack: CountedStack| CountedStack {
        frames: first(stack.frames, MAX_COUNTED_DEPTH),
        ..stack
    };
    let mut left = MAX_COUNTED_STACKS + 1;
    let thread = |thread: ThreadProfile| {
        let stacks = first(thread.stacks, left);
        left -= stacks.len();
        ThreadProfile {
            name: thread.name.map(text),
            stacks: stacks.into_iter().map(stack).collect(),
        }
    };
    let threads = first(profile.threads, MAX_THREADS).into_iter();
    Ok(record::Profile {
        job: cut(&profile.job, NAME),
        command: cut(&profile.command, COMMAND),
        threads: threads.map(thread).collect(),
        error: profile.error.map(|error| cut(&error, NAME)),
        frames: texts(profile.frames, MAX_COUNTED_FRAMES),
        ..profile
    })
}

/// Reads the frames of a host's stack.
pub(crate) fn frames<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    Vec::deserialize(deserializer).map(|frames| texts(frames, MAX_FRAMES))
}

fn texts(texts: Vec<String>, most: usize) -> Vec<String> {
    first(texts, most).into_iter().map(text).collect()
}

fn text(text: String) -> String {
    cut(&text, MAX_TEXT + 1)
}

/// A reason not to read a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// The kernel denies access to its memory.
    Denied {
        /// Yama's kernel.yama.ptrace_scope there; 0 if it does not matter.
        ptrace_scope: u8,
    },
    NoPython,
    Ended,
    Other,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Event;
    use crate::supervise::Raised;

    #[test]
    fn only_the_variables_of_launchers_leave_a_host() {
        let variables = [
            ("RANK", "3"),
            ("MASTER_ADDR", "a"),
            ("SECRET", "x"),
            ("RANKS", "x"),
        ];
        let process = RankProcess {
            command: "x".repeat(1000),
            variables: variables
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
            torchrun: Some(Torchrun {
                endpoint: "x".repeat(1000),
                id: "x".repeat(1000),
                ..Torchrun::default()
            }),
            ..RankProcess::default()
        };
        let process = process.in_bounds();
        let torchrun = process.torchrun.unwrap();
        let chars = |text: &str| text.chars().count();
        assert_eq!(chars(&torchrun.endpoint), NAME);
        assert_eq!(chars(&torchrun.id), NAME);
        let names: Vec<&String> = process.variables.keys().collect();
        assert_eq!(names, ["MASTER_ADDR", "RANK"]);
        assert_eq!(chars(&process.command), COMMAND);
    }

    #[test]
    fn a_host_speaks_for_its_own_processes_alone() {
        let of_host = |id, host, rank| {
            let ip = record::IpAddr::default();
            Process::new(id, host, ip, Role::Worker, rank)
        };
        let plan = [of_host(7, 0, 0), of_host(8, 1, 1)];
        let worker = Some(Role::Worker);
        let table: [(&[Process], _, _, _); 4] = [
            (&plan, Some(0), Some(7), worker),
            (&plan, Some(1), None, None),
            (&plan, None, None, None),
            (&[], Some(1), None, worker),
        ];
        for (processes, rank, id, role) in table {
            let mut stack = ProcessStacks::default();
            (stack.record.role, stack.record.rank) = (worker, rank);
            let mut profile = CountedStacks::default();
            (profile.record.role, profile.record.rank) = (worker, rank);
            let stack = stack.into_record(0, processes, 0);
            let profile = profile.into_record(0, processes, 0);
            let rank = role.and(rank);
            assert_eq!((stack.id, stack.role, stack.rank), (id, role, rank));
            assert_eq!((profile.id, profile.role, profile.rank), (id, role, rank));
        }
    }

    /// Longer than any text may be.
    fn long() -> String {
        "ä".repeat(300)
    }

    fn read(event: &Event) -> Event {
        serde_json::from_str(&serde_json::to_string(event).unwrap()).unwrap()
    }

    fn longest<'a>(texts: impl IntoIterator<Item = &'a String>) -> Option<usize> {
        let lengths = texts.into_iter().map(|text| text.chars().count());
        lengths.max()
    }

    #[test]
    fn a_host_reports_no_more_of_a_stack_than_an_agent_reads() {
        let thread = Thread {
            name: Some(long()),
            frames: vec![long(); MAX_FRAMES + 1],
            system_call: Some(long()),
            ..Thread::default()
        };
        let record = record::Stack {
            job: long(),
            command: long(),
            error: Some(long()),
            threads: vec![thread; MAX_THREADS + 1],
            state: Some(ProcessState {
                letter: 'S',
                function: Some(long()),
            }),
            ..record::Stack::default()
        };
        let sent = ProcessStacks { record, why: None };
        let Event::Stack(stack) = read(&Event::Stack(Box::new(sent))) else {
            panic!("no stack")
        };
        let stack = stack.record;
        assert_eq!(
            longest([&stack.job].into_iter().chain(&stack.error)),
            Some(NAME)
        );
        assert_eq!(longest([&stack.command]), Some(COMMAND));
        assert_eq!(longest(&stack.state.unwrap().function), Some(MAX_TEXT + 1));
        assert_eq!(stack.threads.len(), MAX_THREADS);
        for thread in &stack.threads {
            assert_eq!(thread.frames.len(), MAX_FRAMES);
            let texts = thread.frames.iter().chain(&thread.name);
            assert_eq!(
                longest(texts.chain(&thread.system_call)),
                Some(MAX_TEXT + 1)
            );
        }
    }

    #[test]
    fn a_host_reports_no_more_of_a_profile_than_an_agent_reads() {
        let counted = CountedStack {
            frames: vec![0; MAX_COUNTED_DEPTH + 1],
            ..CountedStack::default()
        };
        let thread = ThreadProfile {
            name: Some(long()),
            stacks: vec![counted; MAX_COUNTED_STACKS],
        };
        let record = record::Profile {
            job: long(),
            command: long(),
            error: Some(long()),
            threads: vec![thread; 3],
            frames: vec![long(); MAX_COUNTED_FRAMES + 1],
            ..record::Profile::default()
        };
        let sent = CountedStacks { record, why: None };
        let Event::Profile(profile) = read(&Event::Profile(Box::new(sent))) else {
            panic!("no profile")
        };
        let profile = profile.record;
        assert_eq!(
            longest([&profile.job].into_iter().chain(&profile.error)),
            Some(NAME)
        );
        assert_eq!(longest([&profile.command]), Some(COMMAND));
        assert_eq!(profile.frames.len(), MAX_COUNTED_FRAMES);
        let names = profile.threads.iter().flat_map(|thread| &thread.name);
        assert_eq!(
            longest(profile.frames.iter().chain(names)),
            Some(MAX_TEXT + 1)
        );
        let stacks = profile.threads.iter().flat_map(|thread| &thread.stacks);
        let depths: Vec<usize> = stacks.map(|stack| stack.frames.len()).collect();
        assert_eq!(depths, vec![MAX_COUNTED_DEPTH; MAX_COUNTED_STACKS + 1]);
    }

    #[test]
    fn a_host_reports_no_more_of_an_exception_than_an_agent_reads() {
        let sent = Raised {
            index: 0,
            exception: long().repeat(20),
            silent_ms: 0,
            is_of_main: true,
            left_script: None,
            frames: vec![long(); MAX_FRAMES + 1],
        };
        let Event::Raised(raised) = read(&Event::Raised(sent)) else {
            panic!("no exception")
        };
        assert!(longest([&raised.exception]) < Some(2100));
        assert_eq!(raised.frames.len(), MAX_FRAMES);
        assert_eq!(longest(&raised.frames), Some(MAX_TEXT + 1));
    }
}
