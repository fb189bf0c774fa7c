//! Events on their way out.

use std::io::{self, Write};
use wire::{Event, codec};

/// stdout. Once nobody takes it any more, that is remembered and nothing is written.
#[derive(Debug, Default)]
pub struct Output {
    closed: bool,
}

impl Output {
    /// The first line, by which the tool knows the agent's words from the login shell's; that may
    /// have left a line without its end.
    pub fn mark(&mut self, token: &str) {
        self.write(format!("\n{token} runs\n").as_bytes());
    }

    /// An event without a body.
    pub fn event(&mut self, event: &Event) {
        self.event_with(event, &[]);
    }

    /// The same with bytes behind it.
    pub fn event_with(&mut self, event: &Event, body: &[u8]) {
        self.write(&codec::encode_head(event, body.len()));
        if !body.is_empty() {
            self.write(body);
        }
    }

    /// Whether nobody takes what is written any more.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    fn write(&mut self, bytes: &[u8]) {
        if !self.closed {
            let mut stdout = io::stdout().lock();
            self.closed = stdout
                .write_all(bytes)
                .and_then(|()| stdout.flush())
                .is_err();
        }
    }
}
