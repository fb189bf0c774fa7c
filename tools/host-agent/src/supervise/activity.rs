//! Decides whether the job's processes on this host give signs of life, from one look to the next.
//!
//! Signs are processor time beyond what waiting takes, bytes read from or written to files, and
//! bytes that the processes' own TCP sockets move, to other hosts or to this one. The sockets of a
//! process that computes are not examined, so that a busy job costs little. What other programs do
//! on the host does not count.

use super::usage::families;
use crate::netlink;
use crate::processes;
use crate::procfs::{self, IoCounts, Stat};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

/// Processor time above this is a sign, in thousandths of a processor for a process with all its
/// threads. A trainer of DGL 1.0 that waits in a barrier of DGL's or of gloo takes 0.0 to 0.4 %
/// with its sampler, a server 0.0 %.
const BUSY_PER_MILLE: u64 = 10;
/// Processor time below this is not a sign in any case: the kernel counts in hundredths of a
/// second.
const BUSY_MS: u64 = 20;
/// Bytes a second above which disk input and output are a sign: a page in four seconds.
const DISK_RATE: u64 = 1 << 10;
/// Bytes a second above which read(2) and write(2) are a sign. They include pipes and events
/// between threads, and programs that watch their host read some KiB a second in /proc.
const FILE_RATE: u64 = 64 << 10;
/// Bytes a second above which traffic over connections is a sign. torchrun's rendezvous exchanges
/// some hundred bytes in five seconds.
const NET_RATE: u64 = 1 << 10;
/// The same over the host's network interfaces, if the kernel does not tell which process moved
/// them.
const HOST_NET_RATE: u64 = 64 << 10;
/// A look that comes this many times later than it should says nothing: the host or this program
/// was stopped.
const LATE: u32 = 3;
/// The index of processes that have left their parents and came to us.
const STRAYS: u32 = u32::MAX;

/// A process of the job that is watched.
#[derive(Clone, Copy, Debug)]
pub struct Watched {
    /// The number of the process on its host.
    pub index: u32,
    /// The process id.
    pub pid: i32,
    /// Whether computing alone is a sign of life. Graph servers that listen work only when asked,
    /// and a server of DGL whose client has died spins for ever.
    pub computes: bool,
}

/// The last look, and the last sign of each process.
#[derive(Debug)]
pub struct ActivityWatch {
    pace: Duration,
    looked: Instant,
    cpu_ticks: HashMap<(i32, u64), u64>,
    io: HashMap<(i32, u64), IoCounts>,
    net: Option<NetCounts>,
    signs: HashMap<u32, Instant>,
    /// The time from which processes count as silent that have given no sign.
    begun: Instant,
    last_sign: Instant,
}

/// Bytes moved over the network until a look.
#[derive(Debug)]
enum NetCounts {
    /// By the inode of each socket.
    Sockets(HashMap<u64, u64>),
    /// By the interfaces of the host.
    Host(u64),
}

impl NetCounts {
    fn now() -> NetCounts {
        netlink::tcp_bytes().map_or_else(
            || {
                let host = procfs::host_counters();
                NetCounts::Host(host.net_rx_bytes.saturating_add(host.net_tx_bytes))
            },
            NetCounts::Sockets,
        )
    }
}

impl ActivityWatch {
    /// Starts to watch now.
    pub fn begin(pace: Duration, now: Instant) -> ActivityWatch {
        ActivityWatch {
            pace,
            looked: now,
            cpu_ticks: HashMap::new(),
            io: HashMap::new(),
            net: None,
            signs: HashMap::new(),
            begun: now,
            last_sign: now,
        }
    }

    /// Whether it is time to look again.
    pub fn is_due(&self, now: Instant) -> bool {
        now >= self.looked + self.pace
    }

    /// Notes a sign of life of a process.
    pub fn sign(&mut self, index: u32, now: Instant) {
        self.signs.insert(index, now);
        self.last_sign = now;
    }

    /// Starts all silences anew, because something else prevents signs of life.
    pub fn excuse(&mut self, now: Instant) {
        (self.begun, self.last_sign) = (now, now);
        self.signs.clear();
    }

    /// For how long no process has given a sign.
    pub fn idle(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.last_sign)
    }

    /// For how long this process has given no sign.
    pub fn idle_of(&self, index: u32, now: Instant) -> Duration {
        let sign = self.signs.get(&index).copied().unwrap_or(self.begun);
        now.saturating_duration_since(sign)
    }

    /// Looks for signs of all processes together, and of each process in `wanted`.
    pub fn look(&mut self, all: &[Watched], wanted: &BTreeSet<u32>, now: Instant) {
        let interval = now.saturating_duration_since(self.looked);
        self.looked = now;
        let own = std::process::id().cast_signed();
        let stats: BTreeMap<i32, Stat> = procfs::pids()
            .into_iter()
            .filter_map(|pid| Some((pid, procfs::stat(pid)?)))
            .collect();
        let mut roots: Vec<(u32, i32)> = all.iter().map(|one| (one.index, one.pid)).collect();
        roots.push((STRAYS, own));
        let mut families = families(&stats, &roots);
        for (index, family) in &mut families {
            family.remove(&own);
            if *index == STRAYS {
                // our own questions about the host
                family.retain(|pid| !processes::is_outside(*pid));
            }
        }
        let computes = |index: u32| {
            let watched = all.iter().find(|one| one.index == index);
            watched.is_none_or(|one| one.computes)
        };
        let busy = self.look_at_cpu(&stats, &families, interval);
        let moving = self.look_at_io(&stats, &families, interval);
        let mut moved: BTreeSet<u32> = busy.into_iter().filter(|one| computes(*one)).collect();
        moved.extend(moving);
        families.retain(|(index, _)| !moved.contains(index));
        let asks = moved.is_empty() || families.iter().any(|(index, _)| wanted.contains(index));
        match asks {
            true => moved.extend(self.look_at_net(&families, interval)),
            false => self.net = None,
        }
        for index in moved {
            self.sign(index, now);
        }
        if interval > self.pace * LATE {
            self.excuse(now);
        }
    }

    fn look_at_cpu(
        &mut self,
        stats: &BTreeMap<i32, Stat>,
        families: &[(u32, BTreeSet<i32>)],
        interval: Duration,
    ) -> Vec<u32> {
        // the time of children that have ended is counted with their parent
        let ticks = |pid| {
            let stat: &Stat = &stats[&pid];
            Some(stat.cpu_ticks.saturating_add(stat.children_ticks))
        };
        let is_sign = |changes: &[(u64, u64)]| {
            let taken = changes.iter().map(|(was, is)| is.saturating_sub(*was));
            is_busy(procfs::ticks_to_ms(taken.max().unwrap_or(0)), interval)
        };
        signs_of(&mut self.cpu_ticks, stats, families, ticks, is_sign)
    }

    fn look_at_io(
        &mut self,
        stats: &BTreeMap<i32, Stat>,
        families: &[(u32, BTreeSet<i32>)],
        interval: Duration,
    ) -> Vec<u32> {
        let is_sign = |changes: &[(IoCounts, IoCounts)]| {
            let moved = |count: fn(&IoCounts) -> u64| {
                let each = changes.iter();
                each.map(|(was, is)| count(is).saturating_sub(count(was)))
                    .sum()
            };
            is_above(moved(|one| one.disk_bytes), DISK_RATE, interval)
                || is_above(moved(|one| one.file_bytes), FILE_RATE, interval)
        };
        signs_of(&mut self.io, stats, families, procfs::io, is_sign)
    }

    /// Sockets that were not examined before count as moving, because nothing is known about them.
    fn look_at_net(
        &mut self,
        families: &[(u32, BTreeSet<i32>)],
        interval: Duration,
    ) -> BTreeSet<u32> {
        let now = NetCounts::now();
        let before = self.net.take();
        let moves = |family: &BTreeSet<i32>| match (&before, &now) {
            (Some(NetCounts::Sockets(before)), NetCounts::Sockets(now)) => {
                let inodes = family.iter().flat_map(|pid| procfs::socket_inodes(*pid));
                // processes of a job may share a socket
                let moved = inodes
                    .collect::<BTreeSet<u64>>()
                    .iter()
                    .fold(0, |sum, inode| {
                        let earlier = before.get(inode).copied().unwrap_or(0);
                        let bytes = now.get(inode).copied().unwrap_or(0);
                        sum + bytes.saturating_sub(earlier)
                    });
                is_above(moved, NET_RATE, interval)
            }
            (Some(NetCounts::Host(before)), NetCounts::Host(now)) => {
                is_above(now.saturating_sub(*before), HOST_NET_RATE, interval)
            }
            _ => true,
        };
        let moved = families
            .iter()
            .filter(|(_, family)| !family.is_empty() && moves(family))
            .map(|(index, _)| *index)
            .collect();
        self.net = Some(now);
        moved
    }
}

/// The families whose counters have changed enough since the last look to be a sign of life.
/// `counters` has those of the last look by process id and start time, and gets those of this one;
/// `count` reads them, and `is_sign` judges the earlier and present ones of a family.
fn signs_of<T: Copy + Default>(
    counters: &mut HashMap<(i32, u64), T>,
    stats: &BTreeMap<i32, Stat>,
    families: &[(u32, BTreeSet<i32>)],
    count: impl Fn(i32) -> Option<T>,
    is_sign: impl Fn(&[(T, T)]) -> bool,
) -> Vec<u32> {
    let mut seen = HashMap::new();
    let mut signs = Vec::new();
    for (index, family) in families {
        let mut changes = Vec::new();
        for pid in family {
            let key = (*pid, stats[pid].start_ticks);
            let earlier = counters.get(&key).copied();
            // the kernel refuses some for a moment to a process that takes other rights
            let Some(now) = count(*pid).or(earlier) else {
                continue;
            };
            changes.push((earlier.unwrap_or_default(), now));
            seen.insert(key, now);
        }
        if is_sign(&changes) {
            signs.push(*index);
        }
    }
    *counters = seen;
    signs
}

/// Whether this processor time is more than waiting takes.
fn is_busy(cpu_ms: u64, interval: Duration) -> bool {
    let interval_ms = u64::try_from(interval.as_millis()).unwrap_or(u64::MAX);
    cpu_ms >= (interval_ms.saturating_mul(BUSY_PER_MILLE) / 1000).max(BUSY_MS)
}

/// Whether this number of bytes is more than `rate` a second.
fn is_above(bytes: u64, rate: u64, interval: Duration) -> bool {
    let interval_ms = u64::try_from(interval.as_millis()).unwrap_or(u64::MAX);
    bytes > 0 && bytes.saturating_mul(1000) >= rate.saturating_mul(interval_ms)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::process::{Child, Command, Stdio};

    #[test]
    fn waiting_takes_little() {
        let second = Duration::from_secs(1);
        let busy = [(0, 1), (10, 1), (20, 1), (30, 10), (90, 10), (100, 10)];
        let found = busy.map(|(ms, seconds)| is_busy(ms, second * seconds));
        assert_eq!(found, [false, false, true, false, false, true]);
        let above = [(0, 1), (1023, 1), (1024, 1), (5000, 10), (10_240, 10)];
        let found = above.map(|(bytes, seconds)| is_above(bytes, 1024, second * seconds));
        assert_eq!(found, [false, false, true, false, true]);
    }

    struct Shell(Child);

    impl Shell {
        fn run(script: &str) -> Shell {
            let mut command = Command::new("sh");
            command.args(["-c", script]).stdin(Stdio::piped());
            Shell(command.stdout(Stdio::piped()).spawn().unwrap())
        }

        fn watched(&self, computes: bool) -> Watched {
            Watched {
                index: 0,
                pid: self.0.id().cast_signed(),
                computes,
            }
        }

        /// Has it go on, and waits until it has done the next thing.
        fn go_on(&mut self) {
            self.0.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
            self.0
                .stdout
                .as_mut()
                .unwrap()
                .read_exact(&mut [0])
                .unwrap();
        }
    }

    impl Drop for Shell {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// Looks again and again, a second of its clock later each, and says after each look whether
    /// there was a sign.
    struct Looks(ActivityWatch, Instant);

    impl Looks {
        fn begin() -> Looks {
            let now = Instant::now();
            Looks(ActivityWatch::begin(Duration::from_secs(1), now), now)
        }

        fn look(&mut self, watched: Watched) -> bool {
            self.1 += Duration::from_secs(1);
            self.0.look(&[watched], &[0].into(), self.1);
            self.0.idle_of(0, self.1).is_zero()
        }

        /// Until two looks have found nothing.
        fn settle(&mut self, watched: Watched) {
            let begun = Instant::now();
            while self.look(watched) || self.look(watched) {
                assert!(begun.elapsed().as_secs() < 30, "it never rests");
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    }

    #[test]
    fn who_computes_or_reads_gives_a_sign_and_who_waits_gives_none() {
        let spin = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; printf x";
        let table = [
            ("computes", spin, true, true),
            ("a server that computes", spin, false, false),
            ("a child computes", &*format!("({spin})"), true, true),
            ("waits", "printf x", true, false),
        ];
        for (case, work, computes, expected) in table {
            let mut shell = Shell::run(&format!("read a; {work}; read b"));
            let (watched, mut looks) = (shell.watched(computes), Looks::begin());
            looks.settle(watched);
            shell.go_on();
            assert_eq!(looks.look(watched), expected, "{case}");
            looks.settle(watched);
        }
    }

    #[test]
    fn who_reads_gives_a_sign() {
        let mut shell = Shell::run("exec cat");
        let (watched, mut looks) = (shell.watched(true), Looks::begin());
        looks.settle(watched);
        let stdin = shell.0.stdin.as_mut().unwrap();
        let mut read = vec![0; 60_000];
        for _ in 0..2 {
            stdin.write_all(&read).unwrap();
            shell
                .0
                .stdout
                .as_mut()
                .unwrap()
                .read_exact(&mut read)
                .unwrap();
        }
        assert!(looks.look(watched));
        looks.settle(watched);
    }

    #[test]
    fn who_sends_gives_a_sign_though_it_takes_no_time() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let script = format!(
            "exec python3 -c 'import socket, sys\ns = socket.create_connection\
            ((\"127.0.0.1\", {port}))\nwhile sys.stdin.readline(): s.sendall(bytes(3000)); \
            print(end=\"x\", flush=True)'"
        );
        let mut shell = Shell::run(&script);
        let (mut peer, _) = listener.accept().unwrap();
        let (watched, mut looks) = (shell.watched(true), Looks::begin());
        looks.settle(watched);
        shell.go_on();
        peer.read_exact(&mut [0; 3000]).unwrap();
        assert!(looks.look(watched));
        looks.settle(watched);
    }

    #[test]
    fn a_look_that_comes_late_says_nothing() {
        let shell = Shell::run("read a");
        let (watched, mut looks) = (shell.watched(true), Looks::begin());
        looks.settle(watched);
        assert!(looks.0.idle_of(0, looks.1) >= Duration::from_secs(1));
        looks.1 += Duration::from_secs(5);
        assert!(looks.look(watched), "the host was stopped");
        looks.settle(watched);
    }
}
