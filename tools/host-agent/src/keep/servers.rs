//! Graph servers that stay, as their users on this host see them. They are a job that was left. Its
//! folder has a file `facts` with the settings that trainers must have in common with them, and on
//! the first host `groups`, with a folder for each group of trainers.

use super::folder::Folder;
use super::journal::{self, JOURNAL, Tail};
use super::orders;
use crate::procfs;
use job::Loss;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use wire::codec::Decoder;
use wire::keep::Ending;
use wire::servers::{
    Data, DataKey, Difference, Find, Group, Liveness, Servers, StartClaimed, State,
};
use wire::{Event, Failure};

/// The file with the facts.
pub const FACTS: &str = "facts";
/// The first port for the rendezvous of a group; lower ones are those that host-probe plans with.
const FIRST_PORT: u32 = 29_500;
/// The distance of the ports of two groups, so that groups that begin at the same moment choose
/// different ones.
const PORT_STEP: u32 = 100;
/// The last port for the rendezvous of a group.
const LAST_PORT: u32 = 32_000;

/// The settings that trainers must share with servers, in the order in which differences are
/// reported.
const KEYS: [(DataKey, &str); 5] = [
    (DataKey::Clients, "clients"),
    (DataKey::Servers, "servers"),
    (DataKey::Samplers, "samplers"),
    (DataKey::IpConfig, "ip_config"),
    (DataKey::PartConfig, "part_config"),
];

/// The facts as lines `KEY VALUE`; a file is represented by its content.
pub fn facts(data: &Data) -> io::Result<String> {
    Ok(KEYS
        .iter()
        .map(|(key, word)| format!("{word} {}\n", value(data, *key).unwrap_or_default()))
        .collect())
}

/// The value of a setting; `None` for a file that cannot be read.
fn value(data: &Data, key: DataKey) -> Option<String> {
    let hash = |path: &OsStr| {
        let path = Path::new(&data.folder.0).join(path);
        fs::read(path)
            .ok()
            .map(|content| blake3::hash(&content).to_hex().to_string())
    };
    match key {
        DataKey::Clients => Some(data.clients.clone()),
        DataKey::Servers => Some(data.servers.clone()),
        DataKey::Samplers => Some(data.samplers.clone()),
        DataKey::IpConfig => hash(&data.ip_config.0),
        DataKey::PartConfig => hash(&data.part_config.0),
    }
}

/// The settings in which servers with these facts differ from what trainers need.
fn differences(facts: &str, data: &Data) -> Vec<Difference> {
    let theirs = |word: &str| {
        let value = facts
            .lines()
            .find_map(|line| line.strip_prefix(word)?.strip_prefix(' '))?;
        (!value.is_empty()).then(|| value.to_owned())
    };
    let compared = KEYS.iter().map(|(key, word)| Difference {
        key: *key,
        theirs: theirs(word),
        ours: value(data, *key),
    });
    compared
        .filter(|difference| difference.theirs != difference.ours)
        .collect()
}

fn folder_of(servers: &Servers) -> Result<Folder, Failure> {
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
    let facts = match fs::read_to_string(folder.file(FACTS)) {
        Ok(facts) => facts,
        Err(_) => {
            return Ok(Event::Servers(State {
                life: Liveness::None,
                differences: Vec::new(),
            }));
        }
    };
    let life = life(&folder);
    let differences = if matches!(life, Liveness::Dead(_)) {
        Vec::new()
    } else {
        differences(&facts, &wanted.data)
    };
    Ok(Event::Servers(State { life, differences }))
}

/// Whether the servers are alive, by their keeper and by what it wrote.
fn life(folder: &Folder) -> Liveness {
    let (mut ending, mut listening) = (None, 0);
    for past in journal::entries(folder) {
        match *past.what {
            Event::Ending(why) => ending = ending.or(Some(why)),
            Event::Listening(_) => listening += 1,
            _ => {}
        }
    }
    if ending.is_some() || orders::connect(folder).is_err() {
        return Liveness::Dead(ending);
    }
    let records = fs::read_to_string(folder.file("processes")).unwrap_or_default();
    let awaited = records.lines().filter(|line| has_port(line)).count();
    if listening >= awaited {
        Liveness::Alive
    } else {
        Liveness::Starting
    }
}

fn has_port(record: &str) -> bool {
    serde_json::from_str::<serde_json::Value>(record)
        .is_ok_and(|record| record.get("port").is_some())
}

/// Whether this launcher may start the servers. Others wait as long as this agent lives.
pub fn claim_start(servers: &Servers) -> Result<Event, Failure> {
    let folder = folder_of(servers)?;
    let fault = |error: io::Error| Failure::new(format!("{}: {error}", folder.path().display()));
    if let Some(parent) = folder.path().parent() {
        make_private(parent).map_err(fault)?;
    }
    let claim = folder.starting();
    drop_dead_claim(&claim);
    let own = mark(std::process::id())
        .ok_or_else(|| Failure::new("/proc tells nothing of this process"))?;
    let alive = matches!(life(&folder), Liveness::Alive | Liveness::Starting);
    let ours = !alive && symlink(own, &claim).is_ok();
    Ok(Event::StartClaimed(StartClaimed { ours }))
}

fn make_private(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
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
pub fn take_group(servers: &Servers) -> Result<Event, Failure> {
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

/// The graph servers that a job uses, checked from time to time.
pub struct Watched {
    keeper: Option<UnixStream>,
    /// What their keeper writes, of which each byte is read once.
    journal: Tail,
    entries: Decoder,
}

impl Watched {
    pub fn new(servers: &Servers) -> Option<Watched> {
        let folder = Folder::of(&servers.name, servers.address)?;
        let keeper = orders::connect(&folder)
            .ok()
            .filter(|keeper| keeper.set_nonblocking(true).is_ok());
        Some(Watched {
            keeper,
            journal: Tail::new(folder.file(JOURNAL)),
            entries: Decoder::default(),
        })
    }

    /// Why they have ended, or are about to; `None` while they live. A keeper that is gone without
    /// a word is one that was lost.
    pub fn ending(&mut self, host: u32) -> Option<Ending> {
        let is_gone = match &mut self.keeper {
            Some(keeper) => match io::Read::read(keeper, &mut [0; 64]) {
                Ok(count) => count == 0,
                Err(error) => error.kind() != io::ErrorKind::WouldBlock,
            },
            None => true,
        };
        let written = self.written_ending();
        written.or_else(|| is_gone.then(|| Ending::lost(host, Loss::KeeperGone)))
    }

    fn written_ending(&mut self) -> Option<Ending> {
        loop {
            let block = self.journal.read();
            self.entries.push(&block);
            while let Ok(Some(message)) = self.entries.next_message::<Event>() {
                if let Event::Past(past) = message.head
                    && let Event::Ending(ending) = *past.what
                {
                    return Some(ending);
                }
            }
            if block.is_empty() {
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_told_with_both_values() {
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
        let text = facts(&data).unwrap();
        assert!(
            text.starts_with("clients 4\nservers 1\nsamplers 0\nip_config ")
                && text.ends_with("\npart_config \n"),
            "{text}"
        );
        assert_eq!(differences(&text, &data), []);
        let other = Data {
            clients: "8".to_owned(),
            ..data.clone()
        };
        let theirs = Difference {
            key: DataKey::Clients,
            theirs: Some("4".to_owned()),
            ours: Some("8".to_owned()),
        };
        assert_eq!(differences(&text, &other), [theirs]);
        fs::write(scratch.join("ip.txt"), "10.0.0.2\n").unwrap();
        assert_eq!(differences(&text, &data).len(), 1);
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
