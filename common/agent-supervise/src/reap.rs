//! Shows, signals and ends the jobs on this host, and removes their remains. dgl-reap uses this
//! when the launcher of a job is gone or does not answer, so it only needs /proc.

use agent::output::EventOutput;
use agent::supervisors::{self, SupervisorLink};
use host::job_processes::{JobProcess, job_processes, selected};
use host::processes::{self, Finder, MemberProcess, ProcessHandle};
use host::shm::{self, ShmFile};
use host::{netlink, procfs};
use nix::sys::signal::Signal;
use record::{Found, Reaped, term};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;
use wire::reap::{EndJobs, Pick};
use wire::{Event, Failure, Request};

/// How long the supervisors may take to describe their processes. They need milliseconds; a stopped
/// one must not delay the list.
const DESCRIBE_LIMIT: Duration = Duration::from_secs(2);

/// Reports each process as its supervisor describes it, or examines it here if none answers.
pub fn list(output: &EventOutput) {
    let answers = supervisors::ask_all(&supervisors::all(), &Request::ListJobs, DESCRIBE_LIMIT);
    let mut known: HashMap<u32, Found> = HashMap::new();
    let events = answers.into_iter().flatten().map(|answer| answer.events);
    for event in events.flatten() {
        if let Event::Found(found) = event {
            known.insert(found.pid, found);
        }
    }
    for found in describe_all(job_processes()) {
        let found = known.remove(&found.pid).unwrap_or(found);
        output.event(&Event::Found(found));
    }
}

pub fn describe_all(processes: Vec<JobProcess>) -> impl Iterator<Item = Found> {
    let ports = netlink::listening_ports();
    let now_ticks = procfs::uptime_ticks();
    let described = processes.into_iter();
    described.filter_map(move |process| describe(process, &ports, now_ticks))
}

fn describe(process: JobProcess, listening: &HashMap<u64, u16>, now_ticks: u64) -> Option<Found> {
    let ProcessHandle { pid, start_ticks } = process.member.process;
    let stat = procfs::stat(pid)?;
    let status = procfs::status(pid)?;
    // a process that listens on IPv4 and IPv6 has two sockets
    let ports: BTreeSet<u16> = procfs::socket_inodes(pid)
        .iter()
        .filter_map(|inode| listening.get(inode).copied())
        .collect();
    Some(Found {
        host: 0,
        pid: pid.cast_unsigned(),
        role: process.role,
        rank: process.rank,
        age_s: procfs::ticks_to_ms(now_ticks.saturating_sub(start_ticks)) / 1000,
        cpu_s: procfs::ticks_to_ms(stat.cpu_ticks) as f64 / 1000.0,
        silent_s: None,
        rss_bytes: status.rss_bytes,
        shm_bytes: status.shm_bytes,
        ports: ports.into_iter().collect(),
        groups: None,
        command: procfs::command_line(pid)?,
        job: process.job,
    })
}

/// How long a supervisor may take for a request of dgl-reap. It needs milliseconds; a stopped one
/// must not keep dgl-reap from acting.
const SUPERVISOR_LIMIT: Duration = Duration::from_secs(3);

/// Selected processes that will be signalled or ended. A supervisor does that by request, and
/// reports it as dgl-reap's doing; processes whose supervisor is gone or does not answer are
/// signalled and ended here.
#[derive(Default)]
pub struct Picked {
    /// `None` before the search.
    processes: Option<Vec<JobProcess>>,
    /// The supervisors that hold the same processes, by process id.
    supervisors: BTreeMap<i32, SupervisorLink>,
}

impl Picked {
    /// Holds the selected processes, here and in their supervisors: the signal may first end a
    /// process of another host, and thereby the job on this one.
    pub fn pick(&mut self, wanted: &Pick) {
        self.processes = Some(selected(wanted));
        let mut sockets = supervisors::all();
        sockets.retain(|socket| wanted.job.as_ref().is_none_or(|job| *job == socket.job));
        let request = Request::PickProcesses(wanted.clone());
        let answers = supervisors::ask_all(&sockets, &request, SUPERVISOR_LIMIT);
        let links = sockets.iter().zip(answers);
        self.supervisors = links
            .filter_map(|(socket, answer)| Some((socket.pid, answer.ok()?.link)))
            .collect();
    }

    /// Drops the supervisors that do not carry the request out; returns the answers.
    fn ask_supervisors(&mut self, request: &Request) -> Vec<Event> {
        let mut events = Vec::new();
        self.supervisors.retain(|_, link| {
            let answer = link.ask(request, SUPERVISOR_LIMIT);
            let is_done = answer.is_ok();
            events.extend(answer.unwrap_or_default());
            is_done
        });
        events
    }

    /// The processes with a supervisor that carries out requests.
    fn supervised(&self, processes: &[ProcessHandle]) -> BTreeSet<ProcessHandle> {
        let stats = procfs::stats();
        let is_supervised = |process: &&ProcessHandle| {
            let mut line = processes::line_of(&stats, process.pid);
            line.any(|pid| self.supervisors.contains_key(&pid))
        };
        processes.iter().filter(is_supervised).copied().collect()
    }

    /// Signals each process once: a second ABRT would end Python while it prints its stacks.
    pub fn signal(
        &mut self,
        wanted: &wire::reap::Signal,
        output: &EventOutput,
    ) -> Result<(), Failure> {
        let number = signal(wanted)?;
        let mut picked = self.processes.take().unwrap_or_default();
        let Some(job) = picked.first().map(|process| process.job.clone()) else {
            return Ok(());
        };
        let handles: Vec<_> = picked
            .iter()
            .map(|process| process.member.process)
            .collect();
        let answers = self.ask_supervisors(&Request::SignalPicked(wanted.clone()));
        let supervised = self.supervised(&handles);
        picked.retain(|process| {
            let process = process.member.process;
            !supervised.contains(&process) && process.signal(number)
        });
        let by_supervisors = answers.iter().map(|event| match event {
            Event::Reaped(reaped) => reaped.processes,
            _ => 0,
        });
        let processes = number_of(picked.len()).saturating_add(by_supervisors.sum());
        if processes > 0 {
            output.event(&Event::Reaped(Reaped {
                job,
                signal: Some(wanted.signal.into()),
                ok: true,
                processes,
                ..Reaped::default()
            }));
        }
        Ok(())
    }

    /// Ends jobs, all at the same time, and reports each. Searches again only after the selected
    /// processes got TERM, because other hosts send TERM at the same moment.
    pub fn end(&mut self, wanted: &EndJobs, output: &EventOutput) {
        if self.processes.is_none() {
            self.pick(&Pick {
                job: wanted.job.clone(),
                ..Pick::default()
            });
        }
        let picked = self.processes.take().unwrap_or_default();
        // two jobs may have the same name, but each has its own token
        let mut jobs: BTreeMap<String, (Reaped, BTreeSet<ShmFile>)> = BTreeMap::new();
        for process in &picked {
            let (reaped, _) = jobs.entry(process.member.token.clone()).or_default();
            reaped.job.clone_from(&process.job);
            reaped.processes += 1;
        }
        let tokens: BTreeSet<String> = jobs.keys().cloned().collect();
        let mut finder = Finder::default();
        let mut found: Vec<MemberProcess> =
            picked.into_iter().map(|process| process.member).collect();
        finder.remember(&found);
        let handles: Vec<_> = found.iter().map(|member| member.process).collect();
        // the mappings can only be read while the processes are alive
        note_shm(&found, &mut jobs);
        self.ask_supervisors(&Request::EndJobs(wanted.clone()));
        let asked = self.supervised(&handles);
        let mut are_picked = true;
        let find = || {
            if !std::mem::take(&mut are_picked) {
                found = finder.find(|token| tokens.contains(token));
                note_shm(&found, &mut jobs);
            }
            found.iter().map(|member| member.process).collect()
        };
        let grace = Duration::from_millis(wanted.grace_ms);
        let left = processes::end_processes(grace, &asked, find);
        for (token, (mut reaped, files)) in jobs {
            let survivors = found
                .iter()
                .filter(|member| member.token == token && left.contains(&member.process))
                .map(|member| member.process.pid.to_string());
            let survivors = survivors.collect::<Vec<_>>().join(", ");
            reaped.ok = survivors.is_empty();
            reaped.error =
                (!reaped.ok).then(|| format!("could not be stopped: process {survivors}"));
            reaped.shm_files = shm::remove_unmapped(&files);
            output.event(&Event::Reaped(reaped));
        }
    }
}

fn note_shm(found: &[MemberProcess], jobs: &mut BTreeMap<String, (Reaped, BTreeSet<ShmFile>)>) {
    for member in found {
        if let Some((_, files)) = jobs.get_mut(&member.token) {
            files.extend(shm::mapped_shm([member.process.pid]));
        }
    }
}

pub fn signal(wanted: &wire::reap::Signal) -> Result<Signal, Failure> {
    let number = wanted.signal;
    Signal::try_from(number.0).map_err(|_| Failure::new(format!("{number} is not a signal")))
}

fn number_of(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

pub fn remove_stale_shm() -> Event {
    let files = shm::stale_files();
    let ok = files.is_empty() || shm::shows_its_users();
    Event::Reaped(Reaped {
        ok,
        error: (!ok).then(|| {
            let files = term::count(files.len() as u64, "file");
            format!(
                "{files} of DGL in /dev/shm may belong to a job that runs, and only outside this \
                 container can that be seen"
            )
        }),
        shm_files: if ok { shm::remove_unmapped(&files) } else { 0 },
        ..Reaped::default()
    })
}
