//! Many agents that dial in, in one process: they speak as host-agent does and do nothing, for what
//! is the tool's own at numbers that this machine cannot carry.
//!
//!     dialers TICKET COUNT      agents n1 to nCOUNT

// a measurement that cannot go on fails
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use nix::poll::{PollFd, PollTimeout, poll};
use std::net::TcpStream;
use std::os::fd::AsFd;
use tls::{Identity, PublicKey, TlsConnection};
use wire::codec::{Decoder, encode};
use wire::dial::{DialMessage, Hello, Ticket};
use wire::{Event, Request};

struct Agent {
    number: usize,
    link: TlsConnection,
    decoder: Decoder,
    serves: bool,
}

struct Engine {
    ticket: Ticket,
    identity: Identity,
    key: PublicKey,
}

impl Engine {
    fn dial(&self, number: usize) -> Option<Agent> {
        let stream = TcpStream::connect(self.ticket.addresses[0]).ok()?;
        let mut link = TlsConnection::connect(stream, &self.identity, self.key).ok()?;
        let hello = Hello {
            agent: format!("agent {number}"),
            names: vec![format!("n{number}")],
            addresses: Vec::new(),
            position: None,
        };
        link.send(&encode(&hello, &[])).ok()?;
        Some(Agent {
            number,
            link,
            decoder: Decoder::default(),
            serves: false,
        })
    }
}

impl Agent {
    /// Answers what came; whether more may, and whether it has to dial again.
    fn turn(&mut self) -> (bool, bool) {
        let flushed = self.link.flush().is_ok();
        let open = flushed && matches!(self.link.receive(&mut self.decoder), Ok(true));
        let mut again = false;
        loop {
            let answer = if !self.serves {
                match self.decoder.next_message::<DialMessage>() {
                    Ok(Some(message)) => match message.head {
                        DialMessage::Serve { token } => {
                            (self.serves, again) = (true, true);
                            format!("\n{token} runs\n").into_bytes()
                        }
                        DialMessage::Leave => return (false, again),
                    },
                    _ => return (open, again),
                }
            } else {
                match self.decoder.next_message::<Request>() {
                    Ok(Some(message)) if message.head == Request::Alive => {
                        encode(&Event::Alive, &[])
                    }
                    Ok(Some(_)) => encode(&Event::Done, &[]),
                    _ => return (open, again),
                }
            };
            if self.link.send(&answer).is_err() {
                return (false, again);
            }
        }
    }
}

fn main() {
    let words: Vec<String> = std::env::args().collect();
    let ticket: Ticket =
        serde_json::from_str(&std::fs::read_to_string(&words[1]).unwrap()).unwrap();
    let engine = Engine {
        identity: Identity::from_secret(&ticket.secret).unwrap(),
        key: ticket.key,
        ticket,
    };
    let count: usize = words[2].parse().unwrap();
    let mut agents: Vec<Agent> = (1..=count)
        .filter_map(|number| engine.dial(number))
        .collect();
    while !agents.is_empty() {
        let mut fds: Vec<PollFd<'_>> = agents
            .iter()
            .map(|agent| PollFd::new(agent.link.as_fd(), agent.link.poll_flags()))
            .collect();
        poll(&mut fds, PollTimeout::NONE).unwrap();
        let ready: Vec<bool> = fds.iter().map(|fd| fd.any().unwrap_or(true)).collect();
        let mut again = Vec::new();
        let mut next = Vec::new();
        for (mut agent, is_ready) in agents.into_iter().zip(ready) {
            let (open, dials) = if is_ready {
                agent.turn()
            } else {
                (true, false)
            };
            if dials {
                again.push(agent.number);
            }
            if open {
                next.push(agent);
            }
        }
        next.extend(again.into_iter().filter_map(|number| engine.dial(number)));
        agents = next;
    }
}
