//! Serves the requests of a conversation about files, one after another.

use crate::output::SharedOutput;
use crate::requests::{Next, Requests};
use std::io;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;
use transfer::{beat_interval, silence};
use wire::codec::Message;
use wire::files::{FileEvent, FileRequest, Listen};
use wire::{Event, Failure, Request};

/// Exit statuses of a conversation that ended early: the tool is gone, or sent something malformed.
pub const OVER_LOST: u8 = 74;
const OVER_MALFORMED: u8 = 65;

/// Serves the requests of a conversation: a receiver, a sender, or an heir.
pub trait Serve: Send {
    /// Carries out a request; an error ends the conversation.
    fn step(
        &mut self,
        step: FileRequest,
        body: Vec<u8>,
        output: &SharedOutput,
    ) -> Result<(), Failure>;
    /// A function that shows other hosts that this one is alive, called from time to time. It may
    /// take as long as a file system does.
    fn sign(&self) -> Option<Box<dyn Fn() + Send>> {
        None
    }
    /// The connection over which files were on their way broke, and another one continues.
    fn break_off(&mut self) {}
}

/// Why a stream of requests is not read any longer.
pub enum Stop {
    /// It has ended.
    End,
    /// Nothing came for too long.
    Silence,
    /// Nobody reads the answers.
    Closed,
    /// What came is not a request.
    Malformed(String),
    /// A request could not be carried out, and the following ones make no sense without it.
    Failed(Failure),
    /// A port is to be opened.
    Listen(Listen),
    /// The conversation moves to another connection.
    Move,
}

/// Sends a sign of life now and then while a conversation goes on.
pub fn while_beating(
    serving: &mut dyn Serve,
    output: &SharedOutput,
    converse: impl FnOnce(&mut dyn Serve) -> u8,
) -> u8 {
    let failed = |error: io::Error| {
        let failure = Failure::new(format!("host-agent: {error}"));
        end(Stop::Failed(failure), output)
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
        let code = converse(serving);
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

/// The conversation of a connection that has its own.
pub fn converse_alone(serving: &mut dyn Serve, requests: &mut Requests, output: &SharedOutput) {
    while_beating(serving, output, |serving| {
        let stop = match answer_all(serving, None, requests, output) {
            Stop::Listen(_) | Stop::Move => {
                Stop::Failed(Failure::new("a port is asked for by the login"))
            }
            stop => stop,
        };
        end(stop, output)
    });
}

/// Reports why a conversation ends; returns the agent's exit status.
pub fn end(stop: Stop, output: &SharedOutput) -> u8 {
    let fail = |failure: Failure, code: u8| {
        output.event(&Event::Failed(failure));
        code
    };
    match stop {
        Stop::End => 0,
        Stop::Closed => OVER_LOST,
        Stop::Silence => {
            output.send(FileEvent::Silence {
                seconds: silence().as_secs(),
            });
            OVER_LOST
        }
        Stop::Malformed(malformed) => fail(Failure::new(malformed), OVER_MALFORMED),
        Stop::Failed(failure) => fail(failure, 1),
        Stop::Listen(_) | Stop::Move => fail(Failure::new("a port is asked for by the login"), 1),
    }
}

/// Answers one request after another, beginning with one that was already read.
pub fn answer_all(
    serving: &mut dyn Serve,
    mut first: Option<Message<Request>>,
    requests: &mut Requests,
    output: &SharedOutput,
) -> Stop {
    loop {
        let next = match first.take() {
            Some(message) => Ok(Next::Request(message)),
            None => requests.next_within(Some(silence())),
        };
        let message = match next {
            Ok(Next::Request(message)) => message,
            Ok(Next::End) => return Stop::End,
            Ok(Next::Silence) => return Stop::Silence,
            Err(malformed) => return Stop::Malformed(malformed),
        };
        let done = match message.head {
            Request::Alive => Ok(()),
            Request::File(FileRequest::Listen(listen)) => return Stop::Listen(listen),
            Request::File(FileRequest::Move) => return Stop::Move,
            Request::File(step) => serving.step(step, message.body, output),
            _ => Err(Failure::new(
                "a request that is not about files, in the middle of files",
            )),
        };
        if let Err(failure) = done {
            return Stop::Failed(failure);
        }
        if output.is_closed() {
            return Stop::Closed;
        }
    }
}
