//! What NVIDIA's cards do, by nvidia-smi where that is there. It runs beside us, what it says is
//! taken when it has ended, and one that takes too long is ended itself.

use crate::nvidia::{self, FORMAT, MAX_CARDS};
use crate::processes::{OUTSIDE, ProcessHandle, TOKEN};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::Signal;
use std::ffi::OsStr;
use std::io::{self, PipeReader, Read};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use wire::supervise::Gpu;

const ARGUMENTS: [&str; 2] = [
    "--query-gpu=index,utilization.gpu,memory.used,memory.total",
    FORMAT,
];
/// If it takes longer, a GPU or its driver hangs.
const LIMIT: Duration = Duration::from_secs(20);
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
            program: nvidia::program()?,
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

/// A card a line: `0, 97, 30123, 81559`. One that does not tell all of it, as one in parts, is left
/// out.
fn cards(text: &str) -> Vec<Gpu> {
    let card = |row: Vec<&str>| {
        Some(Gpu {
            index: nvidia::number(row.first())?,
            util_percent: nvidia::number(row.get(1))?,
            mem_used_bytes: nvidia::bytes(row.get(2))?,
            mem_bytes: nvidia::bytes(row.get(3))?,
        })
    };
    nvidia::rows(text)
        .filter_map(card)
        .take(MAX_CARDS)
        .collect()
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
    fn nobody_is_asked_while_one_hangs() {
        let mut hangs = Command::new("sleep").arg("60").spawn().unwrap();
        let mut watch = GpuWatch {
            program: PathBuf::from("true"),
            asking: None,
            stuck: ProcessHandle::of(hangs.id().cast_signed()),
        };
        assert!(watch.look().is_empty() && watch.asking.is_none());
        let _ = hangs.kill();
        let _ = hangs.wait();
        assert!(watch.look().is_empty() && watch.asking.is_some());
        let asked = watch.asking.as_ref().and_then(|asking| asking.process);
        // nobody else waits for it here
        let pid = nix::unistd::Pid::from_raw(asked.unwrap().pid);
        let _ = nix::sys::wait::waitpid(pid, None);
    }
}
