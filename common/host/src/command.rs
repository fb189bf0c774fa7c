//! Runs programs for their output.

use crate::readiness::readable;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use std::io::{self, PipeReader, PipeWriter, Read};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// A program that still runs this long after KILL hangs in the kernel, and is left to it.
const KILL_LIMIT: Duration = Duration::from_secs(1);
/// How often to check whether a program has ended.
const PAUSE: Duration = Duration::from_millis(10);
/// How much is read at once: the size of a pipe.
const PIPE_BYTES: u64 = 64 << 10;

/// The group's number cannot be reused, because its leader was not waited for.
fn kill_group(group: u32) {
    if let Ok(pid) = i32::try_from(group) {
        let _ = killpg(Pid::from_raw(pid), Signal::SIGKILL);
    }
}

pub struct Answer {
    /// Cut at the limit that was given, as `stderr` is.
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    /// `None` if the program did not end in time and was killed.
    pub status: Option<ExitStatus>,
}

impl Answer {
    /// stdout and then stderr; bytes that are not UTF-8 are replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&[&*self.stdout, &*self.stderr].concat()).into_owned()
    }
}

/// Runs a program with an empty stdin for at most `limit`, and ends it early if `is_stopped`; keeps
/// at most `most` bytes of each output. Its process group, which is its own, is killed afterwards,
/// however the program ended: what it leaves in the background is neither waited for nor left.
pub fn ask(
    command: Command,
    limit: Duration,
    most: usize,
    is_stopped: impl Fn() -> bool,
) -> io::Result<Answer> {
    let mut asked = AskedProgram::start(command)?;
    let status = asked.wait(limit, most, is_stopped)?;
    let [stdout, stderr] = asked.outputs;
    Ok(Answer {
        stdout: stdout.bytes,
        stderr: stderr.bytes,
        status,
    })
}

/// Its outputs are stdout and stderr.
struct AskedProgram {
    child: Child,
    outputs: [ProgramOutput; 2],
}

struct ProgramOutput {
    /// `None` after the end.
    reader: Option<PipeReader>,
    bytes: Vec<u8>,
}

impl AskedProgram {
    fn start(mut command: Command) -> io::Result<AskedProgram> {
        let (stdout, stdout_writer) = ProgramOutput::pipe()?;
        let (stderr, stderr_writer) = ProgramOutput::pipe()?;
        command
            .stdin(Stdio::null())
            .stdout(stdout_writer)
            .stderr(stderr_writer)
            .process_group(0);
        // drops the command, which would keep the writing ends of the pipes open
        let child = command.spawn()?;
        let outputs = [stdout, stderr];
        Ok(AskedProgram { child, outputs })
    }

    /// Reads until the program has ended, the limit is over or the tool is stopped; returns the
    /// exit status, or `None` if the program had not ended.
    fn wait(
        &mut self,
        limit: Duration,
        most: usize,
        is_stopped: impl Fn() -> bool,
    ) -> io::Result<Option<ExitStatus>> {
        let until = Instant::now() + limit;
        let ended = loop {
            // checked before the last read, so that no output before the end is missed
            let ended = has_ended(&self.child);
            let read = self
                .outputs
                .iter_mut()
                .try_for_each(|output| output.read(most));
            let is_over = ended.is_err() || read.is_err() || Instant::now() >= until;
            if is_over || ended == Ok(true) || is_stopped() {
                break read.and(ended.map_err(io::Error::from));
            }
            let open = self
                .outputs
                .iter()
                .filter_map(|output| output.reader.as_ref());
            match open.map(AsFd::as_fd).collect::<Vec<_>>()[..] {
                [] => thread::sleep(PAUSE),
                ref open => drop(readable(open.iter().copied(), Some(PAUSE))),
            }
        };
        let ended = ended?;
        // before it is waited for, so that its number cannot belong to another group
        kill_group(self.child.id());
        reap(&mut self.child)?;
        if ended {
            self.child.try_wait()
        } else {
            Ok(None)
        }
    }
}

/// Does not wait for it.
fn has_ended(child: &Child) -> nix::Result<bool> {
    let id = Id::Pid(Pid::from_raw(child.id().cast_signed()));
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    Ok(waitid(id, flags)? != WaitStatus::StillAlive)
}

impl ProgramOutput {
    fn pipe() -> io::Result<(ProgramOutput, PipeWriter)> {
        let (reader, writer) = io::pipe()?;
        fcntl(&reader, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        let output = ProgramOutput {
            reader: Some(reader),
            bytes: Vec::new(),
        };
        Ok((output, writer))
    }

    /// Reads at most the size of a pipe, because other programs may continue to write.
    fn read(&mut self, most: usize) -> io::Result<()> {
        let Some(reader) = &mut self.reader else {
            return Ok(());
        };
        let mut bytes = Vec::new();
        let result = reader.take(PIPE_BYTES).read_to_end(&mut bytes);
        bytes.truncate(most.saturating_sub(self.bytes.len()));
        self.bytes.append(&mut bytes);
        match result {
            Ok(count) if (count as u64) < PIPE_BYTES => self.reader = None,
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
            _ => {}
        }
        Ok(())
    }
}

fn reap(child: &mut Child) -> io::Result<()> {
    let until = Instant::now() + KILL_LIMIT;
    while child.try_wait()?.is_none() && Instant::now() < until {
        thread::sleep(PAUSE);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(script: &str, limit: Duration) -> Answer {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        ask(command, limit, 1 << 20, || false).unwrap()
    }

    #[test]
    fn a_program_is_waited_for_and_not_its_output() {
        let minute = Duration::from_secs(60);
        let answered = answer("seq 20000; sleep 100 >&2 & echo $!", minute);
        let (text, status) = (answered.text(), answered.status);
        // the program that it left has been killed
        let pid: i32 = text.lines().last().unwrap().parse().unwrap();
        let is_dead = || {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.is_empty() || stat.contains(") Z ")
        };
        let until = Instant::now() + minute;
        while !is_dead() && Instant::now() < until {
            thread::sleep(PAUSE);
        }
        assert!(is_dead());
        assert!(status.unwrap().success());
        assert_eq!(text.lines().count(), 20_001);
        // its output ends long before it does
        let answered = answer(
            "exec >/dev/null 2>&1; sleep 100",
            Duration::from_millis(300),
        );
        assert_eq!(answered.status, None);
    }
}
