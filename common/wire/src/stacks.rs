//! Messages about the stacks of the threads of a job's processes.

use crate::cut;
use crate::reap::Pick;
use record::profile::{CountedStack, ThreadProfile};
use record::stacks::ProcessState;
use record::{Process, Role, Thread};
use serde::{Deserialize, Serialize};
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

/// A process that has one of [`RANK_VARIABLES`], its own or inherited.
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
}

impl RankProcess {
    /// With these variables alone, and short.
    pub fn in_bounds(self) -> RankProcess {
        let text = |text: &str| cut(text, COMMAND_CHARS);
        let is_known = |name: &str| RANK_VARIABLES.contains(&name) || JOB_VARIABLES.contains(&name);
        let variables = self.variables.into_iter();
        let known = variables.filter(|(name, _)| is_known(name));
        RankProcess {
            command: text(&self.command),
            variables: known.map(|(name, value)| (name, text(&value))).collect(),
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
    #[serde(flatten)]
    pub record: record::Profile,
    pub why: Option<Why>,
}

/// A process's Python stacks. In the record, only the tool knows `host`, `id` and `time_ms`.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessStacks {
    #[serde(flatten)]
    pub record: record::Stack,
    pub why: Option<Why>,
}

const COMMAND_CHARS: usize = 200;
/// The most characters of a job's name or a reason, which a process could make as long as an
/// environment.
const NAME_CHARS: usize = 255;

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
    /// The record of this stack; `processes` provides the id, if they have this process. The record
    /// is limited to what host-agent reads, because a hostile host might send as much as a line
    /// holds.
    pub fn into_record(self, host: u32, processes: &[Process], time_ms: u64) -> record::Stack {
        let stack = self.record;
        let named = NamedProcess::of(processes, host, stack.role, stack.rank);
        record::Stack {
            job: cut(&stack.job, NAME_CHARS),
            host,
            id: named.id,
            role: named.role,
            rank: named.rank,
            command: cut(&stack.command, COMMAND_CHARS),
            threads: bounded(stack.threads, MAX_THREADS, in_bounds),
            state: stack.state.map(|state| ProcessState {
                function: state.function.map(|function| cut(&function, MAX_TEXT)),
                ..state
            }),
            error: stack.error.map(|error| cut(&error, NAME_CHARS)),
            connections: bounded(stack.connections, MAX_CONNECTIONS, std::convert::identity),
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
        let text = |text: String| cut(&text, MAX_TEXT + 1);
        let frames = bounded(profile.frames, MAX_COUNTED_FRAMES, text);
        let mut left = MAX_COUNTED_STACKS + 1;
        let stack = |stack: CountedStack| CountedStack {
            frames: bounded(stack.frames, MAX_COUNTED_DEPTH, |index| index),
            ..stack
        };
        let thread = |thread: ThreadProfile| {
            let stacks = bounded(thread.stacks, left, stack);
            left -= stacks.len();
            let name = thread.name.map(text);
            ThreadProfile { name, stacks }
        };
        record::Profile {
            job: cut(&profile.job, NAME_CHARS),
            host,
            id: named.id,
            role: named.role,
            rank: named.rank,
            command: cut(&profile.command, COMMAND_CHARS),
            threads: bounded(profile.threads, MAX_THREADS, thread),
            error: profile.error.map(|error| cut(&error, NAME_CHARS)),
            frames,
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

fn in_bounds(thread: Thread) -> Thread {
    let text = |text: String| cut(&text, MAX_TEXT + 1);
    Thread {
        name: thread.name.map(text),
        tid: thread.tid,
        active: thread.active,
        frames: bounded(thread.frames, MAX_FRAMES, text),
        system_call: thread.system_call.map(text),
    }
}

/// The first of these items, in no more memory than they need.
fn bounded<T>(items: Vec<T>, most: usize, mut bound: impl FnMut(T) -> T) -> Vec<T> {
    let mut bounded = Vec::with_capacity(items.len().min(most));
    bounded.extend(items.into_iter().take(most).map(&mut bound));
    bounded
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
            ..RankProcess::default()
        };
        let process = process.in_bounds();
        let names: Vec<&String> = process.variables.keys().collect();
        assert_eq!(names, ["MASTER_ADDR", "RANK"]);
        assert_eq!(process.command.len(), COMMAND_CHARS);
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

    #[test]
    fn a_record_has_no_more_than_an_agent_reads() {
        let long = "ä".repeat(1000);
        let thread = Thread {
            name: Some(long.clone()),
            frames: vec![long.clone(); 90],
            system_call: Some(long),
            ..Thread::default()
        };
        let mut stack = ProcessStacks::default();
        stack.record.threads = vec![thread; 90];
        let record = stack.into_record(0, &[], 0);
        assert_eq!(record.threads.len(), MAX_THREADS);
        for thread in &record.threads {
            assert_eq!(thread.frames.len(), MAX_FRAMES);
            let texts = thread.frames.iter().chain(&thread.name);
            let mut texts = texts.chain(&thread.system_call);
            assert!(texts.all(|text| text.chars().count() <= MAX_TEXT + 1));
        }
    }
}
