//! The processes of a job while they live: start, output, end.
//!
//! [`Start`] comes behind the job and its processes, and is answered by what happens until
//! [`Over`], after which nothing comes. While they run both sides send `alive` at a fixed pace, so
//! that silence means loss.

use ::job::ExitStatus;
use serde::{Deserialize, Serialize};

/// Starts all processes of the job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Start {
    /// They get a /dev/shm of their own, in a mount namespace.
    pub private_shm: bool,
    /// Environment that each of them has; its own counts more.
    pub env: Vec<(String, crate::Text)>,
    /// They are graph servers that stay: their trainers map their shared memory, and may end a
    /// moment after them.
    pub stays: bool,
    /// The graph servers that stay and that they use:
    /// [`Event::ServersEnded`](crate::Event::ServersEnded) tells when these have ended.
    pub uses: Option<crate::servers::Servers>,
    /// How often [`Event::Usage`](crate::Event::Usage) is told, in milliseconds; 0 for never.
    pub usage_ms: u64,
    /// NVIDIA's cards are told of, too.
    pub gpus: bool,
    /// After how long without a sign of life the job stalls, in milliseconds; 0 where nobody wants
    /// to know. [`Event::Idle`](crate::Event::Idle) is told oftener.
    pub stall_ms: u64,
    /// A process that raises an exception which nobody catches is to be told of at once, where its
    /// stack shows that it has left its script.
    pub fail_on_exception: bool,
}

/// Ends all processes of the job: TERM, and KILL for what is left after the grace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// From TERM to KILL, in milliseconds.
    pub grace_ms: u64,
    /// ABRT comes first: Python prints where it is (PYTHONFAULTHANDLER).
    #[serde(default)]
    pub stacks: bool,
}

/// A process runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// The number of the process on its host.
    pub index: u32,
    /// The process id.
    pub pid: u32,
}

/// A process of the job listens on the port of a graph server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listening {
    /// The number of the server's process on its host.
    pub index: u32,
}

/// One of the two streams that a process writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// What a process wrote; the bytes stand behind it, as they came, whether they are whole lines or
/// not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Output {
    /// The number of the process on its host.
    pub index: u32,
    /// The stream of the process.
    pub stream: Stream,
}

/// A stream of a process is at its end: nobody holds it any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drained {
    /// The number of the process on its host.
    pub index: u32,
    /// The stream of the process.
    pub stream: Stream,
}

/// A process ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Exited {
    /// The number of the process on its host.
    pub index: u32,
    /// How. An exit with 137 and a death by KILL are two things.
    #[serde(flatten)]
    pub status: ExitStatus,
    /// It left a core file.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub core: bool,
    /// CPU time of the process and of the children that it waited for, in seconds.
    pub cpu_s: f64,
    /// The most main memory that it, or the largest of those children, had at once.
    pub max_rss_bytes: u64,
    /// The kernel killed it because memory ran out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub oom: bool,
    /// dgl-reap ended it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reaped: bool,
}

/// What was used since it was told last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// So long ago.
    pub interval_ms: u64,
    /// By the whole host.
    pub host: HostUsage,
    /// By processes of the job, each with its children; of those that run.
    pub processes: Vec<ProcessUsage>,
    /// What the cards of the host do, where they were to be told of and there are some.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<Gpu>,
}

/// A card of NVIDIA's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    /// Its number on the host.
    pub index: u32,
    /// How much of the time it computed.
    pub util_percent: u8,
    /// Memory in use.
    pub mem_used_bytes: u64,
    /// Memory.
    pub mem_bytes: u64,
}

/// What a host has used, whoever it was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostUsage {
    /// Processor time of all processors together, in milliseconds.
    pub cpu_ms: u64,
    /// Processors.
    pub cpus: u32,
    /// Memory that is in use now.
    pub mem_used_bytes: u64,
    /// All memory.
    pub mem_bytes: u64,
    /// What lies in /dev/shm now.
    pub shm_used_bytes: u64,
    /// Bytes that came in over network cards.
    pub net_rx_bytes: u64,
    /// Bytes that went out.
    pub net_tx_bytes: u64,
    /// Bytes read from disks.
    pub disk_read_bytes: u64,
    /// Bytes written to them.
    pub disk_write_bytes: u64,
}

/// What a process has used, with its children.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessUsage {
    /// Which one.
    pub index: u32,
    /// Processor time, in milliseconds.
    pub cpu_ms: u64,
    /// Memory that they hold now; what they share counts once.
    pub rss_bytes: u64,
    /// What of that is shared memory.
    pub shm_bytes: u64,
}

/// None of the job's processes has given a sign of life: output, processor time, bytes over the
/// network or from a disk. Told again and again as long as it is so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Idle {
    /// For so long, in milliseconds.
    pub for_ms: u64,
}

/// Asks where all processes of the job stand: [`Event::Stack`](crate::Event::Stack) each, and then
/// [`Stands`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stand {
    /// Of the question.
    pub number: u32,
}

/// Where all stand was told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stands {
    /// Of the question.
    pub number: u32,
    /// For how long there has been no sign of life, when the stacks had been taken, in
    /// milliseconds.
    pub idle_ms: u64,
    /// Processes that a signal has stopped (SIGSTOP), by their numbers on the host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stopped: Vec<u32>,
}

/// A process has written a traceback and nothing since, and does not end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Raised {
    /// The number of the process on its host.
    pub index: u32,
    /// The line that names the exception.
    pub exception: String,
    /// For how long it has written nothing, in milliseconds.
    pub silent_ms: u64,
    /// Its main thread has left its script, which proves that nobody caught the exception; false
    /// where it is still there. Absent where that is not known: its stack could not be read, or the
    /// exception was another thread's or a child's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_script: Option<bool>,
    /// Where it stands, the innermost frame first; empty where that is not known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub frames: Vec<String>,
}

/// Files that the job had left in /dev/shm were removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShmRemoved {
    /// How many files there are.
    pub files: u32,
}

/// All has ended, and all output was told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Over {
    /// Processes that could not be ended.
    pub survivors: u32,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Event, Request};

    #[test]
    fn as_they_stand_in_the_manual() {
        let event = |text: &str| serde_json::from_str::<Event>(text).unwrap();
        let exited = Exited {
            index: 2,
            status: ExitStatus::Code(137),
            core: false,
            cpu_s: 1.5,
            max_rss_bytes: 4096,
            oom: false,
            reaped: false,
        };
        assert_eq!(
            event(r#"{"event":"exited","index":2,"code":137,"cpu_s":1.5,"max_rss_bytes":4096}"#),
            Event::Exited(exited.clone())
        );
        let killed = Exited {
            status: ExitStatus::Signal(9),
            oom: true,
            ..exited
        };
        assert_eq!(
            serde_json::from_str::<Event>(
                &serde_json::to_string(&Event::Exited(killed.clone())).unwrap()
            )
            .unwrap(),
            Event::Exited(killed)
        );
        assert_eq!(
            event(r#"{"event":"output","index":0,"stream":"stderr"}"#),
            Event::Output(Output {
                index: 0,
                stream: Stream::Stderr
            })
        );
        let end: Request = serde_json::from_str(r#"{"do":"end","grace_ms":500}"#).unwrap();
        assert_eq!(
            end,
            Request::End(End {
                grace_ms: 500,
                stacks: false
            })
        );
        assert_eq!(
            serde_json::from_str::<Request>(r#"{"do":"start"}"#).unwrap(),
            Request::Start(Start::default())
        );
    }
}
