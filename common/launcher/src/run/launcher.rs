//! Connects to a job's hosts, checks whether it can start, starts it and runs it until its end; a
//! failed job may be restarted.

use super::dispatcher::Dispatcher;
use super::executor::ConnectedHosts;
use super::outcome::{JobOutcome, Stopped, conclude, explain};
use super::signals::Signals;
use crate::output::sink::OutputSink;
use crate::plan;
use crate::preflight;
use crate::preflight::conversation::Conversation;
use crate::preflight::diagnosis::JobUnderCheck;
use crate::servers::{self, on_host};
use crate::spec;
use job::{Cause, Limit};
use record::error::{Fault, Report};
use record::exit::Exit;
use record::term;
use record::{Graph, Host, Process};
use session::{HostFault, Session};
use std::collections::HashMap;
use std::time::{Duration, Instant};
use wire::Request;
use wire::servers::{Find, TrainerGroup};
use wire::supervise::Start;

/// How long to wait before a restart, because the reason may disappear.
const RESTART_AFTER: Duration = Duration::from_secs(1);
const CHECK_AGAIN: Duration = Duration::from_secs(1);

/// What follows an attempt.
#[derive(Debug, PartialEq, Eq)]
pub enum NextAttempt {
    /// It finished, another attempt would be pointless, or none is left.
    None,
    /// None, for this reason.
    Refused(String),
    /// Another attempt, after this pause.
    After(Duration),
}

impl NextAttempt {
    /// `attempts` were made before the one with this outcome.
    pub fn after(plan: &plan::JobPlan, outcome: &JobOutcome, attempts: u32) -> NextAttempt {
        if attempts == plan.restart || !is_worth_another_attempt(outcome, attempts) {
            return NextAttempt::None;
        }
        if outcome.reaped {
            return NextAttempt::Refused("dgl-reap stopped it".to_owned());
        }
        if let Some(signal) = outcome.signalled {
            return NextAttempt::Refused(format!("SIG{signal} arrived while it was stopping"));
        }
        // a lost host needs time to detect that and to end its part
        let has_lost_hosts = !outcome.report.0.is_empty()
            || matches!(
                outcome.cause,
                Some(Cause::Host | Cause::Servers | Cause::Paused(_))
            );
        let ends_its_part = if has_lost_hosts {
            plan.host_timeout + plan.rules.grace
        } else {
            Duration::ZERO
        };
        // a host checks once a second whether its launcher is gone
        NextAttempt::After(ends_its_part + RESTART_AFTER)
    }
}

/// `attempts` were made before the last one.
fn is_worth_another_attempt(outcome: &JobOutcome, attempts: u32) -> bool {
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
    // if the first attempt started nothing, the problem is permanent; a later one may only have
    // been too early
    let was_early = attempts > 0 && !matches!(outcome.cause, Some(Cause::Signal(_)));
    if outcome.started { failed } else { was_early }
}

/// Opens a session with the agent of each host; the results are in the order of the hosts.
pub type OpenAgents<'a> = dyn Fn(&[Host]) -> Vec<Result<Session, HostFault>> + 'a;

pub struct Launcher<'a> {
    pub hosts: &'a [Host],
    pub graph: Option<Graph>,
    pub open_agents: &'a OpenAgents<'a>,
    pub signals: Signals,
}

impl<'a> Launcher<'a> {
    /// Returns the exit status of the first failure.
    pub fn run(
        &self,
        mut plan: plan::JobPlan,
        processes: &[Process],
        mut sink: OutputSink,
        begun: Instant,
    ) -> Result<Exit, Report> {
        let outcome = self.all_attempts(&mut plan, processes, &mut sink, begun)?;
        let has_failed = matches!(outcome.cause, Some(Cause::Process | Cause::Time(_)));
        let of_servers = |process: &Process| process.server_name.is_some();
        if has_failed && processes.iter().any(of_servers) {
            // with another one, clients never reach the servers again, or the servers end
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

    /// Runs the job until it finishes, another attempt would be pointless, or none is left.
    fn all_attempts(
        &self,
        plan: &mut plan::JobPlan,
        processes: &[Process],
        sink: &mut OutputSink,
        begun: Instant,
    ) -> Result<JobOutcome, Report> {
        let mut attempts = 0;
        loop {
            let outcome = self.one_attempt(plan, processes, sink);
            let pause = match NextAttempt::after(plan, &outcome, attempts) {
                NextAttempt::None => return Ok(outcome),
                NextAttempt::Refused(why) => {
                    let name = &plan.name;
                    sink.notice(&format!(
                        "dgl-spawn: job {name} does not start again: {why}"
                    ));
                    return Ok(outcome);
                }
                NextAttempt::After(pause) => pause,
            };
            attempts += 1;
            explain(self.hosts, plan, &outcome, begun, sink);
            sink.notice(&format!(
                "dgl-spawn: job {} starts again in {} ({attempts} of {})",
                plan.name,
                term::seconds(pause),
                plan.restart
            ));
            if let Some(signal) = self.signals.within(pause) {
                return Ok(JobOutcome {
                    exit: Exit::Signal(signal),
                    cause: Some(Cause::Signal(signal)),
                    cause_label: Some("signal"),
                    ..outcome
                });
            }
            plan.token = session::random_token()?;
            plan.attempt = attempts;
        }
    }

    fn one_attempt(
        &self,
        plan: &plan::JobPlan,
        processes: &[Process],
        sink: &mut OutputSink,
    ) -> JobOutcome {
        match self.start(plan, processes, sink) {
            Ok(hosts) => {
                sink.notice(&format!(
                    "dgl-spawn: job {}: {} on {}",
                    plan.name,
                    term::count(processes.len() as u64, "process"),
                    term::count(hosts.sessions.len() as u64, "host")
                ));
                Dispatcher::new(plan, processes, &hosts, sink, Instant::now()).run()
            }
            Err(stopped) => stopped.outcome(),
        }
    }

    fn start(
        &self,
        plan: &plan::JobPlan,
        processes: &[Process],
        sink: &mut OutputSink,
    ) -> Result<ConnectedHosts<'a>, Stopped> {
        let hosts = self.connect(plan, processes)?;
        let mut conversation = Conversation::new(&hosts);
        let servers = plan::used_servers(processes);
        if let Some(name) = servers {
            await_servers(&mut conversation, plan, processes, name, sink)?;
        }
        self.examine(&mut conversation, plan, processes, sink)?;
        let group = match servers {
            Some(name) => Some((name, servers::take_group(&mut conversation, name)?)),
            None => None,
        };
        self.start_on(&hosts, plan, processes, group);
        if let Some((name, group)) = group {
            sink.notice(&format!(
                "dgl-spawn: group {} of graph servers {name}",
                group.number
            ));
        }
        Ok(hosts)
    }

    fn examine(
        &self,
        conversation: &mut Conversation<'_, '_>,
        plan: &plan::JobPlan,
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
        preflight::prepare(conversation, &subject, &mut |line| sink.notice(line))
    }

    fn start_on(
        &self,
        hosts: &ConnectedHosts<'_>,
        plan: &plan::JobPlan,
        processes: &[Process],
        group: Option<(&str, TrainerGroup)>,
    ) {
        for session in &hosts.sessions {
            let mut host_processes = session.members.iter().map(|member| &processes[*member]);
            let serves = host_processes.find_map(|process| {
                let name = process.server_name.as_deref()?;
                let find = || Find {
                    servers: on_host(name, session.host),
                    data: servers::data(process),
                };
                plan::is_staying(process).then(|| Box::new(find()))
            });
            let start = Start {
                serves,
                uses: group.map(|(name, _)| on_host(name, session.host)),
                env: group.map_or_else(Vec::new, |(_, group)| spec::group_env(group)),
                stall_ms: plan
                    .rules
                    .stall
                    .map_or(0, |stall| term::millis(stall.limit)),
                fail_on_exception: plan.rules.fail_on_exception,
            };
            session.send(Request::Start(start));
        }
    }

    /// Connects to the hosts with processes, and sends each the job.
    fn connect(
        &self,
        plan: &plan::JobPlan,
        processes: &[Process],
    ) -> Result<ConnectedHosts<'a>, Stopped> {
        let members = members(processes);
        let mut sessions = Vec::new();
        for (host, mut session) in self.open(&members)? {
            let host_members = members[&host.id].clone();
            session.send(&Request::Job(spec::job(plan, host, members.len())));
            for process_index in &host_members {
                let process = processes[*process_index].clone().in_attempt(plan.attempt);
                let process = process.map_err(|fault| Stopped::Preflight(fault.report()))?;
                session.send(&Request::Process(Box::new(process)));
            }
            sessions.push((host, host_members, session));
        }
        ConnectedHosts::new(sessions, plan.host_timeout, self.signals.inbox())
            .map_err(|error| Stopped::Hosts(own_fault(&error)))
    }

    fn open(&self, members: &Members) -> Result<Vec<(&'a Host, Session)>, Stopped> {
        let is_busy = |host: &&Host| members.contains_key(&host.id);
        let busy: Vec<Host> = self.hosts.iter().filter(is_busy).cloned().collect();
        let opened = (self.open_agents)(&busy);
        if let Some(signal) = self.signals.first() {
            return Err(Stopped::Signal(signal));
        }
        let report = session::report(&busy, &opened);
        report.check().map_err(Stopped::Hosts)?;
        let busy = self.hosts.iter().filter(is_busy);
        Ok(busy.zip(opened.into_iter().flatten()).collect())
    }
}

/// The indices of each host's processes, by its number.
type Members = HashMap<u32, Vec<usize>>;

fn members(processes: &[Process]) -> Members {
    let mut members = Members::new();
    for (process_index, process) in processes.iter().enumerate() {
        members.entry(process.host).or_default().push(process_index);
    }
    members
}

/// Waits for the job's graph servers to listen, if and as long as the plan allows.
fn await_servers(
    conversation: &mut Conversation<'_, '_>,
    plan: &plan::JobPlan,
    processes: &[Process],
    name: &str,
    sink: &OutputSink,
) -> Result<(), Stopped> {
    let until = plan.wait.map(|wait| Instant::now() + wait);
    let mut waits = false;
    while let Some(not_ready) = servers::find(conversation, processes, name)? {
        let fault = not_ready.fault(name);
        if until.is_none_or(|until| Instant::now() >= until) {
            return Err(Stopped::Preflight(fault.report()));
        }
        if let (false, Some(wait)) = (std::mem::replace(&mut waits, true), plan.wait) {
            sink.notice(&preflight::waiting(wait, &fault));
        }
        conversation.pause(CHECK_AGAIN)?;
    }
    Ok(())
}

/// This machine has too few processes or descriptors.
pub fn own_fault(error: &std::io::Error) -> Report {
    Fault::unreachable("this machine", error.to_string())
        .fix("allow this user more processes and files: ulimit -u, ulimit -n")
        .report()
}
