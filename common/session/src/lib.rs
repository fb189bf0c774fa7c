//! A conversation with the agent of a host. A [`channel::Channel`] carries its bytes: a login,
//! which the crate `remote` makes, or a connection that the agent made itself.

pub mod channel;
mod fault;
mod link_channel;
pub mod reasons;
mod session;
pub mod signal;
mod token;
pub mod transport;

pub use fault::{HostFault, UnknownKey, report};
pub use link_channel::LinkChannel;
pub use session::{Session, SessionEvent};
pub use token::{random_token, session_token};
pub use transport::{Body, Waker};

use std::time::Duration;

/// How long a tool waits for an answer: longer than any working agent needs, and not for ever,
/// because a file system of the host may hang.
pub const ANSWER_LIMIT: Duration = Duration::from_secs(60);
