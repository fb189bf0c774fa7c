//! The beginning of a conversation about files: its first request decides what serves it.

use super::incoming_file::{Caller, IncomingFiles};
use super::serve::Serve;
use super::{receive, send};
use crate::output::SharedOutput;
use std::sync::Arc;
use wire::Failure;
use wire::files::FileRequest;

/// Creates what serves the first request of a conversation.
pub fn begin(
    first: FileRequest,
    caller: Caller,
    output: &SharedOutput,
    files: &Arc<IncomingFiles>,
) -> Result<Box<dyn Serve>, Failure> {
    match (first, caller) {
        (FileRequest::Receive(receive), Caller::Tool) => {
            receive::Receiver::begin(receive, output, files)
                .map(|receiver| Box::new(receiver) as Box<dyn Serve>)
        }
        (FileRequest::Give(give), Caller::Tool) => {
            send::Sender::begin(&give, output).map(|sender| Box::new(sender) as Box<dyn Serve>)
        }
        (FileRequest::Handed { key }, Caller::Host(host)) => {
            receive::ForwardReceiver::begin(&key, host, files)
                .map(|receiver| Box::new(receiver) as Box<dyn Serve>)
        }
        _ => Err(Failure::new("neither receive nor give came before it")),
    }
}
