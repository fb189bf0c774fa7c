//! An agent that an engine (srun, mpirun, waiting pods) has started. It connects to the tool and
//! waits. Each conversation gets its own `host-agent serve`, whose stdin and stdout are the
//! connection, as with sshd:
//!
//!     tool ══ TLS ══> host-agent dial ── pipes ──> host-agent serve TOKEN
//!
//! One connection waits at a time; when a conversation takes it, this agent dials again. It ends
//! when the tool asks for that or is gone, and all conversations have ended.

pub mod engine;
mod hello;
mod relay;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use relay::DialRelay;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tls::{Identity, PublicKey, TlsConnection};
use wire::codec::{self, Decoder};
use wire::dial::{DialMessage, Hello, TICKET_VARIABLE, Ticket};

/// How long one address is tried before the next one.
const TRY_LIMIT: Duration = Duration::from_secs(5);
/// The first pause before another attempt, if the tool admits many hosts.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// How often to check whether a received signal may be obeyed now.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// A ticket has some hundred bytes.
const MAX_TICKET: u64 = 64 << 10;
/// The exit status if the tool cannot be reached.
const UNREACHABLE: u8 = 74;

/// `host-agent dial [FILE]`: dials in with the ticket in a file, in the environment, or on stdin.
pub fn dial(source: Option<&str>) -> ExitCode {
    let dialed = Dialer::begin(source).and_then(|dialer| {
        let link = dialer.connect()?;
        dialer.run(link)
    });
    match dialed {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            record::tell!("host-agent: dial: {problem}");
            ExitCode::from(UNREACHABLE)
        }
    }
}

struct Dialer {
    ticket: Ticket,
    identity: Identity,
    key: PublicKey,
    hello: Hello,
    conversations: Vec<JoinHandle<()>>,
    /// Receives signals before a conversation has begun; afterwards they are meant for the
    /// processes of the job.
    signals: Option<SignalFd>,
    asked_to_end: bool,
}

enum Waited {
    /// A new conversation's token, and the bytes after it.
    Serve(String, Vec<u8>),
    Leave,
    Broken,
}

enum Failed {
    /// Another attempt may succeed.
    Again(String),
    /// No attempt will succeed.
    Never(String),
}

impl Dialer {
    fn begin(source: Option<&str>) -> Result<Dialer, String> {
        let text = ticket_text(source)?;
        let ticket: Ticket = serde_json::from_str(&text)
            .map_err(|error| format!("the given text is not a ticket: {error}"))?;
        let identity = Identity::from_secret(&ticket.secret).map_err(|error| error.to_string())?;
        Ok(Dialer {
            identity,
            key: ticket.key,
            hello: hello::hello().map_err(|error| format!("this host: {error}"))?,
            ticket,
            conversations: Vec::new(),
            signals: None,
            asked_to_end: false,
        })
    }

    /// Waits on this and later connections, until the tool is gone.
    fn run(mut self, link: TlsConnection) -> Result<(), String> {
        let result = self.wait_and_serve(link);
        for conversation in self.conversations {
            let _ = conversation.join();
        }
        result
    }

    fn wait_and_serve(&mut self, mut link: TlsConnection) -> Result<(), String> {
        loop {
            let waited = match link.send(&codec::encode(&self.hello, &[])) {
                Ok(()) => self.wait_for_word(&mut link),
                Err(_) => Waited::Broken,
            };
            match waited {
                Waited::Serve(token, rest) => self.serve(link, rest, &token)?,
                Waited::Leave => return Ok(()),
                // too many agents connected at once, or the network fails; a running tool accepts
                // another connection
                Waited::Broken => std::thread::sleep(FIRST_PAUSE),
            }
            link = match self.connect() {
                Ok(link) => link,
                // the tool has ended
                Err(_) => return Ok(()),
            };
        }
    }

    fn serve(&mut self, link: TlsConnection, received: Vec<u8>, token: &str) -> Result<(), String> {
        self.block_signals().map_err(|error| error.to_string())?;
        let relay = DialRelay::begin(link, received, token)
            .map_err(|error| format!("host-agent serve cannot be started: {error}"))?;
        let thread = std::thread::Builder::new().spawn(move || relay.run());
        self.conversations.retain(|thread| !thread.is_finished());
        self.conversations
            .push(thread.map_err(|error| error.to_string())?);
        Ok(())
    }

    /// An engine may signal everything on the host, as Slurm does at a time limit. That is meant
    /// for the processes of a job, and this agent still carries their last output.
    fn block_signals(&mut self) -> io::Result<()> {
        if self.signals.is_none() {
            let asking = agent::signals::asking_to_end();
            asking.thread_block()?;
            let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
            self.signals = Some(SignalFd::with_flags(&asking, flags)?);
        }
        Ok(())
    }

    fn wait_for_word(&mut self, link: &mut TlsConnection) -> Waited {
        let mut decoder = Decoder::default();
        loop {
            match decoder.next_message::<DialMessage>() {
                Ok(Some(message)) => match message.head {
                    DialMessage::Serve { token } => return Waited::Serve(token, decoder.rest()),
                    DialMessage::Leave => return Waited::Leave,
                },
                Ok(None) => {}
                Err(_) => return Waited::Leave,
            }
            let before = decoder.waiting();
            let received = link.flush().and_then(|()| link.receive(&mut decoder));
            if decoder.waiting() > before {
                continue;
            }
            if !matches!(received, Ok(true)) {
                return Waited::Broken;
            }
            self.wait(link);
            let is_idle = self.conversations.iter().all(JoinHandle::is_finished);
            if self.asked_to_end && is_idle {
                return Waited::Leave;
            }
        }
    }

    fn wait(&mut self, link: &TlsConnection) {
        let mut fds = vec![PollFd::new(link.as_fd(), link.poll_flags())];
        if let Some(signals) = &self.signals {
            fds.push(PollFd::new(signals.as_fd(), PollFlags::POLLIN));
        }
        let limit = if self.asked_to_end {
            PollTimeout::try_from(CHECK_INTERVAL).unwrap_or(PollTimeout::MAX)
        } else {
            PollTimeout::NONE
        };
        let _ = poll(&mut fds, limit);
        if let Some(signals) = &mut self.signals {
            while let Ok(Some(_)) = signals.read_signal() {
                self.asked_to_end = true;
            }
        }
    }

    fn connect(&self) -> Result<TlsConnection, String> {
        let until = Instant::now() + Duration::from_millis(self.ticket.patience_ms);
        let mut pause = FIRST_PAUSE;
        loop {
            let mut failures = Vec::new();
            let mut may_come = false;
            for address in &self.ticket.addresses {
                match self.try_address((*address).into()) {
                    Ok(link) => return Ok(link),
                    Err(Failed::Again(why)) => {
                        may_come = true;
                        failures.push(format!("{address}: {why}"));
                    }
                    Err(Failed::Never(why)) => failures.push(format!("{address}: {why}")),
                }
            }
            if !may_come || Instant::now() + pause > until {
                return Err(format!(
                    "the tool cannot be reached: {}",
                    failures.join("; ")
                ));
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn try_address(&self, address: SocketAddr) -> Result<TlsConnection, Failed> {
        // the tool listens before an agent is started, so it has ended if the port is closed
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::ConnectionRefused => {
                Failed::Never("the tool no longer listens".to_owned())
            }
            _ if tls::is_wrong_key(&error) => {
                Failed::Never("another program than the tool of this ticket answers".to_owned())
            }
            _ => Failed::Again(error.to_string()),
        };
        let opened = TlsConnection::open(address, &self.identity, self.key, TRY_LIMIT, false);
        let (link, _) = opened.map_err(failed)?;
        link.detect_silence().map_err(failed)?;
        Ok(link)
    }
}

/// The text of the ticket: from a file, from stdin for `-`, else from the variable or stdin.
fn ticket_text(source: Option<&str>) -> Result<String, String> {
    let mut text = String::new();
    match (source, std::env::var(TICKET_VARIABLE)) {
        (None, Ok(ticket)) => return Ok(ticket),
        (None | Some("-"), _) => {
            // one line, because an engine may leave stdin open
            io::BufRead::read_line(&mut io::BufReader::new(io::stdin()), &mut text)
                .map_err(|error| format!("stdin: {error}"))?;
        }
        (Some(file), _) => {
            std::fs::File::open(file)
                .and_then(|opened| opened.take(MAX_TICKET).read_to_string(&mut text))
                .map_err(|error| format!("{file}: {error}"))?;
        }
    }
    Ok(text)
}
