//! Files come to this host (`receive`) or are fetched from it (`send`), in conversations of which
//! the one over the login is the first and the last.
//!
//! The first request of a conversation decides what serves it; every further one is answered in
//! its order, and none waits for another. No conversation moves: each connection beside the login
//! (`direct_listener`) has its own, which shares the files of this push (`incoming_file`) with the
//! others, and other hosts hand files on over theirs (`forward`). What an end leaves undone may be
//! requested again over another connection. A sign of life is sent now and then whatever else is
//! done, and a tool that sends nothing for a minute is taken for gone.

mod begin;
mod direct_listener;
mod forward;
mod incoming_file;
mod inspect;
mod receive;
mod send;
mod serve;
mod stage;

use crate::notes::{Note, WatcherLink};
use crate::output::{EventOutput, SharedOutput};
use crate::requests::{Requests, widen};
use begin::begin;
use direct_listener::DirectListener;
use incoming_file::{Caller, IncomingFiles};
use serve::{Serve, converse};
use stage::Stage;
use std::process::ExitCode;
use std::sync::Arc;
use wire::files::{FileRequest, Receive};
use wire::{Event, Failure};

/// Serves the rest of stdin.
pub fn serve(
    first: FileRequest,
    mut requests: Requests,
    output: EventOutput,
    watcher: &mut WatcherLink,
) -> ExitCode {
    // a file that exceeds a limit is an error of that file, not the end of the agent
    let mut signals = nix::sys::signal::SigSet::empty();
    signals.add(nix::sys::signal::Signal::SIGXFSZ);
    let _ = signals.thread_block();
    let output = Arc::new(SharedOutput::new(output));
    match Login::begin(first, &output, watcher) {
        Ok(mut login) => {
            widen(&std::io::stdin());
            widen(&std::io::stdout());
            ExitCode::from(converse(&mut login, &mut requests, &output))
        }
        Err(failure) => {
            output.event(&Event::Failed(failure));
            ExitCode::FAILURE
        }
    }
}

/// The conversation of the login, with the port for connections beside it.
struct Login {
    /// Dropped first: what comes over those connections belongs to what serves this one.
    listener: Option<DirectListener>,
    serving: Box<dyn Serve>,
    output: Arc<SharedOutput>,
    files: Arc<IncomingFiles>,
}

impl Login {
    fn begin(
        first: FileRequest,
        output: &Arc<SharedOutput>,
        watcher: &mut WatcherLink,
    ) -> Result<Login, Failure> {
        if let FileRequest::Receive(receive) = &first {
            watcher.ask(&Note::Stage(receive.clone()))?;
        }
        let files = IncomingFiles::new();
        let files = files.map_err(|error| Failure::new(format!("host-agent: {error}")))?;
        let files = Arc::new(files);
        Ok(Login {
            listener: None,
            serving: begin(first, Caller::Tool, Arc::clone(output), &files)?,
            output: Arc::clone(output),
            files,
        })
    }
}

/// Puts away what a push has left on this host whose session has died.
pub fn put_away(receive: &Receive) {
    let stage = Stage::abandoned(receive.base.path(), &receive.run, receive.host);
    stage.iter().for_each(Stage::leave);
}

impl Serve for Login {
    fn step(&mut self, step: FileRequest, body: Vec<u8>) -> Result<(), Failure> {
        match step {
            FileRequest::Listen(listen) => {
                drop(self.listener.take());
                self.listener = DirectListener::open(&listen, &self.output, &self.files);
                Ok(())
            }
            FileRequest::EndDirect => {
                self.listener
                    .iter()
                    .for_each(DirectListener::end_connections);
                Ok(())
            }
            step => self.serving.step(step, body),
        }
    }
}
