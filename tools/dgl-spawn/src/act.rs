//! Carries a job out: connects, looks, starts, lives through it, tells how it ended; where it failed, perhaps again.

use crate::args::Args;
use crate::detach;
use crate::job::{Cause, Limit, Rule};
use crate::life::{Life, name_of};
use crate::plan;
use crate::preflight;
use crate::private;
use crate::show::{Show, on_terminal};
use crate::site::{Aside, Event, Site};
use common::error::{Fault, Report};
use common::exit::Exit;
use common::jsonl::Stream;
use common::record::{FirstFailure, Graph, Host, Process, Summary};
use common::remote::{self, Kind, Remote};
use common::term::{self, millis};
use signal_hook::consts::SIGUSR1;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Before a failed job starts again: what made it fail may pass.
const RESTART_AFTER: Duration = Duration::from_secs(1);

/// How a job, or one try of it, ended.
struct Outcome {
    exit: Exit,
    cause: Option<Cause>,
    /// The word for it in the summary.
    word: Option<&'static str>,
    failure: Option<FirstFailure>,
    /// What is wrong beside that.
    report: Report,
    started: bool,
    /// It is left to its hosts.
    goes_on: bool,
    /// Since it began.
    age: Duration,
}

/// What stopped a job before it began.
pub enum Stopped {
    /// Hosts could not be reached.
    Hosts(Report),
    /// The look before the start found faults.
    Preflight(Report),
    /// A signal came.
    Signal(i32),
}

/// Starts, watches, ends; the exit status is that of the first failure.
pub fn run(args: &Args, stream: &Stream, hosts: &[Host], processes: &[Process], mut plan: plan::Job) -> Result<Exit, Report> {
    let begun = Instant::now();
    let graph: Option<Graph> = stream.one()?;
    let names: Vec<String> = processes.iter().map(|process| name_of(hosts, process)).collect();
    let remote = Arc::new(Remote::new(&args.connect, Kind::Ssh2)?);
    let mut show = show(args, stream, processes, &names)?;
    // From here on a signal ends the job in order: nothing has been started yet.
    let signals = Signals::watch().map_err(own_fault)?;

    let mut tries = 0;
    let (outcome, happening) = loop {
        let (events, happening) = channel();
        signals.go_to(&events);
        let outcome = one_try(args, hosts, graph.as_ref(), processes, &plan, &remote, events, &happening, &mut show);
        let failed = matches!(outcome.cause, Some(Cause::Process | Cause::Host | Cause::Time(Limit::Start(_))));
        // a first try that started nothing has found what is wrong; a later one may only have come too early
        let again = (failed && outcome.started) || (tries > 0 && !matches!(outcome.cause, Some(Cause::Signal(_))) && !outcome.started);
        if tries == args.restart || !again {
            break (outcome, happening);
        }
        tries += 1;
        explain(hosts, &plan, &outcome, begun, &show);
        // a host that was lost needs its time to find out that it is
        let pause = if outcome.cause == Some(Cause::Host) { plan.host_timeout + plan.grace } else { RESTART_AFTER };
        show.say(&format!("dgl-spawn: job {} starts again in {} ({tries} of {})", plan.name, term::seconds(pause), args.restart));
        if let Some(number) = signal_within(&happening, pause) {
            break (Outcome { exit: Exit::Signal(number), cause: Some(Cause::Signal(number)), word: Some("signal"), ..outcome }, happening);
        }
        plan.token = plan::token()?;
    };

    Ok(end(hosts, &plan, outcome, begun, show, &happening))
}

/// Goes back to a job that was detached, until it ends or a signal comes.
pub fn attach(args: &Args, stream: &Stream, hosts: &[Host], name: &str) -> Result<Exit, Report> {
    let begun = Instant::now();
    let remote = Arc::new(Remote::new(&args.connect, Kind::Ssh2)?);
    let (found, report) = detach::find(&remote, args.connect.host_key, hosts, name)?;
    if found.is_empty() {
        report.check()?;
        let fault = Fault::item("--attach", format!("no host has a detached job named {name}"));
        return Err(fault.fix("dgl-reap --list shows the jobs that run").report());
    }
    report.print("dgl-spawn");
    let (mut processes, mut parts) = (Vec::new(), Vec::new());
    for one in found {
        let members: Vec<usize> = (processes.len()..).take(one.processes.len()).collect();
        processes.extend(one.processes);
        parts.push((one.at, members, one.running));
    }
    let names: Vec<String> = processes.iter().map(|process| name_of(hosts, process)).collect();
    let mut show = show(args, stream, &processes, &names)?;
    let signals = Signals::watch().map_err(own_fault)?;
    let (events, happening) = channel();
    signals.go_to(&events);
    let site = |(at, (host, members, running))| Site::new(at, &hosts[host], members, running, args.host_timeout, events.clone());
    let mut sites = parts.into_iter().enumerate().map(site).collect::<Result<Vec<_>, _>>().map_err(own_fault)?;
    sites.iter().for_each(|site| site.say("start"));
    let plan = plan::Job::followed(name, args.grace, args.host_timeout);
    let mut life = Life::begin(Rule::Attach, &plan, &processes, &remote, events, &mut show);
    let left = life.run(&mut sites, &happening);
    let outcome = outcome(life, left);
    let exit = end(hosts, &plan, outcome, begun, show, &happening);
    Ok(if report.0.is_empty() { exit } else { exit.worst(report.exit()) })
}

fn show(args: &Args, stream: &Stream, processes: &[Process], names: &[String]) -> Result<Show, Report> {
    let show = Show::new(args.connect.format.human(), args.log_dir.as_deref(), processes, names);
    let show = show.map_err(|error| Fault::unreachable("--log-dir", error.to_string()))?;
    show.pass(stream.lines().flat_map(|(line, _)| [line, b"\n"].concat()).collect());
    Ok(show)
}

fn own_fault(error: std::io::Error) -> Report {
    Fault::unreachable("dgl-spawn", error.to_string()).report()
}

/// Tells how it ended, to programs and to people.
fn end(hosts: &[Host], plan: &plan::Job, outcome: Outcome, begun: Instant, show: Show, happening: &Receiver<Event>) -> Exit {
    show.record(&Summary {
        ok: outcome.exit == Exit::Done,
        code: outcome.exit.code(),
        cause: outcome.word.map(str::to_owned),
        first_failure: outcome.failure.clone(),
        elapsed_ms: millis(begun.elapsed()),
        job: Some(plan.name.clone()),
    });
    explain(hosts, plan, &outcome, begun, &show);
    show.finish(|| signal_within(happening, Duration::ZERO).is_some());
    outcome.exit
}

#[allow(clippy::too_many_arguments)] // all of them are the job
fn one_try(
    args: &Args,
    hosts: &[Host],
    graph: Option<&Graph>,
    processes: &[Process],
    plan: &plan::Job,
    remote: &Arc<Remote>,
    events: Sender<Event>,
    happening: &Receiver<Event>,
    show: &mut Show,
) -> Outcome {
    let connected = connect(args, hosts, processes, plan, remote, &events).and_then(|sites| {
        preflight::look(&sites, hosts, graph, happening)?;
        match plan.detach {
            true => detach::launch(&sites, happening)?,
            false => sites.iter().for_each(|site| site.say("start")),
        }
        Ok(sites)
    });
    let mut sites = match connected {
        Ok(sites) => sites,
        Err(stopped) => return stopped.outcome(),
    };
    show.say(&format!("dgl-spawn: job {}: {} on {}", plan.name, processes_of(processes.len()), term::count(sites.len() as u64, "host")));
    let rule = if plan.detach { Rule::Detach } else { Rule::Own };
    let mut life = Life::begin(rule, plan, processes, remote, events, show);
    let left = life.run(&mut sites, happening);
    outcome(life, left)
}

fn outcome(life: Life<'_>, left: Report) -> Outcome {
    let age = life.age();
    let job = life.end();
    let exit = job.left_by().map_or(job.exit(), Exit::Signal);
    let exit = if left.0.is_empty() { exit } else { exit.worst(left.exit()) };
    let word = job.cause().map(|cause| match cause {
        Cause::Process => "process",
        Cause::Host => "host",
        Cause::Signal(_) => "signal",
        Cause::Time(_) => "timeout",
    });
    let goes_on = !job.ending() && exit != Exit::Unreachable;
    Outcome { exit, cause: job.cause().cloned(), word, failure: job.failure(), report: left, started: true, goes_on, age }
}

impl Stopped {
    fn outcome(self) -> Outcome {
        let (exit, cause, word, report) = match self {
            Stopped::Signal(number) => (Exit::Signal(number), Some(Cause::Signal(number)), "signal", Report::default()),
            Stopped::Hosts(report) => (report.exit(), Some(Cause::Host), "host", report),
            Stopped::Preflight(report) => (report.exit(), None, "preflight", report),
        };
        Outcome { exit, cause, word: Some(word), failure: None, report, started: false, goes_on: false, age: Duration::ZERO }
    }
}

fn processes_of(count: usize) -> String {
    if count == 1 { "1 process".to_owned() } else { format!("{count} processes") }
}

fn connect<'a>(
    args: &Args,
    hosts: &'a [Host],
    processes: &[Process],
    plan: &plan::Job,
    remote: &Remote,
    events: &Sender<Event>,
) -> Result<Vec<Site<'a>>, Stopped> {
    let mut members: std::collections::HashMap<u32, Vec<usize>> = std::collections::HashMap::new();
    for (at, process) in processes.iter().enumerate() {
        members.entry(process.host).or_default().push(at);
    }
    let busy: Vec<Host> = hosts.iter().filter(|host| members.contains_key(&host.id)).cloned().collect();
    // the records were checked: a script can be made of each
    let script = |host: &Host| {
        let own: Vec<&Process> = members[&host.id].iter().map(|at| &processes[*at]).collect();
        plan::script(plan, host, &own, busy.len()).unwrap_or_default()
    };
    let first = |host: &Host| if args.private_shm { private::script() } else { script(host) };
    let opened = remote.open_all(&busy, first).map_err(Stopped::Hosts)?;
    let faults: Vec<_> = busy.iter().zip(&opened).filter_map(|(host, result)| Some((host, result.as_ref().err()?))).collect();
    if !faults.is_empty() {
        return Err(Stopped::Hosts(remote::report(faults, args.connect.host_key)));
    }
    let busy = hosts.iter().filter(|host| members.contains_key(&host.id));
    let sites = busy.zip(opened.into_iter().flatten()).enumerate().map(|(at, (host, mut running))| {
        if args.private_shm {
            running.send(private::line(&script(host)));
        }
        Site::new(at, host, members[&host.id].clone(), running, plan.host_timeout, events.clone())
            .map_err(|error| Stopped::Hosts(Fault::unreachable("dgl-spawn", error.to_string()).report()))
    });
    sites.collect()
}

/// Why it ended, as people want to know it.
fn explain(hosts: &[Host], plan: &plan::Job, outcome: &Outcome, begun: Instant, show: &Show) {
    let say = |text: String| show.say(&format!("dgl-spawn: {text}"));
    outcome.report.lines("dgl-spawn").iter().for_each(|line| show.say(line));
    if !outcome.started {
        return say("nothing was started".to_owned());
    }
    if outcome.goes_on {
        let name = &plan.name;
        return say(format!("job {name} goes on; back to it: … | dgl-spawn --attach {name}; to end it: … | dgl-reap --job {name}"));
    }
    match (&outcome.failure, &outcome.cause) {
        (Some(failure), cause) => {
            let host = hosts.iter().find(|host| host.id == failure.host).map_or_else(|| format!("host {}", failure.host), Host::place);
            let who = match (failure.role, failure.rank) {
                (Some(role), Some(rank)) => format!("{host}: {} {rank}", role.name()),
                _ => host,
            };
            let what = match (&failure.error, failure.code, &failure.signal) {
                (Some(error), ..) if *cause == Some(Cause::Host) => format!("lost: {error}"),
                (Some(error), ..) => error.clone(),
                (_, _, Some(signal)) => format!("ended by SIG{signal}"),
                (_, code, _) => format!("exited with status {}", code.unwrap_or(1)),
            };
            let last = if failure.last_lines.is_empty() { "; it wrote nothing" } else { "; its last lines:" };
            say(format!("{who} {what}{}", if failure.role.is_some() { last } else { "" }));
            for line in &failure.last_lines {
                show.say(&format!("    {}", String::from_utf8_lossy(&on_terminal(line.as_bytes()))));
            }
        }
        (None, Some(Cause::Signal(number))) => say(format!("job {} was ended by SIG{}", plan.name, common::signal::name(*number))),
        (None, Some(Cause::Time(Limit::Start(limit) | Limit::Job(limit)))) => {
            say(format!("job {} was ended: it took longer than {}", plan.name, term::seconds(*limit)));
        }
        _ => say(format!("job {} ended well after {}", plan.name, term::seconds(begun.elapsed().max(outcome.age)))),
    }
}

/// The first signal that asks for the end, should one come in that time.
fn signal_within(happening: &Receiver<Event>, time: Duration) -> Option<i32> {
    let until = Instant::now() + time;
    loop {
        match happening.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(Event::Signal(number)) => return Some(number),
            Ok(_) => {}
            Err(_) => return None,
        }
    }
}

/// Where signals are told: the try that is on.
struct Signals(Arc<Mutex<Option<Sender<Event>>>>);

impl Signals {
    fn watch() -> std::io::Result<Signals> {
        let to: Arc<Mutex<Option<Sender<Event>>>> = Arc::default();
        let own = Arc::clone(&to);
        let mut signals = signal_hook::iterator::Signals::new(common::signal::ending()?.into_iter().chain([SIGUSR1]))?;
        std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
            for number in signals.forever() {
                let event = || if number == SIGUSR1 { Event::Aside(Aside::Asked) } else { Event::Signal(number) };
                // between two tries for a moment nobody listens
                let told = || own.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|events| events.send(event()));
                while !matches!(told(), Some(Ok(()))) {
                    std::thread::sleep(Duration::from_millis(10));
                }
            }
        })?;
        Ok(Signals(to))
    }

    fn go_to(&self, events: &Sender<Event>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(events.clone());
    }
}
