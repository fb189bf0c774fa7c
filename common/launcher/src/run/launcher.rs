//! Connects to the hosts of a job, checks whether it can start, starts it and runs it until its
//! end; a job that failed may be restarted.

use super::event_loop::EventLoop;
use super::hosts::ConnectedHosts;
use super::outcome::{JobOutcome, Stopped, conclude, explain};
use super::signals::Signals;
use crate::detached::DetachedJob;
use crate::detached::follow::{Followed, Follower, Until};
use crate::detached::start::{self, LauncherListen, on_host};
use crate::output::sink::OutputSink;
use crate::plan::{self, SplitProcesses};
use crate::preflight::conversation::Conversation;
use crate::preflight::{self, JobUnderCheck};
use crate::servers::{self, FoundServers};
use crate::spec;
use job::{Cause, Limit, Rules};
use record::error::{Fault, Report};
use record::exit::Exit;
use record::term;
use record::{Graph, Host, Process, Summary};
use session::{HostFault, Session};
use std::collections::HashMap;
use std::time::{Duration, Instant};
use wire::Request;
use wire::servers::{Find, TrainerGroup};
use wire::supervise::Start;

/// How long to wait before a failed job is restarted, because the reason may disappear.
const RESTART_AFTER: Duration = Duration::from_secs(1);
/// How often hosts report the resources in use without --sample; a report costs them about 5 ms.
const USAGE_PACE: Duration = Duration::from_secs(5);
/// How often to check graph servers that are starting.
const CHECK_AGAIN: Duration = Duration::from_secs(1);

/// What follows an attempt.
#[derive(Debug, PartialEq, Eq)]
pub enum NextAttempt {
    /// Nothing: it has ended well, another attempt would be pointless, or none is left.
    None,
    /// Nothing, for this reason.
    Refused(String),
    /// Another attempt, after this pause.
    After(Duration),
}

impl NextAttempt {
    /// What follows an attempt with this outcome; `attempts` were made before it.
    pub fn of(plan: &plan::JobPlan, outcome: &JobOutcome, attempts: u32) -> NextAttempt {
        if attempts == plan.restart || !is_worth_another_attempt(outcome, attempts) {
            return NextAttempt::None;
        }
        if outcome.reaped {
            return NextAttempt::Refused("dgl-reap has ended it".to_owned());
        }
        if let Some(signal) = outcome.signalled {
            return NextAttempt::Refused(format!("SIG{signal} arrived while it ended"));
        }
        // a lost host needs time to detect that and to end its part
        let has_lost_hosts = !outcome.report.0.is_empty()
            || matches!(
                outcome.cause,
                Some(Cause::Host | Cause::Servers | Cause::Paused(_))
            );
        let ends_its_part = match has_lost_hosts {
            true => plan.host_timeout + plan.rules.grace,
            false => Duration::ZERO,
        };
        // a host checks once a second whether its launcher is gone
        NextAttempt::After(ends_its_part + RESTART_AFTER)
    }
}

/// Whether a job with this outcome is restarted; `attempts` were made before the last one.
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
    match outcome.started {
        true => failed,
        false => was_early,
    }
}

/// How the launcher reaches the hosts of a job.
pub trait ReachHosts {
    /// Opens a session with the agent of each host; the results are in the order of the hosts.
    fn open_agents(&self, hosts: &[Host]) -> Vec<Result<Session, HostFault>>;

    /// Why no process can outlive the agents; `None` if processes can.
    fn why_nothing_stays(&self) -> Option<String> {
        None
    }
}

/// Starts the attempts of a job.
pub struct Launcher<'a> {
    pub hosts: &'a [Host],
    pub graph: Option<Graph>,
    pub connect: &'a dyn ReachHosts,
    /// The port of the launcher of a detached job.
    pub listening: LauncherListen,
    pub signals: Signals,
}

impl<'a> Launcher<'a> {
    /// Starts, watches and ends a job; returns the exit status of the first failure, and the
    /// summary.
    pub fn run(
        &self,
        mut plan: plan::JobPlan,
        split: &SplitProcesses,
        mut sink: OutputSink,
        begun: Instant,
    ) -> Result<(Exit, Summary), Report> {
        let outcome = self.all_attempts(&mut plan, split, &mut sink, begun)?;
        if split.servers.is_some() && matches!(outcome.cause, Some(Cause::Process | Cause::Time(_)))
        {
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

    /// Runs the job until it has ended well, another attempt would be pointless, or none is left.
    fn all_attempts(
        &self,
        plan: &mut plan::JobPlan,
        split: &SplitProcesses,
        sink: &mut OutputSink,
        begun: Instant,
    ) -> Result<JobOutcome, Report> {
        let mut attempts = 0;
        loop {
            let outcome = self.one_attempt(plan, split, sink);
            let pause = match NextAttempt::of(plan, &outcome, attempts) {
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
        split: &SplitProcesses,
        sink: &mut OutputSink,
    ) -> JobOutcome {
        let processes = match split.others() {
            [] => split.persistent(),
            others => others,
        };
        match self.start(plan, split, sink) {
            Ok(mut hosts) => {
                sink.notice(&begun_notice(plan, processes, &hosts));
                EventLoop::begin(plan, processes, &mut hosts, sink, Instant::now()).run()
            }
            Err(stopped) => stopped.outcome(),
        }
    }

    /// Connects to the hosts, checks them, and starts all processes. Persistent graph servers are
    /// started here only if the job has nothing else.
    fn start(
        &self,
        plan: &plan::JobPlan,
        split: &SplitProcesses,
        sink: &mut OutputSink,
    ) -> Result<ConnectedHosts<'a>, Stopped> {
        let processes = match (split.others(), split.servers.as_deref()) {
            ([], _) => split.persistent(),
            (others, None) => others,
            (_, Some(name)) => return self.start_with_servers(plan, split, name, sink),
        };
        let hosts = self.connect(plan, processes)?;
        self.examine(&mut Conversation::with(&hosts), plan, processes, sink)?;
        self.start_on(&hosts, plan, processes, None);
        Ok(hosts)
    }

    /// Starts a job that uses persistent graph servers; these may have to be started, or waited
    /// for.
    fn start_with_servers(
        &self,
        plan: &plan::JobPlan,
        split: &SplitProcesses,
        name: &str,
        sink: &mut OutputSink,
    ) -> Result<ConnectedHosts<'a>, Stopped> {
        let processes = split.others();
        let mut waits = false;
        loop {
            let hosts = self.connect(plan, processes)?;
            let mut talk = Conversation::with(&hosts);
            let found = servers::find(&mut talk, self.hosts, processes, name)?;
            match found {
                FoundServers::Ready => {
                    self.examine(&mut talk, plan, processes, sink)?;
                    let group = servers::take_group(&mut talk, name)?;
                    self.start_on(&hosts, plan, processes, Some((name, group)));
                    sink.notice(&format!(
                        "dgl-spawn: group {} of graph servers {name}",
                        group.number
                    ));
                    return Ok(hosts);
                }
                FoundServers::Missing(why) if split.persistent().is_empty() => {
                    return Err(no_servers(name, why));
                }
                FoundServers::Missing(why) if servers::claim_start(&mut talk, name)? => {
                    sink.notice(&format!("dgl-spawn: starting graph servers {name}: {why}"));
                    self.start_servers(plan, split, name, sink)?;
                }
                FoundServers::Starting | FoundServers::Missing(_) => {
                    if !std::mem::replace(&mut waits, true) {
                        sink.notice(&format!(
                            "dgl-spawn: waiting for graph servers {name}, which are starting"
                        ));
                    }
                    if let Some(signal) = self.signals.within(CHECK_AGAIN) {
                        return Err(Stopped::Signal(signal));
                    }
                }
            }
        }
    }

    /// Starts the persistent graph servers of a job, as a separate job.
    fn start_servers(
        &self,
        plan: &plan::JobPlan,
        split: &SplitProcesses,
        name: &str,
        sink: &mut OutputSink,
    ) -> Result<(), Stopped> {
        let limits = plan.rules.limits.iter().copied();
        let plan = plan::JobPlan {
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
            restart: 0,
            ..plan.clone()
        };
        let job = DetachedJob {
            plan,
            hosts: self.hosts.to_vec(),
            graph: self.graph.clone(),
            processes: split.persistent().to_vec(),
            log_dir: None,
        };
        let followed = self.detach(&job, sink)?;
        let Some(summary) = followed.summary else {
            return match (followed.signal, followed.faults.0.is_empty()) {
                (Some(signal), _) => Err(Stopped::Signal(signal)),
                (None, true) => Ok(()),
                (None, false) => Err(Stopped::Hosts(followed.faults)),
            };
        };
        Err(Stopped::Servers(Box::new(summary)))
    }

    /// Starts a launcher on the first host, which runs the job, and follows it until the job is up
    /// or has ended.
    pub fn detach(&self, job: &DetachedJob, sink: &mut OutputSink) -> Result<Followed, Stopped> {
        let members = members(&job.processes);
        let sessions = self.open(&members)?;
        if let Some(why) = self.connect.why_nothing_stays() {
            return Err(Stopped::Preflight(nothing_stays(&why)));
        }
        let sessions = sessions.into_iter();
        let sessions = sessions.map(|(host, session)| (host, members[&host.id].clone(), session));
        let mut hosts = self.hold(&job.plan, sessions.collect())?;
        start::start(&mut hosts, job, self.listening)?;
        Ok(Follower::begin(Until::Up, &job.plan.name, &job.processes, &mut hosts, sink).run())
    }

    /// Claims what the job needs, and checks whether it can start.
    fn examine(
        &self,
        talk: &mut Conversation<'_, '_>,
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
        preflight::prepare(talk, &subject, &mut |line| sink.notice(line))
    }

    /// Starts all processes on hosts that have their records.
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
                servers::is_staying(process).then(|| Box::new(find()))
            });
            let start = Start {
                serves,
                uses: group.map(|(name, _)| on_host(name, session.host)),
                env: group.map_or_else(Vec::new, |(_, group)| spec::group_env(group)),
                usage_ms: match plan.sample {
                    Some(interval) => term::millis(interval),
                    // a detached job has no status line
                    None if plan.detach => 0,
                    None => term::millis(USAGE_PACE),
                },
                gpus: plan.sample.is_some(),
                stall_ms: plan
                    .rules
                    .stall
                    .map_or(0, |stall| term::millis(stall.limit)),
                fail_on_exception: plan.rules.fail_on_exception,
            };
            session.send(Request::Start(start));
        }
    }

    /// Connects to the hosts that have processes, and sends each the job.
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
        self.hold(plan, sessions)
    }

    /// Opens sessions with the agents of the hosts that have processes.
    fn open(&self, members: &Members) -> Result<Vec<(&'a Host, Session)>, Stopped> {
        let is_busy = |host: &&Host| members.contains_key(&host.id);
        let busy: Vec<Host> = self.hosts.iter().filter(is_busy).cloned().collect();
        let opened = self.connect.open_agents(&busy);
        if let Some(signal) = self.signals.first() {
            return Err(Stopped::Signal(signal));
        }
        let report = session::report(&busy, &opened);
        report.check().map_err(Stopped::Hosts)?;
        let busy = self.hosts.iter().filter(is_busy);
        Ok(busy.zip(opened.into_iter().flatten()).collect())
    }

    fn hold(
        &self,
        plan: &plan::JobPlan,
        sessions: Vec<(&'a Host, Vec<usize>, Session)>,
    ) -> Result<ConnectedHosts<'a>, Stopped> {
        ConnectedHosts::new(sessions, plan.host_timeout, self.signals.inbox())
            .map_err(|error| Stopped::Hosts(own_fault(&error)))
    }
}

/// The indices of the processes of each host, by the number of the host.
type Members = HashMap<u32, Vec<usize>>;

fn members(processes: &[Process]) -> Members {
    let mut members = Members::new();
    for (process_index, process) in processes.iter().enumerate() {
        members.entry(process.host).or_default().push(process_index);
    }
    members
}

fn begun_notice(plan: &plan::JobPlan, processes: &[Process], hosts: &ConnectedHosts<'_>) -> String {
    format!(
        "dgl-spawn: job {}: {} on {}",
        plan.name,
        term::count(processes.len() as u64, "process"),
        term::count(hosts.sessions.len() as u64, "host")
    )
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
        .fix("leave this tool running, as in a script of sbatch, or reach the hosts by ssh")
        .report()
}

/// The fault of this machine having too few processes or descriptors.
pub fn own_fault(error: &std::io::Error) -> Report {
    Fault::unreachable("this machine", error.to_string())
        .fix("allow this user more processes and files: ulimit -u, ulimit -n")
        .report()
}
