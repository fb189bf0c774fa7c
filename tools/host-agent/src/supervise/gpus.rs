//! Reads the state of NVIDIA GPUs from nvidia-smi, if the host has it. That takes a tenth of a
//! second, or for ever if a GPU hangs. So nvidia-smi runs beside us, its output is taken when it
//! has ended, and it is killed if it takes too long.

use crate::processes::{OUTSIDE, ProcessHandle, TOKEN};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::Signal;
use std::ffi::OsStr;
use std::io::{self, PipeReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use wire::supervise::Gpu;

const PROGRAM: &str = "nvidia-smi";
const ARGUMENTS: [&str; 2] = [
    "--query-gpu=index,utilization.gpu,memory.used,memory.total",
    "--format=csv,noheader,nounits",
];
/// nvidia-smi counts memory in MiB.
const MIB: u64 = 1 << 20;
/// If it takes longer, a GPU or its driver hangs.
const LIMIT: Duration = Duration::from_secs(20);
/// A host has at most 16 GPUs, each perhaps divided into 7 parts.
const MAX_CARDS: usize = 256;
const MAX_BYTES: usize = 64 << 10;

/// Asks nvidia-smi repeatedly.
#[derive(Debug)]
pub struct GpuWatch {
    program: PathBuf,
    asking: Option<Asking>,
    /// One that took too long and was ended. Where a driver hangs even KILL does not end it, and
    /// more of them would only pile up.
    stuck: Option<ProcessHandle>,
}

/// A running nvidia-smi.
#[derive(Debug)]
struct Asking {
    process: Option<ProcessHandle>,
    stdout: PipeReader,
    said: Vec<u8>,
    begun: Instant,
}

impl GpuWatch {
    /// Asks for the first time; `None` if there is no nvidia-smi.
    pub fn begin() -> Option<GpuWatch> {
        let mut watch = GpuWatch {
            program: find(&std::env::var_os("PATH")?)?,
            asking: None,
            stuck: None,
        };
        watch.ask();
        Some(watch)
    }

    /// The result since the last look, empty if it takes longer; then asks again.
    pub fn look(&mut self) -> Vec<Gpu> {
        let Some(asking) = &mut self.asking else {
            self.ask();
            return Vec::new();
        };
        if !asking.read() {
            if asking.begun.elapsed() >= LIMIT {
                self.stuck = self.asking.take().and_then(|asking| asking.process);
            }
            return Vec::new();
        }
        let cards = cards(&String::from_utf8_lossy(&asking.said));
        self.asking = None;
        self.ask();
        cards
    }

    /// Starts nvidia-smi. It is not a process of the job, and has nothing of the job in its
    /// environment. Its exit status is collected with that of all children.
    fn ask(&mut self) {
        if self.stuck.is_some_and(|process| process.is_alive()) {
            return;
        }
        self.stuck = None;
        self.asking = Asking::begin(self.program.as_os_str()).ok();
    }
}

impl Asking {
    fn begin(program: &OsStr) -> io::Result<Asking> {
        let (stdout, writer) = io::pipe()?;
        fcntl(&stdout, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        let mut command = Command::new(program);
        command.args(ARGUMENTS).env_remove(TOKEN).env(OUTSIDE, "1");
        command
            .stdin(Stdio::null())
            .stdout(writer)
            .stderr(Stdio::null());
        let child = command.spawn()?;
        Ok(Asking {
            process: ProcessHandle::of(child.id().cast_signed()),
            stdout,
            said: Vec::new(),
            begun: Instant::now(),
        })
    }

    /// Reads its output; returns whether that is complete.
    fn read(&mut self) -> bool {
        let mut buffer = [0; 4096];
        loop {
            match self.stdout.read(&mut buffer) {
                Ok(0) => return true,
                Ok(count) if self.said.len() < MAX_BYTES => {
                    self.said.extend_from_slice(&buffer[..count]);
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return error.kind() != io::ErrorKind::WouldBlock,
            }
        }
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        if let Some(process) = self.process {
            process.signal(Signal::SIGKILL);
        }
    }
}

/// The path of the program, found in PATH.
fn find(path: &OsStr) -> Option<PathBuf> {
    let is_program = |file: &PathBuf| {
        let meta = std::fs::metadata(file);
        meta.is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    std::env::split_paths(path)
        .map(|folder| folder.join(PROGRAM))
        .find(is_program)
}

/// Parses a GPU on each line: `0, 97, 30123, 81559`. A GPU that does not report everything, such as
/// one that is divided, is left out.
fn cards(text: &str) -> Vec<Gpu> {
    let card = |line: &str| {
        let mut words = line.split(',').map(str::trim);
        let mut number = || words.next()?.parse::<u64>().ok();
        Some(Gpu {
            index: u32::try_from(number()?).ok()?,
            util_percent: number().and_then(|percent| u8::try_from(percent).ok())?,
            mem_used_bytes: number()?.checked_mul(MIB)?,
            mem_bytes: number()?.checked_mul(MIB)?,
        })
    };
    text.lines().filter_map(card).take(MAX_CARDS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nvidia_smi_says() {
        let gpu = |index, util_percent, used: u64, all: u64| Gpu {
            index,
            util_percent,
            mem_used_bytes: used << 20,
            mem_bytes: all << 20,
        };
        let table = [
            (
                "0, 97, 30123, 81559\n1, 0, 1, 81559\n",
                vec![gpu(0, 97, 30_123, 81_559), gpu(1, 0, 1, 81_559)],
            ),
            ("0, [N/A], 30123, 81559\n1, 5, 2, 3", vec![gpu(1, 5, 2, 3)]),
            ("No devices were found\n", vec![]),
            ("0, 999, 1, 2\n0, 5, 18446744073709551615, 2\n0\n", vec![]),
        ];
        for (text, expected) in table {
            assert_eq!(cards(text), expected, "{text}");
        }
    }

    #[test]
    fn where_there_is_none_nobody_is_asked() {
        assert_eq!(find(OsStr::new("/proc/self:/nowhere")), None);
    }
}
