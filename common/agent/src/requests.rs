//! Reads requests.

use crate::output::SharedLink;
use host::readiness::is_ready;
use nix::fcntl::{FcntlArg, fcntl};
use nix::poll::PollFlags;
use std::collections::VecDeque;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::time::Duration;
use wire::Request;
use wire::codec::{Decoder, Message};
use wire::files::{FileRequest, FileStep};

/// The size of an enlarged pipe, the most for an ordinary user. The pipe from sshd has 64 KiB by
/// default. When it is full, sshd writes in small pieces and moves the rest in its memory, so that
/// copying takes a fifth more CPU time.
const PIPE_BYTES: i32 = 1 << 20;
const READ_AT_ONCE: usize = 256 << 10;

/// Messages from stdin or a direct connection.
#[derive(Debug)]
pub struct Requests {
    decoder: Decoder,
    ahead: VecDeque<Message<Request>>,
    buffer: Vec<u8>,
    from: Source,
}

#[derive(Debug, Default)]
enum Source {
    #[default]
    Stdin,
    Link(SharedLink),
    /// Requests come by calls.
    Nothing,
}

pub enum Next {
    Request(Message<Request>),
    End,
    Silence,
}

impl Default for Requests {
    fn default() -> Requests {
        Requests {
            decoder: Decoder::default(),
            ahead: VecDeque::new(),
            buffer: vec![0; READ_AT_ONCE],
            from: Source::Stdin,
        }
    }
}

impl Requests {
    /// Some bytes were read from the connection already.
    pub fn over(link: SharedLink, received: &[u8]) -> Requests {
        let mut decoder = Decoder::default();
        decoder.push(received);
        Requests {
            decoder,
            from: Source::Link(link),
            ..Requests::none()
        }
    }

    /// For a conversation whose requests come by calls.
    pub fn none() -> Requests {
        Requests {
            decoder: Decoder::default(),
            ahead: VecDeque::new(),
            buffer: Vec::new(),
            from: Source::Nothing,
        }
    }

    /// An incomplete request, for another reader to continue with.
    pub fn into_rest(self) -> Vec<u8> {
        self.decoder.rest()
    }

    /// `Next::Silence` if nothing arrives within the limit. Fails if the input is no request.
    pub fn next_within(&mut self, limit: Option<Duration>) -> Result<Next, String> {
        match self.ahead.pop_front() {
            Some(message) => Ok(Next::Request(message)),
            None => self.read_within(limit),
        }
    }

    /// Whether a request that has arrived abandons this file.
    pub fn abandons(&mut self, file: u32) -> bool {
        while let Ok(Next::Request(message)) = self.read_within(Some(Duration::ZERO)) {
            if message.head != Request::Alive {
                self.ahead.push_back(message);
            }
        }
        self.ahead.iter().any(|message| {
            let abandoned =
                |step: &FileStep| matches!(step, FileStep::Abandon { id, .. } if *id == file);
            matches!(&message.head, Request::File(FileRequest::Step(step)) if abandoned(step))
        })
    }

    fn read_within(&mut self, limit: Option<Duration>) -> Result<Next, String> {
        loop {
            if let Some(message) = self.decoder.next_message()? {
                return Ok(Next::Request(message));
            }
            if let Source::Nothing = self.from {
                return Ok(Next::End);
            }
            if let Source::Link(link) = &self.from {
                let before = self.decoder.waiting();
                // a broken connection counts as ended; unfinished files are requested again over
                // the login
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
}

/// Waits until a connection has bytes or has ended, without holding its lock; returns whether it
/// has.
pub fn wait_until_readable(link: &SharedLink, limit: Option<Duration>) -> bool {
    let Ok(descriptor) = link.lock().as_fd().try_clone_to_owned() else {
        return false;
    };
    is_ready(&descriptor, PollFlags::POLLIN, limit)
}

/// Does nothing if it is no pipe.
pub fn widen(pipe: &impl AsFd) {
    let _ = fcntl(pipe, FcntlArg::F_SETPIPE_SZ(PIPE_BYTES));
}
