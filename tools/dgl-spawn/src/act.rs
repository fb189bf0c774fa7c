//! Carries a job out: a thread a host that talks to its script, one loop in which all that happens comes together.

use crate::args::Args;
use crate::job::{Cause, Do, Job, status_of};
use crate::plan;
use crate::show::Show;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use common::error::{Fault, Report};
use common::exit::Exit;
use common::jsonl::Stream;
use common::record::{Exited, FirstFailure, Host, Listening, Output, Process, Started, Summary};
use common::remote::{self, Heard, Kind, Remote, Running, Waker};
use common::term::{self, millis, now_ms};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// How often a host hears that the launcher lives; oftener where six words would not fit into --host-timeout.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// Looking at a host takes well under a second; a file system that hangs must not hold the job up for ever.
const PREFLIGHT_LIMIT: Duration = Duration::from_secs(60);
/// Beyond the grace: KILL and the removal of shared memory.
const END_LIMIT: Duration = Duration::from_secs(15);
/// A record's line is cut here, so that a program that never ends its lines does not fill memory.
const MAX_LINE: usize = 64 << 10;

enum Event {
    Host(usize, Heard),
    Signal(i32),
}

/// The way to a host's thread.
struct Line {
    commands: Sender<Vec<u8>>,
    waker: Arc<Waker>,
}

impl Line {
    fn say(&self, text: String) {
        // a thread that has ended has told why
        let _ = self.commands.send(text.into_bytes());
        self.waker.wake();
    }
}

/// A host as the job sees it.
struct Site<'a> {
    host: &'a Host,
    /// Positions of its processes, in the order of the ids that its script uses.
    members: Vec<usize>,
    line: Line,
    over: bool,
}

/// Starts, watches, ends; the exit status is that of the first failure.
pub fn run(args: &Args, stream: &Stream, hosts: &[Host], processes: &[Process], plan: &plan::Job) -> Result<Exit, Report> {
    let begun = Instant::now();
    let names: Vec<String> = processes.iter().map(|process| name_of(hosts, process)).collect();
    let failed = |error: std::io::Error| Fault::unreachable("dgl-spawn", error.to_string());
    let mut show = Show::new(args.connect.format.human(), args.log_dir.as_deref(), processes, &names)
        .map_err(|error| Fault::unreachable("--log-dir", error.to_string()))?;
    show.pass(stream.lines().flat_map(|(line, _)| [line, b"\n"].concat()).collect());
    // From here on a signal ends the job in order: nothing has been started yet.
    let (events, happening) = channel();
    watch_signals(events.clone()).map_err(failed)?;

    let result = connect(args, hosts, processes, plan, &events).and_then(|mut sites| {
        preflight(&mut sites, hosts, &happening)?;
        Ok(sites)
    });
    let mut sites = match result {
        Ok(sites) => sites,
        Err(stopped) => {
            let (exit, cause) = match &stopped {
                Stopped::Signal(number) => (Exit::Signal(*number), "signal"),
                Stopped::Hosts(report) => (report.exit(), "host"),
                Stopped::Preflight(report) => (report.exit(), "preflight"),
            };
            let summary = Summary {
                code: exit.code(),
                cause: Some(cause.to_owned()),
                elapsed_ms: millis(begun.elapsed()),
                job: Some(plan.name.clone()),
                ..Summary::default()
            };
            show.record(&summary);
            show.finish();
            return match stopped {
                Stopped::Signal(_) => Ok(exit),
                Stopped::Hosts(report) | Stopped::Preflight(report) => {
                    report.print("dgl-spawn");
                    eprintln!("dgl-spawn: nothing was started");
                    Ok(exit)
                }
            };
        }
    };
    eprintln!("dgl-spawn: job {}: {} on {}", plan.name, processes_of(processes.len()), term::count(sites.len() as u64, "host"));
    sites.iter().for_each(|site| site.line.say("start\n".to_owned()));
    let mut life = Life {
        job: Job::new(processes),
        processes,
        started: vec![None; processes.len()],
        halves: vec![Default::default(); processes.len()],
        show: &mut show,
    };
    let left = life.run(plan, &mut sites, &happening);
    let job = life.job;

    let exit = if left.0.is_empty() { job.exit() } else { job.exit().worst(left.exit()) };
    let failure = job.failure();
    let cause = job.cause().map(|cause| match cause {
        Cause::Process => "process",
        Cause::Host => "host",
        Cause::Signal(_) => "signal",
    });
    show.record(&Summary {
        ok: exit == Exit::Done,
        code: exit.code(),
        cause: cause.map(str::to_owned),
        first_failure: failure.clone(),
        elapsed_ms: millis(begun.elapsed()),
        job: Some(plan.name.clone()),
    });
    show.finish();
    left.print("dgl-spawn");
    match failure {
        Some(failure) => explain(hosts, &failure),
        None => match job.cause() {
            Some(Cause::Signal(number)) => eprintln!("dgl-spawn: job {} was ended by SIG{}", plan.name, common::signal::name(*number)),
            _ => eprintln!("dgl-spawn: job {} ended well after {}", plan.name, term::seconds(begun.elapsed())),
        },
    }
    Ok(exit)
}

fn processes_of(count: usize) -> String {
    if count == 1 { "1 process".to_owned() } else { format!("{count} processes") }
}

/// What stopped a job before it began.
enum Stopped {
    Hosts(Report),
    Preflight(Report),
    Signal(i32),
}

fn connect<'a>(
    args: &Args,
    hosts: &'a [Host],
    processes: &[Process],
    plan: &plan::Job,
    events: &Sender<Event>,
) -> Result<Vec<Site<'a>>, Stopped> {
    let members = |host: &Host| -> Vec<usize> { (0..processes.len()).filter(|at| processes[*at].host == host.id).collect() };
    let busy: Vec<Host> = hosts.iter().filter(|host| processes.iter().any(|process| process.host == host.id)).cloned().collect();
    let remote = Remote::new(&args.connect, Kind::Ssh2).map_err(Stopped::Hosts)?;
    // the records were checked: a script can be made of each
    let script = |host: &Host| {
        let own: Vec<&Process> = processes.iter().filter(|process| process.host == host.id).collect();
        plan::script(plan, host, &own).unwrap_or_default()
    };
    let opened = remote.open_all(&busy, script).map_err(Stopped::Hosts)?;
    let faults: Vec<_> = busy.iter().zip(&opened).filter_map(|(host, result)| Some((host, result.as_ref().err()?))).collect();
    if !faults.is_empty() {
        return Err(Stopped::Hosts(remote::report(faults, args.connect.host_key)));
    }
    let mut sites = Vec::new();
    for (at, (host, running)) in
        hosts.iter().filter(|host| busy.iter().any(|other| other.id == host.id)).zip(opened.into_iter().flatten()).enumerate()
    {
        let failed = |error: std::io::Error| Stopped::Hosts(Fault::unreachable("dgl-spawn", error.to_string()).report());
        let (commands, orders) = channel();
        let waker = Arc::new(Waker::new().map_err(failed)?);
        let (events, own_waker) = (events.clone(), Arc::clone(&waker));
        // a thread that mostly waits needs little stack, and there may be thousands
        let thread = std::thread::Builder::new().stack_size(256 << 10);
        let patience = plan.host_timeout;
        thread.spawn(move || talk(at, running, patience, &orders, &own_waker, &events)).map_err(failed)?;
        sites.push(Site { host, members: members(host), line: Line { commands, waker }, over: false });
    }
    Ok(sites)
}

/// Talks with one host until its script ends or it is lost.
fn talk(at: usize, mut running: Running, patience: Duration, orders: &Receiver<Vec<u8>>, waker: &Waker, events: &Sender<Event>) {
    let mut beats: Option<Instant> = None;
    let heartbeat = HEARTBEAT.min(patience / 6);
    let tell = |heard| events.send(Event::Host(at, heard)).is_ok();
    loop {
        loop {
            match orders.try_recv() {
                Ok(order) => {
                    beats = beats.or(Some(Instant::now()));
                    running.send(order);
                }
                Err(std::sync::mpsc::TryRecvError::Empty) => break,
                // nobody is interested any more: the end of its stdin ends the script
                Err(std::sync::mpsc::TryRecvError::Disconnected) => return,
            }
        }
        if let Some(last) = beats {
            if last.elapsed() >= heartbeat {
                beats = Some(Instant::now());
                running.send("alive\n");
            }
            if running.last_heard().elapsed() >= patience {
                tell(Heard::Lost(format!("nothing was heard of it for {} s", patience.as_secs_f32())));
                return;
            }
        }
        let wait = beats.map_or(Duration::from_secs(60), |last| heartbeat.saturating_sub(last.elapsed()));
        for heard in running.step(Some(waker), wait) {
            let last = !matches!(heard, Heard::Line(_));
            if !tell(heard) || last {
                return;
            }
        }
    }
}

/// Lets every host look; all that is wrong anywhere comes in one report.
fn preflight(sites: &mut [Site<'_>], hosts: &[Host], happening: &Receiver<Event>) -> Result<(), Stopped> {
    let until = Instant::now() + PREFLIGHT_LIMIT;
    let mut ready = vec![false; sites.len()];
    let mut report = Report::default();
    while !ready.iter().all(|ready| *ready) {
        match happening.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(Event::Signal(number)) => return Err(Stopped::Signal(number)),
            Ok(Event::Host(at, Heard::Line(line))) => {
                let text = String::from_utf8_lossy(&line);
                match text.split_once(' ').unwrap_or((&text, "")) {
                    ("ready", _) => ready[at] = true,
                    ("fault", problem) => report.push(preflight_fault(sites[at].host, problem)),
                    ("config", encoded) => report.0.extend(stale_ip_config(sites[at].host, encoded, hosts)),
                    _ => {}
                }
            }
            Ok(Event::Host(at, Heard::Lost(why))) => {
                report.push(Fault::unreachable(sites[at].host.place(), why));
                ready[at] = true;
            }
            Ok(Event::Host(at, Heard::Ended(status))) => {
                report.push(
                    Fault::unreachable(sites[at].host.place(), format!("its shell ended with status {status}"))
                        .fix("it must be a POSIX shell, with base64, grep and sed in its PATH"),
                );
                ready[at] = true;
            }
            Err(_) => {
                for (site, _) in sites.iter().zip(&ready).filter(|(_, ready)| !**ready) {
                    report.push(
                        Fault::unreachable(site.host.place(), format!("looking at it took more than {} s", PREFLIGHT_LIMIT.as_secs()))
                            .fix("is a file system hanging there? --no-preflight skips the look"),
                    );
                }
                break;
            }
        }
    }
    report.check().map_err(Stopped::Preflight)
}

fn preflight_fault(host: &Host, problem: &str) -> Fault {
    let fault = Fault::unreachable(host.place(), problem);
    match problem {
        _ if problem.starts_with("no such file") || problem.starts_with("no such folder") => {
            fault.fix("copy the job there with part-map and part-push, or correct --workspace")
        }
        _ if problem.starts_with("no such command") => {
            fault.fix("install it there, give its whole path, or set PATH with --env or --setup in dgl-env")
        }
        _ if problem.starts_with("port ") => {
            fault.fix("dgl-reap --list shows what jobs have left, dgl-reap --job NAME ends one; or choose another port in ip_config.txt")
        }
        _ => fault,
    }
}

/// DGL believes the ip_config in the workspace: an old one there starts a job that hangs.
fn stale_ip_config(host: &Host, encoded: &str, hosts: &[Host]) -> Option<Fault> {
    let text = BASE64.decode(encoded).ok()?;
    let text = String::from_utf8_lossy(&text);
    let read = |line: &str| -> Option<(String, u16)> {
        let mut words = line.split_whitespace();
        Some((words.next()?.to_owned(), words.next().map_or(Some(30050), |word| word.parse().ok())?))
    };
    let there: Vec<Option<(String, u16)>> = text.lines().map(read).collect();
    let wanted: Vec<Option<(String, u16)>> = hosts.iter().map(|host| Some((host.ip.to_string(), host.port))).collect();
    match hosts.len() == host.of as usize && there != wanted {
        true => Some(
            Fault::unreachable(host.place(), "the ip_config there is not that of the records")
                .fix("copy it anew with part-map and part-push"),
        ),
        false => None,
    }
}

/// The job while it lives.
struct Life<'a> {
    job: Job,
    processes: &'a [Process],
    started: Vec<Option<Instant>>,
    /// Lines of which a piece has come, by process: stdout, stderr.
    halves: Vec<[Vec<u8>; 2]>,
    show: &'a mut Show,
}

impl Life<'_> {
    /// To the end of the last host; what could not be ended is reported.
    fn run(&mut self, plan: &plan::Job, sites: &mut [Site<'_>], happening: &Receiver<Event>) -> Report {
        let mut left = Report::default();
        let mut limit: Option<Instant> = None;
        while sites.iter().any(|site| !site.over) {
            let now = Instant::now();
            if limit.is_some_and(|limit| now >= limit) {
                break;
            }
            let order = match happening.try_recv().or_else(|_| {
                self.show.flush();
                happening.recv_timeout(Duration::from_millis(500))
            }) {
                Ok(Event::Host(at, heard)) => self.heard(&mut sites[at], heard, &mut left),
                Ok(Event::Signal(number)) => self.job.signal(number),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => break,
            };
            for order in [order, self.job.tick(Instant::now())].into_iter().flatten() {
                let text = match order {
                    Do::End => format!("end {}\n", plan.grace.as_secs_f32()),
                    Do::Kill => "kill\n".to_owned(),
                };
                sites.iter().for_each(|site| site.line.say(text.clone()));
                limit = limit.or(Some(Instant::now() + plan.grace + END_LIMIT));
            }
        }
        for site in sites.iter().filter(|site| !site.over) {
            left.push(
                Fault::unreachable(site.host.place(), "it did not say that the job's processes have ended")
                    .fix(format!("look with dgl-reap --list, end them with dgl-reap --job {}", plan.name)),
            );
        }
        left
    }

    fn heard(&mut self, site: &mut Site<'_>, heard: Heard, left: &mut Report) -> Option<Do> {
        match heard {
            Heard::Line(line) => self.line(site, &line, left),
            Heard::Ended(_) => {
                site.over = true;
                match self.job.ending() {
                    true => None,
                    false => self.job.lost(site.host.id, "the job was ended there by someone else".to_owned()),
                }
            }
            Heard::Lost(why) => {
                site.over = true;
                if self.job.ending() {
                    left.push(
                        Fault::unreachable(site.host.place(), format!("lost while the job was ended: {why}"))
                            .fix("its own watch ends the job there; look with dgl-reap --list"),
                    );
                }
                self.job.lost(site.host.id, why)
            }
        }
    }

    /// A line of a host's script.
    fn line(&mut self, site: &Site<'_>, line: &[u8], left: &mut Report) -> Option<Do> {
        let mut words = line.splitn(3, |byte| *byte == b' ');
        let (what, id, rest) = (words.next().unwrap_or_default(), words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let number = |text: &[u8]| std::str::from_utf8(text).ok().and_then(|text| text.parse::<u32>().ok());
        if what == b"over" && number(id) != Some(0) {
            left.push(Fault::item(site.host.place(), "some processes of the job could not be ended").fix("look with dgl-reap --list"));
        }
        let at = number(id).and_then(|id| site.members.get(id as usize).copied())?;
        let process = &self.processes[at];
        let (id, host, role, rank) = (process.id, process.host, process.role, process.rank);
        match what {
            b"o" | b"e" | b"O" | b"E" => self.output(at, what[0].eq_ignore_ascii_case(&b'e'), rest, what[0].is_ascii_uppercase()),
            b"pid" => {
                self.started[at] = Some(Instant::now());
                self.show.record(&Started { id, host, role, rank, pid: number(rest).unwrap_or(0), time_ms: now_ms() });
            }
            b"listening" => self.show.record(&Listening { id, host, role, rank, port: process.port.unwrap_or(0), time_ms: now_ms() }),
            b"exited" => {
                let status = number(rest).and_then(|status| u8::try_from(status).ok()).unwrap_or(1);
                let (code, signal) = status_of(status);
                let elapsed_ms = self.started[at].map_or(0, |started| millis(started.elapsed()));
                self.show.record(&Exited { id, host, role, rank, code, signal, elapsed_ms });
                return self.job.exited(at, process, status, Instant::now());
            }
            _ => {}
        }
        None
    }

    fn output(&mut self, at: usize, stderr: bool, piece: &[u8], more: bool) {
        let half = &mut self.halves[at][usize::from(stderr)];
        half.extend_from_slice(piece);
        if more && half.len() < MAX_LINE {
            return;
        }
        let bytes = std::mem::take(half);
        let text = String::from_utf8_lossy(&bytes);
        let lossy = matches!(text, std::borrow::Cow::Owned(_));
        let stream = if stderr { "stderr" } else { "stdout" };
        let output = Output {
            id: self.processes[at].id,
            stream: stream.to_owned(),
            line: text.into_owned(),
            time_ms: now_ms(),
            partial: more,
            lossy,
        };
        self.job.output(at, &output.line);
        self.show.output(at, &output);
    }
}

fn name_of(hosts: &[Host], process: &Process) -> String {
    let host = hosts.iter().find(|host| host.id == process.host);
    host.map_or_else(|| process.host.to_string(), |host| host.name.clone().unwrap_or_else(|| host.ip.to_string()))
}

/// The first failure, as people want to know it.
fn explain(hosts: &[Host], failure: &FirstFailure) {
    let host = hosts.iter().find(|host| host.id == failure.host).map_or_else(|| format!("host {}", failure.host), Host::place);
    let who = match (failure.role, failure.rank) {
        (Some(role), Some(rank)) => format!("{host}: {} {rank}", role.name()),
        _ => host,
    };
    let what = match (&failure.error, failure.code, &failure.signal) {
        (Some(error), ..) => format!("lost: {error}"),
        (_, _, Some(signal)) => format!("ended by SIG{signal}"),
        (_, code, _) => format!("exited with status {}", code.unwrap_or(1)),
    };
    let last = if failure.last_lines.is_empty() { "; it wrote nothing" } else { "; its last lines:" };
    let last = if failure.role.is_some() { last } else { "" };
    eprintln!("dgl-spawn: {who} {what}{last}");
    failure.last_lines.iter().for_each(|line| eprintln!("    {line}"));
}

fn watch_signals(events: Sender<Event>) -> std::io::Result<()> {
    let mut signals = signal_hook::iterator::Signals::new(common::signal::ending()?)?;
    let thread = std::thread::Builder::new().name("signals".to_owned());
    thread.spawn(move || signals.forever().all(|number| events.send(Event::Signal(number)).is_ok())).map(drop)
}
