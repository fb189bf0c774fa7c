//! Programs that are asked something: started, listened to for a while, ended.

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::io::{self, PipeReader, Read};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// What a program said, on stdout and stderr together, and how it ended.
pub struct Answer {
    /// Cut at the limit that was given.
    pub said: Vec<u8>,
    /// `None` if it did not end in time, and was ended.
    pub status: Option<ExitStatus>,
}

impl Answer {
    /// As text; what is no UTF-8 is replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.said).into_owned()
    }
}

/// Runs a program with an empty stdin, for as long as `limit`; keeps `most` bytes of what it says.
/// It gets a process group of its own, which is killed when its time is over.
pub fn ask(mut command: Command, limit: Duration, most: usize) -> io::Result<Answer> {
    let (mut reader, writer) = io::pipe()?;
    command
        .stdin(Stdio::null())
        .stdout(writer.try_clone()?)
        .stderr(writer)
        .process_group(0);
    let mut child = command.spawn()?;
    // it holds the ends of the pipe that the child writes to
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

/// What comes until the end; whether the time was over before.
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
    // its leader was not waited for, so that nobody else can have the group's number
    if let Ok(pid) = i32::try_from(child.id()) {
        let _ = killpg(Pid::from_raw(pid), Signal::SIGKILL);
    }
    child.wait().map(|_| ())
}
