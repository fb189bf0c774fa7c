//! Decides whether the job's processes on this host give signs of life, from one look to the next.
//!
//! Signs are processor time beyond what waiting takes, bytes read from or written to files, and
//! bytes that the processes' own TCP sockets move, to other hosts or to this one. All of these are
//! summed up over several looks, because little in a short time tells nothing: the kernel counts
//! processor time in hundredths of a second, and disks move pages. The sockets of a process that
//! computes are not examined, so that a busy job costs little. What other programs do on the host
//! does not count.

use super::members::{Running, families, own_pid};
use crate::netlink;
use crate::processes;
use crate::procfs::{self, IoCounts, Stat};
use job::SHORTEST_STALL;
use record::Sign;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

/// For so long signs are summed up before it begins anew. In a window shorter than
/// [`SHORTEST_STALL`], as much is a sign as in that time.
const LONGEST_WINDOW: Duration = Duration::from_secs(10);
/// Processor time above this is a sign, in milliseconds a second for a process with all its
/// threads. A trainer of DGL 1.0 that waits in a barrier of DGL's or of gloo takes 0 to 4 with its
/// sampler, a server none.
const CPU_RATE: u64 = 10;
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

/// The windows over which signs are summed up, and the last sign of each process.
#[derive(Debug)]
pub struct ActivityWatch {
    pace: Duration,
    looked: Instant,
    windows: HashMap<u32, Window>,
    latest_signs: HashMap<u32, Instant>,
    /// The time from which processes count as silent that have given no sign.
    begun: Instant,
    last_sign: Instant,
    /// The process that gave the last sign, and which; `None` if none did since all silences were
    /// started anew.
    last_by: Option<(u32, Sign)>,
}

/// When the window of a process and its children began, and what was counted until then.
#[derive(Debug)]
struct Window {
    begun: Instant,
    counts: Counts,
    /// `None` if the sockets were not examined.
    net: Option<NetCounts>,
}

/// The processor time in clock ticks and the file counters of each process of a family, by process
/// id and start time.
#[derive(Debug, Default)]
struct Counts(HashMap<(i32, u64), (u64, Option<IoCounts>)>);

impl Counts {
    fn now(stats: &BTreeMap<i32, Stat>, family: &BTreeSet<i32>) -> Counts {
        let count = |pid: &i32| {
            let stat = &stats[pid];
            // the time of children that have ended is counted with their parent
            let ticks = stat.cpu_ticks.saturating_add(stat.children_ticks);
            // the kernel refuses the other to a process that takes other rights, for a moment
            ((*pid, stat.start_ticks), (ticks, procfs::io(*pid)))
        };
        Counts(family.iter().map(count).collect())
    }

    /// The sign that has been given from `before` until now, if any.
    fn sign_since(&self, before: &Counts, window: Duration, computes: bool) -> Option<Sign> {
        let (mut ticks, mut disk_bytes, mut file_bytes) = (0, 0, 0);
        for (process, (now_ticks, io)) in &self.0 {
            let (then_ticks, then) = before.0.get(process).copied().unwrap_or_default();
            ticks = now_ticks.saturating_sub(then_ticks).max(ticks);
            let (io, then) = (io.unwrap_or_default(), then.unwrap_or_default());
            disk_bytes += io.disk_bytes.saturating_sub(then.disk_bytes);
            file_bytes += io.file_bytes.saturating_sub(then.file_bytes);
        }
        let cpu_ms = procfs::ticks_to_ms(ticks);
        let moves_files =
            is_above(disk_bytes, DISK_RATE, window) || is_above(file_bytes, FILE_RATE, window);
        match () {
            () if computes && is_above(cpu_ms, CPU_RATE, window) => Some(Sign::Processor),
            () if moves_files => Some(Sign::Files),
            () => None,
        }
    }
}

/// Bytes moved over the network until a look, by the inode of each socket; or of the whole host,
/// where the kernel does not tell which process moved them.
#[derive(Clone, Debug)]
struct NetCounts {
    bytes: HashMap<u64, u64>,
    is_host: bool,
}

impl NetCounts {
    fn of_host() -> NetCounts {
        let sockets = netlink::tcp_bytes();
        NetCounts {
            is_host: sockets.is_none(),
            bytes: sockets.unwrap_or_else(|| {
                let host = procfs::host_usage();
                let bytes = host.net_rx_bytes.saturating_add(host.net_tx_bytes);
                HashMap::from([(0, bytes)])
            }),
        }
    }

    /// Those of the sockets of these processes, which may share some.
    fn of(&self, family: &BTreeSet<i32>) -> NetCounts {
        let mut counts = self.clone();
        if !self.is_host {
            let held = family.iter().flat_map(|pid| procfs::socket_inodes(*pid));
            let held: BTreeSet<u64> = held.collect();
            counts.bytes.retain(|inode, _| held.contains(inode));
        }
        counts
    }

    /// Whether enough has been moved since then to be a sign. Sockets that were not examined then
    /// count as moving, because nothing is known about them.
    fn is_sign(&self, before: Option<&NetCounts>, window: Duration) -> bool {
        let Some(before) = before.filter(|before| before.is_host == self.is_host) else {
            return true;
        };
        let moved = self.bytes.iter().map(|(inode, bytes)| {
            bytes.saturating_sub(before.bytes.get(inode).copied().unwrap_or(0))
        });
        let rate = if self.is_host {
            HOST_NET_RATE
        } else {
            NET_RATE
        };
        is_above(moved.sum(), rate, window)
    }
}

impl ActivityWatch {
    /// Starts to watch now.
    pub fn begin(pace: Duration, now: Instant) -> ActivityWatch {
        ActivityWatch {
            pace,
            looked: now,
            windows: HashMap::new(),
            latest_signs: HashMap::new(),
            begun: now,
            last_sign: now,
            last_by: None,
        }
    }

    /// Whether it is time to look again.
    pub fn is_due(&self, now: Instant) -> bool {
        now >= self.looked + self.pace
    }

    /// Notes a sign of life of a process.
    pub fn sign(&mut self, index: u32, sign: Sign, now: Instant) {
        self.latest_signs.insert(index, now);
        (self.last_sign, self.last_by) = (now, Some((index, sign)));
    }

    /// The process of the job that gave the last sign, and which, if that is known.
    pub fn last_by(&self) -> Option<(u32, Sign)> {
        self.last_by.filter(|(index, _)| *index != STRAYS)
    }

    /// Starts all silences anew, because something else prevents signs of life.
    pub fn excuse(&mut self, now: Instant) {
        (self.begun, self.last_sign, self.last_by) = (now, now, None);
        self.latest_signs.clear();
    }

    /// For how long no process has given a sign.
    pub fn idle(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.last_sign)
    }

    /// For how long this process has given no sign.
    pub fn idle_of(&self, index: u32, now: Instant) -> Duration {
        let sign = self.latest_signs.get(&index).copied().unwrap_or(self.begun);
        now.saturating_duration_since(sign)
    }

    /// Looks for signs of all processes together, and of each process in `wanted`.
    pub fn examine(&mut self, running: &[Running], wanted: &BTreeSet<u32>, now: Instant) {
        let looked = std::mem::replace(&mut self.looked, now);
        let interval = now.saturating_duration_since(looked);
        let stats = procfs::stats();
        let roots = running.iter().map(|one| (one.index, one.pid));
        let mut families = families(&stats, roots.chain([(STRAYS, own_pid())]));
        if let Some(strays) = families.get_mut(&STRAYS) {
            // our own questions about the host
            strays.retain(|pid| *pid != own_pid() && !processes::is_outside(*pid));
        }
        // what serves others works only for its clients, which would move too; a graph server
        // whose client has died spins for ever
        let computes = |index: u32| {
            let process = running.iter().find(|one| one.index == index);
            process.is_none_or(|one| !one.serves)
        };
        let mut counted = Vec::new();
        for (index, family) in &families {
            let counts = Counts::now(&stats, family);
            let window = self.windows.entry(*index).or_insert_with(|| Window {
                begun: looked,
                counts: Counts::default(),
                net: None,
            });
            let time = now.saturating_duration_since(window.begun);
            let sign = counts.sign_since(&window.counts, time, computes(*index));
            counted.push((*index, counts, sign));
        }
        let all_rest = counted.iter().all(|(.., sign)| sign.is_none());
        let asks = |index, sign: &Option<Sign>| sign.is_none() && wanted.contains(index);
        let net = (all_rest || counted.iter().any(|(index, _, sign)| asks(index, sign)))
            .then(NetCounts::of_host);
        for ((index, counts, sign), (_, family)) in counted.into_iter().zip(&families) {
            let net = net
                .as_ref()
                .filter(|_| sign.is_none())
                .map(|net| net.of(family));
            let sign = sign.or_else(|| {
                let window = &self.windows[&index];
                let time = now.saturating_duration_since(window.begun);
                let moves = !family.is_empty() && net.as_ref()?.is_sign(window.net.as_ref(), time);
                moves.then_some(Sign::Network)
            });
            if let Some(sign) = sign {
                self.sign(index, sign, now);
            }
            self.go_on(index, counts, net, (sign.is_some(), now));
        }
        if interval > self.pace * LATE {
            self.excuse(now);
        }
    }

    /// Ends the window of a process after a sign, or when it has become too long.
    fn go_on(
        &mut self,
        index: u32,
        mut counts: Counts,
        net: Option<NetCounts>,
        (is_sign, now): (bool, Instant),
    ) {
        let Some(window) = self.windows.get_mut(&index) else {
            return;
        };
        if is_sign || now.saturating_duration_since(window.begun) >= LONGEST_WINDOW {
            for (process, (_, io)) in &mut counts.0 {
                let before = window.counts.0.get(process);
                *io = io.or_else(|| before?.1);
            }
            let begun = now;
            *window = Window { begun, counts, net };
        } else if net.is_none() || window.net.is_none() {
            window.net = net;
        }
    }
}

/// Whether this is more than `rate` a second, as a sign must be.
fn is_above(amount: u64, rate: u64, window: Duration) -> bool {
    let window = window.max(SHORTEST_STALL).as_millis();
    let window_ms = u64::try_from(window).unwrap_or(u64::MAX);
    amount > 0 && amount.saturating_mul(1000) >= rate.saturating_mul(window_ms)
}

#[cfg(test)]
mod tests {
    use super::*;
    use job::Role;
    use std::io::{Read, Write};
    use std::process::{Child, Command, Stdio};

    #[test]
    fn waiting_takes_little() {
        let second = Duration::from_secs(1);
        let busy = [(0, 1), (40, 1), (50, 1), (50, 6), (90, 10), (100, 10)];
        let found = busy.map(|(ms, seconds)| is_above(ms, CPU_RATE, second * seconds));
        assert_eq!(found, [false, false, true, false, false, true]);
    }

    struct Shell(Child);

    impl Shell {
        fn run(script: &str) -> Shell {
            let mut command = Command::new("sh");
            command.args(["-c", script]).stdin(Stdio::piped());
            Shell(command.stdout(Stdio::piped()).spawn().unwrap())
        }

        fn watched(&self, computes: bool) -> Running {
            Running {
                index: 0,
                pid: self.0.id().cast_signed(),
                role: Role::Server,
                rank: 0,
                serves: !computes,
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

        fn examine(&mut self, watched: Running) -> bool {
            self.1 += Duration::from_secs(1);
            self.0.examine(&[watched], &[0].into(), self.1);
            self.0.idle_of(0, self.1).is_zero()
        }

        /// Until two looks have found nothing.
        fn settle(&mut self, watched: Running) {
            let begun = Instant::now();
            while self.examine(watched) || self.examine(watched) {
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
            assert_eq!(looks.examine(watched), expected, "{case}");
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
        for _ in 0..4 {
            stdin.write_all(&read).unwrap();
            shell
                .0
                .stdout
                .as_mut()
                .unwrap()
                .read_exact(&mut read)
                .unwrap();
        }
        assert!(looks.examine(watched));
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
        for (case, is_sign) in [("too little", false), ("enough together", true)] {
            shell.go_on();
            peer.read_exact(&mut [0; 3000]).unwrap();
            assert_eq!(looks.examine(watched), is_sign, "{case}");
        }
        looks.settle(watched);
    }

    #[test]
    fn a_look_that_comes_late_says_nothing() {
        let shell = Shell::run("read a");
        let (watched, mut looks) = (shell.watched(true), Looks::begin());
        looks.settle(watched);
        assert!(looks.0.idle_of(0, looks.1) >= Duration::from_secs(1));
        looks.1 += Duration::from_secs(5);
        assert!(looks.examine(watched), "the host was stopped");
        looks.settle(watched);
    }
}
