//! Remembers the job's files in /dev/shm while it runs, because killed processes cannot be asked.
//!
//! inotify reports a new name, but not the process that created it. The mappings of the job's
//! processes show that; they are read a moment after a file was created and then at growing
//! intervals, because it may be mapped much later.

use host::processes::ProcessHandle;
use host::shm::{self, ShmFile};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use nix::time::{ClockId, clock_gettime};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

const FOLDER: &str = "/dev/shm";
/// From a change of the names to the first scan: a file is mapped right after its creation.
const SHORTEST_PAUSE: Duration = Duration::from_millis(20);
/// How often to scan in any case: files of an earlier job may be opened at any time.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// How often to compare names if the host has no more inotify instances.
const WITHOUT_EVENTS: Duration = Duration::from_millis(200);
/// Scans may use this fraction of a processor, however fast other programs create and remove files;
/// but while names change, they are never further apart than the second number.
const SHARE: u32 = 20;
const LONGEST_REST: Duration = Duration::from_secs(1);

pub struct ShmWatch {
    files: BTreeSet<ShmFile>,
    /// Files of DGL from before the job that no process mapped.
    before: BTreeSet<ShmFile>,
    /// `None` if the host has no more inotify instances.
    events: Option<Inotify>,
    /// Whether it has reported one since the names were read.
    has_new_name: bool,
    /// The names when they were last read, and since when they are unchanged.
    names: Vec<OsString>,
    changed: Instant,
    /// When to scan even if no name changes.
    next_scan: Instant,
    /// When to scan at the earliest, even if a name changes.
    earliest: Instant,
}

impl ShmWatch {
    pub fn begin() -> ShmWatch {
        let now = Instant::now();
        ShmWatch {
            files: BTreeSet::new(),
            before: shm::stale_files(),
            events: events(),
            has_new_name: false,
            names: Vec::new(),
            changed: now,
            next_scan: now + SHORTEST_PAUSE,
            earliest: now,
        }
    }

    /// Readable when there is a new name.
    pub fn wait_for(&self) -> Option<BorrowedFd<'_>> {
        let events = self.events.as_ref().filter(|_| !self.has_new_name);
        events.map(AsFd::as_fd)
    }

    pub fn note_new_name(&mut self) {
        self.has_new_name = true;
        self.earliest = self.earliest.max(Instant::now() + SHORTEST_PAUSE);
    }

    pub fn due(&self) -> Instant {
        if self.has_new_name || self.events.is_none() {
            self.earliest.min(self.next_scan)
        } else {
            self.next_scan
        }
    }

    /// Returns new files.
    pub fn scan_if_due(
        &mut self,
        members: impl FnOnce() -> BTreeSet<ProcessHandle>,
    ) -> Vec<ShmFile> {
        let now = Instant::now();
        if now < self.due() {
            return Vec::new();
        }
        let used = used_cpu();
        let is_new = self.read_names(now);
        if !is_new && now < self.next_scan {
            return Vec::new();
        }
        let files = if self.names.is_empty() {
            Vec::new()
        } else {
            self.scan(&members())
        };
        let rest = (used_cpu().saturating_sub(used) * SHARE).min(LONGEST_REST);
        let pause = (now - self.changed) * 3;
        self.next_scan = now + pause.clamp(SHORTEST_PAUSE, LONGEST_PAUSE).max(rest);
        self.earliest = self.earliest.max(now + rest);
        files
    }

    pub fn scan(&mut self, members: &BTreeSet<ProcessHandle>) -> Vec<ShmFile> {
        shm::mapped_shm(members.iter().map(|process| process.pid))
            .into_iter()
            .filter(|file| self.files.insert(file.clone()))
            .collect()
    }

    /// Returns whether the names have changed.
    fn read_names(&mut self, now: Instant) -> bool {
        self.has_new_name = false;
        match &self.events {
            // if there are more, the descriptor is readable again
            Some(events) => drop(events.read_events()),
            None => self.earliest = now + WITHOUT_EVENTS,
        }
        let names = names();
        let is_new = names != self.names;
        if is_new {
            self.names = names;
            self.changed = now;
        }
        is_new
    }

    /// Adds unmapped files of DGL that appeared while the job ran: a server that failed while
    /// loading leaves some. Where a process of another job may map them unseen, they stay.
    pub fn take_unseen(&mut self) {
        if shm::shows_its_users() {
            self.files
                .extend(shm::stale_files().difference(&self.before).cloned());
        }
    }

    /// Removes only unmapped files; returns how many.
    pub fn remove(&mut self) -> u32 {
        shm::remove_unmapped(&self.files)
    }

    pub fn are_left(&self) -> bool {
        shm::any_exists(&self.files)
    }
}

fn used_cpu() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

fn events() -> Option<Inotify> {
    let events = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC).ok()?;
    let wanted = AddWatchFlags::IN_CREATE | AddWatchFlags::IN_MOVED_TO;
    events.add_watch(FOLDER, wanted).ok()?;
    Some(events)
}

fn names() -> Vec<OsString> {
    let entries = fs::read_dir(FOLDER).into_iter().flatten().flatten();
    let mut names: Vec<OsString> = entries.map(|entry| entry.file_name()).collect();
    names.sort_unstable();
    names
}
