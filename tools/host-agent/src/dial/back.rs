//! An agent that outlives the login that requested it: it connects to the launcher of a detached
//! job, and waits there like an agent that an engine has started.

use super::{Dialer, UNREACHABLE};
use crate::detached::start_apart;
use nix::unistd::{dup2_stdin, dup2_stdout};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{ExitCode, Stdio};
use wire::Failure;
use wire::dial::Ticket;

/// Its message when it has connected.
const CONNECTED: &str = "connected";
/// The most bytes that are read of a reason.
const MAX_REASON: u64 = 4 << 10;

/// Starts the agent, and waits until it has connected.
pub fn start(ticket: &Ticket) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::new(format!("an agent cannot be started: {error}"));
    let mut between = start_apart("dial-back", Stdio::piped(), Stdio::piped()).map_err(failed)?;
    if let Some(mut stdin) = between.stdin.take() {
        let mut line = serde_json::to_vec(ticket).map_err(|error| failed(error.into()))?;
        line.push(b'\n');
        stdin.write_all(&line).map_err(failed)?;
    }
    let mut answer = String::new();
    if let Some(stdout) = between.stdout.take() {
        let mut stdout = BufReader::new(stdout.take(MAX_REASON));
        stdout.read_line(&mut answer).map_err(failed)?;
    }
    between.wait().map_err(failed)?;
    match answer.trim() {
        CONNECTED => Ok(()),
        "" => Err(Failure::new("its agent has ended")),
        why => Err(Failure::new(why)),
    }
}

/// `host-agent dial-back`: connects with the ticket on stdin, and reports the result on stdout.
#[expect(clippy::disallowed_methods, reason = "/dev/null belongs to the system")]
pub fn run() -> ExitCode {
    let dialer = Dialer::begin(Some("-"));
    let connected = dialer.and_then(|dialer| Ok((dialer.connect()?, dialer)));
    let (link, mut dialer) = match connected {
        Ok(connected) => connected,
        Err(why) => {
            say(&why);
            return ExitCode::from(UNREACHABLE);
        }
    };
    say(CONNECTED);
    let null = File::options().read(true).write(true).open("/dev/null");
    // the login may end now
    if null.is_ok_and(|null| dup2_stdin(&null).and_then(|()| dup2_stdout(&null)).is_err()) {
        return ExitCode::FAILURE;
    }
    // a launcher that has ended does not return
    dialer.ends_with_job = true;
    match dialer.run(link) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::from(UNREACHABLE),
    }
}

fn say(word: &str) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{word}").and_then(|()| out.flush());
}
