//! Serves the requests of a conversation about files, one after another.

use crate::output::SharedOutput;
use crate::requests::{Next, Requests};
use std::io;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;
use transfer::{beat_interval, silence};
use wire::files::{FileEvent, FileRequest};
use wire::{Event, Failure, Request};

/// Exit statuses of a conversation that ended early: a request failed and the following ones make
/// no sense without it, the tool is gone, or it sent something malformed.
const OVER_FAILED: u8 = 1;
pub const OVER_LOST: u8 = 74;
const OVER_MALFORMED: u8 = 65;

/// Serves the requests of a conversation.
pub trait Serve: Send {
    /// Carries out a request; an error ends the conversation.
    fn step(&mut self, step: FileRequest, body: Vec<u8>) -> Result<(), Failure>;
    /// A function that shows other hosts that this one is alive, called from time to time. It may
    /// take as long as a file system does.
    fn sign(&self) -> Option<Box<dyn Fn() + Send>> {
        None
    }
}

/// Answers all requests, and sends a sign of life now and then meanwhile; returns the agent's exit
/// status.
pub fn converse(serving: &mut dyn Serve, requests: &mut Requests, output: &SharedOutput) -> u8 {
    let failed = |error: io::Error| {
        output.event(&Event::Failed(Failure::new(format!("host-agent: {error}"))));
        OVER_FAILED
    };
    let signing = serving
        .sign()
        .map(|sign| keep_signing(sign, beat_interval()));
    let _signing = match signing.transpose() {
        Ok(signing) => signing,
        Err(error) => return failed(error),
    };
    let (over, is_over) = channel::<()>();
    thread::scope(|scope| {
        let beating = thread::Builder::new().spawn_scoped(scope, move || {
            while is_over.recv_timeout(beat_interval()) == Err(RecvTimeoutError::Timeout) {
                output.event(&Event::Alive);
            }
        });
        if let Err(error) = beating {
            return failed(error);
        }
        let code = answer_all(serving, requests, output);
        drop(over);
        code
    })
}

/// Calls a function at intervals until the sender is dropped. It does so in a thread for which
/// nobody waits, because the function writes to a file system that may hang.
fn keep_signing(sign: Box<dyn Fn() + Send>, pace: Duration) -> io::Result<Sender<()>> {
    let (over, is_over) = channel::<()>();
    thread::Builder::new().spawn(move || {
        while is_over.recv_timeout(pace) == Err(RecvTimeoutError::Timeout) {
            sign();
        }
    })?;
    Ok(over)
}

/// Answers one request after another until the last, or until there is a reason to end, which is
/// reported.
fn answer_all(serving: &mut dyn Serve, requests: &mut Requests, output: &SharedOutput) -> u8 {
    loop {
        let message = match requests.next_within(Some(silence())) {
            Ok(Next::Request(message)) => message,
            Ok(Next::End) => return 0,
            Ok(Next::Silence) => {
                let seconds = silence().as_secs();
                output.send(FileEvent::Silence { seconds });
                return OVER_LOST;
            }
            Err(malformed) => {
                output.event(&Event::Failed(Failure::new(malformed)));
                return OVER_MALFORMED;
            }
        };
        let done = match message.head {
            Request::Alive => Ok(()),
            Request::File(step) => serving.step(step, message.body),
            _ => Err(Failure::new(
                "a request that is not about files, in the middle of files",
            )),
        };
        if let Err(failure) = done {
            output.event(&Event::Failed(failure));
            return OVER_FAILED;
        }
        if output.is_closed() {
            return OVER_LOST;
        }
    }
}
