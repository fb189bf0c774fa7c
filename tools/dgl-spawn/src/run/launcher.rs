//! Connects to the hosts of a job, looks whether it can start, starts it and lives through it; where it failed, perhaps again.

use super::event_loop::EventLoop;
use super::hosts::ConnectedHosts;
use super::outcome::{Outcome, Stopped, conclude, explain};
use super::signals::Signals;
use crate::act;
use crate::args::Args;
use crate::output::sink::OutputSink;
use crate::plan::{self, Parts};
use crate::preflight::{self, Subject};
use crate::spec;
use common::error::{Fault, Report};
use common::exit::Exit;
use common::jsonl::Stream;
use common::record::{Graph, Host, Process};
use common::remote::{self, Kind, Remote};
use common::term;
use job::{Cause, Limit};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wire::Request;
use wire::supervise::Start;

/// Before a failed job starts again: what made it fail may pass.
const RESTART_AFTER: Duration = Duration::from_secs(1);

/// Starts, watches, ends; the exit status is that of the first failure.
pub fn run(args: &Args, stream: &Stream, hosts: &[Host], parts: &Parts, mut plan: plan::Job) -> Result<Exit, Report> {
    let begun = Instant::now();
    let mut sink = open_sink(args, stream, hosts, &parts.all)?;
    let launcher = Launcher {
        args,
        hosts,
        graph: stream.one()?,
        remote: Arc::new(Remote::new(&args.connect, Kind::Ssh2)?),
        // from here on a signal ends the job in order: nothing has been started yet
        signals: Signals::watch().map_err(|error| own_fault(&error))?,
    };
    let mut tries = 0;
    let outcome = loop {
        let outcome = launcher.one_try(&plan, parts, &mut sink);
        let failed = matches!(outcome.cause, Some(Cause::Process | Cause::Host | Cause::Time(Limit::Start(_))));
        // a first try that started nothing has found what is wrong; a later one may only have come too early
        let again = (failed && outcome.started) || (tries > 0 && !matches!(outcome.cause, Some(Cause::Signal(_))) && !outcome.started);
        if tries == args.restart || !again {
            break outcome;
        }
        tries += 1;
        explain(hosts, &plan, &outcome, begun, &sink);
        // a host that was lost needs its time to find out that it is
        let pause = if outcome.cause == Some(Cause::Host) { plan.host_timeout + plan.grace } else { RESTART_AFTER };
        sink.say(&format!("dgl-spawn: job {} starts again in {} ({tries} of {})", plan.name, term::seconds(pause), args.restart));
        if let Some(number) = launcher.signals.within(pause) {
            break Outcome { exit: Exit::Signal(number), cause: Some(Cause::Signal(number)), word: Some("signal"), ..outcome };
        }
        plan.token = plan::token()?;
    };
    if parts.servers.is_some() && matches!(outcome.cause, Some(Cause::Process | Cause::Time(_))) {
        // without it clients never get through to them, or the servers end
        sink.say("dgl-spawn: servers that stay need net_type='tensorpipe' in the script's dgl.distributed.initialize (DGL 0.9 to 1.1)");
    }
    Ok(conclude(hosts, &plan, &outcome, begun, sink, &launcher.signals))
}

/// What starts jobs.
pub struct Launcher<'a> {
    pub args: &'a Args,
    pub hosts: &'a [Host],
    pub graph: Option<Graph>,
    pub remote: Arc<Remote>,
    pub signals: Signals,
}

impl<'a> Launcher<'a> {
    fn one_try(&self, plan: &plan::Job, parts: &Parts, sink: &mut OutputSink) -> Outcome {
        // a job that outlives this launcher, and graph servers that stay, are kept by scripts
        if plan.detach || parts.servers.is_some() {
            return act::one_try(self, plan, parts, sink);
        }
        match self.start(plan, &parts.all, sink) {
            Ok(mut hosts) => {
                let (processes, busy) = (parts.all.len() as u64, hosts.sessions.len() as u64);
                let (processes, busy) = (term::count(processes, "process"), term::count(busy, "host"));
                sink.say(&format!("dgl-spawn: job {}: {processes} on {busy}", plan.name));
                Outcome::of(EventLoop::begin(plan, &parts.all, &mut hosts, sink).run())
            }
            Err(stopped) => stopped.outcome(),
        }
    }

    /// Connects to the hosts, looks at them, and starts all processes.
    fn start(&self, plan: &plan::Job, processes: &[Process], sink: &OutputSink) -> Result<ConnectedHosts<'a>, Stopped> {
        let hosts = self.connect(plan, processes)?;
        self.signals.go_to_inbox(hosts.inbox());
        let subject = Subject {
            job: &plan.name,
            hosts: self.hosts,
            processes,
            graph: self.graph.as_ref(),
            private_shm: self.args.private_shm,
            looks: plan.preflight,
            wait: self.args.wait,
        };
        preflight::prepare(&hosts, &subject, &mut |line| sink.say(line))?;
        hosts.send_all(&Request::Start(Start { private_shm: self.args.private_shm }));
        Ok(hosts)
    }

    /// Connects to the hosts that have processes, and tells each what the job is.
    fn connect(&self, plan: &plan::Job, processes: &[Process]) -> Result<ConnectedHosts<'a>, Stopped> {
        let mut members: HashMap<u32, Vec<usize>> = HashMap::new();
        for (at, process) in processes.iter().enumerate() {
            members.entry(process.host).or_default().push(at);
        }
        let busy: Vec<Host> = self.hosts.iter().filter(|host| members.contains_key(&host.id)).cloned().collect();
        let opened = self.remote.open_agents(&busy).map_err(Stopped::Hosts)?;
        let faults: Vec<_> = busy.iter().zip(&opened).filter_map(|(host, result)| Some((host, result.as_ref().err()?))).collect();
        if !faults.is_empty() {
            return Err(Stopped::Hosts(remote::report(faults, self.args.connect.host_key)));
        }
        let mut sessions = Vec::new();
        for (host, mut session) in self.hosts.iter().filter(|host| members.contains_key(&host.id)).zip(opened.into_iter().flatten()) {
            let own = members[&host.id].clone();
            session.send(&Request::Job(spec::job(plan, host, busy.len())));
            for (index, at) in (0..).zip(&own) {
                let process = spec::process(index, &processes[*at]).map_err(|fault| Stopped::Preflight(fault.report()))?;
                session.send(&Request::Process(process));
            }
            sessions.push((host, own, session));
        }
        ConnectedHosts::new(sessions, plan.host_timeout).map_err(|error| Stopped::Hosts(own_fault(&error)))
    }
}

/// Opens stdout and the log files, and passes on what came in.
pub fn open_sink(args: &Args, stream: &Stream, hosts: &[Host], processes: &[Process]) -> Result<OutputSink, Report> {
    let names: Vec<String> = processes.iter().map(|process| name_of(hosts, process)).collect();
    let sink = OutputSink::new(args.connect.format.human(), args.log_dir.as_deref(), processes, &names);
    let sink = sink.map_err(|error| Fault::unreachable("--log-dir", error.to_string()).fix("name a folder that can be written"))?;
    sink.pass(stream.bytes_but(""));
    Ok(sink)
}

/// How a process's host is called in front of its lines.
fn name_of(hosts: &[Host], process: &Process) -> String {
    let host = hosts.iter().find(|host| host.id == process.host);
    host.map_or_else(|| process.host.to_string(), |host| host.name.clone().unwrap_or_else(|| host.ip.to_string()))
}

/// This machine has not enough of something.
pub fn own_fault(error: &std::io::Error) -> Report {
    Fault::unreachable("this machine", error.to_string()).fix("let this user have more processes and files: ulimit -u, ulimit -n").report()
}
