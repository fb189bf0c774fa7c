//! What goes wrong while files are copied, on each wire, in both directions. Whatever it is, no
//! host and no directory here has half a file under its name, records say what is there, and the
//! next run completes.
//!
//! Each wire has hosts and a directory of its own, so faults come over all wires at the same time.
//! `make test` has every fault over one wire and several over each; `make test-matrices` has every
//! fault over every wire.
//!
//!                        push: ssh, direct, chain      pull: ssh, direct
//!     during the copy    the tool or the agent is killed, the power or the cable of a host goes,
//!                        the source changes; push: a signal, no byte more can be written, the
//!                        disk becomes full
//!     before it          no room, a directory that is read-only; push: a host is down
//!
//! Ports that accept and say nothing, that reset, that answer with another key, and firewalls are
//! in direct.rs; what goes wrong between the hosts of a chain in chains.rs; links and
//! hosts that lie in links.rs, turns.rs, pull.rs and ../connect/hostile.rs.

use crate::lab::{disturb, of_size};
use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::{Duration, Instant};
use support::{Cluster, Ran, ip_config, noise, root, scratch, sh, soon, tools, write};

/// Large enough for a chain.
const LARGE: usize = 24 << 20;
/// A copy takes seconds with this, however quick the machine is.
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

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    /// A signal to the tool.
    Signal(&'static str),
    PowerCut,
    CableCut,
    AgentKilled,
    /// No byte more can be written, by a limit of the agent's.
    Limited,
    HostDown,
    SourceChanged,
    ReadOnly,
    NoRoom,
    DiskFilled,
}

/// With three wires, the n-th of these is in `make test` over the n-th wire, modulo three.
const OF_A_PUSH: [Fault; 12] = [
    Fault::Signal("INT"),
    Fault::Signal("TERM"),
    Fault::Signal("KILL"),
    Fault::PowerCut,
    Fault::CableCut,
    Fault::AgentKilled,
    Fault::Limited,
    Fault::HostDown,
    Fault::SourceChanged,
    Fault::ReadOnly,
    Fault::NoRoom,
    Fault::DiskFilled,
];
const OF_A_PULL: [Fault; 7] = [
    Fault::Signal("KILL"),
    Fault::PowerCut,
    Fault::CableCut,
    Fault::AgentKilled,
    Fault::SourceChanged,
    Fault::ReadOnly,
    Fault::NoRoom,
];

/// A way that files go, and the hosts that get or give them over it.
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
    wire("ssh", "--wire ssh", &[2]),
    wire("direct", "--wire direct", &[3]),
    wire("chain", "", &[4, 5, 6]),
];
const PULLS: [Wire; 2] = [
    wire("ssh", "--wire ssh", &[2]),
    wire("direct", "--wire direct", &[3]),
];

/// Which of the cells of a table of faults and wires are tried.
#[derive(Clone, Copy)]
enum Cells {
    All,
    /// Each fault once.
    Sample,
}

/// Tries faults, one after another over each wire, over all wires at the same time.
fn try_faults(
    wires: &[Wire],
    faults: &[Fault],
    cells: Cells,
    attempt: impl Fn(&Wire, Fault) + Sync,
) {
    std::thread::scope(|scope| {
        for (nth_wire, wire) in wires.iter().enumerate() {
            let is_tried = move |nth_fault: usize| match cells {
                Cells::All => true,
                Cells::Sample => nth_fault % wires.len() == nth_wire,
            };
            let attempt = &attempt;
            scope.spawn(move || {
                for (nth_fault, fault) in faults.iter().enumerate() {
                    if !is_tried(nth_fault) {
                        continue;
                    }
                    let begun = Instant::now();
                    attempt(wire, *fault);
                    println!("{fault:?} over {}: {:.1?}", wire.name, begun.elapsed());
                }
            });
        }
    });
}

/// One wire of a cluster, with a directory of its own on this machine.
struct Lab<'a> {
    cluster: &'a Cluster,
    folder: PathBuf,
    wire: &'a Wire,
    fault: Fault,
}

impl<'a> Lab<'a> {
    fn of(cluster: &'a Cluster, folder: &Path, wire: &'a Wire, fault: Fault) -> Lab<'a> {
        let folder = folder.join(wire.name);
        fs::create_dir_all(&folder).unwrap();
        let lab = Lab {
            cluster,
            folder,
            wire,
            fault,
        };
        let address = |host: &u32| format!("10.77.0.{host}\n");
        let text: String = wire.hosts.iter().map(address).collect();
        write(&lab.folder, "ip.txt", text);
        lab
    }

    /// The host on which things go wrong; of a chain it is the one in the middle.
    fn victim(&self) -> u32 {
        self.wire.hosts[self.wire.hosts.len() / 2]
    }

    fn what(&self) -> String {
        format!("{:?} over {}", self.fault, self.wire.name)
    }

    fn sh(&self, script: &str) -> Ran {
        self.cluster.sh(&self.folder, script)
    }

    fn run(&self, script: &str) {
        self.cluster.run(&self.folder, script);
    }

    /// On the victim, with the right to change what it is.
    fn on_victim(&self, script: &str) -> Ran {
        self.cluster.on(self.victim(), script)
    }

    /// Does something to the agents on the victim, as what a login may do there.
    fn to_agents(&self, command: &str) {
        self.to_agents_for_which("true", command);
    }

    /// The same, to those that receive files.
    fn to_receivers(&self, command: &str) {
        self.to_agents_for_which(
            "ls -l $p/fd 2>/dev/null | grep -q '/\\.part-push\\.'",
            command,
        );
    }

    /// All are found before the first is killed: its watcher, which then removes what has come,
    /// looks like one that receives files.
    fn to_agents_for_which(&self, test: &str, command: &str) {
        let script = format!(
            "for p in /proc/[0-9]*; do grep -qs host-agent $p/cmdline && {test} && \
             found=\"$found ${{p#/proc/}}\"; done; for p in $found; do {command} $p; done; true"
        );
        write(&self.folder, "command", script);
        self.run(&format!("ssh h{} sh -s <command", self.victim()));
    }

    /// What a host has below its /srv, as this machine sees it.
    fn srv(&self, host: u32, path: &str) -> PathBuf {
        self.cluster.lab.join(format!("h{host}/srv/{path}"))
    }

    /// A copy that is disturbed when a quarter of the large file has arrived: more than may arrive
    /// again where the power goes. How it ends, and soon enough.
    fn disturb(
        &self,
        copy: impl FnOnce() -> Ran + Send,
        arrived: impl Fn() -> u64,
        disturbance: impl FnOnce(),
    ) -> Ran {
        let disturbed = Cell::new(Instant::now());
        let ran = disturb(
            copy,
            || arrived() > LARGE as u64 / 4,
            || {
                disturbance();
                disturbed.set(Instant::now());
            },
        );
        let took = disturbed.get().elapsed();
        let limit = match self.fault {
            Fault::Signal(_) => TO_THE_END_OF_A_SIGNAL,
            _ => TO_THE_END,
        };
        assert!(took < limit, "{}: {took:?}: {}", self.what(), ran.err);
        ran
    }

    fn call(&self, command: &str) {
        let host = self.victim().to_string();
        self.cluster.call(&[command, &host]).ends(0);
    }

    /// What a fault does, as far as push and pull have it in common.
    fn strike(&self) {
        match self.fault {
            Fault::Signal(signal) => {
                let pid = fs::read_to_string(self.folder.join("pid")).unwrap();
                let words = ["exec", "1", "kill", "-s", signal, pid.trim()];
                self.cluster.call(&words).ends(0);
            }
            Fault::PowerCut => self.call("stop"),
            Fault::CableCut => self.call("cut"),
            Fault::AgentKilled => self.to_agents("kill -9"),
            other => panic!("{other:?} is no disturbance of both"),
        }
    }

    /// The host is as it was before.
    fn mend(&self) {
        match self.fault {
            Fault::PowerCut | Fault::HostDown => self.call("start"),
            Fault::CableCut => self.call("mend"),
            _ => {}
        }
    }
}

/// The first content of the large file, and what it is changed to. Made once, because on a busy
/// machine a copy would be over before it is.
static CONTENT: LazyLock<Vec<u8>> = LazyLock::new(|| noise(1, LARGE));
static OTHER_CONTENT: LazyLock<Vec<u8>> = LazyLock::new(|| noise(2, LARGE));

/// The largest file below a directory whose name begins so: what has come of the large one.
fn incoming(folder: &Path, beginning: &str) -> u64 {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    let files = files.filter(|file| file.file_name().to_string_lossy().starts_with(beginning));
    let sizes = files.filter_map(|file| Some(file.metadata().ok()?.len()));
    sizes.max().unwrap_or(0)
}

/// Whether the file is there; one that is there is whole.
fn is_whole(path: &Path, content: &[u8], what: &str) -> bool {
    let Ok(there) = fs::read(path) else {
        return false;
    };
    let is_same = there == content;
    assert!(is_same, "{what}: {} is no whole file", path.display());
    true
}

/// What the records say of the large file.
fn records(out: &str) -> Vec<(usize, bool, u64)> {
    of_size(out, LARGE)
}

struct Push<'a>(Lab<'a>);

impl Push<'_> {
    fn attempt(&self) {
        let lab = &self.0;
        self.write_source();
        self.forget();
        match lab.fault {
            Fault::HostDown => {
                lab.call("stop");
                self.check(&self.push_within("5s", ""), true);
                lab.mend();
                self.complete(false);
            }
            Fault::SourceChanged => {
                let source = lab.folder.join("src/large");
                // made before, which takes seconds on a machine that is busy
                let other = &*OTHER_CONTENT;
                let ran = self.disturb(|| fs::write(&source, other).unwrap());
                self.check(&ran, false);
                ran.err_has("while it was read");
                self.write_source();
                self.complete(false);
            }
            Fault::ReadOnly => self.push_to_bad_folder("ro", "Read-only file system"),
            Fault::NoRoom => self.push_to_bad_folder("size=10m", "no space left"),
            Fault::DiskFilled => self.fill_disk(),
            Fault::Limited => {
                let limit = "prlimit --fsize=10000000 --pid";
                let ran = self.disturb(|| lab.to_receivers(limit));
                self.check(&ran, true);
                self.complete(true);
            }
            fault => {
                let ran = self.disturb(|| match fault {
                    Fault::AgentKilled => lab.to_receivers("kill -9"),
                    _ => lab.strike(),
                });
                self.check(&ran, !matches!(fault, Fault::Signal(_)));
                lab.mend();
                if fault == Fault::Signal("KILL") {
                    self.change_what_is_kept();
                }
                self.complete(true);
            }
        }
    }

    fn write_source(&self) {
        write(&self.0.folder, "src/large", &*CONTENT);
        self.map();
    }

    fn map(&self) {
        let map = "ipconf-check ip.txt | part-map --workspace /srv/ws --extra src >plan.jsonl";
        self.0.run(map);
    }

    fn push(&self, options: &str) -> Ran {
        self.push_within("30s", options)
    }

    fn push_within(&self, timeout: &str, options: &str) -> Ran {
        let over = self.0.wire.options;
        self.0.sh(&format!(
            "echo $$ >pid; export DGL_TOOLS_CONNECT_TIMEOUT={timeout}; exec part-push {over} \
             {options} <plan.jsonl"
        ))
    }

    fn disturb(&self, disturbance: impl FnOnce()) -> Ran {
        let lab = &self.0;
        let arrived = || {
            let stages = fs::read_dir(lab.srv(lab.victim(), "ws"));
            let stages = stages.into_iter().flatten().flatten();
            let sizes = stages.map(|stage| incoming(&stage.path(), "part."));
            sizes.max().unwrap_or(0)
        };
        lab.disturb(|| self.push(SLOWLY), arrived, disturbance)
    }

    /// The hosts have nothing of it.
    fn forget(&self) {
        for host in self.0.wire.hosts {
            let _ = fs::remove_dir_all(self.0.srv(*host, "ws"));
        }
    }

    fn has(&self, host: u32) -> bool {
        let path = self.0.srv(host, "ws/src/large");
        is_whole(&path, &CONTENT, &self.0.what())
    }

    fn all_have_it(&self) -> bool {
        self.0.wire.hosts.iter().all(|host| self.has(*host))
    }

    /// The hosts of a chain on which nothing goes wrong.
    fn others(&self) -> impl Iterator<Item = u32> {
        let victim = self.0.victim();
        let hosts = self.0.wire.hosts.iter().copied();
        hosts.filter(move |host| *host != victim)
    }

    /// What part-push has left, but for what is kept on purpose.
    fn is_tidy(&self) -> bool {
        let is_tidy = |host: &u32| {
            let entries = fs::read_dir(self.0.srv(*host, "ws"));
            let entries = entries.into_iter().flatten().flatten();
            let mut names = entries.map(|entry| entry.file_name());
            names.all(|name| {
                let name = name.to_string_lossy();
                !name.starts_with(".part-push") || name == ".part-push.kept"
            })
        };
        self.0.wire.hosts.iter().all(is_tidy)
    }

    /// What a fault may never do; the others of a chain have the file where only one host failed.
    fn check(&self, ran: &Ran, others_have_it: bool) {
        let Lab { wire, fault, .. } = self.0;
        let (what, victim) = (self.0.what(), self.0.victim());
        assert_ne!(ran.status, 0, "{what}: {}", ran.err);
        for host in wire.hosts {
            let expected = others_have_it && *host != victim;
            assert_eq!(self.has(*host), expected, "{what}: {host}: {}", ran.err);
        }
        match fault {
            Fault::Signal("INT") => _ = ran.ends(130),
            Fault::Signal("TERM") => _ = ran.ends(143),
            Fault::Limited => _ = ran.ends(1).err_has("ulimit -f"),
            Fault::PowerCut | Fault::CableCut | Fault::HostDown => _ = ran.ends(74),
            _ => {}
        }
        let records = records(&ran.out);
        // with a record of each, but where nobody was left to write it
        let is_complete = records.len() == wire.hosts.len();
        let is_killed = fault == Fault::Signal("KILL");
        assert!(is_complete || is_killed, "{what}: {}", ran.out);
        for (host, ok, _) in records {
            let host = wire.hosts[host];
            let expected = others_have_it && host != victim;
            assert_eq!(ok, expected, "{what}: record of {host}: {}", ran.out);
        }
    }

    fn await_tidy(&self) {
        soon("the hosts have put away what they have", || self.is_tidy());
    }

    /// It is compared before anything is put behind it.
    fn change_what_is_kept(&self) {
        self.await_tidy();
        let kept = fs::read_dir(self.0.srv(self.0.victim(), "ws/.part-push.kept")).unwrap();
        let mut kept = kept.map(|entry| entry.unwrap().path());
        let is_large = |path: &PathBuf| fs::metadata(path).unwrap().len() > 1000;
        let is_of_file = |path: &PathBuf| path.extension().is_none_or(|end| end != "good");
        let kept = kept
            .find(|path| is_large(path) && is_of_file(path))
            .unwrap();
        let mut content = fs::read(&kept).unwrap();
        content[1000] ^= 1;
        fs::write(&kept, content).unwrap();
    }

    /// The next run completes; where something had come, with less. A chain carries the file from
    /// its first byte again, if that is less than what all of its hosts lack.
    fn complete(&self, goes_on: bool) {
        let what = self.0.what();
        // a host that lost its power has nobody who could, before the next run
        if self.0.fault != Fault::PowerCut {
            self.await_tidy();
        }
        let again = self.push("");
        let is_complete = again.status == 0 && self.all_have_it();
        assert!(is_complete, "after {what}: {} {}", again.status, again.err);
        let sent: u64 = records(&again.out).iter().map(|(.., sent)| sent).sum();
        let is_as_expected = match self.0.wire.name {
            "chain" => sent <= LARGE as u64,
            _ => (sent < LARGE as u64) == goes_on,
        };
        assert!(is_as_expected, "after {what}: {sent} bytes were sent");
        assert!(self.is_tidy(), "after {what}");
    }

    /// Whether the victim's workspace is a disk of its own now, which a host has no right to
    /// without root.
    fn mount(&self, options: &str) -> bool {
        let mount = format!("mkdir -p /srv/ws && mount -t tmpfs -o {options} none /srv/ws");
        let is_mounted = self.0.on_victim(&mount).status == 0;
        if !is_mounted {
            support::skipped!("no right to mount");
        }
        is_mounted
    }

    /// Into a directory that is read-only or too small; then, without it, all arrives.
    fn push_to_bad_folder(&self, options: &str, message: &str) {
        if !self.mount(options) {
            return;
        }
        self.push("").ends(1).err_has(message);
        let unmount = "! ls /srv/ws/src/large && umount /srv/ws";
        self.0.on_victim(unmount).ends(0);
        let again = self.push("");
        assert!(again.status == 0 && self.all_have_it(), "{}", again.err);
    }

    fn fill_disk(&self) {
        let lab = &self.0;
        if !self.mount("size=64m") {
            return;
        }
        let parts = "cat /srv/ws/.part-push.*/part.* | head -c 1000000 | wc -c";
        let has_begun = || lab.on_victim(parts).out == "1000000\n";
        let fill = || _ = lab.on_victim("cat /dev/zero >/srv/ws/filler");
        let ran = disturb(|| self.push("--limit 4MB/s"), has_begun, fill);
        ran.ends(1).err_has("No space left on device");
        for host in self.others() {
            assert!(self.has(host), "host {host}: {}", ran.err);
        }
        lab.on_victim("! ls /srv/ws/src/large && rm /srv/ws/filler")
            .ends(0);
        self.push("").ends(0);
        let same = format!("cmp /srv/ws/src/large {}/src/large", lab.folder.display());
        lab.on_victim(&same).ends(0);
        lab.on_victim("umount /srv/ws").ends(0);
    }
}

fn push_with_faults(cells: Cells) {
    let folder = scratch();
    let cluster = Cluster::up_impatient(6, "", SILENCE);
    ip_config(&folder, 6);
    // every host has the agent already
    cluster.run(&folder, "ipconf-check ip.txt | host-probe >hosts");
    try_faults(&PUSHES, &OF_A_PUSH, cells, |wire, fault| {
        Push(Lab::of(&cluster, &folder, wire, fault)).attempt();
    });
    cluster.assert_clean();
}

#[test]
fn real_hosts_get_no_half_file_whatever_happens() {
    push_with_faults(Cells::Sample);
}

#[test]
#[ignore = "make test-matrices"]
fn the_whole_matrix_of_faults_while_real_hosts_get_files() {
    push_with_faults(Cells::All);
}

struct Pull<'a>(Lab<'a>);

impl Pull<'_> {
    fn attempt(&self) {
        let lab = &self.0;
        self.forget();
        self.write_source();
        match lab.fault {
            Fault::SourceChanged => {
                let source = self.source();
                // made before, which takes seconds on a machine that is busy
                let other = &*OTHER_CONTENT;
                let ran = self.disturb(|| fs::write(&source, other).unwrap());
                self.check_change(&ran);
                self.write_source();
                self.complete(false);
            }
            Fault::ReadOnly => self.pull_to_bad_folder("ro", "Read-only file system"),
            Fault::NoRoom => self.pull_to_bad_folder("size=10m", "no space left"),
            _ => {
                self.check(&self.disturb(|| lab.strike()));
                lab.mend();
                self.complete(true);
            }
        }
    }

    fn source(&self) -> PathBuf {
        self.0.srv(self.0.victim(), "out/large")
    }

    fn write_source(&self) {
        let source = self.source();
        fs::create_dir_all(source.parent().unwrap()).unwrap();
        fs::write(source, &*CONTENT).unwrap();
    }

    fn pull(&self, options: &str) -> Ran {
        let over = self.0.wire.options;
        self.0.sh(&format!(
            "ipconf-check ip.txt >hosts && echo $$ >pid && \
             export DGL_TOOLS_CONNECT_TIMEOUT=30s && \
             exec part-pull {over} {options} --workspace /srv --to got out <hosts"
        ))
    }

    fn forget(&self) {
        let _ = fs::remove_dir_all(self.0.folder.join("got"));
    }

    fn incoming(&self) -> u64 {
        let folders = fs::read_dir(self.0.folder.join("got/out"));
        let folders = folders.into_iter().flatten().flatten();
        let own = folders.filter(|folder| {
            let name = folder.file_name();
            name.to_string_lossy().starts_with(".part-pull.")
        });
        own.map(|own| incoming(&own.path(), "")).max().unwrap_or(0)
    }

    fn disturb(&self, disturbance: impl FnOnce()) -> Ran {
        let pull = || self.pull(SLOWLY);
        self.0.disturb(pull, || self.incoming(), disturbance)
    }

    fn has(&self) -> bool {
        let path = self.0.folder.join("got/out/large");
        is_whole(&path, &CONTENT, &self.0.what())
    }

    fn check(&self, ran: &Ran) {
        let what = self.0.what();
        assert_ne!(ran.status, 0, "{what}: {}", ran.err);
        assert!(!self.has(), "{what}");
        let none_is_ok = records(&ran.out).iter().all(|(_, ok, _)| !ok);
        assert!(none_is_ok, "{what}: {}", ran.out);
    }

    /// One whose host had read all of the file before it changed, and was only waiting for the
    /// link, has it as it was; any other has failed.
    fn check_change(&self, ran: &Ran) {
        if ran.status != 0 {
            return self.check(ran);
        }
        assert!(self.has(), "{}", self.0.what());
        self.forget();
    }

    fn complete(&self, goes_on: bool) {
        let what = self.0.what();
        let again = self.pull("");
        let is_complete = again.status == 0 && self.has();
        assert!(is_complete, "after {what}: {} {}", again.status, again.err);
        let records = records(&again.out);
        let arrived: u64 = records.iter().map(|(.., arrived)| arrived).sum();
        let went_on = arrived < LARGE as u64;
        assert_eq!(went_on, goes_on, "after {what}: {arrived} bytes came");
        assert_eq!(self.incoming(), 0, "after {what}");
    }

    /// It is mounted for this one command.
    fn pull_to_bad_folder(&self, mount: &str, message: &str) {
        let what = self.0.what();
        let over = self.0.wire.options;
        let ran = self.0.sh(&format!(
            "ipconf-check ip.txt >hosts && mkdir -p got && \
             mount -t tmpfs -o {mount} none got || exit 99
             part-pull {over} --workspace /srv --to got out <hosts; status=$?; \
             ls got/out/large && status=98; umount got; exit $status"
        ));
        if ran.status == 99 {
            return support::skipped!("no right to mount");
        }
        let is_said = [1, 74].contains(&ran.status) && ran.err.contains(message);
        assert!(is_said, "{what}: {} {}", ran.status, ran.err);
        assert!(!self.has(), "{what}");
        self.complete(false);
    }
}

fn pull_with_faults(cells: Cells) {
    let folder = scratch();
    let cluster = Cluster::up_impatient(3, SLOW_LINK, SILENCE);
    try_faults(&PULLS, &OF_A_PULL, cells, |wire, fault| {
        Pull(Lab::of(&cluster, &folder, wire, fault)).attempt();
    });
    cluster.assert_clean();
}

#[test]
fn real_hosts_give_no_half_file_whatever_happens() {
    pull_with_faults(Cells::Sample);
}

#[test]
#[ignore = "make test-matrices"]
fn the_whole_matrix_of_faults_while_real_hosts_give_files() {
    pull_with_faults(Cells::All);
}

/// `make faults` tries all of them.
#[test]
fn slow_a_system_call_that_fails_breaks_nothing() {
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
        support::skipped!("{}", ran.err);
        return;
    }
    ran.ends(0).out_has_times(": 0 faults", 2);
}
