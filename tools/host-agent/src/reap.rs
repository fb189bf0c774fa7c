//! Shows, signals and ends the jobs on this host, and removes their remains. dgl-reap is used when
//! the launcher of a job is gone or does not answer, so this only needs /proc.

use crate::detached::folder::{self, JobFolder};
use crate::output::EventOutput;
use crate::stacks::server;
use host::job_processes::{JobProcess, job_processes, selected};
use host::processes::{self, Finder, MemberProcess, ProcessHandle};
use host::shm::{self, ShmFile};
use host::{netlink, procfs};
use job::Role;
use nix::sys::signal::Signal;
use record::exit::SignalNumber;
use record::{Found, Reaped};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;
use wire::reap::{EndJobs, Forget, Pick};
use wire::{Event, Failure, Request, codec};

/// Reports each process.
pub fn list(output: &EventOutput) {
    let ports = netlink::listening_ports();
    let now_ticks = procfs::uptime_ticks();
    for process in job_processes() {
        if let Some(found) = describe(process, &ports, now_ticks) {
            output.event(&Event::Found(found));
        }
    }
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
    let is_server = process.role == Some(Role::Server);
    Some(Found {
        host: 0,
        pid: pid.cast_unsigned(),
        role: process.role,
        rank: process.rank,
        age_s: procfs::ticks_to_ms(now_ticks.saturating_sub(start_ticks)) / 1000,
        cpu_s: procfs::ticks_to_ms(stat.cpu_ticks) as f64 / 1000.0,
        silent_s: server::silence(&process.member.token, process.member.process)
            .map(|time| time.as_secs_f64()),
        rss_bytes: status.rss_bytes,
        shm_bytes: status.shm_bytes,
        ports: ports.into_iter().collect(),
        groups: is_server.then(|| groups_of(&process.job)).flatten(),
        command: procfs::command_line(pid)?,
        job: process.job,
    })
}

/// How many groups of trainers have used the graph servers of a job; they are counted on the first
/// host.
fn groups_of(job: &str) -> Option<u32> {
    let addresses = fs::read_dir(folder::of_job(job)?).ok()?.flatten();
    let counts = addresses
        .filter_map(|address| Some(fs::read_dir(address.path().join("groups")).ok()?.count()));
    counts.max().map(number)
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
        // a launcher ends with its processes
        let is_ended = |job: &str| jobs.values().any(|(reaped, _)| reaped.job == job);
        for job in end_launchers(wanted.job.as_deref(), is_ended) {
            output.event(&Event::Reaped(Reaped {
                job,
                ok: true,
                ..Reaped::default()
            }));
        }
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

/// Ends the launchers of detached jobs on this host that are between two attempts. Returns the
/// names of the jobs.
fn end_launchers(job: Option<&str>, is_ended: impl Fn(&str) -> bool) -> Vec<String> {
    let folders = fs::read_dir(folder::of_all_jobs().unwrap_or_default());
    let mut ended = Vec::new();
    for entry in folders.into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_selected = job.is_none_or(|job| job == name) && !is_ended(&name);
        if !is_selected || !is_own_folder(&entry.path()) {
            continue;
        }
        let addresses = fs::read_dir(entry.path()).into_iter().flatten().flatten();
        let end = |address: fs::DirEntry| {
            let mut launcher = JobFolder::new(&address.path()).connect().ok()?;
            let signal = SignalNumber::TERM;
            let order = Request::SignalLauncher(wire::reap::Signal { signal });
            launcher.write_all(&codec::encode(&order, &[])).ok()
        };
        if addresses.filter_map(end).count() > 0 {
            ended.push(name);
        }
    }
    ended
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

/// Removes the directories of detached jobs that have ended on this host.
pub fn forget(wanted: &Forget, output: &EventOutput) -> Result<(), Failure> {
    let folder = folder::of_all_jobs().ok_or_else(|| {
        Failure::new("its login shell does not set HOME, where the directories of jobs are")
    })?;
    let entries = match fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(Failure::new(format!("{}: {error}", folder.display()))),
    };
    for job in entries.flatten().filter(|job| is_own_folder(&job.path())) {
        if let Some(removed) = forget_job(&job.path(), wanted.address) {
            let error = removed.err();
            output.event(&Event::Reaped(Reaped {
                job: job.file_name().to_string_lossy().into_owned(),
                ok: error.is_none(),
                folders: u32::from(error.is_none()),
                error: error.map(|error| format!("its directory could not be removed: {error}")),
                ..Reaped::default()
            }));
        }
    }
    Ok(())
}

fn is_own_folder(path: &Path) -> bool {
    fs::symlink_metadata(path)
        .is_ok_and(|meta| meta.is_dir() && meta.uid() == nix::unistd::geteuid().as_raw())
}

/// Removes this host's directory of a job; `None` if there is none, or if the job is alive.
fn forget_job(job: &Path, address: Ipv4Addr) -> Option<io::Result<()>> {
    let folder = JobFolder::new(&job.join(address.to_string()));
    if !is_own_folder(folder.path()) {
        return None;
    }
    let token = folder.token();
    if !token.is_empty() && !processes::find_by_token(&token).is_empty() {
        return None;
    }
    folder.remove()
}
