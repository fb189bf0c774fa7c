//! Carries a job out: connects, looks, starts, lives through it, tells how it ended; where it failed, perhaps again.

use crate::args::Args;
use crate::detach;
use crate::job::{Cause, Limit, Rule};
use crate::life::{Life, name_of};
use crate::plan::{self, Parts};
use crate::preflight::{self, Servers};
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
/// Graph servers that start just now are looked at again.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// How a job, or one try of it, ended.
pub struct Outcome {
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
    /// The graph servers that it used have ended.
    unserved: bool,
}

/// What stopped a job before it began.
pub enum Stopped {
    /// Hosts could not be reached.
    Hosts(Report),
    /// The look before the start found faults.
    Preflight(Report),
    /// A signal came.
    Signal(i32),
    /// The graph servers that it uses did not start.
    Servers(Box<Outcome>),
}

/// Starts, watches, ends; the exit status is that of the first failure.
pub fn run(args: &Args, stream: &Stream, hosts: &[Host], parts: &Parts, mut plan: plan::Job) -> Result<Exit, Report> {
    let begun = Instant::now();
    let mut show = show(args, stream, hosts, &parts.all)?;
    let launcher = Launcher {
        args,
        hosts,
        graph: stream.one()?,
        remote: Arc::new(Remote::new(&args.connect, Kind::Ssh2)?),
        // from here on a signal ends the job in order: nothing has been started yet
        signals: Signals::watch().map_err(own_fault)?,
    };
    let mut tries = 0;
    let outcome = loop {
        let outcome = launcher.one_try(&plan, parts, &mut show);
        let failed = matches!(outcome.cause, Some(Cause::Process | Cause::Host | Cause::Time(Limit::Start(_))));
        // a first try that started nothing has found what is wrong; a later one may only have come too early
        let again = (failed && outcome.started) || (tries > 0 && !matches!(outcome.cause, Some(Cause::Signal(_))) && !outcome.started);
        if tries == args.restart || !again {
            break outcome;
        }
        tries += 1;
        explain(hosts, &plan, &outcome, begun, &show);
        // a host that was lost needs its time to find out that it is
        let pause = if outcome.cause == Some(Cause::Host) { plan.host_timeout + plan.grace } else { RESTART_AFTER };
        show.say(&format!("dgl-spawn: job {} starts again in {} ({tries} of {})", plan.name, term::seconds(pause), args.restart));
        if let Some(number) = launcher.signals.within(pause) {
            break Outcome { exit: Exit::Signal(number), cause: Some(Cause::Signal(number)), word: Some("signal"), ..outcome };
        }
        plan.token = plan::token()?;
    };
    if parts.servers.is_some() && matches!(outcome.cause, Some(Cause::Process | Cause::Time(_))) {
        // without it clients never get through to them, or the servers end
        show.say("dgl-spawn: servers that stay need net_type='tensorpipe' in the script's dgl.distributed.initialize (DGL 0.9 to 1.1)");
    }
    Ok(end(hosts, &plan, outcome, begun, show, &launcher.signals))
}

/// What starts jobs.
struct Launcher<'a> {
    args: &'a Args,
    hosts: &'a [Host],
    graph: Option<Graph>,
    remote: Arc<Remote>,
    signals: Signals,
}

/// The hosts of a job, and what happens on them.
struct Sites<'a> {
    sites: Vec<Site<'a>>,
    events: Sender<Event>,
    happening: Receiver<Event>,
}

impl<'a> Launcher<'a> {
    fn one_try(&self, plan: &plan::Job, parts: &Parts, show: &mut Show) -> Outcome {
        match parts.others() {
            [] => self.servers(plan, parts, show),
            others => match self.started(plan, parts, show) {
                Ok(sites) => self.live(plan, (others, parts.staying().len()), sites, show),
                Err(stopped) => stopped.outcome(),
            },
        }
    }

    /// Starts graph servers that stay.
    fn servers(&self, plan: &plan::Job, parts: &Parts, show: &mut Show) -> Outcome {
        let started = self.looked_at(plan, parts.staying()).and_then(|(sites, _)| {
            detach::launch(&sites.sites, None, &sites.happening)?;
            Ok(sites)
        });
        match started {
            Ok(sites) => self.live(plan, (parts.staying(), 0), sites, show),
            Err(stopped) => stopped.outcome(),
        }
    }

    /// Looks at the hosts and starts all but graph servers that stay: those are there first.
    fn started(&self, plan: &plan::Job, parts: &Parts, show: &mut Show) -> Result<Sites<'a>, Stopped> {
        let name = parts.servers.as_deref().unwrap_or_default();
        let mut waits = false;
        loop {
            let (sites, servers) = self.looked_at(plan, parts.others())?;
            match servers {
                Servers::Ready => {
                    let group = parts.servers.as_ref().map(|_| detach::group(&sites.sites, &sites.happening)).transpose()?;
                    let order = group.map_or_else(|| "start".to_owned(), |group| format!("start {} {}", group.number, group.port));
                    match plan.detach {
                        true => detach::launch(&sites.sites, group, &sites.happening)?,
                        false => sites.sites.iter().for_each(|site| site.say(&order)),
                    }
                    group.iter().for_each(|group| show.say(&format!("dgl-spawn: group {} of graph servers {name}", group.number)));
                    return Ok(sites);
                }
                Servers::Missing(why) if parts.staying().is_empty() => {
                    let fault = Fault::unreachable(format!("graph servers {name}"), why);
                    let fix = format!("start them: … | dgl-env --role server --keep-alive --server-name {name} … | dgl-spawn --detach");
                    return Err(Stopped::Preflight(fault.fix(fix).report()));
                }
                Servers::Missing(why) if detach::claim(&sites.sites, &sites.happening)? => {
                    show.say(&format!("dgl-spawn: starting graph servers {name}: {why}"));
                    let limits = plan.limits.iter().copied().filter(|limit| matches!(limit, Limit::Start(_))).collect();
                    let token = plan::token().map_err(Stopped::Hosts)?;
                    let plan = plan::Job { name: name.to_owned(), token, limits, detach: true, ..*plan };
                    let outcome = self.servers(&plan, parts, show);
                    if outcome.exit != Exit::Done {
                        return Err(Stopped::Servers(Box::new(outcome)));
                    }
                }
                Servers::Starting | Servers::Missing(_) => {
                    if !waits {
                        show.say(&format!("dgl-spawn: waiting for graph servers {name}, which start just now"));
                    }
                    waits = true;
                    if let Some(number) = self.signals.within(LOOK_AGAIN) {
                        return Err(Stopped::Signal(number));
                    }
                }
            }
        }
    }

    fn looked_at(&self, plan: &plan::Job, processes: &[Process]) -> Result<(Sites<'a>, Servers), Stopped> {
        let (events, happening) = channel();
        self.signals.go_to(&events);
        let sites = self.connect(plan, processes, &events)?;
        let servers = preflight::look(&sites, self.hosts, self.graph.as_ref(), &happening)?;
        Ok((Sites { sites, events, happening }, servers))
    }

    fn live(&self, plan: &plan::Job, processes: (&[Process], usize), sites: Sites<'_>, show: &mut Show) -> Outcome {
        let Sites { mut sites, events, happening } = sites;
        let (count, hosts) = (term::count(processes.0.len() as u64, "process"), term::count(sites.len() as u64, "host"));
        show.say(&format!("dgl-spawn: job {}: {count} on {hosts}", plan.name));
        let rule = if plan.detach { Rule::Detach } else { Rule::Own };
        let mut life = Life::begin(rule, plan, processes, &self.remote, events, show);
        let left = life.run(&mut sites, &happening);
        outcome(life, left)
    }

    fn connect(&self, plan: &plan::Job, processes: &[Process], events: &Sender<Event>) -> Result<Vec<Site<'a>>, Stopped> {
        let (args, hosts) = (self.args, self.hosts);
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
        let opened = self.remote.open_all(&busy, first).map_err(Stopped::Hosts)?;
        let faults: Vec<_> = busy.iter().zip(&opened).filter_map(|(host, result)| Some((host, result.as_ref().err()?))).collect();
        if !faults.is_empty() {
            return Err(Stopped::Hosts(remote::report(faults, args.connect.host_key)));
        }
        let busy = hosts.iter().filter(|host| members.contains_key(&host.id));
        let sites = busy.zip(opened.into_iter().flatten()).enumerate().map(|(at, (host, mut running))| {
            if args.private_shm {
                running.send(remote::booted(&script(host)));
            }
            Site::new(at, host, members[&host.id].clone(), running, plan.host_timeout, events.clone())
                .map_err(|error| Stopped::Hosts(own_fault(error)))
        });
        sites.collect()
    }
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
    let mut show = show(args, stream, hosts, &processes)?;
    let signals = Signals::watch().map_err(own_fault)?;
    let (events, happening) = channel();
    signals.go_to(&events);
    let site = |(at, (host, members, running))| Site::new(at, &hosts[host], members, running, args.host_timeout, events.clone());
    let mut sites = parts.into_iter().enumerate().map(site).collect::<Result<Vec<_>, _>>().map_err(own_fault)?;
    sites.iter().for_each(|site| site.say("start"));
    let plan = plan::Job::followed(name, args.grace, args.host_timeout);
    let mut life = Life::begin(Rule::Attach, &plan, (&processes, 0), &remote, events, &mut show);
    let left = life.run(&mut sites, &happening);
    let outcome = outcome(life, left);
    let exit = end(hosts, &plan, outcome, begun, show, &signals);
    Ok(if report.0.is_empty() { exit } else { exit.worst(report.exit()) })
}

fn show(args: &Args, stream: &Stream, hosts: &[Host], processes: &[Process]) -> Result<Show, Report> {
    let names: Vec<String> = processes.iter().map(|process| name_of(hosts, process)).collect();
    let show = Show::new(args.connect.format.human(), args.log_dir.as_deref(), processes, &names);
    let show = show.map_err(|error| Fault::unreachable("--log-dir", error.to_string()).fix("name a folder that can be written"))?;
    show.pass(stream.bytes_but(""));
    Ok(show)
}

fn own_fault(error: std::io::Error) -> Report {
    Fault::unreachable("this machine", error.to_string()).fix("let this user have more processes and files: ulimit -u, ulimit -n").report()
}

/// Tells how it ended, to programs and to people.
fn end(hosts: &[Host], plan: &plan::Job, outcome: Outcome, begun: Instant, show: Show, signals: &Signals) -> Exit {
    show.record(&Summary {
        ok: outcome.exit == Exit::Done,
        code: outcome.exit.code(),
        cause: outcome.word.map(str::to_owned),
        first_failure: outcome.failure.clone(),
        elapsed_ms: millis(begun.elapsed()),
        job: Some(plan.name.clone()),
    });
    explain(hosts, plan, &outcome, begun, &show);
    let (events, happening) = channel();
    signals.go_to(&events);
    show.finish(|| matches!(happening.try_recv(), Ok(Event::Signal(_))));
    outcome.exit
}

fn outcome(life: Life<'_>, left: Report) -> Outcome {
    let (age, unserved) = (life.age(), life.unserved);
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
    Outcome { exit, cause: job.cause().cloned(), word, failure: job.failure(), report: left, started: true, goes_on, age, unserved }
}

impl Stopped {
    fn outcome(self) -> Outcome {
        let (exit, cause, word, report) = match self {
            Stopped::Servers(outcome) => return *outcome,
            Stopped::Signal(number) => (Exit::Signal(number), Some(Cause::Signal(number)), "signal", Report::default()),
            Stopped::Hosts(report) => (report.exit(), Some(Cause::Host), "host", report),
            Stopped::Preflight(report) => (report.exit(), None, "preflight", report),
        };
        Outcome {
            exit,
            cause,
            word: Some(word),
            failure: None,
            report,
            started: false,
            goes_on: false,
            age: Duration::ZERO,
            unserved: false,
        }
    }
}

/// Why it ended, as people want to know it.
fn explain(hosts: &[Host], plan: &plan::Job, outcome: &Outcome, begun: Instant, show: &Show) {
    let say = |text: String| show.say(&format!("dgl-spawn: {}", term::plain(&text)));
    outcome.report.lines("dgl-spawn").iter().for_each(|line| show.say(line));
    if !outcome.started {
        return say("nothing was started".to_owned());
    }
    if outcome.goes_on {
        let name = &plan.name;
        return say(format!("job {name} goes on; back to it: … | dgl-spawn --attach {name}; to end it: … | dgl-reap --job {name}"));
    }
    if outcome.unserved {
        say("the graph servers that it used have ended: … | dgl-spawn --attach NAME tells why".to_owned());
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

    /// One that comes within this time.
    fn within(&self, time: Duration) -> Option<i32> {
        let (events, happening) = channel();
        self.go_to(&events);
        let until = Instant::now() + time;
        loop {
            match happening.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(Event::Signal(number)) => return Some(number),
                Ok(_) => {}
                Err(_) => return None,
            }
        }
    }
}
