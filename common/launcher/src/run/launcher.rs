//! Connects to the hosts of a job, examines whether it can start, starts it and runs it to its end;
//! a job that failed may be started again.

use super::event_loop::EventLoop;
use super::hosts::{ConnectedHosts, RunEvent};
use super::outcome::{Outcome, Stopped, conclude, explain};
use super::signals::Signals;
use crate::left::launch::{launch, on_host};
use crate::left::servers::{self, Found};
use crate::output::sink::OutputSink;
use crate::plan::{self, Parts};
use crate::preflight::conversation::Conversation;
use crate::preflight::{self, JobUnderCheck};
use crate::spec;
use job::{Cause, Limit, Mode, Rules};
use record::error::{Fault, Report};
use record::exit::{Exit, signal_name};
use record::term;
use record::{Graph, Host, Process};
use session::{HostFault, Session};
use std::collections::HashMap;
use std::time::{Duration, Instant};
use wire::Request;
use wire::servers::Group;
use wire::supervise::Start;

/// How long to wait before a failed job starts again, because what made it fail may pass.
const RESTART_AFTER: Duration = Duration::from_secs(1);
/// How often hosts report the resources in use if nobody asked for samples; a report costs them
/// about 5 ms.
const USAGE_PACE: Duration = Duration::from_secs(5);
/// How often graph servers that are starting are checked again.
const CHECK_AGAIN: Duration = Duration::from_secs(1);

/// Whether a job that ended like this is started again; `tries` were made before the last one.
fn is_worth_another_try(outcome: &Outcome, tries: u32) -> bool {
    let failed = matches!(
        outcome.cause,
        Some(
            Cause::Process
                | Cause::Host
                | Cause::Servers
                | Cause::Paused(_)
                | Cause::Time(Limit::Start(_))
                | Cause::Stalled(_)
        )
    );
    // a first try that started nothing has found what is wrong; a later one may only have come too
    // early
    let was_early = tries > 0 && !matches!(outcome.cause, Some(Cause::Signal(_)));
    match outcome.started {
        true => failed,
        false => was_early,
    }
}

/// How the launcher reaches the hosts of a job.
pub trait Connect {
    /// Begins a conversation with the agent of each host; the results are in the order of the
    /// hosts.
    fn open_agents(&self, hosts: &[Host]) -> Vec<Result<Session, HostFault>>;

    /// Why nothing can stay on the hosts; `None` if processes can stay.
    fn why_nothing_stays(&self) -> Option<String> {
        None
    }
}

/// What starts the tries of a job.
pub struct Launcher<'a> {
    pub hosts: &'a [Host],
    pub graph: Option<Graph>,
    pub connect: &'a dyn Connect,
    pub signals: Signals,
}

/// Hosts that were told to start a job, and their events since.
type Started<'a> = (ConnectedHosts<'a>, Vec<RunEvent>);

impl<'a> Launcher<'a> {
    /// Starts, watches and ends a job; returns the exit status of the first failure.
    pub fn run(
        &self,
        mut plan: plan::Job,
        parts: &Parts,
        mut sink: OutputSink,
        begun: Instant,
    ) -> Result<Exit, Report> {
        let outcome = self.all_tries(&mut plan, parts, &mut sink, begun)?;
        if parts.servers.is_some() && matches!(outcome.cause, Some(Cause::Process | Cause::Time(_)))
        {
            // without it, clients never reach the servers again, or the servers end
            sink.notice(
                "dgl-spawn: persistent servers need net_type='tensorpipe' in the script's \
                dgl.distributed.initialize (DGL 0.9 to 1.1)",
            );
        }
        Ok(conclude(
            self.hosts,
            &plan,
            &outcome,
            begun,
            sink,
            &self.signals,
        ))
    }

    /// Tries the job until it has ended well, another try would be pointless, or all are used.
    fn all_tries(
        &self,
        plan: &mut plan::Job,
        parts: &Parts,
        sink: &mut OutputSink,
        begun: Instant,
    ) -> Result<Outcome, Report> {
        let mut tries = 0;
        loop {
            let outcome = self.one_try(plan, parts, sink);
            if tries == plan.restart || !is_worth_another_try(&outcome, tries) {
                return Ok(outcome);
            }
            if outcome.reaped {
                sink.notice(&format!(
                    "dgl-spawn: job {} does not start again: dgl-reap has ended it",
                    plan.name
                ));
                return Ok(outcome);
            }
            if let Some(number) = outcome.signalled {
                sink.notice(&format!(
                    "dgl-spawn: job {} does not start again: SIG{} came while it ended",
                    plan.name,
                    signal_name(number)
                ));
                return Ok(outcome);
            }
            tries += 1;
            explain(self.hosts, plan, &outcome, begun, sink);
            // a host that was lost needs time to notice it, and to end its part
            let pause = if matches!(
                outcome.cause,
                Some(Cause::Host | Cause::Servers | Cause::Paused(_))
            ) {
                plan.host_timeout + plan.rules.grace
            } else {
                RESTART_AFTER
            };
            sink.notice(&format!(
                "dgl-spawn: job {} starts again in {} ({tries} of {})",
                plan.name,
                term::seconds(pause),
                plan.restart
            ));
            if let Some(number) = self.signals.within(pause) {
                return Ok(Outcome {
                    exit: Exit::Signal(number),
                    cause: Some(Cause::Signal(number)),
                    cause_label: Some("signal"),
                    ..outcome
                });
            }
            plan.token = session::random_token()?;
            plan.attempt = tries;
        }
    }

    fn one_try(&self, plan: &plan::Job, parts: &Parts, sink: &mut OutputSink) -> Outcome {
        match parts.others() {
            [] => self.leave_servers(plan, parts, sink),
            others => match self.start(plan, parts, sink) {
                Ok(started) => run_to_end(plan, (others, parts.staying().len()), started, sink),
                Err(stopped) => stopped.outcome(),
            },
        }
    }

    /// Starts persistent graph servers, and leaves them to their hosts.
    fn leave_servers(&self, plan: &plan::Job, parts: &Parts, sink: &mut OutputSink) -> Outcome {
        let processes = parts.staying();
        let start = |_: &Host| Start {
            stays: true,
            ..Start::default()
        };
        let launched = self.connect(plan, processes).and_then(|hosts| {
            let mut talk = Conversation::with(&hosts);
            self.examine(&mut talk, plan, processes, sink)?;
            let launched = launch(&mut talk, plan, processes, start);
            hosts.with_events(launched)
        });
        match launched {
            Ok(started) => run_to_end(plan, (processes, 0), started, sink),
            Err(stopped) => stopped.outcome(),
        }
    }

    /// Connects to the hosts, examines them, and starts all processes except graph servers that
    /// stay, which come first.
    fn start(
        &self,
        plan: &plan::Job,
        parts: &Parts,
        sink: &mut OutputSink,
    ) -> Result<Started<'a>, Stopped> {
        match parts.servers.as_deref() {
            Some(name) => self.start_with_servers(plan, parts, name, sink),
            None => {
                let hosts = self.connect(plan, parts.others())?;
                let mut talk = Conversation::with(&hosts);
                self.examine(&mut talk, plan, parts.others(), sink)?;
                let started = self.start_on(&mut talk, plan, parts.others(), None);
                hosts.with_events(started)
            }
        }
    }

    /// Starts a job that uses persistent graph servers; these may have to be started, or waited
    /// for.
    fn start_with_servers(
        &self,
        plan: &plan::Job,
        parts: &Parts,
        name: &str,
        sink: &mut OutputSink,
    ) -> Result<Started<'a>, Stopped> {
        let processes = parts.others();
        let mut waits = false;
        loop {
            let hosts = self.connect(plan, processes)?;
            let mut talk = Conversation::with(&hosts);
            let found = servers::find(&mut talk, self.hosts, processes, name)?;
            match found {
                Found::Ready => {
                    self.examine(&mut talk, plan, processes, sink)?;
                    let group = servers::take_group(&mut talk, name)?;
                    let started = self.start_on(&mut talk, plan, processes, Some((name, group)));
                    let started = hosts.with_events(started)?;
                    sink.notice(&format!(
                        "dgl-spawn: group {} of graph servers {name}",
                        group.number
                    ));
                    return Ok(started);
                }
                Found::Missing(why) if parts.staying().is_empty() => {
                    return Err(no_servers(name, why));
                }
                Found::Missing(why) if servers::claim_start(&mut talk, name)? => {
                    sink.notice(&format!("dgl-spawn: starting graph servers {name}: {why}"));
                    self.start_servers(plan, parts, name, sink)?;
                }
                Found::Starting | Found::Missing(_) => {
                    if !std::mem::replace(&mut waits, true) {
                        sink.notice(&format!(
                            "dgl-spawn: waiting for graph servers {name}, which start just now"
                        ));
                    }
                    if let Some(number) = self.signals.within(CHECK_AGAIN) {
                        return Err(Stopped::Signal(number));
                    }
                }
            }
        }
    }

    /// Starts the graph servers of a job that stay, as a job of their own.
    fn start_servers(
        &self,
        plan: &plan::Job,
        parts: &Parts,
        name: &str,
        sink: &mut OutputSink,
    ) -> Result<(), Stopped> {
        let limits = plan.rules.limits.iter().copied();
        let plan = plan::Job {
            name: name.to_owned(),
            token: session::random_token().map_err(|fault| Stopped::Hosts(fault.report()))?,
            rules: Rules {
                limits: limits
                    .filter(|limit| matches!(limit, Limit::Start(_)))
                    .collect(),
                grace: plan.rules.grace,
                ..Rules::default()
            },
            detach: true,
            ..*plan
        };
        let outcome = self.leave_servers(&plan, parts, sink);
        match outcome.exit {
            Exit::Done => Ok(()),
            _ => Err(Stopped::Servers(Box::new(outcome))),
        }
    }

    /// Claims what the job needs, and examines whether it can start.
    fn examine(
        &self,
        talk: &mut Conversation<'_, '_>,
        plan: &plan::Job,
        processes: &[Process],
        sink: &OutputSink,
    ) -> Result<(), Stopped> {
        let subject = JobUnderCheck {
            job: &plan.name,
            hosts: self.hosts,
            processes,
            graph: self.graph.as_ref(),
            private_shm: plan.private_shm,
            examines: plan.preflight,
            wait: plan.wait,
        };
        preflight::prepare(talk, &subject, &mut |line| sink.notice(line))
    }

    /// Starts all processes on hosts that know them already. Returns the events that came since.
    fn start_on(
        &self,
        talk: &mut Conversation<'_, '_>,
        plan: &plan::Job,
        processes: &[Process],
        group: Option<(&str, Group)>,
    ) -> Result<Vec<RunEvent>, Stopped> {
        let start = |host: &Host| Start {
            private_shm: plan.private_shm,
            stays: false,
            uses: group.map(|(name, _)| on_host(name, host)),
            env: group.map_or_else(Vec::new, |(_, group)| spec::group_env(group)),
            // nobody listens to a job that is left
            usage_ms: match plan.detach {
                true => 0,
                false => term::millis(plan.sample.unwrap_or(USAGE_PACE)),
            },
            gpus: plan.sample.is_some(),
            stall_ms: plan
                .rules
                .stall
                .map_or(0, |stall| term::millis(stall.limit)),
            fail_on_exception: plan.rules.fail_on_exception,
        };
        if plan.detach {
            return launch(talk, plan, processes, start);
        }
        for session in &talk.hosts.sessions {
            session.send(Request::Start(start(session.host)));
        }
        Ok(Vec::new())
    }

    /// Connects to the hosts that have processes, and tells each what the job is.
    fn connect(
        &self,
        plan: &plan::Job,
        processes: &[Process],
    ) -> Result<ConnectedHosts<'a>, Stopped> {
        let mut members: HashMap<u32, Vec<usize>> = HashMap::new();
        for (at, process) in processes.iter().enumerate() {
            members.entry(process.host).or_default().push(at);
        }
        let busy: Vec<Host> = self
            .hosts
            .iter()
            .filter(|host| members.contains_key(&host.id))
            .cloned()
            .collect();
        let opened = self.connect.open_agents(&busy);
        if let Some(number) = self.signals.first() {
            return Err(Stopped::Signal(number));
        }
        let report = session::report(&busy, &opened);
        if !report.0.is_empty() {
            return Err(Stopped::Hosts(report));
        }
        if let Some(why) = self.connect.why_nothing_stays().filter(|_| plan.detach) {
            return Err(Stopped::Preflight(nothing_stays(&why)));
        }
        let mut sessions = Vec::new();
        for (host, mut session) in self
            .hosts
            .iter()
            .filter(|host| members.contains_key(&host.id))
            .zip(opened.into_iter().flatten())
        {
            let own = members[&host.id].clone();
            if plan.detach {
                session.send(&Request::Keep);
            }
            session.send(&Request::Job(spec::job(plan, host, busy.len())));
            for (index, at) in (0..).zip(&own) {
                let process = (processes[*at].clone().in_attempt(plan.attempt))
                    .and_then(|process| spec::process(index, &process))
                    .map_err(|fault| Stopped::Preflight(fault.report()))?;
                session.send(&Request::Process(process));
            }
            sessions.push((host, own, session));
        }
        ConnectedHosts::new(sessions, plan.host_timeout, self.signals.inbox())
            .map_err(|error| Stopped::Hosts(own_fault(&error)))
    }
}

/// Runs a job that was started to its end, or follows one that is left until it is up.
fn run_to_end(
    plan: &plan::Job,
    (processes, first): (&[Process], usize),
    (mut hosts, early): Started<'_>,
    sink: &mut OutputSink,
) -> Outcome {
    let (count, busy) = (processes.len() as u64, hosts.sessions.len() as u64);
    sink.notice(&format!(
        "dgl-spawn: job {}: {} on {}",
        plan.name,
        term::count(count, "process"),
        term::count(busy, "host")
    ));
    let mode = if plan.detach {
        Mode::Detaching
    } else {
        Mode::Deciding
    };
    EventLoop::begin(mode, plan, (processes, first), &mut hosts, early, sink).run()
}

fn no_servers(name: &str, why: String) -> Stopped {
    let fault = Fault::unreachable(format!("graph servers {name}"), why);
    let fix = format!(
        "start them: … | dgl-env --role server --keep-alive --server-name {name} … | dgl-spawn \
         --detach"
    );
    Stopped::Preflight(fault.fix(fix).report())
}

fn nothing_stays(why: &str) -> Report {
    let fault = Fault::usage(
        "--detach",
        format!("the job would end with this tool: {why}"),
    );
    fault
        .fix("leave this tool running, as in a script of sbatch's, or reach the hosts by ssh")
        .report()
}

/// The fault of this machine having too few processes or descriptors.
pub fn own_fault(error: &std::io::Error) -> Report {
    Fault::unreachable("this machine", error.to_string())
        .fix("let this user have more processes and files: ulimit -u, ulimit -n")
        .report()
}
