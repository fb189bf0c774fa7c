//! Persistent graph servers, as their users on this host see them. They are a detached job. Its
//! folder has a file `facts` with the settings that trainers must have in common with them, and on
//! the first host `groups`, with a folder for each group of trainers.

#![expect(
    clippy::disallowed_methods,
    reason = "the user's own state, in folders of mode 0700"
)]

use super::folder::{Folder, make_private};
use super::journal::KeptJob;
use crate::procfs;
use job::Loss;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Builder;
use std::time::Duration;
use wire::ending::Ending;
use wire::job::JobOnHost;
use wire::keep::Past;
use wire::servers::{Data, Find, Group, Liveness, StartClaimed, State};
use wire::{Event, Failure, Text};

/// The file with the facts.
pub const FACTS: &str = "facts";
/// The first port for the rendezvous of a group; lower ones are those that host-probe plans with.
const FIRST_PORT: u32 = 29_500;
/// The distance of the ports of two groups, so that groups that begin at the same moment choose
/// different ones.
const PORT_STEP: u32 = 100;
/// The last port for the rendezvous of a group.
const LAST_PORT: u32 = 32_000;
/// A disk answers within this time, or is asked again later.
const DISK_LIMIT: Duration = Duration::from_millis(200);

/// The settings with each file represented by the hash of its content, which is empty if it cannot
/// be read. They are those of servers and of trainers that suit each other.
pub fn facts(data: &Data) -> Data {
    let hash = |path: &Text| {
        let content = fs::read(Path::new(&data.folder.0).join(&path.0));
        let hash = content.map(|content| blake3::hash(&content).to_hex().to_string());
        Text::from(&*hash.unwrap_or_default())
    };
    Data {
        folder: Text::default(),
        ip_config: hash(&data.ip_config),
        part_config: hash(&data.part_config),
        ..data.clone()
    }
}

fn folder_of(servers: &JobOnHost) -> Result<Folder, Failure> {
    Folder::of(&servers.name, servers.address).ok_or_else(|| {
        Failure::new(
            "graph servers of that name have no folder there: HOME is not \
            set, or it is not a name of a job",
        )
    })
}

/// Whether there are servers for trainers with these settings.
pub fn find(wanted: &Find) -> Result<Event, Failure> {
    let folder = folder_of(&wanted.servers)?;
    let facts = fs::read(folder.file(FACTS));
    let life = match facts {
        Ok(_) => life(&folder),
        Err(_) => Liveness::None,
    };
    let (theirs, ours) = match life {
        Liveness::Starting | Liveness::Alive => (
            serde_json::from_slice(&facts.unwrap_or_default()).unwrap_or_default(),
            self::facts(&wanted.data),
        ),
        Liveness::None | Liveness::Dead(_) => Default::default(),
    };
    Ok(Event::Servers(Box::new(State { life, theirs, ours })))
}

/// Whether the servers are alive, by their keeper and by what it wrote.
fn life(folder: &Folder) -> Liveness {
    let mut job = KeptJob::of(folder);
    let (mut ending, mut listening) = (None, 0);
    for past in entries(&mut job) {
        match *past.what {
            Event::Ending(why) => ending = ending.or(Some(why)),
            Event::Listening(_) => listening += 1,
            _ => {}
        }
    }
    if ending.is_some() || job.keeper().is_none() {
        return Liveness::Dead(ending);
    }
    let records = folder.records().unwrap_or_default();
    if listening >= records.iter().filter(|line| has_port(line)).count() {
        Liveness::Alive
    } else {
        Liveness::Starting
    }
}

/// The entries that were written since the last look, as far as they can be read.
fn entries(job: &mut KeptJob) -> impl Iterator<Item = Past> {
    std::iter::from_fn(|| job.read().ok().flatten()).flatten()
}

fn has_port(record: &str) -> bool {
    serde_json::from_str::<serde_json::Value>(record)
        .is_ok_and(|record| record.get("port").is_some())
}

/// Whether this launcher may start the servers. Others wait as long as this agent lives.
pub fn claim_start(servers: &JobOnHost) -> Result<Event, Failure> {
    let folder = folder_of(servers)?;
    let fault = |error: io::Error| Failure::new(format!("{}: {error}", folder.path().display()));
    if let Some(parent) = folder.path().parent() {
        make_private(parent).map_err(fault)?;
    }
    let claim = folder.starting();
    drop_dead_claim(&claim);
    let own =
        mark(std::process::id()).ok_or_else(|| Failure::new("/proc does not show this process"))?;
    let alive = matches!(life(&folder), Liveness::Alive | Liveness::Starting);
    let ours = !alive && symlink(own, &claim).is_ok();
    Ok(Event::StartClaimed(StartClaimed { ours }))
}

/// The identity of a process: its number and its start time.
fn mark(pid: u32) -> Option<String> {
    Some(format!(
        "{pid}-{}",
        procfs::stat(pid.cast_signed())?.start_ticks
    ))
}

/// Removes the claim of an agent that is gone. If another agent does the same at this moment and
/// has claimed anew, its claim is put back.
fn drop_dead_claim(claim: &Path) {
    let Ok(theirs) = fs::read_link(claim) else {
        return;
    };
    if is_alive(&theirs) {
        return;
    }
    let aside = PathBuf::from(format!("{}.{}", claim.display(), std::process::id()));
    if fs::rename(claim, &aside).is_ok() {
        let moved = fs::read_link(&aside).unwrap_or_default();
        let _ = fs::remove_file(&aside);
        if moved != theirs {
            let _ = symlink(moved, claim);
        }
    }
}

fn is_alive(claim: &Path) -> bool {
    let text = claim.to_string_lossy();
    text.split_once('-')
        .and_then(|(pid, _)| pid.parse().ok())
        .and_then(mark)
        .is_some_and(|mark| mark == text)
}

/// Assigns the number of a new group of trainers, which belongs to whoever makes the folder of that
/// name, and a port for torch's rendezvous.
pub fn take_group(servers: &JobOnHost) -> Result<Event, Failure> {
    let folder = folder_of(servers)?;
    let groups = folder.file("groups");
    let fault = |error: io::Error| {
        Failure::new(format!(
            "no number can be had for this group of trainers: {} cannot be written: {error}",
            folder.path().display()
        ))
    };
    make_private(&groups).map_err(fault)?;
    let mut number =
        u32::try_from(fs::read_dir(&groups).map_err(fault)?.count()).unwrap_or(u32::MAX);
    while let Err(error) = fs::create_dir(groups.join(number.to_string())) {
        if error.kind() != io::ErrorKind::AlreadyExists {
            return Err(fault(error));
        }
        number = number.saturating_add(1);
    }
    let port = free_port(number, &procfs::listening_ports());
    Ok(Event::Group(Group { number, port }))
}

/// A port on which nobody listens; if there is none, the last that was tried.
fn free_port(group: u32, taken: &[u16]) -> u16 {
    let first = FIRST_PORT + group % PORT_STEP;
    let mut ports = (first..=LAST_PORT)
        .step_by(PORT_STEP as usize)
        .filter_map(|port| u16::try_from(port).ok());
    let last = ports.clone().last().unwrap_or_default();
    ports.find(|port| !taken.contains(port)).unwrap_or(last)
}

/// The graph servers that a job uses, checked from time to time. A thread reads what their keeper
/// writes, because the disk may hang and the job must not.
pub struct UsedServers {
    questions: Sender<()>,
    answers: Receiver<Option<Ending>>,
    is_asked: bool,
}

impl UsedServers {
    /// The servers as a job on this host uses them.
    pub fn new(servers: &JobOnHost, host: u32) -> Option<UsedServers> {
        UsedServers::of_folder(Folder::of(&servers.name, servers.address)?, host)
    }

    fn of_folder(folder: Folder, host: u32) -> Option<UsedServers> {
        let (questions, asked) = channel();
        let (answer, answers) = channel();
        let read = move || {
            let mut servers = KeptJob::of(&folder);
            for () in asked {
                if answer.send(ending(&mut servers, host)).is_err() {
                    return;
                }
            }
        };
        Builder::new().spawn(read).ok()?;
        Some(UsedServers {
            questions,
            answers,
            is_asked: false,
        })
    }

    /// Why they have ended, or are about to; `None` while they live, or the disk does not answer.
    pub fn ending(&mut self) -> Option<Ending> {
        self.is_asked = self.is_asked || self.questions.send(()).is_ok();
        let answer = self.answers.recv_timeout(DISK_LIMIT).ok()?;
        self.is_asked = false;
        answer
    }
}

/// Why servers have ended, or are about to. A keeper that is gone without a word is one that was
/// lost.
fn ending(servers: &mut KeptJob, host: u32) -> Option<Ending> {
    // looked at first, so that all that it wrote is read then
    let is_gone = servers.keeper().is_none();
    let written = entries(servers).find_map(|past| match *past.what {
        Event::Ending(ending) => Some(ending),
        _ => None,
    });
    written.or_else(|| is_gone.then(|| Ending::lost(host, Loss::KeeperGone)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_compared_by_their_contents() {
        let scratch = std::env::temp_dir().join(format!("dgl-tools-facts-{}", std::process::id()));
        fs::create_dir_all(&scratch).unwrap();
        fs::write(scratch.join("ip.txt"), "10.0.0.1\n").unwrap();
        let data = Data {
            folder: scratch.as_path().into(),
            ip_config: "ip.txt".into(),
            part_config: "missing.json".into(),
            clients: "4".to_owned(),
            servers: "1".to_owned(),
            samplers: "0".to_owned(),
        };
        let before = facts(&data);
        assert_eq!((&*before.clients, &before.part_config), ("4", &"".into()));
        assert_eq!(facts(&data), before);
        fs::write(scratch.join("ip.txt"), "10.0.0.2\n").unwrap();
        assert_ne!(facts(&data), before);
        fs::remove_dir_all(scratch).unwrap();
    }

    #[test]
    fn a_disk_that_hangs_holds_nobody_up() {
        let scratch = std::env::temp_dir().join(format!("dgl-tools-used-{}", std::process::id()));
        fs::create_dir_all(&scratch).unwrap();
        // who opens it to read waits for somebody who writes
        let journal = scratch.join("journal");
        nix::unistd::mkfifo(&journal, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let mut servers = UsedServers::of_folder(Folder::at(&scratch), 3).unwrap();
        assert_eq!([servers.ending(), servers.ending()], [None, None]);
        drop(fs::OpenOptions::new().write(true).open(journal).unwrap());
        assert_eq!(servers.ending(), Some(Ending::lost(3, Loss::KeeperGone)));
        fs::remove_dir_all(scratch).unwrap();
    }

    #[test]
    fn groups_that_begin_together_choose_different_ports() {
        let table = [
            (0, &[][..], 29_500),
            (1, &[][..], 29_501),
            (100, &[], 29_500),
            (0, &[29_500, 29_600], 29_700),
        ];
        for (group, taken, expected) in table {
            assert_eq!(free_port(group, taken), expected, "{group} {taken:?}");
        }
        let all: Vec<u16> = (29_500..=32_000).collect();
        assert_eq!(free_port(7, &all), 31_907);
    }
}
