//! Files come to this host (`receive`) or are fetched from it (`send`): a conversation that lasts
//! until its stdin ends.
//!
//! Whoever comes first of the two requests decides; after that every request is answered in its
//! order, without any other waiting for it. A word goes out now and then whatever is done here, and
//! where none comes in for a minute the tool is taken for gone.

mod chain;
mod guard;
mod look;
mod place;
mod receive;
mod send;
mod stage;

use crate::output::Output;
use crate::requests::{Next, Requests};
use std::process::ExitCode;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use transfer::{BEAT, SILENCE};
use wire::files::{FileEvent, FileRequest};
use wire::{Event, Failure, Request};

/// Why a conversation is over.
const OVER_LOST: u8 = 74;
const OVER_MALFORMED: u8 = 65;

/// Serves the rest of stdin.
pub fn serve(first: FileRequest, mut requests: Requests, output: Output) -> ExitCode {
    // a file that becomes larger than is allowed is an error of that file, not the end of the agent
    let mut signals = nix::sys::signal::SigSet::empty();
    signals.add(nix::sys::signal::Signal::SIGXFSZ);
    let _ = signals.thread_block();
    let told = SharedOutput(Mutex::new(output));
    let begun = match first {
        FileRequest::Receive(receive) if guard::is_needed(&receive) => {
            return guard::run(&receive, &requests, &told);
        }
        FileRequest::Receive(receive) => receive::Receiver::begin(receive, &told)
            .map(|receiver| Box::new(receiver) as Box<dyn Serve>),
        FileRequest::Give(give) => {
            send::Sender::begin(&give, &told).map(|sender| Box::new(sender) as Box<dyn Serve>)
        }
        _ => Err(Failure::new("neither receive nor give came before it")),
    };
    match begun {
        Ok(mut serving) => {
            requests.widen();
            crate::requests::widen(&std::io::stdout());
            converse(serving.as_mut(), &mut requests, &told)
        }
        Err(failure) => {
            told.event(&Event::Failed(failure));
            ExitCode::FAILURE
        }
    }
}

/// One of the two.
trait Serve: Send {
    /// Carries out a request; an error ends the conversation.
    fn step(
        &mut self,
        step: FileRequest,
        body: Vec<u8>,
        told: &SharedOutput,
    ) -> Result<(), Failure>;
    /// From time to time, whatever is done meanwhile: what shows others that it is alive.
    fn sign(&self) -> Option<Box<dyn Fn() + Send>> {
        None
    }
}

fn converse(serving: &mut dyn Serve, requests: &mut Requests, told: &SharedOutput) -> ExitCode {
    let (over, is_over) = channel::<()>();
    let sign = serving.sign();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            while is_over.recv_timeout(BEAT) == Err(RecvTimeoutError::Timeout) {
                told.event(&Event::Alive);
                if let Some(sign) = &sign {
                    sign();
                }
            }
        });
        let code = answer_all(serving, requests, told);
        drop(over);
        ExitCode::from(code)
    })
}

fn answer_all(serving: &mut dyn Serve, requests: &mut Requests, told: &SharedOutput) -> u8 {
    let fail = |failure: Failure, code: u8| {
        told.event(&Event::Failed(failure));
        code
    };
    loop {
        let message = match requests.next_within(Some(SILENCE)) {
            Ok(Next::Request(message)) => message,
            Ok(Next::End) => return 0,
            Ok(Next::Silence) => {
                told.tell(FileEvent::Silence {
                    seconds: SILENCE.as_secs(),
                });
                return OVER_LOST;
            }
            Err(malformed) => return fail(Failure::new(malformed), OVER_MALFORMED),
        };
        let done = match message.head {
            Request::Alive => Ok(()),
            Request::File(step) => serving.step(step, message.body, told),
            _ => Err(Failure::new(
                "a request that is not about files, in the middle of files",
            )),
        };
        if let Err(failure) = done {
            return fail(failure, 1);
        }
        if told.is_closed() {
            return OVER_LOST;
        }
    }
}

/// What is told, from whichever thread.
struct SharedOutput(Mutex<Output>);

impl SharedOutput {
    fn tell(&self, told: FileEvent) {
        self.tell_with(told, &[]);
    }

    fn tell_with(&self, told: FileEvent, body: &[u8]) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .event_with(&Event::File(told), body);
    }

    fn event(&self, event: &Event) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .event(event);
    }

    fn is_closed(&self) -> bool {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_closed()
    }
}
