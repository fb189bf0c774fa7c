//! The keeper of another host, as this one sees it.

use std::time::Instant;
use tls::Link;
use wire::codec::{self, Decoder};
use wire::keep::PeerMessage;

/// The keeper of another host.
pub(super) struct Peer {
    pub(super) link: Link,
    decoder: Decoder,
    pub(super) heard: Instant,
}

impl Peer {
    pub(super) fn new(link: Link, said: &[u8], now: Instant) -> Peer {
        let mut decoder = Decoder::default();
        decoder.push(said);
        Peer {
            link,
            decoder,
            heard: now,
        }
    }

    /// Sends a message. A peer that accepts nothing will be missed by its silence.
    pub(super) fn tell(&mut self, message: &PeerMessage) {
        let _ = self.link.send(&codec::encode(message, &[]));
    }

    /// The messages that came; and whether the peer is still there.
    pub(super) fn read(&mut self, now: Instant) -> (Vec<PeerMessage>, bool) {
        let mut received = Vec::new();
        let mut open =
            self.link.flush().is_ok() && self.link.receive(&mut received).is_ok_and(|open| open);
        if !received.is_empty() {
            self.heard = now;
        }
        self.decoder.push(&received);
        let mut messages = Vec::new();
        loop {
            match self.decoder.next_message() {
                Ok(Some(message)) => messages.push(message.head),
                Ok(None) => return (messages, open),
                Err(_) => {
                    open = false;
                    return (messages, open);
                }
            }
        }
    }
}
