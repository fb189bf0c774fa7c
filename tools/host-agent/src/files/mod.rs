//! Files come to this host (`receive`) or are fetched from it (`send`), in a conversation that
//! lasts until its stdin ends.
//!
//! The first request decides which; every further request is answered in its order, and none waits
//! for another. A conversation may move to a direct connection (`door`), further ones come beside
//! it, and other hosts hand files on over theirs (`hand`). A sign of life is sent now and then
//! whatever else is done, and if the tool sends nothing for a minute it is taken for gone.

mod coming;
mod door;
mod guard;
mod hand;
mod look;
mod place;
mod receive;
mod send;
mod stage;

use crate::output::{Output, SharedLink, lock};
use crate::requests::{Next, Requests};
use coming::Arrivals;
use door::Door;
use std::process::ExitCode;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use transfer::{BEAT, SILENCE};
use wire::codec::Message;
use wire::files::{FileEvent, FileRequest, Listen};
use wire::{Event, Failure, Request};

/// Exit statuses of a conversation that ended early: the tool is gone, or sent something malformed.
const OVER_LOST: u8 = 74;
const OVER_MALFORMED: u8 = 65;

/// Serves the rest of stdin.
pub fn serve(first: FileRequest, mut requests: Requests, output: Output) -> ExitCode {
    // a file that exceeds a limit is an error of that file, not the end of the agent
    let mut signals = nix::sys::signal::SigSet::empty();
    signals.add(nix::sys::signal::Signal::SIGXFSZ);
    let _ = signals.thread_block();
    let told = Arc::new(SharedOutput::new(output));
    if let FileRequest::Receive(receive) = &first
        && guard::is_needed(receive)
    {
        return guard::run(receive, &requests, &told);
    }
    let arrivals = match Arrivals::new(Arc::clone(&told)) {
        Ok(arrivals) => Arc::new(arrivals),
        Err(error) => {
            told.event(&Event::Failed(Failure::new(format!("host-agent: {error}"))));
            return ExitCode::FAILURE;
        }
    };
    match begin(first, &told, &arrivals) {
        Ok(mut serving) => {
            requests.widen();
            crate::requests::widen(&std::io::stdout());
            let code = while_beating(serving.as_mut(), &told, |serving| {
                converse_by_login(serving, requests, &arrivals)
            });
            ExitCode::from(code)
        }
        Err(failure) => {
            told.event(&Event::Failed(failure));
            ExitCode::FAILURE
        }
    }
}

/// Creates what serves the first request of a conversation.
fn begin(
    first: FileRequest,
    told: &SharedOutput,
    arrivals: &Arc<Arrivals>,
) -> Result<Box<dyn Serve>, Failure> {
    match first {
        FileRequest::Receive(receive) => receive::Receiver::begin(receive, told, arrivals)
            .map(|receiver| Box::new(receiver) as Box<dyn Serve>),
        FileRequest::Give(give) => {
            send::Sender::begin(&give, told).map(|sender| Box::new(sender) as Box<dyn Serve>)
        }
        FileRequest::Handed { key } => {
            receive::Heir::begin(&key, arrivals).map(|heir| Box::new(heir) as Box<dyn Serve>)
        }
        _ => Err(Failure::new("neither receive nor give came before it")),
    }
}

/// Serves the requests of a conversation: a receiver, a sender, or an heir.
trait Serve: Send {
    /// Carries out a request; an error ends the conversation.
    fn step(
        &mut self,
        step: FileRequest,
        body: Vec<u8>,
        told: &SharedOutput,
    ) -> Result<(), Failure>;
    /// A function that shows other hosts that this one is alive, called from time to time.
    fn sign(&self) -> Option<Box<dyn Fn() + Send>> {
        None
    }
    /// The connection over which files were on their way broke, and another one continues.
    fn break_off(&mut self) {}
}

/// Why a stream of requests is not read any longer.
enum Stop {
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
fn while_beating(
    serving: &mut dyn Serve,
    told: &SharedOutput,
    converse: impl FnOnce(&mut dyn Serve) -> u8,
) -> u8 {
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
        let code = converse(serving);
        drop(over);
        code
    })
}

/// The conversation of the login, which may move to a direct connection and back.
fn converse_by_login(
    serving: &mut dyn Serve,
    mut requests: Requests,
    arrivals: &Arc<Arrivals>,
) -> u8 {
    let told = arrivals.told.as_ref();
    let mut door: Option<Door> = None;
    let mut first = None;
    loop {
        match answer_all(serving, first.take(), &mut requests, told) {
            Stop::Listen(listen) => {
                // a requested port may be the one that is open already
                drop(door.take());
                door = Door::open(&listen, arrivals);
            }
            Stop::Move => {
                let Some((link, direct)) = door.as_ref().and_then(Door::arrival) else {
                    return end(
                        Stop::Failed(Failure::new("there is no connection to move to")),
                        told,
                    );
                };
                match converse_directly(serving, (link, direct), requests, told) {
                    Ok((back, message)) => (requests, first) = (back, Some(message)),
                    Err(code) => return code,
                }
                door.iter().for_each(Door::end_lanes);
                serving.break_off();
            }
            stop => return end(stop, told),
        }
    }
}

/// Continues over a direct connection until that ends, or until something comes over the login
/// again. Returns that request, or how the agent ends.
fn converse_directly(
    serving: &mut dyn Serve,
    (link, mut direct): (SharedLink, Requests),
    mut login: Requests,
    told: &SharedOutput,
) -> Result<(Requests, Message<Request>), u8> {
    told.redirect(Output::over(Arc::clone(&link)));
    let (say, said) = channel();
    std::thread::spawn(move || {
        let word = word_by_login(&mut login);
        lock(&link).shutdown();
        let _ = say.send((word, login));
    });
    match answer_all(serving, None, &mut direct, told) {
        stop @ Stop::Failed(_) => return Err(end(stop, told)),
        Stop::Listen(_) | Stop::Move => {
            let failure = Failure::new("a port is asked for by the login");
            return Err(end(Stop::Failed(failure), told));
        }
        Stop::End | Stop::Silence | Stop::Closed | Stop::Malformed(_) => {}
    }
    told.redirect(Output::default());
    match said.recv() {
        Ok((Ok(Next::Request(message)), login)) => Ok((login, message)),
        Ok((Ok(Next::Silence), _)) => Err(end(Stop::Silence, told)),
        Ok((Err(malformed), _)) => Err(end(Stop::Malformed(malformed), told)),
        Ok((Ok(Next::End), _)) | Err(_) => Err(end(Stop::End, told)),
    }
}

/// The next request over the login, except signs of life, while a direct connection carries the
/// conversation.
fn word_by_login(login: &mut Requests) -> Result<Next, String> {
    loop {
        match login.next_within(Some(SILENCE)) {
            Ok(Next::Request(message)) if message.head == Request::Alive => {}
            other => return other,
        }
    }
}

/// The conversation of a connection that has its own.
fn converse_alone(serving: &mut dyn Serve, requests: &mut Requests, told: &SharedOutput) {
    while_beating(serving, told, |serving| {
        let stop = match answer_all(serving, None, requests, told) {
            Stop::Listen(_) | Stop::Move => {
                Stop::Failed(Failure::new("a port is asked for by the login"))
            }
            stop => stop,
        };
        end(stop, told)
    });
}

/// Reports why a conversation ends; returns the agent's exit status.
fn end(stop: Stop, told: &SharedOutput) -> u8 {
    let fail = |failure: Failure, code: u8| {
        told.event(&Event::Failed(failure));
        code
    };
    match stop {
        Stop::End => 0,
        Stop::Closed => OVER_LOST,
        Stop::Silence => {
            told.tell(FileEvent::Silence {
                seconds: SILENCE.as_secs(),
            });
            OVER_LOST
        }
        Stop::Malformed(malformed) => fail(Failure::new(malformed), OVER_MALFORMED),
        Stop::Failed(failure) => fail(failure, 1),
        Stop::Listen(_) | Stop::Move => fail(Failure::new("a port is asked for by the login"), 1),
    }
}

/// Answers one request after another, beginning with one that was already read.
fn answer_all(
    serving: &mut dyn Serve,
    mut first: Option<Message<Request>>,
    requests: &mut Requests,
    told: &SharedOutput,
) -> Stop {
    loop {
        let next = match first.take() {
            Some(message) => Ok(Next::Request(message)),
            None => requests.next_within(Some(SILENCE)),
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
            Request::File(step) => serving.step(step, message.body, told),
            _ => Err(Failure::new(
                "a request that is not about files, in the middle of files",
            )),
        };
        if let Err(failure) = done {
            return Stop::Failed(failure);
        }
        if told.is_closed() {
            return Stop::Closed;
        }
    }
}

/// The output of a conversation, shared by threads.
struct SharedOutput(Mutex<Output>);

impl SharedOutput {
    fn new(output: Output) -> SharedOutput {
        SharedOutput(Mutex::new(output))
    }

    /// From here on, events go to another output.
    fn redirect(&self, output: Output) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = output;
    }

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
