//! The life of a job: one loop in which all that happens on all hosts comes together. What is to be done then is the state machine's to say (the crate job).

use crate::loud;
use crate::outcome::{first_failure, member, status_fields};
use crate::output::queue::Lines;
use crate::output::sink::OutputSink;
use crate::output::status::{self, Phase};
use crate::plan;
use crate::site::{Aside, Event, Site};
use common::error::{Fault, Report};
use common::record::{Exited, FirstFailure, Listening, Process, Started};
use common::remote::{Heard, Remote};
use common::term::now_ms;
use job::{Action, Cause, ExitStatus, Failure, Job, LastLines, Limit, Mode, Reason};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

/// Beyond the grace: KILL and the removal of shared memory.
const END_LIMIT: Duration = Duration::from_secs(15);
/// A record's line is cut here, so that a program that never ends its lines does not fill memory.
const MAX_LINE: usize = 64 << 10;
/// How often the clock is looked at, and the status line shows it.
const TICK: Duration = Duration::from_millis(500);

/// The job while it lives.
pub struct Life<'a> {
    pub job: Job,
    mode: Mode,
    last_lines: Vec<LastLines>,
    plan: &'a plan::Job,
    processes: &'a [Process],
    /// The place of the first of them among all that are shown.
    first: usize,
    remote: &'a Arc<Remote>,
    events: Sender<Event>,
    show: &'a mut OutputSink,
    /// Since 1970, in milliseconds; as that of each process.
    begun: u64,
    started: Vec<Option<u64>>,
    /// Lines of which a piece has come, by process: stdout, stderr.
    halves: Vec<[Vec<u8>; 2]>,
    /// What could not be ended.
    left: Report,
    /// The graph servers that it used had ended before it was over.
    pub unserved: bool,
}

impl<'a> Life<'a> {
    /// All processes were told to start, by this launcher or by another.
    pub fn begin(
        mode: Mode,
        plan: &'a plan::Job,
        (processes, first): (&'a [Process], usize),
        remote: &'a Arc<Remote>,
        events: Sender<Event>,
        show: &'a mut OutputSink,
    ) -> Life<'a> {
        Life {
            job: Job::new(mode, processes.iter().map(member), &plan.limits, Instant::now()),
            mode,
            last_lines: vec![LastLines::default(); processes.len()],
            plan,
            processes,
            first,
            remote,
            events,
            show,
            begun: now_ms(),
            started: vec![None; processes.len()],
            halves: vec![Default::default(); processes.len()],
            left: Report::default(),
            unserved: false,
        }
    }

    /// To the end of the last host, or as far as a detached job is followed; what could not be ended is reported.
    pub fn run(&mut self, sites: &mut [Site<'_>], happening: &Receiver<Event>) -> Report {
        let mut limit: Option<Instant> = None;
        let mut shown = Instant::now();
        while sites.iter().any(|site| !site.over) {
            if self.job.detach_signal().is_some() || (self.mode == Mode::Detaching && self.job.is_up(|at| self.started[at].is_some())) {
                return std::mem::take(&mut self.left);
            }
            let now = Instant::now();
            if limit.is_some_and(|limit| now >= limit) {
                break;
            }
            if now >= shown {
                shown = now + TICK;
                self.show.status(&self.status(sites));
            }
            let order = match happening.try_recv().or_else(|_| {
                self.show.flush();
                happening.recv_timeout(TICK)
            }) {
                Ok(Event::Host(at, heard)) => self.heard(sites, at, heard),
                Ok(Event::Signal(number)) => self.job.signal(number, Instant::now()),
                Ok(Event::Aside(aside)) => {
                    self.aside(sites, aside);
                    None
                }
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => break,
            };
            for order in [order, self.job.tick(Instant::now())].into_iter().flatten() {
                let grace = self.plan.grace.as_secs_f32();
                let text = match order {
                    Action::End => format!("end {grace}"),
                    Action::EndWithStacks => format!("end {grace} ABRT"),
                    Action::Kill => "kill".to_owned(),
                };
                sites.iter().for_each(|site| site.say(&text));
                limit = limit.or(Some(Instant::now() + self.plan.grace + END_LIMIT));
            }
        }
        for site in sites.iter().filter(|site| !site.over) {
            self.left.push(
                Fault::unreachable(site.host.place(), "it did not say that the job's processes have ended")
                    .fix(format!("look with dgl-reap --list, end them with dgl-reap --job {}", self.plan.name)),
            );
        }
        std::mem::take(&mut self.left)
    }

    /// How long ago it began.
    pub fn age(&self) -> Duration {
        Duration::from_millis(now_ms().saturating_sub(self.begun))
    }

    /// The job as it is now, and what failed first.
    pub fn end(self) -> (Job, Option<FirstFailure>) {
        self.show.status("");
        let failure = self.job.failure().map(|failure| first_failure(failure, self.processes, &self.last_lines));
        (self.job, failure)
    }

    fn status(&self, sites: &[Site<'_>]) -> String {
        let up = sites.iter().filter(|site| !site.over).count();
        let phase = if self.job.ending() { Phase::Ending { kill_in: None } } else { Phase::Running };
        status::line(&self.plan.name, (up, sites.len()), self.job.progress(), self.age(), phase)
    }

    fn aside(&mut self, sites: &mut [Site<'_>], aside: Aside) {
        match aside {
            Aside::Asked => self.show.say(&format!("dgl-spawn: {}", self.status(sites))),
            Aside::Loud { at, stderr, text, taken } => {
                self.output(at, stderr, text);
                let _ = taken.send(());
            }
            Aside::Carried { site, waits } => {
                sites[site].carried -= 1;
                sites[site].say(&format!("go {waits}"));
            }
        }
    }

    fn heard(&mut self, sites: &mut [Site<'_>], at: usize, heard: Heard) -> Option<Action> {
        let site = &mut sites[at];
        match heard {
            Heard::Line(line) => self.line(sites, at, &line),
            Heard::Ended(status) => {
                site.over = true;
                if self.job.ending() {
                    return None;
                }
                if self.mode == Mode::Deciding {
                    return self.job.lost(site.host.id, "the job was ended there by someone else".to_owned());
                }
                if status != 0 {
                    self.left.push(
                        Fault::unreachable(site.host.place(), format!("what followed the job there ended with status {status}"))
                            .fix(format!("the job may go on: go back to it with --attach {}", self.plan.name)),
                    );
                }
                None
            }
            Heard::Lost(why) => {
                site.over = true;
                if self.mode == Mode::Following {
                    self.left.push(
                        Fault::unreachable(site.host.place(), format!("lost, and perhaps the job goes on there: {why}"))
                            .fix("go back to it later with --attach"),
                    );
                } else if self.job.ending() {
                    self.left.push(
                        Fault::unreachable(site.host.place(), format!("lost while the job was ended: {why}"))
                            .fix("its own watch ends the job there; look with dgl-reap --list"),
                    );
                }
                self.job.lost(site.host.id, why)
            }
        }
    }

    /// A line of a host's script.
    fn line(&mut self, sites: &mut [Site<'_>], at_site: usize, line: &[u8]) -> Option<Action> {
        let site = &mut sites[at_site];
        let mut words = line.splitn(3, |byte| *byte == b' ');
        let (what, id, rest) = (words.next().unwrap_or_default(), words.next().unwrap_or_default(), words.next().unwrap_or_default());
        if what == b"over" && number(id) != Some(0) {
            self.left.push(Fault::item(site.host.place(), "some processes of the job could not be ended").fix("look with dgl-reap --list"));
        }
        match what {
            b"was" => {
                site.was = std::str::from_utf8(id).ok().and_then(|ms| ms.parse().ok());
                self.begun = self.begun.min(site.was.unwrap_or(self.begun));
            }
            b"cause" => return self.cause(sites, id, rest),
            b"fault" => self.left.push(
                Fault::unreachable(site.host.place(), text(line.get(b"fault ".len()..).unwrap_or_default()))
                    .fix("look with dgl-reap --list"),
            ),
            b"unserved" if self.job.ending() => self.unserved = true,
            b"unserved" => return self.job.lost(site.host.id, "its graph servers have ended".to_owned()),
            b"gone" => self.left.push(
                Fault::unreachable(site.host.place(), "nobody keeps the job there any more, and nobody knows how it ended there")
                    .fix("was the host started anew, or the guard of the job killed? The host has ended what it had of the job"),
            ),
            _ => {}
        }
        let at = number(id).and_then(|id| site.members.get(id as usize).copied())?;
        let process = &self.processes[at];
        let time_ms = || site.was.unwrap_or_else(now_ms);
        let (id, host, role, rank) = (process.id, process.host, process.role, process.rank);
        match what {
            b"o" | b"e" | b"O" | b"E" => self.piece(at, what[0].eq_ignore_ascii_case(&b'e'), rest, what[0].is_ascii_uppercase()),
            b"pid" => {
                self.started[at] = Some(time_ms());
                self.show.record(&Started { id, host, role, rank, pid: number(rest).unwrap_or(0), time_ms: time_ms() });
            }
            b"listening" => {
                self.job.listening(at);
                self.show.record(&Listening { id, host, role, rank, port: process.port.unwrap_or(0), time_ms: time_ms() });
            }
            b"loud" => self.loud(site, at_site, at, rest),
            b"exited" => {
                let status = number(rest).and_then(|status| u8::try_from(status).ok()).unwrap_or(1);
                let status = ExitStatus::from_shell_code(status);
                let (code, signal) = status_fields(status);
                let elapsed_ms = self.started[at].map_or(0, |started| time_ms().saturating_sub(started));
                let (cpu_s, max_rss_bytes, oom, while_ending) = (None, None, false, self.job.ending());
                self.show.record(&Exited { id, host, role, rank, code, signal, elapsed_ms, cpu_s, max_rss_bytes, oom, while_ending });
                return self.job.exited(at, status.into(), Instant::now());
            }
            _ => {}
        }
        None
    }

    /// Why a detached job ends, as guard.py has written it down.
    fn cause(&mut self, sites: &[Site<'_>], kind: &[u8], rest: &[u8]) -> Option<Action> {
        let rest = text(rest);
        let words: Vec<&str> = rest.split(' ').collect();
        let limit = |word: &str| Duration::try_from_secs_f64(word.parse().unwrap_or_default()).unwrap_or_default();
        let failed = |host: &str, id: &str, reason| {
            let site = sites.iter().find(|site| site.host.id.to_string() == host)?;
            let at = *site.members.get(id.parse::<usize>().ok()?)?;
            Some(Failure { host: self.processes[at].host, member: Some(at), reason })
        };
        let (cause, failure) = match (kind, &words[..]) {
            (b"process", [host, id, status]) => {
                let status = ExitStatus::from_shell_code(status.parse().unwrap_or(1));
                (Some(Cause::Process), failed(host, id, Reason::Ended(status.into())))
            }
            (b"host", [host, why @ ..]) => {
                let (host, reason) = (host.parse().unwrap_or_default(), Reason::Lost(why.join(" ")));
                (Some(Cause::Host), Some(Failure { host, member: None, reason }))
            }
            (b"signal", [number]) => (Some(Cause::Signal(number.parse().unwrap_or(15))), None),
            (b"time", ["start", time, host, id]) => {
                (Some(Cause::Time(Limit::Start(limit(time)))), failed(host, id, Reason::NotListening(limit(time))))
            }
            (b"time", ["job", time]) => (Some(Cause::Time(Limit::Job(limit(time)))), None),
            _ => (None, None),
        };
        self.job.apply_remote_cause(cause, failure);
        None
    }

    /// A line, or a piece of one, as the relay on a host sends it.
    fn piece(&mut self, at: usize, stderr: bool, piece: &[u8], more: bool) {
        let half = &mut self.halves[at][usize::from(stderr)];
        half.extend_from_slice(piece);
        if !more {
            half.push(b'\n');
        }
        if !more || half.len() >= MAX_LINE {
            let text = std::mem::take(half);
            self.output(at, stderr, text);
        }
    }

    fn output(&mut self, at: usize, stderr: bool, text: Vec<u8>) {
        self.last_lines[at].push(&text);
        let while_ending = self.job.ending();
        self.show.log_lines(self.first + at, &text);
        self.show.output(Lines { at: self.first + at, stderr, time_ms: now_ms(), text, while_ending, ..Lines::default() });
    }

    /// A relay says that its stream is too loud for it, and waits: `STREAM RELAY WAITS`.
    fn loud(&mut self, site: &mut Site<'_>, at_site: usize, at: usize, rest: &[u8]) {
        let words: Vec<&[u8]> = rest.split(|byte| *byte == b' ').collect();
        let [stream, relay, waits] = words[..] else { return };
        let (Some(relay), Some(waits)) = (number(relay), number(waits)) else { return };
        let stream = loud::Stream { site: at_site, at, stderr: stream == b"e", relay, waits };
        let (remote, host, token, events) = (Arc::clone(self.remote), site.host.clone(), self.plan.token.clone(), self.events.clone());
        let thread = std::thread::Builder::new().stack_size(256 << 10);
        if site.carried < loud::AT_ONCE && thread.spawn(move || stream.carry(&remote, &host, &token, &events)).is_ok() {
            site.carried += 1;
        } else {
            site.say(&format!("go {waits}"));
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn number(text: &[u8]) -> Option<u32> {
    std::str::from_utf8(text).ok()?.parse().ok()
}
