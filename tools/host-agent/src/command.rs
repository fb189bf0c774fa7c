//! Runs programs that are asked something: starts them, reads for a while, ends them.

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::io::{self, PipeReader, Read};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// What KILL has not ended after this time hangs in the kernel, and is left to it.
const KILL_LIMIT: Duration = Duration::from_secs(1);

/// The output of a program, stdout and stderr together, and how it ended.
pub struct Answer {
    /// The output, cut at the limit that was given.
    pub said: Vec<u8>,
    /// The exit status; `None` if the program did not end in time and was killed.
    pub status: Option<ExitStatus>,
}

impl Answer {
    /// The output as text; bytes that are not UTF-8 are replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.said).into_owned()
    }
}

/// Runs a program with an empty stdin for at most `limit`; keeps at most `most` bytes of its
/// output. The program gets a process group of its own, which is killed when the time is over.
pub fn ask(mut command: Command, limit: Duration, most: usize) -> io::Result<Answer> {
    let (mut reader, writer) = io::pipe()?;
    command
        .stdin(Stdio::null())
        .stdout(writer.try_clone()?)
        .stderr(writer)
        .process_group(0);
    let mut child = command.spawn()?;
    // the command holds the ends of the pipe that the child writes to
    drop(command);
    let (said, over) = listen(&mut reader, limit, most)?;
    let status = match over {
        true => {
            end(&mut child)?;
            None
        }
        false => Some(child.wait()?),
    };
    Ok(Answer { said, status })
}

/// The output until its end, and whether the time was over before.
fn listen(reader: &mut PipeReader, limit: Duration, most: usize) -> io::Result<(Vec<u8>, bool)> {
    let until = Instant::now() + limit;
    let (mut said, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok((said, true));
        }
        let mut fds = [PollFd::new(reader.as_fd(), PollFlags::POLLIN)];
        let wait = PollTimeout::try_from(left.as_millis().min(60_000)).unwrap_or(PollTimeout::MAX);
        match poll(&mut fds, wait) {
            Err(nix::errno::Errno::EINTR) | Ok(0) => continue,
            Err(error) => return Err(error.into()),
            Ok(_) => {}
        }
        match reader.read(&mut buffer) {
            Ok(0) => return Ok((said, false)),
            Ok(count) => {
                said.extend_from_slice(&buffer[..count.min(most.saturating_sub(said.len()))]);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn end(child: &mut Child) -> io::Result<()> {
    // its leader was not waited for, so nobody else can have the group's number
    if let Ok(pid) = i32::try_from(child.id()) {
        let _ = killpg(Pid::from_raw(pid), Signal::SIGKILL);
    }
    let until = Instant::now() + KILL_LIMIT;
    while child.try_wait()?.is_none() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}
