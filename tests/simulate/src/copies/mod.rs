//! Schedules of faults for copying: several pushes and pulls at once, between one machine and
//! hosts some of which share a directory. A seed decides the files, the faults, and which process
//! makes the next system call.
//!
//! What runs is the real code of both ends, on directories in memory: the agent's conversations
//! (common/agent-files), sender, receiver, partial files, locks and directories (common/transfer),
//! part-push's plan and its check of sources, part-pull's files on this machine. A system call of
//! these may fail, and a process may be killed before any of them, by way of
//! `transfer::simulated`. A disk may lose its power: its processes end, and what was not written to
//! the disk itself is cut, or is what was there before. Somebody else may change the two files
//! that a copy reads or replaces before each of its system calls, and a sender may leave out a
//! block. What lies between is written again in [`push`] and [`pull`], because it
//! waits for real connections: in which order a tool asks, what it asks again, and what it counts
//! as copied. Hosts that hand files on to each other are not simulated.
//!
//! What must be true:
//! - A file is whole, or what it was before: at some disturbances, at each report, and at the end.
//! - What is reported as copied is there, with the bytes and the mode of one moment of its source.
//! - No copy has more rights than its source. Partial files are in directories that are closed to
//!   others.
//! - What a push with `--fsync` reports is on the disk itself, with its name.
//! - Files of others stay what they are.
//! - No two pushes hold the lock of a directory at once, also while several processes of each take
//!   and release it ([`locks`]).
//! - The next push and pull, without faults, copy everything and leave nothing behind.

pub mod agent;
mod locks;
pub mod pull;
pub mod push;
pub mod turns;
pub mod world;

use crate::random::Random;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use world::{LOGS, Moment, SOURCES, THEIRS, THEIRS_FOLDER, World};

pub struct CopyRun {
    pub violations: Vec<String>,
    pub steps: u64,
    pub trace: Option<String>,
}

/// Runs a schedule to its end.
pub fn run(seed: u64, hosts: usize, has_trace: bool) -> CopyRun {
    let mut random = Random::new(seed ^ 0xc0b1e5);
    let (pushes, pulls) = (random.between(1, 3) as usize, random.below(3) as usize);
    let root = PathBuf::from(format!(
        "/dev/shm/dgl-tools-copies-{}-{seed}",
        std::process::id()
    ));
    let _ = fs::remove_dir_all(&root);
    // the last one disturbs
    let actors = pushes + pulls + 1;
    let world = Arc::new(World::new(&root, seed, hosts, actors, has_trace));
    let theirs = theirs(&world);
    std::thread::scope(|scope| {
        for actor in 0..actors {
            let world = Arc::clone(&world);
            scope.spawn(move || {
                world.turns.begin(actor);
                for turn in 0..2 + world.below(3) {
                    let run = format!("run{actor}x{turn}");
                    match actor {
                        _ if actor < pushes => drop(push::push(&world, actor, &run)),
                        // without locks, users must run one pull at a time
                        _ if (pushes + 1..pushes + pulls).contains(&actor)
                            && !world.disks[0].has_locks => {}
                        _ if actor < pushes + pulls => {
                            let host = world.below(hosts as u64) as usize;
                            pull::pull(&world, actor, host, &run);
                        }
                        _ => (0..20).for_each(|_| world.disturb(actor)),
                    }
                }
                world.turns.end(actor);
            });
        }
    });
    world.end_faults();
    check(&world, &theirs);
    let _ = fs::remove_dir_all(&root);
    let world_of_locks = World::new(&root, seed ^ 0x10c5, 1, locks::PROCESSES, has_trace);
    let world_of_locks = Arc::new(world_of_locks);
    locks::run(&world_of_locks);
    let _ = fs::remove_dir_all(&root);
    let (of_locks, _, _) = Arc::into_inner(world_of_locks).unwrap().end();
    let (mut violations, trace, steps) = Arc::into_inner(world).unwrap().end();
    violations.extend(of_locks);
    CopyRun {
        violations,
        steps,
        trace,
    }
}

fn theirs(world: &World) -> Vec<(PathBuf, Option<Moment>)> {
    let names = ["theirs.txt", THEIRS];
    let files = world.disks[1..]
        .iter()
        .flat_map(|disk| names.map(|name| disk.workspace().join(name)));
    files
        .map(|path| (path.clone(), Moment::of(&path)))
        .collect()
}

/// A push and a pull without faults repair everything.
fn check(world: &Arc<World>, theirs: &[(PathBuf, Option<Moment>)]) {
    world.turns.begin_last();
    if !push::push(world, 0, "last") {
        world.violation("the last push does not copy everything".to_owned());
    }
    for host in 0..world.hosts.len() {
        if !pull::pull(world, 0, host, "last") {
            world.violation(format!(
                "the last pull of host {host} does not copy everything"
            ));
        }
        check_host(world, host);
    }
    for (path, before) in theirs {
        if Moment::of(path) != *before {
            world.violation(format!("{} was a file of others", path.display()));
        }
    }
}

fn check_host(world: &World, host: usize) {
    let disk = &world.disks[world.hosts[host]];
    let workspace = disk.workspace();
    for name in SOURCES {
        let own = format!("own{host}");
        let copy = workspace.join(if name == "script.sh" { &own } else { name });
        let (now, copied) = (Moment::of(&world.source(name)), Moment::of(&copy));
        if now.is_some() && !disk.ignores_modes && now != copied {
            world.violation(format!(
                "{} differs at the end: {now:?}, {copied:?}",
                copy.display()
            ));
        }
    }
    for name in LOGS {
        let copy = world.pulled(host).join(name);
        world.check(&copy, &workspace.join(name));
    }
    let disk_here = &world.disks[0];
    left(&workspace, |path| {
        let is_open =
            fs::metadata(path).is_ok_and(|meta| meta.is_dir() && meta.mode() & 0o077 != 0);
        if is_open && !disk.ignores_modes {
            world.violation(format!("{} is open to others", path.display()));
        }
        let mut parts = path.components().map(|part| part.as_os_str());
        let stays = parts.any(|part| part == ".part-push.kept" || part == THEIRS_FOLDER);
        if disk.has_locks && !stays {
            world.violation(format!("{} is left", path.display()));
        }
    });
    left(&world.pulled(host), |path| {
        // the partial file of a log that exists no longer stays, and so does its directory; a small
        // one is a file with a random word
        let is_partial = path
            .extension()
            .is_some_and(|word| [16, 32].contains(&word.len()) || word == "good");
        let is_own = path.is_dir() || path.ends_with(".made-by-part-pull") || is_partial;
        if disk_here.has_locks && !is_own {
            world.violation(format!("{} is left", path.display()));
        }
    });
}

/// What has a name of a tool's own.
fn left(folder: &Path, mut act: impl FnMut(&Path)) {
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.file_type().unwrap().is_dir() {
                folders.push(entry.path());
            }
            if entry.path().to_string_lossy().contains("/.part-pu") {
                act(&entry.path());
            }
        }
    }
}
