//! Receives files on this host (`receive`) or gives files from it (`give`), in conversations with a
//! tool or another host. The login's conversation begins first and ends last.
//!
//! The first request of a conversation decides what serves it; the others are answered in order.
//! Conversations do not wait for each other, and each stays on its connection: each connection
//! beside the login (`direct_listener`) has its own, which shares the files of the push
//! (`incoming_file`) with the others, and other hosts hand files on over theirs (`forward`). What
//! is unfinished when one ends may be requested again over another connection. Each sends
//! heartbeats while it works, and a tool that sends nothing for a minute counts as lost.

mod begin;
mod direct_listener;
mod forward;
mod give;
mod incoming_file;
mod inspect;
mod progress;
mod push_folder;
mod receive;
mod serve;

use agent::notes::{Note, WatcherLink};
use agent::output::EventOutput;
use agent::requests::{Requests, widen};
use begin::begin;
use direct_listener::DirectListener;
use incoming_file::{Caller, IncomingFiles};
use push_folder::PushFolder;
pub use serve::Serve;
use serve::converse;
use std::process::ExitCode;
use std::sync::Arc;
use wire::files::{FileRequest, Receive};
use wire::{Event, Failure};

pub fn serve(
    first: FileRequest,
    mut requests: Requests,
    output: EventOutput,
    watcher: &mut WatcherLink,
) -> ExitCode {
    let output = Arc::new(output);
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
    /// Dropped before `serving`, whose files its connections use.
    listener: Option<DirectListener>,
    serving: Box<dyn Serve>,
    output: Arc<EventOutput>,
    files: Arc<IncomingFiles>,
}

impl Login {
    fn begin(
        first: FileRequest,
        output: &Arc<EventOutput>,
        watcher: &mut WatcherLink,
    ) -> Result<Login, Failure> {
        if let FileRequest::Receive(receive) = &first {
            watcher.ask(&Note::PushFolder(receive.clone()))?;
        }
        let (serving, files) = begin_first(first, output)?;
        Ok(Login {
            listener: None,
            serving,
            output: Arc::clone(output),
            files,
        })
    }
}

/// A conversation alone: its requests come by calls, and no other connections belong to it.
pub fn conversation(
    first: FileRequest,
    output: &Arc<EventOutput>,
) -> Result<Box<dyn Serve>, Failure> {
    Ok(begin_first(first, output)?.0)
}

fn begin_first(
    first: FileRequest,
    output: &Arc<EventOutput>,
) -> Result<(Box<dyn Serve>, Arc<IncomingFiles>), Failure> {
    let files = IncomingFiles::new();
    let files = files.map_err(|error| Failure::new(format!("host-agent: {error}")))?;
    let files = Arc::new(files);
    let serving = begin(first, Caller::Tool, Arc::clone(output), &files)?;
    Ok((serving, files))
}

/// Cleans up after a push whose session on this host has died.
pub fn put_away(receive: &Receive) {
    let push_folder = PushFolder::abandoned(receive.base.path(), &receive.run, receive.host);
    push_folder.iter().for_each(PushFolder::leave);
}

impl Serve for Login {
    fn step(
        &mut self,
        step: FileRequest,
        body: Vec<u8>,
        requests: &mut Requests,
    ) -> Result<(), Failure> {
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
            step => self.serving.step(step, body, requests),
        }
    }
}
