//! The states of a job's processes as their hosts report them, and the records of these events.
//! Each event is accepted only once.

use record::term::{millis, now_ms};
use record::{Exited, Listening, Process, Started};
use std::time::{Duration, Instant};
use wire::supervise;

#[derive(Default)]
struct ProcessState {
    started: Option<Instant>,
    listens: bool,
    exited: bool,
}

pub struct ProcessTable<'a> {
    processes: &'a [Process],
    states: Vec<ProcessState>,
}

impl<'a> ProcessTable<'a> {
    pub fn new(processes: &'a [Process]) -> ProcessTable<'a> {
        ProcessTable {
            processes,
            states: processes.iter().map(|_| ProcessState::default()).collect(),
        }
    }

    pub fn has_exited(&self, process: usize) -> bool {
        self.states[process].exited
    }

    /// For how long no trainer or worker was started or, by `wrote`, has written.
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

    pub fn started(
        &mut self,
        process: usize,
        pid: u32,
        now: Instant,
    ) -> Result<Started, &'static str> {
        let state = &mut self.states[process];
        if state.started.replace(now).is_some() || state.exited {
            return Err("a process started twice");
        }
        let process = &self.processes[process];
        Ok(Started {
            id: process.id,
            host: process.host,
            role: process.role,
            rank: process.rank,
            pid,
            time_ms: now_ms(),
        })
    }

    pub fn listening(&mut self, process: usize) -> Result<Listening, &'static str> {
        let listens = &mut self.states[process].listens;
        let process = &self.processes[process];
        let Some(port) = process.port.filter(|_| !std::mem::replace(listens, true)) else {
            return Err("a process listens that has no port, or twice");
        };
        Ok(Listening {
            id: process.id,
            host: process.host,
            role: process.role,
            rank: process.rank,
            port,
            time_ms: now_ms(),
        })
    }

    /// `while_ending` is whether the end of the job had begun.
    pub fn exited(
        &mut self,
        process: usize,
        exited: &supervise::Exited,
        while_ending: bool,
        now: Instant,
    ) -> Result<Exited, &'static str> {
        let state = &mut self.states[process];
        if std::mem::replace(&mut state.exited, true) {
            return Err("a process ended twice");
        }
        let ran = state
            .started
            .map_or(Duration::ZERO, |start| now.saturating_duration_since(start));
        let process = &self.processes[process];
        Ok(Exited {
            id: process.id,
            host: process.host,
            role: process.role,
            rank: process.rank,
            end: exited.end,
            elapsed_ms: millis(ran),
            cpu_s: Some(exited.cpu_s).filter(|seconds| seconds.is_finite() && *seconds >= 0.0),
            max_rss_bytes: Some(exited.max_rss_bytes),
            kill_sent: exited.kill_sent,
            while_ending,
        })
    }
}
