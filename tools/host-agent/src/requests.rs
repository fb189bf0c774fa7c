//! Reads requests.

use crate::output::{SharedLink, is_ready};
use nix::fcntl::{FcntlArg, fcntl};
use nix::poll::PollFlags;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::time::Duration;
use wire::Request;
use wire::codec::{Decoder, Message};

/// The variable in which an agent passes the bytes that it has read already to another agent that
/// it starts, as hexadecimal digits.
pub const REST: &str = "DGL_TOOLS_REST";
/// The size of a widened pipe: as much as an ordinary user may have. Between sshd and the agent a
/// pipe holds 64 KiB; if more comes, sshd writes a little now and then and moves the rest in its
/// memory, so that copying takes a fifth more CPU time.
const PIPE_BYTES: i32 = 1 << 20;
/// How much is read at once before it is known that much will come: as much as can be passed on in
/// the environment.
const FIRST_BYTES: usize = 32 << 10;
/// How much is read at once when much comes.
const MUCH_BYTES: usize = 256 << 10;

/// Reads stdin or a direct connection, message by message.
#[derive(Debug)]
pub struct Requests {
    decoder: Decoder,
    buffer: Vec<u8>,
    /// The direct connection; `None` for stdin.
    link: Option<SharedLink>,
}

/// The next thing that comes.
pub enum Next {
    /// A request.
    Request(Message<Request>),
    /// The end of the input.
    End,
    /// Nothing came in the given time.
    Silence,
}

impl Default for Requests {
    fn default() -> Requests {
        let mut decoder = Decoder::default();
        let rest = std::env::var(REST).unwrap_or_default();
        decoder.push(&record::hex::decode(&rest).unwrap_or_default());
        Requests {
            decoder,
            buffer: vec![0; FIRST_BYTES],
            link: None,
        }
    }
}

impl Requests {
    /// Reads from a direct connection, of which some bytes were read already.
    pub fn over(link: SharedLink, received: &[u8]) -> Requests {
        let mut decoder = Decoder::default();
        decoder.push(received);
        Requests {
            decoder,
            buffer: Vec::new(),
            link: Some(link),
        }
    }

    /// The bytes that were read and are not a request yet, for another reader to continue with.
    pub fn into_rest(self) -> Vec<u8> {
        self.decoder.rest()
    }

    /// The next request, or `Next::Silence` if nothing comes within the limit. Fails if what came
    /// is not a request.
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
                let before = self.decoder.waiting();
                // a connection that breaks counts as ended; what was under way is requested again
                // over the login
                let open = link.lock().receive(&mut self.decoder).unwrap_or(false);
                if self.decoder.waiting() > before {
                    continue;
                }
                if !open {
                    return Ok(Next::End);
                }
                if !wait_until_readable(link, limit) {
                    return Ok(Next::Silence);
                }
                continue;
            }
            if limit.is_some() && !is_ready(&io::stdin(), PollFlags::POLLIN, limit) {
                return Ok(Next::Silence);
            }
            match io::stdin().lock().read(&mut self.buffer) {
                Ok(0) if self.decoder.waiting() == 0 => return Ok(Next::End),
                Ok(0) => return Err("stdin ended within a request".to_owned()),
                Ok(count) => self.decoder.push(&self.buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(format!("stdin: {error}")),
            }
        }
    }

    /// Enlarges the buffers, because much will come.
    pub fn widen(&mut self) {
        widen(&io::stdin());
        self.buffer.resize(MUCH_BYTES, 0);
    }

    /// A request followed by the bytes that were read and not taken yet, for an agent that
    /// continues in place of this one.
    pub fn with_rest(&self, request: &[u8]) -> String {
        record::hex::encode(&[request, &self.decoder.rest()].concat())
    }
}

/// Waits until a connection has bytes or has ended, without holding its lock; whether it has.
pub fn wait_until_readable(link: &SharedLink, limit: Option<Duration>) -> bool {
    let Ok(descriptor) = link.lock().as_fd().try_clone_to_owned() else {
        return false;
    };
    is_ready(&descriptor, PollFlags::POLLIN, limit)
}

/// Enlarges a pipe, if it is one.
pub fn widen(pipe: &impl AsFd) {
    let _ = fcntl(pipe, FcntlArg::F_SETPIPE_SZ(PIPE_BYTES));
}
