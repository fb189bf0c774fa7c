//! Decides whether the job's processes on this host show activity, from one sample to the next.
//!
//! Activity is CPU time beyond that of waiting, bytes read from or written to files, and bytes over
//! the processes' TCP sockets, to any host; other programs do not count. It is summed up over
//! several samples, because the kernel counts CPU time in hundredths of a second and disks transfer
//! pages. Sockets are only read while there is no other activity, so that a busy job costs little.
//!
//! CPU time alone does not prove progress: a process may spin while it waits. Nor do small messages
//! over a connection: a rank of torch that waits for its group polls whether the others have
//! arrived. Stacks show whether such a process has left its position ([`super::position_watch`]).

use super::members::{Running, families, own_pid};
use host::netlink::{self, Traffic};
use host::processes::{self, ProcessHandle};
use host::procfs::{self, IoCounts, Stat};
use job::SHORTEST_STALL;
use record::Sign;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

/// The length of a window over which activity is summed up. A window shorter than
/// [`SHORTEST_STALL`] requires as much as one of that length.
const LONGEST_WINDOW: Duration = Duration::from_secs(10);
/// CPU time above this is activity, in milliseconds per second for a process with all its threads.
/// A trainer of DGL 1.0 that waits in a barrier of DGL or gloo uses 0 to 4 with its sampler, a
/// server none.
const CPU_RATE: u64 = 10;
/// Bytes per second above which disk input and output are activity: a page in four seconds.
const DISK_RATE: u64 = 1 << 10;
/// The same for read(2) and write(2), which include pipes and events between threads. Programs that
/// watch their host read some KiB per second in /proc. And for page faults: the pages of a process
/// that waits return one by one after memory was short, while one that reads a mapped file needs
/// many.
const FILE_RATE: u64 = 64 << 10;
/// The same for connections. torchrun's rendezvous exchanges some hundred bytes in five seconds.
const NET_RATE: u64 = 1 << 10;
/// Messages with smaller segments on average, in bytes, may be polling: those to torch's store have
/// 20 to 150. Content fills its segments, of 1448 bytes or more.
const SMALL_SEGMENT: u64 = 512;
/// The same over the host's interfaces, if the kernel does not report sockets.
const HOST_NET_RATE: u64 = 64 << 10;
/// A sample that is late by this factor proves nothing: the host or this program was stopped.
const LATE: u32 = 3;
/// The index of orphaned processes that this process has adopted.
const STRAYS: u32 = u32::MAX;

#[derive(Debug)]
pub struct ActivityWatch {
    pace: Duration,
    checked_at: Instant,
    processor: HashMap<ProcessHandle, Window<ProcessorTime>>,
    /// The files of each process and its children.
    files: HashMap<u32, Window<FileCounts>>,
    /// The sockets of each process and its children, since they were first read.
    net: HashMap<u32, Window<NetCounts>>,
    latest_signs: HashMap<u32, Instant>,
    /// When processes without activity begin to count as idle.
    begun: Instant,
    /// The last activity that proves progress; CPU time does not.
    last_moved: Instant,
    /// The process that showed it; `None` after a reset.
    moved_by: Option<(u32, Sign)>,
    /// The live processes that have computed since `last_moved`.
    computed: HashMap<ProcessHandle, Computed>,
}

/// The begin of a window, and the counters then.
#[derive(Debug)]
struct Window<C> {
    begun: Instant,
    counts: C,
}

impl<C> Window<C> {
    fn length(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.begun)
    }

    /// Begins a new window after activity, or when this one is long enough.
    fn go_on(&mut self, is_sign: bool, counts: C, now: Instant) {
        if is_sign || self.length(now) >= LONGEST_WINDOW {
            *self = Window { begun: now, counts };
        }
    }
}

/// The CPU time of a process, and of its children that have ended, in clock ticks.
#[derive(Clone, Copy, Debug, Default)]
struct ProcessorTime {
    process: u64,
    children: u64,
}

/// When a process last computed, and which started process it descends from.
#[derive(Clone, Copy, Debug)]
struct Computed {
    index: u32,
    time: Instant,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rest {
    pub since: Instant,
    /// The last activity, if it is known which process showed it.
    pub by: Option<(u32, Sign)>,
    /// The processes that have computed since without progress.
    pub computing: Vec<ProcessHandle>,
}

/// The file counters of each process of a family.
#[derive(Debug, Default)]
struct FileCounts(HashMap<ProcessHandle, Option<IoCounts>>);

impl FileCounts {
    fn now(family: &[ProcessHandle]) -> FileCounts {
        // the kernel denies access to a process for a moment while it changes its user
        let counts = family
            .iter()
            .map(|process| (*process, procfs::io(process.pid)));
        FileCounts(counts.collect())
    }

    fn fill_gaps(&mut self, before: &FileCounts) {
        for (process, io) in &mut self.0 {
            *io = io.or_else(|| *before.0.get(process)?);
        }
    }

    fn is_sign(&self, before: &FileCounts, window: Duration) -> bool {
        let (mut disk_bytes, mut file_bytes, mut fault_bytes) = (0, 0, 0);
        for (process, io) in &self.0 {
            let then = before.0.get(process).copied().flatten().unwrap_or_default();
            let io = io.unwrap_or_default();
            let disk_read = io.disk_read.saturating_sub(then.disk_read);
            let read = io.read.saturating_sub(then.read);
            // what no read(2) has asked for
            fault_bytes += disk_read.saturating_sub(read);
            disk_bytes += disk_read.min(read) + io.disk_written.saturating_sub(then.disk_written);
            file_bytes += read + io.written.saturating_sub(then.written);
        }
        is_above(disk_bytes, DISK_RATE, window)
            || is_above(file_bytes, FILE_RATE, window)
            || is_above(fault_bytes, FILE_RATE, window)
    }
}

/// Traffic by socket inode; of the whole host, if the kernel does not report sockets.
#[derive(Clone, Debug)]
struct NetCounts {
    sockets: HashMap<u64, Traffic>,
    is_host: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum NetSign {
    None,
    /// Small messages over these sockets.
    Small(BTreeSet<u64>),
    Contents,
}

impl NetCounts {
    fn of_host() -> NetCounts {
        let sockets = netlink::tcp_traffic();
        NetCounts {
            is_host: sockets.is_none(),
            sockets: sockets.unwrap_or_else(|| {
                let bytes = procfs::network_bytes();
                HashMap::from([(0, Traffic { bytes, segments: 0 })])
            }),
        }
    }

    /// The counts of these sockets, unless the counts are of the whole host.
    fn of(&self, held: &BTreeSet<u64>) -> NetCounts {
        if self.is_host {
            return self.clone();
        }
        // the host may have many more sockets
        let sockets = held
            .iter()
            .filter_map(|inode| Some((*inode, *self.sockets.get(inode)?)));
        NetCounts {
            sockets: sockets.collect(),
            is_host: false,
        }
    }

    fn sign(&self, before: &NetCounts, window: Duration) -> NetSign {
        let rate = if self.is_host {
            HOST_NET_RATE
        } else {
            NET_RATE
        };
        let (mut contents, mut total, mut small) = (0, 0, BTreeSet::new());
        for (inode, traffic) in &self.sockets {
            let then = before.sockets.get(inode).copied().unwrap_or_default();
            let moved = traffic.since(then);
            total += moved.bytes;
            // an old kernel does not count segments
            let mean = moved.bytes.checked_div(u64::from(moved.segments));
            if mean.is_none_or(|mean| mean >= SMALL_SEGMENT) {
                contents += moved.bytes;
            } else {
                small.insert(*inode);
            }
        }
        match (
            is_above(contents, rate, window),
            is_above(total, rate, window),
        ) {
            (true, _) => NetSign::Contents,
            (false, true) => NetSign::Small(small),
            (false, false) => NetSign::None,
        }
    }
}

impl ActivityWatch {
    pub fn begin(pace: Duration, now: Instant) -> ActivityWatch {
        ActivityWatch {
            pace,
            checked_at: now,
            processor: HashMap::new(),
            files: HashMap::new(),
            net: HashMap::new(),
            latest_signs: HashMap::new(),
            begun: now,
            last_moved: now,
            moved_by: None,
            computed: HashMap::new(),
        }
    }

    pub fn is_due(&self, now: Instant) -> bool {
        now >= self.checked_at + self.pace
    }

    pub fn sign(&mut self, index: u32, sign: Sign, now: Instant) {
        self.latest_signs.insert(index, now);
        self.note_progress(now, Some((index, sign)));
    }

    /// The process is not idle, which proves nothing about the job.
    pub fn note(&mut self, index: u32, now: Instant) {
        self.latest_signs.insert(index, now);
    }

    /// Before `time` it no longer matters which processes computed.
    fn note_progress(&mut self, time: Instant, by: Option<(u32, Sign)>) {
        if time >= self.last_moved {
            (self.last_moved, self.moved_by) = (time, by);
            self.computed.retain(|_, computed| computed.time > time);
        }
    }

    /// Starts all idle times again, because something else prevents activity.
    pub fn reset_idle(&mut self, now: Instant) {
        self.begun = now;
        self.note_progress(now, None);
        self.latest_signs.clear();
    }

    pub fn last_moved(&self) -> Instant {
        self.last_moved
    }

    pub fn computed(&self) -> Vec<ProcessHandle> {
        self.computed.keys().copied().collect()
    }

    /// `unchanged_since` returns since when a process that computed at a time has not left its
    /// position, if that is known.
    pub fn rest(
        &self,
        unchanged_since: impl Fn(ProcessHandle, Instant) -> Option<Instant>,
    ) -> Rest {
        let (mut since, mut by) = (self.last_moved, self.moved_by);
        for (process, Computed { index, time }) in &self.computed {
            let unchanged = unchanged_since(*process, *time);
            let left = unchanged.map_or(*time, |since| since.min(*time));
            if left > since {
                (since, by) = (left, Some((*index, Sign::Processor)));
            }
        }
        let is_later = |computed: &Computed| computed.time > since;
        let computing = self
            .computed
            .iter()
            .filter(|(_, computed)| is_later(computed));
        Rest {
            since,
            by: by.filter(|(index, _)| *index != STRAYS),
            computing: computing.map(|(process, _)| *process).collect(),
        }
    }

    pub fn idle_of(&self, index: u32, now: Instant) -> Duration {
        let sign = self.latest_signs.get(&index).copied().unwrap_or(self.begun);
        now.saturating_duration_since(sign)
    }

    /// Samples the activity of all processes together, and of each one in `wanted`.
    pub fn examine(&mut self, running: &[Running], wanted: &BTreeSet<u32>, now: Instant) {
        let checked_at = std::mem::replace(&mut self.checked_at, now);
        let stats = procfs::stats();
        let roots = running.iter().map(|process| (process.index, process.pid));
        let mut families = families(&stats, roots.chain([(STRAYS, own_pid())]));
        if let Some(strays) = families.get_mut(&STRAYS) {
            // programs that this process runs to examine the host
            strays.retain(|pid| *pid != own_pid() && !processes::is_outside(*pid));
        }
        // a process that serves others works only for its clients, which would be active, too; a
        // graph server whose client has died spins for ever
        let computes = |index: u32| {
            let process = running.iter().find(|process| process.index == index);
            process.is_none_or(|process| !process.serves)
        };
        self.forget_ended(&stats);
        let mut resting = BTreeSet::new();
        let handle = |pid: &i32| ProcessHandle {
            pid: *pid,
            start_ticks: stats[pid].start_ticks,
        };
        for (index, family) in &families {
            let family: Vec<ProcessHandle> = family.iter().map(handle).collect();
            let mut rests = true;
            for process in family.iter().filter(|_| computes(*index)) {
                let stat = &stats[&process.pid];
                rests &= !self.examine_processor(*index, *process, stat, checked_at, now);
            }
            if self.examine_files(*index, &family, checked_at, now) || !rests {
                continue;
            }
            resting.insert(*index);
        }
        let nothing_moves = self.last_moved <= checked_at;
        let asks = |index: &u32| nothing_moves || wanted.contains(index) && resting.contains(index);
        if families.keys().any(asks) {
            let net = NetCounts::of_host();
            for (index, family) in families.iter().filter(|(index, _)| asks(index)) {
                let family: Vec<ProcessHandle> = family.iter().map(handle).collect();
                self.examine_net(*index, &family, &net, computes(*index), now);
            }
        }
        if now.saturating_duration_since(checked_at) > self.pace * LATE {
            self.reset_idle(now);
        }
    }

    /// Counts the last CPU time of an ended process as progress, because its position is unknown.
    fn forget_ended(&mut self, stats: &BTreeMap<i32, Stat>) {
        let is_alive = |process: &ProcessHandle| {
            let stat = stats.get(&process.pid);
            stat.is_some_and(|stat| stat.start_ticks == process.start_ticks)
        };
        self.processor.retain(|process, _| is_alive(process));
        let computed = self.computed.iter();
        let ended = computed.filter(|(process, _)| !is_alive(process));
        let ended = ended.map(|(_, computed)| *computed);
        let last = ended.max_by_key(|computed| computed.time);
        self.computed.retain(|process, _| is_alive(process));
        if let Some(Computed { index, time }) = last {
            self.note_progress(time, Some((index, Sign::Processor)));
        }
    }

    /// CPU time of children that have ended proves progress.
    fn examine_processor(
        &mut self,
        index: u32,
        process: ProcessHandle,
        stat: &Stat,
        checked_at: Instant,
        now: Instant,
    ) -> bool {
        let window = self.processor.entry(process).or_insert_with(|| Window {
            begun: checked_at,
            counts: ProcessorTime::default(),
        });
        let counted = ProcessorTime {
            process: stat.cpu_ticks,
            children: stat.children_ticks,
        };
        let process_ticks = counted.process.saturating_sub(window.counts.process);
        let children = counted.children.saturating_sub(window.counts.children);
        let length = window.length(now);
        let is_sign = |ticks| is_above(procfs::ticks_to_ms(ticks), CPU_RATE, length);
        let (computes, moves) = (
            is_sign(process_ticks.saturating_add(children)),
            is_sign(children),
        );
        window.go_on(computes, counted, now);
        if moves {
            self.sign(index, Sign::Processor, now);
        } else if computes {
            self.latest_signs.insert(index, now);
            self.computed.insert(process, Computed { index, time: now });
        }
        computes
    }

    fn examine_files(
        &mut self,
        index: u32,
        family: &[ProcessHandle],
        checked_at: Instant,
        now: Instant,
    ) -> bool {
        let mut counts = FileCounts::now(family);
        let window = self.files.entry(index).or_insert_with(|| Window {
            begun: checked_at,
            counts: FileCounts::default(),
        });
        let is_sign = counts.is_sign(&window.counts, window.length(now));
        counts.fill_gaps(&window.counts);
        window.go_on(is_sign, counts, now);
        if is_sign {
            self.sign(index, Sign::Files, now);
        }
        is_sign
    }

    /// Notes whether a family uses the network. Sockets that were not read before count as active,
    /// because nothing is known about them. Small messages count only for a process that does not
    /// serve others (`computes`).
    fn examine_net(
        &mut self,
        index: u32,
        family: &[ProcessHandle],
        net: &NetCounts,
        computes: bool,
        now: Instant,
    ) {
        let held = |process: &ProcessHandle| procfs::socket_inodes(process.pid);
        let counts = net.of(&family.iter().flat_map(held).collect());
        let window = self.net.get_mut(&index);
        let window = window.filter(|window| window.counts.is_host == counts.is_host);
        let sign = match window {
            Some(window) => {
                let sign = counts.sign(&window.counts, window.length(now));
                window.go_on(sign != NetSign::None, counts, now);
                sign
            }
            None => {
                self.net.insert(index, Window { begun: now, counts });
                NetSign::Contents
            }
        };
        match sign {
            NetSign::Contents if !family.is_empty() => self.sign(index, Sign::Network, now),
            NetSign::Small(sockets) if computes => {
                self.note(index, now);
                let asks = |process: &&ProcessHandle| {
                    held(process).iter().any(|inode| sockets.contains(inode))
                };
                for process in family.iter().filter(asks) {
                    self.computed
                        .insert(*process, Computed { index, time: now });
                }
            }
            _ => {}
        }
    }
}

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

        /// Lets it continue, and waits until it has taken the next step.
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

    /// Samples repeatedly, with a clock that advances by a second, and reports after each sample
    /// whether there was activity.
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

        /// Samples until two samples have found no activity.
        fn settle(&mut self, watched: Running) {
            let begun = Instant::now();
            while self.examine(watched) || self.examine(watched) {
                assert!(begun.elapsed().as_secs() < 30, "it is never idle");
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    }

    #[test]
    fn slow_who_computes_or_reads_gives_a_sign_and_who_waits_gives_none() {
        let spin = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; printf x";
        let table = [
            ("computes", spin, true, true),
            ("a server that computes", spin, false, false),
            ("a child computes", &*format!("({spin})"), true, true),
            ("waits", "printf x", true, false),
        ];
        for (case, work, computes, expected) in table {
            let mut shell = Shell::run(&format!("read a; {work}; read b"));
            let (watched, mut samples) = (shell.watched(computes), Looks::begin());
            samples.settle(watched);
            shell.go_on();
            assert_eq!(samples.examine(watched), expected, "{case}");
            samples.settle(watched);
        }
    }

    const PROCESS: ProcessHandle = ProcessHandle {
        pid: 7,
        start_ticks: 1,
    };

    /// A process that has used this many hundredths of a second, as have its ended children.
    fn stat(cpu_ticks: u64, children_ticks: u64) -> Stat {
        Stat {
            state: 'R',
            parent: 1,
            group: 1,
            session: 1,
            cpu_ticks,
            children_ticks,
            start_ticks: PROCESS.start_ticks,
        }
    }

    #[test]
    fn a_process_that_computes_proves_progress_only_by_children_that_end() {
        // hundredths of a second; whether it computes, and whether that is progress
        let table = [
            (1, 0, false, false),
            (50, 0, true, false),
            (0, 50, true, true),
            (50, 50, true, true),
            (3, 3, true, false),
        ];
        let begun = Instant::now();
        let now = begun + Duration::from_secs(1);
        for (ticks, children, computes, moves) in table {
            let mut watch = ActivityWatch::begin(Duration::from_secs(1), begun);
            let stat = stat(ticks, children);
            let found = watch.examine_processor(0, PROCESS, &stat, begun, now);
            let has_computed = watch.computed() == [PROCESS];
            assert_eq!(
                (found, watch.last_moved() == now, has_computed),
                (computes, moves, computes && !moves),
                "{ticks} {children}"
            );
        }
    }

    #[test]
    fn a_process_that_computed_and_ended_made_progress() {
        let begun = Instant::now();
        let now = begun + Duration::from_secs(1);
        for (alive, moves) in [(vec![(PROCESS.pid, stat(50, 0))], false), (vec![], true)] {
            let mut watch = ActivityWatch::begin(Duration::from_secs(1), begun);
            watch.examine_processor(0, PROCESS, &stat(50, 0), begun, now);
            watch.forget_ended(&alive.into_iter().collect());
            assert_eq!(watch.computed().is_empty(), moves);
            let rest = watch.rest(|_, _| Some(begun));
            let by = moves.then_some((0, Sign::Processor));
            assert_eq!((rest.since == now, rest.by), (moves, by));
        }
    }

    #[test]
    fn processor_time_is_no_sign_of_a_process_that_stays_at_its_position() {
        let (files, processor) = (Some((1, Sign::Files)), Some((0, Sign::Processor)));
        // when there was other activity, when the process computed, since when it is at its
        // position; then since when there is no progress, who made the last, and whether the
        // process computes since
        let table = [
            (0, None, None, 0, files, false),
            (0, Some(50), None, 50, processor, false),
            (0, Some(50), Some(20), 20, processor, true),
            (30, Some(50), Some(20), 30, files, true),
            (0, Some(50), Some(60), 50, processor, false),
        ];
        let begun = Instant::now();
        let after = |seconds| begun + Duration::from_secs(seconds);
        for (moved, computed, unchanged, since, by, computes) in table {
            let mut watch = ActivityWatch::begin(Duration::from_secs(1), begun);
            watch.sign(1, Sign::Files, after(moved));
            let computed = computed.map(|computed| Computed {
                index: 0,
                time: after(computed),
            });
            let computed = computed.map(|computed| (PROCESS, computed));
            watch.computed.extend(computed);
            let rest = watch.rest(|_, _| unchanged.map(after));
            let expected = Rest {
                since: after(since),
                by,
                computing: if computes { vec![PROCESS] } else { Vec::new() },
            };
            assert_eq!(rest, expected);
        }
    }

    #[test]
    fn single_pages_that_return_are_no_activity() {
        let counts = |io: IoCounts| FileCounts(HashMap::from([(PROCESS, Some(io))]));
        let disk = |disk_read, read| IoCounts {
            disk_read,
            read,
            ..IoCounts::default()
        };
        // of ten seconds
        let table = [
            (disk(0, 0), false),
            (disk(100 << 10, 0), false),
            (disk(1 << 20, 0), true),
            // by read(2)
            (disk(100 << 10, 100 << 10), true),
        ];
        for (io, is_sign) in table {
            let found = counts(io).is_sign(&FileCounts::default(), Duration::from_secs(10));
            assert_eq!(found, is_sign, "{io:?}");
        }
    }

    #[test]
    fn reading_is_activity() {
        let mut shell = Shell::run("exec cat");
        let (watched, mut samples) = (shell.watched(true), Looks::begin());
        samples.settle(watched);
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
        assert!(samples.examine(watched));
        samples.settle(watched);
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
        let (watched, mut samples) = (shell.watched(true), Looks::begin());
        samples.settle(watched);
        for (case, is_sign) in [("too little", false), ("enough together", true)] {
            shell.go_on();
            peer.read_exact(&mut [0; 3000]).unwrap();
            assert_eq!(samples.examine(watched), is_sign, "{case}");
        }
        samples.settle(watched);
    }

    #[test]
    fn small_messages_prove_nothing_of_one_that_serves_and_little_of_others() {
        let counts = |sockets: &[(u64, u64, u32)]| NetCounts {
            sockets: sockets
                .iter()
                .map(|(inode, bytes, segments)| {
                    let traffic = Traffic {
                        bytes: *bytes,
                        segments: *segments,
                    };
                    (*inode, traffic)
                })
                .collect(),
            is_host: false,
        };
        let small = |inodes: &[u64]| NetSign::Small(inodes.iter().copied().collect());
        // before and after, each as inode, bytes and segments
        let table: [(&[_], &[_], _); 6] = [
            (&[(1, 50, 1)], &[(1, 50, 1)], NetSign::None),
            (&[(1, 0, 0)], &[(1, 100_000, 2000)], small(&[1])),
            (&[(1, 0, 0)], &[(1, 100_000, 60)], NetSign::Contents),
            (&[(1, 0, 0)], &[(1, 100_000, 0)], NetSign::Contents),
            (
                &[(1, 0, 0), (2, 0, u32::MAX)],
                &[(1, 90_000, 2000), (2, 90_000, 59)],
                NetSign::Contents,
            ),
            (
                &[(1, 0, 0), (2, 0, 0)],
                &[(1, 90_000, 2000), (2, 1000, 1)],
                small(&[1]),
            ),
        ];
        for (before, after, expected) in table {
            let found = counts(after).sign(&counts(before), Duration::from_secs(10));
            assert_eq!(found, expected, "{before:?} {after:?}");
        }
    }

    /// Each process keeps its counts until its next sample.
    #[test]
    fn what_is_kept_of_a_process_does_not_grow_with_the_sockets_of_the_host() {
        let traffic = |bytes| Traffic { bytes, segments: 1 };
        let sockets = (0..100_000).map(|inode| (inode, traffic(inode)));
        let mut host = NetCounts {
            sockets: sockets.collect(),
            is_host: false,
        };
        let held = BTreeSet::from([7, 99_999, 100_000]);
        let counts = host.of(&held).sockets;
        assert!(counts.capacity() < 100, "{}", counts.capacity());
        let expected = [7, 99_999].map(|inode| (inode, traffic(inode)));
        assert_eq!(counts, expected.into());
        host.is_host = true;
        assert_eq!(host.of(&held).sockets, host.sockets);
    }

    #[test]
    fn a_look_that_comes_late_says_nothing() {
        let shell = Shell::run("read a");
        let (watched, mut samples) = (shell.watched(true), Looks::begin());
        samples.settle(watched);
        assert!(samples.0.idle_of(0, samples.1) >= Duration::from_secs(1));
        samples.1 += Duration::from_secs(5);
        assert!(samples.examine(watched), "the host was stopped");
        samples.settle(watched);
    }
}
