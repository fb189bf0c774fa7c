//! A conversation with the agent of a host. What carries the bytes is a [`channel::Channel`]: a
//! login, which the crate `remote` makes, or a connection that the agent made itself.

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

/// Longer than any honest agent takes for an answer, because a file system that hangs must not hold
/// a tool up for ever.
pub const ANSWER_LIMIT: Duration = Duration::from_secs(60);
