//! The old way, by scripts: jobs that outlive their launcher and graph servers that stay; and going back to them.

use crate::args::Args;
use crate::detach;
use crate::life::Life;
use crate::outcome;
use crate::output::sink::OutputSink;
use crate::plan::{self, Parts};
use crate::preflight::scripts::{self as preflight, Servers};
use crate::private;
use crate::run::hosts::RunEvent;
use crate::run::launcher::{Launcher, open_sink, own_fault};
use crate::run::outcome::{Outcome, Stopped, cause_word, conclude};
use crate::run::signals::Signals;
use crate::site::{Aside, Event, Site};
use common::error::{Fault, Report};
use common::exit::Exit;
use common::jsonl::Stream;
use common::record::{Host, Process};
use common::remote::{self, Kind, Remote};
use common::term;
use job::{Limit, Mode};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// Graph servers that start just now are looked at again.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Signals go to the events of a try.
fn go_to(signals: &Signals, events: &Sender<Event>) {
    let events = events.clone();
    signals.go_to(move |event| {
        let event = match event {
            RunEvent::Signal(number) => Event::Signal(number),
            _ => Event::Aside(Aside::Asked),
        };
        events.send(event).is_ok()
    });
}

/// One try of a job that is left there, or that uses graph servers that stay.
pub fn one_try(launcher: &Launcher<'_>, plan: &plan::Job, parts: &Parts, sink: &mut OutputSink) -> Outcome {
    match parts.others() {
        [] => launcher.servers(plan, parts, sink),
        others => match launcher.started(plan, parts, sink) {
            Ok(sites) => launcher.live(plan, (others, parts.staying().len()), sites, sink),
            Err(stopped) => stopped.outcome(),
        },
    }
}

/// The hosts of a job, and what happens on them.
struct Sites<'a> {
    sites: Vec<Site<'a>>,
    events: Sender<Event>,
    happening: Receiver<Event>,
}

impl<'a> Launcher<'a> {
    /// Starts graph servers that stay.
    fn servers(&self, plan: &plan::Job, parts: &Parts, sink: &mut OutputSink) -> Outcome {
        let started = self.looked_at(plan, parts.staying()).and_then(|(sites, _)| {
            detach::launch(&sites.sites, None, &sites.happening)?;
            Ok(sites)
        });
        match started {
            Ok(sites) => self.live(plan, (parts.staying(), 0), sites, sink),
            Err(stopped) => stopped.outcome(),
        }
    }

    /// Looks at the hosts and starts all but graph servers that stay: those are there first.
    fn started(&self, plan: &plan::Job, parts: &Parts, sink: &mut OutputSink) -> Result<Sites<'a>, Stopped> {
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
                    group.iter().for_each(|group| sink.say(&format!("dgl-spawn: group {} of graph servers {name}", group.number)));
                    return Ok(sites);
                }
                Servers::Missing(why) if parts.staying().is_empty() => {
                    let fault = Fault::unreachable(format!("graph servers {name}"), why);
                    let fix = format!("start them: … | dgl-env --role server --keep-alive --server-name {name} … | dgl-spawn --detach");
                    return Err(Stopped::Preflight(fault.fix(fix).report()));
                }
                Servers::Missing(why) if detach::claim(&sites.sites, &sites.happening)? => {
                    sink.say(&format!("dgl-spawn: starting graph servers {name}: {why}"));
                    let limits = plan.limits.iter().copied().filter(|limit| matches!(limit, Limit::Start(_))).collect();
                    let token = plan::token().map_err(Stopped::Hosts)?;
                    let plan = plan::Job { name: name.to_owned(), token, limits, detach: true, ..*plan };
                    let outcome = self.servers(&plan, parts, sink);
                    if outcome.exit != Exit::Done {
                        return Err(Stopped::Servers(Box::new(outcome)));
                    }
                }
                Servers::Starting | Servers::Missing(_) => {
                    if !waits {
                        sink.say(&format!("dgl-spawn: waiting for graph servers {name}, which start just now"));
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
        go_to(&self.signals, &events);
        let sites = self.open_sites(plan, processes, &events)?;
        let servers = preflight::look(&sites, self.hosts, self.graph.as_ref(), &happening)?;
        Ok((Sites { sites, events, happening }, servers))
    }

    fn live(&self, plan: &plan::Job, processes: (&[Process], usize), sites: Sites<'_>, sink: &mut OutputSink) -> Outcome {
        let Sites { mut sites, events, happening } = sites;
        let (count, hosts) = (term::count(processes.0.len() as u64, "process"), term::count(sites.len() as u64, "host"));
        sink.say(&format!("dgl-spawn: job {}: {count} on {hosts}", plan.name));
        let mode = if plan.detach { Mode::Detaching } else { Mode::Deciding };
        let mut life = Life::begin(mode, plan, processes, &self.remote, events, sink);
        let left = life.run(&mut sites, &happening);
        outcome(life, left)
    }

    fn open_sites(&self, plan: &plan::Job, processes: &[Process], events: &Sender<Event>) -> Result<Vec<Site<'a>>, Stopped> {
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
                .map_err(|error| Stopped::Hosts(own_fault(&error)))
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
    let mut sink = open_sink(args, stream, hosts, &processes)?;
    let signals = Signals::watch().map_err(|error| own_fault(&error))?;
    let (events, happening) = channel();
    go_to(&signals, &events);
    let site = |(at, (host, members, running))| Site::new(at, &hosts[host], members, running, args.host_timeout, events.clone());
    let mut sites = parts.into_iter().enumerate().map(site).collect::<Result<Vec<_>, _>>().map_err(|error| own_fault(&error))?;
    sites.iter().for_each(|site| site.say("start"));
    let plan = plan::Job::followed(name, args.grace, args.host_timeout);
    let mut life = Life::begin(Mode::Following, &plan, (&processes, 0), &remote, events, &mut sink);
    let left = life.run(&mut sites, &happening);
    let outcome = outcome(life, left);
    let exit = conclude(hosts, &plan, &outcome, begun, sink, &signals);
    Ok(if report.0.is_empty() { exit } else { exit.worst(report.exit()) })
}

fn outcome(life: Life<'_>, left: Report) -> Outcome {
    let (age, unserved) = (life.age(), life.unserved);
    let (job, failure) = life.end();
    let exit = job.detach_signal().map_or_else(|| outcome::exit(&job), Exit::Signal);
    let exit = if left.0.is_empty() { exit } else { exit.worst(left.exit()) };
    let word = job.cause().map(cause_word);
    let goes_on = !job.ending() && exit != Exit::Unreachable;
    Outcome { exit, cause: job.cause().cloned(), word, failure, report: left, started: true, goes_on, age, unserved }
}
