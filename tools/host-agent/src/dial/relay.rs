//! Relays a conversation between a connection and `host-agent serve`, with a thread for each
//! direction, so that a slow reader blocks only one.

use agent::output::{SharedLink, write};
use agent::requests::wait_until_readable;
use parking_lot::Mutex;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::Builder;
use std::time::{Duration, Instant};
use tls::TlsConnection;
use wire::dial::TICKET_VARIABLE;

/// How much is read at once from the serving agent: the size of its enlarged pipe.
const AT_ONCE: usize = 256 << 10;
/// How long the other side may take to accept the last bytes.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// How often to try to announce the end.
const PACE: Duration = Duration::from_millis(10);

pub struct DialRelay {
    link: TlsConnection,
    /// Bytes that were read from the connection already.
    received: Vec<u8>,
    child: Child,
    stdin: ChildStdin,
    stdout: ChildStdout,
}

impl DialRelay {
    /// `received` was read from the connection already.
    pub fn begin(link: TlsConnection, received: Vec<u8>, token: &str) -> io::Result<DialRelay> {
        link.allow_silence()?;
        let mut child = Command::new("/proc/self/exe")
            .arg0("host-agent")
            .args(["serve", token])
            // secrets in the environment are not for the processes of a job
            .env_remove(TICKET_VARIABLE)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdin = child.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let stdout = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(DialRelay {
            link,
            received,
            child,
            stdin,
            stdout,
        })
    }

    /// The child ends its part of a job when its stdin ends.
    pub fn run(mut self) {
        let link: SharedLink = Arc::new(Mutex::new(self.link));
        let (reading, has_ended) = channel::<()>();
        let (from, received, stdin) = (Arc::clone(&link), self.received, self.stdin);
        let carrying = Builder::new().spawn(move || {
            carry_requests(&from, received, stdin);
            drop(reading);
        });
        if let Ok(carrying) = carrying {
            if carry_events(self.stdout, &link).is_ok() && announce_end(&link).is_ok() {
                // closing a connection with unread data resets it, which loses data in transit
                let _ = has_ended.recv_timeout(LAST_WORDS);
            }
            link.lock().shutdown();
            let _ = carrying.join();
        }
        let _ = self.child.wait();
    }
}

/// Passes bytes of the connection to the child, until the connection ends. If the child no longer
/// reads, they are discarded, because the child may still write.
fn carry_requests(link: &SharedLink, mut received: Vec<u8>, stdin: ChildStdin) {
    let mut stdin = Some(stdin);
    loop {
        let is_open = link.lock().receive(&mut received).unwrap_or(false);
        let has_come = !received.is_empty();
        if let Some(pipe) = &mut stdin
            && pipe.write_all(&received).is_err()
        {
            stdin = None;
        }
        received.clear();
        if !is_open {
            return;
        }
        if !has_come {
            wait_until_readable(link, None);
        }
    }
}

/// Passes all output of the child to the connection. While the child runs, it decides how long the
/// tool may be silent.
fn carry_events(mut stdout: ChildStdout, link: &SharedLink) -> io::Result<()> {
    let mut buffer = vec![0; AT_ONCE];
    loop {
        match stdout.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => write(link, &buffer[..count], None)?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn announce_end(link: &SharedLink) -> io::Result<()> {
    let until = Instant::now() + LAST_WORDS;
    loop {
        match link.lock().close() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < until => {}
            closed => return closed,
        }
        std::thread::sleep(PACE);
    }
}
