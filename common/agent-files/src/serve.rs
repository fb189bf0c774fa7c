//! Serves the requests of a conversation about files, in order.

use agent::output::EventOutput;
use agent::requests::{Next, Requests};
use std::io;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use transfer::{beat_interval, silence};
use wire::files::{FileEvent, FileRequest};
use wire::{Event, Failure, Request};

/// Exit statuses of a conversation that ended early: a request failed, without which the following
/// ones make no sense; the tool is gone; or it sent something malformed.
const OVER_FAILED: u8 = 1;
const OVER_LOST: u8 = 74;
const OVER_MALFORMED: u8 = 65;

pub trait Serve: Send {
    /// An error ends the conversation. A request that takes long may check whether the next ones
    /// make it needless.
    fn step(
        &mut self,
        step: FileRequest,
        body: Vec<u8>,
        requests: &mut Requests,
    ) -> Result<(), Failure>;
}

/// Sends heartbeats meanwhile; returns the agent's exit status.
pub fn converse(serving: &mut dyn Serve, requests: &mut Requests, output: &EventOutput) -> u8 {
    let failed = |error: io::Error| {
        output.event(&Event::Failed(Failure::new(format!("host-agent: {error}"))));
        OVER_FAILED
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

/// Stops at the last request, or reports what ends the conversation earlier.
fn answer_all(serving: &mut dyn Serve, requests: &mut Requests, output: &EventOutput) -> u8 {
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
            Request::File(step) => serving.step(step, message.body, requests),
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
