//! Runs programs for their output: starts them, reads until a limit, and ends them.

use crate::readiness::is_ready;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::PollFlags;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::io::{self, PipeReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// A program that KILL has not ended after this time hangs in the kernel, and is left to it.
const KILL_LIMIT: Duration = Duration::from_secs(1);
/// How often to check whether a program has ended.
const PAUSE: Duration = Duration::from_millis(10);
/// How much is read at once: the size of a pipe.
const PIPE_BYTES: u64 = 64 << 10;

/// Kills a process group, whose number cannot be reused because its leader was not waited for.
fn kill_group(group: u32) {
    if let Ok(pid) = i32::try_from(group) {
        let _ = killpg(Pid::from_raw(pid), Signal::SIGKILL);
    }
}

/// The output of a program, stdout and stderr together, and how it ended.
pub struct Answer {
    /// The output, cut at the limit that was given.
    pub output: Vec<u8>,
    /// The exit status; `None` if the program did not end in time and was killed.
    pub status: Option<ExitStatus>,
}

impl Answer {
    /// The output as text; bytes that are not UTF-8 are replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.output).into_owned()
    }
}

/// Runs a program with an empty stdin for at most `limit`; keeps at most `most` bytes of its
/// output. The program gets its own process group, which is killed after the limit. Programs that
/// it leaves in the background are not waited for.
pub fn ask(mut command: Command, limit: Duration, most: usize) -> io::Result<Answer> {
    let (mut reader, writer) = io::pipe()?;
    fcntl(&reader, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    command
        .stdin(Stdio::null())
        .stdout(writer.try_clone()?)
        .stderr(writer)
        .process_group(0);
    let mut child = command.spawn()?;
    // the command would keep the writing ends of the pipe open
    drop(command);
    let mut output = Vec::new();
    let status = read_until_end(&mut reader, &mut child, limit, most, &mut output);
    if child.try_wait()?.is_none() {
        kill_group(child.id());
        reap(&mut child)?;
    }
    let status = status?;
    Ok(Answer { output, status })
}

/// Reads the output until the program has ended or the limit is over; returns its exit status, or
/// `None` if it has not ended.
fn read_until_end(
    reader: &mut PipeReader,
    child: &mut Child,
    limit: Duration,
    most: usize,
    output: &mut Vec<u8>,
) -> io::Result<Option<ExitStatus>> {
    let until = Instant::now() + limit;
    let mut is_open = true;
    loop {
        // checked before the last read, so that all output before the end is read
        let status = child.try_wait()?;
        is_open = is_open && read(reader, most, output)?;
        if status.is_some() || Instant::now() >= until {
            return Ok(status);
        }
        if is_open {
            is_ready(reader, PollFlags::POLLIN, Some(PAUSE));
        } else {
            thread::sleep(PAUSE);
        }
    }
}

/// Reads the available output, at most the size of a pipe, because other programs may continue to
/// write; returns whether more may follow.
fn read(reader: &mut PipeReader, most: usize, output: &mut Vec<u8>) -> io::Result<bool> {
    let mut bytes = Vec::new();
    let result = reader.by_ref().take(PIPE_BYTES).read_to_end(&mut bytes);
    bytes.truncate(most.saturating_sub(output.len()));
    output.append(&mut bytes);
    match result {
        Ok(count) => Ok(count as u64 == PIPE_BYTES),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(true),
        Err(error) => Err(error),
    }
}

/// Waits for a child that was killed.
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
        ask(command, limit, 1 << 20).unwrap()
    }

    #[test]
    fn a_program_is_waited_for_and_not_its_output() {
        let minute = Duration::from_secs(60);
        let answered = answer("seq 20000; sleep 100 >&2 & echo $!", minute);
        let (text, status) = (answered.text(), answered.status);
        let pid = text.lines().last().unwrap().parse().unwrap();
        nix::sys::signal::kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
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
