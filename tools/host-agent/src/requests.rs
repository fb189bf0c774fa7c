//! Requests on their way in.

use crate::output::{SharedLink, lock};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::time::Duration;
use wire::Request;
use wire::codec::{Decoder, Message};

/// In the environment of an agent that another one has started: what that one had read already, as
/// hexadecimal digits.
pub const REST: &str = "DGL_TOOLS_REST";
/// As much as an ordinary user may have. Between sshd and the agent a pipe holds 64 KiB; of what
/// does not fit, sshd writes a little now and then and moves the rest about in its memory, so that
/// copying takes a fifth more of all processors.
const PIPE_BYTES: i32 = 1 << 20;
/// Read at once before it is known that much will come: as much can be handed to another agent in
/// its environment.
const FIRST_BYTES: usize = 32 << 10;
/// Read at once where much comes.
const MUCH_BYTES: usize = 256 << 10;

/// stdin, or a direct connection, message by message.
#[derive(Debug)]
pub struct Requests {
    decoder: Decoder,
    buffer: Vec<u8>,
    /// `None` for stdin.
    link: Option<SharedLink>,
}

/// What comes next on stdin.
pub enum Next {
    /// A request.
    Request(Message<Request>),
    /// Its end.
    End,
    /// Nothing, for as long as was asked for.
    Silence,
}

impl Default for Requests {
    fn default() -> Requests {
        let mut decoder = Decoder::default();
        decoder.push(
            &std::env::var(REST)
                .map(|text| from_hex(&text))
                .unwrap_or_default(),
        );
        Requests {
            decoder,
            buffer: vec![0; FIRST_BYTES],
            link: None,
        }
    }
}

impl Requests {
    /// Those of a direct connection, of which something was read already.
    pub fn over(link: SharedLink, said: &[u8]) -> Requests {
        let mut decoder = Decoder::default();
        decoder.push(said);
        Requests {
            decoder,
            buffer: Vec::new(),
            link: Some(link),
        }
    }

    /// What was read and is no request yet: somebody else goes on there.
    pub fn into_rest(self) -> Vec<u8> {
        self.decoder.into_rest()
    }

    /// The next request, or nothing when nothing comes for so long. An error says why what came is
    /// no request.
    pub fn next_within(&mut self, limit: Option<Duration>) -> Result<Next, String> {
        loop {
            if let Some(message) = self
                .decoder
                .next_message()
                .map_err(|malformed| malformed.to_string())?
            {
                return Ok(Next::Request(message));
            }
            if let Some(link) = &self.link {
                let before = self.decoder.rest().len();
                // one that breaks is at its end: what was under way is asked for over the login
                let open = lock(link)
                    .receive(self.decoder.end_of_buffer())
                    .unwrap_or(false);
                if self.decoder.rest().len() > before {
                    continue;
                }
                if !open {
                    return Ok(Next::End);
                }
                if !is_link_readable(link, limit) {
                    return Ok(Next::Silence);
                }
                continue;
            }
            if let Some(limit) = limit
                && !is_readable(limit)
            {
                return Ok(Next::Silence);
            }
            match io::stdin().lock().read(&mut self.buffer) {
                Ok(0) if self.decoder.is_empty() => return Ok(Next::End),
                Ok(0) => return Err("stdin ended within a request".to_owned()),
                Ok(count) => self.decoder.push(&self.buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(format!("stdin: {error}")),
            }
        }
    }

    /// Much will come.
    pub fn widen(&mut self) {
        widen(&io::stdin());
        self.buffer.resize(MUCH_BYTES, 0);
    }

    /// For an agent that goes on in place of this one: a request, and behind it what was read and
    /// not taken yet.
    pub fn with_rest(&self, request: &[u8]) -> String {
        let bytes = request.iter().chain(self.decoder.rest());
        bytes.map(|byte| format!("{byte:02x}")).collect()
    }
}

fn from_hex(text: &str) -> Vec<u8> {
    let digit = |byte: u8| {
        char::from(byte)
            .to_digit(16)
            .and_then(|digit| u8::try_from(digit).ok())
    };
    let (pairs, _) = text.as_bytes().as_chunks::<2>();
    pairs
        .iter()
        .filter_map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?))
        .collect()
}

/// Waits until something, or its end, is there to be read.
fn is_readable(limit: Duration) -> bool {
    is_ready(&io::stdin(), Some(limit))
}

/// The same of a direct connection. Nobody holds it meanwhile.
fn is_link_readable(link: &SharedLink, limit: Option<Duration>) -> bool {
    let Ok(descriptor) = lock(link).as_fd().try_clone_to_owned() else {
        return false;
    };
    is_ready(&descriptor, limit)
}

fn is_ready(descriptor: &impl AsFd, limit: Option<Duration>) -> bool {
    let mut fds = [PollFd::new(descriptor.as_fd(), PollFlags::POLLIN)];
    let timeout = limit.map_or(PollTimeout::NONE, |limit| {
        PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX)
    });
    loop {
        match poll(&mut fds, timeout) {
            Err(Errno::EINTR) => {}
            ready => return ready != Ok(0),
        }
    }
}

/// Makes a pipe hold more, if it is one.
pub fn widen(pipe: &impl AsFd) {
    let _ = fcntl(pipe, FcntlArg::F_SETPIPE_SZ(PIPE_BYTES));
}
