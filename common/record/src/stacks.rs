//! The Python stacks of processes, and their comparison: what each waits for, and which are
//! elsewhere in the program than the others. A frame is `function (file.py:123)`; the innermost
//! comes first.

use crate::{Connection, Role, majority};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use std::collections::BTreeMap;

/// The problem of a process that is not a Python, such as a shell before one.
pub const NO_PYTHON: &str = "no Python runs in it";
/// Python's name for the thread that runs the script.
pub const MAIN_THREAD: &str = "MainThread";

/// The Python stacks of one process of a job.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Stack {
    /// The job's name.
    pub job: String,
    /// The `id` of the host.
    pub host: u32,
    /// The `id` of the process record, if the role and the rank are known.
    pub id: Option<u32>,
    /// The role of the process in its job.
    pub role: Option<Role>,
    /// The number of the process among those of its role, on all hosts.
    pub rank: Option<u32>,
    /// The process id on that host.
    pub pid: u32,
    /// The process of the same role and rank that started this one, such as the trainer of a
    /// sampler.
    pub parent: Option<u32>,
    /// The command of the process, cut at 200 characters.
    pub command: String,
    /// The Python threads of the process.
    #[serde(default)]
    pub threads: Vec<Thread>,
    /// Why there are no threads.
    pub error: Option<String>,
    /// What the kernel reports about the main thread of a process that no launcher of these tools
    /// has started, if its stacks could not be read or a signal has stopped it.
    pub state: Option<ProcessState>,
    /// Its TCP connections that have moved data, the latest activity first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub connections: Vec<Connection>,
    /// When the stacks were read, in milliseconds since 1970.
    pub time_ms: u64,
    /// Whether they were read because the job had failed, just before its processes were ended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub while_ending: bool,
}

impl Stack {
    /// The oldest thread if Python has no names for threads.
    pub fn main_thread(&self) -> Option<&Thread> {
        self.threads
            .iter()
            .find(|thread| thread.name.as_deref() == Some(MAIN_THREAD))
            .or(self.threads.first())
    }

    pub fn main_frames(&self) -> Option<&[String]> {
        Some(&self.main_thread()?.frames)
    }

    /// `None` for a child such as a sampler, and if role or rank is unknown.
    pub fn member(&self) -> Option<Member> {
        let is_child = match self.main_frames() {
            Some(frames) => child(frames).is_some(),
            None => self.state.is_none(),
        };
        let is_child = is_child || self.parent.is_some();
        (!is_child).then_some((self.role?, self.rank?))
    }

    pub fn is_stopped(&self) -> bool {
        self.state.as_ref().is_some_and(ProcessState::is_stopped)
    }

    /// How it waits for others, if it does, by its stack or else by its state; `None` if that is
    /// unknown.
    pub fn wait(&self) -> Option<Option<Wait>> {
        match (self.main_frames(), &self.state) {
            _ if self.is_stopped() => Some(None),
            (Some(frames), _) => Some(wait(frames)),
            (None, Some(state)) => state.wait(self.error.as_deref() == Some(NO_PYTHON)),
            (None, None) => None,
        }
    }

    /// By the main threads, without children.
    pub fn compare<'a>(stacks: impl IntoIterator<Item = &'a Stack>) -> Comparison {
        Comparison::of(
            stacks
                .into_iter()
                .filter_map(|stack| Some((stack.member()?, stack.main_frames()?.to_vec()))),
        )
    }
}

/// What the kernel reports about the main thread of a process to everybody who may see its
/// connections.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ProcessState {
    /// The letter of proc(5): `R` computes, `S` sleeps, `D` waits for a disk or a file server, `T`
    /// is stopped by a signal.
    pub letter: char,
    /// The kernel function in which it sleeps.
    pub function: Option<String>,
}

impl ProcessState {
    pub fn is_stopped(&self) -> bool {
        matches!(self.letter, 'T' | 't')
    }

    pub fn sleeps(&self) -> bool {
        self.letter == 'S'
    }

    fn is_in(&self, parts: &[&str]) -> bool {
        let function = self.function.as_deref().unwrap_or_default();
        parts.iter().any(|part| function.contains(part))
    }

    /// Whether it waits for data in a system call.
    pub fn receives(&self) -> bool {
        self.is_in(&[
            "poll",
            "select",
            "sk_wait_data",
            // Linux 6 shows this one in its place
            "wait_woken",
            "_recvmsg",
            "unix_stream_read",
        ])
    }

    /// Whether it waits for another thread, which may wait for data.
    pub fn is_locked(&self) -> bool {
        self.is_in(&["futex"])
    }

    /// `None` if the kernel's function may be for others or not. Programs without Python poll for
    /// messages without sleeping, as those of MPI.
    fn wait(&self, polls: bool) -> Option<Option<Wait>> {
        let is_at_work = self.is_in(&["nanosleep", "lock", "do_wait", "pipe_read"]);
        match self.letter {
            'R' if polls => Some(Some(Wait::Message)),
            'R' | 'D' => Some(None),
            _ if self.receives() || self.is_locked() => Some(Some(Wait::Message)),
            _ => is_at_work.then_some(None),
        }
    }

    /// Follows the process's name.
    pub fn words(&self) -> String {
        let does = match self.letter {
            'T' | 't' => "is stopped by a signal",
            'R' => "computes",
            'D' => "waits for a disk or a file server",
            _ => "sleeps",
        };
        let function = self.function.iter();
        let place = function.map(|function| format!(" in the kernel's {function}"));
        does.to_owned() + &place.collect::<String>()
    }
}

/// A thread of Python, and its stack.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Thread {
    /// The name that Python gives the thread.
    pub name: Option<String>,
    /// The thread id in the kernel; before Python 3.11 it is not known for every thread.
    pub tid: Option<u32>,
    /// Whether the thread computed at that moment.
    pub active: bool,
    /// The frames as `function (file.py:123)`, the innermost first.
    pub frames: Vec<String>,
    /// The system call in which it waits, if the kernel reports it.
    pub system_call: Option<String>,
}

/// The name without its number, which would separate equal threads: `Thread-3 (run)`.
pub fn name_without_number(name: &str) -> &str {
    let end = name.find(|c: char| c.is_ascii_digit());
    name[..end.unwrap_or(name.len())].trim_end_matches(['-', '_', ' '])
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Wait {
    /// DGL's barrier at the end of a client, until all others end.
    ExitBarrier,
    Barrier,
    /// An operation of torch.distributed, such as all_reduce.
    Collective,
    /// A message by torch.distributed.
    Message,
    /// Until another process receives a message by torch.distributed.
    Send,
    /// The answer to a call of torch.distributed.rpc.
    RemoteCall,
    /// In this pass torch's DDP synchronizes the buffers of all.
    Forward,
    /// In this pass torch's DDP waits for all others.
    Backward,
    Rendezvous,
    /// The samplers of DGL or processes of torch's data loader, which are its children.
    Samplers,
    ServersStart,
    Servers,
    Requests,
    /// Threads that its script has left running.
    Threads,
}

impl Wait {
    /// Follows the process's name.
    pub fn words(self) -> &'static str {
        match self {
            Wait::ExitBarrier => "waits at DGL's exit barrier for all others to end",
            Wait::Barrier => "waits in a barrier for all others",
            Wait::Collective => "waits in a collective operation for all others",
            Wait::Message => "waits for a message of another process",
            Wait::Send => "waits in a send until another process receives",
            Wait::RemoteCall => "waits for the answer to a remote call",
            Wait::Forward => "waits for all others in DDP's forward pass",
            Wait::Backward => "waits for all others in DDP's backward pass",
            Wait::Rendezvous => "waits for all others at torch's rendezvous",
            Wait::Samplers => "waits for its samplers or data loader",
            Wait::ServersStart => "waits for the graph servers to be there",
            Wait::Servers => "waits for an answer of the graph servers",
            Wait::Requests => "waits for requests",
            Wait::Threads => "waits, after the end of its script, for its own threads",
        }
    }

    /// Whether a process that computes there may be working.
    pub fn may_be_work(self) -> bool {
        matches!(self, Wait::Backward | Wait::Threads)
    }

    /// Other trainers or workers.
    pub fn is_for_others(self) -> bool {
        use Wait::{Requests, Samplers, Servers, ServersStart, Threads};
        !matches!(self, Samplers | ServersStart | Servers | Requests | Threads)
    }
}

/// `waits for its samplers` becomes `wait for their samplers`.
pub fn plural(words: &str) -> String {
    words
        .replacen("waits", "wait", 1)
        .replace(" its ", " their ")
}

/// `None` if the process may be computing. The names are those of DGL 0.5 to 2.4, GLT 0.2, and
/// torch 1 and 2. They count in functions that the script calls; in the script's own functions only
/// if they are unambiguous.
pub fn wait(frames: &[String]) -> Option<Wait> {
    let own = own_position(frames);
    let called = &frames[..own.unwrap_or(frames.len())];
    let called_or_own = &frames[..own.map_or(frames.len(), |position| position + 1)];
    let has_in = |frames: &[String], names: &[&str]| {
        frames
            .iter()
            .filter_map(|frame| frame.split_once(" ("))
            // its all_reduce first writes the files of this process
            .filter(|(_, file)| !file.starts_with("torch/distributed/checkpoint/"))
            .any(|(function, _)| names.contains(&function))
    };
    let has = |names: &[&str]| has_in(called_or_own, names);
    let is_of = |frame: &String, file: &str| {
        [" (", "/"]
            .iter()
            .any(|before| frame.contains(&format!("{before}{file}")))
    };
    let is_in = |file: &str| called.iter().any(|frame| is_of(frame, file));
    let innermost_is_in = |files: &[&str]| {
        (called.first()).is_some_and(|frame| files.iter().any(|file| is_of(frame, file)))
    };
    let is_in_operation = innermost_is_in(OPERATIONS);
    Some(if is_in("torch/distributed/elastic/") {
        // torchrun itself, which supervises its children
        return None;
    } else if has(&["exit_client"]) {
        Wait::ExitBarrier
    } else if has(&["init_process_group", "_store_based_barrier", "rendezvous"]) {
        Wait::Rendezvous
    } else if has(&["client_barrier", "barrier", "monitored_barrier"]) {
        Wait::Barrier
    } else if has(&["connect_to_server", "_wait_for_server"]) {
        Wait::ServersStart
    } else if has(&["recv_request", "wait_and_shutdown_server"]) {
        Wait::Requests
    } else if has(&["recv_response", "remote_call", "wait_for_response"])
        || has_in(called, &["fast_pull"])
        || is_in("graphlearn_torch/channel/remote_channel.py:")
    {
        Wait::Servers
    } else if has(&["_next_data", "__next__"])
        && (is_in("queues.py:") || is_in("queue.py:") || is_in("shm_channel.py:"))
    {
        Wait::Samplers
    } else if own.is_none() && has(&["_shutdown"]) && is_in("threading.py:") {
        Wait::Threads
    } else if is_in("torch/distributed/rpc/") {
        Wait::RemoteCall
    } else if is_in_operation && has_in(called, &["recv", "batch_isend_irecv"]) {
        Wait::Message
    } else if is_in_operation && has_in(called, &["send"]) {
        Wait::Send
    } else if is_in_operation || has(COLLECTIVES) {
        Wait::Collective
    } else if innermost_is_in(&["nn/parallel/distributed.py:"]) {
        Wait::Forward
    } else if has_in(called, &["backward"]) {
        Wait::Backward
    } else {
        return None;
    })
}

/// Functions of any library, and of scripts.
const COLLECTIVES: &[&str] = &[
    "_sync_params_and_buffers",
    "_verify_param_shape_across_processes",
    "all_reduce",
    "all_gather",
    "all_gather_object",
    "all_to_all",
    "all_to_all_single",
    "broadcast_object_list",
    "reduce_scatter",
];
/// In these files a process waits for others, whatever the name of the function. Other files of
/// `torch/distributed/` write checkpoints and compute, and other libraries have a `scatter` and a
/// `reduce` that compute.
const OPERATIONS: &[&str] = &[
    "distributed_c10d.py:",
    "c10d_logger.py:",
    "torch/distributed/_functional_collectives.py:",
    "torch/distributed/nn/functional.py:",
    "zero_redundancy_optimizer.py:",
    "horovod/torch/mpi_ops.py:",
];

/// A child process of a trainer; it writes to the trainer's streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Child {
    Sampler,
    /// For multiprocessing, such as tracking resources.
    Helper,
}

/// `None` for a trainer itself.
pub fn child(frames: &[String]) -> Option<Child> {
    let has = |begin: &str| frames.iter().any(|frame| frame.starts_with(begin));
    if has("spawn_main (") || has("_bootstrap (multiprocessing/process.py") {
        return Some(Child::Sampler);
    }
    let mut frames = frames.iter();
    let is_helper = frames.any(|frame| frame.contains("resource_tracker.py:"));
    is_helper.then_some(Child::Helper)
}

/// The innermost frame of the script: in a file that is neither in a package nor part of Python, or
/// in the package of the script itself. If no frame has its directory, it is the innermost one in
/// the file of `<module>`; without that, the innermost of all.
pub fn own_frame(frames: &[String]) -> Option<&str> {
    let position = own_position(frames).unwrap_or(0);
    frames.get(position).map(String::as_str)
}

fn own_position(frames: &[String]) -> Option<usize> {
    /// A script waits in these files of Python, or is started by them.
    const PYTHONS: [&str; 10] = [
        "cProfile.py",
        "contextlib.py",
        "queue.py",
        "runpy.py",
        "selectors.py",
        "socket.py",
        "ssl.py",
        "subprocess.py",
        "threading.py",
        "<string>",
    ];
    let file = |frame| Some(str::rsplit_once(frame, " (")?.1.rsplit_once(':')?.0);
    let files: Vec<&str> = frames
        .iter()
        .map(|frame| file(frame).unwrap_or_default())
        .collect();
    // torchrun, as `python3 -m torch.distributed.run`, is no script
    let is_script = |file: &&str| !file.starts_with("torch/") && !PYTHONS.contains(file);
    let script = frames
        .iter()
        .zip(&files)
        .filter_map(|(frame, file)| frame.starts_with("<module> (").then_some(*file))
        .rfind(is_script);
    let script_package = script.and_then(package_of);
    let has_packages = files.iter().any(|file| file.contains('/'));
    files.iter().position(|file| match package_of(file) {
        _ if Some(*file) == script => true,
        // `<frozen runpy>` and `<eval_with_key>.3` are no files
        None => has_packages && !PYTHONS.contains(file) && !file.starts_with('<'),
        package => package == script_package,
    })
}

/// The outermost package of a file.
fn package_of(file: &str) -> Option<&str> {
    Some(file.split_once('/')?.0)
}

/// The remark about a process that computes at one line all the time.
pub const LONG_CALL: &str = ", perhaps in one long call";

pub type Member = (Role, u32);

/// Processes at one line of their script that wait for the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    line: String,
    pub wait: Option<Wait>,
    /// The frame below that line, if all have the same.
    inner: Option<String>,
    /// The frames of the first member, the innermost first.
    pub frames: Vec<String>,
    pub members: Vec<Member>,
}

impl Group {
    /// Follows the group's name: `waits for its samplers [train (train.py:93)]`.
    pub fn words(&self) -> String {
        let (line, is_one) = (&self.line, self.members.len() == 1);
        match (self.wait, &self.inner) {
            (Some(wait), _) if is_one => format!("{} [{line}]", wait.words()),
            (Some(wait), _) => format!("{} [{line}]", plural(wait.words())),
            (None, inner) => {
                let inner = inner.as_deref().filter(|inner| inner != line);
                let verb = if is_one { "is" } else { "are" };
                format!("{verb} in {line} {}", inner.unwrap_or_default())
                    .trim_end()
                    .to_owned()
            }
        }
    }

    fn waits_for_others(&self) -> bool {
        self.wait.is_some_and(Wait::is_for_others)
    }

    /// Workers move from DDP's forward into its backward pass one after the other, so if all wait
    /// for one of them, either pass may contain any of the others.
    fn waits_with(&self, other: &Group) -> bool {
        let is_of_ddp = |group: &Group| matches!(group.wait, Some(Wait::Forward | Wait::Backward));
        is_of_ddp(self) && is_of_ddp(other) || (self.wait, &self.line) == (other.wait, &other.line)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    groups: Vec<Group>,
    outliers: usize,
}

impl Comparison {
    /// Compares trainers and workers; servers only if there are no others, because servers wait for
    /// the others. Each program has its own code and is compared separately.
    pub fn of(stacks: impl IntoIterator<Item = (Member, Vec<String>)>) -> Comparison {
        let (servers, clients): (Vec<_>, Vec<_>) = stacks
            .into_iter()
            .partition(|((role, _), _)| *role == Role::Server);
        let mut of_roles: BTreeMap<Role, Vec<(Member, Vec<String>)>> = BTreeMap::new();
        for stack in if clients.is_empty() { servers } else { clients } {
            of_roles.entry(stack.0.0).or_default().push(stack);
        }
        let of_roles: Vec<Vec<Group>> = of_roles.into_values().map(groups).collect();
        let is_outlier: Vec<Vec<Member>> = of_roles.iter().flat_map(|all| outliers(all)).collect();
        let mut groups = of_roles.concat();
        groups.sort_by_key(|group| !is_outlier.contains(&group.members));
        Comparison {
            groups,
            outliers: is_outlier.len(),
        }
    }

    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// The groups for which the others wait.
    pub fn outliers(&self) -> &[Group] {
        &self.groups[..self.outliers]
    }

    /// The process for which all others wait, if it is one.
    pub fn culprit(&self) -> Option<Member> {
        match self.outliers() {
            [group] if group.members.len() == 1 => group.members.first().copied(),
            _ => None,
        }
    }

    /// For a job that makes no progress: if no process waits by its stack, and all but one are in
    /// the same function, such as a barrier of the script that polls, they wait for that one.
    pub fn with_odd_function(mut self) -> Comparison {
        let function = |group: &Group| group.line.split(':').next().unwrap_or_default().to_owned();
        let members = |group: &Group| vec![function(group); group.members.len()];
        let all: Vec<String> = self.groups.iter().flat_map(members).collect();
        let common = majority::most_frequent(all.iter());
        if let Some((common, count)) = common.filter(|(_, count)| *count > 2)
            && count + 1 == all.len()
            && self.groups.iter().all(|group| group.wait.is_none())
        {
            self.groups.sort_by_key(|group| function(group) == *common);
            self.outliers = 1;
        }
        self
    }

    /// Without a full stop; `note` is a remark about the outliers.
    pub fn sentence(&self, name: impl Fn(&[Member]) -> String, note: &str) -> String {
        match self.groups.split_at(self.outliers) {
            ([], all) => describe(all, name),
            (outliers, others) => {
                let outliers = describe(outliers, &name);
                format!("{outliers}{note}, while {}", describe(others, name))
            }
        }
    }

    pub fn describe_outliers(&self, name: impl Fn(&[Member]) -> String) -> String {
        describe(self.outliers(), name)
    }

    pub fn lines(&self) -> Vec<String> {
        self.groups
            .iter()
            .enumerate()
            .map(|(group_index, group)| {
                let unlike = if group_index < self.outliers {
                    ", unlike the others,"
                } else {
                    ""
                };
                format!("{}{unlike} {}", names(&group.members), group.words())
            })
            .collect()
    }
}

/// That a signal has stopped these processes, and the one for which the others wait.
pub fn stopped(members: &[Member]) -> (String, Option<Member>) {
    let (verb, culprit) = match members {
        [one] => ("is", Some(*one)),
        _ => ("are", None),
    };
    let text = format!("{} {verb} stopped by a signal", names(members));
    (text, culprit)
}

/// `trainers 0, 2 and 3`; if there are many, only their number.
pub fn names(members: &[Member]) -> String {
    const NAMED: usize = 6;
    let name = |(role, rank): &(Role, u32)| format!("{} {rank}", role.name());
    let role = members.first().map(|member| member.0);
    let role = role.filter(|role| members.iter().all(|member| member.0 == *role));
    match (members, role) {
        ([], _) => "nobody".to_owned(),
        ([one], _) => name(one),
        (many, role) if many.len() > NAMED => match role {
            Some(role) => role.count(many.len()),
            None => format!("{} processes", many.len()),
        },
        ([first @ .., last], Some(role)) => {
            let ranks: Vec<String> = first.iter().map(|(_, rank)| rank.to_string()).collect();
            format!("{} {} and {}", role.names(), ranks.join(", "), last.1)
        }
        (many, None) => many.iter().map(name).collect::<Vec<_>>().join(", "),
    }
}

fn describe(groups: &[Group], name: impl Fn(&[Member]) -> String) -> String {
    groups
        .iter()
        .map(|group| format!("{} {}", name(&group.members), group.words()))
        .collect::<Vec<_>>()
        .join("; ")
}

/// By the line of the script and the wait, in input order.
fn groups(stacks: Vec<(Member, Vec<String>)>) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for (member, frames) in stacks {
        let (wait, line) = (wait(&frames), own_frame(&frames).unwrap_or("no frame"));
        match groups
            .iter_mut()
            .find(|one| (one.wait, one.line.as_str()) == (wait, line))
        {
            Some(group) => {
                group.members.push(member);
                group.inner.take_if(|inner| frames.first() != Some(inner));
            }
            None => groups.push(Group {
                line: line.to_owned(),
                wait,
                inner: frames.first().cloned(),
                frames,
                members: vec![member],
            }),
        }
    }
    groups
}

/// The members of each group for which the others wait.
fn outliers(groups: &[Group]) -> Vec<Vec<Member>> {
    let count = |of: &dyn Fn(&Group) -> bool| -> usize {
        groups
            .iter()
            .filter(|group| of(group))
            .map(|group| group.members.len())
            .sum()
    };
    let members = |of: &dyn Fn(&Group) -> bool| -> Vec<Vec<Member>> {
        groups
            .iter()
            .filter(|group| of(group))
            .map(|group| group.members.clone())
            .collect()
    };
    let all = count(&|_| true);
    let is_busy = |group: &Group| !group.waits_for_others();
    match count(&is_busy) {
        0 => {}
        // those that wait for others wait for those that do not
        busy if busy < all && busy * 2 <= all => return members(&is_busy),
        _ => return Vec::new(),
    }
    // All wait for others: the few at one place are missing where most are.
    let Some(most) = groups
        .iter()
        .max_by_key(|one| count(&|group| group.waits_with(one)))
    else {
        return Vec::new();
    };
    let is_elsewhere = |group: &Group| !group.waits_with(most);
    if count(&is_elsewhere) * 3 <= all {
        members(&is_elsewhere)
    } else {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(frames: &[&str]) -> Vec<String> {
        frames.iter().map(|frame| (*frame).to_owned()).collect()
    }

    const REDUCE: &[&str] = &[
        "all_reduce (distributed_c10d.py:1322)",
        "over_all (train.py:75)",
        "<module> (train.py:131)",
    ];
    const BARRIER: &[&str] = &[
        "recv_response (rpc.py:822)",
        "client_barrier (rpc.py:1109)",
        "main (train.py:80)",
        "<module> (train.py:131)",
    ];
    const SAMPLERS: &[&str] = &[
        "get (queues.py:103)",
        "__next__ (dist_dataloader.py:101)",
        "train (train.py:93)",
        "<module> (train.py:131)",
    ];
    const LOOP: &[&str] = &["spin (train.py:12)", "<module> (train.py:131)"];
    const FORWARD: &[&str] = &[
        "_distributed_broadcast_coalesced (torch/nn/parallel/distributed.py:2040)",
        "forward (torch/nn/parallel/distributed.py:1519)",
        "_call_impl (torch/nn/modules/module.py:1520)",
        "train (train.py:84)",
        "<module> (train.py:131)",
    ];
    const BACKWARD: &[&str] = &[
        "backward (torch/autograd/__init__.py:266)",
        "backward (torch/_tensor.py:522)",
        "train (train.py:84)",
        "<module> (train.py:131)",
    ];
    const LOADER: &[&str] = &[
        "__getitem__ (train.py:42)",
        "fetch (torch/utils/data/_utils/fetch.py:51)",
        "__next__ (torch/utils/data/dataloader.py:631)",
        "train (train.py:79)",
        "<module> (train.py:131)",
    ];

    #[expect(clippy::too_many_lines, reason = "it is a table of cases")]
    #[test]
    fn stacks_tell_what_is_waited_for() {
        let table: [(&[&str], Option<Wait>); 34] = [
            (
                &[
                    "send (torch/distributed/distributed_c10d.py:1159)",
                    "main (train.py:8)",
                ],
                Some(Wait::Send),
            ),
            (
                &[
                    "barrier (torch/distributed/elastic/utils/store.py:67)",
                    "_exit_barrier (torch/distributed/elastic/agent/server/api.py:906)",
                    "main (torch/distributed/run.py:762)",
                    "<module> (torchrun:8)",
                ],
                None,
            ),
            // the script's own main, below a decorator of torchrun's
            (
                &[
                    "barrier (torch/distributed/distributed_c10d.py:9)",
                    "main (train.py:8)",
                    "wrapper (torch/distributed/elastic/multiprocessing/errors/__init__.py:346)",
                    "<module> (train.py:9)",
                ],
                Some(Wait::Barrier),
            ),
            (REDUCE, Some(Wait::Collective)),
            (BARRIER, Some(Wait::Barrier)),
            (SAMPLERS, Some(Wait::Samplers)),
            (FORWARD, Some(Wait::Forward)),
            (BACKWARD, Some(Wait::Backward)),
            (LOADER, None),
            (
                &[
                    "client_barrier (rpc.py:1109)",
                    "exit_client (dist_context.py:384)",
                ],
                Some(Wait::ExitBarrier),
            ),
            (
                &["recv_response (rpc.py:822)", "pull (kvstore.py:9)"],
                Some(Wait::Servers),
            ),
            (
                &[
                    "fast_pull (dgl/distributed/rpc.py:1166)",
                    "pull (dgl/distributed/kvstore.py:1305)",
                    "main (train.py:8)",
                ],
                Some(Wait::Servers),
            ),
            (
                &[
                    "recv_rpc_message (dgl/distributed/rpc.py:1101)",
                    "recv_request (dgl/distributed/rpc.py:781)",
                    "start_server (dgl/distributed/rpc_server.py:145)",
                    "main (train.py:8)",
                ],
                Some(Wait::Requests),
            ),
            (
                &[
                    "recv (graphlearn_torch/channel/shm_channel.py:66)",
                    "__next__ (graphlearn_torch/distributed/dist_loader.py:289)",
                    "main (train.py:8)",
                ],
                Some(Wait::Samplers),
            ),
            (
                &[
                    "get (queue.py:171)",
                    "recv (graphlearn_torch/channel/remote_channel.py:82)",
                    "__next__ (graphlearn_torch/distributed/dist_loader.py:289)",
                    "main (train.py:8)",
                ],
                Some(Wait::Servers),
            ),
            (LOOP, None),
            (&["_shutdown (threading.py:1590)"], Some(Wait::Threads)),
            (
                &[
                    "recv (torch/distributed/distributed_c10d.py:1640)",
                    "wrapper (torch/distributed/c10d_logger.py:72)",
                    "main (train.py:8)",
                ],
                Some(Wait::Message),
            ),
            (
                &[
                    "rpc_sync (torch/distributed/rpc/api.py:9)",
                    "main (train.py:8)",
                ],
                Some(Wait::RemoteCall),
            ),
            (
                &[
                    "_verify_param_shape_across_processes (torch/distributed/utils.py:112)",
                    "__init__ (torch/nn/parallel/distributed.py:655)",
                    "main (train.py:8)",
                ],
                Some(Wait::Collective),
            ),
            // the script's own function of that name
            (
                &[
                    "reduce (train.py:3)",
                    "backward (train.py:4)",
                    "apply (torch/autograd/function.py:289)",
                    "backward (torch/autograd/__init__.py:266)",
                    "main (train.py:8)",
                ],
                None,
            ),
            // it computes in the forward pass, below DDP
            (
                &[
                    "forward (torch/nn/modules/linear.py:116)",
                    "forward (torch/nn/parallel/distributed.py:1519)",
                    "main (train.py:8)",
                ],
                None,
            ),
            (
                &[
                    "barrier (torch/distributed/distributed_c10d.py:9)",
                    "main (train.py:8)",
                ],
                Some(Wait::Barrier),
            ),
            // functions of libraries that have the name of a collective and compute
            (
                &[
                    "scatter (torch_geometric/utils/_scatter.py:75)",
                    "main (train.py:8)",
                ],
                None,
            ),
            (
                &["broadcast (torch_scatter/utils.py:7)", "main (train.py:8)"],
                None,
            ),
            (
                &["reduce (einops/einops.py:502)", "main (train.py:8)"],
                None,
            ),
            (
                &["reduce (dgl/sparse/reduction.py:78)", "main (train.py:8)"],
                None,
            ),
            // among the GPUs of one process
            (
                &[
                    "scatter (torch/nn/parallel/scatter_gather.py:44)",
                    "main (train.py:8)",
                ],
                None,
            ),
            (
                &[
                    "broadcast (torch/distributed/distributed_c10d.py:2421)",
                    "main (train.py:8)",
                ],
                Some(Wait::Collective),
            ),
            (
                &[
                    "synchronize (horovod/torch/mpi_ops.py:1283)",
                    "broadcast (horovod/torch/mpi_ops.py:851)",
                    "main (train.py:8)",
                ],
                Some(Wait::Collective),
            ),
            // parts of torch.distributed that write files or compute
            (
                &[
                    "_write_files_from_queue (torch/distributed/checkpoint/filesystem.py:412)",
                    "all_reduce (torch/distributed/checkpoint/utils.py:244)",
                    "save (torch/distributed/checkpoint/state_dict_saver.py:172)",
                    "main (train.py:8)",
                ],
                None,
            ),
            (
                &[
                    "gather_object (torch/distributed/distributed_c10d.py:2681)",
                    "all_reduce (torch/distributed/checkpoint/utils.py:248)",
                    "main (train.py:8)",
                ],
                Some(Wait::Collective),
            ),
            (
                &[
                    "dispatch (torch/distributed/tensor/_dispatch.py:153)",
                    "main (train.py:8)",
                ],
                None,
            ),
            (
                &[
                    "_recursive_to (torch/distributed/utils.py:139)",
                    "main (train.py:8)",
                ],
                None,
            ),
        ];
        for (frames, found) in table {
            assert_eq!(wait(&stack(frames)), found, "{frames:?}");
        }
        assert_eq!(own_frame(&stack(SAMPLERS)), Some("train (train.py:93)"));
        assert_eq!(own_frame(&stack(LOADER)), Some(LOADER[0]));
        assert_eq!(own_frame(&stack(BACKWARD)), Some("train (train.py:84)"));
        let exit = ["client_barrier (rpc.py:1109)", "exit_client (a/b.py:3)"];
        assert_eq!(own_frame(&stack(&exit)), Some(exit[0]));
    }

    #[expect(clippy::too_many_lines, reason = "it is a table of cases")]
    #[test]
    fn the_script_is_found_in_a_package_and_beside_generated_code() {
        const RUNPY: [&str; 2] = [
            "_run_code (<frozen runpy>:88)",
            "_run_module_as_main (<frozen runpy>:198)",
        ];
        const OLD_RUNPY: [&str; 2] = [
            "_run_code (runpy.py:86)",
            "_run_module_as_main (runpy.py:194)",
        ];
        let package = [
            "all_reduce (torch/distributed/distributed_c10d.py:2501)",
            "evaluate (pkg/model.py:6)",
            "main (pkg/train.py:9)",
            "<module> (pkg/train.py:13)",
        ];
        let helper = [&package[..2], &["helper (helpers.py:3)"], &package[2..]].concat();
        let nearer = [&package[..1], &["helper (helpers.py:3)"], &package[1..]].concat();
        let table: [(&[&str], Option<usize>); 11] = [
            (&[&package[..], &RUNPY].concat(), Some(1)),
            (&[&package[..], &OLD_RUNPY].concat(), Some(1)),
            // a script with an __init__.py beside it
            (&package, Some(1)),
            (&helper, Some(1)),
            (&nearer, Some(1)),
            (
                &[
                    "all_reduce (pkg/distributed_c10d.py:1)",
                    "main (deep/run/train.py:9)",
                    "<module> (deep/run/train.py:12)",
                    "runctx (cProfile.py:100)",
                    "<module> (cProfile.py:190)",
                ],
                Some(1),
            ),
            // code that FX, numpy and the import system have
            (
                &[
                    "forward (<eval_with_key>.3:7)",
                    "_call_impl (torch/nn/modules/module.py:1520)",
                    "main (train.py:8)",
                    "<module> (train.py:9)",
                ],
                Some(2),
            ),
            (
                &[
                    "concatenate (<__array_function__ internals>:180)",
                    "collate (dgl/dataloading/base.py:9)",
                    "main (train.py:8)",
                ],
                Some(2),
            ),
            (
                &[
                    "<module> (torch/__init__.py:229)",
                    "_call_with_frames_removed (<frozen importlib._bootstrap>:241)",
                    "_find_and_load (<frozen importlib._bootstrap>:1176)",
                    "<module> (train.py:2)",
                ],
                Some(3),
            ),
            (
                &[
                    "all_reduce (torch/distributed/distributed_c10d.py:1)",
                    "<module> (<stdin>:4)",
                ],
                Some(1),
            ),
            // torchrun has no script
            (
                &[
                    "_poll (torch/distributed/elastic/multiprocessing/api.py:500)",
                    "main (torch/distributed/run.py:762)",
                    "<module> (torch/distributed/run.py:800)",
                    RUNPY[0],
                ],
                None,
            ),
        ];
        for (frames, position) in table {
            assert_eq!(own_position(&stack(frames)), position, "{frames:?}");
        }
    }

    #[test]
    fn the_odd_function_counts_where_nobody_waits_by_its_stack() {
        let sync = |line: u32| vec![format!("sync (train.py:{line})")];
        let load = || stack(&["load (train.py:13)"]);
        for (stacks, culprit) in [
            (
                vec![sync(18), sync(19), sync(18), load()],
                Some((Role::Worker, 3)),
            ),
            (vec![sync(18), sync(19), load()], None),
            (vec![sync(18), sync(19), load(), load()], None),
            (vec![sync(18), sync(19), sync(18), sync(18)], None),
        ] {
            let members = (0..).map(|rank| (Role::Worker, rank));
            let comparison = Comparison::of(members.zip(stacks));
            assert_eq!(comparison.culprit(), None);
            assert_eq!(comparison.with_odd_function().culprit(), culprit);
        }
    }

    #[test]
    fn several_are_named_in_few_words() {
        let trainers =
            |count| -> Vec<(Role, u32)> { (0..count).map(|rank| (Role::Trainer, rank)).collect() };
        let mixed = [(Role::Server, 1), (Role::Trainer, 0)];
        assert_eq!(names(&[]), "nobody");
        assert_eq!(names(&trainers(1)), "trainer 0");
        assert_eq!(names(&trainers(3)), "trainers 0, 1 and 2");
        assert_eq!(names(&trainers(48)), "48 trainers");
        assert_eq!(names(&mixed), "server 1, trainer 0");
    }

    #[test]
    fn children_are_no_trainers() {
        let sampler = [
            "get (multiprocessing/queues.py:113)",
            "spawn_main (multiprocessing/spawn.py:120)",
        ];
        let helper = ["main (multiprocessing/resource_tracker.py:197)"];
        assert_eq!(child(&stack(&sampler)), Some(Child::Sampler));
        assert_eq!(child(&stack(&helper)), Some(Child::Helper));
        assert_eq!(child(&stack(SAMPLERS)), None);
    }

    fn compare(stacks: &[&[&str]]) -> Comparison {
        let numbered = (0..).zip(stacks.iter().map(|frames| stack(frames)));
        Comparison::of(numbered.map(|(rank, frames)| ((Role::Worker, rank), frames)))
    }

    #[test]
    fn who_stands_elsewhere_is_named_only_where_somebody_does() {
        let table: [(&[&[&str]], &[u32]); 14] = [
            (&[REDUCE, LOOP, REDUCE], &[1]),
            (&[REDUCE, BARRIER, REDUCE], &[1]),
            (&[REDUCE, SAMPLERS], &[1]),
            (&[REDUCE, BARRIER], &[]),
            (&[REDUCE, REDUCE], &[]),
            (&[LOOP, LOOP, REDUCE], &[]),
            (&[LOOP, LOOP, LOOP], &[]),
            (&[LOOP, SAMPLERS, REDUCE, REDUCE, REDUCE], &[0, 1]),
            (&[], &[]),
            (&[FORWARD, BACKWARD, FORWARD, LOADER, BACKWARD], &[3]),
            (&[FORWARD, BARRIER, BACKWARD, BACKWARD], &[1]),
            (&[FORWARD, BACKWARD, BACKWARD, BACKWARD], &[]),
            (&[REDUCE, REDUCE, BACKWARD, BACKWARD], &[]),
            (
                &[REDUCE, BACKWARD, BARRIER, BACKWARD, BACKWARD, BACKWARD],
                &[0, 2],
            ),
        ];
        for (stacks, found) in table {
            let comparison = compare(stacks);
            let outliers = comparison.outliers().iter().flat_map(|one| &one.members);
            let ranks: Vec<u32> = outliers.map(|(_, rank)| *rank).collect();
            assert_eq!(ranks, found, "{stacks:?}");
            let culprit = comparison.culprit().map(|(_, rank)| rank);
            assert_eq!(
                culprit.as_slice(),
                if found.len() == 1 { found } else { &[] }
            );
        }
    }

    #[test]
    fn who_stands_elsewhere_comes_first() {
        let other: Vec<&str> = [&["step (torch/optim/sgd.py:80)"], &BACKWARD[2..]].concat();
        let comparison = compare(&[FORWARD, BACKWARD, BACKWARD, LOADER, BACKWARD]);
        assert_eq!(
            comparison.lines(),
            [
                "worker 3, unlike the others, is in __getitem__ (train.py:42)",
                "worker 0 waits for all others in DDP's forward pass [train (train.py:84)]",
                "workers 1, 2 and 4 wait for all others in DDP's backward pass \
                 [train (train.py:84)]",
            ]
        );
        let comparison = compare(&[&other, BACKWARD, BACKWARD, &BACKWARD[2..], BACKWARD]);
        assert_eq!(
            comparison.sentence(names, ", as it seems"),
            "workers 0 and 3 are in train (train.py:84), as it seems, while workers 1, 2 and 4 \
             wait for all others in DDP's backward pass [train (train.py:84)]"
        );
    }
}
