//! Reports that a job stalls or is active again, where its processes are, and which of them have
//! raised an exception and do not end.

use super::executor::HostSession;
use super::stall::{self, StallReports};
use crate::output::sink::OutputSink;
use record::stacks;
use record::term::{self, now_ms};
use record::{Culprit, Process, Resumed, Sign, Stack, Stalled};
use std::collections::BTreeMap;
use std::time::Duration;
use wire::supervise::Raised;

/// The state of the reports about stalls and exceptions.
pub struct StallReporter<'a> {
    job: &'a str,
    processes: &'a [Process],
    /// The name of each process in messages: `host 1 (10.0.0.2): trainer 3`.
    names: Vec<String>,
    /// The number of the first host, whose budget limits the reports about stalls, because any host
    /// may cause them.
    first_host: u32,
    /// The stacks that hosts report.
    pub reports: StallReports,
    /// When the last activity was, and why the job stalls, from the report of the stall until the
    /// job is active again.
    stalls: Option<(u64, String)>,
    /// Processes that have raised an exception and do not end.
    raised: BTreeMap<usize, Raised>,
}

impl<'a> StallReporter<'a> {
    /// Begins with an active job.
    pub fn new(
        job: &'a str,
        processes: &'a [Process],
        sessions: &[HostSession<'_>],
    ) -> StallReporter<'a> {
        let mut names = vec![String::new(); processes.len()];
        for session in sessions {
            for member in &session.members {
                let Process { role, rank, .. } = &processes[*member];
                names[*member] = format!("{}: {} {rank}", session.host.location(), role.name());
            }
        }
        let first_host = sessions.first().map_or(0, |session| session.host.id);
        StallReporter {
            job,
            processes,
            names,
            first_host,
            reports: StallReports::default(),
            stalls: None,
            raised: BTreeMap::new(),
        }
    }

    /// Why the job stalls, if it does; empty if that is not known.
    pub fn brief(&self) -> Option<&str> {
        Some(&self.stalls.as_ref()?.1)
    }

    /// Handles the stacks of a process. While the job ends, they are recorded at once.
    pub fn stack(&mut self, host: usize, stack: Stack, is_ending: bool, sink: &mut OutputSink) {
        self.reports.stack(host, stack);
        if is_ending {
            for stack in self.reports.take_pending(host) {
                self.write_stack(stack, true, sink);
            }
        }
    }

    /// Reports that the job stalls, with the answers of all hosts.
    pub fn found(&mut self, stalled: job::JobStalled, sink: &mut OutputSink) {
        let stall = self.reports.complete(stalled, now_ms());
        let why = stall::explain(&stall, self.processes, &self.raised);
        for stack in &stall.stacks {
            self.write_stack(stack.clone(), false, sink);
        }
        let since_ms = stall.since_ms();
        let stalled = Stalled {
            since_ms,
            silent_s: stalled.silent.as_secs_f64(),
            computing: stalled.computing.is_some(),
            reason: why.reason.clone(),
            culprit: why.culprit.clone(),
            time_ms: stall.time_ms,
        };
        sink.report(self.first_host, &stalled);
        sink.keep_stall(Some((stalled, stall.stacks.clone())));
        for line in stall::lines(self.job, &stall, &why) {
            notice(sink, &line);
        }
        self.stalls = Some((since_ms, why.brief));
    }

    /// Writes the record of a stack, within the budget of its host.
    fn write_stack(&self, stack: Stack, while_ending: bool, sink: &mut OutputSink) {
        let record = Stack {
            job: self.job.to_owned(),
            while_ending,
            ..stack
        };
        sink.report(record.host, &record);
    }

    /// Reports that the job is active again, with the process if it is known.
    pub fn resumed(&mut self, moved: Option<(usize, Sign)>, sink: &mut OutputSink) {
        let time_ms = now_ms();
        let Some((since_ms, _)) = self.stalls.take() else {
            return;
        };
        let (process, sign) = moved.unzip();
        let process = process.map(|position| &self.processes[position]);
        let activity = match (process, sign) {
            (Some(process), Some(sign)) => {
                format!(": {} {}", stacks::names(&[process.member()]), sign.words())
            }
            _ => String::new(),
        };
        let resumed = Resumed {
            since_ms,
            time_ms,
            process: process.map(Culprit::of),
            sign,
        };
        sink.report(self.first_host, &resumed);
        sink.keep_stall(None);
        let time = Duration::from_millis(time_ms.saturating_sub(since_ms));
        let line = format!(
            "job {} moves again, after {}{activity}",
            self.job,
            term::seconds(time)
        );
        notice(sink, &line);
    }

    /// Reports a running process that has raised an exception, is silent since, and does not end.
    pub fn raised(&mut self, process: usize, raised: Raised, sink: &OutputSink) {
        if self.raised.get(&process) == Some(&raised) {
            return;
        }
        let stays = match stacks::wait(&raised.frames) {
            Some(wait) => format!("it {}", wait.words()),
            None => "it does not end".to_owned(),
        };
        let silent = term::seconds(Duration::from_millis(raised.silent_ms));
        let name = &self.names[process];
        let line = format!(
            "{name} raised {} and has been silent for {silent}: {stays}",
            raised.exception
        );
        notice(sink, &line);
        self.raised.insert(process, raised);
    }

    /// Notes that a process continues or has ended, so that its exception does not block the job.
    pub fn goes_on(&mut self, process: usize) {
        self.raised.remove(&process);
    }

    /// A sentence for each process, except for one, that had raised an exception and did not end
    /// before the job.
    pub fn raised_lines(&self, but: Option<usize>) -> Vec<String> {
        let stayed = self
            .raised
            .iter()
            .filter(|(process, _)| Some(**process) != but);
        let line = |(process, raised): (&usize, &Raised)| {
            let name = &self.names[*process];
            format!("{name} had raised {} and did not end", raised.exception)
        };
        stayed.map(line).collect()
    }
}

fn notice(sink: &OutputSink, text: &str) {
    sink.notice(&format!("dgl-spawn: {}", term::plain(text)));
}
