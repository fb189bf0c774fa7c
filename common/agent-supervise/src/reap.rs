//! Shows, signals and ends the jobs on this host, and removes their remains. dgl-reap is used when
//! the launcher of a job is gone or does not answer, so this only needs /proc.

use agent::output::EventOutput;
use agent::supervisors;
use host::job_processes::{JobProcess, job_processes, selected};
use host::processes::{self, Finder, MemberProcess, ProcessHandle};
use host::shm::{self, ShmFile};
use host::{netlink, procfs};
use nix::sys::signal::Signal;
use record::exit::SignalNumber;
use record::{Found, Reaped};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;
use wire::reap::{EndJobs, Pick};
use wire::{Event, Failure, Request};

/// How long the supervisors may take to describe their processes. They need milliseconds; one that
/// is stopped must not delay the list.
const DESCRIBE_LIMIT: Duration = Duration::from_secs(2);

/// Reports each process, as its supervisor describes it. Processes without a supervisor that
/// answers are examined here.
pub fn list(output: &EventOutput) {
    let answers = supervisors::ask_all(&supervisors::all(), &Request::ListJobs, DESCRIBE_LIMIT);
    let mut known: HashMap<u32, Found> = HashMap::new();
    for event in answers.into_iter().flatten().flatten() {
        if let Event::Found(found) = event {
            known.insert(found.pid, found);
        }
    }
    for found in describe_all(job_processes()) {
        let found = known.remove(&found.pid).unwrap_or(found);
        output.event(&Event::Found(found));
    }
}

/// The facts about these processes, as far as they are alive.
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

/// Selected processes that will be signalled or ended.
#[derive(Default)]
pub struct Picked {
    /// `None` before the search.
    processes: Option<Vec<JobProcess>>,
    supervisors: Vec<ProcessHandle>,
}

impl Picked {
    /// Holds the selected processes.
    pub fn pick(&mut self, wanted: &Pick) {
        let picked = selected(wanted);
        let tokens = picked
            .iter()
            .map(|process| process.member.token.clone())
            .collect();
        self.supervisors = processes::supervisors_of(&tokens);
        // the signal may first end a process of another host, and thereby the job on this one
        notify(&self.supervisors, processes::REAP_NOTICE);
        self.processes = Some(picked);
    }

    /// Sends the signal once to each process: a second ABRT would end Python while it prints its
    /// stacks.
    pub fn signal(&mut self, wanted: SignalNumber, output: &EventOutput) -> Result<(), Failure> {
        let signal = Signal::try_from(wanted.0)
            .map_err(|_| Failure::new(format!("{wanted} is not a signal")))?;
        notify(&self.supervisors, processes::REAP_NOTICE);
        let mut picked = self.processes.take().unwrap_or_default();
        picked.retain(|process| process.member.process.signal(signal));
        if let Some(first) = picked.first() {
            output.event(&Event::Reaped(Reaped {
                job: first.job.clone(),
                signal: Some(wanted.into()),
                ok: true,
                processes: self::number(picked.len()),
                ..Reaped::default()
            }));
        }
        Ok(())
    }

    /// Ends jobs, all at the same time, and reports each. There is no new search before the
    /// selected processes got TERM, because other hosts send TERM at the same moment.
    pub fn end(&mut self, wanted: &EndJobs, output: &EventOutput) {
        let picked = self.processes.take().unwrap_or_else(|| {
            selected(&Pick {
                job: wanted.job.clone(),
                ..Pick::default()
            })
        });
        // two jobs may have the same name, but each has its own token
        let mut jobs: BTreeMap<String, (Reaped, BTreeSet<ShmFile>)> = BTreeMap::new();
        for process in &picked {
            let (reaped, _) = jobs.entry(process.member.token.clone()).or_default();
            reaped.job.clone_from(&process.job);
            reaped.processes += 1;
        }
        let tokens: BTreeSet<String> = jobs.keys().cloned().collect();
        if self.supervisors.is_empty() {
            self.supervisors = processes::supervisors_of(&tokens);
        }
        let mut finder = Finder::default();
        let mut found: Vec<MemberProcess> =
            picked.into_iter().map(|process| process.member).collect();
        finder.remember(&found);
        let mut are_picked = true;
        let find = || {
            // in every round, because KILL may follow long after TERM
            notify(&self.supervisors, processes::END_NOTICE);
            notify(&self.supervisors, processes::REAP_NOTICE);
            if !std::mem::take(&mut are_picked) {
                found = finder.find(|token| tokens.contains(token));
            }
            for member in &found {
                if let Some((_, files)) = jobs.get_mut(&member.token) {
                    files.extend(shm::mapped_shm([member.process.pid]));
                }
            }
            found.iter().map(|member| member.process).collect()
        };
        let left = processes::end_processes(Duration::from_millis(wanted.grace_ms), find);
        for (token, (mut reaped, files)) in jobs {
            let survivors = found
                .iter()
                .filter(|member| member.token == token && left.contains(&member.process))
                .map(|member| member.process.pid.to_string());
            let survivors = survivors.collect::<Vec<_>>().join(", ");
            reaped.ok = survivors.is_empty();
            reaped.error = (!reaped.ok).then(|| format!("could not be ended: process {survivors}"));
            reaped.shm_files = shm::remove_unmapped(&files);
            output.event(&Event::Reaped(reaped));
        }
    }
}

/// Notifies supervisors of what dgl-reap does. The kernel keeps the signal until it is read, so it
/// precedes the deaths that follow.
fn notify(supervisors: &[ProcessHandle], notice: Signal) {
    supervisors.iter().for_each(|supervisor| {
        supervisor.signal(notice);
    });
}

fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Removes DGL's unused files in /dev/shm.
pub fn remove_stale_shm() -> Event {
    Event::Reaped(Reaped {
        ok: true,
        shm_files: shm::remove_unmapped(&shm::stale_files()),
        ..Reaped::default()
    })
}
