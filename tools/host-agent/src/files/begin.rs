//! The beginning of a conversation about files: its first request decides what serves it.

use super::coming::Arrivals;
use super::serve::Serve;
use super::shared_output::SharedOutput;
use super::{receive, send};
use std::sync::Arc;
use wire::Failure;
use wire::files::FileRequest;

/// Creates what serves the first request of a conversation.
pub fn begin(
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
