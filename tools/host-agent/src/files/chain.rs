//! Hands a file on to the next host, whose agent hands it on in turn. Nothing depends on it: what
//! does not arrive so is sent directly.

use std::io::Write;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};
use wire::files::{Begin, Block, FileRequest, Hop, Zeros};
use wire::{Request, codec};

/// The last host of a chain has so long to take what is on its way.
const LAST: Duration = Duration::from_secs(60);

/// The way to the next host.
#[derive(Debug)]
pub struct Chain {
    /// Which delivery it is there.
    id: u32,
    child: Child,
    /// `None` once nobody reads there any more.
    stdin: Option<ChildStdin>,
}

impl Chain {
    /// Begins the file on the first of these hosts; `None` where there is none or it cannot be
    /// reached.
    pub fn begin(next: &[Hop]) -> Option<Chain> {
        let (hop, rest) = next.split_first()?;
        let (program, args) = hop.words.split_first()?;
        let mut command = Command::new(program);
        command
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut child = command.spawn().ok()?;
        let stdin = child.stdin.take();
        if let Some(stdin) = &stdin {
            crate::requests::widen(stdin);
        }
        let mut chain = Chain {
            id: hop.file.id,
            child,
            stdin,
        };
        let begin = Begin {
            file: hop.file.clone(),
            key: hop.key.clone(),
            keep: Vec::new(),
            scattered: false,
            next: rest.to_vec(),
        };
        chain.step(FileRequest::Receive(hop.receive.clone()), &[]);
        chain.step(FileRequest::Begin(begin), &[]);
        Some(chain)
    }

    /// A part, as it came.
    pub fn block(&mut self, block: &Block, body: &[u8]) {
        self.step(
            FileRequest::Block(Block {
                id: self.id,
                ..*block
            }),
            body,
        );
    }

    /// A part that is all zeros.
    pub fn zeros(&mut self, zeros: &Zeros) {
        self.step(
            FileRequest::Zeros(Zeros {
                id: self.id,
                ..*zeros
            }),
            &[],
        );
    }

    fn step(&mut self, step: FileRequest, body: &[u8]) {
        let message = codec::encode(&Request::File(step), body);
        if self
            .stdin
            .as_mut()
            .is_some_and(|stdin| stdin.write_all(&message).is_err())
        {
            self.stdin = None;
        }
    }

    /// No more comes: waits until the next host has what was sent.
    pub fn close(mut self) {
        self.step(FileRequest::Close { id: self.id }, &[]);
        self.stdin = None;
        let until = Instant::now() + LAST;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
