//! The beginning of a conversation about files: its first request decides what serves it.

use super::coming::Arrivals;
use super::serve::Serve;
use super::shared_output::SharedOutput;
use super::{receive, send};
use std::sync::Arc;
use tls::PublicKey;
use wire::Failure;
use wire::files::FileRequest;

/// Creates what serves the first request of a conversation; `host` is the key of another host whose
/// conversation it is.
pub fn begin(
    first: FileRequest,
    host: Option<PublicKey>,
    told: &SharedOutput,
    arrivals: &Arc<Arrivals>,
) -> Result<Box<dyn Serve>, Failure> {
    match (first, host) {
        (FileRequest::Receive(receive), None) => receive::Receiver::begin(receive, told, arrivals)
            .map(|receiver| Box::new(receiver) as Box<dyn Serve>),
        (FileRequest::Give(give), None) => {
            send::Sender::begin(&give, told).map(|sender| Box::new(sender) as Box<dyn Serve>)
        }
        (FileRequest::Handed { key }, Some(host)) => {
            receive::Heir::begin(&key, host, arrivals).map(|heir| Box::new(heir) as Box<dyn Serve>)
        }
        _ => Err(Failure::new("neither receive nor give came before it")),
    }
}
