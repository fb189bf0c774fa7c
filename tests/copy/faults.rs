//! What goes wrong while files are copied, on each wire, in both directions. Whatever it is, no
//! host and no folder here has half a file under its name, records say what is there, and the next
//! run completes.
//!
//! A fault comes over all wires at once: so many copies are under way at the same time, each to or
//! from a folder of its own.
//!
//!                        push: ssh, direct, chain      pull: ssh, direct
//!     during the copy    the tool or the agent is killed, the power or the cable of a host goes,
//!                        the source changes; push: a signal, no byte more can be written, the
//!                        disk becomes full
//!     before it          no room, a folder that is read-only; push: a host is down
//!
//! Ports that accept and say nothing, that reset, that answer with another key, and firewalls are
//! in direct.rs; what goes wrong between the hosts of a chain in chains.rs; names, links and hosts
//! that lie in push.rs, pull.rs and ../connect/hostile.rs.

use crate::lab::of_size;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use support::{
    Cluster, Ran, make_folder, noise, root, scratch, sh, soon, takes_seconds, tools, write,
};

/// Large enough for a chain.
const LARGE: usize = 24 << 20;
/// A copy takes seconds with this, however quick the machine is and whichever of them begins last.
const SLOWLY: &str = "--limit 2MB/s";
/// So that not all that a host of a pull has read waits in the kernel here.
const SLOW_LINK: &str = "60mbit";
/// Of seconds, after which a host of which nothing is heard is given up.
const SILENCE: u64 = 20;
/// Where a silence ends one way, the next one may take as long; the rest is for a machine that is
/// busy.
const TO_THE_END: Duration = Duration::from_secs(SILENCE + SILENCE + 30);
/// Somebody waits for the end of a tool that was interrupted.
const TO_THE_END_OF_A_SIGNAL: Duration = Duration::from_secs(15);
/// The host on which things go wrong; of a chain it is the one in the middle.
const VICTIM: u32 = 3;

/// One of the copies that are under way at the same time.
struct Wire {
    name: &'static str,
    options: &'static str,
    hosts: &'static [u32],
}

const fn wire(name: &'static str, options: &'static str, hosts: &'static [u32]) -> Wire {
    Wire {
        name,
        options,
        hosts,
    }
}

const PUSHES: [Wire; 3] = [
    wire("ssh", "--wire ssh", &[VICTIM]),
    wire("direct", "--wire direct", &[VICTIM]),
    wire("chain", "", &[2, VICTIM, 4]),
];
const PULLS: [Wire; 2] = [
    wire("ssh", "--wire ssh", &[VICTIM]),
    wire("direct", "--wire direct", &[VICTIM]),
];

/// Does something to the agents that receive there.
fn to_receivers(command: &str) -> String {
    to_agents(&format!(
        "ls -l $p/fd 2>/dev/null | grep -q '/\\.part-push\\.' && {command}"
    ))
}

/// Does something to all agents there.
fn to_agents(command: &str) -> String {
    format!(
        "for p in /proc/[0-9]*; do grep -qs host-agent $p/cmdline && {command} ${{p#/proc/}}; \
         done; true"
    )
}

struct Lab {
    cluster: Cluster,
    folder: PathBuf,
    wires: &'static [Wire],
}

impl Lab {
    fn up(hosts: u32, rate: &str, wires: &'static [Wire]) -> Lab {
        let folder = scratch();
        let cluster = Cluster::up_impatient(hosts, rate, SILENCE);
        for wire in wires {
            let address = |host: &u32| format!("10.77.0.{host}\n");
            let text: String = wire.hosts.iter().map(address).collect();
            write(&folder, format!("{}.txt", wire.name), text);
        }
        Lab {
            cluster,
            folder,
            wires,
        }
    }

    fn sh(&self, script: &str) -> Ran {
        self.cluster.sh(&self.folder, script)
    }

    /// On a host, as what a login may do there.
    fn on(&self, host: u32, command: &str) {
        write(&self.folder, "command", command);
        let script = format!("ssh h{host} 'PATH=$PATH:/usr/sbin:/sbin; sh -s' <command");
        self.cluster.run(&self.folder, &script);
    }

    /// What a host has below its /srv, as this machine sees it.
    fn srv(&self, host: u32, path: &str) -> PathBuf {
        self.cluster.0.join(format!("h{host}/srv/{path}"))
    }

    /// Does the same over all wires at once.
    fn over_each_wire<T: Send>(&self, what: impl Fn(&'static Wire) -> T + Sync) -> Vec<T> {
        let what = &what;
        std::thread::scope(|scope| {
            let begin = |wire: &'static Wire| scope.spawn(move || what(wire));
            let begun: Vec<_> = self.wires.iter().map(begin).collect();
            begun.into_iter().map(|one| one.join().unwrap()).collect()
        })
    }

    /// All copies at once; the disturbance comes when each has a quarter of the large file: more
    /// than may come again where the power goes. How they end, and soon enough.
    fn disturb(
        &self,
        fault: &str,
        copy: impl Fn(&Wire) -> Ran + Sync,
        begun: impl Fn(&Wire) -> u64,
        disturbance: impl FnOnce(),
    ) -> Vec<Ran> {
        let copy = &copy;
        std::thread::scope(|scope| {
            let begin = |wire: &'static Wire| scope.spawn(move || copy(wire));
            let copies: Vec<_> = self.wires.iter().map(begin).collect();
            let quarter = LARGE as u64 / 4;
            soon("all copies are under way", || {
                copies.iter().any(|one| one.is_finished())
                    || self.wires.iter().all(|wire| begun(wire) > quarter)
            });
            let over = copies.iter().any(|one| one.is_finished());
            if !over {
                disturbance();
            }
            let disturbed = Instant::now();
            let ran: Vec<Ran> = copies.into_iter().map(|one| one.join().unwrap()).collect();
            let message: Vec<&str> = ran.iter().map(|ran| ran.err.as_str()).collect();
            assert!(!over, "one ended before it was disturbed: {message:?}");
            let took = disturbed.elapsed();
            println!("{fault}: over after {:.1} s", took.as_secs_f64());
            let limit = match fault {
                "INT" | "TERM" | "KILL" => TO_THE_END_OF_A_SIGNAL,
                _ => TO_THE_END,
            };
            assert!(took < limit, "{fault}: {took:?}: {message:?}");
            ran
        })
    }

    fn signal_tools(&self, signal: &str) {
        let pid_of = |wire: &Wire| {
            let file = self.folder.join(format!("{}.pid", wire.name));
            fs::read_to_string(file).unwrap().trim().to_owned()
        };
        let pids: Vec<String> = self.wires.iter().map(pid_of).collect();
        // all in one call: each takes so long on a busy machine that a copy ends meanwhile
        let words = ["exec", "1", "kill", "-s", signal].into_iter();
        let words: Vec<&str> = words.chain(pids.iter().map(String::as_str)).collect();
        self.cluster.call(&words).ends(0);
    }

    fn cut_power(&self) {
        self.cluster.call(&["stop", "3"]).ends(0);
    }

    fn cut_cable(&self) {
        self.cluster.call(&["cut", "3"]).ends(0);
    }

    /// The host is as it was before.
    fn mend(&self, fault: &str) {
        match fault {
            "power" => drop(self.cluster.call(&["start", "3"])),
            "cable" => drop(self.cluster.call(&["mend", "3"])),
            _ => {}
        }
    }
}

/// The largest file below a folder whose name begins so: what has come of the large one.
fn incoming(folder: &Path, beginning: &str) -> u64 {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    let files = files.filter(|file| file.file_name().to_string_lossy().starts_with(beginning));
    let sizes = files.filter_map(|file| Some(file.metadata().ok()?.len()));
    sizes.max().unwrap_or(0)
}

/// Whether the file is there; one that is there is whole.
fn is_whole(path: &Path, content: &[u8], what: &str) -> bool {
    match fs::read(path) {
        Ok(there) => {
            assert!(
                there == content,
                "{what}: {} is no whole file",
                path.display()
            );
            true
        }
        Err(_) => false,
    }
}

/// What the records say of the large file.
fn records(out: &str) -> Vec<(usize, bool, u64)> {
    of_size(out, LARGE)
}

struct Push(Lab);

impl Push {
    fn up() -> Push {
        let lab = Lab::up(4, "", &PUSHES);
        make_folder(&lab.folder, "src");
        let push = Push(lab);
        push.write_source();
        // every host has the agent already
        push.0.sh("part-push --dry-run <chain.jsonl");
        push
    }

    fn write_source(&self) {
        write(&self.0.folder, "src/large", noise(1, LARGE));
        for Wire { name, .. } in self.0.wires {
            let map = format!(
                "ipconf-check {name}.txt | part-map --workspace /srv/{name} --extra src \
                 >{name}.jsonl"
            );
            self.0.cluster.run(&self.0.folder, &map);
        }
    }

    fn push(&self, wire: &Wire, options: &str) -> Ran {
        self.push_within("30s", wire, options)
    }

    fn push_within(&self, timeout: &str, wire: &Wire, options: &str) -> Ran {
        let Wire {
            name,
            options: over,
            ..
        } = wire;
        self.0.sh(&format!(
            "echo $$ >{name}.pid; export DGL_TOOLS_CONNECT_TIMEOUT={timeout}; exec part-push \
             {over} {options} <{name}.jsonl"
        ))
    }

    fn disturb(&self, fault: &str, disturbance: impl FnOnce()) -> Vec<Ran> {
        self.forget();
        let come = |wire: &Wire| {
            let stages = fs::read_dir(self.0.srv(VICTIM, wire.name))
                .into_iter()
                .flatten();
            let come = stages
                .flatten()
                .map(|stage| incoming(&stage.path(), "part."));
            come.max().unwrap_or(0)
        };
        let copy = |wire: &Wire| self.push(wire, SLOWLY);
        self.0.disturb(fault, copy, come, disturbance)
    }

    /// The hosts have nothing of it.
    fn forget(&self) {
        for wire in self.0.wires {
            for host in wire.hosts {
                let _ = fs::remove_dir_all(self.0.srv(*host, wire.name));
            }
        }
    }

    fn has(&self, host: u32, wire: &Wire, what: &str) -> bool {
        let path = self.0.srv(host, &format!("{}/src/large", wire.name));
        is_whole(&path, &noise(1, LARGE), what)
    }

    /// What part-push has left, but for what is kept on purpose.
    fn is_tidy(&self) -> bool {
        let tidy = |wire: &Wire, host: u32| {
            let entries = fs::read_dir(self.0.srv(host, wire.name))
                .into_iter()
                .flatten();
            let mut names = entries.flatten().map(|entry| entry.file_name());
            names.all(|name| {
                let name = name.to_string_lossy();
                !name.starts_with(".part-push") || name == ".part-push.kept"
            })
        };
        self.0
            .wires
            .iter()
            .all(|wire| wire.hosts.iter().all(|host| tidy(wire, *host)))
    }

    /// What a fault may never do; the others of a chain have the file where only one host failed.
    fn check(&self, fault: &str, ran: &[Ran], others_have_it: bool) {
        for (wire, ran) in self.0.wires.iter().zip(ran) {
            let what = format!("{fault} over {}", wire.name);
            assert_ne!(ran.status, 0, "{what}: {}", ran.err);
            for host in wire.hosts {
                let has = self.has(*host, wire, &what);
                assert_eq!(
                    has,
                    others_have_it && *host != VICTIM,
                    "{what}: host {host} {}",
                    ran.err
                );
            }
            match fault {
                "INT" => _ = ran.ends(130),
                "TERM" => _ = ran.ends(143),
                "no room in the middle" => _ = ran.ends(1).err_has("ulimit -f"),
                "power" | "cable" | "a host that is down" => _ = ran.ends(74),
                _ => {}
            }
            let records = records(&ran.out);
            // with a record of each, but where nobody was left to write it
            let is_complete = records.len() == wire.hosts.len();
            assert!(is_complete || fault == "KILL", "{what}: {}", ran.out);
            for (host, ok, sent) in records {
                let host = wire.hosts[host];
                if fault == "kill of the agent" && host > VICTIM {
                    assert_eq!(sent, 0, "{what}: the last one has it from the first");
                }
                let is_right = ok == (others_have_it && host != VICTIM);
                assert!(is_right, "{what}: the record of host {host}: {}", ran.out);
            }
        }
    }

    /// It is compared before anything is put behind it.
    fn change_what_is_kept(&self) {
        soon("the hosts have put away what they have", || self.is_tidy());
        for wire in self.0.wires {
            let kept = fs::read_dir(self.0.srv(VICTIM, wire.name).join(".part-push.kept")).unwrap();
            let mut kept = kept.map(|entry| entry.unwrap().path());
            let kept = kept
                .find(|path| {
                    fs::metadata(path).unwrap().len() > 1000
                        && path.extension().is_none_or(|end| end != "good")
                })
                .unwrap();
            let mut content = fs::read(&kept).unwrap();
            content[1000] ^= 1;
            fs::write(&kept, content).unwrap();
        }
    }

    /// The next run completes; where something had come, with less.
    fn complete(&self, fault: &str, goes_on: bool) {
        let begun = Instant::now();
        // a host that lost its power has nobody who could, before the next run
        if fault != "power" {
            soon("the hosts have put away what they have", || self.is_tidy());
        }
        println!(
            "{fault}: put away after {:.1} s",
            begun.elapsed().as_secs_f64()
        );
        self.0.over_each_wire(|wire| {
            let what = format!("after {fault} over {}", wire.name);
            let again = self.push(wire, "");
            assert_eq!(again.status, 0, "{what}: {}", again.err);
            let all = wire.hosts.iter().all(|host| self.has(*host, wire, &what));
            assert!(all, "{what}: {}", again.err);
            let sent: u64 = records(&again.out).iter().map(|(.., sent)| sent).sum();
            assert_eq!(
                goes_on,
                sent < LARGE as u64,
                "{what}: {sent} bytes were sent"
            );
        });
        assert!(self.is_tidy(), "after {fault}");
        println!(
            "{fault}: complete after {:.1} s",
            begun.elapsed().as_secs_f64()
        );
    }

    /// Into folders that are read-only or too small; then, without these, all arrives.
    fn push_to_bad_folders(&self) {
        let lab = &self.0;
        // without root a host has no right to mount
        let mount = |how: &str| lab.cluster.on(3, how).status == 0;
        for (fault, options, message) in [
            ("a folder that is read-only", "ro", "Read-only file system"),
            ("no room", "size=10m", "no space left"),
        ] {
            self.forget();
            let on_all = |command: &str| {
                let mut all = lab
                    .wires
                    .iter()
                    .map(|wire| command.replace("WIRE", wire.name));
                all.all(|command| mount(&command))
            };
            let dir = "mkdir -p /srv/WIRE && mount -t tmpfs -o OPTIONS none /srv/WIRE";
            if !on_all(&dir.replace("OPTIONS", options)) {
                return println!("skipped: no right to mount");
            }
            lab.over_each_wire(|wire| {
                let ran = self.push(wire, "");
                let is_said = ran.status == 1 && ran.err.contains(message);
                assert!(
                    is_said,
                    "{fault} over {}: {} {}",
                    wire.name, ran.status, ran.err
                );
            });
            assert!(
                on_all("! ls /srv/WIRE/src/large && umount /srv/WIRE"),
                "{fault}"
            );
            lab.over_each_wire(|wire| {
                let again = self.push(wire, "");
                let all = wire.hosts.iter().all(|host| self.has(*host, wire, fault));
                assert!(again.status == 0 && all, "after {fault}: {}", again.err);
            });
        }
    }
}

#[test]
fn real_hosts_get_no_half_file_whatever_happens_over_any_wire() {
    let push = Push::up();
    let lab = &push.0;
    let full = to_receivers("prlimit --fsize=10000000 --pid");
    let kill = to_receivers("kill -9");
    // what happens | whether the other hosts of a chain have the file all the same
    let table: [(&str, &dyn Fn(), bool); 7] = [
        ("INT", &|| lab.signal_tools("INT"), false),
        ("TERM", &|| lab.signal_tools("TERM"), false),
        ("KILL", &|| lab.signal_tools("KILL"), false),
        ("kill of the agent", &|| lab.on(VICTIM, &kill), true),
        ("no room in the middle", &|| lab.on(VICTIM, &full), true),
        ("power", &|| lab.cut_power(), true),
        ("cable", &|| lab.cut_cable(), true),
    ];
    for (fault, disturbance, others) in table {
        let ran = push.disturb(fault, disturbance);
        push.check(fault, &ran, others);
        lab.mend(fault);
        if fault == "KILL" {
            push.change_what_is_kept();
        }
        push.complete(fault, true);
    }

    push.forget();
    lab.cut_power();
    let ran = lab.over_each_wire(|wire| push.push_within("5s", wire, ""));
    push.check("a host that is down", &ran, true);
    lab.mend("power");
    push.complete("a host that is down", false);

    let source = lab.folder.join("src/large");
    // made before, because on a busy machine the copies would be over before it is
    let other = noise(2, LARGE);
    let changes = || fs::write(&source, &other).unwrap();
    let ran = push.disturb("a source that changes", changes);
    push.check("a source that changes", &ran, false);
    assert!(ran.iter().all(|ran| ran.err.contains("while it was read")));
    push.write_source();
    push.complete("a source that changes", false);

    push.push_to_bad_folders();
    lab.cluster.assert_clean();
}

/// A file that has its room arrives, the next one finds none. Others of a chain get all.
#[test]
fn real_hosts_whose_disk_becomes_full_while_bytes_come_in() {
    let push = Push::up();
    let lab = &push.0;
    write(&lab.folder, "src/later", noise(3, LARGE));
    push.write_source();
    let on_victim = |command: &str| lab.cluster.on(3, command);
    let here = lab.folder.join("src");
    for wire in lab.wires {
        let ws = format!("/srv/{}", wire.name);
        let mounts = format!("mkdir -p {ws} && mount -t tmpfs -o size=64m none {ws}");
        if on_victim(&mounts).status != 0 {
            return println!("skipped: no right to mount");
        }
        let ran = std::thread::scope(|scope| {
            let copy = scope.spawn(|| push.push(wire, "--limit 4MB/s"));
            let parts = format!("cat {ws}/.part-push.*/part.* | head -c 1000000 | wc -c");
            soon("the first one is under way", || {
                copy.is_finished() || on_victim(&parts).out == "1000000\n"
            });
            assert!(!copy.is_finished(), "{}", copy.join().unwrap().err);
            on_victim(&format!("cat /dev/zero >{ws}/filler"));
            copy.join().unwrap()
        });
        // the tool's words if the room is asked for, the kernel's if it is written to
        let is_said = ran.err.to_lowercase().contains("no space left");
        assert!(ran.status == 1 && is_said, "{}{}", wire.name, ran.err);
        let has = |file: &str| {
            let same = format!("cmp {ws}/src/{file} {}/{file}", here.display());
            on_victim(&same).status == 0
        };
        let is_there = on_victim(&format!("ls {ws}/src/later"));
        assert!(
            has("large") && is_there.status != 0,
            "{}{}",
            wire.name,
            ran.err
        );
        let others = wire.hosts.iter().filter(|host| **host != VICTIM);
        for host in others {
            let path = lab.srv(*host, &format!("{}/src/later", wire.name));
            assert!(is_whole(&path, &noise(3, LARGE), wire.name), "host {host}");
        }
        on_victim(&format!("rm {ws}/filler"));
        push.push(wire, "").ends(0);
        assert!(has("large") && has("later"), "{}", wire.name);
    }
    lab.cluster.assert_clean();
}

struct Pull(Lab);

impl Pull {
    fn up() -> Pull {
        let pull = Pull(Lab::up(3, SLOW_LINK, &PULLS));
        fs::create_dir_all(pull.0.srv(VICTIM, "out")).unwrap();
        pull.write_source();
        pull
    }

    fn write_source(&self) {
        fs::write(self.0.srv(VICTIM, "out/large"), noise(1, LARGE)).unwrap();
    }

    fn pull(&self, wire: &Wire, options: &str) -> Ran {
        let Wire {
            name,
            options: over,
            ..
        } = wire;
        self.0.sh(&format!(
            "ipconf-check {name}.txt >{name}.jsonl && echo $$ >{name}.pid && \
             export DGL_TOOLS_CONNECT_TIMEOUT=30s && \
             exec part-pull {over} {options} --workspace /srv --to {name} out <{name}.jsonl"
        ))
    }

    fn forget(&self) {
        for wire in self.0.wires {
            let _ = fs::remove_dir_all(self.0.folder.join(wire.name));
        }
    }

    fn disturb(&self, fault: &str, disturbance: impl FnOnce()) -> Vec<Ran> {
        self.forget();
        let come =
            |wire: &Wire| incoming(&self.0.folder.join(wire.name).join("out"), ".part-pull.");
        let copy = |wire: &Wire| self.pull(wire, SLOWLY);
        self.0.disturb(fault, copy, come, disturbance)
    }

    fn has(&self, wire: &Wire, what: &str) -> bool {
        let path = self.0.folder.join(wire.name).join("out/large");
        is_whole(&path, &noise(1, LARGE), what)
    }

    fn check(&self, fault: &str, ran: &[Ran]) {
        for (wire, ran) in self.0.wires.iter().zip(ran) {
            self.check_one(fault, wire, ran);
        }
    }

    fn check_one(&self, fault: &str, wire: &Wire, ran: &Ran) {
        let what = format!("{fault} over {}", wire.name);
        assert_ne!(ran.status, 0, "{what}: {}", ran.err);
        assert!(!self.has(wire, &what), "{what}");
        assert!(
            records(&ran.out).iter().all(|(_, ok, _)| !ok),
            "{what}: {}",
            ran.out
        );
    }

    /// One whose host had read all of the file before it changed, and was only waiting for the
    /// link, has it as it was; any other has failed.
    fn check_change(&self, ran: &[Ran]) {
        let fault = "a source that changes";
        for (wire, ran) in self.0.wires.iter().zip(ran) {
            if ran.status != 0 {
                self.check_one(fault, wire, ran);
                continue;
            }
            assert!(self.has(wire, fault), "{fault} over {}", wire.name);
            fs::remove_dir_all(self.0.folder.join(wire.name)).unwrap();
        }
        assert!(ran.iter().any(|ran| ran.status != 0));
    }

    fn complete(&self, fault: &str, goes_on: bool) {
        self.0.over_each_wire(|wire| {
            let what = format!("after {fault} over {}", wire.name);
            let again = self.pull(wire, "");
            assert!(
                again.status == 0 && self.has(wire, &what),
                "{what}: {}",
                again.err
            );
            let arrived: u64 = records(&again.out)
                .iter()
                .map(|(.., arrived)| arrived)
                .sum();
            assert_eq!(
                goes_on,
                arrived < LARGE as u64,
                "{what}: {arrived} bytes came"
            );
            let left = incoming(&self.0.folder.join(wire.name).join("out"), ".part-pull");
            assert_eq!(left, 0, "{what}");
        });
    }
}

#[test]
fn real_hosts_give_no_half_file_whatever_happens_over_any_wire() {
    let pull = Pull::up();
    let lab = &pull.0;
    let kill = to_agents("kill -9");
    let table: [(&str, &dyn Fn()); 4] = [
        ("KILL", &|| lab.signal_tools("KILL")),
        ("kill of the agent", &|| lab.on(VICTIM, &kill)),
        ("power", &|| lab.cut_power()),
        ("cable", &|| lab.cut_cable()),
    ];
    for (fault, disturbance) in table {
        let ran = pull.disturb(fault, disturbance);
        pull.check(fault, &ran);
        lab.mend(fault);
        pull.complete(fault, true);
    }

    let source = lab.srv(VICTIM, "out/large");
    let other = noise(2, LARGE);
    let changes = || fs::write(&source, &other).unwrap();
    let ran = pull.disturb("a source that changes", changes);
    pull.check_change(&ran);
    pull.write_source();
    pull.complete("a source that changes", false);

    let here = |command: &str| {
        let mut all = lab
            .wires
            .iter()
            .map(|wire| command.replace("WIRE", wire.name));
        all.all(|command| lab.sh(&command).status == 0)
    };
    for (fault, options, message) in [
        ("a folder that is read-only", "ro", "Read-only file system"),
        ("no room", "size=10m", "No space left"),
    ] {
        pull.forget();
        // mounted for this one command
        for wire in lab.wires {
            let name = wire.name;
            let script = format!(
                "mkdir -p {name} && mount -t tmpfs -o {options} none {name} || exit 99; \
                 part-pull {} --workspace /srv --to {name} out <{name}.jsonl; status=$?; \
                 ls {name}/out/large && status=98; umount {name}; exit $status",
                wire.options
            );
            let ran = lab.sh(&script);
            if ran.status == 99 {
                return println!("skipped: no right to mount");
            }
            let is_said = [1, 74].contains(&ran.status) && ran.err.contains(message);
            assert!(is_said, "{fault} over {name}: {} {}", ran.status, ran.err);
        }
        assert!(here("! ls WIRE/out/large"), "{fault}");
        pull.complete(fault, false);
    }
    lab.cluster.assert_clean();
}

/// `make faults` tries all of them.
#[test]
fn a_system_call_that_fails_breaks_nothing() {
    if takes_seconds() {
        return;
    }
    let script = root().join("tests/faults/faults.py");
    let tools = tools();
    // those that broke something once, and a few others
    let run = format!(
        "export TOOLS='{}'; faults() {{ python3 '{}' --minutes 2 \"$@\"; }}
         faults --only push:EIO:unlinkat:3: --only job:EINTR:wait4:1: && faults --sample 4",
        tools.display(),
        script.display()
    );
    let ran = sh(&scratch(), &run);
    if ran.status == 69 && std::env::var_os("CI").is_none() {
        println!("skipped: {}", ran.err);
        return;
    }
    ran.ends(0).out_has_times(": 0 faults", 2);
}
