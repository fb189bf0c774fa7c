//! The files of a process in /proc. They disappear with it, so every function may return nothing.

use super::field::{kib_of, number_of};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::Read as _;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// How much of a command line is read.
const COMMAND_LINE_READ: u64 = 4 << 10;

pub fn pids() -> Vec<i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

fn path(pid: i32, file: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/{file}"))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// The state as a letter; `Z` is a zombie, which has ended but was not waited for.
    pub state: char,
    pub parent: i32,
    pub group: i32,
    pub session: i32,
    /// Processor time of all threads of the process, in clock ticks.
    pub cpu_ticks: u64,
    /// Processor time of children that have ended and were waited for, and of theirs, in clock
    /// ticks.
    pub children_ticks: u64,
    /// The start time, in clock ticks since the start of the machine. Together with the process id
    /// it identifies the process, even after an exec.
    pub start_ticks: u64,
}

impl Stat {
    pub fn has_ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x')
    }
}

pub fn stat(pid: i32) -> Option<Stat> {
    parse_stat(&fs::read(path(pid, "stat")).ok()?)
}

pub fn parent(pid: i32) -> Option<u32> {
    Some(stat(pid)?.parent.cast_unsigned())
}

pub fn stats() -> BTreeMap<i32, Stat> {
    let stat = |pid| Some((pid, stat(pid)?));
    pids().into_iter().filter_map(stat).collect()
}

/// Parses `PID (NAME) STATE PPID …`. The name may contain anything, even blanks and brackets, so
/// the next field begins after the last bracket.
fn parse_stat(text: &[u8]) -> Option<Stat> {
    let end_of_name = text.iter().rposition(|byte| *byte == b')')?;
    let words: Vec<&str> = std::str::from_utf8(&text[end_of_name + 1..])
        .ok()?
        .split_ascii_whitespace()
        .collect();
    // proc(5) numbers the fields from the pid on: the state is field 3
    let field = |index: usize| words.get(index - 3).copied();
    let number = |index: usize| field(index)?.parse::<u64>().ok();
    let id = |index: usize| field(index)?.parse::<i32>().ok();
    Some(Stat {
        state: field(3)?.chars().next()?,
        parent: id(4)?,
        group: id(5)?,
        session: id(6)?,
        cpu_ticks: number(14)?.checked_add(number(15)?)?,
        children_ticks: number(16)?.checked_add(number(17)?)?,
        start_ticks: number(22)?,
    })
}

/// The counters of /proc/PID/io since the start of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoCounts {
    /// Bytes read from disks, also for page faults; of network file systems only where the kernel
    /// counts them, as it does for NFS from Linux 6 on.
    pub disk_read: u64,
    pub disk_written: u64,
    /// Bytes by read(2) and the like, including cached files and pipes.
    pub read: u64,
    /// The same by write(2).
    pub written: u64,
}

/// Readable only for the process's user.
pub fn io(pid: i32) -> Option<IoCounts> {
    parse_io(&fs::read_to_string(path(pid, "io")).ok()?)
}

fn parse_io(text: &str) -> Option<IoCounts> {
    Some(IoCounts {
        disk_read: number_of(text, "read_bytes:")?,
        disk_written: number_of(text, "write_bytes:")?,
        read: number_of(text, "rchar:")?,
        written: number_of(text, "wchar:")?,
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// The real user id. A setuid process still belongs to the user who started it.
    pub uid: u32,
    pub rss_bytes: u64,
    /// Bytes of the resident memory that are shared memory.
    pub shm_bytes: u64,
}

pub fn status(pid: i32) -> Option<Status> {
    parse_status(&String::from_utf8_lossy(
        &fs::read(path(pid, "status")).ok()?,
    ))
}

/// Root could also read the environment of other users' processes.
pub fn is_own(pid: i32) -> bool {
    let me = nix::unistd::geteuid().as_raw();
    status(pid).is_some_and(|status| status.uid == me)
}

fn parse_status(text: &str) -> Option<Status> {
    Some(Status {
        uid: u32::try_from(number_of(text, "Uid:")?).ok()?,
        // a zombie has none
        rss_bytes: kib_of(text, "VmRSS:").unwrap_or(0),
        shm_bytes: kib_of(text, "RssShmem:").unwrap_or(0),
    })
}

/// The initial environment of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessEnvironment(Vec<u8>);

impl ProcessEnvironment {
    /// The content of /proc/PID/environ.
    #[cfg(test)]
    pub fn new(bytes: Vec<u8>) -> ProcessEnvironment {
        ProcessEnvironment(bytes)
    }

    /// Of several variables of this name, returns the first, as with getenv(3).
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.0
            .split(|byte| *byte == 0)
            .find_map(|entry| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
    }

    pub fn text(&self, name: &str) -> Option<String> {
        self.get(name)
            .map(|value| String::from_utf8_lossy(value).into_owned())
    }
}

/// Empty if the process has ended.
pub fn environment(pid: i32) -> Option<ProcessEnvironment> {
    fs::read(path(pid, "environ")).ok().map(ProcessEnvironment)
}

/// The network namespace of a process, as `net:[4026531840]`.
pub fn network_namespace(pid: i32) -> Option<PathBuf> {
    fs::read_link(path(pid, "ns/net")).ok()
}

/// Whether /proc shows all processes of the machine. In a container it shows only the container's.
pub fn shows_all_processes() -> bool {
    is_in_first_namespace("pid", 0xEFFF_FFFC)
}

/// Whether this process shares the machine's IPC namespace, as in a container with `--ipc=host`.
pub fn shares_ipc_of_machine() -> bool {
    is_in_first_namespace("ipc", 0xEFFF_FFFF)
}

/// The kernel's first namespace of each kind has a fixed inode (include/linux/proc_ns.h).
fn is_in_first_namespace(kind: &str, inode: u64) -> bool {
    let own = fs::metadata(Path::new("/proc/self/ns").join(kind));
    own.is_ok_and(|own| own.ino() == inode)
}

pub fn working_directory(pid: i32) -> Option<PathBuf> {
    fs::read_link(path(pid, "cwd")).ok()
}

/// The kernel function in which the main thread sleeps. Unlike the system call, it may be read
/// without the right to read the memory of the process.
pub fn kernel_function(pid: i32) -> Option<String> {
    let text = fs::read_to_string(path(pid, "wchan")).ok()?;
    (!matches!(text.as_str(), "" | "0")).then_some(text)
}

/// The words of a command line; only the beginning of a long one.
pub fn words(pid: i32) -> Option<Vec<String>> {
    let mut bytes = Vec::new();
    fs::File::open(path(pid, "cmdline"))
        .ok()?
        .take(COMMAND_LINE_READ)
        .read_to_end(&mut bytes)
        .ok()?;
    let text = String::from_utf8_lossy(&bytes);
    Some(text.split_terminator('\0').map(str::to_owned).collect())
}

/// As [`words`], joined by blanks.
pub fn command_line(pid: i32) -> Option<String> {
    let text = words(pid)?.join(" ").replace('\n', " ");
    Some(text.trim_end().to_owned())
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    pub range: Range<u64>,
    pub offset: u64,
    pub is_code: bool,
    /// The device of the file: major and minor number.
    pub device: (u32, u32),
    pub inode: u64,
    /// The path of the file at the time of mapping; empty for memory without a file.
    pub path: PathBuf,
    pub is_deleted: bool,
}

/// Only those of files whose paths begin with `prefix`; all if it is empty.
pub fn mappings(pid: i32, prefix: &str) -> Vec<Mapping> {
    let text = fs::read(path(pid, "maps")).unwrap_or_default();
    let lines = text.split(|byte| *byte == b'\n');
    lines
        .filter_map(|line| parse_mapping(line, prefix))
        .collect()
}

/// `BEGIN-END RIGHTS OFFSET MAJOR:MINOR INODE   PATH`.
fn parse_mapping(line: &[u8], prefix: &str) -> Option<Mapping> {
    let at_path = line.iter().position(|byte| *byte == b'/');
    let (head, path) = line.split_at(at_path.unwrap_or(line.len()));
    // most lines are skipped here
    path.strip_prefix(prefix.as_bytes())?;
    let whole = path.strip_suffix(b" (deleted)");
    let mut words = std::str::from_utf8(head).ok()?.split_ascii_whitespace();
    let number = |text| u64::from_str_radix(text, 16).ok();
    let part = |text| u32::from_str_radix(text, 16).ok();
    let (begin, end) = words.next()?.split_once('-')?;
    let is_code = words.next()?.contains('x');
    let offset = number(words.next()?)?;
    let (major, minor) = words.next()?.split_once(':')?;
    Some(Mapping {
        range: number(begin)?..number(end)?,
        offset,
        is_code,
        device: (part(major)?, part(minor)?),
        inode: words.next()?.parse().ok()?,
        path: OsStr::from_bytes(whole.unwrap_or(path)).into(),
        is_deleted: whole.is_some(),
    })
}

/// What the descriptors of a process refer to.
fn descriptors(pid: i32) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(path(pid, "fd"))
        .into_iter()
        .flatten()
        .flatten();
    entries.filter_map(|entry| fs::read_link(entry.path()).ok())
}

pub fn socket_inodes(pid: i32) -> Vec<u64> {
    descriptors(pid)
        .filter_map(|link| socket_inode(&link))
        .collect()
}

/// Whether a process has opened or mapped a file whose path begins with `prefix`.
pub fn uses_files(pid: i32, prefix: &str) -> bool {
    let begins = |file: PathBuf| file.as_os_str().as_bytes().starts_with(prefix.as_bytes());
    descriptors(pid).any(begins) || !mappings(pid, prefix).is_empty()
}

fn socket_inode(link: &Path) -> Option<u64> {
    link.to_str()?
        .strip_prefix("socket:[")?
        .strip_suffix(']')?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_a_process_uses() {
        let me = std::process::id().cast_signed();
        let folder = std::env::temp_dir().join(format!("uses-files-{me}-"));
        let file = format!("{}a", folder.display());
        assert!(!uses_files(me, folder.to_str().unwrap()));
        let opened = fs::File::create(&file).unwrap();
        assert!(uses_files(me, folder.to_str().unwrap()));
        drop(opened);
        fs::remove_file(file).unwrap();
        let program = std::env::current_exe().unwrap();
        assert!(uses_files(me, program.to_str().unwrap()), "it is mapped");
    }

    #[test]
    fn a_stat_whatever_the_process_calls_itself() {
        let rest = "S 5 6 7 34816 1 4194304 1 0 0 0 11 22 3 4 20 0 1 0 777 1 2 3 4";
        let expected = Stat {
            state: 'S',
            parent: 5,
            group: 6,
            session: 7,
            cpu_ticks: 33,
            children_ticks: 7,
            start_ticks: 777,
        };
        for name in ["python3", "a) Z 1 1 1 (b", "", " ", "x\ny", "\u{fffd}"] {
            let text = format!("42 ({name}) {rest}\n");
            assert_eq!(parse_stat(text.as_bytes()), Some(expected), "{text}");
        }
        assert_eq!(
            parse_stat(b"42 (\xff\xfe) Z 5 6 7 0 0 0 0 0 0 0 1 2 0 0 0 0 0 0 3")
                .map(|stat| stat.has_ended()),
            Some(true)
        );
        for text in [
            "",
            "42 (a",
            "42 (a) S",
            "42 (a) S 1 2 3",
            "42 (a) S x 6 7 0 0 0 0 0 0 0 1 2 0 0 0 0 0 0 3",
        ] {
            assert_eq!(parse_stat(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn what_was_read_and_written() {
        let text = "rchar: 5\nwchar: 7\nsyscr: 1\nsyscw: 1\nread_bytes: 4096\nwrite_bytes: 1\n\
            cancelled_write_bytes: 9\n";
        let expected = IoCounts {
            disk_read: 4096,
            disk_written: 1,
            read: 5,
            written: 7,
        };
        assert_eq!(parse_io(text), Some(expected));
        assert_eq!(parse_io("rchar: 5\n"), None);
    }

    #[test]
    fn a_status_has_the_user_and_the_memory() {
        let text =
            "Name:\tUid: 7\nUid:\t1000\t0\t0\t0\nVmRSS:\t     100 kB\nRssShmem:\t      4 kB\n";
        assert_eq!(
            parse_status(text),
            Some(Status {
                uid: 1000,
                rss_bytes: 102_400,
                shm_bytes: 4096
            })
        );
        assert_eq!(
            parse_status("Uid:\t0 0 0 0\n"),
            Some(Status {
                uid: 0,
                rss_bytes: 0,
                shm_bytes: 0
            })
        );
        assert_eq!(parse_status("VmRSS: 1 kB\n"), None);
    }

    #[test]
    fn variables_are_known_by_their_whole_names() {
        let environment = ProcessEnvironment::new(
            b"XTOKEN=no\0TOKEN=yes\0TOKEN=later\0EMPTY=\0TOKENS\0=x\0LAST=\xff".to_vec(),
        );
        let table = [
            ("TOKEN", Some("yes")),
            ("EMPTY", Some("")),
            ("TOKENS", None),
            ("OKEN", None),
            ("LAST", Some("\u{fffd}")),
        ];
        for (name, value) in table {
            assert_eq!(environment.text(name).as_deref(), value, "{name}");
        }
        assert_eq!(ProcessEnvironment::default().get(""), None);
    }

    #[test]
    fn parts_of_memory() {
        let mapping = |range, offset, is_code, device, inode, path: &str, is_deleted| Mapping {
            range,
            offset,
            is_code,
            device,
            inode,
            path: path.into(),
            is_deleted,
        };
        let library = mapping(
            0x7f00..0x7fc0,
            0x1000,
            true,
            (8, 1),
            42,
            "/usr/lib x.so",
            false,
        );
        let deleted = mapping(0x7f00..0x7f01, 0, false, (0, 26), 42, "/dev/shm/a b", true);
        let stack = mapping(0x7ffc..0x7ffd, 0, false, (0, 0), 0, "", false);
        let table = [
            (
                "7f00-7fc0 r-xp 00001000 08:01 42   /usr/lib x.so",
                "",
                Some(library),
            ),
            (
                "7f01-7f02 r-xp 0 fd:01 9    /usr/lib/dev/shm/libc.so",
                "/dev/shm/",
                None,
            ),
            (
                "7f00-7f01 rw-s 0 00:1a 42  /dev/shm/a b (deleted)",
                "/dev/shm/",
                Some(deleted),
            ),
            ("7ffc-7ffd rw-p 0 00:00 0 [stack]", "", Some(stack)),
            ("7ffc-7ffd rw-p 0 00:00 0 [stack]", "/", None),
            ("broken /dev/shm/x", "/dev/shm/", None),
            ("", "", None),
        ];
        for (line, prefix, expected) in table {
            assert_eq!(parse_mapping(line.as_bytes(), prefix), expected, "{line}");
        }
    }

    #[test]
    fn sockets_among_descriptors() {
        for (link, inode) in [
            ("socket:[123]", Some(123)),
            ("pipe:[123]", None),
            ("/socket:[1]", None),
            ("socket:[]", None),
        ] {
            assert_eq!(socket_inode(Path::new(link)), inode, "{link}");
        }
    }
}
