//! The beginning of a conversation about files: its first request decides what serves it.

use super::give::Giver;
use super::incoming_file::{Caller, IncomingFiles};
use super::receive::{ForwardReceiver, Push};
use super::serve::Serve;
use agent::output::EventOutput;
use std::sync::Arc;
use wire::Failure;
use wire::files::FileRequest;

pub fn begin(
    first: FileRequest,
    caller: Caller,
    output: Arc<EventOutput>,
    files: &Arc<IncomingFiles>,
) -> Result<Box<dyn Serve>, Failure> {
    Ok(match (first, caller) {
        (FileRequest::Receive(receive), Caller::Tool) => {
            Box::new(Push::begin(receive, output, files)?)
        }
        (FileRequest::Give { base }, Caller::Tool) => Box::new(Giver::begin(base.path(), output)?),
        (FileRequest::Handed { partial_key }, Caller::Host(host)) => {
            Box::new(ForwardReceiver::begin(&partial_key, host, output, files)?)
        }
        _ => return Err(Failure::new("neither receive nor give came before it")),
    })
}
