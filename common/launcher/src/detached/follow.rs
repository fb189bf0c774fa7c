//! Follows a detached job: shows what its launcher writes on the first host, to the tool that
//! started the job or attaches to it. Signals are passed on to a job that is being started;
//! afterwards they only end the following.

use crate::output::lines::LineBuffer;
use crate::output::queue::OutputLines;
use crate::output::sink::OutputSink;
use crate::output::status::{self, EndPhase, StatusFacts};
use crate::run::hosts::ConnectedHosts;
use crate::run::inbox::RunEvent;
use crate::run::signals::Signals;
use crate::servers::is_staying;
use job::Progress;
use record::error::{Fault, Report};
use record::exit::{Exit, SignalNumber};
use record::jsonl::Head;
use record::term::{self, millis};
use record::{Exited, Host, Listening, Output, Process, Record, Role, Started, Summary};
use serde::de::DeserializeOwned;
use session::SessionEvent;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use wire::supervise::ProcessStream;
use wire::{Event, Request};

/// How often the status line is updated.
const TICK: Duration = Duration::from_millis(500);
const SIGUSR1: SignalNumber = SignalNumber(10);

/// How long to follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// Until all processes run, or the job has ended.
    Up,
    /// Until the job has ended.
    Ended,
}

/// The state of the processes by the records.
#[derive(Debug, Default)]
struct FollowedProcesses {
    started: BTreeSet<u32>,
    listening: BTreeSet<u32>,
    exited: BTreeSet<u32>,
    is_ending: bool,
}

/// How the following ended.
#[derive(Debug, Default)]
pub struct Followed {
    /// The summary of the job, if it has ended.
    pub summary: Option<Summary>,
    /// The signal that ended the following.
    pub signal: Option<SignalNumber>,
    /// Why no more records can be received.
    pub faults: Report,
}

/// Follows the job whose launcher runs on the host of the first session.
pub struct Follower<'a, 'h> {
    until: Until,
    job: &'a str,
    processes: &'a [Process],
    hosts: &'a mut ConnectedHosts<'h>,
    sink: &'a mut OutputSink,
    begun: Instant,
    /// The incomplete last lines of the records and of the messages to users.
    unfinished: [Vec<u8>; 2],
    /// Joins the lines of both streams of each process from their pieces, by its id.
    whole: BTreeMap<u32, [LineBuffer; 2]>,
    seen: FollowedProcesses,
    followed: Followed,
}

impl<'a, 'h> Follower<'a, 'h> {
    /// Follows a job whose launcher has been asked to send its records and messages.
    pub fn begin(
        until: Until,
        job: &'a str,
        processes: &'a [Process],
        hosts: &'a mut ConnectedHosts<'h>,
        sink: &'a mut OutputSink,
    ) -> Follower<'a, 'h> {
        Follower {
            until,
            job,
            processes,
            hosts,
            sink,
            begun: Instant::now(),
            unfinished: Default::default(),
            whole: processes
                .iter()
                .map(|process| (process.id, Default::default()))
                .collect(),
            seen: FollowedProcesses::default(),
            followed: Followed::default(),
        }
    }

    /// Runs until the job no longer needs to be followed.
    pub fn run(mut self) -> Followed {
        let mut shown = Instant::now();
        loop {
            if Instant::now() >= shown {
                shown = Instant::now() + TICK;
                let status = self.status();
                self.sink.status(&status);
            }
            let event = self.hosts.next_event(Duration::ZERO).or_else(|| {
                self.sink.flush();
                self.hosts.next_event(TICK)
            });
            let goes_on = event.is_none_or(|event| self.handle(event));
            if !goes_on || self.until == Until::Up && self.is_up() {
                break;
            }
        }
        self.sink.status("");
        self.followed
    }

    /// Handles an event; returns whether more may follow.
    fn handle(&mut self, event: RunEvent) -> bool {
        match event {
            RunEvent::Signal(number) if self.until == Until::Up => self.pass_on(number),
            RunEvent::Signal(number) => {
                self.followed.signal = Some(number);
                return false;
            }
            RunEvent::StatusAsked => self.pass_on(SIGUSR1),
            // the agents of other hosts are no longer needed
            RunEvent::Paused(_) | RunEvent::Host(1.., _) => {}
            RunEvent::Host(_, SessionEvent::Lost(why)) => {
                self.lost(&why);
                return false;
            }
            RunEvent::Host(_, SessionEvent::Event(event, body)) => match event {
                Event::Output(output) => self.take(output.stream, &body),
                Event::LauncherEnded(ended) => {
                    self.ended(ended.summary);
                    return false;
                }
                Event::Failed(failure) => {
                    self.lost(&failure.problem);
                    return false;
                }
                _ => {}
            },
        }
        true
    }

    fn pass_on(&self, signal: SignalNumber) {
        let signal = wire::reap::Signal { signal };
        self.hosts.sessions[0].send(Request::SignalLauncher(signal));
    }

    fn lost(&mut self, why: &str) {
        let problem = format!("lost, but the job may still run there: {why}");
        let location = self.hosts.sessions[0].host.location();
        self.followed
            .faults
            .push(Fault::unreachable(location, problem).fix("return to it later with --attach"));
    }

    /// Handles the end of the launcher. A summary outside of the records means that it could not be
    /// written there.
    fn ended(&mut self, summary: Option<String>) {
        let location = self.hosts.sessions[0].host.location();
        if let (None, Some(summary)) = (&self.followed.summary, summary) {
            self.record(summary.as_bytes());
            let problem = "the records of the job are not complete there";
            let fix = "is its disk full? The summary was written nevertheless";
            self.followed
                .faults
                .push(Fault::unreachable(location, problem).fix(fix));
        } else if self.followed.summary.is_none() {
            let problem =
                "the launcher of the job has ended there, and how the job ended is unknown";
            let fix = "was the host restarted, or the launcher killed? The hosts have ended \
                their parts of the job";
            self.followed
                .faults
                .push(Fault::unreachable(location, problem).fix(fix));
        }
    }

    fn take(&mut self, stream: ProcessStream, bytes: &[u8]) {
        let unfinished = &mut self.unfinished[stream as usize];
        unfinished.extend_from_slice(bytes);
        let end = unfinished.iter().rposition(|byte| *byte == b'\n');
        let rest = unfinished.split_off(end.map_or(0, |end| end + 1));
        let lines = std::mem::replace(unfinished, rest);
        for line in lines
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
        {
            match stream {
                ProcessStream::Stdout => self.record(line),
                ProcessStream::Stderr => self
                    .sink
                    .notice(&term::plain(&String::from_utf8_lossy(line))),
            }
        }
    }

    /// Handles a record. A line that a full disk has cut is ignored.
    fn record(&mut self, line: &[u8]) {
        let Ok(head) = Head::of(line) else {
            return;
        };
        match head.r#type.as_str() {
            // the input has these records already
            Host::TYPE | Process::TYPE => return,
            Output::TYPE => return self.output(line),
            Started::TYPE => {
                if let Some(Started { id, .. }) = read(line)
                    && !self.seen.started.insert(id)
                {
                    // a new attempt has begun
                    self.seen = FollowedProcesses::default();
                    self.seen.started.insert(id);
                }
            }
            Listening::TYPE => {
                self.seen
                    .listening
                    .extend(read(line).map(|Listening { id, .. }| id));
            }
            Exited::TYPE => {
                let exited: Option<Exited> = read(line);
                self.seen.is_ending |= exited.as_ref().is_some_and(|exited| exited.while_ending);
                self.seen.exited.extend(exited.map(|exited| exited.id));
            }
            Summary::TYPE => self.followed.summary = read(line),
            _ => {}
        }
        self.sink.pass([line, b"\n"].concat());
    }

    fn output(&mut self, line: &[u8]) {
        let Some(output) = read::<Output>(line) else {
            return;
        };
        let Some(streams) = self.whole.get_mut(&output.id) else {
            return;
        };
        let stderr = output.stream == "stderr";
        let line = &mut streams[usize::from(stderr)];
        let continues = line.has_begun();
        let mut text = output.line.into_bytes();
        text.extend((!output.partial).then_some(b'\n'));
        let lines = |text: Vec<u8>| OutputLines {
            id: output.id,
            stderr,
            time_ms: output.time_ms,
            text,
            continues,
            while_ending: output.while_ending,
            lossy: output.lossy,
        };
        // no piece waits here, so the time does not matter
        let whole = line.push(&text, self.begun).whole;
        if !whole.is_empty() {
            self.sink.log_lines(&lines(whole));
        }
        self.sink.output(lines(text));
    }

    /// Whether all processes were started, and all awaited ones listen.
    fn is_up(&self) -> bool {
        // persistent servers are another job, which may have run before
        let has_others = self.processes.iter().any(|process| !is_staying(process));
        let is_up = |process: &Process| {
            let is_another = has_others && is_staying(process);
            let listens = process.port.is_none() || self.seen.listening.contains(&process.id);
            is_another || self.seen.started.contains(&process.id) && listens
        };
        !self.seen.is_ending && self.followed.summary.is_none() && self.processes.iter().all(is_up)
    }

    fn status(&self) -> String {
        let mut progress = Progress::default();
        for process in self.processes {
            let runs = !self.seen.exited.contains(&process.id);
            if process.role == Role::Server {
                let listens = runs && self.seen.listening.contains(&process.id);
                progress.servers += 1;
                progress.listening += usize::from(listens);
            } else {
                progress.others += 1;
                progress.running += usize::from(runs);
            }
        }
        let hosts: BTreeSet<u32> = self.processes.iter().map(|process| process.host).collect();
        let phase = match self.seen.is_ending {
            true => EndPhase::Ending { kill_in: None },
            false => EndPhase::Running,
        };
        let age = self.begun.elapsed();
        let hosts = (hosts.len(), hosts.len());
        status::line(
            self.job,
            hosts,
            progress,
            age,
            StatusFacts::default(),
            phase,
        )
    }
}

fn read<T: DeserializeOwned>(line: &[u8]) -> Option<T> {
    serde_json::from_slice(line).ok()
}

/// Reports how the following ended, to programs and users; returns the exit status.
pub fn conclude(
    followed: Followed,
    job: &str,
    begun: Instant,
    mut sink: OutputSink,
    signals: &Signals,
) -> Exit {
    let lines = followed.faults.lines("dgl-spawn");
    lines.iter().for_each(|line| sink.notice(line));
    let goes_on = followed.summary.is_none() && followed.faults.0.is_empty();
    let mut exit = match (&followed.summary, followed.signal) {
        (Some(summary), _) if summary.ok => Exit::Done,
        (Some(summary), _) => Exit::Process(summary.code),
        (None, Some(signal)) => Exit::Signal(signal),
        (None, None) => followed.faults.exit(),
    };
    if sink.has_lost_something() {
        exit = exit.worst(Exit::Unreachable);
    }
    if followed.summary.is_none() {
        sink.record(&Summary {
            ok: exit == Exit::Done,
            code: exit.code(),
            cause: (!goes_on).then(|| "host".to_owned()),
            faults: followed.faults.recorded(),
            elapsed_ms: millis(begun.elapsed()),
            job: Some(job.to_owned()),
            ..Summary::default()
        });
    }
    if goes_on {
        sink.notice(&format!(
            "dgl-spawn: job {job} continues; to return to it: ipconf-check ip_config.txt | \
             dgl-spawn --attach {job}; to end it: ipconf-check ip_config.txt | dgl-reap --job {job}"
        ));
    }
    match sink.finish(signals.since_now()) {
        true => exit,
        false => exit.worst(Exit::Unreachable),
    }
}
