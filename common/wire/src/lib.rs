//! Every message between a tool and the `host-agent` on a host.
//!
//! A [`Request`] goes to the agent, [`Event`]s come back; each is one JSON object on a line. Bytes
//! (the content of a file, the output of a process) stand behind their line as a frame whose length
//! the line announces, see [`codec`]. Tool and agent are always of one build, because the agent is
//! found by the hash of its content: messages may change with every commit, and need no versions.
//!
//! A module a subject: what is asked, what is answered. Nothing here opens, reads or writes
//! anything.

pub mod codec;
pub mod dial;
mod ending;
pub mod files;
pub mod job;
pub mod keep;
pub mod link;
pub mod preflight;
pub mod probe;
pub mod reap;
pub mod servers;
pub mod stacks;
pub mod supervise;
mod text;

pub use text::Text;

use serde::{Deserialize, Serialize};

/// What a tool asks of a host. The agent answers one request after the other, each with any number
/// of events and then [`Event::Done`] or [`Event::Failed`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Request {
    /// What the host is and has.
    Probe(probe::Probe),
    /// What the job is that requests behind this one are about.
    Job(job::Job),
    /// A process of it.
    Process(job::Process),
    /// Starts the processes that were told of; from here on the agent is there for them alone.
    Start(supervise::Start),
    /// The launcher lives. Sent at a fixed pace while processes run.
    Alive,
    /// Ends the processes.
    End(supervise::End),
    /// Ends them at once.
    Kill,
    /// Where all of them stand.
    Stand(supervise::Stand),
    /// What follows is for an agent that outlives this connection.
    Keep,
    /// A record of a process, kept for those who follow.
    Record(keep::Record),
    /// The keeper makes itself ready.
    Prepare(Box<keep::Prepare>),
    /// A host whose keeper will join this one.
    Guest(keep::Guest),
    /// The keeper joins that of the first host.
    Join(keep::Join),
    /// Tells what a job that was left has done and does.
    Follow(keep::Follow),
    /// Whether graph servers that stay are there.
    FindServers(Box<servers::Find>),
    /// This launcher wants to start them.
    ClaimServers(servers::Servers),
    /// A group of trainers is to use them.
    TakeGroup(servers::Servers),
    /// The processes of all jobs of this user: [`Event::Found`] each.
    ListJobs,
    /// Where the Pythons of a job stand: [`Event::Stack`] each.
    TakeStacks(reap::Pick),
    /// Processes that will get a signal are held until it comes: [`Event::Picked`].
    PickProcesses(reap::Pick),
    /// They get it: [`Event::Signalled`].
    SignalPicked(reap::Signal),
    /// Jobs are ended: [`Event::Reaped`] each.
    EndJobs(reap::End),
    /// DGL's files in /dev/shm that nobody uses are removed: [`Event::RemovedShm`].
    RemoveStaleShm,
    /// Folders of jobs that were left and have ended are removed: [`Event::Forgotten`] each.
    ForgetJobs(reap::Forget),
    /// Takes the job's name and ports on this host, until the agent ends or [`Request::Release`]:
    /// answered by [`Event::Taken`] for each thing that another job has, and then nothing is taken.
    Claim(preflight::Claim),
    /// The job has all of its hosts: whoever finds something taken need not wait for it.
    Confirm,
    /// Gives back what was claimed.
    Release,
    /// Looks at one thing before the job starts.
    Preflight(preflight::Check),
    /// Another host will send, to see how fast it can: [`Event::LinkExpected`].
    ExpectLink(link::Expect),
    /// Sends to another host: [`Event::LinkSent`].
    SendLink(link::Send),
    /// What has come: [`Event::LinkReceived`].
    TellLink,
    /// Files come or go; the conversation is about nothing else from here on.
    File(files::FileRequest),
}

/// What the agent tells.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The answer to [`Request::Probe`].
    Probed(Box<probe::Probed>),
    /// A process runs.
    Started(supervise::Started),
    /// A graph server listens.
    Listening(supervise::Listening),
    /// A process wrote something.
    Output(supervise::Output),
    /// A stream of a process is at its end.
    Drained(supervise::Drained),
    /// A process ended.
    Exited(supervise::Exited),
    /// Shared memory that the job had left was removed.
    ShmRemoved(supervise::ShmRemoved),
    /// What the host and the job's processes have used since this was told last.
    Usage(supervise::Usage),
    /// The job's processes give no sign of life.
    Idle(supervise::Idle),
    /// They do again.
    Moves,
    /// The answer to [`Request::Stand`], behind the stacks.
    Stands(supervise::Stands),
    /// A process has raised an exception and stays.
    Raised(supervise::Raised),
    /// The graph servers that the job uses have ended.
    ServersEnded,
    /// All processes have ended.
    Over(supervise::Over),
    /// The agent lives. Sent at a fixed pace while processes run.
    Alive,
    /// The keeper is ready.
    Prepared(keep::Prepared),
    /// The job cannot be kept on this host.
    Refused(keep::Refused),
    /// The job is kept; it no longer needs this connection.
    Kept(keep::Kept),
    /// A record of a job that was left.
    Record(keep::Record),
    /// The job's records are at their end.
    Ready,
    /// There is no such job.
    NoJob,
    /// What happened to a job that was left.
    Past(keep::Past),
    /// The job's end has begun.
    Ending(keep::Ending),
    /// The job stalls.
    Stalled(keep::Stalled),
    /// It moves again.
    Resumed,
    /// Nobody keeps the job any more, and nobody knows how it ended.
    KeeperGone,
    /// The answer to [`Request::FindServers`].
    Servers(servers::State),
    /// The answer to [`Request::ClaimServers`].
    StartClaimed(servers::StartClaimed),
    /// The answer to [`Request::TakeGroup`].
    Group(servers::Group),
    /// A process of a job.
    Found(reap::Found),
    /// Where a process of a job stands.
    Stack(stacks::Stack),
    /// So many processes wait for a signal.
    Picked(reap::Count),
    /// So many got it.
    Signalled(reap::Count),
    /// A job was ended.
    Reaped(reap::Reaped),
    /// Shared memory was removed.
    RemovedShm(reap::RemovedShm),
    /// The folder of a job was removed.
    Forgotten(reap::Forgotten),
    /// What a [`Request::Claim`] could not have.
    Taken(preflight::Taken),
    /// What a [`Request::Preflight`] has found.
    Preflight(preflight::Finding),
    /// Another host may send now.
    LinkExpected(link::Expected),
    /// What was sent to another host.
    LinkSent(link::Sent),
    /// What another host has sent.
    LinkReceived(link::Received),
    /// Of files.
    File(files::FileEvent),
    /// The request was carried out; nothing more comes of it.
    Done,
    /// The request could not be carried out; nothing more comes of it.
    Failed(Failure),
}

/// Why a request could not be carried out, in words for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// What is wrong, in one line.
    pub problem: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

impl Failure {
    /// A problem whose cure is not known.
    pub fn new(problem: impl Into<String>) -> Failure {
        Failure {
            problem: problem.into(),
            fix: None,
        }
    }

    /// The same with its cure.
    pub fn fix(self, fix: impl Into<String>) -> Failure {
        Failure {
            fix: Some(fix.into()),
            ..self
        }
    }
}
