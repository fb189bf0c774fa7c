//! The state of NVIDIA's GPUs, by nvidia-smi if it is installed. It runs in the background; its
//! output is read when it has ended, and it is killed if it takes too long. [`host::command`] is
//! not used, because it waits for its child, but the supervisor collects the statuses of all
//! children.

use csv::StringRecord;
use host::nvidia::{self, FORMAT, LIMIT, MAX_CARDS};
use host::processes::{OUTSIDE, ProcessHandle, TOKEN};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::Signal;
use record::Gpu;
use std::io::{self, PipeReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

const ARGUMENTS: [&str; 2] = [
    "--query-gpu=index,utilization.gpu,memory.used,memory.total",
    FORMAT,
];

/// Asks nvidia-smi repeatedly.
#[derive(Debug)]
pub struct GpuWatch {
    program: PathBuf,
    query: Option<Query>,
}

/// A running nvidia-smi.
#[derive(Debug)]
struct Query {
    process: ProcessHandle,
    stdout: PipeReader,
    begun: Instant,
}

impl GpuWatch {
    /// Runs it for the first time; `None` if there is no nvidia-smi.
    pub fn begin() -> Option<GpuWatch> {
        let program = nvidia::program()?;
        let query = Query::begin(&program).ok();
        Some(GpuWatch { program, query })
    }

    /// The result since the last call, empty if there is none yet; then runs it again.
    pub fn sample(&mut self) -> Vec<Gpu> {
        let mut gpus = Vec::new();
        if let Some(query) = &mut self.query {
            if query.process.is_alive() {
                // if a driver hangs, even KILL does not end it, and more of them would only
                // accumulate
                if query.begun.elapsed() >= LIMIT {
                    query.process.signal(Signal::SIGKILL);
                }
                return gpus;
            }
            // does not wait for other processes that hold the pipe
            let mut text = Vec::new();
            let _ = query.stdout.read_to_end(&mut text);
            gpus = cards(&String::from_utf8_lossy(&text));
        }
        self.query = Query::begin(&self.program).ok();
        gpus
    }
}

impl Query {
    /// Starts nvidia-smi. It is not a process of the job, so the job's variables are removed from
    /// its environment. Its exit status is collected with those of all children. It writes less
    /// than a pipe holds.
    fn begin(program: &Path) -> io::Result<Query> {
        let (stdout, writer) = io::pipe()?;
        fcntl(&stdout, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        let mut command = Command::new(program);
        command.args(ARGUMENTS).env_remove(TOKEN).env(OUTSIDE, "1");
        command
            .stdin(Stdio::null())
            .stdout(writer)
            .stderr(Stdio::null());
        let child = command.spawn()?;
        let process = ProcessHandle::of(child.id().cast_signed()).ok_or(io::ErrorKind::NotFound)?;
        Ok(Query {
            process,
            stdout,
            begun: Instant::now(),
        })
    }
}

impl Drop for Query {
    fn drop(&mut self) {
        self.process.signal(Signal::SIGKILL);
    }
}

/// Parses a GPU per line: `0, 97, 30123, 81559`. A GPU without all values, such as one with MIG, is
/// left out.
fn cards(text: &str) -> Vec<Gpu> {
    let card = |row: &StringRecord| {
        Some(Gpu {
            index: nvidia::number(row.get(0))?,
            util_percent: f64::from(nvidia::number::<u8>(row.get(1))?),
            mem_used_bytes: nvidia::bytes(row.get(2))?,
            mem_bytes: nvidia::bytes(row.get(3))?,
        })
    };
    nvidia::rows(text)
        .iter()
        .filter_map(card)
        .take(MAX_CARDS)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_of_nvidia_smi() {
        let gpu = |index, util_percent: u8, used: u64, total: u64| Gpu {
            index,
            util_percent: f64::from(util_percent),
            mem_used_bytes: used << 20,
            mem_bytes: total << 20,
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
    fn one_that_hangs_is_killed_before_another_is_asked() {
        let mut hangs = Command::new("sleep").arg("60").spawn().unwrap();
        let process = ProcessHandle::of(hangs.id().cast_signed()).unwrap();
        let mut watch = GpuWatch {
            program: PathBuf::from("true"),
            query: Some(Query {
                process,
                stdout: io::pipe().unwrap().0,
                begun: Instant::now().checked_sub(LIMIT).unwrap(),
            }),
        };
        assert!(watch.sample().is_empty());
        assert_eq!(watch.query.as_ref().unwrap().process, process);
        let _ = hangs.wait();
        assert!(watch.sample().is_empty());
        let asked = watch.query.as_ref().unwrap().process;
        assert_ne!(asked, process);
        // in this test, no supervisor waits for it
        let _ = nix::sys::wait::waitpid(nix::unistd::Pid::from_raw(asked.pid), None);
    }
}
