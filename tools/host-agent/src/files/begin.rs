//! The beginning of a conversation about files: its first request decides what serves it.

use super::coming::Arrivals;
use super::serve::Serve;
use super::shared_output::SharedOutput;
use super::{receive, send};
use std::sync::Arc;
use tls::PublicKey;
use wire::Failure;
use wire::files::FileRequest;

/// Who sends the requests of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// The tool: by its login, or with its key.
    Tool,
    /// Another host of the push, with this key.
    Host(PublicKey),
}

/// Creates what serves the first request of a conversation.
pub fn begin(
    first: FileRequest,
    caller: Caller,
    told: &SharedOutput,
    arrivals: &Arc<Arrivals>,
) -> Result<Box<dyn Serve>, Failure> {
    match (first, caller) {
        (FileRequest::Receive(receive), Caller::Tool) => {
            receive::Receiver::begin(receive, told, arrivals)
                .map(|receiver| Box::new(receiver) as Box<dyn Serve>)
        }
        (FileRequest::Give(give), Caller::Tool) => {
            send::Sender::begin(&give, told).map(|sender| Box::new(sender) as Box<dyn Serve>)
        }
        (FileRequest::Handed { key, pass }, Caller::Host(host)) => {
            receive::Heir::begin(&key, pass, host, arrivals)
                .map(|heir| Box::new(heir) as Box<dyn Serve>)
        }
        _ => Err(Failure::new("neither receive nor give came before it")),
    }
}
