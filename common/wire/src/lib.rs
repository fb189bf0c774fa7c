//! Every message between a tool and the `host-agent` on a host.
//!
//! A [`Request`] goes to the agent, and [`Event`]s come back; each is one JSON object on a line.
//! Bytes (the content of a file, the output of a process) follow their line as a frame whose length
//! the line announces, see [`codec`]. Tool and agent are always of one build, because the agent is
//! found by the hash of its content: messages may change with every commit, and need no versions.
//!
//! Each module has the requests and events of one subject. This crate opens, reads and writes
//! nothing.

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

pub use text::{Text, cut, shown};

use serde::{Deserialize, Serialize};

/// A request of a tool to a host. The agent answers one request after another, each with any number
/// of events and then [`Event::Done`] or [`Event::Failed`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Request {
    Probe(probe::Probe),
    /// Names the job that the following requests concern.
    Job(job::Job),
    /// Describes the next process of that job on this host, by its record.
    Process(Box<record::Process>),
    /// Starts the processes that were described. From here on the agent serves only them.
    Start(supervise::Start),
    /// A heartbeat of the launcher, sent at a fixed interval while processes run.
    Alive,
    /// Ends the processes: TERM, and KILL after the grace.
    End(supervise::End),
    Kill,
    /// Asks for the stacks of all processes: one [`Event::Stack`] each, and then
    /// [`Event::StacksReported`].
    ReportStacks,
    /// Asks whether persistent graph servers run.
    FindServers(Box<servers::Find>),
    /// Asks for a group of trainers to use these graph servers.
    TakeGroup(servers::ServersOnHost),
    /// Asks their supervisor for [`Event::ServersEnded`] when they end.
    AwaitServersEnd,
    /// Lists the processes of all jobs of this user: one [`Event::Found`] each.
    ListJobs,
    /// Asks for the stacks of the Python processes of a job: one [`Event::Stack`] each.
    TakeStacks(stacks::TakeStacks),
    /// Samples the stacks of the Python processes of a job: one [`Event::Profile`] each at the end.
    RecordStacks(stacks::RecordStacks),
    /// Picks and holds the processes that will get a signal.
    PickProcesses(reap::Pick),
    /// Sends the signal to the processes that were picked: [`Event::Reaped`] if there are any.
    SignalPicked(reap::Signal),
    /// Ends jobs: one [`Event::Reaped`] each.
    EndJobs(reap::EndJobs),
    /// Removes DGL's unused files in /dev/shm: [`Event::Reaped`].
    RemoveStaleShm,
    /// Claims the job's name, its ports and its use of /dev/shm on this host, until the agent ends
    /// or [`Request::Release`]. Answered by [`Event::Taken`] for each job that holds any of them;
    /// then nothing is claimed.
    Claim,
    /// Confirms that the job has claimed all of its hosts, so that other jobs need not wait for it
    /// to give up.
    Confirm,
    Release,
    Preflight(preflight::Check),
    /// A request about files. From here on the conversation is only about them.
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
    /// Shared memory that the job had left was removed.
    ShmRemoved(supervise::ShmRemoved),
    /// For how long the job's processes have shown no activity.
    Activity(supervise::Activity),
    /// All stacks were sent that [`Request::ReportStacks`] asks for.
    StacksReported(supervise::StacksReported),
    /// A process has raised an exception and does not end.
    Raised(supervise::Raised),
    ServersEnded(servers::ServersEnded),
    Over(supervise::Over),
    /// A heartbeat of the agent, sent at a fixed interval while processes run.
    Alive,
    Servers(Box<servers::ServersState>),
    Group(servers::TrainerGroup),
    Found(record::Found),
    Stack(Box<stacks::ProcessStacks>),
    Profile(Box<stacks::CountedStacks>),
    /// A job was ended or signalled, or its remains were removed.
    Reaped(record::Reaped),
    /// Something that a [`Request::Claim`] asked for and that another job holds.
    Taken(preflight::Taken),
    Preflight(preflight::Finding),
    File(files::FileEvent),
    /// The request was carried out; no more events of it follow.
    Done,
    /// The request could not be carried out; no more events of it follow.
    Failed(Failure),
}

/// Why a request could not be carried out, in words for users.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The problem, in one line. The tool words the fix, and not the host, because users may paste
    /// it.
    pub problem: String,
}

impl Failure {
    pub fn new(problem: impl Into<String>) -> Failure {
        Failure {
            problem: problem.into(),
        }
    }
}
