//! Every message between a tool and the `host-agent` on a host.
//!
//! A [`Request`] goes to the agent, and [`Event`]s come back; each is one JSON object on a line.
//! Bytes (a file's content, a process's output) follow their line, which announces their number,
//! see [`codec`]. Tool and agent are always of one build, because the agent is found by the hash of
//! its content: messages may change with every commit, and need no versions.
//!
//! Each module has the messages of one subject. This crate opens, reads and writes nothing.

pub mod codec;
pub mod dial;
pub mod ending;
pub mod files;
pub mod job;
pub mod preflight;
pub mod probe;
pub mod reap;
pub mod servers;
pub mod stacks;
pub mod supervise;
mod text;

pub use text::{Text, cut_message, shown};

use serde::{Deserialize, Serialize};

/// A request of a tool to a host. The agent answers requests in order, each with any number of
/// events and then [`Event::Done`] or [`Event::Failed`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Request {
    Probe(probe::Probe),
    /// Names the job of the following requests.
    Job(job::Job),
    /// The record of the next process of that job on this host.
    Process(Box<record::Process>),
    /// Starts the described processes. From here on the agent serves only them.
    Start(supervise::Start),
    /// The launcher's heartbeat, sent at a fixed interval while processes run.
    Alive,
    /// Ends the processes: TERM, and KILL after the grace.
    End(supervise::End),
    Kill,
    /// Asks for the stacks of all processes: [`Event::Stack`]s, then [`Event::StacksReported`].
    ReportStacks,
    /// Asks whether persistent graph servers run.
    FindServers(Box<servers::Find>),
    /// Asks for a group of trainers to use these graph servers.
    TakeGroup(servers::ServersOnHost),
    /// Asks their supervisor for [`Event::ServersEnded`] when they end.
    AwaitServersEnd,
    /// Lists this user's processes of all jobs: one [`Event::Found`] each.
    ListJobs,
    /// Lists the processes of this user, for root of all users, that a launcher has numbered, and
    /// the torchruns: one [`Event::Rank`] each.
    FindRanks,
    /// Asks for the stacks of the Python processes of a job: one [`Event::Stack`] each.
    TakeStacks(stacks::TakeStacks),
    /// Samples the stacks of the Python processes of a job: one [`Event::Profile`] each at the end.
    RecordStacks(stacks::RecordStacks),
    /// Picks and holds the processes that will get a signal.
    PickProcesses(reap::Pick),
    /// Sends the picked processes the signal: [`Event::Reaped`] if there are any.
    SignalPicked(reap::Signal),
    /// Ends jobs: one [`Event::Reaped`] each.
    EndJobs(reap::EndJobs),
    /// Removes DGL's unused files in /dev/shm: [`Event::Reaped`].
    RemoveStaleShm,
    /// Claims the job's name, its ports and its use of /dev/shm on this host, until the agent ends
    /// or [`Request::Release`]. Answered by [`Event::Taken`] for each job that holds any of them;
    /// then nothing is claimed.
    Claim,
    /// The job has claimed all of its hosts, so other jobs need not wait for it to give up.
    Confirm,
    Release,
    Preflight(preflight::Check),
    /// From here on the conversation is only about files.
    File(files::FileRequest),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    Probed(Box<probe::Probed>),
    Started(supervise::Started),
    Listening(supervise::Listening),
    Output(supervise::Output),
    Drained(supervise::Drained),
    Exited(supervise::Exited),
    /// Shared memory that the job left was removed.
    ShmRemoved(supervise::ShmRemoved),
    Activity(supervise::Activity),
    /// All stacks for [`Request::ReportStacks`] were sent.
    StacksReported(supervise::StacksReported),
    /// A process raised an exception and does not end.
    Raised(supervise::Raised),
    ServersEnded(servers::ServersEnded),
    Over(supervise::Over),
    /// The agent's heartbeat, sent at a fixed interval while processes run.
    Alive,
    Servers(Box<servers::ServersState>),
    Group(servers::TrainerGroup),
    Found(#[serde(deserialize_with = "reap::found")] record::Found),
    Rank(#[serde(deserialize_with = "stacks::rank_process")] Box<stacks::RankProcess>),
    Stack(Box<stacks::ProcessStacks>),
    Profile(Box<stacks::CountedStacks>),
    Reaped(#[serde(deserialize_with = "reap::reaped")] record::Reaped),
    /// What a [`Request::Claim`] asked for and another job holds.
    Taken(preflight::Taken),
    Preflight(preflight::Finding),
    File(files::FileEvent),
    /// The request was carried out; no more of its events follow.
    Done,
    /// The request failed; no more of its events follow.
    Failed(Failure),
}

/// Why a request failed, in words for users.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// One line. The tool words the fix, not the host, because users may paste it.
    #[serde(deserialize_with = "text::message")]
    pub problem: String,
}

impl Failure {
    pub fn new(problem: impl Into<String>) -> Failure {
        Failure {
            problem: problem.into(),
        }
    }
}
