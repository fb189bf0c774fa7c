//! Processes of two pushes that take and release the lock of one directory at once, as the hosts of
//! a push do on shared storage. In [`push`](super::push) no two processes of one push meet,
//! because it asks its hosts one after another.

use super::world::{Process, World};
use parking_lot::Mutex;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use transfer::folder::Folder;
use transfer::lock::{Lock, LockAttempt};

const LOCK: &str = ".part-push.lock";
pub const PROCESSES: usize = 4;

/// No two pushes may hold the lock at once.
pub fn run(world: &Arc<World>) {
    let folder = world.disks[1].workspace();
    fs::create_dir_all(&folder).unwrap();
    let held = Mutex::default();
    std::thread::scope(|scope| {
        for actor in 0..PROCESSES {
            let (held, folder) = (&held, &folder);
            scope.spawn(move || {
                world.turns.begin(actor);
                for _ in 0..4 {
                    take(world, actor, folder, held);
                }
                world.turns.end(actor);
            });
        }
    });
}

fn take(
    world: &Arc<World>,
    actor: usize,
    folder: &Path,
    held: &Mutex<[Option<&'static str>; PROCESSES]>,
) {
    let owner = ["a", "b"][world.below(2) as usize];
    let process = Process::new(world, actor, 1);
    let lock = process.run(|| {
        let folder = Folder::open(folder).ok()?;
        match Lock::take(&folder, LOCK, owner).ok()? {
            LockAttempt::Taken(lock) => Some(lock),
            LockAttempt::Busy(_) | LockAttempt::NoLocks(_) => None,
        }
    });
    if lock.is_some() && !process.is_killed() {
        let mut held = held.lock();
        if let Some(other) = held.iter().flatten().find(|other| **other != owner) {
            world.violation(format!("{owner} and {other} hold one lock"));
        }
        held[actor] = Some(owner);
    }
    world.turns.pass(actor, 100);
    held.lock()[actor] = None;
    process.run(|| drop(lock));
}
