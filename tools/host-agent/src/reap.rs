//! Shows, signals and ends the jobs on this host, and removes what they leave. dgl-reap is run when
//! whoever started a job is gone or does not answer, so nothing here needs more than /proc.

use crate::output::Output;
use crate::processes::{self, Finder, Member, Watches};
use crate::procfs::{self, Environment};
use crate::shm::{self, ShmFile};
use crate::stacks::desk;
use job::Role;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::Signal;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use wire::reap::{Count, End, Forget, Forgotten, Found, Pick, Reaped, RemovedShm};
use wire::{Event, Failure};

/// The place of a process in its job, by its own environment or that of its ancestor.
pub struct Part {
    /// The process.
    pub member: Member,
    /// The job's name.
    pub job: String,
    /// The role, if the process has one.
    pub role: Option<Role>,
    /// The number of the process among those of its role, on all hosts.
    pub rank: Option<u32>,
}

/// All processes of jobs. Those that only belong to the watch of a job have no job's name and are
/// left out.
fn parts() -> Vec<Part> {
    let part = |member: Member| {
        let environment = procfs::environment(member.carrier)?;
        let job = environment.text(processes::JOB)?;
        let (role, rank) = role_of(&environment);
        Some(Part {
            member,
            job,
            role,
            rank,
        })
    };
    processes::find_all().into_iter().filter_map(part).collect()
}

/// The processes that are selected. Samplers of a rank are among them, because one of them may be
/// the one that hangs.
pub fn wanted_parts(wanted: &Pick) -> Vec<Part> {
    let is_meant = |part: &Part| {
        wanted.job.as_ref().is_none_or(|job| *job == part.job)
            && (wanted.role.is_none() || wanted.role == part.role)
            && (wanted.rank.is_none() || wanted.rank == part.rank)
    };
    parts().into_iter().filter(is_meant).collect()
}

/// The names of all jobs that have processes here.
pub fn names() -> BTreeSet<String> {
    parts().into_iter().map(|part| part.job).collect()
}

/// Reads the role and rank from the variables of DGL and torch.
fn role_of(environment: &Environment) -> (Option<Role>, Option<u32>) {
    let number = |name: &str| environment.text(name)?.parse().ok();
    match environment.text("DGL_ROLE").as_deref() {
        Some("server") => (Some(Role::Server), number("DGL_SERVER_ID")),
        Some("client") => (Some(Role::Trainer), number("RANK")),
        _ => match number("RANK") {
            Some(rank) => (Some(Role::Worker), Some(rank)),
            None => (None, None),
        },
    }
}

/// Reports each process.
pub fn list(output: &mut Output) {
    let ports: HashMap<u64, u16> = procfs::listening_sockets().into_iter().collect();
    let now_ticks = procfs::uptime_ticks();
    for part in parts() {
        if let Some(found) = describe(&part, &ports, now_ticks) {
            output.event(&Event::Found(found));
        }
    }
}

fn describe(part: &Part, listening: &HashMap<u64, u16>, now_ticks: u64) -> Option<Found> {
    let pid = part.member.process.pid;
    let stat = procfs::stat(pid)?;
    let status = procfs::status(pid)?;
    // a process that listens on IPv4 and IPv6 has two sockets
    let ports: BTreeSet<u16> = procfs::socket_inodes(pid)
        .iter()
        .filter_map(|inode| listening.get(inode).copied())
        .collect();
    Some(Found {
        job: part.job.clone(),
        pid: pid.cast_unsigned(),
        role: part.role,
        rank: part.rank,
        age_s: procfs::ticks_to_ms(now_ticks.saturating_sub(stat.start_ticks)) / 1000,
        cpu_ms: procfs::ticks_to_ms(stat.cpu_ticks),
        silent_ms: desk::silence(&part.member.token, part.member.process)
            .map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
        rss_bytes: status.rss_bytes,
        shm_bytes: status.shm_bytes,
        ports: ports.into_iter().collect(),
        groups: if part.role == Some(Role::Server) {
            groups_of(&part.job)
        } else {
            None
        },
        command: procfs::command_line(pid)?,
    })
}

/// How many groups of trainers have used the graph servers of a job; they are counted on the first
/// host.
fn groups_of(job: &str) -> Option<u32> {
    let addresses = fs::read_dir(kept_jobs()?.join(as_name(job)?))
        .ok()?
        .flatten();
    let counts = addresses
        .filter_map(|address| Some(fs::read_dir(address.path().join("groups")).ok()?.count()));
    counts.max().map(number)
}

/// Processes that wait for their signal, or for their end.
#[derive(Default)]
pub struct Picked {
    /// `None` until they were looked for.
    parts: Option<Vec<Part>>,
    watches: Watches,
}

impl Picked {
    /// Holds the selected processes.
    pub fn pick(&mut self, wanted: &Pick) -> Event {
        let meant = wanted_parts(wanted);
        let tokens = meant.iter().map(|part| part.member.token.clone()).collect();
        self.watches = Watches::find(&tokens);
        // what comes may end a process of another host first, and so the job on this one too
        self.watches.notify();
        Event::Picked(count(self.parts.insert(meant).len()))
    }

    /// Sends the signal once to each: a second ABRT would end Python while it prints its stacks.
    pub fn signal(&mut self, number: i32) -> Result<Event, Failure> {
        let signal = Signal::try_from(number)
            .map_err(|_| Failure::new(format!("{number} is not a signal")))?;
        self.watches.notify();
        let parts = self.parts.take().unwrap_or_default().into_iter();
        let reached = parts.filter(|part| part.member.process.signal(signal));
        Ok(Event::Signalled(count(reached.count())))
    }

    /// Ends jobs, all at once, and tells of each. Those that were picked are not looked for again
    /// before each has its TERM: other hosts send theirs in the same moment.
    pub fn end(&mut self, wanted: &End, output: &mut Output) {
        let pick = Pick {
            job: wanted.job.clone(),
            ..Pick::default()
        };
        let mut held = self.parts.take().or_else(|| Some(wanted_parts(&pick)));
        let mut jobs = Ending::of(held.as_deref().unwrap_or_default());
        let tokens: BTreeSet<String> = jobs.keys().cloned().collect();
        if self.watches.is_empty() {
            self.watches = Watches::find(&tokens);
        }
        let mut finder = Finder::default();
        let mut found: Vec<Member> = Vec::new();
        let look = || {
            // again and again: KILL may come long after TERM
            self.watches.notify_of_end();
            found = match held.take() {
                Some(parts) => parts.into_iter().map(|part| part.member).collect(),
                None => finder.find(|token| tokens.contains(token)),
            };
            finder.remember(found.iter());
            for member in &found {
                if let Some(job) = jobs.get_mut(&member.token) {
                    job.shm.extend(shm::mapped_shm([member.process.pid]));
                }
            }
            found.iter().map(|member| member.process).collect()
        };
        let left = processes::end_processes(Duration::from_millis(wanted.grace_ms), look);
        for member in found.iter().filter(|member| left.contains(&member.process)) {
            if let Some(job) = jobs.get_mut(&member.token) {
                job.left.push(member.process.pid.cast_unsigned());
            }
        }
        for job in jobs.into_values() {
            output.event(&Event::Reaped(job.reaped()));
        }
    }
}

fn count(processes: usize) -> Count {
    Count {
        processes: number(processes),
    }
}

fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// A job that is being ended. A name may be in use twice, and each token is a job of its own.
struct Ending {
    job: String,
    processes: u32,
    shm: BTreeSet<ShmFile>,
    left: Vec<u32>,
}

impl Ending {
    /// The jobs of these processes, by their tokens.
    fn of(parts: &[Part]) -> BTreeMap<String, Ending> {
        let mut jobs: BTreeMap<String, Ending> = BTreeMap::new();
        for part in parts {
            let begun = || Ending {
                job: part.job.clone(),
                processes: 0,
                shm: BTreeSet::new(),
                left: Vec::new(),
            };
            let job = jobs.entry(part.member.token.clone());
            job.or_insert_with(begun).processes += 1;
        }
        jobs
    }

    /// What is told of it; what it left in /dev/shm is removed.
    fn reaped(self) -> Reaped {
        Reaped {
            job: self.job,
            processes: self.processes,
            shm_files: shm::remove_unmapped(&self.shm),
            left: self.left,
        }
    }
}

/// Removes DGL's files in /dev/shm that nobody uses.
pub fn remove_stale_shm() -> Event {
    Event::RemovedShm(RemovedShm {
        files: shm::remove_unmapped(&shm::stale_files()),
    })
}

/// The folder that has those of left jobs: JOB/ADDRESS, and beside each a lock that is held as long
/// as the job is kept.
fn kept_jobs() -> Option<PathBuf> {
    std::env::var_os("HOME")
        .filter(|home| !home.is_empty())
        .map(|home| Path::new(&home).join(".local/state/dgl-tools"))
}

/// A job's name as the name of a folder. It comes from an environment, and could lead elsewhere.
fn as_name(job: &str) -> Option<&str> {
    (!job.is_empty() && !job.contains('/') && job != "." && job != "..").then_some(job)
}

/// Removes the folders of left jobs that have ended on this host.
pub fn forget(wanted: &Forget, output: &mut Output) -> Result<(), Failure> {
    let folder = kept_jobs().ok_or_else(|| {
        Failure::new("its login shell does not set HOME, where the folders of jobs are")
    })?;
    let entries = match fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(Failure::new(format!("{}: {error}", folder.display()))),
    };
    for job in entries.flatten().filter(|job| is_own_folder(&job.path())) {
        if let Some(removed) = forget_job(&job.path(), wanted.address) {
            let error = removed.err().map(|error| error.to_string());
            output.event(&Event::Forgotten(Forgotten {
                job: job.file_name().to_string_lossy().into_owned(),
                error,
            }));
        }
    }
    Ok(())
}

fn is_own_folder(path: &Path) -> bool {
    fs::symlink_metadata(path)
        .is_ok_and(|meta| meta.is_dir() && meta.uid() == nix::unistd::geteuid().as_raw())
}

/// Removes the folder of a job; `None` if there is none of this host's, or if the job is alive.
fn forget_job(job: &Path, address: Ipv4Addr) -> Option<std::io::Result<()>> {
    let kept = job.join(address.to_string());
    if !is_own_folder(&kept) || has_processes(&kept) {
        return None;
    }
    let lock_path = job.join(format!("{address}.lock"));
    let file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(nix::libc::O_NOFOLLOW)
        .open(&lock_path);
    let lock = match file.map(|file| Flock::lock(file, FlockArg::LockExclusiveNonblock)) {
        Ok(Err((_, Errno::EWOULDBLOCK))) => return None,
        Ok(Ok(lock)) => Some(lock),
        // no lock, or a file system without them; and no process of the job is there
        Ok(Err(_)) | Err(_) => None,
    };
    let removed = fs::remove_dir_all(&kept);
    if removed.is_ok() {
        let _ = fs::remove_file(&lock_path);
        // the parent stays while it has folders of other hosts
        let _ = fs::remove_dir(job);
    }
    drop(lock);
    Some(removed)
}

fn has_processes(kept: &Path) -> bool {
    let token = fs::read_to_string(kept.join("token")).unwrap_or_default();
    !token.trim().is_empty() && !processes::find_by_token(token.trim()).is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_process_is_in_its_job() {
        let table: [(&str, Option<Role>, Option<u32>); 7] = [
            (
                "DGL_ROLE=server\0DGL_SERVER_ID=2\0RANK=9\0",
                Some(Role::Server),
                Some(2),
            ),
            (
                "DGL_ROLE=client\0RANK=9\0DGL_SERVER_ID=2\0",
                Some(Role::Trainer),
                Some(9),
            ),
            ("DGL_ROLE=client\0", Some(Role::Trainer), None),
            ("RANK=3\0", Some(Role::Worker), Some(3)),
            ("RANK=x\0", None, None),
            ("DGL_ROLE=sampler\0RANK=3\0", Some(Role::Worker), Some(3)),
            ("", None, None),
        ];
        for (text, role, rank) in table {
            assert_eq!(
                role_of(&Environment::new(text.as_bytes().to_vec())),
                (role, rank),
                "{text:?}"
            );
        }
    }

    #[test]
    fn a_name_that_leads_elsewhere_is_no_folder() {
        for (name, is_name) in [
            ("try7", true),
            ("..", false),
            (".", false),
            ("a/b", false),
            ("", false),
            ("..a", true),
        ] {
            assert_eq!(as_name(name).is_some(), is_name, "{name}");
        }
    }
}
