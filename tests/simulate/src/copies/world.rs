//! The directories and files of a schedule, what they were at each moment, and the faults.

use super::turns::Turns;
use crate::random::Random;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use parking_lot::Mutex;
use part_pull::local;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::{self, File, Metadata, Permissions};
use std::io::{self, Read as _};
use std::os::unix::fs::{DirEntryExt, FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use transfer::simulated::{self, Call};
use transfer::{GRAIN, SMALL};
use wire::files::BLOCK;

/// A directory tree with a file system of its own.
pub struct Disk {
    pub path: PathBuf,
    pub has_locks: bool,
    pub ignores_modes: bool,
    is_full: AtomicBool,
    /// How often its machines have lost their power.
    power_cuts: AtomicU64,
    /// The inodes of files whose content is on the disk itself.
    synced: Mutex<BTreeSet<u64>>,
    /// The names that are on the disk itself, each with the inodes of its directory and its file.
    synced_names: Mutex<BTreeMap<u64, BTreeMap<OsString, u64>>>,
}

impl Disk {
    /// The directory of the job on the hosts.
    pub fn workspace(&self) -> PathBuf {
        self.path.join("w")
    }

    fn sync(&self, inode: u64) {
        for folder in folders(&self.path) {
            if fs::metadata(&folder).unwrap().ino() == inode {
                let entries = fs::read_dir(&folder).unwrap().flatten();
                let names = entries
                    .map(|entry| (entry.file_name(), entry.ino()))
                    .collect();
                self.synced_names.lock().insert(inode, names);
                return;
            }
        }
        self.synced.lock().insert(inode);
    }

    /// Whether a file survives a loss of power: its content, its name, and the names of its
    /// directories below the workspace.
    pub fn is_synced(&self, path: &Path) -> bool {
        let names = self.synced_names.lock();
        let inode = |path: &Path| fs::metadata(path).unwrap().ino();
        let has_name = |path: &Path| {
            let there = names.get(&inode(path.parent().unwrap()));
            let synced = there.and_then(|there| there.get(path.file_name().unwrap()));
            synced == Some(&inode(path))
        };
        let mut paths = path
            .ancestors()
            .take_while(|path| **path != self.workspace());
        self.synced.lock().contains(&inode(path)) && paths.all(has_name)
    }
}

/// The mode of all files on a file system that has none.
pub const SHOWN: u32 = 0o755;

/// What a file was at one moment.
#[derive(Clone, PartialEq, Eq)]
pub struct Moment {
    content: Arc<Vec<u8>>,
    mode: u32,
}

impl fmt::Debug for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sum = twox_hash::XxHash3_128::oneshot(&self.content) as u32;
        write!(
            f,
            "{} bytes, {sum:08x}, mode {:o}",
            self.content.len(),
            self.mode
        )
    }
}

impl Moment {
    pub fn of(path: &Path) -> Option<Moment> {
        let mut file = File::open(path).ok()?;
        let meta = file.metadata().ok().filter(fs::Metadata::is_file)?;
        let mut content = Vec::with_capacity(meta.len() as usize + 1);
        file.read_to_end(&mut content).ok()?;
        Some(Moment::new(content, meta.mode()))
    }

    pub fn new(content: Vec<u8>, mode: u32) -> Moment {
        Moment {
            content: Arc::new(content),
            mode: mode & 0o7777,
        }
    }
}

pub struct World {
    pub turns: Turns,
    random: Mutex<Random>,
    /// Of the tool's machine, and then of hosts; some hosts share one.
    pub disks: Vec<Disk>,
    /// The disk of each host.
    pub hosts: Vec<usize>,
    moments: Mutex<BTreeMap<PathBuf, Vec<Moment>>>,
    /// The step in which somebody has changed a file last.
    changed: Mutex<BTreeMap<PathBuf, u64>>,
    /// The pushes that hold the lock of a disk, each with its run, and the agents that hold it.
    holders: Mutex<Vec<Holder>>,
    /// What is being copied, and what it replaces.
    touched: Mutex<Vec<PathBuf>>,
    /// In how many of 100 system calls of a copy somebody changes one of these.
    interference: u64,
    /// How many of 100 blocks a sender leaves out.
    omission: u64,
    clock: AtomicU64,
    pub has_faults: AtomicBool,
    violations: Mutex<Vec<String>>,
    trace: Option<Mutex<String>>,
}

/// An agent of a push that holds the lock of its disk.
struct Holder {
    disk: usize,
    run: String,
    is_killed: Arc<AtomicBool>,
    power_cuts: u64,
}

pub const SOURCES: [&str; 5] = ["a", "d/b", "d/c", "big", "script.sh"];
/// A directory of a user's, and a file in it, that could be part-push's own by their names.
pub const THEIRS_FOLDER: &str = ".part-push.theirs.0";
pub const THEIRS: &str = ".part-push.theirs.0/one";
pub const LOGS: [&str; 3] = ["logs/0.log", "logs/1.log", "logs/deep/model.pt"];

impl World {
    pub fn new(root: &Path, seed: u64, hosts: usize, actors: usize, has_trace: bool) -> World {
        let mut random = Random::new(seed);
        let disk = |random: &mut Random, number: usize| Disk {
            path: root.join(format!("disk{number}")),
            has_locks: !random.percent(8),
            ignores_modes: number > 0 && random.percent(8),
            is_full: AtomicBool::new(false),
            power_cuts: AtomicU64::new(0),
            synced: Mutex::default(),
            synced_names: Mutex::default(),
        };
        // none, some or all hosts share a disk
        let most = random.pick(&[1, 2, hosts as u64, hosts as u64]);
        let turns = Turns::new(random.fork(), actors);
        let interference = random.pick(&[0, 1, 3]);
        let omission = random.pick(&[0, 0, 10]);
        let world = World {
            turns,
            disks: (0..=most as usize)
                .map(|number| disk(&mut random, number))
                .collect(),
            hosts: (0..hosts).map(|host| 1 + host % most as usize).collect(),
            random: Mutex::new(random),
            moments: Mutex::default(),
            changed: Mutex::default(),
            holders: Mutex::default(),
            touched: Mutex::default(),
            interference,
            omission,
            clock: AtomicU64::new(1_700_000_000),
            has_faults: AtomicBool::new(true),
            violations: Mutex::default(),
            trace: has_trace.then(Mutex::default),
        };
        for name in SOURCES {
            world.change(&world.source(name));
        }
        for disk in &world.disks[1..] {
            fs::create_dir_all(&disk.path).unwrap();
            for name in LOGS.iter().chain(&["theirs.txt", "a", "big"]) {
                if world.percent(60) {
                    world.change(&disk.workspace().join(name));
                }
            }
            if world.percent(30) {
                world.change(&disk.workspace().join(THEIRS));
                let folder = disk.workspace().join(THEIRS_FOLDER);
                fs::set_permissions(folder, Permissions::from_mode(0o700)).unwrap();
            }
        }
        world
    }

    pub fn source(&self, name: &str) -> PathBuf {
        self.disks[0].path.join("src").join(name)
    }

    /// Where part-pull puts the files of a host.
    pub fn pulled(&self, host: usize) -> PathBuf {
        self.disks[0].path.join(format!("to/h{host}"))
    }

    pub fn percent(&self, percent: u64) -> bool {
        self.random.lock().percent(percent)
    }

    /// As `percent`, but `false` once there are no more faults.
    pub fn fails(&self, percent: u64) -> bool {
        self.has_faults.load(Ordering::Relaxed) && self.percent(percent)
    }

    pub fn below(&self, end: u64) -> u64 {
        self.random.lock().below(end)
    }

    /// These files are about to be copied and replaced: others change them more often.
    pub fn touch(&self, files: Vec<PathBuf>) {
        *self.touched.lock() = files;
    }

    /// Whether a sender that is wrong leaves out a block.
    pub fn leaves_out(&self) -> bool {
        let leaves_out = self.fails(self.omission);
        if leaves_out {
            self.note(|| "a block is left out".to_owned());
        }
        leaves_out
    }

    /// Before a system call of a copy; above all a file that grows is changed between two reads.
    fn interfere(&self, call: Call) {
        let is_read = call == Call::Read;
        if self.fails(self.interference * if is_read { 10 } else { 1 }) {
            let touched = self.touched.lock().clone();
            if is_read && self.percent(50) {
                if let Some(source) = touched.first().filter(|source| source.exists()) {
                    self.change_by(source, 9);
                }
                return;
            }
            let index = self.below(touched.len() as u64) as usize;
            if let Some(file) = touched.get(index).filter(|file| file.exists()) {
                // part-pull leaves the mode of what it has brought earlier to the user
                let is_brought = file.starts_with(self.disks[0].path.join("to"));
                self.change_by(file, 4 + self.below(8 - u64::from(is_brought)));
            }
        }
    }

    /// Somebody may write in each block of a file whose parts have been compared.
    pub fn overwrite(&self, file: &Path) {
        if self.fails(self.interference * 10) && file.exists() {
            self.change_by(file, 9);
        }
    }

    pub fn note(&self, text: impl FnOnce() -> String) {
        if let Some(trace) = &self.trace {
            let mut trace = trace.lock();
            trace.push_str(&text());
            trace.push('\n');
        }
    }

    pub fn violation(&self, what: String) {
        self.note(|| format!("VIOLATION {what}"));
        self.violations.lock().push(what);
    }

    pub fn end(self) -> (Vec<String>, Option<String>, u64) {
        let trace = self.trace.map(Mutex::into_inner);
        (self.violations.into_inner(), trace, self.turns.steps())
    }

    /// Somebody writes a file, removes it, or gives it another mode.
    pub fn change(&self, path: &Path) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let before = fs::metadata(path).ok();
        self.change_by(path, self.below(if before.is_some() { 12 } else { 4 }));
    }

    /// From 4 on, in place.
    fn change_by(&self, path: &Path, how: u64) {
        match how {
            // some are large, and have holes
            0..4 => {
                let new = path.with_extension("new");
                self.write(&File::create(&new).unwrap(), path);
                self.finish(&new);
                fs::rename(new, path).unwrap();
            }
            4 => self.write(&File::create(path).unwrap(), path),
            5 | 6 => {
                let file = File::options().write(true).open(path).unwrap();
                let length = file.metadata().unwrap().len();
                file.write_all_at(b"more", length).unwrap();
            }
            7 => {
                let file = File::options().write(true).open(path).unwrap();
                let length = file.metadata().unwrap().len();
                file.set_len(self.below(length + 1)).unwrap();
            }
            8 => fs::remove_file(path).unwrap(),
            // in each of its blocks, and it grows
            9 | 10 => {
                let file = File::options().write(true).open(path).unwrap();
                let length = file.metadata().unwrap().len();
                for begin in (0..=length).step_by(BLOCK as usize) {
                    let offset = begin + self.below(BLOCK.min(length - begin) + 1);
                    file.write_all_at(b"other", offset).unwrap();
                }
                file.write_all_at(b"more", length).unwrap();
            }
            _ => {
                let mode = fs::metadata(path).unwrap().mode() ^ 0o055;
                fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
            }
        }
        match how {
            4 | 7 => self.finish(path),
            // a log that grows keeps its mode
            5 | 6 | 9 | 10 => self.set_time(path),
            _ => {}
        }
        if self.disk_of(path).ignores_modes && how != 8 {
            fs::set_permissions(path, Permissions::from_mode(SHOWN)).unwrap();
        }
        self.remember(path);
        self.note(|| format!("{} changes: {how}, {:?}", path.display(), Moment::of(path)));
    }

    fn write(&self, file: &File, path: &Path) {
        let text = format!("{}\n", self.below(1000)).repeat(self.below(50) as usize);
        let is_big = [SOURCES[3], LOGS[2]]
            .iter()
            .any(|name| path.ends_with(name));
        if self.percent(if is_big { 60 } else { 10 }) {
            let length = SMALL * (1 + self.below(2)) + self.below(4 * GRAIN);
            file.set_len(length).unwrap();
            for _ in 0..3 {
                let offset = self.below(length - text.len() as u64);
                file.write_all_at(text.as_bytes(), offset).unwrap();
            }
        } else {
            file.write_all_at(text.as_bytes(), 0).unwrap();
        }
    }

    fn finish(&self, path: &Path) {
        self.set_time(path);
        let mode = [0o640, 0o755, 0o666][self.below(3) as usize];
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    /// No two versions of a file have the same time.
    fn set_time(&self, path: &Path) {
        let time = Duration::new(self.clock.fetch_add(1, Ordering::Relaxed), 123_456_789);
        let file = File::options().write(true).open(path).unwrap();
        file.set_modified(UNIX_EPOCH + time).unwrap();
    }

    /// What others write is on the disk at once.
    fn remember(&self, path: &Path) {
        let disk = self.disk_of(path);
        for part in path.ancestors().take_while(|part| *part != disk.path) {
            let folder = part.parent().unwrap();
            if let Ok(meta) = fs::metadata(part) {
                if meta.is_file() {
                    disk.synced.lock().insert(meta.ino());
                }
                let mut names = disk.synced_names.lock();
                let names = names
                    .entry(fs::metadata(folder).unwrap().ino())
                    .or_default();
                names.insert(part.file_name().unwrap().into(), meta.ino());
            }
        }
        let step = self.turns.steps();
        self.changed.lock().insert(path.to_owned(), step);
        if let Some(moment) = Moment::of(path) {
            self.add_moment(path, moment);
        }
    }

    pub fn has_changed_since(&self, path: &Path, step: u64) -> bool {
        self.changed
            .lock()
            .get(path)
            .is_some_and(|changed| *changed >= step)
    }

    pub fn add_moment(&self, path: &Path, moment: Moment) {
        self.moments
            .lock()
            .entry(path.to_owned())
            .or_default()
            .push(moment);
    }

    /// A copy must be what its source was at one moment, or still what it was before. Returns
    /// whether it is a copy. One that is brought here has only rights that the umask allows, and
    /// may be the beginning of its source.
    pub fn check(&self, copy: &Path, source: &Path) -> bool {
        let Some(found) = Moment::of(copy) else {
            return false;
        };
        let (is_pull, disk) = (copy.starts_with(&self.disks[0].path), self.disk_of(copy));
        let mask = if is_pull { local::umask() } else { 0 };
        let is_copy = |moment: &Moment| {
            let has_content = if is_pull {
                moment.content.starts_with(&found.content)
            } else {
                moment.content == found.content
            };
            has_content && (disk.ignores_modes || moment.mode & 0o777 & !mask == found.mode)
        };
        let is_before = |moment: &Moment| {
            let has_mode = disk.ignores_modes || moment.mode == found.mode;
            moment.content == found.content && has_mode
        };
        let moments = self.moments.lock();
        let any = |path: &Path, is: &dyn Fn(&Moment) -> bool| {
            moments
                .get(path)
                .is_some_and(|moments| moments.iter().any(is))
        };
        if any(source, &is_copy) {
            return true;
        }
        if !any(copy, &is_before) {
            drop(moments);
            self.violation(format!("{} is no version: {found:?}", copy.display()));
        }
        false
    }

    fn check_all(&self) {
        for disk in &self.disks[1..] {
            for name in SOURCES.iter().chain(&["ip"]) {
                self.check(&disk.workspace().join(name), &self.source(name));
            }
        }
        for (host, disk) in self.hosts.iter().enumerate() {
            let workspace = self.disks[*disk].workspace();
            let own = workspace.join(format!("own{host}"));
            self.check(&own, &self.source("script.sh"));
            for name in LOGS {
                self.check(&self.pulled(host).join(name), &workspace.join(name));
            }
        }
    }

    /// An agent has entered its workspace. It holds the lock if that names its push and is held:
    /// without room for a lock, it may enter to find that nothing has to be written, and another
    /// agent of its push may have been killed while it made the lock.
    pub fn hold(&self, run: &str, process: &Process) {
        let lock = self.disks[process.disk].workspace().join(".part-push.lock");
        let is_held = || {
            let lock = File::open(&lock).ok();
            lock.is_some_and(|lock| Flock::lock(lock, FlockArg::LockExclusiveNonblock).is_err())
        };
        if fs::read(&lock).is_ok_and(|owner| owner == run.as_bytes()) && is_held() {
            let mut holders = self.holders.lock();
            let at_work = |holder: &&Holder| {
                let cuts = self.disks[process.disk].power_cuts.load(Ordering::Relaxed);
                let is_alive = !holder.is_killed.load(Ordering::Relaxed);
                holder.disk == process.disk && is_alive && holder.power_cuts == cuts
            };
            if let Some(other) = holders
                .iter()
                .filter(at_work)
                .find(|other| other.run != run)
            {
                self.violation(format!("{run} and {} hold one lock", other.run));
            }
            self.note(|| format!("{run} holds the lock of disk{}", process.disk));
            holders.push(Holder {
                disk: process.disk,
                run: run.to_owned(),
                is_killed: Arc::clone(&process.is_killed),
                power_cuts: process.power_cuts,
            });
        }
    }

    /// An agent is about to end.
    pub fn release(&self, process: &Process) {
        let is_it = |holder: &mut Holder| Arc::ptr_eq(&holder.is_killed, &process.is_killed);
        let mut holders = self.holders.lock();
        for holder in holders.extract_if(.., is_it) {
            self.note(|| format!("{} is about to release disk{}", holder.run, holder.disk));
        }
    }

    pub fn disk_of(&self, path: &Path) -> &Disk {
        self.disks
            .iter()
            .find(|disk| path.starts_with(&disk.path))
            .unwrap()
    }

    /// Something happens that no copy has caused.
    pub fn disturb(&self, actor: usize) {
        self.turns.pass(actor, 100);
        if self.percent(25) {
            self.check_all();
        }
        let disk = &self.disks[self.below(self.disks.len() as u64) as usize];
        match self.below(6) {
            5 if self.percent(50) => self.cut_power(disk),
            4 | 5 => self.shift_clock(disk),
            0 => {
                let was_full = disk.is_full.fetch_xor(true, Ordering::Relaxed);
                self.note(|| format!("{} is full: {}", disk.path.display(), !was_full));
            }
            1 | 2 => self.change(&self.source(SOURCES[self.below(5) as usize])),
            _ if disk.path == self.disks[0].path => {}
            _ if self.percent(30) => {
                self.change(&disk.workspace().join(SOURCES[self.below(4) as usize]));
            }
            _ => self.change(&disk.workspace().join(LOGS[self.below(3) as usize])),
        }
    }

    /// The host's clock was wrong by up to ten days when it kept parts of files.
    fn shift_clock(&self, disk: &Disk) {
        let kept = fs::read_dir(disk.workspace().join(".part-push.kept"));
        let days = Duration::from_secs(self.below(20) * 24 * 3600);
        for entry in kept.into_iter().flatten().flatten() {
            let time = SystemTime::now() - Duration::from_secs(10 * 24 * 3600) + days;
            let file = File::options().write(true).open(entry.path()).unwrap();
            file.set_modified(time).unwrap();
            self.note(|| format!("{} is older by days", entry.path().display()));
        }
    }

    /// All processes on a disk end at once, and files that were not written to the disk itself lose
    /// their ends. A partial file, whose parts may come in any order, may have zeros in its middle,
    /// or what was on the disk before.
    fn cut_power(&self, disk: &Disk) {
        self.note(|| format!("{} has no power for a moment", disk.path.display()));
        disk.power_cuts.fetch_add(1, Ordering::Relaxed);
        for folder in folders(&disk.path) {
            for entry in fs::read_dir(folder).unwrap().flatten() {
                let meta = entry.metadata().unwrap();
                if meta.is_file() && disk.synced.lock().insert(meta.ino()) {
                    self.lose(&entry.path(), &meta);
                }
            }
        }
    }

    fn lose(&self, path: &Path, meta: &Metadata) {
        fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
        let file = File::options().write(true).open(path).unwrap();
        let is_partial = path.to_string_lossy().contains("/.part-pu");
        if is_partial && meta.len() > 0 && self.percent(50) {
            let stale = b"stale".repeat(1000);
            let count = stale.len().min(meta.len() as usize);
            file.write_all_at(&stale[..count], 0).unwrap();
        }
        let end = if is_partial && self.percent(50) {
            GRAIN
        } else {
            u64::MAX
        };
        let length = self.below(end.min(meta.len() + 1));
        if is_partial && meta.len() > GRAIN && self.percent(50) {
            let end = (length + GRAIN).min(meta.len());
            file.write_all_at(&vec![0; (end - length) as usize], length)
                .unwrap();
        } else {
            file.set_len(length).unwrap();
        }
        file.set_modified(meta.modified().unwrap()).unwrap();
        file.set_permissions(meta.permissions()).unwrap();
        if !is_partial {
            self.add_moment(path, Moment::of(path).unwrap());
        }
        // without the time in the name of a new lock, and the random part of a directory's name
        let stable = |part: &OsStr| match part.to_str() {
            Some(name) if name.starts_with(".part-pull.") => ".part-pull".into(),
            _ => part.to_owned(),
        };
        let name: PathBuf = path.with_extension("").iter().map(stable).collect();
        self.note(|| format!("{} loses what is behind {length}", name.display()));
    }

    pub fn end_faults(&self) {
        self.has_faults.store(false, Ordering::Relaxed);
        for disk in &self.disks {
            disk.is_full.store(false, Ordering::Relaxed);
        }
    }
}

/// All directories of a tree.
fn folders(root: &Path) -> Vec<PathBuf> {
    let mut folders = vec![root.to_owned()];
    let mut next = 0;
    while let Some(folder) = folders.get(next) {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let inner: Vec<PathBuf> = entries
            .filter(|entry| entry.file_type().unwrap().is_dir())
            .map(|entry| entry.path())
            .collect();
        folders.extend(inner);
        next += 1;
    }
    folders
}

/// A process that can be killed before any of its system calls.
pub struct Process {
    world: Arc<World>,
    actor: usize,
    disk: usize,
    /// How many system calls it has left.
    left: Cell<u64>,
    /// At its start.
    power_cuts: u64,
    is_killed: Arc<AtomicBool>,
}

impl Process {
    pub fn new(world: &Arc<World>, actor: usize, disk: usize) -> Rc<Process> {
        let left = if world.fails(25) {
            world.below(150)
        } else {
            u64::MAX
        };
        Rc::new(Process {
            world: Arc::clone(world),
            actor,
            disk,
            left: Cell::new(left),
            power_cuts: world.disks[disk].power_cuts.load(Ordering::Relaxed),
            is_killed: Arc::default(),
        })
    }

    pub fn run<T>(self: &Rc<Self>, act: impl FnOnce() -> T) -> T {
        let process = Rc::clone(self);
        let before = simulated::install(Some(Rc::new(move |call| process.before(call))));
        let result = act();
        simulated::install(before);
        result
    }

    pub fn lost_power(&self) -> bool {
        self.world.disks[self.disk]
            .power_cuts
            .load(Ordering::Relaxed)
            != self.power_cuts
    }

    pub fn is_killed(&self) -> bool {
        self.is_killed.load(Ordering::Relaxed) || self.lost_power()
    }

    fn before(&self, call: Call) -> io::Result<()> {
        self.world.turns.pass(self.actor, 10);
        self.world.interfere(call);
        let disk = &self.world.disks[self.disk];
        if self.left.get() == 0 && !self.is_killed.swap(true, Ordering::Relaxed) {
            // the inode differs from run to run
            let stable = match call {
                Call::Sync(_) => Call::Sync(0),
                other => other,
            };
            self.world
                .note(|| format!("actor {}: killed before {stable:?}", self.actor));
        }
        if self.is_killed() {
            return Err(Errno::EIO.into());
        }
        self.left.set(self.left.get() - 1);
        match call {
            Call::Write if disk.is_full.load(Ordering::Relaxed) => Err(Errno::ENOSPC.into()),
            Call::Lock if !disk.has_locks => Err(Errno::ENOLCK.into()),
            Call::Sync(inode) => {
                disk.sync(inode);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}
