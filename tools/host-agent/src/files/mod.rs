//! Files come to this host (`receive`) or are fetched from it (`send`), in a conversation that
//! lasts until its stdin ends.
//!
//! The first request decides which; every further request is answered in its order, and none waits
//! for another. A conversation may move to a direct connection (`direct_listener`), further ones
//! come beside it, and other hosts hand files on over theirs (`forward`). A sign of life is sent
//! now and then whatever else is done, and if the tool sends nothing for a minute it is taken for
//! gone.

mod begin;
mod direct_listener;
mod fetch;
mod forward;
mod guard;
mod incoming_file;
mod inspect;
mod receive;
mod send;
mod serve;
mod stage;
mod workspace;

use crate::output::{Output, SharedLink, SharedOutput};
use crate::requests::{Next, Requests};
use begin::begin;
use direct_listener::DirectListener;
use incoming_file::{Caller, IncomingFiles};
use serve::{Serve, Stop, answer_all, end, while_beating};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::channel;
use transfer::silence;
use wire::codec::Message;
use wire::files::FileRequest;
use wire::{Event, Failure, Request};

/// Serves the rest of stdin.
pub fn serve(first: FileRequest, mut requests: Requests, output: Output) -> ExitCode {
    // a file that exceeds a limit is an error of that file, not the end of the agent
    let mut signals = nix::sys::signal::SigSet::empty();
    signals.add(nix::sys::signal::Signal::SIGXFSZ);
    let _ = signals.thread_block();
    let output = Arc::new(SharedOutput::new(output));
    if let FileRequest::Receive(receive) = &first
        && guard::is_needed(receive)
    {
        return guard::run(receive, &requests, &output);
    }
    let files = match IncomingFiles::new(Arc::clone(&output)) {
        Ok(files) => Arc::new(files),
        Err(error) => {
            output.event(&Event::Failed(Failure::new(format!("host-agent: {error}"))));
            return ExitCode::FAILURE;
        }
    };
    match begin(first, Caller::Tool, &output, &files) {
        Ok(mut serving) => {
            requests.widen();
            crate::requests::widen(&std::io::stdout());
            let code = while_beating(serving.as_mut(), &output, |serving| {
                converse_by_login(serving, requests, &files)
            });
            ExitCode::from(code)
        }
        Err(failure) => {
            output.event(&Event::Failed(failure));
            ExitCode::FAILURE
        }
    }
}

/// The conversation of the login, which may move to a direct connection and back.
fn converse_by_login(
    serving: &mut dyn Serve,
    mut requests: Requests,
    files: &Arc<IncomingFiles>,
) -> u8 {
    let output = files.events.as_ref();
    let mut listener: Option<DirectListener> = None;
    let mut first = None;
    loop {
        match answer_all(serving, first.take(), &mut requests, output) {
            Stop::Listen(listen) => {
                drop(listener.take());
                listener = DirectListener::open(&listen, files);
            }
            Stop::Move => {
                let Some((link, direct)) = listener.as_ref().and_then(DirectListener::arrival)
                else {
                    return end(
                        Stop::Failed(Failure::new("there is no connection to move to")),
                        output,
                    );
                };
                match converse_directly(serving, (link, direct), requests, output) {
                    Ok((back, message)) => (requests, first) = (back, Some(message)),
                    Err(code) => return code,
                }
                listener.iter().for_each(DirectListener::end_lanes);
                serving.break_off();
            }
            stop => return end(stop, output),
        }
    }
}

/// Continues over a direct connection until that ends, or until something comes over the login
/// again. Returns that request, or how the agent ends.
fn converse_directly(
    serving: &mut dyn Serve,
    (link, mut direct): (SharedLink, Requests),
    mut login: Requests,
    output: &SharedOutput,
) -> Result<(Requests, Message<Request>), u8> {
    output.redirect(Output::over(Arc::clone(&link)));
    let direct_link = Arc::clone(&link);
    let (sender, receiver) = channel();
    let listening = std::thread::Builder::new().spawn(move || {
        let word = word_by_login(&mut login);
        link.lock().shutdown();
        let _ = sender.send((word, login));
    });
    if let Err(error) = listening {
        let failure = Failure::new(format!("host-agent: no thread can be started: {error}"));
        return Err(end(Stop::Failed(failure), output));
    }
    match answer_all(serving, None, &mut direct, output) {
        stop @ Stop::Failed(_) => return Err(end(stop, output)),
        Stop::Listen(_) | Stop::Move => {
            let failure = Failure::new("a port is asked for by the login");
            return Err(end(Stop::Failed(failure), output));
        }
        Stop::End | Stop::Silence | Stop::Closed | Stop::Malformed(_) => {}
    }
    // so that the tool goes back to the login at once
    direct_link.lock().shutdown();
    output.redirect(Output::default());
    match receiver.recv() {
        Ok((Ok(Next::Request(message)), login)) => Ok((login, message)),
        Ok((Ok(Next::Silence), _)) => Err(end(Stop::Silence, output)),
        Ok((Err(malformed), _)) => Err(end(Stop::Malformed(malformed), output)),
        Ok((Ok(Next::End), _)) | Err(_) => Err(end(Stop::End, output)),
    }
}

/// The next request over the login, except signs of life, while a direct connection carries the
/// conversation.
fn word_by_login(login: &mut Requests) -> Result<Next, String> {
    loop {
        match login.next_within(Some(silence())) {
            Ok(Next::Request(message)) if message.head == Request::Alive => {}
            other => return other,
        }
    }
}
