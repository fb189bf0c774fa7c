//! The states of a job's processes as their hosts report them, and the records of these events.
//! Each event is accepted only once.

use crate::output::sink::OutputSink;
use record::term::{millis, now_ms};
use record::{Exited, Listening, Process, Started};
use std::time::{Duration, Instant};
use wire::supervise;

/// The state of a process.
#[derive(Default)]
struct ProcessState {
    /// When it was started.
    started: Option<Instant>,
    listens: bool,
    exited: bool,
}

/// The processes of a job.
pub struct ProcessTable<'a> {
    processes: &'a [Process],
    states: Vec<ProcessState>,
    /// How many were started.
    started_count: usize,
}

impl<'a> ProcessTable<'a> {
    /// Begins with processes whose start has been requested.
    pub fn new(processes: &'a [Process]) -> ProcessTable<'a> {
        ProcessTable {
            processes,
            states: processes.iter().map(|_| ProcessState::default()).collect(),
            started_count: 0,
        }
    }

    /// Whether all processes were started.
    pub fn are_all_started(&self) -> bool {
        self.started_count == self.states.len()
    }

    /// Whether a process has exited.
    pub fn has_exited(&self, process: usize) -> bool {
        self.states[process].exited
    }

    /// For how long no trainer or worker has been started or, by `wrote`, has written.
    pub fn silent(
        &self,
        now: Instant,
        wrote: impl Fn(usize) -> Option<Instant>,
    ) -> Option<Duration> {
        let clients = self.processes.iter().zip(&self.states).enumerate();
        let clients = clients.filter(|(_, (process, state))| {
            !process.serves() && state.started.is_some() && !state.exited
        });
        let last = clients
            .filter_map(|(position, (_, state))| wrote(position).max(state.started))
            .max();
        last.map(|last| now.saturating_duration_since(last))
    }

    /// Notes that a process runs.
    pub fn started(
        &mut self,
        process: usize,
        pid: u32,
        now: Instant,
        sink: &mut OutputSink,
    ) -> Result<(), &'static str> {
        let state = &mut self.states[process];
        if state.started.replace(now).is_some() || state.exited {
            return Err("a process started twice");
        }
        self.started_count += 1;
        let Process {
            id,
            host,
            role,
            rank,
            ..
        } = self.processes[process];
        sink.record(&Started {
            id,
            host,
            role,
            rank,
            pid,
            time_ms: now_ms(),
        });
        Ok(())
    }

    /// Notes that a server listens.
    pub fn listening(&mut self, process: usize, sink: &mut OutputSink) -> Result<(), &'static str> {
        let Process {
            id,
            host,
            role,
            rank,
            port,
            ..
        } = self.processes[process];
        let listens = &mut self.states[process].listens;
        let Some(port) = port.filter(|_| !std::mem::replace(listens, true)) else {
            return Err("a process listens that has no port, or twice");
        };
        sink.record(&Listening {
            id,
            host,
            role,
            rank,
            port,
            time_ms: now_ms(),
        });
        Ok(())
    }

    /// Notes that a process has ended.
    pub fn exited(
        &mut self,
        process: usize,
        exited: &supervise::Exited,
        (while_ending, now): (bool, Instant),
        sink: &mut OutputSink,
    ) -> Result<(), &'static str> {
        let state = &mut self.states[process];
        if std::mem::replace(&mut state.exited, true) {
            return Err("a process ended twice");
        }
        let ran = state
            .started
            .map_or(Duration::ZERO, |start| now.saturating_duration_since(start));
        let Process {
            id,
            host,
            role,
            rank,
            ..
        } = self.processes[process];
        sink.record(&Exited {
            id,
            host,
            role,
            rank,
            end: exited.end,
            elapsed_ms: millis(ran),
            cpu_s: Some(exited.cpu_s).filter(|seconds| seconds.is_finite() && *seconds >= 0.0),
            max_rss_bytes: Some(exited.max_rss_bytes),
            while_ending,
        });
        Ok(())
    }
}

/// An event that a host must not send, or not now.
pub struct ProtocolBreach(pub String);

impl<T: Into<String>> From<T> for ProtocolBreach {
    fn from(breach: T) -> ProtocolBreach {
        ProtocolBreach(breach.into())
    }
}
